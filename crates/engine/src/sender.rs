//! What to send next on a leg: repetitions, new data, probes; and what acknowledgements mean for it.

mod ack;
mod early;
mod held;
mod silence;
mod timer;
mod way;

use farlink_cc::Controller;
use farlink_wire::{Duration, Instant, SeqNum};

use crate::pacing::Pacer;
use crate::rate::RateSampler;
use crate::recovery::{Rack, Recovery};
use crate::rtt::RttEstimator;
use crate::scoreboard::{Scoreboard, Sent, Then};
use silence::{Blind, Silence};

pub use silence::Question;

/// Largest payload of one super-segment: with headers below the 65,500 bytes that a GSO write may have.
pub const SUPER_SEGMENT_BYTES: u32 = 65_000;
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
    /// One segment, larger than the others: whether it gets through is to be found out (RFC 4821 7.3).
    pub mtu_probe: bool,
}

/// Deadlines of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct SenderTimers {
    /// Retransmission timeout.
    pub rto: Option<Instant>,
    /// Tail loss probe.
    pub probe: Option<Instant>,
    /// RACK looks again.
    pub reorder: Option<Instant>,
    /// Zero-window probe.
    pub persist: Option<Instant>,
    /// The receiver is asked where it stands: bytes may have gone round us.
    pub hole: Option<Instant>,
    /// Pacing lets the next burst go.
    pub pace: Option<Instant>,
    /// The next round of early repetition.
    pub early: Option<Instant>,
}

/// Bounds of the retransmission timer, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct RtoBounds {
    /// Lower bound.
    pub min: Duration,
    /// Upper bound.
    pub max: Duration,
}

/// What happened inside, for counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Fast recovery began.
    pub recovery: bool,
    /// A timeout expired.
    pub rto: bool,
    /// SND.UNA advanced.
    pub progress: bool,
    /// When the newest segment left that is acknowledged for the first time, as far as that is clear.
    pub newest_sent_at: Option<Instant>,
    /// It had been sent before.
    pub newest_again: bool,
    /// Bytes found to be delivered.
    pub delivered_bytes: u64,
    /// Bytes found to be lost, by other causes than an outage.
    pub lost_bytes: u64,
    /// A segment that was larger than the others has arrived (true) or has been lost.
    pub mtu_probe: Option<bool>,
}

/// The sending half of a relay.
#[derive(Debug)]
pub struct Sender {
    /// Oldest unacknowledged sequence number.
    pub snd_una: SeqNum,
    /// Next new sequence number.
    pub snd_nxt: SeqNum,
    /// Segments that follow each other may be this large, options deducted.
    pub mss: u32,
    /// SACK may be used on this leg.
    pub sack_permitted: bool,
    /// A gateway is heard on this leg.
    gateway: bool,
    /// RTT of the link as its owner has declared it.
    declared_rtt: Option<Duration>,
    /// Until an RTT is known: what is sent is spread over this one.
    start_paced_over: Option<Duration>,
    window_bytes: u64,
    window_max_bytes: u64,
    wl_seq: SeqNum,
    wl_ack: SeqNum,
    board: Scoreboard,
    /// RTT of the leg.
    pub rtt: RttEstimator,
    rto_bounds: RtoBounds,
    cc: Box<Controller>,
    recovery: Recovery,
    rack: Rack,
    early: early::Early,
    copied: early::Copied,
    dup_acks: u32,
    /// Without SACK: bytes that duplicate ACKs have shown to be delivered, before an ACK covers them (RFC 9937
    /// DeliveredData).
    dup_credit_bytes: u64,
    rate: RateSampler,
    pacer: Pacer,
    /// Deadlines.
    pub timers: SenderTimers,
    probe_wanted: bool,
    probed_end: Option<SeqNum>,
    window_probe_wanted: bool,
    urgent_notice_wanted: bool,
    mtu: way::MtuProbe,
    /// A timeout has passed, and the oldest segment has not gone out again since.
    head_due: bool,
    /// When the leg was led another way: what was sent before teaches nothing about this one.
    moved_at: Option<Instant>,
    /// When something went out last that the receiver answers.
    pub asked_at: Instant,
    /// Zero-window probes since the receiver was last heard.
    pub probes_unanswered: u32,
    persist_backoff: u32,
    hole_backoff: u32,
    cwnd_limited: bool,
    /// Where the congestion window stopped it, until that is acknowledged.
    cwnd_stop: Option<SeqNum>,
    /// All that the source had has been sent; and: will have been with the planned segment.
    dry: bool,
    dry_after: bool,
    /// Nothing is left to send for the first time after the planned segment.
    tail_after: bool,
    last_sent_at: Instant,
    /// Last time that something was acknowledged, or nothing was outstanding.
    pub progress_at: Instant,
    silence: Silence,
    blind: Blind,
    /// The next segment asks the link, whatever else holds it back.
    link_question: Option<Question>,
    /// What stands before this was sent before or during an outage.
    outage_until: Option<SeqNum>,
    cwr_until: Option<SeqNum>,
    /// CWR is owed with the next new segment (RFC 3168 6.1.2).
    pub cwr_owed: bool,
}

impl Sender {
    /// A sender whose next byte is `next`.
    #[must_use]
    pub fn new(
        now: Instant,
        next: SeqNum,
        cc: Controller,
        mss: u32,
        sack_permitted: bool,
        rto_bounds: RtoBounds,
    ) -> Self {
        let mut board = Scoreboard::default();
        if cc.wants_losses() {
            board.keep_losses();
        }
        Self {
            snd_una: next,
            snd_nxt: next,
            mss,
            sack_permitted,
            gateway: false,
            declared_rtt: None,
            start_paced_over: None,
            window_bytes: 0,
            window_max_bytes: 0,
            wl_seq: SeqNum(0),
            wl_ack: next,
            board,
            rtt: RttEstimator::default(),
            rto_bounds,
            cc: Box::new(cc),
            recovery: Recovery::Open,
            rack: Rack::default(),
            early: early::Early::default(),
            copied: early::Copied::default(),
            dup_acks: 0,
            dup_credit_bytes: 0,
            rate: RateSampler::default(),
            pacer: Pacer::default(),
            timers: SenderTimers::default(),
            probe_wanted: false,
            probed_end: None,
            window_probe_wanted: false,
            urgent_notice_wanted: false,
            mtu: way::MtuProbe::default(),
            head_due: false,
            moved_at: None,
            asked_at: now,
            probes_unanswered: 0,
            persist_backoff: 0,
            hole_backoff: 0,
            cwnd_limited: false,
            cwnd_stop: None,
            dry: false,
            dry_after: false,
            tail_after: false,
            last_sent_at: now,
            progress_at: now,
            silence: Silence::default(),
            blind: Blind::default(),
            link_question: None,
            outage_until: None,
            cwr_until: None,
            cwr_owed: false,
        }
    }
    /// A gateway is heard on this leg, or not. It tells what it holds above a gap in its own option, whatever the hosts have
    /// agreed on.
    pub fn note_gateway(&mut self, heard: bool, hosts_use_sack: bool) {
        self.gateway = heard;
        let sack = hosts_use_sack || heard;
        if sack == self.sack_permitted {
            return;
        }
        self.sack_permitted = sack;
        self.dup_acks = 0;
        self.dup_credit_bytes = 0;
        if !sack {
            // What the gateway held is gone with it.
            self.board.forget_sacks();
        }
    }
    /// The owner of the link has declared its RTT.
    pub fn declare_rtt(&mut self, rtt: Option<Duration>) {
        self.declared_rtt = rtt;
    }
    /// The first window is spread over this round trip.
    pub fn pace_start(&mut self, over: Option<Duration>) {
        self.start_paced_over = over;
    }
    /// The congestion controller.
    #[must_use]
    pub fn cc(&self) -> &Controller {
        &self.cc
    }
    /// The scoreboard.
    #[must_use]
    pub fn board(&self) -> &Scoreboard {
        &self.board
    }
    /// Bytes in flight by the scoreboard; duplicate ACKs stand for SACKs where there are none (RFC 6582).
    #[must_use]
    pub fn pipe(&self) -> u64 {
        let dup = if self.sack_permitted { 0 } else { u64::from(self.dup_acks) * u64::from(self.mss) };
        self.board.pipe().saturating_sub(dup)
    }
    /// Right edge of the receiver's window.
    #[must_use]
    pub fn window_edge(&self) -> SeqNum {
        self.snd_una + u32::try_from(self.window_bytes).unwrap_or(u32::MAX >> 1).min(u32::MAX >> 1)
    }
    /// The sequence number of a segment without payload that the receiver accepts: SND.NXT, or the right edge of a window
    /// that has shrunk below it (Linux tcp_acceptable_seq).
    #[must_use]
    pub fn acceptable_seq(&self) -> SeqNum {
        if self.window_max_bytes == 0 { self.snd_nxt } else { self.snd_nxt.min(self.window_edge()) }
    }
    /// The receiver's window in bytes.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.window_bytes
    }
    /// The largest window it has shown (MAX.SND.WND of RFC 5961).
    #[must_use]
    pub fn window_max_bytes(&self) -> u64 {
        self.window_max_bytes
    }
    /// Payload that the receiver has acknowledged, by ACK or SACK, bytes.
    #[must_use]
    pub fn delivered_bytes(&self) -> u64 {
        self.rate.delivered_bytes()
    }
    /// Memory beside the struct itself, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.board.memory_bytes() + size_of::<Controller>()
    }

    /// `plan` may have something, or a timer to set.
    #[must_use]
    pub fn is_ready(&self, now: Instant, supply: &Supply) -> bool {
        if self.asks_link() || self.probe_wanted || self.window_probe_wanted || self.urgent_notice_wanted {
            return true;
        }
        let lost = self.board.lost_bytes() > 0;
        let waits = self.silence.waits(self.mss) && !self.blind.on;
        if waits || (!lost && !self.has_new(supply)) {
            return false;
        }
        let paced = self.timers.pace.is_some_and(|t| t > now);
        let closed = !lost && self.timers.persist.is_some();
        !paced && !closed
    }

    /// Its turn comes so long after it was ready.
    pub fn wait_for_turn(&mut self, waited: Duration) {
        self.pacer.wait_for_turn(waited);
    }

    /// What may be sent now, at most `budget` payload bytes in a super-segment (at least one MSS). Sets the pacing and
    /// persist timers when it is time, not the window, that stands in the way.
    pub fn plan(&mut self, now: Instant, supply: &Supply, budget: u32) -> Option<Plan> {
        self.timers.pace = None;
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
        if self.silence.waits(self.mss) && !self.blind.on {
            return None;
        }
        let room = self.window_room();
        let mss = self.mss.max(1);
        let budget = if self.silence.asks() && !self.blind.on { mss } else { budget };
        let paced = self.pacing_rate();
        let has_lost = self.board.lost_bytes() > 0;
        if (has_lost || self.has_new(supply))
            && paced.is_some()
            && let Some(at) = self.pacer.wait_until(now)
        {
            self.timers.pace = Some(at);
            return None;
        }
        let burst = paced.map_or(SUPER_SEGMENT_BYTES, |rate| self.pacer.burst_bytes(rate, mss));
        let max = (budget.min(burst).min(SUPER_SEGMENT_BYTES) / mss).max(1) * mss;
        if has_lost {
            // The oldest segment goes out at a timeout whatever counts as under way still (RFC 6298 5.4): the window of one segment
            // that a controller leaves then would be full of what was sent last.
            let room = if self.head_due { room.max(u64::from(mss)) } else { room };
            if room == 0 {
                return None;
            }
            if let Some(plan) = self.plan_mtu_probe(supply, room) {
                return Some(plan);
            }
            let (seq, len) = self.board.next_lost(max.min(round_up(room, mss)))?;
            let len = self.within_urgent(supply, seq, len);
            return Some(self.with_fin(seq, len, supply, Purpose::Retransmit));
        }
        if let Some(plan) = self.plan_mtu_probe(supply, room) {
            return Some(plan);
        }
        self.plan_new(now, supply, max, room)
    }

    /// The end of urgent data has become known: a receiver whose window is closed hears of it all the same.
    pub fn announce_urgent(&mut self) {
        self.urgent_notice_wanted = true;
    }

    fn plan_probe(&mut self, supply: &Supply) -> Option<Plan> {
        if self.urgent_notice_wanted {
            self.urgent_notice_wanted = false;
            // Not with an old sequence number: such a segment is dropped before its urgent pointer is read. It draws
            // no acknowledgement, so the probe follows, as in Linux tcp_write_wakeup.
            if supply.urgent_end.is_some() && self.receiver_room(supply) == 0 {
                return Some(Plan {
                    seq: self.snd_nxt,
                    len: 0,
                    fin: false,
                    purpose: Purpose::WindowProbe,
                    mtu_probe: false,
                });
            }
        }
        if self.window_probe_wanted {
            self.window_probe_wanted = false;
            return Some(self.plan_window_probe());
        }
        if self.probe_wanted {
            self.probe_wanted = false;
            let room = self.receiver_room(supply);
            if room == 0
                && let Some(last) = self.board.last().copied()
                && !last.sacked
            {
                let total = last.end.since(last.seq);
                let len = total.min(self.mss);
                return Some(self.with_fin(last.end - len, len, supply, Purpose::TailProbe));
            }
            // New data is the better probe (RFC 8985 7.3); it may exceed the congestion window by one segment.
            if room > 0 {
                let len = room.min(self.mss);
                return Some(self.with_fin(self.snd_nxt, len, supply, Purpose::New));
            }
        }
        None
    }

    fn plan_window_probe(&self) -> Plan {
        Plan { seq: self.snd_una - 1, len: 0, fin: false, purpose: Purpose::WindowProbe, mtu_probe: false }
    }

    fn plan_new(&mut self, now: Instant, supply: &Supply, max: u32, room: u64) -> Option<Plan> {
        let mss = self.mss.max(1);
        let have = self.unsent(supply);
        if have == 0 {
            if !self.board.is_empty() || supply.end != self.snd_nxt {
                return None;
            }
            self.cwnd_limited = false;
            return None;
        }
        let window = self.receiver_room(supply);
        let idle = self.board.is_empty();
        if window == 0 || self.board.is_full() {
            if idle {
                self.arm_persist(now);
            }
            self.cwnd_limited = false;
            return None;
        }
        // A small window is worth a segment only if nothing is in flight (sender SWS avoidance, RFC 9293 3.8.6.2.1).
        if window < have && window < mss {
            if !idle {
                return None;
            }
            if self.window_max_bytes / 2 > u64::from(window) && self.persist_backoff == 0 {
                self.arm_persist(now);
                return None;
            }
        }
        if room == 0 || (room < u64::from(mss.min(have)) && !idle) {
            self.cwnd_limited = true;
            self.cwnd_stop = Some(self.snd_nxt);
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
        let len = self.within_urgent(supply, self.snd_nxt, len);
        Some(self.with_fin(self.snd_nxt, len, supply, Purpose::New))
    }

    /// `len` from `seq` on, cut so that urgent data never leaves in a super-segment, and that a
    /// segment begins where one with an urgent pointer of 0 did.
    fn within_urgent(&self, supply: &Supply, seq: SeqNum, len: u32) -> u32 {
        let mss = self.mss.max(1);
        let urgent = supply.urgent_until.is_some_and(|end| seq.before(end));
        let len = if urgent { len.min(mss) } else { len };
        match supply.urgent_zero {
            Some(at) if at.after(seq) => len.min(at.since(seq)),
            Some(at) if at == seq => len.min(mss),
            _ => len,
        }
    }

    fn with_fin(&self, seq: SeqNum, len: u32, supply: &Supply, purpose: Purpose) -> Plan {
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
        let end = supply.end + u32::from(supply.fin);
        if end.after(self.snd_nxt) { end.since(self.snd_nxt) } else { 0 }
    }

    /// There is something new to send.
    #[must_use]
    pub fn has_new(&self, supply: &Supply) -> bool {
        self.unsent(supply) > 0
    }

    fn pushed(&self, supply: &Supply) -> bool {
        supply.fin || supply.push.after_eq(supply.end) || supply.urgent_end.is_some()
    }

    /// What the receiver's window leaves for new data. A FIN may go into a full window's edge as Linux sends it.
    fn receiver_room(&self, supply: &Supply) -> u32 {
        let edge = self.window_edge();
        let room = if edge.after(self.snd_nxt) { edge.since(self.snd_nxt) } else { 0 };
        let have = self.unsent(supply);
        if self.blind.on {
            // Its window moves with what it takes; the word of it goes round us.
            return have;
        }
        if supply.fin && have == 1 && room == 0 && self.window_max_bytes > 0 { 1 } else { room.min(have) }
    }

    /// What the congestion window leaves, bytes.
    fn window_room(&self) -> u64 {
        if self.blind.on {
            return u64::from(SUPER_SEGMENT_BYTES);
        }
        match &self.recovery {
            Recovery::Fast { prr, .. } if self.cc.uses_prr() => prr.allowance(),
            _ => self.cc.cwnd_bytes().saturating_sub(self.pipe()),
        }
    }

    /// The rate that it is paced at, bit/s; `None` where it is not.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<u64> {
        if self.blind.on {
            return self.blind_rate();
        }
        let srtt = self.rtt.srtt().or(self.start_paced_over);
        if self.cc.relies_on_pacing() || Pacer::applies(srtt) {
            self.cc.pacing_rate_bps(srtt.unwrap_or_default()).filter(|r| *r > 0)
        } else {
            None
        }
    }

    fn then(&self, in_flight_bytes: u64) -> Then {
        self.rate.then(self.board.lost_ever_bytes(), in_flight_bytes)
    }

    /// The source has more after it had run out, and neither window nor pacing would have held that back: what is sent now
    /// does not show what the path can do (CheckIfApplicationLimited of draft-ietf-ccwg-bbr).
    fn note_supply(&mut self, now: Instant, supply: &Supply) {
        if !self.dry || !self.has_new(supply) {
            return;
        }
        self.dry = false;
        let free = self.pipe() + u64::from(self.mss) <= self.cc.cwnd_bytes();
        if free && self.board.lost_bytes() == 0 && self.pacer.wait_until(now).is_none() {
            self.rate.mark_app_limited(self.board.pipe());
        }
    }

    /// The planned segment has been sent.
    pub fn on_sent(&mut self, now: Instant, plan: &Plan) {
        self.asked_at = now;
        if plan.purpose == Purpose::Early {
            self.on_sent_early(now, plan);
            return;
        }
        let len = plan.len + u32::from(plan.fin);
        if let Some(rate) = self.pacing_rate() {
            self.pacer.on_sent(now, u64::from(len), rate);
        }
        match plan.purpose {
            Purpose::WindowProbe | Purpose::Early => return,
            Purpose::New => self.on_sent_new(now, plan, len),
            Purpose::Retransmit | Purpose::TailProbe => {
                self.head_due = false;
                // A tail probe is in flight already.
                let again = if plan.purpose == Purpose::Retransmit { u64::from(len) } else { 0 };
                let then = self.then(self.board.pipe() + again);
                self.board.resent(now, plan.seq, len, self.mss, then);
            }
        }
        if plan.mtu_probe {
            self.mtu.sent(plan.seq, plan.seq + len);
        }
        if let Recovery::Fast { prr, .. } = &mut self.recovery {
            prr.on_sent(u64::from(len));
        }
        self.last_sent_at = now;
        self.silence.asked_bytes = self.silence.asked_bytes.saturating_add(len);
        self.early_after_sending(now, self.tail_after && !self.silence.asks());
        self.cc.on_sent(now, u64::from(len), self.board.pipe(), self.rate.is_app_limited());
        self.dry = plan.purpose == Purpose::New && self.dry_after;
        if plan.purpose == Purpose::TailProbe {
            self.timers.rto = Some(now + self.rto());
        } else if plan.purpose == Purpose::New {
            self.arm_probe(now);
        }
        if self.timers.rto.is_none() {
            self.timers.rto = Some(now + self.rto());
        }
        self.hold_timer_while_blind(now);
    }

    fn on_sent_new(&mut self, now: Instant, plan: &Plan, len: u32) {
        if self.board.is_empty() {
            self.rate.restart(now);
            self.progress_at = now;
            let idle = now.since(self.last_sent_at);
            let rto = self.rto();
            if idle > rto {
                self.cc.on_idle_restart(now, idle, rto);
            }
        }
        let end = plan.seq + len;
        let then = self.then(self.board.pipe() + u64::from(len));
        self.board.push(Sent {
            seq: plan.seq,
            end,
            unit_bytes: self.mss,
            unit_from: plan.seq,
            fin: plan.fin,
            sent_at: now,
            then,
            sacked: false,
            lost: false,
            retransmitted: false,
            original_at: now,
            repeats: 0,
            copies: 0,
            copied_at: None,
        });
        self.snd_nxt = end;
        self.timers.persist = None;
        self.persist_backoff = 0;
    }

    /// The receiver holds everything before `upto`, part of which was never sent from here.
    pub fn skip_to(&mut self, now: Instant, upto: SeqNum) {
        let edge = self.window_edge();
        self.board.clear();
        self.snd_una = upto;
        self.snd_nxt = upto;
        self.cwnd_stop = None;
        self.window_bytes = u64::from(if edge.after(upto) { edge.since(upto) } else { 0 });
        self.recovery = Recovery::Open;
        self.dup_acks = 0;
        self.progress_at = now;
        self.silence = Silence::default();
        self.blind = Blind::default();
        self.link_question = None;
        self.head_due = false;
        self.mtu.forget();
        self.timers = SenderTimers::default();
    }
}

fn round_up(room: u64, mss: u32) -> u32 {
    let mss = u64::from(mss);
    u32::try_from(room.div_ceil(mss) * mss).unwrap_or(u32::MAX)
}
