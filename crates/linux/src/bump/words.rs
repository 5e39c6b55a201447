//! What the programs at an interface and this process tell each other by maps: entries and
//! counters.

/// What is known of an interface: [`CONFIGURED`], [`WHOLE`] and its rank; then whether its programs
/// have seen a packet that came in, and one that left. A program writes that once, and then only
/// reads it, so that processors do not wait for each other.
pub(super) type Entry = [u32; 3];

/// Counters of a bump.
pub(super) const SLOTS: u32 = 16;
/// How many bits a rank is shifted by for its first counter.
pub(super) const SLOTS_SHIFT: i32 = 4;
/// Those of IPv6 stand behind those of IPv4.
pub(super) const SLOT_V6: u32 = 8;
/// Packets that came in by the bumped interface and leave the machine by another. SYNs; the others
/// follow.
pub(super) const SLOT_LEFT: u32 = 0;
/// Packets that came in, and would have been taken, had their family not been let go. SYNs; the
/// others follow.
pub(super) const SLOT_PLAIN: u32 = 2;
/// Packets from the device that leave by the bumped interface itself, behind all programs and rules
/// of others there. SYNs; the others follow.
pub(super) const SLOT_SENT: u32 = 4;

/// This interface is configured.
pub(super) const CONFIGURED: u32 = 1;
/// Everything that leaves by it is taken.
pub(super) const WHOLE: u32 = 2;
/// Nothing of this family is taken here for now.
pub(super) const WITHOUT_V4: u32 = 4;
pub(super) const WITHOUT_V6: u32 = 8;
/// The upper half is its rank. Of the two interfaces that a packet passes the one with the smaller
/// rank takes it.
pub(super) const RANK_SHIFT: u32 = 16;
