//! The judgement of what came into a gateway against what left it.

use std::collections::{BTreeMap, BTreeSet};

use super::check::{Repeated, Split};
use super::flow::{Flow, FlowKey, Incarnation};
use super::fragments::Fragments;
use super::stream::Stream;

/// Bound on reported failures.
const FAILURES_MAX: usize = 20;
/// A gateway acknowledges some of so many bytes before their destination does, wherever on the path
/// it stands.
const BULK_BYTES: u64 = 100_000;
/// Bound on the connections of which this is looked at.
const KEPT_MAX: usize = 10_000;

/// What a judgement needs to know besides the connection.
pub(super) struct Judge<'a> {
    /// Names of the nodes.
    pub(super) nodes: &'a [String],
    /// Directions in which fragments carried what is not known: nothing is missed from there.
    pub(super) fragments: &'a Fragments,
    /// A gateway may give up custody and reset the hosts.
    pub(super) allows_resets: bool,
}

impl Judge<'_> {
    /// What one life of a connection shows of whether gateways split it. One without an answer to
    /// its SYN, or with odd options, any gateway leaves to the hosts.
    pub(super) fn split(&self, incarnation: &Incarnation, key: FlowKey, split: &mut Split) {
        if !incarnation.is_answered || incarnation.is_odd || !incarnation.has_data() {
            return;
        }
        let mut early = BTreeSet::new();
        let mut is_bulk = false;
        for (number, ([came, left], node)) in incarnation.nodes.iter().zip(self.nodes).enumerate() {
            if [0, 1].into_iter().all(|d| came[d].packets > 0 && left[d].packets > 0) {
                let splittable = split.splittable.entry(node.clone()).or_default();
                splittable.count += 1;
                if splittable.flows.len() < KEPT_MAX {
                    splittable.flows.push(key);
                }
            }
            is_bulk |= came.iter().any(|stream| stream.end_max >= BULK_BYTES);
            early.extend(incarnation.is_early.get(number).filter(|is| **is).map(|_| node.clone()));
        }
        if is_bulk && split.bulk.len() < KEPT_MAX {
            split.bulk.entry(key.arrow(true)).or_default().extend(early);
        }
    }

    /// A 4-tuple with all that is kept of its lives. Repeated bytes are added up by node.
    pub(super) fn flow(
        &self,
        flow: &Flow,
        key: FlowKey,
        failures: &mut Vec<String>,
        repeated: &mut BTreeMap<String, Repeated>,
    ) {
        self.counts(flow, key, failures);
        self.syns(flow, key, failures);
        for incarnation in &flow.incarnations {
            self.incarnation(flow, incarnation, key, failures, repeated);
        }
    }

    fn is_judged(&self, key: FlowKey, direction: usize, failures: &[String]) -> bool {
        failures.len() < FAILURES_MAX && !self.fragments.hide(key.addresses(direction))
    }

    /// Nothing leaves of a connection of which nothing came in, and no segment or RST that no host
    /// sent.
    fn counts(&self, flow: &Flow, key: FlowKey, failures: &mut Vec<String>) {
        for ([came, left], node) in flow.counted.iter().zip(self.nodes) {
            for direction in 0..2 {
                let (came, left) = (came[direction], left[direction]);
                if !self.is_judged(key, direction, failures) {
                    continue;
                }
                let arrow = key.arrow(direction == 0);
                if left.packets > 0 && came.packets == 0 {
                    failures.push(format!("{node}, {arrow}: segments left, none came in"));
                } else if left.rsts > 0 && came.rsts == 0 && !self.allows_resets {
                    failures.push(format!("{node}, {arrow}: a RST left that no host sent"));
                } else if left.strangers > came.strangers {
                    failures.push(format!(
                        "{node}, {arrow}: {} segments left with numbers of no connection, {} came in",
                        left.strangers, came.strangers
                    ));
                }
            }
        }
    }

    /// No SYN leaves with another ISN than the hosts'.
    fn syns(&self, flow: &Flow, key: FlowKey, failures: &mut Vec<String>) {
        let made = flow.syns.iter().filter(|(_, [came, left])| *left && !came);
        for ((node, direction, isn), _) in made {
            if self.is_judged(key, *direction, failures) {
                let (node, arrow) = (&self.nodes[*node], key.arrow(*direction == 0));
                failures.push(format!("{node}, {arrow}: a SYN with ISN {isn} left that no host sent"));
            }
        }
    }

    /// The streams of one life of a connection, at each gateway and across them. One in which not
    /// both hosts have taken part has none.
    pub(super) fn incarnation(
        &self,
        flow: &Flow,
        incarnation: &Incarnation,
        key: FlowKey,
        failures: &mut Vec<String>,
        repeated: &mut BTreeMap<String, Repeated>,
    ) {
        if !incarnation.is_answered {
            return;
        }
        let places = || incarnation.nodes.iter().zip(self.nodes).enumerate();
        for (number, (at, node)) in places() {
            for direction in 0..2 {
                let (came, other, left) = (&at[0][direction], &at[0][1 - direction], &at[1][direction]);
                let of_node = repeated.entry(node.clone()).or_default();
                of_node.bytes += left.coverage.overlapping_bytes();
                of_node.most = of_node.most.max(left.repeats.most);
                if left.packets == 0 || !self.is_judged(key, direction, failures) {
                    continue;
                }
                let arrow = key.arrow(direction == 0);
                failures.extend(wrongs(came, other, left).iter().map(|w| format!("{node}, {arrow}: {w}")));
                // A host's RST with odd numbers may leave with those that the other one expects.
                let odd = flow.counted[number][0][direction].strange_rsts > 0;
                if left.rsts > 0 && came.rsts == 0 && !odd && !self.allows_resets {
                    failures.push(format!("{node}, {arrow}: a RST left in a connection that no host reset"));
                }
            }
        }
        for direction in 0..2 {
            let mut all = places().map(|(_, (at, node))| (&at[0][direction].coverage, node));
            let Some((first, first_node)) = all.next() else { continue };
            for (coverage, node) in all {
                if let Some(at) = first.first_difference(coverage)
                    && failures.len() < FAILURES_MAX
                {
                    let arrow = key.arrow(direction == 0);
                    failures.push(format!(
                        "{arrow}: {node} and {first_node} saw different bytes from byte {at} on"
                    ));
                }
            }
        }
    }
}

/// What is wrong with a stream that left: `came` is the same direction coming in, `other` the
/// opposite one coming in.
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
    if left.coverage.is_contradicted() && !came.coverage.is_contradicted() {
        wrongs.push("a byte left in two ways; it came in one".into());
    }
    if let Some(at) = left.coverage.first_outside(&came.coverage) {
        wrongs.push(format!("byte {at} left, it never came in"));
    } else if let Some(at) = left.coverage.first_difference(&came.coverage) {
        wrongs.push(format!("other bytes left than came in, from byte {at} on"));
    }
    wrongs
}
