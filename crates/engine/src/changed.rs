//! What changes round connections that are split already, and what they make of it.

use core::net::IpAddr;

use farlink_wire::Instant;

use crate::config::Config;
use crate::link::{Links, are_apart};
use crate::net::Way;
use crate::sender::Question;
use crate::side::Side;
use crate::split::Split;

/// What has changed round a connection. It concerns only what is split: its relays go by what was
/// true when they began, or when they were told of something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// A link or an interface is up again, or was silent and is heard; `all_lost`: nothing that was
    /// under way there arrives any more.
    Back {
        /// When.
        now: Instant,
        /// Which.
        way: Way,
        /// It was down.
        all_lost: bool,
        /// For this host alone; `None`: for all.
        whose: Option<IpAddr>,
    },
    /// A link's silence says nothing any more of what waits there, or there for this host alone.
    LeftAlone(Way, Option<IpAddr>),
    /// It is this connection's turn to ask the silent link towards a host.
    Asks(Side, Question),
    /// What is sent on this way is governed otherwise, from then on.
    Controller(Instant, Way),
    /// What is sent on legs that are no links is governed otherwise, from then on.
    OrdinaryController(Instant),
    /// This link has another rate.
    Rate(Way),
    /// This link carries another rate than it did.
    Carried(Way),
    /// What a host behind this link takes has been found out by then.
    FoundOut(Instant, Way),
    /// This link has another delay and another rate from then on.
    Phase(Instant, Way),
    /// This link brings more or less than was known.
    Brings(Way),
    /// Relays may hold more or less, or by another policy.
    RelayBytes,
    /// Draining has ended, complete or not.
    DrainEnded,
}

impl Split<'_> {
    /// Something has changed round it. Returns whether that concerns it.
    pub fn on_change(&mut self, config: &Config, links: &Links, changed: Changed) -> bool {
        match changed {
            Changed::Back { now, way, all_lost, whose } => {
                return self.restart_legs(now, way, all_lost, whose);
            }
            Changed::Asks(to, question) => self.relays.get_mut(to.other()).tx.ask_link(question),
            Changed::Phase(now, way) => self
                .each_out(|out| out == way, |split, to| split.relays.get_mut(to.other()).tx.begin_phase(now)),
            Changed::Brings(way) => {
                self.each_out(|out| out == way, |split, to| split.make_room(config, links, to));
            }
            Changed::RelayBytes => self.limit_relays(config, links),
            Changed::DrainEnded => self.keep_hold(),
            Changed::LeftAlone(way, whose) => self.each_out(
                |out| out == way,
                |split, to| {
                    if whose.is_none_or(|host| !are_apart(host, split.legs.get(to).addr)) {
                        split.leave_alone(to);
                    }
                },
            ),
            Changed::Controller(now, way) => {
                self.each_out(|out| out == way, |split, to| split.change_controller(now, config, links, to));
            }
            Changed::OrdinaryController(now) => {
                let is_ordinary = |out| matches!(out, Way::Ordinary(_));
                self.each_out(is_ordinary, |split, to| split.change_controller(now, config, links, to));
            }
            Changed::Carried(way) => {
                self.each_out(|out| out == way, |split, to| split.follow_link_rate(links, to));
            }
            Changed::FoundOut(now, way) => {
                let mut goes_on = false;
                let hear = |split: &mut Self, to| goes_on |= split.hear_of_found(now, links, to);
                self.each_out(|out| out == way, hear);
                return goes_on;
            }
            Changed::Rate(way) => self.each_out(
                |out| out == way,
                |split, to| {
                    split.limit_relays(config, links);
                    split.follow_link_rate(links, to);
                },
            ),
        }
        true
    }

    /// Does something about each host to which packets leave by such a way.
    fn each_out(&mut self, concerns: impl Fn(Way) -> bool, mut act: impl FnMut(&mut Self, Side)) {
        for to in [Side::A, Side::B] {
            if concerns(self.legs.get(to).out) {
                act(self, to);
            }
        }
    }

    /// What is under way to a host is judged for itself from now on.
    fn leave_alone(&mut self, to: Side) {
        let tx = &mut self.relays.get_mut(to.other()).tx;
        if !tx.board().is_empty() {
            tx.leave_alone();
        }
    }
}
