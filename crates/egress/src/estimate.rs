//! The rate of a link whose owner does not know it, from what the gateway at its other end tells.
//!
//! That gateway counts what comes in over the link and says, with its acknowledgements, how much
//! that was and when, by its own clock, the last of it came. Two such reports are a rate, free of
//! the return way's delays. Whether it is the *link's* rate shows in the one-way delay: where it
//! has risen above its smallest value, bytes were waiting before the link, and it carried what it
//! could. So a first burst, sent at once and drawn apart by the link, tells the rate within one
//! round trip (packet trains: Jain and Routhier 1986), without doubling a window up to it.
//!
//! From then on the queue is the clock as on a link of known rate, at the estimate: a little above
//! it while nothing waits at the far side's bottleneck, below it while too much does, and now and
//! then clearly above it, for a part of a round trip, in case the link has become faster. Losses
//! say nothing here: a link that corrupts has no queue.
//!
//! What an operator declares is where this begins, and the most that it says. There two reports
//! show how long the link took for all that left in between. The declared rate is believed until
//! bytes wait before the link and it takes longer; then so much is sent as it carries, and the
//! declared rate is tried again, after each failure half as often.

mod backlog;
mod burst;
mod fall;
mod hosts;
mod moving;
mod peer;
mod phases;
mod recall;
mod rise;
mod search;
mod sounding;
mod spread;
mod steer;
mod train;
mod trial;

use std::collections::VecDeque;

use farlink_wire::time::{Duration, Instant};

use crate::sent::SentLog;
use burst::Burst;
use hosts::Hosts;
use moving::Moving;
use peer::{Peer, Sample, Sent, Terms, is_less, micros};
use phases::Phases;
use sounding::Sounding;
use steer::{Drained, Draining, Presence};
use trial::Trial;

/// An estimate that nothing has confirmed for so long is forgotten.
const LIFETIME: Duration = Duration::from_secs(600);
/// The smallest one-way delay is that of the last one to two of these.
const BASE_DELAY_WINDOW: Duration = Duration::from_secs(30);
/// Bytes that a rate is taken from, at least: four packets.
const SAMPLE_BYTES_MIN: u32 = 6_000;
/// And, once there is an estimate, at least so much time: packets come in bunches where a machine
/// is busy.
const SAMPLE_TIME_MIN: Duration = Duration::from_millis(1);
/// The least time after which what has arrived since the last sample is let go.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// A probe lasts at least so long.
const PROBE_TIME_MIN: Duration = Duration::from_millis(20);
/// And where the round trip is longer, so long: delay that jitters hides less.
const PROBE_TIME: Duration = Duration::from_millis(32);
/// How much faster a probe is.
const PROBE_GAIN: u32 = 125;
/// And where the rate is declared, so that it is mostly in vain.
const PROBE_GAIN_DECLARED: u32 = 110;
/// A probe after one that has succeeded is faster still, up to this.
const PROBE_GAIN_MAX: u32 = 200;
/// A probe takes three eighths of a round trip, in every eighth one: three parts in so many of the
/// time.
const PROBE_PARTS: u32 = 64;
/// Less than this part of it is another rate. A smaller error is made up for
/// by what waits before the link.
const DECLARED_PERCENT: u64 = 98;
/// Bytes that wait for less than this are not taken to wait, whatever else is known.
const WAIT_MIN: Duration = Duration::from_millis(2);
/// Nor for less than this, where the rate is declared: the machine, or the medium, may be late.
const DECLARED_WAIT_MIN: Duration = Duration::from_millis(10);
/// A rate that is declared anew, and is another by no more than this part (one over it), says
/// nothing new of a link that carries less.
const SAME_PARTS: u64 = 8;
/// A link carries this part of what is declared at least (one over it), whatever is reported: who
/// reports may lie.
const LEAST_PART: u64 = 16;
/// And so much of it is sent at least, one over it, whatever seems to wait before the link.
const LEAST_SENT_PART: u64 = 4 * LEAST_PART;
/// Samples that are kept; points of a round trip by which what has left is remembered.
const RECENT_MAX: usize = 256;
const LOG_PARTS: u32 = 512;
/// A rate that has risen by so much, percent, since the link was full says that there is more room.
const ROOM_PERCENT: u64 = 104;
/// Gateways that report over one link.
const PEERS_MAX: usize = 64;
/// A host that was heard within this time does not give way to another.
const HOST_KEPT: Duration = Duration::from_secs(2);
/// The RTT that counts while none has been measured.
const RTT_DEFAULT: Duration = Duration::from_millis(100);
const NS_PER_S: u128 = 1_000_000_000;

/// What the gateway at the other end has told.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Which gateway: its own number.
    pub peer: u32,
    /// When the last packet it counts came, microseconds of its clock, modulo 2^32.
    pub arrived_us: u32,
    /// Bytes of TCP that had come in over the link by then, with their IP headers, modulo 2^32.
    pub received_bytes: u32,
    /// When that packet left here; `None`: not known.
    pub sent_at: Option<Instant>,
    /// It may have left earlier, too: the one-way delay is not known.
    pub sent_again: bool,
    /// Where it stands in what left without a break: which that is, bytes of it up to here, and
    /// those of them that have not arrived. All zero: nobody knows.
    pub place: (u32, u32, u32),
    /// Smallest RTT of the leg that the report came over.
    pub min_rtt: Option<Duration>,
    /// It is the acknowledgement of a host behind the link, which came at that time by the clock
    /// here, and the bytes are what hosts have acknowledged in all.
    pub of_host: bool,
    /// Queueing delay of the acknowledgement on its way back. Earlier ones may have been dropped
    /// from that queue.
    pub waited_back: Duration,
    /// Acknowledgements have little room on their way back. Then it tells of short trains alone,
    /// whose packets arrive closer together than usual, and not of a queue.
    pub back_is_slow: bool,
}

/// What is known of the link's rate.
#[derive(Clone, Debug, Default)]
pub struct RateEstimate {
    peers: Vec<Peer>,
    /// Bits per second.
    rate_bps: Option<u64>,
    confirmed_at: Instant,
    /// A first guess came into force then.
    recalled_at: Option<Instant>,
    /// The estimate is only what the link has carried so far; it has not been full yet.
    searching: bool,
    /// When a search was told of last, or looked at.
    told_at: Instant,
    /// What the last search had found when it was over, bits per second, and when that was.
    searched: Option<(Instant, u64)>,
    /// What was declared when the link was found to carry less, bits per second, and the most that
    /// was since.
    said_bps: u64,
    said_most_bps: u64,
    rtt: Option<Duration>,
    /// Percent of the estimate at which the queue is to send.
    gain: u32,
    /// Less than the estimate is sent until then, unless somebody tells something.
    gain_until: Option<Instant>,
    /// A probe ends then.
    probe_until: Option<Instant>,
    probe_gain: u32,
    next_probe_at: Instant,
    /// Samples of what left before this say nothing about the present rate of sending.
    changed_at: Instant,
    samples: u64,
    /// When the newest packet of the newest sample left, and how long it waited before the link.
    waited: (Instant, Duration),
    /// Before there is an estimate: since when so many bytes have been told of that did not fill
    /// the link.
    gathered: (Instant, u32),
    /// What has left of late.
    sent: SentLog,
    /// Of that, what the other gateway does not count: all that is no TCP, and what the link layer
    /// adds.
    uncounted: SentLog,
    /// Samples of the last round trip, or where that brings none the last few.
    recent: VecDeque<(Instant, Sample)>,
    /// The most that it can be; `None`: nobody knows.
    most_bps: Option<u64>,
    /// That is what it is, as far as nothing else is shown.
    is_declared: bool,
    /// The estimate when the link was known to be full last.
    full_bps: u64,
    /// The next probe is put off by so much more.
    probe_gap: u32,
    /// When nothing, or next to nothing, waited before the link last.
    empty_at: Instant,
    /// The queue is lowered until then, by so much to send, percent.
    lowered: (Instant, u32),
    presence: Presence,
    /// Less is sent than the link carries.
    draining: Option<Draining>,
    /// What the first burst has shown so far.
    burst: Burst,
    /// A train is to show what that could not.
    sounding: Option<Sounding>,
    /// How much its delay varies by itself, by the newest sample.
    spread: Duration,
    /// Its rate moves, perhaps, and so does its delay.
    moving: Moving,
    moves: bool,
    /// When the newest packet left that has been reported.
    newest_sent_at: Instant,
    /// The rate at which to send so that enough is under way, bits per second.
    filling_bps: Option<u64>,
    /// And whether what stands before it goes.
    drained: Option<Drained>,
    /// Satellites take turns, perhaps.
    phases: Phases,
    /// Hosts tell of the link, for want of a gateway.
    hosts: Hosts,
    /// Whether it carries more than is declared.
    trial: Trial,
}

impl RateEstimate {
    /// Nobody has said the rate, but that it is not above this, in bits per second.
    #[must_use]
    pub fn below(most_bps: u64) -> Self {
        Self { most_bps: Some(most_bps), ..Self::default() }
    }

    /// The operator says that it is this, in bits per second.
    #[must_use]
    pub fn declared(rate_bps: u64) -> Self {
        Self {
            rate_bps: Some(rate_bps),
            most_bps: Some(rate_bps),
            full_bps: rate_bps,
            said_bps: rate_bps,
            said_most_bps: rate_bps,
            is_declared: true,
            gain: 100,
            probe_gain: PROBE_GAIN,
            ..Self::default()
        }
    }

    /// The operator says that it is this from now on, in bits per second. Where it is what was said
    /// before, or about that and the link carries less, what has been found stays. Else it is held
    /// against what arrives anew, but what is known of the way to those who report stays: bytes
    /// that wait before the link now still wait.
    pub fn declare(&mut self, now: Instant, rate_bps: u64) {
        if self.is_declared && self.most_bps == Some(rate_bps) {
            return;
        }
        // A modem may round it now in this way, now in that.
        let is_about = rate_bps.abs_diff(self.said_bps) <= self.said_bps / SAME_PARTS;
        let carries_less = self.rate_bps.is_some_and(|carries| carries < rate_bps) && !self.is_as_declared();
        if self.is_declared && carries_less && is_about {
            self.most_bps = Some(rate_bps);
            if rate_bps > self.said_most_bps {
                // There may be more.
                self.said_most_bps = rate_bps;
                (self.probe_gap, self.next_probe_at) = (0, now);
            }
            return;
        }
        *self = Self {
            confirmed_at: now,
            changed_at: now,
            peers: core::mem::take(&mut self.peers),
            rtt: self.rtt,
            sent: core::mem::take(&mut self.sent),
            uncounted: core::mem::take(&mut self.uncounted),
            samples: self.samples,
            empty_at: self.empty_at,
            presence: self.presence,
            hosts: self.hosts.without_shown(),
            trial: self.trial.anew(),
            phases: core::mem::take(&mut self.phases),
            ..Self::declared(rate_bps)
        };
    }

    /// The operator has said it.
    #[must_use]
    pub fn is_declared(&self) -> bool {
        self.is_declared
    }

    /// The operator has said it, and nothing says that it is another.
    #[must_use]
    pub fn is_as_declared(&self) -> bool {
        self.is_declared && self.rate_bps == self.most_bps
    }

    /// Bits per second that the link carries, with what the link layer adds; `None`: not known (any
    /// more).
    #[must_use]
    pub fn rate_bps(&self) -> Option<u64> {
        self.rate_bps
    }

    /// Bits per second that connections may count on: the most of late, where it moves.
    #[must_use]
    pub fn offered_bps(&self, now: Instant) -> Option<u64> {
        self.rate_bps.map(|rate| self.best_bps(now).map_or(rate, |best| best.max(rate)))
    }

    /// It is known, and no longer only what the link has carried so far.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.rate_bps.is_some() && !self.searching
    }

    /// The rate at which to send now.
    #[must_use]
    pub fn sending_bps(&self) -> Option<u64> {
        if let Some(sounding) = &self.sounding {
            return self.rate_bps.map(|rate| self.at_most(rate.saturating_mul(sounding.gain()) / 100));
        }
        if self.searching {
            return self.sought_bps();
        }
        if let Some(train_bps) = self.trial.sending_bps() {
            return Some(train_bps);
        }
        let gain = if self.probe_until.is_some() { self.probe_gain } else { self.gain };
        let gain = if self.phases.holds() { gain.min(steer::GAIN_MIN) } else { gain };
        if let Some(filling_bps) = self.filling_bps.filter(|_| !self.phases.holds()) {
            return Some(filling_bps);
        }
        let least = self.most_bps.filter(|_| self.is_declared).map_or(1, |most| most / LEAST_SENT_PART);
        let sent = |rate: u64| self.at_most(rate.saturating_mul(u64::from(gain)) / 100);
        self.rate_bps.map(|rate| sent(rate).max(least.min(rate)).max(1))
    }

    /// What it carries at least, whatever is reported.
    fn least_bps(&self) -> u64 {
        self.most_bps.filter(|_| self.is_declared).map_or(0, |most| most / LEAST_PART).max(8_000)
    }

    fn at_most(&self, rate_bps: u64) -> u64 {
        self.most_bps.map_or(rate_bps, |most| rate_bps.min(most))
    }

    /// The smallest round trip over the link, as far as the reports show it.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// By now `total_bytes` have been sent into the link in all, with what the link layer adds;
    /// `uncounted_bytes` of them are not in what the other gateway reports.
    pub fn note_sent(&mut self, now: Instant, total_bytes: u64, uncounted_bytes: u64) {
        let apart = self.round() / LOG_PARTS;
        self.sent.note(now, total_bytes, apart);
        self.uncounted.note(now, uncounted_bytes, apart);
        self.look_for_silence(now);
        self.filling_bps = self.wants_more_under_way(now);
    }

    /// The same before anything else, where nothing has been noted yet.
    pub fn begin(&mut self, now: Instant, total_bytes: u64, uncounted_bytes: u64) {
        if self.sent.is_empty() {
            self.note_sent(now, total_bytes, uncounted_bytes);
        }
    }

    /// Rates taken from reports so far.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// A report came. `busy_since`: since when, without a break, something has been waiting for the
    /// link here.
    pub fn on_report(&mut self, now: Instant, report: &Report, busy_since: Option<Instant>) {
        if let Some(rtt) = report.min_rtt.filter(|rtt| !rtt.is_zero()) {
            self.rtt = Some(rtt);
        }
        let Some(sent_at) = report.sent_at else { return };
        if report.back_is_slow {
            let sent = self.sent_by(now, sent_at);
            return self.hear_of_train(now, report, sent_at, sent);
        }
        self.newest_sent_at = self.newest_sent_at.max(sent_at);
        if !self.admit(now, report) {
            return;
        }
        self.note_presence(now, busy_since);
        let chance = self.sounding.map_or(Duration::ZERO, |sounding| sounding.chance());
        let terms = Terms {
            patience: self.beat().max(PATIENCE_MIN),
            wait_min: self.wait_min(),
            took_min: self.took_min(report).max(chance),
            chance,
            strong_only: self.rate_bps.is_none() || self.searching,
            is_new: !self.is_declared && (self.rate_bps.is_none() || self.burst.lasts(now)),
            is_declared: self.is_declared,
            is_slowed: self.gain < 100,
            sent: self.sent_by(now, sent_at),
            now,
            rtt: self.round(),
            is_restless: self.is_restless(now),
            rate_bps: self.rate_bps.filter(|_| !self.phases.is_new()),
        };
        self.hear_of_train(now, report, sent_at, terms.sent);
        self.take_sample(now, report, sent_at, (&terms, busy_since));
        self.hear_of_burst(now, report, sent_at);
    }

    /// The sample that a report makes with the one before it of the same gateway.
    fn take_sample(
        &mut self,
        now: Instant,
        report: &Report,
        sent_at: Instant,
        (terms, busy_since): (&Terms, Option<Instant>),
    ) {
        let at = self.peer(now, report, sent_at, terms.sent);
        let held = at.and_then(|at| self.peers.get(at)).and_then(|peer| peer.held(report, sent_at));
        self.meets_boundary(now, report.of_host, (sent_at, held.unwrap_or_default()));
        if let Some(waited) =
            at.and_then(|at| self.peers.get(at)).map(|p| p.waited(report.arrived_us, sent_at))
        {
            self.end_drain(now, sent_at, waited);
        }
        let peer = at.and_then(|at| self.peers.get_mut(at));
        let Some(sample) = peer.and_then(|p| p.sample(report, sent_at, terms)) else { return };
        self.samples += 1;
        self.spread = sample.spread;
        self.moves = self.moving.is_likely(now);
        if !report.of_host || !self.is_as_declared() {
            self.waited = (sample.sent_at, sample.waited);
        }
        let sample = self.of_all(now, report.peer, sample);
        self.learn(now, &sample, busy_since);
        if report.of_host && self.is_as_declared() {
            self.note_wait_of_hosts(&sample);
        }
    }

    fn sent_by(&self, now: Instant, then: Instant) -> Option<Sent> {
        let total_bytes = self.sent.total_by(then, now);
        Some(Sent { total_bytes, uncounted_bytes: self.uncounted.total_by(then, now)? })
    }

    /// The next time at which [`Self::handle_timeout`] changes something.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rate_bps?;
        let forget = (!self.is_as_declared()).then_some(self.confirmed_at + self.lifetime());
        let others = [forget, self.search_until(), self.silence_until(), self.trial.poll_timeout()];
        let train = self.sounding.and_then(|sounding| sounding.poll_timeout());
        [self.probe_until, self.gain_until, train].into_iter().chain(others).flatten().min()
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.follow_train(now);
        self.end_train(now);
        self.look_for_silence(now);
        if self.probe_until.is_some_and(|at| at <= now) {
            self.probe_until = None;
            if self.is_declared {
                self.gain = self.gain.min(100);
            }
            self.changed_at = now;
        }
        if self.gain_until.is_some_and(|at| at <= now) {
            // Nobody has told anything since: what stood before the link may be gone.
            (self.gain, self.gain_until, self.draining) = (100, None, None);
            self.changed_at = now;
        }
        if self.search_until().is_some_and(|at| at <= now) {
            self.look_at_search(now);
        }
        if self.rate_bps.is_some() && !self.is_as_declared() && self.confirmed_at + self.lifetime() <= now {
            let phases = core::mem::take(&mut self.phases);
            *self = match self.most_bps {
                Some(most) if self.is_declared => Self::declared(most),
                Some(most) => Self::below(most),
                None => Self::default(),
            };
            self.phases = phases;
        }
    }

    /// The sample of what all gateways behind the link receive, when this one receives so much:
    /// they share it.
    fn of_all(&mut self, now: Instant, id: u32, sample: Sample) -> Sample {
        // Its next sample takes as long as this one, or somewhat longer.
        let until = now + self.round().max(Duration::from_millis(200)).max(sample.took * 3);
        let mut others_bps = 0_u64;
        let counted_bps = sample.counted_bps.unwrap_or(0);
        for peer in &mut self.peers {
            if peer.id == id {
                peer.rate = Some((counted_bps, until));
            } else if let Some((rate, _)) = peer.rate.filter(|(_, until)| *until >= now) {
                others_bps = others_bps.saturating_add(rate);
            }
        }
        // On a declared link it is of all that has left, whoever counts it.
        let more = if self.is_declared { 0 } else { others_bps };
        let rate_bps = sample.rate_bps.saturating_add(more);
        let surely_bps = sample.surely_bps.saturating_add(others_bps).min(rate_bps);
        Sample { rate_bps, surely_bps, ..sample }
    }

    fn round(&self) -> Duration {
        self.rtt.unwrap_or(RTT_DEFAULT)
    }

    /// The time in which a change shows: a round trip, or, where the link holds only a few packets
    /// in it, four samples.
    fn beat(&self) -> Duration {
        let samples = self.rate_bps.map(|rate| time_of(4 * u64::from(SAMPLE_BYTES_MIN), rate));
        self.round().max(samples.unwrap_or_default())
    }

    /// How long bytes are meant to wait before the link: so little that it is not felt, so much
    /// that the link never runs dry for want of a few packets.
    fn waiting_wanted(&self) -> Duration {
        let packets = self.rate_bps.map_or(Duration::ZERO, |rate| time_of(3_000, rate));
        let least = if self.is_declared || self.moves { DECLARED_WAIT_MIN } else { WAIT_MIN };
        (self.round() / 50).clamp(least, Duration::from_millis(20)) + packets + self.spread
    }

    fn learn(&mut self, now: Instant, sample: &Sample, busy_since: Option<Instant>) {
        let rate = self.at_most(sample.rate_bps.max(8_000));
        let Some(old) = self.rate_bps else {
            if sample.saturated {
                self.found_by_burst(now, rate, sample);
            } else {
                self.begin_search(now, sample, rate);
            }
            return;
        };
        if self.sound(now, sample) || self.burst_goes_on(now, sample) || self.phase_goes_on(now, sample, rate)
        {
            return;
        }
        if self.searching {
            self.told_at = now;
            if sample.saturated {
                self.found_by_burst(now, rate, sample);
            } else if rate > old {
                self.confirmed_at = now;
                self.rate_bps = Some(rate);
            }
            return;
        }
        let busy = busy_since.is_some_and(|since| since <= sample.sent_at);
        let before = self.keep(now, sample);
        self.hear_another(now, sample);
        let old = self.rate_bps.unwrap_or(old);
        if sample.saturated {
            self.full_bps = old;
        }
        if let Some((rate, is_clear)) = self.risen(old, sample, busy, before) {
            self.confirmed_at = now;
            self.rate_bps = Some(rate);
            if (!sample.saturated || is_clear) && rate > self.full_bps / 100 * ROOM_PERCENT {
                // There is more than was thought.
                self.full_bps = rate;
                self.probe_gap = 0;
                self.probe_gain = (self.probe_gain * 5 / 4).min(PROBE_GAIN_MAX);
                self.start_probe(now);
                return;
            }
        } else if let Some(less) = self.fallen(now, old, sample)
            && self.believes(less)
        {
            self.confirmed_at = now;
            if self.is_as_declared() {
                self.trial = self.trial.without_train();
                // It may have been for a moment.
                self.next_probe_at = now + 2 * self.round();
                self.probe_gap = 0;
            }
            let less = self.at_most(less.max(self.least_bps()));
            self.rate_bps = Some(less);
            // Whatever surpasses it shows that there is room again.
            self.full_bps = self.full_bps.min(less);
        } else if busy && rate > old / 10 * 9 {
            self.confirmed_at = now;
        }
        if sample.saturated || busy {
            self.follow_moves(now, sample);
        }
        self.steer(now, sample, busy);
    }

    /// The sample is kept for a while. Returns the one before it.
    fn keep(&mut self, now: Instant, sample: &Sample) -> Option<Sample> {
        let lately = self.round().max(sample.took * 4).max(self.fall_time(sample));
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > lately)
            || self.recent.len() >= RECENT_MAX
        {
            self.recent.pop_front();
        }
        let before = self.recent.back().map(|(_, s)| *s);
        self.recent.push_back((now, *sample));
        before
    }

    /// The link was full for the first time.
    fn found(&mut self, now: Instant, rate_bps: u64) {
        self.confirmed_at = now;
        self.rate_bps = Some(rate_bps);
        self.full_bps = rate_bps;
        (self.searching, self.sounding) = (false, None);
        self.recent.clear();
        self.gain = 100;
        self.probe_gain = PROBE_GAIN;
        self.start_probe(now);
    }

    fn start_probe(&mut self, now: Instant) {
        let probe = self.probe_time();
        self.probe_until = Some(now + probe);
        self.next_probe_at = now + probe / 3 * PROBE_PARTS;
    }

    fn probe_time(&self) -> Duration {
        let samples = self.rate_bps.map(|rate| time_of(2 * u64::from(SAMPLE_BYTES_MIN), rate));
        let least = PROBE_TIME_MIN.max(self.round().min(PROBE_TIME));
        (self.round() / 8 * 3).max(least).max(samples.unwrap_or_default())
    }

    /// Where the reporting gateway stands, with the clocks' smallest difference brought up to date;
    /// `None`: it was not known until now.
    fn peer(&mut self, now: Instant, report: &Report, sent_at: Instant, sent: Option<Sent>) -> Option<usize> {
        let delay_us = report.arrived_us.wrapping_sub(micros(sent_at));
        let mut known = self.peers.iter().position(|p| p.id == report.peer);
        if report.sent_again && known.is_none() {
            return None;
        }
        let has_restarted = |at: usize| {
            let last = self.peers.get(at).map(|peer| &peer.last);
            !report.sent_again
                && last.is_some_and(|last| last.is_of_another_clock(report.arrived_us, sent_at))
        };
        if let Some(at) = known.filter(|at| has_restarted(*at)) {
            self.peers.swap_remove(at);
            known = None;
        }
        let Some(at) = known else {
            if self.peers.len() >= PEERS_MAX {
                let oldest = self.peers.iter().enumerate().min_by_key(|(_, peer)| peer.heard_at);
                let (at, heard_at) = oldest.map(|(at, peer)| (at, peer.heard_at))?;
                // So many hosts are enough, and whoever is heard in turn would never be known.
                if report.of_host && now.since(heard_at) < HOST_KEPT {
                    return None;
                }
                self.peers.swap_remove(at);
            }
            self.peers.push(Peer::new(now, report, sent_at, sent));
            return None;
        };
        let peer = self.peers.get_mut(at)?;
        peer.heard_at = now;
        if report.sent_again {
            return Some(at);
        }
        if now.since(peer.window_since) >= BASE_DELAY_WINDOW {
            peer.delay_before_us = Some(peer.delay_us);
            peer.delay_us = delay_us;
            peer.window_since = now;
        } else if is_less(delay_us, peer.delay_us) {
            peer.delay_us = delay_us;
        }
        Some(at)
    }
}

fn time_of(bytes: u64, rate_bps: u64) -> Duration {
    Duration::from_nanos(
        u64::try_from(u128::from(bytes) * 8 * NS_PER_S / u128::from(rate_bps.max(1))).unwrap_or(u64::MAX),
    )
}
