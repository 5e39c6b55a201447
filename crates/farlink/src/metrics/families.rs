//! Every metric: its name, its kind, what it says, and where it stands in `farlink status --json`.
//!
//! Names follow Prometheus' conventions: base units (seconds, bytes), `_total` on what only counts
//! up. A number of the snapshot that is no metric is named in `NO_METRICS`; a test insists.

/// Whether it only counts up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
}

/// The unit in the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// As it is exposed.
    Same,
    /// Bits, exposed as bytes.
    Bits,
    /// Microseconds, exposed as seconds.
    Microseconds,
}

/// Where the numbers stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// One number.
    At(&'static str),
    /// One for each of these, which are the label's values.
    Each(&'static str, &'static [(&'static str, &'static str)]),
    /// One for each entry of an object, whose names are the label's values.
    Map(&'static str, &'static str),
    /// In each link, under its name.
    OfLink(&'static str),
    /// Of each link and each state that it can be in: 1 for the one that it is in.
    StateOfLink,
    /// Of each direction of each interface, and each state that its capture can be in: 1 for the
    /// one that it is in.
    StateOfCapture,
    /// In each link, one for each entry of this object, whose names are the values of this label.
    MapOfLink(&'static str, &'static str),
    /// In each kind of traffic of each link.
    OfKind(&'static str),
    /// In each pair of each link.
    OfPair(&'static str),
    /// In each diverted interface.
    OfInterface(&'static str),
    /// In each rule.
    OfRule(&'static str),
}

/// A metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub place: Place,
    pub unit: Unit,
    pub help: &'static str,
}

use Place::{
    At, Each, Map, MapOfLink, OfInterface, OfKind, OfLink, OfPair, OfRule, StateOfCapture, StateOfLink,
};

const fn counter(name: &'static str, place: Place, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, place, unit: Unit::Same, help }
}

const fn gauge(name: &'static str, place: Place, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, place, unit: Unit::Same, help }
}

const fn in_unit(family: Family, unit: Unit) -> Family {
    Family { unit, ..family }
}

/// A counter of the engine: its name is that of the snapshot.
macro_rules! engine {
    ($name:literal, $help:literal) => {
        counter(concat!("farlink_", $name, "_total"), At(concat!("/engine/counters/", $name)), $help)
    };
}

/// A counter of the driver.
macro_rules! driver {
    ($name:literal, $help:literal) => {
        counter(concat!("farlink_driver_", $name, "_total"), At(concat!("/driver/", $name)), $help)
    };
}

const MODES: &[(&str, &str)] = &[
    ("split", "/engine/flows_split"),
    ("dormant", "/engine/flows_dormant"),
    ("draining", "/engine/flows_draining"),
    ("closed", "/engine/flows_closed"),
];

/// Numbers of the snapshot that are no metrics, and why.
#[cfg(test)]
pub const NO_METRICS: &[(&str, &str)] = &[
    ("/engine/gateway/version", "says what the gateway speaks, does not change"),
    ("/engine/gateway/key_id", "a name"),
    ("/hosts/", "a series for each address would be too many"),
    ("/driver/profile", "a histogram of its own, farlink_stage_seconds"),
];

/// All of them but the histogram of stages and `farlink_build_info`.
pub const FAMILIES: &[Family] = &[
    gauge("farlink_uptime_seconds", At("/uptime_seconds"), "Time since the gateway was started."),
    gauge("farlink_flows", Each("mode", MODES), "Connections that are known now, by what is done with them."),
    gauge(
        "farlink_flows_with_peer",
        At("/engine/flows_with_peer"),
        "Connections with another gateway on their path, now.",
    ),
    gauge(
        "farlink_flows_limited_by",
        Map("by", "/engine/limited_by"),
        "Split connections now, by what keeps them from being faster.",
    ),
    gauge("farlink_half_open", At("/engine/half_open"), "Connections whose handshake is not complete, now."),
    gauge(
        "farlink_custody_bytes",
        At("/engine/custody_bytes"),
        "Bytes that are held for hosts, of all connections.",
    ),
    gauge(
        "farlink_in_flight_bytes",
        At("/engine/in_flight_bytes"),
        "Bytes that are sent and not acknowledged, of all connections.",
    ),
    gauge(
        "farlink_cwnd_bytes",
        At("/engine/cwnd_bytes"),
        "Congestion windows of what has data to send; one that several share counts once.",
    ),
    gauge("farlink_pool_bytes", At("/engine/pool_bytes"), "The buffer pool: blocks in use."),
    gauge(
        "farlink_pool_max_bytes",
        At("/engine/pool_max_bytes"),
        "The buffer pool: most that was ever in use.",
    ),
    gauge("farlink_pool_limit_bytes", At("/engine/pool_limit_bytes"), "The buffer pool: its bound."),
    gauge(
        "farlink_held_max_bytes",
        At("/engine/held_max_bytes"),
        "Most bytes that were ever held in order for delivery.",
    ),
    gauge("farlink_table_bytes", At("/engine/table_bytes"), "Memory of the engine beside the buffer pool."),
    gauge("farlink_memory_bytes", Map("of", "/engine/memory"), "Memory of the engine by what it is for."),
    gauge(
        "farlink_reassembly_bytes",
        At("/reassembly_bytes"),
        "Fragments that wait for the rest of their packet.",
    ),
    gauge("farlink_hosts_bytes", At("/hosts_bytes"), "Memory of the totals of hosts."),
    gauge(
        "farlink_draining",
        At("/engine/draining"),
        "1 while the gateway hands its connections back before it ends.",
    ),
    gauge(
        "farlink_short_of_time",
        At("/engine/short_of_time"),
        "1 while packets wait too long for the processor, and new connections are forwarded.",
    ),
    counter("farlink_wakes_total", Map("for", "/wakes"), "Deadlines that passed, by what they were for."),
    // Traffic.
    counter(
        "farlink_packets_in_total",
        At("/traffic/packets_in"),
        "Packets that came in; a super-segment counts once.",
    ),
    counter("farlink_bytes_in_total", At("/traffic/bytes_in"), "Bytes of the packets that came in."),
    counter(
        "farlink_packets_out_total",
        At("/traffic/packets_out"),
        "Packets that went out; a super-segment counts once.",
    ),
    counter("farlink_bytes_out_total", At("/traffic/bytes_out"), "Bytes of the packets that went out."),
    counter(
        "farlink_packets_forwarded_total",
        At("/traffic/packets_forwarded"),
        "Packets that went on as they came, or wait to.",
    ),
    counter(
        "farlink_packets_other_total",
        At("/traffic/packets_other"),
        "Packets that came in and are no TCP.",
    ),
    // Connections.
    engine!("packets_taken", "Packets that the gateway took or answered."),
    engine!("packets_dropped", "Packets that were dropped; other counters say why."),
    engine!("syns", "SYNs that came in."),
    engine!("flows_split", "Connections that were split."),
    engine!("flows_passed", "Connections that a rule passed by."),
    engine!("flows_refused", "Connections that a rule refused."),
    engine!(
        "flows_forwarded_short",
        "Connections that were forwarded because memory or the flow table was short."
    ),
    engine!("flows_forwarded_busy", "Connections that were forwarded because the processor was short."),
    engine!(
        "flows_forwarded_unsplittable",
        "Connections that were forwarded because an option or their shape forbids splitting."
    ),
    engine!("half_open_evicted", "Half-open connections that gave way to newer ones."),
    engine!("dormant_evicted", "Dormant connections whose record gave way to a newer connection."),
    engine!("flows_closed", "Split connections that both hosts closed."),
    engine!("flows_reset", "Split connections that a host reset."),
    engine!("flows_abandoned", "Split connections whose data the gateway gave up."),
    engine!(
        "flows_slept",
        "Times that a connection fell asleep: nothing was held, and it was only forwarded."
    ),
    engine!("flows_woken", "Times that a dormant connection was split again."),
    engine!("payload_in_bytes", "Payload that was taken into custody."),
    engine!("payload_out_bytes", "Payload that was sent from custody, repetitions included."),
    engine!("retransmitted_bytes", "Payload that was sent again."),
    engine!(
        "early_repeated_bytes",
        "Payload of copies that an idle link carried before a loss could be known."
    ),
    engine!("ahead_refused", "Times that what was sent ahead of a window drew a reset, or was dropped."),
    engine!(
        "resets_doubted",
        "Resets that were answered with a question, because of what was sent ahead of a window."
    ),
    engine!("early_repeated_packets", "Packets of such copies, and of tries of a larger size."),
    engine!("early_repeated_packet_bytes", "IP bytes of those packets."),
    engine!(
        "openings_copied",
        "SYNs, and answers to them, that left twice for the gateway at the other end of a link that loses."
    ),
    engine!(
        "needless_bytes",
        "Payload that was sent again or as a copy, and came twice, as the other ends tell."
    ),
    engine!("duplicate_bytes", "Payload that came in a second time."),
    engine!("rtos", "Retransmission timeouts."),
    engine!("tail_loss_probes", "Tail loss probes."),
    engine!("recoveries", "Fast recoveries."),
    engine!("xcp_followed", "Times that a direction began to go by what routers say (XCP)."),
    engine!("xcp_doubted", "Times that routers were no longer believed (XCP)."),
    engine!("acks_out", "Pure acknowledgements that were made."),
    engine!("ack_bytes_out", "Bytes of pure acknowledgements that were made, with IP headers."),
    engine!("challenge_acks", "Challenge ACKs that were made (RFC 5961)."),
    engine!("bad_checksums", "Segments with a wrong checksum; they are forwarded."),
    engine!("dropped_no_buffer", "Segments that found no buffer; their host repeats them."),
    engine!("dropped_queue", "Segments of hosts that were dropped because much was held already."),
    engine!("icmp_consumed", "ICMP errors about segments that the gateway made."),
    engine!("bypass_events", "Times that packets of a split connection had gone round the gateway."),
    engine!(
        "keepalives_asked",
        "Questions to hosts of idle connections whether they live, because a rule says so."
    ),
    engine!("keepalives_answered", "Answers to these questions; no host sees them."),
    engine!(
        "keepalives_given_up",
        "Connections whose hosts are asked no more, because one left three questions unanswered."
    ),
    engine!("zero_window_probes", "Probes of windows that were closed."),
    // Links.
    gauge(
        "farlink_link_ahead_hosts",
        MapOfLink("hosts", "ahead"),
        "Hosts behind the link by whether their windows are sent ahead of: taking_hosts, tried_hosts; reset_hosts and dropped_hosts are waited for.",
    ),
    gauge("farlink_link_up", OfLink("up"), "1 unless somebody who knows says that the link is down."),
    gauge(
        "farlink_link_state",
        StateOfLink,
        "1 for the state that the link is in: up; suspect, which has just been asked whether it carries anything; probing, which \
         has not answered; down.",
    ),
    gauge(
        "farlink_link_silent",
        OfLink("silent"),
        "1 while nothing is heard over the link, and nobody knows why.",
    ),
    gauge(
        "farlink_link_syn_option_dropped_networks",
        OfLink("syn_option_dropped"),
        "Networks to which SYNs with Farlink's TCP option do not arrive: a box on the way drops them, and they go without it.",
    ),
    gauge(
        "farlink_link_syn_ack_option_dropped_networks",
        OfLink("syn_ack_option_dropped"),
        "The same of SYN-ACKs that tell a gateway before this one of it.",
    ),
    gauge(
        "farlink_link_data_option_dropped_networks",
        OfLink("data_option_dropped"),
        "The same of what follows a handshake: no gateway is asked for there.",
    ),
    in_unit(
        gauge(
            "farlink_link_rate_bytes_per_second",
            OfLink("rate_bps"),
            "Rate in force for all that leaves by the link, as declared or found out; 0 while unknown.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_estimated_bytes_per_second",
            OfLink("estimated_bps"),
            "Rate of the link, as found out; 0 while unknown, or where it carries what is declared.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_room_bytes_per_second",
            OfLink("room_bps"),
            "What the link has been shown to carry that carries more than is declared; 0: no more, as far as is known.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_rate_in_bytes_per_second",
            OfLink("rate_in_bps"),
            "Rate at which the link brings what comes in, as declared, advertised or found out; 0 while unknown.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_rate_in_told_bytes_per_second",
            OfLink("rate_in_told_bps"),
            "What a gateway at the other end advertises that it sends into the link, whatever is declared here; 0: nothing.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_rate_in_seen_bytes_per_second",
            OfLink("rate_in_seen_bps"),
            "The most of TCP that has come in by the link within a second of late.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_remembered_bytes_per_second",
            OfLink("remembered_bps"),
            "Rate of the link as it was found once, and is not confirmed yet: a first guess; 0: none.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_declared_bytes_per_second",
            OfLink("declared_bps"),
            "Rate of the link, as the operator has said; 0 where he has not.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_queue_bytes_per_second",
            OfLink("queue_bps"),
            "What the link's queue sends at now: the rate without what leaves past it; 0: as fast as it gets.",
        ),
        Unit::Bits,
    ),
    gauge(
        "farlink_link_beside_metered",
        OfLink("beside_metered"),
        "1 where the counters of the link's interface tell what leaves past its queue.",
    ),
    in_unit(
        gauge(
            "farlink_link_beside_bytes_per_second",
            OfLink("beside_bps"),
            "What leaves by the link's interface past its queue now; the queue has the rest of the rate.",
        ),
        Unit::Bits,
    ),
    counter(
        "farlink_link_beside_packets_total",
        OfLink("beside_packets"),
        "Packets that have left by the link's interface past its queue.",
    ),
    counter(
        "farlink_link_beside_bytes_total",
        OfLink("beside_bytes"),
        "Bytes that have left by the link's interface past its queue, IP headers included.",
    ),
    counter(
        "farlink_link_carried_packets_total",
        OfKind("packets"),
        "Packets sent into the link, by kind: split TCP, forwarded TCP, UDP, ICMP and others.",
    ),
    counter(
        "farlink_link_carried_bytes_total",
        OfKind("bytes"),
        "Bytes sent into the link, with IP headers, by kind.",
    ),
    counter(
        "farlink_link_carried_dropped_packets_total",
        OfKind("dropped_packets"),
        "Packets that the link's queue has dropped, by kind.",
    ),
    in_unit(
        counter(
            "farlink_link_carried_waited_seconds_total",
            OfKind("waited_us"),
            "Time that forwarded packets have waited for the link, all together, by kind: over their number it is the mean.",
        ),
        Unit::Microseconds,
    ),
    in_unit(
        gauge(
            "farlink_link_carried_waited_max_seconds",
            OfKind("waited_max_us"),
            "The longest time that a forwarded packet has waited for the link, by kind.",
        ),
        Unit::Microseconds,
    ),
    in_unit(
        gauge(
            "farlink_link_xcp_capacity_bytes_per_second",
            OfLink("xcp_capacity_bps"),
            "What packets that say how fast they are sent have of the link (XCP); 0 where its queue does not answer them.",
        ),
        Unit::Bits,
    ),
    in_unit(
        gauge(
            "farlink_link_rtt_seconds",
            OfLink("rtt_us"),
            "Round trip of the link, as said or found out; 0 while unknown.",
        ),
        Unit::Microseconds,
    ),
    gauge("farlink_link_backlog_bytes", OfLink("backlog_bytes"), "Bytes in the queue of the link."),
    gauge(
        "farlink_link_backlog_max_bytes",
        OfLink("backlog_max_bytes"),
        "Most bytes that were ever in the queue of the link.",
    ),
    gauge("farlink_link_flows", OfLink("flows"), "Connections with data for the link, waiting or under way."),
    gauge("farlink_link_custody_bytes", OfLink("custody_bytes"), "Bytes that are held for the link."),
    gauge(
        "farlink_link_in_flight_bytes",
        OfLink("in_flight_bytes"),
        "Bytes that are sent into the link and not acknowledged.",
    ),
    gauge(
        "farlink_link_cwnd_bytes",
        OfLink("cwnd_bytes"),
        "Congestion windows of the connections with data for the link.",
    ),
    gauge(
        "farlink_link_lost_bytes",
        OfLink("lost_bytes"),
        "Bytes that were taken for lost, of the connections that are open now.",
    ),
    counter("farlink_link_sent_bytes_total", OfLink("sent_bytes"), "Bytes that were sent into the link."),
    counter(
        "farlink_link_retransmitted_bytes_total",
        OfLink("retransmitted_bytes"),
        "Payload that was sent into the link again.",
    ),
    counter(
        "farlink_link_spent_bytes_total",
        MapOfLink("for", "spent"),
        "Bytes of split TCP sent into the link, by what they were for: payload, repeated payload, headers of both, copies, acks, probes; needless is a part of what was repeated and of copies.",
    ),
    gauge(
        "farlink_link_budget_bytes",
        OfLink("budget_bytes"),
        "What the link may carry in a period for a price; 0: nobody counts.",
    ),
    gauge(
        "farlink_link_budget_used_bytes",
        OfLink("budget_used_bytes"),
        "What the link has carried in this period, both directions together.",
    ),
    counter(
        "farlink_link_dropped_packets_total",
        OfLink("dropped_packets"),
        "Packets that the queue of the link dropped.",
    ),
    counter(
        "farlink_link_acks_filtered_total",
        OfLink("acks_filtered"),
        "Forwarded acknowledgements that waited and gave way to newer ones.",
    ),
    counter(
        "farlink_link_returns_total",
        OfLink("returns"),
        "Times that the link came back after it had been away.",
    ),
    counter(
        "farlink_link_on_hand_bytes_total",
        OfLink("on_hand_total_bytes"),
        "Bytes that were held for the link when it came back, all times together.",
    ),
    gauge(
        "farlink_link_on_hand_last_bytes",
        OfLink("on_hand_bytes"),
        "Bytes that were held for the link when it came back last.",
    ),
    in_unit(
        gauge(
            "farlink_pair_rate_bytes_per_second",
            OfPair("rate_bps"),
            "What connections to this gateway may send together, because routers say so (XCP); 0 while none speaks.",
        ),
        Unit::Bits,
    ),
    gauge(
        "farlink_pair_routers_speak",
        OfPair("routers_speak"),
        "1 while a router on the way to this gateway speaks (XCP).",
    ),
    gauge("farlink_pair_flows", OfPair("flows"), "Connections to this gateway that send."),
    // Interfaces, rules, driver, diversion.
    gauge(
        "farlink_interface_present",
        OfInterface("present"),
        "1 while the interface exists; 0 while it is waited for.",
    ),
    gauge("farlink_interface_up", OfInterface("up"), "1 while the interface is up and has a carrier."),
    gauge("farlink_interface_tso4", OfInterface("tso4"), "1 where super-segments of IPv4 cross whole."),
    gauge("farlink_interface_tso6", OfInterface("tso6"), "1 where super-segments of IPv6 cross whole."),
    gauge("farlink_interface_uso", OfInterface("uso"), "1 where UDP super-segments cross whole."),
    counter(
        "farlink_interface_packets_in_total",
        OfInterface("packets_in"),
        "Packets that came in by the interface and were diverted; a super-segment counts once.",
    ),
    counter(
        "farlink_interface_bytes_in_total",
        OfInterface("bytes_in"),
        "Bytes of the packets that came in by the interface and were diverted.",
    ),
    counter(
        "farlink_interface_super_segments_in_total",
        OfInterface("super_segments_in"),
        "Super-segments among the packets that came in by the interface.",
    ),
    counter(
        "farlink_interface_packets_out_total",
        OfInterface("packets_out"),
        "Packets that went back into the kernel on behalf of the interface.",
    ),
    counter(
        "farlink_interface_bytes_out_total",
        OfInterface("bytes_out"),
        "Bytes of the packets that went back into the kernel on behalf of the interface.",
    ),
    counter(
        "farlink_interface_packets_from_wire_total",
        OfInterface("packets_from_wire"),
        "Packets that a bump has taken which came in by the interface; a super-segment counts once.",
    ),
    counter(
        "farlink_interface_packets_to_wire_total",
        OfInterface("packets_to_wire"),
        "Packets that a bump has taken which were to leave by the interface; a super-segment counts once.",
    ),
    counter(
        "farlink_interface_queue_drops_total",
        OfInterface("queue_drops"),
        "Packets that were dropped because the gateway did not read them in time.",
    ),
    counter("farlink_rule_connections_total", OfRule("connections"), "Connections that matched the rule."),
    counter("farlink_rule_bytes_total", OfRule("bytes"), "Payload of the connections that matched the rule."),
    counter(
        "farlink_rule_over_limit_total",
        OfRule("over_limit"),
        "Connections above the limit of the rule.",
    ),
    gauge("farlink_rule_open", OfRule("open"), "Split connections of the rule that are open now."),
    driver!("writes_busy", "Times that the kernel had no room for a packet; it was tried again."),
    driver!("writes_lost", "Packets that were lost because the kernel had no room for too long."),
    driver!("writes_refused", "Packets that the kernel refused."),
    driver!("writes_down", "Packets that were written while a device was down."),
    driver!("software_segmented", "Super-segments that were cut here because the kernel did not take them."),
    driver!("odd_packets", "Packets that came in and nobody had diverted."),
    driver!("route_errors", "Route look-ups that failed."),
    driver!("route_lookups", "Route look-ups that went to the kernel."),
    driver!("own_packets", "Packets in the machine's own name that left by a socket."),
    driver!("events_lost", "Times that the kernel's network events overran."),
    driver!(
        "marks_replaced",
        "Marks and priorities of packets that others had to give way for: there are more than 4,095."
    ),
    driver!("devices_lost", "Devices of Farlink that were lost while they were in use, and made anew."),
    driver!("connections_logged", "Lines of the connection log that were written."),
    driver!(
        "connections_unlogged",
        "Connections that have no line in the connection log: too many at once, or it could not be written."
    ),
    driver!("journal_refused", "Connections in custody that found no room in the journal."),
    driver!("log_lines_lost", "Lines of the log that were lost because nobody took them."),
    gauge(
        "farlink_driver_spread",
        At("/driver/spread"),
        "1 while the kernel's part of the work is spread over all processors.",
    ),
    gauge(
        "farlink_diversion_in_place",
        At("/diversion/in_place"),
        "1 while all that is to be diverted is, and nothing of what that takes is missing.",
    ),
    gauge(
        "farlink_diversion_capture",
        StateOfCapture,
        "1 for how far it is with what passes the interface in this direction: wanted and not there, attached, proven by packets.",
    ),
    gauge("farlink_diversion_ipv4", At("/diversion/ipv4"), "1 while IPv4 is diverted."),
    gauge("farlink_diversion_ipv6", At("/diversion/ipv6"), "1 while IPv6 is diverted."),
    gauge(
        "farlink_diversion_everything",
        At("/diversion/everything"),
        "1 while everything that leaves by a link is diverted; absent where nobody wants it.",
    ),
    gauge("farlink_diversion_split", At("/diversion/split"), "1 while what is diverted may be split."),
    counter(
        "farlink_diversion_repairs_total",
        At("/diversion/repairs"),
        "Times that a part of the diversion was put back.",
    ),
    counter(
        "farlink_diversion_ends_total",
        At("/diversion/ends"),
        "Times that diversion was ended because packets did not get through.",
    ),
];
