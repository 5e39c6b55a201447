//! For a declared link whose rate is known, and behind which lies more than the link: no gateway
//! answers at its other end.
//!
//! The link itself needs no window: its queue is the clock, and losses on it are corruption. But
//! the path goes on beyond it, through networks of others. So this controller sends at the link's
//! rate as long as nothing speaks against it, and looks for a bottleneck elsewhere:
//!
//! - Segments wait somewhere, and ever longer: for a while every RTT is well above the smallest and
//!   still growing, also in its second half, and acknowledgements arrive more slowly than the link
//!   sends. A link that corrupts has no queue, so random losses alone say nothing. Delay that
//!   jitters grows, too, but not for long: it has to grow by more than it varies from train to
//!   train.
//! - More is lost than corruption explains: a third of a round trip, or a tenth of two in a row.
//!   That is a bottleneck almost without a queue.
//! - A congestion mark, or a time-out of more than a few segments.
//!
//! Then BBR takes over with the rate that the acknowledgements have shown, and CUBIC beside it
//! where delay varies (`cubic_bbr.rs`). Where no segment waits any more it is tried whether the
//! path carries half as much again, and so on up to the link's rate; after each trial that fails
//! the next one waits twice as long.

mod losses;
mod paced;
mod phase;
mod shown;
#[cfg(test)]
mod tests;

use farlink_wire::time::{Duration, Instant};

use crate::api::{Ack, Config, Congestion, Copies, Lost};
use crate::cubic_bbr::CubicBbr;
use losses::{Heavy, LOSS_AGAIN_PERCENT, LOST_SEGMENTS_MIN};

/// What leaves before the first acknowledgement, at most: the largest window without scaling. Hosts
/// offer no more at first.
const INITIAL_BYTES_MAX: u64 = 65_535;
/// A train of acknowledgements covers so many segments at least.
const TRAIN_SEGMENTS: u64 = 8;
/// An RTT that exceeds the smallest by this part of it (one over it) is one with a queue.
const QUEUE_PARTS: u32 = 16;
/// The same where what waits before the link is seen to by others.
const WATCHED_QUEUE_PARTS: u32 = 4;
/// And by so much at least, beyond the time of a packet on the link.
const QUEUE_MIN: Duration = Duration::from_millis(5);
/// Trains without a queue, one after the other, that show that there is room.
const TRAINS: u32 = 2;
/// Segments wait ever longer for so long, at least, where there is a bottleneck.
const GROWS_MIN: Duration = Duration::from_millis(100);
/// In the second half of this they wait by so much longer, beyond what the rates explain.
const GROWTH_MIN: Duration = Duration::from_millis(10);
/// A bottleneck of less than half of the rate shows as soon as they wait by so much longer: its
/// buffer may be short.
const MUCH_GROWTH: Duration = Duration::from_millis(40);
/// The RTT varies by so many mean differences between trains.
const SPREAD_DIFFERENCES: u32 = 8;
/// It may vary by this part of the smallest one (one over it), as far as nobody knows.
const SPREAD_PARTS: u32 = 4;
/// The mean difference follows the newest one by this part (one over it), once so many are known.
const DIFFERENCES: u32 = 8;
/// After so many it is known at all.
const DIFFERENCES_MIN: u32 = 4;
/// What the RTT has beyond the smallest one, and is no bottleneck's, is at most as much as that and
/// this.
const LATER_MAX: Duration = Duration::from_millis(50);
/// What arrives at less than this share of the rate that is sent at, percent, has been held up.
const SLOW_PERCENT: u64 = 95;
/// A link that carries less than this part of what it was said to, percent, is what held it up.
const FALLS_PERCENT: u64 = 99;
/// Round trips in which what has waited before such a link has come through.
const DRAINING_ROUNDS: u32 = 3;
/// Round trips of BBR before a trial: twice as many after each one that fails, up to these.
const TRIAL_ROUNDS: u32 = 2;
const TRIAL_ROUNDS_MAX: u32 = 512;
/// Of what lies behind the link nobody knows whether it is steady until it has been watched for so
/// long.
const STEADY_AFTER: Duration = Duration::from_secs(3);
/// Round trips at the link's rate after which it is taken for good.
const PROVEN_ROUNDS: u32 = 32;
/// What is found now and surpasses what was found before by this, percent, moves.
const MOVES_PERCENT: u64 = 125;
/// A window that times out and is no larger than a usual initial one says nothing (RFC 6928).
const FEW_SEGMENTS: u64 = 10;
const SECOND_NS: u128 = 1_000_000_000;

/// A controller for the way over a link of one's own into the networks of others.
#[derive(Clone, Debug)]
pub(crate) struct KnownRate {
    config: Config,
    /// What the link carries, payload bits per second.
    link_bps: u64,
    initial_window: u64,
    /// What lies behind the link has taken what came before: so much more may leave at once.
    trusted_bytes: u64,
    /// Others see to what waits before the link.
    is_watched: bool,
    /// In so many round trips there still arrives what has waited before the link became slower.
    draining_rounds: u32,
    /// Acknowledged so far.
    delivered: u64,
    /// Bytes and segments lost so far.
    lost: (u64, u64),
    /// Trains without a queue, one after the other, since the beginning: with two of them the
    /// window is open.
    free: u32,
    /// The smallest RTT.
    base: Option<Duration>,
    rounds: Rounds,
    train: Train,
    jitter: Jitter,
    /// Where the last train began.
    train_began: Option<Mark>,
    /// Segments have waited since then.
    waiting: Option<Waiting>,
    /// Largest rate at which something arrived in this round trip.
    arrived_bps: u64,
    /// The largest rate at which a train has arrived, bits per second.
    shown_bps: u64,
    /// Some train has been drawn apart.
    is_drawn_apart: bool,
    /// The next trial comes after so many round trips.
    patience_rounds: u32,
    /// What was found when it gave way last, bits per second.
    found_bps: u64,
    /// Something was found for the first time then.
    found_at: Option<Instant>,
    /// It gave way since so much was lost.
    heavy: Option<Heavy>,
    /// What is found moves: it was clearly more the next time.
    moves: bool,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// At the link's rate, with its queue as the clock. For so many round trips so far.
    Link(u32),
    /// Is there room for this rate?
    Trial(Trial),
    /// The bottleneck is elsewhere. For so many round trips without a queue so far.
    Beyond(Box<CubicBbr>, u32),
}

/// A rate that is tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    rate_bps: u64,
    /// Round trips so far.
    rounds: u32,
    /// Trains without a queue since the first of them.
    trains: u32,
}

/// What was lost in the round trip under way, and whether the one before lost much.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    delivered: u64,
    lost: u64,
    lost_segments: u64,
    lossy: bool,
    /// A segment came without having waited.
    unqueued: bool,
    /// The smallest RTT of this round trip, and of the one before.
    min_rtt: Option<Duration>,
    min_rtt_before: Option<Duration>,
    /// The longest that acknowledgements waited on their way back, and in the one before.
    waited_back: Duration,
    waited_back_before: Duration,
}

/// Trains of segments that have all waited.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    begin: Mark,
    /// Where the second half of the least time begins.
    middle: Option<Mark>,
    end: Mark,
}

/// Where a train ended.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    /// How long its last segment took.
    rtt: Duration,
    delivered: u64,
    /// Bytes and segments that were lost.
    lost: (u64, u64),
}

impl Mark {
    /// What has arrived since another one, bits per second.
    fn rate_bps_since(&self, before: &Self) -> u64 {
        let bits = u128::from(self.delivered.saturating_sub(before.delivered)) * 8 * SECOND_NS;
        u64::try_from(bits / self.at.since(before.at).as_nanos().max(1)).unwrap_or(u64::MAX)
    }
}

/// How much the smallest RTTs of trains differ that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Jitter {
    /// Mean of what a rise and the fall after it, or the other way round, have in common: a queue
    /// that grows or drains only rises or falls.
    mean: Duration,
    /// Differences so far, up to [`DIFFERENCES`].
    seen: u32,
    /// The last difference, and whether it was a rise.
    last: (Duration, bool),
}

impl Jitter {
    fn follow(&mut self, before: Duration, rtt: Duration) {
        let (by, rises) = (rtt.abs_diff(before), rtt >= before);
        let common = if rises == self.last.1 { Duration::ZERO } else { by.min(self.last.0) };
        self.last = (by, rises);
        self.seen = (self.seen + 1).min(DIFFERENCES);
        self.mean = self.mean / self.seen * (self.seen - 1) + common / self.seen;
    }

    fn is_known(&self) -> bool {
        self.seen >= DIFFERENCES_MIN
    }
}

/// Acknowledgements that have come in since the last judgement.
#[derive(Clone, Copy, Debug, Default)]
struct Train {
    since: Instant,
    bytes: u64,
    min_rtt: Option<Duration>,
    last_rtt: Option<Duration>,
    /// The last and the smallest one of the train before.
    rtt_before: Option<Duration>,
    min_rtt_before: Option<Duration>,
}

/// What a train has shown.
struct Shown {
    has_queue: bool,
    /// By how much more the last segment had waited than the last one of the train before, and how
    /// long the train was.
    grown: Duration,
    took: Duration,
    begin: Mark,
    end: Mark,
}

impl KnownRate {
    pub(crate) fn new(config: &Config) -> Self {
        let mss = u64::from(config.mss.max(1));
        let limit = config.window_limit_bytes.max(2 * mss);
        Self {
            config: Config { window_limit_bytes: limit, ..*config },
            link_bps: config.fixed_rate_bps.unwrap_or(u64::MAX),
            initial_window: initial_window(config, limit, 0),
            trusted_bytes: 0,
            is_watched: false,
            draining_rounds: 0,
            delivered: 0,
            lost: (0, 0),
            free: 0,
            base: config.handshake_rtt.filter(|rtt| !rtt.is_zero()),
            rounds: Rounds::default(),
            train: Train::default(),
            jitter: Jitter::default(),
            train_began: None,
            waiting: None,
            arrived_bps: 0,
            shown_bps: 0,
            is_drawn_apart: false,
            patience_rounds: TRIAL_ROUNDS,
            found_bps: u64::MAX,
            found_at: None,
            heavy: None,
            moves: false,
            state: State::Link(0),
        }
    }

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64, app_limited: bool) {
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.on_sent(now, bytes, in_flight, app_limited);
        }
    }

    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        self.lost = (self.lost.0 + lost.bytes, self.lost.1 + lost.segments);
        self.rounds.lost += lost.bytes;
        self.rounds.lost_segments += lost.segments;
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.on_lost(lost);
        }
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        // What has waited on its way back alone has found room on its way there.
        let waited_back = ack.waited_back.unwrap_or_default();
        let there = &Ack { rtt: ack.rtt.map(|rtt| rtt.saturating_sub(waited_back)), ..*ack };
        if let Some(rtt) = there.rtt.filter(|rtt| !rtt.is_zero()) {
            self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
            self.rounds.min_rtt = Some(self.rounds.min_rtt.map_or(rtt, |min| min.min(rtt)));
        }
        self.rounds.waited_back = self.rounds.waited_back.max(waited_back);
        self.arrived_bps = self.arrived_bps.max(ack.sample.rate_bps.unwrap_or(0));
        self.rounds.delivered += ack.acked_bytes;
        self.delivered = self.delivered.saturating_add(ack.acked_bytes);
        let shown = self.follow_train(there);
        let heavy_loss = ack.round_start && self.judge_losses();
        if ack.round_start {
            self.draining_rounds = self.draining_rounds.saturating_sub(1);
        }
        match &mut self.state {
            State::Link(_) | State::Trial(_) => {
                let held_up = shown.is_some_and(|s| self.is_held_up(&s));
                if held_up || heavy_loss {
                    self.heavy = heavy_loss.then(|| self.before_heavy());
                    self.give_way(ack.now);
                } else if ack.round_start {
                    self.go_on();
                }
            }
            State::Beyond(bbr, calm) => {
                bbr.on_ack(ack);
                if ack.round_start {
                    // With what BBR takes for the smallest RTT: the path may have become longer.
                    let calm_now = self.rounds.unqueued && !heavy_loss;
                    *calm = if calm_now { *calm + 1 } else { 0 };
                    let (rate, waited) = (bbr.bandwidth_bps(), *calm);
                    self.base = bbr.min_rtt().or(self.base);
                    // Delay that jitters is never calm. What arrives as fast as the link sends
                    // finds room.
                    if rate >= self.link_bps / 100 * SLOW_PERCENT && !heavy_loss {
                        self.state = State::Link(0);
                    } else if waited >= self.patience_rounds && !bbr.in_startup() {
                        // In startup twice as much is tried with each round trip anyway.
                        self.start_trial(rate / 2 * 3);
                    }
                }
            }
        }
        if ack.round_start {
            let Rounds { lossy, min_rtt, min_rtt_before, waited_back, .. } = self.rounds;
            let min_rtt_before = min_rtt.or(min_rtt_before);
            self.rounds =
                Rounds { lossy, min_rtt_before, waited_back_before: waited_back, ..Rounds::default() };
            self.arrived_bps = ack.sample.rate_bps.unwrap_or(0);
        }
    }

    pub(crate) fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight: u64) {
        if why == Congestion::Ecn && !matches!(self.state, State::Beyond(..)) {
            self.give_way(now);
        }
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.on_congestion(now, why, in_flight);
        }
    }

    pub(crate) fn on_rto(&mut self, now: Instant, in_flight: u64, pipe: u64) {
        // Before the first RTT the timeout was a guess.
        let says_nothing = in_flight <= FEW_SEGMENTS * u64::from(self.config.mss) || self.base.is_none();
        if !says_nothing && !matches!(self.state, State::Beyond(..)) {
            self.give_way(now);
        }
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.on_rto(now, in_flight, pipe);
        }
    }

    pub(crate) fn on_recovery_exit(&mut self) {
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.on_recovery_exit();
        }
    }

    /// Nothing was lost: it was late.
    pub(crate) fn undo(&mut self, now: Instant) {
        (self.rounds.lost, self.rounds.lost_segments, self.waiting) = (0, 0, None);
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.undo(now);
        }
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        self.config.window_limit_bytes = bytes.max(2 * u64::from(self.config.mss));
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.set_window_limit(bytes);
        }
    }

    /// The link carries another rate from now on. What the trains under way show is of the old one.
    /// `watched`: it is less than the operator says, and watched by all that is sent into it. What
    /// is tried there makes segments wait, too.
    pub(crate) fn set_link_rate(&mut self, payload_bps: u64, watched: bool) {
        self.is_watched = watched;
        if payload_bps == self.link_bps {
            return;
        }
        let falls = payload_bps < self.link_bps / 100 * FALLS_PERCENT;
        self.link_bps = payload_bps;
        self.config.fixed_rate_bps = Some(payload_bps);
        self.train = Train::default();
        self.waiting = None;
        self.forget_shown();
        if falls && watched {
            // All that were heard have waited: it was for the link.
            self.draining_rounds = DRAINING_ROUNDS;
            if matches!(self.state, State::Beyond(..)) {
                self.patience_rounds = TRIAL_ROUNDS;
                self.state = State::Link(0);
            }
        }
        let above = |rate: u64| rate >= payload_bps / 100 * SLOW_PERCENT;
        if matches!(&self.state, State::Trial(trial) if above(trial.rate_bps)) {
            self.state = State::Link(0);
        }
    }

    /// What lies behind the link has carried its rate before.
    pub(crate) fn trust_path(&mut self, bytes: u64) {
        self.trusted_bytes = bytes;
        self.initial_window = self.wanted_initial_window();
    }

    fn wanted_initial_window(&self) -> u64 {
        initial_window(&self.config, self.config.window_limit_bytes, self.trusted_bytes)
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.config.mss = mss.max(1);
        if self.delivered == 0 {
            self.initial_window = self.wanted_initial_window();
        }
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.set_mss(mss);
        }
    }

    pub(crate) fn cwnd(&self) -> u64 {
        match &self.state {
            State::Beyond(bbr, _) => bbr.cwnd(),
            State::Link(_) => self.window(self.link_bps),
            State::Trial(trial) => self.window(trial.rate_bps),
        }
    }

    /// What may be sent a second time: nothing where something speaks of a bottleneck behind the
    /// link, and only the end until something has come through without waiting.
    pub(crate) fn copies(&self) -> Copies {
        match self.state {
            State::Link(_) if self.waiting.is_some() => Copies::None,
            // The answer to each takes room from the others on the way back.
            State::Link(_) if self.waited_back() > LATER_MAX => Copies::None,
            State::Link(_) if self.free < TRAINS || !self.has_shown(self.link_bps) => Copies::End,
            State::Link(_) => Copies::All,
            State::Trial(_) | State::Beyond(..) => Copies::None,
        }
    }

    /// Losses or waiting have shown less room than the link has.
    pub(crate) fn has_given_way(&self) -> bool {
        matches!(self.state, State::Beyond(..))
    }

    pub(crate) fn in_startup(&self) -> bool {
        matches!(&self.state, State::Beyond(bbr, _) if bbr.in_startup())
    }

    /// Twice what the path holds at this rate: late acknowledgements, and repetitions under way, do
    /// not stop it. Until the first trains have come without a queue, as in slow start.
    fn window(&self, rate_bps: u64) -> u64 {
        let Some(base) = self.base.filter(|_| self.free >= TRAINS) else {
            return self.initial_window.saturating_add(self.delivered).min(self.config.window_limit_bytes);
        };
        // Delay that jitters is later than its smallest all the time, where much is under way.
        let usual = self.rounds.min_rtt_before.unwrap_or(base).clamp(base, base * 2 + LATER_MAX);
        let answered = usual + self.config.acks_wait.max(self.waited_back());
        let holds = u128::from(rate_bps) * answered.as_nanos() / 8 / SECOND_NS;
        let twice = u64::try_from(holds.saturating_mul(2)).unwrap_or(u64::MAX);
        twice.max(self.initial_window).min(self.config.window_limit_bytes)
    }

    /// How long acknowledgements wait on their way back, of late.
    fn waited_back(&self) -> Duration {
        self.rounds.waited_back.max(self.rounds.waited_back_before)
    }

    /// Where an RTT begins to show a queue.
    fn queue_from(&self) -> Option<Duration> {
        // The smallest RTT may be that of a small packet.
        let packet = self.packet_time(self.link_bps);
        let late = self.config.acks_wait;
        let parts = if self.is_watched { WATCHED_QUEUE_PARTS } else { QUEUE_PARTS };
        self.base.map(|base| base + (base / parts).max(QUEUE_MIN).max(self.spread()) + packet + late)
    }

    /// How long a segment takes at this rate.
    fn packet_time(&self, rate_bps: u64) -> Duration {
        let ns = u128::from(self.config.mss) * 8 * SECOND_NS / u128::from(rate_bps.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// How much RTTs vary from train to train.
    fn spread(&self) -> Duration {
        self.jitter.mean * SPREAD_DIFFERENCES
    }

    /// What a train shows that is complete now.
    fn follow_train(&mut self, ack: &Ack) -> Option<Shown> {
        let from = self.queue_from()?;
        self.rounds.unqueued |= ack.rtt.is_some_and(|rtt| rtt < from);
        if self.train.since == Instant::ZERO {
            self.train.since = ack.now;
            return None;
        }
        self.train.bytes += ack.acked_bytes;
        if let Some(rtt) = ack.rtt {
            self.train.min_rtt = Some(self.train.min_rtt.map_or(rtt, |min| min.min(rtt)));
            self.train.last_rtt = Some(rtt);
        }
        let took = ack.now.since(self.train.since);
        let enough = self.train.bytes >= TRAIN_SEGMENTS * u64::from(self.config.mss);
        if !enough || took < QUEUE_MIN / 4 {
            return None;
        }
        let rtt_before = self.train.last_rtt.or(self.train.rtt_before);
        let min_rtt_before = self.train.min_rtt.or(self.train.min_rtt_before);
        let next = Train { since: ack.now, rtt_before, min_rtt_before, ..Train::default() };
        let train = core::mem::replace(&mut self.train, next);
        // Without an RTT, as of what has been sent twice, it says nothing.
        let (min_rtt, last_rtt) = train.min_rtt.zip(train.last_rtt)?;
        if let Some(before) = train.min_rtt_before {
            self.jitter.follow(before, min_rtt);
        }
        let first_rtt = train.rtt_before.or(self.base).unwrap_or(last_rtt);
        let delivered = self.delivered;
        let begin_delivered = delivered.saturating_sub(train.bytes);
        Some(Shown {
            has_queue: min_rtt >= from,
            grown: last_rtt.saturating_sub(first_rtt),
            took,
            begin: Mark { at: train.since, rtt: first_rtt, delivered: begin_delivered, lost: self.lost },
            end: Mark { at: ack.now, rtt: last_rtt, delivered, lost: self.lost },
        })
    }

    /// Whether this train, with those before it, shows a bottleneck elsewhere.
    fn is_held_up(&mut self, shown: &Shown) -> bool {
        self.note_shown(shown);
        if self.free < TRAINS {
            self.free = if shown.has_queue || shown.grown > shown.took / 4 { 0 } else { self.free + 1 };
        }
        let sent_at = match self.state {
            State::Trial(trial) => trial.rate_bps,
            _ => self.link_bps,
        };
        // What waits now may have begun to with the train before.
        let begin = self.train_began.replace(shown.begin).unwrap_or(shown.begin);
        if self.draining_rounds > 0 || !shown.has_queue {
            self.waiting = None;
            self.note_room(1);
            return false;
        }
        let spread = self.spread();
        let least = GROWS_MIN.max(spread * 2);
        let slow_bps = sent_at / 100 * SLOW_PERCENT;
        let begun = Waiting { begin, middle: None, end: shown.end };
        let waiting = self.waiting.get_or_insert(begun);
        waiting.end = shown.end;
        let grown = shown.end.rtt.saturating_sub(waiting.begin.rtt);
        let much = MUCH_GROWTH + spread;
        // Before anybody knows how much it varies it takes twice as much, and more than it may.
        let unknown = self.base.unwrap_or_default() / SPREAD_PARTS;
        let much = if self.jitter.is_known() { much } else { much + much.max(unknown) };
        if grown > much && shown.end.rate_bps_since(&waiting.begin) < sent_at / 2 {
            return true;
        }
        // Spurious losses are taken back, so fewer may be counted at the end.
        let (end, begin) = (shown.end.lost, waiting.begin.lost);
        let lost = (end.0.saturating_sub(begin.0), end.1.saturating_sub(begin.1));
        let came = shown.end.delivered.saturating_sub(waiting.begin.delivered);
        // Who waits and is lost has found a full buffer.
        if lost.1 >= LOST_SEGMENTS_MIN && lost.0 * 100 > (lost.0 + came) * LOSS_AGAIN_PERCENT {
            return true;
        }
        if shown.end.at.since(waiting.begin.at) < least / 2 {
            return false;
        }
        let middle = *waiting.middle.get_or_insert(shown.end);
        let took = shown.end.at.since(middle.at);
        if took < least / 2 {
            return false;
        }
        let grown = shown.end.rtt.saturating_sub(middle.rtt);
        let explained = took / 100 * (100 - SLOW_PERCENT as u32);
        let is_slow = shown.end.rate_bps_since(&middle) < slow_bps;
        if is_slow && grown > explained + GROWTH_MIN.max(spread) {
            return true;
        }
        if !is_slow {
            self.note_room(TRAINS);
        }
        if took > least * 2 {
            // It does not grow any more: from here on anew.
            let begin = middle;
            self.waiting = Some(Waiting { begin, middle: Some(shown.end), end: shown.end });
        }
        false
    }

    /// So many trains of a trial have found room.
    fn note_room(&mut self, trains: u32) {
        if let State::Trial(trial) = &mut self.state
            && trial.rounds > 0
        {
            trial.trains += trains;
        }
    }

    /// BBR goes on from what has arrived, and CUBIC beside it where delay varies.
    fn give_way(&mut self, now: Instant) {
        let seen = self.waiting.map(|w| w.end.rate_bps_since(&w.middle.unwrap_or(w.begin)));
        let rate = seen.unwrap_or(self.arrived_bps);
        let rate = rate.min(self.link_bps);
        let has_moved = self.found_bps < rate / MOVES_PERCENT * 100;
        self.moves |= has_moved;
        let found_at = *self.found_at.get_or_insert(now);
        self.found_bps = rate;
        if has_moved || now.since(found_at) < STEADY_AFTER {
            self.patience_rounds = TRIAL_ROUNDS;
        } else if !matches!(self.state, State::Link(PROVEN_ROUNDS..)) {
            self.patience_rounds = (self.patience_rounds * 2).min(TRIAL_ROUNDS_MAX);
        }
        let bbr = match self.base {
            Some(base) if rate > 0 => {
                let packets = 2 * self.packet_time(rate);
                let varies = self.moves || self.spread() > QUEUE_MIN.max(packets);
                CubicBbr::resume(&self.config, now, (rate, base), varies)
            }
            // Nothing has arrived yet.
            _ => CubicBbr::new(&Config {
                initial_window_segments: self.config.initial_window_segments.min(FEW_SEGMENTS as u32),
                handshake_rtt: self.base,
                ..self.config
            }),
        };
        self.waiting = None;
        self.train = Train::default();
        // What follows has been found out.
        self.free = TRAINS;
        self.state = State::Beyond(Box::new(bbr), 0);
    }

    fn start_trial(&mut self, rate_bps: u64) {
        (self.waiting, self.heavy) = (None, None);
        self.train = Train::default();
        self.rounds.lossy = false;
        self.state = if rate_bps >= self.link_bps {
            State::Link(0)
        } else {
            State::Trial(Trial { rate_bps: rate_bps.max(8_000), rounds: 0, trains: 0 })
        };
    }

    /// A round trip without objections.
    fn go_on(&mut self) {
        match &mut self.state {
            State::Link(rounds) => {
                *rounds = rounds.saturating_add(1);
                if *rounds >= PROVEN_ROUNDS {
                    self.patience_rounds = TRIAL_ROUNDS;
                }
            }
            State::Trial(trial) => {
                // What left after the rate had changed is acknowledged in the second round trip.
                trial.rounds = trial.rounds.saturating_add(1);
                if trial.rounds >= 2 && trial.trains >= TRAINS {
                    let next = trial.rate_bps / 2 * 3;
                    self.start_trial(next);
                }
            }
            State::Beyond(..) => {}
        }
    }
}

fn initial_window(config: &Config, limit: u64, trusted_bytes: u64) -> u64 {
    let mss = u64::from(config.mss.max(1));
    let wanted = (u64::from(config.initial_window_segments.max(1)) * mss).min(limit);
    wanted.min(INITIAL_BYTES_MAX.max(FEW_SEGMENTS * mss).saturating_add(trusted_bytes))
}
