//! What is in flight on a leg: one record per transmission, marked as SACKed, lost or sent again.

use std::collections::VecDeque;

use farlink_wire::{Duration, Instant, SackBlock, SeqNum};

/// One transmission (a super-segment counts once, until an acknowledgement cuts it).
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// First sequence number.
    pub seq: SeqNum,
    /// The one after the last.
    pub end: SeqNum,
    /// When it was last sent.
    pub sent_at: Instant,
    /// What the leg had done when it was sent.
    pub then: Then,
    /// The receiver holds it.
    pub sacked: bool,
    /// Taken for lost and not sent again yet.
    pub lost: bool,
    /// Sent more than once.
    pub retransmitted: bool,
    /// When it was sent first.
    pub original_at: Instant,
    /// How often it was sent again.
    pub repeats: u8,
    /// Copies of the last of these transmissions that went out early, before it could be known to be lost.
    pub copies: u8,
    /// When the newest copy of any of them did.
    pub copied_at: Option<Instant>,
}

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

impl Sent {
    fn len(&self) -> u64 {
        u64::from(self.end.since(self.seq))
    }
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// Bytes newly acknowledged, cumulatively or by SACK.
    pub delivered_bytes: u64,
    /// Bytes newly acknowledged by SACK.
    pub sacked_bytes: u64,
    /// RTT sample from the newest segment acknowledged that was sent once.
    pub rtt: Option<Duration>,
    /// Send time and end of the most recently sent segment acknowledged (RACK.xmit_ts, RACK.end_seq).
    pub newest: Option<(Instant, SeqNum, bool)>,
    /// Highest end acknowledged, for reordering detection (RACK.fack).
    pub highest: Option<SeqNum>,
    /// A segment below the highest one acknowledged before, never sent again, was acknowledged: reordering.
    pub reordered: bool,
    /// How long ago the oldest of those was sent.
    pub late: Option<Duration>,
    /// Of segments that had been sent again once, the one whose repetition is youngest: how long ago that and the original
    /// were sent.
    pub repeated_once: Option<(Duration, Duration)>,
    /// Some segment that was acknowledged had been sent only once.
    pub original: bool,
    /// Of the newest segment: when it left, and what the leg had done by then.
    pub snapshot: Option<(Instant, Then)>,
}

/// The transmissions in flight on one leg.
#[derive(Debug, Default)]
pub struct Scoreboard {
    records: VecDeque<Sent>,
    sacked_bytes: u64,
    lost_bytes: u64,
    out_bytes: u64,
    /// Bytes ever taken for lost.
    lost_ever_bytes: u64,
    /// Transmissions taken for lost that nobody has asked for yet, if somebody will.
    losses: Option<Vec<Loss>>,
    fack: Option<SeqNum>,
    /// Smallest RTT of the leg: what is acknowledged sooner after a copy was not acknowledged for the copy.
    min_rtt: Duration,
}

impl Scoreboard {
    /// The leg's smallest RTT is this.
    pub fn set_min_rtt(&mut self, min_rtt: Duration) {
        self.min_rtt = min_rtt;
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
    /// What was taken for lost since this was last asked, in order of sequence numbers.
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
    /// The record with the highest sequence number.
    #[must_use]
    pub fn last(&self) -> Option<&Sent> {
        self.records.back()
    }
    /// Memory of the records, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Sent>()
    }

    /// New data went out at the top.
    pub fn push(&mut self, sent: Sent) {
        self.out_bytes += sent.len();
        self.records.push_back(sent);
    }

    /// Everything is forgotten.
    pub fn clear(&mut self) {
        let losses = self.losses.take().map(|_| Vec::new());
        let (lost_ever_bytes, min_rtt) = (self.lost_ever_bytes, self.min_rtt);
        *self = Self { losses, lost_ever_bytes, min_rtt, ..Self::default() };
    }

    /// Index of the record that contains `seq`, or of the first one above it.
    fn index_of(&self, seq: SeqNum) -> usize {
        self.records.partition_point(|r| r.end.before_eq(seq))
    }

    /// Cuts the record that straddles `seq`, so that a record begins there.
    fn cut(&mut self, seq: SeqNum) -> usize {
        let i = self.index_of(seq);
        if let Some(r) = self.records.get_mut(i)
            && r.seq.before(seq)
        {
            let mut upper = *r;
            r.end = seq;
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
        // It may be a copy that arrived.
        let copy = r.copied_at.filter(|at| now.since(*at) >= self.min_rtt);
        let sent_at = copy.filter(|at| *at > r.sent_at).unwrap_or(r.sent_at);
        let again = r.retransmitted || copy.is_some();
        if !again {
            acked.original = true;
            if self.fack.is_some_and(|f| r.end.before(f)) {
                acked.reordered = true;
                acked.late = acked.late.max(Some(now.since(r.sent_at)));
            }
            let rtt = now.since(r.sent_at);
            acked.rtt = Some(acked.rtt.map_or(rtt, |x: Duration| x.min(rtt)));
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
    }

    /// A cumulative acknowledgement up to `una`, then SACK blocks. Blocks outside what is in flight are ignored.
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
            // What was sent once arrived long ago, behind the gap that the repeated segment filled (Karn's algorithm).
            acked.rtt = None;
        }
        let (Some(low), Some(high)) =
            (self.records.front().map(|r| r.seq), self.records.back().map(|r| r.end))
        else {
            self.note_fack(&acked);
            return acked;
        };
        for b in sack {
            // Valid blocks lie above una and within what was sent; a D-SACK or nonsense does not (RFC 2018, 2883).
            if b.start.before(low) || b.end.after(high) || b.start.after_eq(b.end) || b.start.before(una) {
                continue;
            }
            let first = self.cut(b.start);
            let last = self.cut(b.end);
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
            self.join_sacked(first, last);
        }
        self.note_fack(&acked);
        debug_assert!(self.records.len() > 64 || self.is_consistent(), "scoreboard sums");
        acked
    }

    fn note_fack(&mut self, acked: &Acked) {
        if let Some(h) = acked.highest {
            self.fack = Some(self.fack.map_or(h, |f| f.max(h)));
        }
    }

    /// SACKed neighbours become one record, so that the board stays as short as the holes are few.
    fn join_sacked(&mut self, first: usize, last: usize) {
        let from = first.saturating_sub(1);
        let mut i = (last + 1).min(self.records.len()).saturating_sub(1);
        while i > from {
            let joins = match (self.records.get(i - 1), self.records.get(i)) {
                (Some(a), Some(b)) => a.sacked && b.sacked && a.end == b.seq,
                _ => false,
            };
            if joins {
                let end = self.records.remove(i).map(|r| r.end);
                if let (Some(end), Some(r)) = (end, self.records.get_mut(i - 1)) {
                    r.end = end;
                }
            }
            i -= 1;
        }
    }

    /// Marks as lost every record that `is_lost` says is; returns how many bytes.
    pub fn mark_lost(&mut self, mut is_lost: impl FnMut(&Sent) -> bool) -> u64 {
        let mut bytes = 0;
        for r in &mut self.records {
            if !r.sacked && !r.lost && is_lost(r) {
                r.lost = true;
                bytes += r.len();
                self.lost_ever_bytes += r.len();
                note_loss(&mut self.losses, r, self.lost_ever_bytes);
            }
        }
        self.lost_bytes += bytes;
        bytes
    }

    /// Everything that is not SACKed is to be sent again, for a reason that is not congestion: it counts as no loss.
    pub fn resend_all(&mut self) {
        for r in &mut self.records {
            if !r.sacked && !r.lost {
                r.lost = true;
                self.lost_bytes += r.len();
            }
        }
    }

    /// Marks the first `len` bytes as lost, whatever is known (the head on a timeout or without SACK), in however small pieces
    /// they were sent: a piece for each round trip would take for ever. Not where the head is known to be lost already.
    pub fn mark_head_lost(&mut self, len: u32) -> u64 {
        let Some(head) = self.records.front().filter(|r| !r.sacked && !r.lost) else { return 0 };
        let end = head.seq + len;
        self.cut(end);
        self.mark_lost(|r| r.end.before_eq(end))
    }

    /// The receiver may have thrown away what it SACKed (RFC 2018 section 8), as a timeout must assume when the head
    /// itself is SACKed.
    pub fn forget_sacks(&mut self) {
        for r in &mut self.records {
            r.sacked = false;
        }
        self.sacked_bytes = 0;
    }

    /// Whether the receiver holds these bytes (true) or some of them are taken for lost (false); `None`: neither is known.
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
    pub fn next_lost(&self, max_len: u32) -> Option<(SeqNum, u32)> {
        if self.lost_bytes == 0 {
            return None;
        }
        let i = self.records.iter().position(|r| r.lost)?;
        let first = self.records.get(i)?;
        let mut end = first.end;
        for r in self.records.iter().skip(i + 1) {
            if !r.lost || end.since(first.seq) >= max_len {
                break;
            }
            end = r.end;
        }
        Some((first.seq, end.since(first.seq).min(max_len)))
    }

    /// `len` bytes from `seq` were sent again.
    pub fn resent(&mut self, now: Instant, seq: SeqNum, len: u32, then: Then) {
        let first = self.cut(seq);
        let last = self.cut(seq + len);
        for i in first..last {
            let Some(r) = self.records.get_mut(i) else { break };
            if r.lost {
                r.lost = false;
                self.lost_bytes -= r.len();
            }
            r.sent_at = now;
            r.retransmitted = true;
            r.repeats = r.repeats.saturating_add(1);
            r.copies = 0;
            r.then = then;
        }
    }

    /// What may be copied early: a repetition from `up` on, else the last segment before `down` that was sent once, both with
    /// no more than `copies` copies yet.
    #[must_use]
    pub fn early_candidate(&self, up: SeqNum, down: SeqNum, copies: u8, mss: u32) -> Option<(SeqNum, u32)> {
        let may = |r: &&Sent| !r.sacked && !r.lost && r.copies <= copies;
        let first = self.index_of(up);
        if let Some(r) = self.records.iter().skip(first).find(|r| may(r) && r.retransmitted) {
            let seq = r.seq.max(up);
            return Some((seq, r.end.since(seq).min(mss)));
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
    }

    /// Sums over the records match the running totals (for debug assertions).
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let sum = |f: fn(&Sent) -> bool| self.records.iter().filter(|r| f(r)).map(Sent::len).sum::<u64>();
        sum(|_| true) == self.out_bytes
            && sum(|r| r.sacked) == self.sacked_bytes
            && sum(|r| r.lost) == self.lost_bytes
    }
}

/// A transmission taken for lost.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// First sequence number.
    pub seq: SeqNum,
    /// The one after the last.
    pub end: SeqNum,
    /// What the leg had done when it was sent.
    pub then: Then,
    /// Bytes ever taken for lost, this one included.
    pub lost_ever_bytes: u64,
}

/// More than this without being asked for are not remembered: they are of one flight, and its beginning tells enough.
const LOSSES_MAX: usize = 1024;

fn note_loss(losses: &mut Option<Vec<Loss>>, r: &Sent, lost_ever_bytes: u64) {
    if let Some(losses) = losses
        && losses.len() < LOSSES_MAX
    {
        losses.push(Loss { seq: r.seq, end: r.end, then: r.then, lost_ever_bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(n: u32) -> Scoreboard {
        let mut b = Scoreboard::default();
        for i in 0..n {
            let t = Instant::from_millis(u64::from(i));
            b.push(Sent {
                seq: SeqNum(i * 1000),
                end: SeqNum((i + 1) * 1000),
                sent_at: t,
                then: Then::default(),
                sacked: false,
                lost: false,
                retransmitted: false,
                original_at: t,
                repeats: 0,
                copies: 0,
                copied_at: None,
            });
        }
        b
    }
    fn block(a: u32, b: u32) -> SackBlock {
        SackBlock { start: SeqNum(a), end: SeqNum(b) }
    }

    #[test]
    fn sacks_cut_join_and_count() {
        let mut b = board(10);
        let a =
            b.acknowledge(Instant::from_millis(100), SeqNum(500), &[block(2500, 4000), block(9000, 10000)]);
        assert_eq!((a.delivered_bytes, a.sacked_bytes), (3000, 2500));
        assert_eq!(a.rtt, Some(Duration::from_millis(91)));
        assert!(b.is_consistent());
        assert_eq!(b.pipe(), 7000);
        b.acknowledge(
            Instant::from_millis(101),
            SeqNum(500),
            &[block(4000, 9000), block(0, 300), block(9500, 20000)],
        );
        assert!(b.is_consistent());
        assert_eq!(b.sacked_bytes(), 7500);
        assert_eq!(b.mark_lost(|_| true), 2000);
        assert_eq!(b.next_lost(700), Some((SeqNum(500), 700)));
        b.resent(Instant::from_millis(102), SeqNum(500), 700, Then::default());
        assert!(b.is_consistent());
        assert_eq!(b.next_lost(5000), Some((SeqNum(1200), 1300)));
        let a = b.acknowledge(Instant::from_millis(200), SeqNum(10000), &[]);
        assert_eq!(a.delivered_bytes, 2000);
        assert!(b.is_empty() && b.is_consistent());
    }

    #[test]
    fn a_lost_head_is_a_whole_segment_of_small_pieces() {
        let mut b = board(3);
        for at in [8, 96, 104, 1100] {
            b.cut(SeqNum(at));
        }
        assert_eq!(b.mark_head_lost(1000), 1000);
        assert_eq!(b.next_lost(1000), Some((SeqNum(0), 1000)));
        assert_eq!(b.mark_head_lost(1000), 0, "it is known");
        b.resent(Instant::from_millis(100), SeqNum(0), 1000, Then::default());
        b.acknowledge(Instant::from_millis(200), SeqNum(1000), &[]);
        assert_eq!((b.mark_head_lost(1000), b.next_lost(1000)), (1000, Some((SeqNum(1000), 1000))));
        assert!(b.is_consistent());
    }

    #[test]
    fn no_rtt_from_what_waited_behind_a_repeated_segment() {
        let mut b = board(3);
        b.mark_head_lost(1000);
        b.resent(Instant::from_millis(5_000), SeqNum(0), 1000, Then::default());
        let a = b.acknowledge(Instant::from_millis(5_100), SeqNum(2000), &[]);
        assert_eq!(a.rtt, None);
        let a = b.acknowledge(Instant::from_millis(5_102), SeqNum(3000), &[]);
        assert_eq!(a.rtt, Some(Duration::from_millis(5_100)));
    }

    #[test]
    fn late_originals_below_the_highest_are_reordering() {
        let mut b = board(5);
        assert!(!b.acknowledge(Instant::from_millis(50), SeqNum(0), &[block(3000, 4000)]).reordered);
        assert!(b.acknowledge(Instant::from_millis(51), SeqNum(1000), &[]).reordered);
    }
}
