//! ICMP and MTU: errors about made segments are ours, all others the hosts'; small and black-holed
//! paths.

use crate::receiver::Receiver;
use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};

/// A full segment of a's has gone to b, made by the gateway.
fn full_segment() -> Script {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:1461 ack 1
         b < P. 1:1461 ack 1
         +40
         a < . 1 ack 1461",
    );
    t
}

#[test]
fn an_error_about_a_made_segment_is_digested_and_obeyed() {
    let mut t = full_segment();
    t.play(
        "r > a toobig 1300 . 1:1461 ack 1
         b < P. 1:1461 ack 1 {gso 1260}
         b > . 1 ack 1461
         a > P. 1461:2921 ack 1
         b < P. 1461:2921 ack 1 {gso 1260}
         +40
         a < . 1 ack 2921
         quiet",
    );
    t.assert(t.status().counters.icmp_consumed == 1, "one error");
}

#[test]
fn an_error_about_something_else_goes_to_its_host() {
    let mut t = full_segment();
    t.play(
        "b > . 1 ack 1461
         # Acknowledged: it cannot be about ours; nor is what was never sent.
         r > a toobig 1300 . 1:1461 ack 1
         a < icmp toobig 1300 about 1
         r > a toobig 1300 . 5001:6001 ack 1
         a < icmp toobig 1300 about 5001
         # Another connection.
         r > a toobig 1300 . 1:1461 ack 1 {port 50000}
         a < icmp toobig 1300 about 1
         a > P. 1461:2921 ack 1
         b < P. 1461:2921 ack 1",
    );
}

#[test]
fn other_errors_are_told_to_the_host() {
    let mut t = full_segment();
    t.play(
        "r > a unreach 1 . 1:1461 ack 1
         a < icmp unreach 1 about 1
         quiet",
    );
    t.assert(t.status().custody_bytes == 1460, "custody stays");
}

#[test]
fn a_connection_attempt_that_is_rejected_is_told_to_the_host() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         r > a unreach 13 S 0
         a < icmp unreach 13 about 0",
    );
}

#[test]
fn an_absurd_mtu_is_not_believed() {
    let mut t = full_segment();
    t.play("r > a toobig 40 . 1:1461 ack 1\n ~1");
    let got = t.take(Host::B);
    assert!(got.iter().all(|s| s.offload.gso_size == 512), "min_pmtu of Linux less headers: {got:?}");
    let mut t = Script::with(|s| s.v6 = true);
    t.open_with("<mss 1440,sackOK,ws 7>", "<mss 1440,sackOK,ws 7>");
    t.play("a > P. 1:1441 ack 1\n b < P. 1:1441 ack 1\n r > a toobig 600 . 1:1441 ack 1\n ~1");
    let got = t.take(Host::B);
    assert!(got.iter().all(|s| s.offload.gso_size == 1220), "RFC 8200: {got:?}");
}

#[test]
fn a_router_that_does_not_say_its_mtu() {
    let mut t = full_segment();
    t.play("r > a toobig 0 . 1:1461 ack 1\n b < P. 1:1461 {gso 536}");
}

#[test]
fn a_black_hole_is_suspected_after_repeated_timeouts() {
    let mut t = full_segment();
    t.play("~20s");
    let sizes: Vec<_> = t.take(Host::B).iter().map(|s| s.packet_payload()).collect();
    assert!(sizes.contains(&1240) && sizes.contains(&512), "1280, then 552 (RFC 4821, 2923): {sizes:?}");
    // The first piece alone asks; what is left of a segment is smaller.
    assert!(sizes.iter().skip_while(|s| **s > 1240).all(|s| *s <= 1240), "never larger again: {sizes:?}");
    assert!(sizes.iter().skip_while(|s| **s > 512).all(|s| *s <= 512), "never larger again: {sizes:?}");
}

#[test]
fn made_segments_fit_the_route() {
    let mut t = Script::new();
    t.set_mtu(Host::B, 1400);
    t.open();
    t.play("a > P. 1:1461 ack 1\n b < P. 1:1461 {gso 1360}\n b > . 1 ack 1461\n ~40\n drop");
    // The route changes in mid-flow; every packet is checked against it.
    t.set_mtu(Host::B, 1000);
    t.play("a > P. 1461:2921 ack 1\n b < P. 1461:2921 {gso 960}");
}

#[test]
fn made_segments_fit_the_hosts_mss() {
    for mss in [88, 536, 1460] {
        let mut t = Script::new();
        t.open_with("<mss 1460,sackOK,ws 7>", &format!("<mss {mss},sackOK,ws 7>"));
        t.play("a > P. 1:1461 ack 1\n ~1");
        for s in t.take(Host::B) {
            let one = s.packet_payload();
            assert!(one <= mss, "{s}");
        }
    }
    // Without the option: RFC 9293 3.7.1.
    let mut t = Script::new();
    t.open_with("<mss 1460>", "");
    t.play("a > P. 1:601 ack 1\n b < P. 1:601 {gso 536}");
}

#[test]
fn options_are_deducted_from_the_segment() {
    let mut t = Script::new();
    t.open_with("<mss 1460,sackOK,ws 7,ts 10 0>", "<mss 1460,sackOK,ws 7,ts 20 0>");
    t.play("a > P. 1:1449 ack 1 <ts 11 20>\n b < P. 1:1449\n b > . 1 ack 1449 <ts 21 11>\n ~40\n drop");
    t.play("a > P. 1449:4345 ack 1 <ts 12 21> {gso 1448}\n a < . 1 ack 4345\n b < P. 1449:4345 {gso 1448}");
}

#[test]
fn repetitions_fit_a_route_that_has_become_narrow() {
    let mut t = full_segment();
    t.set_mtu(Host::B, 1000);
    t.play("~20s");
    let again = t.take(Host::B);
    assert!(!again.is_empty() && again.iter().all(|s| s.offload.gso_size <= 960), "{again:?}");
}

/// Sizes of the segments that b is sent when a sends so much.
fn sent_through(t: &mut Script, b: &mut Receiver) -> Vec<usize> {
    let (from, end) = (b.acked, b.acked + 14_600);
    let mut sizes = Vec::new();
    t.play(&format!("a > P. {from}:{end} ack 1 {{gso 1460}}"));
    while b.acked < end {
        sizes.extend(b.take(t));
    }
    t.play("~100\n drop");
    sizes
}

#[test]
fn a_black_hole_is_remembered_and_probed_again() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n ~20\n drop\n b > . 1 ack 101\n ~100\n drop");
    let mut b = Receiver::new(101);
    b.largest = 1300;
    let first = sent_through(&mut t, &mut b);
    assert!(first.contains(&1240), "{first:?}");
    // RFC 4821 7.7: a larger size is tried by single segments, three in all, and then not before
    // ten minutes have passed.
    let mut probes = 0;
    for _ in 0..4 {
        probes += sent_through(&mut t, &mut b).iter().filter(|n| **n > 1300).count();
    }
    assert!(probes <= 3, "{probes}");
    let later = sent_through(&mut t, &mut b);
    assert!(later.iter().all(|n| *n <= 1240), "{later:?}");
    // The hole is mended; that is found out when it is time.
    b.largest = usize::MAX;
    t.play("~60s\n drop");
    let soon = sent_through(&mut t, &mut b);
    assert!(soon.iter().all(|n| *n <= 1240), "{soon:?}");
    t.play("~600s\n drop");
    let then = sent_through(&mut t, &mut b);
    assert_eq!(then.iter().max(), Some(&1460));
    let mended = sent_through(&mut t, &mut b);
    assert!(mended.iter().all(|n| *n == 1460), "{mended:?}");
}

/// The same over a declared link, where hosts are remembered.
fn over_a_link() -> Script {
    let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
    let link = Link { name: "sat".into(), rate_bps: Some(80_000_000), leg, ..Link::default() };
    Script::with(|s| s.link = Some(link))
}

/// Sizes of what b gets of a second connection, another minute.
fn sizes_of_another(t: &mut Script, port: u16) -> Vec<usize> {
    let syn = format!("win 65535 <mss 1460> {{port {port}}}");
    t.play(&format!(
        "~1\n drop\n a > S 0 {syn}\n drop b\n b > S. 0 ack 1 {syn}\n drop a\n a > . 1 ack 1 {{port {port}}}"
    ));
    t.play("~1\n drop");
    t.play(&format!("a > P. 1:4381 ack 1 {{gso 1460,port {port}}}\n ~5"));
    t.take(Host::A);
    t.take(Host::B).iter().map(|s| s.packet_payload()).filter(|bytes| *bytes > 0).collect()
}

#[test]
fn what_routers_told_holds_for_the_next_connection_with_that_host() {
    let mut t = over_a_link();
    t.open();
    t.play("a > P. 1:1461 ack 1\n ~2\n r > a toobig 1300 . 1:1461 ack 1\n ~1\n drop");
    let sizes = sizes_of_another(&mut t, 5000);
    assert!(!sizes.is_empty() && sizes.iter().all(|n| *n <= 1260), "{sizes:?}");
    t.play("~600s\n drop");
    let sizes = sizes_of_another(&mut t, 5001);
    assert_eq!(sizes.iter().max(), Some(&1460), "ten minutes later (RFC 1191 6.3): {sizes:?}");
}
