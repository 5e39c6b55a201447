#!/bin/bash
# Lets a Prometheus watch two real gateways for a minute, with the alert rules, and says of each query of packaging/grafana.json whether
# it had an answer. Ends with status 1 if one had none that should have. Root; about 75 seconds.
#   scripts/dashboard.sh [FARLINK]      with this program, or the release that it builds
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
need_package ip iproute2 "making namespaces"
need_package promtool prometheus "watching"
need_package python3 python3 "reading the dashboard"
if [ $# -gt 0 ]; then
    farlink=$1
else
    need_commands
    cargo build --release --locked --package farlink
    farlink="${CARGO_TARGET_DIR:-target}/release/farlink"
fi
prefix=fldash
out=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait "${pids[@]}" 2>/dev/null || true
    "$farlink" lab down --prefix $prefix >/dev/null || true
    rm -r "$out"
}
trap finish EXIT

"$farlink" lab up --prefix $prefix --set rate=8M rtt=200ms loss=0.005 >/dev/null
in_ns() { ip netns exec "$prefix-$1" "${@:2}"; }
# In the background: `ip` becomes the command, so this is its number.
start() {
    ip netns exec "$prefix-$1" "${@:2}" <&0 &
    pids+=($!)
}
# The laboratory's own gateways give way to ones that serve metrics.
for gateway in gw1 gw2; do
    "$farlink" drain --socket "/run/farlink/lab/$prefix/$gateway.sock" >/dev/null
    # Its last table is [admin]. The second one finds its rate out.
    cp "/run/farlink/lab/$prefix/$gateway.toml" "$out/$gateway.toml"
    [ $gateway = gw1 ] || sed -i '/^rate_bps/d' "$out/$gateway.toml"
    printf 'metrics_address = "0.0.0.0:9464"\nconnection_log = "%s"\n' "$out/$gateway.log" >>"$out/$gateway.toml"
    start $gateway "$farlink" run --config "$out/$gateway.toml" --socket "$out/$gateway.sock" 2>"$out/$gateway.err"
    for _ in $(seq 50); do "$farlink" status --socket "$out/$gateway.sock" >/dev/null 2>&1 && break; sleep 0.1; done
done
cat >"$out/prometheus.yml" <<CONFIG
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: ["$PWD/packaging/farlink-alerts.yml"]
scrape_configs:
  - job_name: farlink
    static_configs: [{targets: ["127.0.0.1:9464", "10.64.1.2:9464"]}]
CONFIG
start gw1 prometheus --config.file="$out/prometheus.yml" --storage.tsdb.path="$out/data" --web.listen-address=127.0.0.1:9090 \
    2>"$out/prometheus.err"
sleep 3
for gateway in gw1 gw2; do "$farlink" set --socket "$out/$gateway.sock" profile on; done
# It serves until its standard input ends: this one does not.
mkfifo "$out/open"
exec 9<>"$out/open"
start server "$farlink" bench-load server <&9 >/dev/null
sleep 1
start client "$farlink" bench-load bulk --flows 3 --seconds 65 --to 10.64.3.2 >/dev/null
start client "$farlink" bench-load http --rate 4 --seconds 60 --to 10.64.3.2 >/dev/null
sleep 60

in_ns gw1 python3 - packaging/grafana.json <<'PYTHON'
import json, sys, urllib.parse, urllib.request


def ask(query):
    url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)["data"]["result"]

empty = 0
for panel in json.load(open(sys.argv[1]))["panels"]:
    for target in panel.get("targets", []):
        query = target["expr"].replace("$__rate_interval", "30s").replace('"$instance"', '".*"').replace('"$link"', '".*"')
        found = ask(query)
        values = [float(series["value"][1]) for series in found]
        empty += not found
        shown = ", ".join(f"{value:.4g}" for value in values[:6]) if found else "NO ANSWER"
        print(f'{panel["title"]:32.32} {target["legendFormat"]:24.24} {shown}')
firing = [series["metric"]["alertname"] for series in ask('ALERTS{alertstate="firing"}')]
print("alerts:", ", ".join(firing) or "none")
up = ask('up{job="farlink"}')
print("gateways:", ", ".join(f'{series["metric"]["instance"]} {series["value"][1]}' for series in up))
with urllib.request.urlopen("http://127.0.0.1:9090/api/v1/targets") as answer:
    for target in json.load(answer)["data"]["activeTargets"]:
        if target["lastError"]:
            print(target["scrapeUrl"], target["lastError"])
sys.exit(empty > 0 or len(up) != 2 or any(series["value"][1] != "1" for series in up) or bool(firing))
PYTHON
echo "every query of the dashboard has an answer, and no alert fires"
