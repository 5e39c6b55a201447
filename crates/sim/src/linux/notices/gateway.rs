//! A real gateway in custody mode before the link of the bench: its code, without a machine.

use core::net::IpAddr;

use farlink_gateway::config::{Action, Config, Interface, LegConfig, Link, Notice};
use farlink_gateway::{Gateway, IfaceId, Network, Record, Route, Transmit, Via, cc};
use farlink_wire::{Duration, Instant, Offload, PacketBuf, supersegment};

/// Where the source is, and where the link.
pub const TO_SOURCE: usize = 0;
/// See there.
pub const TO_LINK: usize = 1;
/// The link carries what is held at once, as that of the bench does.
const RATE_BPS: u64 = 1_000_000_000;
const MTU_BYTES: u32 = 1500;

/// A packet that leaves.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// By which interface.
    pub to: usize,
    /// The packet.
    pub bytes: Vec<u8>,
    /// It is the gateway's own, not one that has come in.
    pub is_made: bool,
}

#[derive(Default)]
struct Out {
    source: Option<IpAddr>,
    packets: Vec<Leaving>,
}

impl Network for Out {
    fn transmit(&mut self, packet: &Transmit<'_>) {
        let mut whole = packet.header.to_vec();
        packet.payload.iter().for_each(|piece| whole.extend_from_slice(piece));
        let (to, is_made) = (usize::from(packet.out.0), packet.is_made);
        supersegment::segment(&whole, &packet.offload, &mut |p| {
            self.packets.push(Leaving { to, bytes: p.to_vec(), is_made });
        });
    }

    fn route(&mut self, _: Via, _: IpAddr, dst: IpAddr) -> Option<Route> {
        let port = if self.source == Some(dst) { TO_SOURCE } else { TO_LINK };
        Some(Route { iface: IfaceId(port as u16), mtu_bytes: MTU_BYTES })
    }

    fn journal(&mut self, _: u32, _: Option<&Record>) {}
}

/// See the module.
pub struct GatewayBox {
    gateway: Gateway,
    out: Out,
}

impl core::fmt::Debug for GatewayBox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("GatewayBox").field("source", &self.out.source).finish_non_exhaustive()
    }
}

impl GatewayBox {
    /// A gateway that tells sources this of an outage, before a link with this round trip.
    #[must_use]
    pub fn new(notice: Notice, rtt: Duration) -> Self {
        let leg = LegConfig { cc: cc::Kind::FixedRate, ..LegConfig::default() };
        let link =
            Link { name: "link".into(), rate_bps: Some(RATE_BPS), rtt: Some(rtt), leg, ..Link::default() };
        let interface = |port: usize, link| Interface {
            id: IfaceId(port as u16),
            name: format!("if{port}"),
            domain: 0,
            addresses: Vec::new(),
            link,
        };
        let config = Config {
            interfaces: vec![interface(TO_SOURCE, None), interface(TO_LINK, Some(link))],
            default_action: Action::Custody(notice),
            seed: 1,
            ..Config::default()
        };
        Self { gateway: Gateway::new(config), out: Out::default() }
    }

    /// A packet comes in. Returns what leaves.
    pub fn take(&mut self, now: Instant, port: usize, bytes: &[u8]) -> Vec<Leaving> {
        if port == TO_SOURCE {
            self.out.source = crate::packet::tcp(bytes).map(|s| s.ip.src).or(self.out.source);
        }
        let packet = PacketBuf::from_slice(self.gateway.pool(), bytes, Offload::default());
        self.gateway.handle_packet(now, IfaceId(port as u16), packet, &mut self.out);
        self.gateway.flush(now, &mut self.out);
        self.run(now)
    }

    /// The link comes or goes, and the gateway is told.
    pub fn link_is_up(&mut self, now: Instant, up: bool) -> Vec<Leaving> {
        self.gateway.link_state(now, IfaceId(TO_LINK as u16), up, &mut self.out);
        self.gateway.flush(now, &mut self.out);
        self.run(now)
    }

    /// Runs timers that are due.
    pub fn run(&mut self, now: Instant) -> Vec<Leaving> {
        if self.deadline().is_some_and(|at| at <= now) {
            self.gateway.handle_timeout(now, &mut self.out);
        }
        core::mem::take(&mut self.out.packets)
    }

    /// When it wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.gateway.poll_timeout().map(|due| due.at)
    }
}
