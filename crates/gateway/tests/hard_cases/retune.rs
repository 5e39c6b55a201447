//! Congestion control that changes while connections are open.

use crate::script::Script;
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};

fn linked(rate_bps: Option<u64>, cc: Kind) -> Script {
    Script::with(|s| {
        let leg = LegConfig { cc, unfair_window_bytes: Some(100_000), ..LegConfig::default() };
        s.link = Some(Link { name: "sat".into(), rate_bps, leg, ..Link::default() });
    })
}

fn set(t: &mut Script, key: &str, value: &str) -> Result<(), String> {
    t.with_gateway(|g, now, _| g.set(now, key, value))
}

/// Congestion windows towards a and b.
fn windows(t: &mut Script) -> (u64, u64) {
    let flows = t.with_gateway(|g, now, _| g.flows(now, 10));
    (flows[0].cwnd_a_bytes, flows[0].cwnd_b_bytes)
}

#[test]
fn the_controller_of_a_link_changes_in_open_connections_and_only_there() {
    let mut t = linked(None, Kind::NewReno);
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n b > . 1 ack 101\n +40\n ~100\n drop a");
    let (ordinary, before) = windows(&mut t);
    assert_ne!(before, 100_000);
    set(&mut t, "link.sat.cc", "unfair").unwrap();
    assert_eq!(windows(&mut t), (ordinary, 100_000));
    set(&mut t, "link.sat.cc", "bbr").unwrap();
    let (_, with_bbr) = windows(&mut t);
    assert!((1..100_000).contains(&with_bbr), "nothing is in flight: the initial window, {with_bbr}");
    // And data goes on.
    t.play("a > P. 101:201 ack 1\n b < P. 101:201\n b > . 1 ack 201\n ~100\n drop a\n quiet");
}

#[test]
fn what_cannot_be_is_refused() {
    let mut t = linked(None, Kind::Cubic);
    let refused = set(&mut t, "link.sat.cc", "fixed-rate").unwrap_err();
    assert!(refused.contains("no rate to go by"), "{refused}");
    let refused = set(&mut t, "link.sat.cc", "bbr9").unwrap_err();
    assert!(refused.contains("allowed are reno, cubic, hybla, vegas, bbr"), "{refused}");
    let refused = set(&mut t, "ordinary.cc", "hybla").unwrap_err();
    assert!(
        refused.contains("allowed are reno, cubic, vegas, bbr") && !refused.contains("unfair"),
        "{refused}"
    );
    set(&mut t, "ordinary.cc", "vegas").unwrap();
}

#[test]
fn a_link_whose_rate_is_no_longer_known_gets_congestion_control() {
    let mut t = linked(Some(8_000_000), Kind::FixedRate);
    t.open();
    t.play("a > P. 1:101 ack 1\n ~20\n drop b\n b > . 1 ack 101\n ~100\n drop a");
    let (_, before) = windows(&mut t);
    set(&mut t, "link.sat.rate_bps", "unknown").unwrap();
    let (_, after) = windows(&mut t);
    assert_eq!((before, after), (131_070, 14_600), "an initial window, whatever fixed rate had");
}

#[test]
fn flow_control_and_initial_windows_change_and_say_what_is_allowed() {
    let mut t = linked(None, Kind::Cubic);
    for policy in ["fixed", "send-window", "adaptive", "automatic"] {
        set(&mut t, "flow_control.policy", policy).unwrap();
    }
    let refused = set(&mut t, "flow_control.policy", "none").unwrap_err();
    assert!(refused.contains("fixed, send-window, adaptive, automatic"), "{refused}");
    set(&mut t, "flow_control.soft_window", "false").unwrap();
    set(&mut t, "link.sat.initial_window_segments", "16").unwrap();
    assert!(set(&mut t, "ordinary.initial_window_segments", "11").unwrap_err().contains("1 to 10"));
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n b > . 1 ack 101\n +40\n ~100\n drop a");
    let (_, towards_b) = windows(&mut t);
    assert!(towards_b >= 16 * 1400, "{towards_b}");
}

#[test]
fn the_initial_window_follows_the_path_and_what_the_operator_says() {
    // A handshake of 500 ms: 1.6 Mbit/s are 100 kB, 66 segments. Towards `b` is the link.
    let first_flight = |rate_bps: Option<u64>, keys: &[(&str, &str)]| {
        let mut t = linked(rate_bps, Kind::NewReno);
        for (key, value) in keys {
            set(&mut t, key, value).unwrap();
        }
        t.play(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
             drop b
             +500
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
             drop a
             a > . 1 ack 1
             drop b",
        );
        windows(&mut t).1 / 1460
    };
    let auto = [("link.sat.initial_window_segments", "auto")];
    assert_eq!(first_flight(Some(1_600_000), &auto), 66, "its share of the link");
    assert_eq!(first_flight(None, &auto), 10, "nothing is known");
    let two =
        [("link.sat.initial_window_segments", "1"), ("link.sat.long_path_initial_window_segments", "16")];
    assert_eq!(first_flight(Some(1_600_000), &two), 16);
    assert_eq!(first_flight(Some(100_000), &two), 1, "6,250 bytes need no scaling");
    let same = [("link.sat.long_path_initial_window_segments", "same")];
    assert_eq!(first_flight(Some(1_600_000), &same), 10);
}
