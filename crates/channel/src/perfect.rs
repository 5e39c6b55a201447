//! What a perfect sender would need: one who knows when the link is there, and always has the next
//! packet ready.

use farlink_wire::time::{Duration, Instant};

use crate::config::{ChannelConfig, WinkSide};
use crate::line::end_of;
use crate::schedule::section;
use crate::wink::Winker;

/// Outages that one packet is tried across.
const TRIES_MAX: usize = 1_000_000;

/// When the last of `bytes` arrives over `links`, one behind the other, in packets of
/// `packet_bytes` each and a remainder. The first packet may enter the first link at `from`. Before
/// each link there is a store: a packet waits there until all of it has come, the one in front of
/// it has left, and the link is there. None is sent into an outage (contacts, winks). Losses that
/// hit single packets are not counted, nor is jitter; delays over time and frames are. `seed` is of
/// channels whose winks have none of their own. `None`: a link does not carry them all, or its rate
/// is asked for, so that it depends on what is sent.
#[must_use]
pub fn perfect_arrival(
    links: &[ChannelConfig],
    seed: u64,
    from: Instant,
    bytes: u64,
    packet_bytes: u32,
) -> Option<Instant> {
    if links.iter().any(|config| config.demand.is_some()) {
        return None;
    }
    let mut hops: Vec<Hop<'_>> = links.iter().map(|config| Hop::new(config, seed, from)).collect();
    let mut arrival = from;
    let mut left_bytes = bytes;
    while left_bytes > 0 {
        let packet = left_bytes.min(u64::from(packet_bytes.max(1)));
        arrival = hops.iter_mut().try_fold(from, |at, hop| hop.carry(at, packet))?;
        left_bytes -= packet;
    }
    // Nothing at all takes the time of the way.
    Some(if bytes == 0 { links.iter().fold(from, |at, link| link.arrives_at(at)) } else { arrival })
}

/// A link with what waits before it.
struct Hop<'a> {
    config: &'a ChannelConfig,
    winker: Option<(Winker, WinkSide)>,
    /// When the packet in front has left.
    clock: Instant,
    /// When it has arrived, before the end of its frame.
    last_due: Instant,
}

impl<'a> Hop<'a> {
    fn new(config: &'a ChannelConfig, seed: u64, from: Instant) -> Self {
        let winker = config.wink.map(|wink| (Winker::new(&wink, config.start, seed), wink.side));
        Self { config, winker, clock: from, last_due: from }
    }

    /// When a packet that has come at `at` is at the far end.
    fn carry(&mut self, at: Instant, packet_bytes: u64) -> Option<Instant> {
        let bits = (packet_bytes + u64::from(self.config.overhead_bytes)) * 8;
        self.clock = one(self.config, self.winker.as_mut(), self.clock.max(at), bits)?;
        let due = self.clock + self.config.delay_at(self.clock);
        let due = if self.config.jitter_keeps_order { due.max(self.last_due) } else { due };
        self.last_due = due;
        Some(self.config.end_of_frame(due))
    }
}

/// When a packet that may begin at `clock` has left, in one piece and not in vain.
fn one(
    config: &ChannelConfig,
    mut winker: Option<&mut (Winker, WinkSide)>,
    mut clock: Instant,
    bits: u64,
) -> Option<Instant> {
    for _ in 0..TRIES_MAX {
        let begin = section(config, clock);
        if !begin.open || begin.rate_bps == Some(0) {
            clock = begin.until?;
            continue;
        }
        let end = end_of(clock, bits, config);
        let is_cut = begin.until.filter(|until| *until < end && !section(config, *until).open);
        if let Some(until) = is_cut {
            clock = until;
            continue;
        }
        let Some((winker, side)) = winker.as_mut() else { return Some(end) };
        let blocked_at = match side {
            WinkSide::Entry => winker.first_down_within(clock, end),
            WinkSide::Exit => Some(end + config.delay_at(end)).filter(|at| winker.is_down(*at)),
        };
        let Some(at) = blocked_at else { return Some(end) };
        let again = winker.next_interval(at);
        clock = match side {
            WinkSide::Entry => again,
            // So late that it arrives with the next interval.
            WinkSide::Exit => clock + again.since(end + config.delay_at(end)).max(Duration::from_nanos(1)),
        };
    }
    None
}
