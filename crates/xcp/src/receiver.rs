//! What the sender is told: the sum of all that the routers have left of its wishes; and what it
//! makes of that.

use farlink_wire::xcp::{HeaderTime, XcpFields};

/// Between two acknowledgements no router takes so much of what may be sent, nor gives so much to
/// who sends already: half in a round trip is what is followed at most ([`crate::Trust`]).
const JUMP: f64 = 0.5;
/// A receiver that begins again tells no more than so much of it first.
const FIRST: f64 = 0.25;

/// The sum of what has arrived, modulo 2^32, so that an acknowledgement that gets lost loses
/// nothing of it. (The draft, section 4.1.2, tells what has come since the last packet.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Receiver {
    sum: u32,
}

impl Receiver {
    /// So many packets have arrived that say this. Where the sender knew no round trip yet routers
    /// could answer nothing.
    pub fn on_packets(&mut self, packets: u32, said: &XcpFields) {
        if said.rtt == HeaderTime::UNKNOWN {
            return;
        }
        let each = said.delta_bytes_per_s.cast_unsigned();
        self.sum = self.sum.wrapping_add(each.wrapping_mul(packets));
    }

    /// The sum, bytes a second, modulo 2^32.
    #[must_use]
    pub fn sum(&self) -> u32 {
        self.sum
    }
}

/// The sums that one receiver has told: how they change is what counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// The one that was told last; `None`: the next one is no change of anything.
    last: Option<u32>,
}

impl Sums {
    /// Of a receiver that begins with nothing.
    #[must_use]
    pub fn of_new_flow() -> Self {
        Self { last: Some(0) }
    }

    /// They are another receiver's from now on, or of one that has gone on meanwhile: what comes
    /// first says nothing of a change.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// This sum has been told. Returns what has changed, bytes a second; `allowed_bytes_per_s` is
    /// what may be sent now.
    ///
    /// A receiver that has lost its sum begins again at 0. Read as a change that would be a cut of
    /// all there is, or a gift. So what is more than any router does at once is read as a new
    /// beginning, where the sum is near 0; but a cut never becomes a gift, nor a gift a cut.
    pub fn hear(&mut self, sum: u32, allowed_bytes_per_s: u64) -> i32 {
        let Some(before) = self.last.replace(sum) else { return 0 };
        let (goes_on, anew) = (sum.wrapping_sub(before).cast_signed(), sum.cast_signed());
        let allowed = allowed_bytes_per_s as f64;
        if f64::from(goes_on).abs() > JUMP * allowed && f64::from(anew).abs() <= FIRST * allowed {
            return anew.clamp(goes_on.min(0), goes_on.max(0));
        }
        goes_on
    }

    /// It is told that so much has come since it was told last, bytes a second.
    pub fn hear_since(&mut self, change_bytes_per_s: i32) -> i32 {
        self.last = self.last.map(|last| last.wrapping_add(change_bytes_per_s.cast_unsigned()));
        change_bytes_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: u64 = 1_000_000;

    #[test]
    fn sums_wrap_and_what_another_receiver_tells_first_is_no_change() {
        let mut sums = Sums::of_new_flow();
        let mut hear = |sum| sums.hear(sum, ALLOWED);
        assert_eq!(hear(1_000), 1_000, "a new flow's begins at nothing");
        assert_eq!([hear(1_000), hear(u32::MAX), hear(4)], [0, -1_001, 5]);
        sums.forget();
        assert_eq!([sums.hear(77_000, ALLOWED), sums.hear(77_010, ALLOWED)], [0, 10]);
        assert_eq!([sums.hear_since(-30), sums.hear(76_990, ALLOWED)], [-30, 10]);
        sums.forget();
        assert_eq!([sums.hear_since(5), sums.hear(9, ALLOWED), sums.hear(10, ALLOWED)], [5, 0, 1]);
    }

    #[test]
    fn a_receiver_that_begins_again_neither_gives_nor_takes() {
        // From where it stood, where it begins again, and what of that is followed.
        for (stood, begins, followed) in [
            (2_000_000_u32, 0_u32, 0),
            (2_000_000, 30_000, 0),
            (2_000_000, 30_000_u32.wrapping_neg(), -30_000),
            (2_000_000_u32.wrapping_neg(), 0, 0),
            (2_000_000_u32.wrapping_neg(), 30_000, 30_000),
            (2_000_000_u32.wrapping_neg(), 30_000_u32.wrapping_neg(), 0),
            (1 << 31, 5, 0),
        ] {
            let mut sums = Sums { last: Some(stood) };
            assert_eq!(sums.hear(begins, ALLOWED), followed, "{stood} {begins}");
            assert_eq!(sums.hear(begins.wrapping_add(7), ALLOWED), 7, "it goes on from there");
        }
        // What a router does is followed as ever, and so is a liar, who gets caught by that.
        for (stood, told, followed) in [
            (2_000_000_u32, 1_600_000_u32, -400_000),
            (0, 5_000_000, 5_000_000),
            (100_000, 30_000_000_u32.wrapping_neg(), -30_100_000),
            (2_000_000, 300_000, -1_700_000),
        ] {
            assert_eq!(Sums { last: Some(stood) }.hear(told, ALLOWED), followed, "{stood} {told}");
        }
    }
}
