//! What hostile packets cost, one by one, and what many connections leave behind in a day: in this
//! process, without a network.

use std::time::Instant;

use anyhow::Result;
use farlink_sim::hostile::day;
use farlink_sim::hostile::work::{Case, measure};
use serde_json::{Value, json};

use super::report::Cell;
use super::{measure as machine, progress};

/// What one packet may cost at the very most, microseconds.
const BOUND_US: f64 = 50.0;
/// Packets of each case.
const PACKETS: usize = 4_000;
/// The shortest time of so many plays counts for each packet.
const PLAYS: usize = 7;
/// By so much what is held after a day may exceed what was held after an hour.
const GROWTH_MAX: f64 = 1.01;

/// Every kind of hostile packet, into a gateway with `flows` connections.
pub fn packets(flows: usize) -> Vec<Cell> {
    let begin = Instant::now();
    let clock = || u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Case::ALL
        .into_iter()
        .map(|case| {
            let from = Instant::now();
            let cost = measure(case, flows, PACKETS, PLAYS, &clock);
            let us = |ns: u64| ns as f64 / 1e3;
            progress(&format!(
                "{}: median {:.1} us, worst {:.1} us",
                case.name(),
                us(cost.median_ns),
                us(cost.worst_ns)
            ));
            Cell {
                test: "hostile",
                variant: "farlink",
                params: json!({"case": case.name(), "flows": flows}),
                repeat: 0,
                seconds: from.elapsed().as_secs_f64(),
                goodput_bps: None,
                intact: us(cost.worst_ns) <= BOUND_US,
                metrics: json!({
                    "median_us": us(cost.median_ns),
                    "worst_us": us(cost.worst_ns),
                    "bound_us": BOUND_US,
                    "packets": cost.packets,
                    "packets_out": cost.packets_out,
                    "held_bytes": cost.held_bytes,
                    "at_stake_bytes": cost.at_stake_bytes,
                }),
            }
        })
        .collect()
}

/// Connections that say something every half a minute, for a day of virtual time.
pub fn day(flows: usize) -> Result<Cell> {
    let from = Instant::now();
    let pid = [std::process::id()];
    let before = machine::resident_bytes(&pid)?;
    let mut resident = Vec::new();
    let looks = day::run(flows, &[1.0, 6.0, 12.0, 24.0], &mut |look| {
        let now = machine::resident_bytes(&pid).unwrap_or(0).saturating_sub(before);
        progress(&format!("after {:.0} h: {} bytes held, {now} resident", look.hours, look.held_bytes));
        resident.push(now);
    });
    let each: Vec<Value> = looks
        .iter()
        .zip(&resident)
        .map(|(l, r)| json!({"hours": l.hours, "held_bytes": l.held_bytes, "timers_bytes": l.timers_bytes, "resident_bytes": r}))
        .collect();
    let held = |look: Option<&day::Look>| look.map_or(0.0, |l| l.held_bytes as f64);
    let (first, last) = (held(looks.first()), held(looks.last()));
    Ok(Cell {
        test: "day",
        variant: "farlink",
        params: json!({"flows": flows}),
        repeat: 0,
        seconds: from.elapsed().as_secs_f64(),
        goodput_bps: None,
        intact: first > 0.0 && last <= first * GROWTH_MAX,
        metrics: json!({
            "held_after_1_h_bytes": first,
            "held_after_24_h_bytes": last,
            "exchanges": looks.last().map(|l| l.exchanges),
            "looks": each,
        }),
    })
}

/// For people.
pub fn text(cells: &[Cell]) -> String {
    let of = |test: &'static str| cells.iter().filter(move |c| c.test == test);
    let mut out = String::new();
    if of("hostile").next().is_some() {
        let flows = of("hostile").find_map(|c| c.params["flows"].as_u64()).unwrap_or(0);
        out += &format!(
            "\nHostile packets, one by one, {flows} connections open (of {PLAYS} plays each packet's shortest time counts)\n\
             {:<14} {:>10} {:>10} {:>10}\n",
            "", "median us", "worst us", "packets"
        );
    }
    for c in of("hostile") {
        let number = |name: &str| c.metrics[name].as_f64().unwrap_or(0.0);
        out += &format!(
            "{:<14} {:>10.2} {:>10.2} {:>10.0}   {} (bound {BOUND_US:.0} us)\n",
            c.params["case"].as_str().unwrap_or(""),
            number("median_us"),
            number("worst_us"),
            number("packets"),
            if c.intact { "PASS" } else { "FAIL" }
        );
    }
    for c in of("day") {
        let (first, last) = (&c.metrics["held_after_1_h_bytes"], &c.metrics["held_after_24_h_bytes"]);
        out += &format!(
            "\n{} connections that speak every {} s: {first} bytes held after an hour, {last} after a day   {}\n",
            c.params["flows"],
            day::EVERY.as_secs(),
            if c.intact { "PASS" } else { "FAIL" }
        );
    }
    out
}
