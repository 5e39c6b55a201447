//! The budget of a link: what relays into it may hold, all flows together.
//!
//! A link of known rate and round trip is full while a round trip of data is on its way, of however
//! many flows. So relays into it share one budget: each may hold a multiple of what the others
//! leave of it. Those that need little hold little, and those that need much find room (Choudhury
//! and Hahne, Dynamic Queue Length Thresholds).
//!
//! There are two: what keeps the link full, for the policy that holds no more, and what has gone
//! soon when a gateway is stopped, for the one that holds more.

use farlink_wire::{Duration, Instant};

use super::Link;
use super::shares::{Asking, Entry};
use crate::ack_policy::AckPolicy;
use crate::arrivals::Arrivals;

/// The budget of a link in twentieths of its bandwidth-delay product: one product is on its way,
/// acknowledgements between gateways come a sixth of one late, and data waits for its turn.
const BUDGET_TWENTIETHS: u64 = 33;
/// A relay may hold so many times what is free.
const FREE_SHARES: u64 = 4;
/// The part of a budget (one over it) that windows which nobody has used yet may take from those
/// who use theirs; and that must be free for a relay to pause for it.
const FRESH_SHARE: u64 = 4;
/// The round trip of a link counts as this long at least: timers and acknowledgements take their
/// time, too.
const RTT_MIN: Duration = Duration::from_millis(20);
/// A full segment on Ethernet.
const SEGMENT_BYTES: u64 = 1460;
/// So many losses of the same bytes are reckoned with.
const LOSSES_IN_A_ROW: usize = 4;
/// Relays into a link whose rate only routers know may hold this part (one over it) of the pool.
const POOL_SHARE: u64 = 4;
/// Least budget of a link: two super-segments.
const BUDGET_MIN_BYTES: u64 = 128 << 10;
/// What is held for a link when a gateway is stopped has gone so soon.
const DRAINS_WITHIN: Duration = Duration::from_secs(2);
/// Or so many bandwidth-delay products, if that is more.
/// With a loss in a hundred, two cost one connection 5 per cent more, and eight gain nothing.
const DRAINS_PRODUCTS: u64 = 4;
/// And what a source sends at first (RFC 6928).
const DRAINS_MIN_BYTES: u64 = 10 * SEGMENT_BYTES;

/// Connections that are open and silent are expected to begin together for one or two of these.
const SILENT_PERIOD: Duration = Duration::from_secs(10);

/// How far the source of a relay is, and what the relay holds of it, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nothing has come.
    Silent,
    /// Nothing of what has come is acknowledged.
    Begins(u32),
    /// Something is.
    Goes(u32),
}

/// What is booked for one link.
#[derive(Debug)]
pub struct Budget {
    rate_bps: Option<u64>,
    rtt: Option<Duration>,
    /// Without losses.
    clean_budget_bytes: Option<u64>,
    /// That is a part of the pool: nobody knows what fills the link.
    is_of_pool: bool,
    /// So many times as much, in thousandths, because of the link's losses.
    loss_permille: u64,
    /// How often what was promised grows old.
    period: Duration,
    held_bytes: u64,
    relays: usize,
    /// Promised to sources in this period and the one before, and not used yet.
    fresh: [u64; 2],
    /// Connections that began in these two periods and have not sent anything yet.
    opened: [usize; 2],
    fresh_since: Instant,
    /// The same of two longer periods.
    silent: [usize; 2],
    silent_since: Instant,
    /// Handshakes, over whichever link.
    arrivals: Arrivals,
}

impl Budget {
    /// Of a link whose rate and round trip are these, as far as they are known.
    #[must_use]
    pub fn new(rate_bps: Option<u64>, rtt: Option<Duration>) -> Self {
        let mut new = Self {
            rate_bps: None,
            rtt: None,
            clean_budget_bytes: None,
            is_of_pool: false,
            loss_permille: 1000,
            period: period(rtt),
            arrivals: Arrivals::new(period(rtt)),
            held_bytes: 0,
            relays: 0,
            fresh: [0; 2],
            opened: [0; 2],
            fresh_since: Instant::ZERO,
            silent: [0; 2],
            silent_since: Instant::ZERO,
        };
        new.follow(rate_bps, rtt);
        new
    }

    /// The rate or the round trip has changed, or has become known.
    pub fn follow(&mut self, rate_bps: Option<u64>, rtt: Option<Duration>) {
        (self.rate_bps, self.rtt) = (rate_bps, rtt);
        self.clean_budget_bytes = rate_bps.zip(rtt).and_then(|(rate, rtt)| budget(rate, rtt));
        self.is_of_pool = false;
        self.follow_rtt(rtt);
    }

    /// Nobody knows what fills the link: relays into it may hold their part of such a pool.
    pub fn follow_pool(&mut self, pool_bytes: usize, rtt: Option<Duration>) {
        (self.rate_bps, self.rtt) = (None, rtt);
        let pool_bytes = u64::try_from(pool_bytes).unwrap_or(u64::MAX);
        self.clean_budget_bytes = Some((pool_bytes / POOL_SHARE).max(BUDGET_MIN_BYTES));
        self.is_of_pool = true;
        self.follow_rtt(rtt);
    }

    fn follow_rtt(&mut self, rtt: Option<Duration>) {
        if self.period != period(rtt) {
            self.period = period(rtt);
            self.arrivals.follow(self.period);
        }
    }

    /// A handshake begins, over whichever link.
    pub fn handshake_begins(&mut self, now: Instant) {
        self.arrivals.begin(now);
    }

    /// The one that began at `syn_at` is complete.
    pub fn handshake_completes(&mut self, syn_at: Instant) {
        self.arrivals.complete(syn_at);
    }

    /// A relay into the link joins with this, or leaves with it.
    pub fn book(&mut self, entry: &Entry, joins: bool) {
        let bytes = u64::from(entry.held_bytes.saturating_sub(entry.sacked_bytes));
        let one = usize::from(entry.held_bytes > 0);
        if joins {
            self.held_bytes += bytes;
            self.relays += one;
        } else {
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            self.relays = self.relays.saturating_sub(one);
        }
    }

    /// What relays into the link hold, but for what only waits behind a repetition, bytes.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// So many bytes have been sent into a link, and so many of them were lost. What comes behind a
    /// loss waits until it is repaired, a round trip and a half later, and longer where repetitions
    /// are lost, too.
    pub fn losses_changed(&mut self, (sent, lost): (u64, u64)) {
        if lost == 0 {
            // So it is with nearly every acknowledgement of a clean link.
            self.loss_permille = 1000;
            return;
        }
        let sent = sent.max(1);
        // Segments of a round trip that are lost so many times, in thousandths.
        let mut expected = self.clean_budget_bytes.unwrap_or(0) / SEGMENT_BYTES * 1000;
        self.loss_permille = 1000;
        for _ in 0..LOSSES_IN_A_ROW {
            expected =
                u64::try_from(u128::from(expected) * u128::from(lost) / u128::from(sent)).unwrap_or(u64::MAX);
            self.loss_permille += expected.min(1000) * 3 / 2;
        }
    }

    /// A connection begins whose data will go into a link.
    pub fn open(&mut self, now: Instant) {
        self.age(now);
        for [newest, _] in [&mut self.opened, &mut self.silent] {
            *newest += 1;
        }
    }

    /// Its first data has come.
    pub fn began(&mut self) {
        for [newest, older] in [&mut self.opened, &mut self.silent] {
            let one = if *older > 0 { older } else { newest };
            *one = one.saturating_sub(1);
        }
    }

    /// A source was promised room for `bytes` more on its way into a link.
    pub fn promise(&mut self, now: Instant, bytes: u32) {
        self.age(now);
        let [newest, _] = &mut self.fresh;
        *newest += u64::from(bytes);
    }

    /// A source has used `bytes` of what it was promised.
    pub fn arrived(&mut self, now: Instant, bytes: u32) {
        self.age(now);
        let [newest, older] = &mut self.fresh;
        let from_older = u64::from(bytes).min(*older);
        *older -= from_older;
        *newest = newest.saturating_sub(u64::from(bytes) - from_older);
    }

    /// For how many connections whose handshake is under way a relay makes room: for all that are
    /// expected in its own first round trip, and later only for so many that handshakes that are
    /// never finished leave most to those that speak.
    #[must_use]
    pub fn arriving(&self, now: Instant, asking: Asking) -> usize {
        if asking.half_open == 0 {
            return 0;
        }
        let expected = self.arrivals.expected(now, asking.handshake).min(asking.half_open);
        if asking.age <= self.period { expected } else { expected.min(self.relays) }
    }

    /// When a connection that has little room because of those that are expected looks again
    /// whether they have come.
    #[must_use]
    pub fn looks_again(&self, now: Instant, asking: Asking) -> Option<Instant> {
        let waits = asking.age <= self.period * 2 && self.arriving(now, asking) > 0;
        waits.then(|| now + self.arrivals.width())
    }

    /// Bytes that a relay into this link may hold, when it holds `held_bytes` now and `more` others
    /// are about to begin; `None` where the link has no budget.
    #[must_use]
    pub fn share(&self, held_bytes: u32, more: usize) -> Option<u32> {
        let (budget, equal) = (self.whole_budget()?, u64::from(self.equal_share(more)?));
        let share = self.part_of((budget, equal), held_bytes, more);
        Some(u32::try_from(share).unwrap_or(u32::MAX))
    }

    /// The same of any budget, of which `equal` would be the equal part.
    fn part_of(&self, (all, equal): (u64, u64), held_bytes: u32, more: usize) -> u64 {
        let coming = u64::try_from(more).unwrap_or(u64::MAX);
        let reserved = all.saturating_mul(coming) / self.sharers_with(more);
        let fresh = self.fresh.iter().sum::<u64>().saturating_add(reserved);
        let share = |fresh: u64| {
            let free = all.saturating_sub(self.held_bytes.saturating_add(fresh));
            u64::from(held_bytes).saturating_add(free).saturating_mul(FREE_SHARES) / (FREE_SHARES + 1)
        };
        // What sources were promised and have not sent yet is on its way; but those that send
        // nothing leave the others their equal parts.
        share(fresh).max(share(fresh.min(all / FRESH_SHARE)).min(equal))
    }

    /// Relays that hold data for this link, and connections over it that have begun and have not
    /// sent anything yet.
    #[must_use]
    pub fn sharers(&self) -> u64 {
        u64::try_from(self.relays + self.opened.iter().sum::<usize>()).unwrap_or(u64::MAX)
    }

    /// The same with all that are open for longer and still silent: as a rule they begin together.
    /// Who takes much before the others then waits, and its program with it, for as long as that
    /// takes beside them.
    fn sharers_or_silent(&self) -> u64 {
        let silent = self.silent.iter().sum::<usize>().max(self.opened.iter().sum());
        u64::try_from(self.relays + silent).unwrap_or(u64::MAX).max(1)
    }

    /// The same with so many more that are about to begin; at least one.
    #[must_use]
    pub fn sharers_with(&self, more: usize) -> u64 {
        self.sharers().saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).max(1)
    }

    /// Bytes that each of the relays into this link would have, with those that have begun to
    /// speak, and `more` that are about to; `None` where the link has no budget.
    #[must_use]
    pub fn equal_share(&self, more: usize) -> Option<u32> {
        let each = self.budget()? / self.sharers_with(more);
        Some(u32::try_from(each + SEGMENT_BYTES / 2).unwrap_or(u32::MAX))
    }

    /// A relay into this link that has shown its source `shown_bytes` at most is worth a pause to
    /// show it more: much of the budget is free, or it has less than half its part. Always where
    /// the link has no budget.
    #[must_use]
    pub fn is_worth_a_pause(&self, shown_bytes: u32) -> bool {
        let Some(budget) = self.budget() else { return true };
        let used = self.held_bytes + self.fresh.iter().sum::<u64>();
        let poor = self.equal_share(0).is_some_and(|equal| shown_bytes < equal / 2);
        poor || used < budget - budget / FRESH_SHARE
    }

    /// Bytes that a relay into this link may hold so that all is gone soon when the gateway is
    /// stopped; `None` where the rate is not known. `more` others are about to begin. What is on
    /// its way goes on for so long `beside` the link's round trip.
    #[must_use]
    pub fn drainable(&self, stage: Stage, more: usize, beside: Duration) -> Option<u32> {
        let rate_bps = self.rate_bps?;
        let carries = |time: Duration| {
            u64::try_from(u128::from(rate_bps) * time.as_micros() / 8_000_000).unwrap_or(u64::MAX)
        };
        let product = carries(self.rtt.unwrap_or_default().max(RTT_MIN));
        let full = product.saturating_mul(DRAINS_PRODUCTS).saturating_add(carries(beside));
        let all = full.max(carries(DRAINS_WITHIN)).max(DRAINS_MIN_BYTES);
        let equal = all / self.sharers_with(more) + SEGMENT_BYTES / 2;
        let share = match stage {
            // It gets its part at once; those that hold more have to wait.
            Stage::Silent => equal,
            Stage::Begins(held_bytes) => {
                let beside_silent = (all / self.sharers_or_silent()).max(product / 2);
                self.part_of((all, equal), held_bytes, more).min(beside_silent)
            }
            Stage::Goes(held_bytes) => self.part_of((all, equal), held_bytes, more),
        };
        // However short the round trip is: acknowledgements wait elsewhere than before a link, too.
        let alone = full.max(all / 2);
        Some(u32::try_from(share.min(alone)).unwrap_or(u32::MAX))
    }

    /// The relays into this link share a budget.
    #[must_use]
    pub fn has_budget(&self) -> bool {
        self.clean_budget_bytes.is_some()
    }

    fn budget(&self) -> Option<u64> {
        let clean = self.clean_budget_bytes?;
        Some(if self.is_of_pool { clean } else { clean.saturating_mul(self.loss_permille) / 1000 })
    }

    /// What all relays together may hold: each wastes half a segment, since only whole ones travel.
    fn whole_budget(&self) -> Option<u64> {
        let relays = u64::try_from(self.relays).unwrap_or(u64::MAX);
        Some(self.budget()? + relays.saturating_mul(SEGMENT_BYTES / 2))
    }

    fn age(&mut self, now: Instant) {
        if now.since(self.fresh_since) >= self.period {
            let ([newest, _], [opened, _]) = (self.fresh, self.opened);
            let old = now.since(self.fresh_since) >= self.period * 2;
            self.fresh = [0, if old { 0 } else { newest }];
            self.opened = [0, if old { 0 } else { opened }];
            self.fresh_since = now;
        }
        let silent_for = now.since(self.silent_since);
        if silent_for >= SILENT_PERIOD.max(self.period) {
            let [newest, _] = self.silent;
            let old = silent_for >= SILENT_PERIOD.max(self.period) * 2;
            self.silent = [0, if old { 0 } else { newest }];
            self.silent_since = now;
        }
    }
}

impl Link {
    /// The pool has another size.
    pub(crate) fn set_pool_bytes(&mut self, bytes: usize) {
        self.pool_bytes = bytes;
        self.follow();
    }

    /// The budget goes by the rate and the round trip; where only routers know the rate, by the
    /// pool.
    pub(super) fn follow(&mut self) {
        let (rate_bps, rtt) = (self.rate_in_force_bps(), self.rtt_in_force());
        if rate_bps.is_none() && self.is_controlled_by_routers() {
            self.budget.follow_pool(self.pool_bytes, rtt);
        } else {
            self.budget.follow(rate_bps, rtt);
        }
    }
}

/// How often what was promised grows old.
fn period(rtt: Option<Duration>) -> Duration {
    rtt.unwrap_or_default().max(RTT_MIN)
}

/// Bytes of all flows together that keep such a link full.
fn budget(rate_bps: u64, rtt: Duration) -> Option<u64> {
    let rtt = rtt.max(RTT_MIN);
    let late = AckPolicy::to_gateway(rtt).map_or(Duration::ZERO, AckPolicy::longest);
    let bytes = |time: Duration| u64::try_from(u128::from(rate_bps) * time.as_micros() / 8_000_000).ok();
    // Where acknowledgements take a large part of the round trip they count in full.
    let least = bytes(rtt + late + late / 2)? * (FREE_SHARES + 1) / FREE_SHARES;
    Some((bytes(rtt)? * BUDGET_TWENTIETHS / 20).max(least).max(BUDGET_MIN_BYTES))
}
