//! What a gateway waits for: each deadline says it.

use crate::script::{Host, Script};
use farlink_wire::Duration;

#[test]
fn each_deadline_says_what_it_is_for() {
    let mut t = Script::new();
    t.open();
    t.play("~1\n a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
    assert_eq!(t.due(), "delayed acknowledgement");
    t.play("+40\n a < . 1 ack 101\n ~10\n b > . 1 ack 101\n drop");
    t.play("a > P. 101:201 ack 1\n b < P. 101:201 ack 1\n +40\n a < . 1 ack 201");
    assert_eq!(t.due(), "retransmission");
    t.play("b > . 1 ack 201 win 0\n drop\n a > P. 201:301 ack 1\n ~40\n drop a");
    assert_eq!(t.due(), "persist");
    t.play("b > . 1 ack 201\n b < P. 201:301 ack 1\n b > . 1 ack 301\n ~5s\n drop");
    assert_eq!(t.due(), "dormancy");
    let wakes = t.with_gateway(|g, _, _| g.status().wakes);
    assert!(wakes["delayed acknowledgement"] >= 3 && wakes["pool"] > 0, "{wakes:?}");
}

/// The driver does not get its processor for 300 ms: what was due shows by how much it is late.
#[test]
fn a_driver_that_pauses_is_late_by_what_was_due() {
    let mut t = Script::new();
    t.open();
    t.play("~1\n a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
    let (began, late) = t.with_gateway(|g, now, net| {
        let due = g.poll_timeout().expect("the acknowledgement is delayed").at;
        let woken = due + Duration::from_millis(300);
        g.wake(woken);
        assert_eq!(g.late_between(now, due), Duration::ZERO, "until then there was time");
        g.handle_timeout(woken, net);
        (now, g.late_between(now, woken))
    });
    assert_eq!(late, Duration::from_millis(300));
    let longest = t.with_gateway(|g, _, _| g.late_longest());
    assert_eq!(longest, late);
    // Who is never late is not late by waiting.
    let mut t = Script::new();
    t.open();
    t.play("~1\n a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n ~100\n drop");
    let all = t.with_gateway(|g, now, _| g.late_between(began, now));
    assert_eq!(all, Duration::ZERO);
}

/// Nobody was asked anything meanwhile: no time that bounds patience has passed.
#[test]
fn who_stood_still_for_longer_than_any_patience_gives_up_nothing() {
    for jump in [1_000_u64, 100_000, 10_000_000] {
        let mut t = Script::with(|s| s.config.timers.user_timeout = Duration::from_secs(60));
        t.open();
        t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n +40\n a < . 1 ack 101");
        t.stand_still(Duration::from_secs(jump));
        let again = t.take(Host::B);
        assert!(again.iter().all(|s| !s.segment.flags.rst() && s.seq == 1), "{jump} s: {again:?}");
        t.play("~50s");
        let asked = t.take(Host::B).len();
        assert!(asked > 2, "{jump} s: asked {asked} times");
        t.play("b > . 1 ack 101\n ~100\n drop");
        t.assert(t.status().counters.flows_abandoned == 0 && t.status().custody_bytes == 0, "delivered");
    }
}

/// Patience ends all the same, by time that was served.
#[test]
fn who_stood_still_gives_up_as_late_as_if_it_began_then() {
    let mut t = Script::with(|s| s.config.timers.user_timeout = Duration::from_secs(60));
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n +40\n a < . 1 ack 101");
    t.stand_still(Duration::from_secs(1_000));
    t.play("~200s\n drop");
    t.assert(t.status().counters.flows_abandoned == 1, "given up");
}
