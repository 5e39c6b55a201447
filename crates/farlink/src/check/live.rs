//! Reads the live counters: what came in by the interfaces (the kernel's own), and what the gateway
//! got and did with it. And which interfaces it does not see.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use farlink_linux::divert::{self, Count, Diagnosis};
use farlink_linux::driver::that_forward;
use farlink_linux::netlink::Socket;
use farlink_linux::openings::Openings;
use serde_json::Value;

use super::Running;
use crate::admin::client::ask_within;
use crate::admin::protocol::Request;
use crate::view::{list, text};

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
    /// What of this machine passes the gateway by.
    pub machine: Machine,
    /// Connections that this machine itself has dropped meanwhile; nothing at the beginning.
    pub dropped: Vec<Diagnosis>,
}

/// Interfaces, as far as the gateway does not see what they carry.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// They forward and are not diverted, with the packets that have come in by each.
    pub left_out: Vec<(String, u64)>,
    /// Interfaces that stand on others (VLANs), each with the other one.
    pub stands_on: Vec<(String, String)>,
    /// Names of those by which everything that leaves is taken.
    pub whole: Vec<String>,
}

impl Machine {
    /// Little, where the kernel does not answer. An interface that was renamed has its new name in
    /// the `status`.
    fn look(running: &Running, status: &Value) -> Self {
        let links = Socket::open().and_then(|mut socket| socket.links()).unwrap_or_default();
        let called = |i: &Value| ["/called", "/name"].map(|key| text(i, key));
        let diverted: Vec<String> = list(status, "/interfaces").iter().flat_map(called).collect();
        let left_out = that_forward(&links).filter(|link| !diverted.contains(&link.name));
        let name_of = |index| links.iter().find(|l| l.index == index).map(|l| l.name.clone());
        let stands_on = links.iter().filter_map(|l| Some((l.name.clone(), name_of(l.parent?)?)));
        let whole = running.whole.iter().flat_map(|called| {
            let is_it = |i: &&Value| text(i, "/called") == *called;
            let name = list(status, "/interfaces").iter().find(is_it).map(|i| text(i, "/name"));
            name.into_iter().chain([called.clone()])
        });
        Self {
            left_out: left_out.map(|link| (link.name.clone(), link.rx_packets)).collect(),
            stands_on: stands_on.collect(),
            whole: whole.collect(),
        }
    }

    /// What stands on this interface.
    pub fn standing_on(&self, interface: &str) -> Vec<String> {
        self.stands_on.iter().filter(|(_, on)| on == interface).map(|(name, _)| name.clone()).collect()
    }

    /// By these so many packets or more have come in since, that are not diverted: the busiest
    /// first.
    pub fn busy_since(&self, before: &Self, packets_min: u64) -> Vec<String> {
        let grown = |(name, now): &(String, u64)| {
            let then = before.left_out.iter().find(|(of, _)| of == name).map_or(*now, |(_, then)| *then);
            Some((now.saturating_sub(then), name.clone())).filter(|(grown, _)| *grown >= packets_min.max(1))
        };
        let mut busy: Vec<_> = self.left_out.iter().filter_map(grown).collect();
        busy.sort_by(|a, b| b.cmp(a));
        busy.into_iter().map(|(_, name)| name).collect()
    }
}

/// Samples at the beginning and at the end of so many seconds. Connections are listed at the end.
/// `hears`: openings of connections are listened to, too, which costs the machine a little for each
/// packet meanwhile.
pub fn listen(
    socket: &Path,
    running: &Running,
    seconds: u64,
    hears: bool,
) -> anyhow::Result<(Sample, Sample)> {
    // Without the privilege less is known.
    let openings = hears.then(Openings::listen).and_then(Result::ok);
    let before = sample(socket, running)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let mut after = sample(socket, running)?;
    after.flows = ask_within(socket, &Request::Flows { limit: FLOWS_MAX }, PATIENCE)?;
    let interfaces: Vec<_> = running.interfaces.iter().map(|i| i.name.clone()).collect();
    after.dropped = openings.map_or_else(Vec::new, |heard| divert::dropped(&heard.heard(), &interfaces));
    Ok((before, after))
}

fn sample(socket: &Path, running: &Running) -> anyhow::Result<Sample> {
    let status = ask_within(socket, &Request::Status {}, PATIENCE)?;
    Ok(Sample {
        counters: divert::counters(&running.divert()).ok(),
        machine: Machine::look(running, &status),
        status,
        flows: Value::Null,
        dropped: Vec::new(),
    })
}
