//! What the crate promises, case by case and by random trials.
#[path = "../targets/mod.rs"]
mod targets;

mod checksums;
mod edits;
mod errors;
mod fragments;
mod headers;
mod helpers;
mod options;
mod packets;
mod shims;
mod supersegments;
