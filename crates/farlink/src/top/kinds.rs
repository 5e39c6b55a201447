//! What a link carries by kind, and past its queue: the lines that stand below it.

use farlink_gateway::Passed;
use serde::Serialize;

use super::draw::{percent, speed};
use super::model::Link;
use crate::show::{Figures, PAST_THE_QUEUE, SPLIT_TCP, is_used, kind_in_words};
use crate::view::{Table, bytes};

/// What a link carries of a kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Carried {
    /// Since the start, named as in the status.
    #[serde(flatten)]
    pub passed: Passed,
    /// What its queue sends of it now, bit/s.
    pub sent_bps: f64,
    /// What share of the link's rate that is; `None` where the rate is unknown.
    pub share: Option<f64>,
}

/// A line below a link.
pub struct Part {
    /// In words.
    pub name: String,
    /// What leaves of it now, bit/s.
    pub sent_bps: f64,
    /// What share of the link's rate that is; `None` where the rate is unknown.
    pub share: Option<f64>,
    /// Since the start.
    pub figures: Figures,
}

/// Each kind that a link has carried since the start, and what has left past its queue.
pub fn parts(link: &Link) -> Vec<Part> {
    let used = link.carried.iter().filter(|(_, kind)| is_used(&kind.passed));
    let part = |(name, kind): (&String, &Carried)| Part {
        name: in_words(name, link.retransmitted_bytes),
        sent_bps: kind.sent_bps,
        share: kind.share,
        figures: Figures::of_kind(name, &kind.passed),
    };
    let mut parts: Vec<Part> = used.map(part).collect();
    if link.beside_packets > 0 {
        parts.push(Part {
            name: PAST_THE_QUEUE.to_owned(),
            sent_bps: link.beside_sent_bps,
            share: link.beside_share,
            figures: Figures::past_the_queue(link.beside_packets, link.beside_bytes),
        });
    }
    parts
}

/// Only what is made here is sent again: of it that is told in place of the time that it waits.
fn in_words(name: &str, repeated_bytes: u64) -> String {
    let words = kind_in_words(name);
    if name == SPLIT_TCP && repeated_bytes > 0 {
        format!("{words}, {} again", bytes(repeated_bytes))
    } else {
        words
    }
}

/// The same lines as text, for scripts.
pub fn table(links: &[Link]) -> Table {
    let mut table = Table::new(&[
        "LINK",
        "CARRIED",
        "NOW",
        "USED",
        "PACKETS",
        "BYTES",
        "DROPPED",
        "MEAN WAIT",
        "LONGEST WAIT",
    ]);
    for link in links {
        for part in parts(link) {
            let now = [link.name.clone(), part.name, speed(part.sent_bps), percent(part.share)];
            table.row(now.into_iter().chain(part.figures.cells()));
        }
    }
    table
}
