//! What a virtio-net header says about a packet (virtio 1.2 section 5.1.6, linux/virtio_net.h), as
//! meaning, not bytes.

/// Bytes of `struct virtio_net_hdr` before each packet of a TUN with IFF_VNET_HDR.
pub const VNET_HEADER_BYTES: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// How far the transport checksum of a packet can be believed.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub enum ChecksumState {
    /// A complete checksum that nobody has looked at.
    #[default]
    Unverified,
    /// A complete checksum that was found right (DATA_VALID).
    Verified,
    /// The field holds only the sum of the pseudo header; whoever sends the packet on completes it
    /// (NEEDS_CSUM).
    Partial {
        /// Where the sum begins, in bytes from the start of the packet.
        start: u16,
        /// Where the field stands, in bytes from `start`.
        offset: u16,
    },
}

/// Whether the packet is a super-segment, and of which kind.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub enum Gso {
    /// An ordinary packet.
    #[default]
    None,
    /// TCP over IPv4, to be cut into segments.
    Tcp4,
    /// TCP over IPv6, to be cut into segments.
    Tcp6,
    /// UDP over either, to be cut into datagrams.
    Udp,
}

/// What the sender or receiver of a packet leaves to be done to it.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Offload {
    /// State of the transport checksum.
    pub checksum: ChecksumState,
    /// Kind of super-segment.
    pub gso: Gso,
    /// Payload bytes of each segment; 0 when `gso` is `None`.
    pub gso_size: u16,
    /// CWR stands in the first segment only (the GSO_ECN bit).
    pub gso_ecn: bool,
    /// Bytes of IP and TCP header; a hint.
    pub header_len: u16,
}

/// What a packet takes on the wire, where a super-segment has become the packets that it is cut
/// into.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct WireSize {
    /// Bytes of all of them, IP headers included.
    pub bytes: u32,
    /// How many they are.
    pub packets: u32,
}

impl WireSize {
    /// Of a packet, or super-segment, with so much header and payload. Each packet has the headers.
    #[must_use]
    pub fn of(header_bytes: usize, payload_bytes: usize, offload: &Offload) -> Self {
        let packets = if offload.is_super_segment() {
            payload_bytes.div_ceil(usize::from(offload.gso_size).max(1)).max(1)
        } else {
            1
        };
        let bytes = header_bytes.saturating_mul(packets).saturating_add(payload_bytes);
        Self {
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            packets: u32::try_from(packets).unwrap_or(u32::MAX),
        }
    }

    /// Of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Self { bytes, packets: self.packets.saturating_add(other.packets) }
    }

    /// Nothing has left.
    #[must_use]
    pub const fn is_nothing(self) -> bool {
        self.packets == 0
    }
}

/// One packet of so many bytes.
impl From<u32> for WireSize {
    fn from(bytes: u32) -> Self {
        Self { bytes, packets: 1 }
    }
}

/// A virtio-net header that makes no sense here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// A kind of super-segment that was never asked for (UDP in IP fragments, for one).
    #[error("virtio-net header with unsupported gso_type {0:#04x}")]
    UnsupportedGso(u8),
    /// A super-segment without a segment size.
    #[error("virtio-net header with gso_type {0:#04x} but gso_size 0")]
    ZeroGsoSize(u8),
}

impl Offload {
    /// Read a header in the machine's own byte order.
    ///
    /// # Errors
    /// A GSO type other than none, TCPv4, TCPv6 and UDP (L4), or one of these three without a size.
    pub fn parse(bytes: &[u8; VNET_HEADER_BYTES]) -> Result<Self, OffloadError> {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = *bytes;
        let gso = match gso_type & !GSO_ECN {
            GSO_NONE => Gso::None,
            GSO_TCPV4 => Gso::Tcp4,
            GSO_TCPV6 => Gso::Tcp6,
            GSO_UDP_L4 => Gso::Udp,
            _ => return Err(OffloadError::UnsupportedGso(gso_type)),
        };
        let gso_size = u16::from_ne_bytes([g0, g1]);
        if gso != Gso::None && gso_size == 0 {
            return Err(OffloadError::ZeroGsoSize(gso_type));
        }
        let checksum = if flags & FLAG_NEEDS_CSUM != 0 {
            ChecksumState::Partial {
                start: u16::from_ne_bytes([s0, s1]),
                offset: u16::from_ne_bytes([o0, o1]),
            }
        } else if flags & FLAG_DATA_VALID != 0 {
            ChecksumState::Verified
        } else {
            ChecksumState::Unverified
        };
        Ok(Self {
            checksum,
            gso,
            gso_size: if gso == Gso::None { 0 } else { gso_size },
            gso_ecn: matches!(gso, Gso::Tcp4 | Gso::Tcp6) && gso_type & GSO_ECN != 0,
            header_len: u16::from_ne_bytes([h0, h1]),
        })
    }

    /// The header's bytes, in the machine's own byte order.
    #[must_use]
    pub fn write(&self) -> [u8; VNET_HEADER_BYTES] {
        let (flags, start, offset) = match self.checksum {
            ChecksumState::Unverified => (0, 0, 0),
            ChecksumState::Verified => (FLAG_DATA_VALID, 0, 0),
            ChecksumState::Partial { start, offset } => (FLAG_NEEDS_CSUM, start, offset),
        };
        let ecn = if self.gso_ecn { GSO_ECN } else { 0 };
        let (gso_type, gso_size) = match self.gso {
            Gso::None => (GSO_NONE, 0),
            Gso::Tcp4 => (GSO_TCPV4 | ecn, self.gso_size),
            Gso::Tcp6 => (GSO_TCPV6 | ecn, self.gso_size),
            Gso::Udp => (GSO_UDP_L4, self.gso_size),
        };
        let [h0, h1] = self.header_len.to_ne_bytes();
        let [g0, g1] = gso_size.to_ne_bytes();
        let [s0, s1] = start.to_ne_bytes();
        let [o0, o1] = offset.to_ne_bytes();
        [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// The same where a header of so many bytes was put before the packet, or, below zero, was
    /// taken away.
    #[must_use]
    pub const fn shifted(mut self, bytes: i16) -> Self {
        if let ChecksumState::Partial { start, offset } = self.checksum {
            self.checksum = ChecksumState::Partial { start: start.saturating_add_signed(bytes), offset };
        }
        if self.header_len > 0 {
            self.header_len = self.header_len.saturating_add_signed(bytes);
        }
        self
    }

    /// The packet is to be cut into segments.
    #[must_use]
    pub const fn is_super_segment(&self) -> bool {
        !matches!(self.gso, Gso::None) && self.gso_size > 0
    }

    /// The checksum field holds only the pseudo header's sum.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        matches!(self.checksum, ChecksumState::Partial { .. })
    }
}
