//! Custody mode, and gateways on both sides of a link: which of them holds, and what the one before
//! it does meanwhile.

use crate::peers::ASKED;
use crate::script::network::TO_B;
use crate::script::{Host, Script};
use farlink_gateway::config::{Action, Link, Notice};

fn link(name: &str) -> Option<Link> {
    Some(Link { name: name.into(), ..Link::default() })
}

/// One gateway in custody mode between two links. The script plays a gateway towards a.
fn behind_a_gateway() -> Script {
    let mut t = Script::with(|s| {
        s.config.default_action = Action::Custody(Notice::Silence);
        s.link_a = link("near");
        s.link = link("sat");
    });
    t.play(ASKED);
    t.play("a > . 1 ack 1 <fl 1 1024>\n b < . 1 ack 1");
    t
}

/// One gateway in custody mode, and the script plays the next one behind the link. Two segments are
/// under way to it.
fn before_a_gateway() -> Script {
    let mut t = Script::with(|s| {
        s.config.default_action = Action::Custody(Notice::Silence);
        s.link = link("sat");
    });
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
         a < S. 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1
         b > . 1 ack 1 win 65535 <fl 1 1024>
         drop
         a > P. 1:1001 ack 1
         b < P. 1:1001 <fl>
         a > P. 1001:2001 ack 1
         b < P. 1001:2001 <fl>",
    );
    t
}

#[test]
fn the_gateway_before_is_told_what_is_held_and_nothing_is_acknowledged() {
    let mut t = behind_a_gateway();
    t.play("a > P. 1:1001 ack 1 <fl>\n b < P. 1:1001 <no fl>\n ~10\n quiet");
    t.set_carrier(TO_B, false);
    t.play(
        "a < . 1 ack 1 <fl,no sack>
         a > P. 1001:2001 ack 1 <fl>
         ~3
         a < . 1 ack 1 <flruns 1000 2 2,no sack>
         # The end of the stream is held, too.
         a > F. 2001 ack 1 <fl>
         ~3
         a < . 1 ack 1 <fl,no sack>
         quiet",
    );
    t.set_carrier(TO_B, true);
    t.play(
        "b < . 1:1001
         b < FP. 1001:2001
         b > . 1 ack 2002
         a < . 1 ack 2002 <fl>",
    );
}

#[test]
fn what_the_next_gateway_keeps_is_asked_for_and_not_sent_again() {
    let mut t = before_a_gateway();
    let mut asked = 0;
    t.play("b > . 1 ack 1 win 65535 <flruns 1000 2 2>");
    for _ in 0..6000 {
        t.play("~100");
        for seen in t.take(Host::B) {
            assert_eq!((seen.seq, seen.payload.len()), (1, 1456), "the oldest segment asks: {seen:?}");
            t.play("b > . 1 ack 1 win 65535 <flruns 1000 2 2>");
            asked += 1;
        }
    }
    assert!((60..150).contains(&asked), "asked {asked} times in ten minutes");
    // Its source waits for the same outage.
    t.play("a > P. 1:1001 ack 1\n a < . 1 ack 1 win 0\n b > . 1 ack 2001 win 65535 <fl 2001 1024>");
    t.play("a < . 1 ack 2001\n ~60s\n quiet");
    t.assert(t.status().counters.rtos == 0, "nothing has been lost");
}

#[test]
fn a_gateway_that_keeps_nothing_any_more_is_found_out() {
    let mut t = before_a_gateway();
    t.play(
        "b > . 1 ack 1 win 65535 <flruns 1000 2 2>
         ~250
         b < . 1:1457",
    );
    // It was killed, and its successor knows nothing of the connection.
    t.play("b > . 1 ack 1457\n a < . 1 ack 1457\n ~1000\n b < P. 1457:2001\n drop");
    t.play("b > . 1 ack 2001\n a < . 1 ack 2001\n ~60s\n quiet");
}
