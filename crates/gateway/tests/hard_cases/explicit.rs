//! Routers that say how fast (XCP): what gateways tell them and each other, by the exact bytes.
//!
//! `flraw 54 X RTT DELTA` is what a segment of data says, `flraw 54 SUM` what an acknowledgement
//! does. Times have 28 bits of fraction: 10000000 is a second.

use crate::script::network::SPARE;
use crate::script::notation::Seen;
use crate::script::{Host, Script, Setup};
use farlink_gateway::cc::{Doubt, Kind};
use farlink_gateway::config::{Action, Explicit, LegConfig, Link, XcpWeights};
use farlink_gateway::{Event, LinkStatus, Side};
use farlink_wire::xcp::XcpFields;

/// A gateway beyond the link that reads what routers say, and one that does not.
const READS: &str = "68 0000002b 02 0010 00";
const DOES_NOT: &str = "68 0000002b 02 0000 00";

/// A connection over a link to a gateway that says this of itself; the handshake took 100 ms.
fn open(answer: &str) -> Script {
    open_for(answer, Explicit::default())
}

/// The same, where only so much goes by what routers say.
fn open_for(answer: &str, explicit: Explicit) -> Script {
    open_with(answer, |s| s.link = Some(Link { explicit, ..hub_link() }))
}

fn hub_link() -> Link {
    let leg = LegConfig { cc: Kind::Xcp, ..LegConfig::default() };
    Link { name: "hub".into(), leg, ..Link::default() }
}

fn open_with(answer: &str, change: impl FnOnce(&mut Setup)) -> Script {
    let mut t = Script::with(change);
    t.play("a > S 0 win 65535 <mss 1460,sackOK,ws 7>\n ~100\n drop");
    t.play(&format!(
        "b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {answer}>
         a < S. 0 ack 1 <no flsynack,mss 1460,sackOK,ws 7>
         a > . 1 ack 1
         b < . 1 ack 1"
    ));
    t
}

/// What the segments of data say that b has got.
fn said(t: &mut Script) -> Vec<XcpFields> {
    t.take(Host::B).iter().filter(|s| !s.payload.is_empty()).filter_map(|s| s.segment.options.xcp).collect()
}

fn host_a_sees_nothing(t: &mut Script) {
    assert!(t.take(Host::A).iter().all(|s| !s.segment.options.has_ours()));
}

#[test]
fn a_gateway_is_told_how_fast_it_is_sent_to_and_tells_what_comes_of_it() {
    let mut t = open(READS);
    t.play("a > . 1:43801 ack 1 {gso 1460}\n ~90");
    let first = said(&mut t);
    host_a_sees_nothing(&mut t);
    assert!(first.len() > 1 && first.iter().all(|f| f.rtt.seconds() > 0.09), "{first:?}");
    assert_eq!(first[0].delta_bytes_per_s, i32::MAX, "there is more to send");
    // Routers have left 1 MB a second of the wishes.
    t.play("b > . 1 ack 7201 <flraw 54 000f4240,flraw 53>\n ~40");
    let later = said(&mut t);
    let bytes_per_s = 1_460.0 / later[0].spacing.seconds();
    assert!(bytes_per_s > 1e6 && bytes_per_s < 1.5e6, "{bytes_per_s}");
    host_a_sees_nothing(&mut t);
}

#[test]
fn what_comes_of_a_wish_is_told_and_a_wish_that_no_router_met_is_not() {
    let mut t = open(READS);
    let told = |t: &mut Script| {
        host_a_sees_nothing(t);
        let sums = t.take(Host::B).into_iter().filter_map(|s| s.segment.options.xcp_sum);
        sums.collect::<Vec<_>>()
    };
    // 1,000 of a wish without limit are left; twice 500.
    t.play("b > P. 1:101 ack 1 <flraw 54 00800000 01999999 000003e8,flraw 53>\n ~60");
    assert_eq!(told(&mut t).last(), Some(&1_000));
    t.play("b > P. 101:3021 ack 1 <flraw 54 00800000 01999999 000001f4,flraw 53> {gso 1460}\n ~60");
    assert_eq!(told(&mut t).last(), Some(&2_000));
    // Nothing is wished for: that says nothing of routers.
    t.play("b > P. 3021:3121 ack 1 <flraw 54 00800000 01999999 00000001,flraw 53>\n ~60");
    assert_eq!(told(&mut t).last(), Some(&2_001));
    t.play("b > P. 3121:3221 ack 1 <flraw 54 00800000 01999999 7fffffff,flraw 53>\n ~60");
    assert_eq!(told(&mut t), []);
}

/// With 5 % of the packets lost each run was told once or twice, in what the sum had left of the
/// room. What was not told was sent again: 10 MB of 100.
#[test]
fn what_is_held_above_gaps_goes_before_the_sum() {
    let mut t = open("68 0000002b 02 0014 00");
    t.play("a > P. 1:101 ack 1\n ~100\n drop\n b > . 1 ack 101 <flraw 53>");
    // One of ten packets in a millisecond each is lost, for a round trip of 100 ms.
    let mut got = Vec::new();
    for n in (0..100).filter(|n| n % 10 != 3) {
        let from = 1 + n * 100;
        t.play(&format!(
            "b > . {from}:{} ack 101 <flraw 54 00800000 01999999 0000000a,flraw 53>\n ~1",
            from + 100
        ));
        host_a_sees_nothing(&mut t);
        got.extend(t.take(Host::B));
    }
    let (with, without): (Vec<_>, Vec<_>) =
        got.iter().filter(|s| s.ack <= 301).partition(|s| s.segment.options.xcp_sum.is_some());
    assert!((8..=20).contains(&with.len()), "as often as without gaps: {}", with.len());
    assert!(without.len() > 2 * with.len(), "{} without", without.len());
    let told = |s: &&Seen| s.segment.options.farlink.as_ref().map(|option| option.body.len());
    let longest = |of: &[&Seen]| of.iter().filter_map(told).max();
    assert!(longest(&without) > longest(&with), "{:?} {:?}", longest(&without), longest(&with));
    t.play("~60");
    let last = t.take(Host::B).iter().rev().find_map(|s| s.segment.options.xcp_sum);
    let sum = last.or(with.last().and_then(|s| s.segment.options.xcp_sum));
    assert_eq!(sum, Some(900), "nothing is kept back");
}

#[test]
fn hosts_and_gateways_that_know_nothing_of_it_hear_nothing_and_are_not_heard() {
    let mut t = open(DOES_NOT);
    t.play("a > P. 1:2001 ack 1\n ~1");
    assert_eq!(said(&mut t), []);
    // A host forges both; its own gateway takes them out, and does not believe them.
    let mut t = open(READS);
    t.play("a > P. 1:2001 ack 1 <flraw 54 00800000 01999999 000003e8>\n ~1");
    let seen = t.take(Host::B);
    assert!(seen.iter().all(|s| s.segment.options.xcp_sum.is_none()), "a is no gateway: {seen:?}");
    assert!(seen.iter().filter_map(|s| s.segment.options.xcp).all(|f| f.delta_bytes_per_s != 1_000));
    // One that is not split goes on without.
    let mut t = Script::with(|s| s.link = Some(Link { name: "hub".into(), ..Link::default() }));
    t.play("a > P. 1:101 ack 1 <flraw 54 00800000 01999999 000003e8>\n b < P. 1:101 ack 1");
    t.play("a > P. 101:201 ack 1 <flraw 54 000003e8>\n ~1");
    let seen = t.take(Host::B);
    assert!(!seen.is_empty() && seen.iter().all(|s| !s.segment.options.has_ours()), "{seen:?}");
}

/// A gateway between two others, with a queue of 8 Mbit/s that answers, or does not.
fn between(is_xcp_router: bool) -> Script {
    between_with(|link| link.is_xcp_router = is_xcp_router)
}

fn between_with(change: impl FnOnce(&mut Link)) -> Script {
    let link = |name: &str, rate_bps| Link { name: name.into(), rate_bps, ..Link::default() };
    let mut hub = link("hub", Some(8_000_000));
    change(&mut hub);
    Script::with(|s| {
        s.config.default_action = Action::Pass;
        s.link_a = Some(link("near", Some(100_000_000)));
        s.link = Some(hub);
    })
}

/// What is wished for without limit, by one who sends two packets in a round trip of 100 ms.
const WISH: &str = "flraw 54 00cccccd 01999999 7fffffff,flraw 53";

/// Two packets in each of so many round trips; what they were given in each.
fn given(t: &mut Script, first: u32, round_trips: u32) -> Vec<i64> {
    let mut given = vec![0; round_trips as usize];
    for n in 0..2 * round_trips {
        let from = 1 + (first + n) * 100;
        t.play(&format!("a > . {from}:{} ack 1 <{WISH}>\n ~50", from + 100));
        given[n as usize / 2] += said(t).iter().map(|f| i64::from(f.delta_bytes_per_s)).sum::<i64>();
    }
    given
}

fn set(t: &mut Script, key: &str, value: &str) -> Result<(), String> {
    t.with_gateway(|g, now, _| g.set(now, key, value)).map_err(|wrong| wrong.to_string())
}

fn hub(t: &mut Script) -> LinkStatus {
    let links = t.with_gateway(|g, _, _| g.status()).links;
    links.into_iter().find(|link| link.name == "hub").unwrap()
}

fn capacity_bps(t: &mut Script) -> u64 {
    hub(t).xcp_capacity_bps
}

#[test]
fn the_queue_of_a_link_answers_the_wishes_of_others() {
    for answers in [true, false] {
        let mut t = between(answers);
        // Two packets in each round trip of 100 ms, for four of them.
        let mut wishes = Vec::new();
        for n in 0..8 {
            let from = 1 + n * 100;
            let wish = "flraw 54 00cccccd 01999999 7fffffff,flraw 53";
            t.play(&format!("a > . {from}:{} ack 1 <{wish}>\n ~50", from + 100));
            wishes.extend(said(&mut t).iter().map(|f| f.delta_bytes_per_s));
        }
        assert_eq!(wishes.len(), 8);
        if answers {
            // Nothing is known in the first round trip. Then 0.4 of what is idle of 1 MB a second
            // is given, in two parts each time.
            assert_eq!(wishes[0], 0, "{wishes:?}");
            let given: i32 = wishes[4..].iter().sum();
            assert!((600_000..=800_000).contains(&given), "{wishes:?}");
        } else {
            assert!(wishes.iter().all(|w| *w == i32::MAX), "{wishes:?}");
        }
    }
}

#[test]
fn a_rate_that_is_set_reaches_the_router_at_once() {
    let mut t = between(true);
    let before = given(&mut t, 0, 6);
    set(&mut t, "link.hub.rate", "16 Mbit/s").unwrap();
    assert_eq!(capacity_bps(&mut t), 16_000_000);
    let after = given(&mut t, 12, 3);
    set(&mut t, "link.hub.rate", "4 Mbit/s").unwrap();
    assert_eq!(capacity_bps(&mut t), 4_000_000);
    let less = given(&mut t, 18, 3);
    let near = |sum: i64, wanted: i64| (sum - wanted).abs() < wanted / 10;
    assert!(near(before[5], 399_000), "{before:?}");
    assert!(near(after[1], 799_000) && near(after[2], 799_000), "{after:?}");
    assert!(near(less[1], 199_000) && near(less[2], 199_000), "{less:?}");
    set(&mut t, "link.hub.rate", "unknown").unwrap();
    assert_eq!(capacity_bps(&mut t), 0);
    assert_eq!(given(&mut t, 24, 1), [2 * i64::from(i32::MAX)], "what is not known is not said");
}

/// Which of the packets that b gets are of XCP, where so many of both kinds wait at once.
fn order(t: &mut Script, each: u32) -> Vec<bool> {
    for n in 0..each {
        let (xcp, plain) = (1 + n * 1000, 1_000_001 + n * 1000);
        t.send(Host::A, &format!(". {xcp}:{} ack 1 <{WISH}>", xcp + 1000));
        t.send(Host::A, &format!(". {plain}:{} ack 1", plain + 1000));
    }
    t.play(&format!("~{}", each * 3));
    let all = t.take(Host::B);
    assert_eq!(all.len(), 2 * each as usize, "nothing is lost");
    all.iter().map(|s| s.segment.options.xcp.is_some()).collect()
}

#[test]
fn xcp_and_plain_traffic_share_a_queue_by_weights() {
    let share = |order: &[bool], from: usize, to: usize| {
        order[from..to].iter().filter(|xcp| **xcp).count() as f64 / (to - from) as f64
    };
    let mut t = between_with(|link| {
        link.is_xcp_router = true;
        link.xcp_weights = XcpWeights { xcp: 3, plain: 1 };
    });
    let first = order(&mut t, 30);
    assert!((share(&first, 4, 36) - 0.75).abs() < 0.07, "{first:?}");
    assert!(first[44..].iter().all(|xcp| !xcp), "what is left when the others are through");
    set(&mut t, "link.hub.xcp_weight", "1").unwrap();
    let even = order(&mut t, 30);
    assert!((share(&even, 4, 44) - 0.5).abs() < 0.06, "{even:?}");
    set(&mut t, "link.hub.plain_weight", "4").unwrap();
    let less = order(&mut t, 30);
    assert!((share(&less, 4, 34) - 0.2).abs() < 0.07, "{less:?}");
    for (key, value, hint) in [
        ("link.hub.xcp_weight", "0", "1 to 1000"),
        ("link.hub.xcp_weight", "none", "1 to 1000"),
        ("link.near.xcp_weight", "2", "no XCP router"),
    ] {
        let wrong = set(&mut t, key, value).unwrap_err();
        assert!(wrong.contains(hint), "{wrong}");
    }
}

#[test]
fn plain_traffic_takes_from_xcp_what_is_its_share_and_no_more() {
    let mut t = between(true);
    // 8 Mbit/s are ten packets of 1,000 bytes in 10 ms.
    let plain = |t: &mut Script, each_10_ms: u32| {
        for _ in 0..60 {
            for n in 0..each_10_ms {
                t.send(Host::A, &format!(". {}:{} ack 1", 1 + n * 1000, 961 + n * 1000));
            }
            t.play("~10");
        }
        t.take(Host::B);
        capacity_bps(t)
    };
    let near = |is: u64, wanted: u64| is.abs_diff(wanted) < wanted / 20;
    let quarter = plain(&mut t, 2);
    assert!(near(quarter, 6_400_000), "{quarter}");
    let all = plain(&mut t, 12);
    assert!(near(all, 4_000_000), "{all}");
    let waits = hub(&mut t).backlog_bytes;
    // 100 ms are 100,000 bytes; before anybody said a round trip 64 packets may wait.
    assert!(waits <= 100_000, "{waits}");
    // That they have stopped shows when somebody comes.
    plain(&mut t, 0);
    t.send(Host::A, &format!(". 1:101 ack 1 <{WISH}>"));
    let none = capacity_bps(&mut t);
    assert!(none > 7_000_000, "{none}");
}

#[test]
fn of_a_medium_that_both_directions_share_the_router_gives_what_is_left() {
    let mut t = between_with(|link| {
        link.is_xcp_router = true;
        link.is_half_duplex = true;
    });
    for n in 0..60 {
        for part in 0..3 {
            let from = 1 + n * 3000 + part * 1000;
            t.send(Host::B, &format!(". {from}:{} ack 1", from + 960));
        }
        t.play("~10");
    }
    t.take(Host::A);
    given(&mut t, 0, 3);
    let left = capacity_bps(&mut t);
    // What the two packets heard last is not in it yet.
    assert!((5_500_000..6_300_000).contains(&left), "{left}");
}

fn is_host_told(t: &mut Script, what: Event) -> bool {
    t.take_happened().iter().any(|(_, event)| *event == what)
}

/// How many packets may be under way, as the next ones say it.
fn window_packets(t: &mut Script, more: &str) -> f64 {
    t.play(&format!("{more}\n ~100"));
    let _ = t.take(Host::A);
    let said = said(t);
    let newest = said.last().expect("more is sent");
    newest.rtt.seconds() / newest.spacing.seconds()
}

#[test]
fn a_word_that_was_overtaken_is_old() {
    let mut t = open(READS);
    t.play("a > . 1:43801 ack 1 {gso 1460}\n ~90");
    let _ = (t.take(Host::B), t.take(Host::A));
    t.play("b > . 1 ack 7201 <flraw 54 00030d40,flraw 53>");
    let _ = (t.take(Host::B), t.take(Host::A));
    t.play("b > . 1 ack 8661 <flraw 54 00030d40,flraw 53>");
    let before = window_packets(&mut t, "b > . 1 ack 17281 <flraw 53>\n drop");
    // An acknowledgement of less, which came late, tells of next to nothing.
    t.play("b > . 1 ack 7201 <flraw 54 00000001,flraw 53>\n drop");
    let after =
        window_packets(&mut t, "b > . 1 ack 43201 <flraw 53>\n drop\n a > . 43801:58401 ack 1 {gso 1460}");
    // What was not used has aged. Half would be gone had it been believed.
    assert!(before > 15.0 && after > 0.6 * before, "{before} {after}");
}

#[test]
fn words_that_are_lost_on_the_way_are_not_told_of_again() {
    let mut t = open(READS);
    let told = |t: &mut Script| {
        host_a_sees_nothing(t);
        let seen = t.take(Host::B);
        seen.iter().rev().find_map(|s| s.segment.options.xcp_sum)
    };
    t.play("b > P. 1:101 ack 1 <flraw 54 00800000 01999999 000003e8,flraw 53>\n ~60");
    assert_eq!(told(&mut t), Some(1_000));
    // A few packets say nothing, as where a gateway says who it is; then all of them.
    t.play("b > P. 101:201 ack 1 <flraw 53>\n ~60");
    for n in 0..16 {
        let from = 201 + n * 100;
        assert!(told(&mut t).is_some() || n > 13, "{n}");
        t.play(&format!("b > P. {from}:{} ack 1 <flraw 53>\n ~60", from + 100));
    }
    assert_eq!(told(&mut t), None, "an old answer is none");
}

#[test]
fn routers_that_take_more_than_any_queue_could_are_not_believed() {
    let mut t = open(READS);
    t.play("a > . 1:43801 ack 1 {gso 1460}\n ~90");
    let _ = (t.take(Host::B), t.take(Host::A));
    t.play("b > . 1 ack 7201 <flraw 54 004c4b40,flraw 53>\n ~20");
    let _ = (t.take(Host::B), t.take(Host::A));
    assert!(is_host_told(&mut t, Event::Explicit(Side::B)));
    t.play("b > . 1 ack 14501 <flraw 54 ffb3b4c0,flraw 53>");
    assert!(is_host_told(&mut t, Event::Doubted(Side::B, Doubt::Absurd)));
    assert_eq!(t.status().counters.xcp_doubted, 1);
    // It goes on, wishes for nothing, and hears nothing for a while.
    let _ = (t.take(Host::B), t.take(Host::A));
    t.play(
        "b > . 1 ack 43201 <flraw 54 000f4240,flraw 53>\n drop\n a > . 43801:58401 ack 1 {gso 1460}\n ~60",
    );
    let later = said(&mut t);
    assert!(!later.is_empty() && later.iter().all(|f| f.delta_bytes_per_s == 1), "{later:?}");
    assert!(!is_host_told(&mut t, Event::Explicit(Side::B)));
}

#[test]
fn only_who_is_named_goes_by_what_routers_say() {
    let says = |explicit: Explicit| {
        let mut t = open_for(READS, explicit);
        t.play("a > P. 1:2001 ack 1\n ~1");
        !said(&mut t).is_empty()
    };
    assert!(says(Explicit::default()));
    assert!(says(Explicit { peers: vec![9, 0x2b], ..Explicit::default() }));
    assert!(!says(Explicit { peers: vec![9], ..Explicit::default() }));
    let [a, b] = ["10.0.1.0", "10.0.2.0"].map(|net| vec![(net.parse().unwrap(), 24)]);
    let hosts = |sources, destinations| Explicit { sources, destinations, peers: vec![0x2b] };
    assert!(says(hosts(a.clone(), b.clone())));
    assert!(!says(hosts(b, vec![])), "b sends it nothing");
    assert!(!says(hosts(vec![], a)));
}

/// A connection that goes by what routers say: 1 MB a second more than it began with, of which b
/// has acknowledged 14,401 bytes. The rest of 43,800 is under way.
fn told() -> Script {
    let mut t = open_with(READS, |s| {
        s.link = Some(hub_link());
        s.config.limits.relay_bytes = 1 << 20;
    });
    t.play("a > . 1:43801 ack 1 {gso 1460}\n ~90\n drop");
    t.play("b > . 1 ack 7201 <flraw 54 000f4240,flraw 53>\n ~20\n drop");
    t.play("b > . 1 ack 14401 <flraw 54 000f4240,flraw 53>\n ~60\n drop");
    assert!(is_host_told(&mut t, Event::Explicit(Side::B)));
    t
}

/// What may be sent after this, bytes a second.
fn allowed(t: &mut Script, link: usize, more: &str) -> u64 {
    t.play(&format!("{more}\n ~60"));
    let _ = (t.take(Host::A), t.take(Host::B));
    let pairs = &t.with_gateway(|g, _, _| g.status()).links[link].pairs;
    pairs.first().expect("there is a pair").rate_bps / 8
}

#[test]
fn a_far_receiver_that_begins_again_neither_takes_nor_gives() {
    for again in ["00000000", "00000040", "ffffffc0"] {
        let mut t = told();
        t.play("b > . 1 ack 28801 <flraw 54 000f4240,flraw 53>\n drop");
        let before = allowed(&mut t, 0, "a > . 43801:58401 ack 1 {gso 1460}");
        // It has slept, and has forgotten its sum.
        t.play(&format!("b > . 1 ack 43801 <flraw 54 {again},flraw 53>\n drop"));
        let after = allowed(&mut t, 0, "a > . 58401:73001 ack 1 {gso 1460}");
        assert!(!is_host_told(&mut t, Event::Doubted(Side::B, Doubt::Absurd)), "{again}");
        assert!(before > 1_000_000 && after.abs_diff(before) < before / 10, "{again}: {before} {after}");
    }
}

#[test]
fn a_controller_that_begins_under_way_begins_with_the_sum_that_it_is_told_first() {
    for other in ["cubic", "bbr"] {
        let mut t = told();
        set(&mut t, "link.hub.cc", other).unwrap();
        t.play("b > . 1 ack 43201 <flraw 53>\n drop\n a > . 43801:58401 ack 1 {gso 1460}\n ~60");
        assert_eq!(said(&mut t), [], "it says nothing meanwhile");
        t.play("drop\n b > . 1 ack 58361 <flraw 53>\n drop");
        set(&mut t, "link.hub.cc", "xcp").unwrap();
        t.play("a > . 58401:73001 ack 1 {gso 1460}\n ~60\n drop");
        // 10 MB a second, by whatever has come meanwhile.
        let before = allowed(&mut t, 0, "b > . 1 ack 61301 <flraw 54 00989680,flraw 53>");
        assert!(is_host_told(&mut t, Event::Explicit(Side::B)), "it speaks");
        assert!(before < 2_000_000, "{other}: {before}");
        // From then on changes count: 0.5 MB a second.
        let after = allowed(&mut t, 0, "b > . 1 ack 62741 <flraw 54 00a037a0,flraw 53>");
        assert!((200_000..700_000).contains(&(after - before)), "{other}: {before} {after}");
    }
}

#[test]
fn routers_of_the_way_that_was_left_have_no_say_on_another_one() {
    let mut t = open_with(READS, |s| {
        s.link = Some(hub_link());
        s.spare = Some(Some(Link { name: "spare".into(), ..hub_link() }));
        s.config.limits.relay_bytes = 1 << 20;
    });
    t.play("a > . 1:43801 ack 1 {gso 1460}\n ~90\n drop");
    t.play("b > . 1 ack 7201 <flraw 54 000f4240,flraw 53>\n ~60\n drop");
    assert!(is_host_told(&mut t, Event::Explicit(Side::B)));
    t.reroute_b(SPARE);
    t.play("a > . 43801:73001 ack 1 {gso 1460}\n ~20\n drop");
    // Of what left the old way: 10 MB a second more, and a sum that is far off.
    t.play("b > . 1 ack 14401 <flraw 54 00a7d8c0,flraw 53>\n ~20\n drop");
    assert!(!is_host_told(&mut t, Event::Explicit(Side::B)), "nobody has spoken on this one");
    t.play("b > . 1 ack 43201 <flraw 54 00a7d8c0,flraw 53>\n drop");
    t.play("~60\n drop");
    let fast = allowed(&mut t, 1, "b > . 1 ack 46681 <flraw 54 00a7d900,flraw 53>");
    assert!(is_host_told(&mut t, Event::Explicit(Side::B)), "now one has");
    assert!((100_000..2_000_000).contains(&fast), "{fast}");
}

#[test]
fn who_knows_no_round_trip_yet_is_not_answered() {
    let mut t = open(READS);
    for delta in ["00000000", "00000001", "7fffffff", "000003e8", "ffffffff"] {
        t.play(&format!("b > P. 1:101 ack 1 <flraw 54 00000000 00000000 {delta},flraw 53>\n ~60"));
        host_a_sees_nothing(&mut t);
        assert!(t.take(Host::B).iter().all(|s| s.segment.options.xcp_sum.is_none()), "{delta}");
    }
}

#[test]
fn the_queue_of_a_link_leaves_alone_what_knows_no_round_trip() {
    let mut t = between(true);
    given(&mut t, 0, 4);
    for (n, delta) in [(8, "00000001"), (9, "000003e8"), (10, "7fffffff")] {
        let from = 1 + n * 100;
        t.play(&format!(
            "a > . {from}:{} ack 1 <flraw 54 00000000 00000000 {delta},flraw 53>\n ~50",
            from + 100
        ));
        let left: Vec<_> = said(&mut t).iter().map(|f| f.delta_bytes_per_s).collect();
        assert_eq!(left, [i32::from_str_radix(delta, 16).unwrap()]);
    }
}
