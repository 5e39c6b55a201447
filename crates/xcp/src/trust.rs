//! Whether what routers say is believed: of one flow, or of all flows between two gateways.
//!
//! Nothing proves that a router tells the truth, or that the narrowest queue of the way is its own.
//! But what it says has consequences. More than a path carries shows as a queue and as losses, and
//! less than it carries shows as none. The draft has the sender fall back for good at the first
//! loss (section 4.1.1); this one knows corruption from congestion, and tries again.
//!
//! A round trip is one of the clock here, so that the flows of one context share it.

use farlink_wire::{Duration, Instant};

use crate::reports::Reported;

/// Round trips without a word after which there is no router that speaks.
const ROUNDS_UNHEARD: u32 = 2;
/// Timeouts without a word, likewise.
const TIMEOUTS_UNHEARD: u32 = 2;
/// A round trip of more than so many eighths of the shortest one has waited in a queue. A router's
/// own queue is shorter at its start: 0.35 of what the path holds at most.
const RISEN_EIGHTHS: u32 = 11;
/// One of less has hardly waited.
const FLAT_EIGHTHS: u32 = 9;
/// What routers give is looked at over so many round trips.
const GAIN_ROUNDS: usize = 8;
/// They still give more where the sum of that is above this part of what is allowed.
const STILL_GIVES: f64 = 0.125;
/// So many times what arrives is not what the path carries, in so many round trips one after the
/// other: of what this flow may send, or of what all flows to the same gateway may, as that one
/// reports it.
const CONTRADICTS: f64 = 2.0;
const CONTRADICTS_ROUNDS: u32 = 10;
/// A queue that nobody sees takes no more in a round trip: half of what comes in, by the draft's
/// constants (0.1 changes hands, and 0.4 of what is above the capacity).
const ABSURD: f64 = 0.75;
/// Round trips at the least allowance, without a queue.
const STARVED_ROUNDS: u32 = 4;
/// Round trips in which a flow has found its rate, if it has nobody to take it from.
const SETTLED_ROUNDS: u32 = 16;
/// After a doubt routers are tried again in so many round trips, each time twice as many.
const HOLD_ROUNDS: u32 = 64;
const HOLD_ROUNDS_MAX: u32 = 1024;
/// Round trips of trust after which earlier doubts are forgotten.
const FORGET_ROUNDS: u32 = 128;
/// What may be under way is at most so many times what has arrived in a round trip, or so many
/// packets; the second number holds after a doubt.
pub(crate) const UNPROVEN_TIMES: u64 = 4;
const UNPROVEN_TIMES_AGAIN: u64 = 3;
pub(crate) const UNPROVEN_PACKETS: u64 = 2048;
/// What has arrived is remembered for one to two of these, round trips.
const PROVEN_ROUNDS: u32 = 8;

/// Why routers are not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubt {
    /// None speaks: none has yet, or none has for two round trips.
    Silent,
    /// A packet was marked (RFC 3168): a queue that speaks another language is filling.
    Marked,
    /// Packets are lost, round trips have become longer, and routers still give more: the queue is
    /// none of theirs.
    Overrun,
    /// For ten round trips they have given more than twice what arrives.
    Contradicted,
    /// They take more in a round trip than any queue could, and round trips show none.
    Absurd,
    /// They leave next to nothing, and round trips show no queue.
    Starved,
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// What routers say is followed from now on.
    Believed,
    /// It is not any more.
    Doubted(Doubt),
}

/// What an acknowledgement shows. All bytes are of the same kind, of packets or of payload.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// A round trip that it has measured.
    pub rtt: Option<Duration>,
    /// The smoothed one; zero while unknown.
    pub srtt: Duration,
    /// The shortest of late; zero while unknown.
    pub min_rtt: Duration,
    /// Bytes that it shows for the first time to have arrived.
    pub arrived_bytes: u64,
    /// Bytes that were under way.
    pub in_flight_bytes: u64,
    /// Bytes that may be.
    pub window_bytes: u64,
    /// The fewest that ever may be.
    pub least_bytes: u64,
    /// The source had less to send than was allowed.
    pub is_idle: bool,
}

/// The round trip under way.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    began: Instant,
    /// What might be under way when it began, and a round trip before that, bytes.
    window_bytes: u64,
    window_before_bytes: u64,
    arrived_bytes: u64,
    least_rtt: Option<Duration>,
    /// What routers have given, less what they have taken, and the latter alone; bytes a second.
    gained: f64,
    taken: f64,
    is_heard: bool,
    /// What is allowed was under way, nearly.
    is_used: bool,
}

/// What is thought of the routers on a way.
#[derive(Clone, Debug)]
pub struct Trust {
    doubt: Option<Doubt>,
    has_believed: bool,
    /// Round trips until they may speak again, and after the next doubt.
    hold_rounds: u32,
    next_hold_rounds: u32,
    /// Round trips since they are believed.
    believed_rounds: u32,
    round: Round,
    srtt: Duration,
    min_rtt: Duration,
    /// Round trips in which something is lost, this one and the one before.
    is_lossy: [bool; 2],
    unheard: u32,
    /// Timeouts since a word.
    timeouts: u32,
    gains: [f64; GAIN_ROUNDS],
    contradictions: u32,
    /// What the gateway at the other end has reported last, of all flows to it.
    reported: Option<Reported>,
    starved: u32,
    /// The most that has arrived in a round trip of late, and before that; and for how long, bytes
    /// and round trips.
    proven_bytes: [u64; 2],
    proven_rounds: u32,
    news: Option<News>,
}

impl Default for Trust {
    fn default() -> Self {
        Self::new()
    }
}

impl Trust {
    /// None has spoken yet. The first one that does is believed.
    #[must_use]
    pub fn new() -> Self {
        Self {
            doubt: Some(Doubt::Silent),
            has_believed: false,
            hold_rounds: 0,
            next_hold_rounds: HOLD_ROUNDS,
            believed_rounds: 0,
            round: Round::default(),
            srtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            is_lossy: [false; 2],
            unheard: 0,
            timeouts: 0,
            gains: [0.0; GAIN_ROUNDS],
            contradictions: 0,
            reported: None,
            starved: 0,
            proven_bytes: [0; 2],
            proven_rounds: 0,
            news: None,
        }
    }

    /// What routers say is followed.
    #[must_use]
    pub fn believes(&self) -> bool {
        self.doubt.is_none()
    }

    /// Why it is not; `None`: it is.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// They have been believed before, or are.
    #[must_use]
    pub fn has_believed(&self) -> bool {
        self.has_believed
    }

    /// They are asked for more: they are believed, or would be if they spoke.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.believes() || self.hold_rounds == 0
    }

    /// What has changed since the last time.
    pub fn take_news(&mut self) -> Option<News> {
        self.news.take()
    }

    /// The most that has arrived in a round trip of late, bytes.
    #[must_use]
    pub fn proven_bytes(&self) -> u64 {
        let is_new = self.round.arrived_bytes.min(self.round.window_bytes);
        self.proven_bytes.into_iter().max().unwrap_or(0).max(is_new)
    }

    /// They have been believed for so long that what is sent is what the path carries.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.believed_rounds >= SETTLED_ROUNDS
    }

    /// What may be under way at least and at most, whatever routers say; in packets of this size.
    /// They take no more than half in a round trip, as a loss would. What they give is proven by
    /// what arrives.
    #[must_use]
    pub fn bounds_bytes(&self, packet_bytes: u64) -> (u64, u64) {
        let unproven = UNPROVEN_PACKETS.saturating_mul(packet_bytes);
        let has_doubted = self.next_hold_rounds > HOLD_ROUNDS;
        let times = if has_doubted { UNPROVEN_TIMES_AGAIN } else { UNPROVEN_TIMES };
        let most = self.proven_bytes().saturating_mul(times).max(unproven);
        ((self.round.window_bytes / 2).min(most), most)
    }

    /// The receiver has told its sum, which has changed by so many bytes a second since the last
    /// time; so many bytes may be under way. Returns whether it is followed.
    pub fn on_sum(&mut self, change_bytes_per_s: i32, window_bytes: u64) -> bool {
        self.round.is_heard = true;
        (self.unheard, self.timeouts) = (0, 0);
        if !self.asks() {
            return false;
        }
        if !self.believes() {
            self.believe(window_bytes);
        }
        let change = f64::from(change_bytes_per_s);
        self.round.gained += change;
        self.round.taken -= change.min(0.0);
        if self.is_absurd() {
            self.disbelieve(Doubt::Absurd);
        }
        self.believes()
    }

    /// A packet has been lost.
    pub fn on_loss(&mut self) {
        self.is_lossy = [true, true];
    }

    /// A packet has come marked.
    pub fn on_mark(&mut self) {
        self.disbelieve(Doubt::Marked);
    }

    /// The gateway at the other end has reported this, of all flows that share what is allowed.
    /// Flows of others may be in it, so it is what arrives at most.
    pub fn on_report(&mut self, reported: Reported) {
        self.reported = Some(reported);
    }

    /// Another flow of the same context has found out that they are not to be believed.
    pub fn share_doubt(&mut self, why: Doubt) {
        self.disbelieve(why);
    }

    /// Who has spoken for this one speaks no longer: a round trip without a word is enough.
    pub fn expect_word(&mut self) {
        self.unheard = ROUNDS_UNHEARD;
    }

    /// Round trips until they may speak again; 0: the next word is followed.
    #[must_use]
    pub fn hold_rounds(&self) -> u32 {
        self.hold_rounds
    }

    /// Nothing at all is answered. Once a repetition has got lost; twice, it is silence. Who speaks
    /// when something is answered again, is believed again.
    pub fn on_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= TIMEOUTS_UNHEARD {
            self.believed_rounds = self.believed_rounds.max(HOLD_ROUNDS);
            self.disbelieve(Doubt::Silent);
        }
    }

    /// Something has arrived.
    pub fn on_ack(&mut self, now: Instant, seen: &Seen) {
        (self.srtt, self.min_rtt) = (seen.srtt, seen.min_rtt);
        let round = &mut self.round;
        round.least_rtt = round.least_rtt.into_iter().chain(seen.rtt).min();
        round.arrived_bytes = round.arrived_bytes.saturating_add(seen.arrived_bytes);
        let is_full = seen.in_flight_bytes.saturating_mul(4) >= seen.window_bytes.saturating_mul(3);
        round.is_used |= is_full && !seen.is_idle;
        if self.is_overrun(seen.window_bytes) {
            self.disbelieve(Doubt::Overrun);
        }
        let lasted = now.since(self.round.began);
        if !seen.srtt.is_zero() && lasted >= seen.srtt {
            self.end_round(now, lasted, seen);
        }
    }

    fn believe(&mut self, window_bytes: u64) {
        (self.doubt, self.has_believed, self.news) = (None, true, Some(News::Believed));
        (self.believed_rounds, self.contradictions, self.starved) = (0, 0, 0);
        self.gains = [0.0; GAIN_ROUNDS];
        self.round = Round {
            window_bytes,
            window_before_bytes: window_bytes,
            gained: 0.0,
            taken: 0.0,
            is_used: false,
            ..self.round
        };
    }

    fn disbelieve(&mut self, why: Doubt) {
        if !self.believes() {
            return;
        }
        (self.doubt, self.news) = (Some(why), Some(News::Doubted(why)));
        // A router that starts again is welcome at once. One that often comes and goes is not.
        let is_first = self.next_hold_rounds == HOLD_ROUNDS || self.believed_rounds >= HOLD_ROUNDS;
        let is_welcome = why == Doubt::Silent && is_first;
        self.hold_rounds = if is_welcome { 0 } else { self.next_hold_rounds };
        self.next_hold_rounds = (2 * self.next_hold_rounds).min(HOLD_ROUNDS_MAX);
    }

    /// Bytes a second, of a window.
    fn rate(window_bytes: u64, rtt: Duration) -> f64 {
        window_bytes as f64 / rtt.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The shortest round trip of this one is so many eighths of the shortest ever, at least.
    fn has_risen(&self, eighths: u32) -> bool {
        self.round.least_rtt.is_some_and(|rtt| !self.min_rtt.is_zero() && rtt * 8 >= self.min_rtt * eighths)
    }

    fn gained(&self) -> f64 {
        self.gains.iter().sum::<f64>() + self.round.gained
    }

    fn is_absurd(&self) -> bool {
        let window = self.round.window_bytes.max(self.round.window_before_bytes);
        let is_known = !self.srtt.is_zero() && !self.min_rtt.is_zero();
        is_known
            && self.round.taken > ABSURD * Self::rate(window, self.min_rtt)
            && !self.has_risen(RISEN_EIGHTHS)
    }

    fn is_overrun(&self, window_bytes: u64) -> bool {
        let still_gives = || self.gained() > STILL_GIVES * Self::rate(window_bytes, self.srtt);
        self.is_lossy[0] && self.has_risen(RISEN_EIGHTHS) && still_gives()
    }

    fn end_round(&mut self, now: Instant, lasted: Duration, seen: &Seen) {
        // After a rest it says nothing of a rate.
        let is_whole = lasted < seen.srtt * 2;
        let arrived = Self::rate(self.round.arrived_bytes, lasted);
        // A queue makes round trips longer, and the path carries no more for that.
        self.prove((arrived * seen.min_rtt.as_secs_f64()) as u64);
        self.unheard = if self.round.is_heard { 0 } else { self.unheard.saturating_add(1) };
        self.gains.rotate_left(1);
        if let Some(newest) = self.gains.last_mut() {
            *newest = self.round.gained;
        }
        let is_used = self.round.is_used && is_whole;
        let is_too_much =
            |window_bytes, arrived| Self::rate(window_bytes, seen.min_rtt) > CONTRADICTS * arrived;
        let reported = self.reported.filter(|reported| reported.is_fresh(now, seen.srtt));
        let is_contradicted = is_used
            && self.gains.iter().sum::<f64>() >= 0.0
            && (is_too_much(seen.window_bytes, arrived)
                || reported.is_some_and(|r| is_too_much(r.window_bytes, r.bytes_per_s)));
        self.contradictions = if is_contradicted { self.contradictions + 1 } else { 0 };
        let is_starved = is_used && seen.window_bytes <= seen.least_bytes && !self.has_risen(FLAT_EIGHTHS);
        self.starved = if is_starved { self.starved + 1 } else { 0 };
        if self.believes() {
            self.judge();
        } else {
            self.hold_rounds = self.hold_rounds.saturating_sub(1);
        }
        self.is_lossy = [self.is_lossy[1], false];
        let window_before_bytes = self.round.window_bytes;
        self.round =
            Round { began: now, window_bytes: seen.window_bytes, window_before_bytes, ..Round::default() };
    }

    /// A round trip is over in which they were believed.
    fn judge(&mut self) {
        self.believed_rounds = self.believed_rounds.saturating_add(1);
        if self.believed_rounds >= FORGET_ROUNDS {
            self.next_hold_rounds = HOLD_ROUNDS;
        }
        if self.unheard >= ROUNDS_UNHEARD {
            self.disbelieve(Doubt::Silent);
        } else if self.contradictions >= CONTRADICTS_ROUNDS {
            self.disbelieve(Doubt::Contradicted);
        } else if self.starved >= STARVED_ROUNDS {
            self.disbelieve(Doubt::Starved);
        }
    }

    /// So many bytes have arrived in a round trip.
    fn prove(&mut self, bytes: u64) {
        let [now, before] = self.proven_bytes;
        self.proven_rounds += 1;
        if self.proven_rounds >= PROVEN_ROUNDS {
            (self.proven_bytes, self.proven_rounds) = ([bytes, now], 0);
        } else {
            self.proven_bytes = [now.max(bytes), before];
        }
    }
}
