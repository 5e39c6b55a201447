//! What is remembered of hosts behind a link: whether they take what is sent ahead of their
//! windows, and segments that are larger than a packet, and how large packets on the way to them
//! may be.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::BTreeMap;

use farlink_wire::{Duration, Instant};
use serde::Serialize;

use super::{Link, Links};
use crate::leave::{Known, Refusal};
use crate::net::Way;
use crate::oversizing::Verdict;
use crate::path_mtu::Mtu;

/// Hosts, or networks of IPv6. The one goes first that was heard of least lately.
const CLIENTS_MAX: usize = 4096;
/// What is known of one is worth so long.
const LIFETIME: Duration = Duration::from_secs(600);
/// IPv6 hosts have many addresses in one network.
const NETWORK_BITS: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct Clients {
    known: BTreeMap<IpAddr, Client>,
}

/// Hosts behind a link by what they make of segments that are ahead of their windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AheadOf {
    /// They take all.
    pub taking_hosts: u64,
    /// They have taken some.
    pub tried_hosts: u64,
    /// A reset has come: their windows are waited for.
    pub reset_hosts: u64,
    /// It was dropped: their windows are waited for.
    pub dropped_hosts: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    ahead: Option<(Known, Instant)>,
    oversize: Option<(Verdict, Instant)>,
    mtu: Option<(Mtu, Instant)>,
    /// So many times the first large segment of a connection has not arrived.
    unproved: Option<(u8, Instant)>,
    /// A connection finds out whether it takes large segments; others wait so long for that.
    asked_until: Option<Instant>,
    /// Some wait.
    is_awaited: bool,
    /// A connection finds out how large packets may be, or has.
    tested_at: Option<Instant>,
    at: Instant,
}

impl Clients {
    /// A host has acknowledged so much that lay beyond its window when it left.
    pub fn note_taken(&mut self, now: Instant, host: IpAddr, bytes: u64) {
        let known = self.ahead(now, host).more(bytes);
        if let Some(known) = known {
            self.known_mut(now, host).ahead = Some((known, now));
        }
    }

    /// What lay beyond the window of a host was refused, for all that is known by somebody on the
    /// way. Returns whether that is news.
    pub fn note_refused(&mut self, now: Instant, host: IpAddr, why: Refusal) -> bool {
        let known = self.ahead(now, host);
        let is_news = !matches!(known, Known::Refuses(_));
        let known = if is_news { Known::Refuses(why) } else { known };
        self.known_mut(now, host).ahead = Some((known, now));
        is_news
    }

    /// It takes large segments, or it does not.
    pub fn note_oversize(&mut self, now: Instant, host: IpAddr, verdict: Verdict) {
        self.known_mut(now, host).oversize = Some((verdict, now));
    }

    /// How large packets to it may be (RFC 1191 section 6.3: a host remembers it for a destination,
    /// not for a connection); `None`: as large as the route says.
    pub fn note_mtu(&mut self, now: Instant, host: IpAddr, mtu: Option<Mtu>) {
        self.known_mut(now, host).mtu = mtu.map(|mtu| (mtu, now));
    }

    /// A connection finds out whether it takes large segments. Others need not ask until then.
    pub fn note_asked(&mut self, now: Instant, host: IpAddr, until: Instant) {
        self.known_mut(now, host).asked_until = Some(until);
    }

    /// Whether a connection is finding that out.
    #[must_use]
    pub fn is_asked(&self, now: Instant, host: IpAddr) -> bool {
        let asked = self.known.get(&place(host)).and_then(|client| client.asked_until);
        asked.is_some_and(|until| now < until)
    }

    /// A connection waits for that.
    pub fn note_awaited(&mut self, now: Instant, host: IpAddr) {
        self.known_mut(now, host).is_awaited = true;
    }

    /// Whether any has waited since this was last asked.
    pub fn take_awaited(&mut self, host: IpAddr) -> bool {
        let client = self.known.get_mut(&place(host));
        client.is_some_and(|client| core::mem::take(&mut client.is_awaited))
    }

    /// Whether it takes large segments has to be found out anew.
    pub fn forget_oversize(&mut self, host: IpAddr) {
        if let Some(client) = self.known.get_mut(&place(host)) {
            client.oversize = None;
        }
    }

    /// The first large segment of a connection has not arrived: whether it takes any has to be
    /// found out anew, and the next ones begin with smaller ones.
    pub fn note_unproved(&mut self, now: Instant, host: IpAddr) {
        let times = self.unproved(now, host).saturating_add(1);
        let client = self.known_mut(now, host);
        (client.oversize, client.unproved) = (None, Some((times, now)));
    }

    fn known_mut(&mut self, now: Instant, host: IpAddr) -> &mut Client {
        let place = place(host);
        if !self.known.contains_key(&place) && self.known.len() >= CLIENTS_MAX {
            let oldest = self.known.iter().min_by_key(|(_, client)| client.at).map(|(place, _)| *place);
            oldest.map(|place| self.known.remove(&place));
        }
        let client = self.known.entry(place).or_default();
        client.at = now;
        client
    }

    /// A connection begins with a few packets of full size, for all others.
    pub fn note_tested(&mut self, now: Instant, host: IpAddr) {
        self.known_mut(now, host).tested_at = Some(now);
    }

    /// Something is known of how large what it gets may be, or a connection is finding it out.
    #[must_use]
    pub fn is_known(&self, now: Instant, host: IpAddr) -> bool {
        let tested_at = self.known.get(&place(host)).and_then(|client| client.tested_at);
        tested_at.is_some_and(|at| now.since(at) < LIFETIME)
            || self.oversize(now, host).is_some()
            || self.mtu(now, host).is_some()
    }

    /// What it makes of segments that are ahead of its window.
    #[must_use]
    pub fn ahead(&self, now: Instant, host: IpAddr) -> Known {
        let told = self.known.get(&place(host)).and_then(|client| client.ahead);
        told.filter(|(_, at)| now.since(*at) < LIFETIME).map_or(Known::default(), |(known, _)| known)
    }

    /// So many hosts are sent ahead of, are tried, and refuse that.
    #[must_use]
    pub fn count_ahead(&self, now: Instant) -> AheadOf {
        let mut count = AheadOf::default();
        let told = self.known.values().filter_map(|client| client.ahead);
        for (known, _) in told.filter(|(_, at)| now.since(*at) < LIFETIME) {
            *match known {
                Known::Refuses(Refusal::Reset) => &mut count.reset_hosts,
                Known::Refuses(Refusal::Dropped) => &mut count.dropped_hosts,
                Known::Takes(_) if known.takes_all() => &mut count.taking_hosts,
                Known::Takes(_) => &mut count.tried_hosts,
            } += 1;
        }
        count
    }

    /// Whether it takes large segments; `None`: that is to be found out.
    #[must_use]
    pub fn oversize(&self, now: Instant, host: IpAddr) -> Option<Verdict> {
        let (verdict, at) = self.known.get(&place(host))?.oversize?;
        (now.since(at) < LIFETIME).then_some(verdict)
    }

    /// How large packets to it may be, and since when that is known.
    #[must_use]
    pub fn mtu(&self, now: Instant, host: IpAddr) -> Option<(Mtu, Instant)> {
        let told = self.known.get(&place(host))?.mtu;
        told.filter(|(_, at)| now.since(*at) < LIFETIME)
    }

    /// So many times the first large segment of a connection to it has not arrived of late.
    #[must_use]
    pub fn unproved(&self, now: Instant, host: IpAddr) -> u8 {
        let times = self.known.get(&place(host)).and_then(|client| client.unproved);
        times.filter(|(_, at)| now.since(*at) < LIFETIME).map_or(0, |(times, _)| times)
    }
}

impl Links {
    /// A host behind this link has been found to take large segments, or to refuse them.
    pub(crate) fn note_found_out(&mut self, way: Way) {
        self.found_out = Some(way);
    }

    /// That link, for connections that wait for it.
    pub(crate) fn take_found_out(&mut self) -> Option<Way> {
        self.found_out.take()
    }
}

impl Link {
    /// What is remembered of hosts behind it.
    #[must_use]
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The same, to be changed.
    pub(crate) fn clients_mut(&mut self) -> &mut Clients {
        &mut self.clients
    }
}

/// Where a host is: itself, or its network.
pub(super) fn place(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(_) => host,
        IpAddr::V6(host) => IpAddr::V6(Ipv6Addr::from_bits(host.to_bits() >> NETWORK_BITS << NETWORK_BITS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    /// It takes all that is sent ahead of its window.
    const ENOUGH: u64 = 64 << 10;

    fn takes(clients: &Clients, at: Instant, host: IpAddr) -> bool {
        clients.ahead(at, host).takes_all()
    }

    #[test]
    fn what_is_known_of_a_host_grows_old() {
        let mut clients = Clients::default();
        assert!(!takes(&clients, Instant::ZERO, host(1)), "nobody knows");
        clients.note_taken(Instant::ZERO, host(1), ENOUGH);
        assert!(takes(&clients, Instant::ZERO, host(1)) && !takes(&clients, Instant::ZERO, host(2)));
        assert!(!takes(&clients, Instant::ZERO + LIFETIME, host(1)));
    }

    #[test]
    fn one_that_is_being_asked_is_asked_once() {
        let until = Instant::from_millis(700);
        let mut clients = Clients::default();
        clients.note_asked(Instant::ZERO, host(1), until);
        assert!(clients.is_asked(Instant::ZERO, host(1)) && !clients.is_asked(Instant::ZERO, host(2)));
        assert!(!clients.is_asked(until, host(1)), "its answer is overdue");
    }

    #[test]
    fn one_from_which_a_reset_came_is_waited_for_and_tried_again_after_ten_minutes() {
        let mut clients = Clients::default();
        clients.note_taken(Instant::ZERO, host(1), ENOUGH);
        assert!(clients.note_refused(Instant::ZERO, host(1), Refusal::Reset));
        assert!(!clients.note_refused(Instant::ZERO, host(1), Refusal::Dropped), "that is known");
        // What was under way is acknowledged all the same.
        clients.note_taken(Instant::ZERO, host(1), ENOUGH);
        assert_eq!(clients.ahead(Instant::ZERO, host(1)), Known::Refuses(Refusal::Reset));
        assert_eq!(clients.count_ahead(Instant::ZERO).reset_hosts, 1);
        assert_eq!(clients.ahead(Instant::ZERO + LIFETIME, host(1)), Known::Takes(0));
        assert_eq!(clients.count_ahead(Instant::ZERO + LIFETIME), AheadOf::default());
    }

    #[test]
    fn first_segments_that_have_not_arrived_are_remembered() {
        let takes = Verdict::Takes { dont_fragment: true };
        let mut clients = Clients::default();
        clients.note_oversize(Instant::ZERO, host(1), takes);
        assert_eq!(
            (clients.oversize(Instant::ZERO, host(1)), clients.unproved(Instant::ZERO, host(1))),
            (Some(takes), 0)
        );
        clients.note_unproved(Instant::ZERO, host(1));
        clients.note_unproved(Instant::ZERO, host(1));
        assert_eq!(
            (clients.oversize(Instant::ZERO, host(1)), clients.unproved(Instant::ZERO, host(1))),
            (None, 2)
        );
        assert_eq!(clients.unproved(Instant::ZERO + LIFETIME, host(1)), 0);
    }

    #[test]
    fn an_ipv6_network_is_one_host() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut clients = Clients::default();
        clients.note_taken(Instant::ZERO, at("2001:db8::1"), ENOUGH);
        assert!(takes(&clients, Instant::ZERO, at("2001:db8::ffff:1")));
        assert!(!takes(&clients, Instant::ZERO, at("2001:db8:0:1::1")));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let mut clients = Clients::default();
        for n in 0..10_000 {
            clients.note_taken(Instant::from_millis(u64::from(n)), host(n), ENOUGH);
        }
        assert_eq!(clients.known.len(), CLIENTS_MAX);
        assert!(takes(&clients, Instant::from_millis(10_000), host(9_999)));
        assert!(!takes(&clients, Instant::from_millis(10_000), host(0)));
    }
}
