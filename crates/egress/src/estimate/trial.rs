//! Does the link carry more than is declared? A declared rate is a ceiling, and is not exceeded for
//! long. But now and then, while nobody waits, a short train of data leaves twice as fast.
//!
//! How long the train took on its way shows by how much later its packets came than those before
//! it. What left in it, over the time in which it left and by which it came later, is a rate that
//! the link has carried. Of a link of the declared rate that is just this rate, however long what
//! was too much stands before it. Delay that varies by itself could look like more. So there is a
//! train only where delay is steady, and what is found counts once a second train has found as
//! much.

use std::collections::VecDeque;

use farlink_wire::time::{Duration, Instant};

use super::peer::{Sent, micros};
use super::{NS_PER_S, RateEstimate, Report, time_of};

/// A train takes so long, at least, and where hosts acknowledge.
const TRAIN_MIN: Duration = Duration::from_millis(20);
const TRAIN_MIN_OF_HOST: Duration = Duration::from_millis(30);
/// And this part (one over it) of a round trip, in which gateways report eight times.
const TRAIN_PARTS: u32 = 12;
/// And so many bytes at the rate that is known, at least: what is too much is four packets.
const TRAIN_BYTES_MIN: u64 = 6_000;
/// There is none that would take longer, or on slow links than this takes: it would be felt.
const TRAIN_MAX: Duration = Duration::from_millis(60);
const TRAIN_BYTES_SLOW: u64 = 3_000;
/// Nor one that would take so long, however slow the link.
const TRAIN_SLOW_MAX: Duration = Duration::from_secs(1);
/// It takes so many times as long as delay varies.
const NOISE_TIMES: u32 = 3;
/// A train is so many times as fast as what is known to be carried.
const FASTER: u64 = 2;
/// But no faster than so many times what is declared.
const FASTEST: u64 = 16;
/// Of what a train was to send too much, so much has to have left, percent.
const FILLED_PERCENT: u64 = 60;
/// A full packet.
const PACKET_BYTES: u64 = 1_500;
/// The reports of a train show more than is known by so much in the mean, percent, and one by so
/// much. Of a link that carries no more none does: what is taken for waiting can only be too much.
const MEAN_PERCENT: u64 = 115;
const MORE_PERCENT: u64 = 120;
/// Reports of packets that left so many times its length after its begin tell of it.
const TOLD_TIMES: u32 = 4;
/// The same, percent, of one that is faster than the first: after it no more leaves than is
/// declared, which soon looks like no more.
const TOLD_FASTER_PERCENT: u32 = 160;
/// So many trains in a row that nobody has told of, or that show more here and no more there, say
/// nothing. The next one comes soon.
const OPEN_MAX: u32 = 6;
/// How many have to, where hosts tell.
const REPORTS_OF_HOSTS: u32 = 3;
/// Reports that are looked at, of the time before a train, and how many it needs.
const BEFORE_MAX: usize = 32;
const BEFORE_MIN: usize = 6;
/// They come from so many round trips, or from so long where that is shorter, and from so long at
/// most where they are few.
const BEFORE_ROUNDS: u32 = 3;
const BEFORE_TIME: Duration = Duration::from_millis(150);
const BEFORE_TIME_MAX: Duration = Duration::from_secs(3);
/// Data has been waiting for so many round trips, and for so long, before a train.
const BUSY_ROUNDS: u32 = 4;
const BUSY_MIN: Duration = Duration::from_secs(8);
/// And before one that is to show what the last one has: that may have emptied the queue.
const BUSY_AGAIN_MIN: Duration = Duration::from_secs(2);
/// Before one that takes longer than is usual, on a slow link, for so many times as long.
const BUSY_TIMES: u32 = 200;
/// The next train after one that was in vain comes after so long, then after twice that, up to
/// this.
const VAIN_MIN: Duration = Duration::from_secs(120);
const VAIN_MAX: Duration = Duration::from_secs(3_600);
/// And after one that has found something, or could not be told from others, after so long.
const AGAIN: Duration = Duration::from_secs(3);

/// So much is sent, percent, until what a train has left before the link has gone.
const DRAINING_GAIN: u32 = 75;

/// What is known when it is asked whether it is time for a train.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// Bits per second.
    pub(super) declared_bps: u64,
    pub(super) rtt: Duration,
    /// Since when there has been data to send.
    pub(super) busy_since: Instant,
    /// Bytes that have left in all.
    pub(super) total_bytes: u64,
}

/// A packet that has arrived, as it was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) by: u32,
    pub(super) of_host: bool,
    pub(super) sent_at: Instant,
    /// By the two clocks, microseconds modulo 2^32.
    pub(super) delay_us: u32,
    /// Bytes that had left by then in all.
    pub(super) total_bytes: Option<u64>,
}

/// A train that has left, or does.
#[derive(Clone, Copy, Debug)]
struct Train {
    begun: Instant,
    until: Instant,
    bps: u64,
    /// What the link was known to carry, bits per second.
    known_bps: u64,
    declared_bps: u64,
    total_bytes: u64,
    /// What had left when it ended.
    end_bytes: Option<u64>,
    /// When the last that can tell of it will have.
    judged_at: Instant,
    by: u32,
    of_host: bool,
    /// Time between reports before it.
    apart: Duration,
    /// The smallest delay before it.
    delay_us: u32,
    reports: u32,
    sum_bps: u128,
    most_bps: u64,
}

impl Train {
    /// Reports of packets that left within this time of its begin count for it.
    fn report_window(&self) -> Duration {
        let lasts = self.until.since(self.begun);
        if self.known_bps > self.declared_bps {
            lasts / 100 * TOLD_FASTER_PERCENT
        } else {
            lasts * TOLD_TIMES
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    before: VecDeque<(Instant, Told)>,
    train: Option<Train>,
    next_at: Instant,
    /// How long the next one in vain puts off the one after it.
    vain: Duration,
    /// What the last two that have found something have found, bits per second.
    found_bps: [u64; 2],
    /// A faster train than the first shows nothing: too little data, or too few reports.
    is_short: bool,
    /// Trains in a row that say nothing.
    open: u32,
}

impl Trial {
    /// The same for another declared rate.
    pub(super) fn anew(&self) -> Self {
        Self { next_at: self.next_at, ..Self::default() }
    }

    /// The same after the link was found to carry less: what it has carried before, it has.
    pub(super) fn without_train(&self) -> Self {
        Self { train: None, before: VecDeque::new(), ..self.clone() }
    }

    /// What two trains have shown the link to carry, bits per second: more than is declared.
    pub(super) fn room_bps(&self) -> Option<u64> {
        let [last, before] = self.found_bps;
        Some(last.min(before)).filter(|bps| *bps > 0)
    }

    /// The rate of the train that leaves now.
    pub(super) fn sending_bps(&self) -> Option<u64> {
        self.train.filter(|train| train.end_bytes.is_none()).map(|train| train.bps)
    }

    /// When [`Self::follow`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let train = self.train?;
        Some(if train.end_bytes.is_none() { train.until } else { train.judged_at })
    }

    /// Time has come, and so much has left in all. Returns how much of a train in vain stands
    /// before the link, by its time there.
    pub(super) fn follow(&mut self, now: Instant, total_bytes: u64) -> Option<Duration> {
        let train = self.train.as_mut()?;
        if train.end_bytes.is_none() && now >= train.until {
            train.end_bytes = Some(total_bytes);
        }
        if now >= train.judged_at { self.judge(now) } else { None }
    }

    /// Whoever has something to send now waits for nobody else: a train may leave.
    pub(super) fn may_begin(&mut self, now: Instant, chance: &Chance) {
        let goes_on = self.found_bps[0] > 0 || self.open > 0;
        let patience = (chance.rtt * BUSY_ROUNDS).max(if goes_on { BUSY_AGAIN_MIN } else { BUSY_MIN });
        if self.train.is_some() || now < self.next_at || now.since(chance.busy_since) < patience {
            return;
        }
        let Some(&(_, newest)) = self.before.back() else { return };
        let by_it = || self.before.iter().filter(|(_, told)| told.by == newest.by);
        let lately = (chance.rtt * BEFORE_ROUNDS).max(BEFORE_TIME);
        let are_few = by_it().filter(|(at, _)| *at >= now - lately).count() < BEFORE_MIN;
        let since = now - if are_few { lately.max(BEFORE_TIME_MAX) } else { lately };
        let of_it = || by_it().filter(|(at, _)| *at >= since);
        let delays = || of_it().map(|(_, told)| told.delay_us.wrapping_sub(newest.delay_us) as i32);
        let (Some(least), Some(most)) = (delays().min(), delays().max()) else { return };
        let noise = Duration::from_micros(u64::from(most.abs_diff(least)));
        let [last, _] = self.found_bps;
        let known_bps = if self.is_short { chance.declared_bps } else { chance.declared_bps.max(last) };
        let bps = (known_bps * FASTER).min(chance.declared_bps.saturating_mul(FASTEST));
        let takes = if newest.of_host { TRAIN_MIN_OF_HOST } else { TRAIN_MIN };
        let takes = takes.max(chance.rtt / TRAIN_PARTS).max(noise * NOISE_TIMES);
        let slow = time_of(TRAIN_BYTES_SLOW, known_bps);
        let packets = time_of(TRAIN_BYTES_MIN, known_bps).min(slow.max(TRAIN_MAX));
        let takes = takes.max(packets);
        if takes > TRAIN_MAX && now.since(chance.busy_since) < takes * BUSY_TIMES {
            return;
        }
        if of_it().count() < BEFORE_MIN || takes > slow.max(TRAIN_MAX) || takes > TRAIN_SLOW_MAX {
            return;
        }
        // The last one of a few packets leaves on time, or a little later.
        let takes = if takes == packets { takes + time_of(PACKET_BYTES, bps) / 2 } else { takes };
        self.train = Some(Train {
            begun: now,
            until: now + takes,
            bps,
            known_bps,
            declared_bps: chance.declared_bps,
            total_bytes: chance.total_bytes,
            end_bytes: None,
            judged_at: now + takes * TOLD_TIMES + chance.rtt * 2 + takes.max(TRAIN_MAX),
            by: newest.by,
            of_host: newest.of_host,
            apart: now.since(since) / u32::try_from(of_it().count()).unwrap_or(u32::MAX).max(1),
            delay_us: newest.delay_us.wrapping_add_signed(least),
            reports: 0,
            sum_bps: 0,
            most_bps: 0,
        });
    }

    /// A packet has arrived.
    pub(super) fn hear(&mut self, now: Instant, told: Told) {
        if self.before.len() >= BEFORE_MAX {
            self.before.pop_front();
        }
        self.before.push_back((now, told));
        let Some(train) = &mut self.train else { return };
        let lasts = train.until.since(train.begun);
        let after = told.sent_at.since(train.begun);
        let counts = told.by == train.by && after >= lasts / 2 && after <= train.report_window();
        let Some(total_bytes) = told.total_bytes.filter(|_| counts && told.sent_at > train.begun) else {
            return;
        };
        let later_us = told.delay_us.wrapping_sub(train.delay_us) as i32;
        let took = after + Duration::from_micros(u64::try_from(later_us).unwrap_or(0));
        let bits = u128::from(total_bytes.saturating_sub(train.total_bytes)) * 8;
        let bps = u64::try_from(bits * NS_PER_S / took.as_nanos().max(1)).unwrap_or(u64::MAX);
        train.reports += 1;
        let bps = bps.min(train.bps);
        train.sum_bps += u128::from(bps);
        train.most_bps = train.most_bps.max(bps);
    }

    /// All that can tell of the train has.
    fn judge(&mut self, now: Instant) -> Option<Duration> {
        let train = self.train.take()?;
        let lasts = train.until.since(train.begun);
        let sent = train.end_bytes.unwrap_or(0).saturating_sub(train.total_bytes);
        let bytes_at =
            |bps: u64| u64::try_from(u128::from(bps) * lasts.as_nanos() / 8 / NS_PER_S).unwrap_or(u64::MAX);
        let planned = bytes_at(train.bps.saturating_sub(train.known_bps));
        let more = sent.saturating_sub(bytes_at(train.known_bps));
        let known_bps = train.known_bps;
        let stands = Some(time_of(more, known_bps));
        if more < planned / 100 * FILLED_PERCENT {
            // There was not enough to send. It may be so each time. What the first one has found
            // can be found another time.
            if self.found_bps[0] > 0 && !self.is_short {
                (self.is_short, self.next_at) = (true, now + AGAIN);
            } else {
                self.put_off(now, AGAIN * 4);
            }
            return stands;
        }
        let needs = if train.of_host { REPORTS_OF_HOSTS } else { 1 };
        let has_more = train.most_bps >= known_bps / 100 * MORE_PERCENT;
        let mean_bps = train.sum_bps / u128::from(train.reports.max(1));
        let is_more = has_more && mean_bps >= u128::from(known_bps / 100 * MEAN_PERCENT);
        if (train.reports < needs || has_more && !is_more) && self.open < OPEN_MAX {
            // Reports come at regular intervals, and might pass by each train.
            self.open += 1;
            self.next_at = now + AGAIN + train.apart / 4 * self.open;
            self.is_short |= self.found_bps[0] > 0 && train.report_window() * 2 < train.apart;
            return stands;
        }
        self.open = 0;
        let [last, before] = self.found_bps;
        if is_more && self.is_short && before > 0 {
            // It is known, and no faster one can be sent for now.
            self.is_short = false;
            self.put_off(now, VAIN_MIN);
            return None;
        }
        if is_more {
            self.found_bps = [train.most_bps, last];
            (self.vain, self.next_at) = (Duration::ZERO, now + AGAIN);
            return None;
        }
        self.put_off(now, VAIN_MIN);
        // What was found before is more than there is, or was a mistake.
        let most_bps = train.most_bps.min(last);
        let is_some = train.reports >= needs && most_bps >= train.declared_bps / 100 * MORE_PERCENT;
        self.found_bps = if is_some { [most_bps; 2] } else { [0; 2] };
        stands
    }

    /// The next train comes later by twice as much as the last time, by so much at least.
    fn put_off(&mut self, now: Instant, least: Duration) {
        self.vain = (self.vain * 2).clamp(least, VAIN_MAX);
        self.next_at = now + self.vain;
    }
}

impl RateEstimate {
    /// Bits per second that short trains at more than the declared rate have shown it to carry;
    /// `None`: no more than that, as far as is known.
    #[must_use]
    pub fn room_bps(&self) -> Option<u64> {
        self.trial.room_bps().filter(|_| self.is_as_declared())
    }

    /// Nobody waits but those who send a lot, since `busy_since`: it may be tried whether the link
    /// carries more than is declared.
    pub fn may_try(&mut self, now: Instant, busy_since: Instant) {
        let (Some(declared_bps), Some(rtt)) = (self.most_bps, self.rtt) else { return };
        let is_calm = self.is_as_declared() && self.gain >= 100 && !self.has_been_away();
        if is_calm {
            let total_bytes = self.sent.total_bytes();
            self.trial.may_begin(now, &Chance { declared_bps, rtt, busy_since, total_bytes });
        }
    }

    /// A packet that left then has arrived.
    pub(super) fn hear_of_train(
        &mut self,
        now: Instant,
        report: &Report,
        sent_at: Instant,
        sent: Option<Sent>,
    ) {
        if self.is_declared && !report.sent_again {
            let delay_us = report.arrived_us.wrapping_sub(micros(sent_at));
            let total_bytes = sent.and_then(|sent| sent.total_bytes);
            let (by, of_host) = (report.peer, report.of_host);
            self.trial.hear(now, Told { by, of_host, sent_at, delay_us, total_bytes });
        }
    }

    /// Time has come: what a train in vain has left before the link is drained.
    pub(super) fn follow_train(&mut self, now: Instant) {
        if let Some(stands) = self.trial.follow(now, self.sent.total_bytes()) {
            self.lowered = (now + stands * (100 / (100 - DRAINING_GAIN)), DRAINING_GAIN);
        }
    }
}
