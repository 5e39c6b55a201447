//! The Linux datapath: TUNs, timers, link and route events, signals; round one gateway, on one
//! thread.

mod connection_log;
mod connections;
mod log_file;
mod network;
mod profile;
mod pulse;
mod shortage;
mod status;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farlink_gateway::{Config, Gateway, IfaceId, LinkState, PACKETS_PER_TURN};
use farlink_wire::{Duration, Instant};

pub use connection_log::{ConnectionLogConfig, LogTarget};
pub use profile::StageStatus;
pub(crate) use pulse::Traffic;
pub use pulse::{Position, Pulse};
pub use status::{Counters, DiversionStatus, DriverStatus, PortStatus, TunCounters};

use crate::clock;
use crate::divert::{Divert, DivertConfig, Diverted};
use crate::error::{Error, Result};
use crate::event_loop::{Interest, Poller, Signals, Waker};
use crate::guard::Guard;
use crate::heap::HeapKeeper;
use crate::journal::Journal;
use crate::netlink::{Event, Link, Monitor, RouteCache, Socket};
use crate::spread::Spreader;
use crate::tun::{DEFAULT_QUEUE_PACKETS, ReadOutcome, Tun, TunConfig};
use crate::watchdog::{Heartbeat, Watchdog};
use connection_log::ConnectionLog;
use network::{LinuxNetwork, Port};
use profile::{Profile, Stage};
use shortage::Shortage;

/// What is read from one TUN before the others, and what is owed, get their turn: so many bytes, or
/// [`PACKETS_PER_TURN`] packets.
const BATCH_BYTES: usize = 2 << 20;
const SIGNALS: u64 = u64::MAX;
const EVENTS: u64 = u64::MAX - 1;
const WAKER: u64 = u64::MAX - 2;
/// Flows that the journal has room for, unless the flow table is smaller.
const JOURNAL_SLOTS_MAX: usize = 1 << 20;
/// How long the last packets in the TUNs are waited for after diversion has been taken back.
const LAST_PACKETS: Duration = Duration::from_millis(20);

/// A link that is silent for no longer than this is not worth a line of the log.
const WINK_MAX: Duration = Duration::from_secs(1);

/// What the log was told of a link last, and in which state it has been since when.
struct ToldState {
    told: LinkState,
    is: LinkState,
    since: Instant,
}

/// What the driver is told.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// What the gateway is told; its interfaces, by name, are the ones that are diverted.
    pub gateway: Config,
    /// Names and numbers of the diversion.
    pub divert: DivertConfig,
    /// How long a drain may take before custody that is left is given up.
    pub drain_timeout: Duration,
    /// Packets that may wait in a TUN.
    pub queue_packets: u32,
    /// Where the journal of flows with custody is kept; `None`: nowhere, and a kill lets their
    /// connections hang.
    pub journal: Option<PathBuf>,
    /// Where each connection has a line at its end; `None`: nowhere.
    pub connection_log: Option<ConnectionLogConfig>,
    /// What tells the process outside that this one lives; `None`: nobody watches from outside.
    pub heartbeat: Option<Arc<Heartbeat>>,
    /// End the process when the event loop hangs.
    pub watchdog: bool,
}

impl DriverConfig {
    /// The usual settings round a gateway's configuration.
    #[must_use]
    pub fn new(gateway: Config) -> Self {
        Self {
            gateway,
            divert: DivertConfig::default(),
            drain_timeout: Duration::from_secs(30),
            queue_packets: DEFAULT_QUEUE_PACKETS,
            journal: Some(PathBuf::from("/run/farlink/journal")),
            connection_log: None,
            heartbeat: None,
            watchdog: true,
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

/// A gateway on this machine. Dropping it takes the diversion back without a drain.
pub struct Driver {
    /// First in order of declaration, so first to be dropped: nothing is diverted to a TUN that is
    /// gone, and nobody looks whether packets wait in one.
    guard: Option<Guard>,
    watchdog: Option<Watchdog>,
    pulse: Arc<Pulse>,
    diverted: Vec<Diverted>,
    /// The guard wants nothing to be split.
    is_unsplit: bool,
    /// What the log was told last of each declared link.
    link_states: Vec<ToldState>,
    gateway: Gateway,
    net: LinuxNetwork,
    poller: Poller,
    monitor: Monitor,
    waker: Arc<Waker>,
    phase: Phase,
    is_reload_wanted: bool,
    drain_timeout: Duration,
    started: Instant,
    /// Which TUN is read first; moves on.
    first: usize,
    heap: HeapKeeper,
    spreader: Spreader,
    shortage: Shortage,
}

/// What whoever attends to a running driver may look at and do, between two batches of packets.
pub struct Attendance<'a> {
    driver: &'a mut Driver,
}

impl Driver {
    /// Makes TUNs, diverts, and resets the connections whose custody a killed predecessor took with
    /// it. In the calling thread's network namespace, on which thread [`Driver::run`] must be
    /// called, too.
    pub fn start(mut config: DriverConfig) -> Result<Self> {
        find_addresses(&mut config.gateway)?;
        let interfaces: Vec<(IfaceId, String)> =
            config.gateway.interfaces.iter().map(|i| (i.id, i.name.clone())).collect();
        if interfaces.is_empty() {
            return Err(Error::Refused("no interface is to be diverted".to_owned()));
        }
        let pulse = Arc::new(Pulse::new(interfaces.len()));
        let mut ports = Vec::new();
        for (n, (id, interface)) in interfaces.iter().enumerate() {
            let tun_config =
                TunConfig { name: config.divert.tun_name(n), queue_packets: config.queue_packets };
            let tun = Tun::create(&tun_config)?;
            ports.push(Port::new(*id, interface.clone(), tun, (Arc::clone(&pulse), n)));
        }
        // From here on no other process serves this instance: it would hold the TUNs.
        let slots = config.gateway.limits.flows_max.min(JOURNAL_SLOTS_MAX);
        let (records, journal) = match &config.journal {
            Some(path) => {
                let records = Journal::replay(path, &interfaces);
                (records, Some(Journal::create(path, slots, &interfaces)?))
            }
            None => (Vec::new(), None),
        };
        let poller = Poller::new()?;
        let waker = Arc::new(Waker::new()?);
        let monitor = Monitor::open()?;
        poller.add(&*waker, WAKER, Interest::Read)?;
        poller.add(&monitor, EVENTS, Interest::Read)?;
        for (port, n) in ports.iter().zip(0u64..) {
            poller.add(&port.tun, n, Interest::Read)?;
        }
        let diverted: Vec<_> = ports
            .iter()
            .map(|p| Diverted {
                interface: p.interface.clone(),
                tun: p.tun.name().to_owned(),
                tun_index: p.tun.index(),
            })
            .collect();
        let spreader = Spreader::new(ports.iter().map(|p| (p.tun.name(), p.tun.index())));
        let net = LinuxNetwork {
            ports,
            routes: RouteCache::open()?,
            journal,
            counters: Counters::default(),
            profile: None,
            connection_log: config.connection_log.as_ref().map(ConnectionLog::start).transpose()?,
            by_index: HashMap::new(),
        };
        let mut driver = Self {
            gateway: Gateway::new(config.gateway),
            net,
            guard: None,
            watchdog: None,
            pulse,
            diverted,
            is_unsplit: false,
            link_states: Vec::new(),
            poller,
            monitor,
            waker,
            phase: Phase::Running,
            is_reload_wanted: false,
            drain_timeout: config.drain_timeout,
            started: clock::now(),
            first: 0,
            heap: HeapKeeper::default(),
            spreader,
            shortage: Shortage::default(),
        };
        driver.look_at_links()?;
        for port in 0..driver.net.ports.len() {
            driver.tell_if_down(port);
        }
        let divert = Divert::apply(config.divert, driver.diverted.clone())?;
        driver.guard = Some(Guard::start(divert, Arc::clone(&driver.pulse), Arc::clone(&driver.waker))?);
        if config.watchdog {
            let devices = driver.net.ports.iter().map(|p| p.tun.as_fd());
            driver.watchdog = Some(Watchdog::start(Arc::clone(&driver.pulse), devices, config.heartbeat)?);
        }
        if !records.is_empty() {
            tracing::warn!(
                connections = records.len(),
                "the last run was killed while it held bytes of these connections: they are reset"
            );
            driver.gateway.reset_recorded(clock::now(), &records, &mut driver.net);
        }
        Ok(driver)
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
            let (mut is_woken, mut has_events, mut is_signalled) = (false, false, false);
            self.pulse.is_waiting.store(true, Ordering::Release);
            let ready = self.poller.wait(deadline);
            self.pulse.is_waiting.store(false, Ordering::Release);
            self.pulse.turns.add(1);
            for ready in ready? {
                match ready.token {
                    WAKER => is_woken = true,
                    EVENTS => has_events = true,
                    SIGNALS => is_signalled = true,
                    // All TUNs are read in turn anyway.
                    _ => {}
                }
            }
            let began = clock::now();
            if has_events {
                self.take_events()?;
            }
            let packets = self.read_all()?;
            self.work();
            self.watch_processor(began, packets);
            if is_signalled && let Some(signals) = signals {
                while let Some(signal) = signals.next() {
                    self.signal(signal);
                }
            }
            if is_woken || self.is_reload_wanted {
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

    fn deadline(&mut self) -> Option<Instant> {
        let retries = self.net.ports.iter().filter_map(Port::retry_at).min();
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
            self.shortage.deadline(),
            self.net.connection_log.as_ref().and_then(ConnectionLog::due),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Reads a batch of each TUN. Returns how many packets there were.
    fn read_all(&mut self) -> Result<usize> {
        let count = self.net.ports.len();
        self.first = (self.first + 1) % count.max(1);
        let mut packets = 0;
        for n in (self.first..count).chain(0..self.first) {
            let mut bytes = 0;
            for _ in 0..PACKETS_PER_TURN {
                if bytes >= BATCH_BYTES {
                    break;
                }
                let Some(port) = self.net.ports.get_mut(n) else { break };
                let began = self.net.profile.is_some().then(clock::now);
                let packet = match port.tun.read(self.gateway.pool()) {
                    Ok(ReadOutcome::Packet(packet)) => packet,
                    Ok(ReadOutcome::Odd) => {
                        self.net.counters.odd_packets += 1;
                        continue;
                    }
                    Ok(ReadOutcome::Empty) => break,
                    Err(error) => return Err(error),
                };
                packets += 1;
                bytes += packet.len();
                port.note_read(packet.bytes(), packet.offload.is_super_segment());
                let id = port.id;
                let now = clock::now();
                self.gateway.handle_packet(now, id, packet, &mut self.net);
                if let (Some(began), Some(profile)) = (began, &mut self.net.profile) {
                    profile.note(Stage::Read, began, now);
                    profile.note(Stage::Engine, now, clock::now());
                }
            }
        }
        Ok(packets)
    }

    /// Whatever is due or owed now.
    fn work(&mut self) {
        let now = clock::now();
        if self.gateway.poll_timeout().is_some_and(|due| due.at <= now) {
            self.gateway.handle_timeout(now, &mut self.net);
        } else {
            self.gateway.flush(now, &mut self.net);
        }
        self.tell_link_states();
        if let Some(log) = &mut self.net.connection_log {
            log.attend(now, |(client, server)| self.gateway.flow_between(now, *client, *server));
        }
        if let Some(profile) = &mut self.net.profile {
            profile.note(Stage::Egress, now, clock::now());
        }
        let LinuxNetwork { ports, counters, .. } = &mut self.net;
        let (mut packets, mut bytes) = (0, 0);
        for port in ports {
            port.retry(now, counters);
            packets += port.counters.packets_out;
            bytes += port.counters.bytes_out;
        }
        self.pulse.forwarded.set(self.gateway.packets_forwarded());
        self.spreader.attend(now, packets, bytes);
        self.heap.attend(now, self.gateway.freed_flows(), self.gateway.pool().has_spare());
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

    fn take_events(&mut self) -> Result<()> {
        let (mut routes, mut lost) = (false, false);
        let mut links: Vec<(Link, bool)> = Vec::new();
        self.monitor.drain(|event| match event {
            Event::Link(link) => links.push((link, true)),
            Event::LinkGone(link) => links.push((link, false)),
            Event::Routes => routes = true,
            Event::Lost => lost = true,
        })?;
        if !(routes || lost) && links.is_empty() {
            return Ok(());
        }
        // An interface that changes may change its MTU, its number, and the routes through it.
        self.net.routes.invalidate();
        self.gateway.routes_changed(clock::now());
        for (link, exists) in links {
            self.link_changed(&link, exists);
        }
        if lost {
            self.net.counters.events_lost += 1;
            self.look_at_links()?;
        }
        Ok(())
    }

    /// The state of all interfaces, as it is now.
    fn look_at_links(&mut self) -> Result<()> {
        for link in Socket::open()?.links()? {
            self.link_changed(&link, true);
        }
        Ok(())
    }

    /// The gateway takes every interface to be up until it hears otherwise.
    fn tell_if_down(&mut self, port: usize) {
        if let Some(port) = self.net.ports.get(port).filter(|p| !p.is_usable) {
            tracing::warn!(interface = %port.interface, "the interface is down, or does not exist yet");
            let id = port.id;
            self.gateway.link_state(clock::now(), id, false, &mut self.net);
        }
    }

    fn link_changed(&mut self, link: &Link, exists: bool) {
        let Some(port) = self.net.ports.iter_mut().find(|p| p.interface == link.name) else {
            if let Some(port) = self.net.ports.iter().find(|p| p.tun.name() == link.name)
                && (!exists || !link.up)
            {
                tracing::error!(
                    device = port.tun.name(),
                    "the device was taken down or away; one that is down is brought up again"
                );
            }
            return;
        };
        let (id, was_usable) = (port.id, port.is_usable);
        let index = exists.then_some(link.index);
        if let Some(old) = port.index.take() {
            self.net.by_index.remove(&old);
        }
        port.index = index;
        if let Some(index) = index {
            self.net.by_index.insert(index, id);
        }
        port.is_usable = exists && link.is_usable();
        let is_usable = port.is_usable;
        if is_usable != was_usable {
            let state = if is_usable { "up" } else { "down" };
            tracing::info!(interface = %link.name, state, "link state");
            self.gateway.link_state(clock::now(), id, is_usable, &mut self.net);
        }
    }

    /// The log is told of links that have gone or come back, and by whose word. A mere suspicion
    /// ends with the next answer, or is soon more. So does a wink, of which there may be many in a
    /// second.
    fn tell_link_states(&mut self) {
        let now = clock::now();
        for (n, (link, said)) in self.gateway.link_states().enumerate() {
            let state = said.state();
            if self.link_states.len() <= n {
                self.link_states.push(ToldState { told: LinkState::Up, is: LinkState::Up, since: now });
            }
            let Some(before) = self.link_states.get_mut(n) else { return };
            if core::mem::replace(&mut before.is, state) != state {
                before.since = now;
            }
            let may_be_wink = state == LinkState::Probing && now.since(before.since) < WINK_MAX;
            if state == LinkState::Suspect || may_be_wink {
                continue;
            }
            if core::mem::replace(&mut before.told, state) != state {
                tracing::info!(link, state = state.name(), down_by = said.names().join(", "), "link");
            }
        }
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
    }

    fn signal(&mut self, signal: i32) {
        if !matches!(signal, libc::SIGTERM | libc::SIGINT) {
            self.is_reload_wanted |= signal == libc::SIGHUP;
            return;
        }
        match self.phase {
            Phase::Running => self.start_drain(),
            Phase::Draining { .. } | Phase::Quitting => {
                tracing::warn!("told to end a second time: what is not delivered is given up");
                self.phase = Phase::Quitting;
            }
        }
    }

    fn start_drain(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        let now = clock::now();
        tracing::info!(
            timeout_s = self.drain_timeout.as_secs_f64(),
            "draining: nothing new is split, custody is delivered"
        );
        self.gateway.drain();
        self.phase = Phase::Draining { until: now + self.drain_timeout };
        self.work();
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Running => false,
            Phase::Draining { until } => self.gateway.is_drained() || clock::now() >= until,
            Phase::Quitting => true,
        }
    }

    /// Takes the diversion back, forwards what is still in the TUNs, and goes.
    fn finish(mut self) -> Result<End> {
        let end = if self.gateway.is_drained() {
            End::Drained
        } else {
            End::Abandoned(self.gateway.abandon_all(clock::now(), &mut self.net))
        };
        self.watchdog = None;
        let outcome = self.guard.take().and_then(Guard::end).map_or(Ok(()), Divert::remove);
        let until = clock::now() + LAST_PACKETS;
        while clock::now() < until {
            self.read_all()?;
            self.work();
            self.poller.wait(Some(until))?;
        }
        if let Some(journal) = self.net.journal.take() {
            journal.remove();
        }
        if let Some(log) = self.net.connection_log.take() {
            log.end_all(clock::now());
        }
        match end {
            End::Drained => tracing::info!("drained: every byte in custody was delivered"),
            End::Abandoned(connections) => {
                tracing::warn!(
                    connections,
                    "ended before the drain was complete: these connections were reset"
                );
            }
        }
        outcome.map(|()| end)
    }

    fn status(&self) -> DriverStatus {
        let drops: HashMap<String, u64> = Socket::open()
            .and_then(|mut s| s.links())
            .map(|links| links.into_iter().map(|l| (l.name, l.tx_dropped)).collect())
            .unwrap_or_default();
        let ports = self.net.ports.iter().map(|p| PortStatus {
            interface: p.interface.clone(),
            up: p.is_usable,
            tun: p.tun.name().to_owned(),
            tso4: p.tun.offloads().tso4,
            tso6: p.tun.offloads().tso6,
            queue_drops: drops.get(p.tun.name()).copied().unwrap_or(0),
            counters: p.counters,
        });
        DriverStatus {
            ports: ports.collect(),
            counters: self.net.counters(),
            profile: self.net.profile.as_ref().map(|p| p.status()),
            route_lookups: self.net.routes.lookups(),
            journal_refused: self.net.journal.as_ref().map_or(0, Journal::refused),
            spread: self.spreader.is_on(),
            diversion: self.guard.as_ref().map(Guard::status).unwrap_or_default(),
            uptime_s: clock::now().since(self.started).as_secs_f64(),
        }
    }
}

/// The interfaces' own addresses, for those of which none is configured: ICMP errors of the gateway
/// come from them.
fn find_addresses(config: &mut Config) -> Result<()> {
    let mut socket = Socket::open()?;
    let addresses = socket.addresses()?;
    for link in socket.links()? {
        let Some(interface) = config.interfaces.iter_mut().find(|i| i.name == link.name) else { continue };
        if interface.addresses.is_empty() {
            let own = addresses.iter().filter(|(index, _)| *index == link.index);
            interface.addresses = own.map(|(_, address)| *address).collect();
        }
    }
    Ok(())
}

impl Attendance<'_> {
    /// The gateway.
    pub fn gateway(&mut self) -> &mut Gateway {
        &mut self.driver.gateway
    }
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        clock::now()
    }
    /// What the driver counts.
    #[must_use]
    pub fn status(&self) -> DriverStatus {
        self.driver.status()
    }
    /// What is diverted where.
    #[must_use]
    pub fn diverted(&self) -> Vec<Diverted> {
        self.driver.diverted.clone()
    }
    /// How diversion stands.
    #[must_use]
    pub fn diversion(&self) -> DiversionStatus {
        self.driver.guard.as_ref().map(Guard::status).unwrap_or_default()
    }
    /// Whether the stages of the datapath are measured.
    #[must_use]
    pub fn is_profiled(&self) -> bool {
        self.driver.net.profile.is_some()
    }
    /// Measures each stage of the datapath from now on, beginning at zero, or no more.
    pub fn set_profile(&mut self, on: bool) {
        self.driver.net.profile = on.then(|| Box::new(Profile::default()));
    }
    /// SIGHUP has come since this was asked last: another configuration is to be read.
    pub fn take_reload(&mut self) -> bool {
        core::mem::take(&mut self.driver.is_reload_wanted)
    }
    /// Starts draining, as SIGTERM does.
    pub fn drain(&mut self) {
        self.driver.start_drain();
    }
    /// An interface, or the link behind it, went away or came back, as somebody outside knows
    /// better than the kernel (a modem).
    ///
    /// # Errors
    /// The name is not that of a diverted interface; the text says which there are.
    pub fn link_state(&mut self, interface: &str, up: bool) -> std::result::Result<(), String> {
        let Driver { gateway, net, .. } = &mut *self.driver;
        let Some(id) = net.ports.iter().find(|p| p.interface == interface).map(|p| p.id) else {
            let names: Vec<&str> = net.ports.iter().map(|p| p.interface.as_str()).collect();
            return Err(format!(
                "there is no diverted interface {interface}; there are {}",
                names.join(", ")
            ));
        };
        gateway.link_declared(clock::now(), id, up, net);
        Ok(())
    }
}
