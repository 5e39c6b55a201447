//! Which cells are meant: `--only k=v,...` on the command line, `of = { k = v }` in a scenario
//! file.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;

use super::cells::{plain, quantity};
use super::{Cell, Params};

/// Conditions on params and `variant`. Values of the same name are alternatives, different names
/// must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct Only {
    conditions: BTreeMap<String, Vec<String>>,
}

impl Only {
    /// Reads `k=v,k=v`.
    pub fn parse(text: &str) -> Result<Self> {
        let mut only = Self::default();
        for pair in text.split(',').filter(|p| !p.trim().is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| anyhow!("--only {pair}: name=value expected"))?;
            only.add(key.trim(), value.trim());
        }
        Ok(only)
    }

    /// Adds a condition.
    pub fn add(&mut self, key: &str, value: &str) {
        self.conditions.entry(key.into()).or_default().push(value.into());
    }

    /// The params that it names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.conditions.keys().map(String::as_str).filter(|name| *name != "variant")
    }

    /// Whether a cell fulfils it.
    #[must_use]
    pub fn matches(&self, params: &Params, variant: &str) -> bool {
        self.conditions.iter().all(|(key, values)| {
            values.iter().any(|wanted| match key.as_str() {
                "variant" => wanted == variant,
                _ => params.get(key).is_some_and(|is| same(key, is, wanted)),
            })
        })
    }

    /// The same, whatever the variant.
    #[must_use]
    pub fn matches_params(&self, params: &Params) -> bool {
        self.names().all(|name| {
            let wanted = self.conditions.get(name).into_iter().flatten();
            wanted.into_iter().any(|wanted| params.get(name).is_some_and(|is| same(name, is, wanted)))
        })
    }

    /// That every name is known, that cells fulfil it, and that each value is that of one of them.
    pub fn check(&self, cells: &[Cell]) -> Result<()> {
        self.check_names(cells)?;
        let matching: Vec<_> = cells.iter().filter(|c| self.matches(&c.params, &c.variant)).collect();
        if matching.is_empty() {
            bail!("no cell of this scenario has {self}");
        }
        for (key, values) in &self.conditions {
            for value in values {
                let mut one = Self::default();
                one.add(key, value);
                if !matching.iter().any(|c| one.matches(&c.params, &c.variant)) {
                    bail!("no cell of this scenario that has {self} has {key}={value}");
                }
            }
        }
        Ok(())
    }

    fn check_names(&self, cells: &[Cell]) -> Result<()> {
        let names: BTreeSet<&String> = cells.iter().flat_map(|c| c.params.keys()).collect();
        for key in self.conditions.keys() {
            if key != "variant" && !names.contains(key) {
                let names: Vec<_> = names.into_iter().map(String::as_str).collect();
                bail!("no `{key}` in this scenario; there are variant {}", names.join(" "));
            }
        }
        Ok(())
    }

    /// The cells that fulfil it. No cell is an error, which tells a misspelt name from a value that
    /// does not occur.
    pub fn select(&self, cells: Vec<Cell>) -> Result<Vec<Cell>> {
        self.check_names(&cells).context("--only")?;
        let selected: Vec<_> = cells.into_iter().filter(|c| self.matches(&c.params, &c.variant)).collect();
        if selected.is_empty() {
            bail!("--only leaves no cell of this scenario");
        }
        Ok(selected)
    }
}

/// From a table of a scenario file, whose values may be lists.
impl TryFrom<toml::Table> for Only {
    type Error = anyhow::Error;

    fn try_from(table: toml::Table) -> Result<Self> {
        let mut only = Self::default();
        for (key, value) in &table {
            match value {
                toml::Value::Array(values) if values.is_empty() => bail!("{key} = []: a value is missing"),
                toml::Value::Array(values) => values.iter().for_each(|v| only.add(key, &plain(v))),
                value => only.add(key, &plain(value)),
            }
        }
        Ok(only)
    }
}

/// As it was given: `k=v,k=v`, names in alphabetical order.
impl std::fmt::Display for Only {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs = self.conditions.iter().flat_map(|(key, values)| values.iter().map(move |v| (key, v)));
        for (n, (key, value)) in pairs.enumerate() {
            write!(f, "{}{key}={value}", if n > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Numbers are equal by value (`1e6` is 1000000, and `1M` where a rate is meant), all else by its
/// text.
fn same(key: &str, is: &Value, wanted: &str) -> bool {
    let number = || wanted.parse::<f64>().ok().or_else(|| quantity(key, wanted)?.ok());
    match is {
        Value::Number(n) => n.as_f64().is_some_and(|n| number() == Some(n)),
        Value::String(text) => text == wanted,
        Value::Bool(b) => b.to_string() == wanted,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_join_and_alternatives_widen() {
        let params: Params =
            [("rate_bps".into(), json!(8_000_000)), ("host_cc".into(), json!("bbr"))].into_iter().collect();
        let yes = |text: &str| Only::parse(text).unwrap().matches(&params, "farlink");
        assert!(yes(""));
        assert!(yes("rate_bps=8000000,variant=farlink"));
        for rate in ["8e6", "8M", "8mbit", "8 Mbit/s"] {
            assert!(yes(&format!("rate_bps={rate}")), "{rate}");
        }
        assert!(!yes("rate_bps=8k"));
        assert!(yes("variant=direct,variant=farlink"));
        assert!(!yes("rate_bps=8000001"));
        assert!(!yes("rate_bps=8000000,variant=direct"));
        assert!(!yes("size_bytes=1"));
        assert!(Only::parse("variant").is_err());
    }
}
