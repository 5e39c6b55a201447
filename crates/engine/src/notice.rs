//! What a source in custody mode is told while the link is away for which its data is held: nothing
//! at first, or that it is held here, or that it is to wait (docs/custody.md).

use farlink_wire::tcp::{IACK_IP_ID, IACK_SEQS, IACK_TTL};
use farlink_wire::{Duration, Flags, Instant, SackBlock, SegmentHeader, SeqNum};

use crate::config::Notice;
use crate::cx::Cx;
use crate::link::Links;
use crate::peer::Capability;
use crate::relay::Relay;
use crate::segment::Pulled;
use crate::side::Side;
use crate::split::Split;
use crate::tally::count_sent;
use crate::window;
use crate::world::Made;

/// A source that repeats in vain for so long after its link has gone is told that the window is
/// closed, so that it waits. Windows would give up after 20 s, Linux after 15 minutes.
const CALMED_AFTER: Duration = Duration::from_secs(10);
/// No host takes a number that is further away than this for one of its connection: no window is
/// larger (RFC 7323 section 2.3).
const NEAR_BYTES: u32 = 1 << 30;

impl Relay {
    /// Its source is to be told of the outage.
    fn owe_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Silence => {}
            Notice::Iack => self.noticed.owe_iack(),
            Notice::Sack | Notice::ZeroWindow => self.rx.owe_now(),
        }
    }
    /// Its source was told that something is held here, which the destination has not acknowledged.
    #[must_use]
    pub fn has_noticed(&self) -> bool {
        self.noticed.held_beyond(self.tx.snd_una()).is_some()
    }
    /// Its source is told that everything before this has arrived.
    pub fn forget_notices(&mut self, acked: SeqNum) {
        self.noticed.forget_before(acked);
    }
    /// The acknowledgement that goes with the SACK blocks that its source was told.
    #[must_use]
    pub fn ack_beside_blocks(&self, ack: SeqNum) -> SeqNum {
        self.noticed.acked_as_a_whole(ack, self.rx.last_ack_sent())
    }
    /// An intermediate acknowledgement is owed.
    #[must_use]
    pub fn owes_iack(&self) -> bool {
        self.noticed.owes_iack()
    }
    /// One is sent now, if one is owed.
    pub fn take_iack(&mut self) -> bool {
        self.noticed.take_iack()
    }
}

impl Split<'_> {
    /// A source to which nothing is promised repeats what is held here for a link that has been
    /// away for long. It does not give up while it hears that the window is closed. Before that
    /// silence is better: it keeps its congestion window.
    pub(crate) fn is_calmed(&self, cx: &Cx<'_>, source: Side) -> bool {
        let Some((notice, since)) = self.outage_of(cx, source) else { return false };
        let after = if notice == Notice::ZeroWindow { Duration::ZERO } else { CALMED_AFTER };
        self.relays.get(source).holds() && cx.now.since(since) >= after
    }

    /// The outage that a source hears of which nothing is promised to, and how. A gateway before it
    /// knows what to do by itself.
    fn outage_of(&self, cx: &Cx<'_>, source: Side) -> Option<(Notice, Instant)> {
        let notice = self.notice().filter(|_| !self.legs.get(source).peer.is_heard())?;
        Some((notice, self.outage_since(cx.links, source.other())?))
    }

    /// A gateway speaks on the leg of a source to which nothing is promised, and what it has sent
    /// waits for a link. The gateway is told what is held here, does not send it again, and does
    /// not take its own link for the one that is away. What it has stays there: this one may die.
    pub(crate) fn tells_held(&self, links: &Links, source: Side) -> bool {
        let is_gateway = self.legs.get(source).peer.speaks(Capability::Runs);
        is_gateway && !self.binds() && self.outage_since(links, source.other()).is_some()
    }

    /// Something that this source has sent came while the link is away, or the link has just gone.
    pub(crate) fn notify(&mut self, cx: &Cx<'_>, source: Side) {
        let Some((notice, since)) = self.outage_of(cx, source) else { return };
        let relay = self.relays.get(source);
        let has_news = match notice {
            Notice::Silence => false,
            Notice::Sack => self.held_block(cx, source, self.ack_for(source)).is_some(),
            Notice::Iack => !relay.buffer.is_empty(),
            Notice::ZeroWindow => relay.holds(),
        };
        if has_news {
            let relay = self.relays.get_mut(source);
            relay.noticed.note_outage(since);
            relay.owe_notice(notice);
        }
    }

    /// A link has gone: sources that have not heard of it do now.
    pub(crate) fn notify_of_outage(&mut self, cx: &Cx<'_>) {
        for source in [Side::A, Side::B] {
            if self.tells_held(cx.links, source) && self.relays.get(source).is_busy() {
                self.owe_now(source);
            }
            let told_of = self.relays.get(source).noticed.outage();
            if self.outage_of(cx, source).is_some_and(|(_, since)| told_of != Some(since)) {
                self.notify(cx, source);
            }
        }
    }

    /// The SACK block that tells a source what is held for it beside this acknowledgement. It
    /// leaves the oldest segment out: a block that begins at the acknowledgement is none to Linux.
    /// What was told in one outage is to be delivered before another one adds to it, or on a link
    /// that winks the source would wait for ever.
    fn held_block(&self, cx: &Cx<'_>, source: Side, ack: SeqNum) -> Option<(SackBlock, Instant)> {
        if self.notice() != Some(Notice::Sack) || !self.agreed.sack {
            return None;
        }
        let relay = self.relays.get(source);
        let before = relay.noticed.held_beyond(ack);
        let outage = self.outage_of(cx, source).map(|(_, since)| since);
        if before.is_some_and(|(_, told_in)| outage != Some(told_in)) {
            return before;
        }
        let start = before.map_or(ack + relay.rx.segment_bytes(), |(held, _)| held.start);
        let end = relay.buffer.end();
        outage.filter(|_| end.after(start)).map(|since| (SackBlock { start, end }, since))
    }

    /// The same, as it is said now.
    pub(crate) fn tell_held(&mut self, cx: &Cx<'_>, source: Side, ack: SeqNum) -> Option<SackBlock> {
        let (held, since) = self.held_block(cx, source, ack)?;
        self.relays.get_mut(source).noticed.note_held(held, since);
        Some(held)
    }

    /// Tells a source that knows intermediate acknowledgements how much is held for it. For others
    /// its sequence number is none of their connection: they drop it unread, and with it an
    /// acknowledgement of what has not arrived.
    pub(crate) fn emit_iack(&mut self, cx: &mut Cx<'_>, to: Side) -> Pulled {
        let Some((Notice::Iack, since)) = self.outage_of(cx, to) else { return Pulled::default() };
        let (src, dst) = (self.legs.get(to.other()), self.legs.get(to));
        let own = self.relays.get(to.other()).tx.snd_una();
        let relay = self.relays.get(to);
        let held = SackBlock { start: relay.buffer.base(), end: relay.buffer.end() };
        let is_far = |seq: &SeqNum| seq.diff(own).unsigned_abs() >= NEAR_BYTES;
        let [usual, other] = IACK_SEQS;
        let header = SegmentHeader {
            ttl: IACK_TTL,
            ip_id: IACK_IP_ID,
            seq: if is_far(&usual) { usual } else { other },
            ack: held.end,
            flags: Flags::ACK | Flags::URG,
            window: window::field(src.window_bytes(), src.window_scale),
            ..self.hosts().header(to)
        };
        if !held.end.after(held.start) {
            return Pulled::default();
        }
        let made = Made::bare((src.via(), dst.out), header);
        let size = cx.net.send(&made);
        let out = dst.out;
        count_sent(cx, out, &mut self.relays.get_mut(to.other()).tx, None, size);
        self.relays.get_mut(to).noticed.note_held(held, since);
        Pulled { size, ..Pulled::default() }
    }
}
