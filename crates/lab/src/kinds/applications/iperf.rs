//! iperf3, its control connection beside its data connections, in either direction.

use anyhow::{Context, Result};
use serde_json::Value;

use super::bench::Bench;
use crate::report::Measured;

/// Port of iperf3.
const PORT: u16 = 5301;
/// Seconds of a test.
const SECONDS: &str = "3";
/// Connections at the same time.
const STREAMS: &str = "2";
/// Share of the link's rate that has to arrive. A window that does not grow beyond 64 KB gives a
/// third.
const SHARE_MIN: f64 = 0.5;

pub(super) fn test(bench: &mut Bench<'_>, measured: &mut Measured, is_down: bool) -> Result<()> {
    let port = PORT.to_string();
    bench.serve("iperf3", &["--server", "--port", &port], PORT)?;
    let server = bench.server.to_string();
    let mut args =
        vec!["--client", &server, "--port", &port, "--time", SECONDS, "--parallel", STREAMS, "--json"];
    if is_down {
        args.push("--reverse");
    }
    let said = bench.succeed(bench.client("iperf3", &args)?)?;
    let said: Value = serde_json::from_slice(&said).context("iperf3 wrote no JSON")?;
    let number = |name: &str| said["end"]["sum_received"][name].as_f64().unwrap_or(0.0);
    let (bytes, rate) = (number("bytes"), number("bits_per_second"));
    measured.bytes = bytes as u64;
    measured.metric("iperf3_bps", rate);
    let settings = &bench.lab.settings;
    let link = if is_down { settings.rate_bps } else { settings.up_bps() } as f64;
    measured.expect(rate >= SHARE_MIN * link, || format!("iperf3 received {rate:.0} of {link:.0} bit/s"));
    if let Some(error) = said["error"].as_str() {
        measured.failures.push(format!("iperf3: {error}"));
    }
    Ok(())
}
