//! Retransmissions that contradict what was sent before: the first copy counts once it was
//! acknowledged.

use std::time::Duration;

use anyhow::{Context, Result};

use super::packet::{ACK, PSH, Tcp};
use super::raw::RawTcp;
use super::sock::Sock;
use super::{Case, Ctx, Side};

pub(super) const CASES: &[Case] = &[
    Case::new("overlap-acknowledged", "acknowledged data sent again with other bytes", acknowledged)
        .lasting(5),
    Case::new("overlap-out-of-order", "contradicting segments beyond a hole", out_of_order),
    Case::new(
        "reordered",
        "segments of a peer of our own in odd orders, overlapping and repeated",
        reordered,
    ),
];

const LIMIT: Duration = Duration::from_secs(10);

/// Offset, letter and length of segments in the order of sending.
type Script = &'static [(u32, u8, usize)];

fn open<'a>(ctx: &'a Ctx<'_>, n: u16) -> Result<(RawTcp<'a>, Sock)> {
    let listener = ctx.listen(n)?;
    let mut peer = RawTcp::new(ctx.client, ctx.client_at(n), ctx.server_at(n), 0xffff_f000)?;
    // MSS and SACK permitted.
    peer.open(&[2, 4, 5, 0xb4, 1, 1, 4, 2])?;
    Ok((peer, listener.accept().context("accept")?))
}

/// A segment at `offset` from the next sequence number, full of one letter.
fn letters(peer: &RawTcp<'_>, offset: u32, letter: u8, len: usize) -> Tcp {
    let mut segment = peer.segment(ACK | PSH, &vec![letter; len]);
    segment.seq = segment.seq.wrapping_add(offset);
    segment
}

/// The stream as runs of letters, e.g. `A1000 B500`.
fn runs(data: &[u8]) -> String {
    let groups = data.chunk_by(|a, b| a == b);
    groups.map(|run| format!("{}{}", char::from(run[0]), run.len())).collect::<Vec<_>>().join(" ")
}

fn read_to_end(sock: &Sock) -> Result<Vec<u8>> {
    let (mut data, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    sock.limit(LIMIT)?;
    loop {
        match sock.recv(&mut buffer, 0)? {
            0 => return Ok(data),
            got => data.extend(&buffer[..got]),
        }
    }
}

fn acknowledged(ctx: &Ctx<'_>) -> Result<()> {
    let (mut peer, server) = open(ctx, 0)?;
    let base = peer.snd_nxt;
    for (n, letter) in (0_u32..).zip(*b"ABCDE") {
        peer.snd_nxt = base.wrapping_add(n * 1000);
        let segment = letters(&peer, 0, letter, 1000);
        let wanted = peer.snd_nxt.wrapping_add(1000);
        ctx.must(peer.ask(&segment, |tcp| tcp.ack == wanted)?.is_some(), "a segment was acknowledged");
        // The same bytes once more with other content; and from the middle of the old into new
        // ones.
        peer.send(&letters(&peer, 0, b'x', 1000))?;
        let straddling = letters(&peer, 500, b'y', 500);
        peer.send(&straddling)?;
        peer.snd_nxt = wanted;
    }
    // From acknowledged bytes (contradicting) into new ones: the new part counts.
    let wanted = base.wrapping_add(5500);
    peer.snd_nxt = base.wrapping_add(4500);
    let straddling = letters(&peer, 0, b'F', 1000);
    ctx.must(peer.ask(&straddling, |tcp| tcp.ack == wanted)?.is_some(), "the new part was acknowledged");
    peer.snd_nxt = wanted;
    ctx.must(peer.finish()?, "FIN acknowledged");
    ctx.fact(Side::Server, "stream", runs(&read_to_end(&server)?));
    Ok(())
}

fn out_of_order(ctx: &Ctx<'_>) -> Result<()> {
    // Offset, letter, length: data beyond a hole at 0..1000, then contradicting copies, then the
    // hole.
    let scripts: [(&str, Script); 4] = [
        ("same place", &[(1000, b'B', 1000), (1000, b'x', 1000), (0, b'A', 1000)]),
        ("inside", &[(1000, b'B', 1000), (1200, b'x', 300), (0, b'A', 1000)]),
        ("around", &[(1500, b'B', 500), (1000, b'x', 1400), (0, b'A', 1000)]),
        ("hole filler overlaps", &[(1000, b'B', 1000), (0, b'A', 1400)]),
    ];
    for (n, (what, script)) in (0..).zip(scripts) {
        let (mut peer, server) = open(ctx, n)?;
        for &(offset, letter, len) in script {
            peer.send(&letters(&peer, offset, letter, len))?;
            std::thread::sleep(Duration::from_millis(20));
        }
        let end = script.iter().map(|&(offset, _, len)| offset + len as u32).max().unwrap_or(0);
        peer.snd_nxt = peer.snd_nxt.wrapping_add(end);
        ctx.must(peer.finish()?, "FIN acknowledged");
        let data = read_to_end(&server)?;
        // Which copy of unacknowledged data wins is the receiver's choice (Linux: not always the
        // first); that each byte is one that was sent for its place, and each place has one byte,
        // is not.
        let possible = (0..).zip(&data).all(|(place, byte)| {
            script.iter().any(|&(offset, letter, len)| {
                letter == *byte && (offset..offset + len as u32).contains(&place)
            })
        });
        ctx.must(possible, &format!("{what}: every byte was sent for its place"));
        ctx.fact(Side::Server, format!("{what}: bytes"), data.len());
        ctx.note(format!("{what}: stream"), runs(&data));
    }
    Ok(())
}

fn reordered(ctx: &Ctx<'_>) -> Result<()> {
    let data = ctx.pattern(1).bytes(8000);
    // Offsets and lengths of true copies; the stream comes together whatever the order.
    let orders: [&[(usize, usize)]; 4] = [
        &[
            (7000, 1000),
            (6000, 1000),
            (5000, 1000),
            (4000, 1000),
            (3000, 1000),
            (2000, 1000),
            (1000, 1000),
            (0, 1000),
        ],
        &[
            (1000, 1000),
            (3000, 1000),
            (5000, 1000),
            (7000, 1000),
            (0, 1000),
            (2000, 1000),
            (4000, 1000),
            (6000, 1000),
        ],
        &[
            (500, 1000),
            (1000, 1400),
            (900, 1400),
            (0, 1000),
            (0, 1400),
            (2000, 1400),
            (6600, 1400),
            (3300, 1400),
            (4600, 1400),
            (5500, 1300),
        ],
        &[
            (4000, 1400),
            (4000, 1400),
            (5400, 1300),
            (0, 1400),
            (0, 1400),
            (1400, 1400),
            (2800, 1200),
            (6700, 1300),
            (6700, 1300),
        ],
    ];
    for (n, order) in (0..).zip(orders) {
        let (mut peer, server) = open(ctx, n)?;
        let base = peer.snd_nxt;
        for &(offset, len) in order {
            let mut segment = peer.segment(ACK | PSH, &data[offset..offset + len]);
            segment.seq = base.wrapping_add(offset as u32);
            peer.send(&segment)?;
        }
        let wanted = base.wrapping_add(8000);
        ctx.must(peer.expect(LIMIT, |tcp| tcp.ack == wanted).is_some(), "all was acknowledged");
        peer.snd_nxt = wanted;
        ctx.must(peer.finish()?, "FIN acknowledged");
        let got = read_to_end(&server)?;
        ctx.fact(Side::Server, format!("order {n}"), format!("{} bytes, exact: {}", got.len(), got == data));
    }
    Ok(())
}
