//! What gateways at both ends of a link do for each other before there is any data: the answer to a
//! SYN tells how much the far one takes at once, and on a link that loses SYN and answer cross
//! twice.

use farlink_wire::{
    FARLINK_SYN, FARLINK_SYN_ACK, FarlinkOption, Flags, Instant, PacketBuf, TcpSegment, WireSize,
    supersegment,
};

use super::{Engine, Outcome};
use crate::config::{Action, FlowControl};
use crate::cx::Cx;
use crate::flow_id::FlowId;
use crate::hosts::{Hosts, look_up};
use crate::net::{IfaceId, Via, Way};
use crate::peer::{Capability, Opening};
use crate::promise::Promise;
use crate::side::{Pair, Side};
use crate::spent::Heading;
use crate::table::Key;
use crate::world::World;

/// Where the share of a connection in a link's budget is smaller than this, its SYN shows two
/// segments.
const FIRST_SHARE_BYTES: u32 = 4 * 65_536;
const FIRST_WINDOW_BYTES: u16 = 2 * 1460;

/// Copies are made while no more than one part of so many of the half-open connections are there
/// that may be.
const HALF_OPEN_PARTS: usize = 4;
/// What comes again of a handshake that is over lies no further back than this in its connection.
const LATE_BYTES: u32 = 1 << 20;

impl Engine {
    /// The window that a SYN or its answer may show, where what it asks for goes into a link whose
    /// budget is for many: enough to begin with. What the connection gets is decided when it is
    /// established.
    pub(super) fn first_window(&self, out: Way) -> Option<u16> {
        let automatic = self.config.flow_control == FlowControl::Automatic;
        let share = self.links.equal_share(out, self.syns.len()).filter(|_| automatic)?;
        (share < FIRST_SHARE_BYTES).then_some(FIRST_WINDOW_BYTES)
    }

    /// What is said in a packet of a handshake that leaves by this interface, towards a gateway
    /// that lets one go on of two, or not. `may_be_two`: its host has not sent it before, and
    /// no box on the way is known to drop the option.
    pub(super) fn opening(
        &self,
        now: Instant,
        (rule, via, out): (usize, IfaceId, IfaceId),
        (may_be_two, of_two_one): (bool, bool),
    ) -> Opening {
        let ways = [via, out].map(|iface| self.links.way(iface));
        let is_held = self.action_over(now, rule, ways).and_then(Action::custody).is_some();
        let hello = self.links.hello();
        let opening = Opening::of(if is_held { hello.with(Capability::Custody) } else { hello });
        let Some(link) = self.links.at(out).filter(|_| of_two_one) else { return opening };
        let is_crowded = self.syns.len() > self.config.limits.half_open_max / HALF_OPEN_PARTS;
        let may = link.loses_openings() && link.may_copy(now) && !link.evidence().is_away();
        Opening {
            leaves_twice: may && may_be_two && !is_crowded,
            link_loses: link.is_known_to_lose(),
            ..opening
        }
    }

    /// What the gateway that has asked may send before it hears of another window: as much as a
    /// connection that begins may hold here. The same in each repetition. `None`: no more than the
    /// header shows.
    pub(super) fn window_to_tell(&mut self, now: Instant, key: Key, net: &mut dyn World) -> Option<u32> {
        let h = self.syns.get_mut(&key)?;
        let (rule, answer) = (h.rule, h.answer.as_deref()?);
        if answer.told_window_bytes.is_some() {
            return answer.told_window_bytes;
        }
        let (agreed, mut legs) = (answer.agreed, Pair { a: h.a.clone(), b: answer.b.clone() });
        self.resolve_ways(&mut legs);
        let mut cx = cx!(self, now, net);
        for to in [Side::A, Side::B] {
            look_up(&mut cx, &mut legs, to);
        }
        let ways = [legs.a.out, legs.b.out];
        let custody = self.action_over(now, rule, ways).and_then(Action::custody);
        let binds = Promise::of(custody, self.config.pinned, agreed).binds();
        if !binds || self.first_window(legs.b.out).is_some() || !self.has_room() {
            return None;
        }
        let bytes = Hosts { legs: &legs, agreed }.first_bytes(&cx!(self, now, net))?;
        (bytes > u32::from(u16::MAX)).then_some(bytes)
    }

    /// A packet of the handshake of this host leaves; `twice`: and once more, since one of both may
    /// get lost.
    pub(super) fn send_on(
        &mut self,
        (now, twice): (Instant, bool),
        (via, key, of): (Via, Key, Side),
        s: &TcpSegment,
        packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        if !twice {
            return Outcome::Forward(packet);
        }
        let out = net.route(via, s.ip.src, s.ip.dst).map_or(IfaceId::OTHER, |r| r.iface);
        let Some(link) = self.links.at_mut(out) else { return Outcome::Forward(packet) };
        let copy = PacketBuf::from_slice(&mut self.pool, packet.bytes(), packet.offload);
        let size: WireSize = supersegment::wire_size(copy.bytes(), &copy.offload);
        link.note_copy(now, size.bytes);
        link.spent_mut().note(Heading::Copy, 0, size);
        self.counters.count_copy(0, size.bytes);
        self.counters.openings_copied += 1;
        if let Some(h) = self.syns.get_mut(&key) {
            h.note_copied(of, size);
        }
        Outcome::Twice(packet, copy)
    }

    /// The same packet of a handshake has come before by this link, on which it has left twice: it
    /// has done what it was for.
    pub(super) fn is_second_of_two(
        &self,
        now: Instant,
        via: IfaceId,
        (key, known): (&Key, Option<(FlowId, Side)>),
        from_low: bool,
        s: &TcpSegment,
    ) -> bool {
        if !s.flags.syn() || !self.is_link(via) {
            return false;
        }
        let form = if s.flags.ack() { FARLINK_SYN_ACK } else { FARLINK_SYN };
        let says_so = |o: &FarlinkOption| o.form == form && Opening::read(&o.body).leaves_twice;
        let option = s.options.farlink.as_ref();
        if option.is_some_and(|o| !says_so(o)) {
            return false;
        }
        if self.syns.is_second_of_two(now, key, from_low, s) {
            return true;
        }
        let flow = known.filter(|_| option.is_some());
        let flow = flow.and_then(|(id, from)| Some((self.table.get(id)?, from)));
        !s.flags.any(Flags::RST | Flags::FIN)
            && flow.is_some_and(|(flow, from)| flow.began_lately(from, s.seq, LATE_BYTES))
    }
}
