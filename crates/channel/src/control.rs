//! The XCP router of a line: it hears of each packet that joins the queue, and lowers the wishes of
//! those that leave it.

use farlink_wire::time::Instant;
use farlink_wire::xcp::XcpFields;
use farlink_wire::{Parsed, TcpSegment, WireSize, edit, parse};
use farlink_xcp::{Config, Router};

use crate::config::XcpRouter;
use crate::payload::Payload;

/// The router, and what it is told of the line.
#[derive(Debug)]
pub(crate) struct Control {
    said: XcpRouter,
    router: Router,
    /// When it goes away, and when it is back.
    away: Option<(Instant, Instant)>,
}

impl Control {
    /// Of a line of this rate.
    pub fn new(now: Instant, said: XcpRouter, rate_bps: Option<u64>) -> Self {
        let capacity_bps = said.capacity_bps.or(rate_bps).unwrap_or(u64::MAX);
        let max_interval = said.max_interval.max(Config::of_rate(0).max_interval);
        let router = Router::new(now, Config { max_interval, ..Config::of_rate(capacity_bps) });
        Self { said, router, away: said.away.map(|(from, until)| (now + from, now + until)) }
    }

    /// It starts again, and knows nothing.
    fn is_away(&mut self, now: Instant) -> bool {
        let Some((from, until)) = self.away.filter(|(from, _)| *from <= now) else { return false };
        if now >= until {
            self.router = Router::new(now, *self.router.config());
            self.away = None;
        }
        from <= now && now < until
    }

    /// The line has this rate from now on; what the router was told of it counts for more.
    pub fn follow(&mut self, rate_bps: Option<u64>) {
        if let Some(bps) = rate_bps.filter(|_| self.said.capacity_bps.is_none()) {
            self.router.set_capacity(bps);
        }
    }

    /// A packet joins those that wait.
    pub fn arrive<P: Payload>(&mut self, now: Instant, packet: &mut P, queue_bytes: usize) {
        if self.is_away(now) {
            return;
        }
        let said = fields(packet.ip_packet()).map(|(_, said)| said);
        self.router.on_arrival(now, size(packet), said.as_ref(), queue_bytes as u64);
    }

    /// A packet leaves the queue.
    pub fn depart<P: Payload>(&mut self, now: Instant, packet: &mut P, queue_bytes: usize) {
        if self.is_away(now) {
            return;
        }
        let size = size(packet);
        let bytes = packet.ip_packet();
        let Some((segment, said)) = fields(bytes) else {
            return self.router.note_departure(now, queue_bytes as u64);
        };
        let left = self.router.on_departure(now, size, &said, queue_bytes as u64);
        if left != said {
            edit::write_xcp_delta(bytes, &segment, left.delta_bytes_per_s);
        }
    }
}

fn size<P: Payload>(packet: &P) -> WireSize {
    u32::try_from(packet.len_bytes()).unwrap_or(u32::MAX).into()
}

fn fields(packet: &[u8]) -> Option<(TcpSegment, XcpFields)> {
    let Parsed::Tcp(segment) = parse(packet) else { return None };
    segment.options.xcp.map(|said| (segment, said))
}
