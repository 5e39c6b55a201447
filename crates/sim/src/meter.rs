//! Counts what enters a wire, as the laboratory's captures do.

use std::collections::BTreeMap;

use farlink_wire::ip::PROTOCOL_TCP;
use farlink_wire::{FragmentInfo, Instant, Parsed, SeqNum, TcpSegment, parse};

use crate::content::Endpoint;
use crate::identifications::Identifications;
use crate::repeats::Repeats;

/// Length of the intervals in which bytes are counted apart, milliseconds.
pub const INTERVAL_MS: u64 = 20;
/// How many such intervals are kept: ten minutes.
const INTERVALS_MAX: usize = 30_000;

/// Counters of one wire. All of IP packets.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Bytes.
    pub bytes: u64,
    /// Of these, bytes of packets from and to hosts that lie.
    pub hostile_bytes: u64,
    /// Of the rest, bytes of packets that were forged in the name of honest hosts.
    pub forged_bytes: u64,
    /// Pure acknowledgements.
    pub ack_packets: u64,
    /// Their bytes.
    pub ack_bytes: u64,
    /// Payload bytes that had entered before.
    pub repeated_bytes: u64,
    /// How often any payload has entered again.
    pub repeats: BTreeMap<(Endpoint, Endpoint), Repeats>,
    /// Identifications of what is fragmented.
    pub identifications: Identifications,
    /// Bytes by interval of [`INTERVAL_MS`] of virtual time.
    pub by_time: Vec<u64>,
    /// The largest packet with the head of a segment that carries payload, whole or a first
    /// fragment, bytes.
    pub largest: BTreeMap<(Endpoint, Endpoint), usize>,
    /// Segments whose first fragment has entered.
    pub in_fragments: u64,
    highest: BTreeMap<(Endpoint, Endpoint), SeqNum>,
}

impl Meter {
    /// A packet enters.
    pub fn count(&mut self, now: Instant, packet: &[u8]) {
        self.bytes += packet.len() as u64;
        let interval = (now.as_nanos() / (INTERVAL_MS * 1_000_000)) as usize;
        if interval < INTERVALS_MAX {
            if self.by_time.len() <= interval {
                self.by_time.resize(interval + 1, 0);
            }
            self.by_time[interval] += packet.len() as u64;
        }
        match parse(packet) {
            Parsed::Tcp(s) => self.count_segment(&s, packet.len() as u64),
            Parsed::Fragment(f) => {
                if let Some(name) = Identifications::name(&f) {
                    self.identifications.leave(now, name);
                }
                self.note_first(&f, packet);
            }
            _ => {}
        }
    }

    /// The first fragment of a segment has its ports.
    fn note_first(&mut self, f: &FragmentInfo, packet: &[u8]) {
        let ports = packet.get(f.payload_offset..).and_then(|payload| payload.first_chunk::<4>());
        if let Some([a, b, c, d]) = ports.filter(|_| f.offset == 0 && f.protocol == PROTOCOL_TCP) {
            let ports = [u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])];
            let largest = self.largest.entry(((f.ip.src, ports[0]), (f.ip.dst, ports[1]))).or_default();
            *largest = (*largest).max(packet.len());
            self.in_fragments += 1;
        }
    }

    fn count_segment(&mut self, s: &TcpSegment, len: u64) {
        if s.seq_len() == 0 {
            if s.flags.ack() && !s.flags.rst() {
                self.ack_packets += 1;
                self.ack_bytes += len;
            }
            return;
        }
        if s.payload_len == 0 {
            return;
        }
        let key = ((s.ip.src, s.src_port), (s.ip.dst, s.dst_port));
        let largest = self.largest.entry(key).or_default();
        *largest = (*largest).max(len as usize);
        let end = s.end_seq();
        let highest = self.highest.entry(key).or_insert(s.seq);
        if s.seq.before(*highest) {
            let bytes = u64::from(highest.min(end).since(s.seq)).min(s.payload_len as u64);
            self.repeated_bytes += bytes;
            self.repeats.entry(key).or_default().note(u64::from(s.seq.0), bytes);
        }
        *highest = highest.max(end);
    }
}
