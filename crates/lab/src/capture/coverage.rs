//! Which bytes of a stream were seen, and a fingerprint of them that does not depend on how they
//! were cut.

/// Bytes of stream that share a fingerprint.
pub const BLOCK_BYTES: u64 = 16 << 10;
/// Bound on separate pieces; beyond it a stream is no longer followed.
const PIECES_MAX: usize = 4096;
/// So much of the beginning of a stream is kept, to see whether it is repeated with other bytes.
const KEPT_BYTES: u64 = 64 << 10;
/// Bound on blocks: 16 GiB of stream.
const BLOCKS_MAX: usize = 1 << 20;

/// A part of a stream, from 0 on.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Pieces seen, in order, apart from each other.
    pieces: Vec<(u64, u64)>,
    blocks: Vec<Block>,
    overlapping: u64,
    /// Its beginning, as it was seen first.
    kept: Vec<u8>,
    is_contradicted: bool,
    is_lost: bool,
    /// Of some bytes only the number is known.
    has_unseen: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Block {
    sum: u64,
    bytes: u32,
}

/// A number for each place in a block; odd, so that no byte value vanishes.
fn weight(place: u64) -> u64 {
    let mut z = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 31)) | 1
}

impl Coverage {
    /// Takes bytes that stand at `start`; of those seen before only the number counts.
    pub fn add(&mut self, start: u64, data: &[u8]) {
        self.cover(start, data.len() as u64, Some(data));
    }

    /// Takes bytes that stand at `start` of which only the number is known: where, but not what
    /// they are.
    pub fn add_unseen(&mut self, start: u64, bytes: u64) {
        self.has_unseen |= bytes > 0;
        self.cover(start, bytes, None);
    }

    fn cover(&mut self, start: u64, bytes: u64, data: Option<&[u8]>) {
        let end = start + bytes;
        if bytes == 0 || self.is_lost {
            return;
        }
        if (end / BLOCK_BYTES) as usize >= BLOCKS_MAX || self.pieces.len() >= PIECES_MAX {
            self.is_lost = true;
            return;
        }
        // The pieces that touch the new one.
        let from = self.pieces.partition_point(|p| p.1 < start);
        let to = self.pieces.partition_point(|p| p.0 <= end);
        let mut at = start;
        let mut fresh = 0;
        for i in from..to {
            let (a, b) = self.pieces[i];
            if at < a {
                fresh += a - at;
                if let Some(data) = data {
                    self.mix(at, &data[(at - start) as usize..(a - start) as usize]);
                }
            }
            if let Some(data) = data {
                let (again, upto) = (start.max(a), end.min(b));
                self.compare(again, data.get((again - start) as usize..(upto.max(start) - start) as usize));
            }
            at = at.max(b);
        }
        if at < end {
            fresh += end - at;
            if let Some(data) = data {
                self.mix(at, &data[(at - start) as usize..]);
            }
        }
        self.overlapping += bytes - fresh;
        let joined = self.pieces[from..to]
            .iter()
            .fold((start, end), |joined, piece| (joined.0.min(piece.0), joined.1.max(piece.1)));
        self.pieces.splice(from..to, [joined]);
    }

    /// Bytes that have been seen before are seen again.
    fn compare(&mut self, at: u64, again: Option<&[u8]>) {
        let first = self.kept.iter().skip(at as usize);
        self.is_contradicted |= first.zip(again.unwrap_or_default()).any(|(a, b)| a != b);
    }

    fn keep(&mut self, at: u64, data: &[u8]) {
        let end = KEPT_BYTES.min(at + data.len() as u64) as usize;
        if let Some(wanted) = end.checked_sub(at as usize).filter(|n| *n > 0) {
            self.kept.resize(self.kept.len().max(end), 0);
            self.kept[at as usize..end].copy_from_slice(&data[..wanted]);
        }
    }

    fn mix(&mut self, mut at: u64, mut data: &[u8]) {
        self.keep(at, data);
        while !data.is_empty() {
            let number = (at / BLOCK_BYTES) as usize;
            let place = at % BLOCK_BYTES;
            let n = ((BLOCK_BYTES - place) as usize).min(data.len());
            if self.blocks.len() <= number {
                self.blocks.resize(number + 1, Block::default());
            }
            let block = &mut self.blocks[number];
            let (now, later) = data.split_at(n);
            for (byte, place) in now.iter().zip(place..) {
                block.sum = block.sum.wrapping_add((u64::from(*byte) + 1).wrapping_mul(weight(place)));
            }
            block.bytes += n as u32;
            data = later;
            at += n as u64;
        }
    }

    /// Bytes seen, each once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|p| p.1 - p.0).sum()
    }

    /// Bytes seen again.
    #[must_use]
    pub fn overlapping_bytes(&self) -> u64 {
        self.overlapping
    }

    /// Whether a part of its beginning was seen with other bytes than before: then either may be
    /// what its receiver takes.
    #[must_use]
    pub fn is_contradicted(&self) -> bool {
        self.is_contradicted
    }

    /// Whether a bound was reached, so that nothing is known any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// One past the last byte seen.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |p| p.1)
    }

    /// The first byte seen here and not in `all`.
    #[must_use]
    pub fn first_outside(&self, all: &Self) -> Option<u64> {
        self.pieces.iter().find_map(|(a, b)| match all.pieces.iter().find(|p| p.0 <= *a && *a < p.1) {
            Some(p) if p.1 >= *b => None,
            Some(p) => Some(p.1),
            None => Some(*a),
        })
    }

    /// The start of a block in which both saw the same places and yet not the same bytes. Of what
    /// was said in two ways nothing is known, nor where parts of a block have not been seen: one
    /// may have seen this part and the other one that.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<u64> {
        let says_nothing = |c: &Self| c.is_lost || c.is_contradicted || c.has_unseen;
        if says_nothing(self) || says_nothing(other) {
            return None;
        }
        self.blocks.iter().zip(&other.blocks).zip(0u64..).find_map(|((a, b), number)| {
            let start = number * BLOCK_BYTES;
            let comparable = a.bytes == b.bytes
                && (u64::from(a.bytes) == BLOCK_BYTES
                    || (self.is_prefix_of_block(start, a) && other.is_prefix_of_block(start, b)));
            (comparable && a.sum != b.sum).then_some(start)
        })
    }

    /// Whether what was seen of a block is its beginning.
    fn is_prefix_of_block(&self, start: u64, block: &Block) -> bool {
        let end = start + u64::from(block.bytes);
        self.pieces.iter().any(|p| p.0 <= start && end <= p.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251) as u8).collect()
    }

    fn of(pieces: &[(usize, usize)], data: &[u8]) -> Coverage {
        let mut coverage = Coverage::default();
        for (a, b) in pieces {
            coverage.add(*a as u64, &data[*a..*b]);
        }
        coverage
    }

    /// As of a capture that keeps the headers: of short packets it has all, and each side of a
    /// gateway has others.
    #[test]
    fn what_was_seen_in_part_is_no_difference() {
        let data = data(20_000);
        let short_at = |at: usize| {
            let mut coverage = of(&[(at, at + 100)], &data);
            coverage.add_unseen(0, 20_000);
            coverage
        };
        assert_eq!(short_at(300).first_difference(&short_at(700)), None);
    }

    #[test]
    fn cuts_order_and_repetitions_do_not_matter() {
        let data = data(100_000);
        let whole = of(&[(0, 100_000)], &data);
        let cut = of(&[(50_000, 100_000), (0, 1), (1, 30_000), (20_000, 70_000), (0, 10)], &data);
        assert_eq!(whole.first_difference(&cut), None);
        assert_eq!((cut.bytes(), cut.end()), (100_000, 100_000));
        assert_eq!(cut.overlapping_bytes(), 10_000 + 20_000 + 10);
        assert_eq!(whole.blocks, cut.blocks);
    }

    #[test]
    fn one_other_byte_is_found_and_so_are_two_swapped_ones() {
        let good = data(100_000);
        let whole = of(&[(0, 100_000)], &good);
        for (a, b) in [(40_000, 40_001), (70_000, 70_000), (99_999, 99_998)] {
            let mut bad = good.clone();
            if a == b {
                bad[a] ^= 1
            } else {
                bad.swap(a, b)
            }
            let found = whole.first_difference(&of(&[(0, 100_000)], &bad));
            assert_eq!(found, Some(a as u64 / BLOCK_BYTES * BLOCK_BYTES));
        }
    }

    #[test]
    fn of_unseen_bytes_the_places_count() {
        let mut coverage = Coverage::default();
        coverage.add_unseen(0, 5 << 30);
        coverage.add_unseen(5 << 30, 1000);
        coverage.add_unseen(100, 50);
        assert_eq!((coverage.bytes(), coverage.overlapping_bytes()), ((5 << 30) + 1000, 50));
        assert!(coverage.blocks.is_empty() && !coverage.is_lost());
        let came = of(&[(0, 1000)], &data(1000));
        assert_eq!((coverage.first_outside(&came), coverage.first_difference(&came)), (Some(1000), None));
    }

    #[test]
    fn what_never_came_in_is_found() {
        let data = data(1000);
        let all = of(&[(0, 300), (400, 1000)], &data);
        assert_eq!(of(&[(0, 200), (500, 1000)], &data).first_outside(&all), None);
        assert_eq!(of(&[(200, 350)], &data).first_outside(&all), Some(300));
        assert_eq!(of(&[(350, 380)], &data).first_outside(&all), Some(350));
    }

    #[test]
    fn holes_are_no_difference() {
        let data = data(10_000);
        let (a, b) = (of(&[(0, 4000), (5000, 9000)], &data), of(&[(1000, 9000)], &data));
        assert_eq!(a.first_difference(&b), None);
    }

    #[test]
    fn who_says_two_things_is_found_and_neither_is_wrong() {
        let (one, mut two) = (data(1000), data(1000));
        two[500] ^= 1;
        let mut said = of(&[(400, 600)], &one);
        said.add(0, &two[..450]);
        assert!(!said.is_contradicted(), "the same bytes again");
        said.add(450, &two[450..]);
        assert!(said.is_contradicted());
        for taken in [one, two] {
            assert_eq!(of(&[(0, 1000)], &taken).first_difference(&said), None);
        }
    }

    #[test]
    fn bounds_hold() {
        let mut coverage = Coverage::default();
        for i in 0..10_000 {
            coverage.add(i * 10, &[1]);
        }
        assert!(coverage.is_lost() && coverage.pieces.len() <= PIECES_MAX);
    }
}
