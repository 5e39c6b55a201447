//! XCP's own header, between the IPv4 header and that of TCP (draft-falk-xcp-spec-03 section 2.1).
//!
//! Twenty bytes: the protocol behind it, its length, version and format, then four words. Version 3
//! has them as X, RTT, Reverse_Feedback, Delta_Throughput, version 2 (draft -02) as RTT, X,
//! Delta_Throughput, Reverse_Feedback. The draft has no protocol number, so operators choose one.
//! IPv6 is "further study" there, and has none here.
//!
//! TCP's checksum does not cover it: the pseudo header keeps TCP's protocol number and length.

use crate::build::{BuildError, HeaderBytes};
use crate::bytes::{put, put_u16, u8_at, u16_at, u32_at};
use crate::checksum;
use crate::edit;
use crate::ip::{self, Extent, IPV4_HEADER_BYTES, PROTOCOL_TCP, Upper};
use crate::offload::{ChecksumState, Offload};
use crate::packet::PacketBuf;
use crate::tcp::TCP_CHECKSUM_OFFSET;
use crate::xcp::{HeaderTime, XcpFields};

/// Bytes of the header.
pub const SHIM_BYTES: usize = 20;
/// The IP protocol number that stands for it unless somebody chooses another one: for experiments
/// (RFC 3692).
pub const SHIM_PROTOCOL: u8 = 254;
const STANDARD: u8 = 1;
const MINIMAL: u8 = 2;

/// The order of the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShimVersion {
    /// Of draft -02.
    Two = 2,
    /// Of draft -03, which is what is written.
    #[default]
    Three = 3,
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shim {
    /// In which order it stands, or stood.
    pub version: ShimVersion,
    /// How the packet is sent; `None`: the minimal format, of acknowledgements without data, which
    /// routers pass by.
    pub said: Option<XcpFields>,
    /// Reverse_Feedback: what has come of the wishes of the other direction since the last packet,
    /// bytes a second.
    pub feedback_bytes_per_s: i32,
}

/// IP protocol numbers that stand for the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShimProtocols([u64; 4]);

impl ShimProtocols {
    /// No header is known.
    pub const NONE: Self = Self([0; 4]);
    /// The usual one.
    pub const USUAL: Self = Self([0, 0, 0, 1 << (SHIM_PROTOCOL % 64)]);

    /// This one, too.
    #[must_use]
    pub fn with(mut self, protocol: u8) -> Self {
        if let Some(word) = self.0.get_mut(usize::from(protocol / 64)) {
            *word |= 1 << (protocol % 64);
        }
        self
    }

    /// It stands for the header.
    #[must_use]
    pub fn has(self, protocol: u8) -> bool {
        self.0.get(usize::from(protocol / 64)).is_some_and(|word| word >> (protocol % 64) & 1 == 1)
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }
}

/// Numbers that can stand for the header: not those of what may be diverted besides, nor what IPv4
/// routers act on.
#[must_use]
pub const fn may_stand_for_shim(protocol: u8) -> bool {
    // ICMP, IGMP, IPv4, TCP, UDP, IPv6, GRE, ESP, AH, ICMPv6.
    !matches!(protocol, 0..=2 | 4 | 6 | 17 | 41 | 47 | 50 | 51 | 58)
}

impl Shim {
    /// The header at the beginning of these bytes, and the protocol behind it. `None`: it is cut
    /// short, or of no length, version or format that is known.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<(u8, Self)> {
        let version = match u8_at(bytes, 2)? >> 4 {
            2 => ShimVersion::Two,
            3 => ShimVersion::Three,
            _ => return None,
        };
        let is_standard = match u8_at(bytes, 2)? & 0x0f {
            STANDARD => true,
            MINIMAL => false,
            _ => return None,
        };
        if usize::from(u8_at(bytes, 1)?) != SHIM_BYTES {
            return None;
        }
        let words = [u32_at(bytes, 4)?, u32_at(bytes, 8)?, u32_at(bytes, 12)?, u32_at(bytes, 16)?];
        let (spacing, rtt, feedback, delta) = match (version, words) {
            (ShimVersion::Three, [spacing, rtt, feedback, delta])
            | (ShimVersion::Two, [rtt, spacing, delta, feedback]) => (spacing, rtt, feedback, delta),
        };
        let fields = XcpFields {
            spacing: HeaderTime(spacing),
            rtt: HeaderTime(rtt),
            delta_bytes_per_s: delta.cast_signed(),
        };
        let shim = Self {
            version,
            said: is_standard.then_some(fields),
            feedback_bytes_per_s: feedback.cast_signed(),
        };
        Some((u8_at(bytes, 0)?, shim))
    }

    /// The header before TCP.
    #[must_use]
    pub fn bytes(&self) -> [u8; SHIM_BYTES] {
        let (said, format) = self.said.map_or((XcpFields::default(), MINIMAL), |said| (said, STANDARD));
        let head = [PROTOCOL_TCP, SHIM_BYTES as u8, (self.version as u8) << 4 | format, 0];
        let (spacing, rtt) = (said.spacing.0, said.rtt.0);
        let delta = said.delta_bytes_per_s.cast_unsigned();
        let feedback = self.feedback_bytes_per_s.cast_unsigned();
        let words = match self.version {
            ShimVersion::Three => [spacing, rtt, feedback, delta],
            ShimVersion::Two => [rtt, spacing, delta, feedback],
        };
        let mut out = [0; SHIM_BYTES];
        let bytes = head.into_iter().chain(words.into_iter().flat_map(u32::to_be_bytes));
        out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = byte);
        out
    }

    /// Where the wish stands, from the header's first byte on.
    #[must_use]
    pub(crate) const fn delta_at(&self) -> usize {
        match self.version {
            ShimVersion::Three => 16,
            ShimVersion::Two => 12,
        }
    }

    /// Changes what stands in the header of an IPv4 packet by one of these protocols, in its place.
    /// Returns whether there is one.
    pub fn change_in(packet: &mut [u8], protocols: ShimProtocols, change: impl FnOnce(&mut Self)) -> bool {
        let Some((at, _, mut shim)) = Self::of_packet(packet, protocols) else { return false };
        change(&mut shim);
        // The protocol behind it stays.
        let [_, words @ ..] = shim.bytes();
        put(packet, at.saturating_add(1), &words);
        true
    }

    /// Puts it behind the IPv4 header (without options) of a segment that is made, whose IP
    /// protocol becomes `protocol`, and completes the checksum over this payload: network cards
    /// look for it behind the IP header.
    ///
    /// # Errors
    /// The packet becomes too long, or is IPv6. It stays as it was.
    pub fn put_into(
        &self,
        protocol: u8,
        (header, offload): (&mut HeaderBytes, &mut Offload),
        payload: &[&[u8]],
    ) -> Result<(), BuildError> {
        if u8_at(header, 0) != Some(0x45) {
            return Err(BuildError::MixedFamilies);
        }
        let total = usize::from(u16_at(header, 2).unwrap_or(u16::MAX)).saturating_add(SHIM_BYTES);
        let said = u16::try_from(total).map_err(|_| BuildError::TooLong(total))?;
        if let Some(tcp) = header.get_mut(IPV4_HEADER_BYTES..).filter(|_| offload.is_partial()) {
            let parts = payload.iter().fold((checksum::sum(tcp), tcp.len()), |(sum, len), part| {
                (checksum::combine(sum, len, checksum::sum(part)), len.saturating_add(part.len()))
            });
            put_u16(tcp, TCP_CHECKSUM_OFFSET, !parts.0);
        }
        let (ip, tcp) = header.split_at_checked(IPV4_HEADER_BYTES).unwrap_or_default();
        let mut out = HeaderBytes::new();
        for part in [ip, &self.bytes(), tcp] {
            out.try_extend_from_slice(part).map_err(|_| BuildError::TooLong(total))?;
        }
        put_u16(&mut out, 2, said);
        edit::write_protocol(&mut out, protocol);
        put_u16(&mut out, 10, 0);
        let check = !checksum::sum(out.get(..IPV4_HEADER_BYTES).unwrap_or_default());
        put_u16(&mut out, 10, check);
        offload.checksum = ChecksumState::Unverified;
        offload.header_len = 0;
        *header = out;
        Ok(())
    }

    /// The header of a whole IPv4 packet by one of these protocols, before TCP or whatever else.
    /// Returned with it: where it stands, and what stands behind it.
    #[must_use]
    pub(crate) fn of_packet(packet: &[u8], protocols: ShimProtocols) -> Option<(usize, u8, Self)> {
        // Nearly all packets are of another protocol.
        let is_one = u8_at(packet, 0)? >> 4 == 4 && protocols.has(u8_at(packet, 9)?);
        let Upper::Whole { ip, .. } = ip::parse_ip(packet, Extent::Whole).filter(|_| is_one)? else {
            return None;
        };
        let (at, end) = (usize::from(ip.header_len), usize::try_from(ip.total_len).ok()?);
        let (next, shim) = Self::read(packet.get(at..end)?)?;
        Some((at, next, shim))
    }
}

/// Takes the header out of a packet of TCP, so that what is left is the packet without it. Returns
/// whether there was one.
pub fn take_out(p: &mut PacketBuf, protocols: ShimProtocols) -> bool {
    let Some((at, PROTOCOL_TCP, _)) = Shim::of_packet(p.bytes(), protocols) else { return false };
    let Some(total) = u16_at(p.bytes(), 2).map(usize::from).and_then(|t| t.checked_sub(SHIM_BYTES)) else {
        return false;
    };
    if !p.close_gap(at, SHIM_BYTES) {
        return false;
    }
    edit::write_total_len(p.bytes_mut(), total);
    edit::write_protocol(p.bytes_mut(), PROTOCOL_TCP);
    let shim = SHIM_BYTES as u16;
    if let ChecksumState::Partial { start, .. } = &mut p.offload.checksum {
        *start = start.saturating_sub(shim);
    }
    p.offload.header_len = p.offload.header_len.saturating_sub(shim);
    true
}
