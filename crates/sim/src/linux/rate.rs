//! Delivery-rate samples (Linux tcp_rate.c).

use farlink_wire::{Duration, Instant};

/// What is noted in a segment when it is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: bool,
}

/// Packets delivered over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Packets delivered in the interval; `None`: there is no sample.
    pub delivered: Option<u64>,
    /// The interval.
    pub interval: Duration,
    /// Count of delivered packets when the newest segment of the sample was sent.
    pub prior_delivered: u64,
    /// The application, not the window, was the limit.
    pub app_limited: bool,
}

/// The counter of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    /// Packets delivered so far.
    pub delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Samples until this count are limited by the application; zero: none.
    app_limited_until: u64,
    newest: Option<(Stamp, Instant)>,
}

impl Rate {
    /// A segment is sent.
    pub fn stamp(&mut self, now: Instant, packets_out: u32) -> Stamp {
        if packets_out == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        Stamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// A segment sent at `sent` is known to have arrived.
    pub fn delivered(&mut self, now: Instant, stamp: Stamp, sent: Instant) {
        self.delivered += 1;
        self.delivered_at = now;
        if self.newest.is_none_or(|(n, at)| (stamp.delivered, sent) > (n.delivered, at)) {
            self.newest = Some((stamp, sent));
        }
    }

    /// The application has nothing more to send for now.
    pub fn app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// The sample of the acknowledgement just taken.
    pub fn sample(&mut self, now: Instant, min_rtt: Duration) -> Sample {
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Some((stamp, sent)) = self.newest.take() else { return Sample::default() };
        self.first_sent = sent;
        let interval = sent.since(stamp.first_sent).max(now.since(stamp.delivered_at));
        let delivered = self.delivered - stamp.delivered;
        let sane = interval >= min_rtt && !interval.is_zero();
        Sample {
            delivered: sane.then_some(delivered),
            interval,
            prior_delivered: stamp.delivered,
            app_limited: stamp.app_limited,
        }
    }
}
