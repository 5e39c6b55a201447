//! What a queue has for XCP traffic, where other traffic leaves by the same link.
//!
//! Two groups share the link by weights, and what one leaves is the other's. So XCP traffic has the
//! link without what the others take, and its own share at least. What they take is counted as it
//! leaves, over about one round trip: what arrives comes in bursts, and may find no room.
//!
//! What is believed of the link may be too much: another direction has its medium, or others go
//! before. It shows where packets of XCP wait through a whole window, and fewer leave than were to.
//! From then on so much less is given, and later step by step more again.

use farlink_wire::{Duration, Instant};

/// A window lasts at least for so many bytes of the link, or a packet more or less would count for
/// too much.
const WINDOW_BYTES_MIN: f64 = 45_000.0;
/// No window lasts longer than this, whatever round trips there are.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// Nor shorter.
const WINDOW_MIN: Duration = Duration::from_millis(10);
/// What leaves is less than what was to leave where it is less than this part: else it was a packet
/// or two.
const LESS: f64 = 0.95;
/// After a window in which the queue has been empty, so much more is tried, and after each further
/// one twice as much, up to the most.
const FIRST_STEP: f64 = 0.05;
const STEP_MAX: f64 = 0.2;
/// The least that is ever believed of a link, of what was said of it.
const FOUND_MIN: f64 = 1.0 / 64.0;

/// How XCP traffic and plain traffic share a link while both want it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weights {
    /// Of the packets that say how fast they are sent.
    pub xcp: u32,
    /// Of all others.
    pub plain: u32,
}

impl Default for Weights {
    /// Half of the link for each.
    fn default() -> Self {
        Self { xcp: 1, plain: 1 }
    }
}

impl Weights {
    /// The part of the link that XCP traffic has in any case.
    fn xcp_part(self) -> f64 {
        let (xcp, plain) = (f64::from(self.xcp.max(1)), f64::from(self.plain.max(1)));
        xcp / (xcp + plain)
    }
}

/// What a packet is to the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It goes before both groups: acknowledgements, handshakes.
    First,
    /// It says how fast it is sent.
    Xcp,
    /// Of the other group.
    Plain,
    /// It only gets what both leave.
    Last,
}

/// Bytes that have left in a window, by kind.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    first: f64,
    xcp: f64,
    plain: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    /// `None`: one queue for all, and all of the link is what XCP has.
    weights: Option<Weights>,
    /// What is believed of the link, bytes a second.
    link: f64,
    /// The part of it that was found to be there.
    found: f64,
    step: f64,
    is_measured: bool,
    began_at: Instant,
    left: Left,
    /// At a moment of this window no XCP packet waited.
    was_empty: bool,
    /// Bytes a second in the last window.
    rates: Left,
}

impl Capacity {
    pub fn new(now: Instant, weights: Option<Weights>) -> Self {
        Self {
            weights,
            link: 0.0,
            found: 1.0,
            step: FIRST_STEP,
            is_measured: false,
            began_at: now,
            left: Left::default(),
            was_empty: true,
            rates: Left::default(),
        }
    }

    /// From now on what leaves says whether the link carries what is believed of it.
    pub fn measure(&mut self) {
        self.is_measured = true;
    }

    pub fn set_weights(&mut self, weights: Weights) {
        self.weights = Some(weights);
    }

    pub fn weights(&self) -> Option<Weights> {
        self.weights
    }

    /// This is believed of the link from now on, bytes a second.
    pub fn set_link(&mut self, bytes_per_s: f64) {
        // What leaves in this window left at two rates, and says nothing.
        self.was_empty |= bytes_per_s != self.link;
        self.link = bytes_per_s;
    }

    /// Bytes of a kind have left.
    pub fn note(&mut self, kind: Kind, bytes: f64) {
        match (kind, self.weights) {
            (_, None) | (Kind::Xcp, _) => self.left.xcp += bytes,
            (Kind::First, _) => self.left.first += bytes,
            (Kind::Plain, _) => self.left.plain += bytes,
            (Kind::Last, _) => {}
        }
    }

    /// So many bytes of XCP wait at this moment.
    pub fn see(&mut self, xcp_bytes: u64) {
        self.was_empty |= xcp_bytes == 0;
    }

    /// A window may have ended. Returns whether one has. `rtt`: the mean round trip.
    pub fn catch_up(&mut self, now: Instant, rtt: Duration) -> bool {
        let lasted = now.since(self.began_at);
        let enough_s = WINDOW_BYTES_MIN / self.link.max(1.0);
        let wanted = rtt.max(Duration::try_from_secs_f64(enough_s).unwrap_or(WINDOW_MAX));
        if lasted < wanted.clamp(WINDOW_MIN, WINDOW_MAX) {
            return false;
        }
        let seconds = lasted.as_secs_f64();
        let rate = |bytes: f64| bytes / seconds;
        let left = core::mem::take(&mut self.left);
        self.rates = Left { first: rate(left.first), xcp: rate(left.xcp), plain: rate(left.plain) };
        if self.is_measured {
            self.find(left.xcp >= WINDOW_BYTES_MIN / 2.0);
        }
        (self.began_at, self.was_empty) = (now, false);
        true
    }

    /// Whether the last window shows that the link has less, or may have more again. `is_enough`:
    /// so much has left that it says something.
    fn find(&mut self, is_enough: bool) {
        let believed = self.by_share();
        if self.was_empty {
            self.found = (self.found * (1.0 + self.step)).min(1.0);
            self.step = (2.0 * self.step).min(STEP_MAX);
        } else if is_enough && self.rates.xcp < LESS * self.found * believed {
            self.found = (self.rates.xcp / believed).max(FOUND_MIN);
            self.step = FIRST_STEP;
        } else if is_enough {
            // It carries what it was believed to, or more.
            self.found = self.found.max(self.rates.xcp / believed.max(1.0)).min(1.0);
        }
    }

    /// What XCP traffic has now, bytes a second.
    pub fn xcp(&self) -> f64 {
        self.found * self.by_share()
    }

    fn by_share(&self) -> f64 {
        let Some(weights) = self.weights else { return self.link };
        let link = (self.link - self.rates.first).max(0.0);
        (link - self.rates.plain).max(weights.xcp_part() * link)
    }

    /// The part of the link that plain traffic has: so much of the room in the queue is its own.
    pub fn plain_part(&self) -> f64 {
        let Some(weights) = self.weights else { return 1.0 };
        let link = (self.link - self.rates.first).max(1.0);
        (1.0 - self.rates.xcp / link).clamp(1.0 - weights.xcp_part(), 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// A link of 1 MB/s, of which in each of 20 windows so many thousandths leave: what goes first,
    /// XCP, the others. `waits`: bytes of XCP all the time.
    fn after(weights: Option<Weights>, [first, xcp, plain]: [u64; 3], waits: u64) -> Capacity {
        let mut capacity = Capacity::new(at(0), weights);
        capacity.measure();
        capacity.set_link(1e6);
        windows(&mut capacity, 0..20, [first, xcp, plain], waits);
        capacity
    }

    fn windows(capacity: &mut Capacity, numbers: std::ops::Range<u64>, left: [u64; 3], waits: u64) {
        for n in numbers {
            for tenth in 0..10 {
                for (kind, part) in [Kind::First, Kind::Xcp, Kind::Plain].into_iter().zip(left) {
                    capacity.note(kind, part as f64 * 10.0);
                }
                capacity.see(waits);
                capacity.catch_up(at(n * 100 + tenth * 10 + 10), RTT);
            }
        }
    }

    fn is_near(is: f64, wanted: f64) -> bool {
        (is - wanted).abs() < 1e-6 * 1e6
    }

    #[test]
    fn what_plain_traffic_leaves_is_xcp_s_and_its_share_in_any_case() {
        let three = Some(Weights { xcp: 3, plain: 1 });
        let half = Some(Weights::default());
        for (weights, left, xcp, plain_part) in [
            (half, [0, 0, 0], 1.0, 1.0),
            (half, [0, 700, 300], 0.7, 0.5),
            (half, [0, 300, 700], 0.5, 0.7),
            (half, [0, 0, 1000], 0.5, 1.0),
            (three, [0, 750, 250], 0.75, 0.25),
            (three, [0, 900, 100], 0.9, 0.25),
            (three, [0, 100, 900], 0.75, 0.9),
            (half, [200, 400, 400], 0.4, 0.5),
            // One queue for all: what it has is for all.
            (None, [0, 300, 700], 1.0, 1.0),
        ] {
            let capacity = after(weights, left, 0);
            assert!(is_near(capacity.xcp(), xcp * 1e6), "{weights:?} {left:?}: {}", capacity.xcp());
            let part = capacity.plain_part();
            assert!((part - plain_part).abs() < 1e-6, "{weights:?} {left:?}: {part}");
        }
    }

    #[test]
    fn a_queue_that_never_empties_says_what_the_link_has() {
        for weights in [None, Some(Weights::default())] {
            let mut capacity = after(weights, [0, 400, 0], 9_000);
            assert!(is_near(capacity.xcp(), 0.4e6), "{}", capacity.xcp());
            // It has been empty: a little more is tried, and then all that is believed.
            windows(&mut capacity, 20..21, [0, 400, 0], 0);
            assert!(is_near(capacity.xcp(), 0.42e6), "{}", capacity.xcp());
            windows(&mut capacity, 21..32, [0, 400, 0], 0);
            assert!(is_near(capacity.xcp(), 1e6), "{}", capacity.xcp());
            // What leaves is what was to leave.
            windows(&mut capacity, 32..34, [0, 1_000, 0], 9_000);
            assert!(is_near(capacity.xcp(), 1e6), "{}", capacity.xcp());
        }
    }

    #[test]
    fn who_is_not_told_to_measure_believes() {
        let mut capacity = Capacity::new(at(0), None);
        capacity.set_link(1e6);
        windows(&mut capacity, 0..9, [0, 100, 0], 9_000);
        assert!(is_near(capacity.xcp(), 1e6));
    }

    #[test]
    fn a_slow_link_is_looked_at_for_longer() {
        // 10 kB/s: a tenth of a second would be a packet.
        let mut capacity = Capacity::new(at(0), Some(Weights::default()));
        capacity.set_link(1e4);
        assert!(!capacity.catch_up(at(900), RTT));
        assert!(capacity.catch_up(at(1_000), RTT), "but no longer than a second");
        assert!(!capacity.catch_up(Instant::ZERO, RTT), "time does not go back");
        capacity.set_link(f64::MAX);
        assert!(capacity.catch_up(Instant::FAR_FUTURE, Duration::ZERO));
        assert!(capacity.xcp().is_finite());
    }
}
