#!/bin/bash
# Tries the Debian package on a router at work, with a systemd that runs: install, start, upgrade from the package of the commit before, reload,
# restart, crash, hang, stop, remove and purge, all while 20 transfers and some idle connections go through it. Root; a quarter of an hour and the builds.
#   packaging/try-systemd.sh [OLD.deb NEW.deb]     without packages: builds both
# WAYS: which ways of diversion (bump, policy, and filters: the bump of kernels before 6.6). All by default.
# The router is a fresh root file system with a systemd of its own (packaging/boot.sh), between two network namespaces with the hosts. Nothing of the
# machine's own network is touched. However it ends, nothing stays.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
[ "$(id -u)" -eq 0 ] || { echo 'packaging/try-systemd.sh wants root' >&2; exit 2; }
need_package ip iproute2 'network namespaces'
need_package curl curl 'transfers'
need_package python3 python3 'the load'
work=$(mktemp -d)
. packaging/trial.sh
name=fltry$$
log=$work/load
server=10.77.2.2
transfers=20
: "${WAYS:=bump policy filters}"
init='' loading='' serving='' booting=''

# Processes are asked for, and ended, one by one.
finish() {
    local pid
    for pid in $loading $serving $init; do kill -KILL "$pid" 2>/dev/null || true; done
    # Its end is the end of all that it started.
    [ -z "$booting" ] || wait "$booting" 2>/dev/null || true
    for host in client router server; do ip netns del "$name-$host" 2>/dev/null || true; done
    find "$(findmnt -n -t cgroup2 -o TARGET | head -n 1)/$name" -depth -type d -exec rmdir {} + 2>/dev/null || true
    remove_worktree
    rm -rf --one-file-system "$work"
}
trap finish EXIT

in_ns() { ip netns exec "$name-$1" "${@:2}"; }
# router COMMAND...: on the router, as its administrator types it.
router() { nsenter --target "$init" --all env LC_ALL=C DEBIAN_FRONTEND=noninteractive TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# within SECONDS COMMAND...: becomes true in this time.
within() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt "$until" ] || { "$@"; return; }
        sleep 0.1
    done
}

# The link carries 20 Mbit/s each way, by the kernel: it stays hard while Farlink is away.
network() {
    local host
    for host in client router server; do
        ip netns add "$name-$host"
        in_ns $host ip link set lo up
    done
    in_ns router sysctl -qw net.ipv6.conf.default.accept_dad=0
    ip -n "$name-router" link add lan0 type veth peer name eth0 netns "$name-client"
    ip -n "$name-router" link add sat0 type veth peer name eth0 netns "$name-server"
    ip -n "$name-router" address add 10.77.1.1/24 dev lan0
    ip -n "$name-router" address add 10.77.2.1/24 dev sat0
    ip -n "$name-client" address add 10.77.1.2/24 dev eth0
    ip -n "$name-server" address add "$server/24" dev eth0
    for host in client server; do ip -n "$name-$host" link set eth0 up; done
    for host in lan0 sat0; do ip -n "$name-router" link set $host up; done
    ip -n "$name-client" route add default via 10.77.1.1
    ip -n "$name-server" route add default via 10.77.2.1
    in_ns router sysctl -qw net.ipv4.ip_forward=1
    in_ns router tc qdisc add dev sat0 root tbf rate 20mbit burst 64k latency 200ms
    in_ns server tc qdisc add dev eth0 root tbf rate 20mbit burst 64k latency 200ms
}
# Addresses of IPv6 take their time, and what is compared later has them.
has_addresses() { [ "$(ip -n "$name-router" -6 -o address show scope link up -tentative | wc -l)" -eq 2 ]; }

boot() {
    local unit
    # Nobody sits before it, and what they would do concerns the machine that all this runs on.
    for unit in systemd-sysctl.service systemd-modules-load.service modprobe@.service systemd-journald-audit.socket console-getty.service \
        getty.target sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount dev-hugepages.mount; do
        ln -sfn /dev/null "$root/etc/systemd/system/$unit"
    done
    packaging/boot.sh "$root" "$name-router" "$name" >"$work/boot" 2>&1 &
    booting=$!
    within 10 pgrep -P "$booting" -x systemd
    init=$(pgrep -P "$booting" -x systemd)
    within 30 router systemctl is-system-running
}

# What the kernel knows of diversion, and what is no business of Farlink's.
# shellcheck disable=SC2016
kernel() {
    router sh -c 'ip -o link | cut -d: -f2; nft list ruleset; ip rule; ip -6 rule; ip route show table all; tc qdisc show dev lan0; tc qdisc show dev sat0
        for i in lan0 sat0; do tc filter show dev $i ingress; tc filter show dev $i egress; done; cd /proc/sys/net/ipv4/conf; grep . */rp_filter */src_valid_mark'
}
clean() { kernel >"$work/kernel" && diff "$work/kernel.fresh" "$work/kernel"; }
# What lies on its disk, and what of Farlink lies in what a restart takes away.
nothing_left() {
    contents >"$work/purged"
    diff "$work/fresh" "$work/purged" && test -z "$(router find /run /tmp /var/tmp -name '*farlink*')"
}

pid() { router systemctl show --value -p MainPID farlink; }
active() { router systemctl is-active --quiet farlink; }
shows() { [ "$(router systemctl show --value -p "$1" farlink)" = "$2" ]; }
says() { router journalctl -q -u farlink --no-pager --since "@${from%.*}" | grep -qi "$1"; }
carries() {
    echo "the link carries $(router farlink set link.sat0.rate_bps) bit/s"
    [ "$(router farlink set link.sat0.rate_bps)" = "$1" ]
}

# split N: so many connections are split now.
split() {
    router farlink status --json | python3 -c '
import json, sys
engine = json.load(sys.stdin)["engine"]
print(engine["flows_split"], "split,", engine["flows_dormant"], "asleep")
sys.exit(engine["flows_split"] < int(sys.argv[1]))' "$1"
}

# What the load has noted: of all of it, or since the last `mark`.
mark() { from=$(date +%s.%N); }
since() { awk -v from="$from" '$1 >= from' "$log"; }
none() { not grep "$1 $2" "$log"; }
goes_on() { [ "$(since | grep -c 'load good')" -ge 5 ]; }
# All that is open is asked.
answered() { grep -c ' idle answered' "$log" || true; }
more_answers() { [ "$(answered)" -gt "$1" ]; }
idle_answer() {
    local before
    before=$(answered)
    kill -USR1 "$loading"
    within 60 more_answers "$before" && none idle lost
}
# flows SECONDS: the longest time without an answer was no longer.
flows() {
    longest=$(since | awk '$2 == "pulse" { if ($4 > m) m = $4 } END { print m + 0 }')
    awk -v longest="$longest" -v most="$1" 'BEGIN { exit longest > most }'
}
# unharmed WHAT: nothing broke or changed, and transfers go on.
unharmed() {
    expect "$1: transfers go on" within 60 goes_on
    expect "$1: no transfer broke" none load lost
    expect "$1: no byte changed" none load wrong
    expect "$1: idle connections answer" idle_answer
}
# Where the processor is short Farlink leaves new ones alone for some seconds: that is not what is tried here.
and_split() {
    local before=$SECONDS
    expect "$1: new connections are split" within 30 split $((transfers * 3 / 4))
    echo "   after $((SECONDS - before)) s"
}

load() {
    : >"$log"
    ip netns exec "$name-client" packaging/load.py ask "$server" "$work/files" "$log" $transfers &
    loading=$!
    within 10 grep -q ' idle open' "$log"
    mark
}
# What is under way goes on to its end. Whoever hangs is given up by its host (curl: 28).
unload() {
    local pid=$loading
    kill -TERM "$pid"
    loading=
    wait "$pid"
}

configure() {
    local method=$1
    [ "$method" != filters ] || method=bump
    # Under the table that the example ends with nothing of its own can stand.
    printf '\n[[link]]\ninterface = "sat0"\nrate = "%s"\n\n[[interface]]\nname = "lan0"\n' "$2" >>"$root/etc/farlink/farlink.toml"
    sed -i "s/^#method = .*/method = \"$method\"/; s|^rate = .*|rate = \"$2\"|" "$root/etc/farlink/farlink.toml"
    [ "$1" != filters ] || environment FARLINK_TCX=off
}
# What an administrator adds to the unit: `systemctl edit --runtime`.
environment() { drop_in environment "Environment=$1"; }
# shellcheck disable=SC2016
drop_in() {
    router sh -c 'mkdir -p /run/systemd/system/farlink.service.d && printf "[Service]\n%s\n" "$2" >"/run/systemd/system/farlink.service.d/$1.conf"' sh "$@"
    router systemctl daemon-reload
}
rate() { sed -i "s|^rate = .*|rate = \"$1\"|" "$root/etc/farlink/farlink.toml"; }

# first WAY: the older package, configured and started, with the load on it.
first() {
    mark
    expect 'the older package installs' router dpkg -i /old.deb
    expect 'without a configuration the service is skipped, which is no failure' shows ActiveState inactive
    expect 'its log says that there is nothing to do' says 'nothing to do'
    expect 'nothing in the kernel has changed' clean
    configure "$1" '18 Mbit/s'
    load
    expect 'it starts' router systemctl start farlink
    expect 'it is active' active
    unharmed 'started under load'
    expect '20 transfers are split' within 30 split $transfers
}

upgrade() {
    local before=$SECONDS old_pid
    old_pid=$(pid)
    mark
    expect 'the newer package upgrades it under load' router dpkg --force-confdef --force-confold -i /new.deb
    echo "   dpkg took $((SECONDS - before)) s"
    expect 'it is active after the upgrade' active
    expect 'the new program runs' test "$(pid)" != "$old_pid" -a "$(router readlink "/proc/$(pid)/exe")" = /usr/bin/farlink
    and_split upgrade
    unharmed upgrade
}

reloads() {
    local before
    before=$(pid)
    mark
    rate '19 Mbit/s'
    printf '\n[[rule]]\nname = "echo"\nports = [7]\nclass = "interactive"\naction = "split"\n' >>"$root/etc/farlink/farlink.toml"
    expect 'a changed configuration is read' router systemctl reload farlink
    expect 'the new rate holds' carries 19000000
    and_split reload
    unharmed reload
    mark
    rate '17 furlongs'
    expect 'a wrong one is refused' not router systemctl reload farlink
    expect 'it is active all the same' active
    expect 'the old rate holds' carries 19000000
    rate '18 Mbit/s'
    expect 'the same process runs' test "$(pid)" = "$before"
    and_split 'refused reload'
    unharmed 'refused reload'
    mark
    expect 'it restarts' router systemctl restart farlink
    expect 'it is active after the restart' active
    expect 'what was read last holds' carries 18000000
    and_split restart
    unharmed restart
    expect 'the load ends' unload
    expect 'none of it broke' none load lost
}

# fails WHAT SECONDS: it has ended, and systemd has started it again. What it held is lost, and hosts learn it. Nothing else is, and TCP flows again soon.
fails() {
    expect "$1: it is started again" within 15 again
    expect "$1: it is active" within 5 active
    # The pulse has had its gap by then.
    sleep 1
    expect "$1: TCP flows again within $2 s" flows "$2"
    echo "   longest time without an answer: $longest s"
    and_split "$1"
    expect "$1: idle connections answer" idle_answer
    expect "$1: the load ends" unload
    expect "$1: no byte changed" none load wrong
    expect "$1: no host was left hanging" none load 'lost.*(28)'
    echo "   $(grep -c 'load lost' "$log") of $(grep -c load "$log") transfers had data here, and were reset"
}
again() { [ "$(pid)" != 0 ] && [ "$(pid)" != "$dead" ]; }

failures() {
    local watcher
    load
    expect 'the load is split' within 30 split $transfers
    dead=$(pid)
    mark
    router kill -KILL "$dead"
    fails 'kill -9' 2
    load
    expect 'the load is split' within 30 split $transfers
    dead=$(pid)
    mark
    router kill -STOP "$dead"
    fails 'kill -STOP' 4
    # Nobody but systemd is left to notice.
    load
    expect 'the load is split' within 30 split $transfers
    dead=$(pid)
    watcher=$(router pgrep -P "$dead" -x farlink-watch)
    mark
    router kill -STOP "$watcher" "$dead"
    fails 'kill -STOP of both processes' 8
    expect 'systemd says that it was its watchdog' says 'watchdog'
}

last() {
    load
    expect 'the load is split' within 30 split $transfers
    mark
    expect 'it stops' router systemctl stop farlink
    expect 'that was no failure' shows Result success
    expect 'stopped: the kernel is as before' clean
    unharmed stopped
    expect 'it starts again' router systemctl start farlink
    and_split 'started again'
    mark
    expect 'removal under load' router dpkg -r farlink
    expect 'removed: the kernel is as before' clean
    unharmed removed
    expect 'the load ends' unload
    expect 'none of it broke' none load lost
    router rm -rf /run/systemd/system/farlink.service.d
    expect 'purge' router dpkg -P farlink
    expect 'nothing is left' nothing_left
}

# A gateway that was killed and not started again leaves rules, or filters. A removal takes them away.
killed() {
    expect 'installed once more' router dpkg -i /new.deb
    configure "$1" '18 Mbit/s'
    drop_in once 'Restart=no'
    expect 'started once more' router systemctl start farlink
    router kill -KILL "$(pid)"
    expect 'it stays down' within 5 shows ActiveState failed
    if [ "$1" != bump ]; then expect 'something is left in the kernel' not clean; fi
    expect 'removal of one that was killed' router dpkg -r farlink
    expect 'killed, removed: the kernel is as before' clean
    router rm -rf /run/systemd/system/farlink.service.d
    expect 'purge of one that was killed' router dpkg -P farlink
    expect 'killed, purged: nothing is left' nothing_left
}

packages_of deb "$@"
fresh_root nftables,iproute2,systemd,logrotate,procps
cp "$old" "$root/old.deb"
cp "$new" "$root/new.deb"
network
boot
mkdir "$work/files"
head -c 2000000 /dev/urandom >"$work/files/file"
ip netns exec "$name-server" packaging/load.py serve "$work/files" &
serving=$!
contents >"$work/fresh"
within 10 has_addresses
kernel >"$work/kernel.fresh"
for way in $WAYS; do
    echo "== $way"
    first "$way"
    upgrade
    reloads
    failures
    last
    killed "$way"
done
echo "$checks checks passed: $(inside dpkg-deb -f /old.deb Version), then $(inside dpkg-deb -f /new.deb Version)"
