//! The same 4-tuple again and again: every connection is its own.

use std::time::Duration;

use anyhow::{Context, Result};

use super::errno::Errno;
use super::sock::Sock;
use super::stream::{Pattern, sha256};
use super::{Case, Ctx, Side, join};

pub(super) const CASES: &[Case] = &[
    Case::new("reuse-1000", "1,000 connections on one 4-tuple, ended by RST", thousand).lasting(100),
    Case::new(
        "reuse-time-wait",
        "one 4-tuple again while the server is in TIME-WAIT, and ended by RST",
        time_wait,
    )
    .lasting(15),
];

/// How a connection of a series ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client resets when it has the answer.
    ClientResets,
    /// The server closes first and keeps the TIME-WAIT state.
    ServerCloses,
}

/// One 4-tuple a thousand times if the round trip allows it in about 100 s, else several in
/// parallel.
fn thousand(ctx: &Ctx<'_>) -> Result<()> {
    const TOTAL: u32 = 1000;
    let each = ctx.ends.rtt.as_secs_f64() * 2.0 + 0.010;
    let tuples = (f64::from(TOTAL) * each / 100.0).ceil().clamp(1.0, 50.0) as u32;
    let series = TOTAL.div_ceil(tuples);
    run_series(ctx, tuples as u16, series, |_| End::ClientResets)?;
    ctx.note("tuples", tuples);
    Ok(())
}

fn time_wait(ctx: &Ctx<'_>) -> Result<()> {
    run_series(ctx, 10, 30, |round| if round % 3 == 2 { End::ClientResets } else { End::ServerCloses })
}

fn run_series(ctx: &Ctx<'_>, tuples: u16, rounds: u32, end: impl Fn(u32) -> End + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..tuples)
            .map(|tuple| {
                let end = &end;
                scope.spawn(move || series(ctx, tuple, rounds, end))
            })
            .collect();
        let mut exact = 0;
        for thread in threads {
            exact += join(thread)??;
        }
        ctx.fact(Side::Client, "connections", u32::from(tuples) * rounds);
        ctx.fact(Side::Client, "exact in both directions", exact);
        Ok(())
    })
}

/// All connections of one 4-tuple, one after the other; how many were as they should be.
fn series(ctx: &Ctx<'_>, tuple: u16, rounds: u32, end: &(impl Fn(u32) -> End + Sync)) -> Result<u32> {
    let listener = ctx.listen(tuple)?;
    let mut exact = 0;
    // The server's socket of the connection before: its end is looked at while the next one is
    // under way.
    let mut before: Option<(Sock, Option<Errno>)> = None;
    for round in 0..rounds {
        let context = || format!("tuple {tuple}, connection {round}");
        let seed = u64::from(tuple) << 32 | u64::from(round) << 1;
        let (request, answer) = (ctx.pattern(seed), ctx.pattern(seed + 1));
        // Lengths that differ from one connection to the next: bytes of an older one would show.
        let (asked, answered) = (100 + round as usize % 700, 50 + round as usize % 900);
        let client = open(ctx, tuple).with_context(context)?;
        client.limit(Duration::from_secs(20))?;
        let _ = client.send_all(&request.bytes(asked));
        let server = listener.accept().with_context(context)?;
        server.limit(Duration::from_secs(20))?;
        let ended = before.take().is_none_or(|(sock, ending)| ends_with(&sock, ending));
        ctx.must(ended, &format!("{}: the one before ended as it should", context()));
        let right = take(&server, request, asked);
        let _ = server.send_all(&answer.bytes(answered));
        let right = match end(round) {
            End::ClientResets => {
                let right = right && take(&client, answer, answered);
                client.abort()?;
                before = Some((server, Some(Errno(libc::ECONNRESET))));
                right
            }
            End::ServerCloses => {
                server.shutdown_write()?;
                let right = right && take(&client, answer, answered) && ends_with(&client, None);
                drop(client);
                before = Some((server, None));
                right
            }
        };
        if right {
            exact += 1;
        } else {
            ctx.fault(format!("{}: not as it should be", context()));
        }
    }
    let ended = before.is_none_or(|(sock, ending)| ends_with(&sock, ending));
    ctx.must(ended, "the last one ended as it should");
    Ok(exact)
}

/// Binds the same port each time. The previous connection's last ACK may still be on its way to
/// this host.
fn open(ctx: &Ctx<'_>, tuple: u16) -> Result<Sock> {
    let mut tries = 0;
    loop {
        let sock = Sock::tcp(ctx.client, ctx.family)?;
        sock.bind(ctx.client_at(tuple))?;
        match sock.connect(ctx.server_at(tuple)) {
            Ok(()) => return Ok(sock),
            Err(Errno(libc::EADDRNOTAVAIL)) if tries < 200 => {
                tries += 1;
                std::thread::sleep(ctx.ends.rtt / 4 + Duration::from_millis(2));
            }
            Err(errno) => anyhow::bail!("connect: {errno}"),
        }
    }
}

fn take(sock: &Sock, pattern: Pattern, len: usize) -> bool {
    let mut data = vec![0; len];
    let mut got = 0;
    while got < len {
        match sock.recv(&mut data[got..], 0) {
            Ok(0) | Err(_) => return false,
            Ok(more) => got += more,
        }
    }
    sha256(&data) == sha256(&pattern.bytes(len))
}

fn ends_with(sock: &Sock, errno: Option<Errno>) -> bool {
    let mut one = [0];
    match (sock.recv(&mut one, 0), errno) {
        (Ok(0), None) => true,
        (Err(got), Some(wanted)) => got == wanted,
        _ => false,
    }
}
