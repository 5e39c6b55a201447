//! `notices`: what a source does while a link is away for five seconds and a box before it keeps
//! what it sends. In the laboratory the source is the kernel's, in the simulator a simulated host,
//! on the same bench ([`farlink_sim::linux::notices`]).

mod kernel;

use anyhow::{Result, anyhow};
use farlink_sim::linux::congestion::Kind as Congestion;
use farlink_sim::linux::notices::{Notice, SEGMENT_BYTES, Seen, simulate};

use super::{Kind, Run};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// Name of this kind.
pub(crate) const NAME: &str = "notices";

/// See the module.
pub(super) struct NoticesKind;

impl Kind for NoticesKind {
    fn run(&mut self, _: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let seen = kernel::measure(notice(cell)?, &cell.settings.host_cc, &run.prefix)?;
        Ok(measured(&seen))
    }
}

/// A cell with a simulated source.
pub(crate) fn simulated(cell: &Cell) -> Result<Measured> {
    let congestion: Congestion = cell.settings.host_cc.parse().map_err(|e: String| anyhow!(e))?;
    let seen = simulate(notice(cell)?, congestion).map_err(|e| anyhow!(e))?;
    Ok(measured(&seen))
}

fn notice(cell: &Cell) -> Result<Notice> {
    cell.word("case", Notice::Silence.name()).parse().map_err(|e: String| anyhow!(e))
}

fn measured(seen: &Seen) -> Measured {
    let mut measured = Measured { seconds: seen.caught_up_after.as_secs_f64(), ..Measured::default() };
    measured.metric("repetitions", seen.again.len() as f64);
    measured.metric("cwnd_before", f64::from(seen.cwnd_before));
    measured.metric("cwnd_after", f64::from(seen.cwnd_after[0]));
    measured.metric("cwnd_later", f64::from(seen.cwnd_after[1]));
    measured.metric("held_bytes", seen.held_and_allowed[0] as f64);
    measured.metric("allowed_bytes", seen.held_and_allowed[1] as f64);
    let held = seen.held_and_allowed[0] as f64 / f64::from(SEGMENT_BYTES);
    measured.metric("window_over_held", f64::from(seen.cwnd_after[0]) / held.max(1.0));
    let times: Vec<String> = seen.again.iter().map(|t| format!("{:.3}", t.as_secs_f64())).collect();
    measured.notes.push(format!("sent again after {} s", times.join(", ")));
    measured
}
