//! What the daemon takes from itself when it has begun: files that are none of its business, and
//! system calls that it never makes. Threads and processes that are started later inherit both.
//!
//! Nothing of this ends a process: what is not allowed fails, with EACCES or EPERM.

mod calls;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, make_bitflags,
};
use rustix::fs::{Mode, OFlags};

pub use calls::refuse_calls;

/// The newest Landlock that is asked for: files, devices (ioctl) and ports of TCP. What a kernel
/// does not know of it is left out.
const NEWEST: ABI = ABI::V5;

/// Files and directories that may be used; a directory with all that is in it.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// They may be read.
    pub read: Vec<PathBuf>,
    /// They may be written, too, and in directories files may be made and removed.
    pub write: Vec<PathBuf>,
    /// Devices that may be used, with ioctl(2).
    pub devices: Vec<PathBuf>,
}

impl Files {
    /// What each daemon needs of the machine: its devices, what the kernel tells below /proc and
    /// /sys, and parameters of its own devices.
    #[must_use]
    pub fn of_machine() -> Self {
        let all = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Self {
            read: all(&["/proc", "/sys", "/etc/services", "/etc/iproute2", "/usr/share/iproute2"]),
            write: all(&["/proc/sys/net", "/sys/devices/virtual/net"]),
            devices: all(&["/dev/net/tun", "/dev/null"]),
        }
    }

    /// No other files can be opened, made, removed or run from here on, and no port of TCP can be
    /// bound or connected to. Of this thread, and all that it starts. What is open stays so.
    ///
    /// # Errors
    /// Why that is not so.
    pub fn use_no_others(&self) -> Result<(), String> {
        let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
        let write = read | make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | RemoveFile});
        let device = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
        let rules = [(&self.read, read), (&self.write, write), (&self.devices, device)];
        let rules =
            rules.into_iter().flat_map(|(paths, access)| paths.iter().map(move |path| (path, access)));
        restrict(AccessFs::from_all(NEWEST), true, rules)
    }
}

/// This process, and all that it starts, writes no file and changes no directory from here on.
///
/// # Errors
/// Why that is not so.
pub(crate) fn write_nothing() -> Result<(), String> {
    let null = PathBuf::from("/dev/null");
    let write = AccessFs::from_write(NEWEST);
    restrict(write, false, [(&null, write)].into_iter())
}

fn restrict<'a>(
    handled: BitFlags<AccessFs>,
    no_ports: bool,
    rules: impl Iterator<Item = (&'a PathBuf, BitFlags<AccessFs>)>,
) -> Result<(), String> {
    let outcome = || -> Result<RulesetStatus, RulesetError> {
        let mut set = Ruleset::default().handle_access(handled)?;
        if no_ports {
            set = set.handle_access(AccessNet::from_all(NEWEST))?;
        }
        let set = rules.fold(set.create(), |set, (path, access)| allow(set?, path, access))?;
        Ok(set.restrict_self()?.ruleset)
    };
    match outcome() {
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => Ok(()),
        Ok(RulesetStatus::NotEnforced) => {
            Err("this kernel has no Landlock (Linux 5.13, `lsm=` with landlock), or a filter of system calls refuses it".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// What is not there is not allowed, either.
fn allow(
    set: RulesetCreated,
    path: &PathBuf,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
        return Ok(set);
    };
    let set = set.add_rule(PathBeneath::new(&file, access))?;
    stay_open(file);
    Ok(set)
}

/// Files of /proc are known by what is open: another look may find another one of the same name.
fn stay_open(file: OwnedFd) {
    std::mem::forget(file);
}
