//! RST in mid-transfer, from each side: what was acknowledged arrives, then the error.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::errno::Errno;
use super::sock::Sock;
use super::stream::{Ending, Reading, read_pattern, write_pattern};
use super::teardown::send_errors;
use super::{Case, Ctx, Side, join};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "reset-after-data",
        "the sender resets once all is acknowledged; the reader reads it all",
        after_data,
    ),
    Case::new("reset-midway", "the sender resets while it sends", midway),
    Case::new("reset-by-reader", "the reader resets while it is being sent to", by_reader),
    Case::new("reset-full-window", "the sender resets while the reader's window is shut", full_window)
        .lasting(5),
    Case::new("reset-unread", "a host closes with unread data, which makes an RST", unread),
];

/// Both directions of a case: who sends, and the pair in the order (sender, reader).
fn roles(ctx: &Ctx<'_>, first: u16) -> Result<Vec<(Side, Side, Sock, Sock)>> {
    let (a, b) = ctx.pair(first)?;
    let (c, d) = ctx.pair(first + 1)?;
    Ok(vec![(Side::Client, Side::Server, a, b), (Side::Server, Side::Client, d, c)])
}

fn after_data(ctx: &Ctx<'_>) -> Result<()> {
    for (_, reader, sender, receiver) in roles(ctx, 0)? {
        write_pattern(&sender, ctx.pattern(1), 0, 60_000, 8192).map_err(|(_, errno)| errno)?;
        let acked = sender.wait_acknowledged(Duration::from_secs(20));
        ctx.must(acked, "60,000 bytes were acknowledged");
        sender.abort()?;
        // The RST may wait in the receiver's socket for its reader, or still be on its way.
        std::thread::sleep(ctx.ends.rtt + Duration::from_millis(300));
        ctx.got(reader, &read_pattern(&receiver, ctx.pattern(1), 0, Reading::default()));
        ctx.fact(reader, "sends after the reset", send_errors(&receiver));
    }
    Ok(())
}

fn midway(ctx: &Ctx<'_>) -> Result<()> {
    for (_, reader, sender, receiver) in roles(ctx, 0)? {
        let got = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_pattern(&receiver, ctx.pattern(1), 0, Reading::default()));
            let sent = write_pattern(&sender, ctx.pattern(1), 0, 300_000, 8192);
            ctx.must(sent.is_ok(), "300,000 bytes were taken by the sender's socket");
            let acked = sender.info().map_or(0, |info| info.bytes_acked);
            sender.abort()?;
            anyhow::Ok((join(reading)?, acked))
        });
        let (got, acked) = got?;
        ctx.check_exact(reader, &got);
        // How much was under way differs from run to run; that nothing acknowledged is missing does
        // not.
        ctx.fact(reader, "all that was acknowledged arrived", got.bytes + 1 >= acked);
        ctx.fact(reader, "ending", ending(got.ending));
        ctx.note(format!("{} received of {acked} acknowledged", reader.name()), got.bytes);
    }
    Ok(())
}

fn ending(ending: Ending) -> String {
    match ending {
        Ending::End => "end of stream".into(),
        Ending::Failed(errno) => errno.name(),
        Ending::Enough => "enough".into(),
    }
}

fn by_reader(ctx: &Ctx<'_>) -> Result<()> {
    for (writer, reader, sender, receiver) in roles(ctx, 0)? {
        sender.limit(Duration::from_secs(20))?;
        let result = std::thread::scope(|scope| {
            let writing = scope.spawn(|| write_pattern(&sender, ctx.pattern(1), 0, 50_000_000, 8192));
            let want = Reading { want: 50_000, ..Reading::default() };
            ctx.got(reader, &read_pattern(&receiver, ctx.pattern(1), 0, want));
            receiver.abort()?;
            join(writing)
        })?;
        let errno = result.map_or_else(|(_, errno)| errno.name(), |sent| format!("{sent} bytes sent"));
        ctx.fact(writer, "send", errno);
        ctx.fact(writer, "sends after the reset", send_errors(&sender));
        ctx.got(writer, &read_pattern(&sender, ctx.pattern(2), 0, Reading::default()));
    }
    Ok(())
}

fn full_window(ctx: &Ctx<'_>) -> Result<()> {
    for (writer, reader) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
        let n = if writer == Side::Client { 0 } else { 1 };
        let (client, server) = ctx.pair_with(n, |sock| sock.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 8192))?;
        let (sender, receiver) = if writer == Side::Client { (client, server) } else { (server, client) };
        let acked = fill(&sender, ctx)?;
        sender.abort()?;
        std::thread::sleep(Duration::from_secs(1));
        let got = read_pattern(&receiver, ctx.pattern(1), 0, Reading::default());
        ctx.check_exact(reader, &got);
        ctx.fact(reader, "all that was acknowledged arrived", got.bytes + 1 >= acked);
        ctx.fact(reader, "ending", ending(got.ending));
        ctx.note(format!("{} received of {acked} acknowledged", reader.name()), got.bytes);
    }
    Ok(())
}

/// Sends without waiting until nothing moves any more; how many bytes were acknowledged by then.
fn fill(sender: &Sock, ctx: &Ctx<'_>) -> Result<u64> {
    let data = ctx.pattern(1).bytes(400_000);
    let (mut sent, mut last, mut still_since) = (0, u64::MAX, Instant::now());
    let deadline = Instant::now() + Duration::from_secs(15);
    let still = ctx.ends.rtt * 2 + Duration::from_millis(500);
    loop {
        while sent < data.len() {
            match sender.send(&data[sent..], libc::MSG_DONTWAIT) {
                Ok(len) => sent += len,
                Err(Errno(libc::EAGAIN)) => break,
                Err(errno) => anyhow::bail!("send: {errno}"),
            }
        }
        let acked = sender.info()?.bytes_acked;
        if acked != last {
            (last, still_since) = (acked, Instant::now());
        }
        if still_since.elapsed() > still || Instant::now() > deadline {
            return Ok(acked);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn unread(ctx: &Ctx<'_>) -> Result<()> {
    for (writer, _, sender, receiver) in roles(ctx, 0)? {
        sender.send(b"never read", 0)?;
        let arrived = receiver.poll(libc::POLLIN, Duration::from_secs(10))? & libc::POLLIN != 0;
        ctx.must(arrived, "the data arrived");
        write_pattern(&receiver, ctx.pattern(2), 0, 20_000, 8192).map_err(|(_, errno)| errno)?;
        let acked = receiver.wait_acknowledged(Duration::from_secs(20));
        ctx.must(acked, "20,000 bytes were acknowledged");
        drop(receiver);
        std::thread::sleep(ctx.ends.rtt + Duration::from_millis(300));
        ctx.got(writer, &read_pattern(&sender, ctx.pattern(2), 0, Reading::default()));
        ctx.fact(writer, "sends after the reset", send_errors(&sender));
    }
    Ok(())
}
