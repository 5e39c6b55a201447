//! Packet scripts: two hosts written down packet by packet, and real gateways between them.
//!
//! ```text
//! let mut t = Script::new();
//! t.open();                            // the handshake, with usual options
//! t.play("
//!     a > P. 1:101 ack 1               # host a sends; all that it has got must stand above
//!     b < P. 1:101 ack 1               # host b gets exactly this, next
//!     +40                              # 40 ms pass, and nothing happens before they have passed
//!     a < . 1 ack 101
//!     ~500                             # 500 ms pass, whatever happens
//!     drop b                           # what b has got is of no interest
//!     quiet                            # nobody has got anything that is not written above
//! ");
//! ```
//! The notation of segments stands in `notation.rs`. ICMP: `r > a toobig 1300 . 1:1449 ack 1` is a
//! router behind the gateway, seen from a, that tells a so about this segment of a's; `icmp toobig
//! 1300 about 1` is what arrives. With `later fragment` in the place of the segment it is about the
//! last fragment that has arrived and was not the first of its packet. Time is the script's own.
//! Every packet that a gateway hands out is checked: addresses, interfaces, checksums, MTU, and
//! that its payload is what the source wrote at that place of the stream. A failure prints
//! everything up to there.

pub mod far;
pub mod network;
pub mod notation;
mod packets;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farlink_gateway::config::{Config, Interface, Link};
use farlink_gateway::engine_status::Status;
use farlink_gateway::{AheadOf, Ends, Event, Gateway, IfaceId};
use farlink_wire::{
    Duration, Instant, Offload, PacketBuf, Parsed, ShimProtocols, parse_with, segment, verify_checksums,
};
use network::{Net, Out, SPARE, TO_A, TO_B};
pub use notation::Seen;
use notation::Spec;

/// Both sequence spaces wrap early in every script.
pub const ISN_A: u32 = 0xffff_ff00;
const ISN_B: u32 = 0x7fff_fe80;
/// Host a's usual port; host b's only one.
pub const PORT_A: u16 = 40_000;
const PORT_B: u16 = 80;
/// Window field of a segment that says none.
const WINDOW: u16 = 512;
/// Lines of a failure's trace.
const TRACE_LINES: usize = 200;
/// Options of `open`.
pub const USUAL: &str = "<mss 1460,sackOK,ws 7>";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    A,
    B,
}

impl Host {
    fn name(self) -> &'static str {
        if self == Self::A { "a" } else { "b" }
    }
    fn of(name: &str) -> Option<Self> {
        [Self::A, Self::B].into_iter().find(|h| h.name() == name)
    }
    fn isn(self) -> u32 {
        if self == Self::A { ISN_A } else { ISN_B }
    }
    fn other(self) -> Self {
        if self == Self::A { Self::B } else { Self::A }
    }
    /// Byte of its stream; the first has relative sequence number 1.
    fn byte(self, at: u32) -> u8 {
        (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(7)) as u8 ^ if self == Self::A { 0 } else { 0xa5 }
    }
    fn bytes(self, at: u32, len: u32) -> Vec<u8> {
        (0..len).map(|i| self.byte(at.wrapping_add(i))).collect()
    }
}

/// What a host has got.
#[derive(Clone, Debug)]
enum Arrival {
    Tcp(Box<Seen>),
    Other(String),
}

/// What a script is played with.
pub struct Setup {
    pub gateways: usize,
    pub v6: bool,
    /// Of every gateway; interfaces are filled in.
    pub config: Config,
    /// The link between two gateways, or beyond the only one, towards b.
    pub link: Option<Link>,
    /// Behind the only gateway there is another interface towards b; a declared link perhaps.
    pub spare: Option<Option<Link>>,
    /// Its name; empty: nobody has configured it yet.
    pub spare_name: &'static str,
    /// The link of the only gateway towards a.
    pub link_a: Option<Link>,
    /// One way, between two gateways.
    pub link_delay: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        let mut config = Config { seed: 1, ..Config::default() };
        // As large as the window of an unscaled SYN-ACK: no window is raised unless a script wants
        // that.
        config.limits.relay_bytes = 65_535;
        config.limits.relay_follows_link = false;
        Self {
            gateways: 1,
            v6: false,
            config,
            link: None,
            spare: None,
            spare_name: "spare",
            link_a: None,
            link_delay: Duration::ZERO,
        }
    }
}

/// Where a packet goes next: gateway, interface, bytes.
type Flying = (usize, IfaceId, Vec<u8>, Offload);

struct Node {
    gateway: Gateway,
    net: Net,
}

pub struct Script {
    setup: Setup,
    a: IpAddr,
    b: IpAddr,
    now: Instant,
    nodes: Vec<Node>,
    inbox_a: VecDeque<(Instant, Arrival)>,
    inbox_b: VecDeque<(Instant, Arrival)>,
    /// On the way between two gateways, by time and number.
    flying: BTreeMap<(Instant, u64), Flying>,
    sent: u64,
    /// The last fragment that a host has got which is not the first of its packet.
    last_fragment: Option<Vec<u8>>,
    /// What does not get through between two gateways, and nobody says so.
    cut: Cut,
    /// What gateways have sent to each other.
    crossed: Vec<Crossed>,
    /// Ports of host a whose connections have carried more than 2^31 bytes.
    far: BTreeSet<u16>,
    trace: Vec<String>,
    line: String,
}

/// What a link swallows.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    Nothing,
    All,
    /// One connection, by host a's port.
    Port(u16),
    /// Segments with more payload.
    Above(usize),
    /// What has XCP's own header.
    Shims,
}

impl Cut {
    fn swallows(self, arrival: &Arrival) -> bool {
        let Arrival::Tcp(s) = arrival else { return matches!(self, Self::All) };
        let size = s.packet_payload();
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Port(port) => s.port == port,
            Self::Above(most) => size > most,
            Self::Shims => s.segment.shim.is_some(),
        }
    }
}

/// A segment on its way between two gateways.
#[derive(Clone, Debug)]
pub struct Crossed {
    pub at: Instant,
    pub to: Host,
    pub seen: Seen,
}

impl Script {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// With another setup than the usual one.
    pub fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let (a, b) = if setup.v6 { ("fd00:a::1", "fd00:b::1") } else { ("10.0.1.1", "10.0.2.1") };
        let mut t = Self {
            a: a.parse().unwrap(),
            b: b.parse().unwrap(),
            now: Instant::from_millis(1_000_000),
            nodes: Vec::new(),
            inbox_a: VecDeque::new(),
            inbox_b: VecDeque::new(),
            flying: BTreeMap::new(),
            last_fragment: None,
            sent: 0,
            cut: Cut::Nothing,
            crossed: Vec::new(),
            far: BTreeSet::new(),
            trace: Vec::new(),
            line: String::new(),
            setup,
        };
        t.nodes = (0..t.setup.gateways).map(|i| t.node(i)).collect();
        t
    }

    fn node(&self, i: usize) -> Node {
        let interface = |id: IfaceId, name: &str, address: &str, linked: bool| Interface {
            id,
            name: name.to_owned(),
            domain: 0,
            addresses: vec![address.parse().unwrap(), "fd00:c::1".parse().unwrap()],
            link: self.setup.link.clone().filter(|_| linked).or(self
                .setup
                .link_a
                .clone()
                .filter(|_| id == TO_A)),
        };
        let last = i + 1 == self.setup.gateways;
        let mut config = self.setup.config.clone();
        config.interfaces = vec![
            interface(TO_A, "toa", "10.0.1.254", i > 0),
            interface(TO_B, "tob", "10.0.2.254", !last || self.setup.gateways == 1),
        ];
        if let Some(link) = &self.setup.spare {
            let spare = interface(SPARE, self.setup.spare_name, "10.0.4.254", false);
            config.interfaces.push(Interface { link: link.clone(), ..spare });
        }
        let net = Net {
            a: self.a,
            mtu_a_bytes: 1500,
            mtu_b_bytes: 1500,
            b_by: TO_B,
            out: Vec::new(),
            shown: BTreeMap::new(),
            left: Vec::new(),
            journal: BTreeMap::new(),
            journal_is_full: false,
            happened: Vec::new(),
        };
        Node { gateway: Gateway::new(config), net }
    }

    // ---- The script's verbs ----

    /// The handshake, with usual options on both sides.
    #[track_caller]
    pub fn open(&mut self) {
        self.open_with(USUAL, USUAL);
    }

    /// The same, where each host answers after so many milliseconds.
    #[track_caller]
    pub fn open_in(&mut self, answers_ms: u32) {
        self.play(&format!(
            "a > S 0 win 65535 {USUAL}\n ~{answers_ms}\n drop b\n b > S. 0 ack 1 win 65535 {USUAL}
             ~{answers_ms}\n drop a\n a > . 1 ack 1\n drop b"
        ));
        self.go_far([USUAL; 2], [""; 2]);
    }

    /// The handshake with these options; the windows are 65,535 bytes.
    #[track_caller]
    pub fn open_with(&mut self, a: &str, b: &str) {
        self.play(&format!("a > S 0 win 65535 {a}\n drop b\n b > S. 0 ack 1 win 65535 {b}\n drop a"));
        let stamp = |own: &str, other: &str| {
            let find =
                |o: &str| o.split("ts ").nth(1).and_then(|t| t.split([' ', ',', '>']).next()?.parse().ok());
            find(own).zip(find(other)).map_or(String::new(), |(v, e): (u32, u32)| format!("<ts {v} {e}>"))
        };
        self.play(&format!("a > . 1 ack 1 {}\n drop b", stamp(a, b)));
        self.go_far([a, b], [&stamp(a, b), &stamp(b, a)]);
    }

    /// Plays a script.
    #[track_caller]
    pub fn play(&mut self, text: &str) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            self.line = line.to_owned();
            self.trace.push(format!("           {line}"));
            if let Err(why) = self.step(line) {
                self.fail(&why);
            }
        }
    }

    /// Ends the test with everything that has happened.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        let shown = &self.trace[self.trace.len().saturating_sub(TRACE_LINES)..];
        panic!("\n{}\n\nat `{}`: {why}\n", shown.join("\n"), self.line);
    }

    fn step(&mut self, line: &str) -> Result<(), String> {
        if let Some(ms) = line.strip_prefix('+') {
            return self.pass(duration(ms)?, true);
        }
        if let Some(ms) = line.strip_prefix('~') {
            return self.pass(duration(ms)?, false);
        }
        let mut words = line.splitn(3, ' ').map(str::trim);
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default();
        match (first, second, Host::of(first)) {
            ("quiet", ..) => self.nothing_left(),
            ("drop", "", _) => {
                self.inbox_a.clear();
                self.inbox_b.clear();
                Ok(())
            }
            ("drop", host, _) => {
                self.inbox(Host::of(host).ok_or("drop a, drop b or drop")?).clear();
                Ok(())
            }
            ("r", ">", _) => {
                let (to, what) = rest.split_once(' ').ok_or("to whom?")?;
                self.router_says(Host::of(to).ok_or("r > a or r > b")?, what)
            }
            (_, ">", Some(from)) => {
                self.nothing_left()?;
                self.host_sends(from, rest)
            }
            (_, "<", Some(at)) => self.host_gets(at, rest),
            _ => Err("not a line of a script".to_owned()),
        }
    }

    // ---- Hosts ----

    fn host_sends(&mut self, from: Host, text: &str) -> Result<(), String> {
        let spec = Spec::parse(text)?;
        // Whoever guesses sits elsewhere.
        let by = spec.word("by").map_or(Some(from), Host::of).ok_or("by a or by b")?;
        for (bytes, offload) in self.packets(from, &spec)? {
            self.inject(by, bytes, offload);
        }
        Ok(())
    }

    /// Hands a host's packet of any kind to its gateway.
    pub fn inject(&mut self, from: Host, bytes: Vec<u8>, offload: Offload) {
        let (node, iface) = if from == Host::A { (0, TO_A) } else { (self.nodes.len() - 1, TO_B) };
        self.deliver(node, iface, &bytes, offload);
        self.settle();
    }

    fn inbox(&mut self, host: Host) -> &mut VecDeque<(Instant, Arrival)> {
        if host == Host::A { &mut self.inbox_a } else { &mut self.inbox_b }
    }

    fn host_gets(&mut self, at: Host, text: &str) -> Result<(), String> {
        let Some((_, arrival)) = self.inbox(at).pop_front() else {
            return Err(format!("{} has got nothing", at.name()));
        };
        match arrival {
            Arrival::Other(said) if said == text => Ok(()),
            Arrival::Other(said) => Err(format!("{} has got instead: {said}", at.name())),
            Arrival::Tcp(seen) => {
                let wrong = Spec::parse(text)
                    .map_err(|e| format!("{e}; {} has got: {seen}", at.name()))?
                    .differences(&seen, self.origin(at, seen.port));
                if wrong.is_empty() {
                    return Ok(());
                }
                Err(format!("{} differs: {} has got {seen}", wrong.join(", "), at.name()))
            }
        }
    }

    fn nothing_left(&self) -> Result<(), String> {
        let left = [(Host::A, &self.inbox_a), (Host::B, &self.inbox_b)].into_iter().flat_map(|(h, inbox)| {
            inbox.iter().map(move |(at, p)| format!("{} {} < {p}", time(*at), h.name()))
        });
        let left: Vec<String> = left.collect();
        if left.is_empty() { Ok(()) } else { Err(format!("not expected:\n{}", left.join("\n"))) }
    }

    /// Everything that a host has got and that the script has not mentioned.
    pub fn take(&mut self, at: Host) -> Vec<Seen> {
        let all = core::mem::take(self.inbox(at));
        all.into_iter().filter_map(|(_, p)| if let Arrival::Tcp(s) = p { Some(*s) } else { None }).collect()
    }

    /// The same of what is no segment, as lines.
    pub fn take_lines(&mut self, at: Host) -> Vec<String> {
        let all = core::mem::take(self.inbox(at));
        all.into_iter()
            .filter_map(|(_, p)| if let Arrival::Other(line) = p { Some(line) } else { None })
            .collect()
    }

    /// Segments, and lines of all else.
    pub fn take_both(&mut self, at: Host) -> (Vec<Seen>, Vec<String>) {
        let (mut segments, mut lines) = (Vec::new(), Vec::new());
        for (_, arrival) in core::mem::take(self.inbox(at)) {
            match arrival {
                Arrival::Tcp(s) => segments.push(*s),
                Arrival::Other(line) => lines.push(line),
            }
        }
        (segments, lines)
    }

    // ---- Time and gateways ----

    fn pass(&mut self, time: Duration, quietly: bool) -> Result<(), String> {
        let end = self.now + time;
        if quietly {
            self.nothing_left()?;
        }
        let (mut at, mut rounds) = (self.now, 0);
        loop {
            let timeouts = self.nodes.iter().filter_map(|n| Some(n.gateway.poll_timeout()?.at));
            let flying = self.flying.keys().next().map(|(at, _)| *at);
            let Some(next) = timeouts.chain(flying).min().map(|t| t.max(at)).filter(|t| *t <= end) else {
                break;
            };
            rounds = if next == at { rounds + 1 } else { 0 };
            if rounds > 1000 {
                let due: Vec<_> = self.nodes.iter().map(|n| n.gateway.poll_timeout()).collect();
                return Err(format!("the gateway wants to be called for ever: {due:?}"));
            }
            at = next;
            self.now = at;
            self.settle();
            for i in 0..self.nodes.len() {
                if self.nodes[i].gateway.poll_timeout().is_some_and(|due| due.at <= at) {
                    self.with_gateway_at(i, |g, now, net| g.handle_timeout(now, net));
                }
            }
            if quietly && at < end {
                self.nothing_left()?;
            }
        }
        self.now = end;
        Ok(())
    }

    /// Delivers what is due now.
    fn settle(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (node, iface, bytes, offload) = entry.remove();
            self.deliver(node, iface, &bytes, offload);
        }
    }

    fn deliver(&mut self, node: usize, iface: IfaceId, bytes: &[u8], offload: Offload) {
        let n = &mut self.nodes[node];
        let packet = PacketBuf::from_slice(n.gateway.pool(), bytes, offload);
        n.gateway.handle_packet(self.now, n.net.via(iface), packet, &mut n.net);
        n.gateway.flush(self.now, &mut n.net);
        self.collect(node);
    }

    /// Does something to the (first) gateway.
    pub fn with_gateway<R>(&mut self, f: impl FnOnce(&mut Gateway, Instant, &mut Net) -> R) -> R {
        let r = self.with_gateway_at(0, f);
        self.settle();
        r
    }

    fn with_gateway_at<R>(&mut self, i: usize, f: impl FnOnce(&mut Gateway, Instant, &mut Net) -> R) -> R {
        let n = &mut self.nodes[i];
        let r = f(&mut n.gateway, self.now, &mut n.net);
        n.gateway.flush(self.now, &mut n.net);
        self.collect(i);
        r
    }

    fn collect(&mut self, node: usize) {
        for out in core::mem::take(&mut self.nodes[node].net.out) {
            self.check_and_carry(node, out);
        }
    }

    fn check_and_carry(&mut self, node: usize, p: Out) {
        let (_, dst) = farlink_wire::ip::addresses(&p.bytes).expect("an IP packet");
        let to = if dst == self.a { Host::A } else { Host::B };
        let (out, via) = if to == Host::A { (TO_A, TO_B) } else { (self.nodes[node].net.b_by, TO_A) };
        let mtu =
            if to == Host::A { self.nodes[node].net.mtu_a_bytes } else { self.nodes[node].net.mtu_b_bytes };
        let arrival = self.read(to, &p);
        if let Parsed::Fragment(f) = parse_with(&p.bytes, ShimProtocols::USUAL)
            && f.offset > 0
        {
            self.last_fragment = Some(p.bytes.clone());
        }
        let label = if self.nodes.len() > 1 { format!("g{} -> ", node + 1) } else { String::new() };
        self.trace.push(format!("{} {label}{} < {arrival}", time(self.now), to.name()));
        if let Arrival::Tcp(_) = &arrival {
            let mut right = true;
            segment(&p.bytes, &p.offload, &mut |one| {
                let Parsed::Tcp(s) = parse_with(one, ShimProtocols::USUAL) else {
                    panic!("a segment that does not parse")
                };
                right &= verify_checksums(one, &s, &Offload::default());
                right &= one.len() <= mtu as usize;
            });
            if !right && !self.line.contains("badsum") {
                self.fail(&format!("checksums and MTU {mtu}: {arrival}"));
            }
            let guessed = self.line.contains("by a}") || self.line.contains("by b}");
            if p.via != via && !guessed {
                self.fail(&format!("written to the TUN of interface {:?}: {arrival}", p.via));
            }
            if p.out != out && p.out != IfaceId::OTHER {
                self.fail(&format!("leaves by {:?}: {arrival}", p.out));
            }
        }
        let next = if to == Host::A { node.checked_sub(1) } else { Some(node + 1) };
        match next.filter(|n| *n < self.nodes.len()) {
            None => {
                let now = self.now;
                self.inbox(to).push_back((now, arrival));
            }
            Some(next) => {
                let mut bytes = p.bytes;
                // Out of one TUN and into the next: both kernels route it.
                lower_ttl(&mut bytes, 2);
                self.sent += 1;
                let swallowed = self.cut.swallows(&arrival);
                if let Arrival::Tcp(seen) = arrival {
                    self.crossed.push(Crossed { at: self.now, to, seen: *seen });
                }
                if swallowed {
                    return;
                }
                let at = (self.now + self.setup.link_delay, self.sent);
                self.flying.insert(at, (next, via, bytes, p.offload));
                if self.setup.link_delay.is_zero() {
                    self.settle();
                }
            }
        }
    }

    // ---- The rest ----

    /// The engine of the (first) gateway.
    pub fn status(&self) -> Status {
        self.nodes[0].gateway.status().engine
    }
    /// What hosts behind the first link of the (first) gateway make of what is ahead of a window.
    pub fn ahead_of(&self) -> AheadOf {
        let status = self.nodes[0].gateway.status_at(self.now);
        status.links.first().map(|link| link.ahead).unwrap_or_default()
    }
    /// What the (first) gateway waits for.
    pub fn due(&self) -> &'static str {
        self.nodes[0].gateway.poll_timeout().map_or("nothing", |due| due.what.name())
    }
    /// How the only flow is treated; "none" without a flow.
    pub fn mode(&self) -> &'static str {
        self.nodes[0].gateway.flows(self.now, 1).first().map_or("none", |f| f.mode)
    }
    /// Records in the journal of the first gateway.
    pub fn journal(&self) -> Vec<farlink_gateway::Record> {
        self.nodes[0].net.journal.values().copied().collect()
    }
    /// What has become of the connections that its killed predecessor has left behind.
    pub fn take_fates(&mut self) -> Option<farlink_gateway::Fates> {
        self.nodes[0].gateway.take_fates()
    }
    /// What has happened to connections of the first gateway since this was last asked.
    pub fn take_happened(&mut self) -> Vec<(Ends, Event)> {
        core::mem::take(&mut self.nodes[0].net.happened)
    }
    /// MTU of the route towards a host.
    pub fn set_mtu(&mut self, towards: Host, mtu_bytes: u32) {
        for n in &mut self.nodes {
            let mtu = if towards == Host::A { &mut n.net.mtu_a_bytes } else { &mut n.net.mtu_b_bytes };
            *mtu = mtu_bytes;
            n.gateway.routes_changed(self.now);
        }
    }
    /// Time passes until a host has got something, at most so much. Returns whether it has.
    #[track_caller]
    pub fn wait_for(&mut self, host: Host, most: Duration) -> bool {
        let end = self.now + most;
        while self.inbox(host).is_empty() && self.now < end {
            let next = self.nodes.iter().filter_map(|n| Some(n.gateway.poll_timeout()?.at)).min();
            let flying = self.flying.keys().next().map(|(at, _)| *at);
            let next = [next, flying].into_iter().flatten().min().unwrap_or(end).max(self.now).min(end);
            if let Err(why) = self.pass(next.since(self.now), false) {
                self.fail(&why);
            }
        }
        !self.inbox(host).is_empty()
    }
    /// A host sends, whatever it has got.
    #[track_caller]
    pub fn send(&mut self, from: Host, text: &str) {
        self.line = format!("{} > {text}", from.name());
        self.trace.push(format!("           {}", self.line));
        if let Err(why) = self.host_sends(from, text) {
            self.fail(&why);
        }
    }
    /// From now on this gets lost between two gateways, and nobody says so.
    pub fn cut(&mut self, cut: Cut) {
        self.trace.push(format!("           (lost between the gateways: {cut:?})"));
        self.cut = cut;
    }
    /// What gateways have sent to each other since this was last asked.
    pub fn take_crossed(&mut self) -> Vec<Crossed> {
        core::mem::take(&mut self.crossed)
    }
    pub fn now(&self) -> Instant {
        self.now
    }
    pub fn drain(&mut self) {
        self.trace.push("           (drain)".to_owned());
        self.with_gateway(|g, _, _| g.drain());
    }
    pub fn end_drain(&mut self) {
        self.trace.push("           (drain ended)".to_owned());
        self.with_gateway(|g, _, _| g.end_drain());
    }
    /// The first gateway is killed and starts anew with its journal.
    pub fn kill_and_restart(&mut self) {
        self.trace.push("           (killed and started again)".to_owned());
        let records = self.journal();
        self.nodes[0] = self.node(0);
        self.with_gateway(|g, now, net| g.reset_recorded(now, &records, net));
    }
    #[track_caller]
    pub fn assert(&self, holds: bool, what: &str) {
        if !holds {
            self.fail(&format!("{what}; {:?}", self.status()));
        }
    }
}

impl core::fmt::Display for Arrival {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tcp(s) => s.fmt(f),
            Self::Other(s) => f.write_str(s),
        }
    }
}

fn time(at: Instant) -> String {
    format!("{:10.3}", (at.as_nanos() as f64 / 1e6 - 1_000_000.0).max(0.0))
}

/// `40`, `40ms`, `1.5s`.
fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit_ms) = match text.strip_suffix("ms") {
        Some(d) => (d, 1.0),
        None => text.strip_suffix('s').map_or((text, 1.0), |d| (d, 1000.0)),
    };
    let ms: f64 = digits.parse().map_err(|_| format!("`{text}` is no time"))?;
    Ok(Duration::from_micros((ms * unit_ms * 1000.0) as u64))
}

/// A router takes hops away.
fn lower_ttl(packet: &mut [u8], hops: u8) {
    if packet[0] >> 4 == 4 {
        packet[8] -= hops;
        packet[10..12].fill(0);
        let check = !farlink_wire::checksum::sum(&packet[..20]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        packet[7] -= hops;
    }
}
