//! Nodes of a simulated network: hosts, plain routers, gateways.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farlink_gateway::due::Deadline;
use farlink_gateway::{Config, Gateway, IfaceId, Network, Record, Route, Sent, Transmit, Via};
use farlink_wire::{Duration, Flags, Gso, Instant, Offload, PacketBuf};

use crate::change::Change;
use crate::gro::Merger;
use crate::host::Host;
use crate::packet::tcp;

/// So often in [`IDLE_TIME`] a gateway's timers may run at most where nothing comes and nothing
/// goes. Half-open connections of a flood expire one by one.
const IDLE_WAKES_MAX: u32 = 300;
const IDLE_TIME: Duration = Duration::from_millis(1);

/// A way out of a node.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// The channel that leads away from it.
    pub wire: usize,
    /// MTU of the link, in bytes.
    pub mtu_bytes: u32,
    /// That from another time on.
    pub mtu_later: Option<(Instant, u32)>,
    /// It says nothing of what does not fit.
    pub is_silent: bool,
}

impl Port {
    /// MTU of the link, in bytes.
    #[must_use]
    pub fn mtu_at(&self, now: Instant) -> u32 {
        self.mtu_later.filter(|(from, _)| now >= *from).map_or(self.mtu_bytes, |(_, bytes)| bytes)
    }
}

/// A node.
pub struct Node {
    /// Its name in traces.
    pub name: String,
    /// Its ports; a gateway's interface numbers are indices into it.
    pub ports: Vec<Port>,
    /// The port towards each host, by host number.
    pub routes: Vec<usize>,
    /// What it is.
    pub kind: Kind,
}

/// What a node is.
pub enum Kind {
    /// An end system, of this number.
    Host(usize, Box<dyn Host>),
    /// A plain router.
    Router,
    /// A router that runs Farlink, at times.
    Gateway(Box<GatewayNode>),
    /// A router with something of other people's in it.
    Other(Box<dyn Middlebox>),
}

/// What another gateway than Farlink makes of the packets that pass a router. What it puts out is
/// routed by its destination.
pub trait Middlebox {
    /// A packet has come.
    fn receive(&mut self, now: Instant, packet: Vec<u8>);
    /// Lets timers run.
    fn run(&mut self, now: Instant);
    /// The next packet that goes on.
    fn take_output(&mut self) -> Option<Vec<u8>>;
    /// When [`Middlebox::run`] wants to be called next.
    fn deadline(&self) -> Option<Instant>;
}

/// The router part and the Farlink part of a gateway.
pub struct GatewayNode {
    /// Configuration of each new [`Gateway`].
    pub config: Config,
    /// The running gateway, if one runs.
    pub gateway: Option<Gateway>,
    /// What outlives it: records of flows with custody.
    pub records: BTreeMap<u32, Record>,
    /// Ports of links into which all traffic is diverted, not only TCP.
    pub whole: Vec<usize>,
    /// The same once the rate of the link is known.
    pub whole_when_known: Vec<usize>,
    /// Receive offload.
    pub merger: Option<Merger>,
    /// The gateway has been handed something since its last flush.
    pub dirty: bool,
    /// Until when a drain may take; then what is left is abandoned.
    pub drain_limit: Option<Instant>,
    /// When a new gateway starts.
    pub start_at: Option<Instant>,
    /// How long after a completed drain the next one starts.
    pub restart_after: Option<Duration>,
    /// Packets waiting to leave, after a call.
    pub outbox: Vec<Outgoing>,
    /// Incarnations so far.
    pub generation: u32,
    /// Ports of interfaces that its configuration does not name for now.
    left: BTreeSet<usize>,
    /// The most bytes of buffers that it has been allowed since its start.
    pool_bytes_most: usize,
    /// What has left by each wire.
    sent: BTreeMap<usize, Sent>,
    /// Packets handed in that have not come out as they were: a declared link's queue may keep them
    /// for a while.
    waiting: Waiting,
    idle: Idle,
}

/// Packets of the wire handed in and perhaps still to come out, the oldest forgotten first.
#[derive(Default)]
struct Waiting {
    order: VecDeque<Whole>,
    count: BTreeMap<Whole, u32>,
}

impl Waiting {
    const MAX: usize = 32_768;

    fn add(&mut self, w: Whole) {
        *self.count.entry(w).or_default() += 1;
        self.order.push_back(w);
        if self.order.len() > Self::MAX
            && let Some(old) = self.order.pop_front()
        {
            self.take(&old);
        }
    }

    fn take(&mut self, w: &Whole) -> bool {
        let Some(n) = self.count.get_mut(w) else { return false };
        *n -= 1;
        if *n == 0 {
            self.count.remove(w);
        }
        true
    }
}

/// A packet that a gateway transmitted.
pub struct Outgoing {
    /// Interface whose TUN it was written to.
    pub via: IfaceId,
    /// Interface that the gateway expects it to leave by.
    pub out: IfaceId,
    /// Headers and payload.
    pub bytes: Vec<u8>,
    /// What is left to do.
    pub offload: Offload,
    /// It is the packet that was just handed in.
    pub forwarded: bool,
}

/// The address that node number `n` sends ICMP errors from.
#[must_use]
pub fn router_address(n: usize, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfd00, 0xff, 0, 0, 0, 0, 0, n as u16 + 1).into()
    } else {
        Ipv4Addr::new(10, 200, n as u8 + 1, 1).into()
    }
}

/// The host that an address belongs to.
#[must_use]
pub fn host_of(address: IpAddr) -> Option<usize> {
    let n = match address {
        IpAddr::V4(a) => usize::from(a.octets()[2]).checked_sub(1)?,
        IpAddr::V6(a) => usize::from(a.segments()[3]).checked_sub(1)?,
    };
    (crate::host::address(n, address.is_ipv6()) == address).then_some(n)
}

/// What the gateway sees of its router while it works.
struct Driver<'a> {
    ports: &'a [Port],
    routes: &'a [usize],
    records: &'a mut BTreeMap<u32, Record>,
    outbox: &'a mut Vec<Outgoing>,
    sent: &'a BTreeMap<usize, Sent>,
    waiting: &'a mut Waiting,
    /// The packet just handed in, if any, and its identity if it is TCP: forwarded packets keep it.
    input: Option<Option<Identity>>,
}

/// What tells a forwarded packet that waited in the gateway from others that came in.
/// Acknowledgement, window and the echoed timestamp may have been edited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Whole {
    identity: Identity,
    flags: u16,
    tsval: Option<u32>,
}

/// Of each packet that this one becomes on the wire.
fn on_the_wire(bytes: &[u8], offload: &Offload) -> Vec<Whole> {
    let (Some(s), Some(whole)) = (tcp(bytes), identity(bytes)) else { return Vec::new() };
    let tsval = s.options.timestamps.map(|t| t.val);
    let size = match offload.gso {
        Gso::None | Gso::Udp => s.payload_len,
        Gso::Tcp4 | Gso::Tcp6 => usize::from(offload.gso_size),
    };
    let size = size.max(1);
    let count = s.payload_len.div_ceil(size).max(1);
    let one = |n: usize| {
        let at = n * size;
        let identity = Identity {
            seq: whole.seq.wrapping_add(at as u32),
            payload_len: size.min(s.payload_len - at),
            ..whole
        };
        let first = if n > 0 { Flags::CWR.0 } else { 0 };
        let last = if n + 1 < count { Flags::FIN.0 | Flags::PSH.0 } else { 0 };
        Whole { identity, flags: s.flags.0 & !first & !last, tsval }
    };
    (0..count).map(one).collect()
}

/// What makes two packets the same in spite of edited fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    ends: (IpAddr, IpAddr, u16, u16),
    seq: u32,
    payload_len: usize,
}

fn identity(bytes: &[u8]) -> Option<Identity> {
    let s = tcp(bytes)?;
    Some(Identity {
        ends: (s.ip.src, s.ip.dst, s.src_port, s.dst_port),
        seq: s.seq.0,
        payload_len: s.payload_len,
    })
}

/// Timers that run in vain, without a packet in between.
#[derive(Default)]
struct Idle {
    since: Instant,
    wakes: u32,
}

impl Idle {
    fn wake(&mut self, now: Instant, due: Deadline) -> Result<(), String> {
        if now.since(self.since) >= IDLE_TIME {
            *self = Self { since: now, wakes: 0 };
        }
        self.wakes += 1;
        if self.wakes > IDLE_WAKES_MAX {
            return Err(format!("it turns round and does nothing, for this deadline: {}", due.what.name()));
        }
        Ok(())
    }
}

impl Network for Driver<'_> {
    fn transmit(&mut self, packet: &Transmit<'_>) {
        let mut bytes = packet.header.to_vec();
        for piece in packet.payload {
            bytes.extend_from_slice(piece);
        }
        // What the gateway calls forwarded must be what came in, too: only then is it excused from
        // what made packets must obey.
        let now = !packet.is_made && self.input == Some(identity(&bytes));
        // Waited packets may come in other parts than they went in.
        let mut parts = if packet.is_made { Vec::new() } else { on_the_wire(&bytes, &packet.offload) };
        let count = parts.len();
        parts.retain(|w| self.waiting.take(w));
        let late = count > 0 && parts.len() == count;
        let forwarded = now || late;
        self.outbox.push(Outgoing {
            via: packet.via.iface,
            out: packet.out,
            bytes,
            offload: packet.offload,
            forwarded,
        });
    }

    fn route(&mut self, _from: Via, _src: IpAddr, dst: IpAddr) -> Option<Route> {
        let port = *self.routes.get(host_of(dst)?)?;
        Some(Route { iface: IfaceId(port as u16), mtu_bytes: self.ports[port].mtu_bytes })
    }

    fn sent_by(&mut self, iface: IfaceId) -> Option<Sent> {
        let port = self.ports.get(usize::from(iface.0))?;
        Some(self.sent.get(&port.wire).copied().unwrap_or_default())
    }

    fn journal(&mut self, slot: u32, record: Option<&Record>) {
        match record {
            Some(r) => self.records.insert(slot, *r),
            None => self.records.remove(&slot),
        };
    }
}

impl Kind {
    /// A packet leaves by a wire. What interfaces add to it is not counted here.
    pub fn note_sent(&mut self, wire: usize, bytes: usize) {
        let Self::Gateway(gateway) = self else { return };
        let sent = gateway.sent.entry(wire).or_default();
        sent.packets += 1;
        sent.bytes += bytes as u64;
    }
}

impl GatewayNode {
    /// A gateway that starts at once.
    #[must_use]
    pub fn new(config: Config, merge: Option<Duration>) -> Self {
        Self {
            gateway: None,
            records: BTreeMap::new(),
            whole: Vec::new(),
            whole_when_known: Vec::new(),
            merger: merge.map(Merger::new),
            dirty: false,
            drain_limit: None,
            start_at: Some(Instant::ZERO),
            restart_after: None,
            outbox: Vec::new(),
            generation: 0,
            left: BTreeSet::new(),
            pool_bytes_most: config.limits.pool_bytes,
            sent: BTreeMap::new(),
            waiting: Waiting::default(),
            idle: Idle::default(),
            config,
        }
    }

    fn call(
        &mut self,
        ports: &[Port],
        routes: &[usize],
        input: Option<Option<Identity>>,
        f: impl FnOnce(&mut Gateway, &mut dyn Network),
    ) {
        let Some(gateway) = &mut self.gateway else { return };
        let mut net = Driver {
            ports,
            routes,
            records: &mut self.records,
            outbox: &mut self.outbox,
            sent: &self.sent,
            waiting: &mut self.waiting,
            input,
        };
        f(gateway, &mut net);
        self.dirty = true;
    }

    /// The same where all that leaves by these ports is diverted, from the start on or once the
    /// rate of their link is known.
    #[must_use]
    pub fn with_whole(self, whole: Vec<usize>, whole_when_known: Vec<usize>) -> Self {
        Self { whole, whole_when_known, ..self }
    }

    /// All that leaves by a port is diverted. What has begun stays so.
    pub(crate) fn takes_all_of(&mut self, port: usize) -> bool {
        if let Some(gateway) = &self.gateway
            && let Some(at) = self.whole_when_known.iter().position(|of| *of == port)
            && let Some(interface) = self.config.interfaces.iter().find(|i| usize::from(i.id.0) == port)
            && gateway.knows_rate_of(&interface.name)
        {
            self.whole.push(self.whole_when_known.swap_remove(at));
        }
        self.whole.contains(&port)
    }

    /// A packet is diverted to the gateway.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        ports: &[Port],
        routes: &[usize],
        port: usize,
        bytes: &[u8],
        offload: Offload,
    ) {
        let input = Some(identity(bytes));
        on_the_wire(bytes, &offload).into_iter().for_each(|w| self.waiting.add(w));
        self.idle = Idle::default();
        self.call(ports, routes, input, |g, net| {
            let p = PacketBuf::from_slice(g.pool(), bytes, offload);
            g.handle_packet(now, IfaceId(port as u16), p, net);
        });
    }

    /// Flushes, if there was anything, and runs timers that are due.
    ///
    /// # Errors
    /// Its timers run again and again, and nothing comes of it.
    pub fn work(&mut self, now: Instant, ports: &[Port], routes: &[usize]) -> Result<(), String> {
        let due = self.gateway.as_ref().and_then(Gateway::poll_timeout).filter(|due| due.at <= now);
        let left = self.outbox.len();
        if due.is_some() {
            self.call(ports, routes, None, |g, net| g.handle_timeout(now, net));
        } else if self.dirty {
            self.call(ports, routes, None, |g, net| g.flush(now, net));
        }
        self.dirty = false;
        match due {
            Some(due) if self.outbox.len() == left => self.idle.wake(now, due),
            _ => Ok(()),
        }
    }

    /// The carrier of a port changed.
    pub fn link_state(&mut self, now: Instant, ports: &[Port], routes: &[usize], port: usize, up: bool) {
        self.call(ports, routes, None, |g, net| g.link_state(now, IfaceId(port as u16), up, net));
    }

    /// Routes changed.
    pub fn routes_changed(&mut self, now: Instant) {
        if let Some(g) = &mut self.gateway {
            g.routes_changed(now);
            self.dirty = true;
        }
    }

    /// It is given another configuration, which says this otherwise than the one before.
    pub fn reconfigure(&mut self, now: Instant, ports: &[Port], routes: &[usize], changes: &[Change]) {
        for change in changes {
            change.apply(&mut self.config);
            match change {
                Change::Leave(port) => drop(self.left.insert(*port)),
                Change::Return(port) => drop(self.left.remove(port)),
                _ => {}
            }
        }
        self.pool_bytes_most = self.pool_bytes_most.max(self.config.limits.pool_bytes);
        let mut config = self.config.clone();
        config.interfaces.retain(|interface| !self.left.contains(&usize::from(interface.id.0)));
        self.call(ports, routes, None, |g, _| drop(g.reconfigure(now, config)));
    }

    /// The most bytes of buffers that it has been allowed since its start. What is allowed less
    /// from some time on is given back as connections go on.
    #[must_use]
    pub fn pool_bytes_most(&self) -> usize {
        self.pool_bytes_most
    }

    /// Starts a new gateway; records of a killed one are handed over.
    pub fn start(&mut self, now: Instant, ports: &[Port], routes: &[usize]) {
        self.generation += 1;
        self.left.clear();
        self.pool_bytes_most = self.config.limits.pool_bytes;
        let mut config = self.config.clone();
        config.seed = config.seed.wrapping_add(u64::from(self.generation));
        self.gateway = Some(Gateway::new(config));
        self.start_at = None;
        let old: Vec<Record> = std::mem::take(&mut self.records).into_values().collect();
        if !old.is_empty() {
            self.call(ports, routes, None, |g, net| g.reset_recorded(now, &old, net));
        }
    }

    /// Starts a drain that may take until `limit`.
    pub fn drain(&mut self, limit: Instant, restart_after: Duration) {
        if let Some(g) = &mut self.gateway {
            g.drain();
            self.drain_limit = Some(limit);
            self.restart_after = Some(restart_after);
            self.dirty = true;
        }
    }

    /// Looks whether a drain is over. `Some(abandoned)` when the gateway has gone.
    pub fn check_drained(&mut self, now: Instant, ports: &[Port], routes: &[usize]) -> Option<usize> {
        let limit = self.drain_limit?;
        let mut abandoned = 0;
        if !self.gateway.as_ref()?.is_drained() {
            if now < limit {
                return None;
            }
            self.call(ports, routes, None, |g, net| {
                abandoned = g.abandon_all(now, net);
                g.flush(now, net);
            });
        }
        self.gateway = None;
        self.drain_limit = None;
        self.start_at = self.restart_after.take().map(|d| now + d);
        Some(abandoned)
    }

    /// Kills it: what it held is gone, its records stay.
    pub fn kill(&mut self, start_at: Instant) -> Vec<Record> {
        self.gateway = None;
        self.drain_limit = None;
        self.start_at = Some(start_at);
        self.records.values().copied().collect()
    }

    /// When it next wants to be called.
    #[must_use]
    pub fn deadline(&mut self) -> Option<Instant> {
        let own = self.gateway.as_ref().and_then(Gateway::poll_timeout).map(|due| due.at);
        let limit = if self.gateway.is_some() { self.drain_limit } else { None };
        let merger = self.merger.as_ref().and_then(Merger::deadline);
        [own, limit, self.start_at, merger].into_iter().flatten().min()
    }
}

/// Whether the diversion rules of the Linux driver would give this packet to the gateway: TCP
/// without IP options, with XCP's own header or without, and ICMP errors about TCP, later fragments
/// of it, too.
#[must_use]
pub fn is_diverted(bytes: &[u8]) -> bool {
    match crate::packet::on_wire(bytes) {
        farlink_wire::Parsed::Tcp(s) => !(s.ip.is_v4() && s.ip.has_options),
        farlink_wire::Parsed::Icmp(e) => {
            let quoted = || farlink_wire::icmp::quoted_fragment(bytes, &e);
            e.inner.is_some() || quoted().is_some_and(|fragment| fragment.protocol == 6)
        }
        farlink_wire::Parsed::Fragment(f) => f.protocol == 6,
        farlink_wire::Parsed::Other => false,
    }
}

/// Whether the offload says things that fit the packet; the kernel silently drops what does not.
#[must_use]
pub fn offload_is_sane(bytes: &[u8], offload: &Offload) -> bool {
    let Some(s) = tcp(bytes) else { return offload.gso == Gso::None };
    match offload.gso {
        Gso::None => true,
        Gso::Tcp4 => s.ip.is_v4() && offload.gso_size > 0 && offload.is_partial(),
        Gso::Tcp6 => !s.ip.is_v4() && offload.gso_size > 0 && offload.is_partial(),
        // It is TCP.
        Gso::Udp => false,
    }
}
