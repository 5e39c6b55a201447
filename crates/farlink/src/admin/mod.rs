//! The admin socket: one JSON object per line each way, over a Unix socket that only root may open.
//!
//! The server's threads only read and write lines. Each request travels through a channel to the
//! event loop, which answers it between two batches of packets; so the datapath takes no lock for
//! the sake of being looked at.

pub mod client;
pub mod protocol;
pub mod server;
