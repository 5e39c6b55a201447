//! What is said of XCP in its own header, between IPv4 and TCP (draft-falk-xcp-spec-03): to a
//! gateway that reads it, over a link that is declared so, as long as it gets through.
//!
//! One packet at a time carries it, never a super-segment. What is sent again, or asks for an
//! answer, goes with the option, so that a box that drops the header cannot make a connection stand
//! still.

use farlink_wire::{Duration, Flags, SegmentHeader, SeqNum, Shim, WireSize};

use crate::cx::Cx;
use crate::explicit::Said;
use crate::leg::Leg;
use crate::link::Passage;
use crate::peer::{Capability, Identity};
use crate::sender::{Feedback, Plan, Purpose};
use crate::side::Side;
use crate::split::Split;
use crate::tally::count_sent;
use crate::world::Made;

impl Leg {
    /// The gateway there, if it may be sent segments with the header.
    #[must_use]
    pub fn shim_reader(&self) -> Option<Identity> {
        let hello = self.peer.hello().filter(|hello| hello.can(Capability::Shim))?;
        let may_be = self.in_shims && self.addr.is_ipv4() && self.is_explicit();
        Some(hello.identity).filter(|identity| may_be && *identity != Identity::UNKNOWN)
    }
}

impl Split<'_> {
    /// What is to be done with the header on the way to a host now.
    fn passage(&self, cx: &Cx<'_>, to: Side) -> Passage {
        let leg = self.legs.get(to);
        let Some(reader) = leg.shim_reader() else { return Passage::Shut };
        let shims = cx.links.get(leg.out).and_then(|link| link.shims());
        shims.map_or(Passage::Shut, |shims| shims.passage(cx.now, reader, self.rtt_to(to)))
    }

    fn rtt_to(&self, to: Side) -> Option<Duration> {
        self.relays.get(to.other()).tx.rtt().srtt()
    }

    /// Segments of data to it are single packets.
    pub(crate) fn sends_singly(&self, cx: &Cx<'_>, to: Side) -> bool {
        self.passage(cx, to) == Passage::Open
    }

    /// What a segment says in the header; `None`: it says nothing there.
    pub(crate) fn says_in_shim(&self, cx: &Cx<'_>, to: Side, plan: Option<&Plan>) -> Option<Said> {
        if self.passage(cx, to) != Passage::Open {
            return None;
        }
        let wishes = self.relays.get(to).rx.wishes();
        let feedback = wishes.feedback().filter(|_| self.legs.get(to).peer.is_speaking());
        match plan.filter(|p| p.len > 0) {
            Some(plan) => {
                let tx = &self.relays.get(to.other()).tx;
                let is_single = plan.len <= tx.mss() && !plan.mtu_probe;
                let is_first = plan.purpose == Purpose::New && !tx.asks_at_end(plan);
                let said = Said { fields: true, shim: Some(feedback.unwrap_or(0)), ..Said::default() };
                (is_single && is_first).then_some(said)
            }
            None => feedback
                .filter(|_| wishes.may_be_told_in_shim())
                .map(|feedback| Said { shim: Some(feedback), ..Said::default() }),
        }
    }

    /// A segment to a host has left, with the header or without; `header`: what else stands in it.
    /// Where it is not known whether that gets through, an acknowledgement more tries it, which
    /// nobody misses. Returns what this takes.
    pub(crate) fn follow_shim(
        &mut self,
        cx: &mut Cx<'_>,
        to: Side,
        header: &SegmentHeader<'_>,
        with_it: bool,
    ) -> WireSize {
        let (src, leg) = (self.legs.get(to.other()), self.legs.get(to));
        if with_it
            && let Some(reader) = leg.shim_reader()
            && let Some(shims) = cx.links.get_mut(leg.out).and_then(|link| link.shims_mut())
        {
            shims.note_sent(cx.now, reader);
        }
        let Some(reader) = leg.shim_reader().filter(|_| self.passage(cx, to) == Passage::Tried) else {
            return WireSize::default();
        };
        let header = SegmentHeader {
            seq: self.relays.get(to.other()).tx.acceptable_seq(),
            flags: header.flags.without(Flags::FIN | Flags::PSH | Flags::URG | Flags::CWR),
            urgent: 0,
            traffic_class: header.traffic_class & !3,
            sack: &[],
            xcp: None,
            xcp_sum: None,
            ..*header
        };
        let shim = Some(Shim::default());
        let made = Made { shim, ..Made::bare((src.via(), leg.out), header) };
        let size = cx.net.send(&made);
        let out = leg.out;
        count_sent(cx, out, &mut self.relays.get_mut(to.other()).tx, None, size);
        if let Some(shims) = cx.links.get_mut(leg.out).and_then(|link| link.shims_mut()) {
            shims.note_tried(cx.now, reader);
        }
        size
    }

    /// A segment that counts has come with the header from the gateway on a leg.
    pub(crate) fn hear_shim(&mut self, cx: &mut Cx<'_>, from: Side, (ack, shim): (SeqNum, &Shim)) {
        if let Some(said) = &shim.said {
            self.relays.get_mut(from).rx.wishes_mut().hear(1, said);
        }
        if shim.feedback_bytes_per_s != 0 && self.legs.get(from).is_explicit() {
            self.hear_routers(cx, from, (ack, Feedback::Since(shim.feedback_bytes_per_s)));
        }
        let Some(hello) = self.legs.get(from).peer.hello() else { return };
        let Some(shims) = cx.links.at_mut(self.came_by).and_then(|link| link.shims_mut()) else {
            return;
        };
        shims.hear(hello.identity);
        if shims.to_tell(cx.now, hello.identity).is_some() {
            self.owe_now(from);
        }
    }

    /// What the gateway on a leg is to be told now of what has come with the header from it.
    pub(crate) fn shims_to_tell(&self, cx: &Cx<'_>, to: Side) -> Option<u16> {
        let leg = self.legs.get(to);
        let hello = leg.peer.hello().filter(|hello| hello.can(Capability::Shim) && hello.reads_frames())?;
        cx.links.at(leg.came_by)?.shims()?.to_tell(cx.now, hello.identity)
    }

    /// It has been told.
    pub(crate) fn note_shims_told(&self, cx: &mut Cx<'_>, to: Side, heard: u16) {
        let leg = self.legs.get(to);
        let shims = cx.links.at_mut(leg.came_by).and_then(|link| link.shims_mut());
        if let Some((hello, shims)) = leg.peer.hello().zip(shims) {
            shims.note_told(cx.now, hello.identity, heard);
        }
    }

    /// The gateway on a leg tells how many it has heard.
    pub(crate) fn hear_of_shims(&self, cx: &mut Cx<'_>, from: Side, heard: u16) {
        let leg = self.legs.get(from);
        let shims = cx.links.get_mut(leg.out).and_then(|link| link.shims_mut());
        if let Some((hello, shims)) = leg.peer.hello().zip(shims) {
            shims.hear_answer(hello.identity, heard);
        }
    }

    /// Nothing of what was sent to a host has been answered in time.
    pub(crate) fn doubt_shim(&self, cx: &mut Cx<'_>, to: Side) {
        let leg = self.legs.get(to);
        let shims = cx.links.get_mut(leg.out).and_then(|link| link.shims_mut());
        if let Some((reader, shims)) = leg.shim_reader().zip(shims) {
            shims.doubt(cx.now, reader);
        }
    }
}
