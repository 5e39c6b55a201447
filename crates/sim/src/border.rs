//! What stands between a host's stack and the wire: it takes away options that the host shall not
//! have, notes the sequence numbers of its connections, and makes good a few habits of smoltcp that
//! no other stack has.

use std::collections::BTreeMap;
use std::net::IpAddr;

use farlink_wire::options::{KIND_MSS, KIND_SACK_PERMITTED, KIND_TIMESTAMPS, KIND_WINDOW_SCALE, OptionWalk};
use farlink_wire::supersegment::segment;
use farlink_wire::tcp::TCP_HEADER_BYTES;
use farlink_wire::{Flags, Gso, Instant, Offload, Parsed, SeqNum, TcpSegment, parse, verify_checksums};

use crate::content::{Endpoint, Stream};
use crate::isn::IsnClock;
use crate::packet::{blank_options, finish, tcp};
use crate::traffic::HostConfig;

/// What the border knows of one connection of its host.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// ISN of the host itself.
    pub own_isn: u32,
    /// ISN of the other host, once the handshake is done on this side.
    pub peer_isn: Option<u32>,
    rcv_nxt: SeqNum,
    snd_una: SeqNum,
    snd_max: SeqNum,
    fin_at: Option<SeqNum>,
    last_ack: (SeqNum, u16),
    /// The newest window field was zero.
    closed: bool,
    /// Shift of the windows that the other side announces.
    shift: u8,
    /// Right edge of the window that the other side has announced.
    edge: SeqNum,
    /// The newest window field, and the largest window, in bytes.
    window: u16,
    window_max: u32,
    /// Right edge of the window that the host has announced, and the shift of its windows.
    own_edge: SeqNum,
    own_shift: u8,
    /// Both sides scale.
    scaled: bool,
    stream: Stream,
    /// Its SYN had timestamps.
    timestamps: bool,
    /// TS.Recent of RFC 7323.
    ts_recent: Option<u32>,
}

/// Where the stack stands in a connection, as offsets behind the two ISNs.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// It is past its handshake.
    pub synchronised: bool,
    /// What it has sent and knows to have arrived: bytes, and its FIN.
    pub acked: u32,
    /// What it has taken without a gap: bytes, and the other side's FIN.
    pub taken: u32,
}

/// Tells where the stack stands in the connection between these ends; `None`: it has none.
pub type Stack<'a> = dyn Fn(Endpoint, Endpoint) -> Option<Standing> + 'a;

/// The border of one host.
pub struct Border {
    blanked: Vec<u8>,
    ttl: u8,
    traffic_class: u8,
    flow_label: u32,
    next_id: u16,
    known: BTreeMap<(Endpoint, Endpoint), Known>,
    path_mtu: BTreeMap<IpAddr, u16>,
    /// Window scale of SYNs that came in, until the answer goes out.
    asked: BTreeMap<(Endpoint, Endpoint), Option<u8>>,
    isns: IsnClock,
}

impl Border {
    /// A border for a host of this kind.
    #[must_use]
    pub fn new(config: &HostConfig, secret: u64) -> Self {
        let mut blanked = Vec::new();
        if !config.sack {
            blanked.push(KIND_SACK_PERMITTED);
        }
        if !config.window_scaling {
            blanked.push(KIND_WINDOW_SCALE);
        }
        Self {
            blanked,
            ttl: config.ttl,
            traffic_class: config.dscp << 2,
            flow_label: config.flow_label & 0x000f_ffff,
            next_id: 1,
            known: BTreeMap::new(),
            path_mtu: BTreeMap::new(),
            asked: BTreeMap::new(),
            isns: IsnClock::new(config.isn_clock.then_some(secret)),
        }
    }

    /// What is known of the newest connection from `local` to `remote`.
    #[must_use]
    pub fn known(&self, local: Endpoint, remote: Endpoint) -> Option<Known> {
        self.known.get(&(local, remote)).copied()
    }

    /// A packet from the stack: `emit` gets what really goes out.
    pub fn outgoing(&mut self, now: Instant, mut bytes: Vec<u8>, emit: &mut dyn FnMut(Vec<u8>)) {
        self.dress(&mut bytes);
        let Some(mut s) = tcp(&bytes) else {
            emit(bytes);
            return;
        };
        let key = ((s.ip.src, s.src_port), (s.ip.dst, s.dst_port));
        s.seq = self.isns.to_wire(now, key, &s);
        let at = s.tcp_offset() + 4;
        bytes[at..at + 4].copy_from_slice(&s.seq.0.to_be_bytes());
        if s.flags.syn() && !self.blanked.is_empty() {
            blank_options(&mut bytes, &s, &self.blanked);
        }
        let bytes = self.note_outgoing(bytes, &s);
        finish_and_cut(bytes, self.path_mtu.get(&s.ip.dst).copied(), emit);
    }

    /// TTL, DSCP, flow label and identification as this host writes them.
    fn dress(&mut self, bytes: &mut [u8]) {
        if bytes[0] >> 4 == 4 {
            bytes[1] = self.traffic_class;
            bytes[4..6].copy_from_slice(&self.next_id.to_be_bytes());
            self.next_id = self.next_id.wrapping_add(1);
            bytes[8] = self.ttl;
        } else {
            let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
            bytes[..4].copy_from_slice(&first.to_be_bytes());
            bytes[7] = self.ttl;
        }
    }

    fn note_outgoing(&mut self, mut bytes: Vec<u8>, s: &TcpSegment) -> Vec<u8> {
        let key = ((s.ip.src, s.src_port), (s.ip.dst, s.dst_port));
        if s.flags.syn() {
            let renewed = self.known.get(&key).is_none_or(|k| k.own_isn != s.seq.0);
            if renewed {
                let next = s.seq + 1;
                let known = Known {
                    own_isn: s.seq.0,
                    peer_isn: None,
                    rcv_nxt: s.ack,
                    snd_una: s.seq,
                    snd_max: next,
                    fin_at: None,
                    last_ack: (s.seq, 0),
                    closed: false,
                    shift: if s.flags.ack() { self.asked.remove(&key).flatten().unwrap_or(0) } else { 0 },
                    edge: next,
                    window: 0,
                    window_max: 0,
                    own_edge: s.ack,
                    scaled: false,
                    own_shift: s.options.window_scale.unwrap_or(0),
                    stream: Stream::new(key.0, key.1, s.seq.0),
                    timestamps: s.options.timestamps.is_some(),
                    ts_recent: None,
                };
                self.known.insert(key, known);
            }
            if s.flags.ack()
                && let Some(k) = self.known.get_mut(&key)
            {
                k.peer_isn = Some(s.ack.0.wrapping_sub(1));
                k.scaled = s.options.window_scale.is_some();
                k.own_edge = s.ack + u32::from(s.window);
            }
            return bytes;
        }
        let Some(k) = self.known.get_mut(&key) else { return bytes };
        if s.flags.rst() {
            return bytes;
        }
        k.rcv_nxt = s.ack;
        let shift = if k.scaled { k.own_shift } else { 0 };
        k.own_edge = k.own_edge.max(s.ack + (u32::from(s.window) << shift));
        // smoltcp's keepalive repeats "one byte" before SND.NXT with the value 0, whatever was
        // there. Real hosts send none (RFC 9293 section 3.8.4 allows either): a gateway cannot know
        // that the byte is a lie.
        let offset = u64::from(s.seq.since(SeqNum(k.own_isn) + 1));
        let is_keepalive = s.payload_len == 1
            && !s.flags.any(Flags::PSH | Flags::FIN)
            && s.seq.before(k.snd_max)
            && s.payload(&bytes) == [0]
            && (s.seq.before(k.snd_una) || k.stream.first_difference(offset, &[0]).is_some());
        if is_keepalive {
            return bare(&bytes, s, k.snd_una - 1);
        }
        if s.seq_len() == 0 && s.seq.before(k.snd_max) {
            // After a timeout smoltcp puts SND.UNA into its ACKs; when both sides do, neither
            // accepts the other's. The number is SND.NXT, or the right edge where that is less
            // (Linux tcp_acceptable_seq).
            let seq = k.snd_max.min(k.edge.max(k.snd_una));
            let at = s.tcp_offset() + 4;
            bytes[at..at + 4].copy_from_slice(&seq.0.to_be_bytes());
        }
        let end = s.end_seq();
        if end.after(k.snd_max) {
            k.snd_max = end;
        }
        if s.flags.fin() {
            k.fin_at = Some(end - 1);
        }
        bytes
    }

    /// How often the stack must get this packet for smoltcp to see what it says. It stops its
    /// retransmission timer when the window closes over bytes in flight, and does not start it when
    /// the window opens again: duplicate ACKs wake it.
    fn copies(&mut self, bytes: &[u8]) -> usize {
        let Some(s) = tcp(bytes) else { return 1 };
        let Some(k) = self.known.get_mut(&((s.ip.dst, s.dst_port), (s.ip.src, s.src_port))) else { return 1 };
        if !s.flags.ack() || s.flags.any(Flags::SYN | Flags::RST) || s.ack != k.snd_una {
            return 1;
        }
        let opens = k.closed && s.window > 0 && k.snd_una.before(k.snd_max) && k.fin_at != Some(s.ack);
        k.closed = s.window == 0;
        if opens && s.payload_len == 0 && !s.flags.fin() { 4 } else { 1 }
    }

    /// A packet from the wire: what the stack gets, if anything, and how often.
    pub fn incoming(&mut self, bytes: &[u8], stack: &Stack<'_>) -> Option<(Vec<u8>, usize)> {
        let has_connection = |s: TcpSegment| stack((s.ip.dst, s.dst_port), (s.ip.src, s.src_port)).is_some();
        // Without a connection there is nothing to know and nothing to make good: a closed port
        // answers what it gets.
        let is_known = tcp(bytes).is_none_or(|s| s.flags.syn() || has_connection(s));
        let mut bytes = if is_known { self.digest(bytes, stack)? } else { bytes.to_vec() };
        let mut copies = 1;
        if is_known {
            self.keep_open_for_fin(&mut bytes);
            copies = self.copies(&bytes);
        }
        if let Some(s) = tcp(&bytes)
            && s.flags.ack()
            && verify_checksums(&bytes, &s, &Offload::default())
        {
            let key = ((s.ip.dst, s.dst_port), (s.ip.src, s.src_port));
            let at = s.tcp_offset() + 8;
            bytes[at..at + 4].copy_from_slice(&self.isns.to_stack(&key, s.ack).0.to_be_bytes());
            finish(&mut bytes);
        }
        Some((bytes, copies))
    }

    /// Nothing wakes smoltcp's retransmission timer again for a FIN in flight when the window has
    /// closed over it.
    fn keep_open_for_fin(&self, bytes: &mut [u8]) {
        let Some(s) = tcp(bytes).filter(|s| s.flags.ack() && !s.flags.rst() && s.window == 0) else { return };
        let Some(k) = self.known.get(&((s.ip.dst, s.dst_port), (s.ip.src, s.src_port))) else { return };
        if k.fin_at.is_some() && verify_checksums(bytes, &s, &Offload::default()) {
            let at = s.tcp_offset() + 14;
            bytes[at..at + 2].copy_from_slice(&1u16.to_be_bytes());
            finish(bytes);
        }
    }

    /// The stack drops a segment whose acknowledgement is older than the newest, payload and FIN
    /// and all. Only the acknowledgement is to be ignored (RFC 9293 section 3.10.7.4), back to the
    /// largest window that was seen (RFC 5961 section 5.2) and no further than to the first byte
    /// (Linux tcp_ack). An error is what the stack gets in its place.
    fn renew_old_ack(
        &self,
        bytes: &mut [u8],
        s: &mut TcpSegment,
        stack: &Stack<'_>,
    ) -> Result<(), Option<Vec<u8>>> {
        let key = ((s.ip.dst, s.dst_port), (s.ip.src, s.src_port));
        let Some(k) = self.known.get(&key).filter(|k| s.ack.before(k.snd_una)) else { return Ok(()) };
        if !s.flags.ack() || s.flags.any(Flags::SYN | Flags::RST) {
            return Ok(());
        }
        let at = stack(key.0, key.1).filter(|at| at.synchronised);
        let (Some(at), Some(peer_isn)) = (at, k.peer_isn) else { return Ok(()) };
        let una = SeqNum(k.own_isn) + 1 + at.acked;
        if s.ack.after_eq(una) {
            return Ok(());
        }
        if una.since(s.ack) > k.window_max.min(at.acked) {
            return Err(Some(challenge(bytes, s, k)));
        }
        let nxt = SeqNum(peer_isn) + 1 + at.taken;
        let acceptable = s.seq == nxt || (s.seq.after(nxt) && s.seq.before(k.own_edge));
        if acceptable && s.seq_len() == 0 {
            // It would count as a duplicate of the newest one.
            return Err(None);
        }
        (s.ack, s.window) = (una, k.window);
        let tcp = s.tcp_offset();
        bytes[tcp + 8..tcp + 12].copy_from_slice(&s.ack.0.to_be_bytes());
        bytes[tcp + 14..tcp + 16].copy_from_slice(&s.window.to_be_bytes());
        finish(bytes);
        Ok(())
    }

    fn digest(&mut self, bytes: &[u8], stack: &Stack<'_>) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        let mut s = match parse(&bytes) {
            Parsed::Tcp(s) => s,
            Parsed::Icmp(e) => {
                self.note_icmp(&e);
                return None;
            }
            _ => return None,
        };
        if !verify_checksums(&bytes, &s, &Offload::default()) {
            // smoltcp must find that out by itself.
            return Some(bytes);
        }
        let key = ((s.ip.dst, s.dst_port), (s.ip.src, s.src_port));
        let scaling = !self.blanked.contains(&KIND_WINDOW_SCALE);
        if s.flags.syn() && !s.flags.ack() && stack(key.0, key.1).is_some_and(|at| at.synchronised) {
            // smoltcp drops it in silence; RFC 5961 section 4.2 demands a challenge ACK, which a
            // keepalive draws too.
            return self.known.get(&key).map(|k| challenge(&bytes, &s, k));
        }
        if s.flags.syn() && !s.flags.ack() {
            self.asked.insert(key, s.options.window_scale.filter(|_| scaling));
        }
        if let Some(k) = self.known.get(&key)
            && k.peer_isn.is_none()
            && s.flags.ack()
            && !s.flags.any(Flags::SYN | Flags::RST)
            && s.ack != SeqNum(k.own_isn) + 1
        {
            // In SYN-SENT smoltcp resets a bare ACK of something else (RFC 9293 3.10.7.3), but not
            // one with data.
            let mut ack = bare(&bytes, &s, s.seq);
            ack[s.tcp_offset() + 13] = Flags::ACK.0 as u8;
            finish(&mut ack);
            return Some(ack);
        }
        if self.is_old(&key, &s) {
            // PAWS (RFC 7323 section 5.3 R1), which smoltcp does not do: dropped, and acknowledged
            // if it is not a RST.
            return self.known.get(&key).filter(|_| !s.flags.rst()).map(|k| challenge(&bytes, &s, k));
        }
        if let Err(instead) = self.renew_old_ack(&mut bytes, &mut s, stack) {
            return instead;
        }
        if let Some(k) = self.known.get_mut(&key)
            && s.flags.ack()
            && !s.flags.rst()
        {
            if s.flags.syn() {
                k.shift = s.options.window_scale.filter(|_| scaling).unwrap_or(0);
                k.scaled = scaling && s.options.window_scale.is_some();
                if k.peer_isn.is_none() && s.ack.0 == k.own_isn.wrapping_add(1) {
                    k.peer_isn = Some(s.seq.0);
                    k.rcv_nxt = s.seq + 1;
                    k.own_edge = s.seq + 1;
                }
            } else {
                // smoltcp 0.14 answers the third duplicate ACK of its FIN by a "fast retransmit" of
                // nothing and then waits for ever. A duplicate ACK is a packet that may be lost:
                // lose it. What asks for an ACK is not read so far.
                let is_duplicate = s.payload_len == 0 && k.last_ack == (s.ack, s.window);
                let probes = s.seq.before(k.rcv_nxt);
                if is_duplicate && k.fin_at == Some(s.ack) && !s.flags.fin() && !probes {
                    return None;
                }
                if s.payload_len == 0 {
                    k.last_ack = (s.ack, s.window);
                }
            }
            if s.ack.after_eq(k.snd_una) && s.ack.before_eq(k.snd_max) {
                k.snd_una = s.ack;
                let shift = if s.flags.syn() { 0 } else { k.shift };
                k.edge = k.edge.max(s.ack + (u32::from(s.window) << shift));
                k.window = s.window;
                k.window_max = k.window_max.max(u32::from(s.window) << shift);
            }
        }
        if let Some(k) = self.known.get(&key)
            && k.peer_isn.is_some()
            && s.flags.fin()
            && s.end_seq().after(k.own_edge + 1)
            && s.seq.before(k.own_edge)
        {
            // smoltcp takes a FIN although it has no room for what stands before it.
            let room = k.own_edge.since(s.seq) as usize;
            bytes.truncate(s.payload_offset + room.min(s.payload_len));
            bytes[s.tcp_offset() + 13] = Flags::ACK.0 as u8;
            set_length(&mut bytes);
            finish(&mut bytes);
            return Some(bytes);
        }
        if let Some(k) = self.known.get(&key)
            && s.flags.fin()
            && s.payload_len > 0
            && s.seq + s.payload_len as u32 == k.rcv_nxt
        {
            // smoltcp overlooks a FIN behind a payload that it has already.
            let mut fin = bare(&bytes, &s, k.rcv_nxt);
            finish(&mut fin);
            return Some(fin);
        }
        if s.flags.syn() && !self.blanked.is_empty() && blank_options(&mut bytes, &s, &self.blanked) {
            finish(&mut bytes);
        }
        Some(bytes)
    }

    /// Whether PAWS refuses the segment; if not, TS.Recent is moved (RFC 7323 section 4.3).
    fn is_old(&mut self, key: &(Endpoint, Endpoint), s: &TcpSegment) -> bool {
        let Some(k) = self.known.get_mut(key).filter(|k| k.timestamps && k.peer_isn.is_some()) else {
            return false;
        };
        let (Some(t), false) = (s.options.timestamps, s.flags.any(Flags::SYN | Flags::RST)) else {
            return false;
        };
        if k.ts_recent.is_some_and(|recent| SeqNum(t.val).before(SeqNum(recent))) {
            return true;
        }
        if s.seq.before_eq(k.rcv_nxt) {
            k.ts_recent = Some(t.val);
        }
        false
    }

    /// Path MTU discovery (RFC 1191): smoltcp has none, so its segments are cut here, as a TSO card
    /// would.
    fn note_icmp(&mut self, e: &farlink_wire::icmp::IcmpError) {
        use farlink_wire::icmp::IcmpKind::{FragmentationNeeded, PacketTooBig};
        let (FragmentationNeeded { mtu } | PacketTooBig { mtu }) = e.kind else { return };
        let Some(inner) = e.inner else { return };
        let least = if inner.dst.is_ipv4() { 88 } else { 1280 };
        let known = self.known.contains_key(&((inner.src, inner.src_port), (inner.dst, inner.dst_port)));
        if known && mtu >= least {
            let mtu = mtu.min(u32::from(u16::MAX)) as u16;
            let entry = self.path_mtu.entry(inner.dst).or_insert(mtu);
            *entry = mtu.min(*entry);
        }
    }
}

/// The segment without its payload, at another number: a keepalive as Linux sends it, a bare FIN.
fn bare(bytes: &[u8], s: &TcpSegment, seq: SeqNum) -> Vec<u8> {
    let mut out = bytes[..s.payload_offset].to_vec();
    set_length(&mut out);
    let at = s.tcp_offset() + 4;
    out[at..at + 4].copy_from_slice(&seq.0.to_be_bytes());
    out
}

/// Makes the IP header say how long the packet is.
fn set_length(packet: &mut [u8]) {
    let total = packet.len();
    if packet[0] >> 4 == 4 {
        packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
    }
}

/// A segment that draws an ACK from a connection that is past its handshake.
fn challenge(bytes: &[u8], s: &TcpSegment, k: &Known) -> Vec<u8> {
    let mut out = bytes[..s.payload_offset].to_vec();
    set_length(&mut out);
    let at = s.tcp_offset();
    out[at + 4..at + 8].copy_from_slice(&(k.rcv_nxt - 1).0.to_be_bytes());
    out[at + 8..at + 12].copy_from_slice(&k.snd_una.0.to_be_bytes());
    out[at + 13] = Flags::ACK.0 as u8;
    blank_options(&mut out, s, &[KIND_MSS, KIND_WINDOW_SCALE, KIND_SACK_PERMITTED]);
    let area = s.tcp_offset() + TCP_HEADER_BYTES;
    let stamp = OptionWalk::new(&bytes[area..s.payload_offset]).find(|o| o.kind == KIND_TIMESTAMPS);
    if let (Some(o), Some(recent)) = (stamp, k.ts_recent) {
        // smoltcp echoes what it gets; TS.Recent is what is to be echoed.
        out[area + o.offset + 2..area + o.offset + 6].copy_from_slice(&recent.to_be_bytes());
    }
    finish(&mut out);
    out
}

fn finish_and_cut(mut bytes: Vec<u8>, path_mtu: Option<u16>, emit: &mut dyn FnMut(Vec<u8>)) {
    finish(&mut bytes);
    match (path_mtu, tcp(&bytes)) {
        (Some(mtu), Some(s)) if bytes.len() > usize::from(mtu) && s.payload_len > 0 => {
            let gso = if s.ip.is_v4() { Gso::Tcp4 } else { Gso::Tcp6 };
            let gso_size = mtu - s.payload_offset as u16;
            let offload = Offload { gso, gso_size, ..Offload::default() };
            segment(&bytes, &offload, &mut |piece| emit(piece.to_vec()));
        }
        _ => emit(bytes),
    }
}
