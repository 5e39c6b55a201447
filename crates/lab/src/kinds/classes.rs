//! `classes`: a delay-tolerant transfer beside interactive messages, from the client to the server.
//! With `direction = "down"` it is downloads beside messages to the client, and nobody marks
//! anything.
//!
//! Messages of 200 to 1,000 bytes come at random (Poisson), as UDP packets or over TCP connections.
//! With `message_bytes` all have that size and come evenly, as those of a call or a stream do, and
//! nobody marks anything. Each cell runs them twice: alone, and beside the transfers. So each
//! message is compared with itself on an empty link.

mod sockets;

use std::time::Duration;

use anyhow::{Result, bail};

use super::session::{Allowed, Session};
use super::{Kind, Run};
use crate::draw::Draw;
use crate::jobs::quantile;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// Name of this kind.
pub(crate) const NAME: &str = "classes";

/// DSCP of the messages: EF (RFC 3246).
const MESSAGE_DSCP: u8 = 46;
/// DSCP of the transfer: LE (RFC 8622).
const BULK_DSCP: u8 = 1;
/// Connections that carry the messages, where they go over TCP.
pub(crate) const CONNECTIONS: usize = 8;
/// Messages begin when connections stand.
const FIRST_MESSAGE: Duration = Duration::from_millis(500);
/// What is sent before does not count: the transfer fills the link.
const WARM_UP: Duration = Duration::from_secs(3);
/// What was sent last has so long to arrive.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);
/// Bytes of a message: of the IP packet with UDP, of the payload with TCP.
const MESSAGE_BYTES: (u64, u64) = (200, 1_000);
/// IPv4 and TCP header with timestamps.
const TCP_HEADERS_BYTES: u64 = 52;

/// See the module.
pub(super) struct ClassesKind;

/// How messages travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    Udp,
    Tcp,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// When it is written.
    pub(crate) at: Duration,
    /// Bytes of the IP packet with UDP, of the payload with TCP.
    pub(crate) bytes: u64,
    /// Number of its connection, with TCP.
    pub(crate) connection: usize,
}

/// What is played in a cell.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) carrier: Carrier,
    pub(crate) messages: Vec<Message>,
    /// Bytes of a transfer: more than the link carries meanwhile.
    pub(crate) bulk_bytes: u64,
    /// Transfers.
    pub(crate) bulks: usize,
    /// All of it comes to the client.
    pub(crate) is_down: bool,
    /// Over IPv6.
    pub(crate) v6: bool,
    /// From when on, and until when, is measured.
    pub(crate) window: (Duration, Duration),
    rate_bps: f64,
    packet_bytes: u64,
    /// Hosts say by DSCP what is urgent and what is not.
    is_marked: bool,
    /// Half a round trip, milliseconds.
    one_way_ms: f64,
}

/// What came of it, with or without the transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// Seconds from writing to reading, of each message.
    pub(crate) delays_s: Vec<Option<f64>>,
    /// Bytes of the transfers that had arrived at both ends of the window.
    pub(crate) bulk_bytes: [u64; 2],
    /// The longest time for which a program that sends a transfer could write nothing, seconds.
    /// Programs of the simulator need not wait.
    pub(crate) write_pause_s: Option<f64>,
    /// What went wrong, in words.
    pub(crate) error: Option<String>,
}

impl Plan {
    /// Of a cell.
    pub(crate) fn new(cell: &Cell, seed: u64) -> Result<Self> {
        let settings = &cell.settings;
        let is_down = match cell.word("direction", "up") {
            "up" => false,
            "down" => true,
            other => bail!("direction = {other}: `up` or `down`"),
        };
        let rate_bps = if is_down { settings.rate_bps } else { settings.up_bps() } as f64;
        let percent = match cell.number("load_bps", 0) {
            0 => cell.number("load_percent", 30) as f64,
            bps => 100.0 * bps as f64 / rate_bps.max(1.0),
        };
        let even_bytes = Some(cell.number("message_bytes", 0)).filter(|bytes| *bytes > 0);
        let until = Duration::from_secs(cell.number("duration_s", 20));
        let carrier = match cell.word("transport", "udp") {
            "udp" => Carrier::Udp,
            "tcp" => Carrier::Tcp,
            other => bail!("transport = {other}: `udp` or `tcp`"),
        };
        if rate_bps <= 0.0 || !(0.5..=200.0).contains(&percent) || until <= WARM_UP {
            bail!(
                "a rate, a load of half a percent to twice of it and a duration_s above {}",
                WARM_UP.as_secs()
            );
        }
        if even_bytes.is_some_and(|bytes| !(64..=1_500).contains(&bytes)) {
            bail!("message_bytes from 64 to 1500");
        }
        let mut draw = Draw::new(seed.wrapping_mul(0x1000_0001).wrapping_add(8));
        let (least, most) = MESSAGE_BYTES;
        let mean_bytes = carrier.wire_bytes(even_bytes.unwrap_or((least + most) / 2)) as f64;
        let mean_s = 8.0 * mean_bytes / (rate_bps * percent / 100.0);
        let mut at_s = FIRST_MESSAGE.as_secs_f64();
        let mut messages = Vec::new();
        while at_s < until.as_secs_f64() {
            messages.push(Message {
                at: Duration::from_secs_f64(at_s),
                bytes: even_bytes.unwrap_or_else(|| draw.between(least as f64, (most + 1) as f64) as u64),
                connection: draw.between(0.0, CONNECTIONS as f64) as usize,
            });
            at_s += if even_bytes.is_some() { mean_s } else { draw.gap(mean_s) };
        }
        let bulk_bytes = (rate_bps * (until + 2 * SETTLE).as_secs_f64() / 8.0) as u64;
        let packet_bytes = u64::from(settings.link_mtu);
        let bulks = usize::try_from(cell.number("flows", 1)).unwrap_or(1);
        if is_down && carrier == Carrier::Udp {
            bail!("messages to the client go over TCP: transport = \"tcp\"");
        }
        let window = (WARM_UP, until);
        Ok(Self {
            carrier,
            messages,
            bulk_bytes,
            bulks,
            is_down,
            v6: cell.v6(),
            window,
            rate_bps,
            packet_bytes,
            is_marked: !is_down && even_bytes.is_none(),
            one_way_ms: settings.rtt_ms / 2.0,
        })
    }

    /// DSCP of messages, and of transfers.
    pub(crate) fn dscps(&self) -> (u8, u8) {
        if self.is_marked { (MESSAGE_DSCP, BULK_DSCP) } else { (0, 0) }
    }

    /// Which messages count.
    fn counted(&self) -> impl Iterator<Item = (usize, &Message)> {
        let (from, until) = self.window;
        self.messages.iter().enumerate().filter(move |(_, m)| (from..until).contains(&m.at))
    }

    /// What came of it.
    pub(crate) fn measure(&self, alone: &Heard, beside: &Heard) -> Measured {
        let seconds = (self.window.1 - self.window.0).as_secs_f64();
        let bytes = beside.bulk_bytes[1].saturating_sub(beside.bulk_bytes[0]);
        let mut measured = Measured { seconds, bytes, ..Measured::default() };
        let delays = |heard: &Heard| -> Vec<f64> {
            self.counted().filter_map(|(n, _)| *heard.delays_s.get(n)?).collect()
        };
        let (of_alone, of_beside) = (delays(alone), delays(beside));
        let sent = self.counted().count();
        let p99_ms = [&of_alone, &of_beside].map(|delays| 1e3 * quantile(delays, 0.99));
        for ((name, delays), p99_ms) in [("alone", &of_alone), ("beside", &of_beside)].into_iter().zip(p99_ms)
        {
            measured.metric(&format!("{name}_median_ms"), 1e3 * quantile(delays, 0.5));
            measured.metric(&format!("{name}_p99_ms"), p99_ms);
            measured.metric(&format!("{name}_worst_ms"), 1e3 * quantile(delays, 1.0));
            measured.metric(&format!("{name}_lost_share"), 1.0 - delays.len() as f64 / sent.max(1) as f64);
        }
        let packet_ms = 8e3 * self.packet_bytes as f64 / self.rate_bps;
        measured.metric("packet_ms", packet_ms);
        measured.metric("p99_added_ms", p99_ms[1] - p99_ms[0]);
        measured.metric("p99_beyond_packet_ms", p99_ms[1] - p99_ms[0] - packet_ms);
        let load_bytes: u64 = self.counted().map(|(_, m)| self.carrier.wire_bytes(m.bytes)).sum();
        let load_bps = 8.0 * load_bytes as f64 / seconds;
        measured.metric("messages", sent as f64);
        measured.metric("load_bps", load_bps);
        let bulk_bps = 8.0 * bytes as f64 / seconds;
        if load_bps < self.rate_bps {
            measured.metric("bulk_share", bulk_bps / (self.rate_bps - load_bps));
        }
        measured.metric("bulk_of_rate", bulk_bps / self.rate_bps);
        if let Some(pause_s) = beside.write_pause_s {
            measured.metric("write_pause_s", pause_s);
        }
        // Beyond the way itself and the packet's own time.
        let queued_ms = |p99_ms: f64| p99_ms - self.one_way_ms - packet_ms;
        measured.metric("beside_queued_p99_ms", queued_ms(p99_ms[1]));
        for (heard, name) in [(alone, "alone"), (beside, "beside")] {
            measured.expect(heard.error.is_none(), || {
                format!("{name}: {}", heard.error.as_deref().unwrap_or_default())
            });
        }
        // Datagrams may get lost.
        let must_arrive = self.carrier == Carrier::Tcp;
        measured.expect(!must_arrive || of_beside.len() == sent && of_alone.len() == sent, || {
            format!("{} and {} of {sent} messages arrived", of_alone.len(), of_beside.len())
        });
        measured.expect(bytes > 0, || "nothing of the transfer arrived".into());
        measured
    }
}

impl Carrier {
    /// Bytes of IP packets that a message is, each for itself.
    fn wire_bytes(self, bytes: u64) -> u64 {
        match self {
            Self::Udp => bytes,
            Self::Tcp => bytes + TCP_HEADERS_BYTES,
        }
    }
}

impl Kind for ClassesKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let plan = Plan::new(cell, run.seed)?;
        let session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let alone = sockets::play(&session.lab, &plan, false)?;
        let beside = sockets::play(&session.lab, &plan, true)?;
        let mut measured = plan.measure(&alone, &beside);
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(load: &str, percent: u64) -> Plan {
        let scenario = Scenario::find(NAME).unwrap();
        let cells = scenario.cells().unwrap();
        let is_it = |c: &&Cell| {
            c.variant == "farlink"
                && c.word("transport", "") == load
                && c.number("load_percent", 0) == percent
                && c.settings.rate_bps == 8_000_000
        };
        Plan::new(cells.iter().find(is_it).unwrap(), 1).unwrap()
    }

    #[test]
    fn the_load_is_the_share_that_it_is_to_be() {
        for load in ["udp", "tcp"] {
            let plan = plan(load, 30);
            let heard = Heard { delays_s: vec![Some(0.02); plan.messages.len()], ..Heard::default() };
            let measured = plan.measure(&heard, &heard);
            let share = measured.metrics["load_bps"] / 8e6;
            assert!((0.28..0.32).contains(&share), "{load}: {share}");
            assert_eq!(measured.metrics["p99_added_ms"], 0.0);
            assert!(!measured.failures.is_empty(), "nothing of the transfer has arrived");
        }
    }

    #[test]
    fn datagrams_over_ipv6_are_packets_of_the_same_sizes_and_times() {
        let cells = Scenario::find("whole-link").unwrap().cells().unwrap();
        let plan = |ip: u64| {
            let is_it = |c: &&Cell| {
                c.variant == "farlink"
                    && c.number("ip", 0) == ip
                    && (c.number("load_bps", 0), c.number("flows", 0)) == (3_000_000, 1)
            };
            Plan::new(cells.iter().find(is_it).unwrap(), 1).unwrap()
        };
        let (four, six) = (plan(4), plan(6));
        assert_eq!((four.v6, six.v6), (false, true));
        assert_eq!((four.carrier, six.carrier), (Carrier::Udp, Carrier::Udp));
        assert_eq!(four.messages, six.messages);
    }

    #[test]
    fn what_is_lost_is_said_and_what_tcp_loses_is_a_failure() {
        for (load, failures) in [("udp", 0), ("tcp", 1)] {
            let plan = plan(load, 10);
            let alone = Heard { delays_s: vec![Some(0.02); plan.messages.len()], ..Heard::default() };
            let mut beside = Heard { bulk_bytes: [1, 12_500_001], ..alone.clone() };
            let last = plan.messages.len() - 1;
            beside.delays_s[last] = None;
            beside.delays_s[last - 1] = Some(9.0);
            let measured = plan.measure(&alone, &beside);
            assert_eq!(measured.failures.len(), failures, "{:?}", measured.failures);
            assert!(measured.metrics["beside_lost_share"] > 0.0);
            assert_eq!(measured.metrics["beside_worst_ms"], 9_000.0);
            assert!((measured.metrics["beside_p99_ms"] - 20.0).abs() < 1e-9);
            assert_eq!(measured.bytes, 12_500_000);
        }
    }
}
