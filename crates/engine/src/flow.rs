//! A connection, and what it does by how it is treated.

use farlink_wire::icmp::InnerTcp;
use farlink_wire::{Duration, IcmpError, Instant, PacketBuf, Pool, SeqNum, TcpSegment, WireSize};

use crate::challenge::Answers;
use crate::changed::Changed;
use crate::checked::{Checked, all_hold};
use crate::config::{Class, Config};
use crate::counted::Counted;
use crate::cx::Cx;
use crate::dormant::{Road, Told};
use crate::due::{Deadline, Due};
use crate::event::{Carried, Event};
use crate::fate::Fate;
use crate::hosts::Hosts;
use crate::leg::{Agreed, Leg};
use crate::link::Links;
use crate::net::IfaceId;
use crate::promise::Promise;
use crate::ready::{Turn, Wants, What};
use crate::record::Record;
use crate::relays::{Over, Relays};
use crate::segment::Pulled;
use crate::side::{Pair, Side};
use crate::spent::Heading;
use crate::split::Split;
use crate::treatment::{Next, Treatment};

/// A connection.
#[derive(Debug)]
pub struct Flow {
    /// What is known of the hosts.
    pub legs: Pair<Leg>,
    /// What they agreed on.
    pub agreed: Agreed,
    /// Split, asleep or closed, with all that belongs to that.
    treatment: Treatment,
    /// Index of the rule it came under; the number of rules for the default action.
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
    /// Ready-queue membership, per leg towards a host.
    pub queued: Pair<bool>,
    /// Deadline under which it stands in the timer heap.
    pub timer_queued: Option<Deadline>,
    /// The engine counts it among the split ones.
    pub counted: bool,
    /// The engine counts it among those that hold data.
    pub busy: bool,
    /// It counts among the open connections of its rule.
    is_open: bool,
    /// What it adds to the sums over all flows.
    pub census: Counted,
    /// Its record stands in the journal.
    pub journaled: Option<Box<Record>>,
    /// Routes must be looked up again.
    pub route_generation: u32,
    /// A SYN has asked for a new connection on this 4-tuple, and no word of the old one has come
    /// since.
    pub asked_anew: bool,
    /// The interface by which the packet at hand came in.
    pub came_by: IfaceId,
    /// How many odd segments may be answered still.
    pub answers: Answers,
}

/// What the methods of a split connection work on: its relays, and what is known of it in any case.
macro_rules! split {
    ($flow:ident, $relays:expr) => {
        Split {
            legs: &mut $flow.legs,
            relays: $relays,
            answers: &mut $flow.answers,
            agreed: $flow.agreed,
            rule: $flow.rule,
            class: $flow.class,
            promise: $flow.promise,
            began_at: $flow.began_at,
            handshake: $flow.handshake,
            active_at: $flow.active_at,
            asked_anew: $flow.asked_anew,
            came_by: $flow.came_by,
        }
    };
}

impl Flow {
    /// A connection that is treated so. It is in no queue and counted nowhere yet.
    #[must_use]
    pub fn new(now: Instant, legs: Pair<Leg>, agreed: Agreed, treatment: Treatment) -> Self {
        Self {
            came_by: legs.a.came_by,
            legs,
            agreed,
            treatment,
            rule: usize::MAX,
            class: None,
            promise: Promise::default(),
            began_at: now,
            handshake: Duration::ZERO,
            active_at: now,
            queued: Pair::default(),
            timer_queued: None,
            counted: false,
            busy: false,
            is_open: false,
            census: Counted::default(),
            journaled: None,
            route_generation: 0,
            asked_anew: false,
            answers: Answers::default(),
        }
    }

    /// How it is treated.
    #[must_use]
    pub fn treatment(&self) -> &Treatment {
        &self.treatment
    }

    /// Its relays, while it is split.
    #[must_use]
    pub fn relays(&self) -> Option<&Relays> {
        if let Treatment::Split(relays) = &self.treatment { Some(relays) } else { None }
    }

    /// It is split.
    #[must_use]
    pub fn is_split(&self) -> bool {
        matches!(self.treatment, Treatment::Split(_))
    }

    /// It is not split now, and may be again.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        matches!(self.treatment, Treatment::Dormant(_))
    }

    /// It counts among the open connections of this rule; `None`: no longer, or it never did.
    #[must_use]
    pub fn open_rule(&self) -> Option<usize> {
        self.is_open.then_some(self.rule)
    }
    /// It counts among the open connections of its rule from now on.
    pub fn note_open(&mut self) {
        self.is_open = true;
    }
    /// It does no longer, if only a tombstone is left: that answers only for a while. Returns its
    /// rule then.
    pub fn take_closed_rule(&mut self) -> Option<usize> {
        let rule = self.open_rule().filter(|_| self.is_closed())?;
        self.is_open = false;
        Some(rule)
    }

    /// Only a tombstone is left.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.treatment, Treatment::Closed(_))
    }

    /// The one place where it gets another treatment. Returns whether it leaves the table.
    fn go_on(&mut self, next: Next) -> bool {
        match next {
            Next::Stay => false,
            Next::Become(treatment) => {
                self.treatment = treatment;
                false
            }
            Next::Forget => true,
        }
    }

    /// A segment of a host that its other host would take, by what is known here: the host itself
    /// has spoken.
    #[must_use]
    pub fn is_word_of(&mut self, now: Instant, from: Side, s: &TcpSegment) -> bool {
        if s.flags.syn() || s.flags.rst() || !s.flags.ack() {
            return false;
        }
        if self.legs.get(from).is_old_stamp(now, self.agreed, s) {
            return false;
        }
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).is_word_of(from, s),
            Treatment::Dormant(dormant) => dormant.is_word_of(self.agreed, from, s),
            Treatment::Closed(_) => false,
        }
    }

    /// A segment of a host; `is_word`: by [`Self::is_word_of`], `may_wake`: there is room for one
    /// more that is split.
    pub fn on_segment(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        s: &TcpSegment,
        packet: PacketBuf,
        (is_word, may_wake): (bool, bool),
    ) -> Fate {
        if let Treatment::Dormant(dormant) = &mut self.treatment {
            let road = Road::of(cx, &self.legs, (from, self.came_by), s);
            let when = (cx.now, cx.config.keepalive(self.rule));
            let is_to_us = is_word && dormant.takes_answer(when, self.legs.get(from), from, s);
            let host = (self.legs.get_mut(from), self.agreed);
            let treatment = match dormant.pass(cx.now, host, from, s, (is_word, may_wake, road)) {
                Told::Little if is_to_us => {
                    cx.counters.keepalives_answered += 1;
                    return Fate::taken(cx.pool, packet);
                }
                Told::Little => return Fate::Forward(packet),
                Told::Forged => return Fate::taken(cx.pool, packet),
                Told::Wakes => Treatment::Split(dormant.wake(cx, (&mut self.legs, self.agreed), from, s)),
                Told::Ends => {
                    cx.happened(&self.legs, Event::Closed(Carried::default()));
                    Treatment::Closed(dormant.end(cx.now, false))
                }
                Told::Resets => {
                    cx.happened(&self.legs, Event::Reset(Carried::default()));
                    Treatment::Closed(dormant.end(cx.now, true))
                }
            };
            self.go_on(Next::Become(treatment));
        }
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).on_segment(cx, from, s, packet),
            Treatment::Closed(closed) => {
                let hosts = Hosts { legs: &self.legs, agreed: self.agreed };
                closed.on_segment(cx, (hosts, &mut self.answers), from, s, packet)
            }
            Treatment::Dormant(_) => Fate::Forward(packet),
        }
    }

    /// An ICMP error that quotes a segment from host `from`. Returns whether it was about a segment
    /// made here.
    pub fn on_icmp(&mut self, cx: &mut Cx<'_>, from: Side, e: &IcmpError, inner: &InnerTcp) -> bool {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).on_icmp(cx, from, e, inner),
            // All that is under way is the hosts' own. What a tombstone sends needs no answer.
            Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// Something has changed round it. Returns whether that concerns it: what is not split looks
    /// everything up when it is split again.
    pub fn on_change(&mut self, config: &Config, links: &Links, changed: Changed) -> bool {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).on_change(config, links, changed),
            Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// Its deadline has passed.
    pub fn on_timer(&mut self, cx: &mut Cx<'_>) {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).on_timer(cx),
            Treatment::Closed(closed) => closed.ask(cx, Hosts { legs: &self.legs, agreed: self.agreed }),
            Treatment::Dormant(dormant) => {
                let every = cx.config.keepalive(self.rule);
                dormant.ask(cx, (&mut self.legs, self.agreed), every);
            }
        }
    }

    /// The next time at which something happens without a packet.
    #[must_use]
    pub fn deadline(&mut self, now: Instant, config: &Config, links: &Links) -> Option<Deadline> {
        match &mut self.treatment {
            Treatment::Split(relays) => {
                let mut split = split!(self, relays);
                split.watch_unsent(now, links);
                split.deadline(config, links)
            }
            Treatment::Closed(closed) => Some(Deadline { at: closed.deadline(), what: Due::Tombstone }),
            // The table forgets the one that is silent longest.
            Treatment::Dormant(dormant) => dormant.asks_at().map(|at| Deadline { at, what: Due::Keepalive }),
        }
    }

    /// After any event: whether it is to be treated so still. Returns whether it leaves the table.
    pub fn settle(&mut self, cx: &mut Cx<'_>, engine_draining: bool) -> bool {
        let next = match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).settle(cx, engine_draining),
            Treatment::Dormant(_) if engine_draining => Next::Forget,
            Treatment::Closed(closed) if engine_draining || closed.until <= cx.now => Next::Forget,
            // When a sleeper is forgotten, the table knows.
            Treatment::Dormant(_) | Treatment::Closed(_) => Next::Stay,
        };
        self.go_on(next)
    }

    /// What must hold of it after each event, and of how the engine counts it (`check.rs`).
    /// `closely`: with the sums over all that it holds.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn check(&mut self, now: Instant, links: &Links, closely: bool) -> Checked {
        let is_due = self.timer_queued.is_some();
        all_hold(&[
            (self.counted == self.is_split(), "it counts wrongly among those that are split"),
            (!self.is_open || !self.is_closed(), "it counts among the open ones of its rule and is closed"),
        ])?;
        match &mut self.treatment {
            Treatment::Split(relays) => {
                relays.check_counted(
                    self.busy,
                    self.journaled.is_some(),
                    relays.are_bound(self.promise.binds()),
                )?;
                split!(self, relays).check(links, is_due, closely)
            }
            Treatment::Dormant(dormant) => {
                let is_alone =
                    !self.busy && is_due == dormant.asks_at().is_some() && self.journaled.is_none();
                all_hold(&[(is_alone, "a sleeper holds something, or has a timer that asks nobody")])?;
                dormant.check()
            }
            Treatment::Closed(closed) => {
                all_hold(&[(is_due, "a tombstone is never taken away")])?;
                closed.check(now)
            }
        }
    }

    /// After any event: what it holds is booked, and what its sources may send follows. Only relays
    /// hold anything.
    pub fn take_stock(&mut self, cx: &mut Cx<'_>) {
        match &mut self.treatment {
            Treatment::Split(relays) => {
                let mut split = split!(self, relays);
                split.end_bookmarks();
                split.book(cx.links);
                split.regulate(cx);
                split.watch_room(cx);
            }
            Treatment::Dormant(_) | Treatment::Closed(_) => {}
        }
    }

    /// Gives all memory back, before it leaves the table.
    pub fn release(&mut self, pool: &mut Pool, links: &mut Links) {
        match &mut self.treatment {
            Treatment::Split(relays) => relays.release(pool, links),
            // They have none of the pool, and nothing is booked for them.
            Treatment::Dormant(_) | Treatment::Closed(_) => {}
        }
    }

    /// Data, or the end of a stream, is here that has not arrived. Only relays hold anything.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match &self.treatment {
            Treatment::Split(relays) => relays.is_busy(),
            Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// Something of either source is here, see [`Relays::holds`]; nothing is where there are no
    /// relays.
    #[must_use]
    pub fn holds(&self) -> bool {
        match &self.treatment {
            Treatment::Split(relays) => relays.holds(),
            Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// What was acknowledged to its hosts here is owed to them.
    #[must_use]
    pub fn binds(&self) -> bool {
        self.promise.binds()
    }

    /// Something was acknowledged to a host here that the other one has not acknowledged.
    fn owes(&self) -> bool {
        match &self.treatment {
            Treatment::Split(relays) => relays.owe(self.binds()),
            Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// This is promised from the beginning; returns what was before.
    pub fn set_promise(&mut self, promise: Promise) -> Promise {
        self.agreed.pads_marks = !promise.binds();
        core::mem::replace(&mut self.promise, promise)
    }

    /// Another promise is made from now on. What was promised before stays owed. Returns whether
    /// that concerns it now: what is not split promises nothing to anybody.
    pub fn change_promise(&mut self, promise: Promise) -> bool {
        let before = self.set_promise(promise);
        match &mut self.treatment {
            Treatment::Split(relays) if before.binds() != promise.binds() => {
                relays.change_promise(promise.binds());
                true
            }
            Treatment::Split(_) | Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// How it is treated, for people.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match &self.treatment {
            Treatment::Split(relays) if !self.binds() && !relays.is_draining() => "custody",
            treatment => treatment.name(),
        }
    }

    /// It cannot be forgotten for a new connection: something is owed to a host, or it is being
    /// reset. Neither is so without relays.
    #[must_use]
    pub fn holds_on(&self) -> bool {
        match &self.treatment {
            Treatment::Split(relays) => self.owes() || relays.is_reset(),
            Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// What it wants to send towards a host now. A sleeper has nothing of its own to say, and a
    /// tombstone says it when it is asked, or by its timer.
    #[must_use]
    pub fn wants(&mut self, cx: &Cx<'_>, to: Side) -> Option<Wants> {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).wants(cx, to),
            Treatment::Dormant(_) | Treatment::Closed(_) => None,
        }
    }

    /// What it would repeat towards a host before anybody asks, see [`Self::wants`].
    #[must_use]
    pub fn wants_repeat(&mut self, cx: &Cx<'_>, to: Side) -> Option<Wants> {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).wants_repeat(cx, to),
            Treatment::Dormant(_) | Treatment::Closed(_) => None,
        }
    }

    /// Sends what is most pressing to a host, and says whether there is more. What became of it
    /// since it asked for its turn may want nothing any more.
    pub fn pull(&mut self, cx: &mut Cx<'_>, to: Side, turn: Turn, what: What) -> Pulled {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).pull(cx, to, turn, what),
            Treatment::Dormant(_) | Treatment::Closed(_) => Pulled::default(),
        }
    }

    /// A segment of a host goes on as it came, but for the window that it shows to this one.
    pub fn show_window(&mut self, cx: &mut Cx<'_>, to: Side, s: &TcpSegment, packet: &mut PacketBuf) {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).show_window(cx, to, s, packet),
            // The host's own window is the one that counts.
            Treatment::Dormant(_) | Treatment::Closed(_) => {}
        }
    }

    /// A silent link is asked sooner where this begins to send into it: only what is split sends.
    pub fn hasten_probe(&mut self, cx: &mut Cx<'_>, to: Side) {
        match &mut self.treatment {
            Treatment::Split(relays) => split!(self, relays).hasten_probe(cx, to),
            Treatment::Dormant(_) | Treatment::Closed(_) => {}
        }
    }

    /// Looks its routes up where they may have changed since it did so last. A packet that is
    /// forwarded is routed by itself.
    pub fn renew_routes(&mut self, cx: &mut Cx<'_>, generation: u32) {
        match &mut self.treatment {
            Treatment::Split(relays) if self.route_generation != generation => {
                split!(self, relays).find_routes(cx);
                self.route_generation = generation;
            }
            Treatment::Split(_) | Treatment::Dormant(_) | Treatment::Closed(_) => {}
        }
    }

    /// Looks its routes up where one leads into a link that is down or silent. Returns whether it
    /// did, see [`Self::renew_routes`].
    pub fn leave_links_away(&mut self, cx: &mut Cx<'_>, generation: u32) -> bool {
        match &mut self.treatment {
            Treatment::Split(relays) => {
                let mut split = split!(self, relays);
                let is_away = [Side::A, Side::B].into_iter().any(|to| split.is_down(cx, to));
                if is_away {
                    split.find_routes(cx);
                    split.notify_of_outage(cx);
                    self.route_generation = generation;
                }
                is_away
            }
            Treatment::Dormant(_) | Treatment::Closed(_) => false,
        }
    }

    /// Looks its routes up where nobody answers by one of them, see [`Self::renew_routes`]. Returns
    /// whether it did.
    pub fn leave_silent_ways(&mut self, cx: &mut Cx<'_>, generation: u32) -> bool {
        let is_silent = |relays: &Relays| [Side::A, Side::B].into_iter().any(|s| relays.get(s).is_silent());
        let looks = self.route_generation != generation && self.relays().is_some_and(is_silent);
        if looks {
            self.renew_routes(cx, generation);
        }
        looks
    }

    /// What it holds cannot be delivered. Returns how it ends.
    pub fn give_up(&mut self) -> Over {
        let over = self.promise.given_up(self.relays().is_some_and(Relays::is_relied_on));
        self.end_split(over);
        over
    }

    /// It is split no longer when this event is over. Nothing changes for one that is not split
    /// now.
    pub fn end_split(&mut self, over: Over) {
        if let Treatment::Split(relays) = &mut self.treatment {
            relays.end(over);
        }
    }

    /// What must survive the process: something only while it holds anything.
    ///
    /// What was only SACKed counts, though it is not owed. It is gone with the process, and its
    /// source sends it again only after a timeout, if it keeps RFC 2018 section 8. A reset says at
    /// once what has happened. Where nothing was promised all of it is the source's still.
    #[must_use]
    pub fn record(&mut self) -> Option<Record> {
        let binds = self.binds();
        match &mut self.treatment {
            Treatment::Split(relays) if relays.are_bound(binds) && relays.holds() => {
                Some(split!(self, relays).record())
            }
            Treatment::Split(_) | Treatment::Dormant(_) | Treatment::Closed(_) => None,
        }
    }

    /// What has been spent and said in its handshake counts for it from now on: copies of what each
    /// host sent, and the window that the gateway before this one has been told.
    pub fn begin_with(&mut self, cx: &mut Cx<'_>, copied: Pair<WireSize>, told_bytes: Option<u32>) {
        let binds = self.binds();
        let out = self.legs.b.out;
        let Treatment::Split(relays) = &mut self.treatment else { return };
        for (relay, to) in relays.each_mut() {
            let size = *copied.get(to.other());
            if !size.is_nothing() {
                relay.tx.note_spent(Heading::Copy, 0, size);
            }
        }
        if let Some(bytes) = told_bytes.filter(|_| binds) {
            let rx = &mut relays.a.rx;
            let before = rx.edge();
            rx.begin_with_told(bytes);
            cx.links.promise(cx.now, out, rx.edge().since(before));
        }
    }

    /// It has begun with this number of a host's, whose stream has gone no further than so many
    /// bytes.
    #[must_use]
    pub fn began_lately(&self, from: Side, isn: SeqNum, bytes: u32) -> bool {
        let Treatment::Split(relays) = &self.treatment else { return false };
        let next = relays.get(from).rcv_nxt();
        !self.asked_anew && next.after(isn) && next.since(isn) <= bytes
    }

    /// A SYN from this host can ask for a new connection here: nothing of the old one is owed, and
    /// it is no late copy of the SYN that began it.
    #[must_use]
    pub fn gives_way(&self, from: Side, s: &TcpSegment) -> bool {
        match &self.treatment {
            Treatment::Split(r) if !r.is_draining() => {
                let first = s.seq + 1 == r.get(from).buffer.base();
                !first && !r.is_reset() && !self.owes()
            }
            Treatment::Dormant(_) => true,
            Treatment::Split(_) | Treatment::Closed(_) => false,
        }
    }
}
