//! What unit tests of hosts have in common.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use farlink_wire::{Duration, Flags, Instant, SegmentHeader, SeqNum, TcpSegment};

use super::config::LinuxConfig;
use super::conn::Conn;
use crate::content::Endpoint;
use crate::packet::{finish, tcp};

pub(crate) fn endpoint(last: u8, port: u16) -> Endpoint {
    (Ipv4Addr::new(10, 0, 0, last).into(), port)
}

pub(crate) fn endpoint_v6(last: u16, port: u16) -> Endpoint {
    (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).into(), port)
}

/// A segment of so many payload bytes.
pub(crate) fn data_segment(src: Endpoint, dst: Endpoint, payload_len: usize) -> Vec<u8> {
    let header = SegmentHeader {
        src: src.0,
        dst: dst.0,
        src_port: src.1,
        dst_port: dst.1,
        ttl: 64,
        traffic_class: 0,
        flow_label: 0,
        ip_id: 1,
        dont_fragment: false,
        seq: SeqNum(1),
        ack: SeqNum(1),
        flags: Flags::ACK,
        window: 1000,
        urgent: 0,
        timestamps: None,
        sack: &[],
        farlink: None,
        marks_padding: false,
        xcp: None,
        xcp_sum: None,
    };
    let mut packet = header.write(payload_len).expect("few options").0.to_vec();
    packet.extend((0..payload_len).map(|n| n as u8));
    finish(&mut packet);
    packet
}

/// What becomes of a packet between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Pass,
    Lose,
    /// It arrives later by this.
    Late(Duration),
    /// It is larger than this, and a router says so.
    TooBig(u32),
}

/// Says what becomes of a segment of host 0 or 1.
type Judge = Box<dyn FnMut(Instant, usize, &TcpSegment) -> Fate>;

/// Two connections with a path between them. What the first host sends is there without end, and
/// the second reads it at once.
pub(super) struct Pair {
    pub now: Instant,
    pub ends: [Conn; 2],
    pub judge: Judge,
    /// Segments with payload or FIN that host 0 sent, with their times.
    pub sent: Vec<(Instant, u32, usize)>,
    pub resets: usize,
    wires: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
}

/// Delay of the path, each way.
pub(super) const ONE_WAY: Duration = Duration::from_millis(50);

impl Pair {
    /// Connected, and nothing sent yet.
    pub fn open(config: &LinuxConfig) -> Self {
        let (a, b) = (endpoint(1, 1000), endpoint(2, 80));
        let mut client = Conn::connect(config.clone(), a, b, 77);
        let syn = client.next_packet(Instant::ZERO, &|_, _| ()).expect("a SYN");
        let server = Conn::accept(config.clone(), b, a, 99, &tcp(&syn).expect("a SYN"));
        let mut pair = Self {
            now: Instant::ZERO,
            ends: [client, server],
            judge: Box::new(|_, _, _| Fate::Pass),
            sent: Vec::new(),
            resets: 0,
            wires: BTreeMap::new(),
            count: 0,
        };
        pair.run(Duration::from_secs(1));
        assert!(pair.ends.iter().all(Conn::is_open));
        pair
    }

    fn flush(&mut self) {
        for from in 0..2 {
            while let Some(packet) = self.ends[from].next_packet(self.now, &|_, into| into.fill(7)) {
                let s = tcp(&packet).expect("TCP");
                self.resets += usize::from(s.flags.rst());
                if from == 0 && s.seq_len() > 0 {
                    self.sent.push((self.now, s.seq.0, s.payload_len));
                }
                let after = match (self.judge)(self.now, from, &s) {
                    Fate::Pass => ONE_WAY,
                    Fate::Late(by) => ONE_WAY + by,
                    Fate::TooBig(mtu) if packet.len() as u32 > mtu && s.ip.dont_fragment => {
                        self.ends[from].hear_of_path(self.now, mtu, s.seq);
                        continue;
                    }
                    Fate::TooBig(_) => ONE_WAY,
                    Fate::Lose => continue,
                };
                self.count += 1;
                self.wires.insert((self.now + after, self.count), (1 - from, packet));
            }
        }
    }

    /// An intermediate acknowledgement of all that host 0 has sent reaches it (Reynolds 3.4.5).
    /// Where that ends.
    pub fn tell_that_all_is_kept(&mut self) -> u32 {
        let (ours, theirs) = (endpoint(1, 1000), endpoint(2, 80));
        let ack = SeqNum(self.ends[0].isn()) + 1 + self.ends[0].tx.nxt as u32;
        let mut packet = data_segment(theirs, ours, 0);
        let at = tcp(&packet).expect("TCP").tcp_offset();
        packet[at + 8..at + 12].copy_from_slice(&ack.0.to_be_bytes());
        packet[at + 13] |= Flags::URG.0 as u8;
        finish(&mut packet);
        let segment = tcp(&packet).expect("TCP");
        self.ends[0].receive(self.now, &segment, &packet);
        ack.0
    }

    /// A segment that begins at this byte reaches host 1, which reads nothing.
    pub fn give(&mut self, offset: u32, payload_len: usize) {
        let (ours, theirs) = (endpoint(1, 1000), endpoint(2, 80));
        let mut packet = data_segment(ours, theirs, payload_len);
        let at = tcp(&packet).expect("TCP").tcp_offset();
        let seq = SeqNum(self.ends[0].isn()) + 1 + offset;
        let ack = SeqNum(self.ends[1].isn()) + 1;
        packet[at + 4..at + 8].copy_from_slice(&seq.0.to_be_bytes());
        packet[at + 8..at + 12].copy_from_slice(&ack.0.to_be_bytes());
        finish(&mut packet);
        let segment = tcp(&packet).expect("TCP");
        self.ends[1].receive(self.now, &segment, &packet);
    }

    /// For so long.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.flush();
            let wire = self.wires.keys().next().map(|(at, _)| *at);
            let own = self.ends.iter().map(Conn::deadline);
            let next = own.chain([wire]).flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.wires.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to, packet) = entry.remove();
                self.ends[to].receive(self.now, &tcp(&packet).expect("TCP"), &packet);
                if to == 1 {
                    self.ends[to].rx.read(self.now, &mut Vec::new());
                }
                self.flush();
            }
            let now = self.now;
            self.ends.iter_mut().for_each(|c| c.timeout(now));
        }
        self.now = end;
    }
}
