//! The sending half: what leaves when (Linux tcp_input.c, tcp_output.c, tcp_recovery.c,
//! tcp_timer.c). What is lost is told in [`repair`], how long it is tried in [`patience`].

mod patience;
mod repair;

use farlink_wire::{Duration, Instant};

use self::patience::Patience;
use super::congestion::{Acked, Controller, Window};
use super::rate::{Rate, Sample};
use super::rtt::{RTO_MAX, RTO_MIN, Rtt};
use super::scoreboard::{News, Scoreboard, Segment};
use super::undo::Undo;

/// Linux `tcp_reordering`.
const REORDERING: u32 = 3;
/// Linux `tcp_check_sack_reneging`: so long a receiver has at least to mend its word.
const RENEGING_WAIT_MIN: Duration = Duration::from_millis(10);
/// Linux `TCP_TIMEOUT_MIN`.
const PROBE_MARGIN: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Open or disorder: nothing is known to be lost.
    Open,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// What a segment to be sent holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Offset of its first byte.
    pub seq: u64,
    /// Payload bytes.
    pub len: usize,
    /// With the FIN.
    pub fin: bool,
}

/// An acknowledgement as it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub now: Instant,
    pub ack: u64,
    pub sacks: &'a [(u64, u64)],
    /// Right edge of the window.
    pub edge: u64,
    /// It has no payload.
    pub is_pure: bool,
    /// TSecr in milliseconds, with timestamps.
    pub echo_ms: Option<u32>,
    /// The timestamp clock now, in milliseconds.
    pub clock_ms: u32,
}

impl Arrived<'_> {
    /// What its timestamp says of the RTT: that counts where segments do not tell (Linux
    /// `tcp_rtt_tsopt_us`, which takes no more than 36 minutes).
    fn echoed_rtt(&self) -> Option<Duration> {
        let ms = self.clock_ms.wrapping_sub(self.echo_ms.filter(|echo| *echo != 0)?);
        (ms < 2_147_483).then_some(Duration::from_millis(u64::from(ms)))
    }
}

/// What an acknowledgement told, beside numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// More is acknowledged in order.
    advanced: bool,
    /// A block tells of something new (`FLAG_DATA_SACKED`).
    sacked: bool,
    /// Without SACK: it says the same once more.
    repeated: bool,
    /// Something has arrived that was sent only once, before the repair began
    /// (`FLAG_ORIG_SACK_ACKED`).
    original: bool,
}

/// The bytes that a receiver had already (RFC 2883): a first block below the acknowledgement, or
/// inside the second one.
fn duplicate_block(a: &Arrived<'_>) -> Option<(u64, u64)> {
    let first = *a.sacks.first()?;
    let inside = a.sacks.get(1).is_some_and(|second| second.0 <= first.0 && first.1 <= second.1);
    (first.0 < a.ack || inside).then_some(first)
}

/// What lies beyond a window that has shrunk is not sent again, but for the head, which is its
/// probe (Linux `__tcp_retransmit_skb`).
fn is_within(seq: u64, una: u64, edge: u64) -> bool {
    seq < edge || seq == una
}

/// The sending half of one connection. Sequence numbers are offsets: 0 is the first byte after the
/// SYN.
#[derive(Debug)]
pub(super) struct Sender {
    mss: u64,
    has_sack: bool,
    buffer: u64,
    /// Lowest offset not acknowledged.
    pub una: u64,
    /// Next offset to be sent.
    pub nxt: u64,
    /// Bytes that the application will have written in the end, as far as it is known.
    written: u64,
    /// The application has closed: a FIN follows the last byte.
    closed: bool,
    edge: u64,
    /// The largest window, in bytes, that the receiver has shown (MAX.SND.WND of RFC 5961).
    pub window_max: u64,
    board: Scoreboard,
    /// Congestion window.
    pub window: Window,
    controller: Controller,
    /// Round-trip time.
    pub rtt: Rtt,
    rate: Rate,
    state: State,
    high: u64,
    undo: Undo,
    /// Repetitions wait for what new data brings (`REXMIT_NEW`).
    new_only: bool,
    prr_delivered: u32,
    prr_out: u32,
    last_sent: Instant,
    /// When new data was last sent: a burst is what leaves at one instant.
    burst_at: Option<Instant>,
    rto_at: Option<Instant>,
    probe_at: Option<Instant>,
    reorder_at: Option<Instant>,
    persist_at: Option<Instant>,
    persist_backoff: u32,
    pace_at: Instant,
    /// One segment may leave whatever the windows say.
    forced: Option<Forced>,
    cwnd_limited: bool,
    most_out: u32,
    usage_end: u64,
    /// What lies before it is not sent again: a gateway has it.
    spared: u64,
    /// Segments that were sent again.
    pub retransmits: u64,
    patience: Patience,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forced {
    TailProbe,
    WindowProbe,
}

impl Sender {
    pub fn new(mss: u32, has_sack: bool, buffer: u64, initial: u32, controller: Controller) -> Self {
        Self {
            mss: u64::from(mss),
            has_sack,
            buffer,
            una: 0,
            nxt: 0,
            written: 0,
            closed: false,
            edge: 0,
            window_max: 0,
            board: Scoreboard::default(),
            window: Window::new(initial),
            controller,
            rtt: Rtt::default(),
            rate: Rate::default(),
            state: State::Open,
            high: 0,
            undo: Undo::default(),
            new_only: false,
            prr_delivered: 0,
            prr_out: 0,
            last_sent: Instant::ZERO,
            burst_at: None,
            rto_at: None,
            probe_at: None,
            reorder_at: None,
            persist_at: None,
            persist_backoff: 0,
            pace_at: Instant::ZERO,
            forced: None,
            cwnd_limited: false,
            most_out: 0,
            usage_end: 0,
            spared: 0,
            retransmits: 0,
            patience: Patience::default(),
        }
    }

    /// The application has `bytes` more to send.
    pub fn write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Nothing more will be written.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The application is gone: nobody waits for the rest.
    pub fn orphan(&mut self) {
        self.patience.is_orphan = true;
    }

    /// It has been tried for long enough.
    pub fn is_given_up(&self) -> bool {
        self.patience.is_over
    }

    /// Neither under way nor waiting to leave.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty() && self.nxt >= self.end()
    }

    /// The right edge of the window in the handshake.
    pub fn open(&mut self, edge: u64) {
        self.edge = edge;
        self.window_max = edge;
    }

    fn end(&self) -> u64 {
        self.written + u64::from(self.closed)
    }

    /// What the receiver has shown it has room for.
    pub fn window_bytes(&self) -> u64 {
        self.edge.saturating_sub(self.una)
    }

    /// Everything, the FIN included, was acknowledged.
    pub fn is_done(&self) -> bool {
        self.closed && self.una == self.end()
    }

    /// A gateway has all before `end`, and will deliver it.
    pub fn spare(&mut self, end: u64) {
        self.spared = self.spared.max(end.min(self.nxt));
    }

    /// Takes an acknowledgement.
    pub fn on_ack(&mut self, a: &Arrived<'_>) {
        if a.ack > self.nxt || a.ack < self.una {
            return;
        }
        self.patience.heard(a.now, a.ack > self.una);
        let moved = a.edge > self.edge;
        // Linux `tcp_may_update_window`: a window may also shrink, and a shut one is always
        // believed.
        let (shown, now_shown) = (self.edge.saturating_sub(self.una), a.edge - a.ack);
        if a.ack > self.una || now_shown > shown || now_shown == 0 {
            self.edge = a.edge;
        }
        self.window_max = self.window_max.max(a.edge - a.ack);
        let (old_una, prior_in_flight) = (self.una, self.board.in_flight());
        let min_rtt = self.rtt.min;
        let (rate, high) = (&mut self.rate, self.high);
        let mut told = Told::default();
        let mut count = |s: &Segment| {
            rate.delivered(a.now, s.stamp, s.sent);
            told.original |= !s.ever_resent && s.end() <= high;
        };
        let mut news = self.board.acknowledge(a.now, a.ack, self.has_sack, min_rtt, &mut count);
        self.una = a.ack;
        let delivered = news.delivered;
        // A block that begins at the acknowledgement makes no sense (Linux
        // `tcp_is_sackblock_valid`).
        for block in a.sacks.iter().filter(|b| b.0 > a.ack) {
            self.board.sack(a.now, *block, min_rtt, &mut news, &mut count);
        }
        told.advanced = a.ack > old_una;
        told.sacked = news.delivered > delivered;
        let advanced = told.advanced;
        if let Some(block) = duplicate_block(a) {
            self.undo.duplicate(block, old_una.max(a.ack), self.mss);
        }
        let duplicate =
            !self.has_sack && !advanced && a.is_pure && !moved && !self.board.is_empty() && a.ack == old_una;
        if duplicate && self.board.sacked_out + self.board.lost_out < self.board.packets_out() {
            self.board.sacked_out += 1;
            news.delivered += 1;
            told.repeated = true;
        }
        if let Some(rtt) = news.rtt_first.or_else(|| a.echoed_rtt().filter(|_| advanced)) {
            self.rtt.sample(a.now, rtt, self.una, self.nxt);
        }
        if advanced {
            self.rtt.backoff = 0;
            self.persist_backoff = 0;
        }
        if self.edge >= self.nxt + self.mss || !self.board.is_empty() {
            self.persist_at = None;
        }
        let sample = self.rate.sample(a.now, self.rtt.min);
        let lost = self.judge(a, told);
        self.control(a, &news, advanced, lost, prior_in_flight, sample);
        if advanced || news.delivered > 0 {
            self.arm(a.now);
        }
        if told.advanced && self.board.is_given_up() {
            // All of it is taken for lost, unless the receiver says otherwise soon.
            self.rto_at = Some(a.now + (self.rtt.srtt / 2).max(RENEGING_WAIT_MIN));
            self.probe_at = None;
        }
        if self.board.is_empty() {
            self.reorder_at = None;
        }
    }

    fn control(
        &mut self,
        a: &Arrived<'_>,
        news: &News,
        advanced: bool,
        lost: u32,
        prior_in_flight: u32,
        sample: Sample,
    ) {
        if news.delivered == 0 && lost == 0 {
            return;
        }
        let window_limited = if self.window.in_slow_start() {
            self.cwnd_limited || self.window.cwnd < 2 * self.most_out
        } else {
            self.cwnd_limited
        };
        let acked = Acked {
            now: a.now,
            packets: news.delivered,
            cumulative: if advanced { news.acked } else { 0 },
            rtt: news.rtt_last,
            srtt: self.rtt.srtt,
            min_rtt: self.rtt.min,
            prior_in_flight,
            in_flight: self.board.in_flight(),
            lost,
            delivered: self.rate.delivered,
            sample,
            una: self.una,
            nxt: self.nxt,
            window_limited,
            in_recovery: self.state == State::Recovery,
            in_loss: self.state == State::Loss,
        };
        self.controller.on_ack(&mut self.window, &acked);
        if self.state == State::Recovery && !self.controller.governs_recovery() {
            self.reduce(news.delivered, lost, advanced);
        }
    }

    /// Sets the retransmission timer, or the tail probe before it.
    fn arm(&mut self, now: Instant) {
        self.probe_at = None;
        if self.board.is_empty() {
            self.rto_at = None;
            return;
        }
        let rto = now + self.rtt.rto();
        self.rto_at = Some(rto);
        let quiet = self.state == State::Open && self.board.sacked_out == 0 && self.board.lost_out == 0;
        if self.has_sack && quiet && !self.rtt.srtt.is_zero() {
            // RFC 8985 7.2; a lone segment's acknowledgement may be delayed.
            let extra = if self.board.packets_out() == 1 { RTO_MIN } else { PROBE_MARGIN };
            let probe = now + 2 * self.rtt.srtt + extra;
            self.probe_at = Some(probe.min(rto));
        }
    }

    /// Runs timers that are due.
    pub fn timeout(&mut self, now: Instant) {
        if self.reorder_at.is_some_and(|t| t <= now) {
            self.reorder_at = None;
            let lost = self.detect(now);
            if lost > 0 && self.state == State::Open {
                self.enter_recovery();
                if !self.controller.governs_recovery() {
                    self.reduce(1, lost, false);
                }
            }
        }
        if self.probe_at.is_some_and(|t| t <= now) {
            self.probe_at = None;
            self.rto_at = Some(now + self.rtt.rto());
            self.forced = Some(Forced::TailProbe);
        } else if self.rto_at.is_some_and(|t| t <= now) {
            self.on_rto(now);
        }
        if self.persist_at.is_some_and(|t| t <= now) {
            self.persist_at = None;
            if self.patience.may_probe_window(self.persist_wait() >= RTO_MAX) {
                self.forced = Some(Forced::WindowProbe);
            }
        }
    }

    /// The next timer.
    pub fn deadline(&self) -> Option<Instant> {
        let paced = (self.pace_at > Instant::ZERO && self.is_held_by_pacing()).then_some(self.pace_at);
        [self.rto_at, self.probe_at, self.reorder_at, self.persist_at, paced].into_iter().flatten().min()
    }

    fn is_held_by_pacing(&self) -> bool {
        self.controller.pacing_bps().is_some()
            && self.board.in_flight() < self.window.cwnd
            && (self.board.has_lost(self.spared) || self.may_send_new(self.pace_at).is_some())
    }

    /// New data that the windows allow, but for the congestion window.
    fn may_send_new(&self, now: Instant) -> Option<Piece> {
        let payload = self.written.saturating_sub(self.nxt).min(self.mss);
        let fin = self.closed && self.nxt + payload == self.written && self.nxt <= self.written;
        if payload == 0 && !fin {
            return None;
        }
        if self.nxt + payload > self.una + self.buffer {
            return None;
        }
        let room = self.edge.saturating_sub(self.nxt);
        if payload <= room {
            return Some(Piece { seq: self.nxt, len: payload as usize, fin });
        }
        // Linux `tcp_mss_split_point`, without Nagle: a burst that has begun fills the window to
        // its end.
        let fills = room > 0 && self.burst_at == Some(now);
        fills.then_some(Piece { seq: self.nxt, len: room as usize, fin: false })
    }

    /// The next segment that may leave now. `clock_ms` is the timestamp clock.
    pub fn next(&mut self, now: Instant, clock_ms: u32) -> Option<Piece> {
        if let Some(forced) = self.forced.take() {
            let piece = match forced {
                Forced::TailProbe => self.tail_probe(now),
                Forced::WindowProbe => self.window_probe(now),
            };
            if piece.is_some() {
                return piece;
            }
        }
        let in_flight = self.board.in_flight();
        if in_flight >= self.window.cwnd {
            self.note_usage(true);
            return None;
        }
        if self.controller.pacing_bps().is_some() && self.pace_at > now {
            return None;
        }
        if self.new_only {
            if let Some(piece) = self.may_send_new(now) {
                return Some(self.send(now, piece));
            }
            self.new_only = false;
            self.undo.frto &= self.nxt > self.high;
            if self.nxt > self.high {
                return None;
            }
        }
        if self.board.next_lost(self.spared).is_some() {
            return self.resend(now, clock_ms);
        }
        match self.may_send_new(now) {
            Some(piece) => Some(self.send(now, piece)),
            None => {
                if self.nxt >= self.end() {
                    self.rate.app_limited(in_flight);
                } else if self.board.is_empty() && self.persist_at.is_none() && self.nxt < self.written {
                    self.persist_at = Some(now + self.persist_wait());
                }
                self.note_usage(false);
                None
            }
        }
    }

    /// Linux `tcp_cwnd_validate`.
    fn note_usage(&mut self, limited: bool) {
        let out = self.board.packets_out();
        if self.una >= self.usage_end || limited || (!self.cwnd_limited && out > self.most_out) {
            self.cwnd_limited = limited;
            self.most_out = out;
            self.usage_end = self.nxt;
        }
    }

    fn send(&mut self, now: Instant, piece: Piece) -> Piece {
        let was_idle = self.board.is_empty();
        if was_idle && self.nxt > 0 {
            self.controller.on_restart(now, self.last_sent);
        }
        let stamp = self.rate.stamp(now, self.board.packets_out());
        let len = piece.len as u64 + u64::from(piece.fin);
        self.board.push(Segment {
            seq: piece.seq,
            len,
            sent: now,
            stamp,
            sacked: false,
            lost: false,
            resent: false,
            ever_resent: false,
        });
        self.nxt += len;
        self.burst_at = Some(now);
        self.sent(now, piece.len);
        if was_idle || self.state == State::Open {
            let rto = self.rto_at;
            self.arm(now);
            // Only the first segment of a flight starts the timer; the tail probe follows each.
            self.rto_at = rto.or(self.rto_at);
        }
        piece
    }

    fn sent(&mut self, now: Instant, bytes: usize) {
        self.last_sent = now;
        self.prr_out += 1;
        if let Some(bps) = self.controller.pacing_bps() {
            let gap = Duration::from_secs_f64((bytes + 52) as f64 * 8.0 / bps.max(1.0));
            self.pace_at = self.pace_at.max(now) + gap;
        }
    }

    fn piece_of(&self, seq: u64, len: u64) -> Piece {
        let fin = self.closed && seq + len == self.written + 1;
        Piece { seq, len: (len - u64::from(fin)) as usize, fin }
    }

    fn resend(&mut self, now: Instant, clock_ms: u32) -> Option<Piece> {
        let stamp = self.rate.stamp(now, self.board.packets_out());
        let (una, edge) = (self.una, self.edge);
        let s = self.board.next_lost(self.spared).filter(|s| is_within(s.seq, una, edge))?;
        s.resent = true;
        s.ever_resent = true;
        s.sent = now;
        s.stamp = stamp;
        let (seq, len) = (s.seq, s.len);
        self.board.resent_out += 1;
        self.undo.resent(clock_ms);
        self.note_resent(now, len);
        Some(self.piece_of(seq, len))
    }

    fn note_resent(&mut self, now: Instant, len: u64) {
        self.retransmits += 1;
        self.patience.resent(now);
        self.sent(now, len as usize);
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rtt.rto());
        }
    }

    /// New data if there is any, else the last segment again (RFC 8985 7.3).
    fn tail_probe(&mut self, now: Instant) -> Option<Piece> {
        if let Some(piece) = self.may_send_new(now) {
            let piece = self.send(now, piece);
            self.probe_at = None;
            return Some(piece);
        }
        let (una, edge) = (self.una, self.edge);
        let spared = self.spared;
        let s = self.board.last_mut().filter(|s| s.end() > spared && is_within(s.seq, una, edge))?;
        s.ever_resent = true;
        s.sent = now;
        let (seq, len) = (s.seq, s.len);
        self.retransmits += 1;
        self.sent(now, len as usize);
        Some(self.piece_of(seq, len))
    }

    /// Something for a window that is shut or too small: what fits, else a byte that was
    /// acknowledged (no payload here).
    fn window_probe(&mut self, now: Instant) -> Option<Piece> {
        self.persist_backoff += 1;
        let room = self.edge.saturating_sub(self.nxt);
        let len = self.written.saturating_sub(self.nxt).min(self.mss).min(room);
        if len > 0 {
            return Some(self.send(now, Piece { seq: self.nxt, len: len as usize, fin: false }));
        }
        self.persist_at = Some(now + self.persist_wait());
        Some(Piece { seq: self.una.wrapping_sub(1), len: 0, fin: false })
    }

    fn persist_wait(&self) -> Duration {
        let wait = self.rtt.rto() * 2u32.saturating_pow(self.persist_backoff.min(10));
        wait.min(RTO_MAX)
    }

    /// All that was written so far ends there.
    pub fn is_written_up_to(&self, end: u64) -> bool {
        end == self.written
    }
}
