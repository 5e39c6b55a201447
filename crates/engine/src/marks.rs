//! Whether what carries Farlink's option arrives: a box on the way may let handshakes with it pass,
//! and drop all else that has it.
//!
//! As long as nothing that was marked is known to have arrived, what is repeated goes without a
//! mark, as to a host. Where that is answered each time, and what was marked never is, the
//! connection goes on without marks, and the path is remembered (see [`crate::link::Boxes`]).

use farlink_wire::Instant;

use crate::bookmark::{Bookmark, bookmarks};
use crate::sender::{Plan, Purpose};

/// What was marked is not answered, and its repetition without a mark is: so often it is no chance.
const TIMES: u8 = 2;
/// The same where marks of the other gateway come.
const TIMES_HEARD: u8 = 6;

/// What was asked for more often than this before it was answered, the link was silent for.
const ASKED_MAX: u8 = 4;
/// So many repetitions of what was acknowledged: that is not heard. One may have crossed it.
const UNHEARD: u8 = 2;

/// See the module. Of the segments to one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// What was marked is known to have arrived.
    arrive: bool,
    /// Marks of the other gateway have come.
    heard: bool,
    /// Where the last segment began that went without a mark.
    plain_at: Bookmark,
    /// So often the same has gone without a mark, and what comes next answers it.
    asked: u8,
    /// So often in a row its host has repeated what was acknowledged, and could have heard that.
    unheard: u8,
    /// When what was acknowledged last can have been heard, and its answer be here.
    heard_from: Instant,
    /// So often what went without a mark was answered, and those of them that were data.
    times: u8,
    data_times: u8,
}

bookmarks!(Marks { plain_at });

impl Marks {
    /// The next segment goes without a mark. `is_spoken`: what came last was marked.
    #[must_use]
    pub fn is_plain(self, plan: Option<&Plan>, is_spoken: bool) -> bool {
        let is_repeated = match plan.map(|plan| plan.purpose) {
            None => self.unheard >= if is_spoken { UNHEARD } else { 1 },
            Some(purpose) => matches!(purpose, Purpose::Retransmit | Purpose::TailProbe),
        };
        is_repeated && !self.arrive
    }

    /// A segment has gone on without a mark.
    pub fn note_plain(&mut self, plan: Option<&Plan>) {
        let goes_on =
            plan.is_some_and(|plan| self.asked > 0 && self.plain_at.is_none_or(|at| plan.seq.after(at)));
        self.asked = self.asked.saturating_add(u8::from(!goes_on));
        if let Some(plan) = plan {
            *self.plain_at = Some(plan.seq);
        }
        self.unheard = 0;
    }

    /// More is acknowledged than before. What its host sends once it has heard that comes from
    /// `heard_from` on.
    pub fn note_told(&mut self, heard_from: Instant) {
        self.heard_from = heard_from;
    }

    /// Its host repeats what has been acknowledged: it has not got that, unless it has repeated it
    /// early.
    pub fn note_unheard(&mut self, now: Instant) {
        self.unheard = self.unheard.saturating_add(u8::from(now >= self.heard_from));
    }

    /// Its host goes on with new bytes: it has got what was acknowledged last.
    pub fn note_went_on(&mut self) {
        self.note_answered();
    }

    /// What went without a mark last has been answered. Returns how often that was no chance.
    fn note_answered(&mut self) -> u8 {
        let asked = core::mem::take(&mut self.asked);
        let counts = u8::from((1..=ASKED_MAX).contains(&asked));
        self.times = self.times.saturating_add(counts);
        self.unheard = 0;
        counts
    }

    /// Its host acknowledges data that is news. What was sent only once (`original`) went with a
    /// mark, and what was sent again may have gone without. `progress`: all before it, too.
    pub fn note_acked(&mut self, original: bool, progress: bool) {
        if original {
            *self = Self { arrive: true, heard: self.heard, heard_from: self.heard_from, ..Self::default() };
        } else if progress {
            let counts = self.note_answered();
            self.data_times = self.data_times.saturating_add(counts);
        }
    }

    /// What was marked is known to have arrived.
    #[must_use]
    pub fn arrive(self) -> bool {
        self.arrive
    }

    /// A segment of the other gateway has come with a mark.
    pub fn note_heard(&mut self) {
        self.heard = true;
    }

    /// What is marked does not arrive. Where marks of the other gateway have come, acknowledgements
    /// that are not heard show nothing: a link that loses, or holds them for long, explains them.
    #[must_use]
    pub fn are_dropped(self) -> bool {
        let is_shown = if self.heard { self.data_times >= TIMES_HEARD } else { self.times >= TIMES };
        is_shown && !self.arrive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::SeqNum;

    fn plan(end: u32, purpose: Purpose) -> Plan {
        Plan { seq: SeqNum(end - 100), len: 100, fin: false, purpose, mtu_probe: false }
    }

    fn heard(mut marks: Marks) -> Marks {
        marks.note_heard();
        marks
    }

    #[test]
    fn what_has_arrived_with_a_mark_ends_it() {
        let mut marks = Marks::default();
        marks.note_unheard(Instant::ZERO);
        marks.note_acked(true, true);
        marks.note_unheard(Instant::ZERO);
        let repeated = plan(201, Purpose::Retransmit);
        assert!(!marks.is_plain(None, false) && !marks.is_plain(Some(&repeated), false));
        assert!(!marks.are_dropped());
    }

    #[test]
    fn it_is_no_chance_where_only_repetitions_are_answered() {
        let mut marks = Marks::default();
        assert!(!marks.is_plain(Some(&plan(101, Purpose::New)), false) && !marks.is_plain(None, false));
        for (end, is_sure) in [(101, false), (201, true)] {
            let repeated = plan(end, Purpose::Retransmit);
            assert!(marks.is_plain(Some(&repeated), false));
            marks.note_plain(Some(&repeated));
            marks.note_acked(false, true);
            assert_eq!((marks.are_dropped(), heard(marks).are_dropped()), (is_sure, false));
        }
        // Bytes behind that have arrived, and they were marked.
        marks.note_acked(true, true);
        assert!(!marks.are_dropped());
    }

    #[test]
    fn a_link_that_was_silent_shows_nothing() {
        let mut marks = Marks::default();
        for end in [101, 201, 301] {
            (0..9).for_each(|_| marks.note_plain(Some(&plan(end, Purpose::Retransmit))));
            marks.note_acked(false, true);
        }
        assert!(!marks.are_dropped());
        // Of a flight one after another goes again, and the end of it first.
        for ends in [[400, 201, 301, 400], [800, 501, 601, 701]] {
            for end in ends {
                marks.note_plain(Some(&plan(end, Purpose::Retransmit)));
            }
            marks.note_acked(false, true);
        }
        assert!(marks.are_dropped());
    }

    #[test]
    fn one_repetition_of_a_gateway_that_is_heard_may_have_crossed_the_acknowledgement() {
        let mut marks = Marks::default();
        marks.note_unheard(Instant::ZERO);
        assert!(marks.is_plain(None, false) && !marks.is_plain(None, true));
        marks.note_unheard(Instant::ZERO);
        assert!(marks.is_plain(None, true));
        marks.note_went_on();
        assert!(!marks.is_plain(None, false));
    }

    #[test]
    fn what_is_repeated_before_the_acknowledgement_can_have_been_heard_shows_nothing() {
        let at = Instant::from_millis;
        let mut marks = Marks::default();
        marks.note_told(at(600));
        (0..9).for_each(|_| marks.note_unheard(at(599)));
        assert!(!marks.is_plain(None, false));
        marks.note_unheard(at(600));
        assert!(marks.is_plain(None, false));
    }

    #[test]
    fn acknowledgements_that_are_not_heard_count_once_each() {
        let mut marks = Marks::default();
        for is_sure in [false, true] {
            marks.note_unheard(Instant::ZERO);
            assert!(marks.is_plain(None, false));
            marks.note_plain(None);
            assert!(!marks.is_plain(None, false));
            marks.note_went_on();
            marks.note_went_on();
            assert_eq!(marks.are_dropped(), is_sure);
        }
    }

    #[test]
    fn losses_of_a_link_say_nothing_against_marks_of_a_gateway_that_is_heard() {
        let mut marks = Marks::default();
        for _ in 0..100 {
            marks.note_unheard(Instant::ZERO);
            marks.note_unheard(Instant::ZERO);
            marks.note_plain(None);
            marks.note_went_on();
        }
        assert!(!heard(marks).are_dropped());
    }

    #[test]
    fn one_segment_above_a_gap_that_was_sent_once_shows_that_marks_arrive() {
        let mut marks = Marks::default();
        for end in (101..=501).step_by(100) {
            marks.note_plain(Some(&plan(end, Purpose::Retransmit)));
            marks.note_acked(false, true);
        }
        // The end of a flight was repeated, too, so no acknowledgement lies beyond it.
        marks.note_plain(Some(&plan(901, Purpose::TailProbe)));
        marks.note_acked(true, false);
        marks.note_plain(Some(&plan(601, Purpose::Retransmit)));
        marks.note_acked(false, true);
        assert!(!heard(marks).are_dropped() && !marks.are_dropped());
    }
}
