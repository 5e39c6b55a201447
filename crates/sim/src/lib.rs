//! Virtual time: hosts, channels, gateways, seeds, faults.
//!
//! The very [`farlink_gateway::Gateway`] that the Linux datapath drives stands here between hosts
//! with an independent TCP (smoltcp), on channels that lose, repeat, delay and damage packets, on
//! routes that move, and is drained and killed. An observer sees every packet on every leg and
//! asserts the invariants. One seed stands for one run, bit for bit.
//!
//! Beside smoltcp there are hosts with Linux's habits ([`linux`]), for paths that are measured and
//! compared.
//!
//! Where to look: [`plan`] for what a seed means, [`observer`] for the invariants, [`runner`] for
//! how to run seeds, [`script`] for packet-by-packet tests of one gateway.
#![forbid(unsafe_code)]

pub mod app;
pub mod border;
pub mod build;
pub mod change;
pub mod changing;
pub mod content;
pub mod display;
pub mod fault;
pub mod gro;
pub mod host;
pub mod hostile;
pub mod identifications;
pub mod interference;
pub mod isn;
pub mod linux;
mod long;
pub mod meter;
pub mod node;
pub mod observer;
pub mod packet;
pub mod plan;
mod promised;
pub mod ranges;
mod reassembly;
pub mod repeats;
pub mod rig;
pub mod rng;
pub mod runner;
mod sizes;
mod syns;
pub mod talker;
pub mod tcp_store;
pub mod trace;
pub mod tracker;
pub mod traffic;
pub mod truth;
pub mod verdict;
mod workload;
pub mod world;
