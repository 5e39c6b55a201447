//! Timestamps: the host's own newest, never extrapolated, repeated for as long as it takes.

use crate::script::{Host, Script};

fn open_with_timestamps(change: impl FnOnce(&mut crate::script::Setup)) -> Script {
    let mut t = Script::with(change);
    t.open_with("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");
    t
}

#[test]
fn made_segments_carry_the_hosts_newest_values() {
    let mut t = open_with_timestamps(|_| {});
    t.play(
        "a > P. 1:101 ack 1 <ts 1010 5000>
         b < P. 1:101 ack 1 <ts 1010 5000>
         +40
         a < . 1 ack 101 <ts 5000 1010>
         # Sent again nine hundred milliseconds later: not a tick is added.
         +960
         b < P. 1:101 ack 1 <ts 1010 5000>
         b > . 1 ack 101 <ts 6000 1010>
         a > P. 101:201 ack 1 <ts 1500 5000>
         b < P. 101:201 ack 1 <ts 1500 6000>
         +40
         a < . 1 ack 201 <ts 6000 1500>",
    );
}

#[test]
fn the_echo_is_of_the_segment_that_reached_the_last_acknowledgement() {
    let mut t = open_with_timestamps(|_| {});
    t.play(
        "# RFC 7323 4.3: a segment above a hole does not move TS.Recent.
         a > P. 101:201 ack 1 <ts 1020 5000>
         a < . 1 ack 1 <ts 5000 1000,sack 101:201>
         a > P. 1:101 ack 1 <ts 1030 5000>
         b < P. 1:201 ack 1
         a < . 1 ack 201 <ts 5000 1030>",
    );
}

/// A host drops what lies wholly below its last acknowledgement. So a forged segment down there,
/// which may have any of many numbers, must not move timestamps either: the host's own data would
/// be refused from then on.
#[test]
fn a_segment_below_the_last_acknowledgement_teaches_no_timestamps() {
    let mut t = open_with_timestamps(|_| {});
    t.play(
        "a > P. 1:101 ack 1 <ts 1010 5000>
         b < P. 1:101 ack 1 <ts 1010 5000>
         +40
         a < . 1 ack 101 <ts 5000 1010>
         b > . 1 ack 101 <ts 5100 1010>
         a > . 50 ack 1 <ts 900000000 700000000>
         # Its host judges it.
         b < . 50 ack 1 <ts 900000000 5100>
         +40
         a > P. 101:201 ack 1 <ts 1100 5000>
         b < P. 101:201 ack 1 <ts 1100 5100>
         +40
         a < . 1 ack 201 <ts 5100 1100>",
    );
}

/// A guess that hits the next number, and acknowledges something that was never sent, passes. It
/// teaches nothing.
#[test]
fn an_acknowledgement_of_nothing_that_was_sent_teaches_no_timestamps() {
    for ack in [5_001, 400_000_001u32] {
        let mut t = open_with_timestamps(|_| {});
        t.play(&format!(
            "b > . 1 ack {ack} <ts 1000005000 1000>
             a < . 1 ack {ack} <ts 1000005000 1000>
             a > P. 1:101 ack 1 <ts 1010 5000>
             b < P. 1:101 ack 1 <ts 1010 5000>
             +40
             a < . 1 ack 101 <ts 5000 1010>"
        ));
    }
}

/// Minutes of a receiver that reads nothing and answers each probe.
fn paused(t: &mut Script, minutes: u32) -> usize {
    let mut probes = 0;
    for _ in 0..minutes {
        t.play("~60s\n drop a");
        let asked = t.take(Host::B);
        assert!(asked.iter().all(|s| s.payload.is_empty() && !s.segment.flags.rst()), "{asked:?}");
        assert!(asked.iter().all(|s| s.segment.options.timestamps.is_some_and(|x| x.val == 1010)));
        if !asked.is_empty() {
            t.play("b > . 1 ack 1 win 0 <ts 5001 1010>");
            probes += 1;
        }
    }
    probes
}

#[test]
fn data_waits_as_long_as_its_receiver_whatever_its_host_says_meanwhile() {
    let mut t = open_with_timestamps(|_| {});
    t.play(
        "b > . 1 ack 1 win 0 <ts 5001 1000>
         drop
         a > P. 1:101 ack 1 <ts 1010 5000>
         +40
         a < . 1 ack 101",
    );
    paused(&mut t, 16);
    // RFC 7323 5.3: only an older value is refused; the same one is good for ever.
    t.play("b > . 1 ack 1 win 512 <ts 965000 1010>\n b < P. 1:101 ack 1 <ts 1010 965000>");
    t.play("b > . 1 ack 101 win 512 <ts 965001 1010>\n ~1000\n drop a\n quiet");
    t.assert(t.status().custody_bytes == 0 && t.status().counters.flows_abandoned == 0, "delivered");
}

#[test]
fn a_receiver_that_answers_probes_is_never_given_up() {
    let mut t = open_with_timestamps(|_| {});
    t.play(
        "b > . 1 ack 1 win 0 <ts 5001 1000>
         drop
         a > P. 1:101 ack 1 <ts 1010 5000>
         +40
         a < . 1 ack 101",
    );
    // MUST-37 of RFC 9293.
    let probes = paused(&mut t, 60);
    assert!(probes > 50, "one a minute: {probes}");
    t.assert(t.status().custody_bytes == 100, "still held");
}

#[test]
fn an_old_timestamp_is_acknowledged_and_dropped() {
    let mut t = open_with_timestamps(|_| {});
    t.play(
        "a > P. 1:101 ack 1 <ts 2000 5000>
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         # RFC 7323 5.3 R1: PAWS.
         a > P. 101:201 ack 1 <ts 1500 5000>
         a < . 1 ack 101 <ts 5000 2000>
         quiet
         a > P. 101:201 ack 1 <ts 2000 5000>
         b < P. 101:201 ack 1",
    );
}

/// Where packets overtake each other most acknowledgements have an older timestamp than the newest:
/// what they alone tell of is taken, and nothing is answered.
#[test]
fn an_acknowledgement_that_was_overtaken_tells_what_is_held() {
    let mut t = open_with_timestamps(|_| {});
    t.play(
        "a > P. 1:101 ack 1 <ts 2000 5000>
         b < P. 1:101 ack 1
         a > P. 101:201 ack 1 <ts 2000 5000>
         b < P. 101:201 ack 1
         a > P. 201:301 ack 1 <ts 2000 5000>
         b < P. 201:301 ack 1
         ~40
         drop a
         b > . 1 ack 1 <ts 5020 2000,sack 201:301>
         b > . 1 ack 1 <ts 5010 2000,sack 101:201>
         ~1
         quiet
         ~20000
         drop a",
    );
    let again = t.take(Host::B);
    assert!(!again.is_empty() && again.iter().all(|s| s.payload.len() == 100), "{again:?}");
    assert!(again.iter().all(|s| s.segment.seq.0 == again[0].segment.seq.0), "only the first: {again:?}");
    t.play(
        "b > . 1 ack 301 <ts 25030 2000>
         # It says more than the newest, though it is older: it is refused.
         a > P. 301:401 ack 1 <ts 2100 5000>
         b < P. 301:401 ack 1 <ts 2100 25030>
         +40
         a < . 1 ack 401
         b > . 1 ack 401 <ts 25020 2100>
         b < . 401 ack 1
         # And what is too old was not overtaken just now.
         b > . 1 ack 301 <ts 24000 2100>
         b < . 401 ack 1",
    );
}

#[test]
fn round_trip_times_come_from_transmission_records_not_from_echoes() {
    let mut t = open_with_timestamps(|_| {});
    // The echo is wild; the segment was sent once and acknowledged 100 ms later.
    t.play("a > P. 1:101 ack 1 <ts 1010 5000>\n b < P. 1:101\n ~100\n drop\n b > . 1 ack 101 <ts 5100 4000000000>");
    t.play("~100\n drop\n a > P. 101:201 ack 1 <ts 1200 5000>\n b < P. 101:201");
    // TLP after 2 SRTT (+ 200 ms for a single segment), RTO after SRTT + max(200, 4 RTTVAR).
    t.play("~290\n drop a\n quiet\n ~15\n drop a\n b < P. 101:201");
}
