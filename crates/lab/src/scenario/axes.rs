//! The axes of a scenario: how their values cross, bundles of settings under one name, and what is
//! left out of the crossing.

use anyhow::{Result, bail};
use serde::Deserialize;

use super::{Axis, Cell, Only};
use crate::settings::SETTINGS;

/// The key of a bundle that says how it is called.
pub(super) const NAME: &str = "name";

/// Combinations of the axes that are not run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Params and `variant` of the cells; a list holds alternatives.
    pub of: Only,
    /// Why, in a few words.
    #[serde(default)]
    pub why: String,
}

/// Every combination of values, the first axis slowest.
pub(super) fn combinations(axes: &[Axis]) -> Result<Vec<Vec<(&str, &toml::Value)>>> {
    let mut combinations: Vec<Vec<(&str, &toml::Value)>> = vec![Vec::new()];
    for axis in axes {
        check(axis)?;
        let longer = combinations.iter().flat_map(|head| {
            axis.values.iter().map(|value| {
                let mut longer = head.clone();
                longer.push((axis.name.as_str(), value));
                longer
            })
        });
        combinations = longer.collect();
    }
    Ok(combinations)
}

/// That its values are all bundles or all plain, and that bundles have names, which tell them
/// apart.
fn check(axis: &Axis) -> Result<()> {
    let bundles: Vec<_> = axis.values.iter().filter_map(toml::Value::as_table).collect();
    if bundles.is_empty() {
        return Ok(());
    }
    let of = format!("axis {}", axis.name);
    if bundles.len() < axis.values.len() {
        bail!("{of}: some of its values are tables, and others are not");
    }
    if SETTINGS.iter().any(|s| s.key == axis.name) || ["up", "down"].contains(&axis.name.as_str()) {
        bail!("{of}: `{}` is a setting; an axis of tables has a name of its own", axis.name);
    }
    let mut names: Vec<&str> = Vec::new();
    for bundle in bundles {
        let Some(name) = bundle.get(NAME).and_then(toml::Value::as_str) else {
            bail!("{of}: a table has no `name`: {bundle}");
        };
        if names.contains(&name) {
            bail!("{of}: two of its tables have the name `{name}`");
        }
        names.push(name);
    }
    Ok(())
}

/// Leaves cells out. An error: one that leaves nothing out, or all.
pub(super) fn thin(skips: &[Skip], cells: &mut Vec<Cell>) -> Result<()> {
    for Skip { of, .. } in skips {
        if let Err(error) = of.check(cells) {
            return Err(error.context(format!("[[skip]] of {of}")));
        }
        cells.retain(|cell| !of.matches(&cell.params, &cell.variant));
    }
    if cells.is_empty() && !skips.is_empty() {
        bail!("[[skip]] leaves no cell");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;

    const TEXT: &str = r#"
        name = "t"
        title = "t"
        kind = "transfer"
        [[axis]]
        name = "path"
        values = [
            { name = "geo", rate = "8M", rtt = "500ms" },
            { name = "slow", rate = "9600", rtt = "300ms", up.queue_packets = 50 },
        ]
        [[axis]]
        name = "traffic"
        values = [{ name = "5 kB", size_bytes = 5_000 }, { name = "two", size_bytes = 1_000, flows = 2 }]
        [[variant]]
        name = "direct"
        gateways = 0
        [[variant]]
        name = "farlink"
        rate = "1M"
    "#;

    #[test]
    fn a_bundle_sets_what_it_holds_under_one_name() {
        let cells = Scenario::parse(TEXT).unwrap().cells().unwrap();
        assert_eq!(cells.len(), 8);
        let cell = &cells[7];
        assert_eq!((cell.word("path", ""), cell.word("traffic", "")), ("slow", "two"));
        assert_eq!((cell.settings.rate_bps, cell.settings.rtt_ms), (9_600, 300.0), "over the variant's");
        assert_eq!(cell.settings.up["queue_packets"], "50");
        assert_eq!((cell.number("size_bytes", 0), cell.number("flows", 0)), (1_000, 2));
        assert_eq!(cells[0].settings.up.len(), 0, "it is of its own cells alone");
    }

    #[test]
    fn combinations_are_left_out() {
        let skip = "[[skip]]\nof = { path = 'slow', traffic = 'two' }";
        let cells = Scenario::parse(&format!("{TEXT}\n{skip}")).unwrap().cells().unwrap();
        assert_eq!(cells.len(), 6);
        assert!(cells.iter().all(|c| c.word("path", "") == "geo" || c.word("traffic", "") == "5 kB"));
    }

    #[test]
    fn mistakes_are_said() {
        let replaced = |from: &str, to: &str| TEXT.replace(from, to);
        for (text, reason) in [
            (replaced("{ name = \"geo\", rate", "{ rate"), "axis path: a table has no `name`"),
            (replaced("name = \"slow\"", "name = \"geo\""), "two of its tables have the name `geo`"),
            (replaced("name = \"path\"", "name = \"rate\""), "`rate` is a setting"),
            (replaced("[{ name = \"5 kB\", size_bytes = 5_000 }", "[5"), "axis traffic: some of its values"),
            (replaced("rtt = \"300ms\"", "rrt = \"300ms\""), "rrt"),
            (format!("{TEXT}\n[[skip]]\nof = {{ path = 'leo' }}"), "[[skip]] of path=leo"),
            (format!("{TEXT}\n[[skip]]\nof = {{ pth = 'geo' }}"), "no `pth` in this scenario"),
            (format!("{TEXT}\n[[skip]]\nof = {{ path = ['geo', 'slow'] }}"), "leaves no cell"),
            (format!("{TEXT}\n[[skip]]\nonly = {{ path = 'geo' }}"), "only"),
        ] {
            let error = format!("{:#}", Scenario::parse(&text).unwrap_err());
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}
