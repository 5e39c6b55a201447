//! How long a connection lives: keepalives, sockets that their applications have closed, and what
//! the path takes.

use farlink_wire::{Duration, Flags, Instant, SeqNum, TcpSegment};

use super::{Conn, Stage};
use crate::linux::config::Keepalive;

/// Linux `net.ipv4.tcp_fin_timeout`.
const FIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Linux `net.ipv4.route.mtu_expires`; the same in IPv6.
pub(in crate::linux) const PATH_MTU_EXPIRES: Duration = Duration::from_secs(600);
/// Linux `net.ipv4.route.min_pmtu`.
const MIN_PATH_MTU_BYTES: u32 = 552;
/// RFC 8200 section 5.
const MIN_MTU_V6_BYTES: u32 = 1280;

/// What is known of the path (RFC 1191, RFC 8201).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct Path {
    /// The largest packet.
    pub mtu_bytes: u32,
    /// Somebody wants smaller packets than Linux makes: they may be cut up.
    pub is_locked: bool,
    /// It is tried anew then.
    pub until: Instant,
}

impl Path {
    /// What Linux makes of a router's word that `mtu_bytes` is the most (`__ip_rt_update_pmtu`,
    /// `rt6_do_update_pmtu`). `None`: it is not believed.
    pub fn told(now: Instant, mtu_bytes: u32, is_v4: bool) -> Option<Self> {
        let until = now + PATH_MTU_EXPIRES;
        if is_v4 {
            let is_locked = mtu_bytes < MIN_PATH_MTU_BYTES;
            Some(Self { mtu_bytes: mtu_bytes.max(MIN_PATH_MTU_BYTES), is_locked, until })
        } else {
            (mtu_bytes >= MIN_MTU_V6_BYTES).then_some(Self { mtu_bytes, is_locked: false, until })
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Life {
    keepalive: Option<Keepalive>,
    heard_at: Instant,
    /// Questions without an answer.
    asked: u32,
    ask_at: Option<Instant>,
    ask_now: bool,
    /// The application has closed the socket.
    is_orphan: bool,
    /// An orphan's half-closed connection is forgotten then.
    fin_wait_until: Option<Instant>,
    /// A reset that is to leave, with this sequence number and perhaps an acknowledgement.
    reset: Option<(SeqNum, Option<SeqNum>)>,
}

impl Life {
    pub(super) fn open(&mut self, now: Instant, keepalive: Option<Keepalive>) {
        self.keepalive = keepalive;
        self.heard_at = now;
        self.ask_at = keepalive.map(|k| now + k.idle);
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.asked = 0;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.ask_at, self.fin_wait_until].into_iter().flatten().min()
    }

    pub(super) fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.ask_now)
    }
}

impl Conn {
    /// The application closes the socket: nobody reads or waits any more (Linux `tcp_close`).
    pub fn release(&mut self, now: Instant) {
        if self.life.is_orphan || self.failed.is_some() {
            return;
        }
        self.life.is_orphan = true;
        self.tx.orphan();
        if self.rx.is_readable() || !self.is_open() {
            return self.reset("closed before all was read");
        }
        self.tx.close();
        self.note_fin_wait(now);
    }

    /// Nobody at this host has the socket, and the connection is not over.
    pub fn is_orphan(&self) -> bool {
        let is_over = self.tx.is_done() && self.rx.is_at_end();
        self.life.is_orphan && self.failed.is_none() && !is_over
    }

    /// Ends it with a reset (Linux `tcp_send_active_reset`).
    pub fn reset(&mut self, why: &'static str) {
        self.reset_at(why, self.isn + 1 + self.tx.nxt as u32, Some(self.expected()));
    }

    fn reset_at(&mut self, why: &'static str, seq: SeqNum, ack: Option<SeqNum>) {
        if self.failed.is_none() {
            self.failed = Some(why);
            self.life.reset = self.is_open().then_some((seq, ack));
        }
    }

    /// There is no connection any more: who speaks of it hears so (RFC 9293 3.5.2, Linux
    /// `tcp_v4_send_reset`).
    pub(super) fn refuse(&mut self, s: &TcpSegment) {
        let is_ack = s.flags.ack();
        let seq = if is_ack { s.ack } else { SeqNum(0) };
        self.life.reset = Some((seq, (!is_ack).then_some(s.seq + s.seq_len())));
    }

    /// Data for a socket that its application has closed is answered by a reset (Linux
    /// `tcp_rcv_state_process`). Whether that was so.
    pub(super) fn refuse_data(&mut self, s: &TcpSegment) -> bool {
        let is_new = s.payload_len > 0 && (s.seq + s.payload_len as u32).after(self.expected());
        if self.life.is_orphan && is_new {
            self.reset_at("data for a closed socket", s.ack, None);
            return true;
        }
        false
    }

    pub(super) fn take_reset(&mut self) -> Option<Vec<u8>> {
        let (seq, ack) = self.life.reset.take()?;
        let flags = if ack.is_some() { Flags::RST | Flags::ACK } else { Flags::RST };
        Some(self.packet(seq, ack.unwrap_or(SeqNum(0)), flags, 0, &[], &[]))
    }

    /// An orphan in FIN-WAIT-2 waits for a minute.
    pub(super) fn note_fin_wait(&mut self, now: Instant) {
        let waits = self.life.is_orphan && self.tx.is_done() && !self.rx.fin_taken;
        self.life.fin_wait_until = waits.then(|| self.life.fin_wait_until.unwrap_or(now + FIN_TIMEOUT));
    }

    /// The timers of `tcp_keepalive_timer`.
    pub(super) fn look_after_life(&mut self, now: Instant) {
        if self.life.fin_wait_until.is_some_and(|t| t <= now) {
            self.failed.get_or_insert("the other side never closed");
        }
        let Some(k) = self.life.keepalive else { return };
        if self.life.ask_at.is_none_or(|t| t > now) {
            return;
        }
        let silent = now.since(self.life.heard_at);
        let next = if !self.tx.is_idle() {
            now + k.idle
        } else if silent < k.idle {
            self.life.heard_at + k.idle
        } else if self.life.asked >= k.probes {
            return self.reset("the other side has gone");
        } else {
            self.life.asked += 1;
            self.life.ask_now = true;
            now + k.interval
        };
        self.life.ask_at = Some(next);
    }

    /// A router says what the path takes, about the segment at `seq`. What is believed of it (Linux
    /// `tcp_v4_err`, `tcp_v4_mtu_reduced`).
    pub fn hear_of_path(&mut self, now: Instant, mtu_bytes: u32, seq: SeqNum) -> Option<Path> {
        let una = self.isn + 1 + self.tx.una as u32;
        let is_under_way = u64::from(seq.since(una)) <= self.tx.nxt - self.tx.una;
        if self.stage != Stage::Open || !is_under_way {
            return None;
        }
        let path = Path::told(now, mtu_bytes, self.local.0.is_ipv4())?;
        self.take_path(path);
        Some(path)
    }

    /// What this host knows of the path to the other side.
    pub fn take_path(&mut self, path: Path) {
        let mtu_bytes = self.path.map_or(self.config.mtu_bytes, |p| p.mtu_bytes);
        if path.mtu_bytes > mtu_bytes {
            return;
        }
        self.path = Some(path);
        if path.mtu_bytes < mtu_bytes {
            self.tx.set_mss(self.send_mss());
        }
    }

    /// After ten minutes larger packets are tried again.
    pub(super) fn forget_old_path(&mut self, now: Instant) {
        if self.path.is_some_and(|p| p.until <= now) {
            self.path = None;
            self.tx.set_mss(self.send_mss());
        }
    }
}
