//! Other people's proxies beside ours, where they are installed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::Lab;
use crate::process::Started;
use crate::scenario::Cell;
use crate::sh;

/// The gateway of Reynolds' paper, which there is in the simulator alone.
pub(crate) const TCP_STORE: &str = "tcpstore";
const KNOWN: &str = "haproxy, pepsal and, in the simulator, tcpstore";
/// The port at which HAProxy takes what is diverted to it.
const HAPROXY_PORT: u16 = 8888;
/// And PEPsal.
const PEPSAL_PORT: u16 = 5000;
/// Mark and routing table of the diversion.
const MARK: u32 = 77;
/// How long HAProxy may take to start.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// Why the baseline of a cell cannot run here, in words.
#[must_use]
pub fn cannot_run(cell: &Cell) -> Option<String> {
    let missing = |program: &str| sh::find(program).is_none();
    match cell.word("baseline", "") {
        "" => None,
        "haproxy" => missing("haproxy").then(|| "haproxy is not installed".into()),
        "pepsal" => cannot_run_pepsal(&cell.settings.pepsal),
        TCP_STORE => Some("the gateway of a paper; it exists in the simulator only".into()),
        other => Some(format!("unknown baseline `{other}`; known are {KNOWN}")),
    }
}

/// Starts the baseline of a cell, if it has one. `true` when it has.
pub fn start(lab: &mut Lab, cell: &Cell, port: u16) -> Result<bool> {
    match cell.word("baseline", "") {
        "" => return Ok(false),
        "haproxy" => haproxy(lab, "gw2", port)?,
        // On both sides of the link, as its authors use it.
        "pepsal" => ["gw1", "gw2"].into_iter().try_for_each(|node| pepsal(lab, node, port))?,
        other => bail!("unknown baseline `{other}`; known are {KNOWN}"),
    }
    Ok(true)
}

/// HAProxy in transparent mode on a node, for the server's `port`: connections are diverted to it
/// (TPROXY) and it connects onwards from the client's address and port (`usesrc client`). Its
/// congestion control is that of the hosts.
fn haproxy(lab: &mut Lab, node: &str, port: u16) -> Result<()> {
    let config = lab.directory().join("haproxy.cfg");
    std::fs::write(&config, haproxy_config())?;
    divert(lab, node, "haproxy", port, HAPROXY_PORT)?;
    let path = config.to_string_lossy().into_owned();
    let haproxy = lab.start(node, "haproxy", &["-db", "-f", &path])?;
    wait_for(lab, node, HAPROXY_PORT, &haproxy)
}

/// Why PEPsal cannot run, in words: it comes from nowhere but the path in the setting `pepsal`.
fn cannot_run_pepsal(path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("no PEPsal program is named; `--set pepsal=PATH` names one".into());
    }
    (!Path::new(path).is_file()).then(|| format!("there is no PEPsal program {path}"))
}

/// PEPsal on a node, with its defaults and the hosts' congestion control.
fn pepsal(lab: &mut Lab, node: &str, port: u16) -> Result<()> {
    divert(lab, node, "pepsal", port, PEPSAL_PORT)?;
    let program = lab.settings.pepsal.clone();
    let pepsal = lab.start(node, &program, &["-p", &PEPSAL_PORT.to_string()])?;
    wait_for(lab, node, PEPSAL_PORT, &pepsal)
}

/// Diverts connections to the server's `port` that pass a node to a proxy there (TPROXY), whose own
/// have the hosts' congestion control.
fn divert(lab: &Lab, node: &str, proxy: &str, port: u16, to: u16) -> Result<()> {
    let ns = lab.ns(node);
    let rules = lab.directory().join(format!("{proxy}-{node}.nft"));
    std::fs::write(&rules, tproxy_rules(proxy, port, to))?;
    let path = rules.to_string_lossy().into_owned();
    ns.run("nft", &["-f", &path]).with_context(|| format!("diversion to {proxy}"))?;
    for v6 in [false, true] {
        let lines = [
            format!("rule add fwmark {MARK} lookup {MARK}"),
            format!("route add local default dev lo table {MARK}"),
        ];
        ns.ip_batch(v6, &lines)?;
    }
    lab.set_congestion_control(node)
}

/// Waits until a proxy listens; an error quotes it.
fn wait_for(lab: &Lab, node: &str, port: u16, proxy: &Started) -> Result<()> {
    let end = Instant::now() + START_PATIENCE;
    while !listens(lab, node, port)? {
        if !proxy.process.is_alive() || Instant::now() >= end {
            bail!("{} does not start: {}", proxy.process.what, proxy.last_words());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether somebody listens on a TCP port of a node.
pub fn listens(lab: &Lab, node: &str, port: u16) -> Result<bool> {
    // Column 2 is the local address with its port, column 4 the state (0A: LISTEN).
    let wanted = format!(":{port:04X}");
    lab.ns(node).enter(|| {
        let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
        Ok(tables.iter().filter_map(|t| std::fs::read_to_string(t).ok()).any(|text| {
            text.lines().any(|line| {
                let columns: Vec<_> = line.split_ascii_whitespace().collect();
                columns.len() > 3 && columns[1].ends_with(&wanted) && columns[3] == "0A"
            })
        }))
    })
}

fn haproxy_config() -> String {
    format!(
        "global\n  maxconn 5000\ndefaults\n  mode tcp\n  timeout connect 60s\n  timeout client 1h\n  timeout server 1h\n\
         listen v4\n  bind 0.0.0.0:{HAPROXY_PORT} transparent\n  source 0.0.0.0 usesrc client\n  server any 0.0.0.0:0\n\
         listen v6\n  bind :::{HAPROXY_PORT} transparent v6only\n  source :::0 usesrc client\n  server any :::0\n"
    )
}

fn tproxy_rules(proxy: &str, port: u16, to: u16) -> String {
    format!(
        "table inet {proxy} {{\n chain divert {{\n  type filter hook prerouting priority mangle; policy accept;\n  \
         meta l4proto tcp socket transparent 1 meta mark set {MARK} accept\n  \
         meta nfproto ipv4 tcp dport {port} tproxy ip to :{to} meta mark set {MARK} accept\n  \
         meta nfproto ipv6 tcp dport {port} tproxy ip6 to :{to} meta mark set {MARK} accept\n }}\n}}\n"
    )
}
