//! Network namespaces as hosts: made, entered, wired together, removed. They stand where `ip netns`
//! looks for them (/run/netns).

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::{Context, Error, Result};
use crate::netlink::{Family, Route, Socket, VethEnd};
use crate::{ethtool, sysctl};

const DIRECTORY: &str = "/run/netns";

/// A named network namespace. Dropping the value leaves it standing: see [`Namespace::delete`].
#[derive(Debug, Clone)]
pub struct Namespace {
    name: String,
    fd: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes a namespace with loopback up, IPv6 addresses usable at once (no duplicate address
    /// detection) and silent autoconfiguration.
    ///
    /// # Errors
    /// One of this name exists, or privilege is missing (see [`crate::sandbox`] for running
    /// without).
    pub fn create(name: &str) -> Result<Self> {
        check_name(name)?;
        prepare_directory()?;
        let path = path_of(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .context(|| format!("creating the network namespace {name}"))?;
        let target = path.clone();
        // A thread of its own leaves its namespace; the mount keeps the new one when the thread
        // ends.
        let made = std::thread::spawn(move || -> Result<()> {
            // SAFETY: only this thread's own view of the network changes; no descriptor table is
            // unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .context(|| "creating a network namespace".to_owned())?;
            mount(Path::new("/proc/thread-self/ns/net"), &target, libc::MS_BIND)
        })
        .join()
        .unwrap_or_else(|_| Err(Error::Refused("the thread that makes a namespace died".to_owned())));
        if let Err(e) = made {
            let _ = fs::remove_file(&path);
            return Err(e);
        }
        let namespace = Self::open(name)?;
        match namespace.run(quiet_start) {
            Ok(()) => Ok(namespace),
            Err(e) => {
                let _ = namespace.delete();
                Err(e)
            }
        }
    }

    /// An existing namespace.
    pub fn open(name: &str) -> Result<Self> {
        check_name(name)?;
        let file = File::open(path_of(name)).context(|| format!("opening the network namespace {name}"))?;
        Ok(Self { name: name.to_owned(), fd: Arc::new(file.into()) })
    }

    /// The namespace that the calling thread is in.
    pub fn current() -> Result<Self> {
        let file = File::open("/proc/thread-self/ns/net")
            .context(|| "opening the own network namespace".to_owned())?;
        Ok(Self { name: String::new(), fd: Arc::new(file.into()) })
    }

    /// Whether one of this name exists.
    #[must_use]
    pub fn exists(name: &str) -> bool {
        path_of(name).exists()
    }

    /// Names of all namespaces that begin with `prefix`, in order.
    #[must_use]
    pub fn list(prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| n.starts_with(prefix))
            .collect();
        names.sort();
        names
    }

    /// Its name; empty for [`Namespace::current`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the name. The namespace itself and its interfaces go with the last process in it
    /// ([`Namespace::pids`]).
    pub fn delete(&self) -> Result<()> {
        Self::delete_named(&self.name)
    }

    /// As [`Namespace::delete`]; fine when there is none of this name.
    pub fn delete_named(name: &str) -> Result<()> {
        check_name(name)?;
        let path = path_of(name);
        let c_path = c_string(&path)?;
        // SAFETY: the path is a NUL-terminated string that lives through the call. EINVAL: nothing
        // is mounted there.
        while unsafe { libc::umount2(c_path.as_ptr(), libc::MNT_DETACH) } == 0 {}
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::os(format!("removing the network namespace {name}"), e))
            }
            _ => Ok(()),
        }
    }

    /// Moves the calling thread into the namespace, for good.
    pub fn enter(&self) -> Result<()> {
        rustix::thread::move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .context(|| format!("entering the network namespace {}", self.name))
    }

    /// Runs `work` on a thread inside the namespace and waits for it.
    ///
    /// # Errors
    /// What `work` returns; a panic in it goes on in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Starts a long-lived thread inside the namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> std::thread::JoinHandle<Result<T>> {
        let namespace = self.clone();
        std::thread::spawn(move || {
            namespace.enter()?;
            work()
        })
    }

    /// A command that will run inside the namespace: add arguments and spawn it as any other.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.confine(&mut command);
        command
    }

    /// Makes a command run inside the namespace.
    pub fn confine(&self, command: &mut Command) {
        let fd = Arc::clone(&self.fd);
        // SAFETY: between fork and exec only system calls are made, all of them async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                if libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) < 0 {
                    return Err(io::Error::last_os_error());
                }
                show_own_devices();
                Ok(())
            });
        }
    }

    /// Starts a command inside the namespace.
    pub fn exec(&self, mut command: Command) -> Result<Child> {
        self.confine(&mut command);
        let program = command.get_program().to_string_lossy().into_owned();
        command.spawn().context(|| format!("starting {program} in the network namespace {}", self.name))
    }

    /// Process numbers of all processes inside, the caller's own excepted.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let Some(inode) = inode_of(self.fd.as_fd()) else { return Vec::new() };
        let own = std::process::id();
        let mut pids: Vec<u32> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .filter(|pid| *pid != own)
            .filter(|pid| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| m.ino() == inode))
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Adds an address to an interface.
    pub fn address_add(&self, interface: &str, address: IpAddr, prefix: u8) -> Result<()> {
        self.run(|| {
            let mut socket = Socket::open()?;
            let index = socket.link_index(interface)?;
            socket.address_add(index, address, prefix)
        })
    }

    /// Adds or replaces a route in the main table; `destination` `None` is the default route.
    pub fn route_add(&self, destination: Option<(IpAddr, u8)>, gateway: IpAddr) -> Result<()> {
        let route = Route { destination, gateway: Some(gateway), ..Route::new(Family::of(gateway)) };
        self.run(|| Socket::open()?.route_add(&route))
    }

    /// Adds or replaces a route of any shape; `interface` by name.
    pub fn route_set(&self, route: &Route, interface: Option<&str>) -> Result<()> {
        self.run(|| {
            let mut socket = Socket::open()?;
            let mut route = *route;
            if let Some(name) = interface {
                route.interface = Some(socket.link_index(name)?);
            }
            socket.route_add(&route)
        })
    }

    /// Brings an interface up or down.
    pub fn link_up(&self, interface: &str, up: bool) -> Result<()> {
        self.run(|| {
            let mut socket = Socket::open()?;
            let index = socket.link_index(interface)?;
            socket.link_up(index, up)
        })
    }

    /// Sets the MTU of an interface, in bytes.
    pub fn link_mtu(&self, interface: &str, mtu: u32) -> Result<()> {
        self.run(|| {
            let mut socket = Socket::open()?;
            let index = socket.link_index(interface)?;
            socket.link_sizes(index, Some(mtu), None)
        })
    }

    /// Switches the offloads of an interface; see [`ethtool::set_offloads`].
    pub fn set_offloads(&self, interface: &str, on: bool) -> Result<()> {
        self.run(|| ethtool::set_offloads(interface, on))
    }

    /// Sets a parameter under /proc/sys/net, such as `ipv4.ip_forward`; dots separate.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let parts: Vec<&str> = key.strip_prefix("net.").unwrap_or(key).split('.').collect();
        self.run(|| sysctl::write(&parts, value))
    }

    /// Turns forwarding on for IPv4 and IPv6: the namespace becomes a router. Source filters are
    /// off, as on most routers.
    pub fn make_router(&self) -> Result<()> {
        self.run(|| {
            sysctl::write(&["ipv4", "ip_forward"], "1")?;
            sysctl::write(&["ipv6", "conf", "all", "forwarding"], "1")?;
            sysctl::write(&["ipv4", "conf", "all", "rp_filter"], "0")?;
            sysctl::write(&["ipv4", "conf", "default", "rp_filter"], "0")
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Gives the calling process a /sys of its own, with the devices of its network namespace, as `ip
/// netns exec` does. Where that is not allowed, it goes on seeing the old one. Between fork and
/// exec: system calls only.
fn show_own_devices() {
    let nothing = std::ptr::null();
    let slave = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: plain system calls with constant strings; a null pointer is no source, no type and no
    // options.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, slave, nothing.cast()) == 0
        {
            libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, nothing.cast());
        }
    }
}

/// Wires two namespaces together: a veth pair, both ends up. Ethernet addresses derive from the
/// names, so that runs are alike.
pub fn veth(a: &Namespace, a_interface: &str, b: &Namespace, b_interface: &str) -> Result<()> {
    let end = |namespace: &'_ Namespace, name: &str| mac_of(&format!("{}/{name}", namespace.name));
    let (mac_a, mac_b) = (end(a, a_interface), end(b, b_interface));
    Socket::open()?.veth(
        VethEnd { name: a_interface, namespace: a.as_fd(), mac: Some(mac_a) },
        VethEnd { name: b_interface, namespace: b.as_fd(), mac: Some(mac_b) },
    )?;
    a.link_up(a_interface, true)?;
    b.link_up(b_interface, true)
}

/// A locally administered unicast address out of a name (FNV-1a).
fn mac_of(name: &str) -> [u8; 6] {
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let [a, b, c, d, e, ..] = hash.to_be_bytes();
    [0x02, a, b, c, d, e]
}

fn quiet_start() -> Result<()> {
    let mut socket = Socket::open()?;
    let loopback = socket.link_index("lo")?;
    socket.link_up(loopback, true)?;
    if sysctl::exists(&["ipv6"]) {
        for who in ["all", "default"] {
            for (key, value) in [
                ("accept_dad", "0"),
                ("dad_transmits", "0"),
                ("router_solicitations", "0"),
                ("accept_ra", "0"),
            ] {
                sysctl::write(&["ipv6", "conf", who, key], value)?;
            }
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(Error::Refused(format!("\"{name}\" cannot be the name of a network namespace")));
    }
    Ok(())
}

fn path_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

fn inode_of(fd: BorrowedFd<'_>) -> Option<u64> {
    rustix::fs::fstat(fd).ok().map(|s| s.st_ino)
}

fn c_string(path: &Path) -> Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::Refused(format!("{} holds a NUL byte", path.display())))
}

pub(crate) fn mount(source: &Path, target: &Path, flags: libc::c_ulong) -> Result<()> {
    mount_as(source, target, "none", flags, "")
}

pub(crate) fn mount_as(
    source: &Path,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> Result<()> {
    let (from, to) = (c_string(source)?, c_string(target)?);
    let (kind, options) = (c_string(Path::new(kind))?, c_string(Path::new(options))?);
    // SAFETY: all four are NUL-terminated strings that live through the call.
    let rc =
        unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if rc < 0 {
        return Err(Error::last_os(format!("mounting {} on {}", source.display(), target.display())));
    }
    Ok(())
}

/// /run/netns as a mount of its own that is shared, as `ip netns` makes it, so that other mount
/// namespaces see removals.
fn prepare_directory() -> Result<()> {
    let directory = Path::new(DIRECTORY);
    fs::create_dir_all(directory).context(|| format!("creating {DIRECTORY}"))?;
    if mount(Path::new(""), directory, libc::MS_SHARED | libc::MS_REC).is_ok() {
        return Ok(());
    }
    mount(directory, directory, libc::MS_BIND | libc::MS_REC)?;
    mount(Path::new(""), directory, libc::MS_SHARED | libc::MS_REC)
}
