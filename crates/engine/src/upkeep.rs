//! What time brings to a split connection: its deadlines, and what happens when they pass; ICMP and
//! link events.

use core::net::IpAddr;

use farlink_wire::icmp::{IcmpKind, InnerTcp};
use farlink_wire::{Duration, IcmpError, Instant, PacketBuf, TcpSegment};

use crate::config::{Class, Config};
use crate::cx::Cx;
use crate::due::{Deadline, Due, Earliest};
use crate::event::Event;
use crate::explicit::tell_trust;
use crate::filled;
use crate::leg::Leg;
use crate::link::{Link, Links, are_apart};
use crate::net::Way;
use crate::path_mtu::Told;
use crate::reach::OLD_ACK_SLACK;
use crate::ready::Wants;
use crate::record::{RECORD_STALE_BYTES, Record};
use crate::relay::Relay;
use crate::relays::Over;
use crate::sender::Question;
use crate::side::{Pair, Side};
use crate::split::Split;

/// The least that silence makes packets (RFC 791 has 68 for IPv4; RFC 8200 section 5 for IPv6).
const MTU_MIN_V4: u32 = 296;
const MTU_MIN_V6: u32 = 1280;
/// Copies are sent early only where the link holds so much: four packets.
const REPEATED_FROM_BYTES: u128 = 6_000;

impl Split<'_> {
    /// What it wants to send towards a host now.
    #[must_use]
    pub fn wants(&self, cx: &Cx<'_>, to: Side) -> Option<Wants> {
        let r = &*self.relays;
        if self.relays.is_reset_by(to) {
            return None;
        }
        let outbound = r.get(to.other());
        let may_speak = outbound.tx.asks_link() || !self.is_hushed(cx.links, to);
        let rx = &r.get(to).rx;
        if rx.must_tell_of_early(cx.now) {
            // Data would carry the acknowledgement, but not what is held above the hole.
            return Some(self.ack_wish(to));
        }
        if may_speak && outbound.tx.is_ready(cx.now, &outbound.supply()) {
            return Some(Wants::Data(self.class_towards(cx, to)));
        }
        if self.owes_ack(cx, to) {
            return Some(self.ack_wish(to));
        }
        self.wants_repeat(cx, to)
    }

    /// Whom an acknowledgement is for that goes to a host or to the gateway before it.
    fn ack_wish(&self, to: Side) -> Wants {
        if self.legs.get(to).peer.is_speaking() { Wants::GatewayAck } else { Wants::Ack }
    }

    /// What is under way to a host may be sent again, where the link is idle.
    #[must_use]
    pub fn wants_repeat(&self, cx: &Cx<'_>, to: Side) -> Option<Wants> {
        let tx = &self.relays.get(to.other()).tx;
        let may = tx.is_early_ready(cx.now) && self.may_repeat_early(cx, to) && !self.is_hushed(cx.links, to);
        may.then_some(Wants::Repeat)
    }

    /// On a link of our own whose idle time is known, where something is lost now and then: towards
    /// a gateway, or towards a host that tells what it has twice, as long as nothing speaks of a
    /// bottleneck on the way to it. Not where the link holds next to nothing: there a loss costs no
    /// more than its copies. Where nothing but a late handshake tells of the link, a request waits
    /// there already.
    #[must_use]
    pub fn may_repeat_early(&self, cx: &Cx<'_>, to: Side) -> bool {
        let leg = self.legs.get(to);
        let tx = &self.relays.get(to.other()).tx;
        let holds = |rate: u64, rtt: Duration| u128::from(rate) * rtt.as_nanos() / 8_000_000_000;
        let Some(link) = cx.links.get(leg.out).filter(|link| link.may_copy(cx.now)) else { return false };
        if tx.cc().kind() == farlink_cc::Kind::Xcp {
            // What is not used of the allowance may be of use to others: losses must be worth it.
            return tx.cc().copies() != farlink_cc::Copies::None && link.is_known_to_lose();
        }
        // Of the link: all that this connection has sent may have waited.
        let rtt = link.declared_rtt().or(link.measured_rtt()).or(tx.shortest_rtt());
        let known = link.rate_in_force_bps().zip(rtt);
        // Each copy is acknowledged, too, by a link that has no room for that.
        let is_starved = !self.hosts().acks_wait(cx.links, to).is_zero();
        let begins = !leg.peer.is_marked() && tx.delivered_bytes() == 0;
        let waits = begins && leg.handshake_rtt().is_some_and(|took| link.stood_before(took));
        (leg.peer.is_marked() || self.agreed.sack)
            && !is_starved
            && !waits
            && link.is_repeating_worth()
            && tx.cc().copies() != farlink_cc::Copies::None
            && known.is_some_and(|(rate, rtt)| holds(rate, rtt) >= REPEATED_FROM_BYTES)
    }

    /// The class of what is sent next to a host: by its rule, else by the DSCP of its source's
    /// newest packet, since programs change theirs in the middle of a connection. Data that the
    /// gateway before it could not pass on in time takes only what the rest leaves of the link.
    fn class_towards(&self, cx: &Cx<'_>, to: Side) -> Class {
        let class = self.class.unwrap_or(cx.config.dscps.of(self.legs.get(to.other()).dscp()));
        if !cx.config.soft_window {
            return class;
        }
        let tx = &self.relays.get(to.other()).tx;
        let beyond = self.legs.get(to).soft_edge().is_some_and(|edge| tx.snd_nxt().after_eq(edge));
        // With nothing under way nothing would bring a newer word: the last one may have been lost.
        if beyond && !tx.board().is_empty() && tx.board().lost_bytes() == 0 {
            Class::Background
        } else {
            class
        }
    }

    /// The next time at which something happens without a packet.
    #[must_use]
    pub fn deadline(&self, config: &Config, links: &Links) -> Option<Deadline> {
        let r = &*self.relays;
        let stays = self.stays_awake() || r.is_reset();
        let idle = (!stays).then(|| self.active_at + config.dormant_after(self.rule));
        let served_since = links.served_since();
        let give_up =
            |relay: &Relay| relay.waits_since.map(|at| at.max(served_since) + config.timers.user_timeout);
        Earliest::default()
            .and_of(r.a.tx.deadline())
            .and_of(r.b.tx.deadline())
            .and(Due::DelayedAck, r.a.rx.delayed_until())
            .and(Due::DelayedAck, r.b.rx.delayed_until())
            .and(Due::Dormancy, idle)
            .and(Due::Draining, r.lets_go_until())
            .and(Due::Reset, self.reset_deadline(config, links))
            .and(Due::Window, r.room_at)
            .and(Due::Fin, self.fin_deadline(Side::A))
            .and(Due::Fin, self.fin_deadline(Side::B))
            .and(Due::UserTimeout, give_up(&r.a))
            .and(Due::UserTimeout, give_up(&r.b))
            .and(Due::Answer, self.answer_due(links, Side::A))
            .and(Due::Answer, self.answer_due(links, Side::B))
            .and(Due::OutageLimit, self.gives_up_link_at(config, links, Side::A))
            .and(Due::OutageLimit, self.gives_up_link_at(config, links, Side::B))
            .deadline()
    }

    /// When what is held for a host is given up because its link stays away.
    fn gives_up_link_at(&self, config: &Config, links: &Links, to: Side) -> Option<Instant> {
        let is_busy = self.relays.get(to.other()).is_busy() && !self.relays.is_reset();
        if is_busy { self.outage_ends_at(config, links, to) } else { None }
    }

    /// When a source is let go whose FIN its destination has not acknowledged. Where nothing is
    /// promised its destination alone lets it go.
    fn fin_deadline(&self, from: Side) -> Option<Instant> {
        self.relays.get(from).fin_deadline().filter(|_| self.binds())
    }

    /// Keeps the timers that ask the next TCP where it stands: whether a gap is one for it, too,
    /// and how far the host behind it has come (a lost acknowledgement may have said so last).
    pub fn watch_holes(&mut self, now: Instant) {
        for (relay, _) in self.relays.each_mut() {
            relay.watch_far(now);
            // What is held and has not been sent asks for it, too.
            let untold = relay.far_waits.is_some() && relay.tx.board().is_empty() && !relay.is_busy();
            let hole = relay.waits_behind_hole() || untold;
            relay.tx.watch_hole(now, hole);
        }
    }

    /// What is owed and not sent, although nothing stands in its way, makes no progress either. No
    /// other timer would ever look at it.
    pub fn watch_unsent(&mut self, now: Instant, links: &Links) {
        let ending = self.relays.is_reset();
        for (relay, to) in self.relays.each_mut() {
            let closed = relay.tx.waits_for_window();
            let waits = relay.is_busy() && relay.tx.board().is_empty() && !closed && !ending;
            let down = links.is_away(self.legs.get(to).out);
            relay.waits_since = if waits && !down { relay.waits_since.or(Some(now)) } else { None };
        }
    }

    /// Timers that are due towards a host wait where what they wait for may only be late.
    fn wait_where_it_is_late(&mut self, cx: &Cx<'_>, from: Side) {
        let Leg { out, peer, addr, .. } = *self.legs.get(from.other());
        let tx = &mut self.relays.get_mut(from).tx;
        let link = cx.links.get(out);
        // Questions send the oldest segment again and again: timers that wait for the last of them
        // never expire, and packets are never made smaller.
        let is_asked = link.is_some_and(|link| link.is_silent_alone(addr));
        let is_said = link.is_some_and(Link::is_rate_declared);
        let line = link.filter(|_| !is_asked).and_then(|link| match is_said {
            true => Some((link.line(cx.now)?, tx.rtt().min_rtt())),
            false => Some((link.delivers(cx.now)?, Duration::ZERO)),
        });
        if let Some((newest, sooner)) = line {
            tx.wait_in_line(cx.now, newest, sooner);
        }
        tx.expect_of_link(link, peer.identity());
        if !is_asked {
            tx.wait_for_late_acks(cx.now);
        }
    }

    /// Its deadline has passed.
    pub fn on_timer(&mut self, cx: &mut Cx<'_>) {
        for side in [Side::A, Side::B] {
            if self.answer_due(cx.links, side.other()).is_some_and(|t| t <= cx.now) {
                self.miss_answer(cx, side.other());
            }
            let is_away = self.waits_for_link(cx.links, side.other());
            let fin_overdue = self.fin_deadline(side).is_some_and(|t| t <= cx.now);
            let r = &mut *self.relays;
            let relay = r.get_mut(side);
            if relay.rx.delayed_until().is_some_and(|t| t <= cx.now) {
                relay.rx.owe_now();
            }
            if fin_overdue {
                relay.stop_waiting_with_fin();
            }
            if is_away {
                relay.tx.put_off_timers(cx.now);
                continue;
            }
            let out = self.legs.get(side.other()).out;
            self.wait_where_it_is_late(cx, side);
            let relay = self.relays.get_mut(side);
            let rto = relay.tx.rto();
            let ran = rto.min(cx.now.since(relay.tx.progress_at()));
            let happened = relay.tx.on_timer(cx.now);
            if happened.recovery {
                cx.happened(self.legs, Event::Recovers(side.other()));
            }
            tell_trust(cx, self.legs, &mut relay.tx, side.other());
            if let Some(link) = cx.links.get_mut(out) {
                link.note_losses(0, happened.lost_bytes);
            }
            if happened.rto {
                cx.happened(self.legs, Event::TimedOut(side.other()));
                relay.note_timeout();
                if !self.legs.get(side.other()).is_direct() && !self.is_doubted(cx.links, side.other()) {
                    self.suspect_black_hole(cx.now, side.other());
                }
                self.pass_round(cx, side);
                self.ask_for_echo(cx.now, side);
                self.doubt_shim(cx, side.other());
                self.doubt_oversize(cx, side.other());
                self.ask_in_packets(side.other());
                self.doubt_link(cx, side.other(), ran);
            } else if happened.unproved || happened.lost_bytes > 0 {
                self.doubt_oversize(cx, side.other());
            } else if happened.silent {
                self.miss_word(cx, side.other(), rto);
            }
            self.on_mtu_probe(cx, side.other(), happened.mtu_probe);
        }
        self.give_up_if_stuck(cx);
        let idle = cx.now.since(self.active_at) >= cx.config.dormant_after(self.rule);
        if idle
            && !self.relays.is_draining()
            && !self.stays_awake()
            && !self.relays.is_reset()
            && self.relays.over().is_none()
        {
            self.relays.end(Over::Asleep);
        }
    }

    /// Something is held here, or by a gateway further on: the far host has not acknowledged all
    /// that was acknowledged here.
    fn holds_downstream(&self) -> bool {
        let r = &*self.relays;
        let behind = [&r.a, &r.b].into_iter().any(|r| r.far_acked().before(r.tx.snd_una()));
        self.relays.holds() || behind
    }

    /// Something is held downstream, or a link is asked for a host that asks whether the other one
    /// lives.
    fn stays_awake(&self) -> bool {
        let r = &*self.relays;
        self.holds_downstream() || r.a.tx.is_inquired() || r.b.tx.is_inquired()
    }

    /// Custody without progress is given up after the user timeout (RFC 5482).
    fn give_up_if_stuck(&mut self, cx: &mut Cx<'_>) {
        if self.relays.is_reset() {
            return;
        }
        let limit = cx.config.timers.user_timeout;
        // While the process stood still nobody was asked anything.
        let (now, served_since) = (cx.now, cx.links.served_since());
        let lasts = |at: Instant| now.since(at.max(served_since)) >= limit;
        let down =
            Pair { a: self.waits_for_link(cx.links, Side::A), b: self.waits_for_link(cx.links, Side::B) };
        let (binds, mut left_alone) = (self.binds(), false);
        for (relay, to) in self.relays.each_mut() {
            // A gateway that holds bytes for its host, which takes none of them: they are its own,
            // we hold nothing. Where nothing is promised they are the source's.
            let stands = relay.far_waits.is_some_and(|(_, since)| lasts(since));
            if stands && !down.get(to) && !relay.holds() {
                left_alone |= !binds;
                if binds {
                    relay.forget_far();
                }
            }
        }
        for (relay, to) in self.relays.each_mut() {
            // The gap is never filled: the source is gone, or goes another way. SACK binds nobody
            // (RFC 2018 section 8).
            let silent = lasts(self.legs.get(to.other()).heard_at());
            if relay.waits_behind_hole() && silent {
                relay.buffer.clear_early(cx.pool);
                relay.rx.forget_fin_claim();
            }
        }
        let r = &*self.relays;
        let stuck = [(&r.a, Side::B), (&r.b, Side::A)].into_iter().any(|(relay, to)| {
            if self.waits_for_link(cx.links, to) {
                return self.gives_up_link_at(cx.config, cx.links, to).is_some_and(|at| at <= cx.now);
            }
            // An outage that is over counts for nothing: a receiver could not answer what never
            // reached it.
            let silent = lasts(self.legs.get(to).heard_at().max(relay.tx.progress_at()));
            let outstanding = !relay.tx.board().is_empty() && relay.has_timed_out();
            let unanswered = relay.tx.is_unanswered();
            let unsent = relay.waits_since.is_some_and(lasts);
            // A gateway that holds all before it acknowledges a FIN when its host does: that host
            // may have a lot to take.
            let far_moved_at = relay.far_waits.map_or(Instant::ZERO, |(_, since)| since);
            let moved_at = relay.tx.progress_at().max(far_moved_at);
            (outstanding && lasts(moved_at)) || (unanswered && silent) || unsent
        });
        if stuck || left_alone {
            self.relays.end(self.given_up());
        }
    }

    /// The destination of what `from` has sent answers round us, as its other host shows: what is
    /// held is passed over blindly. Where that one drops the answers, since they acknowledge less
    /// than was acknowledged here, it shows nothing: then silence has to do.
    pub(crate) fn pass_round(&mut self, cx: &Cx<'_>, from: Side) {
        let far = self.legs.get(from.other());
        let is_guess = !far.is_direct();
        if is_guess && (matches!(far.out, Way::Link(_)) || !self.is_unheard(cx, from.other())) {
            return;
        }
        let relay = self.relays.get_mut(from);
        let supply = relay.supply();
        relay.tx.pass_blindly(&supply, is_guess);
    }

    /// Nothing is heard of what `from` has sent, and of `from` itself neither: it may wait for room
    /// here while the other host answers it round us. What it echoes of that host's timestamps
    /// tells, so it is asked.
    fn ask_for_echo(&mut self, now: Instant, from: Side) {
        let heard_at = self.legs.get(from).heard_at();
        if !self.agreed.timestamps {
            return;
        }
        let relay = self.relays.get(from);
        let unsent = relay.tx.has_new(&relay.supply());
        if unsent && now.since(heard_at) >= relay.tx.rtt().srtt_or_default() {
            self.relays.get_mut(from.other()).tx.ask();
        }
    }

    /// Repeated timeouts of large segments: perhaps only small ones get through, and nobody says
    /// so.
    fn suspect_black_hole(&mut self, now: Instant, to: Side) {
        let r = &*self.relays;
        let timeouts = r.get(to.other()).timeouts();
        // What was put together here of several may be larger than its host would have sent it.
        let seen_bytes = self.legs.get(to).seen_packet_bytes();
        let head_bytes = r.get(to.other()).tx.board().first_segment_bytes();
        let is_larger = head_bytes > self.hosts().payload_of(to, seen_bytes);
        let leg = self.legs.get_mut(to);
        let least = if leg.addr.is_ipv4() { MTU_MIN_V4 } else { MTU_MIN_V6 };
        if leg.path_mtu.on_timeout(now, (timeouts, is_larger.then_some(seen_bytes)), least) {
            match timeouts {
                // Much else may be the reason of one.
                1 => self.refit_segments(to),
                _ => self.apply_mtu(to),
            }
        }
    }

    /// Data has come from a host: segments to the other one are no larger than its own may be.
    pub(crate) fn see_size(&mut self, from: Side, s: &TcpSegment, packet: &PacketBuf) {
        let to = from.other();
        let shown = filled::shown_by(s, packet);
        if shown.is_some_and(|(bytes, has_more)| self.legs.get_mut(to).see_segment(bytes, has_more)) {
            self.refit_segments(to);
        }
    }

    /// Packets to a host may have another size than before; nothing in flight is lost by it.
    pub(crate) fn refit_segments(&mut self, to: Side) {
        let mss = self.hosts().segment_payload(to);
        self.relays.get_mut(to.other()).tx.set_mss_for_options(mss);
    }

    /// A segment that was larger than the others has arrived, or has been lost.
    pub(crate) fn on_mtu_probe(&mut self, cx: &mut Cx<'_>, to: Side, arrived: Option<bool>) {
        let Some(arrived) = arrived else { return };
        let leg = self.legs.get_mut(to);
        let larger = leg.path_mtu.on_probe(cx.now, arrived);
        self.remember_mtu(cx, to);
        if larger {
            self.refit_segments(to);
        }
    }

    /// Other connections with this host over the same link need not find it out.
    fn remember_mtu(&self, cx: &mut Cx<'_>, to: Side) {
        let leg = self.legs.get(to);
        if let Some(link) = cx.links.get_mut(leg.out) {
            link.clients_mut().note_mtu(cx.now, leg.addr, leg.path_mtu.found());
        }
    }

    fn apply_mtu(&mut self, to: Side) {
        let next = self.relays.get(to.other()).tx.snd_nxt();
        let leg = self.legs.get_mut(to);
        if leg.oversizing().is_in_use() {
            leg.oversizing_mut().on_smaller_packets(next);
        }
        let mss = self.hosts().segment_payload(to);
        self.relays.get_mut(to.other()).tx.set_mss(mss);
    }

    /// An ICMP error that quotes a segment from host `from`. Returns whether it was about a segment
    /// made here: it is the gateway's to digest then.
    pub fn on_icmp(&mut self, cx: &mut Cx<'_>, from: Side, e: &IcmpError, inner: &InnerTcp) -> bool {
        let (IcmpKind::FragmentationNeeded { mtu } | IcmpKind::PacketTooBig { mtu }) = e.kind else {
            return false;
        };
        let r = &*self.relays;
        let tx = &r.get(from).tx;
        let ours = inner.seq.after_eq(tx.snd_una()) && inner.seq.before(tx.snd_nxt());
        if !ours {
            return false;
        }
        let to = from.other();
        let leg = self.legs.get_mut(to);
        let told = Told::by_icmp(cx.now, mtu, leg.addr.is_ipv4(), inner.is_by_identification);
        let (shared_before, is_smaller) = (leg.path_mtu.found(), leg.path_mtu.told(told));
        if leg.path_mtu.found() != shared_before {
            self.remember_mtu(cx, to);
        }
        if is_smaller {
            self.apply_mtu(to);
        }
        true
    }

    /// The way towards some host is open again. Returns whether anything is to be sent again.
    ///
    /// `all_lost`: what was under way is known to be lost. After a silence that nobody has
    /// explained it may have arrived. `whose`: only towards this host.
    pub fn restart_legs(&mut self, now: Instant, way: Way, all_lost: bool, whose: Option<IpAddr>) -> bool {
        let mut any = false;
        for to in [Side::A, Side::B] {
            let is_its = whose.is_none_or(|host| !are_apart(host, self.legs.get(to).addr));
            if self.legs.get(to).out == way && is_its {
                self.hasten_reset(now, to);
                let is_exempt = self.is_exempt(to);
                let relay = self.relays.get_mut(to.other());
                any = true;
                if !all_lost && is_exempt && relay.tx.is_timed() {
                    // Who was no evidence of a silence has not waited for its end, and may have
                    // waited for nothing.
                    relay.tx.ask_link(Question::Segment);
                    continue;
                }
                // A host that was silent alone may be heard, and get nothing that is large.
                if whose.is_none() {
                    relay.forget_timeouts();
                }
                relay.waits_since = None;
                *relay.far_waits = relay.far_waits.map(|(at, _)| (at, now));
                if all_lost {
                    relay.tx.restart_after_outage(now);
                } else {
                    relay.tx.resume_after_silence(now);
                }
            }
        }
        any
    }

    /// The durable part.
    #[must_use]
    pub fn record(&self) -> Record {
        let (a, b) = (&self.legs.a, &self.legs.b);
        let reach = self.reach_bytes() + u64::from(RECORD_STALE_BYTES);
        Record {
            iface_a: a.came_by,
            iface_b: b.came_by,
            a: (a.addr, a.port),
            b: (b.addr, b.port),
            acked_by_a: self.relays.b.tx.snd_una(),
            acked_by_b: self.relays.a.tx.snd_una(),
            reach_bytes: u32::try_from(reach).unwrap_or(u32::MAX),
        }
    }

    /// How far from the next one expected the sequence numbers of this connection's segments can
    /// be.
    #[must_use]
    pub fn reach_bytes(&self) -> u64 {
        let r = &*self.relays;
        let shown = r.a.rx.window_shown_max().max(r.b.rx.window_shown_max());
        r.a.tx.window_max_bytes().max(r.b.tx.window_max_bytes()).max(u64::from(shown)) + OLD_ACK_SLACK
    }
}
