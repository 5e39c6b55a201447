//! `tracked`: a reader with a small window that stops, behind a router that tracks connections.
//! What is beyond its window then never reaches it: the router drops it, or takes it for its own
//! and resets the connection.

use std::time::Duration;

use anyhow::Result;
use portable_atomic::AtomicU64;

use super::session::PORT;
use super::{Kind, Run};
use crate::build::{Lab, Life};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::sh;
use crate::workload::{Server, Transfer};

/// Its receive buffer; Linux shows about as much.
const BUFFER_BYTES: u32 = 64 << 10;
/// It stops for so long.
const STOPS_FOR: Duration = Duration::from_secs(3);
/// It may stand still for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct TrackedKind;

impl Kind for TrackedKind {
    fn cannot_run(&self, _: &Cell) -> Option<String> {
        sh::find("nft").is_none().then(|| "nft is not installed".into())
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let lab = Lab::up(&scenario.topology, &cell.settings, &run.prefix, Life::WithUs)?;
        let _server = Server::start(&lab.ns("server"), PORT)?;
        let bytes = cell.number("size_bytes", 1_000_000);
        let mut measured = Measured::default();
        let (stops, reads) = (Some((bytes / 2, STOPS_FOR)), None);
        // What is timed is the last.
        let transfers = match cell.word("case", "") {
            "first" => vec![Some((1, STOPS_FOR))],
            "seen" => vec![reads, stops],
            "after" => vec![reads, stops, stops],
            _ => vec![reads, reads],
        };
        for stops in transfers {
            let mut transfer =
                Transfer { stops, patience: PATIENCE, ..download(&lab, cell, bytes, run.seed)? };
            transfer.options.receive_buffer_bytes = BUFFER_BYTES;
            let outcome = transfer.run(&AtomicU64::new(0));
            measured.expect(outcome.intact, || outcome.error.clone().unwrap_or_else(|| "not intact".into()));
            measured.bytes += outcome.bytes;
            measured.seconds = outcome.seconds;
        }
        for gateway in &lab.gateways {
            for name in ["ahead_refused", "resets_doubted", "flows_reset"] {
                measured.metric(name, gateway.engine_number(&format!("counters.{name}"))? as f64);
            }
        }
        lab.down()?;
        Ok(measured)
    }
}

fn download(lab: &Lab, cell: &Cell, bytes: u64, seed: u64) -> Result<Transfer> {
    Ok(Transfer::download(lab.ns("client"), lab.address("server", cell.v6())?, PORT, bytes, seed))
}
