//! What a seed of mode `long` means: one connection carries more than 2^31 bytes, over a fast path
//! whose routes leave gateways now and then.
//!
//! What was remembered of the stream at its beginning seems to lie ahead at its end. A run moves
//! each byte over eight wires or more, and takes a minute.

use farlink_channel::ChannelConfig;
use farlink_gateway::Config;
use farlink_gateway::config::{Action, FlowControl, Notice, Pinned};
use farlink_wire::{Duration, Instant};

use crate::changing::Changing;
use crate::plan::{FaultPlan, Gap, GatewayPlan, HostPlan, Mode, SimPlan, Way};
use crate::rng::Rng;
use crate::traffic::{Begin, Close, Congestion, Connection, HostConfig, Side};

/// The whole stream: what numbers cannot tell apart, and some more.
const BYTES: (u64, u64) = ((1 << 31) + (64 << 20), (1 << 31) + (200 << 20));
const RATE_BPS: u64 = 1_000_000_000;

fn wire(delay: Duration, rate_bps: Option<u64>) -> ChannelConfig {
    let queue_limit_bytes = rate_bps.map(|_| 4_000_000);
    ChannelConfig { delay, rate_bps, queue_limit_bytes, ..ChannelConfig::default() }
}

fn side(send_bytes: u64, begin: Begin, congestion: Congestion) -> Side {
    Side {
        send_bytes,
        begin,
        close: Close::WhenBothDone,
        rx_buffer_bytes: 1 << 20,
        tx_buffer_bytes: 1 << 20,
        congestion,
        ..Side::default()
    }
}

/// The run of this seed.
pub(crate) fn plan(seed: u64, policy: Option<FlowControl>) -> SimPlan {
    let mut rng = Rng::new(seed, "long");
    let count = rng.pick(&[1, 1, 2]) as usize;
    let declared = rng.chance(0.5);
    let gap = |rng: &mut Rng, i: usize| {
        let is_hard = i == count.div_ceil(2);
        let mut there = wire(Duration::from_micros(rng.range(50, 2_000)), is_hard.then_some(RATE_BPS));
        let back = there.clone();
        there.loss = if is_hard { rng.pick(&[0.0, 0.000_01, 0.000_1]) } else { 0.0 };
        let rate_known = rng.chance(0.7);
        Gap { there, back, mtu_bytes: 9_000, declared: declared && is_hard, rate_known, interference: None }
    };
    let gaps: Vec<Gap> = (0..=count).map(|i| gap(&mut rng, i)).collect();
    let gateway = |rng: &mut Rng| {
        let action = if rng.chance(0.2) { Action::Custody(rng.pick(&Notice::ALL)) } else { Action::Split };
        let config = Config {
            pinned: Pinned::Never,
            seed: rng.bits(),
            default_action: action,
            flow_control: policy.unwrap_or(rng.pick(&FlowControl::ALL)),
            ..Config::default()
        };
        let merge = rng.chance(0.7).then(|| Duration::from_micros(rng.range(1, 100)));
        GatewayPlan { config, merge, bypass: wire(Duration::from_micros(rng.range(20, 500)), None) }
    };
    let gateways: Vec<GatewayPlan> = (0..count).map(|_| gateway(&mut rng)).collect();
    let host = |rng: &mut Rng, end| {
        let config = HostConfig {
            mtu_bytes: 9_000,
            timestamps: rng.chance(0.7),
            tsval_start: rng.bits() as u32,
            sack: rng.chance(0.8),
            ..HostConfig::default()
        };
        HostPlan { config, end, delay: Duration::from_micros(rng.range(10, 200)) }
    };
    let hosts = vec![host(&mut rng, 0), host(&mut rng, 1)];
    let bytes = rng.range(BYTES.0, BYTES.1);
    let congestion = rng.pick(&[Congestion::None, Congestion::Cubic]);
    let sides = if rng.chance(0.5) {
        [side(bytes, Begin::AtOnce, congestion), side(100, Begin::AfterEnd, congestion)]
    } else {
        [side(100, Begin::AtOnce, congestion), side(bytes, Begin::AfterBytes(100), congestion)]
    };
    let connection = Connection { v6: rng.chance(0.3), sides, ..Connection::new(0, 1, 0, 0, 0) };
    // At the rate of the path it takes eighteen seconds. Some routes move at its beginning, some at
    // its end.
    let bypass = |rng: &mut Rng, from_ms: u64, to_ms: u64| FaultPlan::Bypass {
        gateway: rng.range(0, count as u64) as usize,
        way: rng.pick(&[Way::There, Way::Back, Way::Back, Way::Both]),
        at: Instant::ZERO + rng.millis(from_ms, to_ms),
        lasts: rng.millis(10, 400),
    };
    let mut faults: Vec<FaultPlan> = (0..rng.range(1, 4)).map(|_| bypass(&mut rng, 10, 1_500)).collect();
    faults.extend((0..rng.range(1, 4)).map(|_| bypass(&mut rng, 16_000, 24_000)));
    SimPlan {
        seed,
        mode: Mode::Long,
        policy,
        hosts,
        gaps,
        gateways,
        connections: vec![connection],
        faults,
        changing: Changing::default(),
    }
}
