//! What relays hold on their way into links, and what each may: the budgets of all links, asked by
//! way.

use farlink_wire::{Duration, Instant};

use super::Links;
use super::budget::{Budget, Stage};
use crate::net::Way;

/// What a relay is booked with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The way that it goes on.
    pub out: Way,
    /// Bytes held for delivery, those above a hole included.
    pub held_bytes: u32,
    /// Of these, such as only wait behind a repetition.
    pub sacked_bytes: u32,
}

/// What all relays hold, and those that go into the same link as the one that asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowd {
    /// Of all, bytes.
    pub all_bytes: u64,
    /// Into that link, bytes.
    pub of_link_bytes: u64,
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

/// Bytes held, all flows together, whichever way they go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    bytes: u64,
    max_bytes: u64,
}

impl Held {
    fn change(&mut self, old: &Entry, new: &Entry) {
        self.bytes = (self.bytes + u64::from(new.held_bytes)).saturating_sub(old.held_bytes.into());
        self.max_bytes = self.max_bytes.max(self.bytes);
    }

    /// The most from now on.
    pub(crate) fn reset_peak(&mut self) {
        self.max_bytes = self.bytes;
    }

    /// Now, and the most there were.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.max_bytes)
    }
}

impl Links {
    fn budget(&self, way: Way) -> Option<&Budget> {
        self.get(way).map(|link| &link.budget)
    }

    fn budget_mut(&mut self, way: Way) -> Option<&mut Budget> {
        self.get_mut(way).map(|link| &mut link.budget)
    }

    /// Bytes held, all flows together.
    #[must_use]
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// The same, to be counted anew.
    pub(crate) fn held_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    /// A relay holds something else than before.
    pub(crate) fn book(&mut self, old: &Entry, new: &Entry) {
        self.held.change(old, new);
        for (entry, joins) in [(old, false), (new, true)] {
            if let Some(budget) = self.budget_mut(entry.out) {
                budget.book(entry, joins);
            }
        }
    }

    /// The pool has another size.
    pub(crate) fn set_pool_bytes(&mut self, bytes: usize) {
        self.links.iter_mut().for_each(|l| l.set_pool_bytes(bytes));
    }

    /// A handshake begins.
    pub(crate) fn handshake_begins(&mut self, now: Instant) {
        self.links.iter_mut().for_each(|l| l.budget.handshake_begins(now));
    }

    /// The one that began at `syn_at` is complete.
    pub(crate) fn handshake_completes(&mut self, syn_at: Instant) {
        self.links.iter_mut().for_each(|l| l.budget.handshake_completes(syn_at));
    }

    /// [`Budget::open`] of the link that this way leads into.
    pub(crate) fn open(&mut self, now: Instant, way: Way) {
        if let Some(budget) = self.budget_mut(way) {
            budget.open(now);
        }
    }

    /// [`Budget::began`] of the link that this way leads into.
    pub(crate) fn began(&mut self, way: Way) {
        if let Some(budget) = self.budget_mut(way) {
            budget.began();
        }
    }

    /// [`Budget::promise`] of the link that this way leads into.
    pub(crate) fn promise(&mut self, now: Instant, way: Way, bytes: u32) {
        if let Some(budget) = self.budget_mut(way) {
            budget.promise(now, bytes);
        }
    }

    /// [`Budget::arrived`] of the link that this way leads into.
    pub(crate) fn arrived(&mut self, now: Instant, way: Way, bytes: u32) {
        if let Some(budget) = self.budget_mut(way) {
            budget.arrived(now, bytes);
        }
    }

    /// [`Budget::arriving`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn arriving(&self, now: Instant, way: Way, asking: Asking) -> usize {
        self.budget(way).map_or(0, |budget| budget.arriving(now, asking))
    }

    /// [`Budget::looks_again`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn looks_again(&self, now: Instant, way: Way, asking: Asking) -> Option<Instant> {
        self.budget(way)?.looks_again(now, asking)
    }

    /// [`Budget::share`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn share(&self, way: Way, held_bytes: u32, more: usize) -> Option<u32> {
        self.budget(way)?.share(held_bytes, more)
    }

    /// [`Budget::sharers`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn sharers(&self, way: Way) -> u64 {
        self.budget(way).map_or(0, |budget| budget.sharers())
    }

    /// [`Budget::sharers_with`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn sharers_with(&self, way: Way, more: usize) -> u64 {
        self.budget(way).map_or(1, |budget| budget.sharers_with(more))
    }

    /// [`Budget::equal_share`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn equal_share(&self, way: Way, more: usize) -> Option<u32> {
        self.budget(way)?.equal_share(more)
    }

    /// [`Budget::drainable`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn drainable(&self, way: Way, stage: Stage, more: usize, beside: Duration) -> Option<u32> {
        self.budget(way)?.drainable(stage, more, beside)
    }

    /// [`Budget::is_worth_a_pause`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn is_worth_a_pause(&self, way: Way, shown_bytes: u32) -> bool {
        self.budget(way).is_none_or(|budget| budget.is_worth_a_pause(shown_bytes))
    }

    /// What all hold, and those who go into the link that this way leads into. `None`: it leads
    /// into none.
    #[must_use]
    pub(crate) fn crowd(&self, way: Way) -> Option<Crowd> {
        let of_link_bytes = self.budget(way)?.held_bytes();
        Some(Crowd { all_bytes: self.held.bytes, of_link_bytes })
    }

    /// [`Budget::has_budget`] of the link that this way leads into.
    #[must_use]
    pub(crate) fn has_budget(&self, way: Way) -> bool {
        self.budget(way).is_some_and(|budget| budget.has_budget())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Links;
    use super::*;
    use crate::config::{self, Config, Interface};
    use crate::net::{IfaceId, LinkId};

    const OUT: Way = Way::Link(LinkId(0));

    fn books() -> Links {
        books_of(config::Link { rate_bps: Some(8_000_000), ..config::Link::default() })
    }
    fn books_of(link: config::Link) -> Links {
        let link = config::Link { rtt: Some(Duration::from_millis(500)), ..link };
        let (id, name, addresses) = (IfaceId(3), "sat0".into(), Vec::new());
        let interfaces = vec![Interface { id, name, domain: 0, addresses, link: Some(link) }];
        Links::new(&Config { interfaces, ..Config::default() })
    }
    fn book(links: &mut Links, old: Entry, new: Entry) {
        links.book(&old, &new);
    }
    fn lose(links: &mut Links, losses: (u64, u64)) {
        links.budget_mut(OUT).unwrap().losses_changed(losses);
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
            book(&mut b, entry(held), entry(may));
            held = may;
        }
        assert!((600_000..1_000_000).contains(&held), "{held}");
        assert_eq!(b.held.bytes(), (u64::from(held), u64::from(held)));
    }

    /// E17: eight bandwidth-delay products of each connection took longer than a stop may take.
    #[test]
    fn what_is_held_for_a_link_has_gone_soon_however_many_hold_it() {
        let mut b = books();
        let product = 500_000;
        let fills = |b: &mut Links, n: usize| {
            (0..n).for_each(|_| b.open(Instant::ZERO, OUT));
            let mut held = vec![0; n];
            for _ in 0..200 {
                for h in &mut held {
                    let stage = if *h > 0 { Stage::Goes(*h) } else { Stage::Silent };
                    let may = b.drainable(OUT, stage, 0, Duration::ZERO).unwrap().max(*h);
                    if stage == Stage::Silent {
                        b.began(OUT);
                    }
                    book(b, entry(*h), entry(may));
                    *h = may;
                }
            }
            held
        };
        let alone = fills(&mut b, 1);
        assert!((3 * product..=4 * product).contains(&alone[0]), "{alone:?}");
        book(&mut b, entry(alone[0]), Entry::default());
        let many = fills(&mut b, 200);
        let sum: u32 = many.iter().sum();
        assert!((3 * product..5 * product).contains(&sum), "{sum}");
        let beside = b.drainable(OUT, Stage::Silent, 0, Duration::from_secs(5)).unwrap();
        assert!(beside > b.drainable(OUT, Stage::Silent, 0, Duration::ZERO).unwrap());
        let unknown = books_of(config::Link::default());
        assert_eq!(unknown.drainable(OUT, Stage::Silent, 0, Duration::ZERO), None);
    }

    /// Ten connections were opened one after the other, and then wrote at once: the first handed
    /// over 1.6 MB, and could write nothing for half a minute.
    #[test]
    fn the_first_of_many_that_were_silent_takes_no_more_than_fills_half_the_round_trip() {
        let (mut b, product) = (books(), 500_000);
        let mut may_begin_with = |silent: u64, after_s: u64| {
            let at = |s| Instant::ZERO + Duration::from_secs(s);
            (0..=silent).for_each(|n| b.open(at(100 + n), OUT));
            b.promise(at(100 + silent + after_s), OUT, 0);
            b.began(OUT);
            let may = b.drainable(OUT, Stage::Begins(14_480), 0, Duration::ZERO).unwrap();
            (0..silent).for_each(|_| b.began(OUT));
            may
        };
        assert!(may_begin_with(0, 0) > 3 * product);
        assert!((product / 5..=product / 2).contains(&may_begin_with(9, 1)));
        assert!(may_begin_with(9, 30) > 3 * product, "they stay silent");
    }

    #[test]
    fn those_that_are_about_to_begin_have_their_parts() {
        let mut b = books();
        b.open(Instant::ZERO, OUT);
        book(&mut b, Entry::default(), entry(10_000));
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
        lose(&mut b, (10_000_000, 0));
        assert_eq!(b.equal_share(OUT, 0), Some(clean));
        lose(&mut b, (10_000_000, 100_000));
        let lossy = b.equal_share(OUT, 0).unwrap();
        assert!((clean * 2..clean * 3).contains(&lossy), "{lossy}");
        lose(&mut b, (0, u64::MAX));
        assert!(b.equal_share(OUT, 0).unwrap() <= clean * 7 + 5_000, "bounded");
    }

    #[test]
    fn relays_into_a_link_whose_rate_routers_know_share_a_part_of_the_pool() {
        let mut link = config::Link::default();
        assert!(!books_of(link.clone()).has_budget(OUT));
        link.leg.cc = farlink_cc::Kind::Xcp;
        let mut b = books_of(link);
        b.set_pool_bytes(64 << 20);
        let share = |b: &Links| b.share(OUT, 0, 0).unwrap();
        assert_eq!(share(&b), (16 << 20) / 5 * 4);
        lose(&mut b, (10_000_000, 1_000_000));
        assert_eq!(share(&b), (16 << 20) / 5 * 4, "losses make no more memory");
        b.promise(Instant::ZERO, OUT, 4 << 20);
        let held = (1..=40).map(|n| {
            let mine = share(&b);
            book(&mut b, Entry::default(), entry(mine));
            assert!(n == 1 || mine <= 4 << 20);
            u64::from(mine)
        });
        assert!(held.sum::<u64>() < 16 << 20);
    }

    #[test]
    fn relays_that_come_later_get_what_earlier_ones_release() {
        let mut b = books();
        let mut held = [680_000u32, 0, 0, 0, 0];
        book(&mut b, Entry::default(), entry(680_000));
        for _ in 0..2_000 {
            for h in &mut held {
                let drained = h.saturating_sub(5_000);
                book(&mut b, entry(*h), entry(drained));
                *h = b.share(OUT, drained, 0).unwrap().max(drained);
                book(&mut b, entry(drained), entry(*h));
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
