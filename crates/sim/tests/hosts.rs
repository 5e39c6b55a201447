//! What the simulated hosts owe to any TCP, segment by segment.

use std::sync::Arc;

use farlink_sim::app::Outcome;
use farlink_sim::content::Stream;
use farlink_sim::host::{Host, SmolHost, address};
use farlink_sim::packet::{finish, tcp};
use farlink_sim::traffic::{Begin, Close, Connection, HostConfig, Side};
use farlink_wire::{Duration, Flags, Instant, SegmentHeader, SeqNum, TcpSegment, Timestamps};

const ISN: SeqNum = SeqNum(5_000);

/// A server, and a client in our hands.
struct Talk {
    server: SmolHost,
    now: Instant,
    isn: SeqNum,
    /// Our clock.
    stamp: u32,
    said: Vec<TcpSegment>,
}

impl Talk {
    /// The server of this side, with the handshake done. Our windows are not scaled.
    fn new(server: Side) -> Self {
        let mut c = Connection::new(0, 1, 0, 13, server.send_bytes);
        c.sides[1] = server;
        let config = HostConfig { window_scaling: false, ..HostConfig::default() };
        let server = SmolHost::new(1, config, Arc::new(vec![c]), 1);
        let mut talk =
            Self { server, now: Instant::from_millis(10), isn: SeqNum(0), stamp: 100, said: Vec::new() };
        talk.server.run(talk.now);
        let answer = talk.say(Flags::SYN, 0, 0, 4_000, 0);
        talk.isn = answer.first().expect("a SYN-ACK").seq;
        talk
    }

    /// We say something, by offsets behind the two ISNs; what the server answers before any of its
    /// timers.
    fn say(&mut self, flags: Flags, from: u32, ack: u32, window: u16, len: u32) -> Vec<TcpSegment> {
        let (src, dst) = (address(0, false), address(1, false));
        let header = SegmentHeader {
            src,
            dst,
            src_port: 30_000,
            dst_port: 1_000,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: 1,
            dont_fragment: true,
            seq: ISN + from,
            ack: if flags.ack() { self.isn + ack } else { SeqNum(0) },
            flags,
            window,
            urgent: 0,
            timestamps: Some(Timestamps { val: self.stamp, ecr: 0 }),
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let mut bytes = header.write(len as usize).expect("a segment").0.to_vec();
        let mut payload = vec![0; len as usize];
        Stream::new((src, 30_000), (dst, 1_000), ISN.0)
            .fill(u64::from(from) - u64::from(len > 0), &mut payload);
        bytes.extend(payload);
        finish(&mut bytes);
        self.server.receive(self.now, &bytes);
        self.listen(Duration::from_millis(20))
    }

    fn listen(&mut self, time: Duration) -> Vec<TcpSegment> {
        let (until, before) = (self.now + time, self.said.len());
        loop {
            self.server.run(self.now);
            while let Some(p) = self.server.take_output() {
                self.said.extend(tcp(&p));
            }
            match self.server.deadline() {
                Some(at) if at < until => self.now = at.max(self.now),
                _ => break,
            }
        }
        self.now = until;
        self.said[before..].to_vec()
    }

    /// How far the server has acknowledged us, behind our ISN.
    fn acked(&self) -> u32 {
        self.said.iter().map(|s| s.ack.since(ISN)).max().unwrap_or(0)
    }
}

/// A server that sends so much at once and closes.
fn sender(send_bytes: u64) -> Side {
    Side { send_bytes, begin: Begin::AtOnce, close: Close::WhenSent, ..Side::default() }
}

/// Its FIN was acknowledged round a gateway, which went on to say what it knew. It took nothing
/// that came with an older acknowledgement than the newest, whatever it carried.
#[test]
fn data_counts_although_its_acknowledgement_is_old() {
    let mut talk = Talk::new(sender(183));
    let fin = talk.say(Flags::ACK, 1, 1, 4_000, 0);
    assert!(fin.iter().any(|s| s.flags.fin() && s.payload_len == 183), "{fin:?}");
    talk.say(Flags::ACK, 1, 185, 4_000, 0);
    talk.say(Flags::ACK | Flags::FIN, 1, 1, 4_000, 13);
    assert_eq!(talk.acked(), 15);
    let end = &talk.server.ends()[0];
    assert_eq!((end.received, end.outcome), (13, Outcome::Done));
}

/// A pure acknowledgement that is old says nothing: not that a segment is missing, nor that the
/// window has closed.
#[test]
fn an_old_acknowledgement_is_no_duplicate_and_shows_no_window() {
    let mut talk = Talk::new(sender(8_000));
    talk.say(Flags::ACK, 1, 1, 4_000, 0);
    let more = talk.say(Flags::ACK, 1, 1_461, 6_000, 0);
    assert!(more.iter().any(|s| s.payload_len > 0), "{more:?}");
    let before = talk.said.len();
    for _ in 0..4 {
        talk.say(Flags::ACK, 1, 1, 0, 0);
    }
    assert!(talk.said[before..].is_empty(), "{:?}", &talk.said[before..]);
    let more = talk.say(Flags::ACK, 1, 2_921, 6_000, 0);
    assert!(more.iter().any(|s| s.payload_len > 0), "{more:?}");
}

/// More than the largest window behind, it may be anybody's (RFC 5961 section 5): answered, not
/// taken.
#[test]
fn an_acknowledgement_from_before_any_window_spoils_its_segment() {
    let mut talk = Talk::new(sender(20_000));
    let mut ack = 1;
    while ack < 20_002 {
        let got = talk.say(Flags::ACK, 1, ack, 4_000, 0);
        let end = got.iter().map(|s| s.end_seq().since(talk.isn)).max().expect("the server goes on");
        assert!(end > ack, "{got:?}");
        ack = end;
    }
    talk.say(Flags::ACK, 1, ack, 4_000, 0);
    let answer = talk.say(Flags::ACK, 1, ack - 4_001, 4_000, 5);
    assert!(answer.iter().any(|s| s.ack == ISN + 1), "{answer:?}");
    assert_eq!((talk.acked(), talk.server.ends()[0].received), (1, 0));
    talk.say(Flags::ACK, 1, ack - 4_000, 4_000, 5);
    assert_eq!((talk.acked(), talk.server.ends()[0].received), (6, 5));
}

/// A copy that comes late, with an old timestamp, is nothing to a host that has closed: its reset
/// has the number that the segment acknowledged (RFC 9293 section 3.10.7.1), or nobody could take
/// it.
#[test]
fn a_closed_port_answers_with_the_number_that_it_was_told() {
    let mut talk = Talk::new(sender(183));
    talk.say(Flags::ACK, 1, 1, 4_000, 0);
    talk.stamp += 1;
    talk.say(Flags::ACK | Flags::FIN, 1, 185, 4_000, 13);
    assert_eq!((talk.acked(), talk.server.ends()[0].outcome), (15, Outcome::Done));
    talk.listen(Duration::from_secs(60));
    talk.stamp -= 1;
    let answer = talk.say(Flags::ACK, 1, 100, 4_000, 13);
    let numbers: Vec<_> = answer.iter().map(|s| (s.flags.rst(), s.seq)).collect();
    assert_eq!(numbers, [(true, talk.isn + 100)]);
}
