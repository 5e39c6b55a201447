//! What is wrong with a configuration: one message with file, line, column, key, and what is
//! allowed.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A configuration that cannot be used. Nothing has been started when it is returned.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it stands: a file name, or the command line.
    pub file: String,
    /// Line and column, counted from 1, where the place is known.
    pub place: Option<(usize, usize)>,
    /// The key, with its table, where it is known.
    pub key: Option<String>,
    /// What is wrong, then `; allowed: ` and what is allowed.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// A source of configuration, for naming places in it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Its name.
    pub file: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a place of this source.
    pub fn error(&self, span: Option<Range<usize>>, problem: impl Into<String>) -> ConfigError {
        let at = span.map(|s| s.start.min(self.text.len()));
        ConfigError {
            file: self.file.to_owned(),
            place: at.map(|at| line_and_column(self.text, at)),
            key: at.and_then(|at| key_at(self.text, at)),
            problem: problem.into(),
        }
    }

    /// The key whose name or value stands at a byte of the text, with its tables.
    pub fn key_at(&self, at: usize) -> Option<String> {
        key_at(self.text, at)
    }

    /// From what the parser says.
    pub fn parse_error(&self, error: &toml::de::Error) -> ConfigError {
        self.error(error.span(), in_plain_words(error.message()))
    }
}

/// The parser's phrases, in the one shape that all messages have.
fn in_plain_words(message: &str) -> String {
    let message = message.trim();
    match message {
        "invalid type: map, expected a sequence" => {
            return "one pair of brackets stands for a single table, and there may be several of these; allowed: two pairs, as \
                    in `[[link]]`"
                .into();
        }
        "invalid socket address syntax" => {
            return "it is no address with a port; allowed: such as \"127.0.0.1:9464\" or \"[::1]:9464\""
                .into();
        }
        _ => {}
    }
    let message = match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((key, rest)) => return unknown_key(key, rest),
        None => message.replacen("missing field", "missing key", 1).replacen(
            "unknown variant",
            "unknown value",
            1,
        ),
    };
    with_allowed(message)
}

/// What the parser expects is what is allowed.
fn with_allowed(message: String) -> String {
    ["expected one of ", "expected "]
        .iter()
        .find_map(|word| message.split_once(&format!(", {word}")))
        .map(|(wrong, allowed)| format!("{wrong}; allowed: {allowed}"))
        .unwrap_or(message)
}

/// Names that are as alike are taken for the one that was meant (Jaro and Winkler, 1 is the same).
const ALIKE: f64 = 0.8;
/// So many of them are told at most.
const NEAREST_MAX: usize = 3;

/// A key that there is not: the nearest of those that there are, or all where none is near. `rest`:
/// the names that the parser expects, in quotes.
fn unknown_key(key: &str, rest: &str) -> String {
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let typed = key.to_lowercase();
    let is_alike = |name: &&str| {
        let is_part = key.len() > 2 && (name.contains(key) || key.contains(*name));
        is_part || strsim::jaro_winkler(&typed, name) >= ALIKE
    };
    let mut near: Vec<_> = known.iter().copied().filter(is_alike).collect();
    near.sort_by_key(|name| strsim::damerau_levenshtein(&typed, name));
    near.truncate(NEAREST_MAX);
    let wrong = format!("there is no key `{key}` here");
    let quoted: Vec<_> = near.iter().map(|name| format!("`{name}`")).collect();
    match known.len() {
        all if near.is_empty() || all <= NEAREST_MAX => with_allowed(format!("{wrong}{rest}")),
        all => {
            format!("{wrong}; allowed: {}, the nearest of {all} (docs/configuration.md)", quoted.join(" or "))
        }
    }
}

fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    (line, column)
}

/// The key whose name or value stands at a byte of the text, with its tables: `[[link]] number 2,
/// key `rate``.
fn key_at(text: &str, at: usize) -> Option<String> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut path = Vec::new();
    descend(root.get_ref(), at, &mut path);
    let (last, tables) = path.split_last()?;
    let tables: Vec<_> = tables.iter().map(|t| format!("{t}, ")).collect();
    Some(format!("{}{last}", tables.concat()))
}

fn descend(table: &DeTable<'_>, at: usize, path: &mut Vec<String>) {
    let inside = |span: Range<usize>| span.start <= at && at < span.end;
    for (key, value) in table.iter() {
        let name = key.get_ref();
        match value.get_ref() {
            DeValue::Table(inner) if key_or_child(key, value, at) => {
                path.push(format!("[{name}]"));
                return descend(inner, at, path);
            }
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                for (i, item) in items.iter().enumerate() {
                    if let DeValue::Table(inner) = item.get_ref()
                        && (inside(item.span()) || holds(inner, at))
                    {
                        path.push(format!("[[{name}]] number {}", i + 1));
                        return descend(inner, at, path);
                    }
                }
            }
            _ if inside(key.span()) || inside(value.span()) => return path.push(format!("key `{name}`")),
            _ => {}
        }
    }
}

fn key_or_child(key: &Spanned<toml::de::DeString<'_>>, value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    let inside = |span: Range<usize>| span.start <= at && at < span.end;
    inside(key.span()) || inside(value.span()) || value.get_ref().as_table().is_some_and(|t| holds(t, at))
}

/// Whether the byte belongs to a key or value of this table (a table's own span is only its
/// header).
fn holds(table: &DeTable<'_>, at: usize) -> bool {
    table.iter().any(|(key, value)| {
        let (k, v) = (key.span(), value.span());
        (k.start <= at && at < k.end)
            || (v.start <= at && at < v.end)
            || value.get_ref().as_table().is_some_and(|inner| holds(inner, at))
    })
}
