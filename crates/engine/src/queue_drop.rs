//! The one-drop-per-window queue limit (thesis 4.2): a host that sends much faster than its data
//! can go on loses one segment before it is acknowledged, and so reduces its congestion window.

use farlink_wire::{Duration, Instant, SeqNum};

use crate::bookmark::{Bookmark, bookmarks};
use crate::buffer::SeqBuffer;
use crate::receiver::Receiver;

/// A host that repeats a lost segment later than this does it by its timer (Linux TCP_RTO_MIN): it
/// has no fast retransmit.
const FAST_REPEAT_MAX: Duration = Duration::from_millis(200);
/// Segments that the host must have room for behind the dropped one: three draw the
/// acknowledgements of fast retransmit (RFC 5681 section 3.2), and one more.
const ROOM_SEGMENTS: u32 = 4;

/// What was dropped of one source.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueDrop {
    /// The dropped segment, and when that was: no other until it has come again.
    pending: Bookmark<(SeqNum, Instant)>,
    /// It needed its timer.
    is_slow: bool,
}

bookmarks!(QueueDrop { pending });

/// What the relay of that source holds.
#[derive(Debug)]
pub struct Held<'a> {
    /// Towards the source.
    pub rx: &'a Receiver,
    /// What waits.
    pub buffer: &'a SeqBuffer,
    /// The congestion window towards the destination.
    pub cwnd_bytes: u64,
}

impl QueueDrop {
    /// Data at `seq` has come.
    fn arrived(&mut self, now: Instant, round_trip: Duration, seq: SeqNum, len: u32) {
        let Some((dropped, at)) = *self.pending else { return };
        if seq.before_eq(dropped) && (seq + len).after(dropped) {
            *self.pending = None;
            self.is_slow |= now.since(at) > FAST_REPEAT_MAX + round_trip;
        }
    }

    /// How many bytes are dropped of `len` in-order ones at `seq`: a segment where more is held
    /// than half the window upstream and twice the congestion window downstream, none of the rest
    /// before it has come again, and none of a host that needs its timer for it.
    pub fn drops(
        &mut self,
        now: Instant,
        round_trip: Duration,
        (seq, len): (SeqNum, u32),
        held: &Held<'_>,
    ) -> u32 {
        self.arrived(now, round_trip, seq, len);
        let rx = held.rx;
        let segment = rx.segment_bytes().min(len);
        let room = rx.room_from(seq + segment);
        let threshold = u64::from(rx.window_shown_max() / 2).max(2 * held.cwnd_bytes);
        let over = u64::from(held.buffer.len()) > threshold;
        let able = self.pending.is_none() && !self.is_slow;
        if !over || !able || seq != held.buffer.end() || room < ROOM_SEGMENTS * segment {
            return 0;
        }
        *self.pending = Some((seq, now));
        segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_needs_its_timer_is_spared() {
        let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
        let rtt = Duration::from_millis(30);
        let dropped = QueueDrop { pending: Some((SeqNum(1000), ms(0))).into(), is_slow: false };
        let after = |at, seq| {
            let mut d = dropped;
            d.arrived(ms(at), rtt, SeqNum(seq), 500);
            (d.pending.is_some(), d.is_slow)
        };
        assert_eq!(after(40, 1500), (true, false), "what came behind it");
        assert_eq!(after(40, 1000), (false, false));
        assert_eq!(after(40, 600), (false, false));
        assert_eq!(after(260, 1000), (false, true));
    }
}
