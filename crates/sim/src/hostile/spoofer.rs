//! A sender of packets in honest hosts' names, who does not hear what they say.
//!
//! It guesses. Where its plan says that it knows the sequence numbers roughly, its guesses fall
//! near them: a run then stands for many in which they fell anywhere. What a host that follows RFC
//! 5961 would take without any gateway is not sent: that much an attacker can do anyway.

use std::collections::{BTreeMap, VecDeque};

use farlink_wire::{
    Duration, Flags, Instant, SegmentHeader, SeqNum, TcpSegment, build::farlink_option, icmp,
};
use farlink_wire::{FARLINK_EXIDS, fragment};

use super::liar::packet;
use super::plan::{ATTACK_ENDS, SpoofPlan};
use crate::app::End;
use crate::content::Endpoint;
use crate::host::Host;
use crate::node::router_address;
use crate::packet::tcp;
use crate::rng::Rng;

/// So much more a host may have sent when the forged packet arrives.
const SOON_BYTES: u32 = 2 << 20;
/// Acknowledgements so much older than a window may still be of a segment on its way.
const SUPER_SEGMENT_BYTES: u32 = 65_536;
/// A campaign goes on with the same kind of packet for so many.
const CAMPAIGN_PACKETS: u64 = 60;

/// What one host has said to another.
#[derive(Clone, Copy, Debug)]
struct Said {
    isn: SeqNum,
    nxt: SeqNum,
    acked: Option<SeqNum>,
    shift: u8,
    window_max: u32,
    stamp: Option<u32>,
    /// It has acknowledged the other's first number since then.
    open_since: Option<Instant>,
}

/// What the packets of a campaign have in common.
#[derive(Clone, Copy, Debug)]
struct Campaign {
    kind: Kind,
    victim: usize,
    from_client: bool,
    ack: SeqNum,
    region: SeqNum,
    left: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ack,
    Data,
    Fin,
    Reset,
    Syn,
    SynAck,
    Urgent,
    TooBig,
    Fragment,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Ack,
        Self::Data,
        Self::Fin,
        Self::Reset,
        Self::Syn,
        Self::SynAck,
        Self::Urgent,
        Self::TooBig,
        Self::Fragment,
    ];
}

/// See the module.
pub struct Spoofer {
    plan: SpoofPlan,
    /// The largest window that a gateway may show.
    window_max: u32,
    /// Client and server of each honest connection.
    victims: Vec<[Endpoint; 2]>,
    said: BTreeMap<(Endpoint, Endpoint), Said>,
    /// Handshakes are left alone: who hits one of these moments can have a connection go unsplit.
    round_trip: Duration,
    now: Instant,
    campaign: Option<Campaign>,
    next: Option<Instant>,
    left: u32,
    out: VecDeque<Vec<u8>>,
    rng: Rng,
}

impl Spoofer {
    /// The sender that `plan` describes; `victims` are the honest connections, client first.
    /// `window_max`: the largest window, in bytes, that a gateway may show in a host's name.
    /// `round_trip`: of the link.
    #[must_use]
    pub fn new(
        plan: SpoofPlan,
        victims: Vec<[Endpoint; 2]>,
        window_max: u32,
        round_trip: Duration,
        seed: u64,
    ) -> Self {
        Self {
            plan,
            window_max,
            round_trip,
            now: Instant::ZERO,
            victims,
            said: BTreeMap::new(),
            campaign: None,
            next: Some(Instant::ZERO + plan.every),
            left: plan.packets_max,
            out: VecDeque::new(),
            rng: Rng::new(seed, "spoofer"),
        }
    }

    fn guess(&mut self, near: Option<SeqNum>, most: u64) -> SeqNum {
        match near.filter(|_| self.plan.knows_roughly && self.rng.chance(0.8)) {
            Some(n) => {
                let distance = if self.rng.chance(0.1) { 0 } else { self.rng.log_range(1, most) as u32 };
                if self.rng.chance(0.5) { n + distance } else { n - distance }
            }
            None => SeqNum(self.rng.bits() as u32),
        }
    }

    fn begin(&mut self) -> Campaign {
        let victim = self.rng.range(0, self.victims.len() as u64) as usize;
        let from_client = self.rng.chance(0.5);
        let [src, dst] = ends(&self.victims[victim], from_client);
        let near = |s: &Self, key| s.said.get(&key).map(|x: &Said| x.nxt);
        let (own, other) = (near(self, (src, dst)), near(self, (dst, src)));
        let (ack, region) = (self.guess(other, 1 << 27), self.guess(own, 1 << 26));
        let (kind, left) = (self.rng.pick(&Kind::ALL), self.rng.log_range(1, CAMPAIGN_PACKETS));
        Campaign { kind, victim, from_client, ack, region, left }
    }

    /// The next guess; `None` where a host would take it without any gateway.
    fn forge(&mut self) -> Option<Vec<u8>> {
        let mut c = match self.campaign.take().filter(|c| c.left > 0) {
            Some(c) => c,
            None => self.begin(),
        };
        c.left -= 1;
        self.campaign = Some(c);
        let [mut src, dst] = ends(&self.victims[c.victim], c.from_client);
        if !self.plan.knows_ports {
            src.1 = self.rng.range(1_024, 30_000) as u16;
        }
        let own = self.said.get(&(src, dst)).copied();
        let other = self.said.get(&(dst, src)).copied();
        let seq = match self.rng.range(0, 4) {
            0 => c.region,
            1 => c.region + self.rng.range(0, 1 << 16) as u32,
            _ => self.guess(own.map(|s| s.nxt), 1 << 22),
        };
        let ack = match self.rng.range(0, 3) {
            0 => self.guess(other.map(|s| s.nxt), 1 << 26),
            _ => c.ack + self.rng.range(0, 3) as u32,
        };
        let mut flags = match c.kind {
            Kind::Fin => Flags::FIN | Flags::ACK,
            Kind::Reset => self.rng.pick(&[Flags::RST, Flags::RST | Flags::ACK]),
            Kind::Syn => Flags::SYN,
            Kind::SynAck => Flags::SYN | Flags::ACK,
            Kind::Urgent => Flags::URG | Flags::ACK,
            _ => Flags::ACK,
        };
        if self.rng.chance(0.1) {
            flags = flags | Flags::PSH;
        }
        let len = match c.kind {
            Kind::Data | Kind::Urgent => self.rng.pick(&[1u64, 10, 500, 1_400]),
            Kind::Fragment => 600,
            _ => 0,
        };
        let payload: Vec<u8> = (0..len).map(|_| self.rng.bits() as u8).collect();
        let options = self.options(own, flags.syn());
        let header = SegmentHeader {
            src: src.0,
            dst: dst.0,
            src_port: src.1,
            dst_port: dst.1,
            ttl: self.rng.pick(&[64, 64, 255, 5]),
            traffic_class: self.rng.pick(&[0, 0, 3, 0xb8]),
            flow_label: self.rng.range(0, 3) as u32,
            ip_id: self.rng.bits() as u16,
            dont_fragment: c.kind != Kind::Fragment,
            seq,
            ack,
            flags,
            window: self.rng.pick(&[0, 1, 1_000, 65_535]),
            urgent: if flags.urg() { self.rng.bits() as u16 } else { 0 },
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let bytes = packet(&header, &options, &payload)?;
        let s = tcp(&bytes)?;
        if !self.plan.knows_ports && self.said.contains_key(&(src, dst)) {
            return None;
        }
        let is_open = |s: Option<Said>| {
            s.and_then(|s| s.open_since).is_some_and(|at| self.now.since(at) > self.round_trip * 2)
        };
        if self.plan.knows_ports && !(is_open(own) && is_open(other)) {
            return None;
        }
        match c.kind {
            Kind::TooBig => self.too_big(&bytes, &s, own),
            _ if self.plan.knows_ports && would_be_taken(&s, own, other, self.window_max) => None,
            Kind::Fragment => {
                let mut pieces = Vec::new();
                fragment(&bytes, 576, self.rng.bits() as u32, &mut |p| pieces.push(p.to_vec())).ok()?;
                pieces.truncate(self.rng.range(1, 3) as usize);
                self.out.extend(pieces);
                None
            }
            _ => Some(bytes),
        }
    }

    fn options(&mut self, own: Option<Said>, is_syn: bool) -> Vec<u8> {
        let mut o = Vec::new();
        if is_syn {
            o.extend([2, 4, 5, 180, 4, 2, 3, 3, 7]);
        }
        if self.rng.chance(0.7) {
            let near = own.and_then(|s| s.stamp).unwrap_or(0);
            let val = match self.rng.range(0, 3) {
                0 => self.rng.bits() as u32,
                1 => near.wrapping_add(self.rng.log_range(1, 1 << 31) as u32),
                _ => near,
            };
            o.extend([8, 10]);
            o.extend(val.to_be_bytes());
            o.extend((self.rng.bits() as u32).to_be_bytes());
        }
        if self.rng.chance(0.2) {
            let v1 = [0x1f, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1];
            let frames = [0x24, 0, 0, 0, 0, 0x34, 0xff, 0xff, 0, 0];
            let body = self.rng.pick(&[v1, frames]);
            let n = self.rng.range(0, body.len() as u64 + 1) as usize;
            o.extend(farlink_option(self.rng.pick(&FARLINK_EXIDS), &body[..n]).unwrap_or_default());
        }
        o
    }

    /// "Too big" about a segment that was never sent, by a router that does not exist. RFC 5927
    /// 4.1: one about a number that is not in flight says nothing; one that happens to be is not
    /// sent.
    fn too_big(&mut self, bytes: &[u8], s: &TcpSegment, own: Option<Said>) -> Option<Vec<u8>> {
        if own.is_some_and(|o| s.seq.after_eq(o.isn) && s.seq.before_eq(o.nxt)) {
            return None;
        }
        let mut error = Vec::new();
        let from = router_address(200, !s.ip.is_v4());
        icmp::build_packet_too_big(bytes, from, self.rng.pick(&[68, 552, 1_280]), &mut error).ok()?;
        Some(error)
    }
}

fn ends(victim: &[Endpoint; 2], from_client: bool) -> [Endpoint; 2] {
    if from_client { *victim } else { [victim[1], victim[0]] }
}

/// Whether the host that this is for might take it (RFC 9293 3.10.7.4, RFC 5961), wherever it
/// stands just now, if windows are as large as gateways may show them.
fn would_be_taken(s: &TcpSegment, own: Option<Said>, other: Option<Said>, window_max: u32) -> bool {
    let (Some(own), Some(other)) = (own, other) else {
        // The handshake is under way: a reset that names its number, or its answer.
        return s.flags.any(Flags::RST | Flags::SYN | Flags::ACK);
    };
    let acked = other.acked.unwrap_or(own.isn);
    if s.flags.rst() {
        return s.seq.after_eq(acked) && s.seq.before_eq(own.nxt + SOON_BYTES);
    }
    if s.flags.syn() {
        // The answer to a SYN that the client has just sent.
        return s.flags.ack() && s.ack.after_eq(other.isn) && s.ack.before_eq(other.nxt + SOON_BYTES);
    }
    if s.seq.after_eq(acked) && s.seq.before_eq(own.nxt) {
        // It may be the very next number. Who has that may as well reset the connection.
        return true;
    }
    let edge = own.nxt + SOON_BYTES + other.window_max.max(window_max);
    // A gateway answers duplicates, and takes urgent pointers from them, where they are no older
    // than its window.
    let oldest = acked - own.window_max.max(window_max);
    let in_window = s.end_seq().after_eq(oldest) && s.seq.before_eq(edge);
    let oldest = own.acked.unwrap_or(other.isn) - own.window_max.max(window_max) - SUPER_SEGMENT_BYTES;
    in_window && s.ack.after_eq(oldest) && s.ack.before_eq(other.nxt + SOON_BYTES)
}

impl Host for Spoofer {
    fn receive(&mut self, _: Instant, _: &[u8]) {}

    fn run(&mut self, now: Instant) {
        self.now = now;
        if self.next.is_none_or(|at| at > now) {
            return;
        }
        self.left = self.left.saturating_sub(1);
        let goes_on = self.left > 0 && now < Instant::ZERO + ATTACK_ENDS;
        self.next = goes_on.then(|| now + self.plan.every);
        if let Some(bytes) = self.forge() {
            self.out.push_back(bytes);
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.next
    }

    fn is_finished(&self) -> bool {
        true
    }

    fn ends(&self) -> Vec<End> {
        Vec::new()
    }

    fn is_hostile(&self) -> bool {
        true
    }

    fn overhear(&mut self, now: Instant, bytes: &[u8]) {
        self.now = now;
        let Some(s) = tcp(bytes).filter(|s| !s.flags.rst()) else { return };
        let key = ((s.ip.src, s.src_port), (s.ip.dst, s.dst_port));
        let said = self.said.entry(key).or_insert(Said {
            isn: s.seq,
            nxt: s.end_seq(),
            acked: None,
            shift: 0,
            window_max: 65_535,
            stamp: None,
            open_since: None,
        });
        if s.flags.syn() {
            *said = Said {
                isn: s.seq,
                nxt: s.end_seq(),
                shift: s.options.window_scale.unwrap_or(0).min(14),
                ..*said
            };
        } else {
            said.window_max = said.window_max.max(u32::from(s.window) << said.shift);
        }
        said.nxt = said.nxt.max(s.end_seq());
        if s.flags.ack() {
            said.acked = Some(said.acked.map_or(s.ack, |a| a.max(s.ack)));
            if !s.flags.syn() {
                said.open_since.get_or_insert(self.now);
            }
        }
        said.stamp = s.options.timestamps.map(|t| t.val).or(said.stamp);
    }
}
