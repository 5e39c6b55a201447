//! Times at which a link came back, and what was on hand for it then.

/// What is on hand at the return of a link is all that it can carry until the source has heard of
/// it (Reynolds 2006, 3.3.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// How often it came back.
    pub times: u64,
    /// Bytes that were held for it when it came back last.
    pub on_hand_bytes: u64,
    /// The sum over all times.
    pub on_hand_total_bytes: u64,
}

impl Returns {
    /// It is back, with so much held for it.
    pub(super) fn note(&mut self, on_hand_bytes: u64) {
        self.times += 1;
        self.on_hand_bytes = on_hand_bytes;
        self.on_hand_total_bytes = self.on_hand_total_bytes.saturating_add(on_hand_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_return_counts() {
        let mut returns = Returns::default();
        returns.note(3_000);
        returns.note(1_000);
        assert_eq!(returns, Returns { times: 2, on_hand_bytes: 1_000, on_hand_total_bytes: 4_000 });
    }
}
