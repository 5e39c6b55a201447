//! What a source does while a link is away for five seconds and a box before the link keeps what it
//! sends: the bench on which a simulated host is compared with a kernel.
//!
//! [`Keeper`] is the link with the box, without a clock and without sockets, so that both stand on
//! the same bench: the simulated host by [`simulate`], a kernel by the laboratory (`farlink lab run
//! notices`). The box answers as it is told to ([`Notice`]), or is a real gateway in custody mode
//! ([`gateway`]).

pub mod gateway;
pub mod source;

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use farlink_gateway::config;
use farlink_wire::{Duration, Flags, Instant, SackBlock, SegmentHeader, SeqNum, Timestamps};

use self::gateway::{GatewayBox, Leaving, TO_LINK, TO_SOURCE};
use self::source::{Source, Stack, far_end, own_end};
use super::config::LinuxConfig;
use super::congestion::Kind;
use super::conn::Conn;
use crate::packet::{finish, renew, tcp};
use crate::ranges::Ranges;

/// Round trip of the link of [`Bench::notice`].
const RTT: Duration = Duration::from_millis(20);
/// So long the link is away.
pub const OUTAGE: Duration = Duration::from_secs(5);
/// The link goes when so many bytes have been acknowledged.
const ACKED_BYTES: u32 = 300_000;
/// Payload of a full segment with timestamps.
pub const SEGMENT_BYTES: u32 = 1448;
/// The link has gone by then, in the simulator, and all that was held has been acknowledged so long
/// after it should be back.
const BEGINNING: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(150);
/// Between source and box, in the simulator.
const CABLE: Duration = Duration::from_micros(50);
/// The window before the outage is looked at when the source has heard all that was under way to
/// it.
pub const SETTLE: Duration = Duration::from_millis(1);
/// After the outage the window is looked at a second time.
pub const LATER: Duration = Duration::from_millis(250);

/// What the source hears while the link is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Nothing at all.
    Silence,
    /// Acknowledgements with a block that begins one segment above.
    SackAbove,
    /// Acknowledgements with a block that begins where they end.
    SackAtAck,
    /// Acknowledgements with a window of zero.
    ZeroWindow,
    /// An acknowledgement of all but the last byte, with a window of zero (M-TCP).
    AllButOne,
}

impl Notice {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Silence, Self::SackAbove, Self::SackAtAck, Self::ZeroWindow, Self::AllButOne];

    /// As it is written in scenario files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::SackAbove => "sack-above",
            Self::SackAtAck => "sack-at-ack",
            Self::ZeroWindow => "zero-window",
            Self::AllButOne => "all-but-one",
        }
    }
}

impl FromStr for Notice {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|n| n.name() == s)
            .ok_or(format!("there is no notice `{s}`; there are {known}"))
    }
}

/// What stands before the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A box that answers so.
    Box(Notice),
    /// A gateway in custody mode that tells of outages so.
    Gateway(config::Notice),
}

/// What a source is put on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bench {
    /// What keeps its data.
    pub holder: Holder,
    /// Round trip of the link.
    pub rtt: Duration,
    /// A gateway dies in the middle of the outage, and what it held is gone. From then on there is
    /// a plain router.
    pub dies: bool,
}

impl Bench {
    /// A box before a link of 20 ms.
    #[must_use]
    pub fn notice(notice: Notice) -> Self {
        Self { holder: Holder::Box(notice), rtt: RTT, dies: false }
    }
}

/// The link and the box on the source's side of it.
#[derive(Debug)]
pub struct Keeper {
    bench: Bench,
    gateway: Option<GatewayBox>,
    /// What has arrived at the receiver.
    arrived: Ranges,
    /// Payload bytes that have arrived once more.
    pub arrived_again_bytes: u64,
    /// Payload bytes of the source's own repetitions that a gateway has let pass.
    pub let_pass_bytes: u64,
    /// The packet at hand is a repetition of the source's.
    is_again: bool,
    /// Repetitions of the source after the link was back.
    pub again_later: u64,
    /// What the source has been told to be acknowledged.
    told_acked: u32,
    /// What is on the link towards the receiver and from it, with the time of its arrival.
    link: [VecDeque<(Instant, Vec<u8>)>; 2],
    to_source: VecDeque<Vec<u8>>,
    to_receiver: VecDeque<Vec<u8>>,
    /// First byte of the source's stream.
    first: Option<SeqNum>,
    /// Where the newest of its bytes ends.
    highest: u32,
    acked_bytes: u32,
    /// Where the receiver's window ends, and how it is scaled.
    edge: u64,
    window_scale: u8,
    /// The newest acknowledgement.
    acked: Option<Vec<u8>>,
    away_since: Option<Instant>,
    is_back: bool,
    held: BTreeMap<u32, Vec<u8>>,
    /// What is to be acknowledged until all that was held has arrived.
    held_end: u32,
    /// The newest TSval of the source: what is held leaves with it, or the receiver would refuse
    /// what follows a repetition.
    newest_ts: u32,
    /// When the source has sent something again, since the link went away.
    pub again: Vec<Duration>,
}

impl Keeper {
    /// A link that is there.
    #[must_use]
    pub fn new(bench: Bench) -> Self {
        let gateway = match bench.holder {
            Holder::Gateway(notice) => Some(GatewayBox::new(notice, bench.rtt)),
            Holder::Box(_) => None,
        };
        Self {
            bench,
            gateway,
            arrived: Ranges::default(),
            arrived_again_bytes: 0,
            let_pass_bytes: 0,
            is_again: false,
            again_later: 0,
            told_acked: 0,
            link: Default::default(),
            to_source: VecDeque::new(),
            to_receiver: VecDeque::new(),
            first: None,
            highest: 0,
            acked_bytes: 0,
            edge: 0,
            window_scale: 0,
            acked: None,
            away_since: None,
            is_back: false,
            held: BTreeMap::new(),
            held_end: 0,
            newest_ts: 0,
            again: Vec::new(),
        }
    }

    /// When the link went away.
    #[must_use]
    pub fn away_since(&self) -> Option<Instant> {
        self.away_since
    }

    /// The link is back, and the receiver has acknowledged all that was held, but for what a
    /// delayed acknowledgement may be late with.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        let arrived = self.is_back && self.acked_bytes + 2 * SEGMENT_BYTES >= self.held_end;
        arrived && self.told_acked >= self.acked_bytes
    }

    /// Bytes that the source has sent, each counted once.
    #[must_use]
    pub fn sent_bytes(&self) -> u32 {
        self.highest
    }

    fn one_way(&self) -> Duration {
        self.bench.rtt / 2
    }

    fn is_away(&self) -> bool {
        self.away_since.is_some() && !self.is_back
    }

    /// Bytes of the source's stream before `seq`.
    fn offset(&self, seq: SeqNum) -> u32 {
        self.first.map_or(0, |first| seq.since(first))
    }

    /// The source sends.
    pub fn from_source(&mut self, now: Instant, packet: Vec<u8>) {
        self.run(now);
        let Some(s) = tcp(&packet) else { return };
        if s.flags.syn() {
            self.first = Some(s.seq + 1);
        }
        let end = self.offset(s.seq + s.payload_len as u32);
        let is_again = s.payload_len > 0 && end <= self.highest;
        if s.payload_len > 0 {
            self.highest = self.highest.max(end);
            self.newest_ts = s.options.timestamps.map_or(0, |t| t.val);
        }
        if is_again && let Some(since) = self.away_since {
            if self.is_away() {
                self.again.push(now.since(since));
            } else {
                self.again_later += 1;
            }
        }
        if let Holder::Gateway(_) = self.bench.holder {
            self.is_again = is_again;
            return self.pass(now, TO_SOURCE, packet);
        }
        if !self.is_away() {
            return self.link[0].push_back((now + self.one_way(), packet));
        }
        if s.payload_len > 0 {
            self.held.entry(self.offset(s.seq)).or_insert(packet);
            let notice = self.notice();
            self.to_source.extend(notice);
        }
    }

    /// The receiver sends.
    pub fn from_receiver(&mut self, now: Instant, packet: Vec<u8>) {
        self.run(now);
        if !self.is_away() {
            self.link[1].push_back((now + self.one_way(), packet));
        }
    }

    /// A packet passes the gateway, or what is left of it.
    fn pass(&mut self, now: Instant, from: usize, packet: Vec<u8>) {
        let leaves = match &mut self.gateway {
            Some(gateway) => gateway.take(now, from, &packet),
            None => vec![Leaving { to: TO_SOURCE + TO_LINK - from, bytes: packet, is_made: false }],
        };
        self.leave(now, leaves);
        self.is_again = false;
    }

    fn leave(&mut self, now: Instant, packets: Vec<Leaving>) {
        for Leaving { to, bytes, is_made } in packets {
            if to == TO_SOURCE {
                self.to_source.push_back(bytes);
                continue;
            }
            if self.is_again && !is_made && self.gateway.is_some() {
                self.let_pass_bytes += tcp(&bytes).map_or(0, |s| s.payload_len as u64);
            }
            if !self.is_away() {
                self.link[0].push_back((now + self.one_way(), bytes));
            }
        }
    }

    /// What the source receives now.
    pub fn next_to_source(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.run(now);
        let packet = self.to_source.pop_front()?;
        if let Some(s) = tcp(&packet).filter(|s| s.flags.ack() && !s.flags.any(Flags::SYN | Flags::URG)) {
            self.told_acked = self.told_acked.max(self.offset(s.ack));
        }
        Some(packet)
    }

    /// What the receiver receives now.
    pub fn next_to_receiver(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.run(now);
        self.to_receiver.pop_front()
    }

    /// Bytes that the box holds, and those that the receiver's window allows it to hold.
    #[must_use]
    pub fn held_and_allowed(&self) -> [u64; 2] {
        let acked = u64::from(self.acked_bytes);
        [u64::from(self.highest), self.edge].map(|end| end.saturating_sub(acked))
    }

    /// When the next of them is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let back = self.away_since.filter(|_| !self.is_back).map(|since| since + OUTAGE);
        let arrivals = self.link.iter().filter_map(|l| l.front()).map(|(at, _)| *at);
        let gateway = self.gateway.as_ref().and_then(GatewayBox::deadline);
        arrivals.chain(back).chain(gateway).chain(self.dies_at()).min()
    }

    /// When the gateway dies, if it lives still.
    fn dies_at(&self) -> Option<Instant> {
        let since = self.away_since.filter(|_| self.bench.dies && self.gateway.is_some())?;
        Some(since + OUTAGE / 2)
    }

    fn run(&mut self, now: Instant) {
        if self.is_away() && self.away_since.is_some_and(|since| since + OUTAGE <= now) {
            self.come_back(now);
        }
        if self.dies_at().is_some_and(|at| at <= now) {
            self.gateway = None;
        }
        if let Some(gateway) = &mut self.gateway {
            let leaves = gateway.run(now);
            self.leave(now, leaves);
        }
        while let Some((_, packet)) = self.link[0].pop_front_if(|(at, _)| *at <= now) {
            self.note_arrival(&packet);
            self.to_receiver.push_back(packet);
        }
        while let Some((_, packet)) = self.link[1].pop_front_if(|(at, _)| *at <= now) {
            match self.bench.holder {
                Holder::Gateway(_) => self.pass(now, TO_LINK, packet.clone()),
                Holder::Box(_) => self.to_source.push_back(packet.clone()),
            }
            self.note_ack(now, &packet);
        }
    }

    fn note_arrival(&mut self, packet: &[u8]) {
        let Some(s) = tcp(packet).filter(|s| s.payload_len > 0) else { return };
        let from = u64::from(self.offset(s.seq));
        let to = from + s.payload_len as u64;
        self.arrived_again_bytes += self.arrived.unbroken_end(from).min(to) - from;
        self.arrived.add(from, to);
    }

    fn note_ack(&mut self, now: Instant, packet: &[u8]) {
        let Some(s) = tcp(packet).filter(|s| s.flags.ack()) else { return };
        if s.flags.syn() {
            self.window_scale = s.options.window_scale.unwrap_or(0);
            return;
        }
        self.acked_bytes = self.acked_bytes.max(self.offset(s.ack));
        self.edge = self.edge.max(u64::from(self.offset(s.ack)) + (u64::from(s.window) << self.window_scale));
        self.acked = Some(packet.to_vec());
        if self.acked_bytes >= ACKED_BYTES && self.away_since.is_none() {
            self.away_since = Some(now);
            // What is under way is lost with the link, and the box has it. What is under way from
            // the receiver arrives.
            for (_, packet) in std::mem::take(&mut self.link[0]) {
                if let Some(s) = tcp(&packet).filter(|s| s.payload_len > 0) {
                    self.held.insert(self.offset(s.seq), packet);
                }
            }
            self.tell_gateway(now, false);
        }
    }

    fn tell_gateway(&mut self, now: Instant, up: bool) {
        if let Some(gateway) = &mut self.gateway {
            let leaves = gateway.link_is_up(now, up);
            self.leave(now, leaves);
        }
    }

    /// All that was held is delivered at once.
    fn come_back(&mut self, now: Instant) {
        self.is_back = true;
        self.held_end = self.highest;
        if let Holder::Gateway(_) = self.bench.holder {
            return self.tell_gateway(now, true);
        }
        for mut packet in std::mem::take(&mut self.held).into_values() {
            renew(&mut packet, self.newest_ts);
            self.link[0].push_back((now + self.one_way(), packet));
        }
    }

    /// The box answers in the receiver's name.
    fn notice(&self) -> Option<Vec<u8>> {
        let s = tcp(self.acked.as_ref()?)?;
        let highest = self.first? + self.highest;
        let (_, newest) = self.held.last_key_value()?;
        let mss = self.held.values().filter_map(|p| tcp(p)).map(|s| s.payload_len).max()? as u32;
        let Holder::Box(notice) = self.bench.holder else { return None };
        let (ack, window, block) = match notice {
            Notice::Silence => return None,
            Notice::SackAbove => (s.ack, s.window, Some(s.ack + mss)),
            Notice::SackAtAck => (s.ack, s.window, Some(s.ack)),
            Notice::ZeroWindow => (s.ack, 0, None),
            Notice::AllButOne => (SeqNum(highest.0.wrapping_sub(1)), 0, None),
        };
        let block = block.filter(|start| highest.after(*start));
        let blocks: Vec<SackBlock> =
            block.map(|start| SackBlock { start, end: highest }).into_iter().collect();
        let echo = tcp(newest)?.options.timestamps;
        let header = SegmentHeader {
            src: s.ip.src,
            dst: s.ip.dst,
            src_port: s.src_port,
            dst_port: s.dst_port,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: 0,
            dont_fragment: true,
            seq: s.seq,
            ack,
            flags: Flags::ACK,
            window,
            urgent: 0,
            timestamps: s
                .options
                .timestamps
                .zip(echo)
                .map(|(own, other)| Timestamps { val: own.val, ecr: other.val }),
            sack: &blocks,
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let mut bytes = header.write(0).ok()?.0.to_vec();
        finish(&mut bytes);
        Some(bytes)
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// When the source sent something again, since the link went away.
    pub again: Vec<Duration>,
    /// How often it did when the link was back.
    pub again_later: u64,
    /// Payload bytes that arrived at the receiver more than once: a gateway's own copies, too.
    pub arrived_again_bytes: u64,
    /// Payload bytes of the source's repetitions that a gateway let pass.
    pub let_pass_bytes: u64,
    /// Congestion window in segments when the link went away; `None`: the source does not tell.
    pub cwnd_before: Option<u32>,
    /// When all that was held has been acknowledged, and [`LATER`].
    pub cwnd_after: [Option<u32>; 2],
    /// New bytes that the source has sent between the two.
    pub sent_later_bytes: u32,
    /// Bytes held just before the link came back, and those that the receiver's window allowed.
    pub held_and_allowed: [u64; 2],
    /// From when the link went away until all that was held was acknowledged, and the source knew;
    /// `None`: it never was.
    pub caught_up_after: Option<Duration>,
}

/// Two simulated hosts and the bench between them.
struct Simulated {
    now: Instant,
    source: Source,
    /// From the source's SYN on.
    receiver: Option<Conn>,
    keeper: Keeper,
    /// What is on the cables between the box and the hosts; `true`: towards the box.
    cable: VecDeque<(Instant, bool, Vec<u8>)>,
}

impl Simulated {
    /// All that happens now.
    fn step(&mut self) {
        let now = self.now;
        self.source.timeout(now);
        while let Some((_, to_box, packet)) = self.cable.pop_front_if(|(at, ..)| *at <= now) {
            if to_box {
                self.keeper.from_source(now, packet);
            } else {
                self.source.receive(now, &packet);
            }
        }
        self.receive();
        while let Some(packet) = self.keeper.next_to_source(now) {
            self.cable.push_back((now + CABLE, false, packet));
        }
        while let Some(packet) = self.source.next_packet(now) {
            self.cable.push_back((now + CABLE, true, packet));
        }
    }

    /// The receiver takes what arrives, and answers.
    fn receive(&mut self) {
        let (now, nothing) = (self.now, |_: u64, _: &mut [u8]| ());
        while let Some(packet) = self.keeper.next_to_receiver(now) {
            let Some(s) = tcp(&packet) else { continue };
            match &mut self.receiver {
                None => {
                    let config = LinuxConfig::modern(Kind::Cubic);
                    self.receiver = Some(Conn::accept(config, far_end(), own_end(), 99, &s));
                }
                Some(receiver) => {
                    receiver.receive(now, &s, &packet);
                    receiver.rx.read(now, &mut Vec::new());
                    while let Some(packet) = receiver.next_packet(now, &nothing) {
                        self.keeper.from_receiver(now, packet);
                    }
                }
            }
        }
        let Some(receiver) = &mut self.receiver else { return };
        receiver.timeout(now);
        while let Some(packet) = receiver.next_packet(now, &nothing) {
            self.keeper.from_receiver(now, packet);
        }
    }

    /// Until `done` or the end; whether it was done.
    fn run(&mut self, end: Instant, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            self.step();
            if done(self) {
                return true;
            }
            let cable = self.cable.front().map(|(at, ..)| *at);
            let receiver = self.receiver.as_ref().and_then(Conn::deadline);
            let own = [self.source.deadline(), receiver, self.keeper.deadline(), cable];
            match own.into_iter().flatten().min().filter(|at| *at <= end) {
                Some(next) => self.now = self.now.max(next),
                None => {
                    self.now = end;
                    return false;
                }
            }
        }
    }
}

/// A simulated source on the bench.
///
/// # Errors
/// The link never went away, or what was held was never acknowledged although nobody has died.
pub fn simulate(bench: Bench, stack: Stack) -> Result<Seen, String> {
    let mut b = Simulated {
        now: Instant::ZERO,
        source: Source::new(stack),
        receiver: None,
        keeper: Keeper::new(bench),
        cable: VecDeque::new(),
    };
    let limit = b.now + BEGINNING;
    if !b.run(limit, |b| b.source.is_open()) {
        return Err("no connection".into());
    }
    b.source.write();
    if !b.run(limit, |b| b.keeper.away_since().is_some()) {
        return Err("the link never went away".into());
    }
    let settled = b.now + SETTLE;
    b.run(settled, |_| false);
    let cwnd_before = b.source.cwnd();
    let back = b.now + (OUTAGE - SETTLE * 2);
    b.run(back, |_| false);
    let held_and_allowed = b.keeper.held_and_allowed();
    let limit = b.now + OUTAGE + PATIENCE;
    let is_over = b.run(limit, |b| b.keeper.is_caught_up());
    if !is_over && !bench.dies {
        return Err("what was held is never acknowledged".into());
    }
    let since = b.keeper.away_since().unwrap_or(b.now);
    let caught_up_after = is_over.then(|| b.now.since(since));
    let heard = b.now + CABLE;
    b.run(heard, |_| false);
    let (first, sent) = (b.source.cwnd(), b.keeper.sent_bytes());
    let later = b.now + LATER;
    b.run(later, |_| false);
    Ok(Seen {
        cwnd_before,
        cwnd_after: [first, b.source.cwnd()],
        sent_later_bytes: b.keeper.sent_bytes() - sent,
        held_and_allowed,
        caught_up_after,
        again_later: b.keeper.again_later,
        arrived_again_bytes: b.keeper.arrived_again_bytes,
        let_pass_bytes: b.keeper.let_pass_bytes,
        again: b.keeper.again,
    })
}
