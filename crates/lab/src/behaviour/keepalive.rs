//! Keepalives: answered while the other host lives, and the error when it has vanished.

use std::time::Duration;

use anyhow::Result;

use super::errno::SysResult;
use super::handshake::exchange;
use super::sock::Sock;
use super::stream::{Reading, read_pattern, timed};
use super::{Case, Ctx, Side, TimingRule};

pub(super) const CASES: &[Case] = &[
    Case::new("keepalive-idle", "six idle seconds with keepalives, then data", idle).lasting(7),
    Case::new("keepalive-lost", "the other host vanishes; keepalives find out", lost).lasting(8),
];

/// After 1 s of silence, every second, three times.
fn keepalive(sock: &Sock) -> SysResult<()> {
    sock.set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    sock.tcp_option(libc::TCP_KEEPIDLE, 1)?;
    sock.tcp_option(libc::TCP_KEEPINTVL, 1)?;
    sock.tcp_option(libc::TCP_KEEPCNT, 3)
}

fn idle(ctx: &Ctx<'_>) -> Result<()> {
    // Answers counted where they leave: the far host itself is asked, not somebody on the way.
    let rules = format!(
        "counter probes {{ }}\nchain input {{ type filter hook input priority 0; policy accept;
         tcp dport {} counter name probes; }}",
        ctx.port(0)
    );
    let (client, server) = ctx.pair(0)?;
    keepalive(&client)?;
    let rules = ctx.server.nft(&format!("flkeep_{}", ctx.port(0)), &rules)?;
    std::thread::sleep(Duration::from_secs(6));
    ctx.fact(Side::Server, "was asked while idle", rules.counter("probes")? >= 3);
    ctx.fact(Side::Client, "pending error", client.take_error().map_or("none".into(), |errno| errno.name()));
    exchange(ctx, &client, &server, 20_000)
}

fn lost(ctx: &Ctx<'_>) -> Result<()> {
    for (n, asker) in [(0, Side::Client), (1, Side::Server)] {
        let (client, server) = ctx.pair(n)?;
        let sock = if asker == Side::Client { &client } else { &server };
        let other = if asker == Side::Client { Side::Server } else { Side::Client };
        let port = ctx.port(n);
        let rules = format!(
            "chain input {{ type filter hook input priority 0; policy accept;
             tcp dport {port} drop; tcp sport {port} drop; }}
             chain output {{ type filter hook output priority 0; policy accept;
             tcp dport {port} drop; tcp sport {port} drop; }}"
        );
        let _rules = ctx.host(other).nft(&format!("flgone_{port}"), &rules)?;
        keepalive(sock)?;
        let (ms, got) = timed(|| read_pattern(sock, ctx.pattern(1), 0, Reading::default()));
        ctx.got(asker, &got);
        ctx.timing(format!("the {} is told", asker.name()), ms, TimingRule::Same, 1100.0);
    }
    Ok(())
}
