//! Headers of the segments that a gateway makes itself.

use crate::bytes::{pad4, put, put_u16, u8_at, u16_at};
use crate::checksum;
use crate::ip::{DONT_FRAGMENT, IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, PROTOCOL_TCP};
use crate::offload::{ChecksumState, Gso, Offload};
use crate::options::{
    FARLINK_DATA, FARLINK_HEAD_BYTES, KIND_EXPERIMENT, KIND_NOP, KIND_SACK, KIND_TIMESTAMPS,
    OPTIONS_BYTES_MAX, SackBlock, TIMESTAMPS_PADDED_BYTES, Timestamps,
};
use crate::packet::PacketBuf;
use crate::pool::Pool;
use crate::seq::SeqNum;
use crate::tcp::{Flags, TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES};
use crate::xcp::{XCP_DATA_BYTES, XCP_SUM_BYTES, XcpFields, sum_option};
use arrayvec::ArrayVec;
use core::net::IpAddr;

/// Bytes of a SACK option without blocks, with the two NOPs that align it.
const SACK_HEAD_PADDED_BYTES: usize = 4;
const SACK_BLOCK_BYTES: usize = 8;

/// IP and TCP header of a segment, as bytes.
pub type HeaderBytes = ArrayVec<u8, 120>;

/// A header that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// One address is IPv4, the other IPv6.
    #[error("source and destination are of different address families")]
    MixedFamilies,
    /// More than 40 bytes of options.
    #[error("{0} bytes of TCP options where 40 fit")]
    OptionsTooLong(usize),
    /// The IP length field cannot say it.
    #[error("a packet of {0} bytes is too long for its length field")]
    TooLong(usize),
}

/// What stands in the header of a segment to be made.
#[derive(Clone, Copy, Debug)]
pub struct SegmentHeader<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// DSCP shifted left by two, and ECN.
    pub traffic_class: u8,
    /// IPv6 flow label, the low 20 bits.
    pub flow_label: u32,
    /// IPv4 identification.
    pub ip_id: u16,
    /// The DF bit of IPv4.
    pub dont_fragment: bool,
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgement number.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window field.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Timestamps option.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks, the most urgent first: as many are written as fit beside timestamps and
    /// Farlink's option.
    pub sack: &'a [SackBlock],
    /// Body of Farlink's option after the ExID; the form is [`FARLINK_DATA`].
    pub farlink: Option<&'a [u8]>,
    /// An empty body stands in the padding of the timestamps, where there are some, see
    /// [`crate::options::is_marked_in_padding`].
    pub marks_padding: bool,
    /// What the segment says of how it is sent.
    pub xcp: Option<XcpFields>,
    /// What has come of the wishes of the other direction, see [`crate::xcp::sum_option`].
    pub xcp_sum: Option<u32>,
}

impl SegmentHeader<'static> {
    /// A bare acknowledgement from one end of a connection to the other, all numbers 0: the rest is
    /// said beside it.
    #[must_use]
    pub const fn between((src, src_port): (IpAddr, u16), (dst, dst_port): (IpAddr, u16)) -> Self {
        Self {
            src,
            dst,
            src_port,
            dst_port,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: 0,
            dont_fragment: true,
            seq: SeqNum(0),
            ack: SeqNum(0),
            flags: Flags::ACK,
            window: 0,
            urgent: 0,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        }
    }
}

impl SegmentHeader<'_> {
    /// Farlink's option stands in the padding of the timestamps.
    fn is_marked_in_padding(&self) -> bool {
        self.marks_padding && self.timestamps.is_some() && self.farlink.is_some_and(<[u8]>::is_empty)
    }

    /// Farlink's option as one of its own.
    fn farlink_apart(&self) -> Option<&[u8]> {
        self.farlink.filter(|_| !self.is_marked_in_padding())
    }

    /// Bytes of options before the SACK blocks.
    fn fixed_options_len(&self) -> usize {
        let timestamps = if self.timestamps.is_some() { TIMESTAMPS_PADDED_BYTES } else { 0 };
        let farlink =
            self.farlink_apart().map_or(0, |body| pad4(FARLINK_HEAD_BYTES.saturating_add(body.len())));
        timestamps.saturating_add(farlink).saturating_add(self.xcp_len())
    }

    /// Bytes of the options of XCP.
    fn xcp_len(&self) -> usize {
        let fields = if self.xcp.is_some() { XCP_DATA_BYTES } else { 0 };
        let sum = if self.xcp_sum.is_some() { XCP_SUM_BYTES } else { 0 };
        fields.saturating_add(sum)
    }

    /// SACK blocks that fit.
    #[must_use]
    pub fn sack_blocks_written(&self) -> usize {
        let room = OPTIONS_BYTES_MAX.saturating_sub(self.fixed_options_len());
        let fits = room.saturating_sub(SACK_HEAD_PADDED_BYTES) / SACK_BLOCK_BYTES;
        self.sack.len().min(fits)
    }

    /// Bytes of TCP options, a multiple of four.
    #[must_use]
    pub fn options_len(&self) -> usize {
        let sack = match self.sack_blocks_written() {
            0 => 0,
            n => n.saturating_mul(SACK_BLOCK_BYTES).saturating_add(SACK_HEAD_PADDED_BYTES),
        };
        self.fixed_options_len().saturating_add(sack)
    }

    /// Bytes of IP and TCP header.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.ip_header_len().saturating_add(TCP_HEADER_BYTES).saturating_add(self.options_len())
    }

    const fn ip_header_len(&self) -> usize {
        if self.src.is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES }
    }

    /// The IP and TCP header for `payload_len` bytes that follow, with a partial checksum, and the
    /// offload that says so (no super-segment: the caller adds that).
    ///
    /// # Errors
    /// Mixed families, too many options, too long a packet.
    pub fn write(&self, payload_len: usize) -> Result<(HeaderBytes, Offload), BuildError> {
        self.write_with_options(payload_len, &self.options()?)
    }

    /// As [`Self::write`], with the given bytes as options (padded with NOPs to four) in place of
    /// those in the fields: for hosts of tests and the simulator, which make SYNs.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_with_options(
        &self,
        payload_len: usize,
        options: &[u8],
    ) -> Result<(HeaderBytes, Offload), BuildError> {
        let options_len = pad4(options.len());
        if options_len > OPTIONS_BYTES_MAX {
            return Err(BuildError::OptionsTooLong(options.len()));
        }
        let ip_len = self.ip_header_len();
        let tcp_header_len = TCP_HEADER_BYTES.saturating_add(options_len);
        let tcp_len = tcp_header_len.saturating_add(payload_len);
        let total = ip_len.saturating_add(tcp_len);

        let mut out = HeaderBytes::new();
        self.write_ip(&mut out, total)?;
        let tcp_len = u32::try_from(tcp_len).map_err(|_| BuildError::TooLong(total))?;
        let pseudo = checksum::pseudo_header(self.src, self.dst, PROTOCOL_TCP, tcp_len);
        append(&mut out, &self.src_port.to_be_bytes());
        append(&mut out, &self.dst_port.to_be_bytes());
        append(&mut out, &self.seq.0.to_be_bytes());
        append(&mut out, &self.ack.0.to_be_bytes());
        let quads = u16::try_from(tcp_header_len / 4).unwrap_or(15);
        append(&mut out, &(quads << 12 | self.flags.0 & Flags::MASK).to_be_bytes());
        append(&mut out, &self.window.to_be_bytes());
        append(&mut out, &pseudo.to_be_bytes());
        append(&mut out, &self.urgent.to_be_bytes());
        append(&mut out, options);
        while out.len() < ip_len.saturating_add(tcp_header_len) {
            append(&mut out, &[KIND_NOP]);
        }
        let offload = Offload {
            checksum: ChecksumState::Partial { start: small(ip_len), offset: small(TCP_CHECKSUM_OFFSET) },
            gso: Gso::None,
            gso_size: 0,
            gso_ecn: false,
            header_len: small(out.len()),
        };
        Ok((out, offload))
    }

    fn write_ip(&self, out: &mut HeaderBytes, total: usize) -> Result<(), BuildError> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let said = u16::try_from(total).map_err(|_| BuildError::TooLong(total))?;
                append(out, &[0x45, self.traffic_class]);
                append(out, &said.to_be_bytes());
                append(out, &self.ip_id.to_be_bytes());
                append(out, &(if self.dont_fragment { DONT_FRAGMENT } else { 0 }).to_be_bytes());
                append(out, &[self.ttl, PROTOCOL_TCP, 0, 0]);
                append(out, &src.octets());
                append(out, &dst.octets());
                let check = !checksum::sum(out);
                put_u16(out, 10, check);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let said = u16::try_from(total.saturating_sub(IPV6_HEADER_BYTES))
                    .map_err(|_| BuildError::TooLong(total))?;
                let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
                append(out, &first.to_be_bytes());
                append(out, &said.to_be_bytes());
                append(out, &[PROTOCOL_TCP, self.ttl]);
                append(out, &src.octets());
                append(out, &dst.octets());
            }
            _ => return Err(BuildError::MixedFamilies),
        }
        Ok(())
    }

    /// The options of the fields, padded.
    fn options(&self) -> Result<ArrayVec<u8, OPTIONS_BYTES_MAX>, BuildError> {
        let len = self.options_len();
        if len > OPTIONS_BYTES_MAX {
            return Err(BuildError::OptionsTooLong(len));
        }
        let mut out = ArrayVec::new();
        if let Some(Timestamps { val, ecr }) = self.timestamps {
            let (before, behind): (&[u8], &[u8]) =
                if self.is_marked_in_padding() { (&[KIND_NOP], &[KIND_NOP]) } else { (&[KIND_NOP; 2], &[]) };
            append(&mut out, before);
            append(&mut out, &[KIND_TIMESTAMPS, 10]);
            append(&mut out, &val.to_be_bytes());
            append(&mut out, &ecr.to_be_bytes());
            append(&mut out, behind);
        }
        if let Some(fields) = self.xcp {
            append(&mut out, &fields.option());
        }
        if let Some(sum) = self.xcp_sum {
            append(&mut out, &sum_option(sum));
        }
        let blocks = self.sack.get(..self.sack_blocks_written()).unwrap_or_default();
        if !blocks.is_empty() {
            let len =
                u8::try_from(blocks.len().saturating_mul(SACK_BLOCK_BYTES).saturating_add(2)).unwrap_or(2);
            append(&mut out, &[KIND_NOP, KIND_NOP, KIND_SACK, len]);
            for block in blocks {
                append(&mut out, &block.start.0.to_be_bytes());
                append(&mut out, &block.end.0.to_be_bytes());
            }
        }
        if let Some(body) = self.farlink_apart() {
            append(&mut out, &farlink_option(FARLINK_DATA, body).ok_or(BuildError::OptionsTooLong(len))?);
            while out.len() < len {
                append(&mut out, &[KIND_NOP]);
            }
        }
        Ok(out)
    }
}

/// A whole option of Farlink's, ready for [`crate::edit::insert_option`]; `None` when `body` is
/// longer than 36 bytes.
#[must_use]
pub fn farlink_option(form: u16, body: &[u8]) -> Option<ArrayVec<u8, OPTIONS_BYTES_MAX>> {
    let len = u8::try_from(FARLINK_HEAD_BYTES.saturating_add(body.len())).ok()?;
    let mut out = ArrayVec::new();
    out.try_extend_from_slice(&[KIND_EXPERIMENT, len]).ok()?;
    out.try_extend_from_slice(&form.to_be_bytes()).ok()?;
    out.try_extend_from_slice(body).ok()?;
    Some(out)
}

/// A whole packet: header by `header`, then `payload`, the checksum left partial. `options` as in
/// [`SegmentHeader::write_with_options`] when given.
///
/// # Errors
/// As [`SegmentHeader::write`].
pub fn packet(
    pool: &mut Pool,
    header: &SegmentHeader<'_>,
    options: Option<&[u8]>,
    payload: &[u8],
) -> Result<PacketBuf, BuildError> {
    let (bytes, offload) = match options {
        Some(options) => header.write_with_options(payload.len(), options)?,
        None => header.write(payload.len())?,
    };
    let len = bytes.len().saturating_add(payload.len());
    let mut block = pool.take_for(len.saturating_add(PacketBuf::HEADROOM));
    let whole = block.as_mut_slice();
    put(whole, PacketBuf::HEADROOM, &bytes);
    put(whole, PacketBuf::HEADROOM.saturating_add(bytes.len()), payload);
    Ok(PacketBuf::from_block(block, PacketBuf::HEADROOM, len, offload))
}

/// Complete a partial checksum in software; the caller sets the packet's state afterwards. Any
/// other state: nothing.
pub fn finish_checksums(packet: &mut [u8], offload: &Offload) {
    const UDP_CHECKSUM_OFFSET: u16 = 6;
    let ChecksumState::Partial { start, offset } = offload.checksum else { return };
    let end = claimed_len(packet);
    let Some(covered) = packet.get_mut(usize::from(start)..end) else { return };
    if u16_at(covered, usize::from(offset)).is_some() {
        let mut check = !checksum::sum(covered);
        if check == 0 && offset == UDP_CHECKSUM_OFFSET {
            // In UDP 0 says "none" (RFC 768).
            check = 0xffff;
        }
        put_u16(covered, usize::from(offset), check);
    }
}

/// Where the packet ends by its IP header; the whole buffer where that is 0 or beyond.
fn claimed_len(packet: &[u8]) -> usize {
    let said = match u8_at(packet, 0).map(|b| b >> 4) {
        Some(4) => u16_at(packet, 2).map(usize::from),
        Some(6) => {
            u16_at(packet, 4).filter(|n| *n > 0).map(|n| usize::from(n).saturating_add(IPV6_HEADER_BYTES))
        }
        _ => None,
    };
    said.filter(|n| *n > 0 && *n <= packet.len()).unwrap_or(packet.len())
}

fn small(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// Append what fits: the lengths have been checked.
fn append<const N: usize>(out: &mut ArrayVec<u8, N>, bytes: &[u8]) {
    let fits = out.try_extend_from_slice(bytes).is_ok();
    debug_assert!(fits, "a header longer than computed");
}
