//! Handshakes that no kernel makes but RFC 9293 allows or foresees.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::packet::{ACK, FIN, PSH, RST, SYN, Tcp};
use super::raw::RawTcp;
use super::sock::Sock;
use super::stream::{Reading, read_pattern};
use super::{Case, Ctx, Event, Side, join};

pub(super) const CASES: &[Case] = &[
    Case::new("odd-answers", "wrong, doubled and data-carrying answers to a SYN", odd_answers).lasting(8),
    Case::new("odd-openings", "SYN with data, ACK with data and FIN, a segment out of nowhere", odd_openings),
];

const LIMIT: Duration = Duration::from_secs(6);
const MSS: [u8; 4] = [2, 4, 5, 0xb4];

/// What the raw server does between the first SYN and the proper SYN-ACK.
type Prelude = fn(&Ctx<'_>, &mut RawTcp<'_>, &Tcp) -> Result<()>;

fn odd_answers(ctx: &Ctx<'_>) -> Result<()> {
    let preludes: [(&str, Prelude); 6] = [
        ("SYN-ACK of another number", wrong_ack),
        ("RST of another number", wrong_rst),
        ("bare ACK of an old connection", challenge),
        ("SYN first (crossing)", crossing),
        ("SYN-ACK twice", |_, _, _| Ok(())),
        ("SYN-ACK with data", |_, _, _| Ok(())),
    ];
    for (n, (what, prelude)) in (0..).zip(preludes) {
        let anyone = SocketAddr::new(ctx.client_ip(), 0);
        let mut peer = RawTcp::new(ctx.server, ctx.server_at(n), anyone, 0x1234_0000)?;
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| connect_and_read(ctx, n));
            let result = answer(ctx, &mut peer, what, prelude);
            let events = join(connecting)??;
            ctx.log(Side::Client, [Event::Fact { what: what.into(), value: "client saw".into() }]);
            ctx.log(Side::Client, events);
            result
        })?;
    }
    Ok(())
}

fn connect_and_read(ctx: &Ctx<'_>, n: u16) -> Result<Vec<Event>> {
    let client = Sock::tcp(ctx.client, ctx.family)?;
    client.limit(Duration::from_secs(15))?;
    if let Err(errno) = client.connect(ctx.server_at(n)) {
        return Ok(vec![Event::Failed { call: "connect".into(), errno: errno.name() }]);
    }
    let got = read_pattern(&client, ctx.pattern(1), 0, Reading::default());
    ctx.check_exact(Side::Client, &got);
    let mut events = vec![Event::Connected];
    events.extend(got.events());
    Ok(events)
}

fn answer(ctx: &Ctx<'_>, peer: &mut RawTcp<'_>, what: &str, prelude: Prelude) -> Result<()> {
    let syn = peer.expect(LIMIT, |tcp| tcp.flags & (SYN | ACK) == SYN).context("no SYN came")?;
    peer.remote.set_port(syn.sport);
    peer.rcv_nxt = syn.seq.wrapping_add(1);
    prelude(ctx, peer, &syn)?;
    let data = ctx.pattern(1).bytes(5000);
    let early = if what == "SYN-ACK with data" { 200 } else { 0 };
    let syn_ack = Tcp { options: MSS.to_vec(), ..peer.segment(SYN | ACK, &data[..early]) };
    if what == "SYN-ACK twice" {
        peer.send(&syn_ack)?;
    }
    let isn = peer.snd_nxt;
    let wanted = isn.wrapping_add(1);
    let acked = peer.ask(&syn_ack, |tcp| tcp.flags & ACK != 0 && tcp.ack.wrapping_sub(wanted) <= 200)?;
    ctx.fact(Side::Server, format!("{what}: connected"), acked.is_some());
    if acked.is_none() {
        return Ok(());
    }
    peer.snd_nxt = wanted;
    if what == "SYN-ACK twice" {
        peer.send(&syn_ack)?;
    }
    // Data that came with the SYN-ACK may or may not have been taken: it is sent again like any
    // other.
    peer.push(&data, 1000)?;
    ctx.must(peer.finish()?, "FIN acknowledged");
    Ok(())
}

/// RFC 9293 3.10.7.3: an unacceptable ACK in SYN-SENT is answered by an RST, the connection attempt
/// goes on.
fn wrong_ack(ctx: &Ctx<'_>, peer: &mut RawTcp<'_>, syn: &Tcp) -> Result<()> {
    let mut wrong = Tcp { options: MSS.to_vec(), ..peer.segment(SYN | ACK, &[]) };
    wrong.ack = syn.seq.wrapping_add(5000);
    peer.send(&wrong)?;
    let reset = peer.expect(Duration::from_secs(2), |tcp| tcp.flags & RST != 0);
    let exact = reset.map(|tcp| tcp.seq == wrong.ack);
    ctx.fact(Side::Server, "the wrong SYN-ACK was answered by an RST with its number", format!("{exact:?}"));
    Ok(())
}

/// An RST is only believed in SYN-SENT if it acknowledges the SYN.
fn wrong_rst(_: &Ctx<'_>, peer: &mut RawTcp<'_>, syn: &Tcp) -> Result<()> {
    for ack in [syn.seq, syn.seq.wrapping_add(2), syn.seq.wrapping_add(70_000)] {
        peer.send(&Tcp { ack, seq: 0, ..peer.segment(RST | ACK, &[]) })?;
    }
    peer.send(&Tcp { seq: syn.ack, ..peer.segment(RST, &[]) })
}

/// A server that still has an old connection answers with its own numbers (RFC 5961 4.2, RFC 9293
/// figure 9): the client resets that one and tries again.
fn challenge(ctx: &Ctx<'_>, peer: &mut RawTcp<'_>, syn: &Tcp) -> Result<()> {
    let mut old = peer.segment(ACK, &[]);
    (old.seq, old.ack) = (0x7777_0000, syn.seq.wrapping_sub(100_000));
    peer.send(&old)?;
    let reset = peer.expect(Duration::from_secs(2), |tcp| tcp.flags & RST != 0);
    ctx.fact(Side::Server, "the old ACK was answered by an RST", reset.is_some_and(|tcp| tcp.seq == old.ack));
    let again = peer.expect(LIMIT, |tcp| tcp.flags & (SYN | ACK) == SYN);
    ctx.fact(Side::Server, "the SYN came again, the same", again.is_some_and(|tcp| tcp.seq == syn.seq));
    Ok(())
}

/// RFC 9293 figure 8: both sides send SYN.
fn crossing(ctx: &Ctx<'_>, peer: &mut RawTcp<'_>, _: &Tcp) -> Result<()> {
    let syn = Tcp { options: MSS.to_vec(), ..peer.segment(SYN, &[]) };
    let wanted = syn.seq.wrapping_add(1);
    let answer = peer.ask(&syn, |tcp| tcp.flags & (SYN | ACK) == SYN | ACK && tcp.ack == wanted)?;
    ctx.fact(Side::Server, "the crossing SYN was acknowledged with a SYN-ACK", answer.is_some());
    Ok(())
}

fn odd_openings(ctx: &Ctx<'_>) -> Result<()> {
    let data = ctx.pattern(1).bytes(3000);
    // A SYN with data (no Fast Open): the data counts only once the handshake is through.
    let listener = ctx.listen(0)?;
    let mut peer = RawTcp::new(ctx.client, ctx.client_at(0), ctx.server_at(0), 0x2222_0000)?;
    let syn = Tcp { options: MSS.to_vec(), ..peer.segment(SYN, &data[..500]) };
    let answer = peer.ask(&syn, |tcp| tcp.flags & (SYN | ACK) == SYN | ACK)?.context("no SYN-ACK")?;
    ctx.fact(Side::Client, "SYN with data: acknowledged", answer.ack.wrapping_sub(syn.seq));
    peer.snd_nxt = syn.seq.wrapping_add(1);
    peer.rcv_nxt = answer.seq.wrapping_add(1);
    peer.send(&peer.segment(ACK, &[]))?;
    let server = listener.accept().context("accept")?;
    peer.push(&data, 1000)?;
    ctx.must(peer.finish()?, "FIN acknowledged");
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, Reading::default()));

    // The ACK of the handshake carries data and FIN.
    let listener = ctx.listen(1)?;
    let mut peer = RawTcp::new(ctx.client, ctx.client_at(1), ctx.server_at(1), 0x3333_0000)?;
    let syn = Tcp { options: MSS.to_vec(), ..peer.segment(SYN, &[]) };
    let answer = peer.ask(&syn, |tcp| tcp.flags & (SYN | ACK) == SYN | ACK)?.context("no SYN-ACK")?;
    peer.snd_nxt = syn.seq.wrapping_add(1);
    peer.rcv_nxt = answer.seq.wrapping_add(1);
    let last = peer.segment(ACK | PSH | FIN, &data[..800]);
    let wanted = peer.snd_nxt.wrapping_add(801);
    ctx.must(peer.ask(&last, |tcp| tcp.ack == wanted)?.is_some(), "data and FIN acknowledged");
    let server = listener.accept().context("accept")?;
    ctx.got(Side::Server, &read_pattern(&server, ctx.pattern(1), 0, Reading::default()));

    // Segments of a connection that does not exist: an RST with the right numbers.
    let mut peer = RawTcp::new(ctx.client, ctx.client_at(2), ctx.server_at(2), 0x4444_0000)?;
    peer.rcv_nxt = 0x5555_0000;
    let _listener = ctx.listen(2)?;
    for (what, flags) in [("data", ACK | PSH), ("FIN", ACK | FIN), ("SYN-ACK", SYN | ACK)] {
        let stray = peer.segment(flags, b"stray");
        let reset = peer.ask(&stray, |tcp| tcp.flags & RST != 0)?;
        let exact = reset.map(|tcp| tcp.seq == stray.ack);
        ctx.fact(Side::Client, format!("stray {what}: RST with the right number"), format!("{exact:?}"));
    }
    Ok(())
}
