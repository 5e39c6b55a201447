//! A router that tracks connections (`nf_conntrack_proto_tcp.c` of Linux), such as stand behind
//! many links: what begins beyond the window that its receiver has shown is invalid. It is dropped,
//! or the router takes it for its own and resets, as where it translates addresses.
//!
//! What it does not see whole it lets pass: fragments, and connections that it did not see begin.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use farlink_wire::{Flags, Instant, SegmentHeader, SeqNum, TcpSegment};

use crate::node::Middlebox;
use crate::packet::{finish, tcp};

/// Address and port of a host, and of the other one.
type From = [(IpAddr, u16); 2];

/// What a host has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// By its SYN; `None`: without scaling.
    scale: Option<u8>,
    /// The other one may send up to here.
    edge: Option<SeqNum>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Tracker {
    resets: bool,
    said: BTreeMap<From, Said>,
    out: VecDeque<Vec<u8>>,
    /// Segments that were invalid.
    pub invalid: u64,
}

impl Tracker {
    /// It resets on behalf of whom an invalid segment was for; or it drops it.
    #[must_use]
    pub fn new(resets: bool) -> Self {
        Self { resets, ..Self::default() }
    }

    /// Returns whether the segment may pass.
    fn see(&mut self, s: &TcpSegment) -> bool {
        let from = [(s.ip.src, s.src_port), (s.ip.dst, s.dst_port)];
        let to = [from[1], from[0]];
        if s.flags.syn() {
            let edge = s.flags.ack().then(|| s.ack + u32::from(s.window));
            self.said.insert(from, Said { scale: s.options.window_scale, edge });
            return true;
        }
        let (Some(own), Some(other)) = (self.said.get(&from).copied(), self.said.get(&to).copied()) else {
            return true;
        };
        if s.flags.rst() {
            return true;
        }
        if other.edge.is_some_and(|edge| s.seq.after(edge)) {
            return false;
        }
        if s.flags.ack() {
            let shift = if other.scale.is_some() { own.scale.unwrap_or(0) } else { 0 };
            // It counts a closed window as one byte.
            let bytes = (u32::from(s.window) << shift).max(1);
            let edge = s.ack + bytes;
            let edge = own.edge.map_or(edge, |before| before.max(edge));
            self.said.insert(from, Said { edge: Some(edge), ..own });
        }
        true
    }
}

/// What a router's own TCP answers to a segment of no connection (RFC 9293 3.10.7.1).
fn reset(s: &TcpSegment) -> Option<Vec<u8>> {
    let header = SegmentHeader {
        seq: s.ack,
        flags: Flags::RST,
        ..SegmentHeader::between((s.ip.dst, s.dst_port), (s.ip.src, s.src_port))
    };
    let mut bytes = header.write(0).ok()?.0.to_vec();
    finish(&mut bytes);
    Some(bytes)
}

impl Middlebox for Tracker {
    fn receive(&mut self, _: Instant, packet: Vec<u8>) {
        match tcp(&packet) {
            Some(s) if !self.see(&s) => {
                self.invalid += 1;
                if self.resets {
                    self.out.extend(reset(&s));
                }
            }
            _ => self.out.push_back(packet),
        }
    }

    fn run(&mut self, _: Instant) {}

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::address;

    fn packet(from: usize, (seq, ack): (u32, u32), flags: Flags, window: u16, bytes: usize) -> Vec<u8> {
        let (src, dst) = (address(from, false), address(1 - from, false));
        let header = SegmentHeader {
            ip_id: 1,
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags,
            window,
            ..SegmentHeader::between((src, 80), (dst, 80))
        };
        let mut packet = header.write(bytes).unwrap().0.to_vec();
        packet.resize(packet.len() + bytes, 1);
        finish(&mut packet);
        packet
    }

    fn passes(t: &mut Tracker, packet: Vec<u8>) -> Option<TcpSegment> {
        t.receive(Instant::ZERO, packet);
        t.take_output().map(|packet| tcp(&packet).unwrap())
    }

    fn open(resets: bool) -> Tracker {
        let mut t = Tracker::new(resets);
        for (from, at, flags) in [(0, (99, 0), Flags::SYN), (1, (499, 100), Flags::SYN | Flags::ACK)] {
            assert!(passes(&mut t, packet(from, at, flags, 1_000, 0)).is_some());
        }
        assert!(passes(&mut t, packet(0, (100, 500), Flags::ACK, 1_000, 0)).is_some());
        t
    }

    #[test]
    fn what_begins_beyond_the_window_is_dropped_until_that_has_moved() {
        let mut t = open(false);
        let data = |seq| packet(1, (seq, 100), Flags::ACK, 1_000, 500);
        assert!(passes(&mut t, data(1_500)).is_some(), "it begins within it");
        assert!(passes(&mut t, data(1_501)).is_none());
        assert!(passes(&mut t, packet(0, (100, 1_000), Flags::ACK, 1_000, 0)).is_some());
        assert!(passes(&mut t, data(1_501)).is_some());
        assert_eq!(t.invalid, 1);
    }

    #[test]
    fn a_router_that_takes_it_for_its_own_resets_without_an_acknowledgement() {
        let mut t = open(true);
        let answer = passes(&mut t, packet(1, (1_501, 100), Flags::ACK, 1_000, 500)).unwrap();
        assert!(answer.flags.rst() && !answer.flags.ack());
        assert_eq!((answer.seq, answer.ip.dst), (SeqNum(100), address(1, false)));
    }
}
