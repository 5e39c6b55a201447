//! `outage`: one connection, or many (`flows`), and a link that is away once. What is under way
//! then is to live, and to go on as soon as the link is back.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use farlink_sim::rng::Rng;

use super::{Client, Done, Exchange, Job, Task, say};
use crate::report::Measured;
use crate::scenario::Cell;
use crate::settings::Mode;

/// When the link goes away: connections stand by then, and transfers are under way.
const AWAY_FROM: Duration = Duration::from_secs(2);
/// When the connection is opened that is to stand by then.
const BEGIN: Duration = Duration::from_millis(100);
/// A supervisor starts a gateway again so long after it was killed.
const RESTARTED_AFTER: Duration = Duration::from_millis(700);
/// Transfers in which a gateway dies begin later by less than this, milliseconds.
const JITTER_MAX_MS: u64 = 300;
/// From the moment at which the link goes away or comes back to what a host does then.
const LATER: Duration = Duration::from_millis(500);
/// How long hosts may take after the link is back. They ask seldom then.
const PATIENCE: Duration = Duration::from_secs(300);
/// A longer outage takes a day of virtual time.
const OUTAGE_MAX_S: u64 = 86_400;
/// Many connections are opened one after the other in this time.
const OPEN_WITHIN: Duration = Duration::from_millis(1_400);
/// So many are simulated at most.
const FLOWS_MAX: u64 = 10_000;
/// What is asked, and answered.
const QUESTION_BYTES: u64 = 100;
const ANSWER_BYTES: u64 = 1_000;

/// A time in which the link carries nothing, counted from the beginning of the jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it goes away.
    pub from: Duration,
    /// When it is back.
    pub until: Duration,
    /// Gateways are told of both.
    pub is_announced: bool,
    /// A gateway is killed.
    pub kill: Option<Kill>,
}

/// The gateways of the line: next to the client, and next to the server, where what that sends is
/// held.
const GATEWAYS: [&str; 2] = ["gw1", "gw2"];

/// A gateway is killed in mid-transfer, and started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kill {
    /// The gateway, by name.
    pub gateway: &'static str,
    /// When it is killed.
    pub at: Duration,
    /// When the next one starts.
    pub restart_at: Duration,
}

impl Kill {
    /// While the link is there, or while it is away; each seed at its own moment.
    fn of(cell: &Cell, seed: u64, until: Duration) -> Result<Option<Self>> {
        let (from, to) = match cell.word("killed", "no") {
            "no" => return Ok(None),
            "link-up" => (BEGIN + LATER, AWAY_FROM),
            "link-away" => (AWAY_FROM + LATER / 10, until),
            other => bail!("killed = `{other}`: known are no, link-up, link-away"),
        };
        let Some(last) = to.checked_sub(RESTARTED_AFTER + LATER / 5).filter(|last| *last > from) else {
            bail!("the link is away for too short a time for a gateway to be killed and started again")
        };
        let [from, last] = [from, last].map(|at| u64::try_from(at.as_micros()).unwrap_or(u64::MAX));
        let at = Duration::from_micros(Rng::new(seed, "killed gateway").range(from, last));
        Ok(Some(Self { gateway: killed(cell)?, at, restart_at: at + RESTARTED_AFTER }))
    }
}

/// The gateway that is killed in a cell.
fn killed(cell: &Cell) -> Result<&'static str> {
    let name = cell.word("case", "gw2");
    let found = GATEWAYS.into_iter().find(|gateway| *gateway == name);
    found.with_context(|| format!("case = `{name}`: known are {}", GATEWAYS.join(", ")))
}

/// The gateway that dies has promised something.
pub(super) fn loses_what_is_owed(cell: &Cell) -> bool {
    let is_split = |gateway| cell.settings.mode_of(gateway) == Mode::Split;
    cell.word("killed", "no") != "no" && killed(cell).is_ok_and(is_split)
}

impl Outage {
    /// How long a job may stand still for it.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.until.saturating_sub(self.from) + PATIENCE
    }
}

/// What a connection is doing when the link goes away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    /// It is opened while the link is away.
    Opening,
    /// The server sends.
    Transfer,
    /// Nothing, until the link is back.
    Idle,
    /// The client asks soon after the link has gone.
    Asking,
    /// The client asks shortly before the link is back.
    AskingLate,
    /// The client asks at some moment while the link is away, each connection at its own, and gets
    /// as much back: a message on a websocket.
    Echo,
    /// The client ends it while the link is away.
    Closing,
}

impl When {
    const ALL: [(&str, Self); 7] = [
        ("opening", Self::Opening),
        ("transfer", Self::Transfer),
        ("idle", Self::Idle),
        ("asking", Self::Asking),
        ("asking-late", Self::AskingLate),
        ("echo", Self::Echo),
        ("closing", Self::Closing),
    ];

    fn of(cell: &Cell) -> Result<Self> {
        let word = cell.word("when", "transfer");
        let known = Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, when)| *when);
        let names = || Self::ALL.map(|(name, _)| name).join(", ");
        known.with_context(|| format!("when = `{word}`: known are {}", names()))
    }
}

/// The outage of a cell, and what else happens then with this seed.
pub(super) fn of_seed(cell: &Cell, seed: u64) -> Result<Outage> {
    let outage = of(cell)?;
    Ok(Outage { kill: Kill::of(cell, seed, outage.until)?, ..outage })
}

/// The outage of a cell.
fn of(cell: &Cell) -> Result<Outage> {
    let seconds = cell.number("outage_s", 30);
    if !(1..=OUTAGE_MAX_S).contains(&seconds) {
        bail!("outage_s = {seconds}: 1 to {OUTAGE_MAX_S} seconds");
    }
    let until = AWAY_FROM + Duration::from_secs(seconds);
    Ok(Outage { from: AWAY_FROM, until, is_announced: cell.is_announced(), kill: None })
}

/// The connections of a cell: one, or as many as its `flows` says.
pub(super) fn jobs(cell: &Cell, seed: u64) -> Result<Vec<Job>> {
    let flows = cell.number("flows", 1);
    if !(1..=FLOWS_MAX).contains(&flows) {
        bail!("flows = {flows}: 1 to {FLOWS_MAX}");
    }
    let mut rng = Rng::new(seed, "many connections");
    let mut jobs = Vec::new();
    for number in 0..flows {
        let later = OPEN_WITHIN * u32::try_from(number)? / u32::try_from(flows)?;
        let mut job = job(cell, seed, (&mut rng, later))?;
        job.start += later;
        jobs.push(job);
    }
    Ok(jobs)
}

/// One of them, which is opened so much later than the first.
fn job(cell: &Cell, seed: u64, (rng, later): (&mut Rng, Duration)) -> Result<Job> {
    let outage = of_seed(cell, seed)?;
    let when = When::of(cell)?;
    if when != When::Transfer && outage.kill.is_some() {
        bail!("a gateway is killed in the middle of a transfer, not where `when` is something else");
    }
    // A connection that stands has been opened, and its first question is answered.
    let ready = BEGIN + Duration::from_secs_f64(2.0 * cell.settings.rtt_ms / 1e3);
    if ready > AWAY_FROM {
        bail!("rtt of {} ms: a connection does not stand before the link goes away", cell.settings.rtt_ms);
    }
    let ask = |wait| Exchange { wait, up_bytes: QUESTION_BYTES, down_bytes: ANSWER_BYTES };
    let once = |linger| Task::Dialogue { exchanges: vec![ask(Duration::ZERO)], linger };
    let twice = |then: Duration| Task::Dialogue {
        exchanges: vec![ask(Duration::ZERO), ask(then.saturating_sub(ready))],
        linger: Duration::ZERO,
    };
    let (start, task) = match when {
        When::Opening => (outage.from + LATER, once(Duration::ZERO)),
        When::Transfer => {
            // Where a gateway dies, each seed meets another moment of the source's timers.
            let jitter_ms = Rng::new(seed, "beginning").range(0, JITTER_MAX_MS);
            let jitter_ms = outage.kill.map_or(0, |_| jitter_ms);
            let bytes = cell.number("size_bytes", 5_000_000);
            (BEGIN + Duration::from_millis(jitter_ms), Task::Download(bytes))
        }
        When::Idle => (BEGIN, twice(outage.until + LATER)),
        When::Asking => (BEGIN, twice(outage.from + LATER)),
        When::AskingLate => (BEGIN, twice(outage.until.saturating_sub(LATER))),
        When::Echo => {
            let [from, until] = [outage.from, outage.until].map(|at| u64::try_from(at.as_micros()));
            let asked = Duration::from_micros(rng.range(from?, until?));
            let echo = |wait| Exchange { down_bytes: QUESTION_BYTES, ..ask(wait) };
            let exchanges = vec![echo(Duration::ZERO), echo(asked.saturating_sub(ready + later))];
            (BEGIN, Task::Dialogue { exchanges, linger: Duration::ZERO })
        }
        When::Closing => (BEGIN, once((outage.from + LATER).saturating_sub(ready))),
    };
    Ok(Job { class: "connection", client: Client::First, start, task })
}

/// What the outage came to. `progress_s`: when the first payload byte arrived after the link was
/// back, counted as the outage is.
pub(super) fn measure(
    cell: &Cell,
    jobs: &[Job],
    dones: &[Done],
    progress_s: Option<f64>,
) -> Result<Measured> {
    let outage = of(cell)?;
    let when = When::of(cell)?;
    let (Some(job), Some(done)) = (jobs.first(), dones.first()) else { bail!("no job") };
    let back_s = outage.until.as_secs_f64();
    let since_back = |seconds: f64| job.start.as_secs_f64() + seconds - back_s;
    if when == When::Echo {
        return Ok(echoes(jobs, dones, back_s));
    }
    let mut measured = Measured { seconds: done.seconds, ..Measured::default() };
    let resumed_s = match when {
        When::Transfer => progress_s.map(|at| at - back_s),
        When::Idle => done.answers.last().copied(),
        When::Closing => done.ended_seconds.map(since_back),
        When::Opening | When::Asking | When::AskingLate | When::Echo => Some(since_back(done.seconds)),
    };
    if let Some(resumed_s) = resumed_s {
        measured.metric("resumed_seconds", resumed_s);
    }
    if cell.word("killed", "no") != "no" {
        measured.metric("transfers_reset", if done.resets > 0 { 1.0 } else { 0.0 });
    }
    Ok(measured)
}

/// How long echoes took, counted from the return of the link where they were asked for before.
fn echoes(jobs: &[Job], dones: &[Done], back_s: f64) -> Measured {
    let mut measured = Measured::default();
    let waits = jobs.iter().zip(dones).filter_map(|(job, done)| {
        let answered_s = job.start.as_secs_f64() + done.seconds;
        let asked_s = answered_s - done.answers.get(1)?;
        Some(answered_s - asked_s.max(back_s))
    });
    say(&mut measured, "echo", &waits.collect::<Vec<_>>());
    measured.seconds = dones.iter().map(|done| done.seconds).fold(0.0, f64::max);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn what_is_asked_while_the_link_is_away_is_counted_from_its_return() {
        let cells = Scenario::find("outage").unwrap().cells().unwrap();
        let of = |when: &str| {
            let is = |c: &&Cell| c.word("when", "") == when && c.number("outage_s", 0) == 30;
            cells.iter().find(is).unwrap_or_else(|| panic!("no cell {when}"))
        };
        let resumed = |when: &str, done: Done, progress_s| {
            let cell = of(when);
            let jobs = jobs(cell, 1).unwrap();
            measure(cell, &jobs, &[done], progress_s).unwrap().metrics["resumed_seconds"]
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let done =
            Done { seconds: 33.0, answers: vec![0.5, 0.7], ended_seconds: Some(34.0), ..Done::default() };
        near(resumed("opening", Done { seconds: 30.5, ..done.clone() }, None), 1.0);
        near(resumed("asking", done.clone(), None), 1.1);
        near(resumed("idle", done.clone(), None), 0.7);
        near(resumed("closing", done.clone(), None), 2.1);
        near(resumed("transfer", done, Some(32.25)), 0.25);
    }
}
