//! `farlink model asymmetric`: what a slow return link leaves of a download, and which size of
//! segment is best.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use farlink_lab::html::{Source, asymmetric};
use farlink_lab::model::asymmetric::{Asymmetric, Losses, Size, datagrams_max_per_s};
use farlink_wire::time::Duration;
use serde_json::json;

use super::{milliseconds, number, rate, size, write};
use crate::out::{out, outln};
use crate::view::Table;

/// The paper's link.
const USUAL_RATE: &str = "8M";
const USUAL_UP_BPS: [u64; 4] = [128_000, 64_000, 32_000, 9_600];

pub(super) const EXAMPLES: &str = "Examples:
  farlink model asymmetric                              the paper's link: 8 Mbit/s; 128, 64, 32 and 9.6 kbit/s back
  farlink model asymmetric --rate-up 32k --sizes        each size of segment
  farlink model asymmetric --rtt 500ms --window 65535 --fragment-loss 1e-3
  farlink model asymmetric --acks 0.5 --no-timestamps   the paper's clients: every second segment is acknowledged
  farlink sim run asymmetric --only case=paper,size_bytes=10000000 --json a.json
  farlink model asymmetric --over a.json --svg plots    models over what was measured

Columns:
  k            packets brought for each acknowledgement that can go back (1); k <= 2 is enough for hosts
  n, payload   packets of a segment, and its payload in bytes
  per ack      payload for each acknowledgement; `needed`: what would fill the link
  load         part of the return link that acknowledgements take
  loss         of segments (4); `again`: what is sent again (7)
  Mbit/s       the least of: link x payload share, acknowledgements, window, losses (5)
  retransmit   whether enough segments are in the window to tell a loss (3, 6)

Exit status: 0 when it was calculated, 1 when a file cannot be used, 2 for a command line that makes no sense.";

#[derive(clap::Args, Debug)]
pub(super) struct AsymmetricArgs {
    /// Rate of the link towards the client
    #[arg(long, value_name = "RATE", default_value = USUAL_RATE, value_parser = rate)]
    rate: u64,
    /// Rates of the way back [default: 128k,64k,32k,9.6k, or those of the results]
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = rate)]
    rate_up: Vec<u64>,
    /// Round-trip times [default: 0, or those of the results]
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = milliseconds)]
    rtt: Vec<Duration>,
    /// MTU of the path in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: u32,
    /// IPv6 in place of IPv4
    #[arg(long)]
    v6: bool,
    /// Segments without timestamps
    #[arg(long)]
    no_timestamps: bool,
    /// The client's window [default: none in the way]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    window: Option<u64>,
    /// Acknowledgements for each segment that is cut: 1 today, 0.5 in the paper
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    acks: f64,
    /// Probability that a fragment, or a packet, is lost
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    fragment_loss: f64,
    /// Probability that a bit is wrong, as in the paper
    #[arg(long, value_name = "P", conflicts_with = "fragment_loss")]
    ber: Option<f64>,
    /// All sizes of segment, not the normal, the paper's and the best one alone
    #[arg(long)]
    sizes: bool,
    /// Results of `lab run --json` or `sim run --json` to compare with
    #[arg(long, value_name = "RESULT")]
    over: Option<PathBuf>,
    /// Write a plot for each round-trip time into a directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write it as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &AsymmetricArgs) -> Result<ExitCode> {
    let results = args.over.as_deref().map(results).transpose()?;
    let links = links(args, results.as_ref());
    links.iter().try_for_each(Asymmetric::check)?;
    let measured = results.map_or(Vec::new(), |results| results.measured);
    let to_stdout = args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if !to_stdout {
        print(args, &links);
        print_measured(&links, &measured);
    }
    if let Some(directory) = &args.svg {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        std::fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        let mut by_rtt = links.clone();
        by_rtt.dedup_by(|a, b| a.rtt_s == b.rtt_s);
        let rates: Vec<f64> = links.iter().map(|link| link.rate_up_bps).collect();
        let told = (under(args, &links), format!("farlink {command}"));
        for (name, text) in asymmetric::plots(&by_rtt, &rates, &measured, (&told.0, &told.1))? {
            write(&directory.join(format!("{name}.svg")), &text)?;
        }
    }
    if let Some(path) = &args.json {
        let all: Vec<_> = links.iter().map(|link| of_link(link, args)).collect();
        let text = serde_json::to_string_pretty(&json!({ "links": all, "measured": measured }))?;
        if to_stdout {
            outln!("{text}");
        } else {
            write(path, &(text + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn results(path: &std::path::Path) -> Result<asymmetric::Results> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
    asymmetric::results(&Source { name, text })
}

/// Each round-trip time with each rate of the way back.
fn links(args: &AsymmetricArgs, results: Option<&asymmetric::Results>) -> Vec<Asymmetric> {
    let measured = |of: fn(&asymmetric::Measured) -> f64| -> Vec<f64> {
        let mut all: Vec<f64> = results.iter().flat_map(|r| r.measured.iter().map(of)).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    };
    let or = |asked: Vec<f64>, measured: Vec<f64>, usual: Vec<f64>| {
        [asked, measured, usual].into_iter().find(|list| !list.is_empty()).unwrap_or_default()
    };
    let rates = or(
        args.rate_up.iter().map(|bps| *bps as f64).collect(),
        measured(|m| m.rate_up_bps).into_iter().rev().collect(),
        USUAL_UP_BPS.map(|bps| bps as f64).to_vec(),
    );
    let rtts = or(args.rtt.iter().map(Duration::as_secs_f64).collect(), measured(|m| m.rtt_s), vec![0.0]);
    let link = |rtt_s: f64, rate_up_bps: f64| Asymmetric {
        rate_bps: results.map_or(args.rate as f64, |r| r.rate_bps),
        rate_up_bps,
        rtt_s,
        mtu_bytes: args.mtu,
        is_v6: args.v6,
        has_timestamps: !args.no_timestamps,
        window_bytes: args.window.map(|bytes| bytes as f64),
        losses: args.ber.map_or(Losses::Fragment(args.fragment_loss), Losses::Bit),
        acks_per_oversized: args.acks,
    };
    rtts.iter().flat_map(|rtt_s| rates.iter().map(move |bps| link(*rtt_s, *bps))).collect()
}

/// The sizes that are told of a link: with their names.
fn told(link: &Asymmetric, all: bool) -> Vec<(&'static str, Size)> {
    let best = link.best();
    let is_best = |size: &Size| best.is_some_and(|best| best.fragments == size.fragments);
    let name = |size: &Size| match size.fragments {
        _ if is_best(size) => "best",
        1 => "normal",
        3 => "paper",
        _ => "",
    };
    let named = link.sizes().into_iter().map(|size| (name(&size), size));
    named.filter(|(name, _)| all || !name.is_empty()).collect()
}

fn of_link(link: &Asymmetric, args: &AsymmetricArgs) -> serde_json::Value {
    let sizes = told(link, args.sizes).into_iter();
    let sizes: Vec<_> = sizes.map(|(name, size)| json!({ "name": name, "size": size })).collect();
    let eta = link.best().map_or(1.0, |best| best.eta);
    json!({ "link": link, "ack_bytes": link.ack_bytes(), "needed_per_ack_bytes": link.needed_per_ack_bytes(eta), "sizes": sizes })
}

/// The conditions in words.
fn under(args: &AsymmetricArgs, links: &[Asymmetric]) -> String {
    let rate_bps = links.first().map_or(0.0, |link| link.rate_bps);
    let mut words = vec![format!("{} Mbit/s", number(rate_bps / 1e6))];
    words.push(if args.v6 { "IPv6".into() } else { "IPv4".into() });
    words.push(format!("MTU {}", args.mtu));
    words.extend(args.window.map(|bytes| format!("window {bytes} B")));
    words.extend((args.fragment_loss > 0.0).then(|| format!("fragments lost {}", args.fragment_loss)));
    words.extend(args.ber.map(|p| format!("bit errors {p}")));
    words.join(", ")
}

fn print(args: &AsymmetricArgs, links: &[Asymmetric]) {
    let ack_bytes = links.first().map_or(0, Asymmetric::ack_bytes);
    outln!("{}, acknowledgements of {ack_bytes} bytes\n", under(args, links));
    let mut table = Table::new(&[
        "RTT MS",
        "KBIT/S BACK",
        "SIZE",
        "N",
        "PAYLOAD",
        "K",
        "PER ACK",
        "NEEDED",
        "LOAD",
        "LOSS",
        "AGAIN",
        "MBIT/S",
        "RETRANSMIT",
    ]);
    let mut too_many = false;
    for link in links {
        for (name, size) in told(link, args.sizes) {
            too_many |= !link.is_v6 && size.fragments > 1 && size.datagrams_per_s > datagrams_max_per_s();
            table.row([
                number(link.rtt_s * 1e3),
                number(link.rate_up_bps / 1e3),
                if name.is_empty() { "-".into() } else { name.into() },
                size.fragments.to_string(),
                size.payload_bytes.to_string(),
                number(size.k),
                number(size.payload_per_ack_bytes),
                format!("{:.0}", link.needed_per_ack_bytes(size.eta)),
                format!("{:.0} %", 100.0 * size.return_load),
                short(size.loss),
                short(size.repeated_share),
                format!("{:.2}", size.goodput_bps / 1e6),
                if size.has_fast_retransmit { "yes".into() } else { "no".to_owned() },
            ]);
        }
    }
    out!("{table}");
    if too_many {
        outln!(
            "\nMore than {:.0} datagrams a second: IPv4 identifications come again within 240 s (RFC 6864).",
            datagrams_max_per_s()
        );
    }
}

fn short(share: f64) -> String {
    if share > 0.0 { format!("{share:.1e}") } else { "0".into() }
}

/// What was measured beside the model of segments that are not cut, and of the best.
fn print_measured(links: &[Asymmetric], measured: &[asymmetric::Measured]) {
    if measured.is_empty() {
        return;
    }
    outln!("\nWhat was measured:\n");
    let mut table =
        Table::new(&["RTT MS", "KBIT/S BACK", "WHO", "RUNS", "MBIT/S", "PER ACK", "NORMAL", "BEST"]);
    for of in measured {
        let link = links.iter().find(|l| l.rtt_s == of.rtt_s && l.rate_up_bps == of.rate_up_bps);
        let mbit = |size: Option<Size>| size.map_or("-".into(), |s| format!("{:.2}", s.goodput_bps / 1e6));
        table.row([
            number(of.rtt_s * 1e3),
            number(of.rate_up_bps / 1e3),
            of.subject.clone(),
            of.goodput_bps.runs.to_string(),
            format!("{:.2}", of.goodput_bps.mean / 1e6),
            of.payload_per_ack_bytes.map_or("-".into(), |bytes| format!("{bytes:.0}")),
            mbit(link.and_then(|l| l.of(1))),
            mbit(link.and_then(Asymmetric::best)),
        ]);
    }
    out!("{table}");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command as Any};
    use crate::model_cmd::{Args, Command};

    fn parsed(line: &str) -> Result<AsymmetricArgs, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?;
        let Any::Model(Args { command: Command::Asymmetric(args) }) = cli.command else { panic!("{line}") };
        Ok(*args)
    }

    #[test]
    fn quantities_are_read_as_people_type_them() {
        let args =
            parsed("farlink model asymmetric --rate 100M --rate-up 1M,9.6k --rtt 0,500ms --window 65535");
        let links = links(&args.unwrap(), None);
        let shown: Vec<_> = links.iter().map(|l| (l.rtt_s, l.rate_up_bps)).collect();
        assert_eq!(shown, [(0.0, 1e6), (0.0, 9_600.0), (0.5, 1e6), (0.5, 9_600.0)]);
        assert_eq!((links[0].rate_bps, links[0].window_bytes), (1e8, Some(65_535.0)));
        let usual = super::links(&parsed("farlink model asymmetric").unwrap(), None);
        assert_eq!(usual.len(), 4);
        // Normal, the paper's, and the best one.
        let sizes = |all| told(&usual[2], all).iter().map(|(_, s)| s.fragments).collect::<Vec<_>>();
        assert_eq!((sizes(false), sizes(true).len()), (vec![1, 3, 9], 44));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, reason) in [
            ("farlink model asymmetric --rate fast", "does not begin with a number"),
            ("farlink model asymmetric --mtu 67", "68..=65535"),
            ("farlink model asymmetric --ber 1e-9 --fragment-loss 0.1", "cannot be used with"),
        ] {
            let said = parsed(line).unwrap_err();
            assert!(said.contains(reason), "{line}: {said}");
        }
        for (line, reason) in [
            ("farlink model asymmetric --acks 2", "1 at most"),
            ("farlink model asymmetric --fragment-loss 1", "from 0 to below 1"),
            ("farlink model asymmetric --over /nowhere.json", "/nowhere.json cannot be read"),
            ("farlink model asymmetric --rate-up 0", "rates above zero"),
        ] {
            let said = format!("{:#}", run(&parsed(line).unwrap()).unwrap_err());
            assert!(said.contains(reason), "{line}: {said}");
        }
    }
}
