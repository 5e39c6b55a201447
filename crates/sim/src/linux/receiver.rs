//! The receiving half: reassembly, delayed acknowledgements, SACK blocks, and a window that grows
//! with what is read (Linux tcp_input.c).

use std::collections::{BTreeMap, VecDeque};

use farlink_wire::{Duration, Instant};

/// Linux `TCP_DELACK_MIN`.
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Linux `TCP_MAX_QUICKACKS`.
const QUICK_ACKS: u32 = 16;
/// Linux `tcp_rmem`: the buffer of a new connection, bytes.
const BUFFER_BYTES: u64 = 131_072;
/// A segment of 1,448 bytes takes so much memory (Linux `SKB_TRUESIZE`). Until one has come, half
/// of the buffer counts as room for payload. 6.18 shows 80,896 bytes then.
const FULL_BYTES: u64 = 1_448;
const FULL_MEMORY_BYTES: u64 = 2_304;
/// So many segments stand in one buffer at most (Linux `tcp_try_coalesce`, `MAX_SKB_FRAGS`).
const BUFFER_SEGMENTS: u64 = 17;
/// SACK blocks beside timestamps.
const SACK_BLOCKS: usize = 3;

/// The receiving half of one connection. Sequence numbers are offsets: 0 is the first byte after
/// the SYN.
#[derive(Debug)]
pub(super) struct Receiver {
    mss: u64,
    /// Next offset expected.
    pub nxt: u64,
    /// Bytes in order that the application has not read.
    ready: VecDeque<u8>,
    /// Behind gaps: first offset to bytes.
    ahead: BTreeMap<u64, Vec<u8>>,
    ahead_bytes: u64,
    /// The newest blocks first.
    blocks: Vec<(u64, u64)>,
    /// Where the stream ends, once the FIN has come.
    fin: Option<u64>,
    /// The FIN has been taken in order.
    pub fin_taken: bool,
    /// Right edge shown.
    edge: u64,
    /// Linux `rcv_ssthresh`: what may be shown so far.
    slow_window: u64,
    /// Linux `window_clamp`: what the buffer is good for.
    window: u64,
    window_max: u64,
    autotunes: bool,
    /// Linux `rcvq_space`.
    space: u64,
    space_from: u64,
    space_at: Instant,
    read: u64,
    /// The largest segment so far.
    largest: u64,
    /// Linux `rcv_rtt_est`: a round trip, as far as a receiver knows it.
    rtt: Option<Duration>,
    /// Where the window began whose time is taken, and where it ends.
    window_from: Option<Instant>,
    window_until: u64,
    /// Linux `rcv_rtt_last_tsecr`: the stamp that was told last.
    echoed: Option<u32>,
    /// SACK is agreed on.
    pub sack: bool,
    /// Last offset acknowledged.
    acked: u64,
    quick: u32,
    /// An acknowledgement is owed by then.
    pub ack_at: Option<Instant>,
    /// An acknowledgement is owed now.
    pub ack_now: bool,
    /// A duplicate that arrived, to be reported first (RFC 2883).
    duplicate: Option<(u64, u64)>,
}

impl Receiver {
    /// `window` is what the handshake shows, `window_max` the most; without autotuning that counts
    /// from the first segment on.
    pub fn new(mss: u32, window: u64, window_max: u64, autotunes: bool) -> Self {
        let mss = u64::from(mss);
        Self {
            mss,
            nxt: 0,
            ready: VecDeque::new(),
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            blocks: Vec::new(),
            fin: None,
            fin_taken: false,
            edge: 0,
            slow_window: window,
            window: if autotunes { window } else { window_max },
            window_max,
            autotunes,
            space: window.min(10 * mss),
            space_from: 0,
            space_at: Instant::ZERO,
            read: 0,
            largest: 0,
            rtt: None,
            window_from: None,
            window_until: 0,
            echoed: None,
            sack: true,
            acked: 0,
            quick: QUICK_ACKS.min((window / (2 * mss)) as u32).max(2),
            ack_at: None,
            ack_now: false,
            duplicate: None,
        }
    }

    /// A segment with payload or FIN at `offset`.
    pub fn take(&mut self, now: Instant, offset: u64, payload: &[u8], fin: bool) {
        if fin {
            self.fin = Some(offset + payload.len() as u64);
        }
        let end = offset + payload.len() as u64;
        if end + u64::from(fin) <= self.ack() {
            // A probe of the window is answered like a duplicate, but there is nothing to report.
            self.duplicate = (!payload.is_empty()).then_some((offset, end));
            self.ack_now = true;
            return;
        }
        if self.fin_taken {
            // Linux `tcp_rcv_state_process`: nobody says anything behind a FIN.
            return;
        }
        self.largest = self.largest.max(payload.len() as u64);
        self.measure_memory(payload.len() as u64);
        if offset > self.nxt {
            self.keep(offset, payload);
            if self.sack {
                // Linux `tcp_data_queue_ofo`.
                self.grow(payload.len() as u64);
            }
            self.ack_now = true;
            return;
        }
        let had_gap = !self.ahead.is_empty();
        let skip = (self.nxt - offset) as usize;
        self.append(payload.get(skip..).unwrap_or_default());
        self.join();
        if self.fin == Some(self.nxt) && !self.fin_taken {
            self.fin_taken = true;
            self.ack_now = true;
        }
        self.measure_window(now);
        self.grow(payload.len() as u64);
        if had_gap {
            self.quick = QUICK_ACKS;
            self.ack_now = true;
        } else if self.nxt - self.acked > self.mss || self.quick > 0 {
            // Linux `__tcp_ack_snd_check`.
            self.ack_now = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + DELAYED_ACK);
        }
    }

    /// Linux `tcp_measure_rcv_mss`.
    fn measure_memory(&mut self, len: u64) {
        if self.autotunes && len >= FULL_BYTES {
            let room = BUFFER_BYTES * FULL_BYTES / FULL_MEMORY_BYTES;
            self.window = self.window.max(room.min(self.window_max));
        }
    }

    /// Linux `tcp_rcv_rtt_measure`.
    fn measure_window(&mut self, now: Instant) {
        if let Some(from) = self.window_from {
            if self.nxt < self.window_until {
                return;
            }
            self.update_rtt(now.since(from).max(Duration::from_micros(1)), false);
        }
        self.window_from = Some(now);
        self.window_until = self.edge.max(self.nxt);
    }

    /// Linux `tcp_rcv_rtt_measure_ts`: a segment of so many bytes tells a stamp that was sent so
    /// long ago.
    pub fn echo(&mut self, len: usize, stamp: u32, ago: Duration) {
        if self.echoed.replace(stamp) != Some(stamp) && len as u64 >= self.largest && !ago.is_zero() {
            self.update_rtt(ago, true);
        }
    }

    /// Linux `tcp_rcv_rtt_update`, as 6.17 has it: less is believed at once, and more a little at a
    /// time, if it comes of a stamp and nothing waits to be read.
    fn update_rtt(&mut self, sample: Duration, is_of_stamp: bool) {
        self.rtt = Some(match self.rtt {
            Some(before) if sample >= before && is_of_stamp && self.ready.is_empty() => {
                before - before / 8 + sample / 8
            }
            Some(before) => before.min(sample),
            None => sample,
        });
    }

    /// Linux `tcp_grow_window`.
    fn grow(&mut self, len: u64) {
        if self.slow_window < self.window {
            self.slow_window = (self.slow_window + 2 * self.mss.max(len)).min(self.window);
        }
    }

    fn append(&mut self, data: &[u8]) {
        self.ready.extend(data);
        self.nxt += data.len() as u64;
    }

    fn keep(&mut self, offset: u64, payload: &[u8]) {
        if payload.is_empty() {
            return;
        }
        let end = offset + payload.len() as u64;
        let same = self.ahead.get(&offset).is_some_and(|old| old.len() >= payload.len());
        if same {
            self.duplicate = Some((offset, end));
        } else {
            if let Some(old) = self.ahead.insert(offset, payload.to_vec()) {
                self.ahead_bytes -= old.len() as u64;
            }
            self.ahead_bytes += payload.len() as u64;
        }
        let mut block = (offset, end);
        self.blocks.retain(|b| {
            let apart = b.1 < block.0 || b.0 > block.1;
            if !apart {
                block = (block.0.min(b.0), block.1.max(b.1));
            }
            apart
        });
        self.blocks.insert(0, block);
    }

    /// Takes in what is no longer behind a gap.
    fn join(&mut self) {
        while let Some(entry) = self.ahead.first_entry()
            && *entry.key() <= self.nxt
        {
            let (offset, data) = entry.remove_entry();
            self.ahead_bytes -= data.len() as u64;
            let skip = (self.nxt - offset) as usize;
            self.append(data.get(skip..).unwrap_or_default());
        }
        let nxt = self.nxt;
        self.blocks.retain(|b| b.1 > nxt);
    }

    /// What the application has not read yet, at most as much as `into` holds.
    pub fn read(&mut self, now: Instant, into: &mut Vec<u8>) {
        into.clear();
        let (a, b) = self.ready.as_slices();
        into.extend_from_slice(a);
        into.extend_from_slice(b);
        self.ready.clear();
        // Linux looks after the first buffer that is read.
        let len = into.len() as u64;
        self.adjust(now, self.read + len.min(self.largest.max(BUFFER_SEGMENTS * self.mss)));
        self.read += len;
    }

    /// Linux `tcp_rcv_space_adjust`: twice what was read in a round trip, and more while that
    /// grows.
    fn adjust(&mut self, now: Instant, read: u64) {
        let Some(rtt) = self.rtt else { return };
        if now.since(self.space_at) < rtt {
            return;
        }
        let copied = read - self.space_from;
        if copied > self.space {
            let twice = 2 * copied;
            let grow = u128::from(twice) * u128::from(copied - self.space) / u128::from(self.space.max(1));
            let wanted = u128::from(twice) + 2 * grow;
            let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).min(self.window_max);
            self.window = self.window.max(wanted);
            self.space = copied;
        }
        self.space_from = read;
        self.space_at = now;
    }

    /// The window to be shown, in bytes from `nxt`: never taken back, a multiple of its unit.
    pub fn offer(&mut self, shift: u8) -> u64 {
        let unread = self.ready.len() as u64;
        let free = self.slow_window.min(self.window).saturating_sub(unread);
        let shown = self.edge.saturating_sub(self.nxt);
        let window = free.max(shown).div_ceil(1 << shift) << shift;
        let window = window.min(65_535 << shift);
        self.edge = self.edge.max(self.nxt + window);
        window
    }

    /// The offset acknowledged last.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Bytes from the next one expected to the right edge of the window shown.
    pub fn window_left(&self) -> u64 {
        self.edge.saturating_sub(self.ack())
    }

    /// SACK blocks for the next acknowledgement.
    pub fn sack_blocks(&mut self) -> Vec<(u64, u64)> {
        let duplicate = self.duplicate.take();
        duplicate.into_iter().chain(self.blocks.iter().copied()).take(SACK_BLOCKS).collect()
    }

    /// An acknowledgement of everything so far has left.
    pub fn acknowledged(&mut self) {
        if self.nxt > self.acked {
            self.quick = self.quick.saturating_sub(1);
        }
        self.acked = self.nxt;
        self.ack_at = None;
        self.ack_now = false;
    }

    /// The delayed acknowledgement's time has come.
    pub fn timeout(&mut self, now: Instant) {
        if self.ack_at.is_some_and(|t| t <= now) {
            self.ack_at = None;
            self.ack_now = true;
        }
    }

    /// Acknowledgement number as an offset, the FIN included.
    pub fn ack(&self) -> u64 {
        self.nxt + u64::from(self.fin_taken)
    }

    /// All of the other stream was read.
    pub fn is_at_end(&self) -> bool {
        self.fin_taken && self.ready.is_empty()
    }

    /// Bytes wait to be read.
    pub fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: [u8; 1_448] = [0; 1_448];

    /// The window after so many segments, one a millisecond, which are read at once where nothing
    /// is missing before them.
    fn shown(sack: bool, first: u64, segments: u64) -> u64 {
        let mut rx = Receiver::new(1_448, 65_536, 3 << 20, true);
        rx.sack = sack;
        rx.offer(0);
        let mut window = 0;
        for n in first..first + segments {
            let now = Instant::from_millis(1_000 + n);
            rx.take(now, n * 1_448, &SEGMENT, false);
            rx.read(now, &mut Vec::new());
            window = rx.offer(10);
        }
        window
    }

    #[test]
    fn the_first_segments_show_how_much_memory_they_take() {
        assert_eq!(shown(true, 0, 20), 82_944);
    }

    /// As Linux 6.18 does it, where 64 KB have come within 65 ms.
    #[test]
    fn a_window_that_comes_at_once_is_taken_for_a_round_trip() {
        let (before, after) = (shown(true, 0, 40), shown(true, 0, 120));
        assert!(before < 83_000 && after > 240_000, "{before}, {after}");
    }

    #[test]
    fn a_round_trip_that_grows_is_learned_from_stamps() {
        let mut rx = Receiver::new(1_448, 65_536, 3 << 20, true);
        let ms = Duration::from_millis;
        let mut told = |stamp: u32, ago: u64| {
            rx.echo(1_448, stamp, ms(ago));
            rx.rtt
        };
        assert_eq!((told(1, 0), told(2, 80), told(3, 16)), (None, Some(ms(80)), Some(ms(16))));
        // The same stamp once more says nothing.
        assert_eq!((told(4, 96), told(4, 960)), (Some(ms(26)), Some(ms(26))));
        rx.ready.push_back(0);
        rx.echo(1_448, 5, ms(960));
        rx.update_rtt(ms(960), false);
        assert_eq!(rx.rtt, Some(ms(26)), "not while something waits to be read, and never of a window");
    }

    #[test]
    fn behind_a_gap_the_window_grows_with_sack_alone() {
        assert_eq!(shown(true, 1, 20), 82_944);
        assert_eq!(shown(false, 1, 20), 65_536);
    }
}
