//! `field`: stations behind a narrow link that goes away all the time. Connections are opened,
//! send, rest and end at random, from the seed. Outages come at random, too.

use std::time::Duration;

use anyhow::{Result, bail};

use super::outage::Outage;
use super::{Client, Done, Exchange, GivenUp, Job, Style, Task, of_classes};
use crate::draw::Draw;
use crate::report::Measured;
use crate::scenario::Cell;

/// A class of jobs: its name, the mean time between two of them, and how one is made.
type Class = (&'static str, f64, fn(&mut Draw) -> Task);

const CLASSES: [Class; 4] = [
    ("report", 60.0, |d| Task::Upload(d.log_between(5e3, 500e3))),
    ("file", 300.0, |d| Task::Download(d.log_between(20e3, 2e6))),
    ("page", 120.0, |d| Task::Page {
        document_bytes: d.log_between(2e3, 30e3),
        object_bytes: (0..d.between(3.0, 11.0) as usize).map(|_| d.log_between(1e3, 30e3)).collect(),
        style: if d.uniform() < 0.5 { Style::Parallel(6) } else { Style::Multiplexed },
    }),
    // Mostly silent: it sleeps at gateways (`dormant_after`), and outages meet it in any state.
    ("dialogue", 60.0, |d| {
        let exchanges = (0..d.between(2.0, 20.0) as usize).map(|_| Exchange {
            wait: Duration::from_millis(d.log_between(10.0, 180e3)),
            up_bytes: d.log_between(20.0, 2e3),
            down_bytes: d.log_between(20.0, 20e3),
        });
        Task::Dialogue {
            exchanges: exchanges.collect(),
            linger: Duration::from_millis(d.log_between(10.0, 60e3)),
        }
    }),
];

/// The shortest and the longest outage, milliseconds. Every order of magnitude is alike.
const OUTAGE_MS: [f64; 2] = [100.0, 30e3];
/// In short runs dialogues rest for one over this of the time at most.
const REST_PARTS: f64 = 20.0;
/// With more outages an hour the link would hardly be there.
const OUTAGES_MAX: u64 = 400;

fn duration_s(cell: &Cell) -> Result<f64> {
    let duration_s = cell.number("duration_s", 3600);
    if duration_s > 86_400 {
        bail!("duration_s = {duration_s}: a day at most");
    }
    Ok(duration_s as f64)
}

/// Each class, and the outages, draw from a seed of their own.
fn draw(seed: u64, number: u64) -> Draw {
    Draw::new(seed.wrapping_mul(0x1000_0001).wrapping_add(number))
}

/// What begins within `duration_s`.
pub(super) fn jobs(cell: &Cell, seed: u64) -> Result<Vec<Job>> {
    let duration_s = duration_s(cell)?;
    let longest = Duration::from_secs_f64(duration_s / REST_PARTS);
    let mut jobs = Vec::new();
    for (number, (class, mean_s, make)) in (1..).zip(CLASSES) {
        let mut draw = draw(seed, number);
        // One of each at the beginning, so that a short run has all.
        let mut at_s = draw.between(0.0, 5.0);
        while at_s < duration_s {
            let mut task = make(&mut draw);
            hurry(&mut task, longest);
            jobs.push(Job { class, client: Client::First, start: Duration::from_secs_f64(at_s), task });
            at_s += draw.gap(mean_s);
        }
    }
    jobs.sort_by_key(|j| j.start);
    Ok(jobs)
}

/// Dialogues rest no longer than this between two questions.
fn hurry(task: &mut Task, longest: Duration) {
    if let Task::Dialogue { exchanges, linger } = task {
        exchanges.iter_mut().for_each(|e| e.wait = e.wait.min(longest));
        *linger = (*linger).min(longest);
    }
}

/// When the link is away: `outages_per_hour` of them on average until `duration_s`.
pub(super) fn outages(cell: &Cell, seed: u64) -> Result<Vec<Outage>> {
    let (per_hour, duration_s) = (cell.number("outages_per_hour", 0), duration_s(cell)?);
    if per_hour > OUTAGES_MAX {
        bail!("outages_per_hour = {per_hour}: {OUTAGES_MAX} at most");
    }
    let [low, high] = OUTAGE_MS;
    let mean_s = (high - low) / (high / low).ln() / 1e3;
    let between_s = 3600.0 / per_hour.max(1) as f64 - mean_s;
    let mut draw = draw(seed, 0);
    let mut outages = Vec::new();
    let mut at_s = draw.gap(between_s);
    while per_hour > 0 && at_s < duration_s {
        let from = Duration::from_secs_f64(at_s);
        let until = from + Duration::from_millis(draw.log_between(low, high));
        outages.push(Outage { from, until, is_announced: cell.is_announced(), kill: None });
        at_s = until.as_secs_f64() + draw.gap(between_s);
    }
    Ok(outages)
}

/// Times of each class, how many outages there were, and how many jobs ended because a host gave up
/// by its own timers: `unopened` before its connection was open, `given_up` later.
pub(super) fn measure(cell: &Cell, seed: u64, jobs: &[Job], done: &[Done]) -> Result<Measured> {
    let mut measured = of_classes(&CLASSES.map(|(class, ..)| class), jobs, done);
    let outages = outages(cell, seed)?;
    let ended = |by: GivenUp| done.iter().filter(|d| d.given_up == Some(by)).count() as f64;
    measured.metric("unopened", ended(GivenUp::Opening));
    measured.metric("given_up", ended(GivenUp::Open));
    measured.metric("outages", outages.len() as f64);
    measured.metric("away_seconds", outages.iter().map(|o| (o.until - o.from).as_secs_f64()).sum());
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn outages_come_as_often_as_they_are_asked_for() {
        let cells = Scenario::find("many-outages").unwrap().cells().unwrap();
        let day = cells.iter().find(|c| c.number("duration_s", 0) == 36_000).unwrap();
        let of_seed = |seed| outages(day, seed).unwrap();
        assert_eq!(of_seed(1), of_seed(1));
        assert_ne!(of_seed(1), of_seed(2));
        let all: Vec<_> = (0..20).flat_map(of_seed).collect();
        let per_hour = all.len() as f64 / 200.0;
        assert!((per_hour / 200.0 - 1.0).abs() < 0.03, "{per_hour}");
        for seed in 0..20 {
            let mut before = Duration::ZERO;
            for o in of_seed(seed) {
                assert!(before <= o.from && o.from < o.until, "{o:?}");
                before = o.until;
            }
        }
        // One in a hundred and twenty is away for more than 29 s; all lengths occur.
        let lengths: Vec<_> = all.iter().map(|o| (o.until - o.from).as_secs_f64()).collect();
        let of = |range: std::ops::Range<f64>| lengths.iter().filter(|s| range.contains(*s)).count();
        assert!(of(0.1..0.3) > 500 && of(1.0..3.0) > 500 && of(10.0..30.1) > 500);
    }
}
