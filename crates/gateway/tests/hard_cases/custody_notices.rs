//! Custody mode: what a source hears while the link is away that its data is held for, by each
//! notice that can be chosen.

use crate::script::network::{TO_A, TO_B};
use crate::script::{Host, Script, Setup, USUAL};
use farlink_gateway::config::{Action, Link, Notice};
use farlink_wire::Duration;

/// The number of an intermediate acknowledgement, 0, as the distance from host b's ISN.
const FROM_B: u32 = 0_u32.wrapping_sub(0x7fff_fe80);
/// Host a's ISN is too near to 0, so it is the other number.
const FROM_A: u32 = (1_u32 << 31).wrapping_sub(0xffff_ff00);

fn told(notice: Notice) -> impl Fn(&mut Setup) {
    move |s| {
        s.config.default_action = Action::Custody(notice);
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    }
}

/// The link towards b is declared.
fn custody(notice: Notice) -> Script {
    let mut t = Script::with(told(notice));
    t.open();
    t
}

/// How many payload bytes a host has got.
fn got_bytes(t: &mut Script, host: Host) -> usize {
    t.take(host).iter().map(|s| s.payload.len()).sum()
}

/// The oldest segment is left out: a block that begins at the acknowledgement is none to Linux.
#[test]
fn what_is_held_is_told_in_blocks_above_the_oldest_segment() {
    let mut t = custody(Notice::Sack);
    t.play("a > P. 1:1001 ack 1\n b < P. 1:1001");
    t.set_carrier(TO_B, false);
    t.play(
        "quiet
         a > P. 1001:2001 ack 1
         a < . 1 ack 1 <sack 1001:2001>
         a > P. 2001:3001 ack 1
         a < . 1 ack 1 <sack 1001:3001>
         +300
         a > P. 1:1001 ack 1
         a < . 1 ack 1 <sack 1001:3001>
         +1000
         quiet",
    );
    t.set_carrier(TO_B, true);
    // A block is acknowledged as a whole: within it nothing is said.
    let mut got = got_bytes(&mut t, Host::B);
    for acked in [1001, 2001] {
        t.play(&format!("b > . 1 ack {acked}"));
        got += got_bytes(&mut t, Host::B);
    }
    assert_eq!(got, 3000, "the source's repetition has not crossed the link");
    t.play(
        "quiet
         b > . 1 ack 3001
         a < . 1 ack 3001 <no sack>
         a > P. 3001:4001 ack 1
         b < P. 3001:4001
         b > . 1 ack 4001
         a < . 1 ack 4001 <no sack>
         +1000
         quiet",
    );
}

/// It is told when the link goes, and as often as something comes.
#[test]
fn a_source_that_says_no_more_is_told_when_its_link_goes() {
    let mut t = custody(Notice::Sack);
    t.play("a > P. 1:1001 ack 1\n drop b\n a > P. 1001:2001 ack 1\n drop b");
    t.set_carrier(TO_B, false);
    t.play("a < . 1 ack 1 <sack 1001:2001>\n +1000\n quiet");
    let mut t = custody(Notice::ZeroWindow);
    t.play("a > P. 1:1001 ack 1\n b < P. 1:1001");
    t.set_carrier(TO_B, false);
    t.play("a < . 1 ack 1 win 0\n +1000\n quiet");
    let mut t = custody(Notice::Iack);
    t.play("a > P. 1:1001 ack 1\n b < P. 1:1001");
    t.set_carrier(TO_B, false);
    t.play(&format!("a < U. {FROM_B} ack 1001\n +1000\n quiet"));
}

/// On a link that winks something would be told again and again, and nothing acknowledged.
#[test]
fn what_one_outage_has_told_is_delivered_before_another_adds_to_it() {
    let mut t = custody(Notice::Sack);
    t.play("a > P. 1:1001 ack 1\n drop b\n a > P. 1001:2001 ack 1\n drop b");
    t.set_carrier(TO_B, false);
    t.play("a < . 1 ack 1 <sack 1001:2001>");
    t.set_carrier(TO_B, true);
    t.play("drop b\n b > . 1 ack 1001\n +5");
    t.set_carrier(TO_B, false);
    t.play(
        "a < . 1 ack 1 <sack 1001:2001>
         a > P. 2001:3001 ack 1
         a < . 1 ack 1 <sack 1001:2001>",
    );
    t.set_carrier(TO_B, true);
    t.play("drop b\n b > . 1 ack 2001\n a < . 1 ack 2001 <no sack>\n drop b\n +5");
    t.set_carrier(TO_B, false);
    t.play("quiet\n a > P. 3001:4001 ack 1\n a < . 1 ack 2001 <sack 3001:4001>");
}

#[test]
fn a_source_without_sack_hears_nothing() {
    let mut t = Script::with(told(Notice::Sack));
    t.open_with("<mss 1460,ws 7>", USUAL);
    t.set_carrier(TO_B, false);
    t.play(
        "a > P. 1:1001 ack 1
         a > P. 1001:2001 ack 1
         a > P. 1:1001 ack 1
         quiet
         ~11s
         a > P. 1:1001 ack 1
         a < . 1 ack 1 win 0 <no sack>",
    );
}

/// The source waits, as with silence, when the link is away for long. What it was told stands.
#[test]
fn a_long_outage_closes_the_window_whatever_else_was_told() {
    let mut t = custody(Notice::Sack);
    t.set_carrier(TO_B, false);
    t.play(
        "a > P. 1:1001 ack 1
         a > P. 1001:2001 ack 1
         a < . 1 ack 1 <sack 1001:2001>
         ~11s
         a > P. 1:1001 ack 1
         a < . 1 ack 1 win 0 <sack 1001:2001>",
    );
    let mut t = custody(Notice::Iack);
    t.set_carrier(TO_B, false);
    t.play(&format!(
        "a > P. 1:1001 ack 1
         a < U. {FROM_B} ack 1001
         ~11s
         a > P. 1:1001 ack 1
         a < U. {FROM_B} ack 1001
         a < . 1 ack 1 win 0"
    ));
}

/// Its fields are the paper's: no host takes its sequence number for one of the connection.
#[test]
fn an_intermediate_acknowledgement_is_none_to_ordinary_hosts() {
    for v6 in [false, true] {
        let mut t = Script::with(|s| {
            s.v6 = v6;
            told(Notice::Iack)(s);
        });
        t.open_with("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");
        t.play("b > . 1 ack 1 win 700 <ts 5001 1000>\n drop a");
        t.set_carrier(TO_B, false);
        t.play("a > P. 1:1001 ack 1 <ts 1001 5000>");
        let iack = t.take(Host::A).pop().unwrap();
        assert!(iack.segment.is_iack(), "{iack}");
        assert_eq!((iack.segment.seq.0, iack.ack), (0, 1001));
        assert_eq!((iack.segment.window, iack.segment.urgent), (700, 0), "the far host's window");
        assert!(v6 || iack.segment.ip.id == 0xffff);
        assert_eq!(iack.ttl, 254, "255, and the hop of this machine");
        // What it holds is told, no more: there is a hole before the rest.
        t.play(&format!(
            "a > P. 2001:3001 ack 1 <ts 1002 5000>
             a < U. {FROM_B} ack 1001
             a > P. 1001:2001 ack 1 <ts 1003 5000>
             a < U. {FROM_B} ack 3001"
        ));
        // Linux answers what lies outside of its window. Nobody else hears of that.
        t.play("a > . 3001 ack 1 <ts 1004 5000>\n quiet");
        t.set_carrier(TO_B, true);
        let mut got = got_bytes(&mut t, Host::B);
        t.play("b > . 1 ack 1001 win 700 <ts 5009 1004>\n a < . 1 ack 1001");
        got += got_bytes(&mut t, Host::B);
        assert_eq!(got, 3000);
        t.play("b > . 1 ack 3001 win 700 <ts 5010 1004>\n a < . 1 ack 3001\n +1000\n quiet");
    }
}

#[test]
fn where_0_is_near_another_number_is_used() {
    let mut t = Script::with(|s| {
        told(Notice::Iack)(s);
        s.link_a = s.link.clone();
    });
    t.open();
    t.set_carrier(TO_A, false);
    t.play(&format!("b > P. 1:1001 ack 1\n b < U. {FROM_A} ack 1001\n quiet"));
}

/// The packet is for the host, and no word of it.
#[test]
fn a_gateway_before_it_passes_an_intermediate_acknowledgement_on() {
    for action in [Action::Split, Action::Custody(Notice::Silence)] {
        let mut t = Script::with(|s| {
            s.v6 = true;
            s.config.default_action = action;
        });
        t.open();
        t.play(&format!(
            "a > P. 1:1001 ack 1
             ~50
             drop
             b > U. {FROM_B} ack 1001 win 9 {{by b}}
             a < U. {FROM_B} ack 1001 win 9
             quiet"
        ));
        t.assert(t.status().custody_bytes == 1000, "held still");
        t.assert(t.status().counters.bypass_events == 0, "nothing goes round us");
    }
}

/// Everything that comes is answered so. The far host's next word opens the window again.
#[test]
fn a_window_is_closed_from_the_beginning_and_opened_by_the_far_host() {
    let mut t = custody(Notice::ZeroWindow);
    t.set_carrier(TO_B, false);
    t.play(
        "a > P. 1:1001 ack 1
         a < . 1 ack 1 win 0 <no sack>
         a > P. 1001:2001 ack 1
         a < . 1 ack 1 win 0
         +300
         a > P. 1:1001 ack 1
         a < . 1 ack 1 win 0
         quiet",
    );
    t.set_carrier(TO_B, true);
    assert_eq!(got_bytes(&mut t, Host::B), 2000);
    t.play("b > . 1 ack 1001 win 700\n a < . 1 ack 1001 win 700\n b > . 1 ack 2001\n a < . 1 ack 2001");
}

/// Who was told that its data is held does not send it again. So both hosts learn when it is given
/// up, and a source that was told nothing goes on by itself.
#[test]
fn what_was_told_to_be_held_is_delivered_or_both_hosts_are_told() {
    for (notice, is_told) in Notice::ALL.map(|n| (n, matches!(n, Notice::Sack | Notice::Iack))) {
        let mut t = Script::with(|s| {
            told(notice)(s);
            s.config.timers.outage_limit = Duration::from_secs(60);
        });
        t.open();
        t.set_carrier(TO_B, false);
        t.play("a > P. 1:1001 ack 1\n drop a\n a > P. 1001:2001 ack 1\n ~70s");
        let was_reset = t.take(Host::A).iter().any(|s| s.segment.flags.rst());
        assert_eq!(was_reset, is_told, "{notice:?}");
        t.assert(t.status().counters.flows_abandoned == u64::from(is_told), "counted");
        t.assert(t.status().custody_bytes == 0, "given up");
    }
}

/// Nothing of what was told outlives the gateway, and its next life resets nobody.
#[test]
fn a_killed_gateway_resets_nobody_whatever_it_told() {
    for notice in Notice::ALL {
        let mut t = custody(notice);
        t.set_carrier(TO_B, false);
        t.play("a > P. 1:1001 ack 1\n drop a\n a > P. 1001:2001 ack 1\n drop a");
        assert!(t.journal().is_empty(), "{notice:?}");
        t.kill_and_restart();
        t.set_carrier(TO_B, true);
        t.play(
            "~2s
             quiet
             a > P. 1:1001 ack 1
             b < P. 1:1001 ack 1
             b > . 1 ack 1001
             a < . 1 ack 1001
             a > P. 1001:2001 ack 1
             b < P. 1001:2001
             b > . 1 ack 2001
             a < . 1 ack 2001
             +1000
             quiet",
        );
    }
}
