//! Does what is diverted come out on the other side? From counters to a suspicion, without I/O.
//!
//! A filter of the machine's own may refuse a connection with good reason, so a lost packet alone
//! says nothing. It is otherwise where *nothing* has got through since the rules changed; where
//! many packets are lost in a row; or where a large part of what connections already carry is lost.

use farlink_wire::{Duration, Instant};

/// Losses in a row, with nothing between them that got through, over at least this time: enough
/// where nothing has got through since the last change. Two, because a host repeats its first SYN
/// after a second, and the third after three has to get through.
const UNPROVEN_LOSSES: u64 = 2;
const UNPROVEN_SPAN: Duration = Duration::from_millis(400);
/// Behind a bump single unexpected packets may be refused with good reason.
const UNPROVEN_LOSSES_AT_BUMP: u64 = 3;
/// Where something had got through: a filter that knows the way refuses single connections, again
/// and again.
const PROVEN_LOSSES: u64 = 10;
const PROVEN_SPAN: Duration = Duration::from_millis(900);
/// After the machine's own rules were found to refuse connections anyway, it takes so many times as
/// many losses.
const ACQUITTED_TIMES: u64 = 5;
const NEEDED_MAX: u64 = 1 << 20;
/// Losses further apart than this have nothing to do with each other.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// A share of packets is judged over so much time, and of so many packets.
const SHARE_WINDOW: Duration = Duration::from_millis(900);
const SHARE_PACKETS: u64 = 60;
/// Lost packets of established connections, one in so many. Late segments of connections that have
/// just ended are lost in any stateful filter, but not by the tenth.
const SHARE_ONE_IN: u64 = 10;
/// Or so many, and one in so many, from one look to the next: a connection whose acknowledgements
/// are lost all at once stands still afterwards, and there is nothing left to count.
const BURST_PACKETS: u64 = 20;
const BURST_ONE_IN: u64 = 4;

/// Counters of one interface and family since the start. They may begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Packets sent on their way to the TUN.
    pub diverted: u64,
    /// Packets that arrived there.
    pub arrived: u64,
    /// SYNs written into the TUN.
    pub syns: u64,
    /// SYNs of those that left the machine, or reached a socket of its own.
    pub syns_left: u64,
    /// Other TCP packets written.
    pub others: u64,
    /// Of those that left.
    pub others_left: u64,
    /// Packets that were only forwarded, of all interfaces: they may belong to connections that a
    /// filter does not know.
    pub forwarded: u64,
}

/// What is not right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// Nothing gets from the interface into the TUN.
    Entry,
    /// Nothing that opens a connection gets from the TUN to where it should go.
    Syns,
    /// Nothing gets from the TUN to where it should go.
    Exit,
    /// Of so many packets of established connections so many were lost behind the TUN.
    Share {
        /// Lost.
        lost: u64,
        /// Written.
        of: u64,
    },
}

/// Losses since something got through.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    lost: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Something got through since the last change.
    is_proven: bool,
}

impl Run {
    /// So many were sent, so many of them got through.
    fn note(&mut self, now: Instant, sent: u64, through: u64) {
        if through > 0 {
            *self = Self { is_proven: true, ..Self::default() };
        } else if sent > 0 {
            if self.last.is_some_and(|last| now.since(last) > FORGET_AFTER) {
                *self = Self { is_proven: self.is_proven, ..Self::default() };
            }
            self.lost += sent;
            self.first.get_or_insert(now);
            self.last = Some(now);
        }
    }

    fn is_over(&self, losses: u64, span: Duration) -> bool {
        let (Some(first), Some(last)) = (self.first, self.last) else { return false };
        self.lost >= losses && last.since(first) >= span
    }

    /// Where something had got through.
    fn is_cut(&self, needed: u64) -> bool {
        self.is_over(needed.max(PROVEN_LOSSES), PROVEN_SPAN)
    }
    /// Where nothing has got through.
    fn is_shut(&self, needed: u64) -> bool {
        !self.is_proven && self.is_over(needed, UNPROVEN_SPAN)
    }

    fn is_losing(&self) -> bool {
        self.lost > 0
    }
}

/// Watches one interface in one family.
#[derive(Clone, Copy, Debug)]
pub struct Passage {
    last: Option<Reading>,
    entry: Run,
    syns: Run,
    others: Run,
    share_since: Option<Instant>,
    share_from: Reading,
    /// Losses that it takes where nothing has got through.
    needed: u64,
    /// The machine sees the same packets as without diversion: single SYNs and a share of the rest
    /// say nothing.
    is_same: bool,
}

impl Default for Passage {
    fn default() -> Self {
        let run = Run::default();
        Self {
            last: None,
            entry: run,
            syns: run,
            others: run,
            share_since: None,
            share_from: Reading::default(),
            needed: UNPROVEN_LOSSES,
            is_same: false,
        }
    }
}

impl Passage {
    /// From a bump into the machine, or out by its interface.
    #[must_use]
    pub fn of_bump() -> Self {
        Self { needed: UNPROVEN_LOSSES_AT_BUMP, is_same: true, ..Self::default() }
    }

    /// Takes the counters as they are now.
    pub fn look(&mut self, now: Instant, reading: Reading) -> Option<Suspicion> {
        let Some(last) = self.last.replace(reading).filter(|last| !began_anew(last, &reading)) else {
            (self.share_since, self.share_from) = (Some(now), reading);
            return None;
        };
        self.entry.note(now, reading.diverted - last.diverted, reading.arrived.saturating_sub(last.arrived));
        self.syns.note(now, reading.syns - last.syns, reading.syns_left - last.syns_left);
        self.others.note(now, reading.others - last.others, reading.others_left - last.others_left);
        let share = self.share(now, &reading).or(burst(&last, &reading));
        let needed = self.needed;
        if self.entry.is_cut(needed) || self.entry.is_shut(needed) {
            return Some(Suspicion::Entry);
        }
        // Segments of old connections may be lost for reasons of their own while new ones get
        // through.
        let is_shut = self.others.is_shut(needed) && (self.syns.is_losing() || !self.syns.is_proven);
        if self.others.is_cut(needed) || is_shut {
            return Some(Suspicion::Exit);
        }
        if self.syns.is_cut(needed) || !self.is_same && self.syns.is_shut(needed) {
            return Some(Suspicion::Syns);
        }
        share.filter(|_| !self.is_same)
    }

    fn share(&mut self, now: Instant, reading: &Reading) -> Option<Suspicion> {
        let since = *self.share_since.get_or_insert(now);
        let from = self.share_from;
        let of = reading.others.saturating_sub(from.others);
        if now.since(since) < SHARE_WINDOW {
            return None;
        }
        (self.share_since, self.share_from) = (Some(now), *reading);
        let left = reading.others_left.saturating_sub(from.others_left);
        let lost = of.saturating_sub(left);
        let strangers = reading.forwarded.saturating_sub(from.forwarded);
        let ours = lost.saturating_sub(strangers);
        (left > 0 && of >= SHARE_PACKETS && ours * SHARE_ONE_IN >= of)
            .then_some(Suspicion::Share { lost, of })
    }

    /// Diversion begins anew: nothing is known.
    pub fn start_anew(&mut self) {
        *self = Self { needed: self.needed, is_same: self.is_same, ..Self::default() };
    }

    /// The counters begin at zero again, and nothing else has changed.
    pub fn counters_reset(&mut self) {
        self.last = None;
    }

    /// The machine's rules or routes have changed; the counters go on.
    pub fn rules_changed(&mut self) {
        self.needed = self.needed.min(UNPROVEN_LOSSES * ACQUITTED_TIMES);
        for run in [&mut self.entry, &mut self.syns, &mut self.others] {
            run.is_proven = false;
        }
    }

    /// Connections are refused here also without diversion.
    pub fn acquit(&mut self) {
        self.needed = (self.needed * ACQUITTED_TIMES).min(NEEDED_MAX);
        self.start_anew();
    }

    /// Whether packets were lost just now of which it is not clear yet what it means.
    #[must_use]
    pub fn is_losing(&self) -> bool {
        self.entry.is_losing() || self.syns.is_losing() || self.others.is_losing()
    }
}

/// Many were lost at once, of connections that got through just before.
fn burst(last: &Reading, now: &Reading) -> Option<Suspicion> {
    let of = now.others - last.others;
    let left = now.others_left - last.others_left;
    let lost = of.saturating_sub(left);
    let strangers = now.forwarded.saturating_sub(last.forwarded);
    let ours = lost.saturating_sub(strangers);
    (left > 0 && ours >= BURST_PACKETS && ours * BURST_ONE_IN >= of).then_some(Suspicion::Share { lost, of })
}

/// The table of the counters was made anew, or the TUN.
fn began_anew(last: &Reading, now: &Reading) -> bool {
    now.diverted < last.diverted
        || now.syns_left < last.syns_left
        || now.others_left < last.others_left
        || now.syns < last.syns
        || now.others < last.others
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `growth` every 250 ms, `times` times; the first suspicion, and after how many
    /// milliseconds.
    fn feed(
        p: &mut Passage,
        at_ms: &mut u64,
        r: &mut Reading,
        growth: Reading,
        times: u32,
    ) -> Option<(Suspicion, u64)> {
        let began = *at_ms;
        for _ in 0..times {
            *at_ms += 250;
            r.diverted += growth.diverted;
            r.arrived += growth.arrived;
            r.syns += growth.syns;
            r.syns_left += growth.syns_left;
            r.others += growth.others;
            r.others_left += growth.others_left;
            r.forwarded += growth.forwarded;
            if let Some(s) = p.look(Instant::from_nanos(*at_ms * 1_000_000), *r) {
                return Some((s, *at_ms - began));
            }
        }
        None
    }

    fn fresh() -> (Passage, u64, Reading) {
        let mut p = Passage::default();
        p.look(Instant::ZERO, Reading::default());
        (p, 0, Reading::default())
    }

    const SYN_LOST: Reading =
        Reading { diverted: 1, arrived: 1, syns: 1, syns_left: 0, others: 0, others_left: 0, forwarded: 1 };
    const SYN_PASSED: Reading = Reading { syns_left: 1, ..SYN_LOST };
    const QUIET: Reading =
        Reading { diverted: 0, arrived: 0, syns: 0, syns_left: 0, others: 0, others_left: 0, forwarded: 0 };
    const DATA: Reading = Reading {
        diverted: 50,
        arrived: 50,
        syns: 0,
        syns_left: 0,
        others: 50,
        others_left: 50,
        forwarded: 0,
    };

    #[test]
    fn the_second_lost_syn_of_the_first_connection_is_enough() {
        let (mut p, mut at, mut r) = fresh();
        assert_eq!(feed(&mut p, &mut at, &mut r, SYN_LOST, 1), None);
        assert_eq!(feed(&mut p, &mut at, &mut r, QUIET, 3), None);
        assert_eq!(feed(&mut p, &mut at, &mut r, SYN_LOST, 1), Some((Suspicion::Syns, 250)));
    }

    #[test]
    fn what_does_not_arrive_at_the_tun_is_told_apart() {
        let (mut p, mut at, mut r) = fresh();
        let lost = Reading { arrived: 0, syns: 0, forwarded: 0, ..SYN_LOST };
        assert!(matches!(feed(&mut p, &mut at, &mut r, lost, 8), Some((Suspicion::Entry, 250..=1000))));
    }

    #[test]
    fn a_filter_that_lets_others_through_may_refuse_single_connections() {
        let (mut p, mut at, mut r) = fresh();
        feed(&mut p, &mut at, &mut r, SYN_PASSED, 1);
        for _ in 0..30 {
            assert_eq!(feed(&mut p, &mut at, &mut r, SYN_LOST, 1), None);
            assert_eq!(feed(&mut p, &mut at, &mut r, QUIET, 3), None);
            assert_eq!(feed(&mut p, &mut at, &mut r, SYN_PASSED, 1), None);
        }
        // New rules: what had got through proves nothing any more.
        p.rules_changed();
        assert!(feed(&mut p, &mut at, &mut r, SYN_LOST, 3).is_some());
    }

    #[test]
    fn a_filter_that_comes_without_a_trace_is_found_by_many_losses() {
        let (mut p, mut at, mut r) = fresh();
        feed(&mut p, &mut at, &mut r, Reading { syns: 1, syns_left: 1, ..DATA }, 4);
        let all_lost = Reading { syns: 1, others_left: 0, ..DATA };
        assert!(matches!(feed(&mut p, &mut at, &mut r, all_lost, 12), Some((Suspicion::Exit, 1..=1500))));
    }

    #[test]
    fn rules_of_the_old_iptables_are_found_in_two_seconds() {
        // Nobody tells of a change. Four connections a second are begun, and each repeats its SYN
        // after a second.
        let (mut p, mut at, mut r) = fresh();
        assert_eq!(feed(&mut p, &mut at, &mut r, SYN_PASSED, 4), None);
        assert_eq!(feed(&mut p, &mut at, &mut r, SYN_LOST, 4), None);
        let twice = Reading { diverted: 2, arrived: 2, syns: 2, syns_left: 0, ..SYN_LOST };
        assert_eq!(feed(&mut p, &mut at, &mut r, twice, 8), Some((Suspicion::Syns, 750)));
    }

    #[test]
    fn scans_that_a_firewall_refuses_say_nothing_of_a_bump() {
        let fresh = || {
            let mut p = Passage::of_bump();
            p.look(Instant::ZERO, Reading::default());
            (p, 0, Reading::default())
        };
        let (mut p, mut at, mut r) = fresh();
        for _ in 0..3 {
            assert_eq!(feed(&mut p, &mut at, &mut r, SYN_LOST, 1), None);
            assert_eq!(feed(&mut p, &mut at, &mut r, QUIET, 3), None);
        }
        let half = Reading { others_left: 20, ..DATA };
        assert_eq!(feed(&mut p, &mut at, &mut r, half, 12), None, "a share is lost of it in any case");
        // The answers of all servers.
        let (mut p, mut at, mut r) = fresh();
        let answers = Reading { others: 1, others_left: 0, ..DATA };
        assert_eq!(feed(&mut p, &mut at, &mut r, answers, 12), Some((Suspicion::Exit, 750)));
    }

    #[test]
    fn after_an_acquittal_it_takes_more() {
        let (mut p, mut at, mut r) = fresh();
        assert!(feed(&mut p, &mut at, &mut r, SYN_LOST, 9).is_some());
        for _ in 0..3 {
            p.acquit();
            p.look(Instant::from_nanos(at * 1_000_000), r);
        }
        assert_eq!(feed(&mut p, &mut at, &mut r, SYN_LOST, 200), None);
        // Other rules may refuse others.
        p.rules_changed();
        assert!(feed(&mut p, &mut at, &mut r, SYN_LOST, 12).is_some());
    }

    #[test]
    fn a_share_of_established_connections_counts_without_strangers() {
        let (mut p, mut at, mut r) = fresh();
        assert_eq!(feed(&mut p, &mut at, &mut r, DATA, 40), None);
        let some = Reading { others_left: 40, ..DATA };
        assert!(matches!(feed(&mut p, &mut at, &mut r, some, 12), Some((Suspicion::Share { .. }, 1..=2000))));
        // The same losses, but as many packets were not ours.
        let (mut p, mut at, mut r) = fresh();
        assert_eq!(feed(&mut p, &mut at, &mut r, Reading { forwarded: 10, ..some }, 40), None);
        // One in fifty is what a filter loses of connections that have ended.
        assert_eq!(feed(&mut p, &mut at, &mut r, Reading { others_left: 49, ..DATA }, 40), None);
    }

    #[test]
    fn many_lost_at_once_count_although_nothing_follows() {
        let (mut p, mut at, mut r) = fresh();
        let upload = Reading { others: 400, others_left: 400, ..DATA };
        assert_eq!(feed(&mut p, &mut at, &mut r, upload, 3), None);
        let last = Reading { others: 187, others_left: 117, ..DATA };
        assert_eq!(
            feed(&mut p, &mut at, &mut r, last, 1),
            Some((Suspicion::Share { lost: 70, of: 187 }, 250))
        );
        // A few late segments of connections that have ended.
        let (mut p, mut at, mut r) = fresh();
        assert_eq!(feed(&mut p, &mut at, &mut r, upload, 3), None);
        assert_eq!(feed(&mut p, &mut at, &mut r, Reading { others: 30, others_left: 15, ..DATA }, 1), None);
    }

    #[test]
    fn counters_that_begin_anew_are_no_loss() {
        let (mut p, mut at, mut r) = fresh();
        feed(&mut p, &mut at, &mut r, DATA, 4);
        r.others_left = 0;
        r.diverted = 0;
        assert_eq!(feed(&mut p, &mut at, &mut r, DATA, 10), None);
    }
}
