//! The emulated path: delay, rate, queue, loss, wink, contact plan.
//!
//! One [`Channel`] is one direction. A packet passes, in this order: drop-tail queue, serialisation
//! at the link's rate, loss draws, propagation delay with jitter, delivery. Times come in as
//! arguments and everything random comes from one seed; each impairment draws from a stream of its
//! own, one draw per packet, so that changing one of them changes nothing about the others.
//!
//! Where what is:
//! - `channel.rs` the door; `config.rs` what goes in and out; `payload.rs` what a packet must be
//!   able to do
//! - `control.rs` the XCP router of the queue; `harm.rs` who changes its words
//! - `waiting.rs` the queue, or the queues: XCP traffic may have its own
//! - `line.rs` serialisation; `medium.rs` both directions on one medium; `schedule.rs`
//!   rates and contacts over time
//! - `delays.rs` delays and losses over time, and frames; `demand.rs` capacity that is asked for;
//!   `phases.rs` satellites that take turns; `trace.rs` recorded links
//! - `look.rs` acknowledgements and fragments, and what a firewall thinks of them
//! - `impair.rs` who is lost, doubled, damaged, delayed; `wink.rs` when the link winks; `random.rs`
//!   the streams
//! - `perfect.rs` what could not be done better; `carried.rs` what was carried when
//! - `flight.rs` what propagates; `text.rs` schedules as people write them
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

mod carried;
mod channel;
mod config;
mod control;
mod delays;
mod demand;
mod flight;
mod harm;
mod impair;
mod line;
mod look;
mod medium;
mod payload;
mod perfect;
mod phases;
mod random;
mod schedule;
pub mod text;
mod trace;
mod waiting;
mod wink;

pub use carried::{CARRIED_INTERVAL_MS, Carried, DATA_BYTES_MIN, OfConnection};
pub use channel::Channel;
pub use config::{
    Behind, ChannelConfig, Contact, DelayChange, Demand, Firewall, GilbertElliott, Invalid, LossChange,
    RateChange, Stats, Wink, WinkSide, XcpHarm, XcpRouter,
};
pub use medium::Medium;
pub use payload::Payload;
pub use perfect::perfect_arrival;
pub use phases::{Phases, Planned};
pub use trace::{Trace, parse_trace};

pub use farlink_xcp::Weights;
