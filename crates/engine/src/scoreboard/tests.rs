//! What the board makes of acknowledgements.

use super::*;

fn board(n: u32) -> Scoreboard {
    let mut b = Scoreboard::default();
    for i in 0..n {
        let t = Instant::from_millis(u64::from(i));
        b.push(Sent {
            seq: SeqNum(i * 1000),
            end: SeqNum((i + 1) * 1000),
            unit_bytes: 500,
            unit_from: SeqNum(i * 1000),
            fin: false,
            sent_at: t,
            then: Then::default(),
            sacked: false,
            lost: false,
            retransmitted: false,
            original_at: t,
            repeats: 0,
            copies: 0,
            copied_at: None,
        });
    }
    b
}
fn block(a: u32, b: u32) -> SackBlock {
    SackBlock { start: SeqNum(a), end: SeqNum(b) }
}

#[test]
fn sacks_cut_join_and_count() {
    let mut b = board(10);
    let a = b.acknowledge(Instant::from_millis(100), SeqNum(500), &[block(2500, 4000), block(9000, 10000)]);
    assert_eq!((a.delivered_bytes, a.sacked_bytes), (3000, 2500));
    assert_eq!(a.rtt, Some(Duration::from_millis(91)));
    assert!(b.is_consistent());
    assert_eq!(b.pipe(), 7000);
    b.acknowledge(
        Instant::from_millis(101),
        SeqNum(500),
        &[block(4000, 9000), block(0, 300), block(9500, 20000)],
    );
    assert!(b.is_consistent());
    assert_eq!(b.sacked_bytes(), 7500);
    assert_eq!(b.mark_lost(|_| true), 2000);
    assert_eq!(b.next_lost(700), Some((SeqNum(500), 700)));
    b.resent(Instant::from_millis(102), SeqNum(500), 700, 1000, Then::default());
    assert!(b.is_consistent());
    assert_eq!(b.next_lost(5000), Some((SeqNum(1200), 1300)));
    let a = b.acknowledge(Instant::from_millis(200), SeqNum(10000), &[]);
    assert_eq!(a.delivered_bytes, 2000);
    assert!(b.is_empty() && b.is_consistent());
}

/// A timeout came too soon for most of what is under way. What three segments have overtaken was
/// lost all the same: the acknowledgements that said so have not arrived.
#[test]
fn what_has_been_overtaken_stays_lost() {
    let mut b = board(10);
    let sacked = [block(2000, 3000), block(5000, 6000), block(8000, 8500)];
    b.acknowledge(Instant::from_millis(100), SeqNum(1000), &sacked);
    b.mark_lost(|_| true);
    b.unmark_lost();
    b.mark_overtaken(1500);
    assert!(b.is_consistent());
    assert_eq!(b.pipe(), 9000 - 2500 - 3000, "what stands before 5,000");
    assert_eq!(b.next_lost(5000), Some((SeqNum(1000), 1000)));
}

#[test]
fn a_lost_head_is_a_whole_segment_of_small_pieces() {
    let mut b = board(3);
    for at in [8, 96, 104, 1100] {
        b.cut(SeqNum(at));
    }
    assert_eq!(b.mark_head_lost(1000), 1000);
    assert_eq!(b.next_lost(1000), Some((SeqNum(0), 1000)));
    assert_eq!(b.mark_head_lost(1000), 0, "it is known");
    b.resent(Instant::from_millis(100), SeqNum(0), 1000, 1000, Then::default());
    b.acknowledge(Instant::from_millis(200), SeqNum(1000), &[]);
    assert_eq!((b.mark_head_lost(1000), b.next_lost(1000)), (1000, Some((SeqNum(1000), 1000))));
    assert!(b.is_consistent());
}

#[test]
fn no_rtt_from_what_waited_behind_a_repeated_segment() {
    let mut b = board(3);
    b.mark_head_lost(1000);
    b.resent(Instant::from_millis(5_000), SeqNum(0), 1000, 1000, Then::default());
    let a = b.acknowledge(Instant::from_millis(5_100), SeqNum(2000), &[]);
    assert_eq!(a.rtt, None);
    let a = b.acknowledge(Instant::from_millis(5_102), SeqNum(3000), &[]);
    assert_eq!(a.rtt, Some(Duration::from_millis(5_100)));
}

#[test]
fn what_was_taken_for_lost_and_arrives_is_found() {
    let mut b = board(5);
    b.set_min_rtt(Duration::from_millis(40));
    assert_eq!(b.mark_lost(|r| r.seq.before(SeqNum(3000))), 3000);
    b.resent(Instant::from_millis(50), SeqNum(0), 1000, 1000, Then::default());
    b.resent(Instant::from_millis(55), SeqNum(1000), 1000, 1000, Then::default());
    let a = b.acknowledge(Instant::from_millis(60), SeqNum(0), &[block(2000, 5000)]);
    assert_eq!(a.found, (1000, 2), "one has not been sent again");
    let a = b.acknowledge(Instant::from_millis(70), SeqNum(1000), &[]);
    assert_eq!(a.found, (1000, 1), "that cannot be the repetition");
    assert_eq!(b.acknowledge(Instant::from_millis(95), SeqNum(2000), &[]).found, (0, 0));
}

#[test]
fn late_originals_below_the_highest_are_reordering() {
    let mut b = board(5);
    assert!(!b.acknowledge(Instant::from_millis(50), SeqNum(0), &[block(3000, 4000)]).reordered);
    assert!(b.acknowledge(Instant::from_millis(51), SeqNum(1000), &[]).reordered);
}

/// 64 kB in super-segments of ten, as a sender without pacing leaves them.
fn in_flight(n: u32) -> Scoreboard {
    let mut b = Scoreboard::default();
    for i in 0..n {
        let from = SeqNum(i * 14_480);
        let mut sent = *board(1).first().unwrap();
        (sent.seq, sent.end, sent.unit_from, sent.unit_bytes) = (from, from + 14_480, from, 1448);
        sent.sent_at = Instant::from_millis(u64::from(i));
        b.push(sent);
    }
    b
}

#[test]
fn a_receiver_that_sacks_every_second_byte_cuts_nothing() {
    let mut b = in_flight(5);
    let rack = (Instant::from_millis(4), SeqNum(72_400));
    for round in 0..2 {
        for i in 0..8_000 {
            let blocks: Vec<SackBlock> =
                (0..4).map(|k| 2 * (4 * i + k) + 1).map(|at| block(at, at + 1)).collect();
            let before = b.steps;
            b.acknowledge(Instant::from_millis(100), SeqNum(0), &blocks);
            b.mark_overdue(Instant::from_millis(100), rack, Duration::from_secs(1));
            assert!(b.steps - before <= 64, "round {round}, ACK {i}: {} records walked", b.steps - before);
        }
    }
    assert!(b.records.len() <= 50, "{} records", b.records.len());
    assert!(b.memory_bytes() < 64 << 10 && b.is_consistent());
}

#[test]
fn segments_that_are_sacked_count_wherever_they_stand_in_a_transmission() {
    let mut b = in_flight(3);
    // The head, a byte too few on both sides; then two whole segments and parts of their
    // neighbours.
    let a = b.acknowledge(Instant::from_millis(50), SeqNum(0), &[block(1, 1447), block(2_000, 7_000)]);
    assert_eq!(a.sacked_bytes, 2 * 1448);
    let a = b.acknowledge(Instant::from_millis(51), SeqNum(700), &[block(1448, 43_440)]);
    assert_eq!(a.sacked_bytes, 43_440 - 1448 - 2 * 1448);
    assert_eq!((b.pipe(), b.records.len()), (1448 - 700, 2));
    assert!(b.is_consistent());
}

#[test]
fn the_byte_before_a_fin_ends_a_block() {
    let mut b = in_flight(1);
    let mut last = *b.first().unwrap();
    (last.seq, last.end, last.unit_from, last.fin) = (SeqNum(14_480), SeqNum(14_981), SeqNum(14_480), true);
    b.push(last);
    let a = b.acknowledge(Instant::from_millis(50), SeqNum(0), &[block(14_480, 14_980)]);
    assert_eq!((a.sacked_bytes, b.pipe()), (500, 14_481));
}

#[test]
fn a_repetition_sets_new_bounds_and_the_number_of_records_has_an_end() {
    let mut b = in_flight(1);
    b.acknowledge(Instant::from_millis(20), SeqNum(100), &[]);
    b.mark_lost(|_| true);
    b.resent(Instant::from_millis(30), SeqNum(100), 1448, 1448, Then::default());
    let a = b.acknowledge(Instant::from_millis(60), SeqNum(100), &[block(1548, 2896)]);
    assert_eq!(a.sacked_bytes, 1348, "to the end of the second segment of the first transmission");
    let mut b = Scoreboard::default();
    for i in 0..RECORDS_MAX as u32 {
        let mut sent = *board(1).first().unwrap();
        (sent.seq, sent.end, sent.unit_from, sent.unit_bytes) =
            (SeqNum(16 * i), SeqNum(16 * (i + 1)), SeqNum(16 * i), 8);
        assert!(!b.is_full());
        b.push(sent);
    }
    assert!(b.is_full());
    let a = b.acknowledge(Instant::from_millis(60), SeqNum(0), &[block(8, 16), block(24, 48)]);
    assert_eq!((a.sacked_bytes, b.records.len()), (16, RECORDS_MAX), "whole records only");
}

#[test]
fn losses_by_order_of_transmission_are_those_that_a_walk_over_all_records_finds() {
    let mut x = 7u64;
    let mut rnd = move |n: u64| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) % n
    };
    let later = |newest: Option<(Instant, SeqNum)>, a: &Acked| {
        let new = a.newest.map(|(t, e, _)| (t, e));
        newest.filter(|(t, e)| !new.is_some_and(|(nt, ne)| nt > *t || (nt == *t && ne.after(*e)))).or(new)
    };
    for _ in 0..300 {
        let mut b = Scoreboard::default();
        let (mut nxt, mut una, mut ms) = (SeqNum(u32::MAX - 9_000), SeqNum(u32::MAX - 9_000), 0u64);
        let mut newest: Option<(Instant, SeqNum)> = None;
        for _ in 0..200 {
            ms += rnd(3);
            let now = Instant::from_millis(ms);
            match rnd(6) {
                0 | 1 => {
                    let mut sent = *board(1).first().unwrap();
                    let len = 500 * (1 + rnd(6) as u32);
                    (sent.seq, sent.end, sent.unit_from, sent.unit_bytes) = (nxt, nxt + len, nxt, 500);
                    sent.sent_at = now;
                    b.push(sent);
                    nxt += len;
                }
                2 => {
                    if let Some((seq, len)) = b.next_lost(1000) {
                        b.resent(now, seq, len, 500, Then::default());
                    }
                }
                3 if nxt != una => {
                    let at = una + 500 * rnd(u64::from(nxt.since(una) / 500)) as u32;
                    let end = at + 500 * (1 + rnd(3) as u32);
                    let a = b.acknowledge(now, una, &[SackBlock { start: at, end }]);
                    newest = later(newest, &a);
                }
                4 if rnd(3) == 0 && nxt != una => {
                    una += 500 * (1 + rnd(u64::from(nxt.since(una) / 500)) as u32);
                    let a = b.acknowledge(now, una, &[]);
                    newest = later(newest, &a);
                }
                5 if rnd(20) == 0 => b.forget_sacks(),
                5 if rnd(20) == 0 => b.unmark_lost(),
                _ => {}
            }
            let Some((xmit_at, end)) = newest else { continue };
            let patience = Duration::from_millis(rnd(20));
            let mut walk = b.clone();
            let mut again: Option<Instant> = None;
            let bytes = walk.mark_lost(|r| {
                let earlier = r.sent_at < xmit_at || (r.sent_at == xmit_at && r.end.before(end));
                let due = r.sent_at + patience;
                if earlier && due > now {
                    again = Some(again.map_or(due, |a| a.min(due)));
                }
                earlier && due <= now
            });
            assert_eq!(b.mark_overdue(now, (xmit_at, end), patience), (bytes, again));
            assert!(b.is_consistent());
            assert_eq!(b.clone().next_lost(400), walk.next_lost(400));
        }
    }
}
