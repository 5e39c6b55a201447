//! Devices that are made while packets pass: for interfaces that come, and anew where one was taken
//! away. A thread makes them ([`super::setup`]); the event loop goes on without.

use farlink_wire::{Duration, Instant};

use super::setup::Made;
use super::troubles::DEVICES;
use super::{Driver, Phase};
use crate::clock;
use crate::divert::Severity;
use crate::error::Error;
use crate::event_loop::Interest;
use crate::netlink::Link;

/// A device that could not be made is tried again so much later, up to so much.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// After so many attempts, about half a minute, a gateway without any device ends.
const LAST_ATTEMPTS: u32 = 10;

/// A device that could not be made.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) n: usize,
    attempts: u32,
    /// `None`: it is being tried.
    again_at: Option<Instant>,
}

impl Driver {
    /// The kernel says how one of our devices is.
    pub(super) fn device_changed(&mut self, n: usize, link: &Link, exists: bool) {
        let Some(face) = self.net.faces.get_mut(n) else { return };
        if !exists || link.name != face.name() {
            let why = if exists { "has another name" } else { "is gone, or in another network namespace" };
            return self.lose_device(n, why);
        }
        if face.note_up(link.up) {
            self.shortage.device_was_down(clock::now());
            tracing::error!(device = link.name, "the device was taken down: it is brought up again");
        }
    }

    /// Nothing leads to this device any more, or nothing comes out of it: another one takes its
    /// place. Until then packets take their ordinary way.
    pub(super) fn lose_device(&mut self, n: usize, why: &str) {
        let Some(face) = self.net.faces.lose(n) else { return };
        tracing::error!(device = face.name(), "the device {why}: it is made anew");
        self.net.counters.devices_lost += 1;
        self.shortage.device_was_down(clock::now());
        let _ = self.poller.remove(&face);
        if let Some(work) = self.spreader.remove(face.index()) {
            self.maker.order(work);
        }
        self.maker.note_there(n, false);
        // It may be closed when nobody watches it.
        self.watch_devices();
        self.maker.discard(vec![face]);
        self.maker.order_device(n);
        self.ports_changed = true;
    }

    /// What has been made is used from here on.
    pub(super) fn take_made(&mut self) {
        while let Some(Made { n, device }) = self.maker.next_made() {
            match device {
                Ok((face, file)) => {
                    let index = face.index();
                    if let Some(unwanted) = self.net.faces.put(n, face) {
                        self.maker.discard(vec![unwanted]);
                        continue;
                    }
                    if let Some(work) = self.spreader.add(index, file) {
                        self.maker.order(work);
                    }
                    self.begin_device(n);
                }
                Err(error) => self.put_off(n, &error),
            }
        }
    }

    fn begin_device(&mut self, n: usize) {
        self.awaited.retain(|device| device.n != n);
        if self.awaited.is_empty() {
            self.troubles.end(DEVICES);
        }
        if let Some(face) = self.net.faces.get(n)
            && let Err(error) = self.poller.add(face, n as u64, Interest::Read)
        {
            tracing::error!(device = face.name(), %error, "the device cannot be read");
        }
        self.watch_devices();
        self.ports_changed = true;
        let Some(port) = self.net.ports.iter().position(|port| port.faces.contains(&n)) else { return };
        let index = self.net.ports.get(port).and_then(|port| port.index);
        let Some(link) = index.and_then(|index| self.links.get(&index)).cloned() else { return };
        if let Some(face) = self.net.faces.get_mut(n) {
            face.set_target(Some((&link).into()));
        }
        self.follow_bump(port, &link);
    }

    fn put_off(&mut self, n: usize, error: &Error) {
        if !self.net.faces.is_wanted(n) {
            return;
        }
        let place = self.awaited.iter().position(|device| device.n == n);
        let place = place.unwrap_or_else(|| {
            self.awaited.push(Awaited { n, attempts: 0, again_at: None });
            self.awaited.len() - 1
        });
        let Some(device) = self.awaited.get_mut(place) else { return };
        let later = AGAIN.as_nanos() << device.attempts.min(16);
        let later = Duration::from_nanos(u64::try_from(later).unwrap_or(u64::MAX)).min(AGAIN_MAX);
        device.again_at = Some(clock::now() + later);
        device.attempts += 1;
        let is_last = device.attempts >= LAST_ATTEMPTS && self.net.faces.iter().next().is_none();
        self.troubles.begin(
            DEVICES,
            Severity::Warning,
            "a device of Farlink cannot be made: what passes its interface is not split. It is tried again",
            error,
        );
        if is_last && self.phase != Phase::Quitting {
            tracing::error!("there is no device left, and none can be made: the gateway ends");
            self.fatal = Some(Error::Refused(format!("no device can be made any more: {error}")));
            self.phase = Phase::Quitting;
        }
    }

    /// When one is tried again.
    pub(super) fn devices_due(&self) -> Option<Instant> {
        self.awaited.iter().filter_map(|device| device.again_at).min()
    }

    /// Tries those again whose time has come.
    pub(super) fn try_devices(&mut self, now: Instant) {
        for device in &mut self.awaited {
            if device.again_at.is_some_and(|at| at <= now) {
                device.again_at = None;
                self.maker.order_device(device.n);
            }
        }
    }
}
