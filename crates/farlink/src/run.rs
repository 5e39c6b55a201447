//! `farlink run`: the daemon. Reads the configuration, starts the driver, answers the admin socket
//! between batches of packets.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use farlink_linux::divert::Method;
use farlink_linux::driver::{By, Driver, DriverConfig, End, OwnPackets, Pulse, Troubles};
use farlink_linux::event_loop::{Interest, Poller, Signals};
use farlink_linux::helper::Helper;
use farlink_linux::listener::listen_at;
use farlink_linux::memory::Memory;
use farlink_linux::priority::{self, Priority, start_thread};
use farlink_linux::programs::start_with;
use farlink_linux::{caps, clock, watchdog};
use sd_notify::NotifyState;
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use crate::admin::client::ask;
use crate::admin::protocol::Request;
use crate::admin::server::{Server, refuse_if_served};
use crate::answers::Answerer;
use crate::cli::RunArgs;
use crate::config::{self, Quick, Settings};
use crate::confinement::confine;
use crate::metrics;
use crate::out::outln;
use crate::restarts::Restarts;
use crate::{log, reload};

/// The command line or the configuration is wrong; nothing was started. As for clap's own errors.
pub const WRONG_CONFIGURATION: u8 = 2;
/// How often systemd hears that a drain goes on, at least, and how much longer it may take then
/// before it is believed to hang.
const DRAIN_TOLD_EVERY: Duration = Duration::from_secs(2);

/// Runs the daemon until it is told to end.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    run_with(&|| configured(args), &args.log, args.check_config)
}

/// The same with this configuration; `check_config`: it is only read.
pub fn run_with(
    configured: &(dyn Fn() -> Result<Settings> + Sync),
    filter: &str,
    check_config: bool,
) -> Result<ExitCode> {
    let (settings, filter) = match configured().and_then(|settings| Ok((settings, log_filter(filter)?))) {
        Ok(told) => told,
        Err(e) => {
            crate::out::complain(&format!("{e:#}"));
            return Ok(ExitCode::from(WRONG_CONFIGURATION));
        }
    };
    if check_config {
        outln!("{}", summary(&settings));
        return Ok(ExitCode::SUCCESS);
    }
    start_log(filter);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "{}", summary(&settings));
    let end = serve(settings, configured).inspect_err(|_| log::end())?;
    tracing::info!(
        "ended; {}",
        match end {
            End::Drained => "no connection was broken".to_owned(),
            End::Abandoned(n) => format!("{n} connections still held data and were reset"),
        }
    );
    log::end();
    Ok(ExitCode::SUCCESS)
}

fn configured(args: &RunArgs) -> Result<Settings> {
    let back = args.rate.and_then(|rates| rates.back);
    anyhow::ensure!(
        back.is_none() || args.rate_in.is_none(),
        "the rate in is given twice, after the `/` of --rate and by --rate-in; allowed: one of them"
    );
    let quick = Quick {
        links: args.links.clone(),
        rate: args.rate.map(|rates| rates.out),
        rate_in: args.rate_in.or(back),
        reconfigures: args.reconfigures,
        interfaces: args.interfaces.clone(),
        socket: args.socket.clone(),
        method: args.divert,
        method_default: Method::of_environment().map_err(anyhow::Error::msg)?,
    };
    let is_quick = !args.links.is_empty() || !args.interfaces.is_empty();
    let default = (!is_quick).then(|| PathBuf::from(config::DEFAULT_FILE));
    let file = args.config.clone().or(default);
    if args.config.is_none() && file.as_deref().is_some_and(|f| !f.exists()) {
        anyhow::bail!(
            "there is nothing to go by: {} does not exist; name a file with --config, or the hard link's interface with --link",
            config::DEFAULT_FILE
        );
    }
    Ok(config::load(file.as_deref(), &quick)?.on(Memory::of_this_process()))
}

/// What will be done, in one sentence.
pub fn summary(settings: &Settings) -> String {
    let interfaces: Vec<_> = settings
        .gateway
        .interfaces
        .iter()
        .map(|i| match &i.link {
            None => i.name.clone(),
            Some(link) => {
                let rate = match link.rate_bps {
                    _ if link.estimate_rate => "rate to be found out".to_owned(),
                    Some(bps) if link.is_half_duplex => {
                        format!("{}, half duplex, {}", crate::view::rate(bps), link.leg.cc)
                    }
                    Some(bps) => format!("{}, {}", crate::view::rate(bps), link.leg.cc),
                    None => format!("rate unknown, {}", link.leg.cc),
                };
                let router = if link.is_xcp_router { ", XCP router" } else { "" };
                let shim = link.xcp_shim.map_or(String::new(), |n| format!(", XCP by protocol {n}"));
                format!("{} (link {}, {rate}{router}{shim})", i.name, link.name)
            }
        })
        .collect();
    let found = settings.finders.iter().filter(|finder| finder.divert).map(|finder| match &finder.by {
        By::Pattern(pattern) => format!("all called {pattern}"),
        By::Group(group) => format!("all of group {group}"),
        By::Forwarding => "all that forward".to_owned(),
    });
    let interfaces: Vec<_> = interfaces.into_iter().chain(found).collect();
    format!(
        "configuration is good: {} rules; diverting {}",
        settings.gateway.rules.len(),
        interfaces.join(", ")
    )
}

/// A word alone is taken for the name of a module by [`EnvFilter`], and nothing would be logged.
fn log_filter(text: &str) -> Result<EnvFilter> {
    const WORDS: &str =
        "allowed are error, warn, info, debug, trace and off, or MODULE=LEVEL with commas between";
    let is_level =
        |word: &str| word.contains('=') || word.parse::<tracing::level_filters::LevelFilter>().is_ok();
    anyhow::ensure!(text.split(',').all(|word| is_level(word.trim())), "`{text}` is no log filter; {WORDS}");
    EnvFilter::try_new(text).with_context(|| format!("`{text}` is no log filter; {WORDS}"))
}

fn start_log(filter: EnvFilter) {
    let is_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log::Log)
        // A log that nobody reads any more, or whose disk is full, is no reason to end: to complain
        // on stderr would be a panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // The journal has times of its own.
    if is_journal {
        log.without_time().init();
    } else {
        log.init();
    }
}

fn serve(settings: Settings, configured: &(dyn Fn() -> Result<Settings> + Sync)) -> Result<End> {
    refuse_if_served(&settings.socket)?;
    // Before any thread is started: all of them inherit what is blocked and what is given up here.
    let signals = Signals::take(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    if let Some(directory) = settings.journal.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let restarts = Restarts::read(&settings.socket);
    if is_ended_before(&restarts, &signals)? {
        return Ok(End::Drained);
    }
    let helper = start_with(Helper::start(settings.metrics_address)?);
    priority::raise();
    // A core would take its time to be written, while the devices stand and nobody reads from them;
    // and it would hold what the hosts say to each other.
    let is_watched = std::env::var_os("FARLINK_WATCHDOG").is_none_or(|v| v != "off");
    let heartbeat = match is_watched {
        true => {
            let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
            Some(Arc::new(watchdog::start_outside()?))
        }
        false => None,
    };
    // What may be refused comes first, and the diversion last. Who watches has none of it open.
    let asked = Server::listen(&settings.socket)?;
    let scraped = settings.metrics_address.map(|address| (address, listen_at(address)));
    let may_bump = settings.divert.method != Method::Policy;
    // While there is the privilege. Without it refusals are not announced; check says so.
    let own_packets = may_bump.then(OwnPackets::open).and_then(Result::ok).map(Arc::new);
    caps::keep_net_admin(may_bump)?;
    restarts.begin();
    let troubles = Troubles::default();
    confine(&settings, &troubles);
    log::start_thread()?;
    let started = settings.clone();
    let driver = Driver::start(DriverConfig {
        heartbeat,
        watchdog: is_watched,
        own_packets,
        troubles: troubles.clone(),
        ..driver_config(settings)?
    })?;
    let waker = driver.waker();
    let (_server, calls) = asked.serve({
        let waker = Arc::clone(&waker);
        move || waker.wake()
    })?;
    if let Some((address, listening)) = scraped {
        let socket = started.socket.clone();
        metrics::serve(address, listening, move || helper.listen(), troubles, move || snapshot(&socket))?;
    }
    crate::check::watch::start(&started.socket);
    // Not under systemd there is nobody to tell.
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    tell_supervisor(driver.pulse());
    tracing::info!(socket = %started.socket.display(), "diverting");
    std::thread::scope(|scope| {
        let source = reload::Source::start(scope, configured, started, driver.waker())?;
        let (divert, drain_timeout) = (source.started().divert.clone(), source.started().drain_timeout);
        let mut answerer = Answerer::new(divert, drain_timeout.as_secs(), source);
        let end = driver.run(Some(&signals), |attendance| answerer.answer_all(&calls, attendance))?;
        restarts.end();
        Ok(end)
    })
}

/// Waits where runs have ended soon again and again. Whether a signal said meanwhile that there is
/// to be none.
fn is_ended_before(restarts: &Restarts, signals: &Signals) -> Result<bool> {
    let Some((delay, runs)) = restarts.delay() else { return Ok(false) };
    tracing::error!(
        delay_s = delay.as_secs(),
        "the last {runs} runs have ended within a minute each: this one begins later, and until then the router routes"
    );
    let mut poller = Poller::new()?;
    poller.add(signals, 0, Interest::Read)?;
    let until = clock::now() + farlink_wire::Duration::from_secs(delay.as_secs());
    while clock::now() < until {
        poller.wait(Some(until))?;
        if signals.next().is_some_and(|signal| signal != libc::SIGHUP) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the driver is told of the configuration.
fn driver_config(settings: Settings) -> Result<DriverConfig> {
    let mut gateway = settings.gateway;
    gateway.seed = random_seed()?;
    if gateway.identity == 0 {
        gateway.identity = (random_seed()? >> 32) as u32 | 1;
    }
    Ok(DriverConfig {
        finders: settings.finders,
        selectors: settings.selectors,
        divert: settings.divert,
        drain_timeout: settings.drain_timeout,
        queue_packets: settings.queue_packets,
        journal: Some(settings.journal),
        found: settings.found,
        connection_log: settings.connection_log,
        ..DriverConfig::new(gateway)
    })
}

/// Tells systemd that the event loop turns, twice in the time after which it would end the service
/// (WatchdogSec). And that a drain goes on, which may take longer than TimeoutStopSec.
fn tell_supervisor(pulse: Arc<Pulse>) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let mut watchdog_us = 0;
    let is_watched = sd_notify::watchdog_enabled(false, &mut watchdog_us);
    let every = if is_watched { Duration::from_micros(watchdog_us / 2) } else { DRAIN_TOLD_EVERY };
    let tell = move || {
        let mut last = None;
        loop {
            let position = pulse.position();
            let turns = position.is_waiting || last != Some(position);
            if turns && is_watched {
                let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
            }
            if turns && pulse.is_draining() {
                let more = u32::try_from((every + DRAIN_TOLD_EVERY).as_micros()).unwrap_or(u32::MAX);
                let _ =
                    sd_notify::notify(false, &[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(more)]);
            }
            last = Some(position);
            std::thread::sleep(every.min(DRAIN_TOLD_EVERY));
        }
    };
    // Without it systemd starts the service again, which is what it is told to do.
    let _ = start_thread("supervisor", Priority::Loop, tell);
}

fn random_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    anyhow::ensure!(n == bytes.len(), "no random numbers");
    Ok(u64::from_ne_bytes(bytes))
}

/// For the metrics thread: asks the event loop as everybody else does.
fn snapshot(socket: &Path) -> Option<Value> {
    ask(socket, &Request::Status {}).ok()
}
