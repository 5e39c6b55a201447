//! One connection at one host: handshake, the two halves, and segments as bytes.

mod life;

use farlink_wire::checksum;
use farlink_wire::options::{
    KIND_MSS, KIND_NOP, KIND_SACK, KIND_SACK_PERMITTED, KIND_TIMESTAMPS, KIND_WINDOW_SCALE,
};
use farlink_wire::tcp::TCP_CHECKSUM_OFFSET;
use farlink_wire::{Duration, Flags, Instant, SegmentHeader, SeqNum, TcpSegment};

use self::life::Life;
pub(super) use self::life::Path;
use super::config::LinuxConfig;
use super::congestion::Controller;
use super::receiver::Receiver;
use super::sender::{Arrived, Piece, Sender};
use crate::content::Endpoint;

/// Repetitions of a SYN or its answer (Linux `tcp_syn_retries` and `tcp_synack_retries`).
const SYN_RETRIES: u32 = 6;
const SYN_TIMEOUT: Duration = Duration::from_secs(1);
/// An application writes so much at a time; each piece ends with PSH.
const WRITE_BYTES: u64 = 64 << 10;
/// Linux `net.ipv4.tcp_invalid_ratelimit`.
const ODD_ANSWERS_APART: Duration = Duration::from_millis(500);
/// A stamp is not believed to be older (Linux `tcp_rtt_tsopt_us`).
const STAMP_AGE_MAX_MS: u32 = 2_147_483;
/// Linux `tcp_min_snd_mss`, without options.
const MIN_SEND_MSS: u32 = 28;
/// By so much an acknowledgement may be overtaken by a younger one: about a retransmission timeout.
const DISORDERED_MS: i32 = 200;
/// Why a connection has failed whose other side, or a gateway in its name, has reset it.
pub const RESET: &str = "reset by the other side";

/// Why a connection has failed: its SYNs were not answered for as long as the host waits.
pub const NO_ANSWER: &str = "nobody answers";
/// The same where what it has sent was not acknowledged.
pub const NO_ACKNOWLEDGEMENT: &str = "nothing is acknowledged";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    SynSent,
    SynReceived,
    Open,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Conn {
    config: LinuxConfig,
    local: Endpoint,
    remote: Endpoint,
    isn: SeqNum,
    /// The other side's ISN.
    pub irs: SeqNum,
    stage: Stage,
    syn_at: Option<Instant>,
    syn_sent: Instant,
    syns: u32,
    syn_due: bool,
    peer_mss: u16,
    timestamps: bool,
    sack: bool,
    /// Scales: what the other side shows, what this side shows.
    scales: [u8; 2],
    ts_recent: u32,
    ts_offset: u32,
    ip_id: u16,
    /// When something out of the window was answered last.
    odd_answered: Option<Instant>,
    /// It was reset, or nobody answered.
    pub failed: Option<&'static str>,
    life: Life,
    path: Option<Path>,
    /// The sending half.
    pub tx: Sender,
    /// The receiving half.
    pub rx: Receiver,
}

/// IP and TCP header without options.
fn headers_bytes(local: Endpoint) -> u32 {
    if local.0.is_ipv4() { 40 } else { 60 }
}

impl Conn {
    fn new(config: LinuxConfig, local: Endpoint, remote: Endpoint, isn: u32, stage: Stage) -> Self {
        let mss = config.mtu_bytes - headers_bytes(local);
        let tx = Sender::new(mss, false, 0, 1, Controller::new(config.congestion, mss));
        let rx = Receiver::new(mss, config.window_bytes, config.window_max_bytes, config.autotunes);
        Self {
            timestamps: config.timestamps,
            sack: config.sack,
            scales: [0, 0],
            config,
            local,
            remote,
            isn: SeqNum(isn),
            irs: SeqNum(0),
            stage,
            syn_at: None,
            syn_sent: Instant::ZERO,
            syns: 0,
            syn_due: true,
            peer_mss: 536,
            ts_recent: 0,
            ts_offset: isn.rotate_left(16),
            ip_id: isn as u16,
            odd_answered: None,
            failed: None,
            life: Life::default(),
            path: None,
            tx,
            rx,
        }
    }

    /// A client's connection; its SYN is due.
    pub fn connect(config: LinuxConfig, local: Endpoint, remote: Endpoint, isn: u32) -> Self {
        Self::new(config, local, remote, isn, Stage::SynSent)
    }

    /// A server's connection; the answer to the SYN is due.
    pub fn accept(
        config: LinuxConfig,
        local: Endpoint,
        remote: Endpoint,
        isn: u32,
        syn: &TcpSegment,
    ) -> Self {
        let mut c = Self::new(config, local, remote, isn, Stage::SynReceived);
        c.negotiate(syn);
        c
    }

    /// What a segment without options holds.
    fn own_mss(&self) -> u32 {
        let mtu_bytes = self.path.map_or(u32::MAX, |p| p.mtu_bytes).min(self.config.mtu_bytes);
        mtu_bytes - headers_bytes(self.local)
    }

    /// Takes the options of the other side's SYN.
    fn negotiate(&mut self, s: &TcpSegment) {
        let o = &s.options;
        self.irs = s.seq;
        self.peer_mss = o.mss.filter(|m| *m > 0).unwrap_or(536);
        self.timestamps &= o.timestamps.is_some();
        self.sack &= o.sack_permitted;
        self.ts_recent = o.timestamps.map_or(0, |t| t.val);
        self.scales = match o.window_scale {
            Some(theirs) if self.config.window_scaling => [theirs, self.config.window_shift()],
            _ => [0, 0],
        };
        let mss = self.send_mss();
        let (buffer, initial) = (self.config.send_buffer_bytes, self.config.initial_window);
        let controller = Controller::new(self.config.congestion, mss);
        let rx =
            Receiver::new(mss, self.config.window_bytes, self.config.window_max_bytes, self.config.autotunes);
        self.tx = Sender::new(mss, self.sack, buffer, initial, controller);
        self.rx = rx;
        self.rx.sack = self.sack;
    }

    /// Payload bytes of a full segment.
    fn send_mss(&self) -> u32 {
        let mss = self.own_mss().min(u32::from(self.peer_mss));
        // Linux `tcp_min_snd_mss`.
        mss.saturating_sub(if self.timestamps { 12 } else { 0 }).max(MIN_SEND_MSS)
    }

    /// This side's ISN.
    pub fn isn(&self) -> u32 {
        self.isn.0
    }

    /// The handshake is over.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    fn clock_ms(&self, now: Instant) -> u32 {
        self.ts_offset.wrapping_add((now.as_nanos() / 1_000_000) as u32)
    }

    /// A segment of this connection arrives.
    pub fn receive(&mut self, now: Instant, s: &TcpSegment, packet: &[u8]) {
        if s.flags.rst() {
            return self.receive_reset(now, s);
        }
        if self.failed.is_some() {
            return self.refuse(s);
        }
        match self.stage {
            Stage::SynSent => {
                if s.flags.syn() && s.flags.ack() && s.ack == self.isn + 1 {
                    self.negotiate(s);
                    self.establish(now, u64::from(s.window));
                    self.rx.ack_now = true;
                }
                return;
            }
            Stage::SynReceived if s.flags.syn() => {
                self.syn_due = true;
                return;
            }
            Stage::SynReceived => {
                if !s.flags.ack() || s.ack.before(self.isn + 1) {
                    return;
                }
                self.establish(now, u64::from(s.window) << self.scales[0]);
            }
            Stage::Open if s.flags.syn() => {
                self.answer_odd(now, s);
                return;
            }
            Stage::Open => {}
        }
        if self.config.iack && s.flags.contains(Flags::URG | Flags::ACK) && s.seq_len() == 0 {
            // Reynolds 3.4.5: before anything else of it is looked at.
            let ahead = s.ack.diff(self.isn + 1 + self.tx.una as u32);
            self.tx.spare(self.tx.una.saturating_add_signed(i64::from(ahead)));
            return;
        }
        self.receive_open(now, s, packet);
        self.note_fin_wait(now);
    }

    /// Where the next byte of the other stream is expected.
    fn expected(&self) -> SeqNum {
        self.irs + 1 + self.rx.ack() as u32
    }

    /// Only the exact next number resets a connection; one elsewhere in the window draws an
    /// acknowledgement (RFC 5961 3.2).
    fn receive_reset(&mut self, now: Instant, s: &TcpSegment) {
        let exact = match self.stage {
            Stage::SynSent => s.flags.ack() && s.ack == self.isn + 1,
            Stage::SynReceived => s.seq == self.irs + 1,
            Stage::Open => s.seq == self.expected(),
        };
        if exact {
            self.failed.get_or_insert(RESET);
        } else if self.stage == Stage::Open && s.seq.since(self.expected()) < self.rx.window_left() as u32 {
            self.answer_odd(now, s);
        }
    }

    /// Linux `tcp_oow_rate_limited`: data is answered each time.
    fn answer_odd(&mut self, now: Instant, s: &TcpSegment) {
        let is_data = s.seq_len() > 0 && !s.flags.syn();
        if is_data || self.odd_answered.is_none_or(|at| now.since(at) >= ODD_ANSWERS_APART) {
            self.odd_answered = Some(now);
            self.rx.ack_now = true;
        }
    }

    /// Linux `tcp_validate_incoming` and the first checks of `tcp_ack`: timestamp (RFC 7323 5.3),
    /// place in the window (RFC 9293 3.10.7.4), acknowledgement (RFC 5961 5.2). What fails is
    /// dropped, and most of it answered.
    fn is_acceptable(&mut self, now: Instant, s: &TcpSegment) -> bool {
        let expected = self.expected();
        if let Some(t) = s.options.timestamps.filter(|_| self.timestamps) {
            let age = self.ts_recent.wrapping_sub(t.val) as i32;
            // Linux `tcp_disordered_ack`: acknowledgements may overtake each other.
            let overtaken = s.seq_len() == 0 && s.seq == expected && age < DISORDERED_MS;
            if age > 0 && !overtaken {
                self.answer_odd(now, s);
                return false;
            }
        }
        // Linux `tcp_sequence` from 6.17 on: what begins beyond the window is dropped, and so is
        // what ends there while something waits to be read. A FIN may stand behind its end.
        let (left, end) = (self.rx.window_left() as i64, s.seq + s.payload_len as u32);
        let is_beyond = |seq: SeqNum| i64::from(seq.diff(expected)) > left.max(0);
        if is_beyond(s.seq) || is_beyond(end) && self.rx.is_readable() {
            self.answer_odd(now, s);
            return false;
        }
        if !s.flags.ack() {
            return false;
        }
        let una = self.isn + 1 + self.tx.una as u32;
        let ack = s.ack.diff(una);
        if i64::from(ack) > (self.tx.nxt - self.tx.una) as i64 {
            return false;
        }
        if ack < 0 && i64::from(ack.unsigned_abs()) > self.tx.window_max as i64 {
            self.answer_odd(now, s);
            return false;
        }
        true
    }

    fn establish(&mut self, now: Instant, window: u64) {
        self.stage = Stage::Open;
        self.life.open(now, self.config.keepalive);
        self.syn_at = None;
        self.syn_due = false;
        self.tx.open(window);
        if self.syns <= 1 {
            self.tx.rtt.sample(now, now.since(self.syn_sent), 0, 0);
        }
    }

    fn receive_open(&mut self, now: Instant, s: &TcpSegment, packet: &[u8]) {
        if !self.is_acceptable(now, s) {
            return;
        }
        self.life.heard(now);
        if self.refuse_data(s) {
            return;
        }
        let expected = self.expected();
        let offset = self.rx.ack() as i64 + i64::from(s.seq.diff(expected));
        if s.end_seq().before(self.irs + 1 + self.rx.acked() as u32) {
            // Linux `tcp_sequence`: a duplicate is answered, and says nothing else.
            match u64::try_from(offset) {
                Ok(offset) if s.payload_len > 0 => {
                    self.rx.take(now, offset, s.payload(packet), s.flags.fin())
                }
                _ => self.rx.ack_now = true,
            }
            return;
        }
        if let Some(t) = s.options.timestamps.filter(|_| self.timestamps)
            && s.seq.before_eq(expected)
            && t.val.wrapping_sub(self.ts_recent) < u32::MAX / 2
            && !self.is_overtaken(s)
        {
            self.ts_recent = t.val;
        }
        if s.flags.ack() {
            let to_offset =
                |seq: SeqNum| self.tx.una as i64 + i64::from(seq.diff(self.isn + 1 + self.tx.una as u32));
            let ack = to_offset(s.ack);
            let sacks: Vec<_> = s
                .options
                .sack
                .iter()
                .map(|b| (to_offset(b.start), to_offset(b.end)))
                .filter(|b| self.sack && b.0 >= 0 && b.1 > b.0)
                .map(|b| (b.0 as u64, b.1 as u64))
                .collect();
            if let Ok(ack) = u64::try_from(ack) {
                let edge = ack + (u64::from(s.window) << self.scales[0]);
                let is_pure = s.payload_len == 0 && !s.flags.fin();
                let echo_ms = s.options.timestamps.filter(|_| self.timestamps).map(|t| t.ecr);
                let clock_ms = self.clock_ms(now);
                self.tx.on_ack(&Arrived { now, ack, sacks: &sacks, edge, is_pure, echo_ms, clock_ms });
            }
        }
        let is_probe = s.payload_len == 0 && !s.flags.fin();
        if is_probe && offset >= self.rx.ack() as i64 {
            return;
        }
        if let Ok(offset) = u64::try_from(offset) {
            if let Some(t) = s.options.timestamps.filter(|t| self.timestamps && t.ecr != 0) {
                let ago_ms = self.clock_ms(now).wrapping_sub(t.ecr);
                let ago = if ago_ms < STAMP_AGE_MAX_MS {
                    Duration::from_millis(ago_ms.into())
                } else {
                    Duration::ZERO
                };
                self.rx.echo(s.payload_len, t.ecr, ago);
            }
            self.rx.take(now, offset, s.payload(packet), s.flags.fin());
        } else {
            self.rx.ack_now = true;
        }
    }

    /// Linux `tcp_ack`: an acknowledgement of less than another one leaves the timestamp to be
    /// echoed as it is, unless header prediction takes it (`tcp_rcv_established`): a bare one that
    /// shows the window of before.
    fn is_overtaken(&self, s: &TcpSegment) -> bool {
        let una = self.isn + 1 + self.tx.una as u32;
        let window = u64::from(s.window) << self.scales[0];
        let predicted = s.seq_len() == 0 && s.options.sack.is_empty() && window == self.tx.window_bytes();
        s.flags.ack() && s.ack.before(una) && !predicted
    }

    /// Runs timers that are due.
    pub fn timeout(&mut self, now: Instant) {
        if self.syn_at.is_some_and(|t| t <= now) {
            self.syn_at = None;
            self.syn_due = true;
            if self.syns > SYN_RETRIES {
                self.failed = Some(NO_ANSWER);
            }
        }
        if self.is_open() {
            self.tx.timeout(now);
            self.rx.timeout(now);
            if self.tx.is_given_up() {
                self.failed.get_or_insert(NO_ACKNOWLEDGEMENT);
            }
            self.look_after_life(now);
        }
    }

    /// When it wants to be called next.
    pub fn deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let own = [self.syn_at, self.tx.deadline(), self.rx.ack_at, self.life.deadline()];
        own.into_iter().flatten().min()
    }

    /// The next packet that leaves now. `fill` writes the stream.
    pub fn next_packet(&mut self, now: Instant, fill: &dyn Fn(u64, &mut [u8])) -> Option<Vec<u8>> {
        if let Some(reset) = self.take_reset() {
            return Some(reset);
        }
        if self.failed.is_some() {
            return None;
        }
        if self.syn_due {
            return Some(self.syn(now));
        }
        if !self.is_open() {
            return None;
        }
        self.forget_old_path(now);
        if self.life.take_probe() {
            // Linux `tcp_xmit_probe_skb`: what was acknowledged long ago calls for an
            // acknowledgement.
            let nothing = Piece { seq: self.tx.una.wrapping_sub(1), len: 0, fin: false };
            return Some(self.data(now, nothing, fill));
        }
        let clock = self.clock_ms(now);
        if let Some(piece) = self.tx.next(now, clock) {
            return Some(self.data(now, piece, fill));
        }
        if self.rx.ack_now {
            let nothing = Piece { seq: self.tx.nxt, len: 0, fin: false };
            return Some(self.data(now, nothing, fill));
        }
        None
    }

    fn syn(&mut self, now: Instant) -> Vec<u8> {
        self.syn_due = false;
        self.syn_sent = now;
        self.syn_at = Some(now + SYN_TIMEOUT * 2u32.saturating_pow(self.syns.min(7)));
        self.syns += 1;
        let answers = self.stage == Stage::SynReceived;
        // Linux `ipv4_default_advmss`: what is known of the path counts here, too.
        let mss = self.own_mss() as u16;
        let mut options = vec![KIND_MSS, 4];
        options.extend(mss.to_be_bytes());
        if self.sack {
            options.extend([KIND_SACK_PERMITTED, 2]);
        }
        if self.timestamps {
            while options.len() % 4 != 2 {
                options.push(KIND_NOP);
            }
            options.extend([KIND_TIMESTAMPS, 10]);
            options.extend(self.clock_ms(now).to_be_bytes());
            options.extend((if answers { self.ts_recent } else { 0 }).to_be_bytes());
        }
        if self.config.window_scaling && (!answers || self.scales[1] > 0) {
            options.extend([KIND_NOP, KIND_WINDOW_SCALE, 3, self.config.window_shift()]);
        }
        let flags = if answers { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let ack = if answers { self.irs + 1 } else { SeqNum(0) };
        let window = self.rx.offer(0).min(65_535) as u16;
        self.packet(self.isn, ack, flags, window, &options, &[])
    }

    fn data(&mut self, now: Instant, piece: Piece, fill: &dyn Fn(u64, &mut [u8])) -> Vec<u8> {
        let mut options = Vec::new();
        if self.timestamps {
            options.extend([KIND_NOP, KIND_NOP, KIND_TIMESTAMPS, 10]);
            options.extend(self.clock_ms(now).to_be_bytes());
            options.extend(self.ts_recent.to_be_bytes());
        }
        if self.sack {
            let mut blocks = self.rx.sack_blocks();
            // Linux sends less data beside them; here the next bare acknowledgement has them.
            let room = (self.own_mss() as usize).saturating_sub(piece.len + options.len());
            blocks.truncate(room.saturating_sub(4) / 8);
            if !blocks.is_empty() {
                options.extend([KIND_NOP, KIND_NOP, KIND_SACK, 2 + 8 * blocks.len() as u8]);
                for (start, end) in blocks {
                    options.extend((self.irs + 1 + start as u32).0.to_be_bytes());
                    options.extend((self.irs + 1 + end as u32).0.to_be_bytes());
                }
            }
        }
        let mut payload = vec![0; piece.len];
        fill(piece.seq, &mut payload);
        let end = piece.seq.wrapping_add(piece.len as u64);
        let mut flags = Flags::ACK;
        if piece.len > 0 && (end / WRITE_BYTES > piece.seq / WRITE_BYTES || self.tx.is_written_up_to(end)) {
            flags = flags | Flags::PSH;
        }
        if piece.fin {
            flags = flags | Flags::FIN;
        }
        let ack = self.irs + 1 + self.rx.ack() as u32;
        let window = (self.rx.offer(self.scales[1]) >> self.scales[1]).min(65_535) as u16;
        self.rx.acknowledged();
        self.packet(self.isn + 1 + piece.seq as u32, ack, flags, window, &options, &payload)
    }

    fn packet(
        &mut self,
        seq: SeqNum,
        ack: SeqNum,
        flags: Flags,
        window: u16,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        self.ip_id = self.ip_id.wrapping_add(1);
        let header = SegmentHeader {
            src: self.local.0,
            dst: self.remote.0,
            src_port: self.local.1,
            dst_port: self.remote.1,
            ttl: 64,
            traffic_class: self.config.dscp << 2,
            flow_label: 0,
            ip_id: self.ip_id,
            dont_fragment: self.path.is_none_or(|p| !p.is_locked),
            seq,
            ack,
            flags,
            window,
            urgent: 0,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let (head, _) = header
            .write_with_options(payload.len(), options)
            .expect("one family, few options, a packet of the MTU");
        let mut bytes = Vec::with_capacity(head.len() + payload.len());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(payload);
        // The checksum field holds the sum of the pseudo header.
        let at = if self.local.0.is_ipv4() { 20 } else { 40 };
        let check = !checksum::sum(&bytes[at..]);
        bytes[at + TCP_CHECKSUM_OFFSET..at + TCP_CHECKSUM_OFFSET + 2].copy_from_slice(&check.to_be_bytes());
        bytes
    }
}
