//! Jobs of people in virtual time.

use std::collections::VecDeque;
use std::rc::Rc;

use farlink_sim::linux::host::CLIENT_2;
use farlink_sim::linux::{Direction, NO_ACKNOWLEDGEMENT, NO_ANSWER, Outcome, Play, Start, Step, Transfer};
use farlink_wire::Duration;

use crate::jobs::outage::Outage;
use crate::jobs::{Client, Done, GivenUp, Job, REQUEST_BYTES, Style, Task};

/// The connections that do these jobs, and which of them belong to which job.
pub(super) struct Cast {
    pub(super) play: Rc<Play>,
    of_job: Vec<std::ops::Range<usize>>,
}

impl Cast {
    /// The connections of these jobs, which may stand still for as long as the longest outage.
    pub(super) fn new(jobs: &[Job], v6: bool, outages: &[Outage]) -> Self {
        let (mut transfers, mut lists, mut of_job) = (Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            let from = transfers.len();
            add(job, v6, &mut transfers, &mut lists);
            if job.client == Client::Second {
                transfers.iter_mut().skip(from).for_each(|t| t.client = CLIENT_2);
            }
            of_job.push(from..transfers.len());
        }
        if let Some(patience) = outages.iter().map(Outage::patience).max() {
            transfers.iter_mut().for_each(|t| t.patience = t.patience.max(nanos(patience)));
        }
        Self { play: Play::new(transfers, lists), of_job }
    }

    /// What became of the jobs.
    pub(super) fn done(&self, jobs: &[Job]) -> Vec<Done> {
        let outcomes = self.play.outcomes.borrow();
        jobs.iter().zip(&self.of_job).map(|(job, range)| done(job, &outcomes[range.clone()])).collect()
    }
}

fn step(up_bytes: u64, down_bytes: u64) -> Step {
    Step { wait: Duration::ZERO, up_bytes, down_bytes }
}

pub(super) fn nanos(d: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

fn add(job: &Job, v6: bool, transfers: &mut Vec<Transfer>, lists: &mut Vec<VecDeque<Step>>) {
    let start = nanos(job.start);
    let talk = |steps: Vec<Step>| Transfer {
        steps,
        server_closes: false,
        ..Transfer::single(Direction::Download, 0, 0, start, v6)
    };
    match &job.task {
        Task::Download(bytes) => {
            transfers.push(Transfer::single(Direction::Download, *bytes, request_line(*bytes), start, v6));
        }
        Task::Upload(bytes) => {
            transfers.push(Transfer::single(Direction::Upload, *bytes, request_line(*bytes), start, v6));
        }
        Task::Dialogue { exchanges, linger } => {
            let steps =
                exchanges.iter().map(|e| Step { wait: nanos(e.wait), ..step(e.up_bytes, e.down_bytes) });
            transfers.push(Transfer { linger: nanos(*linger), ..talk(steps.collect()) });
        }
        Task::Page { document_bytes, object_bytes, style } => {
            let document = step(REQUEST_BYTES, *document_bytes);
            let objects = object_bytes.iter().map(|o| step(REQUEST_BYTES, *o));
            match style {
                Style::Persistent => transfers.push(talk(std::iter::once(document).chain(objects).collect())),
                Style::Multiplexed => {
                    let n = object_bytes.len() as u64;
                    let all = step(REQUEST_BYTES * n, object_bytes.iter().sum());
                    transfers.push(talk(vec![document, all]));
                }
                Style::Parallel(connections) => {
                    let first = transfers.len();
                    let draws_from = Some(lists.len());
                    lists.push(objects.collect());
                    transfers.push(Transfer { draws_from, ..talk(vec![document]) });
                    for _ in 1..(*connections).min(object_bytes.len()) {
                        let start = Start::AfterFirstAnswerOf(first);
                        transfers.push(Transfer { start, draws_from, ..talk(Vec::new()) });
                    }
                }
            }
        }
    }
}

/// Bytes of the line that asks for a transfer, of a usual seed.
fn request_line(bytes: u64) -> u64 {
    format!("GET {bytes} 1048576000001\n").len() as u64
}

fn done(job: &Job, outcomes: &[Outcome]) -> Done {
    let began = outcomes.first().map(|o| o.began).unwrap_or_default();
    let end = outcomes.iter().filter_map(|o| o.last_byte).max().unwrap_or(began);
    let mut done = Done { seconds: end.since(began).as_secs_f64(), ..Done::default() };
    done.bytes = match &job.task {
        // Of the request line, the server reads the bytes too.
        Task::Upload(bytes) => {
            outcomes.iter().map(|o| o.received[1].saturating_sub(request_line(*bytes))).sum()
        }
        _ => outcomes.iter().map(|o| o.received[0]).sum(),
    };
    if let Task::Dialogue { .. } = job.task {
        let ended = outcomes.first().and_then(|o| o.client_ended);
        done.ended_seconds = ended.map(|at| at.since(began).as_secs_f64());
        let answers = outcomes.iter().flat_map(|o| &o.answers);
        done.answers = answers.map(|(asked, answered)| answered.since(*asked).as_secs_f64()).collect();
    }
    done.resets = outcomes.iter().flat_map(|o| o.was_reset).map(u32::from).sum();
    if let Some(broken) = outcomes.iter().find(|o| !o.is_intact()) {
        done.error = Some(broken.error.clone().unwrap_or_else(|| "not intact".into()));
        done.given_up = given_up(broken);
    }
    done
}

/// A host's own timers have ended this connection.
fn given_up(o: &Outcome) -> Option<GivenUp> {
    match o.error.as_deref()? {
        NO_ANSWER => Some(GivenUp::Opening),
        NO_ACKNOWLEDGEMENT => Some(GivenUp::Open),
        _ => None,
    }
}
