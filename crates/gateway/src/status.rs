//! What a gateway tells of itself.

use std::collections::BTreeMap;

use farlink_engine::link::AheadOf;
use farlink_engine::spent::Spent;
use farlink_engine::status as engine;

use crate::by_host::HostStatus;
use crate::kinds::Passed;

/// A snapshot for `farlink status`.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Status {
    /// The engine's part.
    pub engine: engine::Status,
    /// What has come and gone, in whichever way.
    pub traffic: Traffic,
    /// One per declared link.
    pub links: Vec<LinkStatus>,
    /// Bytes of fragments awaiting their kin.
    pub reassembly_bytes: u64,
    /// How often a deadline passed, by what it was for. Of a loop that turns and does nothing it
    /// shows why.
    pub wakes: BTreeMap<&'static str, u64>,
    /// The hosts whose connections have carried most, the largest first, and then all others
    /// together.
    pub hosts: Vec<HostStatus>,
    /// Memory of these totals, bytes.
    pub hosts_bytes: u64,
}

/// What has come and gone since the start; a super-segment counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Packets handed in.
    pub packets_in: u64,
    /// Bytes handed in.
    pub bytes_in: u64,
    /// Packets handed out.
    pub packets_out: u64,
    /// Bytes handed out.
    pub bytes_out: u64,
    /// Packets that went on as they came, or wait to.
    pub packets_forwarded: u64,
    /// Packets handed in that are no TCP.
    pub packets_other: u64,
}

/// A declared link, for people.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct LinkStatus {
    /// The link's name.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// Nobody who knows says that it is down.
    pub up: bool,
    /// Nothing is heard over it, and nobody knows why.
    pub silent: bool,
    /// `up`, `suspect`, `probing` or `down`.
    pub state: &'static str,
    /// Who says that it is down: `kernel`, `operator`, `contact plan`, `silence`.
    pub down_by: Vec<&'static str>,
    /// The rate in force for all that leaves by it, bit/s: a little less or more than is known
    /// while a queue in the modem is emptied or the rate is tried. Its queue sends at what
    /// `beside_bps` leaves of it. 0 when unknown.
    pub rate_bps: u64,
    /// The rate that the operator has said, bit/s; 0: none.
    pub declared_bps: u64,
    /// What the link carries by the reports of the gateway at its other end, bit/s; 0 when nothing
    /// is known yet, or it carries what the operator has said.
    pub estimated_bps: u64,
    /// How long ago that was confirmed last where nobody says the rate, seconds; `None`: it is not
    /// known, is not confirmed, or somebody says it.
    pub found_age_s: Option<u64>,
    /// What was found once where nobody says the rate, in an earlier run or more than ten minutes
    /// ago, and has not been confirmed since, bit/s: a first guess, which `estimated_bps` has while
    /// it is in force. 0: nothing.
    pub remembered_bps: u64,
    /// How long ago that was found, seconds.
    pub remembered_age_s: Option<u64>,
    /// What short trains at more than the declared rate have shown it to carry, bit/s; 0: no more
    /// than is declared, as far as is known.
    pub room_bps: u64,
    /// What it brings, bit/s, as far as that is known; 0: not.
    pub rate_in_bps: u64,
    /// Whence that is known: `declared`, `told` by the gateway at its other end, or `found`.
    pub rate_in_source: Option<&'static str>,
    /// How long ago it was told, or found, seconds; `None`: it is declared, or not known.
    pub rate_in_age_s: Option<u64>,
    /// What a gateway at its other end has advertised of late that it sends, bit/s, whatever is
    /// declared here; 0: nothing.
    pub rate_in_told_bps: u64,
    /// The most of TCP that has come in by it within a second of late, bit/s.
    pub rate_in_seen_bps: u64,
    /// What its queue sends at now, bit/s: the rate in force without `beside_bps`. 0: as fast as it
    /// gets.
    pub queue_bps: u64,
    /// The counters of its interface tell what leaves past its queue. Those of an interface that
    /// others stand on (VLANs) do not.
    pub beside_metered: bool,
    /// What leaves by its interface past its queue now, bit/s, with `overhead` for each packet. The
    /// queue has the rest of the rate.
    pub beside_bps: u64,
    /// Packets that have left past its queue.
    pub beside_packets: u64,
    /// Bytes that have left past its queue, IP headers included.
    pub beside_bytes: u64,
    /// The hosts behind it by what they make of segments ahead of their windows.
    pub ahead: AheadOf,
    /// What has been sent into it, has waited and was dropped, by kind: `split_tcp`,
    /// `forwarded_tcp`, `udp`, `icmp`, `other`.
    pub carried: BTreeMap<&'static str, Passed>,
    /// What packets that say how fast they are sent have of it now (XCP), bit/s; 0 where its queue
    /// does not answer them.
    pub xcp_capacity_bps: u64,
    /// Its round trip, as said or found out, microseconds; 0 when unknown.
    pub rtt_us: u64,
    /// Gateways that have been heard at its other end, eight at most, the newest last.
    pub gateways: Vec<engine::GatewayStatus>,
    /// What boxes on the way do to handshakes for Farlink's option, in words; empty: nothing that
    /// is known.
    pub boxes: Vec<String>,
    /// Networks to which SYNs with Farlink's option do not arrive (/24 of IPv4, /48 of IPv6).
    pub syn_option_dropped: u64,
    /// The same of answers.
    pub syn_ack_option_dropped: u64,
    /// The same of what follows a handshake.
    pub data_option_dropped: u64,
    /// What flows to the same gateway there share, where routers say how fast (XCP).
    pub pairs: Vec<engine::PairStatus>,
    /// Bytes sent into it.
    pub sent_bytes: u64,
    /// What packets of split TCP in it were spent on.
    pub spent: Spent,
    /// What it may carry in a period for a price, bytes; 0: nobody counts.
    pub budget_bytes: u64,
    /// That period: `day`, `week` or `month`; `None`: there is no budget.
    pub budget_period: Option<&'static str>,
    /// What has been carried in this period, both directions together, bytes.
    pub budget_used_bytes: u64,
    /// `fine`, `low` from 80 % on, or `used up`; `None`: there is no budget.
    pub budget_level: Option<&'static str>,
    /// Bytes waiting.
    pub backlog_bytes: u64,
    /// Most bytes that ever waited.
    pub backlog_max_bytes: u64,
    /// Packets dropped by its queue.
    pub dropped_packets: u64,
    /// Forwarded acknowledgements that waited and gave way to newer ones.
    pub acks_filtered: u64,
    /// Flows with data for it, waiting or under way.
    pub flows: u64,
    /// Bytes in custody for it.
    pub custody_bytes: u64,
    /// Bytes sent into it and not acknowledged.
    pub in_flight_bytes: u64,
    /// Congestion windows of the flows with data for it, bytes; one that several share counts once.
    pub cwnd_bytes: u64,
    /// Payload bytes sent into it again.
    pub retransmitted_bytes: u64,
    /// Bytes of the open flows that were taken for lost on it.
    pub lost_bytes: u64,
    /// How often it came back after it had been away.
    pub returns: u64,
    /// Bytes that were held for it when it came back last.
    pub on_hand_bytes: u64,
    /// The sum of these over all times.
    pub on_hand_total_bytes: u64,
}
