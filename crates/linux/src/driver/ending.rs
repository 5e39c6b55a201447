//! How a run ends: what is in custody is delivered, diversion is taken back, and what is still in
//! the devices goes on.

use std::sync::atomic::Ordering;

use farlink_wire::{Duration, Instant};

use super::{Driver, End, Phase};
use crate::clock;
use crate::divert::Divert;
use crate::error::Result;
use crate::guard::Guard;

/// How long the last packets in the TUNs are waited for after diversion has been taken back.
const LAST_PACKETS: Duration = Duration::from_millis(20);
/// Once nothing is in custody, what waits for a link that is full has so long before diversion is
/// taken back, and so long again afterwards.
const LAST_QUEUE: Duration = Duration::from_secs(1);

impl Driver {
    pub(super) fn signal(&mut self, signal: i32) {
        if !matches!(signal, libc::SIGTERM | libc::SIGINT) {
            self.is_reload_wanted |= signal == libc::SIGHUP;
            return;
        }
        match self.phase {
            Phase::Running => self.start_drain(),
            Phase::Draining { .. } | Phase::Quitting => {
                tracing::warn!("told to end a second time: what is not delivered is given up");
                self.phase = Phase::Quitting;
            }
        }
    }

    pub(super) fn start_drain(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        let now = clock::now();
        tracing::info!(
            timeout_s = self.drain_timeout.as_secs_f64(),
            "draining: nothing new is split, custody is delivered"
        );
        if let Some(log) = &mut self.net.connection_log {
            log.hand_back(true);
        }
        self.gateway.drain();
        self.pulse.is_draining.store(true, Ordering::Relaxed);
        self.phase = Phase::Draining { until: now + self.drain_timeout };
        self.work();
    }

    /// Who sends without custody, UDP above all, may fill the queue of a link for ever.
    pub(super) fn follow_drain(&mut self, now: Instant) {
        if let Phase::Draining { until } = &mut self.phase
            && self.gateway.holds_nothing()
        {
            *until = (*until).min(now + LAST_QUEUE);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Running => false,
            Phase::Draining { until } => self.gateway.is_drained() || clock::now() >= until,
            Phase::Quitting => true,
        }
    }

    /// Takes the diversion back, forwards what is still in the TUNs, and goes.
    pub(super) fn finish(mut self) -> Result<End> {
        let end = if self.gateway.holds_nothing() {
            End::Drained
        } else {
            End::Abandoned(self.gateway.abandon_all(clock::now(), &mut self.net))
        };
        // They are closed soon. The heart beats until nothing is diverted any more.
        if let Some(watchdog) = &self.watchdog {
            watchdog.set_devices(std::iter::empty());
        }
        self.bump_guard = None;
        self.maker.wait();
        if let Some(bump) = &self.bump {
            bump.take_nothing();
        }
        let outcome = self.guard.take().and_then(Guard::end).map_or(Ok(()), Divert::remove);
        self.watchdog = None;
        let began = clock::now();
        let waits = |driver: &Self| {
            let has_time = matches!(end, End::Drained) && !driver.gateway.is_drained();
            clock::now() < began + if has_time { LAST_QUEUE } else { LAST_PACKETS }
        };
        // Nothing follows them, unless the diversion cannot be taken back.
        while clock::now() < began + 2 * LAST_QUEUE && (self.read_all() > 0 || waits(&self)) {
            self.news.clear();
            self.take_answers();
            self.take_parked(clock::now());
            self.work();
            // What waits in the queue of a link leaves at its rate.
            let until = clock::now() + LAST_PACKETS;
            let due = self.gateway.poll_timeout().map_or(until, |due| due.at.min(until));
            self.wait(Some(due))?;
        }
        if let Some(journal) = self.net.journal.take() {
            journal.remove();
        }
        if let Some(file) = self.found.take() {
            file.end(super::found::Known::of(&self.gateway, clock::now()));
        }
        if let Some(log) = self.net.connection_log.take() {
            log.end_all(clock::now());
        }
        match end {
            End::Drained => tracing::info!("drained: every byte in custody was delivered"),
            End::Abandoned(connections) => {
                tracing::warn!(
                    connections,
                    "ended before the drain was complete: these connections were reset"
                );
            }
        }
        self.fatal.map_or(outcome.map(|()| end), Err)
    }
}
