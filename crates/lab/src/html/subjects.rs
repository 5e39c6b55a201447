//! What is compared with what: the variants of a run by their names for people, and the conditions
//! that they ran under.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::Value;

use super::input::{self, Input, Source};
use crate::expect::figure;
use crate::report::{CellReport, Report, Schedule, Shares, Starved};
use crate::scenario::{Figures, Params};

/// Params that tell what ran; all others tell under which conditions.
const OF_SUBJECT: &[&str] = &["hosts", "host_cc", "iw", "gateways", "baseline", "xcp", "xcp_capacity_bps"];

/// On which side of a comparison somebody stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Role {
    /// Hosts without help.
    Hosts,
    /// Other people's proxies.
    Other,
    /// Farlink.
    Ours,
}

/// Who ran, by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Subject {
    pub(super) role: Role,
    pub(super) name: String,
}

/// All runs of one subject under one set of conditions.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) subject: Subject,
    pub(super) conditions: Params,
    /// Of the runs that came to their end.
    pub(super) seconds: Vec<f64>,
    pub(super) goodput_bps: Vec<f64>,
    pub(super) limit_seconds: Option<f64>,
    pub(super) ratios: Vec<f64>,
    pub(super) paper_seconds: Option<f64>,
    pub(super) papers: Vec<Figures>,
    pub(super) metrics: BTreeMap<String, Vec<f64>>,
    /// Of the first run: bits per second in each round trip.
    pub(super) round_trip_bps: Vec<f64>,
    /// Of the first run: when the link was away.
    pub(super) schedule: Option<Schedule>,
    /// Of the first run: seconds, and bytes that had arrived.
    pub(super) progress: Vec<(f64, u64)>,
    /// Of the first run: how transfers shared the link.
    pub(super) shares: Option<Shares>,
    /// Of the first run: what came and went by time, where the return link is starved.
    pub(super) starved: Option<Starved>,
    /// What a gateway held at most, over what it should (docs/expectations.md).
    pub(super) held_over_aim: Vec<f64>,
    pub(super) runs: usize,
    pub(super) failures: Vec<String>,
}

impl Point {
    /// Mean completion time.
    pub(super) fn mean_seconds(&self) -> Option<f64> {
        mean(&self.seconds)
    }

    /// Mean time over limit.
    pub(super) fn mean_ratio(&self) -> Option<f64> {
        mean(&self.ratios)
    }

    /// Payload that all runs had to carry, bytes.
    pub(super) fn bytes(&self) -> Option<f64> {
        let pairs: Vec<_> = self.seconds.iter().zip(&self.goodput_bps).map(|(s, g)| s * g / 8.0).collect();
        mean(&pairs)
    }

    /// The first figure of a name in the papers' tables.
    pub(super) fn paper(&self, name: &str) -> Option<f64> {
        self.papers.iter().find_map(|of| of.figures.get(name).copied())
    }

    /// A condition as a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.conditions.get(name).and_then(Value::as_f64)
    }
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation of a sample; `None` below two values.
pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// A run, put in order.
pub(super) struct Table {
    /// Subjects: hosts first, ours last.
    pub(super) subjects: Vec<Subject>,
    /// Conditions that are the same in all cells.
    pub(super) fixed: Params,
    /// Names of the conditions that vary.
    pub(super) varied: Vec<String>,
    /// In the order of the report's cells.
    pub(super) points: Vec<Point>,
    /// By cell of the report: the number of its point.
    pub(super) of_cell: Vec<usize>,
    /// Who has a colour of his own, in the order of the colours: all subjects of the page.
    pub(super) coloured: Vec<Subject>,
}

/// All subjects of several runs, hosts first, each once: with these a subject has one colour in the
/// plots of all of them.
pub(super) fn of_all(tables: &[Table]) -> Vec<Subject> {
    let mut all: Vec<Subject> = Vec::new();
    for subject in tables.iter().flat_map(|table| &table.subjects) {
        if !all.contains(subject) {
            all.push(subject.clone());
        }
    }
    all.sort_by_key(|s| s.role);
    all
}

impl Table {
    /// Of the results of a run.
    ///
    /// # Errors
    /// A file that is not the result of a run.
    pub(super) fn of_run(source: &Source) -> Result<Self> {
        let Input::Run(report) = input::read(source)? else {
            bail!("{}: the trace of a flow; the result of a run is expected", source.name);
        };
        Ok(Self::of(&report))
    }

    /// The one value that a condition has in all cells.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(super) fn only(&self, name: &str) -> Result<f64> {
        match numbers(self.points.iter(), name).as_slice() {
            [value] => Ok(*value),
            [] => bail!("its cells have no `{name}`"),
            _ => bail!(
                "its cells have several values of `{name}`: choose one when it is run, with `--only {name}=...`"
            ),
        }
    }

    pub(super) fn of(report: &Report) -> Self {
        let names = Names::of(report);
        let (mut points, mut of_cell): (Vec<Point>, Vec<usize>) = Default::default();
        let mut places: BTreeMap<(Subject, String), usize> = BTreeMap::new();
        for cell in &report.cells {
            let subject = names.subject(cell);
            let conditions = conditions(cell);
            let key = (subject.clone(), serde_json::to_string(&conditions).unwrap_or_default());
            let place = *places.entry(key).or_insert_with(|| {
                points.push(Point::empty(subject, conditions));
                points.len() - 1
            });
            points[place].add(cell);
            of_cell.push(place);
        }
        let all: BTreeSet<&String> = points.iter().flat_map(|p| p.conditions.keys()).collect();
        let values = |name: &String| points.iter().map(|p| p.conditions.get(name)).collect::<Vec<_>>();
        let (mut fixed, mut varied) = (Params::new(), Vec::new());
        for name in all {
            let values = values(name);
            match values.first() {
                Some(Some(first)) if values.iter().all(|v| *v == Some(first)) => {
                    fixed.insert(name.clone(), (*first).clone());
                }
                _ => varied.push(name.clone()),
            }
        }
        fixed.retain(|name, value| !is_absent(name, value));
        varied.sort_by_key(|n| (order(n), n.clone()));
        let mut subjects: Vec<Subject> = Vec::new();
        for point in &points {
            if !subjects.contains(&point.subject) {
                subjects.push(point.subject.clone());
            }
        }
        subjects.sort_by_key(|s| s.role);
        Self { coloured: subjects.clone(), subjects, fixed, varied, points, of_cell }
    }

    /// Points by the varied conditions but those named, in the order of their first cell.
    pub(super) fn groups(&self, but: &[&str]) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for point in &self.points {
            let of: Params = self
                .varied
                .iter()
                .filter(|n| !but.contains(&n.as_str()))
                .filter_map(|n| Some((n.clone(), point.conditions.get(n)?.clone())))
                .collect();
            match groups.iter_mut().find(|g| g.of == of) {
                Some(group) => group.points.push(point),
                None => groups.push(Group { of, points: vec![point] }),
            }
        }
        groups
    }

    /// How many values a condition has.
    pub(super) fn values_of(&self, name: &str) -> usize {
        let texts: BTreeSet<String> =
            self.points.iter().filter_map(|p| p.conditions.get(name)).map(Value::to_string).collect();
        texts.len()
    }
}

/// Points that share some conditions.
pub(super) struct Group<'a> {
    pub(super) of: Params,
    pub(super) points: Vec<&'a Point>,
}

/// Values that a condition has at some points, in order.
pub(super) fn numbers<'a>(points: impl Iterator<Item = &'a Point>, name: &str) -> Vec<f64> {
    let mut values: Vec<f64> = points.filter_map(|point| point.number(name)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

impl Group<'_> {
    /// Values of a condition, in order.
    pub(super) fn numbers(&self, name: &str) -> Vec<f64> {
        numbers(self.points.iter().copied(), name)
    }
    /// The points of a subject.
    pub(super) fn of_subject(&self, subject: &Subject) -> impl Iterator<Item = &Point> {
        self.points.iter().copied().filter(move |p| p.subject == *subject)
    }
}

impl Point {
    fn empty(subject: Subject, conditions: Params) -> Self {
        Self {
            subject,
            conditions,
            seconds: Vec::new(),
            goodput_bps: Vec::new(),
            limit_seconds: None,
            ratios: Vec::new(),
            paper_seconds: None,
            papers: Vec::new(),
            metrics: BTreeMap::new(),
            round_trip_bps: Vec::new(),
            schedule: None,
            progress: Vec::new(),
            shares: None,
            starved: None,
            held_over_aim: Vec::new(),
            runs: 0,
            failures: Vec::new(),
        }
    }

    fn add(&mut self, cell: &CellReport) {
        self.runs += 1;
        self.limit_seconds = self.limit_seconds.or(cell.limit_seconds);
        self.paper_seconds = self.paper_seconds.or(cell.paper_seconds);
        if self.papers.is_empty() {
            self.papers.clone_from(&cell.papers);
        }
        if self.round_trip_bps.is_empty() {
            self.round_trip_bps.clone_from(&cell.round_trip_bps);
            self.schedule.clone_from(&cell.schedule);
        }
        if self.progress.is_empty() {
            self.progress.clone_from(&cell.progress);
        }
        if self.shares.is_none() {
            self.shares.clone_from(&cell.shares);
        }
        if self.starved.is_none() {
            self.starved.clone_from(&cell.starved);
        }
        self.failures.extend(cell.failures.iter().cloned());
        if !cell.intact && cell.failures.is_empty() {
            self.failures.push("not intact".into());
        }
        if let Some(seconds) = cell.seconds {
            self.seconds.push(seconds);
            self.goodput_bps.push(cell.goodput_bps.unwrap_or(0.0));
            self.ratios.extend(cell.ratio_to_limit);
            self.held_over_aim.extend(figure(cell, "held_over_aim"));
            for (name, value) in &cell.metrics {
                self.metrics.entry(name.clone()).or_default().push(*value);
            }
        }
    }
}

fn conditions(cell: &CellReport) -> Params {
    let mut conditions = cell.params.clone();
    conditions.retain(|name, _| !OF_SUBJECT.contains(&name.as_str()));
    if conditions.get("rate_up_bps") == conditions.get("rate_bps") {
        conditions.remove("rate_up_bps");
    }
    conditions
}

/// What need not be said: an impairment that there is not.
fn is_absent(name: &str, value: &Value) -> bool {
    let plain = match name {
        "ber" | "loss" | "wink_p" | "wink_i_ms" => 0.0,
        "loss_burst" => 1.0,
        _ => return false,
    };
    value.as_f64() == Some(plain)
}

/// Conditions in the order in which people think of them.
pub(super) fn order(name: &str) -> u8 {
    match name {
        "case" | "app" | "topology" => 0,
        "rate_bps" => 1,
        "rate_up_bps" => 2,
        "rtt_ms" => 3,
        "ber" | "loss" => 4,
        "loss_burst" | "wink_p" | "wink_i_ms" => 5,
        "flows" => 7,
        "size_bytes" => 8,
        _ => 6,
    }
}

/// Finds names for subjects that tell them apart and say no more than that.
struct Names {
    /// By variant: which params of the subject differ among its cells.
    differing: BTreeMap<String, Vec<&'static str>>,
}

impl Names {
    fn of(report: &Report) -> Self {
        let mut differing: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for cell in &report.cells {
            differing.entry(cell.variant.clone()).or_default();
        }
        for (variant, names) in &mut differing {
            let cells = || report.cells.iter().filter(|c| c.variant == *variant);
            for name in ["iw", "gateways"] {
                let mut values = cells().map(|c| c.params.get(name));
                let first = values.next();
                if values.any(|v| Some(v) != first) {
                    names.push(name);
                }
            }
            // Legacy hosts have a congestion control of their own, which says nothing by itself.
            let mut modern =
                cells().filter(|c| word(c, "hosts") != "legacy").map(|c| c.params.get("host_cc"));
            let first = modern.next();
            if modern.any(|v| Some(v) != first) {
                names.push("host_cc");
            }
        }
        Self { differing }
    }

    fn subject(&self, cell: &CellReport) -> Subject {
        let is_legacy = word(cell, "hosts") == "legacy";
        let differing = self.differing.get(&cell.variant).map_or(&[][..], Vec::as_slice);
        let differs = |name: &str| differing.contains(&name);
        let cc = match word(cell, "host_cc") {
            "cubic" => "CUBIC".into(),
            "bbr" => "BBR".into(),
            "reno" => "Reno".into(),
            other => other.to_string(),
        };
        let (role, mut name) = match cell.variant.as_str() {
            "direct" if is_legacy => (Role::Hosts, "hosts alone, as in 2000".to_string()),
            "direct" if cc.is_empty() => (Role::Hosts, "hosts alone".to_string()),
            "direct" => (Role::Hosts, format!("hosts alone, {cc}")),
            "farlink" => (Role::Ours, "Farlink".to_string()),
            "farlink-one-sided" => (Role::Ours, "Farlink, one gateway".to_string()),
            "farlink-oversized-4420" => (Role::Ours, "Farlink, one gateway, 4,420 bytes".to_string()),
            "farlink-oversized" => (Role::Ours, "Farlink, one gateway, large segments".to_string()),
            "farlink-ahead" => (Role::Ours, "Farlink, one gateway, sent ahead".to_string()),
            "farlink-auto" => (Role::Ours, "Farlink, rate unknown".to_string()),
            "haproxy" => (Role::Other, "HAProxy".to_string()),
            "pepsal" => (Role::Other, "PEPsal".to_string()),
            "farlink-custody-paper" => (Role::Other, "custody as in the paper".to_string()),
            other if other.starts_with("farlink") => {
                (Role::Ours, format!("Farlink{}", other.trim_start_matches("farlink").replace('-', " ")))
            }
            other => (Role::Other, other.to_string()),
        };
        if cell.variant != "direct" && is_legacy {
            name += ", hosts as in 2000";
        } else if cell.variant != "direct" && differs("host_cc") {
            name += &format!(", hosts {cc}");
        }
        if differs("iw") {
            let iw = cell.params.get("iw").and_then(Value::as_u64).unwrap_or(0);
            name += &if iw == 0 { String::new() } else { format!(", IW {iw}") };
        }
        if differs("gateways") {
            let n = cell.params.get("gateways").and_then(Value::as_u64).unwrap_or(0);
            name += &format!(", {n} gateway{}", if n == 1 { "" } else { "s" });
        }
        Subject { role, name }
    }
}

fn word<'a>(cell: &'a CellReport, name: &str) -> &'a str {
    cell.params.get(name).and_then(Value::as_str).unwrap_or("")
}
