//! Properties that hold for any bytes. The fuzzer, the replay of its corpus and the random tests
//! all call these.
#![allow(dead_code)]

pub mod edit;
pub mod fragments;
pub mod parse;
pub mod source;
pub mod supersegments;

/// A property of any bytes: it panics where it does not hold.
pub type Target = fn(&[u8]);

/// All of them by the name of their corpus directory.
pub const TARGETS: [(&str, Target); 4] = [
    ("parse", parse::run),
    ("edit", edit::run),
    ("fragments", fragments::run),
    ("supersegments", supersegments::run),
];
