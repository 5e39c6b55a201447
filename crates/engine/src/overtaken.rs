//! Acknowledgements that others have overtaken, and what each tells of the link that it came over.
//!
//! RFC 7323 (5.3 R1) refuses what is older than the newest timestamp. Where packets overtake each
//! other that would be most acknowledgements, with all that they tell: what is held above a gap,
//! and what has arrived over the link. They have no new number and no new window. But a segment
//! that none of the newer ones has found room for may stand in them, and what had arrived at their
//! time is true for ever. So these two are taken from them.

use arrayvec::ArrayVec;
use farlink_wire::{SackBlock, SeqNum, TcpSegment};

use crate::cx::Cx;
use crate::leg::Leg;
use crate::peer::{Arrived, Message};
use crate::runs::RUNS_MAX;
use crate::sender::{Departed, Happened, Sender};
use crate::side::Side;
use crate::split::Split;

/// A timestamp that is older by more, ticks of its clock, mostly milliseconds, was not overtaken
/// just now. No sequence number comes again within that time.
const OVERTAKEN_TICKS_MAX: u32 = 1_000;

impl Split<'_> {
    /// A segment whose timestamp is older than the newest one: it is acknowledged and not taken
    /// (RFC 7323 5.3 R1), unless it only acknowledges, and others have overtaken it.
    pub(crate) fn take_old(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment) {
        if !self.is_overtaken(from, s) {
            self.owe_now(from);
            return;
        }
        let option = self.option_of_gateway(cx, s);
        let told = self.legs.get(from).peer.read(option);
        let (runs, arrived) = told.as_ref().map_or((ArrayVec::new(), None), |m: &Message| {
            (m.runs.blocks(s.ack) as ArrayVec<SackBlock, RUNS_MAX>, m.arrived)
        });
        let towards = self.relays.get_mut(from.other());
        let (una, nxt) = (towards.tx.snd_una(), towards.tx.snd_nxt());
        let said = if runs.is_empty() { s.options.sack.as_slice() } else { runs.as_slice() };
        // What lies below has been acknowledged since, and is no repetition.
        let above = |b: &&SackBlock| b.start.after(una) && b.end.before_eq(nxt);
        let sack: ArrayVec<SackBlock, RUNS_MAX> = said.iter().filter(above).copied().take(RUNS_MAX).collect();
        let happened = towards.tx.on_ack(cx.now, una, &sack, false, false);
        let arrived = arrived.map(|a| (a, covered(&towards.tx, s.ack, said)));
        tell_of_link(cx, self.legs.get(from), s, (arrived, &happened));
    }

    fn is_overtaken(&self, from: Side, s: &TcpSegment) -> bool {
        let only_acknowledges = s.payload_len == 0 && !s.flags.fin() && !s.flags.urg();
        let recent = self.legs.get(from).ts_recent();
        let is_near = s.options.timestamps.is_some_and(|t| recent.wrapping_sub(t.val) <= OVERTAKEN_TICKS_MAX);
        let towards = self.relays.get(from.other());
        let (age, reach) = towards.age_and_reach(s.ack);
        let says_no_more = s.ack.before_eq(towards.tx.snd_una()) && age <= reach;
        only_acknowledges && is_near && says_no_more && self.is_in_window(from, s)
    }
}

/// What an acknowledgement covers.
#[derive(Clone, Copy, Debug)]
pub struct Covered {
    /// Where the newest of it stands.
    newest: Departed,
    /// Bytes before that have not arrived.
    missing_bytes: u32,
}

/// Where the newest stands of all that an acknowledgement covers, whether others have covered it
/// before or not.
pub fn covered(tx: &Sender, ack: SeqNum, sack: &[SackBlock]) -> Option<Covered> {
    let above = |block: &&SackBlock| block.start.after(ack) && block.end.before_eq(tx.snd_nxt());
    let blocks = || sack.iter().filter(above);
    let newest = blocks().map(|block| block.end).fold(ack, SeqNum::max);
    let held = blocks().fold(0_u32, |sum, block| sum.saturating_add(block.end.since(block.start)));
    let missing_bytes = newest.since(ack).saturating_sub(held);
    Some(Covered { newest: tx.departed(newest)?, missing_bytes })
}

/// What an acknowledgement of this leg has told of the link that it came over. `arrived`: what the
/// gateway there has counted, and where the newest stands of what it covers.
pub fn tell_of_link(
    cx: &mut Cx<'_>,
    leg: &Leg,
    s: &TcpSegment,
    (arrived, happened): (Option<(Arrived, Option<Covered>)>, &Happened),
) {
    let is_marked = leg.peer.is_marked();
    let Some(link) = cx.links.get_mut(leg.out) else { return };
    if !is_marked {
        link.note_plain_host(leg.addr);
    }
    let is_believed = leg.peer.identity().is_none_or(|gateway| link.believes(gateway));
    let arrived = arrived.filter(|_| is_believed);
    let mut of = happened.of_link();
    // A repetition that has just arrived is newer than what it repeats.
    if let Some(covered) = arrived.and_then(|(_, covered)| covered).filter(|_| !of.newest_again) {
        let (begin, bytes) = covered.newest.place;
        (of.newest_sent_at, of.place) = (Some(covered.newest.at), (begin.0, bytes, covered.missing_bytes));
    }
    // Not the smallest of its life, which may be long: a way that becomes longer shows.
    if let Some(rtt) = happened.rtt {
        link.note_rtt(cx.now, rtt, happened.rtt_is_full);
    }
    link.note_losses(happened.delivered_bytes, happened.lost_bytes);
    link.reckon_with_losses();
    if s.payload_len == 0 && !is_marked {
        link.recognise(cx.now, &of, happened.lost_bytes > 0);
    }
    let host = (!is_marked || !is_believed).then_some(leg.addr);
    cx.links.hear_ack(cx.now, leg.out, (arrived.map(|(arrived, _)| arrived), host), &of);
}
