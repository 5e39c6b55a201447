//! Frames of several captures, put into the order of time: each capture is read in bursts, and what
//! came into a gateway is to be judged before what left it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::socket::Frame;

/// A packet may be in its capture's queue so much later than its time says.
const LATE_NS: u64 = 20_000_000;

/// A frame of one capture with its packet.
#[derive(Debug)]
pub(super) struct Held {
    /// Number of the capture.
    pub(super) point: usize,
    pub(super) frame: Frame,
    pub(super) packet: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// By time, then by order of reading.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    held: Vec<Option<Held>>,
    free: Vec<usize>,
    read: u64,
}

impl Order {
    /// A frame was read.
    pub(super) fn push(&mut self, point: usize, frame: Frame, packet: &[u8]) {
        let held = Some(Held { point, frame, packet: packet.to_vec() });
        let slot = self.free.pop().unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[slot] = held;
        self.read += 1;
        self.heap.push(Reverse((frame.at_ns, self.read, slot)));
    }

    /// The oldest frame, if every capture has been read up to its time: `read_until_ns` is the
    /// least of theirs.
    pub(super) fn pop(&mut self, read_until_ns: u64) -> Option<Held> {
        let oldest = self.heap.peek_mut()?;
        let Reverse((at_ns, _, slot)) = *oldest;
        if at_ns.saturating_add(LATE_NS) > read_until_ns {
            return None;
        }
        PeekMut::pop(oldest);
        self.free.push(slot);
        self.held[slot].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_in_the_order_of_time_once_all_have_been_read() {
        let mut order = Order::default();
        let frame = |at_ns| Frame { at_ns, is_outgoing: false, is_checksum_open: false, len: 1, wire_len: 1 };
        for (point, at) in [(0, 5), (0, 9), (1, 3), (1, 5)] {
            order.push(point, frame(at * 1_000_000_000), &[at as u8]);
        }
        let until = |order: &mut Order, s: u64| -> Vec<_> {
            std::iter::from_fn(|| order.pop(s * 1_000_000_000)).map(|h| (h.point, h.packet[0])).collect()
        };
        assert_eq!(until(&mut order, 6), [(1, 3), (0, 5), (1, 5)]);
        assert_eq!(until(&mut order, 9), []);
        assert_eq!(until(&mut order, u64::MAX / 1_000_000_000), [(0, 9)]);
    }
}
