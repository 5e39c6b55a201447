//! What has to hold while Farlink runs.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use portable_atomic::AtomicU64;
use serde_json::Value;

use super::counts::{self, Seen, Tracked};
use super::site::{BEYOND, NODE, Way};
use super::{Bench, COUNTED_BYTES, PROBE_BYTES, PROBE_EVERY, Passage, QUIET, TIMED_BYTES, WITHIN};
use crate::build::Lab;
use crate::report::Measured;
use crate::workload::{Direction, Transfer, run_all};

/// A connection is looked at after this.
const LOOK_AFTER: Duration = Duration::from_millis(400);
const LOOKED_AT_BUFFER_BYTES: u32 = 128 << 10;
const LOOKED_AT_PAUSE: Duration = Duration::from_millis(20);
/// What a rule counts may differ by so much of what was transferred: fewer and larger packets have
/// fewer headers, and there are fewer acknowledgements.
const RULE_TOLERANCE: f64 = 0.1;
/// A rule that saw so few packets saw connections, or the odd end of one.
const FEW_PACKETS: u64 = 12;
/// So many more may be those of somebody else: neighbours ask for each other.
const ODD_PACKETS: u64 = 2;
/// New connections while diversion may be cut off.
const PROBES: u32 = 24;
/// Connections that somebody outside tries to open to a host of the LAN, one after the other.
const SCANS: u32 = 25;
const SCAN_EVERY: Duration = Duration::from_millis(100);
const SCAN_PATIENCE: Duration = Duration::from_millis(1500);
/// Nobody listens there.
const SCAN_PORT: u16 = 7000;

impl Bench<'_> {
    /// Split, intact, and counted as without it.
    pub(super) fn judge_with(
        &self,
        lab: &mut Lab,
        measured: &mut Measured,
        before: &[Passage],
    ) -> Result<()> {
        let split_before = self.split_count(lab)?;
        let with = self.passages(lab, measured, "with Farlink")?;
        let is_to_split = self.has_bump && self.machine.ways.iter().all(|way| way.is_split);
        let split = self.split_count(lab)? - split_before;
        measured.metric("split_share", split as f64 / with.len() as f64);
        measured.expect(!is_to_split || split == with.len() as u64, || {
            format!("{split} of {} connections were split", with.len())
        });
        if self.has_bump {
            for (plain, passage) in before.iter().zip(&with) {
                self.judge_counts(measured, plain, passage);
            }
            self.judge_check(lab, measured)?;
        }
        let ways = self.machine.ways.clone();
        for way in &ways {
            self.judge_entry(lab, measured, way)?;
        }
        if self.has_bump && !self.machine.is_nat {
            self.judge_scan(lab, measured)?;
        }
        if self.hides_addresses() {
            let leaked = counts::leaked(&lab.ns(BEYOND))?;
            measured.expect(leaked == 0, || {
                format!("{leaked} packets beyond the router had the client's own address")
            });
        }
        Ok(())
    }

    /// The forward chain sees each byte once, between the interfaces that are there without
    /// Farlink.
    fn judge_counts(&self, measured: &mut Measured, plain: &Passage, passage: &Passage) {
        let Passage { way, direction, seen } = passage;
        let what = format!("{direction:?} from {}", way.from);
        let there = (way.near.clone(), way.far.clone());
        let back = (way.far.clone(), way.near.clone());
        let (data, bare) = if *direction == Direction::Upload { (there, back) } else { (back, there) };
        if !self.machine.is_offloaded {
            let others: Vec<_> = seen.pairs.keys().filter(|pair| **pair != data && **pair != bare).collect();
            measured.expect(others.is_empty(), || {
                format!("{what}: the forward chain saw packets between {others:?}")
            });
            let of = |seen: &Seen, pair| seen.pairs.get(pair).copied().unwrap_or_default();
            let (counted, was, back) = (of(seen, &data), of(&plain.seen, &data), of(seen, &bare));
            let has_repetitions = self.has_repetitions(way, *direction);
            measured.expect(counted.is_of(COUNTED_BYTES, has_repetitions), || {
                format!("{what}: the forward chain counted {counted:?} of {COUNTED_BYTES} bytes, without Farlink {was:?}")
            });
            measured.expect(data == bare || back.is_bare(), || format!("{what}: {back:?} the other way"));
        }
        measured.expect(seen.invalid <= plain.seen.invalid, || {
            format!("{what}: {} packets are invalid, {} without Farlink", seen.invalid, plain.seen.invalid)
        });
        judge_rules(measured, &what, &plain.seen, seen);
    }

    /// `farlink check` finds nothing that it would call a problem.
    fn judge_check(&self, lab: &Lab, measured: &mut Measured) -> Result<()> {
        let check = self.ask(lab, &["check", "--seconds", "1"])?;
        measured.expect(check.status.code() == Some(0), || {
            let said = String::from_utf8_lossy(&check.stdout);
            format!("`farlink check` ended with {:?}: {said}", check.status.code())
        });
        Ok(())
    }

    /// Connection tracking has one entry for a connection, with what it carried.
    fn judge_entry(&self, lab: &mut Lab, measured: &mut Measured, way: &Way) -> Result<()> {
        let ns = lab.ns(NODE);
        let mut transfer = self.transfer(lab, way, Direction::Download, TIMED_BYTES);
        if !way.is_split {
            // No link makes it slow.
            transfer.pause_per_chunk = LOOKED_AT_PAUSE;
            transfer.options.receive_buffer_bytes = LOOKED_AT_BUFFER_BYTES;
        }
        let (outcomes, looked) = run_all(&[transfer], &AtomicU64::new(0), || {
            std::thread::sleep(LOOK_AFTER);
            let gateway = lab.gateway(NODE)?;
            let flows = gateway.flows()?;
            // The port is known only afterwards.
            Ok::<_, anyhow::Error>((
                ns.run("conntrack", &["-L", "-p", "tcp", "-f", self.tracked_family()])?,
                flows,
            ))
        });
        let (text, flows) = looked?;
        let outcome = &outcomes[0];
        self.expect_intact(measured, outcome, "a connection that is looked at");
        let local =
            outcome.local.with_context(|| format!("a connection without an address: {:?}", outcome.error))?;
        let port = local.port();
        let during = counts::of_text(&text, port);
        let is_one =
            matches!(&during[..], [Tracked { state, is_assured: true, .. }] if state == "ESTABLISHED");
        let is_none = during.is_empty() && self.machine.is_untracked;
        measured.expect(is_one || is_none || self.machine.is_offloaded, || {
            format!("connection tracking has of one connection: {during:?}")
        });
        if self.has_bump {
            self.judge_tuple(measured, way, &flows);
        }
        std::thread::sleep(QUIET);
        let after = counts::tracked(&ns, self.site.v6, port)?;
        if self.is_seen_twice() {
            return Ok(());
        }
        if let [Tracked { counts: [there, back], .. }] = &after[..] {
            let has_repetitions = self.has_repetitions(way, Direction::Download);
            measured.expect(there.is_bare() && back.is_of(TIMED_BYTES, has_repetitions), || {
                format!(
                    "connection tracking counted {there:?} and {back:?} of {TIMED_BYTES} bytes for {}",
                    way.from
                )
            });
        } else {
            measured.expect(self.machine.is_untracked, || format!("entries after its end: {after:?}"));
        }
        Ok(())
    }

    /// Somebody outside tries many ports of a host in the LAN. What the firewall refuses without
    /// Farlink, too, is no reason to end diversion.
    pub(super) fn judge_scan(&self, lab: &mut Lab, measured: &mut Measured) -> Result<()> {
        let scan = |n| Transfer {
            start_after: SCAN_EVERY * n,
            patience: SCAN_PATIENCE,
            ..Transfer::download(lab.ns("server"), self.site.client, SCAN_PORT + n as u16, PROBE_BYTES, 0)
        };
        let scans: Vec<_> = (0..SCANS).map(scan).collect();
        let (outcomes, ()) = run_all(&scans, &AtomicU64::new(0), || ());
        measured.expect(outcomes.iter().all(|o| !o.intact), || "somebody answered".into());
        let status = lab.gateway(NODE)?.status()?["diversion"].clone();
        measured.expect(status["ends"] == 0 && status["in_place"] == true, || {
            format!("what the firewall refuses ended diversion: {status}")
        });
        Ok(())
    }

    /// Where the bump is at the LAN, what hosts beyond the link repeat is counted before it gets to
    /// Farlink; and where nothing is split, behind NAT with policy routing, whatever hosts repeat.
    fn has_repetitions(&self, way: &Way, direction: Direction) -> bool {
        let is_unsplit = self.machine.is_nat && !self.has_bump;
        is_unsplit || self.attach && (direction == Direction::Download) == (way.from == "client")
    }

    /// If the bump is at a bridge, br_netfilter shows connection tracking what comes in by its
    /// ports, before Farlink has it and once more behind it.
    fn is_seen_twice(&self) -> bool {
        self.attach && !self.machine.renamed.is_empty()
    }

    fn tracked_family(&self) -> &'static str {
        if self.site.v6 { "ipv6" } else { "ipv4" }
    }

    /// At the LAN's interface Farlink knows the host by its own address, at the link by the one
    /// that it has there.
    fn judge_tuple(&self, measured: &mut Measured, way: &Way, flows: &Value) {
        if !self.hides_addresses() || !way.is_split {
            return;
        }
        let list = flows.as_array().or_else(|| flows["flows"].as_array());
        let has = |address: IpAddr| {
            let is = |value: &Value| {
                let read = value.as_str().and_then(|text| text.parse::<SocketAddr>().ok());
                read.is_some_and(|read| read.ip() == address)
            };
            list.into_iter().flatten().any(|flow| is(&flow["a"]) || is(&flow["b"]))
        };
        let (own, server) = (has(self.site.client), has(self.site.server));
        measured.expect(server && own == self.attach, || {
            format!("`farlink flows` shows (attached to the LAN: {}): {flows}", self.attach)
        });
    }

    /// Diversion by policy routing is cut off: TCP takes the ordinary way, and all are told why.
    pub(super) fn judge_policy(&self, lab: &mut Lab, measured: &mut Measured) -> Result<()> {
        let way = &self.machine.ways[0];
        let probe = |n| Transfer {
            start_after: PROBE_EVERY * n,
            ..self.transfer(lab, way, Direction::Download, PROBE_BYTES)
        };
        let probes: Vec<_> = (0..PROBES).map(probe).collect();
        let (outcomes, ()) = run_all(&probes, &AtomicU64::new(0), || ());
        let within_s = WITHIN.as_secs_f64();
        for outcome in &outcomes {
            let took_s = outcome.ended_s - outcome.began_s;
            measured.expect(outcome.intact && (outcome.began_s < within_s || took_s < 1.0), || {
                format!(
                    "a connection opened after {:.2} s took {took_s:.2} s ({:?})",
                    outcome.began_s, outcome.error
                )
            });
        }
        let status = lab.gateway(NODE)?.status()?["diversion"].clone();
        let family = if self.site.v6 { "ipv6" } else { "ipv4" };
        measured.expect(status[family] == false || status["split"] == false, || {
            format!("nothing of it was noticed: {status}")
        });
        let log = std::fs::read_to_string(&lab.gateway(NODE)?.log)?;
        let is_told = ["takes the ordinary way", "without being split"].iter().any(|word| log.contains(word));
        measured.expect(is_told, || format!("the log does not say it: {log}"));
        let check = self.ask(lab, &["check", "--seconds", "1"])?;
        measured.expect(check.status.code() == Some(1), || {
            format!("`farlink check` ended with {:?}", check.status.code())
        });
        self.passages(lab, measured, "past Farlink")?;
        Ok(())
    }
}

/// The operator's rules count what they count without.
fn judge_rules(measured: &mut Measured, what: &str, plain: &Seen, seen: &Seen) {
    let rules: BTreeSet<_> = plain.rules.keys().chain(seen.rules.keys()).collect();
    for rule in rules {
        let of = |seen: &Seen| seen.rules.get(rule).copied().unwrap_or_default();
        let (was, is) = (of(plain), of(seen));
        let apart = (is.bytes as f64 - was.bytes as f64) / COUNTED_BYTES as f64;
        // Without Farlink data that the link lost passed twice.
        let is_leaner = apart < 0.0 && is.bytes >= COUNTED_BYTES;
        let is_same = apart.abs() <= RULE_TOLERANCE || is_leaner;
        let is_few = was.packets <= FEW_PACKETS && is.packets <= FEW_PACKETS;
        let holds = if is_few { is.packets <= was.packets + ODD_PACKETS } else { is_same };
        measured
            .expect(holds, || format!("{what}: the rule `{rule}` counted {is:?}, without Farlink {was:?}"));
    }
}
