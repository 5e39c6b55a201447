//! Windows and custody within reach (invariant 7), super-segments, back-pressure.

use farlink_gateway::config::Link;

use crate::script::{Host, Script};
use farlink_wire::Duration;

/// A gateway before a link, whose relays may hold so much.
fn on_a_link(relay_bytes: u32) -> Script {
    Script::with(|s| {
        s.config.limits.relay_bytes = relay_bytes;
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    })
}

#[test]
fn a_larger_window_is_shown_before_custody_begins() {
    let mut t = on_a_link(1 << 20);
    t.open();
    t.play(
        "a > . 1:2921 ack 1 {gso 1460}
         # Linux takes an ACK behind its window only as far as the largest window it has seen (RFC 5961 5.2).
         a < . 1 ack 1 win 8192
         a < . 1 ack 2921
         b < . 1:2921 ack 1 {gso 1460}",
    );
}

#[test]
fn bytes_in_custody_stay_within_the_largest_window_shown() {
    for limit in [65_535, 200_000, 4 << 20] {
        let mut t = on_a_link(limit);
        t.open();
        // b reads nothing and says so.
        t.play("b > . 1 ack 1 win 0\n drop");
        let (mut at, mut edge, mut largest, mut acked) = (1u32, 65_536u32, 65_535u32, 1u32);
        for _ in 0..4000 {
            let end = (at + 14_600).min(edge);
            if end <= at {
                break;
            }
            t.play(&format!("a > . {at}:{end} ack 1 {{gso 1460}}\n ~50\n drop b"));
            for s in t.take(Host::A) {
                let window = u32::from(s.segment.window) << 7;
                largest = largest.max(window);
                acked = acked.max(s.ack);
                edge = edge.max(s.ack + window);
                assert!(acked - 1 <= largest, "{acked} acknowledged, {largest} shown: {s}");
            }
            at = end;
        }
        assert!(acked >= limit.min(65_535) - 128, "it fills what it may: {acked} of {limit}");
        assert!(acked - 1 <= limit.max(65_535), "and no more: {acked}");
        t.assert(t.status().custody_bytes == u64::from(acked - 1), "all of it is held");
    }
}

/// What a host is shown decides how old an acknowledgement it takes from whoever guesses (RFC 5961
/// section 5).
#[test]
fn windows_out_of_a_known_link_are_no_larger_than_into_it() {
    let link = Link {
        name: "sat".into(),
        rate_bps: Some(10_000_000),
        rtt: Some(Duration::from_millis(100)),
        ..Link::default()
    };
    let mut t = Script::with(|s| {
        s.config.limits.relay_bytes = 16 << 20;
        s.link = Some(link);
    });
    t.open();
    let mut largest = [0; 2];
    for said in ["a > P. 1:1001 ack 1", "b > P. 1:1001 ack 1001", "a > . 1001 ack 1001"] {
        t.play(&format!("{said}\n ~200"));
        for (host, largest) in [Host::A, Host::B].into_iter().zip(&mut largest) {
            let windows = t.take(host).into_iter().map(|s| u32::from(s.segment.window) << 7);
            *largest = windows.fold(*largest, u32::max);
        }
    }
    // Eight times a round trip of the link.
    assert!(largest.iter().all(|w| (500_000..=1_000_000).contains(w)), "{largest:?}");
}

/// A destination far behind a short link is filled as far as the link goes.
#[test]
fn windows_out_of_a_short_link_fill_a_long_leg_behind_it() {
    let link = Link {
        name: "short".into(),
        rate_bps: Some(100_000_000),
        rtt: Some(Duration::from_millis(10)),
        ..Link::default()
    };
    let mut t = Script::with(|s| {
        s.config.limits.relay_bytes = 64 << 20;
        s.link = Some(link);
    });
    let syn = "win 65535 <mss 1460,sackOK,ws 12>";
    t.play(&format!(
        "a > S 0 {syn}\n drop\n +10\n b > S. 0 ack 1 {syn}\n drop\n +500\n a > . 1 ack 1\n ~600\n drop"
    ));
    t.play("b > P. 1:1001 ack 1\n ~600");
    let windows = t.take(Host::B).into_iter().map(|s| u32::from(s.segment.window) << 12);
    let largest = windows.max().unwrap_or_default();
    assert!(largest >= 12_500_000 / 2, "what 100 Mbit/s carry in half a second: {largest}");
}

#[test]
fn without_window_scaling_a_flow_is_pinned_unless_that_is_forbidden() {
    for (pinned, reaches) in
        [(farlink_gateway::config::Pinned::Auto, true), (farlink_gateway::config::Pinned::Never, false)]
    {
        let mut t = Script::with(|s| {
            s.config.limits.relay_bytes = 1 << 20;
            s.config.pinned = pinned;
            s.link = Some(Link { name: "sat".into(), ..Link::default() });
        });
        t.open_with("<mss 1460,sackOK>", "<mss 1460,sackOK>");
        let (mut at, mut edge) = (1u32, 65_536u32);
        for _ in 0..100 {
            let end = (at + 1460).min(edge);
            if end <= at {
                break;
            }
            t.play(&format!("a > . {at}:{end} ack 1\n ~50\n drop b"));
            for s in t.take(Host::A) {
                edge = edge.max(s.ack + u32::from(s.segment.window));
            }
            at = end;
        }
        assert_eq!(at > 65_537, reaches, "{pinned:?}: {at}");
    }
}

#[test]
fn what_was_promised_is_taken() {
    let mut t = Script::with(|s| s.config.limits.relay_bytes = 10_000);
    t.open();
    // The host's own handshake showed 65,535 bytes.
    t.play("b > . 1 ack 1 win 0\n drop");
    let mut acked = 1;
    for at in (1..65_536u32).step_by(1365) {
        let end = (at + 1365).min(65_536);
        t.play(&format!("a > . {at}:{end} ack 1\n ~50\n drop b"));
        acked = t.take(Host::A).iter().map(|s| s.ack).fold(acked, u32::max);
    }
    assert_eq!(acked, 65_536);
    t.play("a > P. 65536:65646 ack 1\n ~50\n drop b");
    assert!(t.take(Host::A).iter().all(|s| s.ack == 65_536), "what was not promised is not");
}

#[test]
fn back_pressure_bound_to_the_send_window() {
    let mut t = Script::with(|s| {
        s.config.limits.relay_bytes = 1 << 20;
        s.config.flow_control = farlink_gateway::config::FlowControl::SendWindow;
    });
    t.open();
    // Initial window of ten segments: no more is asked for than can be sent (Q' <= S), beyond what
    // was promised.
    let (mut at, mut edge) = (1u32, 65_536u32);
    for _ in 0..200 {
        let end = (at + 1460).min(edge);
        if end <= at {
            break;
        }
        t.play(&format!("a > . {at}:{end} ack 1\n ~1\n drop b"));
        for s in t.take(Host::A) {
            edge = edge.max(s.ack + (u32::from(s.segment.window) << 7));
        }
        at = end;
    }
    assert_eq!(edge, 65_536, "nothing was acknowledged downstream");
}

#[test]
fn super_segments_stay_whole_from_read_to_write() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:14601 ack 1 {gso 1460}
         a < . 1 ack 14601
         b < P. 1:14601 ack 1 {gso 1460}
         b > . 1 ack 14601
         a > P. 14601:15001 ack 1
         b < P. 14601:15001 ack 1",
    );
    let mut t = Script::with(|s| s.v6 = true);
    t.open_with("<mss 1440,sackOK,ws 7>", "<mss 1440,sackOK,ws 7>");
    t.play("a > P. 1:14401 ack 1 {gso 1440}\n a < . 1 ack 14401\n b < P. 1:14401 ack 1 {gso 1440}");
}

#[test]
fn a_forwarded_super_segment_keeps_its_segments() {
    let mut t = Script::new();
    t.play("a > P. 1:5001 ack 1 {gso 1000}\n b < P. 1:5001 ack 1 {gso 1000}");
}

#[test]
fn segments_of_another_size_are_cut_anew() {
    let mut t = Script::new();
    t.open_with("<mss 1460,sackOK,ws 7>", "<mss 1000,sackOK,ws 7>");
    t.play("a > P. 1:5841 ack 1 {gso 1460}\n a < . 1 ack 5841\n b < P. 1:5841 ack 1 {gso 1000}");
}

#[test]
fn small_writes_are_not_held_back() {
    let mut t = Script::new();
    t.open();
    for at in 1..21 {
        t.play(&format!("a > P. {at}:{} ack 1\n b < P. {at}:{}\n drop a", at + 1, at + 1));
    }
}

#[test]
fn the_window_moves_on_while_custody_is_held_whatever_its_unit() {
    // 781 units of 128 bytes and a rest that the field cannot say: the whole window has been shown
    // all the same.
    let mut t = on_a_link(100_000);
    t.open();
    let (mut at, mut edge) = (1u32, 65_537u32);
    for round in 0..2 {
        while edge >= at + 1460 {
            let end = (at + 14_600).min(edge);
            t.play(&format!("a > . {at}:{end} ack 1 {{gso 1460}}\n ~1\n drop b"));
            at = end;
            for s in t.take(Host::A) {
                edge = edge.max(s.ack + (u32::from(s.segment.window) << 7));
            }
        }
        // b acknowledges the half of it.
        let half = at - 50_000;
        let before = edge;
        t.play(&format!("b > . 1 ack {half}\n ~50\n drop b"));
        for s in t.take(Host::A) {
            edge = edge.max(s.ack + (u32::from(s.segment.window) << 7));
        }
        assert!(edge > before, "round {round}: the edge stands still at {edge}, {half} acknowledged");
    }
}

#[test]
fn without_a_link_a_relay_earns_what_it_may_hold() {
    let mut t = Script::with(|s| s.config.limits.relay_bytes = 1 << 20);
    t.open();
    let (mut at, mut edge, mut got) = (1u32, 65_536u32, 1u32);
    // a sends all it may; returns how much that was, and what has come to b.
    let mut fill = |t: &mut Script| {
        let from = at;
        loop {
            for s in t.take(Host::A) {
                edge = edge.max(s.ack + (u32::from(s.segment.window) << 7));
            }
            for s in t.take(Host::B) {
                got = got.max(s.seq + s.segment.payload_len as u32);
            }
            let end = (at + 14_600).min(edge);
            if end <= at {
                return (at - from, got);
            }
            t.play(&format!("a > . {at}:{end} ack 1 {{gso 1460}}"));
            at = end;
        }
    };
    // b reads nothing: what Linux hosts show at first is all that is held of a.
    t.play("b > . 1 ack 1 win 0\n drop");
    let (first, _) = fill(&mut t);
    assert!((65_000..=65_536).contains(&first), "{first}");
    // It reads as fast as it gets, and has much more room then.
    let mut most = 0;
    let mut got = 1;
    for _ in 0..200 {
        t.play(&format!("b > . 1 ack {got}"));
        let (bytes, upto) = fill(&mut t);
        (most, got) = (most.max(bytes), upto);
    }
    assert!(most > 200_000, "{most}");
}

#[test]
fn a_host_that_sends_too_fast_loses_one_segment_and_no_other_until_that_has_come_again() {
    let play = |queue_drop: bool, options: &str| {
        let mut t = Script::with(|s| {
            s.config.limits.relay_bytes = 65_535;
            s.config.queue_drop = queue_drop;
        });
        t.open_with(options, options);
        t.play("b > . 1 ack 1 win 0\n drop");
        let mut acked = 1;
        let mut send = |t: &mut Script, at: u32| {
            t.play(&format!("a > . {at}:{} ack 1\n ~50\n drop b", at + 1460));
            acked = t.take(Host::A).iter().map(|s| s.ack).fold(acked, u32::max);
            acked
        };
        for n in 0..35 {
            send(&mut t, 1 + n * 1460);
        }
        let dropped = t.status().counters.dropped_queue;
        let lost = send(&mut t, 1 + 35 * 1460);
        let again = send(&mut t, lost);
        (dropped, (lost - 1) / 1460, again)
    };
    let sack = "<mss 1460,sackOK,ws 7>";
    let (dropped, lost, again) = play(true, sack);
    assert_eq!((dropped, lost), (1, 23), "more than half of 65,535 is held");
    assert_eq!(again, 1 + 36 * 1460, "the rest had been kept");
    assert_eq!(play(false, sack).0, 0);
    assert_eq!(play(true, "<mss 1460,ws 7>").0, 0, "without SACK there may be no fast retransmit");
}

#[test]
fn without_a_link_a_long_way_has_room_for_what_a_fast_one_brings() {
    let mut t = Script::with(|s| s.config.limits.relay_bytes = 1 << 20);
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0
         ~200
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         a < S. 0 ack 1
         a > . 1 ack 1
         drop
         a > . 1:2921 ack 1 {gso 1460}
         ~1",
    );
    let windows = t.take(Host::A).iter().map(|s| u32::from(s.segment.window) << 7).max();
    assert!(windows > Some(200_000), "100 Mbit/s for 200 ms are more than 65,535 bytes: {windows:?}");
}

/// Every second full segment is acknowledged at once (RFC 9293 3.8.6.3), however little each
/// connection may hold and however much of its window is taken: an acknowledgement that waited for
/// room let hosts' timers run out where very many connections share a machine.
#[test]
fn with_little_memory_for_each_every_second_segment_is_answered_at_once() {
    for pool_bytes in [1 << 20, 512 << 20] {
        let mut t = Script::with(|s| s.config.limits.pool_bytes = pool_bytes);
        t.open();
        for (from, to) in [(1, 14_601), (14_601, 43_801)] {
            t.play(&format!("a > . {from}:{to} ack 1 {{gso 1460}}\n ~1\n drop b"));
            assert!(t.take(Host::A).iter().any(|s| s.ack == to), "{to} with a pool of {pool_bytes}");
        }
    }
}

/// RFC 9293 section 3.10.7.4: a window counts only with an acknowledgement that is no older than
/// the newest. Who guesses one of many numbers shows none, and so makes no older acknowledgement
/// pass for a host's.
#[test]
fn what_acknowledges_less_than_before_shows_no_window() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101 win 500
         drop a
         # Above a gap, 20,000 bytes old, and with a window that the host has never had.
         b > P. 501:511 ack -20000 win 8000 {fill 88}
         b < . 101 ack 1
         # b's largest window is 65,535 bytes: what is older is challenged.
         b > P. 1:11 ack -70000 {fill 88}
         b < . 101 ack 1
         quiet",
    );
}
