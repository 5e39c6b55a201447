#!/bin/bash
# Tries the rpm package in a fresh root file system: install, verify, upgrade from the package of the commit before, erase. Root, Debian or Ubuntu.
#   packaging/try-rpm.sh [OLD.rpm NEW.rpm]     without packages: builds both
# The file system is one of Debian with Debian's rpm, so what the package requires is not asked for there. There is no systemd running in it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/need.sh
[ "$(id -u)" -eq 0 ] || { echo 'packaging/try-rpm.sh wants root' >&2; exit 2; }
work=$(mktemp -d)
. packaging/trial.sh
finish() {
    end_daemon
    remove_worktree
    rm -rf --one-file-system "$work"
}
trap finish EXIT

# Debian's rpm keeps its records below the caller's own directory otherwise.
rpm() { inside rpm --dbpath /var/lib/rpm "$@"; }
version() { rpm -q --qf '%{VERSION}' farlink; }
# rpm's own order of versions: installing an older one is refused.
newer() { not rpm -U --nodeps --test /old.rpm && rpm -U --nodeps --test --oldpackage /old.rpm; }
# verified: nothing is missing or changed, but for the configuration in the end.
verified() { test -z "$(rpm -V --nodeps farlink | grep -v ' c /etc/farlink/farlink.toml')"; }
# listed WHAT: the package has such files.
# Read to its end: rpm must not be cut off by what was found.
listed() { grep -q "$2" <<<"$(rpm -q "$1" farlink)"; }

packages_of rpm "$@"
fresh_root nftables,iproute2,systemd,logrotate,rpm
cp "$old" "$root/old.rpm"
cp "$new" "$root/new.rpm"
mkdir -p "$root/var/lib/rpm"
rpm --initdb
contents >"$work/fresh"

expect 'the older package installs' rpm -i --nodeps /old.rpm
before=$(version)
expect 'nothing is missing or changed' test -z "$(rpm -V --nodeps farlink)"
expect 'the program runs' inside farlink --version
expect 'rights of the program' rights usr/bin/farlink '755 root root'
expect 'rights of the configuration' rights etc/farlink/farlink.toml '644 root root'
expect 'the configuration is the administrator'\''s' listed --configfiles '^/etc/farlink/farlink.toml$'
expect 'so is that of logrotate' listed --configfiles '^/etc/logrotate.d/farlink$'
expect 'man pages are documents' listed --docfiles '/man1/farlink.1.gz$'
expect 'it says what it requires' listed --requires '^nftables$'
expect 'the service is enabled' enabled
expect 'the unit is right' inside systemd-analyze verify --man=no farlink.service

printf '\n[[link]]\ninterface = "sat0"\nrate = "8 Mbit/s"\n\n[[interface]]\nname = "lan0"\n' >>"$root/etc/farlink/farlink.toml"
cp "$root/etc/farlink/farlink.toml" "$work/configured"
expect 'the daemon runs with it' starts

expect 'the newer package upgrades it' rpm -U --nodeps /new.rpm
expect 'the version is another' test "$before" != "$(version)"
expect 'rpm holds it for newer' newer
expect 'the configuration is kept' diff "$work/configured" "$root/etc/farlink/farlink.toml"
expect 'nothing else is missing or changed' verified
expect 'still enabled' enabled
expect 'the daemon runs after the upgrade' starts

expect 'somebody disables it' inside systemctl disable farlink.service
expect 'installing it once more' rpm -U --nodeps --force /new.rpm
expect 'a service that was disabled stays so' not enabled
expect 'and somebody enables it' inside systemctl enable farlink.service

expect 'it is erased' rpm -e farlink
# A configuration that was changed is kept by this name, which is rpm's way.
expect 'the changed configuration is kept beside' diff "$work/configured" "$root/etc/farlink/farlink.toml.rpmsave"
expect 'and nothing beside it' test "$(ls -A "$root/etc/farlink")" = farlink.toml.rpmsave
rm -r "$root/etc/farlink"
contents >"$work/erased"
expect 'nothing else is left on the disk' diff "$work/fresh" "$work/erased"
expect 'rpm knows nothing of it' not rpm -q farlink
echo "$checks checks passed: $before, then $(rpm -q --qf '%{VERSION}' -p /new.rpm)"
