//! Which leg has which policy of acknowledgements (`ack_policy.rs`).

use farlink_wire::{Duration, Instant, TcpSegment};

use crate::ack_policy::AckPolicy;
use crate::cx::Cx;
use crate::link::Link;
use crate::peer::{Capability, Peer};
use crate::relay::Relay;
use crate::side::Side;
use crate::split::Split;

/// A packet takes less than this on a line of 9,600 bit/s.
const FAR_TOLD_AFTER: Duration = Duration::from_secs(2);

/// So much of a stream is its beginning: a few initial windows (RFC 6928).
const BEGINNING_BYTES: u64 = 65_536;

/// What is less than two segments is told to a gateway whose source waits for it after so long: the
/// next acknowledgement may take it along.
const AWAITED_AFTER: Duration = Duration::from_millis(2);

impl Relay {
    /// The far host has more than before. The gateway upstream lets the flow sleep, and counts
    /// custody, by what the far host has: that may wait. Where that one promises nothing, its
    /// source waits for this word, and hears as many acknowledgements as the far host sends.
    pub(crate) fn owe_far_word(&mut self, now: Instant, upstream: Peer, usual: Duration) {
        let (told, far) = (*self.rx.far_told, self.far_acked());
        if told == Some(far) {
            return;
        }
        if upstream.speaks(Capability::Custody) {
            let is_much = told.is_none_or(|told| far.after(told + self.rx.segment_bytes()));
            self.rx.owe_by(if is_much { now } else { now + AWAITED_AFTER });
        } else if self.buffer.is_empty() {
            self.rx.owe_by(now + usual);
        }
    }
}

impl Split<'_> {
    /// How soon this host, or the gateway that speaks on its leg, is sent acknowledgements.
    #[must_use]
    pub fn ack_policy(&self, cx: &Cx<'_>, to: Side) -> AckPolicy {
        let is_gateway = self.legs.get(to).peer.is_speaking();
        let rtt = if is_gateway { self.leg_rtt(cx, to) } else { None };
        let policy = match self.relays.get(to).rx.wishes().sum() {
            Some(_) => AckPolicy::to_explicit_gateway,
            None if self.legs.get(to).is_explicit() => AckPolicy::to_seeking_gateway,
            None => AckPolicy::to_gateway,
        };
        let policy = rtt.and_then(policy).unwrap_or(AckPolicy::Host(cx.config.timers.delayed_ack));
        let policy = rtt.map_or(policy, |rtt| self.within_window(cx, to, rtt, policy));
        let is_of_gateway = matches!(policy, AckPolicy::Gateway(_));
        if is_of_gateway && self.begins_by_acks(cx, to) { policy.at_beginning() } else { policy }
    }

    /// What the far host has is told with an acknowledgement that leaves anyway, else after so
    /// long. While the stream goes on the next segment has one. On a slow line it comes long after
    /// the far host has taken the one before.
    pub(crate) fn far_told_after(&self, usual: Duration, to: Side) -> Duration {
        if self.relays.get(to).goes_on() { usual.max(FAR_TOLD_AFTER) } else { usual }
    }

    /// A source to which nothing is promised repeats the oldest segment that a gateway further on
    /// has taken: it waits for the far host's word, and that may have been lost. The gateway is
    /// asked then, unless it was heard just now, and not only when a timer comes to it that backs
    /// off, however often a link winks.
    pub(crate) fn hasten_far_word(&mut self, now: Instant, from: Side, s: &TcpSegment) {
        let to = self.legs.get(from.other());
        let relay = self.relays.get(from);
        let far = relay.far_acked();
        let is_oldest = s.seq.before_eq(far) && s.end_seq().after(far) && far.before(relay.tx.snd_una());
        let is_untold = relay.tx.board().is_empty() && !relay.is_busy();
        let is_quiet = now.since(to.heard_at()) >= relay.tx.rto() / 4;
        if !self.binds() && to.peer.is_heard() && is_oldest && is_untold && is_quiet {
            self.relays.get_mut(from).tx.ask();
        }
    }

    /// A gateway that does not know the rate of its link begins as a host does: acknowledgements
    /// open its window. Where a rate is declared here, one is there, too, as a rule.
    fn begins_by_acks(&self, cx: &Cx<'_>, to: Side) -> bool {
        let relay = self.relays.get(to);
        let came_bytes = relay.tx.delivered_bytes() + u64::from(relay.buffer.len());
        let knows = |link: &Link| link.rate_in_bps().is_some() || link.is_rate_declared();
        came_bytes <= BEGINNING_BYTES && !cx.links.get(self.legs.get(to).out).is_some_and(knows)
    }

    /// A source has no more under way than its window can say. Where the link brings more in a
    /// round trip, what acknowledgements wait comes on top of each.
    fn within_window(&self, cx: &Cx<'_>, to: Side, rtt: Duration, policy: AckPolicy) -> AckPolicy {
        let window_bytes = 65_535_u64 << self.legs.get(to.other()).window_scale;
        let often = policy.by_window(rtt, window_bytes);
        if often == policy {
            return policy;
        }
        let brings_bps = cx.links.get(self.legs.get(to).out).and_then(Link::brings_bps);
        let waiting = rtt + policy.longest();
        let bits = u128::from(brings_bps.unwrap_or(0)) * waiting.as_nanos() / 1_000_000_000;
        if bits > u128::from(window_bytes * 8) { often } else { policy }
    }

    /// The round trip of the leg towards a host, declared or measured. The shortest one counts:
    /// where little is sent, the only sample may have waited for a link. A gateway is at the other
    /// end of the link, so what is known of that stands for what nobody has measured yet.
    pub(crate) fn leg_rtt(&self, cx: &Cx<'_>, to: Side) -> Option<Duration> {
        let leg = self.legs.get(to);
        let link = cx.links.get(leg.out);
        let measured = || {
            let shortest = self.relays.get(to.other()).tx.shortest_rtt();
            leg.handshake_rtt().into_iter().chain(shortest).min()
        };
        let declared = link.and_then(Link::declared_rtt);
        declared.or_else(measured).or_else(|| link.and_then(Link::rtt_in_force))
    }

    /// The same for this segment of its own.
    pub(crate) fn policy_for(&self, cx: &Cx<'_>, from: Side, s: &TcpSegment) -> AckPolicy {
        if self.binds() {
            return self.ack_policy(cx, from);
        }
        if self.tells_held(cx.links, from) {
            return AckPolicy::of_held_to_gateway(self.leg_rtt(cx, from).unwrap_or_default());
        }
        let relay = self.relays.get(from);
        let (nxt, end) = (relay.rcv_nxt(), s.end_seq());
        let goes_on = s.seq.before_eq(nxt) && end.after(nxt);
        let far_acked = relay.far_acked();
        let has_it = far_acked.after_eq(end.min(nxt));
        AckPolicy::Silent { is_answered: !goes_on && (has_it || self.is_calmed(cx, from)) }
    }
}
