//! `farlink sim run` as a person runs it: through gateways, with losses, the same bytes for the same seed.

use std::process::{Command, Output};

fn sim_run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farlink"));
    command.args(["sim", "run"]).args(words).output().unwrap()
}

const CELLS: [&str; 3] = ["geo-download", "--only", "size_bytes=1000000"];

#[test]
fn gateways_reach_the_limit_and_everything_arrives() {
    let output = sim_run(&[&CELLS[..], &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["driver"], "sim");
    let cell = |variant: &str| {
        let found = report["cells"].as_array().unwrap().iter().find(|c| c["variant"] == variant);
        found.unwrap_or_else(|| panic!("no cell {variant}")).clone()
    };
    let farlink = cell("farlink");
    assert_eq!(farlink["intact"], true);
    assert_eq!(farlink["metrics"]["flows_split"], 2.0);
    assert!(farlink["ratio_to_limit"].as_f64().unwrap() < 1.05, "{farlink}");
    assert!(cell("direct")["seconds"].as_f64() > farlink["seconds"].as_f64());
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = |seed: &str, threads: &str| {
        let lossy = ["--set", "loss=0.01", "--json", "-", "--seed", seed, "--threads", threads];
        sim_run(&[&CELLS[..], &lossy].concat()).stdout
    };
    let first = run("7", "1");
    assert!(!first.is_empty());
    assert_eq!(first, run("7", "2"));
    assert_ne!(first, run("8", "2"), "the seed means nothing");
}
