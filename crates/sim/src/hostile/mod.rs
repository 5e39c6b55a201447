//! Hosts that lie, beside hosts that do not.
//!
//! A run has honest connections between two hosts with Linux's habits, and attackers: hosts that
//! speak a TCP of lies on connections of their own ([`liar`]), and senders who speak in the honest
//! hosts' names without hearing them ([`spoofer`]). The honest connections are run twice, with the
//! attackers and without ([`run`]). Their bytes must be exact, they must not become slower, and the
//! gateways must stay within their bounds and hold nothing in the end.
//!
//! What a gateway says in an honest host's name is judged by the observer, as in all runs. What
//! liars say, and what is said to them, is judged by nobody.

mod beside;
pub mod blind;
pub mod day;
pub mod liar;
mod lies;
pub mod plan;
pub mod planted;
pub mod run;
pub mod spoofer;
pub mod work;

use std::collections::BTreeSet;
use std::net::IpAddr;

use farlink_wire::{Flags, Parsed, TcpSegment, parse};

use crate::packet::{hash, tcp};

/// By so many bytes at its end a fragment or an error is known again.
const REST_BYTES: usize = 24;

/// Whose word counts for nothing.
#[derive(Debug, Default)]
pub struct Hostile {
    /// Addresses of hosts that lie.
    liars: BTreeSet<IpAddr>,
    /// Segments in the name of an honest host that it did not send: as they left.
    forged: BTreeSet<u64>,
    /// The same, by what a gateway never edits.
    forged_cores: BTreeSet<u64>,
    /// Fragments and errors in the name of others: by their length and end.
    forged_rests: BTreeSet<u64>,
}

fn ends(s: &TcpSegment) -> u64 {
    let mut h = u64::from(s.src_port) << 16 | u64::from(s.dst_port);
    for address in [s.ip.src, s.ip.dst] {
        h = match address {
            IpAddr::V4(a) => hash(h, &a.octets()),
            IpAddr::V6(a) => hash(h, &a.octets()),
        };
    }
    h
}

fn core_of(bytes: &[u8], s: &TcpSegment) -> u64 {
    let flags = s.flags.without(Flags::AE).0;
    hash(ends(s) ^ u64::from(s.seq.0) << 16 ^ u64::from(flags), s.payload(bytes))
}

fn whole_of(bytes: &[u8], s: &TcpSegment) -> u64 {
    let stamps = s.options.timestamps.map_or(0, |t| u64::from(t.val) << 32 | u64::from(t.ecr));
    hash(core_of(bytes, s) ^ u64::from(s.ack.0) << 16 ^ u64::from(s.window), &stamps.to_le_bytes())
}

fn rest_of(bytes: &[u8]) -> u64 {
    hash(bytes.len() as u64, &bytes[bytes.len().saturating_sub(REST_BYTES)..])
}

impl Hostile {
    /// All that comes from this address, or goes there, is nobody's concern.
    pub fn add_liar(&mut self, address: IpAddr) {
        self.liars.insert(address);
    }

    /// An attacker sends a packet.
    pub fn note(&mut self, bytes: &[u8]) {
        let Some(s) = tcp(bytes) else {
            if !self.is_packet_of_liar(bytes) {
                self.forged_rests.insert(rest_of(bytes));
            }
            return;
        };
        if !self.is_of_liar(&s) {
            self.forged.insert(whole_of(bytes, &s));
            self.forged_cores.insert(core_of(bytes, &s));
        }
    }

    /// Something was forged, in whoever's name.
    #[must_use]
    pub fn has_forged(&self) -> bool {
        !self.forged.is_empty()
    }

    /// So were parts of something: with others they may make a segment that nobody has sent.
    #[must_use]
    pub fn has_forged_parts(&self) -> bool {
        !self.forged_rests.is_empty()
    }

    /// Between a liar and anybody.
    #[must_use]
    pub fn is_of_liar(&self, s: &TcpSegment) -> bool {
        !self.liars.is_empty() && (self.liars.contains(&s.ip.src) || self.liars.contains(&s.ip.dst))
    }

    /// Such a packet, of any kind.
    #[must_use]
    pub fn is_packet_of_liar(&self, bytes: &[u8]) -> bool {
        if self.liars.is_empty() {
            return false;
        }
        match parse(bytes) {
            Parsed::Tcp(s) => self.is_of_liar(&s),
            Parsed::Fragment(f) => self.liars.contains(&f.ip.src) || self.liars.contains(&f.ip.dst),
            _ => false,
        }
    }

    /// Forged, of any kind, by what a gateway never edits.
    #[must_use]
    pub fn is_packet_forged(&self, bytes: &[u8]) -> bool {
        match tcp(bytes) {
            Some(s) => self.is_forged_but_edited(bytes, &s),
            None => !self.forged_rests.is_empty() && self.forged_rests.contains(&rest_of(bytes)),
        }
    }

    /// A liar's, or forged.
    #[must_use]
    pub fn excludes(&self, bytes: &[u8], s: &TcpSegment) -> bool {
        self.is_of_liar(s) || (!self.forged.is_empty() && self.forged.contains(&whole_of(bytes, s)))
    }

    /// Forged, whatever a gateway has edited on its way.
    #[must_use]
    pub fn is_forged_but_edited(&self, bytes: &[u8], s: &TcpSegment) -> bool {
        !self.forged_cores.is_empty() && self.forged_cores.contains(&core_of(bytes, s))
    }
}
