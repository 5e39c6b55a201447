//! The paths.

mod bbr;
mod cubic_bbr;
mod hybla;
mod known_rate;
mod vegas;

use farlink_cc::{Config, Kind};
use farlink_wire::time::Duration;

use crate::common::net::{Link, Net};

/// 10 Mbit/s in packets of 1,250 bytes: 1,000 packets a second.
const RATE_BPS: u64 = 10_000_000;

fn link(rtt_ms: u64, buffer_packets: u64) -> Link {
    Link { rate_bps: RATE_BPS, rtt_ms, buffer_packets, loss_ppm: 0, access_bps: None }
}

fn config(kind: Kind) -> Config {
    Config { kind, mss: 1250, hystart: true, ..Config::default() }
}

fn one(kind: Kind, link: Link) -> Net {
    let mut net = Net::new(link);
    net.join(&config(kind));
    net
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn every(windows: &[u64], step: usize) -> Vec<u64> {
    windows.iter().copied().step_by(step).collect()
}
