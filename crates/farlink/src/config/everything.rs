//! Everything that is wrong with a configuration, in place of the first mistake only.
//!
//! What is wrong is blanked out, and the rest is read again. Blanks keep every place where it was.
//! What could be wrong only because something else has been blanked is not told: it is found when
//! that has been mended.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Source};
use super::{Quick, Settings, build, parse};

/// So many mistakes are told of one file.
const MISTAKES_MAX: usize = 100;

/// What a reading of a whole file has found.
#[derive(Debug)]
pub struct Verdict {
    /// All that is wrong, in the order of the file.
    pub mistakes: Vec<ConfigError>,
    /// There may be more, which shows when these are mended.
    pub is_partial: bool,
    /// What the file says, if nothing is wrong.
    pub settings: Option<Box<Settings>>,
}

/// Reads all of it.
pub fn judge(source: Source<'_>) -> Verdict {
    let (_, unreadable) = DeTable::parse_recoverable(source.text);
    if !unreadable.is_empty() {
        let mut mistakes: Vec<_> = unreadable.iter().map(|e| source.parse_error(e)).collect();
        mistakes.sort_by_key(|mistake| mistake.place);
        mistakes.truncate(MISTAKES_MAX);
        return Verdict { mistakes, is_partial: true, settings: None };
    }
    let mut reading =
        Reading { source, text: source.text.to_owned(), mistakes: Vec::new(), is_partial: false };
    let settings = reading.read();
    let Reading { mut mistakes, is_partial, .. } = reading;
    mistakes.sort_by_key(|mistake| mistake.place);
    let settings = settings.filter(|_| mistakes.is_empty()).map(Box::new);
    Verdict { mistakes, is_partial, settings }
}

/// A file that is read again and again.
struct Reading<'a> {
    source: Source<'a>,
    /// Its text without what was wrong.
    text: String,
    mistakes: Vec<ConfigError>,
    is_partial: bool,
}

impl Reading<'_> {
    fn read(&mut self) -> Option<Settings> {
        while self.mistakes.len() < MISTAKES_MAX {
            let text = self.text.clone();
            let now = Source { text: &text, ..self.source };
            let (wrong, is_of_values) = match parse(now) {
                Err(wrong) => (wrong, false),
                Ok(file) => match build(&file, now, &Quick::default()) {
                    Ok(settings) => return Some(settings),
                    Err(wrong) => (wrong, true),
                },
            };
            let at = wrong.place.and_then(|place| offset(&text, place));
            let wrong = ConfigError { key: at.and_then(|at| self.source.key_at(at)), ..wrong };
            if self.is_perhaps_a_consequence(&wrong, is_of_values) {
                self.is_partial = true;
            } else {
                self.mistakes.push(wrong);
            }
            if !at.is_some_and(|at| self.blank(at)) {
                // Nothing behind it can be read.
                self.is_partial |= is_of_values;
                return None;
            }
        }
        self.is_partial = true;
        None
    }

    /// Whether it could be there only because of what has been blanked. `is_of_values`: every
    /// value can be read, and it contradicts another one.
    fn is_perhaps_a_consequence(&self, wrong: &ConfigError, is_of_values: bool) -> bool {
        let (table, key) = split_key(wrong.key.as_deref());
        let mut earlier = self.mistakes.iter().map(|m| split_key(m.key.as_deref()));
        // A key that was there, and wrong.
        let missing = wrong.problem.strip_prefix("missing key `").and_then(|rest| rest.split('`').next());
        if missing.is_some() || !is_of_values {
            return missing.is_some_and(|missing| {
                earlier.any(|(t, k)| (t == table || t == key) && k == format!("key `{missing}`"))
            });
        }
        let names_others = key.contains("interfaces") || wrong.place.is_none();
        let has_name = |t: &str| t.starts_with("[[link]]") || t.starts_with("[[interface]]") || t.is_empty();
        earlier.any(|(t, k)| t == table || (names_others && (has_name(t) || has_name(k))))
    }

    /// Takes out the least that holds this place, so that the rest can be read. Whether there was
    /// something.
    fn blank(&mut self, at: usize) -> bool {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let mut ranges = Vec::new();
        around(root.get_ref(), at, self.text.len(), &mut ranges);
        for range in ranges.into_iter().rev() {
            let range = with_comma(&self.text, range);
            let Some(part) = self.text.get(range.clone()) else { continue };
            let blanks: String = part
                .chars()
                .flat_map(|c| std::iter::repeat_n(if c == '\n' { c } else { ' ' }, c.len_utf8()))
                .collect();
            if part == blanks {
                continue;
            }
            let mut trial = self.text.clone();
            trial.replace_range(range, &blanks);
            if DeTable::parse_recoverable(&trial).1.is_empty() {
                self.text = trial;
                return true;
            }
        }
        false
    }
}

/// The table and the key of `[[link]] number 2, key `rate``.
fn split_key(key: Option<&str>) -> (&str, &str) {
    let key = key.unwrap_or_default();
    key.rsplit_once(", ").unwrap_or(("", key))
}

/// What can be blanked so that this place has gone, the largest first: tables, keys with their
/// values, items of lists.
fn around(table: &DeTable<'_>, at: usize, end: usize, ranges: &mut Vec<Range<usize>>) {
    for (key, value) in table.iter() {
        let whole = key.span().start..value.span().end.max(key.span().end);
        match value.get_ref() {
            DeValue::Array(items) => {
                let is_of_tables = items.iter().any(|item| item.get_ref().is_table());
                if !is_of_tables && whole.contains(&at) {
                    ranges.push(whole);
                }
                for item in items.iter() {
                    let own = match item.get_ref() {
                        DeValue::Table(inner) => extent(inner, item.span()),
                        _ => item.span(),
                    };
                    if own.contains(&at) {
                        ranges.push(own);
                        if let DeValue::Table(inner) = item.get_ref() {
                            around(inner, at, end, ranges);
                        }
                    }
                }
            }
            DeValue::Table(inner) => {
                let own = extent(inner, value.span());
                if own.contains(&at) || whole.contains(&at) {
                    ranges.push(own.start.min(whole.start)..own.end.max(whole.end).min(end));
                    around(inner, at, end, ranges);
                }
            }
            _ if whole.contains(&at) => ranges.push(whole),
            _ => {}
        }
    }
}

/// From the header of a table, whose span is only that, to its last value.
fn extent(table: &DeTable<'_>, header: Range<usize>) -> Range<usize> {
    let last = table.iter().map(|(_, value)| match value.get_ref() {
        DeValue::Table(inner) => extent(inner, value.span()).end,
        _ => value.span().end,
    });
    header.start..last.max().unwrap_or(header.end).max(header.end)
}

/// An item of a list goes with its comma.
fn with_comma(text: &str, range: Range<usize>) -> Range<usize> {
    let behind = text.get(range.end..).unwrap_or_default();
    let blanks = behind.len() - behind.trim_start().len();
    match behind.trim_start().starts_with(',') {
        true => range.start..range.end + blanks + 1,
        false => range,
    }
}

/// The byte at a line and column, both from 1.
fn offset(text: &str, (line, column): (usize, usize)) -> Option<usize> {
    let start = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    let rest = text.get(start..)?;
    let characters = rest.char_indices().map(|(at, _)| at).nth(column.checked_sub(1)?);
    Some(start + characters.unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> Verdict {
        judge(Source { file: "f", text })
    }

    fn said(text: &str) -> Vec<String> {
        verdict(text).mistakes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_mistakes_are_told_in_the_order_of_the_file() {
        let text = "pinned = 'always'\ncolour = 1\n\n[[link]]\ninterface = 'sat0'\nrate = '8 Mbaud'\nrtt_ms = 0\n\n\
                    [[link]]\nrate = '1 Mbit/s'\n\n[[rule]]\nname = 'r'\naction = 'drop'\n\
                    ports = [22, '99999', 'x/y', 80]\n\n[limits]\nflows_max = 'many'\n";
        let said = said(text);
        let wanted = [
            "f:1:10: key `pinned`: unknown value `always`",
            "f:2:1: key `colour`: there is no key `colour` here",
            "f:6:8: [[link]] number 1, key `rate`: unknown unit",
            "f:7:10: [[link]] number 1, key `rtt_ms`: 0 is out of range",
            "f:9:1: ",
            "f:14:10: [[rule]] number 1, key `action`: unknown value `drop`",
            "f:15:14: [[rule]] number 1, key `ports`: `99999` is not a port",
            "f:15:23: [[rule]] number 1, key `ports`: no TCP service is called `x/y`",
            "f:18:13: [limits], key `flows_max`: ",
        ];
        assert_eq!(said.len(), wanted.len(), "{said:#?}");
        for (said, wanted) in said.iter().zip(wanted) {
            assert!(said.starts_with(wanted), "{said}\n  wanted {wanted}");
        }
        assert!(said[4].contains("missing key `interface`"), "{}", said[4]);
    }

    #[test]
    fn contradictions_of_different_tables_are_all_told() {
        let text = "[[link]]\ninterface='a'\ncc='fixed-rate'\n[[rule]]\nname='default'\naction='pass'\n\
                    [timers]\nrto_min='2 s'\nrto_max='1 s'\n[divert]\ninstance='a-b'\n";
        let said = said(text);
        assert_eq!(said.len(), 4, "{said:#?}");
        assert!(verdict(text).is_partial, "a rule without a name is read no further");
        assert!(!verdict("[timers]\nrto_min='2 s'\nrto_max='1 s'\n").is_partial);
    }

    #[test]
    fn what_follows_from_a_mistake_is_not_told_as_another() {
        for text in [
            // Without its rate the controller has nothing to go by.
            "[[link]]\ninterface='a'\ncc='fixed-rate'\nrate='fast'\n",
            // Without its name the rule has nothing to name.
            "[[interface]]\nname=5\n[[rule]]\nname='r'\naction='pass'\ninterfaces=['lan7']\n",
            "[[rule]]\nname='r'\naction=5\n",
            "admin = { socket = 5, metrics_address = '127.0.0.1:9' }\n",
        ] {
            let verdict = verdict(text);
            assert_eq!(verdict.mistakes.len(), 1, "{text}: {:#?}", verdict.mistakes);
            assert!(verdict.settings.is_none());
        }
        assert!(verdict("[[link]]\ninterface='a'\ncc='fixed-rate'\nrate='fast'\n").is_partial);
    }

    #[test]
    fn what_cannot_be_read_is_told_line_by_line() {
        let said = said("a = \n[limits\nb = 'x\n");
        assert!(said.len() >= 2 && said[0].starts_with("f:1:"), "{said:#?}");
    }

    #[test]
    fn a_good_file_has_settings_and_no_text_makes_it_panic() {
        let verdict = verdict("[[link]]\ninterface='sat0'\n");
        assert!(verdict.mistakes.is_empty() && verdict.settings.is_some());
        let text = include_str!("../../../../packaging/farlink.toml").replace("\n#", "\n");
        for at in (0..text.len()).step_by(7).filter(|at| text.is_char_boundary(*at)) {
            let mut broken = text.clone();
            broken.insert(at, '9');
            assert!(judge(Source { file: "f", text: &broken }).mistakes.len() <= MISTAKES_MAX);
        }
    }
}
