//! The sans-I/O TCP engine: splits connections without changing a sequence number.
//!
//! It takes packets and the time, returns packets and the next deadline. It never reads a clock, a
//! socket, a random device or a file. `engine.rs` is the only door.
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

mod ack_policy;
pub mod ack_ration;
mod admission;
mod adverts;
mod ahead;
mod anew;
mod arrival;
mod arrivals;
mod asked;
mod asks;
mod back_pressure;
mod beyond;
mod bookmark;
mod buffer;
mod census;
mod challenge;
mod changed;
mod check;
mod checked;
pub mod classes;
mod closed;
pub mod config;
mod counted;
mod cx;
mod debt;
mod dormant;
pub mod due;
pub mod engine;
pub mod event;
mod evidence;
mod explicit;
mod fate;
mod filled;
mod fin;
mod flow;
mod flow_id;
mod govern;
mod handshake;
mod hosts;
mod initial_window;
mod keepalive;
mod kept;
mod leave;
mod leg;
mod limited_by;
pub mod link;
mod marks;
pub mod net;
mod notice;
mod noticed;
mod outage;
mod oversize;
mod oversizing;
mod overtaken;
mod owed;
mod pacing;
mod pair;
mod passed;
mod path_mtu;
mod peer;
mod policies;
mod promise;
mod queue_drop;
mod rate;
mod reach;
mod ready;
mod receiver;
pub mod record;
mod recovery;
mod regulator;
mod relay;
mod relays;
mod reopened;
mod report;
mod retune;
pub mod room;
mod routes;
mod rtt;
mod rules;
mod runs;
mod scoreboard;
mod segment;
mod sender;
mod settle;
mod shimmed;
mod side;
pub mod spent;
mod split;
pub mod status;
mod strangers;
mod table;
mod tally;
mod teardown;
mod treatment;
mod turns;
mod unmarked;
mod upkeep;
mod window;
mod wishes;
pub mod world;

pub use engine::{Engine, Outcome};
pub use ready::{Ready, ReadyId, Turn, Wants};
pub use segment::Pulled;
pub use side::Side;
