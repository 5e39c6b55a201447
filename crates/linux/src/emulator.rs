//! The link emulator: a wire between two interfaces with rate, delay, queue, loss and outages, in
//! user space.
//!
//! It is a pure layer-2 pipe: it takes every IP packet (of any protocol) off one interface and puts
//! it onto the other, bit by bit the same, and costs no hop. ARP and neighbour discovery pass at
//! once. One thread per direction, each with a [`farlink_channel::Channel`]. Packets enter the
//! channel at the time at which the kernel received them, so that only the departure can be late.

pub mod accuracy;
mod control;
mod keys;
mod pipe;
mod wire;

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use farlink_channel::{ChannelConfig, Medium, WinkSide, text};
use serde_json::{Value, json};

pub use keys::{KEYS, set as set_key};
pub use pipe::PipeStats;
pub use wire::WireFaults;

use crate::error::{Error, Result};
use crate::event_loop::Waker;
use crate::netlink::Socket;
use crate::netns::Namespace;
use crate::{clock, ethtool, sysctl};
use farlink_wire::Instant;
use pipe::{Command, Held, Pipe};

/// Names of the directions, as prefixes of keys and in reports.
pub const DIRECTIONS: [&str; 2] = ["a_to_b", "b_to_a"];

/// What is emulated between which interfaces.
#[derive(Clone, Debug)]
pub struct EmulatorConfig {
    /// One interface. Both must exist in the calling thread's namespace and be used for nothing
    /// else.
    pub a: String,
    /// The other interface.
    pub b: String,
    /// Packets that come in by `a`. `start` is replaced by the moment at which the emulator starts,
    /// the same for both.
    pub a_to_b: ChannelConfig,
    /// Packets that come in by `b`.
    pub b_to_a: ChannelConfig,
    /// Both directions share one medium, packet by packet.
    pub is_half_duplex: bool,
    /// Seed of everything random; the directions draw independently, except for winks with a seed
    /// of their own.
    pub seed: u64,
    /// Where the control socket is made, if anywhere.
    pub control: Option<PathBuf>,
}

/// An emulator at work; stops when dropped.
pub struct Emulator {
    control: Arc<Control>,
    threads: Vec<JoinHandle<Result<()>>>,
    server: Option<control::Server>,
}

/// The way to the two directions.
pub(crate) struct Control {
    lines: [Line; 2],
    held: Held,
}

struct Line {
    outbox: Mutex<Sender<Command>>,
    waker: Arc<Waker>,
}

impl Line {
    fn tell(&self, command: Command) -> Result<()> {
        let outbox = self.outbox.lock().map_err(|_| ended())?;
        outbox.send(command).map_err(|_| ended())?;
        self.waker.wake();
        Ok(())
    }
    fn ask(&self) -> Result<PipeStats> {
        let (answer, answered) = channel();
        self.tell(Command::Report(answer))?;
        answered.recv().map_err(|_| ended())
    }
}

fn ended() -> Error {
    Error::Refused("a direction of the emulated link has ended (see its log)".to_owned())
}

impl Control {
    fn stats(&self) -> Result<[PipeStats; 2]> {
        let [a, b] = &self.lines;
        Ok([a.ask()?, b.ask()?])
    }

    /// All or none.
    fn set(&self, settings: &[(String, String)]) -> std::result::Result<(), String> {
        let stats = self.stats().map_err(|e| e.to_string())?;
        let mut configs = stats.map(|s| s.config);
        for (key, value) in settings {
            let mut is_known = false;
            for (name, config) in DIRECTIONS.iter().zip(&mut configs) {
                let own = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
                let bare = if key.contains('.') { own } else { Some(key.as_str()) };
                if let Some(key) = bare {
                    is_known = true;
                    set_key(config, key, value)?;
                }
            }
            if !is_known {
                return Err(format!("{key}: a prefix is {} or {}", DIRECTIONS[0], DIRECTIONS[1]));
            }
        }
        self.configure(configs).map_err(|e| e.to_string())
    }

    /// Schedules begin now, and so does the record of what was carried, or both when the first data
    /// has arrived.
    fn begin(&self, with_data: bool) -> Result<()> {
        let configs = self.stats()?.map(|s| s.config);
        let start = if with_data { Instant::FAR_FUTURE } else { clock::now() };
        if with_data {
            self.held.hold();
        }
        self.configure(configs.map(|config| ChannelConfig { start, ..config }))
    }

    fn configure(&self, configs: [ChannelConfig; 2]) -> Result<()> {
        for (line, config) in self.lines.iter().zip(configs) {
            line.tell(Command::Configure(Box::new(config)))?;
        }
        Ok(())
    }
}

impl Emulator {
    /// Starts carrying packets between two interfaces of the calling thread's namespace. It
    /// switches their offloads and IPv6 off; the offloads of the *far* ends of the wires must be
    /// off as well ([`Namespace::set_offloads`]), else what arrives are super-segments, not
    /// packets: [`WireFaults`] counts them.
    pub fn start(config: EmulatorConfig) -> Result<Self> {
        let mut socket = Socket::open()?;
        let mut indexes = [0; 2];
        for (index, name) in indexes.iter_mut().zip([&config.a, &config.b]) {
            *index = socket.link_index(name)?;
            ethtool::set_offloads(name, false)?;
            if sysctl::exists(&["ipv6", "conf", name]) {
                sysctl::write(&["ipv6", "conf", name, "disable_ipv6"], "1")?;
            }
            socket.link_up(*index, true)?;
        }
        let [a, b] = indexes;
        let start = clock::now();
        let namespace = Namespace::current()?;
        let directions = [(a, b, config.a_to_b), (b, a, config.b_to_a)];
        let medium = config.is_half_duplex.then(Medium::new);
        let held = Held::default();
        let mut threads = Vec::new();
        let mut lines = Vec::new();
        for (n, (from, to, mut channel_config)) in (0u64..).zip(directions) {
            channel_config
                .check()
                .map_err(|e| Error::Refused(format!("emulated link: {} must be {}", e.field, e.allowed)))?;
            channel_config.start = start;
            let seed = config.seed.wrapping_mul(2).wrapping_add(n);
            let pipe = Pipe::open(from, to, channel_config, seed, medium.as_ref(), held.clone())?;
            let (outbox, inbox) = channel();
            let waker = Arc::new(Waker::new()?);
            lines.push(Line { outbox: Mutex::new(outbox), waker: Arc::clone(&waker) });
            threads.push(namespace.spawn(move || {
                let outcome = pipe.run(&inbox, &waker);
                if let Err(error) = &outcome {
                    tracing::error!(%error, "a direction of the emulated link ends");
                }
                outcome
            }));
        }
        let Ok(lines) = <[Line; 2]>::try_from(lines) else { return Err(ended()) };
        let control = Arc::new(Control { lines, held });
        let server = match &config.control {
            Some(path) => Some(control::Server::start(path, Arc::clone(&control))?),
            None => None,
        };
        Ok(Self { control, threads, server })
    }

    /// Counters and parameters of both directions: a to b, b to a.
    pub fn stats(&self) -> Result<[PipeStats; 2]> {
        self.control.stats()
    }

    /// Changes parameters by name ([`KEYS`], with or without a direction's prefix): all of them or,
    /// on an error, none.
    pub fn set(&self, settings: &[(String, String)]) -> std::result::Result<(), String> {
        self.control.set(settings)
    }

    /// Whether both directions are at work.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.threads.iter().all(|t| !t.is_finished())
    }

    /// Stops; packets under way are lost. Returns what a direction ended with.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.server = None;
        for line in &self.control.lines {
            // One that has ended already cannot be told.
            let _ = line.tell(Command::Stop);
        }
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(ended()));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The report of one direction, numbers under the names that scenarios use.
pub(crate) fn stats_json(stats: &PipeStats) -> Value {
    let (c, f) = (&stats.channel, &stats.faults);
    json!({
        "is_up": stats.is_up,
        "rate_bps": stats.config.rate_bps,
        "delay_ms": stats.config.delay.as_secs_f64() * 1e3,
        "offered_packets": c.offered_packets,
        "offered_bytes": c.offered_bytes,
        "delivered_packets": c.delivered_packets,
        "delivered_bytes": c.delivered_bytes,
        "serialised_bytes": c.serialised_bytes,
        "dropped_queue": c.dropped_queue,
        "dropped_loss": c.dropped_loss,
        "dropped_firewall": c.dropped_firewall,
        "fragments": c.fragments,
        "ack_packets": c.ack_packets,
        "ack_bytes": c.ack_bytes,
        "copy_ack_bytes": c.copy_ack_bytes,
        "dropped_ber": c.dropped_ber,
        "dropped_wink": c.dropped_wink,
        "dropped_contact": c.dropped_contact,
        "duplicated": c.duplicated,
        "corrupted": c.corrupted,
        "reordered": c.reordered,
        "queue_bytes": stats.queue_bytes,
        "queue_max_bytes": c.queue_max_bytes,
        "queue_max_packets": c.queue_max_packets,
        "age_ms": stats.age.as_secs_f64() * 1e3,
        "first_data_ms": stats.carried.first_data.map(|d| d.as_secs_f64() * 1e3),
        "schedule": schedule_json(&stats.config),
        "faults": f,
    })
}

/// When the link is there and at which rate, as its control socket takes it; null if it is always
/// there at one rate.
fn schedule_json(c: &ChannelConfig) -> Value {
    if c.contact_plan.is_empty() && c.rate_changes.is_empty() && c.wink.is_none() {
        return Value::Null;
    }
    let wink = c.wink.map(|w| {
        let side = if w.side == WinkSide::Exit { "exit" } else { "entry" };
        json!({ "p": w.p, "interval_ms": w.interval.as_secs_f64() * 1e3, "seed": w.seed, "side": side })
    });
    json!({
        "contacts": text::contacts_text(&c.contact_plan),
        "contact_period_ms": c.contact_period.map(|d| d.as_secs_f64() * 1e3),
        "contact_hold": c.contact_hold,
        "rate_changes": text::rate_changes_text(&c.rate_changes),
        "wink": wink,
    })
}
