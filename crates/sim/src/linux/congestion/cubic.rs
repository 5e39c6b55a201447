//! CUBIC with HyStart (Linux tcp_cubic.c, with its constants and its order of things).

use farlink_wire::{Duration, Instant};

use super::{Acked, Window};

/// Linux `beta`, of 1024.
const BETA: u64 = 717;
/// Linux `bic_scale` 41: C = 0.4 packets per second cubed.
const C: f64 = 41.0 * 10.0 / 1024.0;
/// Linux `hystart_low_window`.
const HYSTART_LOW_WINDOW: u32 = 16;
/// Linux `HYSTART_MIN_SAMPLES`.
const HYSTART_SAMPLES: u32 = 8;
/// Linux `hystart_ack_delta_us`.
const HYSTART_ACK_DELTA: Duration = Duration::from_millis(2);
/// Linux `HYSTART_DELAY_MIN` and `HYSTART_DELAY_MAX`.
const HYSTART_DELAY: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];
/// Bytes of four super-segments: what `hystart_ack_delay` allows for.
const HYSTART_BURST_BITS: f64 = 4.0 * 65_536.0 * 8.0;

/// Linux `struct bictcp`.
#[derive(Clone, Debug, Default)]
pub struct Cubic {
    last_max: u32,
    last_cwnd: u32,
    last_time: Instant,
    origin: u32,
    k_s: f64,
    delay_min: Duration,
    epoch: Option<Instant>,
    ack_count: u64,
    reno_cwnd: u64,
    per: u32,
    round_start: Instant,
    round_end: u64,
    last_ack: Instant,
    round_rtt: Option<Duration>,
    samples: u32,
    found: bool,
    /// The first acknowledgement was seen.
    started: bool,
}

impl Cubic {
    /// `cubictcp_recalc_ssthresh`
    pub(super) fn ssthresh(&mut self, cwnd: u32) -> u32 {
        self.epoch = None;
        let w = u64::from(cwnd);
        let max = if cwnd < self.last_max { w * (1024 + BETA) / 2048 } else { w };
        self.last_max = max as u32;
        ((w * BETA / 1024) as u32).max(2)
    }

    /// `cubictcp_state(TCP_CA_Loss)`
    pub(super) fn on_timeout(&mut self) {
        let delay_min = self.delay_min;
        *self = Self { delay_min: Duration::ZERO, ..Self::default() };
        self.last_ack = Instant::ZERO;
        let _ = delay_min;
    }

    /// `cubictcp_cwnd_event(CA_EVENT_TX_START)`: the time off does not count.
    pub(super) fn on_restart(&mut self, now: Instant, last_sent: Instant) {
        if let Some(epoch) = self.epoch {
            self.epoch = Some((epoch + now.since(last_sent)).min(now));
        }
    }

    /// `cubictcp_acked`: RTTs, and whether slow start has found the path's capacity.
    pub(super) fn measure(&mut self, w: &mut Window, a: &Acked) {
        let Some(rtt) = a.rtt else { return };
        if self.epoch.is_some_and(|e| a.now.since(e) < Duration::from_secs(1)) {
            return;
        }
        if self.delay_min.is_zero() || rtt < self.delay_min {
            self.delay_min = rtt.max(Duration::from_micros(1));
        }
        if !self.found && w.in_slow_start() {
            self.hystart(w, a, rtt);
        }
    }

    fn hystart(&mut self, w: &mut Window, a: &Acked, rtt: Duration) {
        if !self.started || a.una > self.round_end {
            self.started = true;
            self.round_start = a.now;
            self.last_ack = a.now;
            self.round_end = a.nxt;
            self.round_rtt = None;
            self.samples = 0;
        }
        if w.cwnd < HYSTART_LOW_WINDOW {
            return;
        }
        if a.now.since(self.last_ack) <= HYSTART_ACK_DELTA {
            self.last_ack = a.now;
            // Linux `hystart_ack_delay`; the pacing rate in slow start is twice window over RTT.
            let rate = 2.0 * f64::from(w.cwnd) * 1448.0 * 8.0 / a.srtt.as_secs_f64().max(1e-6);
            let slack = Duration::from_secs_f64((HYSTART_BURST_BITS / rate).min(0.001));
            if a.now.since(self.round_start) > (self.delay_min + slack) / 2 {
                self.found = true;
                w.ssthresh = w.cwnd;
                return;
            }
        }
        let least = self.round_rtt.map_or(rtt, |r| r.min(rtt));
        self.round_rtt = Some(least);
        if self.samples < HYSTART_SAMPLES {
            self.samples += 1;
        } else if least > self.delay_min + (self.delay_min / 8).clamp(HYSTART_DELAY[0], HYSTART_DELAY[1]) {
            self.found = true;
            w.ssthresh = w.cwnd;
        }
    }

    /// `bictcp_update`: how many acknowledged packets the window grows by one for.
    pub(super) fn update(&mut self, now: Instant, cwnd: u32, acked: u32) -> u32 {
        self.ack_count += u64::from(acked);
        let soon = now.since(self.last_time) <= Duration::from_micros(31_250);
        if self.last_cwnd == cwnd && soon && self.epoch.is_some() {
            return self.per.max(2);
        }
        self.last_cwnd = cwnd;
        self.last_time = now;
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.ack_count = u64::from(acked);
                self.reno_cwnd = u64::from(cwnd);
                self.origin = self.last_max.max(cwnd);
                self.k_s = (f64::from(self.origin - cwnd) / C).cbrt();
                self.epoch = Some(now);
                now
            }
        };
        let t = (now.since(epoch) + self.delay_min).as_secs_f64() - self.k_s;
        let target = (f64::from(self.origin) + C * t * t * t).max(0.0);
        let w = f64::from(cwnd);
        let mut per = if target > w { (w / (target - w)) as u32 } else { 100 * cwnd };
        if self.last_max == 0 {
            per = per.min(20);
        }
        // The Reno-friendly region: `beta_scale` is 15 eighths.
        let step = (u64::from(cwnd) * 15 / 8).max(1);
        while self.ack_count > step {
            self.ack_count -= step;
            self.reno_cwnd += 1;
        }
        if let ahead @ 1.. = self.reno_cwnd.saturating_sub(u64::from(cwnd)) {
            per = per.min((u64::from(cwnd) / ahead) as u32);
        }
        self.per = per.max(2);
        self.per
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_back_after_k() {
        let mut c = Cubic::default();
        let cwnd = c.ssthresh(1000);
        assert_eq!(cwnd, 700);
        let mut w = Window { cwnd, ssthresh: cwnd, count: 0 };
        let mut now = Instant::from_millis(1000);
        // One round a second and a tenth: K = cbrt(300 / 0.4) = 9.1 s.
        for _ in 0..91 {
            for _ in 0..w.cwnd {
                let per = c.update(now, w.cwnd, 1);
                w.additive(per, 1);
                now += Duration::from_nanos(100_000_000 / u64::from(w.cwnd));
            }
        }
        assert!((980..=1010).contains(&w.cwnd), "{}", w.cwnd);
    }
}
