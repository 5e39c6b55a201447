//! One transfer as the captures saw it.

use super::{Findings, FlowKey, Moment};
use crate::workload::Outcome;

/// Seconds and megabytes.
type Points = Vec<(f64, f64)>;

/// One transfer as the captures saw it: seconds since its first packet, and megabytes of its data.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Data as it leaves for the link, repetitions included.
    pub sent: Points,
    /// Data as it leaves the last gateway for its receiver.
    pub delivered: Points,
    /// How much of it that is by then, each byte once.
    pub arrived: Points,
    /// What is acknowledged, as it leaves the receiver's side for the link.
    pub acked: Points,
}

impl Trace {
    /// The first transfer's. `None` when the captures kept nothing of it.
    #[must_use]
    pub fn of(findings: &Findings, outcomes: &[Outcome]) -> Option<Self> {
        let local = outcomes.first()?.local?;
        let is_ours = |key: &FlowKey| key.a == local || key.b == local;
        let streams: Vec<_> = findings.streams.iter().filter(|(_, key, ..)| is_ours(key)).collect();
        let start = streams.iter().map(|(.., s)| s.first_at_ns).min()?;
        let (_, _, data_direction, _) = streams.iter().max_by_key(|(.., s)| s.end_max)?;
        let seconds = |m: &Moment| m.at_ns.saturating_sub(start) as f64 / 1e9;
        let points = |moments: &[Moment], acks: bool| -> Points {
            let wanted = moments.iter().filter(|m| m.is_ack == acks);
            wanted.map(|m| (seconds(m), m.place as f64 / 1e6)).collect()
        };
        let amounts = |moments: &[Moment]| -> Points {
            let data = moments.iter().filter(|m| !m.is_ack);
            data.map(|m| (seconds(m), m.seen_bytes as f64 / 1e6)).collect()
        };
        // The sender's side sees the data first, the receiver's side last.
        let mut data: Vec<_> = streams.iter().filter(|(_, _, d, _)| d == data_direction).collect();
        data.sort_by_key(|(.., s)| s.moments.iter().find(|m| !m.is_ack).map(|m| m.at_ns));
        let back = streams.iter().filter(|(_, _, d, _)| d != data_direction);
        let back = back.min_by_key(|(.., s)| s.moments.iter().find(|m| m.is_ack).map(|m| m.at_ns));
        Some(Self {
            sent: data.first().map(|(.., s)| points(&s.moments, false)).unwrap_or_default(),
            delivered: data.last().map(|(.., s)| points(&s.moments, false)).unwrap_or_default(),
            arrived: data.last().map(|(.., s)| amounts(&s.moments)).unwrap_or_default(),
            acked: back.map(|(.., s)| points(&s.moments, true)).unwrap_or_default(),
        })
    }
}
