//! From two samples of the counters to an answer in plain words: is traffic being split, and if
//! not, why? Pure.

use farlink_linux::divert::{Count, Diagnosis, Severity};

use super::Running;
use super::live::Sample;
use crate::view::{count, number};

/// The answer and what it rests on.
pub struct Verdict {
    /// Short.
    pub answer: String,
    /// Findings, problems first.
    pub found: Vec<Diagnosis>,
}

/// What happened on one interface between the samples.
struct OnInterface<'a> {
    name: &'a str,
    device: &'a str,
    /// Packets that came in and were sent to the device.
    diverted: u64,
    /// Packets that were chosen, too, and were not: for this machine itself, or routed by
    /// somebody's earlier rule.
    passed: u64,
    /// Packets that the gateway read from the device.
    got: u64,
    /// Packets that found the device's queue full.
    lost: u64,
    /// Of a bump: which came in by the interface, and which were to leave by it.
    ways: Option<(u64, u64)>,
}

/// Reasons that the gateway itself counts for not splitting a connection.
const REASONS: [(&str, &str); 5] = [
    ("flows_passed", "a rule passes them by (`farlink status` shows which)"),
    ("flows_refused", "a rule refuses them"),
    ("flows_forwarded_short", "memory or the flow table is short; see `limits` in docs/configuration.md"),
    ("flows_forwarded_busy", "the processor was short: packets waited too long for Farlink"),
    ("flows_forwarded_unsplittable", "their options or their shape forbid it (MD5, MPTCP, unknown options)"),
];

/// Those of them that are for want of something; the others are meant so.
const SHORT: [&str; 2] = ["flows_forwarded_short", "flows_forwarded_busy"];

/// A connection that is not answered, or refused, has at most so many packets for each SYN.
const TRIED_PACKETS: u64 = 3;

/// Judges what happened between two samples that are `seconds` apart.
pub fn judge(running: &Running, before: &Sample, after: &Sample, seconds: u64) -> Verdict {
    let mut found = Vec::new();
    let on: Vec<_> =
        (0..running.interfaces.len()).filter_map(|n| on_interface(running, before, after, n)).collect();
    if after.counters.is_none() && !running.has_bumps() {
        let text = "the counters of the nftables table cannot be read (not root, or the table is gone), so what comes in \
                    by the interfaces is unknown";
        found.push(Diagnosis::new("counters-unreadable", Severity::Warning, text));
    }
    let grown = |key: &str| {
        let at = |sample: &Sample| number(&sample.status, &format!("/engine/counters/{key}"));
        at(after).saturating_sub(at(before))
    };
    let now = |key: &str| number(&after.status, &format!("/engine/{key}"));
    for one in &on {
        let what = if running.whole.is_empty() { "TCP packet" } else { "packet" };
        interface_findings(one, what, (running.has_bumps(), seconds), &mut found);
    }
    let all_got: u64 = on.iter().map(|o| o.got).sum();
    let got = all_got.saturating_sub(other_packets(before, after));
    // Where what is no TCP is diverted, too, the kernel's counters do not tell it apart, but the
    // gateway does.
    let arrived: u64 = match running.whole.is_empty() || all_got == 0 {
        true => on.iter().map(|o| o.diverted + o.passed).sum(),
        false => got,
    };
    let (split_now, began, taken) = (now("flows_split"), grown("flows_split"), grown("packets_taken"));
    // Packets of split connections may well come from one side for a while: what is in custody is
    // delivered, and only acknowledgements come back. And nobody may have answered at all.
    if taken < got.div_ceil(2) && got > TRIED_PACKETS * grown("syns") {
        one_way(&on, &mut found);
    }
    for (n, interface) in running.interfaces.iter().enumerate() {
        if after.status.pointer(&format!("/interfaces/{n}/tso4")) == Some(&serde_json::Value::Bool(false)) {
            let text = format!(
                "the kernel does not take super-segments from {}: throughput is a fraction of what it could be",
                interface.device
            );
            found.push(Diagnosis::new("no-super-segments", Severity::Warning, text));
        }
    }
    for (key, reason) in REASONS {
        let n = grown(key);
        if n > 0 {
            let text = format!("{} not split because {reason}", were(n, "connection"));
            let severity = if SHORT.contains(&key) { Severity::Warning } else { Severity::Note };
            found.push(Diagnosis::new(
                format!(
                    "not-split-{}",
                    key.trim_start_matches("flows_").trim_start_matches("forwarded_").replace('_', "-")
                ),
                severity,
                text,
            ));
        }
    }
    found.extend(super::links::findings(before, after, seconds));
    let links = crate::view::list(&after.status, "/links");
    found.extend(links.iter().filter_map(super::undeclared::finding));
    if after.status.pointer("/engine/draining") == Some(&serde_json::Value::Bool(true)) {
        let text = "the gateway is draining: it hands its connections back and splits no new ones";
        found.push(Diagnosis::new("draining", Severity::Warning, text));
    }
    // It is the cause of what else shows.
    found.extend(after.dropped.iter().cloned());
    let is_dropped = after.dropped.iter().any(|d| d.severity > Severity::Note);
    let answer = match (split_now > 0 && (taken > 0 || began > 0), got > 0, arrived > 0) {
        _ if is_dropped && taken == 0 => {
            "no: TCP comes in, and the firewall of this machine drops it before it reaches Farlink".to_owned()
        }
        (true, ..) => {
            let peer = now("flows_with_peer");
            format!(
                "yes: {} split now ({peer} with a gateway on the other side), {began} new in {seconds} s",
                are(split_now, "connection")
            )
        }
        (false, true, _) if split_now > 0 => {
            format!("yes: {} split now, but nothing was relayed in {seconds} s", are(split_now, "connection"))
        }
        (false, true, _) if taken > 0 => {
            format!("yes, until just now: no connection is open that is split, {began} began in {seconds} s")
        }
        (false, true, _) => {
            let short: u64 = SHORT.map(grown).iter().sum();
            let meant = REASONS.map(|(key, _)| grown(key)).iter().sum::<u64>() - short;
            if !found.iter().any(|d| d.id == "one-way") {
                not_split((grown("syns"), got), (short, meant), &mut found);
            }
            "no: TCP reaches the gateway, but it splits nothing".to_owned()
        }
        (false, false, true) => {
            if on.iter().all(|o| o.diverted == 0) {
                let text = "all TCP that came in is for this machine itself, or is routed by a rule that comes before \
                            Farlink's; only connections that this machine forwards can be split";
                found.push(Diagnosis::new("only-own-traffic", Severity::Problem, text));
            }
            "no: TCP comes in, but does not reach the gateway".to_owned()
        }
        (false, false, false) if split_now > 0 => {
            format!("yes: {} split now, all silent for {seconds} s", are(split_now, "connection"))
        }
        (false, false, false) if running.has_problem() => {
            "no: there is something wrong with diversion (see above)".to_owned()
        }
        (false, false, false) => {
            let names: Vec<_> = running.interfaces.iter().map(|i| i.name.as_str()).collect();
            let text = format!(
                "no TCP came in by {} in {seconds} s; if there should be some, it is routed past this machine (look at \
                 the hosts' default routes), or comes in by an interface that is not diverted",
                names.join(" or ")
            );
            found.push(Diagnosis::new("no-traffic", Severity::Note, text));
            "nothing to split: there is no TCP traffic".to_owned()
        }
    };
    found.sort_by_key(|d| std::cmp::Reverse(d.severity));
    Verdict { answer, found }
}

fn on_interface<'a>(
    running: &'a Running,
    before: &Sample,
    after: &Sample,
    n: usize,
) -> Option<OnInterface<'a>> {
    let interface = running.interfaces.get(n).filter(|i| !i.device.is_empty())?;
    // The kernel's counters have the number of the device.
    let number_of_device = running.divert().tun_number(&interface.device, n);
    let counted = |key: &str| {
        let name = format!("{key}_{number_of_device}");
        let at = |s: &Sample| s.counters.as_ref().and_then(|c| c.get(&name).copied());
        let (now, then): (Count, Count) = (at(after).unwrap_or_default(), at(before).unwrap_or_default());
        now.packets.saturating_sub(then.packets)
    };
    // Both families of IP together.
    let at = |s: &Sample, key: &str| number(&s.status, &format!("/interfaces/{n}/{key}"));
    let grown = |key: &str| at(after, key).saturating_sub(at(before, key));
    let got = grown("packets_in");
    // A bump counts nothing of its own: what it takes is read, or finds the queue full.
    let diverted = if running.has_bumps() { got } else { counted("diverted") + counted("diverted6") };
    Some(OnInterface {
        name: &interface.name,
        device: &interface.device,
        diverted,
        passed: counted("passed"),
        got,
        lost: grown("queue_drops"),
        // Older gateways do not tell.
        ways: after
            .status
            .pointer(&format!("/interfaces/{n}/packets_from_wire"))
            .map(|_| (grown("packets_from_wire"), grown("packets_to_wire"))),
    })
}

fn interface_findings(
    one: &OnInterface<'_>,
    what: &str,
    (has_bump, seconds): (bool, u64),
    found: &mut Vec<Diagnosis>,
) {
    let OnInterface { name, device, diverted, passed, got, lost, ways } = one;
    if *diverted + *passed + *got > 0 {
        let text = match (has_bump, ways) {
            (true, None) => {
                format!("{} passed the bump at {name} in {seconds} s, both ways together", count(*got, what))
            }
            (true, Some((came, left))) => format!(
                "{} passed the bump at {name} in {seconds} s: {came} came in, {left} left",
                count(*got, what)
            ),
            (false, _) => format!(
                "{} came in by {name} in {seconds} s, {got} reached {device}, {passed} were for this machine or routed by earlier rules",
                count(diverted + passed, what)
            ),
        };
        found.push(Diagnosis::new("arrivals", Severity::Note, text));
    }
    // A few may be on their way between the two counters.
    if *diverted > 10 && *got == 0 {
        let text = format!(
            "none of {diverted} diverted packets from {name} reached {device}: something between marking and routing drops \
             them, such as a firewall's prerouting or forward chain, or rp_filter"
        );
        found.push(Diagnosis::new("diverted-lost", Severity::Problem, text));
    }
    if *lost > 0 {
        let text = format!(
            "{lost} packets were lost because the queue of {device} was full: this machine's processor is the bottleneck"
        );
        found.push(Diagnosis::new("queue-full", Severity::Warning, text));
    }
}

/// Packets that the gateway got and that are no TCP.
fn other_packets(before: &Sample, after: &Sample) -> u64 {
    let at = |s: &Sample| number(&s.status, "/traffic/packets_other");
    at(after).saturating_sub(at(before))
}

/// A gateway that sees one direction of the connections only cannot split them.
fn one_way(on: &[OnInterface<'_>], found: &mut Vec<Diagnosis>) {
    let ways: Vec<_> = on.iter().flat_map(ways_of).collect();
    let busy: Vec<_> = ways.iter().filter(|(_, packets)| *packets > 20).map(|(way, _)| way).collect();
    let silent: Vec<_> =
        ways.iter().filter(|(_, packets)| *packets == 0).map(|(way, _)| way.as_str()).collect();
    if let [only] = busy[..]
        && ways.len() > 1
        && silent.len() == ways.len() - 1
    {
        let text = format!(
            "all TCP {only}, and none {}: the other direction takes another way, and a connection is split only where \
             both of its directions pass; look at the routes of both sides",
            silent.join(" or ")
        );
        found.push(Diagnosis::new("one-way", Severity::Problem, text));
    }
}

/// In which ways packets come to the gateway here, and how many. One that passes a bump comes in or
/// leaves.
fn ways_of(one: &OnInterface<'_>) -> Vec<(String, u64)> {
    let comes_in = |packets| (format!("comes in by {}", one.name), packets);
    match one.ways {
        Some((came, left)) => vec![comes_in(came), (format!("leaves by {}", one.name), left)],
        None => vec![comes_in(one.diverted)],
    }
}

/// `short`, `meant`: connections that were not split for a reason that is counted, and told: for
/// want of something, or because that is meant so.
fn not_split((syns, packets): (u64, u64), (short, meant): (u64, u64), found: &mut Vec<Diagnosis>) {
    let (id, severity, text) = if short > 0 {
        let text = "connections began, and none was split, because this machine is short of something (see the other findings)";
        ("nothing-split", Severity::Problem, text)
    } else if meant > 0 {
        return;
    } else if syns == 0 {
        let text = "all connections that are open began before the gateway did, or went round it when they began; only \
                    connections whose first packets pass here are split, so the next ones will be";
        ("open-before", Severity::Note, text)
    } else if packets <= TRIED_PACKETS * syns {
        let text =
            "connections were tried, and none was answered, or all were refused: there was nothing to split";
        ("unanswered", Severity::Note, text)
    } else {
        (
            "nothing-split",
            Severity::Problem,
            "connections began, and none was split, for no reason that the gateway counts. Most often their answers take another way: a connection \
             is split only where both of its directions pass (`--log connections=debug` tells more)",
        )
    };
    found.push(Diagnosis::new(id, severity, text));
}

fn are(n: u64, what: &str) -> String {
    format!("{} {}", count(n, what), if n == 1 { "is" } else { "are" })
}

fn were(n: u64, what: &str) -> String {
    format!("{} {}", count(n, what), if n == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::super::Interface;
    use super::*;
    use serde_json::json;

    fn running() -> Running {
        let interface = |name: &str, n: u32| Interface {
            name: name.into(),
            device: format!("farlink{n}"),
            device_index: 10 + n,
            is_link: n == 1,
        };
        Running {
            version: "1".into(),
            uptime_seconds: 1,
            pid: 1,
            method: "policy".into(),
            instance: String::new(),
            mark_mask: 0x7f00_0000,
            table_base: 51_000,
            rule_priority: 500,
            interfaces: vec![interface("lan0", 0), interface("sat0", 1)],
            whole: Vec::new(),
            shims: Vec::new(),
            trouble: Vec::new(),
            in_place: Some(true),
            captures: Vec::new(),
        }
    }

    /// A sample with these packets: diverted, passed, got, lost for each interface.
    fn sample(on: [[u64; 4]; 2], mut status: serde_json::Value) -> Sample {
        let count = |packets| Count { packets, bytes: 0 };
        let counters = (0..2).flat_map(|n| {
            [(format!("diverted_{n}"), count(on[n][0])), (format!("passed_{n}"), count(on[n][1]))]
        });
        let interfaces: Vec<_> =
            on.iter().map(|o| json!({"packets_in": o[2], "queue_drops": o[3]})).collect();
        status["interfaces"] = json!(interfaces);
        Sample { counters: Some(counters.collect()), status, ..Sample::default() }
    }

    fn verdict(on: [[u64; 4]; 2], status: serde_json::Value) -> (String, String, bool) {
        let before = sample([[0; 4]; 2], json!({"engine": {"counters": {}}}));
        let v = judge(&running(), &before, &sample(on, status), 2);
        let texts: Vec<_> = v.found.iter().map(|d| d.text.clone()).collect();
        (v.answer, texts.join("\n"), v.found.iter().any(|d| d.severity == Severity::Problem))
    }

    #[test]
    fn splitting() {
        let status = json!({"engine": {"flows_split": 3, "flows_with_peer": 2,
            "counters": {"packets_taken": 900, "flows_split": 1, "syns": 1}}});
        let (answer, found, bad) = verdict([[500, 0, 500, 0], [400, 0, 400, 0]], status);
        assert_eq!(
            answer,
            "yes: 3 connections are split now (2 with a gateway on the other side), 1 new in 2 s"
        );
        assert!(
            found.contains("500 TCP packets came in by lan0 in 2 s, 500 reached farlink0") && !bad,
            "{found}"
        );
    }

    #[test]
    fn what_is_no_tcp_is_no_tcp_that_is_not_split() {
        let whole = Running { whole: vec!["sat0".into()], ..running() };
        let judged = |on, status| {
            let before = sample([[0; 4]; 2], json!({"engine": {"counters": {}}}));
            let v = judge(&whole, &before, &sample(on, status), 2);
            (v.answer, v.found.iter().map(|d| d.text.clone()).collect::<Vec<_>>().join("\n"))
        };
        let udp = json!({"engine": {"counters": {}}, "traffic": {"packets_other": 500}});
        let (answer, found) = judged([[500, 0, 500, 0], [0; 4]], udp);
        assert!(answer.starts_with("nothing to split"), "{answer}");
        assert!(
            found.contains("500 packets came in by lan0") && !found.contains("all TCP comes in"),
            "{found}"
        );
        let beside = json!({"engine": {"flows_split": 1, "counters": {"packets_taken": 90, "flows_split": 1}},
            "traffic": {"packets_other": 800}});
        let (answer, found) = judged([[850, 0, 850, 0], [40, 0, 40, 0]], beside);
        assert!(answer.starts_with("yes: 1 connection is split now"), "{answer}\n{found}");
        // What does not arrive at all shows as before.
        let (answer, _) = judged([[500, 0, 0, 0], [0; 4]], json!({"engine": {}}));
        assert!(answer.contains("does not reach the gateway"), "{answer}");
    }

    #[test]
    fn no_traffic_is_no_fault() {
        let (answer, found, bad) = verdict([[0; 4]; 2], json!({"engine": {}}));
        assert!(answer.starts_with("nothing to split") && found.contains("routed past this machine") && !bad);
    }

    #[test]
    fn one_direction_only() {
        let status = json!({"engine": {"counters": {"syns": 3}}});
        let (answer, found, bad) = verdict([[500, 0, 500, 0], [0; 4]], status);
        assert!(answer.starts_with("no: TCP reaches the gateway"), "{answer}");
        assert!(found.contains("all TCP comes in by lan0, and none comes in by sat0") && bad, "{found}");
    }

    /// Of a bump at the link: packets that came in, and that left.
    fn at_bump(came: u64, left: u64, syns: u64) -> (String, String) {
        let mut running = Running { method: "bump".into(), ..running() };
        running.interfaces[0].device = String::new();
        let of = |came: u64, left: u64, counters: serde_json::Value| {
            let bump = json!({"packets_in": came + left, "packets_from_wire": came, "packets_to_wire": left});
            let status = json!({"engine": {"counters": counters}, "interfaces": [{}, bump]});
            Sample { status, ..Sample::default() }
        };
        let v = judge(&running, &of(0, 0, json!({})), &of(came, left, json!({ "syns": syns })), 2);
        let bad: Vec<_> = v.found.iter().filter(|d| d.severity == Severity::Problem).collect();
        let ids = bad.iter().map(|d| &*d.id).collect::<Vec<_>>().join(" ");
        (ids, v.found.iter().map(|d| d.text.clone()).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn a_bump_that_sees_one_direction_only_says_which() {
        let (ids, found) = at_bump(0, 500, 30);
        assert!(
            ids == "one-way" && found.contains("all TCP leaves by sat0, and none comes in by sat0"),
            "{found}"
        );
        let (ids, found) = at_bump(500, 0, 0);
        assert!(
            ids == "one-way" && found.contains("all TCP comes in by sat0, and none leaves by sat0"),
            "{found}"
        );
        assert!(
            found.contains("500 TCP packets passed the bump at sat0 in 2 s: 500 came in, 0 left"),
            "{found}"
        );
        // Both pass, and nobody knows why nothing is split.
        assert_eq!(at_bump(400, 500, 30).0, "nothing-split");
        // Nobody answers.
        assert_eq!(at_bump(0, 40, 40).0, "");
    }

    /// The source has sent everything; the gateway delivers what it holds, and only
    /// acknowledgements come in.
    #[test]
    fn custody_that_is_delivered_is_no_one_way_traffic() {
        let status = json!({"engine": {"flows_split": 2, "flows_with_peer": 2,
            "counters": {"packets_taken": 46}}});
        let (answer, found, bad) = verdict([[0; 4], [46, 0, 46, 0]], status);
        assert!(answer.starts_with("yes: 2 connections are split now") && !bad, "{answer}\n{found}");
    }

    #[test]
    fn connections_that_have_just_ended_were_split() {
        let status = json!({"engine": {"counters": {"packets_taken": 9, "flows_split": 1, "syns": 1}}});
        let (answer, found, bad) = verdict([[5, 0, 5, 0], [4, 0, 4, 0]], status);
        assert!(
            answer.starts_with("yes, until just now") && answer.contains("1 began in 2 s") && !bad,
            "{answer}"
        );
        assert!(!found.contains("began before the gateway did"), "{found}");
    }

    #[test]
    fn marked_but_dropped_on_the_way() {
        let (answer, found, bad) = verdict([[500, 0, 0, 0], [400, 0, 0, 0]], json!({"engine": {}}));
        assert!(answer.starts_with("no: TCP comes in, but does not reach") && bad, "{answer}");
        assert!(found.contains("none of 500 diverted packets from lan0 reached farlink0"), "{found}");
    }

    #[test]
    fn only_for_this_machine() {
        let (answer, found, bad) = verdict([[0, 300, 0, 0], [0; 4]], json!({"engine": {}}));
        assert!(answer.starts_with("no: ") && found.contains("is for this machine itself") && bad, "{found}");
    }

    #[test]
    fn old_connections_are_explained() {
        let status = json!({"engine": {"counters": {}}});
        let (_, found, bad) = verdict([[500, 0, 500, 0], [400, 0, 400, 0]], status);
        assert!(found.contains("began before the gateway did") && !bad, "{found}");
    }

    #[test]
    fn reasons_and_losses_are_named() {
        let status = json!({"engine": {"draining": true, "counters": {"syns": 9, "flows_passed": 1,
            "flows_forwarded_short": 5}}});
        let (_, found, bad) = verdict([[500, 0, 500, 7], [400, 0, 400, 0]], status);
        assert!(found.contains("1 connection was not split because a rule passes them by") && bad);
        assert!(found.contains("5 connections were not split because memory"));
        assert!(found.contains("7 packets were lost") && found.contains("draining"));
    }
}
