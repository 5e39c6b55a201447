//! What was granted and waits in pieces is not dropped for others, nor are others for it.

use farlink_egress::{Class, Config, Egress, Grant};
use farlink_wire::Duration;
use farlink_wire::time::Instant;

#[test]
fn pieces_of_what_was_granted_are_no_victims_of_others() {
    let limit = 20_000;
    let rate_bps = Some(8_000_000);
    let mut egress = Egress::new(Config { rate_bps, queue_limit_bytes: limit, ..Config::default() });
    let mut now = Instant::from_millis(1_000);
    let (mut pieces, mut sent, mut victims, mut others) = (0, 0, 0, 0);
    for flow in 0..100 {
        egress.set_ready(now, flow, Class::Bulk);
    }
    for _ in 0..2_000 {
        now += Duration::from_millis(1);
        // Somebody else floods the queue meanwhile.
        for n in 0..4 {
            victims += egress.enqueue(now, 1_000 + n, Class::Bulk, 1_200_u32, 'o').len();
        }
        while let Some(grant) = egress.next_grant(now) {
            match grant {
                Grant::Packet('p') => sent += 1,
                Grant::Packet(_) | Grant::Marked(_) => others += 1,
                Grant::Flow { id, .. } => {
                    for _ in 0..2 {
                        egress.push_granted(now, 1_500_u32, 'p').unwrap();
                        pieces += 1;
                    }
                    egress.used(now, id, 0, 0, false);
                    egress.set_ready(now, id, Class::Bulk);
                }
            }
        }
        let stats = egress.stats();
        assert!(stats.backlog_bytes <= limit + 1_200 + (pieces - sent) * 1_500, "bounded");
    }
    assert!(pieces - sent < 300 && pieces > 500, "{sent} of {pieces} pieces have left, {others} others");
    assert!(victims > 1_000 && others > 20, "{victims} others were dropped, {others} sent");
    // None of those that wait is missing.
    let waiting = egress.take_packets(now).into_iter().filter(|packet| *packet == 'p').count();
    assert_eq!(waiting, pieces - sent);
    assert_eq!(egress.stats().backlog_bytes, 0);
}
