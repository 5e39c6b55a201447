//! The queue of a declared link: shaper, classes, groups, fair queueing.
//!
//! Two kinds of things wait for the link: *packets* that are forwarded, which the queue owns, and
//! *flows* that have something to send, whose bytes are made only when the link grants them. The
//! queue knows neither TCP nor the engine; it takes the time and sizes and says who is next.
//!
//! Where what is:
//! - `egress.rs` the door; `config.rs` what goes in and out
//! - `shaper.rs` when the link is free; `medium.rs` what of its time is left to the other direction
//! - `classes.rs` which priority class is next
//! - `groups.rs` which group of the class is next, by weight and by a rate of its own; with nothing
//!   set up there is one group
//! - `estimate.rs` the rate of a link that nobody has told us, or that is not what was said, from
//!   the reports of the gateways at its other end: one of them, `estimate/peer.rs`, and hosts where
//!   there is none, `estimate/hosts.rs`; how fast to send by what waits, `estimate/steer.rs`; what
//!   had been sent by when, `sent.rs`
//! - `flows.rs` which flow of the group is next (deficit round robin), and whose packet is dropped
//!   where too many wait
//! - `codel.rs` when a flow's packets have waited too long
//!
//! An XCP router belongs between the flows and the link: it counts what arrives
//! ([`Egress::enqueue`], and what [`Egress::used`] reports) and stamps what departs
//! ([`Egress::next_grant`]), and nothing else here needs to know of it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::unreachable
    )
)]

mod classes;
mod codel;
mod config;
mod egress;
mod estimate;
mod flows;
mod groups;
mod medium;
mod sent;
mod shaper;

pub use codel::{Aqm, Managed};
pub use config::{
    Class, Config, DEFAULT_MTU_BYTES, Grant, GroupId, Lane, MAX_BURST_BYTES, MAX_GROUPS, MAX_WEIGHT, Share,
    Stats,
};
pub use egress::Egress;
pub use estimate::{RateEstimate, Report};
