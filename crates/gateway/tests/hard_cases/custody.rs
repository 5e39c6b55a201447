//! Custody mode: data is held while a link is away, and nothing is promised to anybody.

use crate::script::network::TO_B;
use crate::script::{Host, Script, Setup};
use farlink_gateway::config::{Action, Link, Notice};
use farlink_wire::Duration;

fn in_custody(s: &mut Setup) {
    s.config.default_action = Action::Custody(Notice::Silence);
    s.link = Some(Link { name: "sat".into(), ..Link::default() });
}

/// The link towards b is declared.
fn custody() -> Script {
    let mut t = Script::with(in_custody);
    t.open();
    t
}

#[test]
fn the_source_hears_what_the_far_host_says_and_nothing_else() {
    let mut t = custody();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +150
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1
         +1
         b > . 1 ack 101 win 600
         a < . 1 ack 101 win 600
         b > . 1 ack 201 win 700
         a < . 1 ack 201 win 700
         +1000
         quiet",
    );
    t.assert(t.mode() == "custody", "it is one of ours");
}

/// The window is the far host's own: what is in the gateway is part of it.
#[test]
fn the_source_may_send_as_much_as_the_far_host_takes() {
    let mut t = Script::with(in_custody);
    t.open_with("<mss 1460,sackOK>", "<mss 1460,sackOK>");
    t.play(
        "b > . 1 ack 1 win 1000
         drop a
         a > P. 1:101 ack 1
         b < P. 1:101
         b > . 1 ack 101 win 900
         a < . 1 ack 101 win 65435",
    );
}

#[test]
fn a_fin_is_acknowledged_by_its_destination_alone() {
    let mut t = custody();
    t.set_carrier(TO_B, false);
    t.play("a > FP. 1:101 ack 1\n ~50s\n quiet");
    t.set_carrier(TO_B, true);
    t.play(
        "b < FP. 1:101 ack 1
         b > . 1 ack 102
         a < . 1 ack 102
         b > F. 1 ack 102
         a < F. 1 ack 102
         a > . 102 ack 2
         b < . 102 ack 2
         quiet",
    );
}

/// What the source repeats during a short outage goes nowhere, and is answered by nobody: its timer
/// is its own, and it can undo it.
#[test]
fn a_source_is_left_in_silence_while_the_link_is_away() {
    let mut t = custody();
    t.play("a > . 1:101 ack 1\n b < . 1:101 ack 1");
    t.set_carrier(TO_B, false);
    t.play(
        "a > P. 101:201 ack 1
         +200
         a > . 1:101 ack 1
         +400
         a > . 1:101 ack 1
         +9s
         a > . 1:101 ack 1
         quiet",
    );
    t.set_carrier(TO_B, true);
    // All of it at once, as one super-segment or two.
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 200);
    t.play("b > . 1 ack 201\n a < . 1 ack 201\n +1000\n quiet");
}

/// A source would give up when nothing is acknowledged for long. It does not while it hears that
/// the window is closed. The first acknowledgement of the far host opens it again.
#[test]
fn a_source_that_repeats_through_a_long_outage_is_kept_from_giving_up() {
    let mut t = custody();
    t.set_carrier(TO_B, false);
    t.play("a > P. 1:101 ack 1\n +11s");
    for _ in 0..20 {
        t.play(
            "a > P. 1:101 ack 1
             a < . 1 ack 1 win 0
             ~600s
             quiet",
        );
    }
    // The last of its stream, too.
    t.play(
        "a > F. 101 ack 1
         quiet
         a > F. 101 ack 1
         a < . 1 ack 1 win 0",
    );
    t.set_carrier(TO_B, true);
    t.play(
        "b < FP. 1:101 ack 1
         b > . 1 ack 102 win 512
         a < . 1 ack 102 win 512
         +1000
         quiet",
    );
}

/// When the link is back its source hears the far host again, and nothing else.
#[test]
fn a_source_is_not_told_to_wait_for_a_link_that_is_there() {
    let mut t = custody();
    t.set_carrier(TO_B, false);
    t.play("a > P. 1:101 ack 1\n ~20s\n quiet");
    t.set_carrier(TO_B, true);
    t.play(
        "b < P. 1:101 ack 1
         a > P. 1:101 ack 1
         quiet
         b > . 1 ack 101
         a < . 1 ack 101
         quiet",
    );
}

/// A hole before the gateway: the far host does not see it, so the source hears of it when the far
/// host stands before it, and then as any receiver would say it.
#[test]
fn a_hole_is_told_when_the_far_host_has_reached_it() {
    let mut t = custody();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         a > P. 201:301 ack 1
         +50
         b > . 1 ack 101
         a < . 1 ack 101 <sack 201:301>
         a > P. 301:401 ack 1
         a < . 1 ack 101 <sack 201:401>
         a > P. 101:201 ack 1",
    );
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 300);
    t.play("quiet\n b > . 1 ack 401\n a < . 1 ack 401 <no sack>\n +1000\n quiet");
}

/// The far host's duplicate acknowledgements are about the link, and are answered by the gateway.
#[test]
fn what_the_link_loses_is_repeated_by_the_gateway() {
    let mut t = Script::with(in_custody);
    t.open_in(50);
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101
         a > P. 101:201 ack 1
         b < P. 101:201
         a > P. 201:301 ack 1
         b < P. 201:301
         +20
         b > . 1 ack 1 <sack 101:301>
         ~60
         b < . 1:101
         b > . 1 ack 301
         a < . 1 ack 301
         +1000
         quiet",
    );
}

/// Its source has everything still: a gateway that dies takes nothing with it, and its next life
/// resets nobody.
#[test]
fn a_killed_gateway_has_lost_nothing_and_resets_nobody() {
    let mut t = custody();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101");
    assert!(t.journal().is_empty(), "nothing is owed");
    t.set_carrier(TO_B, false);
    t.play("a > P. 101:201 ack 1\n quiet");
    assert!(t.journal().is_empty());
    t.kill_and_restart();
    t.play(
        "~2s
         quiet
         a > P. 1:201 ack 1
         b < P. 1:201 ack 1
         b > . 1 ack 201
         a < . 1 ack 201
         +1000
         quiet",
    );
}

/// Its number is right only behind what is under way.
#[test]
fn a_reset_comes_behind_what_stands_before_it() {
    let mut t = custody();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         a > R. 101 ack 1
         quiet
         b > . 1 ack 101
         b < R. 101 ack 1
         quiet",
    );
    let mut t = custody();
    t.set_carrier(TO_B, false);
    t.play("a > P. 1:101 ack 1\n quiet\n a > R. 101 ack 1\n ~200s\n quiet");
    t.set_carrier(TO_B, true);
    t.play("b < P. 1:101 ack 1\n b > . 1 ack 101\n b < R. 101 ack 1\n quiet");
    t.assert(t.status().custody_bytes == 0, "it is over");
}

#[test]
fn keepalives_pass_while_the_link_is_there() {
    let mut t = custody();
    t.play(
        "a > . 0 ack 1
         b < . 0 ack 1
         b > . 1 ack 1
         a < . 1 ack 1
         quiet",
    );
}

/// Without a link that is known to be away nobody is kept waiting for longer than the user timeout.
#[test]
fn what_makes_no_progress_is_left_to_its_hosts() {
    let mut t = Script::with(|s| {
        in_custody(s);
        s.config.timers.user_timeout = Duration::from_secs(60);
    });
    t.open_in(50);
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n ~100s\n drop b\n quiet");
    t.assert(t.status().custody_bytes == 0, "given back");
    // End to end from now on.
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n b > . 1 ack 101\n a < . 1 ack 101\n +1000\n quiet");
}
