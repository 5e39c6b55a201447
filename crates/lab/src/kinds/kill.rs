//! `kill`: a gateway is killed in the middle of transfers and started again a moment later. New
//! connections work at once, connections of which it held nothing go on, those of which it held
//! something are reset by the restart, and none hangs.

mod idle;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use portable_atomic::AtomicU64;

use self::idle::Idle;
use super::session::{Allowed, PORT, Session};
use super::{Kind, Run, many};
use crate::build::Lab;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::workload::{Outcome, Transfer, run_all};

/// Bytes that each new connection fetches.
const PROBE_BYTES: u64 = 1000;
/// New connections are opened so often while the gateway is away.
const PROBE_EVERY: Duration = Duration::from_millis(25);
/// Within so long of the kill, and the path's round trip, a new connection works.
const NEW_WITHIN_S: f64 = 0.1;
/// How long a gateway may take to become empty of the idle connections.
const EMPTY_PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct KillKind;

/// What happened round the kill; times in seconds since the transfers began.
struct Killed {
    at_s: f64,
    restarted_s: f64,
    /// Client addresses of the connections of which the gateway held something a moment before.
    held: Vec<SocketAddr>,
    /// New connections; their times are since the kill.
    probes: Vec<Outcome>,
    /// What became of idle connections that went on while the gateway was away.
    idle: Vec<Result<()>>,
}

impl Kind for KillKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let allowed = Allowed { resets: true, ..Allowed::default() };
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, allowed)?;
        let mut transfers = many::transfers(scenario, cell, &session.lab, run.seed)?;
        transfers.iter_mut().for_each(|t| t.patience = many::PATIENCE);
        let node = cell.word("case", "gw2").to_string();
        let to = session.lab.address("server", cell.v6())?;
        let mut idle = Vec::new();
        for number in 0..scenario.option("idle", 10.0)? as u64 {
            let seed = run.seed.wrapping_mul(1000).wrapping_sub(1 + number);
            idle.push(Idle::open(&session.lab.ns("client"), (to, PORT).into(), seed)?);
        }
        wait_until_empty(&session.lab)?;
        // Half of them go on while the gateway is away, half when it is there again.
        let later = idle.split_off(idle.len() / 2);

        let after = Duration::from_secs_f64(scenario.option("kill_after_s", 2.0)?);
        let away = Duration::from_secs_f64(scenario.option("away_s", 1.5)?);
        let (outcomes, killed) =
            session.transfer(&transfers, run, |lab| kill(lab, &node, cell.v6(), after, away, idle));
        let killed = killed?;
        let mut measured = Measured::default();
        for outcome in killed.idle.into_iter().chain(later.into_iter().map(Idle::go_on)) {
            if let Err(error) = outcome {
                measured.failures.push(format!("an idle connection did not go on: {error:#}"));
            }
        }
        judge_probes(&mut measured, &killed.probes);
        let under_way = many::under_way(&outcomes, killed.at_s);
        measured.expect(under_way == outcomes.len(), || {
            format!("only {under_way} of {} transfers were under way at the kill", outcomes.len())
        });
        judge_transfers(&mut measured, &session, &outcomes, &killed.held, killed.restarted_s);
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

fn wait_until_empty(lab: &Lab) -> Result<()> {
    let end = Instant::now() + EMPTY_PATIENCE;
    for gateway in &lab.gateways {
        while gateway.engine_number("custody_bytes")? > 0 {
            anyhow::ensure!(Instant::now() < end, "{} keeps custody of idle connections", gateway.node);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

fn kill(
    lab: &mut Lab,
    node: &str,
    v6: bool,
    after: Duration,
    away: Duration,
    idle: Vec<Idle>,
) -> Result<Killed> {
    let began = Instant::now();
    std::thread::sleep(after);
    let to = lab.address("server", v6)?;
    // As many as are opened until shortly before the restart.
    let count = away.as_millis().saturating_sub(200) / PROBE_EVERY.as_millis();
    let probes = (0..count as u32).map(|n| Transfer {
        start_after: PROBE_EVERY * n,
        patience: many::PATIENCE,
        ..Transfer::download(lab.ns("client"), to, PORT, PROBE_BYTES, u64::from(n))
    });
    let probes: Vec<_> = probes.collect();
    let gateway = lab.gateway(node)?;
    let held = holders(&gateway.flows()?);
    let killed = Instant::now();
    gateway.process.signal(libc::SIGKILL);
    let (probes, rest) = run_all(&probes, &AtomicU64::new(0), || {
        lab.gateway(node)?.wait_end(Duration::from_secs(5))?;
        let idle: Vec<_> = idle.into_iter().map(Idle::go_on).collect();
        std::thread::sleep(away.saturating_sub(killed.elapsed()));
        let restarted_s = began.elapsed().as_secs_f64();
        lab.restart_gateway(node)?;
        Ok::<_, anyhow::Error>((restarted_s, idle))
    });
    let (restarted_s, idle) = rest?;
    Ok(Killed { at_s: (killed - began).as_secs_f64(), restarted_s, held, probes, idle })
}

/// Client addresses of the flows with custody, as `farlink flows --json` tells them.
fn holders(flows: &serde_json::Value) -> Vec<SocketAddr> {
    let list = flows.as_array().or_else(|| flows["flows"].as_array());
    let holds = |f: &&serde_json::Value| {
        let custody = |name: &str| f[name].as_u64().unwrap_or(0);
        custody("custody_ab_bytes") + custody("custody_ba_bytes") > 0
    };
    let address = |f: &serde_json::Value| f["a"].as_str()?.parse().ok();
    list.into_iter().flatten().filter(holds).filter_map(address).collect()
}

/// A new connection works within 100 ms of the kill and a plain connection's time, and from then on
/// each does.
fn judge_probes(measured: &mut Measured, probes: &[Outcome]) {
    for probe in probes {
        measured.expect(probe.intact, || {
            format!("a connection opened {:.3} s after the kill: {:?}", probe.began_s, probe.error)
        });
    }
    let took = |o: &Outcome| o.ended_s - o.began_s;
    // With the gateway long gone these are plain connections.
    let mut plain: Vec<_> = probes[probes.len() / 2..].iter().map(took).collect();
    plain.sort_by(f64::total_cmp);
    let plain_s = plain.get(plain.len() / 2).copied().unwrap_or(0.0);
    let works = probes.iter().filter(|o| o.intact).map(|o| o.ended_s).fold(f64::INFINITY, f64::min);
    let first = probes.iter().filter(|o| o.began_s >= NEW_WITHIN_S);
    let worst = first.take(probes.len() / 2).map(took).fold(0.0, f64::max);
    measured.metric("new_connection_seconds", works);
    measured.metric("new_connection_plain_seconds", plain_s);
    measured.metric("new_connection_ratio", worst / plain_s.max(1e-9));
    measured.expect(works <= NEW_WITHIN_S + plain_s, || {
        format!(
            "the first new connection worked {works:.3} s after the kill; a plain one takes {plain_s:.3} s"
        )
    });
    // Twice: a queue may be full in between; a lost SYN would cost a second.
    measured.expect(worst <= 2.0 * plain_s + NEW_WITHIN_S, || {
        format!(
            "a connection opened 100 ms after the kill or later took {worst:.3} s; a plain one {plain_s:.3} s"
        )
    });
}

/// Each transfer is intact or was reset; nothing else, and on both sides.
fn judge_transfers(
    measured: &mut Measured,
    session: &Session,
    outcomes: &[Outcome],
    held: &[SocketAddr],
    restarted_s: f64,
) {
    let (mut intact, mut reset, mut held_and_reset, mut slowest) = (0, 0, 0, 0.0_f64);
    for (number, outcome) in outcomes.iter().enumerate() {
        let was_held = outcome.local.is_some_and(|local| held.contains(&local));
        match outcome.errno {
            _ if outcome.intact => intact += 1,
            Some(libc::ECONNRESET | libc::EPIPE) => {
                reset += 1;
                held_and_reset += u32::from(was_held);
                slowest = slowest.max(outcome.ended_s - restarted_s);
                measured.expect(outcome.ended_s >= restarted_s, || {
                    format!("transfer {number} was reset before the restart")
                });
                let heard = outcome.local.is_some_and(|local| session.server_hears(local));
                measured.expect(heard, || {
                    format!("transfer {number} was reset at the client, and hangs at the server")
                });
            }
            _ => measured.failures.push(format!(
                "transfer {number} neither went on nor was reset: {}",
                outcome.error.as_deref().unwrap_or("not intact")
            )),
        }
    }
    measured.bytes = outcomes.iter().map(|o| o.bytes).sum();
    measured.seconds = outcomes.iter().map(|o| o.ended_s - o.began_s).fold(0.0, f64::max);
    measured.metric("transfers_held", held.len() as f64);
    measured.metric("transfers_intact", f64::from(intact));
    measured.metric("transfers_reset", f64::from(reset));
    measured.metric("reset_after_restart_seconds", slowest);
    measured.expect(held_and_reset > 0, || {
        "nothing that was held was reset: the kill came at a quiet moment".into()
    });
    // Custody of an active connection begins between the two looks; most of those that were reset
    // were seen with it.
    measured.expect(2 * held_and_reset >= reset, || {
        format!("{reset} transfers were reset, of only {held_and_reset} of which anything was held")
    });
}
