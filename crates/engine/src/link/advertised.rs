//! What gateways at the two ends of a link advertise of it to each other: what has been said to
//! whom, and what has been heard from whom.

use arrayvec::ArrayVec;
use farlink_wire::{Duration, Instant};

use crate::peer::{Advert, Identity};

/// Gateways at the other end that are remembered, as many as their names (`far_end.rs`).
const GATEWAYS_MAX: usize = 8;
/// What is new is said so often, since a segment may be lost, and then so seldom.
const SAID_AT_FIRST: u8 = 3;
const AGAIN_AT_FIRST: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(60);
/// A rate that is found out moves. No more than one change is said in this time.
const CHANGES_APART: Duration = Duration::from_secs(1);
/// What a gateway has not repeated for so long counts for nothing beside what another one says.
const FRESH: Duration = Duration::from_secs(200);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Advertised {
    said: ArrayVec<Said, GATEWAYS_MAX>,
    heard: ArrayVec<Heard, GATEWAYS_MAX>,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    to: Identity,
    advert: Advert,
    /// So often. 0: only a segment was to leave for it.
    times: u8,
    at: Instant,
    /// When a segment of its own was to leave for it last.
    claimed_at: Instant,
}

/// What a gateway has advertised, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Which gateway.
    pub by: Identity,
    /// What it said.
    pub advert: Advert,
    /// When it said so last.
    pub at: Instant,
}

impl Advertised {
    /// This gateway is to hear it with the next segment that has room.
    #[must_use]
    pub fn is_due(&self, now: Instant, to: Identity, advert: &Advert) -> bool {
        if to == Identity::UNKNOWN || advert.is_empty() {
            return false;
        }
        let Some(said) = self.said.iter().find(|said| said.to == to && said.times > 0) else { return true };
        let silence = now.since(said.at);
        let again = if said.times < SAID_AT_FIRST { AGAIN_AT_FIRST } else { AGAIN };
        silence >= again || (silence >= CHANGES_APART && advert.is_news_after(&said.advert))
    }

    /// It may not have heard anything yet, and a segment for it alone is worth it, which is to
    /// leave now: whoever only uploads sends none that has room. Where there are more than can be
    /// remembered they wait for what is sent anyway, and so does what the gateway has said of its
    /// own end: it takes that for both directions. What such a segment has no room for is tried
    /// again, but not with each that comes in.
    pub fn claim_segment(&mut self, now: Instant, to: Identity, advert: &Advert) -> bool {
        if to == Identity::UNKNOWN || advert.is_empty() || self.says_the_same(to, advert) {
            return false;
        }
        let is_full = self.said.is_full();
        match self.said.iter_mut().find(|said| said.to == to) {
            Some(said) if said.times >= SAID_AT_FIRST => return false,
            Some(said) if now.since(said.at.max(said.claimed_at)) < AGAIN_AT_FIRST => return false,
            Some(said) => said.claimed_at = now,
            None if is_full => return false,
            None => {
                self.said.push(Said { to, advert: Advert::default(), times: 0, at: now, claimed_at: now })
            }
        }
        true
    }

    /// The gateway has said the same of its own end of late.
    fn says_the_same(&self, who: Identity, advert: &Advert) -> bool {
        let Some(rounded) = Advert::decode(&advert.encode()) else { return false };
        self.fresh().any(|heard| heard.by == who && !rounded.is_news_after(&heard.advert))
    }

    /// It has been said.
    pub fn note_said(&mut self, now: Instant, to: Identity, advert: Advert) {
        let before = self.said.iter().position(|said| said.to == to).map(|place| self.said.remove(place));
        let times = before.filter(|said| !advert.is_news_after(&said.advert)).map_or(0, |said| said.times);
        push_newest(
            &mut self.said,
            Said { to, advert, times: times.saturating_add(1), at: now, claimed_at: now },
        );
    }

    /// A gateway that is heard on a connection over the link has said it. Returns whether that
    /// changes anything.
    pub fn hear(&mut self, now: Instant, by: Identity, advert: Advert) -> bool {
        let before = self.heard.iter().position(|h| h.by == by).map(|place| self.heard.remove(place));
        push_newest(&mut self.heard, Heard { by, advert, at: now });
        before.is_none_or(|before| before.advert != advert || now.since(before.at) > FRESH)
    }

    /// The largest rate that gateways at the other end send at, of those that have said so of late:
    /// a link may lead to several. A host that plays a gateway cannot make it less than an honest
    /// one says.
    #[must_use]
    pub fn rate(&self) -> Option<Heard> {
        self.fresh().filter(|h| h.advert.rate.is_some()).max_by_key(|h| h.advert.rate.map(|(bps, _)| bps))
    }

    /// The longest round trip that one of them says. It counts until one is measured: too long it
    /// makes the first timers patient, and too short it would make a link of satellites near.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.fresh().filter_map(|h| h.advert.rtt.map(|(rtt, _)| rtt)).max()
    }

    /// What this one has said of late.
    #[must_use]
    pub fn by(&self, by: Identity) -> Option<Advert> {
        self.fresh().find(|h| h.by == by).map(|h| h.advert)
    }

    fn fresh(&self) -> impl Iterator<Item = Heard> {
        let newest = self.heard.last().map_or(Instant::ZERO, |h| h.at);
        self.heard.iter().copied().filter(move |h| newest.since(h.at) <= FRESH)
    }
}

/// The newest stands last, and the oldest makes room for it.
fn push_newest<T>(list: &mut ArrayVec<T, GATEWAYS_MAX>, newest: T) {
    if list.is_full() {
        list.remove(0);
    }
    list.push(newest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Source;

    const HIM: Identity = Identity([0, 0, 0, 7]);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn rate(bps: u64) -> Advert {
        Advert { rate: Some((bps, Source::Declared)), ..Advert::default() }
    }

    #[test]
    fn it_is_said_a_few_times_and_then_seldom() {
        let (mut ads, mut said) = (Advertised::default(), Vec::new());
        assert!(ads.claim_segment(at(0), HIM, &rate(32_000)));
        for ms in (0..200_000).step_by(10) {
            if ads.is_due(at(ms), HIM, &rate(32_000)) {
                ads.note_said(at(ms), HIM, rate(32_000));
                said.push(ms / 1_000);
            }
        }
        assert_eq!(said, [0, 2, 4, 64, 124, 184]);
        assert!(!ads.claim_segment(at(184_500), HIM, &rate(64_000)), "he hears it with the next segment");
        assert!(!ads.is_due(at(184_500), HIM, &rate(64_000)) && ads.is_due(at(185_000), HIM, &rate(64_000)));
        assert!(!ads.is_due(at(185_000), HIM, &rate(33_000)), "that is about the same");
        assert!(
            !ads.is_due(at(185_000), Identity::UNKNOWN, &rate(33_000))
                && !ads.is_due(at(0), HIM, &Advert::default())
        );
    }

    #[test]
    fn segments_without_room_for_it_do_not_leave_for_each_that_comes() {
        let mut ads = Advertised::default();
        let claimed: Vec<u64> = (0..5_000)
            .step_by(10)
            .filter(|ms| {
                ads.is_due(at(*ms), HIM, &rate(1_000)) && ads.claim_segment(at(*ms), HIM, &rate(1_000))
            })
            .collect();
        assert_eq!(claimed, [0, 2_000, 4_000]);
    }

    #[test]
    fn what_both_ends_say_is_worth_no_segment_of_its_own() {
        let mut ads = Advertised::default();
        let heard = Advert::decode(&rate(8_000_000).encode());
        ads.hear(at(0), HIM, heard.unwrap());
        assert!(!ads.claim_segment(at(1), HIM, &rate(8_000_000)));
        assert!(ads.is_due(at(1), HIM, &rate(8_000_000)), "it goes with what is sent anyway");
        assert!(ads.claim_segment(at(2), HIM, &rate(32_000)));
    }

    #[test]
    fn more_gateways_than_can_be_remembered_are_no_reason_for_segments_of_their_own() {
        let mut ads = Advertised::default();
        for n in 1..=100 {
            assert_eq!(ads.claim_segment(at(0), n.into(), &rate(1_000)), n <= GATEWAYS_MAX as u32);
            ads.note_said(at(0), n.into(), rate(1_000));
            ads.hear(at(0), n.into(), rate(u64::from(n)));
        }
        assert_eq!(ads.rate().unwrap().by, 100.into());
    }

    #[test]
    fn the_largest_of_late_counts() {
        let mut ads = Advertised::default();
        assert!(ads.hear(at(0), HIM, rate(8_000_000)) && !ads.hear(at(100_000), HIM, rate(8_000_000)));
        assert!(ads.hear(at(150_000), 9.into(), rate(1_000)), "who plays a gateway");
        assert_eq!(ads.rate().unwrap().advert, rate(8_000_000));
        ads.hear(at(300_001), 9.into(), rate(2_000));
        assert_eq!(ads.rate().unwrap().advert, rate(2_000), "the other one has gone");
        ads.hear(at(300_002), HIM, Advert { is_half_duplex: true, ..Advert::default() });
        assert!(ads.by(HIM).unwrap().is_half_duplex && !ads.by(9.into()).unwrap().is_half_duplex);
        assert_eq!(ads.rate().unwrap().advert, rate(2_000));
    }
}
