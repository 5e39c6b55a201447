//! `farlink xcp-router`: a gateway that splits nothing, and whose queue tells others how fast.

use std::process::ExitCode;

use anyhow::Result;
use toml::{Table, Value};

use crate::cli::XcpRouterArgs;
use crate::{config, run};

/// Runs the router until it is told to end.
pub fn run(args: &XcpRouterArgs) -> Result<ExitCode> {
    run::run_with(&|| config::of_text(&configuration(args)), &args.log, args.check_config)
}

/// The configuration file that says the same. Gateways stand beyond both sides, so both are links:
/// from elsewhere nobody is believed what only gateways say.
fn configuration(args: &XcpRouterArgs) -> String {
    let mut out = link(&args.out);
    out.insert("rate_bps".into(), whole(args.rate.0));
    out.insert("overhead_bytes".into(), whole(u64::from(args.overhead_bytes)));
    out.insert("xcp_router".into(), Value::Boolean(true));
    out.insert("xcp_weight".into(), whole(u64::from(args.xcp_weight)));
    out.insert("plain_weight".into(), whole(u64::from(args.plain_weight)));
    out.insert("traffic".into(), "everything".into());
    let others = args.ins.iter().map(|name| {
        let mut other = link(name);
        // Nothing is sent into it of its own accord.
        other.insert("cc".into(), "cubic".into());
        other
    });
    let mut links: Vec<Table> = others.chain([out]).collect();
    for link in &mut links {
        // Either form is read, and kept on.
        link.insert("xcp_form".into(), "shim".into());
        link.insert("xcp_protocol".into(), whole(u64::from(args.xcp_protocol)));
    }
    let links: Vec<Value> = links.into_iter().map(Value::Table).collect();
    let diverted = args.ins.iter().map(|name| Value::Table(named("name", name)));
    let mut all = Table::new();
    all.insert("default_action".into(), "pass".into());
    all.insert("interface".into(), Value::Array(diverted.collect()));
    all.insert("link".into(), Value::Array(links));
    if let Some(socket) = &args.socket {
        all.insert("admin".into(), Value::Table(named("socket", &socket.display().to_string())));
    }
    all.to_string()
}

fn link(interface: &str) -> Table {
    named("interface", interface)
}

fn named(key: &str, text: &str) -> Table {
    [(key.to_owned(), Value::String(text.to_owned()))].into_iter().collect()
}

fn whole(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}
