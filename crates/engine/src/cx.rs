//! What an event brings along for a flow: the time, and what the engine lends it.

use farlink_wire::{Instant, Pool};

use crate::challenge::Challenges;
use crate::config::Config;
use crate::event::Event;
use crate::leg::Leg;
use crate::link::Links;
use crate::side::Pair;
use crate::status::Counters;
use crate::world::World;

/// What a flow's methods need of the engine.
pub struct Cx<'a> {
    /// The time.
    pub now: Instant,
    /// The configuration.
    pub config: &'a Config,
    /// The buffer pool.
    pub pool: &'a mut Pool,
    /// Counters of amounts. What happens is counted by [`Cx::happened`].
    pub counters: &'a mut Counters,
    /// The declared links.
    pub links: &'a mut Links,
    /// Connections whose handshake is under way.
    pub half_open: usize,
    /// The driver.
    pub net: &'a mut dyn World,
    /// Split flows, for fair shares of the pool.
    pub flows_split: usize,
    /// Some connection's packets have been seen to go round us not long ago: routes are moving.
    pub routes_unsteady: bool,
    /// When that was seen last.
    pub bypassed_at: &'a mut Option<Instant>,
    /// Answers to odd segments that may still be given (RFC 5961 section 7).
    pub challenges: &'a mut Challenges,
}

impl Cx<'_> {
    /// This happened to the connection of these hosts: it is counted, and told.
    pub fn happened(&mut self, legs: &Pair<Leg>, what: Event) {
        self.counters.count(what);
        if what == Event::Bypassed {
            *self.bypassed_at = Some(self.now);
        }
        self.net.happened(&legs.ends(), what);
    }
}
