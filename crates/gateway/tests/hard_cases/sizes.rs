//! What a host was told counts, not what the other one said: the rules of a router, or a box on the
//! way, make the MSS of a SYN or of its answer smaller behind the gateway's back.

use crate::script::{Host, Script, USUAL};

fn opened(gateways: usize, v6: bool) -> Script {
    let mut t = Script::with(|s| {
        (s.gateways, s.v6) = (gateways, v6);
        s.config.limits.relay_bytes = 1 << 20;
    });
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}\n ~5\n drop\n b > S. 0 ack 1 win 65535 {USUAL}\n ~5\n drop\n a > . 1 ack 1\n ~5\n drop"
    ));
    t
}

/// Payload of the packets that a host gets, and what follows all of them.
fn packets(t: &mut Script, at: Host) -> (Vec<usize>, u32) {
    let seen = t.take(at);
    let data = seen.iter().filter(|s| !s.payload.is_empty());
    let of_one = |len: usize, gso: u16| if gso > 0 { len.min(gso.into()) } else { len };
    let sizes = data.clone().map(|s| of_one(s.payload.len(), s.offload.gso_size)).collect();
    (sizes, data.map(|s| s.seq + s.payload.len() as u32).max().unwrap_or(0))
}

#[test]
fn no_segment_is_larger_than_its_source_was_told_to_make_them() {
    for (gateways, v6) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut t = opened(gateways, v6);
        for (from, to) in [("a", Host::B), ("b", Host::A)] {
            t.play(&format!("{from} > . 1:10001 ack 1 {{gso 1000}}\n ~20"));
            let (sizes, end) = packets(&mut t, to);
            let largest = sizes.iter().max().copied();
            assert_eq!((largest, end), (Some(1_000), 10_001), "{from}, {gateways}, {v6}: {sizes:?}");
            t.play("drop\n ~100\n drop");
        }
    }
}

#[test]
fn a_larger_segment_shows_that_its_source_was_told_more() {
    let mut t = opened(1, false);
    // The head of an answer, then the file.
    t.play("a > . 1:301 ack 1\n ~5\n drop\n a > . 301:14901 ack 1 {gso 1460}\n ~20");
    let (sizes, end) = packets(&mut t, Host::B);
    assert!(end > 10_000 && sizes.iter().all(|size| *size == 1_460), "{end}: {sizes:?}");
}

/// Pieces that are pushed say nothing of what their source was told. They are put together as
/// before, and go apart where that seems to be the reason of a timeout.
#[test]
fn small_pieces_fill_packets_until_one_of_those_is_lost() {
    let mut t = opened(1, false);
    t.play("b > . 1 ack 1 win 0\n ~5\n drop");
    for n in 0..12 {
        let (from, to) = (1 + n * 400, 401 + n * 400);
        t.play(&format!("a > P. {from}:{to} ack 1\n ~2\n drop"));
    }
    t.play("~5\n drop\n b > . 1 ack 1 win 65535\n ~5");
    let (sizes, _) = packets(&mut t, Host::B);
    assert!(sizes.contains(&1_460), "{sizes:?}");
    t.play("~1100");
    let (sizes, _) = packets(&mut t, Host::B);
    assert!(!sizes.is_empty() && sizes.iter().all(|size| *size <= 536), "{sizes:?}");
}
