//! A gateway between two channels, driven by pseudo-random packets: one exported function that
//! reaches every door of the seven sans-I/O crates, so that the linker has to bring everything that
//! lies behind them.

use std::net::{IpAddr, Ipv4Addr};

use farlink_channel::{Channel, ChannelConfig};
use farlink_gateway::config::{Config, Interface, LegConfig, Link};
use farlink_gateway::{Gateway, IfaceId, Network, Record, Route, Transmit, Via};
use farlink_wire::{Duration, Flags, Instant, Offload, PacketBuf, SegmentHeader, SeqNum, finish_checksums};
use farlink_xcp::{Router, Sender};

#[cfg(feature = "reach-outside")]
#[link(wasm_import_module = "outside")]
unsafe extern "C" {
    fn clock() -> u64;
}

struct Outside {
    channel: Channel<Vec<u8>>,
    now: Instant,
    records: Vec<Record>,
}

impl Network for Outside {
    fn transmit(&mut self, packet: &Transmit<'_>) {
        let mut bytes = packet.header.to_vec();
        packet.payload.iter().for_each(|part| bytes.extend_from_slice(part));
        finish_checksums(&mut bytes, &packet.offload);
        self.channel.push(self.now, bytes);
    }
    fn route(&mut self, from: Via, _src: IpAddr, _dst: IpAddr) -> Option<Route> {
        Some(Route { iface: IfaceId(1 - from.iface.0.min(1)), mtu_bytes: 1500 })
    }
    fn journal(&mut self, _slot: u32, record: Option<&Record>) {
        self.records.extend(record);
    }
}

fn config(seed: u64) -> Config {
    let link = Link {
        name: "link".to_owned(),
        rate_bps: Some(8_000_000),
        rtt: Some(Duration::from_millis(500)),
        ..Link::default()
    };
    let interface = |id, link| Interface {
        id: IfaceId(id),
        name: format!("if{id}"),
        domain: 0,
        addresses: Vec::new(),
        link,
    };
    Config { interfaces: vec![interface(0, None), interface(1, Some(link))], seed, ..Config::default() }
}

fn segment(random: u64) -> Vec<u8> {
    let [a, b, flags, size, ..] = random.to_be_bytes();
    let ends = ((Ipv4Addr::new(10, 0, 0, a).into(), u16::from(a)), (Ipv4Addr::new(10, 0, 1, b).into(), 80));
    let header = SegmentHeader {
        seq: SeqNum(u32::from(size)),
        ack: SeqNum(u32::from(b)),
        flags: Flags(u16::from(flags)),
        window: 65535,
        ..SegmentHeader::between(ends.0, ends.1)
    };
    let payload = vec![a; usize::from(size)];
    let Ok((bytes, offload)) = header.write(payload.len()) else { return Vec::new() };
    let mut packet = [&bytes[..], &payload].concat();
    finish_checksums(&mut packet, &offload);
    packet
}

/// Drives the gateway for some steps; the result depends on everything that happened.
#[unsafe(no_mangle)]
pub extern "C" fn drive(seed: u64, steps: u32) -> u64 {
    let mut random = seed | 1;
    let mut now = Instant::ZERO;
    let mut gateway = Gateway::new(config(seed));
    let channel = Channel::new(ChannelConfig::default(), seed);
    let mut net = Outside { channel, now, records: Vec::new() };
    let mut router = Router::new(now, farlink_xcp::Config::of_rate(8_000_000));
    let mut sender = Sender::new(now, 1_500, 8_000_000);
    let mut sum = 0u64;
    for step in 0..steps {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        now += Duration::from_micros(random & 0xFFFF);
        #[cfg(feature = "reach-outside")]
        // SAFETY: takes and touches nothing; it does not exist.
        let now = Instant::from_nanos(unsafe { clock() });
        net.now = now;
        let from = IfaceId((random >> 20) as u16 & 1);
        let bytes = segment(random);
        let packet = PacketBuf::from_slice(gateway.pool(), &bytes, Offload::default());
        gateway.handle_packet(now, from, packet, &mut net);
        gateway.flush(now, &mut net);
        if gateway.poll_timeout().is_some_and(|due| due.at <= now) {
            gateway.handle_timeout(now, &mut net);
        }
        let size = (bytes.len() as u32).into();
        let said = sender.on_send(now, size, true);
        router.on_arrival(now, size, Some(&said), 0);
        sum += u64::from(router.on_departure(now, size, &said, 0).delta_bytes_per_s.cast_unsigned());
        match step & 0xFF {
            0x11 => gateway.link_state(now, from, random & 1 == 0, &mut net),
            0x22 => gateway.routes_changed(now),
            0x33 => sum += u64::from(gateway.set(now, "link.link.rate_bps", "4000000").is_ok()),
            0x44 => sum += gateway.flows(now, 10).len() as u64,
            0x55 => sum += gateway.status().traffic.packets_in,
            _ => {}
        }
        while let Some(out) = net.channel.pop(now) {
            sum = sum.wrapping_mul(31).wrapping_add(out.len() as u64);
        }
    }
    gateway.drain();
    gateway.reset_recorded(now, &net.records.clone(), &mut net);
    sum.wrapping_add(gateway.abandon_all(now, &mut net) as u64) + u64::from(gateway.is_drained())
}
