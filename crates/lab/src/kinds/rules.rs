//! `rules`: what is split, passed by or refused by interface, prefix, port and DSCP, with counters;
//! and admission control, whose refusals are ICMP errors.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::session::{Allowed, PORT, Session, expect_intact};
use super::{Kind, Run};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::Settings;
use crate::workload::socket::Options;
use crate::workload::{Outcome, Transfer};

/// The rule's name in all cases.
const RULE: &str = "under-test";
/// A second port on which the servers answer too, that rules name or do not name.
const OTHER_PORT: u16 = 5002;
/// How long closed connections may count as open.
const ROOM_PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);
/// Connections that the admission case lets in.
const ADMITTED: usize = 5;
/// Size of a transfer of the cases that match.
const BYTES: u64 = 100_000;
/// EF, the DSCP of the case that names one (RFC 3246).
const DSCP: u8 = 46;

/// See the module.
pub(super) struct RulesKind;

/// A connection of a case.
#[derive(Clone, Copy)]
struct Try {
    /// From the server's side instead of the client's.
    from_server: bool,
    port: u16,
    dscp: u8,
    /// The rule matches it.
    matches: bool,
}

const PLAIN: Try = Try { from_server: false, port: PORT, dscp: 0, matches: false };

impl Kind for RulesKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let case = cell.word("case", "port").to_string();
        let server = if cell.v6() { "fd00:64:3::/64" } else { "10.64.3.0/24" };
        let (rule, tries) = match case.as_str() {
            "port" => {
                (format!("ports = [{OTHER_PORT}]"), [Try { port: OTHER_PORT, matches: true, ..PLAIN }, PLAIN])
            }
            "dscp" => (format!("dscp = [{DSCP}]"), [Try { dscp: DSCP, matches: true, ..PLAIN }, PLAIN]),
            "prefix" => {
                // SYNs towards the server's subnet match, those from there do not.
                let other = Try { from_server: true, ..PLAIN };
                (format!("destinations = [\"{server}\"]"), [Try { matches: true, ..PLAIN }, other])
            }
            "interface" => {
                let other = Try { from_server: true, matches: true, ..PLAIN };
                ("interfaces = [\"to-server\"]".to_string(), [other, PLAIN])
            }
            "refuse" => ("action = \"refuse\"".to_string(), [PLAIN, PLAIN]),
            "admission" => (format!("connections_max = {ADMITTED}\nover_limit = \"refuse\""), [PLAIN, PLAIN]),
            other => bail!("unknown case `{other}`"),
        };
        let action = match case.as_str() {
            "refuse" => "",
            "admission" => "action = \"split\"\n",
            _ => "action = \"pass\"\n",
        };
        let settings = Settings {
            gateway_config: format!("\n[[rule]]\nname = \"{RULE}\"\n{action}{rule}\n"),
            ..cell.settings.clone()
        };
        let mut session = Session::start(&scenario.topology, &settings, cell, run, Allowed::default())?;
        for node in ["client", "server"] {
            let server = crate::workload::Server::start(&session.lab.ns(node), OTHER_PORT)?;
            session.servers.push((node.into(), server));
        }
        let mut measured = Measured::default();
        match case.as_str() {
            "refuse" => refused(&mut session, cell, run, &mut measured)?,
            "admission" => admission(&mut session, cell, run, &mut measured)?,
            _ => matching(&mut session, cell, run, &tries, &mut measured)?,
        }
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

fn transfer(session: &Session, cell: &Cell, attempt: Try, bytes: u64, seed: u64) -> Result<Transfer> {
    let (from, to) = if attempt.from_server { ("server", "client") } else { ("client", "server") };
    Ok(Transfer {
        options: Options { dscp: attempt.dscp, ..Options::default() },
        ..Transfer::download(
            session.lab.ns(from),
            session.lab.address(to, cell.v6())?,
            attempt.port,
            bytes,
            seed,
        )
    })
}

/// Connections that match the rule are passed by and counted, others are split.
fn matching(
    session: &mut Session,
    cell: &Cell,
    run: &Run<'_>,
    tries: &[Try],
    measured: &mut Measured,
) -> Result<()> {
    // The one gateway that both sides of the rule concern: the server's (interface names are its
    // own).
    for attempt in tries {
        let before = numbers(session)?;
        let transfer = transfer(session, cell, *attempt, BYTES, run.seed)?;
        let (outcomes, ()) = session.transfer(&[transfer], run, |_| ());
        expect_intact(measured, &outcomes);
        let after = numbers(session)?;
        let matched = u64::from(attempt.matches);
        measured.expect(after.rule - before.rule == matched, || {
            format!("the rule counted {} connections, {matched} expected", after.rule - before.rule)
        });
        // With the request and what a host repeats.
        let bytes = after.bytes - before.bytes;
        measured.expect(if attempt.matches { bytes >= BYTES } else { bytes == 0 }, || {
            format!("the rule counted {bytes} bytes of a transfer of {BYTES}, matched: {}", attempt.matches)
        });
        measured.expect(after.split - before.split == 1 - matched, || {
            format!("{} connections were split, {} expected", after.split - before.split, 1 - matched)
        });
    }
    Ok(())
}

struct Numbers {
    rule: u64,
    bytes: u64,
    split: u64,
}

fn numbers(session: &Session) -> Result<Numbers> {
    let gateway = session.lab.gateways.last().context("no gateway runs")?;
    let status = gateway.status()?;
    let engine = status.get("engine").unwrap_or(&status);
    let rules = engine["rules"].as_array().context("the status has no rules")?;
    let rule = rules.iter().find(|r| r["name"] == RULE).context("the status does not know the rule")?;
    let of = |value: &Value| value.as_u64().context("no number");
    Ok(Numbers {
        rule: of(&rule["connections"])?,
        bytes: of(&rule["bytes"])?,
        split: of(&engine["counters"]["flows_split"])?,
    })
}

/// Connections that are open under the rule.
fn open(session: &Session) -> Result<u64> {
    let status = session.lab.gateways.last().context("no gateway runs")?.status()?;
    let rules = status.get("engine").unwrap_or(&status)["rules"].as_array().cloned().unwrap_or_default();
    let rule = rules.iter().find(|r| r["name"] == RULE).context("the status does not know the rule")?;
    rule["open"].as_u64().context("no number")
}

/// A refused connection gets ICMP administratively prohibited, which Linux reports as EHOSTUNREACH
/// (IPv4, 3/13) or EACCES (IPv6, 1/1); never a RST (ECONNREFUSED), never silence.
fn expect_refused(measured: &mut Measured, cell: &Cell, outcome: &Outcome) {
    let expected = if cell.v6() { libc::EACCES } else { libc::EHOSTUNREACH };
    measured.expect(outcome.errno == Some(expected), || {
        format!(
            "a refused connection ended with {:?} ({:?}), errno {expected} expected",
            outcome.error, outcome.errno
        )
    });
}

fn refused(session: &mut Session, cell: &Cell, run: &Run<'_>, measured: &mut Measured) -> Result<()> {
    let transfer = transfer(session, cell, PLAIN, 1000, run.seed)?;
    let (outcomes, ()) = session.transfer(&[transfer], run, |_| ());
    measured.seconds = outcomes[0].ended_s;
    expect_refused(measured, cell, &outcomes[0]);
    measured.expect(outcomes[0].ended_s < 5.0, || "the refusal came late".into());
    Ok(())
}

/// As many as are admitted work, one more is refused, and when they have ended there is room again.
fn admission(session: &mut Session, cell: &Cell, run: &Run<'_>, measured: &mut Measured) -> Result<()> {
    let slow = transfer(session, cell, PLAIN, 400_000, run.seed)?;
    let slow: Vec<_> = (0..ADMITTED).map(|_| slow.clone()).collect();
    let late = Transfer {
        start_after: std::time::Duration::from_millis(500),
        ..transfer(session, cell, PLAIN, 1000, run.seed)?
    };
    let all: Vec<_> = slow.into_iter().chain([late]).collect();
    let (outcomes, ()) = session.transfer(&all, run, |_| ());
    expect_intact(measured, &outcomes[..ADMITTED]);
    expect_refused(measured, cell, &outcomes[ADMITTED]);
    let earliest = outcomes[..ADMITTED].iter().map(|o| o.ended_s).fold(f64::INFINITY, f64::min);
    measured.expect(earliest > outcomes[ADMITTED].began_s, || "the admitted ones had ended too early".into());
    // A closed connection still answers for some round trips, and counts until it is forgotten.
    let end = std::time::Instant::now() + ROOM_PATIENCE;
    while open(session)? > 0 && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let again = transfer(session, cell, PLAIN, 1000, run.seed)?;
    let (outcomes, ()) = session.transfer(&[again], run, |_| ());
    expect_intact(measured, &outcomes);
    Ok(())
}
