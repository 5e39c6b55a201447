//! A link of packets, whose rate is found out or followed.

use core::time::Duration;
use std::collections::VecDeque;

use farlink_egress::{RateEstimate, Report};
use farlink_wire::time::Instant;

const PACKET_BYTES: u32 = 1500;
const BURST_PACKETS: u32 = 32;

/// A packet under way.
struct Flying {
    arrives: Instant,
    left: Instant,
    is_lost: bool,
    /// The other gateway does not count it.
    is_other: bool,
}

/// A link with a queue before it, a source that always has more, and a gateway behind it that
/// reports.
pub struct Model {
    pub estimate: RateEstimate,
    pub rate_bps: u64,
    pub one_way: Duration,
    pub loss_permille: u64,
    random: u64,
    pub now: Instant,
    next_send: Instant,
    sent: u32,
    link_free: Instant,
    /// What is under way.
    flying: VecDeque<Flying>,
    /// Of the packets so many are not counted by the other gateway, percent.
    pub other_percent: u32,
    other_bytes: u64,
    /// It is known here which those are.
    pub others_are_known: bool,
    /// What the source has to send, bits per second.
    pub demand_bps: u64,
    /// The gateway tells nothing any more.
    pub is_silent: bool,
    /// The gateway here has measured this round trip, whatever the way is like now; zero: it knows
    /// at once.
    pub measured_rtt: Duration,
    /// By its clock it is so much later than here, microseconds modulo 2^32.
    pub clock_us: u32,
    pub received_bytes: u32,
    last: Option<(Instant, Instant)>,
    last_counted: Option<Instant>,
    report_at: Option<Instant>,
    pub interval: Duration,
    reports: VecDeque<(Instant, Report)>,
    pub delivered_bytes: u64,
    pub waited_max: Duration,
    /// What would wait for longer before the link finds no room there.
    pub room: Duration,
    /// It is tried whether the link carries more than is declared.
    pub tries: bool,
    /// Hosts' acknowledgements tell of what arrives, and no gateway does.
    pub hosts_tell: bool,
}

impl Model {
    pub fn new(rate_bps: u64, rtt_ms: u64) -> Self {
        Self::near(rate_bps, Duration::from_millis(rtt_ms))
    }

    /// The operator has declared so many per cent of its rate.
    pub fn declared(rate_bps: u64, rtt_ms: u64, percent: u64) -> Self {
        let estimate = RateEstimate::declared(rate_bps / 100 * percent);
        Self { estimate, ..Self::new(rate_bps, rtt_ms) }
    }

    pub fn near(rate_bps: u64, rtt: Duration) -> Self {
        let start = Instant::from_millis(1000);
        Self {
            estimate: RateEstimate::default(),
            rate_bps,
            one_way: rtt / 2,
            loss_permille: 0,
            random: 7,
            now: start,
            next_send: start,
            sent: 0,
            link_free: start,
            flying: VecDeque::new(),
            other_percent: 0,
            other_bytes: 0,
            others_are_known: true,
            demand_bps: u64::MAX,
            is_silent: false,
            measured_rtt: Duration::ZERO,
            clock_us: 0xfff0_0000,
            received_bytes: u32::MAX - 20_000,
            last: None,
            last_counted: None,
            report_at: None,
            interval: rtt / 8,
            reports: VecDeque::new(),
            delivered_bytes: 0,
            waited_max: Duration::ZERO,
            room: Duration::MAX,
            tries: false,
            hosts_tell: false,
        }
    }

    pub fn sent_bytes(&self) -> u64 {
        u64::from(self.sent) * u64::from(PACKET_BYTES)
    }

    pub fn has_backlog(&self) -> bool {
        self.estimate.has_backlog(self.now, self.sent_bytes())
    }

    fn lost(&mut self) -> bool {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % 1000 < self.loss_permille
    }

    fn send(&mut self) {
        if self.tries {
            self.estimate.may_try(self.now, Instant::ZERO);
        }
        self.estimate.note_sent(self.now, self.sent_bytes(), self.other_bytes);
        self.sent += 1;
        let took = Duration::from_nanos(u64::from(PACKET_BYTES) * 8 * 1_000_000_000 / self.rate_bps);
        self.waited_max = self.waited_max.max(self.waits());
        let has_room = self.waits() <= self.room;
        if has_room {
            self.link_free = self.link_free.max(self.now) + took;
        }
        let lost = self.lost() || !has_room;
        let is_other = self.sent * self.other_percent / 100 > (self.sent - 1) * self.other_percent / 100;
        self.other_bytes += if is_other && self.others_are_known { u64::from(PACKET_BYTES) } else { 0 };
        self.flying.push_back(Flying {
            arrives: self.link_free + self.one_way,
            left: self.now,
            is_lost: lost,
            is_other,
        });
        self.next_send = match self.estimate.sending_bps() {
            Some(rate) => {
                let rate = rate.min(self.demand_bps);
                self.now + Duration::from_nanos(u64::from(PACKET_BYTES) * 8 * 1_000_000_000 / rate)
            }
            None if self.sent < BURST_PACKETS => self.now,
            None => Instant::from_millis(u64::MAX / 2_000_000),
        };
    }

    fn report(&mut self, at: Instant) {
        let Some((arrived, sent_at)) = self.last.take() else { return };
        let report = Report {
            peer: 1,
            arrived_us: (arrived.since(Instant::ZERO).as_micros() as u32).wrapping_add(self.clock_us),
            received_bytes: self.received_bytes,
            sent_at: Some(sent_at),
            sent_again: false,
            place: (0, 0, 0),
            min_rtt: Some(if self.measured_rtt.is_zero() { self.rtt() } else { self.measured_rtt }),
            of_host: self.hosts_tell,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        };
        if !self.is_silent {
            self.reports.push_back((at + self.one_way, report));
        }
        self.report_at = None;
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.flying.front().map(|f| f.arrives);
            let report = self.reports.front().map(|r| r.0);
            let timer = self.estimate.poll_timeout();
            let next = [Some(self.next_send), arrival, report, timer, self.report_at]
                .into_iter()
                .flatten()
                .min()
                .unwrap();
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let packet = self.flying.pop_front().unwrap();
                let at = packet.arrives;
                if !packet.is_lost {
                    self.delivered_bytes += u64::from(PACKET_BYTES);
                }
                if !packet.is_lost && !packet.is_other {
                    let first = self.last_counted.is_none();
                    self.last_counted = Some(at);
                    self.received_bytes = self.received_bytes.wrapping_add(PACKET_BYTES);
                    self.last = Some((at, packet.left));
                    if first {
                        self.report(at);
                    } else if self.report_at.is_none() {
                        self.report_at = Some(at + self.interval);
                    }
                }
            } else if self.report_at == Some(next) {
                self.report(next);
            } else if report == Some(next) {
                let (_, report) = self.reports.pop_front().unwrap();
                let had = self.estimate.rate_bps().is_some();
                let busy_since = (self.demand_bps == u64::MAX).then_some(Instant::ZERO);
                self.estimate.on_report(self.now, &report, busy_since);
                if !had && self.estimate.rate_bps().is_some() {
                    self.next_send = self.now;
                }
            } else if timer == Some(next) {
                self.estimate.handle_timeout(self.now);
            } else {
                self.send();
            }
        }
    }

    /// How long a packet that leaves now waits before the link.
    pub fn waits(&self) -> Duration {
        self.link_free.since(self.now.min(self.link_free))
    }

    /// The link carries nothing for so long, and loses nothing.
    pub fn interrupt(&mut self, time: Duration) {
        self.link_free = self.link_free.max(self.now) + time;
        for packet in &mut self.flying {
            packet.arrives += time;
        }
    }

    /// Another satellite: the link is away for so long, and has another rate and another delay from
    /// then on. What waits before it stays there.
    pub fn take_turns(&mut self, away: Duration, rate_bps: u64, one_way: Duration) {
        let took = Duration::from_nanos(u64::from(PACKET_BYTES) * 8 * 1_000_000_000 / rate_bps);
        let mut free = self.now + away;
        for packet in self.flying.iter_mut().filter(|packet| packet.arrives > self.now + self.one_way) {
            free += took;
            packet.arrives = free + one_way;
        }
        (self.link_free, self.rate_bps, self.one_way) = (free, rate_bps, one_way);
    }

    pub fn rtt(&self) -> Duration {
        2 * self.one_way
    }

    /// The estimate over the true rate, percent.
    pub fn percent(&self) -> u64 {
        self.estimate.rate_bps().unwrap_or(0) * 100 / self.rate_bps
    }

    /// What has been delivered since `before`, over what the link could have carried in this time,
    /// percent.
    pub fn use_percent(&mut self, time: Duration) -> u64 {
        let before = self.delivered_bytes;
        self.run(time);
        let could = u128::from(self.rate_bps) * time.as_nanos() / 8 / 1_000_000_000;
        u64::try_from(u128::from(self.delivered_bytes - before) * 100 / could).unwrap()
    }
}
