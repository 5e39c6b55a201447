//! What the receive offload of a network card and kernel does to packets that come close together:
//! joins neighbours of one flow to a super-segment (Linux `tcp_gro_receive`).

use farlink_wire::checksum;
use farlink_wire::ip::PROTOCOL_TCP;
use farlink_wire::tcp::TCP_CHECKSUM_OFFSET;
use farlink_wire::{ChecksumState, Duration, Flags, Gso, Instant, Offload, TcpSegment, verify_checksums};

use crate::packet::tcp;

/// Bytes that a super-segment may have (Linux `GSO_LEGACY_MAX_SIZE`).
const MERGED_BYTES_MAX: usize = 65_500;

struct Held {
    due: Instant,
    port: usize,
    bytes: Vec<u8>,
    first: TcpSegment,
    next_seq: farlink_wire::SeqNum,
    segments: usize,
    closed: bool,
}

/// Joins what arrives at one node.
pub struct Merger {
    window: Duration,
    held: Vec<Held>,
}

/// A packet that goes on, as a driver would hand it over.
pub struct Merged {
    /// The port that it came in by.
    pub port: usize,
    /// The packet.
    pub bytes: Vec<u8>,
    /// What the virtio-net header would say.
    pub offload: Offload,
    /// A channel has inverted a bit of it.
    pub damaged: bool,
}

impl Merger {
    /// Packets wait for their neighbours at most `window`.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self { window, held: Vec::new() }
    }

    /// When [`Merger::expired`] has something.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.held.iter().map(|h| h.due).min()
    }

    /// What has waited long enough.
    pub fn expired(&mut self, now: Instant) -> Vec<Merged> {
        let mut out = Vec::new();
        let mut i = 0;
        while i < self.held.len() {
            if self.held[i].due <= now { out.push(self.held.remove(i).release()) } else { i += 1 }
        }
        out
    }

    /// A packet arrives; what must go on now, in order.
    pub fn push(&mut self, now: Instant, port: usize, bytes: Vec<u8>, corrupted: bool) -> Vec<Merged> {
        let alone = |bytes| Merged { port, bytes, offload: Offload::default(), damaged: corrupted };
        let Some(s) = tcp(&bytes) else { return vec![alone(bytes)] };
        let same_flow = |h: &Held| {
            let f = &h.first;
            (f.ip.src, f.ip.dst, f.src_port, f.dst_port) == (s.ip.src, s.ip.dst, s.src_port, s.dst_port)
        };
        let mut out = Vec::new();
        if let Some(i) = self.held.iter().position(same_flow) {
            if !corrupted && self.held[i].join(&bytes, &s) {
                if self.held[i].closed {
                    out.push(self.held.remove(i).release());
                }
                return out;
            }
            out.push(self.held.remove(i).release());
        }
        let plain = Flags::ACK | Flags::PSH;
        let mergeable = !corrupted
            && s.payload_len > 0
            && s.flags.ack()
            && s.flags.without(plain) == Flags::NONE
            && !s.ip.has_options
            && verify_checksums(&bytes, &s, &Offload::default());
        if mergeable {
            let held = Held {
                due: now + self.window,
                port,
                next_seq: s.end_seq(),
                segments: 1,
                closed: s.flags.psh(),
                first: s,
                bytes,
            };
            if held.closed { out.push(held.release()) } else { self.held.push(held) }
        } else {
            out.push(alone(bytes));
        }
        out
    }
}

impl Held {
    fn join(&mut self, bytes: &[u8], s: &TcpSegment) -> bool {
        let f = &self.first;
        let head = |b: &[u8], s: &TcpSegment| b[s.tcp_offset() + 20..s.payload_offset].to_vec();
        let fits = s.seq == self.next_seq
            && s.payload_len > 0
            && s.payload_len <= f.payload_len
            && s.ack == f.ack
            && s.window == f.window
            && s.flags.without(Flags::PSH) == f.flags.without(Flags::PSH)
            && (s.ip.ttl, s.ip.traffic_class, s.ip.flow_label)
                == (f.ip.ttl, f.ip.traffic_class, f.ip.flow_label)
            && s.ip.dont_fragment == f.ip.dont_fragment
            && !s.ip.has_options
            && head(bytes, s) == head(&self.bytes, f)
            && self.bytes.len() + s.payload_len <= MERGED_BYTES_MAX
            && verify_checksums(bytes, s, &Offload::default());
        if fits {
            self.bytes.extend_from_slice(s.payload(bytes));
            self.next_seq = s.end_seq();
            self.segments += 1;
            // A short one or a push ends the super-segment.
            self.closed = s.payload_len < f.payload_len || s.flags.psh();
            if s.flags.psh() {
                let at = f.tcp_offset() + 13;
                self.bytes[at] |= Flags::PSH.0 as u8;
            }
        }
        fits
    }

    fn release(mut self) -> Merged {
        let f = &self.first;
        if self.segments == 1 {
            return Merged {
                port: self.port,
                bytes: self.bytes,
                offload: Offload::default(),
                damaged: false,
            };
        }
        let at = f.tcp_offset();
        let total = self.bytes.len();
        if f.ip.is_v4() {
            self.bytes[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            self.bytes[10..12].fill(0);
            let check = !checksum::sum(&self.bytes[..at]);
            self.bytes[10..12].copy_from_slice(&check.to_be_bytes());
        } else {
            self.bytes[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        }
        let pseudo = checksum::pseudo_header(f.ip.src, f.ip.dst, PROTOCOL_TCP, (total - at) as u32);
        let field = at + TCP_CHECKSUM_OFFSET;
        self.bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        let offload = Offload {
            checksum: ChecksumState::Partial { start: at as u16, offset: TCP_CHECKSUM_OFFSET as u16 },
            gso: if f.ip.is_v4() { Gso::Tcp4 } else { Gso::Tcp6 },
            gso_size: f.payload_len as u16,
            gso_ecn: false,
            header_len: f.payload_offset as u16,
        };
        Merged { port: self.port, bytes: self.bytes, offload, damaged: false }
    }
}
