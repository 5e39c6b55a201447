//! What a driver begins with, and how devices are made: then, and for interfaces that come later.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use farlink_gateway::IfaceId;
use farlink_gateway::config::{self, Interface};

use super::DriverConfig;
use super::face::Face;
use super::faces::Faces;
use super::network::Port;
use super::pulse::Pulse;
use super::wanted::{Finder, found_by};
use super::workshop::Workshop;
use crate::bump::{Bump, NO_BUMP, Tap};
use crate::divert::{self, Diagnosis, DivertConfig, Method, Selection};
use crate::error::{Error, Result};
use crate::event_loop::Waker;
use crate::netlink::Link;
use crate::spread;
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
    /// Why there is none, although there was to be one where that can be.
    pub(super) no_bump: Option<Diagnosis>,
}

/// What it takes to make devices.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) divert: DivertConfig,
    queue_packets: u32,
    pub(super) pulse: Arc<Pulse>,
    bump: Option<Arc<Bump>>,
    workshop: Workshop,
    made: (Sender<Made>, Receiver<Made>),
    /// Woken when a device has been made.
    news: Arc<Waker>,
    /// Only interfaces that say so have a bump.
    is_chosen: bool,
}

/// A device that was ordered, or why there is none.
#[derive(Debug)]
pub(super) struct Made {
    /// Its number.
    pub(super) n: usize,
    /// With the file that spreads what the kernel does for it.
    pub(super) device: Result<(Face, Option<Arc<File>>)>,
}

impl Setup {
    /// Makes the devices of the interfaces that are named. Nothing leads to them yet.
    pub(super) fn make(config: &DriverConfig, news: Arc<Waker>) -> Result<Self> {
        let named = config.gateway.interfaces.iter().filter(|i| !i.name.is_empty());
        if named.clone().next().is_none() && config.finders.iter().all(|finder| !finder.divert) {
            return Err(Error::Refused("no interface is to be diverted".to_owned()));
        }
        let unknown = config.divert.attach.iter().find(|name| !named.clone().any(|i| i.name == **name));
        if let Some(unknown) = unknown {
            return Err(Error::Refused(format!("interface {unknown} is not diverted, so it gets no bump")));
        }
        let mut names: Vec<String> = named.clone().map(|i| i.name.clone()).collect();
        // What is not there yet has nothing in a bump's place either.
        names.extend(found_by(&config.finders).unwrap_or_default());
        let (bump, no_bump) = load(&config.divert, &names)?;
        let bump = bump.map(Arc::new);
        let sides = if bump.is_some() { 2 } else { 1 };
        let maker = Maker {
            divert: config.divert.clone(),
            queue_packets: config.queue_packets,
            pulse: Arc::new(Pulse::new(config.gateway.interfaces.len() * sides)),
            bump: bump.clone(),
            workshop: Workshop::open()?,
            made: channel(),
            news,
            is_chosen: is_chosen(&config.divert, &config.finders),
        };
        let (mut ports, mut faces) = (Vec::new(), Faces::default());
        for interface in named {
            let mut port = Maker::port(interface, true, false);
            let (has_devices, rank) = maker.wants(&port);
            port.rank = rank;
            if has_devices {
                port.faces = maker.reserve(port.id, &mut faces)?;
                port.faces.clone().for_each(|n| maker.order_device(n));
            }
            ports.push(port);
        }
        maker.wait();
        while let Some(made) = maker.next_made() {
            faces.put(made.n, made.device?.0);
        }
        Ok(Self { ports, faces, maker, bump, no_bump })
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
            rank_in_force: Arc::new(AtomicU16::new(NO_BUMP)),
            let_go: None,
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
        let (bump, interface) = (Arc::clone(bump), port.called.clone());
        let (rank, whole) = (port.rank, self.takes_all_of(port));
        let in_force = Arc::clone(&port.rank_in_force);
        self.workshop.order(move || match bump.configure(index, rank, whole) {
            Ok(()) => in_force.store(rank, Ordering::Relaxed),
            Err(error) => {
                tracing::error!(interface, %error, "what leaves by this interface is taken as before");
            }
        });
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

    /// Numbers for the devices of an interface. A queue for each side of a bump: acknowledgements
    /// are not to wait behind data.
    pub(super) fn reserve(&self, of: IfaceId, faces: &mut Faces) -> Result<Range<usize>> {
        let sides = if self.bump.is_some() { 2 } else { 1 };
        let room = faces.room(sides);
        if room.end > self.pulse.ports.len() {
            return Err(Error::Refused("there are too many interfaces".to_owned()));
        }
        faces.reserve(&room, of);
        Ok(room)
    }

    /// A device of this number is made soon: see [`Maker::next_made`].
    pub(super) fn order_device(&self, n: usize) {
        let made = TunConfig { name: self.divert.tun_name(n), queue_packets: self.queue_packets };
        let (pulse, bump) = (Arc::clone(&self.pulse), self.bump.clone());
        let (out, news) = (self.made.0.clone(), Arc::clone(&self.news));
        self.workshop.order(move || {
            let device = make_device(&made, bump.as_deref(), (pulse, n));
            if out.send(Made { n, device }).is_ok() {
                news.wake();
            }
        });
    }

    /// A device that has been made, or could not be.
    pub(super) fn next_made(&self) -> Option<Made> {
        self.made.1.try_recv().ok()
    }

    /// Woken when something has been made.
    pub(super) fn news(&self) -> Arc<Waker> {
        Arc::clone(&self.news)
    }

    /// Somebody does this soon, who may wait for the kernel.
    pub(super) fn order(&self, work: impl FnOnce() + Send + 'static) {
        self.workshop.order(work);
    }

    /// Takes devices away.
    pub(super) fn take(&self, range: &Range<usize>, faces: &mut Faces) -> Vec<Face> {
        let mut taken = Vec::new();
        for n in range.clone() {
            taken.extend(faces.take(n));
            self.note_there(n, false);
        }
        taken
    }

    /// There is a device of this number, or no longer.
    pub(super) fn note_there(&self, n: usize, is_there: bool) {
        if let Some(port) = self.pulse.ports.get(n) {
            port.set_there(is_there);
        }
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
        let (rank, in_force) = (port.rank, Arc::clone(&port.rank_in_force));
        self.workshop.order(move || {
            match bump.configure(link.index, rank, whole) {
                Ok(()) => in_force.store(rank, Ordering::Relaxed),
                Err(error) => tracing::error!(interface = link.name, %error, "what passes this interface is not diverted"),
            }
            // What cannot be done the guard sees, says and tries again.
            let _ = bump.attach(&link, devices);
        });
    }

    /// So much has been ordered of the thread that may wait for the kernel.
    pub(super) fn ordered(&self) -> u64 {
        self.workshop.ordered()
    }

    /// Whether that has been done.
    pub(super) fn has_done(&self, ordered: u64) -> bool {
        self.workshop.has_done(ordered)
    }

    /// This interface is gone, or no concern any more.
    pub(super) fn detach(&self, interface: u32) {
        let Some(bump) = self.bump.clone() else { return };
        self.workshop.order(move || {
            bump.ignore(interface);
            bump.leave(interface);
        });
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

/// Makes a device, which takes the kernel some time.
fn make_device(
    made: &TunConfig,
    bump: Option<&Bump>,
    pulse: (Arc<Pulse>, usize),
) -> Result<(Face, Option<Arc<File>>)> {
    let there = Arc::clone(&pulse.0);
    let n = pulse.1;
    let face = match bump {
        Some(bump) => {
            let tap = Tap::create(made)?;
            bump.serve(tap.index())?;
            Face::of_tap(tap, pulse)
        }
        None => Face::of_tun(Tun::create(made)?, pulse),
    };
    if let Some(port) = there.ports.get(n) {
        port.set_there(true);
    }
    let file = spread::file_of(face.name(), face.index());
    Ok((face, file))
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

/// The programs, where they are wanted and the kernel has the means; or why there are none.
/// `interfaces`: those that are to be diverted.
fn load(divert: &DivertConfig, interfaces: &[String]) -> Result<(Option<Bump>, Option<Diagnosis>)> {
    if divert.method == Method::Policy {
        return Ok((None, None));
    }
    let protocols: Vec<u8> = divert
        .selections
        .iter()
        .filter_map(|s| match s {
            Selection::Protocol(protocol) => Some(*protocol),
            _ => None,
        })
        .collect();
    let is_auto = divert.method == Method::Auto;
    // Who insists on bumps hears of each interface that has no room for one.
    let may_be = |bump: &Bump| if is_auto { bump.is_free_at(interfaces) } else { bump.probe().map(drop) };
    match Bump::load(&protocols).and_then(|bump| may_be(&bump).map(|()| bump)) {
        Ok(bump) => {
            tracing::info!("traffic is diverted by bumps");
            Ok((Some(bump), None))
        }
        Err(error) if is_auto => {
            tracing::warn!(%error, "there can be no bump here: traffic is diverted by policy routing");
            Ok((None, Some(divert::by_policy(&error))))
        }
        Err(error) => Err(error),
    }
}
