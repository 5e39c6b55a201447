//! What the driver counts.

use serde::Serialize;

use super::Driver;
use super::face::Face;
use crate::clock;
pub use crate::guard::DiversionStatus;
use crate::guard::{BumpGuard, Guard};
use crate::journal::Journal;

/// Counters of one TUN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TunCounters {
    /// Packets read (super-segments count once).
    pub packets_in: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Of the packets read, super-segments.
    pub super_segments_in: u64,
    /// Packets written.
    pub packets_out: u64,
    /// Bytes written.
    pub bytes_out: u64,
}

impl std::iter::Sum for TunCounters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            packets_in: a.packets_in + b.packets_in,
            bytes_in: a.bytes_in + b.bytes_in,
            super_segments_in: a.super_segments_in + b.super_segments_in,
            packets_out: a.packets_out + b.packets_out,
            bytes_out: a.bytes_out + b.bytes_out,
        })
    }
}

/// Counters of the whole driver. All but `software_segmented`, `own_packets` and
/// `connections_logged` should stay zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Times the kernel had no room for a packet; it was tried again.
    pub writes_busy: u64,
    /// Packets lost because the kernel had no room for too long.
    pub writes_lost: u64,
    /// Packets that the kernel refused.
    pub writes_refused: u64,
    /// Packets written while a TUN was down.
    pub writes_down: u64,
    /// Super-segments that were cut here because the kernel did not take them.
    pub software_segmented: u64,
    /// Packets read that nobody diverted (multicast noise of the kernel's own).
    pub odd_packets: u64,
    /// Route look-ups that failed.
    pub route_errors: u64,
    /// Times the kernel's network events overran.
    pub events_lost: u64,
    /// Devices that were lost while they were in use, and made anew.
    pub devices_lost: u64,
    /// Marks and priorities of packets that others had to give way for: there are more than 4,095.
    pub marks_replaced: u64,
    /// Packets in the machine's own name that left by a socket.
    pub own_packets: u64,
    /// Lines of the connection log.
    pub connections_logged: u64,
    /// Connections that have no line: more ended than may be told, or the log could not be written.
    pub connections_unlogged: u64,
}

/// One diverted interface.
#[derive(Clone, Debug, Serialize)]
pub struct PortStatus {
    /// The real interface, as it is configured or was found.
    pub interface: String,
    /// What it is called now, or was last.
    pub called: String,
    /// It exists. Otherwise it is waited for.
    pub present: bool,
    /// It is up and has a carrier.
    pub up: bool,
    /// Its TUN.
    pub tun: String,
    /// IPv4 TCP super-segments cross whole.
    pub tso4: bool,
    /// IPv6 TCP super-segments cross whole.
    pub tso6: bool,
    /// UDP super-segments cross whole.
    pub uso: bool,
    /// Packets that the TUN's queue dropped because the gateway was too slow.
    pub queue_drops: u64,
    /// Of the packets read at a bump, those that came in by the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_from_wire: Option<u64>,
    /// Of the packets read at a bump, those that leave by the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_to_wire: Option<u64>,
    /// Traffic.
    #[serde(flatten)]
    pub counters: TunCounters,
}

/// A snapshot.
#[derive(Clone, Debug, Serialize)]
pub struct DriverStatus {
    /// The diverted interfaces.
    pub ports: Vec<PortStatus>,
    /// Counters.
    pub counters: Counters,
    /// Where the time goes; `None` while nobody wants to know.
    pub profile: Option<Vec<super::StageStatus>>,
    /// Route look-ups that went to the kernel.
    pub route_lookups: u64,
    /// Flows in custody that found no room in the journal.
    pub journal_refused: u64,
    /// The kernel's part of the work is spread over all processors.
    pub spread: bool,
    /// How diversion stands.
    pub diversion: DiversionStatus,
    /// Seconds since the start.
    pub uptime_s: f64,
}

impl Driver {
    pub(super) fn diversion(&self) -> DiversionStatus {
        let of_bump = self.bump_guard.as_ref().map(BumpGuard::status);
        let mut status = of_bump.or(self.guard.as_ref().map(Guard::status)).unwrap_or_default();
        status.found.extend(self.troubles.found());
        status
    }

    pub(super) fn status(&self) -> DriverStatus {
        let ports = self.net.ports.iter().filter(|p| p.is_named || p.index.is_some()).map(|p| {
            let faces = || self.net.faces.of(&p.faces);
            let (face, device) = (faces().next(), faces().next().map_or("", Face::name));
            // A bump has a device for each way.
            let read_of = |way: usize| {
                let n = p.faces.clone().nth(way).filter(|_| self.bump.is_some())?;
                Some(self.net.faces.get(n)?.counters.packets_in)
            };
            PortStatus {
                interface: p.interface.clone(),
                called: p.called.clone(),
                present: p.index.is_some(),
                up: p.is_usable,
                tun: device.to_owned(),
                tso4: face.is_none_or(|f| f.offloads().tso4),
                tso6: face.is_none_or(|f| f.offloads().tso6),
                uso: face.is_none_or(|f| f.offloads().uso),
                queue_drops: faces().filter_map(|f| f.dropped()).sum(),
                packets_from_wire: read_of(0),
                packets_to_wire: read_of(1),
                counters: faces().map(|f| f.counters).sum(),
            }
        });
        DriverStatus {
            ports: ports.collect(),
            counters: self.net.counters(),
            profile: self.net.profile.as_ref().map(|p| p.status()),
            route_lookups: self.net.routes.counts().0,
            journal_refused: self.net.refused_before + self.net.journal.as_ref().map_or(0, Journal::refused),
            spread: self.spreader.is_on(),
            diversion: self.diversion(),
            uptime_s: clock::now().since(self.started).as_secs_f64(),
        }
    }
}
