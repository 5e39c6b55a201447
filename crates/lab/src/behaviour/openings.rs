//! Unusual ways to open a connection that hosts agree on between themselves.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::errno::SysResult;
use super::handshake::exchange;
use super::raw::RawTcp;
use super::sock::Sock;
use super::sockaddr::RawAddr;
use super::stream::{Reading, read_pattern, timed, write_pattern};
use super::{Case, Ctx, Side, TimingRule, join};

pub(super) const CASES: &[Case] = &[
    Case::new("simultaneous-open", "both hosts connect to each other at once", simultaneous_open),
    Case::new("fast-open", "TCP Fast Open: data in the SYN", fast_open),
    Case::new("md5", "TCP-MD5 signatures, matching and not", md5).lasting(4),
    Case::new("mptcp", "Multipath TCP stays Multipath TCP", mptcp),
    Case::new("isn-wrap", "sequence numbers that wrap within the first bytes", isn_wrap),
];

fn simultaneous_open(ctx: &Ctx<'_>) -> Result<()> {
    let ends = [Side::Client, Side::Server];
    let rules = |side| {
        // The later of the two must not refuse the earlier one's SYN.
        let port = ctx.port(0);
        let chain = format!(
            "chain output {{ type filter hook output priority 0; policy accept;
             tcp sport {port} tcp dport {port} tcp flags & rst == rst drop; }}
             counter crossing {{ }}
             chain input {{ type filter hook input priority 0; policy accept;
             tcp sport {port} tcp dport {port} tcp flags & (syn|ack) == syn counter name crossing; }}"
        );
        ctx.host(side).nft(&format!("flsim_{port}"), &chain)
    };
    let rules = (rules(Side::Client)?, rules(Side::Server)?);
    let socks = ends.map(|side| -> Result<Sock> {
        let sock = Sock::tcp(ctx.host(side), ctx.family)?;
        sock.bind(SocketAddr::new(ctx.ip_of(side), ctx.port(0)))?;
        Ok(sock)
    });
    let [client, server] = socks;
    let (client, server) = (client?, server?);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            barrier.wait();
            server.connect(ctx.client_at(0))
        });
        barrier.wait();
        let result = client.connect(ctx.server_at(0));
        for (side, result) in [(Side::Client, result), (Side::Server, join(other)?)] {
            match result {
                Ok(()) => ctx.log(side, [super::Event::Connected]),
                Err(errno) => ctx.failed(side, "connect", errno),
            }
        }
        exchange(ctx, &client, &server, 50_000)?;
        // On a very short path one SYN may arrive before the other is sent.
        if ctx.ends.rtt >= std::time::Duration::from_millis(10) {
            ctx.fact(Side::Client, "heard the other's SYN", rules.0.counter("crossing")? > 0);
            ctx.fact(Side::Server, "heard the other's SYN", rules.1.counter("crossing")? > 0);
        }
        Ok(())
    })
}

fn fast_open(ctx: &Ctx<'_>) -> Result<()> {
    // A cookie of an earlier run; an error says that there is none.
    let _ = ctx.client.ip(&format!("tcp_metrics flush {}", ctx.server_ip()));
    let open = ctx.listen_with(0, |sock| sock.tcp_option(libc::TCP_FASTOPEN, 16))?;
    let deaf = ctx.listen(1)?;
    // Without a cookie; with one: the request is in the SYN; with one to a server that does not
    // know Fast Open.
    for (round, listener, port) in [("first", &open, 0), ("second", &open, 0), ("deaf", &deaf, 1)] {
        let client = Sock::tcp(ctx.client, ctx.family)?;
        let request = ctx.pattern(1).bytes(1000);
        let sent = client.send_to(&request, ctx.server_at(port), libc::MSG_FASTOPEN);
        ctx.fact(Side::Client, format!("{round}: sendto"), format!("{sent:?}"));
        let server = listener.accept().with_context(|| format!("{round}: accept"))?;
        let want = Reading { want: 1000, ..Reading::default() };
        ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, want));
        write_pattern(&server, ctx.pattern(2), 0, 20_000, 8192).map_err(|(_, errno)| errno)?;
        server.shutdown_write()?;
        ctx.got(Side::Client, &read_pattern(&client, ctx.pattern(2), 0, Reading::default()));
        client.shutdown_write()?;
        ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 1000, Reading::default()));
        for (side, sock) in [(Side::Client, &client), (Side::Server, &server)] {
            let accepted = sock.info()?.options & 32 != 0;
            ctx.fact(side, format!("{round}: data in the SYN accepted"), accepted);
        }
    }
    Ok(())
}

/// `struct tcp_md5sig` of linux/tcp.h.
fn md5_key(peer: SocketAddr, key: &[u8]) -> Vec<u8> {
    let mut option = RawAddr::new(peer).bytes().to_vec();
    option.extend([0, 0]); // flags, prefix length
    option.extend((key.len() as u16).to_ne_bytes());
    option.extend([0; 4]); // interface
    option.extend(key);
    option.resize(128 + 8 + 80, 0);
    option
}

fn md5(ctx: &Ctx<'_>) -> Result<()> {
    let sign = |sock: &Sock, peer: SocketAddr, key: &[u8]| -> SysResult<()> {
        sock.set_bytes(libc::IPPROTO_TCP, libc::TCP_MD5SIG, &md5_key(peer, key))
    };
    let at_client = SocketAddr::new(ctx.client_ip(), 0);
    let listener = ctx.listen_with(0, |sock| sign(sock, at_client, b"a shared secret"))?;
    let client = Sock::tcp(ctx.client, ctx.family)?;
    sign(&client, ctx.server_at(0), b"a shared secret")?;
    client.connect(ctx.server_at(0))?;
    let server = listener.accept()?;
    exchange(ctx, &client, &server, 100_000)?;

    let stranger = Sock::tcp(ctx.client, ctx.family)?;
    sign(&stranger, ctx.server_at(0), b"another secret")?;
    stranger.tcp_option(libc::TCP_SYNCNT, 1)?;
    let (ms, result) = timed(|| stranger.connect(ctx.server_at(0)));
    ctx.fact(Side::Client, "connect with the wrong key", format!("{result:?}"));
    ctx.timing("connect with the wrong key", ms, TimingRule::Same, 400.0);
    Ok(())
}

fn mptcp(ctx: &Ctx<'_>) -> Result<()> {
    let socket = |host| Sock::new(host, ctx.family.domain(), libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    let listener = socket(ctx.server)?;
    listener.bind(ctx.server_at(0))?;
    listener.listen(16)?;
    let client = socket(ctx.client)?;
    client.connect(ctx.server_at(0))?;
    let server = listener.accept()?;
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, Reading::default()));
            let _ = write_pattern(&server, ctx.pattern(2), 0, 100_000, 8192);
            let _ = server.shutdown_write();
        });
        let _ = write_pattern(&client, ctx.pattern(1), 0, 100_000, 8192);
        for (side, sock) in [(Side::Client, &client), (Side::Server, &server)] {
            // struct mptcp_info of linux/mptcp.h: flags at 8, bit 0 fallback to TCP.
            const SOL_MPTCP: i32 = 284;
            let mut info = [0; 64];
            let state = match sock.get_bytes(SOL_MPTCP, 1, &mut info) {
                Ok(_) if info[8] & 1 == 0 => "multipath".to_string(),
                Ok(_) => "fallback".to_string(),
                Err(errno) => errno.name(),
            };
            ctx.fact(side, "mode", state);
        }
        let _ = client.shutdown_write();
        ctx.got(Side::Client, &read_pattern(&client, ctx.pattern(2), 0, Reading::default()));
        join(serving)
    })
}

fn isn_wrap(ctx: &Ctx<'_>) -> Result<()> {
    for (n, isn) in (0..).zip([0xffff_ffff_u32, 0xffff_ff00, 0xfffe_8000, 0x7fff_ff00]) {
        let listener = ctx.listen(n)?;
        let client = Sock::tcp(ctx.client, ctx.family)?;
        client.choose_isn(isn)?;
        client.connect(ctx.server_at(n))?;
        let server = listener.accept()?;
        let begun = client.sequence()?.0.wrapping_sub(1);
        ctx.must(begun == isn, "the kernel took the chosen initial sequence number");
        exchange(ctx, &client, &server, 100_000)?;
    }
    // The same for the side that is connected to: only a peer of our own can choose there.
    let remote = ctx.client_at(0);
    let mut peer = RawTcp::new(ctx.server, ctx.server_at(10), SocketAddr::new(remote.ip(), 0), 0xffff_ff00)?;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| -> Result<()> {
            let client = Sock::tcp(ctx.client, ctx.family)?;
            client.connect(ctx.server_at(10))?;
            ctx.got(Side::Client, &read_pattern(&client, ctx.pattern(2), 0, Reading::default()));
            Ok(())
        });
        peer.accept(&[2, 4, 5, 0xb4], std::time::Duration::from_secs(10))?;
        peer.push(&ctx.pattern(2).bytes(60_000), 1400)?;
        ctx.fact(Side::Server, "FIN acknowledged", peer.finish()?);
        join(reading)?
    })
}
