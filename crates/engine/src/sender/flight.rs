//! What is under way: the segments that left and are not acknowledged, what they tell of the path,
//! and which of them are lost.

use farlink_cc::Lost;
use farlink_wire::{Duration, Instant, SackBlock, SeqNum};

use crate::anew::Anew;
use crate::bookmark::{Bookmark, bookmarks};
use crate::checked::{Checked, all_hold};
use crate::rate::{RateSample, RateSampler};
use crate::recovery::{DUP_THRESH, Rack};
use crate::rtt::{RttEstimator, micros};
use crate::scoreboard::{Acked, Scoreboard, Sent, Then};

use super::RtoBounds;
use super::boundary::Steps;
use super::departures::{Departed, Departures};

/// A receiver tells of what came twice within a window of where it stands, bytes.
const COPIES_REMEMBERED: i32 = 1 << 30;

/// Moments at which something left are nearer to each other than this part of a round trip (one
/// over it) where they count as one.
const DEPARTURES_APART_PARTS: u32 = 64;

/// What an acknowledgement tells beside what it covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// More is acknowledged without a gap.
    pub advanced: bool,
    /// What it acknowledges went another way than segments do now, or the path was another one.
    pub of_old_path: bool,
    /// So much of its round trip is the time that the packet took.
    pub took: Duration,
}

/// What is under way on a leg.
#[derive(Debug)]
pub(super) struct Flight {
    /// SND.UNA: the oldest unacknowledged sequence number.
    una: SeqNum,
    /// SND.NXT: the next new one.
    next: SeqNum,
    /// Segments that follow each other may be this large, options deducted.
    mss: u32,
    /// SACK may be used on this leg.
    sack_permitted: bool,
    /// A gateway is heard on this leg.
    gateway: bool,
    board: Scoreboard,
    /// What was sent to a gateway left then.
    departures: Option<Box<Departures>>,
    rtt: RttEstimator,
    /// The bounds of the RTO, microseconds.
    rto_bounds_us: [u32; 2],
    /// RTT of the link as its owner has declared it.
    declared_rtt: Option<Duration>,
    rack: Rack,
    rate: RateSampler,
    dup_acks: u32,
    /// Without SACK: bytes that duplicate ACKs have shown to be delivered, before an ACK covers
    /// them (RFC 9937 DeliveredData).
    dup_credit_bytes: u64,
    /// What a receiver had no room for is sent again without being missed one by one.
    repeats_many: bool,
    /// A timeout has passed, and the oldest segment has not gone out again since.
    head_due: bool,
    /// No copy sent on purpose reaches beyond this; `None`: there has been none.
    copied_end: Bookmark,
    /// Bytes of all such copies, as far as they can be counted.
    copied_bytes: u32,
    last_sent_at: Instant,
    /// Last time that something was acknowledged, or nothing was outstanding.
    progress_at: Instant,
    /// When the leg was led another way: what was sent before teaches nothing about this one.
    moved_at: Option<Instant>,
    /// What stands before this was sent before or during an outage.
    outage_until: Bookmark,
    /// Whether the path becomes another one at once.
    pub(super) steps: Option<Box<Steps>>,
}

bookmarks!(Flight { board, rack, copied_end, outage_until });

impl Flight {
    /// Nothing is under way, and the next byte is `next`.
    pub fn new(now: Instant, next: SeqNum, mss: u32, sack_permitted: bool, rto_bounds: RtoBounds) -> Self {
        Self {
            una: next,
            next,
            mss,
            sack_permitted,
            gateway: false,
            board: Scoreboard::default(),
            departures: None,
            rtt: RttEstimator::default(),
            rto_bounds_us: [rto_bounds.min, rto_bounds.max].map(micros),
            declared_rtt: None,
            rack: Rack::default(),
            rate: RateSampler::default(),
            dup_acks: 0,
            dup_credit_bytes: 0,
            repeats_many: false,
            head_due: false,
            copied_end: Bookmark::NONE,
            copied_bytes: 0,
            last_sent_at: now,
            progress_at: now,
            moved_at: None,
            outage_until: Bookmark::NONE,
            steps: None,
        }
    }

    /// SND.UNA.
    pub fn una(&self) -> SeqNum {
        self.una
    }
    /// SND.NXT.
    pub fn next(&self) -> SeqNum {
        self.next
    }
    /// Payload of a segment, bytes; never 0.
    pub fn mss(&self) -> u32 {
        self.mss.max(1)
    }
    /// SACK may be used.
    pub fn has_sack(&self) -> bool {
        self.sack_permitted
    }
    /// The records.
    pub fn board(&self) -> &Scoreboard {
        &self.board
    }
    /// Nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.board.is_empty()
    }
    /// Bytes in flight by the scoreboard; duplicate ACKs stand for SACKs where there are none (RFC
    /// 6582).
    pub fn pipe(&self) -> u64 {
        let dup = if self.sack_permitted { 0 } else { u64::from(self.dup_acks) * u64::from(self.mss) };
        self.board.pipe().saturating_sub(dup)
    }
    /// The same in recovery, where each duplicate has been counted when it came.
    pub fn pipe_in_recovery(&self) -> u64 {
        self.board.pipe().saturating_sub(self.dup_credit_bytes)
    }
    /// Bytes that have left and are not acknowledged, lost ones included.
    pub fn in_flight_bytes(&self) -> u64 {
        self.board.pipe() + self.board.lost_bytes()
    }
    /// Something waits to be sent again.
    pub fn has_lost(&self) -> bool {
        self.board.lost_bytes() > 0
    }
    /// The receiver holds something behind a gap.
    pub fn has_gap(&self) -> bool {
        self.board.sacked_bytes() > 0 || self.dup_acks > 0
    }
    /// A timeout has passed, and the oldest segment has not gone out again since.
    pub fn is_head_due(&self) -> bool {
        self.head_due
    }
    /// A single segment is under way, not a few small ones.
    pub fn is_one_segment(&self) -> bool {
        let ends = (self.board.first().map(|r| r.seq), self.board.last().map(|r| r.seq));
        self.board.pipe() <= u64::from(self.mss) && ends.0 == ends.1
    }
    /// Round trips of the leg.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }
    /// The retransmission timeout, backed off as it is; `over_lossy_link`: over one of our own that
    /// loses whole bursts.
    pub fn rto(&self, over_lossy_link: bool) -> Duration {
        let RtoBounds { min, max } = self.rto_bounds();
        if over_lossy_link { self.rtt.rto_over_own_link(min, max) } else { self.rtt.rto(min, max) }
    }
    /// So much of it is for the time that a first segment may take.
    pub fn rto_guessed(&self) -> Duration {
        self.rtt.guessed(self.rto_bounds().min)
    }
    /// Full segments of others have been seen to take no more than that.
    pub fn note_segment_took(&mut self, most: Option<Duration>) {
        self.rtt.note_segment_took(most);
    }
    /// Its bounds.
    pub fn rto_bounds(&self) -> RtoBounds {
        let [min, max] = self.rto_bounds_us.map(|us| Duration::from_micros(us.into()));
        RtoBounds { min, max }
    }
    /// The RTT as measured, or declared, or as the handshake took it.
    pub fn known_rtt(&self) -> Option<Duration> {
        self.rtt.srtt().or(self.declared_rtt).or(self.rtt.expected())
    }
    /// The smallest that has been measured, or what is declared.
    pub fn shortest_rtt(&self) -> Option<Duration> {
        Some(self.rtt.min_rtt()).filter(|rtt| !rtt.is_zero()).or(self.declared_rtt)
    }
    /// Payload that the receiver has acknowledged, by ACK or SACK, bytes.
    pub fn delivered_bytes(&self) -> u64 {
        self.rate.delivered_bytes()
    }
    /// Bytes that were sent a second time on purpose.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.into()
    }
    /// What is sent now shows what the source has, not what the path can do.
    pub fn is_app_limited(&self) -> bool {
        self.rate.is_app_limited()
    }
    /// Last time that something was acknowledged, or nothing was outstanding.
    pub fn progress_at(&self) -> Instant {
        self.progress_at
    }
    /// Whether the newest segment that is acknowledged, sent then, went another way than segments
    /// do now.
    pub fn is_of_old_way(&self, sent_at: Option<Instant>) -> bool {
        self.moved_at.is_some_and(|moved| sent_at.is_some_and(|at| at < moved))
    }
    /// What is acknowledged now was sent before or during an outage.
    pub fn is_after_outage(&self) -> bool {
        self.outage_until.is_some()
    }

    /// Losses are kept for a controller that wants to know them.
    pub fn keep_losses(&mut self) {
        self.board.keep_losses();
    }
    /// A gateway is heard on this leg, or not. It tells what it holds above a gap in its own
    /// option, whatever the hosts have agreed on.
    pub fn note_gateway(&mut self, heard: bool, hosts_use_sack: bool) {
        if self.gateway && !heard && self.is_head_kept() {
            self.board.forget_sacks();
        }
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
    /// A gateway keeps the oldest segment for its far host, which has not acknowledged it.
    pub fn is_head_kept(&self) -> bool {
        self.gateway && self.board.first().is_some_and(|r| r.sacked)
    }
    /// It is asked by that segment whether it still does.
    pub fn doubt_head(&mut self) {
        if self.is_head_kept() {
            self.board.doubt_head(self.mss);
            self.head_due = true;
        }
    }
    /// The owner of the link has declared its RTT.
    pub fn declare_rtt(&mut self, rtt: Option<Duration>) {
        self.declared_rtt = rtt;
    }
    /// Before the first sample this RTT is expected.
    pub fn expect_rtt(&mut self, rtt: Option<Duration>, is_certain: bool) {
        self.rtt.expect(rtt, is_certain);
    }
    /// The handshake repeated a SYN.
    pub fn note_repeated_syns(&mut self) {
        self.rtt.note_repeated_syns();
    }
    /// An RTT that is known from elsewhere.
    pub fn sample_rtt(&mut self, rtt: Duration) {
        self.rtt.sample(rtt, Duration::ZERO);
    }
    /// Segments are so large from now on.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
    }
    /// Such with more payload are larger than a packet.
    pub fn set_packet(&mut self, bytes: u32) {
        self.board.set_packet(bytes);
    }
    /// The source or the controller holds back more than the path would.
    pub fn mark_app_limited(&mut self) {
        self.rate.mark_app_limited(self.board.pipe());
    }

    /// Sending begins anew if nothing is under way: for how long nothing was sent.
    pub fn end_idle(&mut self, now: Instant) -> Option<Duration> {
        if !self.board.is_empty() {
            return None;
        }
        self.rate.restart(now);
        self.progress_at = now;
        Some(now.since(self.last_sent_at))
    }
    /// A new segment, or several, from SND.NXT on.
    pub fn on_sent_new(&mut self, now: Instant, seq: SeqNum, len: u32, fin: bool) {
        let then = self.then(self.board.pipe() + u64::from(len));
        self.note_departure(now, seq, seq + len);
        self.board.push(Sent {
            seq,
            end: seq + len,
            unit_bytes: self.mss,
            unit_from: seq,
            fin,
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
        self.next = seq + len;
        self.last_sent_at = now;
    }
    /// A repetition; `lost`: of what was taken for lost, so that it is in flight again.
    pub fn on_sent_again(&mut self, now: Instant, seq: SeqNum, len: u32, lost: bool) {
        self.head_due = false;
        if self.board.pipe() == 0 {
            // Nothing is under way: how long it has taken until now is not the rate of the path
            // (draft-ietf-ccwg-bbr 4.1.2.2).
            self.rate.restart(now);
        }
        let again = if lost { u64::from(len) } else { 0 };
        let then = self.then(self.board.pipe() + again);
        self.board.resent(now, seq, len, self.mss, then);
        self.last_sent_at = now;
    }
    /// A copy of what is in flight. Returns whether that is a repetition itself.
    pub fn on_sent_copy(&mut self, now: Instant, seq: SeqNum, len: u32) -> bool {
        self.note_copy(seq + len);
        self.copied_bytes = self.copied_bytes.saturating_add(len);
        self.board.copied(now, seq, len)
    }
    /// What is told twice up to here was sent twice on purpose.
    pub fn note_copy(&mut self, end: SeqNum) {
        *self.copied_end = Some(self.copied_end.map_or(end, |before| before.max(end)));
    }
    fn note_departure(&mut self, now: Instant, begin: SeqNum, end: SeqNum) {
        if self.board.is_empty() || !self.gateway {
            self.departures = None;
        }
        if self.gateway {
            let apart = self.rtt.min_rtt() / DEPARTURES_APART_PARTS;
            self.departures.get_or_insert_default().note(now, begin, end, apart);
        }
    }
    /// When the byte before this left; `None`: that was too long ago, or not to a gateway.
    pub fn departed(&self, end: SeqNum) -> Option<Departed> {
        self.departures.as_ref()?.of(end)
    }
    /// Memory of departures and of boundaries, bytes.
    pub fn memory_bytes(&self) -> usize {
        let steps = self.steps.as_ref().map_or(0, |_| size_of::<Steps>());
        steps + self.departures.as_ref().map_or(0, |d| size_of::<Departures>() + d.memory_bytes())
    }
    fn then(&self, in_flight_bytes: u64) -> Then {
        self.rate.then(self.board.lost_ever_bytes(), in_flight_bytes)
    }

    /// An acknowledgement may tell what came twice. What was sent twice on purpose is told twice,
    /// too. Returns how many bytes did.
    pub fn note_dsack(&mut self, ack: SeqNum, sack: &[SackBlock]) -> u64 {
        let told = sack.first().filter(|b| b.start.before(ack) && b.start.before(b.end));
        let Some(twice) = told else { return 0 };
        if self.copied_end.is_none_or(|end| twice.end.after(end)) {
            self.rack.on_dsack(self.una, self.next);
        }
        u64::from(twice.end.since(twice.start))
    }
    /// What an acknowledgement covers is under way no longer.
    pub fn acknowledge(&mut self, now: Instant, ack: SeqNum, sack: &[SackBlock]) -> Acked {
        let unknown = self.rtt.srtt().is_none();
        let expected = self.declared_rtt.or(self.rtt.expected()).filter(|_| unknown);
        self.board.set_min_rtt(expected.unwrap_or(self.rtt.min_rtt()));
        self.board.acknowledge(now, ack, sack)
    }
    /// Everything before `ack` has arrived.
    pub fn advance(&mut self, now: Instant, ack: SeqNum) {
        self.head_due = false;
        self.una = ack;
        // It is not remembered until the numbers have wrapped.
        *self.copied_end = self.copied_end.filter(|end| ack.diff(*end) < COPIES_REMEMBERED);
        self.progress_at = now;
        self.rack.on_progress(ack);
    }
    /// The path is another one from now on, without a change of ways: what was sent before teaches
    /// nothing.
    pub fn begin_phase(&mut self, now: Instant) {
        let steps = self.steps.get_or_insert_default();
        steps.anew = Some(Anew::begin(now, self.rtt.min_rtt()));
        steps.phase_at = Some(now);
    }
    /// A round trip of it took so long. Returns the smallest one once that is known.
    pub fn settle_phase(&mut self, now: Instant, rtt: Duration) -> Option<Duration> {
        let steps = self.steps.as_mut()?;
        let min_rtt = steps.anew.as_mut()?.note(now, rtt)?;
        steps.anew = None;
        let before = self.rtt.soonest();
        steps.smallest = Some(steps.smallest.map_or(before, |smallest| smallest.min(before)));
        self.rtt.set_min_rtt(min_rtt);
        Some(min_rtt)
    }
    /// No answer comes sooner than that, whatever the path has become since: what was taken for
    /// another path may have been a queue. Zero before the first sample.
    pub fn soonest(&self) -> Duration {
        let smallest = self.steps.as_ref().and_then(|steps| steps.smallest);
        smallest.map_or(self.rtt.soonest(), |smallest| smallest.min(self.rtt.soonest()))
    }
    /// Whether the newest segment that is acknowledged, sent then, left before the path became what
    /// it is.
    pub fn is_of_old_phase(&self, sent_at: Option<Instant>) -> bool {
        let phase_at = self.steps.as_ref().and_then(|steps| steps.phase_at);
        phase_at.is_some_and(|at| sent_at.is_some_and(|sent_at| sent_at < at))
    }
    /// Whether the answer to a segment, which took so long, shows that. Without SACK what a gap
    /// holds back comes late, too.
    pub fn meets_boundary(&mut self, now: Instant, rtt: Duration) -> bool {
        let shortest = self.rtt.min_rtt();
        self.sack_permitted
            && !self.is_after_outage()
            && self.steps.get_or_insert_default().meets_boundary(now, rtt, shortest)
    }
    /// What an acknowledgement tells of the path: its round trip, and whether it keeps the order.
    /// How long an outage took is no round trip, though nothing was sent twice meanwhile.
    /// `keeps_backoff`: a queue may be longer than the timeout, so that only a round trip that is
    /// certain ends what has been backed off (RFC 6298 section 5.7).
    pub fn measure(&mut self, now: Instant, acked: &Acked, told: Told, keeps_backoff: bool) {
        let Told { advanced, of_old_path, took } = told;
        if let Some(rtt) = acked.rtt.filter(|_| !of_old_path && !self.is_after_outage()) {
            self.rtt.sample(rtt, took);
        } else if advanced && !keeps_backoff {
            self.rtt.reset_backoff();
        }
        let min_rtt = self.rtt.min_rtt();
        let is_again = acked.newest.is_some_and(|(.., again)| again);
        self.rack.update(now, acked, if is_again { self.soonest() } else { Duration::ZERO });
        if self.gateway {
            self.rack.measure_reordering(now, acked, min_rtt, self.rtt.srtt_or_default());
        }
    }
    /// An answer to a segment that had been sent again once, which cannot be for the repetition:
    /// how long the original took. `took`: so long a segment takes into the link, if the rate is
    /// right. It is believed once: the path may have become shorter.
    pub fn answered_too_soon(&self, acked: &Acked, took: Duration) -> Option<Duration> {
        let (again, first) = acked.repeated_once.filter(|_| !self.rtt.was_too_soon())?;
        // Behind no link all that was measured may have stood in a queue that has gone since.
        let of_link = self.declared_rtt.or(self.rtt.expected())?;
        let empty = self.rtt.min_without_packet().map_or(of_link, |min| min.min(of_link));
        (again < empty / 4 * 3 + took / 2).then_some(first)
    }
    /// That was so: timers go by it.
    pub fn note_too_soon(&mut self, rtt: Duration) {
        if !self.is_after_outage() && rtt <= self.rto_bounds().max {
            self.rtt.sample(rtt, Duration::ZERO);
        }
        self.rtt.note_too_soon();
    }
    /// The acknowledgement waited so long on its way back.
    pub fn note_waited(&mut self, rtt: Duration, waited: Duration) {
        self.rtt.note_waited(rtt, waited);
    }
    /// What it tells of the rate.
    pub fn sample_rate(&mut self, now: Instant, acked: &Acked) -> RateSample {
        self.rate.on_ack(now, acked, self.board.lost_ever_bytes(), self.rtt.min_rtt())
    }
    /// Returns whether this is a duplicate.
    pub fn count_duplicates(&mut self, advanced: bool, pure: bool, sacked_bytes: u64) -> bool {
        if advanced {
            self.dup_acks = 0;
            return false;
        }
        let duplicate = sacked_bytes > 0 || pure;
        if duplicate {
            self.dup_acks = self.dup_acks.saturating_add(1).min(10_000);
        }
        duplicate
    }
    /// Bytes that an acknowledgement shows to be delivered. Without SACK a duplicate stands for a
    /// segment, in fast recovery, which the acknowledgement that covers it does not count again
    /// (RFC 9937 section 5).
    pub fn credit(&mut self, acked_bytes: u64, advanced: bool, duplicate_in_recovery: bool) -> u64 {
        if self.sack_permitted {
            acked_bytes
        } else if advanced {
            let known = self.dup_credit_bytes.min(acked_bytes);
            self.dup_credit_bytes -= known;
            acked_bytes - known
        } else if duplicate_in_recovery {
            self.dup_credit_bytes += u64::from(self.mss);
            u64::from(self.mss)
        } else {
            0
        }
    }

    /// Marks what is lost by now. Returns its bytes and when to look again; `None`: nothing could
    /// have been found. `is_open`: no recovery is under way; `partial`: what is acknowledged is
    /// part of one.
    pub fn detect_losses(
        &mut self,
        now: Instant,
        partial: bool,
        is_open: bool,
    ) -> Option<(u64, Option<Instant>)> {
        if self.board.is_empty() {
            return None;
        }
        if !self.sack_permitted {
            return Some((self.detect_without_sack(now, partial, is_open), None));
        }
        if self.board.sacked_bytes() == 0 && is_open {
            return None;
        }
        let segments = self.board.sacked_bytes() / u64::from(self.mss());
        let srtt = self.rtt.srtt_or_default();
        let reo = if self.gateway {
            self.rack.measured_reo_wnd(now, srtt)
        } else {
            self.rack.reo_wnd(!is_open, segments, self.rtt.min_rtt(), srtt)
        };
        Some(self.rack.detect(now, &mut self.board, reo))
    }
    /// NewReno: the third duplicate, or a partial acknowledgement, means that the head is lost (RFC
    /// 6582). The duplicates are of what follows it; behind a partial acknowledgement nothing is
    /// known of the rest of its segment.
    ///
    /// Behind what had no room a window of a gap is sent again at once, and is on its way when
    /// that is acknowledged. So what left less than a round trip ago is not missing yet, and what
    /// left before then is, if duplicates come.
    fn detect_without_sack(&mut self, now: Instant, partial: bool, is_open: bool) -> u64 {
        let Some(head) = self.board.first() else { return 0 };
        let many = self.dup_acks >= DUP_THRESH;
        // One that was larger than they are now is lost whole.
        let segment = self.mss.max(head.unit_bytes);
        let len = if is_open {
            if many { head.end.since(head.seq).min(segment) } else { 0 }
        } else if self.repeats_many && head.repeats > 0 {
            let may_have_come = now.since(head.sent_at) >= self.rtt.min_rtt();
            if many && may_have_come { segment } else { 0 }
        } else if partial {
            segment
        } else {
            0
        };
        self.board.mark_head_lost(len)
    }
    /// The head, and what was sent long enough ago (RFC 8985 6.3).
    pub fn mark_lost_by_timeout(&mut self, now: Instant) {
        let head = self.board.first().map(|r| r.seq);
        let reo = self.rack.reo_wnd(true, 0, self.rtt.min_rtt(), self.rtt.srtt_or_default());
        let rack = self.rack;
        // Without SACK nothing tells what has arrived behind the head: all of it is sent again (RFC
        // 5681 section 3.1).
        let all = !self.sack_permitted;
        self.board.mark_lost(|r| all || Some(r.seq) == head || rack.overdue(now, r.sent_at, reo));
    }
    /// A timeout: a receiver that has told of the head holds it no longer.
    pub fn on_rto(&mut self, now: Instant) {
        if self.board.first().is_some_and(|r| r.sacked) {
            self.board.forget_sacks();
        }
        self.mark_lost_by_timeout(now);
        self.head_due = true;
        self.dup_acks = 0;
        self.rtt.back_off();
    }
    /// What was taken for lost since this was last asked, as a controller hears of it.
    pub fn take_losses(&mut self, now: Instant) -> impl Iterator<Item = Lost> + '_ {
        let delivered_bytes = self.rate.delivered_bytes();
        let mut before = None;
        self.board.take_losses().map(move |loss| Lost {
            now,
            bytes: u64::from(loss.end.since(loss.seq)),
            segments: loss.end.since(loss.seq).div_ceil(loss.unit_bytes.max(1)).into(),
            tx_in_flight_bytes: loss.then.in_flight_bytes,
            lost_since_sent_bytes: loss.lost_ever_bytes.saturating_sub(loss.then.lost_bytes),
            app_limited: loss.then.app_limited,
            continues: before.replace(loss.end) == Some(loss.seq),
            delivered_bytes,
        })
    }
    /// What was found lost is nothing that a controller should hear of.
    pub fn forget_losses(&mut self) {
        self.board.take_losses().for_each(drop);
    }
    /// What an outage has lost says nothing of how lossy the leg is.
    pub fn lost_by_leg(&mut self, lost_bytes: u64) -> u64 {
        *self.outage_until = self.outage_until.filter(|until| self.una.before(*until));
        if self.outage_until.is_some() { 0 } else { lost_bytes }
    }

    /// Fast recovery begins: duplicates that have come count as delivered.
    pub fn enter_recovery(&mut self) {
        self.dup_credit_bytes = u64::from(self.dup_acks) * u64::from(self.mss);
    }
    /// Fast recovery ends.
    pub fn leave_recovery(&mut self) {
        self.rack.on_recovery_exit();
        self.dup_acks = 0;
    }

    /// What is sent again next, at most so many bytes.
    pub fn next_lost(&mut self, max_bytes: u32) -> Option<(SeqNum, u32)> {
        self.board.next_lost(max_bytes)
    }
    /// The oldest segment counts as lost.
    pub fn mark_head_lost(&mut self) {
        self.board.mark_head_lost(self.mss);
    }
    /// The oldest segment goes out whatever counts as under way.
    pub fn hasten_head(&mut self) {
        self.head_due = true;
    }
    /// All that is not SACKed counts as lost.
    pub fn resend_all(&mut self) {
        self.board.resend_all();
    }
    /// The same of what left in segments of more payload than this.
    pub fn resend_larger(&mut self, bytes: u32) {
        self.board.resend_larger(bytes);
    }
    /// What left before this counts as lost, but for what is SACKed.
    pub fn mark_sent_before(&mut self, at: Instant) {
        self.board.mark_lost(|r| r.sent_at < at);
    }
    /// See the field.
    pub fn repeat_many(&mut self, on: bool) {
        self.repeats_many = on;
    }
    /// What ends beyond this counts as lost where it is said to be, but for what is SACKed.
    /// Returns how many bytes.
    pub fn mark_beyond(&mut self, edge: SeqNum, is_lost: impl Fn(&Sent) -> bool) -> u64 {
        self.board.mark_lost_beyond(edge, is_lost)
    }
    /// A timeout came too soon: nothing counts as lost but what so much has overtaken that it is
    /// (RFC 6675 section 4, IsLost). The acknowledgements that said so may have been lost.
    pub fn unmark_lost(&mut self) {
        self.board.unmark_lost();
        self.board.mark_overtaken(u64::from(DUP_THRESH * self.mss));
    }

    /// The link has not carried all of what is under way.
    pub fn note_outage(&mut self) {
        *self.outage_until = (!self.board.is_empty()).then_some(self.next);
    }
    /// Timeouts so far were no sign of anything.
    pub fn reset_backoff(&mut self) {
        self.rtt.reset_backoff();
    }
    /// The leg begins anew: it has stood still for long enough.
    pub fn note_progress(&mut self, now: Instant) {
        self.progress_at = now;
    }
    /// The receiver holds everything before `upto`, part of which was never sent from here.
    pub fn skip_to(&mut self, now: Instant, upto: SeqNum) {
        self.board.clear();
        self.una = upto;
        self.next = upto;
        self.dup_acks = 0;
        self.progress_at = now;
        self.head_due = false;
        // It may lie behind what was sent: a FIN that nobody is to have any more.
        *self.outage_until = self.outage_until.map(|until| until.min(upto));
    }
    /// What holds, where everything before `end` is held; `closely`: of each record, too.
    pub fn check(&self, end: SeqNum, closely: bool) -> Checked {
        let outage = self.outage_until.is_none_or(|until| until.before_eq(self.next));
        all_hold(&[
            (self.una.before_eq(self.next), "acknowledged is more than was sent"),
            (self.next.before_eq(end), "sent is more than is held"),
            (outage, "an outage ends beyond what was sent"),
        ])?;
        self.board.check(self.una, self.next, closely)
    }
    /// The leg leads another way: what is under way is waited for, and teaches nothing.
    pub fn change_way(&mut self, now: Instant, declared_rtt: Option<Duration>) {
        self.rack = Rack::default();
        self.rtt = RttEstimator::default();
        self.declared_rtt = declared_rtt;
        self.dup_acks = 0;
        self.head_due = false;
        self.moved_at = Some(now);
        self.steps = None;
    }
}
