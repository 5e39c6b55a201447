//! What stands round the gateway: routes, a journal, and the packets that it hands out.

use core::net::IpAddr;
use std::collections::BTreeMap;

use farlink_gateway::{IfaceId, Network, Record, Route, Transmit, Via};
use farlink_wire::Offload;

/// A packet that the gateway has handed out.
#[derive(Clone, Debug)]
pub struct Out {
    pub via: IfaceId,
    pub out: IfaceId,
    pub bytes: Vec<u8>,
    pub offload: Offload,
}

/// Host a is behind interface 0, host b behind interface 1; interface 1 may be a declared link.
#[derive(Debug)]
pub struct World {
    pub mtu_bytes: u32,
    /// There is no way to host b at the moment.
    pub no_route: bool,
    pub out: Vec<Out>,
    pub journal: BTreeMap<u32, Record>,
}

/// Whether the address is host a's.
pub fn is_a(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.octets()[3] == 1,
        IpAddr::V6(a) => a.octets()[15] == 1,
    }
}

impl Network for World {
    fn transmit(&mut self, t: &Transmit<'_>) {
        let mut bytes = t.header.to_vec();
        t.payload.iter().for_each(|p| bytes.extend_from_slice(p));
        assert_eq!(bytes.len(), t.len());
        self.out.push(Out { via: t.via.iface, out: t.out, bytes, offload: t.offload });
    }
    fn route(&mut self, _from: Via, _src: IpAddr, dst: IpAddr) -> Option<Route> {
        let iface = IfaceId(u16::from(!is_a(dst)));
        let mtu_bytes = if dst.is_ipv4() { self.mtu_bytes } else { self.mtu_bytes.max(1280) };
        (iface.0 == 0 || !self.no_route).then_some(Route { iface, mtu_bytes })
    }
    fn journal(&mut self, slot: u32, record: Option<&Record>) {
        match record {
            Some(r) => drop(self.journal.insert(slot, *r)),
            None => drop(self.journal.remove(&slot)),
        }
    }
}
