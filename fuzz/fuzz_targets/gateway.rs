#![no_main]
#[path = "../../crates/gateway/tests/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::gateway::run(data));
