//! Running the laboratory without root: a user namespace in which the caller is root over network
//! namespaces of its own.

use std::fs;
use std::path::Path;

use rustix::thread::UnshareFlags;

use crate::error::{Context, Error, Result};
use crate::netns::{mount, mount_as};

/// Whether the caller needs [`enter`] to make namespaces: it is not root, or lacks the
/// capabilities.
#[must_use]
pub fn is_needed() -> bool {
    !crate::caps::can_administer()
}

/// Moves the process into user, mount and network namespaces of its own, where it is root. /run is
/// empty there, so names of namespaces and sockets do not meet the machine's. Everything vanishes
/// with the last process inside.
///
/// Call it first thing, before any thread is started: the kernel refuses a process with threads.
///
/// # Errors
/// The machine does not allow user namespaces, in words that say how to allow them.
pub fn enter() -> Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET;
    // SAFETY: no descriptor table is unshared; the caller has no other thread (the kernel refuses
    // otherwise).
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(|e| {
        Error::os(
            "this machine lets no ordinary user make a user namespace; run as root, or allow it with \
             `sysctl -w user.max_user_namespaces=10000` (Debian: kernel.unprivileged_userns_clone=1, Ubuntu: \
             kernel.apparmor_restrict_unprivileged_userns=0)",
            e,
        )
    })?;
    let write = |path: &str, text: String| fs::write(path, text).context(|| format!("writing {path}"));
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    mount(Path::new(""), Path::new("/"), libc::MS_REC | libc::MS_PRIVATE)?;
    mount_as(Path::new("tmpfs"), Path::new("/run"), "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, "mode=755")
}
