//! What the hosts send: a byte stream that anyone who knows the connection can compute at any
//! offset, so that every payload byte on every leg can be checked, without keeping any of it.

use std::net::IpAddr;

/// One end of a connection.
pub type Endpoint = (IpAddr, u16);

/// The stream of one direction of one incarnation of a connection. The sender's ISN is part of its
/// name: bytes of an earlier connection with the same addresses and ports are other bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream(u64);

const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Stream {
    /// What `from` sends to `to` when its SYN has the sequence number `isn`.
    #[must_use]
    pub fn new(from: Endpoint, to: Endpoint, isn: u32) -> Self {
        let mut key = mix(u64::from(isn) + 1);
        for (addr, port) in [from, to] {
            let word = |w: &[u8]| w.iter().fold(0u64, |h, b| (h << 8) | u64::from(*b));
            let (high, low) = match addr {
                IpAddr::V4(a) => (4, word(&a.octets())),
                IpAddr::V6(a) => (word(&a.octets()[..8]), word(&a.octets()[8..])),
            };
            key = mix(key ^ high);
            key = mix(key ^ low);
            key = mix(key ^ u64::from(port));
        }
        Self(key)
    }

    fn word(self, index: u64) -> [u8; 8] {
        // One multiplication a word: a check must cost less than the copy that it checks.
        let x = (index ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 29)).to_le_bytes()
    }

    /// Writes the bytes from `offset` on (0 is the first byte after the SYN).
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let word = self.word(at / 8);
            let from = (at % 8) as usize;
            let n = (8 - from).min(rest.len());
            let (head, tail) = rest.split_at_mut(n);
            head.copy_from_slice(&word[from..from + n]);
            rest = tail;
            at += n as u64;
        }
    }

    /// Where `data`, which should stand at `offset`, differs for the first time.
    #[must_use]
    pub fn first_difference(self, offset: u64, data: &[u8]) -> Option<usize> {
        let (mut at, mut done) = (offset, 0);
        while done < data.len() {
            let word = self.word(at / 8);
            let from = (at % 8) as usize;
            let n = (8 - from).min(data.len() - done);
            if data[done..done + n] != word[from..from + n] {
                return (0..n).find(|i| data[done + i] != word[from + i]).map(|i| done + i);
            }
            done += n;
            at += n as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_agrees_with_the_whole() {
        let (a, b) = (("10.0.0.1".parse().unwrap(), 1), ("fd00::1".parse().unwrap(), 2));
        let s = Stream::new(a, b, 77);
        let mut whole = [0u8; 200];
        s.fill(0, &mut whole);
        for from in 0..40 {
            for len in 0..60 {
                let mut piece = vec![0u8; len];
                s.fill(from as u64, &mut piece);
                assert_eq!(piece, whole[from..from + len]);
                assert_eq!(s.first_difference(from as u64, &piece), None);
                if len > 20 {
                    piece[20] ^= 1;
                    assert_eq!(s.first_difference(from as u64, &piece), Some(20));
                }
            }
        }
        for other in [Stream::new(b, a, 77), Stream::new(a, b, 78)] {
            assert!(other.first_difference(0, &whole).is_some());
        }
    }
}
