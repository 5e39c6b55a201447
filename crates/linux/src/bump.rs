//! A bump on the wire of an interface: what is selected of the packets that come in or leave by it
//! goes to devices of ours first, by two small programs at the interface (tcx, from Linux 6.6 on).
//!
//! The gateway then stands outside of the router's own stack. Filters, connection tracking, NAT and
//! routing see each packet once, with its true interfaces. The programs go with the process.

mod assembler;
mod program;
mod tap;

use std::collections::HashMap;
use std::os::fd::OwnedFd;

pub use tap::{Arrival, Side, Tap, Target};

use crate::bpf::{self, DEVICE_HASH, HASH};
use crate::error::Result;
use crate::netlink::Link;
use program::{CONFIGURED, RANK_SHIFT, Tables, WHOLE};

/// Interfaces that there can be.
const INTERFACES_MAX: u32 = 4096;

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

/// All bumps of a gateway. Dropped, they are gone, and packets take their ordinary way.
#[derive(Debug)]
pub struct Bump {
    /// Bumped interface -> its devices.
    incoming: OwnedFd,
    leaving: OwnedFd,
    interfaces: OwnedFd,
    ethernet: Programs,
    plain: Programs,
    inject: OwnedFd,
    /// Device -> what holds the program there.
    served: HashMap<u32, OwnedFd>,
    /// Bumped interface -> what holds the programs there.
    bumped: HashMap<u32, [OwnedFd; 2]>,
}

impl Bump {
    /// Loads the programs. `protocols`: IP protocols of which packets, and ICMP errors about them,
    /// are taken.
    ///
    /// # Errors
    /// The kernel refuses bpf(2), or is too old.
    pub fn load(protocols: &[u8]) -> Result<Self> {
        let devices = || bpf::map(DEVICE_HASH, 4, 4, INTERFACES_MAX);
        let (incoming, leaving) = (devices()?, devices()?);
        let interfaces = bpf::map(HASH, 4, 4, INTERFACES_MAX)?;
        let tables = Tables { incoming: &incoming, leaving: &leaving, interfaces: &interfaces, protocols };
        let (ethernet, plain) = (Programs::load(true, &tables)?, Programs::load(false, &tables)?);
        let inject = bpf::load("farlink-inject", &program::inject()?)?;
        let (served, bumped) = (HashMap::new(), HashMap::new());
        Ok(Self { incoming, leaving, interfaces, ethernet, plain, inject, served, bumped })
    }

    /// Whether programs can be attached here, at the loopback interface for a moment.
    ///
    /// # Errors
    /// The kernel is older than 6.6, or does not let us.
    pub fn probe(&self) -> Result<()> {
        bpf::attach(&self.ethernet.egress, LOOPBACK, bpf::Side::Egress).map(drop)
    }

    /// From here on what is written to this device reaches interfaces.
    ///
    /// # Errors
    /// The kernel is older than 6.6.
    pub fn serve(&mut self, device: &Tap) -> Result<()> {
        let held = bpf::attach(&self.inject, device.index(), bpf::Side::Ingress)?;
        self.served.insert(device.index(), held);
        Ok(())
    }

    /// Traffic from and to this interface may be taken where it passes a bump: that of the two
    /// interfaces with the smaller rank. `rank` of one without a bump: [`NO_BUMP`]. `whole`: all
    /// that leaves by it.
    ///
    /// # Errors
    /// There are too many.
    pub fn configure(&mut self, interface: u32, rank: u16, whole: bool) -> Result<()> {
        let flags = if whole { CONFIGURED | WHOLE } else { CONFIGURED };
        bpf::put(&self.interfaces, interface, u32::from(rank) << RANK_SHIFT | flags)
    }

    /// Packets of this interface go to these devices from here on: what comes in, and what leaves.
    /// Nothing is done where they do.
    ///
    /// # Errors
    /// One of the two has gone.
    pub fn attach(&mut self, interface: &Link, (incoming, leaving): (u32, u32)) -> Result<()> {
        bpf::put(&self.incoming, interface.index, incoming)?;
        bpf::put(&self.leaving, interface.index, leaving)?;
        if self.bumped.contains_key(&interface.index) {
            return Ok(());
        }
        let programs = if interface.ethernet.is_some() { &self.ethernet } else { &self.plain };
        let held = [
            bpf::attach(&programs.ingress, interface.index, bpf::Side::Ingress)?,
            bpf::attach(&programs.egress, interface.index, bpf::Side::Egress)?,
        ];
        self.bumped.insert(interface.index, held);
        Ok(())
    }

    /// This interface is gone, or no concern any more: its packets take their ordinary way.
    pub fn forget(&mut self, interface: u32) {
        self.take_nothing_of(interface);
        bpf::take_out(&self.interfaces, interface);
        self.bumped.remove(&interface);
    }

    /// All packets take their ordinary way. What is written still arrives. The programs stay until
    /// this is dropped: to take one away takes the kernel some time.
    pub fn take_nothing(&self) {
        for interface in self.bumped.keys() {
            self.take_nothing_of(*interface);
        }
    }

    fn take_nothing_of(&self, interface: u32) {
        bpf::take_out(&self.incoming, interface);
        bpf::take_out(&self.leaving, interface);
    }
}
