//! Man pages, HTML pages and completions load where they are meant to be loaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with everything that is generated; it goes with its value.
struct Manual(PathBuf);

impl Manual {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("farlink-manual-{}-{name}", std::process::id()));
        let output =
            Command::new(env!("CARGO_BIN_EXE_farlink")).arg("manual").arg(&directory).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        Self(directory)
    }
    fn files(&self, below: &str) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            std::fs::read_dir(self.0.join(below)).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Manual {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a tool; `None`: it is not there.
fn tool(name: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(name).args(arguments).env("MANROFFOPT", "-ww").env("LC_ALL", "C.UTF-8").output() {
        Ok(output) => Some(output),
        Err(_) => {
            println!("left out: {name} is not installed");
            None
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn shells_load_the_completions() {
    let manual = Manual::new("completions");
    let of = |shell: &str, file: &str| manual.0.join("completions").join(shell).join(file);
    let bash = of("bash", "farlink");
    let script = format!(
        "set -eu; . '{}'; complete -p farlink; COMP_WORDS=(farlink check-); COMP_CWORD=1; \
                          _farlink farlink check- farlink; echo \"${{COMPREPLY[@]}}\"",
        text(&bash)
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let answer = said(&output);
    assert!(output.status.success() && answer.contains("-F _farlink farlink"), "{answer}");
    assert!(answer.lines().any(|line| line == "check-config"), "{answer}");
    for (shell, file) in
        [("bash", bash), ("zsh", of("zsh", "_farlink")), ("fish", of("fish", "farlink.fish"))]
    {
        let Some(output) = tool(shell, &["-n", text(&file)]) else { continue };
        assert!(output.status.success() && said(&output).is_empty(), "{shell}: {}", said(&output));
        let printed =
            Command::new(env!("CARGO_BIN_EXE_farlink")).args(["completions", shell]).output().unwrap();
        assert_eq!(printed.stdout, std::fs::read(file).unwrap(), "{shell}");
    }
}

#[test]
fn man_reads_the_pages_without_a_warning() {
    let manual = Manual::new("man");
    let pages = manual.files("man");
    assert!(pages.len() > 10, "{pages:?}");
    for page in &pages {
        if let Some(output) = tool("mandoc", &["-T", "lint", "-W", "warning", text(page)]) {
            // The same program makes the same page, so it has no date.
            let answer = said(&output);
            let wrong: Vec<_> = answer.lines().filter(|line| !line.contains("missing date")).collect();
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
        if let Some(output) = tool("man", &["--warnings", "--encoding=UTF-8", "-l", text(page)]) {
            let wrong = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && wrong.is_empty(), "{}: {wrong}", page.display());
        }
    }
}

/// No page leads to one that is not there.
#[test]
fn links_between_pages_lead_somewhere() {
    let manual = Manual::new("html");
    let mut links = 0;
    for page in manual.files("html") {
        let html = std::fs::read_to_string(&page).unwrap();
        for link in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            links += 1;
            let exists = link.contains("://") || manual.0.join("html").join(link).exists();
            assert!(exists, "{} leads to {link}", page.display());
        }
    }
    assert!(links > 30, "{links}");
}
