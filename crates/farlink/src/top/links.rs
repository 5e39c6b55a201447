//! How links look: a line each, and below it both rates and what it carries by kind, where there is
//! room.

use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::draw::{fit, percent, speed, table_head};
use super::kinds::{Part, parts};
use super::model::Link;
use crate::view::{bytes, rate};

/// From here on there is room for all that is told of a link.
const WIDTH_WIDE: usize = 130;
/// Lines of the screen's heading.
const HEADING: usize = 2;
/// What takes a line besides: the links' headings, an empty line, and the keys.
const AROUND: usize = 3;

/// A column: heading, width, whether it holds words, the screen that it takes, what stands in it of
/// a link, and what of a part below it.
type Column = (&'static str, usize, bool, usize, fn(&Link) -> String, fn(&Part) -> String);

/// Both rates of a link stand here.
const RATE: &str = "RATE";
/// The name of a part has the room of the columns before this one.
const NOW: &str = "NOW";

const COLUMNS: [Column; 10] = [
    ("LINK", 10, true, 0, |l| l.name.clone(), nothing),
    ("INTERFACE", 12, true, WIDTH_WIDE, |l| l.interface.clone(), nothing),
    ("STATE", 7, true, 0, |l| l.state.clone(), nothing),
    (RATE, 11, false, 0, |l| rate(l.rate_bps), nothing),
    (NOW, 11, false, 0, |l| speed(l.sent_bps), |p| speed(p.sent_bps)),
    ("USED", 6, false, 0, |l| percent(l.used()), |p| percent(p.share)),
    ("WAITING", 8, false, 60, |l| bytes(l.waiting_bytes), |p| p.figures.mean_wait.clone()),
    ("MOST", 8, false, WIDTH_WIDE, |l| bytes(l.waiting_max_bytes), |p| p.figures.longest_wait.clone()),
    ("DROPPED", 8, false, 75, |l| l.dropped.to_string(), |p| p.figures.dropped.clone()),
    ("FLOWS", 6, false, 66, |l| l.flows.to_string(), nothing),
];

fn nothing(_: &Part) -> String {
    String::new()
}

/// The links' part of the screen.
#[derive(Default)]
pub struct LinkLines {
    /// With the headings; none without links.
    pub lines: Vec<Line<'static>>,
    /// The kinds of some link have no room.
    pub lacks_room: bool,
}

/// Lines that may say more of links.
struct Room(usize);

impl Room {
    /// Connections keep half of what is below the screen's heading.
    fn of(height: usize, links: usize) -> Self {
        let for_flows = height.saturating_sub(HEADING) / 2;
        Self(height.saturating_sub(HEADING + AROUND + links + for_flows))
    }

    /// Takes so many lines, or none where there are fewer.
    fn take(&mut self, lines: usize) -> bool {
        let left = self.0.checked_sub(lines);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// As many links as a third of the screen holds. Below one stand all of its kinds, or none.
pub fn link_lines(links: &[Link], screen: Rect, hides_kinds: bool) -> LinkLines {
    let (width, height) = (usize::from(screen.width), usize::from(screen.height));
    let shown = links.get(..height / 3).unwrap_or(links);
    if shown.is_empty() {
        return LinkLines::default();
    }
    let (columns, has_both_rates) = columns(shown, width);
    let mut room = Room::of(height, shown.len());
    let wants_declared = |link: &Link| !has_both_rates && link.declared_bps > 0;
    let declared: Vec<bool> = shown.iter().map(|link| wants_declared(link) && room.take(1)).collect();
    let headings: String = columns.iter().map(|c| cell(c.0, c.1, c.2)).collect();
    let mut lines = vec![table_head(&headings, width)];
    let mut lacks_room = false;
    for (link, has_declared) in shown.iter().zip(declared) {
        lines.push(link_line(link, &columns));
        lines.extend(has_declared.then(|| declared_line(link, &columns)));
        let parts = if hides_kinds { Vec::new() } else { parts(link) };
        if room.take(parts.len()) {
            lines.extend(parts.iter().map(|part| part_line(part, &columns)));
        } else {
            lacks_room = true;
        }
    }
    LinkLines { lines, lacks_room }
}

/// As many columns as have room for all that stands in them, and whether both rates of every link
/// have room beside each other.
fn columns(links: &[Link], width: usize) -> (Vec<Column>, bool) {
    let mut columns: Vec<Column> = COLUMNS.into_iter().filter(|c| c.3 <= width).collect();
    // Behind the last column stands no space.
    let spare = (width + 1).saturating_sub(taken(&columns));
    let longest = links.iter().map(|l| l.rate().chars().count()).max().unwrap_or(0);
    let mut has_both_rates = false;
    for column in columns.iter_mut().filter(|c| c.0 == RATE && longest <= c.1 + spare) {
        column.1 = longest.max(column.1);
        column.4 = Link::rate;
        has_both_rates = true;
    }
    (columns, has_both_rates)
}

/// What columns take, with the space behind each.
fn taken(columns: &[Column]) -> usize {
    columns.iter().map(|c| c.1 + 1).sum()
}

/// What stands in a column, and the space behind it.
fn cell(text: &str, width: usize, is_words: bool) -> String {
    if is_words { format!("{:width$} ", fit(text, width)) } else { format!("{text:>width$} ") }
}

fn link_line(link: &Link, columns: &[Column]) -> Line<'static> {
    let span = |&(heading, width, is_words, _, of, _): &Column| {
        let is_red = heading == "STATE" && link.carries_nothing;
        let style = if is_red { Style::new().fg(Color::Red) } else { Style::new() };
        Span::styled(cell(&of(link), width, is_words), style)
    };
    Line::from(columns.iter().map(span).collect::<Vec<_>>())
}

/// What the columns before NOW take together, and the others.
fn split_at_now(columns: &[Column]) -> (usize, &[Column]) {
    let at = columns.iter().position(|c| c.0 == NOW).unwrap_or(columns.len());
    let (before, behind) = columns.split_at(at);
    (taken(before).saturating_sub(1), behind)
}

/// The rate that is declared, below the one that the link is found to carry.
fn declared_line(link: &Link, columns: &[Column]) -> Line<'static> {
    let (width, _) = split_at_now(columns);
    Line::from(cell(&format!("declared {}", rate(link.declared_bps)), width, false))
}

fn part_line(part: &Part, columns: &[Column]) -> Line<'static> {
    let (width, figures) = split_at_now(columns);
    let mut text = cell(&format!("  {}", part.name), width, true);
    text.extend(figures.iter().map(|c| cell(&(c.5)(part), c.1, c.2)));
    Line::from(text)
}
