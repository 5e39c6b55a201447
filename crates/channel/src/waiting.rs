//! What waits for the line: in one queue, in the order in which it came; or XCP traffic apart from
//! the rest, where both share by weights, with the groups that a gateway's queue has.

use std::collections::VecDeque;

use farlink_egress::{Class, Config, Egress, Grant, GroupId, Lane, Share};
use farlink_wire::time::Instant;
use farlink_xcp::{Backlog, Kind, Weights};

use crate::config::ChannelConfig;
use crate::payload::Payload;

/// The packets that say how fast they are sent; the default group has the rest.
const XCP: GroupId = GroupId(1);
/// Beside a limit in packets alone, a packet counts as so many bytes.
const PACKET_BYTES: usize = 1_500;

/// See the module.
#[derive(Debug)]
pub(crate) enum Waiting<P> {
    /// All in one queue.
    One { queue: VecDeque<P>, bytes: usize },
    /// In groups, which are queues each for itself.
    Groups(Box<Egress<P>>),
}

impl<P: Payload> Waiting<P> {
    pub(crate) fn new(now: Instant, config: &ChannelConfig) -> Self {
        let Some(weights) = config.xcp.and_then(|xcp| xcp.weights) else {
            return Self::One { queue: VecDeque::new(), bytes: 0 };
        };
        let usual = Config::default();
        // The line says when the next one leaves, so the queue itself has no rate.
        let mut egress = Egress::new(Config {
            queue_limit_bytes: config.queue_limit_bytes.unwrap_or(usize::MAX),
            queue_limit_packets: config.queue_limit_packets.unwrap_or(usize::MAX),
            ..usual
        });
        set_weights(&mut egress, now, weights);
        Self::Groups(Box::new(egress))
    }

    /// Whether it is what this configuration asks for.
    pub(crate) fn fits(old: &ChannelConfig, new: &ChannelConfig) -> bool {
        let weights = |c: &ChannelConfig| c.xcp.and_then(|xcp| xcp.weights);
        let limits = |c: &ChannelConfig| (c.queue_limit_bytes, c.queue_limit_packets);
        weights(old) == weights(new) && (weights(new).is_none() || limits(old) == limits(new))
    }

    /// Bytes of all packets.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::One { bytes, .. } => *bytes,
            Self::Groups(egress) => egress.stats().backlog_bytes,
        }
    }

    /// How many wait.
    pub(crate) fn packets(&self) -> usize {
        match self {
            Self::One { queue, .. } => queue.len(),
            Self::Groups(egress) => egress.stats().backlog_packets,
        }
    }

    /// The same as the router of the line wants it.
    pub(crate) fn backlog(&self) -> Backlog {
        let xcp = match self {
            Self::One { .. } => 0,
            Self::Groups(egress) => egress.group_backlog_bytes(XCP),
        };
        Backlog { xcp_bytes: xcp as u64, all_bytes: self.bytes() as u64 }
    }

    /// A packet of this kind joins. Returns how many are dropped, itself or others. `plain_part`:
    /// of the room, what plain packets may fill.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        packet: P,
        (kind, plain_part): (Kind, f64),
        config: &ChannelConfig,
    ) -> usize {
        let size = packet.len_bytes();
        match self {
            Self::One { queue, bytes } => {
                let all = bytes.saturating_add(size);
                let too_many = config.queue_limit_packets.is_some_and(|limit| queue.len() >= limit);
                if too_many || config.queue_limit_bytes.is_some_and(|limit| all > limit) {
                    return 1;
                }
                *bytes = all;
                queue.push_back(packet);
                0
            }
            Self::Groups(egress) => {
                egress.set_group_limit(GroupId::DEFAULT, part_of_room(config, plain_part));
                let lane = lane_of(kind);
                let size = u32::try_from(size).unwrap_or(u32::MAX);
                egress.enqueue(now, 0, lane, size, packet).len()
            }
        }
    }

    /// The next packet.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<P> {
        match self {
            Self::One { queue, bytes } => {
                let packet = queue.pop_front()?;
                *bytes = bytes.saturating_sub(packet.len_bytes());
                Some(packet)
            }
            Self::Groups(egress) => match egress.next_grant(now)? {
                Grant::Packet(packet) | Grant::Marked(packet) => Some(packet),
                // There are none.
                Grant::Flow { .. } => None,
            },
        }
    }

    /// All packets, those of a group in their order.
    pub(crate) fn take_all(&mut self, now: Instant) -> Vec<P> {
        match self {
            Self::One { queue, bytes } => {
                *bytes = 0;
                queue.drain(..).collect()
            }
            Self::Groups(egress) => egress.take_packets(now),
        }
    }
}

fn set_weights<P>(egress: &mut Egress<P>, now: Instant, weights: Weights) {
    for (group, weight) in [(XCP, weights.xcp), (GroupId::DEFAULT, weights.plain)] {
        // There is room for two.
        let _ = egress.set_group(now, group, Share { weight, rate_bps: None });
    }
}

fn lane_of(kind: Kind) -> Lane {
    match kind {
        Kind::First => Class::Control.into(),
        Kind::Xcp => Lane { class: Class::Bulk, group: XCP },
        Kind::Plain => Class::Bulk.into(),
        Kind::Last => Class::Background.into(),
    }
}

/// This part of the room in the queue, bytes; some packets in any case.
fn part_of_room(config: &ChannelConfig, part: f64) -> usize {
    const LEAST_PACKETS: usize = 10;
    let in_packets = config.queue_limit_packets.map(|packets| packets.saturating_mul(PACKET_BYTES));
    let room = [config.queue_limit_bytes, in_packets].into_iter().flatten().min();
    room.map_or(usize::MAX, |room| ((room as f64 * part) as usize).max(LEAST_PACKETS * PACKET_BYTES))
}
