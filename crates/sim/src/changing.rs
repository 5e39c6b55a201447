//! What mode `changing` has beside the traffic and the faults of the others: configurations and
//! actions that change, processes that stand still, streams that go on round their gateways by more
//! than 2^31 bytes, links that bring little, and segments larger than a packet beside other
//! traffic.
//!
//! Each of these draws from a source of its own. What else a seed means is what it means in the
//! mode that it has its trouble from.

use farlink_gateway::cc;
use farlink_gateway::config::{
    AckFilter, Action, Copies, FlowControl, InitialWindow, Limits, LinkAction, Notice, Oversize, Rule,
    SendAhead, Weights, XcpContext,
};
use farlink_gateway::{IfaceId, UNKNOWN_RATE_CC};
use farlink_wire::{Duration, Instant};

use crate::change::{Change, LinkChange};
use crate::plan::{FaultPlan, Gap, Mode, SimPlan};
use crate::rng::Rng;
use crate::talker::Talk;
use crate::traffic::{Begin, Close, Congestion, Connection, Side};

/// The modes whose trouble a run may have. Most have everything.
const TROUBLES: [Mode; 6] =
    [Mode::Mixed, Mode::Mixed, Mode::Mixed, Mode::Custody, Mode::RouteFlap, Mode::Clean];
/// The parts of the seeds in which each of these happens.
const RELOADS_SHARE: f64 = 0.6;
const STANDSTILL_SHARE: f64 = 0.3;
const JUMP_SHARE: f64 = 0.2;
const RATE_IN_SHARE: f64 = 0.4;
const OVERSIZE_SHARE: f64 = 0.3;
const TALK_SHARE: f64 = 0.3;
/// A stream goes on by this at least: 2^31 bytes and a million more.
const JUMP_BYTES: u64 = (1 << 31) + 1_000_000;
/// In steps of this size: what is further away is taken for another connection.
const STEP_BYTES: (u64, u64) = (40_000_000, 60_000_000);
/// Packets that wait for a process that stands still.
const WAITING: [usize; 3] = [0, 20, 1_000];

/// What a seed of mode `changing` has beside the others. Empty in theirs.
#[derive(Clone, Debug, Default)]
pub struct Changing {
    /// The mode that it has its trouble from.
    pub trouble: Option<Mode>,
    /// Of each gap what its gateways are told that it brings, as a part of its rate; none: nothing.
    pub rate_in: Vec<Option<f64>>,
    /// Of each gap: segments into it have so much payload, bytes; none: what is usual.
    pub oversize: Vec<Option<u32>>,
    /// Of each gateway: it may be in custody mode, and may not, and tells its sources this of
    /// outages.
    pub notices: Vec<Option<Notice>>,
    /// Traffic that is no TCP.
    pub talk: Option<Talk>,
    /// A stream that goes on round the gateways.
    pub jump: Option<Jump>,
}

/// A connection whose streams go on round the gateways, from time to time and while nothing of it
/// is under way.
#[derive(Clone, Copy, Debug)]
pub struct Jump {
    /// Which connection.
    pub connection: usize,
    /// What the client sends goes on; else what the server sends.
    pub of_client: bool,
    /// So many bytes at a time.
    pub step_bytes: u32,
    /// So often.
    pub steps: u32,
    /// So long after the one before at least.
    pub every: Duration,
}

impl Changing {
    /// The mode that the traffic and the faults of this seed are those of.
    #[must_use]
    pub fn trouble(seed: u64, mode: Mode) -> Mode {
        if mode == Mode::Changing { Rng::new(seed, "trouble").pick(&TROUBLES) } else { mode }
    }

    /// Some link asks for segments that are larger than a packet, or may.
    #[must_use]
    pub fn is_large(&self, faults: &[FaultPlan]) -> bool {
        let brings = |change: &Change| matches!(change, Change::Link(_, LinkChange::RateIn(Some(_))));
        let is_told = |fault: &FaultPlan| matches!(fault, FaultPlan::Reload { changes, .. } if changes.iter().any(brings));
        let begins = [self.oversize.iter().any(Option::is_some), self.rate_in.iter().any(Option::is_some)];
        begins.contains(&true) || faults.iter().any(is_told)
    }
}

/// Adds to a plan what its seed means in this mode.
pub(crate) fn add(plan: &mut SimPlan, trouble: Mode) {
    let seed = plan.seed;
    plan.changing.trouble = Some(trouble);
    plan.changing.notices = vec![None; plan.gateways.len()];
    let mut rng = Rng::new(seed, "jump");
    if rng.chance(JUMP_SHARE) {
        jump(&mut rng, plan);
    } else {
        let mut rng = Rng::new(seed, "brings");
        if rng.chance(RATE_IN_SHARE) {
            let part = |rng: &mut Rng, gap: &Gap| {
                (gap.declared && rng.chance(0.7)).then(|| rng.pick(&[0.01, 0.05, 0.5, 1.0, 1.0, 2.0]))
            };
            plan.changing.rate_in = plan.gaps.iter().map(|gap| part(&mut rng, gap)).collect();
        }
        let mut rng = Rng::new(seed, "larger");
        if rng.chance(OVERSIZE_SHARE) {
            let bytes = |rng: &mut Rng, gap: &Gap| {
                (gap.declared && rng.chance(0.7)).then(|| rng.range(2_000, 65_000) as u32)
            };
            plan.changing.oversize = plan.gaps.iter().map(|gap| bytes(&mut rng, gap)).collect();
        }
    }
    let mut rng = Rng::new(seed, "talk");
    if rng.chance(TALK_SHARE) {
        plan.changing.talk = Some(Talk {
            begins: rng.millis(0, 2_000),
            lasts: rng.millis(2_000, 20_000),
            rate_bps: rng.log_range(50_000, 10_000_000),
            most_bytes: rng.range(100, 1_200) as usize,
        });
    }
    let mut rng = Rng::new(seed, "reloads");
    for gateway in 0..plan.gateways.len() {
        if rng.chance(RELOADS_SHARE) {
            reloads(&mut rng, plan, gateway);
        }
    }
    let mut rng = Rng::new(seed, "clocks");
    if rng.chance(STANDSTILL_SHARE) {
        standstills(&mut rng, plan, trouble);
    }
}

/// A connection of many small steps, whose stream goes on between them.
fn jump(rng: &mut Rng, plan: &mut SimPlan) {
    // Errors about a packet name its number, and nobody translates these.
    plan.gaps.iter_mut().for_each(|gap| gap.mtu_bytes = 9_000);
    let step_bytes = rng.range(STEP_BYTES.0, STEP_BYTES.1);
    let steps = JUMP_BYTES.div_ceil(step_bytes) + rng.range(0, 3);
    let of_client = rng.chance(0.5);
    let side = |sends: bool, rng: &mut Rng| Side {
        send_bytes: if sends { (steps + 20) * 30_000 } else { 1 },
        write_bytes: 30_000,
        write_gap: rng.millis(700, 1_500),
        close: if sends { Close::WhenSent } else { Close::WhenBothDone },
        begin: Begin::AtOnce,
        rx_buffer_bytes: rng.pick(&[65_535, 262_144]),
        tx_buffer_bytes: 65_535,
        congestion: Congestion::Reno,
        ..Side::default()
    };
    let number = plan.connections.len() as u16;
    let sides = [side(of_client, rng), side(!of_client, rng)];
    plan.connections.push(Connection { sides, ..Connection::new(0, 1, number, 0, 0) });
    plan.changing.jump = Some(Jump {
        connection: usize::from(number),
        of_client,
        step_bytes: step_bytes as u32,
        steps: steps as u32,
        every: rng.millis(200, 1_500),
    });
}

/// A gateway is given other configurations.
fn reloads(rng: &mut Rng, plan: &mut SimPlan, gateway: usize) {
    let notice = match plan.gateways[gateway].config.default_action {
        Action::Custody(notice) => notice,
        _ => rng.pick(&Notice::ALL),
    };
    let changes_actions = rng.chance(0.5);
    let mut at = Instant::ZERO + rng.millis(1, 4_000);
    let mut away: Option<usize> = None;
    for _ in 0..rng.log_range(1, 12) {
        let mut changes: Vec<Change> = (0..rng.range(1, 5)).map(|_| change(rng, plan, gateway)).collect();
        if changes_actions {
            changes.push(rules(rng, plan, notice));
        }
        if changes_actions && rng.chance(0.3) {
            let action = rng.pick(&[
                None,
                Some(LinkAction::Split),
                Some(LinkAction::Custody(notice)),
                Some(LinkAction::Auto(notice)),
            ]);
            changes.push(Change::Link(rng.range(0, 2) as usize, LinkChange::Action(action)));
        }
        if let Some(port) = away.take() {
            changes.push(Change::Return(port));
        } else if rng.chance(0.15) {
            let port = rng.range(0, 2) as usize;
            changes.push(Change::Leave(port));
            away = Some(port);
        }
        plan.faults.push(FaultPlan::Reload { gateway, at, changes });
        at += rng.millis(1, 4_000);
    }
    if let Some(port) = away {
        plan.faults.push(FaultPlan::Reload { gateway, at, changes: vec![Change::Return(port)] });
    }
    if changes_actions {
        plan.changing.notices[gateway] = Some(notice);
    }
}

fn change(rng: &mut Rng, plan: &SimPlan, gateway: usize) -> Change {
    match rng.range(0, 14) {
        0 => {
            let bytes = rng.log_range(16 << 10, 4 << 20) as u32;
            Change::Relay(bytes, rng.chance(0.3))
        }
        1 => Change::Pool(rng.range(1 << 20, 16 << 20) as usize),
        2 => Change::FlowControl(rng.pick(&FlowControl::ALL)),
        3 => Change::SoftWindow(rng.chance(0.5)),
        4 => Change::QueueDrop(rng.chance(0.5)),
        5 => Change::SendAhead(rng.pick(&SendAhead::ALL)),
        6 => Change::OrdinaryController(rng.pick(&[cc::Kind::NewReno, cc::Kind::Cubic, cc::Kind::Bbr])),
        7 => Change::OrdinaryWindow(InitialWindow::fixed(rng.pick(&[1, 4, 10, 64]))),
        _ => {
            let port = rng.range(0, 2) as usize;
            // Of what leaves in fragments the later ones have no numbers that could go on.
            let may_be_large = plan.changing.jump.is_none();
            let change = link_change(rng, &plan.gaps[gateway + port], port, may_be_large);
            Change::Link(port, change)
        }
    }
}

fn link_change(rng: &mut Rng, gap: &Gap, port: usize, may_be_large: bool) -> LinkChange {
    let out = if port == 0 { &gap.back } else { &gap.there };
    let carried = out.rate_bps.unwrap_or(20_000_000);
    match rng.range(0, 16) {
        0..=3 if rng.chance(0.6) => {
            let bps = (carried as f64 * rng.pick(&[0.25, 0.8, 1.0, 1.0, 2.0])) as u64;
            LinkChange::Clock(Some(bps.max(100_000)), cc::Kind::FixedRate, false)
        }
        0..=3 if rng.chance(0.7) => LinkChange::Clock(None, UNKNOWN_RATE_CC, true),
        0..=3 => LinkChange::Clock(None, rng.pick(&[cc::Kind::Cubic, cc::Kind::Bbr, cc::Kind::Hybla]), false),
        // It holds from the next start on.
        4 if may_be_large => {
            let part = rng.range(1, 100);
            LinkChange::RateIn(rng.chance(0.7).then_some(carried / part))
        }
        5 => LinkChange::Rtt((gap.there.delay + gap.back.delay).checked_mul(rng.range(1, 3) as u32)),
        6 => LinkChange::InitialWindow(rng.pick(&[InitialWindow::AUTO, InitialWindow::fixed(4)])),
        7 => LinkChange::Metered(rng.chance(0.5)),
        8 => LinkChange::CorrectsRate(rng.chance(0.5)),
        9 => LinkChange::RateMax(rng.pick(&[None, Some(carried / 2), Some(carried * 2)])),
        10 => LinkChange::HalfDuplex(rng.chance(0.5)),
        11 => LinkChange::Weights(rng.pick(&[
            None,
            Some(Weights { split: 1, forwarded: 10 }),
            Some(Weights { split: 10, forwarded: 1 }),
        ])),
        12 => LinkChange::Copies(rng.pick(&[Copies::Auto, Copies::Off])),
        13 => LinkChange::AckFilter(rng.pick(&[AckFilter::Auto, AckFilter::On, AckFilter::Off])),
        14 => LinkChange::XcpContext(rng.pick(&[XcpContext::Pair, XcpContext::Flow])),
        _ if may_be_large => LinkChange::Oversize(rng.pick(&[Oversize::Auto, Oversize::Off])),
        _ => LinkChange::Oversize(Oversize::Off),
    }
}

/// Rules of a few names, so that open connections keep theirs.
fn rules(rng: &mut Rng, plan: &SimPlan, notice: Notice) -> Change {
    let actions = [Action::Split, Action::Split, Action::Custody(notice), Action::Pass];
    let rules = (0..rng.range(0, 4)).map(|n| {
        let from = 1_000 + rng.range(0, plan.connections.len() as u64) as u16;
        Rule {
            name: format!("rule{n}"),
            ports: if rng.chance(0.8) { vec![(from, from + rng.range(0, 4) as u16)] } else { Vec::new() },
            interfaces: if rng.chance(0.2) { vec![IfaceId(rng.range(0, 2) as u16)] } else { Vec::new() },
            action: rng.pick(&actions),
            connections_max: rng.chance(0.1).then_some(1),
            send_ahead: rng.chance(0.2).then(|| rng.pick(&SendAhead::ALL)),
            ..Rule::default()
        }
    });
    let rules = rules.collect();
    Change::Rules(rules, rng.pick(&actions))
}

/// Gateways whose process is stopped, or whose machine is.
fn standstills(rng: &mut Rng, plan: &mut SimPlan, trouble: Mode) {
    // Where nothing else keeps hosts waiting one may stand for longer than it has patience.
    if matches!(trouble, Mode::Clean | Mode::RouteFlap) && rng.chance(0.3) {
        let gateway = rng.range(0, plan.gateways.len() as u64) as usize;
        plan.gateways[gateway].config.timers.user_timeout = rng.millis(100_000, 300_000);
        let (at, lasts) = (Instant::ZERO + rng.millis(1, 5_000), rng.millis(200_000, 400_000));
        let keeps = rng.pick(&WAITING);
        return plan.faults.push(FaultPlan::Standstill { gateway, at, lasts, keeps });
    }
    for gateway in 0..plan.gateways.len() {
        if rng.chance(0.4) {
            continue;
        }
        let mut at = Instant::ZERO + rng.millis(1, 5_000);
        for _ in 0..rng.log_range(1, 6) {
            let lasts = spell(rng);
            plan.faults.push(FaultPlan::Standstill { gateway, at, lasts, keeps: rng.pick(&WAITING) });
            at = at + lasts + rng.millis(1, 5_000);
        }
    }
}

/// From some milliseconds to half a minute, each order of magnitude as often.
fn spell(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.log_range(5, 30_000))
}

/// Bytes that one relay may hold at most, by any of a gateway's configurations.
#[must_use]
pub(crate) fn relay_bytes_most(plan: &SimPlan, gateway: usize) -> u64 {
    let begun = &plan.gateways[gateway].config.limits;
    let mut pools = vec![begun.pool_bytes];
    let mut relays = vec![(begun.relay_bytes, begun.relay_follows_link)];
    for fault in &plan.faults {
        let FaultPlan::Reload { gateway: of, changes, .. } = fault else { continue };
        for change in changes.iter().filter(|_| *of == gateway) {
            match change {
                Change::Pool(bytes) => pools.push(*bytes),
                Change::Relay(bytes, follows_link) => relays.push((*bytes, *follows_link)),
                _ => {}
            }
        }
    }
    let both = pools.iter().flat_map(|pool| relays.iter().map(move |relay| (*pool, *relay)));
    let most = both.map(|(pool_bytes, (relay_bytes, relay_follows_link))| {
        Limits { pool_bytes, relay_bytes, relay_follows_link, ..begun.clone() }.relay_bytes_max()
    });
    most.max().unwrap_or(0).into()
}
