//! `fragmenting-host`: a server that sends its TCP segments in IP fragments is split and
//! accelerated like any other (thesis 4.2).

use anyhow::{Context, Result};

use super::session::{Allowed, PORT, Session, expect_intact};
use super::transfer::limit_seconds;
use super::{Kind, Run};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::workload::Transfer;

/// See the module.
pub(super) struct FragmentingKind;

impl Kind for FragmentingKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let server = session.servers.iter().find(|(n, _)| n == "server").context("no server")?;
        // The server believes in the MTU of its route and fragments to that of its interface, with
        // DF off.
        server.1.fragment_packets()?;
        let mtu = scenario.option("fragment_mtu_bytes", 1280.0)? as u32;
        session.lab.ns("server").ip_batch(false, &[format!("link set to-gw2 mtu {mtu}")])?;
        session.lab.extend_routes("server", " mtu lock 1500")?;
        let transfer = Transfer::download(
            session.lab.ns("client"),
            session.lab.address("server", cell.v6())?,
            PORT,
            cell.number("size_bytes", 1_000_000),
            run.seed,
        );
        let (outcomes, ()) = session.transfer(&[transfer], run, |_| ());
        let mut measured = Measured { limit_seconds: limit_seconds(scenario, cell), ..Measured::default() };
        expect_intact(&mut measured, &outcomes);
        measured.seconds = outcomes[0].seconds;
        let expected = cell.settings.gateways.min(2) as f64;
        let findings = session.finish(cell, &mut measured)?;
        measured.metric("fragments", findings.fragments as f64);
        measured.expect(findings.fragments > 0, || "the host has sent no fragments".into());
        let split = measured.metrics.get("flows_split").copied().unwrap_or(0.0);
        measured.expect(split == expected, || format!("{split} gateways have split it, {expected} expected"));
        Ok(measured)
    }
}
