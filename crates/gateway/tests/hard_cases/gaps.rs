//! What gateways tell each other of gaps and windows, whatever the hosts can do.

use crate::script::notation::Seen;
use crate::script::{Host, Script};
use farlink_gateway::config::Link;

/// One gateway; the link towards b is declared, and the script plays the gateway at its other end.
fn with_peer(options: &str) -> Script {
    let link = Link { name: "sat".into(), ..Link::default() };
    let mut t = Script::with(|s| s.link = Some(link.clone()));
    t.play(&format!(
        "a > S 0 win 65535 <{options}>
         b < S 0
         b > S. 0 ack 1 win 65535 <{options},flsynack>
         a < S. 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1
         b > . 1 ack 1 win 65535 <fl 1 1024>
         drop"
    ));
    t
}

#[test]
fn a_gateway_is_told_of_gaps_in_our_own_option_and_a_host_in_the_standard_one() {
    let mut t = with_peer("mss 1460,sackOK,ws 7");
    t.play(
        "b > . 1001:2001 ack 1 <fl>
         b < . 1 ack 1 <fl,no sack>
         ~200
         drop
         b > . 3001:4001 ack 1 <fl>
         b < . 1 ack 1 <flruns 1000 4 1 1 1,no sack>",
    );
}

#[test]
fn on_the_leg_between_gateways_hosts_without_sack_have_it_all_the_same() {
    let mut t = with_peer("mss 1460");
    t.play(
        "a > P. 1:14561 ack 1 {gso 1460}
         a < . 1 ack 14561
         b < P. 1:14561 {gso 1456}
         ~100
         drop
         # The first five are missing.
         b > . 1 ack 1 win 65535 <flruns 1456 10 5>
         b < . 1:2913 {gso 1456}
         ~100
         drop
         b > . 1 ack 14561 win 65535 <fl>
         ~50
         drop
         quiet",
    );
    t.assert(t.status().counters.rtos == 0, "no timeout");
}

#[test]
fn what_a_gateway_promises_counts_whatever_the_host_behind_it_said_round_it() {
    let mut t = with_peer("mss 1460,sackOK,ws 7");
    t.play(
        "# With a sequence number that the gateway has not reached: its own acknowledgements look older (route-flap seed 774).
         b > . 9000 ack 1 win 0
         drop
         a > P. 1:101 ack 1
         drop
         b > . 1 ack 1 win 65535 <fl 1 1024>
         b < P. 1:101",
    );
}

#[test]
fn a_gateway_that_missed_the_window_behind_a_gap_hears_it_again() {
    let mut t = with_peer("mss 1460,sackOK,ws 7");
    t.play("b > . 1001:2001 ack 1 <fl>\n ~200\n drop");
    // Its window is closed, as far as it knows, and it asks (route-flap seed 172 with a soft window
    // that lasts).
    t.play("b > . 0 ack 1 <fl>\n ~200");
    let tells = |s: &Seen| {
        let body = s.segment.options.farlink.as_ref().map(|o| o.body.as_slice());
        body.and_then(|b| b.first()).is_some_and(|flags| flags & 0x02 != 0)
    };
    let answers = t.take(Host::B);
    assert!(answers.iter().any(tells), "{answers:?}");
}
