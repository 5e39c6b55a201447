//! One gateway between many connections, packet by packet and without a network: for measurements
//! of what one packet costs, and of what many connections leave behind in long times.
//!
//! Hosts here take what comes in order, and acknowledge it when they are told to. All that is slow
//! in a simulated network (paths, observers, applications) is left out.

use std::net::{IpAddr, Ipv4Addr};

use farlink_gateway::config::{Interface, LegConfig, Link};
use farlink_gateway::{Config, Gateway, IfaceId, Network, Record, Route, Transmit, Via, cc};
use farlink_wire::build::farlink_option;
use farlink_wire::{
    Duration, FARLINK_SYN_ACK, Flags, Gso, Instant, Offload, PacketBuf, SackBlock, SegmentHeader, SeqNum,
};

/// Port of the server, and of every client.
const PORTS: [u16; 2] = [40_000, 80];
const MSS: u16 = 1_460;
const SCALE: u8 = 7;
/// What the gateway before the server says of itself: identity 1, version 2, all capabilities, no
/// key.
const HELLO: [u8; 9] = [0x68, 0, 0, 0, 1, 2, 0, 7, 0];

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// The next number that it sends.
    pub nxt: SeqNum,
    /// What it has received in order.
    pub got: SeqNum,
    /// The end of what has come to it at all.
    pub highest: SeqNum,
    /// What it has been acknowledged.
    pub acked: SeqNum,
    /// Right edge of the window that it has been shown.
    pub edge: SeqNum,
    /// It owes an acknowledgement.
    pub owes: bool,
    /// Window field that it shows.
    pub window: u16,
    /// It takes no more data.
    pub deaf: bool,
}

/// What a host says.
#[derive(Clone, Debug, Default)]
pub struct Saying {
    /// So far from its next number.
    pub ahead: i64,
    /// An acknowledgement so far from what it has.
    pub ack_ahead: i64,
    /// SACK blocks, as offsets from its acknowledgement and lengths.
    pub sack: Vec<(u32, u32)>,
    /// Body of Farlink's option.
    pub farlink: Option<Vec<u8>>,
    /// Payload bytes.
    pub len: usize,
    /// Flags besides ACK.
    pub fin: bool,
}

struct Out {
    flow: usize,
    to: usize,
    seq: SeqNum,
    len: u32,
    ack: SeqNum,
    window: u16,
    flags: Flags,
}

struct Driver<'a> {
    out: &'a mut Vec<Out>,
}

/// See the module.
pub struct Rig {
    /// The gateway.
    pub gateway: Gateway,
    /// Its clock.
    pub now: Instant,
    /// Both ends of each connection, the client first.
    pub flows: Vec<[Side; 2]>,
    /// Packets that have left the gateway.
    pub packets_out: u64,
    out: Vec<Out>,
    payload: Vec<u8>,
    linked: bool,
    /// What was prepared: packet, offload, side.
    bytes: Vec<u8>,
    offload: Offload,
    side: usize,
}

fn client(n: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + n as u32).into()
}

fn server() -> IpAddr {
    Ipv4Addr::new(192, 168, 0, 1).into()
}

fn flow_at(address: [u8; 4]) -> Option<usize> {
    let bits = u32::from_be_bytes(address);
    (bits >> 24 == 10).then_some((bits & 0x00ff_ffff) as usize)
}

impl Network for Driver<'_> {
    fn transmit(&mut self, t: &Transmit<'_>) {
        // IPv4 without options: what this rig is fed, it gives back.
        let h = t.header;
        let word = |at: usize| h.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or([0; 4]);
        let (src, dst) = (flow_at(word(12)), flow_at(word(16)));
        let (Some(flow), to) = (src.or(dst), usize::from(src.is_some())) else { return };
        let data_at = 20 + usize::from(h.get(32).copied().unwrap_or(0x50) >> 4) * 4;
        let len = (t.len() - data_at.min(t.len())) as u32;
        let number = |at: usize| SeqNum(u32::from_be_bytes(word(at)));
        let flags = Flags(u16::from(h.get(33).copied().unwrap_or(0)));
        let [.., high, low] = word(32);
        let window = u16::from_be_bytes([high, low]);
        self.out.push(Out { flow, to, seq: number(24), len, ack: number(28), window, flags });
    }
    fn route(&mut self, _: Via, _: IpAddr, dst: IpAddr) -> Option<Route> {
        Some(Route { iface: IfaceId(u16::from(dst == server())), mtu_bytes: 1500 })
    }
    fn journal(&mut self, _: u32, _: Option<&Record>) {}
}

/// A gateway's configuration with two interfaces, the servers behind the second; `rate_bps`: that
/// is a declared link.
#[must_use]
pub fn config(rate_bps: Option<u64>) -> Config {
    let interface = |n: u16, link| Interface {
        id: IfaceId(n),
        name: format!("if{n}"),
        domain: 0,
        addresses: Vec::new(),
        link,
    };
    let link = rate_bps.map(|rate| Link {
        name: "hard".into(),
        rate_bps: Some(rate),
        rtt: Some(Duration::from_millis(20)),
        leg: LegConfig { cc: cc::Kind::FixedRate, ..LegConfig::default() },
        ..Link::default()
    });
    Config { interfaces: vec![interface(0, None), interface(1, link)], seed: 1, ..Config::default() }
}

impl Rig {
    /// A gateway of this configuration, with so many connections open.
    #[must_use]
    pub fn new(config: Config, flows: usize) -> Self {
        let side = |isn: u32| Side {
            nxt: SeqNum(isn),
            got: SeqNum(0),
            highest: SeqNum(0),
            acked: SeqNum(isn),
            edge: SeqNum(isn) + 65_535,
            owes: false,
            window: u16::MAX,
            deaf: false,
        };
        let both = |n: usize| [side(n as u32 * 77_777), side(0xffff_0000 - n as u32 * 55_555)];
        let linked = config.interfaces.iter().any(|i| i.link.is_some());
        let mut rig = Self {
            linked,
            offload: Offload::default(),
            side: 0,
            gateway: Gateway::new(config),
            now: Instant::from_millis(1_000),
            flows: (0..flows).map(both).collect(),
            packets_out: 0,
            out: Vec::new(),
            payload: vec![b'x'; 65_536],
            bytes: Vec::new(),
        };
        for n in 0..flows {
            rig.open(n);
        }
        rig
    }

    fn open(&mut self, n: usize) {
        let mut options = vec![2, 4, (MSS >> 8) as u8, MSS as u8, 4, 2, 3, 3, SCALE];
        self.write(n, 0, Flags::SYN, 0, 0, &options, 0);
        self.flows[n][0].nxt += 1;
        self.hand_in(0);
        self.flows[n][1].got = self.flows[n][0].nxt;
        self.flows[n][1].highest = self.flows[n][0].nxt;
        if self.linked {
            // A gateway stands before the server.
            options.extend(farlink_option(FARLINK_SYN_ACK, &HELLO).unwrap_or_default());
        }
        self.write(n, 1, Flags::SYN | Flags::ACK, 0, 0, &options, 0);
        self.flows[n][1].nxt += 1;
        self.hand_in(1);
        self.flows[n][0].got = self.flows[n][1].nxt;
        self.flows[n][0].highest = self.flows[n][1].nxt;
        self.flows[n].iter_mut().for_each(|s| s.acked = s.nxt);
        self.say(n, 0, &Saying::default());
        self.out.clear();
    }

    #[allow(clippy::too_many_arguments)]
    fn write(
        &mut self,
        n: usize,
        side: usize,
        flags: Flags,
        ahead: i64,
        ack_ahead: i64,
        options: &[u8],
        len: usize,
    ) {
        let s = self.flows[n][side];
        let ends = [client(n), server()];
        let header = SegmentHeader {
            src: ends[side],
            dst: ends[1 - side],
            src_port: PORTS[side],
            dst_port: PORTS[1 - side],
            ttl: 63,
            traffic_class: 0,
            flow_label: 0,
            ip_id: 1,
            dont_fragment: false,
            seq: SeqNum(s.nxt.0.wrapping_add(ahead as u32)),
            ack: SeqNum(s.got.0.wrapping_add(ack_ahead as u32)),
            flags,
            window: s.window,
            urgent: 0,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        self.bytes.clear();
        if let Ok((head, offload)) = header.write_with_options(len, options) {
            self.bytes.extend_from_slice(&head);
            self.bytes.extend_from_slice(&self.payload[..len.min(65_000)]);
            self.offload = offload;
        }
    }

    /// Builds what a host says; [`Self::feed`] hands it in.
    pub fn prepare(&mut self, n: usize, side: usize, what: &Saying) {
        let mut options = Vec::new();
        if let Some(body) = &what.farlink {
            options.extend(farlink_option(farlink_wire::FARLINK_DATA, body).unwrap_or_default());
        }
        if !what.sack.is_empty() {
            let base = self.flows[n][side].got.0.wrapping_add(what.ack_ahead as u32);
            options.extend([1, 1, 5, 2 + 8 * what.sack.len() as u8]);
            for (from, len) in &what.sack {
                let b = SackBlock { start: SeqNum(base) + *from, end: SeqNum(base) + *from + *len };
                options.extend(b.start.0.to_be_bytes());
                options.extend(b.end.0.to_be_bytes());
            }
        }
        let flags = if what.fin { Flags::ACK | Flags::FIN } else { Flags::ACK };
        // The end of what is written is pushed.
        let flags = if what.len > 0 { flags | Flags::PSH } else { flags };
        self.write(n, side, flags, what.ahead, what.ack_ahead, &options, what.len);
        if what.len > usize::from(MSS) {
            self.offload.gso = Gso::Tcp4;
            self.offload.gso_size = MSS;
        }
        let end = self.flows[n][side].nxt.0.wrapping_add(what.ahead as u32).wrapping_add(what.len as u32);
        let nxt = &mut self.flows[n][side].nxt;
        *nxt = nxt.max(SeqNum(end));
        self.flows[n][side].owes = false;
        self.side = side;
    }

    /// Hands in what was prepared, and lets the gateway answer.
    pub fn feed(&mut self) {
        self.hand_in(self.side);
    }

    /// Says something, at once.
    pub fn say(&mut self, n: usize, side: usize, what: &Saying) {
        self.prepare(n, side, what);
        self.feed();
        self.deliver();
    }

    /// Sends so much as the window has room for, at once.
    pub fn send(&mut self, n: usize, side: usize, len: usize) {
        let room = self.flows[n][side].edge.diff(self.flows[n][side].nxt).max(0) as usize;
        if len.min(room) > 0 {
            self.say(n, side, &Saying { len: len.min(room), ..Saying::default() });
        }
    }

    /// Any packet, from that side.
    pub fn feed_bytes(&mut self, side: usize, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.offload = Offload::default();
        self.hand_in(side);
    }

    /// The packet that was prepared last.
    #[must_use]
    pub fn prepared(&self) -> (&[u8], Offload) {
        (&self.bytes, self.offload)
    }

    fn hand_in(&mut self, side: usize) {
        let packet = PacketBuf::from_slice(self.gateway.pool(), &self.bytes, self.offload);
        let mut net = Driver { out: &mut self.out };
        self.gateway.handle_packet(self.now, IfaceId(side as u16), packet, &mut net);
        self.gateway.flush(self.now, &mut net);
    }

    /// What has left the gateway arrives.
    pub fn deliver(&mut self) {
        for o in std::mem::take(&mut self.out) {
            self.packets_out += 1;
            let Some(s) = self.flows.get_mut(o.flow).map(|f| &mut f[o.to]) else { continue };
            if o.flags.syn() || o.flags.rst() {
                continue;
            }
            if o.ack.after(s.acked) && o.ack.before_eq(s.nxt) {
                s.acked = o.ack;
            }
            s.edge = s.edge.max(o.ack + (u32::from(o.window) << SCALE));
            let end = o.seq + o.len + u32::from(o.flags.fin());
            s.highest = s.highest.max(end);
            s.owes |= end != o.seq;
            if !s.deaf && o.seq.before_eq(s.got) && end.after(s.got) {
                s.got = end;
            }
        }
    }

    /// The carrier of the interface towards the servers comes or goes.
    pub fn link_state(&mut self, up: bool) {
        let mut net = Driver { out: &mut self.out };
        self.gateway.link_state(self.now, IfaceId(1), up, &mut net);
        self.deliver();
    }

    /// Lets time pass, and the gateway's timers run.
    pub fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(due) = self.gateway.poll_timeout().filter(|due| due.at <= end) {
            self.now = self.now.max(due.at);
            let mut net = Driver { out: &mut self.out };
            self.gateway.handle_timeout(self.now, &mut net);
            self.deliver();
        }
        self.now = end;
    }

    /// Both hosts of a connection acknowledge until nobody owes anything.
    pub fn settle(&mut self, n: usize) {
        for _ in 0..10_000 {
            let Some(side) = (0..2).find(|side| self.flows[n][*side].owes) else { return };
            self.say(n, side, &Saying::default());
        }
    }
}
