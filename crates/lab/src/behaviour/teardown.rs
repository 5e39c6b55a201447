//! How connections end in order: half-closed for long, from both sides at once, with data after the
//! end.

use std::time::Duration;

use anyhow::Result;

use super::errno::Errno;
use super::sock::Sock;
use super::stream::{Reading, read_pattern, timed, write_pattern};
use super::{Case, Ctx, Side, TimingRule, join};

pub(super) const CASES: &[Case] = &[
    Case::new("half-close-1s", "the answer comes 1 s after the request's end of stream", half_close_1s),
    Case::new("half-close-60s", "the answer comes 60 s after the request's end of stream", half_close_60s)
        .lasting(62),
    Case::new("simultaneous-close", "both sides close at once, with data just before", simultaneous_close),
    Case::new("late-data", "data for a host that has closed: it answers with RST", late_data),
    Case::new("close-at-once", "connect and close without a byte; a greeting and close", close_at_once),
];

fn half_close_1s(ctx: &Ctx<'_>) -> Result<()> {
    half_close(ctx, 0, Side::Client, Duration::from_secs(1))?;
    half_close(ctx, 1, Side::Server, Duration::from_secs(1))
}

fn half_close_60s(ctx: &Ctx<'_>) -> Result<()> {
    std::thread::scope(|scope| {
        // Each direction with its own pair of sides, so that the order of events stays fixed.
        let (client, server) = ctx.pair(1)?;
        let other = scope.spawn(move || {
            let got = ask_and_wait(ctx, &server, &client, Duration::from_secs(60));
            (got, client, server)
        });
        half_close(ctx, 0, Side::Client, Duration::from_secs(60))?;
        let ((request, answer), ..) = join(other)?;
        ctx.got(Side::Client, &request);
        ctx.got(Side::Server, &answer);
        Ok(())
    })
}

/// `asking` ends its direction after the request; the answer follows after `wait`. What each side
/// read.
fn ask_and_wait(ctx: &Ctx<'_>, asking: &Sock, answering: &Sock, wait: Duration) -> (super::Got, super::Got) {
    let _ = write_pattern(asking, ctx.pattern(1), 0, 10_000, 4096);
    let _ = asking.shutdown_write();
    let request = read_pattern(answering, ctx.pattern(1), 0, Reading::default());
    std::thread::sleep(wait);
    let _ = write_pattern(answering, ctx.pattern(2), 0, 30_000, 4096);
    let _ = answering.shutdown_write();
    let answer = read_pattern(asking, ctx.pattern(2), 0, Reading::default());
    (request, answer)
}

fn half_close(ctx: &Ctx<'_>, n: u16, asks: Side, wait: Duration) -> Result<()> {
    let (client, server) = ctx.pair(n)?;
    match asks {
        Side::Client => {
            let (request, answer) = ask_and_wait(ctx, &client, &server, wait);
            ctx.got(Side::Server, &request);
            ctx.got(Side::Client, &answer);
        }
        Side::Server => {
            let (request, answer) = ask_and_wait(ctx, &server, &client, wait);
            ctx.got(Side::Client, &request);
            ctx.got(Side::Server, &answer);
        }
    }
    Ok(())
}

fn simultaneous_close(ctx: &Ctx<'_>) -> Result<()> {
    for (n, len) in [(0, 0), (1, 1), (2, 50_000)] {
        let (client, server) = ctx.pair(n)?;
        let barrier = std::sync::Barrier::new(2);
        let close = |sock: &Sock, out: u64, side: Side, back: u64| {
            let _ = write_pattern(sock, ctx.pattern(out), 0, len, 4096);
            barrier.wait();
            let _ = sock.shutdown_write();
            ctx.got(side, &read_pattern(sock, ctx.pattern(back), 0, Reading::default()));
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| close(&server, 2, Side::Server, 1));
            close(&client, 1, Side::Client, 2);
            join(other)
        })?;
    }
    Ok(())
}

fn late_data(ctx: &Ctx<'_>) -> Result<()> {
    for (n, closer) in [(0, Side::Client), (1, Side::Server)] {
        let (client, server) = ctx.pair(n)?;
        let (closing, staying, side) = match closer {
            Side::Client => (client, server, Side::Server),
            Side::Server => (server, client, Side::Client),
        };
        write_pattern(&closing, ctx.pattern(1), 0, 1000, 1000).map_err(|(_, errno)| errno)?;
        drop(closing);
        ctx.got(side, &read_pattern(&staying, ctx.pattern(1), 0, Reading::default()));
        std::thread::sleep(ctx.ends.rtt * 2 + Duration::from_millis(100));
        ctx.fact(side, "first send", format!("{:?}", staying.send(b"too late", 0)));
        let (ms, events) = timed(|| staying.poll(libc::POLLERR, Duration::from_secs(20)));
        ctx.fact(
            side,
            "the connection reports an error",
            events.is_ok_and(|events| events & libc::POLLERR != 0),
        );
        ctx.timing(format!("reset heard by the {}", side.name()), ms, TimingRule::Same, 60.0);
        ctx.fact(side, "next sends", send_errors(&staying));
        ctx.got(side, &read_pattern(&staying, ctx.pattern(1), 1000, Reading::default()));
    }
    Ok(())
}

/// The errors of two sends in a row on a dead connection.
pub(super) fn send_errors(sock: &Sock) -> String {
    let twice = [sock.send(b"x", 0), sock.send(b"x", 0)];
    twice.map(|result| result.map_or_else(Errno::name, |len| len.to_string())).join(", ")
}

fn close_at_once(ctx: &Ctx<'_>) -> Result<()> {
    for (n, greeting) in [(0, 0), (1, 0), (2, 100), (3, 100)] {
        let (client, server) = ctx.pair(n)?;
        let (speaker, listener, side) =
            if n % 2 == 0 { (client, server, Side::Server) } else { (server, client, Side::Client) };
        write_pattern(&speaker, ctx.pattern(1), 0, greeting, 100).map_err(|(_, errno)| errno)?;
        drop(speaker);
        ctx.got(side, &read_pattern(&listener, ctx.pattern(1), 0, Reading::default()));
    }
    Ok(())
}
