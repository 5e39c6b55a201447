//! The usual: a connection is split, early acknowledgements are given, sequence numbers stay.

use crate::script::{Host, Script};

#[test]
fn data_is_acknowledged_early_and_keeps_its_numbers() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0 win 65535 <mss 1460,sackOK,ws 7> {ttl 63,df}
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         a < S. 0 ack 1 win 65535
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         b > P. 1:301 ack 101
         a < P. 1:301 ack 101
         +40
         b < . 101 ack 301
         a > . 101 ack 301
         ~1000
         quiet",
    );
    t.assert(t.status().custody_bytes == 0 && t.mode() == "split", "nothing is left");
}

#[test]
fn lost_data_is_sent_again_by_the_gateway() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         # The server has never answered: RFC 6298 2.1, one second.
         +960
         b < P. 1:101 ack 1
         b > . 1 ack 101
         ~5000
         quiet",
    );
    t.assert(t.status().counters.rtos == 1, "one timeout");
    assert!(t.take(Host::A).is_empty());
}
