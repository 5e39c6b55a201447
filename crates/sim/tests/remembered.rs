//! What has been found of a link lives over a restart: the first transfer after it begins as the
//! last one before it.

use farlink_channel::ChannelConfig;
use farlink_gateway::config::Config;
use farlink_gateway::{Found, Gateway};
use farlink_sim::build::build;
use farlink_sim::changing::Changing;
use farlink_sim::fault::Fault;
use farlink_sim::plan::{Gap, GatewayPlan, HostPlan, Mode, SimPlan};
use farlink_sim::trace::Trace;
use farlink_sim::traffic::{Close, Congestion, Connection, HostConfig};
use farlink_sim::world::World;
use farlink_wire::{Duration, Instant};

const RATE_BPS: u64 = 8_000_000;
/// When transfers begin, in seconds.
const SOON: [u64; 3] = [1, 21, 41];
/// The last one when what was found is no longer known.
const LATE: [u64; 3] = [1, 21, 1_000];
/// Of a transfer that is over within a round trip, and of one that shows what the link carries.
const SHORT_BYTES: u64 = 400_000;
const LONG_BYTES: u64 = 4_000_000;

/// Two gateways at a link of 500 ms whose rate nobody says, and uploads one after the other.
/// `us`: added to the delay, by which the planned gateways choose what to do.
fn plan(us: u64, sizes: &[u64], starts: [u64; 3]) -> SimPlan {
    let hard = ChannelConfig {
        delay: Duration::from_micros(250_000 + us),
        rate_bps: Some(RATE_BPS),
        queue_limit_bytes: Some(500_000),
        ..ChannelConfig::default()
    };
    let lan = ChannelConfig { delay: Duration::from_micros(100), ..ChannelConfig::default() };
    let gap = |i: usize| {
        let wire = if i == 1 { &hard } else { &lan };
        Gap {
            there: wire.clone(),
            back: wire.clone(),
            mtu_bytes: 1500,
            declared: i == 1,
            rate_known: false,
            interference: None,
        }
    };
    let host = |end| HostPlan { config: HostConfig::default(), end, delay: Duration::from_micros(50) };
    let gateway = |n: u64| GatewayPlan {
        config: Config { seed: 7 + n, ..Config::default() },
        merge: None,
        bypass: lan.clone(),
    };
    let transfer = |(n, (bytes, start)): (u16, (u64, u64))| {
        let mut connection = Connection::new(0, 1, n, bytes, 1);
        connection.start = Duration::from_secs(start);
        for side in &mut connection.sides {
            (side.rx_buffer_bytes, side.tx_buffer_bytes) = (1 << 20, 1 << 20);
            (side.congestion, side.close) = (Congestion::Cubic, Close::WhenBothDone);
        }
        connection
    };
    SimPlan {
        seed: 1,
        mode: Mode::Clean,
        policy: None,
        hosts: vec![host(0), host(1)],
        gaps: (0..3).map(gap).collect(),
        gateways: (0..2).map(gateway).collect(),
        connections: (0..).zip(sizes.iter().copied().zip(starts)).map(transfer).collect(),
        faults: Vec::new(),
        changing: Changing::default(),
    }
}

/// A delay with which the gateways are to find out the rate.
fn fitting(sizes: &[u64], starts: [u64; 3]) -> World {
    let finds = |gateway: &Gateway| {
        let links = gateway.configuration().interfaces.iter().filter_map(|i| i.link.as_ref());
        links.into_iter().all(|link| link.estimate_rate && !link.is_xcp_router)
    };
    let worlds = (0..100_000).step_by(997).map(|us| {
        let mut world = build(&plan(us, sizes, starts), Trace::default());
        world.run_until(Instant::from_millis(1));
        world
    });
    let mut worlds = worlds.into_iter();
    worlds
        .find_map(|mut world| {
            let nodes = world.gateways();
            nodes.iter().all(|n| finds(world.gateway(*n).unwrap().gateway.as_ref().unwrap())).then_some(world)
        })
        .unwrap()
}

fn first(world: &mut World) -> (usize, &mut Gateway) {
    let node = world.gateways()[0];
    (node, world.gateway(node).unwrap().gateway.as_mut().unwrap())
}

/// The first gateway is killed, and begins with this. What it made of it.
fn restart(world: &mut World, found: &[Found]) -> Vec<Found> {
    let (node, _) = first(world);
    let now = world.now() + Duration::from_millis(1);
    world.add_faults([(now, Fault::Kill { node, restart_after: Duration::from_millis(5) })]);
    world.run_until(now + Duration::from_millis(20));
    let now = world.now();
    first(world).1.recall(now, found)
}

/// How long the transfer of this number took.
fn took(world: &mut World, n: u16, start: u64, bytes: u64) -> Duration {
    let begun = Instant::ZERO + Duration::from_secs(start);
    world.run_until(begun);
    let mut came = None;
    while world.now() < begun + Duration::from_secs(19) {
        let now = world.now() + Duration::from_millis(5);
        world.run_until(now);
        let end = world.ends().into_iter().find(|end| end.connection == usize::from(n) && !end.is_client);
        let has_all = end.is_some_and(|end| end.received >= bytes);
        came = came.or(has_all.then_some(now));
    }
    assert!(world.failure.is_none(), "{:?}", world.failure);
    came.expect("all of it has come").since(begun)
}

#[test]
fn a_restart_begins_with_what_was_found() {
    let mut world = fitting(&[SHORT_BYTES; 3], SOON);
    let (cold, warm) = (took(&mut world, 0, SOON[0], SHORT_BYTES), took(&mut world, 1, SOON[1], SHORT_BYTES));
    let now = world.now();
    let found = first(&mut world).1.found(now);
    let rate = found[0].rate.unwrap();
    assert!(rate.bps.abs_diff(RATE_BPS) < RATE_BPS / 20 && rate.age < Duration::from_secs(40), "{found:?}");
    assert_eq!(restart(&mut world, &found), found);
    let again = took(&mut world, 2, SOON[2], SHORT_BYTES);
    assert!(warm + Duration::from_millis(200) < cold, "a first burst takes a round trip: {cold:?}, {warm:?}");
    assert!(again <= warm + Duration::from_millis(20), "{again:?}, before the restart {warm:?}");
    // Without it, it begins as ever.
    let mut world = fitting(&[SHORT_BYTES; 3], SOON);
    took(&mut world, 1, SOON[1], SHORT_BYTES);
    assert_eq!(restart(&mut world, &[]), []);
    let without = took(&mut world, 2, SOON[2], SHORT_BYTES);
    assert!(again + Duration::from_millis(200) < without, "{again:?}, {without:?}");
}

/// What has not been confirmed for ten minutes is such a guess, too.
#[test]
fn what_is_forgotten_is_a_first_guess() {
    let mut world = fitting(&[SHORT_BYTES; 3], LATE);
    let known = [0, 1].map(|n| took(&mut world, n, LATE[usize::from(n)], SHORT_BYTES))[1];
    world.run_until(Instant::from_millis(990_000));
    let (_, gateway) = first(&mut world);
    let link = gateway.status_at(Instant::from_millis(990_000)).links.remove(0);
    assert_eq!((link.estimated_bps, link.found_age_s), (0, None));
    assert!(link.remembered_bps > 0 && link.remembered_age_s.is_some_and(|s| s > 900), "{link:?}");
    let again = took(&mut world, 2, LATE[2], SHORT_BYTES);
    assert!(again <= known + Duration::from_millis(20), "{again:?}, before {known:?}");
}

/// What was found on a slower link, or on a faster one, is no ceiling, and no flood that lasts.
#[test]
fn a_first_guess_that_is_wrong_is_followed_by_what_is_true() {
    // A quarter of it, it, and four times as much.
    for (percent, limit_ms) in [(25, 7_000), (100, 5_100), (400, 5_500)] {
        let mut world = fitting(&[SHORT_BYTES, SHORT_BYTES, LONG_BYTES], SOON);
        took(&mut world, 1, SOON[1], SHORT_BYTES);
        let now = world.now();
        let mut found = first(&mut world).1.found(now);
        if let Some(rate) = &mut found[0].rate {
            (rate.bps, rate.age) = (rate.bps / 100 * percent, Duration::from_secs(3_600));
        }
        restart(&mut world, &found);
        let again = took(&mut world, 2, SOON[2], LONG_BYTES);
        assert!(again < Duration::from_millis(limit_ms), "{again:?} with {found:?}");
        let now = world.now();
        let bps = first(&mut world).1.found(now)[0].rate.unwrap().bps;
        assert!(bps.abs_diff(RATE_BPS) < RATE_BPS / 8, "{bps} found after {found:?}");
    }
}

/// What does not fit the link, or is too old, is let go.
#[test]
fn what_is_old_or_of_another_link_is_no_guess() {
    let mut world = fitting(&[SHORT_BYTES; 2], SOON);
    took(&mut world, 1, SOON[1], SHORT_BYTES);
    let now = world.now();
    let found = first(&mut world).1.found(now);
    let with = |change: &dyn Fn(&mut Found)| {
        let mut found = found.clone();
        change(&mut found[0]);
        found
    };
    let day = Duration::from_secs(86_401);
    for wrong in [
        with(&|f| f.rate.as_mut().unwrap().age = day),
        with(&|f| f.rate.as_mut().unwrap().bps = 0),
        with(&|f| f.rtt = None),
        with(&|f| f.link = "other".into()),
        with(&|f| f.interface = "other".into()),
        with(&|f| f.rate_max_bps = Some(1_000_000)),
    ] {
        assert_eq!(restart(&mut world, &wrong), [], "{wrong:?}");
        let now = world.now();
        assert_eq!(first(&mut world).1.found(now), []);
    }
    assert_eq!(restart(&mut world, &found).len(), 1);
    // It keeps its age until something confirms it.
    let now = world.now() + Duration::from_secs(100);
    let kept = first(&mut world).1.found(now);
    assert!(kept[0].rate.unwrap().age >= Duration::from_secs(100), "{kept:?}");
}
