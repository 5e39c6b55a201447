//! Programs that could not be put where they are wanted: tried again, and a finding until they are
//! there.

use std::collections::BTreeMap;

use farlink_wire::{Duration, Instant};

use crate::bump::Refusal;
use crate::divert::{Diagnosis, not_attached};
use crate::error::Result;
use crate::netlink::Link;

/// So often it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// By the number of the interface, or device: its name, and why.
    known: BTreeMap<u32, (String, Refusal)>,
    /// The same at this look.
    seen: BTreeMap<u32, (String, Refusal)>,
    tried_at: Option<Instant>,
}

impl Refusals {
    /// There is no program at this interface, and one is wanted.
    pub(super) fn see(&mut self, link: &Link, refusal: &Refusal) {
        self.seen.insert(link.index, (link.name.clone(), refusal.clone()));
    }

    /// All have been seen. From time to time each is tried again.
    pub(super) fn try_again(&mut self, now: Instant, mut put_back: impl FnMut(u32) -> Result<()>) {
        let mut seen = std::mem::take(&mut self.seen);
        if !seen.is_empty() && self.tried_at.is_none_or(|at| now.since(at) >= AGAIN) {
            self.tried_at = Some(now);
            seen.retain(|index, (_, refusal)| match put_back(*index) {
                Ok(()) => false,
                Err(error) => {
                    *refusal = Refusal::from(&error);
                    true
                }
            });
        }
        for (index, (name, refusal)) in &seen {
            if self.known.get(index).is_none_or(|(_, before)| before != refusal) {
                tracing::error!("{}", not_attached(name, refusal).text);
            }
        }
        for (index, (name, _)) in self.known.iter().filter(|(index, _)| !seen.contains_key(*index)) {
            tracing::info!(interface = %name, index, "a program stands there now");
        }
        self.known = seen;
    }

    /// What is to be said of them.
    pub(super) fn found(&self) -> impl Iterator<Item = Diagnosis> {
        self.known.values().map(|(name, refusal)| not_attached(name, refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Holder};

    #[test]
    fn what_is_refused_is_a_finding_until_it_stands() {
        let mut refusals = Refusals::default();
        let link = Link { index: 7, name: "sat0".into(), ..Link::default() };
        let other = || Error::Held { by: Holder::Farlink, what: "another process".into() };
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let ids = |refusals: &Refusals| refusals.found().map(|d| d.id.into_owned()).collect::<Vec<_>>();
        let mut tried = 0;
        for ms in (1_000..4_000).step_by(250) {
            refusals.see(&link, &Refusal::from(&other()));
            refusals.try_again(at(ms), |index| {
                tried += 1;
                assert_eq!(index, 7);
                Err(other())
            });
            assert_eq!(ids(&refusals), ["other-instance"]);
        }
        assert_eq!(tried, 3, "once in a second");
        // The reason changes.
        refusals.see(&link, &Refusal::from(&other()));
        let ingress =
            || Error::Held { by: Holder::IngressQdisc, what: "the qdisc `ingress` stands at sat0".into() };
        refusals.try_again(at(5_000), |_| Err(ingress()));
        assert_eq!(ids(&refusals), ["ingress-qdisc"]);
        refusals.see(&link, &Refusal::from(&ingress()));
        refusals.try_again(at(6_000), |_| {
            Err(Error::os("attaching", std::io::Error::from_raw_os_error(libc::ERANGE)))
        });
        assert_eq!(ids(&refusals), ["not-attached"]);
        refusals.see(&link, &Refusal::from(&ingress()));
        refusals.try_again(at(7_000), |_| Ok(()));
        assert!(ids(&refusals).is_empty());
    }
}
