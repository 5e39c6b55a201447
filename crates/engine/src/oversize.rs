//! Segments that are larger than a packet, towards hosts whose acknowledgements have a starved
//! link to come back by (Hasegawa, section 3): each is acknowledged once, however large it is.
//!
//! Whether a host takes them, and whether fragments get to it, is tried out with a copy of what has
//! been sent already. A host that gets it tells so, because it has had those bytes: by a D-SACK
//! (RFC 2883), or where it speaks no SACK by a duplicate acknowledgement. So nothing is ever late
//! for it. What has been found out is remembered for the next connections.

use farlink_wire::{Duration, Instant, SackBlock, SeqNum};

use crate::cx::Cx;
use crate::initial_window::bytes_in;
use crate::link::{Links, Sizes};
use crate::oversizing::{Asked, Oversizing, Verdict};
use crate::scoreboard::Sent;
use crate::sender::{Happened, Plan, Purpose};
use crate::side::Side;
use crate::split::Split;
use crate::world::Fragments;

/// So often a copy is sent in fragments that carry DF, and then in such that do not.
const TRIES: u8 = 2;
/// A segment that has been lost so often goes in packets.
const LOST_TIMES: u8 = 2;
/// When that has happened to so many of a connection, one after the other, none is large any more.
const FAILURES_MAX: u8 = 3;
/// A window that is no larger than a field without scaling can say holds so many segments at least.
const SMALL_WINDOW_BYTES: u32 = 65_536;
const SEGMENTS_OF_WINDOW: u32 = 4;
/// The first large segments are of so many fragments, where that is enough for the way back.
const FIRST_FRAGMENTS: u32 = 8;
/// And none of fewer.
const FRAGMENTS_MIN: u32 = 2;
/// The first of them is waited for so long beyond a round trip, and what acknowledgements wait.
const PROOF_WAIT: Duration = Duration::from_millis(200);
/// The answer to a copy usually comes so soon after a round trip. Packets whose acknowledgements
/// take no longer leave beside it, two at least.
const ANSWER_WAIT: Duration = Duration::from_millis(100);
const PACKETS_ASKED_MIN: u32 = 2;
const PACKETS_ASKED_MAX: u32 = 1_000;
/// Beside large segments a packet goes so often, or once in a round trip where that takes longer,
/// or as often as the way back has room for: if large ones do not arrive any more, it does, and
/// tells. The host acknowledges it with the large one that follows.
const PACKET_EVERY: Duration = Duration::from_millis(200);
/// To a host of which nothing is known so many packets go first.
const PACKETS_FIRST: u32 = 2;
/// What follows them in packets of this size needs no error: IPv6 has no narrower way, and tunnels
/// are none either.
pub(crate) const SAFE_PACKET_BYTES: u32 = 1280;
/// Fragments without DF are cut by a router that is too narrow, and nobody hears of it. So a packet
/// with it goes so often.
const WHOLE_EVERY: Duration = Duration::from_secs(1);

impl Split<'_> {
    /// Segments towards a host are larger than a packet: so much payload they have; `None`: they
    /// are not.
    pub(crate) fn oversize_payload(&self, cx: &Cx<'_>, to: Side) -> Option<u32> {
        let leg = self.legs.get(to);
        let Some(Verdict::Takes { .. }) = leg.oversizing().verdict else { return None };
        let tx = &self.relays.get(to.other()).tx;
        if self.is_whole_due(cx.now, to)
            || self.is_mtu_probe_due(cx.now, to)
            || leg.oversizing().small_until.is_some_and(|until| tx.snd_una().before(until))
        {
            return None;
        }
        let sizes = self.sizes(to);
        let link = cx.links.get(leg.out).filter(|_| self.wants_oversize(cx, to))?;
        let wanted = link.oversize(&sizes)?;
        let failures = leg.oversizing().failures.max(link.clients().unproved(cx.now, leg.addr));
        let first = first_fragments(wanted.least, failures);
        let grown = leg.oversizing().proved.max(first / 2) * 2;
        let grown = leg.oversizing().most.map_or(grown, |most| grown.min(most));
        let window = u32::try_from(tx.window_max_bytes()).unwrap_or(u32::MAX);
        let holds = if tx.goes_ahead() { 0 } else { self.path_holds(cx, to) };
        let fragments = part_of(wanted.fragments, u64::from(window), holds);
        let mut payload = sizes.payload_bytes(fragments.min(grown));
        if window < SMALL_WINDOW_BYTES {
            let least = sizes.payload_bytes(wanted.least.min(grown));
            payload = payload.min((window / SEGMENTS_OF_WINDOW).max(least)).min(window);
            // What is left of it would stay unused: less than a segment is not sent (RFC 9293
            // section 3.8.6.2.1).
            payload = window / window.div_ceil(payload.max(1));
        }
        (payload > self.hosts().segment_payload(to)).then_some(payload)
    }

    /// Where the way back is slow, and nothing is known of the host: no more than a few packets are
    /// of full size until one has arrived. A router further on that takes none answers each of
    /// them, and all errors stand before the acknowledgements. `None`: they may be.
    pub(crate) fn first_payload(&self, to: Side) -> Option<u32> {
        let are_out = self.tests_size(to) && !self.are_few_out(to);
        are_out.then(|| self.hosts().payload_of(to, SAFE_PACKET_BYTES))
    }

    /// Those few leave one by one.
    pub(crate) fn sends_first(&self, to: Side) -> bool {
        self.tests_size(to) && self.are_few_out(to)
    }

    fn are_few_out(&self, to: Side) -> bool {
        let tx = &self.relays.get(to.other()).tx;
        tx.snd_nxt().since(tx.snd_una()) < PACKETS_FIRST * self.hosts().segment_payload(to)
    }

    fn tests_size(&self, to: Side) -> bool {
        let (leg, tx) = (self.legs.get(to), &self.relays.get(to.other()).tx);
        tx.delivered_bytes() == 0 && leg.oversizing().tests_size && leg.path_mtu.found().is_none()
    }

    /// The first data for a host is about to leave: where nobody has found it out yet, this
    /// connection does, and others to the same host do not wait for it.
    pub(crate) fn begin_test(&mut self, cx: &mut Cx<'_>, to: Side) {
        let relay = self.relays.get(to.other());
        // Who has all sent at once finds out by that.
        if relay.tx.goes_ahead() || relay.tx.delivered_bytes() > 0 || !relay.tx.board().is_empty() {
            return;
        }
        let ack_bytes = self.hosts().ack_bytes(to);
        let leg = self.legs.get_mut(to);
        let Some(link) = cx.links.get_mut(leg.out).filter(|_| !leg.peer.is_marked()) else { return };
        let is_slow = !link.acks_wait(ack_bytes).is_zero();
        if is_slow && relay.tx.has_new(&relay.supply()) && !link.clients().is_known(cx.now, leg.addr) {
            link.clients_mut().note_tested(cx.now, leg.addr);
            leg.oversizing_mut().tests_size = true;
        }
    }

    /// So long beyond a round trip the first of them is waited for; `None`: one has arrived.
    pub(crate) fn proof_wait(&self, cx: &Cx<'_>, to: Side) -> Option<Duration> {
        let leg = self.legs.get(to);
        let is_first = cx.links.get(leg.out).is_some() && leg.oversizing().proved == 0;
        is_first.then(|| PROOF_WAIT + self.hosts().acks_wait(cx.links, to))
    }

    /// A packet with DF is to find out whether fragments without it still pass as they are.
    pub(crate) fn is_whole_due(&self, now: Instant, to: Side) -> bool {
        let o = self.legs.get(to).oversizing();
        let has_no_df = matches!(o.verdict, Some(Verdict::Takes { dont_fragment: false }));
        has_no_df && o.whole_at.is_none_or(|at| now.since(at) >= WHOLE_EVERY)
    }

    /// A packet is to find out whether larger ones still vanish, and none is under way.
    fn is_mtu_probe_due(&self, now: Instant, to: Side) -> bool {
        let leg = self.legs.get(to);
        leg.path_mtu.probe_bytes(now).is_some() && !self.relays.get(to.other()).tx.tries_mtu()
    }

    /// A packet that left later has arrived, and no large segment has that left later. Where a
    /// window is sent ahead of, what stands beyond it is dropped, large or not: then one behind
    /// this has to have arrived, too.
    fn seems_refused(&self, to: Side, lost: &Sent) -> bool {
        let (o, is_ahead) = (self.legs.get(to).oversizing(), self.relays.get(to.other()).tx.goes_ahead());
        let tells = |(at, end): (Instant, SeqNum)| at > lost.sent_at && (!is_ahead || end.after(lost.end));
        let excused = o.excused.is_some_and(|until| lost.end.before_eq(until));
        !excused && o.packet.is_some_and(tells) && o.arrived.is_none_or(|at| at <= lost.sent_at)
    }

    /// What is new leaves in one packet where that is due and more follows; what is sent again
    /// does where packets seem to be all that arrives. A firewall may be new, so a copy finds it
    /// out anew where that holds for several.
    pub(crate) fn in_a_packet(&mut self, cx: &mut Cx<'_>, to: Side, plan: Plan) -> Plan {
        let normal = self.hosts().segment_payload(to);
        let tx = &self.relays.get(to.other()).tx;
        if tx.mss() <= normal || plan.len <= normal {
            return plan;
        }
        let piece = match plan.purpose {
            Purpose::Retransmit => self.piece_of_lost(cx, to, plan.seq, normal),
            Purpose::New => self.piece_of_new(cx, to, &plan, normal),
            _ => None,
        };
        piece.filter(|len| *len < plan.len).map_or(plan, |len| Plan { len, fin: false, ..plan })
    }

    /// So much of what is sent again leaves alone; `None`: all.
    fn piece_of_lost(&mut self, cx: &mut Cx<'_>, to: Side, seq: SeqNum, normal: u32) -> Option<u32> {
        let board = self.relays.get(to.other()).tx.board();
        let lost = board.at(seq).filter(|lost| self.seems_refused(to, lost))?;
        let several = lost.end + 2 * normal;
        if self.legs.get(to).oversizing().packet.is_some_and(|(_, end)| end.after(several)) {
            self.ask_anew(cx, to);
        }
        Some(normal)
    }

    /// The same of what is new.
    fn piece_of_new(&mut self, cx: &Cx<'_>, to: Side, plan: &Plan, normal: u32) -> Option<u32> {
        let outbound = self.relays.get(to.other());
        let more_follows = !plan.fin && (plan.seq + plan.len).before(outbound.supply().end);
        let is_due = more_follows && self.is_packet_due(cx, to);
        // Both together are as long as a segment: a small window has room for whole ones.
        let is_small = outbound.tx.window_max_bytes() < u64::from(SMALL_WINDOW_BYTES);
        let rest = Some(outbound.tx.mss().saturating_sub(normal)).filter(|_| is_due && is_small);
        let rest = core::mem::replace(&mut self.legs.get_mut(to).oversizing_mut().rest_bytes, rest);
        if is_due { Some(normal) } else { rest }
    }

    /// It is time for a packet among large segments that arrive.
    fn is_packet_due(&self, cx: &Cx<'_>, to: Side) -> bool {
        let leg = self.legs.get(to);
        let rtt = self.relays.get(to.other()).tx.shortest_rtt().unwrap_or_default();
        let link = cx.links.get(leg.out);
        let spared = link.map_or(Duration::ZERO, |link| link.acks_spared(self.hosts().ack_bytes(to)));
        let every = PACKET_EVERY.max(rtt).max(spared);
        leg.oversizing().proved > 0 && leg.oversizing().whole_at.is_none_or(|at| cx.now.since(at) >= every)
    }

    /// This leaves: it may be that packet.
    pub(crate) fn note_whole(&mut self, now: Instant, to: Side, plan: &Plan) {
        let is_packet = plan.len > 0 && plan.len <= self.hosts().segment_payload(to);
        let takes = matches!(self.legs.get(to).oversizing().verdict, Some(Verdict::Takes { .. }));
        let is_whole = is_packet && takes || self.is_whole_due(now, to);
        if plan.len > 0 && plan.purpose != Purpose::SizeProbe && is_whole {
            self.legs.get_mut(to).oversizing_mut().whole_at = Some(now);
        }
    }

    /// What the way to a host holds of a connection at its part of the link's rate, bytes.
    fn path_holds(&self, cx: &Cx<'_>, to: Side) -> u64 {
        let out = self.legs.get(to).out;
        let rate = cx.links.get(out).and_then(|link| link.rate_in_force_bps());
        let rtt = self.relays.get(to.other()).tx.shortest_rtt().unwrap_or_default();
        bytes_in(rate.unwrap_or(0), rtt) / cx.links.sharers(out).max(1)
    }

    /// How such a segment leaves, and the payload of packets into which it is cut otherwise; a copy
    /// that is to find it out may leave in another way.
    pub(crate) fn fragments(&self, to: Side, plan: Option<&Plan>) -> (Option<Fragments>, u32) {
        let leg = self.legs.get(to);
        let purpose = plan.map(|plan| plan.purpose);
        let (unit, of_packet) = (self.relays.get(to.other()).tx.mss(), self.hosts().segment_payload(to));
        let dont_fragment = match (purpose, leg.oversizing().asked, leg.oversizing().verdict) {
            (Some(Purpose::SizeProbe), Some(asked), _) => Some(asked.dont_fragment),
            // What is larger than a packet may be several of them, too.
            (Some(_), _, Some(Verdict::Takes { dont_fragment })) if unit > of_packet => Some(dont_fragment),
            _ => None,
        };
        let Some(dont_fragment) = dont_fragment else { return (None, unit) };
        let fragments = Fragments { packet_bytes: leg.packet_bytes(), dont_fragment };
        (Some(fragments), of_packet)
    }

    fn wants_oversize(&self, cx: &Cx<'_>, to: Side) -> bool {
        let leg = self.legs.get(to);
        cx.links.get(leg.out).is_some() && !leg.peer.is_marked() && self.binds()
    }

    fn sizes(&self, to: Side) -> Sizes {
        let leg = self.legs.get(to);
        let options = if self.agreed.timestamps { 12 } else { 0 };
        let is_v4 = leg.addr.is_ipv4();
        Sizes {
            fragment_header_bytes: if is_v4 { 20 } else { 48 },
            packet_bytes: leg.packet_bytes(),
            tcp_header_bytes: 20 + options,
            ack_bytes: self.hosts().ack_bytes(to),
            is_v4,
        }
    }

    /// The copy that finds out whether a host takes large segments, when it is time for one: of two
    /// packets that are under way.
    pub(crate) fn plan_size_probe(&mut self, cx: &mut Cx<'_>, to: Side) -> Option<Plan> {
        // Asked with each segment: what costs little goes first.
        let o = self.legs.get(to).oversizing();
        if o.asked.is_some() || o.verdict.is_some() || !self.wants_oversize(cx, to) {
            return None;
        }
        let link = cx.links.get(self.legs.get(to).out)?;
        link.oversize(&self.sizes(to))?;
        let host = self.legs.get(to).addr;
        let known = link.clients().oversize(cx.now, host);
        let normal = self.hosts().segment_payload(to);
        let tx = &self.relays.get(to.other()).tx;
        let (una, next) = (tx.snd_una(), tx.snd_nxt());
        // What waits to be sent again it would bring first, and no host would say so. And it may
        // have what a packet has that is larger than others, and stand for it.
        let is_under_way = tx.board().is_held(una, una + 2 * normal).is_none() && !tx.tries_mtu();
        if known.is_some() {
            self.adopt_verdict(to, known);
            return None;
        }
        let o = self.legs.get_mut(to).oversizing_mut();
        if !link.may_ask_by_copy() {
            return None;
        }
        if next.since(una) < 2 * normal || next.before(una) || o.tries >= 2 * TRIES {
            return None;
        }
        // It would get lost where packets do, or be cut, and tell nothing.
        if !is_under_way || o.tries > 0 && !o.packets_arrive {
            return None;
        }
        let rtt = tx.shortest_rtt().unwrap_or_default();
        let begins = o.tries == 0 && !o.follows && o.small_until.is_none();
        let goes_ahead = tx.goes_ahead();
        let is_asked = o.tries == 0 && link.clients().is_asked(cx.now, host);
        let o = self.legs.get_mut(to).oversizing_mut();
        let dont_fragment = o.tries < TRIES;
        o.follows = is_asked;
        o.tries += u8::from(!is_asked);
        if begins && !goes_ahead {
            self.await_answer(cx, to);
        }
        let link = cx.links.get_mut(self.legs.get(to).out);
        if is_asked {
            link?.clients_mut().note_awaited(cx.now, host);
            return None;
        }
        if let Some(link) = link {
            link.clients_mut().note_asked(cx.now, host, cx.now + rtt + PROOF_WAIT);
        }
        let o = self.legs.get_mut(to).oversizing_mut();
        o.asked = Some(Asked { from: una, to: una + 2 * normal, at: cx.now, dont_fragment });
        Some(Plan { seq: una, len: 2 * normal, fin: false, purpose: Purpose::SizeProbe, mtu_probe: false })
    }

    /// Another connection has found out what this host takes, perhaps. Returns whether this one has
    /// waited for that.
    pub(crate) fn hear_of_found(&mut self, now: Instant, links: &Links, to: Side) -> bool {
        let leg = self.legs.get(to);
        let known = links.get(leg.out).and_then(|link| link.clients().oversize(now, leg.addr));
        let goes_on = known.is_some() && leg.oversizing().follows;
        if goes_on {
            self.adopt_verdict(to, known);
        }
        goes_on
    }

    /// What another connection has found out holds for this one, too, which waits no longer.
    fn adopt_verdict(&mut self, to: Side, known: Option<Verdict>) {
        let o = self.legs.get_mut(to).oversizing_mut();
        o.verdict = known;
        if std::mem::take(&mut o.follows) {
            self.relays.get_mut(to.other()).tx.hold_from(None);
        }
    }

    /// What leaves in packets while the answer to a copy is waited for calls up acknowledgements,
    /// which stand before it on the slow way back, and then before those of large segments. So no
    /// more packets leave than it carries acknowledgements of until the answer is usually there.
    fn await_answer(&mut self, cx: &Cx<'_>, to: Side) {
        let leg = self.legs.get(to);
        let tx = &self.relays.get(to.other()).tx;
        let rtt = tx.shortest_rtt().or(leg.handshake_rtt()).unwrap_or_default();
        let Some(link) = cx.links.get(leg.out) else { return };
        let Some(acks) = link.acks_in(rtt + ANSWER_WAIT, self.hosts().ack_bytes(to)) else { return };
        let packets = acks.clamp(PACKETS_ASKED_MIN, PACKETS_ASKED_MAX);
        let rest = self.relays.get(to.other()).supply();
        let rest_bytes = if rest.fin { rest.end.since(tx.snd_nxt()) } else { u32::MAX };
        // Where no more than those are left, or than one large segment has, nothing is gained.
        let large = link.oversize(&self.sizes(to)).map_or(0, |wanted| wanted.fragments);
        if rest_bytes <= packets.max(large) * self.hosts().segment_payload(to) {
            return;
        }
        let from = tx.snd_una() + packets * self.hosts().segment_payload(to);
        self.relays.get_mut(to.other()).tx.hold_from(Some((from, cx.now + rtt + PROOF_WAIT)));
    }

    /// An acknowledgement of a host may tell whether it has got the copy, and whether large
    /// segments arrive.
    pub(crate) fn hear_of_oversize(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        (ack, sack): (SeqNum, &[SackBlock]),
        (pure, happened): (bool, &Happened),
    ) {
        self.hear_of_probe(cx, from, (ack, sack), (pure, happened));
        let normal = self.hosts().segment_payload(from);
        let unit = self.relays.get(from.other()).tx.mss();
        let has_asked = self.legs.get(from).oversizing().tries > 0;
        if has_asked && happened.progress && happened.delivered_bytes >= u64::from(normal) {
            self.legs.get_mut(from).oversizing_mut().packets_arrive = true;
        }
        let o = self.legs.get_mut(from).oversizing_mut();
        o.arrived = o.arrived.max(happened.large_sent_at);
        let newest = happened.newest.filter(|(at, _)| o.arrived.is_none_or(|large| large < *at));
        if let Some((at, end)) = newest {
            let (before, edge) = o.packet.unwrap_or((at, end));
            *o.packet = Some((before.max(at), edge.max(end)));
        }
        if unit > normal && happened.progress && happened.delivered_bytes >= u64::from(unit) {
            let fragments = self.sizes(from).fragments(u64::from(unit));
            let o = self.legs.get_mut(from).oversizing_mut();
            o.proved = o.proved.max(fragments);
            o.failures = 0;
        }
        if self.has_packets_alone(from, happened.progress) {
            self.ask_anew(cx, from);
        }
        self.doubt_oversize(cx, from);
    }

    /// The oldest segment may have been lost too often: it goes in packets, and where that has
    /// happened to several, all do. Where none has arrived in this connection, another host may
    /// stand behind the address, or a firewall may be new: then once is too often.
    pub(crate) fn doubt_oversize(&mut self, cx: &mut Cx<'_>, to: Side) {
        // Records of several packets are larger, too, and say nothing of that.
        let Some(Verdict::Takes { .. }) = self.legs.get(to).oversizing().verdict else { return };
        let normal = self.hosts().segment_payload(to);
        let tx = &self.relays.get(to.other()).tx;
        let proved = self.legs.get(to).oversizing().proved > 0;
        let times = if proved { LOST_TIMES } else { 0 };
        let head = tx.board().first().filter(|r| r.lost && r.repeats >= times);
        let Some(head) = head else { return };
        // What had left in packets may have gone again in a large one.
        let head_bytes = tx.board().first_segment_bytes();
        if head_bytes <= normal {
            return;
        }
        let end = head.end.max(head.seq + head_bytes);
        let fragments = self.sizes(to).fragments(u64::from(head_bytes));
        let leg = self.legs.get_mut(to);
        let o = leg.oversizing_mut();
        if o.small_until.is_some_and(|until| end.before_eq(until)) {
            return;
        }
        if proved && fragments > o.proved {
            // Smaller ones have arrived: the host may have no room to put larger ones together.
            (*o.small_until, o.most) = (Some(end), Some(o.proved));
            return;
        }
        *o.small_until = Some(end);
        if o.excused.is_some_and(|until| end.before_eq(until)) {
            return;
        }
        o.failures += 1;
        if o.failures >= FAILURES_MAX {
            o.verdict = Some(Verdict::Refuses);
            if let Some(link) = cx.links.get_mut(leg.out) {
                link.clients_mut().note_oversize(cx.now, leg.addr, Verdict::Refuses);
            }
        } else if !proved {
            self.ask_anew(cx, to);
        }
    }

    /// A timeout has passed, or the link is silent. What was found lost goes again in packets:
    /// large ones may be what does not arrive.
    pub(crate) fn ask_in_packets(&mut self, to: Side) {
        let normal = self.hosts().segment_payload(to);
        let head = self.relays.get(to.other()).tx.board().first().filter(|r| r.lost).copied();
        let o = self.legs.get_mut(to).oversizing_mut();
        let Some(head) = head.filter(|r| r.end.since(r.seq) > normal && o.proved > 0) else { return };
        let excused = o.excused.is_some_and(|until| head.end.before_eq(until));
        if !excused && o.small_until.is_none_or(|until| until.before(head.end)) {
            (*o.small_until, *o.timed_out) = (Some(head.end), Some(head.end));
        }
    }

    /// The beginning has arrived in packets, and the rest has not: the large segment had not.
    fn has_packets_alone(&mut self, to: Side, progress: bool) -> bool {
        let una = self.relays.get(to.other()).tx.snd_una();
        let o = self.legs.get_mut(to).oversizing_mut();
        let Some(end) = o.timed_out.filter(|_| progress) else { return false };
        *o.timed_out = None;
        una.before(end)
    }

    /// None of those that are under way seems to arrive: a copy finds out anew whether any does.
    fn ask_anew(&mut self, cx: &mut Cx<'_>, to: Side) {
        let next = self.relays.get(to.other()).tx.snd_nxt();
        let leg = self.legs.get_mut(to);
        let (failures, proved) = (leg.oversizing().failures, leg.oversizing().proved > 0);
        *leg.oversizing_mut() =
            Oversizing { small_until: Some(next).into(), failures, ..Oversizing::default() };
        let Some(link) = cx.links.get_mut(leg.out) else { return };
        if proved {
            link.clients_mut().forget_oversize(leg.addr);
        } else {
            link.clients_mut().note_unproved(cx.now, leg.addr);
        }
    }

    fn hear_of_probe(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        (ack, sack): (SeqNum, &[SackBlock]),
        (pure, happened): (bool, &Happened),
    ) {
        self.hear_of_earlier_probe(cx, from, ack, sack);
        let Some(asked) = self.legs.get(from).oversizing().asked else { return };
        let min_rtt = self.relays.get(from.other()).tx.rtt().min_rtt();
        let leg = self.legs.get_mut(from);
        let o = leg.oversizing_mut();
        let told = if self.agreed.sack {
            asked.is_told(ack, sack)
        } else {
            pure && !happened.progress && cx.now.since(asked.at) >= min_rtt
        };
        let verdict = if told {
            Verdict::Takes { dont_fragment: asked.dont_fragment }
        } else if happened.newest.is_some_and(|(at, _)| at > asked.at) {
            // What left after it has arrived.
            o.give_up_asking();
            self.relays.get_mut(from.other()).tx.hold_from(None);
            if o.tries < 2 * TRIES {
                return;
            }
            Verdict::Refuses
        } else {
            return;
        };
        self.judge_oversize(cx, from, verdict);
    }

    /// Answers wait for a starved link like all else, behind errors of routers too. So one may be
    /// that to a copy which others have followed.
    fn hear_of_earlier_probe(&mut self, cx: &mut Cx<'_>, from: Side, ack: SeqNum, sack: &[SackBlock]) {
        let o = self.legs.get(from).oversizing();
        let is_open = match o.verdict {
            None => true,
            Some(Verdict::Refuses) => o.tries >= 2 * TRIES && o.failures == 0,
            Some(Verdict::Takes { .. }) => false,
        };
        let told = o.unanswered.iter().flatten().find(|asked| is_open && asked.is_told(ack, sack));
        if let Some(Asked { dont_fragment, .. }) = told.copied() {
            self.judge_oversize(cx, from, Verdict::Takes { dont_fragment });
        }
    }

    /// A copy has told, or the last one has not.
    fn judge_oversize(&mut self, cx: &mut Cx<'_>, from: Side, verdict: Verdict) {
        let leg = self.legs.get_mut(from);
        let o = leg.oversizing_mut();
        o.asked = None;
        o.verdict = Some(verdict);
        self.relays.get_mut(from.other()).tx.hold_from(None);
        if let Some(link) = cx.links.get_mut(leg.out) {
            link.clients_mut().note_oversize(cx.now, leg.addr, verdict);
            if link.clients_mut().take_awaited(leg.addr) {
                cx.links.note_found_out(leg.out);
            }
        }
    }
}

impl Asked {
    /// The host has got it twice (RFC 2883).
    fn is_told(&self, ack: SeqNum, sack: &[SackBlock]) -> bool {
        sack.first().is_some_and(|b| b.start == self.from && b.end == self.to && b.end.before_eq(ack))
    }
}

/// Fragments of the first large segments. Those that are too small for the way back make it full
/// before the first of them is acknowledged. Where such a first one has not arrived, the host may
/// have less room to put fragments together.
fn first_fragments(least: u32, failures: u8) -> u32 {
    match failures {
        0 => FIRST_FRAGMENTS.max(least),
        1 => FIRST_FRAGMENTS,
        _ => FIRST_FRAGMENTS / 2,
    }
}

/// Fragments of a segment where the window is smaller than what the path holds, and is waited for:
/// it opens by so much for each segment, not for each byte (`tcp_grow_window` of Linux). So as many
/// segments are under way in it as there will be in the whole one.
fn part_of(fragments: u32, window_bytes: u64, holds_bytes: u64) -> u32 {
    if window_bytes >= holds_bytes {
        return fragments;
    }
    let part = u64::from(fragments).saturating_mul(window_bytes) / holds_bytes.max(1);
    u32::try_from(part).unwrap_or(fragments).max(FRAGMENTS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_opening_holds_as_many_segments_as_an_open_one() {
        assert_eq!(part_of(18, 65_536, 500_000), 2);
        assert_eq!(part_of(18, 250_000, 500_000), 9);
        assert_eq!(part_of(18, 500_000, 500_000), 18);
        assert_eq!(part_of(18, 65_536, 0), 18);
    }

    #[test]
    fn the_first_large_segments_leave_room_on_the_way_back() {
        assert_eq!((first_fragments(3, 0), first_fragments(44, 0)), (8, 44));
        assert_eq!((first_fragments(44, 1), first_fragments(44, 9)), (8, 4), "where they did not arrive");
    }
}
