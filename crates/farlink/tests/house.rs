//! The house keeps its own rules: which crate may know which, how long a file may be, what never
//! stands in one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates that call no operating system. `scripts/wasm-proof.sh` proves the same of what they link.
const SANS_IO: [&str; 7] = ["wire", "cc", "xcp", "engine", "egress", "channel", "gateway"];

/// The arrows of the crate graph: who may use whom. A crate that is missing here may use nobody.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("cc", &["wire", "xcp"]),
    ("xcp", &["wire"]),
    ("engine", &["wire", "cc", "xcp"]),
    ("egress", &["wire"]),
    ("channel", &["wire", "xcp", "egress"]),
    ("gateway", &["wire", "cc", "xcp", "engine", "egress"]),
    ("sim", &["wire", "cc", "engine", "egress", "gateway", "channel"]),
    ("linux", &["wire", "cc", "engine", "egress", "gateway", "channel"]),
    ("lab", &["wire", "cc", "engine", "egress", "gateway", "channel", "sim", "linux"]),
    ("farlink", &["wire", "cc", "engine", "egress", "gateway", "channel", "sim", "linux", "lab"]),
];

/// A file is read in one sitting.
const LINES_MAX: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn crates() -> BTreeMap<String, PathBuf> {
    let directories = std::fs::read_dir(root().join("crates")).unwrap();
    let with_name = directories.map(|d| d.unwrap()).map(|d| (d.file_name().into_string().unwrap(), d.path()));
    with_name.filter(|(_, path)| path.join("Cargo.toml").exists()).collect()
}

/// Every file of the repository that a person wrote, with its path from the root.
fn files() -> Vec<(String, PathBuf)> {
    fn visit(directory: &Path, root: &Path, found: &mut Vec<(String, PathBuf)>) {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let skipped = name.starts_with("target")
                || [".git", "fuzz/target", "fuzz/artifacts", "fuzz/corpus", "out", "demo-out"]
                    .contains(&name.as_str())
                || name.ends_with("/target");
            if skipped {
            } else if path.is_dir() {
                visit(&path, root, found);
            } else {
                found.push((name, path));
            }
        }
    }
    let mut found = Vec::new();
    visit(&root(), &root(), &mut found);
    found.sort();
    found
}

fn text_files(endings: &[&str]) -> Vec<(String, String)> {
    let wanted = files().into_iter().filter(|(name, _)| endings.iter().any(|e| name.ends_with(e)));
    wanted.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect()
}

/// Code without its tests: what stands before the first `#[cfg(test)]`, outside `tests/` and files
/// called `tests.rs`.
fn production_code() -> Vec<(String, String)> {
    let not_test =
        |name: &str| name.contains("/src/") && !name.contains("/tests/") && !name.ends_with("/tests.rs");
    let sources =
        text_files(&[".rs"]).into_iter().filter(|(name, _)| name.starts_with("crates/") && not_test(name));
    sources
        .map(|(name, text)| (name, text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()))
        .collect()
}

fn fail_with(what: &str, mut complaints: Vec<String>) {
    complaints.sort();
    assert!(complaints.is_empty(), "{what}:\n  {}", complaints.join("\n  "));
}

#[test]
fn crates_know_only_those_that_they_may_know() {
    let allowed: BTreeMap<_, BTreeSet<_>> =
        ARROWS.iter().map(|(who, whom)| (*who, whom.iter().copied().collect())).collect();
    let mut complaints = Vec::new();
    let mut arrows = 0;
    for (name, path) in crates() {
        let manifest: toml::Table =
            std::fs::read_to_string(path.join("Cargo.toml")).unwrap().parse().unwrap();
        for table in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(table).and_then(|t| t.as_table()) else { continue };
            for dependency in dependencies.keys().filter_map(|k| k.strip_prefix("farlink-")) {
                arrows += 1;
                if !allowed.get(name.as_str()).is_some_and(|whom| whom.contains(dependency)) {
                    complaints.push(format!("{name} may not use {dependency}"));
                }
            }
        }
    }
    assert!(arrows > 10, "no arrows were found: the test looks in the wrong place");
    fail_with("the crate graph of ARCHITECTURE.md is broken", complaints);
}

/// Which modules of a crate name which others of it; what lies below a module belongs to it.
fn imports(of: &str) -> BTreeMap<String, BTreeSet<String>> {
    let sources = format!("crates/{of}/src/");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in production_code() {
        let Some(path) = name.strip_prefix(&sources).filter(|path| *path != "lib.rs") else { continue };
        let module = path.trim_end_matches(".rs").split('/').next().unwrap_or_default();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let named = code.flat_map(|line| line.split("crate::").skip(1));
        let named =
            named.filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next());
        found.entry(module.to_owned()).or_default().extend(named.filter(|n| *n != module).map(str::to_owned));
    }
    found
}

#[test]
fn files_of_the_engine_know_each_other_in_no_circle() {
    let imports = imports("engine");
    assert!(imports.get("engine").is_some_and(|named| named.contains("flow")), "{imports:?}");
    let reached_from = |start: &String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![start];
        while let Some(module) = next.pop() {
            next.extend(imports.get(module).into_iter().flatten().filter(|m| reached.insert((*m).clone())));
        }
        reached
    };
    let circle = imports.keys().filter(|module| reached_from(module).contains(*module)).cloned().collect();
    fail_with("files that know themselves through others: none of them can be read alone", circle);
}

/// A flow hands each event to its treatment, in one file. The treatments' own code is theirs, and
/// never asks which one it is.
#[test]
fn a_flow_is_treated_in_one_place() {
    let engine: Vec<_> =
        production_code().into_iter().filter(|(name, _)| name.starts_with("crates/engine/src/")).collect();
    let places = |what: &str| -> Vec<_> {
        let found = engine.iter().flat_map(|(name, text)| {
            text.lines()
                .filter(|line| line.contains(what))
                .map(move |line| format!("{name}: {}", line.trim()))
        });
        found.collect()
    };
    assert_eq!(places("impl Flow {"), ["crates/engine/src/flow.rs: impl Flow {"]);
    assert_eq!(places("treatment = treatment"), ["crates/engine/src/flow.rs: self.treatment = treatment;"]);
    assert_eq!(places(".treatment = ").len(), 1, "another place that assigns a treatment");
    assert_eq!(places("relays.as_"), [""; 0], "relays that may be missing");
    assert_eq!(places("as_split"), [""; 0], "a treatment that answers nothing is asked all the same");
}

/// Everything that leaves passes one place, where it can be counted, stamped and shown to a trace.
#[test]
fn packets_leave_at_one_place() {
    let mut places = Vec::new();
    for (name, text) in production_code() {
        if ["engine", "gateway"].iter().any(|c| name.starts_with(&format!("crates/{c}/"))) {
            let calls = text.lines().filter(|line| line.contains(".transmit(")).count();
            places.extend(core::iter::repeat_n(name, calls));
        }
    }
    assert_eq!(places, ["crates/gateway/src/outlet.rs"]);
}

/// A thread of the daemon says which priority it has. Other programs have no event loop.
#[test]
fn threads_of_the_daemon_are_started_in_one_place() {
    let elsewhere = [
        "crates/lab/",
        "crates/linux/src/emulator",
        "crates/linux/src/netns.rs",
        "crates/linux/src/priority.rs",
        "crates/farlink/src/bench/",
        "crates/farlink/src/admin/client.rs",
        "crates/farlink/src/check/mod.rs",
    ];
    let is_elsewhere = |name: &str| elsewhere.iter().any(|start| name.starts_with(start));
    let starts = ["thread::spawn(", "thread::Builder"];
    let found = production_code()
        .into_iter()
        .filter(|(name, text)| !is_elsewhere(name) && starts.iter().any(|start| text.contains(start)));
    fail_with("they start threads", found.map(|(name, _)| name).collect());
}

/// What an acknowledgement promises answers two questions: how far it may run ahead, and which
/// window is shown. Both are asked where segments are made.
#[test]
fn a_promise_is_read_for_two_questions() {
    let engine: Vec<_> =
        production_code().into_iter().filter(|(name, _)| name.starts_with("crates/engine/src/")).collect();
    let files = |what: &str| -> Vec<_> {
        let names = engine.iter().filter(|(_, text)| text.contains(what)).map(|(name, _)| name.as_str());
        names.collect()
    };
    let [flow, owed, segment] = ["flow", "owed", "segment"].map(|f| format!("crates/engine/src/{f}.rs"));
    assert_eq!(files(".ack_max("), [&segment]);
    assert_eq!(files("promise_to("), [&segment]);
    // Whether anything is owed does not depend on who is told.
    assert_eq!(files("self.promise"), [&flow, &owed, &segment], "read without asking who is told");
    assert_eq!(files("Promise::Shown"), [""; 0], "what follows from a promise stands in one file");
}

/// Fields of objects that are read from many files, and why that is right: object, fields, why.
const READ_FROM_MANY_FILES: &[(&str, &[&str], &str)] = &[
    ("Relay", &["tx"], "one of its three parts, an object with verbs"),
    ("Leg", &["addr", "port"], "the name of a host: plain data that never changes, and a key of tables"),
    ("Leg", &["path_mtu"], "a part of it, an object with verbs"),
    ("Engine", &["table"], "a part of it, an object with verbs; the engine's methods stand in several files"),
    ("Engine", &["split_count"], "the engine's own, read by its methods alone, which stand in several files"),
];

/// What an object knows is asked for in its own words: a field that is read all over cannot be
/// understood in one file, nor changed.
///
/// Objects are the structs of the engine that cannot be cloned, and the leg. What can be cloned is
/// a plain value: a header, a message, configuration, a plan, a snapshot for a report. What has a
/// lifetime is a bundle of borrowed things for one event. Of a name that several structs have, text
/// does not tell whose it is, so only names that stand for one field are counted; and those of the
/// receiver and the sender, which are `rx` and `tx` wherever they are.
#[test]
fn fields_of_objects_are_read_in_two_files_at_most() {
    let code = production_code();
    let engine: Vec<_> = code.iter().filter(|(name, _)| name.starts_with("crates/engine/src/")).collect();
    let known = ["wire", "cc", "engine"].map(|c| format!("crates/{c}/src/"));
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut objects = Vec::new();
    for (name, text) in code.iter().filter(|(name, _)| known.iter().any(|k| name.starts_with(k))) {
        for Struct { name: owner, attributes, is_bundle, fields } in structs(text) {
            for (field, _) in &fields {
                owners.entry(field.clone()).or_default().insert(format!("{name} {owner}"));
            }
            let is_object = (!attributes.contains("Clone") || owner == "Leg") && !is_bundle;
            if is_object && name.starts_with(&known[2]) {
                let public = fields.into_iter().filter(|(_, is_public)| *is_public);
                objects.extend(public.map(|(field, _)| (owner.clone(), field)));
            }
        }
    }
    let called_always = |owner: &str| match owner {
        "Receiver" => "rx",
        "Sender" => "tx",
        _ => "",
    };
    let files_that_read = |owner: &str, field: &str| {
        let called = if owners[field].len() == 1 { "" } else { called_always(owner) };
        let reads = |text: &str| {
            text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
                line.match_indices(&format!("{called}.{field}")).any(|(at, found)| {
                    !line[at + found.len()..]
                        .starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '(')
                })
            })
        };
        engine.iter().filter(|(_, text)| reads(text)).count()
    };
    let excused: BTreeSet<_> = READ_FROM_MANY_FILES
        .iter()
        .flat_map(|(owner, fields, _)| fields.iter().map(|f| ((*owner).to_owned(), (*f).to_owned())))
        .collect();
    let widely: BTreeSet<_> = objects
        .iter()
        .filter(|(owner, field)| owners[field].len() == 1 || !called_always(owner).is_empty())
        .filter(|(owner, field)| files_that_read(owner, field) > 2)
        .cloned()
        .collect();
    assert!(objects.len() > 30, "no objects were found: the test looks in the wrong place");
    let more = widely.difference(&excused).map(|(owner, field)| {
        format!("{owner}.{field} is read in {} files: give its owner a verb", files_that_read(owner, field))
    });
    let fewer = excused.difference(&widely).map(|(o, f)| format!("{o}.{f} needs no excuse any more"));
    fail_with("fields that are read all over", more.chain(fewer).collect());
}

/// A struct with named fields, as its source says it.
struct Struct {
    name: String,
    attributes: String,
    /// It borrows what it has.
    is_bundle: bool,
    /// Each with whether others may read it.
    fields: Vec<(String, bool)>,
}

/// The structs with named fields of a file in rustfmt's layout, none of them inside a function.
fn structs(text: &str) -> Vec<Struct> {
    let is_public = |line: &str| line.starts_with("pub ") || line.starts_with("pub(");
    let without_pub = |line: &str| -> String {
        if !is_public(line) {
            return line.to_owned();
        }
        let rest = line.strip_prefix("pub").unwrap_or_default();
        let rest = if rest.starts_with('(') { rest.split_once(')').map_or("", |(_, r)| r) } else { rest };
        rest.trim_start().to_owned()
    };
    let mut found = Vec::new();
    let mut attributes = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("#[") {
            attributes.push_str(line);
        } else if !line.starts_with("///") {
            let declared = without_pub(line);
            let head = declared.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {"));
            if let Some(head) = head {
                let end = head.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(head.len());
                let body = lines.by_ref().take_while(|line| *line != "}").filter_map(|line| {
                    let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '/', '#']))?;
                    let (field, _) =
                        without_pub(line).split_once(':').map(|(f, t)| (f.to_owned(), t.to_owned()))?;
                    Some((field, is_public(line)))
                });
                found.push(Struct {
                    name: head[..end].to_owned(),
                    attributes: core::mem::take(&mut attributes),
                    is_bundle: head.contains("<'"),
                    fields: body.collect(),
                });
            }
            attributes.clear();
        }
    }
    found
}

/// A function of the sans-I/O crates is seen at one look.
const FUNCTION_LINES_MAX: usize = 70;
/// Comments are prose: a line of them is shorter than one of code may be.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Numbers of a stream that no connection remembers for longer than a window: values of one event,
/// of a message, of the records of what is under way, and where a stream ends.
const SHORT_NUMBERS: [&str; 13] = [
    "acked.rs: highest",
    "acked.rs: newest",
    // For a moment.
    "governor.rs: held",
    "message.rs: far_ack",
    "plan.rs: urgent_end",
    "plan.rs: urgent_until",
    "plan.rs: urgent_zero",
    "receiver.rs: fin_at",
    "receiver.rs: fin_claimed",
    "relay.rs: frozen_at",
    "scoreboard.rs: lost_from",
    "segment.rs: held",
    "sender.rs: newest",
];

/// A sequence number that is remembered for longer than the numbers take to come round seems to lie
/// ahead.
#[test]
fn remembered_sequence_numbers_end_by_themselves() {
    let mut complaints = Vec::new();
    for (name, text) in production_code().iter().filter(|(name, _)| name.starts_with("crates/engine/src")) {
        let file = name.rsplit('/').next().unwrap();
        let lists: String =
            text.split("\nbookmarks!(").skip(1).filter_map(|list| list.split(");").next()).collect();
        let listed: BTreeSet<&str> = lists.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for line in text.lines().filter(|line| line.ends_with(',') && line.starts_with("    ")) {
            let Some((field, of)) = line.trim().trim_start_matches("pub ").split_once(": ") else { continue };
            let field = field.rsplit(' ').next().unwrap();
            let at = format!("{file}: {field}");
            if of.starts_with("Option<") && of.contains("SeqNum") && !SHORT_NUMBERS.contains(&at.as_str()) {
                complaints.push(format!("{at} is to be a Bookmark"));
            }
            if (of == "Bookmark," || of.starts_with("Bookmark<")) && !listed.contains(field) {
                complaints.push(format!("{at} stands in no list of bookmarks"));
            }
        }
    }
    fail_with("sequence numbers are remembered for ever", complaints);
}

#[test]
fn functions_are_short_enough_to_be_seen_at_one_look() {
    let mut complaints = Vec::new();
    let mut longest = 0;
    for (name, text) in production_code() {
        if !SANS_IO.iter().any(|c| name.starts_with(&format!("crates/{c}/"))) {
            continue;
        }
        let lines: Vec<_> = text.lines().collect();
        for (number, line) in (1..).zip(&lines) {
            let code = line.trim_start();
            // One that ends on its first line needs no look for its end: rustfmt puts that where
            // the line began.
            if code.starts_with("//") || !format!(" {code}").contains(" fn ") || code.ends_with(['}', ';']) {
                continue;
            }
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            let Some(length) = lines[number..].iter().position(|line| *line == end) else { continue };
            longest = longest.max(length + 2);
            if length + 2 > FUNCTION_LINES_MAX {
                complaints
                    .push(format!("{name}:{number}: {} lines, at most {FUNCTION_LINES_MAX}", length + 2));
            }
        }
    }
    assert!(longest > 40, "no functions were found: the test looks in the wrong place");
    fail_with("functions that are too long", complaints);
}

#[test]
fn files_are_short_enough_to_be_read() {
    let mut complaints = Vec::new();
    for (name, text) in text_files(&[".rs", ".sh", ".py", ".js", ".css"]) {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            complaints.push(format!("{name}: {lines} lines, at most {LINES_MAX}"));
        }
    }
    fail_with("files that are too long", complaints);
}

#[test]
fn comments_are_wrapped() {
    let mut complaints = Vec::new();
    for (name, text) in text_files(&[".rs"]) {
        for (line, number) in text.lines().zip(1..) {
            let columns = line.chars().count();
            if line.trim_start().starts_with("//") && columns > COMMENT_COLUMNS_MAX {
                complaints.push(format!("{name}:{number}: {columns} columns"));
            }
        }
    }
    let what = format!("comments are wrapped at {COMMENT_COLUMNS_MAX} columns");
    fail_with(&what, complaints);
}

#[test]
fn nothing_unfinished_and_nothing_of_one_machine_stands_in_the_code() {
    // Put together here, so that this file does not contain them.
    let unfinished =
        [["to", "do!("], ["unimple", "mented!("], ["db", "g!("], ["#[ig", "nore"], ["FIX", "ME"]]
            .map(|p| p.concat());
    let of_one_machine =
        [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["artifa", "ctory"]].map(|p| p.concat());
    // What a reader of the repository cannot look up.
    let elsewhere = [["the mis", "sion"], ["DESI", "GN"], ["MISS", "ION"], ["REVI", "EW"], ["FAC", "TS"]]
        .map(|p| p.concat());
    let mut complaints = Vec::new();
    for (name, text) in
        text_files(&[".rs", ".toml", ".md", ".sh", ".service", "Makefile", ".ci/run", ".lock", ".html"])
    {
        for (number, line) in (1..).zip(text.lines()) {
            let code = name.ends_with(".rs");
            let bad = unfinished
                .iter()
                .filter(|_| code)
                .chain(&of_one_machine)
                .chain(&elsewhere)
                .find(|word| line.contains(word.as_str()));
            if let Some(word) = bad {
                complaints.push(format!("{name}:{number}: `{word}`"));
            }
            if line.ends_with([' ', '\t']) && !name.ends_with(".lock") {
                complaints.push(format!("{name}:{number}: white space at the end of the line"));
            }
            if code && line.contains('\t') {
                complaints.push(format!("{name}:{number}: a tab"));
            }
        }
    }
    fail_with("what should not stand in a file", complaints);
}

#[test]
fn sans_io_crates_forbid_panics_and_unsafe_code() {
    let mut complaints = Vec::new();
    for name in SANS_IO {
        let lib = std::fs::read_to_string(root().join("crates").join(name).join("src/lib.rs")).unwrap();
        let lints = ["unwrap_used", "expect_used", "panic", "indexing_slicing", "unreachable"];
        for wanted in lints
            .map(|l| format!("clippy::{l}"))
            .iter()
            .map(String::as_str)
            .chain(["#![forbid(unsafe_code)]", "deny(missing_docs)"])
        {
            if !lib.contains(wanted) {
                complaints.push(format!("crates/{name}/src/lib.rs lacks `{wanted}`"));
            }
        }
    }
    fail_with("sans-I/O crates", complaints);
}

/// The Wasm proof cannot see these: on that target the standard library answers them with
/// "unsupported".
#[test]
fn sans_io_crates_name_no_clock_file_socket_or_thread() {
    let calls = ["fs", "thread", "process", "env", "os", "io"].map(|module| format!("std::{module}"));
    let types = [
        "Instant::now",
        "SystemTime",
        "TcpStream",
        "UdpSocket",
        "UnixStream",
        "println!",
        "eprintln!",
        "RandomState",
        "thread_local!",
    ];
    let mut complaints = Vec::new();
    let mut files = 0;
    for (name, text) in production_code() {
        if !SANS_IO.iter().any(|c| name.starts_with(&format!("crates/{c}/"))) {
            continue;
        }
        files += 1;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for word in calls.iter().map(String::as_str).chain(types).filter(|word| line.contains(word)) {
                complaints.push(format!("{name}:{number}: `{word}`"));
            }
        }
    }
    assert!(files > 6, "no files were found: the test looks in the wrong place");
    fail_with("sans-I/O crates call no operating system", complaints);
}

#[test]
fn documents_name_files_that_exist() {
    let mut complaints = Vec::new();
    for (name, text) in text_files(&[".md"]) {
        let here = root().join(&name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let outside = link.is_empty() || link.contains("://") || link.starts_with("mailto:");
            if !outside && !here.parent().unwrap().join(link).exists() {
                complaints.push(format!("{name} links to `{link}`, which does not exist"));
            }
        }
    }
    fail_with("dead links", complaints);
}

#[test]
fn architecture_names_files_that_exist_and_leaves_none_of_the_middle_out() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let quoted: BTreeSet<&str> = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let all = files();
    let exists = |name: &str| all.iter().any(|(path, _)| path == name || path.ends_with(&format!("/{name}")));
    let is_file = |name: &str| name.ends_with(".rs") || name.ends_with(".sh") || name.ends_with(".toml");
    let gone = quoted.iter().filter(|name| is_file(name) && !name.contains(' ') && !exists(name));
    let mut complaints: Vec<String> = gone.map(|name| format!("{name} does not exist")).collect();
    let places = quoted.iter().filter(|name| name.starts_with("crates/") && !is_file(name));
    complaints.extend(
        places.filter(|name| !root().join(name).exists()).map(|name| format!("{name} does not exist")),
    );
    for (path, _) in &all {
        let below = ["crates/engine/src/", "crates/gateway/src/"].iter().find_map(|d| path.strip_prefix(d));
        let Some(below) = below.filter(|name| !name.ends_with("lib.rs") && !name.ends_with("tests.rs"))
        else {
            continue;
        };
        let name = below.rsplit('/').next().unwrap();
        if !quoted.iter().any(|q| *q == name || q.ends_with(&format!("/{name}"))) {
            complaints.push(format!("{path}: no question leads to it"));
        }
    }
    fail_with("ARCHITECTURE.md and the files", complaints);
}
