//! Packets no host should send. They may be dropped or passed on; they must harm nobody.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::handshake::exchange;
use super::packet::{ACK, Ip, PSH, RST, SYN, Tcp, transport_checksum};
use super::raw::Wire;
use super::sock::{Family, Sock};
use super::stream::{Pattern, Reading, read_pattern, write_pattern};
use super::{Case, Ctx, Side, join};

pub(super) const CASES: &[Case] = &[
    Case::new("malformed-segments", "impossible TCP headers and options on a living connection", segments),
    Case::new("malformed-packets", "impossible IP headers and fragments", packets),
    Case::new("mutations", "3,000 damaged packets from one seed", mutations).lasting(4),
];

/// A transfer goes on while `junk` is thrown at it from both ends; then a new connection and a
/// datagram work.
fn unharmed(
    ctx: &Ctx<'_>,
    junk: impl Fn(&Wire, SocketAddr, SocketAddr, u64) -> Result<()> + Sync,
) -> Result<()> {
    let (client, server) = ctx.pair(0)?;
    let (client_addr, server_addr) = (client.local()?, ctx.server_at(0));
    let up = Wire::open(ctx.client, ctx.server_ip(), client_addr.port())?;
    let down = Wire::open(ctx.server, ctx.client_ip(), server_addr.port())?;
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| exchange(ctx, &client, &server, 200_000));
        // (a) on the very connection, (b) beside it on a port where nobody is.
        junk(&up, client_addr, server_addr, 1)?;
        junk(&down, server_addr, client_addr, 2)?;
        junk(&up, ctx.client_at(50), ctx.server_at(50), 3)?;
        join(moving)?
    })?;
    let (client, server) = ctx.pair(1).context("a new connection after the junk")?;
    exchange(ctx, &client, &server, 20_000)?;
    let datagrams = Sock::udp(ctx.server, ctx.family)?;
    datagrams.bind(ctx.server_at(2))?;
    Sock::udp(ctx.client, ctx.family)?.send_to(b"still here", ctx.server_at(2), 0)?;
    ctx.fact(Side::Server, "datagram", datagrams.poll(libc::POLLIN, Duration::from_secs(5))? != 0);
    Ok(())
}

/// A TCP header of raw bytes with a correct checksum, whatever it says.
fn sealed(mut segment: Vec<u8>, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    if let Some(field) = segment.get_mut(16..18) {
        field.copy_from_slice(&[0, 0]);
        let sum = transport_checksum(from.ip(), to.ip(), 6, &segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    segment
}

fn segments(ctx: &Ctx<'_>) -> Result<()> {
    unharmed(ctx, |wire, from, to, seed| {
        let (src, dst) = (from.ip(), to.ip());
        let plain = Tcp {
            sport: from.port(),
            dport: to.port(),
            seq: 0x0bad_0000 + seed as u32,
            ack: 0x0bad_1111,
            flags: ACK | PSH,
            window: 1000,
            payload: vec![b'!'; 100],
            ..Tcp::default()
        };
        let send = |segment: &[u8]| wire.send(&Ip::new(src, dst, 6).packet(segment));
        // Data offsets too small and beyond the end.
        for offset in [0_u8, 1, 4, 15] {
            let mut segment = Tcp { payload: Vec::new(), ..plain.clone() }.bytes(src, dst);
            segment[12] = offset << 4;
            send(&sealed(segment, from, to))?;
        }
        // Truncated headers.
        let whole = plain.bytes(src, dst);
        for len in [0, 1, 4, 13, 19] {
            send(&sealed(whole[..len].to_vec(), from, to))?;
        }
        // Options: zero length, length one, past the end, a SACK of odd size, MSS of odd size, all
        // NOPs, scale 255.
        let options: [&[u8]; 9] = [
            &[253, 0, 0, 0],
            &[253, 1, 0, 0],
            &[253, 40, 0, 0],
            &[2],
            &[5, 5, 1, 2, 3, 4, 5, 0],
            &[2, 3, 5, 0],
            &[1; 40],
            &[3, 3, 255, 8, 10, 1, 2, 3, 4, 5, 6, 7],
            &[8, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        for option in options {
            for flags in [ACK | PSH, SYN, SYN | ACK] {
                let segment = Tcp { options: option.to_vec(), flags, ..plain.clone() };
                // SYNs from ports of their own: on the connection itself they are another case.
                let sport = if flags & SYN != 0 { ctx.port(60) } else { plain.sport };
                let segment = Tcp { sport, ..segment };
                send(&segment.bytes(src, dst))?;
            }
        }
        // Every combination of flags with a wrong checksum; at the exact 4-tuple it may do nothing.
        for flags in 0..=255_u8 {
            let mut segment = Tcp { flags, ..plain.clone() }.bytes(src, dst);
            segment[17] ^= 0x55;
            send(&segment)?;
        }
        // Ports of zero, and a segment from the host to itself.
        for (sport, dport) in [(0, to.port()), (from.port(), 0), (0, 0)] {
            send(&Tcp { sport, dport, ..plain.clone() }.bytes(src, dst))?;
        }
        wire.send(&Tcp { flags: SYN, sport: to.port(), ..plain.clone() }.packet(dst, dst))
    })
}

fn packets(ctx: &Ctx<'_>) -> Result<()> {
    unharmed(ctx, |wire, from, to, seed| {
        let (src, dst) = (from.ip(), to.ip());
        let plain = Tcp {
            sport: from.port(),
            dport: to.port(),
            seq: 0x0bad_2222 + seed as u32,
            flags: ACK,
            payload: vec![b'?'; 64],
            ..Tcp::default()
        };
        let whole = plain.packet(src, dst);
        let broken = |at: usize, value: u8| {
            let mut packet = whole.clone();
            packet[at] = value;
            packet
        };
        let headers: &[(usize, u8)] = match ctx.family {
            // Version, header length, total length long and short, checksum, a fragment offset that
            // ends past 64 KB.
            Family::V4 => &[(0, 0x55), (0, 0x44), (0, 0x4f), (2, 0xff), (3, 10), (10, 0), (6, 0x1f), (8, 0)],
            // Version, payload length long and short, next headers: none, an unknown, a chain that
            // runs out, hop limit.
            Family::V6 => &[(0, 0x50), (4, 0xff), (5, 4), (6, 59), (6, 254), (6, 60), (6, 0), (7, 0)],
        };
        for &(at, value) in headers {
            wire.send(&broken(at, value))?;
        }
        // Packets shorter than their headers.
        for len in [1, 8, 19, 20, 21, 39, 40, 41] {
            wire.send(&whole[..len])?;
        }
        // Fragments: tiny first, overlapping, contradicting, past the end, last one missing.
        let segment = plain.bytes(src, dst);
        let mut ip = Ip::new(src, dst, 6);
        let script: &[&[(usize, bool, usize)]] = &[
            &[(0, true, 8), (8, false, 40)],
            &[(0, true, 40), (24, false, 40)],
            &[(0, true, 48), (8, true, 16), (48, false, 16)],
            &[(65_528, false, 60)],
            &[(0, true, 48)],
            &[(16, true, 13), (0, true, 16)],
        ];
        for (n, pieces) in (0..).zip(script) {
            ip.id = 0x0e00_5000 + seed as u32 * 16 + n;
            for &(offset, more, len) in *pieces {
                wire.send(&ip.fragment(offset, more, &segment[..len]))?;
            }
        }
        Ok(())
    })
}

/// Copies of good packets with a few bytes changed. Those that could be taken for the connection's
/// own have a wrong checksum or are no RST, SYN or FIN in its window: none may reach its stream.
fn mutations(ctx: &Ctx<'_>) -> Result<()> {
    unharmed(ctx, |wire, from, to, seed| {
        let (src, dst) = (from.ip(), to.ip());
        let mut random = Random { pattern: Pattern(seed * 0x1_0001), at: 0 };
        for _ in 0..1000 {
            let flags = [ACK, ACK | PSH, SYN, RST, SYN | ACK][random.below(5)];
            let tcp = Tcp {
                // A port beside the connection's own, so that a lucky guess hits nobody.
                sport: ctx.port(70 + random.below(20) as u16),
                dport: to.port(),
                seq: random.word(),
                ack: random.word(),
                flags,
                window: random.word() as u16,
                options: vec![2, 4, 5, 0xb4, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1],
                payload: vec![7; random.below(300)],
                ..Tcp::default()
            };
            let mut packet = tcp.packet(src, dst);
            let header = ctx.family.pick(20, 40);
            for _ in 0..=random.below(4) {
                // Addresses and ports stay: nobody else's traffic is meant.
                let at = random.below(packet.len().min(header + 40));
                let fixed = ctx.family.pick(12..24, 8..44).contains(&at);
                if !fixed {
                    packet[at] = random.word() as u8;
                }
            }
            packet.truncate(packet.len().min(1400));
            wire.send(&packet)?;
        }
        Ok(())
    })?;
    // A connection opened among the ruins.
    let (client, server) = ctx.pair(3)?;
    write_pattern(&client, ctx.pattern(5), 0, 1000, 1000).map_err(|(_, errno)| errno)?;
    drop(client);
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(5), 0, Reading::default()));
    Ok(())
}

/// Numbers from a pattern: the same on every run.
struct Random {
    pattern: Pattern,
    at: u64,
}

impl Random {
    fn word(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.pattern.fill(self.at, &mut bytes);
        self.at += 4;
        u32::from_le_bytes(bytes)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.word() as usize % limit.max(1)
    }
}
