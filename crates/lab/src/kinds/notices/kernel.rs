//! The bench between two kernels' TCPs: two namespaces, joined by this program.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, bail};
use farlink_linux::clock;
use farlink_linux::event_loop::{Interest, Poller, precise_timers};
use farlink_sim::linux::notices::source::Stack;
use farlink_sim::linux::notices::{Bench, Keeper, LATER, OUTAGE, SETTLE, Seen};
use farlink_wire::{Duration, Instant};

use crate::netns::Ns;
use crate::process::Recorded;
use crate::state::{State, check_prefix};
use crate::workload::socket;

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);
const PORT: u16 = 5001;
/// Name of the interface in both namespaces.
const INTERFACE: &str = "to-link";
/// Packets that may wait in the kernel before this program: more than any window.
const QUEUE_PACKETS: u32 = 10_000;
/// Beyond this the bench stands still.
const PATIENCE: Duration = Duration::from_secs(180);
/// A source whose gateway has died hangs if nothing is acknowledged for so long.
const HANG_AFTER: Duration = Duration::from_secs(60);
const PACKET_BYTES_MAX: usize = 65_535;

/// Two namespaces, gone when this is dropped.
struct Ends {
    state: State,
    ns: [Ns; 2],
}

impl Ends {
    fn make(prefix: &str) -> Result<Self> {
        check_prefix(prefix)?;
        let namespaces: Vec<String> =
            ["source", "receiver"].iter().map(|n| format!("{prefix}-{n}")).collect();
        let ns = [Ns::named(&namespaces[0]), Ns::named(&namespaces[1])];
        let state = State {
            prefix: prefix.into(),
            topology: super::NAME.into(),
            owner: Some(Recorded::myself()),
            namespaces,
            processes: Vec::new(),
        };
        state.save()?;
        let ends = Self { state, ns };
        for ns in &ends.ns {
            ns.create()?;
        }
        Ok(ends)
    }

    /// The device of one end, up and with its address.
    fn device(&self, end: usize) -> Result<OwnedFd> {
        let ns = &self.ns[end];
        let device = ns.enter(open_device)?;
        let address = [SOURCE, RECEIVER][end];
        ns.sysctls(&[("net.ipv4.tcp_no_metrics_save".into(), "1".into())])?;
        ns.ip_batch(
            false,
            &[
                format!("addr add {address}/24 dev {INTERFACE}"),
                format!("link set {INTERFACE} mtu 1500 txqueuelen {QUEUE_PACKETS}"),
                format!("link set {INTERFACE} up"),
            ],
        )?;
        Ok(device)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Nothing can be done about what stays; `lab down` finds it.
        let _ = self.state.take_down();
    }
}

/// A TUN without a virtio header: the kernel cuts super-segments and completes checksums itself.
fn open_device() -> Result<OwnedFd> {
    let path = c"/dev/net/tun";
    // SAFETY: a string that ends in NUL; the descriptor is owned from here on.
    let fd = unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("opening /dev/net/tun");
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: ifreq is plain data, zero is a valid value of each field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(INTERFACE.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads one ifreq behind the pointer.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw const request) } < 0 {
        return Err(io::Error::last_os_error()).context("making a TUN");
    }
    Ok(fd)
}

fn read_packet(device: &OwnedFd) -> Option<Vec<u8>> {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    // SAFETY: the buffer with its length.
    let n = unsafe { libc::read(device.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len()) };
    packet.truncate(usize::try_from(n).ok()?);
    Some(packet)
}

fn write_packet(device: &OwnedFd, packet: &[u8]) -> Result<()> {
    // SAFETY: the buffer with its length.
    let n = unsafe { libc::write(device.as_raw_fd(), packet.as_ptr().cast(), packet.len()) };
    if n < 0 { Err(io::Error::last_os_error()).context("writing to a TUN") } else { Ok(()) }
}

/// Takes all that comes until the end.
fn receive(listener: &TcpListener) {
    let Ok((mut stream, _)) = listener.accept() else { return };
    let mut buffer = vec![0; 1 << 18];
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
}

/// Connects, tells of the socket, and writes until it is closed.
fn send(source: &Ns, congestion: &str, tell: &mpsc::Sender<TcpStream>) -> Result<()> {
    let mut stream = source.enter(|| Ok(TcpStream::connect((RECEIVER, PORT))?))?;
    socket::set_congestion_control(stream.as_raw_fd(), congestion)?;
    tell.send(stream.try_clone()?)?;
    let piece = vec![7; 64 << 10];
    while stream.write_all(&piece).is_ok() {}
    Ok(())
}

/// The link between the two devices.
struct Carrier {
    devices: [OwnedFd; 2],
    keeper: Keeper,
    poller: Poller,
}

impl Carrier {
    /// Carries packets until `done` or `until`; whether it was done.
    fn carry(&mut self, until: Instant, mut done: impl FnMut(&Keeper) -> bool) -> Result<bool> {
        loop {
            let now = clock::now();
            while let Some(packet) = read_packet(&self.devices[0]) {
                self.keeper.from_source(now, packet);
            }
            while let Some(packet) = read_packet(&self.devices[1]) {
                self.keeper.from_receiver(now, packet);
            }
            while let Some(packet) = self.keeper.next_to_receiver(now) {
                write_packet(&self.devices[1], &packet)?;
            }
            while let Some(packet) = self.keeper.next_to_source(now) {
                write_packet(&self.devices[0], &packet)?;
            }
            if done(&self.keeper) {
                return Ok(true);
            }
            if now >= until {
                return Ok(false);
            }
            let next = self.keeper.deadline().map_or(until, |at| at.min(until));
            self.poller.wait(Some(next))?;
        }
    }
}

/// What a source's kernel is told, so that it has this TCP.
fn sysctls(stack: Stack) -> Vec<(String, String)> {
    let off = |name: &str| vec![(format!("net.ipv4.{name}"), "0".to_owned())];
    match stack {
        Stack::NoSack => off("tcp_sack"),
        Stack::NoTimestamps => off("tcp_timestamps"),
        Stack::Linux(_) | Stack::Smoltcp | Stack::Reynolds => Vec::new(),
    }
}

/// A kernel's source with this TCP on the bench.
pub(super) fn measure(what: Bench, stack: Stack, prefix: &str) -> Result<Seen> {
    let congestion = stack.kernels().context("no kernel has this TCP")?;
    let ends = Ends::make(prefix)?;
    ends.ns[0].sysctls(&sysctls(stack))?;
    let devices = [ends.device(0)?, ends.device(1)?];
    let listener = ends.ns[1].enter(|| Ok(TcpListener::bind((RECEIVER, PORT))?))?;
    let (tell, told) = mpsc::channel();
    let source = ends.ns[0].clone();
    thread::Builder::new().name("receiver".into()).spawn(move || receive(&listener))?;
    let sending =
        thread::Builder::new().name("source".into()).spawn(move || send(&source, congestion, &tell))?;
    precise_timers();
    let poller = Poller::new()?;
    for (token, device) in (0..).zip(&devices) {
        poller.add(device, token, Interest::Read)?;
    }
    let mut bench = Carrier { devices, keeper: Keeper::new(what), poller };
    let limit = clock::now() + PATIENCE;
    if !bench.carry(limit, |k| k.away_since().is_some())? {
        let why = if sending.is_finished() { sending.join().ok() } else { None };
        bail!("the link never went away: {why:?}");
    }
    let stream = told.recv().context("no connection")?;
    let since = bench.keeper.away_since().context("the link is there")?;
    bench.carry(clock::now() + SETTLE, |_| false)?;
    let cwnd_before = socket::cwnd(&stream)?;
    bench.carry(since + (OUTAGE - SETTLE), |_| false)?;
    let held_and_allowed = bench.keeper.held_and_allowed();
    // A source that waits for what nobody holds any more is not waited for.
    let limit = if what.dies { clock::now() + HANG_AFTER } else { limit + OUTAGE };
    let is_over = bench.carry(limit, Keeper::is_caught_up)?;
    if !is_over && !what.dies {
        bail!("what was held is never acknowledged");
    }
    let caught_up_after = is_over.then(|| clock::now().since(since));
    let (first, sent) = (socket::cwnd(&stream)?, bench.keeper.sent_bytes());
    bench.carry(clock::now() + LATER, |_| false)?;
    let cwnd_after = [first, socket::cwnd(&stream)?].map(Some);
    // Wakes the thread that writes; the other ends with its namespace.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(Seen {
        cwnd_before: Some(cwnd_before),
        cwnd_after,
        sent_later_bytes: bench.keeper.sent_bytes() - sent,
        held_and_allowed,
        caught_up_after,
        again_later: bench.keeper.again_later,
        arrived_again_bytes: bench.keeper.arrived_again_bytes,
        let_pass_bytes: bench.keeper.let_pass_bytes,
        again: bench.keeper.again,
    })
}
