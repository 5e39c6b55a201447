//! How it looks: one screen of links and flows.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::model::{Flow, Link, Model, Sort};
use crate::view::{bytes, microseconds, rate, seconds};

/// Below this there is no room for a table.
const WIDTH_MIN: u16 = 50;
const HEIGHT_MIN: u16 = 8;
/// From here on a connection with its reason has room in one line.
const WIDTH_WIDE: u16 = 130;

/// What the keys have changed.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub sort: Sort,
    /// Text that shown flows contain.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The first flow shown.
    pub first: usize,
    /// The screen stands still.
    pub paused: bool,
}

/// A rate that is known to be zero.
pub fn speed(bps: f64) -> String {
    if bps < 0.5 { "0 bit/s".into() } else { rate(bps.round() as u64) }
}

/// Draws it. `trouble` says why there is nothing new.
pub fn draw(frame: &mut Frame<'_>, model: Option<&Model>, choice: &Choice, trouble: Option<&str>) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text =
            format!("{} x {}: at least {WIDTH_MIN} x {HEIGHT_MIN} wanted; q quits", area.width, area.height);
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let links = model.map_or(0, |m| m.links.len()).min(usize::from(area.height) / 3);
    let links_height = if links == 0 { 0 } else { u16::try_from(links).unwrap_or(0) + 2 };
    let [head, link_area, flow_area, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(links_height),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(heading(model, trouble)), head);
    if let Some(model) = model {
        if links > 0 {
            frame.render_widget(link_table(&model.links, area.width), link_area);
        }
        flow_table(frame, flow_area, model, choice);
    }
    frame.render_widget(Paragraph::new(keys(choice)), foot);
}

fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

fn heading(model: Option<&Model>, trouble: Option<&str>) -> Vec<Line<'static>> {
    let mut first = vec![bold("farlink")];
    let mut second = Vec::new();
    if let Some(m) = model {
        first.push(Span::raw(format!(
            " {}, up {}: {} split, {} dormant, {} half-open{}",
            m.version,
            seconds(m.uptime_seconds),
            m.split,
            m.dormant,
            m.half_open,
            if m.draining { ", DRAINING" } else { "" }
        )));
        second.push(Span::raw(format!(
            "custody {}, pool {} of {}, sent again {}",
            bytes(m.custody_bytes),
            bytes(m.pool_bytes),
            bytes(m.pool_limit_bytes),
            m.repeated.map_or("-".into(), |r| format!("{:.2} %", 100.0 * r))
        )));
    }
    if let Some(trouble) = trouble {
        second = vec![Span::styled(trouble.to_string(), Style::new().fg(Color::Red))];
    }
    vec![Line::from(first), Line::from(second)]
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// A column of the links' table: heading, width, whether it holds words, the screen that it takes,
/// and what stands in it.
type LinkColumn = (&'static str, u16, bool, u16, fn(&Link) -> Cell<'static>);

const LINK_COLUMNS: [LinkColumn; 10] = [
    ("LINK", 10, true, 0, |l| Cell::from(l.name.clone())),
    ("INTERFACE", 12, true, WIDTH_WIDE, |l| Cell::from(l.interface.clone())),
    ("STATE", 5, true, 0, |l| {
        if l.up { Cell::from("up") } else { Cell::from("down").style(Style::new().fg(Color::Red)) }
    }),
    ("RATE", 11, false, 0, |l| right(rate(l.rate_bps))),
    ("NOW", 11, false, 0, |l| right(speed(l.sent_bps))),
    ("USED", 6, false, 0, |l| right(l.used().map_or("-".into(), |u| format!("{:.0} %", 100.0 * u)))),
    ("WAITING", 8, false, 60, |l| right(bytes(l.waiting_bytes))),
    ("MOST", 8, false, WIDTH_WIDE, |l| right(bytes(l.waiting_max_bytes))),
    ("DROPPED", 8, false, 75, |l| right(l.dropped.to_string())),
    ("FLOWS", 6, false, 66, |l| right(l.flows.to_string())),
];

/// As many columns as have room for all that stands in them.
fn link_table(links: &[Link], width: u16) -> Table<'static> {
    let columns: Vec<&LinkColumn> = LINK_COLUMNS.iter().filter(|c| c.3 <= width).collect();
    let rows = links.iter().map(|l| Row::new(columns.iter().map(|c| (c.4)(l)).collect::<Vec<_>>()));
    let widths: Vec<_> = columns.iter().map(|c| Constraint::Length(c.1)).collect();
    Table::new(rows, widths).header(head(columns.iter().map(|c| (c.0, c.2))))
}

/// The first line of a table: its headings, and whether words stand below them or figures.
fn head(columns: impl Iterator<Item = (&'static str, bool)>) -> Row<'static> {
    let cells = columns.map(|(name, is_words)| {
        let line = Line::from(name);
        Cell::from(if is_words { line } else { line.right_aligned() })
    });
    Row::new(cells.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// A connection in one line on a wide screen; on a narrow one its reason stands below it.
fn flow_table(frame: &mut Frame<'_>, area: Rect, model: &Model, choice: &Choice) {
    let first = choice.first.min(model.flows.len().saturating_sub(1));
    if area.width < WIDTH_WIDE {
        return frame.render_widget(Paragraph::new(flow_lines(&model.flows, first, area)), area);
    }
    let names = ["CLIENT", "SERVER", "AGE", "UP", "DOWN", "CUSTODY", "CWND", "RTT", "LIMITED BY"];
    let widths = [22, 22, 4, 11, 11, 8, 8, 7].map(Constraint::Length);
    let rows = model.flows.iter().map(|f| {
        Row::new(vec![
            Cell::from(fit(&f.client, 22)),
            Cell::from(fit(&f.server, 22)),
            right(age(f.age_seconds)),
            right(speed(f.up_bps)),
            right(speed(f.down_bps)),
            right(bytes(f.custody_bytes)),
            right(bytes(f.cwnd_bytes)),
            right(microseconds(f.srtt_us)),
            Cell::from(reason(f, "")),
        ])
    });
    // The last column is words again.
    let heads = names.into_iter().enumerate().map(|(n, name)| (name, n < 2 || n + 1 == names.len()));
    let table = Table::new(rows, widths.into_iter().chain([Constraint::Min(11)])).header(head(heads));
    let mut state = TableState::default().with_offset(first);
    frame.render_stateful_widget(table, area, &mut state);
}

/// A figure of a connection: its heading, its width, and what it says.
type Figure = (&'static str, usize, fn(&Flow) -> String);

/// Two lines for each connection, from the one at `first` on.
fn flow_lines(flows: &[Flow], first: usize, area: Rect) -> Vec<Line<'static>> {
    let numbers: &[Figure] = if area.width < 70 {
        &[("RATE", 11, |f| speed(f.rate_bps()))]
    } else {
        &[
            ("UP", 11, |f| speed(f.up_bps)),
            ("DOWN", 11, |f| speed(f.down_bps)),
            ("CUSTODY", 8, |f| bytes(f.custody_bytes)),
        ]
    };
    let taken: usize = numbers.iter().map(|(_, width, _)| width + 1).sum();
    let address = (usize::from(area.width).saturating_sub(taken + 1) / 2).min(45);
    let line = |client: &str, server: &str, cells: Vec<String>| {
        let mut text = format!("{:address$} {:address$}", fit(client, address), fit(server, address));
        for (cell, (_, width, _)) in cells.iter().zip(numbers) {
            text += &format!(" {cell:>width$}");
        }
        text
    };
    let names = numbers.iter().map(|(name, ..)| (*name).to_string()).collect();
    let head = line("CLIENT", "SERVER", names);
    let mut lines = vec![Line::styled(head, Style::new().add_modifier(Modifier::REVERSED))];
    for f in flows.iter().skip(first).take(usize::from(area.height)) {
        lines.push(Line::from(line(&f.client, &f.server, numbers.iter().map(|(.., of)| of(f)).collect())));
        lines.push(reason(f, "    "));
    }
    lines
}

/// Text of at most `width` characters: both ends of an address say more than its middle.
fn fit(text: &str, width: usize) -> String {
    let all = text.chars().count();
    if all <= width {
        return text.to_string();
    }
    let tail = (width / 2).min(width.saturating_sub(2));
    let head: String = text.chars().take(width.saturating_sub(tail + 2)).collect();
    let end: String = text.chars().skip(all - tail).collect();
    format!("{head}..{end}")
}

/// What holds a connection, and why it is not faster.
fn reason(f: &Flow, indent: &str) -> Line<'static> {
    let colour = match f.limited_by.as_str() {
        "loss" => Color::Red,
        "receiver" | "gateway" => Color::Yellow,
        "link" => Color::Green,
        _ => Color::Reset,
    };
    Line::from(vec![
        Span::raw(indent.to_string()),
        Span::styled(f.limited_by.clone(), Style::new().fg(colour)),
        Span::raw(format!(": {}", f.why)),
    ])
}

/// `59s`, `12m`, `3h`, `2d`.
pub fn age(s: u64) -> String {
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m", s / 60),
        3600..86400 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86400),
    }
}

fn keys(choice: &Choice) -> Line<'static> {
    if choice.typing {
        return Line::from(vec![
            bold("show only: "),
            Span::raw(format!("{}_", choice.filter)),
            Span::raw("  Enter done, Esc all"),
        ]);
    }
    let filter = if choice.filter.is_empty() { "all".to_string() } else { format!("`{}`", choice.filter) };
    Line::from(vec![
        bold("q"),
        Span::raw(" quit  "),
        bold("s"),
        Span::raw(format!(" sort: {}  ", choice.sort.name())),
        bold("/"),
        Span::raw(format!(" filter: {filter}  ")),
        bold("space"),
        Span::raw(if choice.paused { " PAUSED  " } else { " pause  " }),
        bold("up down"),
        Span::raw(" scroll"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(
        width: u16,
        height: u16,
        model: Option<&Model>,
        choice: &Choice,
        trouble: Option<&str>,
    ) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|f| draw(f, model, choice, trouble)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_string()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_string() + "\n").collect()
    }

    fn model(flows: usize) -> Model {
        let flow = |n: usize| Flow {
            client: format!("10.64.1.2:{}", 40_000 + n),
            server: "10.64.3.2:443".into(),
            age_seconds: 61,
            down_bps: 7.9e6,
            cwnd_bytes: 600_000,
            srtt_us: 512_000,
            custody_bytes: 250_000,
            limited_by: "link".into(),
            why: "has all of geo: 8.0 Mbit/s".into(),
            ..Flow::default()
        };
        let link = Link {
            name: "geo".into(),
            interface: "sat0".into(),
            up: true,
            rate_bps: 8_000_000,
            sent_bps: 7.6e6,
            ..Link::default()
        };
        Model {
            version: "0.1.0".into(),
            split: flows as u64,
            links: vec![link],
            flows: (0..flows).map(flow).collect(),
            ..Model::default()
        }
    }

    #[test]
    fn links_and_flows_stand_on_a_wide_screen_with_all_they_have() {
        let text = screen(160, 14, Some(&model(3)), &Choice::default(), None);
        for part in [
            "farlink 0.1.0",
            "3 split",
            "LINK",
            "geo",
            "sat0",
            "95 %",
            "7.6 Mbit/s",
            "CLIENT",
            "10.64.1.2:40000",
            "10.64.3.2:443",
            "1m",
            "7.9 Mbit/s",
            "600 kB",
            "512 ms",
            "250 kB",
            "link: has all of geo: 8.0 Mbit/s",
            "sort: rate",
            "q quit",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn a_narrow_screen_leaves_out_and_a_tiny_one_says_so() {
        let text = screen(80, 12, Some(&model(1)), &Choice::default(), None);
        assert!(text.contains("10.64.1.2:40000") && !text.contains("CWND"), "{text}");
        assert!(screen(30, 5, Some(&model(1)), &Choice::default(), None).contains("30 x 5: at least"));
        let flow_and_reason = "10.64.1.2:40000         10.64.3.2:443               0 bit/s  7.9 Mbit/s   250 kB\n    link: has all of geo: 8.0 Mbit/s\n";
        assert!(text.contains(flow_and_reason), "{text}");
        assert!(text.contains("8.0 Mbit/s  7.6 Mbit/s   95 %"), "{text}");
        let text = screen(50, 10, Some(&model(1)), &Choice::default(), None);
        for part in [
            "8.0 Mbit/s  7.6 Mbit/s   95 %",
            "10.64.1.2:40000",
            ":443",
            " 7.9 Mbit/s\n",
            "has all of geo: 8.0",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        for (width, height) in [(1, 1), (50, 8), (51, 9), (300, 100)] {
            screen(width, height, Some(&model(200)), &Choice::default(), None);
        }
    }

    #[test]
    fn what_is_too_long_keeps_both_ends() {
        assert_eq!(fit("10.64.1.2:40000", 22), "10.64.1.2:40000");
        assert_eq!(fit("[2001:db8:1:2:3:4:5:6]:40000", 22), "[2001:db8..:5:6]:40000");
        for width in 0..6 {
            assert!(fit("[2001:db8::1]:1", width).chars().count() <= width.max(2));
        }
    }

    #[test]
    fn many_flows_scroll_and_the_end_is_an_end() {
        let choice = Choice { first: 40, ..Choice::default() };
        for width in [160, 120, 60] {
            let text = screen(width, 12, Some(&model(100)), &choice, None);
            assert!(text.contains("40040") && !text.contains("40039"), "{text}");
        }
        let text = screen(160, 12, Some(&model(100)), &choice, None);
        assert!(text.contains(":40040") && !text.contains(":40039"), "{text}");
        let beyond = Choice { first: 9_999, ..Choice::default() };
        assert!(screen(120, 12, Some(&model(100)), &beyond, None).contains(":40099"));
    }

    #[test]
    fn a_gateway_that_has_gone_is_said() {
        let text = screen(100, 10, None, &Choice::default(), Some("no gateway answers"));
        assert!(text.contains("no gateway answers") && text.contains("q quit"), "{text}");
    }

    #[test]
    fn a_filter_being_typed_is_shown() {
        let choice = Choice { typing: true, filter: "10.6".into(), ..Choice::default() };
        assert!(screen(100, 10, Some(&model(1)), &choice, None).contains("show only: 10.6_"));
    }
}
