//! Outages of a laboratory's links: nothing gets through, and gateways are told of it or not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use crate::build::Lab;
use crate::jobs::outage::Outage;

/// After an outage the first byte is looked for so often.
const WATCH_EVERY: Duration = Duration::from_micros(200);

/// Plays an outage of all hard links. Returns when the first payload byte arrived after they were
/// back, in seconds since `began`, if one did soon. `count`: payload bytes that have arrived.
pub(super) fn play(lab: &mut Lab, outage: &Outage, began: Instant, count: &AtomicU64) -> Result<Option<f64>> {
    thread::sleep(outage.from.saturating_sub(began.elapsed()));
    change(lab, false, outage.is_announced)?;
    thread::sleep(outage.until.saturating_sub(began.elapsed()));
    let before = count.load(Ordering::Relaxed);
    change(lab, true, outage.is_announced)?;
    let end = outage.until + outage.patience();
    while count.load(Ordering::Relaxed) == before {
        if began.elapsed() > end {
            return Ok(None);
        }
        thread::sleep(WATCH_EVERY);
    }
    Ok(Some(began.elapsed().as_secs_f64()))
}

fn change(lab: &Lab, up: bool, is_announced: bool) -> Result<()> {
    let loss = if up { 0.0 } else { 1.0 };
    for link in lab.links.iter().filter(|l| !l.is_ethernet) {
        link.set(json!({ "loss": loss }))?;
    }
    if is_announced {
        for gateway in &lab.gateways {
            gateway.announce(up)?;
        }
    }
    Ok(())
}
