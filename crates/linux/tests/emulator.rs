//! The link emulator between real network stacks.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use common::packets::{fragment6, ipv4, ipv6, send_raw, tcp};
use common::{Host, datagram_arrives, eventually, ip, say, skipped};
use farlink_channel::ChannelConfig;
use farlink_linux::emulator::accuracy::{DelayProbe, delay_error, rate};
use farlink_linux::emulator::{Emulator, EmulatorConfig};
use farlink_linux::netns::veth;
use farlink_wire::Duration;

/// left - sat - right; the emulator in sat.
struct Wire {
    left: Host,
    right: Host,
    sat: Host,
}

impl Wire {
    fn new() -> Self {
        let wire = Self { left: Host::new("left"), right: Host::new("right"), sat: Host::new("sat") };
        veth(&wire.left.0, "eth0", &wire.sat.0, "a").unwrap();
        veth(&wire.right.0, "eth0", &wire.sat.0, "b").unwrap();
        for (host, last) in [(&wire.left, 1), (&wire.right, 2)] {
            host.0.set_offloads("eth0", false).unwrap();
            host.address("eth0", &format!("10.5.0.{last}"), 24);
            host.address("eth0", &format!("fd05::{last}"), 64);
        }
        wire
    }
    fn emulate(&self, direction: ChannelConfig, control: Option<&std::path::Path>) -> Emulator {
        self.emulate_as(direction, control, false)
    }

    fn emulate_as(
        &self,
        direction: ChannelConfig,
        control: Option<&std::path::Path>,
        is_half_duplex: bool,
    ) -> Emulator {
        let config = EmulatorConfig {
            a: "a".into(),
            b: "b".into(),
            a_to_b: direction.clone(),
            b_to_a: direction,
            is_half_duplex,
            seed: 1,
            control: control.map(Into::into),
        };
        self.sat.0.run(|| Emulator::start(config)).unwrap()
    }
}

/// Everything that arrives at an interface of a host, link-layer header taken off.
fn capture(host: &Host) -> OwnedFd {
    host.0
        .run(|| {
            // SAFETY: plain system calls; the descriptor is owned from here on.
            Ok(unsafe {
                let protocol = i32::from((libc::ETH_P_ALL as u16).to_be());
                let fd = OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, protocol));
                let time = libc::timeval { tv_sec: 0, tv_usec: 300_000 };
                libc::setsockopt(
                    fd.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_RCVTIMEO,
                    (&raw const time).cast(),
                    16,
                );
                fd
            })
        })
        .unwrap()
}

fn captured(fd: &OwnedFd) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = vec![0u8; 65_536];
    while let Ok(n) = rustix::io::read(fd, &mut buffer) {
        all.push(buffer[..n].to_vec());
    }
    all
}

#[test]
fn packets_of_every_kind_cross_bit_by_bit() {
    if skipped("packets_of_every_kind_cross_bit_by_bit") {
        return;
    }
    let wire = Wire::new();
    let emulator =
        wire.emulate(ChannelConfig { delay: Duration::from_millis(5), ..ChannelConfig::default() }, None);
    let (l4, r4, l6, r6) = (ip("10.5.0.1"), ip("10.5.0.2"), ip("fd05::1"), ip("fd05::2"));
    let bytes: Vec<u8> = (0..200u8).collect();
    let cases: Vec<(&str, IpAddr, Vec<u8>)> = vec![
        ("ESP", r4, ipv4(50, l4, r4, &[], 0, &bytes)),
        ("protocol 253", r4, ipv4(253, l4, r4, &[], 0, &bytes)),
        ("router alert", r4, ipv4(253, l4, r4, &[0x94, 4, 0, 0], 0, &bytes)),
        ("fragment", r4, ipv4(17, l4, r4, &[], 0x2003, &bytes)),
        ("TCP with nothing right in it", r4, ipv4(6, l4, r4, &[], 0, &tcp(1, 2))),
        ("IPv6 protocol 253", r6, ipv6(253, l6, r6, &bytes)),
        ("IPv6 fragment", r6, ipv6(44, l6, r6, &fragment6(17, 48, true, &bytes))),
        (
            "IPv6 destination options",
            r6,
            ipv6(60, l6, r6, &[vec![253, 0, 1, 4, 0, 0, 0, 0], bytes.clone()].concat()),
        ),
        ("IPv6 echo", r6, ipv6(58, l6, r6, &[vec![128, 0, 0, 0, 1, 2, 3, 4], bytes.clone()].concat())),
    ];
    for (name, dst, packet) in cases {
        let (sent, arrived) = (capture(&wire.left), capture(&wire.right));
        send_raw(&wire.left, dst, &packet);
        let is_ours = |p: &Vec<u8>| p.len() == packet.len() && p[p.len() - 20..] == packet[p.len() - 20..];
        // As it left: the sending kernel fills in checksums.
        let left: Vec<_> = captured(&sent).into_iter().filter(is_ours).collect();
        assert!(!left.is_empty(), "{name} was sent");
        let right = captured(&arrived);
        assert!(right.contains(&left[0]), "{name}: {left:?} {right:?}");
    }
    for (from, to, address) in [(&wire.left, &wire.right, "10.5.0.2"), (&wire.right, &wire.left, "fd05::1")] {
        assert!(datagram_arrives(from, to, address));
    }
    let listener = wire.right.0.run(|| Ok(TcpListener::bind("10.5.0.2:0").unwrap())).unwrap();
    let to = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&vec![0xA5; 5_000_000]).unwrap();
    });
    let mut got = Vec::new();
    wire.left.0.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap().read_to_end(&mut got).unwrap();
    server.join().unwrap();
    assert!(got.len() == 5_000_000 && got.iter().all(|b| *b == 0xA5));
    for stats in emulator.stats().unwrap() {
        assert_eq!(stats.faults, farlink_linux::emulator::WireFaults::default(), "{stats:?}");
        assert!(stats.is_up);
    }
    emulator.stop().unwrap();
    assert!(!datagram_arrives(&wire.left, &wire.right, "10.5.0.2"), "nothing else connects the two");
}

#[test]
fn delay_and_rate_are_what_was_asked_for() {
    if skipped("delay_and_rate_are_what_was_asked_for") {
        return;
    }
    let wire = Wire::new();
    let config = ChannelConfig {
        delay: Duration::from_millis(25),
        rate_bps: Some(20_000_000),
        // Room for all probes at once: on a busy machine their sender may have to catch up.
        queue_limit_bytes: Some(1_000_000),
        ..ChannelConfig::default()
    };
    let emulator = wire.emulate(config, None);
    let probe = DelayProbe {
        count: 200,
        interval: Duration::from_millis(3),
        bytes: 1000,
        expected: Duration::from_micros(25_400),
    };
    for address in ["10.5.0.2", "fd05::2"] {
        let error = delay_error(&wire.left.0, &wire.right.0, ip(address), &probe).unwrap().unwrap();
        say(&format!("one-way delay error to {address}: {error:?}"));
        assert_eq!(error.count, 200, "nothing is lost");
        // Late by how much depends on the machine; early would be wrong on any. 20 us: two reads of
        // two clocks.
        assert!(error.p50_ns > -20_000, "{error:?}");
    }
    emulator.set(&[("queue_bytes".to_owned(), "100000".to_owned())]).unwrap();
    // A sender that the machine holds up leaves the line idle for a moment, and a receiver that it
    // holds up at the beginning reads faster for a moment. Neither is the line's fault: so several
    // tries.
    let mut attempts = 0;
    eventually("the rate is within 1 %", || {
        attempts += 1;
        let length = Duration::from_millis(500);
        let measured = rate(&wire.left.0, &wire.right.0, ip("10.5.0.2"), 1000, 30e6, length).unwrap();
        say(&format!("rate: {measured:.0} bit/s of 20000000"));
        assert!(attempts <= 8, "{measured}");
        measured > 20e6 * 0.99 && measured < 20e6 * 1.01
    });
    let [there, back] = emulator.stats().unwrap();
    assert!(there.channel.dropped_queue > 0 && there.queue_bytes <= 100_000, "{there:?}");
    assert_eq!(back.channel.dropped_queue, 0);
}

#[test]
fn the_control_socket_changes_and_reports() {
    if skipped("the_control_socket_changes_and_reports") {
        return;
    }
    let wire = Wire::new();
    let path = std::env::temp_dir().join(format!("flt{}-emulator", std::process::id()));
    let emulator = wire.emulate(ChannelConfig::default(), Some(&path));
    let mut stream = UnixStream::connect(&path).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut ask = |line: &str| -> serde_json::Value {
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    assert!(datagram_arrives(&wire.left, &wire.right, "10.5.0.2"));
    assert_eq!(ask(r#"{"set": {"rate_bps": 8000000, "b_to_a.delay_ms": 12.5}}"#)["ok"], true);
    let stats = ask(r#"{"stats": true}"#);
    assert_eq!(
        (&stats["a_to_b"]["rate_bps"], &stats["b_to_a"]["rate_bps"]),
        (&8_000_000.into(), &8_000_000.into())
    );
    assert_eq!((&stats["a_to_b"]["delay_ms"], &stats["b_to_a"]["delay_ms"]), (&0.0.into(), &12.5.into()));
    assert!(stats["a_to_b"]["delivered_packets"].as_u64().unwrap() >= 1, "{stats}");
    assert_eq!(stats["a_to_b"]["faults"]["overrun_packets"], 0);

    assert_eq!(ask(r#"{"set": {"a_to_b.loss": 1}}"#)["ok"], true);
    assert!(!datagram_arrives(&wire.left, &wire.right, "10.5.0.2"));
    assert!(datagram_arrives(&wire.right, &wire.left, "10.5.0.1"));
    // All or nothing.
    let refused = ask(r#"{"set": {"loss": 0, "rate": 1}}"#);
    assert!(refused["error"].as_str().unwrap().contains("rate_bps"), "{refused}");
    assert!(ask(r#"{"set": {"up.loss": 0}}"#)["error"].as_str().unwrap().contains("a_to_b"));
    assert!(ask("nonsense")["error"].as_str().unwrap().contains("JSON"));
    assert!(!datagram_arrives(&wire.left, &wire.right, "10.5.0.2"));
    assert_eq!(ask(r#"{"set": {"loss": 0}}"#)["ok"], true);
    eventually("the loss is over", || datagram_arrives(&wire.left, &wire.right, "10.5.0.2"));
    let schedule = |answer: &serde_json::Value| answer["a_to_b"]["schedule"]["contacts"].clone();
    assert_eq!(schedule(&ask(r#"{"stats": true}"#)), serde_json::Value::Null);
    assert_eq!(ask(r#"{"set": {"contacts": "0s-1h 2h-3h"}}"#)["ok"], true);
    assert_eq!(schedule(&ask(r#"{"stats": true}"#)), "0s-3600s 7200s-10800s");
    let carried = ask(r#"{"carried": true}"#);
    let sum = |name: &str| -> u64 {
        carried[name]["bytes"].as_array().unwrap().iter().filter_map(serde_json::Value::as_u64).sum()
    };
    let stats = ask(r#"{"stats": true}"#);
    assert!(sum("a_to_b") > 0, "{carried}");
    assert!(sum("a_to_b") <= stats["a_to_b"]["serialised_bytes"].as_u64().unwrap(), "{carried}");
    assert_eq!(ask(r#"{"begin": true}"#)["ok"], true);
    let anew = ask(r#"{"carried": true}"#);
    assert_eq!(anew["a_to_b"]["bytes"].as_array().map(Vec::len), Some(0), "{anew}");
    drop(emulator);
    assert!(!path.exists());
}

/// Bytes that both lines carried in the busiest interval in which both had something to send.
fn busiest_of_both(is_half_duplex: bool) -> u64 {
    const COUNT: u64 = 300;
    let wire = Wire::new();
    // 10 kB in 10 ms.
    let link = ChannelConfig { rate_bps: Some(8_000_000), ..ChannelConfig::default() };
    let emulator = wire.emulate_as(link, None, is_half_duplex);
    for (from, to, address) in [(&wire.left, &wire.right, "10.5.0.2"), (&wire.right, &wire.left, "10.5.0.1")]
    {
        assert!(datagram_arrives(from, to, address));
    }
    let before = emulator.stats().unwrap().map(|s| s.channel.delivered_packets);
    let (l4, r4) = (ip("10.5.0.1"), ip("10.5.0.2"));
    for _ in 0..COUNT {
        send_raw(&wire.left, r4, &ipv4(253, l4, r4, &[], 0, &[0; 1000]));
        send_raw(&wire.right, l4, &ipv4(253, r4, l4, &[], 0, &[0; 1000]));
    }
    let mut last = emulator.stats().unwrap();
    eventually("all is through", || {
        last = emulator.stats().unwrap();
        last.iter().zip(before).all(|(s, before)| s.channel.delivered_packets - before >= COUNT)
    });
    let both = last[0].carried.bytes.iter().zip(&last[1].carried.bytes);
    both.filter(|(a, b)| **a > 0 && **b > 0).map(|(a, b)| a + b).max().unwrap_or(0)
}

#[test]
fn two_directions_share_a_medium() {
    if skipped("two_directions_share_a_medium") {
        return;
    }
    // A packet may reach into the next interval.
    let (half, full) = (busiest_of_both(true), busiest_of_both(false));
    assert!((5_000..=11_100).contains(&half), "{half} bytes in 10 ms at 8 Mbit/s");
    assert!(full > 12_000, "{full} bytes with a medium each");
}

#[test]
fn forgotten_offloads_are_counted() {
    if skipped("forgotten_offloads_are_counted") {
        return;
    }
    let wire = Wire::new();
    wire.left.0.set_offloads("eth0", true).unwrap();
    let emulator = wire.emulate(ChannelConfig::default(), None);
    // Its checksum is one that hardware should have finished, so it is refused.
    assert!(!datagram_arrives(&wire.left, &wire.right, "10.5.0.2"));
    let [there, _] = emulator.stats().unwrap();
    assert!(there.faults.unfinished_checksums > 0, "{there:?}");
}
