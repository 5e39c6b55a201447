//! What long times leave behind: nothing. All memory that traffic makes grow is counted, and stays
//! with the connections that there are, not with what they have done.

use crate::script::network::TO_B;
use crate::script::{Host, Script, USUAL};
use farlink_gateway::config::Link;
use farlink_gateway::engine_status::Memory;

fn memory(t: &mut Script) -> Memory {
    t.with_gateway(|g, _, _| g.memory())
}

/// So many connections, from ports 5000 on.
fn open(t: &mut Script, connections: u32) {
    for port in 5000..5000 + connections {
        t.play(&format!(
            "a > S 0 win 65535 {USUAL} {{port {port}}}
             drop
             b > S. 0 ack 1 win 65535 {USUAL} {{port {port}}}
             drop
             a > . 1 ack 1 {{port {port}}}
             drop"
        ));
    }
}

#[test]
fn a_connection_that_sleeps_and_wakes_leaves_nothing_behind() {
    let mut t = Script::new();
    t.open();
    let mut first = None;
    for round in 0..10_000u32 {
        let (at, end) = (1 + round * 10, 11 + round * 10);
        t.play(&format!("a > P. {at}:{end} ack 1\n drop b\n b > . 1 ack {end}\n ~11s\n drop a"));
        if round == 100 {
            first = Some(memory(&mut t));
        }
    }
    t.assert(t.status().counters.flows_slept == 10_000, "as often as it woke");
    let (first, last) = (first.unwrap(), memory(&mut t));
    assert_eq!(first.state_bytes(), last.state_bytes(), "{first:?} {last:?}");
    assert!(last.timers_bytes < 16 << 10, "{last:?}");
}

#[test]
fn timers_that_nobody_waits_for_any_longer_do_not_pile_up() {
    let mut t = Script::new();
    open(&mut t, 100);
    for round in 0..100u32 {
        let (at, end) = (1 + round * 10, 11 + round * 10);
        for port in 5000..5100 {
            t.play(&format!(
                "a > P. {at}:{end} ack 1 {{port {port}}}\n drop b\n b > . 1 ack {end} {{port {port}}}"
            ));
        }
        // The delayed acknowledgement is given, and the time to fall asleep begins anew.
        t.play("~50\n drop");
    }
    let m = memory(&mut t);
    assert!(m.timers_bytes < 64 << 10, "100 connections, five seconds: {m:?}");
}

/// 30 connections that say something every 30 s, for so many seconds from this time on.
fn speak(t: &mut Script, from_s: u32, to_s: u32) {
    for round in from_s / 30..to_s / 30 {
        let (at, end) = (1 + round * 10, 11 + round * 10);
        for port in 5000..5030 {
            t.play(&format!(
                "a > P. {at}:{end} ack 1 {{port {port}}}\n drop b\n b > . 1 ack {end} {{port {port}}}"
            ));
        }
        t.play("~30s\n drop");
    }
}

#[test]
fn a_day_of_many_connections_takes_no_more_memory_than_an_hour() {
    let mut t = Script::new();
    open(&mut t, 30);
    speak(&mut t, 0, 3600);
    let hour = memory(&mut t);
    speak(&mut t, 3600, 24 * 3600);
    let day = memory(&mut t);
    assert_eq!(hour.state_bytes(), day.state_bytes(), "{hour:?} {day:?}");
    assert_eq!(t.status().counters.flows_slept, 30 * 24 * 120, "each of them after each word");
}

#[test]
fn what_is_told_of_all_connections_is_the_sum_of_them() {
    let mut t = Script::with(|s| s.gateways = 1);
    open(&mut t, 1200);
    let check = |t: &mut Script| {
        let (status, flows) = (t.status(), t.with_gateway(|g, now, _| g.flows(now, 10_000)));
        let count = |mode: &str| flows.iter().filter(|f| f.mode == mode).count() as u64;
        assert_eq!(status.flows_split, count("split"));
        assert_eq!(status.flows_dormant, count("dormant"));
        assert_eq!(status.flows_closed, count("closed"));
        assert_eq!(
            status.custody_bytes,
            flows.iter().map(|f| f.custody_ab_bytes + f.custody_ba_bytes).sum::<u64>()
        );
        assert_eq!(
            status.in_flight_bytes,
            flows.iter().map(|f| f.in_flight_a_bytes + f.in_flight_b_bytes).sum::<u64>()
        );
        let limited =
            |by: &str| flows.iter().filter(|f| f.mode == "split" && f.limited_by == by).count() as u64;
        assert_eq!(status.limited_by.application, limited("application"));
        assert_eq!(status.limited_by.receiver, limited("receiver"));
        (status.flows_split, status.flows_dormant, status.flows_closed, status.custody_bytes)
    };
    assert_eq!(check(&mut t), (1200, 0, 0, 0));
    for port in 5000..6000 {
        t.play(&format!("a > P. 1:{} ack 1 {{port {port}}}\n drop", 2 + port % 7));
    }
    let (split, _, _, custody) = check(&mut t);
    assert!(split == 1200 && custody > 1000, "held");
    for port in 5000..5700 {
        t.play(&format!("b > . 1 ack {} {{port {port}}}\n drop", 2 + port % 7));
    }
    for port in 5700..5750 {
        t.play(&format!("b > R. 1 ack 1 {{port {port}}}\n drop"));
    }
    t.play("~1\n drop");
    let (split, _, closed, _) = check(&mut t);
    assert_eq!((split, closed), (1150, 50));
    t.play("~11s\n drop");
    let (split, dormant, closed, custody) = check(&mut t);
    assert_eq!((split, dormant, closed), (250, 900, 0), "all but those that hold something sleep");
    assert!(custody > 0);
}

#[test]
fn everything_that_grows_is_counted_and_goes_back() {
    let mut t = Script::new();
    let before = memory(&mut t);
    assert_eq!(before.blocks_bytes, 0);
    open(&mut t, 500);
    for port in 5000..5500 {
        t.play(&format!("a > P. 1:1001 ack 1 {{port {port}}}\n drop"));
    }
    let m = memory(&mut t);
    for (name, bytes, least) in [
        ("blocks", m.blocks_bytes, 500 * 1000),
        ("flows", m.flows_bytes, 500 * 300),
        ("relays", m.relays_bytes, 500 * 1000),
        ("boards", m.boards_bytes, 500 * 50),
        ("lists", m.lists_bytes, 500 * 40),
        ("timers", m.timers_bytes, 500 * 16),
        ("ready", m.ready_bytes, 500),
    ] {
        assert!(bytes >= least, "{name}: {m:?}");
    }
    assert_eq!(m.total_bytes(), m.state_bytes() + m.blocks_bytes + m.spare_blocks_bytes);
    assert_eq!(t.status().table_bytes, m.state_bytes());
    for port in 5000..5500 {
        t.play(&format!("b > R. 1 ack 1 {{port {port}}}\n drop"));
    }
    t.play("~60s");
    let after = memory(&mut t);
    assert!(t.mode() == "none" && after.blocks_bytes == 0 && after.relays_bytes == 0, "{after:?}");
    assert!(after.boards_bytes == 0 && after.lists_bytes == 0, "{after:?}");
    assert!(after.state_bytes() < m.state_bytes() / 4, "{after:?} {m:?}");
}

/// SYNs with data wait for a link that is away: their headers, within a sixteenth of the pool, the
/// newest; and they go on a few at a time.
#[test]
fn what_waits_for_a_link_is_bounded_and_goes_on_in_order() {
    let mut t = Script::with(|s| {
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
        s.config.limits.pool_bytes = 1 << 20;
    });
    let before = t.status().memory.half_open_bytes;
    t.set_carrier(TO_B, false);
    for port in 10_000..11_000 {
        t.play(&format!("a > S 0:1000 win 65535 <mss 1460,sackOK,ws 7> {{port {port}}}\n drop"));
    }
    let entries = t.status().half_open as usize;
    assert_eq!(entries, 1_000);
    let kept = t.status().memory.half_open_bytes - before;
    assert!(kept < 1_000 * 1_000, "their data is not kept: {kept}");
    t.set_carrier(TO_B, true);
    let mut ports = Vec::new();
    for turn in 0..100 {
        let seen = t.take(Host::B);
        assert!(seen.len() <= 64, "{turn}: {}", seen.len());
        assert!(seen.iter().all(|s| s.payload.is_empty() && s.seq == 0 && s.segment.flags.syn()));
        ports.extend(seen.iter().map(|s| s.segment.src_port));
        t.play("~10");
    }
    assert!(ports.is_sorted() && ports.last() == Some(&10_999), "the newest, in order: {ports:?}");
    assert!((200..1_000).contains(&ports.len()), "a sixteenth of a MiB: {}", ports.len());
}
