//! A gateway: the TCP engine and the egress queues of its declared links, composed. Sans-I/O; the
//! Linux datapath, the simulator and the fuzzer drive this very type.
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

mod ack_filter;
mod acks;
mod beside;
mod by_host;
mod byte_budget;
mod crowd;
mod datagrams;
pub mod due;
pub mod flow_trace;
mod found;
mod gateway;
mod group;
mod identification;
mod interfaces;
mod kinds;
mod late;
mod left_behind;
mod link_events;
mod link_rate;
mod links;
mod network;
mod ordinary;
mod others;
mod outage;
mod outlet;
mod pairs;
mod place;
mod reconfigure;
mod recut;
mod secret;
mod settings;
mod status;
pub mod tap;
mod waiting;
mod xcp_queue;

pub use by_host::{HostStatus, HostTotals};
pub use byte_budget::{BudgetLevel, BudgetUse};
pub use farlink_cc as cc;
pub use farlink_egress as egress;
pub use farlink_engine::Side;
pub use farlink_engine::config::{self, Config};
pub use farlink_engine::event::{Because, Carried, Ends, Event};
pub use farlink_engine::link::{AheadOf, State as LinkState, UNKNOWN_RATE_CC};
pub use farlink_engine::net::{FoundWay, IfaceId, Route, Shown, Via};
pub use farlink_engine::record::{RECORD_BYTES, Record};
pub use farlink_engine::spent::Spent;
/// Snapshots of the engine.
pub use farlink_engine::status as engine_status;
pub use found::{Found, FoundRate, GUESS_AGE_MAX};
pub use gateway::{Gateway, PACKETS_PER_TURN};
pub use interfaces::SELECTORS_FROM;
pub use kinds::{Kind, Passed};
pub use left_behind::Fates;
pub use network::{Counts, Network, Sent, Transmit};
pub use reconfigure::Reconfigured;
pub use settings::{NotSet, settable};
pub use status::{LinkStatus, Status, Traffic};
