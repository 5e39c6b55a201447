//! Least privilege: what the daemon keeps after it has set itself up.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::error::{Context, Result};

/// Whether this thread may configure the network of its namespace.
#[must_use]
pub fn has_net_admin() -> bool {
    capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Whether this thread may make namespaces and mounts: what the laboratory needs.
#[must_use]
pub fn can_administer() -> bool {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    rustix::process::geteuid().is_root() && capabilities(None).is_ok_and(|c| c.effective.contains(needed))
}

/// Gives up every privilege but CAP_NET_ADMIN (TUN, routes, rules, nftables) and, where programs
/// are to stand at interfaces, CAP_BPF, for good: this thread, threads and programs that it starts
/// afterwards. Nothing that is started can gain privileges again (no_new_privs). Call before other
/// threads are started.
pub fn keep_net_admin(and_bpf: bool) -> Result<()> {
    let bpf = if and_bpf { CapabilitySet::BPF } else { CapabilitySet::empty() };
    keep(CapabilitySet::NET_ADMIN | bpf)
}

/// What the helper keeps: CAP_NET_ADMIN for `nft`, and CAP_NET_BIND_SERVICE where a low port is to
/// be listened at.
pub(crate) fn keep_of_helper(has_low_port: bool) -> Result<()> {
    let port = if has_low_port { CapabilitySet::NET_BIND_SERVICE } else { CapabilitySet::empty() };
    keep(CapabilitySet::NET_ADMIN | port)
}

/// The same, and none is kept.
pub(crate) fn keep_none() -> Result<()> {
    keep(CapabilitySet::empty())
}

fn keep(keep: CapabilitySet) -> Result<()> {
    for capability in CapabilitySet::all().iter().filter(|c| !keep.contains(*c)) {
        // EINVAL: younger than this kernel. EPERM: no CAP_SETPCAP, then the sets below still bind
        // this process.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    rustix::thread::set_no_new_privs(true).context(|| "setting no_new_privs".to_owned())?;
    let current = capabilities(None).context(|| "reading capabilities".to_owned())?;
    let kept = current.permitted & keep;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })
        .context(|| "dropping capabilities".to_owned())?;
    // So that `nft`, run at shutdown, has it also where the daemon does not run as root.
    for one in kept.iter() {
        let _ = rustix::thread::configure_capability_in_ambient_set(one, true);
    }
    Ok(())
}
