//! Finding losses and getting over them: RACK (RFC 8985), duplicate ACKs without SACK (RFC 5681,
//! 6582), PRR (RFC 9937).

use farlink_wire::{Duration, Instant, SeqNum};

use crate::bookmark::{Bookmark, bookmarks};
use crate::scoreboard::{Acked, Scoreboard};

/// Duplicate acknowledgements that mean a loss (RFC 5681 section 3.2).
pub const DUP_THRESH: u32 = 3;
/// Recoveries for which a widened reordering window is kept (RFC 8985 6.2 step 4).
const REO_WND_PERSIST: u8 = 16;

/// RACK's view of a leg (RFC 8985 section 5.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    xmit_at: Instant,
    end_seq: SeqNum,
    rtt: Duration,
    valid: bool,
    reordering_seen: bool,
    reo_wnd_mult: u8,
    reo_wnd_persist: u8,
    /// D-SACKs count once for each round trip: until this is acknowledged.
    dsack_round: Bookmark,
    /// How much later than its successors a segment came, measured, and when that was.
    late: Duration,
    late_at: Instant,
}

bookmarks!(Rack { dsack_round });

impl Rack {
    /// Takes in an acknowledgement (section 6.2 steps 1 to 3).
    pub fn update(&mut self, now: Instant, acked: &Acked, min_rtt: Duration) {
        if acked.reordered {
            self.reordering_seen = true;
        }
        let Some((sent_at, end, retransmitted)) = acked.newest else { return };
        let rtt = now.since(sent_at);
        // An ACK that comes sooner after a repetition than any RTT was for the original (step 2).
        if retransmitted && rtt < min_rtt {
            return;
        }
        if !self.valid || sent_at > self.xmit_at || (sent_at == self.xmit_at && end.after(self.end_seq)) {
            self.valid = true;
            self.xmit_at = sent_at;
            self.end_seq = end;
            self.rtt = rtt;
        }
    }
    /// Measures reordering on a leg whose other end tells all that it holds: how long segments take
    /// that later ones had overtaken, or that were sent again in vain.
    pub fn measure_reordering(&mut self, now: Instant, acked: &Acked, min_rtt: Duration, srtt: Duration) {
        let usual = self.rtt.max(min_rtt);
        let in_vain =
            acked.repeated_once.filter(|(again, _)| *again < min_rtt / 4 * 3).map(|(_, first)| first);
        let Some(age) = acked.late.max(in_vain) else { return };
        let late = age.saturating_sub(usual);
        if late >= self.late_window(now, srtt) {
            self.late = late;
            self.late_at = now;
        }
    }
    fn late_window(&self, now: Instant, srtt: Duration) -> Duration {
        let lasts = srtt.saturating_mul(u32::from(REO_WND_PERSIST));
        if now.since(self.late_at) <= lasts { (self.late + self.late / 4).min(srtt) } else { Duration::ZERO }
    }
    /// A D-SACK: some repetition was needless, the window for reordering grows, once for each round
    /// trip (step 4).
    pub fn on_dsack(&mut self, snd_una: SeqNum, snd_nxt: SeqNum) {
        if self.dsack_round.is_some_and(|round| snd_una.before(round)) {
            return;
        }
        *self.dsack_round = Some(snd_nxt);
        self.reordering_seen = true;
        self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
        self.reo_wnd_persist = REO_WND_PERSIST;
    }
    /// So much has been acknowledged: a round trip that has ended is not remembered until the
    /// numbers have wrapped.
    pub fn on_progress(&mut self, snd_una: SeqNum) {
        *self.dsack_round = self.dsack_round.filter(|round| round.after(snd_una));
    }
    /// A recovery ended (step 4).
    pub fn on_recovery_exit(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 0;
        }
    }
    /// RACK_update_reo_wnd.
    #[must_use]
    pub fn reo_wnd(
        &self,
        in_recovery: bool,
        sacked_segments: u64,
        min_rtt: Duration,
        srtt: Duration,
    ) -> Duration {
        if !self.reordering_seen && (in_recovery || sacked_segments >= u64::from(DUP_THRESH)) {
            return Duration::ZERO;
        }
        (min_rtt / 4).saturating_mul(u32::from(self.reo_wnd_mult) + 1).min(srtt)
    }
    /// The same for a leg of our own between gateways: what keeps its order needs no window, else
    /// as long as was measured.
    #[must_use]
    pub fn measured_reo_wnd(&self, now: Instant, srtt: Duration) -> Duration {
        self.late_window(now, srtt)
    }
    /// RACK_detect_loss: marks what is lost, returns its bytes and when to look again (section 6.2
    /// step 5).
    pub fn detect(&self, now: Instant, board: &mut Scoreboard, reo_wnd: Duration) -> (u64, Option<Instant>) {
        if !self.valid {
            return (0, None);
        }
        board.mark_overdue(now, (self.xmit_at, self.end_seq), self.rtt + reo_wnd)
    }
    /// Losses that a retransmission timeout reveals (section 6.3).
    #[must_use]
    pub fn overdue(&self, now: Instant, sent_at: Instant, reo_wnd: Duration) -> bool {
        !self.valid || sent_at + self.rtt + reo_wnd <= now
    }
}

/// Proportional rate reduction (RFC 9937).
#[derive(Clone, Copy, Debug)]
pub struct Prr {
    recover_fs: u64,
    delivered: u64,
    out: u64,
    ssthresh: u64,
    /// Bytes that may be sent now.
    snd_cnt: u64,
}

impl Prr {
    /// Recovery begins with this much in flight and this target. The first repetition may always
    /// go.
    #[must_use]
    pub fn new(in_flight: u64, ssthresh: u64, mss: u32) -> Self {
        Self {
            recover_fs: in_flight.max(u64::from(mss)),
            delivered: 0,
            out: 0,
            ssthresh: ssthresh.min(1 << 30),
            snd_cnt: u64::from(mss),
        }
    }
    /// An acknowledgement in recovery. `safe`: SND.UNA advanced and no new loss was found
    /// (SafeACK).
    pub fn on_ack(&mut self, delivered: u64, pipe: u64, safe: bool, mss: u32) {
        self.delivered += delivered;
        let mss = u64::from(mss);
        self.snd_cnt = if pipe > self.ssthresh {
            (self.delivered * self.ssthresh).div_ceil(self.recover_fs).saturating_sub(self.out)
        } else {
            let mut count = self.delivered.saturating_sub(self.out).max(delivered);
            if safe {
                count += mss;
            }
            count.min(self.ssthresh - pipe)
        };
        // A repetition goes out even if everything was lost (RFC 9937: force a fast retransmit).
        if self.out == 0 {
            self.snd_cnt = self.snd_cnt.max(mss);
        }
    }
    /// A repetition that may go in any case.
    pub fn force(&mut self, mss: u32) {
        self.snd_cnt = self.snd_cnt.max(u64::from(mss));
    }
    /// Bytes went out.
    pub fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
        self.snd_cnt = self.snd_cnt.saturating_sub(bytes);
    }
    /// Bytes that may be sent now.
    #[must_use]
    pub fn allowance(&self) -> u64 {
        self.snd_cnt
    }
}

/// What is known of a timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing has been acknowledged since.
    Open,
    /// What was acknowledged first may have been the original or the repetition. The next one
    /// tells, and until then nothing but so much new data is sent (RFC 5682 step 2b).
    Awaited {
        /// Payload, bytes.
        new_bytes: u32,
    },
    /// It has been decided.
    Given,
}

/// Which kind of recovery a sender is in.
#[derive(Clone, Copy, Debug)]
pub enum Recovery {
    /// None.
    Open,
    /// After SACKs, duplicate ACKs or an ECN echo, until `recover` is acknowledged.
    Fast {
        /// SND.NXT when it began.
        recover: SeqNum,
        /// Its rate.
        prr: Prr,
    },
    /// After a retransmission timeout, until `recover` is acknowledged.
    Timeout {
        /// SND.NXT when it began.
        recover: SeqNum,
        /// Whether it was spurious (F-RTO, RFC 5682).
        verdict: Verdict,
    },
}

impl Recovery {
    /// Fast recovery is under way.
    #[must_use]
    pub const fn is_fast(&self) -> bool {
        matches!(self, Self::Fast { .. })
    }
    /// Any recovery is under way.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prr_halves_smoothly() {
        // 20 segments in flight, target 10, one lost: about one segment out for two delivered.
        let mss = 1000;
        let mut prr = Prr::new(20_000, 10_000, mss);
        assert_eq!(prr.allowance(), 1000);
        prr.on_sent(1000);
        let (mut pipe, mut out) = (20_000u64, 0u64);
        for _ in 0..19 {
            pipe -= 1000;
            prr.on_ack(1000, pipe, true, mss);
            let n = prr.allowance() / 1000 * 1000;
            prr.on_sent(n);
            pipe += n;
            out += n;
        }
        assert!((8_000..=10_000).contains(&out), "{out}");
        assert!(pipe <= 10_000, "{pipe}");
    }

    #[test]
    fn reordering_window_follows_rfc8985() {
        let mut r = Rack::default();
        let (min, srtt) = (Duration::from_millis(40), Duration::from_millis(50));
        assert_eq!(r.reo_wnd(false, 3, min, srtt), Duration::ZERO);
        assert_eq!(r.reo_wnd(false, 2, min, srtt), Duration::from_millis(10));
        r.on_dsack(SeqNum(0), SeqNum(100));
        r.on_dsack(SeqNum(99), SeqNum(200));
        assert_eq!(r.reo_wnd(true, 9, min, srtt), Duration::from_millis(20));
        // The next one comes after more bytes than a sequence number can tell apart.
        let mut long = r;
        long.on_progress(SeqNum(200));
        long.on_dsack(SeqNum(200 + (1 << 31) + 5), SeqNum(300 + (1 << 31)));
        assert_eq!(long.reo_wnd(true, 9, min, srtt), Duration::from_millis(30));
        for round in 1..20 {
            r.on_dsack(SeqNum(round * 100), SeqNum((round + 1) * 100));
        }
        assert_eq!(r.reo_wnd(true, 9, min, srtt), srtt);
        for _ in 0..16 {
            r.on_recovery_exit();
        }
        assert_eq!(r.reo_wnd(true, 9, min, srtt), Duration::from_millis(10));
    }
}
