//! What a channel is told and what it tells.

use farlink_wire::ShimProtocols;
use farlink_wire::time::{Duration, Instant};
use farlink_xcp::Weights;

/// One direction of an emulated path. The default is a perfect wire: no delay, no limit, no
/// impairment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChannelConfig {
    /// Time zero of everything that is stated as a time since the start (winks, contacts, rate
    /// changes). Both directions of a link take the same.
    pub start: Instant,
    /// Serialisation rate in bits per second; `None`: infinitely fast.
    pub rate_bps: Option<u64>,
    /// Link-layer bytes that each packet costs on the wire besides its own.
    pub overhead_bytes: u32,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Bytes that may wait for serialisation; `None`: no limit.
    pub queue_limit_bytes: Option<usize>,
    /// Packets that may wait for serialisation; `None`: no limit.
    pub queue_limit_packets: Option<usize>,
    /// Bit error rate: a packet is lost with probability `1 - (1 - ber)^(8 * length)`, as the
    /// link's frame check discards it.
    pub ber: f64,
    /// Independent packet loss probability.
    pub loss: f64,
    /// Probability that an IP fragment is lost, independently; whole packets are not.
    pub fragment_loss: f64,
    /// What a firewall behind the line drops.
    pub firewall: Option<Firewall>,
    /// It does so from then on, since the start.
    pub firewall_from: Duration,
    /// Bursty packet loss.
    pub gilbert_elliott: Option<GilbertElliott>,
    /// Probability that a packet is delayed by `reorder_extra` more, so that later ones overtake
    /// it.
    pub reorder: f64,
    /// Extra delay of a reordered packet.
    pub reorder_extra: Duration,
    /// Probability that a packet is delivered twice.
    pub duplicate: f64,
    /// Probability that a packet is delivered with one bit inverted.
    pub corrupt: f64,
    /// Uniform extra delay, from zero to this.
    pub jitter: Duration,
    /// Neither jitter nor a delay that falls reorders: a packet waits for the one before.
    pub jitter_keeps_order: bool,
    /// Packets leave the far end only at the ends of frames of this length, as on a medium that is
    /// shared by time; zero: at any time.
    pub jitter_frame: Duration,
    /// One-way delays over time, in order of time; they override `delay`.
    pub delay_changes: Vec<DelayChange>,
    /// Independent packet losses from given times on, in order of time; they override `loss`.
    pub loss_changes: Vec<LossChange>,
    /// The link comes and goes at random.
    pub wink: Option<Wink>,
    /// When the link is there at all, in order of time; empty: always.
    pub contact_plan: Vec<Contact>,
    /// The contact plan repeats after this time; `None`: after its last contact the link is gone.
    pub contact_period: Option<Duration>,
    /// Between contacts packets wait in the queue instead of being lost.
    pub contact_hold: bool,
    /// Rates from given times on, in order of time; they override `rate_bps`.
    pub rate_changes: Vec<RateChange>,
    /// The rate is asked for; `rate_bps` and its changes are upper bounds then.
    pub demand: Option<Demand>,
    /// A medium that both directions share is free for the other one only so long after a packet.
    pub turnaround: Duration,
    /// The queue before the line is controlled by XCP.
    pub xcp: Option<XcpRouter>,
    /// What becomes of the words of XCP behind the line.
    pub xcp_harm: Option<XcpHarm>,
    /// The IP protocol of the draft's own header, for both of them; `None`: the usual one.
    pub xcp_protocol: Option<u8>,
    /// Another line behind this one, whose queue drops its tail and knows nothing of XCP.
    pub behind: Option<Behind>,
}

/// Which fragments a firewall drops. It lets whole packets pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Firewall {
    /// All.
    Fragments,
    /// Those that say "don't fragment": some boxes take these for an attack. IPv6 has no such bit.
    FragmentsWithDf,
}

/// A line that is always there and always as fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind {
    /// Serialisation rate in bits per second.
    pub rate_bps: u64,
    /// Bytes that may wait for serialisation.
    pub queue_limit_bytes: usize,
}

/// Who changes the words of XCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XcpHarm {
    /// A box that leaves out what it does not know: fields and sums.
    Strip,
    /// A liar who gives 8 Mbit/s more with each packet.
    More,
    /// One who takes as much.
    Less,
    /// One who gives and takes at random, up to 1 Gbit/s with each packet.
    Both,
    /// One who tells old sums again, each for a while.
    Replay,
    /// One who says anything: of times, wishes and sums.
    Wild,
}

/// What the XCP router of a queue is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XcpRouter {
    /// The rate that it believes the line to have, bits per second of IP packets; `None`: the one
    /// that it has.
    pub capacity_bps: Option<u64>,
    /// The longest round trip that is ordinary here, 1 s at least.
    pub max_interval: Duration,
    /// XCP traffic and the rest wait in queues of their own, and share the line by these; `None`:
    /// in one.
    pub weights: Option<Weights>,
    /// From this time after the start to that one it says nothing, and then it has forgotten all.
    pub away: Option<(Duration, Duration)>,
}

/// A parameter that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The field of [`ChannelConfig`].
    pub field: &'static str,
    /// What is allowed there.
    pub allowed: &'static str,
}

impl core::fmt::Display for Invalid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: must be {}", self.field, self.allowed)
    }
}

impl core::error::Error for Invalid {}

impl ChannelConfig {
    /// The firewall that is there at this time.
    pub(crate) fn firewall_at(&self, now: Instant) -> Option<Firewall> {
        self.firewall.filter(|_| now.since(self.start) >= self.firewall_from)
    }

    /// What stands for the draft's own header.
    pub(crate) fn shims(&self) -> ShimProtocols {
        self.xcp_protocol.map_or(ShimProtocols::USUAL, |protocol| ShimProtocols::NONE.with(protocol))
    }

    /// Finds the first parameter that makes no sense. A channel works with any parameters (a
    /// probability above one is certainty), but a person who wrote them meant something else.
    ///
    /// # Errors
    /// The field and what is allowed there.
    pub fn check(&self) -> Result<(), Invalid> {
        let ge = self.gilbert_elliott;
        let probabilities = [
            ("ber", Some(self.ber)),
            ("loss", Some(self.loss)),
            ("fragment_loss", Some(self.fragment_loss)),
            ("reorder", Some(self.reorder)),
            ("duplicate", Some(self.duplicate)),
            ("corrupt", Some(self.corrupt)),
            ("gilbert_elliott.p_good_to_bad", ge.map(|g| g.p_good_to_bad)),
            ("gilbert_elliott.p_bad_to_good", ge.map(|g| g.p_bad_to_good)),
            ("gilbert_elliott.loss_good", ge.map(|g| g.loss_good)),
            ("gilbert_elliott.loss_bad", ge.map(|g| g.loss_bad)),
            ("wink.p", self.wink.map(|w| w.p)),
            ("loss_changes", self.loss_changes.iter().map(|c| c.loss).find(|p| !(0.0..=1.0).contains(p))),
        ];
        for (field, p) in probabilities {
            if p.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
                return Err(Invalid { field, allowed: "a probability from 0 to 1" });
            }
        }
        let rules = [
            (self.wink.is_some_and(|w| w.interval.is_zero()), "wink.interval", "longer than zero"),
            (self.contact_period.is_some_and(|p| p.is_zero()), "contact_period", "longer than zero"),
            (
                self.contact_plan.iter().any(|c| c.end <= c.start),
                "contact_plan",
                "contacts that end after they start",
            ),
            (
                self.contact_plan.iter().zip(self.contact_plan.iter().skip(1)).any(|(a, b)| b.start < a.end),
                "contact_plan",
                "in order of time, without overlaps",
            ),
            (
                self.contact_period.is_some_and(|p| self.contact_plan.last().is_some_and(|c| c.end > p)),
                "contact_plan",
                "within contact_period",
            ),
            (!self.rate_changes.is_sorted_by_key(|c| c.at), "rate_changes", "in order of time"),
            (!self.loss_changes.is_sorted_by_key(|c| c.at), "loss_changes", "in order of time"),
            (
                self.delay_changes.iter().any(|c| c.until < c.at)
                    || self
                        .delay_changes
                        .iter()
                        .zip(self.delay_changes.iter().skip(1))
                        .any(|(a, b)| b.at < a.until),
                "delay_changes",
                "in order of time, and each over before the next begins",
            ),
            (
                self.demand
                    .is_some_and(|d| d.latency.is_zero() || d.most_bps == 0 || d.least_bps > d.most_bps),
                "demand",
                "the least rate, the most, which is above zero, and a time from asking to getting above zero",
            ),
        ];
        match rules.into_iter().find(|(broken, ..)| *broken) {
            Some((_, field, allowed)) => Err(Invalid { field, allowed }),
            None => Ok(()),
        }
    }

    /// Whether the link is always there and always as fast, near and good: it neither winks nor
    /// follows a schedule.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        let has_changes =
            !(self.rate_changes.is_empty() && self.delay_changes.is_empty() && self.loss_changes.is_empty());
        self.wink.is_none() && self.contact_plan.is_empty() && !has_changes
    }
}

/// Two-state loss model of Gilbert and Elliott. The state moves once per packet, then the packet is
/// lost with the probability of the state.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// Probability per packet of going from good to bad.
    pub p_good_to_bad: f64,
    /// Probability per packet of going from bad to good; the mean burst is its inverse.
    pub p_bad_to_good: f64,
    /// Loss probability while good.
    pub loss_good: f64,
    /// Loss probability while bad.
    pub loss_bad: f64,
}

/// The link wink of Reynolds (3.2.1, 3.3.2): in each interval the link is down with probability
/// `p`, independently of all other intervals.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wink {
    /// Probability that the link is down in an interval.
    pub p: f64,
    /// Length of an interval.
    pub interval: Duration,
    /// Seed of the draws; `None`: the channel's own. The paper's link fails in both directions at
    /// once: give both channels the same seed and start.
    pub seed: Option<u64>,
    /// At which end of the direction the packets are destroyed.
    pub side: WinkSide,
}

/// Where the winker sits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WinkSide {
    /// Before the propagation delay: a packet is lost when the link is down at any time of its
    /// serialisation; what already propagates arrives.
    #[default]
    Entry,
    /// After the propagation delay: a packet is lost when the link is down at the time it arrives.
    Exit,
}

/// One time at which the link is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contact {
    /// Begin, since the start (of the period).
    pub start: Duration,
    /// End, since the start (of the period).
    pub end: Duration,
    /// Rate during this contact, in bits per second; `None`: the channel's.
    pub rate_bps: Option<u64>,
}

/// A rate that holds from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateChange {
    /// From when on, since the start.
    pub at: Duration,
    /// The rate in bits per second.
    pub rate_bps: u64,
}

/// A delay that holds from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayChange {
    /// From when on it changes, since the start.
    pub at: Duration,
    /// When it has changed: in between it goes there on a straight line. The same as `at`: a step.
    pub until: Duration,
    /// The one-way delay.
    pub delay: Duration,
}

/// A loss that holds from a time on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossChange {
    /// From when on, since the start.
    pub at: Duration,
    /// Independent packet loss probability.
    pub loss: f64,
}

/// Capacity that is assigned by demand (`demand.rs` says how).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// What is there unasked, bits per second.
    pub least_bps: u64,
    /// The most that there is, bits per second.
    pub most_bps: u64,
    /// Time from asking to getting.
    pub latency: Duration,
}

/// Counters of one channel since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Packets offered.
    pub offered_packets: u64,
    /// Bytes offered.
    pub offered_bytes: u64,
    /// Packets delivered, copies included.
    pub delivered_packets: u64,
    /// Bytes delivered, copies included.
    pub delivered_bytes: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Dropped by independent or bursty packet loss, or as fragments.
    pub dropped_loss: u64,
    /// Dropped by a firewall.
    pub dropped_firewall: u64,
    /// Fragments that left the line.
    pub fragments: u64,
    /// Pure acknowledgements that left the line.
    pub ack_packets: u64,
    /// Their bytes.
    pub ack_bytes: u64,
    /// Of those that tell of data that came twice (D-SACK, RFC 2883).
    pub copy_ack_bytes: u64,
    /// Dropped because of a bit error.
    pub dropped_ber: u64,
    /// Dropped because the link winked.
    pub dropped_wink: u64,
    /// Dropped outside the contacts.
    pub dropped_contact: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets with an inverted bit.
    pub corrupted: u64,
    /// Packets delayed for reordering.
    pub reordered: u64,
    /// Bytes that serialised, overhead included, whether or not they arrived.
    pub serialised_bytes: u64,
    /// The most bytes that ever waited.
    pub queue_max_bytes: usize,
    /// The most packets that ever waited.
    pub queue_max_packets: usize,
}
