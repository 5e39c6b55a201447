//! What a report is made of: results of `lab run` and `sim run`, and traces of flows.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::report::Report;
use farlink_gateway::flow_trace::FlowTrace;

/// A file as it was named and what stands in it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name, for messages and for the report.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// What a file turned out to be.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Input {
    /// Results of a scenario.
    Run(Box<Report>),
    /// One flow, packet by packet.
    Flow(Box<FlowTrace>),
}

/// Reads a file.
pub(super) fn read(source: &Source) -> Result<Input> {
    read_text(&source.text).with_context(|| source.name.clone())
}

fn read_text(text: &str) -> Result<Input> {
    let value: Value = serde_json::from_str(text).context("not JSON")?;
    let Some(fields) = value.as_object() else {
        bail!(
            "JSON, but not an object: a result of `farlink lab run --json` or `farlink sim run --json` is expected"
        );
    };
    if fields.contains_key("farlink_flow_trace") {
        let trace = serde_json::from_value(value).context("not a trace of a flow")?;
        return Ok(Input::Flow(Box::new(trace)));
    }
    for field in ["scenario", "cells"] {
        if !fields.contains_key(field) {
            bail!(
                "no `{field}`: a result of `farlink lab run --json` or `farlink sim run --json`, or a trace of a flow, is \
                 expected"
            );
        }
    }
    let report: Report = serde_json::from_value(value).context("not the result of a run")?;
    if report.cells.is_empty() {
        let why = report
            .skipped
            .first()
            .map_or(String::new(), |s| format!("; the first was skipped: {}", s.reason));
        bail!("the run has no cells: nothing was measured{why}");
    }
    Ok(Input::Run(Box::new(report)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let source = Source { name: "r.json".into(), text: text.into() };
        format!("{:#}", read(&source).unwrap_err())
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_name_and_the_reason() {
        for (text, reason) in [
            ("", "not JSON"),
            ("{\"cells\": [", "not JSON"),
            ("[1, 2]", "not an object"),
            ("{\"cells\": []}", "no `scenario`"),
            ("{\"scenario\": \"x\"}", "no `cells`"),
            ("{\"scenario\": \"x\", \"cells\": 7}", "not the result of a run"),
            (
                "{\"scenario\":\"x\",\"title\":\"t\",\"driver\":\"sim\",\"seed\":1,\"version\":\"0\",\"cells\":[]}",
                "the run has no cells",
            ),
            ("{\"farlink_flow_trace\": \"x\"}", "not a trace of a flow"),
        ] {
            let error = refusal(text);
            assert!(error.starts_with("r.json: ") && error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn files_of_older_versions_are_read() {
        let text = r#"{"scenario":"s","title":"t","driver":"lab","seed":1,"version":"0.1.0","skipped":[],"cells":[
            {"params":{"size_bytes":1000},"variant":"direct","repeat":0,"seed":1,"seconds":1.0,"goodput_bps":8000.0,
             "limit_seconds":0.5,"ratio_to_limit":2.0,"intact":true,"paper_seconds":null,"metrics":{}}]}"#;
        let Input::Run(report) = read_text(text).unwrap() else { panic!("not a run") };
        assert!(report.command.is_empty() && report.cells[0].failures.is_empty());
    }
}
