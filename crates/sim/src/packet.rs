//! A packet under way, and what hosts' stacks and plain routers do to one.

use farlink_channel::Payload;
use farlink_wire::checksum;
use farlink_wire::ip::PROTOCOL_TCP;
use farlink_wire::options::{KIND_NOP, KIND_TIMESTAMPS, OptionWalk};
use farlink_wire::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES};
use farlink_wire::{Parsed, ShimProtocols, TcpSegment, parse, parse_with};

/// One IP packet with complete checksums, as it is on a wire.
#[derive(Clone, Debug)]
pub struct SimPacket {
    /// From the first byte of the IP header to the last of the payload.
    pub bytes: Vec<u8>,
    /// A channel has inverted a bit.
    pub corrupted: bool,
}

impl SimPacket {
    /// An undamaged packet.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, corrupted: false }
    }
}

impl Payload for SimPacket {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
    fn ip_packet(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
    fn flip_bit(&mut self, bit: usize) {
        if self.corrupted {
            // A second inverted bit can hide the first from the checksum.
            return;
        }
        self.corrupted = true;
        // No checksum covers the first eight bytes of an IPv6 header: damage there would go
        // unnoticed by anybody.
        let unnoticed = self.bytes.first().is_some_and(|b| b >> 4 == 6) && bit < 64;
        self.bytes.flip_bit(if unnoticed { bit + 64 } else { bit });
    }
}

/// What a packet is between gateways, where XCP's own header may stand before TCP, by either number
/// that is for experiments (RFC 3692).
#[must_use]
pub fn on_wire(bytes: &[u8]) -> Parsed {
    parse_with(bytes, ShimProtocols::USUAL.with(253))
}

/// The TCP segment in a packet, if it is one.
#[must_use]
pub fn tcp(bytes: &[u8]) -> Option<TcpSegment> {
    match parse(bytes) {
        Parsed::Tcp(s) => Some(s),
        _ => None,
    }
}

/// Whether a router would keep the packet: IPv4 with a right header checksum and sane lengths, or
/// IPv6.
#[must_use]
pub fn router_accepts(bytes: &[u8]) -> bool {
    match bytes.first().map(|b| b >> 4) {
        Some(4) => {
            let header_len = usize::from(bytes[0] & 15) * 4;
            bytes.len() >= 20
                && header_len >= 20
                && bytes.get(..header_len).is_some_and(|h| checksum::sum(h) == 0xffff)
                && usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) == bytes.len()
        }
        Some(6) => {
            bytes.len() >= 40 && usize::from(u16::from_be_bytes([bytes[4], bytes[5]])) + 40 == bytes.len()
        }
        _ => false,
    }
}

/// One hop: takes one from the TTL or hop limit. `false` when there is none left.
pub fn hop(bytes: &mut [u8]) -> bool {
    if bytes[0] >> 4 == 6 {
        if bytes[7] <= 1 {
            return false;
        }
        bytes[7] -= 1;
        return true;
    }
    if bytes[8] <= 1 {
        return false;
    }
    let old = u16::from_be_bytes([bytes[8], bytes[9]]);
    bytes[8] -= 1;
    let new = u16::from_be_bytes([bytes[8], bytes[9]]);
    let check = checksum::update(u16::from_be_bytes([bytes[10], bytes[11]]), old, new);
    bytes[10..12].copy_from_slice(&check.to_be_bytes());
    true
}

/// Computes the IPv4 header checksum and the TCP checksum anew, after a change that the sender
/// itself would have made.
pub fn finish(bytes: &mut [u8]) {
    let Some(s) = tcp(bytes) else { return };
    let at = s.tcp_offset();
    if s.ip.is_v4() {
        bytes[10..12].fill(0);
        let check = !checksum::sum(&bytes[..at]);
        bytes[10..12].copy_from_slice(&check.to_be_bytes());
    }
    let field = at + TCP_CHECKSUM_OFFSET;
    bytes[field..field + 2].fill(0);
    let len = (bytes.len() - at) as u32;
    let pseudo = checksum::pseudo_header(s.ip.src, s.ip.dst, PROTOCOL_TCP, len);
    let check = !checksum::add(pseudo, checksum::sum(&bytes[at..]));
    bytes[field..field + 2].copy_from_slice(&check.to_be_bytes());
}

/// Gives a segment that leaves late a timestamp of now (RFC 7323 5.3), and right checksums.
pub fn renew(packet: &mut [u8], tsval: u32) {
    let Some(s) = tcp(packet) else { return };
    let from = s.tcp_offset() + TCP_HEADER_BYTES;
    let area = packet[from..s.payload_offset].to_vec();
    if let Some(option) = OptionWalk::new(&area).find(|o| o.kind == KIND_TIMESTAMPS) {
        packet[from + option.offset + 2..from + option.offset + 6].copy_from_slice(&tsval.to_be_bytes());
        finish(packet);
    }
}

/// Overwrites the options of the given kinds with NOPs. `true` when there were any; checksums are
/// not touched.
pub fn blank_options(bytes: &mut [u8], s: &TcpSegment, kinds: &[u8]) -> bool {
    let from = s.tcp_offset() + TCP_HEADER_BYTES;
    let area = bytes[from..s.payload_offset].to_vec();
    let mut found = false;
    for option in OptionWalk::new(&area).filter(|o| kinds.contains(&o.kind)) {
        bytes[from + option.offset..from + option.end].fill(KIND_NOP);
        found = true;
    }
    found
}

/// A quick hash of bytes, the same on every machine.
#[must_use]
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = seed ^ (bytes.len() as u64).wrapping_mul(K);
    let (words, rest) = bytes.as_chunks::<8>();
    for w in words {
        h = (h.rotate_left(23) ^ u64::from_le_bytes(*w)).wrapping_mul(K);
    }
    for b in rest {
        h = (h.rotate_left(23) ^ u64::from(*b)).wrapping_mul(K);
    }
    h ^ (h >> 32)
}

/// A router may cut it: it is IPv4 without DF, a fragment perhaps.
#[must_use]
pub fn may_be_cut(bytes: &[u8]) -> bool {
    match parse(bytes) {
        Parsed::Tcp(s) => !s.ip.dont_fragment,
        Parsed::Fragment(f) => f.ip.is_v4() && !f.ip.dont_fragment,
        _ => false,
    }
}

#[test]
fn a_fragment_with_df_is_not_cut_again() {
    // Identification 9, offset 1,480 and more to come, TCP; all that is not looked at is zero.
    let fragment = |df: u8| [0x45, 0, 0, 28, 0, 9, 0x20 | df, 185].into_iter().chain([64, 6]).chain([0; 18]);
    let cut = |df| may_be_cut(&fragment(df).collect::<Vec<u8>>());
    assert_eq!((cut(0), cut(0x40)), (true, false));
}
