//! `transfer`: one or several timed transfers across the topology.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::metrics::{of_flows, of_times};
use super::session::{Allowed, PORT, Session};
use super::{Kind, Run, carried, declared, first, gauges, outages, returned, sets, source_clock};
use crate::baseline;
use crate::build::Lab;
use crate::capture::Trace;
use crate::limit::{Clock, Handshake, Job, Packets, packet_loss};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::{Hosts, Settings, Way};
use crate::sh;
use crate::topology::Topology;
use crate::workload::{Direction, Outcome, Served, Transfer};

/// Param: so many transfers go before, one after the other, and are not timed.
pub(crate) const EARLIER: &str = "earlier";

/// Param: the client of the first download stops reading in its middle, for so many milliseconds.
const STOPS_MS: &str = "stops_ms";

/// Marks of a download whose arrivals are told.
const MARKS: u64 = 1_000;

/// Param: the client sends datagrams beside them, so much of the rate towards the server.
pub(crate) const UDP_PERCENT: &str = "udp_percent";

/// See the module.
pub(super) struct TransferKind;

impl Kind for TransferKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let floods = cell.number("floods", 0) > 0;
        let has_datagrams = cell.number(UDP_PERCENT, 0) > 0;
        baseline::cannot_run(cell)
            .or_else(|| cell.is_in_tunnel().then(|| "transfers in a tunnel are only simulated".into()))
            .or_else(|| has_datagrams.then(|| "datagrams beside transfers are only simulated".into()))
            .or_else(|| {
                (cell.settings.stall_share > 0.0).then(|| "only simulated gateways stand still".into())
            })
            .or_else(|| first::of(cell).map(|_| "only the simulator begins some transfers later".into()))
            .or_else(|| (floods && sh::find("ping").is_none()).then(|| "ping is not installed".into()))
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let is_ours = !baseline::start(&mut session.lab, cell, PORT)?;
        let transfers = transfers(scenario, cell, &session.lab, run.seed)?;
        for _ in 0..cell.number(EARLIER, 0) {
            let (before, ()) = session.transfer(transfers.get(..1).unwrap_or_default(), run, |_| ());
            if let Some(why) = before.iter().find_map(|o| o.error.as_deref()) {
                bail!("the transfer before the timed one failed: {why}");
            }
        }
        for _ in 0..cell.number("floods", 0) {
            flood(&mut session.lab)?;
        }
        let counting = sets::Counting::start(scenario, cell, &session.lab)?;
        let total = transfers.iter().map(|t| t.bytes).sum();
        session.lab.begin_schedules(scenario.clock, cell)?;
        let called = Instant::now();
        let (outcomes, samples) = session.transfer_counted(&transfers, run, |lab, arrived| {
            if cell.is_announced() {
                let settings = Settings { seed: run.seed, ..cell.settings.clone() };
                let schedule = settings.channel(carried::way(cell));
                return outages::follow(lab, schedule, called, (arrived, total)).map(|()| Vec::new());
            }
            Ok(if scenario.watches_gateways { gauges::watch(lab, arrived, total) } else { Vec::new() })
        });
        let samples = samples?;
        let served = session.served("server", &outcomes);
        let mut measured = measure(scenario, cell, &transfers, &outcomes, &served);
        let over_s = outcomes.iter().map(|o| o.ended_s).fold(f64::INFINITY, f64::min);
        gauges::of_samples(cell, &samples, over_s, &mut measured);
        if counting.is_some() || cell.number("clients", 1) > 1 {
            let rates: Vec<f64> = outcomes.iter().map(|o| o.bytes as f64 / o.seconds.max(1e-9)).collect();
            sets::of_flows(&rates, &mut measured);
        }
        if let Some(counting) = counting {
            sets::share(&counting.finish(), &mut measured);
        }
        let began = outcomes.iter().map(|o| o.ended_s).reduce(f64::max).map(|end_s| end_s - measured.seconds);
        let (carried, age_s) = carried::of_lab(cell, &session.lab)?;
        let began_s = began.map(|began| age_s - (called.elapsed().as_secs_f64() - began));
        let first_end_s = over_s.is_finite().then(|| age_s - (called.elapsed().as_secs_f64() - over_s));
        let carried = carried::Carried { first_end_s, ..carried };
        carried::measure(scenario, cell, run.seed, &carried, began_s, &mut measured);
        returned::measure(cell, &returned::of_lab(cell, &session.lab)?, began_s, &mut measured);
        let sound = measured.failures.len();
        let findings = session.finish(cell, &mut measured)?;
        if !is_ours {
            // Other proxies make connections of their own, with other sequence numbers.
            measured.failures.truncate(sound);
            measured.unjudged = None;
        }
        run.trace = Trace::of(&findings, &outcomes);
        Ok(measured)
    }
}

fn transfers(scenario: &Scenario, cell: &Cell, lab: &Lab, seed: u64) -> Result<Vec<Transfer>> {
    let to = lab.address("server", cell.v6())?;
    let flows = cell.number("flows", 1);
    let transfers = (0..flows).map(|flow| Transfer {
        direction: if uploads(cell, flow) { Direction::Upload } else { Direction::Download },
        clock: scenario.clock,
        start_after: begins_after(cell, flow),
        request_after: request_after(scenario, cell, flow),
        mark_every: mark_every(scenario, cell),
        stops: stops(cell).filter(|_| flow == 0),
        ..Transfer::download(
            lab.ns(client_of(scenario, cell, flow)),
            to,
            PORT,
            cell.number("size_bytes", 1_000_000),
            seed.wrapping_add(flow),
        )
    });
    Ok(transfers.collect())
}

/// The host that makes a transfer: in the topology `fairness` every other one is the second
/// client's; with `clients` they take turns; with `client_flows` the first client makes so many.
pub(crate) fn client_of(scenario: &Scenario, cell: &Cell, flow: u64) -> &'static str {
    let least = if sets::has_sets(scenario, cell) { 2 } else { 1 };
    let clients = cell.number("clients", 1).clamp(least, 3);
    let turn = match cell.number("client_flows", 0) {
        0 => flow % clients,
        own if flow < own => 0,
        own => 1 + (flow - own) % (clients - 1).max(1),
    };
    match turn {
        0 => "client",
        1 => "client2",
        _ => "client3",
    }
}

/// Of so many bytes each the arrival is told; 0: of none.
pub(crate) fn mark_every(scenario: &Scenario, cell: &Cell) -> u64 {
    let size = cell.number("size_bytes", 1_000_000);
    if scenario.watches_arrivals { (size / MARKS).max(1) } else { 0 }
}

/// When half of the first download has come, its client stops reading for so long.
pub(crate) fn stops(cell: &Cell) -> Option<(u64, Duration)> {
    let wait = Duration::from_millis(cell.number(STOPS_MS, 0));
    (!wait.is_zero()).then(|| (cell.number("size_bytes", 1_000_000) / 2, wait))
}

/// How long after the first transfer this one begins.
pub(crate) fn begins_after(cell: &Cell, flow: u64) -> Duration {
    Duration::from_secs_f64(cell.settings.stagger_ms / 1e3 * flow as f64)
}

/// How long after the beginning a transfer sends its request. Two sets begin at once at the server,
/// when all connections stand: the near ones' requests wait for the far ones' to cross the link.
pub(crate) fn request_after(scenario: &Scenario, cell: &Cell, flow: u64) -> Duration {
    if !sets::has_sets(scenario, cell) {
        return Duration::ZERO;
    }
    // Handshakes, and one repetition of a SYN.
    let stand = Duration::from_millis(1500) + Duration::from_secs_f64(2.0 * cell.settings.rtt_ms / 1e3);
    let one_way = Duration::from_secs_f64(cell.settings.rtt_ms / 2e3);
    if client_of(scenario, cell, flow) == "client" { stand } else { stand + one_way }
}

/// A flood of pings of 1,472 bytes, packets as large as Ethernet takes, from the client to its
/// router until the laboratory is taken down (thesis 5.2.2).
fn flood(lab: &mut Lab) -> Result<()> {
    let client = lab.topology.index("client")?;
    let next = lab.topology.interfaces(client).into_iter().next().context("the client has no interface")?;
    let router = lab.topology.interfaces(next.peer).into_iter().find(|i| i.peer == client);
    let address = router.and_then(|i| i.ipv4).context("the client's router has no address")?;
    lab.start("client", "ping", &["-f", "-q", "-s", "1472", &address.to_string()]).map(drop)
}

/// Whether the bytes go to the server.
pub(crate) fn is_upload(cell: &Cell) -> bool {
    cell.word("direction", "down") == "up"
}

/// Every other transfer goes to the server.
pub(crate) fn has_both_directions(cell: &Cell) -> bool {
    cell.word("direction", "down") == "both"
}

/// Whether the bytes of this transfer go to the server.
pub(crate) fn uploads(cell: &Cell, flow: u64) -> bool {
    is_upload(cell) || (has_both_directions(cell) && flow % 2 == 1)
}

fn direction(cell: &Cell) -> Direction {
    if is_upload(cell) { Direction::Upload } else { Direction::Download }
}

/// Where transfers go both ways: the rate of each direction by its last end, and of all payload by
/// the last end of all, bit/s. `transfers`: whether it goes to the server, its payload, and its
/// seconds.
pub(crate) fn of_directions(cell: &Cell, transfers: &[(bool, u64, f64)], measured: &mut Measured) {
    if !has_both_directions(cell) {
        return;
    }
    let mut rate = |name: &str, counts: &dyn Fn(bool) -> bool| {
        let own = transfers.iter().filter(|(up, ..)| counts(*up));
        let (bytes, seconds) = own.fold((0, 0.0_f64), |(sum, end), (_, bytes, s)| (sum + bytes, end.max(*s)));
        measured.metric(name, 8.0 * bytes as f64 / seconds.max(1e-9));
    };
    rate("up_goodput_bps", &|up| up);
    rate("down_goodput_bps", &|up| !up);
    rate("both_goodput_bps", &|_| true);
}

/// The physical limit of these transfers together in seconds. Where the link follows a schedule
/// there is none to speak of: it depends on the moment at which they begin. Nor is there where they
/// go both ways, begin one after the other, or have round trips of their own.
pub(crate) fn limit_seconds(scenario: &Scenario, cell: &Cell) -> Option<f64> {
    let is_together = cell.settings.stagger_ms == 0.0 && cell.settings.eth_rtts_ms.is_empty();
    let is_known = !cell.settings.is_scheduled() && !has_both_directions(cell) && is_together;
    is_known.then(|| limit_of(scenario, cell).seconds())
}

/// The terms of that limit.
pub(crate) fn limit_of(scenario: &Scenario, cell: &Cell) -> Job {
    let (way, rate, back) = match direction(cell) {
        Direction::Download => (Way::Down, cell.settings.rate_bps, cell.settings.up_bps()),
        Direction::Upload => (Way::Up, cell.settings.up_bps(), cell.settings.rate_bps),
    };
    let s = &cell.settings.towards(way);
    let packets = Packets { mtu: s.link_mtu, v6: cell.v6(), timestamps: s.has_timestamps() };
    let size = cell.number("size_bytes", 1_000_000);
    let flows = cell.number("flows", 1);
    let ethernet = cell.settings.ethernet_bps("eth");
    let (far, rate, rtt_ms) = if !sets::has_sets(scenario, cell) {
        (flows, slowest_rate(scenario, cell, rate, flows), s.rtt_ms)
    } else if ethernet > 0 && (rate == 0 || ethernet < rate) {
        // Both sets share what is narrowest.
        (flows, ethernet, s.eth_rtt_ms)
    } else {
        // Of two sets only the far one crosses the link.
        (flows.div_ceil(2), rate, s.rtt_ms)
    };
    // Beside a transfer that is under way they have their share.
    let beside = u64::from(first::of(cell).is_some_and(|first| first.is_under_way(rate as f64)));
    Job {
        rate_bps: rate as f64 * flows as f64 / (flows + beside) as f64,
        return_bps: back as f64,
        rtt_s: links_of(scenario, cell) * rtt_ms / 1e3,
        bytes: (size * far) as f64,
        round_trips: 1.0,
        eta: packets.eta(size),
        loss: packet_loss(s.ber, s.mean_loss(), s.link_mtu),
        wink_p: s.wink_p,
        return_overhead_bytes: return_overhead_bytes(cell, packets, size),
        clock: scenario.clock,
    }
}

/// Bytes that cross the return direction before the data: of a download SYN and request, which
/// acknowledges, too; of an upload the server's answer to the SYN.
fn return_overhead_bytes(cell: &Cell, packets: Packets, size_bytes: u64) -> f64 {
    let lacks = cell.settings.lacks("client");
    let is_modern = cell.settings.hosts == Hosts::Modern;
    let handshake =
        Handshake { packets, scaling: is_modern && !lacks.scaling, sack: is_modern && !lacks.sack };
    let request = format!("GET {size_bytes} {}\n", cell.settings.seed).len();
    let bytes = match direction(cell) {
        Direction::Download => handshake.syn_bytes() + packets.header_bytes() + request as u32,
        Direction::Upload => handshake.syn_bytes(),
    };
    f64::from(bytes)
}

/// Hard links that a transfer crosses.
fn links_of(scenario: &Scenario, cell: &Cell) -> f64 {
    let topology = Topology::named(cell.word("topology", &scenario.topology), &cell.settings);
    let links = topology.and_then(|topology| topology.links_between("client", "server"));
    links.map_or(1.0, |links| links.len() as f64)
}

/// Where Ethernets stand beside the link, the one whose transfers take longest counts, as a rate of
/// all transfers together. Pings may lose all that they ask of it.
fn slowest_rate(scenario: &Scenario, cell: &Cell, link_bps: u64, flows: u64) -> u64 {
    let name = cell.word("topology", &scenario.topology);
    let Ok(topology) = Topology::named(name, &cell.settings) else { return link_bps };
    let mut flows_over = BTreeMap::new();
    for flow in 0..flows {
        *flows_over.entry(client_of(scenario, cell, flow)).or_insert(0) += 1;
    }
    let mut crossed: BTreeMap<usize, u64> = BTreeMap::new();
    for (client, flows) in flows_over {
        let ends = topology.index(client).and_then(|a| Ok((a, topology.index("server")?)));
        let path = ends.map(|(a, b)| topology.path(a, b)).unwrap_or_default();
        for node in path.into_iter().filter(|n| topology.is_ethernet(*n)) {
            *crossed.entry(node).or_default() += flows;
        }
    }
    let rates = crossed.into_iter().filter_map(|(node, over)| {
        let rate = cell.settings.ethernet_bps(&topology.nodes[node].name);
        (rate > 0).then(|| rate.saturating_mul(flows) / over.max(1))
    });
    rates.chain((link_bps > 0).then_some(link_bps)).min().unwrap_or(0)
}

/// Seconds by the scenario's clock. When a source at the server begins, only the server knows.
fn seconds(clock: Clock, transfer: &Transfer, outcome: &Outcome, served: &Served) -> f64 {
    let is_of_source = clock == Clock::Source && transfer.direction == Direction::Download;
    is_of_source.then(|| since_source(outcome, served)).flatten().unwrap_or(outcome.seconds)
}

/// Seconds of a download from the moment at which the source began to send.
fn since_source(outcome: &Outcome, served: &Served) -> Option<f64> {
    let (last, began) = outcome.last_byte.zip(served.began)?;
    Some(last.saturating_duration_since(began).as_secs_f64())
}

fn measure(
    scenario: &Scenario,
    cell: &Cell,
    transfers: &[Transfer],
    outcomes: &[Outcome],
    served: &[Served],
) -> Measured {
    let pairs = || transfers.iter().zip(outcomes.iter().zip(served));
    let mut measured = Measured {
        seconds: pairs().map(|(t, (o, s))| seconds(scenario.clock, t, o, s)).fold(0.0, f64::max),
        bytes: outcomes.iter().map(|o| o.bytes).sum(),
        limit_seconds: limit_seconds(scenario, cell),
        arrivals_s: outcomes.first().map(|o| o.marks_s.clone()).unwrap_or_default(),
        ..Measured::default()
    };
    declared::measure(scenario, cell, &mut measured);
    for (number, (outcome, served)) in outcomes.iter().zip(served).enumerate() {
        measured.expect(outcome.intact, || {
            format!("transfer {number}: {}", outcome.error.as_deref().unwrap_or("not intact"))
        });
        measured.expect(served.orderly || !outcome.intact, || {
            format!("transfer {number}: the server saw no orderly end ({:?})", served.error)
        });
        let wanted = &cell.settings.host_cc;
        let has = &served.congestion_control;
        measured.expect(has.is_empty() || wanted.is_empty() || has == wanted, || {
            format!("the server's congestion control is {has}, not {wanted}")
        });
    }
    let infos = outcomes.iter().map(|o| o.info).zip(served.iter().map(|s| s.info));
    let source = infos.zip(transfers).map(|((client, server), transfer)| match transfer.direction {
        Direction::Download => server,
        Direction::Upload => client,
    });
    measured.metric("source_retransmits", source.map(|i| f64::from(i.retransmits)).sum());
    measured.metric("connect_seconds", outcomes.iter().map(|o| o.connect_seconds).fold(0.0, f64::max));
    let times = pairs().map(|(t, (o, s))| seconds(scenario.clock, t, o, s));
    of_times(&times.collect::<Vec<_>>(), &mut measured);
    let rates = pairs().map(|(t, (o, s))| o.bytes as f64 / seconds(scenario.clock, t, o, s).max(1e-9));
    of_flows(&rates.collect::<Vec<_>>(), &mut measured);
    let by_direction = pairs()
        .map(|(t, (o, s))| (t.direction == Direction::Upload, o.bytes, seconds(scenario.clock, t, o, s)));
    of_directions(cell, &by_direction.collect::<Vec<_>>(), &mut measured);
    let by_source = outcomes.iter().zip(served).map(|(o, s)| (o.bytes, since_source(o, s)));
    source_clock::measure(scenario, cell, &by_source.collect::<Vec<_>>(), &mut measured);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_builtin_downloads_is_the_known_one() {
        let scenario = Scenario::find("geo-download").unwrap();
        let cells = scenario.cells().unwrap();
        let cell = cells.iter().find(|c| c.variant == "farlink" && c.number("size_bytes", 0) == 10_000_000);
        let seconds = limit_of(&scenario, cell.unwrap()).seconds();
        assert!((seconds - 11.36).abs() < 0.01, "{seconds}");
    }

    /// SYN and request of 60 and 65 bytes wait for a slow return link.
    #[test]
    fn a_starved_return_link_has_its_part_in_the_limit() {
        let limit = |set: &[&str]| {
            let scenario = Scenario::find("geo-download").unwrap();
            let cells = scenario.cells().unwrap();
            let mut cell = cells.into_iter().find(|c| c.variant == "farlink").unwrap();
            cell.set_all(set.iter().copied()).unwrap();
            limit_of(&scenario, &cell).seconds()
        };
        let more = |set: &[&str], up: f64| {
            let fast = limit(&[set, &["rate_up=0"]].concat());
            (limit(&[set, &[&format!("rate_up={up}")]].concat()) - fast) * up / 8.0
        };
        assert!((more(&[], 32e3) - 125.0).abs() < 1e-6, "{}", more(&[], 32e3));
        assert!((more(&["client_lacks=timestamps"], 9.6e3) - 105.0).abs() < 1e-6);
    }

    #[test]
    fn the_clock_of_a_source_begins_at_the_server() {
        let began = std::time::Instant::now();
        let outcome = Outcome {
            seconds: 2.0,
            last_byte: Some(began + Duration::from_millis(1500)),
            ..Outcome::default()
        };
        let served = Served { began: Some(began), ..Served::default() };
        let lab = crate::netns::Ns::named("a");
        let down = Transfer::download(lab, std::net::Ipv4Addr::LOCALHOST.into(), PORT, 1, 1);
        assert!((seconds(Clock::Source, &down, &outcome, &served) - 1.5).abs() < 1e-9);
        assert!((seconds(Clock::Request, &down, &outcome, &served) - 2.0).abs() < 1e-9);
        let up = Transfer { direction: Direction::Upload, ..down };
        assert!((seconds(Clock::Source, &up, &outcome, &served) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_clock_of_a_source_is_refused_where_nobody_knows_it() {
        let text = |kind: &str| {
            format!(
                "name = 't'\ntitle = 't'\nkind = '{kind}'\nclock = 'source'\n[[variant]]\nname = 'farlink'\n"
            )
        };
        assert!(Scenario::parse(&text("transfer")).is_ok());
        let refused = Scenario::parse(&text("web")).unwrap_err().to_string();
        assert!(refused.contains("paper_clock") && refused.contains("`web`"), "{refused}");
    }
}
