//! Forged packets injected into living connections: segments in the window but not exact, data
//! outside it, ICMP lies. Whoever sends them knows the addresses and ports, not the numbers.

use std::time::Duration;

use anyhow::Result;

use super::packet::{ACK, FIN, Ip, PSH, RST, SYN, Tcp, checksum, transport_checksum};
use super::raw::Wire;
use super::sock::Sock;
use super::stream::{Ending, Reading, read_pattern, write_pattern};
use super::{Case, Ctx, Side, join};

pub(super) const CASES: &[Case] = &[
    Case::new("blind-rst", "RSTs in the window, never exact", |ctx| attack(ctx, rsts)).lasting(4),
    Case::new("blind-syn", "SYNs and SYN-ACKs into a living connection", |ctx| attack(ctx, syns)).lasting(4),
    Case::new("blind-data", "data in the window with impossible acknowledgements", |ctx| attack(ctx, data))
        .lasting(4),
    Case::new("outside-window", "data, FIN and RST outside the window", |ctx| attack(ctx, outside))
        .lasting(4),
    Case::new("forged-icmp", "forged ICMP errors about a living connection", |ctx| attack(ctx, icmp))
        .lasting(4),
];

/// What an attacker needs: the victim's 4-tuple (from the forged sender's point of view) and the
/// numbers it has to miss.
struct Target<'a> {
    wire: Wire,
    from: std::net::SocketAddr,
    to: std::net::SocketAddr,
    /// The next sequence number of the forged sender: exact hits are its own.
    seq: u32,
    /// What the forged sender has received.
    ack: u32,
    ctx: &'a Ctx<'a>,
}

impl Target<'_> {
    fn send(&self, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Result<()> {
        let segment = Tcp {
            sport: self.from.port(),
            dport: self.to.port(),
            seq,
            ack,
            flags,
            window: 60_000,
            payload: payload.to_vec(),
            ..Tcp::default()
        };
        self.wire.send(&segment.packet(self.from.ip(), self.to.ip()))
    }

    /// A number `offset` past the exact one.
    fn past(&self, offset: u32) -> u32 {
        self.seq.wrapping_add(offset)
    }
}

/// Runs an attack against both hosts while a connection rests and while the other direction is
/// busy.
fn attack(ctx: &Ctx<'_>, forge: fn(&Target<'_>) -> Result<()>) -> Result<()> {
    for (n, forged) in [(0, Side::Client), (1, Side::Server)] {
        let (client, server) = ctx.pair(n)?;
        let client_addr = client.local()?;
        let (own, other) = if forged == Side::Client { (&client, &server) } else { (&server, &client) };
        let other_side = if forged == Side::Client { Side::Server } else { Side::Client };
        let (from, to) = match forged {
            Side::Client => (client_addr, ctx.server_at(n)),
            Side::Server => (ctx.server_at(n), client_addr),
        };
        // Some data both ways first: windows are open, every gateway is at work.
        let first = 40_000;
        move_data(ctx, own, other, other_side, 1, 0, first)?;
        move_data(ctx, other, own, forged, 2, 0, first)?;
        std::thread::sleep(ctx.ends.rtt + Duration::from_millis(60));
        let (seq, ack) = own.sequence()?;
        let wire = Wire::open(ctx.host(forged), ctx.ip_of(other_side), from.port())?;
        let target = Target { wire, from, to, seq, ack, ctx };
        forge(&target)?;
        std::thread::sleep(ctx.ends.rtt + Duration::from_millis(60));
        // Again while the attacked host is the one that sends.
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| move_data(ctx, other, own, forged, 2, first, 150_000));
            forge(&target)?;
            join(busy)?
        })?;
        move_data(ctx, own, other, other_side, 1, first, 60_000)?;
        drop(target);
        finish(ctx, own, other, other_side)?;
    }
    Ok(())
}

fn move_data(
    ctx: &Ctx<'_>,
    sender: &Sock,
    receiver: &Sock,
    reader: Side,
    pattern: u64,
    offset: u64,
    len: u64,
) -> Result<()> {
    receiver.limit(Duration::from_secs(20))?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_pattern(sender, ctx.pattern(pattern), offset, len, 8192));
        let want = Reading { want: len, ..Reading::default() };
        let got = read_pattern(receiver, ctx.pattern(pattern), offset, want);
        ctx.must(got.bytes == len, "all bytes arrived under attack");
        ctx.got(reader, &got);
        let sent = join(writing)?;
        ctx.must(sent == Ok(len), "all bytes were sent under attack");
        Ok(())
    })
}

fn finish(ctx: &Ctx<'_>, own: &Sock, other: &Sock, other_side: Side) -> Result<()> {
    own.shutdown_write()?;
    let got = read_pattern(other, ctx.pattern(1), 100_000, Reading::default());
    ctx.must(got.bytes == 0 && got.ending == Ending::End, "nothing but the end of stream follows");
    ctx.got(other_side, &got);
    Ok(())
}

/// Steps through a window of 40,000 without the exact number.
const OFFSETS: [u32; 8] = [1, 2, 7, 500, 1448, 9000, 30_000, 40_000];

fn rsts(target: &Target<'_>) -> Result<()> {
    for offset in OFFSETS {
        target.send(RST, target.past(offset), 0, &[])?;
        target.send(RST | ACK, target.past(offset), target.ack, &[])?;
    }
    Ok(())
}

fn syns(target: &Target<'_>) -> Result<()> {
    for offset in OFFSETS {
        target.send(SYN, target.past(offset), 0, &[])?;
        target.send(SYN | ACK, target.past(offset), target.ack, &[])?;
        target.send(SYN | FIN, target.past(offset), 0, &[])?;
    }
    // Far away, as a new connection on the same 4-tuple would begin.
    target.send(SYN, target.past(0x4000_0000), 0, &[])?;
    target.send(SYN | ACK, target.past(0x4000_0000), target.ack.wrapping_sub(0x4000_0000), &[])
}

/// Data and FIN at the exact place but acknowledging what was never sent, or what is long past.
fn data(target: &Target<'_>) -> Result<()> {
    // Far enough that the busy direction does not get there while the attack lasts.
    let impossible = [
        target.ack.wrapping_add(0x1000_0000),
        target.ack.wrapping_sub(0x4000_0000),
        target.ack.wrapping_add(0x7fff_0000),
    ];
    for offset in [0, 1, 500, 20_000] {
        for ack in impossible {
            target.send(ACK | PSH, target.past(offset), ack, b"not from the sender")?;
            target.send(ACK | FIN, target.past(offset), ack, &[])?;
        }
        // Without ACK a segment means nothing in a living connection.
        target.send(PSH, target.past(offset), 0, b"no ACK flag")?;
        target.send(0, target.past(offset), 0, b"no flag at all")?;
    }
    Ok(())
}

fn outside(target: &Target<'_>) -> Result<()> {
    for offset in [0x2000_0000, 0x6000_0000, 0xa000_0000, 0xffff_0000_u32, 0xffff_ff00] {
        let seq = target.past(offset);
        target.send(ACK | PSH, seq, target.ack, b"outside")?;
        target.send(ACK | FIN, seq, target.ack, &[])?;
        target.send(RST, seq, 0, &[])?;
        target.send(RST | ACK, seq, target.ack, &[])?;
    }
    Ok(())
}

/// ICMP errors that quote the connection with a sequence number that is not in flight.
fn icmp(target: &Target<'_>) -> Result<()> {
    let ctx = target.ctx;
    // The quoted packet travels from the victim to the forged sender.
    let quoted = Tcp {
        sport: target.to.port(),
        dport: target.from.port(),
        seq: target.ack.wrapping_add(0x1000_0000),
        ack: target.seq,
        flags: ACK,
        window: 1000,
        ..Tcp::default()
    };
    let (src, dst) = (target.from.ip(), target.to.ip());
    let quoted = quoted.packet(dst, src);
    // Type, code, and the word after the checksum (an MTU where there is one).
    let errors: &[(u8, u8, u32)] = ctx.family.pick(
        &[
            (3, 0, 0),
            (3, 1, 0),
            (3, 2, 0),
            (3, 3, 0),
            (3, 4, 600),
            (3, 4, 68),
            (3, 13, 0),
            (4, 0, 0),
            (11, 0, 0),
            (12, 0, 0),
        ],
        &[
            (1, 0, 0),
            (1, 1, 0),
            (1, 3, 0),
            (1, 4, 0),
            (2, 0, 1280),
            (2, 0, 400),
            (3, 0, 0),
            (4, 0, 0),
            (4, 1, 6),
        ],
    );
    for &(kind, code, word) in errors {
        let mut message = vec![kind, code, 0, 0];
        message.extend(word.to_be_bytes());
        message.extend(&quoted);
        let protocol = ctx.family.pick(1, 58);
        let sum = match ctx.family {
            super::Family::V4 => checksum(&[&message]),
            super::Family::V6 => transport_checksum(src, dst, 58, &message),
        };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        target.wire.send(&Ip::new(src, dst, protocol).packet(&message))?;
    }
    Ok(())
}
