#!/bin/bash
# Boots the systemd of a root file system as the first process of a machine of its own: with its own processes, mounts, name and cgroups,
# in a network namespace that exists. What is not its own (parameters of the kernel but for the network's) it cannot write. Root.
#   packaging/boot.sh ROOT NETNS CGROUP     CGROUP: a name, below the root of cgroup v2; who calls removes it at the end
# It stays as long as its systemd runs, which is its only child. SIGKILL to that one ends everything in it.
set -euo pipefail
root=$1

if [ $# -eq 3 ]; then
    cgroups=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)
    [ -n "$cgroups" ] || { echo 'cannot run: cgroup v2 is not mounted' >&2; exit 2; }
    mkdir -p "$cgroups/$3"
    echo $$ >"$cgroups/$3/cgroup.procs"
    exec ip netns exec "$2" unshare --fork --kill-child --pid --mount --uts --ipc --cgroup "$0" "$root"
fi

mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs "$root/run"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$root/dev"
mkdir "$root/dev/net" "$root/dev/shm" "$root/dev/pts"
# There is no console and no log of the kernel: systemd would take those of the machine.
while read -r name major minor; do
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done <<'NODES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
net/tun 10 200
NODES
mount -t tmpfs -o nosuid,nodev tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=trial PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --log-target=journal
