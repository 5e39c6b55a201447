//! Bounds and rules (invariant 8): at each bound the stated answer, forwarding or refusing, never a
//! broken flow.

use crate::script::{Host, Script, USUAL};
use farlink_gateway::config::{Action, Rule};

pub fn rule(action: Action) -> Rule {
    Rule { name: "r".into(), action, ..Rule::default() }
}

/// Opens and tells whether it was split.
fn splits(t: &mut Script) -> bool {
    let before = t.status().counters.flows_split;
    t.open();
    t.status().counters.flows_split > before
}

#[test]
fn without_room_for_another_flow_a_connection_is_forwarded() {
    let mut t = Script::with(|s| s.config.limits.flows_max = 0);
    assert!(!splits(&mut t));
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n b > . 1 ack 101\n a < . 1 ack 101\n ~1000\n quiet");
    t.assert(t.status().counters.flows_forwarded_short > 0, "counted");
}

#[test]
fn while_the_processor_is_short_new_connections_are_forwarded_and_old_ones_go_on() {
    let mut t = Script::new();
    t.open();
    let open = |t: &mut Script, port: u16| {
        t.play(&format!(
            "a > S 0 win 65535 {USUAL} {{port {port}}}
             drop
             b > S. 0 ack 1 win 65535 {USUAL} {{port {port}}}
             drop
             a > . 1 ack 1 {{port {port}}}
             drop"
        ));
        t.status().flows_split
    };
    t.with_gateway(|gateway, _, _| gateway.set_short_of_time(true));
    assert_eq!(open(&mut t, 5000), 1, "a new one is forwarded");
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n b > . 1 ack 101");
    let s = t.status();
    t.assert(s.flows_split == 1 && s.counters.payload_in_bytes == 100, "the old one is relayed");
    t.assert(s.short_of_time && s.counters.flows_forwarded_busy > 0, "said and counted");
    t.assert(s.counters.flows_forwarded_short == 0, "memory was not short");
    t.with_gateway(|gateway, _, _| gateway.set_short_of_time(false));
    assert_eq!(open(&mut t, 5001), 2);
}

#[test]
fn with_a_short_pool_new_connections_are_forwarded() {
    let mut t = Script::with(|s| s.config.limits.pool_bytes = 16 << 10);
    assert!(!splits(&mut t));
}

#[test]
fn with_a_short_pool_old_connections_get_smaller_windows_and_lose_nothing() {
    let mut t = Script::with(|s| {
        s.config.limits.pool_bytes = 300 << 10;
        s.config.limits.relay_bytes = 4 << 20;
    });
    t.open();
    t.play("b > . 1 ack 1 win 0\n drop");
    let (mut at, mut edge) = (1u32, 65_536u32);
    for _ in 0..1000 {
        let end = (at + 1460).min(edge);
        if end <= at {
            break;
        }
        t.play(&format!("a > . {at}:{end} ack 1\n ~50\n drop b"));
        for s in t.take(Host::A) {
            edge = edge.max(s.ack + (u32::from(s.segment.window) << 7));
            at = s.ack.max(at);
        }
        if at < end {
            // Not taken for want of memory: the host repeats it.
            t.play("~1000\n drop");
        }
    }
    t.assert(t.status().pool_bytes <= 300 << 10, "bounded");
    // Everything acknowledged arrives.
    let acked = at;
    let mut have = 1;
    for _ in 0..200 {
        t.play(&format!("drop a\n b > . 1 ack {have} win 512\n ~1"));
        for s in t.take(Host::B) {
            if s.seq <= have {
                have = have.max(s.seq + s.payload.len() as u32);
            }
        }
    }
    assert_eq!(have, acked);
}

/// Opens a connection from this port and says nothing more.
fn idle_from(t: &mut Script, port: u32) {
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7> {{port {port}}}
         drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7> {{port {port}}}
         drop
         a > . 1 ack 1 {{port {port}}}
         drop"
    ));
}

#[test]
fn connections_with_little_to_say_are_split_as_far_as_the_memory_goes() {
    let mut t = Script::new();
    for port in 1000..25_000 {
        idle_from(&mut t, port);
    }
    t.assert(t.status().flows_split == 24_000, "a few kilobytes each");
    // And no farther: with a hundredth of the memory not even a hundredth of the table.
    let mut t = Script::with(|s| s.config.limits.pool_bytes = 5 << 20);
    for port in 1000..5000 {
        idle_from(&mut t, port);
    }
    let s = t.status();
    t.assert(s.flows_split >= 490 && s.flows_split < 2000, "bounded");
    t.assert(s.table_bytes + s.pool_bytes < 5 << 20, "with what they take");
    t.assert(s.counters.flows_forwarded_short == 4000 - s.flows_split, "the rest is forwarded");
}

#[test]
fn connections_that_hold_data_count_with_what_they_may_hold() {
    let mut t = Script::with(|s| s.config.limits.pool_bytes = 5 << 20);
    for port in 1000..2000 {
        idle_from(&mut t, port);
        // Host b takes nothing.
        t.play(&format!("a > P. 1:11 ack 1 {{port {port}}}\n drop"));
    }
    let s = t.status();
    t.assert(s.flows_split >= 100 && s.flows_split < 300, "16 KiB each of three quarters of the pool");
    t.assert(s.counters.flows_forwarded_short > 0, "the rest is forwarded");
}

/// Several connections of host a with a pool of 512 KiB; host b reads nothing of any.
const POOL: usize = 512 << 10;
const PORTS: core::ops::Range<u32> = 5000..5012;

fn many_open() -> Script {
    let mut t = Script::with(|s| s.config.limits.pool_bytes = POOL);
    for p in PORTS {
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7> {{port {p}}}
             drop
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7> {{port {p}}}
             drop
             a > . 1 ack 1 {{port {p}}}
             drop
             b > . 1 ack 1 win 0 {{port {p}}}
             drop"
        ));
    }
    t.assert(t.status().counters.flows_split == PORTS.len() as u64, "all are split");
    t
}

#[test]
fn windows_that_were_promised_do_not_break_the_pools_bound() {
    let mut t = many_open();
    // Each source uses the 65,535 bytes that the handshake promised: 768 KiB together.
    for at in (1..65_536).step_by(1460).take(44) {
        for p in PORTS {
            t.play(&format!("a > . {at}:{} ack 1 {{port {p}}}\n drop", at + 1460));
            t.assert(t.status().pool_bytes <= POOL as u64, "bounded");
        }
    }
    t.assert(t.status().counters.dropped_no_buffer > 0, "what does not fit is refused");
    // Every connection has a part: none is starved by the others.
    for p in PORTS {
        t.play(&format!("a > . 1:1461 ack 1 {{port {p}}}"));
        let seen = t.take(Host::A);
        let acked = seen.iter().filter(|s| u32::from(s.port) == p).map(|s| s.ack).max();
        t.assert(acked.is_some_and(|a| a >= 1461), &format!("port {p} holds its first segment"));
    }
}

#[test]
fn early_bytes_give_way_to_what_is_next() {
    let mut t = many_open();
    // Everything but the first segment: the pool is full of bytes behind gaps.
    for at in (1461..65_536).step_by(1460).take(43) {
        for p in PORTS {
            t.play(&format!("a > . {at}:{} ack 1 {{port {p}}}\n drop", at + 1460));
        }
    }
    t.assert(t.status().pool_bytes <= POOL as u64, "bounded");
    t.assert(t.status().counters.dropped_no_buffer > 0, "what does not fit is refused");
    for p in PORTS {
        t.play(&format!("a > . 1:1461 ack 1 {{port {p}}}\n ~1"));
        let seen = t.take(Host::A);
        let acked = seen.iter().filter(|s| u32::from(s.port) == p).map(|s| s.ack).max();
        t.assert(acked.is_some_and(|a| a >= 1461), &format!("port {p} takes what is next"));
        t.assert(t.status().pool_bytes <= POOL as u64, "bounded");
    }
}

#[test]
fn rules_decide_by_prefix_port_interface_and_dscp() {
    let prefix = |text: &str, len| (text.parse().unwrap(), len);
    let cases: Vec<(Rule, bool)> = vec![
        (Rule { sources: vec![prefix("10.0.1.0", 24)], ..rule(Action::Pass) }, false),
        (Rule { sources: vec![prefix("10.9.0.0", 16)], ..rule(Action::Pass) }, true),
        (Rule { destinations: vec![prefix("10.0.2.1", 32)], ..rule(Action::Pass) }, false),
        (Rule { ports: vec![(80, 80)], ..rule(Action::Pass) }, false),
        (Rule { ports: vec![(443, 8080)], ..rule(Action::Pass) }, true),
        (Rule { dscps: vec![46], ..rule(Action::Pass) }, true),
        (Rule { dscps: vec![0], ..rule(Action::Pass) }, false),
        (Rule { interfaces: vec![farlink_gateway::IfaceId(0)], ..rule(Action::Pass) }, false),
        (Rule { interfaces: vec![farlink_gateway::IfaceId(1)], ..rule(Action::Pass) }, true),
    ];
    for (r, split) in cases {
        let mut t = Script::with(|s| s.config.rules = vec![r.clone()]);
        assert_eq!(splits(&mut t), split, "{r:?}");
        let matched = t.status().rules[0].connections;
        assert_eq!(matched, u64::from(!split), "counted once: {r:?}");
    }
}

/// A repeated SYN is the same connection, and what passes by counts for the rule, both ways.
#[test]
fn a_passed_connection_counts_once_and_so_do_its_bytes() {
    let mut t = Script::with(|s| s.config.rules = vec![rule(Action::Pass)]);
    t.play(
        "a > S 0 win 65535 <mss 1460>\n b < S 0\n ~1000
         a > S 0 win 65535 <mss 1460>\n b < S 0\n ~2000
         a > S 0 win 65535 <mss 1460>\n b < S 0
         b > S. 0 ack 1 win 65535 <mss 1460>\n a < S. 0
         a > . 1 ack 1\n b < . 1
         a > P. 1:101 ack 1\n b < P. 1:101
         b > P. 1:1001 ack 101\n a < P. 1:1001
         a > . 101:3021 ack 1001 {gso 1460}\n drop",
    );
    let counted = |t: &Script| {
        let status = t.status();
        (status.rules[0].connections, status.rules[0].bytes, status.counters.flows_passed)
    };
    assert_eq!(counted(&t), (1, 100 + 1000 + 2920, 1));
    // Its end, and another one between the same ports.
    t.play(
        "a > F. 3021 ack 1001\n drop\n b > F. 1001 ack 3022\n drop\n a > . 3022 ack 1002\n drop
         ~1000
         a > S 500000 win 65535 <mss 1460>\n drop\n a > S 500000 win 65535 <mss 1460>\n drop",
    );
    assert_eq!(counted(&t), (2, 4020, 2));
}

/// Who asks again after a refusal is refused again, and counts once.
#[test]
fn a_refused_connection_counts_once() {
    let mut t = Script::with(|s| s.config.rules = vec![rule(Action::Refuse)]);
    for _ in 0..3 {
        t.play("a > S 0 win 65535 <mss 1460>\n a < icmp unreach 13 about 0\n ~1000\n quiet");
    }
    let status = t.status();
    assert_eq!((status.rules[0].connections, status.counters.flows_refused), (1, 1));
}

/// The first SYN found no room under the rule; the second does.
#[test]
fn a_repeated_syn_is_split_when_there_is_room_by_then() {
    let mut t = Script::with(|s| {
        let r = rule(Action::Split);
        s.config.rules = vec![Rule { connections_max: Some(1), over_limit: Action::Refuse, ..r }];
    });
    t.open();
    t.play("a > S 0 win 65535 <mss 1460> {port 7000}\n drop\n a > R 1\n drop\n ~60000\n drop");
    t.play("a > S 0 win 65535 <mss 1460> {port 7000}\n b < S 0 {port 7000}");
    let status = t.status();
    assert_eq!((status.rules[0].connections, status.rules[0].over_limit), (2, 1));
}

#[test]
fn a_refused_connection_gets_icmp_and_never_a_reset() {
    let mut t = Script::with(|s| s.config.rules = vec![rule(Action::Refuse)]);
    t.play(
        "a > S 0 win 65535 <mss 1460>
         a < icmp unreach 13 about 0
         quiet",
    );
    t.assert(t.status().counters.flows_refused == 1, "counted");
    let mut t = Script::with(|s| {
        s.config.rules = vec![rule(Action::Refuse)];
        s.v6 = true;
    });
    t.play("a > S 0 win 65535 <mss 1440>\n a < icmp unreach 1 about 0\n quiet");
}

#[test]
fn refusals_are_limited() {
    let mut t = Script::with(|s| {
        s.config.rules = vec![rule(Action::Refuse)];
        s.config.limits.challenge_acks_per_s = 3;
    });
    for i in 0..10 {
        let answer = if i < 3 { "a < icmp unreach 13 about 0" } else { "quiet" };
        t.play(&format!("a > S 0 win 65535 <mss 1460> {{port {}}}\n {answer}", 2000 + i));
    }
}

#[test]
fn connections_above_a_rules_limit_get_what_it_says() {
    for (over, answer) in
        [(Action::Refuse, "a < icmp unreach 13 about 0"), (Action::Pass, "b < S 0 {port 5000}")]
    {
        let limited = Rule { connections_max: Some(1), over_limit: over, ..rule(Action::Split) };
        let mut t = Script::with(|s| s.config.rules = vec![limited]);
        assert!(splits(&mut t));
        t.play(&format!("a > S 0 win 65535 <mss 1460> {{port 5000}}\n {answer}\n quiet"));
        t.assert(t.status().rules[0].over_limit == 1, "counted");
    }
}

#[test]
fn what_the_pool_refuses_is_answered() {
    let mut t = Script::with(|s| {
        s.config.limits.pool_bytes = 64 << 10;
        s.config.limits.relay_bytes = 4 << 20;
    });
    t.open();
    t.play("b > . 1 ack 1 win 0\n drop");
    let mut at = 1;
    while t.status().counters.dropped_no_buffer == 0 {
        t.play(&format!("a > . {at}:{} ack 1\n ~50\n drop", at + 1460));
        at += 1460;
        assert!(at < 65_536, "the pool is full before the window");
    }
    let held = at - 1460;
    // Its source is told where we stand each time: one that hears nothing gives up.
    for _ in 0..3 {
        t.play(&format!("a > . {held}:{at} ack 1\n a < . 1 ack {held}\n ~300\n drop"));
    }
}
