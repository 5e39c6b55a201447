//! Counts what enters a wire, as the laboratory's captures do.

use std::collections::BTreeMap;

use farlink_wire::{SeqNum, TcpSegment};

use crate::content::Endpoint;
use crate::packet::tcp;

/// Counters of one wire. All of IP packets.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Bytes.
    pub bytes: u64,
    /// Pure acknowledgements.
    pub ack_packets: u64,
    /// Their bytes.
    pub ack_bytes: u64,
    /// Payload bytes that had entered before.
    pub repeated_bytes: u64,
    highest: BTreeMap<(Endpoint, Endpoint), SeqNum>,
}

impl Meter {
    /// A packet enters.
    pub fn count(&mut self, packet: &[u8]) {
        self.bytes += packet.len() as u64;
        if let Some(s) = tcp(packet) {
            self.count_segment(&s, packet.len() as u64);
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
        let end = s.end_seq();
        let highest = self.highest.entry(key).or_insert(s.seq);
        if s.seq.before(*highest) {
            self.repeated_bytes += u64::from(highest.min(end).since(s.seq)).min(s.payload_len as u64);
        }
        *highest = highest.max(end);
    }
}
