//! The judgement of what came into a gateway against what left it.

use std::collections::HashSet;
use std::net::IpAddr;

use super::check::Findings;
use super::flow::{Flow, FlowKey, Incarnation};
use super::stream::Stream;

/// Bound on reported failures.
const FAILURES_MAX: usize = 20;

/// What a judgement needs to know besides the connection.
pub(super) struct Judge<'a> {
    /// Names of the nodes.
    pub(super) nodes: &'a [String],
    /// Source and destination of TCP fragments: what they carried is not known, so nothing is missed from there.
    pub(super) fragmented: &'a HashSet<(IpAddr, IpAddr)>,
}

impl Judge<'_> {
    /// Nothing leaves of a connection of which nothing came in, and no RST that no host sent.
    pub(super) fn counts(&self, flow: &Flow, key: FlowKey, allows_resets: bool, failures: &mut Vec<String>) {
        for ([came, left], node) in flow.counted.iter().zip(self.nodes) {
            for direction in 0..2 {
                let (came, left) = (came[direction], left[direction]);
                if self.fragmented.contains(&key.addresses(direction)) || failures.len() >= FAILURES_MAX {
                    continue;
                }
                let arrow = key.arrow(direction == 0);
                if left.packets > 0 && came.packets == 0 {
                    failures.push(format!("{node}, {arrow}: segments left, none came in"));
                } else if left.rsts > 0 && came.rsts == 0 && !allows_resets {
                    failures.push(format!("{node}, {arrow}: a RST left that no host sent"));
                }
            }
        }
    }

    /// No SYN leaves with another ISN than the hosts'.
    pub(super) fn syns(&self, flow: &Flow, key: FlowKey, failures: &mut Vec<String>) {
        let made = flow.syns.iter().filter(|(_, [came, left])| *left && !came);
        for ((node, direction, isn), _) in made {
            if !self.fragmented.contains(&key.addresses(*direction)) && failures.len() < FAILURES_MAX {
                let (node, arrow) = (&self.nodes[*node], key.arrow(*direction == 0));
                failures.push(format!("{node}, {arrow}: a SYN with ISN {isn} left that no host sent"));
            }
        }
    }

    /// The streams of one life of a connection, at each gateway and across them. One that was never answered has none
    /// (floods of SYNs are forgotten before they are followed through).
    pub(super) fn incarnation(&self, incarnation: &Incarnation, key: FlowKey, findings: &mut Findings) {
        if incarnation.isns.0.contains(&None) {
            return;
        }
        for (at, node) in incarnation.nodes.iter().zip(self.nodes) {
            for direction in 0..2 {
                let (came, other, left) = (&at[0][direction], &at[0][1 - direction], &at[1][direction]);
                let repeated = findings.repeated_bytes.entry(node.clone()).or_default();
                *repeated += left.coverage.overlapping_bytes();
                if left.packets == 0 || self.fragmented.contains(&key.addresses(direction)) {
                    continue;
                }
                for what in wrongs(came, other, left) {
                    if findings.failures.len() < FAILURES_MAX {
                        findings.failures.push(format!("{node}, {}: {what}", key.arrow(direction == 0)));
                    }
                }
            }
        }
        for direction in 0..2 {
            let places = incarnation.nodes.iter().zip(self.nodes);
            let mut all = places.map(|(at, node)| (&at[0][direction].coverage, node));
            let Some((first, first_node)) = all.next() else { continue };
            for (coverage, node) in all {
                if let Some(at) = first.first_difference(coverage)
                    && findings.failures.len() < FAILURES_MAX
                {
                    let arrow = key.arrow(direction == 0);
                    findings.failures.push(format!(
                        "{arrow}: {node} and {first_node} saw different bytes from byte {at} on"
                    ));
                }
            }
        }
    }
}

/// What is wrong with a stream that left: `came` is the same direction coming in, `other` the opposite one coming in.
fn wrongs(came: &Stream, other: &Stream, left: &Stream) -> Vec<String> {
    let mut wrongs = Vec::new();
    if let Some(fin) = left.fin_places.iter().find(|p| !came.fin_places.contains(p)) {
        wrongs.push(format!("a FIN left at byte {fin}; the host's stand at {:?}", came.fin_places));
    }
    if let Some(urgent) = left.urgent_places.iter().find(|p| !came.urgent_places.contains(p)) {
        wrongs.push(format!("urgent data ends at byte {urgent}; the host's at {:?}", came.urgent_places));
    }
    let sent = other.end_max + u64::from(!other.fin_places.is_empty());
    if left.ack_max > sent.max(came.ack_max) {
        wrongs.push(format!("byte {} is acknowledged; its source has sent {sent}", left.ack_max));
    }
    if left.coverage.is_lost() || came.coverage.is_lost() {
        return wrongs;
    }
    if let Some(at) = left.coverage.first_outside(&came.coverage) {
        wrongs.push(format!("byte {at} left, it never came in"));
    } else if let Some(at) = left.coverage.first_difference(&came.coverage) {
        wrongs.push(format!("other bytes left than came in, from byte {at} on"));
    }
    wrongs
}
