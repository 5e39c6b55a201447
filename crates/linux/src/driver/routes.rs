//! Which way packets leave, as the kernel has answered. Nobody waits for an answer: an old one
//! holds until the new one is there, and a packet of which nothing is known waits by itself.

use std::collections::HashMap;

use super::lookups::{Lookups, Question};
use crate::error::Result;
use crate::netlink::{Leaves, RouteKey};

/// Entries after which it begins anew; about 130 bytes each.
const ENTRIES_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// `None`: there was no answer yet.
    leaves: Option<Option<Leaves>>,
    /// Of which generation the answer is, and of which one the last question.
    answered: u64,
    asked: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    entries: HashMap<RouteKey, Entry>,
    generation: u64,
    /// Answers that said something new.
    news: u64,
    lookups: u64,
    errors: u64,
}

impl Routes {
    /// Routes, rules, addresses or interfaces changed: all is asked again.
    pub(super) fn invalidate(&mut self) {
        self.generation += 1;
    }

    /// Grows by one with each [`Routes::invalidate`].
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Other numbers than before where something else is known of routes, or may be.
    pub(super) fn state(&self) -> (u64, u64) {
        (self.generation, self.news)
    }

    /// How often the kernel was asked, and how often it had no answer.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.lookups, self.errors)
    }

    /// Where a packet leaves, by what is known. `None`: nothing is; it is being asked.
    pub(super) fn get(&mut self, key: &RouteKey, lookups: &mut Lookups) -> Option<Option<Leaves>> {
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(key) {
            self.entries.clear();
        }
        let entry = self.entries.entry(*key).or_default();
        let is_current = entry.leaves.is_some() && entry.answered == self.generation;
        if !is_current
            && entry.asked != Some(self.generation)
            && lookups.ask(Question::Way(*key, self.generation))
        {
            entry.asked = Some(self.generation);
            self.lookups += 1;
        }
        entry.leaves
    }

    /// The kernel has answered. Whether that is something else than before.
    pub(super) fn answered(
        &mut self,
        key: &RouteKey,
        generation: u64,
        leaves: Result<Option<Leaves>>,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        if entry.leaves.is_some() && generation < entry.answered {
            return false;
        }
        let leaves = match leaves {
            Ok(leaves) => {
                entry.answered = generation;
                leaves
            }
            Err(error) => {
                self.errors += 1;
                tracing::debug!(%error, dst = %key.destination, "a route cannot be looked up");
                // What was known holds, and the next packet asks again.
                entry.asked = None;
                entry.leaves.flatten()
            }
        };
        let before = entry.leaves.replace(leaves);
        if before != Some(leaves) {
            self.news += 1;
        }
        before.is_some_and(|before| before != leaves)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::super::lookups::Answer;
    use super::super::pulse::Pulse;
    use super::*;
    use crate::error::Error;
    use crate::event_loop::{Interest, Poller, Waker};

    #[test]
    fn an_old_answer_holds_until_the_new_one_is_there() {
        let news = Arc::new(Waker::new().unwrap());
        let mut poller = Poller::new().unwrap();
        poller.add(&*news, 0, Interest::Read).unwrap();
        let mut lookups = Lookups::start(Arc::new(Pulse::new(0)), news).unwrap();
        let mut routes = Routes::default();
        let key = RouteKey { destination: IpAddr::from([127, 0, 0, 1]), from: None, mark: 0, ports: None };
        assert_eq!((routes.get(&key, &mut lookups), routes.get(&key, &mut lookups)), (None, None));
        assert_eq!(routes.counts(), (1, 0), "it is asked once");
        lookups.send();
        poller.wait(None).unwrap();
        let Some(Answer::Way(of, generation, leaves)) = lookups.next() else { panic!("no answer") };
        assert_eq!((of, generation, leaves.as_ref().ok()), (key, 0, Some(&None)), "it is for this machine");
        assert!(!routes.answered(&key, 0, leaves), "nothing was known before");
        assert_eq!(routes.get(&key, &mut lookups), Some(None));
        routes.invalidate();
        assert_eq!(routes.get(&key, &mut lookups), Some(None), "the old answer");
        assert_eq!(routes.counts(), (2, 0));
        let other = Some(Leaves { interface: 7, mtu: 1500, gateway: None });
        assert!(routes.answered(&key, 1, Ok(other)));
        assert!(!routes.answered(&key, 0, Ok(None)), "an answer of before");
        assert!(!routes.answered(&key, 1, Err(Error::Refused(String::new()))), "an error changes nothing");
        assert_eq!((routes.get(&key, &mut lookups), routes.counts().1), (Some(other), 1));
        for n in 0..=u32::try_from(ENTRIES_MAX).unwrap() {
            routes.get(&RouteKey { destination: IpAddr::from(n.to_be_bytes()), ..key }, &mut lookups);
        }
        assert!(routes.entries.len() <= ENTRIES_MAX, "it is bounded");
    }
}
