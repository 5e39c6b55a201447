//! Making segments: which fields a segment to a host carries, and in whose name.

use arrayvec::ArrayVec;
use farlink_wire::xcp::XcpFields;
use farlink_wire::{
    Duration, Ecn, Flags, PacketBuf, SackBlock, SegmentHeader, SeqNum, Shim, TcpSegment, WireSize, edit,
};

use crate::buffer::{SeqBuffer, Slices};
use crate::config::Notice;
use crate::cx::Cx;
use crate::explicit::Said;
use crate::hosts::Hosts;
use crate::leg::Leg;
use crate::link::PairId;
use crate::oversize::SAFE_PACKET_BYTES;
use crate::pair::stamp;
use crate::peer::{Advert, Arrived, Capability, Hello, Message, Peer, TOLD_WINDOW_MAX};
use crate::promise::Promise;
use crate::ready::{Turn, Wants, What};
use crate::relay::Relay;
use crate::runs::{RUNS_MAX, Runs};
use crate::sender::{Plan, Purpose};
use crate::side::Side;
use crate::split::Split;
use crate::tally::count_sent;
use crate::window::{self, Offer};
use crate::world::Made;

/// Acknowledgements tell of what is held above a gap with all their room, until so many have. Then
/// one reports of the link, too.
const ACKS_BEFORE: u8 = 6;
/// The same where the rate of the link is to be found.
const ACKS_BEFORE_SOUGHT: u8 = 3;

/// A destination that acknowledged something so lately, and so soon after the time before, will
/// again before the source's retransmission timer (Linux TCP_RTO_MIN) misses it.
const MOVING: Duration = Duration::from_millis(120);
/// A larger window than any before is shown while there is custody when it is larger by so much, in
/// quarters; and by so much when the custody waits for a repetition: it would keep new data from
/// the link until that has arrived.
const RAISE_QUARTERS: u32 = 3;
const RAISE_QUARTERS_BEHIND_GAP: u32 = 1;
/// What our option can hold beside nothing else, and what timestamps take of that, bytes.
const OPTION_BODY_BYTES_MAX: usize = 36;
const TIMESTAMPS_BYTES: usize = 12;
/// A SACK option with one block, padded.
const SACK_BYTES: usize = 12;

/// What a pull sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// What it takes on the wire; nothing when there was nothing to send.
    pub size: WireSize,
    /// Payload bytes that were sent again.
    pub repeated_bytes: u32,
    /// What there may be more of at once.
    pub more: Option<Wants>,
    /// Data that there is more of has its place in the queue with this pair of gateways.
    pub pair: Option<PairId>,
}

impl Split<'_> {
    /// What an acknowledgement promises whoever speaks on the leg to a host: a gateway there reads
    /// more than the host could.
    fn promise_to(&self, to: Side) -> Promise {
        let to_gateway = self.legs.get(to).peer.is_speaking();
        if to_gateway { self.promise.to_gateway() } else { self.promise }
    }

    /// A larger window than before is shown to this host before any of its data is acknowledged.
    pub(crate) fn shows_before_acking(&self, to: Side) -> bool {
        let can_show = self.agreed.window_scale && !self.legs.get(to).peer.is_marked();
        can_show && self.promise_to(to).shows_before_acking()
    }

    /// The most that may be acknowledged to a host, see [`Promise::ack_max`].
    pub(crate) fn ack_reach(&self, to: Side) -> Option<SeqNum> {
        let relay = self.relays.get(to);
        let far_acked = relay.far_acked();
        self.promise_to(to).ack_max(far_acked, relay.rx.window_shown_max())
    }

    /// The acknowledgement number for segments to a host: what is held in order, or what the far
    /// side has acknowledged.
    #[must_use]
    pub fn ack_for(&self, to: Side) -> SeqNum {
        let relay = self.relays.get(to);
        let mut ack = relay.ack();
        if let Some(reach) = self.ack_reach(to) {
            // What has been acknowledged stays so, whatever a gateway that has gone since was
            // promised.
            ack = ack.min(reach.max(relay.rx.last_ack_sent()));
        }
        let ack = relay.with_beyond(ack);
        if self.notice() == Some(Notice::Sack) { relay.ack_beside_blocks(ack) } else { ack }
    }

    /// The acknowledgement number for the next segment to a host. Before the first early
    /// acknowledgement of bulk data a pure one says what the far host has, to show the whole window
    /// while nothing is in custody yet.
    fn next_ack_for(&self, to: Side, pure: bool) -> SeqNum {
        let relay = self.relays.get(to);
        let ack = self.ack_for(to);
        if !(pure && relay.rx.raise_first) {
            return ack;
        }
        relay.rx.last_ack_sent().max(relay.far_acked().min(ack))
    }

    /// Right edge of the window for segments to a host.
    fn edge_for(&self, cx: &Cx<'_>, to: Side, ack: SeqNum) -> SeqNum {
        let r = &*self.relays;
        let relay = r.get(to);
        let far = self.legs.get(to.other());
        if relay.is_frozen() {
            // Draining: the far host's own window counts from here on.
            return relay.rx.edge().max(relay.acked() + self.passes_bytes(cx, to));
        }
        if !self.binds() {
            // The far host's own, beside what it has acknowledged, and what the pool has room for.
            // Not more than before while it is full.
            let full = crate::room::is_full(cx.pool);
            let own = relay.acked() + far.window_bytes().min(crate::room::window(cx.pool));
            return if full { relay.rx.edge() } else { relay.rx.edge().max(own) };
        }
        let field_max = 65_535u32 << far.window_scale;
        // A source to which all is held may be a gateway that we have not heard yet: only a gateway
        // reads what our option promises.
        let peer = self.legs.get(to).peer;
        let within_shown = self.promise_to(to).shows_before_acking();
        let peer_window = !within_shown && peer.is_marked();
        let field_max = if peer_window { field_max.max(relay.limit_bytes()) } else { field_max };
        let share = crate::room::share(cx.pool, cx.flows_split, self.hosts().is_on_link());
        let limit = self.held_limit(cx, to).min(share);
        let stalled = relay.is_stalled();
        let full = cx.pool.used_bytes() >= cx.pool.limit_bytes() / 4 * 3;
        let far_acked = relay.far_acked();
        // A source that fills the window it was shown at first gets the whole one as soon as
        // nothing is in custody: the edge stands still until then, for a round trip at most, once
        // (invariant 7). While acknowledgements come often the larger one is shown at once where it
        // is free.
        let narrow = relay.can_show_more(limit, far.window_scale, field_max);
        let moving = relay.ack_gap(cx.now).is_some_and(|gap| gap < MOVING || cx.links.has_budget(far.out));
        let left = relay.rx.room_from(relay.rcv_nxt());
        let narrow = narrow && cx.links.is_worth_a_pause(far.out, relay.rx.window_shown_max());
        let pause = within_shown && narrow && ack.after(far_acked) && left < relay.rx.window_shown_max() / 4;
        let equal = cx.links.equal_share(far.out, 0);
        let behind_gap = equal.is_some() && relay.tx.board().sacked_bytes() > 0;
        let larger_max_bytes =
            equal.map_or(u32::MAX, |s| s.max(relay.rx.window_shown_max().saturating_mul(2)));
        Offer {
            ack,
            shown_max_bytes: relay.rx.window_shown_max(),
            edge: relay.rx.edge(),
            acked: relay.tx.snd_una(),
            far_acked,
            limit_bytes: limit,
            within_shown,
            field_max_bytes: field_max,
            segment_bytes: relay.rx.segment_bytes(),
            moving,
            behind_gap,
            raise_quarters: if behind_gap { RAISE_QUARTERS_BEHIND_GAP } else { RAISE_QUARTERS },
            larger_max_bytes,
            pause,
            hold: relay.rx.fin_at().is_some()
                || crate::room::is_full(cx.pool)
                || stalled
                || (full && relay.buffer.len() > 32 * 1024),
        }
        .right_edge()
    }

    /// A window update is worth an acknowledgement of its own: the source may be waiting for it.
    #[must_use]
    pub fn wants_window_update(&self, cx: &Cx<'_>, to: Side) -> bool {
        let r = &*self.relays;
        let relay = r.get(to);
        if relay.is_frozen() || relay.rx.fin_at().is_some() {
            return false;
        }
        // A gateway goes by what it was told last.
        let told = relay.rx.told_edge.filter(|_| self.legs.get(to).peer.is_speaking());
        let before = told.unwrap_or(relay.rx.edge());
        let left = before.diff(relay.rcv_nxt()).max(0).unsigned_abs();
        let is_much = |shown: u32| left > shown / 2; // Each packet asks; as a rule this answers.
        if is_much(relay.rx.window_shown_max()) {
            return false;
        }
        let shown = relay.rx.window_shown_max().min(self.held_limit(cx, to));
        if is_much(shown) {
            return false;
        }
        let ack = self.ack_for(to);
        let edge = self.edge_for(cx, to, ack);
        let edge = if told.is_some() { ack + self.told_window(cx, to, ack, edge) } else { edge };
        let grown = edge.diff(before).max(0).unsigned_abs();
        // Who has no room for a segment waits for this alone.
        let in_units = |bytes: u32| if told.is_some() { bytes } else { self.shown_room(to, bytes) };
        let has = in_units(left);
        (in_units(left + grown) > has && has < relay.rx.segment_bytes())
            || grown >= (shown / 4).max(2 * relay.rx.segment_bytes()).min(shown.max(1))
    }

    /// The window that a gateway is told, beside the header's with this right edge: as large as the
    /// policy allows now, less than before where the destination has become slower.
    fn told_window(&self, cx: &Cx<'_>, to: Side, ack: SeqNum, edge: SeqNum) -> u32 {
        let r = &*self.relays;
        let relay = r.get(to);
        let told = edge.min(relay.tx.snd_una() + self.held_limit(cx, to));
        told.diff(ack).max(0).unsigned_abs()
    }

    /// The part of that window which the destination will take in time, where it does not take all
    /// (TR 99-12 section 5).
    fn soft_window(&self, cx: &Cx<'_>, to: Side, ack: SeqNum) -> Option<u32> {
        if !cx.config.soft_window || !self.legs.get(to).peer.speaks(Capability::SoftWindow) {
            return None;
        }
        let relay = self.relays.get(to);
        let look = self.look(cx, to)?;
        // Counted from the acknowledgement, which may lag behind what is here.
        let ahead = relay.rcv_nxt().diff(ack).max(0).unsigned_abs();
        relay.read_rate.soft_window(&look).map(|w| w.saturating_add(ahead).min(TOLD_WINDOW_MAX))
    }

    /// Window field and, for a peer gateway, the window in bytes.
    pub fn window_for(&self, cx: &Cx<'_>, to: Side, ack: SeqNum) -> (u16, SeqNum, u32) {
        let edge = self.edge_for(cx, to, ack);
        let bytes = if edge.after(ack) { edge.since(ack) } else { 0 };
        let shift = if self.agreed.window_scale { self.legs.get(to.other()).window_scale } else { 0 };
        (window::field(bytes, shift), edge, bytes)
    }

    /// The gateway's own window towards a host, in the other one's first segment, which is
    /// forwarded.
    pub fn show_window(&mut self, cx: &mut Cx<'_>, to: Side, s: &TcpSegment, packet: &mut PacketBuf) {
        let (window, edge, _) = self.window_for(cx, to, s.ack);
        let Leg { window_scale, out, .. } = *self.legs.get(to.other());
        let shown = u32::from(window) << window_scale;
        let r = &mut *self.relays;
        let rx = &mut r.get_mut(to).rx;
        edit::set_window(packet, s, window);
        if edge.after(rx.edge()) {
            cx.links.promise(cx.now, out, edge.since(rx.edge()));
        }
        rx.on_ack_sent(s.ack, edge, shown, cx.now);
    }

    /// Sends one segment to a host in the other one's name: `plan`'s payload with an
    /// acknowledgement, or, without a plan, the acknowledgement alone. Who speaks here is said in
    /// an acknowledgement before it: a box that drops that has dropped nothing else.
    pub fn emit(&mut self, cx: &mut Cx<'_>, to: Side, plan: Option<Plan>) -> Pulled {
        let introduces = self.relays.get(to).rx.introduces(cx.now);
        let introduction = introduces.then(|| self.emit_one(cx, to, None, true).size);
        self.unmark(cx, to);
        let peer = self.legs.get(to).peer;
        let goes_plain = self.goes_plain(to, plan.as_ref());
        if goes_plain {
            self.legs.get_mut(to).peer = Peer::None;
            self.take_back(to);
        }
        let pulled = self.emit_one(cx, to, plan, false);
        if goes_plain {
            self.legs.get_mut(to).peer = peer;
            self.note_plain(to, plan.as_ref());
        }
        Pulled { size: introduction.unwrap_or_default().and(pulled.size), ..pulled }
    }

    fn emit_one(&mut self, cx: &mut Cx<'_>, to: Side, plan: Option<Plan>, introduces: bool) -> Pulled {
        let from = to.other();
        let Some(mut word) = self.word_for(cx, to, plan.as_ref()) else { return Pulled::default() };
        let sack = if introduces { ArrayVec::new() } else { self.sack_for(cx, to, &word) };
        let (fragments, unit) = self.fragments(to, plan.as_ref());
        let r = &mut *self.relays;
        let (inbound, outbound) = r.both_mut(to);
        let (slices, plan) = gather(&outbound.buffer, plan);
        if plan.is_some_and(|p| p.len == 0 && !p.fin && p.purpose != Purpose::WindowProbe) {
            return Pulled::default();
        }
        let payload_len: usize = slices.iter().map(|s| s.len()).sum();
        let new_data = plan.is_some_and(|p| p.purpose == Purpose::New && p.len > 0);
        let cwr = new_data && outbound.tx.take_cwr();
        let (flags, urgent) = outbound.flags_of(plan.as_ref());
        let set = |flag: Flags, is_set: bool| if is_set { flag } else { Flags::default() };
        let flags = flags | set(Flags::ECE, inbound.rx.ece) | set(Flags::CWR, cwr);
        // Who says who it is has no room for more.
        word.said = if introduces { Said::default() } else { word.said };
        let mss = cut_at(plan.as_ref(), unit, word.said.sum_bytes() as u32);
        let (src, dst) = (self.legs.get(from), self.legs.get(to));
        let room_bytes = outbound.tx.mss().saturating_sub(payload_len as u32);
        let gateway = dst.peer.hello().filter(|_| !introduces);
        let message = gateway.map(|hello| word.full_message(inbound, hello, sack.len(), room_bytes));
        let introduction = introduces.then(|| cx.links.hello().body());
        let body = introduction
            .or_else(|| message.as_ref().zip(gateway).map(|(message, hello)| message.encode(hello)));
        let ecn = if self.agreed.ecn && new_data { Ecn::Ect0 } else { Ecn::NotEct };
        let plain = Hosts { legs: self.legs, agreed: self.agreed }.header(to);
        let header = SegmentHeader {
            traffic_class: plain.traffic_class | ecn.bits(),
            seq: plan.map_or(outbound.tx.acceptable_seq(), |p| p.seq),
            ack: word.ack,
            flags,
            window: word.window,
            urgent,
            timestamps: word.timestamps.then(|| src.timestamps_to(dst)),
            sack: &sack,
            farlink: body.as_deref(),
            marks_padding: self.agreed.marks_padding()
                && gateway.is_some_and(|hello| hello.can(Capability::MarkInPadding)),
            xcp_sum: word.said.sum,
            ..plain
        };
        let supply = outbound.supply();
        let (explicit, of) = (plan.as_ref().filter(|_| word.said.fields), (&header, word.said));
        let xcp = explicit.and_then(|p| stamp(cx, (dst, &mut outbound.tx), of, (p, mss), &supply));
        let (xcp, shim) = word.place(xcp);
        let header = SegmentHeader { xcp, ..header };
        let (via, out, payload) = (src.via(), dst.out, &slices);
        let made = Made { via, out, header, payload, segment_bytes: mss, fragments, shim };
        let size = cx.net.send(&made);
        if size.is_nothing() {
            return Pulled::default();
        }
        count_sent(cx, out, &mut outbound.tx, plan.as_ref(), size);
        if let Some(p) = plan {
            outbound.tx.on_sent(cx.now, &p);
        }
        drop(slices);
        if introduces {
            self.relays.get_mut(to).rx.note_introduced(cx.now);
        }
        self.note_told(cx, to, &word, message.as_ref());
        let size = size.and(self.follow_shim(cx, to, &header, shim.is_some()));
        let repeated = plan.filter(|p| matches!(p.purpose, Purpose::Retransmit | Purpose::TailProbe));
        Pulled { size, repeated_bytes: repeated.map_or(0, |p| p.len), ..Pulled::default() }
    }

    /// What a segment tells a host of what is held for it. A gateway that speaks on the leg is told
    /// of holes in our own option.
    fn sack_for(&mut self, cx: &Cx<'_>, to: Side, word: &Word) -> ArrayVec<SackBlock, 4> {
        let binds = self.binds();
        let held = if word.pure { self.tell_held(cx, to, word.ack) } else { None };
        let inbound = self.relays.get_mut(to);
        let tells_holes = self.agreed.sack
            && (word.pure && !word.tells_runs)
            && (binds || word.far.after_eq(inbound.rcv_nxt()));
        match held {
            Some(held) => [held].into_iter().collect(),
            None if tells_holes => inbound.rx.sack_blocks(&inbound.buffer),
            None => ArrayVec::new(),
        }
    }

    /// What a segment to a host tells it of the other direction.
    fn word_for(&self, cx: &Cx<'_>, to: Side, plan: Option<&Plan>) -> Option<Word> {
        let ack = self.next_ack_for(to, plan.is_none());
        let (window, edge, _) = self.window_for(cx, to, ack);
        let window = if plan.is_none() && self.is_calmed(cx, to) { 0 } else { window };
        let dst = self.legs.get(to);
        let inbound = self.relays.get(to);
        let pure = plan.is_none_or(|p| p.len == 0 && !p.fin);
        let told_delay = self.ack_policy(cx, to).longest();
        // One report of the link is enough for all its flows, and what is held above a gap goes
        // before it for a while, unless it has just been told several times.
        let over = cx.links.at(dst.came_by).filter(|_| pure && dst.peer.speaks(Capability::Reports));
        let acks = if over.is_some_and(|l| l.is_rate_declared()) { ACKS_BEFORE } else { ACKS_BEFORE_SOUGHT };
        let may_wait = inbound.rx.acks_since_report() >= acks;
        let every = if inbound.buffer.has_early() && !may_wait { told_delay * 2 } else { told_delay / 2 };
        let due =
            over.is_some_and(|l| l.is_report_due(cx.now, every, (told_delay, inbound.buffer.has_early())));
        let said = self.says_explicitly(cx, to, plan);
        // What is held above a gap finds no room beside both.
        let crowded = inbound.buffer.has_early() && said.sum.is_some();
        let arrived =
            over.and_then(|l| inbound.rx.to_report(due, || l.newest_arrival())).filter(|_| !crowded);
        Some(Word {
            ack,
            window,
            edge,
            pure,
            tells_runs: dst.peer.speaks(Capability::Runs),
            held: self.tells_held(cx.links, to).then(|| inbound.rcv_nxt()).filter(|end| end.after(ack)),
            timestamps: self.agreed.timestamps,
            marks_padding: self.agreed.marks_padding(),
            told_window: self.told_window(cx, to, ack, edge),
            soft_window: self.soft_window(cx, to, ack),
            told_delay,
            far_delay: self.far_told_after(told_delay, to),
            far: inbound.far_acked(),
            arrived,
            advert: self.advert_to_tell(cx, to, pure),
            said,
            shims: self.shims_to_tell(cx, to).filter(|_| pure),
            twice_bytes: inbound.rx.twice_to_tell().filter(|_| pure),
        })
    }

    /// What has been told is remembered.
    fn note_told(&mut self, cx: &mut Cx<'_>, to: Side, word: &Word, message: Option<&Message>) {
        let (src, dst) = (self.legs.get(to.other()), self.legs.get(to));
        let rtt = self.leg_rtt(cx, to).unwrap_or_default();
        let r = &mut *self.relays;
        let inbound = r.get_mut(to);
        inbound.forget_notices(word.ack);
        let rx = &mut inbound.rx;
        if word.said.sum.is_some() || word.said.shim.is_some() {
            rx.wishes_mut().note_told(cx.now, word.said.shim.is_some());
        }
        let raised = word.pure && rx.raise_first;
        if word.pure {
            rx.note_early_told();
        }
        if word.edge.after(rx.edge()) {
            cx.links.promise(cx.now, src.out, word.edge.since(rx.edge()));
        }
        let before = rx.told_edge.unwrap_or(rx.edge());
        rx.on_ack_sent(word.ack, word.edge, u32::from(word.window) << src.window_scale, cx.now + rtt);
        if let Some(far) = message.and_then(|m| m.far_ack) {
            *rx.far_told = Some(far);
        }
        if message.is_some_and(|m| m.window_bytes.is_some()) {
            *rx.told_edge = Some(word.ack + word.told_window);
            *rx.told_soft_edge = word.soft_window.map(|bytes| word.ack + bytes);
        }
        if message.is_some_and(|m| m.twice_bytes.is_some()) {
            rx.note_twice_told();
        }
        let shims = message.and_then(|m| m.shims);
        if message.is_some_and(|m| m.arrived.is_some())
            && let Some(link) = cx.links.at_mut(dst.came_by)
        {
            link.note_reported(cx.now, rx.note_reported(link.newest_arrival()));
        }
        let advert = message.and_then(|m| m.link).zip(dst.peer.hello());
        if let (Some((advert, hello)), Some(link)) = (advert, cx.links.get_mut(dst.out)) {
            link.note_advertised(cx.now, hello.identity, advert);
        }
        rx.set_ack_held_back(rx.rcv_nxt(&inbound.buffer).after(word.ack));
        if dst.peer.is_heard() && inbound.buffer.is_empty() && *rx.far_told != Some(word.far) {
            rx.owe_by(cx.now + word.far_delay);
        }
        if word.pure && dst.peer.is_speaking() {
            let (next, edge) = (rx.rcv_nxt(&inbound.buffer), rx.told_edge.unwrap_or(rx.edge()));
            rx.note_opened(cx.now, next, (before, edge), rtt);
        }
        if word.said.sum_later {
            rx.owe_by(cx.now + word.told_delay);
        }
        if raised {
            rx.raise_first = false;
            rx.owe_now();
        }
        if let Some(heard) = shims {
            self.note_shims_told(cx, to, heard);
        }
    }

    /// Sends what is most pressing to a host: data when the sender has some, else an
    /// acknowledgement that is owed.
    pub(crate) fn pull(&mut self, cx: &mut Cx<'_>, to: Side, turn: Turn, what: What) -> Pulled {
        self.begin_test(cx, to);
        self.refresh_segment_size(cx, to);
        self.let_leave_ahead(cx, to);
        let hushed = self.is_hushed(cx.links, to);
        if !hushed {
            self.send_train(cx, to);
        }
        self.follow_pair(cx, to);
        let per_segment = self.hosts().ack_bytes(to);
        let silent = self.relays.is_reset_by(to);
        let probe = if silent || hushed || what != What::Any { None } else { self.plan_size_probe(cx, to) };
        let early = self.may_repeat_early(cx, to);
        let singly = self.sends_singly(cx, to) || self.sends_first(to);
        let dst = self.legs.get(to);
        let outbound = self.relays.get_mut(to.other());
        if outbound.tx.board().is_empty() {
            outbound.tx.expect_late_acks(cx.links.get(dst.out), dst.peer.identity());
        }
        let supply = outbound.supply();
        let asks_link = outbound.tx.asks_link();
        let plan = match what {
            _ if silent || (hushed && !asks_link) => None,
            What::Ack => None,
            // Much may have come in since the wish was noted.
            What::Repeat if early => outbound.tx.plan_early(cx.now, &supply),
            What::Repeat => None,
            What::Any if probe.is_some() => probe,
            What::Any => {
                let mss = outbound.tx.mss().max(1);
                let budget = turn.budget_bytes / (mss + per_segment).max(1) * mss;
                let budget = if singly { budget.min(mss) } else { budget };
                outbound.tx.wait_for_turn(turn.waited);
                let plan = outbound.tx.plan(cx.now, &supply, budget);
                if plan.is_none() && early {
                    outbound.tx.early_while_stalled(cx.now, &supply);
                }
                plan
            }
        };
        if asks_link {
            self.ask_in_packets(to);
        }
        let plan = plan.map(|plan| self.in_a_packet(cx, to, plan));
        if let Some(plan) = &plan {
            self.note_whole(cx.now, to, plan);
        }
        if plan.is_some() {
            return self.emit(cx, to, plan);
        }
        if !silent && what != What::Repeat && self.relays.get_mut(to).take_iack() {
            return self.emit_iack(cx, to);
        }
        if !silent && what != What::Repeat && self.owes_ack(cx, to) {
            return self.emit(cx, to, None);
        }
        Pulled::default()
    }

    /// An acknowledgement to this host is due, or a window update worth sending.
    #[must_use]
    pub fn owes_ack(&self, cx: &Cx<'_>, to: Side) -> bool {
        let relay = self.relays.get(to);
        let due = relay.rx.due().is_some_and(|d| d <= cx.now) || relay.owes_iack();
        due || self.wants_window_update(cx, to)
    }

    /// The mark of a peer gateway that came or went, or a new path MTU, changes what fits in a
    /// segment.
    fn refresh_segment_size(&mut self, cx: &Cx<'_>, to: Side) {
        let now = cx.now;
        let path_mtu = &mut self.legs.get_mut(to).path_mtu;
        let larger = path_mtu.expire(now);
        let probe_bytes = path_mtu.probe_bytes(now);
        let full = self.hosts().segment_payload(to);
        let mss = self.first_payload(to).map_or(full, |first| first.min(full));
        // Until one of the first has arrived.
        let larger =
            larger || self.relays.get(to.other()).tx.mss() == self.hosts().payload_of(to, SAFE_PACKET_BYTES);
        let probe = probe_bytes.map(|bytes| self.hosts().payload_of(to, bytes)).filter(|probe| *probe > mss);
        let is_copied = self.legs.get(to).oversizing().asked.is_some();
        let probe = probe.filter(|_| !is_copied);
        let unit = self.oversize_payload(cx, to);
        let proof_wait = unit.and_then(|_| self.proof_wait(cx, to));
        let tx = &mut self.relays.get_mut(to.other()).tx;
        if let Some(unit) = unit {
            if unit != tx.mss() {
                tx.set_unit(unit, mss);
            }
            tx.await_proof(proof_wait);
            tx.probe_mtu(None);
            return;
        }
        tx.probe_mtu(probe);
        if mss < tx.mss() || (mss > tx.mss() && (larger || tx.board().is_empty())) {
            tx.set_mss_for_options(mss);
        }
    }
}

/// What a segment tells the one that it goes to of the other direction: a host in the fields of the
/// header, a gateway in our option, too.
struct Word {
    ack: SeqNum,
    window: u16,
    edge: SeqNum,
    /// Nothing else is in the segment.
    pure: bool,
    /// What is held above a gap is told in our option.
    tells_runs: bool,
    /// What stands from the acknowledgement to here is held, and that is told there, too.
    held: Option<SeqNum>,
    timestamps: bool,
    /// A bare mark takes no bytes.
    marks_padding: bool,
    told_window: u32,
    soft_window: Option<u32>,
    told_delay: Duration,
    far_delay: Duration,
    far: SeqNum,
    arrived: Option<Arrived>,
    /// What is known of the link.
    advert: Option<Advert>,
    /// How fast the segment is sent, and what came of the wishes of others.
    said: Said,
    /// How many segments with XCP's own header have come.
    shims: Option<u16>,
    /// How much of what the gateway has sent has come twice.
    twice_bytes: Option<u32>,
}

impl Word {
    /// Where that stands which the segment says of its speed: in the option, or in XCP's own
    /// header. A segment of data that says nothing has none, and tells nothing there.
    fn place(&mut self, xcp: Option<XcpFields>) -> (Option<XcpFields>, Option<Shim>) {
        let Some(feedback_bytes_per_s) = self.said.shim else { return (xcp, None) };
        self.said.shim = self.said.shim.filter(|_| xcp.is_some() || !self.said.fields);
        let shim = Shim { said: xcp, feedback_bytes_per_s, ..Shim::default() };
        (None, self.said.shim.map(|_| shim))
    }

    /// The message in our option to this gateway. What has come twice is told where all else leaves
    /// room for it.
    fn full_message(&self, inbound: &Relay, to: Hello, sack_blocks: usize, room_bytes: u32) -> Message {
        let message = self.message(inbound, to, sack_blocks, room_bytes);
        if self.twice_bytes.is_none() || !to.reads_frames() {
            return message;
        }
        let full = Message { twice_bytes: self.twice_bytes, ..message.clone() };
        if full.encode(to).len() <= self.body_bytes(sack_blocks) { full } else { message }
    }

    /// Room in the option, bytes. A block of the standard option goes before all but a report of
    /// the link, which has waited for it: who does not hear of what is behind a gap sends nothing.
    fn body_bytes(&self, sack_blocks: usize) -> usize {
        let timestamps = if self.timestamps { TIMESTAMPS_BYTES } else { 0 };
        let block = if sack_blocks > 0 && self.arrived.is_none() { SACK_BYTES } else { 0 };
        OPTION_BODY_BYTES_MAX.saturating_sub(timestamps + block + self.said.bytes())
    }

    /// The message in our option to this gateway; `room_bytes` of payload are left in the segment.
    fn message(&self, inbound: &Relay, to: Hello, sack_blocks: usize, room_bytes: u32) -> Message {
        let body_bytes = self.body_bytes(sack_blocks);
        // News of the far host goes before a second SACK block: the upstream gateway's window waits
        // for it. Data that leaves room takes it along.
        let news = *inbound.rx.far_told != Some(self.far);
        let full = Message {
            far_ack: Some(self.far),
            far_behind: Some(if self.ack.after(self.far) { self.ack.since(self.far) } else { 0 }),
            window_bytes: Some(self.told_window),
            soft_window_bytes: self.soft_window,
            arrived: self.arrived,
            shims: self.shims,
            link: self.advert,
            ..Message::default()
        };
        if self.pure && self.tells_runs && (inbound.buffer.has_early() || self.held.is_some()) {
            // The window each time: the gateway may wait for it, and the word before may have been
            // lost or gone round it.
            let message = if news { full } else { full.without_far() };
            // The head of their frame, or of a message of version 1.
            let used = if to.reads_frames() {
                message.encode(to).len() + 1
            } else {
                message.encode(to).len().max(1)
            };
            let room = body_bytes.saturating_sub(used);
            let mut runs = inbound.buffer.runs_to_tell();
            if let Some(end) = self.held {
                runs.truncate(RUNS_MAX - 1);
                runs.insert(0, SackBlock { start: self.ack, end });
            }
            let runs = Runs::encode(self.ack, inbound.rx.segment_bytes(), &runs, room);
            return Message { runs, ..message }.fit(to, body_bytes);
        }
        let opens = inbound.rx.told_edge.is_some_and(|told| (self.ack + self.told_window).after(told));
        let room = full.header_bytes(to, self.marks_padding) <= room_bytes;
        let told = if self.pure { sack_blocks < 2 || news || opens } else { news && room };
        let Self { arrived, shims, .. } = *self;
        let link = self.advert.filter(|_| self.pure);
        let message = if told { full } else { Message { arrived, shims, link, ..Message::default() } };
        message.fit(to, body_bytes)
    }
}

impl Relay {
    /// Flags and urgent pointer of a segment to the destination.
    fn flags_of(&self, plan: Option<&Plan>) -> (Flags, u16) {
        let Some(p) = plan else { return (Flags::ACK, 0) };
        let mut flags = if p.fin { Flags::ACK | Flags::FIN } else { Flags::ACK };
        if self.is_pushed(p.seq, p.seq + p.len) {
            flags = flags | Flags::PSH;
        }
        match self.urgent_pointer(p.seq, p.len) {
            Some(pointer) => (flags | Flags::URG, pointer),
            None => (flags, 0),
        }
    }
}

/// Payload of each segment that what is sent is cut into, with so many bytes of options besides.
/// What tries a larger size is one segment.
fn cut_at(plan: Option<&Plan>, mss: u32, besides: u32) -> u32 {
    let mss = plan.filter(|p| p.mtu_probe).map_or(mss, |p| p.len);
    mss.saturating_sub(besides).max(8)
}

/// The payload of a plan; cut short where it is too scattered or not there.
fn gather(buffer: &SeqBuffer, plan: Option<Plan>) -> (Slices<'_>, Option<Plan>) {
    let Some(mut p) = plan else { return (Slices::new(), None) };
    let (slices, taken) = buffer.slices(p.seq, p.len);
    if taken < p.len {
        p.len = taken;
        p.fin = false;
        p.mtu_probe = false;
    }
    (slices, Some(p))
}
