//! Is an acknowledgement of what was never sent from here believed?
//!
//! Where packets go round us, the destination acknowledges bytes that we have not sent, and its
//! word ends what we hold. Who only knows the addresses can say the same, and a host can lie, so
//! the word alone is not enough:
//!
//! - It counts only with a sequence number that its host could be sending now. Anything else is
//!   forwarded and forgotten.
//! - It is believed no further than the source has shown in its own numbers that it has sent.
//! - It needs either the exact next sequence number while nothing in order waits to be sent, or to
//!   be repeated, also after the host has been asked. An honest host that is asked says where it
//!   really stands, which ends the matter.
//! - A host that later stands by less than what was believed of it has lost bytes that nobody has
//!   any more: both hosts are reset.
//!
//! Until it is believed, what is held is kept and sent, and the packet goes on to the host that can
//! judge it.

use farlink_wire::{Duration, SeqNum, TcpSegment};

use crate::beyond::{Belief, Beyond};
use crate::cx::Cx;
use crate::event::Event;
use crate::reach::{OLD_ACK_SLACK, STRANGER_BYTES};
use crate::relay::Relay;
use crate::side::Side;
use crate::split::Split;

/// Repetitions that are believed of a host whose sequence number is not exactly the next one, and
/// how long they must last.
const REPEATED: u8 = 8;
const REPEATED_TIME: Duration = Duration::from_secs(1);
/// The same for acknowledgements that are more than a window away.
const REPEATED_TIME_FAR: Duration = Duration::from_secs(10);
/// Repetitions with the exact sequence number.
const REPEATED_EXACT: u8 = 2;
/// How long an honest host has to answer a question where its round trip is not known; else two of
/// them.
const ANSWER_TIME: Duration = Duration::from_millis(400);
/// It is asked again after this time at the earliest. Two that answer differently would keep each
/// other talking, and the connection could never sleep.
const ASK_AGAIN: Duration = Duration::from_secs(15);
/// An acknowledgement is remembered so long for the source's own numbers to confirm it.
const FRESH: Duration = Duration::from_secs(10);
/// Acknowledgements of less than was believed, so long after it and after a question, that show the
/// belief to be wrong. Another gateway on the way, which nobody has told us of, may need some time
/// to come to the same belief.
const CONTRADICTIONS: u8 = 3;
const CONTRADICTION_TIME: Duration = Duration::from_secs(20);

/// How an acknowledgement number relates to what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckKind {
    /// Older than any window reaches back.
    TooOld,
    /// Within what was sent (or old but plausible).
    Good,
    /// Of bytes that were not sent from here, and not believed.
    Doubtful {
        /// Its sequence number is the next one of its host.
        exact: bool,
        /// So was that of another one before, and both acknowledge what its host can have got since
        /// it was heard last.
        repeated: bool,
    },
    /// The host has all that was sent; what it says beyond that is not believed.
    AllSent,
    /// Of bytes that were not sent from here, by a host that is clearly the other end.
    Certain,
}

impl Split<'_> {
    /// What the acknowledgement number of a host's segment says of what was sent to it.
    pub(crate) fn judge_ack(&mut self, cx: &Cx<'_>, from: Side, s: &TcpSegment) -> AckKind {
        let r = &mut *self.relays;
        let towards = r.get_mut(from.other());
        if s.ack.after(towards.tx.snd_nxt()) {
            return self.judge_beyond(cx, from, s);
        }
        let (age, reach) = towards.age_and_reach(s.ack);
        let old = age > reach;
        if old && age > STRANGER_BYTES {
            return AckKind::Doubtful { exact: false, repeated: false };
        }
        // What a gateway acknowledges says nothing of where the host stands.
        if !self.legs.get(from).peer.is_heard() || self.option_of_gateway(cx, s).is_none() {
            let towards = self.relays.get_mut(from.other());
            towards.beyond.refute(towards.tx.asked_at());
        }
        if old { AckKind::TooOld } else { AckKind::Good }
    }

    fn judge_beyond(&mut self, cx: &Cx<'_>, from: Side, s: &TcpSegment) -> AckKind {
        if self.is_stranger(from, s) || !self.is_next_in_window(from, s) {
            return AckKind::Doubtful { exact: false, repeated: false };
        }
        let r = &mut *self.relays;
        let (speaks, towards) = r.both_mut(from);
        let exact = s.seq == speaks.rcv_nxt();
        let real = towards.has_source_sent(s.ack);
        let distance = u64::from(s.ack.since(towards.tx.snd_nxt()));
        // Nobody sends more than a window past what is acknowledged: farther, a whole part of the
        // stream went round us.
        let near = distance <= towards.tx.window_max_bytes().max(OLD_ACK_SLACK)
            || s.ack.before_eq(towards.buffer.highest());
        // A drained direction holds nothing that a false acknowledgement could cost.
        if real && (exact && towards.has_sent_all() || near && towards.is_drained()) {
            return AckKind::Certain;
        }
        if !(exact || near || real) {
            // Whoever guesses hits a large part of the sequence space more easily than a window.
            return AckKind::Doubtful { exact: false, repeated: false };
        }
        let lasting = if near { REPEATED_TIME } else { REPEATED_TIME_FAR };
        let patience = towards.tx.rtt().srtt().map_or(ANSWER_TIME, |rtt| rtt * 2);
        let (asked_at, highest) = (towards.tx.asked_at(), towards.buffer.highest());
        let b = &mut towards.beyond;
        if b.count == 0 || s.ack.before(b.ack) {
            *b = Beyond { first_at: cx.now, asked_at: b.asked_at, ..Beyond::default() };
        }
        b.note_asked(asked_at);
        *b = Beyond { count: b.count.saturating_add(1), newest_at: cx.now, ack: s.ack, exact, highest, ..*b };
        let again = b.count >= REPEATED_EXACT;
        let asked = b.asked_since().is_some_and(|at| exact || cx.now.since(at) >= patience);
        let repeated =
            exact && b.count >= REPEATED_EXACT || b.count >= REPEATED && cx.now.since(b.first_at) >= lasting;
        match (asked && repeated, real) {
            (true, true) => AckKind::Certain,
            (true, false) => AckKind::AllSent,
            // One guess among all sequence numbers hits the next one. It must not teach a timestamp
            // as well.
            (false, _) => AckKind::Doubtful { exact, repeated: near && again },
        }
    }

    /// What the host acknowledges its source has sent, by the source's own numbers, though not this
    /// way. Its segment repeats old numbers, so it is asked: the answer has the exact one. Nothing
    /// else may ever draw that from it.
    pub(crate) fn ask_about_beyond(&mut self, cx: &mut Cx<'_>, from: Side) {
        let towards = self.relays.get(from.other());
        let b = towards.beyond;
        let lately = b.asked_at.is_some_and(|at| cx.now.since(at) < ASK_AGAIN);
        let open = b.count > 0 && !b.exact && !lately && towards.tx.asked_at() <= b.first_at;
        if !open
            || !towards.has_source_sent(b.ack)
            || !self.answers.may_answer(cx.now)
            || !cx.challenges.take()
        {
            return;
        }
        self.relays.get_mut(from.other()).tx.ask();
    }

    /// Numbers of another connection on this 4-tuple, whose timestamps and header fields are not
    /// this one's.
    fn is_stranger(&self, from: Side, s: &TcpSegment) -> bool {
        let r = &*self.relays;
        let far = |a: SeqNum, b: SeqNum| u64::from(a.diff(b).unsigned_abs()) > STRANGER_BYTES;
        far(s.seq, r.get(from).rcv_nxt()) || far(s.ack, r.get(from.other()).tx.snd_nxt())
    }

    /// Its sequence number is one that the host could be sending now: the next one, or further in
    /// the window that it was shown.
    fn is_next_in_window(&self, from: Side, s: &TcpSegment) -> bool {
        let nxt = self.relays.get(from).rcv_nxt();
        self.is_in_window(from, s) && (s.seq + 1).after_eq(nxt)
    }

    /// A host whose acknowledgement is in order shows how far it has sent. Behind the end of its
    /// stream there is nothing.
    pub(crate) fn note_source(&mut self, from: Side, s: &TcpSegment) {
        self.relays.get_mut(from).note_source_sent(s.end_seq());
    }

    /// The source goes on exactly where the destination says that it stands, and none of what lies
    /// between has come this way since: it went round us.
    pub(crate) fn confirm(&mut self, cx: &mut Cx<'_>, source: Side, s: &TcpSegment) {
        let relay = self.relays.get(source);
        let b = relay.beyond;
        let fresh = b.count > 0 && b.exact && cx.now.since(b.newest_at) <= FRESH;
        let fits = s.seq == b.ack && b.ack.after(relay.buffer.end()) && b.highest == relay.buffer.highest();
        let goes_on = relay.rx.fin_at().is_none() && !relay.is_frozen();
        if fresh && fits && goes_on && relay.has_sent_all() {
            self.believe(cx, source.other(), b.ack);
        }
    }

    /// The host has everything before `ack`, part of which went round us.
    pub(crate) fn believe(&mut self, cx: &mut Cx<'_>, from: Side, ack: SeqNum) {
        cx.happened(self.legs, Event::Bypassed);
        let r = &mut *self.relays;
        let towards = r.get_mut(from.other());
        towards.beyond = Beyond::default();
        towards.note_bypass(true);
        towards.forget_timeouts();
        towards.believed = Some(Belief { upto: ack, at: cx.now, against: 0 });
        if towards.frozen_at().is_some_and(|f| ack.after(f)) {
            // Draining: the host's own word is passed on from here on.
            towards.note_beyond(ack);
            towards.buffer.release(cx.pool, towards.buffer.highest());
            towards.settle_fin();
            let held = towards.rcv_nxt();
            towards.tx.skip_to(cx.now, held);
            return;
        }
        // Who acknowledges exactly one number more than a FIN's has that FIN.
        let claimed = towards.rx.fin_claimed().filter(|f| ack == *f + 1);
        let data_end = towards.rx.fin_at().filter(|f| ack.after(*f)).or(claimed).unwrap_or(ack);
        towards.buffer.release(cx.pool, data_end);
        if towards.settle_fin() {
            towards.note_fin(cx.now);
        }
        towards.tx.skip_to(cx.now, ack);
    }

    /// The host stands by less than what was believed of it, also after it has been asked. A
    /// gateway that it is known to have speaks for itself alone.
    pub(crate) fn contradicts_itself(&mut self, cx: &Cx<'_>, from: Side, ack: SeqNum) -> bool {
        let of_gateway = self.legs.get(from).peer.is_speaking();
        let r = &mut *self.relays;
        let towards = r.get_mut(from.other());
        let Some(belief) = towards.believed.as_mut() else { return false };
        if ack.after_eq(belief.upto) {
            towards.believed = None;
            return false;
        }
        let asked = towards.tx.asked_at() > belief.at;
        if asked && !of_gateway && cx.now.since(belief.at) >= CONTRADICTION_TIME {
            belief.against = belief.against.saturating_add(1);
        }
        belief.against >= CONTRADICTIONS
    }
}

impl Relay {
    /// How old an acknowledgement by the destination is, and how old it may be, bytes: MAX.SND.WND
    /// (RFC 5961 section 5). What a gateway there has acknowledged, the host behind it need not
    /// have. So it counts from what is known of the host, by which custody is bounded on every leg.
    pub(crate) fn age_and_reach(&self, ack: SeqNum) -> (u64, u64) {
        let una = self.far_acked().min(self.tx.snd_una());
        let age = if ack.before(una) { u64::from(una.since(ack)) } else { 0 };
        (age, self.tx.window_max_bytes().max(OLD_ACK_SLACK))
    }

    /// Nothing that is held in order waits to be sent for the first time.
    fn has_sent_all(&self) -> bool {
        self.tx.snd_nxt().after_eq(self.buffer.end())
    }
}
