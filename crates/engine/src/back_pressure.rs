//! Back-pressure of a relay: which policy bounds it, and what that allows now.

use farlink_wire::{Duration, SeqNum};

use crate::buffer::Grain;
use crate::config::{Config, FlowControl};
use crate::cx::Cx;
use crate::hosts::Hosts;
use crate::leg::Leg;
use crate::link::{Asking, Link, Links, Stage};
use crate::regulator::{Look, SPARE_SEGMENTS};
use crate::relay::Relay;
use crate::room;
use crate::side::Side;
use crate::split::Split;

/// Quarters of a segment that a relay may hold however little there is for it: two segments, and
/// what is left of another that did not fit in the link's.
const LEAST_QUARTERS: u32 = 9;
/// Relays that may hold less than this pack it closely.
const SMALL_BELOW_BYTES: u32 = 8 << 20;
/// With more connections than this, what is so small is packed closely everywhere.
const MANY_FLOWS: usize = 64;
const MANY_BYTES: u32 = 1460;
const FINE_BELOW_BYTES: u32 = 32 << 10;
/// With a smaller share of the pool than this it is not spent on large blocks, which are seldom
/// full.
const SMALL_SHARE_BYTES: u32 = 256 << 10;

/// Whether there is room for a source that has none, and of which nothing is held, is looked at so
/// often.
const LOOKS_AGAIN: Duration = Duration::from_millis(200);

/// What a relay holds at most between two legs that are no declared links.
const ORDINARY_RELAY_BYTES: u32 = 4 << 20;
/// What such a relay may hold at first: as much as Linux hosts show.
const START_BYTES: u32 = 64 << 10;
/// Into a link whose rate nobody knows it may hold so many congestion windows, or its part of so
/// many bytes, if that is more.
const UNKNOWN_WINDOWS: u64 = 4;
const UNKNOWN_BYTES: u64 = 16 << 20;
/// A fast ordinary leg at the start, bytes per millisecond: 100 Mbit/s.
const ORDINARY_BYTES_PER_MS: u128 = 12_500;
/// What connections may hold in sum, at the start, as a part (one over this) of the pool, and the
/// least of each.
const START_PARTS: usize = 16;
const START_LEAST_BYTES: u32 = 16 << 10;

impl Relay {
    /// Bytes that it holds, but for the second, which only wait behind a repetition: they keep no
    /// link full, and need not cross it any more.
    fn held_bytes(&self) -> (u32, u32) {
        let waiting = u32::try_from(self.tx.board().sacked_bytes()).unwrap_or(u32::MAX);
        ((self.buffer.len() + self.buffer.early_bytes()).saturating_sub(waiting), waiting)
    }

    /// The source is promised what the congestion window leaves, and so never fills it. Where that
    /// is all that holds the source, the window is used, and may grow.
    fn hold_source(&mut self, look: &Look) {
        let appetite = self.appetite.get_or_insert_default();
        let is_whole = appetite.is_whole(look, self.buffer.highest(), self.rx.edge());
        let by_window = look.cwnd < self.tx.window_bytes() && look.cwnd < u64::from(look.limit);
        self.tx.hold_source(is_whole && by_window);
    }

    /// A gateway that was told a soft window, or is to be told the first, hears of the next:
    /// nothing else may be under way from it that would be acknowledged.
    fn owe_soft_window(&mut self, look: &Look, speaking: bool) {
        if !speaking || self.rx.fin_at().is_some() || self.is_frozen() {
            return;
        }
        let told = *self.rx.told_soft_edge;
        let soft = self.read_rate.soft_window(look).map(|bytes| self.rcv_nxt() + bytes);
        match (told, soft) {
            (None, Some(_)) => self.rx.owe_now(),
            (Some(told), Some(soft)) if soft.after_eq(told + 2 * look.segment) => {
                self.rx.owe_by(look.now + look.ack_delay);
            }
            (Some(_), None) => self.rx.owe_by(look.now + look.ack_delay),
            _ => {}
        }
    }
}

impl Split<'_> {
    /// After any event: the relays' policies look at them.
    pub fn regulate(&mut self, cx: &Cx<'_>) {
        let policy = cx.config.flow_control;
        if policy == FlowControl::Fixed && !cx.config.soft_window {
            return;
        }
        for from in [Side::A, Side::B] {
            let speaking = cx.config.soft_window && self.legs.get(from).peer.is_speaking();
            let is_looked_at = policy != FlowControl::Fixed;
            if !speaking && !is_looked_at {
                // Nobody is told how the destination takes it, and the policy does not go by it.
                continue;
            }
            let Some(look) = self.look(cx, from) else { return };
            let r = &mut *self.relays;
            let relay = r.get_mut(from);
            if policy == FlowControl::Adaptive {
                relay.adaptive.update(&look);
            }
            if policy == FlowControl::SendWindow {
                relay.hold_source(&look);
            }
            relay.read_rate.update(&look);
            relay.owe_soft_window(&look, speaking);
        }
    }

    pub(crate) fn look(&self, cx: &Cx<'_>, from: Side) -> Option<Look> {
        let r = &*self.relays;
        let relay = r.get(from);
        let nxt = relay.rcv_nxt();
        let sent = relay.tx.snd_nxt().max(relay.tx.snd_una());
        let since = |a: SeqNum, b: SeqNum| if a.after(b) { a.since(b) } else { 0 };
        let upstream = self.round_trip(cx, from);
        let ack_delay = self.ack_interval(cx, from);
        Some(Look {
            now: cx.now,
            delivered: relay.tx.delivered_bytes(),
            in_flight: since(sent.min(relay.buffer.end()), relay.tx.snd_una()),
            queued: since(relay.buffer.end(), sent),
            send_window: relay.tx.cc().cwnd_bytes().min(relay.tx.window_bytes()),
            cwnd: relay.tx.cc().cwnd_bytes(),
            ssthresh: relay.tx.cc().ssthresh_bytes(),
            offered: since(relay.rx.edge(), nxt),
            upstream,
            downstream: relay.tx.rtt().srtt_or_default(),
            ack_delay,
            turn: self.ack_interval(cx, from.other()),
            segment: relay.rx.segment_bytes(),
            limit: relay.limit_bytes(),
            shared: cx.links.has_budget(self.legs.get(from.other()).out),
            losing: relay.tx.in_recovery(),
            timeouts: relay.timeouts(),
        })
    }

    /// Other bounds of the configuration are in force.
    pub(crate) fn limit_relays(&mut self, config: &Config, links: &Links) {
        let limits =
            [Side::A, Side::B].map(|from| (from, self.hosts().relay_limit(config, links, from.other())));
        let starts_whole = self.hosts().is_on_link();
        let holds_source = config.flow_control == FlowControl::SendWindow;
        let relays = &mut *self.relays;
        for (from, limit_bytes) in limits {
            relays.get_mut(from).set_limit(limit_bytes, starts_whole);
            if !holds_source {
                relays.get_mut(from).tx.hold_source(false);
            }
        }
    }

    /// The link brings more from this host than there is room for.
    pub(crate) fn make_room(&mut self, config: &Config, links: &Links, from: Side) {
        let limit_bytes = self.hosts().relay_limit(config, links, from.other());
        let starts_whole = self.hosts().is_on_link();
        let relay = self.relays.get_mut(from);
        relay.set_limit(limit_bytes.max(relay.limit_bytes()), starts_whole);
    }

    fn asking(&self, cx: &Cx<'_>) -> Asking {
        Asking { age: cx.now.since(self.began_at), handshake: self.handshake, half_open: cx.half_open }
    }

    /// Of so many bytes a source is shown no more than its window's field has units for.
    pub(crate) fn shown_room(&self, from: Side, bytes: u32) -> u32 {
        let shift = self.legs.get(from.other()).window_scale.min(14);
        bytes >> shift << shift
    }

    /// A source whose window has no room for a segment gets a larger one when those that have the
    /// room leave it, or are not coming, though nothing else happens on its connection until then.
    pub(crate) fn watch_room(&mut self, cx: &Cx<'_>) {
        let r = &*self.relays;
        let looks = cx.config.flow_control == FlowControl::Automatic;
        let is_closed = |from: &Side| {
            let relay = r.get(*from);
            let room = self.shown_room(*from, relay.rx.edge().diff(relay.rcv_nxt()).max(0).unsigned_abs());
            room < relay.rx.segment_bytes() && !relay.is_frozen() && relay.rx.fin_at().is_none()
        };
        let again = |from: Side| {
            let expected = || cx.links.looks_again(cx.now, self.legs.get(from.other()).out, self.asking(cx));
            // What it holds leaves, and that is looked at.
            let starved = (!r.get(from).holds()).then(|| cx.now + LOOKS_AGAIN);
            looks.then(expected).flatten().into_iter().chain(starved).min()
        };
        let room_at = [Side::A, Side::B].into_iter().filter(is_closed).filter_map(again).min();
        self.relays.room_at = room_at;
    }

    /// How long acknowledgements wait between gateways on the leg to a host; zero where a host
    /// acknowledges.
    fn ack_interval(&self, cx: &Cx<'_>, to: Side) -> Duration {
        if self.legs.get(to).peer.is_speaking() { self.ack_policy(cx, to).longest() } else { Duration::ZERO }
    }

    /// How closely the relay of a host's data packs what it may hold.
    #[must_use]
    pub fn grain(&self, cx: &Cx<'_>, from: Side, limit: u32, bytes: u32) -> Grain {
        let out = self.legs.get(from.other()).out;
        let shared = cx.config.flow_control == FlowControl::Automatic && cx.links.has_budget(out);
        match limit {
            // Many connections with a request each.
            _ if cx.flows_split > MANY_FLOWS && bytes <= MANY_BYTES => Grain::Fine,
            _ if !shared => {
                let share = room::share(cx.pool, cx.flows_split, self.hosts().is_on_link());
                if share < SMALL_SHARE_BYTES { Grain::Small } else { Grain::Large }
            }
            0..FINE_BELOW_BYTES => Grain::Fine,
            FINE_BELOW_BYTES..SMALL_BELOW_BYTES => Grain::Small,
            _ => Grain::Large,
        }
    }

    /// Round-trip time of the leg to a host: of the link, where it is declared, or as measured.
    pub(crate) fn round_trip(&self, cx: &Cx<'_>, to: Side) -> Option<Duration> {
        let leg = self.legs.get(to);
        let link = cx.links.get(leg.out).and_then(Link::rtt_in_force);
        let measured = || self.relays.get(to.other()).tx.rtt().srtt();
        link.or_else(measured).or(leg.srtt())
    }

    /// Bytes that may be held for a gateway that has said how much it will be able to pass on:
    /// that, a quarter more, and some segments. What goes beyond would only wait, and others need
    /// the room.
    fn within_soft_window(&self, cx: &Cx<'_>, from: Side, segment: u32) -> u32 {
        let edge = self.legs.get(from.other()).soft_edge().filter(|_| cx.config.soft_window);
        let Some(edge) = edge else { return u32::MAX };
        let within = edge.diff(self.relays.get(from).tx.snd_una()).max(0).unsigned_abs();
        within.saturating_add(within / 4).saturating_add(SPARE_SEGMENTS * segment)
    }

    /// Bytes that the relay of a host's data into a link may hold so that a gateway can be stopped:
    /// what the link carries soon. `None`: it leads into no link.
    fn drainable(&self, cx: &Cx<'_>, from: Side) -> Option<u32> {
        let relay = self.relays.get(from);
        let out = self.legs.get(from.other()).out;
        // What routers say keeps the link full is the pool's to bound.
        let link = cx.links.get(out).filter(|link| !link.is_controlled_by_routers())?;
        let (held, waiting) = relay.held_bytes();
        let more = cx.links.arriving(cx.now, out, self.asking(cx));
        let source = self.round_trip(cx, from).unwrap_or_default();
        // What has crossed the link stays here until it is acknowledged.
        let acks = match self.legs.get(from.other()).peer.is_marked() {
            true => link.acks_late_by(),
            false => self.hosts().acks_wait(cx.links, from.other()) * 2,
        };
        let beside = source + acks;
        let stage = match relay.has_begun() {
            true if relay.tx.delivered_bytes() == 0 => Stage::Begins(held),
            true => Stage::Goes(held),
            false => Stage::Silent,
        };
        let by_rate = cx.links.drainable(out, stage, more, beside);
        let by_window = || {
            let part = UNKNOWN_BYTES / cx.links.sharers_with(out, more);
            let windows = relay.tx.cc().cwnd_bytes().saturating_mul(UNKNOWN_WINDOWS);
            u32::try_from(windows.max(part)).unwrap_or(u32::MAX).max(START_BYTES)
        };
        Some(by_rate.unwrap_or_else(by_window).saturating_add(waiting))
    }

    /// Bytes of a source that may be under way past a relay that drains: what its destination
    /// takes, and no more than its part of what fills the link. What is held is to leave first, and
    /// the source has a window that it has tried on its own network only.
    pub(crate) fn passes_bytes(&self, cx: &Cx<'_>, from: Side) -> u32 {
        let far = self.legs.get(from.other());
        let cwnd = || u32::try_from(self.relays.get(from).tx.cc().cwnd_bytes()).unwrap_or(u32::MAX);
        let fills = cx.links.get(far.out).map(|_| cx.links.equal_share(far.out, 0).unwrap_or_else(cwnd));
        let least = LEAST_QUARTERS * self.relays.get(from).rx.segment_bytes() / 4;
        far.window_bytes().min(fills.map_or(u32::MAX, |bytes| bytes.max(least)))
    }

    /// Bytes that the relay of a host's data may hold now.
    #[must_use]
    pub fn held_limit(&self, cx: &Cx<'_>, from: Side) -> u32 {
        let r = &*self.relays;
        let relay = r.get(from);
        let limit = relay.limit_bytes();
        let segment = relay.rx.segment_bytes().max(relay.tx.mss());
        let least = (LEAST_QUARTERS * segment / 4).min(limit);
        match cx.config.flow_control {
            FlowControl::Fixed => {
                let drains = self.drainable(cx, from).map_or(limit, |bytes| bytes.clamp(least, limit));
                drains.min(relay.earned_bytes())
            }
            FlowControl::SendWindow => {
                let window = relay.tx.cc().cwnd_bytes().min(relay.tx.window_bytes());
                u32::try_from(window).unwrap_or(u32::MAX).clamp(least, limit)
            }
            FlowControl::Adaptive => {
                self.look(cx, from).map_or(limit, |look| relay.adaptive.limit(&look)).max(least)
            }
            FlowControl::Automatic => {
                let Some(look) = self.look(cx, from) else { return limit };
                // Where its window is not waited for, what it takes is what the link carries.
                let ahead = relay.tx.goes_ahead();
                let by_reading = if ahead { limit } else { relay.read_rate.limit(&look) };
                let (held, waiting) = relay.held_bytes();
                let out = self.legs.get(from.other()).out;
                let arriving = cx.links.arriving(cx.now, out, self.asking(cx));
                let mut share = cx.links.share(out, held, arriving);
                if !relay.has_begun() {
                    // It gets its part at once; those that hold more have to wait.
                    share = cx.links.equal_share(out, arriving);
                }
                let by_reading = by_reading.min(self.within_soft_window(cx, from, segment));
                share.map_or(by_reading, |s| s.saturating_add(waiting).min(by_reading)).clamp(least, limit)
            }
        }
    }
}

impl Hosts<'_> {
    /// Eight times the bandwidth-delay product where a link is known, within the configured bound,
    /// or twice the product where that is more and the bound is the usual one: repetitions that are
    /// lost, too, keep most of it waiting. No more out of a link, of what it carries in a round
    /// trip of the whole way: hosts take acknowledgements as old as their windows (RFC 5961
    /// section 5). And twice what it carries while acknowledgements wait for a slow way back: so
    /// much is under way then (`known_rate.rs` of `cc`).
    pub(crate) fn relay_limit(&self, config: &Config, links: &Links, to: Side) -> u32 {
        let max = config.limits.relay_bytes;
        let measured = |side: Side| {
            let leg = self.legs.get(side);
            leg.srtt().or(leg.handshake_rtt())
        };
        let link =
            |side: Side| links.get(self.legs.get(side).out).filter(|l| l.rate_in_force_bps().is_some());
        let known = match (link(to), link(to.other())) {
            (Some(into), _) => into.rate_in_force_bps().zip(into.rtt_in_force().or(measured(to))),
            (None, Some(from)) => {
                let over = from.rtt_in_force().max(measured(to.other()));
                let behind = measured(to).unwrap_or_default();
                let behind = behind + from.our_acks_wait(self.ack_bytes(to.other()));
                from.room_for_bps().zip(over.map(|over| over + behind))
            }
            (None, None) => None,
        };
        let Some((rate, rtt)) = known else {
            return if self.is_on_link() { max } else { max.min(ORDINARY_RELAY_BYTES) };
        };
        let carries = |time: Duration| u128::from(rate) * time.as_millis() / 8_000;
        let product = u64::try_from(carries(rtt)).unwrap_or(u64::MAX);
        let most = config.limits.relay_bytes_over(product);
        let wanted = carries(rtt) * 8 + carries(self.acks_wait(links, to)) * 2;
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(max.min(256 << 10), most)
    }

    /// What a relay of host A's data, which nobody has sent yet, will be able to hold at once,
    /// beside all others that are about to begin; `None`: who bounds it cannot say yet.
    pub(crate) fn first_bytes(&self, cx: &Cx<'_>) -> Option<u32> {
        let limit = self.relay_limit(cx.config, cx.links, Side::B);
        let equal = match cx.config.flow_control {
            FlowControl::Fixed => {
                let drains = cx.links.drainable(self.legs.b.out, Stage::Silent, cx.half_open, Duration::ZERO);
                Some(self.start_bytes(cx, limit).min(drains.unwrap_or(u32::MAX)))
            }
            FlowControl::Automatic => cx.links.equal_share(self.legs.b.out, cx.half_open),
            FlowControl::SendWindow | FlowControl::Adaptive => return None,
        };
        let flows = cx.flows_split.saturating_add(cx.half_open);
        let share = room::share(cx.pool, flows, self.is_on_link());
        Some(limit.min(equal.unwrap_or(u32::MAX)).min(share))
    }

    /// What a relay may hold of a source before its destination has taken much: all of it on a way
    /// with a declared link, and what an ordinary fast one carries in a round trip elsewhere, so
    /// that destinations that read nothing cost little.
    pub(crate) fn start_bytes(&self, cx: &Cx<'_>, limit_bytes: u32) -> u32 {
        if self.is_on_link() {
            return limit_bytes;
        }
        let of = |leg: &Leg| leg.handshake_rtt().or(leg.srtt()).unwrap_or_default();
        let round_trip = of(&self.legs.a) + of(&self.legs.b);
        let bytes = ORDINARY_BYTES_PER_MS.saturating_mul(round_trip.as_millis());
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(START_BYTES);
        let part = cx.pool.limit_bytes() / START_PARTS / (cx.flows_split + 1);
        let part = u32::try_from(part).unwrap_or(u32::MAX).max(START_LEAST_BYTES);
        bytes.min(part).min(limit_bytes)
    }
}
