//! Sets of byte ranges.

/// Disjoint ranges in order. Neighbours are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds `from..to`.
    pub fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        if let Some(last) = self.0.last_mut()
            && (last.0..=last.1).contains(&from)
        {
            last.1 = last.1.max(to);
            return;
        }
        let first = self.0.partition_point(|r| r.1 < from);
        let end = self.0.partition_point(|r| r.0 <= to);
        let joined = self.0[first..end].iter().fold((from, to), |j, r| (j.0.min(r.0), j.1.max(r.1)));
        self.0.splice(first..end, [joined]);
    }

    /// The end of the unbroken stretch that begins at `from`; `from` itself if there is none.
    #[must_use]
    pub fn unbroken_end(&self, from: u64) -> u64 {
        let i = self.0.partition_point(|r| r.1 < from);
        self.0.get(i).filter(|r| r.0 <= from).map_or(from, |r| r.1.max(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn agrees_with_a_bitmap() {
        let mut rng = Rng::new(1, "ranges");
        for _ in 0..200 {
            let mut bits = [false; 200];
            let mut set = Ranges::default();
            for _ in 0..20 {
                let from = rng.range(0, 200);
                let to = rng.range(from, 200);
                set.add(from, to);
                bits[from as usize..to as usize].fill(true);
            }
            for from in 0..200 {
                let end = (from..200).find(|i| !bits[*i]).unwrap_or(200);
                assert_eq!(set.unbroken_end(from as u64), end as u64);
            }
            assert!(set.0.windows(2).all(|w| w[0].1 < w[1].0), "{set:?}");
        }
    }
}
