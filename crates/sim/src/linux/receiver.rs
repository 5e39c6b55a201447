//! The receiving half: reassembly, delayed acknowledgements, SACK blocks, and a window that grows
//! with what is read (Linux tcp_input.c).

use std::collections::{BTreeMap, VecDeque};

use farlink_wire::{Duration, Instant};

/// Linux `TCP_DELACK_MIN`.
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Linux `TCP_MAX_QUICKACKS`.
const QUICK_ACKS: u32 = 16;
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
    /// Linux `rcvq_space`.
    space: u64,
    space_from: u64,
    space_at: Instant,
    read: u64,
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
            space: window.min(10 * mss),
            space_from: 0,
            space_at: Instant::ZERO,
            read: 0,
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
        if offset > self.nxt {
            self.keep(offset, payload);
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
        // Linux `tcp_grow_window`.
        if self.slow_window < self.window {
            self.slow_window = (self.slow_window + 2 * self.mss).min(self.window);
        }
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

    fn append(&mut self, data: &[u8]) {
        self.ready.extend(data);
        self.nxt += data.len() as u64;
    }

    fn keep(&mut self, offset: u64, payload: &[u8]) {
        if payload.is_empty() || offset + payload.len() as u64 > self.edge.max(self.nxt + self.window) {
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
    pub fn read(&mut self, now: Instant, rtt: Duration, into: &mut Vec<u8>) {
        into.clear();
        let (a, b) = self.ready.as_slices();
        into.extend_from_slice(a);
        into.extend_from_slice(b);
        self.ready.clear();
        self.read += into.len() as u64;
        self.adjust(now, rtt);
    }

    /// Linux `tcp_rcv_space_adjust`: twice what was read in a round trip, and more while that
    /// grows.
    fn adjust(&mut self, now: Instant, rtt: Duration) {
        if rtt.is_zero() || now.since(self.space_at) < rtt {
            return;
        }
        let copied = self.read - self.space_from;
        if copied > self.space && self.window < self.window_max {
            let base = 2 * copied + 16 * self.mss;
            let grow = base as u128 * u128::from(copied - self.space) / u128::from(self.space.max(1));
            let wanted = u128::from(base) + 2 * grow;
            let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).min(self.window_max);
            self.window = self.window.max(wanted);
        }
        self.space = self.space.max(copied);
        self.space_from = self.read;
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
