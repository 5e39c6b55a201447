//! A trace of one connection, on demand: what of its data was sent, sent again and acknowledged
//! here, and when.
//!
//! It looks at the packets that pass the gateway, made or forwarded, so it works for a flow in any
//! mode and changes nothing. Off it costs one comparison for each packet. Its memory is bounded,
//! and it ends by itself when nobody reads it.

use std::collections::VecDeque;

use core::net::{IpAddr, SocketAddr};

use farlink_engine::Side;
use farlink_engine::event::{Ends, Event};
use farlink_engine::status::FlowStatus;
use farlink_wire::shim::SHIM_BYTES;
use farlink_wire::{Duration, Instant, SeqNum, Shim, TcpSegment, ip};

use crate::network::Transmit;

/// Events that wait to be read at most; what comes on top is counted, not kept.
const EVENTS_MAX: usize = 32_768;
/// A trace that nobody reads for so long ends.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Which connection is to be traced: the first that is seen with these endpoints, in whichever
/// direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// One endpoint; `None`, or a port of `None`: any.
    pub one: Option<(IpAddr, Option<u16>)>,
    /// The other endpoint.
    pub other: Option<(IpAddr, Option<u16>)>,
}

impl Wish {
    fn is_met(&self, src: SocketAddr, dst: SocketAddr) -> bool {
        let fits = |wanted: Option<(IpAddr, Option<u16>)>, is: SocketAddr| {
            wanted.is_none_or(|(addr, port)| addr == is.ip() && port.is_none_or(|p| p == is.port()))
        };
        (fits(self.one, src) && fits(self.other, dst)) || (fits(self.one, dst) && fits(self.other, src))
    }
}

/// What happened to a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// They left for the first time.
    Sent,
    /// They left again.
    Repeated,
    /// An acknowledgement of all before `to` came in.
    Acked,
    /// The retransmission timer expired while these were under way.
    TimedOut,
    /// A fast recovery began while these were under way.
    Recovers,
    /// It went by what routers say (XCP) while these were under way.
    Explicit,
    /// Routers were not believed any more while these were.
    Doubted,
}

impl What {
    /// What a trace shows of an event, and the host that the bytes are for.
    fn of(event: Event) -> Option<(Self, Side)> {
        match event {
            Event::TimedOut(to) => Some((Self::TimedOut, to)),
            Event::Recovers(to) => Some((Self::Recovers, to)),
            Event::Explicit(to) => Some((Self::Explicit, to)),
            Event::Doubted(to, _) => Some((Self::Doubted, to)),
            _ => None,
        }
    }
}

/// An event. Bytes count from the first byte that was seen of their direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct TapEvent {
    /// Nanoseconds since the trace saw its connection first.
    pub at_ns: u64,
    /// The data is the client's.
    pub of_client: bool,
    /// What happened.
    pub what: What,
    /// First byte.
    pub from: u64,
    /// Byte after the last.
    pub to: u64,
}

/// What has been recorded since the last time.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Taken {
    /// The client, or where the gateway does not know it the host that was heard first; empty while
    /// no such connection has been seen.
    pub client: String,
    /// The other one.
    pub server: String,
    /// Nanoseconds since the trace saw its connection first.
    pub at_ns: u64,
    /// In the order of time.
    pub events: Vec<TapEvent>,
    /// Events that were not kept because too many waited.
    pub events_lost: u64,
    /// How the flow's senders are now, towards the server and towards the client.
    pub senders: [SenderNow; 2],
}

/// A sender and its link at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct SenderNow {
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Sent and not acknowledged, bytes.
    pub in_flight_bytes: u64,
    /// In custody, bytes.
    pub custody_bytes: u64,
    /// Rate of pacing, bit/s; 0: not paced.
    pub pacing_bps: u64,
    /// Smoothed RTT, microseconds; 0: unknown.
    pub srtt_us: u64,
    /// Bytes that wait in the egress queue of its link.
    pub link_queue_bytes: u64,
    /// The rate that its link is shaped at, bit/s; 0: unknown, or no link.
    pub link_rate_bps: u64,
}

/// One direction's place in its sequence space.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The sequence number at `end`; `None` before the first byte.
    next: Option<SeqNum>,
    end: u64,
    acked: u64,
}

impl Stream {
    /// The offset of a sequence number, which lies within 2 GB of what was sent last.
    fn offset(&self, seq: SeqNum) -> Option<u64> {
        let next = self.next?;
        Some(if seq.after(next) {
            self.end + u64::from(seq.since(next))
        } else {
            self.end.saturating_sub(u64::from(next.since(seq)))
        })
    }
}

/// The trace.
#[derive(Debug)]
pub struct Tap {
    wish: Wish,
    until: Instant,
    read_at: Instant,
    /// Client and server, and when they were seen first.
    flow: Option<(SocketAddr, SocketAddr, Instant)>,
    /// Of the client's data, of the server's.
    streams: [Stream; 2],
    events: VecDeque<TapEvent>,
    lost: u64,
}

impl Tap {
    /// A trace that ends at `until`.
    #[must_use]
    pub fn new(now: Instant, wish: Wish, until: Instant) -> Self {
        Self {
            wish,
            until,
            read_at: now,
            flow: None,
            streams: [Stream::default(); 2],
            events: VecDeque::new(),
            lost: 0,
        }
    }

    /// Its time is over, or nobody reads it any more.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        now > self.until + UNREAD_MAX || now > self.read_at + UNREAD_MAX
    }

    /// The connection that it follows.
    #[must_use]
    pub fn flow(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.flow.map(|(client, server, _)| (client, server))
    }

    /// What was recorded since the last time.
    pub fn take(&mut self, now: Instant) -> Taken {
        self.read_at = now;
        let Some((client, server, began)) = self.flow else { return Taken::default() };
        Taken {
            client: format!("{client}"),
            server: format!("{server}"),
            at_ns: nanos(now, began),
            events: core::mem::take(&mut self.events).into(),
            events_lost: core::mem::take(&mut self.lost),
            senders: Default::default(),
        }
    }

    /// Whether a packet between these is the client's. The first that meets the wish decides which
    /// connection it is.
    fn is_clients(&mut self, now: Instant, src: SocketAddr, dst: SocketAddr) -> Option<bool> {
        match self.flow {
            Some((client, server, _)) if (client, server) == (src, dst) => Some(true),
            Some((client, server, _)) if (client, server) == (dst, src) => Some(false),
            Some(_) => None,
            None if now <= self.until && self.wish.is_met(src, dst) => {
                self.flow = Some((src, dst, now));
                Some(true)
            }
            None => None,
        }
    }

    /// A packet came in: its acknowledgement is of the other direction's data.
    pub fn arrived(&mut self, now: Instant, s: &TcpSegment) {
        let (src, dst) = (SocketAddr::new(s.ip.src, s.src_port), SocketAddr::new(s.ip.dst, s.dst_port));
        let Some(of_client) = self.is_clients(now, src, dst) else { return };
        if !s.flags.ack() {
            return;
        }
        let [clients, servers] = &mut self.streams;
        let stream = if of_client { servers } else { clients };
        let Some(to) = stream.offset(s.ack).map(|to| to.min(stream.end)) else { return };
        if to > stream.acked {
            let from = core::mem::replace(&mut stream.acked, to);
            self.note(now, TapEvent { at_ns: 0, of_client: !of_client, what: What::Acked, from, to });
        }
    }

    /// A packet leaves.
    pub fn leaves(&mut self, now: Instant, packet: &Transmit<'_>) {
        let Some(seen) = Seen::of(packet) else { return };
        let Some(of_client) = self.is_clients(now, seen.src, seen.dst) else { return };
        let [clients, servers] = &mut self.streams;
        let stream = if of_client { clients } else { servers };
        let next = *stream.next.get_or_insert(if seen.syn { seen.seq + 1 } else { seen.seq });
        if seen.syn || seen.payload_bytes == 0 {
            return;
        }
        let Some(from) = stream.offset(seen.seq) else { return };
        let to = from + u64::from(seen.payload_bytes);
        let end = stream.end;
        if to > end {
            stream.next = Some(next + u32::try_from(to - end).unwrap_or(u32::MAX));
            stream.end = to;
        }
        let event = |what, from, to| TapEvent { at_ns: 0, of_client, what, from, to };
        if from < end {
            self.note(now, event(What::Repeated, from, to.min(end)));
        }
        if to > end {
            self.note(now, event(What::Sent, from.max(end), to));
        }
    }

    /// Something happened to a connection.
    pub fn happened(&mut self, now: Instant, ends: &Ends, event: Event) {
        let (Some((what, to)), Some((client, server, _))) = (What::of(event), self.flow) else { return };
        let as_seen = (ends.client, ends.server) == (client, server);
        let turned = (ends.server, ends.client) == (client, server);
        if !as_seen && !turned {
            return;
        }
        let of_client = (to == Side::B) == as_seen;
        let [clients, servers] = &self.streams;
        let Stream { acked: from, end: to, .. } = *if of_client { clients } else { servers };
        self.note(now, TapEvent { at_ns: 0, of_client, what, from, to });
    }

    fn note(&mut self, now: Instant, mut event: TapEvent) {
        let Some((.., began)) = self.flow else { return };
        if now > self.until {
            return;
        }
        event.at_ns = nanos(now, began);
        if let Some(last) = self.events.back_mut() {
            // What leaves at one instant is one event.
            let same = (last.at_ns, last.of_client, last.what) == (event.at_ns, event.of_client, event.what);
            if same && last.to == event.from {
                last.to = event.to;
                return;
            }
        }
        if self.events.len() >= EVENTS_MAX {
            self.lost += 1;
        } else {
            self.events.push_back(event);
        }
    }
}

fn nanos(now: Instant, began: Instant) -> u64 {
    now.as_nanos().saturating_sub(began.as_nanos())
}

impl SenderNow {
    /// Towards the server and towards the client.
    #[must_use]
    pub fn of(flow: &FlowStatus) -> [Self; 2] {
        let ab = Self {
            cwnd_bytes: flow.cwnd_b_bytes,
            in_flight_bytes: flow.in_flight_b_bytes,
            custody_bytes: flow.custody_ab_bytes,
            pacing_bps: flow.pacing_b_bps,
            srtt_us: flow.srtt_b_us,
            ..Self::default()
        };
        let ba = Self {
            cwnd_bytes: flow.cwnd_a_bytes,
            in_flight_bytes: flow.in_flight_a_bytes,
            custody_bytes: flow.custody_ba_bytes,
            pacing_bps: flow.pacing_a_bps,
            srtt_us: flow.srtt_a_us,
            ..Self::default()
        };
        [ab, ba]
    }
}

/// What the tap needs of a packet, whose payload may stand elsewhere.
struct Seen {
    src: SocketAddr,
    dst: SocketAddr,
    seq: SeqNum,
    syn: bool,
    payload_bytes: u32,
}

impl Seen {
    fn of(packet: &Transmit<'_>) -> Option<Self> {
        let header = packet.header;
        let (src, dst) = ip::addresses(header)?;
        let (protocol, ip_bytes) = match header.first()? >> 4 {
            4 => (*header.get(9)?, usize::from(header.first()? & 0xf) * 4),
            _ => (*header.get(6)?, 40),
        };
        let fragmented = src.is_ipv4() && header.get(6..8)?.iter().zip([0x3f, 0xff]).any(|(b, m)| b & m != 0);
        let behind = header.get(ip_bytes..).and_then(Shim::read).filter(|_| src.is_ipv4());
        let shim_bytes = match behind {
            _ if fragmented => return None,
            _ if protocol == ip::PROTOCOL_TCP => 0,
            Some((ip::PROTOCOL_TCP, _)) => SHIM_BYTES,
            _ => return None,
        };
        let ip_bytes = ip_bytes + shim_bytes;
        let tcp = header.get(ip_bytes..)?;
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let seq = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
        let headers = ip_bytes + usize::from(tcp.get(12)? >> 4) * 4;
        Some(Self {
            src: SocketAddr::new(src, port(0)?),
            dst: SocketAddr::new(dst, port(2)?),
            seq: SeqNum(seq),
            syn: tcp.get(13)? & 2 != 0,
            payload_bytes: u32::try_from(packet.len().saturating_sub(headers)).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_engine::net::IfaceId;
    use farlink_wire::{Offload, Parsed, SegmentHeader, parse};

    const CLIENT: &str = "10.0.0.1:1000";
    const SERVER: &str = "10.0.0.2:80";

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn header(src: &str, dst: &str, seq: u32, ack: u32, syn: bool, payload: usize) -> Vec<u8> {
        let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
        let flags = if syn { farlink_wire::Flags::SYN } else { farlink_wire::Flags::ACK };
        let header = SegmentHeader {
            src: src.ip(),
            dst: dst.ip(),
            src_port: src.port(),
            dst_port: dst.port(),
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: 0,
            dont_fragment: true,
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags,
            window: 1000,
            urgent: 0,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        header.write(payload).unwrap().0.to_vec()
    }

    fn leaves(tap: &mut Tap, ms: u64, src: &str, dst: &str, seq: u32, syn: bool, payload: usize) {
        let (header, body) = (header(src, dst, seq, 0, syn, payload), vec![0u8; payload]);
        let payload: &[&[u8]] = &[&body];
        let iface = IfaceId(0);
        tap.leaves(
            at(ms),
            &Transmit {
                via: iface.into(),
                out: iface,
                header: &header,
                payload,
                offload: Offload::default(),
                is_made: true,
            },
        );
    }

    fn arrives(tap: &mut Tap, ms: u64, src: &str, dst: &str, ack: u32) {
        let bytes = header(src, dst, 1, ack, false, 0);
        let Parsed::Tcp(s) = parse(&bytes) else { panic!("not TCP") };
        tap.arrived(at(ms), &s);
    }

    fn tap(one: &str) -> Tap {
        let one: SocketAddr = one.parse().unwrap();
        Tap::new(at(0), Wish { one: Some((one.ip(), Some(one.port()))), other: None }, at(60_000))
    }

    fn shown(tap: &mut Tap) -> Vec<(u64, bool, What, u64, u64)> {
        let taken = tap.take(at(100)).events;
        taken.iter().map(|e| (e.at_ns / 1_000_000, e.of_client, e.what, e.from, e.to)).collect()
    }

    #[test]
    fn bytes_are_told_apart_as_sent_repeated_and_acknowledged() {
        let mut tap = tap(CLIENT);
        // Across the wrap of sequence numbers.
        let isn = u32::MAX - 999;
        leaves(&mut tap, 10, CLIENT, SERVER, 5, true, 0);
        leaves(&mut tap, 11, SERVER, CLIENT, isn, true, 0);
        let first = isn.wrapping_add(1);
        leaves(&mut tap, 20, SERVER, CLIENT, first, false, 1000);
        leaves(&mut tap, 20, SERVER, CLIENT, first.wrapping_add(1000), false, 1000);
        leaves(&mut tap, 30, SERVER, CLIENT, first.wrapping_add(500), false, 2000);
        arrives(&mut tap, 40, CLIENT, SERVER, first.wrapping_add(1500));
        arrives(&mut tap, 41, CLIENT, SERVER, first.wrapping_add(1500));
        let expected = [
            (10, false, What::Sent, 0, 2000),
            (20, false, What::Repeated, 500, 2000),
            (20, false, What::Sent, 2000, 2500),
            (30, false, What::Acked, 0, 1500),
        ];
        assert_eq!(shown(&mut tap), expected);
        assert!(shown(&mut tap).is_empty(), "what was taken is gone");
    }

    #[test]
    fn timeouts_are_shown_with_what_was_under_way() {
        let ends = |client: &str, server: &str| Ends {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        };
        // The server is heard first: the trace takes it for the client.
        let mut tap = tap(SERVER);
        leaves(&mut tap, 1, SERVER, CLIENT, 1, false, 3000);
        leaves(&mut tap, 1, CLIENT, SERVER, 1, false, 50);
        arrives(&mut tap, 2, CLIENT, SERVER, 1001);
        shown(&mut tap);
        tap.happened(at(3), &ends(CLIENT, SERVER), Event::TimedOut(Side::A));
        tap.happened(at(4), &ends(CLIENT, SERVER), Event::Recovers(Side::B));
        tap.happened(at(5), &ends(CLIENT, "10.0.0.9:80"), Event::TimedOut(Side::A));
        tap.happened(at(6), &ends(CLIENT, SERVER), Event::Woken);
        let expected = [(2, true, What::TimedOut, 1000, 3000), (3, false, What::Recovers, 0, 50)];
        assert_eq!(shown(&mut tap), expected);
    }

    #[test]
    fn other_connections_leave_no_trace() {
        let mut tap = tap(CLIENT);
        leaves(&mut tap, 1, "10.0.0.3:5", SERVER, 5, false, 1000);
        assert_eq!(tap.flow(), None);
        leaves(&mut tap, 2, CLIENT, SERVER, 5, false, 1000);
        leaves(&mut tap, 3, CLIENT, "10.0.0.2:81", 5, false, 1000);
        assert_eq!(shown(&mut tap).len(), 1);
    }

    #[test]
    fn memory_is_bounded_and_what_is_not_kept_is_counted() {
        let mut tap = tap(CLIENT);
        for n in 0..EVENTS_MAX as u32 + 10 {
            leaves(&mut tap, u64::from(n % 1000), CLIENT, SERVER, n * 10, false, 10);
        }
        let taken = tap.take(at(1000));
        assert_eq!((taken.events.len(), taken.events_lost), (EVENTS_MAX, 10));
    }

    #[test]
    fn a_trace_that_nobody_reads_is_over() {
        let mut tap = tap(CLIENT);
        assert!(!tap.is_over(at(9_000)));
        tap.take(at(9_000));
        assert!(!tap.is_over(at(18_000)) && tap.is_over(at(19_001)));
    }

    #[test]
    fn cut_and_odd_packets_are_passed_over() {
        let mut tap = tap(CLIENT);
        let whole = header(CLIENT, SERVER, 5, 0, false, 0);
        for end in 0..whole.len() {
            let iface = IfaceId(0);
            let header = whole.get(..end).unwrap();
            tap.leaves(
                at(1),
                &Transmit {
                    via: iface.into(),
                    out: iface,
                    header,
                    payload: &[],
                    offload: Offload::default(),
                    is_made: true,
                },
            );
        }
        assert!(shown(&mut tap).is_empty());
    }
}
