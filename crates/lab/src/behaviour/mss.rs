//! Small, ordinary and very large maximum segment sizes.

use anyhow::{Context, Result};

use super::host::{Host, IpGuard};
use super::options::{both_ways, full_mss};
use super::sock::Sock;
use super::stream::Ending;
use super::{Case, Ctx, Side};

pub(super) const CASES: &[Case] = &[
    Case::new("mss-88", "both hosts take segments of 88 bytes", |ctx| transfer(ctx, 88, 88, 40_000)),
    Case::new("mss-536", "both hosts take segments of 536 bytes", |ctx| transfer(ctx, 536, 536, 150_000)),
    Case::new("mss-1460", "both hosts take full segments", |ctx| {
        transfer(ctx, full_mss(ctx.family), full_mss(ctx.family), 200_000)
    }),
    Case::new("mss-mixed", "one host takes 88, the other full segments", |ctx| {
        transfer(ctx, 88, full_mss(ctx.family), 40_000)
    }),
    Case::new("mss-8960", "both hosts announce 8960, whatever the path takes", announced_8960),
];

fn transfer(ctx: &Ctx<'_>, at_client: i32, at_server: i32, len: u64) -> Result<()> {
    let listener = ctx.listen_with(0, |sock| sock.tcp_option(libc::TCP_MAXSEG, at_server))?;
    let client = Sock::tcp(ctx.client, ctx.family)?;
    client.tcp_option(libc::TCP_MAXSEG, at_client)?;
    client.connect(ctx.server_at(0))?;
    let server = listener.accept()?;
    report(ctx, &client, &server, len)
}

fn report(ctx: &Ctx<'_>, client: &Sock, server: &Sock, len: u64) -> Result<()> {
    // What each host may send follows from the announcement of the other: it must arrive unchanged.
    ctx.fact(Side::Client, "send MSS", client.info()?.snd_mss);
    ctx.fact(Side::Server, "send MSS", server.info()?.snd_mss);
    let (up, down) = both_ways(ctx, 0, client, server, len);
    ctx.must(up.bytes == len && up.ending == Ending::End, "everything arrived at the server");
    ctx.must(down.bytes == len && down.ending == Ending::End, "everything arrived at the client");
    ctx.got(Side::Server, &up);
    ctx.got(Side::Client, &down);
    Ok(())
}

/// An address of its own on each host and routes between them that carry `metrics`.
pub(super) fn private_route<'a>(
    ctx: &'a Ctx<'_>,
    n: u8,
    metrics: &str,
) -> Result<(std::net::IpAddr, std::net::IpAddr, Vec<IpGuard<'a>>)> {
    let (client, server) = (Ctx::neighbour_of(ctx.client_ip(), n), Ctx::neighbour_of(ctx.server_ip(), n));
    let bits = ctx.family.pick(32, 128);
    // Deprecated, so that IPv6 source address selection (RFC 6724 rule 3) leaves it to those who
    // bind to it.
    let flags = ctx.family.pick("", " nodad preferred_lft 0");
    let mut guards = Vec::new();
    let mut add = |host: &'a Host, own, far, far_known| -> Result<()> {
        let route = host.route_to(far_known)?;
        let via = route.via.map_or(String::new(), |via| format!(" via {via}"));
        let dev = &route.dev;
        let address = format!("{own}/{bits} dev {dev}");
        guards.push(host.ip_until(&format!("addr add {address}{flags}"), &format!("addr del {address}"))?);
        let target = format!("{far}/{bits}{via} dev {dev}");
        let family = ctx.family.pick("-4", "-6");
        guards.push(host.ip_until(
            &format!("{family} route add {target} {metrics}"),
            &format!("{family} route del {target}"),
        )?);
        Ok(())
    };
    add(ctx.client, client, server, ctx.server_ip()).context("client's private route")?;
    add(ctx.server, server, client, ctx.client_ip()).context("server's private route")?;
    // The route must go before the address it may depend on.
    guards.reverse();
    Ok((client, server, guards))
}

fn announced_8960(ctx: &Ctx<'_>) -> Result<()> {
    let (client_ip, server_ip, _routes) = private_route(ctx, 110, "advmss 8960")?;
    let listener = Sock::tcp(ctx.server, ctx.family)?;
    let addr = std::net::SocketAddr::new(server_ip, ctx.port(0));
    listener.bind(addr)?;
    listener.listen(4)?;
    let client = Sock::tcp(ctx.client, ctx.family)?;
    client.bind(std::net::SocketAddr::new(client_ip, 0))?;
    client.connect(addr).context("connect between private addresses")?;
    let server = listener.accept()?;
    report(ctx, &client, &server, 200_000)
}
