//! Prints how precise the link emulator is on this machine: one-way delay error idle and under
//! load, and rate error. Needs root: `cargo run --release -p farlink-linux --example
//! emulator_accuracy`.

use std::net::IpAddr;

use farlink_channel::ChannelConfig;
use farlink_linux::Result;
use farlink_linux::emulator::accuracy::{DelayProbe, delay_error, rate};
use farlink_linux::emulator::{Emulator, EmulatorConfig};
use farlink_linux::netns::{Namespace, veth};
use farlink_wire::Duration;

const DELAY: Duration = Duration::from_millis(250);

struct Bench {
    left: Namespace,
    right: Namespace,
    sat: Namespace,
}

impl Bench {
    fn new() -> Result<Self> {
        let make = |role: &str| Namespace::create(&format!("flacc{}-{role}", std::process::id()));
        let bench = Self { left: make("left")?, right: make("right")?, sat: make("sat")? };
        veth(&bench.left, "eth0", &bench.sat, "a")?;
        veth(&bench.right, "eth0", &bench.sat, "b")?;
        for (host, last) in [(&bench.left, 1u8), (&bench.right, 2)] {
            host.set_offloads("eth0", false)?;
            host.address_add("eth0", IpAddr::from([10, 5, 0, last]), 24)?;
        }
        Ok(bench)
    }

    fn measure(&self, rate_bps: Option<u64>) -> Result<()> {
        let config = ChannelConfig {
            delay: DELAY,
            rate_bps,
            queue_limit_packets: Some(2000),
            ..ChannelConfig::default()
        };
        let config = EmulatorConfig {
            a: "a".into(),
            b: "b".into(),
            a_to_b: config.clone(),
            b_to_a: config,
            is_half_duplex: false,
            seed: 1,
            control: None,
        };
        let emulator = self.sat.run(|| Emulator::start(config))?;
        let there = IpAddr::from([10, 5, 0, 2]);
        let bytes = 200;
        let serialisation = rate_bps.map_or(0.0, |r| 8.0 * f64::from(bytes) / r as f64);
        let probe = DelayProbe {
            count: 500,
            // Never two on the line at once.
            interval: Duration::from_millis(2).max(Duration::from_secs_f64(3.0 * serialisation)),
            bytes: 200,
            expected: DELAY + Duration::from_secs_f64(serialisation),
        };
        let idle = delay_error(&self.left, &self.right, there, &probe)?;
        let load = rate_bps.map(|r| {
            rate(&self.left, &self.right, there, 1500, 1.3 * r as f64, Duration::from_secs(1))
                .map(|measured| (measured / r as f64 - 1.0) * 100.0)
        });
        let load = load.transpose()?;
        let name = rate_bps.map_or("unlimited".to_owned(), |r| format!("{} Mbit/s", r as f64 / 1e6));
        if let Some(q) = idle {
            println!(
                "{name:>14}: delay error p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms of {} probes; rate error {}",
                q.p50_ns as f64 / 1e6,
                q.p99_abs_ns as f64 / 1e6,
                q.max_abs_ns as f64 / 1e6,
                q.count,
                load.map_or("-".to_owned(), |e| format!("{e:+.3} %"))
            );
        }
        for stats in emulator.stats()? {
            if stats.faults != farlink_linux::emulator::WireFaults::default() {
                println!("{:>16}{:?}", "", stats.faults);
            }
        }
        emulator.stop()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for host in [&self.left, &self.right, &self.sat] {
            let _ = host.delete();
        }
    }
}

fn main() -> Result<()> {
    let bench = Bench::new()?;
    for rate_bps in [Some(384_000), Some(8_000_000), Some(100_000_000), Some(1_000_000_000), None] {
        bench.measure(rate_bps)?;
    }
    Ok(())
}
