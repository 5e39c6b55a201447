//! `behaviour`: what applications see must not depend on what stands between their hosts. The cases
//! are those of `crate::behaviour`; here are the paths they run on and the cells they become.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use farlink_gateway::{Because, Event};
use serde_json::{Value, json};

use super::session::{Allowed, Session};
use super::{Kind, Run};
use crate::behaviour::{self, CaseResult, End, Ends, InnerDevice, Report, Verdict, judge_case};
use crate::build::Lab;
use crate::capture::{Extent, FlowKey, Split, Splittable};
use crate::gateway::Told;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::{Mode, Settings};

/// Gateways say what becomes of each connection.
const LOG: &str = "info,connections=debug";
/// So many connections that were not split are named.
const NAMED_MAX: usize = 5;
/// A SYN that comes within microseconds of the end of an old connection on its ports may find that
/// bytes of that are still owed. Such a connection is left to the hosts.
const SPLIT_SHARE: f64 = 0.99;
/// What a gateway says of a connection that it splits.
const SPLIT: &str = Event::Split.name();
/// What it says of one that it forwards because the processor is short. The laboratory shares that
/// with its captures.
const BUSY: &str = Event::Forwarded(Because::Processor).name();
/// Of connections that carry much, gateways acknowledge some bytes before the destination does. A
/// destination close by may be faster now and then.
const EARLY_SHARE: f64 = 0.9;
/// The case of the captures, which is judged of the whole run of a path.
const HEADERS: &str = "headers";

/// A path with everything that ran on it.
#[derive(Default)]
struct Path {
    results: Vec<CaseResult>,
    /// What the captures show.
    headers: Measured,
}

/// See the module.
#[derive(Default)]
pub(super) struct BehaviourKind {
    /// Names of the cases to run; empty: all.
    wanted: Vec<String>,
    /// By seed and variant.
    paths: BTreeMap<(u64, String), Path>,
    rtt: Duration,
}

impl Kind for BehaviourKind {
    fn cells(&self, scenario: &Scenario) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for path in scenario.cells()? {
            let names = case_names().into_iter().chain([HEADERS.to_string()]);
            cells.extend(names.map(|name| {
                let mut cell = path.clone();
                cell.params.insert("case".into(), name.into());
                cell
            }));
        }
        Ok(cells)
    }

    fn prepare(&mut self, cells: &[Cell]) {
        let names = cells.iter().map(|c| c.word("case", "").to_string()).filter(|n| n != HEADERS);
        self.wanted = names.collect();
        self.wanted.sort();
        self.wanted.dedup();
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        self.rtt = Duration::from_secs_f64(cell.settings.rtt_ms / 1e3);
        let direct = scenario.cells()?.into_iter().find(|c| c.variant == "direct");
        let direct = direct.context("the scenario has no variant `direct` to compare with")?;
        for path in [&direct, cell] {
            let key = (run.seed, path.variant.clone());
            if !self.paths.contains_key(&key) {
                let path = self.run_path(scenario, path, run)?;
                self.paths.insert(key, path);
            }
        }
        let path = |variant: &str| &self.paths[&(run.seed, variant.to_string())];
        let case = cell.word("case", "");
        if case == HEADERS {
            return Ok(path(&cell.variant).headers.clone());
        }
        let of = |variant: &str| path(variant).results.iter().find(|r| r.name == case);
        let (Some(base), Some(result)) = (of("direct"), of(&cell.variant)) else { bail!("it was not run") };
        Ok(verdict(cell, base, result, self.rtt))
    }

    fn details(&self) -> Value {
        let reports = self.paths.keys().map(|(seed, _)| *seed).collect::<std::collections::BTreeSet<_>>();
        let report = |seed: u64| {
            let of = |wanted_direct: bool| {
                let all = self
                    .paths
                    .iter()
                    .filter(move |((s, v), _)| *s == seed && (v == "direct") == wanted_direct);
                all.map(|((_, v), p)| (v.clone(), p.results.clone()))
            };
            let direct = of(true).next().map(|(_, r)| r).unwrap_or_default();
            json!({"seed": seed, "report": Report::new(self.rtt, direct, of(false).collect())})
        };
        Value::Array(reports.into_iter().map(report).collect())
    }
}

fn verdict(cell: &Cell, base: &CaseResult, result: &CaseResult, rtt: Duration) -> Measured {
    if let (Some(reason), Some(_)) = (&result.skipped, &base.skipped) {
        return Measured::skipped(reason.clone());
    }
    let mut measured = Measured { seconds: result.seconds, ..Measured::default() };
    if cell.variant == "direct" {
        measured.failures.clone_from(&result.outcome.faults);
    } else if base.skipped.is_some() != result.skipped.is_some() {
        measured.failures.push("run on one path, skipped on the other".into());
    } else if let Verdict::Differs { lines } = judge_case(base, result, rtt) {
        measured.failures = lines;
    }
    measured
}

/// Names of all cases with their families, as the runner of the cases makes them.
fn case_names() -> Vec<String> {
    let name = |case: &behaviour::Case| -> Vec<String> {
        match case.families {
            [_] => vec![case.name.to_string()],
            families => families.iter().map(|f| format!("{}-{}", case.name, f.suffix())).collect(),
        }
    };
    behaviour::cases().iter().flat_map(name).collect()
}

impl BehaviourKind {
    /// Runs the wanted cases on one path: those that can on the slow one, the others on one without
    /// limits.
    fn run_path(&self, scenario: &Scenario, cell: &Cell, run: &Run<'_>) -> Result<Path> {
        let mut path = Path::default();
        let slow = behaviour::Options { only: self.wanted.clone(), ..behaviour::Options::default() };
        if !self.wanted.is_empty() {
            path = one_pass(scenario, cell, &cell.settings, run, &slow, Extent::Whole)?;
        }
        path.results.retain(|r| self.wanted.contains(&r.name));
        // What needs more than the slow path's rate.
        let fast_names: Vec<_> = case_names_above(cell.settings.rate_bps);
        let fast_names: Vec<_> = fast_names.into_iter().filter(|n| self.wanted.contains(n)).collect();
        if !fast_names.is_empty() {
            let fast = Settings {
                rate_bps: 0,
                rate_up_bps: None,
                rtt_ms: 0.0,
                // A router that says how fast has a rate.
                xcp: false,
                ..cell.settings.clone()
            };
            let options = behaviour::Options { only: fast_names.clone(), ..slow };
            // At this rate captures can keep the headers only.
            let pass = one_pass(scenario, cell, &fast, run, &options, Extent::Headers)?;
            path.results.retain(|r| !fast_names.contains(&r.name));
            path.results.extend(pass.results.into_iter().filter(|r| fast_names.contains(&r.name)));
            path.headers.failures.extend(pass.headers.failures);
            for (name, value) in pass.headers.metrics {
                path.headers.metric(&format!("fast_{name}"), value);
            }
        }
        Ok(path)
    }
}

fn case_names_above(rate_bps: u64) -> Vec<String> {
    let names = behaviour::cases().into_iter().filter(|c| c.min_rate_bps > rate_bps).flat_map(|case| {
        let families = case.families;
        families.iter().map(move |f| match families {
            [_] => case.name.to_string(),
            _ => format!("{}-{}", case.name, f.suffix()),
        })
    });
    names.collect()
}

fn one_pass(
    scenario: &Scenario,
    cell: &Cell,
    settings: &Settings,
    run: &Run<'_>,
    options: &behaviour::Options,
    extent: Extent,
) -> Result<Path> {
    let show = |r: &CaseResult| run.progress.begin(&format!("{} {}", cell.variant, r.name));
    let mut results = Vec::new();
    let headers = Measured::until_judged(|| {
        let allowed = Allowed { extent, ..Allowed::default() };
        let settings = Settings { gateway_log: LOG.into(), ..settings.clone() };
        let session = Session::start(&scenario.topology, &settings, cell, run, allowed)?;
        results = behaviour::run_all(&ends(&session.lab)?, options, &show)?;
        let splits = splits(&session)?;
        let mut measured = Measured::default();
        let findings = session.finish(cell, &mut measured)?;
        if measured.unjudged.is_none() {
            expect_split(&splits, &findings.split, settings.mode, &mut measured);
        }
        Ok(measured)
    })?;
    Ok(Path { results, headers })
}

/// What a gateway has done with the connections that it saw begin.
struct Splits {
    node: String,
    split: u64,
    /// Forwarded because the processor was short.
    busy: u64,
    /// What it says of each connection.
    told: Vec<Told>,
}

impl Splits {
    /// Those of `seen` that it has not split, and what it says of them.
    fn missing(&self, seen: &Splittable) -> Vec<String> {
        // A gateway of an older version says nothing of connections.
        if self.told.is_empty() && self.split > 0 {
            return Vec::new();
        }
        let mut told: HashMap<FlowKey, Vec<&str>> = HashMap::new();
        for line in &self.told {
            told.entry(line.flow).or_default().push(&line.what);
        }
        let mut lives: BTreeMap<FlowKey, usize> = BTreeMap::new();
        seen.flows.iter().for_each(|flow| *lives.entry(*flow).or_default() += 1);
        let missing = lives.into_iter().filter_map(|(flow, lives)| {
            let words = told.get(&flow).map(Vec::as_slice).unwrap_or_default();
            let split = words.iter().filter(|word| [SPLIT, BUSY].contains(word)).count();
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            words.iter().for_each(|word| *counts.entry(word).or_default() += 1);
            let said: Vec<_> = counts.iter().map(|(word, times)| format!("{times} {word}")).collect();
            let named = || format!("{} ({split} of {lives}; {})", flow.arrow(true), said.join(", "));
            ((split as f64) < SPLIT_SHARE * lives as f64).then(named)
        });
        missing.collect()
    }
}

fn splits(session: &Session) -> Result<Vec<Splits>> {
    let each = session.lab.gateways.iter().map(|g| {
        let number = |counter: &str| g.engine_number(&format!("counters.{counter}"));
        let is_other_version = session.lab.settings.programs.contains_key(&g.node);
        let busy = match number("flows_forwarded_busy") {
            Err(_) if is_other_version => 0,
            busy => busy?,
        };
        let split = number("flows_split")?;
        Ok(Splits { node: g.node.clone(), split, busy, told: g.told()? })
    });
    each.collect()
}

/// Gateways that only forward would change nothing that applications see. So what should have been
/// split has to have been: each connection of which the captures show that it can be. And of those
/// that carried much, a byte was acknowledged by a gateway before its destination had done so. In
/// custody mode none was.
fn expect_split(gateways: &[Splits], seen: &Split, mode: Mode, measured: &mut Measured) {
    for gateway in gateways {
        let Splits { node, split, busy, .. } = gateway;
        let splittable = seen.splittable.get(node).cloned().unwrap_or_default();
        let can = splittable.count;
        measured.metric(&format!("{node}_splittable"), can as f64);
        measured.metric(&format!("{node}_split"), *split as f64);
        measured.metric(&format!("{node}_busy"), *busy as f64);
        let missing = gateway.missing(&splittable);
        measured.expect(missing.is_empty(), || {
            let named = missing.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
            format!(
                "of {can} connections that can be split and carried payload {node} did not split all between {} \
                 pairs of ports, and the processor was not short: {named}",
                missing.len()
            )
        });
    }
    if gateways.is_empty() {
        return;
    }
    let only_forwarded: Vec<_> =
        seen.bulk.iter().filter(|(_, early)| early.is_empty()).map(|(f, _)| f).collect();
    measured.metric("bulk_connections", seen.bulk.len() as f64);
    let early = seen.bulk.len() - only_forwarded.len();
    measured.metric("bulk_connections_early", early as f64);
    if mode == Mode::Custody {
        measured.expect(early == 0, || format!("{early} connections were acknowledged before their time"));
        return;
    }
    measured.expect(early as f64 >= EARLY_SHARE * seen.bulk.len() as f64, || {
        format!(
            "{} of {} connections with much payload were only forwarded, such as {}",
            only_forwarded.len(),
            seen.bulk.len(),
            only_forwarded[0]
        )
    });
}

/// The path as the cases want it described.
fn ends(lab: &Lab) -> Result<Ends> {
    let end = |node: &str| -> Result<End> {
        let interface = lab.topology.interfaces(lab.topology.index(node)?).into_iter().next();
        let (v4, v6) = interface.and_then(|i| i.ipv4.zip(i.ipv6)).context("a host has no address")?;
        Ok(End { ns: lab.ns(node).name().into(), v4, v6 })
    };
    let narrow = |node: &str| InnerDevice { ns: lab.ns(node).name().into(), dev: "to-sat".into() };
    Ok(Ends {
        client: end("client")?,
        server: end("server")?,
        rtt: Duration::from_secs_f64(lab.settings.rtt_ms / 1e3),
        rate_bps: (lab.settings.rate_bps > 0).then_some(lab.settings.rate_bps),
        narrow: vec![narrow("gw1"), narrow("gw2")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_split_is_named() {
        let flow = |port: u16| FlowKey::between(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 80).into());
        let told = |port, what: &str| Told { flow: flow(port), what: what.into() };
        let mut splits = Splits { node: "gw".into(), split: 3, busy: 1, told: Vec::new() };
        let seen = |ports: &[u16]| Splittable {
            count: ports.len() as u64,
            flows: ports.iter().map(|port| flow(*port)).collect(),
        };
        assert!(splits.missing(&seen(&[1])).is_empty(), "an older gateway says nothing");
        splits.told = vec![told(1, "split"), told(1, "closed"), told(2, BUSY), told(3, "split")];
        assert!(splits.missing(&seen(&[1, 2, 3])).is_empty());
        assert_eq!(splits.missing(&seen(&[1, 1])), ["10.0.0.1:1 > 10.0.0.2:80 (1 of 2; 1 closed, 1 split)"]);
        assert_eq!(splits.missing(&seen(&[4])), ["10.0.0.1:4 > 10.0.0.2:80 (0 of 1; )"]);
        // Of a thousand lives of one pair of ports a few may overlap.
        splits.told = (0..995).map(|_| told(1, "split")).collect();
        assert!(splits.missing(&seen(&[1; 1000])).is_empty());
    }
}
