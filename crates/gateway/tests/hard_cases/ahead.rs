//! Sending ahead of a window: towards `b`, behind the link, whose window is 8,000 bytes.

use crate::script::{Host, Script, Seen};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{Config, LegConfig, Link, Rule, SendAhead};
use farlink_wire::Duration;

const WINDOW_BYTES: usize = 8_000;

/// A connection over the link, and what `b` has got of it.
struct Bed {
    t: Script,
    got: Vec<Seen>,
}

impl Bed {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        Self::with(",sackOK", change)
    }

    /// Both hosts have these options.
    fn with(options: &str, change: impl FnOnce(&mut Config)) -> Self {
        Self::over(options, false, change)
    }

    fn over(options: &str, is_metered: bool, change: impl FnOnce(&mut Config)) -> Self {
        let t = Script::with(|s| {
            let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
            let (rate_bps, rtt) = (Some(8_000_000), Some(Duration::from_millis(500)));
            s.link = Some(Link { name: "sat".into(), rate_bps, rtt, leg, is_metered, ..Link::default() });
            change(&mut s.config);
        });
        let mut bed = Self { t, got: Vec::new() };
        bed.play(&format!("a > S 0 win 65535 <mss 1000{options}>\n ~1"));
        bed.play("~400");
        bed.play(&format!("b > S. 0 ack 1 win {WINDOW_BYTES} <mss 1000{options}>\n ~1"));
        bed.play("a > . 1 ack 1\n ~1");
        bed.got.clear();
        bed
    }

    fn ahead(ahead: SendAhead) -> Self {
        Self::new(|config| config.send_ahead = ahead)
    }

    /// Plays this, line by line, whatever the hosts hear of it.
    fn play(&mut self, text: &str) {
        for line in text.lines() {
            self.t.play(line);
            self.t.take(Host::A);
            self.got.extend(self.t.take(Host::B));
        }
    }

    /// The source writes so many segments of 1,000 bytes from here on; where those begin that
    /// arrive.
    fn write(&mut self, from: usize, segments: usize) -> Vec<u32> {
        for at in (0..segments).map(|n| from + n * 1_000) {
            self.play(&format!("a > . {at}:{} ack 1\n ~2", at + 1_000));
        }
        self.play("~20");
        self.arrived()
    }

    /// Where the segments begin that have arrived since this was last asked.
    fn arrived(&mut self) -> Vec<u32> {
        let got = std::mem::take(&mut self.got);
        got.iter().filter(|s| !s.payload.is_empty()).map(|s| s.seq).collect()
    }
}

#[test]
fn a_small_window_is_not_waited_for() {
    for (ahead, sent) in [(SendAhead::Off, 8), (SendAhead::Auto, 9), (SendAhead::On, 30)] {
        let mut t = Bed::ahead(ahead);
        // A link that is idle carries some of it twice.
        let newest = t.write(1, 30).into_iter().max();
        assert_eq!(newest, Some(sent * 1_000 - 999), "{ahead:?}");
    }
}

#[test]
fn a_rule_says_it_for_its_connections() {
    let mut t = Bed::new(|config| {
        config.rules = vec![Rule { send_ahead: Some(SendAhead::On), ..Rule::default() }];
        config.send_ahead = SendAhead::Off;
    });
    assert_eq!(t.write(1, 30).len(), 30);
}

/// Writes what may leave and has all of it acknowledged, so many times; where the next byte stands.
fn learn(t: &mut Bed, rounds: usize) -> usize {
    let mut at = 1;
    for _ in 0..rounds {
        let end = t.write(at, 30).into_iter().max().map_or(at, |newest| newest as usize + 1_000);
        at += 30_000;
        t.play(&format!("~500\nb > . 1 ack {end} win {WINDOW_BYTES}\n ~30"));
        let rest = t.arrived();
        if !rest.is_empty() {
            t.play(&format!("~500\nb > . 1 ack {at} win {WINDOW_BYTES}\n ~1"));
            t.play(&format!("~500\nb > . 1 ack {at} win {WINDOW_BYTES}\n ~1"));
        }
        t.got.clear();
    }
    at
}

#[test]
fn a_host_begins_with_one_segment_ahead_and_earns_the_rest() {
    let mut t = Bed::ahead(SendAhead::Auto);
    let at = learn(&mut t, 4);
    let sent = t.write(at, 100);
    assert_eq!(sent.len(), 100, "it has taken 64 KB and more that was ahead: {sent:?}");
    assert_eq!(t.t.ahead_of().taking_hosts, 1);
}

/// The handshake took 400 ms. Where all takes twice as long it stands in a queue, and more would.
#[test]
fn nothing_leaves_ahead_into_a_queue() {
    for (later_ms, newest) in [(420, 29_001), (800, 16_001)] {
        let mut t = Bed::ahead(SendAhead::Auto);
        assert_eq!(t.write(1, 30).into_iter().max(), Some(8_001));
        // The last one was asked for again, and shows no round trip.
        t.play(&format!("~{later_ms}\nb > . 1 ack 8001 win {WINDOW_BYTES}\n ~1"));
        t.play(&format!("b > . 1 ack 9001 win {WINDOW_BYTES}\n ~60"));
        assert_eq!(t.arrived().into_iter().max(), Some(newest), "{later_ms} ms");
    }
}

#[test]
fn a_metered_link_is_sent_nothing_that_may_be_in_vain() {
    let mut t = Bed::over(",sackOK", true, |config| config.send_ahead = SendAhead::Auto);
    assert_eq!(t.write(1, 30).into_iter().max(), Some(7_001));
}

/// The server echoes a time stamp of the client's that has never come by here. So would a
/// firewall's reset for what is ahead go round, and end the connection there.
#[test]
fn nothing_goes_ahead_where_packets_of_the_host_go_round() {
    for (echoed, newest) in [(500, 8_001), (700, 7_001)] {
        let mut t = Bed::ahead(SendAhead::Auto);
        t.play("a > S 0 win 65535 <mss 1012,sackOK,ts 100 0> {port 41000}\n ~1");
        t.play("~400\nb > S. 0 ack 1 win 8000 <mss 1012,sackOK,ts 500 100> {port 41000}\n ~1");
        t.play(&format!("a > . 1 ack 1 <ts 101 {echoed}> {{port 41000}}\n ~1"));
        t.got.clear();
        for at in (1..30_000).step_by(1_000) {
            t.play(&format!("a > . {at}:{} ack 1 <ts 102 {echoed}> {{port 41000}}\n ~2", at + 1_000));
        }
        t.play("~20");
        assert_eq!(t.arrived().into_iter().max(), Some(newest), "{echoed}");
    }
}

/// A router that translates addresses takes what is beyond the window for its own. Its reset has no
/// acknowledgement, and stands where the host's next byte does.
#[test]
fn a_reset_for_what_was_ahead_is_not_the_hosts() {
    for ahead in [SendAhead::Auto, SendAhead::On] {
        let mut t = Bed::ahead(ahead);
        t.write(1, 30);
        t.play("~400\nb > . 1 ack 8001 win 0\n ~1");
        t.got.clear();
        t.play("b > R 1\n ~1\nb > R 1\n ~1");
        let asked: Vec<_> = t.got.drain(..).collect();
        assert_eq!(asked.len(), 1, "it is asked once: {asked:?}");
        assert_eq!(t.t.mode(), "split", "{ahead:?}");
        let counters = t.t.status().counters;
        assert_eq!((counters.resets_doubted, counters.flows_reset, counters.ahead_refused), (2, 0, 1));
        t.play("~500\nb > . 1 ack 8001 win 8000\n ~40");
        assert_eq!(t.arrived().first(), Some(&8_001), "it goes on: {ahead:?}");
        if ahead == SendAhead::Auto {
            t.play("~500\nb > . 1 ack 16001 win 8000\n ~40");
            let newest = t.arrived().into_iter().max();
            assert_eq!(newest, Some(23_001), "and its window is waited for");
            assert_eq!(t.t.ahead_of().reset_hosts, 1);
        }
    }
}

#[test]
fn other_resets_are_believed() {
    // Who has the connection acknowledges with it.
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 30);
    t.play("~400\nb > R. 1 ack 8001\n ~1");
    assert_eq!(t.t.status().counters.flows_reset, 1);
    // Nothing was ahead.
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 8);
    t.play("~400\nb > R 1\n ~1");
    assert_eq!(t.t.status().counters.flows_reset, 1);
    // Its time is over: whoever is not there says it again.
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 30);
    t.play("~400\nb > R 1\n ~2s\nb > R 1\n ~1");
    assert_eq!(t.t.status().counters.flows_reset, 1);
}

#[test]
fn a_host_whose_window_closed_over_what_was_ahead_is_waited_for() {
    let mut t = Bed::ahead(SendAhead::Auto);
    t.write(1, 30);
    t.play("~400\nb > . 1 ack 8001 win 0\n ~2s");
    t.got.clear();
    t.play("b > . 1 ack 8001 win 8000\n ~100");
    assert_eq!(t.arrived().into_iter().max(), Some(15_001));
    assert_eq!(t.t.ahead_of().dropped_hosts, 1);
}

/// One before the link knows no other window than the gateway does: the one segment is dropped.
#[test]
fn one_segment_that_is_dropped_tells_of_a_router_before_the_link() {
    let mut t = Bed::ahead(SendAhead::Auto);
    t.write(1, 30);
    t.play("~450\nb > . 1 ack 8001 win 8000\n ~40");
    for end in [10_001, 11_001, 12_001, 13_001] {
        t.play(&format!("~2\nb > . 1 ack 8001 win 8000 <sack 9001:{end}>\n ~1"));
    }
    t.play("~900\nb > . 1 ack 16001 win 8000\n ~40");
    assert_eq!(t.t.ahead_of().dropped_hosts, 1);
}

#[test]
fn what_a_receiver_with_a_gap_could_not_hold_follows_what_was_missing() {
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 20);
    // The second segment was lost. Behind it there was room for seven.
    t.play("~400");
    t.play("b > . 1 ack 1001 win 8000\n ~1");
    t.got.clear();
    for end in [3_001, 4_001, 5_001, 6_001] {
        t.play(&format!("b > . 1 ack 1001 win 8000 <sack 2001:{end}>\n ~1"));
    }
    t.play("~200");
    let again = t.arrived();
    assert_eq!(again.first(), Some(&1_001), "{again:?}");
    assert!(again.contains(&9_001) && again.contains(&19_001), "{again:?}");
    assert!(!again.contains(&2_001) && !again.contains(&5_001), "it has those: {again:?}");
    // All of that has arrived: nothing is sent a third time.
    t.play("b > . 1 ack 20001 win 8000\n ~2000");
    assert_eq!(t.arrived(), Vec::<u32>::new());
}

#[test]
fn what_left_behind_a_repetition_is_not_sent_again_for_another_gap() {
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 30);
    // The second and the fifth were lost.
    t.play("~380");
    t.play("b > . 1 ack 1001 win 8000\n ~1");
    t.got.clear();
    for end in [3_001, 4_001] {
        t.play(&format!("b > . 1 ack 1001 win 8000 <sack 2001:{end}>\n ~1"));
    }
    // What lies beyond the window goes again behind the second, and then the fifth is missed.
    t.play("~150");
    for end in [6_001, 7_001, 8_001, 9_001] {
        t.play(&format!("b > . 1 ack 1001 win 8000 <sack 5001:{end} 2001:4001>\n ~4"));
    }
    t.play("~200");
    let again = t.arrived();
    assert!(again.contains(&1_001) && again.contains(&4_001) && again.contains(&29_001), "{again:?}");
    let twice = again.iter().filter(|seq| **seq > 9_000 && again.iter().filter(|s| s == seq).count() > 1);
    assert_eq!(twice.count(), 0, "{again:?}");
}

#[test]
fn a_window_that_opens_over_a_gap_is_no_reason_to_send_all_again() {
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 20);
    t.play("~480");
    t.got.clear();
    // The first was lost. Linux shows more as it takes what comes behind a gap.
    t.play("b > . 1 ack 1 win 9000 <sack 1001:2001>\n ~4");
    assert_eq!(t.arrived(), Vec::<u32>::new());
}

#[test]
fn without_sack_what_is_on_its_way_again_is_not_missing() {
    let mut t = Bed::with("", |config| config.send_ahead = SendAhead::On);
    t.write(1, 20);
    // The second was lost: seven segments behind it are held, the others were dropped.
    t.play("~400");
    t.play("b > . 1 ack 1001 win 8000\n ~1");
    t.got.clear();
    for _ in 0..18 {
        t.play("b > . 1 ack 1001 win 8000\n ~1");
    }
    t.play("~480");
    let again = t.arrived();
    assert!(again.contains(&1_001) && again.contains(&10_001) && again.contains(&19_001), "{again:?}");
    // The repetition arrives, and what follows it, one by one.
    for end in [9_001, 10_001, 11_001, 12_001, 13_001] {
        t.play(&format!("b > . 1 ack {end} win 8000\n ~1"));
    }
    assert_eq!(t.arrived(), Vec::<u32>::new());
}

#[test]
fn a_receiver_that_stops_reading_is_asked_and_not_flooded() {
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 30);
    // It has taken eight segments, and reads none. The others were dropped, each with an answer.
    t.play("~400");
    for _ in 0..23 {
        t.play("b > . 1 ack 8001 win 0\n ~1");
    }
    t.play("~1");
    let mut times = std::collections::BTreeMap::new();
    for _ in 0..30 {
        t.play("~2s");
        let segments = std::mem::take(&mut t.got);
        assert!(segments.iter().all(|s| !s.segment.flags.rst()));
        segments.iter().filter(|s| !s.payload.is_empty()).for_each(|s| *times.entry(s.seq).or_insert(0) += 1);
        if !segments.is_empty() {
            t.play("b > . 1 ack 8001 win 0\n ~1");
        }
    }
    assert!(times.values().all(|n| *n <= 3), "{times:?}");
    t.play("b > . 1 ack 8001 win 8000\n ~1\n ~50");
    let again = t.arrived();
    assert_eq!(again.first(), Some(&8_001), "it reads again: {again:?}");
}

/// It drops a segment whole that ends beyond its window (Linux from 6.17 on).
#[test]
fn what_a_small_window_has_room_for_is_cut_to_it() {
    let mut t = Bed::ahead(SendAhead::On);
    t.write(1, 20);
    t.play("~400");
    t.play("b > . 1 ack 8001 win 500\n ~1");
    t.got.clear();
    t.play("~6s");
    let head = t.got.iter().filter(|s| s.seq == 8_001 && !s.payload.is_empty());
    let again: Vec<_> = head.map(|s| s.payload.len()).collect();
    assert!(!again.is_empty() && again.iter().all(|len| *len == 500), "{again:?}");
}
