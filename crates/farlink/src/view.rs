//! What people read: tables, and quantities with units that fit.

use std::fmt::Write;

use serde_json::Value;

/// A table of text with aligned columns; numbers to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// One with this heading.
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|h| (*h).to_owned()).collect()] }
    }
    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
    /// Whether there is nothing but the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0)
        };
        let numeric: Vec<_> = (0..columns)
            .map(|c| {
                let mut cells = self.rows.iter().skip(1).filter_map(|r| r.get(c)).peekable();
                cells.peek().is_some() && cells.all(|text| is_quantity(text))
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let gap = " ".repeat(width(c) - cell.chars().count());
                if numeric.get(c) == Some(&true) {
                    write!(line, "{gap}{cell}  ")?;
                } else {
                    write!(line, "{cell}{gap}  ")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text in lines of at most so many characters, broken between words.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |l| l.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// A number, a number with its unit, or the sign for an unknown one.
fn is_quantity(text: &str) -> bool {
    let mut words = text.split(' ');
    text == "-" || words.next().is_some_and(|n| n.parse::<f64>().is_ok())
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 || value >= 99.95 { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") }
}

/// `1.5 MB`.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, 1000.0, &["B", "kB", "MB", "GB", "TB"])
}

/// `8.0 Mbit/s`; `unknown` for zero.
pub fn rate(bps: u64) -> String {
    if bps == 0 {
        "unknown".to_owned()
    } else {
        scaled(bps as f64, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
    }
}

/// `532.1 ms`; `-` for zero (unknown).
pub fn microseconds(us: u64) -> String {
    if us == 0 { "-".to_owned() } else { scaled(us as f64, 1000.0, &["us", "ms", "s"]) }
}

/// `1.5 us`.
pub fn nanoseconds(ns: u64) -> String {
    scaled(ns as f64, 1000.0, &["ns", "us", "ms", "s"])
}

/// `3 h 12 min`.
pub fn seconds(s: u64) -> String {
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}

/// `1 connection`, `2 connections`.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A number inside JSON; zero when it is not there.
pub fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// Text inside JSON; empty when it is not there.
pub fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The items of a list inside JSON; none when it is not there.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_get_a_unit_that_fits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1500), "1.5 kB");
        assert_eq!(bytes(999_990), "1.0 MB");
        assert_eq!(bytes(512 << 20), "537 MB");
        assert_eq!(rate(8_000_000), "8.0 Mbit/s");
        assert_eq!(rate(0), "unknown");
        assert_eq!(microseconds(532_100), "532 ms");
        assert_eq!(seconds(59), "59 s");
        assert_eq!(seconds(11_520), "3 h 12 min");
        assert_eq!(count(1, "connection"), "1 connection");
    }

    #[test]
    fn tables_are_aligned() {
        let mut t = Table::new(&["LINK", "SENT"]);
        assert!(t.is_empty());
        t.row(["sat0".to_owned(), "1.2 GB".to_owned()]);
        t.row(["10.0.0.1".to_owned(), "-".to_owned()]);
        assert_eq!(t.to_string(), "LINK        SENT\nsat0      1.2 GB\n10.0.0.1       -\n");
    }

    #[test]
    fn wrapping_keeps_every_word() {
        let text = "one two three four five six";
        let lines = wrap(text, 9);
        assert_eq!(lines.join(" "), text);
        assert!(lines.iter().all(|l| l.len() <= 9));
    }
}
