//! An emulated link of the laboratory: a process of its own that carries the packets between two
//! interfaces.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farlink_linux::emulator::{Emulator, EmulatorConfig};
use serde_json::{Value, json};

use crate::netns::Ns;
use crate::process::Recorded;
use crate::settings::{Duplex, Settings, Way};
use crate::sh;

/// What a link writes into its log once it carries.
pub const READY: &str = "link is up";
/// How long it may take until then.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// A link that was started.
#[derive(Debug)]
pub struct Link {
    /// Name of its node.
    pub node: String,
    /// It is an Ethernet of the terrestrial part.
    pub is_ethernet: bool,
    /// Its process.
    pub process: Recorded,
    /// Its log.
    pub log: PathBuf,
    /// Its control socket.
    pub control: PathBuf,
    pub(crate) child: Child,
}

/// The command that runs a link between the client's side and the server's side.
pub fn command(ns: &Ns, sides: [&str; 2], settings: &Settings, control: &Path) -> Result<Command> {
    let mut command = ns.command(sh::farlink_binary()?)?;
    command.args(["lab", "helper", "link", sides[0], sides[1], "--settings"]);
    command.arg(serde_json::to_string(settings)?).arg("--control").arg(control);
    Ok(command)
}

/// What that command does, until it is ended: carries the packets between two interfaces of its
/// namespace.
pub fn carry(client_side: &str, server_side: &str, settings: &str, control: Option<PathBuf>) -> Result<()> {
    let settings: Settings = serde_json::from_str(settings).context("--settings")?;
    let emulator = Emulator::start(EmulatorConfig {
        a: client_side.into(),
        b: server_side.into(),
        a_to_b: settings.channel(Way::Up),
        b_to_a: settings.channel(Way::Down),
        is_half_duplex: settings.duplex == Duplex::Half,
        seed: settings.seed,
        control,
    })?;
    println!("{READY}");
    while emulator.is_running() {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(emulator.stop()?)
}

impl Link {
    /// Waits until it carries; an error quotes its log.
    pub fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + START_PATIENCE;
        loop {
            let log = std::fs::read(&self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            if log.contains(READY) {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() >= end {
                bail!("the emulated link {} does not come up: {}", self.node, log.trim());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Changes parameters while it carries: keys of `farlink_linux::emulator::KEYS`, e.g.
    /// `rate_bps`, `a_to_b.loss` (a is the client's side).
    pub fn set(&self, parameters: Value) -> Result<()> {
        self.ask(&json!({"set": parameters})).map(drop)
    }

    /// Its schedule begins now, and so does the record of what it has carried.
    pub fn begin(&self) -> Result<()> {
        self.ask(&json!({"begin": true})).map(drop)
    }

    /// The same when the first data has arrived.
    pub fn begin_with_data(&self) -> Result<()> {
        self.ask(&json!({"begin": "data"})).map(drop)
    }

    /// Its counters, by direction: `a_to_b` is towards the server.
    pub fn stats(&self) -> Result<Value> {
        self.ask(&json!({"stats": true}))
    }

    /// Bytes that left the lines, by time and direction.
    pub fn carried(&self) -> Result<Value> {
        self.ask(&json!({"carried": true}))
    }

    fn ask(&self, request: &Value) -> Result<Value> {
        let mut stream = UnixStream::connect(&self.control)
            .with_context(|| format!("the emulated link {} does not answer", self.node))?;
        stream.set_read_timeout(Some(START_PATIENCE))?;
        writeln!(stream, "{request}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).context("no answer of the emulated link")?;
        match answer.get("error") {
            Some(error) => bail!("the emulated link {}: {error}", self.node),
            None => Ok(answer),
        }
    }
}
