//! May it be sent? The congestion controller, recovery and its rate (PRR), pacing, and what an ECN
//! echo asks for.

use farlink_cc::{Ack, Config, Congestion, Controller, Doubt, Lost, News, Reported};
use farlink_wire::xcp::XcpFields;
use farlink_wire::{Duration, Instant, SeqNum, WireSize};

use crate::bookmark::{Bookmark, bookmarks};
use crate::checked::{Checked, all_hold};
use crate::pacing::Pacer;
use crate::recovery::{Prr, Recovery, Verdict};

/// What lets a sender send, and what slows it down.
#[derive(Debug)]
pub(super) struct Governor {
    cc: Box<Controller>,
    recovery: Recovery,
    pacer: Pacer,
    /// Until an RTT is known: what is sent is spread over this one.
    start_paced_over: Option<Duration>,
    /// Pacing lets the next burst go.
    paced_until: Option<Instant>,
    /// The congestion window, and not the source or the receiver, stopped it last.
    is_limited: bool,
    /// The source is promised what the congestion window leaves, and has sent all of that.
    holds_source: bool,
    /// Where the congestion window stopped it, until that is acknowledged.
    stop: Bookmark,
    /// An ECN echo counts no more before this is acknowledged.
    cwr_until: Bookmark,
    /// Nothing new that begins here, or behind it, leaves before then.
    held: Option<Box<(SeqNum, Instant)>>,
    /// CWR is owed with the next new segment (RFC 3168 6.1.2).
    cwr_owed: bool,
}

bookmarks!(Governor { stop, cwr_until });

impl Governor {
    /// Nothing has been sent yet.
    pub fn new(cc: Controller) -> Self {
        Self {
            cc: Box::new(cc),
            recovery: Recovery::Open,
            pacer: Pacer::default(),
            start_paced_over: None,
            paced_until: None,
            is_limited: false,
            holds_source: false,
            stop: Bookmark::NONE,
            cwr_until: Bookmark::NONE,
            held: None,
            cwr_owed: false,
        }
    }

    /// What holds, where everything before `next` has been sent.
    pub fn check(&self, next: SeqNum) -> Checked {
        let sent = |at: Option<SeqNum>| at.is_none_or(|at| at.before_eq(next));
        let recover = match self.recovery {
            Recovery::Fast { recover, .. } | Recovery::Timeout { recover, .. } => Some(recover),
            Recovery::Open => None,
        };
        all_hold(&[
            (sent(recover), "recovery ends beyond what was sent"),
            (sent(*self.stop), "the window stopped beyond what was sent"),
        ])
    }
    /// The congestion controller.
    pub fn cc(&self) -> &Controller {
        &self.cc
    }
    /// No recovery is under way.
    pub fn is_open(&self) -> bool {
        self.recovery.is_open()
    }
    /// Fast recovery is under way.
    pub fn is_fast(&self) -> bool {
        self.recovery.is_fast()
    }
    /// A recovery is under way that lasts beyond `una`.
    pub fn recovers_beyond(&self, una: SeqNum) -> bool {
        match self.recovery {
            Recovery::Open => false,
            Recovery::Fast { recover, .. } | Recovery::Timeout { recover, .. } => recover.after(una),
        }
    }
    /// What the congestion window leaves beside what is in flight, or what recovery allows; bytes.
    pub fn room(&self, in_flight_bytes: u64) -> u64 {
        match &self.recovery {
            Recovery::Fast { prr, .. } if self.cc.uses_prr() => prr.allowance(),
            _ => self.cc.cwnd_bytes().saturating_sub(in_flight_bytes),
        }
    }
    /// A loss has made the congestion window smaller, whatever it leaves.
    pub fn answers_losses(&self) -> bool {
        match self.recovery {
            Recovery::Open => false,
            Recovery::Fast { .. } => self.cc.uses_prr(),
            Recovery::Timeout { .. } => true,
        }
    }
    /// The rate that a leg of this RTT is paced at, bit/s; `None` where it is not.
    pub fn pacing_rate(&self, srtt: Option<Duration>) -> Option<u64> {
        let srtt = srtt.or(self.start_paced_over);
        if self.cc.relies_on_pacing() || Pacer::applies(srtt) {
            self.cc.pacing_rate_bps(srtt.unwrap_or_default()).filter(|r| *r > 0)
        } else {
            None
        }
    }
    /// So many bytes may leave whatever the pace, where so many are under way.
    pub fn unpaced_room(&self, in_flight_bytes: u64) -> u64 {
        self.cc.unpaced_bytes().saturating_sub(in_flight_bytes)
    }
    /// Pacing lets the next burst go then.
    pub fn paced_until(&self) -> Option<Instant> {
        self.paced_until
    }
    /// Something new leaves from this number on no sooner than then; `None`: it may.
    pub fn hold_from(&mut self, held: Option<(SeqNum, Instant)>) {
        self.held = held.map(Box::new);
    }
    /// What begins at `next` is held until then.
    pub fn held_until(&self, next: SeqNum) -> Option<Instant> {
        self.held.as_deref().filter(|(from, _)| next.after_eq(*from)).map(|(_, until)| *until)
    }
    /// Neither the congestion window nor pacing keeps another segment back.
    pub fn lets_go(&self, now: Instant, in_flight_bytes: u64, mss: u32) -> bool {
        in_flight_bytes + u64::from(mss) <= self.cc.cwnd_bytes() && self.pacer.wait_until(now).is_none()
    }
    /// Bytes that may leave as one burst at this rate.
    pub fn burst_bytes(&self, rate_bps: u64, mss: u32) -> u32 {
        self.pacer.burst_bytes(rate_bps, mss)
    }
    /// The congestion window, and not the source or the receiver, stopped it last. Or it stops the
    /// source, which is promised no more.
    pub fn is_limited(&self) -> bool {
        self.is_limited || self.holds_source
    }
    /// The source is promised what the congestion window leaves, and has sent all of that; or not.
    pub fn hold_source(&mut self, holds: bool) {
        self.holds_source = holds;
    }
    /// Whether the congestion window has stopped it within the last round trip.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// What packets of this size, with so much payload, say of their speed.
    pub fn stamp(
        &mut self,
        now: Instant,
        (size, payload_bytes): (WireSize, u32),
        wants_more: bool,
    ) -> Option<XcpFields> {
        self.cc.stamp(now, (size, payload_bytes), wants_more)
    }
    /// What routers have left of its wishes has changed by so much, bytes a second.
    pub fn hear_routers(&mut self, change_bytes_per_s: i32) {
        self.cc.hear_routers(change_bytes_per_s);
    }
    /// What the gateway at the other end has reported of all flows to it.
    pub fn hear_report(&mut self, reported: Reported) {
        self.cc.hear_report(reported);
    }
    /// What has become of the trust in routers.
    pub fn take_news(&mut self) -> Option<News> {
        self.cc.take_news()
    }
    /// It shares a window, of packets, with so many flows, itself included; see
    /// [`Controller::share`].
    pub fn share(&mut self, window_bytes: u64, flows: u32, is_news: bool) {
        self.cc.share(window_bytes, flows, is_news);
    }
    /// It shares nothing any more; `why`: routers are not to be believed.
    pub fn part(&mut self, why: Option<Doubt>) {
        self.cc.part(why);
    }
    /// See [`Controller::take_parted`].
    pub fn take_parted(&mut self) -> Option<(Doubt, u32)> {
        self.cc.take_parted()
    }
    /// The first window is spread over this round trip.
    pub fn pace_start(&mut self, over: Option<Duration>) {
        self.start_paced_over = over;
    }
    /// Its turn comes so long after it was ready.
    pub fn wait_for_turn(&mut self, waited: Duration) {
        self.pacer.wait_for_turn(waited);
    }
    /// Whether it has to wait for its pace, from now on by a timer.
    pub fn waits_for_pace(&mut self, now: Instant) -> bool {
        self.paced_until = self.pacer.wait_until(now);
        self.paced_until.is_some()
    }
    /// It waits for its pace no longer, or not yet.
    pub fn stop_waiting(&mut self) {
        self.paced_until = None;
    }
    /// A pace that has been waited for, is no longer.
    pub fn on_timer(&mut self, now: Instant) {
        self.paced_until = self.paced_until.filter(|at| *at > now);
        if self.held.as_deref().is_some_and(|(_, until)| *until <= now) {
            self.held = None;
        }
    }
    /// The congestion window keeps back what begins here.
    pub fn stop_at(&mut self, next: SeqNum) {
        self.is_limited = true;
        *self.stop = Some(next);
    }
    /// Something else keeps it back.
    pub fn note_not_limited(&mut self) {
        self.is_limited = false;
    }

    /// So many bytes left under this rate.
    pub fn pace(&mut self, now: Instant, bytes: u64, rate_bps: u64) {
        self.pacer.on_sent(now, bytes, rate_bps);
    }
    /// So many bytes of the stream left.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight_bytes: u64, app_limited: bool) {
        if let Recovery::Fast { prr, .. } = &mut self.recovery {
            prr.on_sent(bytes);
        }
        self.cc.on_sent(now, bytes, in_flight_bytes, app_limited);
    }
    /// It sends again after such an idle time.
    pub fn on_idle_restart(&mut self, now: Instant, idle: Duration, rto: Duration) {
        self.cc.on_idle_restart(now, idle, rto);
    }
    /// Returns whether CWR is owed, which is done with this.
    pub fn take_cwr(&mut self) -> bool {
        core::mem::take(&mut self.cwr_owed)
    }

    /// Everything before `una` has arrived.
    pub fn advance(&mut self, una: SeqNum) {
        *self.stop = self.stop.filter(|stop| stop.after(una));
    }
    /// The controller hears of what an acknowledgement told. Returns whether it holds back more
    /// than the path would.
    pub fn on_ack(&mut self, ack: &Ack) -> bool {
        if self.holds_source {
            self.cc.note_used(self.cc.cwnd_bytes());
        }
        self.cc.on_ack(ack);
        self.cc.holds_back()
    }
    /// So many bytes and segments have arrived that were taken for lost.
    pub fn on_found(&mut self, (bytes, segments): (u64, u64)) {
        self.cc.on_found(bytes, segments);
    }
    /// What may be sent in recovery after an acknowledgement that shows so many bytes delivered,
    /// `pipe_bytes` being under way. `safe`: it advanced and showed no loss; `partial`: it advanced
    /// and did, and nothing but the next repetition tells more.
    pub fn pace_recovery(
        &mut self,
        delivered_bytes: u64,
        pipe_bytes: u64,
        safe: bool,
        partial: bool,
        mss: u32,
    ) {
        let Recovery::Fast { prr, .. } = &mut self.recovery else { return };
        prr.on_ack(delivered_bytes, pipe_bytes, safe, mss);
        if partial {
            // A partial acknowledgement repeats the new head at once (RFC 6582 section 3.2 step 3).
            prr.force(mss);
        }
    }
    /// The controller hears of a transmission that is taken for lost.
    pub fn on_lost(&mut self, lost: &Lost) {
        self.cc.on_lost(lost);
    }
    /// Fast recovery begins, with so much in flight, and lasts until `next` is acknowledged.
    pub fn enter_recovery(
        &mut self,
        now: Instant,
        why: Congestion,
        in_flight_bytes: u64,
        next: SeqNum,
        mss: u32,
    ) {
        self.cc.on_congestion(now, why, in_flight_bytes);
        let prr = Prr::new(in_flight_bytes, self.cc.ssthresh_bytes(), mss);
        self.recovery = Recovery::Fast { recover: next, prr };
    }
    /// A timeout: `pipe_bytes` of what is in flight are not taken for lost.
    ///
    /// `may_wait`: segments may wait in a queue that is not ours, longer than a timeout.
    pub fn on_rto(
        &mut self,
        now: Instant,
        (in_flight_bytes, pipe_bytes): (u64, u64),
        next: SeqNum,
        may_wait: bool,
    ) {
        self.cc.on_rto(now, in_flight_bytes, pipe_bytes);
        let verdict = match self.recovery {
            // Nothing has been acknowledged since the last one: that may still come.
            Recovery::Timeout { verdict: Verdict::Open, .. } if may_wait => Verdict::Open,
            Recovery::Timeout { .. } => Verdict::Given,
            Recovery::Open | Recovery::Fast { .. } => Verdict::Open,
        };
        self.recovery = Recovery::Timeout { recover: next, verdict };
    }
    /// After a timeout one more acknowledgement is waited for: so much new data may draw it, bytes.
    pub fn awaits_verdict(&self) -> Option<u32> {
        match self.recovery {
            Recovery::Timeout { verdict: Verdict::Awaited { new_bytes }, .. } => Some(new_bytes),
            _ => None,
        }
    }
    /// New data has left.
    pub fn note_new(&mut self, bytes: u32) {
        if let Recovery::Timeout { verdict: Verdict::Awaited { new_bytes }, .. } = &mut self.recovery {
            *new_bytes = new_bytes.saturating_sub(bytes);
        }
    }
    /// F-RTO (RFC 5682, SACK-enhanced): the first acknowledgement after a timeout decides whether
    /// that was spurious, by whether it covers something never sent again (`original`). Where
    /// queues are to be expected the next one may do so, after so much new data: `doubtful_bytes`.
    /// Returns whether it was.
    pub fn decide_timeout(&mut self, now: Instant, original: bool, doubtful_bytes: Option<u32>) -> bool {
        let Recovery::Timeout { verdict, .. } = &mut self.recovery else { return false };
        let doubtful = doubtful_bytes.filter(|_| *verdict == Verdict::Open && !original);
        let next = doubtful.map_or(Verdict::Given, |new_bytes| Verdict::Awaited { new_bytes });
        let is_spurious = core::mem::replace(verdict, next) != Verdict::Given && original;
        if is_spurious {
            self.undo_timeout(now);
        }
        is_spurious
    }
    /// A timeout that goes on was no sign of congestion.
    pub fn undo_timeout(&mut self, now: Instant) {
        if matches!(self.recovery, Recovery::Timeout { .. }) {
            self.recovery = Recovery::Open;
            self.cc.undo(now);
        }
    }
    /// Returns whether recovery ends with everything before `una` acknowledged.
    pub fn leave_recovery(&mut self, now: Instant, una: SeqNum) -> bool {
        let (Recovery::Fast { recover, .. } | Recovery::Timeout { recover, .. }) = self.recovery else {
            return false;
        };
        let is_over = una.after_eq(recover);
        if is_over {
            self.cc.on_recovery_exit(now);
            self.recovery = Recovery::Open;
        }
        is_over
    }
    /// An acknowledgement echoes congestion, or does not, while something is under way from `una`
    /// to `next`. Returns whether that is a reason for recovery.
    pub fn on_ece(&mut self, una: SeqNum, next: SeqNum, ece: bool, is_under_way: bool) -> bool {
        *self.cwr_until = self.cwr_until.filter(|until| una.before(*until));
        let is_news = ece && self.cwr_until.is_none() && self.recovery.is_open() && is_under_way;
        if is_news {
            *self.cwr_until = Some(next);
            self.cwr_owed = true;
        }
        is_news
    }

    /// The receiver has everything, part of which was never sent from here.
    pub fn skip(&mut self) {
        self.held = None;
        *self.stop = None;
        self.recovery = Recovery::Open;
        self.paced_until = None;
    }
    /// Another controller takes over.
    pub fn replace(&mut self, config: &Config) {
        *self.cc = Controller::new(config);
        *self.stop = None;
    }
    /// Fast recovery ends with the controller that made it: what is lost is repeated within the new
    /// window. Returns whether it was under way.
    pub fn drop_reduction(&mut self) -> bool {
        let was_fast = self.is_fast();
        if was_fast {
            self.recovery = Recovery::Open;
        }
        was_fast
    }
    /// The leg leads another way: nothing that was learned or decided holds.
    pub fn change_way(&mut self, config: &Config, paced_over: Option<Duration>) {
        self.replace(config);
        self.recovery = Recovery::Open;
        self.pacer = Pacer::default();
        self.start_paced_over = paced_over;
        self.held = None;
    }
    /// The link carries so much payload from now on, bits per second. `watched`: less than is said,
    /// and all that is sent into it is looked at.
    pub fn set_link_rate(&mut self, payload_bps: u64, watched: bool) {
        self.cc.set_link_rate(payload_bps, watched);
    }
    /// What lies behind the link has carried its rate before.
    /// The path is another one from now on.
    pub fn begin_phase(&mut self) {
        self.cc.begin_phase();
    }
    /// A round trip takes so long there at least.
    pub fn settle_phase(&mut self, now: Instant, min_rtt: Duration) {
        self.cc.settle_phase(now, min_rtt);
    }
    /// So much more of the initial window may leave at once, bytes.
    pub fn trust_path(&mut self, bytes: u64) {
        self.cc.trust_path(bytes);
    }
    /// No congestion window above so many bytes from now on.
    pub fn set_window_limit(&mut self, bytes: u64) {
        self.cc.set_window_limit(bytes);
    }
    /// Segments are so large from now on.
    pub fn set_mss(&mut self, mss: u32) {
        self.cc.set_mss(mss);
    }
}
