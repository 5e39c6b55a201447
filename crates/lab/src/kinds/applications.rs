//! `applications`: the programs that people use, as the distribution has them, with the results
//! checked by hashes.

mod bench;
mod ftp;
mod iperf;
mod ssh;
mod web;

use std::time::Instant;

use anyhow::{Result, bail};

use super::session::{Allowed, Session};
use super::{Kind, Run};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::sh;
use bench::Bench;

/// See the module.
pub(super) struct ApplicationsKind;

impl Kind for ApplicationsKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let app = cell.word("app", "");
        if let Some(missing) = programs(app).iter().find(|p| sh::find(p).is_none()) {
            return Some(format!("{missing} is not installed"));
        }
        match app {
            "ssh" | "scp" | "rsync" => ssh::cannot_run(),
            "http2" => web::cannot_run(),
            "ftp-active" | "ftp-passive" => ftp::cannot_run(),
            _ => None,
        }
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let mut measured = Measured::default();
        let began = Instant::now();
        let mut bench =
            Bench::new(&mut session.lab, cell.v6(), cell.number("size_bytes", 1_000_000), run.seed)?;
        match cell.word("app", "") {
            "ssh" => ssh::session(&mut bench, &mut measured),
            "scp" => ssh::scp(&mut bench, &mut measured),
            "rsync" => ssh::rsync(&mut bench, &mut measured),
            "http2" => web::http2(&mut bench, &mut measured),
            "ftp-active" => ftp::transfer(&mut bench, &mut measured, true),
            "ftp-passive" => ftp::transfer(&mut bench, &mut measured, false),
            "iperf3-up" => iperf::test(&mut bench, &mut measured, false),
            "iperf3-down" => iperf::test(&mut bench, &mut measured, true),
            other => bail!("unknown application `{other}`"),
        }?;
        measured.seconds = began.elapsed().as_secs_f64();
        let gateways = session.lab.gateways.len() as f64;
        session.finish(cell, &mut measured)?;
        let split = measured.metrics.get("flows_split").copied().unwrap_or(0.0);
        measured
            .expect(split >= gateways, || format!("{split} connections were split at {gateways} gateways"));
        Ok(measured)
    }
}

/// What has to be installed.
fn programs(app: &str) -> &'static [&'static str] {
    match app {
        "ssh" => &["sshd", "ssh", "ssh-keygen"],
        "scp" => &["sshd", "ssh", "ssh-keygen", "scp"],
        "rsync" => &["sshd", "ssh", "ssh-keygen", "rsync"],
        "http2" => &["nginx", "curl", "openssl"],
        "ftp-active" | "ftp-passive" => &["vsftpd", "curl"],
        "iperf3-up" | "iperf3-down" => &["iperf3"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_application_of_the_builtin_scenario_is_known() {
        let cells = Scenario::find("applications").unwrap().cells().unwrap();
        assert!(cells.iter().all(|c| !programs(c.word("app", "")).is_empty()));
        for variant in ["direct", "farlink"] {
            for ip in [4, 6] {
                let here = cells.iter().filter(|c| c.variant == variant && c.number("ip", 0) == ip);
                assert_eq!(here.count(), 8, "{variant} IPv{ip}");
            }
        }
    }
}
