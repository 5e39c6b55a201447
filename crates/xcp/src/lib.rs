//! Explicit control (XCP, draft-falk-xcp-spec-03) as values: time, sizes and header fields in,
//! header fields out.
//!
//! A sender writes into each packet how fast it sends and how much faster it would like to. Each
//! router on the way lowers that wish to what its queue has left. The receiver adds up what arrives
//! and tells the sender, who changes its rate by that much.
//!
//! Where what is:
//! - `router.rs` the algorithm of a queue; `interval.rs` what it counts in a control interval, and
//!   what follows from that; `standing.rs` how much of the queue never goes away
//! - `port.rs` the router where other traffic leaves by the same link; `capacity.rs` what it has
//!   there
//! - `sender.rs` what is sent how fast, and what is said of it; `context.rs` the same for all flows
//!   between two gateways
//! - `receiver.rs` what the sender is told, and how that changes
//! - `trust.rs` whether the sender believes it; `reports.rs` what the gateway at the other end says
//!   of what arrives
//!
//! What a packet says, and where in it, is in `wire` (`xcp.rs`). Nothing here knows a queue:
//! `egress` has one, and so has the emulated line of `channel`.
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

mod capacity;
mod context;
mod interval;
mod port;
mod receiver;
mod reports;
mod router;
mod sender;
mod standing;
mod trust;

pub use capacity::{Kind, Weights};
pub use context::{Context, KEPT, Member};
pub use port::{Backlog, Port};
pub use receiver::{Receiver, Sums};
pub use reports::{Reported, Reports};
pub use router::{Config, Router};
pub use sender::{NO_WISH, Sender, WISH};
pub use trust::{Doubt, News, Seen, Trust};
