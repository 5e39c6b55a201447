//! The durable part of a flow: plain data with fixed offsets, kept where it survives the process.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farlink_wire::SeqNum;

use crate::net::IfaceId;

/// Bytes of an encoded [`Record`].
pub const RECORD_BYTES: usize = 64;
const MAGIC: u8 = 0xF1;
/// A record is renewed when its numbers are farther off than this.
pub(crate) const RECORD_STALE_BYTES: u32 = 1 << 18;

/// Names a connection whose bytes the gateway holds, well enough to reset it after the holder has
/// died. Encoding, big-endian: magic, version (4 or 6), iface a, iface b, address a (16), address b
/// (16), port a, port b, seq a, seq b, reach (4), 4 spare bytes, 8 bytes checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Interface by which packets of host A come in.
    pub iface_a: IfaceId,
    /// Interface by which packets of host B come in.
    pub iface_b: IfaceId,
    /// Address and port of host A (the one that sent the SYN).
    pub a: (IpAddr, u16),
    /// Address and port of host B.
    pub b: (IpAddr, u16),
    /// What host A last acknowledged when the record was written: near B's next sequence number at
    /// A.
    pub acked_by_a: SeqNum,
    /// What host B last acknowledged.
    pub acked_by_b: SeqNum,
    /// How far from these the numbers of its segments can be, bytes.
    pub reach_bytes: u32,
}

fn octets(a: IpAddr) -> [u8; 16] {
    match a {
        IpAddr::V4(v) => v.to_ipv6_mapped().octets(),
        IpAddr::V6(v) => v.octets(),
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

impl Record {
    /// The journal should say something else: custody began or ended, or the numbers have moved far
    /// enough for the connection to look like a stranger after a restart.
    #[must_use]
    pub(crate) fn is_news(journaled: Option<&Self>, now: Option<&Self>) -> bool {
        match (journaled, now) {
            (None, None) => false,
            (Some(old), Some(new)) => {
                let moved = |a: SeqNum, b: SeqNum| a.diff(b).unsigned_abs() > RECORD_STALE_BYTES;
                moved(new.acked_by_a, old.acked_by_a)
                    || moved(new.acked_by_b, old.acked_by_b)
                    || new.reach_bytes > old.reach_bytes
            }
            _ => true,
        }
    }

    /// To its fixed form.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0u8; RECORD_BYTES];
        let version = if self.a.0.is_ipv4() { 4u8 } else { 6 };
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            if let Some(slot) = out.get_mut(at..at + bytes.len()) {
                slot.copy_from_slice(bytes);
            }
            at += bytes.len();
        };
        put(&[MAGIC, version]);
        put(&self.iface_a.0.to_be_bytes());
        put(&self.iface_b.0.to_be_bytes());
        put(&octets(self.a.0));
        put(&octets(self.b.0));
        put(&self.a.1.to_be_bytes());
        put(&self.b.1.to_be_bytes());
        put(&self.acked_by_a.0.to_be_bytes());
        put(&self.acked_by_b.0.to_be_bytes());
        put(&self.reach_bytes.to_be_bytes());
        let (body, sum) = out.split_at_mut(RECORD_BYTES - 8);
        sum.copy_from_slice(&checksum(body).to_be_bytes());
        out
    }

    /// From its fixed form; `None` for an empty or torn record.
    #[must_use]
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        let (&[magic, version], rest) = body.split_first_chunk::<2>()?;
        if magic != MAGIC || checksum(body) != u64::from_be_bytes(*sum) {
            return None;
        }
        let (ia, rest) = rest.split_first_chunk::<2>()?;
        let (ib, rest) = rest.split_first_chunk::<2>()?;
        let (oa, rest) = rest.split_first_chunk::<16>()?;
        let (ob, rest) = rest.split_first_chunk::<16>()?;
        let (pa, rest) = rest.split_first_chunk::<2>()?;
        let (pb, rest) = rest.split_first_chunk::<2>()?;
        let (sa, rest) = rest.split_first_chunk::<4>()?;
        let (sb, rest) = rest.split_first_chunk::<4>()?;
        let (reach, _) = rest.split_first_chunk::<4>()?;
        let addr = |o: &[u8; 16]| {
            let v6 = Ipv6Addr::from(*o);
            match version {
                4 => v6.to_ipv4_mapped().map(|v: Ipv4Addr| IpAddr::V4(v)),
                6 => Some(IpAddr::V6(v6)),
                _ => None,
            }
        };
        Some(Self {
            iface_a: IfaceId(u16::from_be_bytes(*ia)),
            iface_b: IfaceId(u16::from_be_bytes(*ib)),
            a: (addr(oa)?, u16::from_be_bytes(*pa)),
            b: (addr(ob)?, u16::from_be_bytes(*pb)),
            acked_by_a: SeqNum(u32::from_be_bytes(*sa)),
            acked_by_b: SeqNum(u32::from_be_bytes(*sb)),
            reach_bytes: u32::from_be_bytes(*reach),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_torn_records() {
        for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let r = Record {
                iface_a: IfaceId(1),
                iface_b: IfaceId(2),
                a: (a.parse().unwrap(), 40000),
                b: (b.parse().unwrap(), 80),
                acked_by_a: SeqNum(7),
                acked_by_b: SeqNum(u32::MAX),
                reach_bytes: 1 << 20,
            };
            let bytes = r.encode();
            assert_eq!(Record::decode(&bytes), Some(r));
            for i in 0..RECORD_BYTES - 12 {
                let mut torn = bytes;
                torn[i] ^= 0x55;
                assert_eq!(Record::decode(&torn), None, "byte {i}");
            }
        }
        assert_eq!(Record::decode(&[0; RECORD_BYTES]), None);
    }
}
