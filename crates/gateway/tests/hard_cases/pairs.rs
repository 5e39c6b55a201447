//! Flows to the same gateway share what routers allow (XCP).
//!
//! `flraw 54 SUM` in an acknowledgement is the sum of what routers have left of a flow's wishes.

use crate::script::network::{SPARE, TO_B};
use crate::script::{Host, ISN_A, PORT_A, Script};
use farlink_gateway::cc::{Doubt, Kind};
use farlink_gateway::config::{Action, LegConfig, Link, Notice, XcpContext};
use farlink_gateway::engine_status::PairStatus;
use farlink_gateway::{Event, Side};
use farlink_wire::xcp::XcpFields;

/// What two gateways beyond the link say of themselves.
const ONE: &str = "68 0000002b 02 0010 00";
const OTHER: &str = "68 0000002c 02 0010 00";
/// 8 Mbit/s, as a sum.
const MB_PER_S: &str = "000f4240";

fn link(xcp_context: XcpContext) -> Link {
    let leg = LegConfig { cc: Kind::Xcp, ..LegConfig::default() };
    Link { name: "hub".into(), leg, xcp_context, ..Link::default() }
}

/// A script, and what host b has got of two connections so far.
struct Bed {
    t: Script,
    /// Payload bytes.
    got: [usize; 2],
    /// What the newest segment says of its speed.
    said: Option<XcpFields>,
    /// How far b has got them.
    end: [u32; 3],
}

impl Bed {
    fn new(by: XcpContext) -> Self {
        let t = Script::with(|s| {
            s.link = Some(link(by));
            s.config.limits.relay_bytes = 1 << 20;
        });
        Self { t, got: [0; 2], said: None, end: [1; 3] }
    }

    /// A first connection has been told of 1 MB a second: its pair has about 115 kB for 100 ms.
    fn begun(by: XcpContext) -> Self {
        let mut bed = Self::new(by);
        bed.open(0, ONE);
        bed.send(0, 1, 58_400);
        bed.play("~100");
        bed.play(&format!("b > . 1 ack 7201 win 60000 <flraw 54 {MB_PER_S},flraw 53>"));
        bed.got = [0; 2];
        bed
    }

    /// Line by line, and what b gets is counted.
    fn play(&mut self, text: &str) {
        for line in text.lines() {
            self.t.play(line);
            for s in self.t.take(Host::B).iter().filter(|s| !s.payload.is_empty()) {
                let Some(n) = s.port.checked_sub(PORT_A).map(usize::from).filter(|n| *n < 3) else {
                    continue;
                };
                if let Some(got) = self.got.get_mut(n) {
                    *got += s.payload.len();
                }
                self.end[n] = self.end[n].max(s.seq + s.payload.len() as u32);
                self.said = s.segment.options.xcp.or(self.said);
            }
            self.t.play("drop a");
        }
    }

    /// Another connection over the link, to this gateway; the handshake took 100 ms.
    fn open(&mut self, n: u16, gateway: &str) {
        let p = format!("{{port {}}}", PORT_A + n);
        self.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7> {p}
             ~100
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {gateway}> {p}
             a > . 1 ack 1 {p}"
        ));
    }

    /// Host a sends so much of a connection.
    fn send(&mut self, n: u16, from: u32, bytes: u32) {
        self.play(&format!("a > . {from}:{} ack 1 {{gso 1460,port {}}}", from + bytes, PORT_A + n));
    }

    /// What b gets of both within so many milliseconds from now on.
    fn within(&mut self, ms: u32) -> [usize; 2] {
        self.got = [0; 2];
        self.play(&format!("~{ms}"));
        self.got
    }

    fn pairs(&mut self) -> Vec<PairStatus> {
        self.t.with_gateway(|g, _, _| g.status()).links[0].pairs.clone()
    }

    fn set(&mut self, value: &str) {
        let value = value.to_owned();
        self.t.with_gateway(move |g, now, _| g.set(now, "link.hub.xcp_context", &value)).unwrap();
    }
}

#[test]
fn a_second_flow_has_its_share_of_what_the_first_was_told() {
    for (by, least, most) in [(XcpContext::Pair, 16_000, 26_000), (XcpContext::Flow, 0, 14_400)] {
        let mut bed = Bed::begun(by);
        bed.open(1, ONE);
        bed.play(&format!("b > . 1 ack 57601 win 60000 <flraw 54 {MB_PER_S},flraw 53>"));
        bed.send(0, 58_401, 58_400);
        bed.send(1, 1, 58_400);
        let got = bed.within(30);
        assert!((least..=most).contains(&got[1]), "{by:?}: {got:?} in 30 ms, of 1 MB a second for both");
        if by == XcpContext::Pair {
            let [a, b] = got.map(|n| n as f64);
            assert!((0.8..1.25).contains(&(a / b)), "turn by turn: {got:?}");
            // Two flows count as two: twice the time from one packet to the next.
            let bytes_per_s = 2.0 * 1_460.0 / bed.said.unwrap().spacing.seconds();
            assert!((1.2e6..1.5e6).contains(&bytes_per_s), "{bytes_per_s}");
        }
    }
}

#[test]
fn the_status_shows_what_a_pair_may_send_and_who_shares_it() {
    let shown = Bed::begun(XcpContext::Pair).pairs();
    let [pair] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((pair.gateway.as_str(), pair.routers_speak, pair.flows), ("0000002b", true, 1));
    assert!((8_000_000..11_000_000).contains(&pair.rate_bps), "{pair:?}");
    assert_eq!(Bed::begun(XcpContext::Flow).pairs(), []);
}

#[test]
fn what_is_told_to_one_flow_slows_all_down() {
    let mut bed = Bed::begun(XcpContext::Pair);
    bed.open(1, ONE);
    bed.send(1, 1, 58_400);
    bed.play("~10");
    // 0.4 MB a second less. More at once nobody would believe.
    bed.play("b > . 1 ack 8641 <flraw 54 000927c0,flraw 53>\n ~10");
    let got = bed.within(30);
    assert!(got[1] > 1_000 && got[0] + got[1] < 24_000, "0.65 MB a second for both: {got:?}");
}

#[test]
fn another_gateway_and_one_that_begins_anew_share_nothing_with_the_first() {
    let mut bed = Bed::begun(XcpContext::Pair);
    bed.open(1, OTHER);
    bed.send(1, 1, 58_400);
    let got = bed.within(30);
    assert!(got[1] < 15_000, "as any connection begins: {got:?}");
    assert_eq!(bed.pairs().iter().map(|p| p.routers_speak).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn where_routers_fall_silent_flows_go_by_their_own_clocks() {
    let mut bed = Bed::begun(XcpContext::Pair);
    bed.send(0, 58_401, 58_400);
    // Acknowledgements go on for some round trips, and say nothing of routers.
    let mut acked = 8_641;
    for round in 0..6 {
        assert_eq!(bed.pairs()[0].routers_speak, round < 3, "{round}");
        bed.play(&format!("~110\n b > . 1 ack {acked} win 60000 <flraw 53>"));
        acked += 8_640;
    }
    assert_eq!(bed.pairs()[0].rate_bps, 0);
    // Nothing stands still.
    bed.play("b > . 1 ack 116641 win 60000 <flraw 53>");
    bed.send(0, 116_801, 29_200);
    let got = bed.within(400);
    assert!(got[0] > 5_000, "{got:?}");
}

#[test]
fn it_can_be_changed_while_connections_are_open() {
    let mut bed = Bed::begun(XcpContext::Pair);
    bed.set("flow");
    let got = bed.within(30);
    assert!((20_000..45_000).contains(&got[0]), "the one flow goes on with all of it: {got:?}");
    assert_eq!(bed.pairs(), []);
    bed.set("pair");
    bed.send(0, 58_401, 29_200);
    bed.play("~70\n b > . 1 ack 86401 win 60000 <flraw 54 000f4240,flraw 53>\n ~1");
    assert!(bed.pairs()[0].routers_speak, "from the first word on: {:?}", bed.pairs());
    bed.send(0, 87_601, 29_200);
    let got = bed.within(100);
    assert!(got[0] > 10_000, "{got:?}");
}

/// What b acknowledges of a connection, as its host has done (`24 SEQ`), and what it tells of
/// routers; nothing else.
fn acknowledged(bed: &mut Bed, n: u16, ack: u32, told: &str) {
    let (far, port) = (ISN_A.wrapping_add(ack), PORT_A + n);
    bed.play(&format!("b > . 1 ack {ack} win 60000 <{told}flraw 53 24 {far:08x}> {{port {port}}}"));
}

/// b acknowledges all that comes, until nothing more does.
fn all_acknowledged(bed: &mut Bed, told: &str) {
    for _ in 0..40 {
        for n in 0..2 {
            let end = bed.end[usize::from(n)];
            acknowledged(bed, n, end, told);
        }
        bed.play("~50");
    }
}

/// Two flows to one gateway share 1 MB a second, and both have sent of late.
fn two() -> Bed {
    let mut bed = Bed::begun(XcpContext::Pair);
    bed.open(1, ONE);
    bed.play(&format!("b > . 1 ack 57601 win 60000 <flraw 54 {MB_PER_S},flraw 53>"));
    bed.send(0, 58_401, 29_200);
    bed.send(1, 1, 29_200);
    bed.play("~100");
    assert_eq!(bed.flows(), [2]);
    bed
}

impl Bed {
    /// How many flows each pair has.
    fn flows(&mut self) -> Vec<u64> {
        self.pairs().iter().map(|pair| pair.flows).collect()
    }

    /// Over a minute later something passes that belongs to nobody, and the gateway looks round.
    fn rest(&mut self) {
        self.play("~75s\n a > P. 1:11 ack 1 {port 9}\n ~1");
    }
}

#[test]
fn a_shared_window_counts_once_in_the_sums() {
    let mut bed = two();
    bed.send(0, 87_601, 58_400);
    bed.send(1, 29_201, 58_400);
    bed.play("~20");
    let (now, link) = (bed.t.now(), bed.t.with_gateway(|g, _, _| g.status()).links[0].clone());
    let flows = bed.t.with_gateway(move |g, _, _| g.flows(now, 10));
    assert_eq!((flows.len(), link.flows), (2, 2));
    // Each of them may use all of it.
    let window = flows[0].cwnd_b_bytes;
    assert!(window > 60_000 && flows[1].cwnd_b_bytes == window, "{window}");
    assert!(link.cwnd_bytes.abs_diff(window) < window / 20, "{} of {window}", link.cwnd_bytes);
    assert_eq!(bed.t.status().cwnd_bytes, link.cwnd_bytes);
}

/// `48 AT BYTES` is the link report: by the clock of the gateway there, what has come in.
#[test]
fn what_the_gateway_there_reports_of_the_link_ends_trust() {
    // Of 115 kB in a round trip.
    for (counts, is_doubted) in [(40_000, true), (90_000, false)] {
        let mut bed = Bed::begun(XcpContext::Pair);
        let (mut sent, mut doubted_after) = (58_401_u32, None);
        for round in 1..=16_u32 {
            for _ in 0..3 {
                bed.send(0, sent, 43_800);
                sent += 43_800;
            }
            // What had left a round trip before is acknowledged.
            let (ack, bytes, at_us) = (bed.end[0], round * counts, 7_000_000 + round * 100_000);
            bed.play("~99");
            let _ = bed.t.take_happened();
            acknowledged(&mut bed, 0, ack, &format!("flraw 54 {MB_PER_S},"));
            bed.play(&format!("~1\n b > . 1 ack {ack} win 60000 <flraw 53 48 {at_us:08x} {bytes:08x}>"));
            let happened = bed.t.take_happened();
            let is_doubt = |e: &Event| *e == Event::Doubted(Side::B, Doubt::Contradicted);
            if happened.iter().any(|(_, event)| is_doubt(event)) {
                doubted_after = doubted_after.or(Some(round));
            }
        }
        assert_eq!(doubted_after.is_some(), is_doubted, "{counts}: {doubted_after:?}");
        assert!(doubted_after.is_none_or(|round| (10..=13).contains(&round)), "{doubted_after:?}");
    }
}

#[test]
fn flows_that_drain_leave_the_pair() {
    let mut bed = two();
    bed.t.drain();
    all_acknowledged(&mut bed, "");
    let status = bed.t.status();
    assert_eq!((status.flows_split, status.flows_draining), (0, 0), "{status:?}");
    bed.rest();
    assert_eq!(bed.flows(), [], "and it is forgotten");
    // The next one begins as any does.
    bed.t.end_drain();
    bed.open(2, ONE);
    bed.send(2, 1, 58_400);
    bed.play("~30");
    assert_eq!(bed.pairs().iter().map(|p| (p.routers_speak, p.flows)).collect::<Vec<_>>(), [(false, 1)]);
}

#[test]
fn a_flow_that_falls_asleep_leaves_the_rest_and_finds_it_again() {
    let mut bed = two();
    all_acknowledged(&mut bed, "");
    assert_eq!(bed.end[..2], [87_601, 29_201]);
    // One goes on, the other rests.
    let mut sent = 87_601;
    for _ in 0..200 {
        bed.send(0, sent, 29_200);
        sent += 29_200;
        bed.play("~80");
        let end = bed.end[0];
        acknowledged(&mut bed, 0, end, &format!("flraw 54 {MB_PER_S},"));
    }
    assert_eq!((bed.t.status().flows_dormant, bed.flows()), (1, vec![1]));
    let before = bed.pairs()[0].rate_bps;
    assert!(before > 4_000_000, "{before}");
    // It wakes. Meanwhile its far gateway may have slept, or not: the first sum is no change.
    bed.send(0, sent, 29_200);
    bed.send(1, 29_201, 29_200);
    bed.play("~50");
    assert_eq!((bed.t.status().flows_dormant, bed.flows()), (0, vec![2]));
    bed.play("~50");
    acknowledged(&mut bed, 1, 30_641, "flraw 54 7fff0000,");
    let after = bed.pairs()[0].rate_bps;
    assert!(after.abs_diff(before) < before / 2, "{before} {after}");
}

#[test]
fn in_custody_mode_flows_share_all_the_same() {
    let t = Script::with(|s| {
        s.link = Some(link(XcpContext::Pair));
        s.config.limits.relay_bytes = 1 << 20;
        s.config.default_action = Action::Custody(Notice::Silence);
    });
    let mut bed = Bed { t, got: [0; 2], said: None, end: [1; 3] };
    bed.open(0, ONE);
    bed.send(0, 1, 58_400);
    bed.play("~100");
    acknowledged(&mut bed, 0, 7_201, &format!("flraw 54 {MB_PER_S},"));
    bed.open(1, ONE);
    bed.send(0, 58_401, 58_400);
    bed.send(1, 1, 58_400);
    let got = bed.within(30);
    assert!((10_000..=45_000).contains(&got[1]), "{got:?}");
    assert_eq!((bed.flows(), bed.t.mode()), (vec![2], "custody"));
    // Its link goes: nothing leaves, and nothing is stuck when it is back.
    bed.t.set_carrier(TO_B, false);
    assert_eq!(bed.within(3_000), [0, 0]);
    bed.t.set_carrier(TO_B, true);
    let got = bed.within(100);
    assert!(got.iter().sum::<usize>() > 20_000, "{got:?}");
    bed.rest();
    assert!(bed.flows().len() <= 1, "{:?}", bed.pairs());
}

#[test]
fn flows_that_move_to_another_link_leave_one_pair_and_make_another() {
    let spare = Link { name: "spare".into(), ..link(XcpContext::Pair) };
    let t = Script::with(|s| {
        s.link = Some(link(XcpContext::Pair));
        s.spare = Some(Some(spare));
        s.config.limits.relay_bytes = 1 << 20;
    });
    let mut bed = Bed { t, got: [0; 2], said: None, end: [1; 3] };
    for n in 0..2 {
        bed.open(n, ONE);
        bed.send(n, 1, 58_400);
    }
    bed.play("~100");
    for n in 0..2 {
        acknowledged(&mut bed, n, 7_201, &format!("flraw 54 {MB_PER_S},"));
    }
    bed.play("~20");
    let of = |bed: &mut Bed, n: usize| {
        let link = bed.t.with_gateway(|g, _, _| g.status()).links[n].clone();
        link.pairs.iter().map(|pair| (pair.routers_speak, pair.flows)).collect::<Vec<_>>()
    };
    assert_eq!((of(&mut bed, 0), of(&mut bed, 1)), (vec![(true, 2)], vec![]));
    bed.t.reroute_b(SPARE);
    // What comes of the old way says nothing of the new one.
    for n in 0..2 {
        bed.send(n, 58_401, 29_200);
        let end = bed.end[usize::from(n)];
        acknowledged(&mut bed, n, end, &format!("flraw 54 {MB_PER_S},"));
    }
    let got = bed.within(60);
    assert!(got.iter().all(|bytes| *bytes > 5_000), "nothing stands still: {got:?}");
    assert_eq!(of(&mut bed, 1), [(false, 2)]);
    all_acknowledged(&mut bed, &format!("flraw 54 {MB_PER_S},"));
    assert_eq!(of(&mut bed, 1), [(true, 2)]);
    bed.rest();
    assert_eq!(of(&mut bed, 0), [], "the old one is forgotten");
}

#[test]
fn a_gateway_that_starts_again_is_another_one_and_one_that_keeps_its_name_is_the_same() {
    for (again, pairs) in [(OTHER, 2), (ONE, 1)] {
        let mut bed = Bed::begun(XcpContext::Pair);
        // It has lost the first connection: that is reset.
        bed.play("b > R. 1 ack 57601\n ~100");
        assert_eq!(bed.t.status().flows_split, 0);
        bed.open(1, again);
        bed.send(1, 1, 58_400);
        bed.play("~30");
        assert_eq!(bed.flows(), vec![1; pairs], "the dead one is not counted");
        bed.play("~70");
        acknowledged(&mut bed, 1, 7_201, &format!("flraw 54 {MB_PER_S},"));
        let speak = bed.pairs().iter().map(|pair| pair.routers_speak).collect::<Vec<_>>();
        assert_eq!(speak, vec![true; pairs]);
        all_acknowledged(&mut bed, "");
        bed.rest();
        assert_eq!(bed.flows(), []);
    }
}

impl Bed {
    /// Payload that was sent a second time before it could be known to be lost.
    fn copied(&mut self) -> u64 {
        self.t.status().counters.early_repeated_bytes
    }
}

#[test]
fn the_end_is_sent_twice_where_packets_get_lost_at_the_pace_that_is_allowed() {
    for loses in [false, true] {
        let mut bed = Bed::begun(XcpContext::Pair);
        bed.play("a > P. 58401:58501 ack 1\n ~30");
        assert_eq!(bed.copied(), 0, "nobody has lost anything yet");
        // Of 40,320 bytes all have arrived, or all but a segment.
        let told = format!("flraw 54 {MB_PER_S},flraw 53");
        let has = if loses { "ack 7201 win 60000 <sack 8641:40321," } else { "ack 40321 win 60000 <" };
        bed.play(&format!("b > . 1 {has}{told}>\n ~10"));
        let soon = bed.copied();
        // At 1 MB a second and a little more, and what may leave at once.
        assert_eq!((soon > 4_000, soon > 17_000), (loses, false), "{soon}");
        bed.play("~40");
        let under_way = 1_440 + (58_501 - 40_321);
        assert_eq!(bed.copied(), if loses { under_way } else { 0 });
        bed.play("~60");
        assert_eq!(bed.copied(), if loses { under_way } else { 0 }, "no more than once");
    }
}

#[test]
fn who_sends_little_at_a_time_does_not_send_all_of_it_twice() {
    let mut bed = Bed::begun(XcpContext::Pair);
    let told = format!("win 60000 <flraw 54 {MB_PER_S},flraw 53>");
    bed.play("~30\n b > . 1 ack 7201 win 60000 <sack 8641:40321,flraw 53>\n ~20");
    bed.play(&format!("b > . 1 ack 58401 {told}\n ~50"));
    let before = bed.copied();
    for n in 0..200 {
        let from = 58_401 + n * 2_880;
        bed.play(&format!("a > P. {from}:{} ack 1 {{gso 1440}}\n ~100", from + 2_880));
        bed.play(&format!("b > . 1 ack {} {told}", from + 2_880));
    }
    let copied = bed.copied() - before;
    let sent = 58_400 + 200 * 2_880;
    assert!((65_536..=65_536 + sent / 4 + 2_880).contains(&copied), "{copied}");
}
