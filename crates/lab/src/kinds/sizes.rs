//! `sizes`: a router makes the MSS of connections smaller than both hosts said, since a network
//! behind the link takes no larger packets, and tells nobody. The first upload and the first
//! download of a client, and how large the largest segment was that either host got.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use portable_atomic::AtomicU64;

use super::session::PORT;
use super::{Kind, Run};
use crate::build::{Lab, Life};
use crate::hosts;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::sh;
use crate::topology::Interface;
use crate::workload::{Direction, Outcome, Server, Transfer};

/// The router that clamps: where a gateway runs, it runs there.
const NODE: &str = "gw1";
/// The one before the narrow network.
const BEYOND: &str = "gw2";
/// What the network behind the link takes, bytes: IPv6 has none narrower.
const NARROW_BYTES: [u32; 2] = [1100, 1280];
/// What the route says, so that its MSS is no larger than the others': IPv6 routes say no less.
const ROUTE_BYTES: [u32; 2] = [1040, 1280];
const PATIENCE: Duration = Duration::from_secs(60);
const REPORT_PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct SizesKind;

impl Kind for SizesKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let needs: &[&str] = match cell.word("case", "") {
            "iptables" => &["nft", "iptables", "ip6tables"],
            _ => &["nft"],
        };
        let missing = needs.iter().find(|program| sh::find(program).is_none())?;
        Some(format!("{missing} is not installed"))
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mss = scenario.option("mss_bytes", 1000.0)? as u32;
        let lab = Lab::up(&scenario.topology, &cell.settings, &run.prefix, Life::WithUs)?;
        narrow(&lab, cell.v6())?;
        clamp(&lab, cell.word("case", ""), cell.v6(), mss)?;
        let server = Server::start(&lab.ns("server"), PORT)?;
        let mut measured = Measured::default();
        for (direction, name) in [(Direction::Upload, "upload"), (Direction::Download, "download")] {
            let bytes = cell.number("size_bytes", 100_000);
            let to = lab.address("server", cell.v6())?;
            let transfer = Transfer {
                direction,
                patience: PATIENCE,
                ..Transfer::download(lab.ns("client"), to, PORT, bytes, run.seed)
            };
            let outcome = transfer.run(&AtomicU64::new(0));
            measured.expect(outcome.intact, || format!("{name}: {:?}", outcome.error));
            measured.bytes += outcome.bytes;
            measured.seconds = measured.seconds.max(outcome.seconds);
            measured.metric(&format!("{name}_seconds"), outcome.seconds);
            let hidden =
                (cell.word("case", "") == "masquerade").then(|| outside(&lab, cell.v6())).transpose()?;
            let largest = largest_segment(&server, &outcome, (direction, hidden))?;
            measured.metric(&format!("{name}_segment_bytes"), f64::from(largest));
        }
        for gateway in &lab.gateways {
            measured.metric("flows_split", gateway.engine_number("counters.flows_split")? as f64);
        }
        lab.down()?;
        Ok(measured)
    }
}

/// Payload of the largest segment that the receiver of a transfer got; `hidden`: the server knows
/// the client by this address.
fn largest_segment(
    server: &Server,
    outcome: &Outcome,
    (direction, hidden): (Direction, Option<IpAddr>),
) -> Result<u32> {
    if direction == Direction::Download {
        return Ok(outcome.info.received_segment_bytes);
    }
    let mut client = outcome.local.context("a transfer without an address")?;
    client.set_ip(hidden.unwrap_or(client.ip()));
    let served = server.report(client, REPORT_PATIENCE).context("the server knows nothing of it")?;
    Ok(served.info.received_segment_bytes)
}

fn link(lab: &Lab) -> Result<Interface> {
    let interfaces = lab.topology.interfaces(lab.topology.index(NODE)?);
    interfaces.into_iter().find(|i| i.name.starts_with("to-sat")).context("the router has no link")
}

/// The address of the router at its link.
fn outside(lab: &Lab, v6: bool) -> Result<IpAddr> {
    let link = link(lab)?;
    let address = if v6 { link.ipv6.map(IpAddr::from) } else { link.ipv4.map(IpAddr::from) };
    address.context("the router has no address at its link")
}

/// Between the far router and the server larger packets are lost, and nobody says so. The server
/// does not know.
fn narrow(lab: &Lab, v6: bool) -> Result<()> {
    // IPv4 takes packets that are too small for IPv6, whose routes go with its addresses then.
    lab.extend_routes("server", " advmss 1440")?;
    lab.ns(BEYOND).run("nft", &[hosts::SILENCE])?;
    let mtu = NARROW_BYTES[usize::from(v6)];
    lab.ns(BEYOND).ip_batch(false, &[format!("link set to-server mtu {mtu}")])?;
    lab.ns("server").ip_batch(false, &[format!("link set to-{BEYOND} mtu {mtu}")])
}

/// The rules of the router.
fn clamp(lab: &Lab, how: &str, v6: bool, mss: u32) -> Result<()> {
    let ns = lab.ns(NODE);
    let link = link(lab)?;
    let chain = |rule: &str| {
        format!(
            "table inet clamp {{ chain onward {{ type filter hook forward priority -150; policy accept; {rule} }}; }}"
        )
    };
    let set = format!("tcp option maxseg size set {mss}");
    let rules = match how {
        "nft" => chain(&format!("tcp flags syn {set};")),
        "link" => {
            let name = &link.name;
            chain(&format!("oifname \"{name}\" tcp flags syn {set}; iifname \"{name}\" tcp flags syn {set};"))
        }
        "masquerade" => {
            let family = if v6 { "ip6" } else { "ip" };
            let masquerade = format!(
                "table {family} nat {{ chain out {{ type nat hook postrouting priority 100; oifname \"{}\" masquerade; }}; }}",
                link.name
            );
            format!("{}\n{masquerade}", chain(&format!("tcp flags syn {set};")))
        }
        "iptables" => {
            let program = if v6 { "ip6tables" } else { "iptables" };
            let rule = "-w -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss";
            let mss = mss.to_string();
            let words: Vec<&str> = rule.split(' ').chain([mss.as_str()]).collect();
            ns.run(program, &words)?;
            return Ok(());
        }
        "route" => {
            lab.extend_routes(NODE, &format!(" mtu lock {}", ROUTE_BYTES[usize::from(v6)]))?;
            chain("tcp flags syn tcp option maxseg size set rt mtu;")
        }
        // The hosts find it out, or the gateway does.
        "none" => return Ok(()),
        other => bail!("unknown case `{other}`"),
    };
    ns.run("nft", &[&rules]).context("the router's rules")?;
    Ok(())
}
