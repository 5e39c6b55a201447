//! How often the same payload has left a place again, at most.

use std::collections::HashMap;

/// Payload is counted in pieces of so many bytes, those that a segment covers as a whole.
const PIECE_BYTES: u64 = 500;
/// Pieces that are remembered at most.
const PIECES_MAX: usize = 1 << 20;

/// What one direction of one connection, or of several, has sent again.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    times: HashMap<u64, u32>,
    /// The most times any piece has left again.
    pub most: u32,
}

impl Repeats {
    /// This much from `start` on leaves again.
    pub fn note(&mut self, start: u64, bytes: u64) {
        for piece in start.div_ceil(PIECE_BYTES)..(start + bytes) / PIECE_BYTES {
            if self.times.len() >= PIECES_MAX && !self.times.contains_key(&piece) {
                return;
            }
            let times = self.times.entry(piece).or_default();
            *times += 1;
            self.most = self.most.max(*times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_piece_that_left_most_often_counts() {
        let mut repeats = Repeats::default();
        repeats.note(0, 1_448);
        repeats.note(1_448, 1_448);
        assert_eq!(repeats.most, 1);
        repeats.note(900, 1_300);
        repeats.note(1_000, 499);
        assert_eq!(repeats.most, 2, "cut elsewhere, and too little of a piece");
        repeats.note(1_500, 5_000);
        assert_eq!(repeats.most, 3);
    }
}
