//! By which bumped interface the kernel sends what goes from one host to another, as its packets
//! have shown. Rules by mark, user or protocol, and addresses that are translated, are in it, which
//! a question about a route would miss.

use std::collections::HashMap;
use std::net::IpAddr;

/// Entries after which it begins anew; about 80 bytes each.
const ENTRIES_MAX: usize = 16 * 1024;

/// What a packet has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// It left by this interface.
    pub(crate) interface: u32,
    /// No route has changed since then.
    pub(crate) is_current: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Source and destination -> interface, and the generation of routes at that time.
    ways: HashMap<(IpAddr, IpAddr), (u32, u64)>,
    /// What was noted last: most packets say the same again.
    last: Option<((IpAddr, IpAddr), (u32, u64))>,
}

impl Shown {
    /// A packet left by this interface.
    pub(crate) fn note(&mut self, src: IpAddr, dst: IpAddr, interface: u32, generation: u64) {
        let news = ((src, dst), (interface, generation));
        if self.last == Some(news) {
            return;
        }
        self.last = Some(news);
        if self.ways.len() >= ENTRIES_MAX {
            self.ways.clear();
        }
        self.ways.insert(news.0, news.1);
    }

    /// How such packets left; `generation`: of the routes now.
    pub(crate) fn interface(&self, src: IpAddr, dst: IpAddr, generation: u64) -> Option<Way> {
        let (interface, then) = *self.ways.get(&(src, dst))?;
        Some(Way { interface, is_current: then == generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_before_routes_changed_is_old() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut shown = Shown::default();
        shown.note(a, b, 7, 1);
        assert_eq!(shown.interface(a, b, 1), Some(Way { interface: 7, is_current: true }));
        assert_eq!(shown.interface(a, b, 2), Some(Way { interface: 7, is_current: false }));
        assert_eq!(shown.interface(b, a, 1), None);
        for n in 0..=u32::try_from(ENTRIES_MAX).unwrap() {
            shown.note(IpAddr::from(n.to_be_bytes()), b, 8, 2);
        }
        assert!(shown.ways.len() <= ENTRIES_MAX && shown.interface(a, b, 1).is_none(), "it is bounded");
    }
}
