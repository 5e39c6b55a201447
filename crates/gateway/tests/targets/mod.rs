//! Properties of a whole gateway that hold for any bytes. The fuzzer, the replay of its corpus and
//! the random tests all call these.
#![allow(dead_code)]

pub mod changes;
pub mod gateway;
pub mod hosts;
pub mod spans;
pub mod truth;
pub mod world;

#[path = "../../../wire/tests/targets/source.rs"]
pub mod source;
