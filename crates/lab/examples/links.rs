//! Draws what delay and rate of links that move do over time, as packets see it:
//! `cargo run --release -p farlink-lab --example links -- docs/links.svg`.

use std::error::Error;

use farlink_channel::Channel;
use farlink_lab::settings::{Settings, Way};
use farlink_wire::time::{Duration, Instant};
use plotters::coord::Shift;
use plotters::prelude::*;

/// A packet that measures the delay, and one of the stream that measures the rate.
const PROBE_BYTES: usize = 40;
const FULL_BYTES: usize = 1_500;
/// Time between two of the former.
const PROBE_EVERY: Duration = Duration::from_millis(5);
/// The stream comes as fast as this: more than any of the links carries.
const STREAM_BPS: f64 = 220e6;
/// A rate is that of so long.
const WINDOW_S: f64 = 0.25;
const SECONDS: f64 = 40.0;
const DELAY: RGBColor = RGBColor(0, 114, 178);
const RATE: RGBColor = RGBColor(213, 94, 0);

struct Picture {
    title: &'static str,
    settings: &'static [&'static str],
    /// When the stream is there, and how fast.
    stream: (f64, f64, f64),
    top_ms: f64,
    top_mbps: f64,
}

const PICTURES: [Picture; 4] = [
    Picture {
        title: "delay_changes = 5s=20ms 10s~20s=60ms 30s=30ms, rate_changes = 15s=4M 25s=8M",
        settings: &[
            "rate=8M",
            "rtt=80ms",
            "delay_changes=5s=20ms 10s~20s=60ms 30s=30ms",
            "rate_changes=15s=4M 25s=8M",
        ],
        stream: (0.0, SECONDS, STREAM_BPS),
        top_ms: 80.0,
        top_mbps: 10.0,
    },
    Picture {
        title: "phases = 15s 20ms-60ms 50M-200M 100ms-200ms",
        settings: &["rate=200M", "rtt=80ms", "phases=15s 20ms-60ms 50M-200M 100ms-200ms", "seed=4"],
        stream: (0.0, SECONDS, STREAM_BPS),
        top_ms: 250.0,
        top_mbps: 220.0,
    },
    Picture {
        title: "demand = 16k 2M 600ms; 1 Mbit/s from 10 to 20 s (delay with its queue)",
        settings: &["rate=2M", "rtt=500ms", "queue=1MB", "demand=16k 2M 600ms"],
        stream: (10.0, 20.0, 1e6),
        top_ms: 1_500.0,
        top_mbps: 2.2,
    },
    Picture {
        title: "jitter = 15ms from 0 to 40 s, in order, jitter_frame = 20ms",
        settings: &["rate=8M", "rtt=80ms", "jitter=15ms", "jitter_frame=20ms"],
        stream: (0.0, SECONDS, STREAM_BPS),
        top_ms: 100.0,
        top_mbps: 10.0,
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("the file to draw into")?;
    let root = SVGBackend::new(&file, (1000, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, picture) in root.split_evenly((2, 2)).iter().zip(&PICTURES) {
        panel(area, picture)?;
    }
    root.present()?;
    Ok(())
}

fn settings(picture: &Picture) -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings::default();
    settings.set_all(picture.settings.iter().copied())?;
    settings.check()?;
    Ok(settings)
}

/// Seconds at which packets of this size that come at this interval leave for it and arrive.
fn carried(
    picture: &Picture,
    (from, to): (f64, f64),
    every: Duration,
    bytes: usize,
) -> Result<Vec<(f64, f64)>, Box<dyn Error>> {
    let settings = settings(picture)?;
    let mut channel = Channel::new(settings.channel(Way::Down), settings.seed);
    let seconds = |at: Instant| at.since(Instant::ZERO).as_secs_f64();
    let mut arrived = Vec::new();
    let mut take = |channel: &mut Channel<Vec<u8>>, until: Instant| {
        while let Some(at) = channel.poll_timeout().filter(|at| *at <= until) {
            while let Some(packet) = channel.pop(at) {
                let sent = packet.first_chunk::<8>().map_or(0, |sent| u64::from_be_bytes(*sent));
                arrived.push((seconds(Instant::from_nanos(sent)), seconds(at)));
            }
        }
    };
    let mut at = Instant::ZERO + Duration::from_secs_f64(from);
    let end = Instant::ZERO + Duration::from_secs_f64(to);
    while at < end {
        take(&mut channel, at);
        let mut packet = vec![0; bytes];
        packet[..8].copy_from_slice(&at.as_nanos().to_be_bytes());
        channel.push(at, packet);
        at += every;
    }
    take(&mut channel, Instant::ZERO + Duration::from_secs_f64(SECONDS));
    Ok(arrived)
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, picture: &Picture) -> Result<(), Box<dyn Error>> {
    let (from, to, stream_bps) = picture.stream;
    let every = Duration::from_secs_f64(8.0 * FULL_BYTES as f64 / stream_bps);
    let stream = carried(picture, (from, to), every, FULL_BYTES)?;
    let has_own_queue = from > 0.0;
    let probes = if has_own_queue {
        stream.clone()
    } else {
        carried(picture, (0.0, SECONDS), PROBE_EVERY, PROBE_BYTES)?
    };
    let mut rates = vec![0.0; (SECONDS / WINDOW_S) as usize + 1];
    for (_, at) in &stream {
        if let Some(rate) = rates.get_mut((at / WINDOW_S) as usize) {
            *rate += 8e-6 * FULL_BYTES as f64 / WINDOW_S;
        }
    }
    let mut chart = ChartBuilder::on(area)
        .caption(picture.title, ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(50)
        .right_y_label_area_size(50)
        .build_cartesian_2d(0.0..SECONDS, 0.0..picture.top_ms)?
        .set_secondary_coord(0.0..SECONDS, 0.0..picture.top_mbps);
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("time (s)")
        .y_desc("one-way delay (ms)")
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| format!("{v:.0}"))
        .axis_desc_style(("sans-serif", 13).into_font().color(&DELAY))
        .draw()?;
    chart
        .configure_secondary_axes()
        .y_desc("rate (Mbit/s)")
        .axis_desc_style(("sans-serif", 13).into_font().color(&RATE))
        .draw()?;
    // One probe of four is enough to see it.
    let dots = probes.iter().step_by(4).map(|(sent, at)| (*sent, 1e3 * (at - sent)));
    chart.draw_series(LineSeries::new(dots, DELAY.stroke_width(1)))?;
    let steps = rates.iter().enumerate().map(|(n, rate)| (n as f64 * WINDOW_S, *rate));
    chart.draw_secondary_series(LineSeries::new(
        steps.filter(|(at, _)| *at <= SECONDS),
        RATE.stroke_width(2),
    ))?;
    Ok(())
}
