//! What changes under way: the controller, the interface, the size of segments, an outage that is over.

use farlink_cc::{Config, Controller};
use farlink_wire::{Duration, Instant, SeqNum};

use super::{Blind, Plan, Purpose, Sender, Silence, Supply};
use crate::pacing::Pacer;
use crate::recovery::{Rack, Recovery};
use crate::rtt::RttEstimator;

/// A segment that is larger than the others, to learn whether it gets through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MtuProbe {
    /// Payload to try.
    wanted: Option<u32>,
    /// The one under way.
    sent: Option<(SeqNum, SeqNum)>,
}

impl MtuProbe {
    pub fn sent(&mut self, from: SeqNum, to: SeqNum) {
        self.sent = Some((from, to));
    }
    pub fn forget(&mut self) {
        self.sent = None;
    }
}

impl Sender {
    /// Another controller takes over, with the window that is in use: the larger of its own initial one and what is in flight.
    pub fn change_cc(&mut self, now: Instant, config: &Config) {
        if self.cc.kind() == config.kind {
            return;
        }
        let mss = u64::from(config.mss.max(1));
        let used = u32::try_from(self.pipe().min(self.cc.cwnd_bytes()) / mss).unwrap_or(u32::MAX);
        let min_rtt = Some(self.rtt.min_rtt()).filter(|rtt| !rtt.is_zero());
        *self.cc = Controller::new(&Config {
            initial_window_segments: config.initial_window_segments.max(used),
            handshake_rtt: min_rtt.or(config.handshake_rtt),
            ..*config
        });
        self.cwnd_stop = None;
        if self.cc.wants_losses() {
            self.board.keep_losses();
        }
        if self.recovery.is_fast() {
            // The old one's reduction goes with it; what is lost is repeated within the new window.
            self.recovery = Recovery::Open;
            self.rack.on_recovery_exit();
            self.dup_acks = 0;
        }
        self.arm_probe(now);
    }

    /// The link carries so much payload from now on, bits per second.
    pub fn set_link_rate(&mut self, payload_bps: u64) {
        self.cc.set_link_rate(payload_bps);
    }

    /// Nothing has been acknowledged yet: another window to begin with.
    pub fn begin_anew(&mut self, config: &Config) {
        *self.cc = Controller::new(config);
        self.cwnd_stop = None;
    }

    /// The path takes no more than this much payload per segment; what is in flight and larger counts as lost.
    pub fn set_mss(&mut self, mss: u32) {
        if mss >= self.mss || mss == 0 {
            return;
        }
        self.mss = mss;
        self.cc.set_mss(mss);
        self.board.resend_all();
    }

    /// Options that come or go change what fits beside them; nothing in flight is lost by it.
    pub fn set_mss_for_options(&mut self, mss: u32) {
        if mss > 0 {
            self.mss = mss;
            self.cc.set_mss(mss);
        }
    }

    /// The destination has shown that it lacks the beginning: it is sent again at once.
    pub fn resend_head(&mut self) {
        self.board.mark_head_lost(self.mss);
    }

    /// The link came back, or the leg has left one that is down: whatever was in flight is sent again at once, without back-off.
    pub fn restart_after_outage(&mut self, now: Instant) {
        self.begin_anew_after_outage(now);
        self.silence = Silence::default();
        if self.board.is_empty() {
            return;
        }
        self.note_outage();
        self.board.resend_all();
        self.timers.rto = Some(now + self.rto());
    }

    /// What the time of an outage has left behind is forgotten.
    pub(super) fn begin_anew_after_outage(&mut self, now: Instant) {
        self.rtt.reset_backoff();
        self.progress_at = now;
        self.probes_unanswered = 0;
        self.blind = Blind::default();
        self.link_question = None;
        if self.timers.persist.take().is_some() {
            // Whether the window has opened meanwhile is asked at once.
            self.window_probe_wanted = true;
        }
        self.persist_backoff = 0;
    }

    /// The leg leads into another link from now on, or out of one: nothing that was learned or decided holds. What is under way the
    /// old way is still waited for, but its acknowledgements neither open the new window nor time the new way (as RFC 9000
    /// section 9.4 has it for QUIC).
    pub fn change_way(
        &mut self,
        now: Instant,
        config: &Config,
        paced_over: Option<Duration>,
        declared_rtt: Option<Duration>,
    ) {
        *self.cc = Controller::new(config);
        if self.cc.wants_losses() {
            self.board.keep_losses();
        }
        self.recovery = Recovery::Open;
        self.rack = Rack::default();
        self.rtt = RttEstimator::default();
        self.pacer = Pacer::default();
        self.start_paced_over = paced_over;
        self.declared_rtt = declared_rtt;
        self.dup_acks = 0;
        self.cwnd_stop = None;
        self.head_due = false;
        self.mtu.forget();
        self.moved_at = Some(now);
        self.arm(now);
    }

    /// Whether the newest segment that is acknowledged, sent then, went another way than segments do now.
    pub(super) fn is_of_old_way(&self, sent_at: Option<Instant>) -> bool {
        self.moved_at.is_some_and(|moved| sent_at.is_some_and(|at| at < moved))
    }

    /// A segment with so much payload is to try whether the path takes it; `None`: there is nothing to find out.
    pub fn probe_mtu(&mut self, payload_bytes: Option<u32>) {
        self.mtu.wanted = payload_bytes;
    }

    /// The segment that tries it, with data that is sent in any case.
    pub(super) fn plan_mtu_probe(&mut self, supply: &Supply, room: u64) -> Option<Plan> {
        let wanted = self.mtu.wanted.filter(|len| *len > self.mss && self.mtu.sent.is_none())?;
        let urgent = supply.urgent_until.is_some() || supply.urgent_zero.is_some();
        if urgent || self.silence.asks() || room < u64::from(self.mss) {
            return None;
        }
        let mut plan = if self.board.lost_bytes() > 0 {
            let (seq, len) = self.board.next_lost(wanted)?;
            self.with_fin(seq, len, supply, Purpose::Retransmit)
        } else {
            self.with_fin(self.snd_nxt, self.receiver_room(supply).min(wanted), supply, Purpose::New)
        };
        plan.mtu_probe = true;
        (plan.len == wanted).then_some(plan)
    }

    /// Payload of the one under way; 0: there is none.
    pub(super) fn mtu_probe_bytes(&self) -> u64 {
        self.mtu.sent.map_or(0, |(from, to)| u64::from(to.since(from)))
    }

    /// What has become of it, as soon as that is known.
    pub(super) fn take_mtu_probe(&mut self) -> Option<bool> {
        let (from, to) = self.mtu.sent?;
        let arrived = if self.snd_una.after_eq(to) { true } else { self.board.is_held(from, to)? };
        self.mtu.sent = None;
        Some(arrived)
    }
}
