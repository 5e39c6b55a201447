//! Reads the live counters: what came in by the interfaces (the kernel's own), and what the gateway
//! got and did with it. And which interfaces it does not see.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use farlink_linux::divert::{self, Count};
use farlink_linux::driver::{By, Finder, found_by};
use farlink_linux::netlink::Socket;
use serde_json::Value;

use super::Running;
use crate::admin::client::ask_within;
use crate::admin::protocol::Request;

/// How long the gateway may take for an answer: the whole check must end two seconds after it has
/// listened.
pub const PATIENCE: Duration = Duration::from_millis(800);
/// So many connections show what there is to see.
const FLOWS_MAX: usize = 1000;

/// Counters at one time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Counters of the nftables table; `None` when they cannot be read.
    pub counters: Option<BTreeMap<String, Count>>,
    /// The gateway's own snapshot.
    pub status: Value,
    /// Connections, some of them; nothing at the beginning.
    pub flows: Value,
    /// Nothing at the beginning.
    pub machine: Machine,
}

/// Interfaces beside those that are diverted.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// They forward, and are not diverted.
    pub left_out: Vec<String>,
    /// Interfaces that stand on others (VLANs), each with the other one.
    pub stands_on: Vec<(String, String)>,
}

impl Machine {
    /// Nothing, where the kernel does not answer.
    fn look(running: &Running) -> Self {
        let is_diverted = |name: &String| running.interfaces.iter().any(|i| i.name == *name);
        let forwarding = [Finder { by: By::Forwarding, domain: 0, attach: false, divert: true }];
        let left_out = found_by(&forwarding).unwrap_or_default();
        let links = Socket::open().and_then(|mut socket| socket.links()).unwrap_or_default();
        let name_of = |index| links.iter().find(|l| l.index == index).map(|l| l.name.clone());
        let stands_on = links.iter().filter_map(|l| Some((l.name.clone(), name_of(l.parent?)?)));
        Self {
            left_out: left_out.into_iter().filter(|name| !is_diverted(name)).collect(),
            stands_on: stands_on.collect(),
        }
    }

    /// What stands on this interface.
    pub fn standing_on(&self, interface: &str) -> Vec<String> {
        self.stands_on.iter().filter(|(_, on)| on == interface).map(|(name, _)| name.clone()).collect()
    }
}

/// Samples at the beginning and at the end of so many seconds. Connections are listed at the end.
pub fn listen(socket: &Path, running: &Running, seconds: u64) -> anyhow::Result<(Sample, Sample)> {
    let before = sample(socket, running)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let mut after = sample(socket, running)?;
    after.flows = ask_within(socket, &Request::Flows { limit: FLOWS_MAX }, PATIENCE)?;
    after.machine = Machine::look(running);
    Ok((before, after))
}

fn sample(socket: &Path, running: &Running) -> anyhow::Result<Sample> {
    Ok(Sample {
        counters: divert::counters(&running.divert()).ok(),
        status: ask_within(socket, &Request::Status {}, PATIENCE)?,
        ..Sample::default()
    })
}
