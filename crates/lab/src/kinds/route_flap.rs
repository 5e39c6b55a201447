//! `route-flap`: routes are moved away from a gateway and back while transfers run. All of them
//! stay intact, whichever direction goes round.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::session::{Allowed, Session, expect_intact};
use super::{Kind, Run, many};
use crate::build::Lab;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::workload::run_all;

/// Routes are not moved any more when nothing arrives for so long: the transfers end by themselves
/// then.
const STILL: Duration = Duration::from_secs(70);

/// See the module.
pub(super) struct RouteFlapKind;

/// Routes of one router that can go by the gateway or round it.
struct Detour {
    node: String,
    v6: bool,
    by_gateway: Vec<String>,
    round: Vec<String>,
}

impl Kind for RouteFlapKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let transfers = many::transfers(scenario, cell, &session.lab, run.seed)?;
        let detours = detours(&session.lab, cell.word("case", "gw2-both"))?;
        let period = Duration::from_secs_f64(scenario.option("period_s", 2.0)?);
        // Seeds differ in when the first move comes.
        let first =
            period.mul_f64((run.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24));
        let total: u64 = transfers.iter().map(|t| t.bytes).sum();
        let progress = run.progress.bytes(total);
        let lab = &mut session.lab;
        let (outcomes, moves) = run_all(&transfers, &progress.count, || {
            let mut moves = 0_u32;
            let mut next = Instant::now() + first;
            let mut seen = (0, Instant::now());
            while seen.0 < total && seen.1.elapsed() < STILL {
                std::thread::sleep(Duration::from_millis(10));
                let count = progress.count.load(Ordering::Relaxed);
                if count != seen.0 {
                    seen = (count, Instant::now());
                }
                if Instant::now() >= next {
                    moves += 1;
                    set(lab, &detours, moves % 2 == 1)?;
                    next += period;
                }
            }
            set(lab, &detours, false)?;
            Ok::<_, anyhow::Error>(moves)
        });
        let moves = moves?;
        let mut measured = Measured::default();
        expect_intact(&mut measured, &outcomes);
        let wanted = scenario.option("moves_min", 4.0)?;
        measured.expect(f64::from(moves) >= wanted, || {
            format!("routes were moved {moves} times, not {wanted}: the transfers are too short")
        });
        measured.metric("route_moves", f64::from(moves));
        let mut bypasses = 0;
        for gateway in &session.lab.gateways {
            bypasses += gateway.engine_number("counters.bypass_events")?;
        }
        measured.metric("bypass_events", bypasses as f64);
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

fn set(lab: &Lab, detours: &[Detour], is_round: bool) -> Result<()> {
    detours.iter().try_for_each(|d| {
        let lines = if is_round { &d.round } else { &d.by_gateway };
        lab.ns(&d.node).ip_batch(d.v6, lines)
    })
}

/// The routes that a case moves. `gw1-up` is what goes up past `gw1`, towards the server.
fn detours(lab: &Lab, case: &str) -> Result<Vec<Detour>> {
    let Some((gateway, which)) = case.split_once('-') else { bail!("unknown case `{case}`") };
    // The router on the client's side of the gateway sends up, the one on the server's side down.
    let (beside, up, down) = match gateway {
        "gw1" => ("by1", "edge1", "rt1"),
        "gw2" => ("by2", "rt2", "edge2"),
        _ => bail!("unknown gateway `{gateway}` in the case `{case}`"),
    };
    let routers: &[&str] = match which {
        "both" => &[up, down],
        "up" => &[up],
        "down" => &[down],
        _ => bail!("unknown direction `{which}` in the case `{case}`; there are both up down"),
    };
    let mut detours = Vec::new();
    for router in routers {
        for v6 in [false, true] {
            detours.push(detour(lab, router, gateway, beside, v6)?);
        }
    }
    Ok(detours)
}

fn detour(lab: &Lab, router: &str, gateway: &str, beside: &str, v6: bool) -> Result<Detour> {
    let topology = &lab.topology;
    let node = topology.index(router)?;
    let to_gateway = topology.interface(node, topology.index(gateway)?)?.name;
    let round = topology.interface(node, topology.index(beside)?)?.name;
    let beside = topology.interface(topology.index(beside)?, node)?;
    let via = if v6 { beside.ipv6.map(IpAddr::from) } else { beside.ipv4.map(IpAddr::from) };
    let via = via.context("the router beside the gateway has no address")?;
    let routes = topology.routes(node).into_iter();
    let moved: Vec<_> = routes.filter(|r| r.interface == to_gateway && r.to.0.is_ipv6() == v6).collect();
    let lines = |via: &dyn Fn(&crate::topology::Route) -> String| -> Vec<String> {
        moved.iter().map(|r| format!("route replace {}/{} {}", r.to.0, r.to.1, via(r))).collect()
    };
    Ok(Detour {
        node: router.into(),
        v6,
        by_gateway: lines(&|r| format!("via {} dev {}", r.via, r.interface)),
        round: lines(&|_| format!("via {via} dev {round}")),
    })
}
