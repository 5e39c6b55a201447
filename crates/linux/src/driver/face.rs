//! A device through which packets come in and go out: the TUN of an interface, or the device of a
//! bump.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use farlink_gateway::Transmit;
use farlink_wire::{Duration, Instant, Offload, Pool, supersegment};

use super::pulse::Pulse;
use super::status::{Counters, TunCounters};
use crate::bump::{Arrival, Place, Tap, Target, Way};
use crate::clock;
use crate::error::Result;
use crate::tun::{Offloads, ReadOutcome, Tun, WriteError};

/// Packets, and bytes, that may wait for the kernel to have room; beyond that they are lost as in
/// any full queue.
const RETRY_PACKETS_MAX: usize = 256;
const RETRY_BYTES_MAX: usize = 4 << 20;
/// How long after a refusal the kernel is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Where a packet goes, and the place of its mark and priority.
pub(crate) type Towards = (Way, Place);

/// What is read and written.
#[derive(Debug)]
enum Device {
    /// Policy routing leads to it, and it leads into the machine.
    Tun(Tun),
    /// It leads to both sides of an interface; `None`: there is no such interface now.
    Tap(Tap, Option<Target>),
}

/// One device, and what waits for it.
#[derive(Debug)]
pub(crate) struct Face {
    device: Device,
    /// It was seen to be up, and not to go down since.
    is_up: bool,
    pub(crate) counters: TunCounters,
    /// Told what is read and written, under the device's own number.
    pulse: (Arc<Pulse>, usize),
    waiting: VecDeque<(Towards, Offload, Vec<u8>)>,
    waiting_bytes: usize,
    retry_at: Option<Instant>,
}

impl Face {
    pub(crate) fn of_tun(tun: Tun, pulse: (Arc<Pulse>, usize)) -> Self {
        Self::new(Device::Tun(tun), pulse)
    }
    pub(crate) fn of_tap(tap: Tap, pulse: (Arc<Pulse>, usize)) -> Self {
        Self::new(Device::Tap(tap, None), pulse)
    }
    fn new(device: Device, pulse: (Arc<Pulse>, usize)) -> Self {
        Self {
            device,
            is_up: false,
            counters: TunCounters::default(),
            pulse,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            retry_at: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match &self.device {
            Device::Tun(tun) => tun.name(),
            Device::Tap(tap, _) => tap.name(),
        }
    }
    pub(crate) fn index(&self) -> u32 {
        match &self.device {
            Device::Tun(tun) => tun.index(),
            Device::Tap(tap, _) => tap.index(),
        }
    }
    /// Packets that it has dropped because nobody read them, as far as somebody has looked.
    pub(crate) fn dropped(&self) -> Option<u64> {
        self.pulse.0.ports.get(self.pulse.1)?.dropped()
    }
    pub(crate) fn offloads(&self) -> Offloads {
        match &self.device {
            Device::Tun(tun) => tun.offloads(),
            Device::Tap(tap, _) => tap.offloads(),
        }
    }
    /// The kernel says whether it is up. Returns whether it was, and is not.
    pub(crate) fn note_up(&mut self, up: bool) -> bool {
        std::mem::replace(&mut self.is_up, up) && !up
    }
    /// The interface that a bump is at, as it is now.
    pub(crate) fn set_target(&mut self, target: Option<Target>) {
        if let Device::Tap(_, at) = &mut self.device {
            *at = target;
        }
    }
    /// Reads one packet. `None`: it came in by the device's own interface.
    pub(crate) fn read(&mut self, pool: &mut Pool) -> Result<(ReadOutcome, Option<Arrival>)> {
        let (outcome, arrival) = match &mut self.device {
            Device::Tun(tun) => (tun.read(pool)?, None),
            Device::Tap(tap, _) => {
                let (outcome, arrival) = tap.read(pool)?;
                (outcome, Some(arrival))
            }
        };
        if let ReadOutcome::Packet(packet) = &outcome {
            let is_for_machine = arrival.is_some_and(|a| a.is_for_machine);
            self.counters.packets_in += 1;
            self.counters.bytes_in += packet.len() as u64;
            self.counters.super_segments_in += u64::from(packet.offload.is_super_segment());
            if let Some(pulse) = self.pulse.0.ports.get(self.pulse.1) {
                pulse.note_read(packet.bytes(), is_for_machine);
            }
        }
        Ok((outcome, arrival))
    }

    /// Writes a packet; a TUN leads into the machine only.
    pub(crate) fn transmit(&mut self, towards: Towards, packet: &Transmit<'_>, counters: &mut Counters) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += packet.len() as u64;
        if !self.waiting.is_empty() {
            // Behind its elders.
            self.wait(towards, packet, counters);
            return;
        }
        match self.device.write(towards, &packet.offload, packet.header, packet.payload) {
            Ok(()) => note_written(&self.pulse, packet.header),
            Err(WriteError::Busy) => {
                counters.writes_busy += 1;
                self.wait(towards, packet, counters);
            }
            Err(WriteError::Invalid | WriteError::TooLarge) if packet.offload.is_super_segment() => {
                let whole = [&[packet.header], packet.payload].concat().concat();
                self.write_segments(towards, &whole, &packet.offload, counters);
            }
            Err(WriteError::Invalid | WriteError::TooLarge) => counters.writes_refused += 1,
            Err(WriteError::Down) => counters.writes_down += 1,
        }
    }

    /// Cuts a super-segment that the kernel does not take.
    fn write_segments(&mut self, towards: Towards, whole: &[u8], offload: &Offload, counters: &mut Counters) {
        counters.software_segmented += 1;
        let Self { device, waiting, pulse, .. } = self;
        supersegment::segment(whole, offload, &mut |segment| {
            let outcome = if waiting.is_empty() {
                device.write(towards, &Offload::default(), segment, &[])
            } else {
                Err(WriteError::Busy)
            };
            match outcome {
                Ok(()) => note_written(pulse, segment),
                Err(WriteError::Busy) if waiting.len() < RETRY_PACKETS_MAX => {
                    waiting.push_back((towards, Offload::default(), segment.to_vec()));
                }
                Err(_) => counters.writes_refused += 1,
            }
        });
        self.waiting_bytes = self.waiting.iter().map(|(_, _, p)| p.len()).sum();
        if !self.waiting.is_empty() && self.retry_at.is_none() {
            self.retry_at = Some(clock::now() + RETRY_AFTER);
        }
    }

    fn wait(&mut self, towards: Towards, packet: &Transmit<'_>, counters: &mut Counters) {
        let len = packet.len();
        if self.waiting.len() >= RETRY_PACKETS_MAX || self.waiting_bytes + len > RETRY_BYTES_MAX {
            counters.writes_lost += 1;
            return;
        }
        let mut whole = Vec::with_capacity(len);
        whole.extend_from_slice(packet.header);
        packet.payload.iter().for_each(|p| whole.extend_from_slice(p));
        self.waiting_bytes += len;
        self.waiting.push_back((towards, packet.offload, whole));
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
        while let Some((towards, offload, packet)) = self.waiting.pop_front() {
            match self.device.write(towards, &offload, &packet, &[]) {
                Err(WriteError::Busy) => {
                    self.waiting.push_front((towards, offload, packet));
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

impl Device {
    fn write(
        &self,
        (way, place): Towards,
        offload: &Offload,
        header: &[u8],
        payload: &[&[u8]],
    ) -> std::result::Result<(), WriteError> {
        match self {
            Self::Tun(tun) => tun.write(offload, header, payload),
            Self::Tap(tap, Some(target)) => tap.write((target, way, place), offload, header, payload),
            Self::Tap(_, None) => Err(WriteError::Down),
        }
    }
}

impl AsFd for Face {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.device {
            Device::Tun(tun) => tun.as_fd(),
            Device::Tap(tap, _) => tap.as_fd(),
        }
    }
}

fn note_written((pulse, port): &(Arc<Pulse>, usize), header: &[u8]) {
    if let Some(pulse) = pulse.ports.get(*port) {
        pulse.note_written(header);
    }
}
