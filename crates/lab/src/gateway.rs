//! A gateway of the laboratory: the very `farlink run` that is deployed, with a generated
//! configuration file.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::capture::FlowKey;
use crate::process::Recorded;
use crate::settings::{Duplex, Mode, Settings};
use crate::sh;
use crate::topology::Topology;

/// How long a gateway may take until it answers on its socket.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// A gateway that was started.
#[derive(Debug)]
pub struct Gateway {
    /// Name of its node.
    pub node: String,
    /// Its process.
    pub process: Recorded,
    /// Its admin socket.
    pub socket: PathBuf,
    /// Its configuration file.
    pub config: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// The child to reap.
    pub(crate) child: Child,
}

/// The configuration file of the gateway on a node.
pub fn config_text(topology: &Topology, node: usize, lab: &Settings, socket: &Path) -> Result<String> {
    let mut text = String::from("# Written by `farlink lab`.\n");
    match lab.mode_of(&topology.nodes[node].name) {
        Mode::Split => {}
        Mode::Custody => {
            text.push_str("default_action = \"custody\"\n");
            text.push_str(&format!("custody_notice = \"{}\"\n", lab.custody_notice.name()));
        }
        Mode::Forward => text.push_str("default_action = \"pass\"\n"),
    }
    let declared = &topology.nodes[node].declared;
    // Top-level keys of `gateway_config` must precede the first table, its tables may follow: it
    // starts with the former.
    let (top, tables) = split_at_first_table(&lab.gateway_config);
    text.push_str(top);
    for interface in topology.interfaces(node) {
        if !declared.iter().any(|d| d.neighbour == interface.neighbour) {
            text.push_str(&format!("\n[[interface]]\nname = \"{}\"\n", interface.name));
        }
    }
    for link in declared {
        let name = topology.interface(node, link.neighbour)?.name;
        text.push_str(&format!("\n[[link]]\ninterface = \"{name}\"\n"));
        let (up, down) = (lab.up_bps(), lab.rate_bps);
        let (rate, rate_in) = if link.sends_up { (up, down) } else { (down, up) };
        if let Some((told, rate_in)) = lab.told_bps(&topology.nodes[node].name, rate, rate_in) {
            text.push_str(&format!("rate_bps = {told}\n"));
            if lab.rate_in_known && rate_in != told && rate_in > 0 {
                text.push_str(&format!("rate_in = \"{rate_in} bit/s\"\n"));
            }
            if lab.duplex == Duplex::Half {
                text.push_str("duplex = \"half\"\n");
            }
        }
        if lab.rtt_known && lab.rtt_ms >= 1.0 {
            text.push_str(&format!("rtt_ms = {}\n", lab.rtt_ms.round()));
        }
        if lab.link_iw > 0 {
            text.push_str(&format!("initial_window_segments = {}\n", lab.link_iw));
        }
        if !lab.cc.is_empty() {
            text.push_str(&format!("cc = \"{}\"\n", lab.cc));
        }
        if let Some(bytes) = lab.cc_window_bytes {
            text.push_str(&format!("window_bytes = {bytes}\n"));
        }
        if !lab.link_config.is_empty() {
            text.push_str(&format!("{}\n", lab.link_config));
        }
    }
    if let Some(bytes) = lab.memory_bytes {
        text.push_str(&format!("\n[limits]\npool_bytes = {bytes}\n"));
    }
    text.push_str(&format!("\n[admin]\nsocket = \"{}\"\n", socket.display()));
    // A run knows nothing of the one before it.
    text.push_str("found_rates = \"off\"\n");
    text.push_str(tables);
    Ok(text)
}

fn split_at_first_table(text: &str) -> (&str, &str) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            break;
        }
        at += line.len();
    }
    text.split_at(at)
}

impl Gateway {
    /// The command that runs a gateway with this configuration, and logs so much.
    pub fn command(mut inside: Command, config: &Path, log: &str) -> Command {
        inside.arg("run").arg("--config").arg(config).args(["--log", log]);
        inside
    }

    /// What its log tells of connections, in order. Nothing, unless it was started to do so.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn told(&self) -> Result<Vec<Told>> {
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("{} cannot be read", self.log.display()))?;
        Ok(text.lines().filter_map(Told::read).collect())
    }

    /// Waits until it answers on its socket: then its diversion stands, and it may listen for some
    /// time before. An error quotes its log.
    pub fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + START_PATIENCE;
        loop {
            if self.status().is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway on {} ended at once ({status}):\n{}", self.node, self.last_words());
            }
            if Instant::now() >= end {
                bail!("the gateway on {} does not answer:\n{}", self.node, self.last_words());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What `farlink status --json` says.
    pub fn status(&self) -> Result<Value> {
        self.ask(&["status", "--json"])
    }

    /// What `farlink flows --json` says.
    pub fn flows(&self) -> Result<Value> {
        self.ask(&["flows", "--json", "--limit", "100000"])
    }

    /// Tells it that its links are there, or away, as who follows a contact plan does.
    ///
    /// # Errors
    /// It does not answer.
    pub fn announce(&self, up: bool) -> Result<()> {
        let status = self.status()?;
        let links = status.get("links").and_then(Value::as_array).into_iter().flatten();
        for name in links.filter_map(|link| link.get("name")?.as_str()) {
            self.call(&["set", &format!("link.{name}.contact"), &up.to_string()])?;
        }
        Ok(())
    }

    fn ask(&self, words: &[&str]) -> Result<Value> {
        let text = self.call(words)?;
        serde_json::from_str(&text).with_context(|| format!("the gateway on {} answers no JSON", self.node))
    }

    /// What a command of the program says about it.
    fn call(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(sh::farlink_binary()?);
        command.args(words).arg("--socket").arg(&self.socket);
        // One that is gone said last why.
        sh::output(command).with_context(|| {
            format!("the gateway on {}, whose log ends with `{}`", self.node, self.last_words())
        })
    }

    /// A counter or gauge of the engine, by its path below `engine`, e.g. `counters.flows_split`.
    pub fn engine_number(&self, path: &str) -> Result<u64> {
        let status = self.status()?;
        number_at(&status, path).with_context(|| {
            format!("the status of the gateway on {} has no number `engine.{path}`", self.node)
        })
    }

    /// Waits for its end after a signal; `None` when it does not come.
    pub fn wait_end(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The last lines of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        crate::process::last_words(&self.log)
    }
}

/// A line of the log of connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The hosts.
    pub flow: FlowKey,
    /// What became of it.
    pub what: String,
}

impl Told {
    /// `None`: the line is about something else.
    fn read(line: &str) -> Option<Self> {
        let (_, line) = line.split_once("DEBUG ")?;
        let (what, fields) = line.split_once(" client=")?;
        let (client, fields) = fields.split_once(" server=")?;
        let server = fields.split(' ').next()?;
        let flow = FlowKey::between(client.parse().ok()?, server.parse().ok()?);
        Some(Self { flow, what: what.trim().into() })
    }
}

fn number_at(status: &Value, path: &str) -> Option<u64> {
    // The engine's part may stand at the top or below the gateway's snapshot.
    let engine = status.get("engine").or_else(|| status.get("gateway")?.get("engine")).unwrap_or(status);
    path.split('.').try_fold(engine, |at, key| at.get(key))?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_declares_the_link_in_its_direction() {
        let mut lab = Settings::default();
        lab.set_all(["rate=8M", "rate_up=128k", "memory=4MB"]).unwrap();
        let t = Topology::named("line", &lab).unwrap();
        let of = |name: &str, lab: &Settings| -> toml::Table {
            let text = config_text(&t, t.index(name).unwrap(), lab, Path::new("/s")).unwrap();
            toml::from_str(&text).unwrap()
        };
        let (gw1, gw2) = (of("gw1", &lab), of("gw2", &lab));
        assert_eq!(gw1["link"][0]["rate_bps"].as_integer(), Some(128_000));
        assert_eq!(gw2["link"][0]["rate_bps"].as_integer(), Some(8_000_000));
        assert_eq!(gw1["link"][0]["rate_in"].as_str(), Some("8000000 bit/s"));
        assert_eq!(gw2["link"][0]["rate_in"].as_str(), Some("128000 bit/s"));
        assert_eq!(gw1["interface"][0]["name"].as_str(), Some("to-client"));
        assert_eq!(gw2["interface"][0]["name"].as_str(), Some("to-server"));
        assert_eq!(gw1["limits"]["pool_bytes"].as_integer(), Some(4_000_000));
        assert!(gw2["link"][0].get("initial_window_segments").is_none());
        lab.rate_in_known = false;
        for gateway in ["gw1", "gw2"] {
            let link = &of(gateway, &lab)["link"][0];
            assert!(link.get("rate_bps").is_some() && link.get("rate_in").is_none(), "{link}");
        }
        lab.set_all(["told_rates=gw1=32k gw2=none", "rate_in_known=true"]).unwrap();
        assert_eq!(of("gw1", &lab)["link"][0]["rate_bps"].as_integer(), Some(32_000));
        assert_eq!(of("gw1", &lab)["link"][0]["rate_in"].as_str(), Some("8000000 bit/s"));
        let silent = &of("gw2", &lab)["link"][0];
        assert!(silent.get("rate_bps").is_none() && silent.get("rate_in").is_none(), "{silent}");
        lab.set_all(["told_rates=gw1=swapped gw2=120%"]).unwrap();
        assert_eq!(of("gw1", &lab)["link"][0]["rate_bps"].as_integer(), Some(8_000_000));
        assert_eq!(of("gw1", &lab)["link"][0]["rate_in"].as_str(), Some("128000 bit/s"));
        assert_eq!(of("gw2", &lab)["link"][0]["rate_bps"].as_integer(), Some(9_600_000));
        lab.told_rates.clear();
        lab.link_iw = 4;
        assert_eq!(of("gw2", &lab)["link"][0]["initial_window_segments"].as_integer(), Some(4));
        lab.rate_known = false;
        assert!(of("gw2", &lab)["link"][0].get("rate_bps").is_none());
        assert_eq!(of("gw2", &lab)["link"][0]["rtt_ms"].as_integer(), Some(500));
        lab.rtt_known = false;
        assert!(of("gw2", &lab)["link"][0].get("rtt_ms").is_none());
    }

    #[test]
    fn extra_lines_go_where_the_format_wants_them() {
        let mut lab = Settings { mode: Mode::Forward, ..Settings::default() };
        lab.gateway_config =
            "drain_timeout = \"5s\"\n[[rule]]\nname = \"ssh\"\nports = [22]\naction = \"pass\"\n".into();
        let t = Topology::named("line", &lab).unwrap();
        let text = config_text(&t, 1, &lab, Path::new("/s")).unwrap();
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(parsed["drain_timeout"].as_str(), Some("5s"));
        assert_eq!(parsed["default_action"].as_str(), Some("pass"));
        assert_eq!(parsed["rule"][0]["name"].as_str(), Some("ssh"));
        lab.link_config = "traffic = \"everything\"".into();
        let text = config_text(&t, 1, &lab, Path::new("/s")).unwrap();
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(parsed["link"][0]["traffic"].as_str(), Some("everything"));
        assert_eq!(parsed["rule"][0]["name"].as_str(), Some("ssh"));
    }

    #[test]
    fn of_a_gateway_that_is_gone_the_last_words_are_told() {
        let directory = std::env::temp_dir().join(format!("farlink-last-words-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let log = directory.join("gw2.log");
        std::fs::write(&log, "it began\nit saw the end coming\n").unwrap();
        let child = Command::new("true").spawn().unwrap();
        let process = Recorded::of(child.id(), "gw2");
        let (socket, config) = (directory.join("gw2.sock"), directory.join("gw2.toml"));
        let mut gateway = Gateway { node: "gw2".into(), process, socket, config, log, child };
        gateway.child.wait().unwrap();
        let told = format!("{:#}", gateway.status().unwrap_err());
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(told.contains("the gateway on gw2") && told.contains("it saw the end coming"), "{told}");
    }

    #[test]
    fn the_log_of_connections_is_read() {
        let line =
            "2026-01-02T03:04:05.6Z DEBUG asleep client=10.0.0.1:40000 server=10.0.0.2:80 to_server_bytes=5";
        let told = Told::read(line).expect("a line about a connection");
        assert_eq!(
            (told.flow.arrow(true).as_str(), told.what.as_str()),
            ("10.0.0.1:40000 > 10.0.0.2:80", "asleep")
        );
        let turned = Told::read("DEBUG split client=[fd00::2]:9 server=[fd00::1]:80").expect("of IPv6");
        assert_eq!(turned.flow.arrow(true), "[fd00::1]:80 > [fd00::2]:9");
        assert_eq!(Told::read("2026-01-02T03:04:05.6Z  INFO diverting socket=/s"), None);
    }
}
