//! Fields: TTL, DSCP, flow label, DF, urgent data, ECN.

use crate::script::{Host, Script};

#[test]
fn a_gateway_costs_one_hop() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460> {ttl 64}
         b < S 0 {ttl 63}
         b > S. 0 ack 1 win 65535 <mss 1460> {ttl 255}
         a < S. 0 ack 1 {ttl 254}
         a > . 1 ack 1 {ttl 64}
         b < . 1 ack 1 {ttl 63}
         # Made segments: the host's newest.
         a > P. 1:101 ack 1 {ttl 40}
         b < P. 1:101 ack 1 {ttl 39}
         +40
         a < . 1 ack 101 {ttl 254}",
    );
}

#[test]
fn two_gateways_cost_two_hops() {
    let mut t = Script::with(|s| s.gateways = 2);
    t.play(
        "a > S 0 win 65535 <mss 1460> {ttl 64}
         b < S 0 {ttl 62}
         b > S. 0 ack 1 win 65535 <mss 1460> {ttl 64}
         a < S. 0 ack 1 {ttl 62}
         a > . 1 ack 1
         b < . 1 ack 1 {ttl 62}
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1 {ttl 62}",
    );
}

/// What is made here has neither IPv4 options nor IPv6 extension headers. So what has some goes on
/// as it came, before a connection is split and afterwards.
#[test]
fn what_has_ip_options_is_left_alone() {
    for v6 in [false, true] {
        let mut t = Script::with(|s| s.v6 = v6);
        t.play(
            "a > S 0 win 65535 <mss 1460> {ipopt}
             b < S 0 {ipopt}
             b > S. 0 ack 1 win 65535 <mss 1460>
             a < S. 0 ack 1
             a > . 1 ack 1 {ipopt}
             b < . 1 ack 1 {ipopt}
             a > P. 1:101 ack 1 {ipopt}
             b < P. 1:101 ack 1 {ipopt}
             +100
             quiet",
        );
        t.assert(t.mode() == "none", "it is not split");
        let mut t = Script::with(|s| s.v6 = v6);
        t.open();
        t.play(
            "a > P. 1:101 ack 1 {ipopt}
             b < P. 1:101 ack 1 {ipopt}
             b > . 1 ack 101
             a < . 1 ack 101
             +100
             quiet",
        );
    }
}

#[test]
fn dscp_is_the_hosts_newest() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1 {dscp 10}
         b < P. 1:101 ack 1 {dscp 10}
         b > . 1 ack 101 {dscp 18}
         +40
         a < . 1 ack 101 {dscp 18}
         a > P. 101:201 ack 1 {dscp 46}
         b < P. 101:201 ack 1 {dscp 46}
         +40
         a < . 1 ack 201 {dscp 18}",
    );
}

#[test]
fn the_flow_label_is_the_hosts_own() {
    let mut t = Script::with(|s| s.v6 = true);
    t.play(
        "a > S 0 win 65535 <mss 1440> {label 4660}
         b < S 0 {label 4660,ttl 63}
         b > S. 0 ack 1 win 65535 <mss 1440> {label 99}
         a < S. 0 ack 1 {label 99}
         a > . 1 ack 1 {label 4660}
         b < . 1 ack 1 {label 4660}
         a > P. 1:101 ack 1 {label 4660}
         b < P. 1:101 ack 1 {label 4660}
         +40
         a < . 1 ack 101 {label 99}
         # A host that moves its flow to another path (RFC 6438).
         a > P. 101:201 ack 1 {label 7}
         b < P. 101:201 ack 1 {label 7}",
    );
}

#[test]
fn what_is_made_between_two_hosts_is_numbered_in_one_row() {
    let mut t = Script::new();
    let ports = [40_000, 40_001];
    for port in ports {
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460> {{port {port}}}
             b < S 0 {{port {port}}}
             b > S. 0 ack 1 win 65535 <mss 1460> {{port {port}}}
             a < S. 0 ack 1 {{port {port}}}
             a > . 1 ack 1 {{port {port}}}
             b < . 1 ack 1 {{port {port}}}"
        ));
    }
    let mut numbers = Vec::new();
    for first in [1, 101, 201] {
        for port in ports {
            t.send(Host::A, &format!("P. {first}:{} ack 1 {{port {port}}}", first + 100));
            numbers.extend(t.take(Host::B).iter().map(|seen| seen.segment.ip.id));
        }
    }
    let row: Vec<u16> = (0..6).map(|n| numbers[0].wrapping_add(n)).collect();
    t.assert(numbers == row, &format!("connections share a row of identifications: {numbers:?}"));
}

#[test]
fn made_segments_have_df_and_forwarded_ones_what_they_had() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1 {nodf}
         b < P. 1:101 ack 1 {df}
         b > . 1 ack 101
         ~40
         drop
         a > . 100 ack 1 {nodf}
         b < . 100 ack 1 {nodf}",
    );
}

#[test]
fn the_end_of_urgent_data_stays_where_the_host_put_it() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > PU. 1:101 ack 1 urg 50
         b < PU. 1:101 ack 1 urg 50
         # Sent again, it says the same.
         +40
         a < . 1 ack 101
         +960
         b < PU. 1:101 ack 1 urg 50
         b > . 1 ack 101
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1",
    );
}

#[test]
fn an_urgent_pointer_of_zero_stays_at_its_segment() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:51 ack 1
         b < P. 1:51 ack 1
         b > . 1 ack 51 win 0
         drop
         a > P. 51:101 ack 1
         a > PU. 101:201 ack 1 urg 0
         a > P. 201:301 ack 1
         +40
         drop a
         b > . 1 ack 51 win 512
         b < . 51:101 ack 1 urg 0
         b < PU. 101:301 ack 1 urg 0
         b > . 1 ack 301",
    );
}

#[test]
fn every_segment_before_the_end_of_urgent_data_is_marked() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > . 1 ack 1 win 0
         drop
         a > . 1:401 ack 1
         ~1
         drop
         a > PU. 401:501 ack 1 urg 100
         ~1
         drop
         b > . 1 ack 1 win 512",
    );
    let got = t.take(Host::B);
    assert!(!got.is_empty());
    for s in got {
        assert!(s.segment.flags.urg() && s.seq + u32::from(s.segment.urgent) == 501, "{s}");
    }
}

#[test]
fn urgent_data_never_leaves_in_a_super_segment() {
    let mut t = Script::new();
    t.open();
    t.play("a > PU. 1:5841 ack 1 urg 5840 {gso 1460}");
    let got = t.take(Host::B);
    assert_eq!(got.iter().map(|s| s.payload.len()).sum::<usize>(), 5840);
    for s in got {
        assert!(s.payload.len() <= 1460 && s.offload.gso_size == 0, "{s}");
        assert!(s.segment.flags.urg() && s.seq + u32::from(s.segment.urgent) == 5841, "{s}");
    }
}

#[test]
fn nor_when_it_is_sent_again() {
    let mut t = Script::new();
    t.open();
    t.play("a > PU. 1:5841 ack 1 urg 5840 {gso 1460}\n drop b\n ~300");
    t.take(Host::B);
    // Nothing was heard: all of it again.
    t.play("~10s");
    let again = t.take(Host::B);
    assert!(!again.is_empty());
    for s in again {
        assert!(s.payload.len() <= 1460 && s.offload.gso_size == 0, "{s}");
        assert!(s.segment.flags.urg() && s.seq + u32::from(s.segment.urgent) == 5841, "{s}");
    }
}

/// Handshake with RFC 3168 ECN.
fn open_ecn() -> Script {
    let mut t = Script::new();
    t.play(
        "a > SEW 0 win 65535 <mss 1460,sackOK,ws 7>
         b < SEW 0 {ecn no}
         b > S.E 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         a < S.E 0 ack 1 {ecn no}
         a > . 1 ack 1
         b < . 1 ack 1",
    );
    t
}

#[test]
fn congestion_is_echoed_by_the_gateway_until_the_source_answers() {
    let mut t = open_ecn();
    t.play(
        "a > P. 1:101 ack 1 {ecn ce}
         a < .E 1 ack 101
         # The mark is this leg's: the other one starts without.
         b < P. 1:101 ack 1 {ecn ect0}
         a > P. 101:201 ack 1 {ecn ect0}
         b < P. 101:201 ack 1 {ecn ect0}
         +40
         a < .E 1 ack 201
         a > PW. 201:301 ack 1 {ecn ect0}
         b < P. 201:301 ack 1 {ecn ect0}
         +40
         a < . 1 ack 301",
    );
}

#[test]
fn an_echo_is_answered_by_the_gateway_and_not_passed_on() {
    let mut t = open_ecn();
    t.play(
        "a > P. 1:101 ack 1 {ecn ect0}
         b < P. 1:101 ack 1 {ecn ect0}
         a > P. 101:201 ack 1 {ecn ect0}
         b < P. 101:201 ack 1
         b > .E 1 ack 101
         ~40
         a < . 1 ack 201
         a > P. 201:301 ack 1 {ecn ect0}
         b < PW. 201:301 ack 1
         b > . 1 ack 301
         a > P. 301:401 ack 1 {ecn ect0}
         b < P. 301:401 ack 1",
    );
}

#[test]
fn retransmissions_and_pure_acknowledgements_are_not_ect() {
    let mut t = open_ecn();
    t.play(
        "a > P. 1:101 ack 1 {ecn ect0}
         b < P. 1:101 ack 1 {ecn ect0}
         +40
         a < . 1 ack 101 {ecn no}
         +960
         b < P. 1:101 ack 1 {ecn no}",
    );
}

#[test]
fn without_negotiation_nothing_made_is_ect() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1 {ecn ect0}
         b < P. 1:101 ack 1 {ecn no}
         a > P. 101:201 ack 1 {ecn ce}
         b < P. 101:201 ack 1 {ecn no}
         +40
         a < . 1 ack 201",
    );
}
