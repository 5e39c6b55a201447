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

/// Header cells, those of numbers to the right.
fn header(names: &[&str], words: usize) -> Row<'static> {
    let cells = names.iter().enumerate().map(|(n, name)| {
        let line = Line::from((*name).to_string());
        Cell::from(if n < words { line } else { line.right_aligned() })
    });
    Row::new(cells.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::REVERSED))
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn link_table(links: &[Link], width: u16) -> Table<'static> {
    let rows = links.iter().map(|l| {
        let used = l.used();
        let state =
            if l.up { Cell::from("up") } else { Cell::from("down").style(Style::new().fg(Color::Red)) };
        Row::new(vec![
            Cell::from(l.name.clone()),
            Cell::from(l.interface.clone()),
            state,
            right(rate(l.rate_bps)),
            right(speed(l.sent_bps)),
            right(used.map_or("-".into(), |u| format!("{:.0} %", 100.0 * u))),
            right(bytes(l.waiting_bytes)),
            right(bytes(l.waiting_max_bytes)),
            right(l.dropped.to_string()),
            right(l.flows.to_string()),
        ])
    });
    let name = if width >= 100 { 16 } else { 8 };
    let widths = [name, name.min(12), 5, 12, 12, 6, 9, 9, 8, 6].map(Constraint::Length);
    Table::new(rows, widths).header(header(
        &["LINK", "INTERFACE", "STATE", "RATE", "NOW", "USED", "WAITING", "MOST", "DROPPED", "FLOWS"],
        3,
    ))
}

fn flow_table(frame: &mut Frame<'_>, area: Rect, model: &Model, choice: &Choice) {
    let has_room = area.width >= 110;
    let mut names = vec!["CLIENT", "SERVER", "AGE", "UP", "DOWN", "CUSTODY"];
    let mut widths = vec![22, 22, 6, 12, 12, 9];
    if has_room {
        names.extend(["CWND", "RTT"]);
        widths.extend([9, 8]);
    }
    if area.width < 90 {
        widths[0] = (area.width / 4).clamp(12, 22);
        widths[1] = widths[0];
    }
    names.push("LIMITED BY");
    let mut constraints: Vec<_> = widths.into_iter().map(Constraint::Length).collect();
    constraints.push(Constraint::Min(11));
    let rows = model.flows.iter().map(|f| flow_row(f, has_room));
    let mut head = header(&names, 2);
    // The last column is words again.
    let cells: Vec<Cell<'static>> = names
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let line = Line::from((*name).to_string());
            Cell::from(if n < 2 || n + 1 == names.len() { line } else { line.right_aligned() })
        })
        .collect();
    head = head.cells(cells);
    let table = Table::new(rows, constraints).header(head);
    let first = choice.first.min(model.flows.len().saturating_sub(1));
    let mut state = TableState::default().with_offset(first);
    frame.render_stateful_widget(table, area, &mut state);
}

fn flow_row(f: &Flow, has_room: bool) -> Row<'static> {
    let colour = match f.limited_by.as_str() {
        "loss" => Color::Red,
        "receiver" => Color::Yellow,
        "link" => Color::Green,
        _ => Color::Reset,
    };
    let mut cells = vec![
        Cell::from(f.client.clone()),
        Cell::from(f.server.clone()),
        right(age(f.age_seconds)),
        right(speed(f.up_bps)),
        right(speed(f.down_bps)),
        right(bytes(f.custody_bytes)),
    ];
    if has_room {
        cells.push(right(bytes(f.cwnd_bytes)));
        cells.push(right(microseconds(f.srtt_us)));
    }
    cells.push(Cell::from(Line::from(vec![
        Span::styled(f.limited_by.clone(), Style::new().fg(colour)),
        Span::raw(format!(": {}", f.why)),
    ])));
    Row::new(cells)
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
        for (width, height) in [(1, 1), (50, 8), (51, 9), (300, 100)] {
            screen(width, height, Some(&model(200)), &Choice::default(), None);
        }
    }

    #[test]
    fn many_flows_scroll_and_the_end_is_an_end() {
        let choice = Choice { first: 40, ..Choice::default() };
        let text = screen(120, 12, Some(&model(100)), &choice, None);
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
