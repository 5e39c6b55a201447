//! Namespaces, TUN, diversion and emulator inside a user namespace: what the laboratory does
//! without root.

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;

use common::packets::Bounce;
use common::{Path, say, skipped, transfer};
use farlink_linux::divert::DivertConfig;
use farlink_linux::sandbox;

/// Not a test by itself: what runs inside.
#[test]
fn child_in_the_sandbox() {
    if std::env::var_os("FARLINK_TEST_SANDBOX").is_none() {
        return;
    }
    if skipped("child_in_the_sandbox") {
        return;
    }
    assert!(!sandbox::is_needed(), "root inside");
    let path = Path::new();
    let bounce = Bounce::start(&path.router, &DivertConfig::default(), &["left", "right"]);
    transfer(&path, "10.2.0.1", 1_000_000);
    transfer(&path, "fd02::1", 1_000_000);
    assert!(bounce.seen().super_segments > 0);
    bounce.stop(&path.router);
    say("THE SANDBOX WORKS");
}

#[test]
fn everything_works_in_a_user_namespace() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child_in_the_sandbox", "--exact", "--nocapture"]).env("FARLINK_TEST_SANDBOX", "1");
    // SAFETY: the child has one thread, which is what making a user namespace needs; glibc lets it
    // allocate after a fork.
    unsafe {
        command.pre_exec(|| sandbox::enter().map_err(std::io::Error::other));
    }
    match command.output() {
        Err(e) => say(&format!("SKIPPED everything_works_in_a_user_namespace: {e}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
            match said.lines().find(|l| l.starts_with("SKIPPED")) {
                Some(reason) => say(reason),
                None => assert!(said.contains("THE SANDBOX WORKS"), "{said}"),
            }
        }
    }
}
