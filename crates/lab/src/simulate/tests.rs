use super::*;
use crate::scenario::Only;

fn no_gateway(_: &str) -> Result<Read> {
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

fn winking(scenario: &str, set: &[&str]) -> Report {
    let only = match scenario {
        "wink" => "variant=direct,wink_p=0.4,wink_i_ms=40,host_cc=cubic",
        _ => "variant=direct,size_bytes=1000000,host_cc=cubic",
    };
    let chosen = Chosen {
        scenario: scenario.into(),
        only: Only::parse(only).unwrap(),
        repeat: 4,
        seed: 1,
        set: set.iter().map(ToString::to_string).collect(),
        ..Chosen::default()
    };
    run(&Options { chosen, threads: 2 }, &no_gateway, &|_| ()).unwrap()
}

#[test]
fn winks_begin_with_the_first_byte_where_the_clock_does() {
    let report = winking("wink", &[]);
    assert!(report.cells.len() == 4 && report.cells.iter().all(|c| c.intact));
    let mut away_at_once = 0;
    for cell in &report.cells {
        let schedule = cell.schedule.as_ref().unwrap();
        assert_eq!(schedule.began_s, 0.0);
        // SYN and question met no wink.
        assert!(cell.metrics["connect_seconds"] < 0.01, "{}", cell.metrics["connect_seconds"]);
        assert!(cell.metrics["ratio_to_perfect"] >= 1.0);
        away_at_once += u32::from(schedule.outages_s[0][0] == 0.0);
    }
    assert!(away_at_once > 0, "the first interval can be away like any other");
}

#[test]
fn winks_meet_the_handshake_where_the_clock_starts_with_it() {
    let report = winking("geo-download", &["wink_p=0.5", "wink_i=2s"]);
    assert!(report.cells.iter().any(|c| c.metrics["connect_seconds"] > 1.0));
    for cell in &report.cells {
        assert!((cell.schedule.as_ref().unwrap().began_s - 0.001).abs() < 1e-9);
        assert!(cell.metrics["ratio_to_perfect"] >= 1.0, "{:?}", cell.metrics);
    }
}

#[test]
fn the_gateway_of_the_paper_stands_in_the_simulator() {
    let chosen = Chosen {
        scenario: "wink".into(),
        only: Only::parse("variant=farlink-custody-paper,host_cc=cubic,wink_p=0,wink_p=0.4,wink_i_ms=40")
            .unwrap(),
        repeat: 2,
        seed: 1,
        ..Chosen::default()
    };
    let report = run(&Options { chosen, threads: 2 }, &no_gateway, &|_| ()).unwrap();
    assert!(report.cells.len() == 4 && report.cells.iter().all(|c| c.intact));
    let mean = |p: f64| {
        let own = report.cells.iter().filter(|c| c.params["wink_p"].as_f64() == Some(p));
        let seconds: Vec<f64> = own.filter_map(|c| c.seconds).collect();
        seconds.iter().sum::<f64>() / seconds.len() as f64
    };
    // Reynolds 4.7: slower without winks than without him. With short ones, hosts alone would take
    // 20 s and more; the worse of two seeds of his gateway does, too.
    assert!((2.0..4.0).contains(&mean(0.0)), "{}", mean(0.0));
    assert!((3.0..22.0).contains(&mean(0.4)), "{}", mean(0.4));
    // Everything again and again.
    let wasted = report.cells.iter().map(|c| c.metrics["wasted_bytes"]).fold(0.0, f64::max);
    assert!(wasted > 5e6, "{wasted}");
}
