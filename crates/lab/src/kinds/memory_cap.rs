//! `memory-cap`: a small buffer pool under many bulk flows. What does not fit is forwarded, nothing
//! is lost, and the pool stays within its bound.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::session::{Allowed, Session, expect_intact};
use super::{Kind, Run, many};
use crate::build::Lab;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::workload::run_all;

/// How often the gateways are asked.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// They are not asked any more when nothing arrives for so long: the transfers end by themselves
/// then.
const STILL: Duration = Duration::from_secs(70);

/// See the module.
pub(super) struct MemoryCapKind;

/// The largest seen of each on any gateway.
#[derive(Clone, Copy, Default)]
struct Largest {
    pool_bytes: u64,
    /// Above the pool's bound.
    excess_bytes: u64,
    table_bytes: u64,
    split: u64,
    samples: u64,
}

impl Kind for MemoryCapKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let transfers = many::transfers(scenario, cell, &session.lab, run.seed)?;
        let total: u64 = transfers.iter().map(|t| t.bytes).sum();
        let progress = run.progress.bytes(total);
        let (outcomes, largest) = run_all(&transfers, &progress.count, || {
            let mut largest = Largest::default();
            let mut seen = (0, Instant::now());
            while seen.0 < total && seen.1.elapsed() < STILL {
                sample(&session.lab, &mut largest)?;
                std::thread::sleep(SAMPLE_EVERY);
                let count = progress.count.load(Ordering::Relaxed);
                if count != seen.0 {
                    seen = (count, Instant::now());
                }
            }
            Ok::<_, anyhow::Error>(largest)
        });
        let largest = largest?;
        let mut measured = Measured::default();
        expect_intact(&mut measured, &outcomes);
        let slack = scenario.option("slack_bytes", 65_536.0)? as u64;
        measured.expect(largest.excess_bytes <= slack, || {
            format!("a pool held {} bytes, {} above its bound", largest.pool_bytes, largest.excess_bytes)
        });
        for gateway in &session.lab.gateways {
            let forwarded = gateway.engine_number("counters.flows_forwarded_short")?;
            let split = gateway.engine_number("counters.flows_split")?;
            let no_buffer = gateway.engine_number("counters.dropped_no_buffer")?;
            let node = &gateway.node;
            measured.metric(&format!("{node}_flows_forwarded"), forwarded as f64);
            measured.metric(&format!("{node}_flows_split"), split as f64);
            measured.metric(&format!("{node}_dropped_no_buffer"), no_buffer as f64);
            measured.expect(forwarded > 0, || format!("{node} has split everything: the pool is too large"));
            measured.expect(split > 0, || format!("{node} has split nothing"));
        }
        measured.metric("pool_max_bytes", largest.pool_bytes as f64);
        measured.metric("table_max_bytes", largest.table_bytes as f64);
        measured.metric("split_max", largest.split as f64);
        measured.metric("samples", largest.samples as f64);
        measured.expect(largest.pool_bytes > 0, || "the pool was never used".into());
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

fn sample(lab: &Lab, largest: &mut Largest) -> Result<()> {
    for gateway in &lab.gateways {
        // All numbers of one moment.
        let status = gateway.status()?;
        let engine = &status["engine"];
        let number = |name: &str| engine[name].as_u64().unwrap_or(0);
        let pool = number("pool_bytes");
        largest.pool_bytes = largest.pool_bytes.max(pool);
        largest.excess_bytes = largest.excess_bytes.max(pool.saturating_sub(number("pool_limit_bytes")));
        largest.table_bytes = largest.table_bytes.max(number("table_bytes"));
        largest.split = largest.split.max(number("flows_split"));
        largest.samples += 1;
    }
    Ok(())
}
