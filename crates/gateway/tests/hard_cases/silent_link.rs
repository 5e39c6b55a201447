//! A link between two gateways that carries nothing for a while: nobody says so, or somebody does.

use crate::receiver::Receiver;
use crate::script::network::TO_B;
use crate::script::{Crossed, Cut, Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};
use farlink_wire::{Duration, Instant};

const SEGMENT: u32 = 1460;
/// Bytes that a has under way at most.
const WINDOW: u32 = 8 * SEGMENT;
const PORTS: [u16; 3] = [40_000, 40_001, 40_002];
const SHORT: Duration = Duration::from_micros(500);
const LONG: Duration = Duration::from_millis(500);
/// The least RTO.
const LEAST: Duration = Duration::from_millis(200);

/// A transfer from a to b.
struct Transfer {
    port: u16,
    b: Receiver,
    /// What a has sent, and what has been acknowledged to it.
    sent: u32,
    acked: u32,
    /// Where the window ends that a is shown.
    edge: u32,
    /// The newest timestamps of each.
    of_a: u32,
    of_b: u32,
}

/// Two gateways, a link between them, and transfers over it.
struct Bed {
    t: Script,
    rtt: Duration,
    transfers: Vec<Transfer>,
    /// a sends whatever its window allows.
    is_bulk: bool,
    with_timestamps: bool,
}

fn link(rate_bps: Option<u64>) -> Link {
    let cc = if rate_bps.is_some() { Kind::FixedRate } else { Kind::Cubic };
    Link { name: "sat".into(), rate_bps, leg: LegConfig { cc, ..LegConfig::default() }, ..Link::default() }
}

/// Milliseconds of a host's clock.
fn clock(at: Instant) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}

impl Bed {
    fn new(rtt: Duration, ports: &[u16], link: Link, with_timestamps: bool) -> Self {
        Self::with_user_timeout(rtt, ports, link, with_timestamps, Duration::from_secs(900))
    }

    fn with_user_timeout(
        rtt: Duration,
        ports: &[u16],
        link: Link,
        with_timestamps: bool,
        user_timeout: Duration,
    ) -> Self {
        let mut t = Script::with(|s| {
            s.gateways = 2;
            s.link_delay = rtt / 2;
            s.link = Some(link);
            s.config.timers.user_timeout = user_timeout;
            s.config.timers.outage_limit = user_timeout * 4;
        });
        let wait = rtt.as_micros() as f64 / 2_000.0;
        let mut transfers = Vec::new();
        for port in ports {
            let now = clock(t.now());
            let [syn, answer, third] = if with_timestamps {
                [format!(",ts {now} 0"), format!(",ts {now} {now}"), format!("<ts {now} {now}>")]
            } else {
                Default::default()
            };
            t.play(&format!(
                "a > S 0 win 65535 <mss 1460,sackOK,ws 7{syn}> {{port {port}}}\n ~{wait}\n drop b
                 b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7{answer}> {{port {port}}}\n ~{wait}\n drop a
                 a > . 1 ack 1 {third} {{port {port}}}\n ~{wait}\n drop b"
            ));
            let (b, port) = (Receiver::new(1), *port);
            transfers.push(Transfer { port, b, sent: 1, acked: 1, edge: 65_536, of_a: now, of_b: now });
        }
        let mut bed = Self { t, rtt, transfers, is_bulk: true, with_timestamps };
        // Long enough for round trips to be measured.
        bed.run((rtt * 20).max(Duration::from_millis(300)));
        bed
    }

    /// Both hosts do what they would do, as often as a fraction of a round trip.
    fn run(&mut self, time: Duration) {
        self.run_in_steps(time, (self.rtt / 4).clamp(Duration::from_micros(250), Duration::from_millis(20)));
    }

    fn run_in_steps(&mut self, time: Duration, step: Duration) {
        let end = self.t.now() + time;
        while self.t.now() < end {
            self.hosts_act();
            let step = step.min(end.since(self.t.now())).max(Duration::from_micros(1));
            self.t.play(&format!("~{}", step.as_micros() as f64 / 1_000.0));
        }
        self.hosts_act();
    }

    fn hosts_act(&mut self) {
        let (at_a, at_b, now) = (self.t.take(Host::A), self.t.take(Host::B), clock(self.t.now()));
        for flow in &mut self.transfers {
            let stamp = |s: &crate::script::notation::Seen| s.segment.options.timestamps.map_or(0, |t| t.val);
            for seen in at_b.iter().filter(|s| s.port == flow.port) {
                let is_question = seen.payload.is_empty() && seen.seq < flow.b.acked;
                flow.b.put(std::slice::from_ref(seen));
                flow.of_a = stamp(seen).max(flow.of_a);
                if is_question || !seen.payload.is_empty() {
                    let options = if self.with_timestamps {
                        format!("<ts {now} {}>", flow.of_a)
                    } else {
                        String::new()
                    };
                    let (ack, port) = (flow.b.acked, flow.port);
                    self.t.send(Host::B, &format!(". 1 ack {ack} {options} {{port {port}}}"));
                }
            }
            for seen in at_a.iter().filter(|s| s.port == flow.port) {
                flow.of_b = stamp(seen).max(flow.of_b);
                flow.acked = seen.ack.max(flow.acked);
                flow.edge = (seen.ack + (u32::from(seen.segment.window) << 7)).max(flow.edge);
            }
        }
        if self.is_bulk {
            for n in 0..self.transfers.len() {
                self.say(n);
            }
        }
    }

    /// a sends a segment, if its window allows that.
    fn say(&mut self, n: usize) {
        let now = clock(self.t.now());
        let flow = &mut self.transfers[n];
        let (from, to, port) = (flow.sent, flow.sent + SEGMENT, flow.port);
        if to <= (flow.acked + WINDOW).min(flow.edge) {
            flow.sent = to;
            let options =
                if self.with_timestamps { format!("<ts {now} {}>", flow.of_b) } else { String::new() };
            let size = if self.with_timestamps { "{gso 1448" } else { "{" };
            let fields = format!("{size}{}port {port}}}", if self.with_timestamps { "," } else { "" });
            self.t.send(Host::A, &format!("P. {from}:{to} ack 1 {options} {fields}"));
        }
    }

    /// The congestion window of the first transfer.
    fn window(&mut self) -> u64 {
        self.t.with_gateway(|g, now, _| g.flows(now, 1)[0].cwnd_b_bytes)
    }

    /// The state of the link as the first gateway has it.
    fn state(&mut self) -> &'static str {
        link_state(&mut self.t)
    }

    fn have_all(&self, n: usize) -> bool {
        let flow = &self.transfers[n];
        (flow.b.acked, flow.acked) == (flow.sent, flow.sent)
    }

    /// Segments with data that left for b from then on.
    fn data_since(crossed: &[Crossed], since: Instant) -> Vec<&Crossed> {
        crossed.iter().filter(|c| c.to == Host::B && c.at >= since && !c.seen.payload.is_empty()).collect()
    }
}

/// The largest segments among these, bytes of payload on the wire.
fn largest(data: &[&Crossed]) -> usize {
    let wire = |c: &&Crossed| match c.seen.offload.gso_size {
        0 => c.seen.payload.len(),
        size => usize::from(size),
    };
    data.iter().map(wire).max().unwrap_or(0)
}

/// What a gateway has taken and sends itself is marked, what it forwards is not.
fn is_made_by_gateway(c: &Crossed) -> bool {
    c.seen.payload.is_empty() || c.seen.segment.options.farlink.is_some()
}

/// How an outage comes about.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Outage {
    Unannounced,
    /// The carrier goes and comes.
    Announced,
}

/// An outage: segments stay as large, nothing is forwarded unsplit, little is sent, all is
/// delivered, and every connection goes on within the larger of two round trips, and the interval
/// of probes and one.
fn endures(rtt: Duration, outage: Duration, ports: &[u16], link: Link, kind: Outage) {
    let what = format!("{rtt:?}, {kind:?}, {outage:?}, {} flows, {:?}", ports.len(), link.rate_bps);
    let announced = kind == Outage::Announced;
    let mut bed = Bed::new(rtt, ports, link.clone(), announced);
    let before = largest(&Bed::data_since(&bed.t.take_crossed(), Instant::ZERO));
    let window = bed.window();
    let cut_at = bed.t.now();
    bed.t.cut(Cut::All);
    if announced {
        bed.t.set_carrier(TO_B, false);
    }
    bed.run_in_steps(outage, Duration::from_millis(100));
    let (back_at, crossed) = (bed.t.now(), bed.t.take_crossed());
    bed.t.assert(crossed.iter().all(is_made_by_gateway), &format!("{what}: nothing is forwarded unsplit"));
    // After the first timeouts, and two questions, one segment at a time asks.
    let asked = Bed::data_since(&crossed, cut_at + (rtt * 8).max(Duration::from_secs(2)));
    // Where the rate is known a link that has a gateway at its other end is asked more often.
    let dense = link.rate_bps.is_some();
    let near = dense && rtt < Duration::from_millis(40);
    let apart = if near { Duration::from_millis(10) } else { rtt.max(LEAST) };
    let patient = 180 + if dense { outage.as_secs_f64() as u128 } else { 0 };
    let most = if announced { 0 } else { (outage.as_nanos() / apart.as_nanos()).min(patient) };
    assert!(asked.len() as u128 <= most, "{what}: {} segments into a dead link", asked.len());
    bed.t.cut(Cut::Nothing);
    if announced {
        bed.t.set_carrier(TO_B, true);
    }
    let part = if dense {
        (outage / 50).min(Duration::from_secs(1))
    } else {
        (outage / 32).min(Duration::from_secs(4))
    };
    let interval = if announced { Duration::ZERO } else { apart.max(part) };
    // What others hold takes its time on the link.
    let held_ns = link.rate_bps.map_or(0, |bps| bed.t.status().custody_bytes * 8_000_000_000 / bps);
    let bound = (rtt * 2).max(interval + rtt) + Duration::from_nanos(held_ns);
    bed.run(bound + Duration::from_millis(1));
    let crossed = bed.t.take_crossed();
    assert!(crossed.iter().all(is_made_by_gateway), "{what}: nor later");
    let resumed = Bed::data_since(&crossed, back_at);
    for port in ports {
        let first = resumed.iter().find(|c| c.seen.port == *port).map(|c| c.at.since(back_at));
        let in_time = first.is_some_and(|after| after <= bound);
        bed.t.assert(in_time, &format!("{what}: port {port} resumed after {first:?} of {bound:?}"));
    }
    // The gateway is heard again on each connection.
    bed.run(rtt * 2);
    // Shorter outages may be over before anybody doubts the link: then they are losses like any
    // others.
    let is_outage = announced || outage >= (rtt * 6).max(Duration::from_secs(2));
    assert!(bed.window() >= window || !is_outage, "{what}: {} after {window}", bed.window());
    // What was held is delivered, and the sources go on.
    bed.is_bulk = false;
    bed.run((rtt * 12).max(Duration::from_secs(1)));
    for n in 0..ports.len() {
        let Transfer { sent, acked, ref b, .. } = bed.transfers[n];
        bed.t.assert(
            bed.have_all(n),
            &format!("{what}: sent {sent}, acknowledged {acked}, b has {}", b.acked),
        );
    }
    assert_eq!(largest(&resumed), before, "{what}: segments as large as before");
    bed.t.take_crossed();
    bed.is_bulk = true;
    bed.run((rtt * 12).max(Duration::from_millis(300)));
    let crossed = bed.t.take_crossed();
    assert_eq!(largest(&Bed::data_since(&crossed, back_at)), before, "{what}: and they stay so");
    for host in [Host::A, Host::B] {
        assert!(bed.t.take(host).iter().all(|s| !s.segment.flags.rst()), "{what}: nobody is reset");
    }
    assert_eq!(bed.t.status().counters.flows_abandoned, 0, "{what}");
    assert_eq!(bed.state(), "up");
}

fn unannounced(seconds: u64) {
    for rtt in [SHORT, LONG] {
        let outage = Duration::from_secs(seconds);
        endures(rtt, outage, &PORTS, link(Some(800_000_000)), Outage::Unannounced);
        endures(rtt, outage, &PORTS[..1], link(None), Outage::Unannounced);
    }
}

/// A wink over before any timer: what is sent into it is little, and all goes on a few milliseconds
/// after it.
#[test]
fn a_wink_costs_a_few_milliseconds() {
    let rtt = Duration::from_micros(500);
    let link = Link { name: "sat".into(), rate_bps: Some(100_000_000), rtt: Some(rtt), ..Link::default() };
    let mut bed = Bed::new(rtt, &PORTS[..1], link, false);
    for wink_ms in [20, 40, 100, 190] {
        bed.run(Duration::from_millis(50));
        bed.t.take_crossed();
        bed.t.cut(Cut::All);
        bed.run_in_steps(Duration::from_millis(wink_ms), Duration::from_millis(1));
        let crossed = bed.t.take_crossed();
        let wasted: usize =
            Bed::data_since(&crossed, Instant::ZERO).iter().map(|c| c.seen.payload.len()).sum();
        bed.t.cut(Cut::Nothing);
        let back_at = bed.t.now();
        bed.run(Duration::from_millis(20));
        let crossed = bed.t.take_crossed();
        let bytes: usize = Bed::data_since(&crossed, back_at).iter().map(|c| c.seen.payload.len()).sum();
        let what = format!("{wink_ms} ms: {wasted} bytes into it, {bytes} in the 20 ms behind it");
        bed.t.assert(wasted < 60_000 + wink_ms as usize * 150 && bytes > 50_000, &what);
    }
}

/// The very first data meets a wink: no round trip has been measured, but the handshake took one.
#[test]
fn a_wink_at_the_very_beginning_costs_a_few_milliseconds() {
    for wink_ms in [5, 15, 40, 190] {
        let mut t = Script::with(|s| {
            s.gateways = 2;
            s.link_delay = Duration::from_micros(250);
            s.link = Some(Link {
                rate_bps: Some(100_000_000),
                rtt: Some(Duration::from_micros(500)),
                ..Link::default()
            });
        });
        t.play(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7>\n ~1\n drop b
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>\n ~1\n drop a
             a > . 1 ack 1\n ~1\n drop b\n b > P. 1:101 ack 1\n ~1\n drop\n a > . 1 ack 101\n ~100\n drop",
        );
        t.cut(Cut::All);
        t.play(&format!(
            "a > . 1:1461 ack 101\n a > . 1461:2921 ack 101\n drop a\n a > . 2921:4381 ack 101\n ~{wink_ms}\n drop"
        ));
        t.cut(Cut::Nothing);
        t.play("~25\n drop a");
        let got: usize = t.take(Host::B).iter().map(|s| s.segment.payload_len).sum();
        t.assert(got >= 1460, &format!("{got} bytes within 25 ms of the end of {wink_ms} ms"));
    }
}

#[test]
fn an_unannounced_outage_of_a_second() {
    unannounced(1);
}

#[test]
fn an_unannounced_outage_of_six_seconds() {
    unannounced(6);
}

#[test]
fn an_unannounced_outage_of_half_a_minute() {
    unannounced(30);
}

#[test]
fn an_unannounced_outage_of_five_minutes() {
    unannounced(300);
}

#[test]
fn an_announced_outage_of_half_an_hour_with_timestamps() {
    for rtt in [SHORT, LONG] {
        let outage = Duration::from_secs(1800);
        endures(rtt, outage, &PORTS, link(Some(800_000_000)), Outage::Announced);
        endures(rtt, outage, &PORTS[..1], link(None), Outage::Announced);
    }
}

/// Custody without progress is given up after a minute; nothing is under way.
fn with_a_minute(ports: &[u16]) -> Bed {
    let minute = Duration::from_secs(60);
    let mut bed = Bed::with_user_timeout(SHORT, ports, link(Some(800_000_000)), false, minute);
    bed.is_bulk = false;
    bed.run(Duration::from_millis(100));
    bed
}

#[test]
fn a_connection_whose_far_end_is_gone_does_not_hold_up_the_others() {
    let mut bed = with_a_minute(&PORTS);
    bed.t.cut(Cut::Port(PORTS[0]));
    bed.say(0);
    // The others speak seldom: in between nobody is heard over the link.
    for _ in 0..30 {
        bed.run_in_steps(Duration::from_secs(7), Duration::from_millis(100));
        bed.say(1);
        bed.run(LEAST + SHORT * 2);
        assert!(bed.have_all(1), "no later than the least RTO");
    }
    // Its silence is its own as soon as another one was answered: it is given up after the user
    // timeout.
    bed.t.assert(bed.t.status().counters.flows_abandoned == 1, "given up");
    assert_eq!(bed.state(), "up");
}

#[test]
fn a_silence_that_nobody_explains_is_no_excuse_for_ever() {
    let mut bed = with_a_minute(&PORTS);
    bed.t.cut(Cut::All);
    (0..PORTS.len()).for_each(|n| bed.say(n));
    bed.run_in_steps(Duration::from_secs(55), Duration::from_millis(100));
    assert_eq!(bed.state(), "probing");
    bed.run_in_steps(Duration::from_secs(150), Duration::from_millis(100));
    bed.t.assert(bed.t.status().counters.flows_abandoned == 0, "a gateway would answer whoever lives");
    assert_eq!(bed.state(), "probing");
    bed.run_in_steps(Duration::from_secs(60), Duration::from_millis(100));
    bed.t.assert(bed.t.status().counters.flows_abandoned == 3, "four minutes are the limit of an outage");
}

/// Whatever else shows of a connection then comes of that: the flow and the sums say the same.
#[test]
fn a_silent_link_is_what_holds_the_connections_over_it() {
    let mut bed = with_a_minute(&PORTS);
    bed.t.cut(Cut::All);
    (0..PORTS.len()).for_each(|n| bed.say(n));
    bed.run_in_steps(Duration::from_secs(10), Duration::from_millis(100));
    assert_eq!(bed.state(), "probing");
    let now = bed.t.now();
    let (limited_by, flows) =
        bed.t.with_gateway(|g, _, _| (g.status().engine.limited_by, g.flows(now, PORTS.len())));
    let held: Vec<_> = flows.iter().map(|flow| (flow.limited_by, flow.held_by)).collect();
    assert_eq!(held, [("link", "link is away"); 3]);
    assert_eq!((limited_by.link, limited_by.loss + limited_by.receiver + limited_by.gateway), (3, 0));
    bed.t.cut(Cut::Nothing);
    bed.run_in_steps(Duration::from_secs(20), Duration::from_millis(100));
    let flows = bed.t.with_gateway(|g, _, _| g.flows(now, PORTS.len()));
    assert!(flows.iter().all(|flow| flow.limited_by == "application"), "{flows:?}");
}

/// Two connections over a link that has been silent for 100 s; the first one waits for an answer.
fn silent_for_long() -> Bed {
    let mut bed = Bed::new(SHORT, &PORTS[..2], link(Some(800_000_000)), false);
    bed.is_bulk = false;
    bed.run(Duration::from_millis(100));
    bed.t.cut(Cut::All);
    bed.say(0);
    bed.run_in_steps(Duration::from_secs(100), Duration::from_millis(100));
    bed
}

#[test]
fn what_begins_while_a_link_is_silent_asks_at_once() {
    let mut bed = silent_for_long();
    assert_eq!(bed.state(), "probing");
    bed.t.cut(Cut::Nothing);
    let back_at = bed.t.now();
    bed.t.take_crossed();
    bed.say(1);
    // Probes are 3 s apart by now.
    bed.run(LEAST + SHORT * 2);
    let crossed = bed.t.take_crossed();
    let ports: Vec<u16> = Bed::data_since(&crossed, back_at).iter().map(|c| c.seen.port).collect();
    assert!(ports.contains(&PORTS[0]) && ports.contains(&PORTS[1]), "{ports:?}");
    assert!(bed.have_all(0) && bed.have_all(1));
}

#[test]
fn a_word_over_a_silent_link_is_answered_by_a_question() {
    let mut bed = silent_for_long();
    bed.t.cut(Cut::Nothing);
    // b has something to say on another connection.
    let acked = bed.transfers[1].b.acked;
    bed.t.send(Host::B, &format!("P. 1:101 ack {acked} {{port {}}}", PORTS[1]));
    bed.run(LEAST + SHORT * 2);
    assert!(bed.have_all(0));
}

/// The state of the link as the first gateway has it.
fn link_state(t: &mut Script) -> &'static str {
    t.with_gateway(|g, _, _| g.status()).links[0].state
}

/// One gateway and two connections over its link, of which each has answered once, in such a way:
/// by the options of its SYN-ACK, and by what follows its acknowledgement. Both wait for an answer,
/// and the link is probed.
fn two_silent_hosts(ways: [(&str, &str); 2]) -> Script {
    let mut t = Script::with(|s| s.link = Some(link(Some(8_000_000))));
    for (port, (answer, said)) in PORTS.into_iter().zip(ways) {
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7> {{port {port}}}\n drop
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7{answer}> {{port {port}}}\n drop
             a > . 1 ack 1 {{port {port}}}\n drop
             a > P. 1:101 ack 1 {{port {port}}}\n ~10\n drop
             b > . 1 ack 101 {said} {{port {port}}}\n ~10\n drop
             a > P. 101:201 ack 1 {{port {port}}}\n ~10\n drop"
        ));
    }
    t.play("~20000");
    assert_eq!(link_state(&mut t), "probing");
    t
}

#[test]
fn who_plays_a_gateway_and_is_silent_does_not_ask_for_all() {
    // The first one says that there is a gateway before it, the second one is a plain host.
    let mut t = two_silent_hosts([(",flsynack", "<fl>"), ("", "")]);
    t.assert(t.status().flows_with_peer == 1, "one of them is heard as a gateway");
    t.play("drop\n ~20000");
    let asked: Vec<u16> = t.take(Host::B).iter().map(|s| s.port).collect();
    let of_host = asked.iter().filter(|port| **port == PORTS[1]).count();
    assert!(of_host >= 3 && of_host * 4 >= asked.len(), "{asked:?}");
    // So the host that is there ends it, whatever the other one does.
    t.play(&format!("b > . 1 ack 201 {{port {}}}", PORTS[1]));
    assert_eq!(link_state(&mut t), "up");
}

/// One gateway, and what is under way to hosts at these addresses, one connection each. All have
/// answered once.
fn hosts_behind_a_link(rate_bps: Option<u64>, hosts: &[&str]) -> Script {
    hosts_behind(link(rate_bps), 50, hosts)
}

/// The same behind any link, with this round trip.
fn hosts_behind(link: Link, rtt_ms: u32, hosts: &[&str]) -> Script {
    let mut t = Script::with(|s| s.link = Some(link));
    for (port, to) in PORTS.into_iter().zip(hosts) {
        let of = format!("{{port {port}{to}}}");
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7> {of}\n ~{rtt_ms}\n drop
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7> {of}\n drop
             a > . 1 ack 1 {of}\n drop
             a > P. 1:101 ack 1 {of}\n ~{rtt_ms}\n drop
             b > . 1 ack 101 {of}\n ~10\n drop"
        ));
    }
    t
}

/// Who can say whether the only host is off, or its link away? It is asked as a link is, and goes
/// on as soon as it is heard, with all its connections.
#[test]
fn one_host_alone_is_asked_all_the_time_and_goes_on_at_once() {
    for rate_bps in [Some(8_000_000), None] {
        let mut t = hosts_behind_a_link(rate_bps, &["", ""]);
        for port in &PORTS[..2] {
            t.play(&format!("a > P. 101:201 ack 1 {{port {port}}}\n ~10\n drop"));
        }
        t.play("~30000\n drop");
        assert_eq!(link_state(&mut t), "up", "nothing is known of the link");
        // 30 s of silence: the next question is not 30 s away.
        t.play("~1500");
        let asked: Vec<u16> = t.take(Host::B).iter().map(|s| s.port).collect();
        assert!(!asked.is_empty() && asked.len() <= 6, "{asked:?}");
        t.play("~1500\n drop");
        t.play(&format!("b > . 1 ack 201 {{port {}}}\n ~10", PORTS[0]));
        let said: Vec<_> = t.take(Host::B).iter().map(|s| (s.port, s.seq)).collect();
        let is_its = !said.is_empty() && said.iter().all(|said| *said == (PORTS[1], 101));
        assert!(is_its, "{rate_bps:?}: the other one goes on at once, {said:?}");
    }
}

/// Questions to the only host send the oldest segment again and again, and small ones are answered.
/// The search for the size that gets through goes on meanwhile: acknowledgements that have little
/// room on the way back do not put off its timers for ever.
#[test]
fn the_search_for_smaller_packets_goes_on_while_one_host_is_asked() {
    let mut t = hosts_behind(Link { rate_in_bps: Some(32_000), ..link(Some(8_000_000)) }, 500, &[""]);
    t.play(&format!("a > P. 101:1561 ack 1 {{port {}}}\n drop", PORTS[0]));
    // It answers late: each time the next question has left just before.
    let (mut is_asked, mut due, mut least) = (false, None, usize::MAX);
    let end = t.now() + Duration::from_secs(20);
    while t.now() < end {
        t.play("~5");
        for seen in t.take(Host::B) {
            if seen.payload.is_empty() {
                is_asked = true;
            } else if seen.seq == 101 {
                least = least.min(seen.payload.len());
                if std::mem::take(&mut is_asked) {
                    due = Some(t.now() + Duration::from_millis(10));
                }
            }
        }
        if due.take_if(|at| *at <= t.now()).is_some() {
            t.send(Host::B, &format!(". 1 ack 101 {{port {}}}", PORTS[0]));
            t.take(Host::A);
        }
    }
    assert!(least <= 552 - 40, "{least} bytes at least");
}

/// A host that is off is not asked for ever as often as a link, where others are answered.
#[test]
fn a_host_that_is_off_while_others_are_answered_backs_off() {
    let mut t = hosts_behind_a_link(Some(8_000_000), &["", ""]);
    t.play(&format!("a > P. 101:201 ack 1 {{port {}}}\n ~10\n drop", PORTS[0]));
    let (mut at, mut asked) = (101, 0);
    for _ in 0..600 {
        t.play(&format!("a > P. {at}:{} ack 1 {{port {}}}\n ~50", at + 100, PORTS[1]));
        asked += t.take(Host::B).iter().filter(|s| s.port == PORTS[0]).count();
        at += 100;
        t.play(&format!("drop\n b > . 1 ack {at} {{port {}}}\n ~50", PORTS[1]));
        asked += t.take(Host::B).iter().filter(|s| s.port == PORTS[0]).count();
        t.play("drop");
    }
    assert!(asked <= 9, "{asked} in a minute");
}

#[test]
fn a_link_that_swallows_large_segments_only_is_not_silent() {
    for ports in [&PORTS[..1], &PORTS] {
        let mut bed = Bed::new(SHORT, ports, link(Some(800_000_000)), false);
        bed.t.cut(Cut::Above(1300));
        bed.run_in_steps(Duration::from_secs(20), Duration::from_millis(10));
        bed.is_bulk = false;
        bed.run_in_steps(Duration::from_secs(20), Duration::from_millis(10));
        for (n, flow) in bed.transfers.iter().enumerate() {
            assert!(bed.have_all(n), "{n}: {} of {}", flow.b.acked, flow.sent);
        }
    }
}

#[test]
fn a_link_that_is_heard_for_a_moment_only_is_silent_again() {
    let mut bed = Bed::new(LONG, &PORTS, link(Some(8_000_000)), false);
    for _ in 0..2 {
        bed.t.cut(Cut::All);
        bed.run_in_steps(Duration::from_secs(30), Duration::from_millis(20));
        assert_eq!(bed.state(), "probing");
        bed.t.cut(Cut::Nothing);
        while bed.state() == "probing" {
            bed.run_in_steps(Duration::from_millis(20), Duration::from_millis(20));
        }
    }
    bed.t.cut(Cut::All);
    bed.t.take_crossed();
    bed.run_in_steps(Duration::from_secs(150), Duration::from_millis(20));
    assert_eq!(bed.state(), "probing");
    assert!(bed.t.take_crossed().iter().all(is_made_by_gateway), "nothing is forwarded unsplit");
    bed.t.cut(Cut::Nothing);
    bed.is_bulk = false;
    bed.run_in_steps(Duration::from_secs(30), Duration::from_millis(20));
    for (n, flow) in bed.transfers.iter().enumerate() {
        assert!(
            bed.have_all(n),
            "{n}: a sent {}, b has {}, a knows of {}",
            flow.sent,
            flow.b.acked,
            flow.acked
        );
    }
}

#[test]
fn what_is_silent_by_itself_is_given_up_however_often_its_link_is() {
    let mut bed = with_a_minute(&PORTS);
    bed.t.cut(Cut::Port(PORTS[0]));
    bed.say(0);
    for _ in 0..12 {
        bed.t.cut(Cut::All);
        bed.say(1);
        bed.run_in_steps(Duration::from_secs(8), Duration::from_millis(100));
        bed.t.cut(Cut::Port(PORTS[0]));
        bed.run_in_steps(Duration::from_secs(8), Duration::from_millis(100));
    }
    assert!(bed.have_all(1));
    bed.t.assert(bed.t.status().counters.flows_abandoned == 1, "given up");
}

#[test]
fn a_host_with_a_closed_window_does_not_ask_for_all() {
    let mut t = two_silent_hosts([(",flsynack", "win 0 <fl>"), (",flsynack", "win 65535 <fl>")]);
    t.play("drop\n ~10000");
    let asked: Vec<_> = t.take(Host::B).iter().map(|s| (s.port, s.payload.len())).collect();
    let data = asked.iter().filter(|(port, len)| *port == PORTS[1] && *len > 0).count();
    assert!(data >= 2, "{asked:?}");
}
