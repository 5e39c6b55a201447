//! The command line: what can be asked for, and the help that a person reads.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use farlink_wire::Duration;
use farlink_wire::quantity::{self, Bare};
use farlink_wire::shim::SHIM_PROTOCOL;

use crate::config::{self, Rate, Rates, Time};

macro_rules! after_help {
    ($lab:literal) => {
        concat!(
            "Examples:
  farlink run --link sat0                    divert forwarded TCP, treat sat0 as the hard link
  farlink run --link sat0 --rate '8 Mbit/s'  the same; all that leaves by sat0, UDP too, is shaped at this rate
  farlink check                              can this host do it, and is traffic really being split?
",
            $lab,
            "
Documentation: docs/configuration.md for the file, docs/operating.md for everyday work."
        )
    };
}
#[cfg(feature = "lab")]
const AFTER_HELP: &str = after_help!(
    "  farlink lab up                             a satellite path in network namespaces, to try things out\n"
);
#[cfg(not(feature = "lab"))]
const AFTER_HELP: &str = after_help!("");

const SET_EXAMPLES: &str = "Examples:
  farlink set                              every parameter and its value
  farlink set link.sat0.cc                 the value of one
  farlink set link.sat0.rate_bps 6M        the link called sat0 now carries 6 Mbit/s
  farlink set link.sat0.cc bbr             and is governed by BBR

Rates: 8M, 8mbit, '8 Mbit/s' (a number alone: bit/s). Sizes: 64MB, '64 MiB', 64M = 64 MiB (bytes).
An unknown key or value changes nothing; the answer says what is allowed.";

/// The whole command line.
#[derive(Parser, Debug)]
#[command(
    name = "farlink",
    version,
    about = "Splits TCP connections at hard links, transparently: addresses, ports and sequence numbers stay the hosts' own",
    after_help = AFTER_HELP
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The command line, with footers that are wrapped where the terminal ends, and nowhere else.
pub fn command() -> clap::Command {
    with_flowing_footers(<Cli as clap::CommandFactory>::command())
}

fn with_flowing_footers(command: clap::Command) -> clap::Command {
    let footer = command.get_after_help().map(|text| flowing(&text.to_string()));
    let command = match footer {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(with_flowing_footers)
}

/// Lines of a paragraph become one; what is indented stands as it is.
fn flowing(text: &str) -> String {
    let mut out = String::new();
    let mut previous = "";
    for line in text.lines() {
        let is_joined = [previous, line].iter().all(|l| !l.is_empty() && !l.starts_with(' '));
        if !out.is_empty() {
            out.push(if is_joined { ' ' } else { '\n' });
        }
        out.push_str(line);
        previous = line;
    }
    out
}

/// What can be done.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a gateway in the foreground
    #[command(after_help = "Examples:
  farlink run --config /etc/farlink/farlink.toml
  farlink run --link sat0 --rate '8 Mbit/s'
  farlink run --link sat0 --rate 8M/32k       8 Mbit/s out of sat0, 32 kbit/s in by it
  farlink run --link sat0 --interface lan0 --log debug

Logs go to stderr. SIGTERM (or ^C) drains: nothing new is split, what is held is delivered, then the connections go on
without Farlink; it takes at most `drain_timeout`. A second signal quits at once. SIGHUP reads the configuration again, as `farlink reload` does.

Exit status: 0 after an orderly end, 1 when something failed (the log says what), 2 for a wrong command line or
configuration; nothing has been started then.")]
    Run(RunArgs),
    /// Tell gateways how fast they may send into a link that they share (XCP); split nothing
    #[command(after_help = "Examples:
  farlink xcp-router --in lan0 --out sat0 --rate '100 Mbit/s'
  farlink set link.sat0.rate '60 Mbit/s'     while it runs: the capacity that gateways are told of

All that leaves by --out is queued at --rate. Gateways with `cc = \"xcp\"` on their links are told how fast to send; all others are queued
beside them. It costs no hop. Without it, packets go on as the kernel forwards them. docs/xcp.md says when it is worth it.

Exit status: as of `farlink run`.")]
    XcpRouter(XcpRouterArgs),
    /// Say whether this host can divert traffic, whether it is being split right now, and if not,
    /// why
    #[command(after_help = "Examples:
  farlink check                       after `farlink run` was started, as root
  farlink check --seconds 10          watch the counters for longer, for links with little traffic
  farlink check --json                for a monitoring system
  farlink check --hosts               with what hosts could do for connections that are not split

Exit status: 0 all is well, 1 something is wrong (each finding says what to do), 3 the host could, but no gateway runs.")]
    Check(CheckArgs),
    /// Say all that is wrong with a configuration file; change nothing
    #[command(after_help = "Examples:
  farlink check-config                            /etc/farlink/farlink.toml
  farlink check-config new.toml && mv new.toml /etc/farlink/farlink.toml
  farlink check-config --json new.toml | jq '.mistakes[]'

Each mistake is a line: file, line, column, key, what is wrong, and what is allowed. It needs no privilege and no gateway.

Exit status: 0 the file is good, 1 it is not, or cannot be read, 2 for a wrong command line.")]
    CheckConfig(CheckConfigArgs),
    /// Show what the running gateway does
    #[command(after_help = "Examples:
  farlink status
  farlink status --json | jq .engine.counters.flows_split
  farlink status --prometheus         the same in Prometheus' text format
  farlink status --budget || echo     what links have used of their budgets

Exit status: 0 when it was shown, 1 when no gateway answers. With --budget 4 where four fifths of a budget are used, and 5 where all of it is.")]
    Status(StatusArgs),
    /// List the connections that the running gateway knows
    #[command(after_help = "Examples:
  farlink flows
  farlink flows --limit 20 --json

`limited by` tells what holds a connection back: link, receiver, loss, gateway or application.")]
    Flows(FlowsArgs),
    /// Watch links and connections live: rates, windows, and why each connection is not faster
    #[command(after_help = "Examples:
  farlink top
  farlink top --sort custody --filter 10.1.2.
  farlink top --once --limit 20       as text, for scripts

Keys: q quits, s sorts by the next column, t shows kinds of traffic or not, / filters, space pauses, arrows and page keys scroll.
Rates are those of the last interval; what a connection waits for is explained in the last column.")]
    Top(TopArgs),
    /// Follow one connection packet by packet: what is sent, sent again and acknowledged, windows,
    /// rate, queue
    #[command(after_help = "Examples:
  farlink trace 10.1.2.3                          the next connection of this host that sends a packet
  farlink trace 10.1.2.3:40000,192.0.2.7:443 --seconds 60
  farlink trace 10.1.2.3 --json flow.json         then: farlink report flow.json

One trace at a time. It costs nothing when there is none, and at most some megabytes of memory.")]
    Trace(TraceArgs),
    /// Change a parameter of the running gateway, or show those that can be changed
    #[command(after_help = format!("{SET_EXAMPLES}\n\nKeys, NAME is a link's:\n{}", crate::settings::help()))]
    Set(SetArgs),
    /// Have the running gateway read its configuration again, with no connection dropped
    #[command(
        after_help = "The same as SIGHUP. Rules, limits and what is said of links hold at once, for open connections, too.
What holds only after a restart is named. A configuration that is wrong is refused, and the old one holds.
What `farlink set` has changed stays, unless the configuration now says otherwise than before."
    )]
    Reload(ReloadArgs),
    /// Let the running gateway hand its connections back to the hosts, then end
    #[command(after_help = "The same as SIGTERM. Returns when the gateway has gone.")]
    Drain(DrainArgs),
    /// Take away what a gateway that was killed has left in the kernel
    #[command(
        after_help = "Rules and routes of policy routing, the nftables table, and filters at interfaces. None of them keeps traffic from flowing, and
the next start takes them away, too. Refused while a gateway of this instance runs.

Exit status: 0 nothing is left, 1 something could not be taken away, or a gateway runs."
    )]
    Cleanup(CleanupArgs),
    /// Tell the running gateway that a link went down or came back
    #[command(after_help = "Examples:
  farlink link sat0 down              the modem's script knows before the kernel does
  farlink link sat0 up")]
    Link(LinkArgs),
    /// Print what a shell needs to complete the command line
    #[command(after_help = "Examples:
  farlink completions bash > /usr/share/bash-completion/completions/farlink
  farlink completions zsh > /usr/local/share/zsh/site-functions/_farlink
  farlink completions fish > ~/.config/fish/completions/farlink.fish

The Debian package installs them.")]
    Completions(CompletionsArgs),
    /// Write man pages, HTML pages and completions into a directory
    #[command(hide = true)]
    Manual(ManualArgs),
    #[cfg(feature = "lab")]
    /// Make one HTML file with plots and tables of results
    #[command(after_help = "Examples:
  farlink sim run thesis-single --only rtt_ms=500,ber=0 --json single.json
  farlink report single.json -o single.html
  farlink report single.json loss.json flow.json -o all.html --svg plots

RESULT is what `--json` of `farlink lab run` and `farlink sim run` wrote, or a trace of a flow (`farlink trace --json`, `--flow-trace`
of `farlink sim run`). The page asks nothing of a network. The same input gives the same page.

Exit status: 0 when it was written, 1 when a file cannot be used; the message says which and why.")]
    Report(ReportArgs),
    #[cfg(feature = "lab")]
    /// Measure speed and size of the datapath (`make bench`)
    #[command(hide = true)]
    Bench(crate::bench::BenchArgs),
    #[cfg(feature = "lab")]
    /// The load generator of `bench`
    #[command(hide = true)]
    BenchLoad(crate::bench::LoadArgs),
    #[cfg(feature = "lab")]
    /// The laboratory: a satellite path in network namespaces
    Lab(crate::lab_cmd::Args),
    #[cfg(feature = "lab")]
    /// The same scenarios in virtual time
    Sim(crate::sim_cmd::Args),
    #[cfg(feature = "lab")]
    /// What papers calculated, where it is off, and what holds instead
    Model(crate::model_cmd::Args),
}

/// `farlink run`
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Configuration file [default: /etc/farlink/farlink.toml unless --link or --interface is
    /// given]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Declare an interface as a hard link; without --interface, TCP of all other interfaces that
    /// forward is diverted too. Once its rate is known, by --rate or by the gateway at the other
    /// end, UDP, ICMP and tunnels that leave by it pass its queue, too: they wait there for a
    /// bounded time, and may be dropped
    #[arg(short, long = "link", value_name = "IFACE")]
    pub links: Vec<String>,
    /// Rate of what leaves by the interfaces named by --link, in IP packets, such as '8 Mbit/s'.
    /// With a second one after a `/`, as in 8M/32k, that is the rate of what comes in by them
    #[arg(short, long, value_name = "OUT[/IN]", requires = "links")]
    pub rate: Option<Rates>,
    /// Rate of what comes in by the interfaces named by --link, where it is another one than
    /// --rate: a gateway at the other end advertises it, too
    #[arg(long, value_name = "RATE", requires = "links")]
    pub rate_in: Option<Rate>,
    /// The links named by --link have another delay and another rate every so often, as satellites
    /// in low orbits have that take turns, such as '15 s'
    #[arg(long, value_name = "TIME", requires = "links")]
    pub reconfigures: Option<Time>,
    /// Divert forwarded TCP that comes in by this interface, or by all of a pattern such as 'wan*'
    /// (and by no other that is not named)
    #[arg(short, long = "interface", value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// Admin socket [default: the file's, else /run/farlink/farlink.sock]
    #[arg(short, long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// By which means traffic is diverted: auto, bump, policy [default: the file's, else auto]
    #[arg(long, value_name = "METHOD")]
    pub divert: Option<farlink_linux::divert::Method>,
    /// How much to log: error, warn, info, debug, trace, or a filter such as
    /// 'info,connections=debug', which says what becomes of each connection
    #[arg(long, value_name = "FILTER", default_value = "info", env = "FARLINK_LOG")]
    pub log: String,
    /// Read the configuration, say whether it is good, and start nothing
    #[arg(long)]
    pub check_config: bool,
}

/// `farlink xcp-router`
#[derive(Args, Debug)]
pub struct XcpRouterArgs {
    /// Interface by which packets of gateways come in; may be given more than once
    #[arg(long = "in", value_name = "IFACE", required = true)]
    pub ins: Vec<String>,
    /// Interface of the link that they share
    #[arg(long, value_name = "IFACE")]
    pub out: String,
    /// What this link carries of IP packets, such as '100 Mbit/s'
    #[arg(long, value_name = "RATE")]
    pub rate: Rate,
    /// Bytes that the link layer adds to each packet
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = overhead_bytes)]
    pub overhead_bytes: u32,
    /// While both have something to send, those that are told how fast have so many parts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub xcp_weight: u32,
    /// And all others so many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub plain_weight: u32,
    /// IP protocol of XCP's own header, where gateways use that
    #[arg(long, value_name = "NUMBER", default_value_t = SHIM_PROTOCOL)]
    pub xcp_protocol: u8,
    /// Admin socket [default: /run/farlink/farlink.sock]
    #[arg(short, long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How much to log: error, warn, info, debug, trace
    #[arg(long, value_name = "FILTER", default_value = "info", env = "FARLINK_LOG")]
    pub log: String,
    /// Say whether this is good, and start nothing
    #[arg(long)]
    pub check_config: bool,
}

/// How the running gateway is found.
#[derive(Args, Clone, Debug)]
pub struct SocketArg {
    /// Admin socket of the running gateway
    #[arg(short, long, value_name = "PATH", default_value = config::DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// `farlink check`
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// Configuration of a gateway that is not running yet [default: /etc/farlink/farlink.toml where
    /// it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How long to watch the counters; without a unit: seconds
    #[arg(long, value_name = "TIME", default_value_t = 2, value_parser = whole_seconds::<600>)]
    pub seconds: u64,
    /// Say, too, what hosts could do for connections over the links (initial windows, buffers)
    #[arg(long)]
    pub hosts: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `farlink check-config`
#[derive(Args, Debug)]
pub struct CheckConfigArgs {
    /// The file
    #[arg(value_name = "FILE", default_value = config::DEFAULT_FILE)]
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `farlink status`
#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,
    /// Print Prometheus' text format
    #[arg(long)]
    pub prometheus: bool,
    /// Only budgets of bytes; the exit status says how far they are used
    #[arg(long, conflicts_with = "prometheus")]
    pub budget: bool,
}

/// `farlink flows`
#[derive(Args, Debug)]
pub struct FlowsArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// At most so many
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `farlink top`
#[derive(Args, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// Time between two looks, such as 500ms; without a unit: seconds
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// By what connections are sorted
    #[arg(long, value_enum, default_value_t)]
    pub sort: crate::top::Sort,
    /// Show only connections with this text in addresses, mode or limit
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Print one interval as text and end
    #[arg(long)]
    pub once: bool,
    /// With --once: at most so many connections
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    pub json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    const ALLOWED: &str = "allowed: 100ms to 60s";
    let time = quantity::time(text, Bare::Base).map_err(|wrong| format!("{wrong}; {ALLOWED}"))?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    if allowed.contains(&time) { Ok(time) } else { Err(ALLOWED.into()) }
}

/// A time of whole seconds, from one to `MAX`.
fn whole_seconds<const MAX: u64>(text: &str) -> Result<u64, String> {
    let allowed = || format!("allowed: whole seconds from 1s to {MAX}s");
    let time = quantity::time(text, Bare::Base).map_err(|wrong| format!("{wrong}; {}", allowed()))?;
    let seconds = time.as_secs();
    let is_good = Duration::from_secs(seconds) == time && (1..=MAX).contains(&seconds);
    if is_good { Ok(seconds) } else { Err(allowed()) }
}

fn overhead_bytes(text: &str) -> Result<u32, String> {
    const ALLOWED: &str = "allowed: 0 to 1024 bytes";
    let bytes = quantity::size_bytes(text, Bare::Base).map_err(|wrong| format!("{wrong}; {ALLOWED}"))?;
    u32::try_from(bytes).ok().filter(|bytes| *bytes <= 1024).ok_or_else(|| ALLOWED.into())
}

/// `farlink trace`
#[derive(Args, Debug)]
pub struct TraceArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// ADDRESS, ADDRESS:PORT, or both ends with a comma between
    pub flow: String,
    /// For so long; without a unit: seconds
    #[arg(long, value_name = "TIME", default_value_t = 10, value_parser = whole_seconds::<3600>)]
    pub seconds: u64,
    /// Write the trace as JSON, for `farlink report`; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `farlink set`
#[derive(Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// What to change [default: show all]
    pub key: Option<String>,
    /// Its new value [default: show the present one]
    pub value: Option<String>,
    /// Print JSON, where something is shown
    #[arg(long, conflicts_with = "value")]
    pub json: bool,
}

/// `farlink reload`
#[derive(Args, Debug)]
pub struct ReloadArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `farlink drain`
#[derive(Args, Debug)]
pub struct DrainArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// Return at once, without waiting for the end
    #[arg(long)]
    pub no_wait: bool,
}

/// `farlink cleanup`
#[derive(Args, Debug)]
pub struct CleanupArgs {
    /// Its configuration, where that names an instance or other numbers [default:
    /// /etc/farlink/farlink.toml where it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `farlink link`
#[derive(Args, Debug)]
pub struct LinkArgs {
    #[command(flatten)]
    pub socket: SocketArg,
    /// The link's name or its interface
    pub link: String,
    /// What became of it
    pub state: LinkState,
}

/// `farlink completions`
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// `farlink manual`
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// Where to; files that are there are written again
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// `farlink report`
#[cfg(feature = "lab")]
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Results as JSON
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// Where the page goes; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Write each plot as a file of its own too, into a directory
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}

/// Whether a link carries.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Up,
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_and_option_has_help() {
        fn visit(command: &clap::Command, path: &str) {
            for argument in
                command.get_arguments().filter(|a| !["help", "version"].contains(&a.get_id().as_str()))
            {
                assert!(argument.get_help().is_some(), "{path}: --{} has no help", argument.get_id());
            }
            for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
                let path = format!("{path} {}", sub.get_name());
                assert!(sub.get_about().is_some(), "{path} has no help");
                visit(sub, &path);
            }
        }
        visit(&Cli::command(), "farlink");
    }

    #[test]
    fn paragraphs_of_footers_flow_and_examples_stand() {
        let text =
            "Examples:\n  farlink run\n  farlink drain\n\nLogs go to\nstderr.\n\nExit status: 0 or\n1.";
        let flowing = super::flowing(text);
        assert_eq!(
            flowing,
            "Examples:\n  farlink run\n  farlink drain\n\nLogs go to stderr.\n\nExit status: 0 or 1."
        );
        let run = command();
        let run = run.find_subcommand("run").unwrap().get_after_help().unwrap().to_string();
        assert!(run.lines().any(|line| line.len() > 150), "{run}");
    }

    #[test]
    fn the_documented_forms_parse() {
        for line in [
            "farlink run --config F --link a --link b --interface c --socket /s",
            "farlink run --link sat0 --rate 8Mbit/s",
            "farlink run --link sat0 --rate 8M/32k",
            "farlink run --link sat0 --rate 8M --rate-in 32k",
            "farlink run --link sat0 --rate-in 32k",
            "farlink status --json",
            "farlink flows --json --socket /run/x.sock",
            "farlink set link.sat0.rate_bps 6000000",
            "farlink drain",
            "farlink check --json",
            "farlink check --seconds 1min",
            "farlink trace 10.1.2.3 --seconds 60s",
            "farlink xcp-router --in a --out b --rate 8mbit --overhead-bytes 18B",
            "farlink check-config",
            "farlink check-config --json F",
            "farlink top",
            "farlink top --interval 0.5",
            "farlink top --interval 500ms",
            "farlink link sat0 down",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        for wrong in
            [&["--rate", "8 Mbit/s"][..], &["--rate-in", "32k"], &["--link", "a", "--rate", "8M/fast"]]
        {
            assert!(Cli::try_parse_from(["farlink", "run"].iter().chain(wrong)).is_err(), "{wrong:?}");
        }
        for seconds in ["0", "0.5s", "1.5", "11min", "soon", "-1"] {
            let line = ["farlink", "check", &format!("--seconds={seconds}")];
            let wrong = Cli::try_parse_from(line).unwrap_err().to_string();
            assert!(wrong.contains("allowed: whole seconds from 1s to 600s"), "{wrong}");
        }
        let rate =
            |rate: &str| Cli::try_parse_from(["farlink", "run", "--link", "a", "--rate", rate]).is_ok();
        assert!(["8mbit", "8M", "8 Mbit/s", "8Mbps", "8 Mbits/s"].into_iter().all(rate));
    }
}
