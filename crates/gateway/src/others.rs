//! How what is not split shares a link with what is: UDP, ICMP, tunnels, and TCP that is only
//! forwarded.
//!
//! It has groups of its own, so that however many connections are split, they never have more than
//! half of the link from it. A call or a stream that needs less than that waits for nobody. Where
//! more flows of it wait than of what is split, it has a flow's share for each. Of that, what is no
//! TCP has half at least, however many connections are forwarded: a call cannot wait, and TCP can.
//! An operator may choose other shares.
//!
//! Where very many flows wait, they are those of hosts that scan, or flood with ports of all kinds.
//! Then a host is one flow (`crowd.rs`), and all of them have two thirds of the link at most from
//! what is split. Segments without data go first, and ICMP errors do; of those that come with a
//! crowd only a small part of the link.
//!
//! Its queue stands here, and nobody in front of it is told to slow down but by it. So each flow's
//! packets wait for a bounded time (CoDel, RFC 8289). What is split needs no such thing: its source
//! waits when our buffers are full. TCP that is forwarded is given more time: how long its sender
//! needs to react is not known here, and it always does in the end. Where few acknowledgements fit
//! the way back it is left alone: it would be long before it had repaired what was dropped.

use farlink_egress::{Aqm, Class, Egress, Lane, MAX_WEIGHT, Managed, Share};
use farlink_engine::config::Weights;
use farlink_wire::{Duration, Instant, edit, ip};

use crate::crowd::{Crowd, Joined};
use crate::group;
use crate::kinds::Kind;

/// The interval of a link whose round trip is not known, or short (RFC 8289 4.3).
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// A sender that slows down by a third after a round trip keeps the link busy if an eighth of that
/// waits. It waits for itself alone: others have their own turns.
const TARGET_PARTS: u32 = 8;
const TARGET_MAX: Duration = Duration::from_millis(60);
/// Of TCP that is forwarded the round trip is the link's and what lies behind it, and its
/// acknowledgements may wait, too. One that slows down by a third keeps the link busy if half a
/// round trip waits.
const TCP_INTERVALS: u32 = 2;
const TCP_TARGET_PARTS: u32 = 2;
/// After a loss a host acknowledges each packet, which is such a part of it in size. Where less
/// comes back, what is dropped costs tens of seconds: CUBIC needs 68 s for 20 MB over 8 Mbit/s and
/// 64 kbit/s, which are 23 s without a drop.
const ACK_PARTS: u64 = 20;
/// Where not even the link's is known.
const TCP_RTT: Duration = Duration::from_millis(500);
/// What a flow that does not listen waits for.
const BOUND: Duration = Duration::from_millis(10);
/// What is split has a flow's share for each of so many flows of a crowd.
const CROWD_PER_SPLIT: usize = 2;
/// ICMP errors go first as long as they take no more than this part of the link (one over it), and
/// so do segments without data of connections that come with a crowd.
const FIRST_PARTS: u64 = 16;
/// And so many bytes of them at once, in any case.
const FIRST_BURST_BYTES: u64 = 16_000;
/// An empty group costs others a little with each packet: it goes after so long.
const IDLE: Duration = Duration::from_secs(10);

/// What goes first although anybody can send it: a part of the link.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    /// What has gone first has had its time by then.
    until: Instant,
}

impl Allowance {
    /// So many bytes go before everything else. A flood of them does not.
    fn lets_go_first(&mut self, now: Instant, bytes: u32, rate_bps: Option<u64>) -> bool {
        let Some(rate_bps) = rate_bps else { return true };
        let time_of = |bytes: u64| {
            let ns = u128::from(bytes * FIRST_PARTS * 8) * 1_000_000_000 / u128::from(rate_bps.max(1));
            Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX / 2))
        };
        let taken_until = self.until.max(now);
        let goes_first = taken_until.since(now) <= time_of(FIRST_BURST_BYTES);
        if goes_first {
            self.until = taken_until + time_of(bytes.into());
        }
        goes_first
    }
}

/// By which weights a link is shared: by what is no TCP, by TCP that is only forwarded, and by what
/// is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parts {
    other: u32,
    tcp: u32,
    split: u32,
}

/// How many flows wait, of the same kinds.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    other: usize,
    tcp: usize,
    /// In the default group, of those that are split.
    plain: usize,
    /// With those that have groups of their own, of a weight for each flow (XCP).
    split: usize,
}

/// A packet that is not split, and has arrived for a link.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Which connection it is of, as far as queues go.
    pub connection: u64,
    /// The class that it has by itself.
    pub class: Class,
    /// It is TCP.
    pub is_tcp: bool,
    /// Its size.
    pub bytes: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Others {
    /// The groups exist, by these weights.
    parts: Option<Parts>,
    used_at: Instant,
    /// What an operator has chosen.
    chosen: Option<Weights>,
    /// Where very many wait for a share of the link, and where very many go first.
    crowd: Crowd,
    crowd_first: Crowd,
    errors: Allowance,
    newcomers: Allowance,
}

impl Others {
    /// What is split and what is not share the link by these; `None`: by how many flows wait.
    pub fn sharing_by(chosen: Option<Weights>) -> Self {
        Self { chosen, ..Self::default() }
    }

    /// See [`Self::sharing_by`].
    pub fn chosen(&self) -> Option<Weights> {
        self.chosen
    }

    /// In how many turns of the link one is theirs, at least.
    pub fn turns(&self) -> u64 {
        let Weights { split, forwarded } = self.chosen.unwrap_or_default();
        1 + u64::from(split.div_ceil(forwarded.max(1)))
    }

    /// They share it by these from the next look on.
    pub fn choose(&mut self, chosen: Option<Weights>) {
        self.chosen = chosen;
    }

    /// Where a packet waits that has arrived now: in which class and group, and in which flow. It
    /// may be too much for one that goes first.
    pub fn place<P>(
        &mut self,
        now: Instant,
        arrived: Arrived,
        host: impl Fn() -> u64,
        rate_bps: Option<u64>,
        egress: &mut Egress<P>,
    ) -> (Lane, Joined) {
        let Arrived { connection, class, is_tcp, bytes } = arrived;
        let lane = self.lane(now, class, is_tcp, egress);
        let joined = self.join(now, (connection, &host), lane, egress);
        if class != Class::Control || !joined.is_new || self.newcomers.lets_go_first(now, bytes, rate_bps) {
            return (lane, joined);
        }
        if joined.is_shared {
            self.note_left(connection, class);
        }
        let lane = self.lane(now, Class::Bulk, is_tcp, egress);
        (lane, self.join(now, (connection, host), lane, egress))
    }

    /// Where a packet waits that is not split.
    fn lane<P>(&mut self, now: Instant, class: Class, is_tcp: bool, egress: &mut Egress<P>) -> Lane {
        // What keeps connections going is split or not, as it comes.
        if class == Class::Control {
            return class.into();
        }
        self.used_at = now;
        if self.parts.is_none() {
            self.share(now, Parts { other: 1, tcp: 1, split: 1 }, egress);
        }
        // Without the groups it waits with the others.
        Lane { class, group: if is_tcp { group::FORWARDED_TCP } else { group::OTHERS } }
    }

    /// The flow in which a packet of this connection and this host waits.
    fn join<P>(
        &mut self,
        now: Instant,
        (connection, host): (u64, impl FnOnce() -> u64),
        lane: Lane,
        egress: &Egress<P>,
    ) -> Joined {
        let goes_on = egress.is_waiting(connection, lane);
        let (crowd, waiting) = match lane.class {
            Class::Control => (&mut self.crowd_first, egress.waiting_first()),
            _ => (&mut self.crowd, forwarded_in(egress)),
        };
        crowd.join(now, (connection, host), (waiting, goes_on))
    }

    /// A packet of this connection waits no longer in a flow that it shared with others.
    pub fn note_left(&mut self, connection: u64, class: Class) {
        match class {
            Class::Control => self.crowd_first.note_left(connection),
            _ => self.crowd.note_left(connection),
        }
    }

    /// An ICMP error of so many bytes goes before everything else. A flood of them does not.
    pub fn lets_error_go_first(&mut self, now: Instant, bytes: u32, rate_bps: Option<u64>) -> bool {
        self.errors.lets_go_first(now, bytes, rate_bps)
    }

    fn share<P>(&mut self, now: Instant, parts: Parts, egress: &mut Egress<P>) {
        let of = |weight| Share { weight, rate_bps: None };
        let exists = egress.set_group(now, group::OTHERS, of(parts.other))
            && egress.set_group(now, group::FORWARDED_TCP, of(parts.tcp));
        let _ = egress.set_group(now, group::PLAIN, of(parts.split));
        self.parts = exists.then_some(parts);
    }

    /// Something of it has come within this time: a call or a stream goes on, perhaps, and would
    /// notice what waits before the link.
    pub fn has_come_within(&self, now: Instant, time: Duration) -> bool {
        self.parts.is_some() && now.since(self.used_at) < time
    }

    /// Time has passed: who waits, and whether anybody does. Returns whether something of it may.
    pub fn follow<P>(&mut self, now: Instant, egress: &mut Egress<P>) -> bool {
        let Some(parts) = self.parts else { return false };
        let forwarded = forwarded_in(egress);
        if forwarded == 0 && now.since(self.used_at) > IDLE {
            egress.remove_group(now, group::OTHERS);
            egress.remove_group(now, group::FORWARDED_TCP);
            let _ = egress.set_group(now, group::PLAIN, Share::default());
            self.parts = None;
            return false;
        }
        let waiting = Waiting {
            other: egress.waiting_in(group::OTHERS),
            tcp: egress.waiting_in(group::FORWARDED_TCP),
            plain: egress.waiting_in(group::PLAIN),
            split: egress.waiting().saturating_sub(forwarded),
        };
        let wanted = parts_of(self.chosen, waiting, self.crowd.is_there(now));
        if wanted != parts {
            self.share(now, wanted, egress);
        }
        true
    }
}

/// Flows that wait and are not split.
pub fn forwarded_in<P>(egress: &Egress<P>) -> usize {
    egress.waiting_in(group::OTHERS) + egress.waiting_in(group::FORWARDED_TCP)
}

/// How the link is shared: as an operator has chosen, else by how many flows wait.
fn parts_of(chosen: Option<Weights>, waiting: Waiting, is_crowded: bool) -> Parts {
    let Waiting { other, tcp, plain, split: split_flows } = waiting;
    let (forwarded, plain_weight) = match chosen {
        Some(chosen) => weights_by(chosen, (plain, split_flows)),
        None => {
            let most = if is_crowded { CROWD_PER_SPLIT * split_flows.max(1) } else { usize::MAX };
            weights_of((other + tcp).min(most), (plain, split_flows))
        }
    };
    if other == 0 || tcp == 0 {
        return Parts { other: forwarded, tcp: forwarded, split: plain_weight };
    }
    // What is no TCP has half at least, and a crowd of it two thirds at most.
    let most = if is_crowded { CROWD_PER_SPLIT * tcp } else { usize::MAX };
    let others = other.min(most).max(tcp);
    let [others, tcp] = [others, tcp].map(|flows| u64::try_from(flows).unwrap_or(u64::MAX / 4));
    let [forwarded, split] = [forwarded, plain_weight].map(u64::from);
    let both = others + tcp;
    // Weights of groups of other kinds are flows, so these must be, too. Else only the ratio
    // counts.
    if plain == split_flows {
        scaled([forwarded.saturating_mul(others), forwarded.saturating_mul(tcp), split.saturating_mul(both)])
    } else {
        scaled([forwarded.saturating_mul(others) / both, forwarded.saturating_mul(tcp) / both, split])
    }
}

/// The same ratio, as near as weights can be.
fn scaled(parts: [u64; 3]) -> Parts {
    let largest = parts.into_iter().max().unwrap_or(1);
    let fits = largest.div_ceil(u64::from(MAX_WEIGHT)).max(1);
    let [other, tcp, split] =
        parts.map(|part| u32::try_from(part / fits).unwrap_or(MAX_WEIGHT).clamp(1, MAX_WEIGHT));
    Parts { other, tcp, split }
}

/// Of so many flows that are not split and wait, and so many that are: in the default group, and
/// with those that have groups of their own, of a weight for each flow (XCP). Only the ratio of
/// the two counts where there are no others.
fn weights_of(others: usize, (plain, split): (usize, usize)) -> (u32, u32) {
    if plain == split && others <= split {
        return (1, 1);
    }
    (weight(others.max(split)), weight(plain))
}

/// The same where an operator has chosen.
fn weights_by(chosen: Weights, (plain, split): (usize, usize)) -> (u32, u32) {
    if plain == split {
        return (chosen.forwarded, chosen.split);
    }
    let [forwarded_parts, split_parts] = [chosen.forwarded, chosen.split].map(|parts| parts as usize);
    (weight(split.saturating_mul(forwarded_parts).div_ceil(split_parts.max(1))), weight(plain))
}

fn weight(flows: usize) -> u32 {
    u32::try_from(flows).unwrap_or(MAX_WEIGHT).clamp(1, MAX_WEIGHT)
}

/// How long packets may wait, where the largest takes so long on the link, and it takes so long
/// until all of them who wait have had a turn.
pub fn aqm(rtt: Option<Duration>, packet: Duration, round: Duration) -> Aqm {
    let interval = rtt.unwrap_or(INTERVAL_MIN).clamp(INTERVAL_MIN, INTERVAL_MAX);
    let usual = Aqm::default();
    Aqm {
        target: (interval / TARGET_PARTS).clamp(usual.target, TARGET_MAX) + packet / 2 * 3 + round,
        interval,
        most: interval + packet + round,
        bound: BOUND + 2 * packet + round,
    }
}

/// The same of TCP: whoever sends it listens, sooner or later. `rates`: the link's, and what comes
/// back over it, where that is known.
pub fn aqm_of_tcp(
    rtt: Option<Duration>,
    rates: (Option<u64>, Option<u64>),
    (packet, round): (Duration, Duration),
) -> Aqm {
    if let (Some(bps), Some(back_bps)) = rates
        && back_bps.saturating_mul(ACK_PARTS) < bps
    {
        return Aqm { target: Duration::MAX, most: Duration::MAX, ..Aqm::default() };
    }
    let rtt = rtt.unwrap_or(TCP_RTT).clamp(INTERVAL_MIN, INTERVAL_MAX);
    Aqm {
        target: rtt / TCP_TARGET_PARTS + packet / 2 * 3 + round,
        interval: TCP_INTERVALS * rtt,
        most: Duration::MAX,
        bound: Duration::MAX,
    }
}

/// How it is managed (see the module); `None`: it waits as long as it takes.
pub fn managed(class: Class, kind: Kind, in_turn: bool, packet: &[u8]) -> Option<Managed> {
    // By RFC 3168 the sender of such a packet understands marks.
    let can_be_marked = || ip::traffic_class(packet).is_some_and(|class| class & 3 != 0);
    let is_tcp = kind == Kind::Tcp;
    (class != Class::Control).then(|| Managed { can_be_marked: can_be_marked(), is_tcp, in_turn })
}

/// Tells the receiver, and by it the sender, that the path is congested (RFC 3168 section 5).
pub fn mark(packet: &mut [u8]) {
    if let Some(class) = ip::traffic_class(packet) {
        edit::write_traffic_class(packet, class | 3);
    }
}

#[cfg(test)]
mod tests {
    use farlink_egress::Grant;

    use super::*;
    use crate::crowd::{CROWD, CROWD_FLOWS, CROWD_FOR, CROWD_OF_HOSTS};

    /// The queue of a link of 8 Mbit/s.
    fn egress<P>() -> Egress<P> {
        let rate_bps = Some(8_000_000);
        Egress::new(farlink_egress::Config { rate_bps, ..farlink_egress::Config::default() })
    }

    /// Weights where so many flows wait: no TCP, forwarded TCP, split.
    fn parts(other: usize, tcp: usize, split: usize, is_crowded: bool) -> (u32, u32, u32) {
        let Parts { other, tcp, split } =
            parts_of(None, Waiting { other, tcp, plain: split, split }, is_crowded);
        (other, tcp, split)
    }

    #[test]
    fn what_is_not_split_has_half_at_least_and_a_share_for_each_flow() {
        assert_eq!(weights_of(1, (1, 1)), (1, 1));
        assert_eq!(weights_of(1, (40, 40)), (1, 1));
        assert_eq!(weights_of(40, (1, 1)), (40, 1));
        assert_eq!(weights_of(3, (2, 2)), (3, 2));
        assert_eq!(weights_of(0, (0, 0)), (1, 1));
        assert_eq!(weights_of(usize::MAX, (0, 0)), (MAX_WEIGHT, 1));
        // The forty have a group of weight 40.
        assert_eq!(weights_of(1, (0, 40)), (40, 1));
    }

    #[test]
    fn a_call_has_half_of_what_is_not_split_however_many_connections_are_forwarded() {
        assert_eq!(parts(1, 20, 0, false), (20 * 21, 20 * 21, 40), "scaled: nobody is split");
        assert_eq!(parts(1, 1, 2, false), (1, 1, 2));
        assert_eq!(parts(6, 2, 8, false), (6, 2, 8));
        assert_eq!(parts(0, 3, 2, false), (3, 3, 2));
        // Of ten in a group of their own: their weights are flows.
        let waiting = Waiting { other: 1, tcp: 4, plain: 0, split: 10 };
        assert_eq!(parts_of(None, waiting, false), Parts { other: 5, tcp: 5, split: 1 });
    }

    #[test]
    fn a_crowd_leaves_a_third_to_what_is_split() {
        assert_eq!(parts(64, 0, 1, true), (2, 2, 1));
        let (other, tcp, split) = parts(64, 1, 1, true);
        assert_eq!((other, other + tcp), (2 * tcp, 2 * split));
        assert_eq!(parts(64, 0, 1, false), (64, 64, 1), "those who wait with their own packets alone");
    }

    #[test]
    fn what_an_operator_has_chosen_holds_however_many_flows_wait() {
        let chosen = Weights { split: 3, forwarded: 1 };
        assert_eq!(weights_by(chosen, (40, 40)), (1, 3));
        assert_eq!(weights_by(chosen, (0, 0)), (1, 3));
        // Of thirty-six two are in the default group, and the others in groups of a weight each.
        assert_eq!(weights_by(chosen, (2, 36)), (12, 2));
        assert_eq!(weights_by(Weights { split: 1000, forwarded: 1 }, (0, 5)), (1, 1));
        let waiting = Waiting { other: 1, tcp: 5, plain: 9, split: 9 };
        let Parts { other, tcp, split } = parts_of(Some(chosen), waiting, false);
        assert_eq!(split, 3 * (other + tcp));
    }

    #[test]
    fn the_groups_exist_while_somebody_uses_them() {
        let mut egress = egress::<u8>();
        let mut others = Others::default();
        let now = Instant::from_millis(1_000);
        assert_eq!(others.lane(now, Class::Control, false, &mut egress), Class::Control.into());
        assert!(others.parts.is_none(), "nothing of it has come");
        for is_tcp in [false, true] {
            let lane = others.lane(now, Class::Bulk, is_tcp, &mut egress);
            for flow in 0..12 {
                assert!(egress.enqueue(now, flow, lane, 1_500_u32, 0).is_empty());
            }
        }
        egress.set_ready(now, 99, Class::Bulk);
        others.follow(now, &mut egress);
        assert_eq!(others.parts, Some(Parts { other: 288, tcp: 288, split: 24 }));
        others.follow(now + Duration::from_secs(60), &mut egress);
        assert!(others.parts.is_some(), "something waits");
        assert_eq!(egress.take_packets(now).len(), 24);
        others.follow(now + Duration::from_secs(60), &mut egress);
        assert_eq!(others.parts, None);
    }

    #[test]
    fn a_flood_of_icmp_errors_does_not_go_first() {
        let mut others = Others::default();
        let mut first = 0;
        // As much as the link carries, for a second.
        for n in 0..1_000 {
            let now = Instant::from_millis(1_000 + n);
            first += u64::from(others.lets_error_go_first(now, 1_000, Some(8_000_000)));
        }
        assert!((62..=62 + 18).contains(&first), "{first}");
        // However short the times in between are.
        let mut others = Others::default();
        let at = |n: u64| Instant::from_millis(1_000) + Duration::from_micros(10 * n);
        let first = (0..100_000).filter(|n| others.lets_error_go_first(at(*n), 64, Some(8_000_000))).count();
        assert!((970..=970 + 260).contains(&first), "{first}");
        assert!(others.lets_error_go_first(Instant::from_millis(9_000), 1_000, Some(8_000_000)));
        assert!(others.lets_error_go_first(Instant::from_millis(9_000), 1_000, None));
    }

    /// A link of 8 Mbit/s with a split download that always has more to send.
    struct Bed {
        egress: Egress<Item>,
        others: Others,
        now: Instant,
        download_bytes: u64,
        forwarded: u64,
        /// How long each packet of a connection has waited.
        waited: std::collections::BTreeMap<u64, Vec<Duration>>,
    }

    #[derive(Clone, Copy)]
    struct Item {
        connection: u64,
        class: Class,
        is_shared: bool,
        since: Instant,
    }

    const DOWNLOAD: u64 = 99;

    impl Bed {
        fn new() -> Self {
            let mut egress = egress();
            egress.set_ready(Instant::from_millis(1_000), DOWNLOAD, Class::Bulk);
            let (others, now) = (Others::default(), Instant::from_millis(1_000));
            Self { egress, others, now, download_bytes: 0, forwarded: 0, waited: Default::default() }
        }

        fn arrive(&mut self, connection: u64, host: u64, (class, is_tcp): (Class, bool), bytes: u32) {
            let (now, rate) = (self.now, Some(8_000_000));
            let arrived = Arrived { connection, class, is_tcp, bytes };
            let (lane, joined) = self.others.place(now, arrived, || host, rate, &mut self.egress);
            let item = Item { connection, class: lane.class, is_shared: joined.is_shared, since: now };
            let managed = Managed { can_be_marked: false, is_tcp, in_turn: joined.is_new };
            let victims = match lane.class {
                Class::Control => self.egress.enqueue(now, joined.flow, lane, bytes, item),
                _ => self.egress.enqueue_managed(now, joined.flow, lane, bytes, (item, managed)),
            };
            victims.into_iter().for_each(|item| self.left(item));
            self.others.follow(now, &mut self.egress);
        }

        fn left(&mut self, item: Item) {
            if item.is_shared {
                self.others.note_left(item.connection, item.class);
            }
        }

        /// Time passes, and the link carries what it can.
        fn pass(&mut self, time: Duration) {
            let end = self.now + time;
            loop {
                while let Some(grant) = self.egress.next_grant(self.now) {
                    match grant {
                        Grant::Packet(item) | Grant::Marked(item) => {
                            let waited = self.now.since(item.since);
                            self.waited.entry(item.connection).or_default().push(waited);
                            self.forwarded += 1;
                            self.left(item);
                        }
                        Grant::Flow { id, .. } => {
                            self.download_bytes += 1_500;
                            self.egress.used(self.now, id, 1_500, 1, true);
                        }
                    }
                    let dropped: Vec<_> = self.egress.take_dropped().collect();
                    dropped.into_iter().for_each(|item| self.left(item));
                }
                let Some(next) = self.egress.poll_timeout().filter(|at| *at <= end) else { break };
                self.now = next.max(self.now + Duration::from_micros(1));
            }
            self.now = end.max(self.now);
        }
    }

    /// Each flood takes what the link carries, from so many addresses, after a call and another
    /// connection's acknowledgements have begun.
    fn flooded(addresses: u64, floods: &[(Class, bool, u32)]) {
        let (call, acks) = (1 << 60, 1 << 61);
        let mut bed = Bed::new();
        let mut at_begin = 0;
        for tick in 0..22_000_u64 {
            if tick % 20 == 0 {
                bed.arrive(call, 7, (Class::Bulk, false), 200);
                bed.arrive(acks, 8, (Class::Control, true), 52);
            }
            if tick == 2_000 {
                at_begin = bed.download_bytes;
                bed.waited.clear();
            }
            if tick >= 2_000 {
                for (kind, (class, is_tcp, bytes)) in floods.iter().enumerate() {
                    // 1,000 bytes in a millisecond.
                    for n in 0..1_000 / u64::from(*bytes) {
                        let host = (tick * 31 + n * 7_919) % addresses;
                        let port = (tick * 20 + n) % 60_000;
                        let connection = (kind as u64 + 1) << 50 | host << 20 | port;
                        bed.arrive(connection, (host + 1) << 20, (*class, *is_tcp), *bytes);
                    }
                }
            }
            bed.pass(Duration::from_millis(1));
        }
        let share = (bed.download_bytes - at_begin) as f64 / 20_000_000.0;
        let [call, acks] = [call, acks].map(|of| {
            let mut waited = bed.waited[&of].clone();
            waited.sort_unstable();
            assert!(
                waited.len() > 950,
                "none of {of:x} is lost: {} of {addresses} {floods:?} share {share}",
                waited.len()
            );
            waited[waited.len() * 99 / 100]
        });
        let what = format!("{addresses} addresses, {floods:?}: {share:.2}, {call:?}, {acks:?}");
        assert!(share >= 0.25, "the download: {what}");
        assert!(call <= Duration::from_millis(20), "the call: {what}");
        assert!(acks <= Duration::from_millis(100), "the acknowledgements: {what}");
        assert!(bed.forwarded > 1_000, "{what}");
    }

    #[test]
    fn no_flood_delays_who_was_there_or_takes_all() {
        let segments = (Class::Control, true, 40);
        let datagrams = (Class::Bulk, false, 1_000);
        let data = (Class::Bulk, true, 1_000);
        for addresses in [1, 10, 10_000] {
            flooded(addresses, &[segments]);
            flooded(addresses, &[datagrams]);
            flooded(addresses, &[data]);
            flooded(addresses, &[segments, datagrams, data]);
        }
    }

    #[test]
    fn a_flood_of_flows_of_one_host_is_few_flows_and_has_an_end() {
        let mut bed = Bed::new();
        // Twice what the link carries, each packet by another port.
        for n in 0..20_000 {
            bed.arrive(1 << 50 | n, 7 << 40, (Class::Bulk, false), 1_200);
            bed.pass(Duration::from_micros(600));
        }
        let waiting = bed.egress.waiting_in(group::OTHERS);
        assert!(waiting <= CROWD + 2, "{waiting}");
        // When it is over, everybody has his own flow again.
        bed.egress.take_packets(bed.now).into_iter().for_each(|item| bed.left(item));
        assert!(bed.others.crowd.is_over());
        let lane = bed.others.lane(bed.now + CROWD_FOR, Class::Bulk, false, &mut bed.egress);
        let joined = bed.others.join(bed.now + CROWD_FOR, (1 << 50, || 7 << 40), lane, &bed.egress);
        assert_eq!(joined.flow, 1 << 50);
    }

    #[test]
    fn very_many_hosts_share_a_few_flows() {
        let mut bed = Bed::new();
        (0..3_000).for_each(|n| bed.arrive(1 << 50 | n, n << 20 | n, (Class::Bulk, false), 100));
        let (waiting, most) = (bed.egress.waiting_in(group::OTHERS), CROWD_OF_HOSTS + CROWD_FLOWS as usize);
        assert!(waiting <= most, "{waiting}");
    }

    #[test]
    fn acknowledgements_that_wait_are_no_flows_that_share_the_link() {
        let rate_bps = Some(1_000_000);
        let mut egress = Egress::<u8>::new(farlink_egress::Config { rate_bps, ..Default::default() });
        let (mut others, now) = (Others::default(), Instant::from_millis(1_000));
        crate::acks::follow(now, &mut egress);
        let lane = others.lane(now, Class::Bulk, false, &mut egress);
        assert!(egress.enqueue(now, 1, lane, 1_500_u32, 0).is_empty());
        egress.set_ready(now, 2, Class::Bulk);
        for flow in 3..13 {
            egress.set_ready(now, flow, Lane { class: Class::Control, group: group::GATEWAY_ACKS });
        }
        others.follow(now, &mut egress);
        assert_eq!(others.parts, Some(Parts { other: 1, tcp: 1, split: 1 }));
        others.choose(Some(Weights { split: 3, forwarded: 1 }));
        others.follow(now, &mut egress);
        assert_eq!(others.parts, Some(Parts { other: 1, tcp: 1, split: 3 }));
    }

    #[test]
    fn a_mark_changes_nothing_else() {
        let mut v4 = vec![0x45, 0xb9, 0, 28, 0, 9, 0x40, 0, 63, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1];
        let sum = !farlink_wire::checksum::sum(&v4);
        v4[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut v6 = vec![0x6b, 0x9a, 0xbc, 0xde, 0, 0, 17, 63];
        v6.extend_from_slice(&[1; 32]);
        for (mut packet, dscp) in [(v4, 46), (v6, 46)] {
            let before = packet.clone();
            mark(&mut packet);
            assert_eq!(ip::traffic_class(&packet), Some(dscp << 2 | 3));
            match packet[0] >> 4 {
                4 => assert_eq!(farlink_wire::checksum::sum(&packet), 0xffff),
                _ => assert_eq!(ip::flow_label(&packet), ip::flow_label(&before)),
            }
            edit::write_traffic_class(&mut packet, dscp << 2 | 1);
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn the_target_follows_the_round_trip_and_the_packet() {
        let ms = Duration::from_millis;
        let satellite = aqm(Some(ms(500)), ms(2), ms(0));
        assert_eq!((satellite.interval, satellite.target, satellite.bound), (ms(500), ms(63), ms(14)));
        let unknown = aqm(None, ms(0), ms(0));
        assert_eq!((unknown.interval, unknown.target), (ms(100), Duration::from_micros(12_500)));
        let tcp = aqm_of_tcp(Some(ms(500)), (Some(8_000_000), Some(400_000)), (ms(2), ms(0)));
        assert_eq!((tcp.interval, tcp.target, tcp.bound), (ms(1000), ms(253), Duration::MAX));
        let starved = aqm_of_tcp(Some(ms(500)), (Some(8_000_000), Some(300_000)), (ms(2), ms(0)));
        assert_eq!(starved.target, Duration::MAX);
        let crowd = aqm(Some(ms(500)), ms(2), ms(120));
        assert_eq!((crowd.target, crowd.bound), (ms(183), ms(134)));
    }
}
