//! What has come of the wishes of a gateway that sends at the rate that routers say (XCP).

use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::{Duration, Instant};
use farlink_xcp::{NO_WISH, Receiver, WISH};

/// Packets of data in a row that say nothing: what they should say is lost on the way. A gateway
/// that says who it is leaves it out of a few.
const BARE_PACKETS: u8 = 16;
/// So many acknowledgements in a row tell only what has come since the one before.
const IN_SHIMS_MAX: u8 = 3;

/// What has come of a gateway's wishes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    receiver: Receiver,
    /// A router has answered the newest one.
    are_answered: bool,
    /// What that gateway was told last, and when: microseconds, modulo 2^32.
    told: Option<u32>,
    told_at_us: u32,
    /// Packets of data since one has said something.
    bare_packets: u8,
    /// Acknowledgements in a row that told only what has come since the one before.
    in_shims: u8,
}

impl Wishes {
    /// So many packets have come that say this.
    pub fn hear(&mut self, packets: u32, said: &XcpFields) {
        self.bare_packets = 0;
        if said.rtt == HeaderTime::UNKNOWN {
            // No router answers who knows no round trip yet.
            return;
        }
        match said.delta_bytes_per_s {
            NO_WISH => {}
            left => self.are_answered = left != WISH,
        }
        if self.are_answered {
            self.receiver.on_packets(packets, said);
        }
    }

    /// So many packets of data have come that say nothing: a box on the way has taken it out, or
    /// the gateway goes by something else. An old answer is none.
    pub fn miss(&mut self, packets: u32) {
        self.bare_packets = self.bare_packets.saturating_add(u8::try_from(packets).unwrap_or(u8::MAX));
        self.are_answered &= self.bare_packets < BARE_PACKETS;
    }

    /// What the gateway is to be told; nothing while no router answers.
    #[must_use]
    pub fn sum(&self) -> Option<u32> {
        self.are_answered.then(|| self.receiver.sum())
    }

    /// It has not been told yet.
    #[must_use]
    pub fn are_untold(&self) -> bool {
        self.are_answered && self.sum() != self.told
    }

    /// What has come since it was told last, where that is something.
    #[must_use]
    pub fn feedback(&self) -> Option<i32> {
        let since = self.receiver.sum().wrapping_sub(self.told.unwrap_or(0)).cast_signed();
        Some(since).filter(|since| self.are_answered && *since != 0)
    }

    /// An acknowledgement may tell that alone: now and then one tells the sum, for those that got
    /// lost.
    #[must_use]
    pub fn may_be_told_in_shim(&self) -> bool {
        self.in_shims < IN_SHIMS_MAX
    }

    /// It has not been told for so long.
    #[must_use]
    pub fn are_due(&self, now: Instant, every: Duration) -> bool {
        let since_us = micros(now).wrapping_sub(self.told_at_us);
        Duration::from_micros(since_us.into()) >= every
    }

    /// It has been told, in an acknowledgement that told only what has come since, or another one.
    pub fn note_told(&mut self, now: Instant, in_shim: bool) {
        self.told_at_us = micros(now);
        self.in_shims = if in_shim { self.in_shims.saturating_add(1) } else { 0 };
        self.told = Some(self.receiver.sum());
    }
}

/// Modulo 2^32. There are two of these for each connection, and time enough: once in 71 minutes of
/// silence what is due waits for another acknowledgement.
fn micros(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: HeaderTime = HeaderTime(1 << 26);

    fn said(rtt: HeaderTime, delta_bytes_per_s: i32) -> XcpFields {
        XcpFields { rtt, delta_bytes_per_s, ..XcpFields::default() }
    }

    /// What it wishes for, or a router on the way has made of it, is no answer: it would take the
    /// other gateway from its controller to XCP without a router.
    #[test]
    fn who_knows_no_round_trip_yet_has_no_answer() {
        let mut wishes = Wishes::default();
        for delta in [0, NO_WISH, WISH, 1_000, -1_000, i32::MIN] {
            wishes.hear(1, &said(HeaderTime::UNKNOWN, delta));
            assert_eq!((wishes.sum(), wishes.feedback()), (None, None), "{delta}");
        }
        wishes.hear(2, &said(RTT, 1_000));
        wishes.hear(1, &said(HeaderTime::UNKNOWN, 5));
        assert_eq!((wishes.sum(), wishes.are_untold()), (Some(2_000), true));
        // It says that words get through, though.
        for _ in 0..2 {
            wishes.miss(u32::from(BARE_PACKETS) - 1);
            wishes.hear(1, &said(HeaderTime::UNKNOWN, 5));
        }
        assert_eq!(wishes.sum(), Some(2_000));
    }
}
