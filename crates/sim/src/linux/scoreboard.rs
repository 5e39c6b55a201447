//! What is in flight: segments sent and not yet acknowledged, with what is known of each (Linux
//! `tcp_rtx_queue`).

use std::collections::VecDeque;

use farlink_wire::{Duration, Instant};

use super::rate::Stamp;

/// A segment in flight.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Offset of its first byte in the stream.
    pub seq: u64,
    /// Sequence space that it takes.
    pub len: u64,
    /// When it was last sent.
    pub sent: Instant,
    /// For the rate sample.
    pub stamp: Stamp,
    /// The receiver has it.
    pub sacked: bool,
    /// It counts as lost.
    pub lost: bool,
    /// It was sent again, and that copy is in flight.
    pub resent: bool,
    /// It was ever sent again.
    pub ever_resent: bool,
}

impl Segment {
    pub fn end(&self) -> u64 {
        self.seq + self.len
    }
}

/// Newest delivery (RFC 8985).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    sent: Instant,
    end: u64,
    rtt: Duration,
    known: bool,
}

/// All segments in flight, by sequence number.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    segments: VecDeque<Segment>,
    /// Segments the receiver has, of those not acknowledged. Without SACK: duplicate
    /// acknowledgements.
    pub sacked_out: u32,
    /// Segments that count as lost.
    pub lost_out: u32,
    /// Of those, sent again.
    pub resent_out: u32,
    rack: Rack,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// Segments covered by the cumulative acknowledgement.
    pub acked: u32,
    /// Segments newly known to have arrived, in either way.
    pub delivered: u32,
    /// RTT of the oldest segment of them that was sent once (what RFC 6298 is fed), unless a
    /// repeated one was acknowledged with it.
    pub rtt_first: Option<Duration>,
    /// RTT of the newest.
    pub rtt_last: Option<Duration>,
}

impl Scoreboard {
    pub fn packets_out(&self) -> u32 {
        self.segments.len() as u32
    }

    pub fn in_flight(&self) -> u32 {
        (self.packets_out() + self.resent_out).saturating_sub(self.sacked_out + self.lost_out)
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn push(&mut self, segment: Segment) {
        self.segments.push_back(segment);
    }

    pub fn last_mut(&mut self) -> Option<&mut Segment> {
        self.segments.back_mut()
    }

    /// What the receiver has told to have it has not acknowledged, though everything before it: it
    /// has given it up (Linux `FLAG_SACK_RENEGING`, RFC 2018 section 8).
    pub fn is_given_up(&self) -> bool {
        self.segments.front().is_some_and(|s| s.sacked)
    }

    /// Takes a segment that is known to have arrived into account.
    fn note(rack: &mut Rack, news: &mut News, now: Instant, s: &Segment, min_rtt: Duration) {
        news.delivered += 1;
        let rtt = now.since(s.sent);
        if s.ever_resent && rtt < min_rtt {
            // Likely an answer to the first copy.
            return;
        }
        if !s.ever_resent {
            news.rtt_first.get_or_insert(rtt);
            news.rtt_last = Some(rtt);
        }
        if !rack.known || (s.sent, s.end()) > (rack.sent, rack.end) {
            *rack = Rack { sent: s.sent, end: s.end(), rtt, known: true };
        }
    }

    /// Everything below `una` has arrived. `each` hears of every segment that was not known to.
    pub fn acknowledge(
        &mut self,
        now: Instant,
        una: u64,
        has_sack: bool,
        min_rtt: Duration,
        each: &mut dyn FnMut(&Segment),
    ) -> News {
        let mut news = News::default();
        let mut resent = false;
        while self.segments.front().is_some_and(|s| s.end() <= una) {
            let Some(s) = self.segments.pop_front() else { break };
            news.acked += 1;
            self.lost_out -= u32::from(s.lost);
            self.resent_out -= u32::from(s.resent);
            if s.sacked {
                self.sacked_out -= 1;
                continue;
            }
            resent |= s.ever_resent;
            Self::note(&mut self.rack, &mut news, now, &s, min_rtt);
            each(&s);
        }
        if resent {
            // What came before the repetition filled the gap has waited for it (Linux
            // FLAG_RETRANS_DATA_ACKED).
            (news.rtt_first, news.rtt_last) = (None, None);
        }
        if let Some(s) = self.segments.front_mut()
            && s.seq < una
        {
            s.len = s.end() - una;
            s.seq = una;
        }
        if !has_sack && news.acked > 0 {
            // Linux `tcp_remove_reno_sacks`: all but one of them had been announced by duplicates.
            let announced = self.sacked_out.min(news.acked.saturating_sub(1));
            self.sacked_out -= announced;
            news.delivered -= announced.min(news.delivered);
            self.sacked_out = self.sacked_out.min(self.packets_out());
        }
        news
    }

    /// The receiver says that it has `start..end`.
    pub fn sack(
        &mut self,
        now: Instant,
        (start, end): (u64, u64),
        min_rtt: Duration,
        news: &mut News,
        each: &mut dyn FnMut(&Segment),
    ) {
        let from = self.segments.partition_point(|s| s.seq < start);
        for s in self.segments.range_mut(from..) {
            if s.end() > end {
                break;
            }
            if s.sacked {
                continue;
            }
            s.sacked = true;
            self.sacked_out += 1;
            self.lost_out -= u32::from(s.lost);
            self.resent_out -= u32::from(s.resent);
            s.lost = false;
            s.resent = false;
            Self::note(&mut self.rack, news, now, s, min_rtt);
            each(s);
        }
    }

    /// RACK: marks as lost what was sent long enough before the newest delivery. How many, and when
    /// to look again.
    pub fn detect(&mut self, now: Instant, reorder: Duration) -> (u32, Option<Instant>) {
        let (mut lost, mut again) = (0, None::<Instant>);
        let rack = self.rack;
        if !rack.known || (self.sacked_out == 0 && self.lost_out == 0) {
            return (0, None);
        }
        for s in &mut self.segments {
            if s.seq >= rack.end && s.sent >= rack.sent {
                break;
            }
            let older = (s.sent, s.end()) < (rack.sent, rack.end);
            if s.sacked || (s.lost && !s.resent) || !older {
                continue;
            }
            let due = s.sent + rack.rtt + reorder;
            if due <= now {
                if s.resent {
                    s.resent = false;
                    self.resent_out -= 1;
                } else {
                    s.lost = true;
                    self.lost_out += 1;
                }
                lost += 1;
            } else {
                again = Some(again.map_or(due, |a| a.max(due)));
            }
        }
        (lost, again)
    }

    /// The head counts as lost (without SACK). `true` when it did not before.
    pub fn lose_head(&mut self) -> bool {
        match self.segments.front_mut() {
            Some(s) if !s.lost => {
                s.lost = true;
                self.lost_out += 1;
                true
            }
            _ => false,
        }
    }

    /// A timeout: all that is not known to have arrived counts as lost, but for what was sent so
    /// lately that its answer is not due (Linux `tcp_timeout_mark_lost`). How many did not before.
    pub fn lose_all(&mut self, now: Instant, has_sack: bool) -> u32 {
        let mut lost = 0;
        let is_given_up = self.is_given_up();
        if !has_sack || is_given_up {
            self.sacked_out = 0;
            self.segments.iter_mut().for_each(|s| s.sacked = false);
        }
        let rack = self.rack;
        let is_due = |s: &Segment| !has_sack || is_given_up || !rack.known || s.sent + rack.rtt <= now;
        for (n, s) in self.segments.iter_mut().enumerate().filter(|(_, s)| !s.sacked) {
            if n > 0 && !is_due(s) {
                continue;
            }
            self.resent_out -= u32::from(s.resent);
            s.resent = false;
            if !s.lost {
                s.lost = true;
                self.lost_out += 1;
                lost += 1;
            }
        }
        lost
    }

    /// Segments above `mss` bytes do not fit the path: each becomes several, and counts as lost
    /// (Linux `tcp_simple_retransmit`). A FIN at `fin_end` takes no room. How many count as lost
    /// now.
    pub fn cut(&mut self, mss: u64, fin_end: Option<u64>) -> u32 {
        let payload = |s: &Segment| s.len - u64::from(fin_end == Some(s.end()));
        let is_large = |s: &Segment| !s.sacked && payload(s) > mss;
        if mss == 0 || !self.segments.iter().any(is_large) {
            return 0;
        }
        let mut lost = 0;
        for mut s in core::mem::take(&mut self.segments) {
            if !is_large(&s) {
                self.segments.push_back(s);
                continue;
            }
            self.lost_out -= u32::from(s.lost);
            self.resent_out -= u32::from(s.resent);
            (s.lost, s.resent) = (true, false);
            while payload(&s) > mss {
                self.segments.push_back(Segment { len: mss, ..s.clone() });
                s.seq += mss;
                s.len -= mss;
                lost += 1;
            }
            lost += 1;
            self.segments.push_back(s);
        }
        self.lost_out += lost;
        lost
    }

    /// Nothing counts as lost any more: it was a mistake.
    pub fn forgive(&mut self) {
        for s in &mut self.segments {
            self.lost_out -= u32::from(s.lost);
            self.resent_out -= u32::from(s.resent);
            s.lost = false;
            s.resent = false;
        }
    }

    /// Whether a segment beyond `spared` is lost and not sent again.
    pub fn has_lost(&self, spared: u64) -> bool {
        self.lost_out > self.resent_out
            && self.segments.iter().any(|s| s.lost && !s.resent && s.end() > spared)
    }

    /// The first segment beyond `spared` that is lost and not sent again.
    pub fn next_lost(&mut self, spared: u64) -> Option<&mut Segment> {
        if self.lost_out == self.resent_out {
            return None;
        }
        self.segments.iter_mut().find(|s| s.lost && !s.resent && s.end() > spared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::rate::Rate;

    /// What two segments say of the RTT at 6.1 s, of which the first was sent again at 6 s where
    /// `resent`.
    fn rtt(resent: bool) -> Option<Duration> {
        let at = Instant::from_millis;
        let mut board = Scoreboard::default();
        for (seq, again) in [(0, resent), (1_000, false)] {
            let sent = if again { at(6_000) } else { at(1_000) };
            let stamp = Rate::default().stamp(sent, 0);
            board.push(Segment {
                seq,
                len: 1_000,
                sent,
                stamp,
                sacked: false,
                lost: false,
                resent: again,
                ever_resent: again,
            });
            board.resent_out += u32::from(again);
        }
        board.acknowledge(at(6_100), 2_000, false, Duration::from_millis(80), &mut |_| ()).rtt_first
    }

    #[test]
    fn what_waited_behind_a_gap_says_nothing_of_the_round_trip() {
        assert_eq!(rtt(false), Some(Duration::from_millis(5_100)));
        assert_eq!(rtt(true), None);
    }
}
