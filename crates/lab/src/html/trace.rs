//! A flow, packet by packet: what `farlink trace` and `farlink sim run --flow-trace` write.

use serde::{Deserialize, Serialize};

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

/// The line that nothing can be above: bytes that can have arrived by a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TraceLimit {
    /// When the first byte can have arrived, in seconds of the trace.
    pub from_seconds: f64,
    /// When the last byte can have arrived.
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
}

impl Event {
    /// Seconds of the trace.
    #[must_use]
    pub fn at(&self) -> f64 {
        match *self {
            Self::Sent { t, .. } | Self::Repeated { t, .. } | Self::Acked { t, .. } => t,
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
