//! A link that is down or silent, seen from its connections: what they tell of it, what they leave
//! undone meanwhile, and which of them asks.

use core::cmp::Reverse;
use core::net::IpAddr;
use std::collections::BTreeMap;

use farlink_wire::{Duration, Instant, TcpSegment};

use crate::changed::Changed;
use crate::config::Config;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::flow::Flow;
use crate::flow_id::FlowId;
use crate::leg::Leg;
use crate::link::{Expired, Link, Links, State, are_apart, covered};
use crate::net::Way;
use crate::relays::Relays;
use crate::sender::Question;
use crate::side::{Pair, Side};
use crate::split::Split;
use crate::world::World;

/// The round trip of a link of which none is known (the initial RTO, RFC 6298 2.1).
const RTT_UNKNOWN: Duration = Duration::from_secs(1);

/// A full packet on the slowest line, 300 bit/s.
const SLOWEST_PACKET: Duration = Duration::from_secs(40);

/// The next question to a silent link leaves a round trip after the last one, and this part of it.
const QUESTION_SLACK_PARTS: u32 = 64;

/// A link that is away is asked every 10 ms at most, and by one part in a hundred of what it would
/// carry.
const PROBES_APART_MIN: Duration = Duration::from_millis(10);
const PROBE_SHARE: u64 = 100;
/// Each second packet of a connection is answered at once, so one in so many of each.
const ANSWERED_PACKETS: u64 = 2;
/// A host that is silent alone is asked by one part in so many of what its link would carry: it may
/// be off, for hours.
const ALONE_SHARE: u64 = 16;
/// Finding whose segment asks takes about this for each connection.
const ASKER_COST: Duration = Duration::from_micros(2);

impl Split<'_> {
    /// Nothing is sent to a host but what asks its link: the link is silent, and this leg is no
    /// exception. A receiver that answers round us, or that was silent while others were answered,
    /// is.
    #[must_use]
    pub fn is_hushed(&self, links: &Links, to: Side) -> bool {
        links.get(self.legs.get(to).out).is_some_and(Link::is_probing) && !self.is_exempt(to)
    }

    /// What is due towards a host waits for its link, which is down or silent.
    #[must_use]
    pub fn waits_for_link(&self, links: &Links, to: Side) -> bool {
        let out = self.legs.get(to).out;
        let is_silent = links.get(out).is_some_and(Link::is_probing);
        links.is_away(out) && !(is_silent && self.is_exempt(to))
    }

    /// When what waits for a link towards a host has waited for as long as the operator allows.
    pub(crate) fn outage_ends_at(&self, config: &Config, links: &Links, to: Side) -> Option<Instant> {
        Some(self.outage_since(links, to)?.max(links.served_since()) + config.timers.outage_limit)
    }

    /// Since when what is due towards a host waits for a link: for the one here or, as the next
    /// gateway tells, for one further on.
    pub(crate) fn outage_since(&self, links: &Links, to: Side) -> Option<Instant> {
        let further_on = || self.relays.get(to.other()).tx.kept_since();
        self.waits_for_link_since(links, to).or_else(further_on)
    }

    /// Since when the link is away that what is due towards a host waits for.
    fn waits_for_link_since(&self, links: &Links, to: Side) -> Option<Instant> {
        links.away_since(self.legs.get(to).out).filter(|_| self.waits_for_link(links, to))
    }

    /// It is not clear whether what is lost towards a host is lost by its link.
    #[must_use]
    pub fn is_doubted(&self, links: &Links, to: Side) -> bool {
        let doubted = links.get(self.legs.get(to).out).and_then(Link::silent_since);
        doubted.is_some() && !self.is_exempt(to)
    }

    /// What is heard from a host says nothing of its link.
    pub(crate) fn is_exempt(&self, to: Side) -> bool {
        is_exempt(self.legs, self.relays, to)
    }

    /// A retransmission timer towards a host has expired, which ran so long: evidence against the
    /// link, unless it is the host's own matter.
    pub(crate) fn doubt_link(&mut self, cx: &mut Cx<'_>, to: Side, after: Duration) {
        let leg = self.legs.get(to);
        let Some(link) = cx.links.get(leg.out) else { return };
        if self.is_exempt(to) {
            return;
        }
        let tx = &self.relays.get(to.other()).tx;
        // Of a link of which nothing is known yet a packet may take this long.
        let is_new = link.rate_in_force_bps().is_none() && tx.rtt().srtt().is_none();
        if is_new && cx.now.since(tx.progress_at()) < SLOWEST_PACKET {
            return;
        }
        // An answer is here before the next question leaves: else it would count as the answer to
        // that one, and would have come too soon (RFC 8985 6.2 step 2).
        let rtt = link.rtt_in_force().unwrap_or(RTT_UNKNOWN);
        // The question may be a full segment.
        let late = link.packet_time(leg.peer.identity()).of_answer(tx.mss().into());
        let late = late.saturating_sub(covered(cx.config.timers.rto_min));
        let apart = (rtt + rtt / QUESTION_SLACK_PARTS + late).max(cx.config.timers.rto_min);
        // What was answered a round trip after the timer was set has left later than what this one
        // waits for.
        if link.answered_at() + after >= cx.now + apart {
            self.relays.get_mut(to.other()).tx.leave_alone();
            return;
        }
        let of_gateway = leg.peer.is_heard();
        let is_lossy = of_gateway && link.is_lossy();
        let rate_bps = link.rate_in_force_bps();
        // A host may be off, and of a link whose rate nobody knows a probe may take all.
        let is_dense = of_gateway && rate_bps.is_some();
        let apart_alone = if link.is_near() && link.is_rate_declared() {
            Some(apart_near(cx, link, of_gateway))
        } else {
            // What made the first timer expire may be a queue behind the link.
            let share = rate_bps.map_or(Duration::ZERO, |bps| packets(bps, ALONE_SHARE));
            (self.relays.get(to.other()).timeouts() > 1).then_some(apart.max(share))
        };
        let expired = Expired { after, host: leg.addr, of_gateway, is_lossy, is_dense, apart, apart_alone };
        cx.links.note_expired(cx.now, leg.out, &expired);
    }

    /// When whoever is at the other end of the link towards a host has answered what is under way
    /// to it, if it is near enough to answer at once.
    pub(crate) fn answer_due(&self, links: &Links, to: Side) -> Option<Instant> {
        let leg = self.legs.get(to);
        let link = links.get(leg.out).filter(|link| link.evidence().state() == State::Up)?;
        if !link.is_near() || self.is_exempt(to) {
            return None;
        }
        // Where nobody says the rate there may be queues that are not ours.
        let rate_bps = link.rate_in_force_bps().filter(|_| link.is_rate_declared())?;
        // A host may have other things to do first.
        let first = leg.handshake_rtt().filter(|_| leg.peer.is_heard());
        // One answer may be lost.
        let spared = packets(rate_bps, ANSWERED_PACKETS * links.sharers(leg.out).saturating_add(1));
        // A gateway answers a window probe at once, too. Where something is lost now and then, one
        // that is missing says nothing.
        let probe = leg.peer.is_heard() && !link.is_lossy();
        self.relays.get(to.other()).tx.answer_due(link.answered_at(), spared, first, probe)
    }

    /// It has not answered. The link is away if that was a gateway. A host may take its time, so it
    /// is asked once, and gets a round trip more.
    pub(crate) fn miss_answer(&mut self, cx: &mut Cx<'_>, to: Side) {
        let leg = self.legs.get(to);
        let (out, of_gateway) = (leg.out, leg.peer.is_heard());
        let Some(link) = cx.links.get(out) else { return };
        let apart = apart_near(cx, link, of_gateway);
        cx.links.note_unanswered(cx.now, out, apart, of_gateway);
        if !of_gateway {
            self.relays.get_mut(to.other()).tx.ask_link(Question::Segment);
        }
    }

    /// Whether a segment may be the answer to a question: a bare acknowledgement, and no question
    /// itself.
    pub(crate) fn answers_question(&mut self, cx: &Cx<'_>, from: Side, s: &TcpSegment) -> bool {
        let Some(link) = cx.links.get(self.legs.get(from).out) else { return false };
        let Some(since) = link.asked_since() else { return false };
        let bare = s.payload_len == 0 && !s.flags.fin() && s.seq + 1 != self.relays.get(from).rcv_nxt();
        let tx = &mut self.relays.get_mut(from.other()).tx;
        if link.is_probing() {
            tx.note_outage();
        }
        bare && tx.may_be_answered(cx.now, since)
    }

    /// A host that has nothing under way begins to send into a silent link. It may be all that the
    /// link needs to be heard again.
    pub(crate) fn hasten_probe(&self, cx: &mut Cx<'_>, to: Side) {
        if self.is_hushed(cx.links, to)
            && begins(self.relays, to)
            && let Some(link) = cx.links.get_mut(self.legs.get(to).out)
        {
            link.hasten_probe(cx.now);
        }
    }
}

/// How long a link takes for so many packets.
fn packets(rate_bps: u64, count: u64) -> Duration {
    Duration::from_nanos(count.saturating_mul(1500 * 8 * 1_000_000_000) / rate_bps.max(1))
}

/// Somebody near by is asked so often at most: a host has a round trip for its answer.
fn apart_near(cx: &Cx<'_>, link: &Link, of_gateway: bool) -> Duration {
    let share = link.rate_in_force_bps().map(|bps| packets(bps, PROBE_SHARE));
    let search = ASKER_COST * u32::try_from(cx.flows_split).unwrap_or(u32::MAX);
    let late = link.rtt_in_force().filter(|_| !of_gateway);
    [share, late].into_iter().flatten().fold(PROBES_APART_MIN.max(search), Duration::max)
}

fn is_exempt(legs: &Pair<Leg>, relays: &Relays, to: Side) -> bool {
    legs.get(to).is_direct() || relays.get(to.other()).tx.is_alone()
}

/// Nothing is under way to a host, and something could be.
fn begins(relays: &Relays, to: Side) -> bool {
    let relay = relays.get(to.other());
    relay.tx.board().is_empty() && relay.tx.has_new(&relay.supply())
}

/// The leg of a connection that waits for an answer over a link, or for the link itself.
fn waits_over(flow: &Flow, way: Way) -> Option<(&Relays, Side)> {
    let relays = flow.relays()?;
    let to = [Side::A, Side::B].into_iter().find(|to| {
        let relay = relays.get(to.other());
        let of_dead = relays.is_reset_by(*to);
        let is_its = flow.legs.get(*to).out == way && !is_exempt(&flow.legs, relays, *to) && !of_dead;
        is_its && relay.tx.waits_for_link(&relay.supply())
    })?;
    Some((relays, to))
}

/// Whose segment asks a link.
struct Asker {
    id: FlowId,
    to: Side,
    /// Others begin, too, and have not asked yet.
    more_begin: bool,
}

/// When it is a host's turn to be asked: the greatest comes next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// It was asked last at this time.
    Asked(Reverse<Instant>),
    /// It has not been asked in this silence, and was heard last at this time.
    Unasked(Instant),
}

impl Turn {
    /// What two connections of one host have in common.
    fn of_both(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unasked(a), Self::Unasked(b)) => Self::Unasked(a.max(b)),
            (Self::Asked(a), Self::Asked(b)) => Self::Asked(a.min(b)),
            (asked @ Self::Asked(_), _) | (_, asked) => asked,
        }
    }
}

impl Engine {
    /// Asks silent links whose time has come: each by one segment of one connection.
    pub(crate) fn probe_links(&mut self, now: Instant, net: &mut dyn World) {
        while let Some(way) = self.links.next_to_probe(now) {
            let was_probing = self.links.get(way).is_some_and(Link::is_probing);
            let probe = self.links.get_mut(way).and_then(|link| link.probe(now));
            if !was_probing && self.links.get(way).is_some_and(Link::is_probing) {
                // The route may have moved before anybody noticed.
                self.reroute(now, net);
            }
            let patient = !self.is_silent_too_long(now, way);
            let asked = probe.filter(|_| patient).and_then(|p| Some((p, self.asker(way, p.in_turn)?)));
            let Some((probe, Asker { id, to, more_begin })) = asked else {
                // Nobody waits any more, or all have waited for too long: each is judged for itself
                // from now on.
                let whose = self.links.get(way).and_then(Link::silent_host);
                self.tell_all(Changed::LeftAlone(way, whose));
                self.links.hear_answer(now, way);
                continue;
            };
            let question = if probe.small { Question::Small } else { Question::Segment };
            self.tell(id, Changed::Asks(to, question));
            self.after_event(now, id, net);
            if more_begin && let Some(link) = self.links.get_mut(way) {
                link.hasten_probe(now);
            }
        }
    }

    /// The connection that asks next. One that begins comes first, for its host has not been silent
    /// yet; then one with a gateway at the other end, which answers in any case. In turn neither
    /// counts: hosts that have not been asked in this silence come first, and of them the one that
    /// was heard last.
    fn asker(&self, way: Way, in_turn: bool) -> Option<Asker> {
        let link = self.links.get(way)?;
        let (since, alone) = (link.asked_since()?, link.silent_host());
        let mut hosts: BTreeMap<IpAddr, Turn> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (id, flow) in self.table.iter() {
            let Some((relays, to)) = waits_over(flow, way) else { continue };
            let (leg, asked_at) = (flow.legs.get(to), relays.get(to.other()).tx.asked_at());
            if alone.is_some_and(|host| are_apart(host, leg.addr)) {
                continue;
            }
            let is_new = asked_at <= since;
            let turn = if is_new { Turn::Unasked(leg.heard_at()) } else { Turn::Asked(Reverse(asked_at)) };
            let of_host = hosts.entry(leg.addr).or_insert(turn);
            *of_host = of_host.of_both(turn);
            let hopes = (is_new && begins(relays, to), leg.peer.is_heard());
            waiting.push((hopes, leg.addr, Reverse(asked_at), Reverse(id.slot), (id, to)));
        }
        let next = waiting.iter().max_by_key(|(hopes, host, asked_at, slot, _)| {
            ((!in_turn).then_some(*hopes), hosts.get(host), *asked_at, *slot)
        });
        let (.., (id, to)) = *next?;
        let more_begin = waiting.iter().any(|((begins, _), .., (other, _))| *begins && *other != id);
        Some(Asker { id, to, more_begin })
    }

    /// For longer than custody is kept without progress nobody was heard and nobody has said why.
    /// The link may be gone for good, or the hosts are: each connection is judged for itself again.
    /// Where it is a gateway that does not answer, hosts have nothing to do with it.
    fn is_silent_too_long(&self, now: Instant, way: Way) -> bool {
        let Some(link) = self.links.get(way) else { return false };
        let timers = &self.config.timers;
        let limit = if link.is_gateway_silent() { timers.outage_limit } else { timers.user_timeout };
        link.asked_since().is_some_and(|at| now.since(at.max(self.links.served_since())) >= limit)
    }
}
