//! Congestion controllers behind one small interface.
//!
//! A controller owns the congestion window and nothing else: which segments are lost, how recovery
//! is paced out (PRR, RFC 9937) and when a timer fires is the sender's business. All windows are
//! bytes, all rates bits per second, all times come in as arguments; a controller reads no clock
//! and its arithmetic is the same on every target.
//!
//! Where what is:
//! - `api.rs` what goes in; `controller.rs` the door
//! - `loss_based.rs` what NewReno and CUBIC share: slow start, reductions, undo, validation of the
//!   window
//! - `hystart.rs` when slow start ends early; `reno.rs`, `cubic.rs` how the window grows after it
//!   and how far it falls
//! - `hybla.rs` the same for long round trips
//! - `vegas.rs` by delay: a few segments in the queue, no more
//! - `bbr/` by a model of the path
//! - `known_rate.rs` at a link's rate, and by BBR where the path behind the link carries less
//! - `xcp.rs` at the rate that routers say
//! - `fixed.rs` no congestion control: for links of one's own, and for comparison
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

mod api;
mod bbr;
mod controller;
mod cubic;
mod cubic_bbr;
mod fixed;
mod hybla;
mod hystart;
mod known_rate;
mod loss_based;
mod math;
mod reno;
mod vegas;
mod xcp;

pub use api::{Ack, Config, Congestion, Copies, Kind, Lost, Sample, UnknownKind};
pub use controller::Controller;
pub use farlink_xcp::{Doubt, News, Reported};
