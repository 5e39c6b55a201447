//! NewReno (RFC 5681, RFC 6582): one segment more per round trip, half after a loss.

/// Congestion avoidance of NewReno, counted in bytes (RFC 3465 2.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reno {
    bytes_acked: u64,
}

impl Reno {
    /// The window after `acked` bytes: one MSS more for each whole window acknowledged.
    pub(crate) fn grow(&mut self, cwnd: u64, acked: u64, mss: u64) -> u64 {
        self.bytes_acked = self.bytes_acked.saturating_add(acked);
        if self.bytes_acked < cwnd {
            return cwnd;
        }
        // At most one step per ACK, as RFC 3465 has it; what is above a whole window counts for the
        // next one.
        self.bytes_acked = (self.bytes_acked - cwnd).min(cwnd);
        cwnd.saturating_add(mss)
    }

    /// `ssthresh` for a flight of `flight` bytes (RFC 5681 equation 4).
    pub(crate) fn reduce(&mut self, flight: u64) -> u64 {
        self.bytes_acked = 0;
        flight / 2
    }
}
