//! From splitting to custody mode, and back, while connections are open.

use crate::limits;
use crate::script::network::TO_B;
use crate::script::{Host, Script};
use farlink_gateway::config::{Action, Link, LinkAction, Notice, Rule};
use farlink_wire::Duration;

/// A link towards b, and what is done with connections.
fn with_link(action: Action) -> Script {
    let mut t = Script::with(|s| {
        s.config.default_action = action;
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    t.open();
    t
}

fn set(t: &mut Script, key: &str, value: &str) -> Result<(), String> {
    t.with_gateway(|g, now, _| g.set(now, key, value)).map_err(|not_set| not_set.to_string())
}

/// What was acknowledged while it was split is owed, and nothing that comes later.
#[test]
fn who_changes_to_custody_mode_serves_what_it_owes_and_promises_nothing_more() {
    let mut t = with_link(Action::Split);
    t.set_carrier(TO_B, false);
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101");
    assert_eq!(t.journal().len(), 1);
    set(&mut t, "default_action", "custody").unwrap();
    t.play("~1\n quiet\n a > P. 101:201 ack 1\n +500\n quiet");
    assert_eq!((t.mode(), t.journal().len()), ("custody", 1));
    t.set_carrier(TO_B, true);
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 200);
    t.play("b > . 1 ack 51\n +50");
    assert_eq!(t.journal().len(), 1, "half of it is owed still");
    t.play("quiet\n b > . 1 ack 101\n +50");
    assert!(t.journal().is_empty(), "what came later is its source's own");
    // So nothing is lost with the gateway, and nobody is reset.
    t.kill_and_restart();
    t.play(
        "~2s
         quiet
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1
         b > . 1 ack 201
         a < . 1 ack 201
         +1000
         quiet",
    );
}

/// Killed before, it takes with it what it owes: both hosts are asked where they stand, and reset.
#[test]
fn who_dies_before_its_debt_is_paid_resets_both_hosts() {
    let mut t = with_link(Action::Split);
    t.set_carrier(TO_B, false);
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101");
    set(&mut t, "default_action", "custody").unwrap();
    t.play("a > P. 101:201 ack 1\n quiet");
    t.kill_and_restart();
    t.play("a < . 0\n b < . 0\n b > . 1 ack 1\n b < R. 1\n a > . 201 ack 1\n a < R. 1");
}

/// A link that stays away ends what is owed with a word to both hosts, in custody mode, too.
#[test]
fn a_debt_that_cannot_be_paid_is_told() {
    for owes in [true, false] {
        let mut t = Script::with(|s| {
            s.link = Some(Link { name: "sat".into(), ..Link::default() });
            s.config.timers.outage_limit = farlink_wire::Duration::from_secs(60);
        });
        t.open();
        t.set_carrier(TO_B, false);
        if owes {
            t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101");
        }
        set(&mut t, "default_action", "custody").unwrap();
        t.play(if owes { "a > P. 101:201 ack 1" } else { "a > P. 1:101 ack 1" });
        t.play("~100s");
        let resets = t.take(Host::A).iter().filter(|s| s.segment.flags.rst()).count();
        assert_eq!(resets > 0, owes);
    }
}

/// What is here is acknowledged at once, and owed from then on.
#[test]
fn who_changes_to_splitting_begins_to_promise() {
    let mut t = with_link(Action::Custody(Notice::Silence));
    t.set_carrier(TO_B, false);
    t.play("a > P. 1:101 ack 1\n +500\n quiet");
    assert!(t.journal().is_empty());
    set(&mut t, "default_action", "split").unwrap();
    t.play("~1\n a < . 1 ack 101");
    assert_eq!((t.mode(), t.journal().len()), ("split", 1));
    t.play("a > P. 101:201 ack 1\n +40\n a < . 1 ack 201");
    t.set_carrier(TO_B, true);
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 200);
    t.play("b > . 1 ack 201\n +1000\n quiet");
    assert!(t.journal().is_empty());
    // And back, while nothing is owed.
    set(&mut t, "default_action", "custody").unwrap();
    t.play(
        "a > P. 201:301 ack 1
         b < P. 201:301 ack 1
         +150
         quiet
         b > . 1 ack 301
         a < . 1 ack 301",
    );
}

/// One whose handshake is under way has the mode that its rule has when it is complete. Those of
/// other rules stay as they are.
#[test]
fn each_rule_changes_for_itself() {
    let mut t = Script::with(|s| {
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
        let rule = Rule { name: "web".into(), ports: vec![(80, 80)], ..limits::rule(Action::Split) };
        s.config.rules = vec![rule];
    });
    t.play("a > S 0 win 65535 <mss 1460>\n drop b\n b > S. 0 ack 1 win 65535 <mss 1460>\n drop a");
    let refused = set(&mut t, "rule.mail.action", "custody").unwrap_err();
    assert!(refused.contains("rule.NAME.action"), "{refused}");
    let refused = set(&mut t, "rule.web.action", "both").unwrap_err();
    assert!(refused.contains("split and custody"), "{refused}");
    set(&mut t, "rule.web.action", "custody").unwrap();
    t.play("a > . 1 ack 1\n drop b\n a > P. 1:101 ack 1\n b < P. 1:101\n +150\n quiet");
    assert_eq!(t.mode(), "custody");
    set(&mut t, "default_action", "split").unwrap();
    assert_eq!(t.mode(), "custody");
    let settings = t.with_gateway(|g, _, _| g.settings());
    let of = |key: &str| settings.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
    assert_eq!((of("rule.web.action"), of("default_action")), (Some("custody"), Some("split")));
}

/// What comes into custody mode while the gateway runs tells sources what the file says.
#[test]
fn sources_hear_what_is_configured_whoever_asks_for_custody_mode() {
    for key in ["default_action", "link.sat.action"] {
        let mut t = Script::with(|s| {
            s.config.custody_notice = Notice::ZeroWindow;
            s.link = Some(Link { name: "sat".into(), ..Link::default() });
        });
        t.open();
        set(&mut t, key, "custody").unwrap();
        t.play("a > P. 1:1001 ack 1\n b < P. 1:1001");
        t.set_carrier(TO_B, false);
        t.play("a < . 1 ack 1 win 0\n +1000\n quiet");
    }
}

/// A link says it for connections that no rule names.
#[test]
fn a_link_has_a_word_where_no_rule_has() {
    let over = |default_action, rules: Vec<Rule>, said| {
        let mut t = Script::with(|s| {
            s.config.default_action = default_action;
            s.config.rules = rules;
            s.link = Some(Link { name: "sat".into(), action: said, ..Link::default() });
        });
        t.open();
        t
    };
    let custody = Some(LinkAction::Custody(Notice::Silence));
    let named = || vec![Rule { name: "all".into(), action: Action::Split, ..Rule::default() }];
    assert_eq!(over(Action::Split, vec![], None).mode(), "split");
    assert_eq!(over(Action::Split, vec![], custody).mode(), "custody");
    assert_eq!(over(Action::Split, named(), custody).mode(), "split");
    assert_eq!(over(Action::Custody(Notice::Silence), vec![], Some(LinkAction::Split)).mode(), "split");
    let mut t = over(Action::Split, vec![], None);
    for (value, mode) in [("custody", "custody"), ("split", "split"), ("auto", "split"), ("default", "split")]
    {
        set(&mut t, "link.sat.action", value).unwrap();
        t.play("~1");
        assert_eq!(t.mode(), mode, "{value}");
    }
    assert!(set(&mut t, "link.sat.action", "pass").unwrap_err().contains("split, custody, auto and default"));
}

/// By evidence: what came back twice within a day comes and goes. Far links are split all the same.
#[test]
fn a_near_link_that_comes_and_goes_is_held_for_in_custody_mode() {
    for (rtt_ms, mode) in [(20, "custody"), (500, "split")] {
        let mut t = Script::with(|s| {
            let (name, rtt) = ("sat".into(), Some(Duration::from_millis(rtt_ms)));
            let action = Some(LinkAction::Auto(Notice::Silence));
            s.link = Some(Link { name, rtt, action, rate_bps: Some(8_000_000), ..Link::default() });
        });
        t.open();
        for _ in 0..2 {
            assert_eq!(t.mode(), "split");
            t.set_carrier(TO_B, false);
            t.play("~1s\n quiet");
            t.set_carrier(TO_B, true);
            t.play("~100\n drop");
        }
        assert_eq!(t.mode(), mode, "{rtt_ms} ms");
        // What it promises from now on.
        t.play("a > P. 1:101 ack 1\n ~100\n drop b");
        let acked = t.take(Host::A).iter().any(|s| s.ack == 101);
        assert_eq!(acked, mode == "split", "{rtt_ms} ms");
    }
}

/// Nobody would reset its hosts if the gateway died with what it holds.
#[test]
fn who_finds_no_room_in_the_journal_is_promised_nothing_more() {
    let mut t = with_link(Action::Split);
    t.set_carrier(TO_B, false);
    t.with_gateway(|_, _, net| net.journal_is_full = true);
    // The acknowledgement that was due then says what the far host has, and no more.
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 1\n a > P. 101:201 ack 1\n +500\n quiet");
    assert_eq!(t.mode(), "custody");
    t.set_carrier(TO_B, true);
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 200);
    t.play("b > . 1 ack 201\n a < . 1 ack 201\n +50");
    assert!(t.journal().is_empty());
}
