//! What relays hold on their way into each link, all flows together: the base of back-pressure that follows need.
//!
//! A link of known rate and round trip is full while a round trip of data is on its way, of however many flows. So relays
//! into it share one budget: each may hold a multiple of what the others leave of it. Those that need little hold
//! little, and those that need much find room (Choudhury and Hahne, Dynamic Queue Length Thresholds).

use farlink_wire::{Duration, Instant};

use crate::arrivals::Arrivals;
use crate::link::{Link, Links};
use crate::net::Way;
use crate::receiver::AckDelay;

/// The budget of a link in twentieths of its bandwidth-delay product: one product is on its way, acknowledgements between
/// gateways come a sixth of one late, and data waits for its turn.
const BUDGET_TWENTIETHS: u64 = 33;
/// A relay may hold so many times what is free.
const FREE_SHARES: u64 = 4;
/// The part of a budget (one over it) that windows which nobody has used yet may take from those who use theirs; and that must
/// be free for a relay to pause for it.
const FRESH_SHARE: u64 = 4;
/// The round trip of a link counts as this long at least: timers and acknowledgements take their time, too.
const RTT_MIN: Duration = Duration::from_millis(20);
/// A full segment on Ethernet.
const SEGMENT_BYTES: u64 = 1460;
/// So many losses of the same bytes are reckoned with.
const LOSSES_IN_A_ROW: usize = 4;
/// Least budget of a link: two super-segments.
const BUDGET_MIN_BYTES: u64 = 128 << 10;

/// What a relay is booked with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The interface it sends to.
    pub out: Way,
    /// Bytes held for delivery, those above a hole included.
    pub held_bytes: u32,
    /// Of these, such as only wait behind a repetition.
    pub sacked_bytes: u32,
}

/// All links of the engine.
#[derive(Debug, Default)]
pub struct Books {
    links: Vec<Book>,
    held_bytes: u64,
    held_max_bytes: u64,
}

/// One link.
#[derive(Debug)]
struct Book {
    out: Way,
    /// Without losses.
    clean_budget_bytes: Option<u64>,
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
    /// Handshakes, over whichever link.
    arrivals: Arrivals,
}

/// A connection as it asks for room.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Since it was split.
    pub age: Duration,
    /// So long its handshake took here.
    pub handshake: Duration,
    /// Connections whose handshake is under way.
    pub half_open: usize,
}

impl Books {
    /// Books of these links.
    #[must_use]
    pub fn new(links: &Links) -> Self {
        let book = |link: &Link| Book {
            out: links.way(link.iface()),
            clean_budget_bytes: budget(link),
            loss_permille: 1000,
            period: period(link),
            arrivals: Arrivals::new(period(link)),
            held_bytes: 0,
            relays: 0,
            fresh: [0; 2],
            opened: [0; 2],
            fresh_since: Instant::ZERO,
        };
        Self { links: links.iter().map(book).collect(), ..Self::default() }
    }

    /// The rate of a link has changed, or has become known.
    pub fn link_changed(&mut self, out: Way, link: &Link) {
        if let Some(book) = self.links.iter_mut().find(|b| b.out == out) {
            book.clean_budget_bytes = budget(link);
            if book.period != period(link) {
                book.period = period(link);
                book.arrivals = Arrivals::new(book.period);
            }
        }
    }

    /// So many bytes have been sent into a link, and so many of them were lost. What comes behind a loss waits until it is repaired, a
    /// round trip and a half later, and longer where repetitions are lost, too.
    pub fn losses_changed(&mut self, out: Way, (sent, lost): (u64, u64)) {
        let Some(book) = self.links.iter_mut().find(|b| b.out == out) else { return };
        if lost == 0 {
            // So it is with nearly every acknowledgement of a clean link.
            book.loss_permille = 1000;
            return;
        }
        let sent = sent.max(1);
        // Segments of a round trip that are lost so many times, in thousandths.
        let mut expected = book.clean_budget_bytes.unwrap_or(0) / SEGMENT_BYTES * 1000;
        book.loss_permille = 1000;
        for _ in 0..LOSSES_IN_A_ROW {
            expected =
                u64::try_from(u128::from(expected) * u128::from(lost) / u128::from(sent)).unwrap_or(u64::MAX);
            book.loss_permille += expected.min(1000) * 3 / 2;
        }
    }

    /// A relay holds something else than before.
    pub fn change(&mut self, old: Entry, new: Entry) {
        self.held_bytes = (self.held_bytes + u64::from(new.held_bytes)).saturating_sub(old.held_bytes.into());
        self.held_max_bytes = self.held_max_bytes.max(self.held_bytes);
        for (entry, joins) in [(old, false), (new, true)] {
            let Some(book) = self.links.iter_mut().find(|b| b.out == entry.out) else { continue };
            let bytes = u64::from(entry.held_bytes.saturating_sub(entry.sacked_bytes));
            let one = usize::from(entry.held_bytes > 0);
            if joins {
                book.held_bytes += bytes;
                book.relays += one;
            } else {
                book.held_bytes = book.held_bytes.saturating_sub(bytes);
                book.relays = book.relays.saturating_sub(one);
            }
        }
    }

    /// A connection begins whose data will go into a link.
    pub fn open(&mut self, now: Instant, out: Way) {
        if let Some(book) = self.links.iter_mut().find(|b| b.out == out) {
            book.age(now);
            let [newest, _] = &mut book.opened;
            *newest += 1;
        }
    }

    /// Its first data has come.
    pub fn began(&mut self, out: Way) {
        if let Some(book) = self.links.iter_mut().find(|b| b.out == out) {
            let [newest, older] = &mut book.opened;
            let one = if *older > 0 { older } else { newest };
            *one = one.saturating_sub(1);
        }
    }

    /// A source was promised room for `bytes` more on its way into a link.
    pub fn promise(&mut self, now: Instant, out: Way, bytes: u32) {
        if let Some(book) = self.links.iter_mut().find(|b| b.out == out) {
            book.age(now);
            let [newest, _] = &mut book.fresh;
            *newest += u64::from(bytes);
        }
    }

    /// A source has used `bytes` of what it was promised.
    pub fn arrived(&mut self, now: Instant, out: Way, bytes: u32) {
        if let Some(book) = self.links.iter_mut().find(|b| b.out == out) {
            book.age(now);
            let [newest, older] = &mut book.fresh;
            let from_older = u64::from(bytes).min(*older);
            *older -= from_older;
            *newest = newest.saturating_sub(u64::from(bytes) - from_older);
        }
    }

    /// A handshake begins.
    pub fn handshake_begins(&mut self, now: Instant) {
        self.links.iter_mut().for_each(|b| b.arrivals.begin(now));
    }

    /// The one that began at `syn_at` is complete.
    pub fn handshake_completes(&mut self, syn_at: Instant) {
        self.links.iter_mut().for_each(|b| b.arrivals.complete(syn_at));
    }

    /// For how many connections whose handshake is under way a relay makes room: for all that are expected in its own first round
    /// trip, and later only for so many that handshakes that are never finished leave most to those that speak.
    #[must_use]
    pub fn arriving(&self, now: Instant, out: Way, asking: Asking) -> usize {
        if asking.half_open == 0 {
            return 0;
        }
        let Some(book) = self.links.iter().find(|b| b.out == out) else { return 0 };
        let expected = book.arrivals.expected(now, asking.handshake).min(asking.half_open);
        if asking.age <= book.period { expected } else { expected.min(book.relays) }
    }

    /// When a connection that has little room because of those that are expected looks again whether they have come.
    #[must_use]
    pub fn looks_again(&self, now: Instant, out: Way, asking: Asking) -> Option<Instant> {
        let book = self.links.iter().find(|b| b.out == out)?;
        let waits = asking.age <= book.period * 2 && self.arriving(now, out, asking) > 0;
        waits.then(|| now + book.arrivals.width())
    }

    /// Bytes that a relay into this link may hold, when it holds `held_bytes` now and `more` others are about to begin; `None`
    /// where the link has no budget.
    #[must_use]
    pub fn share(&self, out: Way, held_bytes: u32, more: usize) -> Option<u32> {
        let book = self.links.iter().find(|b| b.out == out)?;
        let budget = book.whole_budget()?;
        let begun = u64::try_from(book.relays + book.opened.iter().sum::<usize>()).unwrap_or(u64::MAX);
        let equal = u64::from(self.equal_share(out, more)?);
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let reserved = budget.saturating_mul(more) / begun.saturating_add(more).max(1);
        let fresh = book.fresh.iter().sum::<u64>().saturating_add(reserved);
        let share = |fresh: u64| {
            let free = budget.saturating_sub(book.held_bytes + fresh);
            (u64::from(held_bytes) + free) * FREE_SHARES / (FREE_SHARES + 1)
        };
        // What sources were promised and have not sent yet is on its way; but those that send nothing leave the others
        // their equal parts.
        let share = share(fresh).max(share(fresh.min(budget / FRESH_SHARE)).min(equal));
        Some(u32::try_from(share).unwrap_or(u32::MAX))
    }

    /// Relays that hold data for this link, and connections over it that have begun and have not sent anything yet.
    #[must_use]
    pub fn sharers(&self, out: Way) -> u64 {
        let book = self.links.iter().find(|b| b.out == out);
        book.map_or(0, |b| u64::try_from(b.relays + b.opened.iter().sum::<usize>()).unwrap_or(u64::MAX))
    }

    /// Bytes that each of the relays into this link would have, with those that have begun to speak, and `more` that are about
    /// to; `None` where the link has no budget.
    #[must_use]
    pub fn equal_share(&self, out: Way, more: usize) -> Option<u32> {
        let book = self.links.iter().find(|b| b.out == out)?;
        let relays =
            u64::try_from(book.relays + book.opened.iter().sum::<usize>() + more).unwrap_or(u64::MAX).max(1);
        Some(u32::try_from(book.budget()? / relays + SEGMENT_BYTES / 2).unwrap_or(u32::MAX))
    }

    /// A relay into this link that has shown its source `shown_bytes` at most is worth a pause to show it more: much of the
    /// budget is free, or it has less than half its part. Always where the link has no budget.
    #[must_use]
    pub fn is_worth_a_pause(&self, out: Way, shown_bytes: u32) -> bool {
        let Some(book) = self.links.iter().find(|b| b.out == out) else { return true };
        let Some(budget) = book.budget() else { return true };
        let used = book.held_bytes + book.fresh.iter().sum::<u64>();
        let poor = self.equal_share(out, 0).is_some_and(|equal| shown_bytes < equal / 2);
        poor || used < budget - budget / FRESH_SHARE
    }

    /// The relays into this link share a budget.
    #[must_use]
    pub fn has_budget(&self, out: Way) -> bool {
        self.links.iter().any(|b| b.out == out && b.clean_budget_bytes.is_some())
    }

    /// The most from now on.
    pub fn reset_peak(&mut self) {
        self.held_max_bytes = self.held_bytes;
    }

    /// Bytes held, all flows together: now, and the most there were.
    #[must_use]
    pub fn held(&self) -> (u64, u64) {
        (self.held_bytes, self.held_max_bytes)
    }
}

impl Book {
    fn budget(&self) -> Option<u64> {
        Some(self.clean_budget_bytes?.saturating_mul(self.loss_permille) / 1000)
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
    }
}

/// How often what was promised grows old.
fn period(link: &Link) -> Duration {
    link.rtt_in_force().unwrap_or_default().max(RTT_MIN)
}

/// Bytes of all flows together that keep this link full.
fn budget(link: &Link) -> Option<u64> {
    let (rate, rtt) = (link.rate_in_force_bps()?, link.rtt_in_force()?.max(RTT_MIN));
    let late = AckDelay::of_gateway(rtt).map_or(Duration::ZERO, AckDelay::longest);
    let bytes = |time: Duration| u64::try_from(u128::from(rate) * time.as_micros() / 8_000_000).ok();
    // Where acknowledgements take a large part of the round trip they count in full.
    let least = bytes(rtt + late + late / 2)? * (FREE_SHARES + 1) / FREE_SHARES;
    Some((bytes(rtt)? * BUDGET_TWENTIETHS / 20).max(least).max(BUDGET_MIN_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Config, Interface};
    use crate::net::{IfaceId, LinkId};

    const OUT: Way = Way::Link(LinkId(0));

    fn books() -> Books {
        let link = config::Link {
            name: "sat".into(),
            rate_bps: Some(8_000_000),
            rtt: Some(Duration::from_millis(500)),
            ..config::Link::default()
        };
        let interface = Interface {
            id: IfaceId(3),
            name: "sat0".into(),
            domain: 0,
            addresses: Vec::new(),
            link: Some(link),
        };
        Books::new(&Links::new(&Config { interfaces: vec![interface], ..Config::default() }))
    }
    fn entry(held_bytes: u32) -> Entry {
        Entry { out: OUT, held_bytes, sacked_bytes: 0 }
    }

    #[test]
    fn one_relay_may_hold_more_than_a_round_trip_and_less_than_two() {
        let mut b = books();
        let mut held = 0;
        for _ in 0..1000 {
            let may = b.share(OUT, held, 0).unwrap().max(held);
            b.change(entry(held), entry(may));
            held = may;
        }
        assert!((600_000..1_000_000).contains(&held), "{held}");
        assert_eq!(b.held(), (u64::from(held), u64::from(held)));
    }

    #[test]
    fn those_that_are_about_to_begin_have_their_parts() {
        let mut b = books();
        b.open(Instant::ZERO, OUT);
        b.change(Entry::default(), entry(10_000));
        b.began(OUT);
        let alone = b.share(OUT, 10_000, 0).unwrap();
        assert!(alone > 500_000, "{alone}");
        let share = b.share(OUT, 10_000, 9).unwrap();
        assert!(share < 100_000, "{share}");
        (0..5_000).for_each(|_| b.handshake_begins(Instant::ZERO));
        let (handshake, half_open) = (Duration::from_millis(510), 5_000);
        let arriving = |ms| {
            let age = Duration::from_millis(ms);
            b.arriving(Instant::ZERO + handshake, OUT, Asking { age, handshake, half_open })
        };
        assert_eq!(arriving(400), 5_000);
        assert_eq!(arriving(1_000), 1, "handshakes that are never finished");
    }

    #[test]
    fn a_link_that_loses_needs_more() {
        let mut b = books();
        let clean = b.equal_share(OUT, 0).unwrap();
        b.losses_changed(OUT, (10_000_000, 0));
        assert_eq!(b.equal_share(OUT, 0), Some(clean));
        b.losses_changed(OUT, (10_000_000, 100_000));
        let lossy = b.equal_share(OUT, 0).unwrap();
        assert!((clean * 2..clean * 3).contains(&lossy), "{lossy}");
        b.losses_changed(OUT, (0, u64::MAX));
        assert!(b.equal_share(OUT, 0).unwrap() <= clean * 7 + 5_000, "bounded");
    }

    #[test]
    fn relays_that_come_later_get_what_earlier_ones_release() {
        let mut b = books();
        let mut held = [680_000u32, 0, 0, 0, 0];
        b.change(Entry::default(), entry(680_000));
        for _ in 0..2_000 {
            for h in &mut held {
                let drained = h.saturating_sub(5_000);
                b.change(entry(*h), entry(drained));
                *h = b.share(OUT, drained, 0).unwrap().max(drained);
                b.change(entry(drained), entry(*h));
            }
        }
        let sum: u32 = held.iter().sum();
        assert!(sum <= 1_000_000 && held.iter().all(|h| (150_000..170_000).contains(h)), "{held:?}");
    }

    #[test]
    fn promises_that_nobody_uses_are_forgotten() {
        let mut b = books();
        let whole = b.share(OUT, 0, 0).unwrap();
        b.promise(Instant::ZERO, OUT, 100_000);
        assert_eq!(b.share(OUT, 0, 0), Some(whole - 80_000));
        b.arrived(Instant::ZERO, OUT, 50_000);
        assert_eq!(b.share(OUT, 0, 0), Some(whole - 40_000));
        b.promise(Instant::ZERO + Duration::from_secs(2), OUT, 0);
        assert_eq!(b.share(OUT, 0, 0), Some(whole));
        b.promise(Instant::ZERO + Duration::from_secs(2), OUT, u32::MAX);
        assert_eq!(b.share(OUT, 0, 0), Some(whole - whole / 4), "others keep most of it");
    }
}
