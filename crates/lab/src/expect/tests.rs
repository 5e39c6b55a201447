use serde_json::json;

use super::*;
use crate::report::{Measured, Skipped};
use crate::scenario::BUILTIN;

const TEXT: &str = r#"
    name = "t"
    title = "t"
    kind = "transfer"
    [[axis]]
    name = "size_bytes"
    values = [1000, 2000]
    [[variant]]
    name = "direct"
    gateways = 0
    host_cc = "bbr"
    [[variant]]
    name = "direct"
    gateways = 0
    host_cc = "reno"
    [[variant]]
    name = "farlink"
"#;

fn scenario(more: &str) -> Scenario {
    Scenario::parse(&format!("{TEXT}\n{more}")).unwrap()
}

/// A report with seconds of cells: size, variant with its controller, seconds of each run.
fn report(scenario: &Scenario, runs: &[(u64, &str, &[f64])]) -> Report {
    let mut report = Report { scenario: "t".into(), ..Report::default() };
    for (size, name, times) in runs {
        let is_it = |c: &&Cell| {
            let named = if c.variant == "direct" { c.word("host_cc", "").into() } else { c.variant.clone() };
            c.number("size_bytes", 0) == *size && named == *name
        };
        let cells = scenario.cells().unwrap();
        let cell = cells.iter().find(is_it).unwrap_or_else(|| panic!("{size} {name}"));
        for (repeat, seconds) in times.iter().enumerate() {
            let mut measured =
                Measured { seconds: *seconds, bytes: *size, limit_seconds: Some(1.0), ..Measured::default() };
            measured.metric("jain", 0.9);
            measured.expect(seconds.is_finite(), || "it broke off".into());
            report.cells.push(CellReport::new(cell, repeat as u32, 1, Ok(measured)));
        }
    }
    report
}

fn judged(more: &str, runs: &[(u64, &str, &[f64])]) -> Judgement {
    let scenario = scenario(more);
    let cells = scenario.cells().unwrap();
    Judge::new(&scenario, &cells, Driver::Sim).unwrap().judge(&report(&scenario, runs))
}

#[test]
fn a_bound_holds_or_is_missed_and_both_are_said() {
    let text = "[[expect]]\nof = { variant = 'farlink' }\nat_most = { ratio_to_limit = 1.5 }\nat_least = { jain = 0.95 }";
    let judgement = judged(text, &[(1000, "farlink", &[1.2]), (2000, "farlink", &[1.6])]);
    let shown: Vec<_> = judgement.verdicts.iter().map(|v| (v.figure.as_str(), v.value, v.holds)).collect();
    assert_eq!(
        shown,
        [
            ("ratio_to_limit", Some(1.2), true),
            ("jain", Some(0.9), false),
            ("ratio_to_limit", Some(1.6), false),
            ("jain", Some(0.9), false)
        ]
    );
    assert_eq!(judgement.missed(), 3);
    let text = render(&judgement);
    assert!(text.contains("FAIL  1. ratio_to_limit 1.6000 <= 1.5000: farlink"), "{text}");
    assert!(text.contains("size_bytes=2000") && text.contains("1 hold, 3 missed, 0 not judged"), "{text}");
}

#[test]
fn slower_than_another_is_more_than_two_percent_and_five_milliseconds() {
    let text =
        "[[expect]]\nof = { variant = 'farlink' }\nnot_slower_than = { variant = 'direct', host_cc = 'bbr' }";
    let judge =
        |ours: &[f64], theirs: &[f64]| judged(text, &[(1000, "farlink", ours), (1000, "bbr", theirs)]);
    let one = |judgement: &Judgement| judgement.verdicts[0].holds;
    assert!(one(&judge(&[1.024], &[1.0])));
    assert!(!one(&judge(&[1.026], &[1.0])));
    assert!(one(&judge(&[1.024, 9.0, 0.5], &[1.0, 1.0, 7.0])), "medians count");
    assert!(one(&judge(&[2.0], &[f64::INFINITY])), "the other broke off");
    assert!(!one(&judge(&[f64::INFINITY], &[1.0])), "this one broke off");
    assert!(!one(&judge(&[f64::INFINITY], &[f64::INFINITY])), "both did, which says nothing");
    // The other variant did not run: nothing is judged, and that is said.
    let judgement = judged(text, &[(1000, "farlink", &[1.0])]);
    assert!(judgement.verdicts.is_empty() && judgement.not_judged[0].reason.contains("compared"));
}

#[test]
fn of_several_runs_the_one_that_was_named_counts() {
    let runs: &[f64] = &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 9.0];
    for (which, value) in [("median", 1.5), ("mean", 2.16), ("p90", 1.8), ("worst", 9.0)] {
        let text = format!(
            "[[expect]]\nof = {{ variant = 'farlink' }}\nruns = '{which}'\nat_most = {{ seconds = 2 }}"
        );
        assert_eq!(judged(&text, &[(1000, "farlink", runs)]).verdicts[0].value, Some(value), "{which}");
    }
    assert_eq!(one_of(&[1.0, 2.0, 3.0], Runs::Median, true), 2.0);
    assert_eq!(one_of(&[1.0, 2.0, 3.0], Runs::Worst, false), 1.0);
    assert_eq!(one_of(&[1.0], Runs::P90, true), 1.0);
    let text = "[[expect]]\nof = { variant = 'farlink' }\nruns_min = 2\nat_most = { seconds = 2 }";
    assert!(judged(text, &[(1000, "farlink", &[1.0])]).not_judged[0].reason.contains("needs 2"));
}

#[test]
fn a_bound_of_all_cells_together_waits_for_all_of_them() {
    let text = "[[expect]]\nof = { variant = 'farlink' }\ncells = 'mean'\nruns = 'mean'\nat_most = { seconds = 1.5 }";
    let judgement = judged(text, &[(1000, "farlink", &[1.0, 3.0]), (2000, "farlink", &[0.5])]);
    let [verdict] = &judgement.verdicts[..] else { panic!("{judgement:?}") };
    assert_eq!((verdict.value, verdict.holds, verdict.runs), (Some(1.25), true, 3));
    let text_of = render(&judgement);
    assert!(text_of.contains("mean of 2 cells"), "{text_of}");
    let judgement = judged(text, &[(1000, "farlink", &[4.0]), (2000, "farlink", &[0.5])]);
    assert!(!judgement.verdicts[0].holds);
    let judgement = judged(text, &[(1000, "farlink", &[1.0])]);
    assert!(judgement.verdicts.is_empty() && judgement.not_judged[0].reason.contains("1 of the 2 cells"));
}

#[test]
fn paired_runs_are_those_of_the_same_seeds() {
    let text = "[[expect]]\nof = { variant = 'farlink' }\nruns = 'paired'\nnot_slower_than = { variant = 'direct', host_cc = 'bbr' }";
    let scenario = scenario(text);
    let cells = scenario.cells().unwrap();
    let mut report = report(&scenario, &[(1000, "farlink", &[2.0, 4.0, 90.0]), (1000, "bbr", &[3.0, 3.0])]);
    for cell in &mut report.cells {
        cell.seed = u64::from(cell.repeat);
    }
    let judgement = Judge::new(&scenario, &cells, Driver::Sim).unwrap().judge(&report);
    let verdict = &judgement.verdicts[0];
    assert_eq!((verdict.value, verdict.holds), (Some(3.0), true), "the third has no pair");
    report.cells[0].seed = 7;
    let judgement = Judge::new(&scenario, &cells, Driver::Sim).unwrap().judge(&report);
    assert_eq!((judgement.verdicts[0].value, judgement.verdicts[0].holds), (Some(4.0), false));
}

const MEANS: &str = "[[expect]]
    of = { variant = 'farlink' }
    runs = 'means'
    never_above = 1.1
    second_worst = 1.25
    not_slower_than = { variant = 'direct', host_cc = ['bbr', 'reno'] }";

#[test]
fn by_means_the_better_of_the_others_counts() {
    let judge = |ours: &[f64], bbr: &[f64], reno: &[f64]| {
        judged(MEANS, &[(1000, "farlink", ours), (1000, "bbr", bbr), (1000, "reno", reno)])
    };
    let holds = |judgement: &Judgement| judgement.verdicts[0].holds;
    assert!(holds(&judge(&[1.024], &[1.0], &[2.0])));
    assert!(!holds(&judge(&[1.026], &[1.0], &[2.0])), "bbr is better");
    assert!(!holds(&judge(&[1.026], &[2.0], &[1.0])), "reno is");
    assert!(!holds(&judge(&[f64::INFINITY], &[1.0], &[1.0])), "this one broke off");
    assert!(holds(&judge(&[9.0], &[f64::INFINITY], &[f64::INFINITY])), "all others did");
    let judgement = judge(&[2.0], &[2.0], &[1.0]);
    let verdict = &judgement.verdicts[0];
    assert_eq!((verdict.ratio, verdict.runs), (Some(2.0), 1));
    assert!(verdict.note.contains("2.0000 x direct host_cc=reno, which has 1.0000"), "{verdict:?}");
    assert!(render(&judgement).contains("1 cells compared by means: 1 slower, 1 miss a bound, 0 excepted"));
    // One of the two did not run.
    let judgement = judged(MEANS, &[(1000, "farlink", &[1.0]), (1000, "bbr", &[1.0])]);
    assert!(judgement.verdicts.is_empty() && judgement.not_judged[0].reason.contains("did not all run"));
}

#[test]
fn the_noise_of_means_is_allowed_for_and_ends_at_a_tenth() {
    let judge = |ours: &[f64], bbr: &[f64]| {
        let judgement =
            judged(MEANS, &[(1000, "farlink", ours), (1000, "bbr", bbr), (1000, "reno", &[99.0, 99.0])]);
        let [first, others @ ..] = &judgement.verdicts[..] else { panic!("{judgement:?}") };
        (first.bound.unwrap(), first.holds, others.last().is_none_or(|tail| tail.holds))
    };
    let (ours, theirs) = ([1.02, 1.04, 1.03, 1.03], [0.98, 1.02, 1.0, 1.0]);
    let (bound, holds, tail) = judge(&ours.repeat(10), &theirs.repeat(10));
    assert!((bound - (1.02 + 2.0 * (1e-2_f64 / 39.0 / 40.0).sqrt() + 0.005)).abs() < 1e-9, "{bound}");
    assert!(holds && tail);
    let (bound, holds, _) = judge(&[0.5, 1.74].repeat(20), &[0.5, 1.5].repeat(20));
    assert!((bound - 1.105).abs() < 1e-9 && !holds, "{bound}");
    let (bound, holds, _) = judge(&[0.5, 1.74, 0.5, 1.74], &[0.5, 1.5, 0.5, 1.5]);
    assert!(bound > 2.0 && holds, "four runs decide nothing: {bound}");
    let (_, holds, tail) = judge(&[vec![0.9; 38], vec![1.3; 2]].concat(), &[1.0; 40]);
    assert!(holds && !tail, "the second-worst run is 1.3 times that of the other");
}

#[test]
fn what_is_slower_may_hold_otherwise_or_be_an_exception() {
    let runs: &[(u64, &str, &[f64])] =
        &[(1000, "farlink", &[1.3]), (1000, "bbr", &[1.0]), (1000, "reno", &[1.0])];
    let holds = |more: &str| {
        let verdict = judged(&format!("{MEANS}\n{more}"), runs).verdicts.remove(0);
        (verdict.holds, verdict.excepted)
    };
    assert_eq!(holds("or_at_most = { ratio_to_limit = 1.3 }"), (true, false));
    assert_eq!(holds("or_at_most = { ratio_to_limit = 1.29 }"), (false, false));
    // Two cells: one of them is more than three of a hundred.
    let except = |of: &str, at_most: f64| {
        format!("{MEANS}\n[[except]]\nof = {{ {of} }}\nat_most = {at_most}\nwhy = 'computed'")
    };
    let error = |text: &str| {
        let scenario = scenario(text);
        let cells = scenario.cells().unwrap();
        format!("{:#}", Judge::new(&scenario, &cells, Driver::Sim).unwrap_err())
    };
    let of_both = "variant = 'farlink', size_bytes = 1000";
    assert!(error(&except(of_both, 1.4)).contains("1 of 2 cells"), "{}", error(&except(of_both, 1.4)));
    assert!(error(&except("variant = 'direct'", 1.4)).contains("[[except]] of variant=direct"));
    assert!(error(&except(of_both, 0.9)).contains("above 1"));
    let many = |at_most: f64| {
        let sizes = (1..=40).map(|n| (1000 * n).to_string()).collect::<Vec<_>>().join(", ");
        let text = format!("{TEXT}\n{}", except(of_both, at_most));
        let scenario = Scenario::parse(&text.replace("[1000, 2000]", &format!("[{sizes}]"))).unwrap();
        let cells = scenario.cells().unwrap();
        let judgement = Judge::new(&scenario, &cells, Driver::Sim).unwrap().judge(&report(&scenario, runs));
        (judgement.verdicts[0].holds, judgement.verdicts[0].excepted)
    };
    assert_eq!(many(1.31), (true, true));
    assert_eq!(many(1.29), (false, false));
}

#[test]
fn bytes_have_exceptions_of_their_own() {
    let holds = |bound: &str| {
        let sizes = (1..=40).map(|n| (1000 * n).to_string()).collect::<Vec<_>>().join(", ");
        let except = format!(
            "[[except]]\nof = {{ variant = 'farlink', size_bytes = 1000 }}\n{bound}\nwhy = 'computed'"
        );
        let text = format!("{TEXT}\n{MEANS}\nmeasures = ['spent_bytes']\n{except}");
        let scenario = Scenario::parse(&text.replace("[1000, 2000]", &format!("[{sizes}]"))).unwrap();
        let cells = scenario.cells().unwrap();
        let runs: &[(u64, &str, &[f64])] =
            &[(1000, "farlink", &[1.0]), (1000, "bbr", &[1.0]), (1000, "reno", &[1.0])];
        let mut report = report(&scenario, runs);
        for cell in &mut report.cells {
            let bytes = if cell.variant == "farlink" { 1_300.0 } else { 1_000.0 };
            cell.metrics.insert("spent_bytes".into(), bytes);
        }
        let judgement = Judge::new(&scenario, &cells, Driver::Sim).map_err(|e| format!("{e:#}"))?;
        let judgement = judgement.judge(&report);
        Ok::<_, String>((judgement.verdicts[0].holds, judgement.verdicts[0].excepted))
    };
    assert_eq!(holds("bytes_at_most = 1.31"), Ok((true, true)));
    assert_eq!(holds("bytes_at_most = 1.29"), Ok((false, false)));
    assert_eq!(holds("at_most = 1.4"), Ok((false, false)), "that is of times");
    assert!(holds("").unwrap_err().contains("neither at_most nor bytes_at_most"));
    assert!(holds("bytes_at_most = 0.9").unwrap_err().contains("bytes_at_most = 0.9"));
}

#[test]
fn what_was_not_run_is_not_judged_and_said() {
    let text = "[[expect]]\nof = { variant = 'farlink', size_bytes = 2000 }\nat_most = { seconds = 1 }
        [[expect]]\ndriver = 'lab'\nat_most = { seconds = 1 }";
    let judgement = judged(text, &[(1000, "farlink", &[1.2])]);
    assert!(judgement.verdicts.is_empty());
    let reasons: Vec<_> = judgement.not_judged.iter().map(|n| (n.expectation, n.reason.as_str())).collect();
    assert_eq!(reasons, [(1, "none of its cells was selected"), (2, "for `lab run` only")]);
    let text = render(&judgement);
    assert!(text.contains("not judged: 1. size_bytes=2000,variant=farlink"), "{text}");
    assert!(text.contains("not judged: 1 more, for `lab run` only"), "{text}");
}

#[test]
fn a_skipped_cell_names_its_reason() {
    let scenario = scenario("[[expect]]\nof = { variant = 'farlink' }\nat_most = { seconds = 1 }");
    let cells = scenario.cells().unwrap();
    let cell = cells.iter().find(|c| c.variant == "farlink").unwrap();
    let skipped = Skipped {
        params: cell.params.clone(),
        variant: cell.variant.clone(),
        reason: "no such program".into(),
    };
    let report = Report { skipped: vec![skipped], ..Report::default() };
    let judgement = Judge::new(&scenario, &cells, Driver::Sim).unwrap().judge(&report);
    assert!(judgement.verdicts.is_empty());
    assert_eq!(judgement.not_judged[0].reason, "skipped: no such program");
}

#[test]
fn a_figure_that_does_not_exist_is_a_miss() {
    let text = "[[expect]]\nof = { variant = 'farlink' }\nat_most = { ratio = 1.5 }";
    let judgement = judged(text, &[(1000, "farlink", &[1.2])]);
    let verdict = &judgement.verdicts[0];
    assert!(!verdict.holds && verdict.note.contains("ratio_to_limit"), "{verdict:?}");
}

#[test]
fn an_expectation_of_no_cell_or_without_the_other_is_an_error() {
    for (text, reason) in [
        ("[[expect]]\nof = { variant = 'farlink-auto' }\nat_most = { seconds = 1 }", "farlink-auto"),
        ("[[expect]]\nof = { variant = 'farlink' }\nnot_slower_than = { variant = 'haproxy' }", "haproxy"),
        (
            "[[expect]]\nof = { variant = 'farlink' }\nnot_slower_than = { variant = 'direct', size_bytes = 1000 }",
            "beside",
        ),
    ] {
        let scenario = scenario(text);
        let cells = scenario.cells().unwrap();
        let error = format!("{:#}", Judge::new(&scenario, &cells, Driver::Sim).unwrap_err());
        assert!(error.contains(reason) && error.contains("expectation 1"), "{error}");
    }
}

#[test]
fn a_cell_bears_the_mark_of_all_its_bounds() {
    let text = "[[expect]]\nof = { variant = 'farlink' }\nat_most = { seconds = 1.5 }
        [[expect]]\nof = { variant = 'farlink', size_bytes = 2000 }\nat_most = { seconds = 1.3 }";
    let scenario = scenario(text);
    let cells = scenario.cells().unwrap();
    let report =
        report(&scenario, &[(1000, "farlink", &[1.4]), (2000, "farlink", &[1.4]), (1000, "reno", &[1.4])]);
    let judgement = Judge::new(&scenario, &cells, Driver::Sim).unwrap().judge(&report);
    let marks: Vec<_> = report.cells.iter().map(|c| mark(&judgement, c)).collect();
    assert_eq!(marks, ["PASS", "FAIL", "-"]);
    let value = serde_json::to_value(&judgement).unwrap();
    assert_eq!(value["verdicts"][0]["params"]["size_bytes"], json!(1000));
    assert_eq!(value["verdicts"][0]["holds"], json!(true));
}

#[test]
fn every_builtin_scenario_expects_something_of_cells_that_it_has() {
    for (name, text) in BUILTIN {
        let scenario = Scenario::parse(text).unwrap();
        assert!(!scenario.expect.is_empty(), "{name} expects nothing");
        let cells = crate::kinds::of(&scenario.kind).unwrap().cells(&scenario).unwrap();
        let is_simulated = crate::simulate::has_kind(&scenario.kind);
        let drivers: &[Driver] = if is_simulated { &[Driver::Sim, Driver::Lab] } else { &[Driver::Lab] };
        for driver in drivers {
            Judge::new(&scenario, &cells, *driver).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            let judged = scenario.expect.iter().any(|e| e.driver.is_none_or(|d| d == *driver));
            assert!(judged, "{name} expects nothing under {driver}");
            let subset = if *driver == Driver::Sim { "test" } else { "sample" };
            let only = crate::scenario::Only::default();
            let wanted =
                crate::scenario::Wanted { only: &only, subset: Some(subset), driver: *driver, repeat: 1 };
            let chosen = scenario.select(cells.clone(), &wanted).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            let is_judged = |e: &Expect| {
                e.driver.is_none_or(|d| d == *driver)
                    && chosen.iter().any(|(c, n)| *n >= e.runs_min && e.of.matches(&c.params, &c.variant))
            };
            assert!(scenario.expect.iter().any(is_judged), "{name}: the subset {subset} judges nothing");
        }
        let lost = scenario.expect.iter().find(|e| e.driver == Some(Driver::Sim) && !is_simulated);
        assert!(lost.is_none(), "{name}: {} is never judged", lost.map(Expect::describe).unwrap_or_default());
    }
}
