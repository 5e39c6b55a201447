//! Senders, one queue and receivers, against the figures of a model of the draft.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use farlink_wire::xcp::XcpFields;
use farlink_wire::{Duration, Instant, WireSize};
use farlink_xcp::{Config, Receiver, Router, Sender, Sums};

const PACKET_BYTES: u32 = 1_500;

/// One sender and its receiver.
struct Flow {
    ends_at: Instant,
    rtt: Duration,
    sender: Sender,
    receiver: Receiver,
    sums: Sums,
    srtt_s: Option<f64>,
    /// The last packet left then, and the next one is to leave then.
    sent_at: Instant,
    next_at: Option<Instant>,
    /// Bytes that have left the queue, by time.
    carried: Vec<(Instant, u64)>,
}

impl Flow {
    /// The receiver has told its sum.
    fn hear(&mut self, sum: u32) {
        let allowed = self.sender.allowed_bps().map_or(u64::MAX, |bps| bps / 8);
        let change = self.sums.hear(sum, allowed);
        self.sender.change(change, (0, u64::MAX));
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Send(usize),
    Leave,
    /// The acknowledgement of a packet that was sent then: the receiver's sum.
    Hear(usize, Instant, u32),
    Capacity(u64),
}

/// What is to be tried.
struct Case {
    rate_bps: u64,
    max_interval: Duration,
    queue_limit: Option<usize>,
    /// Round trip, start and end of each flow, ms.
    flows: Vec<(u64, u64, u64)>,
    /// The handshake has told the round trip.
    rtt_known: bool,
    /// The capacity that the router is told at these times, ms, and what the line has then.
    changes: Vec<(u64, u64)>,
    /// What the router believes of the line's rate, of a thousand.
    declared_per_mille: u64,
    seconds: u64,
}

impl Case {
    fn of(rate_bps: u64, rtts_ms: &[u64]) -> Self {
        Self {
            rate_bps,
            max_interval: Duration::from_secs(1),
            queue_limit: None,
            flows: rtts_ms.iter().map(|rtt| (*rtt, 0, FOR_EVER)).collect(),
            rtt_known: true,
            changes: Vec::new(),
            declared_per_mille: 1_000,
            seconds: 60,
        }
    }
}

/// What came of it.
struct Outcome {
    flows: Vec<Flow>,
    /// Packets that wait, each time that one comes or goes.
    queue: Vec<(Instant, usize)>,
    drops: usize,
    end: Instant,
    rate_bps: u64,
}

fn ms(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn run(case: &Case) -> Outcome {
    let config = Config {
        max_interval: case.max_interval,
        ..Config::of_rate(case.rate_bps * case.declared_per_mille / 1_000)
    };
    let mut router = Router::new(Instant::ZERO, config);
    let mut rate_bps = case.rate_bps;
    let mut events = BinaryHeap::new();
    let mut flows: Vec<Flow> = Vec::new();
    for (id, (rtt, from, to)) in case.flows.iter().enumerate() {
        let rtt = Duration::from_millis(*rtt);
        let mut sender = Sender::new(ms(*from), PACKET_BYTES, 10_000_000_000);
        if case.rtt_known {
            sender.set_rtt(rtt);
        }
        let (receiver, sums, carried) = (Receiver::default(), Sums::of_new_flow(), Vec::new());
        let srtt_s = case.rtt_known.then_some(rtt.as_secs_f64());
        let (sent_at, next_at, ends_at) = (ms(*from), Some(ms(*from)), ms(*to));
        flows.push(Flow { ends_at, rtt, sender, receiver, sums, srtt_s, sent_at, next_at, carried });
        events.push(Reverse((ms(*from), 0, Event::Send(id))));
    }
    for (at, bps) in &case.changes {
        events.push(Reverse((ms(*at), 0, Event::Capacity(*bps))));
    }
    let mut queue: VecDeque<(usize, Instant, XcpFields)> = VecDeque::new();
    let (mut seen, mut drops, mut order) = (Vec::new(), 0, 1u64);
    let end = ms(case.seconds * 1_000);
    let size = WireSize { bytes: PACKET_BYTES, packets: 1 };
    while let Some(Reverse((now, _, event))) = events.pop() {
        if now > end {
            break;
        }
        order += 1;
        let mut push = |at: Instant, event: Event| events.push(Reverse((at, order, event)));
        let takes = Duration::from_nanos(u64::from(PACKET_BYTES) * 8_000_000_000 / rate_bps);
        match event {
            Event::Send(id) => {
                let flow = &mut flows[id];
                if now >= flow.ends_at || flow.next_at != Some(now) {
                    continue;
                }
                flow.sent_at = now;
                let said = flow.sender.on_send(now, size, true);
                router.on_arrival(now, size, Some(&said), queue.len() as u64 * u64::from(PACKET_BYTES));
                if case.queue_limit.is_some_and(|limit| queue.len() >= limit) {
                    drops += 1;
                } else {
                    queue.push_back((id, now, said));
                    if queue.len() == 1 {
                        push(now + takes, Event::Leave);
                    }
                }
                seen.push((now, queue.len()));
                flow.next_at = flow.next();
                if let Some(at) = flow.next_at {
                    push(at, Event::Send(id));
                }
            }
            Event::Leave => {
                let Some((id, sent_at, said)) = queue.pop_front() else { continue };
                let waiting = queue.len() as u64 * u64::from(PACKET_BYTES);
                let said = router.on_departure(now, size, &said, waiting);
                let flow = &mut flows[id];
                flow.receiver.on_packets(1, &said);
                flow.carried.push((now, u64::from(PACKET_BYTES)));
                push(now + flow.rtt, Event::Hear(id, sent_at, flow.receiver.sum()));
                if !queue.is_empty() {
                    push(now + takes, Event::Leave);
                }
                seen.push((now, queue.len()));
            }
            Event::Hear(id, sent_at, sum) => {
                let flow = &mut flows[id];
                let sample = now.since(sent_at).as_secs_f64();
                let srtt = flow.srtt_s.map_or(sample, |srtt| srtt + (sample - srtt) / 8.0);
                flow.srtt_s = Some(srtt);
                flow.sender.set_rtt(Duration::from_secs_f64(srtt));
                flow.hear(sum);
                let next = flow.next().map(|at| at.max(now));
                if let Some(next) = next.filter(|next| flow.next_at.is_none_or(|at| *next < at)) {
                    flow.next_at = Some(next);
                    push(next, Event::Send(id));
                }
            }
            Event::Capacity(bps) => {
                rate_bps = bps;
                router.set_capacity(bps);
            }
        }
    }
    Outcome { flows, queue: seen, drops, end, rate_bps: case.rate_bps }
}

impl Outcome {
    /// Of the line's rate, what all flows together have from one time to the other, ms.
    fn use_between(&self, from: u64, to: u64) -> f64 {
        self.flows.iter().map(|f| f.bps(ms(from), ms(to))).sum::<f64>() / self.rate_bps as f64
    }

    fn use_of_second_half(&self) -> f64 {
        let end = self.end.as_nanos() / 1_000_000;
        self.use_between(end / 2, end)
    }

    fn queue_max(&self, from: u64, to: u64) -> usize {
        self.queue
            .iter()
            .filter(|(at, _)| *at >= ms(from) && *at < ms(to))
            .map(|(_, n)| *n)
            .max()
            .unwrap_or(0)
    }

    /// Mean over time from so many milliseconds on, packets.
    fn queue_mean(&self, from: u64) -> f64 {
        let later: Vec<_> = self.queue.iter().filter(|(at, _)| *at >= ms(from)).collect();
        let area: f64 = later.windows(2).map(|w| w[0].1 as f64 * w[1].0.since(w[0].0).as_secs_f64()).sum();
        area / self.end.since(ms(from)).as_secs_f64()
    }

    fn jain(&self, from: u64, to: u64) -> f64 {
        let rates: Vec<f64> = self.flows.iter().map(|f| f.bps(ms(from), ms(to))).collect();
        let sum: f64 = rates.iter().sum();
        sum * sum / (rates.len() as f64 * rates.iter().map(|r| r * r).sum::<f64>())
    }

    /// The end of the first window of one round trip, sliding by 50 ms, in which 95 % are carried,
    /// seconds from the first packet on.
    fn seconds_to_95(&self) -> f64 {
        let rtt = self.flows[0].rtt.as_millis() as u64;
        let end_ms = self.end.as_nanos() / 1_000_000;
        let first = (rtt..end_ms).step_by(50).find(|end| self.use_between(end - rtt, *end) >= 0.95);
        first.map_or(f64::NAN, |first| first as f64 / 1e3)
    }
}

impl Flow {
    /// When the next packet may leave; `None`: before a round trip is known one is under way.
    fn next(&self) -> Option<Instant> {
        let bps = self.sender.allowed_bps()?.max(1);
        Some(self.sent_at + Duration::from_nanos(u64::from(PACKET_BYTES) * 8_000_000_000 / bps))
    }

    fn bps(&self, from: Instant, to: Instant) -> f64 {
        let bytes: u64 =
            self.carried.iter().filter(|(at, _)| *at >= from && *at < to).map(|(_, bytes)| *bytes).sum();
        bytes as f64 * 8.0 / to.since(from).as_secs_f64()
    }
}

/// Packets in a bandwidth-delay product.
fn product(rate_bps: u64, rtt_ms: u64) -> f64 {
    rate_bps as f64 / 8e3 * rtt_ms as f64 / f64::from(PACKET_BYTES)
}

const FOR_EVER: u64 = 1_000_000_000;

#[test]
fn one_flow_fills_the_line_within_seven_round_trips_and_the_queue_drains() {
    // The model: 100 %, a mean of 1 packet, 243 at the start (20 Mbit/s, 600 ms).
    for (rate_bps, rtt_ms) in [(20_000_000, 600), (100_000_000, 200)] {
        let o = run(&Case::of(rate_bps, &[rtt_ms]));
        let bdp = product(rate_bps, rtt_ms);
        assert!(o.use_of_second_half() > 0.998, "{}", o.use_of_second_half());
        assert!(o.use_between(20 * rtt_ms, 60_000) > 0.99);
        assert!(o.queue_mean(30_000) < 1.5, "{}", o.queue_mean(30_000));
        let (first, later) = (o.queue_max(0, 10 * rtt_ms), o.queue_max(20 * rtt_ms, 60_000));
        assert!((first as f64) < 0.25 * bdp && (later as f64) < 0.05 * bdp, "{first} {later} of {bdp}");
        assert!(o.seconds_to_95() <= 5.25 * rtt_ms as f64 / 1e3, "{}", o.seconds_to_95());
    }
    let o = run(&Case { rtt_known: false, ..Case::of(100_000_000, &[200]) });
    assert!(o.seconds_to_95() <= 1.25, "{}", o.seconds_to_95());
}

#[test]
fn a_short_queue_drops_at_the_start_only() {
    // The model: 143 drops, 99.9 %.
    let o = run(&Case { queue_limit: Some(100), ..Case::of(20_000_000, &[600]) });
    assert!(o.drops < 143 && o.use_of_second_half() > 0.998, "{} {}", o.drops, o.use_of_second_half());
}

#[test]
fn a_round_trip_longer_than_the_longest_that_is_ordinary_overshoots() {
    // The model: 1,172 packets, and 615 with intervals of up to 2 s.
    let o = run(&Case::of(20_000_000, &[1_500]));
    let longer = run(&Case { max_interval: Duration::from_secs(2), ..Case::of(20_000_000, &[1_500]) });
    let (queue, with_longer) = (o.queue_max(0, 60_000), longer.queue_max(0, 60_000));
    assert!(queue < 1_172 && with_longer < 615, "{queue} {with_longer}");
    assert!(longer.use_of_second_half() > 0.998);
}

#[test]
fn flows_of_any_round_trip_share_alike() {
    // The model: 100.0 and 99.9 %, means of 2.1 and 2.5 packets, Jain 1.0000.
    for rtts in [&[40, 200, 600, 600][..], &[20, 20, 600, 600]] {
        let o = run(&Case::of(50_000_000, rtts));
        assert!(o.use_of_second_half() > 0.998 && o.jain(30_000, 60_000) > 0.9999);
        assert!(o.queue_mean(30_000) < 3.0, "{}", o.queue_mean(30_000));
    }
    // Four that begin one after the other: 99.9 %, 1.9 packets.
    let flows = (0..4).map(|i| (600, 5_000 * i, FOR_EVER)).collect();
    let o = run(&Case { flows, ..Case::of(50_000_000, &[]) });
    assert!(o.use_of_second_half() > 0.998 && o.jain(45_000, 60_000) > 0.9999, "{}", o.jain(45_000, 60_000));
}

#[test]
fn a_second_flow_has_its_share_after_14_round_trips() {
    // The model, which moves a tenth of the traffic in an interval: 21.8.
    let flows = vec![(200, 0, FOR_EVER), (200, 10_000, FOR_EVER)];
    let o = run(&Case { flows, seconds: 30, ..Case::of(100_000_000, &[]) });
    let is_near = |end: u64| (o.flows[1].bps(ms(end - 200), ms(end)) / 50e6 - 1.0).abs() < 0.1;
    let last_off: u64 = (10_200..30_000).step_by(50).filter(|end| !is_near(*end)).last().unwrap();
    assert!(last_off < 10_000 + 14 * 200, "{last_off}");
}

#[test]
fn another_capacity_is_followed() {
    let bdp = product(100_000_000, 200);
    // At any moment of an interval.
    for at in (20_000..20_200).step_by(25) {
        let halved = run(&Case { changes: vec![(at, 50_000_000)], ..Case::of(100_000_000, &[200]) });
        let (first, later) = (halved.queue_max(at, 60_000), halved.queue_max(at + 5_000, 60_000));
        let (first, later) = (first as f64 / bdp, later as f64 / bdp);
        assert!(first < 0.59 && later < 0.02, "{at}: {first} {later}");
    }
    let doubled = run(&Case { changes: vec![(20_000, 200_000_000)], ..Case::of(100_000_000, &[200]) });
    let full = (20_200..60_000).step_by(50).find(|end| doubled.use_between(end - 200, *end) > 1.9).unwrap();
    assert!(full < 20_000 + 6 * 200, "{full}");
}

#[test]
fn a_capacity_that_is_not_true_costs_what_it_must() {
    // The model: full use, and a standing queue of 0.55 of a product.
    let of = |per_mille| run(&Case { declared_per_mille: per_mille, ..Case::of(100_000_000, &[200]) });
    let (less, more) = (of(800), of(1_200));
    assert!((less.use_of_second_half() - 0.8).abs() < 0.005 && less.queue_mean(30_000) < 1.0);
    let standing = more.queue_mean(30_000) / product(100_000_000, 200);
    assert!(more.use_of_second_half() > 0.998 && (0.5..0.6).contains(&standing), "{standing}");
}
