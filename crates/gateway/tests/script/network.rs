//! What stands round the gateway of a packet script: routes, MTUs, a journal, and where transmitted
//! packets go.

use core::net::IpAddr;
use std::collections::BTreeMap;

use farlink_gateway::{Ends, Event, IfaceId, Network, Record, Route, Shown, Transmit, Via};
use farlink_wire::{Offload, ip};

use super::Script;

/// A packet that a gateway has handed out.
#[derive(Clone, Debug)]
pub struct Out {
    pub via: IfaceId,
    pub out: IfaceId,
    pub bytes: Vec<u8>,
    pub offload: Offload,
}

/// The world of one gateway: host a behind interface 0, host b behind interface 1.
#[derive(Debug)]
pub struct Net {
    pub a: IpAddr,
    pub mtu_a_bytes: u32,
    pub mtu_b_bytes: u32,
    /// Where packets to b leave.
    pub b_by: IfaceId,
    pub out: Vec<Out>,
    /// What the kernel shows of packets that come in by an interface.
    pub shown: BTreeMap<IfaceId, Shown>,
    /// With what packets have left, and where to.
    pub left: Vec<(IpAddr, Shown)>,
    pub journal: BTreeMap<u32, Record>,
    /// What is put there does not survive.
    pub journal_is_full: bool,
    /// What has happened, and to which connections.
    pub happened: Vec<(Ends, Event)>,
}

/// The interface towards host a.
pub const TO_A: IfaceId = IfaceId(0);
/// The interface towards host b.
pub const TO_B: IfaceId = IfaceId(1);
/// Another interface towards host b, where a script has one.
pub const SPARE: IfaceId = IfaceId(2);

impl Net {
    /// How packets come in by an interface.
    pub fn via(&self, iface: IfaceId) -> Via {
        Via { iface, shown: self.shown.get(&iface).copied().unwrap_or_default() }
    }
}

impl Network for Net {
    fn transmit(&mut self, t: &Transmit<'_>) {
        self.left.extend(ip::addresses(t.header).map(|(_, dst)| (dst, t.via.shown)));
        let mut bytes = t.header.to_vec();
        for p in t.payload {
            bytes.extend_from_slice(p);
        }
        self.out.push(Out { via: t.via.iface, out: t.out, bytes, offload: t.offload });
    }
    fn route(&mut self, _from: Via, _src: IpAddr, dst: IpAddr) -> Option<Route> {
        Some(if dst == self.a {
            Route { iface: TO_A, mtu_bytes: self.mtu_a_bytes }
        } else {
            Route { iface: self.b_by, mtu_bytes: self.mtu_b_bytes }
        })
    }
    fn journal(&mut self, slot: u32, record: Option<&Record>) {
        match record {
            Some(r) => self.journal.insert(slot, *r),
            None => self.journal.remove(&slot),
        };
    }
    fn is_kept(&self, _slot: u32) -> bool {
        !self.journal_is_full
    }
    fn happened(&mut self, ends: &Ends, what: Event) {
        self.happened.push((*ends, what));
    }
}

impl Script {
    /// From now on the kernel sends what is for b by this interface.
    pub fn reroute_b(&mut self, by: IfaceId) {
        self.trace.push(format!("           (route to b: {by:?})"));
        self.with_gateway(|g, now, net| {
            net.b_by = by;
            g.routes_changed(now);
        });
    }
    /// The carrier of an interface comes or goes.
    pub fn set_carrier(&mut self, of: IfaceId, up: bool) {
        self.trace.push(format!("           (carrier of {of:?}: {up})"));
        self.with_gateway(|g, now, net| g.link_state(now, of, up, net));
    }
}
