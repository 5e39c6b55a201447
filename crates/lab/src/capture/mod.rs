//! Captures on both sides of every gateway, and what they prove: the gateways keep the hosts'
//! headers and bytes.

mod check;
mod coverage;
mod flow;
mod fragments;
mod judge;
mod order;
mod socket;
mod stream;
mod trace;
mod watch;

#[cfg(test)]
mod tests;

pub use check::{Checker, Findings, Point, Repeated, Split, Splittable};
pub use coverage::Coverage;
pub use flow::FlowKey;
pub use socket::{Extent, Frame, PacketSocket};
pub use stream::{Moment, Stream};
pub use trace::Trace;
pub use watch::{Options, Watch};
