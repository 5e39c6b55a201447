//! `farlink sim run` as a person runs it: through gateways, with losses, the same bytes for the
//! same seed.

use std::process::{Command, Output};

fn sim_run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farlink"));
    command.args(["sim", "run"]).args(words).output().unwrap()
}

const CELLS: [&str; 3] = ["geo-download", "--only", "size_bytes=1000000"];

#[test]
fn gateways_reach_the_limit_and_everything_arrives() {
    let output = sim_run(&[&CELLS[..], &["--allow-skips", "--json", "-"]].concat());
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

/// A scenario with one cell, which takes about a second.
fn scenario(name: &str, expect: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("farlink-{name}-{}.toml", std::process::id()));
    let text = format!(
        "name = 'x'\ntitle = 'x'\nkind = 'transfer'\n[settings]\nrtt = '200ms'\nsize_bytes = 10_000\n\
         [[variant]]\nname = 'farlink'\n[[variant]]\nname = 'haproxy'\nbaseline = 'haproxy'\ngateways = 0\n{expect}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn what_a_scenario_expects_decides_over_the_exit_status() {
    let run = |bound: &str, more: &[&str]| {
        let path = scenario(
            &format!("expects-{}", more.len()),
            &format!("[[expect]]\nof = {{ variant = 'farlink' }}\nat_most = {{ {bound} }}"),
        );
        let words = [&[path.to_str().unwrap()], more].concat();
        let output = sim_run(&words);
        std::fs::remove_file(&path).unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let farlink: &[&str] = &["--only", "variant=farlink"];
    let (status, text) = run("ratio_to_limit = 1.1", farlink);
    assert!(
        status == Some(0) && text.contains("PASS  1. 1 cell, nearest ratio_to_limit"),
        "{status:?} {text}"
    );
    let (status, text) = run("ratio_to_limit = 0.5", farlink);
    assert!(status == Some(1) && text.contains("FAIL  1. ratio_to_limit"), "{status:?} {text}");
    let (status, text) = run("ratio_to_limit = 0.5", &[farlink, &["--json", "-"]].concat());
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &report["expectations"]["verdicts"][0]["holds"]),
        (Some(1), &serde_json::json!(false))
    );
    // The other cell has no simulator.
    assert_eq!(run("ratio_to_limit = 1.1", &[]).0, Some(3));
    assert_eq!(run("ratio_to_limit = 1.1", &["--allow-skips"]).0, Some(0));
    assert_eq!(run("ratio_to_limit = 0.5", &["--allow-skips"]).0, Some(1));
    // What is changed is not judged, and that is said.
    let (status, text) = run("ratio_to_limit = 0.5", &[farlink, &["--set", "loss=0.01"]].concat());
    assert!(status == Some(0) && text.contains("not judged: --set changes the cells"), "{status:?} {text}");
}

#[test]
fn an_expectation_of_a_cell_that_does_not_exist_is_an_error() {
    let path = scenario("lost", "[[expect]]\nof = { variant = 'farlonk' }\nat_most = { seconds = 9 }");
    let output = sim_run(&[path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("variant=farlonk"), "{error}");
}
