//! Where packets leave by a link: the router of its queue, told only of what is its own.
//!
//! With one queue for all, all is traffic that the router has to do with. Where XCP traffic has a
//! group of its own, the router counts its arrivals and its queue alone, and is told what the link
//! has for it ([`crate::Weights`]).

use farlink_wire::xcp::XcpFields;
use farlink_wire::{Instant, WireSize};

use crate::capacity::{Capacity, Kind, Weights};
use crate::router::{Config, Router};

/// Bytes that wait for the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Of XCP traffic, where it has a group of its own.
    pub xcp_bytes: u64,
    /// All together.
    pub all_bytes: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Port {
    router: Router,
    capacity: Capacity,
}

impl Port {
    /// Before an empty queue. `weights`: XCP traffic and the rest wait apart, and share by these;
    /// `None`: in one queue.
    #[must_use]
    pub fn new(now: Instant, config: Config, weights: Option<Weights>) -> Self {
        let mut port = Self { router: Router::new(now, config), capacity: Capacity::new(now, weights) };
        port.set_link(config.capacity_bps);
        port
    }

    /// The link carries so many bits of IP packets a second from now on.
    pub fn set_link(&mut self, bps: u64) {
        self.capacity.set_link(bps as f64 / 8.0);
        self.tell();
    }

    /// The two groups share by other weights. Not where they wait in one queue.
    pub fn set_weights(&mut self, weights: Weights) {
        if self.capacity.weights().is_some() {
            self.capacity.set_weights(weights);
            self.tell();
        }
    }

    /// How the groups share; `None`: there is one queue for all.
    #[must_use]
    pub fn weights(&self) -> Option<Weights> {
        self.capacity.weights()
    }

    /// The link may carry less than it is said to: what leaves while something always waits says
    /// how much.
    pub fn measure(&mut self) {
        self.capacity.measure();
    }

    /// What XCP traffic has now, in bits of IP packets a second.
    #[must_use]
    pub fn capacity_bps(&self) -> u64 {
        self.router.config().capacity_bps
    }

    /// The router of the queue.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// The part of the link that plain traffic has, of one. Of the room in the queue it may fill as
    /// much: then it waits for no longer than the whole room would take of the link.
    #[must_use]
    pub fn plain_part(&self) -> f64 {
        self.capacity.plain_part()
    }

    /// Packets that are alike join the queue, in which so much waits. `said`: what each of them
    /// says.
    pub fn arrive(
        &mut self,
        now: Instant,
        size: WireSize,
        kind: Kind,
        said: Option<&XcpFields>,
        waits: Backlog,
    ) {
        let queue_bytes = self.catch_up(now, waits);
        if self.counts(kind) {
            self.router.on_arrival(now, size, said, queue_bytes);
        }
    }

    /// Packets leave it, and so much waits behind them. Returns what each of them says from here
    /// on, if they said something.
    #[must_use]
    pub fn depart(
        &mut self,
        now: Instant,
        size: WireSize,
        kind: Kind,
        said: Option<&XcpFields>,
        waits: Backlog,
    ) -> Option<XcpFields> {
        let queue_bytes = self.catch_up(now, waits);
        self.capacity.note(kind, f64::from(size.bytes));
        if !self.counts(kind) {
            return None;
        }
        match said {
            Some(said) => Some(self.router.on_departure(now, size, said, queue_bytes)),
            None => {
                self.router.note_departure(now, queue_bytes);
                None
            }
        }
    }

    /// The router has to do with packets of this kind.
    fn counts(&self, kind: Kind) -> bool {
        kind == Kind::Xcp || self.capacity.weights().is_none()
    }

    /// Windows that have ended. Returns what of the queue is the router's.
    fn catch_up(&mut self, now: Instant, waits: Backlog) -> u64 {
        let own = if self.capacity.weights().is_some() { waits.xcp_bytes } else { waits.all_bytes };
        self.capacity.see(own);
        if self.capacity.catch_up(now, self.router.mean_rtt()) {
            self.tell();
        }
        own
    }

    fn tell(&mut self) {
        self.router.set_capacity((self.capacity.xcp() * 8.0) as u64);
    }
}
