//! Join IP fragments within bounds. The fragments themselves are kept, so that whatever comes of it
//! (not TCP, timed out, contradictory, no room) they can be forwarded as they came.

use crate::bytes::put;
use crate::edit::{write_ipv4_fragment, write_total_len, write_traffic_class};
use crate::ip::{EXT_FRAGMENT, Ecn, FragmentInfo, IPV6_FRAGMENT_HEADER_BYTES, unfragmentable_part};
use crate::offload::Offload;
use crate::packet::PacketBuf;
use crate::pool::Pool;
use crate::time::{Duration, Instant};
use core::net::IpAddr;
use std::collections::BTreeMap;

/// Bounds of a [`Reassembler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Memory of all fragments held, bytes of their blocks.
    pub bytes: usize,
    /// Packets under way.
    pub datagrams: usize,
    /// Fragments of one packet.
    pub fragments: usize,
    /// Time that a packet may take from its first fragment.
    pub timeout: Duration,
}

impl Default for ReassemblyLimits {
    /// 4 MiB as Linux (`ipfrag_high_thresh`); 256 packets of at most 256 fragments; 5 s, since what
    /// a gateway holds longer than hosts take to resend helps nobody.
    fn default() -> Self {
        Self { bytes: 4 << 20, datagrams: 256, fragments: 256, timeout: Duration::from_secs(5) }
    }
}

/// A packet made whole, and the fragments it came in, in the order of their arrival. The blocks of
/// all are the caller's to give back to the pool.
#[derive(Debug)]
pub struct Reassembled {
    /// The packet. Its transport checksum is complete and unverified.
    pub whole: PacketBuf,
    /// The fragments, for a caller who finds that the packet is not for it.
    pub originals: Vec<PacketBuf>,
}

/// What came of a fragment.
#[derive(Debug, Default)]
pub struct Pushed {
    /// The packet that it completed.
    pub whole: Option<Reassembled>,
    /// Fragments to be forwarded as they are, in order: contradictory ones, and those that had to
    /// make room.
    pub forward: Vec<PacketBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    /// 0 for IPv6, where it is no part of the identity (RFC 8200 section 4.5).
    protocol: u8,
}

impl Key {
    fn of(info: &FragmentInfo) -> Self {
        let protocol = if info.ip.is_v4() { info.protocol } else { 0 };
        Self { src: info.ip.src, dst: info.ip.dst, id: info.id, protocol }
    }
}

/// A packet under way.
#[derive(Debug)]
struct Datagram {
    key: Key,
    deadline: Instant,
    /// In order of arrival.
    parts: Vec<(FragmentInfo, PacketBuf)>,
    /// What is there, as disjoint ranges in order.
    ranges: Vec<(u32, u32)>,
    /// Payload bytes of the whole, once the last fragment has come.
    total: Option<u32>,
    bytes: usize,
}

/// Joins fragments. One per domain: equal addresses of different domains must not meet.
#[derive(Debug)]
pub struct Reassembler {
    limits: ReassemblyLimits,
    /// By number of arrival, so the first is the oldest and the next to time out.
    datagrams: BTreeMap<u64, Datagram>,
    by_key: BTreeMap<Key, u64>,
    next_number: u64,
    used_bytes: usize,
}

impl Reassembler {
    /// An empty one.
    #[must_use]
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self { limits, datagrams: BTreeMap::new(), by_key: BTreeMap::new(), next_number: 0, used_bytes: 0 }
    }

    /// Memory of the fragments held, bytes of their blocks.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Packets under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// No packet is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// When [`Self::expire`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.datagrams.values().next().map(|d| d.deadline)
    }

    /// Give up on what has taken too long: its fragments, to be forwarded.
    pub fn expire(&mut self, now: Instant) -> Vec<PacketBuf> {
        let mut out = Vec::new();
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.evict_oldest(&mut out);
        }
        out
    }

    /// Give up on everything.
    pub fn clear(&mut self) -> Vec<PacketBuf> {
        let mut out = Vec::new();
        while !self.is_empty() {
            self.evict_oldest(&mut out);
        }
        out
    }

    /// Take a fragment as parsed from `p`. Where fragments overlap, the byte that came first
    /// counts; in IPv6 an overlap that is no mere repetition ends the attempt (RFC 5722), and so
    /// does in both whatever contradicts an earlier fragment or mixes ECN-capable with other
    /// fragments: the host is to judge the fragments as they are. Where there is no room, the
    /// oldest packet under way goes.
    pub fn push(&mut self, now: Instant, p: PacketBuf, info: &FragmentInfo, pool: &mut Pool) -> Pushed {
        let mut pushed = Pushed::default();
        let payload_end = info.payload_offset.saturating_add(info.payload_len);
        // A fragment with its checksum left to be done cannot be: the kernel completes them before
        // it fragments.
        if p.offload.is_partial() || p.len() < payload_end || p.capacity() > self.limits.bytes {
            pushed.forward.push(p);
            return pushed;
        }
        let key = Key::of(info);
        let number = self.make_room(now, key, p.capacity(), &mut pushed.forward);
        let Some((number, datagram)) = number.and_then(|n| Some((n, self.datagrams.get_mut(&n)?))) else {
            pushed.forward.push(p);
            return pushed;
        };
        let is_sound = datagram.accepts(info) && datagram.parts.len() < self.limits.fragments;
        let bytes = p.capacity();
        datagram.bytes = datagram.bytes.saturating_add(bytes);
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        datagram.add(*info, p);
        if is_sound && !datagram.is_complete() {
            return pushed;
        }
        let Some(datagram) = self.remove(number) else { return pushed };
        let whole = if is_sound { datagram.assemble(pool) } else { None };
        let originals = datagram.parts.into_iter().map(|(_, p)| p);
        match whole {
            Some(whole) => pushed.whole = Some(Reassembled { whole, originals: originals.collect() }),
            None => pushed.forward.extend(originals),
        }
        pushed
    }

    /// The number of the packet `key`, begun if need be, with room for `bytes` more; `None` when it
    /// had to go itself.
    fn make_room(&mut self, now: Instant, key: Key, bytes: usize, out: &mut Vec<PacketBuf>) -> Option<u64> {
        let known = self.by_key.get(&key).copied();
        while !self.is_empty()
            && (self.used_bytes.saturating_add(bytes) > self.limits.bytes
                || (known.is_none() && self.len() >= self.limits.datagrams))
        {
            self.evict_oldest(out);
        }
        if let Some(number) = known {
            return self.datagrams.contains_key(&number).then_some(number);
        }
        if self.limits.datagrams == 0 {
            return None;
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        let deadline = now + self.limits.timeout;
        let datagram =
            Datagram { key, deadline, parts: Vec::new(), ranges: Vec::new(), total: None, bytes: 0 };
        self.datagrams.insert(number, datagram);
        self.by_key.insert(key, number);
        Some(number)
    }

    fn evict_oldest(&mut self, out: &mut Vec<PacketBuf>) {
        let oldest = self.datagrams.keys().next().copied();
        if let Some(datagram) = oldest.and_then(|n| self.remove(n)) {
            out.extend(datagram.parts.into_iter().map(|(_, p)| p));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Datagram> {
        let datagram = self.datagrams.remove(&number)?;
        self.by_key.remove(&datagram.key);
        self.used_bytes = self.used_bytes.saturating_sub(datagram.bytes);
        Some(datagram)
    }
}

impl Datagram {
    /// The fragment contradicts none that came before.
    fn accepts(&self, info: &FragmentInfo) -> bool {
        let end = info.end();
        let reached = self.ranges.last().map_or(0, |r| r.1);
        let lengths_agree = match self.total {
            Some(total) => end <= total && (info.more || end == total),
            None => info.more || reached <= end,
        };
        let is_repeated = self.parts.iter().any(|(i, _)| i.offset == info.offset && i.end() == end);
        let overlaps = self.ranges.iter().any(|&(start, stop)| info.offset < stop && start < end);
        lengths_agree && (info.ip.is_v4() || is_repeated || !overlaps)
    }

    fn add(&mut self, info: FragmentInfo, p: PacketBuf) {
        let (mut start, mut end) = (info.offset, info.end());
        if !info.more {
            self.total = Some(end);
        }
        self.ranges.retain(|&(s, e)| {
            let touches = s <= end && start <= e;
            if touches {
                (start, end) = (start.min(s), end.max(e));
            }
            !touches
        });
        let at = self.ranges.partition_point(|&(s, _)| s < start);
        self.ranges.insert(at, (start, end));
        self.parts.push((info, p));
    }

    fn is_complete(&self) -> bool {
        matches!((self.total, self.ranges.as_slice()), (Some(total), &[(0, end)]) if end == total)
    }

    /// The packet; `None` when it would be longer than a packet can be, or its ECN fields do not go
    /// together.
    fn assemble(&self, pool: &mut Pool) -> Option<PacketBuf> {
        let (first, first_packet) = self.parts.iter().find(|(i, _)| i.offset == 0)?;
        let traffic_class = self.traffic_class(first)?;
        let is_v4 = first.ip.is_v4();
        let header_len =
            first.payload_offset.checked_sub(if is_v4 { 0 } else { IPV6_FRAGMENT_HEADER_BYTES })?;
        let payload_len = usize::try_from(self.total?).ok()?;
        let total = header_len.checked_add(payload_len)?;
        let said = if is_v4 { total } else { total.checked_sub(crate::ip::IPV6_HEADER_BYTES)? };
        if said > usize::from(u16::MAX) {
            return None;
        }
        let header = first_packet.bytes().get(..header_len)?;
        let part = if is_v4 { None } else { Some(unfragmentable_part(first_packet.bytes())?) };
        let mut block = pool.take_for(total.saturating_add(PacketBuf::HEADROOM));
        let out = block.as_mut_slice().get_mut(PacketBuf::HEADROOM..).unwrap_or_default();
        put(out, 0, header);
        // Backwards in time: what came first is written last and stays.
        for (info, p) in self.parts.iter().rev() {
            let from = info.payload_offset;
            let payload = p.bytes().get(from..from.saturating_add(info.payload_len)).unwrap_or_default();
            put(out, header_len.saturating_add(usize::try_from(info.offset).unwrap_or(usize::MAX)), payload);
        }
        match part {
            Some(part) => {
                debug_assert_eq!(out.get(part.next_header_at), Some(&EXT_FRAGMENT));
                put(out, part.next_header_at, &[first.protocol]);
            }
            None => write_ipv4_fragment(out, first.ip.id, false, 0),
        }
        write_total_len(out, total);
        write_traffic_class(out, traffic_class);
        Some(PacketBuf::from_block(block, PacketBuf::HEADROOM, total, Offload::default()))
    }

    /// The traffic class of the whole (RFC 3168 section 5.3, the table of Linux
    /// `ip_frag_ecn_table`): CE if any fragment met congestion; `None` where some fragments are
    /// ECN-capable and others are not.
    fn traffic_class(&self, first: &FragmentInfo) -> Option<u8> {
        let any = |ecn: Ecn| self.parts.iter().any(|(i, _)| i.ip.ecn() == ecn);
        let capable = any(Ecn::Ect0) || any(Ecn::Ect1) || any(Ecn::Ce);
        if capable && any(Ecn::NotEct) {
            return None;
        }
        Some(if any(Ecn::Ce) { first.ip.traffic_class | Ecn::Ce.bits() } else { first.ip.traffic_class })
    }
}
