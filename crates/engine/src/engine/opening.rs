//! Handshakes over links: they ask for a gateway at the other end, and tell of this one. A box on
//! the way may drop them for that, in either direction: what is not answered goes on as it came.

use farlink_wire::{FARLINK_DATA, FARLINK_SYN, FARLINK_SYN_ACK, Flags, Instant, PacketBuf, TcpSegment, edit};

use super::Engine;
use crate::asked::{Answered, Goes};
use crate::config::{FlowControl, Pinned};
use crate::handshake::HalfOpen;
use crate::kept::Kept;
use crate::link::{Crossing, Link, Opening};
use crate::net::{IfaceId, Way};
use crate::peer::{Hello, Peer, insert_farlink};
use crate::table::Key;
use crate::world::World;

/// Where the share of a connection in a link's budget is smaller than this, its SYN shows two
/// segments.
const FIRST_SHARE_BYTES: u32 = 4 * 65_536;
const FIRST_WINDOW_BYTES: u16 = 2 * 1460;

impl Engine {
    /// The window that a SYN or its answer may show, where what it asks for goes into a link whose
    /// budget is for many: enough to begin with. What the connection gets is decided when it is
    /// established.
    pub(super) fn first_window(&self, out: Way) -> Option<u16> {
        let automatic = self.config.flow_control == FlowControl::Automatic;
        let share = self.links.equal_share(out, self.syns.len()).filter(|_| automatic)?;
        (share < FIRST_SHARE_BYTES).then_some(FIRST_WINDOW_BYTES)
    }

    /// A SYN has come: over a link it may ask, and then a gateway stands there. One that may have
    /// had an answer without our option does not know of us.
    pub(super) fn hear_asking(&mut self, now: Instant, via: IfaceId, key: &Key, s: &TcpSegment) {
        let Some(link) = self.links.at_mut(via) else { return };
        let option = s.options.farlink.as_ref().filter(|o| o.form == FARLINK_SYN);
        let Some(h) = self.syns.get_mut(key) else { return };
        h.came.note(now, option.is_some());
        if let Some(option) = option.filter(|_| !h.told.has_plain()) {
            link.note_asked();
            h.a.peer = Peer::Offered(link.admits(Hello::read(&option.body)));
        }
    }

    /// A SYN that leaves over a link asks for a gateway at its other end.
    pub(super) fn ask_for_gateway(
        &mut self,
        now: Instant,
        via: IfaceId,
        key: Key,
        s: &TcpSegment,
        packet: &mut PacketBuf,
        net: &mut dyn World,
    ) {
        let Some(h) = self.syns.get_mut(&key) else { return };
        let out = net.route(via, s.ip.src, s.ip.dst).map_or(IfaceId::OTHER, |r| r.iface);
        let is_away = self.links.is_away(self.links.way(out));
        let hello = self.links.hello();
        let Some(link) = self.links.at_mut(out) else { return };
        if s.options.mptcp || s.options.fast_open {
            return;
        }
        let wanted = link.asks(now, s.ip.dst, h.syns, is_away);
        let plain = (wanted == Goes::Both).then(|| Kept::of(via, s, packet));
        let has_room = wanted != Goes::Plain && insert_farlink(packet, FARLINK_SYN, Some(hello));
        let goes = if has_room { wanted } else { Goes::Plain };
        if let Some(plain) = plain.filter(|_| has_room) {
            link.boxes_mut().note_tried(now, Opening::Syn, s.ip.dst);
            link.boxes_mut().note_trial((s.ip.dst, s.dst_port, s.src_port));
            self.copies.push(plain);
        }
        h.asked.note(now, s, goes);
    }

    /// The answer of a server goes on: what it says of a gateway beyond is heard, and the one
    /// before this one is told who is here.
    pub(super) fn pass_answer(
        &mut self,
        now: Instant,
        via: IfaceId,
        key: Key,
        s: &TcpSegment,
        packet: &mut PacketBuf,
    ) {
        // An echoed option of our own is no answer, and nothing for the host either.
        if s.options.has_ours() {
            edit::remove_farlink_option(packet, s);
        }
        if s.flags.ae() {
            edit::set_flags(packet, s, s.flags.without(Flags::AE));
        }
        let cut = self.first_window(self.links.way(via)).filter(|cut| *cut < s.window);
        if self.is_link(via) && self.syns.get_mut(&key).is_some_and(|h| h.answered_once) {
            self.links.hear_answer(now, self.links.way(via));
        }
        self.learn_of_answer(now, via, key, s);
        if let Some(answer) = self.syns.get_mut(&key).and_then(|h| h.answer.as_mut()) {
            let shown = *answer.shown_bytes.get_or_insert(cut.unwrap_or(u16::MAX));
            if shown < s.window {
                edit::set_window(packet, s, shown);
            }
        }
        self.raise_mss(&key, s, packet);
        self.tell_of_gateway(now, via, key, s, packet);
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
        if of_gateway || (h.asked.has_with() && of == Answered::With) {
            link.note_answer(of_gateway);
            link.note_arrived(now, Opening::Syn, s.ip.src);
        } else if h.answered_once && h.asked.has_with() && of == Answered::Plain && !h.has_waited() {
            link.note_dropped(now, Opening::Syn, s.ip.src);
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
    /// came without the option, or such answers do not arrive.
    fn tell_of_gateway(
        &mut self,
        now: Instant,
        via: IfaceId,
        key: Key,
        s: &TcpSegment,
        packet: &mut PacketBuf,
    ) {
        let hello = self.links.hello();
        let Some(h) = self.syns.get_mut(&key) else { return };
        let Some(upstream) = h.a.peer.hello() else { return };
        let Some(link) = self.links.at_mut(h.a.via) else { return };
        let wanted = link.tells(now, h);
        let plain = (wanted == Goes::Both).then(|| Kept::of(via, s, packet));
        // One that said nothing of itself is told nothing of us.
        let hello = upstream.reads_frames().then_some(hello);
        let has_room = wanted != Goes::Plain && insert_farlink(packet, FARLINK_SYN_ACK, hello);
        h.told.note(now, s, if has_room { wanted } else { Goes::Plain });
        if let Some(plain) = plain.filter(|_| has_room) {
            link.boxes_mut().note_tried(now, Opening::Answer, s.ip.dst);
            self.copies.push(plain);
        }
    }

    /// The client has answered: by which of the answers to it shows whether it knows of us.
    pub(super) fn learn_of_acknowledgement(&mut self, now: Instant, h: &mut HalfOpen, s: &TcpSegment) {
        if h.a.peer == Peer::None {
            return;
        }
        let Some(link) = self.links.at_mut(h.a.via) else {
            h.a.peer = Peer::None;
            return;
        };
        if !h.told.has_with() {
            // Where it only could not be told it is there, too.
            let is_shut = link.boxes().crossing(now, Opening::Answer, h.a.addr) == Crossing::Shut;
            if !is_shut || h.came.is_plain() {
                h.a.peer = Peer::None;
            }
            return;
        }
        let is_marked = s.options.farlink.as_ref().is_some_and(|o| o.form == FARLINK_DATA);
        match h.told.answered(now, s, link.measured_rtt()) {
            _ if is_marked => link.note_arrived(now, Opening::Answer, s.ip.src),
            Answered::With => link.note_arrived(now, Opening::Answer, s.ip.src),
            Answered::Plain if !h.has_waited() => link.note_dropped(now, Opening::Answer, s.ip.src),
            // It has not been told, and is there: marks let it ask.
            Answered::Plain | Answered::Either => {}
        }
    }

    /// Copies of handshakes that go out right behind those that have just gone.
    pub fn take_copies(&mut self) -> Vec<(IfaceId, PacketBuf)> {
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
        let Some((via, rule)) = self.syns.get_mut(key).map(|h| (h.a.via, h.rule)) else { return };
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

impl Link {
    /// How the SYN to this host goes that its client sends for the `syns`-th time.
    fn asks(&self, now: Instant, host: core::net::IpAddr, syns: u32, is_away: bool) -> Goes {
        match self.boxes().crossing(now, Opening::Syn, host) {
            Crossing::Shut => Goes::Plain,
            Crossing::Tried if syns == 1 => {
                if is_away {
                    Goes::With
                } else {
                    Goes::Both
                }
            }
            Crossing::Tried => Goes::Plain,
            known => {
                let is_open = known == Crossing::Open && self.is_known_to_lose();
                if self.may_ask(syns, is_away, is_open) { Goes::With } else { Goes::Plain }
            }
        }
    }

    /// How the answer goes that tells the gateway before this one of it.
    fn tells(&self, now: Instant, h: &HalfOpen) -> Goes {
        if h.came.is_plain() || h.told.has_plain() {
            return Goes::Plain;
        }
        let is_first = !h.told.has_with() || h.told.is_with_at(now);
        match self.boxes().crossing(now, Opening::Answer, h.a.addr) {
            Crossing::Tried if is_first => Goes::Both,
            Crossing::Shut | Crossing::Tried => Goes::Plain,
            Crossing::Open if self.is_known_to_lose() => Goes::With,
            Crossing::Open | Crossing::Unknown => {
                if is_first {
                    Goes::With
                } else {
                    Goes::Plain
                }
            }
        }
    }
}
