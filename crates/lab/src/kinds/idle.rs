//! `idle`: a connection behind an address translation that forgets what says nothing for five
//! seconds. Does it live after a minute, and does a host that has gone show as soon as without us?

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Kind, Run};
use crate::build::{Lab, Life};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::sh;
use crate::workload::socket::{self, Options};

/// The router that translates: no gateway runs on it.
const NODE: &str = "gw2";
const PORT: u16 = 5002;
/// What conntrack remembers of a connection that says nothing.
const FORGETS_AFTER_S: u32 = 5;
/// A word crosses the path within this.
const PATIENCE: Duration = Duration::from_secs(5);
/// The client's own keepalive: after so many seconds of silence, every so many, so many times.
const OWN_QUESTIONS: [u32; 3] = [3, 2, 3];
/// By then it has found out.
const LEARNS_WITHIN: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct IdleKind;

impl Kind for IdleKind {
    fn cannot_run(&self, _: &Cell) -> Option<String> {
        sh::find("nft").is_none().then(|| "nft is not installed".into())
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let lab = Lab::up(&scenario.topology, &cell.settings, &run.prefix, Life::WithUs)?;
        translate(&lab)?;
        let (mut client, mut server) = open(&lab, cell.v6())?;
        say(&mut client, &mut server)?;
        say(&mut server, &mut client)?;
        let mut measured = Measured { bytes: 2, ..Measured::default() };
        let began = Instant::now();
        match cell.word("case", "") {
            "idle" => {
                std::thread::sleep(Duration::from_secs_f64(scenario.option("idle_s", 60.0)?));
                // The side that nobody has opened the translation for speaks first.
                let is_alive = say(&mut server, &mut client).is_ok() && say(&mut client, &mut server).is_ok();
                measured.metric("alive", f64::from(u8::from(is_alive)));
            }
            "gone" => measured.metric("learned_seconds", learn(&lab, &mut client)?),
            other => bail!("unknown case `{other}`"),
        }
        measured.seconds = began.elapsed().as_secs_f64();
        for gateway in &lab.gateways {
            measured.metric("keepalives_asked", gateway.engine_number("counters.keepalives_asked")? as f64);
            let split = gateway.engine_number("counters.flows_split")?;
            measured.expect(split == 1, || format!("{split} connections are split, not one"));
        }
        lab.down()?;
        Ok(measured)
    }
}

/// Masquerades what leaves for the server, and forgets it soon.
fn translate(lab: &Lab) -> Result<()> {
    let rules = "table inet nat {\nchain out {\ntype nat hook postrouting priority 100;\n\
                 oifname \"to-server\" masquerade\n}\n}\n";
    let ns = lab.ns(NODE);
    ns.run("nft", &[rules])?;
    let of = |name: &str, value: u32| (format!("net.netfilter.nf_conntrack_tcp_{name}"), value.to_string());
    // What is in the middle of a connection begins none.
    ns.sysctls(&[of("timeout_established", FORGETS_AFTER_S), of("loose", 0)])
}

/// Both ends of a connection.
fn open(lab: &Lab, v6: bool) -> Result<(TcpStream, TcpStream)> {
    let listener = socket::listen(&lab.ns("server"), PORT)?;
    let client = socket::client(&lab.ns("client"), v6, &Options::default())?;
    let to = SocketAddr::new(lab.address("server", v6)?, PORT);
    socket::connect(&client, to, PATIENCE).context("the server cannot be reached")?;
    let (server, _) = listener.accept()?;
    Ok((client, server))
}

/// A byte crosses.
fn say(from: &mut TcpStream, to: &mut TcpStream) -> Result<()> {
    to.set_read_timeout(Some(PATIENCE))?;
    from.write_all(b"x")?;
    to.read_exact(&mut [0]).context("nothing has come")
}

/// The server vanishes. So many seconds later its client knows.
fn learn(lab: &Lab, client: &mut TcpStream) -> Result<f64> {
    socket::ask_peer(client, OWN_QUESTIONS)?;
    client.set_read_timeout(Some(LEARNS_WITHIN))?;
    lab.ns("server").run("ip", &["link", "set", "to-gw2", "down"])?;
    let began = Instant::now();
    match client.read(&mut [0]) {
        // The router says at last that nobody answers behind it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ETIMEDOUT | libc::EHOSTUNREACH)) => {
            Ok(began.elapsed().as_secs_f64())
        }
        other => bail!("the client was to find out that the server has gone, and got {other:?}"),
    }
}
