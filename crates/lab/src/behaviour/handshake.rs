//! Connections that do not come about, or only at the second try: same error, same time.

use std::time::Duration;

use anyhow::Result;

use super::sock::Sock;
use super::stream::{Reading, read_pattern, timed, write_pattern};
use super::{Case, Ctx, Event, Side, TimingRule};

pub(super) const CASES: &[Case] = &[
    Case::new("refused", "connect to a closed port", refused),
    Case::new("unreachable", "connect to an address where no host is", unreachable).lasting(4),
    Case::new("rejected", "connect answered by ICMP errors and by a firewall's RST", rejected),
    Case::new("silent", "connect to a host that never answers", silent).lasting(8),
    Case::new("syn-lost", "the first SYN is lost", syn_lost),
    Case::new("syn-ack-lost", "the first SYN-ACK is lost", syn_ack_lost),
    Case::new("icmp-soft", "ICMP errors while a connection is up do not end it", icmp_soft).lasting(5),
];

fn try_connect(ctx: &Ctx<'_>, to: std::net::SocketAddr, syn_retries: Option<i32>) -> Result<(f64, Event)> {
    let sock = Sock::tcp(ctx.client, ctx.family)?;
    if let Some(count) = syn_retries {
        sock.tcp_option(libc::TCP_SYNCNT, count)?;
    }
    let (ms, result) = timed(|| sock.connect(to));
    Ok((
        ms,
        match result {
            Ok(()) => Event::Connected,
            Err(errno) => Event::Failed { call: "connect".into(), errno: errno.name() },
        },
    ))
}

fn refused(ctx: &Ctx<'_>) -> Result<()> {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let (ms, event) = try_connect(ctx, ctx.server_at(0), None)?;
        ctx.log(Side::Client, [event]);
        best = best.min(ms);
    }
    ctx.timing("connect", best, TimingRule::Same, 30.0);
    Ok(())
}

fn unreachable(ctx: &Ctx<'_>) -> Result<()> {
    let (ms, event) = try_connect(ctx, std::net::SocketAddr::new(ctx.absent_ip(), ctx.port(0)), None)?;
    ctx.log(Side::Client, [event]);
    // The router gives up asking for the address after about 3 s; an earlier question may still be
    // under way.
    ctx.timing("connect", ms, TimingRule::Same, 1500.0);
    Ok(())
}

fn rejected(ctx: &Ctx<'_>) -> Result<()> {
    let answers = [
        "icmpx port-unreachable",
        "icmpx admin-prohibited",
        "icmpx host-unreachable",
        "icmpx no-route",
        "tcp reset",
    ];
    let mut rules = String::from("chain input { type filter hook input priority 0; policy accept;\n");
    for (n, answer) in (0..).zip(answers) {
        rules += &format!("tcp dport {} reject with {answer};\n", ctx.port(n));
    }
    rules += "}";
    let _rules = ctx.server.nft(&format!("flrej_{}", ctx.port(0)), &rules)?;
    for (n, answer) in (0..).zip(answers) {
        let mut best = f64::MAX;
        for _ in 0..2 {
            let (ms, event) = try_connect(ctx, ctx.server_at(n), None)?;
            ctx.log(Side::Client, [event]);
            best = best.min(ms);
        }
        ctx.timing(answer, best, TimingRule::Same, 30.0);
    }
    Ok(())
}

fn silent(ctx: &Ctx<'_>) -> Result<()> {
    let rules = format!(
        "counter seen {{ }}\nchain input {{ type filter hook input priority 0; policy accept;
         tcp dport {} counter name seen drop; }}",
        ctx.port(0)
    );
    let rules = ctx.server.nft(&format!("flsilent_{}", ctx.port(0)), &rules)?;
    let (ms, event) = try_connect(ctx, ctx.server_at(0), Some(2))?;
    ctx.log(Side::Client, [event]);
    ctx.timing("connect", ms, TimingRule::Same, 400.0);
    // Nobody on the way repeats a SYN on its own.
    ctx.fact(Side::Server, "SYNs seen", rules.counter("seen")?);
    Ok(())
}

fn syn_lost(ctx: &Ctx<'_>) -> Result<()> {
    let rules = format!(
        "counter seen {{ }}\nchain input {{ type filter hook input priority 0; policy accept;
         tcp dport {} tcp flags & (syn|ack) == syn counter name seen numgen inc mod 100000 == 0 drop; }}",
        ctx.port(0)
    );
    let rules = ctx.server.nft(&format!("flsyn_{}", ctx.port(0)), &rules)?;
    lost_once(ctx)?;
    ctx.fact(Side::Server, "SYNs seen", rules.counter("seen")?);
    Ok(())
}

fn syn_ack_lost(ctx: &Ctx<'_>) -> Result<()> {
    let rules = format!(
        "chain output {{ type filter hook output priority 0; policy accept;
         tcp sport {} tcp flags & (syn|ack) == (syn|ack) numgen inc mod 100000 == 0 drop; }}",
        ctx.port(0)
    );
    let _rules = ctx.server.nft(&format!("flsynack_{}", ctx.port(0)), &rules)?;
    lost_once(ctx)
}

/// A connection whose handshake takes a second try, then some data both ways.
fn lost_once(ctx: &Ctx<'_>) -> Result<()> {
    let listener = ctx.listen(0)?;
    let client = Sock::tcp(ctx.client, ctx.family)?;
    let (ms, result) = timed(|| client.connect(ctx.server_at(0)));
    result?;
    ctx.timing("connect", ms, TimingRule::Same, 300.0);
    let server = listener.accept()?;
    exchange(ctx, &client, &server, 20_000)
}

/// `len` bytes from client to server, then as many back, then the end from both sides.
pub(super) fn exchange(ctx: &Ctx<'_>, client: &Sock, server: &Sock, len: u64) -> Result<()> {
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let got = read_pattern(server, ctx.pattern(1), 0, Reading { want: len, ..Reading::default() });
            ctx.got(Side::Server, &got);
            if let Err((_, errno)) = write_pattern(server, ctx.pattern(2), 0, len, 8192) {
                ctx.failed(Side::Server, "send", errno);
            }
            let _ = server.shutdown_write();
            ctx.got(Side::Server, &read_pattern(server, ctx.pattern(1), len, Reading::default()));
        });
        if let Err((_, errno)) = write_pattern(client, ctx.pattern(1), 0, len, 8192) {
            ctx.failed(Side::Client, "send", errno);
        }
        ctx.got(Side::Client, &read_pattern(client, ctx.pattern(2), 0, Reading::default()));
        let _ = client.shutdown_write();
        super::join(serving)
    })
}

fn icmp_soft(ctx: &Ctx<'_>) -> Result<()> {
    let (client, server) = ctx.pair(0)?;
    let (first, second) = (10_000, 30_000);
    write_pattern(&client, ctx.pattern(1), 0, first, 8192).ok();
    let want = Reading { want: first, ..Reading::default() };
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, want));
    let rules = format!(
        "chain input {{ type filter hook input priority 0; policy accept;
         tcp dport {} reject with icmpx host-unreachable; }}",
        ctx.port(0)
    );
    let rules = ctx.server.nft(&format!("flsoft_{}", ctx.port(0)), &rules)?;
    write_pattern(&client, ctx.pattern(1), first, second, 8192).ok();
    std::thread::sleep(Duration::from_millis(1500));
    drop(rules);
    let want = Reading { want: second, ..Reading::default() };
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), first, want));
    ctx.fact(Side::Client, "pending error", client.take_error().map_or("none".into(), |errno| errno.name()));
    drop(client);
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), first + second, Reading::default()));
    Ok(())
}
