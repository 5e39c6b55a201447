//! What one packet may cost: hostile packets, one after the other, into a gateway with many
//! connections.
//!
//! The time is that of handing the packet in and of what the gateway sends at once because of it.
//! The same packets are played several times into gateways that begin alike. For each packet its
//! shortest time counts, because whatever else the machine does only adds to it. Of these the
//! longest and the median are told.

use farlink_wire::{Duration, finish_checksums, fragment};

use crate::rig::{Rig, Saying, config};

/// A kind of hostile packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// What honest hosts say: data, and acknowledgements of all of it. To compare with.
    Honest,
    /// SACK blocks of a single byte each, all over what is in flight.
    SackCuts,
    /// The same, told as a gateway tells what it holds above gaps.
    Runs,
    /// Segments of one byte to a host that does not read.
    TinySegments,
    /// Single bytes out of order, each behind a gap of its own, and then what joins them all.
    EarlyChunks,
    /// Fragments of a few bytes each, of many packets that never become whole, and of some that do.
    Fragments,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Honest, Self::SackCuts, Self::Runs, Self::TinySegments, Self::EarlyChunks, Self::Fragments];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::SackCuts => "sack-cuts",
            Self::Runs => "runs",
            Self::TinySegments => "tiny-segments",
            Self::EarlyChunks => "early-chunks",
            Self::Fragments => "fragments",
        }
    }
}

/// What a case came to. A case is only worth its name when the gateway had much in flight, or much
/// early, where that matters.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Which.
    pub case: Case,
    /// Packets that were measured.
    pub packets: usize,
    /// The longest time for one packet, of the shortest of all plays, nanoseconds.
    pub worst_ns: u64,
    /// The median of these.
    pub median_ns: u64,
    /// Packets that the gateway sent meanwhile.
    pub packets_out: u64,
    /// Bytes that the gateway holds at the end, all that it counts.
    pub held_bytes: u64,
    /// Bytes in flight and in custody on the attacked connection at the end.
    pub at_stake_bytes: u64,
}

/// Measures a case with `flows` connections and `packets` packets, played `plays` times. `clock`
/// tells nanoseconds.
#[must_use]
pub fn measure(case: Case, flows: usize, packets: usize, plays: usize, clock: &dyn Fn() -> u64) -> Cost {
    let mut best: Vec<u64> = Vec::new();
    let (mut packets_out, mut held_bytes, mut at_stake_bytes) = (0, 0, 0);
    for _ in 0..plays.max(1) {
        let mut times = Vec::with_capacity(packets);
        let rig = play(case, flows, packets, &mut |rig, feed| {
            let from = clock();
            feed(rig);
            times.push(clock().saturating_sub(from));
        });
        packets_out = rig.packets_out;
        held_bytes = crate::hostile::day::held_bytes(&rig);
        let all = rig.gateway.flows(rig.now, rig.flows.len());
        at_stake_bytes = all
            .iter()
            .map(|f| f.in_flight_a_bytes + f.in_flight_b_bytes + f.custody_ab_bytes + f.custody_ba_bytes)
            .max()
            .unwrap_or(0);
        if best.is_empty() {
            best = times;
        } else {
            best.iter_mut().zip(times).for_each(|(b, t)| *b = t.min(*b));
        }
    }
    let worst_ns = best.iter().copied().max().unwrap_or(0);
    let packets = best.len();
    best.sort_unstable();
    let median_ns = best.get(packets / 2).copied().unwrap_or(0);
    Cost { case, packets, worst_ns, median_ns, packets_out, held_bytes, at_stake_bytes }
}

type Timed<'a> = &'a mut dyn FnMut(&mut Rig, &mut dyn FnMut(&mut Rig));

fn play(case: Case, flows: usize, packets: usize, timed: Timed<'_>) -> Rig {
    let link = (case == Case::Runs).then_some(10_000_000_000);
    let mut rig = Rig::new(config(link), flows.max(1));
    rig.packets_out = 0;
    match case {
        Case::Honest => honest(&mut rig, packets, timed),
        Case::SackCuts => {
            fill(&mut rig, 0);
            let acks = |i: usize| Saying { sack: scattered(i, 4), ..Saying::default() };
            say_all(&mut rig, 0, packets, &acks, timed);
        }
        Case::Runs => {
            fill(&mut rig, 1);
            let acks = |i: usize| Saying { farlink: Some(runs(i)), ..Saying::default() };
            say_all(&mut rig, 1, packets, &acks, timed);
        }
        Case::TinySegments => {
            rig.flows[0][1].window = 0;
            rig.say(0, 1, &Saying::default());
            say_all(&mut rig, 0, packets, &|_| Saying { len: 1, ..Saying::default() }, timed);
        }
        Case::EarlyChunks => early_chunks(&mut rig, packets, timed),
        Case::Fragments => fragments(&mut rig, packets, timed),
    }
    rig
}

/// Says one thing after the other on the first connection, a millisecond apart.
fn say_all(rig: &mut Rig, side: usize, count: usize, what: &dyn Fn(usize) -> Saying, timed: Timed<'_>) {
    for i in 0..count {
        rig.prepare(0, side, &what(i));
        timed(rig, &mut Rig::feed);
        rig.deliver();
        rig.pass(Duration::from_millis(1));
    }
}

/// Connections that carry data, in turn.
fn honest(rig: &mut Rig, packets: usize, timed: Timed<'_>) {
    for i in 0..packets {
        let n = i / 2 % rig.flows.len();
        let what = if i % 2 == 0 { Saying { len: 1_460, ..Saying::default() } } else { Saying::default() };
        rig.prepare(n, i % 2, &what);
        timed(rig, &mut Rig::feed);
        rig.deliver();
        rig.settle(n);
        rig.pass(Duration::from_micros(10));
    }
}

/// Until all connections sleep that say nothing. One that is awake beside thousands of others has a
/// small share of the pool.
const OTHERS_SLEEP: Duration = Duration::from_secs(20);

/// Brings as much into flight towards one side as there is to be had: first what opens the window,
/// then what stays unacknowledged.
fn fill(rig: &mut Rig, receiver: usize) {
    let sender = 1 - receiver;
    rig.pass(OTHERS_SLEEP);
    for round in 0..24 {
        for _ in 0..round + 2 {
            rig.send(0, sender, 58_400);
        }
        for _ in 0..60 {
            rig.pass(Duration::from_millis(2));
            if rig.flows[0][receiver].owes {
                rig.say(0, receiver, &Saying::default());
            }
        }
    }
    // From here on it takes nothing of what comes.
    rig.flows[0][receiver].deaf = true;
    for _ in 0..40 {
        rig.send(0, sender, 58_400);
        rig.pass(Duration::from_micros(200));
    }
}

/// Four blocks of one byte each in the first 256 kB.
fn scattered(i: usize, count: usize) -> Vec<(u32, u32)> {
    (0..count).map(|k| (1 + ((i * count + k) as u32).wrapping_mul(2_654_435_761) % 262_144 * 2, 1)).collect()
}

/// A message with an acknowledgement and as many runs as it holds: gaps and runs of one unit in
/// turn.
fn runs(i: usize) -> Vec<u8> {
    let mut body = vec![0x5f];
    body.extend((0..24).map(|k| 1 + ((i + k) % 5) as u8));
    body
}

fn early_chunks(rig: &mut Rig, packets: usize, timed: Timed<'_>) {
    let odd = packets.saturating_sub(1);
    for i in 0..odd {
        // Twice a number that visits every place once, in no order.
        let place = (i * 7_919) % odd.max(1);
        rig.prepare(0, 0, &Saying { ahead: 2 * place as i64 + 1, len: 1, ..Saying::default() });
        let begin = rig.flows[0][0].acked;
        rig.flows[0][0].nxt = begin;
        timed(rig, &mut Rig::feed);
        rig.deliver();
        rig.pass(Duration::from_micros(100));
    }
    rig.prepare(0, 0, &Saying { len: (2 * odd).min(60_000), ..Saying::default() });
    timed(rig, &mut Rig::feed);
    rig.deliver();
}

fn fragments(rig: &mut Rig, packets: usize, timed: Timed<'_>) {
    let mut id = 0;
    let mut done = 0;
    while done < packets {
        id += 1;
        rig.prepare(0, 0, &Saying { len: 1_400, ..Saying::default() });
        let (bytes, offload) = rig.prepared();
        let mut whole = bytes.to_vec();
        finish_checksums(&mut whole, &offload);
        let mut pieces = Vec::new();
        if fragment(&whole, 68, id, &mut |p| pieces.push(p.to_vec())).is_err() {
            return;
        }
        if id % 4 != 0 {
            // Never whole: the first is missing, or the last; from behind.
            pieces.reverse();
            pieces.pop();
            rig.flows[0][0].nxt = rig.flows[0][0].nxt - 1_400;
        }
        for p in pieces.iter().take(packets - done) {
            let piece = p.clone();
            timed(rig, &mut |rig| rig.feed_bytes(0, &piece));
            rig.deliver();
            done += 1;
        }
        rig.settle(0);
        rig.pass(Duration::from_millis(1));
    }
}
