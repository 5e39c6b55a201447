//! A line whose queue is controlled by XCP.

use farlink_channel::{Channel, ChannelConfig, XcpRouter};
use farlink_wire::time::{Duration, Instant};
use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::{Offload, Parsed, SegmentHeader, TcpSegment, finish_checksums, parse, verify_checksums};

const RTT_MS: u64 = 100;

/// A packet of 1,000 bytes or so, that wishes for all there is.
fn packet(v6: bool, spacing_ms: u64) -> Vec<u8> {
    let said = XcpFields {
        spacing: HeaderTime::of(Duration::from_millis(spacing_ms)),
        rtt: HeaderTime::of(Duration::from_millis(RTT_MS)),
        delta_bytes_per_s: i32::MAX,
    };
    let host = |n: u8| if v6 { format!("fd00::{n}") } else { format!("10.0.0.{n}") }.parse().unwrap();
    let header = SegmentHeader::between((host(1), 1), (host(2), 2));
    let (head, offload) = header.write_with_options(960, &said.option()).unwrap();
    let mut packet = [&head[..], &[7; 960]].concat();
    finish_checksums(&mut packet, &offload);
    packet
}

fn segment(packet: &[u8]) -> TcpSegment {
    let Parsed::Tcp(s) = parse(packet) else { panic!("no TCP") };
    assert!(verify_checksums(packet, &s, &Offload::default()));
    s
}

/// What each interval has given to packets that come each 10 ms, bytes a second.
fn given(v6: bool, config: &ChannelConfig, change: Option<(u64, u64)>) -> Vec<i64> {
    let mut channel = Channel::new(config.clone(), 1);
    let mut given = vec![0; 10];
    for ms in (0..10 * RTT_MS).step_by(10) {
        let now = Instant::from_millis(ms);
        if let Some((at, bps)) = change.filter(|(at, _)| *at == ms) {
            channel.update(Instant::from_millis(at), |config| config.rate_bps = Some(bps));
        }
        channel.push(now, packet(v6, 10));
        let out = channel.pop(Instant::from_millis(ms + 9)).unwrap();
        let delta = segment(&out).options.xcp.unwrap().delta_bytes_per_s;
        assert!(delta < i32::MAX, "nobody gets all that he wishes for");
        given[(ms / RTT_MS) as usize] += i64::from(delta);
    }
    given
}

fn line(xcp: XcpRouter) -> ChannelConfig {
    ChannelConfig { rate_bps: Some(8_000_000), xcp: Some(xcp), ..ChannelConfig::default() }
}

fn is_near(sum: i64, wanted: i64) -> bool {
    (sum - wanted).abs() < wanted.abs() / 5
}

#[test]
fn a_controlled_line_gives_two_fifths_of_what_it_has_left() {
    for v6 in [false, true] {
        // 1 MB/s, of which 100 kB/s are used.
        let given = given(v6, &line(XcpRouter::default()), None);
        assert_eq!(given[0] / 1_000_000, 0, "nothing is known yet: {given:?}");
        assert!(given[2..].iter().all(|sum| is_near(*sum, 360_000)), "{given:?}");
    }
}

#[test]
fn it_follows_the_rate_unless_it_was_told_another() {
    let followed = given(false, &line(XcpRouter::default()), Some((500, 16_000_000)));
    assert!(is_near(followed[4], 360_000) && is_near(followed[9], 760_000), "{followed:?}");
    let said = XcpRouter { capacity_bps: Some(4_000_000), ..XcpRouter::default() };
    let told = given(false, &line(said), Some((500, 16_000_000)));
    assert!(is_near(told[4], 160_000) && is_near(told[9], 160_000), "{told:?}");
}

#[test]
fn what_is_no_xcp_passes_as_it_is() {
    let mut channel = Channel::new(line(XcpRouter::default()), 1);
    let plain: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 40]).collect();
    for packet in &plain {
        channel.push(Instant::ZERO, packet.clone());
    }
    let out: Vec<_> = core::iter::from_fn(|| channel.pop(Instant::from_millis(100))).collect();
    assert_eq!(out, plain);
}
