//! Handshakes over links: they ask for a gateway at the other end, and tell of this one. A box on
//! the way may drop them for that, in either direction: what is not answered goes on as it came.

use core::net::IpAddr;

use farlink_wire::{
    Duration, FARLINK_DATA, FARLINK_SYN, FARLINK_SYN_ACK, Flags, Instant, PacketBuf, TcpSegment, edit,
};

use super::Engine;
use crate::asked::{Answered, Goes};
use crate::config::Pinned;
use crate::handshake::HalfOpen;
use crate::kept::Kept;
use crate::link::{Carrier, Crossing, Link};
use crate::net::{IfaceId, Via};
use crate::peer::{Capability, Opening, Peer, insert_opening};
use crate::side::Side;
use crate::table::Key;
use crate::world::World;

impl Engine {
    /// A SYN has come: over a link it may ask, and then a gateway stands there. One that may have
    /// had an answer without our option does not know of us.
    pub(super) fn hear_asking(&mut self, now: Instant, via: IfaceId, key: &Key, s: &TcpSegment) {
        let Some(link) = self.links.at_mut(via) else { return };
        let option = s.options.farlink.as_ref().filter(|o| o.form == FARLINK_SYN);
        let Some(h) = self.syns.get_mut(key) else { return };
        h.came.note(now, option.is_some());
        let Some(option) = option.filter(|_| !h.told.has_plain()) else { return };
        let opening = Opening::read(&option.body);
        h.note_opening(Side::A, &opening);
        link.note_asked();
        if h.syns == 1 {
            link.note_opening(&opening);
        }
        h.a.peer = Peer::Offered(link.admits(opening.hello));
    }

    /// A SYN that leaves over a link asks for a gateway at its other end. Returns whether it is to
    /// leave twice, each time with the question.
    pub(super) fn ask_for_gateway(
        &mut self,
        now: Instant,
        via: Via,
        key: Key,
        s: &TcpSegment,
        packet: &mut PacketBuf,
        net: &mut dyn World,
    ) -> bool {
        let half_open = self.syns.get_mut(&key).map(|h| (h.syns, h.rule, h.asked.waits(now)));
        let Some((syns, rule, waited)) = half_open else { return false };
        let out = net.route(via, s.ip.src, s.ip.dst).map_or(IfaceId::OTHER, |r| r.iface);
        let is_away = self.links.is_away(self.links.way(out));
        let Some(link) = self.links.at(out) else { return false };
        if s.options.mptcp || s.options.fast_open {
            return false;
        }
        let wanted = link.asks(now, s.ip.dst, (syns, waited), is_away);
        let may_be_two = syns == 1 && link.boxes().crossing(now, Carrier::Syn, s.ip.dst).is_clear();
        let opening = self.opening(now, (rule, via.iface, out), (may_be_two, link.takes_openings()));
        let plain = (wanted == Goes::Both).then(|| Kept::of(via, s, packet));
        let asks = wanted != Goes::Plain;
        let said = if asks { insert_opening(packet, FARLINK_SYN, Some(opening)) } else { None };
        let Some(link) = self.links.at_mut(out) else { return false };
        let left_at = link.note_opening_sent(now, packet_bytes(packet));
        if let Some(plain) = plain.filter(|_| said.is_some()) {
            link.note_opening_sent(now, s.ip.total_len);
            link.boxes_mut().note_tried(now, Carrier::Syn, s.ip.dst);
            link.boxes_mut().note_trial((s.ip.dst, s.dst_port, s.src_port));
            self.copies.push(plain);
        }
        if let Some(h) = self.syns.get_mut(&key) {
            h.asked.note(left_at, s, if said.is_some() { wanted } else { Goes::Plain });
        }
        said.is_some_and(|said| said.leaves_twice)
    }

    /// The answer of a server goes on: what it says of a gateway beyond is heard, and the one
    /// before this one is told who is here. Returns whether it is to leave twice.
    pub(super) fn pass_answer(
        &mut self,
        now: Instant,
        via: Via,
        key: Key,
        s: &TcpSegment,
        packet: &mut PacketBuf,
        net: &mut dyn World,
    ) -> bool {
        // An echoed option of our own is no answer, and nothing for the host either.
        if s.options.has_ours() {
            edit::remove_farlink_option(packet, s);
        }
        if s.flags.ae() {
            edit::set_flags(packet, s, s.flags.without(Flags::AE));
        }
        let cut = self.first_window(self.links.way(via.iface)).filter(|cut| *cut < s.window);
        if self.is_link(via.iface) && self.syns.get_mut(&key).is_some_and(|h| h.answered_once) {
            self.links.hear_answer(now, self.links.way(via.iface));
        }
        self.learn_of_answer(now, via.iface, key, s);
        if let Some(answer) = self.syns.get_mut(&key).and_then(|h| h.answer.as_mut()) {
            let shown = *answer.shown_bytes.get_or_insert(cut.unwrap_or(u16::MAX));
            if shown < s.window {
                edit::set_window(packet, s, shown);
            }
        }
        self.raise_mss(&key, s, packet);
        self.tell_of_gateway(now, via, key, s, packet, net)
    }

    /// What the answer says of a gateway beyond the link, and of boxes on the way there.
    fn learn_of_answer(&mut self, now: Instant, via: IfaceId, key: Key, s: &TcpSegment) {
        let Some(h) = self.syns.get_mut(&key) else { return };
        let Some(answer) = h.answer.as_mut() else { return };
        let Some(link) = self.links.at_mut(via) else {
            answer.b.peer = Peer::None;
            return;
        };
        let of_gateway = answer.b.peer.is_marked();
        let of = h.asked.answered(now, s, link.measured_rtt());
        h.hear_answer(s, of_gateway.then_some(&mut *link));
        if of_gateway || (h.asked.has_with() && of == Answered::With) {
            link.note_answer(of_gateway);
            link.note_arrived(now, Carrier::Syn, s.ip.src);
        } else if h.answered_once && h.asked.has_with() && of == Answered::Plain && !h.has_waited() {
            // Where it went behind one with the option, and that one is answered as well, this is
            // taken back.
            link.note_dropped(now, Carrier::Syn, s.ip.src);
        }
        if of_gateway {
            link.boxes_mut().note_told(s.ip.src);
        }
        // Who was not asked, or has not heard it, is asked by what follows; and so is who has
        // answered, and the answer has lost that on its way.
        let is_lost = h.asked.has_plain() || link.boxes().is_stripped(now, s.ip.src);
        h.introduces = !of_gateway && is_lost && link.may_introduce(now, s.ip.src);
    }

    /// The answer to a SYN that a gateway has sent on tells it of this one: unless the newest SYN
    /// came without the option, or such answers do not arrive. Returns whether it is to leave
    /// twice, each time with that.
    fn tell_of_gateway(
        &mut self,
        now: Instant,
        via: Via,
        key: Key,
        s: &TcpSegment,
        packet: &mut PacketBuf,
        net: &mut dyn World,
    ) -> bool {
        let Some(h) = self.syns.get_mut(&key) else { return false };
        let Some(upstream) = h.a.peer.hello() else { return false };
        let Some(link) = self.links.at_mut(h.a.came_by) else { return false };
        let wanted = link.tells(now, h);
        if wanted == Goes::Plain {
            h.told.note(link.note_opening_sent(now, s.ip.total_len), s, wanted);
            return false;
        }
        let crossing = link.boxes().crossing(now, Carrier::Answer, h.a.addr);
        let (rule, towards, may_be_two) = (h.rule, h.a.came_by, h.answered_once && crossing.is_clear());
        // One that said nothing of itself is told nothing of us.
        let opening = upstream.reads_frames().then(|| {
            let out = net.route(via, s.ip.src, s.ip.dst).map_or(IfaceId::OTHER, |r| r.iface);
            let window_bytes = self.window_to_tell(now, key, net);
            let opening =
                self.opening(now, (rule, via.iface, out), (may_be_two, upstream.can(Capability::Openings)));
            Opening { window_bytes, ..opening }
        });
        let plain = (wanted == Goes::Both).then(|| Kept::of(via, s, packet));
        let said = insert_opening(packet, FARLINK_SYN_ACK, opening);
        let Some(link) = self.links.at_mut(towards) else { return false };
        let left_at = link.note_opening_sent(now, packet_bytes(packet));
        if let Some(plain) = plain.filter(|_| said.is_some()) {
            link.note_opening_sent(now, s.ip.total_len);
            link.boxes_mut().note_tried(now, Carrier::Answer, s.ip.dst);
            self.copies.push(plain);
        }
        let Some(h) = self.syns.get_mut(&key) else { return false };
        h.told.note(left_at, s, if said.is_some() { wanted } else { Goes::Plain });
        if let Some(said) = said
            && let Some(answer) = h.answer.as_mut()
        {
            answer.told_window_bytes = answer.told_window_bytes.max(said.window_bytes);
        }
        said.is_some_and(|said| said.leaves_twice)
    }

    /// The client has answered: by which of the answers to it shows whether it knows of us.
    pub(super) fn learn_of_acknowledgement(&mut self, now: Instant, h: &mut HalfOpen, s: &TcpSegment) {
        if h.a.peer == Peer::None {
            return;
        }
        let Some(link) = self.links.at_mut(h.a.came_by) else {
            h.a.peer = Peer::None;
            return;
        };
        if !h.told.has_with() {
            // Where it only could not be told it is there, too.
            let is_shut = link.boxes().crossing(now, Carrier::Answer, h.a.addr) == Crossing::Shut;
            if !is_shut || h.came.is_plain() {
                h.a.peer = Peer::None;
            }
            return;
        }
        let is_marked = s.options.farlink.as_ref().is_some_and(|o| o.form == FARLINK_DATA);
        match h.told.answered(now, s, link.measured_rtt()) {
            _ if is_marked => link.note_arrived(now, Carrier::Answer, s.ip.src),
            Answered::With => link.note_arrived(now, Carrier::Answer, s.ip.src),
            Answered::Plain if !h.has_waited() => link.note_dropped(now, Carrier::Answer, s.ip.src),
            // It has not been told, and is there: marks let it ask.
            Answered::Plain | Answered::Either => {}
        }
    }

    /// Copies of handshakes that go out right behind those that have just gone.
    pub fn take_copies(&mut self) -> Vec<(Via, PacketBuf)> {
        let copies = core::mem::take(&mut self.copies);
        copies.into_iter().map(|copy| (copy.via, copy.into_packet(&mut self.pool))).collect()
    }

    /// There are such.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// The answer says a larger MSS than the server's, where the rule wants that (experiment B2).
    fn raise_mss(&mut self, key: &Key, s: &TcpSegment, packet: &mut PacketBuf) {
        let Some((via, rule)) = self.syns.get_mut(key).map(|h| (h.a.came_by, h.rule)) else { return };
        let Some(rule) = self.config.rules.get(rule) else { return };
        let is_wanted = self.config.pinned != Pinned::Never && rule.action == crate::config::Action::Split;
        let mss = rule.raise_mss.filter(|_| is_wanted && self.is_link(via));
        let Some(mss) = mss.filter(|mss| s.options.mss.is_some_and(|said| said < *mss)) else { return };
        edit::set_mss(packet, s, mss);
        if let Some(answer) = self.syns.get_mut(key).and_then(|h| h.answer.as_mut()) {
            answer.agreed.mss_raised = true;
        }
    }
}

fn packet_bytes(packet: &PacketBuf) -> u32 {
    u32::try_from(packet.bytes().len()).unwrap_or(u32::MAX)
}

impl Link {
    /// How the SYN to this host goes that its client sends for the `syns`-th time, so long after
    /// one with the option.
    fn asks(&self, now: Instant, host: IpAddr, (syns, waited): (u32, Duration), is_away: bool) -> Goes {
        match self.boxes().crossing(now, Carrier::Syn, host) {
            // What would follow is dropped.
            _ if !self.boxes().crossing(now, Carrier::Data, host).is_clear() => Goes::Plain,
            Crossing::Shut => Goes::Plain,
            Crossing::Tried if syns == 1 => {
                if is_away {
                    Goes::With
                } else {
                    Goes::Both
                }
            }
            Crossing::Tried => Goes::Plain,
            known => self.asks_at(syns, is_away, self.repeated(known, waited)),
        }
    }

    /// How the answer goes that tells the gateway before this one of it.
    fn tells(&self, now: Instant, h: &HalfOpen) -> Goes {
        let is_in_vain = !self.boxes().crossing(now, Carrier::Data, h.a.addr).is_clear();
        if h.came.is_plain() || h.told.has_plain() || is_in_vain {
            return Goes::Plain;
        }
        let is_first = !h.told.has_with() || h.told.is_with_at(now);
        match self.boxes().crossing(now, Carrier::Answer, h.a.addr) {
            Crossing::Tried if is_first => Goes::Both,
            Crossing::Shut | Crossing::Tried => Goes::Plain,
            Crossing::Open | Crossing::Unknown if is_first => Goes::With,
            known => self.repeated(known, h.told.waits(now)),
        }
    }

    /// How the first repetition goes, so long after one with the option, which has got lost, or a
    /// box has dropped it, or its answer is still on the way.
    fn repeated(&self, known: Crossing, waited: Duration) -> Goes {
        match known {
            _ if self.repeats_both(waited) => Goes::Both,
            Crossing::Open if self.loses_openings() => Goes::With,
            _ => Goes::Plain,
        }
    }
}
