//! `programs`: what programs send over a link beside downloads that are split, with real kernels
//! and real protocols: a QUIC download, a tunnel that carries TCP, pings, and a TCP download that
//! is only forwarded.
//!
//! All data comes to the client. Downloads begin together, and what arrives is counted in a window
//! of time. Pings go over the empty link first, and then beside the downloads in that window.

mod downloads;
mod ping;
mod queue;
mod quic;
mod tunnel;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use portable_atomic::AtomicU64;

use self::ping::Pinger;
use self::queue::Queue;
use self::quic::{Controller, Ends, Sent};
use self::tunnel::Tunnel;
use super::session::{Allowed, PORT, Session};
use super::{Kind, Run};
use crate::build::Lab;
use crate::jobs::quantile;
use crate::netns::Ns;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::Settings;
use crate::workload::Server;

/// Port of the server whose connections are not split.
const FORWARDED_PORT: u16 = 5005;
/// Connections in the tunnel.
const TUNNELLED: usize = 8;
/// Before that nothing is counted: all fill the link.
const WARM_UP: Duration = Duration::from_secs(7);
/// So long pings go over the empty link.
const ALONE: Duration = Duration::from_secs(3);
/// The gateway that sends towards the client, and the link it sends into.
const SENDER: (&str, &str) = ("gw2", "sat");

/// See the module.
pub(super) struct ProgramsKind;

/// What goes beside the downloads that are split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    Quic(Controller),
    Tunnel,
    Ping,
    Forwarded,
}

impl Program {
    fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "quic-cubic" => Self::Quic(Controller::Cubic),
            "quic-bbr" => Self::Quic(Controller::Bbr),
            "tunnel" => Self::Tunnel,
            "ping" => Self::Ping,
            "forwarded" => Self::Forwarded,
            other => bail!("case = {other}: `quic-cubic`, `quic-bbr`, `tunnel`, `ping` or `forwarded`"),
        })
    }
}

/// What is played in a cell.
#[derive(Clone, Copy, Debug)]
struct Plan {
    program: Program,
    /// Downloads that are split.
    flows: usize,
    queue: Queue,
    v6: bool,
    rate_bps: u64,
    /// What a download asks for: more than the link carries meanwhile.
    bytes: u64,
    /// When what is counted ends.
    until: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
struct Heard {
    /// Bytes of the downloads that had arrived at both ends of the window.
    split_bytes: [u64; 2],
    /// Those of the program.
    program_bytes: [u64; 2],
    /// Round trips of pings in seconds, over the empty link and beside the downloads.
    pings_s: [Vec<Option<f64>>; 2],
    quic: Option<Sent>,
    error: Option<String>,
}

/// What threads share.
struct Stage {
    client: Ns,
    is_over: AtomicBool,
    split_bytes: AtomicU64,
    program_bytes: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Stage {
    fn new(client: Ns) -> Self {
        let (split_bytes, program_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { client, is_over: AtomicBool::new(false), split_bytes, program_bytes, error: Mutex::default() }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// What goes wrong when all is over does not count.
    fn check(&self, what: &str, outcome: Result<()>) {
        if let Err(e) = outcome
            && !self.is_over()
        {
            let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            error.get_or_insert_with(|| format!("{what}: {e:#}"));
        }
    }
}

impl Plan {
    fn new(cell: &Cell) -> Result<Self> {
        let until = Duration::from_secs(cell.number("duration_s", 27));
        let rate_bps = cell.settings.rate_bps;
        if rate_bps == 0 || until <= WARM_UP {
            bail!("a rate, and a duration_s above {}", WARM_UP.as_secs());
        }
        Ok(Self {
            program: Program::named(cell.word("case", ""))?,
            flows: usize::try_from(cell.number("flows", 1))?,
            queue: Queue::named(cell.word("shaper", "none"))?,
            v6: cell.v6(),
            rate_bps,
            bytes: rate_bps * 2 * until.as_secs() / 8,
            until,
        })
    }

    /// With a rule that keeps the gateways from splitting what is only to be forwarded.
    fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        if self.program == Program::Forwarded {
            let rule =
                format!("\n[[rule]]\nname = \"forwarded\"\nports = [{FORWARDED_PORT}]\naction = \"pass\"\n");
            settings.gateway_config.push_str(&rule);
        }
        settings
    }

    fn measure(&self, heard: &Heard) -> Measured {
        let seconds = (self.until - WARM_UP).as_secs_f64();
        let came = |[from, until]: [u64; 2]| until.saturating_sub(from);
        let (split, program) = (came(heard.split_bytes), came(heard.program_bytes));
        let mut measured = Measured { seconds, bytes: split + program, ..Measured::default() };
        let of_rate = |bytes: u64| 8.0 * bytes as f64 / seconds / self.rate_bps as f64;
        measured.metric("bulk_of_rate", of_rate(split));
        measured.expect(self.flows == 0 || split > 0, || "nothing of the downloads arrived".into());
        measured.expect(heard.error.is_none(), || heard.error.clone().unwrap_or_default());
        if self.program == Program::Ping {
            self.measure_pings(&heard.pings_s, &mut measured);
        } else {
            measured.metric("program_of_rate", of_rate(program));
            measured.metric("both_of_rate", of_rate(split + program));
            measured.expect(program > 0, || "nothing of the program's data arrived".into());
        }
        if let Some(sent) = heard.quic {
            measured.metric("quic_sent_packets", sent.packets as f64);
            measured.metric("quic_lost_share", sent.lost as f64 / sent.packets.max(1) as f64);
            measured.metric("quic_congestion_events", sent.congestion_events as f64);
        }
        measured
    }

    fn measure_pings(&self, pings_s: &[Vec<Option<f64>>; 2], measured: &mut Measured) {
        let mut p99_ms = [0.0; 2];
        let mut base_ms = 0.0;
        for ((name, pings), p99_ms) in ["alone", "beside"].iter().zip(pings_s).zip(&mut p99_ms) {
            let answered: Vec<f64> = pings.iter().filter_map(|p| *p).collect();
            *p99_ms = 1e3 * quantile(&answered, 0.99);
            let median_ms = 1e3 * quantile(&answered, 0.5);
            if *name == "alone" {
                base_ms = median_ms;
            }
            measured.metric(&format!("{name}_median_ms"), median_ms);
            measured.metric(&format!("{name}_p99_ms"), *p99_ms);
            measured.metric(&format!("{name}_worst_ms"), 1e3 * quantile(&answered, 1.0));
            let lost = pings.len() - answered.len();
            measured.metric(&format!("{name}_lost_share"), lost as f64 / pings.len().max(1) as f64);
            measured.expect(!answered.is_empty(), || format!("{name}: no ping was answered"));
        }
        // The base round trip is the median of the empty link: a late ping there must not help.
        measured.metric("p99_over_base_ms", p99_ms[1] - base_ms);
    }
}

impl Kind for ProgramsKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        Plan::new(cell).ok()?.queue.missing()
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let plan = Plan::new(cell)?;
        let settings = plan.settings(&cell.settings);
        let mut session = Session::start(&scenario.topology, &settings, cell, run, Allowed::default())?;
        let (node, link) = SENDER;
        let topology = &session.lab.topology;
        let out = topology.interface(topology.index(node)?, topology.index(link)?)?;
        plan.queue.put(&session.lab.ns(node), &out.name, plan.rate_bps, settings.rtt_ms)?;
        if plan.program == Program::Forwarded {
            let server = Server::start(&session.lab.ns("server"), FORWARDED_PORT)?;
            session.servers.push(("server".into(), server));
        }
        let heard = play(&session.lab, &plan)?;
        let mut measured = plan.measure(&heard);
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

/// Runs the program and the downloads for as long as the plan lasts.
fn play(lab: &Lab, plan: &Plan) -> Result<Heard> {
    let stage = Stage::new(lab.ns("client"));
    let to = lab.address("server", plan.v6)?;
    let mut heard = Heard::default();
    let pinger = match plan.program {
        Program::Ping => Some(Pinger::open(&stage.client, to)?),
        _ => None,
    };
    if let Some(pinger) = &pinger {
        heard.pings_s[0] = pinger.ping(ALONE);
    }
    let tunnel = match plan.program {
        Program::Tunnel => Some(Tunnel::up(lab, plan.v6)?),
        _ => None,
    };
    let inner: Vec<SocketAddr> = match (plan.program, &tunnel) {
        (Program::Tunnel, Some(tunnel)) => vec![(tunnel.server(), PORT).into(); TUNNELLED],
        (Program::Forwarded, _) => vec![(to, FORWARDED_PORT).into()],
        _ => Vec::new(),
    };
    let quic = Ends::open(lab, plan, &stage)?;
    let (began, stage) = (Instant::now(), &stage);
    thread::scope(|scope| {
        for number in 0..plan.flows {
            scope.spawn(move || {
                let outcome = downloads::run(stage, (to, PORT).into(), plan.bytes, &stage.split_bytes);
                stage.check(&format!("download {number}"), outcome);
            });
        }
        for to in inner {
            scope.spawn(move || {
                let outcome = downloads::run(stage, to, plan.bytes, &stage.program_bytes);
                stage.check("a connection of the program", outcome);
            });
        }
        let quic = quic.map(|ends| scope.spawn(move || ends.run(stage)));
        let mut pings = None;
        for (place, time) in [WARM_UP, plan.until].into_iter().enumerate() {
            thread::sleep(time.saturating_sub(began.elapsed()));
            heard.split_bytes[place] = stage.split_bytes.load(Ordering::Relaxed);
            heard.program_bytes[place] = stage.program_bytes.load(Ordering::Relaxed);
            if let (0, Some(pinger)) = (place, &pinger) {
                pings = Some(scope.spawn(|| pinger.ping(plan.until - WARM_UP)));
            }
        }
        // Late answers are waited for under load.
        heard.pings_s[1] = pings.and_then(|p| p.join().ok()).unwrap_or_default();
        stage.is_over.store(true, Ordering::Relaxed);
        heard.quic = quic.and_then(|q| q.join().ok()).flatten();
    });
    heard.error = stage.error.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells() -> Vec<Cell> {
        Scenario::find("whole-link-programs").unwrap().cells().unwrap()
    }

    fn plan(case: &str) -> (Cell, Plan) {
        let mut cell = cells().into_iter().find(|c| c.variant == "farlink").unwrap();
        cell.params.insert("case".into(), case.into());
        let plan = Plan::new(&cell).unwrap();
        (cell, plan)
    }

    #[test]
    fn every_cell_has_a_plan_and_what_is_unknown_is_named() {
        let cells = cells();
        assert!(cells.iter().all(|cell| Plan::new(cell).is_ok()));
        let shaped = |cell: &&Cell| Plan::new(cell).unwrap().queue != Queue::None;
        assert!(cells.iter().filter(shaped).all(|cell| cell.settings.gateways == 0));
        let (mut cell, _) = plan("ping");
        cell.params.insert("case".into(), "telnet".into());
        assert!(Plan::new(&cell).unwrap_err().to_string().contains("`tunnel`"));
    }

    #[test]
    fn only_what_is_to_be_forwarded_has_a_rule() {
        for (case, has_rule) in [("forwarded", true), ("tunnel", false), ("quic-bbr", false)] {
            let (cell, plan) = plan(case);
            let config = plan.settings(&cell.settings).gateway_config;
            assert_eq!(config.contains("action = \"pass\""), has_rule, "{case}");
        }
    }

    #[test]
    fn shares_are_of_the_window() {
        let (_, plan) = plan("tunnel");
        // Half and a quarter of 8 Mbit/s in 20 s.
        let mut heard =
            Heard { split_bytes: [1_000, 10_001_000], program_bytes: [500, 5_000_500], ..Heard::default() };
        let measured = plan.measure(&heard);
        let of = |name: &str| measured.metrics[name];
        assert_eq!((of("bulk_of_rate"), of("program_of_rate"), of("both_of_rate")), (0.5, 0.25, 0.75));
        assert!(measured.failures.is_empty());
        heard.program_bytes[1] = 500;
        assert_eq!(plan.measure(&heard).failures.len(), 1, "nothing came");
    }

    #[test]
    fn pings_are_compared_with_the_empty_link() {
        let (_, plan) = plan("ping");
        let mut heard = Heard { split_bytes: [0, 1], ..Heard::default() };
        heard.pings_s = [vec![Some(0.5); 60], vec![Some(0.512); 400]];
        // One late ping on the empty link is no better base.
        heard.pings_s[0][7] = Some(0.9);
        heard.pings_s[1][3] = None;
        let measured = plan.measure(&heard);
        assert!((measured.metrics["p99_over_base_ms"] - 12.0).abs() < 1e-6);
        assert!((measured.metrics["beside_lost_share"] - 0.0025).abs() < 1e-9);
        assert!(measured.failures.is_empty());
        heard.pings_s[1].clear();
        assert_eq!(plan.measure(&heard).failures.len(), 1);
    }
}
