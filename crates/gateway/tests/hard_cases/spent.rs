//! Every byte that is sent into a link is counted for what it is.

use farlink_gateway::config::{ByteBudget, Copies, LegConfig, Link, Period};
use farlink_gateway::{LinkStatus, Spent};
use farlink_wire::Duration;

use crate::early::BETWEEN_GATEWAYS;
use crate::script::{Host, Script, Setup};

/// A link of 8 Mbit/s and 500 ms without copies.
fn link() -> Link {
    Link {
        name: "sat".into(),
        rate_bps: Some(8_000_000),
        rtt: Some(Duration::from_millis(500)),
        copies: Copies::Off,
        ..Link::default()
    }
}

fn script(change: impl FnOnce(&mut Setup)) -> Script {
    Script::with(|s| {
        s.link = Some(link());
        change(s);
    })
}

fn status(t: &mut Script) -> LinkStatus {
    t.with_gateway(|gateway, _, _| gateway.status().links.swap_remove(0))
}

/// What split TCP was for; each byte under one heading.
fn spent(t: &mut Script) -> Spent {
    let link = status(t);
    assert_eq!(link.spent.total_bytes(), link.carried["split_tcp"].bytes, "{:?}", link.spent);
    link.spent
}

#[test]
fn payload_repetitions_headers_and_acknowledgements_are_told_apart() {
    let mut t = script(|_| {});
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         ~10
         drop
         b > P. 1:51 ack 1
         ~100
         drop",
    );
    let first = spent(&mut t);
    assert_eq!((first.payload_bytes, first.repeated_bytes, first.probe_bytes), (100, 0, 0));
    assert_eq!((first.header_bytes, first.ack_bytes), (40, 40));
    // Nothing is heard: it leaves again, and comes twice.
    t.play("~3s\n drop");
    let again = spent(&mut t);
    assert!(again.repeated_bytes >= 100 && again.needless_bytes == 0, "{again:?}");
    t.play("b > . 51 ack 101 <sack 1:101>\n ~50\n drop");
    let told = spent(&mut t);
    assert_eq!((told.payload_bytes, told.needless_bytes), (100, 100), "{told:?}");
    // Whoever tells of more than was sent twice is not believed.
    t.play(
        "b > . 51 ack 101 <sack 1:101>\n b > . 51 ack 101 <sack 1:101>\n b > . 51 ack 101 <sack 1:101>\n ~50",
    );
    let told = spent(&mut t);
    assert!(told.needless_bytes <= told.repeated_bytes, "{told:?}");
}

#[test]
fn a_gateway_tells_what_has_come_twice() {
    let mut t = script(|_| {});
    t.play(BETWEEN_GATEWAYS);
    t.play(
        "b > . 1 ack 1 win 65535 <flraw 53 320400>
         a > P. 1:101 ack 1
         ~5s
         drop
         # 0x64 of them have come twice, which is said twice.
         b > . 1 ack 101 win 65535 <flraw 53 a400000064>
         b > . 1 ack 101 win 65535 <flraw 53 a400000064>
         ~50",
    );
    let told = spent(&mut t);
    assert!(told.repeated_bytes >= 100, "{told:?}");
    assert_eq!(told.needless_bytes, 100);
    assert_eq!(t.status().counters.needless_bytes, 100);
}

#[test]
fn a_gateway_is_told_what_has_come_twice() {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7,flraw 51 680000000702000700>
         b < S 0
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         a < S. 0 ack 1
         a > . 1 ack 1 <fl>
         ~1
         drop
         a > P. 1:101 ack 1 <fl>
         ~300
         drop",
    );
    let word = |t: &mut Script| {
        let told = t.take(Host::A).into_iter().filter_map(|s| s.segment.options.farlink);
        let bodies: Vec<Vec<u8>> = told.map(|option| option.body.to_vec()).collect();
        bodies.iter().filter(|body| body.windows(5).any(|w| w == [0xa4, 0, 0, 0, 100])).count()
    };
    assert_eq!(word(&mut t), 0, "nothing has");
    t.play("a > P. 1:101 ack 1 <fl>\n ~700\n drop b");
    assert_eq!(word(&mut t), 1);
    // Acknowledgements may be lost: the next one says it once more, and then none does.
    t.play("a > P. 101:201 ack 1 <fl>\n ~700\n drop b");
    assert_eq!(word(&mut t), 1);
    t.play("a > P. 201:301 ack 1 <fl>\n ~700\n drop b");
    assert_eq!(word(&mut t), 0);
}

/// The gateway on the leg has been killed, and its next life forwards.
#[test]
fn what_has_come_twice_is_not_told_in_place_of_what_is_behind_a_gap() {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ts 1 0,ws 7,flraw 51 680000000702000700>
         b < S 0
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ts 1 1,ws 7>
         a < S. 0 ack 1
         a > . 1 ack 1 <ts 1 1,fl>
         ~1
         drop
         a > P. 1:101 ack 1 <ts 2 1,fl>
         ~1
         drop
         b > . 1 ack 101 <ts 2 2>
         ~300
         drop
         a > P. 1:101 ack 1 <ts 3 1>
         ~1
         drop
         a > P. 201:301 ack 1 <ts 4 1>
         a < . 1 ack 101 <sack 201:301>",
    );
}

/// 3,000 bytes in both directions.
fn with_budget(bytes: u64) -> Script {
    let mut t = Script::with(|s| {
        let byte_budget = Some(ByteBudget { bytes, period: Period::Month });
        let leg = LegConfig { cc: farlink_cc::Kind::FixedRate, ..LegConfig::default() };
        s.link = Some(Link { copies: Copies::Auto, byte_budget, leg, ..link() });
    });
    t.play(BETWEEN_GATEWAYS);
    t.play(
        "b > . 1 ack 1 win 65535 <fl 1 1024>
         drop",
    );
    t
}

/// A request without an answer: how many bytes of copies leave?
fn copies_of_a_request(t: &mut Script) -> u64 {
    t.play("+100\n a > P. 1:101 ack 1\n ~480\n drop");
    t.status().counters.early_repeated_bytes
}

#[test]
fn with_a_budget_that_is_used_up_nothing_leaves_that_no_host_has_sent() {
    let mut t = with_budget(1_000_000);
    assert_eq!(copies_of_a_request(&mut t), 200);
    let level = status(&mut t);
    // What left, and two segments that came in: the handshake's and an acknowledgement.
    let (used, sent) = (level.budget_used_bytes, level.sent_bytes);
    assert!(used > sent && used < sent + 200, "{used} {sent}");
    assert_eq!((level.budget_bytes, level.budget_level), (1_000_000, Some("fine")));
    let mut t = with_budget(100);
    assert_eq!(status(&mut t).budget_level, Some("used up"));
    assert_eq!(copies_of_a_request(&mut t), 0);
    assert!(t.mode() == "split", "connections go on");
    // A new period: all is as it is configured.
    t.with_gateway(|gateway, _, _| gateway.begin_budget_period("sat"));
    let mut t = with_budget(1_000_000);
    t.with_gateway(|gateway, _, _| gateway.recall_budget_use("sat", 900_000));
    assert_eq!(status(&mut t).budget_level, Some("low"));
    t.with_gateway(|gateway, _, _| gateway.recall_budget_use("sat", 900_000));
    assert_eq!(status(&mut t).budget_level, Some("used up"));
    t.with_gateway(|gateway, _, _| gateway.begin_budget_period("sat"));
    assert_eq!(status(&mut t).budget_level, Some("fine"));
    assert_eq!(copies_of_a_request(&mut t), 200);
}
