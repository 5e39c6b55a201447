//! The Linux datapath: TUNs, timers, link and route events, signals; round one gateway, on one
//! thread.

mod attendance;
mod budgets;
mod calendar;
mod connection_log;
mod connections;
mod devices;
mod ending;
mod face;
mod faces;
mod found;
mod housekeeper;
mod link_events;
mod log_file;
mod lookups;
mod network;
mod own;
mod parked;
mod ports;
mod profile;
mod pulse;
mod reconfigure;
mod records;
mod routes;
mod setup;
mod shortage;
mod shown;
mod status;
mod troubles;
mod wanted;
mod workshop;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farlink_gateway::{Config, Fates, Gateway, PACKETS_PER_TURN, Record};
use farlink_wire::{Duration, Instant};

pub use attendance::Attendance;
pub use connection_log::{ConnectionLogConfig, LogTarget};
pub use own::OwnPackets;
pub use profile::StageStatus;
pub(crate) use pulse::{PortPulse, Traffic};
pub use pulse::{Position, Pulse};
pub use reconfigure::Wanted;
pub use status::{Counters, DiversionStatus, DriverStatus, PortStatus, TunCounters};
pub use troubles::Troubles;
pub use wanted::{By, Finder, found_by, matches, that_forward};

use crate::bump::Bump;
use crate::clock;
use crate::divert::{Diagnosis, Divert, DivertConfig, Diverted};
use crate::error::{Error, Result};
use crate::event_loop::{Interest, Poller, Ready, Signals, Waker};
use crate::guard::{BumpGuard, Guard};
use crate::heap::HeapKeeper;
use crate::journal::{self, Journal};
use crate::netlink::{Link, Monitor, Socket};
use crate::spread::Spreader;
use crate::tun::{DEFAULT_QUEUE_PACKETS, ReadOutcome};
use crate::watchdog::{Heartbeat, Watchdog};
use budgets::Budgets;
use connection_log::ConnectionLog;
use devices::Awaited;
use face::Face;
use found::{FoundFile, Known};
use housekeeper::{Housekeeper, Listing};
use link_events::ToldState;
use lookups::Lookups;
use network::LinuxNetwork;
use parked::Parked;
use profile::Stage;
use records::Records;
use routes::Routes;
use setup::{Maker, Setup};
use shortage::Shortage;
use shown::Shown;

/// What is read from one TUN before the others, and what is owed, get their turn: so many bytes, or
/// [`PACKETS_PER_TURN`] packets.
const BATCH_BYTES: usize = 2 << 20;
/// For so many turns timers wait for packets that have not been read.
const TURNS_PUT_OFF_MAX: u32 = 16;
const SIGNALS: u64 = u64::MAX;
const NEWS: u64 = u64::MAX - 1;
const WAKER: u64 = u64::MAX - 2;
/// What the driver is told.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// What the gateway is told; its interfaces, by name, are diverted, now or when they come.
    pub gateway: Config,
    /// Which other interfaces are diverted when they are there.
    pub finders: Vec<Finder>,
    /// Patterns for which numbers in rules stand, from `SELECTORS_FROM` on.
    pub selectors: Vec<String>,
    /// Names and numbers of the diversion.
    pub divert: DivertConfig,
    /// How long a drain may take before custody that is left is given up.
    pub drain_timeout: Duration,
    /// Packets that may wait in a TUN.
    pub queue_packets: u32,
    /// Where the journal of flows with custody is kept; `None`: nowhere, and a kill lets their
    /// connections hang.
    pub journal: Option<PathBuf>,
    /// Where what is found of links is kept for the next start; `None`: nowhere.
    pub found: Option<PathBuf>,
    /// Where each connection has a line at its end; `None`: nowhere.
    pub connection_log: Option<ConnectionLogConfig>,
    /// What tells the process outside that this one lives; `None`: nobody watches from outside.
    pub heartbeat: Option<Arc<Heartbeat>>,
    /// End the process when the event loop hangs.
    pub watchdog: bool,
    /// How packets in the machine's own name leave round a bump; `None`: they do not.
    pub own_packets: Option<Arc<OwnPackets>>,
    /// What could not be done so far, and what cannot be done from here on.
    pub troubles: Troubles,
}

impl DriverConfig {
    /// The usual settings round a gateway's configuration.
    #[must_use]
    pub fn new(gateway: Config) -> Self {
        Self {
            gateway,
            finders: Vec::new(),
            selectors: Vec::new(),
            divert: DivertConfig::default(),
            drain_timeout: Duration::from_secs(30),
            queue_packets: DEFAULT_QUEUE_PACKETS,
            journal: Some(PathBuf::from("/run/farlink/journal")),
            found: None,
            connection_log: None,
            heartbeat: None,
            watchdog: true,
            own_packets: None,
            troubles: Troubles::default(),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything in custody was delivered; no connection noticed.
    Drained,
    /// Custody was left: so many connections were reset.
    Abandoned(usize),
}

/// How far the end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Draining { until: Instant },
    Quitting,
}

/// Devices to which nothing leads any more once a change holds.
#[derive(Debug)]
struct Retiring {
    faces: Range<usize>,
    change: u64,
    /// So much was ordered of the workshop until then.
    ordered: u64,
}

/// A gateway on this machine. Dropping it takes the diversion back without a drain.
pub struct Driver {
    /// First in order of declaration, so first to be dropped: nothing is diverted to a TUN that is
    /// gone, and nobody looks whether packets wait in one.
    guard: Option<Guard>,
    bump_guard: Option<BumpGuard>,
    bump: Option<Arc<Bump>>,
    maker: Maker,
    watchdog: Option<Watchdog>,
    pulse: Arc<Pulse>,
    finders: Vec<Finder>,
    selectors: Vec<String>,
    /// Interfaces for which there was no room.
    without_room: BTreeSet<String>,
    /// The gateway hears of each change of an interface.
    is_started: bool,
    /// Those who divert, and rules, are to hear of it.
    ports_changed: bool,
    has_new_ports: bool,
    /// The last change of what is diverted that was wanted, and what it says.
    change: u64,
    told: (Vec<Diverted>, Vec<String>),
    retiring: Vec<Retiring>,
    /// When it is looked whether what is leaving may go.
    look_at: Option<Instant>,
    /// The guard wants nothing to be split.
    is_unsplit: bool,
    /// What the log was told last of each declared link.
    link_states: Vec<ToldState>,
    gateway: Gateway,
    net: LinuxNetwork,
    poller: Poller,
    /// Woken when others have found out or made something.
    news: Arc<Waker>,
    housekeeper: Housekeeper,
    troubles: Troubles,
    records: Records,
    /// All interfaces there are, and the machine's own addresses, as they were told last.
    links: BTreeMap<u32, Link>,
    addresses: Vec<(u32, IpAddr)>,
    /// Packets of which nobody knows yet which way they leave.
    parked: Parked,
    /// The kernel has answered since they were looked at.
    has_answers: bool,
    /// Devices that could not be made.
    awaited: Vec<Awaited>,
    /// Why it cannot go on.
    fatal: Option<Error>,
    waker: Arc<Waker>,
    phase: Phase,
    is_reload_wanted: bool,
    /// Whoever attends to it wants to go on at once.
    is_asked_again: bool,
    drain_timeout: Duration,
    started: Instant,
    /// Which TUN is read first; moves on.
    first: usize,
    /// More packets wait than one turn reads, and for so many turns timers have been put off for
    /// that.
    has_unread: bool,
    turns_put_off: u32,
    heap: HeapKeeper,
    spreader: Spreader,
    shortage: Shortage,
    found: Option<FoundFile>,
    budgets: Budgets,
}

impl Driver {
    /// Makes TUNs, diverts, and resets the connections whose custody a killed predecessor took with
    /// it. In the calling thread's network namespace, on which thread [`Driver::run`] must be
    /// called, too.
    pub fn start(mut config: DriverConfig) -> Result<Self> {
        setup::with_spare_ones(&mut config);
        let news = Arc::new(Waker::new()?);
        let Setup { ports, faces, maker, bump, no_bump } = Setup::make(&config, Arc::clone(&news))?;
        let pulse = Arc::clone(&maker.pulse);
        let slots = config.gateway.limits.flows_max.min(journal::SLOTS_MAX);
        let poller = Poller::new()?;
        let waker = Arc::new(Waker::new()?);
        let monitor = Monitor::open()?;
        let troubles = config.troubles;
        poller.add(&*waker, WAKER, Interest::Read)?;
        poller.add(&*news, NEWS, Interest::Read)?;
        for n in 0..faces.end() {
            if let Some(face) = faces.get(n) {
                poller.add(face, n as u64, Interest::Read)?;
            }
        }
        let spreader = Spreader::new(faces.iter().map(|f| (f.name(), f.index())));
        let net = LinuxNetwork {
            ports,
            faces,
            shown: bump.is_some().then(Shown::default),
            marks: bump.as_ref().map(|bump| bump.marks()).transpose()?,
            own: config.own_packets.filter(|_| bump.is_some()),
            routes: Routes::default(),
            lookups: Lookups::start(Arc::clone(&pulse), Arc::clone(&news))?,
            carried: HashMap::new(),
            pulse: Arc::clone(&pulse),
            parents: HashMap::new(),
            mtus: HashMap::new(),
            journal: None,
            refused_before: 0,
            wants_journal: false,
            counters: Counters::default(),
            profile: None,
            connection_log: config.connection_log.as_ref().map(ConnectionLog::start).transpose()?,
            by_index: HashMap::new(),
        };
        let mut driver = Self {
            gateway: Gateway::new(config.gateway),
            net,
            guard: None,
            bump_guard: None,
            bump: None,
            watchdog: None,
            pulse,
            maker,
            finders: config.finders,
            selectors: config.selectors,
            without_room: BTreeSet::new(),
            is_started: false,
            ports_changed: true,
            has_new_ports: true,
            change: 0,
            told: Default::default(),
            retiring: Vec::new(),
            look_at: None,
            is_unsplit: false,
            link_states: Vec::new(),
            poller,
            housekeeper: Housekeeper::start(monitor, Arc::clone(&news), troubles.clone())?,
            news,
            troubles,
            records: Records::new(config.journal, slots),
            links: BTreeMap::new(),
            addresses: Vec::new(),
            parked: Parked::default(),
            has_answers: false,
            awaited: Vec::new(),
            fatal: None,
            waker,
            phase: Phase::Running,
            is_reload_wanted: false,
            is_asked_again: false,
            drain_timeout: config.drain_timeout,
            started: clock::now(),
            first: 0,
            has_unread: false,
            turns_put_off: 0,
            heap: HeapKeeper::default(),
            spreader,
            shortage: Shortage::default(),
            found: None,
            budgets: Budgets::default(),
        };
        driver.recall(config.found.as_deref());
        driver.list()?;
        // From here on no other process serves this instance: it would hold the TUNs.
        let records = driver.open_journal()?;
        driver.tell_states();
        driver.follow_ports();
        driver.divert(config.divert, bump, no_bump)?;
        if config.watchdog {
            let devices = driver.net.faces.iter().map(AsFd::as_fd);
            let (pulse, troubles) = (Arc::clone(&driver.pulse), driver.troubles.clone());
            let unwatched = move || troubles.begin_unwatched();
            driver.watchdog = Some(Watchdog::start(pulse, devices, config.heartbeat, unwatched)?);
        }
        if !records.is_empty() {
            tracing::warn!(
                connections = records.len(),
                "the last run was killed while it held bytes of these connections: their hosts are asked, and those that still have them are reset"
            );
            driver.gateway.reset_recorded(clock::now(), &records, &mut driver.net);
        }
        driver.housekeeper.begin();
        Ok(driver)
    }

    /// Asks which interfaces there are. Only before housekeeping begins: what changes then is told.
    fn list(&mut self) -> Result<()> {
        let mut socket = Socket::open()?;
        let all = Listing::read(&mut socket)?;
        self.addresses = socket.addresses().unwrap_or_default();
        self.look_at_links(all);
        Ok(())
    }

    /// What earlier runs have found of the links is a first guess.
    fn recall(&mut self, path: Option<&Path>) {
        let Some(path) = path else { return };
        let now = clock::now();
        let (file, known) = FoundFile::open(path, now);
        self.found = Some(file);
        self.budgets.recall(&mut self.gateway, &known.used, calendar::now_s());
        let recalled = self.gateway.recall(now, &known.found);
        link_events::tell_recalled(&recalled);
    }

    /// What a predecessor held when it was killed, and a new journal in its place.
    fn open_journal(&mut self) -> Result<Vec<Record>> {
        let Some(path) = &self.records.path else { return Ok(Vec::new()) };
        let interfaces = self.names();
        let records = Journal::replay(path, &interfaces);
        self.net.wants_journal = true;
        match Journal::create(path, self.records.slots, &interfaces) {
            Ok(journal) => self.net.journal = Some(journal),
            Err(error) if error.is(libc::ENOSPC) || error.is(libc::EDQUOT) => {
                records::without_room(&self.troubles, &error)
            }
            Err(error) => return Err(error),
        }
        Ok(records)
    }

    /// Devices that were ordered are there.
    fn await_devices(&mut self) {
        self.maker.wait();
        self.take_made();
    }

    /// Packets come from here on.
    fn divert(
        &mut self,
        config: DivertConfig,
        bump: Option<Arc<Bump>>,
        no_bump: Option<Diagnosis>,
    ) -> Result<()> {
        if let Some(bump) = bump {
            self.bump = Some(Arc::clone(&bump));
            // Before the guard looks whether something is missing.
            self.list()?;
            self.await_devices();
            // What was made last has its programs.
            self.maker.wait();
            let pulse = Arc::clone(&self.pulse);
            let everything = config.takes_everything();
            self.bump_guard = Some(BumpGuard::start(bump, self.net.ways(), pulse, everything)?);
            return Ok(());
        }
        self.await_devices();
        self.told = (self.diverted(), self.whole());
        let divert = Divert::apply(config, self.told.0.clone())?;
        let (pulse, waker) = (Arc::clone(&self.pulse), Arc::clone(&self.waker));
        self.guard = Some(Guard::start(divert, pulse, waker, no_bump)?);
        Ok(())
    }

    /// Whether the event loop turns: for those who tell a supervisor.
    #[must_use]
    pub fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }

    /// Wake it to have `attend` called.
    #[must_use]
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Forwards and splits until a drain is complete. SIGTERM or SIGINT out of `signals` starts the
    /// drain, a second one ends it. `attend` is called after each wake-up by the [`Driver::waker`],
    /// and after a SIGHUP.
    pub fn run(
        mut self,
        signals: Option<&Signals>,
        mut attend: impl FnMut(&mut Attendance<'_>),
    ) -> Result<End> {
        if let Some(signals) = signals {
            self.poller.add(signals, SIGNALS, Interest::Read)?;
        }
        loop {
            let deadline = self.deadline();
            let (mut is_woken, mut has_news, mut is_signalled) = (false, false, false);
            for ready in self.wait(deadline)? {
                match ready.token {
                    WAKER => is_woken = true,
                    NEWS => has_news = true,
                    SIGNALS => is_signalled = true,
                    // All TUNs are read in turn anyway.
                    _ => {}
                }
            }
            let began = clock::now();
            self.gateway.wake(began);
            if has_news {
                self.take_news();
            }
            self.try_devices(began);
            self.follow_leaving(began);
            self.follow_drain(began);
            self.take_parked(began);
            let packets = self.read_all();
            self.work();
            self.watch_processor(began, packets);
            if is_signalled && let Some(signals) = signals {
                while let Some(signal) = signals.next() {
                    self.signal(signal);
                }
            }
            if is_woken || self.is_reload_wanted || std::mem::take(&mut self.is_asked_again) {
                self.waker.clear();
                self.pulse.is_answering.store(true, Ordering::Relaxed);
                attend(&mut Attendance { driver: &mut self });
                self.pulse.is_answering.store(false, Ordering::Relaxed);
                self.follow_guard();
                self.work();
            }
            if self.is_over() {
                return self.finish();
            }
        }
    }

    /// The end of a turn. What came meanwhile.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<&[Ready]> {
        self.net.lookups.send();
        self.pulse.is_waiting.store(true, Ordering::Release);
        let ready = self.poller.wait(deadline);
        self.pulse.is_waiting.store(false, Ordering::Release);
        self.pulse.turns.add(1);
        ready
    }

    fn deadline(&mut self) -> Option<Instant> {
        if self.is_asked_again {
            return Some(Instant::ZERO);
        }
        let retries = self.net.faces.iter().filter_map(Face::retry_at).min();
        let drain = match self.phase {
            Phase::Running => None,
            Phase::Draining { until } => Some(until),
            Phase::Quitting => Some(Instant::ZERO),
        };
        [
            self.gateway.poll_timeout().map(|due| due.at),
            retries,
            drain,
            self.heap.due,
            self.look_at,
            self.devices_due(),
            self.parked.due(),
            self.shortage.deadline(),
            self.net.connection_log.as_ref().and_then(ConnectionLog::due),
            self.found.as_ref().map(FoundFile::due),
            self.budgets.due(&self.gateway),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Reads a batch of each TUN. Returns how many packets there were.
    fn read_all(&mut self) -> usize {
        let count = self.net.faces.end();
        self.first = (self.first + 1) % count.max(1);
        let mut packets = 0;
        self.has_unread = false;
        let mut lost = Vec::new();
        for n in (self.first..count).chain(0..self.first) {
            let (mut bytes, mut is_empty) = (0, false);
            for _ in 0..PACKETS_PER_TURN {
                if bytes >= BATCH_BYTES {
                    break;
                }
                let Some(face) = self.net.faces.get_mut(n) else { break };
                let began = self.net.profile.is_some().then(clock::now);
                let (packet, arrival) = match face.read(self.gateway.pool()) {
                    Ok((ReadOutcome::Packet(packet), arrival)) => (packet, arrival),
                    Ok((ReadOutcome::Odd, _)) => {
                        self.net.counters.odd_packets += 1;
                        continue;
                    }
                    Ok((ReadOutcome::Empty, _)) => {
                        is_empty = true;
                        break;
                    }
                    Err(error) => {
                        is_empty = true;
                        lost.push((n, error));
                        break;
                    }
                };
                packets += 1;
                bytes += packet.len();
                let via = self.net.arrived(n, arrival, packet.bytes());
                let now = clock::now();
                let packet = match self.net.knows_way(via, packet.bytes()) {
                    true => packet,
                    false => match self.parked.keep(now, via, packet) {
                        Some(packet) => packet,
                        None => continue,
                    },
                };
                self.gateway.handle_packet(now, via, packet, &mut self.net);
                if let (Some(began), Some(profile)) = (began, &mut self.net.profile) {
                    profile.note(Stage::Read, began, now);
                    profile.note(Stage::Engine, now, clock::now());
                }
            }
            self.has_unread |= !is_empty;
        }
        for (n, error) in lost {
            self.lose_device(n, &format!("cannot be read ({error})"));
        }
        packets
    }

    /// Packets that have waited for an answer of the kernel.
    fn take_parked(&mut self, now: Instant) {
        // Each is looked at, so not at every turn.
        let has_answers = std::mem::take(&mut self.has_answers);
        if self.parked.due().is_none_or(|due| due > now && !has_answers) {
            return;
        }
        let Self { parked, net, gateway, .. } = self;
        for (via, packet) in parked.take(now, |via, packet| net.knows_way(via, packet.bytes())) {
            gateway.handle_packet(now, via, packet, net);
        }
    }

    /// Whatever is due or owed now.
    fn work(&mut self) {
        let now = clock::now();
        // A timer that is late may have its answer among what waits: that is read first, within
        // reason.
        let may_wait = self.has_unread && self.turns_put_off < TURNS_PUT_OFF_MAX;
        self.turns_put_off = if may_wait { self.turns_put_off + 1 } else { 0 };
        if !may_wait && self.gateway.poll_timeout().is_some_and(|due| due.at <= now) {
            self.gateway.handle_timeout(now, &mut self.net);
        } else {
            self.gateway.flush(now, &mut self.net);
        }
        self.tell_link_states();
        self.tell_rates();
        self.tell_found();
        self.tell_boxes();
        self.follow_known_rates();
        self.tell_fates();
        self.keep_records(now);
        self.budgets.attend(now, &mut self.gateway);
        if let Some(file) = &mut self.found {
            file.attend(now, || Known::of(&self.gateway, now));
        }
        if let Some(log) = &mut self.net.connection_log {
            log.attend(now, |(client, server)| self.gateway.flow_between(now, *client, *server));
        }
        if let Some(profile) = &mut self.net.profile {
            profile.note(Stage::Egress, now, clock::now());
        }
        let LinuxNetwork { faces, counters, .. } = &mut self.net;
        let (mut packets, mut bytes) = (0, 0);
        for face in faces.iter_mut() {
            face.retry(now, counters);
            packets += face.counters.packets_out;
            bytes += face.counters.bytes_out;
        }
        self.pulse.forwarded.set(self.gateway.packets_forwarded());
        if let Some(work) = self.spreader.attend(now, packets, bytes) {
            self.maker.order(work);
        }
        self.heap.attend(now, self.gateway.freed_flows(), self.gateway.pool().has_spare());
    }

    /// What has become of the connections that a killed predecessor has left behind.
    fn tell_fates(&mut self) {
        if let Some(Fates { reset, ended, unanswered }) = self.gateway.take_fates() {
            tracing::info!(
                reset,
                ended,
                unanswered,
                "of the connections of which the last run held bytes so many were reset, had ended before, or did not answer"
            );
        }
    }

    /// New connections are forwarded while packets wait too long for their turn.
    fn watch_processor(&mut self, began: Instant, packets: usize) {
        let ended = clock::now();
        if packets == 0 && self.shortage.deadline().is_none_or(|at| at > ended) {
            return;
        }
        match self.shortage.turn(began, ended, self.pulse.dropped()) {
            Some(true) => tracing::warn!(
                "the processor is short: packets wait too long. New connections are forwarded until that is over"
            ),
            Some(false) => tracing::info!("the processor keeps up again: new connections are split"),
            None => return,
        }
        self.gateway.set_short_of_time(self.shortage.deadline().is_some());
    }

    /// Splits, or hands back what is split, as the guard of diversion has decided.
    fn follow_guard(&mut self) {
        let wanted = self.pulse.unsplit.load(Ordering::Acquire);
        if wanted == self.is_unsplit || self.phase != Phase::Running {
            return;
        }
        self.is_unsplit = wanted;
        if wanted {
            self.gateway.drain();
        } else {
            self.gateway.end_drain();
        }
        if let Some(log) = &mut self.net.connection_log {
            log.hand_back(wanted);
        }
    }
}
