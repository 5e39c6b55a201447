//! An outage that comes while nothing is owed: keepalives of hosts are answered here, and what a
//! host does meanwhile is told the other one when the link is back.

use crate::script::network::TO_B;
use crate::script::{Cut, Host, Script, USUAL};
use farlink_gateway::config::{Action, Link, Notice};
use farlink_wire::Duration;

fn idle(v6: bool) -> Script {
    let mut t = Script::with(|s| {
        s.v6 = v6;
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n b > . 1 ack 101\n ~100\n drop");
    t
}

#[test]
fn a_keepalive_is_answered_though_nothing_is_owed() {
    for v6 in [false, true] {
        let mut t = idle(v6);
        t.set_carrier(TO_B, false);
        t.play("~5s\n a > . 100 ack 1\n a < . 1 ack 101\n ~1s\n quiet");
        t.set_carrier(TO_B, true);
        t.play("~1s\n quiet\n a > . 100 ack 1\n b < . 100 ack 1\n b > . 1 ack 101\n a < . 1 ack 101");
    }
}

#[test]
fn a_connection_that_sleeps_outlives_twelve_hours_of_it() {
    let mut t = idle(false);
    t.play("~20s");
    assert_eq!(t.mode(), "dormant");
    t.set_carrier(TO_B, false);
    for _ in 0..6 {
        t.play("~7200s\n a > . 100 ack 1\n a < . 1 ack 101\n ~60s\n quiet");
        assert_eq!(t.mode(), "dormant");
    }
    t.set_carrier(TO_B, true);
    t.play("a > P. 101:201 ack 1\n b < P. 101:201 ack 1\n b > . 1 ack 201\n ~100\n drop");
    assert_eq!(t.mode(), "split");
}

#[test]
fn a_reset_is_told_when_the_link_is_back() {
    for seconds in [1, 100, 3600] {
        let mut t = idle(false);
        t.set_carrier(TO_B, false);
        t.play(&format!("a > R. 101 ack 1\n ~{seconds}s\n quiet"));
        t.set_carrier(TO_B, true);
        t.play("b < R. 101 ack 1\n ~1s\n quiet");
    }
}

#[test]
fn a_reset_behind_custody_is_told_when_the_link_is_back() {
    for seconds in [1, 100, 3600] {
        let mut t = idle(false);
        t.set_carrier(TO_B, false);
        t.play("a > P. 101:201 ack 1\n +40\n a < . 1 ack 201");
        t.play(&format!("a > R. 201 ack 1\n ~{seconds}s\n quiet"));
        t.set_carrier(TO_B, true);
        t.play("b < P. 101:201 ack 1\n b > . 1 ack 201\n b < R. 201 ack 1");
        assert!(t.take(Host::A).is_empty());
    }
}

#[test]
fn a_host_that_closes_is_heard_when_the_link_is_back() {
    for seconds in [1, 100, 3600] {
        let mut t = idle(false);
        t.set_carrier(TO_B, false);
        t.play(&format!("a > F. 101 ack 1\n ~{seconds}s\n drop a"));
        t.set_carrier(TO_B, true);
        t.play("b < F. 101 ack 1\n b > F. 1 ack 102\n ~100\n drop");
    }
}

/// Nothing lasts for ever: not longer than the operator allows.
#[test]
fn after_the_operators_limit_both_hosts_are_told_and_keepalives_pass() {
    for v6 in [false, true] {
        let mut t = Script::with(|s| {
            s.v6 = v6;
            s.config.timers.outage_limit = Duration::from_secs(3600);
            s.link = Some(Link { name: "sat".into(), ..Link::default() });
        });
        t.open();
        t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n b > . 1 ack 101\n ~100\n drop");
        t.set_carrier(TO_B, false);
        t.play("~3590s\n a > . 100 ack 1\n a < . 1 ack 101\n quiet");
        t.play("~20s\n a > . 100 ack 1\n quiet");
        t.set_carrier(TO_B, true);
        t.play("b < . 100 ack 1\n b > . 1 ack 101\n a < . 1 ack 101\n ~1s\n drop");
        // What is owed is given up, and a link that was back in between counts anew.
        t.set_carrier(TO_B, false);
        t.play("~10s\n a > P. 101:201 ack 1\n +40\n a < . 1 ack 201\n ~3500s\n quiet");
        t.assert(t.status().custody_bytes == 100, "not yet");
        t.play("~100s\n a < R. 1 ack 201");
        t.assert(t.status().custody_bytes == 0 && t.status().counters.flows_abandoned == 1, "given up");
    }
}

/// In custody mode nothing is owed, so nobody is reset: it is left to the hosts.
#[test]
fn after_the_operators_limit_custody_mode_lets_go() {
    let mut t = Script::with(|s| {
        s.config.default_action = Action::Custody(Notice::Silence);
        s.config.timers.outage_limit = Duration::from_secs(3600);
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    t.open();
    t.set_carrier(TO_B, false);
    t.play("a > P. 1:101 ack 1\n ~3500s\n quiet");
    t.assert(t.status().custody_bytes == 100, "held");
    t.play("~200s\n quiet");
    t.assert(t.status().custody_bytes == 0 && t.status().counters.flows_abandoned == 0, "let go");
}

/// The same where nobody says that the link is away, but it does not answer.
#[test]
fn a_keepalive_is_answered_while_a_silent_link_is_asked() {
    let link = Link { name: "sat".into(), rate_bps: Some(8_000_000), ..Link::default() };
    let mut t = Script::with(|s| s.link = Some(link));
    t.open_with(USUAL, "<mss 1460,sackOK,ws 7,flsynack>");
    t.play("a > P. 1:101 ack 1\n ~200\n drop\n b > . 1 ack 101 <fl>\n drop");
    let other = "{port 40001}";
    t.play(&format!(
        "a > S 0 win 65535 {USUAL} {other}\n drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack> {other}\n drop
         a > . 1 ack 1 {other}\n drop
         a > P. 1:101 ack 1 {other}\n ~200\n drop
         b > . 1 ack 101 <fl> {other}\n drop
         a > P. 101:201 ack 1 {other}\n ~20s\n drop"
    ));
    assert_eq!(t.with_gateway(|g, _, _| g.status()).links[0].state, "probing");
    t.play("a > . 100 ack 1\n a < . 1 ack 101");
}

/// A connection that sleeps, over a link with a gateway at each end.
fn asleep_between_gateways(v6: bool) -> Script {
    let mut t = Script::with(|s| {
        s.v6 = v6;
        s.gateways = 2;
        s.link_delay = Duration::from_millis(250);
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(8_000_000), ..Link::default() });
    });
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}\n ~250\n drop b
         b > S. 0 ack 1 win 65535 {USUAL}\n ~250\n drop a
         a > . 1 ack 1\n ~250\n drop b
         a > P. 1:101 ack 1\n ~300\n drop
         b > . 1 ack 101\n ~60s\n drop"
    ));
    t.assert(t.status().flows_split == 0, "asleep");
    t
}

fn link_state(t: &mut Script) -> &'static str {
    t.with_gateway(|g, _, _| g.status()).links[0].state
}

/// Nobody says anything but keepalives. The gateway at the other end of the link is asked, too. It
/// does not answer, so its link is away, and whoever asks again is answered here.
#[test]
fn a_keepalive_finds_out_that_its_link_is_silent() {
    for v6 in [false, true] {
        let mut t = asleep_between_gateways(v6);
        t.cut(Cut::All);
        t.play("a > . 100 ack 1\n ~10s\n quiet");
        assert_eq!(link_state(&mut t), "probing");
        for _ in 0..20 {
            t.play("a > . 100 ack 1\n a < . 1 ack 101\n ~3600s\n quiet");
        }
        t.cut(Cut::Nothing);
        t.play("~60s\n drop");
        assert_eq!(link_state(&mut t), "up");
        t.assert(t.status().flows_split == 0, "asleep again");
        t.play("a > . 100 ack 1\n ~250\n b < . 100 ack 1\n b > . 1 ack 101\n ~250\n a < . 1 ack 101\n ~10s\n quiet");
    }
}

/// The gateways live, and the host does not answer: that is for the other host to find out.
#[test]
fn a_keepalive_to_a_host_that_is_off_is_not_answered_here() {
    let mut t = asleep_between_gateways(false);
    for _ in 0..9 {
        t.play("a > . 100 ack 1\n ~250\n b < . 100 ack 1\n ~75s\n quiet");
        assert_eq!(link_state(&mut t), "up");
    }
}

/// Its host ends a connection that sleeps, and the packet is lost: it is sent again from here.
#[test]
fn the_end_of_a_sleeping_connection_is_repeated_over_a_link() {
    let mut t = asleep_between_gateways(false);
    t.cut(Cut::All);
    t.play("a > F. 101 ack 1\n ~3s");
    t.cut(Cut::Nothing);
    t.play("~1s\n drop a\n b < F. 101 ack 1\n drop\n b > F. 1 ack 102\n ~300\n drop b\n a < F. 1 ack 102");
}
