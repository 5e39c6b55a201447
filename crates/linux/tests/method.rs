//! `auto`: a bump where the kernel lets us, else policy routing.

mod common;

use common::bpf::{TCX, older_kernel};
use common::daemon::{Daemon, config};
use common::{Path, Running, eventually, skipped, transfer};
use farlink_linux::divert::{Method, Severity, refusal};
use farlink_linux::driver::{Driver, DriverConfig, End};

fn auto() -> DriverConfig {
    let mut config = config(None);
    config.divert.method = Method::Auto;
    config
}

#[test]
fn a_bump_is_taken_where_there_can_be_one() {
    if skipped("a_bump_is_taken_where_there_can_be_one") {
        return;
    }
    match farlink_linux::bump::Bump::is_possible() {
        Err(e) if e.is(libc::EPERM) || e.is(libc::EINVAL) && e.to_string().contains("attaching") => {
            return common::say(&format!("SKIPPED a_bump_is_taken_where_there_can_be_one: {e}"));
        }
        other => other.unwrap(),
    }
    assert_eq!(refusal(Method::Bump, &[]), None);
    let path = Path::new();
    let daemon = Daemon::start(&path.router, auto());
    assert_eq!(daemon.status().1.diversion.method, "bump");
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!(daemon.status().0.engine.counters.flows_split, 1);
    assert_eq!(path.router.sh("nft list ruleset"), "");
    assert_eq!(daemon.drain(), End::Drained);
}

/// Not a test by itself: a gateway without CAP_BPF, and what `farlink check` would find there.
#[test]
fn child_without_bpf() {
    if std::env::var_os("FARLINK_TEST_METHOD").is_none() {
        return;
    }
    farlink_linux::caps::keep_net_admin(false).unwrap();
    let found = |method| refusal(method, &[]).map(|d| d.severity);
    assert_eq!(found(Method::Policy), None);
    assert_eq!(found(Method::Auto), Some(Severity::Note));
    assert_eq!(found(Method::Bump), Some(Severity::Problem));
    let mut must = auto();
    must.divert.method = Method::Bump;
    let refused = Driver::start(must).err().unwrap();
    assert!(refused.is(libc::EPERM), "{refused}");
    let driver = Driver::start(auto()).unwrap();
    common::say("READY");
    driver.run(None, |_| {}).unwrap();
}

#[test]
fn policy_routing_is_taken_where_there_can_be_no_bump() {
    if skipped("policy_routing_is_taken_where_there_can_be_no_bump") {
        return;
    }
    let path = Path::new();
    let log = std::env::temp_dir().join(format!("flm{}.log", std::process::id()));
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["child_without_bpf", "--exact", "--nocapture", "--test-threads=1"])
        .env("FARLINK_TEST_METHOD", "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap());
    let child = Running(path.router.0.exec(command).unwrap());
    let said = || std::fs::read_to_string(&log).unwrap();
    eventually("it diverts", || {
        assert!(!said().contains("panicked"), "{}", said());
        said().contains("READY")
    });
    let counted =
        || path.router.sh("nft list counters table inet farlink | grep -A1 'counter diverted_0' | tail -1");
    assert!(counted().contains("packets 0 "), "{}", counted());
    transfer(&path, "10.2.0.1", 100_000);
    assert!(!counted().contains("packets 0 "), "{}", counted());
    drop(child);
    eventually("the table is gone", || path.router.sh("nft list ruleset").is_empty());
    let _ = std::fs::remove_file(&log);
}

/// What SQM does to shape what comes in by `right`.
const SQM: &str = "tc qdisc add dev right handle ffff: ingress && ip link add ifb4right type ifb && ip link set ifb4right up && \
     tc filter add dev right parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
     action mirred egress redirect dev ifb4right";
const SQM_ENDS: &str = "tc qdisc del dev right ingress && ip link del ifb4right";

/// With tcx both have their place. Without it there is one for both, which is left to SQM.
#[test]
fn sqm_has_its_place_before_and_after() {
    const TEST: &str = "sqm_has_its_place_before_and_after";
    let has_tcx = std::env::var_os(TCX).is_none();
    if has_tcx {
        older_kernel(TEST);
    }
    if skipped(TEST) || common::missing(TEST, "tc") {
        return;
    }
    let path = Path::new();
    path.router.sh(SQM);
    let daemon = Daemon::start(&path.router, auto());
    let diversion = || daemon.status().1.diversion;
    let expected = if has_tcx { "bump" } else { "policy" };
    assert_eq!(diversion().method, expected);
    let said =
        diversion().found.iter().any(|f| f.id == "no-bump" && f.text.contains("`ingress` stands at right"));
    assert_eq!(said, !has_tcx, "{:?}", diversion());
    for address in ["10.2.0.1", "fd02::1"] {
        transfer(&path, address, 100_000);
    }
    assert_eq!(daemon.status().0.engine.counters.flows_split, 2);
    // It ends, and begins while Farlink is at work.
    path.router.sh(SQM_ENDS);
    path.router.sh(SQM);
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!(daemon.status().0.engine.counters.flows_split, 3);
    eventually("it is in place", || diversion().in_place);
    assert_eq!(daemon.drain(), End::Drained);
}
