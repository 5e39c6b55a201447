//! Interfaces that come, go, are renamed, or become part of another one; and those that the
//! configuration adds or takes out. Which port each belongs to, and what follows.

use std::sync::Arc;
use std::sync::atomic::AtomicU16;

use farlink_gateway::config::Interface;
use farlink_gateway::{IfaceId, SELECTORS_FROM};
use farlink_wire::{Duration, Instant};

use super::network::Port;
use super::setup::Maker;
use super::troubles::ROOM;
use super::wanted::{Finder, finder_of, matches};
use super::{Driver, Retiring};
use crate::bump::NO_BUMP;
use crate::clock;
use crate::divert::{Diverted, Severity, is_plain};
use crate::netlink::Link;

/// How often is looked whether interfaces that are taken out are still in use.
const LOOK: Duration = Duration::from_millis(250);

/// Of so many interfaces without a place the log has been told.
const WITHOUT_ROOM_MAX: usize = 1000;
/// So many of them are named.
const NAMED_MAX: usize = 3;

/// Why an interface is no longer at its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is gone: removed, or in another network namespace.
    Gone,
    /// It has become a port of a bridge or a bond.
    Enslaved,
    /// Another interface has its name.
    Replaced,
    /// It is something else in the configuration now.
    Moved,
    /// The configuration has no place for it.
    TakenOut,
}

impl Driver {
    /// Something about an interface has changed, or it has come or gone.
    pub(super) fn link_changed(&mut self, link: &Link, exists: bool) {
        self.note_link(link, exists);
        if !exists {
            self.note_room(&link.name, true);
        }
        if let Some(n) = self.net.faces.of_index(link.index) {
            return self.device_changed(n, link, exists);
        }
        let at = self.net.ports.iter().position(|p| p.index == Some(link.index));
        let to = if exists { self.port_for(link, at) } else { None };
        // Another port may have made room for it.
        let at = self.net.ports.iter().position(|p| p.index == Some(link.index));
        if let Some(at) = at.filter(|at| Some(*at) != to) {
            let why = match (exists, link.is_port, to) {
                (false, ..) => Why::Gone,
                (true, true, _) => Why::Enslaved,
                (true, false, Some(_)) => Why::Moved,
                (true, false, None) => Why::TakenOut,
            };
            self.unbind(at, why);
            if let Some(to) = to {
                self.hand_over(at, to);
            }
        }
        if let Some(to) = to {
            self.bind(to, link);
        }
    }

    /// What is kept of an interface, whoever it is.
    fn note_link(&mut self, link: &Link, exists: bool) {
        match link.parent.filter(|_| exists) {
            Some(parent) => drop(self.net.parents.insert(link.index, parent)),
            None => drop(self.net.parents.remove(&link.index)),
        }
        if exists {
            self.net.mtus.insert(link.index, link.mtu);
            self.links.insert(link.index, link.clone());
        } else {
            self.net.mtus.remove(&link.index);
            self.net.carried.remove(&link.index);
            self.links.remove(&link.index);
        }
    }

    /// The port of an interface that is there. `at`: where it has been.
    fn port_for(&mut self, link: &Link, at: Option<usize>) -> Option<usize> {
        if link.is_port {
            return None;
        }
        let leaving = self.gateway.leaving();
        let stays = |p: &Port| !leaving.contains(&p.id);
        let named = |p: &Port| p.is_named && stays(p);
        let by_name = self.net.ports.iter().position(|p| named(p) && p.interface == link.name);
        // One that is renamed stays what it was, unless another one gets the name.
        let renamed = at.filter(|at| self.net.ports.get(*at).is_some_and(named));
        if let Some(n) = by_name.or(renamed) {
            return Some(n);
        }
        let finder = finder_of(&self.finders, link, at.is_some()).cloned();
        let Some(finder) = finder else {
            // What is split goes on, where it is diverted still.
            let at = at?;
            let id = self.net.ports.get(at)?.id;
            if !leaving.contains(&id) {
                self.gateway.let_go(id);
                tracing::info!(interface = %link.name, "nothing says any more that this interface is to be diverted");
            }
            return Some(at);
        };
        let fits = |p: &Port| !p.is_link && p.domain == finder.domain;
        let n = match at.filter(|at| self.net.ports.get(*at).is_some_and(fits)) {
            Some(at) => self.found_again(at, link),
            None => self.found(link, &finder),
        };
        if let Some(port) = n.and_then(|n| self.net.ports.get_mut(n)) {
            port.attach = finder.attach;
        }
        n
    }

    /// An interface that has a port is still, or again, as a finder says.
    fn found_again(&mut self, at: usize, link: &Link) -> Option<usize> {
        let port = self.net.ports.get_mut(at)?;
        port.is_named = false;
        if port.interface != link.name {
            tracing::info!(interface = %port.interface, now = %link.name, "the interface has another name now");
            link.name.clone_into(&mut port.interface);
        }
        let id = port.id;
        self.gateway.take_back(id, &link.name);
        Some(at)
    }

    /// An interface is diverted that nobody has named.
    fn found(&mut self, link: &Link, finder: &Finder) -> Option<usize> {
        let id = loop {
            if let Some(id) = self.gateway.find_interface(&link.name, finder.domain) {
                break id;
            }
            if !self.forget_one(finder.domain) {
                self.note_room(&link.name, false);
                return None;
            }
        };
        if let Some(n) = self.net.ports.iter().position(|p| p.id == id) {
            return Some(n);
        }
        let (name, domain) = (link.name.clone(), finder.domain);
        let interface = Interface { id, name, domain, addresses: Vec::new(), link: None };
        self.make_port(&interface, false, finder.attach)
    }

    /// Whether there is a place for this interface. Those without one are a finding.
    fn note_room(&mut self, interface: &str, has_room: bool) {
        let is_news = match has_room {
            true => self.without_room.remove(interface),
            false if self.without_room.len() >= WITHOUT_ROOM_MAX => false,
            false => self.without_room.insert(interface.to_owned()),
        };
        if is_news {
            self.tell_without_room();
        }
    }

    pub(super) fn tell_without_room(&self) {
        let names: Vec<_> = self.without_room.iter().take(NAMED_MAX).map(String::as_str).collect();
        match &names[..] {
            [] => self.troubles.end(ROOM),
            some => {
                let more = if self.without_room.len() > some.len() { ", and more" } else { "" };
                let names = format!("{}{more}", some.join(", "));
                let text = "there are too many interfaces: what passes some of them is not diverted";
                self.troubles.begin(ROOM, Severity::Warning, text, &names);
            }
        }
    }

    /// A found interface that has gone makes room for another one. Whether there was one.
    fn forget_one(&mut self, domain: u16) -> bool {
        let is_gone = |p: &Port| p.index.is_none() && !p.is_named && !p.is_link && p.domain == domain;
        let Some(n) = self.net.ports.iter().position(is_gone) else { return false };
        self.remove_port(n);
        true
    }

    /// An interface stands at another port now, and its devices go along: nothing that passes it
    /// notices.
    fn hand_over(&mut self, from: usize, to: usize) {
        let Some((id, own)) = self.net.ports.get_mut(to).map(|p| (p.id, std::mem::take(&mut p.faces))) else {
            return;
        };
        self.retire(own);
        let Some(port) = self.net.ports.get_mut(from) else { return };
        port.moved_to = Some(id);
        let faces = std::mem::take(&mut port.faces);
        let old = port.id;
        let in_force = Arc::clone(&port.rank_in_force);
        self.net.faces.give(&faces, id);
        for other in self.net.ports.iter_mut().filter(|p| p.moved_to == Some(old)) {
            other.moved_to = Some(id);
        }
        if let Some(port) = self.net.ports.get_mut(to) {
            (port.faces, port.moved_to, port.rank_in_force) = (faces, None, in_force);
        }
    }

    /// These devices go when nothing leads to them any more.
    fn retire(&mut self, faces: std::ops::Range<usize>) {
        if !faces.is_empty() {
            // The change that is about to be told comes next.
            // And the programs of a bump know of it once what was ordered until now is done.
            self.retiring.push(Retiring { faces, change: self.change + 1, ordered: self.maker.ordered() });
            self.look_at = Some(clock::now());
            self.ports_changed = true;
        }
    }

    /// A port. It has devices when its interface comes.
    pub(super) fn make_port(&mut self, interface: &Interface, is_named: bool, attach: bool) -> Option<usize> {
        if let Some(journal) = &mut self.net.journal {
            journal.call(interface.id, &interface.name);
        }
        self.net.ports.push(Maker::port(interface, is_named, attach));
        self.ports_changed = true;
        Some(self.net.ports.len() - 1)
    }

    /// A port has devices, and takes what passes it, as the configuration says.
    pub(super) fn fit_devices(&mut self, n: usize) {
        let Some(port) = self.net.ports.get_mut(n).filter(|p| p.moved_to.is_none()) else { return };
        let (has_devices, rank) = self.maker.wants(port);
        if has_devices != port.faces.is_empty() && rank == port.rank {
            return;
        }
        port.rank = rank;
        if has_devices && port.faces.is_empty() {
            match self.maker.reserve(port.id, &mut self.net.faces) {
                Ok(faces) => port.faces = faces,
                // The next change of the interface tries it again.
                Err(error) => tracing::error!(
                    interface = %port.interface,
                    %error,
                    "there is no device for this interface: what passes it is not diverted"
                ),
            }
            port.faces.clone().for_each(|n| self.maker.order_device(n));
        } else if !has_devices {
            let (faces, index) = (std::mem::take(&mut port.faces), port.index);
            if let Some(link) = index.and_then(|index| self.links.get(&index)) {
                self.follow_bump(n, link);
            }
            self.retire(faces);
        }
        self.ports_changed = true;
        self.watch_devices();
    }

    pub(super) fn watch_devices(&self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.set_devices(self.net.faces.iter().map(std::os::fd::AsFd::as_fd));
        }
    }

    /// An interface is at this port from here on, or still is, as it is now.
    fn bind(&mut self, n: usize, link: &Link) {
        if self.net.ports.get(n).is_some_and(|p| p.index.is_some_and(|index| index != link.index)) {
            self.unbind(n, Why::Replaced);
        }
        if let Some(port) = self.net.ports.get_mut(n) {
            port.moved_to = None;
            self.ports_changed |= port.let_go.take().is_some();
        }
        self.fit_devices(n);
        self.note_room(&link.name, true);
        let Some(port) = self.net.ports.get_mut(n) else { return };
        let (is_new, id) = (port.index != Some(link.index), port.id);
        if port.called != link.name {
            if port.is_named && port.interface != link.name {
                tracing::warn!(
                    interface = %port.interface,
                    now = %link.name,
                    "the interface has another name now; it is followed until another one has the configured name"
                );
            }
            link.name.clone_into(&mut port.called);
            self.ports_changed = true;
        }
        port.index = Some(link.index);
        let was_usable = std::mem::replace(&mut port.is_usable, link.is_usable());
        let (is_usable, range) = (port.is_usable, port.faces.clone());
        self.net.by_index.insert(link.index, id);
        for face in range.clone() {
            if let Some(face) = self.net.faces.get_mut(face) {
                face.set_target(Some(link.into()));
            }
        }
        self.follow_bump(n, link);
        if is_new {
            self.ports_changed = true;
            self.has_new_ports = true;
            if self.is_started {
                tracing::info!(interface = %link.name, device = self.device_of(n), "the interface is there: what passes it is diverted");
            }
        } else if is_usable != was_usable {
            let state = if is_usable { "up" } else { "down" };
            tracing::info!(interface = %link.name, state, "link state");
        }
        self.tell_state(n);
    }

    fn device_of(&self, n: usize) -> &str {
        let face = self.net.ports.get(n).and_then(|p| self.net.faces.of(&p.faces).next());
        face.map_or("none of its own", super::face::Face::name)
    }

    /// The interface of this port is there no more.
    pub(super) fn unbind(&mut self, n: usize, why: Why) {
        let Some(port) = self.net.ports.get_mut(n) else { return };
        let Some(index) = port.index.take() else { return };
        port.is_usable = false;
        let id = port.id;
        let is_let_go = port.let_go.take().is_some();
        let (interface, is_named, range) = (port.interface.clone(), port.is_named, port.faces.clone());
        let called = std::mem::replace(&mut port.called, port.interface.clone());
        self.net.by_index.remove(&index);
        // One that moves takes its devices along. Of one that is there still what has been taken
        // goes on, until its programs are gone.
        if why == Why::Gone {
            for face in range {
                if let Some(face) = self.net.faces.get_mut(face) {
                    face.set_target(None);
                }
            }
        }
        if why != Why::Moved {
            port.rank_in_force = Arc::new(AtomicU16::new(NO_BUMP));
            if !is_let_go {
                self.maker.detach(index);
            }
        }
        self.ports_changed = true;
        if !is_named && matches!(why, Why::Gone | Why::Enslaved) {
            // Nobody waits for it. Its number is its own while something is held for who is behind
            // it.
            self.gateway.let_go(id);
            self.look_at = Some(clock::now());
        }
        match why {
            Why::Gone if is_named => {
                tracing::warn!(%interface, "the interface is gone, or in another network namespace: it is waited for");
            }
            Why::Gone => tracing::info!(%interface, "the interface is gone"),
            Why::Enslaved => tracing::warn!(
                interface = %called,
                "the interface is a port of a bridge or a bond now: its packets are routed where that one stands, and are diverted there"
            ),
            Why::Moved => {
                tracing::info!(interface = %called, was = %interface, "the interface is something else now")
            }
            Why::Replaced => {
                tracing::info!(interface = %called, port = %interface, "another interface takes its place")
            }
            Why::TakenOut => tracing::info!(interface = %called, "the interface is no longer diverted"),
        }
        self.tell_state(n);
    }

    /// The gateway takes every interface to be up until it hears otherwise.
    fn tell_state(&mut self, n: usize) {
        let Some(port) = self.net.ports.get_mut(n) else { return };
        let (id, up) = (port.id, port.is_usable);
        if self.is_started && std::mem::replace(&mut port.is_told_up, up) != up {
            self.gateway.link_state(clock::now(), id, up, &mut self.net);
        }
    }

    /// What was seen of interfaces until now is told to the gateway: from here on it hears of each
    /// change.
    pub(super) fn tell_states(&mut self) {
        self.is_started = true;
        for n in 0..self.net.ports.len() {
            let Some(port) = self.net.ports.get(n) else { continue };
            match port.index {
                None => {
                    tracing::warn!(interface = %port.interface, "the interface does not exist yet: it is waited for")
                }
                Some(_) if !port.is_usable => {
                    tracing::warn!(interface = %port.interface, "the interface is down")
                }
                Some(_) => {}
            }
            self.tell_state(n);
        }
        if self.net.ports.iter().all(|p| p.index.is_none()) {
            tracing::warn!(
                "no interface is there yet that is to be diverted: nothing is split until one comes"
            );
        }
    }

    /// Puts a bump where the interface is now.
    pub(super) fn follow_bump(&self, n: usize, link: &Link) {
        let Some(port) = self.net.ports.get(n).filter(|_| self.bump.is_some()) else { return };
        let device = |n: usize| self.net.faces.get(n).map(super::face::Face::index);
        if port.faces.clone().any(|n| device(n).is_none()) {
            // They are being made.
            return;
        }
        let (first, last) = (port.faces.clone().next(), port.faces.clone().next_back());
        self.maker.attach(port, link, first.and_then(device).zip(last.and_then(device)));
    }

    /// The interfaces' own addresses: ICMP errors of the gateway come from them.
    pub(super) fn look_at_addresses(&mut self) {
        for port in self.net.ports.iter().filter(|p| p.index.is_some()) {
            let own = self.addresses.iter().filter(|(index, _)| Some(*index) == port.index);
            self.gateway.set_addresses(port.id, own.map(|(_, address)| *address).collect());
        }
    }

    /// What follows from interfaces that have come, gone or changed: for rules, and for those who
    /// divert.
    pub(super) fn follow_ports(&mut self) {
        if std::mem::take(&mut self.has_new_ports) {
            self.look_at_addresses();
        }
        if !std::mem::take(&mut self.ports_changed) {
            return;
        }
        self.mean_selectors();
        // What has been found out of routes may name interfaces by other numbers.
        self.gateway.routes_changed(clock::now());
        if let Some(guard) = &self.bump_guard {
            guard.set_ways(self.net.ways(), self.maker.takes_everything());
        }
        let told = (self.diverted(), self.whole());
        let retiring = self.retiring.iter().map(|one| one.change);
        let let_go = self.net.ports.iter().filter(|p| self.lets_go(p)).filter_map(|p| p.let_go);
        if told == self.told && retiring.chain(let_go).all(|change| change <= self.change) {
            return;
        }
        self.told.clone_from(&told);
        if let Some(guard) = &mut self.guard {
            self.change = guard.change(told.0, told.1);
        }
    }

    /// Rules know interfaces by what they are called.
    fn mean_selectors(&mut self) {
        let meant = self.selectors.iter().zip(SELECTORS_FROM..).map(|(text, number)| {
            let fits = |p: &&Port| matches(text, &p.interface);
            let ids = self.net.ports.iter().filter(fits).map(|p| p.id);
            (IfaceId(number), ids.collect())
        });
        let meant = meant.collect();
        self.gateway.mean(meant);
    }

    /// What is diverted where.
    pub(super) fn diverted(&self) -> Vec<Diverted> {
        let mut all: Vec<Diverted> = Vec::new();
        let there = self.net.ports.iter().filter(|p| !self.lets_go(p) && p.index.is_some());
        for port in there.chain(self.net.ports.iter().filter(|p| p.index.is_none())) {
            // One that is away may have a name that another one has now.
            if all.iter().any(|one| one.interface == port.called) || !is_plain(&port.called) {
                continue;
            }
            all.extend(self.net.faces.of(&port.faces).map(|face| Diverted {
                interface: port.called.clone(),
                tun: face.name().to_owned(),
                tun_index: face.index(),
            }));
        }
        all
    }

    /// Names of the interfaces of which everything is diverted that leaves by them.
    pub(super) fn whole(&self) -> Vec<String> {
        let whole = self.net.ports.iter().filter(|p| !self.lets_go(p) && self.maker.takes_all_of(p));
        whole.map(|p| p.called.clone()).filter(|name| is_plain(name)).collect()
    }

    /// Interfaces that are taken out go when nothing is split any more that passes them, and
    /// devices when nothing leads to them.
    pub(super) fn follow_leaving(&mut self, now: Instant) {
        if self.look_at.is_some_and(|at| at > now) {
            return;
        }
        let leaving = self.gateway.leaving();
        self.look_at = (!leaving.is_empty() || !self.retiring.is_empty()).then(|| now + LOOK);
        for id in leaving {
            if self.gateway.is_in_use(id) {
                continue;
            }
            match self.net.ports.iter().position(|p| p.id == id) {
                Some(n) if self.has_let_go(n) => self.remove_port(n),
                Some(_) => {}
                None => self.gateway.free(now, id),
            }
        }
        self.follow_ports();
        let applied = self.applied();
        let is_gone = |one: &Retiring| one.change <= applied && self.maker.has_done(one.ordered);
        let (gone, waits): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.retiring).into_iter().partition(is_gone);
        self.retiring = waits;
        for Retiring { faces, .. } in gone {
            for face in self.net.faces.of(&faces) {
                let _ = self.poller.remove(face);
                if let Some(work) = self.spreader.remove(face.index()) {
                    self.maker.order(work);
                }
            }
            self.awaited.retain(|device| !faces.contains(&device.n));
            let taken = self.maker.take(&faces, &mut self.net.faces);
            // They may be closed when nobody watches them.
            self.watch_devices();
            self.maker.discard(taken);
        }
    }

    /// No rule is to divert what comes by it any more.
    fn lets_go(&self, port: &Port) -> bool {
        port.let_go.is_some() && self.bump.is_none()
    }

    /// The last change of what is diverted that is in force.
    fn applied(&self) -> u64 {
        if self.guard.is_some() { self.pulse.diverted.get() } else { u64::MAX }
    }

    /// Whether nothing is taken any more of what comes by an interface: no program there does it,
    /// and no rule leads here. That is asked for. Until then what is taken leaves as before, and no
    /// connection is split: half of it would pass by.
    fn has_let_go(&mut self, n: usize) -> bool {
        let (applied, bump) = (self.applied(), self.bump.is_some());
        let Some(port) = self.net.ports.get_mut(n) else { return true };
        let Some(index) = port.index else { return true };
        let let_go = *port.let_go.get_or_insert_with(|| {
            if bump {
                self.maker.detach(index);
                return self.maker.ordered();
            }
            // The change that is about to be told comes next.
            self.ports_changed = true;
            self.change + 1
        });
        if bump { self.maker.has_done(let_go) } else { let_go <= applied }
    }

    /// A port goes, with its devices.
    fn remove_port(&mut self, n: usize) {
        if self.net.ports.get(n).is_none() {
            return;
        }
        self.unbind(n, Why::TakenOut);
        let port = self.net.ports.remove(n);
        self.gateway.free(clock::now(), port.id);
        for other in self.net.ports.iter_mut().filter(|p| p.moved_to == Some(port.id)) {
            other.moved_to = None;
        }
        self.ports_changed = true;
        self.look_at = Some(clock::now());
        self.retire(port.faces);
    }
}
