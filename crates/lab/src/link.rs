//! An emulated link of the laboratory: a process of its own that carries the packets between two interfaces.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farlink_channel::{ChannelConfig, GilbertElliott, Wink, WinkSide};
use farlink_linux::emulator::{Emulator, EmulatorConfig};
use farlink_wire::time;
use serde_json::{Value, json};

use crate::netns::Ns;
use crate::process::Recorded;
use crate::settings::Settings;
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

/// What that command does, until it is ended: carries the packets between two interfaces of its namespace.
pub fn carry(client_side: &str, server_side: &str, settings: &str, control: Option<PathBuf>) -> Result<()> {
    let settings: Settings = serde_json::from_str(settings).context("--settings")?;
    let emulator = Emulator::start(EmulatorConfig {
        a: client_side.into(),
        b: server_side.into(),
        a_to_b: channel(&settings, settings.up_bps()),
        b_to_a: channel(&settings, settings.rate_bps),
        seed: settings.seed,
        control,
    })?;
    println!("{READY}");
    while emulator.is_running() {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(emulator.stop()?)
}

/// One direction of the link that the settings describe.
#[must_use]
pub fn channel(settings: &Settings, rate_bps: u64) -> ChannelConfig {
    let millis = |ms: f64| time::Duration::from_nanos((ms * 1e6).round() as u64);
    let is_bursty = settings.loss_burst > 1.0 && settings.loss > 0.0 && settings.loss < 1.0;
    // In the bad state everything is lost; its share of the time is the loss.
    let p_bad_to_good = 1.0 / settings.loss_burst.max(1.0);
    ChannelConfig {
        rate_bps: (rate_bps > 0).then_some(rate_bps),
        delay: millis(settings.rtt_ms / 2.0),
        queue_limit_bytes: (rate_bps > 0).then(|| settings.queue_for(rate_bps) as usize),
        ber: settings.ber,
        loss: if is_bursty { 0.0 } else { settings.loss },
        gilbert_elliott: is_bursty.then(|| GilbertElliott {
            p_good_to_bad: p_bad_to_good * settings.loss / (1.0 - settings.loss),
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }),
        reorder: settings.reorder,
        reorder_extra: time::Duration::from_millis(10),
        duplicate: settings.duplicate,
        corrupt: settings.corrupt,
        jitter: millis(settings.jitter_ms),
        jitter_keeps_order: true,
        wink: (settings.wink_p > 0.0).then(|| Wink {
            p: settings.wink_p,
            interval: millis(settings.wink_i_ms),
            seed: Some(settings.seed),
            side: WinkSide::default(),
        }),
        ..ChannelConfig::default()
    }
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

    /// Changes parameters while it carries: keys of `farlink_linux::emulator::KEYS`, e.g. `rate_bps`,
    /// `a_to_b.loss` (a is the client's side).
    pub fn set(&self, parameters: Value) -> Result<()> {
        self.ask(&json!({"set": parameters})).map(drop)
    }

    /// Its counters, by direction: `a_to_b` is towards the server.
    pub fn stats(&self) -> Result<Value> {
        self.ask(&json!({"stats": true}))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_what_the_settings_say() {
        let mut settings = Settings::default();
        settings.set_all(["rate=8M", "rtt=500ms", "loss=0.01", "loss_burst=4"]).unwrap();
        let down = channel(&settings, settings.rate_bps);
        assert_eq!(down.rate_bps, Some(8_000_000));
        assert_eq!(down.delay, time::Duration::from_millis(250));
        assert_eq!(down.queue_limit_bytes, Some(500_000));
        let bursts = down.gilbert_elliott.unwrap();
        let bad = bursts.p_good_to_bad / (bursts.p_good_to_bad + bursts.p_bad_to_good);
        assert!((bad - 0.01).abs() < 1e-9 && down.loss == 0.0);
        settings.set("rate", "0").unwrap();
        assert_eq!(channel(&settings, 0).rate_bps, None);
    }
}
