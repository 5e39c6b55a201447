//! Where the time goes: calls and nanoseconds of each stage of the datapath, switched on and off
//! while it runs.
//!
//! Off, a stage costs one comparison. On, it costs two readings of the clock, which the figures
//! contain.

use farlink_wire::Instant;
use serde::Serialize;

/// Duration classes: below 256 ns, below 512 ns, and so on; the last one takes the rest (from 4 ms
/// on).
const CLASSES: usize = 16;
/// Upper bound of the first class, nanoseconds.
const FIRST_NS: u64 = 256;

/// A part of a packet's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// A packet is read from a TUN.
    Read,
    /// It is parsed and handled by the engine, or forwarded; without what is written meanwhile.
    Engine,
    /// What is owed and granted is made, egress queues and timers included; without what is written
    /// meanwhile.
    Egress,
    /// A packet is written to a TUN.
    Write,
}

const NAMES: [&str; 4] = ["read", "engine", "egress", "write"];

/// What a stage has taken since the profile was switched on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageStatus {
    /// read, engine, egress or write.
    pub name: &'static str,
    /// How often.
    pub calls: u64,
    /// How long together, nanoseconds.
    pub ns: u64,
    /// Calls by duration: below 256 ns, below 512 ns, doubling each; the last class takes the rest.
    pub histogram: [u64; CLASSES],
}

/// Counts of all stages.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    stages: [StageStatus; 4],
    /// Written since the present call of the gateway began, nanoseconds.
    written_ns: u64,
}

impl Default for Profile {
    fn default() -> Self {
        let stages = NAMES.map(|name| StageStatus { name, calls: 0, ns: 0, histogram: [0; CLASSES] });
        Self { stages, written_ns: 0 }
    }
}

impl Profile {
    /// A stage took from one time to another.
    pub(crate) fn note(&mut self, stage: Stage, from: Instant, to: Instant) {
        let mut ns = to.as_nanos().saturating_sub(from.as_nanos());
        match stage {
            Stage::Read => {}
            Stage::Write => self.written_ns += ns,
            // Writing happens inside.
            Stage::Engine | Stage::Egress => ns = ns.saturating_sub(std::mem::take(&mut self.written_ns)),
        }
        let s = &mut self.stages[stage as usize];
        s.calls += 1;
        s.ns += ns;
        let class = (ns / FIRST_NS).checked_ilog2().map_or(0, |n| n as usize + 1);
        s.histogram[class.min(CLASSES - 1)] += 1;
    }

    /// All stages, in the order of a packet's way.
    pub(crate) fn status(&self) -> Vec<StageStatus> {
        self.stages.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_fall_into_classes_and_writing_is_counted_once() {
        let at = Instant::from_nanos;
        let mut profile = Profile::default();
        profile.note(Stage::Read, at(0), at(255));
        profile.note(Stage::Read, at(0), at(256));
        profile.note(Stage::Read, at(0), at(1_000_000_000));
        profile.note(Stage::Write, at(100), at(700));
        profile.note(Stage::Engine, at(0), at(1000));
        profile.note(Stage::Engine, at(0), at(1000));
        let stages = profile.status();
        assert_eq!((stages[0].calls, stages[0].histogram[0], stages[0].histogram[1]), (3, 1, 1));
        assert_eq!(stages[0].histogram[CLASSES - 1], 1);
        assert_eq!((stages[1].calls, stages[1].ns), (2, 1400));
        assert_eq!((stages[3].name, stages[3].ns), ("write", 600));
    }
}
