//! What came of a simulated cell, by the names of the laboratory.

use farlink_sim::linux::{Datagram, Datagrams, Direction, Outcome, Transfer};
use farlink_wire::{Duration, Instant};

use super::network::{Network, host_number};
use crate::kinds::gauges::{self, Sample};
use crate::kinds::metrics::{of_ethernets, of_flows, of_repetitions, of_times};
use crate::kinds::transfer::{
    EARLIER, UDP_PERCENT, begins_after, client_of, is_upload, limit_of, limit_seconds, mark_every,
    of_directions, request_after, stops, uploads,
};
use crate::kinds::{by_kind, carried, declared, first, returned, sets, source_clock};
use crate::limit::Clock;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::Way;

/// When a cell's transfers begin; beside floods of pings a little later, when those have filled
/// their queue.
const START: Duration = Duration::from_millis(1);
const START_IN_FLOOD: Duration = Duration::from_millis(100);

/// The transfers of a cell.
pub(super) fn transfers(scenario: &Scenario, cell: &Cell, seed: u64) -> anyhow::Result<Vec<Transfer>> {
    let bytes = cell.number("size_bytes", 1_000_000);
    let start = if cell.number("floods", 0) > 0 { START_IN_FLOOD } else { START };
    let earlier = cell.number(EARLIER, 0);
    // Long enough for what goes before to be over, also without help.
    let apart =
        Duration::from_secs_f64(30.0 + 8.0 * 3.0 * bytes as f64 / cell.settings.rate_bps.max(1) as f64);
    // Hosts stand still from one contact to the next.
    let period = cell.settings.channel(Way::Down).contact_period.unwrap_or_default();
    let first = first::of(cell);
    let before = earlier + u64::from(first.is_some());
    let transfer = |flow: u64| -> anyhow::Result<Transfer> {
        let first =
            first.map(|first| if flow < before { (first.bytes, None) } else { (bytes, Some(first.lead)) });
        let (bytes, lead) = first.unwrap_or((bytes, None));
        let (direction, verb) =
            if uploads(cell, flow) { (Direction::Upload, "PUT") } else { (Direction::Download, "GET") };
        let request = format!("{verb} {bytes} {}\n", seed.wrapping_add(flow)).len() as u64;
        let client = host_number(client_of(scenario, cell, flow))?;
        let after = begins_after(cell, flow.saturating_sub(before)).as_secs_f64();
        let start = start
            + lead.unwrap_or_default()
            + apart * u32::try_from(flow.min(earlier)).unwrap_or(u32::MAX)
            + Duration::from_secs_f64(after);
        let ask_at = Duration::from_secs_f64(request_after(scenario, cell, flow).as_secs_f64());
        let usual = Transfer::single(direction, bytes, request, start, cell.v6());
        let stops = stops(cell).filter(|_| flow == before);
        let stops = stops.map(|(bytes, wait)| (bytes, Duration::from_secs_f64(wait.as_secs_f64())));
        let mark_every = if flow < before { 0 } else { mark_every(scenario, cell) };
        Ok(Transfer { client, ask_at, patience: usual.patience + period, mark_every, stops, ..usual })
    };
    (0..before + cell.number("flows", 1)).map(transfer).collect()
}

/// The datagrams that the client sends meanwhile, `udp_percent` of the link's rate, for as long as
/// the transfers can take.
pub(super) fn datagrams(scenario: &Scenario, cell: &Cell) -> Datagrams {
    const BYTES: u16 = 1_000;
    const NO_DSCP: u8 = 0;
    let rate_bps = cell.settings.up_bps() as f64 * cell.number(UDP_PERCENT, 0) as f64 / 100.0;
    if rate_bps <= 0.0 {
        return Datagrams::default();
    }
    let apart_s = 8.0 * f64::from(BYTES) / rate_bps;
    let lasts_s = 3.0 * limit_of(scenario, cell).seconds() + 10.0;
    let at = |n: u32| Duration::from_secs_f64(apart_s * f64::from(n));
    let all = (0..(lasts_s / apart_s) as u32).map(|n| Datagram { at: at(n), bytes: BYTES });
    Datagrams::new(all.collect(), NO_DSCP, cell.v6())
}

/// When a scenario's clock started; `None`: it has not yet.
pub(super) fn started(clock: Clock, transfer: &Transfer, o: &Outcome) -> Option<Instant> {
    match (clock, transfer.direction) {
        (Clock::Connect, _) => Some(o.began),
        (Clock::FirstByte, Direction::Download) => o.first_byte,
        (Clock::Source, Direction::Download) => o.answered,
        (Clock::Request | Clock::FirstByte | Clock::Source, _) => o.asked,
    }
}

/// Seconds by the scenario's clock.
fn seconds(clock: Clock, transfer: &Transfer, o: &Outcome) -> f64 {
    let start = started(clock, transfer, o).unwrap_or(o.began);
    let end = o.last_byte.unwrap_or(start);
    since(end, start)
}

fn since(end: Instant, start: Instant) -> f64 {
    end.since(start).as_secs_f64()
}

/// Of a cell of transfers.
pub(super) fn of_transfers(
    scenario: &Scenario,
    cell: &Cell,
    seed: u64,
    network: &mut Network,
    samples: &[Sample],
) -> Measured {
    let play = network.play.clone();
    let transfers = &play.transfers;
    let outcomes = play.outcomes.borrow().clone();
    let size = cell.number("size_bytes", 1_000_000);
    let payload = |(t, o): (&Transfer, &Outcome)| match t.direction {
        Direction::Download => o.received[0],
        // Beside the request.
        Direction::Upload => (o.received[1] + size).saturating_sub(t.steps.iter().map(|s| s.up_bytes).sum()),
    };
    // What went before is not timed.
    let earlier = cell.number(EARLIER, 0) as usize + usize::from(first::of(cell).is_some());
    let all = || transfers.iter().zip(&outcomes).skip(earlier);
    let times: Vec<f64> = all().map(|(t, o)| seconds(scenario.clock, t, o)).collect();
    let mut measured = Measured {
        seconds: times.iter().copied().fold(0.0, f64::max),
        bytes: all().map(payload).sum(),
        limit_seconds: limit_seconds(scenario, cell),
        ..Measured::default()
    };
    declared::measure(scenario, cell, &mut measured);
    if let Some((transfer, o)) = all().next() {
        let start = started(scenario.clock, transfer, o).unwrap_or(o.began);
        measured.arrivals_s = o.marks.iter().map(|at| since(*at, start)).collect();
    }
    for (number, o) in outcomes.iter().enumerate() {
        measured.expect(o.is_intact(), || {
            format!("transfer {number}: {}", o.error.as_deref().unwrap_or("not intact"))
        });
    }
    let connect = outcomes.iter().filter_map(|o| Some(since(o.connected?, o.began)));
    measured.metric("connect_seconds", connect.fold(0.0, f64::max));
    let rates: Vec<f64> =
        all().map(payload).zip(&times).map(|(bytes, s)| bytes as f64 / s.max(1e-9)).collect();
    of_flows(&rates, &mut measured);
    of_times(&times, &mut measured);
    let by_direction =
        all().zip(&times).map(|((t, o), s)| (t.direction == Direction::Upload, payload((t, o)), *s));
    of_directions(cell, &by_direction.collect::<Vec<_>>(), &mut measured);
    if sets::has_sets(scenario, cell) || cell.number("clients", 1) > 1 {
        sets::of_flows(&rates, &mut measured);
    }
    if sets::has_sets(scenario, cell) {
        sets::share(&sets_of(network, is_upload(cell)), &mut measured);
    }
    let by_source = all().map(|(t, o)| {
        let is_timed = t.direction == Direction::Download && o.answered.is_some();
        (payload((t, o)), is_timed.then(|| seconds(Clock::Source, t, o)))
    });
    source_clock::measure(scenario, cell, &by_source.collect::<Vec<_>>(), &mut measured);
    let over =
        all().filter_map(|(_, o)| o.last_byte).min().map_or(f64::INFINITY, |t| since(t, Instant::ZERO));
    gauges::of_samples(cell, samples, over, &mut measured);
    // Another transfer may have begun the schedule later.
    let schedules_began = network.world.schedules_began().as_nanos() as i128;
    let began = all().map(|(t, o)| {
        let start = started(scenario.clock, t, o).unwrap_or(o.began).as_nanos();
        (i128::from(start) - schedules_began) as f64 / 1e9
    });
    let began_s = began.reduce(f64::min);
    let first_end_s = over.is_finite().then(|| over - schedules_began as f64 / 1e9);
    let carried = carried::Carried { first_end_s, ..carried_of(cell, network) };
    carried::measure(scenario, cell, seed, &carried, began_s, &mut measured);
    returned::measure(cell, &returned_of(cell, network), began_s, &mut measured);
    of_network(cell, network, &mut measured);
    measured
}

/// What the hard links have carried in the direction of the data.
fn carried_of(cell: &Cell, network: &Network) -> carried::Carried {
    let links = network.topology.hard_links().into_iter();
    // The client's side of a link sends upwards.
    let end = |ends: Vec<(usize, usize)>| ends.get(usize::from(carried::way(cell) == Way::Down)).copied();
    let ends: Vec<_> = links.filter_map(|link| end(network.ends_of_link(link))).collect();
    let Some((node, port)) = ends.first() else { return carried::Carried::default() };
    let first = network.world.carried(*node, *port);
    let stats = ends.iter().map(|(node, port)| network.world.channel_stats(*node, *port).serialised_bytes);
    carried::Carried {
        bytes: first.bytes.clone(),
        queue_bytes: first.queue_bytes.iter().map(|bytes| u64::from(*bytes)).collect(),
        connections: first.connections.iter().map(of_connection).collect(),
        first_data_s: first.first_data.map(|d| d.as_secs_f64()),
        serialised_bytes: stats.sum(),
        xcp_bytes: first.xcp_bytes.clone(),
        xcp_queue_bytes: first.xcp_queue_bytes.iter().map(|bytes| u64::from(*bytes)).collect(),
        first_end_s: None,
    }
}

/// What the first hard link has carried against the data.
fn returned_of(cell: &Cell, network: &Network) -> returned::Returned {
    let ends = network.topology.hard_links().into_iter().next().map(|link| network.ends_of_link(link));
    let Some(&[client_side, server_side]) = ends.as_deref() else { return returned::Returned::default() };
    let [data, back] = match carried::way(cell) {
        Way::Down => [server_side, client_side],
        Way::Up => [client_side, server_side],
    };
    let bytes = |(node, port)| network.world.carried(node, port).bytes.clone();
    let (of_data, of_back) =
        (network.world.channel_stats(data.0, data.1), network.world.channel_stats(back.0, back.1));
    let acknowledged = network.world.carried(back.0, back.1);
    returned::Returned {
        bytes: bytes(back),
        acks: acknowledged.acks.iter().map(|n| u64::from(*n)).collect(),
        acked_bytes: acknowledged.acked_bytes.clone(),
        data_bytes: bytes(data),
        ack_packets: of_back.ack_packets,
        ack_bytes: of_back.ack_bytes,
        copy_ack_bytes: of_data.copy_ack_bytes + of_back.copy_ack_bytes,
        drops: of_back.dropped_queue,
        fragments: of_data.fragments,
        link_bytes: of_data.serialised_bytes + of_back.serialised_bytes,
    }
}

fn of_connection(c: &farlink_channel::OfConnection) -> (usize, Vec<u64>) {
    (c.first_interval, c.bytes.iter().map(|bytes| u64::from(*bytes)).collect())
}

/// Bytes of the far and the near client's transfers that crossed the hub before the server's
/// Ethernet, as the laboratory counts them.
fn sets_of(network: &Network, is_upload: bool) -> sets::Series {
    let by_time = |neighbour: &str| {
        let port = if is_upload { network.port(neighbour, "hub") } else { network.port("hub", neighbour) };
        port.and_then(|(node, port)| network.world.meter(node, port)).map_or(&[][..], |m| &m.by_time)
    };
    let (far, near) = (by_time("gw2"), by_time("client2"));
    let mut sums = [0; 2];
    let mut series = vec![sums];
    for n in 0..far.len().max(near.len()) {
        for (sum, bytes) in sums.iter_mut().zip([far, near]) {
            *sum += bytes.get(n).copied().unwrap_or(0);
        }
        series.push(sums);
    }
    series
}

/// What every kind of scenario says of its network.
pub(super) fn of_network(cell: &Cell, network: &mut Network, measured: &mut Measured) {
    let source = usize::from(!is_upload(cell));
    let retransmits: u64 = network.play.outcomes.borrow().iter().map(|o| o.retransmits[source]).sum();
    measured.metric("source_retransmits", retransmits as f64);
    of_link(cell, network, measured);
    of_gateways(network, measured);
}

fn of_link(cell: &Cell, network: &mut Network, measured: &mut Measured) {
    let (mut queue_max, mut drops, mut of_ethernet) = (0.0_f64, 0.0, None);
    for link in network.topology.links() {
        let (mut most, mut lost) = (0.0_f64, 0.0);
        for (node, port) in network.ends_of_link(link) {
            let stats = network.world.channel_stats(node, port);
            most = most.max(stats.queue_max_bytes as f64);
            lost += stats.dropped_queue as f64;
        }
        if network.topology.is_ethernet(link) {
            let (longest, all) = of_ethernet.unwrap_or((0.0_f64, 0.0));
            of_ethernet = Some((longest.max(most), all + lost));
        } else {
            queue_max = queue_max.max(most);
            drops += lost;
        }
    }
    measured.metric("link_queue_max_bytes", queue_max);
    measured.metric("link_queue_drops", drops);
    measured.metric("router_fragments", network.world.router_fragments as f64);
    measured.metric("queue_max_bytes", queue_max);
    if let Some((queue, lost)) = of_ethernet {
        of_ethernets(queue, lost, measured);
    }
    let (sender, receiver) = if is_upload(cell) { ("gw1", "gw2") } else { ("gw2", "gw1") };
    let meter = |gateway: &str| {
        let (node, port) = network.port_to_link(gateway)?;
        network.world.meter(node, port)
    };
    if let Some(back) = meter(receiver) {
        measured.metric("return_bytes", back.bytes as f64);
        measured.metric("ack_packets", back.ack_packets as f64);
        measured.metric("ack_bytes", back.ack_bytes as f64);
    }
    // Whatever leaves the gateway again, by whichever interface, as the laboratory's captures
    // count.
    for gateway in [sender, receiver] {
        let meters = network.meters_of(gateway);
        if !meters.is_empty() {
            let repeats = meters.iter().flat_map(|m| m.repeats.values()).map(|r| r.most).max();
            let ids: u64 = meters.iter().map(|m| m.identifications.repeated).sum();
            let repeated: f64 = meters.iter().map(|m| m.repeated_bytes as f64).sum();
            let early = early_bytes(network, gateway);
            if gateway == sender {
                measured.metric("repeats_most", f64::from(repeats.unwrap_or(0)));
                measured.metric("ids_repeated", ids as f64);
                measured.metric("early_bytes", early);
                of_repetitions(repeated, early, measured);
            } else {
                measured.metric("local_repeated_bytes", (repeated - early).max(0.0));
            }
        }
    }
}

/// Copies that this gateway has sent before a loss could be known.
fn early_bytes(network: &mut Network, gateway: &str) -> f64 {
    let Some(node) = network.node(gateway) else { return 0.0 };
    let gateway = network.world.gateway(node).and_then(|g| g.gateway.as_mut());
    gateway.map_or(0.0, |g| g.status().engine.counters.early_repeated_bytes as f64)
}

fn of_gateways(network: &mut Network, measured: &mut Measured) {
    let (mut memory, mut split, mut doubted, mut count) = (0, 0, 0, 0);
    let (mut peaks, mut returned, mut links) = (Vec::new(), Vec::new(), Vec::new());
    let mut queue = measured.metrics.get("queue_max_bytes").copied().unwrap_or(0.0);
    let mut copies = gauges::Copies::default();
    for node in network.world.gateways() {
        let Some(gateway) = network.world.gateway(node).and_then(|g| g.gateway.as_mut()) else { continue };
        let status = gateway.status();
        let backlogs = status.links.iter().map(|l| l.backlog_max_bytes as f64);
        queue = backlogs.fold(queue, f64::max);
        peaks.push((node, status.engine.held_max_bytes, status.engine.pool_max_bytes));
        let returns = status.links.iter().map(|l| (l.returns, l.on_hand_total_bytes));
        returned.push((node, returns.fold((0, 0), |sum, l| (sum.0 + l.0, sum.1 + l.1))));
        links.extend(status.links.iter().filter_map(|l| serde_json::to_value(l).ok()));
        memory += status.engine.pool_bytes + status.engine.table_bytes;
        split += status.engine.counters.flows_split;
        copies.packets += status.engine.counters.early_repeated_packets;
        copies.bytes += status.engine.counters.early_repeated_packet_bytes;
        copies.openings += status.engine.counters.openings_copied;
        doubted += status.engine.counters.xcp_doubted;
        count += 1;
    }
    measured.metric("queue_max_bytes", queue);
    copies.measure(measured);
    for (node, held, blocks) in peaks {
        gauges::of_peaks(network.world.name(node), held, blocks, measured);
    }
    for (node, (times, on_hand)) in returned {
        gauges::of_returns(network.world.name(node), times, on_hand, measured);
    }
    by_kind::of_links(links.iter(), measured);
    if count > 0 {
        let room = links.iter().filter_map(|link| link.pointer("/room_bps")?.as_f64());
        measured.metric("room_bps", room.fold(0.0, f64::max));
        let of_declared = links.iter().filter_map(|link| {
            let [room, declared] = ["/room_bps", "/declared_bps"].map(|at| link.pointer(at)?.as_f64());
            Some(room? / declared.filter(|bps| *bps > 0.0)?)
        });
        measured.metric("room_to_declared", of_declared.fold(0.0, f64::max));
        measured.metric("memory_bytes", memory as f64);
        measured.metric("flows_split", split as f64);
        measured.metric("xcp_doubted", doubted as f64);
    }
}
