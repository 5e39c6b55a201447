//! The command as a person meets it: exit statuses, messages, help. Needs no privilege.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn farlink(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farlink")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A file that goes with its value.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("farlink-command-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_wrong_configuration_is_one_message_and_exit_status_2() {
    let file = File::new("wrong.toml", "\n[[link]]\ninterface = \"sat0\"\nrate = \"8 Mbaud\"\n");
    for more in [&[][..], &["--check-config"]] {
        let output = farlink(&[&["run", "--config", file.path()], more].concat());
        assert_eq!(output.status.code(), Some(2));
        let text = said(&output);
        let wanted = format!(
            "farlink: {}:4:8: [[link]] number 1, key `rate`: unknown unit `Mbaud`; allowed: ",
            file.path()
        );
        assert!(text.starts_with(&wanted), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn check_config_tells_all_mistakes_and_its_exit_status_says_whether_there_are_any() {
    let wrong =
        "[[link]]\ninterface = \"sat0\"\nrate = \"fast\"\nrtt_ms = 0\ncolour = 1\n[limits]\nflows = 3\n";
    let file = File::new("all-wrong.toml", wrong);
    let output = farlink(&["check-config", file.path()]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for at in ["3:8", "4:10", "5:1", "7:1"] {
        assert!(text.contains(&format!("{}:{at}: ", file.path())), "{at}: {text}");
    }
    assert!(text.ends_with(&format!("{}: 4 mistakes\n", file.path())), "{text}");
    let output = farlink(&["check-config", "--json", file.path()]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["exit_status"]), (Some(1), &1.into()));
    let first = &json["mistakes"][0];
    assert_eq!((&first["line"], &first["key"]), (&3.into(), &"[[link]] number 1, key `rate`".into()));
    assert!(first["allowed"].as_str().is_some_and(|a| a.starts_with("a rate above zero")), "{first}");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), wrong);

    let good =
        File::new("all-good.toml", "[[link]]\ninterface = \"no-such-link\"\n[[interface]]\nname = \"lo1\"\n");
    let output = farlink(&["check-config", good.path()]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    // The file is judged, and not the machine that reads it.
    assert!(!text.contains("note"), "{text}");
    assert!(text.contains("configuration is good: 0 rules"), "{text}");

    let ceiling = File::new("ceiling.toml", "[[link]]\ninterface = \"sat0\"\nrate_max = \"8 Mbit/s\"\n");
    let output = farlink(&["check-config", ceiling.path()]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("note: link `sat0`: `rate_max` bounds what two gateways find out"), "{text}");

    let missing = farlink(&["check-config", "/nonexistent/farlink.toml"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).starts_with("/nonexistent/farlink.toml: cannot be read: "), "{}", said(&missing));
    assert_eq!(farlink(&["check-config", "a", "b"]).status.code(), Some(2));
}

#[test]
fn a_missing_file_is_named() {
    let output = farlink(&["run", "--config", "/nonexistent/farlink.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("cannot read the configuration file /nonexistent/farlink.toml"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_good_configuration_is_said_to_be_good_and_nothing_is_started() {
    let file = File::new(
        "good.toml",
        "[[link]]\ninterface = \"sat0\"\nrate = \"8 Mbit/s\"\n[[interface]]\nname = \"lan0\"\n",
    );
    let output = farlink(&["run", "--config", file.path(), "--check-config"]);
    assert!(output.status.success());
    assert_eq!(
        said(&output),
        "configuration is good: 0 rules; diverting lan0, sat0 (link sat0, 8.0 Mbit/s, fixed-rate)\n"
    );
    let quick = farlink(&["run", "--link", "sat0", "--interface", "lan0", "--check-config"]);
    assert!(
        said(&quick).contains("diverting lan0, sat0 (link sat0, rate to be found out)"),
        "{}",
        said(&quick)
    );
}

#[test]
fn an_xcp_router_is_a_gateway_that_splits_nothing() {
    let line = ["xcp-router", "--in", "lan0", "--in", "lan1", "--out", "sat0", "--rate", "20 Mbit/s"];
    let output = farlink(&[&line[..], &["--check-config"]].concat());
    let links = "lan0 (link lan0, rate unknown, cubic, XCP by protocol 254), \
                 lan1 (link lan1, rate unknown, cubic, XCP by protocol 254), \
                 sat0 (link sat0, 20.0 Mbit/s, fixed-rate, XCP router, XCP by protocol 254)";
    assert_eq!(said(&output), format!("configuration is good: 0 rules; diverting {links}\n"));
    for wrong in [&line[..7], &line[..5], &["xcp-router", "--out", "sat0", "--rate", "20 Mbit/s"]] {
        assert_eq!(farlink(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let name = farlink(&["xcp-router", "--in", "la\"n", "--out", "sat0", "--rate", "1M", "--check-config"]);
    assert!(said(&name).contains("cannot be the name of an interface"), "{}", said(&name));
    let twice = farlink(&["xcp-router", "--in", "sat0", "--out", "sat0", "--rate", "1M", "--check-config"]);
    assert_eq!(twice.status.code(), Some(2), "{}", said(&twice));
}

#[test]
fn a_wrong_command_line_is_exit_status_2() {
    for line in
        [&["run", "--rate", "8 Mbit/s"][..], &["run", "--link", "a", "--rate", "fast"], &["stauts"], &[]]
    {
        assert_eq!(farlink(line).status.code(), Some(2), "{line:?}");
    }
    let text = said(&farlink(&["run", "--link", "a", "--rate", "8 Mbaud"]));
    assert!(text.contains("unknown unit `Mbaud`; allowed: a rate"), "{text}");
}

#[test]
fn without_a_gateway_the_askers_say_so() {
    let socket = "/nonexistent/farlink.sock";
    for line in [&["status"][..], &["flows"], &["drain"], &["set", "a", "b"], &["link", "sat0", "up"]] {
        let output = farlink(&[line, &["--socket", socket]].concat());
        assert_eq!(output.status.code(), Some(1), "{line:?}");
        let text = said(&output);
        assert!(
            text.contains("no gateway answers at /nonexistent/farlink.sock; start one with `farlink run`"),
            "{text}"
        );
    }
}

#[test]
fn check_answers_without_privilege_and_without_a_gateway() {
    let output = farlink(&["check", "--socket", "/nonexistent/farlink.sock", "--json"]);
    // 3: could, but none runs. 1: this machine or this user cannot.
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", said(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["exit_status"].as_i64(), output.status.code().map(i64::from));
    assert_eq!(json["answers"][0]["question"], "Can this host divert traffic?");
    assert_eq!(json["answers"][1]["answer"], "no");
}

#[test]
fn help_has_examples_and_names_the_documents() {
    for line in [
        &["--help"][..],
        &["run", "--help"],
        &["check", "--help"],
        &["status", "--help"],
        &["flows", "--help"],
        &["set", "--help"],
    ] {
        let output = farlink(line);
        assert!(output.status.success() && said(&output).contains("Examples:"), "{line:?}");
    }
    let text = said(&farlink(&["--help"]));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for document in text.split_whitespace().filter(|word| word.starts_with("docs/")) {
        assert!(root.join(document).exists(), "{document} does not exist");
    }
    assert!(!text.contains("bench"), "hidden commands stay hidden");
}

/// `print!` would panic in both cases.
#[test]
fn a_reader_that_goes_away_is_no_failure_and_a_full_disk_is_one_message() {
    let list = |stdout: std::process::Stdio| {
        Command::new(env!("CARGO_BIN_EXE_farlink")).args(["lab", "list"]).stdout(stdout).output().unwrap()
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = list(writer.into());
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = list(full.into());
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    assert!(
        text.starts_with("farlink: standard output cannot be written: ") && text.lines().count() == 1,
        "{text}"
    );
}

#[test]
fn what_is_wrong_on_the_command_line_is_said_with_the_same_status() {
    for (line, part) in [
        (&["run", "--link", "sat0", "--log", "nonsense"][..], "allowed are error, warn, info, debug, trace"),
        (&["run", "--config", "/nonexistent/farlink.toml"], "cannot read the configuration file"),
        (
            &["check", "--config", "/nonexistent/farlink.toml", "--socket", "/nonexistent/sock"],
            "cannot read the configuration file",
        ),
    ] {
        let output = farlink(line);
        assert!(
            output.status.code() == Some(2) && said(&output).contains(part),
            "{line:?}: {}",
            said(&output)
        );
    }
}

/// Programs go by them, so each stands in the manual.
#[test]
fn every_finding_of_check_has_an_id_that_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let manual = std::fs::read_to_string(root.join("docs/operating.md")).unwrap();
    let mut ids = 0;
    for file in ["linux/src/divert/diagnose.rs", "farlink/src/check/host.rs", "farlink/src/check/judge.rs"] {
        let text = std::fs::read_to_string(root.join("crates").join(file)).unwrap();
        for call in text.split("Diagnosis::new(").skip(1) {
            let Some(id) = call.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
                continue;
            };
            ids += 1;
            assert!(manual.contains(&format!("`{id}`")), "{file}: {id}");
        }
    }
    assert!(ids > 30, "{ids}");
    let output = farlink(&["check", "--json", "--seconds", "1", "--socket", "/nonexistent/sock"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = json["answers"][1]["found"].as_array().unwrap();
    assert!(found.iter().any(|finding| finding["id"] == "not-running"), "{json}");
}
