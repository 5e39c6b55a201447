//! Groups: what each gets of its class by its weight, and the rate that it keeps to.

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::{lcg, take_all};
use farlink_egress::{Class, Config, Egress, Grant, GroupId, Lane, MAX_GROUPS, MAX_WEIGHT, Share};
use farlink_wire::time::{Duration, Instant};

const MTU_BYTES: u64 = 1514;
const CLASSES: [Class; 5] =
    [Class::Control, Class::Interactive, Class::Bulk, Class::Background, Class::Spare];

/// A packet says which group it was put into and how long it is.
type Packet = (u32, u32);

fn queue(rate_bps: Option<u64>) -> Egress<Packet> {
    Egress::new(Config { rate_bps, queue_limit_bytes: 64 << 20, ..Config::default() })
}

fn bulk(group: u32) -> Lane {
    Lane { class: Class::Bulk, group: GroupId(group) }
}

fn set(egress: &mut Egress<Packet>, group: u32, weight: u32, rate_bps: Option<u64>) {
    assert!(egress.set_group(Instant::from_millis(1), GroupId(group), Share { weight, rate_bps }));
}

/// The flow with this number in this group, for queues whose flows are all of the engine.
fn flow(group: u32, number: u64) -> u64 {
    u64::from(group) << 32 | number
}

/// Serves until the time has come; what left, of which group, and when. Every wake-up is late by up
/// to `late_ns`; flows use a part of what they are granted where `whole` is false.
fn serve(
    egress: &mut Egress<Packet>,
    now: &mut Instant,
    until: Instant,
    late_ns: u64,
    whole: bool,
) -> Vec<(u64, u32, u64)> {
    let mut sent = Vec::new();
    let mut x = 3;
    while *now < until {
        while let Some(grant) = egress.next_grant(*now) {
            let (group, bytes) = match grant {
                Grant::Packet(packet) | Grant::Marked(packet) => packet,
                Grant::Flow { id, bytes, .. } => {
                    let part = bytes.min(40 + lcg(&mut x, u64::from(bytes)) as u32);
                    let used = if whole { bytes } else { part };
                    egress.used(*now, id, used, 1, true);
                    ((id >> 32) as u32, used)
                }
            };
            sent.push((now.as_nanos(), group, u64::from(bytes)));
        }
        let Some(wake) = egress.poll_timeout() else { return sent };
        assert!(wake > *now, "no grant, but it is time");
        *now = wake + Duration::from_nanos(if late_ns > 0 { lcg(&mut x, late_ns) } else { 0 });
    }
    sent
}

fn bytes_of(sent: &[(u64, u32, u64)], group: u32) -> u64 {
    sent.iter().filter(|(_, g, _)| *g == group).map(|(_, _, bytes)| bytes).sum()
}

/// The most and the least that a group sent in any second that begins with one of its grants and
/// ends before the last.
fn any_second(sent: &[(u64, u32, u64)], group: u32) -> (u64, u64) {
    let own: Vec<_> = sent.iter().filter(|(_, g, _)| *g == group).collect();
    let last = own.last().unwrap().0;
    let (mut most, mut least, mut end, mut bytes) = (0, u64::MAX, 0, 0);
    for (from, _, first) in own.iter().copied() {
        if from + 1_000_000_000 > last {
            break;
        }
        while own[end].0 < from + 1_000_000_000 {
            bytes += own[end].2;
            end += 1;
        }
        (most, least) = (most.max(bytes), least.min(bytes));
        bytes -= first;
    }
    (most, least)
}

/// At every moment, whatever each group is made of: 1, 2 and 5 parts, and one for the default
/// group.
#[test]
fn groups_share_by_weight_whatever_the_number_of_their_flows() {
    for (rate, whole) in [(1_000_000, true), (1_000_000, false), (50_000_000, true), (50_000_000, false)] {
        let mut egress = queue(Some(rate));
        let groups = [(0_u32, 1_u64, 3), (1, 1, 1), (2, 2, 10), (3, 5, 200)];
        for (group, weight, flows) in groups {
            if group > 0 {
                set(&mut egress, group, u32::try_from(weight).unwrap(), None);
            }
            (0..flows).for_each(|n| egress.set_ready(Instant::from_millis(1), flow(group, n), bulk(group)));
        }
        let quantum = u64::from(egress.burst_bytes());
        let mut now = Instant::from_millis(1);
        let until = Instant::from_millis(9_000_000 * 8 / (rate / 1000));
        let sent = serve(&mut egress, &mut now, until, 0, whole);
        let mut had = [0_u64; 4];
        for (_, group, bytes) in &sent {
            had[*group as usize] += bytes;
            for (a, weight_a, _) in groups {
                for (b, weight_b, _) in groups {
                    // One quantum of each, at most.
                    let (of_a, of_b) = (had[a as usize] * weight_b, had[b as usize] * weight_a);
                    assert!(of_a <= of_b + quantum * (weight_a + weight_b), "{rate}: {had:?}");
                }
            }
        }
        let share = had.map(|bytes| (bytes + 500_000) / 1_000_000);
        assert_eq!(share, [1, 1, 2, 5], "of 9 MB: {had:?}");
    }
}

/// A group has its share of each class that it waits in.
#[test]
fn shares_are_those_of_the_class() {
    let mut egress = queue(Some(8_000_000));
    let mut now = Instant::from_millis(1);
    set(&mut egress, 1, 3, None);
    for class in [Class::Interactive, Class::Bulk] {
        for group in 0..2 {
            egress.set_ready(now, flow(group, class as u64), Lane { class, group: GroupId(group) });
        }
    }
    let mut had = BTreeMap::<u64, u64>::new();
    while now < Instant::from_millis(16_001) {
        match egress.next_grant(now) {
            Some(Grant::Flow { id, bytes, .. }) => {
                egress.used(now, id, bytes, 1, true);
                *had.entry(id).or_default() += u64::from(bytes);
            }
            _ => now = egress.poll_timeout().unwrap(),
        }
    }
    let percent = |group, class| (had[&flow(group, class as u64)] + 80_000) / 160_000;
    // Interactive has three quarters, and in each class one group has three times the other's.
    assert_eq!([percent(1, Class::Interactive), percent(0, Class::Interactive)], [56, 19], "{had:?}");
    assert_eq!([percent(1, Class::Bulk), percent(0, Class::Bulk)], [19, 6], "{had:?}");
}

/// A group that has been away neither gets what it missed, nor pays for what it had while it was
/// alone.
#[test]
fn nothing_is_saved_up_and_nothing_is_owed() {
    let mut egress = queue(Some(8_000_000));
    let mut now = Instant::from_millis(1);
    set(&mut egress, 1, 1, None);
    egress.set_ready(now, flow(0, 0), bulk(0));
    serve(&mut egress, &mut now, Instant::from_millis(5_001), 0, true);
    egress.set_ready(now, flow(1, 0), bulk(1));
    for _ in 0..20 {
        let until = now + Duration::from_millis(100);
        let sent = serve(&mut egress, &mut now, until, 0, true);
        let (a, b) = (bytes_of(&sent, 0), bytes_of(&sent, 1));
        assert!(a.abs_diff(b) <= MTU_BYTES, "{a} {b}");
    }
}

/// Never more than its rate, whatever is free, and no less where that is free: alone, beside others
/// who want everything, on a link without a rate, with late wake-ups.
#[test]
fn a_groups_rate_is_kept_in_any_second() {
    for link in [None, Some(10_000_000)] {
        for rate in [100_000_u64, 1_000_000, 4_000_000] {
            for (beside, late_ns) in [(false, 0), (true, 0), (false, 400_000), (true, 400_000)] {
                if beside && link.is_none() {
                    continue;
                }
                for whole in [true, false] {
                    let mut egress = queue(link);
                    let mut now = Instant::from_millis(1);
                    set(&mut egress, 1, 1, Some(rate));
                    (0..4).for_each(|n| egress.set_ready(now, flow(1, n), bulk(1)));
                    if beside {
                        (0..3).for_each(|n| egress.set_ready(now, flow(0, n), bulk(0)));
                    }
                    let sent = serve(&mut egress, &mut now, Instant::from_millis(20_001), late_ns, whole);
                    let (most, least) = any_second(&sent, 1);
                    let case = format!("{link:?} {rate} {beside} {late_ns} {whole}: {least} to {most}");
                    // A packet, and where it had to wait for the link what it waited for.
                    let waited = if beside || late_ns > 0 { MTU_BYTES } else { 0 };
                    assert!(most <= rate / 8 + MTU_BYTES + waited, "{case}");
                    assert!(least + MTU_BYTES + waited >= rate / 8, "{case}");
                    if let (true, Some(link)) = (beside, link) {
                        let all: u64 = sent.iter().map(|(_, _, bytes)| bytes).sum();
                        assert!(all + 20 * MTU_BYTES >= link / 8 * 20, "the link is never idle: {case}");
                    }
                }
            }
        }
    }
}

/// A fast group on a fast link is granted super-segments, and loses nothing when it is woken late.
#[test]
fn a_fast_group_has_bursts_of_a_millisecond() {
    let mut egress = queue(Some(1_000_000_000));
    let mut now = Instant::from_millis(1);
    set(&mut egress, 1, 1, Some(400_000_000));
    egress.set_ready(now, flow(1, 0), bulk(1));
    egress.set_ready(now, flow(0, 0), bulk(0));
    let sent = serve(&mut egress, &mut now, Instant::from_millis(2_001), 400_000, true);
    let (most, least) = any_second(&sent, 1);
    assert!(most <= 50_000_000 + 2 * 50_000 && least + 2 * 50_000 >= 50_000_000, "{least} to {most}");
    let grants = sent.iter().filter(|(_, group, _)| *group == 1).count();
    assert!(grants < 100_000_000 / 20_000, "{grants}");
}

/// What a group may not send goes to the others, in its own class and in lower ones, at once.
#[test]
fn what_a_rate_leaves_goes_to_others() {
    let mut egress = queue(Some(8_000_000));
    let mut now = Instant::from_millis(1);
    set(&mut egress, 1, 900, Some(800_000));
    set(&mut egress, 2, 900, Some(80_000));
    egress.set_ready(now, flow(1, 0), bulk(1));
    egress.set_ready(now, flow(2, 0), Lane { class: Class::Control, group: GroupId(2) });
    egress.set_ready(now, flow(0, 0), bulk(0));
    egress.set_ready(now, flow(0, 1), Class::Background);
    let sent = serve(&mut egress, &mut now, Instant::from_millis(10_001), 0, true);
    let kbytes = [0, 1, 2].map(|group| (bytes_of(&sent, group) + 5_000) / 10_000);
    assert_eq!(kbytes, [890, 100, 10], "kB/s");
    assert_eq!(egress.stats().busy.as_millis() / 10, 1000, "the link is never idle");

    // Alone with what it may have: the background gets the rest.
    egress.take_ready(now);
    egress.set_ready(now, flow(1, 0), bulk(1));
    egress.set_ready(now, flow(0, 1), Class::Background);
    let until = now + Duration::from_secs(10);
    let sent = serve(&mut egress, &mut now, until, 0, true);
    assert_eq!([0, 1].map(|group| (bytes_of(&sent, group) + 5_000) / 10_000), [900, 100], "kB/s");
}

#[test]
fn a_held_group_says_when_it_goes_on() {
    let at = Instant::from_micros;
    let mut egress = queue(None);
    set(&mut egress, 1, 1, Some(8_000_000));
    for _ in 0..4 {
        assert!(egress.enqueue(at(9_000), 1, bulk(1), 1000, (1, 1000)).is_empty());
    }
    assert!(egress.next_grant(at(9_000)).is_some());
    assert_eq!((egress.next_grant(at(9_000)), egress.poll_timeout()), (None, Some(at(10_000))));
    assert_eq!(egress.next_grant(at(9_999)), None);
    assert!(!egress.is_idle());
    assert_eq!(egress.busy_since(), None, "the link waits for the group, not the group for the link");
    // Late, but it has been waiting: the schedule stands.
    assert!(egress.next_grant(at(10_400)).is_some());
    assert_eq!(egress.poll_timeout(), Some(at(11_000)));
    // At half the rate what is under way takes twice as long.
    let share = |rate_bps| Share { weight: 1, rate_bps };
    assert!(egress.set_group(at(10_500), GroupId(1), share(Some(4_000_000))));
    assert_eq!(egress.poll_timeout(), Some(at(11_500)));
    // Not before the link is free, and never while it is down.
    egress.set_rate(at(10_500), Some(8_000_000));
    egress.charge(at(10_500), 3_000);
    assert_eq!(egress.poll_timeout(), Some(at(13_500)));
    egress.set_link_up(at(10_500), false);
    assert_eq!(egress.poll_timeout(), None);
    egress.set_link_up(at(10_500), true);
    egress.set_rate(at(10_500), None);
    // At no rate it waits for another; whoever else comes goes.
    assert!(egress.set_group(at(10_500), GroupId(1), share(Some(0))));
    assert_eq!((egress.poll_timeout(), egress.next_grant(at(99_000))), (None, None));
    assert!(egress.enqueue(at(99_000), 1, Class::Bulk, 1000, (0, 1000)).is_empty());
    assert_eq!(egress.next_grant(at(99_000)), Some(Grant::Packet((0, 1000))));
    assert!(!egress.is_idle());
    // Without a rate: at once, all of it.
    assert!(egress.set_group(at(99_000), GroupId(1), share(None)));
    assert_eq!(egress.poll_timeout(), Some(Instant::ZERO));
    assert!(egress.next_grant(at(99_000)).is_some() && egress.next_grant(at(99_000)).is_some());
    assert_eq!((egress.next_grant(at(99_000)), egress.poll_timeout()), (None, None));
    assert!(egress.is_idle());
}

/// A wake-up for a group that comes late is made up for, as any other: the link was not idle by its
/// own fault.
#[test]
fn a_late_wake_up_for_a_group_costs_the_link_nothing() {
    let at = Instant::from_micros;
    let mut egress = queue(Some(8_000_000));
    set(&mut egress, 1, 1, Some(4_000_000));
    for _ in 0..2 {
        assert!(egress.enqueue(at(9_000), 1, bulk(1), 1000, (1, 1000)).is_empty());
    }
    assert!(egress.next_grant(at(9_000)).is_some());
    assert_eq!(egress.poll_timeout(), Some(at(11_000)));
    assert!(egress.next_grant(at(11_400)).is_some());
    assert!(egress.enqueue(at(11_400), 1, Class::Bulk, 1000, (0, 1000)).is_empty());
    assert_eq!(egress.poll_timeout(), Some(at(12_000)));
}

/// The default group can have a rate and a weight, too.
#[test]
fn the_default_group_is_a_group() {
    let mut egress = queue(Some(8_000_000));
    let mut now = Instant::from_millis(1);
    set(&mut egress, 0, 1, Some(800_000));
    set(&mut egress, 1, 1, None);
    egress.set_ready(now, flow(0, 0), Class::Bulk);
    egress.set_ready(now, flow(1, 0), bulk(1));
    let sent = serve(&mut egress, &mut now, Instant::from_millis(10_001), 0, true);
    assert_eq!([0, 1].map(|group| (bytes_of(&sent, group) + 5_000) / 10_000), [100, 900], "kB/s");
}

/// Whatever numbers one group is given, another has its share: of weights at the most a thousand to
/// one, of a rate that means nothing at least a half.
#[test]
fn odd_numbers_harm_nobody_else() {
    for weight in [0, 1, MAX_WEIGHT, u32::MAX] {
        for rate_bps in [None, Some(0), Some(1), Some(7), Some(u64::MAX)] {
            for link in [None, Some(8_000_000)] {
                let mut egress = queue(link);
                let mut now = Instant::from_millis(1);
                set(&mut egress, 1, weight, rate_bps);
                let odd_may = rate_bps.is_none_or(|rate| rate > 7);
                let mut had = [0_u64; 2];
                egress.set_ready(now, flow(0, 0), bulk(0));
                egress.set_ready(now, flow(1, 0), bulk(1));
                for _ in 0..20_000 {
                    match egress.next_grant(now) {
                        Some(Grant::Flow { id, bytes, .. }) => {
                            egress.used(now, id, bytes, 1, true);
                            had[(id >> 32) as usize] += 1;
                        }
                        _ => now = egress.poll_timeout().unwrap().max(now),
                    }
                }
                let case = format!("{weight} {rate_bps:?} {link:?}: {had:?}");
                let weight = u64::from(weight.clamp(1, MAX_WEIGHT));
                assert!(had[0] + 1 >= had[1] / weight, "{case}");
                assert!(!odd_may || had[1] + weight >= had[0] * weight, "{case}");
                assert!(odd_may || had[1] <= 1, "{case}");
            }
        }
    }
}

/// The end of one group takes back no grant of another, and does take back its own.
#[test]
fn a_group_that_ends_takes_only_its_own_grant_back() {
    for (granted, is_answered) in [(2, true), (1, false)] {
        let mut egress = queue(None);
        let now = Instant::from_millis(1);
        set(&mut egress, 1, 1, None);
        set(&mut egress, 2, 1, None);
        egress.set_ready(now, flow(granted, 0), bulk(granted));
        let Some(Grant::Flow { id, .. }) = egress.next_grant(now) else { panic!("nothing is granted") };
        egress.remove_group(now, GroupId(1));
        egress.used(now, id, 1000, 1, false);
        assert_eq!(egress.is_idle(), is_answered, "group {granted}");
    }
}

/// Flows that have nothing to send any more are few in all groups together.
#[test]
fn empty_flows_of_all_groups_are_bounded_together() {
    let mut egress = queue(None);
    let now = Instant::from_millis(1);
    for group in 1..200 {
        set(&mut egress, group, 1, None);
    }
    for number in 0..20_000 {
        let group = (number % 200) as u32;
        // Each packet is dropped again at once, so no round comes by.
        egress.enqueue(now, flow(group, number), bulk(group), 100, (group, 100));
        egress.take_packets(now);
    }
    let flows = egress.stats().flows;
    assert!(flows <= 2_000, "{flows} are listed");
}

/// A group that may not send does not keep others out of the queue, however it fills it.
#[test]
fn a_full_queue_takes_from_the_group_that_holds_most() {
    let mut egress = Egress::<Packet>::new(Config {
        queue_limit_bytes: 100_000,
        rate_bps: Some(8_000_000),
        ..Config::default()
    });
    let mut now = Instant::from_millis(1);
    set(&mut egress, 1, 1, Some(0));
    for flow in 0..5_000 {
        egress.enqueue(now, flow, bulk(1), 100, (1, 100));
    }
    let mut sent = 0;
    for _ in 0..1_000 {
        let victims = egress.enqueue(now, 1, bulk(0), 1000, (0, 1000));
        assert!(victims.iter().all(|(group, _)| *group == 1), "{victims:?}");
        now += Duration::from_millis(1);
        sent += u64::from(egress.next_grant(now).is_some());
    }
    assert_eq!(sent, 1_000);
    // With three times the weight it may hold three times as much.
    set(&mut egress, 0, 3, None);
    for _ in 0..500 {
        egress.enqueue(now, 1, bulk(0), 1000, (0, 1000));
        egress.enqueue(now, 2, bulk(1), 1000, (1, 1000));
    }
    let held = egress.take_packets(now);
    let bytes = |of| held.iter().filter(|(group, _)| *group == of).map(|(_, bytes)| u64::from(*bytes)).sum();
    let (default, other): (u64, u64) = (bytes(0), bytes(1));
    assert!((74_000..=76_000).contains(&default) && (24_000..=26_000).contains(&other), "{default} {other}");
}

#[test]
fn a_group_that_ends_goes_on_in_the_default_one() {
    let now = Instant::from_millis(1);
    let mut egress = queue(None);
    set(&mut egress, 1, 1, Some(8));
    // A group that does not exist is the default one, which cannot end.
    assert!(egress.enqueue(now, 5, bulk(9), 100, (0, 1)).is_empty());
    for n in 2..5 {
        assert!(egress.enqueue(now, 5, bulk(1), 100, (1, n)).is_empty());
    }
    egress.set_ready(now, 6, bulk(1));
    egress.remove_group(now, GroupId::DEFAULT);
    egress.remove_group(now, GroupId(9));
    assert_eq!(egress.next_grant(now), Some(Grant::Packet((0, 1))));
    assert_eq!(egress.next_grant(now), Some(Grant::Packet((1, 2))));
    assert_eq!(egress.next_grant(now), None);
    assert!(egress.enqueue(now, 5, bulk(0), 100, (0, 5)).is_empty());
    egress.remove_group(now, GroupId(1));
    let mut order = Vec::new();
    while let Some(grant) = egress.next_grant(now) {
        match grant {
            Grant::Packet((_, n)) | Grant::Marked((_, n)) => order.push(n),
            Grant::Flow { id, .. } => egress.used(now, id, 100, 1, false),
        }
    }
    assert_eq!(order, [5, 3, 4], "in their order, behind what is there");
    assert_eq!((egress.stats().sent_bytes, egress.stats().backlog_packets), (600, 0));
    assert!(egress.is_idle());
    // Its number can be had again, and has no past.
    set(&mut egress, 1, 1, None);
    assert!(egress.enqueue(now, 5, bulk(1), 100, (1, 6)).is_empty());
    assert_eq!(egress.next_grant(now), Some(Grant::Packet((1, 6))));
}

#[test]
fn the_number_of_groups_is_bounded() {
    let now = Instant::from_millis(1);
    let mut egress = queue(None);
    let made = (0..2_000).filter(|n| egress.set_group(now, GroupId(*n), Share::default())).count();
    assert_eq!(made, MAX_GROUPS);
    assert!(egress.set_group(now, GroupId(7), Share { weight: 2, rate_bps: None }), "it exists");
    egress.remove_group(now, GroupId(7));
    assert!(egress.set_group(now, GroupId(1_999), Share::default()));
    assert!(!egress.set_group(now, GroupId(7), Share::default()));
}

/// One group as whoever reads the rules would write it down.
#[derive(Clone, Default)]
struct Simple {
    weight: u64,
    /// Nanoseconds that a byte takes; zero: no rate.
    byte_ns: u64,
    packets: VecDeque<u32>,
    had: u128,
    may: bool,
    free_at: u64,
    waiting_since: u64,
}

/// The same grants at the same times as looking at every group each time: of those that wait and
/// may, the one that has had least for its weight.
#[test]
fn grants_are_those_of_a_simple_model() {
    for seed in 1..200 {
        let mut x = seed;
        let count = 1 + lcg(&mut x, 8) as usize;
        let mut egress = queue(None);
        let mut groups = vec![Simple::default(); count];
        for group in &mut groups {
            group.byte_ns = [0, 0, 1_000, 8_000, 16_000][lcg(&mut x, 5) as usize];
        }
        let mut served = 0_u128;
        let mut now = 1_000_000;
        for step in 0..4_000 {
            let n = lcg(&mut x, count as u64) as usize;
            if step < count || lcg(&mut x, 200) == 0 {
                // Weights change; what a new rate means for what is under way is another test.
                let n = if step < count { step } else { n };
                let group = &mut groups[n];
                group.weight = 1 + lcg(&mut x, 20);
                let rate_bps = (group.byte_ns > 0).then(|| 8_000_000_000 / group.byte_ns);
                set(&mut egress, n as u32, group.weight as u32, rate_bps);
                continue;
            }
            now += lcg(&mut x, 4) * lcg(&mut x, 2_000_000);
            let at = Instant::from_nanos(now);
            if lcg(&mut x, 2) == 0 {
                let size = 125 * (1 + lcg(&mut x, 12)) as u32;
                assert!(egress.enqueue(at, 1, bulk(n as u32), size, (n as u32, size)).is_empty());
                if groups[n].packets.is_empty() {
                    groups[n].waiting_since = now;
                }
                groups[n].packets.push_back(size);
                continue;
            }
            for group in &mut groups {
                let may = !group.packets.is_empty() && (group.byte_ns == 0 || group.free_at <= now);
                if may && !group.may {
                    group.had = group.had.max(served);
                }
                group.may = may;
            }
            let next = (0..count).filter(|n| groups[*n].may).min_by_key(|n| (groups[*n].had, *n));
            let expected = next.map(|n| {
                let group = &mut groups[n];
                let size = group.packets.pop_front().unwrap();
                served = group.had;
                group.had += u128::from(size) * u128::from(u64::MAX / group.weight);
                let catch_up = MTU_BYTES * group.byte_ns;
                let begin = group.free_at.max(group.waiting_since).max(now.saturating_sub(catch_up));
                group.free_at = begin + u64::from(size) * group.byte_ns;
                (n as u32, size)
            });
            let granted = egress.next_grant(at).map(|grant| match grant {
                Grant::Packet(packet) | Grant::Marked(packet) => packet,
                Grant::Flow { .. } => unreachable!(),
            });
            assert_eq!(granted, expected, "seed {seed}, step {step}");
            let held = groups.iter().filter(|g| !g.packets.is_empty() && g.byte_ns > 0).map(|g| g.free_at);
            let waits = groups.iter().any(|g| !g.packets.is_empty() && (g.byte_ns == 0 || g.free_at <= now));
            let wake = if waits { Some(Instant::ZERO) } else { held.min().map(Instant::from_nanos) };
            assert_eq!(egress.poll_timeout(), wake, "seed {seed}, step {step}");
        }
    }
}

/// Anything in any order: each packet comes out once, those of one flow in their order; the counts
/// agree; the queue never locks up, and keeps each rate.
#[test]
fn any_order_of_operations() {
    for seed in 1..100 {
        let mut x = seed;
        let rates = [None, Some(0), Some(1), Some(64_000), Some(10_000_000), Some(u64::MAX)];
        let mut egress = Egress::<(u64, u64, Lane)>::new(Config {
            rate_bps: rates[lcg(&mut x, 6) as usize],
            overhead_bytes: lcg(&mut x, 40) as u32,
            mtu_bytes: 1 + lcg(&mut x, 3000) as u32,
            queue_limit_packets: 1 + lcg(&mut x, 300) as usize,
            queue_limit_bytes: 2_000 + lcg(&mut x, 100_000) as usize,
            ..Config::default()
        });
        let mut now = Instant::from_millis(lcg(&mut x, 100));
        let (mut put, mut out, mut handed_back) = (0_u64, 0_u64, 0_u64);
        // The newest packet that came out of what was one flow, and how often a group has begun
        // or ended.
        let mut newest = BTreeMap::<(u64, Class, GroupId, u64), u64>::new();
        let mut lives = BTreeMap::<GroupId, u64>::new();
        for _ in 0..4_000 {
            now += Duration::from_nanos(lcg(&mut x, 3_000_000));
            let flow = lcg(&mut x, 10);
            let lane =
                Lane { class: CLASSES[lcg(&mut x, 5) as usize], group: GroupId(lcg(&mut x, 6) as u32) };
            match lcg(&mut x, 16) {
                0 => egress.set_ready(now, flow, lane),
                1 => {
                    let weight = [0, 1, 7, u32::MAX][lcg(&mut x, 4) as usize];
                    let rate_bps = rates[lcg(&mut x, 6) as usize];
                    // What was put into it while it did not exist is elsewhere.
                    *lives.entry(lane.group).or_default() += 1;
                    assert!(egress.set_group(now, lane.group, Share { weight, rate_bps }));
                }
                2 => {
                    *lives.entry(lane.group).or_default() += 1;
                    egress.remove_group(now, lane.group);
                }
                3 => egress.set_link_up(now, lcg(&mut x, 4) > 0),
                4 => egress.set_rate(now, rates[lcg(&mut x, 6) as usize]),
                5 => egress.used(now, flow, lcg(&mut x, 2_000) as u32, 1, lcg(&mut x, 2) > 0),
                6..=9 => {
                    put += 1;
                    let epoch = lives.get(&lane.group).copied().unwrap_or(0);
                    let size = lcg(&mut x, 3_000) as u32;
                    let victims = egress.enqueue(now, flow, lane, size, (put, epoch << 8 | flow, lane));
                    handed_back += victims.len() as u64;
                }
                10 if lcg(&mut x, 20) == 0 => {
                    let ready = egress.take_ready(now);
                    ready.into_iter().for_each(|id| egress.set_ready(now, id, lane));
                }
                _ => match egress.next_grant(now) {
                    Some(Grant::Packet((number, flow, lane))) => {
                        out += 1;
                        let last =
                            newest.entry((flow & 0xff, lane.class, lane.group, flow >> 8)).or_default();
                        assert!(*last < number, "seed {seed}: {number} after {last}");
                        *last = number;
                    }
                    Some(Grant::Flow { id, bytes, .. }) if lcg(&mut x, 3) > 0 => {
                        egress.used(now, id, lcg(&mut x, 2 * u64::from(bytes)) as u32, 2, lcg(&mut x, 2) > 0);
                    }
                    _ => {}
                },
            }
            let stats = egress.stats();
            assert_eq!(put, out + stats.dropped_packets + stats.backlog_packets as u64);
            assert_eq!(handed_back, stats.dropped_packets);
            assert!(egress.poll_timeout().is_none() || !egress.is_idle());
        }
        egress.set_link_up(now, true);
        egress.set_rate(now, None);
        for group in 0..6 {
            assert!(egress.set_group(now, GroupId(group), Share::default()));
        }
        out += take_all(&mut egress, now);
        assert_eq!(put, out + egress.stats().dropped_packets);
    }
}

#[test]
fn a_group_holds_no_more_than_its_limit_and_a_limit_that_falls_is_reached_step_by_step() {
    let now = Instant::from_millis(1);
    let mut egress = queue(Some(0));
    set(&mut egress, 1, 1, None);
    egress.set_group_limit(GroupId(1), 10_000);
    // One that does not exist has none.
    egress.set_group_limit(GroupId(2), 0);
    let enqueue = |egress: &mut Egress<Packet>, group: u32| {
        egress.enqueue(now, 7, bulk(group), 1000, (group, 1000)).len()
    };
    let dropped: usize = (0..20).map(|_| enqueue(&mut egress, 1)).sum();
    assert_eq!((dropped, egress.group_backlog_bytes(GroupId(1))), (10, 10_000));
    assert_eq!((0..20).map(|_| enqueue(&mut egress, 0)).sum::<usize>(), 0, "others have no limit");
    assert_eq!((egress.group_backlog_bytes(GroupId(0)), egress.group_backlog_bytes(GroupId(9))), (20_000, 0));
    egress.set_group_limit(GroupId(1), 4_000);
    let dropped: Vec<usize> = (0..8).map(|_| enqueue(&mut egress, 1)).collect();
    assert_eq!(dropped, [2, 2, 2, 2, 2, 2, 1, 1]);
    assert_eq!(egress.group_backlog_bytes(GroupId(1)), 4_000);
    assert_eq!(egress.stats().dropped_packets, 24);
}
