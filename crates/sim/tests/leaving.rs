//! Routes that leave a gateway under a transfer: how long nothing arrives.

use farlink_channel::ChannelConfig;
use farlink_gateway::config::{Config, Pinned};
use farlink_sim::build::build;
use farlink_sim::changing::Changing;
use farlink_sim::plan::{FaultPlan, Gap, GatewayPlan, HostPlan, Mode, SimPlan, Way};
use farlink_sim::trace::Trace;
use farlink_sim::traffic::{Close, Congestion, Connection, HostConfig, Side};
use farlink_wire::{Duration, Instant};

/// What a case varies.
#[derive(Clone, Copy, Debug)]
struct Case {
    gateways: usize,
    declared: bool,
    rate_known: bool,
    timestamps: bool,
    sack: bool,
    upload: bool,
    /// The gateway that is left, the packets that leave it, and for how long.
    gateway: usize,
    way: Way,
    lasts: Duration,
}

const AT: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(5);

fn plan(case: &Case) -> SimPlan {
    let ms = Duration::from_millis;
    let hard = ChannelConfig {
        delay: ms(10),
        rate_bps: Some(10_000_000),
        queue_limit_bytes: Some(60_000),
        ..ChannelConfig::default()
    };
    let lan = ChannelConfig { delay: Duration::from_micros(100), ..ChannelConfig::default() };
    let middle = case.gateways.div_ceil(2);
    let gap = |i: usize| Gap {
        there: if i == middle { hard.clone() } else { lan.clone() },
        back: if i == middle { hard.clone() } else { lan.clone() },
        mtu_bytes: 1500,
        declared: case.declared && i == middle,
        rate_known: case.rate_known,
        interference: None,
    };
    let config = HostConfig { timestamps: case.timestamps, sack: case.sack, ..HostConfig::default() };
    let host = |end: usize| HostPlan { config: config.clone(), end, delay: Duration::from_micros(50) };
    let gateway = |_| GatewayPlan {
        config: Config { pinned: Pinned::Never, seed: 7, ..Config::default() },
        merge: None,
        bypass: lan.clone(),
    };
    let bytes = 14_000_000;
    let (up, down) = if case.upload { (bytes, 1) } else { (1, bytes) };
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
    let faults = (case.gateways > 0).then(|| FaultPlan::Bypass {
        gateway: case.gateway,
        way: case.way,
        at: Instant::ZERO + AT,
        lasts: case.lasts,
    });
    SimPlan {
        seed: 1,
        mode: Mode::RouteFlap,
        policy: None,
        hosts: vec![host(0), host(1)],
        gaps: (0..=case.gateways).map(gap).collect(),
        gateways: (0..case.gateways).map(gateway).collect(),
        connections: vec![connection],
        faults: faults.into_iter().collect(),
        changing: Changing::default(),
    }
}

/// The longest time without anything new for the reader, from shortly before the routes leave on.
fn stall(case: &Case) -> Duration {
    let mut world = build(&plan(case), Trace::default());
    let (mut now, mut last, mut longest) = (Instant::ZERO, (0, Instant::ZERO), Duration::ZERO);
    while now < Instant::ZERO + Duration::from_secs(8) {
        now += STEP;
        world.run_until(now);
        assert!(world.failure.is_none(), "{case:?}: {:?}", world.failure);
        let received = world.ends().iter().filter(|e| e.is_client != case.upload).map(|e| e.received).sum();
        if received > last.0 {
            if last.1 > Instant::ZERO + AT - Duration::from_secs(1) {
                longest = longest.max(now.since(last.1));
            }
            last = (received, now);
        }
    }
    if world.is_finished() { longest } else { longest.max(now.since(last.1)) }
}

/// Where the source had filled what the gateway may hold, nothing arrived for more than ten
/// seconds: what was held went on one segment at each backed-off timeout. What remains is the
/// simulated hosts' own timer, of one second and then two.
#[test]
fn what_a_gateway_holds_follows_within_a_timeout_or_two() {
    let asymmetric = |upload| if upload { Way::Back } else { Way::There };
    for gateways in [1, 2] {
        for declared in [false, true] {
            for upload in [false, true] {
                // The gateway next to the source is the one that holds most.
                let gateway = if upload { 0 } else { gateways - 1 };
                for (way, lasts) in [(asymmetric(upload), 100_000), (Way::Both, 1_000)] {
                    let lasts = Duration::from_millis(lasts);
                    let case = Case {
                        gateways,
                        declared,
                        rate_known: true,
                        timestamps: true,
                        sack: true,
                        upload,
                        gateway,
                        way,
                        lasts,
                    };
                    let stall = stall(&case);
                    assert!(stall < Duration::from_millis(2_500), "{stall:?} without anything: {case:?}");
                }
            }
        }
    }
}
