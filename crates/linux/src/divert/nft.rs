//! The part of nftables' JSON language (libnftables-json(5)) that diversion needs, and running
//! `nft`.

use serde::Serialize;

use crate::error::{Context, Error, Result};
use crate::programs::{self, Output, Program};

/// A whole input: applied as one transaction, or not at all.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Script {
    nftables: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Entry {
    Metainfo { json_schema_version: u32 },
    Add(Object),
    Delete(Object),
    Flush(Object),
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Object {
    Table { family: &'static str, name: String },
    Chain(Chain),
    Counter { family: &'static str, table: String, name: String },
    Rule { family: &'static str, table: String, chain: String, expr: Vec<Statement> },
}

#[derive(Clone, Debug, Serialize)]
struct Chain {
    family: &'static str,
    table: String,
    name: String,
    #[serde(flatten)]
    hook: Option<Hook>,
}

/// Where in the kernel's path a base chain sits.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hook {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) hook: &'static str,
    pub(crate) prio: i32,
    pub(crate) policy: &'static str,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Statement {
    Match { op: &'static str, left: Expr, right: Expr },
    Mangle { key: Expr, value: Expr },
    Counter(String),
    Goto { target: String },
    Return(()),
    Accept(()),
    Notrack(()),
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Expr {
    Number(u32),
    Text(String),
    Operation(Operation),
}

#[derive(Debug, Clone, Serialize)]
pub(crate) enum Operation {
    #[serde(rename = "payload")]
    Field { protocol: &'static str, field: &'static str },
    #[serde(rename = "payload")]
    Raw { base: &'static str, offset: u32, len: u32 },
    #[serde(rename = "exthdr")]
    ExtensionHeader { name: &'static str, field: &'static str },
    #[serde(rename = "meta")]
    Meta { key: &'static str },
    #[serde(rename = "fib")]
    Fib { result: &'static str, flags: Vec<&'static str> },
    #[serde(rename = "set")]
    Set(Vec<Expr>),
    #[serde(rename = "prefix")]
    Prefix { addr: &'static str, len: u8 },
    #[serde(rename = "&")]
    And(Box<[Expr; 2]>),
    #[serde(rename = "|")]
    Or(Box<[Expr; 2]>),
}

const FAMILY: &str = "inet";

/// Builds a [`Script`] for one table.
#[derive(Debug)]
pub(crate) struct Builder {
    table: String,
    entries: Vec<Entry>,
}

impl Builder {
    /// Starts with an empty table of this name, whatever was in it before.
    pub(crate) fn fresh_table(table: &str) -> Self {
        let mut builder = Self::removing(table);
        builder.entries.push(Entry::Add(builder.table_object()));
        builder
    }
    /// Removes the table, whether it exists or not.
    pub(crate) fn removing(table: &str) -> Self {
        let mut builder =
            Self { table: table.to_owned(), entries: vec![Entry::Metainfo { json_schema_version: 1 }] };
        builder.entries.push(Entry::Add(builder.table_object()));
        builder.entries.push(Entry::Delete(builder.table_object()));
        builder
    }
    fn table_object(&self) -> Object {
        Object::Table { family: FAMILY, name: self.table.clone() }
    }
    /// Adds a chain; without a hook it is only jumped to.
    pub(crate) fn chain(&mut self, name: &str, hook: Option<Hook>) {
        let chain = Chain { family: FAMILY, table: self.table.clone(), name: name.to_owned(), hook };
        self.entries.push(Entry::Add(Object::Chain(chain)));
    }
    /// Adds a named counter.
    pub(crate) fn counter(&mut self, name: &str) {
        let (table, name) = (self.table.clone(), name.to_owned());
        self.entries.push(Entry::Add(Object::Counter { family: FAMILY, table, name }));
    }
    /// Appends a rule to a chain.
    pub(crate) fn rule(&mut self, chain: &str, expr: Vec<Statement>) {
        let (table, chain) = (self.table.clone(), chain.to_owned());
        self.entries.push(Entry::Add(Object::Rule { family: FAMILY, table, chain, expr }));
    }
    /// The finished script.
    pub(crate) fn build(self) -> Script {
        Script { nftables: self.entries }
    }
}

pub(crate) fn field(protocol: &'static str, field: &'static str) -> Expr {
    Expr::Operation(Operation::Field { protocol, field })
}
pub(crate) fn raw(offset: u32, len: u32) -> Expr {
    Expr::Operation(Operation::Raw { base: "th", offset, len })
}
pub(crate) fn meta(key: &'static str) -> Expr {
    Expr::Operation(Operation::Meta { key })
}
pub(crate) fn text(t: impl Into<String>) -> Expr {
    Expr::Text(t.into())
}
pub(crate) fn set(all: Vec<Expr>) -> Expr {
    Expr::Operation(Operation::Set(all))
}
pub(crate) fn prefix(addr: &'static str, len: u8) -> Expr {
    Expr::Operation(Operation::Prefix { addr, len })
}
pub(crate) fn and(a: Expr, b: Expr) -> Expr {
    Expr::Operation(Operation::And(Box::new([a, b])))
}
pub(crate) fn or(a: Expr, b: Expr) -> Expr {
    Expr::Operation(Operation::Or(Box::new([a, b])))
}
pub(crate) fn equal(left: Expr, right: Expr) -> Statement {
    Statement::Match { op: "==", left, right }
}

impl Script {
    /// How many rules it adds.
    pub(crate) fn rule_count(&self) -> usize {
        self.nftables.iter().filter(|e| matches!(e, Entry::Add(Object::Rule { .. }))).count()
    }

    /// The same for a table that stays: what it holds makes room for what is to be in it.
    pub(crate) fn replacing(&self, held: Option<&Self>) -> Self {
        let is_table = |e: &&Entry| matches!(e, Entry::Add(Object::Table { .. }));
        let mut nftables = vec![Entry::Metainfo { json_schema_version: 1 }];
        if let Some(held) = held {
            nftables.extend(held.nftables.iter().find(is_table).map(|e| match e {
                Entry::Add(table) => Entry::Flush(table.clone()),
                other => other.clone(),
            }));
            nftables.extend(held.nftables.iter().filter_map(|e| match e {
                Entry::Add(Object::Chain(chain)) => {
                    Some(Entry::Delete(Object::Chain(Chain { hook: None, ..chain.clone() })))
                }
                Entry::Add(counter @ Object::Counter { .. }) => Some(Entry::Delete(counter.clone())),
                _ => None,
            }));
        }
        let stays = |e: &&Entry| matches!(e, Entry::Add(o) if !matches!(o, Object::Table { .. }));
        nftables.extend(self.nftables.iter().filter(stays).cloned());
        Self { nftables }
    }

    /// The input for `nft -j -f -`.
    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::Refused(format!("writing an nftables script: {e}")))
    }

    /// Applies it in the calling thread's network namespace.
    pub(crate) fn apply(&self) -> Result<()> {
        let output = nft(&["-j", "-f", "-"], &self.to_json()?)?;
        if output.is_success {
            return Ok(());
        }
        let said = output.stderr + &output.stdout;
        Err(Error::Tool { command: "nft -j -f -".to_owned(), output: said.trim().to_owned() })
    }
}

fn nft(words: &[&str], input: &str) -> Result<Output> {
    programs::run(Program::Nft, words, input)
        .context(|| "running nft (is the package nftables installed?)".to_owned())
}

/// All rules of this network namespace, but for those of `own_table`. Where that table has an
/// owner, nft 1.0.6 writes half an answer: then each other table is asked for.
pub(crate) fn ruleset(own_table: &str) -> Result<Vec<serde_json::Value>> {
    if let Ok(all) = list(&["ruleset"]) {
        return Ok(all);
    }
    let tables = run(&["list", "tables"])?;
    let mut all = Vec::new();
    for table in tables.lines().filter_map(|line| line.trim().strip_prefix("table ")).take(TABLES_MAX) {
        let words: Vec<&str> = table.split_whitespace().collect();
        if words.get(1) != Some(&own_table) {
            // One that has gone meanwhile has no rules.
            all.extend(list(&[&["table"], &words[..]].concat()).unwrap_or_default());
        }
    }
    Ok(all)
}

/// So many tables are looked at one by one.
const TABLES_MAX: usize = 64;

/// Runs `nft -j list ...` and returns the entries of its answer.
fn list(what: &[&str]) -> Result<Vec<serde_json::Value>> {
    let words = [&["-j", "list"], what].concat();
    let answer: serde_json::Value = serde_json::from_str(&run(&words)?).map_err(|e| Error::Tool {
        command: format!("nft {}", words.join(" ")),
        output: format!("unreadable answer: {e}"),
    })?;
    Ok(answer.get("nftables").and_then(|n| n.as_array()).cloned().unwrap_or_default())
}

/// What `nft` writes.
fn run(words: &[&str]) -> Result<String> {
    let output = nft(words, "")?;
    if output.is_success {
        return Ok(output.stdout);
    }
    Err(Error::Tool { command: format!("nft {}", words.join(" ")), output: output.stderr.trim().to_owned() })
}
