//! The declared links: what is known of each stands in one place, and so does what follows from it.

mod far_end;
mod losses;
mod meter;
mod round_trip;

use farlink_wire::{Duration, Instant, PacketBuf, TcpSegment};

use crate::config::Config;
use crate::net::IfaceId;
use crate::peer::Arrived;

use far_end::FarEnd;
pub use far_end::LinkReport;
use losses::Losses;
use meter::Meter;
use round_trip::RoundTrip;

/// A link delivers while it has told of something within its round trip, or within this where that is shorter: a gateway
/// acknowledges about twelve times a second where little comes in.
const DELIVERS_MIN: Duration = Duration::from_millis(250);
/// Reports kept until they are asked for.
const REPORTS_MAX: usize = 64;

/// A declared link.
#[derive(Debug)]
pub struct Link {
    iface: IfaceId,
    losses: Losses,
    meter: Meter,
    far_end: FarEnd,
    round_trip: RoundTrip,
}

/// All declared links of the engine.
#[derive(Debug, Default)]
pub struct Links {
    links: Vec<Link>,
    /// What gateways have told, until it is asked for.
    reports: Vec<LinkReport>,
}

impl Links {
    /// The declared links of a configuration; its seed gives the number by which other gateways tell us apart.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let number = (config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16;
        let links = config.interfaces.iter().filter(|i| i.link.is_some()).map(|i| Link::new(i.id, number));
        Self { links: links.collect(), reports: Vec::new() }
    }

    /// The link behind an interface.
    #[must_use]
    pub fn at(&self, iface: IfaceId) -> Option<&Link> {
        self.links.iter().find(|l| l.iface == iface)
    }

    /// The same, to be changed.
    pub fn at_mut(&mut self, iface: IfaceId) -> Option<&mut Link> {
        self.links.iter_mut().find(|l| l.iface == iface)
    }

    /// The gateway at the far end of a link has told something. More than can be of use is let go.
    pub fn hear(&mut self, now: Instant, report: LinkReport) {
        let Some(link) = self.at_mut(report.iface) else { return };
        link.far_end.hear(now, &report);
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report);
        }
    }

    /// What has been told since this was last asked, in order.
    pub fn take_reports(&mut self) -> Vec<LinkReport> {
        core::mem::take(&mut self.reports)
    }
}

impl Link {
    fn new(iface: IfaceId, number: u16) -> Self {
        Self {
            iface,
            losses: Losses::default(),
            meter: Meter::new(number),
            far_end: FarEnd::default(),
            round_trip: RoundTrip::default(),
        }
    }

    /// A TCP packet came in.
    pub fn count(&mut self, s: &TcpSegment, packet: &PacketBuf) {
        self.meter.count(s, packet);
    }

    /// What a segment that has just come in leaves to be told.
    #[must_use]
    pub fn arrival(&self, now: Instant) -> Arrived {
        self.meter.arrival(now)
    }

    /// The gateway at the far end is to be told what has come in: nothing has been told for `interval`; or for `apart`, and this is one
    /// of the few early ones.
    #[must_use]
    pub fn is_report_due(&self, config: &Config, now: Instant, interval: Duration, apart: Duration) -> bool {
        // Where the rate is said here, it will be at the other end.
        let unknown = || config.link(self.iface).is_some_and(|l| l.rate_bps.is_none());
        self.meter.is_due(now, interval) || (unknown() && self.meter.is_due_early(now, apart))
    }

    /// It has been told.
    pub fn note_reported(&mut self, now: Instant) {
        self.meter.told(now, self.patience());
    }

    /// How long the link may be silent and still deliver.
    fn patience(&self) -> Duration {
        self.measured_rtt().unwrap_or_default().max(DELIVERS_MIN)
    }

    /// A connection has measured its leg: the link, and what lies behind it.
    pub fn note_rtt(&mut self, now: Instant, rtt: Duration) {
        self.round_trip.note(now, rtt);
    }

    /// The smallest RTT of any connection of late.
    #[must_use]
    pub fn measured_rtt(&self) -> Option<Duration> {
        self.round_trip.smallest()
    }

    /// A SYN that asked for a gateway at the far end has been answered, by a gateway or by the host alone.
    pub fn note_answer(&mut self, of_gateway: bool) {
        self.far_end.note_answer(of_gateway);
    }

    /// Nothing speaks against a gateway there. A SYN that is repeated may ask once more: it was lost, as far as is known.
    #[must_use]
    pub fn may_answer(&self) -> bool {
        self.far_end.may_answer()
    }

    /// A burst has left from which the other gateway will tell the rate.
    pub fn note_train(&mut self, now: Instant) {
        self.far_end.note_train(now);
    }

    /// What it tells of the burst may still come.
    #[must_use]
    pub fn train_is_under_way(&self, now: Instant, rtt: Option<Duration>) -> bool {
        self.far_end.train_is_under_way(now, rtt.or(self.measured_rtt()))
    }

    /// The newest transmission that is known to have arrived, where the link delivers. `None`: nothing has been told of late.
    #[must_use]
    pub fn delivers(&self, now: Instant) -> Option<Instant> {
        self.far_end.delivers(now, self.patience())
    }

    /// So much has been delivered, and so much was found to be lost.
    pub fn note_losses(&mut self, delivered_bytes: u64, lost_bytes: u64) {
        self.losses.note(delivered_bytes, lost_bytes);
    }

    /// What has been sent and what was lost of it, as [`Losses::sent_and_lost`] has it.
    #[must_use]
    pub fn sent_and_lost(&self) -> (u64, u64) {
        self.losses.sent_and_lost()
    }

    /// It loses enough for repetitions before the loss is known.
    #[must_use]
    pub fn is_repeating_worth(&self) -> bool {
        self.losses.is_repeating_worth()
    }
}
