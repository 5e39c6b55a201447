//! What a queue counts in a control interval, and what follows from that for the next one (draft
//! sections 4.2.1 and 4.2.2). Bytes, seconds, bytes a second.

use farlink_wire::xcp::XcpFields;

/// Of the spare bandwidth so much is given out in an interval.
const ALPHA: f64 = 0.4;
/// Of the standing queue so much is taken back in a round trip: `ALPHA` squared by the root of 2.
const BETA: f64 = 0.226;
/// So much of the traffic changes its owner in an interval, towards equal shares. The draft has
/// 0.1, with which a second flow has its share after 22 round trips; with this it is 14
/// (`tests/reference.rs`).
const GAMMA: f64 = 0.15;

/// What is taken back because the capacity has fallen, is taken within this part of an interval.
const URGENT: f64 = 0.25;

/// What has arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    bytes: f64,
    /// Of the spacings of all packets.
    spacing_s: f64,
    /// Of the spacings of those that say a round trip, and of their products with it.
    timed_s: f64,
    timed_rtt_s2: f64,
}

/// What may be given out, and what is to be taken back, until the next interval ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Residue {
    positive: f64,
    negative: f64,
    /// To be given for each second of spacing, and to be taken for each byte.
    per_spacing: f64,
    per_byte: f64,
}

impl Counted {
    /// So many packets have arrived, alike and of so many bytes together. A spacing or round trip
    /// beyond `longest_s` counts as that.
    pub fn add(&mut self, bytes: f64, packets: f64, said: Option<&XcpFields>, longest_s: f64) {
        self.bytes += bytes;
        let Some(said) = said else { return };
        let spacing_s = packets * said.spacing.seconds().min(longest_s);
        self.spacing_s += spacing_s;
        let rtt_s = said.rtt.seconds().min(longest_s);
        if rtt_s > 0.0 {
            self.timed_s += spacing_s;
            self.timed_rtt_s2 += spacing_s * rtt_s;
        }
    }

    /// Nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0.0
    }

    /// The mean of the round trips, each flow counted once; `None`: nobody has said one.
    pub fn mean_rtt_s(&self) -> Option<f64> {
        (self.timed_s > 0.0).then(|| self.timed_rtt_s2 / self.timed_s)
    }

    /// What is given out and taken back from now on. It was counted for `elapsed_s`; `standing` are
    /// the bytes of the queue that do not go away. The capacity has `fallen` by so much meanwhile:
    /// of that all is taken back at once. It is known, not guessed, so nothing is to be damped.
    pub fn residue(
        &self,
        elapsed_s: f64,
        capacity: f64,
        fallen: f64,
        (standing, rtt_s): (f64, f64),
    ) -> Residue {
        let input = self.bytes / elapsed_s.max(f64::MIN_POSITIVE);
        let undamped = (1.0 - ALPHA) * fallen.min((input - capacity).max(0.0));
        let change = ALPHA * (capacity - input) - undamped - BETA * standing / rtt_s;
        let shuffled = (GAMMA * input - change.abs()).max(0.0);
        let (positive, negative) = (shuffled + change.max(0.0), shuffled + (-change).max(0.0));
        let per = |residue: f64, of: f64| if of > 0.0 { residue / of } else { 0.0 };
        Residue {
            positive,
            negative,
            per_spacing: per(positive, self.spacing_s),
            per_byte: per(negative, if fallen > 0.0 { URGENT * self.bytes } else { self.bytes }),
        }
    }
}

impl Residue {
    /// What so many packets together may get that wish for `wished`, negative where they are to be
    /// slower. It is spent.
    pub fn spend(&mut self, bytes: f64, spacing_s: f64, wished: f64) -> f64 {
        let mut positive = (self.per_spacing * spacing_s).min(self.positive);
        let mut negative = (self.per_byte * bytes).min(self.negative);
        let offered = positive - negative;
        let got = wished.min(offered);
        if got < offered {
            // It wants less, and gives back what else would have been taken from others.
            negative = (negative + (offered - got)).min(self.negative);
            positive = (got + negative).max(0.0);
        }
        self.positive = (self.positive - positive).max(0.0);
        self.negative = (self.negative - negative).max(0.0);
        if self.positive == 0.0 {
            self.per_spacing = 0.0;
        }
        if self.negative == 0.0 {
            self.per_byte = 0.0;
        }
        got
    }
}
