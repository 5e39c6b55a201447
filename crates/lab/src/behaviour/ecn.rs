//! ECN: negotiated between the hosts, marks put on wherever a queue may stand.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::mss::private_route;
use super::options::both_ways;
use super::packet::{ACK, CWR, ECE, SYN, Tcp};
use super::raw::RawTcp;
use super::sock::Sock;
use super::stream::{Reading, read_pattern};
use super::{Case, Ctx, Side};

pub(super) const CASES: &[Case] = &[
    Case::new("ecn-marks-early", "ECN; marks set where the packets leave the hosts", |ctx| {
        ecn(ctx, "output", 120)
    }),
    Case::new("ecn-marks-late", "ECN; marks set where the packets reach the hosts", |ctx| {
        ecn(ctx, "input", 121)
    }),
    Case::new("ecn-accurate", "a peer of our own asks for Accurate ECN (RFC 9768)", accurate),
];

/// `TCPI_OPT_ECN` and `TCPI_OPT_ECN_SEEN`.
const ECN: u8 = 8;
const ECN_SEEN: u8 = 16;

fn ecn(ctx: &Ctx<'_>, hook: &str, neighbour: u8) -> Result<()> {
    let (client_ip, server_ip, _routes) = private_route(ctx, neighbour, "features ecn")?;
    let port = ctx.port(0);
    let ip = ctx.family.pick("ip", "ip6");
    // Every tenth packet that may be marked is marked, beginning with the first.
    let chain = format!(
        "chain marking {{ type filter hook {hook} priority 0; policy accept;
         tcp sport {port} {ip} ecn != not-ect numgen inc mod 10 == 0 {ip} ecn set ce;
         tcp dport {port} {ip} ecn != not-ect numgen inc mod 10 == 0 {ip} ecn set ce; }}"
    );
    let table = format!("flecn_{port}");
    let _marks = (ctx.client.nft(&table, &chain)?, ctx.server.nft(&table, &chain)?);
    let listener = Sock::tcp(ctx.server, ctx.family)?;
    let addr = SocketAddr::new(server_ip, port);
    listener.bind(addr)?;
    listener.listen(4)?;
    let client = Sock::tcp(ctx.client, ctx.family)?;
    client.bind(SocketAddr::new(client_ip, 0))?;
    client.connect(addr).context("connect between private addresses")?;
    let server = listener.accept()?;
    let (up, down) = both_ways(ctx, 0, &client, &server, 200_000);
    ctx.got(Side::Server, &up);
    ctx.got(Side::Client, &down);
    for (side, sock) in [(Side::Client, &client), (Side::Server, &server)] {
        let info = sock.info()?;
        ctx.fact(side, "ECN negotiated", info.options & ECN != 0);
        ctx.fact(side, "ECN-capable packets arrived", info.options & ECN_SEEN != 0);
        // Marks late on the path need not be told to the far host: another TCP may react to them.
        if hook == "output" {
            ctx.fact(side, "heard of marked packets", info.delivered_ce > 0);
        } else {
            ctx.note(format!("{} delivered marked", side.name()), info.delivered_ce);
        }
    }
    Ok(())
}

/// A SYN with AE, CWR and ECE (RFC 9768 3.1). Whatever the server knows, the client must understand
/// the answer.
fn accurate(ctx: &Ctx<'_>) -> Result<()> {
    let listener = ctx.listen(0)?;
    let mut peer = RawTcp::new(ctx.client, ctx.client_at(0), ctx.server_at(0), 0x2468_0000)?;
    let syn = Tcp { more_flags: 1, options: vec![2, 4, 5, 0xb4], ..peer.segment(SYN | ECE | CWR, &[]) };
    let answer = peer.ask(&syn, |tcp| tcp.flags & (SYN | ACK) == SYN | ACK)?.context("no SYN-ACK")?;
    let ecn = answer.flags & (ECE | CWR);
    ctx.fact(Side::Client, "answer", format!("AE {}, ECE and CWR {ecn:#x}", answer.more_flags));
    peer.snd_nxt = syn.seq.wrapping_add(1);
    peer.rcv_nxt = answer.seq.wrapping_add(1);
    peer.send(&peer.segment(ACK, &[]))?;
    let server = listener.accept().context("accept")?;
    peer.push(&ctx.pattern(1).bytes(10_000), 1400)?;
    ctx.must(peer.finish()?, "FIN acknowledged");
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, Reading::default()));
    Ok(())
}
