//! `topologies`: transfers both ways between every pair of hosts of a topology, over IPv4 and IPv6,
//! and that each gateway on the way (and no other) has split them.

use anyhow::Result;

use super::session::{Allowed, PORT, Session, expect_intact};
use super::{Kind, Run};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::workload::{Direction, Transfer};

/// See the module.
pub(super) struct TopologiesKind;

impl Kind for TopologiesKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let bytes = scenario.option("bytes", 300_000.0)? as u64;
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let mut measured = Measured::default();
        let pairs = session.lab.topology.pairs.clone();
        for (number, (client, server)) in pairs.iter().enumerate() {
            for v6 in [false, true] {
                for direction in [Direction::Download, Direction::Upload] {
                    let transfer = Transfer {
                        direction,
                        ..Transfer::download(
                            session.lab.ns(client),
                            session.lab.address(server, v6)?,
                            PORT,
                            bytes,
                            run.seed.wrapping_add(number as u64),
                        )
                    };
                    let before = splits(&session)?;
                    let started = measured.seconds;
                    let (outcomes, ()) = session.transfer(&[transfer], run, |_| ());
                    let what = format!("{client} > {server} {direction:?} IPv{}", if v6 { 6 } else { 4 });
                    expect_intact(&mut measured, &outcomes);
                    measured.seconds = started + outcomes[0].seconds;
                    let served = session.served(server, &outcomes);
                    measured.expect(served[0].orderly, || format!("{what}: no orderly end"));
                    expect_splits(&session, &mut measured, (client, server), &before, &what)?;
                }
            }
        }
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

/// Connections that each gateway has split so far.
fn splits(session: &Session) -> Result<Vec<u64>> {
    session.lab.gateways.iter().map(|g| g.engine_number("counters.flows_split")).collect()
}

fn expect_splits(
    session: &Session,
    measured: &mut Measured,
    (client, server): (&str, &str),
    before: &[u64],
    what: &str,
) -> Result<()> {
    let on_the_way = session.lab.topology.gateways_between(client, server)?;
    let after = splits(session)?;
    for ((gateway, before), after) in session.lab.gateways.iter().zip(before).zip(after) {
        let is_on_the_way = on_the_way.contains(&session.lab.topology.index(&gateway.node)?);
        let expected = before + u64::from(is_on_the_way);
        measured.expect(after == expected, || {
            format!(
                "{what}: {} split {} connections, {} expected",
                gateway.node,
                after - before,
                expected - before
            )
        });
    }
    Ok(())
}
