//! `stalled`: many downloads of one client whose link is away, and downloads of another client over
//! another link of the same gateway. Who waits is to cost the others nothing.

use std::time::Duration;

use super::outage::Outage;
use super::{Client, Done, Exchange, Job, REQUEST_BYTES, Task, of_classes, say};
use crate::report::Measured;
use crate::scenario::Cell;

/// When the first client's downloads begin.
const BEGIN: Duration = Duration::from_millis(100);
/// When its link goes away: all connections stand by then, and all servers send.
const AWAY_FROM: Duration = Duration::from_secs(1);
/// The second client's downloads: the first one begins so long after that, and each of the others
/// so long after the one before.
const NEAR_BEGINS: Duration = Duration::from_secs(5);
const NEAR_APART: Duration = Duration::from_secs(10);
/// Bytes of each.
const NEAR_BYTES: u64 = 10_000_000;
/// One more connection of the second client stands before memory is full. It asks for as much each
/// time, so long after the answer before.
const OPENS: Duration = Duration::from_millis(50);
const ASKS: u32 = 4;
const RESTS: Duration = Duration::from_secs(8);
/// How many downloads wait, and bytes of each, unless the scenario says so.
const FLOWS: u64 = 500;
const FAR_BYTES: u64 = 50_000;

fn outage(cell: &Cell) -> Outage {
    let until = AWAY_FROM + Duration::from_secs(cell.number("outage_s", 30));
    Outage { from: AWAY_FROM, until, is_announced: cell.is_announced(), kill: None }
}

/// When the first client's link is away.
pub(super) fn outages(cell: &Cell) -> Vec<Outage> {
    vec![outage(cell)]
}

/// The downloads that wait, and those that do not, all within the outage.
pub(super) fn jobs(cell: &Cell) -> Vec<Job> {
    let far = Task::Download(cell.number("size_bytes", FAR_BYTES));
    let far = Job { class: "far", client: Client::First, start: BEGIN, task: far };
    let mut jobs = vec![far; usize::try_from(cell.number("flows", FLOWS)).unwrap_or(usize::MAX)];
    let ask = Exchange { wait: RESTS, up_bytes: REQUEST_BYTES, down_bytes: NEAR_BYTES };
    let opens = Exchange { wait: Duration::ZERO, down_bytes: REQUEST_BYTES, ..ask };
    let exchanges = std::iter::once(opens).chain((0..ASKS).map(|_| ask)).collect();
    let task = Task::Dialogue { exchanges, linger: Duration::ZERO };
    jobs.push(Job { class: "open", client: Client::Second, start: OPENS, task });
    let mut start = AWAY_FROM + NEAR_BEGINS;
    while start + NEAR_APART <= outage(cell).until {
        let task = Task::Download(NEAR_BYTES);
        jobs.push(Job { class: "near", client: Client::Second, start, task });
        start += NEAR_APART;
    }
    jobs
}

/// Times of both. Of the connection that stood before, each answer but the first is one.
pub(super) fn measure(jobs: &[Job], done: &[Done]) -> Measured {
    let mut measured = of_classes(&["far", "near"], jobs, done);
    let open = jobs.iter().zip(done).filter(|(j, _)| j.class == "open");
    let answers: Vec<f64> = open.flat_map(|(_, d)| d.answers.iter().skip(1).copied()).collect();
    say(&mut measured, "open", &answers);
    measured
}
