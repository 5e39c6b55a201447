//! Two pairs of gateways at one queue: one rests, the other takes all of it, and the first comes
//! back with what it has kept.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use farlink_wire::xcp::XcpFields;
use farlink_wire::{Duration, Instant, WireSize};
use farlink_xcp::{Config, Context, Member, Receiver, Router};

const RATE_BPS: u64 = 100_000_000;
const RTT: Duration = Duration::from_millis(200);
const SIZE: WireSize = WireSize { bytes: 1_500, packets: 1 };

struct Pair {
    context: Context,
    member: Member,
    receiver: Receiver,
    /// When it has something to send, ms.
    sends: Vec<(u64, u64)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    Leave,
    Hear(usize, Instant, u32),
}

fn ms(ms: u64) -> Instant {
    Instant::from_millis(1_000 + ms)
}

/// The longest queue between two times, in parts of what the path holds; and what each pair has had
/// of the line in the last second, in parts of it.
fn play(sends: [&[(u64, u64)]; 2], (from, to): (u64, u64)) -> (f64, [f64; 2]) {
    let mut router = Router::new(ms(0), Config::of_rate(RATE_BPS));
    let mut pairs = sends.map(|sends| Pair {
        context: Context::new(ms(0), SIZE.bytes, u64::MAX),
        member: Member::of_new_flow(),
        receiver: Receiver::default(),
        sends: sends.to_vec(),
    });
    let mut events = BinaryHeap::new();
    for (id, pair) in pairs.iter_mut().enumerate() {
        pair.context.expect_rtt(RTT);
        for (from, _) in &pair.sends {
            events.push(Reverse((ms(*from), 0, Event::Send(id))));
        }
    }
    let mut queue: VecDeque<(usize, Instant, XcpFields)> = VecDeque::new();
    let (mut order, mut longest, mut had) = (0_u64, 0, [0_u64; 2]);
    let takes = Duration::from_nanos(u64::from(SIZE.bytes) * 8_000_000_000 / RATE_BPS);
    while let Some(Reverse((now, _, event))) = events.pop() {
        if now >= ms(to) {
            break;
        }
        order += 1;
        let mut push = |at: Instant, event: Event| events.push(Reverse((at, order, event)));
        let waits = |queue: &VecDeque<_>| queue.len() as u64 * u64::from(SIZE.bytes);
        match event {
            Event::Send(id) => {
                let pair = &mut pairs[id];
                if !pair.sends.iter().any(|(from, to)| ms(*from) <= now && now < ms(*to)) {
                    continue;
                }
                let said = pair.context.on_send(now, &mut pair.member, SIZE, true);
                router.on_arrival(now, SIZE, Some(&said), waits(&queue));
                queue.push_back((id, now, said));
                if queue.len() == 1 {
                    push(now + takes, Event::Leave);
                }
                // Ten packets in a round trip until routers have spoken.
                let first_s = RTT.as_secs_f64() / 10.0;
                let bits = f64::from(SIZE.bytes) * 8.0;
                let next_s = pair.context.rate_bps().map_or(first_s, |bps| bits / bps as f64);
                push(now + Duration::from_secs_f64(next_s), Event::Send(id));
            }
            Event::Leave => {
                let Some((id, sent_at, said)) = queue.pop_front() else { continue };
                let left = router.on_departure(now, SIZE, &said, waits(&queue));
                pairs[id].receiver.on_packets(1, &left);
                push(now + RTT, Event::Hear(id, sent_at, pairs[id].receiver.sum()));
                if now >= ms(to - 1_000) {
                    had[id] += u64::from(SIZE.bytes) * 8;
                }
                if !queue.is_empty() {
                    push(now + takes, Event::Leave);
                }
            }
            Event::Hear(id, sent_at, sum) => {
                let pair = &mut pairs[id];
                let change =
                    pair.member.sums_mut().hear(sum, pair.context.rate_bps().unwrap_or(u64::MAX) / 8);
                pair.context.hear(now, change);
                pair.context.on_rtt(now, now.since(sent_at));
            }
        }
        if now >= ms(from) {
            longest = longest.max(queue.len());
        }
    }
    let product = RATE_BPS as f64 / 8.0 * RTT.as_secs_f64();
    let longest = longest as f64 * f64::from(SIZE.bytes) / product;
    (longest, had.map(|bits| bits as f64 / RATE_BPS as f64))
}

/// Both want all of it then. Without a limit to the first flight the queue would hold 1.42 and 1.21
/// of the product; nothing is kept after 20 s.
#[test]
fn who_comes_back_to_a_line_that_is_taken_makes_a_queue_for_a_moment() {
    for (rest, most) in [(1_000, 1.15), (2_500, 0.9), (20_000, 0.1)] {
        let back = 5_000 + rest;
        let (longest, had) = play([&[(0, 5_000), (back, 60_000)], &[(4_000, 60_000)]], (back, back + 10_000));
        assert!(longest < most, "{rest} ms: {longest}");
        assert!(longest > most / 10.0 || rest > 10_000, "{rest} ms: nothing was kept");
        assert!(had.iter().all(|part| (0.42..0.55).contains(part)), "{rest} ms: {had:?}");
    }
}
