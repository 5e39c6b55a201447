//! `notices`: what a source does while a link is away for five seconds and a box before it keeps
//! what it sends. In the laboratory the source is the kernel's, in the simulator a simulated host,
//! on the same bench ([`farlink_sim::linux::notices`]).

mod kernel;

use anyhow::{Result, anyhow};
use farlink_sim::linux::notices::source::Stack;
use farlink_sim::linux::notices::{Bench, Holder, Notice, SEGMENT_BYTES, Seen, simulate};
use farlink_wire::Duration;

use super::{Kind, Run};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::Mode;

/// Name of this kind.
pub(crate) const NAME: &str = "notices";

/// See the module.
pub(super) struct NoticesKind;

impl Kind for NoticesKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let stack = stack(cell).ok()?;
        stack.kernels().is_none().then(|| "no kernel has this TCP".into())
    }

    fn run(&mut self, _: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let seen = kernel::measure(bench(cell)?, stack(cell)?, &run.prefix)?;
        Ok(measured(&seen))
    }
}

/// A cell with a simulated source.
pub(crate) fn simulated(cell: &Cell) -> Result<Measured> {
    let seen = simulate(bench(cell)?, stack(cell)?).map_err(|e| anyhow!(e))?;
    Ok(measured(&seen))
}

/// The source of a cell: by name, or by the hosts' congestion control.
fn stack(cell: &Cell) -> Result<Stack> {
    cell.word("source", &cell.settings.host_cc).parse().map_err(|e: String| anyhow!(e))
}

fn bench(cell: &Cell) -> Result<Bench> {
    let holder = if cell.settings.mode == Mode::Custody {
        Holder::Gateway(cell.settings.custody_notice)
    } else {
        let name = cell.word("case", Notice::Silence.name());
        Holder::Box(name.parse().map_err(|e: String| anyhow!(e))?)
    };
    let dies = match cell.word("killed", "no") {
        "no" => false,
        "link-away" => true,
        other => return Err(anyhow!("killed = `{other}`: known are no, link-away")),
    };
    let rtt = Duration::from_secs_f64(cell.settings.rtt_ms / 1e3);
    Ok(Bench { holder, rtt, dies })
}

fn measured(seen: &Seen) -> Measured {
    let mut measured = Measured::default();
    if let Some(after) = seen.caught_up_after {
        measured.seconds = after.as_secs_f64();
        measured.metric("caught_up_seconds", after.as_secs_f64());
    }
    measured.metric("hangs", f64::from(u8::from(seen.caught_up_after.is_none())));
    measured.metric("repetitions", seen.again.len() as f64);
    measured.metric("repetitions_later", seen.again_later as f64);
    measured.metric("repetitions_crossed_bytes", seen.let_pass_bytes as f64);
    measured.metric("arrived_again_bytes", seen.arrived_again_bytes as f64);
    measured.metric("sent_later_bytes", f64::from(seen.sent_later_bytes));
    measured.metric("held_bytes", seen.held_and_allowed[0] as f64);
    measured.metric("allowed_bytes", seen.held_and_allowed[1] as f64);
    let held = seen.held_and_allowed[0] as f64 / f64::from(SEGMENT_BYTES);
    let [first, later] = seen.cwnd_after;
    for (name, cwnd) in [("cwnd_before", seen.cwnd_before), ("cwnd_after", first), ("cwnd_later", later)] {
        if let Some(cwnd) = cwnd {
            measured.metric(name, f64::from(cwnd));
        }
    }
    if let Some(first) = first {
        measured.metric("window_over_held", f64::from(first) / held.max(1.0));
    }
    let times: Vec<String> = seen.again.iter().map(|t| format!("{:.3}", t.as_secs_f64())).collect();
    measured.notes.push(format!("sent again after {} s", times.join(", ")));
    measured
}
