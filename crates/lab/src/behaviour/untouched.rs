//! What is not plain TCP passes as it is: other protocols, fragments, IP options, extension
//! headers.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::errno::Errno;
use super::handshake::exchange;
use super::packet::{ACK, Ip, PSH, checksum};
use super::raw::{RawTcp, Wire};
use super::sock::{Family, Sock};
use super::stream::{Reading, read_pattern, sha256, write_pattern};
use super::{Case, Ctx, Side};

pub(super) const CASES: &[Case] = &[
    Case::new("raw-protocols", "IP protocols 50, 253, 47, 51 and 132, both ways", raw_protocols),
    Case::new("udp", "datagrams of 0 to 60,000 bytes both ways; a closed port", udp),
    Case::new("ping", "ICMP echo of several sizes", ping),
    Case::new("traceroute", "who answers datagrams that may pass one router, two, three", traceroute),
    Case::new("udp-fragments", "fragments arrive as they were sent", udp_fragments),
    Case::new("tcp-fragments", "a host that sends its TCP segments in IP fragments", tcp_fragments)
        .lasting(5),
    Case::new("ip-options", "IPv4 options on TCP and UDP", ip_options).only(super::ONLY_V4),
    Case::new(
        "extension-headers",
        "IPv6 hop-by-hop and destination options on TCP and UDP",
        extension_headers,
    )
    .only(super::ONLY_V6),
];

const LIMIT: Duration = Duration::from_secs(5);

fn raw_protocols(ctx: &Ctx<'_>) -> Result<()> {
    const SIZES: [usize; 5] = [1, 100, 1000, 1400, 5000];
    for protocol in [50, 253, 47, 51, 132] {
        let (client, server) =
            (Sock::raw(ctx.client, ctx.family, protocol)?, Sock::raw(ctx.server, ctx.family, protocol)?);
        for (from, to, sender, receiver) in
            [(Side::Client, Side::Server, &client, &server), (Side::Server, Side::Client, &server, &client)]
        {
            let mut arrived = Vec::new();
            for size in SIZES {
                let data = ctx.pattern(protocol as u64 * 10 + size as u64).bytes(size);
                sender.send_to(&data, std::net::SocketAddr::new(ctx.ip_of(to), 0), 0)?;
                let got = receive_raw(ctx, receiver, from)?;
                arrived.push(match got {
                    Some(got) if got == data => format!("{size} exact"),
                    Some(got) => format!("{size} changed to {}", got.len()),
                    None => format!("{size} lost"),
                });
            }
            ctx.fact(to, format!("protocol {protocol}"), arrived.join(", "));
        }
    }
    Ok(())
}

/// The next raw datagram from `from`, without IP header.
fn receive_raw(ctx: &Ctx<'_>, sock: &Sock, from: Side) -> Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + LIMIT;
    while let Some((source, got)) = next_raw(ctx, sock, deadline)? {
        if source == ctx.ip_of(from) {
            return Ok(Some(got));
        }
    }
    Ok(None)
}

/// The next raw datagram, from whomever, without IP header.
fn next_raw(ctx: &Ctx<'_>, sock: &Sock, deadline: Instant) -> Result<Option<(IpAddr, Vec<u8>)>> {
    let mut buffer = vec![0; 1 << 16];
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() || sock.poll(libc::POLLIN, left)? == 0 {
        return Ok(None);
    }
    let (len, source) = sock.recv_from(&mut buffer)?;
    // IPv4 raw sockets deliver the header too.
    let header = ctx.family.pick(usize::from(buffer[0] & 15) * 4, 0);
    let got = buffer.get(header..len).context("shorter than its header")?;
    Ok(Some((source.context("no source address")?.ip(), got.to_vec())))
}

fn udp(ctx: &Ctx<'_>) -> Result<()> {
    const SIZES: [usize; 7] = [0, 1, 500, 1200, 1472, 8000, 60_000];
    let server = Sock::udp(ctx.server, ctx.family)?;
    server.bind(ctx.server_at(0))?;
    let client = Sock::udp(ctx.client, ctx.family)?;
    client.connect(ctx.server_at(0))?;
    let mut buffer = vec![0; 1 << 16];
    for size in SIZES {
        let data = ctx.pattern(size as u64).bytes(size);
        client.send(&data, 0)?;
        ctx.must(server.poll(libc::POLLIN, LIMIT)? != 0, "the datagram arrived");
        let (len, from) = server.recv_from(&mut buffer)?;
        ctx.fact(Side::Server, "datagram", format!("{len} {:.12}", sha256(&buffer[..len])));
        ctx.must(buffer[..len] == data, "the datagram is exact");
        server.send_to(&buffer[..len], from.context("no source address")?, 0)?;
        ctx.must(client.poll(libc::POLLIN, LIMIT)? != 0, "the echo arrived");
        let len = client.recv(&mut buffer, 0)?;
        ctx.fact(Side::Client, "echo", format!("{len} {:.12}", sha256(&buffer[..len])));
    }
    let refused = Sock::udp(ctx.client, ctx.family)?;
    refused.connect(ctx.server_at(1))?;
    refused.limit(LIMIT)?;
    refused.send(b"anybody?", 0)?;
    ctx.fact(Side::Client, "closed port", format!("{:?}", refused.recv(&mut buffer, 0)));
    Ok(())
}

fn ping(ctx: &Ctx<'_>) -> Result<()> {
    let protocol = ctx.family.pick(libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6);
    let sock = Sock::raw(ctx.client, ctx.family, protocol)?;
    for (sequence, size) in (0_u16..).zip([8, 100, 1400, 4000]) {
        let mut echo = vec![ctx.family.pick(8, 128), 0, 0, 0];
        echo.extend(ctx.port(0).to_be_bytes());
        echo.extend(sequence.to_be_bytes());
        echo.extend(ctx.pattern(1).bytes(size));
        if ctx.family == Family::V4 {
            let sum = checksum(&[&echo]);
            echo[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        sock.send_to(&echo, std::net::SocketAddr::new(ctx.server_ip(), 0), 0)?;
        let deadline = Instant::now() + LIMIT;
        let answer = loop {
            match receive_raw(ctx, &sock, Side::Server)? {
                Some(got) if got.get(4..) == echo.get(4..) && got[0] != echo[0] => break "exact",
                Some(_) if Instant::now() < deadline => {}
                _ => break "lost",
            }
        };
        ctx.fact(Side::Client, format!("echo of {size} bytes"), answer);
    }
    Ok(())
}

/// Routers say that a datagram may go no further (ICMP time exceeded), and the host that nobody
/// wants it there. Both quote it.
fn traceroute(ctx: &Ctx<'_>) -> Result<()> {
    const HOPS_MAX: i32 = 8;
    let (protocol, level, hops) = match ctx.family {
        Family::V4 => (libc::IPPROTO_ICMP, libc::IPPROTO_IP, libc::IP_TTL),
        Family::V6 => (libc::IPPROTO_ICMPV6, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    };
    let errors = Sock::raw(ctx.client, ctx.family, protocol)?;
    let sock = Sock::udp(ctx.client, ctx.family)?;
    sock.bind(ctx.client_at(0))?;
    for hop in 1..=HOPS_MAX {
        sock.set(level, hops, hop)?;
        // Each has a length of its own, so that late answers are told apart.
        let data = ctx.pattern(3).bytes(100 + hop as usize);
        sock.send_to(&data, ctx.server_at(0), 0)?;
        let answer = answer_to(ctx, &errors, &data)?;
        let text = answer.as_ref().map_or("nobody answers", |(_, text)| text);
        ctx.fact(Side::Client, format!("may pass {hop} hops"), text);
        if answer.is_some_and(|(source, _)| source == ctx.server_ip()) {
            return Ok(());
        }
    }
    ctx.must(false, "the datagram got there in the end");
    Ok(())
}

/// Who sends an ICMP error about this datagram, of which type, and what it quotes.
fn answer_to(ctx: &Ctx<'_>, errors: &Sock, data: &[u8]) -> Result<Option<(IpAddr, String)>> {
    let deadline = Instant::now() + LIMIT;
    let ports = [ctx.client_at(0), ctx.server_at(0)].map(|at| at.port().to_be_bytes()).concat();
    while let Some((source, message)) = next_raw(ctx, errors, deadline)? {
        let quoted = message.get(8 + ctx.family.pick(20, 40)..).unwrap_or_default();
        if quoted.starts_with(&ports) && quoted.get(8..) == Some(data) {
            let (kind, code) = (message[0], message[1]);
            let hops = message[8 + ctx.family.pick(8, 7)];
            let text = format!("{source} type {kind} code {code}, quoted with {hops} hops left");
            return Ok(Some((source, text)));
        }
    }
    Ok(None)
}

fn udp_fragments(ctx: &Ctx<'_>) -> Result<()> {
    let server = Sock::udp(ctx.server, ctx.family)?;
    server.bind(ctx.server_at(0))?;
    let watch = Wire::open(ctx.server, ctx.client_ip(), ctx.port(0))?;
    let wire = Wire::open(ctx.client, ctx.server_ip(), ctx.port(0))?;
    let mut ip = Ip::new(ctx.client_ip(), ctx.server_ip(), 17);
    ip.df = false;
    let mut buffer = vec![0; 1 << 16];
    // Full-size, small, backwards, one twice, and a single "fragment" that is the whole packet.
    for (n, (what, len, size)) in (0_u32..).zip([
        ("full", 5000, 1400),
        ("small", 600, 64),
        ("backwards", 3000, 1000),
        ("repeated", 3000, 1000),
        ("atomic", 400, 1000),
    ]) {
        let data = ctx.pattern(u64::from(n)).bytes(len);
        let datagram = super::packet::udp(ip.src, ip.dst, ctx.port(0), ctx.port(0), &data);
        ip.id = 0x4d00 + n + u32::from(ctx.port(0)) % 0x100 * 0x10;
        let mut pieces = ip.fragments(&datagram, size);
        match what {
            "backwards" => pieces.reverse(),
            "repeated" => pieces.insert(1, pieces[0].clone()),
            _ => {}
        }
        for piece in &pieces {
            wire.send(piece)?;
        }
        if server.poll(libc::POLLIN, LIMIT)? == 0 {
            ctx.fact(Side::Server, what, "lost");
        } else {
            let (len, _) = server.recv_from(&mut buffer)?;
            let exact = buffer[..len] == data;
            ctx.fact(Side::Server, what, format!("{len} bytes, exact: {exact}"));
        }
        let mut sizes = Vec::new();
        while let Some(packet) = watch.recv(Duration::from_millis(50)) {
            if packet.src == ip.src && packet.protocol == 17 && (packet.id == ip.id || !packet.fragment) {
                sizes.push(packet.payload.len());
            }
        }
        // In which pieces it came is not visible to an application; a deviation is worth knowing.
        ctx.note(format!("{what}: pieces"), format!("{sizes:?} of {}", pieces.len()));
    }
    Ok(())
}

fn tcp_fragments(ctx: &Ctx<'_>) -> Result<()> {
    for (n, (segment, fragment)) in (0_u16..).zip([(4000, 1400), (1400, 400), (1000, 80)]) {
        let listener = ctx.listen(n)?;
        let mut peer = RawTcp::new(ctx.client, ctx.client_at(n), ctx.server_at(n), 0x7000_0000)?;
        peer.open(&[2, 4, 5, 0xb4])?;
        let server = listener.accept().context("accept")?;
        let data = ctx.pattern(u64::from(n)).bytes(segment * 12);
        let mut id = u32::from(ctx.port(n)) << 8;
        for piece in data.chunks(segment) {
            let wanted = peer.snd_nxt.wrapping_add(piece.len() as u32);
            let mut acked = false;
            for _ in 0..4 {
                id += 1;
                peer.send_fragmented(&peer.segment(ACK | PSH, piece), fragment, id)?;
                acked = peer.expect(Duration::from_secs(2), |tcp| tcp.ack == wanted).is_some();
                if acked {
                    break;
                }
            }
            ctx.must(acked, "a fragmented segment was acknowledged");
            peer.snd_nxt = wanted;
        }
        let want = Reading { want: data.len() as u64, ..Reading::default() };
        server.limit(Duration::from_secs(10))?;
        ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(u64::from(n)), 0, want));
        write_pattern(&server, ctx.pattern(9), 0, 20_000, 8192).map_err(|(_, errno)| errno)?;
        let back = peer.read(20_000, Duration::from_secs(10))?;
        ctx.must(back == ctx.pattern(9).bytes(20_000), "the answer is exact");
        ctx.must(peer.finish()?, "FIN acknowledged");
        ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(0), 0, Reading::default()));
    }
    Ok(())
}

fn ip_options(ctx: &Ctx<'_>) -> Result<()> {
    // Padding only; router alert (RFC 2113); an experiment's option (RFC 4727: 158).
    let all: [(&str, &[u8]); 3] = [
        ("no-operation", &[1, 1, 1, 0]),
        ("router alert", &[148, 4, 0, 0]),
        ("experiment", &[158, 8, 1, 2, 3, 4, 5, 6]),
    ];
    for (n, (what, options)) in (0..).zip(all) {
        with_headers(ctx, n, what, |sock| sock.set_bytes(libc::IPPROTO_IP, libc::IP_OPTIONS, options))?;
    }
    Ok(())
}

fn extension_headers(ctx: &Ctx<'_>) -> Result<()> {
    // Padding; an experiment's option that unknowing nodes skip (RFC 4727: 0x1e).
    let hop: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];
    let destination: &[u8] = &[0, 0, 0x1e, 4, 0xca, 0xfe, 1, 2];
    let options = [
        ("hop-by-hop", vec![(libc::IPV6_HOPOPTS, hop)]),
        ("destination", vec![(libc::IPV6_DSTOPTS, destination)]),
        ("both", vec![(libc::IPV6_HOPOPTS, hop), (libc::IPV6_DSTOPTS, destination)]),
    ];
    for (n, (what, options)) in (0..).zip(options) {
        with_headers(ctx, n, what, |sock| {
            options.iter().try_for_each(|(name, value)| sock.set_bytes(libc::IPPROTO_IPV6, *name, value))
        })?;
    }
    Ok(())
}

/// TCP and UDP with something in the IP header: everything arrives, with it.
fn with_headers(
    ctx: &Ctx<'_>,
    n: u16,
    what: &str,
    set: impl Fn(&Sock) -> Result<(), Errno> + Sync,
) -> Result<()> {
    let watch = Wire::open(ctx.server, ctx.client_ip(), ctx.port(n))?;
    let datagrams = Sock::udp(ctx.server, ctx.family)?;
    datagrams.bind(ctx.server_at(n))?;
    let udp = Sock::udp(ctx.client, ctx.family)?;
    set(&udp).with_context(|| format!("{what} on UDP"))?;
    udp.send_to(&ctx.pattern(1).bytes(300), ctx.server_at(n), 0)?;
    let mut buffer = [0; 2000];
    let arrived = datagrams.poll(libc::POLLIN, LIMIT)? != 0;
    let got = if arrived { format!("{:?}", datagrams.recv(&mut buffer, 0)) } else { "lost".into() };
    ctx.fact(Side::Server, format!("{what}: datagram"), got);

    let listener = ctx.listen(n)?;
    let client = Sock::tcp(ctx.client, ctx.family)?;
    set(&client).with_context(|| format!("{what} on TCP"))?;
    client.connect(ctx.server_at(n)).with_context(|| format!("{what}: connect"))?;
    let server = listener.accept()?;
    exchange(ctx, &client, &server, 40_000)?;
    let mut headers = std::collections::BTreeSet::new();
    while let Some(packet) = watch.recv(Duration::from_millis(50)) {
        if packet.src == ctx.client_ip() && matches!(packet.protocol, 6 | 17) && !packet.fragment {
            let port = packet.payload.get(2..4).map(|port| u16::from_be_bytes([port[0], port[1]]));
            if port == Some(ctx.port(n)) {
                headers.insert((packet.protocol, packet.extra));
            }
        }
    }
    ctx.fact(Side::Server, format!("{what}: headers of protocols 6 and 17"), format!("{headers:?}"));
    Ok(())
}
