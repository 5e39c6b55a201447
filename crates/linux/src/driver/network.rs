//! What the gateway asks of the world, answered by this machine: packets to devices, routes from
//! the kernel, records to the journal.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use farlink_gateway::{
    Counts, Ends, Event, FoundWay, IfaceId, Network, Record, Route, Sent, Shown as Told, Transmit, Via,
};
use farlink_wire::ip;

use super::connection_log::ConnectionLog;
use super::connections;
use super::faces::Faces;
use super::lookups::{Lookups, Question};
use super::own::OwnPackets;
use super::profile::{Profile, Stage};
use super::pulse::Pulse;
use super::routes::Routes;
use super::shown::{Passage, Shown};
use super::status::Counters;
use crate::bump::{Arrival, Marking, Marks, NO_BUMP, Place, Side, Way};
use crate::clock;
use crate::guard;
use crate::journal::Journal;
use crate::netlink::{Count, Leaves, RouteKey};

/// One interface that is diverted when it is there.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: IfaceId,
    /// The real interface, as it is configured or was found.
    pub(crate) interface: String,
    /// What it is called now, or was last.
    pub(crate) called: String,
    pub(crate) domain: u16,
    /// The configuration names it: it is waited for when it is not there.
    pub(crate) is_named: bool,
    /// It was found so that it is to have a bump.
    pub(crate) attach: bool,
    /// A link is declared on it.
    pub(crate) is_link: bool,
    /// Its interface, and its devices, are this one's now.
    pub(crate) moved_to: Option<IfaceId>,
    /// Its number now; `None`: it does not exist now.
    pub(crate) index: Option<u32>,
    /// Last reported state: up, with carrier.
    pub(crate) is_usable: bool,
    /// What the gateway was told of that.
    pub(crate) is_told_up: bool,
    /// Its devices: which of the faces. A TUN; of a bump one for what comes from the wire, and one
    /// for what comes out of the machine. None: its packets pass the bump of another one.
    pub(crate) faces: Range<usize>,
    /// Where the faces are bumps: of two interfaces the one with the smaller rank takes what passes
    /// both.
    pub(crate) rank: u16,
    /// The rank that the programs at its interface know: they hear of another one some time after
    /// it was chosen. Where a packet goes follows what they do with it.
    pub(super) rank_in_force: Arc<AtomicU16>,
    /// Its packets are to be let go: so much was ordered of the workshop with that, where programs
    /// take them; else the change of the guard that says it.
    pub(super) let_go: Option<u64>,
}

/// What an interface has carried, as it was read last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    /// Received, and sent.
    pub(super) counts: Option<[Count; 2]>,
    /// See [`Pulse::written`]; `None`: packets left while it was read.
    pub(super) written: Option<u64>,
    /// It is being read.
    pub(super) is_awaited: bool,
    /// It has been read, and the gateway has not seen it.
    pub(super) is_news: bool,
}

/// The machine, as the gateway sees it.
#[derive(Debug)]
pub(crate) struct LinuxNetwork {
    pub(crate) ports: Vec<Port>,
    pub(crate) faces: Faces,
    pub(super) routes: Routes,
    /// Who asks the kernel for routes and counters.
    pub(super) lookups: Lookups,
    /// What interfaces have carried, by their numbers.
    pub(super) carried: HashMap<u32, Carried>,
    pub(crate) pulse: Arc<Pulse>,
    /// Interfaces that stand upon others, and upon which: the counters of these have both.
    pub(crate) parents: HashMap<u32, u32>,
    /// The MTUs of interfaces, in bytes.
    pub(super) mtus: HashMap<u32, u32>,
    pub(crate) journal: Option<Journal>,
    /// Without a journal nothing is promised.
    pub(super) wants_journal: bool,
    /// Records that journals before this one had no room for.
    pub(super) refused_before: u64,
    pub(crate) counters: Counters,
    /// Where the time goes, while somebody wants to know.
    pub(crate) profile: Option<Box<Profile>>,
    /// A line for each connection, where somebody wants it.
    pub(crate) connection_log: Option<ConnectionLog>,
    /// Interface number -> the gateway's number.
    pub(crate) by_index: HashMap<u32, IfaceId>,
    /// Where the faces are bumps: what the kernel shows of the way of packets.
    pub(crate) shown: Option<Shown>,
    /// And the marks that packets are given back.
    pub(crate) marks: Option<Marks>,
    /// For packets in the machine's own name, where the faces are bumps.
    pub(crate) own: Option<Arc<OwnPackets>>,
}

impl LinuxNetwork {
    /// The port of this number, or the one that has its place now.
    pub(crate) fn port(&self, id: IfaceId) -> Option<&Port> {
        let of = |id| self.ports.iter().find(|p| p.id == id);
        let port = of(id)?;
        port.moved_to.map_or(Some(port), of)
    }

    /// The ways through the bumps.
    pub(crate) fn ways(&self) -> Vec<guard::Passing> {
        let of_port = |port: &Port| {
            let (interface, rank) = (port.interface.clone(), port.rank);
            let sides = port.faces.clone().zip([Side::Stack, Side::Wire]);
            let way = move |(n, to): (usize, Side)| {
                let device = self.faces.get(n)?.index();
                Some(guard::Passing { interface: interface.clone(), n, device, rank, to })
            };
            sides.filter_map(way).collect::<Vec<_>>()
        };
        self.ports.iter().flat_map(of_port).collect()
    }

    /// A packet was read from a face: by which interface it came into the machine, and what the
    /// kernel has shown of it.
    pub(crate) fn arrived(&mut self, face: usize, arrival: Option<Arrival>, packet: &[u8]) -> Via {
        let own = self.faces.owner(face).unwrap_or(IfaceId::OTHER);
        let Some(Arrival { from, interface, next_hop, marking, .. }) = arrival else { return own.into() };
        let Marking { mark, priority } = marking;
        let mut shown = Told { mark, priority, ..Told::default() };
        if from == Side::Wire {
            return Via { iface: own, shown };
        }
        shown.out = Some(own);
        let index = self.port(own).and_then(|p| p.index);
        if let (Some(leaves_by), Some(ends)) = (index, ip::addresses(packet)) {
            let passage = Passage { ends, ports: ip::tcp_ports(packet), came_by: interface, leaves_by, mark };
            let Self { shown: told, routes, lookups, .. } = self;
            let says = told.as_mut().map(|told| {
                let state = routes.state();
                told.says(&passage, state, |key| routes.get(key, lookups))
            });
            shown.found = says.map_or(FoundWay::Not, |says| says.found);
            shown.next_hop = next_hop.filter(|_| says.is_none_or(|says| !says.finds_next_hop));
        }
        Via { iface: self.by_index.get(&interface).copied().unwrap_or(IfaceId::OTHER), shown }
    }

    /// The face through which packets go to this side of an interface.
    fn face_of(&self, id: IfaceId, to: Side) -> Option<usize> {
        let mut faces = self.port(id)?.faces.clone();
        match to {
            Side::Stack => faces.next(),
            Side::Wire => faces.next_back(),
        }
    }

    fn rank_of(&self, id: IfaceId) -> u16 {
        self.port(id).map_or(NO_BUMP, |p| p.rank_in_force.load(Ordering::Relaxed))
    }

    /// Which face a packet is written to, which way it goes from there, and with which mark. A TUN:
    /// that of the claimed source's interface. A bump: that of the interface which takes what
    /// passes both, on the side that is nearer to the destination.
    fn way(&mut self, packet: &Transmit<'_>) -> (usize, Way, Marking) {
        // Where it does not matter by which it comes in (a reset after a restart, an interface that
        // is gone), any will do.
        let via = self.face_of(packet.via.iface, Side::Stack);
        let shown = packet.via.shown;
        let marking = Marking { mark: shown.mark, priority: shown.priority };
        // The kernel gives it a mark on its way through the machine: what it had at the end of that
        // is not what it begins with.
        let unmarked = if shown.out.is_none() { marking } else { Marking::default() };
        let into_machine = (via.unwrap_or_else(|| self.faces.first()), Way::IntoMachine, unmarked);
        if self.shown.is_none() {
            return into_machine;
        }
        let out = self.leaves_by(packet);
        match self.face_of(out, Side::Wire) {
            Some(face) if via.is_none() || self.rank_of(out) < self.rank_of(packet.via.iface) => {
                let next_hop = shown.next_hop.filter(|_| shown.out == Some(out));
                (face, next_hop.map_or(Way::Out, Way::OutTo), marking)
            }
            _ => into_machine,
        }
    }

    /// By which interface a packet is to leave. Where there is no link nobody has asked.
    fn leaves_by(&mut self, packet: &Transmit<'_>) -> IfaceId {
        if self.port(packet.out).is_some() {
            return packet.out;
        }
        let route = ip::addresses(packet.header).and_then(|(src, dst)| self.route(packet.via, src, dst));
        route.map_or(IfaceId::OTHER, |r| r.iface)
    }

    /// `None`: it is being asked.
    fn ask(&mut self, key: &RouteKey) -> Option<Option<Leaves>> {
        self.routes.get(key, &mut self.lookups)
    }

    /// Which way a packet leaves that came in so. `None`: it is being asked.
    fn way_of(&mut self, from: Via, src: IpAddr, dst: IpAddr) -> Option<Option<Leaves>> {
        if self.shown.is_some() {
            return self.way_round_bumps(from, src, dst);
        }
        let port = self.port(from.iface);
        let face = port.filter(|p| !p.faces.is_empty()).and_then(|p| self.faces.get(p.faces.start));
        let from = face.map(|f| (src, f.index()));
        self.ask(&RouteKey { destination: dst, from, mark: 0, ports: None })
    }

    /// Round the bump of an interface the kernel has already chosen. What it did counts until it
    /// does something else, or the question says something else that has had the same answer. Of a
    /// translated source the kernel knows only as of one of its own.
    fn way_round_bumps(&mut self, from: Via, src: IpAddr, dst: IpAddr) -> Option<Option<Leaves>> {
        let Told { out, mark, found, .. } = from.shown;
        let ports = match found {
            FoundWay::ByPorts(from, to) => Some((from, to)),
            FoundWay::ByAddresses | FoundWay::Not => None,
        };
        let at = self.port(from.iface).and_then(|p| p.index);
        let key = RouteKey { destination: dst, from: at.map(|at| (src, at)), mark, ports };
        let mut asked = self.ask(&key);
        if asked == Some(None) && at.is_some() {
            asked = self.ask(&RouteKey { from: None, ..key });
        }
        let shown = out.and_then(|out| self.port(out)).and_then(|p| Some((p.index?, p.is_usable)));
        let Some((interface, is_usable)) = shown else { return asked };
        let counts = |leaves: Leaves| found != FoundWay::Not || !is_usable || leaves.interface == interface;
        match asked {
            Some(Some(leaves)) if counts(leaves) => asked,
            _ => match self.mtus.get(&interface) {
                Some(mtu) => Some(Some(Leaves { interface, mtu: *mtu, gateway: None })),
                None => asked,
            },
        }
    }

    /// Whether it is known which way a packet leaves that came in so. Else it is known soon.
    pub(super) fn knows_way(&mut self, from: Via, packet: &[u8]) -> bool {
        ip::addresses(packet).is_none_or(|(src, dst)| self.way_of(from, src, dst).is_some())
    }

    /// The interface whose counters tell what it has carried. One that others stand on counts
    /// theirs, too.
    fn counted(&self, iface: IfaceId) -> Option<&Port> {
        let is_parent = |index: &u32| self.parents.values().any(|of| of == index);
        self.port(iface).filter(|port| port.index.is_some_and(|index| !is_parent(&index)))
    }

    fn carried_by(&self, iface: IfaceId, way: usize) -> Option<Sent> {
        let carried = self.carried.get(&self.counted(iface)?.index?)?;
        let Count { packets, bytes } = *carried.counts?.get(way)?;
        Some(Sent { packets, bytes })
    }

    /// What has been counted.
    pub(crate) fn counters(&self) -> Counters {
        let (connections_logged, connections_unlogged) =
            self.connection_log.as_ref().map(ConnectionLog::counts).unwrap_or_default();
        let route_errors = self.routes.counts().1;
        let marks_replaced = self.marks.as_ref().map_or(0, Marks::replaced);
        Counters { connections_logged, connections_unlogged, route_errors, marks_replaced, ..self.counters }
    }
}

impl Network for LinuxNetwork {
    fn transmit(&mut self, packet: &Transmit<'_>) {
        let began = self.profile.is_some().then(clock::now);
        if packet.is_made && self.own.as_ref().is_some_and(|own| own.sends(packet)) {
            self.counters.own_packets += 1;
        } else {
            let (n, way, marking) = self.way(packet);
            let place = self.marks.as_mut().map_or(Place::default(), |marks| marks.place(marking));
            if let Some(face) = self.faces.get_mut(n) {
                face.transmit((way, place), packet, &mut self.counters);
            }
            self.pulse.written.add(1);
        }
        if let (Some(began), Some(profile)) = (began, &mut self.profile) {
            profile.note(Stage::Write, began, clock::now());
        }
    }

    fn route(&mut self, from: Via, src: IpAddr, dst: IpAddr) -> Option<Route> {
        self.way_of(from, src, dst).flatten().map(|leaves| Route {
            iface: self.by_index.get(&leaves.interface).copied().unwrap_or(IfaceId::OTHER),
            mtu_bytes: leaves.mtu,
        })
    }

    fn counts(&mut self, iface: IfaceId) -> Counts {
        let Some((index, name)) = self.counted(iface).and_then(|p| Some((p.index?, &p.called))) else {
            return Counts::Exact;
        };
        let mut carried = self.carried.get(&index).copied().unwrap_or_default();
        if !std::mem::take(&mut carried.is_news) {
            if !carried.is_awaited {
                carried.is_awaited = self.lookups.ask(Question::Carried(index, name.clone()));
                self.carried.insert(index, carried);
            }
            return Counts::Awaited;
        }
        self.carried.insert(index, carried);
        let is_exact = carried.written == Some(self.pulse.written.get());
        if is_exact { Counts::Exact } else { Counts::Recent }
    }

    fn sent_by(&mut self, iface: IfaceId) -> Option<Sent> {
        self.carried_by(iface, 1)
    }

    fn received_by(&mut self, iface: IfaceId) -> Option<Sent> {
        self.carried_by(iface, 0)
    }

    fn journal(&mut self, slot: u32, record: Option<&Record>) {
        if let Some(journal) = &mut self.journal {
            journal.put(slot, record);
        }
    }

    fn is_kept(&self, slot: u32) -> bool {
        self.journal.as_ref().map_or(!self.wants_journal, |journal| journal.has_room(slot))
    }

    fn happened(&mut self, ends: &Ends, what: Event) {
        connections::tell(ends, what);
        if let Some(log) = &mut self.connection_log {
            log.happened(clock::now(), ends, what);
        }
    }
}
