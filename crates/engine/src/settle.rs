//! What follows each event: a flow's mode, its place in the table, journal, queue and timers; and
//! the passing of time.

use farlink_wire::{Duration, Instant};

use crate::cx::Cx;
use crate::due::{Deadline, Due, Earliest};
use crate::engine::{Engine, cx};
use crate::flow_id::FlowId;
use crate::promise::Promise;
use crate::record::Record;
use crate::side::Side;
use crate::turns::serve_in_turns;
use crate::world::World;

/// The pool gives back what nobody has wanted this often.
const POOL_TRIM: Duration = Duration::from_secs(1);
/// What is still due after all its turns at one moment is put off for so long.
const PUT_OFF: Duration = Duration::from_millis(1);
/// Room for so many legs with something to send is kept. What a crowd has made beyond that goes
/// back.
const KEPT_ENTRIES: usize = 256;

impl Engine {
    /// Keeps the records of all flows that have one once more: another journal has begun.
    pub fn journal_again(&self, net: &mut dyn World) {
        for (id, flow) in self.table.iter() {
            if let Some(record) = flow.journaled.as_deref() {
                net.journal(id.slot, Some(record));
            }
        }
    }

    /// After anything that touched a flow: mode, journal, ready queue, timer.
    pub(crate) fn after_event(&mut self, now: Instant, id: FlowId, net: &mut dyn World) {
        let mut cx = cx!(self, now, net);
        let Some(flow) = self.table.get_mut(id) else { return };
        if flow.settle(&mut cx, self.draining) {
            return self.remove(id, net);
        }
        flow.take_stock(&mut cx);
        let (split, busy) = (flow.is_split(), flow.is_busy());
        if busy != flow.busy {
            flow.busy = busy;
            self.busy_count = if busy { self.busy_count + 1 } else { self.busy_count.saturating_sub(1) };
        }
        let split_changed = split != flow.counted;
        if split_changed {
            flow.counted = split;
            self.split_count = if split { self.split_count + 1 } else { self.split_count.saturating_sub(1) };
        }
        if let Some(rule) = flow.take_closed_rule() {
            self.rules.closed(rule);
        }
        let record = flow.record();
        if Record::is_news(flow.journaled.as_deref(), record.as_ref()) {
            cx.net.journal(id.slot, record.as_ref());
            flow.journaled = record.map(Box::new);
            // What is held would die with the process, and nobody would reset its hosts.
            if flow.journaled.is_some() && !cx.net.is_kept(id.slot) {
                flow.change_promise(Promise::Nothing(cx.config.custody_notice));
            }
        }
        for to in [Side::A, Side::B] {
            if !*flow.queued.get(to) && flow.wants(&cx, to).is_some() {
                *flow.queued.get_mut(to) = true;
                self.ready.push_back((id, to));
            }
            flow.hasten_probe(&mut cx, to);
        }
        let asleep = flow.is_asleep();
        let spoke = flow.active_at == now;
        let noted = flow.census.is_noted(split);
        if split_changed {
            self.share_memory();
        }
        if asleep != self.table.is_asleep(id) || (asleep && spoke) {
            self.keep_place(now, id, asleep);
        }
        if !noted {
            self.census.note(&mut self.table, id);
        }
        self.queue_timer(now, id);
        self.go_on_with_found(now);
        self.check(now, id);
    }

    /// In debug builds a flow is looked at after each event: what is broken shows where, not later.
    pub(crate) fn check(&mut self, now: Instant, id: FlowId) {
        if !cfg!(debug_assertions) {
            return;
        }
        let closely = self.checks.closely();
        if let Some(flow) = self.table.get_mut(id) {
            let checked = flow.check(now, &self.links, closely);
            debug_assert!(checked.is_ok(), "{}: {flow:?}", checked.err().unwrap_or_default());
        }
    }

    /// A sleeper has no timer of its own: the table knows which one is silent longest.
    fn keep_place(&mut self, now: Instant, id: FlowId, asleep: bool) {
        if !asleep {
            return self.table.wake(id);
        }
        self.table.sleep(now, id);
        if let Some(due) = self.table.get_mut(id).and_then(|flow| flow.timer_queued.take()) {
            self.timers.remove(&(due.at, id));
        }
    }

    /// Each flow has one timer at most, and the old one goes when a new one comes: to clear them
    /// away later, many at once, would hold up the packet that has the bad luck.
    pub(crate) fn queue_timer(&mut self, now: Instant, id: FlowId) {
        let Some(flow) = self.table.get_mut(id) else { return };
        let Some(mut due) = flow.deadline(now, &self.config, &self.links) else { return };
        // What has become due by what happened now was not due before: nobody is late with it.
        due.at = due.at.max(now);
        if flow.timer_queued.is_none_or(|queued| due.at < queued.at) {
            if let Some(old) = flow.timer_queued.replace(due) {
                self.timers.remove(&(old.at, id));
            }
            self.timers.insert((due.at, id));
        }
    }

    pub(crate) fn remove(&mut self, id: FlowId, net: &mut dyn World) {
        let Some(mut flow) = self.table.remove(id) else { return };
        if let Some(due) = flow.timer_queued {
            self.timers.remove(&(due.at, id));
        }
        self.census.forget(&flow);
        self.busy_count = self.busy_count.saturating_sub(usize::from(flow.busy));
        if flow.counted {
            self.split_count = self.split_count.saturating_sub(1);
            self.share_memory();
        }
        flow.release(&mut self.pool, &mut self.links);
        if flow.journaled.is_some() {
            net.journal(id.slot, None);
        }
        if let Some(rule) = flow.open_rule() {
            self.rules.closed(rule);
        }
    }

    /// Time has come for some flows.
    pub fn handle_timeout(&mut self, now: Instant, net: &mut dyn World) {
        if self.is_restarting() {
            let timers_wait = self.restarts_first(now);
            self.restart_some(now, net);
            if timers_wait {
                return;
            }
        }
        self.challenges.refill(now);
        if now.since(self.trimmed_at) >= POOL_TRIM {
            self.trimmed_at = now;
            self.pool.trim();
            self.trim_queues();
        }
        self.syns.expire(now);
        while let Some((id, since)) = self.table.oldest_sleeper()
            && since + self.config.timers.forget_after <= now
        {
            self.remove(id, net);
        }
        let mut engine = (self, net);
        let next_due = |(engine, _): &mut (&mut Self, _)| engine.next_due(now);
        let serve =
            |(engine, net): &mut (&mut Self, &mut dyn World), id| engine.serve_timer(now, id, &mut **net);
        engine.0.probe_links(now, &mut *engine.1);
        let still_due = serve_in_turns(&mut engine, next_due, serve);
        for id in still_due {
            engine.0.put_off(now, id);
        }
    }

    /// The next flow whose time has come, out of the queue of timers.
    fn next_due(&mut self, now: Instant) -> Option<FlowId> {
        let (_, id) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        self.timers.pop_first();
        if let Some(flow) = self.table.get_mut(id) {
            flow.timer_queued = None;
        }
        Some(id)
    }

    /// A flow's turn. Returns whether it is due still; then it stands in no queue until its next
    /// turn.
    fn serve_timer(&mut self, now: Instant, id: FlowId, net: &mut dyn World) -> bool {
        let mut cx = cx!(self, now, net);
        let Some(flow) = self.table.get_mut(id) else { return false };
        flow.on_timer(&mut cx);
        self.after_event(now, id, net);
        let Some(flow) = self.table.get_mut(id) else { return false };
        let Some(due) = flow.timer_queued.filter(|due| due.at <= now) else { return false };
        flow.timer_queued = None;
        self.timers.remove(&(due.at, id));
        true
    }

    /// A deadline that stays in the past however often it is served is a mistake of ours. It must
    /// not keep everything else waiting.
    fn put_off(&mut self, now: Instant, id: FlowId) {
        let Some(flow) = self.table.get_mut(id) else { return };
        let Some(due) = flow.deadline(now, &self.config, &self.links) else { return };
        debug_assert!(false, "a deadline that nothing moves: {}: {flow:?}", due.what.name());
        let at = now + PUT_OFF;
        flow.timer_queued = Some(Deadline { at, ..due });
        self.timers.insert((at, id));
    }

    /// Room that a crowd has left goes back.
    fn trim_queues(&mut self) {
        let capacity = self.ready.capacity();
        if capacity > KEPT_ENTRIES && self.ready.len() < capacity / 8 {
            self.ready.shrink_to((self.ready.len() * 2).max(KEPT_ENTRIES));
        }
    }

    /// When `handle_timeout` wants to be called, and for what.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let flow = self.timers.first().and_then(|(_, id)| self.table.get(*id)?.timer_queued);
        let sleeper = self.table.oldest_sleeper().map(|(_, since)| since + self.config.timers.forget_after);
        let trim = self.pool.has_spare().then(|| self.trimmed_at + POOL_TRIM);
        Earliest::default()
            .and_of(flow)
            .and(Due::Sleeper, sleeper)
            .and(Due::HalfOpen, self.syns.deadline())
            .and(Due::Pool, trim)
            .and(Due::LinkProbe, self.links.probe_deadline())
            .deadline()
    }

    /// Memory of the timers, bytes: the nodes of the tree are half full at least, but for the root.
    pub(crate) fn timers_bytes(&self) -> usize {
        self.timers.len() * size_of::<(Instant, FlowId)>() * 5 / 2
    }

    /// Memory of the queue of legs with something to send, bytes.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready.capacity() * size_of::<(FlowId, Side)>()
    }
}
