//! Route lookups with a bounded cache: one system call per new destination, none for known ones.

use std::collections::HashMap;

use super::message::Message;
use super::route::RouteKey;
use super::socket::Socket;
use crate::error::Result;

/// Entries after which the cache is emptied; about 100 bytes each.
const CACHE_MAX: usize = 16 * 1024;
const RTN_UNICAST: u8 = 1;

/// Where a packet leaves, and how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// Outgoing interface.
    pub interface: u32,
    /// MTU in bytes of a forwarded packet there: the route's own, else the interface's (Linux
    /// ip_dst_mtu_maybe_forward).
    pub mtu: u32,
}

/// Asks the kernel's routing tables, remembering the answers until something changes.
#[derive(Debug)]
pub struct RouteCache {
    socket: Socket,
    generation: u64,
    filled_at: u64,
    routes: HashMap<RouteKey, Option<Leaves>>,
    mtus: HashMap<u32, u32>,
    lookups: u64,
}

impl RouteCache {
    /// An empty cache over an own socket in the calling thread's namespace.
    pub fn open() -> Result<Self> {
        Ok(Self {
            socket: Socket::open()?,
            generation: 0,
            filled_at: 0,
            routes: HashMap::new(),
            mtus: HashMap::new(),
            lookups: 0,
        })
    }

    /// Routes, rules, addresses or interfaces changed: forget everything.
    pub fn invalidate(&mut self) {
        self.generation += 1;
    }

    /// Grows by one with each [`RouteCache::invalidate`].
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How often the kernel was asked.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.lookups
    }

    /// Where a packet leaves. `None`: nowhere (no route, blackhole, or it is this machine's own).
    pub fn get(&mut self, key: &RouteKey) -> Result<Option<Leaves>> {
        if self.filled_at != self.generation || self.routes.len() >= CACHE_MAX {
            self.routes.clear();
            self.mtus.clear();
            self.filled_at = self.generation;
        }
        if let Some(known) = self.routes.get(key) {
            return Ok(*known);
        }
        let found = self.ask(key)?;
        self.routes.insert(*key, found);
        Ok(found)
    }

    fn ask(&mut self, key: &RouteKey) -> Result<Option<Leaves>> {
        self.lookups += 1;
        let Some(hop) = self.socket.route_lookup(key)?.filter(|h| h.kind == RTN_UNICAST) else {
            return Ok(None);
        };
        let mtu = match hop.mtu {
            Some(mtu) => mtu,
            None => self.mtu(hop.interface)?,
        };
        Ok(Some(Leaves { interface: hop.interface, mtu }))
    }

    /// The MTU of an interface, in bytes.
    pub fn mtu(&mut self, index: u32) -> Result<u32> {
        if let Some(mtu) = self.mtus.get(&index) {
            return Ok(*mtu);
        }
        let mut body = [0u8; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut mtu = 0;
        self.socket.query(
            Message::new(libc::RTM_GETLINK, 0, &body),
            "reading an interface's MTU",
            |answer| {
                mtu = super::link::Link::parse(&answer).map_or(0, |l| l.mtu);
            },
        )?;
        self.mtus.insert(index, mtu);
        Ok(mtu)
    }
}
