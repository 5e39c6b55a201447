//! What `farlink top` shows, as plain values: two snapshots of the gateway become rates, shares and
//! reasons.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use farlink_gateway::Passed;
use serde::Serialize;
use serde_json::Value;

use super::kinds::Carried;
use crate::check::undeclared;
use crate::show::{SPLIT_TCP, carried_by_kind};
use crate::view::{list, number, rate, text};
use crate::words;

/// The gateway at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was asked.
    pub at: Instant,
    /// The answer to `status`.
    pub status: Value,
    /// The answer to `flows`.
    pub flows: Value,
}

/// A declared link.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Link {
    pub name: String,
    pub interface: String,
    pub up: bool,
    /// Its state in one word, and with those by whose word it is not up; see [`words`].
    pub state: String,
    pub state_and_witnesses: String,
    /// Nothing is sent into it but what asks whether it carries anything.
    pub carries_nothing: bool,
    /// What it carries: as said, or as found out, bit/s; 0 unknown.
    pub rate_bps: u64,
    /// What was said, where it is found to carry less, bit/s; else 0.
    pub declared_bps: u64,
    /// What has been found of it where nobody says it, in words.
    #[serde(skip)]
    pub found: Option<String>,
    /// What its queue sends at, bit/s; 0: as fast as it gets, or a gateway of an older version.
    pub queue_bps: u64,
    /// What it carries now, what goes past its queue with it, bit/s.
    pub sent_bps: f64,
    /// Bytes that wait, and most that ever waited.
    pub waiting_bytes: u64,
    pub waiting_max_bytes: u64,
    pub dropped: u64,
    pub flows: u64,
    /// Payload sent into it again since the start.
    pub retransmitted_bytes: u64,
    /// By kind, named as in the status.
    pub carried: BTreeMap<String, Carried>,
    /// What has left past its queue since the start, what does now, bit/s, and what share of the
    /// rate that is.
    pub beside_packets: u64,
    pub beside_bytes: u64,
    pub beside_sent_bps: f64,
    pub beside_share: Option<f64>,
}

impl Link {
    /// Its rate in words.
    pub fn rate(&self) -> String {
        match self.declared_bps {
            0 => self.found.clone().unwrap_or_else(|| rate(self.rate_bps)),
            declared => format!("{} (declared {})", rate(self.rate_bps), rate(declared)),
        }
    }

    /// As far as it can hold a connection.
    fn way(&self) -> words::Way {
        let others = self.carried.iter().filter(|(kind, _)| *kind != SPLIT_TCP);
        let others_bps: f64 = others.map(|(_, kind)| kind.sent_bps).sum();
        words::Way {
            name: self.name.clone(),
            is_away: self.carries_nothing.then(|| self.state_and_witnesses.clone()),
            rate_bps: self.rate_bps,
            rate: self.rate(),
            others_bps: (others_bps + self.beside_sent_bps) as u64,
            flows: self.flows,
        }
    }

    /// Share of the rate that is used; `None` where the rate is unknown.
    pub fn used(&self) -> Option<f64> {
        share(self.sent_bps, self.rate_bps)
    }
}

/// What share of a rate it is; `None` where the rate is unknown.
fn share(bps: f64, rate_bps: u64) -> Option<f64> {
    (rate_bps > 0).then(|| bps / rate_bps as f64)
}

/// A connection.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Flow {
    pub client: String,
    pub server: String,
    pub mode: String,
    pub age_seconds: u64,
    /// Delivered to the server and to the client, bit/s.
    pub up_bps: f64,
    pub down_bps: f64,
    /// Of the busier direction.
    pub cwnd_bytes: u64,
    pub srtt_us: u64,
    pub custody_bytes: u64,
    pub limited_by: String,
    /// Why it is not faster, in words and numbers.
    pub why: String,
}

impl Flow {
    /// Both directions together, bit/s.
    pub fn rate_bps(&self) -> f64 {
        self.up_bps + self.down_bps
    }
}

/// By what flows are sorted.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    #[default]
    Rate,
    Custody,
    Age,
    Rtt,
    Address,
}

impl Sort {
    /// The next one, round about.
    pub fn next(self) -> Self {
        match self {
            Self::Rate => Self::Custody,
            Self::Custody => Self::Age,
            Self::Age => Self::Rtt,
            Self::Rtt => Self::Address,
            Self::Address => Self::Rate,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Custody => "custody",
            Self::Age => "age",
            Self::Rtt => "RTT",
            Self::Address => "address",
        }
    }
}

/// Everything on the screen.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Model {
    pub version: String,
    pub uptime_seconds: u64,
    pub draining: bool,
    pub split: u64,
    pub dormant: u64,
    pub half_open: u64,
    pub custody_bytes: u64,
    pub pool_bytes: u64,
    pub pool_limit_bytes: u64,
    /// Sent again, share of what was sent since the snapshot before.
    pub repeated: Option<f64>,
    pub links: Vec<Link>,
    pub flows: Vec<Flow>,
    /// Flows that the filter hides.
    pub hidden: usize,
}

/// Per second, from two counters.
fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

impl Model {
    /// What two snapshots show; the earlier one may be missing, then rates are zero.
    pub fn of(now: &Snapshot, before: Option<&Snapshot>, sort: Sort, filter: &str) -> Self {
        let seconds = before.map_or(0.0, |b| now.at.duration_since(b.at).as_secs_f64());
        let engine = |key: &str| number(&now.status, &format!("/engine/{key}"));
        let counted = |key: &str| {
            let pointer = format!("/engine/counters/{key}");
            number(&now.status, &pointer).saturating_sub(before.map_or(0, |b| number(&b.status, &pointer)))
        };
        let (sent, again) = (counted("payload_out_bytes"), counted("retransmitted_bytes"));
        let links = links(now, before, seconds);
        let mut flows = flows(now, before, seconds, &links);
        let all = flows.len();
        flows.retain(|f| matches(f, filter));
        let hidden = all - flows.len();
        order(&mut flows, sort);
        Self {
            version: text(&now.status, "/version"),
            uptime_seconds: number(&now.status, "/uptime_seconds"),
            draining: now.status.pointer("/engine/draining") == Some(&Value::Bool(true)),
            split: engine("flows_split"),
            dormant: engine("flows_dormant"),
            half_open: engine("half_open"),
            custody_bytes: engine("custody_bytes"),
            pool_bytes: engine("pool_bytes"),
            pool_limit_bytes: engine("pool_limit_bytes"),
            repeated: (sent > 0).then(|| again as f64 / sent as f64),
            links,
            flows,
            hidden,
        }
    }
}

/// Bytes that have left by a link, through its queue or past it.
fn sent_by(link: &Value) -> u64 {
    number(link, "/sent_bytes") + number(link, "/beside_bytes")
}

fn links(now: &Snapshot, before: Option<&Snapshot>, seconds: f64) -> Vec<Link> {
    let earlier = before.map_or(&[][..], |b| list(&b.status, "/links"));
    let link = |l: &Value| {
        let name = text(l, "/name");
        let was = earlier.iter().find(|e| text(e, "/name") == name);
        // A link that was not there before has no rate yet.
        let bps = |count: &dyn Fn(&Value) -> u64| {
            8.0 * was.map_or(0.0, |was| per_second(count(l), count(was), seconds))
        };
        let found = number(l, "/estimated_bps");
        let rate_bps = if found > 0 { found } else { number(l, "/rate_bps") };
        let of_kind = |(kind, passed): (&str, Passed)| {
            let pointer = format!("/carried/{kind}/bytes");
            let sent_bps = bps(&|link: &Value| number(link, &pointer));
            (kind.to_owned(), Carried { passed, sent_bps, share: share(sent_bps, rate_bps) })
        };
        let beside_sent_bps = bps(&|link: &Value| number(link, "/beside_bytes"));
        Link {
            sent_bps: bps(&sent_by),
            interface: text(l, "/interface"),
            up: l.pointer("/up") == Some(&Value::Bool(true)),
            state: words::state(l),
            state_and_witnesses: words::state_and_witnesses(l),
            carries_nothing: words::carries_nothing(l),
            rate_bps,
            found: undeclared::in_short(l),
            declared_bps: if found > 0 { number(l, "/declared_bps") } else { 0 },
            queue_bps: number(l, "/queue_bps"),
            waiting_bytes: number(l, "/backlog_bytes"),
            waiting_max_bytes: number(l, "/backlog_max_bytes"),
            dropped: number(l, "/dropped_packets"),
            flows: number(l, "/flows"),
            retransmitted_bytes: number(l, "/retransmitted_bytes"),
            carried: carried_by_kind(l).map(of_kind).collect(),
            beside_packets: number(l, "/beside_packets"),
            beside_bytes: number(l, "/beside_bytes"),
            beside_sent_bps,
            beside_share: share(beside_sent_bps, rate_bps),
            name,
        }
    };
    list(&now.status, "/links").iter().map(link).collect()
}

fn flows(now: &Snapshot, before: Option<&Snapshot>, seconds: f64, links: &[Link]) -> Vec<Flow> {
    let earlier: HashMap<(String, String), &Value> = before
        .map_or(&[][..], |b| list(&b.flows, ""))
        .iter()
        .map(|f| ((text(f, "/a"), text(f, "/b")), f))
        .collect();
    let flow = |f: &Value| {
        let (client, server) = (text(f, "/a"), text(f, "/b"));
        let was = earlier.get(&(client.clone(), server.clone()));
        // A connection on the ports of an earlier one counts from nothing.
        let rate = |pointer: &str| {
            let (is, was) = (number(f, pointer), was.map_or(0, |w| number(w, pointer)));
            8.0 * per_second(is, if was > is { 0 } else { was }, seconds)
        };
        let towards = words::towards(f);
        let out = text(f, &format!("/out_{towards}"));
        let way = links.iter().find(|l| l.interface == out).map(Link::way);
        Flow {
            mode: text(f, "/mode"),
            age_seconds: number(f, "/age_seconds"),
            up_bps: rate("/delivered_ab_bytes"),
            down_bps: rate("/delivered_ba_bytes"),
            cwnd_bytes: number(f, &format!("/cwnd_{towards}_bytes")),
            srtt_us: number(f, &format!("/srtt_{towards}_us")),
            custody_bytes: number(f, "/custody_ab_bytes") + number(f, "/custody_ba_bytes"),
            limited_by: words::limit(f),
            why: words::why(f, way.as_ref()),
            client,
            server,
        }
    };
    list(&now.flows, "").iter().map(flow).collect()
}

/// Whether a filter's text stands in what a person reads of the flow.
fn matches(flow: &Flow, filter: &str) -> bool {
    let wanted = filter.to_lowercase();
    [&flow.client, &flow.server, &flow.mode, &flow.limited_by]
        .iter()
        .any(|t| t.to_lowercase().contains(&wanted))
}

fn order(flows: &mut [Flow], sort: Sort) {
    let name = |f: &Flow| (f.client.clone(), f.server.clone());
    flows.sort_by_cached_key(name);
    match sort {
        Sort::Rate => flows.sort_by(|a, b| b.rate_bps().total_cmp(&a.rate_bps())),
        Sort::Custody => flows.sort_by_key(|f| std::cmp::Reverse(f.custody_bytes)),
        Sort::Age => flows.sort_by_key(|f| std::cmp::Reverse(f.age_seconds)),
        Sort::Rtt => flows.sort_by_key(|f| std::cmp::Reverse(f.srtt_us)),
        Sort::Address => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    /// Snapshots with counters that grew by so many bytes.
    fn snapshot(at: Instant, sent: u64, flows: Value) -> Snapshot {
        let status = json!({
            "version": "0.1.0", "uptime_seconds": 61,
            "engine": { "flows_split": 2, "counters": { "payload_out_bytes": sent, "retransmitted_bytes": sent / 10 } },
            "links": [{
                "name": "geo", "interface": "sat0", "up": true, "rate_bps": 8_000_000, "sent_bytes": sent, "flows": 2,
                "retransmitted_bytes": sent / 10,
                "carried": {
                    "split_tcp": { "packets": sent / 1_000, "bytes": sent - sent / 4 },
                    "udp": { "packets": 10, "bytes": sent / 4, "dropped_packets": 3, "waited_us": 20_000, "waited_max_us": 7_000 },
                },
            }],
        });
        Snapshot { at, status, flows }
    }

    fn flow(client: &str, delivered: u64, limited_by: &str) -> Value {
        json!({
            "a": client, "b": "10.0.0.9:80", "mode": "split", "direction": "ba", "delivered_ba_bytes": delivered,
            "cwnd_a_bytes": 50_000, "srtt_a_us": 500_000, "window_a_bytes": 8_192, "lost_a_bytes": 3_000, "out_a": "sat0",
            "limited_by": limited_by, "held_by": "", "age_seconds": 7, "custody_ba_bytes": 1_000,
        })
    }

    fn model(sort: Sort, filter: &str) -> Model {
        let start = Instant::now();
        let before =
            snapshot(start, 0, json!([flow("10.0.0.1:1", 0, "link"), flow("10.0.0.2:2", 0, "receiver")]));
        let later = json!([
            flow("10.0.0.1:1", 100_000, "link"),
            flow("10.0.0.2:2", 300_000, "receiver"),
            flow("10.0.0.3:3", 0, "loss")
        ]);
        let now = snapshot(start + Duration::from_secs(2), 1_000_000, later);
        Model::of(&now, Some(&before), sort, filter)
    }

    #[test]
    fn rates_are_what_grew_in_between() {
        let m = model(Sort::Rate, "");
        assert_eq!(m.links[0].sent_bps, 4e6);
        assert_eq!(m.links[0].used(), Some(0.5));
        assert_eq!(m.repeated, Some(0.1));
        let shown: Vec<_> = m.flows.iter().map(|f| (f.client.as_str(), f.down_bps)).collect();
        assert_eq!(shown, [("10.0.0.2:2", 1.2e6), ("10.0.0.1:1", 4e5), ("10.0.0.3:3", 0.0)]);
    }

    #[test]
    fn each_kind_has_its_part_of_the_rate_and_all_that_the_status_says_of_it() {
        let m = model(Sort::Rate, "");
        let link = &m.links[0];
        let [split, udp] = ["split_tcp", "udp"].map(|kind| &link.carried[kind]);
        assert_eq!((split.sent_bps, split.share), (3e6, Some(0.375)));
        assert_eq!((udp.sent_bps, udp.share), (1e6, Some(0.125)));
        let passed = Passed {
            packets: 10,
            bytes: 250_000,
            dropped_packets: 3,
            waited_us: 20_000,
            waited_max_us: 7_000,
        };
        assert_eq!((udp.passed, link.retransmitted_bytes), (passed, 100_000));
    }

    #[test]
    fn what_goes_past_the_queue_is_told_by_itself_and_counts_as_sent() {
        let start = Instant::now();
        let [before, now] = [(0, 0_u64), (2, 500_000)].map(|(after_seconds, beside)| {
            let at = start + Duration::from_secs(after_seconds);
            let mut looked = snapshot(at, 2 * beside, json!([]));
            looked.status["links"][0]["beside_bytes"] = json!(beside);
            looked.status["links"][0]["beside_packets"] = json!(beside / 500);
            looked.status["links"][0]["queue_bps"] = json!(8_000_000 - 4 * beside);
            looked
        });
        let m = Model::of(&now, Some(&before), Sort::Rate, "");
        let link = &m.links[0];
        assert_eq!((link.sent_bps, link.beside_sent_bps, link.beside_share), (6e6, 2e6, Some(0.25)));
        assert_eq!((link.beside_packets, link.beside_bytes), (1_000, 500_000));
        assert_eq!((link.rate_bps, link.queue_bps), (8_000_000, 6_000_000));
    }

    #[test]
    fn each_limit_is_explained_with_its_numbers() {
        let m = model(Sort::Address, "");
        let why: Vec<_> = m.flows.iter().map(|f| f.why.as_str()).collect();
        assert_eq!(
            why,
            [
                "its share of geo: 2 connections, 8.0 Mbit/s, of which others take 1.0 Mbit/s",
                "the client reads slowly or shows a small window: 8.2 kB, at most 131 kbit/s at an RTT of 500 ms",
                "repairs losses, 3.0 kB so far"
            ]
        );
    }

    /// Half of what the link carries is UDP.
    #[test]
    fn what_others_have_of_a_link_is_not_a_connections() {
        let start = Instant::now();
        let [before, now] = [(0, 0), (2, 2_000_000)].map(|(after_seconds, sent)| {
            let mut looked = snapshot(
                start + Duration::from_secs(after_seconds),
                sent,
                json!([flow("10.0.0.1:1", sent / 2, "link")]),
            );
            let link = &mut looked.status["links"][0];
            link["flows"] = json!(1);
            link["carried"]["udp"]["bytes"] = json!(sent / 2);
            looked
        });
        let m = Model::of(&now, Some(&before), Sort::Rate, "");
        assert_eq!(m.flows[0].why, "has the rest of geo: 8.0 Mbit/s, of which others take 4.0 Mbit/s");
    }

    #[test]
    fn a_link_that_is_silent_is_no_more_up_here_than_elsewhere() {
        let mut held = flow("10.0.0.1:1", 0, "link");
        held["held_by"] = json!("link is away");
        let mut now = snapshot(Instant::now(), 0, json!([held]));
        now.status["links"][0]["state"] = json!("probing");
        now.status["links"][0]["down_by"] = json!(["silence"]);
        let m = Model::of(&now, None, Sort::Rate, "");
        assert_eq!((&*m.links[0].state, m.links[0].carries_nothing), ("probing", true));
        assert_eq!(m.flows[0].why, "geo is probing (silence)");
    }

    #[test]
    fn a_filter_hides_and_says_how_many() {
        let m = model(Sort::Rate, "RECEIVER");
        assert_eq!((m.flows.len(), m.hidden), (1, 2));
        assert_eq!(model(Sort::Rate, "10.0.0.3").flows[0].client, "10.0.0.3:3");
    }

    #[test]
    fn the_first_look_shows_no_rates_and_invents_none() {
        let now = snapshot(Instant::now(), 5_000, json!([flow("10.0.0.1:1", 9_999, "link")]));
        let m = Model::of(&now, None, Sort::Rate, "");
        assert_eq!((m.flows[0].rate_bps(), m.links[0].sent_bps), (0.0, 0.0));
        assert_eq!(m.links[0].carried["udp"].sent_bps, 0.0);
    }
}
