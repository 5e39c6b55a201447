//! TCP options: every combination of SACK, timestamps and window scaling off at either host, and
//! options that nobody knows.

use std::time::Duration;

use anyhow::{Context, Result};

use super::packet::{ACK, PSH, SYN};
use super::raw::RawTcp;
use super::sock::{Family, Sock};
use super::stream::{Ending, Reading, read_pattern, write_pattern};
use super::{Case, Ctx, Side, join};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "options-matrix",
        "64 combinations of SACK, timestamps, window scale off on either side",
        matrix,
    )
    .alone()
    .lasting(10),
    Case::new("options-unknown", "unknown options on all segments of a peer of our own", unknown),
    Case::new(
        "options-end-to-end",
        "an unknown option in both SYNs reaches the other end on every segment",
        kept,
    ),
];

const SYSCTLS: [&str; 3] = ["ipv4/tcp_sack", "ipv4/tcp_timestamps", "ipv4/tcp_window_scaling"];

fn matrix(ctx: &Ctx<'_>) -> Result<()> {
    // One packet in 61 is lost at each host once the connections are up: recovery with and without
    // SACK.
    let ports = format!("{}-{}", ctx.port(0), ctx.port(63));
    let mut pairs = Vec::new();
    for setting in 0..64_u16 {
        let (at_client, at_server) = (setting & 7, setting >> 3);
        let mut guards = Vec::new();
        for (host, mask) in [(ctx.client, at_client), (ctx.server, at_server)] {
            for (bit, key) in SYSCTLS.iter().enumerate() {
                guards.push(host.hold_sysctl(key, if mask >> bit & 1 == 0 { "1" } else { "0" })?);
            }
        }
        pairs.push(ctx.pair(setting)?);
        drop(guards);
    }
    let lossy = |field: &str| {
        format!(
            "chain input {{ type filter hook input priority 0; policy accept;
             tcp {field} {ports} meta length > 100 numgen inc mod 61 == 60 drop; }}"
        )
    };
    let table = format!("flmatrix_{}", ctx.port(0));
    let _loss = (ctx.client.nft(&table, &lossy("sport"))?, ctx.server.nft(&table, &lossy("dport"))?);
    std::thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .iter()
            .enumerate()
            .map(|(setting, (client, server))| {
                scope.spawn(move || both_ways(ctx, setting as u64, client, server, 40_000))
            })
            .collect();
        for (setting, thread) in threads.into_iter().enumerate() {
            let (up, down) = join(thread)?;
            let name = format!("off at client {}, at server {}", off(setting & 7), off(setting >> 3));
            let (client, server) = &pairs[setting];
            for (side, sock, got) in [(Side::Client, client, down), (Side::Server, server, up)] {
                ctx.check_exact(side, &got);
                ctx.must(got.bytes == 40_000 && got.ending == Ending::End, &format!("{name}: all arrived"));
                let info = sock.info()?;
                let value = format!("{}, options {:#x}, mss {}", got.short(), info.options & 7, info.snd_mss);
                ctx.fact(side, &name, value);
            }
        }
        Ok(())
    })
}

fn off(mask: usize) -> String {
    let names = ["sack", "timestamps", "scale"];
    let off: Vec<_> = (0..3).filter(|bit| mask >> bit & 1 != 0).map(|bit| names[bit]).collect();
    if off.is_empty() { "none".into() } else { off.join("+") }
}

/// `len` bytes each way at the same time, then the end. What the server and the client read.
pub(super) fn both_ways(
    ctx: &Ctx<'_>,
    n: u64,
    client: &Sock,
    server: &Sock,
    len: u64,
) -> (super::Got, super::Got) {
    let (up, down) = (ctx.pattern(n * 2 + 1), ctx.pattern(n * 2 + 2));
    std::thread::scope(|scope| {
        for (sock, pattern) in [(client, up), (server, down)] {
            scope.spawn(move || {
                let _ = write_pattern(sock, pattern, 0, len, 8192);
                let _ = sock.shutdown_write();
            });
        }
        let reading = scope.spawn(|| read_pattern(server, up, 0, Reading::default()));
        let at_client = read_pattern(client, down, 0, Reading::default());
        let at_server = join(reading).unwrap_or_else(|_| at_client.clone());
        (at_server, at_client)
    })
}

/// Options of the kinds 200 (unassigned), 253 and 254 (experiments, RFC 4727) that no
/// implementation knows.
const UNKNOWN: &[u8] = &[200, 4, 0xde, 0xad, 253, 6, 0x7a, 0x7a, 1, 2, 254, 6, 0x7b, 0x7b, 3, 4];

fn unknown(ctx: &Ctx<'_>) -> Result<()> {
    let mss = [2, 4, 5, 0xb4];
    // The kernel as server, then as client; unknown options on our SYN and on all our segments.
    let listener = ctx.listen(0)?;
    let mut peer = RawTcp::new(ctx.client, ctx.client_at(0), ctx.server_at(0), 0x2000_0000)?;
    peer.options = UNKNOWN.to_vec();
    peer.open(&[&mss, UNKNOWN].concat())?;
    let server = listener.accept().context("accept")?;
    peer.push(&ctx.pattern(1).bytes(30_000), 1400)?;
    let want = Reading { want: 30_000, ..Reading::default() };
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, want));
    write_pattern(&server, ctx.pattern(2), 0, 30_000, 8192).map_err(|(_, errno)| errno)?;
    let data = peer.read(30_000, Duration::from_secs(20))?;
    ctx.fact(Side::Client, "bytes", data.len());
    ctx.must(data == ctx.pattern(2).bytes(30_000), "the bytes to the peer are exact");
    ctx.must(peer.finish()?, "FIN acknowledged");
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 30_000, Reading::default()));

    let remote = std::net::SocketAddr::new(ctx.client_ip(), 0);
    let mut peer = RawTcp::new(ctx.server, ctx.server_at(1), remote, 0x3000_0000)?;
    peer.options = UNKNOWN.to_vec();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| -> Result<()> {
            let client = Sock::tcp(ctx.client, ctx.family)?;
            client.connect(ctx.server_at(1))?;
            ctx.got(Side::Client, &read_pattern(&client, ctx.pattern(3), 0, Reading::default()));
            Ok(())
        });
        peer.accept(&[&mss, UNKNOWN].concat(), Duration::from_secs(10))?;
        peer.push(&ctx.pattern(3).bytes(30_000), 1400)?;
        ctx.fact(Side::Server, "FIN acknowledged", peer.finish()?);
        join(reading)?
    })
}

/// Two peers of our own that both know an option nobody else knows.
fn kept(ctx: &Ctx<'_>) -> Result<()> {
    let anyone = std::net::SocketAddr::new(ctx.client_ip(), 0);
    let mut server = RawTcp::new(ctx.server, ctx.server_at(0), anyone, 0x5000_0000)?;
    let mut client = RawTcp::new(ctx.client, ctx.client_at(0), ctx.server_at(0), 0x4000_0000)?;
    let tagged = |tag: u8| vec![253, 6, 0x7a, 0x7a, tag, tag, 1, 1];
    let mss = [2, 4, 5, 0xb4];
    let shown = |tcp: &super::packet::Tcp| format!("{:?}", tcp.option(253));
    let limit = Duration::from_secs(5);
    let syn_options = [&mss, tagged(1).as_slice()].concat();
    let answer_options = [&mss, tagged(2).as_slice()].concat();
    let (syn, answer) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.accept(&answer_options, limit));
        let answer = client.open(&syn_options)?;
        anyhow::Ok((join(accepting)??, answer))
    })?;
    ctx.fact(Side::Server, "option on the SYN", shown(&syn));
    ctx.must(syn.flags & (SYN | ACK) == SYN, "the first segment is a SYN");
    ctx.fact(Side::Client, "option on the SYN-ACK", shown(&answer));
    for round in 0..5_u8 {
        client.options = tagged(10 + round);
        server.options = tagged(20 + round);
        let data = ctx.pattern(u64::from(round)).bytes(700);
        client.send(&client.segment(ACK | PSH, &data))?;
        let got = server.expect(limit, |tcp| !tcp.payload.is_empty()).context("no data segment came")?;
        ctx.fact(Side::Server, format!("option on segment {round}"), shown(&got));
        ctx.must(got.payload == data, "the payload is exact");
        client.snd_nxt = client.snd_nxt.wrapping_add(700);
        server.rcv_nxt = server.rcv_nxt.wrapping_add(700);
        server.send(&server.segment(ACK, &[]))?;
        let wanted = client.snd_nxt;
        let got = client.expect(limit, |tcp| tcp.ack == wanted).context("no ACK came")?;
        ctx.fact(Side::Client, format!("option on ACK {round}"), shown(&got));
    }
    Ok(())
}

/// The largest payload of an unfragmented TCP segment without options on an Ethernet path.
pub(super) fn full_mss(family: Family) -> i32 {
    family.pick(1460, 1440)
}
