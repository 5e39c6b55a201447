//! The gateway's secret: with it is made what nobody else may be able to compute.
//!
//! Places in a queue, and the identifications of datagrams that leave in fragments, are read by
//! strangers or chosen by them. A fixed hash of addresses and ports would tell a stranger which
//! of his own share a place with a victim's (an attack on fair queueing), and a count would tell
//! him which identification comes next (RFC 7739).

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Rounds of the permutation (Luby and Rackoff need four against who may ask both ways).
const ROUNDS: u64 = 4;

/// A key of SipHash-1-3, one for each use.
#[derive(Clone, Copy, Debug)]
pub struct Secret {
    key: (u64, u64),
}

/// What a secret is for: no two uses share a key.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Places in queues.
    Places,
    /// Identifications of what leaves whole.
    Whole,
    /// Identifications of what leaves in fragments.
    Fragments,
}

impl Secret {
    /// That of a gateway with this seed; the same seed gives the same one.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let from_seed = Self { key: (seed, seed.rotate_left(32) ^ 0x1d50_f1b4_ac4e_75d3) };
        let part = |n| from_seed.hash(&[purpose as u64, n]);
        Self { key: (part(0), part(1)) }
    }

    /// SipHash-1-3 of these words.
    pub fn hash(self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }

    /// `n` by a permutation of 16 bits, another one for each `of`.
    pub fn permute_u16(self, of: u64, n: u16) -> u16 {
        let [left, right] = n.to_be_bytes();
        let (left, right) = self.feistel(of, (left.into(), right.into()), 0xff);
        u16::from_be_bytes([left as u8, right as u8])
    }

    /// `n` by a permutation of 32 bits, another one for each `of`.
    pub fn permute_u32(self, of: u64, n: u32) -> u32 {
        let (left, right) = self.feistel(of, (u64::from(n >> 16), u64::from(n & 0xffff)), 0xffff);
        (left << 16 | right) as u32
    }

    /// A Feistel network of two halves under `mask`.
    fn feistel(self, of: u64, halves: (u64, u64), mask: u64) -> (u64, u64) {
        (0..ROUNDS)
            .fold(halves, |(left, right), round| (right, (left ^ self.hash(&[of, round, right])) & mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_siphash_with_its_key() {
        // The reference implementation's key, and eight bytes of its message (Aumasson, Bernstein).
        let secret = Secret { key: (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908) };
        let mut of_bytes = SipHasher13::new_with_keys(secret.key.0, secret.key.1);
        of_bytes.write(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(secret.hash(&[0x0706_0504_0302_0100]), of_bytes.finish());
    }

    #[test]
    fn seeds_and_purposes_share_no_key() {
        let key = |seed, purpose| Secret::new(seed, purpose).key;
        let mut keys: Vec<_> = (0..1_000)
            .flat_map(|seed| [Purpose::Places, Purpose::Whole, Purpose::Fragments].map(|p| key(seed, p)))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 3_000);
    }

    #[test]
    fn a_permutation_has_each_number_once_and_no_order() {
        let secret = Secret::new(7, Purpose::Fragments);
        let all: Vec<u16> = (0..=u16::MAX).map(|n| secret.permute_u16(1, n)).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..=u16::MAX));
        let steps = all.windows(2).filter(|w| w[1].wrapping_sub(w[0]) == 1).count();
        assert!(steps < 10, "{steps} of 65,535 follow the one before; by chance one does");
        let same = (0..=u16::MAX).filter(|n| secret.permute_u16(2, *n) == secret.permute_u16(1, *n)).count();
        assert!(same < 10, "{same} are the same for another pair");
        let mut wide: Vec<u32> = (0..100_000).map(|n| secret.permute_u32(1, n)).collect();
        wide.sort_unstable();
        wide.dedup();
        assert_eq!(wide.len(), 100_000);
        let halves = wide.iter().filter(|n| **n < 1 << 31).count();
        assert!((49_000..51_000).contains(&halves), "{halves}");
    }
}
