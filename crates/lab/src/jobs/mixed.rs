//! `mixed`: what a small office does over its link: long and short downloads, pages, uploads, and
//! typing at a distant terminal, arriving at random from the seed.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Client, Done, Exchange, Job, Style, Task, of_classes, quantile, say};
use crate::draw::Draw;
use crate::report::Measured;
use crate::scenario::Cell;

/// A key and its echo, as ssh sends them.
const KEY_BYTES: u64 = 36;

/// A class of jobs: its name, the mean time between two of them, and how one is made.
type Class = (&'static str, f64, fn(&mut Draw) -> Task);

const CLASSES: [Class; 5] = [
    // 60 % of 8 Mbit/s if all of it arrives.
    ("long", 60.0, |d| Task::Download(d.log_between(10e6, 80e6))),
    ("short", 10.0, |d| Task::Download(d.log_between(10e3, 300e3))),
    ("page", 30.0, |d| Task::Page {
        document_bytes: d.log_between(2e3, 60e3),
        object_bytes: (0..d.between(5.0, 40.0) as usize).map(|_| d.log_between(1e3, 150e3)).collect(),
        style: if d.uniform() < 0.5 { Style::Parallel(6) } else { Style::Multiplexed },
    }),
    ("upload", 60.0, |d| Task::Upload(d.log_between(100e3, 5e6))),
    ("typing", 300.0, |d| {
        let key = |wait| Exchange { wait, up_bytes: KEY_BYTES, down_bytes: KEY_BYTES };
        let waits = (0..60).map(|_| Duration::from_secs_f64(d.between(0.1, 1.5)));
        Task::Dialogue { exchanges: waits.map(key).collect(), linger: Duration::ZERO }
    }),
];

/// What begins within `duration_s`. Each class draws from a seed of its own.
pub(super) fn jobs(cell: &Cell, seed: u64) -> Result<Vec<Job>> {
    let duration_s = cell.number("duration_s", 3600) as f64;
    if duration_s > 86_400.0 {
        bail!("duration_s = {duration_s}: a day at most");
    }
    let mut jobs = Vec::new();
    for (number, (class, mean_s, make)) in (1..).zip(CLASSES) {
        let mut draw = Draw::new(seed.wrapping_mul(0x1000_0001).wrapping_add(number));
        // One of each at the beginning, so that a short run has all.
        let mut at_s = draw.between(0.0, 5.0);
        while at_s < duration_s {
            jobs.push(Job {
                class,
                client: Client::First,
                start: Duration::from_secs_f64(at_s),
                task: make(&mut draw),
            });
            at_s += draw.gap(mean_s);
        }
    }
    jobs.sort_by_key(|j| j.start);
    Ok(jobs)
}

/// Times of each class: median and 95th percentile of what a person waits for; of long transfers
/// the goodput.
pub(super) fn measure(jobs: &[Job], done: &[Done]) -> Measured {
    let mut measured = of_classes(&["short", "page", "upload"], jobs, done);
    let of = |class: &'static str| jobs.iter().zip(done).filter(move |(j, _)| j.class == class);
    let keys: Vec<f64> = of("typing").flat_map(|(_, d)| d.answers.iter().copied()).collect();
    say(&mut measured, "key", &keys);
    let rates: Vec<f64> = of("long").map(|(_, d)| 8.0 * d.bytes as f64 / d.seconds.max(1e-9)).collect();
    measured.metric("long_count", rates.len() as f64);
    measured.metric("long_goodput_median_bps", quantile(&rates, 0.5));
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_seed_names_its_day() {
        let cells = Scenario::find("mixed-day").unwrap().cells().unwrap();
        let hour = cells.iter().find(|c| c.number("duration_s", 0) == 3600).unwrap();
        let day = jobs(hour, 1).unwrap();
        assert_eq!(day, jobs(hour, 1).unwrap());
        assert_ne!(day, jobs(hour, 2).unwrap());
        for (class, ..) in CLASSES {
            assert!(day.iter().any(|j| j.class == class), "{class}");
        }
        // The link of 8 Mbit/s carries it.
        let bytes: u64 = day.iter().filter(|j| j.class != "upload").map(|j| j.task.bytes()).sum();
        assert!((1_000_000_000..3_000_000_000).contains(&bytes), "{bytes}");
    }
}
