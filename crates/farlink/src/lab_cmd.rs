//! `farlink lab`: the command line of the laboratory.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use farlink_lab::build::{Lab, Life};
use farlink_lab::settings::{self, Settings};
use farlink_lab::state::{self, State};
use farlink_lab::{helper, link, runner, scenario, topology};
use farlink_linux::divert::Method;
use farlink_linux::{priority, sandbox};

use crate::out::{out, outln};
use crate::scenario_args::ScenarioArgs;

const UP_EXAMPLES: &str = "Examples:
  farlink lab up                                      client - gw1 - sat - gw2 - server, 8 Mbit/s, 500 ms
  farlink lab up chain --set rate=2M rtt=600ms loss=0.01
  ip netns exec fl-client ping 10.64.3.2              then: whatever you like

  farlink lab up --set down.loss=0.01 up.queue_packets=20 'contacts=0s-50s 60s-100s' contact_period=100s";

/// `farlink lab`
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Put up a topology and leave it standing
    #[command(after_help = format!("{UP_EXAMPLES}\n\nKeys of --set, by what they are of.\n\n{}", settings::help()))]
    Up(UpArgs),
    /// Remove a topology and everything that was started with it
    #[command(after_help = "Examples:
  farlink lab down                    the one that `farlink lab up` made, and what killed runs have left
  farlink lab down --all              every one")]
    Down(DownArgs),
    /// Run a scenario and print what it measured beside the physical limit
    #[command(after_help = "Examples:
  farlink lab run geo-download
  farlink lab run geo-download --only size_bytes=1000000,variant=farlink --repeat 5
  farlink lab run behaviour --json behaviour.json
  farlink lab run my.toml --plots plots

SCENARIO is a builtin one (`farlink lab list`) or the path of a file. Without root it runs in a user namespace.

Exit status: 0 only if every cell ran and is intact and what the scenario expects holds; 1 if not; 3 if all of that holds of what ran, and
a cell could not run here (--allow-skips: 0).")]
    Run(RunArgs),
    /// List the builtin scenarios and topologies
    List {
        /// Names of the scenarios only, one in a line
        #[arg(long)]
        names: bool,
    },
    /// Parts of the laboratory that run as processes of their own
    #[command(hide = true)]
    Helper(HelperArgs),
}

#[derive(clap::Args, Debug)]
struct UpArgs {
    /// Which topology: line, chain, bridge, last-hop, multi-if, detour
    topology: Option<String>,
    /// Settings, each key=value; the keys stand below
    #[arg(long, value_name = "K=V", num_args = 1..)]
    set: Vec<String>,
    /// How the namespaces' names begin
    #[arg(long, value_name = "NAME", default_value = "fl")]
    prefix: String,
    /// How gateways divert traffic: auto, bump, policy [default: auto]
    #[arg(long, value_name = "METHOD")]
    divert: Option<Method>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct DownArgs {
    /// How the namespaces' names begin
    #[arg(long, value_name = "NAME", default_value = "fl")]
    prefix: String,
    /// Every laboratory of this machine, except those of runs that are under way
    #[arg(long)]
    all: bool,
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    cells: ScenarioArgs,
    /// How gateways divert traffic whose configuration does not say: auto, bump, policy [default:
    /// policy]
    #[arg(long, value_name = "METHOD")]
    divert: Option<Method>,
    /// Write the plots of `farlink report` into a directory (SVG), and time-sequences from the
    /// captures
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct HelperArgs {
    #[command(subcommand)]
    helper: Helper,
}

#[derive(clap::Subcommand, Debug)]
enum Helper {
    /// Carry the packets of an emulated link between two interfaces
    Link {
        /// Interface on the client's side
        client_side: String,
        /// Interface on the server's side
        server_side: String,
        /// Settings as JSON
        #[arg(long)]
        settings: String,
        /// Control socket
        #[arg(long)]
        control: Option<PathBuf>,
    },
    /// Serve seeded bytes in the present namespace (GET <bytes> <seed>, PUT <bytes> <seed>)
    Serve {
        /// Port
        #[arg(long, default_value_t = 5001)]
        port: u16,
    },
    /// Fetch seeded bytes from such a server and print what was measured
    Fetch {
        /// The server's address
        server: std::net::IpAddr,
        /// Payload bytes
        bytes: u64,
        /// The server's port
        #[arg(long, default_value_t = 5001)]
        port: u16,
        /// Send instead of fetch
        #[arg(long)]
        upload: bool,
        /// Congestion control of this end
        #[arg(long, default_value = "")]
        cc: String,
        /// Which bytes
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Up(args) => up(args),
        Command::Down(args) => down(&args),
        Command::Run(args) => run_scenario(args),
        Command::List { names } => list(names),
        Command::Helper(args) => help(args.helper),
    }
}

fn up(args: UpArgs) -> Result<ExitCode> {
    if sandbox::is_needed() {
        bail!(
            "a topology that stays needs root (its namespaces would vanish with this program); \
             `farlink lab run` works without, in a user namespace"
        );
    }
    // `--set a=1 b=2 chain`: what is no key=value can only be the topology.
    let (settings_given, mut rest): (Vec<_>, Vec<_>) = args.set.into_iter().partition(|s| s.contains('='));
    let topology = args.topology.or_else(|| rest.pop()).unwrap_or_default();
    if let Some(odd) = rest.first() {
        bail!("`{odd}`: key=value expected");
    }
    let mut settings = Settings::default();
    settings.set_all(settings_given.iter().map(String::as_str))?;
    if let Some(method) = args.divert {
        method.tell_children();
    }
    state::sweep();
    let lab = Lab::up(&topology, &settings, &args.prefix, Life::Standing)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&lab.describe())?);
    } else {
        out!("{}", helper::describe(&lab));
    }
    Ok(ExitCode::SUCCESS)
}

fn down(args: &DownArgs) -> Result<ExitCode> {
    state::check_prefix(&args.prefix)?;
    let swept = state::sweep();
    let wanted = |s: &State| if args.all { s.owner.is_none() } else { s.prefix == args.prefix };
    let states: Vec<_> = State::all().into_iter().filter(wanted).collect();
    for state in &states {
        if state.owner.is_some() {
            bail!("`{}` belongs to a run that is under way; end that one", state.prefix);
        }
        state.take_down().with_context(|| format!("removing `{}`", state.prefix))?;
        outln!("removed {} ({}): {}", state.prefix, state.topology, state.namespaces.join(" "));
    }
    for prefix in &swept {
        outln!("removed what a killed run had left: {prefix}");
    }
    if states.is_empty() && swept.is_empty() {
        outln!("there is no laboratory `{}`", args.prefix);
    }
    Ok(ExitCode::SUCCESS)
}

fn run_scenario(args: RunArgs) -> Result<ExitCode> {
    if let Some(method) = args.divert {
        method.tell_children();
    }
    if sandbox::is_needed() {
        sandbox::enter().context("the laboratory needs network namespaces")?;
    }
    // Gateways do it, too. Hosts, links and captures stand for machines of their own.
    priority::raise();
    let RunArgs { cells, plots, .. } = args;
    let options = runner::Options { chosen: cells.chosen()?, plots };
    cells.publish(&runner::run(&options)?)
}

fn list(names: bool) -> Result<ExitCode> {
    if names {
        scenario::BUILTIN.iter().for_each(|(name, _)| outln!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    outln!("Scenarios (farlink lab run NAME):");
    for (name, _) in scenario::BUILTIN {
        outln!("  {name:18} {}", scenario::Scenario::find(name)?.title);
    }
    outln!("\nTopologies (farlink lab up NAME):");
    for name in topology::NAMES {
        let topology = topology::Topology::named(name, &Settings::default())?;
        let nodes: Vec<_> = topology.nodes.iter().map(|n| n.name.as_str()).collect();
        outln!("  {name:18} {}", nodes.join(" "));
    }
    Ok(ExitCode::SUCCESS)
}

fn help(helper: Helper) -> Result<ExitCode> {
    match helper {
        Helper::Link { client_side, server_side, settings, control } => {
            link::carry(&client_side, &server_side, &settings, control)?;
        }
        Helper::Serve { port } => helper::serve(port)?,
        Helper::Fetch { server, bytes, port, upload, cc, seed } => {
            let outcome = helper::fetch(server, port, bytes, upload, &cc, seed)?;
            outln!("{outcome}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
