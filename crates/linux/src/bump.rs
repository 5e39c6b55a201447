//! A bump on the wire of an interface: what is selected of the packets that come in or leave by it
//! goes to devices of ours first, by two small programs at the interface (`bpf::Attached`).
//!
//! The gateway then stands outside of the router's own stack. Filters, connection tracking, NAT and
//! routing see each packet once, with its true interfaces. The programs go with the process.

mod assembler;
mod program;
mod tap;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farlink_wire::ip::PROTOCOL_TCP;
pub use tap::{Arrival, Mac, Side, Tap, Target, Way, injected_source};

use crate::bpf::{self, ARRAY, DEVICE_HASH, HASH, Map};
use crate::divert::Families;
use crate::error::{Error, Result};
use crate::listener;
use crate::netlink::{Family, Link};
use crate::programs::helper;
use program::{
    CONFIGURED, RANK_SHIFT, SLOT_LEFT, SLOT_PLAIN, SLOT_V6, SLOTS, Tables, WHOLE, WITHOUT_V4, WITHOUT_V6,
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

/// TCP packets of one family that came in by a bumped interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// SYNs that left the machine by another configured interface. With those that were not taken
    /// since their family is let go.
    pub syns: u64,
    /// The same of other packets.
    pub others: u64,
    /// SYNs that would have been taken, had their family not been let go.
    pub plain: u64,
}

/// All bumps of a gateway. Dropped, they are gone, and packets take their ordinary way.
#[derive(Debug)]
pub struct Bump {
    /// Bumped interface -> its devices.
    incoming: Map<u32>,
    leaving: Map<u32>,
    interfaces: Map<u32>,
    counts: Map<u64>,
    /// Interface -> its hardware address.
    addresses: Map<[u8; 8]>,
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
    /// Device -> what holds the program there; `None`: the kernel has refused.
    served: HashMap<u32, Option<bpf::Attached>>,
    /// Configured interface -> what holds the programs there.
    held: HashMap<u32, Held>,
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The programs at an interface.
#[derive(Debug)]
struct Held {
    /// Its packets begin with an Ethernet header.
    has_ethernet: bool,
    /// At which sides one stands.
    sides: &'static [bpf::Side],
    /// What holds them; fewer where the kernel has refused.
    programs: Vec<bpf::Attached>,
    /// Nobody else has it: see [`claim`].
    claim: Option<UnixListener>,
}

impl Held {
    fn are_at(&self, interface: u32) -> Result<bool> {
        let mut count = 0;
        for program in &self.programs {
            count += usize::from(program.stands_at()? == Some(interface));
        }
        Ok(count == self.sides.len())
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
        let tables = |has_ipsec| Tables { incoming, leaving, interfaces, counts, has_ipsec, protocols };
        // A kernel without IPsec does not know the question about it.
        let ethernet = Programs::load(true, &tables(true));
        let has_ipsec = ethernet.is_ok();
        let ethernet = ethernet.or_else(|_| Programs::load(true, &tables(false)))?;
        let plain = Programs::load(false, &tables(has_ipsec))?;
        let addresses = Map::new(HASH, INTERFACES_MAX)?;
        let inject = bpf::load("farlink-inject", &program::inject(&addresses)?)?;
        let (incoming, leaving, interfaces, counts) = maps;
        Ok(Self {
            incoming,
            leaving,
            interfaces,
            counts,
            addresses,
            ethernet,
            plain,
            inject,
            configured: Mutex::new(Configured { interfaces: HashMap::new(), families: Families::BOTH }),
            attached: Mutex::default(),
        })
    }

    /// Whether programs can be attached here, at the loopback interface for a moment.
    ///
    /// # Errors
    /// The kernel cannot, or does not let us.
    pub fn probe(&self) -> Result<()> {
        bpf::Attached::at(&self.ethernet.egress, LOOPBACK, bpf::Side::Egress).map(drop)
    }

    /// Whether this process can have bumps here.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn is_possible() -> Result<()> {
        Self::load(&[PROTOCOL_TCP]).and_then(|bump| bump.probe())
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
        let held = bpf::Attached::at(&self.inject, device, bpf::Side::Ingress);
        let (held, outcome) = match held {
            Ok(held) => (Some(held), Ok(())),
            Err(error) => (None, Err(error)),
        };
        if was_served || held.is_some() {
            locked(&self.attached).served.insert(device, held);
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
        self.interfaces.put(interface, entry | without(configured.families))
    }

    /// Which families are taken from here on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_families(&self, families: Families) -> Result<()> {
        let mut configured = locked(&self.configured);
        configured.families = families;
        let put =
            |(interface, entry): (&u32, &u32)| self.interfaces.put(*interface, entry | without(families));
        configured.interfaces.iter().try_for_each(put)
    }

    /// Which families are taken.
    #[must_use]
    pub fn families(&self) -> Families {
        locked(&self.configured).families
    }

    /// Packets of this interface go to these devices from here on: what comes in, and what leaves.
    /// Without devices it is only counted what leaves. Where programs stand they stay.
    ///
    /// # Errors
    /// One of the two has gone.
    pub fn attach(&self, interface: &Link, devices: Option<(u32, u32)>) -> Result<()> {
        match devices {
            Some((incoming, leaving)) => {
                self.incoming.put(interface.index, incoming)?;
                self.leaving.put(interface.index, leaving)?;
            }
            None => self.take_nothing_of(interface.index),
        }
        if let Some([a, b, c, d, e, f]) = interface.ethernet {
            self.addresses.put(interface.index, [a, b, c, d, e, f, 0, 0])?;
        }
        let sides: &[_] =
            if devices.is_some() { &[bpf::Side::Ingress, bpf::Side::Egress] } else { &[bpf::Side::Egress] };
        let mut attached = locked(&self.attached);
        if attached.held.get(&interface.index).is_some_and(|held| held.sides == sides) {
            return Ok(());
        }
        let has_ethernet = interface.ethernet.is_some();
        let held = Held { has_ethernet, sides, programs: Vec::new(), claim: None };
        attached.held.insert(interface.index, held);
        drop(attached);
        self.put_back(interface.index)
    }

    /// The interfaces, and the devices, at which a program does not stand any more.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn missing(&self) -> Result<Vec<u32>> {
        let mut missing = Vec::new();
        let attached = locked(&self.attached);
        for (device, held) in &attached.served {
            if held.as_ref().map(bpf::Attached::stands_at).transpose()?.flatten() != Some(*device) {
                missing.push(*device);
            }
        }
        for (interface, held) in &attached.held {
            if !held.are_at(*interface)? {
                missing.push(*interface);
            }
        }
        missing.sort_unstable();
        Ok(missing)
    }

    /// Attaches the programs again that belong to this interface or device.
    ///
    /// # Errors
    /// It is gone, or the kernel refuses.
    pub fn put_back(&self, index: u32) -> Result<()> {
        let mut attached = locked(&self.attached);
        if attached.served.contains_key(&index) {
            drop(attached);
            return self.serve(index);
        }
        let Some(held) = attached.held.get_mut(&index) else { return Ok(()) };
        // Two of the same would take a packet twice.
        held.programs.clear();
        if held.claim.is_none() && held.sides.contains(&bpf::Side::Ingress) {
            held.claim = Some(claim(index)?);
        }
        let programs = if held.has_ethernet { &self.ethernet } else { &self.plain };
        for side in held.sides {
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
        Passed { syns: count(SLOT_LEFT), others: count(SLOT_LEFT + 1), plain: count(SLOT_PLAIN) }
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
        drop(held);
    }

    /// All packets take their ordinary way. What is written still arrives. The programs stay until
    /// this is dropped: to take one away takes the kernel some time.
    pub fn take_nothing(&self) {
        for interface in locked(&self.attached).held.keys() {
            self.take_nothing_of(*interface);
        }
    }

    fn take_nothing_of(&self, interface: u32) {
        self.incoming.take_out(interface);
        self.leaving.take_out(interface);
    }
}

/// One bump at an interface, of whichever process: two would give each other every packet for ever.
fn claim(interface: u32) -> Result<UnixListener> {
    let claimed = helper().map_or_else(|| listener::claim(interface), |helper| helper.claim(interface));
    claimed.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::Refused(format!(
            "another Farlink process has a bump at interface {interface}; two of them need different interfaces (`attach`)"
        )),
        _ => Error::os(format!("claiming interface {interface}"), error),
    })
}

/// What the programs are told of families that are let go.
fn without(families: Families) -> u32 {
    let v4 = if families.v4 { 0 } else { WITHOUT_V4 };
    let v6 = if families.v6 { 0 } else { WITHOUT_V6 };
    v4 | v6
}
