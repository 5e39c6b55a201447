//! A first guess of a rate: what was found before.

use core::time::Duration;

use farlink_egress::RateEstimate;
use farlink_wire::time::Instant;

const RTT: Duration = Duration::from_millis(500);

#[test]
fn a_guess_is_in_force_until_a_minute_has_confirmed_nothing() {
    let now = Instant::from_millis(1_000);
    let mut estimate = RateEstimate::default();
    estimate.recall(now, 8_000_000, RTT);
    assert_eq!((estimate.rate_bps(), estimate.sending_bps()), (Some(8_000_000), Some(8_000_000)));
    assert!(estimate.is_known() && estimate.is_recalled() && estimate.rtt() == Some(RTT));
    let end = now + Duration::from_secs(60);
    assert_eq!(estimate.poll_timeout(), Some(end));
    estimate.recall(now, 1_000_000, RTT);
    assert_eq!(estimate.rate_bps(), Some(8_000_000), "something is known");
    estimate.handle_timeout(end);
    assert_eq!((estimate.rate_bps(), estimate.is_recalled()), (None, false));
}

#[test]
fn what_the_operator_says_counts_more() {
    let now = Instant::from_millis(1_000);
    let mut declared = RateEstimate::declared(4_000_000);
    declared.recall(now, 8_000_000, RTT);
    assert_eq!((declared.rate_bps(), declared.is_recalled()), (Some(4_000_000), false));
    let mut below = RateEstimate::below(4_000_000);
    below.recall(now, 8_000_000, RTT);
    assert_eq!(below.rate_bps(), Some(4_000_000));
}
