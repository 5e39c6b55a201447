//! What a gateway waits for, and how often it has waited for what.

use farlink_engine::due;

/// What a deadline of a gateway is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Work was left over for the next turn.
    Work,
    /// A link's queue may grant again.
    Grant,
    /// The estimate of a link's rate goes on.
    Estimate,
    /// Fragments whose kin never came go on.
    Reassembly,
    /// Hosts of connections that an earlier process has left behind are asked no more.
    LeftBehind,
    /// A matter of the engine.
    Engine(due::Due),
}

impl Due {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work left over",
            Self::Grant => "queue grant",
            Self::Estimate => "estimate",
            Self::Reassembly => "reassembly",
            Self::LeftBehind => "left behind",
            Self::Engine(due) => due.name(),
        }
    }
}

/// When something happens without a packet, and what.
pub type Deadline = due::Deadline<Due>;

/// The earliest of several.
pub(crate) type Earliest = due::Earliest<Due>;

/// How often deadlines passed, by what they were for.
#[derive(Debug, Default)]
pub(crate) struct Wakes(Vec<(Due, u64)>);

impl Wakes {
    /// Once more.
    pub fn count(&mut self, what: Due) {
        match self.0.iter_mut().find(|(due, _)| *due == what) {
            Some((_, times)) => *times += 1,
            None => self.0.push((what, 1)),
        }
    }

    /// For people.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(due, times)| (due.name(), *times))
    }
}
