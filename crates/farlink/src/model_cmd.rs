//! `farlink model`: what papers calculated, and what holds instead, beside results of runs.

mod asymmetric;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use farlink_lab::html::{Source, model};
use farlink_lab::model::grid::{
    PAPER_P, PAPER_RATE_BPS, PAPER_SIZE_BYTES, Point, Results, Transfer, paper_intervals_s, points,
};
use farlink_lab::model::wink::Winks;
use farlink_lab::settings::WinkAt;
use farlink_wire::quantity::{self, Bare};
use farlink_wire::time::Duration;
use serde_json::json;

use crate::out::{out, outln};
use crate::sim_cmd::parse_seeds;
use crate::view::Table;

/// Probabilities and intervals of the table unless others are asked for.
const USUAL_P: [f64; 5] = [0.05, 0.1, 0.2, 0.3, 0.4];
const USUAL_I_MS: [u32; 7] = [40, 100, 200, 260, 500, 620, 1100];
/// The link's round-trip time, and the time between two probes.
const USUAL_RTT: Duration = Duration::from_micros(500);
const USUAL_PROBE: &str = "10ms";

/// `farlink model`
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// A link that is away in each interval i with probability p (Reynolds 2006): equations 3.1 to
    /// 3.12, where they are off, and what holds instead
    #[command(after_help = "Examples:
  farlink model wink                                    the paper's transfer, 20 MB over 100 Mbit/s
  farlink model wink -p 0.4 -i 40ms,1.1s --seeds 1..31  also a perfect sender with the winks of 30 seeds
  farlink model wink --perfect-time 1.86s --grid --svg plots      the paper's own time, all of its grid
  farlink sim run wink --subset check --json wink.json
  farlink model wink --over wink.json --svg plots       models over what was measured

Columns, in seconds from the first byte to the last:
  n            whole intervals that the transfer needs (3.3)
  perfect      t / (1 - p): nothing is faster on average
  3.11         hosts alone by the paper; `mended`: the first failure of an interval is counted once, not twice
  timers       hosts alone that wait for Linux' timers, once for each outage
  3.12         with custody, by the paper; `mended` as above
  probing      with custody by a gateway that probes: perfect x (1 + p (d/2 + r) / i)
  seeds        `perfect_seconds` of these seeds' winks, the first interval beginning with the transfer

Rates: 100M, '100 Mbit/s'. Sizes: 20MiB, 20MB. Times: 40ms, 1.1s; intervals without a unit: ms.
docs/model.md explains the models.

Exit status: 0 when it was calculated, 1 when a file cannot be used, 2 for a command line that makes no sense.")]
    Wink(Box<WinkArgs>),
    /// A fast link one way and a slow one back (Hasegawa 2006): equations 1 to 7, what
    /// acknowledgements leave of a download, and the best size of segment
    #[command(after_help = asymmetric::EXAMPLES)]
    Asymmetric(Box<asymmetric::AsymmetricArgs>),
}

#[derive(clap::Args, Debug)]
struct WinkArgs {
    /// Probabilities that the link is away in an interval [default: 0.05,0.1,0.2,0.3,0.4, or those
    /// of the results]
    #[arg(short, long, value_name = "P,...", value_delimiter = ',', value_parser = probability)]
    p: Vec<f64>,
    /// Lengths of an interval, such as 40ms [default: seven from 40ms to 1.1s, or those of the
    /// results]
    #[arg(short, long, value_name = "TIME,...", value_delimiter = ',', value_parser = interval)]
    interval: Vec<Duration>,
    /// The paper's whole grid: p from 0.05 to 0.4, 54 intervals from 40 ms to 1.1 s
    #[arg(long, conflicts_with_all = ["p", "interval"])]
    grid: bool,
    /// Payload of the transfer [default: 20MiB, the paper's, or that of the results]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Rate of the link [default: 100 Mbit/s, the paper's, or that of the results]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// What the transfer takes on a link that is always there, in place of the rate (the paper:
    /// 1.86s)
    #[arg(long, value_name = "TIME", conflicts_with = "rate", value_parser = seconds)]
    perfect_time: Option<Duration>,
    /// Round-trip time r of the link [default: 0.5ms, the paper's, or that of the results]
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    rtt: Option<Duration>,
    /// Time d between two probes of a link that is away
    #[arg(long, value_name = "TIME", default_value = USUAL_PROBE, value_parser = milliseconds)]
    probe: Duration,
    /// Where winks destroy packets of these seeds: where they enter the link, or where they leave
    /// it
    #[arg(long, value_name = "SIDE", default_value = "entry", value_parser = ["entry", "exit"])]
    side: String,
    /// Play the winks of these seeds: one number, or FROM..TO (TO is not played)
    #[arg(long, value_name = "SEEDS")]
    seeds: Option<String>,
    /// Results of `lab run --json` or `sim run --json` to compare with
    #[arg(long, value_name = "RESULT", conflicts_with_all = ["size", "rate", "rtt", "perfect_time"])]
    over: Option<PathBuf>,
    /// Write two plots for each p into a directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write it as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn probability(text: &str) -> Result<f64, String> {
    let p: f64 = text.trim().parse().map_err(|_| "a number is expected, such as 0.4".to_owned())?;
    Winks::new(p, 1.0).map(Winks::p).map_err(|wrong| wrong.to_string())
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = milliseconds(text)?;
    Winks::new(0.0, time.as_secs_f64()).map(|_| time).map_err(|wrong| wrong.to_string())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    quantity::time(text, Bare::Unit("ms"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    quantity::time(text, Bare::Base).and_then(|time| match time {
        Duration::ZERO => Err("it must be longer than zero".into()),
        time => Ok(time),
    })
}

fn size(text: &str) -> Result<u64, String> {
    quantity::size_bytes(text, Bare::Base)
}

fn rate(text: &str) -> Result<u64, String> {
    quantity::rate_bps(text, Bare::Base)
}

/// Runs it.
///
/// # Errors
/// Conditions that make no sense, files that cannot be used or written.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Wink(args) => wink(args),
        Command::Asymmetric(args) => asymmetric::run(args),
    }
}

fn wink(args: &WinkArgs) -> Result<ExitCode> {
    let results = args.over.as_deref().map(results).transpose()?;
    let transfer = transfer(args, results.as_ref());
    let (ps, intervals_s) = grid(args, results.as_ref());
    let seeds = args.seeds.as_deref().map_or(Ok(0..0), parse_seeds)?;
    let points = points(&transfer, (&ps, &intervals_s), &seeds, results.as_ref())?;
    if results.is_some() && points.iter().all(|point| point.measured.is_empty()) {
        bail!("the results have no cell with one of these p and i");
    }
    let under = under(&transfer);
    let to_stdout = args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if !to_stdout {
        print(&transfer, &under, &points)?;
    }
    if let Some(directory) = &args.svg {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        std::fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        for (name, text) in model::plots(&transfer, &points, &under, &format!("farlink {command}"))? {
            write(&directory.join(format!("{name}.svg")), &text)?;
        }
    }
    if let Some(path) = &args.json {
        let value = json!({ "transfer": transfer, "perfect_s": transfer.perfect_s(), "points": points });
        let text = serde_json::to_string_pretty(&value)?;
        if to_stdout {
            outln!("{text}");
        } else {
            write(path, &(text + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn results(path: &Path) -> Result<Results> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
    model::results(&Source { name, text })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

fn transfer(args: &WinkArgs, results: Option<&Results>) -> Transfer {
    let mut transfer = Transfer {
        size_bytes: args.size.unwrap_or(PAPER_SIZE_BYTES),
        rate_bps: args.rate.unwrap_or(PAPER_RATE_BPS),
        rtt_s: args.rtt.unwrap_or(USUAL_RTT).as_secs_f64(),
        probe_s: args.probe.as_secs_f64(),
        wink_side: if args.side == "exit" { WinkAt::Exit } else { WinkAt::Entry },
    };
    if let Some(results) = results {
        transfer = Transfer {
            size_bytes: results.size_bytes,
            rate_bps: results.rate_bps,
            rtt_s: results.rtt_s,
            ..transfer
        };
    }
    if let Some(time) = args.perfect_time {
        transfer.rate_bps = transfer.rate_for(time.as_secs_f64());
    }
    transfer
}

/// Probabilities and intervals in seconds: those asked for, else those measured, else the usual.
fn grid(args: &WinkArgs, results: Option<&Results>) -> (Vec<f64>, Vec<f64>) {
    if args.grid {
        return (PAPER_P.to_vec(), paper_intervals_s());
    }
    let measured = |of: fn(&(f64, f64)) -> f64| -> Option<Vec<f64>> {
        let mut all: Vec<f64> = results?.points.iter().map(|(p, ms, _)| of(&(*p, ms / 1e3))).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        Some(all)
    };
    let asked = |given: Vec<f64>, of: fn(&(f64, f64)) -> f64, usual: Vec<f64>| {
        if given.is_empty() { measured(of).unwrap_or(usual) } else { given }
    };
    let intervals_s = args.interval.iter().map(Duration::as_secs_f64).collect();
    let usual_i = USUAL_I_MS.iter().map(|ms| f64::from(*ms) / 1e3).collect();
    (asked(args.p.clone(), |x| x.0, USUAL_P.to_vec()), asked(intervals_s, |x| x.1, usual_i))
}

/// The conditions in words.
fn under(transfer: &Transfer) -> String {
    format!(
        "{} MB at {} Mbit/s, RTT {} ms, probe every {} ms",
        number(transfer.size_bytes as f64 / 1e6),
        number(transfer.rate_bps as f64 / 1e6),
        number(transfer.rtt_s * 1e3),
        number(transfer.probe_s * 1e3)
    )
}

fn print(transfer: &Transfer, under: &str, all: &[Point]) -> Result<()> {
    outln!("{under}: {:.3} s on a link that is always there\n", transfer.perfect_s());
    out!("{}", runs(all)?);
    outln!("");
    let mut heading = vec![
        "P",
        "I MS",
        "N",
        "PERFECT",
        "3.11",
        "MENDED",
        "TIMERS",
        "3.12",
        "MENDED",
        "PROBING",
        "X PERFECT",
    ];
    let has_seeds = all.iter().any(|point| point.perfect_seconds.is_some());
    if has_seeds {
        heading.extend(["SEEDS", "LEAST", "GREATEST"]);
    }
    let mut table = Table::new(&heading);
    for point in all {
        let mut row = vec![point.p.to_string(), number(point.interval_ms), number(point.intervals)];
        let seconds = [
            point.perfect_s,
            point.paper_hosts_alone_s,
            point.mended_hosts_alone_s,
            point.timers_s,
            point.paper_custody_s,
            point.mended_custody_s,
            point.probing_s,
            point.probing_ratio,
        ];
        row.extend(seconds.map(|s| format!("{s:.3}")));
        if has_seeds {
            let of = point.perfect_seconds.map(|s| [s.mean, s.min, s.max]);
            row.extend(of.map_or(["-".into(), "-".into(), "-".into()], |s| s.map(|s| format!("{s:.3}"))));
        }
        table.row(row);
    }
    out!("{table}");
    let measured = measured(all);
    if !measured.is_empty() {
        outln!("\nWhat was measured, and over the perfect sender's time with the same winks:\n");
        out!("{measured}");
    }
    Ok(())
}

/// Table 3.1 and its correction for the probabilities of a grid.
fn runs(all: &[Point]) -> Result<Table> {
    let mut ps: Vec<f64> = all.iter().map(|point| point.p).collect();
    ps.dedup();
    let mut table =
        Table::new(&["P", "BETWEEN WINKS (TABLE 3.1)", "LENGTH (TABLE 3.1)", "CONTACT", "OUTAGE"]);
    for p in ps {
        let winks = Winks::new(p, 1.0)?;
        let of = [winks.between(), winks.length(), winks.contact(), winks.outage()];
        let text = |v: f64| if v.is_finite() { format!("{v:.2}") } else { "-".into() };
        table.row([p.to_string()].into_iter().chain(of.map(text)));
    }
    Ok(table)
}

/// What was measured beside what models say.
fn measured(all: &[Point]) -> Table {
    let mut table = Table::new(&[
        "P",
        "I MS",
        "WHO",
        "RUNS",
        "SECONDS",
        "LEAST",
        "GREATEST",
        "X PERFECT",
        "TIMERS",
        "PROBING",
        "3.11",
        "3.12",
    ]);
    for point in all {
        for of in &point.measured {
            let ratio = of.ratio_to_perfect.map_or("-".into(), |ratio| format!("{:.3}", ratio.mean));
            let models = [
                point.timers_s / point.perfect_s,
                point.probing_ratio,
                point.paper_hosts_alone_s / point.perfect_s,
                point.paper_custody_s / point.perfect_s,
            ];
            let seconds = [of.seconds.mean, of.seconds.min, of.seconds.max].map(|s| format!("{s:.3}"));
            let mut row = vec![point.p.to_string(), number(point.interval_ms), of.subject.clone()];
            row.push(of.seconds.runs.to_string());
            row.extend(seconds);
            row.push(ratio);
            row.extend(models.map(|ratio| format!("{ratio:.3}")));
            table.row(row);
        }
    }
    table
}

/// Without digits that say nothing.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command as Any};

    fn parsed(line: &str) -> Result<WinkArgs, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?;
        let Any::Model(Args { command: Command::Wink(args) }) = cli.command else { panic!("{line}") };
        Ok(*args)
    }

    #[test]
    fn quantities_are_read_as_people_type_them() {
        let args =
            parsed("farlink model wink -p 0.1,0.4 -i 40,1.1s --size 20MB --rate 8M --rtt 500ms --probe 5")
                .unwrap();
        let of = transfer(&args, None);
        assert_eq!((of.size_bytes, of.rate_bps, of.rtt_s, of.probe_s), (20_000_000, 8_000_000, 0.5, 0.005));
        assert_eq!(grid(&args, None), (vec![0.1, 0.4], vec![0.04, 1.1]));
        let papers = transfer(&parsed("farlink model wink --perfect-time 1.86").unwrap(), None);
        assert!((papers.perfect_s() - 1.86).abs() < 1e-6);
        let whole = grid(&parsed("farlink model wink --grid").unwrap(), None);
        assert_eq!((whole.0.len(), whole.1.len()), (8, 54));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, reason) in [
            ("farlink model wink --rate fast", "does not begin with a number"),
            ("farlink model wink -i 40parsec", "unknown unit"),
            ("farlink model wink -p much", "a number is expected"),
            (
                "farlink model wink -p 0.1,1.2",
                "the probability p that the link is away must be from 0 to below 1",
            ),
            ("farlink model wink -p=-0.1", "from 0 to below 1"),
            ("farlink model wink -i 0", "the interval i must be longer than zero"),
            ("farlink model wink --perfect-time 0s", "longer than zero"),
            ("farlink model wink --perfect-time 1s --rate 8M", "cannot be used with"),
            ("farlink model wink --grid -p 0.1", "cannot be used with"),
            ("farlink model wink --over r.json --rtt 1ms", "cannot be used with"),
            ("farlink model wink --side left", "entry, exit"),
        ] {
            let said = parsed(line).unwrap_err();
            assert!(said.contains(reason), "{line}: {said}");
        }
        for (line, reason) in [
            ("farlink model wink --seeds 5..5", "no seed in this range"),
            ("farlink model wink --over /nowhere.json", "/nowhere.json cannot be read"),
            ("farlink model wink --size 0", "a size and a rate above zero"),
        ] {
            let said = format!("{:#}", wink(&parsed(line).unwrap()).unwrap_err());
            assert!(said.contains(reason), "{line}: {said}");
        }
    }
}
