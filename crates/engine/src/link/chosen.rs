//! Which data over a link goes by what routers say.

use core::net::IpAddr;

use super::Link;
use crate::classes::in_prefix;
use crate::peer::{Capability, Hello};

impl Link {
    /// What this host sends to that one goes by what routers say, if their gateway reads it.
    #[must_use]
    pub fn is_explicit(&self, from: IpAddr, to: IpAddr) -> bool {
        let is_in = |prefixes: &[(IpAddr, u8)], addr| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| in_prefix(addr, *prefix))
        };
        self.is_controlled_by_routers()
            && is_in(&self.explicit.sources, from)
            && is_in(&self.explicit.destinations, to)
    }

    /// What a gateway says of itself, as far as it is made use of.
    #[must_use]
    pub fn admits(&self, hello: Hello) -> Hello {
        let peers = &self.explicit.peers;
        let is_named = peers.is_empty() || peers.contains(&hello.identity.number());
        if is_named { hello } else { hello.without(Capability::Xcp) }
    }
}
