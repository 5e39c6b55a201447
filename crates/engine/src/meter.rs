//! What comes in over a declared link: counted here, told to the gateway at its other end, and heard from it.
//!
//! The engine only counts and carries; what the numbers mean for the rate of a link is for the one that owns its queue.

use farlink_wire::{Duration, Instant, PacketBuf, TcpSegment, WireSize};

use crate::config::Config;
use crate::net::IfaceId;
use crate::peer::Arrived;

/// A link's round trip is the smallest of one to two of these: long enough for a pause of its users, short enough for a route of the
/// link layer that has become longer.
const RTT_WINDOW: Duration = Duration::from_secs(300);
/// A link delivers while it has told of something within its round trip, or within this where that is shorter: a gateway
/// acknowledges about twelve times a second where little comes in.
const DELIVERS_MIN: Duration = Duration::from_millis(250);
/// The round trip that counts while none is known.
const TRAIN_RTT_DEFAULT: Duration = Duration::from_secs(1);
/// Reports that follow the first one early, and the bytes that each of them tells of at least: a quarter of the burst that is sent for them.
const EARLY_REPORTS: u8 = 3;
const EARLY_BYTES: u64 = 12_000;
/// Reports kept until they are asked for.
const REPORTS_MAX: usize = 64;

/// What a gateway has told of a link, and what is known here of the segment that it tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkReport {
    /// The link's interface here.
    pub iface: IfaceId,
    /// What it told.
    pub arrived: Arrived,
    /// When the newest segment that the same acknowledgement covers for the first time left.
    pub sent_at: Option<Instant>,
    /// It had been sent before.
    pub sent_again: bool,
    /// Smallest RTT over the link of late.
    pub min_rtt: Option<Duration>,
}

/// The count of one link.
#[derive(Clone, Copy, Debug)]
struct Meter {
    iface: IfaceId,
    received_bytes: u64,
    told_at: Option<Instant>,
    /// What had been received by then.
    told_bytes: u64,
    /// Reports that still come early.
    early: u8,
    rtt: SmallestRtt,
    /// Of all that is known to have arrived at the other end: when the newest of it left, and when that was heard.
    carried: Option<(Instant, Instant)>,
    /// When a burst left from which the rate shows.
    train_at: Option<Instant>,
    /// The newest answer to a SYN that asked for a gateway came from one.
    answers: Option<bool>,
}

/// The smallest RTT of the last one to two windows.
#[derive(Clone, Copy, Debug, Default)]
struct SmallestRtt {
    now: Option<Duration>,
    before: Option<Duration>,
    since: Instant,
}

/// The counts of all declared links.
#[derive(Debug, Default)]
pub struct Meters {
    id: u16,
    meters: Vec<Meter>,
    reports: Vec<LinkReport>,
}

impl Meters {
    /// For the declared links of a configuration; its seed gives the number by which other gateways tell us apart.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let links = config.interfaces.iter().filter(|i| i.link.is_some());
        Self {
            id: (config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16,
            meters: links
                .map(|i| Meter {
                    iface: i.id,
                    received_bytes: 0,
                    told_at: None,
                    told_bytes: 0,
                    early: 0,
                    rtt: SmallestRtt::default(),
                    carried: None,
                    train_at: None,
                    answers: None,
                })
                .collect(),
            reports: Vec::new(),
        }
    }

    fn get_mut(&mut self, iface: IfaceId) -> Option<&mut Meter> {
        self.meters.iter_mut().find(|m| m.iface == iface)
    }

    /// A TCP packet came in: as many bytes as its segments had on the link, IP headers included.
    pub fn count(&mut self, via: IfaceId, s: &TcpSegment, packet: &PacketBuf) {
        let Some(meter) = self.get_mut(via) else { return };
        let payload_bytes = packet.len().saturating_sub(s.payload_offset);
        let size = WireSize::of(s.payload_offset, payload_bytes, &packet.offload);
        meter.received_bytes = meter.received_bytes.wrapping_add(u64::from(size.bytes));
    }

    /// What a segment that has just come in over this link leaves to be told; `None`: no declared link.
    #[must_use]
    pub fn arrival(&self, now: Instant, via: IfaceId) -> Option<Arrived> {
        let meter = self.meters.iter().find(|m| m.iface == via)?;
        Some(Arrived {
            by: self.id,
            // Both modulo 2^32 on purpose: differences count.
            at_us: now.since(Instant::ZERO).as_micros() as u32,
            received_bytes: meter.received_bytes as u32,
        })
    }

    /// Nothing has been told of this link for so long.
    #[must_use]
    pub fn is_due(&self, now: Instant, via: IfaceId, interval: Duration) -> bool {
        let meter = self.meters.iter().find(|m| m.iface == via);
        meter.is_some_and(|m| m.told_at.is_none_or(|at| now.since(at) >= interval))
    }

    /// The first report after a silence is followed by a few that do not wait for their time: a rate shows in two of them, and where
    /// little comes in, or one is lost, no other may follow.
    #[must_use]
    pub fn is_due_early(&self, config: &Config, now: Instant, via: IfaceId, apart: Duration) -> bool {
        // Where the rate is said here, it will be at the other end.
        let unknown = config.link(via).is_some_and(|l| l.rate_bps.is_none());
        let meter = self.meters.iter().filter(|_| unknown).find(|m| m.iface == via);
        meter.is_some_and(|m| {
            let enough = m.received_bytes.wrapping_sub(m.told_bytes) >= EARLY_BYTES;
            m.early > 0 && enough && m.told_at.is_some_and(|at| now.since(at) >= apart)
        })
    }

    /// The other gateway of this link has been told.
    pub fn told(&mut self, now: Instant, via: IfaceId) {
        let round = self.rtt(via).unwrap_or_default().max(DELIVERS_MIN);
        if let Some(meter) = self.get_mut(via) {
            let first = meter.told_at.is_none_or(|at| now.since(at) >= round);
            meter.early = if first { EARLY_REPORTS } else { meter.early.saturating_sub(1) };
            meter.told_at = Some(now);
            meter.told_bytes = meter.received_bytes;
        }
    }

    /// A connection over this link has measured its leg: the link, and what lies behind it.
    pub fn note_rtt(&mut self, now: Instant, iface: IfaceId, rtt: Duration) {
        let Some(m) = self.get_mut(iface) else { return };
        if now.since(m.rtt.since) >= RTT_WINDOW {
            m.rtt = SmallestRtt { now: None, before: m.rtt.now, since: now };
        }
        m.rtt.now = Some(m.rtt.now.map_or(rtt, |min| min.min(rtt)));
    }

    /// The smallest RTT of any connection over this link of late.
    #[must_use]
    pub fn rtt(&self, iface: IfaceId) -> Option<Duration> {
        let rtt = self.meters.iter().find(|m| m.iface == iface)?.rtt;
        rtt.now.into_iter().chain(rtt.before).min()
    }

    /// A SYN that asked for a gateway over this link has been answered, by a gateway or by the host alone.
    pub fn note_answer(&mut self, iface: IfaceId, of_gateway: bool) {
        if let Some(meter) = self.get_mut(iface) {
            meter.answers = Some(of_gateway);
        }
    }

    /// Nothing speaks against a gateway at the other end. A SYN that is repeated may ask once more: it was lost, as far as is known.
    #[must_use]
    pub fn may_answer(&self, iface: IfaceId) -> bool {
        self.meters.iter().any(|m| m.iface == iface && m.answers != Some(false))
    }

    /// A burst has left from which the other gateway will tell the rate.
    pub fn note_train(&mut self, now: Instant, iface: IfaceId) {
        if let Some(meter) = self.get_mut(iface) {
            meter.train_at = Some(now);
        }
    }

    /// What it tells may still come: the round trip, and half as much again for a queue.
    #[must_use]
    pub fn train_is_under_way(&self, now: Instant, iface: IfaceId, rtt: Option<Duration>) -> bool {
        let until = |at: Instant| at + rtt.or(self.rtt(iface)).unwrap_or(TRAIN_RTT_DEFAULT) / 2 * 3;
        self.meters.iter().any(|m| m.iface == iface && m.train_at.is_some_and(|at| now < until(at)))
    }

    /// The newest transmission over this link that is known to have arrived, where the link delivers: what left later stands in line
    /// behind it, in a queue of others. `None`: nothing has been told of late.
    #[must_use]
    pub fn delivers(&self, now: Instant, iface: IfaceId) -> Option<Instant> {
        let meter = self.meters.iter().find(|m| m.iface == iface)?;
        let patience = self.rtt(iface).unwrap_or_default().max(DELIVERS_MIN);
        meter.carried.filter(|(_, heard_at)| now.since(*heard_at) <= patience).map(|(sent_at, _)| sent_at)
    }

    /// The other gateway has told something. More than can be of use is let go.
    pub fn hear(&mut self, now: Instant, report: LinkReport) {
        if let Some(sent_at) = report.sent_at.filter(|_| !report.sent_again)
            && let Some(m) = self.get_mut(report.iface)
        {
            m.carried = Some((m.carried.map_or(sent_at, |(newest, _)| newest.max(sent_at)), now));
        }
        if self.reports.len() < REPORTS_MAX && self.meters.iter().any(|m| m.iface == report.iface) {
            self.reports.push(report);
        }
    }

    /// What has been told since this was last asked, in order.
    pub fn take(&mut self) -> Vec<LinkReport> {
        core::mem::take(&mut self.reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Interface, Link};

    fn meter(iface: IfaceId, rtt: SmallestRtt) -> Meter {
        let (told_at, carried, train_at) = (None, None, None);
        Meter {
            iface,
            received_bytes: 0,
            told_at,
            told_bytes: 0,
            early: 0,
            rtt,
            carried,
            train_at,
            answers: None,
        }
    }

    #[test]
    fn the_round_trip_of_a_link_is_the_smallest_of_late() {
        let (sat, ms, at) = (IfaceId(3), Duration::from_millis, Instant::from_millis);
        let rtt = SmallestRtt::default();
        let meter = meter(sat, rtt);
        let mut meters = Meters { id: 1, meters: vec![meter], reports: Vec::new() };
        assert_eq!(meters.rtt(sat), None);
        meters.note_rtt(at(1_000), sat, ms(520));
        meters.note_rtt(at(2_000), sat, ms(501));
        meters.note_rtt(at(3_000), sat, ms(900));
        meters.note_rtt(at(3_000), IfaceId(4), ms(1));
        assert_eq!((meters.rtt(sat), meters.rtt(IfaceId(4))), (Some(ms(501)), None));
        meters.note_rtt(at(400_000), sat, ms(800));
        assert_eq!(meters.rtt(sat), Some(ms(501)));
        meters.note_rtt(at(800_000), sat, ms(810));
        assert_eq!(meters.rtt(sat), Some(ms(800)));
    }

    #[test]
    fn a_link_delivers_while_it_is_heard_to() {
        let (sat, at) = (IfaceId(3), Instant::from_millis);
        let rtt = SmallestRtt { now: Some(Duration::from_millis(9)), ..SmallestRtt::default() };
        let meter = meter(sat, rtt);
        let mut meters = Meters { id: 1, meters: vec![meter], reports: Vec::new() };
        assert_eq!(meters.delivers(at(1_000), sat), None);
        let arrived = Arrived { by: 2, at_us: 0, received_bytes: 0 };
        let report = |sent_ms, sent_again| LinkReport {
            iface: sat,
            arrived,
            sent_at: Some(at(sent_ms)),
            sent_again,
            min_rtt: None,
        };
        meters.hear(at(1_000), report(100, false));
        assert_eq!(meters.delivers(at(1_250), sat), Some(at(100)));
        assert_eq!(meters.delivers(at(1_251), sat), None, "silent");
        meters.hear(at(1_300), report(90, false));
        assert_eq!(meters.delivers(at(1_300), sat), Some(at(100)), "what was older came later");
        meters.hear(at(1_600), report(1_500, true));
        assert_eq!(meters.delivers(at(1_600), sat), None, "which transmission arrived is not known");
    }

    #[test]
    fn the_first_report_is_followed_by_some_that_come_early() {
        let (sat, at, ms) = (IfaceId(3), Instant::from_millis, Duration::from_millis);
        let config = |rate_bps| {
            let link = Link { rate_bps, ..Link::default() };
            let (name, addresses) = (String::new(), Vec::new());
            let interface = Interface { id: sat, name, domain: 0, addresses, link: Some(link) };
            Config { interfaces: vec![interface], ..Config::default() }
        };
        let unknown = config(None);
        let meter = meter(sat, SmallestRtt::default());
        let mut meters = Meters { id: 1, meters: vec![meter], reports: Vec::new() };
        let receive = |m: &mut Meters, bytes| m.meters.iter_mut().for_each(|m| m.received_bytes += bytes);
        receive(&mut meters, 10_000);
        assert!(!meters.is_due_early(&unknown, at(1_000), sat, ms(20)), "the first is due as ever");
        meters.told(at(1_000), sat);
        for n in 1..=3 {
            receive(&mut meters, 11_999);
            assert!(!meters.is_due_early(&unknown, at(1_000 + 20 * n), sat, ms(20)), "too little");
            receive(&mut meters, 1);
            assert!(meters.is_due_early(&unknown, at(1_000 + 20 * n), sat, ms(20)));
            assert!(!meters.is_due_early(&unknown, at(999 + 20 * n), sat, ms(20)), "too soon");
            assert!(!meters.is_due_early(&config(Some(8_000_000)), at(1_000 + 20 * n), sat, ms(20)));
            meters.told(at(1_000 + 20 * n), sat);
        }
        receive(&mut meters, 50_000);
        assert!(!meters.is_due_early(&unknown, at(1_200), sat, ms(20)), "enough of them");
        meters.told(at(2_000), sat);
        receive(&mut meters, 12_000);
        assert!(meters.is_due_early(&unknown, at(2_020), sat, ms(20)), "after a silence");
    }
}
