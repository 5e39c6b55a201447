//! What the engine tells of itself: plain, serialisable snapshots.

use serde::Serialize;

use crate::event::{Because, Event};
use crate::peer::{Capability, Hello};
use crate::spent::Spent;

/// Counters and gauges of the whole engine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// What this gateway says of itself to others.
    pub gateway: GatewayStatus,
    /// Flows that are split now.
    pub flows_split: u64,
    /// Flows that are dormant records now.
    pub flows_dormant: u64,
    /// Flows that are being drained now.
    pub flows_draining: u64,
    /// Closed flows that still answer for a moment.
    pub flows_closed: u64,
    /// Half-open connections in the SYN cache now.
    pub half_open: u64,
    /// Bytes in custody now.
    pub custody_bytes: u64,
    /// Bytes of pool blocks in use now.
    pub pool_bytes: u64,
    /// Most bytes of pool blocks that were ever in use.
    pub pool_max_bytes: u64,
    /// Most bytes that were ever held in order for delivery, all flows together.
    pub held_max_bytes: u64,
    /// The pool's bound.
    pub pool_limit_bytes: u64,
    /// Bytes of everything but the pool: [`Memory::state_bytes`].
    pub table_bytes: u64,
    /// Memory by what it is for.
    pub memory: Memory,
    /// Gateways heard in the last minute, as flows with a peer.
    pub flows_with_peer: u64,
    /// Bytes sent and not acknowledged now, both directions of all flows.
    pub in_flight_bytes: u64,
    /// Congestion windows of all directions that hold data now, bytes; one that several share
    /// counts once.
    pub cwnd_bytes: u64,
    /// What holds the split flows now.
    pub limited_by: LimitedBy,
    /// Counters since the start.
    pub counters: Counters,
    /// One per rule, then the default action.
    pub rules: Vec<RuleStatus>,
    /// Whether the engine is draining.
    pub draining: bool,
    /// Packets wait too long for the processor: new connections are forwarded.
    pub short_of_time: bool,
}

/// Memory of the engine by what it is for, bytes. All that grows with traffic is here.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Memory {
    /// Blocks of the pool in use.
    pub blocks_bytes: u64,
    /// Free blocks that the pool keeps for reuse.
    pub spare_blocks_bytes: u64,
    /// The flow table: index and records.
    pub flows_bytes: u64,
    /// The relays of flows that are split or being drained.
    pub relays_bytes: u64,
    /// What is known of segments under way.
    pub boards_bytes: u64,
    /// Lists of the blocks that relays hold.
    pub lists_bytes: u64,
    /// Half-open connections.
    pub half_open_bytes: u64,
    /// Connections that rules pass by or refuse, followed for their counters.
    pub passed_bytes: u64,
    /// Timers of flows.
    pub timers_bytes: u64,
    /// Queue of flows with something to send, and list of flows that are to be counted.
    pub ready_bytes: u64,
}

impl Memory {
    /// All but the pool.
    #[must_use]
    pub const fn state_bytes(&self) -> u64 {
        self.flows_bytes
            + self.relays_bytes
            + self.boards_bytes
            + self.lists_bytes
            + self.half_open_bytes
            + self.passed_bytes
            + self.timers_bytes
            + self.ready_bytes
    }
    /// All of it.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.blocks_bytes + self.spare_blocks_bytes + self.state_bytes()
    }
}

/// How many split flows are held by what, each by its busier direction.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct LimitedBy {
    /// By their share of the link, the congestion window, or because it is down or silent.
    pub link: u64,
    /// By the receiving host.
    pub receiver: u64,
    /// By losses under repair.
    pub loss: u64,
    /// By what the gateway may hold for them: all of it is under way.
    pub gateway: u64,
    /// By nothing to send.
    pub application: u64,
}

/// What the flows send by one interface.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Load {
    /// Legs of split flows that leave by it.
    pub legs: u64,
    /// Of these, legs with data to send or under way.
    pub busy: u64,
    /// Bytes in custody for it.
    pub custody_bytes: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Congestion windows of the busy legs, bytes; one that several share counts once.
    pub cwnd_bytes: u64,
    /// Bytes taken for lost, of the flows that are open now.
    pub lost_bytes: u64,
}

/// A gateway, as it says of itself.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct GatewayStatus {
    /// Which it is, until it starts again: 8 hexadecimal digits. Of one of version 1 only the last
    /// 4 count, and all are 0 while it has not reported anything.
    pub identity: String,
    /// The newest version of the messages that it speaks.
    pub version: u8,
    /// What both gateways can do, of what not every gateway can.
    pub capabilities: Vec<&'static str>,
    /// The key that its tags are made with; 0: none.
    pub key_id: u8,
}

impl From<Hello> for GatewayStatus {
    fn from(hello: Hello) -> Self {
        let capabilities = Capability::ALL.into_iter().filter(|what| hello.can(*what));
        Self {
            identity: format!("{:08x}", hello.identity.number()),
            version: hello.version,
            capabilities: capabilities.map(Capability::name).collect(),
            key_id: hello.key_id,
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the start.
        #[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }
    };
}

counters! {
    /// Packets that the engine took or answered.
    packets_taken,
    /// Packets that were dropped, with a reason below.
    packets_dropped,
    /// SYNs seen.
    syns,
    /// Connections split.
    flows_split,
    /// Connections passed by rule.
    flows_passed,
    /// Connections refused by rule.
    flows_refused,
    /// Connections forwarded because memory or the flow table was short.
    flows_forwarded_short,
    /// Connections forwarded because the processor was short.
    flows_forwarded_busy,
    /// Connections forwarded because an option or their shape forbids splitting.
    flows_forwarded_unsplittable,
    /// SYN cache entries thrown out by newer ones.
    half_open_evicted,
    /// Dormant records thrown out by newer connections, because the table was full.
    dormant_evicted,
    /// Connections closed in order.
    flows_closed,
    /// Connections reset by a host.
    flows_reset,
    /// Connections abandoned by the gateway.
    flows_abandoned,
    /// Times a flow fell asleep.
    flows_slept,
    /// Times a dormant flow was split again.
    flows_woken,
    /// Payload bytes taken into custody.
    payload_in_bytes,
    /// Payload bytes sent from custody, repetitions included.
    payload_out_bytes,
    /// Payload bytes sent again.
    retransmitted_bytes,
    /// Payload bytes that left again or as copies, and came twice, as the other ends tell.
    needless_bytes,
    /// Times that what was sent ahead of a window drew a reset, or was dropped.
    ahead_refused,
    /// Resets that were answered with a question, because of what was sent ahead of a window.
    resets_doubted,
    /// Payload bytes of copies that an idle link carried before a loss could be known.
    early_repeated_bytes,
    /// Packets of such copies, and of tries of a larger size.
    early_repeated_packets,
    /// IP bytes of those packets.
    early_repeated_packet_bytes,
    /// SYNs, and answers to them, that left twice for the gateway at the other end of a link that
    /// loses; among those packets, too.
    openings_copied,
    /// Retransmission timeouts.
    rtos,
    /// Tail loss probes.
    tail_loss_probes,
    /// Fast recoveries.
    recoveries,
    /// Times a direction began to go by what routers say (XCP).
    xcp_followed,
    /// Times it ceased to, because they were not believed.
    xcp_doubted,
    /// Duplicate payload bytes received.
    duplicate_bytes,
    /// Pure acknowledgements made.
    acks_out,
    /// Bytes of pure acknowledgements made, with IP headers.
    ack_bytes_out,
    /// Challenge ACKs made.
    challenge_acks,
    /// Segments with a wrong checksum (forwarded).
    bad_checksums,
    /// Segments that could not be taken for want of buffer (the source repeats them).
    dropped_no_buffer,
    /// Segments of hosts dropped because much was held already (`flow_control.queue_drop`).
    dropped_queue,
    /// ICMP errors about the gateway's own segments.
    icmp_consumed,
    /// Packets handled while the reverse or forward path went round the gateway.
    bypass_events,
    /// Questions to hosts of sleeping connections whether they live, because a rule says so.
    keepalives_asked,
    /// Answers to these, which no host was to see.
    keepalives_answered,
    /// Connections whose hosts are asked no more, because one left three questions unanswered.
    keepalives_given_up,
    /// Zero-window probes sent.
    zero_window_probes,
}

impl Counters {
    /// A packet of this size has left with payload that left before, though nothing tells of a
    /// loss.
    pub(crate) fn count_copy(&mut self, payload_bytes: u32, packet_bytes: u32) {
        self.early_repeated_bytes += u64::from(payload_bytes);
        self.early_repeated_packets += 1;
        self.early_repeated_packet_bytes += u64::from(packet_bytes);
    }

    /// This has happened to a connection.
    pub(crate) fn count(&mut self, what: Event) {
        let counter = match what {
            Event::Passed => &mut self.flows_passed,
            Event::Refused => &mut self.flows_refused,
            Event::Forwarded(Because::Unsplittable) => &mut self.flows_forwarded_unsplittable,
            Event::Forwarded(Because::Memory) => &mut self.flows_forwarded_short,
            Event::Forwarded(Because::Processor) => &mut self.flows_forwarded_busy,
            Event::Split => &mut self.flows_split,
            Event::Slept(_) => &mut self.flows_slept,
            Event::Woken => &mut self.flows_woken,
            Event::Evicted => &mut self.dormant_evicted,
            Event::Closed(_) => &mut self.flows_closed,
            Event::Reset(_) => &mut self.flows_reset,
            Event::Abandoned(_) => &mut self.flows_abandoned,
            Event::Bypassed => &mut self.bypass_events,
            Event::TimedOut(_) => &mut self.rtos,
            Event::Recovers(_) => &mut self.recoveries,
            Event::Explicit(_) => &mut self.xcp_followed,
            Event::Doubted(..) => &mut self.xcp_doubted,
            Event::Refuses(..) => &mut self.ahead_refused,
            Event::Challenged(_) => &mut self.challenge_acks,
            Event::NoBuffer(_) => &mut self.dropped_no_buffer,
            Event::QueueDrop(_) => &mut self.dropped_queue,
        };
        *counter += 1;
    }
}

/// A gateway at the other end of a link on which routers say how fast (XCP), and what all flows to
/// it share.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct PairStatus {
    /// That gateway, in hexadecimal digits.
    pub gateway: String,
    /// Routers speak, and have left this rate, in bits of IP packets a second; 0: none speaks.
    pub rate_bps: u64,
    /// Routers speak.
    pub routers_speak: bool,
    /// Flows that send; one at least.
    pub flows: u64,
    /// XCP's own header on the way there: `passes`, is `tried` out, is `given up` for a while;
    /// empty where the option says it all.
    pub header: &'static str,
}

/// How often a rule has matched.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RuleStatus {
    /// The rule's name.
    pub name: String,
    /// Connections that matched; a SYN that is repeated counts once.
    pub connections: u64,
    /// Split ones that are open now.
    pub open: u64,
    /// Payload bytes that they carried: relayed, or passed by (then with what the hosts repeated).
    pub bytes: u64,
    /// Connections above its limit.
    pub over_limit: u64,
}

impl RuleStatus {
    /// What another rule has counted counts for this one, too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.open += other.open;
        self.bytes += other.bytes;
        self.over_limit += other.over_limit;
    }
}

/// One flow, for people.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowStatus {
    /// Client address and port (the host that sent the SYN).
    pub a: String,
    /// Server address and port.
    pub b: String,
    /// split, custody, dormant, draining or closed.
    pub mode: &'static str,
    /// The rule that it came under.
    pub rule: String,
    /// Bytes in custody from client to server.
    pub custody_ab_bytes: u64,
    /// Bytes in custody from server to client.
    pub custody_ba_bytes: u64,
    /// Smoothed RTT of the leg to the client in microseconds; 0 unknown.
    pub srtt_a_us: u64,
    /// Smoothed RTT of the leg to the server in microseconds; 0 unknown.
    pub srtt_b_us: u64,
    /// Congestion window towards the client, bytes.
    pub cwnd_a_bytes: u64,
    /// Congestion window towards the server, bytes.
    pub cwnd_b_bytes: u64,
    /// A gateway answers on the leg to the client.
    pub peer_a: bool,
    /// A gateway answers on the leg to the server.
    pub peer_b: bool,
    /// What holds it: link, receiver, loss, gateway, application.
    pub limited_by: &'static str,
    /// The same more closely: nothing to send, repairs losses, receive window, congestion window,
    /// pacing, turn on the link, link is away.
    pub held_by: &'static str,
    /// The busier direction, of which both speak: `ab` or `ba`.
    pub direction: &'static str,
    /// Seconds since it was split, or woke in a process that had forgotten it.
    pub age_seconds: u64,
    /// Payload that the server has acknowledged since the flow was split last, bytes.
    pub delivered_ab_bytes: u64,
    /// The same of the client.
    pub delivered_ba_bytes: u64,
    /// What was spent on what was sent from here to the client, since it was split last.
    pub spent_a: Spent,
    /// The same to the server.
    pub spent_b: Spent,
    /// Sent to the client and not acknowledged, bytes.
    pub in_flight_a_bytes: u64,
    /// Sent to the server and not acknowledged, bytes.
    pub in_flight_b_bytes: u64,
    /// The client's receive window, bytes.
    pub window_a_bytes: u64,
    /// The server's receive window, bytes.
    pub window_b_bytes: u64,
    /// Whether what is sent to the client goes ahead of its window: `on`, `tried`, `off`, and why;
    /// empty where it is no host behind a link.
    pub ahead_a: &'static str,
    /// The same to the server.
    pub ahead_b: &'static str,
    /// Bytes to the client that were taken for lost since the flow was split last.
    pub lost_a_bytes: u64,
    /// Bytes to the server that were taken for lost.
    pub lost_b_bytes: u64,
    /// What governs what is sent to the client: the controller, or why XCP is given up.
    pub controller_a: &'static str,
    /// The same towards the server.
    pub controller_b: &'static str,
    /// Rate of pacing towards the client, bit/s; 0: not paced.
    pub pacing_a_bps: u64,
    /// What all flows to the gateway on the leg to the client may send together, because routers
    /// say so (XCP), bit/s; 0: it goes by itself.
    pub pair_a_bps: u64,
    /// The same towards the server.
    pub pair_b_bps: u64,
    /// Rate of pacing towards the server, bit/s; 0: not paced.
    pub pacing_b_bps: u64,
    /// Interface by which packets to the client leave; empty for one that is not configured.
    pub out_a: String,
    /// Interface by which packets to the server leave.
    pub out_b: String,
}
