#!/bin/bash
# A real file fetched by curl from nginx across an emulated geostationary link, without and with Farlink, beside the physical
# limit. Installs what is missing, builds the release, and writes results and plots to demo-out. Arguments go to `farlink lab run`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_commands
need_package curl curl "the client of the demo"
need_package nginx nginx "the server of the demo"
need_package ip iproute2 "making namespaces"
need_package nft nftables "diverting packets"
cargo build --release --locked --package farlink
mkdir -p demo-out
"${CARGO_TARGET_DIR:-target}/release/farlink" lab run demo --json demo-out/demo.json --plots demo-out "$@"
echo
echo "results: demo-out/demo.json"
printf 'plot:    %s\n' demo-out/*.svg
