//! `farlink report` as a person runs it: from a simulator's result to a page, and what it says
//! about files that it cannot use.

use std::path::PathBuf;
use std::process::{Command, Output};

fn farlink(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farlink")).args(words).output().unwrap()
}

/// A directory that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farlink-report-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_run_becomes_a_page_with_its_command_and_its_plots() {
    let scratch = Scratch::new("page");
    let (json, html) = (scratch.file("r.json"), scratch.file("r.html"));
    let only = "size_bytes=100000,size_bytes=1000000,variant=direct,variant=farlink";
    let output =
        farlink(&["sim", "run", "geo-download", "--only", only, "--set", "rtt=100ms", "--json", &json]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = farlink(&["report", &json, "-o", &html, "--svg", &scratch.file("plots")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(&html).unwrap();
    let command = "farlink sim run geo-download --only size_bytes=100000,size_bytes=1000000,variant=direct,variant=farlink --seed 1 \
                   --set rtt=100ms";
    for part in [
        command,
        "RTT 100 ms",
        "physical limit</text>",
        "completion time, seconds",
        "size of the transfer, bytes",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(page.matches("<figure ").count(), std::fs::read_dir(scratch.file("plots")).unwrap().count());
}

#[test]
fn what_cannot_be_used_is_refused_and_nothing_is_written() {
    let scratch = Scratch::new("refused");
    let (bad, html) = (scratch.file("bad.json"), scratch.file("r.html"));
    std::fs::write(&bad, "{\"scenario\": \"x\"}").unwrap();
    for (file, reason) in [(bad, "no `cells`"), (scratch.file("missing.json"), "cannot be read")] {
        let output = farlink(&["report", &file, "-o", &html]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(&file) && said.contains(reason), "{said}");
    }
    assert!(!std::path::Path::new(&html).exists());
}
