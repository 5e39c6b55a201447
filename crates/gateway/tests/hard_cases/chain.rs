//! Two gateways in a row: what the hosts see end to end is what they would see without them.

use crate::script::{Host, Script};
use farlink_gateway::config::Link;
use farlink_wire::Duration;

/// A connection over two gateways and a link of 250 ms each way.
fn chain() -> Script {
    let mut t = Script::with(|s| {
        s.gateways = 2;
        s.link_delay = Duration::from_millis(250);
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         ~250
         drop b
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         ~250
         drop a
         a > . 1 ack 1
         ~250
         drop b",
    );
    t
}

#[test]
fn a_reset_arrives_behind_the_data_and_at_the_receivers_number() {
    let mut t = chain();
    t.play(
        "a > P. 1:101 ack 1
         a > R. 101 ack 1
         ~250
         b < P. 1:101 ack 1
         b > . 1 ack 101
         ~1000
         b < R. 101 ack 1
         quiet",
    );
    t.assert(t.status().custody_bytes == 0, "nothing is left");
}

#[test]
fn closing_goes_through_both() {
    let mut t = chain();
    t.play(
        "a > FP. 1:101 ack 1
         a < . 1 ack 101
         +250
         b < FP. 1:101 ack 1
         b > . 1 ack 102
         ~600",
    );
    // Only what b has got is acknowledged of the end: here, after b's own acknowledgement.
    let acks = t.take(Host::A);
    assert_eq!(acks.last().map(|s| s.ack), Some(102), "{acks:?}");
    t.play(
        "b > FP. 1:51 ack 102
         ~600
         a < FP. 1:51 ack 102
         drop b
         a > . 102 ack 52
         ~600",
    );
    assert!(t.take(Host::B).last().is_some_and(|s| s.ack == 52), "b's end is acknowledged");
    t.play("~5000\n drop\n ~5000\n quiet");
    t.assert(t.status().custody_bytes == 0, "nothing is left");
}

#[test]
fn simultaneous_close() {
    let mut t = chain();
    t.play("a > F. 1 ack 1\n drop\n b > F. 1 ack 1\n ~260");
    let (a, b) = (t.take(Host::A), t.take(Host::B));
    assert!(
        a.iter().any(|s| s.segment.flags.fin()) && b.iter().any(|s| s.segment.flags.fin()),
        "{a:?} {b:?}"
    );
    t.play("a > . 2 ack 2\n ~1\n drop a\n b > . 2 ack 2\n ~60s\n drop\n quiet");
    t.assert(t.status().flows_split == 0, "closed");
}

#[test]
fn urgent_data_keeps_its_end() {
    let mut t = chain();
    t.play("a > PU. 1:101 ack 1 urg 50\n ~250\n drop a\n b < PU. 1:101 ack 1 urg 50");
}

#[test]
fn keepalives_pass_both_gateways() {
    let mut t = chain();
    t.play(
        "a > . 0 ack 1
         +250
         b < . 0 ack 1
         b > . 1 ack 1
         +250
         a < . 1 ack 1
         quiet",
    );
}

#[test]
fn custody_moves_from_gateway_to_gateway() {
    let mut t = chain();
    t.play(
        "b > . 1 ack 1 win 0
         drop
         a > P. 1:401 ack 1
         +40
         a < . 1 ack 401 <no fl>
         ~1000
         drop b
         quiet",
    );
    t.assert(t.status().custody_bytes == 0, "the second one has it");
    t.play("b > . 1 ack 1 win 512\n b < P. 1:401 <no fl>\n b > . 1 ack 401\n ~1000");
    let got = t.take(Host::A);
    assert!(got.iter().all(|s| s.segment.options.farlink.is_none()), "hosts never see it: {got:?}");
}

#[test]
fn the_first_gateway_drains_in_mid_transfer() {
    let mut t = chain();
    t.play("a > P. 1:401 ack 1\n +40\n a < . 1 ack 401");
    t.drain();
    t.play(
        "a > P. 401:801 ack 1
         ~250
         drop a
         b < P. 1:401 ack 1
         b < P. 401:801 ack 1
         b > . 1 ack 801
         ~2000",
    );
    let acked = t.take(Host::A).iter().map(|s| s.ack).max();
    assert_eq!(acked, Some(801));
    t.assert(t.mode() == "none", "forgotten");
    t.play("drop\n a > P. 801:901 ack 1\n ~250\n b < P. 801:901");
}
