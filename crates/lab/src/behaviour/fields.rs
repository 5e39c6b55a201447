//! Fields of the IP header that hosts set and look at: hop count, DSCP, flow label; and one
//! sequence space.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;

use super::packet::Tcp;
use super::raw::Wire;
use super::sock::{Family, Sock};
use super::stream::{Reading, read_pattern, write_pattern};
use super::{Case, Ctx, Side};

pub(super) const CASES: &[Case] = &[
    Case::new("ip-fields", "hop count, DSCP and flow label of TCP packets as the hosts set them", ip_fields),
    Case::new("sequence-space", "both hosts count the same sequence numbers", sequence_space),
];

/// Expedited forwarding (RFC 3246), ECN bits clear.
const TOS: u8 = 0xb8;

fn ip_fields(ctx: &Ctx<'_>) -> Result<()> {
    for (n, watcher) in [(0, Side::Server), (1, Side::Client)] {
        // The watcher is the one that is sent to; its host's own socket has the port.
        let port = ctx.port(n);
        let far = ctx.ip_of(if watcher == Side::Server { Side::Client } else { Side::Server });
        let local = std::net::SocketAddr::new(ctx.ip_of(watcher), port);
        let other = ctx.host(if watcher == Side::Server { Side::Client } else { Side::Server });
        let listener = Sock::tcp(ctx.host(watcher), ctx.family)?;
        listener.bind(local)?;
        listener.listen(4)?;
        let wire = Wire::open(ctx.host(watcher), far, port)?;
        Sock::udp(other, ctx.family)?.send_to(b"hop count?", local, 0)?;

        let sender = Sock::tcp(other, ctx.family)?;
        match ctx.family {
            Family::V4 => sender.set(libc::IPPROTO_IP, libc::IP_TOS, TOS.into())?,
            Family::V6 => sender.set(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, TOS.into())?,
        }
        sender.connect(local)?;
        let receiver = listener.accept()?;
        write_pattern(&sender, ctx.pattern(1), 0, 50_000, 8192).map_err(|(_, errno)| errno)?;
        sender.shutdown_write()?;
        ctx.got(watcher, &read_pattern(&receiver, ctx.pattern(1), 0, Reading::default()));
        drop(receiver);

        let (mut udp_ttl, mut ttl, mut tos, mut labels) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        while let Some(packet) = wire.recv(Duration::from_millis(200) + ctx.ends.rtt) {
            // The filter lets through what shows no port.
            let to_port = packet.payload.get(2..4) == Some(&port.to_be_bytes()[..]);
            if packet.src != far || packet.fragment || !packet.extra.is_empty() || !to_port {
                continue;
            }
            match packet.protocol {
                17 => {
                    udp_ttl.insert(packet.ttl);
                }
                6 => {
                    let has_data = Tcp::parse(&packet.payload).is_some_and(|tcp| tcp.seq_len() > 0);
                    ttl.insert(packet.ttl);
                    // Pure ACKs may carry other DSCPs where the last ACK comes from TIME-WAIT.
                    if has_data {
                        tos.insert(packet.tos & 0xfc);
                        labels.insert(packet.flow_label);
                    }
                }
                _ => {}
            }
        }
        ctx.must(!ttl.is_empty() && !udp_ttl.is_empty(), "packets were seen");
        ctx.fact(watcher, "TCP and UDP come over the same number of hops", ttl == udp_ttl);
        ctx.fact(watcher, "DSCP of segments", format!("{tos:?}"));
        ctx.fact(watcher, "flow labels of segments", labels.len());
        ctx.note(format!("{}: TTL", watcher.name()), format!("TCP {ttl:?} UDP {udp_ttl:?}"));
    }
    Ok(())
}

fn sequence_space(ctx: &Ctx<'_>) -> Result<()> {
    let (client, server) = ctx.pair(0)?;
    for round in 0..5_u64 {
        let (up, down) = (1000 + round * 7000, 500 + round * 9000);
        write_pattern(&client, ctx.pattern(1), 0, up, 8192).map_err(|(_, errno)| errno)?;
        write_pattern(&server, ctx.pattern(2), 0, down, 8192).map_err(|(_, errno)| errno)?;
        let want = |want| Reading { want, ..Reading::default() };
        ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, want(up)));
        ctx.got(Side::Client, &read_pattern(&client, ctx.pattern(2), 0, want(down)));
        let ((client_snd, client_rcv), (server_snd, server_rcv)) = (client.sequence()?, server.sequence()?);
        ctx.fact(Side::Client, "what it sent is what the other received", client_snd == server_rcv);
        ctx.fact(Side::Server, "what it sent is what the other received", server_snd == client_rcv);
    }
    Ok(())
}
