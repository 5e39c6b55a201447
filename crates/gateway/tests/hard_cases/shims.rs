//! XCP's own header between IPv4 and TCP: between gateways, and nowhere else.
//!
//! `{shim 1000}` is a segment whose header wishes for 1,000 bytes a second more, `{ackshim 1000}`
//! one whose header (minimal) tells that so much has come of the wishes of the other direction.

use crate::script::notation::Seen;
use crate::script::{Crossed, Cut, Host, Script, USUAL};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{Action, Class, LegConfig, Link, Rule};
use farlink_wire::shim::SHIM_PROTOCOL;
use farlink_wire::{Duration, Shim};

/// A gateway beyond the link that reads what routers say, in either form.
const READS: &str = "68 0000002b 02 0030 00";

fn link() -> Link {
    let leg = LegConfig { cc: Kind::Xcp, ..LegConfig::default() };
    Link { name: "hub".into(), leg, xcp_shim: Some(SHIM_PROTOCOL), ..Link::default() }
}

/// Two gateways, 50 ms apart, and a connection.
fn two(v6: bool) -> Script {
    let mut t = Script::with(|s| {
        s.gateways = 2;
        s.v6 = v6;
        s.link = Some(link());
        s.link_delay = Duration::from_millis(50);
        s.config.limits.relay_bytes = 1 << 20;
    });
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}\n ~50\n drop b
         b > S. 0 ack 1 win 65535 {USUAL}\n ~50\n drop a
         a > . 1 ack 1\n ~50\n drop b"
    ));
    t.take_crossed();
    t
}

/// A connection over such a link to a gateway that b plays; the handshake took 100 ms.
fn open() -> Script {
    let mut t = Script::with(|s| s.link = Some(link()));
    t.play("a > S 0 win 65535 <mss 1460,sackOK,ws 7>\n ~100\n drop");
    t.play(&format!(
        "b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {READS}>
         a < S. 0 ack 1 <no flsynack,mss 1460,sackOK,ws 7>
         a > . 1 ack 1
         b < . 1 ack 1"
    ));
    t
}

/// Host a sends so many segments, and what of it arrives at b is acknowledged at once, for so long.
fn upload(t: &mut Script, from: u32, segments: u32) -> u32 {
    let end = from + segments * 1_460;
    t.send(Host::A, &format!(". {from}:{end} ack 1 win 65535 {{gso 1460}}"));
    end
}

/// Lets time pass; b acknowledges what it has got. Returns how far that is.
fn pass(t: &mut Script, rounds: u32, mut got: u32) -> u32 {
    for _ in 0..rounds {
        t.play("~20");
        for seen in t.take(Host::B) {
            assert!(seen.segment.shim.is_none(), "b is no gateway: {seen}");
            assert!(!seen.segment.options.has_ours(), "{seen}");
            if seen.seq <= got {
                got = got.max(seen.seq + seen.payload.len() as u32);
            }
        }
        t.send(Host::B, &format!(". 1 ack {got} win 65535"));
        assert!(t.take(Host::A).iter().all(|s| s.segment.shim.is_none() && !s.segment.options.has_ours()));
    }
    got
}

/// For messages.
fn lines<'a>(all: impl IntoIterator<Item = &'a Crossed>) -> String {
    all.into_iter().map(|c| format!("{:?} {:?} {}\n", c.at, c.to, c.seen)).collect()
}

fn seen_lines(all: &[Seen]) -> String {
    all.iter().map(|seen| format!("{seen}\n")).collect()
}

fn is_data(crossed: &Crossed) -> bool {
    !crossed.seen.payload.is_empty()
}

#[test]
fn it_is_tried_out_with_a_copy_and_used_once_that_is_heard() {
    let mut t = two(false);
    let end = upload(&mut t, 1, 30);
    let got = pass(&mut t, 6, 1);
    let first = t.take_crossed();
    // In the first round trip: data with options, and one acknowledgement more in each direction.
    let (tried, with_options): (Vec<_>, Vec<_>) = first
        .iter()
        .filter(|c| c.at < first[0].at + Duration::from_millis(90))
        .partition(|c| c.seen.segment.shim.is_some());
    assert!(
        tried.iter().all(|c| c.seen.segment.shim == Some(Shim::default()) && !is_data(c)),
        "{}",
        lines(tried.iter().copied())
    );
    let to_b = tried.iter().filter(|c| c.to == Host::B).count();
    assert_eq!(
        (to_b, with_options.iter().filter(|c| is_data(c)).count() > 1),
        (1, true),
        "{}",
        lines(&first)
    );
    let end = upload(&mut t, end, 30);
    let got = pass(&mut t, 20, got);
    assert_eq!(got, end, "all of it has come");
    let later = t.take_crossed();
    let data: Vec<_> = later.iter().filter(|c| is_data(c) && c.to == Host::B).collect();
    assert!(data.len() >= 25, "{}", data.len());
    for one in &data {
        let shim = one.seen.segment.shim.expect("each has it");
        let said = shim.said.expect("the standard format");
        assert!(said.rtt.seconds() > 0.09 && said.spacing.seconds() < 0.2, "{said:?}");
        assert_eq!((one.seen.offload.gso_size, shim.feedback_bytes_per_s), (0, 0), "a packet by itself");
        assert!(one.seen.segment.options.xcp.is_none() && one.seen.payload.len() <= 1_500 - 60);
    }
    assert_eq!(t.status().counters.retransmitted_bytes, 0);
}

#[test]
fn what_comes_of_wishes_is_told_in_the_minimal_format_and_now_and_then_as_a_sum() {
    let mut t = open();
    let mut told = Vec::new();
    // The gateway there has heard what tries the header: frame 8.
    t.play("b > P. 1:101 ack 1 <flraw 53>\n ~60\n drop");
    t.play("b > . 101 ack 1 <flraw 53 82 0001>\n ~1");
    for n in 0..12 {
        let from = 101 + n * 100;
        t.play(&format!("b > P. {from}:{} ack 1 <flraw 53> {{shim 1000}}\n ~60", from + 100));
        told.extend(t.take(Host::B).iter().filter_map(|s| match s.segment.shim {
            Some(shim) => Some((shim.said, shim.feedback_bytes_per_s)),
            None => s.segment.options.xcp_sum.map(|sum| (None, sum.cast_signed() + 1_000_000)),
        }));
        t.take(Host::A);
    }
    let sums: Vec<_> = told.iter().filter(|(_, n)| *n > 999_999).collect();
    assert!(told.len() >= 9 && told.iter().all(|(said, _)| said.is_none()), "{told:?}");
    assert!(sums.len() >= 2 && sums.len() <= told.len() / 3, "{told:?}");
    // Whatever was lost of the others: the sum says all of it.
    let (_, last) = sums.last().unwrap();
    assert!(*last >= 1_008_000 && last % 1_000 == 0, "{told:?}");
}

#[test]
fn feedback_in_the_header_makes_the_gateway_faster() {
    let mut t = open();
    t.play("a > . 1:43801 ack 1 {gso 1460}\n ~90\n drop");
    t.play("b > . 1 ack 7201 <flraw 53 82 0001> {ackshim 1000000}\n ~40");
    // How fast, and up to where.
    let said = |t: &mut Script| -> (f64, u32) {
        let seen = t.take(Host::B);
        let end = seen.iter().map(|s| s.seq + s.payload.len() as u32).max().unwrap();
        let mut said = seen.iter().filter_map(|s| s.segment.shim).filter_map(|shim| shim.said);
        (1_440.0 / said.next().unwrap().spacing.seconds(), end)
    };
    let (bytes_per_s, end) = said(&mut t);
    assert!(bytes_per_s > 1e6 && bytes_per_s < 1.5e6, "{bytes_per_s}");
    // Less again.
    t.play(&format!("~60\n drop\n b > . 1 ack {end} <flraw 53> {{ackshim -500000}}"));
    t.play("drop\n a > . 43801:87601 ack 1 {gso 1460}\n ~40");
    let (slower, _) = said(&mut t);
    assert!(slower < bytes_per_s - 4e5, "{slower}");
    assert!(t.take(Host::A).iter().all(|s| s.segment.shim.is_none()));
}

#[test]
fn what_is_sent_again_goes_with_the_option() {
    let mut t = open();
    t.play("a > . 1:43801 ack 1 {gso 1460}\n ~90\n drop");
    t.play("b > . 1 ack 7181 <flraw 53 82 0001>\n ~60");
    let seen = t.take(Host::B);
    assert!(seen.iter().any(|s| s.segment.shim.is_some()), "{}", seen_lines(&seen));
    // One that carried the header is missing.
    let lost = seen.iter().find(|s| s.segment.shim.is_some()).unwrap().seq;
    let end = seen.iter().map(|s| s.seq + s.payload.len() as u32).max().unwrap();
    let after = lost + 1_436;
    t.play(&format!("drop\n b > . 1 ack {lost} <flraw 53,sack {after}:{end}>\n ~60"));
    let again: Vec<_> = t.take(Host::B).into_iter().filter(|s| s.seq == lost).collect();
    assert!(!again.is_empty() && again.iter().all(|s| s.segment.shim.is_none()), "{}", seen_lines(&again));
    assert!(again.iter().all(|s| s.segment.options.xcp.is_some()));
}

#[test]
fn what_does_not_get_through_is_given_up_and_nothing_stands_still() {
    let mut t = two(false);
    t.cut(Cut::Shims);
    let mut end = upload(&mut t, 1, 40);
    let mut got = 1;
    let mut tried = 0;
    for _ in 0..10 {
        got = pass(&mut t, 50, got);
        let crossed = t.take_crossed();
        tried += crossed.iter().filter(|c| c.seen.segment.shim.is_some() && c.to == Host::B).count();
        assert!(crossed.iter().all(|c| c.seen.segment.shim.is_none() || !is_data(c)));
        assert_eq!(got, end);
        end = upload(&mut t, end, 4);
    }
    assert!((1..=3).contains(&tried), "{tried}");
    let counters = t.status().counters;
    assert_eq!((counters.retransmitted_bytes, counters.rtos), (0, 0));
}

#[test]
fn a_box_that_begins_to_drop_it_costs_a_timeout_at_most() {
    let mut t = two(false);
    let end = upload(&mut t, 1, 40);
    let got = pass(&mut t, 30, 1);
    assert_eq!(got, end);
    t.take_crossed();
    t.cut(Cut::Shims);
    let began = t.now();
    let mut end = upload(&mut t, end, 40);
    let mut got = got;
    let mut stood_still = Duration::ZERO;
    let mut moved_at = began;
    for n in 0..200 {
        let before = got;
        got = pass(&mut t, 1, got);
        if got > before {
            moved_at = t.now();
        }
        if got < end {
            stood_still = stood_still.max(t.now().since(moved_at));
        }
        if got == end && n < 150 {
            end = upload(&mut t, end, 40);
        }
    }
    assert_eq!(got, end);
    let crossed = t.take_crossed();
    // What is sent again goes without.
    let mut sent_up_to = 0;
    for one in crossed.iter().filter(|c| is_data(c) && c.to == Host::B) {
        assert!(one.seen.seq >= sent_up_to || one.seen.segment.shim.is_none(), "{}", one.seen);
        sent_up_to = sent_up_to.max(one.seen.seq + one.seen.payload.len() as u32);
    }
    let last = crossed.iter().filter(|c| is_data(c) && c.seen.segment.shim.is_some()).map(|c| c.at).max();
    // It is given up once nothing is heard of it: an answer may be late by a second.
    assert!(last.unwrap().since(began) < Duration::from_secs(3), "{last:?}");
    assert!(stood_still < Duration::from_secs(1), "{stood_still:?}");
    assert!(t.status().counters.rtos <= 1);
}

#[test]
fn nothing_is_learned_from_it_in_a_segment_that_does_not_count() {
    // b is told how many it were with what counts, and only then.
    for (wrong, counts) in [
        ("P. 1:101 ack 1 <flraw 53> {shim 1000}", true),
        ("P. 1:101 ack 1 <flraw 53> {shim 1000,badsum}", false),
        ("P. 1:101 ack 900000 <flraw 53> {shim 1000}", false),
        ("P. 900001:900101 ack 1 <flraw 53> {shim 1000}", false),
        ("P. 1:101 ack 1 {shim 1000}", false),
    ] {
        let mut t = open();
        t.send(Host::B, wrong);
        t.play("~60");
        let mut seen = t.take(Host::B);
        t.send(Host::B, ". 101 ack 1 <flraw 53>");
        t.play("~60");
        seen.extend(t.take(Host::B));
        let heard = seen.iter().any(|s| {
            let body = s.segment.options.farlink.as_ref().map(|o| o.body.as_slice());
            body.is_some_and(|body| body.contains(&0x82)) || s.segment.options.xcp_sum.is_some()
        });
        assert_eq!(heard, counts, "{wrong}: {}", seen_lines(&seen));
        assert!(t.take(Host::A).iter().all(|s| s.segment.shim.is_none()), "{wrong}");
    }
}

#[test]
fn hosts_that_forge_it_are_not_believed_and_hosts_never_see_it() {
    let mut t = open();
    // From where no gateway stands.
    t.play("a > P. 1:101 ack 1 {shim 1000}\n ~60");
    let seen = t.take(Host::B);
    assert!(
        seen.iter().any(|s| s.payload.len() == 100),
        "it is a segment like others: {}",
        seen_lines(&seen)
    );
    assert!(
        seen.iter().all(|s| s
            .segment
            .shim
            .is_none_or(|shim| shim.said.is_none_or(|f| f.delta_bytes_per_s != 1_000)))
    );
    t.play("drop\n a > S 0 win 65535 <mss 1460,sackOK,ws 7> {shim 1000,port 5000}\n ~1");
    assert!(t.take(Host::B).iter().all(|s| s.segment.shim.is_none()));
    // In a handshake, and in the connection of a host that has no gateway.
    let mut t = Script::with(|s| s.link = Some(link()));
    t.play("a > S 0 win 65535 <mss 1460,sackOK,ws 7>\n ~1\n drop");
    t.play("b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7> {shim 1000}\n a < S. 0 ack 1");
    t.play("a > . 1 ack 1\n ~1\n drop");
    t.play("b > P. 1:101 ack 1 {shim 1000}\n ~100");
    let seen = t.take(Host::A);
    assert!(!seen.is_empty() && seen.iter().all(|s| s.segment.shim.is_none()), "{}", seen_lines(&seen));
    assert!(t.take(Host::B).iter().all(|s| s.segment.shim.is_none() && s.segment.options.xcp_sum.is_none()));
}

/// A gateway that splits nothing, between a host or a link and a link whose queue answers.
fn between(link_a: Option<Link>) -> Script {
    Script::with(|s| {
        s.config.default_action = Action::Pass;
        s.link_a = link_a;
        s.link = Some(Link { rate_bps: Some(8_000_000), is_xcp_router: true, ..link() });
    })
}

#[test]
fn what_is_only_forwarded_keeps_it_between_links_and_loses_it_before_hosts() {
    let mut t = between(Some(Link { name: "up".into(), ..link() }));
    let mut wishes = Vec::new();
    for n in 0..8 {
        let from = 1 + n * 100;
        t.play(&format!("a > . {from}:{} ack 1 <flraw 53> {{shim 2147483647}}\n ~50", from + 100));
        let said = t.take(Host::B).into_iter().filter_map(|s| s.segment.shim?.said);
        wishes.extend(said.map(|f| f.delta_bytes_per_s));
    }
    assert_eq!(wishes.len(), 8);
    assert!(wishes[0] == 0 && wishes.iter().all(|w| *w < 1_000_000), "the queue has answered: {wishes:?}");
    t.play("b > . 1 ack 801 <flraw 53> {ackshim 7}\n ~1");
    let back = t.take(Host::A);
    assert_eq!(back[0].segment.shim.map(|shim| shim.feedback_bytes_per_s), Some(7), "{}", seen_lines(&back));
    // Towards a host, and from one.
    let mut t = between(None);
    t.play("b > P. 1:101 ack 1 <flraw 53> {shim 1000}\n ~1");
    let seen = t.take(Host::A);
    assert_eq!(seen.len(), 1);
    assert!(seen[0].segment.shim.is_none() && !seen[0].segment.options.has_ours() && seen[0].is_stream);
    t.play("a > P. 1:101 ack 1 {shim 1000}\n ~1");
    assert!(t.take(Host::B).iter().all(|s| s.segment.shim.is_none() && s.payload.len() == 100));
    // In fragments, too.
    t.play("b > P. 101:1101 ack 1 {shim 1000,frag 576,nodf}\n ~1");
    let whole = t.take_lines(Host::A);
    assert!(whole.iter().all(|line| line.starts_with("fragment")) && whole.len() >= 2, "{whole:?}");
}

#[test]
fn what_a_gateway_says_of_a_connection_is_for_the_next_one_alone() {
    let mut t = Script::with(|s| {
        s.link_a = Some(Link { name: "up".into(), ..link() });
        s.link = Some(link());
    });
    t.play(&format!("a > S 0 win 65535 {USUAL}\n ~100\n drop"));
    t.play(&format!("b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {READS}>\n ~1\n drop"));
    t.play("a > . 1 ack 1\n ~1\n drop");
    // It lies beyond the window, so the host is to judge it.
    t.play("b > P. 900001:900101 ack 1 <flraw 53> {shim 1000}\n ~1");
    let seen = t.take(Host::A);
    assert!(seen.iter().any(|s| s.seq == 900_001), "{}", seen_lines(&seen));
    assert!(seen.iter().all(|s| s.segment.shim.is_none()), "{}", seen_lines(&seen));
}

#[test]
fn a_router_that_quotes_it_is_heard() {
    let mut t = open();
    t.play("a > P. 1:2901 ack 1\n ~50\n drop");
    t.play("r > a toobig 1000 . 1:1441 ack 1 {shim 5}\n ~300");
    let again = t.take(Host::B);
    assert!(
        !again.is_empty() && again.iter().all(|s| s.payload.len() <= 936 || s.offload.gso_size == 936),
        "{}",
        seen_lines(&again)
    );
    assert!(t.take(Host::A).is_empty(), "the host has not sent it");
}

#[test]
fn there_is_none_in_ipv6_and_the_option_says_it() {
    let mut t = two(true);
    let end = upload(&mut t, 1, 30);
    let got = pass(&mut t, 30, 1);
    assert_eq!(got, end);
    let crossed = t.take_crossed();
    assert!(crossed.iter().all(|c| c.seen.segment.shim.is_none()));
    assert!(crossed.iter().filter(|c| is_data(c)).all(|c| c.seen.segment.options.xcp.is_some()));
}

#[test]
fn rules_see_the_ports_behind_it_in_what_is_forwarded() {
    let class_of_port = |port: u16, class| Rule {
        ports: vec![(port, port)],
        class: Some(class),
        ..crate::limits::rule(Action::Pass)
    };
    let mut t = Script::with(|s| {
        s.config.default_action = Action::Pass;
        s.link_a = Some(Link { name: "up".into(), ..link() });
        s.link = Some(Link { rate_bps: Some(8_000_000), ..link() });
        let tcp = |rule: Rule| Rule { protocols: vec![6], ..rule };
        s.config.rules =
            vec![tcp(class_of_port(3, Class::Interactive)), tcp(class_of_port(2, Class::Background))];
    });
    // The link is busy with the first when the others come.
    for port in 1..=4 {
        t.send(Host::A, &format!("P. 1:1001 ack 1 {{shim 1000,port {port}}}"));
    }
    t.play("~100");
    let came: Vec<u16> = t.take(Host::B).iter().map(|s| s.segment.src_port).collect();
    assert_eq!(came, [1, 3, 4, 2]);
}
