//! What boxes on the way do to TCP: they drop handshakes for an option that they do not know, take
//! it out, write options anew, translate sequence numbers, make the MSS smaller. The simulator has
//! them on its wires, the laboratory in a namespace of their own. Without state: what is done to a
//! packet depends on the packet.

use farlink_wire::options::{KIND_EXPERIMENT, KIND_MSS, KIND_SACK, OptionWalk};
use farlink_wire::tcp::TCP_HEADER_BYTES;
use farlink_wire::{Flags, TcpSegment};

use crate::packet::{finish, hash, tcp};

/// What a box does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interference {
    /// Drops SYNs with an experimental option.
    DropSyn,
    /// Drops SYN-ACKs with one.
    DropAnswer,
    /// Drops all other segments with one.
    DropData,
    /// Drops all segments with one.
    DropAll,
    /// Takes such options out of SYNs.
    StripSyn,
    /// Out of SYN-ACKs.
    StripAnswer,
    /// Out of all other segments.
    StripData,
    /// Out of all.
    StripAll,
    /// Writes all options anew, in another order and with other padding.
    Pad,
    /// Translates the sequence numbers of both hosts, in SACK blocks, too.
    Randomise,
    /// The same, and forgets SACK blocks.
    RandomiseNotSack,
    /// Makes the MSS of SYNs and answers 1,000 at most.
    Clamp,
}

/// The MSS that [`Interference::Clamp`] leaves.
const CLAMP_MSS: u16 = 1_000;

impl Interference {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::DropSyn,
        Self::DropAnswer,
        Self::DropData,
        Self::DropAll,
        Self::StripSyn,
        Self::StripAnswer,
        Self::StripData,
        Self::StripAll,
        Self::Pad,
        Self::Randomise,
        Self::RandomiseNotSack,
        Self::Clamp,
    ];

    /// Those behind which a segment says the same of its host.
    pub const SAYS_THE_SAME: [Self; 9] = [
        Self::DropSyn,
        Self::DropAnswer,
        Self::DropData,
        Self::DropAll,
        Self::StripSyn,
        Self::StripAnswer,
        Self::StripData,
        Self::StripAll,
        Self::Pad,
    ];

    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DropSyn => "syn-drop",
            Self::DropAnswer => "syn-ack-drop",
            Self::DropData => "data-drop",
            Self::DropAll => "all-drop",
            Self::StripSyn => "syn-strip",
            Self::StripAnswer => "syn-ack-strip",
            Self::StripData => "data-strip",
            Self::StripAll => "strip",
            Self::Pad => "pad",
            Self::Randomise => "isn",
            Self::RandomiseNotSack => "isn-not-sack",
            Self::Clamp => "clamp",
        }
    }

    /// What becomes of a packet with right checksums; `None`: nothing.
    #[must_use]
    pub fn pass(self, packet: Vec<u8>) -> Option<Vec<u8>> {
        let Some(s) = tcp(&packet) else { return Some(packet) };
        let (is_syn, is_answer) =
            (s.flags.syn() && !s.flags.ack(), s.flags.contains(Flags::SYN | Flags::ACK));
        let has_option = options(&packet, &s).iter().any(|(kind, _)| *kind == KIND_EXPERIMENT);
        let is_handshake = is_syn || is_answer;
        Some(match self {
            Self::DropSyn if is_syn && has_option => return None,
            Self::DropAnswer if is_answer && has_option => return None,
            Self::DropData if !is_handshake && has_option => return None,
            Self::DropAll if has_option => return None,
            Self::StripSyn if is_syn => strip(packet, &s),
            Self::StripAnswer if is_answer => strip(packet, &s),
            Self::StripData if !is_handshake => strip(packet, &s),
            Self::StripAll => strip(packet, &s),
            Self::Pad => pad(packet, &s),
            Self::Randomise => translate(packet, &s, true),
            Self::RandomiseNotSack => translate(packet, &s, false),
            Self::Clamp if is_handshake => clamp(packet, &s),
            _ => packet,
        })
    }
}

/// What passes a box on its way to whom it meddles with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Towards {
    /// Both.
    #[default]
    Both,
    /// In a scenario the server; in a plan the second host.
    Server,
    /// In a scenario the client; in a plan the first host.
    Client,
}

impl Towards {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Both, Self::Server, Self::Client];

    /// What follows the name of a box in scenarios.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Both => "",
            Self::Server => "-to-server",
            Self::Client => "-to-client",
        }
    }

    /// Whether this goes there. Servers have the smaller port.
    fn has(self, s: &TcpSegment) -> bool {
        match self {
            Self::Both => true,
            Self::Server => s.dst_port < s.src_port,
            Self::Client => s.src_port < s.dst_port,
        }
    }
}

/// A box: what it does, and with what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meddler {
    does: Interference,
    towards: Towards,
}

impl Meddler {
    /// What becomes of a packet with right checksums; `None`: nothing.
    #[must_use]
    pub fn pass(self, packet: Vec<u8>) -> Option<Vec<u8>> {
        match tcp(&packet) {
            Some(s) if self.towards.has(&s) => self.does.pass(packet),
            _ => Some(packet),
        }
    }
}

impl std::str::FromStr for Meddler {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let towards = Towards::ALL.into_iter().rev().find(|to| name.ends_with(to.suffix()));
        let towards = towards.unwrap_or_default();
        let does = name.strip_suffix(towards.suffix()).unwrap_or(name);
        let all = Interference::ALL;
        let found = all.into_iter().find(|i| i.name() == does);
        // Who translates one direction alone breaks every connection.
        let translates =
            |i: &Interference| matches!(i, Interference::Randomise | Interference::RandomiseNotSack);
        match found {
            Some(does) if towards == Towards::Both || !translates(&does) => Ok(Self { does, towards }),
            Some(_) => Err(format!("the box `{does}` meddles with both directions")),
            None => {
                let names = all.map(Interference::name).join(", ");
                Err(format!(
                    "no box `{name}`; there are {names}, most of them with `-to-server` and `-to-client`, too"
                ))
            }
        }
    }
}

/// Kinds and bodies of the options, without padding.
fn options(packet: &[u8], s: &TcpSegment) -> Vec<(u8, Vec<u8>)> {
    let area = &packet[s.tcp_offset() + TCP_HEADER_BYTES..s.payload_offset];
    OptionWalk::new(area).map(|raw| (raw.kind, raw.body.to_vec())).collect()
}

/// The packet with these options in place of its own, the end of the list as padding.
fn with_options(packet: &[u8], s: &TcpSegment, options: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut area = Vec::new();
    for (kind, body) in options {
        area.extend([*kind, body.len() as u8 + 2]);
        area.extend(body);
    }
    area.resize(area.len().next_multiple_of(4), 0);
    let tcp_at = s.tcp_offset();
    let mut out = packet[..tcp_at + TCP_HEADER_BYTES].to_vec();
    out[tcp_at + 12] = out[tcp_at + 12] & 0x0f | (((TCP_HEADER_BYTES + area.len()) / 4) as u8) << 4;
    out.extend(area);
    out.extend(&packet[s.payload_offset..]);
    let (len, at) = if s.ip.is_v4() { (out.len(), 2) } else { (out.len() - 40, 4) };
    out[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
    finish(&mut out);
    out
}

/// Without experimental options.
fn strip(packet: Vec<u8>, s: &TcpSegment) -> Vec<u8> {
    let mut kept = options(&packet, s);
    kept.retain(|(kind, _)| *kind != KIND_EXPERIMENT);
    with_options(&packet, s, &kept)
}

/// The options from the last to the first.
fn pad(packet: Vec<u8>, s: &TcpSegment) -> Vec<u8> {
    let mut all = options(&packet, s);
    all.reverse();
    with_options(&packet, s, &all)
}

fn clamp(packet: Vec<u8>, s: &TcpSegment) -> Vec<u8> {
    let mut all = options(&packet, s);
    for (_, body) in all.iter_mut().filter(|(kind, body)| *kind == KIND_MSS && body.len() == 2) {
        let mss = u16::from_be_bytes([body[0], body[1]]).min(CLAMP_MSS);
        body.copy_from_slice(&mss.to_be_bytes());
    }
    with_options(&packet, s, &all)
}

/// The host that sends has another sequence space behind the box than before it; so has the other
/// one, and each is told of its own.
fn translate(mut packet: Vec<u8>, s: &TcpSegment, sack: bool) -> Vec<u8> {
    // A name for each direction, the same from both sides of the box.
    let name = |src: (std::net::IpAddr, u16), dst: (std::net::IpAddr, u16)| {
        hash(0x5eed, format!("{src:?}{dst:?}").as_bytes()) as u32
    };
    let (src, dst) = ((s.ip.src, s.src_port), (s.ip.dst, s.dst_port));
    let (own, other) = (name(src, dst), name(dst, src));
    let at = s.tcp_offset();
    let add = |packet: &mut [u8], at: usize, n: u32| {
        let old = u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        packet[at..at + 4].copy_from_slice(&old.wrapping_add(n).to_be_bytes());
    };
    add(&mut packet, at + 4, own);
    if s.flags.ack() {
        add(&mut packet, at + 8, other.wrapping_neg());
    }
    if sack {
        let area_at = at + TCP_HEADER_BYTES;
        let area = packet[area_at..s.payload_offset].to_vec();
        for raw in OptionWalk::new(&area).filter(|raw| raw.kind == KIND_SACK) {
            for edge in 0..raw.body.len() / 4 {
                add(&mut packet, area_at + raw.offset + 2 + edge * 4, other.wrapping_neg());
            }
        }
    }
    finish(&mut packet);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::{Pool, SackBlock, SegmentHeader, SeqNum, Timestamps, build};
    use std::net::IpAddr;

    fn segment(v6: bool, is_back: bool, (seq, ack): (u32, u32)) -> Vec<u8> {
        let names = if v6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
        let [a, b]: [IpAddr; 2] = names.map(|s| s.parse().unwrap());
        let (src, dst) = if is_back { ((b, 80), (a, 4000)) } else { ((a, 4000), (b, 80)) };
        let sack = [SackBlock { start: SeqNum(ack) + 100, end: SeqNum(ack) + 200 }];
        let header = SegmentHeader {
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags: Flags::ACK,
            ttl: 64,
            timestamps: Some(Timestamps { val: 7, ecr: 8 }),
            sack: &sack,
            ..SegmentHeader::between(src, dst)
        };
        let packet = build::packet(&mut Pool::new(1 << 20), &header, None, b"payload").unwrap();
        let mut bytes = packet.bytes().to_vec();
        finish(&mut bytes);
        bytes
    }

    fn seen(packet: Vec<u8>) -> TcpSegment {
        tcp(&packet).expect("it is TCP")
    }

    #[test]
    fn what_is_translated_there_is_translated_back() {
        for v6 in [false, true] {
            let there = segment(v6, false, (1_000, u32::MAX - 50));
            let behind = seen(Interference::Randomise.pass(there.clone()).unwrap());
            assert_ne!(behind.seq, SeqNum(1_000));
            // What host b acknowledges behind the box is what host a has sent before it.
            let back = segment(v6, true, (behind.ack.0, behind.seq.0));
            let before = seen(Interference::Randomise.pass(back).unwrap());
            assert_eq!((before.seq, before.ack), (SeqNum(u32::MAX - 50), SeqNum(1_000)));
            assert_eq!(before.options.sack[0].start, SeqNum(1_100));
            let left = seen(Interference::RandomiseNotSack.pass(there).unwrap());
            assert_eq!(left.options.sack[0].start, SeqNum(49));
        }
    }

    #[test]
    fn options_are_written_anew_and_say_the_same() {
        for v6 in [false, true] {
            let packet = segment(v6, false, (1, 2));
            let padded = Interference::Pad.pass(packet.clone()).unwrap();
            assert!(padded.ends_with(b"payload") && padded != packet);
            let (was, is) = (seen(packet), seen(padded));
            assert_eq!((was.options.timestamps, was.options.sack), (is.options.timestamps, is.options.sack));
        }
    }
}
