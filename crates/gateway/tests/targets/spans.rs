//! Sets of sequence numbers, on the circle of 2^32.

/// Disjoint ranges `[start, end)` in order, cut at 2^32.
#[derive(Clone, Debug, Default)]
pub struct Spans(Vec<(u64, u64)>);

const CIRCLE: u64 = 1 << 32;

/// `len` numbers from `start` on, in one or two pieces.
fn pieces(start: u32, len: u64) -> [(u64, u64); 2] {
    let (start, end) = (u64::from(start), u64::from(start) + len);
    [(start, end.min(CIRCLE)), (0, end.saturating_sub(CIRCLE))]
}

impl Spans {
    pub fn add(&mut self, start: u32, len: u64) {
        for (from, to) in pieces(start, len) {
            if from < to {
                let first = self.0.partition_point(|r| r.1 < from);
                let end = self.0.partition_point(|r| r.0 <= to);
                let joined = self.0[first..end].iter().fold((from, to), |j, r| (j.0.min(r.0), j.1.max(r.1)));
                self.0.splice(first..end, [joined]);
            }
        }
    }

    pub fn remove(&mut self, start: u32, len: u64) {
        for (from, to) in pieces(start, len) {
            if from < to {
                let keep = |&(a, b): &(u64, u64)| [(a, b.min(from)), (a.max(to), b)];
                self.0 = self.0.iter().flat_map(keep).filter(|r| r.0 < r.1).collect();
            }
        }
    }

    pub fn contains(&self, start: u32, len: u64) -> bool {
        pieces(start, len).into_iter().all(|(from, to)| {
            from >= to || {
                let i = self.0.partition_point(|r| r.1 <= from);
                self.0.get(i).is_some_and(|r| r.0 <= from && to <= r.1)
            }
        })
    }

    /// What of these numbers is not in the set, as start and length.
    pub fn missing(&self, start: u32, len: u64) -> Vec<(u32, u64)> {
        let mut rest = Self::default();
        rest.add(start, len);
        for &(a, b) in &self.0 {
            rest.remove(a as u32, b - a);
        }
        rest.0.into_iter().map(|(a, b)| (a as u32, b - a)).collect()
    }

    /// `at` is one of the numbers, or the one behind a range of them.
    pub fn touches(&self, at: u32) -> bool {
        self.contains(at, 1) || self.contains(at.wrapping_sub(1), 1)
    }

    /// How many numbers without a gap end before `at`.
    pub fn run_before(&self, at: u32) -> u64 {
        let mut run = 0;
        while run < CIRCLE {
            let last = u64::from(at.wrapping_sub(run as u32).wrapping_sub(1));
            let i = self.0.partition_point(|r| r.1 <= last);
            match self.0.get(i) {
                Some(r) if r.0 <= last => run += last + 1 - r.0,
                _ => break,
            }
        }
        run
    }
}

#[test]
fn spans_agree_with_a_bitmap() {
    let mut x = 1u64;
    let mut random = move |n: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % n
    };
    for _ in 0..300 {
        // A window of 100 numbers round zero.
        let at = |i: usize| (i as u32).wrapping_sub(50);
        let (mut bits, mut set) = ([false; 100], Spans::default());
        for _ in 0..12 {
            let from = random(100) as usize;
            let len = random(100 - from as u64) as usize;
            let put = random(3) > 0;
            bits[from..from + len].fill(put);
            if put { set.add(at(from), len as u64) } else { set.remove(at(from), len as u64) }
        }
        for i in 0..100 {
            assert_eq!(set.contains(at(i), 1), bits[i]);
            assert_eq!(set.run_before(at(i)), bits[..i].iter().rev().take_while(|b| **b).count() as u64);
        }
        let gaps: u64 = set.missing(at(0), 100).iter().map(|m| m.1).sum();
        assert_eq!(gaps, bits.iter().filter(|b| !**b).count() as u64);
    }
}
