//! What the hosts have said, and whether what the gateway hands out says no more than that in their
//! names. The hosts here say anything, true or not: so a check asks whether a word was said at all,
//! never whether it made sense.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use farlink_wire::{
    Flags, IcmpKind, Instant, Offload, PacketBuf, Parsed, Pool, Reassembler, ReassemblyLimits, SeqNum,
    ShimProtocols, TcpSegment, ip, parse, parse_with, segment, verify_checksums,
};

use super::spans::Spans;
use super::world::Out;

type End = (IpAddr, u16);

/// All that one host has said on one 4-tuple, to one other, over all connections: their numbers
/// cannot tell for certain which of several connections a late segment belongs to.
#[derive(Debug, Default)]
struct Said {
    /// Sequence numbers used, SYN and FIN included.
    sent: Spans,
    /// Payload by variant (see `content`): all, and what came before the gateway had made up its
    /// mind.
    payload: [Spans; 2],
    takeable: [Spans; 2],
    /// Numbers whose content is decided: acknowledged by the gateway, or sent on by it.
    decided: Spans,
    acked_by_gateway: Option<u32>,
    /// Acknowledgement numbers given.
    acks: BTreeSet<u32>,
    /// It has acknowledged what the other one never sent.
    lied: bool,
    /// SYNs by sequence number and kind: came in, may go out once more, went out.
    syns: BTreeMap<(u32, u16), [u32; 3]>,
    /// Of these the last that went out had Farlink's option.
    with_option: BTreeSet<(u32, u16)>,
    fins: BTreeSet<u32>,
    /// Ends of urgent data; urgent pointers of zero by the segment's number.
    urgent_ends: BTreeSet<u32>,
    urgent_zeros: BTreeSet<u32>,
    reset: bool,
    /// Timestamps it has sent; and those that the other one has echoed, which it sent round the
    /// gateway perhaps.
    stamps: BTreeSet<u32>,
    /// It is, or has spoken like, a gateway.
    marked: bool,
    /// Acknowledgements in its name that ask the other host's side for a gateway.
    asked: u32,
}

/// Such acknowledgements in a connection whose SYN has left without the question (DEVIATIONS).
const ASKS_MAX: u32 = 8;

/// What is known.
#[derive(Debug, Default)]
pub struct Truth {
    said: BTreeMap<(End, End), Said>,
    /// Every packet handed in, without the fields that a router changes.
    given: BTreeSet<Vec<u8>>,
    /// Fragments that the gateway has cut anew, put together; and of which packets, by addresses
    /// and number.
    made: Option<Reassembler>,
    cut: BTreeSet<(IpAddr, IpAddr, u32)>,
    /// Segments handed in with a wrong checksum, or in no state to be judged.
    damaged: BTreeSet<(u32, u16, Vec<u8>)>,
    /// The gateway promises nothing, to nobody.
    pub promises_nothing: bool,
    /// It may tell of outages in intermediate acknowledgements.
    pub tells_iacks: bool,
    /// The gateway has given up custody, or was started with records: it may reset.
    pub may_reset: bool,
    /// It was started with records: it asks hosts for their numbers with the numbers in the
    /// records.
    pub asks: bool,
    pub mtu_max_bytes: u32,
}

/// The byte at a sequence number. Variant 1 is another copy, which contradicts the first
/// everywhere.
pub fn content(seq: u32, variant: usize) -> u8 {
    ((seq.wrapping_mul(31) ^ (seq >> 8).wrapping_mul(7)) as u8) ^ if variant == 0 { 0 } else { 0xff }
}

/// Without what a router changes.
fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut plain = bytes.to_vec();
    let changed: &[usize] = if plain.first().is_some_and(|b| b >> 4 == 4) { &[8, 10, 11] } else { &[7] };
    for i in changed {
        if let Some(b) = plain.get_mut(*i) {
            *b = 0;
        }
    }
    plain
}

/// The same of each packet that it becomes on the wire.
fn on_the_wire(bytes: &[u8], offload: &Offload) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    segment(bytes, offload, &mut |packet| packets.push(plain(packet)));
    packets
}

fn identity(bytes: &[u8], s: &TcpSegment) -> (u32, u16, Vec<u8>) {
    (s.seq.0, s.flags.without(Flags::AE).0, s.payload(bytes).to_vec())
}

fn key(s: &TcpSegment) -> (End, End) {
    ((s.ip.src, s.src_port), (s.ip.dst, s.dst_port))
}

/// Runs of one variant in a payload, as start, length and variant; `None` where some byte is of
/// neither.
fn runs(seq: SeqNum, payload: &[u8]) -> Option<Vec<(u32, u64, usize)>> {
    let mut runs: Vec<(u32, u64, usize)> = Vec::new();
    for (i, byte) in payload.iter().enumerate() {
        let at = seq.0.wrapping_add(i as u32);
        let variant = (0..2).find(|v| content(at, *v) == *byte)?;
        match runs.last_mut() {
            Some((_, len, v)) if *v == variant => *len += 1,
            _ => runs.push((at, 1, variant)),
        }
    }
    Some(runs)
}

impl Truth {
    /// A packet is handed to the gateway, whole (fragments come after the packet that they are made
    /// of).
    ///
    /// `is_away`: a link of the gateway is silent or down, as far as it knows.
    pub fn hear(&mut self, bytes: &[u8], offload: &Offload, is_away: bool) {
        self.given.insert(plain(bytes));
        // It may go on in parts.
        self.given.extend(on_the_wire(bytes, offload));
        let Parsed::Tcp(s) = parse(bytes) else { return };
        if !verify_checksums(bytes, &s, offload) {
            self.damaged.insert(identity(bytes, &s));
            return;
        }
        let (src, dst) = key(&s);
        if s.flags.syn() {
            // Whatever was decided belongs to an older connection perhaps.
            for k in [(src, dst), (dst, src)] {
                let said = self.said.entry(k).or_default();
                said.takeable = said.payload.clone();
                said.decided = Spans::default();
                said.acked_by_gateway = None;
            }
        }
        let other_sent = self.said.entry((dst, src)).or_default();
        // Also who goes on with an old connection and acknowledges the SYN of a new one: it says
        // that all between them came.
        let begins = |h: &Said, seq: u32| h.syns.keys().any(|(syn, _)| *syn == seq);
        let lies = s.flags.ack() && !other_sent.sent.touches(s.ack.0);
        let skips = s.flags.ack()
            && !s.flags.syn()
            && other_sent.sent.run_before(s.ack.0) == 1
            && begins(other_sent, s.ack.0.wrapping_sub(1));
        if let Some(t) = s.options.timestamps {
            other_sent.stamps.insert(t.ecr);
        }
        let said = self.said.entry((src, dst)).or_default();
        said.lied |= lies || (skips && !begins(said, s.seq.0.wrapping_sub(1)));
        said.sent.add(s.seq.0, u64::from(s.seq_len()));
        if s.flags.ack() {
            said.acks.insert(s.ack.0);
        }
        if s.flags.syn() {
            let [came, may_repeat, _] = said.syns.entry(syn_key(&s)).or_default();
            *came += 1;
            // What meets a silent link may leave once more when the link is heard again.
            *may_repeat += u32::from(is_away);
        }
        if s.flags.fin() {
            said.fins.insert(s.end_seq().0.wrapping_sub(1));
        }
        if s.flags.urg() && s.urgent > 0 {
            said.urgent_ends.insert(s.seq.0.wrapping_add(u32::from(s.urgent)));
        } else if s.flags.urg() {
            said.urgent_zeros.insert(s.seq.0);
        }
        said.reset |= s.flags.rst();
        said.stamps.extend(s.options.timestamps.map(|t| t.val));
        said.marked |= s.options.farlink.is_some();
        let first = s.seq + u32::from(s.flags.syn());
        // What is not of the streams has come out of overlapping fragments or raw bytes by chance;
        // see `check_made`.
        for (at, len, v) in runs(first, s.payload(bytes)).unwrap_or_default() {
            said.payload[v].add(at, len);
            for (at, len) in said.decided.missing(at, len) {
                let late = said.acked_by_gateway.map_or(0, |a| {
                    let before = SeqNum(a).diff(SeqNum(at));
                    u64::try_from(before).unwrap_or(0).min(len)
                });
                said.takeable[v].add(at.wrapping_add(late as u32), len - late);
            }
        }
    }

    /// The gateway hands out a packet.
    pub fn check(&mut self, p: &Out) {
        assert!(p.via.0 <= 1 || p.via.0 == u16::MAX, "goes to a TUN that there is not: {:?}", p.via);
        assert!(p.out.0 <= 1 || p.out.0 == u16::MAX, "leaves by an interface that there is not: {:?}", p.out);
        let as_given = self.given.contains(&plain(&p.bytes))
            || on_the_wire(&p.bytes, &p.offload).iter().all(|part| self.given.contains(part));
        let s = match parse(&p.bytes) {
            Parsed::Tcp(s) => s,
            Parsed::Icmp(e) if !as_given => {
                assert!(
                    farlink_wire::icmp::verify_checksum(&p.bytes, &e),
                    "an ICMP error with a wrong checksum"
                );
                assert!(!matches!(
                    e.kind,
                    IcmpKind::FragmentationNeeded { .. } | IcmpKind::PacketTooBig { .. }
                ));
                return;
            }
            Parsed::Fragment(info) if info.protocol == ip::PROTOCOL_TCP => {
                let id = (info.ip.src, info.ip.dst, info.id);
                if !as_given {
                    // What was changed stands in the first fragment; some of the others may be as
                    // they came.
                    self.cut.insert(id);
                }
                if self.cut.contains(&id) {
                    let mut pool = Pool::new(1 << 20);
                    let made = self.made.get_or_insert_with(|| Reassembler::new(ReassemblyLimits::default()));
                    let packet = PacketBuf::from_slice(&mut pool, &p.bytes, Offload::default());
                    if let Some(r) = made.push(Instant::ZERO, packet, &info, &mut pool).whole {
                        let (bytes, offload) = (r.whole.bytes().to_vec(), r.whole.offload);
                        // Several packets with one number may be mixed here, as they would be
                        // anywhere.
                        if matches!(parse(&bytes), Parsed::Tcp(s) if verify_checksums(&bytes, &s, &offload)) {
                            self.check(&Out { bytes, offload, ..p.clone() });
                        }
                    }
                }
                return;
            }
            _ => {
                assert!(as_given || is_in_shim(p), "neither TCP nor what came in: {:02x?}", p.bytes);
                return;
            }
        };
        if !verify_checksums(&p.bytes, &s, &p.offload) {
            assert!(as_given || self.damaged.contains(&identity(&p.bytes, &s)), "a wrong checksum");
            return;
        }
        if s.flags.syn() {
            let said = self.said.entry(key(&s)).or_default();
            let [came, may_repeat, went] = said.syns.entry(syn_key(&s)).or_default();
            // Right behind one with the option it may leave as its host has made it, once: a box
            // may drop what has the option.
            let is_behind = !s.options.has_ours() && said.with_option.remove(&syn_key(&s));
            if s.options.has_ours() {
                said.with_option.insert(syn_key(&s));
            }
            *went += u32::from(!is_behind);
            // On a link that loses, one that says so in its option leaves twice.
            let says_it = |o: &farlink_wire::FarlinkOption| matches!(o.body.as_slice(), [.., 0xb1, flags] if flags & 1 != 0);
            if s.options.farlink.as_ref().is_some_and(says_it) {
                *may_repeat = (*may_repeat).max(1);
            }
            let most = *came + *may_repeat;
            assert!(*went <= most, "SYN number {went} where {came} came in, and {most} may go");
        }
        if !as_given {
            self.check_made(&p.bytes, &s, &p.offload);
        }
    }

    /// A segment that the gateway has made, or edited.
    fn check_made(&mut self, bytes: &[u8], s: &TcpSegment, offload: &Offload) {
        let (src, dst) = key(s);
        assert!(self.said.contains_key(&(src, dst)), "a segment between hosts that have not spoken");
        if self.tells_iacks && s.is_iack() {
            // Of its numbers only the acknowledgement is of the connection.
            let came = self.said.get(&(dst, src)).is_some_and(|other| other.sent.run_before(s.ack.0) > 0);
            assert!(
                came || self.asks || self.said.values().any(|h| h.lied),
                "an IACK of what never came: {s:?}"
            );
            return;
        }
        let mut other = self.said.remove(&(dst, src)).unwrap_or_default();
        let said = self.said.entry((src, dst)).or_default();
        let liars = said.lied || other.lied;
        let what = format!("{s:?}");
        let forwarded = is_forwarded(bytes, s);
        if s.flags.rst() {
            // A host that asks again and again for a new connection has forgotten the old one,
            // which is as good as a reset.
            let begins_anew = |h: &Said| h.syns.values().any(|n| n[0] >= 4);
            let allowed =
                said.reset || other.reset || self.may_reset || begins_anew(said) || begins_anew(&other);
            assert!(allowed, "a RST that nobody sent: {what}");
        }
        if s.flags.fin() {
            let at = s.end_seq().0.wrapping_sub(1);
            assert!(said.fins.contains(&at), "a FIN that the host did not send: {what}");
        }
        if s.flags.urg() {
            let end = s.seq.0.wrapping_add(u32::from(s.urgent));
            let far = |e: &u32| s.urgent == u16::MAX && e.wrapping_sub(s.seq.0) >= u32::from(u16::MAX);
            let announced = said.urgent_ends.contains(&end) || said.urgent_ends.iter().any(far);
            let zero = s.urgent == 0 && said.urgent_zeros.contains(&s.seq.0);
            assert!(announced || zero, "urgent data that the host did not announce: {what}");
            let cut = offload.is_super_segment() && s.payload_len > usize::from(offload.gso_size);
            assert!(forwarded || !cut, "urgent data in a super-segment: {what}");
        }
        if let Some(t) = s.options.timestamps {
            assert!(said.stamps.contains(&t.val), "a TSval that the host never had: {what}");
            assert!(t.ecr == 0 || other.stamps.contains(&t.ecr), "echoes what the other never said: {what}");
        }
        if s.options.farlink.is_some() && !s.flags.syn() {
            // A packet that goes on, if only with another window, keeps the option that the host
            // has put there itself.
            let own = forwarded && said.marked;
            said.asked += u32::from(!own && !other.marked);
            let opened: u32 =
                said.syns.iter().filter(|((_, flags), _)| *flags == Flags::SYN.0).map(|(_, n)| n[0]).sum();
            let asks = s.payload_len == 0 && s.flags == Flags::ACK && said.asked <= ASKS_MAX * opened;
            assert!(other.marked || own || asks, "a Farlink option to a host: {what}");
        }
        if s.flags.ack() && !s.flags.rst() {
            // What a host has acknowledged itself is its own affair; what a liar has acknowledged
            // is believed (a host's word wins), and what lies between two lies cannot be told.
            let run = other.sent.run_before(s.ack.0);
            let from_a_word = said.acks.iter().any(|a| u64::from(s.ack.0.wrapping_sub(*a)) <= run);
            let is_own = said.acks.iter().any(|a| a.wrapping_sub(s.ack.0) < 1 << 31);
            let promises = self.promises_nothing && !is_own;
            assert!(!promises || liars || self.asks, "acknowledges what the host has not: {what}");
            assert!(
                from_a_word || liars || self.asks,
                "acknowledges what the other host has not sent: {what}"
            );
            if !forwarded {
                let newest = other.acked_by_gateway.map_or(s.ack, |a| s.ack.max(SeqNum(a)));
                other.acked_by_gateway = Some(newest.0);
            }
        }
        let beyond = |seq: u32| !said.sent.touches(seq) && !other.acks.contains(&seq);
        if !forwarded && beyond(s.seq.0) && beyond(s.seq.0.wrapping_add(1)) {
            assert!(liars || self.asks, "a sequence number that the host has not reached: {what}");
        }
        let first = s.seq + u32::from(s.flags.syn());
        let payload = s.payload(bytes);
        let Some(runs) = runs(first, payload) else { panic!("bytes that nobody sent: {what}") };
        for (at, len, v) in runs {
            assert!(
                said.payload[v].contains(at, len),
                "bytes that the host did not send: {len} from {at} in {what}"
            );
            if !forwarded {
                assert!(
                    said.takeable[v].contains(at, len),
                    "a second copy of {len} bytes from {at} in {what}"
                );
                said.decided.add(at, len);
                said.takeable[1 - v].remove(at, len);
            }
        }
        if !offload.is_super_segment() {
            assert_eq!(offload.gso_size, 0, "{what}");
        }
        let one = if offload.is_super_segment() { usize::from(offload.gso_size) } else { s.payload_len };
        let whole = (s.payload_offset + one.min(s.payload_len)) as u32;
        assert!(forwarded || whole <= self.mtu_max_bytes, "a segment of {whole} bytes: {what}");
        self.said.insert((dst, src), other);
    }
}

/// A host's own segment, perhaps edited: hosts begin their options with three NOPs, which no
/// gateway does. SYNs are never made.
fn is_forwarded(bytes: &[u8], s: &TcpSegment) -> bool {
    let options = s.tcp_offset() + farlink_wire::tcp::TCP_HEADER_BYTES;
    s.flags.syn() || bytes.get(options..options + 3) == Some(&[1, 1, 1])
}

/// What makes two SYNs the same: the options and AE may be edited, and one that waits for a link
/// loses its payload and the FIN behind that.
fn syn_key(s: &TcpSegment) -> (u32, u16) {
    (s.seq.0, s.flags.0 & (Flags::SYN | Flags::ACK | Flags::RST).0)
}

/// TCP behind XCP's own header, with right checksums.
fn is_in_shim(p: &Out) -> bool {
    let parsed = parse_with(&p.bytes, ShimProtocols::USUAL);
    matches!(parsed, Parsed::Tcp(s) if s.shim.is_some() && verify_checksums(&p.bytes, &s, &p.offload))
}
