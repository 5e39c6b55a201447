//! What is linked may be linked: every package's licence is one of those that deny.toml allows.
//! (`make deny` looks closer, with cargo-deny; this one needs nothing that is not there.)

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn allowed() -> Vec<String> {
    let deny: toml::Table = std::fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap();
    let names = deny["licenses"]["allow"].as_array().unwrap();
    names.iter().map(|n| n.as_str().unwrap().to_owned()).collect()
}

/// Whether an SPDX expression can be satisfied with the allowed licences. Knows AND, OR, WITH,
/// brackets and the old slash.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced =
        expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "-WITH-");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut at = 0;
    let good = any_of(&words, &mut at, allowed);
    good && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut good = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= all_of(words, at, allowed);
    }
    good
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut good = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(words, at, allowed);
    }
    good
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word != "(" {
        return allowed.iter().any(|a| *a == word.replace("-WITH-", " WITH "));
    }
    let good = any_of(words, at, allowed);
    let closed = words.get(*at) == Some(&")");
    *at += 1;
    good && closed
}

#[test]
fn expressions() {
    let allowed = ["MIT".to_owned(), "Apache-2.0".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    for (expression, good) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR GPL-3.0) AND Apache-2.0", true),
        ("(MIT AND GPL-3.0) OR BSD-2-Clause", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("", false),
        ("(MIT", false),
    ] {
        assert_eq!(satisfied(expression, &allowed), good, "{expression}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(target)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let used: Vec<_> = metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|n| &n["id"]).collect();
    assert!(used.len() > 20, "no packages were found");
    let allowed = allowed();
    let mut complaints = Vec::new();
    for package in packages.iter().filter(|p| used.contains(&&p["id"])) {
        let licence = package["license"].as_str().unwrap_or_default();
        let outside = package["source"].as_str().is_some_and(|s| !s.starts_with("registry+"));
        if !satisfied(licence, &allowed) || outside {
            complaints.push(format!("{} {}: {licence:?}", package["name"], package["version"]));
        }
    }
    assert!(
        complaints.is_empty(),
        "packages whose licence deny.toml does not allow:\n  {}",
        complaints.join("\n  ")
    );
}
