//! The `farlink` command.

use std::process::ExitCode;

use clap::FromArgMatches;

mod accept;
mod admin;
mod answers;
#[cfg(feature = "lab")]
mod bench;
mod check;
mod check_config;
mod cleanup;
mod cli;
mod config;
mod confinement;
mod ending;
mod hosts;
#[cfg(feature = "lab")]
mod lab_cmd;
mod log;
mod manual;
mod metrics;
#[cfg(feature = "lab")]
mod model_cmd;
mod out;
mod reload;
#[cfg(feature = "lab")]
mod report_cmd;
mod restarts;
mod run;
#[cfg(feature = "lab")]
mod scenario_args;
mod settings;
mod show;
#[cfg(feature = "lab")]
mod sim_cmd;
mod spent;
mod top;
mod trace_cmd;
mod view;
mod words;
mod xcp_router;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&cli::command().get_matches()).unwrap_or_else(|wrong| wrong.exit());
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::XcpRouter(args) => xcp_router::run(&args),
        Command::Check(args) => check::run(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Status(args) => show::status(&args),
        Command::Flows(args) => show::flows(&args),
        Command::Set(args) => show::set(&args),
        Command::Reload(args) => show::reload(&args),
        Command::Drain(args) => show::drain(&args),
        Command::Cleanup(args) => cleanup::run(&args),
        Command::Link(args) => show::link(&args),
        Command::Trace(args) => trace_cmd::run(&args),
        #[cfg(feature = "lab")]
        Command::Report(args) => report_cmd::run(&args),
        #[cfg(feature = "lab")]
        Command::Bench(args) => bench::run(&args),
        #[cfg(feature = "lab")]
        Command::BenchLoad(args) => bench::load(&args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => lab_cmd::run(args),
        #[cfg(feature = "lab")]
        Command::Sim(args) => sim_cmd::run(args),
        #[cfg(feature = "lab")]
        Command::Model(args) => model_cmd::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Manual(args) => manual::run(&args),
    };
    let code = done.unwrap_or_else(|e| {
        out::complain(&format!("{e:#}"));
        ExitCode::FAILURE
    });
    out::finish(code)
}
