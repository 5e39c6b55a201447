//! `router`: Farlink on a router as people have it, with its firewall, its address translation and
//! with others who work on its rules. Transfers before, during and after Farlink; and what the
//! router's own rules and its connection tracking have counted, which is what they count without.
//!
//! Diversion by policy routing is cut off by most of these firewalls: there TCP takes the ordinary
//! way within three seconds, the reason is named, and no connection is lost.

mod counts;
mod disturbances;
mod firewalls;
mod judge;
mod nat;
mod private;
mod site;

use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use portable_atomic::AtomicU64;

use self::counts::Seen;
use self::site::{BEYOND, Machine, NODE, Site, Way};
use super::session::PORT;
use super::{Kind, Run, leftovers};
use crate::build::{Lab, Life};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::sh;
use crate::workload::{Direction, Outcome, Server, Transfer, run_all};

/// Bytes of a transfer whose counters are read.
const COUNTED_BYTES: u64 = 2_000_000;
/// Bytes of one whose time is compared.
const TIMED_BYTES: u64 = 5_000_000;
/// How often, with and without address translation.
const TIMED_COUNT: usize = 3;
/// A connection that lasts while the gateway starts or ends: so many bytes, read a little at a
/// time.
const LASTING_BYTES: u64 = 1_500_000;
const LASTING_BUFFER_BYTES: u32 = 32 << 10;
const LASTING_PAUSE: Duration = Duration::from_millis(50);
/// It has begun by then.
const LASTING_AFTER: Duration = Duration::from_millis(600);
/// It may stand still for so long.
const WITHIN: Duration = Duration::from_secs(3);
/// A connection that hangs for so long is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// New connections while diversion may be cut off: so many bytes, one after the other.
const PROBE_BYTES: u64 = 1000;
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Connections that have ended have said so to both hosts by then.
const ENDED: Duration = Duration::from_millis(500);
/// How long the counters of a transfer may take to stand still.
const QUIET: Duration = Duration::from_millis(150);

/// See the module.
pub(super) struct RouterKind;

impl Kind for RouterKind {
    fn cells(&self, scenario: &Scenario) -> Result<Vec<Cell>> {
        let mut cells = scenario.cells()?;
        // Prefixes are translated (RFC 6296) in IPv6, and rp_filter is of IPv4.
        cells.retain(|cell| match cell.word("case", "") {
            "npt" => cell.v6(),
            case => !(case.starts_with("rp-filter") && cell.v6()),
        });
        Ok(cells)
    }

    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let case = cell.word("case", "");
        if case == "flowtable" && !has_flowtables() {
            return Some("this kernel has no flowtables (NF_FLOW_TABLE)".into());
        }
        let missing = needs(case).into_iter().find(|program| sh::find(program).is_none())?;
        Some(format!("{missing} is not installed"))
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let case = cell.word("case", "");
        let topology = nat::topology(case).unwrap_or(&scenario.topology);
        let mut lab = Lab::up(topology, &cell.settings, &run.prefix, Life::WithUs)?;
        let measured = if disturbances::needs(case).is_some() {
            disturbances::run(&mut lab, cell, run)?
        } else {
            Bench::new(&lab, cell, run)?.run(&mut lab)?
        };
        lab.down()?;
        Ok(measured)
    }
}

fn needs(case: &str) -> Vec<&'static str> {
    let mut needs = disturbances::needs(case).unwrap_or_default();
    needs.extend(["nft", "conntrack"]);
    match case {
        "legacy" | "legacy-invalid" => needs.extend(["iptables-legacy", "ip6tables-legacy"]),
        "iptables" | "iptables-invalid" | "log-iptables" | "snat" | "docker" | "npt" => {
            needs.extend(["iptables", "ip6tables"]);
        }
        "ufw" => needs.extend(private::UFW),
        "firewalld" | "masquerade-firewalld" => needs.extend(private::FIREWALLD),
        _ => {}
    }
    needs
}

fn has_flowtables() -> bool {
    let rules = "add table inet t; add flowtable inet t f { hook ingress priority 0; devices = { lo }; }";
    sh::run("unshare", &["--net", "nft", rules]).is_ok()
}

/// What was transferred over one way, and what the router has counted of it.
struct Passage {
    way: Way,
    direction: Direction,
    seen: Seen,
}

/// One cell.
struct Bench<'a> {
    cell: &'a Cell,
    seed: u64,
    site: Site,
    machine: Machine,
    attach: bool,
    has_bump: bool,
    _servers: Vec<Server>,
}

impl<'a> Bench<'a> {
    fn new(lab: &Lab, cell: &'a Cell, run: &Run<'_>) -> Result<Self> {
        let site = Site::of(lab, cell.v6())?;
        let case = cell.word("case", "");
        let mut machine =
            if nat::is_one(case) { nat::named(case, &site)? } else { firewalls::named(case, &site)? };
        if machine.ways.is_empty() {
            machine.ways.push(site.outward());
        }
        let servers = ["server", "client"].map(|node| Server::start(&lab.ns(node), PORT));
        let gateway = lab.gateways.iter().find(|g| g.node == NODE).context("no gateway runs")?;
        Ok(Self {
            cell,
            seed: run.seed,
            machine,
            attach: cell.params.get("attach").is_some_and(|value| value == true),
            has_bump: gateway.status()?["diversion"]["method"] == "bump",
            site,
            _servers: servers.into_iter().collect::<Result<_>>()?,
        })
    }

    /// Before, during, with, and after Farlink.
    fn run(&self, lab: &mut Lab) -> Result<Measured> {
        let mut measured = Measured::default();
        let began = Instant::now();
        if self.attach {
            self.end_gateway(lab)?;
            lab.restart_gateway_with(NODE, |text| Machine::default().configured(&self.site, true, &text))?;
        }
        // With policy routing translated connections are forwarded: they stand beside plain ones.
        let split_s = self.untranslated(lab, &mut measured, self.has_bump)?;
        self.end_gateway(lab)?;
        let plain_s = self.untranslated(lab, &mut measured, !self.has_bump)?;
        // What ends now still has the addresses of before.
        std::thread::sleep(ENDED);
        self.machine.set_up(lab)?;
        counts::watch(&lab.ns(NODE))?;
        if self.hides_addresses() {
            counts::watch_for(&lab.ns(BEYOND), self.site.client)?;
        }
        let standing = leftovers::standing(&lab.ns(NODE))?;
        let before = self.passages(lab, &mut measured, "before")?;
        let lasting = self.lasting(lab);
        let (outcome, started) = run_all(&[lasting], &AtomicU64::new(0), || {
            std::thread::sleep(LASTING_AFTER);
            self.start_gateway(lab)
        });
        started?;
        self.expect_intact(&mut measured, &outcome[0], "a connection that was open when the gateway started");
        if !self.has_bump && (!self.machine.is_nat || self.machine.filters_too) {
            self.judge_policy(lab, &mut measured)?;
        } else {
            self.judge_with(lab, &mut measured, &before)?;
        }
        if let Some(untranslated_s) = split_s.or(plain_s) {
            let translated_s = self.timed(lab, &mut measured, &self.machine.ways[0])?;
            measured.metric("ratio_to_untranslated", translated_s / untranslated_s.max(1e-9));
            measured.metric("translated_seconds", translated_s);
        }
        let (outcome, ended) = run_all(&[self.lasting(lab)], &AtomicU64::new(0), || {
            std::thread::sleep(LASTING_AFTER);
            self.end_gateway(lab)
        });
        ended?;
        self.expect_intact(&mut measured, &outcome[0], "a connection that was open when the gateway ended");
        self.passages(lab, &mut measured, "after")?;
        let left: Vec<_> = leftovers::standing(&lab.ns(NODE))?.difference(&standing).cloned().collect();
        measured.expect(left.is_empty(), || format!("the gateway has left behind: {}", left.join(", ")));
        measured.seconds = began.elapsed().as_secs_f64();
        Ok(measured)
    }

    /// What the same transfers take without translation, where that is wanted.
    fn untranslated(&self, lab: &Lab, measured: &mut Measured, is_wanted: bool) -> Result<Option<f64>> {
        let is_wanted = is_wanted && self.machine.is_nat;
        is_wanted.then(|| self.timed(lab, measured, &self.site.outward())).transpose()
    }

    /// Nothing beyond the router is to see the client's own address.
    fn hides_addresses(&self) -> bool {
        self.machine.is_nat && nat::topology(self.cell.word("case", "")).is_none()
    }

    fn end_gateway(&self, lab: &mut Lab) -> Result<()> {
        let gateway = lab.gateway(NODE)?;
        gateway.process.signal(libc::SIGTERM);
        let status = gateway.wait_end(PATIENCE)?.context("the gateway does not end")?;
        anyhow::ensure!(status.success(), "the gateway ended with {status}: {}", gateway.last_words());
        Ok(())
    }

    fn start_gateway(&self, lab: &mut Lab) -> Result<()> {
        lab.restart_gateway_with(NODE, |text| self.machine.configured(&self.site, self.attach, &text))
    }

    fn transfer(&self, lab: &Lab, way: &Way, direction: Direction, bytes: u64) -> Transfer {
        Transfer {
            direction,
            patience: PATIENCE,
            ..Transfer::download(lab.ns(way.from), way.to, way.port, bytes, self.seed)
        }
    }

    /// A download that lasts, and fails when it stands still for longer than it may.
    fn lasting(&self, lab: &Lab) -> Transfer {
        let transfer = self.transfer(lab, &self.machine.ways[0], Direction::Download, LASTING_BYTES);
        let mut lasting = Transfer { pause_per_chunk: LASTING_PAUSE, patience: WITHIN, ..transfer };
        lasting.options.receive_buffer_bytes = LASTING_BUFFER_BYTES;
        lasting
    }

    /// A transfer each way, and what the router has counted of each.
    fn passages(&self, lab: &Lab, measured: &mut Measured, when: &str) -> Result<Vec<Passage>> {
        let ns = lab.ns(NODE);
        let mut passages = Vec::new();
        for way in &self.machine.ways {
            for direction in [Direction::Download, Direction::Upload] {
                let earlier = counts::seen(&ns)?;
                let outcome = self.transfer(lab, way, direction, COUNTED_BYTES).run(&AtomicU64::new(0));
                let what = format!("{direction:?} from {} to port {} {when}", way.from, way.port);
                self.expect_intact(measured, &outcome, &what);
                measured.bytes += outcome.bytes;
                std::thread::sleep(QUIET);
                let seen = counts::seen(&ns)?.since(&earlier);
                passages.push(Passage { way: way.clone(), direction, seen });
            }
        }
        Ok(passages)
    }

    fn expect_intact(&self, measured: &mut Measured, outcome: &Outcome, what: &str) {
        measured.expect(outcome.intact, || {
            format!("{what}: {}", outcome.error.as_deref().unwrap_or("not intact"))
        });
    }

    /// The median time of transfers from the LAN's side into the link.
    fn timed(&self, lab: &Lab, measured: &mut Measured, way: &Way) -> Result<f64> {
        let direction = if way.from == "server" { Direction::Download } else { Direction::Upload };
        let mut times = Vec::new();
        for _ in 0..TIMED_COUNT {
            let outcome = self.transfer(lab, way, direction, TIMED_BYTES).run(&AtomicU64::new(0));
            self.expect_intact(measured, &outcome, "a timed transfer");
            times.push(outcome.seconds);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[TIMED_COUNT / 2])
    }

    fn split_count(&self, lab: &Lab) -> Result<u64> {
        let gateway = lab.gateways.iter().find(|g| g.node == NODE).context("no gateway runs")?;
        gateway.engine_number("counters.flows_split")
    }

    fn ask(&self, lab: &Lab, words: &[&str]) -> Result<Output> {
        let gateway = lab.gateways.iter().find(|g| g.node == NODE).context("no gateway runs")?;
        let mut command = lab.ns(NODE).command(sh::farlink_binary()?)?;
        command.args(words).arg("--socket").arg(&gateway.socket);
        Ok(command.output()?)
    }
}
