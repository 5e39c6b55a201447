//! What a connection has only while it is split. An idle one does without, and is small.

use core::ops::{Deref, DerefMut};

use farlink_wire::{Duration, Instant, Pool, SeqNum, TcpSegment};

use crate::cx::Cx;
use crate::event::Carried;
use crate::hosts::{Hosts, look_up};
use crate::leg::{Agreed, Leg};
use crate::link::{Entry, Links, WAITS_MIN};
use crate::relay::Relay;
use crate::side::{Pair, Side};

/// What a connection has only while it is split: the two relays, and what concerns both.
#[derive(Debug)]
pub struct Relays {
    /// One of what each host sends: a pair with something beside it, and used as one.
    both: Pair<Relay>,
    /// Whether it takes anything new.
    pub phase: Phase,
    /// A host was reset or has reset: which, when it began.
    reset_from: Option<(Side, Instant)>,
    /// What it has come to while an event is handled: carried out when the event is over, so
    /// nothing in it meets half a connection.
    over: Option<Over>,
    /// A host asks for a new connection on this 4-tuple, while bytes of the old one are owed.
    pub new_syn: Option<NewSyn>,
    /// When to look whether a source can be shown more.
    pub room_at: Option<Instant>,
}

/// Whether anything new is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It is.
    Open,
    /// Draining is to begin, at this time at the latest.
    LetsGo(Instant),
    /// Nothing new is taken. What is held is delivered, the rest forwarded.
    Draining,
}

/// Why it is split no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// Nothing is held.
    Asleep,
    /// What is held cannot be delivered: both hosts learn it.
    Abandoned,
}

/// SYNs for a new connection while the old one holds something.
#[derive(Clone, Copy, Debug)]
pub struct NewSyn {
    /// Who asks.
    pub from: Side,
    /// Its initial sequence number.
    pub isn: SeqNum,
    /// How often, repetitions in haste not counted.
    pub count: u8,
    /// When it was counted last.
    pub at: Instant,
}

impl Relays {
    /// Something is owed though nothing is promised any more.
    #[must_use]
    pub fn has_debt(&self) -> bool {
        self.a.debt().stands() || self.b.debt().stands()
    }

    /// What is held here binds this gateway: its promise does, or an earlier one.
    #[must_use]
    pub fn are_bound(&self, promise_binds: bool) -> bool {
        promise_binds || self.has_debt()
    }

    /// Something is held here that binds this gateway, and has not arrived.
    #[must_use]
    pub fn owe(&self, promise_binds: bool) -> bool {
        self.are_bound(promise_binds) && self.is_busy()
    }

    /// Whatever is promised now, sources would not send all of it again.
    #[must_use]
    pub fn is_relied_on(&self) -> bool {
        self.has_noticed() || self.has_debt()
    }

    /// Sources are promised something from now on, or nothing more.
    pub fn change_promise(&mut self, binds: bool) {
        self.a.change_promise(binds);
        self.b.change_promise(binds);
    }

    /// Relays between the hosts, each beginning at the sequence number that its host sends next.
    /// Routes are looked up before.
    pub fn begin(cx: &mut Cx<'_>, legs: &mut Pair<Leg>, agreed: Agreed, next: Pair<SeqNum>) -> Box<Self> {
        for to in [Side::A, Side::B] {
            look_up(cx, legs, to);
        }
        for leg in [&legs.a, &legs.b] {
            if let (Some(rtt), Some(link)) = (leg.handshake_rtt(), cx.links.get_mut(leg.out)) {
                link.note_handshake(cx.now, rtt, leg.handshake_waited());
            }
        }
        let hosts = Hosts { legs, agreed };
        let a = Relay::new(hosts, cx, Side::A, next.a);
        let b = Relay::new(hosts, cx, Side::B, next.b);
        let phase = Phase::Open;
        let both = Pair { a, b };
        Box::new(Self { both, phase, reset_from: None, over: None, new_syn: None, room_at: None })
    }

    /// This has completed the handshake of the host that sent the SYN. Where it has waited on its
    /// way back, that is known from here on of what it acknowledges.
    pub fn begin_stamps(&mut self, cx: &Cx<'_>, client: &Leg, s: &TcpSegment) {
        let known = (s.options.timestamps, client.handshake_rtt(), cx.links.get(client.out));
        let (Some(stamps), Some(rtt), Some(link)) = known else { return };
        // Of its own acknowledgements more is known later: whether its clock counts milliseconds.
        let waits = link.handshake_waits(rtt).max(client.handshake_waited());
        if waits >= WAITS_MIN {
            self.b.tx.begin_stamps(cx.now, stamps.val, rtt, waits);
        }
    }

    /// Nothing new is taken any more.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.phase == Phase::Draining
    }

    /// A host has reset, or was: nothing else follows to it.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.reset_from.is_some()
    }
    /// It is this one.
    #[must_use]
    pub fn is_reset_by(&self, host: Side) -> bool {
        self.reset_from.is_some_and(|(dead, _)| dead == host)
    }
    /// Which one, and when it began.
    #[must_use]
    pub fn reset(&self) -> Option<(Side, Instant)> {
        self.reset_from
    }
    /// A host resets: what it sent before is still delivered.
    pub fn begin_reset(&mut self, now: Instant, by: Side) {
        self.reset_from = Some((by, now));
    }

    /// When draining begins at the latest.
    #[must_use]
    pub fn lets_go_until(&self) -> Option<Instant> {
        if let Phase::LetsGo(until) = self.phase { Some(until) } else { None }
    }

    /// Something of either source is here, see [`Relay::holds`].
    #[must_use]
    pub fn holds(&self) -> bool {
        self.a.holds() || self.b.holds()
    }

    /// A source was told that something is held here, and the far host has not acknowledged it.
    #[must_use]
    pub fn has_noticed(&self) -> bool {
        [&self.a, &self.b].into_iter().any(Relay::has_noticed)
    }

    /// What the hosts have acknowledged since it was split last.
    #[must_use]
    pub fn carried(&self) -> Carried {
        // A FIN has a number like a byte.
        let of = |relay: &Relay| relay.tx.delivered_bytes().saturating_sub(relay.is_finished().into());
        let [to_server_bytes, to_client_bytes] = [&self.a, &self.b].map(of);
        let [spent_to_server, spent_to_client] = [&self.a, &self.b].map(|relay| relay.tx.spent());
        Carried { to_server_bytes, to_client_bytes, spent_to_server, spent_to_client }
    }

    /// Some relay holds data, or the end of its stream, that has not arrived.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.a.is_busy() || self.b.is_busy()
    }

    /// The longer of both retransmission timeouts.
    #[must_use]
    pub fn rto(&self, min: Duration, max: Duration) -> Duration {
        let rto = |relay: &Relay| relay.tx.rtt().rto(min, max);
        rto(&self.a).max(rto(&self.b))
    }

    /// It is split no longer, when the event is over.
    pub fn end(&mut self, over: Over) {
        self.over = Some(over);
    }
    /// What it has come to.
    #[must_use]
    pub fn over(&self) -> Option<Over> {
        self.over
    }

    /// Each relay with the side that it sends to.
    pub fn each_mut(&mut self) -> [(&mut Relay, Side); 2] {
        let Pair { a, b } = &mut self.both;
        [(a, Side::B), (b, Side::A)]
    }

    /// Gives all memory back.
    pub fn release(&mut self, pool: &mut Pool, links: &mut Links) {
        for (relay, _) in self.each_mut() {
            relay.buffer.clear(pool);
            relay.book(links, Entry::default());
        }
    }
}

impl Deref for Relays {
    type Target = Pair<Relay>;

    fn deref(&self) -> &Pair<Relay> {
        &self.both
    }
}

impl DerefMut for Relays {
    fn deref_mut(&mut self) -> &mut Pair<Relay> {
        &mut self.both
    }
}
