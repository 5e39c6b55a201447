//! Plain transfers: large, tiny, many, and by single bytes.

use std::time::Duration;

use anyhow::Result;

use super::options::both_ways;
use super::sock::Sock;
use super::stream::{Ending, Reading, read_pattern, timed, write_pattern};
use super::{Case, Ctx, Side, TimingRule, join};

pub(super) const CASES: &[Case] = &[
    Case::new("duplex", "500 KB each way at the same time", duplex).lasting(6),
    Case::new("one-byte-writes", "2,000 writes of one byte, with and without Nagle's algorithm", one_byte)
        .lasting(5),
    Case::new("ping-pong", "small requests and answers in turn", ping_pong).lasting(4),
    Case::new("many-small", "200 short connections, 20 at a time", many_small).lasting(4),
    Case::new("five-gib", "5 GiB in one connection: sequence numbers wrap", five_gib)
        .lasting(90)
        .alone()
        .only(super::ONLY_V4)
        .at_least(1_000_000_000),
];

fn duplex(ctx: &Ctx<'_>) -> Result<()> {
    let (client, server) = ctx.pair(0)?;
    let (up, down) = both_ways(ctx, 0, &client, &server, 500_000);
    for (side, got) in [(Side::Server, &up), (Side::Client, &down)] {
        ctx.must(got.bytes == 500_000 && got.ending == Ending::End, "everything arrived");
        ctx.got(side, got);
    }
    Ok(())
}

fn one_byte(ctx: &Ctx<'_>) -> Result<()> {
    for nodelay in [0, 1] {
        let (client, server) =
            ctx.pair_with(nodelay, |sock| sock.tcp_option(libc::TCP_NODELAY, i32::from(nodelay)))?;
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_pattern(&server, ctx.pattern(1), 0, Reading::default()));
            let sent = write_pattern(&client, ctx.pattern(1), 0, 2000, 1);
            ctx.fact(Side::Client, "send", format!("{sent:?}"));
            client.shutdown_write()?;
            ctx.got(Side::Server, &join(reading)?);
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

fn ping_pong(ctx: &Ctx<'_>) -> Result<()> {
    const ROUNDS: u32 = 20;
    let (client, server) = ctx.pair_with(0, |sock| sock.tcp_option(libc::TCP_NODELAY, 1))?;
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut request = [0; 64];
            let mut served = 0;
            while let Ok(len @ 1..) = server.recv(&mut request, 0) {
                let _ = server.send_all(&request[..len]);
                served += 1;
            }
            served
        });
        let mut best = f64::MAX;
        for round in 0..ROUNDS {
            let request = ctx.pattern(u64::from(round)).bytes(40);
            let mut answer = [0; 40];
            let (ms, result) = timed(|| {
                let _ = client.send_all(&request);
                client.recv(&mut answer, libc::MSG_WAITALL)
            });
            best = best.min(ms);
            ctx.must(result == Ok(40) && answer[..] == request[..], "the answer is the request");
        }
        client.shutdown_write()?;
        ctx.fact(Side::Client, "exchanges", ROUNDS);
        ctx.fact(Side::Server, "exchanges", join(serving)?);
        ctx.timing("fastest exchange", best, TimingRule::NotLater, 5.0);
        Ok(())
    })
}

fn many_small(ctx: &Ctx<'_>) -> Result<()> {
    const EACH: u64 = 10;
    const PARALLEL: u64 = 20;
    let listener = ctx.listen(0)?;
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| -> Result<u64> {
            let mut right = 0;
            std::thread::scope(|serving| {
                let mut threads = Vec::new();
                for _ in 0..EACH * PARALLEL {
                    let sock = listener.accept()?;
                    threads.push(serving.spawn(move || serve(ctx, &sock)));
                }
                for thread in threads {
                    right += u64::from(join(thread)?);
                }
                anyhow::Ok(())
            })?;
            Ok(right)
        });
        let askers: Vec<_> = (0..PARALLEL)
            .map(|asker| scope.spawn(move || (0..EACH).filter(|n| ask(ctx, asker * EACH + n)).count()))
            .collect();
        let mut right = 0;
        for asker in askers {
            right += join(asker)?;
        }
        ctx.fact(Side::Client, "exact answers", right);
        ctx.fact(Side::Server, "exact requests", join(serving)??);
        Ok(())
    })
}

/// One request: its number in eight bytes, then 500 bytes of that pattern; the answer is 3,000
/// bytes.
fn ask(ctx: &Ctx<'_>, n: u64) -> bool {
    let run = || -> Result<bool> {
        let sock = Sock::tcp(ctx.client, ctx.family)?;
        sock.connect(ctx.server_at(0))?;
        sock.send_all(&n.to_be_bytes()).map_err(|(_, errno)| errno)?;
        write_pattern(&sock, ctx.pattern(n), 0, 500, 500).map_err(|(_, errno)| errno)?;
        let got = read_pattern(&sock, ctx.pattern(n + 1000), 0, Reading::default());
        Ok(got.bytes == 3000 && got.wrong_at.is_none() && got.ending == Ending::End)
    };
    run().unwrap_or(false)
}

fn serve(ctx: &Ctx<'_>, sock: &Sock) -> bool {
    let mut number = [0; 8];
    if sock.recv(&mut number, libc::MSG_WAITALL) != Ok(8) {
        return false;
    }
    let n = u64::from_be_bytes(number);
    let got = read_pattern(sock, ctx.pattern(n), 0, Reading { want: 500, ..Reading::default() });
    let _ = write_pattern(sock, ctx.pattern(n + 1000), 0, 3000, 3000);
    got.bytes == 500 && got.wrong_at.is_none()
}

fn five_gib(ctx: &Ctx<'_>) -> Result<()> {
    const LEN: u64 = 5 << 30;
    // One block over and over, of a length that no segment size divides: any slip shows, at little
    // cost.
    const BLOCK: usize = 1_000_003;
    // As fast as captures on the same processors can follow, packet by packet.
    const RATE_BYTES_PER_S: u64 = 75_000_000;
    let block = ctx.pattern(1).bytes(BLOCK);
    let pace = |sock: &Sock| {
        sock.set_bytes(libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &RATE_BYTES_PER_S.to_ne_bytes())
    };
    let (client, server) = ctx.pair_with(0, pace)?;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut left = LEN;
            while left > 0 {
                let take = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
                if let Err((_, errno)) = client.send_all(&block[..take]) {
                    return format!("{errno} with {left} bytes to go");
                }
                left -= take as u64;
            }
            let _ = client.shutdown_write();
            "all sent".to_string()
        });
        let (mut buffer, mut at, mut bytes, mut wrong) = (vec![0; 1 << 18], 0, 0_u64, false);
        let (ms, ()) = timed(|| {
            while let Ok(got @ 1..) = server.recv(&mut buffer, 0) {
                let mut data = &buffer[..got];
                while !data.is_empty() {
                    let take = data.len().min(BLOCK - at);
                    wrong |= data[..take] != block[at..at + take];
                    at = (at + take) % BLOCK;
                    data = &data[take..];
                }
                bytes += got as u64;
            }
        });
        ctx.must(!wrong, "the bytes are exact");
        ctx.fact(Side::Server, "bytes", bytes);
        ctx.fact(Side::Client, "send", join(writing)?);
        ctx.note("Mbit/s", (bytes as f64 * 8e-3 / ms).round());
        std::thread::sleep(Duration::from_millis(10));
        Ok(())
    })
}
