//! Congestion control that changes while connections are open.

use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};

fn linked(rate_bps: Option<u64>, cc: Kind) -> Script {
    Script::with(|s| {
        let leg = LegConfig { cc, unfair_window_bytes: Some(100_000), ..LegConfig::default() };
        s.link = Some(Link { name: "sat".into(), rate_bps, leg, ..Link::default() });
    })
}

fn set(t: &mut Script, key: &str, value: &str) -> Result<(), String> {
    t.with_gateway(|g, now, _| g.set(now, key, value)).map_err(|not_set| not_set.to_string())
}

/// The handshake, with a gateway at the other end of the link.
fn open_with_gateway(t: &mut Script) {
    t.play("a > S 0 win 65535 <mss 1460,sackOK>\n drop b\n b > S. 0 ack 1 win 65535 <mss 1460,sackOK,flsynack>\n drop a");
    t.play("a > . 1 ack 1\n ~1\n drop");
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
    open_with_gateway(&mut t);
    t.play("a > P. 1:101 ack 1\n ~20\n drop b\n b > . 1 ack 101 <fl>\n ~100\n drop");
    let (_, before) = windows(&mut t);
    set(&mut t, "link.sat.rate_bps", "unknown").unwrap();
    let (_, after) = windows(&mut t);
    assert_eq!((before, after), (131_070, 14_560), "an initial window, whatever fixed rate had");
}

/// What a relay may hold, and so its window, goes by the rate; and so does a controller that knows
/// it, where no gateway answers.
#[test]
fn another_rate_reaches_open_connections() {
    for gateway in [true, false] {
        let mut t = Script::with(|s| {
            let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
            let rtt = Some(farlink_wire::Duration::from_millis(100));
            let link = Link { name: "sat".into(), rate_bps: Some(2_000_000), rtt, leg, ..Link::default() };
            s.link = Some(link);
            s.config.limits.relay_bytes = 4 << 20;
        });
        let answer = if gateway { ",flsynack" } else { "" };
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7>\n ~100\n drop b
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7{answer}>\n drop a
             a > . 1 ack 1\n ~1\n drop"
        ));
        // Enough for two trains without a queue.
        let mut at = 1;
        for _ in 0..40 {
            t.play(&format!("a > P. {at}:{} ack 1\n ~6\n drop", at + 1_400));
            at += 1_400;
        }
        t.play("~40\n drop");
        let mark = if gateway { " <fl>" } else { "" };
        for n in 1..=40 {
            t.play(&format!("b > . 1 ack {} win 8192{mark}\n ~6\n drop", 1 + 1_400 * n));
        }
        let (_, before) = windows(&mut t);
        set(&mut t, "link.sat.rate_bps", "20000000").unwrap();
        let (_, after) = windows(&mut t);
        assert!(after >= before * 4, "gateway {gateway}: {before} bytes, then {after}");
        set(&mut t, "link.sat.rate_bps", "2000000").unwrap();
        assert_eq!(windows(&mut t).1, before, "gateway {gateway}");
    }
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
    assert_eq!(first_flight(Some(1_600_000), &same), 66, "as `initial_window_segments`, which is `auto`");
    let ten = [("link.sat.initial_window_segments", "10"), same[0]];
    assert_eq!(first_flight(Some(1_600_000), &ten), 10);
}

/// Every parameter and its value, in one line.
fn settings(t: &mut Script) -> String {
    let all = t.with_gateway(|g, _, _| g.settings());
    all.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_in_force_is_told_as_set_takes_it() {
    let mut t = linked(None, Kind::Cubic);
    let wanted = "link.sat.rate_bps=unknown link.sat.cc=cubic link.sat.initial_window_segments=auto \
                  link.sat.long_path_initial_window_segments=same link.sat.up=true link.sat.contact=true link.sat.action=default link.sat.duplex=full \
                  link.sat.xcp_weight=none link.sat.plain_weight=none \
                  link.sat.split_weight=auto link.sat.forwarded_weight=auto \
                  link.sat.xcp_context=pair \
                  default_action=split send_ahead=auto ordinary.cc=cubic ordinary.initial_window_segments=10 flow_control.policy=fixed flow_control.soft_window=true \
                  flow_control.queue_drop=false limits.relay_bytes=65535 limits.pool_bytes=536870912";
    assert_eq!(settings(&mut t), wanted);
    for (key, value) in [
        ("link.sat.rate_bps", "2000000"),
        ("link.sat.cc", "hybla"),
        ("link.sat.initial_window_segments", "4"),
        ("link.sat.long_path_initial_window_segments", "16"),
        ("link.sat.up", "false"),
        ("link.sat.contact", "false"),
        ("link.sat.action", "auto"),
        ("link.sat.duplex", "half"),
        ("link.sat.forwarded_weight", "3"),
        ("link.sat.split_weight", "2"),
        ("default_action", "custody"),
        ("ordinary.cc", "vegas"),
        ("ordinary.initial_window_segments", "auto"),
        ("flow_control.policy", "automatic"),
        ("flow_control.soft_window", "false"),
        ("flow_control.queue_drop", "true"),
        ("limits.relay_bytes", "1048576"),
        ("limits.pool_bytes", "104857600"),
    ] {
        set(&mut t, key, value).unwrap();
        assert!(settings(&mut t).contains(&format!("{key}={value}")), "{key} {value}");
    }
    // All of it said again changes nothing.
    let before = settings(&mut t);
    for (key, value) in t.with_gateway(|g, _, _| g.settings()) {
        set(&mut t, &key, &value).unwrap();
    }
    assert_eq!(settings(&mut t), before);
}

#[test]
fn quantities_are_read_as_people_type_them() {
    let mut t = linked(None, Kind::Cubic);
    for (key, typed, said) in [
        ("link.sat.rate_bps", "2.5 Mbit/s", "2500000"),
        ("link.sat.rate_bps", "8M", "8000000"),
        ("link.sat.rate", "6 Mbit/s", "6000000"),
        ("limits.relay_bytes", "1 MiB", "1048576"),
        ("limits.pool_bytes", "64M", "67108864"),
    ] {
        set(&mut t, key, typed).unwrap();
        let shown =
            if key.ends_with(".rate") { format!("{key}_bps={said}") } else { format!("{key}={said}") };
        assert!(settings(&mut t).contains(&shown), "{key} {typed}");
    }
    for (key, typed, wrong) in [
        ("link.sat.rate_bps", "0", "too little"),
        ("link.sat.rate_bps", "8 parsec", "unknown unit `parsec`"),
        ("link.sat.split_weight", "0", "1 to 1000 and auto"),
        ("link.sat.rate", "6", "needs a unit"),
        ("link.sat.rate", "6 Mbaud", "unknown unit `Mbaud`; allowed: a rate"),
        ("limits.pool_bytes", "1k", "`1k`"),
    ] {
        let refused = set(&mut t, key, typed).unwrap_err();
        assert!(refused.contains("allowed") && refused.contains(wrong), "{refused}");
    }
    set(&mut t, "link.sat.rate", "unknown").unwrap();
    assert!(settings(&mut t).contains("link.sat.rate_bps=unknown"));
    let unknown = set(&mut t, "link.sat.speed", "8M").unwrap_err();
    assert!(unknown.contains("link.NAME.rate_bps") && unknown.contains("NAME is one of sat"), "{unknown}");
}

#[test]
fn a_controller_that_was_named_can_be_taken_back() {
    let mut t = linked(None, Kind::Cubic);
    set(&mut t, "link.sat.cc", "auto").unwrap();
    assert!(settings(&mut t).contains("link.sat.cc=auto"), "the gateways find the rate out");
    set(&mut t, "link.sat.cc", "reno").unwrap();
    assert!(settings(&mut t).contains("link.sat.cc=reno"));
    set(&mut t, "link.sat.rate_bps", "8000000").unwrap();
    set(&mut t, "link.sat.cc", "auto").unwrap();
    assert!(settings(&mut t).contains("link.sat.cc=fixed-rate"));
}

/// What held a connection: the name that people read, after this play.
fn held_by(t: &mut Script) -> (&'static str, &'static str) {
    let flows = t.with_gateway(|g, now, _| g.flows(now, 10));
    (flows[0].limited_by, flows[0].held_by)
}

#[test]
fn a_connection_all_of_whose_data_is_under_way_waits_for_its_source() {
    let mut t = linked(Some(8_000_000), Kind::FixedRate);
    t.open();
    t.play("a > P. 1:101 ack 1\n ~20\n drop b");
    assert_eq!(held_by(&mut t), ("application", "nothing to send"));
}

/// A window that was too small once is no reason for ever.
#[test]
fn a_congestion_window_is_the_reason_only_while_it_is() {
    let mut t = linked(None, Kind::Cubic);
    set(&mut t, "link.sat.initial_window_segments", "1").unwrap();
    t.open();
    t.play("a > . 1:1001 ack 1\n drop b\n a > P. 1001:2001 ack 1\n ~20");
    assert_eq!(held_by(&mut t), ("link", "congestion window"));
    set(&mut t, "link.sat.cc", "unfair").unwrap();
    assert_ne!(held_by(&mut t).1, "congestion window");
}

/// Everything that may be held is under way: the source is not the reason.
#[test]
fn a_window_that_the_gateway_cannot_open_is_the_reason() {
    let mut t = Script::with(|s| {
        s.config.limits.relay_bytes = 40_000;
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(100_000_000), leg, ..Link::default() });
    });
    open_with_gateway(&mut t);
    // Its handshake showed the source 65,535 bytes; all of them are filled, and the link has taken
    // them.
    t.play("b > . 1 ack 1 win 65535\n drop");
    for at in (1..65_536u32).step_by(1285) {
        t.play(&format!("a > P. {at}:{} ack 1\n ~1\n drop", (at + 1285).min(65_536)));
    }
    t.play("~10\n drop");
    assert_eq!(held_by(&mut t), ("gateway", "what may be held"));
}

/// Sends as much as the windows that `a` is shown allow, while the link takes all of it and `b`
/// acknowledges nothing.
fn fill(t: &mut Script, at: &mut u32, edge: &mut u32) {
    for _ in 0..200 {
        let end = (*at + 14_600).min(*edge);
        if end > *at {
            t.play(&format!("a > . {at}:{end} ack 1 {{gso 1460}}\n ~50\n drop b"));
        } else {
            t.play("~50\n drop b");
        }
        *at = end.max(*at);
        let answers = t.take(Host::A);
        *edge = answers.iter().map(|s| s.ack + (u32::from(s.segment.window) << 7)).fold(*edge, u32::max);
    }
}

/// A larger bound lets an open connection hold more, a smaller one less; what was promised is taken
/// all the same.
#[test]
fn what_an_open_connection_may_hold_changes_with_the_bound() {
    let mut t = Script::with(|s| {
        s.config.limits.relay_bytes = 256 << 10;
        s.config.pinned = farlink_gateway::config::Pinned::Never;
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        let rtt = Some(farlink_wire::Duration::from_millis(500));
        s.link =
            Some(Link { name: "sat".into(), rate_bps: Some(1_000_000_000), rtt, leg, ..Link::default() });
    });
    t.open();
    let held = |t: &mut Script| t.status().custody_bytes;
    // The far host's acknowledgements come until nothing is held: only then a larger window may be
    // shown.
    t.play("a > P. 1:101 ack 1\n ~1\n drop\n b > . 1 ack 101 win 65535\n ~100\n drop");
    set(&mut t, "limits.relay_bytes", "1048576").unwrap();
    t.play("a > P. 101:201 ack 1\n ~1\n drop\n b > . 1 ack 201 win 65535\n ~100\n drop b");
    let shown = t.take(Host::A).iter().map(|s| s.ack + (u32::from(s.segment.window) << 7)).max();
    let (mut at, mut edge) = (201, shown.unwrap());
    assert!((900_000..=1_100_000).contains(&(edge - at)), "{edge}");
    fill(&mut t, &mut at, &mut edge);
    assert!(held(&mut t) > 900_000, "{}", held(&mut t));
    // Less from now on: what is held goes on, and no more is asked for than the new bound.
    set(&mut t, "limits.relay_bytes", "262144").unwrap();
    t.play(&format!("b > . 1 ack {at} win 65535\n ~100\n drop"));
    let before = edge;
    fill(&mut t, &mut at, &mut edge);
    assert!(held(&mut t) <= 270_000.max(u64::from(before - 201)), "{}", held(&mut t));
    t.play(&format!("b > . 1 ack {at} win 65535\n ~100\n drop"));
    fill(&mut t, &mut at, &mut edge);
    assert!(held(&mut t) <= 270_000, "{}", held(&mut t));
}

#[test]
fn bounds_that_cannot_be_are_refused() {
    let mut t = Script::new();
    for (key, value, hint) in [
        ("limits.relay_bytes", "1000", "131072 to 1073741824 bytes"),
        ("limits.relay_bytes", "lots", "131072 to 1073741824 bytes"),
        ("limits.pool_bytes", "0", "1048576 to 1099511627776 bytes"),
        ("limits.flows_max", "7", "limits.relay_bytes and limits.pool_bytes"),
    ] {
        let refused = set(&mut t, key, value).unwrap_err();
        assert!(refused.contains(hint), "{key}={value}: {refused}");
    }
}

/// A pool that has become too small for another connection forwards it, and a larger one has room
/// again.
#[test]
fn another_pool_counts_at_once() {
    let mut t = Script::with(|s| s.config.limits.relay_bytes = 1 << 20);
    let opens = |t: &mut Script, port: u32| {
        let before = t.status().counters.flows_split;
        for line in ["a > S 0 win 65535 <mss 1460>", "b > S. 0 ack 1 win 65535 <mss 1460>", "a > . 1 ack 1"] {
            t.play(&format!("{line} {{port {port}}}\n drop"));
        }
        t.status().counters.flows_split > before
    };
    assert!((5000..5400).all(|port| opens(&mut t, port)));
    // Half of it at most is for the state of connections: less than so many need.
    set(&mut t, "limits.pool_bytes", "1048576").unwrap();
    assert!(!opens(&mut t, 6000));
    set(&mut t, "limits.pool_bytes", "16777216").unwrap();
    assert!(opens(&mut t, 6001));
}

/// The burst from which a link's rate shows is sent while somebody wants to know it, and not
/// longer.
#[test]
fn whether_a_rate_is_to_be_found_out_changes_too() {
    let begins_with = |rate_bps, cc, estimate_rate, set_it: (&str, &str)| {
        let mut t = Script::with(|s| {
            let leg = LegConfig { cc, ..LegConfig::default() };
            s.link = Some(Link { name: "sat".into(), rate_bps, leg, estimate_rate, ..Link::default() });
        });
        set(&mut t, set_it.0, set_it.1).unwrap();
        open_with_gateway(&mut t);
        windows(&mut t).1 / 1_400
    };
    let unknown = ("link.sat.rate_bps", "unknown");
    assert_eq!(
        begins_with(Some(8_000_000), Kind::FixedRate, false, unknown),
        33,
        "32 segments of 1456 bytes"
    );
    assert_eq!(begins_with(None, Kind::Vegas, false, ("link.sat.cc", "auto")), 33);
    assert_eq!(begins_with(None, Kind::Bbr, true, ("link.sat.cc", "vegas")), 10, "who needs no rate");
}
