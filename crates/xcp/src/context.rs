//! One allowance for all flows between two gateways.
//!
//! Each flow's receiver tells that flow what has come of its wishes. All of it changes the one
//! allowance, so a flow that begins finds what the others have. A context of n flows counts as n
//! at the routers.
//!
//! The draft halves in each round trip what is not used (section 4.1.1.4). Then a pair of gateways
//! that rests for a second would begin anew. So what has been used to the full is kept for a while,
//! and then given up as the draft has it, but not below what a connection begins with.
//!
//! What is kept leaves at its pace, spread over the round trip, and never as a burst. Others may
//! have taken the capacity meanwhile. So the first flight after a rest is half of it. The rest
//! leaves slowly, until what was sent first shows whether it has made a queue.

use farlink_wire::xcp::XcpFields;
use farlink_wire::{Duration, Instant, WireSize};

use crate::receiver::Sums;
use crate::sender::Sender;
use crate::trust::{Doubt, UNPROVEN_PACKETS, UNPROVEN_TIMES};

/// So long after it was last used to the full all of an allowance is kept.
pub const KEPT: Duration = Duration::from_secs(3);
/// With so many packets any connection may begin (RFC 6928): no less is allowed when routers begin
/// to speak, and no more is given up of what is not used.
const BEGIN_PACKETS: f64 = 10.0;
/// The part of a round trip that a new sample counts for; the others have the rest.
const RTT_GAIN: f64 = 0.25;
/// After so many round trips without a sample the next one counts alone: what was measured while
/// others were under way is no measure for who begins.
const RTT_STALE_ROUNDS: u32 = 4;
/// Pauses of less are the turns of a timer, and no pauses; so is this part of a round trip.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_PARTS: u32 = 4;

/// After a rest so many bytes may leave at the pace of before, or half of a round trip's, until
/// what left first has been acknowledged: the size of a page, or of a small file.
const FIRST_BYTES: f64 = 131_072.0;
/// One part of so many is the pace of what follows, and, where the first flight has made a queue,
/// what is left of the allowance.
const SLOWER: u64 = 4;
/// It is looked at so much later than the first acknowledgement, in parts of the round trip; and it
/// has made a queue where the round trip has grown by this part.
const LOOK_AFTER: f64 = 1.25;
const GROWN: f64 = 1.125;
/// Without an answer in so many round trips nothing is waited for.
const ANSWER_ROUNDS: u32 = 4;

/// What one flow has with its context.
#[derive(Clone, Copy, Debug, Default)]
pub struct Member {
    /// The round trip in which it was counted last.
    round: u32,
    /// What its receiver has told it.
    sums: Sums,
    /// What the context had heard when it last heard of that.
    heard: u32,
}

impl Member {
    /// A flow whose receiver begins with nothing.
    #[must_use]
    pub fn of_new_flow() -> Self {
        Self { sums: Sums::of_new_flow(), ..Self::default() }
    }

    /// It is told another receiver's sum from now on, or of one that has gone on meanwhile: what
    /// comes first says nothing of a change.
    pub fn forget_sum(&mut self) {
        self.sums.forget();
    }

    /// What its receiver has told it.
    pub fn sums_mut(&mut self) -> &mut Sums {
        &mut self.sums
    }
}

/// The allowance that all flows between two gateways share.
#[derive(Clone, Debug)]
pub struct Context {
    sender: Sender,
    /// Routers have spoken to one of the flows, and none has found since that they do not.
    speaks: bool,
    /// Routers are not believed until then, and why.
    doubted: Option<(Instant, Doubt)>,
    /// How often some flow has heard of routers, modulo 2^32.
    heard: u32,
    rtt_at: Instant,
    rounds: Rounds,
    usage: Usage,
    /// After a rest, until it is known whether there is room for all of the allowance.
    first: Option<First>,
}

/// The first flight after a rest.
#[derive(Clone, Copy, Debug)]
struct First {
    since: Instant,
    /// So much of it may still leave at the full pace.
    left_bytes: f64,
    /// The round trip of its first packets.
    rtt: Option<Duration>,
}

/// What was sent in this round trip, and in the one before, and by how many.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    number: u32,
    began_at: Instant,
    flows: [u32; 2],
    bytes: [u64; 2],
    /// What might be under way when it began, bytes.
    window_bytes: u64,
    /// One packet of each has asked routers whether they speak.
    has_asked: bool,
}

/// How much of the allowance is used.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// At its pace what has left takes until then.
    busy_until: Instant,
    /// Without a pause since then.
    busy_since: Instant,
    /// When it was last used for a round trip without a pause.
    full_at: Instant,
    /// When a packet left last.
    sent_at: Instant,
    aged_at: Instant,
}

impl Context {
    /// Nothing has been sent. `packet_bytes` and `allowed_max_bps` as for [`Sender::new`].
    #[must_use]
    pub fn new(now: Instant, packet_bytes: u32, allowed_max_bps: u64) -> Self {
        Self {
            sender: Sender::new(now, packet_bytes, allowed_max_bps).without_ageing(),
            speaks: false,
            doubted: None,
            heard: 0,
            rtt_at: Instant::ZERO,
            rounds: Rounds {
                number: 1,
                began_at: now,
                flows: [0; 2],
                bytes: [0; 2],
                window_bytes: 0,
                has_asked: false,
            },
            usage: Usage { busy_until: now, busy_since: now, full_at: now, sent_at: now, aged_at: now },
            first: None,
        }
    }

    /// Routers speak: it is the clock of its flows.
    #[must_use]
    pub fn speaks(&self) -> bool {
        self.speaks
    }

    /// Bytes of packets that may be under way.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.sender.window_bytes()
    }

    /// Bits a second that may be sent; `None`: it is no clock.
    #[must_use]
    pub fn rate_bps(&self) -> Option<u64> {
        let bps = self.sender.allowed_bps().filter(|_| self.speaks)?;
        let is_slower = self.first.is_some_and(|first| first.left_bytes <= 0.0);
        Some(if is_slower { bps / SLOWER } else { bps })
    }

    /// The mean size of packets, bytes; never 0.
    #[must_use]
    pub fn packet_bytes(&self) -> u64 {
        (self.sender.packet_bytes() as u64).max(1)
    }

    /// Flows that have sent in this round trip or the one before; one at least.
    #[must_use]
    pub fn flows(&self) -> u32 {
        let [before, now] = self.rounds.flows;
        before.max(now).max(1)
    }

    /// The round trip; `None`: none is known.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.sender.rtt()
    }

    /// When a packet left last.
    #[must_use]
    pub fn sent_at(&self) -> Instant {
        self.usage.sent_at
    }

    /// Nothing has left for so long that nothing is kept any more.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        now.since(self.usage.sent_at) > KEPT
    }

    /// A flow has measured the round trip.
    pub fn on_rtt(&mut self, now: Instant, sample: Duration) {
        self.look_at_first_flight(now, sample);
        let known = self.sender.rtt();
        let is_stale = known.is_none_or(|rtt| now.since(self.rtt_at) > rtt * RTT_STALE_ROUNDS);
        let rtt = known.filter(|_| !is_stale).map_or(sample, |rtt| {
            Duration::from_secs_f64(rtt.as_secs_f64() * (1.0 - RTT_GAIN) + sample.as_secs_f64() * RTT_GAIN)
        });
        self.rtt_at = now;
        self.sender.set_rtt(rtt);
    }

    /// The round trip is about this, as long as nobody has measured it.
    pub fn expect_rtt(&mut self, rtt: Duration) {
        if self.sender.rtt().is_none() {
            self.sender.set_rtt(rtt);
        }
    }

    /// Packets of a flow leave that are alike. Returns what each of them says. `wants_more`: there
    /// would be more to send than is allowed.
    pub fn on_send(
        &mut self,
        now: Instant,
        member: &mut Member,
        size: WireSize,
        wants_more: bool,
    ) -> XcpFields {
        self.begin_round(now);
        if member.round != self.rounds.number {
            member.round = self.rounds.number;
            self.rounds.flows[1] = self.rounds.flows[1].saturating_add(1);
        }
        self.rounds.bytes[1] += u64::from(size.bytes);
        self.sender.set_flows(self.flows());
        if self.speaks {
            self.age(now);
            self.watch_first_flight(now, size);
        } else {
            self.sender.follow(self.sent_in_round());
        }
        self.note_use(now, size);
        // Who sends for a moment only has no use for more. That routers speak shows all the same.
        let asks = !core::mem::replace(&mut self.rounds.has_asked, true);
        let wishes = wants_more && (asks || !self.speaks || self.is_used(now));
        self.sender.on_send(now, size, wishes)
    }

    /// A flow is told by its receiver that so much has been left of its wishes since it was told
    /// last, bytes a second.
    pub fn hear(&mut self, now: Instant, change: i32) {
        if self.doubted(now).is_some() {
            return;
        }
        self.heard = self.heard.wrapping_add(1);
        if !self.speaks {
            self.speaks = true;
            self.usage.full_at = now;
            self.sender.follow(self.sent_in_round().max(self.least_bytes() as u64));
        }
        // More is of use only to who uses what there is.
        if change <= 0 || self.is_used(now) {
            self.sender.change(change, self.bounds_bytes());
        }
    }

    /// A flow looks at the context. Returns whether routers have been heard since it did last.
    pub fn is_news_to(&self, member: &mut Member) -> bool {
        core::mem::replace(&mut member.heard, self.heard) != self.heard
    }

    /// Routers are not to be believed for so many round trips, as one of the flows has found out;
    /// with 0 whoever speaks next is heard again.
    pub fn doubt(&mut self, now: Instant, why: Doubt, rounds: u32) {
        self.speaks = false;
        let until = self.sender.rtt().filter(|_| rounds > 0).map(|rtt| now + rtt * rounds);
        self.doubted = until.map(|until| (until, why));
    }

    /// Why routers are not believed now.
    #[must_use]
    pub fn doubted(&self, now: Instant) -> Option<Doubt> {
        self.doubted.filter(|(until, _)| now < *until).map(|(_, why)| why)
    }

    /// What may be under way at least and at most, whatever routers say ([`crate::Trust`]).
    fn bounds_bytes(&self) -> (u64, u64) {
        let unproven = (UNPROVEN_PACKETS as f64 * self.sender.packet_bytes()) as u64;
        let most = self.sent_in_round().saturating_mul(UNPROVEN_TIMES).max(unproven);
        ((self.rounds.window_bytes / 2).min(most), most)
    }

    /// Packets leave: after a rest they are the first flight.
    fn watch_first_flight(&mut self, now: Instant, size: WireSize) {
        let Some(rtt) = self.sender.rtt() else { return };
        if now > self.usage.busy_until + rtt.max(PAUSE_MIN) {
            let left_bytes = (self.sender.window_bytes() as f64 / 2.0).max(FIRST_BYTES);
            self.first = Some(First { since: now, left_bytes, rtt: None });
        }
        self.first = self.first.filter(|first| now.since(first.since) < rtt * ANSWER_ROUNDS);
        if let Some(first) = &mut self.first {
            first.left_bytes -= f64::from(size.bytes);
        }
    }

    /// A round trip of packets of the first flight tells whether that has made a queue: then others
    /// have what was left.
    fn look_at_first_flight(&mut self, now: Instant, sample: Duration) {
        let Some(first) = &mut self.first else { return };
        if now - sample < first.since {
            return;
        }
        let rtt = *first.rtt.get_or_insert(sample);
        if now.since(first.since).as_secs_f64() < LOOK_AFTER * rtt.as_secs_f64() {
            return;
        }
        self.first = None;
        if sample.as_secs_f64() > GROWN * rtt.as_secs_f64() {
            self.sender.follow((self.sender.window_bytes() / SLOWER).max(self.least_bytes() as u64));
        }
    }

    /// The next round trip begins when the last one is over.
    fn begin_round(&mut self, now: Instant) {
        let elapsed = now.since(self.rounds.began_at);
        let Some(rtt) = self.sender.rtt().filter(|rtt| elapsed >= *rtt) else { return };
        let is_next = elapsed < rtt * 2;
        let [_, flows] = self.rounds.flows.map(|n| if is_next { n } else { 0 });
        let [_, bytes] = self.rounds.bytes.map(|n| if is_next { n } else { 0 });
        let number = self.rounds.number.wrapping_add(1).max(1);
        self.rounds = Rounds {
            number,
            began_at: now,
            flows: [flows, 0],
            bytes: [bytes, 0],
            window_bytes: self.sender.window_bytes(),
            has_asked: false,
        };
    }

    /// What was sent in a round trip of late, bytes.
    fn sent_in_round(&self) -> u64 {
        let [before, now] = self.rounds.bytes;
        before.max(now)
    }

    /// What any connection may begin with, bytes.
    fn least_bytes(&self) -> f64 {
        BEGIN_PACKETS * self.sender.packet_bytes()
    }

    /// Pauses that are none, see [`PAUSE_MIN`].
    fn pause(&self) -> Duration {
        self.sender.rtt().map_or(PAUSE_MIN, |rtt| (rtt / PAUSE_PARTS).max(PAUSE_MIN))
    }

    fn note_use(&mut self, now: Instant, size: WireSize) {
        let pause = self.pause();
        let usage = &mut self.usage;
        usage.sent_at = now;
        if now > usage.busy_until + pause {
            usage.busy_since = now;
        }
        let (Some(rtt), Some(bps)) = (self.sender.rtt(), self.sender.allowed_bps()) else { return };
        let takes_s = f64::from(size.bytes) * 8.0 / (bps.max(1) as f64);
        // What leaves faster than the pace is nothing that is used later.
        usage.busy_until = usage.busy_until.max(now) + Duration::from_secs_f64(takes_s).min(rtt);
        if now.since(usage.busy_since) >= rtt {
            usage.full_at = now;
        }
    }

    /// It has been used without a pause for half a round trip.
    fn is_used(&self, now: Instant) -> bool {
        let Some(rtt) = self.sender.rtt() else { return false };
        now <= self.usage.busy_until + self.pause() && now.since(self.usage.busy_since) >= rtt / 2
    }

    /// What has not been used for long is given up, half of it in each round trip.
    fn age(&mut self, now: Instant) {
        let Some(rtt) = self.sender.rtt() else { return };
        let from = self.usage.aged_at.max(self.usage.full_at + KEPT);
        let rounds = now.since(from).as_secs_f64() / rtt.as_secs_f64();
        if now <= from || rounds < 1.0 {
            return;
        }
        self.usage.aged_at = now;
        let window = self.sender.window_bytes() as f64;
        let least = (self.sent_in_round() as f64).max(self.least_bytes());
        if window > least {
            self.sender.follow((least + (window - least) * 0.5_f64.powf(rounds)) as u64);
        }
    }
}
