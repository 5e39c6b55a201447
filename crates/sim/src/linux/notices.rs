//! What a source does while a link is away for five seconds and a box before the link keeps what it
//! sends: the bench on which a simulated host is compared with a kernel.
//!
//! [`Keeper`] is the link with the box, without a clock and without sockets, so that both stand on
//! the same bench: the simulated host by [`simulate`], a kernel by the laboratory (`farlink lab run
//! notices`).

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use farlink_wire::{Duration, Flags, Instant, SackBlock, SegmentHeader, SeqNum, TcpSegment, Timestamps};

use super::config::LinuxConfig;
use super::congestion::Kind;
use super::conn::Conn;
use crate::content::Endpoint;
use crate::packet::{finish, renew, tcp};

/// Delay of the link, each way.
const ONE_WAY: Duration = Duration::from_millis(10);
/// So long the link is away.
pub const OUTAGE: Duration = Duration::from_secs(5);
/// The link goes when so many bytes have been acknowledged.
const ACKED_BYTES: u32 = 300_000;
/// Payload of a full segment with timestamps.
pub const SEGMENT_BYTES: u32 = 1448;
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

/// The link and the box on the source's side of it.
#[derive(Debug)]
pub struct Keeper {
    notice: Notice,
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
    pub fn new(notice: Notice) -> Self {
        Self {
            notice,
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
        self.is_back && self.acked_bytes + 2 * SEGMENT_BYTES >= self.held_end
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
        if !self.is_away() {
            return self.link[0].push_back((now + ONE_WAY, packet));
        }
        if is_again && let Some(since) = self.away_since {
            self.again.push(now.since(since));
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
            self.link[1].push_back((now + ONE_WAY, packet));
        }
    }

    /// What the source receives now.
    pub fn next_to_source(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.run(now);
        self.to_source.pop_front()
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
        arrivals.chain(back).min()
    }

    fn run(&mut self, now: Instant) {
        if self.is_away() && self.away_since.is_some_and(|since| since + OUTAGE <= now) {
            self.come_back(now);
        }
        while let Some((_, packet)) = self.link[0].pop_front_if(|(at, _)| *at <= now) {
            self.to_receiver.push_back(packet);
        }
        while let Some((_, packet)) = self.link[1].pop_front_if(|(at, _)| *at <= now) {
            self.note_ack(now, &packet);
            self.to_source.push_back(packet);
        }
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
        }
    }

    /// All that was held is delivered at once.
    fn come_back(&mut self, now: Instant) {
        self.is_back = true;
        self.held_end = self.highest;
        for mut packet in std::mem::take(&mut self.held).into_values() {
            renew(&mut packet, self.newest_ts);
            self.link[0].push_back((now + ONE_WAY, packet));
        }
    }

    /// The box answers in the receiver's name.
    fn notice(&self) -> Option<Vec<u8>> {
        let s = tcp(self.acked.as_ref()?)?;
        let highest = self.first? + self.highest;
        let (_, newest) = self.held.last_key_value()?;
        let mss = self.held.values().filter_map(|p| tcp(p)).map(|s| s.payload_len).max()? as u32;
        let (ack, window, block) = match self.notice {
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
    /// Congestion window in segments when the link went away.
    pub cwnd_before: u32,
    /// When all that was held has been acknowledged, and [`LATER`].
    pub cwnd_after: [u32; 2],
    /// Bytes held just before the link came back, and those that the receiver's window allowed.
    pub held_and_allowed: [u64; 2],
    /// From when the link went away until all that was held was acknowledged.
    pub caught_up_after: Duration,
}

/// Two simulated hosts and the bench between them.
struct Simulated {
    now: Instant,
    source: Conn,
    receiver: Conn,
    keeper: Keeper,
    /// What is on the cables between the box and the hosts; `true`: towards the box.
    cable: VecDeque<(Instant, bool, Vec<u8>)>,
}

fn endpoint(last: u8, port: u16) -> Endpoint {
    (core::net::Ipv4Addr::new(10, 0, 0, last).into(), port)
}

fn segment(packet: &[u8]) -> Option<(TcpSegment, &[u8])> {
    tcp(packet).map(|s| (s, packet))
}

impl Simulated {
    /// All that happens now.
    fn step(&mut self) {
        let fill = |_: u64, into: &mut [u8]| into.fill(7);
        let now = self.now;
        self.source.timeout(now);
        self.receiver.timeout(now);
        while let Some((_, to_box, packet)) = self.cable.pop_front_if(|(at, ..)| *at <= now) {
            if to_box {
                self.keeper.from_source(now, packet);
            } else if let Some((s, packet)) = segment(&packet) {
                self.source.receive(now, &s, packet);
            }
        }
        while let Some(packet) = self.keeper.next_to_receiver(now) {
            if let Some((s, packet)) = segment(&packet) {
                self.receiver.receive(now, &s, packet);
            }
            let rtt = self.receiver.tx.rtt.srtt;
            self.receiver.rx.read(now, rtt, &mut Vec::new());
            while let Some(packet) = self.receiver.next_packet(now, &fill) {
                self.keeper.from_receiver(now, packet);
            }
        }
        while let Some(packet) = self.receiver.next_packet(now, &fill) {
            self.keeper.from_receiver(now, packet);
        }
        while let Some(packet) = self.keeper.next_to_source(now) {
            self.cable.push_back((now + CABLE, false, packet));
        }
        while let Some(packet) = self.source.next_packet(now, &fill) {
            self.cable.push_back((now + CABLE, true, packet));
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
            let own = [self.source.deadline(), self.receiver.deadline(), self.keeper.deadline(), cable];
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
/// The link never went away, or what was held was never acknowledged.
pub fn simulate(notice: Notice, congestion: Kind) -> Result<Seen, String> {
    let config = LinuxConfig::modern(congestion);
    let (a, b) = (endpoint(1, 1000), endpoint(2, 80));
    let mut source = Conn::connect(config.clone(), a, b, 77);
    let nothing = |_: u64, _: &mut [u8]| ();
    let syn = source.next_packet(Instant::ZERO, &nothing).ok_or("no SYN")?;
    let mut keeper = Keeper::new(notice);
    let (s, _) = segment(&syn).ok_or("no SYN")?;
    let receiver = Conn::accept(config, b, a, 99, &s);
    keeper.first = Some(s.seq + 1);
    let mut bench =
        Simulated { now: Instant::ZERO + ONE_WAY, source, receiver, keeper, cable: VecDeque::new() };
    let limit = bench.now + Duration::from_secs(10);
    if !bench.run(limit, |b| b.source.is_open()) {
        return Err("no connection".into());
    }
    bench.source.tx.write(1 << 30);
    if !bench.run(limit, |b| b.keeper.away_since().is_some()) {
        return Err("the link never went away".into());
    }
    let settled = bench.now + SETTLE;
    bench.run(settled, |_| false);
    let cwnd_before = bench.source.tx.window.cwnd;
    let back = bench.now + (OUTAGE - SETTLE * 2);
    bench.run(back, |_| false);
    let held_and_allowed = bench.keeper.held_and_allowed();
    let limit = bench.now + OUTAGE + Duration::from_secs(150);
    let has_heard = |b: &Simulated| u64::from(b.keeper.acked_bytes) <= b.source.tx.una;
    if !bench.run(limit, |b| b.keeper.is_caught_up() && has_heard(b)) {
        return Err("what was held is never acknowledged".into());
    }
    let first = bench.source.tx.window.cwnd;
    let caught_up_after = bench.keeper.away_since().map_or(Duration::ZERO, |since| bench.now.since(since));
    let later = bench.now + LATER;
    bench.run(later, |_| false);
    let cwnd_after = [first, bench.source.tx.window.cwnd];
    Ok(Seen { again: bench.keeper.again, cwnd_before, cwnd_after, held_and_allowed, caught_up_after })
}
