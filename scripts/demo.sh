#!/bin/bash
# A real file fetched by curl from nginx across an emulated link, without and with Farlink. Installs what is missing, builds the release,
# and writes results and plots to demo-out. Arguments go to `farlink lab run`.
#
# DEMO: satellite (a geostationary link, beside the physical limit), custody (a link that comes and goes, beside a sender that knows when),
# xcp (a router that says how fast) or starved (a slow return link).
set -euo pipefail
cd "$(dirname "$0")/.."
case "${DEMO:-satellite}" in
satellite) scenario=demo ;;
custody) scenario=demo-custody ;;
xcp) scenario=demo-xcp ;;
starved) scenario=demo-starved ;;
*) echo "DEMO is satellite, custody, xcp or starved, not $DEMO" >&2; exit 2 ;;
esac
. scripts/need.sh
need_commands
need_package curl curl "the client of the demo"
need_package nginx nginx "the server of the demo"
need_package ip iproute2 "making namespaces"
need_package nft nftables "diverting packets"
cargo build --release --locked --package farlink
mkdir -p demo-out
"${CARGO_TARGET_DIR:-target}/release/farlink" lab run "$scenario" --json "demo-out/$scenario.json" --plots demo-out "$@"
echo
echo "results: demo-out/$scenario.json"
printf 'plot:    %s\n' "demo-out/$scenario"-*.svg
