//! `farlink trace`: one connection of the running gateway, packet by packet.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farlink_gateway::flow_trace::Collector;
use farlink_gateway::tap::{Taken, What, Wish};

use crate::admin::client::ask;
use crate::admin::protocol::Request;
use crate::cli::TraceArgs;
use crate::ending;
use crate::out::{self, outln};
use crate::view::{bytes, microseconds, rate};

/// How often the gateway is asked; also the time between two samples.
const EVERY: Duration = Duration::from_millis(100);
/// How often a line is printed.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// The endpoints that a person names: `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT`, two of them with
/// a comma between.
///
/// # Errors
/// Something else.
pub fn wish(text: &str) -> Result<Wish> {
    let end = |text: &str| -> Result<(IpAddr, Option<u16>)> {
        let text = text.trim();
        if let Ok(end) = text.parse::<SocketAddr>() {
            return Ok((end.ip(), Some(end.port())));
        }
        match text.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(addr) => Ok((addr, None)),
            Err(_) => bail!("`{text}`: an address or address:port is expected"),
        }
    };
    match text.split_once(',') {
        Some((one, other)) => Ok(Wish { one: Some(end(one)?), other: Some(end(other)?) }),
        None => Ok(Wish { one: Some(end(text)?), other: None }),
    }
}

/// Follows it until the time is over.
///
/// # Errors
/// No gateway answers, or another trace is under way.
pub fn run(args: &TraceArgs) -> Result<ExitCode> {
    wish(&args.flow)?;
    // What cannot be written is known before a minute has been waited for it.
    let file = args.json.as_deref().map(create).transpose()?;
    let socket = &args.socket.socket;
    ask(socket, &Request::Trace { flow: args.flow.clone(), seconds: args.seconds })?;
    ending::on_signals();
    let began = Instant::now();
    let end = began + Duration::from_secs(args.seconds);
    let mut collector = Collector::default();
    let mut line = Line { is_silent: is_stdout(args.json.as_deref()), ..Line::default() };
    // An interval that is nearly whole when the time is over is worth its line.
    let mut last = false;
    while !last {
        std::thread::sleep(EVERY.min(end.saturating_duration_since(Instant::now())));
        last = Instant::now() >= end || ending::is_asked() || !out::is_open();
        let answer = ask(socket, &Request::TraceRead {})?;
        let taken: Taken = serde_json::from_value(answer).context("the gateway is of another version")?;
        line.add(&taken, last);
        collector.add("here", &taken);
    }
    ask(socket, &Request::TraceStop {})?;
    if collector.is_empty() {
        eprintln!("no packet of such a connection passed in {:.0} s", began.elapsed().as_secs_f64());
    }
    let is_empty = collector.is_empty();
    if let Some(path) = &args.json {
        let command = format!("farlink trace {} --seconds {}", args.flow, args.seconds);
        let text = serde_json::to_string(&collector.finish(None, &command))?;
        match file {
            Some(Some(mut file)) => {
                writeln!(file, "{text}").with_context(|| format!("{} cannot be written", path.display()))?
            }
            _ => outln!("{text}"),
        }
    }
    Ok(if is_empty { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether the JSON goes where the lines would.
fn is_stdout(path: Option<&Path>) -> bool {
    path.is_some_and(|p| p.as_os_str() == "-")
}

/// The file; `None` for standard output.
fn create(path: &Path) -> Result<Option<File>> {
    if is_stdout(Some(path)) {
        return Ok(None);
    }
    let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(Some(file))
}

/// What is printed of one interval.
#[derive(Default)]
struct Line {
    began_ns: u64,
    has_heading: bool,
    /// Nothing is printed.
    is_silent: bool,
    /// Sent, sent again and acknowledged, of the client's and the server's data.
    bytes: [[u64; 3]; 2],
    /// Timeouts, recoveries, and times that routers (XCP) were believed and not believed any more,
    /// of the client's and the server's data.
    repairs: [[u32; 4]; 2],
}

impl Line {
    /// `last`: nothing comes after it, so that half an interval is printed too.
    fn add(&mut self, taken: &Taken, last: bool) {
        for event in &taken.events {
            let of = usize::from(!event.of_client);
            let [timeouts, recoveries, believed, doubted] = &mut self.repairs[of];
            let [sent, again, acked] = &mut self.bytes[of];
            let bytes = event.to.saturating_sub(event.from);
            match event.what {
                What::Sent => *sent += bytes,
                What::Repeated => *again += bytes,
                What::Acked => *acked += bytes,
                What::TimedOut => *timeouts += 1,
                What::Recovers => *recoveries += 1,
                What::Explicit => *believed += 1,
                What::Doubted => *doubted += 1,
            }
        }
        let passed = Duration::from_nanos(taken.at_ns.saturating_sub(self.began_ns));
        let due = if last { LINE_EVERY / 2 } else { LINE_EVERY };
        if taken.client.is_empty() || passed < due || self.is_silent {
            return;
        }
        if !self.has_heading {
            self.has_heading = true;
            outln!("{} to {} and back, as this gateway sees them", taken.client, taken.server);
            outln!(
                "  TIME  DIRECTION         SENT      SENT AGAIN   ACKNOWLEDGED       CWND  IN FLIGHT   CUSTODY      RTT   QUEUE"
            );
        }
        let bps = |n: u64| {
            let bps = (8.0 * n as f64 / passed.as_secs_f64()).round() as u64;
            if bps == 0 { "-".to_owned() } else { rate(bps) }
        };
        let of =
            |direction: usize| (self.bytes[direction], taken.senders[direction], self.repairs[direction]);
        for (name, ([sent, again, acked], s, repairs)) in [("to server", of(0)), ("to client", of(1))] {
            outln!(
                "{:>5.1}s  {name}  {:>12}  {:>12}  {:>13}  {:>9}  {:>9}  {:>8}  {:>7}  {:>6}{}",
                taken.at_ns as f64 / 1e9,
                bps(sent),
                bps(again),
                bps(acked),
                bytes(s.cwnd_bytes),
                bytes(s.in_flight_bytes),
                bytes(s.custody_bytes),
                microseconds(s.srtt_us),
                bytes(s.link_queue_bytes),
                in_words(repairs),
            );
        }
        self.began_ns = taken.at_ns;
        self.bytes = Default::default();
        self.repairs = Default::default();
    }
}

/// What was amiss, behind the figures.
fn in_words([timeouts, recoveries, believed, doubted]: [u32; 4]) -> String {
    let of = |n: u32, one: &str, many: &str| match n {
        0 => String::new(),
        1 => format!("  1 {one}"),
        n => format!("  {n} {many}"),
    };
    of(timeouts, "timeout", "timeouts")
        + &of(recoveries, "recovery", "recoveries")
        + &of(believed, "time XCP", "times XCP")
        + &of(doubted, "time XCP given up", "times XCP given up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_amiss_is_told_in_words() {
        assert_eq!(in_words([0, 0, 0, 0]), "");
        assert_eq!(in_words([1, 0, 0, 0]), "  1 timeout");
        assert_eq!(in_words([2, 1, 0, 0]), "  2 timeouts  1 recovery");
    }

    #[test]
    fn endpoints_are_read_as_people_write_them() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(wish("10.0.0.1").unwrap(), Wish { one: Some((ip("10.0.0.1"), None)), other: None });
        let both = wish("10.0.0.1:80, [fd00::1]:443").unwrap();
        assert_eq!(both.one, Some((ip("10.0.0.1"), Some(80))));
        assert_eq!(both.other, Some((ip("fd00::1"), Some(443))));
        assert_eq!(wish("fd00::1").unwrap().one, Some((ip("fd00::1"), None)));
        for wrong in ["", "host", "10.0.0.1:x", "10.0.0.1,"] {
            assert!(wish(wrong).is_err(), "{wrong}");
        }
    }
}
