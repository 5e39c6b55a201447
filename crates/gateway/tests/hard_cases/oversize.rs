//! Segments that are larger than a packet, towards `b`, behind a link that carries 8 Mbit/s there
//! and 32 kbit/s back.

use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link, Oversize, Rule, SendAhead};
use farlink_wire::Duration;

/// A connection over the link, and what `b` has got of it.
struct Bed {
    t: Script,
    /// Fragments that have arrived, as offsets of their payload.
    fragments: Vec<(u32, u32)>,
    /// Segments that have arrived in one packet.
    whole: Vec<(u32, u32)>,
    sent: u32,
    /// What follows all that has arrived in packets.
    end: u32,
}

impl Bed {
    fn new(oversize: Oversize) -> Self {
        Self::over(oversize, 32_000, SendAhead::On)
    }

    fn over(oversize: Oversize, rate_in_bps: u64, send_ahead: SendAhead) -> Self {
        Self::with(rate_in_bps, send_ahead, |link| link.oversize = oversize)
    }

    /// The same over a link that differs so.
    fn with(rate_in_bps: u64, send_ahead: SendAhead, differs: impl FnOnce(&mut Link)) -> Self {
        let t = Script::with(|s| {
            let mut link = Link {
                name: "sat".into(),
                rate_bps: Some(8_000_000),
                rate_in_bps: Some(rate_in_bps),
                oversize: Oversize::Auto,
                rtt: Some(Duration::from_millis(500)),
                leg: LegConfig { cc: Kind::FixedRate, ..LegConfig::default() },
                ..Link::default()
            };
            differs(&mut link);
            s.link = Some(link);
            s.config.send_ahead = send_ahead;
            s.config.limits.relay_bytes = 1 << 20;
        });
        let mut bed = Self { t, fragments: Vec::new(), whole: Vec::new(), sent: 1, end: 1 };
        bed.open("");
        bed
    }

    fn open(&mut self, port: &str) {
        self.open_with("win 65535 <mss 1460,sackOK,ws 3>", port);
    }

    fn open_with(&mut self, syn: &str, port: &str) {
        (self.sent, self.end) = (1, 1);
        self.play(&format!(
            "a > S 0 {syn} {port}\n ~400\n b > S. 0 ack 1 {syn} {port}\n ~1\n a > . 1 ack 1 {port}\n ~1"
        ));
        self.forget();
    }

    fn forget(&mut self) {
        self.fragments.clear();
        self.whole.clear();
    }

    /// Plays this, line by line, whatever `a` hears of it.
    fn play(&mut self, text: &str) {
        for line in text.lines() {
            self.t.play(line);
            self.t.take(Host::A);
            let (segments, lines) = self.t.take_both(Host::B);
            for range in lines.iter().filter_map(|line| line.split("fragment ").nth(1)) {
                let (from, to) = range.trim().split_once(':').expect("a range");
                self.fragments.push((from.parse().unwrap(), to.parse().unwrap()));
            }
            self.end = segments.iter().map(|s| s.seq + s.payload.len() as u32).fold(self.end, u32::max);
            let data = segments.iter().filter(|s| !s.payload.is_empty());
            self.whole.extend(data.map(|s| (s.seq, s.seq + s.payload.len() as u32)));
        }
    }

    /// The source writes so many kilobytes, in full segments.
    fn write(&mut self, kilobytes: u32, port: &str) {
        let end = self.sent + kilobytes * 1_000;
        while self.sent < end {
            let (from, to) = (self.sent, end.min(self.sent + 1_460));
            self.play(&format!("a > . {from}:{to} ack 1 {port}\n ~3"));
            self.sent = to;
        }
        self.play("~60");
    }

    /// All that has come in packets is acknowledged, a round trip later, with these options.
    fn acknowledge(&mut self, options: &str) {
        let end = self.end;
        self.play(&format!("~400\n b > . 1 ack {end} win 60000 {options}\n ~1"));
    }

    /// How many segments came in fragments: each has one that begins it.
    fn oversized(&self) -> usize {
        self.fragments.iter().filter(|(from, _)| *from == 0).count()
    }

    /// It takes segments that are larger than a packet, and has told so.
    fn taken() -> Self {
        let mut bed = Self::new(Oversize::Auto);
        bed.write(8, "");
        bed.acknowledge("<sack 1:2921>");
        bed.forget();
        bed
    }
}

#[test]
fn a_copy_of_what_was_sent_finds_out_whether_they_are_taken() {
    let mut bed = Bed::new(Oversize::Auto);
    bed.write(8, "");
    assert_eq!(bed.fragments, [(0, 1_480), (1_480, 2_940)], "20 bytes of header, and two packets' payload");
    assert!(bed.whole.iter().any(|(from, _)| *from == 1), "it has come before: {:?}", bed.whole);
    bed.acknowledge("<sack 1:2921>");
    bed.forget();
    bed.write(40, "");
    assert!(bed.oversized() >= 2 && bed.whole.is_empty(), "{:?} {:?}", bed.fragments, bed.whole);
    let largest = bed.fragments.iter().map(|(_, to)| *to).max().unwrap();
    assert!((4_000..=8 * 1_480).contains(&largest), "the first ones are not the largest: {largest}");
}

/// 9.6 kbit/s bring 18 acknowledgements of 40 bytes in a round trip and 100 ms.
#[test]
fn beside_the_copy_few_packets_leave_where_acknowledgements_are_slow() {
    let end = 1 + 18 * 1_460;
    let mut bed = Bed::over(Oversize::Auto, 9_600, SendAhead::Off);
    bed.write(40, "");
    let held = bed.end;
    assert!(bed.oversized() == 1 && (end..end + 1_240).contains(&held), "{held}, {end}");
    bed.play("~350");
    assert_eq!(bed.end, held, "the answer may be on its way");
    bed.play("~250");
    assert!(bed.end > 38_000, "a round trip and 200 ms are over: {}", bed.end);

    let mut bed = Bed::over(Oversize::Auto, 9_600, SendAhead::Off);
    bed.write(70, "");
    bed.forget();
    bed.play("~300\n b > . 1 ack 2921 win 60000 <sack 1:2921>\n ~20");
    assert!(bed.oversized() >= 1 && bed.whole.is_empty(), "what was held is large: {:?}", bed.whole);

    // Where windows are not waited for, nothing has to wait for those acknowledgements.
    let mut bed = Bed::over(Oversize::Auto, 9_600, SendAhead::On);
    bed.write(40, "");
    assert!(bed.end > end, "{}", bed.end);
}

/// A router that takes none of that size answers each of them, and its errors are the first thing
/// that a slow way back carries.
#[test]
fn of_the_first_packets_to_an_unknown_host_few_are_of_full_size() {
    for oversize in [Oversize::Off, Oversize::Auto] {
        let mut bed = Bed::new(oversize);
        bed.write(40, "");
        let sizes: Vec<_> = bed.whole.iter().map(|(from, to)| to - from).collect();
        assert_eq!(&sizes[..3], [1_460, 1_460, 1_240], "{sizes:?}");
        assert!(sizes[2..].iter().all(|size| *size <= 1_240), "{sizes:?}");
        bed.forget();
        bed.acknowledge("");
        bed.write(40, "");
        let last = bed.whole.iter().map(|(from, to)| to - from).max();
        assert_eq!(last, Some(1_460), "one has arrived: {:?}", bed.whole);
    }
    // Where errors come back as fast as anything, nothing is to be gained.
    let mut bed = Bed::over(Oversize::Off, 8_000_000, SendAhead::On);
    bed.write(40, "");
    assert!(bed.whole.iter().all(|(from, to)| to - from > 1_240), "{:?}", bed.whole);
}

/// Each byte costs money, or what was to be spent is spent.
#[test]
fn on_a_metered_link_no_copy_asks() {
    let mut bed = Bed::with(32_000, SendAhead::On, |link| link.is_metered = true);
    bed.write(8, "");
    bed.acknowledge("");
    bed.write(40, "");
    assert!(bed.fragments.is_empty() && !bed.whole.is_empty(), "{:?}", bed.fragments);
}

#[test]
fn the_next_connection_of_the_host_need_not_find_it_out() {
    let mut bed = Bed::taken();
    (bed.sent, bed.end) = (1, 1);
    bed.open("{port 5000}");
    bed.write(40, "{port 5000}");
    assert!(bed.oversized() >= 1, "{:?}", bed.whole);
}

#[test]
fn of_connections_that_begin_at_once_one_asks() {
    let mut bed = Bed::new(Oversize::Auto);
    bed.open("{port 5000}");
    bed.write(8, "{port 5000}");
    assert_eq!(bed.oversized(), 1, "{:?}", bed.fragments);
    (bed.sent, bed.end) = (1, 1);
    bed.write(8, "");
    assert_eq!(bed.oversized(), 1, "it waits for what the other one hears: {:?}", bed.fragments);
}

#[test]
fn who_tells_nothing_of_the_copies_gets_packets() {
    let mut bed = Bed::new(Oversize::Auto);
    for _ in 0..8 {
        bed.write(8, "");
        bed.acknowledge("");
    }
    // Two with DF, two without.
    assert_eq!(bed.oversized(), 4, "{:?}", bed.fragments);
    bed.forget();
    bed.write(20, "");
    assert_eq!((bed.oversized(), bed.whole.len() >= 13), (0, true), "{:?}", bed.whole);
    // Nor are they tried with the next connection.
    (bed.sent, bed.end) = (1, 1);
    bed.open("{port 5000}");
    bed.write(20, "{port 5000}");
    assert_eq!(bed.oversized(), 0);
}

/// The first fragment's error may be lost on the way, or a router may tell of one in many.
#[test]
fn an_error_about_a_later_fragment_makes_packets_smaller() {
    let mut bed = Bed::taken();
    bed.write(40, "");
    assert!(bed.oversized() >= 1, "{:?}", bed.whole);
    bed.forget();
    bed.play("r > a toobig 1300 later fragment\n ~300");
    assert_eq!(bed.t.status().counters.icmp_consumed, 1);
    let longest = bed.fragments.iter().map(|(from, to)| to - from).max().unwrap_or_default();
    assert!((1_000..=1_280).contains(&longest), "{:?} {:?}", bed.fragments, bed.whole);
}

/// Another host behind the same address, or a firewall that is new.
#[test]
fn who_takes_none_any_more_gets_packets_after_the_first_loss() {
    let mut bed = Bed::taken();
    (bed.sent, bed.end) = (1, 1);
    bed.open("{port 5000}");
    bed.write(40, "{port 5000}");
    let large = bed.oversized();
    assert!(large >= 1 && bed.whole == [(1, 1_461)], "{:?}", bed.whole);
    bed.play("~300\n b > . 1 ack 1461 win 60000 {port 5000}\n ~650");
    assert_eq!(bed.oversized(), large, "they are waited for: a way back of 32 kbit/s is slow");
    bed.forget();
    bed.play("~400");
    assert!(bed.whole.iter().any(|(from, to)| *from == 1_461 && to - from <= 1_460), "{:?}", bed.whole);
    // All that was under way comes in packets, and a copy asks whether it was chance.
    assert_eq!(bed.fragments, [(0, 1_480), (1_480, 2_940)]);
    bed.forget();
    for _ in 0..30 {
        let end = bed.end;
        bed.play(&format!("~400\n b > . 1 ack {end} win 60000 {{port 5000}}\n ~1"));
    }
    assert_eq!(bed.end, bed.sent, "all has come: {:?}", bed.whole);
    bed.write(8, "{port 5000}");
    assert!(bed.oversized() >= 1 && bed.whole.len() >= 5, "{:?} {:?}", bed.fragments, bed.whole);
}

#[test]
fn what_is_lost_twice_in_fragments_goes_in_packets() {
    let mut bed = Bed::taken();
    let una = bed.end;
    bed.write(40, "");
    bed.forget();
    bed.play("~60s");
    assert!(bed.oversized() >= 1, "it is sent again as it was: {:?}", bed.whole);
    assert!(bed.whole.iter().any(|(from, to)| *from <= una && to - from <= 1_460), "{:?}", bed.whole);
}

#[test]
fn nothing_is_larger_than_a_packet_where_nobody_wants_it() {
    let mut bed = Bed::new(Oversize::Off);
    bed.write(40, "");
    bed.acknowledge("<sack 1:2921>");
    bed.write(40, "");
    assert_eq!(bed.oversized(), 0);
}

/// A router that is too narrow cuts fragments without DF, and nobody hears of it: packets with it
/// are to find out.
#[test]
fn beside_fragments_without_df_a_packet_with_it_goes_once_a_second() {
    let mut bed = Bed::new(Oversize::Auto);
    bed.write(8, "");
    let mut una = 1;
    for _ in 0..2 {
        una = bed.end;
        bed.acknowledge("");
        bed.write(8, "");
    }
    // Two with DF have told nothing, the first without it does.
    bed.acknowledge(&format!("<sack {una}:{}>", una + 2_920));
    bed.forget();
    for _ in 0..4 {
        bed.write(30, "");
        let end = bed.sent;
        bed.play(&format!("~400\n b > . 1 ack {end} win 60000\n ~500"));
    }
    assert!(bed.oversized() >= 3 && (2..=4).contains(&bed.whole.len()), "one a second: {:?}", bed.whole);
}

/// A link may take larger packets than the network of the host behind it.
#[test]
fn fragments_are_no_larger_than_what_the_host_takes() {
    let mut bed = Bed::new(Oversize::Auto);
    bed.t.set_mtu(Host::B, 9_000);
    bed.write(8, "");
    assert_eq!(bed.fragments, [(0, 1_480), (1_480, 2_940)], "by its MSS");
}

/// Acknowledgements wait for the starved link, behind errors of routers too.
#[test]
fn an_answer_to_an_earlier_copy_tells_as_much() {
    let mut bed = Bed::new(Oversize::Auto);
    bed.write(8, "");
    bed.acknowledge("");
    bed.write(8, "");
    assert_eq!(bed.oversized(), 2, "the first has told nothing: {:?}", bed.fragments);
    bed.acknowledge("<sack 1:2921>");
    bed.forget();
    bed.write(40, "");
    assert!(bed.oversized() >= 2 && bed.whole.is_empty(), "{:?} {:?}", bed.fragments, bed.whole);
}

/// Hasegawa's gateway announces its larger segments; here that is an experiment.
#[test]
fn a_client_behind_the_link_is_told_a_larger_mss_where_a_rule_says_so() {
    for (raise, told) in [(None, 1460), (Some(536), 1460), (Some(4_420), 4_420)] {
        let mut t = Script::with(|s| {
            s.link = Some(Link { name: "sat".into(), rate_bps: Some(8_000_000), ..Link::default() });
            s.config.rules = vec![Rule { raise_mss: raise, ..Rule::default() }];
        });
        let syn = "win 65535 <mss 1460,sackOK,ws 3>";
        t.play(&format!("b > S 0 {syn}\n ~1\n drop\n a > S. 0 ack 1 {syn}\n ~1"));
        let answers = t.take(Host::B);
        assert_eq!(
            answers.iter().map(|s| s.segment.options.mss).collect::<Vec<_>>(),
            [Some(told)],
            "{answers:?}"
        );
        // Nothing is said to those on this side, who send into the link.
        t.play(&format!("a > S 0 {syn} {{port 5000}}\n ~1\n drop\n b > S. 0 ack 1 {syn} {{port 5000}}\n ~1"));
        let answers = t.take(Host::A);
        assert_eq!(
            answers.iter().map(|s| s.segment.options.mss).collect::<Vec<_>>(),
            [Some(1_460)],
            "{answers:?}"
        );
    }
}
impl Bed {
    /// Large ones have arrived, too.
    fn proved() -> Self {
        let mut bed = Self::taken();
        for _ in 0..3 {
            bed.write(30, "");
            bed.end = bed.next(bed.end);
            bed.acknowledge("");
            bed.forget();
        }
        bed
    }

    /// What follows all that has come since, where that is new and begins here.
    fn next(&self, una: u32) -> u32 {
        let large: u32 =
            self.fragments.iter().map(|(from, to)| to - from - if *from == 0 { 20 } else { 0 }).sum();
        let whole: u32 = self.whole.iter().map(|(from, to)| to - from).sum();
        una + large + whole
    }

    /// Payload of the first segment that came in fragments.
    fn first_large(&self) -> u32 {
        let next = self.fragments.iter().skip(1).position(|(from, _)| *from == 0);
        let last = self.fragments.get(next.unwrap_or(self.fragments.len() - 1));
        last.map_or(0, |(_, to)| to - 20)
    }

    /// Each byte from `from` up to `to` has come in packets.
    fn has_come(&self, from: u32, to: u32) -> bool {
        let mut whole = self.whole.clone();
        whole.sort_unstable();
        let mut next = from;
        for (start, end) in whole {
            next = if start <= next { next.max(end) } else { next };
        }
        next >= to
    }
}

/// A firewall is new, or the route is: large segments do not arrive any more.
#[test]
fn among_large_segments_a_packet_tells_that_they_do_not_arrive_any_more() {
    let mut bed = Bed::proved();
    let una = bed.end;
    bed.write(100, "");
    assert!(bed.oversized() >= 3, "{:?} {:?}", bed.fragments, bed.whole);
    let [(from, to), ..] = bed.whole[..] else { panic!("all are large: {:?}", bed.fragments) };
    assert!(from > una && to - from <= 1_460, "the first one is large, a packet follows: {:?}", bed.whole);
    // It alone arrives. The large ones before it go again at once, in packets.
    bed.forget();
    bed.play(&format!("~400\n b > . 1 ack {una} win 60000 <sack {from}:{to}>\n ~250"));
    assert!(bed.has_come(una, from), "{una} to {from}: {:?} {:?}", bed.whole, bed.fragments);
    assert!(bed.oversized() <= 1, "a copy asks anew: {:?}", bed.fragments);
}

#[test]
fn the_end_is_asked_for_in_a_packet() {
    let mut bed = Bed::proved();
    let una = bed.end;
    bed.write(5, "");
    assert!(!bed.fragments.is_empty() && bed.whole.is_empty(), "{:?} {:?}", bed.fragments, bed.whole);
    bed.forget();
    bed.play("~1250");
    let [(from, to), ..] = bed.whole[..] else { panic!("{:?}", bed.fragments) };
    assert!(from > una && to - from <= 1_460, "{:?}", bed.whole);
    bed.forget();
    bed.play(&format!("b > . 1 ack {una} win 60000 <sack {from}:{to}>\n ~300"));
    assert!(bed.has_come(una, from), "{una} to {from}: {:?} {:?}", bed.whole, bed.fragments);
}

/// Chance takes one: those behind it arrive, so it goes again as it was.
#[test]
fn what_is_lost_among_others_that_arrive_is_large_again() {
    let mut bed = Bed::proved();
    let una = bed.end;
    bed.write(100, "");
    let (second, end) = (una + bed.first_large(), bed.next(una));
    bed.forget();
    bed.play(&format!("~400\n b > . 1 ack {una} win 60000 <sack {second}:{end}>\n ~100"));
    assert!(bed.oversized() >= 1, "{:?} {:?}", bed.fragments, bed.whole);
    assert!(bed.whole.iter().all(|(from, _)| *from >= end), "{una} to {second}: {:?}", bed.whole);
}

/// What is known of a host is worth ten minutes; then it is tried again.
#[test]
fn who_has_refused_them_is_asked_again_after_ten_minutes() {
    let mut bed = Bed::new(Oversize::Auto);
    for _ in 0..8 {
        bed.write(8, "");
        bed.acknowledge("");
    }
    assert_eq!(bed.oversized(), 4, "it refuses: {:?}", bed.fragments);
    let mut copies_of = |port: &str, minutes: u32| {
        bed.play(&format!("~{}s", 60 * minutes));
        (bed.sent, bed.end) = (1, 1);
        bed.open(&format!("{{port {port}}}"));
        bed.write(8, &format!("{{port {port}}}"));
        bed.oversized()
    };
    assert_eq!(copies_of("5000", 9), 0, "that is remembered");
    assert_eq!(copies_of("5001", 2), 1, "and no longer than so");
}

/// Nothing arrives any more, and the link seems silent. What asks it is a packet, and what lies
/// behind that goes in packets when it has arrived alone.
#[test]
fn a_silent_link_is_asked_by_a_packet() {
    let mut bed = Bed::proved();
    let una = bed.end;
    bed.write(30, "");
    bed.forget();
    bed.play("~4s");
    let asked = bed.whole.iter().find(|(from, _)| *from == una).map(|(_, to)| *to);
    let end = asked.unwrap_or_else(|| panic!("the oldest is asked for: {:?} {:?}", bed.whole, bed.fragments));
    bed.forget();
    bed.play(&format!("b > . 1 ack {end} win 60000\n ~400"));
    assert!(bed.has_come(end, end + 4_000), "from {end} on: {:?} {:?}", bed.whole, bed.fragments);
    assert!(bed.oversized() <= 1, "a copy asks anew: {:?}", bed.fragments);
}

/// The last part of a window that has room for less than a segment stays unused (RFC 9293
/// section 3.8.6.2.1), so it holds whole ones. A packet among them, and what follows it, are as
/// long as one.
#[test]
fn large_segments_and_a_packet_among_them_fill_a_small_window() {
    const PORT: &str = "{port 5000}";
    let mut bed = Bed::over(Oversize::Auto, 32_000, SendAhead::Off);
    bed.open_with("win 17520 <mss 1460,sackOK>", PORT);
    bed.write(8, PORT);
    let una = bed.end;
    bed.forget();
    bed.play(&format!("~400\n b > . 1 ack {una} win 17520 <sack 1:2921> {PORT}\n"));
    bed.write(150, PORT);
    bed.end = bed.next(una);
    let mut rounds = Vec::new();
    for _ in 0..7 {
        let una = bed.end;
        bed.forget();
        bed.play(&format!("~400\n b > . 1 ack {una} win 17520 {PORT}\n ~60"));
        bed.end = bed.next(una);
        rounds.push((bed.end - una, bed.oversized(), bed.whole.len()));
    }
    let full = |round: &(u32, usize, usize)| round.0 == 17_520;
    assert!(rounds[3..].iter().all(full), "{rounds:?}");
    assert!(rounds.iter().any(|round| round.1 > 0 && round.2 > 0), "a packet went among them: {rounds:?}");
}
