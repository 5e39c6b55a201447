//! Transfers beside interactive messages, in virtual time.

use std::rc::Rc;

use anyhow::{Result, bail};
use farlink_sim::linux::{Datagram, Datagrams, Direction, Play, Transfer};
use farlink_wire::{Duration, Instant};

use super::network::Network;
use super::planned::nanos;
use crate::kinds::classes::{CONNECTIONS, Carrier, Heard, Message, Plan, SETTLE};

/// When all connect.
const START: Duration = Duration::from_millis(1);

/// What hosts do: the connections of the messages, and then the transfers.
pub(super) fn play(plan: &Plan, has_bulk: bool) -> Rc<Play> {
    let (message_dscp, bulk_dscp) = plan.dscps();
    let direction = if plan.is_down { Direction::Download } else { Direction::Upload };
    let transfer = |bytes, dscp| {
        let single = Transfer::single(direction, bytes, 0, START, plan.v6);
        Transfer { dscp, ..single }
    };
    let mut transfers = Vec::new();
    let mut datagrams = Datagrams::default();
    match plan.carrier {
        Carrier::Udp => {
            let datagram =
                |m: &Message| Datagram { at: nanos(m.at), bytes: u16::try_from(m.bytes).unwrap_or(u16::MAX) };
            datagrams = Datagrams::new(plan.messages.iter().map(datagram).collect(), message_dscp, plan.v6);
        }
        Carrier::Tcp => transfers.extend((0..CONNECTIONS).map(|connection| {
            let own = plan.messages.iter().filter(|m| m.connection == connection);
            let messages: Vec<_> = own.map(|m| (nanos(m.at), m.bytes)).collect();
            let bytes = messages.iter().map(|(_, bytes)| bytes).sum();
            Transfer { messages, ..transfer(bytes, message_dscp) }
        })),
    }
    if has_bulk {
        transfers.extend((0..plan.bulks).map(|_| transfer(plan.bulk_bytes, bulk_dscp)));
    }
    Play::new(transfers, Vec::new()).with_datagrams(datagrams)
}

/// Runs it for as long as the plan lasts.
pub(super) fn run(plan: &Plan, has_bulk: bool, network: &mut Network) -> Result<Heard> {
    let at = |time: std::time::Duration| Instant::ZERO + nanos(time);
    let mut bulk_bytes = [0; 2];
    for (time, bytes) in [plan.window.0, plan.window.1].into_iter().zip(&mut bulk_bytes) {
        network.world.run_until(at(time));
        if has_bulk {
            let outcomes = network.play.outcomes.borrow();
            let bulks = outcomes.iter().rev().take(plan.bulks);
            *bytes = bulks.map(|o| o.received[usize::from(!plan.is_down)]).sum();
        }
    }
    network.world.run_until(at(plan.window.1 + SETTLE));
    if let Some(failure) = &network.world.failure {
        bail!("an invariant is broken: {failure}");
    }
    let outcomes = network.play.outcomes.borrow();
    let arrived: Vec<Option<Instant>> = match plan.carrier {
        Carrier::Udp => network.play.datagrams.arrived.borrow().clone(),
        Carrier::Tcp => {
            let mut heard: Vec<_> = outcomes.iter().map(|o| o.heard.iter()).collect();
            plan.messages.iter().map(|m| heard.get_mut(m.connection)?.next().copied()).collect()
        }
    };
    let delay = |(m, arrived): (&Message, &Option<Instant>)| {
        arrived.map(|arrived| arrived.since(at(m.at)).as_secs_f64())
    };
    let delays_s = plan.messages.iter().zip(&arrived).map(delay).collect();
    let error =
        outcomes.iter().enumerate().find_map(|(n, o)| Some(format!("connection {n}: {}", o.error.as_ref()?)));
    Ok(Heard { delays_s, bulk_bytes, write_pause_s: None, error })
}
