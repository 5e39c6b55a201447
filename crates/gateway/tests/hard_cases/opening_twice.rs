//! A link that loses: of each host's first SYN, and of the first answer, two cross it, and one goes
//! on.

use farlink_gateway::LinkStatus;
use farlink_gateway::config::{Copies, Link};
use farlink_wire::Duration;

use crate::script::{Host, Script};

/// Another gateway that lets one of two go on, and one that does not.
const OTHER: &str = "68 0000002a 02 005f 00";
const OLDER: &str = "68 0000002a 02 001f 00";
const SYN: &str = "a > S 0 win 65535 <mss 1460,sackOK,ws 7,ts 1 0";
const ANSWER: &str = "b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,ts 1 1";

fn link() -> Link {
    Link {
        name: "sat".into(),
        rate_bps: Some(8_000_000),
        rtt: Some(Duration::from_millis(500)),
        ..Link::default()
    }
}

fn status(t: &mut Script) -> LinkStatus {
    t.with_gateway(|gateway, _, _| gateway.status().links.swap_remove(0))
}

/// SYNs and answers that a host has got: of the connection from this port, and how many say that
/// they leave twice.
fn openings(t: &mut Script, host: Host, port: u16) -> (usize, usize) {
    let got = t.take(host);
    let got: Vec<_> = got.iter().filter(|s| s.port == port && s.segment.flags.syn()).collect();
    let says = |body: &[u8]| matches!(body, [.., 0xb1, flags] if flags & 1 != 0);
    let twice = got.iter().filter(|s| s.segment.options.farlink.as_ref().is_some_and(|o| says(&o.body)));
    (got.len(), twice.count())
}

/// SYNs that b has got of the connection from this port: whether they have the option.
fn asks(t: &mut Script, port: u16) -> Vec<bool> {
    let got = t.take(Host::B);
    let syns = got.iter().filter(|s| s.port == port && s.segment.flags.syn());
    syns.map(|s| s.segment.options.has_ours()).collect()
}

/// A gateway beyond the link has been met, and says with the answer what it finds of the link. What
/// then leaves of the SYN of another connection.
fn second_syn(mut t: Script, answer: &str) -> (Script, (usize, usize)) {
    t.play(&format!("{SYN}>\n drop\n {ANSWER},flraw 52 {answer}>\n drop\n a > . 1 ack 1 <ts 2 1>\n drop"));
    t.play("a > P. 1:101 ack 1 <ts 3 1>\n ~10\n drop\n b > . 1 ack 101 <ts 2 3,flraw 53>\n ~10\n drop");
    t.play(&format!("{SYN}> {{port 40001}}\n ~10"));
    let left = openings(&mut t, Host::B, 40001);
    (t, left)
}

#[test]
fn a_syn_into_a_link_that_loses_leaves_twice() {
    for v6 in [false, true] {
        let beyond = || Script::with(|s| (s.v6, s.link) = (v6, Some(link())));
        let (mut t, left) = second_syn(beyond(), &format!("{OTHER} b1 02"));
        assert_eq!(left, (2, 2));
        let (link, bytes) = (status(&mut t), if v6 { 96 } else { 76 });
        assert_eq!((link.spent.copy_bytes, t.status().counters.openings_copied), (bytes, 1), "{link:?}");
        // Its repetition does not say so, and goes both ways; nor does the first one of a
        // connection over a link that does not lose.
        t.play(&format!("~1s\n drop\n {SYN}> {{port 40001}}\n ~10"));
        assert_eq!(openings(&mut t, Host::B, 40001), (2, 0));
        for answer in [OTHER.to_owned(), format!("{OTHER} b1 00"), format!("{OTHER} b0")] {
            let (t, left) = second_syn(beyond(), &answer);
            assert_eq!((left, t.status().counters.openings_copied), ((1, 0), 0), "{answer}");
        }
    }
}

#[test]
fn not_where_copies_are_off_nor_to_who_lets_both_go_on_nor_in_a_flood() {
    let off = Script::with(|s| s.link = Some(Link { copies: Copies::Off, ..link() }));
    assert_eq!(second_syn(off, &format!("{OTHER} b1 02")).1, (1, 0));
    let older = Script::with(|s| s.link = Some(link()));
    assert_eq!(second_syn(older, &format!("{OLDER} b1 02")).1, (1, 0));
    let many = Script::with(|s| {
        s.link = Some(link());
        s.config.limits.half_open_max = 40;
    });
    let (mut t, left) = second_syn(many, &format!("{OTHER} b1 02"));
    assert_eq!(left, (2, 2));
    let twice = |t: &mut Script, port: u16| {
        t.play(&format!("drop\n {SYN}> {{port {port}}}\n ~10"));
        openings(t, Host::B, port) == (2, 2)
    };
    let copied = (41_000..41_030).filter(|port| twice(&mut t, *port)).count();
    assert_eq!(copied, 9, "a quarter of what may be half open");
}

/// A box on the way begins to drop the option: nothing leaves twice with it any more, and what
/// tries it again has a copy as the host has made it.
#[test]
fn nothing_that_a_box_drops_leaves_twice() {
    let (mut t, left) = second_syn(Script::with(|s| s.link = Some(link())), &format!("{OTHER} b1 02"));
    assert_eq!(left, (2, 2));
    // It may have been lost, so the second goes both ways, and is answered.
    t.play(&format!("~1s\n drop\n {SYN}> {{port 40001}}\n ~10"));
    assert_eq!(asks(&mut t, 40001), [true, false]);
    t.play(&format!(
        "~600\n drop\n {ANSWER}> {{port 40001}}\n drop\n a > . 1 ack 1 <ts 2 1> {{port 40001}}\n drop"
    ));
    for (port, left) in [(40002, &[true, false][..]), (40003, &[false]), (40004, &[false])] {
        t.play(&format!("{SYN}> {{port {port}}}\n ~10"));
        assert_eq!(asks(&mut t, port), left, "{port}");
    }
    assert_eq!(t.status().counters.openings_copied, 1, "before that");
}

/// The same of the answer to the gateway before this one, whose SYN is repeated without the option
/// and answered so.
#[test]
fn no_answer_that_a_box_drops_leaves_twice() {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    let asked = |port: u16| format!("{SYN},flraw 51 {OTHER} b1 02> {{port {port}}}\n drop b");
    let answer = |port: u16| format!("{ANSWER}> {{port {port}}}\n ~10");
    let acked = |port: u16| format!("~500\n a > . 1 ack 1 <ts 2 1> {{port {port}}}\n drop");
    t.play(&format!("{}\n {}", asked(40000), answer(40000)));
    assert_eq!(openings(&mut t, Host::A, 40000), (2, 2));
    t.play("~1s\n drop\n a > S 0 win 65535 <mss 1460,sackOK,ws 7,ts 1001 0>\n drop b");
    t.play("b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,ts 1001 1001>\n ~10");
    assert_eq!(openings(&mut t, Host::A, 40000), (1, 0));
    t.play("~500\n a > . 1 ack 1 <ts 1600 1001>\n drop");
    for (port, left) in [(40001, (2, 0)), (40002, (1, 0)), (40003, (1, 0))] {
        t.play(&format!("{}\n {}", asked(port), answer(port)));
        assert_eq!(openings(&mut t, Host::A, port), left, "{port}");
        t.play(&acked(port));
    }
    assert_eq!(t.status().counters.openings_copied, 1, "before that");
}

/// The first answer leaves twice, and says what the SYN has said.
#[test]
fn an_answer_over_a_link_that_loses_leaves_twice() {
    for v6 in [false, true] {
        let mut t = Script::with(|s| (s.v6, s.link_a) = (v6, Some(link())));
        t.play(&format!("{SYN},flraw 51 {OTHER} b1 02>\n b < S 0 <no flsyn>\n {ANSWER}>\n ~10"));
        assert_eq!(openings(&mut t, Host::A, 40000), (2, 2));
        t.play(&format!("~1s\n drop\n {ANSWER}>\n ~10"));
        assert_eq!(openings(&mut t, Host::A, 40000), (2, 0), "the server repeats it by itself");
        t.play("a > . 1 ack 1 <ts 2 1>\n drop");
        let flows = t.with_gateway(|gateway, now, _| gateway.flows(now, usize::MAX));
        let bytes = if v6 { 96 } else { 76 };
        assert_eq!(flows[0].spent_a.copy_bytes, bytes, "of the connection, too");
    }
}

/// What comes twice goes on once, whichever comes first, also when the connection is open already;
/// and nothing is learned from the second.
#[test]
fn of_two_one_goes_on() {
    for v6 in [false, true] {
        let mut t = Script::with(|s| (s.v6, s.link_a) = (v6, Some(link())));
        let syn = format!("{SYN},flraw 51 {OTHER} b1 01>");
        t.play(&format!(
            "{syn}\n b < S 0 <no flsyn>\n {syn}\n quiet\n ~300\n {ANSWER}>\n drop\n {syn}\n quiet"
        ));
        // A repetition of the host's own does not say so.
        t.play(&format!("{SYN},flraw 51 {OTHER}>\n b < S 0"));
        t.play("a > . 1 ack 1 <ts 2 1>\n b < . 1 ack 1");
        t.play(&format!("{syn}\n quiet"));

        let mut t = Script::with(|s| (s.v6, s.link) = (v6, Some(link())));
        let answer = format!("{ANSWER},flraw 52 {OTHER} b1 01>");
        t.play(&format!("{SYN}>\n drop\n {answer}\n a < S. 0 ack 1 <no flsynack>\n {answer}\n quiet"));
        t.play("a > . 1 ack 1 <ts 2 1>\n ~10\n b < . 1 ack 1");
        t.play(&format!("{answer}\n quiet"));
        t.play(&format!("a > P. 1:101 ack 1 <ts 3 1>\n ~10\n drop\n {answer}\n quiet"));
    }
}

/// Where nobody has asked, nobody is heard: both go on, without our option.
#[test]
fn what_a_host_says_of_two_counts_for_nothing() {
    let mut t = Script::with(|_| {});
    let syn = format!("{SYN},flraw 51 {OTHER} b1 01>");
    t.play(&format!("{syn}\n b < S 0 <no flsyn>\n {syn}\n b < S 0 <no flsyn>"));
}
