//! Fragments: TCP in IP fragments is put together to be split; everything else passes as it came.

use crate::script::{Host, Script};

#[test]
fn fragments_of_a_split_connection_are_put_together() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:1401 ack 1 {frag 576}
         b < P. 1:1401 ack 1 {df}
         +40
         a < . 1 ack 1401
         quiet",
    );
}

#[test]
fn fragments_of_a_connection_that_is_not_split_go_on_as_they_came() {
    let mut t = Script::new();
    t.play(
        "a > P. 1:1401 ack 1 {frag 576}
         b < fragment 0:552
         b < fragment 552:1104
         b < fragment 1104:1420
         quiet",
    );
}

#[test]
fn a_syn_in_fragments_can_open_a_connection() {
    let mut t = Script::new();
    t.play("a > S 0:600 win 65535 <mss 1460,fo> {frag 300}\n ~1\n drop b");
    t.assert(t.status().half_open == 1, "read");
}

#[test]
fn fragments_whose_kin_never_come_are_let_go() {
    let mut t = Script::new();
    t.open();
    // Only the first of several, taken out of the middle of nothing: an IPv4 header with MF.
    let mut bytes = vec![0x45, 0, 0, 44, 0, 9, 0x20, 0, 63, 6, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1];
    bytes.extend_from_slice(&[7; 24]);
    let sum = !farlink_wire::checksum::sum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    t.inject(Host::A, bytes, farlink_wire::Offload::default());
    t.play("quiet\n ~60s\n b < fragment 0:24\n drop a\n quiet");
}

#[test]
fn other_protocols_pass_bit_exact_but_for_the_hop() {
    let mut t = Script::new();
    let mut bytes = vec![0x45, 0, 0, 40, 0, 9, 0, 0, 63, 50, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1];
    bytes.extend_from_slice(&[7; 20]);
    let sum = !farlink_wire::checksum::sum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    t.inject(Host::A, bytes, farlink_wire::Offload::default());
    t.play("b < other, 40 bytes\n quiet");
}

#[test]
fn what_was_changed_in_a_segment_is_changed_in_its_fragments() {
    let mut t = Script::new();
    // The option is nobody's to read, and goes no further.
    t.play(
        "a > P. 1:1401 ack 1 <fl> {frag 576}
         b < fragment 0:552
         b < fragment 552:1104
         b < fragment 1104:1420
         quiet",
    );
}
