//! How it looks: one screen of links and flows.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::links::{LinkLines, link_lines};
use super::model::{Flow, Model, Sort};
use crate::view::{bytes, microseconds, rate, seconds, wrap};

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
    /// What links carry by kind is not shown.
    pub hides_kinds: bool,
}

/// A rate that is known to be zero.
pub fn speed(bps: f64) -> String {
    if bps < 0.5 { "0 bit/s".into() } else { rate(bps.round() as u64) }
}

/// A share, `-` where it is unknown.
pub fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.0} %", 100.0 * share))
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
    let links = model.map_or_else(LinkLines::default, |m| link_lines(&m.links, area, choice.hides_kinds));
    // An empty line stands below them.
    let links_height = links.lines.len() + usize::from(!links.lines.is_empty());
    let [head, link_area, flow_area, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(u16::try_from(links_height).unwrap_or(area.height)),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(heading(model, trouble)), head);
    frame.render_widget(Paragraph::new(links.lines), link_area);
    if let Some(model) = model {
        flow_table(frame, flow_area, model, choice);
    }
    frame.render_widget(Paragraph::new(keys(choice, links.lacks_room)), foot);
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

/// The first line of a table.
pub fn table_head(headings: &str, width: usize) -> Line<'static> {
    Line::styled(format!("{headings:width$}"), Style::new().add_modifier(Modifier::REVERSED))
}

/// A figure of a connection: its heading, its width, and what it says.
type Figure = (&'static str, usize, fn(&Flow) -> String);

const FIGURES: [Figure; 6] = [
    ("AGE", 4, |f| age(f.age_seconds)),
    ("UP", 11, |f| speed(f.up_bps)),
    ("DOWN", 11, |f| speed(f.down_bps)),
    ("CUSTODY", 8, |f| bytes(f.custody_bytes)),
    ("CWND", 8, |f| bytes(f.cwnd_bytes)),
    ("RTT", 7, |f| microseconds(f.srtt_us)),
];
/// Those that are always shown, and the others in the order in which they get what room there is.
const ALWAYS: [&str; 3] = ["UP", "DOWN", "CUSTODY"];
const IF_ROOM: [&str; 3] = ["RTT", "CWND", "AGE"];
/// In place of them all where there is little room.
const IN_SHORT: [Figure; 1] = [("RATE", 11, |f| speed(f.rate_bps()))];
/// Below this there is little.
const WIDTH_FIGURES: usize = 70;
/// An address gets so much where there is more to show, and this at most.
const ADDRESS: usize = 22;
const ADDRESS_MAX: usize = 45;
/// The longest reason, with all its numbers.
const REASON: usize = 110;
const INDENT: &str = "    ";

/// What stands in the line of a connection.
struct Columns {
    address: usize,
    figures: Vec<Figure>,
    /// The reason stands in the same line; else it has lines of its own.
    has_reason: bool,
}

impl Columns {
    /// The reason is never cut: figures that are missed least make room for it, and then it stands
    /// below. `longest`: of all addresses.
    fn of(width: usize, longest: usize) -> Self {
        if width < WIDTH_FIGURES {
            let address = (width.saturating_sub(taken(&IN_SHORT) + 1) / 2).min(ADDRESS_MAX);
            return Self { address, figures: IN_SHORT.to_vec(), has_reason: false };
        }
        let always = named(&ALWAYS);
        let beside_reason = width.saturating_sub(REASON + 1);
        let has_reason = beside_reason >= 2 * ADDRESS + 1 + taken(&always);
        let (room, address) = match has_reason {
            true => (beside_reason, ADDRESS),
            false => (width, longest.clamp(ADDRESS, ADDRESS_MAX)),
        };
        let mut names = ALWAYS.to_vec();
        for name in IF_ROOM {
            let wanted: Vec<_> = names.iter().copied().chain([name]).collect();
            if 2 * address + 1 + taken(&named(&wanted)) <= room {
                names = wanted;
            }
        }
        let figures = named(&names);
        let address = (room.saturating_sub(taken(&figures) + 1) / 2).min(ADDRESS_MAX);
        Self { address, figures, has_reason }
    }

    fn line(&self, client: &str, server: &str, cells: impl Iterator<Item = String>) -> String {
        let address = self.address;
        let mut text = format!("{:address$} {:address$}", fit(client, address), fit(server, address));
        for (cell, (_, width, _)) in cells.zip(&self.figures) {
            text += &format!(" {cell:>width$}");
        }
        text
    }
}

/// The figures of these names, in the order of the screen.
fn named(names: &[&str]) -> Vec<Figure> {
    FIGURES.into_iter().filter(|(name, ..)| names.contains(name)).collect()
}

/// What they take, with the space before each.
fn taken(figures: &[Figure]) -> usize {
    figures.iter().map(|(_, width, _)| width + 1).sum()
}

/// A connection in one line where all has room, else its reason below it.
fn flow_table(frame: &mut Frame<'_>, area: Rect, model: &Model, choice: &Choice) {
    let first = choice.first.min(model.flows.len().saturating_sub(1));
    frame.render_widget(Paragraph::new(flow_lines(&model.flows, first, area)), area);
}

/// The connections from the one at `first` on.
fn flow_lines(flows: &[Flow], first: usize, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let addresses = flows.iter().flat_map(|f| [&f.client, &f.server]);
    let longest = addresses.map(|text| text.chars().count()).max().unwrap_or(0);
    let columns = Columns::of(width, longest);
    let mut head = columns.line("CLIENT", "SERVER", columns.figures.iter().map(|f| f.0.to_owned()));
    if columns.has_reason {
        head += " LIMITED BY";
    }
    let mut lines = vec![table_head(&head, width)];
    for f in flows.iter().skip(first).take(usize::from(area.height)) {
        let line = columns.line(&f.client, &f.server, columns.figures.iter().map(|(.., of)| of(f)));
        let why = format!("{}: {}", f.limited_by, f.why);
        if columns.has_reason {
            lines.push(reason(f, &format!("{line} "), &why));
            continue;
        }
        lines.push(Line::from(line));
        let mut rows = wrap(&why, width.saturating_sub(INDENT.len())).into_iter();
        lines.extend(rows.next().map(|row| reason(f, INDENT, &row)));
        lines.extend(rows.map(|row| Line::from(format!("{INDENT}{row}"))));
    }
    lines
}

/// Text of at most `width` characters: both ends of an address say more than its middle.
pub fn fit(text: &str, width: usize) -> String {
    let all = text.chars().count();
    if all <= width {
        return text.to_string();
    }
    let tail = (width / 2).min(width.saturating_sub(2));
    let head: String = text.chars().take(width.saturating_sub(tail + 2)).collect();
    let end: String = text.chars().skip(all - tail).collect();
    format!("{head}..{end}")
}

/// What holds a connection, in its colour, and why it is not faster, behind what stands before it.
fn reason(f: &Flow, before: &str, why: &str) -> Line<'static> {
    let colour = match f.limited_by.as_str() {
        "loss" => Color::Red,
        "receiver" | "gateway" => Color::Yellow,
        "link" => Color::Green,
        _ => Color::Reset,
    };
    let (limit, rest) = why.split_at(why.find(':').unwrap_or(0));
    Line::from(vec![
        Span::raw(before.to_owned()),
        Span::styled(limit.to_owned(), Style::new().fg(colour)),
        Span::raw(rest.to_owned()),
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

/// `lacks_room`: what links carry by kind is left out.
fn keys(choice: &Choice, lacks_room: bool) -> Line<'static> {
    if choice.typing {
        return Line::from(vec![
            bold("show only: "),
            Span::raw(format!("{}_", choice.filter)),
            Span::raw("  Enter done, Esc all"),
        ]);
    }
    let filter = if choice.filter.is_empty() { "all".to_string() } else { format!("`{}`", choice.filter) };
    let kinds = match (choice.hides_kinds, lacks_room) {
        (true, _) => "off",
        (false, true) => "no room",
        (false, false) => "on",
    };
    Line::from(vec![
        bold("q"),
        Span::raw(" quit  "),
        bold("s"),
        Span::raw(format!(" sort: {}  ", choice.sort.name())),
        bold("/"),
        Span::raw(format!(" filter: {filter}  ")),
        bold("space"),
        Span::raw(if choice.paused { " PAUSED  " } else { " pause  " }),
        bold("t"),
        Span::raw(format!(" kinds: {kinds}  ")),
        bold("up down"),
        Span::raw(" scroll"),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::kinds::Carried;
    use super::super::model::Link;
    use super::*;
    use farlink_gateway::Passed;
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
            state: "up".into(),
            state_and_witnesses: "up".into(),
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

    /// A link that carries split TCP, UDP and something past its queue, and has dropped ICMP.
    fn with_kinds() -> Model {
        let mut model = model(20);
        let passed = |packets, dropped_packets, waited_us, waited_max_us| Passed {
            packets,
            bytes: 1_000 * packets,
            dropped_packets,
            waited_us,
            waited_max_us,
        };
        let carried = |passed, sent_bps: f64| Carried { passed, sent_bps, share: Some(sent_bps / 8e6) };
        let link = &mut model.links[0];
        link.carried = [
            ("icmp", carried(passed(0, 2, 0, 0), 0.0)),
            ("other", carried(passed(0, 0, 0, 0), 0.0)),
            ("split_tcp", carried(passed(5_000, 0, 0, 0), 7.2e6)),
            ("udp", carried(passed(100, 3, 200_000, 9_000), 400_000.0)),
        ]
        .map(|(name, kind)| (name.to_owned(), kind))
        .into();
        link.retransmitted_bytes = 1_200_000;
        (link.beside_packets, link.beside_bytes, link.beside_sent_bps) = (7, 9_000, 80_000.0);
        link.beside_share = Some(0.01);
        model
    }

    #[test]
    fn what_a_link_carries_stands_below_it_by_kind() {
        let model = with_kinds();
        let line = |name: &str, now: &str, used: &str, wait: &str, dropped: &str| {
            format!("{name:30} {now:>11} {used:>6} {wait:>8} {dropped:>8}")
        };
        let wanted = [
            line("  icmp", "0 bit/s", "0 %", "-", "2"),
            line("  split tcp, 1.2 MB again", "7.2 Mbit/s", "90 %", "-", "0"),
            line("  udp", "400 kbit/s", "5 %", "2.0 ms", "3"),
            line("  past the queue", "80.0 kbit/s", "1 %", "-", "-"),
        ];
        let text = screen(80, 24, Some(&model), &Choice::default(), None);
        let lines: Vec<_> = text.lines().collect();
        let first = lines.iter().position(|line| line.starts_with("geo ")).unwrap() + 1;
        assert_eq!(lines[first..first + 4], wanted, "{text}");
        assert!(!text.contains("other") && text.contains("t kinds: on"), "{text}");
        let below = lines.iter().position(|line| line.starts_with("CLIENT")).unwrap();
        assert!((first + 5..=12).contains(&below), "connections have half of the screen\n{text}");

        let text = screen(160, 24, Some(&model), &Choice::default(), None);
        assert!(text.contains("  2.0 ms   9.0 ms        3\n"), "the longest wait, too\n{text}");
        let text = screen(50, 24, Some(&model), &Choice::default(), None);
        assert!(text.contains(&format!("{:30}  400 kbit/s    5 %\n", "  udp")), "{text}");
    }

    #[test]
    fn kinds_give_way_to_connections_and_to_a_key() {
        let model = with_kinds();
        let cases = [(24, true, "kinds: off"), (16, false, "kinds: no room"), (12, false, "kinds: no room")];
        for (height, hides_kinds, says) in cases {
            let choice = Choice { hides_kinds, ..Choice::default() };
            let text = screen(80, height, Some(&model), &choice, None);
            assert!(text.contains("geo ") && text.contains(says), "{text}");
            assert!(!text.contains("udp") && !text.contains("icmp"), "all of them or none\n{text}");
        }
        let text = screen(80, 17, Some(&model), &Choice::default(), None);
        assert!(text.contains("udp") && text.contains("kinds: on"), "{text}");
        for (width, height) in [(50, 8), (51, 9), (300, 100)] {
            screen(width, height, Some(&model), &Choice::default(), None);
        }
    }

    #[test]
    fn a_link_that_carries_less_than_is_declared_shows_both_rates() {
        let mut model = model(1);
        model.links[0].declared_bps = 8_800_000;
        let text = screen(100, 24, Some(&model), &Choice::default(), None);
        assert!(text.contains("8.0 Mbit/s (declared 8.8 Mbit/s)  7.6 Mbit/s   95 %"), "{text}");
        for width in [50, 80] {
            let text = screen(width, 24, Some(&model), &Choice::default(), None);
            let below = format!("\n{:>30}\n", "declared 8.8 Mbit/s");
            assert!(text.contains("8.0 Mbit/s  7.6 Mbit/s   95 %") && text.contains(&below), "{text}");
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

    /// What is said of a connection that is limited by its receiver is the longest.
    #[test]
    fn the_reason_is_read_whole_whatever_the_width() {
        let longest = "the server reads slowly or shows a small window: 99.9 MB, at most 99.9 Mbit/s at an RTT of 1000 ms";
        for (width, shown, left_out) in [
            (80, &["UP", "DOWN", "CUSTODY"][..], &["CWND", "RTT", "AGE"][..]),
            (100, &["UP", "DOWN", "CUSTODY", "RTT", "CWND", "AGE"], &[]),
            (130, &["UP", "DOWN", "CUSTODY", "RTT", "CWND", "AGE"], &[]),
            (200, &["UP", "DOWN", "CUSTODY", "RTT", "LIMITED BY"], &["CWND", "AGE"]),
            (250, &["UP", "DOWN", "CUSTODY", "RTT", "CWND", "AGE", "LIMITED BY"], &[]),
        ] {
            let mut model = model(2);
            for flow in &mut model.flows {
                (flow.limited_by, flow.why) = ("receiver".into(), longest.into());
            }
            let text = screen(width, 14, Some(&model), &Choice::default(), None);
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words.matches(&format!("receiver: {longest}")).count(), 2, "{width}\n{text}");
            let head = text.lines().find(|line| line.starts_with("CLIENT")).unwrap();
            assert!(shown.iter().all(|name| head.contains(name)), "{width}: {head}");
            assert!(left_out.iter().all(|name| !head.contains(name)), "{width}: {head}");
            for address in ["10.64.1.2:40000", "10.64.1.2:40001", "10.64.3.2:443"] {
                assert!(text.contains(address), "{width}: {address}\n{text}");
            }
        }
    }

    #[test]
    fn long_addresses_go_before_figures_that_are_missed_least() {
        let mut model = model(1);
        model.flows[0].client = "[2001:db8:1:2:3:4:5:6]:40000".into();
        let text = screen(100, 14, Some(&model), &Choice::default(), None);
        assert!(text.contains("[2001:db8:1:2:3:4:5:6]:40000") && text.contains("RTT"), "{text}");
        assert!(!text.contains("CWND"), "{text}");
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
