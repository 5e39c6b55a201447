//! What is kept of a run: a hash always, text and captures when asked for.

use std::collections::BTreeMap;

use farlink_wire::Instant;
use farlink_wire::pcap::PcapWriter;

use crate::observer::Observer;
use crate::packet::hash;

/// The record of one run.
#[derive(Default)]
pub struct Trace {
    hash: u64,
    text: Option<Vec<String>>,
    only: Option<String>,
    captures: Option<BTreeMap<String, PcapWriter>>,
}

impl Trace {
    /// Keeps text lines of every packet at every node (of those that contain `only`, when given).
    #[must_use]
    pub fn with_text(only: Option<String>) -> Self {
        Self { text: Some(Vec::new()), only, ..Self::default() }
    }

    /// Keeps a capture per node besides.
    #[must_use]
    pub fn and_captures(mut self) -> Self {
        self.captures = Some(BTreeMap::new());
        self
    }

    /// A packet enters a wire.
    pub fn hash(&mut self, now: Instant, wire: usize, bytes: &[u8]) {
        self.hash = hash(self.hash ^ now.as_nanos().rotate_left(17) ^ wire as u64, bytes);
    }

    /// A packet at a node.
    pub fn packet(&mut self, now: Instant, node: &str, arrow: &str, bytes: &[u8], observer: &Observer) {
        if self.text.is_some() {
            self.note(now, || format!("{node:>6} {arrow:<2} {}", observer.describe(bytes)));
        }
        if let Some(captures) = &mut self.captures {
            captures.entry(node.to_string()).or_default().record(now, bytes);
        }
    }

    /// Something that happened.
    pub fn note(&mut self, now: Instant, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.text {
            let line = format!("{:12.6} {}", now.as_nanos() as f64 / 1e9, what());
            if self.only.as_ref().is_none_or(|o| line.contains(o.as_str())) {
                lines.push(line);
            }
        }
    }

    /// The hash of all packets on all wires, with their times.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.hash
    }

    /// The lines so far.
    pub fn take_text(&mut self) -> Vec<String> {
        self.text.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The captures, by node.
    pub fn take_captures(&mut self) -> Vec<(String, Vec<u8>)> {
        let captures = self.captures.take().unwrap_or_default();
        captures.into_iter().map(|(name, mut w)| (name, w.take())).collect()
    }
}
