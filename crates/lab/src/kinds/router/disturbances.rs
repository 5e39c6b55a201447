//! What others do to a router's rules, routes and devices, twenty times while connections are
//! split.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use portable_atomic::AtomicU64;

use super::super::Run;
use super::super::session::PORT;
use super::site::{NODE, Site, shell};
use crate::build::Lab;
use crate::report::Measured;
use crate::scenario::Cell;
use crate::workload::{Direction, Server, Transfer, run_all};

/// How often it happens.
const TIMES: u32 = 20;
/// So many transfers meanwhile, half of them uploads.
const TRANSFERS: u64 = 20;
const TRANSFER_BYTES: u64 = 14_000_000;
/// So often it may be in the log: what takes several commands may be found in two parts.
const TOLD_MAX: u64 = TIMES as u64 * 2;
/// Split again after this.
const WITHIN: Duration = Duration::from_secs(3);
const EVERY: Duration = Duration::from_millis(400);
/// Transfers have begun by then.
const FIRST: Duration = Duration::from_millis(800);
const PROBE_BYTES: u64 = 1000;
/// A probe that hangs for so long is replaced by another.
const PROBE_PATIENCE: Duration = Duration::from_millis(600);
const PATIENCE: Duration = Duration::from_secs(30);
/// Most of the transfers last until it has happened for the last time.
const LASTING_SHARE: f64 = 0.5;
/// The operator's own: they refuse nothing.
const OWN: &str = "nft -f - <<'END'
table inet fw {
chain onward {
type filter hook forward priority 0; policy accept;
ct state established,related counter accept
}
}
END
for t in iptables ip6tables; do $t -w -A FORWARD -m conntrack --ctstate NEW -j ACCEPT; done";

/// Something that happens.
pub(super) struct Disturbance {
    shell: String,
    /// How often diversion by policy routing is put back after it, at least and at most.
    put_back: (u64, u64),
    /// At most with a bump.
    put_back_bump: u64,
}

const ALL_IPTABLES: &str = "iptables ip6tables iptables-legacy ip6tables-legacy";

/// Takes each device down and up, and puts back what goes with that, as ifupdown does.
const LINKS: &str = "for i in $(ip -o link show | sed 's/^[0-9]*: //; s/[@:].*//'); do
[ $i = lo ] && continue
r4=$(ip -4 route show table main dev $i proto boot); r6=$(ip -6 route show table main dev $i proto boot)
a6=$(ip -6 -o addr show dev $i scope global | sed 's/.*inet6 \\([^ ]*\\).*/\\1/')
ip link set $i down; ip link set $i up
for a in $a6; do ip -6 addr add $a dev $i nodad 2>/dev/null || :; done
echo \"$r4\" | while read -r r; do [ -z \"$r\" ] || ip -4 route replace $r dev $i; done
echo \"$r6\" | while read -r r; do [ -z \"$r\" ] || ip -6 route replace $r dev $i; done
done";

/// What systemd-networkd does with rules and routes that it has not made
/// (ManageForeignRoutingPolicyRules, ManageForeignRoutes).
const FOREIGN: &str = "for f in -4 -6; do
for p in $(ip $f rule show | cut -d: -f1 | sort -u); do
case $p in 0 | 32766 | 32767) ;; *) while ip $f rule del pref $p 2>/dev/null; do :; done ;; esac; done
for t in $(ip $f route show table all | sed -n 's/.* table \\([0-9]*\\).*/\\1/p' | sort -u); do
ip $f route flush table $t; done
done";

/// Whether there is a disturbance of this name, and what it needs.
pub(super) fn needs(case: &str) -> Option<Vec<&'static str>> {
    let of = |programs: &'static str| programs.split(' ').collect();
    match case {
        "nft-flush" | "rule-flush" | "links" | "rp-filter-strict" | "rp-filter-loose" | "foreign" => {
            Some(of("iptables ip6tables"))
        }
        "iptables-flush" => Some(of(ALL_IPTABLES)),
        _ => None,
    }
}

fn named(case: &str) -> Result<Disturbance> {
    let of = |shell: &str, put_back, put_back_bump| Disturbance {
        shell: shell.to_owned(),
        put_back,
        put_back_bump,
    };
    let (never, each) = ((0, 0), (1, TOLD_MAX));
    Ok(match case {
        "nft-flush" => of("nft flush ruleset", never, 0),
        "iptables-flush" => of(
            &format!(
                "for t in {ALL_IPTABLES}; do for table in filter nat mangle; do $t -w -t $table -F; done; done"
            ),
            never,
            0,
        ),
        "rule-flush" => of(
            "for f in -4 -6; do ip $f rule flush; ip $f rule add pref 32766 lookup main; done; \
             ip -4 rule add pref 32767 lookup default",
            each,
            0,
        ),
        "links" => of(LINKS, each, each.1),
        "rp-filter-strict" => of(&rp_filter(1), each, 0),
        "rp-filter-loose" => of(&rp_filter(2), (0, each.1), 0),
        "foreign" => of(FOREIGN, each, 0),
        _ => bail!("unknown case `{case}`"),
    })
}

fn rp_filter(value: u8) -> String {
    let all = "net.ipv4.conf.all.rp_filter";
    format!(
        "for i in $(ip -o link show | sed 's/^[0-9]*: //; s/[@:].*//'); do sysctl -qw net.ipv4.conf.$i.rp_filter=0; done; sysctl -qw {all}={value}"
    )
}

/// Runs a cell.
pub(super) fn run(lab: &mut Lab, cell: &Cell, run: &Run<'_>) -> Result<Measured> {
    let disturbance = named(cell.word("case", ""))?;
    let site = Site::of(lab, cell.v6())?;
    shell(&lab.ns(NODE), OWN)?;
    let _server = Server::start(&lab.ns("server"), PORT)?;
    let has_bump = lab.gateway(NODE)?.status()?["diversion"]["method"] == "bump";
    let mut measured = Measured::default();
    let transfers: Vec<_> = (0..TRANSFERS)
        .map(|n| Transfer {
            direction: if n % 2 == 0 { Direction::Download } else { Direction::Upload },
            patience: PATIENCE,
            ..Transfer::download(lab.ns("client"), site.server, PORT, TRANSFER_BYTES, run.seed + n)
        })
        .collect();
    let began = Instant::now();
    let (outcomes, longest) =
        run_all(&transfers, &AtomicU64::new(0), || disturb(lab, &site, &disturbance, &mut measured));
    let (longest, ended_s) = longest.map(|longest| (longest, began.elapsed().as_secs_f64()))?;
    for (n, outcome) in outcomes.iter().enumerate() {
        measured.expect(outcome.intact, || {
            format!("transfer {n}: {}", outcome.error.as_deref().unwrap_or("not intact"))
        });
    }
    let last = longest.1;
    let lasting = outcomes.iter().filter(|o| o.ended_s >= last).count() as f64 / TRANSFERS as f64;
    measured.expect(lasting >= LASTING_SHARE, || {
        format!("only {:.0} % of the transfers lasted until the end, at {last:.1} s", lasting * 100.0)
    });
    measured.metric("split_again_after_seconds", longest.0);
    measured.metric("disturbed_seconds", ended_s);
    judge_log(lab, &disturbance, has_bump, &mut measured)?;
    measured.seconds = outcomes.iter().map(|o| o.ended_s).fold(0.0, f64::max);
    measured.bytes = outcomes.iter().map(|o| o.bytes).sum();
    Ok(measured)
}

/// Does it so often, and waits each time until a connection is split again. The longest that took,
/// and when it happened last, in seconds.
fn disturb(
    lab: &mut Lab,
    site: &Site,
    disturbance: &Disturbance,
    measured: &mut Measured,
) -> Result<(f64, f64)> {
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    let mut last_s = 0.0;
    std::thread::sleep(FIRST);
    for n in 0..TIMES {
        let before = lab.gateway(NODE)?.engine_number("counters.flows_split")?;
        shell(&lab.ns(NODE), &disturbance.shell)?;
        let since = Instant::now();
        last_s = began.elapsed().as_secs_f64();
        loop {
            let probe = Transfer {
                patience: PROBE_PATIENCE,
                ..Transfer::download(lab.ns("client"), site.server, PORT, PROBE_BYTES, u64::from(n))
            };
            let outcome = probe.run(&AtomicU64::new(0));
            if outcome.intact && lab.gateway(NODE)?.engine_number("counters.flows_split")? > before {
                break;
            }
            if since.elapsed() > WITHIN {
                measured.failures.push(format!(
                    "connections are not split again after disturbance {n}: {:?}",
                    outcome.error
                ));
                return Ok((since.elapsed().as_secs_f64(), last_s));
            }
        }
        longest = longest.max(since.elapsed());
        std::thread::sleep(EVERY.saturating_sub(since.elapsed()));
    }
    Ok((longest.as_secs_f64(), last_s))
}

/// What was put back is in the log once each time, and nothing else is.
fn judge_log(
    lab: &mut Lab,
    disturbance: &Disturbance,
    has_bump: bool,
    measured: &mut Measured,
) -> Result<()> {
    let gateway = lab.gateway(NODE)?;
    let log = std::fs::read_to_string(&gateway.log)?;
    let repairs = gateway.status()?["diversion"]["repairs"].as_u64().unwrap_or(0);
    let told = log.lines().filter(|line| line.contains("diversion is put back")).count() as u64;
    measured.metric("put_back", repairs as f64);
    measured.expect(told == repairs, || {
        format!("diversion was put back {repairs} times, and the log says so {told} times")
    });
    let (least, most) = if has_bump { (0, disturbance.put_back_bump) } else { disturbance.put_back };
    measured.expect((least..=most).contains(&told), || {
        format!("the log says {told} times that diversion is put back, not {least} to {most} times")
    });
    let status = gateway.status()?;
    measured.expect(status["diversion"]["in_place"] == true, || {
        format!("diversion is not in place at the end: {}", status["diversion"])
    });
    Ok(())
}
