//! What the kernel tells of interfaces, and what the log is told of links.

use std::ops::Range;
use std::sync::PoisonError;

use farlink_gateway::LinkState;
use farlink_wire::{Duration, Instant};

use super::Driver;
use super::face::Face;
use crate::clock;
use crate::error::Result;
use crate::netlink::{Event, Link, Socket};

/// A link that is silent for no longer than this is not worth a line of the log.
const WINK_MAX: Duration = Duration::from_secs(1);

/// What the log was told of a link last, and in which state it has been since when.
pub(super) struct ToldState {
    told: LinkState,
    is: LinkState,
    since: Instant,
}

impl Driver {
    pub(super) fn take_events(&mut self) -> Result<()> {
        let (mut routes, mut lost) = (false, false);
        let mut links: Vec<(Link, bool)> = Vec::new();
        self.monitor.drain(|event| match event {
            Event::Link(link) => links.push((link, true)),
            Event::LinkGone(link) => links.push((link, false)),
            Event::Routes => routes = true,
            Event::Lost => lost = true,
        })?;
        if !(routes || lost) && links.is_empty() {
            return Ok(());
        }
        // An interface that changes may change its MTU, its number, and the routes through it.
        self.net.routes.invalidate();
        self.pulse.routes.set(self.net.routes.generation());
        self.gateway.routes_changed(clock::now());
        for (link, exists) in links {
            self.link_changed(&link, exists);
        }
        if lost {
            self.net.counters.events_lost += 1;
            self.look_at_links()?;
        }
        Ok(())
    }

    /// The state of all interfaces, as it is now.
    pub(super) fn look_at_links(&mut self) -> Result<()> {
        for link in Socket::open()?.links()? {
            self.link_changed(&link, true);
        }
        Ok(())
    }

    /// Puts a bump where the interface is now.
    fn follow_bump(
        &mut self,
        link: &Link,
        old: Option<u32>,
        exists: bool,
        (faces, rank): (Range<usize>, u16),
    ) {
        let Some(bump) = &self.bump else { return };
        let mut bump = bump.lock().unwrap_or_else(PoisonError::into_inner);
        let device = |face: Option<usize>| face.and_then(|n| self.net.faces.get(n)).map(Face::index);
        let devices = device(faces.clone().next()).zip(device(faces.clone().next_back()));
        if let Some(old) = old.filter(|old| *old != link.index || !exists) {
            bump.forget(old);
        }
        if !exists {
            return;
        }
        let name = devices.and_then(|(d, _)| self.diverted.iter().find(|one| one.tun_index == d));
        let whole = self.whole.contains(name.map_or(&link.name, |one| &one.interface));
        let outcome = bump.configure(link.index, rank, whole).and_then(|()| bump.attach(link, devices));
        if let Err(error) = outcome {
            tracing::error!(interface = %link.name, %error, "what passes this interface is not diverted");
        }
    }

    /// The gateway takes every interface to be up until it hears otherwise.
    pub(super) fn tell_if_down(&mut self, port: usize) {
        if let Some(port) = self.net.ports.get(port).filter(|p| !p.is_usable) {
            tracing::warn!(interface = %port.interface, "the interface is down, or does not exist yet");
            let id = port.id;
            self.gateway.link_state(clock::now(), id, false, &mut self.net);
        }
    }

    fn link_changed(&mut self, link: &Link, exists: bool) {
        if self.net.faces.iter().any(|f| f.name() == link.name) {
            self.device_changed(link, exists);
            return;
        }
        // One that is renamed stays what it was, unless another one gets the name.
        let ports = self.net.ports.iter();
        let known = ports.clone().position(|p| p.index == Some(link.index));
        let Some(n) = known.or_else(|| ports.clone().position(|p| p.interface == link.name)) else { return };
        let Some(port) = self.net.ports.get_mut(n) else { return };
        if std::mem::replace(&mut port.is_renamed, port.interface != link.name) != port.is_renamed {
            tracing::warn!(
                interface = %port.interface,
                now = %link.name,
                "the interface has another name now; it is followed until another one has the configured name"
            );
        }
        let (id, was_usable) = (port.id, port.is_usable);
        let index = exists.then_some(link.index);
        let old = std::mem::replace(&mut port.index, index);
        if let Some(old) = old {
            self.net.by_index.remove(&old);
        }
        let (faces, rank) = (port.faces.clone(), port.rank);
        if let Some(index) = index {
            self.net.by_index.insert(index, id);
        }
        port.is_usable = exists && link.is_usable();
        let is_usable = port.is_usable;
        for face in self.net.faces.get_mut(faces.clone()).unwrap_or_default() {
            face.set_target(exists.then(|| link.into()));
        }
        self.follow_bump(link, old, exists, (faces, rank));
        if is_usable != was_usable {
            let state = if is_usable { "up" } else { "down" };
            tracing::info!(interface = %link.name, state, "link state");
            self.gateway.link_state(clock::now(), id, is_usable, &mut self.net);
        }
    }

    /// One of our own devices.
    fn device_changed(&mut self, link: &Link, exists: bool) {
        if exists && link.up {
            return;
        }
        self.shortage.device_was_down(clock::now());
        tracing::error!(
            device = link.name,
            "the device was taken down or away; one that is down is brought up again"
        );
    }

    /// The log is told of links that have gone or come back, and by whose word. A mere suspicion
    /// ends with the next answer, or is soon more. So does a wink, of which there may be many in a
    /// second.
    pub(super) fn tell_link_states(&mut self) {
        let now = clock::now();
        for (n, (link, said)) in self.gateway.link_states().enumerate() {
            let state = said.state();
            if self.link_states.len() <= n {
                self.link_states.push(ToldState { told: LinkState::Up, is: LinkState::Up, since: now });
            }
            let Some(before) = self.link_states.get_mut(n) else { return };
            if core::mem::replace(&mut before.is, state) != state {
                before.since = now;
            }
            let may_be_wink = state == LinkState::Probing && now.since(before.since) < WINK_MAX;
            if state == LinkState::Suspect || may_be_wink {
                continue;
            }
            if core::mem::replace(&mut before.told, state) != state {
                tracing::info!(link, state = state.name(), down_by = said.names().join(", "), "link");
            }
        }
    }
}
