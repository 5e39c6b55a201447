//! How often each of those whose time has come is served at one moment.

/// Turns of each in one call. What is still due then is due by a mistake of ours.
const TURNS_MAX: u32 = 64;

/// Serves all that are due, each in its turn: all of them once, then those that are due still once
/// more, and so on. Returns those that are due after all their turns, so that one call costs no
/// more than so many turns of each.
///
/// `next_due` takes the next one that has not had its first turn. `serve` says whether one is due
/// still; it is not to be found by `next_due` then.
pub fn serve_in_turns<S, K: Copy>(
    state: &mut S,
    next_due: impl Fn(&mut S) -> Option<K>,
    serve: impl Fn(&mut S, K) -> bool,
) -> Vec<K> {
    let mut again = Vec::new();
    while let Some(one) = next_due(state) {
        if serve(state, one) {
            again.push(one);
        }
    }
    for _ in 1..TURNS_MAX {
        if again.is_empty() {
            break;
        }
        again.retain(|one| serve(state, *one));
    }
    again
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const NOW: u64 = 1 << 40;

    /// Deadlines, and how often each was served.
    struct Flows {
        due: BTreeSet<(u64, usize)>,
        served: [u32; 3],
    }

    impl Flows {
        fn next_due(&mut self) -> Option<usize> {
            let (at, n) = self.due.first().copied()?;
            (at <= NOW).then(|| {
                self.due.pop_first();
                n
            })
        }

        /// The first two move their deadlines by a step, each past the other's and never near the
        /// present.
        fn serve(&mut self, n: usize) -> Option<u64> {
            self.served[n] += 1;
            (n < 2).then(|| 10 + u64::from(self.served[n]))
        }
    }

    /// They took turns, so neither was served often in a row, and everything behind them waited for
    /// ever.
    #[test]
    fn two_that_stay_due_keep_nobody_waiting() {
        let due = BTreeSet::from([(1, 0), (2, 1), (NOW, 2)]);
        let mut flows = Flows { due, served: [0; 3] };
        let left = serve_in_turns(&mut flows, Flows::next_due, |f, n| f.serve(n).is_some_and(|at| at <= NOW));
        assert_eq!(left, [0, 1]);
        assert_eq!(flows.served, [TURNS_MAX, TURNS_MAX, 1]);
        assert!(flows.due.is_empty());
    }

    /// Whose second turn ends the matter has no third.
    #[test]
    fn who_is_no_longer_due_is_left_alone() {
        let mut flows = Flows { due: BTreeSet::from([(1, 0), (NOW + 1, 1)]), served: [0; 3] };
        let left = serve_in_turns(&mut flows, Flows::next_due, |f, n| {
            f.serve(n);
            f.served[n] < 2
        });
        assert_eq!((left, flows.served), (Vec::new(), [2, 0, 0]));
        assert_eq!(flows.due.len(), 1);
    }
}
