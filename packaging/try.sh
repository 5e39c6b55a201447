#!/bin/bash
# Tries the Debian package in a fresh root file system: install, upgrade from the package of the commit before, remove, purge.
# Root, Debian or Ubuntu. Everything that it makes lies in one temporary directory, which it removes at the end, however that comes.
#   packaging/try.sh [OLD.deb NEW.deb]     without packages: builds both
# The file system comes from the sources that apt uses here. There is no systemd running in it: what it would do is looked at, not done.
# `packaging/try-systemd.sh` does it, on a router at work.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
[ "$(id -u)" -eq 0 ] || { echo 'packaging/try.sh wants root' >&2; exit 2; }
work=$(mktemp -d)
. packaging/trial.sh
# However it ends, nothing stays: neither a process, nor a worktree, nor a file.
finish() {
    end_daemon
    remove_worktree
    rm -rf --one-file-system "$work"
}
trap finish EXIT
# shellcheck disable=SC2016
version() { inside dpkg-query -W -f '${Version}' farlink; }

# The condition of the unit, as systemd would ask it: true where there is something to do.
condition() {
    local command
    command=$(sed -n '/^ExecCondition=/,/[^\\]$/p' "$root/usr/lib/systemd/system/farlink.service" | sed 's/\\$//' | tr -d '\n' |
        sed "s/^ExecCondition=.bin.sh -c '//; s/'\$//")
    inside sh -c "$command"
}

packages_of deb "$@"
fresh_root nftables,iproute2,systemd,logrotate
cp "$old" "$root/old.deb"
cp "$new" "$root/new.deb"
contents >"$work/fresh"

expect 'the older package installs' inside dpkg -i /old.deb
before=$(version)
expect 'the program runs' inside farlink --version
expect 'rights of the program' rights usr/bin/farlink '755 root root'
expect 'rights of the configuration' rights etc/farlink/farlink.toml '644 root root'
expect 'the configuration is the administrator'\''s' inside sh -c "dpkg-query -W -f '\${Conffiles}' farlink | grep -q /etc/farlink/farlink.toml"
expect 'the service is enabled' enabled
expect 'the unit is right' inside systemd-analyze verify --man=no farlink.service
expect 'with the example there is nothing to do' not condition

printf '\n[[link]]\ninterface = "sat0"\nrate = "8 Mbit/s"\n\n[[interface]]\nname = "lan0"\n' >>"$root/etc/farlink/farlink.toml"
expect 'with a link there is' condition
expect 'the daemon runs with it' starts

# The new package brings another example, and the administrator has changed the old one: dpkg would ask. Unattended upgrades keep what is there.
expect 'the newer package upgrades it' inside dpkg --force-confdef --force-confold -i /new.deb
expect 'the version is another' test "$before" != "$(version)"
expect 'dpkg says that it is newer' inside dpkg --compare-versions "$before" lt "$(version)"
expect 'the configuration is kept' holds etc/farlink/farlink.toml '^interface = "sat0"$'
expect 'still enabled' enabled
expect 'the daemon runs after the upgrade' starts
expect 'configured twice is configured once' inside sh -c 'export DPKG_MAINTSCRIPT_PACKAGE=farlink; for _ in 1 2; do /var/lib/dpkg/info/farlink.postinst configure "" || exit 1; done'
# shellcheck disable=SC2016
expect 'no file is missing or changed' inside sh -c 'test -z "$(dpkg --verify farlink | grep -v /etc/farlink/farlink.toml)"'

expect 'somebody disables it' inside systemctl disable farlink.service
expect 'reinstalling' inside dpkg --force-confold -i /new.deb
expect 'a service that was disabled stays so' not enabled

expect 'removal' inside dpkg -r farlink
expect 'the program is gone' not test -e "$root/usr/bin/farlink"
expect 'the configuration stays' holds etc/farlink/farlink.toml '^interface = "sat0"$'
mkdir -p "$root/var/log/farlink"
touch "$root/var/log/farlink/connections.log"
expect 'purge' inside dpkg -P farlink
contents >"$work/purged"
expect 'nothing is left of the run' not test -e "$root/run/farlink"
expect 'nothing is left on the disk' diff "$work/fresh" "$work/purged"
echo "$checks checks passed: $before, then $(inside dpkg-deb -f /new.deb Version)"
