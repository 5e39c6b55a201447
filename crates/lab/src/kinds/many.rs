//! Many transfers at once, both ways: what the kinds with faults have under way when the fault
//! comes.

use std::time::Duration;

use anyhow::Result;

use super::session::PORT;
use crate::build::Lab;
use crate::scenario::{Cell, Scenario};
use crate::workload::{Direction, Outcome, Transfer};

/// A transfer that stands still for so long hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// `options.downloads` transfers of `size_bytes` from the server and `options.uploads` of
/// `options.upload_bytes` (or the same) to it. A cell with `flows` has so many downloads, and no
/// uploads.
pub(super) fn transfers(scenario: &Scenario, cell: &Cell, lab: &Lab, seed: u64) -> Result<Vec<Transfer>> {
    let to = lab.address("server", cell.v6())?;
    let (downloads, uploads) = match cell.number("flows", 0) {
        0 => (scenario.option("downloads", 1.0)? as u64, scenario.option("uploads", 0.0)? as u64),
        flows => (flows, 0),
    };
    let size = cell.number("size_bytes", 1_000_000);
    let upload_bytes = scenario.option("upload_bytes", size as f64)? as u64;
    let transfers = (0..downloads + uploads).map(|number| {
        let (direction, bytes) = match number < downloads {
            true => (Direction::Download, size),
            false => (Direction::Upload, upload_bytes),
        };
        let seed = seed.wrapping_mul(1000).wrapping_add(number);
        Transfer {
            direction,
            patience: PATIENCE,
            ..Transfer::download(lab.ns("client"), to, PORT, bytes, seed)
        }
    });
    Ok(transfers.collect())
}

/// How many of these were under way at a time, in seconds since the call: opened and not ended.
pub(super) fn under_way(outcomes: &[Outcome], at_s: f64) -> usize {
    outcomes.iter().filter(|o| o.began_s + o.connect_seconds < at_s && at_s < o.ended_s).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_way_is_between_the_handshake_and_the_end() {
        let outcome = Outcome { began_s: 1.0, connect_seconds: 0.5, ended_s: 3.0, ..Outcome::default() };
        let at = |s| under_way(std::slice::from_ref(&outcome), s);
        assert_eq!((at(1.2), at(2.0), at(3.5)), (0, 1, 0));
    }
}
