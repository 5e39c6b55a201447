//! A connection while it is split: when it drains, falls asleep or closes, and what is remembered
//! of it then.

use farlink_wire::{Duration, Instant};

use crate::asks::Asks;
use crate::challenge::Answers;
use crate::closed::Closed;
use crate::config::Class;
use crate::cx::Cx;
use crate::dormant::Dormant;
use crate::event::Event;
use crate::hosts::Hosts;
use crate::leg::{Agreed, Leg};
use crate::link::{Entry, Links};
use crate::net::IfaceId;
use crate::promise::Promise;
use crate::receiver::Stretch;
use crate::relay::Relay;
use crate::relays::{Over, Phase, Relays};
use crate::side::{Pair, Side};
use crate::treatment::{Next, Treatment};

/// Time for hosts to learn the path's RTT.
const LET_GO_MAX: Duration = Duration::from_secs(4);
/// A tombstone lives this long at least and at most.
const LINGER_MIN: Duration = Duration::from_secs(2);
const LINGER_MAX: Duration = Duration::from_secs(30);

/// A connection that is split, while something happens to it: its relays, and what is known of it
/// in any case.
#[derive(Debug)]
pub struct Split<'a> {
    /// What is known of the hosts.
    pub legs: &'a mut Pair<Leg>,
    /// `relays.get(x)` carries data from host x.
    pub relays: &'a mut Relays,
    /// How many odd segments may be answered still.
    pub answers: &'a mut Answers,
    /// What the hosts agreed on.
    pub agreed: Agreed,
    /// The rule that it falls under.
    pub rule: usize,
    /// Class of its data on declared links; `None`: by its DSCP.
    pub class: Option<Class>,
    /// What an acknowledgement made here promises.
    pub promise: Promise,
    /// When it was split for the first time.
    pub began_at: Instant,
    /// So long its handshake took, seen from here.
    pub handshake: Duration,
    /// Last packet of either host.
    pub active_at: Instant,
    /// A SYN has asked for a new connection on this 4-tuple, and no word of the old one has come
    /// since.
    pub asked_anew: bool,
    /// The interface by which the packet at hand came in.
    pub came_by: IfaceId,
}

impl Split<'_> {
    /// Its hosts, for what does not depend on its being split.
    #[must_use]
    pub fn hosts(&self) -> Hosts<'_> {
        Hosts { legs: self.legs, agreed: self.agreed }
    }

    /// After any event: what becomes of it, when nothing is left to do as it is.
    pub fn settle(&mut self, cx: &mut Cx<'_>, engine_draining: bool) -> Next {
        let next = match self.relays.over() {
            Some(Over::Asleep) => self.sleep(cx),
            Some(Over::Abandoned) => {
                self.tell_both(cx);
                self.close(cx, true)
            }
            None => {
                if !self.finish_reset(cx) {
                    self.watch_holes(cx.now);
                    return self.move_on(cx, engine_draining);
                }
                self.close(cx, true)
            }
        };
        if engine_draining { Next::Forget } else { next }
    }

    fn move_on(&mut self, cx: &mut Cx<'_>, engine_draining: bool) -> Next {
        if self.is_finished() {
            cx.happened(self.legs, Event::Closed(self.relays.carried()));
            self.send_owed(cx);
            let next = self.close(cx, false);
            // What drains is forgotten with all that it knew.
            return if engine_draining && self.relays.is_draining() { Next::Forget } else { next };
        }
        if engine_draining && !self.relays.is_draining() && self.has_let_go(cx) {
            self.start_draining();
        }
        let is_drained =
            self.relays.is_draining() && self.relays.a.is_drained() && self.relays.b.is_drained();
        if !is_drained {
            return Next::Stay;
        }
        self.send_owed(cx);
        let next = self.sleep(cx);
        if engine_draining { Next::Forget } else { next }
    }

    /// Both hosts have all of it: by the word of the next TCP, or, where nothing is promised, by
    /// their own.
    fn is_finished(&self) -> bool {
        let r = &*self.relays;
        let has_it = |relay: &Relay| self.binds() || relay.far_acked().after_eq(relay.rcv_nxt());
        [&r.a, &r.b].into_iter().all(|relay| relay.is_finished() && has_it(relay))
    }

    /// Before draining: hosts whose timers know only the leg to us are shown the path's RTT, or
    /// their timers would expire over the first segment that goes the whole way. Only a source with
    /// data in flight can learn, and it is given a few seconds. Returns whether that is over.
    fn has_let_go(&mut self, cx: &Cx<'_>) -> bool {
        if self.relays.phase == Phase::Open {
            let known = |relay: &Relay| relay.tx.rtt().srtt().unwrap_or_default();
            let path = known(&self.relays.a) + known(&self.relays.b);
            for (relay, _) in self.relays.each_mut() {
                relay.rx.stretch = Stretch::towards(path).filter(|_| !relay.buffer.is_empty());
            }
            self.relays.phase = Phase::LetsGo(cx.now + LET_GO_MAX);
        }
        let is_done = |relay: &Relay| relay.buffer.is_empty() || relay.rx.stretch.is_none_or(|s| s.is_done());
        let is_time = self.relays.lets_go_until().is_none_or(|until| cx.now >= until);
        is_time || is_done(&self.relays.a) && is_done(&self.relays.b)
    }

    /// Both right edges freeze behind what is held.
    fn start_draining(&mut self) {
        for (relay, _) in self.relays.each_mut() {
            relay.freeze();
        }
        self.relays.phase = Phase::Draining;
    }

    /// Draining has ended before it began for this flow: it stays split, and its hosts need not
    /// know the path's RTT.
    pub fn keep_hold(&mut self) {
        if !self.relays.is_draining() {
            self.relays.phase = Phase::Open;
        }
        self.relays.a.rx.stretch = None;
        self.relays.b.rx.stretch = None;
    }

    /// The last acknowledgements, before the relays go: nobody would give them later.
    fn send_owed(&mut self, cx: &mut Cx<'_>) {
        for to in [Side::A, Side::B] {
            if self.relays.get(to).rx.due().is_some() {
                self.emit(cx, to, None);
            }
        }
    }

    /// Both hosts know that it is over: gives all memory back. Late segments are answered for a
    /// while.
    fn close(&mut self, cx: &mut Cx<'_>, reset: bool) -> Next {
        let r = &*self.relays;
        let timers = &cx.config.timers;
        let linger = (r.rto(timers.rto_min, timers.rto_max) * 4).clamp(LINGER_MIN, LINGER_MAX);
        let closed = Closed {
            until: cx.now + linger,
            next: Pair { a: r.a.rcv_nxt(), b: r.b.rcv_nxt() },
            reach_bytes: self.reach_bytes(),
            reset,
            reset_by: r.reset().map(|(by, _)| by),
            held_nothing: false,
            ask: None,
        };
        self.remember_shares(cx.now, cx.links);
        self.relays.release(cx.pool, cx.links);
        Next::Become(Treatment::Closed(closed))
    }

    /// Nothing is held: remembers what it takes to split again, gives the rest back.
    fn sleep(&mut self, cx: &mut Cx<'_>) -> Next {
        self.remember_shares(cx.now, cx.links);
        let r = &*self.relays;
        let own_max = |x: &Relay| u32::try_from(x.tx.window_max_bytes()).unwrap_or(u32::MAX);
        let dormant = Dormant {
            // What the destination acknowledged, the source has sent.
            sent: Pair { a: r.a.rcv_nxt().max(r.a.acked()), b: r.b.rcv_nxt().max(r.b.acked()) },
            acked: Pair { a: r.b.acked(), b: r.a.acked() },
            edges: Pair { a: r.a.rx.edge(), b: r.b.rx.edge() },
            shown_max: Pair { a: r.a.rx.window_shown_max(), b: r.b.rx.window_shown_max() },
            own_max: Pair { a: own_max(&r.b), b: own_max(&r.a) },
            fin: Pair { a: r.a.rx.fin_at().map(|f| f + 1), b: r.b.rx.fin_at().map(|f| f + 1) },
            asks: cx.config.keepalive(self.rule).map(|every| Box::new(Asks::new(self.active_at + every))),
        };
        self.legs.b.remember_rtt(r.a.tx.rtt().srtt());
        self.legs.a.remember_rtt(r.b.tx.rtt().srtt());
        for leg in [&mut self.legs.a, &mut self.legs.b] {
            leg.forget_told_window();
            leg.forget_places();
        }
        cx.happened(self.legs, Event::Slept(self.relays.carried()));
        self.relays.release(cx.pool, cx.links);
        Next::Become(Treatment::Dormant(dormant))
    }

    /// What is remembered of both streams, and lies too far away, is forgotten.
    pub fn end_bookmarks(&mut self) {
        for from in [Side::A, Side::B] {
            let (relay, back) = self.relays.both_mut(from);
            relay.end_bookmarks(self.legs.get_mut(from.other()), back.rx.marks_mut());
        }
    }

    /// Books what is held now.
    pub fn book(&mut self, links: &mut Links) {
        for from in [Side::A, Side::B] {
            let relay = self.relays.get_mut(from);
            let new = Entry {
                out: self.legs.get(from.other()).out,
                held_bytes: relay.buffer.len().saturating_add(relay.buffer.early_bytes()),
                sacked_bytes: u32::try_from(relay.tx.board().sacked_bytes()).unwrap_or(u32::MAX),
            };
            relay.book(links, new);
        }
    }
}
