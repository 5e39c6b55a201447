//! What is owed to a source to which nothing is promised any more.

use farlink_wire::SeqNum;

/// What was acknowledged to a source before nothing was promised to it any more, and its
/// destination has not acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debt(Option<SeqNum>);

impl Debt {
    /// Everything before this was acknowledged.
    #[must_use]
    pub fn upto(acked: SeqNum) -> Self {
        Self(Some(acked))
    }
    /// The destination has everything before `far`.
    pub fn settle(&mut self, far: SeqNum) {
        self.0 = self.0.filter(|acked| acked.after(far));
    }
    /// Something is owed still.
    #[must_use]
    pub fn stands(self) -> bool {
        self.0.is_some()
    }
    /// What may be acknowledged where else this is the most: what has been acknowledged stays so.
    #[must_use]
    pub fn or_more(self, most: SeqNum) -> SeqNum {
        self.0.map_or(most, |acked| acked.max(most))
    }
}
