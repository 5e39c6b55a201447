//! What the gateway asks of the world, answered by this machine: packets to TUNs, routes from the
//! kernel, records to the journal.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use farlink_gateway::{Ends, Event, IfaceId, Network, Record, Route, Transmit};
use farlink_wire::{Duration, Instant, Offload, supersegment};

use super::connection_log::ConnectionLog;
use super::connections;
use super::profile::{Profile, Stage};
use super::pulse::Pulse;
use super::status::{Counters, TunCounters};
use crate::clock;
use crate::journal::Journal;
use crate::netlink::{RouteCache, RouteKey};
use crate::tun::{Tun, WriteError};

/// Packets, and bytes, that may wait for the kernel to have room; beyond that they are lost as in
/// any full queue.
const RETRY_PACKETS_MAX: usize = 256;
const RETRY_BYTES_MAX: usize = 4 << 20;
/// How long after a refusal the kernel is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// One diverted interface.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: IfaceId,
    /// The real interface.
    pub(crate) interface: String,
    /// Its number now; `None`: it does not exist now.
    pub(crate) index: Option<u32>,
    /// Last reported state: up, with carrier.
    pub(crate) is_usable: bool,
    pub(crate) tun: Tun,
    pub(crate) counters: TunCounters,
    /// Told what is read and written, under the port's own number.
    pulse: (Arc<Pulse>, usize),
    waiting: VecDeque<(Offload, Vec<u8>)>,
    waiting_bytes: usize,
    retry_at: Option<Instant>,
}

impl Port {
    pub(crate) fn new(id: IfaceId, interface: String, tun: Tun, pulse: (Arc<Pulse>, usize)) -> Self {
        Self {
            id,
            interface,
            index: None,
            is_usable: false,
            tun,
            counters: TunCounters::default(),
            pulse,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            retry_at: None,
        }
    }

    /// A packet was read.
    pub(crate) fn note_read(&mut self, packet: &[u8], is_super_segment: bool) {
        self.counters.packets_in += 1;
        self.counters.bytes_in += packet.len() as u64;
        self.counters.super_segments_in += u64::from(is_super_segment);
        if let Some(pulse) = self.pulse.0.ports.get(self.pulse.1) {
            pulse.note_read(packet);
        }
    }

    fn transmit(&mut self, packet: &Transmit<'_>, counters: &mut Counters) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += packet.len() as u64;
        if !self.waiting.is_empty() {
            // Behind its elders.
            self.wait(packet.offload, packet.header, packet.payload, counters);
            return;
        }
        match self.tun.write(&packet.offload, packet.header, packet.payload) {
            Ok(()) => note_written(&self.pulse, packet.header),
            Err(WriteError::Busy) => {
                counters.writes_busy += 1;
                self.wait(packet.offload, packet.header, packet.payload, counters);
            }
            Err(WriteError::Invalid | WriteError::TooLarge) if packet.offload.is_super_segment() => {
                let whole = [&[packet.header], packet.payload].concat().concat();
                self.write_segments(&whole, &packet.offload, counters);
            }
            Err(WriteError::Invalid | WriteError::TooLarge) => counters.writes_refused += 1,
            Err(WriteError::Down) => counters.writes_down += 1,
        }
    }

    /// Cuts a super-segment that the kernel does not take.
    fn write_segments(&mut self, whole: &[u8], offload: &Offload, counters: &mut Counters) {
        counters.software_segmented += 1;
        let Self { tun, waiting, pulse, .. } = self;
        supersegment::segment(whole, offload, &mut |segment| {
            let outcome = if waiting.is_empty() {
                tun.write(&Offload::default(), segment, &[])
            } else {
                Err(WriteError::Busy)
            };
            match outcome {
                Ok(()) => note_written(pulse, segment),
                Err(WriteError::Busy) if waiting.len() < RETRY_PACKETS_MAX => {
                    waiting.push_back((Offload::default(), segment.to_vec()));
                }
                Err(_) => counters.writes_refused += 1,
            }
        });
        self.waiting_bytes = self.waiting.iter().map(|(_, p)| p.len()).sum();
        if !self.waiting.is_empty() && self.retry_at.is_none() {
            self.retry_at = Some(clock::now() + RETRY_AFTER);
        }
    }

    fn wait(&mut self, offload: Offload, header: &[u8], payload: &[&[u8]], counters: &mut Counters) {
        let len = header.len() + payload.iter().map(|p| p.len()).sum::<usize>();
        if self.waiting.len() >= RETRY_PACKETS_MAX || self.waiting_bytes + len > RETRY_BYTES_MAX {
            counters.writes_lost += 1;
            return;
        }
        let mut whole = Vec::with_capacity(len);
        whole.extend_from_slice(header);
        payload.iter().for_each(|p| whole.extend_from_slice(p));
        self.waiting_bytes += len;
        self.waiting.push_back((offload, whole));
        if self.retry_at.is_none() {
            self.retry_at = Some(clock::now() + RETRY_AFTER);
        }
    }

    /// Tries what waits again.
    pub(crate) fn retry(&mut self, now: Instant, counters: &mut Counters) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.retry_at = None;
        while let Some((offload, packet)) = self.waiting.pop_front() {
            match self.tun.write(&offload, &packet, &[]) {
                Err(WriteError::Busy) => {
                    self.waiting.push_front((offload, packet));
                    self.retry_at = Some(now + RETRY_AFTER);
                    return;
                }
                Err(_) => counters.writes_refused += 1,
                Ok(()) => note_written(&self.pulse, &packet),
            }
            self.waiting_bytes = self.waiting_bytes.saturating_sub(packet.len());
        }
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

fn note_written((pulse, port): &(Arc<Pulse>, usize), header: &[u8]) {
    if let Some(pulse) = pulse.ports.get(*port) {
        pulse.note_written(header);
    }
}

/// The machine, as the gateway sees it.
#[derive(Debug)]
pub(crate) struct LinuxNetwork {
    pub(crate) ports: Vec<Port>,
    pub(crate) routes: RouteCache,
    pub(crate) journal: Option<Journal>,
    pub(crate) counters: Counters,
    /// Where the time goes, while somebody wants to know.
    pub(crate) profile: Option<Box<Profile>>,
    /// A line for each connection, where somebody wants it.
    pub(crate) connection_log: Option<ConnectionLog>,
    /// Interface number -> the gateway's number.
    pub(crate) by_index: HashMap<u32, IfaceId>,
}

impl LinuxNetwork {
    /// What has been counted.
    pub(crate) fn counters(&self) -> Counters {
        let (connections_logged, connections_unlogged) =
            self.connection_log.as_ref().map(ConnectionLog::counts).unwrap_or_default();
        Counters { connections_logged, connections_unlogged, ..self.counters }
    }

    fn port(&self, id: IfaceId) -> Option<usize> {
        self.ports.iter().position(|p| p.id == id)
    }
}

impl Network for LinuxNetwork {
    fn transmit(&mut self, packet: &Transmit<'_>) {
        // Where it does not matter by which it comes in (a reset after a restart, an interface that
        // is gone), any will do.
        let n = self.port(packet.via).unwrap_or(0);
        let began = self.profile.is_some().then(clock::now);
        if let Some(port) = self.ports.get_mut(n) {
            port.transmit(packet, &mut self.counters);
        }
        if let (Some(began), Some(profile)) = (began, &mut self.profile) {
            profile.note(Stage::Write, began, clock::now());
        }
    }

    fn route(&mut self, from: IfaceId, src: IpAddr, dst: IpAddr) -> Option<Route> {
        let port = self.port(from).and_then(|n| self.ports.get(n));
        let key = RouteKey { destination: dst, from: port.map(|p| (src, p.tun.index())), mark: 0 };
        match self.routes.get(&key) {
            Ok(leaves) => leaves.map(|l| Route {
                iface: self.by_index.get(&l.interface).copied().unwrap_or(IfaceId::OTHER),
                mtu_bytes: l.mtu,
            }),
            Err(error) => {
                self.counters.route_errors += 1;
                tracing::debug!(%error, %dst, "a route cannot be looked up");
                None
            }
        }
    }

    fn journal(&mut self, slot: u32, record: Option<&Record>) {
        if let Some(journal) = &mut self.journal {
            journal.put(slot, record);
        }
    }

    fn happened(&mut self, ends: &Ends, what: Event) {
        connections::tell(ends, what);
        if let Some(log) = &mut self.connection_log {
            log.happened(clock::now(), ends, what);
        }
    }
}
