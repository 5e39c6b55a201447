//! What of a scenario is run: the same words for the laboratory and the simulator.

use std::path::PathBuf;

use super::Only;

/// Which cells, how often, and how changed.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Name of a builtin scenario, or a path.
    pub scenario: String,
    /// Which cells.
    pub only: Only,
    /// Which of the scenario's subsets.
    pub subset: Option<String>,
    /// How often each.
    pub repeat: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Changes to the settings of all cells, `k=v`.
    pub set: Vec<String>,
    /// Where captures go, if anywhere.
    pub captures: Option<PathBuf>,
}
