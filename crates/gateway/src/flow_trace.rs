//! A flow, packet by packet: what `farlink trace` and `farlink sim run --flow-trace` write.

use serde::{Deserialize, Serialize};

use crate::tap::{Taken, What};

/// The format's number, in the field that tells such a file from others.
pub const FORMAT: u32 = 1;

/// A flow at the gateways that it was followed at.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlowTrace {
    /// [`FORMAT`].
    pub farlink_flow_trace: u32,
    /// What it is, for people.
    pub title: String,
    /// The version of Farlink.
    pub version: String,
    /// The command that makes it again.
    #[serde(default)]
    pub command: String,
    /// The physical limit, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<TraceLimit>,
    /// One for each gateway and direction.
    pub directions: Vec<DirectionTrace>,
}

/// The line that nothing can be above: bytes that can have been sent by a time, at the rate of the
/// link.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TraceLimit {
    /// When the first byte was sent, in seconds of the trace.
    pub from_seconds: f64,
    /// When the last byte can have been sent.
    pub until_seconds: f64,
    /// How many bytes.
    pub bytes: u64,
    /// Bandwidth times delay of the link, bytes: what has to be in flight to fill it.
    #[serde(default)]
    pub bdp_bytes: u64,
}

/// One direction of a flow at one gateway: what its sender did, and how it was.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DirectionTrace {
    /// Where and which, for people: `gw2, server to client`.
    pub name: String,
    /// Events in the order of time.
    pub events: Vec<Event>,
    /// Samples in the order of time.
    pub samples: Vec<Sample>,
    /// Events that were not kept because the log was full.
    #[serde(default)]
    pub events_lost: u64,
}

/// What happened to bytes of the stream; offsets count from the stream's first byte.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Event {
    /// Sent for the first time.
    Sent {
        /// Seconds of the trace.
        t: f64,
        /// First byte.
        from: u64,
        /// Byte after the last.
        to: u64,
    },
    /// Sent again.
    Repeated {
        /// Seconds of the trace.
        t: f64,
        /// First byte.
        from: u64,
        /// Byte after the last.
        to: u64,
    },
    /// Acknowledged, all bytes before this one.
    Acked {
        /// Seconds of the trace.
        t: f64,
        /// Byte after the last.
        to: u64,
    },
    /// The retransmission timer expired while these were under way.
    TimedOut {
        /// Seconds of the trace.
        t: f64,
        /// First byte.
        from: u64,
        /// Byte after the last.
        to: u64,
    },
    /// A fast recovery began while these were under way.
    Recovers {
        /// Seconds of the trace.
        t: f64,
        /// First byte.
        from: u64,
        /// Byte after the last.
        to: u64,
    },
    /// What routers say (XCP) was followed from then on.
    Explicit {
        /// Seconds of the trace.
        t: f64,
    },
    /// They were not believed any more.
    Doubted {
        /// Seconds of the trace.
        t: f64,
    },
}

impl Event {
    /// Seconds of the trace.
    #[must_use]
    pub fn at(&self) -> f64 {
        match *self {
            Self::Sent { t, .. }
            | Self::Repeated { t, .. }
            | Self::Acked { t, .. }
            | Self::TimedOut { t, .. }
            | Self::Recovers { t, .. }
            | Self::Explicit { t }
            | Self::Doubted { t } => t,
        }
    }
}

/// How a sender was at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds of the trace.
    pub t: f64,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Sent and not acknowledged, bytes.
    pub in_flight_bytes: u64,
    /// In custody, bytes: what waits here and what is under way.
    pub custody_bytes: u64,
    /// Rate of pacing, bit/s; 0 where nothing is paced.
    pub pacing_bps: u64,
    /// Smoothed round-trip time, microseconds; 0 unknown.
    pub srtt_us: u64,
    /// Bytes that wait in the egress queue of the link, of all flows.
    pub link_queue_bytes: u64,
}

/// Events of one direction that are kept; what comes on top is counted.
const EVENTS_MAX: usize = 400_000;
/// Payload share of a full packet, for a limit by the link's rate alone.
const ETA: f64 = 1448.0 / 1500.0;

/// Puts together what a gateway hands out piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    client: String,
    server: String,
    /// To the server, to the client.
    directions: [DirectionTrace; 2],
    rates_bps: [u64; 2],
    srtts_us: [u64; 2],
}

impl Collector {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.client.is_empty()
    }

    /// Another piece, of the gateway of this name.
    pub fn add(&mut self, gateway: &str, taken: &Taken) {
        if taken.client.is_empty() {
            return;
        }
        (self.client, self.server) = (taken.client.clone(), taken.server.clone());
        let t = taken.at_ns as f64 / 1e9;
        let both = self.directions.iter_mut().zip(["client to server", "server to client"]);
        for ((direction, way), sender) in both.zip(&taken.senders) {
            direction.name = format!("{gateway}, {way}");
            direction.events_lost += taken.events_lost;
            direction.samples.push(Sample {
                t,
                cwnd_bytes: sender.cwnd_bytes,
                in_flight_bytes: sender.in_flight_bytes,
                custody_bytes: sender.custody_bytes,
                pacing_bps: sender.pacing_bps,
                srtt_us: sender.srtt_us,
                link_queue_bytes: sender.link_queue_bytes,
            });
        }
        let known = self.rates_bps.iter_mut().zip(&mut self.srtts_us);
        for ((rate_bps, srtt_us), sender) in known.zip(&taken.senders) {
            *rate_bps = sender.link_rate_bps.max(*rate_bps);
            *srtt_us = sender.srtt_us.max(*srtt_us);
        }
        let [to_server, to_client] = &mut self.directions;
        for event in &taken.events {
            let (t, from, to) = (event.at_ns as f64 / 1e9, event.from, event.to);
            let direction = if event.of_client { &mut *to_server } else { &mut *to_client };
            if direction.events.len() >= EVENTS_MAX {
                direction.events_lost += 1;
                continue;
            }
            direction.events.push(match event.what {
                What::Sent => Event::Sent { t, from, to },
                What::Repeated => Event::Repeated { t, from, to },
                What::Acked => Event::Acked { t, to },
                What::TimedOut => Event::TimedOut { t, from, to },
                What::Recovers => Event::Recovers { t, from, to },
                What::Explicit => Event::Explicit { t },
                What::Doubted => Event::Doubted { t },
            });
        }
    }

    /// The trace. Directions in which nothing was sent are left out; the limit is that of the one
    /// that sent most: its link's rate from its first byte on. `known`: the link's rate, bit/s, and
    /// RTT, seconds, where that is better known than to the gateway.
    #[must_use]
    pub fn finish(&self, known: Option<(f64, f64)>, command: &str) -> FlowTrace {
        let sent = |d: &DirectionTrace| {
            let ends = d.events.iter().map(|e| if let Event::Sent { to, .. } = *e { to } else { 0 });
            ends.max().unwrap_or(0)
        };
        let ([to_server, to_client], [up_bps, down_bps], [up_us, down_us]) =
            (&self.directions, self.rates_bps, self.srtts_us);
        let (busiest, rate, srtt_us) = if sent(to_client) >= sent(to_server) {
            (to_client, down_bps, down_us)
        } else {
            (to_server, up_bps, up_us)
        };
        let bytes = sent(busiest);
        let (rate_bps, rtt) = known.unwrap_or((rate as f64, srtt_us as f64 / 1e6));
        let first = busiest.events.iter().find(|e| matches!(e, Event::Sent { .. }));
        let limit = first.filter(|_| rate_bps > 0.0 && bytes > 0).map(|first| {
            let rate = rate_bps / 8.0;
            let from_seconds = first.at();
            let until_seconds = from_seconds + bytes as f64 / (rate * ETA);
            TraceLimit { from_seconds, until_seconds, bytes, bdp_bytes: (rate * rtt) as u64 }
        });
        FlowTrace {
            farlink_flow_trace: FORMAT,
            title: format!("{} and {}", self.client, self.server),
            version: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            limit,
            directions: self.directions.iter().filter(|d| sent(d) > 0).cloned().collect(),
        }
    }
}
