//! What people and scripts use in a standing laboratory: the server and the client of seeded bytes,
//! and its description in words.

use std::fmt::Write;
use std::net::IpAddr;

use anyhow::{Result, bail};
use portable_atomic::AtomicU64;
use serde_json::json;

use crate::build::Lab;
use crate::netns::Ns;
use crate::workload::socket::Options;
use crate::workload::{Direction, Server, Transfer};

/// Names and addresses of a laboratory, for people.
#[must_use]
pub fn describe(lab: &Lab) -> String {
    let described = lab.describe();
    let mut text = format!("{:18} {:8} {:12} {:16} {}\n", "namespace", "role", "interface", "IPv4", "IPv6");
    for namespace in described["namespaces"].as_array().into_iter().flatten() {
        let word = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_string();
        let (mut name, mut role) = (word(&namespace["name"]), word(&namespace["role"]));
        if namespace.get("farlink").is_some() {
            role = "farlink".into();
        }
        for interface in namespace["interfaces"].as_array().into_iter().flatten() {
            let (device, v4, v6) =
                (word(&interface["name"]), word(&interface["ipv4"]), word(&interface["ipv6"]));
            let _ = writeln!(text, "{name:18} {role:8} {device:12} {v4:16} {v6}");
            (name, role) = (String::new(), String::new());
        }
    }
    let client = lab.ns("client");
    if let Ok(server) = lab.address("server", false) {
        let _ = writeln!(text, "\ntry:  ip netns exec {} ping {server}", client.name());
    }
    for gateway in &lab.gateways {
        let _ = writeln!(text, "      farlink status --socket {}", gateway.socket.display());
    }
    let _ = writeln!(text, "end:  farlink lab down --prefix {}", lab.prefix());
    text
}

/// Serves seeded bytes in the present namespace until it is killed.
pub fn serve(port: u16) -> Result<()> {
    let _server = Server::start(&Ns::current(), port)?;
    loop {
        std::thread::park();
    }
}

/// One transfer in the present namespace; what was measured as a line of JSON.
pub fn fetch(server: IpAddr, port: u16, bytes: u64, upload: bool, cc: &str, seed: u64) -> Result<String> {
    let transfer = Transfer {
        direction: if upload { Direction::Upload } else { Direction::Download },
        options: Options { congestion_control: cc.into(), ..Options::default() },
        ..Transfer::download(Ns::current(), server, port, bytes, seed)
    };
    let outcome = transfer.run(&AtomicU64::new(0));
    if let Some(error) = outcome.error {
        bail!(error);
    }
    Ok(json!({
        "seconds": outcome.seconds,
        "connect_seconds": outcome.connect_seconds,
        "bytes": outcome.bytes,
        "goodput_bps": outcome.bytes as f64 * 8.0 / outcome.seconds,
        "retransmits": outcome.info.retransmits,
        "intact": outcome.intact,
    })
    .to_string())
}
