//! Traffic and faults of a seed.

use farlink_wire::{Duration, Instant};

use crate::plan::{FaultPlan, HostPlan, Mode, Way};
use crate::rng::Rng;
use crate::traffic::{Begin, Close, Congestion, Connection, Side};

/// The connections of a run.
pub(crate) fn connections(rng: &mut Rng, mode: Mode, hosts: &[HostPlan]) -> Vec<Connection> {
    let count = rng.pick(&[1, 1, 2, 3, 4, 6, 10]);
    let big = rng.chance(0.05);
    (0..count).map(|n| connection(rng, mode, hosts, n, big && n == 0)).collect()
}

fn connection(rng: &mut Rng, mode: Mode, hosts: &[HostPlan], number: u16, big: bool) -> Connection {
    let at_end = |rng: &mut Rng, end: usize| {
        let there: Vec<usize> = (0..hosts.len()).filter(|h| hosts[*h].end == end).collect();
        rng.pick(&there)
    };
    let client_end = usize::from(rng.chance(0.3));
    let client = at_end(rng, client_end);
    let server = at_end(rng, 1 - client_end);
    let small_mtu = hosts[client].config.mtu_bytes < 1280 || hosts[server].config.mtu_bytes < 1280;
    let uses = if rng.chance(0.12) { rng.range(2, 5) as u32 } else { 1 };
    let most = if big { 2_000_000 } else { rng.pick(&[3_000, 30_000, 120_000, 400_000]) } / u64::from(uses);
    let size = |rng: &mut Rng| if rng.chance(0.1) { 0 } else { rng.log_range(1, most) };
    let mut sides = [side(rng, 0), side(rng, 0)];
    let shape = rng.range(0, 10);
    match shape {
        // A download: a request, an answer.
        0..=4 => {
            sides[0].send_bytes = rng.range(1, 1_000);
            sides[1].send_bytes = if big { most } else { size(rng) };
            sides[1].begin = Begin::AfterBytes(sides[0].send_bytes);
            sides[0].close = rng.pick(&[Close::WhenSent, Close::WhenBothDone, Close::WhenBothDone]);
        }
        // An upload, answered at its end.
        5..=6 => {
            sides[0].send_bytes = if big { most } else { size(rng) };
            sides[1].send_bytes = rng.range(0, 500);
            sides[1].begin = Begin::AfterEnd;
        }
        // Both at once.
        7..=8 => {
            sides[0].send_bytes = size(rng);
            sides[1].send_bytes = size(rng);
        }
        // The server speaks first.
        _ => {
            sides[0].send_bytes = size(rng);
            sides[1].send_bytes = rng.range(1, 3_000);
            sides[0].begin = Begin::AfterBytes(sides[1].send_bytes);
            sides[1].close = Close::WhenBothDone;
        }
    }
    if rng.chance(0.1) {
        sides[rng.range(0, 2) as usize].close = Close::Later(rng.millis(100, 20_000));
    }
    if mode != Mode::RouteFlap && rng.chance(0.12) {
        let who = rng.range(0, 2) as usize;
        if sides[1 - who].begin == Begin::AfterEnd {
            // One that aborts never ends its stream in order.
            sides[1 - who].begin = Begin::AtOnce;
        }
        sides[who].close = if rng.chance(0.5) {
            Close::AbortAfterWriting(rng.range(0, sides[who].send_bytes + 1))
        } else {
            Close::AbortAfterReading(rng.range(0, sides[1 - who].send_bytes + 1))
        };
    }
    for s in 0..2 {
        pace(rng, &mut sides, s);
    }
    Connection {
        client,
        server,
        v6: !small_mtu && rng.chance(0.4),
        client_port: 30_000 + number,
        server_port: 1_000 + number,
        start: rng.millis(1, 2_000),
        uses,
        reuse_gap: rng.pick(&[Duration::ZERO, Duration::from_millis(50), Duration::from_secs(2)]),
        refused: mode != Mode::RouteFlap && rng.chance(0.03),
        sides,
    }
}

fn side(rng: &mut Rng, send_bytes: u64) -> Side {
    Side {
        send_bytes,
        rx_buffer_bytes: rng.pick(&[4_096, 16_384, 65_535, 65_535, 262_144, 1_000_000]),
        tx_buffer_bytes: rng.pick(&[4_096, 32_768, 65_535, 262_144]),
        nagle: rng.chance(0.7),
        ack_delay: rng.pick(&[None, Some(10), Some(40), Some(200)]).map(Duration::from_millis),
        keepalive: rng.millis(10_000, 60_000),
        congestion: rng.pick(&[Congestion::None, Congestion::Reno, Congestion::Reno, Congestion::Cubic]),
        ..Side::default()
    }
}

/// Small writes, slow reads, and readers that stop for a while.
fn pace(rng: &mut Rng, sides: &mut [Side; 2], s: usize) {
    let writes = sides[s].send_bytes;
    let reads = sides[1 - s].send_bytes;
    let side = &mut sides[s];
    if rng.chance(0.15) {
        side.write_bytes = rng.range(1, 3_000) as usize;
        let steps = writes / side.write_bytes as u64;
        // At most about a minute of it.
        let gap_ms = (60_000 / (steps + 1)).min(300);
        side.write_gap = rng.millis(0, gap_ms + 1);
    }
    if rng.chance(0.15) {
        side.read_bytes = rng.range(100, 20_000) as usize;
        let steps = reads / side.read_bytes as u64;
        let gap_ms = (60_000 / (steps + 1)).min(500);
        side.read_gap = rng.millis(0, gap_ms + 1);
    }
    if rng.chance(0.15) {
        let mut stops: Vec<_> =
            (0..rng.range(1, 3)).map(|_| (rng.range(0, reads + 1), rng.millis(100, 60_000))).collect();
        stops.sort();
        side.read_stops = stops;
    }
}

fn way(rng: &mut Rng) -> Way {
    rng.pick(&[Way::There, Way::Back, Way::Both])
}

/// Some gap goes away before `before_ms`, for 10 to `most_ms` milliseconds.
fn outage(rng: &mut Rng, gateways: usize, before_ms: u64, most_ms: u64) -> FaultPlan {
    let gap = rng.range(0, gateways as u64 + 1) as usize;
    let at = Instant::ZERO + rng.millis(1, before_ms);
    let (way, lasts, seen) = (way(rng), rng.millis(10, most_ms), rng.chance(0.5));
    FaultPlan::Outage { gap, way, at, lasts, seen }
}

/// The faults of a run with `gateways` gateways.
pub(crate) fn faults(rng: &mut Rng, mode: Mode, gateways: usize) -> Vec<FaultPlan> {
    let mut faults = Vec::new();
    match mode {
        Mode::Clean | Mode::Hostile | Mode::Changing | Mode::Long => {}
        Mode::RouteFlap => {
            let period = rng.millis(20, 3_000);
            let gateway = rng.range(0, gateways as u64) as usize;
            let mut at = Instant::ZERO + rng.millis(1, 1_500);
            for _ in 0..rng.range(1, 20) {
                let gateway = if rng.chance(0.3) { rng.range(0, gateways as u64) as usize } else { gateway };
                faults.push(FaultPlan::Bypass { gateway, way: way(rng), at, lasts: period });
                at = at + period + period;
            }
        }
        Mode::Mixed | Mode::Custody => {
            if gateways > 0 && rng.chance(0.4) {
                for _ in 0..rng.log_range(1, 12) {
                    let gateway = rng.range(0, gateways as u64) as usize;
                    let at = Instant::ZERO + rng.millis(1, 10_000);
                    faults.push(FaultPlan::Bypass {
                        gateway,
                        way: way(rng),
                        at,
                        lasts: rng.millis(1, 4_000),
                    });
                }
            }
            if rng.chance(0.25) {
                faults.push(outage(rng, gateways, 8_000, 30_000));
            }
            if mode == Mode::Custody {
                for _ in 0..rng.log_range(1, 30) {
                    let most_ms = rng.pick(&[100, 1_000, 10_000, 300_000]);
                    faults.push(outage(rng, gateways, 20_000, most_ms));
                }
            }
            if gateways > 0 && rng.chance(0.25) {
                let gateway = rng.range(0, gateways as u64) as usize;
                let at = Instant::ZERO + rng.millis(1, 8_000);
                faults.push(FaultPlan::Drain { gateway, at, restart_after: rng.millis(0, 5_000) });
            }
            if gateways > 0 && rng.chance(0.15) {
                let gateway = rng.range(0, gateways as u64) as usize;
                let at = Instant::ZERO + rng.millis(1, 8_000);
                faults.push(FaultPlan::Kill { gateway, at, restart_after: rng.millis(1, 2_000) });
            }
        }
    }
    faults
}
