//! Jobs of people: pages, transfers and dialogues, as plain data. [`lab`] does them with sockets in
//! the namespaces, the simulator in virtual time; both hand back the same [`Done`].

pub mod field;
pub mod lab;
pub mod mixed;
pub mod outage;
pub mod stalled;
pub mod web;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use outage::Outage;

/// Bytes of a request for a page or an object of it, headers included: what browsers of the
/// thesis's time sent.
pub const REQUEST_BYTES: u64 = 300;

/// How a page's objects are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// One after the other on one connection (HTTP/1.1 without pipelining): the thesis's browser.
    Persistent,
    /// On so many connections at once, each object by the next free one; the further connections
    /// are opened when the document has been read.
    Parallel(usize),
    /// All at once on one connection, as with HTTP/2.
    Multiplexed,
}

/// A question and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// So long after the answer before.
    pub wait: Duration,
    /// Bytes of the question.
    pub up_bytes: u64,
    /// Bytes of the answer.
    pub down_bytes: u64,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// One file from the server.
    Download(u64),
    /// One file to the server.
    Upload(u64),
    /// A document and the objects that it refers to, bytes.
    Page {
        /// The document.
        document_bytes: u64,
        /// Its objects.
        object_bytes: Vec<u64>,
        /// How they are asked for.
        style: Style,
    },
    /// Questions and answers on one connection.
    Dialogue {
        /// One after the other.
        exchanges: Vec<Exchange>,
        /// The client ends the connection so long after the last answer.
        linger: Duration,
    },
}

/// A job of the client at the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// What it is, for the figures: jobs of one class are judged together.
    pub class: &'static str,
    /// Whose it is.
    pub client: Client,
    /// When it begins.
    pub start: Duration,
    /// What is to be done.
    pub task: Task,
}

/// Who does a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Client {
    /// The first client, beyond the link.
    #[default]
    First,
    /// The second one, where the topology has it.
    Second,
}

impl Client {
    /// The name of its node.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "client",
            Self::Second => "client2",
        }
    }
}

/// What became of a job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Done {
    /// From connect() to the last byte.
    pub seconds: f64,
    /// Payload bytes that arrived.
    pub bytes: u64,
    /// How long each answer of a dialogue took, without the wait before it.
    pub answers: Vec<f64>,
    /// Of a dialogue: from connect() to the end of the other one's stream.
    pub ended_seconds: Option<f64>,
    /// Its connection was reset at so many of its two hosts.
    pub resets: u32,
    /// The client's own address, if it is known.
    pub client: Option<SocketAddr>,
    /// What went wrong, in words; everything that arrived is what was sent if nothing did.
    pub error: Option<String>,
    /// A host has given up by its own timers; of a simulated one this is known.
    pub given_up: Option<GivenUp>,
}

/// A host has waited for too long, by its own timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// Its SYNs were not answered.
    Opening,
    /// Nothing was acknowledged any more.
    Open,
}

impl Task {
    /// Payload bytes that are to arrive.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Download(bytes) | Self::Upload(bytes) => *bytes,
            Self::Page { document_bytes, object_bytes, .. } => {
                document_bytes + object_bytes.iter().sum::<u64>()
            }
            Self::Dialogue { exchanges, .. } => exchanges.iter().map(|e| e.down_bytes).sum(),
        }
    }
}

/// A kind of scenario that consists of jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// `web`: one page.
    Web,
    /// `mixed`: many people's jobs for a while.
    Mixed,
    /// `outage`: one connection over a link that is away once.
    Outage,
    /// `field`: many connections over a link that is away often.
    Field,
    /// `stalled`: many connections whose link is away, beside one whose link is there.
    Stalled,
}

/// What a plan's jobs came to.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// What became of each.
    pub done: Vec<Done>,
    /// Of an outage: when the first payload byte arrived after the link was back, in seconds since
    /// the jobs began.
    pub progress_s: Option<f64>,
}

impl Plan {
    /// The kind of this name.
    #[must_use]
    pub fn of(kind: &str) -> Option<Self> {
        match kind {
            "web" => Some(Self::Web),
            "mixed" => Some(Self::Mixed),
            "outage" => Some(Self::Outage),
            "field" => Some(Self::Field),
            "stalled" => Some(Self::Stalled),
            _ => None,
        }
    }

    /// The jobs of a cell.
    pub fn jobs(self, cell: &Cell, seed: u64) -> Result<Vec<Job>> {
        match self {
            Self::Web => web::jobs(cell),
            Self::Mixed => mixed::jobs(cell, seed),
            Self::Outage => outage::jobs(cell, seed),
            Self::Field => field::jobs(cell, seed),
            Self::Stalled => Ok(stalled::jobs(cell)),
        }
    }

    /// When the link of a cell is away with this seed, beside what its settings say; in the order
    /// of time.
    pub fn outages(self, cell: &Cell, seed: u64) -> Result<Vec<Outage>> {
        match self {
            Self::Web | Self::Mixed => Ok(Vec::new()),
            Self::Outage => outage::of_seed(cell, seed).map(|outage| vec![outage]),
            Self::Field => field::outages(cell, seed),
            Self::Stalled => Ok(stalled::outages(cell)),
        }
    }

    /// A gateway that owes something dies in such a cell: what it owed is lost, and both hosts are
    /// reset by its next life.
    #[must_use]
    pub fn may_reset(self, cell: &Cell) -> bool {
        self == Self::Outage && outage::loses_what_is_owed(cell)
    }

    /// What they came to.
    pub fn measure(
        self,
        scenario: &Scenario,
        (cell, seed): (&Cell, u64),
        jobs: &[Job],
        ran: &Ran,
    ) -> Result<Measured> {
        let done = &ran.done;
        if jobs.len() != done.len() {
            bail!("{} of {} jobs were done", done.len(), jobs.len());
        }
        let mut measured = match self {
            Self::Web => web::measure(scenario, cell, jobs, done)?,
            Self::Mixed => mixed::measure(jobs, done),
            Self::Outage => outage::measure(cell, jobs, done, ran.progress_s)?,
            Self::Field => field::measure(cell, seed, jobs, done)?,
            Self::Stalled => stalled::measure(jobs, done),
        };
        measured.bytes = done.iter().map(|d| d.bytes).sum();
        let may_be_reset = self.may_reset(cell);
        for (number, (job, done)) in jobs.iter().zip(done).enumerate() {
            let wanted = job.task.bytes();
            if self == Self::Field && done.given_up.is_some() {
                continue;
            }
            let is_whole = done.error.is_none() && done.bytes == wanted;
            let is_told = may_be_reset && done.resets == 2;
            measured.expect(is_whole || is_told, || {
                let why = done.error.clone().unwrap_or(format!("{} of {wanted} bytes arrived", done.bytes));
                format!("job {number}, {}: {why}", job.class)
            });
        }
        Ok(measured)
    }
}

/// How many jobs of each class there were, with median and 95th percentile of what a person
/// waits for. `seconds` is when the last of all was done.
fn of_classes(classes: &[&'static str], jobs: &[Job], done: &[Done]) -> Measured {
    let mut measured = Measured::default();
    for class in classes {
        let own = jobs.iter().zip(done).filter(|(j, _)| j.class == *class);
        say(&mut measured, class, &own.map(|(_, d)| d.seconds).collect::<Vec<_>>());
    }
    let ends = jobs.iter().zip(done).map(|(j, d)| j.start.as_secs_f64() + d.seconds);
    // Of a dialogue, `seconds` spans the waits too.
    measured.seconds = ends.fold(0.0, f64::max);
    measured
}

/// Count, median and 95th percentile of times, under this name.
fn say(measured: &mut Measured, name: &str, seconds: &[f64]) {
    measured.metric(&format!("{name}_count"), seconds.len() as f64);
    measured.metric(&format!("{name}_median_s"), quantile(seconds, 0.5));
    measured.metric(&format!("{name}_p95_s"), quantile(seconds, 0.95));
}

/// The value below which this share of the values lies; 0 of none.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * (sorted.len().max(1) - 1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}
