//! How far from the expected ones the sequence numbers of a connection can be.

/// Numbers so far from ours belong to another connection on the same 4-tuple, whose handshake
/// passed round us.
pub const STRANGER_BYTES: u64 = 1 << 26;
/// Old acknowledgements reach back so far at least: one super-segment, and the largest window
/// without scaling.
pub const OLD_ACK_SLACK: u64 = 65_536;
