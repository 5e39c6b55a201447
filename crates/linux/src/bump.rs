//! A bump on the wire of an interface: what is selected of the packets that come in or leave by it
//! goes to devices of ours first, by two small programs at the interface (`bpf::Attached`).
//!
//! The gateway then stands outside of the router's own stack. Filters, connection tracking, NAT and
//! routing see each packet once, with its true interfaces. The programs go with the process.

mod assembler;
mod frame;
mod marks;
mod program;
mod skb;
mod standing;
mod tap;
mod words;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farlink_wire::ip::PROTOCOL_TCP;
pub use marks::{Marking, Marks, Place};
pub use standing::{Post, Refusal, Stand};
pub use tap::{Arrival, Mac, Side, Tap, Target, Way, injected_source};

use crate::bpf::{self, ARRAY, DEVICE_HASH, HASH, Map, Means};
use crate::classifier;
use crate::divert::Families;
use crate::error::{Error, Holder, Result};
use crate::netlink::{Family, Link, Socket};
use marks::Words;
use program::Tables;
use words::{
    CONFIGURED, Entry, RANK_SHIFT, SLOT_LEFT, SLOT_PLAIN, SLOT_SENT, SLOT_V6, SLOTS, WHOLE, WITHOUT_V4,
    WITHOUT_V6,
};

/// Interfaces that there can be.
const INTERFACES_MAX: u32 = 4096;

/// Bumps whose packets are counted.
const COUNTED_MAX: u32 = 256;

/// The rank of an interface that has no bump.
pub const NO_BUMP: u16 = u16::MAX;
/// Number of the loopback interface of every network namespace.
const LOOPBACK: u32 = 1;

/// The programs for interfaces of one kind.
#[derive(Debug)]
struct Programs {
    ingress: OwnedFd,
    egress: OwnedFd,
}

impl Programs {
    fn load(has_ethernet: bool, tables: &Tables<'_>) -> Result<Self> {
        let load = |name, side| bpf::load(name, &program::capture(side, has_ethernet, tables)?);
        Ok(Self {
            ingress: load("farlink-in", bpf::Side::Ingress)?,
            egress: load("farlink-out", bpf::Side::Egress)?,
        })
    }
}

/// TCP packets of one family that came in by a bumped interface, and of Farlink that left by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// SYNs that left the machine by another configured interface. With those that were not taken
    /// since their family is let go.
    pub syns: u64,
    /// The same of other packets.
    pub others: u64,
    /// SYNs that would have been taken, had their family not been let go.
    pub plain: u64,
    /// SYNs of Farlink that have left by the bumped interface.
    pub sent_syns: u64,
    /// The same of other packets.
    pub sent_others: u64,
}

/// All bumps of a gateway. Dropped, they are gone, and packets take their ordinary way.
#[derive(Debug)]
pub struct Bump {
    /// Bumped interface -> its devices.
    incoming: Map<u32>,
    leaving: Map<u32>,
    interfaces: Map<Entry>,
    counts: Map<u64>,
    /// Interface -> its hardware address.
    addresses: Map<[u8; 8]>,
    marks: Map<Words>,
    ethernet: Programs,
    plain: Programs,
    inject: OwnedFd,
    /// To change it takes no time.
    configured: Mutex<Configured>,
    /// To change it takes the kernel some time.
    attached: Mutex<Attached>,
}

/// What the programs know.
#[derive(Debug)]
struct Configured {
    /// Of an interface, but for the families.
    interfaces: HashMap<u32, u32>,
    /// What is taken.
    families: Families,
}

/// Where programs stand.
#[derive(Debug, Default)]
struct Attached {
    /// Device -> its program.
    served: HashMap<u32, Served>,
    /// Configured interface -> what holds the programs there.
    held: HashMap<u32, Held>,
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program of a device.
#[derive(Debug)]
enum Served {
    By(bpf::Attached),
    Refused(Refusal),
}

impl Served {
    fn post(&self, device: u32) -> Result<Post> {
        let stand = match self {
            Self::By(program) if program.stands_at()? == Some(device) => Stand::Whole,
            Self::By(program) => Stand::Removed(program.means()),
            Self::Refused(refusal) => Stand::Refused(refusal.clone()),
        };
        Ok(Post { sides: &[bpf::Side::Ingress], devices: None, is_device: true, stand })
    }
}

/// The programs at an interface.
#[derive(Debug)]
struct Held {
    /// Its packets begin with an Ethernet header.
    has_ethernet: bool,
    /// At which sides one is wanted.
    sides: &'static [bpf::Side],
    /// Where its packets go.
    devices: Option<(u32, u32)>,
    /// What holds the programs: of each side, or none.
    programs: Vec<bpf::Attached>,
    /// The device that has the interface's name: see [`claim`].
    claimed_by: Option<u32>,
    /// Its packets do not go to the devices yet.
    is_unled: bool,
    /// Why there are no programs.
    refusal: Option<Refusal>,
}

impl Held {
    fn post(&self, interface: u32) -> Result<Post> {
        let mut stand = match &self.refusal {
            Some(refusal) => Stand::Refused(refusal.clone()),
            None => Stand::Whole,
        };
        for program in &self.programs {
            if program.stands_at()? != Some(interface) {
                stand = Stand::Removed(program.means());
            }
        }
        Ok(Post { sides: self.sides, devices: self.devices, is_device: false, stand })
    }

    fn release(&mut self, interface: u32) {
        if let Some(device) = self.claimed_by.take() {
            release(interface, device);
        }
    }
}

impl Bump {
    /// Loads the programs. `protocols`: IP protocols of which packets, and ICMP errors about them,
    /// are taken; one at least.
    ///
    /// # Errors
    /// The kernel refuses bpf(2), or is too old.
    pub fn load(protocols: &[u8]) -> Result<Self> {
        let devices = || Map::new(DEVICE_HASH, INTERFACES_MAX);
        let interfaces = Map::new(HASH, INTERFACES_MAX)?;
        let counts = Map::new(ARRAY, COUNTED_MAX * SLOTS)?;
        let maps = (devices()?, devices()?, interfaces, counts);
        let (incoming, leaving, interfaces, counts) = (&maps.0, &maps.1, &maps.2, &maps.3);
        let marks = marks::map()?;
        let tables =
            |has_ipsec| Tables { incoming, leaving, interfaces, counts, marks: &marks, has_ipsec, protocols };
        // A kernel without IPsec does not know the question about it.
        let ethernet = Programs::load(true, &tables(true));
        let has_ipsec = ethernet.is_ok();
        let ethernet = ethernet.or_else(|_| Programs::load(true, &tables(false)))?;
        let plain = Programs::load(false, &tables(has_ipsec))?;
        let addresses = Map::new(HASH, INTERFACES_MAX)?;
        let inject = bpf::load("farlink-inject", &frame::inject(&addresses, &marks)?)?;
        let (incoming, leaving, interfaces, counts) = maps;
        Ok(Self {
            incoming,
            leaving,
            interfaces,
            counts,
            addresses,
            marks,
            ethernet,
            plain,
            inject,
            configured: Mutex::new(Configured { interfaces: HashMap::new(), families: Families::BOTH }),
            attached: Mutex::default(),
        })
    }

    /// The table of marks and priorities, which one writes alone.
    ///
    /// # Errors
    /// The kernel has no room for it.
    pub fn marks(&self) -> Result<Marks> {
        Marks::of(&self.marks)
    }

    /// Whether programs can be attached here, at the loopback interface for a moment; and by what.
    ///
    /// # Errors
    /// The kernel cannot, or does not let us.
    pub fn probe(&self) -> Result<Means> {
        bpf::Attached::at(&self.ethernet.egress, LOOPBACK, bpf::Side::Egress).map(|held| held.means())
    }

    /// Whether this process can have bumps here.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn is_possible() -> Result<()> {
        Self::load(&[PROTOCOL_TCP]).and_then(|bump| bump.probe()).map(drop)
    }

    /// The same for bumps at these interfaces, where something else may be done: before Linux 6.6
    /// they take the place of the qdisc `ingress`, which others may have, or want.
    ///
    /// # Errors
    /// Why it cannot, or [`crate::Error::Held`].
    pub fn is_free_at(&self, interfaces: &[String]) -> Result<()> {
        match self.probe()? {
            Means::Tcx => Ok(()),
            Means::Filter => classifier::may_stand_at(interfaces, Path::new("/")),
        }
    }

    /// As [`Bump::is_free_at`], of a process that has none yet.
    ///
    /// # Errors
    /// As there.
    pub fn is_possible_at(interfaces: &[String]) -> Result<()> {
        Self::load(&[PROTOCOL_TCP]).and_then(|bump| bump.is_free_at(interfaces))
    }

    /// From here on what is written to this device reaches interfaces.
    ///
    /// # Errors
    /// The kernel cannot.
    pub fn serve(&self, device: u32) -> Result<()> {
        // One that was taken away must not take the new one along. Nobody is to miss a program that
        // is only just put there.
        let old = locked(&self.attached).served.remove(&device);
        let was_served = old.is_some();
        drop(old);
        let (served, outcome) = match bpf::Attached::at(&self.inject, device, bpf::Side::Ingress) {
            Ok(program) => (Served::By(program), Ok(())),
            Err(error) => (Served::Refused(Refusal::from(&error)), Err(error)),
        };
        if was_served || outcome.is_ok() {
            locked(&self.attached).served.insert(device, served);
        }
        outcome
    }

    /// This device is gone, or about to go.
    pub fn release(&self, device: u32) {
        let held = locked(&self.attached).served.remove(&device);
        drop(held);
    }

    /// Traffic from and to this interface may be taken where it passes a bump: that of the two
    /// interfaces with the smaller rank. `rank` of one without a bump: [`NO_BUMP`]. `whole`: all
    /// that leaves by it.
    ///
    /// # Errors
    /// There are too many.
    pub fn configure(&self, interface: u32, rank: u16, whole: bool) -> Result<()> {
        let flags = if whole { CONFIGURED | WHOLE } else { CONFIGURED };
        let entry = u32::from(rank) << RANK_SHIFT | flags;
        let mut configured = locked(&self.configured);
        configured.interfaces.insert(interface, entry);
        self.write(interface, entry | without(configured.families))
    }

    /// What has been seen stays seen.
    fn write(&self, interface: u32, entry: u32) -> Result<()> {
        let [_, came, left] = self.interfaces.get(interface).unwrap_or_default();
        self.interfaces.put(interface, [entry, came, left])
    }

    /// Whether the programs at an interface have seen a packet that came in, and one that left,
    /// since [`Bump::forget_seen`].
    #[must_use]
    pub fn seen(&self, interface: u32) -> [bool; 2] {
        let [_, came, left] = self.interfaces.get(interface).unwrap_or_default();
        [came != 0, left != 0]
    }

    /// See [`Bump::seen`].
    pub fn forget_seen(&self, interface: u32) {
        let configured = locked(&self.configured);
        if let Some(entry) = configured.interfaces.get(&interface) {
            // What is there can be replaced.
            let _ = self.interfaces.put(interface, [entry | without(configured.families), 0, 0]);
        }
    }

    /// Which families are taken from here on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_families(&self, families: Families) -> Result<()> {
        let mut configured = locked(&self.configured);
        configured.families = families;
        let write = |(interface, entry): (&u32, &u32)| self.write(*interface, entry | without(families));
        configured.interfaces.iter().try_for_each(write)
    }

    /// Which families are taken.
    #[must_use]
    pub fn families(&self) -> Families {
        locked(&self.configured).families
    }

    /// Packets of this interface go to these devices from here on: what comes in, and what leaves.
    /// Without devices it is only counted what leaves. Where programs stand they stay. What could
    /// not be done is wanted all the same: see [`Bump::posts`].
    ///
    /// # Errors
    /// A device has gone, somebody else has the place, or the kernel refuses.
    pub fn attach(&self, interface: &Link, devices: Option<(u32, u32)>) -> Result<()> {
        let index = interface.index;
        if let Some([a, b, c, d, e, f]) = interface.ethernet {
            self.addresses.put(index, [a, b, c, d, e, f, 0, 0])?;
        }
        let sides: &[_] =
            if devices.is_some() { &[bpf::Side::Ingress, bpf::Side::Egress] } else { &[bpf::Side::Egress] };
        let mut attached = locked(&self.attached);
        let held = attached.held.entry(index).or_insert_with(|| Held {
            has_ethernet: interface.ethernet.is_some(),
            sides,
            devices,
            programs: Vec::new(),
            claimed_by: None,
            is_unled: true,
            refusal: None,
        });
        if devices.is_none() {
            self.take_nothing_of(index);
        }
        if held.devices != devices {
            held.release(index);
        }
        if held.sides != sides {
            held.programs.clear();
        }
        (held.sides, held.devices, held.is_unled) = (sides, devices, true);
        self.put_up(index, held)
    }

    /// The interfaces, and the devices, at which programs are wanted, and how those stand.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn posts(&self) -> Result<HashMap<u32, Post>> {
        let attached = locked(&self.attached);
        let mut posts = HashMap::new();
        for (device, served) in &attached.served {
            posts.insert(*device, served.post(*device)?);
        }
        for (interface, held) in &attached.held {
            posts.insert(*interface, held.post(*interface)?);
        }
        Ok(posts)
    }

    /// Attaches the programs again that belong to this interface or device.
    ///
    /// # Errors
    /// It is gone, somebody else has the place, or the kernel refuses.
    pub fn put_back(&self, index: u32) -> Result<()> {
        let mut attached = locked(&self.attached);
        if attached.served.contains_key(&index) {
            drop(attached);
            return self.serve(index);
        }
        let Some(held) = attached.held.get_mut(&index) else { return Ok(()) };
        // Two of the same would take a packet twice.
        held.programs.clear();
        self.put_up(index, held)
    }

    /// Does what is missing at an interface, or says why it cannot be done.
    fn put_up(&self, index: u32, held: &mut Held) -> Result<()> {
        let outcome = self.try_put_up(index, held);
        held.refusal = outcome.as_ref().err().map(Refusal::from);
        if outcome.is_err() {
            // At one side alone they would take one direction only.
            held.programs.clear();
        }
        outcome
    }

    fn try_put_up(&self, index: u32, held: &mut Held) -> Result<()> {
        if let Some((incoming, leaving)) = held.devices.filter(|_| held.is_unled) {
            self.incoming.put(index, incoming)?;
            self.leaving.put(index, leaving)?;
        }
        held.is_unled = false;
        if let Some((device, _)) = held.devices
            && held.claimed_by != Some(device)
        {
            claim(index, device)?;
            held.claimed_by = Some(device);
        }
        let programs = if held.has_ethernet { &self.ethernet } else { &self.plain };
        for side in held.sides.iter().skip(held.programs.len()) {
            let program = if *side == bpf::Side::Ingress { &programs.ingress } else { &programs.egress };
            held.programs.push(bpf::Attached::at(program, index, *side)?);
        }
        Ok(())
    }

    /// TCP packets of a family that came in at the bump of this rank.
    #[must_use]
    pub fn passed(&self, rank: u16, family: Family) -> Passed {
        let of = if family == Family::V6 { SLOT_V6 } else { 0 };
        let count = |slot| self.counts.get(u32::from(rank) * SLOTS + of + slot).unwrap_or(0);
        Passed {
            syns: count(SLOT_LEFT),
            others: count(SLOT_LEFT + 1),
            plain: count(SLOT_PLAIN),
            sent_syns: count(SLOT_SENT),
            sent_others: count(SLOT_SENT + 1),
        }
    }

    /// This interface is gone, or no concern any more: its packets take their ordinary way. The
    /// programs stand there until [`Bump::leave`].
    pub fn ignore(&self, interface: u32) {
        self.take_nothing_of(interface);
        self.interfaces.take_out(interface);
        locked(&self.configured).interfaces.remove(&interface);
    }

    /// Takes the programs away from an interface.
    pub fn leave(&self, interface: u32) {
        self.addresses.take_out(interface);
        let held = locked(&self.attached).held.remove(&interface);
        if let Some(mut held) = held {
            held.release(interface);
        }
    }

    /// All packets take their ordinary way. What is written still arrives. The programs stay until
    /// this is dropped: to take one away takes the kernel some time.
    pub fn take_nothing(&self) {
        for (interface, held) in &mut locked(&self.attached).held {
            self.take_nothing_of(*interface);
            held.is_unled = false;
        }
    }

    fn take_nothing_of(&self, interface: u32) {
        self.incoming.take_out(interface);
        self.leaving.take_out(interface);
    }
}

/// One bump at an interface, of whichever process: two would give each other every packet for ever.
/// Its device takes the interface's number as one more name. No two devices of a network namespace
/// have the same, only who may configure the network gives one, and it goes with the device, which
/// goes with the process.
fn claim(interface: u32, device: u32) -> Result<()> {
    let claimed = Socket::open()?.link_name_add(device, &claim_name(interface));
    claimed.map_err(|error| match error.is(libc::EEXIST) {
        true => Error::Held {
            by: Holder::Farlink,
            what: format!(
                "another Farlink process has a bump at interface {interface}; two of them need different interfaces (`attach`)"
            ),
        },
        false => error,
    })
}

fn claim_name(interface: u32) -> String {
    format!("farlink-bump-{interface}")
}

/// Another process may have a bump there.
fn release(interface: u32, device: u32) {
    // One that is gone has no names either.
    let _ = Socket::open().and_then(|mut socket| socket.link_name_remove(device, &claim_name(interface)));
}

/// What the programs are told of families that are let go.
fn without(families: Families) -> u32 {
    let v4 = if families.v4 { 0 } else { WITHOUT_V4 };
    let v6 = if families.v6 { 0 } else { WITHOUT_V6 };
    v4 | v6
}
