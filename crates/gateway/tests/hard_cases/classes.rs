//! What goes first in the queue of a link: by rule, else by DSCP, whatever is split or forwarded.

use crate::limits::rule;
use crate::script::{Host, Script};
use farlink_gateway::config::{Action, Class, Link, Rule};

/// 8 Mbit/s: a packet of 1,000 bytes of payload takes a millisecond.
fn script(rules: &[Rule]) -> Script {
    let link = Link { name: "sat".into(), rate_bps: Some(8_000_000), ..Link::default() };
    Script::with(|s| {
        s.link = Some(link.clone());
        s.config.rules = rules.to_vec();
    })
}

/// Host a sends a thousand bytes from each of these ports at one instant, with this DSCP; the port
/// that is none stands for the connection that is split. Returns the ports in the order in which
/// the packets come to b. Nobody has seen the handshakes of the others, so they are forwarded.
fn order(t: &mut Script, packets: &[(u16, u8)]) -> Vec<u16> {
    for (port, dscp) in packets {
        let port = if *port == SPLIT { String::new() } else { format!(",port {port}") };
        t.send(Host::A, &format!("P. 1:1001 ack 1 {{dscp {dscp}{port}}}"));
    }
    t.play("~100");
    let came = t.take(Host::B).into_iter().filter(|s| s.segment.payload_len > 0);
    let known = |port: u16| if packets.iter().any(|(p, _)| *p == port) { port } else { SPLIT };
    came.map(|s| known(s.segment.src_port)).collect()
}

const SPLIT: u16 = 0;
/// The link is busy with the first when the others come.
const FORWARDED: [(u16, u8); 7] = [(1, 0), (2, 1), (3, 8), (4, 0), (5, 26), (6, 46), (7, 34)];

#[test]
fn what_is_forwarded_goes_by_its_dscp() {
    assert_eq!(order(&mut script(&[]), &FORWARDED), [1, 6, 7, 4, 5, 2, 3]);
}

#[test]
fn a_rule_says_otherwise() {
    let rules = [
        Rule { dscps: vec![1, 8], class: Some(Class::Interactive), ..rule(Action::Pass) },
        Rule { protocols: vec![17], class: Some(Class::Interactive), ..rule(Action::Pass) },
        Rule { dscps: vec![34], ..rule(Action::Pass) },
        Rule { class: Some(Class::Background), ..rule(Action::Pass) },
    ];
    // The rule about DSCP 34 names no class, so the DSCP stands.
    assert_eq!(order(&mut script(&rules), &FORWARDED), [1, 2, 3, 7, 4, 5, 6]);
}

/// Programs change the DSCP of a connection once they know what it is for.
#[test]
fn a_split_connection_goes_by_the_dscp_of_its_newest_packet() {
    for (dscp, second) in [(46, SPLIT), (1, 2)] {
        let mut t = script(&[]);
        t.open();
        t.play("~10\n drop");
        let order = order(&mut t, &[(1, 0), (SPLIT, dscp), (2, 0)]);
        assert_eq!((order.len(), order[0], order[1]), (3, 1, second), "DSCP {dscp}: {order:?}");
    }
}

/// The rule of its SYN stands for as long as it lasts.
#[test]
fn a_split_connection_keeps_the_class_of_its_rule() {
    let low = Rule { dscps: vec![0], class: Some(Class::Background), ..rule(Action::Split) };
    let mut t = script(&[low]);
    t.open();
    t.play("~10\n drop");
    assert_eq!(order(&mut t, &[(1, 2), (SPLIT, 46), (2, 2)]), [1, 2, SPLIT]);
}

/// A super-segment that is forwarded does not keep others waiting: they go after its first packet,
/// or, in the middle classes, after a millisecond's worth of them.
#[test]
fn a_super_segment_waits_in_parts() {
    for (dscp, rate_bps, first) in
        [(1, 8_000_000, 1), (1, 100_000_000, 1), (0, 8_000_000, 1), (0, 100_000_000, 12)]
    {
        let link = Link { name: "sat".into(), rate_bps: Some(rate_bps), ..Link::default() };
        let mut t = Script::with(|s| s.link = Some(link.clone()));
        t.send(Host::A, &format!("P. 1:40001 ack 1 {{gso 1000,dscp {dscp},port 1}}"));
        t.send(Host::A, "P. 1:101 ack 1 {dscp 46,port 2}");
        t.play("~100");
        let seen = t.take(Host::B);
        let urgent = seen.iter().position(|s| s.segment.src_port == 2).unwrap();
        let before: usize = seen[..urgent].iter().map(|s| s.segment.payload_len).sum();
        assert_eq!(before, first * 1_000, "DSCP {dscp}, {rate_bps} bit/s");
        // Nothing is missing, and all of it is in order.
        let mut next = 1;
        for s in seen.iter().filter(|s| s.segment.src_port == 1) {
            assert_eq!(s.seq, next);
            next += s.segment.payload_len as u32;
        }
        assert_eq!(next, 40_001);
    }
}
