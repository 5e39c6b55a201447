//! A link whose rate is declared, and no gateway at its other end: hosts behind it acknowledge.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use farlink_egress::{RateEstimate, Report};
use farlink_wire::time::Instant;

const RATE_BPS: u64 = 8_000_000;
const ONE_WAY: Duration = Duration::from_millis(250);
const PACKET_BYTES: u64 = 1_500;

/// A host that takes all that comes.
struct Host {
    /// What lies between it and the link carries so much, bits per second.
    narrow_bps: u64,
    /// So much is under way to it at most, bytes.
    window_bytes: u64,
    /// Its acknowledgements come so much later at most, by chance.
    jitter: Duration,
    /// It acknowledges only as often as this.
    apart: Duration,
    in_flight_bytes: u64,
    narrow_free: Instant,
    acked_at: Instant,
}

/// A link with a queue before it, and hosts that always want more.
struct Model {
    estimate: RateEstimate,
    rate_bps: u64,
    hosts: Vec<Host>,
    /// Of what leaves so much is not of TCP, bits per second.
    beside_bps: u64,
    loss_permille: u64,
    /// Acknowledgements have little room on their way back.
    back_is_slow: bool,
    random: u64,
    now: Instant,
    sent: u64,
    beside_bytes: u64,
    acked_bytes: u32,
    link_free: Instant,
    turn: usize,
    /// When an acknowledgement comes, of whom, and when what it is for left; `None`: that is lost.
    acks: BinaryHeap<Reverse<(Instant, usize, Option<Instant>)>>,
    waited_max: Duration,
    /// The least that was sent at, bits per second.
    least_bps: u64,
}

fn time_of(bytes: u64, bps: u64) -> Duration {
    Duration::from_nanos(bytes * 8 * 1_000_000_000 / bps.max(1))
}

impl Model {
    /// So many per cent of its rate are declared.
    fn declared(percent: u64) -> Self {
        let start = Instant::from_millis(1_000);
        Self {
            estimate: RateEstimate::declared(RATE_BPS / 100 * percent),
            rate_bps: RATE_BPS,
            hosts: Vec::new(),
            beside_bps: 0,
            loss_permille: 0,
            back_is_slow: false,
            random: 7,
            now: start,
            sent: 0,
            beside_bytes: 0,
            acked_bytes: 0,
            link_free: start,
            turn: 0,
            acks: BinaryHeap::new(),
            waited_max: Duration::ZERO,
            least_bps: u64::MAX,
        }
    }

    fn with_host(mut self, narrow_bps: u64) -> Self {
        self.add_host(narrow_bps);
        self
    }

    fn add_host(&mut self, narrow_bps: u64) -> &mut Host {
        // Twice what the way to it holds.
        let window_bytes = narrow_bps.min(2 * RATE_BPS) / 8;
        self.hosts.push(Host {
            narrow_bps,
            window_bytes,
            jitter: Duration::ZERO,
            apart: Duration::ZERO,
            in_flight_bytes: 0,
            narrow_free: self.now,
            acked_at: self.now,
        });
        self.hosts.last_mut().unwrap()
    }

    fn chance(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    fn send(&mut self, to: Option<usize>) {
        self.estimate.note_sent(self.now, self.sent, self.beside_bytes);
        self.sent += PACKET_BYTES;
        self.waited_max = self.waited_max.max(self.link_free.max(self.now).since(self.now));
        self.link_free = self.link_free.max(self.now) + time_of(PACKET_BYTES, self.rate_bps);
        let (is_lost, chance) = (self.chance() % 1_000 < self.loss_permille, self.chance());
        let Some(to) = to else {
            self.beside_bytes += PACKET_BYTES;
            return;
        };
        let host = &mut self.hosts[to];
        host.in_flight_bytes += PACKET_BYTES;
        let arrives = self.link_free + ONE_WAY;
        host.narrow_free = host.narrow_free.max(arrives) + time_of(PACKET_BYTES, host.narrow_bps);
        let late = host.jitter * u32::try_from(chance % 100).unwrap() / 100;
        let at = (host.narrow_free + ONE_WAY + late).max(host.acked_at);
        let over = at.since(Instant::ZERO).as_nanos() % host.apart.as_nanos().max(1);
        // Packets that come between two acknowledgements are acknowledged together.
        let wait = host.apart.as_nanos().saturating_sub(over) % host.apart.as_nanos().max(1);
        let at = at + Duration::from_nanos(u64::try_from(wait).unwrap());
        host.acked_at = at;
        self.acks.push(Reverse((at, to, (!is_lost).then_some(self.now))));
    }

    fn take_ack(&mut self, to: usize, sent_at: Option<Instant>) {
        self.hosts[to].in_flight_bytes -= PACKET_BYTES;
        let Some(sent_at) = sent_at else { return };
        if self
            .acks
            .peek()
            .is_some_and(|Reverse((at, by, newer))| (*at, *by) == (self.now, to) && newer.is_some())
        {
            // Of those that are acknowledged together the newest shows the round trip.
            return;
        }
        self.acked_bytes = self.acked_bytes.wrapping_add(PACKET_BYTES as u32);
        let report = Report {
            peer: 1 + to as u32,
            arrived_us: self.now.since(Instant::ZERO).as_micros() as u32,
            received_bytes: self.acked_bytes,
            sent_at: Some(sent_at),
            sent_again: false,
            place: (0, 0, 0),
            min_rtt: Some(2 * ONE_WAY),
            of_host: true,
            waited_back: Duration::ZERO,
            back_is_slow: self.back_is_slow,
        };
        let is_busy = self.hosts.iter().any(|h| h.in_flight_bytes + PACKET_BYTES <= h.window_bytes);
        self.estimate.on_report(self.now, &report, is_busy.then_some(Instant::ZERO));
    }

    /// Whose turn it is that may send.
    fn next_host(&mut self) -> Option<usize> {
        let count = self.hosts.len();
        let next = (1..=count).map(|n| (self.turn + n) % count).find(|n| {
            let host = &self.hosts[*n];
            host.in_flight_bytes + PACKET_BYTES <= host.window_bytes
        })?;
        self.turn = next;
        Some(next)
    }

    fn run(&mut self, time: Duration) {
        let (begun, end) = (self.now, self.now + time);
        let mut next_send = self.now;
        let mut beside_sent = 0;
        while self.now < end {
            let ack = self.acks.peek().map(|Reverse((at, ..))| *at);
            let timer = self.estimate.poll_timeout();
            let next = [Some(next_send), ack, timer].into_iter().flatten().min().unwrap();
            self.now = self.now.max(next);
            if ack.is_some_and(|at| at <= self.now) {
                let Reverse((_, to, sent_at)) = self.acks.pop().unwrap();
                self.take_ack(to, sent_at);
            } else if timer.is_some_and(|at| at <= self.now) {
                self.estimate.handle_timeout(self.now);
            } else {
                let bps = self.estimate.sending_bps().unwrap();
                self.least_bps = self.least_bps.min(bps);
                let due = u64::try_from(self.now.since(begun).as_millis()).unwrap() * self.beside_bps / 8_000;
                let is_beside = due >= beside_sent + PACKET_BYTES;
                let to = if is_beside { None } else { self.next_host() };
                beside_sent += if is_beside { PACKET_BYTES } else { 0 };
                if is_beside || to.is_some() {
                    self.send(to);
                }
                next_send = self.now + time_of(PACKET_BYTES, bps);
            }
        }
    }

    /// The rate that is believed, over the link's, percent.
    fn percent(&self) -> u64 {
        self.estimate.rate_bps().unwrap() * 100 / self.rate_bps
    }
}

#[test]
fn what_is_declared_too_high_is_noticed_by_acknowledgements() {
    for hosts in [1, 3] {
        for percent in [101, 102, 105, 110, 120, 150] {
            let mut m = Model::declared(percent);
            (0..hosts).for_each(|_| {
                m.add_host(100 * RATE_BPS);
            });
            m.run(Duration::from_secs(8));
            m.waited_max = Duration::ZERO;
            let before = m.sent;
            m.run(Duration::from_secs(120));
            let what = format!("{percent} %, {hosts} hosts: {} %", m.percent());
            assert!(m.waited_max < Duration::from_millis(90), "{what}: {:?}", m.waited_max);
            let used = (m.sent - before) * 100 / (RATE_BPS / 8 * 120);
            assert!(used >= 97, "{what}: {used} % used");
        }
    }
}

/// What makes them late is not the queue before the link, for all that is known.
#[test]
fn acknowledgements_by_a_slow_way_back_lower_no_rate() {
    let mut m = Model::declared(150).with_host(100 * RATE_BPS);
    m.back_is_slow = true;
    m.run(Duration::from_secs(30));
    assert_eq!(m.least_bps, RATE_BPS / 100 * 150);
}

/// What waits shows at once, though a lower rate has to show for longer until it is believed: what
/// is sent twice would stand behind it.
#[test]
fn what_waits_before_a_slower_link_is_known_before_its_rate_is() {
    let mut m = Model::declared(500).with_host(100 * RATE_BPS);
    m.hosts[0].window_bytes = 3 * RATE_BPS / 8;
    m.run(Duration::from_millis(700));
    for _ in 0..8 {
        m.run(Duration::from_millis(20));
        assert!(m.percent() >= 500, "it is not believed so far");
        assert!(m.estimate.has_backlog(m.now, m.sent), "{:?}", m.now);
    }
}

/// No more of them are known at once than there is room for.
#[test]
fn a_crowd_of_hosts_tells_as_a_few_do() {
    let mut m = Model::declared(120);
    for _ in 0..100 {
        m.add_host(100 * RATE_BPS).window_bytes = RATE_BPS / 400;
    }
    m.run(Duration::from_secs(20));
    assert!((95..=102).contains(&m.percent()), "{} %", m.percent());
}

#[test]
fn a_link_that_becomes_slower_and_faster_again_is_followed() {
    let mut m = Model::declared(100).with_host(100 * RATE_BPS);
    m.run(Duration::from_secs(10));
    for divisor in [2, 8] {
        m.rate_bps = RATE_BPS / divisor;
        m.run(Duration::from_secs(3 + 2 * divisor));
        assert!((94..=105).contains(&m.percent()), "divided by {divisor}: {} %", m.percent());
        m.rate_bps = RATE_BPS;
        m.run(Duration::from_secs(25));
        assert!(m.percent() >= 97, "times {divisor}: {} %", m.percent());
    }
}

#[test]
fn neither_losses_nor_late_acknowledgements_lower_the_rate() {
    let ms = Duration::from_millis;
    for (loss_permille, jitter, apart) in
        [(0, ms(0), ms(0)), (10, ms(0), ms(0)), (50, ms(3), ms(0)), (0, ms(15), ms(0)), (10, ms(10), ms(30))]
    {
        let mut m = Model::declared(100);
        m.loss_permille = loss_permille;
        for _ in 0..2 {
            let host = m.add_host(100 * RATE_BPS);
            (host.jitter, host.apart) = (jitter, apart);
        }
        m.run(Duration::from_secs(60));
        let what = format!("{loss_permille} per mille lost, {jitter:?} late, {apart:?} apart");
        assert!(m.estimate.is_as_declared(), "{what}: {} %", m.percent());
        assert!(m.least_bps >= RATE_BPS / 100 * 98, "{what}: {} bit/s", m.least_bps);
    }
}

/// What one host waits for, and another one does not, is not the link.
#[test]
fn a_bottleneck_before_one_of_several_hosts_is_its_own() {
    let mut m = Model::declared(100).with_host(RATE_BPS / 10).with_host(100 * RATE_BPS);
    m.run(Duration::from_secs(60));
    assert!(m.estimate.is_as_declared(), "{} %", m.percent());
    assert!(m.least_bps >= RATE_BPS / 100 * 95, "{} bit/s", m.least_bps);
}

#[test]
fn what_one_host_alone_has_shown_ends_with_the_word_of_another() {
    let mut m = Model::declared(100).with_host(RATE_BPS / 2);
    m.run(Duration::from_secs(20));
    assert!(m.percent() < 60, "it cannot be told apart: {} %", m.percent());
    m.add_host(100 * RATE_BPS);
    m.run(Duration::from_secs(10));
    assert!(m.percent() >= 95, "{} %", m.percent());
}

#[test]
fn other_traffic_need_not_bear_what_one_host_waits_for() {
    let mut m = Model::declared(100).with_host(RATE_BPS / 10);
    m.beside_bps = RATE_BPS * 3 / 8;
    m.run(Duration::from_secs(30));
    assert!(m.least_bps >= RATE_BPS / 100 * 40, "{} bit/s", m.least_bps);
}

#[test]
fn where_a_gateway_reports_hosts_are_not_listened_to() {
    let mut m = Model::declared(120).with_host(100 * RATE_BPS);
    m.run(Duration::from_secs(8));
    assert!(!m.estimate.is_as_declared());
    let mut m = Model::declared(120).with_host(100 * RATE_BPS);
    let report = Report {
        peer: 9,
        arrived_us: 0,
        received_bytes: 0,
        sent_at: Some(m.now),
        sent_again: false,
        place: (0, 0, 0),
        min_rtt: Some(2 * ONE_WAY),
        of_host: false,
        waited_back: Duration::ZERO,
        back_is_slow: false,
    };
    m.estimate.on_report(m.now, &report, None);
    m.run(Duration::from_secs(8));
    assert!(m.estimate.is_as_declared(), "it would tell");
}
