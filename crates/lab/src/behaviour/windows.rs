//! Receivers that do not read, or read slowly, and windows that shut, shrink and open by crumbs.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::raw::RawTcp;
use super::sock::Sock;
use super::stream::{Ending, Reading, read_pattern, write_pattern};
use super::{Case, Ctx, Side, join};

pub(super) const CASES: &[Case] = &[
    Case::new("zero-window-20s", "nobody reads for 20 s, then everything is read", zero_window).lasting(22),
    Case::new(
        "slow-reader-20mb",
        "20 MB to a slow reader; the sender closes at once: nothing is lost at the tail",
        slow,
    )
    .lasting(30)
    .at_least(20_000_000),
    Case::new("slow-tail", "300 KB to a very slow reader; the sender closes at once", slow_tail).lasting(15),
    Case::new("window-crumbs", "a peer of our own opens, shuts and shrinks its window", crumbs).lasting(8),
];

/// Sends `len` bytes from each side on a connection of its own; readers read as `reading` says
/// after `wait`.
fn with_readers(ctx: &Ctx<'_>, len: u64, rcvbuf: i32, wait: Duration, reading: Reading) -> Result<()> {
    let tune = |sock: &Sock| match rcvbuf {
        0 => Ok(()),
        bytes => sock.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes),
    };
    let pairs = [ctx.pair_with(0, tune)?, ctx.pair_with(1, tune)?];
    let [(client, server), (reader, writer)] = pairs;
    std::thread::scope(|scope| {
        let one = |sender: Sock, receiver: Sock, n: u64| {
            let pattern = ctx.pattern(n);
            let writing = scope.spawn(move || {
                let sent = write_pattern(&sender, pattern, 0, len, 65_536);
                // Closed with most of it unsent: the kernel (or whoever took it over) owes it to
                // the reader.
                drop(sender);
                sent
            });
            let reading = scope.spawn(move || {
                std::thread::sleep(wait);
                read_pattern(&receiver, pattern, 0, reading)
            });
            (writing, reading)
        };
        let up = one(client, server, 1);
        let down = one(writer, reader, 2);
        for (side, (writing, reading)) in [(Side::Server, up), (Side::Client, down)] {
            let got = join(reading)?;
            ctx.must(got.bytes == len && got.ending == Ending::End, "everything arrived, then the end");
            ctx.got(side, &got);
            ctx.fact(side, "the other side's sends", format!("{:?}", join(writing)?));
        }
        Ok(())
    })
}

fn zero_window(ctx: &Ctx<'_>) -> Result<()> {
    with_readers(ctx, 1_000_000, 16_384, Duration::from_secs(20), Reading::default())
}

fn slow(ctx: &Ctx<'_>) -> Result<()> {
    // About 1 MB/s: 20 s.
    let reading = Reading { chunk: 20_000, pause: Duration::from_millis(20), ..Reading::default() };
    with_readers(ctx, 20_000_000, 0, Duration::ZERO, reading)
}

fn slow_tail(ctx: &Ctx<'_>) -> Result<()> {
    let reading = Reading { chunk: 1000, pause: Duration::from_millis(30), ..Reading::default() };
    with_readers(ctx, 300_000, 8192, Duration::from_millis(500), reading)
}

fn crumbs(ctx: &Ctx<'_>) -> Result<()> {
    let anyone = SocketAddr::new(ctx.client_ip(), 0);
    let mut peer = RawTcp::new(ctx.server, ctx.server_at(0), anyone, 0x6000_0000)?;
    let len = 20_000_u64;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| -> Result<()> {
            let client = Sock::tcp(ctx.client, ctx.family)?;
            client.connect(ctx.server_at(0))?;
            let sent = write_pattern(&client, ctx.pattern(1), 0, len, 4096);
            client.shutdown_write()?;
            ctx.fact(Side::Client, "send", format!("{sent:?}"));
            ctx.got(Side::Client, &read_pattern(&client, ctx.pattern(2), 0, Reading::default()));
            Ok(())
        });
        // Shut from the first moment; then a little, then nothing for a while, then less than
        // promised.
        peer.window = 0;
        peer.accept(&[2, 4, 5, 0xb4], Duration::from_secs(10))?;
        let mut data = Vec::new();
        for (window, want, millis) in
            [(0, 0, 1200), (1, 1, 2000), (0, 0, 500), (3000, 3000, 2000), (0, 0, 1500), (100, 100, 2000)]
        {
            peer.window = window;
            peer.send(&peer.segment(super::packet::ACK, &[]))?;
            if want == 0 {
                // Probes are answered with the shut window; their byte is not taken.
                let mut probes = 0;
                while peer.expect(Duration::from_millis(millis), |_| true).is_some() && probes < 3 {
                    probes += 1;
                    peer.send(&peer.segment(super::packet::ACK, &[]))?;
                }
                continue;
            }
            // The window shrinks from here: each ACK announces only what is left of it.
            let start = data.len();
            let deadline = std::time::Instant::now() + Duration::from_millis(millis);
            while data.len() < start + want && std::time::Instant::now() < deadline {
                let piece = peer.read(1, Duration::from_millis(millis))?;
                data.extend(piece);
                peer.window = window.saturating_sub((data.len() - start) as u16);
            }
        }
        peer.window = 65_000;
        peer.send(&peer.segment(super::packet::ACK, &[]))?;
        let rest = usize::try_from(len).unwrap_or(0) - data.len();
        data.extend(peer.read(rest, Duration::from_secs(20))?);
        ctx.fact(Side::Server, "bytes", data.len());
        ctx.must(data == ctx.pattern(1).bytes(len as usize), "the bytes are exact");
        if !peer.ended {
            peer.read(1, Duration::from_secs(5))?;
        }
        ctx.fact(Side::Server, "end of stream", peer.ended);
        ctx.fact(Side::Server, "FIN acknowledged", peer.finish()?);
        join(writing)?
    })
}
