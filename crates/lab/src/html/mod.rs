//! `farlink report`: results of runs and traces of flows as one HTML file, with plots and tables.
//!
//! [`input`] reads and refuses, [`subjects`] says what is compared with what, [`plots`],
//! [`captured`], [`flows`], [`held`], [`progress`], [`shares`], [`starved`] and [`winks`] which
//! plots there are data for, [`figure`] what a plot says, [`edge`] how far its time goes, [`draw`]
//! how it looks, [`tables`] and [`page`] the rest. [`model`] and [`asymmetric`] draw calculations
//! over results. The same input gives the same page.

pub mod asymmetric;
mod beside;
mod by_kind;
mod captured;
mod draw;
mod edge;
mod figure;
mod flows;
mod held;
mod input;
mod link;
pub mod model;
mod page;
mod plots;
mod progress;
mod shares;
mod starved;
mod subjects;
mod tables;
#[cfg(test)]
mod tests;
mod winks;
mod words;

use anyhow::{Result, bail};

use self::input::Input;
pub use self::input::Source;
use self::page::Section;
use self::plots::{Drawing, Plot};
use self::subjects::{Subject, Table};
use self::words::{conditions, escaped, slug};
use crate::capture::Trace;
use crate::report::Report;
use farlink_gateway::flow_trace::FlowTrace;

/// A report: the page, and each of its plots as a file of its own.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The HTML file.
    pub html: String,
    /// Names (without ending) and texts of SVG files.
    pub plots: Vec<(String, String)>,
}

/// Makes a report.
///
/// # Errors
/// A file that is neither the result of a run nor the trace of a flow, by its name and with the
/// reason.
pub fn render(sources: &[Source]) -> Result<Rendered> {
    if sources.is_empty() {
        bail!("a report needs at least one result");
    }
    let inputs: Vec<Input> = sources.iter().map(input::read).collect::<Result<_>>()?;
    let of_run = |input: &Input| match input {
        Input::Run(report) => Some(Table::of(report)),
        Input::Flow(_) => None,
    };
    let tables: Vec<Table> = inputs.iter().filter_map(of_run).collect();
    let mut writer = Writer { coloured: subjects::of_all(&tables), ..Writer::default() };
    let mut sections = Vec::new();
    for (number, input) in inputs.iter().enumerate() {
        let body = match input {
            Input::Run(report) => writer.run(report)?,
            Input::Flow(trace) => writer.flow(trace)?,
        };
        sections.push(Section { anchor: format!("part-{}", number + 1), title: title_of(input), body });
    }
    tell_apart(&inputs, &mut sections);
    let title = match inputs.as_slice() {
        [Input::Run(report)] => format!("Farlink: {}", report.scenario),
        _ => "Farlink: results".into(),
    };
    Ok(Rendered { html: page::page(&title, INTRO, &sections), plots: writer.files })
}

/// All plots of a run, as SVG files: names (without ending) and texts. `traces`: transfers as the
/// captures saw them, each with the number of its cell.
///
/// # Errors
/// A plot that cannot be drawn.
pub fn plots(report: &Report, traces: &[(usize, Trace)]) -> Result<Vec<(String, String)>> {
    let (table, command) = (Table::of(report), command_of(report));
    let mut writer = Writer::default();
    let of_time = captured::all(&table, traces);
    for plot in of_run(&table).chain(of_time) {
        writer.plot(&report.scenario, plot, &command)?;
    }
    Ok(writer.files)
}

/// The plots of a run's results.
fn of_run(table: &Table) -> impl Iterator<Item = Plot> + use<> {
    plots::all(table).into_iter().chain(link::all(table)).chain(shares::all(table))
}

const INTRO: &str = "<p>Times of the hosts alone, of other proxies, of the papers and of Farlink beside the physical limit: \
what nothing can beat on the link as it is (round trips of the job, and its bytes at the link's rate, over the share of packets that \
are not lost). The command under each figure makes it again.</p>\n";

#[derive(Default)]
struct Writer {
    /// See [`Table`].
    coloured: Vec<Subject>,
    figures: usize,
    files: Vec<(String, String)>,
}

impl Writer {
    fn run(&mut self, report: &Report) -> Result<String> {
        let table = Table { coloured: self.coloured.clone(), ..Table::of(report) };
        let command = command_of(report);
        let driver = match report.driver.as_str() {
            "sim" => "in the simulator, in virtual time",
            "lab" => "in the laboratory, with real kernels and programs",
            other => other,
        };
        let mut body =
            format!("<p>{}. Run {driver}, by Farlink {}.", escaped(&report.title), escaped(&report.version));
        let fixed = conditions(&table.fixed);
        if !fixed.is_empty() {
            body += &format!(" All cells: {}.", escaped(&fixed));
        }
        body += "</p>\n";
        body += &beside::clocks(report);
        body += &format!("<pre>{}</pre>\n<h3>Summary</h3>\n{}", escaped(&command), tables::summary(&table));
        let plots: Vec<_> = of_run(&table).collect();
        if !plots.is_empty() {
            body += "<h3>Plots</h3>\n";
        }
        for plot in plots {
            body += &self.plot(&report.scenario, plot, &command)?;
        }
        body += &format!("<h3>All cells</h3>\n{}", tables::cells(&table));
        body += &beside::figures(&table);
        body += &winks::numbers_of_the_text(report);
        body += &starved::numbers_of_the_text(report);
        body += &by_kind::table(&table);
        body += &tables::metrics(&table);
        body += &tables::failures(&table);
        body += &notes(report);
        Ok(body)
    }

    fn flow(&mut self, trace: &FlowTrace) -> Result<String> {
        let command = if trace.command.is_empty() { "farlink trace" } else { &trace.command };
        let mut body = format!("<pre>{}</pre>\n", escaped(command));
        let plots = flows::all(trace);
        if plots.is_empty() {
            body += "<p>Nothing was sent while this flow was followed.</p>\n";
        }
        for plot in plots {
            body += &self.plot(&slug(&trace.title), plot, command)?;
        }
        Ok(body)
    }

    fn plot(&mut self, of: &str, plot: Plot, command: &str) -> Result<String> {
        self.figures += 1;
        let (svg, title, remark) = match &plot.drawing {
            Drawing::Figure(f) => (draw::figure(f)?, &f.title, &f.remark),
            Drawing::HeatMap(m) => (draw::heat_map(m)?, &m.title, &m.remark),
        };
        let name = format!("{of}-{}", plot.name);
        let alike = |n: u32| if n == 1 { name.clone() } else { format!("{name}-{n}") };
        let mut names = (1..).map(alike);
        let is_free = |name: &String| self.files.iter().all(|(known, _)| known != name);
        let name = names.find(is_free).unwrap_or_default();
        self.files.push((name, draw::alone(&svg, title, command)));
        Ok(page::figure(self.figures, title, remark, command, &svg))
    }
}

fn title_of(input: &Input) -> String {
    match input {
        Input::Run(report) => format!("{} ({})", report.scenario, report.driver),
        Input::Flow(trace) => format!("Flow: {}", trace.title),
    }
}

/// Several runs of one scenario are told apart by the conditions that they were run under, and
/// where these are the same, by number.
fn tell_apart(inputs: &[Input], sections: &mut [Section]) {
    let titles: Vec<String> = sections.iter().map(|s| s.title.clone()).collect();
    let is_twice = |title: &String, titles: &[String]| titles.iter().filter(|t| *t == title).count() > 1;
    for (input, section) in inputs.iter().zip(sections.iter_mut()) {
        if let (Input::Run(report), true) = (input, is_twice(&section.title, &titles)) {
            let table = Table::of(report);
            let mut told = vec![section.title.clone()];
            told.extend(Some(conditions(&table.fixed)).filter(|of| !of.is_empty()));
            let varied: Vec<_> = table.varied.iter().map(|name| words::heading(name)).collect();
            told.extend((!varied.is_empty()).then(|| format!("by {}", varied.join(", "))));
            section.title = told.join(", ");
        }
    }
    let titles: Vec<String> = sections.iter().map(|s| s.title.clone()).collect();
    for (number, section) in sections.iter_mut().enumerate().filter(|(_, s)| is_twice(&s.title, &titles)) {
        let before = titles.iter().take(number).filter(|t| **t == section.title).count();
        section.title += &format!(", run {}", before + 1);
    }
}

/// The command of a run. Files of older versions do not say `--only` and `--set`.
fn command_of(report: &Report) -> String {
    if report.command.is_empty() {
        format!("farlink {} run {} --seed {}", report.driver, report.scenario, report.seed)
    } else {
        report.command.clone()
    }
}

/// What people should know: cells that could not run, remarks of those that did.
fn notes(report: &Report) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    for skipped in &report.skipped {
        add(format!("{} was not run: {}", skipped.variant, skipped.reason));
    }
    for note in report.cells.iter().flat_map(|c| &c.notes) {
        add(note.clone());
    }
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|l| format!("<li>{}</li>\n", escaped(l))).collect();
    format!("<h3>Notes</h3>\n<ul>\n{items}</ul>\n")
}
