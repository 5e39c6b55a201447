//! How fast is sent, and what packets say of it (draft section 4.1.1).

use farlink_wire::{Duration, Instant, WireSize};

use farlink_wire::xcp::{HeaderTime, XcpFields};

/// The shortest round trip that can be said: 0 is one that is not known.
const SHORTEST: HeaderTime = HeaderTime(1);

/// An allowance that is not used loses so much of what is not used in each round trip (section
/// 4.1.1.4).
const AGEING: f64 = 0.5;
/// The size of packets is a mean over so many.
const SIZE_PACKETS: f64 = 16.0;

/// What a packet wishes for if there is more to send: without limit, as in the authors' simulator,
/// for routers know what there is. So a wish that arrives as it left has met none.
pub const WISH: i32 = i32::MAX;
/// What it wishes for if there is not, bytes a second: next to nothing. Zero would look like the
/// answer of a router.
pub const NO_WISH: i32 = 1;

/// The allowance of one context: a flow, or all flows between two gateways.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Bytes that may be under way.
    window_bytes: f64,
    /// The largest allowance that is ever believed, bytes a second.
    allowed_max: f64,
    /// Zero: not known.
    rtt_s: f64,
    /// Mean size of packets, bytes.
    packet_bytes: f64,
    /// Flows that share the allowance.
    flows: u32,
    /// Bytes sent since, for ageing.
    sent_bytes: u64,
    since: Instant,
    /// All of the allowance was wanted since then.
    is_full: bool,
    begins: Begins,
    /// It gives up by itself what is not used.
    ages: bool,
}

/// A context that has been told nothing yet. What it is given first, it is given with one packet of
/// a round trip for each flow, which says the spacing of all of them: so all of it is there when
/// the router counts again, and not half of it, for which it would give too much.
#[derive(Clone, Copy, Debug)]
enum Begins {
    /// The next packet that says so may leave then; so many have, in this round trip.
    At(Instant, u32),
    /// It has been told something.
    Done,
}

impl Sender {
    /// Nothing is known yet but the size of packets. `allowed_max_bps`: what the sender could use
    /// at most, in bits a second; feedback beyond is forged or of no use.
    #[must_use]
    pub fn new(now: Instant, packet_bytes: u32, allowed_max_bps: u64) -> Self {
        Self {
            window_bytes: 0.0,
            allowed_max: allowed_max_bps as f64 / 8.0,
            rtt_s: 0.0,
            packet_bytes: f64::from(packet_bytes.max(1)),
            flows: 1,
            sent_bytes: 0,
            since: now,
            is_full: true,
            begins: Begins::At(now, 0),
            ages: true,
        }
    }

    /// Whoever uses it says what is given up of what is not used, by [`Self::follow`].
    #[must_use]
    pub fn without_ageing(self) -> Self {
        Self { ages: false, ..self }
    }

    /// So many bytes may be under way now, by something else than what routers have told.
    pub fn follow(&mut self, window_bytes: u64) {
        self.window_bytes = (window_bytes as f64).max(self.packet_bytes);
    }

    /// The round trip, smoothed. With the first one the allowance begins: one packet for each flow.
    /// The window stays what it is, so a queue that makes round trips longer makes the sender
    /// slower.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt_s = rtt.max(Duration::from_nanos(1)).as_secs_f64();
        self.set_window(self.window_bytes);
    }

    /// So many flows share the allowance; one at least.
    pub fn set_flows(&mut self, flows: u32) {
        self.flows = flows.max(1);
    }

    /// The mean size of its packets, bytes.
    #[must_use]
    pub fn packet_bytes(&self) -> f64 {
        self.packet_bytes
    }

    /// The round trip; `None`: none is known.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        (self.rtt_s > 0.0).then(|| Duration::from_secs_f64(self.rtt_s))
    }

    /// Bytes that may be under way.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }

    /// Bits a second that may be sent; `None`: no round trip is known.
    #[must_use]
    pub fn allowed_bps(&self) -> Option<u64> {
        (self.rtt_s > 0.0).then(|| (self.window_bytes / self.rtt_s * 8.0) as u64)
    }

    /// Packets leave that are alike. Returns what each of them says.
    /// `wants_more`: there would be more to send than is allowed.
    pub fn on_send(&mut self, now: Instant, size: WireSize, wants_more: bool) -> XcpFields {
        let each = f64::from(size.bytes) / f64::from(size.packets.max(1));
        let weight = f64::from(size.packets).min(SIZE_PACKETS) / SIZE_PACKETS;
        self.packet_bytes += (each - self.packet_bytes) * weight;
        self.sent_bytes += u64::from(size.bytes);
        self.is_full &= wants_more;
        if self.rtt_s == 0.0 {
            // Without a round trip routers can answer nothing (draft section 4.1.1).
            return XcpFields { delta_bytes_per_s: NO_WISH, ..XcpFields::default() };
        }
        if self.ages {
            self.age(now);
        }
        let delta_bytes_per_s = if wants_more { WISH } else { NO_WISH };
        XcpFields {
            spacing: HeaderTime::of_seconds(self.spacing_s(now, size)),
            rtt: HeaderTime::of_seconds(self.rtt_s).max(SHORTEST),
            delta_bytes_per_s,
        }
    }

    /// The time from one packet to the next, as if all flows took turns: n times that of n flows.
    fn spacing_s(&mut self, now: Instant, size: WireSize) -> f64 {
        let Begins::At(at, said) = self.begins else {
            return f64::from(self.flows) * self.rtt_s * self.packet_bytes / self.window_bytes;
        };
        let (at, said) = if now < at { (at, said) } else { (now + Duration::from_secs_f64(self.rtt_s), 0) };
        if said >= self.flows {
            return 0.0;
        }
        self.begins = Begins::At(at, said + 1);
        self.rtt_s / f64::from(size.packets.max(1))
    }

    /// So many bytes a second more or less are allowed, within these bounds of what may be under
    /// way, bytes. A bound alone changes nothing.
    pub fn change(&mut self, bytes_per_s: i32, (least, most): (u64, u64)) {
        if bytes_per_s != 0 {
            self.begins = Begins::Done;
        }
        let wanted = self.window_bytes + f64::from(bytes_per_s) * self.rtt_s;
        let (least, most) = (self.window_bytes.min(least as f64), self.window_bytes.max(most as f64));
        self.set_window(wanted.max(least).min(most));
    }

    /// The fewest bytes that may be under way: one packet of each flow.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        self.least().ceil() as u64
    }

    /// One packet of each flow at least.
    fn set_window(&mut self, bytes: f64) {
        self.window_bytes = bytes.min(self.allowed_max * self.rtt_s).max(self.least());
    }

    fn least(&self) -> f64 {
        f64::from(self.flows) * self.packet_bytes
    }

    /// What has not been used for a round trip is given up in part.
    fn age(&mut self, now: Instant) {
        let elapsed_s = now.since(self.since).as_secs_f64();
        if elapsed_s < self.rtt_s {
            return;
        }
        let used = self.sent_bytes as f64 / elapsed_s * self.rtt_s;
        if used < self.window_bytes && !self.is_full {
            self.set_window(self.window_bytes * (1.0 - AGEING) + used * AGEING);
        }
        (self.sent_bytes, self.since, self.is_full) = (0, now, true);
    }
}
