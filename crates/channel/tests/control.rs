//! A line whose queue is controlled by XCP.

use farlink_channel::{Behind, Channel, ChannelConfig, Medium, Weights, XcpHarm, XcpRouter};
use farlink_wire::shim::{SHIM_PROTOCOL, ShimVersion};
use farlink_wire::time::{Duration, Instant};
use farlink_wire::xcp::{HeaderTime, XcpFields, sum_option};
use farlink_wire::{
    Offload, Parsed, SegmentHeader, Shim, ShimProtocols, TcpSegment, finish_checksums, parse, parse_with,
    verify_checksums,
};

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

/// A line of 8 Mbit/s before which XCP traffic waits apart.
fn shared(xcp: u32, plain: u32) -> ChannelConfig {
    let weights = Some(Weights { xcp, plain });
    ChannelConfig { queue_limit_bytes: Some(100_000), ..line(XcpRouter { weights, ..XcpRouter::default() }) }
}

/// A packet of as many bytes that says nothing.
fn plain() -> Vec<u8> {
    let host = |n: u8| format!("10.0.0.{n}").parse().unwrap();
    let (head, offload) = SegmentHeader::between((host(1), 1), (host(3), 2)).write(976).unwrap();
    let mut packet = [&head[..], &[7; 976]].concat();
    finish_checksums(&mut packet, &offload);
    packet
}

fn is_xcp(packet: &[u8]) -> bool {
    segment(packet).options.xcp.is_some()
}

#[test]
fn both_groups_share_a_line_by_weights_and_each_has_what_the_other_leaves() {
    for (weights, share) in [((1, 1), 0.5), ((3, 1), 0.75), ((1, 4), 0.2)] {
        let mut channel = Channel::new(shared(weights.0, weights.1), 1);
        let now = Instant::ZERO;
        let length = packet(false, 10).len();
        assert_eq!(plain().len(), length);
        for _ in 0..40 {
            channel.push(now, packet(false, 10));
            channel.push(now, plain());
        }
        let out: Vec<bool> =
            core::iter::from_fn(|| channel.pop(Instant::from_millis(1_000))).map(|p| is_xcp(&p)).collect();
        assert_eq!(out.len(), 80);
        let of_xcp = out[1..33].iter().filter(|is| **is).count() as f64 / 32.0;
        assert!((of_xcp - share).abs() < 0.05, "{weights:?}: {of_xcp}");
        assert!(out[79] != out[40] || share == 0.5, "the last ones are of the group that had less");
        let c = channel.carried();
        let sums = [&c.bytes, &c.xcp_bytes].map(|bytes| bytes.iter().sum::<u64>());
        assert_eq!(sums, [80 * length as u64, 40 * length as u64]);
        assert_eq!(u64::from(c.xcp_queue_bytes[0]), 40 * length as u64 - u64::from(out[0]) * length as u64);
    }
}

#[test]
fn plain_packets_fill_no_more_of_the_queue_than_is_theirs_of_the_line() {
    // In each 10 ms four packets of XCP, 0.42 of the line, and more of others than there is room
    // for.
    let mut channel = Channel::new(shared(1, 1), 1);
    let (mut plain_out, mut waiting) = (0, 0);
    for turn in 0..300 {
        let now = Instant::from_millis(turn * 10);
        for _ in 0..4 {
            channel.push(now, packet(false, 2));
            channel.push(now, plain());
            channel.push(now, plain());
        }
        waiting = channel.queue_bytes();
        while let Some(out) = channel.pop(Instant::from_millis(turn * 10 + 9)) {
            plain_out += usize::from(!is_xcp(&out) && turn >= 100);
        }
    }
    assert!((1_100..1_200).contains(&plain_out), "what is left of the line: {plain_out}");
    assert!((50_000..64_000).contains(&waiting), "as much of the room: {waiting}");
    assert!(channel.stats().dropped_queue > 500);
}

#[test]
fn what_waits_is_kept_when_the_line_is_told_other_weights() {
    let mut channel = Channel::new(shared(1, 1), 1);
    for _ in 0..20 {
        channel.push(Instant::ZERO, packet(false, 10));
        channel.push(Instant::ZERO, plain());
    }
    let at = Instant::from_millis(5);
    channel.update(at, |config| *config = shared(9, 1));
    // Ten packets at the new weights, and the rest in one queue.
    let mut out: Vec<_> = core::iter::from_fn(|| channel.pop(Instant::from_millis(15))).collect();
    assert!(out[5..].iter().filter(|p| is_xcp(p)).count() + 1 >= out[5..].len(), "{}", out.len());
    channel.update(Instant::from_millis(15), |config| config.xcp = None);
    out.extend(core::iter::from_fn(|| channel.pop(Instant::from_millis(1_000))));
    assert_eq!(out.len(), 40);
    assert_eq!(out.iter().filter(|p| is_xcp(p)).count(), 20);
}

#[test]
fn on_a_medium_that_both_directions_share_the_router_goes_by_what_leaves() {
    let given = |is_shared: bool| {
        let config = ChannelConfig { xcp: Some(XcpRouter::default()), ..line(XcpRouter::default()) };
        let mut there = Channel::new(config.clone(), 1);
        let mut back = Channel::new(ChannelConfig { xcp: None, ..config }, 2);
        if is_shared {
            let medium = Medium::new();
            there.share(&medium);
            back.share(&medium);
        }
        // Both always have something to send: half of the medium is 5 packets in 10 ms.
        let mut sum = 0;
        for turn in 0..200u64 {
            for _ in 0..6 {
                there.push(Instant::from_millis(turn * 10), packet(false, 2));
                back.push(Instant::from_millis(turn * 10), plain());
            }
            for ms in 0..10 {
                let now = Instant::from_millis(turn * 10 + ms);
                while back.pop(now).is_some() {}
                while let Some(out) = there.pop(now) {
                    let delta = segment(&out).options.xcp.unwrap().delta_bytes_per_s;
                    sum += if turn >= 100 { i64::from(delta) } else { 0 };
                }
            }
        }
        sum
    };
    let (alone, shared) = (given(false), given(true));
    assert!(alone > 500_000, "most of the line is idle: {alone}");
    assert!(shared < 0, "more comes than leaves: {shared}");
}

/// What is left of the words of so many packets behind a line where somebody changes them.
fn harmed(harm: XcpHarm, options: &dyn Fn(u32) -> Vec<u8>) -> Vec<farlink_wire::TcpOptions> {
    let mut channel = Channel::new(ChannelConfig { xcp_harm: Some(harm), ..ChannelConfig::default() }, 1);
    let host = |n: u8| format!("10.0.0.{n}").parse().unwrap();
    let header = SegmentHeader::between((host(1), 1), (host(2), 2));
    for n in 0..200 {
        let (head, offload) = header.write_with_options(4, &options(n)).unwrap();
        let mut packet = [&head[..], &[7; 4]].concat();
        finish_checksums(&mut packet, &offload);
        channel.push(Instant::ZERO, packet);
    }
    let out = std::iter::from_fn(|| channel.pop(Instant::from_millis(1)));
    let out: Vec<_> = out.map(|packet| segment(&packet).options).collect();
    assert_eq!(out.len(), 200);
    out
}

#[test]
fn words_are_changed_on_the_way() {
    let said = XcpFields { spacing: HeaderTime(5), rtt: HeaderTime(6), delta_bytes_per_s: 7 };
    let fields = |_: u32| said.option().to_vec();
    let sums = |n: u32| sum_option(n).to_vec();
    let deltas = |harm| -> Vec<i32> {
        harmed(harm, &fields).iter().map(|o| o.xcp.unwrap().delta_bytes_per_s).collect()
    };
    assert!(
        harmed(XcpHarm::Strip, &fields).iter().chain(&harmed(XcpHarm::Strip, &sums)).all(|o| !o.has_ours())
    );
    assert!(deltas(XcpHarm::More).iter().all(|d| *d == 1_000_000));
    assert!(deltas(XcpHarm::Less).iter().all(|d| *d == -1_000_000));
    let both = deltas(XcpHarm::Both);
    assert!(both.iter().any(|d| *d > 1_000_000) && both.iter().any(|d| *d < -1_000_000), "{both:?}");
    let told: Vec<u32> = harmed(XcpHarm::Replay, &sums).iter().map(|o| o.xcp_sum.unwrap()).collect();
    assert!(told.windows(2).any(|w| w[1] < w[0]) && told.windows(2).any(|w| w[1] > w[0] + 10), "{told:?}");
    let wild = harmed(XcpHarm::Wild, &fields);
    assert!(wild.iter().any(|o| o.xcp.unwrap().rtt > HeaderTime(1 << 24)));
}

/// A packet with the draft's own header.
fn shim_packet(protocol: u8, shim: Shim) -> Vec<u8> {
    let host = |n: u8| format!("10.0.0.{n}").parse().unwrap();
    let header = SegmentHeader::between((host(1), 1), (host(2), 2));
    let payload = [7; 960];
    let (mut head, mut offload) = header.write(payload.len()).unwrap();
    shim.put_into(protocol, (&mut head, &mut offload), &[&payload]).unwrap();
    [&head[..], &payload].concat()
}

/// The header, of a packet whose checksums hold.
fn shim_of(packet: &[u8], protocol: u8) -> Shim {
    let Parsed::Tcp(s) = parse_with(packet, ShimProtocols::NONE.with(protocol)) else { panic!("no TCP") };
    assert!(verify_checksums(packet, &s, &Offload::default()));
    s.shim.expect("it has the header")
}

/// What is left of such headers behind a line where somebody changes them.
fn harmed_shims(harm: XcpHarm, protocol: Option<u8>, shim: &dyn Fn(u32) -> Shim) -> Vec<Shim> {
    let config = ChannelConfig { xcp_harm: Some(harm), xcp_protocol: protocol, ..ChannelConfig::default() };
    let mut channel = Channel::new(config, 1);
    let protocol = protocol.unwrap_or(SHIM_PROTOCOL);
    for n in 0..200 {
        channel.push(Instant::ZERO, shim_packet(protocol, shim(n)));
    }
    let out = std::iter::from_fn(|| channel.pop(Instant::from_millis(1)));
    let out: Vec<_> = out.map(|packet| shim_of(&packet, protocol)).collect();
    assert_eq!(out.len(), 200);
    out
}

#[test]
fn words_in_the_header_of_the_draft_are_changed_as_those_in_options() {
    let fields = XcpFields { spacing: HeaderTime(5), rtt: HeaderTime(6), delta_bytes_per_s: 7 };
    let version_2 = ShimVersion::Two;
    let data = |_: u32| Shim { said: Some(fields), feedback_bytes_per_s: 3, version: version_2 };
    let answer = |n: u32| Shim { feedback_bytes_per_s: n as i32 + 1, ..Shim::default() };
    for protocol in [None, Some(253)] {
        let deltas = |harm| -> Vec<i32> {
            let all = harmed_shims(harm, protocol, &data);
            // Only the wish.
            assert!(all.iter().all(|shim| (shim.version, shim.feedback_bytes_per_s) == (version_2, 3)));
            all.iter().map(|shim| shim.said.unwrap().delta_bytes_per_s).collect()
        };
        assert!(deltas(XcpHarm::More).iter().all(|d| *d == 1_000_000));
        assert!(deltas(XcpHarm::Less).iter().all(|d| *d == -1_000_000));
        let both = deltas(XcpHarm::Both);
        assert!(both.iter().any(|d| *d > 1_000_000) && both.iter().any(|d| *d < -1_000_000), "{both:?}");
        for shim in
            [harmed_shims(XcpHarm::Strip, protocol, &data), harmed_shims(XcpHarm::Strip, protocol, &answer)]
                .concat()
        {
            assert_eq!((shim.said, shim.feedback_bytes_per_s), (None, 0));
        }
        let told = harmed_shims(XcpHarm::Replay, protocol, &answer);
        let told: Vec<i32> = told.iter().map(|shim| shim.feedback_bytes_per_s).collect();
        assert!(
            told.windows(2).any(|w| w[1] < w[0]) && told.windows(2).any(|w| w[1] > w[0] + 10),
            "{told:?}"
        );
        let wild = harmed_shims(XcpHarm::Wild, protocol, &data);
        assert!(wild.iter().any(|shim| shim.said.unwrap().rtt > HeaderTime(1 << 24)));
        assert!(wild.iter().any(|shim| shim.feedback_bytes_per_s.unsigned_abs() > 1 << 24));
    }
}

#[test]
fn a_router_reads_the_header_by_the_protocol_that_it_is_told() {
    for (told, is_answered) in [(Some(253), true), (None, false), (Some(254), false)] {
        let config = ChannelConfig { xcp_protocol: told, ..shared(1, 1) };
        let mut channel = Channel::new(config, 1);
        let said = XcpFields {
            spacing: HeaderTime::of(Duration::from_millis(10)),
            rtt: HeaderTime::of(Duration::from_millis(RTT_MS)),
            delta_bytes_per_s: i32::MAX,
        };
        for n in 0..40 {
            channel.push(
                Instant::from_millis(n * 10),
                shim_packet(253, Shim { said: Some(said), ..Shim::default() }),
            );
            let out = channel.pop(Instant::from_millis(n * 10 + 9)).unwrap();
            let left = shim_of(&out, 253).said.unwrap().delta_bytes_per_s;
            assert_eq!(left < i32::MAX, is_answered, "{told:?} {n}");
        }
        let of_xcp: u64 = channel.carried().xcp_bytes.iter().sum();
        assert_eq!(of_xcp > 0, is_answered, "{told:?}");
    }
}

#[test]
fn a_router_that_is_away_answers_nothing_and_begins_anew() {
    let ms = Duration::from_millis;
    let said = XcpRouter { away: Some((ms(300), ms(500))), ..XcpRouter::default() };
    let mut channel = Channel::new(line(said), 1);
    let deltas: Vec<i32> = (0..100)
        .map(|n| {
            channel.push(Instant::from_millis(10 * n), packet(false, 10));
            let out = channel.pop(Instant::from_millis(10 * n + 9)).unwrap();
            segment(&out).options.xcp.unwrap().delta_bytes_per_s
        })
        .collect();
    assert!(deltas[30..50].iter().all(|d| *d == i32::MAX), "{deltas:?}");
    assert!(deltas[20..30].iter().chain(&deltas[70..]).all(|d| *d > 0 && *d < i32::MAX), "{deltas:?}");
    assert!(deltas[50..55].iter().all(|d| *d == 0), "it knows nothing yet: {deltas:?}");
}

#[test]
fn a_line_behind_has_a_rate_and_a_queue_of_its_own() {
    let behind = Behind { rate_bps: 4_000_000, queue_limit_bytes: 20_000 };
    let config =
        ChannelConfig { rate_bps: Some(8_000_000), behind: Some(behind), ..ChannelConfig::default() };
    let mut channel: Channel<Vec<u8>> = Channel::new(config, 1);
    for _ in 0..100 {
        channel.push(Instant::ZERO, vec![0; 1_000]);
    }
    let (mut out, mut last) = (0, Instant::ZERO);
    while let Some(at) = channel.poll_timeout() {
        while channel.pop(at).is_some() {
            (out, last) = (out + 1, at);
        }
    }
    // One in 1 ms, out one in 2 ms: half of what comes beyond 20 waits for nothing.
    assert!((70..=72).contains(&out), "{out}");
    assert_eq!(channel.stats().dropped_queue, 100 - out);
    assert!((140..=146).contains(&(last.since(Instant::ZERO).as_millis())), "{last:?}");
    assert!(channel.is_empty());
}
