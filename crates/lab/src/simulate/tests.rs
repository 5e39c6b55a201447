use super::*;
use crate::scenario::Only;

fn no_gateway(_: &str) -> Result<farlink_gateway::Config> {
    bail!("these tests run without gateways")
}

fn direct(only: &str, threads: usize) -> Report {
    let chosen = Chosen {
        scenario: "geo-download".into(),
        only: Only::parse(&format!("variant=direct,{only}")).unwrap(),
        repeat: 1,
        seed: 1,
        ..Chosen::default()
    };
    let options = Options { chosen, threads };
    run(&options, &no_gateway, &|_| ()).unwrap()
}

#[test]
fn hosts_alone_take_the_time_that_linux_takes() {
    // What the namespace laboratory took with the same cells on kernel 6.18, seconds.
    for (only, lab) in [
        ("host_cc=cubic,size_bytes=100000", 2.07),
        ("host_cc=cubic,size_bytes=1000000", 4.11),
        ("host_cc=cubic,size_bytes=10000000", 13.43),
        ("host_cc=bbr,size_bytes=1000000", 4.32),
        ("host_cc=bbr,size_bytes=10000000", 14.65),
        ("hosts=legacy,size_bytes=1000000", 10.66),
    ] {
        let report = direct(only, 2);
        let [cell] = &report.cells[..] else { panic!("{only}: {} cells", report.cells.len()) };
        let seconds = cell.seconds.unwrap();
        assert!(cell.intact, "{only}: {:?}", cell.failures);
        assert!((seconds / lab - 1.0).abs() < 0.05, "{only}: {seconds} s, the laboratory took {lab} s");
        assert!(cell.ratio_to_limit.unwrap() >= 1.0, "{only}: faster than the limit");
    }
}

#[test]
fn the_results_are_the_seeds_whatever_the_threads() {
    let text = |threads| serde_json::to_string(&direct("size_bytes=100000", threads)).unwrap();
    let once = text(1);
    assert_eq!(once, text(1));
    assert_eq!(once, text(3));
    assert!(once.contains(r#""driver":"sim""#));
}

#[test]
fn what_has_no_simulator_is_said() {
    let chosen = Chosen { scenario: "drain".into(), ..Chosen::default() };
    let options = Options { chosen, ..Options::default() };
    let error = run(&options, &no_gateway, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("drain") && error.contains("lab run") && error.contains("transfer"), "{error}");
    let chosen = Chosen {
        scenario: "geo-download".into(),
        only: Only::parse("variant=haproxy").unwrap(),
        ..Chosen::default()
    };
    let options = Options { chosen, ..Options::default() };
    let report = run(&options, &no_gateway, &|_| ()).unwrap();
    assert!(report.cells.is_empty() && report.skipped.iter().all(|s| s.reason.contains("haproxy")));
    assert_eq!(report.skipped.len(), 3);
}
