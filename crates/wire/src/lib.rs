//! Packets as bytes: IPv4/IPv6, TCP and its options, ICMP, checksums, fragments, super-segments.
//!
//! Everything here is a pure function of bytes or a bounded container of them: no clock, no socket,
//! no panic on any input. [`parse`] reads a packet once into plain values; [`edit`] changes a
//! forwarded packet in place; [`build`] writes the headers of a new one; [`supersegment`],
//! [`mod@fragment`] and [`reassembly`] cut and join.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::unreachable
    )
)]

pub mod build;
mod bytes;
pub mod checksum;
mod datagram;
pub mod edit;
pub mod fragment;
pub mod icmp;
pub mod ip;
pub mod offload;
pub mod options;
pub mod packet;
pub mod pcap;
pub mod pool;
pub mod quantity;
pub mod reassembly;
pub mod said;
pub mod seq;
pub mod shim;
pub mod supersegment;
pub mod tcp;
pub mod time;
pub mod xcp;

pub use build::{BuildError, HeaderBytes, SegmentHeader, finish_checksums};
pub use edit::NoRoom;
pub use fragment::{FragmentError, fragment};
pub use icmp::{IcmpError, IcmpKind, InnerTcp};
pub use ip::{Ecn, FragmentInfo, IpInfo, Parsed, parse, parse_with};
pub use offload::{ChecksumState, Gso, Offload, OffloadError, VNET_HEADER_BYTES, WireSize};
pub use options::{
    FARLINK_DATA, FARLINK_EXIDS, FARLINK_SYN, FARLINK_SYN_ACK, FarlinkOption, SackBlock, TcpOptions,
    Timestamps,
};
pub use packet::PacketBuf;
pub use pcap::PcapWriter;
pub use pool::{BLOCK_OVERHEAD_BYTES, Block, LARGE_BLOCK_BYTES, Pool, SMALL_BLOCK_BYTES};
pub use reassembly::{Pushed, Reassembled, Reassembler, ReassemblyLimits};
pub use said::Said;
pub use seq::SeqNum;
pub use shim::{Shim, ShimProtocols};
pub use supersegment::{segment, segment_count};
pub use tcp::{Flags, TcpSegment, verify_checksums};
pub use time::{Duration, Instant};
