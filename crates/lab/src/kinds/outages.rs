//! Outages of a laboratory's links: nothing gets through, and gateways are told of it or not.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use farlink_channel::{Channel, ChannelConfig};
use portable_atomic::AtomicU64;
use serde_json::json;

use super::carried;
use crate::build::Lab;
use crate::jobs::outage::Outage;

/// After an outage the first byte is looked for so often.
const WATCH_EVERY: Duration = Duration::from_micros(200);
/// Who follows a plan looks at it so often.
const FOLLOW_EVERY: Duration = Duration::from_millis(2);
/// How long a killed gateway may take to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(5);
/// Nobody follows a plan any more when nothing has come for so long, and a period of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays outages of all hard links, in the order of time. Returns when the first payload byte
/// arrived after the last of them, in seconds since `began`, if one did before all `is_over`.
/// `count`: payload bytes that have arrived.
pub(super) fn play(
    lab: &mut Lab,
    outages: &[Outage],
    began: Instant,
    count: &AtomicU64,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<f64>> {
    let Some(last) = outages.last() else { return Ok(None) };
    let mut before = 0;
    let acts = outages.iter().flat_map(|outage| acts(outage).into_iter().map(move |act| (outage, act)));
    for (outage, (at, act)) in acts {
        thread::sleep(at.saturating_sub(began.elapsed()));
        match act {
            Act::Away => change(lab, false, outage.is_announced)?,
            Act::Back => {
                before = count.load(Ordering::Relaxed);
                change(lab, true, outage.is_announced)?;
            }
            Act::Kill(name) => {
                let gateway = lab.gateway(name)?;
                gateway.process.signal(libc::SIGKILL);
                gateway.wait_end(DEATH_PATIENCE)?;
            }
            Act::Restart(name) => lab.restart_gateway(name)?,
        }
    }
    let end = last.until + last.patience();
    while count.load(Ordering::Relaxed) == before {
        if began.elapsed() > end || is_over() {
            return Ok(None);
        }
        thread::sleep(WATCH_EVERY);
    }
    Ok(Some(began.elapsed().as_secs_f64()))
}

/// What happens to link and gateway.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Away,
    Back,
    Kill(&'static str),
    Restart(&'static str),
}

/// All of it in the order of time; the link is back at the end.
fn acts(outage: &Outage) -> Vec<(Duration, Act)> {
    let killed = outage.kill.map(|k| [(k.at, Act::Kill(k.gateway)), (k.restart_at, Act::Restart(k.gateway))]);
    let mut acts: Vec<_> = killed.into_iter().flatten().collect();
    acts.extend([(outage.from, Act::Away), (outage.until, Act::Back)]);
    acts.sort_by_key(|(at, _)| *at);
    acts
}

fn change(lab: &Lab, up: bool, is_announced: bool) -> Result<()> {
    let loss = if up { 0.0 } else { 1.0 };
    for link in lab.hard_links() {
        link.set(json!({ "loss": loss }))?;
    }
    if is_announced { announce(lab, up) } else { Ok(()) }
}

/// Tells gateways when contacts of this schedule begin and end, until `total` payload bytes have
/// arrived, or none for too long. `began`: when the schedule did.
pub(super) fn follow(
    lab: &Lab,
    schedule: ChannelConfig,
    began: Instant,
    (arrived, total): (&AtomicU64, u64),
) -> Result<()> {
    let patience = PATIENCE
        + schedule.contact_period.map_or(Duration::ZERO, |p| Duration::from_secs_f64(p.as_secs_f64()));
    let channel = Channel::<Vec<u8>>::new(schedule, 0);
    let mut told = true;
    let mut moved = (Instant::now(), 0);
    while moved.1 < total && moved.0.elapsed() < patience {
        let up = channel.is_up(carried::instant(began.elapsed().as_secs_f64()));
        if up != told {
            announce(lab, up)?;
            told = up;
        }
        thread::sleep(FOLLOW_EVERY);
        let count = arrived.load(Ordering::Relaxed);
        if count > moved.1 {
            moved = (Instant::now(), count);
        }
    }
    Ok(())
}

fn announce(lab: &Lab, up: bool) -> Result<()> {
    lab.gateways.iter().try_for_each(|gateway| gateway.announce(up))
}
