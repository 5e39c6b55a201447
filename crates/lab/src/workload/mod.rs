//! Workloads: transfers of known bytes whose time and content are measured at the application.

pub mod client;
pub mod content;
pub mod server;
pub mod socket;

pub use client::{Direction, Outcome, Transfer, run_all};
pub use server::{Served, Server};
