//! Hosts as Linux has them: a TCP of our own with Linux's congestion control, recovery, timers,
//! initial window, delayed acknowledgements and receive-buffer autotuning, so that a simulated path
//! can be compared with the namespace laboratory.
//!
//! It shares no code with the engine: where both agree, two implementations agree. What it leaves
//! out: urgent data, Fast Open, ECN, and the reset of a host that has no socket.
//!
//! Where to look: [`config`] for what can be set, [`sender`] for what is sent and when,
//! [`receiver`] for what is acknowledged and which window is shown, [`congestion`] for the
//! controllers, [`transfer`] for the application, [`host`] for how it all stands in a
//! [`crate::world::World`], [`notices`] for the bench on which it is compared with the kernel.

pub mod config;
pub mod congestion;
mod conn;
pub mod datagrams;
pub mod flood;
pub mod host;
pub mod notices;
mod rate;
mod receiver;
mod rtt;
mod scoreboard;
mod sender;
pub mod transfer;
pub mod tunnel;
mod undo;

#[cfg(test)]
pub(crate) mod test_bed;
#[cfg(test)]
mod tests;

pub use config::LinuxConfig;
pub use conn::{NO_ACKNOWLEDGEMENT, NO_ANSWER};
pub use datagrams::{Datagram, Datagrams};
pub use flood::Flood;
pub use host::LinuxHost;
pub use transfer::{Direction, Outcome, Play, Start, Step, Transfer};
