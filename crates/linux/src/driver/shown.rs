//! By which bumped interface the kernel sends what goes from one host to another, and to which next
//! hop, as its packets have shown. Rules by mark, user, protocol or incoming interface, and
//! addresses that are translated, are in it, which a question about a route would miss.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::bump::Mac;

/// Entries after which it begins anew; about 90 bytes each.
const ENTRIES_MAX: usize = 16 * 1024;

/// Source and destination.
pub(crate) type Pair = (IpAddr, IpAddr);

/// What a packet has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// It left by this interface.
    pub(crate) interface: u32,
    /// To this next hop.
    pub(crate) next_hop: Option<Mac>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The way, and the generation of routes at that time.
    ways: HashMap<Pair, (Way, u64)>,
    /// What was noted last: most packets say the same again.
    last: Option<(Pair, (Way, u64))>,
    /// For these the kernel finds another next hop when it is asked, or none.
    hidden: HashMap<Pair, (Way, u64)>,
}

impl Shown {
    /// Whether that a packet left in this way is nothing new.
    pub(crate) fn is_last(&self, pair: Pair, way: Way, generation: u64) -> bool {
        self.last == Some((pair, (way, generation)))
    }

    /// A packet left in this way. `is_hidden`: the kernel does not say so when it is asked.
    pub(crate) fn note(&mut self, pair: Pair, way: Way, generation: u64, is_hidden: bool) {
        self.last = Some((pair, (way, generation)));
        if self.ways.len() >= ENTRIES_MAX {
            self.ways.clear();
            self.hidden.clear();
        }
        self.ways.insert(pair, (way, generation));
        if is_hidden {
            self.hidden.insert(pair, (way, generation));
        } else if !self.hidden.is_empty() {
            self.hidden.remove(&pair);
        }
    }

    /// The kernel had not answered when the last one was noted: the next packet asks again.
    pub(crate) fn ask_again(&mut self) {
        self.last = None;
    }

    /// By which interface such packets left, and whether no route has changed since then.
    pub(crate) fn interface(&self, pair: Pair, generation: u64) -> Option<(u32, bool)> {
        let (way, then) = self.ways.get(&pair)?;
        Some((way.interface, *then == generation))
    }

    /// The next hop of what leaves by this interface, where the kernel would not find it.
    pub(crate) fn next_hop(
        &self,
        pair: impl FnOnce() -> Option<Pair>,
        by: u32,
        generation: u64,
    ) -> Option<Mac> {
        if self.hidden.is_empty() {
            return None;
        }
        let (way, then) = self.hidden.get(&pair()?)?;
        way.next_hop.filter(|_| way.interface == by && *then == generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_before_routes_changed_is_old() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let way = Way { interface: 7, next_hop: Some([2; 6]) };
        let mut shown = Shown::default();
        shown.note((a, b), way, 1, false);
        assert!(shown.is_last((a, b), way, 1) && !shown.is_last((a, b), way, 2));
        assert_eq!(shown.interface((a, b), 1), Some((7, true)));
        assert_eq!(shown.interface((a, b), 2), Some((7, false)));
        assert_eq!(shown.interface((b, a), 1), None);
        assert_eq!(shown.next_hop(|| Some((a, b)), 7, 1), None, "the kernel finds it");
        shown.note((a, b), way, 1, true);
        assert_eq!(shown.next_hop(|| Some((a, b)), 7, 1), Some([2; 6]));
        assert_eq!(shown.next_hop(|| Some((a, b)), 8, 1), None, "another interface");
        assert_eq!(shown.next_hop(|| Some((a, b)), 7, 2), None, "another route");
        shown.note((a, b), way, 2, false);
        assert_eq!(shown.next_hop(|| Some((a, b)), 7, 2), None);
        for n in 0..=u32::try_from(ENTRIES_MAX).unwrap() {
            shown.note((IpAddr::from(n.to_be_bytes()), b), way, 2, true);
        }
        assert!(shown.ways.len() <= ENTRIES_MAX && shown.hidden.len() <= ENTRIES_MAX, "it is bounded");
        assert!(shown.interface((a, b), 1).is_none());
    }
}
