//! Keeps diversion from doing harm, on a thread of its own: puts back what somebody removes, and
//! lets traffic take the ordinary way while what is diverted does not come out on the other side.
//!
//! It looks four times a second. The event loop tells it through [`Pulse`] what it reads and writes
//! and never waits for it.

mod bumps;
mod captures;
mod failure;
mod family;
mod refusals;
mod repairs;

pub(crate) use bumps::{BumpGuard, Passing};

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use farlink_wire::{Duration, Instant};
use serde::Serialize;

use crate::clock;
use crate::divert::{
    Auditor, Capture, CaptureState, Cause, Diagnosis, Direction, Divert, Diverted, Families, Foreseen, Lost,
    Method, NO_INTERFACE, Passage, Reading, Severity, Suspicion, blame, counter_name,
};
use crate::driver::{Position, Pulse};
use crate::error::{Context, Result};
use crate::event_loop::Waker;
use crate::netlink::Family;
use crate::priority::{Priority, start_thread};
use failure::Failure;
use family::{Ended, FamilyGuard, Kind, Step};
use repairs::Repairs;

/// A kind of traffic of a family.
type Watched = (Family, Kind);

/// Packets written into a TUN, of one family.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    syns: u64,
    others: u64,
    rest: u64,
}

/// How often it looks.
const TICK: std::time::Duration = std::time::Duration::from_millis(250);
/// The same trouble is not logged more often than this.
const QUIET_FOR: Duration = Duration::from_secs(60);
/// After changes of the firewall everything is diagnosed anew, at most so often: with large rule
/// sets that costs time.
const DIAGNOSE_AFTER: Duration = Duration::from_secs(10);

/// How diversion stands: for `farlink status`, `check` and Prometheus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DiversionStatus {
    /// By which means.
    pub method: &'static str,
    /// All that is to be diverted is, and nothing of what that takes is missing.
    pub in_place: bool,
    /// IPv4 is diverted.
    pub ipv4: bool,
    /// IPv6 is diverted.
    pub ipv6: bool,
    /// Everything that leaves by a link is diverted, too: in one family at least. Absent: nobody
    /// wants that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub everything: Option<bool>,
    /// What is diverted may be split.
    pub split: bool,
    /// Times that somebody had removed something and it was put back.
    pub repairs: u64,
    /// Times that diversion was ended because what was diverted did not come out.
    pub ends: u64,
    /// What is captured at each interface, in each direction, and how that stands.
    pub captures: Vec<Capture>,
    /// What is wrong now, or was within the last minute.
    pub found: Vec<Diagnosis>,
}

/// Other interfaces than before are to be diverted.
#[derive(Debug)]
struct Change {
    interfaces: Vec<Diverted>,
    /// Of these, everything that leaves by them.
    whole: Vec<String>,
    /// Which change it is: larger than that of any before.
    number: u64,
}

/// What the thread is told.
#[derive(Debug, Default)]
struct Orders {
    stop: bool,
    change: Option<Change>,
}

/// The guard of a diversion. Dropping it ends the thread; diversion is taken back then.
#[derive(Debug)]
pub(crate) struct Guard {
    thread: Option<JoinHandle<Divert>>,
    orders: Arc<(Mutex<Orders>, Condvar)>,
    changes: u64,
    status: Arc<Mutex<DiversionStatus>>,
}

impl Guard {
    /// Takes over a diversion that was made in the calling thread's network namespace. `waker`
    /// wakes the event loop. `no_bump`: why it is this one and no bump.
    pub(crate) fn start(
        divert: Divert,
        pulse: Arc<Pulse>,
        waker: Arc<Waker>,
        no_bump: Option<Diagnosis>,
    ) -> Result<Self> {
        let orders = Arc::new((Mutex::new(Orders::default()), Condvar::new()));
        let status = Arc::new(Mutex::new(DiversionStatus::default()));
        let auditor = Auditor::open()?;
        let mut keeper = Keeper::new(divert, auditor, pulse, waker, Arc::clone(&status));
        keeper.no_bump = no_bump;
        keeper.publish(clock::now());
        let heard = Arc::clone(&orders);
        let work = move || {
            while let Some(change) = next_orders(&heard) {
                keeper.wanted = change.or(keeper.wanted.take());
                keeper.tick(clock::now());
            }
            keeper.divert
        };
        let thread = start_thread("guard", Priority::Normal, work)
            .context(|| "starting the guard of diversion".to_owned())?;
        Ok(Self { thread: Some(thread), orders, changes: 0, status })
    }

    /// Other interfaces are diverted soon. Returns what [`Pulse::diverted`] has at least when that
    /// is so.
    pub(crate) fn change(&mut self, interfaces: Vec<Diverted>, whole: Vec<String>) -> u64 {
        self.changes += 1;
        let change = Change { interfaces, whole, number: self.changes };
        self.orders.0.lock().unwrap_or_else(PoisonError::into_inner).change = Some(change);
        self.orders.1.notify_all();
        self.changes
    }

    /// How diversion stands.
    pub(crate) fn status(&self) -> DiversionStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it and hands the diversion back, as it is.
    pub(crate) fn end(mut self) -> Option<Divert> {
        self.halt()
    }

    fn halt(&mut self) -> Option<Divert> {
        self.orders.0.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.orders.1.notify_all();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.halt());
    }
}

/// Waits for a tick, or for orders; `None`: it is time to end.
fn next_orders((orders, bell): &(Mutex<Orders>, Condvar)) -> Option<Option<Change>> {
    let held = orders.lock().unwrap_or_else(PoisonError::into_inner);
    let nothing_new = |orders: &mut Orders| !orders.stop && orders.change.is_none();
    let outcome = bell.wait_timeout_while(held, TICK, nothing_new);
    let mut held = outcome.unwrap_or_else(PoisonError::into_inner).0;
    (!held.stop).then(|| held.change.take())
}

/// Waits for a tick; true when it is time to end.
fn waited((stop, bell): &(Mutex<bool>, Condvar)) -> bool {
    let stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = bell.wait_timeout_while(stopped, TICK, |stopped| !*stopped);
    *outcome.unwrap_or_else(PoisonError::into_inner).0
}

/// What the thread knows.
struct Keeper {
    divert: Divert,
    auditor: Auditor,
    pulse: Arc<Pulse>,
    waker: Arc<Waker>,
    status: Arc<Mutex<DiversionStatus>>,
    /// TCP of both families, and what is no TCP; that matters where everything is diverted.
    families: Vec<FamilyGuard>,
    repairs: Repairs,
    /// Nothing was missing at the last look.
    is_whole: bool,
    ends: u64,
    /// Where the event loop was at the last tick.
    position: Position,
    changes: u64,
    /// Something changed at this time and has not been diagnosed yet.
    undiagnosed: Option<Instant>,
    /// What was said in the log.
    said: Vec<String>,
    failure: Failure,
    /// Interfaces of which packets have been seen that are diverted.
    proven: BTreeSet<String>,
    no_bump: Option<Diagnosis>,
    /// Other interfaces are to be diverted, and are not yet.
    wanted: Option<Change>,
}

impl Keeper {
    fn new(
        divert: Divert,
        auditor: Auditor,
        pulse: Arc<Pulse>,
        waker: Arc<Waker>,
        status: Arc<Mutex<DiversionStatus>>,
    ) -> Self {
        let count = pulse.ports.len();
        let passages = || vec![Passage::default(); count];
        let guards = |kind| Family::BOTH.map(|family| FamilyGuard::new(family, kind, passages()));
        let mut families: Vec<FamilyGuard> = [Kind::Tcp, Kind::Rest].into_iter().flat_map(guards).collect();
        let everything = divert.config().takes_everything();
        for Foreseen { family, cause, .. } in divert.foreseen() {
            tracing::error!("{}. Until then {family} takes the ordinary way and is not split", cause.text);
            let is_meant = |f: &FamilyGuard| f.family == *family && (f.kind == Kind::Tcp || everything);
            for guard in families.iter_mut().filter(|f| is_meant(f)) {
                guard.end(clock::now(), Ended::foreseen(clock::now(), cause.clone()));
            }
        }
        Self {
            divert,
            auditor,
            pulse,
            waker,
            status,
            families,
            repairs: Repairs::default(),
            is_whole: true,
            ends: 0,
            position: Position::default(),
            changes: 0,
            undiagnosed: Some(Instant::ZERO),
            said: Vec::new(),
            failure: Failure::default(),
            proven: BTreeSet::new(),
            no_bump: None,
            wanted: None,
        }
    }

    fn tick(&mut self, now: Instant) {
        let outcome = self.try_tick(now);
        self.failure.note(now, outcome.err());
        self.publish(now);
    }

    fn try_tick(&mut self, now: Instant) -> Result<()> {
        self.follow_change(now)?;
        self.repair(now)?;
        // What got through until now got through the old rules.
        self.judge(now)?;
        let changes = self.auditor.changes();
        if changes != self.changes {
            self.changes = changes;
            self.undiagnosed.get_or_insert(now);
            self.families.iter_mut().for_each(|f| f.rules_changed(now));
        }
        if self.undiagnosed.is_some_and(|at| at == Instant::ZERO || now.since(at) > DIAGNOSE_AFTER) {
            self.undiagnosed = None;
            self.say_what_is_wrong();
        }
        Ok(())
    }

    /// Diverts what comes in by other interfaces, where that is wanted. After an error it is tried
    /// again.
    fn follow_change(&mut self, now: Instant) -> Result<()> {
        let Some(change) = &self.wanted else { return Ok(()) };
        let before: Vec<Diverted> = self.divert.interfaces().to_vec();
        let took_everything = self.divert.config().takes_everything();
        self.auditor.change(&mut self.divert, change.interfaces.clone(), &change.whole)?;
        for (n, _) in self.divert.numbered().filter(|(_, one)| !before.contains(one)) {
            self.families.iter_mut().for_each(|family| family.begin(n));
        }
        self.pulse.diverted.set(change.number);
        self.wanted = None;
        self.families.iter_mut().for_each(FamilyGuard::counters_reset);
        if self.divert.config().takes_everything() && !took_everything {
            self.rest_follows_tcp(now);
        }
        self.undiagnosed.get_or_insert(Instant::ZERO);
        self.waker.wake();
        Ok(())
    }

    /// What keeps TCP of a family from being diverted keeps all else from it, too, until the
    /// contrary is shown.
    fn rest_follows_tcp(&mut self, now: Instant) {
        for family in Family::BOTH {
            let ended = self.guard((family, Kind::Tcp)).and_then(FamilyGuard::undiverted);
            self.with_guard((family, Kind::Rest), |rest| match ended {
                Some(ended) => rest.end(now, ended),
                // Where TCP is only being tried it waits for that.
                None => rest.begin_trial(),
            });
        }
    }

    /// Puts back what is missing, unless that was done too often.
    fn repair(&mut self, now: Instant) -> Result<()> {
        let missing = self.auditor.look(&self.divert)?;
        for (n, dropped) in self.auditor.dropped() {
            if let Some(port) = self.pulse.ports.get(*n) {
                port.note_dropped(*dropped);
            }
        }
        self.is_whole = missing.is_empty();
        if self.is_whole {
            return Ok(());
        }
        self.proven.clear();
        let what: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let what = what.join("; ");
        match self.repairs.may(now) {
            Ok(()) => {
                self.auditor.put_back(&mut self.divert)?;
                self.is_whole = true;
                self.families.iter_mut().for_each(FamilyGuard::counters_reset);
                tracing::warn!(times = self.repairs.count() + 1, "{what}; diversion is put back");
                self.repairs.done(now, what);
            }
            Err(again) if self.repairs.is_news(again) => tracing::error!(
                seconds = again.since(now).as_secs(),
                "{what}; this happens again and again, so it is put back later: something on this machine and Farlink work against \
                 each other"
            ),
            Err(_) => {}
        }
        Ok(())
    }

    /// Counts what got through, and acts on it.
    fn judge(&mut self, now: Instant) -> Result<()> {
        let position = self.pulse.position();
        let is_turning = position.is_waiting || position != self.position;
        self.position = position;
        let written = self.written();
        let Some(counters) = self.auditor.counters(&self.divert) else { return Ok(()) };
        let packets = |name: String| counters.get(&name).map_or(0, |c| c.packets);
        let mut steps: Vec<(Watched, Step)> = Vec::new();
        for guard in &mut self.families {
            let (family, kind) = (guard.family, guard.kind);
            let is_tried = self.divert.trials().has(family);
            // What is no TCP takes the ordinary way in a trial, and while TCP does it is not tried.
            let follows = is_tried || !self.divert.families().has(family);
            if kind == Kind::Rest && (follows || !self.divert.config().takes_everything()) {
                continue;
            }
            let mut plain = vec![(0, 0); self.pulse.ports.len()];
            let (mut written_syns, mut left_syns) = (0, 0);
            for (n, interface) in self.divert.numbered() {
                let Some(port) = self.pulse.ports.get(n) else { continue };
                let of = |what: &str| packets(counter_name(what, family, n));
                let traffic = port.of(family);
                let written = written.get(n).map_or(Written::default(), |w| w[family as usize]);
                let local = of("local");
                let reading = match kind {
                    Kind::Tcp => Reading {
                        diverted: of("diverted"),
                        arrived: traffic.read.get(),
                        syns: written.syns,
                        syns_left: of("syn_left") + local,
                        others: written.others,
                        others_left: of("left") + local,
                        forwarded: self.pulse.forwarded.get(),
                    },
                    Kind::Rest => {
                        Reading { syns: written.rest, syns_left: of("rest_left"), ..Reading::default() }
                    }
                };
                if let Some(plain) = plain.get_mut(n) {
                    *plain = match kind {
                        Kind::Tcp => (of("plain"), of("plain_left")),
                        Kind::Rest => (of("rest_plain"), of("rest_plain_left")),
                    };
                }
                if reading.diverted > 0 {
                    self.proven.insert(interface.interface.clone());
                }
                written_syns += reading.syns;
                left_syns += reading.syns_left;
                // While the loop stands still nothing is read, and the firewall is not to blame.
                let step = guard.look(now, n, is_turning.then_some(reading));
                if kind == Kind::Tcp && guard.is_losing(n) {
                    traffic.want_sample();
                }
                steps.extend(step.map(|step| ((family, kind), step)));
            }
            steps.extend(guard.trial(now, &plain).map(|step| ((family, kind), step)));
            if is_tried && kind == Kind::Tcp && guard.may_keep(now, (written_syns, left_syns)) {
                steps.push(((family, kind), Step::Keep));
            }
        }
        for (watched, step) in steps {
            match step {
                Step::Suspect { n, suspicion } => self.suspect(now, watched, n, suspicion)?,
                Step::Acquit => {
                    let (_, unknown) = self.divert.foresee();
                    self.resume(watched, unknown, "it is refused here without diversion, too")?;
                }
                Step::Try => self.try_again(now, watched)?,
                // It may have been ended a moment ago.
                Step::Keep if self.guard(watched).is_none_or(FamilyGuard::is_ended) => {}
                Step::Keep => self.set_diverted(watched, true)?,
            }
        }
        Ok(())
    }

    /// Packets written until now, for each TUN and family.
    fn written(&self) -> Vec<[Written; 2]> {
        let of = |t: &crate::driver::Traffic| Written {
            syns: t.syns.get(),
            others: t.others.get(),
            rest: t.rest.get(),
        };
        self.pulse.ports.iter().map(|p| Family::BOTH.map(|family| of(p.of(family)))).collect()
    }

    fn suspect(&mut self, now: Instant, watched: Watched, n: usize, suspicion: Suspicion) -> Result<()> {
        let (family, kind) = watched;
        let diverted = match kind {
            Kind::Tcp => self.divert.families(),
            Kind::Rest => self.divert.whole(),
        };
        if !diverted.has(family) || self.guard(watched).is_none_or(FamilyGuard::is_ended) {
            return Ok(());
        }
        let sample = self.pulse.ports.get(n).and_then(|p| p.of(family).take_sample());
        let all = self.divert.interfaces().to_vec();
        let place = self.divert.numbered().position(|(number, _)| number == n).unwrap_or(usize::MAX);
        let lost = Lost { suspicion, family, n: place, sample };
        let table = self.divert.table_name();
        let Cause::Machine(cause) = blame(self.auditor.socket(), &table, &all, &lost) else {
            self.with_guard(watched, FamilyGuard::start_anew);
            return Ok(());
        };
        self.ends += 1;
        if let Suspicion::Share { .. } = suspicion {
            tracing::error!("{}. Until then connections are forwarded without being split", cause.text);
            let tcp = self.families.iter_mut().filter(|f| f.kind == Kind::Tcp && !f.is_ended());
            tcp.for_each(|f| f.end(now, Ended::unsplit(now, cause.clone())));
            self.set_unsplit(true);
            return Ok(());
        }
        self.set_diverted(watched, false)?;
        match kind {
            Kind::Tcp => {
                tracing::error!(
                    "{}. Until then {family} TCP takes the ordinary way and is not split",
                    cause.text
                )
            }
            Kind::Rest => {
                tracing::error!("{}. Until then {family} {} takes the ordinary way", cause.text, kind.name());
            }
        }
        self.with_guard(watched, |guard| guard.end(now, Ended::undiverted(now, n, cause)));
        Ok(())
    }

    fn set_diverted(&mut self, (family, kind): Watched, on: bool) -> Result<()> {
        match kind {
            Kind::Tcp => self.divert.set_family(family, on)?,
            Kind::Rest => self.divert.set_whole(self.divert.whole().with(family, on))?,
        }
        self.changed_by_us()
    }

    fn changed_by_us(&mut self) -> Result<()> {
        self.auditor.own_change()?;
        self.families.iter_mut().for_each(FamilyGuard::counters_reset);
        Ok(())
    }

    /// Unless a firewall is sure to let nothing through: it then waits longer.
    fn try_again(&mut self, now: Instant, watched: Watched) -> Result<()> {
        let (found, unknown) = self.divert.foresee();
        let is_ended = self.guard(watched).is_some_and(FamilyGuard::is_ended);
        match found.into_iter().find(|foreseen| is_ended && foreseen.family == watched.0) {
            Some(Foreseen { cause, .. }) => {
                self.with_guard(watched, |guard| guard.wait_for_change(now, cause));
                Ok(())
            }
            None => self.resume(watched, unknown, "it is tried again"),
        }
    }

    /// `unknown`: the families of which the firewall's rules do not say what becomes of them.
    fn resume(&mut self, watched: Watched, unknown: Families, why: &str) -> Result<()> {
        let (family, kind) = watched;
        if kind == Kind::Tcp && self.pulse.unsplit.load(std::sync::atomic::Ordering::Relaxed) {
            tracing::info!("connections are split again: {why}");
            self.set_unsplit(false);
            // A family that has been found to be cut off altogether stays so.
            let again = self.families.iter_mut().filter(|f| f.kind == Kind::Tcp && !f.is_ended());
            again.for_each(FamilyGuard::begin_trial);
            return Ok(());
        }
        tracing::info!("{family} {} is diverted again: {why}", kind.name());
        if kind == Kind::Tcp && unknown.has(family) {
            self.divert.try_out(family)?;
            self.changed_by_us()?;
        } else {
            self.set_diverted(watched, true)?;
        }
        self.with_guard(watched, FamilyGuard::begin_trial);
        Ok(())
    }

    fn set_unsplit(&self, on: bool) {
        self.pulse.unsplit.store(on, std::sync::atomic::Ordering::Release);
        self.waker.wake();
    }

    fn guard(&self, watched: Watched) -> Option<&FamilyGuard> {
        self.families.iter().find(|f| (f.family, f.kind) == watched)
    }
    fn with_guard(&mut self, watched: Watched, act: impl FnOnce(&mut FamilyGuard)) {
        if let Some(guard) = self.families.iter_mut().find(|f| (f.family, f.kind) == watched) {
            act(guard);
        }
    }

    /// The log says what `farlink check` would call a problem or warn of, once.
    fn say_what_is_wrong(&mut self) {
        let interfaces: Vec<String> = self.divert.interfaces().iter().map(|d| d.interface.clone()).collect();
        let found = crate::divert::diagnose(self.divert.config(), &interfaces);
        for Diagnosis { id, severity, text, .. } in &found {
            // The driver tells of interfaces that come and go.
            if self.said.contains(text) || id == NO_INTERFACE {
                continue;
            }
            match severity {
                Severity::Problem => tracing::error!("{text}"),
                Severity::Warning => tracing::warn!("{text}"),
                Severity::Note => {}
            }
        }
        self.said = found.into_iter().map(|d| d.text).collect();
    }

    fn publish(&mut self, now: Instant) {
        let mut found = Vec::new();
        let everything = self.divert.config().takes_everything();
        for guard in self.families.iter().filter(|guard| guard.kind == Kind::Tcp || everything) {
            found.extend(guard.cause().filter(|cause| !found.contains(cause)));
        }
        found.extend(self.repairs.recent(now));
        found.extend(self.failure.found(now));
        found.extend(self.no_bump.clone());
        let families = self.divert.families();
        let trials = self.divert.trials();
        found.extend(Family::BOTH.into_iter().filter(|family| trials.has(*family)).map(on_trial));
        let split = !self.pulse.unsplit.load(std::sync::atomic::Ordering::Relaxed);
        let status = DiversionStatus {
            method: Method::Policy.name(),
            in_place: self.is_whole
                && split
                && families == Families::BOTH
                && trials == Families::NEITHER
                && self.wanted.is_none(),
            ipv4: families.v4,
            ipv6: families.v6,
            everything: everything.then(|| self.divert.whole() != Families::NEITHER),
            split,
            repairs: self.repairs.count(),
            ends: self.ends,
            captures: self.captures(),
            found,
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Only what comes in is diverted. What is wanted and not yet so is told, too.
    fn captures(&self) -> Vec<Capture> {
        let is_attached = self.is_whole && self.divert.families() != Families::NEITHER;
        let of = |one: &Diverted, is_there: bool| Capture {
            interface: one.interface.clone(),
            direction: Direction::In,
            state: match is_there && is_attached {
                false => CaptureState::Wanted,
                true if self.proven.contains(&one.interface) => CaptureState::Proven,
                true => CaptureState::Attached,
            },
        };
        let there = self.divert.interfaces();
        let wanted = self.wanted.iter().flat_map(|change| &change.interfaces);
        let wanted = wanted.filter(|one| !there.iter().any(|known| known.interface == one.interface));
        there.iter().map(|one| of(one, true)).chain(wanted.map(|one| of(one, false))).collect()
    }
}

/// New connections show whether what is diverted comes out.
fn on_trial(family: Family) -> Diagnosis {
    let text = format!(
        "{family} is diverted with new connections alone, until it shows that they come out: the firewall's rules do not say it"
    );
    Diagnosis::new("on-trial", Severity::Note, text).seen("family", family)
}
