//! The one way out. Everything that leaves passes here, made or forwarded: the outlet finds the
//! link, charges its queue, chooses the shape of what is made, shows the packet to the trace,
//! counts it and writes it.

use core::net::IpAddr;

use farlink_engine::config::{Config, DscpClasses, Rule};
use farlink_engine::event::{Carried, Ends, Event};
use farlink_engine::net::{IfaceId, LinkId, Route, Via, Way};
use farlink_engine::record::Record;
use farlink_engine::room;
use farlink_engine::world::{Fragments, Made, World};
use farlink_wire::{
    Flags, Gso, IcmpError, InnerTcp, Instant, Offload, PacketBuf, Parsed, Pool, SegmentHeader, ShimProtocols,
    WireSize, edit, finish_checksums, fragment, icmp, ip, parse_with, shim, supersegment, verify_checksums,
};

use crate::by_host::ByHost;
use crate::datagrams::Datagrams;
use crate::identification::Identifications;
use crate::kinds::Kind;
use crate::left_behind::LeftBehind;
use crate::links::{self, LinkQueue, Waiting};
use crate::network::{Network, Transmit};
use crate::place::{Place, Places, What};
use crate::status::Traffic;
use crate::tap::Tap;

/// See the module.
pub struct Outlet {
    links: Vec<LinkQueue>,
    /// They say which class a forwarded packet has.
    rules: Vec<Rule>,
    /// The same of what no rule gives one.
    dscps: DscpClasses,
    identifications: Identifications,
    datagrams: Datagrams,
    /// IP protocols that stand for XCP's own header.
    places: Places,
    /// The trace of a connection, while one is wanted.
    tap: Option<Box<Tap>>,
    /// What has come and gone.
    pub traffic: Traffic,
    /// Connections that an earlier process has left behind.
    pub left_behind: LeftBehind,
    /// What the connections of each host have carried.
    pub by_host: ByHost,
}

/// Whether the queue of a link has granted what leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grants {
    /// It has, and hears afterwards what was sent.
    Given,
    /// Nobody has asked: what leaves by a link is charged to it at once. Else many connections that
    /// end together fill the queue of a link that nothing empties again.
    Unasked,
}

/// What a made segment becomes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// One packet.
    Whole,
    /// A super-segment: the interface cuts it into packets of so many payload bytes.
    Super { segment_bytes: u16 },
}

impl Shape {
    fn of(made: &Made<'_>) -> Self {
        let segment_bytes = made.segment_bytes.max(1);
        match made.payload_bytes() > segment_bytes as usize {
            true => Self::Super { segment_bytes: u16::try_from(segment_bytes).unwrap_or(u16::MAX) },
            false => Self::Whole,
        }
    }

    /// How many packets it becomes.
    fn packets(self, payload_bytes: usize) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Super { segment_bytes } => {
                u32::try_from(payload_bytes.div_ceil(usize::from(segment_bytes.max(1)))).unwrap_or(u32::MAX)
            }
        }
    }

    /// Says to the driver how it is to be cut.
    fn tell(self, header: &SegmentHeader<'_>, offload: &mut Offload) {
        if let Self::Super { segment_bytes } = self {
            offload.gso = if header.src.is_ipv4() { Gso::Tcp4 } else { Gso::Tcp6 };
            offload.gso_size = segment_bytes;
            offload.gso_ecn = header.flags.contains(Flags::CWR);
        }
    }
}

/// The outlet and the driver, as the engine sees them during a call.
pub struct Exit<'a> {
    outlet: &'a mut Outlet,
    net: &'a mut dyn Network,
    now: Instant,
    grants: Grants,
}

impl Outlet {
    /// The outlet of a gateway of this configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            links: links::queues(config),
            rules: config.rules.clone(),
            dscps: config.dscps,
            identifications: Identifications::new(config.seed),
            datagrams: Datagrams::new(config.seed),
            places: Places::new(config),
            tap: None,
            traffic: Traffic::default(),
            left_behind: LeftBehind::default(),
            by_host: ByHost::default(),
        }
    }

    /// Classes of forwarded packets go by these rules from now on.
    pub fn set_rules(&mut self, rules: &[Rule]) {
        self.rules = rules.to_vec();
    }

    /// And by their DSCP, where no rule gives them one.
    pub fn set_dscps(&mut self, dscps: DscpClasses) {
        self.dscps = dscps;
    }

    /// The declared links.
    pub fn links(&self) -> &[LinkQueue] {
        &self.links
    }

    /// The declared links, to change.
    pub fn links_mut(&mut self) -> &mut [LinkQueue] {
        &mut self.links
    }

    /// The link that a way leads into.
    pub fn link_mut(&mut self, way: Way) -> Option<&mut LinkQueue> {
        let Way::Link(LinkId(n)) = way else { return None };
        self.links.get_mut(usize::from(n))
    }

    /// Which way packets leave that leave by this interface.
    pub fn way(&self, iface: IfaceId) -> Way {
        self.links.iter().find(|l| l.iface() == iface).map_or(Way::Ordinary(iface), |link| link.way())
    }

    /// IP protocols that stand for XCP's own header.
    pub fn shims(&self) -> ShimProtocols {
        self.places.shims()
    }

    /// Gives packets their places.
    pub fn places(&self) -> Places {
        self.places
    }

    /// What comes in by this interface may have that header from a gateway.
    pub fn hears_shims(&self, iface: IfaceId) -> bool {
        self.links.iter().any(|link| link.iface() == iface && link.shim().is_some())
    }

    /// The protocol of that header on a way; `None`: nobody there is to see it.
    fn shim_of(&self, out: Way) -> Option<u8> {
        let Way::Link(LinkId(n)) = out else { return None };
        self.links.get(usize::from(n))?.shim()
    }

    /// The interface of a way.
    fn iface(&self, way: Way) -> IfaceId {
        match way {
            Way::Link(LinkId(n)) => {
                self.links.get(usize::from(n)).map_or(IfaceId::OTHER, |link| link.iface())
            }
            Way::Ordinary(iface) => iface,
        }
    }

    /// For a call of the engine.
    pub fn exit<'a>(&'a mut self, now: Instant, net: &'a mut dyn Network, grants: Grants) -> Exit<'a> {
        Exit { outlet: self, net, now, grants }
    }

    /// A packet goes on. Returned: the link in whose queue it waits; without a link it has left.
    /// The TUN costs one hop more than a router; the TTL gets it back.
    pub fn forward(
        &mut self,
        now: Instant,
        from: Via,
        place: Place,
        mut packet: PacketBuf,
        (pool, net): (&mut Pool, &mut dyn Network),
    ) -> Option<Way> {
        edit::increment_packet_ttl(packet.bytes_mut());
        self.traffic.packets_forwarded += 1;
        let route = (!self.links.is_empty())
            .then(|| ip::addresses(packet.bytes()))
            .flatten()
            .and_then(|(src, dst)| net.route(from, src, dst));
        let iface = route.map_or(IfaceId::OTHER, |r| r.iface);
        let out = self.way(iface);
        let (classes, shims) = ((&*self.rules, &self.dscps), self.places.shims());
        let Some(link) = self.links.iter_mut().find(|l| l.way() == out) else {
            self.write_packet(now, (from, out), &mut packet, net);
            packet.recycle(pool);
            return None;
        };
        let kind = if place.what == What::Copy { Kind::Split } else { Kind::of(packet.bytes(), shims) };
        if !link.egress.is_idle() && pool.is_pressed() {
            packet = packet.shrunk(pool);
            if !room::may_wait(pool) {
                link.note_dropped(kind);
                packet.recycle(pool);
                return None;
            }
        }
        let class = place.class(classes, (from.iface, iface), packet.bytes(), shims);
        let hash = place.hash;
        for packet in in_turns(packet, link.egress.turn_bytes(class), pool) {
            link.enqueue(
                now,
                Waiting { packet, via: from, since: now, hash, class, kind, is_shared: false },
                pool,
            );
        }
        Some(out)
    }

    /// A packet that has waited for a link moves to another way.
    pub fn move_on(
        &mut self,
        now: Instant,
        out: Way,
        mut waiting: Waiting,
        (pool, net): (&mut Pool, &mut dyn Network),
    ) {
        match self.link_mut(out) {
            Some(link) => link.enqueue(now, waiting, pool),
            None => {
                self.take_options_out(&mut waiting.packet);
                self.release(now, out, waiting, (pool, net));
            }
        }
    }

    /// A packet that waited for a link goes to a host: what gateways tell each other stays here.
    fn take_options_out(&self, packet: &mut PacketBuf) {
        if let Parsed::Tcp(s) = parse_with(packet.bytes(), self.shims())
            && s.options.has_ours()
            && verify_checksums(packet.bytes(), &s, &packet.offload)
        {
            edit::remove_farlink_option(packet, &s);
        }
    }

    /// A packet that has waited leaves.
    pub fn release(
        &mut self,
        now: Instant,
        out: Way,
        mut waiting: Waiting,
        (pool, net): (&mut Pool, &mut dyn Network),
    ) {
        if let Some(link) = self.link_mut(out) {
            link.release(now, &mut waiting);
        }
        self.write_packet(now, (waiting.via, out), &mut waiting.packet, net);
        waiting.packet.recycle(pool);
    }

    /// A packet of the gateway's own leaves at once.
    pub fn send_own(&mut self, now: Instant, (via, out): (Via, Way), bytes: &[u8], net: &mut dyn Network) {
        let offload = Offload::default();
        self.charge(now, out, supersegment::wire_size(bytes, &offload), Kind::Icmp);
        let out = self.iface(out);
        let packet = Transmit { via, out, header: bytes, payload: &[], offload, is_made: true };
        self.write(now, &packet, net);
    }

    fn write_packet(
        &mut self,
        now: Instant,
        (via, out): (Via, Way),
        packet: &mut PacketBuf,
        net: &mut dyn Network,
    ) {
        if !self.shims().is_empty() && self.shim_of(out).is_none() {
            // It is for gateways and routers on links that are declared so.
            shim::take_out(packet, self.shims());
        }
        let offload = packet.offload;
        let header = packet.bytes();
        let out = self.iface(out);
        self.write(now, &Transmit { via, out, header, payload: &[], offload, is_made: false }, net);
    }

    fn charge(&mut self, now: Instant, out: Way, size: WireSize, kind: Kind) {
        if let Some(link) = self.link_mut(out) {
            link.charge(now, size, kind);
        }
    }

    fn write(&mut self, now: Instant, packet: &Transmit<'_>, net: &mut dyn Network) {
        if let Some(tap) = self.tap.as_mut() {
            tap.leaves(now, packet);
        }
        self.traffic.packets_out += 1;
        self.traffic.bytes_out += packet.len() as u64;
        if let Some(link) = self.links.iter_mut().find(|link| link.iface() == packet.out) {
            let header = packet.header.len();
            let size = match packet.payload {
                [] => supersegment::wire_size(packet.header, &packet.offload),
                _ => WireSize::of(header, packet.len() - header, &packet.offload),
            };
            link.note_written(packet.len(), size);
        }
        net.transmit(packet);
    }

    /// The trace that is under way.
    pub fn tap(&mut self) -> Option<&mut Tap> {
        self.tap.as_deref_mut()
    }

    /// Another trace, or none.
    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap.map(Box::new);
    }

    /// The segment that an ICMP error is about which quotes a later one of its fragments.
    pub fn quoted_datagram(&self, now: Instant, packet: &PacketBuf, e: &IcmpError) -> Option<InnerTcp> {
        let fragment = icmp::quoted_fragment(packet.bytes(), e)?;
        self.datagrams.quoted(now, &fragment)
    }

    /// A trace whose time is over, or that nobody reads, ends.
    pub fn end_tap(&mut self, now: Instant) {
        if self.tap.as_ref().is_some_and(|tap| tap.is_over(now)) {
            self.tap = None;
        }
    }
}

/// A super-segment in parts of at most so many wire bytes, a packet at least: whoever goes before
/// it does not wait for all of it. Only those of the kernel, which has found their checksums right.
fn in_turns(packet: PacketBuf, turn_bytes: u32, pool: &mut Pool) -> Vec<PacketBuf> {
    let size = supersegment::wire_size(packet.bytes(), &packet.offload);
    if size.packets <= 1 || size.bytes <= turn_bytes || !packet.offload.is_partial() {
        return vec![packet];
    }
    let packets = turn_bytes / size.bytes.div_ceil(size.packets).max(1);
    let mut parts = Vec::new();
    supersegment::cut(packet.bytes(), &packet.offload, packets as usize, &mut |bytes, offload| {
        parts.push(PacketBuf::from_slice(pool, bytes, *offload));
    });
    packet.recycle(pool);
    parts
}

impl Exit<'_> {
    /// A segment that is larger than a packet leaves in fragments: the first of them at once, as
    /// what was granted, and the others when it is their turn. Returns what has left; `None`: it
    /// cannot leave so.
    fn send_fragments(&mut self, made: &Made<'_>, how: Fragments) -> Option<WireSize> {
        let header = &made.header;
        let id = self.outlet.datagrams.take(self.now, header.src, header.dst)?;
        let fields = SegmentHeader { ip_id: id as u16, dont_fragment: how.dont_fragment, ..*header };
        let (bytes, offload) = fields.write(made.payload_bytes()).ok()?;
        let mut whole = bytes.to_vec();
        made.payload.iter().for_each(|part| whole.extend_from_slice(part));
        finish_checksums(&mut whole, &offload);
        let mut fragments = Vec::new();
        fragment(&whole, how.packet_bytes as usize, id, &mut |f| fragments.push(f.to_vec())).ok()?;
        let segment = InnerTcp {
            src: header.src,
            dst: header.dst,
            src_port: header.src_port,
            dst_port: header.dst_port,
            seq: header.seq,
            total_len: u32::try_from(whole.len()).unwrap_or(u32::MAX),
            has_shim: false,
            is_by_identification: true,
        };
        self.outlet.datagrams.note_sent(self.now, id, segment);
        let mut waiting = fragments.into_iter();
        let first = waiting.next()?;
        let mut leaves = vec![first];
        match self.outlet.link_mut(made.out).filter(|_| self.grants == Grants::Given) {
            Some(link) => leaves.extend(link.queue_fragments(self.now, made.via, waiting)),
            None => leaves.extend(waiting),
        }
        let mut size = WireSize::default();
        for bytes in leaves {
            let (via, out) = (made.via, self.outlet.iface(made.out));
            let offload = Offload::default();
            let one = WireSize { bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX), packets: 1 };
            if self.grants == Grants::Unasked {
                self.outlet.charge(self.now, made.out, one, Kind::Split);
            }
            size = size.and(one);
            let packet = Transmit { via, out, header: &bytes, payload: &[], offload, is_made: true };
            self.outlet.write(self.now, &packet, self.net);
        }
        Some(size)
    }
}

impl World for Exit<'_> {
    fn send(&mut self, made: &Made<'_>) -> WireSize {
        let is_larger = made.payload_bytes() > made.segment_bytes as usize;
        if let Some(how) = made.fragments.filter(|_| is_larger)
            && let Some(size) = self.send_fragments(made, how)
        {
            return size;
        }
        let payload_bytes = made.payload_bytes();
        let shape = Shape::of(made);
        let (src, dst) = (made.header.src, made.header.dst);
        let ip_id = match made.header.ip_id {
            0 => self.outlet.identifications.take(src, dst, shape.packets(payload_bytes)),
            // It is told by this.
            fixed => fixed,
        };
        let fields = SegmentHeader { ip_id, ..made.header };
        let Ok((mut header, mut offload)) = fields.write(payload_bytes) else {
            return WireSize::default();
        };
        match &made.shim {
            None => shape.tell(&fields, &mut offload),
            Some(shim) => {
                let Some(protocol) = self.outlet.shim_of(made.out) else { return WireSize::default() };
                if shim.put_into(protocol, (&mut header, &mut offload), made.payload).is_err() {
                    return WireSize::default();
                }
            }
        }
        let size = WireSize::of(header.len(), payload_bytes, &offload);
        if self.grants == Grants::Unasked {
            self.outlet.charge(self.now, made.out, size, Kind::Split);
        }
        let (via, out, payload) = (made.via, self.outlet.iface(made.out), made.payload);
        let packet = Transmit { via, out, header: &header, payload, offload, is_made: true };
        self.outlet.write(self.now, &packet, self.net);
        if let Some(ends) = self.outlet.left_behind.made(&made.header) {
            self.happened(&ends, Event::Abandoned(Carried::default()));
        }
        size
    }

    fn route(&mut self, from: Via, src: IpAddr, dst: IpAddr) -> Option<Route> {
        self.net.route(from, src, dst)
    }

    fn journal(&mut self, slot: u32, record: Option<&Record>) {
        self.net.journal(slot, record);
    }

    fn is_kept(&self, slot: u32) -> bool {
        self.net.is_kept(slot)
    }

    fn happened(&mut self, ends: &Ends, what: Event) {
        if matches!(what, Event::Abandoned(_)) && self.outlet.left_behind.takes(ends) {
            return;
        }
        if let Some(tap) = self.outlet.tap() {
            tap.happened(self.now, ends, what);
        }
        self.outlet.by_host.happened(ends, what);
        self.net.happened(ends, what);
    }
}
