//! Urgent data (RFC 9293 3.8.5, RFC 6093): the mark is where the sender put it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::errno::Errno;
use super::packet::{ACK, PSH, URG};
use super::raw::RawTcp;
use super::sock::Sock;
use super::stream::{Ending, Got, Pattern, Reading, read_pattern, sha256, write_pattern};
use super::{Case, Ctx, Side};

pub(super) const CASES: &[Case] = &[
    Case::new("urgent-inline", "an urgent byte in the stream: position of the mark", inline),
    Case::new("urgent-separate", "an urgent byte beside the stream: its value and place", separate),
    Case::new("urgent-repeated", "several urgent bytes, read one by one and overtaken", repeated),
    Case::new("urgent-zero-window", "the notice arrives although the window is shut", zero_window).lasting(8),
    Case::new("urgent-pointers", "odd urgent pointers from a peer of our own", pointers).lasting(5),
];

const LIMIT: Duration = Duration::from_secs(15);

/// Reads to the end, noting before each call whether the stream stands at the mark. (bytes, marks,
/// ending)
fn read_marks(sock: &Sock) -> (Vec<u8>, Vec<usize>, Ending) {
    let (mut data, mut marks, mut buffer) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
    loop {
        if sock.at_mark() == Ok(true) && marks.last() != Some(&data.len()) {
            marks.push(data.len());
        }
        match sock.recv(&mut buffer, 0) {
            Ok(0) => return (data, marks, Ending::End),
            Ok(got) => data.extend(&buffer[..got]),
            Err(errno) => return (data, marks, Ending::Failed(errno)),
        }
    }
}

fn log_marks(ctx: &Ctx<'_>, side: Side, what: &str, sock: &Sock) {
    let (data, marks, ending) = read_marks(sock);
    let got = Got { bytes: data.len() as u64, sha256: sha256(&data), wrong_at: None, ending };
    ctx.fact(side, format!("{what}: mark at"), format!("{marks:?}"));
    ctx.log(side, got.events());
}

fn inline(ctx: &Ctx<'_>) -> Result<()> {
    // Bytes before and after the urgent one.
    for (n, (before, after)) in (0..).zip([(0, 0), (1, 1), (1000, 1000), (30_000, 20_000)]) {
        for (m, from) in [(0, Side::Client), (1, Side::Server)] {
            let (client, server) = ctx.pair(n * 2 + m)?;
            let (sender, receiver, reader) = match from {
                Side::Client => (client, server, Side::Server),
                Side::Server => (server, client, Side::Client),
            };
            receiver.set(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
            write_pattern(&sender, ctx.pattern(1), 0, before, 8192).map_err(|(_, errno)| errno)?;
            sender.send(b"!", libc::MSG_OOB)?;
            write_pattern(&sender, ctx.pattern(2), 0, after, 8192).map_err(|(_, errno)| errno)?;
            sender.shutdown_write()?;
            ctx.must(receiver.wait_received(before + 1 + after, LIMIT), "all bytes arrived");
            log_marks(ctx, reader, &format!("{before} before, {after} after"), &receiver);
        }
    }
    Ok(())
}

fn separate(ctx: &Ctx<'_>) -> Result<()> {
    for (n, before) in [(0, 0), (1, 500), (2, 40_000)] {
        let (client, server) = ctx.pair(n)?;
        write_pattern(&client, ctx.pattern(1), 0, before, 8192).map_err(|(_, errno)| errno)?;
        client.send(b"!", libc::MSG_OOB)?;
        write_pattern(&client, ctx.pattern(1), before, 700, 8192).map_err(|(_, errno)| errno)?;
        client.shutdown_write()?;
        let events = server.poll(libc::POLLPRI, LIMIT)?;
        ctx.fact(Side::Server, "told of urgent data", events & libc::POLLPRI != 0);
        ctx.must(server.wait_received(before + 701, LIMIT), "all bytes arrived");
        let mut byte = [0];
        let urgent = server.recv(&mut byte, libc::MSG_OOB);
        ctx.fact(Side::Server, "urgent byte", format!("{urgent:?} {byte:?}"));
        log_marks(ctx, Side::Server, &format!("{before} before"), &server);
    }
    Ok(())
}

fn repeated(ctx: &Ctx<'_>) -> Result<()> {
    // Each read before the next is sent, as FTP and telnet do with Interrupt and Data Mark.
    let (client, server) = ctx.pair(0)?;
    server.set(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
    for round in 0..5_u64 {
        let before = 100 * round;
        write_pattern(&client, ctx.pattern(round), 0, before, 8192).map_err(|(_, errno)| errno)?;
        client.send(&[round as u8], libc::MSG_OOB)?;
        ctx.must(server.poll(libc::POLLPRI, LIMIT)? & libc::POLLPRI != 0, "told of urgent data");
        let mut data = vec![0; before as usize];
        let mut got = 0;
        while got < data.len() {
            got += server.recv(&mut data[got..], 0)?;
        }
        ctx.fact(Side::Server, format!("round {round}: at the mark"), server.at_mark()?);
        ctx.must(data == ctx.pattern(round).bytes(before as usize), "bytes before the mark are exact");
        let mut byte = [0xff];
        server.recv(&mut byte, 0)?;
        ctx.fact(Side::Server, format!("round {round}: urgent byte"), byte[0]);
    }
    // Several before the reader looks: the last one is the mark, the others are ordinary bytes.
    let (client, server) = ctx.pair(1)?;
    server.set(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
    for round in 0..4 {
        write_pattern(&client, ctx.pattern(round), 0, 2000, 8192).map_err(|(_, errno)| errno)?;
        client.send(&[round as u8], libc::MSG_OOB)?;
    }
    client.shutdown_write()?;
    ctx.must(server.wait_received(4 * 2001, LIMIT), "all bytes arrived");
    log_marks(ctx, Side::Server, "overtaken", &server);
    Ok(())
}

/// Asks for SIGURG on this thread and waits for it.
fn wait_sigurg(limit: Duration) -> bool {
    // SAFETY: sigset_t is plain data; all pointers are to locals that live through the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGURG);
        let time = libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: 0 };
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time) == libc::SIGURG
    }
}

fn own_sigurg(sock: &Sock) -> Result<()> {
    const F_SETOWN_EX: i32 = 15;
    #[repr(C)]
    struct Owner {
        kind: i32,
        tid: i32,
    }
    // SAFETY: as above; Owner has the layout of struct f_owner_ex, kind 0 is F_OWNER_TID.
    let result = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGURG);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let owner = Owner { kind: 0, tid: libc::gettid() };
        libc::fcntl(sock.fd(), F_SETOWN_EX, &raw const owner)
    };
    anyhow::ensure!(result == 0, "F_SETOWN_EX: {}", Errno::last());
    // What an earlier case on this thread has left behind.
    while wait_sigurg(Duration::ZERO) {}
    Ok(())
}

fn zero_window(ctx: &Ctx<'_>) -> Result<()> {
    let (client, server) = ctx.pair_with(0, |sock| {
        sock.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 4096)?;
        sock.set(libc::SOL_SOCKET, libc::SO_SNDBUF, 60_000)
    })?;
    server.set(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
    own_sigurg(&server)?;
    // More than the window, less than the 64 KB that an urgent pointer can reach.
    let before = 30_000;
    write_pattern(&client, ctx.pattern(1), 0, before, 8192).map_err(|(_, errno)| errno)?;
    std::thread::sleep(ctx.ends.rtt * 4 + Duration::from_millis(500));
    client.send(b"!", libc::MSG_OOB)?;
    let sent = Instant::now();
    ctx.fact(Side::Server, "told while the window is shut", wait_sigurg(LIMIT));
    ctx.note("notice after ms", sent.elapsed().as_millis());
    write_pattern(&client, ctx.pattern(1), before, 10_000, 8192).map_err(|(_, errno)| errno)?;
    client.shutdown_write()?;
    log_marks(ctx, Side::Server, "zero window", &server);
    Ok(())
}

fn pointers(ctx: &Ctx<'_>) -> Result<()> {
    // Payload bytes of the marked segment, its urgent pointer, whether URG is set.
    let odd = [
        ("zero", 100, 0, URG),
        ("first byte", 100, 1, URG),
        ("last byte", 100, 100, URG),
        ("one past", 100, 101, URG),
        ("beyond", 100, 150, URG),
        ("no flag", 100, 50, 0),
        ("no payload", 0, 50, URG),
        ("far beyond", 100, 60_000, URG),
    ];
    for (n, (what, len, pointer, flag)) in (0..).zip(odd) {
        let listener = ctx.listen(n)?;
        let mut peer = RawTcp::new(ctx.client, ctx.client_at(n), ctx.server_at(n), 0x1000_0000)?;
        peer.open(&[2, 4, 5, 0xb4])?;
        let server = listener.accept().context("accept")?;
        server.set(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
        let pattern: Pattern = ctx.pattern(1);
        peer.push(&pattern.bytes(50), 50)?;
        let mut data = vec![0; len];
        pattern.fill(50, &mut data);
        let mut marked = peer.segment(ACK | PSH | flag, &data);
        marked.urgent = pointer;
        let wanted = peer.snd_nxt.wrapping_add(len as u32);
        let acked = peer.ask(&marked, |tcp| tcp.ack == wanted)?;
        ctx.must(acked.is_some() || len == 0, "the marked segment was acknowledged");
        peer.snd_nxt = wanted;
        let mut rest = vec![0; 200];
        pattern.fill(50 + len as u64, &mut rest);
        peer.push(&rest, 200)?;
        ctx.must(server.wait_received(250 + len as u64, LIMIT), "all bytes arrived");
        ctx.must(peer.finish()?, "FIN acknowledged");
        let (data, marks, ending) = read_marks(&server);
        ctx.must(data == pattern.bytes(250 + len), "the bytes are exact");
        ctx.fact(
            Side::Server,
            format!("{what}: {} bytes, {ending:?}, mark at", data.len()),
            format!("{marks:?}"),
        );
        drop(server);
        let _ = peer.read(1, Duration::from_millis(1));
    }
    // Nothing of this disturbs an ordinary reader.
    let (client, server) = ctx.pair(20)?;
    write_pattern(&client, ctx.pattern(3), 0, 10_000, 8192).map_err(|(_, errno)| errno)?;
    drop(client);
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(3), 0, Reading::default()));
    Ok(())
}
