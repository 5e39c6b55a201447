//! The physical limit of a job: what nothing can beat on the link as it is, printed beside every
//! result as a ratio.
//!
//! The clock of a scenario says which of the terms count: `connect` starts at connect() of a new
//! connection and the client speaks first (one round trip for the handshake, one from request to
//! first byte), `first-byte` counts the data only.

use farlink_channel::{ChannelConfig, perfect_arrival};
use farlink_wire::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// When the clock of a transfer starts. It stops at the last byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// At connect().
    #[default]
    Connect,
    /// At the request, on a connection that is already up.
    Request,
    /// At the first byte of the answer.
    FirstByte,
    /// When the source begins to send, on a connection that is already up: no request crosses the
    /// path before.
    Source,
}

impl Clock {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Connect => "from connect() to the last byte",
            Self::Request => "from the request, on a connection that is up, to the last byte",
            Self::FirstByte => "from the first byte to the last",
            Self::Source => {
                "from the source's start, on a connection that is up and unasked, to the last byte"
            }
        }
    }
}

/// The link and the job, as far as the limit needs them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Job {
    /// Rate in the direction of the data, bit/s of IP packets. 0: unlimited.
    pub rate_bps: f64,
    /// Rate against the data, bit/s of IP packets. 0: unlimited.
    pub return_bps: f64,
    /// Round-trip time without queues, seconds.
    pub rtt_s: f64,
    /// Payload of all flows together, bytes.
    pub bytes: f64,
    /// Serial round trips of the job beyond the handshake (1 for a request and its answer).
    pub round_trips: f64,
    /// Payload share of the packets that are really sent.
    pub eta: f64,
    /// Loss probability of a packet in the direction of the data.
    pub loss: f64,
    /// Probability that the link is away.
    pub wink_p: f64,
    /// Bytes of handshake and request that cross the return direction before the data. With many
    /// flows those of one: the data of the first may fill the link while the others still ask.
    pub return_overhead_bytes: f64,
    /// The clock.
    pub clock: Clock,
}

/// Header bytes and the payload share that results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packets {
    /// IP MTU of the link, bytes.
    pub mtu: u32,
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// Timestamps (12 bytes of options in each segment).
    pub timestamps: bool,
}

impl Packets {
    /// Header bytes of a full segment: IP, TCP and its options.
    #[must_use]
    pub fn header_bytes(self) -> u32 {
        (if self.v6 { 40 } else { 20 }) + 20 + if self.timestamps { 12 } else { 0 }
    }

    /// Payload share of a stream of `bytes` in full packets and a remainder: 0.965 for long ones at
    /// 1,500 bytes with timestamps over IPv4.
    #[must_use]
    pub fn eta(self, bytes: u64) -> f64 {
        let payload = u64::from(self.mtu.saturating_sub(self.header_bytes()).max(1));
        let packets = bytes.div_ceil(payload).max(1);
        let on_wire = bytes + packets * u64::from(self.header_bytes());
        bytes.max(1) as f64 / on_wire as f64
    }
}

/// What the packets of a handshake have besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handshake {
    /// Family and timestamps.
    pub packets: Packets,
    /// Window scaling is offered.
    pub scaling: bool,
    /// SACK is.
    pub sack: bool,
}

impl Handshake {
    /// Bytes of a SYN, or of its answer, as Linux writes them (`tcp_options_write`): SACK permitted
    /// stands where timestamps have their padding.
    #[must_use]
    pub fn syn_bytes(self) -> u32 {
        const MSS: u32 = 4;
        let sack = if self.sack && !self.packets.timestamps { 4 } else { 0 };
        let scaling = if self.scaling { 4 } else { 0 };
        self.packets.header_bytes() + MSS + sack + scaling
    }
}

/// Probability that a packet of `bytes` is lost on a link with this bit error rate and packet loss.
#[must_use]
pub fn packet_loss(ber: f64, loss: f64, bytes: u32) -> f64 {
    let spoiled = -(f64::from(bytes) * 8.0 * (-ber).ln_1p()).exp_m1();
    1.0 - (1.0 - spoiled) * (1.0 - loss)
}

impl Job {
    /// Seconds that the data occupies the link: `8 S / (C eta)`, over (1 - loss), over (1 - p) of a
    /// winking link.
    #[must_use]
    pub fn data_seconds(&self) -> f64 {
        if self.rate_bps <= 0.0 {
            return 0.0;
        }
        8.0 * self.bytes / (self.rate_bps * self.eta) / (1.0 - self.loss) / (1.0 - self.wink_p)
    }

    /// The limit in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let starved =
            if self.return_bps > 0.0 { 8.0 * self.return_overhead_bytes / self.return_bps } else { 0.0 };
        let before = match self.clock {
            Clock::Connect => (1.0 + self.round_trips) * self.rtt_s + starved,
            Clock::Request => self.round_trips * self.rtt_s + starved,
            Clock::FirstByte => 0.0,
            // The source's first byte crosses the path once.
            Clock::Source => (self.round_trips - 0.5).max(0.0) * self.rtt_s,
        };
        before + self.data_seconds()
    }

    /// What a perfect sender needs over this way, in seconds by the clock that starts at `began`.
    /// It knows when each link is there, and sends packets of `packet_bytes` then. Between two
    /// links there is room for everything. Single losses count by their mean. `None`: a link does
    /// not carry it all, or its rate depends on what is sent.
    #[must_use]
    pub fn perfect_seconds(&self, way: &Path<'_>, began: Instant, packet_bytes: u32) -> Option<f64> {
        // The first data may enter the first link when the request has crossed all of them: before
        // the schedules begin, where those begin with the first byte. So all of it is later here.
        let later = |links: &[ChannelConfig]| -> Vec<ChannelConfig> {
            let shifted = |c: &ChannelConfig| ChannelConfig { start: c.start + EARLIER, ..c.clone() };
            links.iter().map(shifted).collect()
        };
        let (there, back) = (later(way.there), later(way.back));
        let began = began + EARLIER;
        let bytes = self.bytes / self.eta / (1.0 - self.loss).max(f64::MIN_POSITIVE);
        let from = self.first_data(&there, &back, began);
        // Winks have a seed of their own, and nothing else of the channels is drawn here.
        let end = perfect_arrival(&there, 0, from, bytes.ceil() as u64, packet_bytes)?;
        Some(end.since(began).as_secs_f64())
    }

    /// When the first data enters the first link. Whoever sends it, it is the last to cross.
    fn first_data(&self, there: &[ChannelConfig], back: &[ChannelConfig], began: Instant) -> Instant {
        let before = match self.clock {
            Clock::Connect => 2.0 * (1.0 + self.round_trips) - 1.0,
            Clock::Request => 2.0 * self.round_trips - 1.0,
            Clock::Source => 2.0 * self.round_trips - 2.0,
            Clock::FirstByte => {
                let entered = began - crossed(there, began).since(began);
                return began - crossed(there, entered).since(entered);
            }
        };
        let has_asked = self.clock != Clock::Source && self.return_bps > 0.0;
        let starved = if has_asked { 8.0 * self.return_overhead_bytes / self.return_bps } else { 0.0 };
        let before = before.round().max(0.0) as u32;
        // The one before the data comes from the other side.
        (0..before).rev().fold(began + Duration::from_secs_f64(starved), |at, left| {
            crossed(if left % 2 == 0 { back } else { there }, at)
        })
    }
}

/// Everything on the way is later by this, so that nothing is before zero.
const EARLIER: Duration = Duration::from_secs(1_000);

/// The links between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// In the direction of the data, in its order.
    pub there: &'a [ChannelConfig],
    /// Against it.
    pub back: &'a [ChannelConfig],
}

/// When a packet without a size that enters these links is behind the last one. It does not wait
/// for outages.
fn crossed(links: &[ChannelConfig], at: Instant) -> Instant {
    links.iter().fold(at, |at, link| link.arrives_at(at))
}

/// Time over limit. Cells whose limit is under 100 ms are judged with 5 ms more.
#[must_use]
pub fn ratio(seconds: f64, limit_seconds: f64) -> f64 {
    let allowance = if limit_seconds < 0.1 { 0.005 } else { 0.0 };
    seconds / (limit_seconds + allowance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, Way};

    fn geo(bytes: f64, clock: Clock) -> Job {
        let eta = Packets { mtu: 1500, v6: false, timestamps: true }.eta(bytes as u64);
        Job {
            rate_bps: 8e6,
            return_bps: 0.0,
            rtt_s: 0.5,
            bytes,
            round_trips: 1.0,
            eta,
            loss: 0.0,
            wink_p: 0.0,
            return_overhead_bytes: 0.0,
            clock,
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-3
    }

    #[test]
    fn a_perfect_sender_knows_the_delay_of_each_crossing() {
        let way = |s: &Settings, clock: Clock| {
            let (there, back) = (s.channel(Way::Down), s.channel(Way::Up));
            let path = Path { there: std::slice::from_ref(&there), back: std::slice::from_ref(&back) };
            geo(1e6, clock).perfect_seconds(&path, Instant::ZERO + Duration::from_secs(1), 1500).unwrap()
        };
        let settings = |pairs: &[&str]| {
            let mut s = Settings::default();
            s.set_all(["rate=8M", "rtt=500ms"].iter().chain(pairs).copied()).unwrap();
            s
        };
        let data_s = geo(1e6, Clock::FirstByte).seconds();
        for clock in [Clock::Connect, Clock::Request, Clock::Source, Clock::FirstByte] {
            assert!(near(way(&settings(&[]), clock), geo(1e6, clock).seconds()), "{clock:?}");
        }
        // SYN and its answer at 250 ms, the request at 450 ms, and the data at 50.
        let s = settings(&["up.delay_changes=1100ms=450ms", "down.delay_changes=1700ms=50ms"]);
        assert!(near(way(&s, Clock::Connect), 0.25 + 0.25 + 0.45 + data_s + 0.05));
        assert!(near(way(&s, Clock::Source), data_s + 0.05));
        // Half a megabyte with it is on its way when the rate falls to a half.
        let s = settings(&[
            "down.rate_changes=1500ms=4M",
            "down.delay_changes=0s=100ms",
            "up.delay_changes=0s=100ms",
        ]);
        let left_s = data_s - 0.2;
        assert!(near(way(&s, Clock::Connect), 0.5 + 2.0 * left_s + 0.1), "{}", way(&s, Clock::Connect));
        let by_demand = settings(&["down.demand=1M 8M 600ms"]).channel(Way::Down);
        let path = Path { there: &[by_demand], back: &[] };
        assert_eq!(geo(1e6, Clock::Source).perfect_seconds(&path, Instant::ZERO, 1500), None);
    }

    #[test]
    fn long_streams_carry_the_known_shares() {
        let v4 = Packets { mtu: 1500, v6: false, timestamps: true };
        assert!(near(v4.eta(1 << 30), 1448.0 / 1500.0));
        assert!(near(Packets { timestamps: false, ..v4 }.eta(1 << 30), 1460.0 / 1500.0));
        assert!(near(Packets { v6: true, ..v4 }.eta(1 << 30), 1428.0 / 1500.0));
        assert!(near(v4.eta(1), 1.0 / 53.0));
    }

    #[test]
    fn a_download_needs_two_round_trips_and_its_serialisation() {
        let ten_mb = geo(10e6, Clock::Connect).seconds();
        assert!(near(ten_mb, 1.0 + 8.0 * 10e6 / (8e6 * 1448.0 / 1500.0)), "{ten_mb}");
        assert!(near(geo(10e6, Clock::Request).seconds(), ten_mb - 0.5));
        assert!(near(geo(10e6, Clock::FirstByte).seconds(), ten_mb - 1.0));
        assert!(near(geo(10e6, Clock::Source).seconds(), ten_mb - 0.75));
    }

    #[test]
    fn loss_and_wink_lengthen_the_data_part_only() {
        let lossy = Job { loss: 0.05, ..geo(1e6, Clock::Connect) };
        assert!(near(lossy.seconds() - 1.0, geo(1e6, Clock::FirstByte).seconds() / 0.95));
        let winking = Job { wink_p: 0.4, ..geo(1e6, Clock::Connect) };
        assert!(near(winking.seconds() - 1.0, geo(1e6, Clock::FirstByte).seconds() / 0.6));
    }

    #[test]
    fn bit_errors_become_packet_losses() {
        assert!(near(packet_loss(1e-6, 0.0, 1500), 0.011928));
        assert!(near(packet_loss(0.0, 0.01, 1500), 0.01));
        assert!(near(packet_loss(1e-5, 0.01, 1500), 1.0 - 0.99 * (1.0_f64 - 1e-5).powi(12_000)));
        assert_eq!(packet_loss(0.0, 0.0, 1500), 0.0);
    }

    #[test]
    fn a_starved_return_adds_handshake_and_request() {
        let job = Job { return_bps: 32e3, return_overhead_bytes: 200.0, ..geo(1e6, Clock::Connect) };
        assert!(near(job.seconds() - geo(1e6, Clock::Connect).seconds(), 0.05));
    }

    #[test]
    fn a_handshake_is_as_large_as_linux_makes_it() {
        let packets = Packets { mtu: 1500, v6: false, timestamps: true };
        let modern = Handshake { packets, scaling: true, sack: true };
        assert_eq!(modern.syn_bytes(), 60);
        assert_eq!(Handshake { packets: Packets { v6: true, ..packets }, ..modern }.syn_bytes(), 80);
        let plain = Packets { timestamps: false, ..packets };
        assert_eq!(Handshake { packets: plain, ..modern }.syn_bytes(), 52);
        assert_eq!(Handshake { packets: plain, scaling: false, sack: false }.syn_bytes(), 44);
    }

    #[test]
    fn short_limits_are_judged_with_five_milliseconds_more() {
        assert!(near(ratio(0.055, 0.05), 1.0));
        assert!(near(ratio(1.1, 1.0), 1.1));
    }
}
