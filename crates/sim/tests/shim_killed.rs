//! A gateway dies under a transfer whose data comes with XCP's own header: a host does not
//! understand that, and drops it. The other gateway sends the data again without it.

use farlink_channel::ChannelConfig;
use farlink_gateway::config::{Action, Config, Notice, Pinned};
use farlink_sim::build::build;
use farlink_sim::changing::Changing;
use farlink_sim::plan::{FaultPlan, Gap, GatewayPlan, HostPlan, Mode, SimPlan};
use farlink_sim::trace::Trace;
use farlink_sim::traffic::{Close, Congestion, Connection, HostConfig, Side};
use farlink_sim::world::World;
use farlink_wire::{Duration, Instant};

const AT: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(5);
const BYTES: u64 = 8_000_000;
/// By its delay the gap is one with XCP, in its own header, and with a router (`build.rs`).
const DELAY: Duration = Duration::from_micros(63 * 317);

fn plan(upload: bool) -> SimPlan {
    let hard = ChannelConfig {
        delay: DELAY,
        rate_bps: Some(10_000_000),
        queue_limit_bytes: Some(60_000),
        ..ChannelConfig::default()
    };
    let lan = ChannelConfig { delay: Duration::from_micros(100), ..ChannelConfig::default() };
    let gap = |i: usize| Gap {
        there: if i == 1 { hard.clone() } else { lan.clone() },
        back: if i == 1 { hard.clone() } else { lan.clone() },
        mtu_bytes: 1500,
        declared: i == 1,
        rate_known: false,
        interference: None,
    };
    let host = |end: usize| HostPlan { config: HostConfig::default(), end, delay: Duration::from_micros(50) };
    // Nothing that it holds is missing when it dies.
    let default_action = Action::Custody(Notice::Silence);
    let gateway = |_| GatewayPlan {
        config: Config { pinned: Pinned::Never, seed: 7, default_action, ..Config::default() },
        merge: None,
        bypass: lan.clone(),
    };
    let (up, down) = if upload { (BYTES, 1) } else { (1, BYTES) };
    let mut connection = Connection::new(0, 1, 0, up, down);
    for side in &mut connection.sides {
        *side = Side {
            rx_buffer_bytes: 262_144,
            tx_buffer_bytes: 262_144,
            congestion: Congestion::Cubic,
            close: Close::WhenBothDone,
            ..side.clone()
        };
    }
    // The gateway next to the reader, and it does not come back.
    let killed = usize::from(upload);
    let kill = FaultPlan::Kill {
        gateway: killed,
        at: Instant::ZERO + AT,
        restart_after: Duration::from_secs(1_000),
    };
    SimPlan {
        seed: 1,
        mode: Mode::Mixed,
        policy: None,
        hosts: vec![host(0), host(1)],
        gaps: (0..=2).map(gap).collect(),
        gateways: (0..2).map(gateway).collect(),
        connections: vec![connection],
        faults: vec![kill],
        changing: Changing::default(),
    }
}

/// What the status of the gateway next to the source says of the header.
fn header(world: &mut World, upload: bool) -> &'static str {
    let node = world.gateways()[usize::from(!upload)];
    let status = world.gateway(node).and_then(|node| Some(node.gateway.as_ref()?.status())).unwrap();
    status.links.iter().flat_map(|link| &link.pairs).map(|pair| pair.header).next().unwrap_or("no pair")
}

#[test]
fn a_connection_outlives_the_gateway_that_took_the_header_out() {
    for upload in [false, true] {
        let mut world = build(&plan(upload), Trace::default());
        let (mut now, mut last, mut longest) = (Instant::ZERO, (0, Instant::ZERO), Duration::ZERO);
        let (killed_at, end) = (Instant::ZERO + AT, Instant::ZERO + Duration::from_secs(20));
        let mut at_kill = 0;
        while now < end && last.0 < BYTES {
            now += STEP;
            world.run_until(now);
            assert!(world.failure.is_none(), "{:?}", world.failure);
            let read = world.ends().iter().filter(|e| e.is_client != upload).map(|e| e.received).sum();
            if now + STEP == killed_at {
                assert_eq!(header(&mut world, upload), "passes", "upload {upload}");
                at_kill = read;
            }
            if read > last.0 {
                if now > killed_at {
                    longest = longest.max(now.since(last.1));
                }
                last = (read, now);
            }
        }
        assert!((1_000_000..4_000_000).contains(&at_kill), "upload {upload}: {at_kill} at the kill");
        assert_eq!(last.0, BYTES, "upload {upload}: after {:?}", now.since(Instant::ZERO));
        // A timeout of the gateway that is left, which knows its round trip.
        assert!(longest < Duration::from_millis(1_000), "upload {upload}: {longest:?} without anything");
        // And full speed from then on: 6 MB at 10 Mbit/s, and what acknowledgements of hosts cost.
        assert!(now < killed_at + Duration::from_secs(8), "upload {upload}: {:?}", now.since(killed_at));
    }
}
