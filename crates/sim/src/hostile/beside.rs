//! Are honest connections as fast beside attackers as without them?
//!
//! The attackers' bytes take their time on the link, whatever they say, and a packet more or less
//! at a queue that drops, or at a window that is told in steps, sends a connection on another
//! course. That is not what an attacker does with what it says. So where a connection is slower
//! than alone, both runs are made again a few times. The honest connections begin a moment later in
//! each, and the link's queues have room for a few bytes more: whether the last, short packet of a
//! flight still fits decides between two courses. In those without attackers the forger's packets
//! go out at the same times and with the same lengths, but mean nothing to anybody. The means are
//! compared: what an attack does by its contents it does whenever the others begin.
//!
//! Who forges an ICMP error and hits the numbers that a host has under way makes that host's
//! packets small, with gateways or without. No router here says such a thing, so an error that an
//! honest host believes is forged, and such a run counts for nothing. How often it comes to that is
//! counted elsewhere (`blind.rs`).

use farlink_gateway::config::FlowControl;
use farlink_wire::checksum;
use farlink_wire::{Duration, Instant};

use super::plan::{Declared, HostilePlan};
use super::run::{Attacker, MTU_BYTES, Ran};
use crate::app::End;
use crate::host::Host;
use crate::linux::{Outcome, Start};

/// The honest connections keep at least this share of their rate.
const RATE_SHARE: f64 = 0.9;
/// What they may lose besides: packets that were under way on the link when theirs came, and
/// acknowledgements that waited.
const SLACK: Duration = Duration::from_millis(30);
/// Packets of an attacker that may stand before one of the honest hosts' on the link.
const SLACK_PACKETS: u64 = 4;
/// Runs of each kind of which the mean counts.
const RUNS: u32 = 9;
/// By so much the first honest connection begins later in each than in the one before, the second
/// by twice as much, and so on.
const SHIFT: Duration = Duration::from_micros(730);
/// By so much the queues of the link are longer in each than in the one before. Nine times that is
/// a packet.
const LONGER_BYTES: usize = 167;
/// IANA: for experiments. Neither gateways nor hosts know anything of it.
const PROTOCOL_CHAFF: u8 = 253;

/// How long a connection was busy: from connect() to open, and from each question to its answer.
fn busy(o: &Outcome) -> Duration {
    let open = o.connected.map_or(Duration::ZERO, |c| c.since(o.began));
    o.answers.iter().fold(open, |sum, (asked, answered)| sum + answered.since(*asked))
}

/// The first honest connection that is slower than it would be without what the attackers say.
/// `again` plays the `n`-th run of those that begin a little later, with what they say or without.
pub(super) fn compare(
    plan: &HostilePlan,
    with: &Ran,
    without: Ran,
    again: &dyn Fn(u32, bool) -> Ran,
) -> Option<String> {
    if plan.link.outage.is_some() {
        // Who asks again when, in an outage, depends on the microsecond.
        return None;
    }
    let shares_out = plan.link.declared == Declared::WithRate && plan.gateways == [true; 2];
    let divides_memory = plan.config.flow_control == FlowControl::Automatic;
    if with.hostile_bytes > 0 && (!shares_out || divides_memory) {
        // Nobody shares the link out, at one of its ends at least: who drops whose packets is the
        // hosts' own affair. Or each connection on the link has its part of what gateways hold for
        // it, this one, too.
        return None;
    }
    let times = |ran: &Ran| ran.outcomes.iter().map(busy).collect::<Vec<_>>();
    let times_of_unhit = |ran: &Ran| ran.outcomes.iter().all(|o| o.path_errors == 0).then(|| times(ran));
    first_slower(plan, &times(with), &times(&without), with.hostile_bytes + with.forged_bytes)?;
    let mean = |attacked: bool, first: Option<&Ran>| {
        let begun = u32::from(first.is_some());
        let more = (begun..RUNS).filter_map(|n| times_of_unhit(&again(n, attacked)));
        let runs: Vec<_> = first.and_then(times_of_unhit).into_iter().chain(more).collect();
        let of = |connection: usize| {
            let all = runs.iter().filter_map(|r| r.get(connection).copied());
            all.fold(Duration::ZERO, |sum, t| sum + t) / runs.len().max(1) as u32
        };
        (0..with.outcomes.len()).map(of).collect::<Vec<_>>()
    };
    let (attacked, alone) = (mean(true, Some(with)), mean(false, None));
    let sum = |times: &[Duration]| times.iter().fold(Duration::ZERO, |sum, t| sum + *t);
    if !shares_out && sum(&attacked) <= sum(&alone) {
        // One has what another had before. Nobody promises shares on this link, and all together
        // lose nothing.
        return None;
    }
    // The bytes of forged packets are in both.
    first_slower(plan, &attacked, &alone, with.hostile_bytes)
}

fn first_slower(
    plan: &HostilePlan,
    with: &[Duration],
    alone: &[Duration],
    their_bytes: u64,
) -> Option<String> {
    let on_link = |bytes: u64| Duration::from_secs_f64(bytes as f64 * 8.0 / plan.link.rate_bps as f64);
    let theirs = on_link(their_bytes);
    for (n, (now, alone)) in with.iter().zip(alone).enumerate() {
        let turns = plan.honest.get(n).map_or(0, |t| t.steps.len()) as u64 + 2;
        let slack = SLACK + on_link(SLACK_PACKETS * turns * u64::from(MTU_BYTES));
        let allowed = (*alone + theirs).div_f64(RATE_SHARE) + slack;
        if *now > allowed {
            return Some(format!(
                "honest connection {n} took {:.3} s, {:.3} s without the attackers, whose bytes took {:.3} s of the link",
                now.as_secs_f64(),
                alone.as_secs_f64(),
                theirs.as_secs_f64()
            ));
        }
    }
    None
}

/// The plan with honest connections that begin a little later.
pub(super) fn shifted(plan: &HostilePlan, n: u32) -> HostilePlan {
    let mut plan = plan.clone();
    plan.link.queue_more_bytes = LONGER_BYTES * n as usize;
    for (i, t) in (1..).zip(&mut plan.honest) {
        if let Start::At(at) = &mut t.start {
            *at += SHIFT * n * i;
        }
    }
    plan
}

/// Of these attackers the one that forges: its packets leave when they would have, but say nothing.
pub(super) fn chaff(attackers: Vec<Attacker>) -> Vec<Attacker> {
    let forgers = attackers.into_iter().filter(|(n, ..)| *n == super::plan::SPOOFER);
    forgers.map(|(n, place, host)| (n, place, Box::new(Chaff(host)) as Box<dyn Host>)).collect()
}

struct Chaff(Box<dyn Host>);

impl Host for Chaff {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.0.receive(now, bytes);
    }

    fn run(&mut self, now: Instant) {
        self.0.run(now);
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        let mut bytes = self.0.take_output()?;
        match bytes.first().map(|b| b >> 4) {
            Some(4) if bytes.len() >= 20 => {
                bytes[9] = PROTOCOL_CHAFF;
                bytes[10..12].fill(0);
                let header = usize::from(bytes[0] & 15) * 4;
                let sum = !checksum::sum(bytes.get(..header)?);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Some(6) if bytes.len() >= 40 => bytes[6] = PROTOCOL_CHAFF,
            _ => {}
        }
        Some(bytes)
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }

    fn is_finished(&self) -> bool {
        true
    }

    fn ends(&self) -> Vec<End> {
        Vec::new()
    }

    fn is_hostile(&self) -> bool {
        true
    }

    fn overhear(&mut self, now: Instant, bytes: &[u8]) {
        self.0.overhear(now, bytes);
    }
}
