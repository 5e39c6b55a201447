//! `farlink cleanup`: takes away what a gateway that was killed has left in the kernel. The next
//! start does so, too; this is for machines where there is none.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use farlink_linux::classifier;
use farlink_linux::divert::{self, DivertConfig};
use farlink_linux::netlink::Socket;

use crate::cli::CleanupArgs;
use crate::config;
use crate::out::outln;

/// Takes it away, unless a gateway of this instance runs.
pub fn run(args: &CleanupArgs) -> Result<ExitCode> {
    let divert = instance(args.config.as_deref())?;
    let links = Socket::open()?.links()?;
    let names = || links.iter().map(|link| link.name.as_str());
    // Devices go with their process.
    let own: Vec<_> = names().filter(|name| divert.tun_number(name, usize::MAX) != usize::MAX).collect();
    if !own.is_empty() {
        bail!(
            "a gateway of this instance runs: the devices {} are there; end it first (`farlink drain`)",
            own.join(", ")
        );
    }
    divert::remove_leftovers(&divert).context("rules, routes and the nftables table")?;
    // Filters do not say of which instance they are.
    let is_alone = !names().any(|name| name.starts_with("farlink"));
    let filters = if is_alone { classifier::sweep().context("filters at interfaces")? } else { 0 };
    outln!(
        "nothing is left of this instance: no nftables table {}, no rules and routes; {}",
        divert.table_name(),
        match (is_alone, filters) {
            (true, 0) => "no filters".to_owned(),
            (true, n) => format!("{n} filters were taken away"),
            (false, _) => "filters stay, since another instance runs".to_owned(),
        }
    );
    Ok(ExitCode::SUCCESS)
}

fn instance(file: Option<&Path>) -> Result<DivertConfig> {
    let default = Path::new(config::DEFAULT_FILE);
    match file.or_else(|| default.exists().then_some(default)) {
        Some(file) => Ok(config::load(Some(file), &config::Quick::default())?.divert),
        None => Ok(DivertConfig::default()),
    }
}
