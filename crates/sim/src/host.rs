//! Hosts: the end systems of a simulated network.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use farlink_wire::{Duration, Instant, Parsed, parse};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{self, CongestionControl, Socket, SocketBuffer, State};
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint, IpListenEndpoint};

use crate::app::{App, End, Outcome};
use crate::border::{Border, Standing};
use crate::reassembly::Reassembly;
use crate::traffic::{Congestion, Connection, HostConfig, Side};

/// How long a host's stack waits for a sign of life of the other side before it gives up. Longer
/// than any outage that a plan contains.
pub const HOST_TIMEOUT: Duration = Duration::from_secs(1200);

/// An end system. A kind of its own per TCP: smoltcp today, relays of the engine to come.
pub trait Host {
    /// A packet arrives.
    fn receive(&mut self, now: Instant, packet: &[u8]);
    /// Lets timers and applications run.
    fn run(&mut self, now: Instant);
    /// The next packet that it sends.
    fn take_output(&mut self) -> Option<Vec<u8>>;
    /// When [`Host::run`] wants to be called next.
    fn deadline(&self) -> Option<Instant>;
    /// All that it was to do is done, in order or not.
    fn is_finished(&self) -> bool;
    /// What became of its connections.
    fn ends(&self) -> Vec<End>;
    /// What it says need not be true, and may be said in another host's name: nobody takes it for a
    /// host's word.
    fn is_hostile(&self) -> bool {
        false
    }
    /// Another host has sent this. For those who guess, and whose guesses are to be good, but not
    /// too good.
    fn overhear(&mut self, _now: Instant, _packet: &[u8]) {}
}

/// Address of host number `n`.
#[must_use]
pub fn address(n: usize, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfd00, 0, 0, n as u16 + 1, 0, 0, 0, 2).into()
    } else {
        Ipv4Addr::new(10, 0, n as u8 + 1, 2).into()
    }
}

thread_local! {
    /// TSval of the host that is being polled: smoltcp asks a plain function for it.
    static TSVAL: Cell<u32> = const { Cell::new(0) };
}

fn tsval() -> u32 {
    TSVAL.get()
}

#[derive(Default)]
struct Queues {
    mtu: usize,
    rx: VecDeque<Vec<u8>>,
    tx: VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut bytes = vec![0; len];
        let r = f(&mut bytes);
        self.0.push_back(bytes);
        r
    }
}

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Received, Sending<'_>)> {
        self.rx.pop_front().map(|p| (Received(p), Sending(&mut self.tx)))
    }
    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.tx))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut c = DeviceCapabilities::default();
        c.medium = Medium::Ip;
        c.max_transmission_unit = self.mtu;
        c
    }
}

/// One use of a planned connection at this host.
struct Active {
    handle: SocketHandle,
    app: App,
    has_socket: bool,
}

/// A planned connection at this host.
struct Task {
    connection: usize,
    is_client: bool,
    uses_left: u32,
    next_use: Option<Instant>,
    /// Index of the use under way (client), or of the listening one (server).
    current: Option<usize>,
}

/// A host whose TCP is smoltcp.
pub struct SmolHost {
    number: usize,
    config: HostConfig,
    plan: Arc<Vec<Connection>>,
    iface: Interface,
    queues: Queues,
    sockets: SocketSet<'static>,
    border: Border,
    tasks: Vec<Task>,
    active: Vec<Active>,
    out: VecDeque<Vec<u8>>,
    deadline: Option<Instant>,
    /// Half of the hosts take fragments; the others drop them.
    fragments: Option<Reassembly>,
}

fn is_at(e: Option<IpEndpoint>, at: (IpAddr, u16)) -> bool {
    e.is_some_and(|e| (e.addr.into(), e.port) == at)
}

/// Where a socket stands, if it has a connection.
fn standing(app: &App, s: &Socket<'_>) -> Option<Standing> {
    let (synchronised, own_fin, peer_fin) = match s.state() {
        State::Closed | State::Listen => return None,
        State::SynSent | State::SynReceived => (false, false, false),
        State::Established | State::FinWait1 => (true, false, false),
        State::FinWait2 => (true, true, false),
        State::CloseWait | State::Closing | State::LastAck => (true, false, true),
        State::TimeWait => (true, true, true),
    };
    let acked = app.end.written - s.send_queue() as u64;
    let taken = app.end.received + s.recv_queue() as u64;
    Some(Standing {
        synchronised,
        acked: acked as u32 + u32::from(own_fin),
        taken: taken as u32 + u32::from(peer_fin),
    })
}

fn smol_time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.as_nanos() / 1000) as i64)
}

fn smol_duration(d: Duration) -> smoltcp::time::Duration {
    smoltcp::time::Duration::from_micros(d.as_micros() as u64)
}

impl SmolHost {
    /// Host number `number` with its part of `plan`. `seed` chooses its ISNs.
    #[must_use]
    pub fn new(number: usize, config: HostConfig, plan: Arc<Vec<Connection>>, seed: u64) -> Self {
        let mut queues = Queues { mtu: usize::from(config.mtu_bytes), ..Queues::default() };
        let mut c = Config::new(HardwareAddress::Ip);
        c.random_seed = seed;
        let mut iface = Interface::new(c, &mut queues, smoltcp::time::Instant::ZERO);
        iface.update_ip_addrs(|list| {
            for v6 in [false, true] {
                let _ = list.push(IpCidr::new(address(number, v6).into(), if v6 { 64 } else { 24 }));
            }
        });
        let tasks = plan
            .iter()
            .enumerate()
            .filter(|(_, c)| c.client == number || (c.server == number && !c.refused))
            .map(|(connection, c)| Task {
                connection,
                is_client: c.client == number,
                uses_left: c.uses,
                next_use: Some(Instant::ZERO + if c.client == number { c.start } else { Duration::ZERO }),
                current: None,
            })
            .collect();
        Self {
            number,
            fragments: seed.is_multiple_of(2).then(Reassembly::default),
            border: Border::new(&config, seed),
            config,
            plan,
            iface,
            queues,
            sockets: SocketSet::new(Vec::new()),
            tasks,
            active: Vec::new(),
            out: VecDeque::new(),
            deadline: Some(Instant::ZERO),
        }
    }

    fn socket(&self, side: &Side) -> Socket<'static> {
        let buffer = |n: usize| SocketBuffer::new(vec![0; n.max(1)]);
        let mut s = Socket::new(buffer(side.rx_buffer_bytes), buffer(side.tx_buffer_bytes));
        if self.config.timestamps {
            s.set_tsval_generator(Some(tsval));
        }
        s.set_nagle_enabled(side.nagle);
        s.set_ack_delay(side.ack_delay.map(smol_duration));
        s.set_keep_alive(Some(smol_duration(side.keepalive)));
        s.set_timeout(Some(smol_duration(HOST_TIMEOUT)));
        s.set_congestion_control(match side.congestion {
            Congestion::None => CongestionControl::None,
            Congestion::Reno => CongestionControl::Reno,
            Congestion::Cubic => CongestionControl::Cubic,
        });
        s
    }

    fn poll(&mut self, now: Instant) {
        let tick = self.config.tsval_tick.as_nanos().max(1) as u64;
        TSVAL.set(self.config.tsval_start.wrapping_add((now.as_nanos() / tick) as u32));
        self.iface.poll(smol_time(now), &mut self.queues, &mut self.sockets);
        while let Some(bytes) = self.queues.tx.pop_front() {
            let out = &mut self.out;
            self.border.outgoing(now, bytes, &mut |p| out.push_back(p));
        }
    }

    /// Opens what is due and listens where somebody may come. `true` when there was anything to
    /// open.
    fn open(&mut self, now: Instant) -> bool {
        let mut opened = false;
        for t in 0..self.tasks.len() {
            let task = &self.tasks[t];
            if task.current.is_some() || task.next_use.is_none_or(|at| at > now) {
                continue;
            }
            let plan = self.plan.clone();
            let c = &plan[task.connection];
            let side = c.sides[usize::from(!task.is_client)].clone();
            let mut socket = self.socket(&side);
            let (connection, is_client) = (task.connection, task.is_client);
            let port = if is_client { c.client_port } else { c.server_port };
            let local = (address(self.number, c.v6), port);
            let remote = is_client.then(|| (address(c.server, c.v6), c.server_port));
            if let Some(remote) = remote {
                // The addresses and ports may still be held by an older use in TIME-WAIT.
                self.forget(local, remote);
                let to = IpEndpoint::new(remote.0.into(), remote.1);
                let from = IpListenEndpoint { addr: Some(local.0.into()), port };
                socket.connect(self.iface.context(), to, from).expect("the plan has legal addresses");
            } else {
                let at = IpListenEndpoint { addr: Some(local.0.into()), port };
                socket.listen(at).expect("the plan has legal ports");
            }
            let handle = self.sockets.add(socket);
            let app = App::new(connection, side, is_client, local, remote);
            self.active.push(Active { handle, app, has_socket: true });
            let task = &mut self.tasks[t];
            task.current = Some(self.active.len() - 1);
            task.next_use = None;
            opened = true;
        }
        opened
    }

    fn forget(&mut self, local: (IpAddr, u16), remote: (IpAddr, u16)) {
        for a in self.active.iter_mut().filter(|a| a.has_socket && a.app.has_ended()) {
            let s = self.sockets.get::<tcp::Socket<'_>>(a.handle);
            if is_at(s.local_endpoint(), local) && is_at(s.remote_endpoint(), remote) {
                self.sockets.remove(a.handle);
                a.has_socket = false;
            }
        }
    }

    /// After the applications have run: what comes next for each planned connection.
    fn advance(&mut self, now: Instant) {
        for task in &mut self.tasks {
            let Some(current) = task.current else { continue };
            let app = &self.active[current].app;
            if task.is_client && app.has_ended() {
                task.current = None;
                task.uses_left -= 1;
                if task.uses_left > 0 {
                    // smoltcp delays even the last ACK: it must be out before its socket is taken
                    // away.
                    let ack_delay = self.plan[task.connection].sides[0].ack_delay.unwrap_or_default();
                    task.next_use = Some(now + self.plan[task.connection].reuse_gap + ack_delay * 2);
                }
            } else if !task.is_client && app.is_established() {
                // Somebody has come: listen for the next one.
                task.current = None;
                task.next_use = Some(now);
            }
        }
        for a in self.active.iter_mut().filter(|a| a.has_socket && a.app.has_ended()) {
            let s = self.sockets.get::<tcp::Socket<'_>>(a.handle);
            // A socket with an endpoint still has something to say: an ACK in TIME-WAIT, the RST of
            // an abort.
            if s.state() == State::Closed && s.remote_endpoint().is_none() {
                self.sockets.remove(a.handle);
                a.has_socket = false;
            }
        }
    }

    fn run_apps(&mut self, now: Instant) -> bool {
        let mut changed = false;
        for a in self.active.iter_mut().filter(|a| a.has_socket) {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(a.handle);
            changed |= a.app.run(now, socket, &self.border);
        }
        changed
    }
}

impl Host for SmolHost {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        let whole = match parse(packet) {
            Parsed::Fragment(_) => self.fragments.as_mut().and_then(|f| f.push(now, packet)),
            _ => None,
        };
        let packet = whole.as_deref().unwrap_or(packet);
        let (sockets, active) = (&self.sockets, &self.active);
        let stack = |local: (IpAddr, u16), remote: (IpAddr, u16)| {
            active.iter().filter(|a| a.has_socket).find_map(|a| {
                let s = sockets.get::<tcp::Socket<'_>>(a.handle);
                let is_it = is_at(s.local_endpoint(), local) && is_at(s.remote_endpoint(), remote);
                if is_it { standing(&a.app, s) } else { None }
            })
        };
        if let Some((bytes, copies)) = self.border.incoming(packet, &stack) {
            for _ in 0..copies {
                self.queues.rx.push_back(bytes.clone());
                // One packet at a time, so that the border's notes are those of the socket.
                self.poll(now);
            }
        }
        self.deadline = Some(now);
    }

    fn run(&mut self, now: Instant) {
        loop {
            let mut changed = self.open(now);
            self.poll(now);
            changed |= self.run_apps(now);
            self.advance(now);
            if !changed {
                break;
            }
        }
        let stack = self.iface.poll_at(smol_time(now), &self.sockets).map(|t| {
            let at = Instant::from_micros(u64::try_from(t.total_micros()).unwrap_or(0));
            // A stack that says "now" after it had its chance is asked again a little later, not
            // for ever.
            if at > now { at } else { now + Duration::from_millis(1) }
        });
        let apps = self.active.iter().filter_map(|a| a.app.deadline(now));
        let tasks = self.tasks.iter().filter_map(|t| t.next_use);
        self.deadline = apps.chain(tasks).chain(stack).min();
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_finished(&self) -> bool {
        let clients = self.tasks.iter().all(|t| !t.is_client || t.uses_left == 0);
        clients && self.active.iter().all(|a| a.app.has_ended() || !a.app.is_established())
    }

    fn ends(&self) -> Vec<End> {
        self.active
            .iter()
            .filter(|a| a.app.is_established() || a.app.end.is_client)
            .map(|a| {
                let mut end = a.app.end.clone();
                if a.has_socket {
                    let s = self.sockets.get::<tcp::Socket<'_>>(a.handle);
                    end.state = format!(
                        "{} with {} bytes to send and {} to read",
                        s.state(),
                        s.send_queue(),
                        s.recv_queue()
                    );
                }
                end
            })
            .collect()
    }
}

impl End {
    /// Whether this end can be called closed, in order or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.outcome != Outcome::Open
    }
}
