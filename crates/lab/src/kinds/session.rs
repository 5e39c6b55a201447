//! A laboratory with its captures and its server: what nearly every kind begins and ends with.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use portable_atomic::AtomicU64;

use super::{Run, metrics};
use crate::build::{Lab, Life};
use crate::capture::{Extent, Findings, Options, Watch};
use crate::report::Measured;
use crate::scenario::Cell;
use crate::settings::Settings;
use crate::workload::{Outcome, Served, Server, Transfer, run_all};

/// Port of the servers of seeded bytes.
pub(super) const PORT: u16 = 5001;
/// How long a server may take to notice the end of a transfer.
const REPORT_PATIENCE: Duration = Duration::from_secs(20);
/// How long a server may take to hear that its client's connection was reset.
const SERVER_PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct Session {
    pub(super) lab: Lab,
    pub(super) servers: Vec<(String, Server)>,
    watch: Watch,
}

/// What a session may do beyond the usual.
#[derive(Clone, Copy, Default)]
pub(super) struct Allowed {
    /// A gateway may reset the hosts of connections whose custody is lost.
    pub(super) resets: bool,
    /// How much of each packet is captured.
    pub(super) extent: Extent,
}

impl Session {
    /// Puts up the topology that the cell wants, with a server on every server's node.
    pub(super) fn start(
        topology: &str,
        settings: &Settings,
        cell: &Cell,
        run: &Run<'_>,
        allowed: Allowed,
    ) -> Result<Self> {
        let settings = Settings { seed: run.seed, ..settings.clone() };
        let lab = Lab::up(cell.word("topology", topology), &settings, &run.prefix, Life::WithUs)?;
        let options = Options {
            allows_resets: allowed.resets,
            keeps_moments: run.keeps_moments,
            extent: allowed.extent,
            files: run.captures.clone(),
        };
        let watch = Watch::start(&lab, &options)?;
        let mut servers = Vec::new();
        for (a, b) in &lab.topology.pairs {
            // Both ends serve: connections may be opened from either side.
            for node in [a, b] {
                if !servers.iter().any(|(n, _)| n == node) {
                    servers.push((node.clone(), Server::start(&lab.ns(node), PORT)?));
                }
            }
        }
        Ok(Self { lab, servers, watch })
    }

    /// Runs transfers, showing how far they are, with something to do meanwhile on this thread.
    pub(super) fn transfer<T>(
        &mut self,
        transfers: &[Transfer],
        run: &Run<'_>,
        during: impl FnOnce(&mut Lab) -> T,
    ) -> (Vec<Outcome>, T) {
        self.transfer_counted(transfers, run, |lab, _| during(lab))
    }

    /// The same; what is done meanwhile sees how many payload bytes have arrived.
    pub(super) fn transfer_counted<T>(
        &mut self,
        transfers: &[Transfer],
        run: &Run<'_>,
        during: impl FnOnce(&mut Lab, &AtomicU64) -> T,
    ) -> (Vec<Outcome>, T) {
        let progress = run.progress.bytes(transfers.iter().map(|t| t.bytes).sum());
        let lab = &mut self.lab;
        run_all(transfers, &progress.count, || during(lab, &progress.count))
    }

    /// What the server on a node says of these connections; nothing of those it does not know.
    pub(super) fn served(&self, node: &str, outcomes: &[Outcome]) -> Vec<Served> {
        let server = self.servers.iter().find(|(n, _)| n == node);
        let report = |o: &Outcome| {
            // Of a connection that the client has seen fail the server may never hear.
            let patience = if o.error.is_none() { REPORT_PATIENCE } else { Duration::ZERO };
            server.and_then(|(_, s)| s.report(o.local?, patience))
        };
        outcomes.iter().map(|o| report(o).unwrap_or_default()).collect()
    }

    /// Whether the server on `server` hears soon that the connection from this address is over.
    pub(super) fn server_hears(&self, client: SocketAddr) -> bool {
        let server = self.servers.iter().find(|(node, _)| node == "server");
        server.is_some_and(|(_, s)| s.report(client, SERVER_PATIENCE).is_some())
    }

    /// Reads all counters, judges the captures and takes the laboratory down.
    pub(super) fn finish(self, cell: &Cell, measured: &mut Measured) -> Result<Findings> {
        metrics::of_links(&self.lab, measured);
        metrics::of_gateways(cell, &self.lab, measured);
        let findings = self.watch.finish()?;
        metrics::of_captures(cell, &findings, measured);
        self.lab.down()?;
        Ok(findings)
    }
}

/// Every transfer intact, or a failure that names it.
pub(super) fn expect_intact(measured: &mut Measured, outcomes: &[Outcome]) {
    for (number, outcome) in outcomes.iter().enumerate() {
        measured.expect(outcome.intact, || {
            format!("transfer {number}: {}", outcome.error.as_deref().unwrap_or("not intact"))
        });
    }
    measured.bytes += outcomes.iter().map(|o| o.bytes).sum::<u64>();
    measured.seconds = outcomes.iter().map(|o| o.ended_s - o.began_s).fold(measured.seconds, f64::max);
}
