//! Reads the live counters: what came in by the interfaces (the kernel's own), and what the gateway
//! got and did with it.

use std::collections::BTreeMap;
use std::path::Path;

use farlink_linux::divert::{self, Count};
use serde_json::Value;

use super::Running;
use crate::admin::client::ask;
use crate::admin::protocol::Request;

/// Counters at one time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Counters of the nftables table; `None` when they cannot be read.
    pub counters: Option<BTreeMap<String, Count>>,
    /// The gateway's own snapshot.
    pub status: Value,
}

/// Takes a sample.
pub fn sample(socket: &Path, running: &Running) -> anyhow::Result<Sample> {
    Ok(Sample {
        counters: divert::counters(&running.divert()).ok(),
        status: ask(socket, &Request::Status {})?,
    })
}
