//! What is in flight on a leg: one record per transmission, marked as SACKed, lost or sent again.
//!
//! A receiver decides what it SACKs, so it must not decide how many records there are or how long
//! they take to read. A block cuts a record only where a segment that was sent began or ended;
//! losses are looked for in the order of transmission (`order.rs`), and no acknowledgement walks
//! over all records.

mod acked;
mod check;
mod order;
mod sent;

use std::collections::VecDeque;

use farlink_wire::{Duration, Instant, SackBlock, SeqNum};

use crate::bookmark::{Bookmark, bookmarks};

pub use acked::Acked;
use order::Order;
pub use sent::Sent;

/// Records that one board has at most. New data waits beyond; blocks then count where they cover
/// whole records.
const RECORDS_MAX: usize = 32_768;
/// Cuts that the blocks of one acknowledgement may make. A receiver tells what is new in a few
/// blocks, and tells it again.
const CUTS_MAX: usize = 8;
/// An empty board gives back the room for more records than this.
const KEPT_RECORDS: usize = 64;

/// What a leg had done when a transmission left (delivery-rate samples, draft-ietf-ccwg-bbr 4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Then {
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// When that count was made.
    pub delivered_at: Instant,
    /// When the transmission left that was delivered last.
    pub first_sent_at: Instant,
    /// Bytes taken for lost.
    pub lost_bytes: u64,
    /// Bytes in flight, this transmission included.
    pub in_flight_bytes: u64,
    /// The source had not had enough to send.
    pub app_limited: bool,
}

/// The transmissions in flight on one leg.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub struct Scoreboard {
    records: VecDeque<Sent>,
    order: Order,
    /// No record below this is lost.
    lost_from: Option<SeqNum>,
    sacked_bytes: u64,
    lost_bytes: u64,
    out_bytes: u64,
    /// Bytes ever taken for lost.
    lost_ever_bytes: u64,
    /// Transmissions taken for lost that nobody has asked for yet, if somebody will.
    losses: Option<Vec<Loss>>,
    fack: Bookmark,
    /// Smallest RTT of the leg: what is acknowledged sooner after a copy was not acknowledged for
    /// the copy.
    min_rtt: Duration,
    /// Segments with more payload are larger than a packet; 0: there have been none.
    packet_bytes: u32,
    /// Records that were looked at or moved.
    #[cfg(test)]
    steps: usize,
}

bookmarks!(Scoreboard { fack });

impl Scoreboard {
    /// The leg's smallest RTT is this.
    pub fn set_min_rtt(&mut self, min_rtt: Duration) {
        self.min_rtt = min_rtt;
    }
    /// Segments with more payload than this are larger than a packet.
    pub fn set_packet(&mut self, bytes: u32) {
        self.packet_bytes = bytes;
    }
    /// Nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
    /// Bytes not SACKed and not lost: the pipe (RFC 6675).
    #[must_use]
    pub fn pipe(&self) -> u64 {
        self.out_bytes - self.sacked_bytes - self.lost_bytes
    }
    /// Bytes that wait to be sent again.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }
    /// Bytes ever taken for lost.
    #[must_use]
    pub fn lost_ever_bytes(&self) -> u64 {
        self.lost_ever_bytes
    }
    /// Losses are kept for [`Self::take_losses`].
    pub fn keep_losses(&mut self) {
        self.losses.get_or_insert_default();
    }
    /// What was taken for lost since this was last asked, in the order in which it was found.
    pub fn take_losses(&mut self) -> impl Iterator<Item = Loss> + '_ {
        self.losses.iter_mut().flat_map(|losses| losses.drain(..))
    }
    /// Bytes the receiver holds above a hole.
    #[must_use]
    pub fn sacked_bytes(&self) -> u64 {
        self.sacked_bytes
    }
    /// The oldest record.
    #[must_use]
    pub fn first(&self) -> Option<&Sent> {
        self.records.front()
    }
    /// When so much of what is oldest had left that more than `bytes` were under way.
    #[must_use]
    pub fn exceeded_at(&self, bytes: u32) -> Option<Instant> {
        if self.pipe() <= u64::from(bytes) {
            return None;
        }
        let (mut sum, mut latest) = (0, Instant::ZERO);
        let mut under_way = self.records.iter().filter(|r| !r.sacked && !r.lost);
        let last = under_way.find(|r| {
            sum += r.end.since(r.seq);
            latest = r.sent_at.max(latest);
            sum > bytes
        });
        last.map(|_| latest)
    }
    /// Bytes of the segment that the oldest transmission left in, with others if they were sent
    /// again together.
    #[must_use]
    pub fn first_segment_bytes(&self) -> u32 {
        let Some(first) = self.records.front() else { return 0 };
        let together = self.records.iter().take_while(|r| {
            (r.sent_at, r.unit_from) == (first.sent_at, first.unit_from)
                && r.seq.since(first.seq) < first.unit_bytes
        });
        let end = together.last().map_or(first.end, |last| last.end);
        end.since(first.seq).min(first.unit_bytes.max(1))
    }
    /// The record with the highest sequence number.
    #[must_use]
    pub fn last(&self) -> Option<&Sent> {
        self.records.back()
    }
    /// The record that contains `seq`.
    #[must_use]
    pub fn at(&self, seq: SeqNum) -> Option<&Sent> {
        self.records.get(self.index_of(seq)).filter(|r| r.seq.before_eq(seq))
    }
    /// Memory of the records, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Sent>()
            + self.order.memory_bytes()
            + self.losses.as_ref().map_or(0, |l| l.capacity() * size_of::<Loss>())
    }
    /// It has as many records as it may have: nothing new is sent.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.records.len() >= RECORDS_MAX
    }

    /// New data went out at the top.
    pub fn push(&mut self, sent: Sent) {
        self.out_bytes += sent.len();
        self.order.push(sent.sent_at, sent.seq, sent.end, &self.records);
        self.records.push_back(sent);
    }

    /// Everything is forgotten.
    pub fn clear(&mut self) {
        let losses = self.losses.take().map(|_| Vec::new());
        let (lost_ever_bytes, min_rtt, packet_bytes) =
            (self.lost_ever_bytes, self.min_rtt, self.packet_bytes);
        *self = Self { losses, lost_ever_bytes, min_rtt, packet_bytes, ..Self::default() };
    }

    /// Index of the record that contains `seq`, or of the first one above it.
    fn index_of(&self, seq: SeqNum) -> usize {
        self.records.partition_point(|r| r.end.before_eq(seq))
    }

    /// `n` records have been looked at or moved.
    #[cfg(test)]
    fn count_steps(&mut self, n: usize) {
        self.steps += n;
    }
    #[cfg(not(test))]
    const fn count_steps(&mut self, _n: usize) {}

    /// Cuts the record that straddles `seq`, so that a record begins there.
    fn cut(&mut self, seq: SeqNum) -> usize {
        let i = self.index_of(seq);
        if let Some(r) = self.records.get_mut(i)
            && r.seq.before(seq)
        {
            let mut upper = *r;
            r.end = seq;
            r.fin = false;
            upper.seq = seq;
            self.records.insert(i + 1, upper);
            return i + 1;
        }
        i
    }

    fn count(&self, acked: &mut Acked, r: &Sent, now: Instant) {
        if r.sacked {
            return;
        }
        acked.delivered_bytes += r.len();
        acked.age = now.since(r.original_at);
        // It may be a copy that arrived.
        let copy = r.copied_at.filter(|at| now.since(*at) >= self.min_rtt);
        let sent_at = copy.filter(|at| *at > r.sent_at).unwrap_or(r.sent_at);
        let again = r.retransmitted || copy.is_some();
        let in_vain = r.repeats == 1 && now.since(r.sent_at) < self.min_rtt / 4 * 3;
        if (r.lost && r.repeats == 0) || (in_vain && r.retransmitted) {
            acked.found.0 += r.len();
            acked.found.1 += r.len().div_ceil(u64::from(r.unit_bytes.max(1)));
        }
        if !again {
            acked.original = true;
            if self.fack.is_some_and(|f| r.end.before(f)) {
                acked.reordered = true;
                acked.late = acked.late.max(Some(now.since(r.sent_at)));
            }
            let rtt = now.since(r.sent_at);
            if acked.rtt.is_none_or(|least| rtt < least) {
                acked.rtt = Some(rtt);
                acked.rtt_bytes = r.end.since(r.seq).min(r.unit_bytes);
            }
        } else if r.repeats == 1 && r.copied_at.is_none() {
            let ages = (now.since(r.sent_at), now.since(r.original_at));
            acked.repeated_once = Some(acked.repeated_once.map_or(ages, |a| a.min(ages)));
        }
        if acked.newest.is_none_or(|(t, e, _)| sent_at > t || (sent_at == t && r.end.after(e))) {
            acked.newest = Some((sent_at, r.end, again));
            acked.snapshot = Some((r.sent_at, r.then));
        }
        if acked.highest.is_none_or(|h| r.end.after(h)) {
            acked.highest = Some(r.end);
        }
        // What was sent again may have arrived the first time.
        if self.is_large(r) && (!r.retransmitted || now.since(r.sent_at) >= self.min_rtt) {
            acked.large_sent_at = acked.large_sent_at.max(Some(r.sent_at));
        }
    }

    /// Its last transmission was of segments that are larger than a packet.
    fn is_large(&self, r: &Sent) -> bool {
        self.packet_bytes > 0 && r.unit_bytes.min(r.end.since(r.unit_from)) > self.packet_bytes
    }

    /// A cumulative acknowledgement up to `una`, then SACK blocks. Blocks outside what is in flight
    /// are ignored.
    pub fn acknowledge(&mut self, now: Instant, una: SeqNum, sack: &[SackBlock]) -> Acked {
        let mut acked = Acked::default();
        let mut repeated = false;
        while let Some(r) = self.records.front_mut() {
            if r.seq.after_eq(una) {
                break;
            }
            let mut part = *r;
            let whole = r.end.before_eq(una);
            if whole {
                self.records.pop_front();
            } else {
                part.end = una;
                r.seq = una;
            }
            self.count(&mut acked, &part, now);
            repeated |= part.retransmitted || part.copied_at.is_some();
            self.out_bytes -= part.len();
            if part.sacked {
                self.sacked_bytes -= part.len();
            } else if part.lost {
                self.lost_bytes -= part.len();
            }
        }
        if repeated {
            // What was sent once arrived long ago, behind the gap that the repeated segment filled
            // (Karn's algorithm).
            acked.rtt = None;
        }
        let (Some(low), Some(high)) =
            (self.records.front().map(|r| r.seq), self.records.back().map(|r| r.end))
        else {
            self.note_fack(&acked);
            self.order.clear();
            if self.records.capacity() > KEPT_RECORDS {
                self.records = VecDeque::new();
            }
            return acked;
        };
        let mut cuts_left = CUTS_MAX;
        for b in sack {
            // Valid blocks lie above una and within what was sent; a D-SACK or nonsense does not
            // (RFC 2018, 2883).
            if b.start.before(low) || b.end.after(high) || b.start.after_eq(b.end) || b.start.before(una) {
                continue;
            }
            let Some((first, last)) = self.records_of(b, &mut cuts_left) else { continue };
            for i in first..last {
                let Some(r) = self.records.get_mut(i) else { break };
                if r.sacked {
                    continue;
                }
                let copy = *r;
                r.sacked = true;
                if copy.lost {
                    r.lost = false;
                    self.lost_bytes -= copy.len();
                }
                self.sacked_bytes += copy.len();
                acked.sacked_bytes += copy.len();
                self.count(&mut acked, &copy, now);
            }
            self.count_steps(last - first);
            self.join_sacked(first, last);
        }
        self.note_fack(&acked);
        acked
    }

    fn note_fack(&mut self, acked: &Acked) {
        if let Some(h) = acked.highest {
            *self.fack = Some(self.fack.map_or(h, |f| f.max(h)));
        }
    }

    /// The records that a block covers, `None` where it tells nothing new: from the first segment
    /// that begins in it to the last one that ends in it. A block that ends elsewhere was made up,
    /// or tells of part of a segment, which counts as missing.
    fn records_of(&mut self, b: &SackBlock, cuts_left: &mut usize) -> Option<(usize, usize)> {
        let at = self.index_of(b.start);
        let r = *self.records.get(at)?;
        let first = if r.seq.after_eq(b.start) {
            at
        } else if r.sacked || r.edge_from(b.start) == r.end {
            at + 1
        } else if r.edge_from(b.start).before(b.end) && self.may_cut(cuts_left) {
            self.cut(r.edge_from(b.start))
        } else {
            at + 1
        };
        let at = self.index_of(b.end);
        let last = match self.records.get(at).copied().filter(|r| r.seq.before(b.end)) {
            None => at,
            Some(r) if r.sacked || r.edge_until(b.end) == r.seq || !self.may_cut(cuts_left) => at,
            Some(r) => self.cut(r.edge_until(b.end)),
        };
        (first < last).then_some((first, last))
    }

    fn may_cut(&mut self, cuts_left: &mut usize) -> bool {
        let may = *cuts_left > 0 && self.records.len() < RECORDS_MAX;
        *cuts_left -= usize::from(may);
        self.count_steps(if may { self.records.len() } else { 0 });
        may
    }

    /// SACKed neighbours become one record, so that the board stays as short as the holes are few.
    fn join_sacked(&mut self, first: usize, last: usize) {
        let is_sacked = |i: usize| self.records.get(i).is_some_and(|r| r.sacked);
        let from = if first > 0 && is_sacked(first - 1) { first - 1 } else { first };
        let until = if is_sacked(last) { last + 1 } else { last };
        if until <= from + 1 {
            return;
        }
        let (end, fin) = self.records.get(until - 1).map_or((SeqNum(0), false), |r| (r.end, r.fin));
        if let Some(r) = self.records.get_mut(from) {
            r.end = end;
            r.fin = fin;
        }
        self.count_steps(self.records.len() - from);
        self.records.drain(from + 1..until);
    }

    /// Marks as lost every record that `is_lost` says is; returns how many bytes.
    pub fn mark_lost(&mut self, is_lost: impl FnMut(&Sent) -> bool) -> u64 {
        self.mark_lost_from(0, is_lost)
    }

    /// The same of those that end beyond this.
    pub fn mark_lost_beyond(&mut self, edge: SeqNum, is_lost: impl FnMut(&Sent) -> bool) -> u64 {
        self.mark_lost_from(self.index_of(edge), is_lost)
    }

    fn mark_lost_from(&mut self, first: usize, mut is_lost: impl FnMut(&Sent) -> bool) -> u64 {
        self.count_steps(self.records.len() - first);
        let before = self.lost_bytes;
        for i in first..self.records.len() {
            if self.records.get(i).is_some_and(|r| !r.sacked && !r.lost && is_lost(r)) {
                self.lose(i);
            }
        }
        self.lost_bytes - before
    }

    /// The first that ends beyond this, is on its way, and is not SACKed.
    #[must_use]
    pub fn first_missing_beyond(&self, edge: SeqNum) -> Option<&Sent> {
        self.records.iter().skip(self.index_of(edge)).find(|r| !r.sacked && !r.lost)
    }

    /// A record is taken for lost.
    fn lose(&mut self, i: usize) {
        let Some(r) = self.records.get_mut(i) else { return };
        r.lost = true;
        let older = self.lost_from.filter(|from| self.lost_bytes > 0 && from.before(r.seq));
        self.lost_from = Some(older.unwrap_or(r.seq));
        self.lost_bytes += r.len();
        self.lost_ever_bytes += r.len();
        note_loss(&mut self.losses, r, self.lost_ever_bytes);
    }

    /// Marks as lost what was sent before the segment that ends at `end` left at `xmit_at`, and at
    /// least `patience` ago. Returns how many bytes, and when more may be due.
    pub fn mark_overdue(
        &mut self,
        now: Instant,
        (xmit_at, end): (Instant, SeqNum),
        patience: Duration,
    ) -> (u64, Option<Instant>) {
        let before = self.lost_bytes;
        let mut again = None;
        let mut nth = 0;
        'turns: while let Some(turn) = self.order.get(nth).filter(|t| t.sent_at <= xmit_at) {
            let mut i = self.index_of(turn.seq);
            let mut rest = None;
            while let Some(r) = self.records.get(i).copied().filter(|r| r.seq.before(turn.end)) {
                self.count_steps(1);
                if !r.sacked && !r.lost && r.sent_at == turn.sent_at {
                    if r.sent_at == xmit_at && r.end.after_eq(end) {
                        rest = Some(r.seq);
                        break;
                    }
                    let due = r.sent_at + patience;
                    if due > now {
                        again = Some(due);
                        self.order.begin_at(nth, r.seq);
                        break 'turns;
                    }
                    self.lose(i);
                }
                i += 1;
            }
            match rest {
                Some(seq) => self.order.begin_at(nth, seq),
                None if nth == 0 => {
                    self.order.pop();
                    continue;
                }
                None => self.order.begin_at(nth, turn.end),
            }
            nth += 1;
        }
        (self.lost_bytes - before, again)
    }

    /// Everything that is not SACKed is to be sent again, for a reason that is not congestion: it
    /// counts as no loss.
    pub fn resend_all(&mut self) {
        self.resend_larger(0);
    }

    /// The same of what left in segments of more payload than this.
    pub fn resend_larger(&mut self, bytes: u32) {
        for r in &mut self.records {
            if !r.sacked && !r.lost && r.len().min(r.unit_bytes.max(1).into()) > bytes.into() {
                r.lost = true;
                self.lost_bytes += r.len();
            }
        }
        self.lost_from = self.records.front().map(|r| r.seq);
    }

    /// Marks the first `len` bytes as lost, whatever is known (the head on a timeout or without
    /// SACK), in however small pieces they were sent: a piece for each round trip would take for
    /// ever. Not where the head is known to be lost already.
    pub fn mark_head_lost(&mut self, len: u32) -> u64 {
        let Some(head) = self.records.front().filter(|r| !r.sacked && !r.lost) else { return 0 };
        let end = head.seq + len;
        let last = self.cut(end);
        let before = self.lost_bytes;
        for i in 0..last {
            if self.records.get(i).is_some_and(|r| !r.sacked && !r.lost && r.end.before_eq(end)) {
                self.lose(i);
            }
        }
        self.count_steps(last);
        self.lost_bytes - before
    }

    /// The first `len` bytes are to be sent again although the receiver holds them: it is asked by
    /// them whether it still does. They count as no loss.
    pub fn doubt_head(&mut self, len: u32) {
        let Some(head) = self.records.front().filter(|r| r.sacked) else { return };
        let end = (head.seq + len).min(head.end);
        self.cut(end);
        if let Some(head) = self.records.front_mut() {
            head.sacked = false;
            head.lost = true;
            self.sacked_bytes -= head.len();
            self.lost_bytes += head.len();
            self.lost_from = Some(head.seq);
        }
    }

    /// The receiver may have thrown away what it SACKed (RFC 2018 section 8), as a timeout must
    /// assume when the head itself is SACKed.
    pub fn forget_sacks(&mut self) {
        for r in &mut self.records {
            r.sacked = false;
        }
        self.sacked_bytes = 0;
        self.order.rebuild(&self.records);
    }

    /// Whether the receiver holds these bytes (true) or some of them are taken for lost (false);
    /// `None`: neither is known.
    #[must_use]
    pub fn is_held(&self, from: SeqNum, to: SeqNum) -> Option<bool> {
        let first = self.index_of(from);
        let records = || self.records.iter().skip(first).take_while(|r| r.seq.before(to));
        if records().any(|r| r.lost) {
            return Some(false);
        }
        records().all(|r| r.sacked).then_some(true)
    }

    /// Lowest bytes to send again: sequence number and length, at most `max_len`.
    #[must_use]
    pub fn next_lost(&mut self, max_len: u32) -> Option<(SeqNum, u32)> {
        if self.lost_bytes == 0 {
            return None;
        }
        let from = self.lost_from.map_or(0, |seq| self.index_of(seq));
        let i = from + self.records.iter().skip(from).position(|r| r.lost)?;
        let first = *self.records.get(i)?;
        self.lost_from = Some(first.seq);
        let mut end = first.end;
        for r in self.records.iter().skip(i + 1) {
            if !r.lost || end.since(first.seq) >= max_len {
                break;
            }
            end = r.end;
        }
        self.count_steps(i - from);
        Some((first.seq, end.since(first.seq).min(max_len)))
    }

    /// `len` bytes from `seq` were sent again.
    pub fn resent(&mut self, now: Instant, seq: SeqNum, len: u32, unit_bytes: u32, then: Then) {
        self.order.push(now, seq, seq + len, &self.records);
        let first = self.cut(seq);
        let last = self.cut(seq + len);
        for i in first..last {
            let Some(r) = self.records.get_mut(i) else { break };
            if r.lost {
                r.lost = false;
                self.lost_bytes -= r.len();
            }
            r.sent_at = now;
            r.unit_bytes = unit_bytes;
            r.unit_from = seq;
            r.retransmitted = true;
            r.repeats = r.repeats.saturating_add(1);
            r.copies = 0;
            r.then = then;
        }
    }

    /// What may be copied early, the oldest from `up` on, with no more than `copies` copies yet.
    #[must_use]
    pub fn oldest_early_candidate(&self, up: SeqNum, copies: u8, mss: u32) -> Option<(SeqNum, u32)> {
        self.first_copied(up, mss, |r| may_be_copied(r, copies))
    }

    /// What may be copied early: a repetition from `up` on, else the last segment before `down`
    /// that was sent once, both with no more than `copies` copies yet.
    #[must_use]
    pub fn early_candidate(&self, up: SeqNum, down: SeqNum, copies: u8, mss: u32) -> Option<(SeqNum, u32)> {
        let may = |r: &Sent| may_be_copied(r, copies);
        if let Some(repetition) = self.first_copied(up, mss, |r| may(r) && r.retransmitted) {
            return Some(repetition);
        }
        let below = self.index_of(down);
        let straddles = self.records.get(below).is_some_and(|r| r.seq.before(down));
        let r = self
            .records
            .iter()
            .take(below + usize::from(straddles))
            .rev()
            .find(|r| may(r) && !r.retransmitted)?;
        let end = r.end.min(down);
        let total = end.since(r.seq);
        let len = if total.is_multiple_of(mss) { mss.min(total) } else { total % mss };
        Some((end - len, len))
    }

    /// The first of those from `up` on.
    fn first_copied(&self, up: SeqNum, mss: u32, of: impl Fn(&Sent) -> bool) -> Option<(SeqNum, u32)> {
        let r = self.records.iter().skip(self.index_of(up)).find(|r| of(r))?;
        let seq = r.seq.max(up);
        Some((seq, r.end.since(seq).min(mss)))
    }

    /// A copy of `len` bytes from `seq` on went out early. Returns whether they are a repetition.
    pub fn copied(&mut self, now: Instant, seq: SeqNum, len: u32) -> bool {
        let first = self.cut(seq);
        let last = self.cut(seq + len);
        let mut repetition = false;
        for i in first..last {
            let Some(r) = self.records.get_mut(i) else { break };
            r.copies = r.copies.saturating_add(1);
            r.copied_at = Some(now);
            repetition |= r.retransmitted;
        }
        repetition
    }

    /// Nothing that is in flight counts as lost any more (the timeout was spurious).
    pub fn unmark_lost(&mut self) {
        for r in &mut self.records {
            r.lost = false;
        }
        self.lost_bytes = 0;
        self.lost_from = None;
        self.order.rebuild(&self.records);
    }
}

/// It may be on its way still, with no more than so many copies.
fn may_be_copied(r: &Sent, copies: u8) -> bool {
    !r.sacked && !r.lost && r.copies <= copies
}

/// A transmission taken for lost.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// First sequence number.
    pub seq: SeqNum,
    /// The one after the last.
    pub end: SeqNum,
    /// Its segments were this long, bytes.
    pub unit_bytes: u32,
    /// What the leg had done when it was sent.
    pub then: Then,
    /// Bytes ever taken for lost, this one included.
    pub lost_ever_bytes: u64,
}

/// More than this without being asked for are not remembered: they are of one flight, and its
/// beginning tells enough.
const LOSSES_MAX: usize = 1024;

fn note_loss(losses: &mut Option<Vec<Loss>>, r: &Sent, lost_ever_bytes: u64) {
    if let Some(losses) = losses
        && losses.len() < LOSSES_MAX
    {
        losses.push(Loss { seq: r.seq, end: r.end, unit_bytes: r.unit_bytes, then: r.then, lost_ever_bytes });
    }
}

#[cfg(test)]
mod tests;
