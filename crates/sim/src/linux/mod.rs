//! Hosts as Linux has them: a TCP of our own with Linux's congestion control, recovery, timers, initial window, delayed
//! acknowledgements and receive-buffer autotuning, so that a simulated path can be compared with the namespace laboratory.
//!
//! It shares no code with the engine: where both agree, two implementations agree. What it leaves out: urgent data, Fast
//! Open, ECN, keepalives, fragmentation, shutdown by RST.
//!
//! Where to look: [`config`] for what can be set, [`sender`] for what is sent and when, [`receiver`] for what is
//! acknowledged and which window is shown, [`congestion`] for the controllers, [`transfer`] for the application,
//! [`host`] for how it all stands in a [`crate::world::World`].

pub mod config;
pub mod congestion;
mod conn;
pub mod flood;
pub mod host;
mod rate;
mod receiver;
mod rtt;
mod scoreboard;
mod sender;
pub mod transfer;

pub use config::LinuxConfig;
pub use flood::Flood;
pub use host::LinuxHost;
pub use transfer::{Direction, Outcome, Play, Start, Step, Transfer};
