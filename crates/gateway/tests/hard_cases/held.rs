//! What people are told holds a connection back.

use crate::script::Script;
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};

/// A link of 1 Mbit/s towards b: a full segment takes 12 ms.
fn linked(rate_bps: Option<u64>, cc: Kind) -> Script {
    let mut t = Script::with(|s| {
        let leg = LegConfig { cc, ..LegConfig::default() };
        s.link = Some(Link { name: "sat".into(), rate_bps, leg, ..Link::default() });
    });
    t.open();
    t
}

/// What held the connection, and how many bytes towards b were taken for lost.
fn held(t: &mut Script) -> (&'static str, &'static str, u64) {
    let flows = t.with_gateway(|g, now, _| g.flows(now, 10));
    (flows[0].limited_by, flows[0].held_by, flows[0].lost_b_bytes)
}

/// A link that is never idle cannot carry more: that it also carries repetitions does not make the
/// losses the reason.
#[test]
fn a_full_link_is_the_reason_while_losses_are_repaired() {
    let mut t = linked(Some(1_000_000), Kind::FixedRate);
    t.play("a > . 1:29201 ack 1 {gso 1460}\n ~100\n drop");
    // The second segment does not arrive.
    t.play("b > . 1 ack 1461 <sack 2921:10221>\n ~20\n drop");
    assert_eq!(held(&mut t), ("link", "turn on the link", 1460));
}

/// Here nothing else is left to send: the repetition is what everyone waits for.
#[test]
fn a_repetition_that_is_all_there_is_left_is_the_reason() {
    let mut t = linked(Some(1_000_000), Kind::FixedRate);
    t.play("a > P. 1:14601 ack 1 {gso 1460}\n ~150\n drop");
    t.play("b > . 1 ack 1461 <sack 2921:14601>\n ~30\n drop");
    assert_eq!(held(&mut t), ("loss", "repairs losses", 1460));
}

/// A controller that answers losses sends less because of them, whatever the link could carry.
#[test]
fn a_window_that_a_loss_made_smaller_is_the_losses_doing() {
    let mut t = linked(None, Kind::NewReno);
    t.play("a > . 1:29201 ack 1 {gso 1460}\n ~5\n drop");
    t.play("b > . 1 ack 1461 <sack 2921:8761>\n ~1\n drop");
    let (limited, how, lost) = held(&mut t);
    assert_eq!((limited, how), ("loss", "repairs losses"));
    assert_eq!(lost, 1460);
}
