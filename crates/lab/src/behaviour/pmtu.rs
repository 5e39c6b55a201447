//! A link inside the path that takes no more than 1,300 bytes: told by ICMP, and not told.

use std::time::Duration;

use anyhow::{Context, Result};

use super::host::{Host, IpGuard, NftGuard};
use super::options::both_ways;
use super::sock::{Family, Sock};
use super::stream::{Ending, timed};
use super::{Case, Ctx, Side, TimingRule};

pub(super) const CASES: &[Case] = &[
    Case::new("pmtu-icmp", "an inner link of 1300 bytes, told by ICMP", told).alone().lasting(4),
    Case::new(
        "pmtu-black-hole",
        "an inner link of 1300 bytes, nobody tells (hosts probe: tcp_mtu_probing=1)",
        untold,
    )
    .alone()
    .lasting(12),
];

/// MTU of the inner link: below what the hosts send, above the IPv6 minimum.
const NARROW: u32 = 1300;

/// Opens the routers of the inner link.
fn routers(ctx: &Ctx<'_>) -> Result<Vec<(Host, String)>> {
    let open = |inner: &super::InnerDevice| Ok((Host::open(&inner.ns)?, inner.dev.clone()));
    ctx.ends.narrow.iter().map(open).collect()
}

fn narrow(routers: &[(Host, String)]) -> Result<Vec<IpGuard<'_>>> {
    let mut guards = Vec::new();
    for (host, dev) in routers {
        let text = host.ip(&format!("-j link show dev {dev}"))?;
        let value: serde_json::Value = serde_json::from_str(&text)?;
        let before = value[0]["mtu"].as_u64().with_context(|| format!("no MTU of {dev}"))?;
        guards.push(host.ip_until(
            &format!("link set dev {dev} mtu {NARROW}"),
            &format!("link set dev {dev} mtu {before}"),
        )?);
    }
    Ok(guards)
}

/// What the hosts have learned about path MTUs and connections does not outlive the case.
struct Forget<'a>(&'a Ctx<'a>);

impl Forget<'_> {
    fn now(&self) {
        for host in [self.0.client, self.0.server] {
            let _ = host.ip("-4 route flush cache");
            let _ = host.ip("-6 route flush cache");
            let _ = host.ip("tcp_metrics flush");
        }
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.now();
    }
}

fn told(ctx: &Ctx<'_>) -> Result<()> {
    let routers = routers(ctx)?;
    let forget = Forget(ctx);
    forget.now();
    let (before_client, before_server) = ctx.pair(1)?;
    let _narrow = narrow(&routers)?;
    let (client, server) = ctx.pair(0)?;
    transfer(ctx, &client, &server, 500.0)?;
    // A connection that was there before the link became narrow.
    transfer(ctx, &before_client, &before_server, 500.0)?;
    udp(ctx)
}

fn transfer(ctx: &Ctx<'_>, client: &Sock, server: &Sock, slack_ms: f64) -> Result<()> {
    let (ms, (up, down)) = timed(|| both_ways(ctx, 0, client, server, 150_000));
    for (side, sock, got) in [(Side::Server, server, &up), (Side::Client, client, &down)] {
        ctx.must(got.bytes == 150_000 && got.ending == Ending::End, "everything arrived");
        ctx.got(side, got);
        let info = sock.info()?;
        ctx.note(format!("{}: path MTU", side.name()), info.pmtu);
    }
    ctx.timing("transfer", ms, TimingRule::NotLater, slack_ms + ms * 0.5);
    Ok(())
}

/// A datagram too large for the inner link: the sender is told by the next send.
fn udp(ctx: &Ctx<'_>) -> Result<()> {
    let sock = Sock::udp(ctx.client, ctx.family)?;
    let (level, discover, mtu) = match ctx.family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_MTU),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_MTU),
    };
    sock.set(level, discover, libc::IP_PMTUDISC_DO)?;
    sock.connect(ctx.server_at(2))?;
    sock.send(&[0; 1400], 0).ok();
    std::thread::sleep(ctx.ends.rtt + Duration::from_millis(300));
    let _ = sock.take_error();
    ctx.fact(Side::Client, "send of 1400 bytes", format!("{:?}", sock.send(&[0; 1400], 0)));
    ctx.fact(Side::Client, "path MTU of a datagram socket", sock.get(level, mtu)?);
    Ok(())
}

fn untold(ctx: &Ctx<'_>) -> Result<()> {
    let routers = routers(ctx)?;
    let forget = Forget(ctx);
    forget.now();
    let mut silent: Vec<NftGuard<'_>> = Vec::new();
    for (host, dev) in &routers {
        let chain = "chain output { type filter hook output priority 0; policy accept;
             icmp type destination-unreachable icmp code frag-needed drop; icmpv6 type packet-too-big drop; }";
        silent
            .push(host.nft(&format!("flhole_{}", dev.replace(|c: char| !c.is_alphanumeric(), "_")), chain)?);
    }
    let _probing = (
        ctx.client.hold_sysctl("ipv4/tcp_mtu_probing", "1")?,
        ctx.server.hold_sysctl("ipv4/tcp_mtu_probing", "1")?,
    );
    let _narrow = narrow(&routers)?;
    let (client, server) = ctx.pair(0)?;
    // How soon a host tries smaller segments depends on its own time-outs, which double.
    transfer(ctx, &client, &server, 4000.0)
}
