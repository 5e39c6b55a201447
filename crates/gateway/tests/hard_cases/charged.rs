//! Everything that leaves by a declared link is counted by its queue, or the link's own queue fills
//! behind the gateway.

use crate::script::{Host, Script};
use farlink_gateway::config::Link;

fn script() -> Script {
    let link = Link { name: "sat".into(), rate_bps: Some(8_000_000), ..Link::default() };
    let mut t = Script::with(|s| s.link = Some(link.clone()));
    t.open();
    t.play("~10\n drop");
    t
}

fn counted(t: &mut Script) -> u64 {
    t.with_gateway(|g, _, _| g.status().links[0].sent_bytes)
}

/// Bytes that the queue has counted since the last call, and that have come to b.
fn counted_and_seen(t: &mut Script, before: &mut u64) -> (u64, u64) {
    let counted = counted(t);
    let seen = t.take(Host::B).iter().map(|s| s.segment.ip.total_len as u64).sum();
    (counted - core::mem::replace(before, counted), seen)
}

#[test]
fn the_last_acknowledgement_of_a_connection() {
    let mut t = script();
    let mut before = counted(&mut t);
    t.play("+10\n a > F. 1 ack 1\n ~1");
    assert_eq!(counted_and_seen(&mut t, &mut before), (40, 40), "the FIN");
    for (step, what) in [
        ("drop a\n b > . 1 ack 2\n ~100\n drop a", "nothing, or an acknowledgement"),
        ("b > F. 1 ack 2\n ~1\n drop a", "nothing, or an acknowledgement"),
        ("a > . 2 ack 2\n ~100\n drop a", "the acknowledgement of the other FIN, and the end"),
    ] {
        t.play(step);
        let (counted, seen) = counted_and_seen(&mut t, &mut before);
        assert_eq!(counted, seen, "{what}");
    }
    assert_eq!(t.mode(), "closed");
}

#[test]
fn a_reset() {
    let mut t = script();
    let mut before = counted(&mut t);
    t.play("+10\n a > P. 1:101 ack 1\n ~1");
    assert_eq!(counted_and_seen(&mut t, &mut before), (140, 140));
    // b has not acknowledged what a is rid of: the reset is the gateway's, behind what is owed.
    t.play("drop a\n a > R. 101 ack 1\n ~10\n b > . 1 ack 101\n ~100\n drop a");
    let (counted, seen) = counted_and_seen(&mut t, &mut before);
    assert!(seen > 0, "b hears of it");
    assert_eq!(counted, seen);
}

#[test]
fn a_forwarded_super_segment_is_the_packets_that_it_becomes() {
    // As much as the link carries in a millisecond stays in one piece.
    let link = Link { name: "sat".into(), rate_bps: Some(100_000_000), ..Link::default() };
    let mut t = Script::with(|s| s.link = Some(link.clone()));
    let mut before = counted(&mut t);
    // Nobody has seen the handshake: it goes on as it came. Four segments have four headers.
    t.play("a > P. 1:4001 ack 1 {gso 1000}\n ~10\n b < P. 1:4001 ack 1 {gso 1000}");
    let now = counted(&mut t);
    assert_eq!(now - core::mem::replace(&mut before, now), 4_000 + 4 * 40);
}
