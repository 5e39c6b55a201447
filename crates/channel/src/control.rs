//! The XCP router of a line: it hears of each packet that joins the queue, and lowers the wishes of
//! those that leave it.

use farlink_wire::time::Instant;
use farlink_wire::{Parsed, Said, ShimProtocols, WireSize, parse_with};
use farlink_xcp::{Backlog, Config, Kind, Port};

use crate::config::{ChannelConfig, XcpRouter};
use crate::payload::Payload;

/// The router, and what it is told of the line.
#[derive(Debug)]
pub(crate) struct Control {
    said: XcpRouter,
    /// What stands for the draft's own header.
    shims: ShimProtocols,
    port: Port,
    config: Config,
    /// When it goes away, and when it is back.
    away: Option<(Instant, Instant)>,
    is_shared: bool,
}

impl Control {
    /// Of a line of this rate; `None`: it is to have no router.
    pub fn new(now: Instant, line: &ChannelConfig, rate_bps: Option<u64>) -> Option<Self> {
        let said = line.xcp?;
        let capacity_bps = said.capacity_bps.or(rate_bps).unwrap_or(u64::MAX);
        let max_interval = said.max_interval.max(Config::of_rate(0).max_interval);
        let config = Config { max_interval, ..Config::of_rate(capacity_bps) };
        let away = said.away.map(|(from, until)| (now + from, now + until));
        let (port, shims) = (Port::new(now, config, said.weights), line.shims());
        Some(Self { said, shims, port, config, away, is_shared: false })
    }

    /// It starts again, and knows nothing.
    fn is_away(&mut self, now: Instant) -> bool {
        let Some((from, until)) = self.away.filter(|(from, _)| *from <= now) else { return false };
        if now >= until {
            self.port = Port::new(now, self.config, self.said.weights);
            if self.is_shared {
                self.port.measure();
            }
            self.away = None;
        }
        from <= now && now < until
    }

    /// The line is shared with the other direction: what leaves says how much there is.
    pub fn share(&mut self) {
        self.is_shared = true;
        self.port.measure();
    }

    /// The line has this rate from now on; what the router was told of it counts for more.
    pub fn follow(&mut self, rate_bps: Option<u64>) {
        if let Some(bps) = rate_bps.filter(|_| self.said.capacity_bps.is_none()) {
            self.config.capacity_bps = bps;
            self.port.set_link(bps);
        }
    }

    /// A packet joins those that wait. What it is to them.
    pub fn arrive<P: Payload>(&mut self, now: Instant, packet: &mut P, waits: Backlog) -> Kind {
        let size = size(packet);
        let (kind, said) = look(packet.ip_packet(), self.shims);
        if self.is_away(now) {
            return kind;
        }
        self.port.arrive(now, size, kind, said.map(|said| said.fields).as_ref(), waits);
        kind
    }

    /// A packet leaves the queue. What it was.
    pub fn depart<P: Payload>(&mut self, now: Instant, packet: &mut P, waits: Backlog) -> Kind {
        let size = size(packet);
        let bytes = packet.ip_packet();
        let (kind, said) = look(bytes, self.shims);
        if self.is_away(now) {
            return kind;
        }
        let fields = said.as_ref().map(|said| &said.fields);
        let left = self.port.depart(now, size, kind, fields, waits);
        if let (Some(said), Some(left)) = (said, left)
            && left != said.fields
        {
            said.lower_in(bytes, left.delta_bytes_per_s);
        }
        kind
    }

    /// What a packet is to the queue of such a line.
    pub fn kind<P: Payload>(packet: &mut P, line: &ChannelConfig) -> Kind {
        look(packet.ip_packet(), line.shims()).0
    }

    /// The part of the room in the queue that plain traffic may fill, of one.
    pub fn plain_part(&self) -> f64 {
        self.port.plain_part()
    }
}

fn size<P: Payload>(packet: &P) -> WireSize {
    u32::try_from(packet.len_bytes()).unwrap_or(u32::MAX).into()
}

/// What a packet is to the queue, and what it says, in either form.
fn look(packet: &[u8], shims: ShimProtocols) -> (Kind, Option<Said>) {
    let said = Said::of(packet, shims);
    match parse_with(packet, shims) {
        // Acknowledgements, and what opens and ends connections: as in the queue of a gateway.
        Parsed::Tcp(segment) if segment.payload_len == 0 => (Kind::First, said),
        _ if said.is_some() => (Kind::Xcp, said),
        _ => (Kind::Plain, None),
    }
}
