//! `farlink top`: a live view of links and flows, over the admin socket.

mod draw;
mod kinds;
mod links;
mod model;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::draw::{Choice, age, draw, percent, speed};
pub use self::model::Sort;
use self::model::{Model, Snapshot};
use crate::admin::client::{NoGateway, ask};
use crate::admin::protocol::Request;
use crate::cli::TopArgs;
use crate::ending;
use crate::out::{out, outln};
use crate::view::{Table, bytes, count, microseconds};

/// How often keys and signals are looked for.
const TICK: Duration = Duration::from_millis(100);
/// Flows that are asked for at most: a person sees a screenful, and the gateway answers between
/// packets.
const FLOWS_MAX: usize = 20_000;

/// Shows it until a key or a signal ends it, or once.
///
/// # Errors
/// No gateway answers at the start; standard output is no terminal.
pub fn run(args: &TopArgs) -> Result<ExitCode> {
    let interval = args.interval;
    let first = look(args)?;
    if args.once {
        std::thread::sleep(interval);
        let model = Model::of(&look(args)?, Some(&first), args.sort, &args.filter);
        if args.json {
            let mut model = model;
            model.flows.truncate(args.limit);
            outln!("{}", serde_json::to_string_pretty(&model)?);
        } else {
            out!("{}", once(&model, args.limit));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("`farlink top` wants a terminal; `farlink top --once` prints the same as text");
    }
    ending::on_signals();
    // Restores the terminal on a panic, too.
    let mut terminal = ratatui::try_init()?;
    let done = live(args, interval, first, &mut terminal);
    ratatui::restore();
    done.map(|()| ExitCode::SUCCESS)
}

fn look(args: &TopArgs) -> Result<Snapshot> {
    let socket = &args.socket.socket;
    let status = ask(socket, &Request::Status {})?;
    let flows = ask(socket, &Request::Flows { limit: FLOWS_MAX })?;
    Ok(Snapshot { at: Instant::now(), status, flows })
}

fn live(
    args: &TopArgs,
    interval: Duration,
    first: Snapshot,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<()> {
    let mut choice = Choice { sort: args.sort, filter: args.filter.clone(), ..Choice::default() };
    let (mut before, mut now): (Option<Snapshot>, Option<Snapshot>) = (None, Some(first));
    let mut trouble = None;
    let mut next_look = Instant::now() + interval.min(Duration::from_millis(300));
    while !ending::is_asked() {
        let model = now.as_ref().map(|n| Model::of(n, before.as_ref(), choice.sort, &choice.filter));
        let shown = model.as_ref().map_or(0, |m| m.flows.len());
        choice.first = choice.first.min(shown.saturating_sub(1));
        terminal.draw(|frame| draw(frame, model.as_ref(), &choice, trouble.as_deref()))?;
        while !ending::is_asked() {
            let wait = next_look.saturating_duration_since(Instant::now()).min(TICK);
            match event::poll(wait) {
                Ok(true) => {
                    if let Event::Key(key) = event::read()?
                        && press(key, &mut choice)
                    {
                        return Ok(());
                    }
                    break;
                }
                Ok(false) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
            if Instant::now() >= next_look {
                break;
            }
        }
        if Instant::now() >= next_look {
            next_look = Instant::now() + interval;
            if choice.paused {
                continue;
            }
            match look(args) {
                Ok(new) => {
                    before = now.replace(new);
                    trouble = None;
                }
                Err(e) if e.is::<NoGateway>() => {
                    trouble = Some("the gateway has gone; waiting for it".to_string());
                    before = None;
                }
                Err(e) => trouble = Some(format!("{e:#}")),
            }
        }
    }
    Ok(())
}

/// What a key does; true: the end.
fn press(key: KeyEvent, choice: &mut Choice) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if control => return true,
        KeyCode::Esc => {
            choice.filter.clear();
            choice.typing = false;
        }
        KeyCode::Enter => choice.typing = false,
        KeyCode::Backspace if choice.typing => {
            choice.filter.pop();
        }
        KeyCode::Char(c) if choice.typing => choice.filter.push(c),
        KeyCode::Char('q') => return true,
        KeyCode::Char('s') => choice.sort = choice.sort.next(),
        KeyCode::Char('/' | 'f') => choice.typing = true,
        KeyCode::Char('t') => choice.hides_kinds = !choice.hides_kinds,
        KeyCode::Char(' ' | 'p') => choice.paused = !choice.paused,
        KeyCode::Up | KeyCode::Char('k') => choice.first = choice.first.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => choice.first += 1,
        KeyCode::PageUp => choice.first = choice.first.saturating_sub(20),
        KeyCode::PageDown => choice.first += 20,
        KeyCode::Home => choice.first = 0,
        KeyCode::End => choice.first = usize::MAX,
        _ => {}
    }
    false
}

/// The same as text, for scripts.
fn once(model: &Model, limit: usize) -> String {
    let mut links = Table::new(&[
        "LINK",
        "INTERFACE",
        "STATE",
        "RATE",
        "NOW",
        "USED",
        "WAITING",
        "MOST WAITING",
        "DROPPED",
        "FLOWS",
    ]);
    for l in &model.links {
        links.row([
            l.name.clone(),
            l.interface.clone(),
            l.state_and_witnesses.clone(),
            l.rate(),
            speed(l.sent_bps),
            percent(l.used()),
            bytes(l.waiting_bytes),
            bytes(l.waiting_max_bytes),
            l.dropped.to_string(),
            l.flows.to_string(),
        ]);
    }
    let mut flows = Table::new(&[
        "CLIENT",
        "SERVER",
        "MODE",
        "AGE",
        "UP",
        "DOWN",
        "CWND",
        "RTT",
        "CUSTODY",
        "LIMITED BY",
        "WHY NOT FASTER",
    ]);
    for f in model.flows.iter().take(limit) {
        flows.row([
            f.client.clone(),
            f.server.clone(),
            f.mode.clone(),
            age(f.age_seconds),
            speed(f.up_bps),
            speed(f.down_bps),
            bytes(f.cwnd_bytes),
            microseconds(f.srtt_us),
            bytes(f.custody_bytes),
            f.limited_by.clone(),
            f.why.clone(),
        ]);
    }
    let mut out = format!(
        "farlink {}: {} split, {} dormant; custody {}{}\n",
        model.version,
        model.split,
        model.dormant,
        bytes(model.custody_bytes),
        if model.draining { "; DRAINING" } else { "" }
    );
    for table in [links, kinds::table(&model.links), flows].iter().filter(|t| !t.is_empty()) {
        out += &format!("\n{table}");
    }
    let shown = model.flows.len().min(limit);
    out +=
        &format!("\n{} of {} shown\n", shown, count((model.flows.len() + model.hidden) as u64, "connection"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn keys_sort_filter_scroll_pause_and_quit() {
        let mut choice = Choice::default();
        assert!(!press(key(KeyCode::Char('s')), &mut choice));
        assert_eq!(choice.sort, Sort::Custody);
        for c in "/q1".chars() {
            assert!(!press(key(KeyCode::Char(c)), &mut choice), "q is a letter while a filter is typed");
        }
        assert_eq!((choice.filter.as_str(), choice.typing), ("q1", true));
        press(key(KeyCode::Enter), &mut choice);
        assert!(!press(key(KeyCode::Char('t')), &mut choice) && choice.hides_kinds);
        assert!(!press(key(KeyCode::Char('t')), &mut choice) && !choice.hides_kinds);
        press(key(KeyCode::Down), &mut choice);
        press(key(KeyCode::Char(' ')), &mut choice);
        assert_eq!((choice.first, choice.paused, choice.typing), (1, true, false));
        press(key(KeyCode::Esc), &mut choice);
        assert!(choice.filter.is_empty());
        assert!(press(key(KeyCode::Char('q')), &mut choice));
        assert!(press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut choice));
    }

    /// One that is found to carry less than is declared.
    fn link() -> model::Link {
        let passed = farlink_gateway::Passed {
            packets: 10,
            bytes: 5_000,
            dropped_packets: 3,
            waited_us: 20_000,
            waited_max_us: 7_000,
        };
        let udp = kinds::Carried { passed, sent_bps: 400_000.0, share: Some(0.05) };
        model::Link {
            name: "geo".into(),
            up: true,
            state: "up".into(),
            state_and_witnesses: "up".into(),
            rate_bps: 8_000_000,
            declared_bps: 8_800_000,
            queue_bps: 7_600_000,
            carried: [("udp".to_owned(), udp), ("icmp".to_owned(), kinds::Carried::default())].into(),
            beside_packets: 4,
            beside_bytes: 2_000,
            ..model::Link::default()
        }
    }

    #[test]
    fn text_for_scripts_has_links_kinds_flows_and_reasons() {
        let flow = model::Flow {
            client: "10.0.0.1:1".into(),
            server: "10.0.0.2:80".into(),
            down_bps: 7.5e6,
            limited_by: "link".into(),
            why: "has all of geo".into(),
            ..model::Flow::default()
        };
        let model =
            Model { flows: vec![flow.clone(), flow], links: vec![link()], hidden: 3, ..Model::default() };
        let text = once(&model, 1);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "10.0.0.1:1",
            "7.5 Mbit/s",
            "has all of geo",
            "1 of 5 connections shown",
            "geo up 8.0 Mbit/s (declared 8.8 Mbit/s)",
            "geo udp 400 kbit/s 5 % 10 5.0 kB 3 2.0 ms 7.0 ms",
            "geo past the queue 0 bit/s - 4 2.0 kB - - -",
        ] {
            assert!(words.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("icmp"), "{text}");
    }

    #[test]
    fn programs_find_kinds_by_the_names_of_the_status() {
        let model = Model { links: vec![link()], ..Model::default() };
        let json = serde_json::to_value(&model).unwrap();
        let link = &json["links"][0];
        assert_eq!(
            link["carried"]["udp"],
            serde_json::json!({
                "packets": 10, "bytes": 5_000, "dropped_packets": 3, "waited_us": 20_000, "waited_max_us": 7_000,
                "sent_bps": 400_000.0, "share": 0.05,
            })
        );
        assert_eq!(link["queue_bps"], 7_600_000);
        assert_eq!(link["beside_packets"], 4);
        assert_eq!(link["beside_bytes"], 2_000);
        assert_eq!(link["carried"]["icmp"]["packets"], 0, "those that have carried nothing, too");
    }
}
