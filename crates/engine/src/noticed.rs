//! What a source in custody mode was told of the outages that its data waited for.

use farlink_wire::{Instant, SackBlock, SeqNum};

/// What a source was told of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noticed {
    /// When the outage began of which it was told last.
    outage: Option<Instant>,
    /// What it was told to be held here, and of which outage. It is delivered, or the connection
    /// ends with a word to both hosts.
    held: Option<(SackBlock, Instant)>,
    /// An intermediate acknowledgement is owed.
    iack: bool,
}

impl Noticed {
    /// When the outage began of which it was told last.
    #[must_use]
    pub fn outage(&self) -> Option<Instant> {
        self.outage
    }
    /// It is told of the outage that began then.
    pub fn note_outage(&mut self, since: Instant) {
        self.outage = Some(since);
    }
    /// What it was told to be held here that this does not acknowledge, and of which outage.
    #[must_use]
    pub fn held_beyond(&self, acked: SeqNum) -> Option<(SackBlock, Instant)> {
        self.held.filter(|(held, _)| held.end.after(acked))
    }
    /// It is told that this is held, of the outage that began then.
    pub fn note_held(&mut self, held: SackBlock, since: Instant) {
        self.held = Some((held, since));
    }
    /// It is told that everything before this has arrived: what lies there is not remembered until
    /// the numbers have wrapped.
    pub fn forget_before(&mut self, acked: SeqNum) {
        self.held = self.held_beyond(acked);
    }
    /// What SACK blocks have told is acknowledged as a whole (RFC 2018 section 4): where the far
    /// host stands within it, its source hears what it has heard before. Linux would take the rest
    /// for given up, and begin anew.
    #[must_use]
    pub fn acked_as_a_whole(&self, ack: SeqNum, before: SeqNum) -> SeqNum {
        let within = |held: &SackBlock| ack.after_eq(held.start) && ack.before(held.end);
        if self.held.is_some_and(|(held, _)| within(&held)) { before } else { ack }
    }
    /// An intermediate acknowledgement is owed.
    #[must_use]
    pub fn owes_iack(&self) -> bool {
        self.iack
    }
    /// One is owed from now on.
    pub fn owe_iack(&mut self) {
        self.iack = true;
    }
    /// One is sent now, if one is owed.
    pub fn take_iack(&mut self) -> bool {
        core::mem::take(&mut self.iack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_acknowledged_as_a_whole_and_then_forgotten() {
        let mut noticed = Noticed::default();
        let held = SackBlock { start: SeqNum(2000), end: SeqNum(5000) };
        noticed.note_held(held, Instant::ZERO);
        let acked = |noticed: &Noticed, ack| noticed.acked_as_a_whole(SeqNum(ack), SeqNum(1000)).0;
        assert_eq!([1500, 2000, 4999, 5000].map(|ack| acked(&noticed, ack)), [1500, 1000, 1000, 5000]);
        noticed.forget_before(SeqNum(1500));
        assert!(noticed.held_beyond(SeqNum(4999)).is_some());
        noticed.forget_before(SeqNum(5000));
        assert!(noticed.held_beyond(SeqNum(1000)).is_none(), "also when the numbers have wrapped");
        assert_eq!(acked(&noticed, 3000), 3000);
    }
}
