//! `farlink bench` (what `make bench` runs): speed and size of the datapath, beside plain
//! forwarding and HAProxy, in one run.

mod bed;
mod datagrams;
mod hostile;
mod load;
mod many;
mod measure;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use bed::{Bed, Variant};
use measure::{Usage, Used};
use report::Cell;

pub use load::{LoadArgs, run as load};

/// `farlink bench`
#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// Seconds that each throughput measurement takes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rounds of all throughput measurements; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Open idle connections for the memory measurement
    #[arg(long, default_value_t = 10_000)]
    idle: u64,
    /// Connections that carry data at once
    #[arg(long, default_value_t = 10_000)]
    many: u64,
    /// Open connections in the measurements `hostile` and `day`
    #[arg(long, default_value_t = 10_000, value_name = "CONNECTIONS")]
    hostile: usize,
    /// Short HTTP connections per second
    #[arg(long, default_value_t = 5_000)]
    rate: u64,
    /// Only these measurements: bulk, latency, http, many, udp, idle, short, hostile, day (the last
    /// two need no privilege; day runs only when named)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these datapaths: forward, farlink, farlink-custody, farlink-before, haproxy,
    /// haproxy-tuned
    #[arg(long, value_delimiter = ',')]
    datapath: Vec<String>,
    /// How farlink diverts traffic: auto, bump, policy [default: auto]
    #[arg(long, value_name = "METHOD")]
    divert: Option<farlink_linux::divert::Method>,
    /// Another build of farlink to compare with, in the same rounds
    #[arg(long, value_name = "PROGRAM")]
    before: Option<std::path::PathBuf>,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// Numbers of parallel connections in the throughput measurement.
const FLOWS: [u64; 2] = [1, 8];
/// Time for connections to reach full speed; not counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// Request and answer pairs in the latency measurement.
const PINGS: u64 = 5_000;
/// The measurement with a short processor: how long, which share the gateway gets, short
/// connections per second.
const SHORT_SECONDS: u64 = 8;
const SHORT_SHARE: f64 = 0.2;
const SHORT_RATE: u64 = 200;
/// How long the HTTP measurement lasts.
const HTTP_SECONDS: u64 = 10;

/// Runs it.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let named = |what: &str| args.only.iter().any(|o| o == what);
    let wanted = |what: &str| args.only.is_empty() || named(what);
    if let Some(method) = args.divert {
        method.tell_children();
    }
    // As in the laboratory: what makes the load stands for other machines.
    farlink_linux::priority::raise();
    let mut cells = Vec::new();
    if wanted("hostile") {
        cells.extend(hostile::packets(args.hostile));
    }
    if named("day") {
        cells.push(hostile::day(args.hostile)?);
    }
    if !args.only.is_empty() && args.only.iter().all(|o| o == "hostile" || o == "day") {
        return finish(args, &cells);
    }
    if !farlink_linux::caps::can_administer() {
        bail!("the benchmark makes network namespaces: run it as root");
    }
    let busy = measure::busy_share(Duration::from_secs(1))?;
    if busy > 0.1 {
        eprintln!(
            "note: this machine is {:.0} % busy with something else; figures will be low",
            busy * 100.0
        );
    }
    if wanted("many") && args.many > bed::HAPROXY_CONNECTIONS_MAX {
        progress(&format!(
            "HAProxy is left out of {} connections at once: it needs two descriptors for each, and is given {} \
             connections (--many)",
            args.many,
            bed::HAPROXY_CONNECTIONS_MAX
        ));
    }
    let bed = Bed::new(args.before.clone())?;
    let mut variants = bed.variants();
    if !args.datapath.is_empty() {
        variants.retain(|v| args.datapath.iter().any(|name| name == v.name()));
    }
    // Every round measures every datapath, so that whatever else the machine does meets all of them
    // alike.
    for round in 0..args.rounds {
        for &variant in &variants {
            if wanted("bulk") {
                bulk(&bed, variant, round, args.seconds, &mut cells)?;
            }
            if wanted("latency") && !variant.is_haproxy() {
                cells.push(latency(&bed, variant, round)?);
            }
            if wanted("http") && !variant.is_haproxy() {
                cells.push(http(&bed, variant, round, args.rate)?);
            }
            if wanted("udp") && !variant.is_haproxy() && variant != Variant::FarlinkCustody {
                cells.extend(datagrams::measure(&bed, variant, round, args.seconds)?);
            }
            if wanted("many") && !is_too_much(variant, args.many) {
                cells.push(many(&bed, variant, round, args.many, args.seconds)?);
            }
        }
    }
    if wanted("short") && variants.contains(&Variant::Farlink) {
        cells.push(short(&bed)?);
    }
    if wanted("idle") {
        cells.push(idle(&bed, args.idle)?);
    }
    drop(bed);
    finish(args, &cells)
}

/// Prints and writes what was measured.
fn finish(args: &BenchArgs, cells: &[Cell]) -> Result<ExitCode> {
    print!("{}{}", report::text(cells), hostile::text(cells));
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report::json(cells))?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let intact = cells.iter().all(|c| c.intact);
    Ok(if intact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_too_much(variant: Variant, flows: u64) -> bool {
    variant.is_haproxy() && flows > bed::HAPROXY_CONNECTIONS_MAX
}

/// Says on the terminal what is under way.
fn progress(text: &str) {
    eprintln!("bench: {text}");
}

fn bulk(bed: &Bed, variant: Variant, round: u32, seconds: u64, cells: &mut Vec<Cell>) -> Result<()> {
    let mut running = bed.start(variant)?;
    for flows in FLOWS {
        let (flows_text, seconds_text) = (flows.to_string(), seconds.to_string());
        let load = bed.client_load(&["bulk", "--flows", &flows_text, "--seconds", &seconds_text])?;
        std::thread::sleep(WARM_UP);
        let before = Usage::now(&running.pids())?;
        std::thread::sleep(Duration::from_secs(seconds).saturating_sub(WARM_UP / 2));
        let used = Usage::now(&running.pids())?.since(&before);
        let result = load.result()?;
        let goodput_bps = result["bits_per_second"].as_f64().unwrap_or(0.0);
        let split = running.flows_split();
        // Both rates were taken while the same steady stream was flowing.
        let per_gb = |cpu_s| per_gigabyte(cpu_s, goodput_bps, used.seconds);
        progress(&format!("{} {flows} flows: {:.2} Gbit/s", variant.name(), goodput_bps / 1e9));
        let metrics = json!({
            "cpu_s_per_gb": per_gb(used.machine_cpu_s),
            "process_cpu_s_per_gb": per_gb(used.process_cpu_s),
            "flows_split": split,
        });
        cells.push(Cell {
            test: "bulk",
            variant: variant.name(),
            params: json!({"flows": flows}),
            repeat: round,
            seconds: result["seconds"].as_f64().unwrap_or(0.0),
            goodput_bps: Some(goodput_bps),
            intact: goodput_bps > 0.0 && is_split(variant, split, flows) && running.is_running()?,
            metrics,
        });
    }
    running.stop()
}

fn latency(bed: &Bed, variant: Variant, round: u32) -> Result<Cell> {
    let running = bed.start(variant)?;
    let result = bed.client_load(&["ping", "--count", &PINGS.to_string()])?.result()?;
    let split = running.flows_split();
    running.stop()?;
    let median = result["p50_us"].as_f64().unwrap_or(0.0);
    progress(&format!("{} latency: {median:.0} us", variant.name()));
    Ok(Cell {
        test: "latency",
        variant: variant.name(),
        params: json!({"size_bytes": load::PING_BYTES}),
        repeat: round,
        seconds: result["seconds"].as_f64().unwrap_or(0.0),
        goodput_bps: None,
        intact: is_split(variant, split, 1),
        metrics: with(result, "flows_split", json!(split)),
    })
}

fn http(bed: &Bed, variant: Variant, round: u32, rate: u64) -> Result<Cell> {
    let running = bed.start(variant)?;
    let (rate_text, seconds) = (rate.to_string(), HTTP_SECONDS.to_string());
    let result = bed.client_load(&["http", "--rate", &rate_text, "--seconds", &seconds])?.result()?;
    let split = running.flows_split();
    running.stop()?;
    progress(&format!(
        "{} http: {} connections, {} failed",
        variant.name(),
        result["connections"],
        result["failed"]
    ));
    Ok(Cell {
        test: "http",
        variant: variant.name(),
        params: json!({"rate_per_s": rate, "size_bytes": load::HTTP_BODY_BYTES}),
        repeat: round,
        seconds: result["seconds"].as_f64().unwrap_or(0.0),
        goodput_bps: None,
        intact: result["failed"] == json!(0)
            && is_split(variant, split, result["connections"].as_u64().unwrap_or(u64::MAX)),
        metrics: with(result, "flows_split", json!(split)),
    })
}

fn many(bed: &Bed, variant: Variant, round: u32, flows: u64, seconds: u64) -> Result<Cell> {
    let mut running = bed.start(variant)?;
    let pids = running.pids();
    let before = measure::resident_bytes(&pids)?;
    let arguments = ["many", "--flows", &flows.to_string(), "--seconds", &seconds.to_string()];
    let mut load = bed.client_load(&arguments)?;
    let mut counted = || -> Result<_> {
        // The load says when it begins to count.
        load.line()?;
        let spent = Usage::now(&pids)?;
        Ok((load.line()?, Usage::now(&pids)?.since(&spent)))
    };
    // A datapath that resets connections has failed; the others are measured all the same.
    let (result, used) = counted().unwrap_or_else(|e| {
        progress(&format!("{} {flows} flows at once failed: {e:#}", variant.name()));
        (json!({"error": format!("{e:#}")}), Used::default())
    });
    load.end();
    let resident = measure::resident_bytes(&pids)?.saturating_sub(before);
    let split = running.flows_split();
    let is_running = running.is_running()?;
    running.stop()?;
    let goodput_bps = result["bits_per_second"].as_f64().unwrap_or(0.0);
    progress(&format!(
        "{} {flows} flows at once: {:.2} Gbit/s, {} of them moved",
        variant.name(),
        goodput_bps / 1e9,
        result["flows_with_data"]
    ));
    let metrics = [
        ("flows_split", json!(split)),
        ("resident_bytes", json!(resident)),
        ("cpu_s_per_gb", json!(per_gigabyte(used.machine_cpu_s, goodput_bps, used.seconds))),
        ("process_cpu_s_per_gb", json!(per_gigabyte(used.process_cpu_s, goodput_bps, used.seconds))),
    ];
    Ok(Cell {
        test: "many",
        variant: variant.name(),
        params: json!({"flows": flows}),
        repeat: round,
        seconds: result["seconds"].as_f64().unwrap_or(0.0),
        goodput_bps: Some(goodput_bps),
        intact: goodput_bps > 0.0 && is_split(variant, split, flows) && is_running,
        metrics: metrics.into_iter().fold(result, |all, (key, value)| with(all, key, value)),
    })
}

/// Processor time for each gigabyte of a steady stream.
fn per_gigabyte(cpu_s: f64, goodput_bps: f64, seconds: f64) -> f64 {
    let gigabytes = goodput_bps * seconds / 8e9;
    if gigabytes > 0.0 { cpu_s / gigabytes } else { 0.0 }
}

fn idle(bed: &Bed, count: u64) -> Result<Cell> {
    let running = bed.start(Variant::Farlink)?;
    let pids = running.pids();
    let before = measure::resident_bytes(&pids)?;
    let mut load = bed.client_load(&["idle", "--count", &count.to_string()])?;
    let opened = load.line()?;
    let open = measure::resident_bytes(&pids)?;
    let split = running.flows_split();
    // Until all have fallen asleep, and what that frees has been given back.
    std::thread::sleep(bed::DORMANT_AFTER * 3);
    let asleep = measure::resident_bytes(&pids)?;
    let status = running.status();
    load.end();
    running.stop()?;
    let each = |bytes: u64| bytes.saturating_sub(before) as f64 / count.max(1) as f64;
    progress(&format!("{count} idle flows: {:.0} bytes resident each", each(asleep)));
    Ok(Cell {
        test: "idle",
        variant: Variant::Farlink.name(),
        params: json!({"flows": count}),
        repeat: 0,
        seconds: opened["seconds"].as_f64().unwrap_or(0.0),
        goodput_bps: None,
        intact: opened["open"] == json!(count) && is_split(Variant::Farlink, split, count),
        metrics: json!({
            "resident_bytes_each_open": each(open),
            "resident_bytes_each_idle": each(asleep),
            "flows_split": split,
            "flows_dormant": status.pointer("/engine/flows_dormant"),
            "table_bytes": status.pointer("/engine/table_bytes"),
            "pool_bytes": status.pointer("/engine/pool_bytes"),
        }),
    })
}

/// The gateway gets a fifth of a processor while bulk flows want more: new connections are
/// forwarded and none fails, and afterwards new ones are split again.
fn short(bed: &Bed) -> Result<Cell> {
    let mut running = bed.start(Variant::Farlink)?;
    let seconds = SHORT_SECONDS.to_string();
    let bulk_seconds = (SHORT_SECONDS + 5).to_string();
    let bulk = bed.client_load(&["bulk", "--flows", "4", "--seconds", &bulk_seconds])?;
    let throttle = running.throttle(SHORT_SHARE);
    let http = ["http", "--rate", &SHORT_RATE.to_string(), "--seconds", &seconds];
    let load = bed.client_load(&http)?;
    std::thread::sleep(Duration::from_secs(SHORT_SECONDS / 2));
    let said = running.status().pointer("/engine/short_of_time") == Some(&json!(true));
    let result = load.result()?;
    drop(throttle);
    let forwarded = running.counter("flows_forwarded_busy").unwrap_or(0);
    let rate = bulk.result()?["bits_per_second"].as_f64();
    // Until the shortage counts as over.
    std::thread::sleep(WARM_UP * 5);
    let before = running.counter("flows_split").unwrap_or(0);
    let calm = bed.client_load(&["http", "--rate", "20", "--seconds", "2"])?.result()?;
    let split_again = running.counter("flows_split").unwrap_or(0).saturating_sub(before);
    let is_running = running.is_running()?;
    running.stop()?;
    progress(&format!(
        "a fifth of a processor: {} connections, {} failed, {forwarded} forwarded; afterwards {split_again} of {} split",
        result["connections"], result["failed"], calm["connections"]
    ));
    let all = [&result, &calm].iter().all(|r| r["failed"] == json!(0));
    let calm_count = calm["connections"].as_u64().unwrap_or(u64::MAX);
    let metrics = [
        ("said", json!(said)),
        ("flows_forwarded_busy", json!(forwarded)),
        ("flows_split_afterwards", json!(split_again)),
    ];
    Ok(Cell {
        test: "short",
        variant: Variant::Farlink.name(),
        params: json!({"rate_per_s": SHORT_RATE, "share": SHORT_SHARE}),
        repeat: 0,
        seconds: result["seconds"].as_f64().unwrap_or(0.0),
        goodput_bps: rate,
        intact: all && said && forwarded > 0 && split_again >= calm_count && is_running,
        metrics: metrics.into_iter().fold(result, |all, (key, value)| with(all, key, value)),
    })
}

/// A figure of Farlink that comes from connections that were not split says nothing.
fn is_split(variant: Variant, split: Option<u64>, wanted: u64) -> bool {
    !variant.is_farlink() || split.is_some_and(|n| n >= wanted)
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}
