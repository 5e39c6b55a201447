//! The numbers that every kind reports: of the emulated links, of the gateways, of the captures.

use super::{by_kind, gauges};
use crate::build::Lab;
use crate::capture::Findings;
use crate::jobs::quantile;
use crate::report::Measured;
use crate::scenario::Cell;
use crate::topology::Role;

/// What the emulated links have counted, and that they were faithful.
pub(super) fn of_links(lab: &Lab, measured: &mut Measured) {
    let mut queue_max = 0.0_f64;
    let mut dropped = 0.0;
    let mut of_ethernet = None;
    for link in &lab.links {
        let stats = match link.stats() {
            Ok(stats) => stats,
            Err(error) => {
                measured.failures.push(format!("{error:#}"));
                continue;
            }
        };
        for direction in ["a_to_b", "b_to_a"] {
            let number = |name: &str| stats[direction][name].as_f64().unwrap_or(0.0);
            let (queue, lost) = (number("queue_max_bytes"), number("dropped_queue"));
            if link.is_ethernet {
                let (most, all) = of_ethernet.unwrap_or((0.0_f64, 0.0));
                of_ethernet = Some((most.max(queue), all + lost));
            } else {
                queue_max = queue_max.max(queue);
                dropped += lost;
            }
            for (fault, value) in stats[direction]["faults"].as_object().into_iter().flatten() {
                measured.expect(value.as_f64() == Some(0.0), || {
                    format!("the emulated link {} {direction}: {fault} = {value}", link.node)
                });
            }
        }
    }
    measured.metric("link_queue_max_bytes", queue_max);
    measured.metric("link_queue_drops", dropped);
    measured.metric("router_fragments", router_fragments(lab));
    measured.metric("queue_max_bytes", queue_max);
    if let Some((queue, lost)) = of_ethernet {
        of_ethernets(queue, lost, measured);
    }
}

/// Fragments that plain routers made (`FragCreates` of RFC 4293, and of IPv6, where none may).
fn router_fragments(lab: &Lab) -> f64 {
    let routers = lab.topology.nodes.iter().filter(|n| n.role != Role::Host && !n.runs_gateway);
    let made = |name: &str| {
        let read = || Ok(std::fs::read_to_string("/proc/thread-self/net/snmp")?);
        let text = lab.ns(name).enter(read).ok()?;
        let mut of_ip = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, values) = (of_ip.next()?, of_ip.next()?);
        let place = names.split(' ').position(|name| name == "FragCreates")?;
        values.split(' ').nth(place)?.parse::<f64>().ok()
    };
    routers.filter_map(|router| made(&router.name)).sum()
}

/// The longest queue before the Ethernet of the terrestrial part, and how many packets found no
/// room in it.
pub(crate) fn of_ethernets(queue_max_bytes: f64, drops: f64, measured: &mut Measured) {
    measured.metric("eth_queue_max_bytes", queue_max_bytes);
    measured.metric("eth_queue_drops", drops);
}

/// What the gateways have counted.
pub(super) fn of_gateways(cell: &Cell, lab: &Lab, measured: &mut Measured) {
    let (sender, receiver) = sides(cell);
    let mut memory = 0;
    let mut split = 0;
    let mut copies = gauges::Copies::default();
    let mut all_links = Vec::new();
    for gateway in &lab.gateways {
        match gateway.status() {
            Ok(status) => {
                let links = || status["links"].as_array().into_iter().flatten();
                let sum = |what: &str| links().filter_map(|l| l[what].as_u64()).sum();
                gauges::of_returns(&gateway.node, sum("returns"), sum("on_hand_total_bytes"), measured);
                let backlog = links().filter_map(|l| l["backlog_max_bytes"].as_f64()).fold(0.0, f64::max);
                let queue = measured.metrics.get("queue_max_bytes").copied().unwrap_or(0.0).max(backlog);
                measured.metric("queue_max_bytes", queue);
                all_links.extend(links().cloned());
            }
            Err(error) => measured.failures.push(format!("{error:#}")),
        }
        let peak = |name: &str| gateway.engine_number(name).unwrap_or(0);
        gauges::of_peaks(&gateway.node, peak("held_max_bytes"), peak("pool_max_bytes"), measured);
        let counter = |name: &str| gateway.engine_number(&format!("counters.{name}")).unwrap_or(0);
        let early = counter("early_repeated_bytes") as f64;
        if gateway.node == sender {
            measured.metric("early_bytes", early);
        } else if gateway.node == receiver {
            measured.metric("local_early_bytes", early);
        }
        copies.packets += counter("early_repeated_packets");
        copies.bytes += counter("early_repeated_packet_bytes");
        copies.openings += counter("openings_copied");
        memory += gateway.engine_number("pool_bytes").unwrap_or(0);
        memory += gateway.engine_number("table_bytes").unwrap_or(0);
        split += counter("flows_split");
    }
    copies.measure(measured);
    by_kind::of_links(all_links.iter(), measured);
    if !lab.gateways.is_empty() {
        measured.metric("memory_bytes", memory as f64);
        measured.metric("flows_split", split as f64);
    }
}

/// What the captures show; what they show wrong is a failure.
pub(super) fn of_captures(cell: &Cell, findings: &Findings, measured: &mut Measured) {
    measured.failures.extend(findings.failures.iter().cloned());
    measured.metric("checked_flows", findings.flows as f64);
    measured.metric("checked_packets", findings.packets as f64);
    if findings.drops > 0 {
        measured.unjudged = Some(format!("captures missed {} packets", findings.drops));
        measured.metric("capture_drops", findings.drops as f64);
    }
    let (sender, receiver) = sides(cell);
    let out =
        |node: &str| findings.traffic.iter().find(|(p, _)| p.node == node && p.is_link).map(|(_, t)| t[1]);
    if let Some(back) = out(receiver) {
        measured.metric("return_bytes", back.bytes as f64);
        measured.metric("ack_packets", back.ack_packets as f64);
        measured.metric("ack_bytes", back.ack_bytes as f64);
    }
    let local_early = measured.metrics.remove("local_early_bytes").unwrap_or(0.0);
    measured.metric("ids_repeated", findings.ids_repeated as f64);
    measured.metric("checked_fragments", findings.fragments as f64);
    if let Some(repeated) = findings.repeated.get(sender) {
        measured.metric("repeats_most", f64::from(repeated.most));
        let early = measured.metrics.get("early_bytes").copied().unwrap_or(0.0);
        of_repetitions(repeated.bytes as f64, early, measured);
    }
    if let Some(repeated) = findings.repeated.get(receiver) {
        measured.metric("local_repeated_bytes", (repeated.bytes as f64 - local_early).max(0.0));
    }
}

/// Payload that the sending gateway has sent again: all of it, and the part that had been taken for
/// lost. The rest are early copies, which go before a loss can be known (`early_bytes`).
pub(crate) fn of_repetitions(repeated_bytes: f64, early_bytes: f64, measured: &mut Measured) {
    measured.metric("retransmitted_bytes", repeated_bytes);
    measured.metric("repaired_bytes", (repeated_bytes - early_bytes).max(0.0));
}

/// The gateways on the near side of the data's source and of its destination: data leaves by the
/// link at the first, acknowledgements at the second.
fn sides(cell: &Cell) -> (&'static str, &'static str) {
    if cell.word("direction", "down") == "up" { ("gw1", "gw2") } else { ("gw2", "gw1") }
}

/// Mean and standard deviation of the goodputs of flows, bit/s, and how fair they are.
pub(crate) fn of_flows(bytes_per_s: &[f64], measured: &mut Measured) {
    let n = bytes_per_s.len().max(1) as f64;
    let mean = bytes_per_s.iter().sum::<f64>() / n;
    let variance = bytes_per_s.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n;
    measured.metric("jain", jain(bytes_per_s.iter().copied()));
    measured.metric("flow_goodput_bps", 8.0 * mean);
    measured.metric("flow_goodput_deviation_bps", 8.0 * variance.sqrt());
}

/// Fewer transfers have no percentiles.
const TIMES_MIN: usize = 20;

/// What half, nine of ten, and all but one of a hundred transfers took at most, seconds, and the
/// longest of all.
pub(crate) fn of_times(seconds: &[f64], measured: &mut Measured) {
    if seconds.len() < TIMES_MIN {
        return;
    }
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        measured.metric(&format!("transfer_{name}_s"), quantile(seconds, share));
    }
}

/// Jain's fairness index of goodputs.
pub(crate) fn jain(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count() as f64;
    let (sum, squares) = values.fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
    if squares > 0.0 { sum * sum / (n * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_transfers_have_percentiles_and_few_have_none() {
        let mut measured = Measured::default();
        of_times(&[1.0; 19], &mut measured);
        assert!(measured.metrics.is_empty());
        of_times(&(0..=100).map(f64::from).collect::<Vec<_>>(), &mut measured);
        let of = |name: &str| measured.metrics[&format!("transfer_{name}_s")];
        assert_eq!(["p50", "p90", "p99", "max"].map(of), [50.0, 90.0, 99.0, 100.0]);
    }

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert!((jain([5.0, 5.0, 5.0].into_iter()) - 1.0).abs() < 1e-12);
        assert!((jain([9.0, 0.0, 0.0].into_iter()) - 1.0 / 3.0).abs() < 1e-12);
    }
}
