//! The only door of the engine: packets in, segments and deadlines out.

use std::collections::{BTreeSet, VecDeque};

use farlink_wire::{
    Duration, Flags, IcmpError, Instant, PacketBuf, Pool, TcpSegment, edit, verify_checksums,
};

use crate::census::Census;
use crate::challenge::Challenges;
use crate::checked::Turns;
use crate::config::{Action, Config};
use crate::cx::Cx;
use crate::event::{Because, Ends, Event};
use crate::fate::Fate;
use crate::flow::Flow;
use crate::flow_id::FlowId;
use crate::handshake::{Answer, HalfOpen, Step, SynCache};
use crate::kept::Kept;
use crate::leg::Handshake;
use crate::link::{LinkReport, Links};
use crate::net::{IfaceId, Via, Way};
use crate::peer::Peer;
use crate::promise::Promise;
use crate::ready::{Ready, ReadyId, Turn, What};
use crate::receiver::Receiver;
use crate::relays::{Over, Relays};
use crate::rules::{Decision, Rules};
use crate::segment::Pulled;
use crate::side::{Pair, Side};
use crate::status::Counters;
use crate::table::{Key, Table};
use crate::treatment::Treatment;
use crate::world::World;

/// What is to be done with a packet that was handed in.
#[derive(Debug)]
pub enum Outcome {
    /// It goes on.
    Forward(PacketBuf),
    /// It goes on, and so does a copy of it.
    Twice(PacketBuf, PacketBuf),
    /// The engine has it, or answers in its stead.
    Taken,
    /// The connection is refused: answer with ICMP administratively prohibited.
    Refuse(PacketBuf),
}

/// Routes count as unsteady for so long after a packet has been seen to go round us.
pub(crate) const UNSTEADY: Duration = Duration::from_secs(600);

/// The TCP engine.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) table: Table,
    pub(crate) syns: SynCache,
    pub(crate) rules: Rules,
    pub(crate) counters: Counters,
    pub(crate) links: Links,
    pub(crate) census: Census,
    pub(crate) ready: VecDeque<(FlowId, Side)>,
    pub(crate) timers: BTreeSet<(Instant, FlowId)>,
    pub(crate) split_count: usize,
    pub(crate) busy_count: usize,
    pub(crate) draining: bool,
    /// Packets wait too long for the processor: nothing new is split.
    pub(crate) short_of_time: bool,
    pub(crate) challenges: Challenges,
    pub(crate) trimmed_at: Instant,
    route_generation: u32,
    /// When packets were last seen to go round us.
    pub(crate) bypassed_at: Option<Instant>,
    pub(crate) checks: Turns,
    /// Links that are up again, and not all connections know.
    returns: VecDeque<Return>,
    /// Since when there are some.
    restarting_since: Instant,
    /// Handshakes that go out once more, right behind what has just gone.
    copies: Vec<Kept>,
}

macro_rules! cx {
    ($self:ident, $now:expr, $net:expr) => {
        Cx {
            now: $now,
            config: &$self.config,
            pool: &mut $self.pool,
            counters: &mut $self.counters,
            links: &mut $self.links,
            half_open: $self.syns.len(),
            net: $net,
            flows_split: $self.split_count,
            routes_unsteady: $self.bypassed_at.is_some_and(|at| $now.since(at) < $crate::engine::UNSTEADY),
            bypassed_at: &mut $self.bypassed_at,
            challenges: &mut $self.challenges,
        }
    };
}
pub(crate) use cx;

mod opening;
mod twice;
mod ways;

use ways::Return;

impl Engine {
    /// An engine of this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let rules = Rules::new(&config);
        let l = &config.limits;
        Self {
            pool: Pool::new(l.pool_bytes),
            table: Table::new(config.seed),
            syns: SynCache::new(l.half_open_max, l.pool_bytes, config.timers.half_open, config.seed),
            rules,
            counters: Counters::default(),
            links: Links::new(&config),
            census: Census::default(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            split_count: 0,
            busy_count: 0,
            draining: false,
            short_of_time: false,
            challenges: Challenges::new(l.challenge_acks_per_s, config.seed),
            trimmed_at: Instant::ZERO,
            route_generation: 0,
            bypassed_at: None,
            checks: Turns::default(),
            returns: VecDeque::new(),
            restarting_since: Instant::ZERO,
            copies: Vec::new(),
            config,
        }
    }
    /// The buffer pool.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }
    /// What gateways at the other ends of declared links have told since this was last asked.
    pub fn take_link_reports(&mut self) -> Vec<(Way, LinkReport)> {
        self.links.take_reports()
    }
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The declared links, as they are now.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }
    /// An address of the gateway for ICMP errors sent back by an interface.
    #[must_use]
    pub fn icmp_source(&self, iface: IfaceId, v4: bool) -> Option<core::net::IpAddr> {
        let interface = self.config.interfaces.iter().find(|i| i.id == iface)?;
        interface.addresses.iter().find(|a| a.is_ipv4() == v4).copied()
    }
    fn domain(&self, iface: IfaceId) -> u16 {
        self.config.interfaces.iter().find(|i| i.id == iface).map_or(0, |i| i.domain)
    }
    pub(crate) fn is_link(&self, iface: IfaceId) -> bool {
        self.links.at(iface).is_some()
    }
    /// A TCP packet that came in so.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        via: Via,
        s: &TcpSegment,
        packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        self.challenges.refill(now);
        if let Some(link) = self.links.at_mut(via.iface) {
            link.count(now, s, &packet);
        }
        if s.flags.contains(Flags::SYN | Flags::ACK)
            && let Some(link) = self.links.at_mut(via.iface)
        {
            link.boxes_mut().hear_answer(now, (s.ip.src, s.src_port, s.dst_port));
        }
        let domain = self.domain(via.iface);
        let (key, from_low) = Key::new(domain, (s.ip.src, s.src_port), (s.ip.dst, s.dst_port));
        let mut known = self.table.find(&key, from_low);
        if s.shim.is_some() && s.flags.syn() {
            return self.handle_without_shim(now, via, packet, net);
        }
        if known.is_none() && s.options.has_ours() && !self.is_link(via.iface) {
            return self.handle_without_option(now, via, s, packet, net);
        }
        // Most packets belong to a known flow, and need no look into the table of half-open ones.
        let is_judged = known.is_some() || s.flags.syn() || self.syns.get_mut(&key).is_some();
        if is_judged && !verify_checksums(packet.bytes(), s, &packet.offload) {
            // Nothing is learned from it, and the host it is for throws it away.
            self.counters.bad_checksums += 1;
            return Outcome::Forward(packet);
        }
        if self.is_second_of_two(now, via.iface, (&key, known), from_low, s) {
            self.counters.packets_taken += 1;
            self.pool.give_back(packet.into_block().0);
            return Outcome::Taken;
        }
        if known.is_some_and(|it| self.is_of_new_connection(&key, it, from_low, s)) {
            if let Some((id, _)) = known
                && s.flags.syn()
                && s.flags.ack()
            {
                self.let_sleep(now, id, net);
            }
            known = None;
        }
        if let Some((id, from)) = known {
            return self.handle_flow_packet(now, via, (key, id), from, s, packet, net);
        }
        if s.flags.syn() && !s.flags.ack() {
            return self.handle_syn(now, via, key, from_low, s, packet, net);
        }
        self.rules.pass_by(&key, from_low, s);
        self.handle_handshake(now, via, key, from_low, s, packet, net)
    }

    #[allow(clippy::too_many_arguments)]
    fn handle_flow_packet(
        &mut self,
        now: Instant,
        via: Via,
        (key, id): (Key, FlowId),
        from: Side,
        s: &TcpSegment,
        packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        let (sleeps, generation) = (self.table.is_asleep(id), self.route_generation);
        let may_wake = sleeps && !self.draining && !self.short_of_time && self.has_memory();
        let mut cx = cx!(self, now, net);
        let Some(flow) = self.table.get_mut(id) else { return Outcome::Forward(packet) };
        flow.came_by = via.iface;
        let is_word = flow.is_word_of(now, from, s);
        if is_word {
            flow.active_at = now;
            if flow.legs.get_mut(from).comes(via) {
                flow.route_generation = generation.wrapping_sub(1);
            }
            if core::mem::take(&mut flow.asked_anew) {
                self.syns.remove(&key);
            }
        }
        let (rule, payload_before) = (flow.rule, cx.counters.payload_in_bytes);
        let fate = flow.on_segment(&mut cx, from, s, packet, (is_word, may_wake));
        self.rules.carried(rule, self.counters.payload_in_bytes - payload_before);
        self.after_event(now, id, net);
        match fate {
            Fate::Forward(mut p) => {
                // What the next gateway tells is for this one; hosts never see it.
                self.take_ours_out(s, &mut p);
                Outcome::Forward(p)
            }
            Fate::Taken => {
                self.counters.packets_taken += 1;
                Outcome::Taken
            }
            Fate::Forget(p) => {
                self.remove(id, net);
                self.handle_packet(now, via, s, p, net)
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn handle_syn(
        &mut self,
        now: Instant,
        via: Via,
        key: Key,
        from_low: bool,
        s: &TcpSegment,
        mut packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        self.counters.syns += 1;
        if self.draining {
            return self.pass(via, s, packet, net);
        }
        let decision = self.decide(via.iface, key, s, net);
        match decision.action {
            Action::Split | Action::Custody(_) => {}
            Action::Pass => return self.pass(via, s, packet, net),
            Action::Refuse => return Outcome::Refuse(packet),
        }
        let o = &s.options;
        if o.md5 || o.ao || o.malformed || s.flags.any(Flags::RST | Flags::FIN) {
            self.syns.remove(&key);
            self.happened(&Ends::of_handshake(s), Event::Forwarded(Because::Unsplittable), net);
            return self.pass(via, s, packet, net);
        }
        if !self.has_room() {
            self.happened(&Ends::of_handshake(s), self.shortage(), net);
            return self.pass(via, s, packet, net);
        }
        let Some(h) = self.syns.on_syn(now, key, from_low, s, via, decision) else {
            return self.pass(via, s, packet, net);
        };
        let syns = h.syns;
        if syns == 1 {
            self.links.handshake_begins(now);
        }
        self.hear_asking(now, via.iface, &key, s);
        if o.has_ours() {
            edit::remove_farlink_option(&mut packet, s);
        }
        if s.flags.ae() {
            // AccECN is not understood here: the hosts fall back to RFC 3168 ECN.
            edit::set_flags(&mut packet, s, s.flags.without(Flags::AE));
        }
        let cut = self.first_window(self.links.way(via.iface)).filter(|cut| *cut < s.window);
        if let Some(h) = self.syns.get_mut(&key) {
            let shown = *h.shown_bytes.get_or_insert(cut.unwrap_or(u16::MAX));
            if shown < s.window {
                edit::set_window(&mut packet, s, shown);
            }
        }
        let twice = self.ask_for_gateway(now, via, key, s, &mut packet, net);
        let Some(packet) = self.keep_for_link(now, via, key, s, packet, net) else { return Outcome::Taken };
        self.send_on((now, twice), (via, key, Side::A), s, packet, net)
    }

    /// What the rules say of a connection that begins.
    fn decide(&mut self, via: IfaceId, key: Key, s: &TcpSegment, net: &mut dyn World) -> Decision {
        if self.syns.get_mut(&key).is_some_and(|h| h.isn == s.seq) {
            return Decision { rule: usize::MAX, ..Decision::SPLIT };
        }
        let decision = self.rules.decide(via, key, s, self.rule_of(&key));
        let what = match decision.action {
            Action::Split | Action::Custody(_) => None,
            Action::Pass => Some(Event::Passed),
            Action::Refuse => Some(Event::Refused),
        };
        if let Some(what) = what.filter(|_| decision.is_first) {
            self.happened(&Ends::of_handshake(s), what, net);
        }
        decision
    }

    #[allow(clippy::too_many_arguments)]
    fn handle_handshake(
        &mut self,
        now: Instant,
        via: Via,
        key: Key,
        from_low: bool,
        s: &TcpSegment,
        mut packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        let twice = match self.syns.on_segment(now, &key, from_low, s, via) {
            Step::Unknown => return self.pass(via, s, packet, net),
            Step::Unsplittable => {
                self.happened(&Ends::of_handshake(s), Event::Forwarded(Because::Unsplittable), net);
                return self.pass(via, s, packet, net);
            }
            Step::Continue => {
                if !s.flags.contains(Flags::SYN | Flags::ACK) {
                    return self.pass(via, s, packet, net);
                }
                self.pass_answer(now, via, key, s, &mut packet, net)
            }
            Step::Complete(h) => return self.establish(now, via, key, *h, s, packet, net),
        };
        let Some(packet) = self.keep_for_link(now, via, key, s, packet, net) else { return Outcome::Taken };
        self.send_on((now, twice), (via, key, Side::B), s, packet, net)
    }

    /// The client's first segment after the SYN-ACK: from here on the connection is split. The
    /// segment itself, when it carries nothing, goes on: the server must hear its client.
    #[allow(clippy::too_many_arguments)]
    fn establish(
        &mut self,
        now: Instant,
        via: Via,
        key: Key,
        mut h: HalfOpen,
        s: &TcpSegment,
        mut packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        if !s.flags.rst() {
            self.learn_of_acknowledgement(now, &mut h, s);
        }
        let Some(answer) = h.answer.as_deref() else { return Outcome::Forward(packet) };
        let sides = Pair { a: [h.a.came_by, via.iface], b: [answer.b.came_by; 2] };
        if !s.flags.rst() && !self.replaces(&key, h.a_is_low, sides, net) {
            return Outcome::Forward(packet);
        }
        if s.flags.rst() || !self.has_room() || self.draining {
            if !s.flags.rst() {
                self.happened(&Ends::of_handshake(s), self.shortage(), net);
            }
            return self.pass(via, s, packet, net);
        }
        let rule = h.rule;
        let flow = self.new_flow(now, via, &h, answer, s, net);
        self.make_place(net);
        let id = self.table.insert(key.domain(), flow);
        self.happened(&Ends::of_handshake(s), Event::Split, net);
        self.rules.opened(rule);
        if s.payload_len == 0 && !s.flags.any(Flags::FIN | Flags::URG) {
            let mut cx = cx!(self, now, net);
            if let Some(flow) = self.table.get_mut(id) {
                // The server's first window is the gateway's own: it will hold what the client
                // cannot.
                flow.show_window(&mut cx, Side::B, s, &mut packet);
            }
            self.after_event(now, id, net);
            self.take_ours_out(s, &mut packet);
            return Outcome::Forward(packet);
        }
        self.handle_flow_packet(now, via, (key, id), Side::A, s, packet, net)
    }

    /// A connection that is split from this segment on.
    fn new_flow(
        &mut self,
        now: Instant,
        via: Via,
        h: &HalfOpen,
        answer: &Answer,
        s: &TcpSegment,
        net: &mut dyn World,
    ) -> Flow {
        let mut a = h.a.clone();
        let syn_at = a.heard_at();
        self.links.handshake_completes(syn_at);
        // What this segment shows the server is ours to say: only what the SYN has shown is
        // promised.
        let shown_b = a.window_bytes().min(h.shown_bytes.unwrap_or(u16::MAX).into());
        let shown_a = answer.b.window_bytes().min(answer.shown_bytes.unwrap_or(u16::MAX).into());
        // The answer went on when it came; this is what came back.
        a.note_handshake(match h.answered_once {
            true => Handshake::Took(now.since(answer.b.heard_at())),
            false => Handshake::Repeated,
        });
        a.note_handshake_waited(now, syn_at, s);
        a.hear(now, s);
        a.comes(via);
        let mut legs = Pair { a, b: answer.b.clone() };
        self.resolve_ways(&mut legs);
        let mut cx = cx!(self, now, net);
        let next = Pair { a: answer.ack, b: s.ack };
        let mut relays = Relays::begin(&mut cx, &mut legs, answer.agreed, next);
        for out in [legs.a.out, legs.b.out] {
            cx.links.open(now, out);
        }
        let r = &mut *relays;
        r.begin_stamps(&cx, &legs.a, s);
        r.b.rx = Receiver::new(s.ack, shown_b);
        r.b.rx.marks_mut().note_told(now + legs.b.handshake_rtt().unwrap_or_default());
        match legs.b.peer {
            Peer::None if h.introduces => {
                r.b.rx.introduce(now);
                if let Some(link) = cx.links.at_mut(legs.b.came_by) {
                    link.boxes_mut().note_introduced(now, legs.b.addr);
                }
            }
            Peer::None if h.asked.has_with() => r.b.rx.may_introduce(),
            _ => {}
        }
        // A host counts the largest window from this segment on, not from the SYN.
        r.b.rx.forget_window_shown_max();
        r.a.rx = Receiver::new(answer.ack, shown_a);
        legs.b.take_first_window(answer.ack, answer.next_window_bytes);
        r.a.tx.update_window(answer.isn, answer.ack, u64::from(legs.b.window_bytes()), false);
        r.b.tx.update_window(s.seq, s.ack, u64::from(legs.a.window_bytes()), false);
        let mut flow = Flow::new(now, legs, answer.agreed, Treatment::Split(relays));
        flow.rule = h.rule;
        flow.class = h.class;
        let ways = [flow.legs.a.out, flow.legs.b.out];
        let custody = self.action_over(now, h.rule, ways).and_then(Action::custody);
        flow.set_promise(Promise::of(custody, self.config.pinned, answer.agreed));
        flow.begin_with(&mut cx!(self, now, net), h.copied(), answer.told_window_bytes);
        flow.handshake = now.since(syn_at);
        flow.note_open();
        flow.route_generation = self.route_generation;
        flow
    }

    /// An ICMP error that quotes a TCP segment. `None`: it was about a segment made here and has
    /// been digested.
    pub fn handle_icmp(
        &mut self,
        now: Instant,
        via: IfaceId,
        e: &IcmpError,
        packet: PacketBuf,
        net: &mut dyn World,
    ) -> Option<PacketBuf> {
        let Some(inner) = e.inner else { return Some(packet) };
        // The error may come back by another interface than the connection: all domains of this
        // interface's kind.
        let domain = self.domain(via);
        let (key, from_low) = Key::new(domain, (inner.src, inner.src_port), (inner.dst, inner.dst_port));
        let Some((id, from)) = self.table.find(&key, from_low) else { return Some(packet) };
        let mut cx = cx!(self, now, net);
        let Some(flow) = self.table.get_mut(id) else { return Some(packet) };
        if !flow.on_icmp(&mut cx, from, e, &inner) {
            return Some(packet);
        }
        self.counters.icmp_consumed += 1;
        self.pool.give_back(packet.into_block().0);
        self.after_event(now, id, net);
        None
    }

    /// This happened to the connection of these hosts: it is counted, and told.
    pub(crate) fn happened(&mut self, ends: &Ends, what: Event, net: &mut dyn World) {
        self.counters.count(what);
        net.happened(ends, what);
    }

    /// The next leg that has something to send; its turn is over unless it is pulled with `more`.
    pub fn next_ready(&mut self, now: Instant, net: &mut dyn World) -> Option<Ready> {
        while let Some((id, to)) = self.ready.pop_front() {
            let generation = self.route_generation;
            let mut cx = cx!(self, now, net);
            let Some(flow) = self.table.get_mut(id) else { continue };
            *flow.queued.get_mut(to) = false;
            flow.renew_routes(&mut cx, generation);
            let Some(wants) = flow.wants(&cx, to) else { continue };
            let ready = ReadyId { flow: id, to, what: wants.into() };
            let (out, pair) = (flow.legs.get(to).out, cx.links.pair(flow.legs.get(to)));
            return Some(Ready { id: ready, out, wants, pair });
        }
        None
    }

    /// A leg that stood in some queue: where it belongs is looked up again.
    pub fn requeue(&mut self, ready: ReadyId) {
        let ReadyId { flow: id, to, .. } = ready;
        if let Some(flow) = self.table.get_mut(id)
            && !core::mem::replace(flow.queued.get_mut(to), true)
        {
            self.ready.push_back((id, to));
        }
    }

    /// Sends one segment of a flow towards a host.
    pub fn pull(&mut self, now: Instant, ready: ReadyId, turn: Turn, net: &mut dyn World) -> Pulled {
        let ReadyId { flow: id, to, what } = ready;
        let generation = self.route_generation;
        let mut cx = cx!(self, now, net);
        let Some(flow) = self.table.get_mut(id) else { return Pulled::default() };
        let out = flow.legs.get(to).out;
        flow.renew_routes(&mut cx, generation);
        if flow.legs.get(to).out != out {
            // Another queue's turn counts for it.
            self.requeue(ready);
            return Pulled::default();
        }
        let mut pulled = flow.pull(&mut cx, to, turn, what);
        pulled.pair = cx.links.pair(flow.legs.get(to));
        if !pulled.size.is_nothing() {
            pulled.more = flow.wants(&cx, to);
        } else if what == What::Any {
            pulled.more = flow.wants_repeat(&cx, to);
        }
        if !flow.census.is_noted(flow.is_split()) {
            self.census.note(&mut self.table, id);
        }
        self.queue_timer(now, id);
        self.check(now, id);
        pulled
    }

    /// The other host has answered a SYN with its own: the old connection is over, and if anything
    /// comes of it, it passes.
    fn let_sleep(&mut self, now: Instant, id: FlowId, net: &mut dyn World) {
        if let Some(flow) = self.table.get_mut(id) {
            flow.end_split(Over::Asleep);
            self.after_event(now, id, net);
        }
    }

    /// A lost connection's hosts are asked at once, and again by timer.
    pub(crate) fn ask_now(&mut self, now: Instant, id: FlowId, net: &mut dyn World) {
        let mut cx = cx!(self, now, net);
        if let Some(flow) = self.table.get_mut(id) {
            flow.on_timer(&mut cx);
        }
        self.after_event(now, id, net);
    }

    /// Starts draining every flow; nothing new is split.
    pub fn drain(&mut self, now: Instant, net: &mut dyn World) {
        self.draining = true;
        for id in self.table.ids() {
            self.after_event(now, id, net);
        }
    }

    /// Nothing is left that could be lost.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining && self.table.len() == 0
    }

    /// Gives up all custody; returns how many flows that was. It goes by what is held, as the
    /// record does, for the same reason: nobody will pass on what was only SACKed.
    pub fn abandon_all(&mut self, now: Instant, net: &mut dyn World) -> usize {
        let mut n = 0;
        for id in self.table.ids() {
            if let Some(flow) = self.table.get_mut(id)
                && flow.holds()
            {
                n += usize::from(flow.give_up() == Over::Abandoned);
            }
            self.after_event(now, id, net);
        }
        n
    }
}
