//! What changes under way: the controller, the interface, the size of segments, an outage that is
//! over.

use farlink_cc::Config;

use crate::bookmark::{Bookmark, bookmarks};
use farlink_wire::{Duration, Instant, SeqNum};

use super::{Blind, Plan, Purpose, Sender, Silence, Supply};

/// A segment that is larger than the others, to learn whether it gets through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MtuProbe {
    /// Payload to try.
    wanted: Option<u32>,
    /// The one under way.
    sent: Bookmark<(SeqNum, SeqNum)>,
}

bookmarks!(MtuProbe { sent });

impl MtuProbe {
    pub fn sent(&mut self, from: SeqNum, to: SeqNum) {
        *self.sent = Some((from, to));
    }
    pub fn forget(&mut self) {
        *self.sent = None;
    }
}

impl Sender {
    /// Another controller takes over, with the window that is in use: the larger of its own initial
    /// one and what is in flight.
    pub fn change_cc(&mut self, now: Instant, config: &Config) {
        if self.cc().kind() == config.kind {
            return;
        }
        self.leave_routers();
        let mss = u64::from(config.mss.max(1));
        let used = u32::try_from(self.pipe().min(self.cc().cwnd_bytes()) / mss).unwrap_or(u32::MAX);
        let min_rtt = Some(self.rtt().min_rtt()).filter(|rtt| !rtt.is_zero());
        self.governor.replace(&Config {
            initial_window_segments: config.initial_window_segments.max(used),
            handshake_rtt: min_rtt.or(config.handshake_rtt),
            ..*config
        });
        self.keep_losses();
        if self.governor.drop_reduction() {
            self.flight.leave_recovery();
        }
        self.arm_probe(now);
    }

    /// The link carries so much payload from now on, bits per second. `watched`: less than is said,
    /// and all that is sent into it is looked at.
    pub fn set_link_rate(&mut self, payload_bps: u64, watched: bool) {
        self.governor.set_link_rate(payload_bps, watched);
    }

    /// Nothing has been acknowledged yet: another window to begin with.
    pub fn begin_anew(&mut self, config: &Config) {
        self.governor.replace(config);
    }

    /// The path takes no more than this much payload per segment; what is in flight and larger
    /// counts as lost.
    pub fn set_mss(&mut self, mss: u32) {
        if mss == 0 {
            return;
        }
        if mss < self.mss() {
            self.set_mss_for_options(mss);
        }
        if self.ahead.is_on() { self.flight.resend_all() } else { self.flight.resend_larger(mss) }
    }

    /// Options that come or go change what fits beside them; nothing in flight is lost by it.
    pub fn set_mss_for_options(&mut self, mss: u32) {
        if mss > 0 {
            self.larger_than = None;
            self.proof_wait = None;
            self.flight.set_mss(mss);
            self.governor.set_mss(mss);
        }
    }

    /// Segments have so much payload, and congestion control counts in such of a packet (RFC 3465).
    pub fn set_unit(&mut self, unit: u32, of_packet: u32) {
        if unit > 0 {
            self.larger_than = Some(of_packet).filter(|of_packet| unit > *of_packet);
            self.flight.set_mss(unit);
            self.flight.set_packet(of_packet);
            self.governor.set_mss(of_packet);
        }
    }

    /// None of the segments that are larger than a packet has arrived yet (`Some`): where the first
    /// of them is not acknowledged so long after a round trip, all that is under way is sent again.
    pub fn await_proof(&mut self, wait: Option<Duration>) {
        self.proof_wait = wait;
    }

    /// What is under way is to tell how large segments may be: nothing new that begins at this
    /// number, or behind it, leaves before then. `None`: it has been told.
    pub fn hold_from(&mut self, held: Option<(SeqNum, Instant)>) {
        self.governor.hold_from(held);
    }

    /// Two round trips have passed since the oldest of what is under way left, or the timeout has
    /// where not even the handshake shows how long one takes.
    #[must_use]
    pub fn is_answer_overdue(&self, now: Instant, handshake_rtt: Option<Duration>) -> bool {
        let known = self.flight.known_rtt().or(handshake_rtt);
        let overdue = known.map_or_else(|| self.rto(), |rtt| rtt * 2 + self.answers_late_by());
        self.flight.board().first().is_some_and(|oldest| now.since(oldest.sent_at) >= overdue)
    }

    /// The destination has shown that it lacks the beginning: it is sent again at once.
    pub fn resend_head(&mut self) {
        self.flight.mark_head_lost();
    }

    /// The link came back, or the leg has left one that is down: whatever was in flight is sent
    /// again at once, without back-off.
    pub fn restart_after_outage(&mut self, now: Instant) {
        self.begin_anew_after_outage(now);
        self.silence = Silence::default();
        if self.flight.is_empty() {
            return;
        }
        self.note_outage();
        self.flight.resend_all();
        self.timers.rto = Some(now + self.rto());
    }

    /// What the time of an outage has left behind is forgotten.
    pub(super) fn begin_anew_after_outage(&mut self, now: Instant) {
        self.flight.reset_backoff();
        self.flight.note_progress(now);
        self.blind = Blind::default();
        self.link_question = None;
        self.peer.begin_anew();
    }

    /// The leg leads into another link from now on, or out of one: nothing that was learned or
    /// decided holds. What is under way the old way is still waited for, but its acknowledgements
    /// neither open the new window nor time the new way (as RFC 9000 section 9.4 has it for QUIC).
    pub fn change_way(
        &mut self,
        now: Instant,
        config: &Config,
        paced_over: Option<Duration>,
        declared_rtt: Option<Duration>,
    ) {
        self.leave_routers();
        self.governor.change_way(config, paced_over);
        self.keep_losses();
        self.flight.change_way(now, declared_rtt);
        self.mtu.forget();
        self.arm(now);
    }

    /// The controller may be one that hears of losses.
    fn keep_losses(&mut self) {
        if self.cc().wants_losses() {
            self.flight.keep_losses();
        }
    }

    /// A segment with so much payload is to try whether the path takes it; `None`: there is nothing
    /// to find out.
    pub fn probe_mtu(&mut self, payload_bytes: Option<u32>) {
        self.mtu.wanted = payload_bytes;
    }

    /// The segment that tries it, with data that is sent in any case.
    pub(super) fn plan_mtu_probe(&mut self, supply: &Supply, room: u64) -> Option<Plan> {
        let wanted = self.mtu.wanted.filter(|len| *len > self.mss() && self.mtu.sent.is_none())?;
        let urgent = supply.urgent_until.is_some() || supply.urgent_zero.is_some();
        if urgent || self.silence.asks() || room < u64::from(self.mss()) {
            return None;
        }
        let mut plan = if self.flight.has_lost() {
            let (seq, len) = self.flight.next_lost(wanted)?;
            self.with_fin(seq, len, supply, Purpose::Retransmit)
        } else {
            self.with_fin(self.snd_nxt(), self.receiver_room(supply).min(wanted), supply, Purpose::New)
        };
        plan.mtu_probe = true;
        (plan.len == wanted).then_some(plan)
    }

    /// One is under way.
    #[must_use]
    pub fn tries_mtu(&self) -> bool {
        self.mtu.sent.is_some()
    }

    /// Payload of the one under way; 0: there is none.
    pub(super) fn mtu_probe_bytes(&self) -> u64 {
        self.mtu.sent.map_or(0, |(from, to)| u64::from(to.since(from)))
    }

    /// What has become of it, as soon as that is known.
    pub(super) fn take_mtu_probe(&mut self) -> Option<bool> {
        let (from, to) = (*self.mtu.sent)?;
        let arrived =
            if self.snd_una().after_eq(to) { true } else { self.flight.board().is_held(from, to)? };
        *self.mtu.sent = None;
        Some(arrived)
    }
}
