//! The connection log: a line of JSON for each connection, when it ends. One that is not split has
//! its line at once, with the reason.
//!
//! The event loop only keeps the books; a thread writes. Where that does not keep up, or more end
//! than may be told in a second, lines are left out and counted. The event loop waits for nothing.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Instant as StdInstant, SystemTime};

use farlink_gateway::engine_status::FlowStatus;
use farlink_gateway::{Ends, Event, Spent};
use farlink_wire::{Duration, Instant};
use portable_atomic::AtomicU64;
use serde::Serialize;

use super::calendar::Utc;
use super::log_file::LogFile;
use crate::error::{Error, Result};
use crate::priority::{Priority, start_thread};

pub use super::log_file::LogTarget;

/// Lines that may wait for the thread that writes.
const WAITING_MAX: usize = 2048;
/// So many open connections are looked at in one go,
const LOOKED_AT: usize = 64;
/// and the next ones after this time: each four times a second while there are no more.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the thread says that lines are missing.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long the last lines may take.
const END_MAX: Duration = Duration::from_secs(1);
/// Nothing is held for a connection any more, and nothing will be.
const HANDED_BACK: &str = "handed back";
/// What a connection can be limited by, as in `farlink flows`.
const LIMITS: [&str; 5] = ["link", "receiver", "loss", "gateway", "application"];

/// What the log is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLogConfig {
    /// Where lines go.
    pub to: LogTarget,
    /// So many lines in a second at most.
    pub lines_per_second_max: u32,
    /// Open connections that are followed at most; more have no line.
    pub connections_max: usize,
}

/// What has been written, and what has not. Both sides count.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Lines that were written.
    written: AtomicU64,
    /// Connections that have none.
    lost: AtomicU64,
}

/// An open connection that is split, or was.
#[derive(Debug)]
struct Open {
    began: Instant,
    to_server_bytes: u64,
    to_client_bytes: u64,
    spent_to_server: Spent,
    spent_to_client: Spent,
    timeouts: u32,
    recoveries: u32,
    /// How often each of [`LIMITS`] held it when it was looked at.
    held: [u32; LIMITS.len()],
    rule: Option<Box<str>>,
    /// Its place in the list of those to look at.
    place: usize,
}

type Hosts = (SocketAddr, SocketAddr);

/// A line, as it is written.
#[derive(Debug, Serialize)]
struct Line {
    /// Milliseconds since 1970, UTC.
    #[serde(rename = "time", serialize_with = "as_time")]
    time_ms: u64,
    client: SocketAddr,
    server: SocketAddr,
    split: bool,
    /// Why it is not split.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    /// The rest is of one that was split.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
}

/// How a split connection was.
#[derive(Debug, Serialize)]
struct Ended {
    /// How it ended.
    end: &'static str,
    duration_seconds: f64,
    /// Payload that the hosts have acknowledged while it was split.
    to_server_bytes: u64,
    to_client_bytes: u64,
    /// What held it most often; absent if it was never looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<Box<str>>,
    timeouts: u32,
    recoveries: u32,
    /// What packets that were made here for the server were spent on.
    spent_to_server: Spent,
    spent_to_client: Spent,
}

/// The books, on the event loop's thread.
#[derive(Debug)]
pub(super) struct ConnectionLog {
    open: HashMap<Hosts, Open>,
    /// Those that are open, in the order in which they are looked at.
    order: Vec<Hosts>,
    next: usize,
    look_at: Option<Instant>,
    lines: Option<SyncSender<Line>>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    tally: Arc<Tally>,
    /// The second that is running, and the lines that are left of it.
    budget: (u64, u32),
    lines_per_second_max: u32,
    connections_max: usize,
    /// Connections that sleep are their hosts' again: nothing wakes them.
    hands_back: bool,
    /// The end has begun: the last lines are waited for until then.
    until: Option<StdInstant>,
}

impl ConnectionLog {
    /// Opens the file, and starts the thread.
    pub(super) fn start(config: &ConnectionLogConfig) -> Result<Self> {
        let file = LogFile::open(config.to.clone())
            .map_err(|e| Error::Refused(format!("the connection log {} cannot be opened: {e}", config.to)))?;
        Self::start_with(config, Box::new(file))
    }

    fn start_with(config: &ConnectionLogConfig, sink: Box<dyn Write + Send>) -> Result<Self> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let (ends, ended) = sync_channel(0);
        let tally = Arc::new(Tally::default());
        let write = {
            let tally = Arc::clone(&tally);
            move || {
                write_all(&waiting, sink, &tally);
                drop(ends);
            }
        };
        start_thread("connection-log", Priority::Normal, write).map_err(|e| {
            Error::Refused(format!("the thread of the connection log cannot be started: {e}"))
        })?;
        Ok(Self {
            open: HashMap::new(),
            order: Vec::new(),
            next: 0,
            look_at: None,
            lines: Some(lines),
            ended,
            tally,
            budget: (0, config.lines_per_second_max),
            lines_per_second_max: config.lines_per_second_max,
            connections_max: config.connections_max,
            hands_back: false,
            until: None,
        })
    }

    /// Lines that were written, and connections that have none.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.tally.written.load(Ordering::Relaxed), self.tally.lost.load(Ordering::Relaxed))
    }

    /// From now on what is split is handed back to its hosts, or no longer is.
    pub(super) fn hand_back(&mut self, does: bool) {
        self.hands_back = does;
    }

    /// Something has happened to a connection.
    pub(super) fn happened(&mut self, now: Instant, ends: &Ends, what: Event) {
        let hosts = (ends.client, ends.server);
        if let (Some(carried), Some(open)) = (what.carried(), self.open.get_mut(&hosts)) {
            open.to_server_bytes += carried.to_server_bytes;
            open.to_client_bytes += carried.to_client_bytes;
            open.spent_to_server += carried.spent_to_server;
            open.spent_to_client += carried.spent_to_client;
        }
        match what {
            Event::Split => {
                // The ports are used again, and nobody has seen the end of the old one.
                self.end(now, hosts, "forgotten");
                self.begin(now, hosts);
            }
            // After a restart it may be new here.
            Event::Woken => self.begin(now, hosts),
            Event::Slept(_) if self.hands_back => self.end(now, hosts, HANDED_BACK),
            Event::Closed(_) => self.end(now, hosts, "closed"),
            Event::Reset(_) => self.end(now, hosts, "reset"),
            Event::Abandoned(_) => self.end(now, hosts, "given up"),
            Event::Evicted => self.end(now, hosts, "forgotten"),
            Event::TimedOut(_) => self.count(hosts, |open| &mut open.timeouts),
            Event::Recovers(_) => self.count(hosts, |open| &mut open.recoveries),
            Event::Passed | Event::Refused | Event::Forwarded(_) => {
                let name = what.name();
                let why = name.strip_prefix("forwarded: ").unwrap_or(name);
                self.tell(now, hosts, Err(why));
            }
            _ => {}
        }
    }

    fn count(&mut self, hosts: Hosts, which: fn(&mut Open) -> &mut u32) {
        if let Some(open) = self.open.get_mut(&hosts) {
            let count = which(open);
            *count = count.saturating_add(1);
        }
    }

    fn begin(&mut self, now: Instant, hosts: Hosts) {
        if self.open.contains_key(&hosts) {
            return;
        }
        if self.open.len() >= self.connections_max {
            self.lose();
            return;
        }
        let open = Open {
            began: now,
            to_server_bytes: 0,
            to_client_bytes: 0,
            spent_to_server: Spent::default(),
            spent_to_client: Spent::default(),
            timeouts: 0,
            recoveries: 0,
            held: [0; LIMITS.len()],
            rule: None,
            place: self.order.len(),
        };
        self.order.push(hosts);
        self.open.insert(hosts, open);
        self.look_at.get_or_insert(now + LOOK_EVERY);
    }

    fn end(&mut self, now: Instant, hosts: Hosts, end: &'static str) {
        let Some(open) = self.take(hosts) else { return };
        let most = open.held.iter().zip(LIMITS).max_by_key(|(times, _)| **times);
        let ended = Ended {
            end,
            duration_seconds: (now.since(open.began).as_secs_f64() * 1e3).round() / 1e3,
            to_server_bytes: open.to_server_bytes,
            to_client_bytes: open.to_client_bytes,
            limited_by: most.filter(|(times, _)| **times > 0).map(|(_, name)| name),
            rule: open.rule,
            timeouts: open.timeouts,
            recoveries: open.recoveries,
            spent_to_server: open.spent_to_server,
            spent_to_client: open.spent_to_client,
        };
        self.tell(now, hosts, Ok(ended));
    }

    fn take(&mut self, hosts: Hosts) -> Option<Open> {
        let open = self.open.remove(&hosts)?;
        self.order.swap_remove(open.place);
        if let Some(moved) = self.order.get(open.place).and_then(|hosts| self.open.get_mut(hosts)) {
            moved.place = open.place;
        }
        Some(open)
    }

    /// When open connections are to be looked at; `None`: there are none.
    pub(super) fn due(&self) -> Option<Instant> {
        self.look_at
    }

    /// Looks at some of the open connections: what holds them now? One that is no longer known has
    /// been forgotten.
    pub(super) fn attend(&mut self, now: Instant, look: impl Fn(&Hosts) -> Option<FlowStatus>) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        for _ in 0..LOOKED_AT.min(self.order.len()) {
            if self.next >= self.order.len() {
                self.next = 0;
            }
            let Some(hosts) = self.order.get(self.next).copied() else { break };
            let Some(flow) = look(&hosts) else {
                self.end(now, hosts, "forgotten");
                continue;
            };
            if self.hands_back && flow.mode == "dormant" {
                // It was asleep already.
                self.end(now, hosts, HANDED_BACK);
                continue;
            }
            self.next += 1;
            let Some(open) = self.open.get_mut(&hosts) else { continue };
            // Who sleeps is held by nothing.
            let limit = LIMITS.iter().position(|name| *name == flow.limited_by);
            let is_at_work = ["split", "custody", "draining"].contains(&flow.mode);
            if let Some(times) = limit.and_then(|n| open.held.get_mut(n)).filter(|_| is_at_work) {
                *times = times.saturating_add(1);
            }
            if open.rule.is_none() && !flow.rule.is_empty() {
                open.rule = Some(flow.rule.into());
            }
        }
        self.look_at = (!self.order.is_empty()).then(|| now + LOOK_EVERY);
    }

    fn tell(
        &mut self,
        now: Instant,
        (client, server): Hosts,
        what: std::result::Result<Ended, &'static str>,
    ) {
        let second = now.since(Instant::ZERO).as_secs();
        if self.budget.0 != second {
            self.budget = (second, self.lines_per_second_max);
        }
        if self.until.is_none() {
            let Some(left) = self.budget.1.checked_sub(1) else { return self.lose() };
            self.budget.1 = left;
        }
        self.send(line(client, server, what));
    }

    fn send(&self, mut line: Line) {
        let Some(lines) = &self.lines else { return self.lose() };
        loop {
            line = match lines.try_send(line) {
                Ok(()) => return,
                Err(TrySendError::Full(line)) if self.until.is_some_and(|at| at > StdInstant::now()) => line,
                Err(_) => return self.lose(),
            };
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lose(&self) {
        self.tally.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// The gateway ends, and hands all connections back. It takes a second at most.
    pub(super) fn end_all(mut self, now: Instant) {
        let until = StdInstant::now() + END_MAX;
        self.until = Some(until);
        while let Some(hosts) = self.order.last().copied() {
            self.end(now, hosts, HANDED_BACK);
        }
        self.lines = None;
        let _ = self.ended.recv_timeout(until.saturating_duration_since(StdInstant::now()));
    }
}

fn line(client: SocketAddr, server: SocketAddr, what: std::result::Result<Ended, &'static str>) -> Line {
    let (ended, why) = match what {
        Ok(ended) => (Some(ended), None),
        Err(why) => (None, Some(why)),
    };
    Line { time_ms: now_ms(), client, server, split: ended.is_some(), why, ended }
}

/// The thread: writes what comes, and once a second how many lines are missing.
fn write_all(lines: &Receiver<Line>, mut sink: Box<dyn Write + Send>, tally: &Tally) {
    let (mut told, mut told_at) = (0, StdInstant::now());
    loop {
        let line = lines.recv_timeout(TELL_EVERY);
        if let Ok(line) = &line {
            match write(&mut sink, line) {
                Ok(()) => tally.written.fetch_add(1, Ordering::Relaxed),
                Err(_) => tally.lost.fetch_add(1, Ordering::Relaxed),
            };
        }
        let lost = tally.lost.load(Ordering::Relaxed);
        let is_end = line.as_ref().is_err_and(|e| *e == RecvTimeoutError::Disconnected);
        if lost > told && (is_end || told_at.elapsed() >= TELL_EVERY) {
            let missing = Missing { time_ms: now_ms(), lines_missing: lost - told };
            // What cannot be said now is said later.
            if write(&mut sink, &missing).is_ok() {
                told = lost;
            }
            told_at = StdInstant::now();
        }
        if is_end {
            return;
        }
    }
}

/// Lines that could not be written.
#[derive(Debug, Serialize)]
struct Missing {
    #[serde(rename = "time", serialize_with = "as_time")]
    time_ms: u64,
    lines_missing: u64,
}

/// A line in one piece, so that nothing else gets into it.
fn write(sink: &mut dyn Write, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    sink.write_all(&text)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn as_time<S: serde::Serializer>(ms: &u64, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{}", Utc(*ms)))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use farlink_gateway::{Because, Carried, Side};
    use serde_json::Value;

    use super::*;

    /// What was written, for a test to look at.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn lines(&self) -> Vec<Value> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    fn log(lines_per_second_max: u32, connections_max: usize) -> (ConnectionLog, Paper) {
        let paper = Paper::default();
        let config = ConnectionLogConfig { to: LogTarget::Stderr, lines_per_second_max, connections_max };
        (ConnectionLog::start_with(&config, Box::new(paper.clone())).unwrap(), paper)
    }

    fn ends(n: u16) -> Ends {
        Ends { client: ([10, 0, 0, 1], n).into(), server: ([10, 0, 0, 2], 80).into() }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn carried(to_server_bytes: u64, to_client_bytes: u64) -> Carried {
        let spent_to_server = Spent { payload_bytes: to_server_bytes, ack_bytes: 52, ..Spent::default() };
        Carried { to_server_bytes, to_client_bytes, spent_to_server, ..Carried::default() }
    }

    #[test]
    fn a_connection_has_one_line_at_its_end() {
        let (mut log, paper) = log(1000, 100);
        log.happened(at(0), &ends(1), Event::Split);
        log.happened(at(500), &ends(1), Event::TimedOut(Side::A));
        let flow =
            |limited_by, mode| FlowStatus { limited_by, mode, rule: "bulk".into(), ..Default::default() };
        for (ms, limit) in [(1000, "receiver"), (1500, "link"), (2000, "link")] {
            log.attend(at(ms), |_| Some(flow(limit, "split")));
        }
        for ms in [2500, 3000, 3500] {
            log.attend(at(ms), |_| Some(flow("application", "dormant")));
        }
        log.happened(at(4000), &ends(1), Event::Slept(carried(100, 2000)));
        log.happened(at(4500), &ends(1), Event::Woken);
        log.happened(at(5250), &ends(1), Event::Closed(carried(10, 5)));
        // It answers late segments for a while, and that is no other connection.
        log.happened(at(5300), &ends(1), Event::Reset(carried(10, 5)));
        log.end_all(at(6000));
        let lines = paper.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        let mut line = lines[0].clone();
        let time = line.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().is_some_and(|t| t.len() == 24 && t.ends_with('Z')), "{time}");
        let wanted = serde_json::json!({
            "client": "10.0.0.1:1", "server": "10.0.0.2:80", "split": true, "end": "closed", "duration_seconds": 5.25,
            "to_server_bytes": 110, "to_client_bytes": 2005, "limited_by": "link", "rule": "bulk", "timeouts": 1,
            "recoveries": 0,
            "spent_to_server": {"payload_bytes": 110, "repeated_bytes": 0, "header_bytes": 0, "copy_bytes": 0,
                "ack_bytes": 104, "probe_bytes": 0, "needless_bytes": 0},
            "spent_to_client": {"payload_bytes": 0, "repeated_bytes": 0, "header_bytes": 0, "copy_bytes": 0,
                "ack_bytes": 0, "probe_bytes": 0, "needless_bytes": 0},
        });
        assert_eq!(line, wanted);
    }

    #[test]
    fn what_is_not_split_has_its_line_at_once_with_the_reason() {
        let (mut log, paper) = log(1000, 100);
        let reasons = [
            Event::Passed,
            Event::Refused,
            Event::Forwarded(Because::Memory),
            Event::Forwarded(Because::Unsplittable),
        ];
        for (n, what) in (1..).zip(reasons) {
            log.happened(at(0), &ends(n), what);
        }
        log.end_all(at(1));
        let lines = paper.lines();
        let why: Vec<_> = lines.iter().map(|l| (l["split"] == false, l["why"].as_str().unwrap())).collect();
        let wanted = ["passed by rule", "refused by rule", "memory is short", "cannot be split"];
        assert_eq!(why, wanted.map(|why| (true, why)));
    }

    #[test]
    fn what_is_open_when_the_gateway_ends_or_has_been_forgotten_has_a_line_too() {
        let (mut log, paper) = log(1000, 100);
        for n in 1..=3 {
            log.happened(at(0), &ends(n), Event::Split);
        }
        // The ports of the first are used again; the second is no longer known.
        log.happened(at(10), &ends(1), Event::Split);
        let gone = (ends(2).client, ends(2).server);
        log.attend(at(300), |hosts| (*hosts != gone).then(FlowStatus::default));
        assert_eq!((log.open.len(), log.order.len()), (2, 2));
        log.end_all(at(1000));
        let lines = paper.lines();
        let mut ends: Vec<_> = lines
            .iter()
            .map(|l| format!("{} {}", l["client"].as_str().unwrap(), l["end"].as_str().unwrap()))
            .collect();
        ends.sort();
        let wanted = [
            "10.0.0.1:1 forgotten",
            "10.0.0.1:1 handed back",
            "10.0.0.1:2 forgotten",
            "10.0.0.1:3 handed back",
        ];
        assert_eq!(ends, wanted);
    }

    /// The line says when, not when the gateway ends.
    #[test]
    fn what_is_handed_back_has_its_line_when_it_is() {
        let (mut log, paper) = log(1000, 100);
        (1..=3).for_each(|n| log.happened(at(0), &ends(n), Event::Split));
        log.happened(at(100), &ends(1), Event::Slept(carried(1, 1)));
        log.hand_back(true);
        log.happened(at(1000), &ends(2), Event::Slept(carried(10, 20)));
        let asleep = (ends(1).client, ends(1).server);
        log.attend(at(1100), |hosts| {
            let mode = if *hosts == asleep { "dormant" } else { "draining" };
            Some(FlowStatus { mode, ..FlowStatus::default() })
        });
        // It was not to be, after all.
        log.hand_back(false);
        log.happened(at(1200), &ends(3), Event::Slept(carried(0, 0)));
        log.happened(at(9000), &ends(3), Event::Closed(carried(0, 0)));
        log.end_all(at(60_000));
        let lines = paper.lines();
        let told: Vec<_> = lines
            .iter()
            .map(|l| {
                (
                    l["client"].as_str().unwrap(),
                    l["end"].as_str().unwrap(),
                    l["duration_seconds"].as_f64().unwrap(),
                )
            })
            .collect();
        let wanted = [
            ("10.0.0.1:2", "handed back", 1.0),
            ("10.0.0.1:1", "handed back", 1.1),
            ("10.0.0.1:3", "closed", 9.0),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let (mut log, paper) = log(100, 50);
        for n in 1..=10_000 {
            log.happened(at(0), &ends(n), Event::Passed);
        }
        for n in 1..=60 {
            log.happened(at(0), &ends(n), Event::Split);
        }
        assert_eq!((log.open.len(), log.counts().1), (50, 9_910));
        let tally = Arc::clone(&log.tally);
        log.end_all(at(0));
        let lines = paper.lines();
        let missing: u64 = lines.iter().filter_map(|l| l["lines_missing"].as_u64()).sum();
        let told = lines.iter().filter(|l| l["lines_missing"].is_null()).count() as u64;
        assert_eq!((told, missing), (150, 9_910), "nothing is hurried away at the end");
        assert_eq!(tally.written.load(Ordering::Relaxed), 150);
    }

    /// A reader that has stopped: the pipe is full.
    struct Stuck(std::sync::mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_does_not_read_holds_nobody_up() {
        let config =
            ConnectionLogConfig { to: LogTarget::Stderr, lines_per_second_max: u32::MAX, connections_max: 1 };
        let (free, stuck) = sync_channel(0);
        let mut log = ConnectionLog::start_with(&config, Box::new(Stuck(stuck))).unwrap();
        let all = 2 * WAITING_MAX as u64;
        for n in 0..all {
            log.happened(at(0), &ends(n as u16), Event::Passed);
        }
        let (written, lost) = log.counts();
        assert_eq!(written, 0);
        // One is in the writer's hands.
        let kept = all - lost;
        assert!((WAITING_MAX as u64..=WAITING_MAX as u64 + 1).contains(&kept), "{kept}");
        log.end_all(at(1));
        drop(free);
    }
}
