//! What a gateway waits for: each deadline says it.

use crate::script::Script;
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
