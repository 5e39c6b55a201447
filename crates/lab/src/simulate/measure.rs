//! What came of a simulated cell, by the names of the laboratory.

use farlink_sim::linux::{Direction, Outcome, Transfer};
use farlink_wire::Instant;

use super::network::{Network, TO_LINK};
use crate::kinds::metrics::of_flows;
use crate::kinds::transfer::{EARLIER, is_upload, limit_of};
use crate::limit::Clock;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// Seconds by the scenario's clock.
fn seconds(clock: Clock, transfer: &Transfer, o: &Outcome) -> f64 {
    let start = match (clock, transfer.direction) {
        (Clock::Connect, _) => o.began,
        (Clock::FirstByte, Direction::Download) => o.first_byte.unwrap_or(o.began),
        (Clock::Request | Clock::FirstByte, _) => o.connected.unwrap_or(o.began),
    };
    let end = o.last_byte.unwrap_or(start);
    since(end, start)
}

fn since(end: Instant, start: Instant) -> f64 {
    end.since(start).as_secs_f64()
}

pub(super) fn measure(scenario: &Scenario, cell: &Cell, network: &mut Network) -> Measured {
    let transfers = network.transfers.clone();
    let outcomes = network.outcomes.borrow().clone();
    let payload = |(t, o): (&Transfer, &Outcome)| match t.direction {
        Direction::Download => o.received[0],
        Direction::Upload => o.received[1].saturating_sub(t.request_bytes),
    };
    // What went before is not timed.
    let earlier = cell.number(EARLIER, 0) as usize;
    let all = || transfers.iter().zip(&outcomes).skip(earlier);
    let times: Vec<f64> = all().map(|(t, o)| seconds(scenario.clock, t, o)).collect();
    let mut measured = Measured {
        seconds: times.iter().copied().fold(0.0, f64::max),
        bytes: all().map(payload).sum(),
        limit_seconds: Some(limit_of(scenario, cell, 1.0).seconds()),
        ..Measured::default()
    };
    for (number, (t, o)) in all().enumerate() {
        measured.expect(o.is_intact(t), || {
            format!("transfer {number}: {}", o.error.as_deref().unwrap_or("not intact"))
        });
    }
    let source = usize::from(!is_upload(cell));
    let retransmits: u64 = outcomes.iter().map(|o| o.retransmits[source]).sum();
    measured.metric("source_retransmits", retransmits as f64);
    let connect = outcomes.iter().filter_map(|o| Some(since(o.connected?, o.began)));
    measured.metric("connect_seconds", connect.fold(0.0, f64::max));
    let rates: Vec<f64> =
        all().map(payload).zip(&times).map(|(bytes, s)| bytes as f64 / s.max(1e-9)).collect();
    of_flows(&rates, &mut measured);
    of_link(cell, network, &mut measured);
    of_gateways(network, &mut measured);
    measured
}

fn of_link(cell: &Cell, network: &Network, measured: &mut Measured) {
    let [gw1, gw2] = network.gateways;
    let stats = [gw1, gw2].map(|gateway| network.world.channel_stats(gateway, TO_LINK));
    let queue_max = stats.iter().map(|s| s.queue_max_bytes as f64).fold(0.0, f64::max);
    measured.metric("link_queue_max_bytes", queue_max);
    measured.metric("link_queue_drops", stats.iter().map(|s| s.dropped_queue as f64).sum());
    measured.metric("queue_max_bytes", queue_max);
    let (sender, receiver) = if is_upload(cell) { (gw1, gw2) } else { (gw2, gw1) };
    if let Some(back) = network.world.meter(receiver, TO_LINK) {
        measured.metric("return_bytes", back.bytes as f64);
        measured.metric("ack_packets", back.ack_packets as f64);
        measured.metric("ack_bytes", back.ack_bytes as f64);
    }
    if let Some(forth) = network.world.meter(sender, TO_LINK) {
        measured.metric("retransmitted_bytes", forth.repeated_bytes as f64);
    }
}

fn of_gateways(network: &mut Network, measured: &mut Measured) {
    let now = network.world.now();
    let (mut memory, mut split, mut count) = (0, 0, 0);
    let mut queue = measured.metrics.get("queue_max_bytes").copied().unwrap_or(0.0);
    for node in network.gateways {
        let Some(gateway) = network.world.gateway(node).and_then(|g| g.gateway.as_mut()) else { continue };
        let status = gateway.status(now);
        let backlogs = status.links.iter().map(|l| l.backlog_max_bytes as f64);
        queue = backlogs.fold(queue, f64::max);
        memory += status.engine.pool_bytes + status.engine.table_bytes;
        split += status.engine.counters.flows_split;
        count += 1;
    }
    measured.metric("queue_max_bytes", queue);
    if count > 0 {
        measured.metric("memory_bytes", memory as f64);
        measured.metric("flows_split", split as f64);
    }
}
