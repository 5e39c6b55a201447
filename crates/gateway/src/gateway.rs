//! The composition: packets to the engine, its segments and the forwarded packets through the
//! egress queues.

use farlink_egress::Grant;
use farlink_engine::config::{Config, Interface};
use farlink_engine::event::{Carried, Event};
use farlink_engine::net::{IfaceId, Via, Way};
use farlink_engine::record::Record;
use farlink_engine::status::{FlowStatus, Load, Memory};
use farlink_engine::world::World;
use farlink_engine::{Engine, Outcome, ReadyId, Turn};
use farlink_wire::{
    Duration, FragmentInfo, Instant, PacketBuf, Parsed, Pool, Reassembler, ReassemblyLimits, TcpSegment,
    icmp, ip, parse, parse_with, shim,
};

use crate::due::{Deadline, Due, Earliest, Wakes};
use crate::interfaces::{Interfaces, told_apart};
use crate::late::Late;
use crate::left_behind::Fates;
use crate::links::LinkQueue;
use crate::network::Network;
use crate::ordinary::Ordinary;
use crate::others;
use crate::outlet::{Grants, Outlet};
use crate::place::Place;
use crate::recut::{Head, cut_as};
use crate::status::Status;
use crate::tap::{SenderNow, Taken, Tap, Wish};

/// Of one turn, a batch of packets and the flush after it: how many packets a driver reads at most
/// from one interface, and how often at most the flush makes segments for one link, and for all
/// legs that are no links together.
///
/// One number for both, because what is made is answered: where many connections send little each,
/// every segment with an acknowledgement of its own. A driver that read less than is made would
/// fall behind these answers until they overflow its interface; one that read more would let data
/// wait that could leave.
pub const PACKETS_PER_TURN: usize = 256;
/// Where interfaces may be added, fragments of so many may wait at least.
const SPARE_REASSEMBLY_SHARES: usize = 4;
/// Budget of a leg without egress queue: one super-segment.
const ORDINARY_BUDGET_BYTES: u32 = 65_535;
/// A loop that is late by less changes nothing that is measured.
const LATE_MIN: Duration = Duration::from_millis(5);

/// A gateway. Call order: any of the `handle_*`, then `flush` once per batch, then sleep until
/// `poll_timeout`.
pub struct Gateway {
    pub(crate) engine: Engine,
    /// The configuration that it goes by, but for what has been set since.
    pub(crate) told: Config,
    pub(crate) interfaces: Interfaces,
    pub(crate) outlet: Outlet,
    /// One for each interface that fragments come in by: equal addresses of different domains do
    /// not meet.
    reassemblers: Vec<(IfaceId, Reassembler)>,
    /// So many of them may hold something.
    reassembly_shares: usize,
    pub(crate) ordinary: Ordinary,
    refusals_left: u32,
    refusals_since: Instant,
    drain_wanted: bool,
    /// Rules do something else since the last flush.
    pub(crate) actions_changed: bool,
    /// What waits is to be looked at with the next flush: routes have moved, or a link has gone.
    pub(crate) reroute_wanted: bool,
    /// More handshakes that have waited for their link may go on then.
    pub(crate) kept_due: Option<Instant>,
    wakes: Wakes,
    late: Late,
    /// When the driver called last.
    driven_at: Instant,
}

impl Gateway {
    /// A gateway of this configuration. `config.seed` makes it repeatable.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let is_spare = |i: &&Interface| i.name.is_empty();
        let spare = config.interfaces.iter().filter(is_spare).count();
        let named = config.interfaces.len() - spare;
        let reassembly_shares = named.max(spare.min(SPARE_REASSEMBLY_SHARES)).max(1);
        let limits = ReassemblyLimits {
            bytes: config.limits.reassembly_bytes / reassembly_shares,
            ..ReassemblyLimits::default()
        };
        let reassemblers = config.interfaces.iter().map(|i| (i.id, Reassembler::new(limits))).collect();
        Self {
            outlet: Outlet::new(&config),
            engine: Engine::new(told_apart(&config)),
            told: config,
            interfaces: Interfaces::default(),
            reassemblers,
            reassembly_shares,
            ordinary: Ordinary::default(),
            refusals_left: 0,
            refusals_since: Instant::ZERO,
            drain_wanted: false,
            actions_changed: false,
            reroute_wanted: false,
            kept_due: None,
            wakes: Wakes::default(),
            late: Late::default(),
            driven_at: Instant::ZERO,
        }
    }
    /// The buffer pool: drivers read packets into its blocks.
    pub fn pool(&mut self) -> &mut Pool {
        self.engine.pool()
    }

    /// A packet that came in so: by an interface, and of a bump with what the kernel has shown of
    /// it. What can be forwarded at once is transmitted during the call.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        from: impl Into<Via>,
        packet: PacketBuf,
        net: &mut dyn Network,
    ) {
        self.take_packet(now, from.into(), packet, net);
    }

    fn take_packet(&mut self, now: Instant, from: Via, mut packet: PacketBuf, net: &mut dyn Network) {
        self.driven_at = now;
        self.outlet.traffic.packets_in += 1;
        self.outlet.traffic.bytes_in += packet.len() as u64;
        if let Some(link) = self.outlet.links_mut().iter_mut().find(|link| link.iface() == from.iface) {
            link.note_arrival(now, &packet);
        }
        let shims = self.outlet.shims();
        if !shims.is_empty() && !self.outlet.hears_shims(from.iface) {
            // No gateway stands there.
            shim::take_out(&mut packet, shims);
        }
        match parse_with(packet.bytes(), shims) {
            Parsed::Tcp(s) => {
                if let Some(tap) = self.outlet.tap() {
                    tap.arrived(now, &s);
                }
                if let Some(packet) = self.handle_tcp(now, from, &s, packet, net) {
                    self.forward(now, from, self.outlet.places().of(&s), packet, net);
                }
                self.forward_copies(now, net);
            }
            Parsed::Icmp(mut e) => {
                self.outlet.traffic.packets_other += 1;
                if e.inner.is_none() {
                    e.inner = self.outlet.quoted_datagram(now, &packet, &e);
                }
                let exit = &mut self.outlet.exit(now, net, Grants::Unasked);
                let unclaimed = self.engine.handle_icmp(now, from.iface, &e, packet, exit);
                if let Some(packet) = unclaimed {
                    self.forward(now, from, Place::CONTROL, packet, net);
                }
            }
            Parsed::Fragment(info) if info.protocol == ip::PROTOCOL_TCP || shims.has(info.protocol) => {
                self.handle_fragment(now, from, &info, packet, net);
            }
            Parsed::Fragment(_) | Parsed::Other => {
                self.outlet.traffic.packets_other += 1;
                self.forward(now, from, self.outlet.places().of_other(packet.bytes()), packet, net);
            }
        }
    }

    fn handle_tcp(
        &mut self,
        now: Instant,
        from: Via,
        s: &TcpSegment,
        packet: PacketBuf,
        net: &mut dyn Network,
    ) -> Option<PacketBuf> {
        if s.ip.has_options {
            // What is made here would leave them out.
            return Some(packet);
        }
        self.outlet.left_behind.arrived(s);
        if s.flags.syn() && self.interfaces.is_leaving(from.iface) {
            return Some(packet);
        }
        let exit = &mut self.outlet.exit(now, net, Grants::Unasked);
        match self.engine.handle_packet(now, from, s, packet, exit) {
            Outcome::Forward(p) => Some(p),
            Outcome::Twice(p, copy) => {
                self.forward(now, from, self.outlet.places().of_copy(s), copy, net);
                Some(p)
            }
            Outcome::Taken => None,
            Outcome::Refuse(p) => {
                self.refuse(now, from, s, &p, net);
                p.recycle(self.engine.pool());
                None
            }
        }
    }

    /// Handshakes go out once more, right behind those that have just gone.
    fn forward_copies(&mut self, now: Instant, net: &mut dyn Network) {
        if self.engine.has_copies() {
            for (via, packet) in self.engine.take_copies() {
                self.forward(now, via, self.outlet.places().of_packet(packet.bytes()), packet, net);
            }
        }
    }

    /// TCP in IP fragments is put together; a whole segment that is not taken goes on as the
    /// fragments that came, or cut anew where something has been changed in it.
    fn handle_fragment(
        &mut self,
        now: Instant,
        from: Via,
        info: &FragmentInfo,
        packet: PacketBuf,
        net: &mut dyn Network,
    ) {
        let alone = self.outlet.places().of_fragment(info);
        // Each holds a share at most, so together they hold what is configured.
        let others = self.reassemblers.iter().filter(|(iface, r)| *iface != from.iface && !r.is_empty());
        if others.count() >= self.reassembly_shares {
            return self.forward(now, from, alone, packet, net);
        }
        let Some((_, reassembler)) = self.reassemblers.iter_mut().find(|(iface, _)| *iface == from.iface)
        else {
            return self.forward(now, from, alone, packet, net);
        };
        let pushed = reassembler.push(now, packet, info, self.engine.pool());
        for p in pushed.forward {
            self.forward(now, from, alone, p, net);
        }
        let Some(mut r) = pushed.whole else { return };
        let came = Head::of(r.whole.bytes());
        // What was cut on the way has lost its place in time: routers could not read it either.
        shim::take_out(&mut r.whole, self.outlet.shims());
        let (place, unclaimed) = match parse(r.whole.bytes()) {
            Parsed::Tcp(s) => (self.outlet.places().of(&s), self.handle_tcp(now, from, &s, r.whole, net)),
            _ => (alone, Some(r.whole)),
        };
        let forward = unclaimed.is_some();
        let edited = unclaimed.as_ref().filter(|p| Head::of(p.bytes()) != came);
        let again = edited.and_then(|p| cut_as(self.engine.pool(), p, info.id, &r.originals));
        if let Some(p) = unclaimed {
            p.recycle(self.engine.pool());
        }
        let go_on = forward && again.is_none();
        for p in again.into_iter().flatten() {
            self.forward(now, from, place, p, net);
        }
        for p in r.originals {
            if go_on {
                self.forward(now, from, place, p, net);
            } else {
                p.recycle(self.engine.pool());
            }
        }
    }

    /// A packet goes on: through the egress queue when it leaves by a declared link, at once
    /// otherwise.
    pub(crate) fn forward(
        &mut self,
        now: Instant,
        from: Via,
        place: Place,
        packet: PacketBuf,
        net: &mut dyn Network,
    ) {
        let pool = self.engine.pool();
        if let Some(link) = self.outlet.forward(now, from, place, packet, (pool, net)) {
            self.serve_link(now, link, PACKETS_PER_TURN, net);
        }
    }

    fn refuse(&mut self, now: Instant, from: Via, s: &TcpSegment, packet: &PacketBuf, net: &mut dyn Network) {
        if now.since(self.refusals_since) >= core::time::Duration::from_secs(1) {
            self.refusals_since = now;
            self.refusals_left = self.engine.config().limits.challenge_acks_per_s;
        }
        if self.refusals_left == 0 {
            return;
        }
        self.refusals_left -= 1;
        let source = self.icmp_source(from.iface, s.ip.is_v4()).unwrap_or(s.ip.dst);
        let mut bytes = Vec::new();
        if icmp::build_admin_prohibited(packet.bytes(), source, &mut bytes).is_ok() {
            let route = net.route(from, source, s.ip.src);
            let out = self.outlet.way(route.map_or(IfaceId::OTHER, |r| r.iface));
            self.outlet.send_own(now, (from, out), &bytes, net);
        }
    }

    /// Transmits what is owed and may go now: acknowledgements, granted and paced data. Once after
    /// each batch.
    pub fn flush(&mut self, now: Instant, net: &mut dyn Network) {
        self.driven_at = now;
        self.outlet.end_tap(now);
        for ends in self.outlet.left_behind.settle(now) {
            self.outlet.exit(now, net, Grants::Unasked).happened(&ends, Event::Abandoned(Carried::default()));
        }
        self.follow_links(now, net);
        if self.drain_wanted {
            self.drain_wanted = false;
            self.engine.drain(now, &mut self.outlet.exit(now, net, Grants::Unasked));
        }
        if core::mem::take(&mut self.actions_changed) {
            self.engine.follow_actions(now, &mut self.outlet.exit(now, net, Grants::Unasked));
        }
        self.follow_rates(now, net);
        self.follow_budgets();
        self.follow_pairs(now);
        while let Some(r) = self.engine.next_ready(now, &mut self.outlet.exit(now, net, Grants::Unasked)) {
            match self.outlet.link_mut(r.out) {
                Some(link) => link.set_ready(now, r.id, r.wants, r.pair),
                None => self.ordinary.push(now, r.id, r.wants),
            }
        }
        let mut left = PACKETS_PER_TURN;
        while left > 0
            && let Some(leg) = self.ordinary.pop()
        {
            left -= 1;
            let turn = Turn { budget_bytes: ORDINARY_BUDGET_BYTES, waited: now.since(leg.since) };
            let exit = &mut self.outlet.exit(now, net, Grants::Given);
            let pulled = self.engine.pull(now, leg.id, turn, exit);
            if let Some(wants) = pulled.more {
                self.ordinary.push(now, leg.id, wants);
            }
        }
        for i in 0..self.outlet.links().len() {
            let Some(way) = self.outlet.links().get(i).map(|l| l.way()) else { break };
            self.serve_link(now, way, PACKETS_PER_TURN, net);
        }
    }

    /// Links whose rate is found out or looked at: what was told of them, and what follows.
    fn follow_rates(&mut self, now: Instant, net: &mut dyn Network) {
        for (way, report) in self.engine.take_link_reports() {
            // An acknowledgement that waited here was not late by the link.
            let waited_here = report.of_host
                && report.sent_at.is_some_and(|sent_at| self.late.between(sent_at, now) >= LATE_MIN);
            if let Some(link) = self.outlet.link_mut(way).filter(|_| !waited_here) {
                link.hear(now, &report);
            }
        }
        for link in self.outlet.links_mut() {
            link.meter(now, net);
            let way = link.way();
            if link.takes_turns() {
                self.engine.begin_phase(now, way);
            }
            self.engine.follow_link_rtt(way);
            self.engine.follow_link_rate_in(way);
            let news = self.engine.links().get(way).and_then(|known| link.follow_rate(now, known));
            if let Some(news) = news {
                self.engine.apply(now, way, news);
            }
        }
    }

    /// Sends what the link's queue grants now.
    fn serve_link(&mut self, now: Instant, way: Way, mut left: usize, net: &mut dyn Network) {
        while left > 0
            && let Some(grant) = self.outlet.link_mut(way).and_then(|link| link.egress.next_grant(now))
        {
            left -= 1;
            match grant {
                Grant::Packet(waiting) => {
                    self.outlet.release(now, way, waiting, (self.engine.pool(), net));
                }
                Grant::Marked(mut waiting) => {
                    others::mark(waiting.packet.bytes_mut());
                    self.outlet.release(now, way, waiting, (self.engine.pool(), net));
                }
                Grant::Flow { id, class, bytes } => {
                    let ready = ReadyId::from_u64(id);
                    let turn = Turn { budget_bytes: bytes, waited: Duration::ZERO };
                    let exit = &mut self.outlet.exit(now, net, Grants::Given);
                    let pulled = self.engine.pull(now, ready, turn, exit);
                    if let Some(link) = self.outlet.link_mut(way) {
                        link.answer(now, ready, class, &pulled);
                    }
                }
            }
        }
        if let Some(link) = self.outlet.link_mut(way) {
            link.recycle_dropped(self.engine.pool());
        }
    }

    /// Connections whose buffers have been freed since the start: they have ended or fallen asleep.
    #[must_use]
    pub fn freed_flows(&self) -> u64 {
        self.engine.freed_flows()
    }

    /// Time has come (see `poll_timeout`); includes `flush`.
    pub fn handle_timeout(&mut self, now: Instant, net: &mut dyn Network) {
        if let Some(due) = self.poll_timeout().filter(|due| due.at <= now) {
            self.note_late(now, due.at);
            self.wakes.count(due.what);
        }
        self.engine.handle_timeout(now, &mut self.outlet.exit(now, net, Grants::Unasked));
        for n in 0..self.reassemblers.len() {
            let Some((iface, reassembler)) = self.reassemblers.get_mut(n) else { break };
            let iface = *iface;
            for p in reassembler.expire(now) {
                let place = self.outlet.places().of_packet(p.bytes());
                self.forward(now, iface.into(), place, p, net);
            }
        }
        self.flush(now, net);
    }

    /// Traces the first connection that fits `wish` from now on until `until`, or with `None` none.
    /// What it records is to be taken every few seconds; a trace that nobody takes from ends.
    ///
    /// # Errors
    /// Somebody else's trace is under way.
    pub fn trace(&mut self, now: Instant, wish: Option<(Wish, Instant)>) -> Result<(), &'static str> {
        let Some((wish, until)) = wish else {
            self.outlet.set_tap(None);
            return Ok(());
        };
        if self.outlet.tap().is_some_and(|tap| !tap.is_over(now)) {
            return Err("a trace is under way already; there is one at a time");
        }
        self.outlet.set_tap(Some(Tap::new(now, wish, until)));
        Ok(())
    }

    /// What the trace has recorded since the last time, and how the flow's senders are. `None`:
    /// there is no trace (any more).
    pub fn take_trace(&mut self, now: Instant) -> Option<Taken> {
        let tap = self.outlet.tap()?;
        let mut taken = tap.take(now);
        let (client, server) = match tap.flow() {
            Some(flow) => flow,
            None => return Some(taken),
        };
        if let Some(flow) = self.flow_between(now, client, server) {
            if flow.a == taken.server {
                // The server was heard first.
                core::mem::swap(&mut taken.client, &mut taken.server);
                taken.events.iter_mut().for_each(|e| e.of_client = !e.of_client);
            }
            let mut senders = SenderNow::of(&flow);
            let (to_server, to_client) = (&flow.out_b, &flow.out_a);
            for (sender, out) in senders.iter_mut().zip([to_server, to_client]) {
                if let Some(link) = self.outlet.links().iter().find(|l| l.interface() == out) {
                    sender.link_queue_bytes = link.egress.stats().backlog_bytes as u64;
                    sender.link_rate_bps = link.egress.config().rate_bps.unwrap_or(0);
                }
            }
            taken.senders = senders;
        }
        Some(taken)
    }

    /// When `handle_timeout` wants to be called next, and for what.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        if !self.ordinary.is_empty()
            || self.drain_wanted
            || self.actions_changed
            || self.engine.has_links_back()
            || self.engine.is_restarting()
            || self.reroute_wanted
        {
            return Some(Deadline { at: Instant::ZERO, what: Due::Work });
        }
        let engine = self.engine.poll_timeout();
        let links = self.outlet.links().iter().map(LinkQueue::poll_timeout);
        let fragments = self.reassemblers.iter().filter_map(|(_, r)| r.next_deadline()).min();
        let engine = engine.map(|due| Deadline { at: due.at, what: Due::Engine(due.what) });
        links
            .fold(Earliest::default().and_of(engine), Earliest::and_of)
            .and(Due::Reassembly, fragments)
            .and(Due::LeftBehind, self.outlet.left_behind.deadline())
            .and(Due::Work, self.kept_due)
            .deadline()
    }

    /// The loop gets round, and has not handed over anything yet: how late it is shows in what was
    /// due before. A loop that is never late need not say so.
    pub fn wake(&mut self, now: Instant) {
        if let Some(due) = self.poll_timeout().filter(|due| due.at <= now) {
            self.note_late(now, due.at);
        }
    }

    /// Something was due then. What was measured across the time since is not the link's: nothing
    /// is told of what waited here meanwhile, and a silence was none.
    fn note_late(&mut self, now: Instant, due: Instant) {
        self.engine.note_stood(due.max(self.driven_at), now);
        let Some(since) = self.late.note(now, due).filter(|since| now.since(*since) >= LATE_MIN) else {
            return;
        };
        self.engine.note_late(since, now);
        self.outlet.links_mut().iter_mut().for_each(|link| link.note_late(now.since(since)));
    }

    /// For how long between these two moments the loop was late. What was measured from one to the
    /// other (a round trip, a report, an acknowledgement) took longer by so much than it would have
    /// taken over the link alone, so it is no reason to lower a rate.
    #[must_use]
    pub fn late_between(&self, since: Instant, until: Instant) -> Duration {
        self.late.between(since, until)
    }

    /// The longest that the loop ever was late.
    #[must_use]
    pub fn late_longest(&self) -> Duration {
        self.late.longest()
    }

    /// Packets wait too long for the processor, or no longer: new connections are forwarded
    /// meanwhile.
    pub fn set_short_of_time(&mut self, is_short: bool) {
        self.engine.set_short_of_time(is_short);
    }
    /// Starts draining: nothing new is split, custody is delivered, then flows are forgotten and
    /// simply forwarded.
    pub fn drain(&mut self) {
        self.drain_wanted = true;
    }
    /// Ends draining, complete or not: new connections are split again.
    pub fn end_drain(&mut self) {
        self.drain_wanted = false;
        self.engine.end_drain();
    }
    /// Packets that were forwarded as they came, since the start.
    #[must_use]
    pub fn packets_forwarded(&self) -> u64 {
        self.outlet.traffic.packets_forwarded
    }
    /// Nothing is in custody any more: what still waits is only forwarded.
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.engine.is_drained()
    }
    /// Whether draining is complete: the gateway may be dropped without harm.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.engine.is_drained()
            && self.outlet.links().iter().all(|l| l.egress.is_idle())
            && self.reassemblers.iter().all(|(_, r)| r.is_empty())
    }
    /// Gives up all custody that is left: both hosts of each such flow are reset. Returns how many
    /// flows.
    pub fn abandon_all(&mut self, now: Instant, net: &mut dyn Network) -> usize {
        self.engine.abandon_all(now, &mut self.outlet.exit(now, net, Grants::Unasked))
    }
    /// After a crash: resets the connections whose custody died with the last process, and only
    /// those. [`Gateway::take_fates`] says later which still were.
    pub fn reset_recorded(&mut self, now: Instant, records: &[Record], net: &mut dyn Network) {
        self.outlet.left_behind.begin(now);
        self.engine.reset_recorded(now, records, &mut self.outlet.exit(now, net, Grants::Unasked));
        self.outlet.left_behind.has_begun();
    }
    /// What has become of those, once, when all of it is known: half a minute later at most.
    pub fn take_fates(&mut self) -> Option<Fates> {
        self.outlet.left_behind.take()
    }
    /// The largest values of gauges (`pool_max_bytes`, `held_max_bytes`) count from now on.
    pub fn reset_peaks(&mut self) {
        self.engine.reset_peaks();
    }
    /// A snapshot, without the ages of what has been found.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status_at(Instant::ZERO)
    }
    /// The same with these ages as they are at this moment.
    #[must_use]
    pub fn status_at(&self, now: Instant) -> Status {
        let known = |way: Way| self.engine.links().get(way);
        let loads = self.engine.loads();
        let load_of =
            |way| loads.iter().find(|(w, _)| *w == way).map_or_else(Load::default, |(_, load)| *load);
        let mut engine = self.engine.status();
        let given_up = &mut engine.counters.flows_abandoned;
        *given_up = given_up.saturating_sub(self.outlet.left_behind.not_reset());
        Status {
            engine,
            traffic: self.outlet.traffic,
            links: self.declared().map(|l| l.status(now, load_of(l.way()), known(l.way()))).collect(),
            reassembly_bytes: self.reassemblers.iter().map(|(_, r)| r.used_bytes() as u64).sum(),
            wakes: self.wakes.names().collect(),
            hosts: self.outlet.by_host.status(),
            hosts_bytes: self.outlet.by_host.memory_bytes() as u64,
        }
    }
    /// What the engine's memory is used for.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.engine.memory()
    }
    /// The flow between two endpoints, in whichever order they are named.
    #[must_use]
    pub fn flow_between(
        &self,
        now: Instant,
        one: core::net::SocketAddr,
        other: core::net::SocketAddr,
    ) -> Option<FlowStatus> {
        self.engine.flow_between(now, one, other).map(|flow| self.with_names(flow))
    }
    /// At most `limit` flows, in table order.
    #[must_use]
    pub fn flows(&self, now: Instant, limit: usize) -> Vec<FlowStatus> {
        self.engine.flows(now, limit).into_iter().map(|flow| self.with_names(flow)).collect()
    }
    /// Another journal has begun: what stood in the old one is kept once more.
    pub fn journal_again(&mut self, now: Instant, net: &mut dyn Network) {
        self.engine.journal_again(&mut self.outlet.exit(now, net, Grants::Unasked));
    }

    /// The next flows in table order, from this place on, of so many places; and the place to go on
    /// from.
    #[must_use]
    pub fn flows_from(&self, now: Instant, from: u32, places: u32) -> (Vec<FlowStatus>, Option<u32>) {
        let (flows, next) = self.engine.flows_from(now, from, places);
        (flows.into_iter().map(|flow| self.with_names(flow)).collect(), next)
    }
}
