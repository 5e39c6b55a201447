//! Reads the live counters: what came in by the interfaces (the kernel's own), and what the gateway
//! got and did with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use farlink_linux::divert::{self, Count};
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
}

/// Samples at the beginning and at the end of so many seconds. Connections are listed at the end.
pub fn listen(socket: &Path, running: &Running, seconds: u64) -> anyhow::Result<(Sample, Sample)> {
    let before = sample(socket, running)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let mut after = sample(socket, running)?;
    after.flows = ask_within(socket, &Request::Flows { limit: FLOWS_MAX }, PATIENCE)?;
    Ok((before, after))
}

fn sample(socket: &Path, running: &Running) -> anyhow::Result<Sample> {
    Ok(Sample {
        counters: divert::counters(&running.divert()).ok(),
        status: ask_within(socket, &Request::Status {}, PATIENCE)?,
        flows: Value::Null,
    })
}
