//! Other people's proxies beside ours, where they are installed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::Lab;

/// The port at which HAProxy takes what is diverted to it.
const PORT: u16 = 8888;
/// Mark and routing table of the diversion.
const MARK: u32 = 77;
/// How long HAProxy may take to start.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// HAProxy in transparent mode on a node, for the server's `port`: connections are diverted to it (TPROXY) and it
/// connects onwards from the client's address and port (`usesrc client`). Its congestion control is that of the hosts.
pub fn haproxy(lab: &mut Lab, node: &str, port: u16) -> Result<()> {
    let config = lab.directory().join("haproxy.cfg");
    std::fs::write(&config, haproxy_config())?;
    let ns = lab.ns(node);
    let rules = lab.directory().join("haproxy.nft");
    std::fs::write(&rules, tproxy_rules(port))?;
    let path = rules.to_string_lossy().into_owned();
    ns.run("nft", &["-f", &path]).context("diversion to HAProxy")?;
    for v6 in [false, true] {
        let lines = [
            format!("rule add fwmark {MARK} lookup {MARK}"),
            format!("route add local default dev lo table {MARK}"),
        ];
        ns.ip_batch(v6, &lines)?;
    }
    lab.set_congestion_control(node)?;
    let path = config.to_string_lossy().into_owned();
    let haproxy = lab.start(node, "haproxy", &["-db", "-f", &path])?;
    let end = Instant::now() + START_PATIENCE;
    while !listens(lab, node, PORT)? {
        if !haproxy.process.is_alive() || Instant::now() >= end {
            bail!("HAProxy does not start: {}", haproxy.last_words());
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
         listen v4\n  bind 0.0.0.0:{PORT} transparent\n  source 0.0.0.0 usesrc client\n  server any 0.0.0.0:0\n\
         listen v6\n  bind :::{PORT} transparent v6only\n  source :::0 usesrc client\n  server any :::0\n"
    )
}

fn tproxy_rules(port: u16) -> String {
    format!(
        "table inet haproxy {{\n chain divert {{\n  type filter hook prerouting priority mangle; policy accept;\n  \
         meta l4proto tcp socket transparent 1 meta mark set {MARK} accept\n  \
         meta nfproto ipv4 tcp dport {port} tproxy ip to :{PORT} meta mark set {MARK} accept\n  \
         meta nfproto ipv6 tcp dport {port} tproxy ip6 to :{PORT} meta mark set {MARK} accept\n }}\n}}\n"
    )
}
