//! Hosts that say what a script of bytes makes them say: mostly what fits, sometimes anything.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farlink_wire::{
    FARLINK_DATA, FARLINK_EXIDS, Flags, Gso, Offload, Parsed, SegmentHeader, SeqNum, build, finish_checksums,
    parse,
};

use farlink_wire::xcp::{HeaderTime, XcpFields, sum_option};

use super::source::Source;
use super::truth::content;
use super::world::{Out, is_a};

/// What a host knows of its side of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    pub isn: u32,
    /// The next number that it uses.
    pub nxt: u32,
    /// What it has got, in order as far as it cares: its usual acknowledgement.
    pub got: u32,
    /// What it has been told of its own.
    pub acked: u32,
    clock: u32,
    heard_clock: u32,
    /// Its SYN offered timestamps, and so did the other's.
    stamps: bool,
    offers_stamps: bool,
}

/// One 4-tuple: side 0 is host a.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub v6: bool,
    pub port: u16,
    pub sides: [Side; 2],
}

pub const SERVER_PORT: u16 = 80;
/// Connections to this port are refused by a rule.
pub const REFUSED_PORT: u16 = 25;

/// A packet and how it is handed in.
#[derive(Clone, Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub offload: Offload,
}

pub fn address(v6: bool, side: usize) -> IpAddr {
    let n = side as u8 + 1;
    if v6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, n).into()
    }
}

/// The Farlink option in any of its forms, with any body; or none.
fn farlink(from: &mut Source<'_>, out: &mut Vec<u8>) {
    let kind = from.u8();
    let form = FARLINK_EXIDS[usize::from(kind) % 3];
    let body = match kind >> 4 & 3 {
        0 => Vec::new(),
        1 => {
            let mut body = vec![0x13];
            body.extend_from_slice(&from.u32().to_be_bytes());
            body.extend_from_slice(&from.u16().to_be_bytes());
            body
        }
        2 => {
            // A hello, perhaps with a window and what is said of the packet; or frames with a far
            // acknowledgement and windows.
            let mut body = vec![if form == FARLINK_DATA { 0x24 } else { 0x68 }];
            body.extend_from_slice(&from.u32().to_be_bytes());
            if form == FARLINK_DATA {
                body.push(0x34);
            }
            let last = from.u32().to_be_bytes();
            body.extend_from_slice(&last);
            if form != FARLINK_DATA && kind & 0x40 != 0 {
                body.extend_from_slice(&[0x32, last[1], last[2]]);
            }
            if form != FARLINK_DATA && kind & 0x80 != 0 {
                body.extend_from_slice(&[0xb1, last[3]]);
            }
            body
        }
        _ => {
            let n = usize::from(kind >> 6) * 5;
            from.bytes(n).to_vec()
        }
    };
    push_option(out, &build::farlink_option(form, &body).unwrap_or_default());
    if kind & 0x38 == 0x08 {
        explicit(from, out);
    }
}

/// What a segment says of its speed, or an acknowledgement of wishes (XCP).
fn explicit(from: &mut Source<'_>, out: &mut Vec<u8>) {
    let kind = from.u8();
    // A time, or a change of bytes a second, of any size.
    let word = |from: &mut Source<'_>| from.u32() >> (kind & 31);
    if kind & 0x80 == 0 {
        return push_option(out, &sum_option(word(from)));
    }
    let (spacing, rtt) = (HeaderTime(word(from)), HeaderTime(word(from)));
    let sign = if kind & 0x40 == 0 { 1 } else { -1 };
    let delta_bytes_per_s = word(from).cast_signed().wrapping_mul(sign);
    push_option(out, &XcpFields { spacing, rtt, delta_bytes_per_s }.option());
}

fn push_option(out: &mut Vec<u8>, option: &[u8]) {
    if out.len() + option.len() <= 40 {
        out.extend_from_slice(option);
    }
}

impl Pair {
    pub fn new(v6: bool, port: u16) -> Self {
        // The first numbers wrap early.
        let side = |isn: u32| Side { isn, nxt: isn, got: 0, acked: isn, clock: isn, ..Side::default() };
        Self { v6, port, sides: [side(0xffff_f000), side(0x7fff_f000)] }
    }

    fn ports(&self) -> [u16; 2] {
        [40_000 + self.port, if self.port == 3 { REFUSED_PORT } else { SERVER_PORT }]
    }

    /// Writes a segment of this side, with right checksums.
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        side: usize,
        seq: u32,
        ack: u32,
        flags: Flags,
        window: u16,
        urgent: u16,
        options: &[u8],
        payload: &[u8],
        shape: u8,
    ) -> Packet {
        let ports = self.ports();
        let header = SegmentHeader {
            src: address(self.v6, side),
            dst: address(self.v6, 1 - side),
            src_port: ports[side],
            dst_port: ports[1 - side],
            ttl: 64 - (shape & 1),
            traffic_class: if shape & 2 != 0 { 3 } else { 0 },
            flow_label: u32::from(shape),
            ip_id: seq as u16,
            dont_fragment: shape & 4 == 0,
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags,
            window,
            urgent,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let (head, mut offload) = header.write_with_options(payload.len(), options).unwrap();
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(payload);
        // Complete, or left partial as by a host on the same machine.
        if shape & 8 == 0 {
            finish_checksums(&mut bytes, &offload);
            offload = Offload::default();
        }
        Packet { bytes, offload }
    }

    /// So much of what this side sends has gone round the gateway, and has arrived.
    pub fn jump(&mut self, side: usize, by: u32) {
        let own = &mut self.sides[side];
        own.nxt = own.nxt.wrapping_add(by);
        own.acked = own.nxt;
        self.sides[1 - side].got = self.sides[side].nxt;
    }

    fn stamp(&mut self, side: usize, options: &mut Vec<u8>, older: u32) {
        let s = &mut self.sides[side];
        s.clock = s.clock.wrapping_add(1);
        let (val, ecr) = (s.clock.wrapping_sub(older), s.heard_clock);
        let mut option = vec![8, 10];
        option.extend_from_slice(&val.to_be_bytes());
        option.extend_from_slice(&ecr.to_be_bytes());
        push_option(options, &option);
    }

    fn syn_options(&mut self, side: usize, from: &mut Source<'_>) -> Vec<u8> {
        let choice = from.u8();
        let mut o = Vec::new();
        if choice & 1 == 0 {
            let mss = [1460u16, 536, 88, 8960][usize::from(choice >> 1 & 3)];
            push_option(&mut o, &[&[2, 4][..], &mss.to_be_bytes()].concat());
        }
        if choice & 8 == 0 {
            push_option(&mut o, &[4, 2]);
        }
        if choice & 0x10 == 0 {
            push_option(&mut o, &[3, 3, [7, 0, 14, 3][usize::from(choice >> 5 & 3)]]);
        }
        self.sides[side].offers_stamps = choice & 0x80 != 0;
        if choice & 0x80 != 0 {
            self.stamp(side, &mut o, 0);
        }
        let more = from.u8();
        if more & 1 != 0 {
            farlink(from, &mut o);
        }
        match more >> 1 & 15 {
            1 => push_option(&mut o, &[34, 2]),
            2 => push_option(&mut o, &[19, 18, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            3 => push_option(&mut o, &[30, 4, 0, 1]),
            4 => push_option(&mut o, &[77, 3, 9]),
            5 => push_option(&mut o, &[9, 0]),
            _ => {}
        }
        o
    }

    /// A SYN of host a, or the SYN-ACK of host b; `fresh`: with a new ISN.
    pub fn syn(&mut self, side: usize, answer: bool, from: &mut Source<'_>) -> Packet {
        let shape = from.u8();
        if shape & 0x10 == 0 {
            let s = &mut self.sides[side];
            let step = if shape & 0x20 != 0 { from.u32() } else { 100_000 };
            if s.nxt != s.isn {
                s.isn = s.nxt.wrapping_add(step);
            }
        }
        let options = self.syn_options(side, from);
        let mut flags = if answer { Flags::SYN | Flags::ACK } else { Flags::SYN };
        if shape & 0x40 != 0 {
            flags = flags | Flags::ECE | if answer { Flags::NONE } else { Flags::CWR };
        }
        if shape & 0x80 != 0 {
            flags = flags | Flags(from.u16() & Flags::MASK);
        }
        let isn = self.sides[side].isn;
        let payload =
            if shape & 0xc0 == 0xc0 { run(isn.wrapping_add(1), from.below(300), 0) } else { vec![] };
        let other = self.sides[1 - side];
        let window = if shape & 0xa0 == 0xa0 { from.u16() } else { 65_535 };
        let p = self.write(
            side,
            isn,
            other.isn.wrapping_add(1),
            flags,
            window,
            0,
            &options,
            &payload,
            shape & 15,
        );
        let s = &mut self.sides[side];
        s.nxt = isn.wrapping_add(1).wrapping_add(payload.len() as u32);
        s.acked = isn.wrapping_add(1);
        s.got = other.isn.wrapping_add(1);
        if answer {
            let agreed = s.offers_stamps && other.offers_stamps;
            self.sides.iter_mut().for_each(|s| s.stamps = agreed);
            self.sides[1 - side].got = isn.wrapping_add(1);
        }
        p
    }

    /// Any other segment. Zeros are the next 100 bytes of the stream with the usual
    /// acknowledgement.
    pub fn segment(&mut self, side: usize, from: &mut Source<'_>) -> Packet {
        let [place, kind, shape] = [from.u8(), from.u8(), from.u8()];
        let (own, other) = (self.sides[side], self.sides[1 - side]);
        let len = match kind & 7 {
            0 => 100,
            1 => 0,
            2 => 1,
            3 => 1460,
            4 => from.below(3_000),
            5 => from.below(65_000),
            6 => 0,
            _ => 20_000,
        };
        let seq = match place & 7 {
            0 | 1 => own.nxt,
            2 => own.nxt.wrapping_sub(u32::from(from.u16())),
            3 => own.nxt.wrapping_add(u32::from(from.u16())),
            4 => own.nxt.wrapping_sub(1),
            5 => own.acked,
            6 => own.acked.wrapping_sub(1),
            _ => from.u32(),
        };
        let ack = match place >> 3 & 7 {
            0 | 1 => own.got,
            2 => other.nxt,
            3 => own.got.wrapping_sub(u32::from(from.u16())),
            4 => own.got.wrapping_add(u32::from(from.u16())),
            5 => own.got.wrapping_add(1),
            6 => other.isn.wrapping_add(1),
            _ => from.u32(),
        };
        let flags = match kind >> 3 & 15 {
            1 => Flags::ACK | Flags::FIN,
            2 => Flags::RST,
            3 => Flags::ACK | Flags::RST,
            4 => Flags::ACK | Flags::URG,
            5 => Flags::ACK | Flags::PSH | Flags::FIN,
            6 => Flags(from.u16() & Flags::MASK),
            7 => Flags::ACK | Flags::ECE,
            8 => Flags::ACK | Flags::CWR,
            _ => Flags::ACK | Flags::PSH,
        };
        let window = match shape >> 4 & 3 {
            1 => 0,
            2 => from.u16(),
            _ => 65_535,
        };
        let urgent = if flags.urg() { u16::from(from.u8()) << (shape & 3) } else { 0 };
        let mut options = vec![1, 1, 1];
        let extra = if shape & 0x40 != 0 { from.u8() } else { 0 };
        if own.stamps != (extra & 1 != 0) {
            let older = if extra & 2 != 0 { from.u32() >> (extra & 0x1c) } else { 0 };
            self.stamp(side, &mut options, older);
        }
        for _ in 0..extra >> 5 & 3 {
            let start = own.got.wrapping_add(u32::from(from.u16()));
            let end = start.wrapping_add(u32::from(from.u16()));
            push_option(&mut options, &[&[5, 10][..], &start.to_be_bytes(), &end.to_be_bytes()].concat());
        }
        if extra & 0x80 != 0 {
            farlink(from, &mut options);
        }
        let len = if flags.syn() { 0 } else { len };
        let payload = run(seq, len, usize::from(kind >> 7));
        let mut p = self.write(side, seq, ack, flags, window, urgent, &options, &payload, shape & 15);
        if len > 1460 || shape & 0x80 != 0 && len > 0 {
            let sizes = [1448u16, 536, 8948, 1, 76, 1460, 65_535, 100];
            let size = if shape & 0x80 != 0 { sizes[from.below(8)] } else { 1448 };
            p.offload.gso = if self.v6 { Gso::Tcp6 } else { Gso::Tcp4 };
            p.offload.gso_size = size;
        }
        let end = seq.wrapping_add(len as u32).wrapping_add(u32::from(flags.fin()));
        let s = &mut self.sides[side];
        if matches!(place & 7, 0..=3) && SeqNum(end).after(SeqNum(s.nxt)) {
            s.nxt = end;
        }
        p
    }

    /// A host gets what the gateway has handed out.
    pub fn receive(pairs: &mut [Self], p: &Out) {
        let Parsed::Tcp(s) = parse(&p.bytes) else { return };
        let to = usize::from(is_a(s.ip.src));
        let ports = |pair: &Self| [pair.ports()[1 - to], pair.ports()[to]] == [s.src_port, s.dst_port];
        let Some(pair) = pairs.iter_mut().find(|p| p.v6 != s.ip.is_v4() && ports(p)) else { return };
        let host = &mut pair.sides[to];
        if s.flags.ack() {
            host.acked = SeqNum(host.acked).max(s.ack).0;
        }
        if s.seq.before_eq(SeqNum(host.got)) && s.end_seq().after(SeqNum(host.got)) {
            host.got = s.end_seq().0;
        }
        if let Some(t) = s.options.timestamps {
            host.heard_clock = t.val;
        }
    }
}

/// A datagram of UDP of this side. It has no checksum (RFC 768), or one that nobody looks at.
pub fn datagram(v6: bool, side: usize, n: u8, payload_bytes: usize) -> Packet {
    let [src, dst] = [side, 1 - side].map(|side| address(v6, side));
    let udp_bytes = (8 + payload_bytes) as u16;
    let mut bytes = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut bytes = vec![0x45, 0];
            bytes.extend((20 + udp_bytes).to_be_bytes());
            bytes.extend([0, n, 0x40, 0, 64, 17, 0, 0]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            let check = !super::source::naive_sum(&bytes);
            bytes[10..12].copy_from_slice(&check.to_be_bytes());
            bytes
        }
        (src, dst) => {
            let octets = |address| if let IpAddr::V6(a) = address { a.octets() } else { [0; 16] };
            let mut bytes = vec![0x60, 0, 0, n];
            bytes.extend(udp_bytes.to_be_bytes());
            bytes.extend([17, 64]);
            bytes.extend(octets(src));
            bytes.extend(octets(dst));
            bytes
        }
    };
    bytes.extend([0x13, 0x8c, 0x13, 0x8c]);
    bytes.extend(udp_bytes.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(bytes.len() + payload_bytes, n);
    Packet { bytes, offload: Offload::default() }
}

/// Bytes of the stream.
pub fn run(seq: u32, len: usize, variant: usize) -> Vec<u8> {
    (0..len as u32).map(|i| content(seq.wrapping_add(i), variant)).collect()
}
