# shellcheck shell=bash
# Sourced by the scripts that try packages in a fresh root file system. They have said `work`, a temporary directory, before.
# shellcheck disable=SC2034,SC2154
root=$work/root
checks=0

# expect WHAT COMMAND...: one thing that must be so.
expect() {
    local what=$1
    shift
    if ! "$@" >"$work/said" 2>&1; then
        echo "FAILED: $what: $*" >&2
        cat "$work/said" >&2
        exit 1
    fi
    checks=$((checks + 1))
    echo "ok: $what"
}
not() { ! "$@"; }

# packages_of KIND [OLD NEW]: these, or else it makes the package (deb, rpm) of this commit and of the one before: `new` and `old`.
packages_of() {
    if [ $# -eq 3 ]; then
        old=$(realpath -e "$2")
        new=$(realpath -e "$3")
        return
    fi
    new=$("packaging/$1.sh" | awk -v end="[.]$1\$" '$0 ~ end { print $NF }')
    git worktree add --quiet --detach "$work/before" HEAD^
    old=$(CARGO_TARGET_DIR=$(realpath "${CARGO_TARGET_DIR:-target}") "$work/before/packaging/$1.sh" | awk -v end="[.]$1\$" '$0 ~ end { print $NF }')
}
remove_worktree() { git worktree remove --force "$work/before" 2>/dev/null || true; }

# fresh_root PACKAGES: a root file system with these packages of the distribution, from the sources that apt uses here.
fresh_root() {
    local suite sources
    need_package mmdebstrap mmdebstrap 'a fresh root file system'
    # shellcheck source=/dev/null
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mapfile -t sources < <(find /etc/apt/sources.list /etc/apt/sources.list.d -name '*.sources' -o -name '*.list' 2>/dev/null)
    echo "a root file system of $suite"
    mmdebstrap --quiet --variant=minbase --include="$1" "$suite" "$root" "${sources[@]}"
    mkdir -p "$root/dev/net"
    [ -c "$root/dev/net/tun" ] || mknod "$root/dev/net/tun" c 10 200
}
inside() { chroot "$root" env LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
# What lies in the file system, but for what a restart takes away, and the package manager's own records.
contents() {
    (cd "$root" && find . \( -path ./run -o -path ./var/lib/dpkg -o -path ./var/log/dpkg.log -o -path ./var/log/journal -o -path ./var/lib/rpm \) -prune -o \
        -printf '%y %m %U %G %p %l\n' | LC_ALL=C sort)
}
rights() { [ "$(stat -c '%a %U %G' "$root/$1")" = "$2" ]; }
enabled() { [ -L "$root/etc/systemd/system/multi-user.target.wants/farlink.service" ]; }
holds() { grep -q "$2" "$root/$1"; }

# In a network of its own: the program of the package splits what it is told to, as the unit starts it.
starts() {
    unshare --net --mount chroot "$root" /bin/sh -ec 'mount -t proc proc /proc; mount -t sysfs sysfs /sys
        ip link add lan0 type veth peer name sat0; ip link set lan0 up; ip link set sat0 up
        mkdir -p /run/farlink
        exec /usr/bin/farlink run --config /etc/farlink/farlink.toml' >"$work/log" 2>&1 &
    daemon=$!
    for _ in $(seq 50); do
        sleep 0.1
        if inside farlink status --json >"$work/status" 2>/dev/null; then break; fi
    done
    local good=0
    grep -q sat0 "$work/status" || { cat "$work/log"; good=1; }
    kill -TERM "$daemon"
    wait "$daemon" || good=1
    daemon=
    return $good
}
# end_daemon: of a trial that failed meanwhile.
end_daemon() { [ -z "${daemon:-}" ] || kill -KILL "$daemon" 2>/dev/null || true; }
