//! The groups of a link's queue, by what they are for. Numbers stand here alone, so that no two
//! purposes have one.

use farlink_egress::GroupId;

/// What is in no other group: what this gateway sends itself, and what keeps connections going. On
/// the queue of an XCP router all that does not say how fast it is sent.
pub const PLAIN: GroupId = GroupId::DEFAULT;
/// Forwarded packets that say how fast they are sent, where the queue answers them (XCP).
pub const XCP: GroupId = GroupId(1);
/// Acknowledgements to other gateways, where the link is slow (`acks.rs`).
pub const GATEWAY_ACKS: GroupId = GroupId(2);
/// Forwarded packets that are no TCP (`others.rs`), where the queue answers none of them.
pub const OTHERS: GroupId = GroupId(3);
/// TCP that is only forwarded, there.
pub const FORWARDED_TCP: GroupId = GroupId(4);
/// What this gateway sends to those with which it has one allowance: the first of their numbers.
pub const FIRST_PAIR: u32 = 1 << 16;
