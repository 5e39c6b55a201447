//! Looks after bumps, on a thread of its own: what somebody takes away is put back, and what goes
//! into a bump and does not come out takes the ordinary way.
//!
//! Netfilter sees with a bump what it sees without. So what it refuses is not the bump's fault,
//! unless [`blame`] finds why it is.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use farlink_wire::{Duration, Instant};

use super::DiversionStatus;
use super::captures::{Captures, Looked};
use super::failure::Failure;
use super::family::{Ended, FamilyGuard, Kind, Step};
use super::refusals::Refusals;
use super::repairs::Repairs;
use crate::bpf::{self, Means};
use crate::bump::{Bump, Post, Side, Stand};
use crate::clock;
use crate::divert::{Diagnosis, FOUND_AT_BUMP, Families, LostAtBump, Method, Passage, Reading, blame_bump};
use crate::driver::{Position, Pulse};
use crate::error::{Context, Result};
use crate::netlink::{Family, Link, Nftables, Socket};
use crate::priority::{Priority, start_thread};

/// One way through a bump, with a device of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passing {
    /// The bumped interface, by its configured name.
    pub(crate) interface: String,
    /// Which of the driver's devices.
    pub(crate) n: usize,
    /// The number that the kernel has for it.
    pub(crate) device: u32,
    /// The bump's.
    pub(crate) rank: u16,
    /// Where its packets are written to. What goes to the wire leaves as the kernel's own does.
    pub(crate) to: Side,
}

/// What the guard is told.
#[derive(Clone, Debug, Default)]
struct Told {
    ways: Vec<Passing>,
    /// Everything is taken that leaves by some link.
    everything: bool,
}

/// The guard of all bumps. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct BumpGuard {
    told: Arc<Mutex<Told>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    status: Arc<Mutex<DiversionStatus>>,
}

impl BumpGuard {
    /// For bumps in the calling thread's network namespace.
    pub(crate) fn start(
        bump: Arc<Bump>,
        ways: Vec<Passing>,
        pulse: Arc<Pulse>,
        everything: bool,
    ) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let status = Arc::new(Mutex::new(DiversionStatus::default()));
        let count = pulse.ports.len();
        let passages = || vec![Passage::of_bump(); count];
        let of = |family| FamilyGuard::new(family, Kind::Tcp, passages());
        let shared = Arc::new(Mutex::new(Told { ways: ways.clone(), everything }));
        let mut keeper = Keeper {
            bump,
            told: Arc::clone(&shared),
            pulse,
            everything,
            status: Arc::clone(&status),
            socket: Socket::open()?,
            // Without nf_tables nobody changes its rules.
            nft: Nftables::open().ok(),
            families: Family::BOTH.map(of),
            ways,
            repairs: Repairs::default(),
            captures: Captures::default(),
            refusals: Refusals::default(),
            is_whole: true,
            ends: 0,
            position: Position::default(),
            known: Known::default(),
            changed_at: clock::now(),
            failure: Failure::default(),
        };
        keeper.known = keeper.what_is_known();
        // Nobody is told that all is well before it was looked at.
        keeper.tick(clock::now());
        let until = Arc::clone(&stop);
        let work = move || {
            while !super::waited(&until) {
                keeper.tick(clock::now());
            }
        };
        let thread = start_thread("guard", Priority::Normal, work)
            .context(|| "starting the guard of bumps".to_owned())?;
        Ok(Self { told: shared, thread: Some(thread), stop, status })
    }

    /// There are other ways through bumps from here on. `everything`: some link has all that leaves
    /// by it taken.
    pub(crate) fn set_ways(&self, ways: Vec<Passing>, everything: bool) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Told { ways, everything };
    }

    /// How diversion stands.
    pub(crate) fn status(&self) -> DiversionStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for BumpGuard {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// So long after a change of rules or routes packets may be lost for a moment: where nothing is
/// found that drops them, nothing is at fault yet.
const SETTLED_AFTER: Duration = Duration::from_millis(1500);

/// What decides about packets on this machine, as numbers of its last change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    rules_of_nft: u32,
    routes: u64,
}

/// What the thread knows.
struct Keeper {
    bump: Arc<Bump>,
    /// The ways that there are.
    told: Arc<Mutex<Told>>,
    /// The same at this look.
    ways: Vec<Passing>,
    pulse: Arc<Pulse>,
    /// Everything that leaves by a link is taken.
    everything: bool,
    status: Arc<Mutex<DiversionStatus>>,
    socket: Socket,
    nft: Option<Nftables>,
    families: [FamilyGuard; 2],
    repairs: Repairs,
    captures: Captures,
    refusals: Refusals,
    /// Nothing that had been there was missing at the last look.
    is_whole: bool,
    ends: u64,
    /// Where the event loop was at the last tick.
    position: Position,
    known: Known,
    changed_at: Instant,
    failure: Failure,
}

impl Keeper {
    fn tick(&mut self, now: Instant) {
        let outcome = self.try_tick(now);
        self.failure.note(now, outcome.err());
        self.publish(now);
    }

    fn try_tick(&mut self, now: Instant) -> Result<()> {
        self.follow_ways();
        self.repair(now)?;
        self.judge(now)?;
        let known = self.what_is_known();
        if known != self.known {
            self.known = known;
            self.changed_at = now;
            self.families.iter_mut().for_each(|f| f.rules_changed(now));
        }
        Ok(())
    }

    fn follow_ways(&mut self) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for way in told.ways.iter().filter(|way| !self.ways.contains(way)) {
            self.families.iter_mut().for_each(|family| family.begin(way.n));
        }
        (self.ways, self.everything) = (told.ways, told.everything);
    }

    fn what_is_known(&mut self) -> Known {
        let rules_of_nft = self.nft.as_mut().and_then(|nft| nft.generation().ok()).unwrap_or(0);
        Known { rules_of_nft, routes: self.pulse.routes.get() }
    }

    /// Puts back what is missing, unless that was done too often, and tries again what could not be
    /// put there.
    fn repair(&mut self, now: Instant) -> Result<()> {
        let posts = self.bump.posts()?;
        // Asked afterwards: an interface that has gone meanwhile misses nothing.
        let (links, is_complete) = self.socket.links_now()?;
        let mut what = Vec::new();
        // Devices that are down, and where programs are missing.
        let (mut down, mut bare) = (Vec::new(), Vec::new());
        for link in &links {
            let way = self.ways.iter().find(|way| way.device == link.index);
            if let Some(port) = way.and_then(|way| self.pulse.ports.get(way.n)) {
                port.note_dropped(link.tx_dropped);
            }
            if way.is_some() && !link.up {
                what.push(format!("the device {} was taken down", link.name));
                down.push(link.index);
            }
            match posts.get(&link.index).map(|post| &post.stand) {
                Some(Stand::Removed(means)) => {
                    what.push(removed(&link.name, *means));
                    bare.push(link.index);
                }
                Some(Stand::Refused(refusal)) => self.refusals.see(link, refusal),
                Some(Stand::Whole) | None => {}
            }
        }
        self.is_whole = what.is_empty();
        // However often: what goes to a device that is down is lost.
        down.iter().try_for_each(|device| self.socket.link_up(*device, true))?;
        if !self.is_whole {
            self.put_back(now, what.join("; "), &bare);
        }
        let bump = &self.bump;
        self.refusals.try_again(now, |at| bump.put_back(at));
        if is_complete {
            self.look_at_captures(now, &links)?;
        }
        Ok(())
    }

    fn put_back(&mut self, now: Instant, what: String, bare: &[u32]) {
        match self.repairs.may(now) {
            Ok(()) => {
                // What is refused is seen at the next look.
                let all = bare.iter().map(|at| self.bump.put_back(*at).is_ok());
                if !all.fold(true, |all, is_done| all & is_done) {
                    tracing::warn!("{what}; it cannot be put back as it was");
                    return;
                }
                self.is_whole = true;
                tracing::warn!(times = self.repairs.count() + 1, "{what}; diversion is put back");
                self.repairs.done(now, what);
                self.families.iter_mut().for_each(FamilyGuard::start_anew);
            }
            Err(again) => {
                if self.repairs.is_news(again) {
                    tracing::error!(
                        seconds = again.since(now).as_secs(),
                        "{what}; this happens again and again, so it is put back later: find out what removes it"
                    );
                }
            }
        }
    }

    /// How each interface stands, after all that was done.
    fn look_at_captures(&mut self, now: Instant, links: &[Link]) -> Result<()> {
        let posts = self.bump.posts()?;
        let is_whole = |at: &u32| posts.get(at).is_none_or(|post| post.stand == Stand::Whole);
        let looked = |(link, post): (&Link, &Post)| Looked {
            index: link.index,
            name: link.name.clone(),
            wanted: [bpf::Side::Ingress, bpf::Side::Egress].map(|side| post.sides.contains(&side)),
            is_attached: post.stand == Stand::Whole
                && post.devices.is_none_or(|(a, b)| is_whole(&a) && is_whole(&b)),
            packets: [link.rx_packets, link.tx_packets],
            seen: self.bump.seen(link.index),
        };
        let post_of = |link: &Link| posts.get(&link.index).filter(|post| !post.is_device);
        let interfaces = links.iter().filter_map(|link| Some((link, post_of(link)?)));
        let all: Vec<_> = interfaces.map(looked).collect();
        let known: Vec<_> = self.captures.found().iter().map(place).collect();
        if self.captures.look(now, &all) {
            all.iter().for_each(|one| self.bump.forget_seen(one.index));
        }
        for news in self.captures.found().iter().filter(|found| !known.contains(&place(found))) {
            tracing::error!("{}", news.text);
        }
        Ok(())
    }

    /// Counts what came out, and acts on it.
    fn judge(&mut self, now: Instant) -> Result<()> {
        let position = self.pulse.position();
        let is_turning = position.is_waiting || position != self.position;
        self.position = position;
        // Written first: what is written meanwhile has come out at most too early.
        let written = self.written();
        let mut steps = Vec::new();
        for (guard, written) in self.families.iter_mut().zip(written) {
            let family = guard.family;
            let mut plain = vec![(0, 0); self.pulse.ports.len()];
            for way in &self.ways {
                let n = way.n;
                let written = written.get(n).copied().unwrap_or_default();
                let passed = self.bump.passed(way.rank, family);
                if let Some(plain) = plain.get_mut(n).filter(|_| way.to == Side::Stack) {
                    *plain = (passed.plain, passed.syns);
                }
                let (syns_left, others_left) = match way.to {
                    Side::Stack => {
                        (passed.syns + written.machine_syns, passed.others + written.machine_others)
                    }
                    Side::Wire => (passed.sent_syns, passed.sent_others),
                };
                let reading = Reading {
                    syns: written.syns,
                    syns_left,
                    others: written.others,
                    others_left,
                    ..Reading::default()
                };
                let step = guard.look(now, n, (is_turning && self.is_whole).then_some(reading));
                if guard.is_losing(n)
                    && let Some(port) = self.pulse.ports.get(n)
                {
                    port.of(family).want_sample();
                }
                steps.extend(step.map(|step| (family, step)));
            }
            steps.extend(guard.trial_since(now, &plain).map(|step| (family, step)));
        }
        for (family, step) in steps {
            match step {
                Step::Suspect { n, .. } => self.suspect(now, family, n)?,
                Step::Acquit => self.resume(family, "it is refused here without diversion, too")?,
                Step::Try => self.resume(family, "it is tried again")?,
                // A bump is not tried with new connections alone.
                Step::Keep => {}
            }
        }
        Ok(())
    }

    /// Packets written until now, for each family and way.
    fn written(&self) -> [Vec<Written>; 2] {
        Family::BOTH.map(|family| {
            let of = |port: &crate::driver::PortPulse| {
                let traffic = port.of(family);
                Written {
                    machine_syns: traffic.machine_syns.get(),
                    machine_others: traffic.machine_others.get(),
                    syns: traffic.syns.get(),
                    others: traffic.others.get(),
                }
            };
            self.pulse.ports.iter().map(of).collect()
        })
    }

    fn suspect(&mut self, now: Instant, family: Family, n: usize) -> Result<()> {
        let Some(way) = self.ways.iter().find(|way| way.n == n).cloned() else { return Ok(()) };
        let families = self.bump.families();
        if !families.has(family) {
            return Ok(());
        }
        let sample = self.pulse.ports.get(n).and_then(|p| p.of(family).take_sample());
        let lost = LostAtBump { interface: &way.interface, to: way.to, family, sample };
        let Some(cause) = blame_bump(&mut self.socket, &lost) else {
            // It would be lost without a bump, too.
            self.with_guard(family, FamilyGuard::acquit);
            return Ok(());
        };
        if cause.id != FOUND_AT_BUMP && now.since(self.changed_at) < SETTLED_AFTER {
            self.with_guard(family, FamilyGuard::start_anew);
            return Ok(());
        }
        self.ends += 1;
        self.bump.set_families(families.with(family, false))?;
        tracing::error!("{}. Until then {family} TCP takes the ordinary way and is not split", cause.text);
        self.with_guard(family, |guard| guard.end(now, Ended::undiverted(now, n, cause)));
        Ok(())
    }

    fn resume(&mut self, family: Family, why: &str) -> Result<()> {
        tracing::info!("{family} TCP is diverted again: {why}");
        let families = self.bump.families();
        self.bump.set_families(families.with(family, true))?;
        self.with_guard(family, FamilyGuard::begin_trial);
        Ok(())
    }

    fn with_guard(&mut self, family: Family, act: impl FnOnce(&mut FamilyGuard)) {
        if let Some(guard) = self.families.iter_mut().find(|f| f.family == family) {
            act(guard);
        }
    }

    fn publish(&mut self, now: Instant) {
        let mut found: Vec<Diagnosis> = self.families.iter().filter_map(FamilyGuard::cause).collect();
        found.extend(self.repairs.recent(now));
        found.extend(self.refusals.found());
        found.extend_from_slice(self.captures.found());
        found.extend(self.failure.found(now));
        let families = self.bump.families();
        let status = DiversionStatus {
            method: Method::Bump.name(),
            in_place: self.is_whole && self.captures.are_attached() && families == Families::BOTH,
            captures: self.captures.all().to_vec(),
            ipv4: families.v4,
            ipv6: families.v6,
            everything: self.everything.then_some(families.v4 || families.v6),
            split: true,
            repairs: self.repairs.count(),
            ends: self.ends,
            found,
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// Which interface it is about, and which direction.
fn place(found: &Diagnosis) -> [Option<String>; 2] {
    ["interface", "direction"].map(|what| found.evidence.get(what).cloned())
}

/// What is said of a program that is gone, with what may have taken it away.
fn removed(name: &str, means: Means) -> String {
    match means {
        Means::Tcx => format!(
            "the program at {name} was taken away (`bpftool link detach`, or {name} was in another network namespace)"
        ),
        Means::Filter => {
            format!(
                "the program at {name} was taken away, with its filter or the qdisc `clsact` (`tc filter del`, `tc qdisc del`)"
            )
        }
    }
}

/// TCP packets written to a device.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    syns: u64,
    others: u64,
    /// Read there, and for an address of this machine: where none of its connections is meant,
    /// they end in it.
    machine_syns: u64,
    machine_others: u64,
}
