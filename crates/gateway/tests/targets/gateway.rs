//! A whole gateway between hostile hosts: a script of bytes says what they send, how time passes or
//! leaps, what the links and the operator do. What must hold is checked at each step; that nothing
//! is left behind, at the end.

use farlink_gateway::cc;
use farlink_gateway::config::{
    AckFilter, Action, Config, Copies, Explicit, FlowControl, Interface, LegConfig, Link, Notice, Oversize,
    Pinned, Rule, SendAhead, XcpContext,
};
use farlink_gateway::{Gateway, IfaceId, Record};
use farlink_wire::shim::SHIM_PROTOCOL;
use farlink_wire::{Duration, Instant, LARGE_BLOCK_BYTES, Offload, PacketBuf, SMALL_BLOCK_BYTES, fragment};

use super::changes::{Named, SETTINGS, change};
use super::hosts::{Packet, Pair, REFUSED_PORT, address, datagram};
use super::source::Source;
use super::truth::Truth;
use super::world::World;

/// Calls of `handle_timeout` after which a gateway at one point in time must have nothing more to
/// do.
const CALLS_PER_INSTANT: usize = 64;
/// The same for one step of the script. Six blind passes over 256 KiB in segments of 88 bytes, each
/// of which waits for its pace and then for its turn on the link, are 36,000. A link of known rate
/// whose gateway has fallen silent is asked each second, and its connection's timer goes on beside
/// that.
const CALLS_PER_STEP: usize = 36_000 + 2 * OUTAGE_LIMIT_S as usize;
/// An outage may be so long. In the usual day such a link would be asked 86,400 times.
const OUTAGE_LIMIT_S: u64 = 2 * 3_600;
/// Packets that one packet, or one point in time, may bring about.
const PACKETS_PER_CALL: usize = 2_000;
/// Steps of a script.
const STEPS: usize = 300;
/// Longer than everything: dormant records are forgotten after a day.
const END: Duration = Duration::from_secs(60 * 3600);

struct Bed {
    config: Config,
    gateway: Gateway,
    world: World,
    truth: Truth,
    pairs: Vec<Pair>,
    now: Instant,
    draining: bool,
    links_down: [bool; 2],
    /// The hosts repeat what they have: a packet to be handed in again.
    last: Option<(IfaceId, Packet)>,
    /// An interface that the configuration does not name for now.
    without: Option<IfaceId>,
    /// The most bytes of buffers that have been allowed since the start.
    pool_bytes_most: usize,
}

/// Plays a script: to a gateway that splits, and to one that promises nothing. What that one tells
/// of outages the last byte says.
pub fn run(data: &[u8]) {
    let notice = Notice::ALL[usize::from(data.last().copied().unwrap_or(0)) % Notice::ALL.len()];
    for action in [Action::Split, Action::Custody(notice)] {
        play(data, action);
    }
}

fn play(data: &[u8], action: Action) {
    let mut from = Source(data);
    let mut bed = Bed::new(&mut from, action);
    for _ in 0..STEPS {
        if from.is_empty() {
            break;
        }
        bed.step(&mut from);
    }
    bed.end();
}

fn config(from: &mut Source<'_>, default_action: Action) -> Config {
    let [a, b] = [from.u8(), from.u8()];
    let link = (a & 1 != 0).then(|| Link {
        reconfigures: (a & 2 != 0).then(|| Duration::from_secs(15)),
        name: "hard".into(),
        rate_bps: (a & 2 != 0).then_some([8_000_000, 64_000][usize::from(a >> 2 & 1)]),
        rate_in_bps: (a & 6 == 6).then_some(8_000_000),
        rtt: (a & 8 != 0).then_some(Duration::from_millis(500)),
        overhead_bytes: 0,
        oversize: match b & 0x0c {
            0x0c => Oversize::Bytes(2_000 + u32::from(b & 3) * 21_000),
            0x08 => Oversize::Off,
            _ => Oversize::Auto,
        },
        is_half_duplex: a & 3 == 3 && b & 0x80 != 0,
        is_xcp_router: b & 0x40 != 0,
        xcp_weights: Default::default(),
        weights: None,
        explicit: Explicit {
            destinations: if b & 0x90 == 0x10 { vec![("10.0.0.0".parse().unwrap(), 9)] } else { vec![] },
            ..Explicit::default()
        },
        xcp_context: if b & 0x20 != 0 { XcpContext::Flow } else { XcpContext::Pair },
        xcp_shim: (b & 0x40 != 0).then_some(SHIM_PROTOCOL),
        leg: LegConfig {
            cc: match (a & 2 != 0, b & 0x20 != 0) {
                (_, true) => cc::Kind::Xcp,
                (true, _) => cc::Kind::FixedRate,
                (false, _) => cc::Kind::Cubic,
            },
            ..LegConfig::default()
        },
        estimate_rate: a & 3 == 1 && b & 0x80 != 0,
        rate_max_bps: (b & 0x40 != 0).then_some(9_000_000),
        corrects_rate: b & 0x20 == 0,
        is_metered: false,
        byte_budget: None,
        action: None,
        ack_filter: AckFilter::Auto,
        copies: if a & 0x20 != 0 { Copies::Off } else { Copies::Auto },
    });
    let interface = |n: u16, link: Option<Link>| Interface {
        id: IfaceId(n),
        name: format!("if{n}"),
        domain: 0,
        addresses: vec!["10.0.0.254".parse().unwrap(), "fd00::254".parse().unwrap()],
        link,
    };
    let refuse = Rule {
        name: "refuse".into(),
        ports: vec![(REFUSED_PORT, REFUSED_PORT)],
        action: Action::Refuse,
        ..Rule::default()
    };
    let mut c = Config {
        interfaces: vec![interface(0, None), interface(1, link)],
        rules: vec![refuse],
        default_action,
        pinned: if a & 0x10 != 0 { Pinned::Never } else { Pinned::Auto },
        flow_control: [
            FlowControl::Fixed,
            FlowControl::SendWindow,
            FlowControl::Adaptive,
            FlowControl::Automatic,
        ][usize::from(a >> 5 & 3)],
        soft_window: a & 0x80 == 0,
        send_ahead: [SendAhead::Auto, SendAhead::On][usize::from(b >> 1 & 1)],
        seed: 1,
        ..Config::default()
    };
    c.timers.outage_limit = Duration::from_secs(OUTAGE_LIMIT_S);
    c.limits.pool_bytes = 256 << 10;
    c.limits.flows_max = 1 + usize::from(b & 7);
    c.limits.half_open_max = 1 + usize::from(b >> 3 & 3);
    c.limits.relay_follows_link = false;
    c.limits.relay_bytes = [65_535, 16_384, 262_144, 1_000][usize::from(b >> 5 & 3)];
    c.limits.reassembly_bytes = 64 << 10;
    c.limits.challenge_acks_per_s = if b & 0x80 != 0 { 2 } else { 1000 };
    c
}

impl Bed {
    fn new(from: &mut Source<'_>, action: Action) -> Self {
        let config = config(from, action);
        let world = World { mtu_bytes: 1500, no_route: false, out: Vec::new(), journal: Default::default() };
        let mut truth = Truth::default();
        truth.mtu_max_bytes = 9000;
        truth.promises_nothing = action.custody().is_some();
        truth.tells_iacks = action.custody() == Some(Notice::Iack);
        let mut pairs: Vec<Pair> = (0..4).map(|p| Pair::new(false, p)).collect();
        pairs.extend((0..4).map(|p| Pair::new(true, p)));
        Self {
            gateway: Gateway::new(config.clone()),
            pool_bytes_most: config.limits.pool_bytes,
            without: None,
            config,
            world,
            truth,
            pairs,
            now: Instant::from_millis(1_000_000),
            draining: false,
            links_down: [false; 2],
            last: None,
        }
    }

    fn step(&mut self, from: &mut Source<'_>) {
        let op = from.u8();
        let which = usize::from(op >> 4 & 3) | usize::from(op >> 5 & 4);
        let side = usize::from(op >> 6 & 1);
        match op & 15 {
            0..=4 => {
                let p = self.pairs[which].segment(side, from);
                self.hand_in(side, p);
            }
            5 => self.open(which, from),
            6 => {
                let answer = from.u8() & 1 != 0;
                let p = self.pairs[which].syn(side, answer, from);
                self.hand_in(side, p);
            }
            7 => self.pass_time(from),
            8 => self.damaged(which, side, from),
            9 => self.fragments(which, side, from),
            10 => self.icmp(which, side, from),
            11 => self.operator(from),
            12 => self.repeat(from),
            13 => {
                let n = 1 + from.below(120);
                let p = Packet { bytes: from.bytes(n).to_vec(), offload: Offload::default() };
                self.hand_in(side, p);
            }
            14 => self.exchange(which, from),
            _ => self.advance(Duration::from_millis(u64::from(from.u8()))),
        }
        self.check_limits();
    }

    /// A whole handshake, and the first data perhaps.
    fn open(&mut self, which: usize, from: &mut Source<'_>) {
        for (side, answer) in [(0, false), (1, true)] {
            let p = self.pairs[which].syn(side, answer, from);
            self.hand_in(side, p);
        }
        let mut third = Source(&[0, 1, 0]);
        let p = self.pairs[which].segment(0, &mut third);
        self.hand_in(0, p);
    }

    /// Data from one side and an acknowledgement of all from the other, some times.
    fn exchange(&mut self, which: usize, from: &mut Source<'_>) {
        let choice = from.u8();
        let side = usize::from(choice & 1);
        let kind = choice >> 1 & 7;
        for _ in 0..=choice >> 6 {
            let p = self.pairs[which].segment(side, &mut Source(&[0, kind, 0, 4, 0]));
            self.hand_in(side, p);
            let p = self.pairs[which].segment(1 - side, &mut Source(&[0, 1, 0]));
            self.hand_in(1 - side, p);
            self.advance(Duration::from_millis(u64::from(choice >> 4 & 3) * 50));
        }
    }

    /// With a bit inverted, or cut, or with bytes behind it.
    fn damaged(&mut self, which: usize, side: usize, from: &mut Source<'_>) {
        let mut p = self.pairs[which].segment(side, from);
        // A partial checksum would say that the damage is meant.
        farlink_wire::finish_checksums(&mut p.bytes, &p.offload);
        p.offload.checksum = farlink_wire::ChecksumState::Unverified;
        let [how, at] = [from.u8(), from.u8()];
        let at = usize::from(at) % p.bytes.len();
        match how & 3 {
            0 => p.bytes[at] ^= 1 << (how >> 2 & 7),
            1 => p.bytes.truncate(at.max(1)),
            2 => p.bytes.extend_from_slice(&[0xee; 7]),
            _ => p.bytes[at] = how,
        }
        self.hand_in(side, p);
    }

    /// In IP fragments, some of them missing, twice, or in another order.
    fn fragments(&mut self, which: usize, side: usize, from: &mut Source<'_>) {
        let mut p = self.pairs[which].segment(side, from);
        let how = from.u8();
        // Fragments carry no offload: the checksum is complete.
        farlink_wire::finish_checksums(&mut p.bytes, &p.offload);
        p.offload = Offload::default();
        if how & 1 == 0 && p.bytes[0] >> 4 == 4 {
            p.bytes[6] &= !0x40;
            p.bytes[10..12].fill(0);
            let check = !super::source::naive_sum(&p.bytes[..20]);
            p.bytes[10..12].copy_from_slice(&check.to_be_bytes());
        }
        let mtu = [1280, 576, 100, 68][usize::from(how >> 1 & 3)];
        let mut pieces = Vec::new();
        let cut = fragment(&p.bytes, mtu, 7 + u32::from(how >> 6), &mut |f| pieces.push(f.to_vec()));
        if cut.is_err() {
            return self.hand_in(side, p);
        }
        self.truth.hear(&p.bytes, &p.offload, self.is_link_away());
        match how >> 3 & 7 {
            1 => pieces.reverse(),
            2 => drop(pieces.remove(from.below(pieces.len()))),
            3 => {
                let again = pieces[from.below(pieces.len())].clone();
                pieces.push(again);
            }
            4 => {
                let (at, value) = (from.below(pieces.len()), from.u8());
                let last = pieces[at].len() - 1;
                pieces[at][last] ^= value;
            }
            _ => {}
        }
        for bytes in pieces {
            self.hand_in(side, Packet { bytes, offload: Offload::default() });
        }
    }

    /// An error that quotes a segment of this side, from a router behind the gateway.
    fn icmp(&mut self, which: usize, side: usize, from: &mut Source<'_>) {
        let p = self.pairs[which].segment(side, from);
        let how = from.u8();
        let mtu = u32::from(from.u16());
        let router = address(self.pairs[which].v6, 1 - side);
        let mut bytes = Vec::new();
        let built = if how & 1 == 0 {
            farlink_wire::icmp::build_packet_too_big(&p.bytes, router, mtu, &mut bytes)
        } else {
            farlink_wire::icmp::build_admin_prohibited(&p.bytes, router, &mut bytes)
        };
        if built.is_ok() {
            self.hand_in(1 - side, Packet { bytes, offload: Offload::default() });
        }
    }

    fn repeat(&mut self, from: &mut Source<'_>) {
        let times = 1 + from.u8() % 12;
        for _ in 0..times {
            let Some((iface, p)) = self.last.clone() else { return };
            self.hand_in(usize::from(iface.0), p);
            self.advance(Duration::from_millis(150));
        }
    }

    fn pass_time(&mut self, from: &mut Source<'_>) {
        let choice = from.u8();
        let n = u64::from(choice >> 3);
        let by = match choice & 7 {
            0 | 1 => Duration::from_micros(n),
            2 => Duration::from_millis(n * 10),
            3 => Duration::from_millis(n * 100),
            4 => Duration::from_secs(n),
            5 => Duration::from_secs(n * 20),
            6 => Duration::from_secs(n * 120),
            _ => Duration::from_secs(n * 3600),
        };
        self.advance(by);
    }

    /// The kernel and the operator.
    fn operator(&mut self, from: &mut Source<'_>) {
        let choice = from.u8();
        match choice & 15 {
            0..=3 => {
                let (iface, up) = (usize::from(choice & 1), choice & 2 != 0);
                self.links_down[iface] = !up;
                self.gateway.link_state(self.now, IfaceId(iface as u16), up, &mut self.world);
            }
            4 => {
                self.world.mtu_bytes = [1500, 576, 9000, 1280][usize::from(choice >> 4 & 3)];
                self.gateway.routes_changed(self.now);
            }
            5 => {
                self.world.no_route = !self.world.no_route;
                self.gateway.routes_changed(self.now);
            }
            6 if choice & 0x30 == 0 => {
                self.draining = true;
                self.gateway.drain();
            }
            7 => {
                self.truth.may_reset = true;
                self.gateway.abandon_all(self.now, &mut self.world);
            }
            8 => self.restart(choice & 0x10 != 0),
            9 => self.reload(from),
            10 => {
                let (key, value) = SETTINGS[usize::from(choice >> 4)];
                self.may_promise(key.contains("action"));
                let _ = self.gateway.set(self.now, key, value);
            }
            12 => self.jump(choice >> 4, from),
            13 => self.leap(choice >> 4, from),
            14 => self.datagrams(usize::from(choice >> 4 & 1), from),
            _ => {}
        }
        self.settle();
    }

    /// Another configuration.
    fn reload(&mut self, from: &mut Source<'_>) {
        match change(&mut self.config, from) {
            Named::Same => {}
            Named::All => self.without = None,
            Named::Without(id) => self.without = Some(id),
        }
        self.may_promise(true);
        self.pool_bytes_most = self.pool_bytes_most.max(self.config.limits.pool_bytes);
        let mut config = self.config.clone();
        config.interfaces.retain(|interface| Some(interface.id) != self.without);
        let _ = self.gateway.reconfigure(self.now, config);
    }

    /// From now on it may promise something to some, and tell others of outages in any way.
    fn may_promise(&mut self, it_may: bool) {
        self.truth.promises_nothing &= !it_may;
        self.truth.tells_iacks |= it_may;
    }

    /// What a host sends goes on round the gateway: by more than numbers can tell apart, or by less
    /// than another connection would be away.
    fn jump(&mut self, which: u8, from: &mut Source<'_>) {
        let by = match from.u8() & 7 {
            0 => from.u32(),
            1 => (1 << 31) + 1_000_000,
            _ => 60_000_000,
        };
        self.pairs[usize::from(which & 7)].jump(usize::from(which >> 3), by);
    }

    /// The process is stopped for a while, or the machine: no timer runs meanwhile.
    fn leap(&mut self, how: u8, from: &mut Source<'_>) {
        let n = u64::from(from.u8());
        let by = match how & 3 {
            0 => Duration::from_millis(n),
            1 => Duration::from_millis(n * 100),
            2 => Duration::from_secs(n * 10),
            _ => Duration::from_secs(n * 600),
        };
        self.now += by;
        if how & 4 == 0 {
            self.gateway.wake(self.now);
        }
    }

    /// What is no TCP, some of it at once.
    fn datagrams(&mut self, side: usize, from: &mut Source<'_>) {
        let (how, payload_bytes) = (from.u8(), from.below(1_400));
        for n in 0..=how & 31 {
            let p = datagram(how & 0x80 != 0, side, n, payload_bytes);
            self.hand_in(side, p);
        }
    }

    /// The process is killed, with what it holds; the next one resets what the journal names.
    /// `twice`: also what the journal named when it began.
    fn restart(&mut self, twice: bool) {
        let mut records: Vec<Record> = self.world.journal.values().copied().collect();
        if twice {
            records.extend(records.clone());
        }
        self.world.journal.clear();
        self.gateway = Gateway::new(self.config.clone());
        (self.without, self.pool_bytes_most) = (None, self.config.limits.pool_bytes);
        self.draining = false;
        self.links_down = [false; 2];
        if !records.is_empty() {
            self.truth.may_reset = true;
            self.truth.asks = true;
        }
        self.gateway.reset_recorded(self.now, &records, &mut self.world);
    }

    fn is_link_away(&self) -> bool {
        self.gateway.link_states().any(|(_, said)| said.is_away())
    }

    fn hand_in(&mut self, side: usize, p: Packet) {
        self.truth.hear(&p.bytes, &p.offload, self.is_link_away());
        let iface = IfaceId(side as u16);
        let packet = PacketBuf::from_slice(self.gateway.pool(), &p.bytes, p.offload);
        self.gateway.handle_packet(self.now, iface, packet, &mut self.world);
        self.last = Some((iface, p));
        self.gateway.flush(self.now, &mut self.world);
        self.settle();
    }

    /// Checks what has come out, and does what is due by now.
    fn settle(&mut self) {
        let mut calls = 0;
        self.take_out();
        while self.gateway.poll_timeout().is_some_and(|due| due.at <= self.now) {
            calls += 1;
            assert!(
                calls <= CALLS_PER_INSTANT,
                "the next deadline does not move: {:?}",
                self.gateway.poll_timeout()
            );
            self.gateway.handle_timeout(self.now, &mut self.world);
            self.take_out();
        }
    }

    fn take_out(&mut self) {
        let out = core::mem::take(&mut self.world.out);
        assert!(out.len() <= PACKETS_PER_CALL, "{} packets at once", out.len());
        let abandoned = self.gateway.status().engine.counters.flows_abandoned;
        self.truth.may_reset |= abandoned > 0;
        for p in &out {
            self.truth.check(p);
            Pair::receive(&mut self.pairs, p);
        }
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        let mut calls = 0;
        while let Some(due) = self.gateway.poll_timeout().filter(|due| due.at <= end) {
            calls += 1;
            assert!(calls <= CALLS_PER_STEP, "{calls} deadlines in {by:?}, now: {due:?}");
            self.now = self.now.max(due.at);
            self.gateway.handle_timeout(self.now, &mut self.world);
            self.settle();
        }
        self.now = end;
    }

    /// Everything is bounded (invariant 8).
    fn check_limits(&mut self) {
        let status = self.gateway.status();
        let (e, l) = (&status.engine, &self.config.limits);
        let flows = e.flows_split + e.flows_dormant + e.flows_draining + e.flows_closed;
        assert!(flows <= l.flows_max as u64, "{flows} flows of {}", l.flows_max);
        assert!(e.half_open <= l.half_open_max as u64, "{} half-open connections", e.half_open);
        assert!(
            status.reassembly_bytes <= l.reassembly_bytes as u64,
            "{} bytes of fragments",
            status.reassembly_bytes
        );
        // Above the limit (and a quarter, for what is on its way) each relay may hold two of its
        // segments still: a super- segment's block, or small ones.
        let relay = (LARGE_BLOCK_BYTES + 2 * LARGE_BLOCK_BYTES / 3 + 3 * SMALL_BLOCK_BYTES) as u64;
        let most = (self.pool_bytes_most + self.pool_bytes_most / 4) as u64
            + status.reassembly_bytes
            + 2 * flows * relay;
        assert!(e.pool_bytes <= most, "{} bytes of the pool, at most {most}: {e:?}", e.pool_bytes);
    }

    /// Links come back, hosts say nothing more, two days pass: nothing is left.
    fn end(&mut self) {
        self.world.no_route = false;
        for iface in 0..2 {
            self.gateway.link_state(self.now, IfaceId(iface), true, &mut self.world);
        }
        for key in ["link.hard.up", "link.hard.contact"] {
            // There may be no link.
            let _ = self.gateway.set(self.now, key, "true");
        }
        self.settle();
        self.advance(END);
        let status = self.gateway.status();
        let e = &status.engine;
        let flows = e.flows_split + e.flows_dormant + e.flows_draining + e.flows_closed;
        assert_eq!((flows, e.half_open, e.custody_bytes), (0, 0, 0), "left behind: {e:?}");
        assert_eq!((e.pool_bytes, status.reassembly_bytes), (0, 0), "memory is left behind: {e:?}");
        assert!(self.world.journal.is_empty(), "records are left behind: {:?}", self.world.journal);
        assert!(!self.draining || self.gateway.is_drained());
    }
}
