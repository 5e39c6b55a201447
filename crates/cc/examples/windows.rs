//! Drives every controller along the same paths; prints what each delivered and draws its window
//! over time: `cargo run --release -p farlink-cc --example windows -- docs/controllers.svg`.

use std::error::Error;

use farlink_cc::{Config, Kind};
use farlink_wire::time::{Duration, Instant};
use plotters::coord::Shift;
use plotters::prelude::*;

#[allow(dead_code)]
#[path = "../tests/common/net.rs"]
mod net;

use net::{Link, Net};

/// Packets of 1,250 bytes: 1,000 a second.
const RATE_BPS: u64 = 10_000_000;
const MSS: u32 = 1250;
const RTT_MS: u64 = 600;
/// The bandwidth-delay product in packets; the queue is as large.
const BDP_PACKETS: u64 = RATE_BPS * RTT_MS / 1000 / 8 / MSS as u64;
const SECONDS: u64 = 90;
/// In the middle of the run something changes where the title says so.
const CHANGE_AT: u64 = 45;
/// Windows are read this often.
const STEP: Duration = Duration::from_millis(200);
/// Beyond this many packets a line leaves the picture.
const TOP: f64 = 1800.0;

/// Colours that differ for most eyes (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
];
const LIMIT: RGBColor = RGBColor(0, 0, 0);

struct Scenario {
    title: &'static str,
    loss_ppm: u64,
    /// The rate that holds from the middle on.
    then_bps: u64,
    /// A second sender of the same kind begins in the middle.
    second: bool,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { title: "nothing is lost", loss_ppm: 0, then_bps: RATE_BPS, second: false },
    Scenario { title: "1 % of the packets is lost", loss_ppm: 10_000, then_bps: RATE_BPS, second: false },
    Scenario { title: "half the rate from 45 s on", loss_ppm: 0, then_bps: RATE_BPS / 2, second: false },
    Scenario { title: "a second sender from 45 s on", loss_ppm: 0, then_bps: RATE_BPS, second: true },
];

struct Run {
    kind: Kind,
    /// Seconds, packets: of the first sender.
    windows: Vec<(f64, f64)>,
    /// What the link took in the second half, of what it could.
    used: f64,
    /// The second sender's part of that.
    share: Option<f64>,
    lost: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let runs: Vec<Vec<Run>> = SCENARIOS.iter().map(|s| kinds().map(|k| run(s, k)).collect()).collect();
    for (scenario, runs) in SCENARIOS.iter().zip(&runs) {
        println!("{}", scenario.title);
        for r in runs {
            let share =
                r.share.map_or(String::new(), |s| format!(", the second sender {:.0} % of it", s * 100.0));
            println!(
                "  {:6} {:3.0} % of the link from {CHANGE_AT} to {SECONDS} s{share}; {} packets lost",
                r.kind,
                r.used * 100.0,
                r.lost
            );
        }
    }
    match std::env::args().nth(1) {
        Some(file) => draw(&file, &runs),
        None => Ok(()),
    }
}

/// All but the one that has no window of its own: with a known rate the egress queue is the clock.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|k| *k != Kind::FixedRate)
}

fn run(scenario: &Scenario, kind: Kind) -> Run {
    let config = Config {
        kind,
        mss: MSS,
        handshake_rtt: Some(Duration::from_millis(RTT_MS)),
        unfair_window_bytes: Some(BDP_PACKETS * u64::from(MSS)),
        ..Config::default()
    };
    let mut net = Net::new(Link {
        rate_bps: RATE_BPS,
        rtt_ms: RTT_MS,
        buffer_packets: BDP_PACKETS,
        loss_ppm: scenario.loss_ppm,
        access_bps: None,
    });
    net.join(&config);
    let mut windows = Vec::new();
    let half = Instant::ZERO + Duration::from_secs(CHANGE_AT);
    let end = Instant::ZERO + Duration::from_secs(SECONDS);
    let watch = |net: &mut Net, until: Instant, windows: &mut Vec<(f64, f64)>| {
        while net.now < until {
            net.run(STEP);
            let packets = net.flows[0].controller.cwnd_bytes() as f64 / f64::from(MSS);
            windows.push((net.now.since(Instant::ZERO).as_secs_f64(), packets.min(TOP)));
        }
    };
    watch(&mut net, half, &mut windows);
    net.link.rate_bps = scenario.then_bps;
    if scenario.second {
        net.join(&Config { seed: 1, ..config });
    }
    let delivered = |net: &Net| net.flows.iter().map(|f| f.delivered).collect::<Vec<u64>>();
    let before = delivered(&net);
    watch(&mut net, end, &mut windows);
    let after = delivered(&net);
    let sum = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    let could = scenario.then_bps / 8 / u64::from(MSS) * (SECONDS - CHANGE_AT);
    let second = after.get(1).zip(before.get(1)).map(|(a, b)| (a - b) as f64 / sum.max(1) as f64);
    Run {
        kind,
        windows,
        used: sum as f64 / could as f64,
        share: second,
        lost: net.flows.iter().map(|f| f.lost).sum(),
    }
}

fn draw(file: &str, runs: &[Vec<Run>]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(file, (1000, 760)).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, rest) = root.split_vertically(58);
    let title = format!(
        "Congestion windows: {} Mbit/s, {RTT_MS} ms, a queue of one bandwidth-delay product ({BDP_PACKETS} packets)",
        RATE_BPS / 1_000_000
    );
    head.draw(&Text::new(title, (20, 8), ("sans-serif", 17)))?;
    legend(&head)?;
    for ((area, scenario), runs) in rest.split_evenly((2, 2)).iter().zip(&SCENARIOS).zip(runs) {
        panel(area, scenario, runs)?;
    }
    root.present()?;
    Ok(())
}

fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
    let mut x = 20;
    let names = kinds().map(Kind::name).zip(COLOURS).chain([("full link, full queue", LIMIT)]);
    for (name, colour) in names {
        let dashes: &[i32] = if colour == LIMIT { &[0, 10, 20] } else { &[0, 4, 8, 12, 16, 20] };
        for from in dashes {
            area.draw(&PathElement::new([(x + from, 42), (x + from + 4, 42)], colour.stroke_width(2)))?;
        }
        area.draw(&Text::new(name, (x + 30, 35), ("sans-serif", 14)))?;
        x += 96;
    }
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    scenario: &Scenario,
    runs: &[Run],
) -> Result<(), Box<dyn Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(scenario.title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..SECONDS as f64, 0.0..TOP)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("time (s)")
        .y_desc("window (packets)")
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| format!("{v:.0}"))
        .draw()?;
    // A full link, and a full queue besides.
    let bdp = BDP_PACKETS as f64;
    let half = bdp * scenario.then_bps as f64 / RATE_BPS as f64;
    let (middle, end) = (CHANGE_AT as f64, SECONDS as f64);
    for queue in [0.0, bdp] {
        let edge = [(0.0, bdp + queue), (middle, bdp + queue), (middle, half + queue), (end, half + queue)];
        chart.draw_series(DashedLineSeries::new(edge, 4, 4, LIMIT.into()))?;
    }
    for (run, colour) in runs.iter().zip(COLOURS) {
        chart.draw_series(LineSeries::new(run.windows.iter().copied(), colour.stroke_width(2)))?;
    }
    Ok(())
}
