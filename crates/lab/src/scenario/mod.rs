//! Scenario files: what is varied, which variants stand side by side, what the papers measured.

mod axes;
mod cells;
mod chosen;
mod expect;
mod only;
mod paper;

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

pub use axes::Skip;
pub use cells::{Cell, Params};
pub use chosen::Chosen;
pub use expect::{Across, Driver, Except, Expect, Runs, Subset, Wanted};
pub use only::Only;
pub use paper::{Clocks, Figures, Paper};

use crate::limit::Clock;

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, as on the command line.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What runs in a cell: see `crate::kinds`.
    pub kind: String,
    /// When the clock of a transfer starts.
    #[serde(default)]
    pub clock: Clock,
    /// The paper's clock, where figures of a paper stand beside ours. Where it is `source`, ours
    /// are measured by it, too.
    #[serde(default)]
    pub paper_clock: Option<Clock>,
    /// What else is to be known of the paper's clock, in words.
    #[serde(default)]
    pub paper_note: String,
    /// The topology.
    #[serde(default = "line")]
    pub topology: String,
    /// What gateways hold, and what comes out at the far end, is looked at while transfers are
    /// under way.
    #[serde(default)]
    pub watches_gateways: bool,
    /// How connections share the first hard link, and its queue, are told by time.
    #[serde(default)]
    pub watches_shares: bool,
    /// When the bytes of the first download arrive is told.
    #[serde(default)]
    pub watches_arrivals: bool,
    /// Settings of all cells.
    #[serde(default)]
    pub settings: toml::Table,
    /// What is varied, outermost first.
    #[serde(default)]
    pub axis: Vec<Axis>,
    /// Combinations that are left out.
    #[serde(default)]
    pub skip: Vec<Skip>,
    /// What stands side by side.
    #[serde(default)]
    pub variant: Vec<Variant>,
    /// Cells of the grid that run once more with other settings: a sample, where another axis would
    /// double everything.
    #[serde(default)]
    pub also: Vec<Also>,
    /// What the papers measured.
    #[serde(default)]
    pub paper: Vec<Paper>,
    /// What must hold.
    #[serde(default)]
    pub expect: Vec<Expect>,
    /// Cells that may be slower than those that they are compared with by means.
    #[serde(default)]
    pub except: Vec<Except>,
    /// Cells that are run under a name.
    #[serde(default)]
    pub subset: Vec<Subset>,
    /// Numbers that the kind takes, by name.
    #[serde(default)]
    pub options: toml::Table,
}

/// A dimension of the grid.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// A setting or a parameter of the kind; of tables any other name.
    pub name: String,
    /// Its values, in order; or tables, each a bundle of settings with a name.
    pub values: Vec<toml::Value>,
}

/// One of the things compared.
#[derive(Clone, Debug, Deserialize)]
pub struct Variant {
    /// `direct`, `farlink`, ...
    pub name: String,
    /// A program that it needs; without it its cells are skipped.
    #[serde(default)]
    pub needs: Option<String>,
    /// Settings of its own.
    #[serde(flatten)]
    pub settings: toml::Table,
}

/// Some cells with other settings.
#[derive(Clone, Debug, Deserialize)]
pub struct Also {
    /// Params and `variant` of the cells; a list holds alternatives.
    pub of: toml::Table,
    /// What is set in them.
    #[serde(flatten)]
    pub settings: toml::Table,
}

fn line() -> String {
    "line".into()
}

macro_rules! builtin {
    ($($name:literal)*) => {
        /// The scenarios that are part of the program, as name and text.
        pub const BUILTIN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../scenarios/", $name, ".toml"))),)*
        ];
    };
}
builtin! {
    "admission" "ahead" "applications" "asymmetric" "behaviour" "beside-ordinary" "classes" "contact-plan" "custody-chain" "custody-clean" "custody-full" "custody-kill" "custody-notices" "custody-pairs" "demo" "demo-custody" "demo-starved" "demo-xcp" "directions" "drain" "fade" "emulator-accuracy" "fast-long" "first-upload" "fragmenting-host" "geo-download" "idle-nat" "jitter" "kill" "leo" "link-schedule" "loss-sweep" "lossy-rate" "lost-opening" "many-outages" "memory-cap" "middleboxes" "mixed-day" "narrow-behind" "never-slower" "never-worse" "notices" "outage" "rate-sweep" "rate-too-low" "route-flap" "router" "rules" "shared-medium" "sizes" "slow-lines" "syn-flood" "thesis-congested"
    "thesis-fairness" "thesis-flow-control" "thesis-parallel" "thesis-single" "thesis-two-sessions" "thesis-web"
    "starved-beside" "starved-narrow" "starved-refused" "starved-shares" "topologies" "tracked" "two-receivers" "udp-alone" "unknown-rate" "varying-rate" "websockets" "whole-link" "whole-link-programs" "wink" "wink-geo" "wrong-rate" "xcp-beside" "xcp-fairness" "xcp-loss" "xcp-pairs" "xcp-ramp" "xcp-router" "xcp-table-1" "xcp-trust"
    "xcp-variable"
}

impl Scenario {
    /// A builtin scenario by name, or one from a file by path.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = BUILTIN.iter().find(|(n, _)| *n == name) {
            return Self::parse(text).with_context(|| format!("builtin scenario {name}"));
        }
        if !Path::new(name).exists() {
            let names: Vec<_> = BUILTIN.iter().map(|(n, _)| *n).collect();
            bail!("no scenario `{name}`: neither a file nor one of {}", names.join(" "));
        }
        let text = std::fs::read_to_string(name).with_context(|| format!("{name} cannot be read"))?;
        Self::parse(&text).with_context(|| name.to_string())
    }

    /// Reads the text of a scenario file.
    pub fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        if scenario.clock == Clock::Source && scenario.kind != "transfer" {
            bail!(
                "clock = \"source\": only the kind `transfer` knows when a source begins, not `{}`; take another clock, or name this one \
                 as paper_clock",
                scenario.kind
            );
        }
        // A file that cannot make its cells is refused as a whole, before anything runs.
        scenario.cells()?;
        Ok(scenario)
    }

    /// When the clocks start, ours and the paper's; `None` for kinds whose seconds are no
    /// transfer's.
    #[must_use]
    pub fn clocks(&self) -> Option<Clocks> {
        let is_timed = crate::simulate::has_kind(&self.kind) || !self.paper.is_empty();
        is_timed.then(|| Clocks { ours: self.clock, paper: self.paper_clock, note: self.paper_note.clone() })
    }

    /// A number of the kind's own options.
    pub fn option(&self, name: &str, default: f64) -> Result<f64> {
        match self.options.get(name) {
            None => Ok(default),
            Some(toml::Value::Integer(n)) => Ok(*n as f64),
            Some(toml::Value::Float(n)) => Ok(*n),
            Some(other) => bail!("options.{name} = {other}: a number expected"),
        }
    }
}

/// A TOML value as JSON.
fn json(value: &toml::Value) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_scenarios_are_good_and_named_as_their_files() {
        for (name, text) in BUILTIN {
            let scenario = Scenario::parse(text).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            assert_eq!(scenario.name, *name);
            assert!(!scenario.cells().unwrap().is_empty(), "{name} has no cell");
        }
    }

    /// What is fast over IPv4 has to be over IPv6.
    #[test]
    fn every_scenario_about_speed_has_cells_over_ipv6() {
        for (name, text) in BUILTIN {
            let scenario = Scenario::parse(text).unwrap();
            if !["transfer", "web", "mixed"].contains(&scenario.kind.as_str()) {
                continue;
            }
            let cells = scenario.cells().unwrap();
            let over_v6: Vec<_> = cells.iter().filter(|c| c.v6()).collect();
            assert!(!over_v6.is_empty(), "{name}");
            for cell in over_v6 {
                let beside = cells.iter().any(|c| {
                    let mut params = cell.params.clone();
                    params.remove("ip");
                    let is_same = c.params == params;
                    // It may be said, where it is an axis.
                    params.insert("ip".into(), 4.into());
                    c.variant == cell.variant && (is_same || c.params == params)
                });
                assert!(beside, "{name}: {} has no cell over IPv4 beside it", cell.variant);
            }
        }
    }

    #[test]
    fn geo_download_has_the_documented_cells() {
        let cells = Scenario::find("geo-download").unwrap().cells().unwrap();
        for variant in ["direct", "farlink-one-sided", "farlink", "haproxy"] {
            for size in [100_000, 1_000_000, 10_000_000] {
                let found = cells.iter().find(|c| c.variant == variant && c.params["size_bytes"] == size);
                let cell = found.unwrap_or_else(|| panic!("{variant} {size}"));
                assert_eq!((cell.settings.rate_bps, cell.settings.rtt_ms), (8_000_000, 500.0));
            }
        }
        let legacy = cells.iter().find(|c| c.params["hosts"] == "legacy").unwrap();
        assert_eq!((legacy.variant.as_str(), legacy.settings.gateways), ("direct", 0));
    }

    #[test]
    fn what_does_not_exist_is_said_with_what_does() {
        let error = Scenario::find("geo-upload").unwrap_err().to_string();
        assert!(error.contains("geo-download"), "{error}");
        let text = "name = 'x'\ntitle = 'x'\nkind = 'transfer'\n[settings]\nrat = '8M'\n[[variant]]\nname='direct'\n";
        assert!(format!("{:#}", Scenario::parse(text).unwrap_err()).contains("rat"));
    }
}
