//! What a driver begins with, and how devices are made: then, and for interfaces that come later.

use std::ops::Range;
use std::sync::Arc;

use farlink_gateway::IfaceId;
use farlink_gateway::config::{self, Interface};

use super::DriverConfig;
use super::face::Face;
use super::faces::Faces;
use super::network::Port;
use super::pulse::Pulse;
use super::wanted::Finder;
use super::workshop::Workshop;
use crate::bump::{Bump, NO_BUMP, Tap};
use crate::divert::{DivertConfig, Method, Selection};
use crate::error::{Error, Result};
use crate::netlink::Link;
use crate::tun::{Tun, TunConfig};

/// Interfaces that there may be at a time, unless more are named. The journal has names for so
/// many.
const INTERFACES_MAX: usize = 120;
/// Links that may be added while the gateway runs.
const SPARE_LINKS: usize = 4;
/// Of a bump the ordinary interfaces have ranks from here on: a link comes first.
const ORDINARY_RANKS: u16 = 128;
/// A number of an interface that is larger is a rank as it is, behind all others.
const LARGE: u16 = 256;

/// Interfaces, devices, and what makes more of them.
pub(super) struct Setup {
    pub(super) ports: Vec<Port>,
    pub(super) faces: Faces,
    pub(super) maker: Maker,
    /// `None`: policy routing is to lead to the devices.
    pub(super) bump: Option<Arc<Bump>>,
}

/// What it takes to make devices.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) divert: DivertConfig,
    queue_packets: u32,
    pub(super) pulse: Arc<Pulse>,
    bump: Option<Arc<Bump>>,
    workshop: Workshop,
    /// Only interfaces that say so have a bump.
    is_chosen: bool,
}

impl Setup {
    /// Makes the devices of the interfaces that are named. Nothing leads to them yet.
    pub(super) fn make(config: &DriverConfig) -> Result<Self> {
        let named = config.gateway.interfaces.iter().filter(|i| !i.name.is_empty());
        if named.clone().next().is_none() && config.finders.iter().all(|finder| !finder.divert) {
            return Err(Error::Refused("no interface is to be diverted".to_owned()));
        }
        let unknown = config.divert.attach.iter().find(|name| !named.clone().any(|i| i.name == **name));
        if let Some(unknown) = unknown {
            return Err(Error::Refused(format!("interface {unknown} is not diverted, so it gets no bump")));
        }
        let bump = load(&config.divert)?.map(Arc::new);
        let sides = if bump.is_some() { 2 } else { 1 };
        let maker = Maker {
            divert: config.divert.clone(),
            queue_packets: config.queue_packets,
            pulse: Arc::new(Pulse::new(config.gateway.interfaces.len() * sides)),
            bump: bump.clone(),
            workshop: Workshop::open()?,
            is_chosen: is_chosen(&config.divert, &config.finders),
        };
        let (mut ports, mut faces) = (Vec::new(), Faces::default());
        for interface in named {
            let mut port = Maker::port(interface, true, false);
            let (has_devices, rank) = maker.wants(&port);
            port.rank = rank;
            if has_devices {
                port.faces = maker.devices(port.id, &mut faces)?;
            }
            ports.push(port);
        }
        Ok(Self { ports, faces, maker, bump })
    }
}

/// Only interfaces that say so have a bump.
fn is_chosen(divert: &DivertConfig, finders: &[Finder]) -> bool {
    !divert.attach.is_empty() || finders.iter().any(|finder| finder.attach && finder.divert)
}

impl Maker {
    /// A port for an interface, without devices. `attach`: it was found, and is to have a bump.
    pub(super) fn port(interface: &Interface, is_named: bool, attach: bool) -> Port {
        Port {
            id: interface.id,
            interface: interface.name.clone(),
            called: interface.name.clone(),
            domain: interface.domain,
            is_named,
            is_link: interface.link.is_some(),
            attach,
            moved_to: None,
            index: None,
            is_usable: false,
            is_told_up: true,
            faces: 0..0,
            rank: NO_BUMP,
        }
    }

    /// Whether a port is to have devices, and which rank.
    pub(super) fn wants(&self, port: &Port) -> (bool, u16) {
        if self.bump.is_none() {
            return (true, NO_BUMP);
        }
        let is_named = port.is_named && self.divert.attach.contains(&port.interface);
        match port.attach || is_named || !self.is_chosen {
            true => (true, self.rank(port.id, port.is_link)),
            false => (false, NO_BUMP),
        }
    }

    /// These named interfaces, and those that are found so, have bumps from here on; none: all.
    /// Whether that is something else.
    pub(super) fn attach_to(&mut self, attach: Vec<String>, finders: &[Finder]) -> bool {
        let was = (self.is_chosen, std::mem::replace(&mut self.divert.attach, attach));
        self.is_chosen = is_chosen(&self.divert, finders);
        self.bump.is_some() && (self.is_chosen != was.0 || self.divert.attach != was.1)
    }

    /// Everything is taken that leaves by these interfaces from here on. Whether that is something
    /// else.
    pub(super) fn take_all_of(&mut self, whole: &[String]) -> bool {
        let before = self.divert.selections.clone();
        self.divert.take_all_of(whole);
        self.divert.selections != before
    }

    /// Interfaces of which everything is taken because somebody has said so.
    pub(super) fn said_whole(&self) -> Vec<String> {
        let is_said = |name: &&str| !self.divert.whole_when_known.iter().any(|known| known == name);
        self.divert.whole_interfaces().filter(is_said).map(str::to_owned).collect()
    }

    /// So far nobody knows the rate of these links: all that leaves by them is taken once it is
    /// known.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &str> {
        let is_taken = |name: &&str| self.divert.whole_interfaces().any(|whole| whole == *name);
        self.divert.whole_when_known.iter().map(String::as_str).filter(move |name| !is_taken(name))
    }

    /// The same of an interface that has a bump.
    pub(super) fn follow_selection(&self, port: &Port) {
        let (Some(bump), Some(index)) = (&self.bump, port.index) else { return };
        if let Err(error) = bump.configure(index, port.rank, self.takes_all_of(port)) {
            let interface = &port.called;
            tracing::error!(interface, %error, "what leaves by this interface is taken as before");
        }
    }

    /// Of two bumps the one with the smaller rank takes what passes both: a link's, or the one that
    /// is named first.
    fn rank(&self, id: IfaceId, is_link: bool) -> u16 {
        match id.0 {
            n if n >= ORDINARY_RANKS => LARGE.saturating_add(n),
            n if is_link || self.is_chosen => n,
            n => ORDINARY_RANKS + n,
        }
    }

    /// A queue for each side of a bump: acknowledgements are not to wait behind data.
    pub(super) fn devices(&self, of: IfaceId, faces: &mut Faces) -> Result<Range<usize>> {
        let sides = if self.bump.is_some() { 2 } else { 1 };
        let room = faces.room(sides);
        if room.end > self.pulse.ports.len() {
            return Err(Error::Refused("there are too many interfaces".to_owned()));
        }
        for n in room.clone() {
            match self.device(n) {
                Ok(face) => faces.put(n, of, face),
                Err(error) => {
                    self.discard(self.take(&room, faces));
                    return Err(error);
                }
            }
        }
        Ok(room)
    }

    fn device(&self, n: usize) -> Result<Face> {
        let made = TunConfig { name: self.divert.tun_name(n), queue_packets: self.queue_packets };
        let pulse = (Arc::clone(&self.pulse), n);
        let face = match &self.bump {
            Some(bump) => {
                let tap = Tap::create(&made)?;
                let (bump, index) = (Arc::clone(bump), tap.index());
                self.workshop.order(move || {
                    if let Err(error) = bump.serve(index) {
                        tracing::error!(device = index, %error, "what is written to this device goes nowhere");
                    }
                });
                Face::of_tap(tap, pulse)
            }
            None => Face::of_tun(Tun::create(&made)?, pulse),
        };
        if let Some(port) = self.pulse.ports.get(n) {
            port.set_there(true);
        }
        Ok(face)
    }

    /// Takes devices away.
    pub(super) fn take(&self, range: &Range<usize>, faces: &mut Faces) -> Vec<Face> {
        let mut taken = Vec::new();
        for n in range.clone() {
            taken.extend(faces.take(n));
            if let Some(port) = self.pulse.ports.get(n) {
                port.set_there(false);
            }
        }
        taken
    }

    /// These devices are needed no more.
    pub(super) fn discard(&self, faces: Vec<Face>) {
        let bump = self.bump.clone();
        self.workshop.order(move || {
            if let Some(bump) = bump {
                faces.iter().for_each(|face| bump.release(face.index()));
            }
            drop(faces);
        });
    }

    /// What passes an interface meets a bump from here on, with these devices.
    pub(super) fn attach(&self, port: &Port, link: &Link, devices: Option<(u32, u32)>) {
        let Some(bump) = self.bump.clone() else { return };
        let (link, whole) = (link.clone(), self.takes_all_of(port));
        let tell = |interface: &str, error: Error| {
            tracing::error!(interface, %error, "what passes this interface is not diverted");
        };
        // At once: what leaves here goes by the same rank.
        if let Err(error) = bump.configure(link.index, port.rank, whole) {
            tell(&link.name, error);
        }
        self.workshop.order(move || {
            if let Err(error) = bump.attach(&link, devices) {
                tell(&link.name, error);
            }
        });
    }

    /// This interface is gone, or no concern any more.
    pub(super) fn detach(&self, interface: u32) {
        let Some(bump) = self.bump.clone() else { return };
        bump.ignore(interface);
        self.workshop.order(move || bump.leave(interface));
    }

    /// Waits until all of that is done.
    pub(super) fn wait(&self) {
        self.workshop.wait();
    }

    /// Everything is taken that leaves by some link.
    pub(super) fn takes_everything(&self) -> bool {
        self.divert.takes_everything()
    }

    /// Everything is taken that leaves by its interface.
    pub(super) fn takes_all_of(&self, port: &Port) -> bool {
        self.divert.whole_interfaces().any(|name| name == port.interface)
    }
}

/// The configuration of a gateway to which interfaces can be added: with spare ones, in the routing
/// domains that it has.
pub(super) fn with_spare_ones(told: &mut DriverConfig) {
    let room = INTERFACES_MAX.min(told.divert.capacity() as usize);
    let interfaces = &mut told.gateway.interfaces;
    let spare = room.saturating_sub(interfaces.len());
    let mut domains: Vec<u16> = interfaces.iter().map(|i| i.domain).collect();
    domains.extend(told.finders.iter().map(|finder| finder.domain));
    domains.push(0);
    domains.sort_unstable();
    domains.dedup();
    let links = SPARE_LINKS.min(spare / 4);
    let first = interfaces.iter().map(|i| i.id.0.saturating_add(1)).max().unwrap_or(0);
    let spares = (first..).zip(0..spare).map(|(id, n)| Interface {
        id: IfaceId(id),
        name: String::new(),
        domain: domains.get(n % domains.len()).copied().unwrap_or(0),
        addresses: Vec::new(),
        link: (n < links).then(config::Link::default),
    });
    let spares: Vec<_> = spares.collect();
    interfaces.extend(spares);
}

/// The programs, where they are wanted and the kernel has the means.
fn load(divert: &DivertConfig) -> Result<Option<Bump>> {
    if divert.method == Method::Policy {
        return Ok(None);
    }
    let protocols: Vec<u8> = divert
        .selections
        .iter()
        .filter_map(|s| match s {
            Selection::Protocol(protocol) => Some(*protocol),
            _ => None,
        })
        .collect();
    match Bump::load(&protocols).and_then(|bump| bump.probe().map(|()| bump)) {
        Ok(bump) => {
            tracing::info!("traffic is diverted by bumps");
            Ok(Some(bump))
        }
        Err(error) if divert.method == Method::Auto => {
            tracing::warn!(%error, "there can be no bump here: traffic is diverted by policy routing");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
