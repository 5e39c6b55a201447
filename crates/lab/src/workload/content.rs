//! Bytes that everybody can compute: any piece of a seeded stream, without the pieces before it.

use sha2::{Digest, Sha256};

/// Writes the bytes of stream `seed` from `offset` on.
pub fn fill(seed: u64, offset: u64, out: &mut [u8]) {
    let mut at = offset;
    let mut rest = out;
    while !rest.is_empty() {
        let word = word(seed, at / 8).to_le_bytes();
        let from = (at % 8) as usize;
        let n = (8 - from).min(rest.len());
        let (now, later) = rest.split_at_mut(n);
        now.copy_from_slice(&word[from..from + n]);
        at += n as u64;
        rest = later;
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014), addressed by position.
fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add((index.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Checks a stream as it arrives, and takes its SHA-256.
pub struct Check {
    seed: u64,
    bytes: u64,
    sha: Sha256,
    expected_sha: Sha256,
    first_difference: Option<u64>,
    expected: Vec<u8>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check")
            .field("bytes", &self.bytes)
            .field("first_difference", &self.first_difference)
            .finish_non_exhaustive()
    }
}

impl Check {
    /// A check of stream `seed` from its beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            bytes: 0,
            sha: Sha256::new(),
            expected_sha: Sha256::new(),
            first_difference: None,
            expected: Vec::new(),
        }
    }

    /// Takes what has arrived.
    pub fn take(&mut self, data: &[u8]) {
        self.expected.resize(data.len(), 0);
        fill(self.seed, self.bytes, &mut self.expected);
        if self.first_difference.is_none()
            && let Some(at) = data.iter().zip(&self.expected).position(|(a, b)| a != b)
        {
            self.first_difference = Some(self.bytes + at as u64);
        }
        self.sha.update(data);
        self.expected_sha.update(&self.expected);
        self.bytes += data.len() as u64;
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where what arrived first differs from what was sent.
    #[must_use]
    pub fn first_difference(&self) -> Option<u64> {
        self.first_difference
    }

    /// SHA-256 of what arrived, and whether it is that of what was sent.
    #[must_use]
    pub fn finish(self) -> ([u8; 32], bool) {
        let sha: [u8; 32] = self.sha.finalize().into();
        let same = sha == <[u8; 32]>::from(self.expected_sha.finalize());
        (sha, same)
    }
}

/// Hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join() {
        let mut whole = vec![0; 1000];
        fill(7, 0, &mut whole);
        for (from, len) in [(0, 1), (3, 20), (8, 8), (999, 1), (5, 0), (123, 877)] {
            let mut piece = vec![0; len];
            fill(7, from as u64, &mut piece);
            assert_eq!(piece, whole[from..from + len]);
        }
        let mut other = vec![0; 1000];
        fill(8, 0, &mut other);
        assert_ne!(whole, other);
    }

    #[test]
    fn a_changed_or_swapped_byte_is_found() {
        let mut data = vec![0; 5000];
        fill(1, 0, &mut data);
        let check = |data: &[u8]| {
            let mut check = Check::new(1);
            data.chunks(777).for_each(|c| check.take(c));
            (check.first_difference(), check.finish().1)
        };
        assert_eq!(check(&data), (None, true));
        data.swap(3000, 3001);
        assert_eq!(check(&data), (Some(3000), false));
    }
}
