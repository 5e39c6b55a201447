//! The Linux driver: TUN with offloads, event loop, diversion, namespaces.

pub mod bpf;
pub mod bump;
pub mod caps;
pub mod classifier;
pub mod clock;
pub mod confine;
pub mod divert;
pub mod driver;
pub mod emulator;
pub mod error;
pub mod ethtool;
pub mod event_loop;
mod guard;
mod heap;
pub mod helper;
pub mod journal;
pub mod listener;
pub mod memory;
pub mod netlink;
pub mod netns;
pub mod openings;
pub mod priority;
pub mod programs;
pub mod sandbox;
mod spread;
pub mod sysctl;
pub mod tun;
pub mod watchdog;

pub use error::{Error, Holder, Result};
