//! Acknowledgements to other gateways are a group of a slow link's queue, with a rate of its own.
//! While a flow waits for its turn, what it has to say adds up, so nothing needs to be filtered:
//! the queue grants the right to acknowledge.

use farlink_egress::{Egress, Share};
use farlink_engine::ack_ration;
use farlink_wire::Instant;

use crate::group;

/// The group has a rate where the queue has one and is slow, and is gone where not. Returns whether
/// it exists.
pub fn follow<P>(now: Instant, egress: &mut Egress<P>) -> bool {
    match egress.config().rate_bps.and_then(ack_ration::ration_bps) {
        rate_bps @ Some(_) => {
            // Where there are too many groups already they stand in the default one.
            egress.set_group(now, group::GATEWAY_ACKS, Share { rate_bps, ..Share::default() })
        }
        None => {
            egress.remove_group(now, group::GATEWAY_ACKS);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use farlink_egress::{Class, Config, Grant, Lane};
    use farlink_wire::Duration;

    use super::*;

    const ACK_BYTES: u32 = 76;

    /// Bytes of acknowledgements that leave in ten seconds if so many flows always have one.
    fn sent_bytes(rate_bps: u64, flows: u64, group: farlink_egress::GroupId) -> u32 {
        let mut egress = Egress::<()>::new(Config { rate_bps: Some(rate_bps), ..Config::default() });
        assert!(follow(Instant::ZERO, &mut egress));
        let lane = Lane { class: Class::Control, group };
        let mut sent = 0;
        let mut now = Instant::ZERO;
        while now < Instant::from_millis(10_000) {
            (0..flows).for_each(|flow| egress.set_ready(now, flow, lane));
            while let Some(Grant::Flow { id, .. }) = egress.next_grant(now) {
                sent += ACK_BYTES;
                egress.used(now, id, ACK_BYTES, 1, true);
            }
            now += Duration::from_millis(1);
        }
        sent
    }

    #[test]
    fn however_many_flows_there_are_they_take_a_seventh() {
        for flows in [1, 10, 40] {
            for (rate_bps, share_bps) in [(128_000, 18_285), (32_000, 4_571), (9_600, 2_560)] {
                let sent = sent_bytes(rate_bps, flows, group::GATEWAY_ACKS);
                let expected = share_bps * 10 / 8;
                // A packet more at the beginning.
                assert!(
                    sent <= expected + 1_600 && sent + 2 * ACK_BYTES > expected,
                    "{flows} {rate_bps}: {sent}"
                );
            }
        }
        // What is no acknowledgement to a gateway may have all.
        assert!(sent_bytes(32_000, 1, group::PLAIN) > 39_000);
    }
}
