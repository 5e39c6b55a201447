//! What is sent next: repetitions, new data, probes, and how much of each goes into one segment.

use farlink_wire::{Instant, SeqNum};

use super::Sender;

/// Largest payload of one super-segment: with headers below the 65,500 bytes that a GSO write may
/// have.
const SUPER_SEGMENT_BYTES: u32 = 65_000;
/// So many segments that are larger than a packet are under way at least: the loss of one shows by
/// those behind it.
const LARGE_SEGMENTS_MIN: u64 = 4;
/// What there is to send, by the relay's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// The byte after the last one held in order.
    pub end: SeqNum,
    /// The stream ends there: FIN follows.
    pub fin: bool,
    /// The host pushed everything before this.
    pub push: SeqNum,
    /// Urgent data ends before this, while it has not been sent.
    pub urgent_end: Option<SeqNum>,
    /// Segments that begin before this carry URG, repeated ones, too.
    pub urgent_until: Option<SeqNum>,
    /// A segment begins here, alone in its write: its urgent pointer is 0.
    pub urgent_zero: Option<SeqNum>,
}

/// Why a segment goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For the first time.
    New,
    /// It was lost.
    Retransmit,
    /// The end of the flight is sent again to provoke an acknowledgement (RFC 8985 section 7).
    TailProbe,
    /// The link is idle, and it might have been lost.
    Early,
    /// What is under way, copied in one segment that is larger than a packet: does it arrive?
    SizeProbe,
    /// An old sequence number without payload, to learn the window (RFC 9293 3.8.6.1).
    WindowProbe,
}

/// The segment to send next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// First sequence number.
    pub seq: SeqNum,
    /// Payload bytes.
    pub len: u32,
    /// FIN follows the payload.
    pub fin: bool,
    /// Why.
    pub purpose: Purpose,
    /// One segment, larger than the others: whether it gets through is to be found out (RFC 4821
    /// 7.3).
    pub mtu_probe: bool,
}

impl Sender {
    /// `plan` may have something, or a timer to set.
    #[must_use]
    pub fn is_ready(&self, now: Instant, supply: &Supply) -> bool {
        if self.asks_link() || self.probe_wanted || self.peer.has_question() {
            return true;
        }
        let in_doubt = self.governor.awaits_verdict();
        if in_doubt == Some(0) {
            return false;
        }
        let lost = self.flight.has_lost() && in_doubt.is_none();
        if self.waits_for_answer() || (!lost && (!self.has_new(supply) || self.pauses(now))) {
            return false;
        }
        let paced = self.governor.paced_until().is_some_and(|t| t > now) && self.unpaced_room() == 0;
        let closed = !lost && self.peer.is_waited_for();
        !paced && !closed
    }

    /// What may be sent now, at most `budget` payload bytes in a super-segment (at least one MSS).
    /// Sets the pacing and persist timers when it is time, not the window, that stands in the way.
    pub fn plan(&mut self, now: Instant, supply: &Supply, budget: u32) -> Option<Plan> {
        self.governor.stop_waiting();
        self.note_supply(now, supply);
        let plan = self.plan_question(supply);
        let plan =
            plan.or_else(|| self.plan_probe(supply)).or_else(|| self.plan_data(now, supply, budget))?;
        self.dry_after = plan.seq + plan.len + u32::from(plan.fin) == supply.end + u32::from(supply.fin);
        self.tail_after = self.dry_after || !self.has_new(supply);
        Some(plan)
    }

    fn plan_data(&mut self, now: Instant, supply: &Supply, budget: u32) -> Option<Plan> {
        self.end_pass(supply);
        if self.waits_for_answer() {
            return None;
        }
        let room = self.window_room();
        let mss = self.flight.mss();
        let budget = if self.silence.asks() && !self.blind.on { mss } else { budget };
        let paced = self.pacing_rate();
        let in_doubt = self.governor.awaits_verdict();
        let has_lost = self.flight.has_lost() && in_doubt.is_none();
        let unpaced = self.unpaced_room();
        let is_paced = paced.is_some() && unpaced == 0;
        if (has_lost || self.has_new(supply)) && is_paced && self.governor.waits_for_pace(now) {
            return None;
        }
        let burst =
            paced.map_or(SUPER_SEGMENT_BYTES, |rate| self.governor.burst_bytes(rate, mss).max(unpaced));
        let max = (budget.min(burst).min(SUPER_SEGMENT_BYTES) / mss).max(1) * mss;
        if has_lost {
            // The oldest segment goes out at a timeout whatever counts as under way still (RFC 6298
            // 5.4): the window of one segment that a controller leaves then would be full of what
            // was sent last.
            let room = if self.flight.is_head_due() { room.max(u64::from(mss)) } else { room };
            if room == 0 {
                return None;
            }
            if let Some(plan) = self.plan_mtu_probe(supply, room) {
                return Some(plan);
            }
            let (seq, len) = self.flight.next_lost(max.min(round_up(room, mss)))?;
            if self.is_refused(seq) {
                self.arm_persist(now);
                return None;
            }
            let len = self.within_urgent(supply, seq, self.within_window(seq, len));
            return Some(self.with_fin(seq, len, supply, Purpose::Retransmit));
        }
        let max = in_doubt.map_or(max, |bytes| max.min(bytes));
        if max == 0 {
            return None;
        }
        if in_doubt.is_none()
            && let Some(plan) = self.plan_mtu_probe(supply, room)
        {
            return Some(plan);
        }
        if self.pauses(now) { None } else { self.plan_new(now, supply, max, room) }
    }

    /// The end of urgent data has become known: a receiver whose window is closed hears of it all
    /// the same.
    pub fn announce_urgent(&mut self) {
        self.peer.announce_urgent();
    }

    fn plan_probe(&mut self, supply: &Supply) -> Option<Plan> {
        if self.peer.take_urgent_notice() {
            // Not with an old sequence number: such a segment is dropped before its urgent pointer
            // is read. It draws no acknowledgement, so the probe follows, as in Linux
            // tcp_write_wakeup.
            if supply.urgent_end.is_some() && self.receiver_room(supply) == 0 {
                return Some(Plan {
                    seq: self.flight.next(),
                    len: 0,
                    fin: false,
                    purpose: Purpose::WindowProbe,
                    mtu_probe: false,
                });
            }
        }
        if self.peer.take_probe() {
            return Some(self.plan_window_probe());
        }
        if self.probe_wanted {
            self.probe_wanted = false;
            let room = self.receiver_room(supply);
            if room == 0
                && let Some(last) = self.flight.board().last().copied()
                && !last.sacked
            {
                let total = last.end.since(last.seq);
                let len = total.min(self.probe_bytes());
                return Some(self.with_fin(last.end - len, len, supply, Purpose::TailProbe));
            }
            // New data is the better probe (RFC 8985 7.3); it may exceed the congestion window by
            // one segment.
            if room > 0 {
                let len = room.min(self.probe_bytes());
                return Some(self.with_fin(self.flight.next(), len, supply, Purpose::New));
            }
        }
        None
    }

    /// Payload of a probe: one packet. What is larger may be what does not arrive.
    pub(super) fn probe_bytes(&self) -> u32 {
        self.larger_than.unwrap_or(u32::MAX).min(self.flight.mss())
    }

    pub(super) fn plan_window_probe(&self) -> Plan {
        Plan {
            seq: self.flight.una() - 1,
            len: 0,
            fin: false,
            purpose: Purpose::WindowProbe,
            mtu_probe: false,
        }
    }

    fn plan_new(&mut self, now: Instant, supply: &Supply, max: u32, room: u64) -> Option<Plan> {
        let mss = self.flight.mss();
        let have = self.unsent(supply);
        if have == 0 {
            if self.flight.is_empty() && supply.end == self.flight.next() {
                self.governor.note_not_limited();
            }
            return None;
        }
        let window = self.receiver_room(supply);
        let idle = self.flight.is_empty();
        if window == 0 || self.flight.board().is_full() {
            if idle {
                self.arm_persist(now);
            }
            self.governor.note_not_limited();
            return None;
        }
        // A small window is worth a segment only if nothing is in flight (sender SWS avoidance, RFC
        // 9293 3.8.6.2.1).
        if window < have && window < mss {
            if !idle {
                return None;
            }
            if self.peer.is_worth_waiting(window) {
                self.arm_persist(now);
                return None;
            }
        }
        if room == 0 || (room < u64::from(mss.min(have)) && !idle) {
            self.governor.stop_at(self.flight.next());
            return None;
        }
        let mut len = have.min(window).min(max).min(round_up(room, mss));
        if len > mss {
            let whole = len / mss * mss;
            if whole < len && (len < have || !self.pushed(supply)) {
                len = whole;
            }
        } else if len < mss && len == have && !idle && !self.pushed(supply) && !self.blind.on {
            // More of the same write is on its way: fill the segment.
            return None;
        }
        let next = self.flight.next();
        let len = self.within_urgent(supply, next, len);
        Some(self.with_fin(next, len, supply, Purpose::New))
    }

    /// `len` from `seq` on, cut so that urgent data never leaves in a super-segment, and that a
    /// segment begins where one with an urgent pointer of 0 did.
    pub(super) fn within_urgent(&self, supply: &Supply, seq: SeqNum, len: u32) -> u32 {
        let mss = self.flight.mss();
        let urgent = supply.urgent_until.is_some_and(|end| seq.before(end));
        let len = if urgent { len.min(mss) } else { len };
        match supply.urgent_zero {
            Some(at) if at.after(seq) => len.min(at.since(seq)),
            Some(at) if at == seq => len.min(mss),
            _ => len,
        }
    }

    pub(super) fn with_fin(&self, seq: SeqNum, len: u32, supply: &Supply, purpose: Purpose) -> Plan {
        let mut plan = Plan { seq, len, fin: false, purpose, mtu_probe: false };
        if supply.fin {
            let end = seq + len;
            if end.after(supply.end) {
                // The FIN counts as one in the records; it is no payload.
                plan.len = len.saturating_sub(1);
                plan.fin = true;
            }
        }
        plan
    }

    /// Payload (and FIN) that has not been sent.
    fn unsent(&self, supply: &Supply) -> u32 {
        let (end, next) = (supply.end + u32::from(supply.fin), self.flight.next());
        if end.after(next) { end.since(next) } else { 0 }
    }

    /// There is something new to send.
    #[must_use]
    pub fn has_new(&self, supply: &Supply) -> bool {
        self.unsent(supply) > 0
    }

    fn pushed(&self, supply: &Supply) -> bool {
        supply.fin || supply.push.after_eq(supply.end) || supply.urgent_end.is_some()
    }

    /// What the receiver's window leaves for new data. A FIN may go into a full window's edge as
    /// Linux sends it.
    pub(super) fn receiver_room(&self, supply: &Supply) -> u32 {
        let room = self.room_ahead(self.flight.next());
        let have = self.unsent(supply);
        if self.blind.on {
            // Its window moves with what it takes; the word of it goes round us.
            return have;
        }
        if supply.fin && have == 1 && room == 0 && self.peer.is_known() { 1 } else { room.min(have) }
    }

    /// What the congestion window leaves, bytes.
    pub(super) fn window_room(&self) -> u64 {
        if self.blind.on {
            return u64::from(SUPER_SEGMENT_BYTES);
        }
        let (room, pipe) = (self.governor.room(self.flight.pipe()), self.flight.pipe());
        // While one segment larger than a packet is on its way, others must be: where nothing but
        // the link's queue is the clock, they wait there.
        let large = self.larger_than.map_or(0, |_| self.mss());
        let least = LARGE_SEGMENTS_MIN * u64::from(large);
        room.max(least.saturating_sub(pipe))
    }

    /// Full segments that leave whatever the pace, bytes.
    fn unpaced_room(&self) -> u32 {
        let room = self.governor.unpaced_room(self.pipe());
        let mss = u64::from(self.mss().max(1));
        u32::try_from(room - room % mss).unwrap_or(u32::MAX)
    }

    /// The rate that it is paced at, bit/s; `None` where it is not.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<u64> {
        if self.blind.on {
            return self.blind_rate();
        }
        self.governor.pacing_rate(self.flight.rtt().srtt())
    }

    /// The source has more after it had run out, and neither window nor pacing would have held that
    /// back: what is sent now does not show what the path can do (CheckIfApplicationLimited of
    /// draft-ietf-ccwg-bbr).
    fn note_supply(&mut self, now: Instant, supply: &Supply) {
        if !self.dry || !self.has_new(supply) {
            return;
        }
        self.dry = false;
        let free = self.governor.lets_go(now, self.flight.pipe(), self.flight.mss());
        if free && !self.flight.has_lost() {
            self.flight.mark_app_limited();
        }
    }
}

fn round_up(room: u64, mss: u32) -> u32 {
    let mss = u64::from(mss);
    u32::try_from(room.div_ceil(mss) * mss).unwrap_or(u32::MAX)
}
