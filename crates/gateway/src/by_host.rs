//! What the connections of each host have carried: a host is the one that began them. As many hosts
//! are kept as have room, those that carried most; the others are counted together.

use core::net::IpAddr;
use std::collections::BTreeMap;

use farlink_engine::event::{Ends, Event};
use serde::Serialize;

/// So many hosts are told apart.
const HOSTS_MAX: usize = 64;

/// Totals since the start. Bytes are counted when a connection ends or falls asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostTotals {
    /// Connections that were split.
    pub connections: u64,
    /// Payload that servers have acknowledged, bytes.
    pub to_server_bytes: u64,
    /// Payload that the hosts themselves have acknowledged, bytes.
    pub to_client_bytes: u64,
}

/// The same of a host, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostStatus {
    /// Its address; `others`: all that are not told apart.
    pub host: String,
    /// What its connections have carried.
    #[serde(flatten)]
    pub totals: HostTotals,
}

/// The books.
#[derive(Debug, Default)]
pub struct ByHost {
    hosts: BTreeMap<IpAddr, HostTotals>,
    others: HostTotals,
}

impl HostTotals {
    fn bytes(&self) -> u64 {
        self.to_server_bytes.saturating_add(self.to_client_bytes)
    }

    fn add(&mut self, more: Self) {
        self.connections = self.connections.saturating_add(more.connections);
        self.to_server_bytes = self.to_server_bytes.saturating_add(more.to_server_bytes);
        self.to_client_bytes = self.to_client_bytes.saturating_add(more.to_client_bytes);
    }
}

impl ByHost {
    /// Something has happened to a connection.
    pub fn happened(&mut self, ends: &Ends, what: Event) {
        let carried = what.carried().unwrap_or_default();
        let connections = u64::from(what == Event::Split);
        if connections == 0 && carried.to_server_bytes + carried.to_client_bytes == 0 {
            return;
        }
        self.add(
            ends.client.ip(),
            HostTotals {
                connections,
                to_server_bytes: carried.to_server_bytes,
                to_client_bytes: carried.to_client_bytes,
            },
        );
    }

    fn add(&mut self, host: IpAddr, more: HostTotals) {
        if let Some(known) = self.hosts.get_mut(&host) {
            return known.add(more);
        }
        if self.hosts.len() >= HOSTS_MAX {
            // The one that has carried least makes room.
            let least = self.hosts.iter().min_by_key(|(_, totals)| totals.bytes()).map(|(host, _)| *host);
            let gone = least.and_then(|host| self.hosts.remove(&host)).unwrap_or_default();
            self.others.add(gone);
        }
        self.hosts.insert(host, more);
    }

    /// Those that have carried most first, and then all others together if there are any.
    #[must_use]
    pub fn status(&self) -> Vec<HostStatus> {
        let one =
            |(host, totals): (&IpAddr, &HostTotals)| HostStatus { host: host.to_string(), totals: *totals };
        let mut all: Vec<_> = self.hosts.iter().map(one).collect();
        all.sort_by_key(|one| core::cmp::Reverse(one.totals.bytes()));
        if self.others != HostTotals::default() {
            all.push(HostStatus { host: "others".to_owned(), totals: self.others });
        }
        all
    }

    /// Memory, bytes: of the entries, and about as much again for the nodes of the tree.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.hosts.len() * 2 * size_of::<(IpAddr, HostTotals)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_engine::event::Carried;

    fn ends(host: u32) -> Ends {
        let address = IpAddr::from(host.to_be_bytes());
        Ends { client: (address, 4000).into(), server: ([10, 0, 0, 1], 80).into() }
    }

    fn closed(to_client_bytes: u64) -> Event {
        Event::Closed(Carried { to_server_bytes: 1, to_client_bytes, ..Carried::default() })
    }

    #[test]
    fn each_host_has_its_totals_the_largest_first() {
        let mut by_host = ByHost::default();
        for (host, bytes) in [(1, 10), (2, 500), (1, 30)] {
            by_host.happened(&ends(host), Event::Split);
            by_host.happened(&ends(host), closed(bytes));
        }
        let said = by_host.status();
        let all: Vec<_> =
            said.iter().map(|h| (&*h.host, h.totals.connections, h.totals.to_client_bytes)).collect();
        assert_eq!(all, [("0.0.0.2", 1, 500), ("0.0.0.1", 2, 40)]);
    }

    #[test]
    fn however_many_hosts_there_are_nothing_is_lost_of_the_sum() {
        let mut by_host = ByHost::default();
        for host in 0..10_000 {
            by_host.happened(&ends(host), Event::Split);
            by_host.happened(&ends(host), closed(if host == 50 { 1_000_000 } else { 10 }));
        }
        let said = by_host.status();
        assert_eq!((said.len(), &*said[0].host), (HOSTS_MAX + 1, "0.0.0.50"));
        assert_eq!(said.last().map(|h| &*h.host), Some("others"));
        assert_eq!(said.iter().map(|h| h.totals.connections).sum::<u64>(), 10_000);
        assert_eq!(said.iter().map(|h| h.totals.to_client_bytes).sum::<u64>(), 1_000_000 + 9_999 * 10);
        assert!(by_host.memory_bytes() < 16_384, "{}", by_host.memory_bytes());
    }
}
