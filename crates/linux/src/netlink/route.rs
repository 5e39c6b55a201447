//! Addresses, routes and policy-routing rules, for IPv4 and IPv6 alike.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use farlink_wire::ip::PROTOCOL_TCP;

use super::message::{Answer, Attributes, Message, u32_at};
use super::socket::Socket;
use crate::error::{Error, Result};

const RTMSG_BYTES: usize = 12;
const IFADDRMSG_BYTES: usize = 8;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTA_MARK: u16 = 16;
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;
const RTAX_MTU: u16 = 2;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_NODAD: u32 = 2;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RT_TABLE_MAIN: u32 = 254;
const RTN_UNICAST: u8 = 1;
/// Questions in one datagram: the answers to so many find room in a socket's buffer.
const QUESTIONS_AT_ONCE: usize = 32;

/// The main routing table.
pub const TABLE_MAIN: u32 = RT_TABLE_MAIN;

/// IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::V4 => libc::AF_INET as u8,
            Self::V6 => libc::AF_INET6 as u8,
        }
    }
    fn from_number(n: u8) -> Option<Self> {
        Self::BOTH.into_iter().find(|f| f.number() == n)
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// A unicast route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Destination prefix; `None`: default.
    pub destination: Option<(IpAddr, u8)>,
    /// Next hop; `None`: on the link.
    pub gateway: Option<IpAddr>,
    /// Interface; `None`: from the gateway.
    pub interface: Option<u32>,
    /// Routing table.
    pub table: u32,
    /// RTPROT_..., names who made it.
    pub protocol: u8,
    /// MTU of the route in bytes.
    pub mtu: Option<u32>,
    /// Metric (smaller is preferred).
    pub metric: Option<u32>,
}

impl Route {
    /// A default route in the main table, as an administrator makes it.
    #[must_use]
    pub fn new(family: Family) -> Self {
        Self {
            family,
            destination: None,
            gateway: None,
            interface: None,
            table: RT_TABLE_MAIN,
            protocol: libc::RTPROT_STATIC,
            mtu: None,
            metric: None,
        }
    }

    fn message(&self, kind: u16, flags: u16) -> Message {
        let scope = match (self.family, self.gateway) {
            (Family::V4, None) => RT_SCOPE_LINK,
            _ => RT_SCOPE_UNIVERSE,
        };
        let prefix = self.destination.map_or(0, |d| d.1);
        let table = u8::try_from(self.table).unwrap_or(0);
        let body = [self.family.number(), prefix, 0, 0, table, self.protocol, scope, RTN_UNICAST, 0, 0, 0, 0];
        let mut message = Message::new(kind, flags, &body);
        message.attr_u32(RTA_TABLE, self.table);
        if let Some((address, _)) = self.destination {
            message.attr(RTA_DST, &octets(address));
        }
        if let Some(gateway) = self.gateway {
            message.attr(RTA_GATEWAY, &octets(gateway));
        }
        if let Some(index) = self.interface {
            message.attr_u32(RTA_OIF, index);
        }
        if let Some(metric) = self.metric {
            message.attr_u32(RTA_PRIORITY, metric);
        }
        if let Some(mtu) = self.mtu {
            message.nested(RTA_METRICS, &[], |m| {
                m.attr_u32(RTAX_MTU, mtu);
            });
        }
        message
    }
}

/// A policy-routing rule of the shape `pref P fwmark V/M lookup T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Position: smaller is asked earlier; 0 is `local`, 32766 `main`.
    pub priority: u32,
    /// Mark to match.
    pub mark: u32,
    /// Bits of the mark that count; 0: the rule looks at no mark.
    pub mask: u32,
    /// Table that is looked up.
    pub table: u32,
    /// Who made it (RTPROT_...).
    pub protocol: u8,
    /// What else it looks at (source, destination, interfaces), as one number; `None`: nothing.
    pub selector: Option<u64>,
}

impl Rule {
    fn message(&self, kind: u16, flags: u16) -> Message {
        let table = u8::try_from(self.table).unwrap_or(0);
        let body = [self.family.number(), 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
        let mut message = Message::new(kind, flags, &body);
        message
            .attr_u32(FRA_PRIORITY, self.priority)
            .attr_u32(FRA_FWMARK, self.mark)
            .attr_u32(FRA_FWMASK, self.mask)
            .attr_u32(FRA_TABLE, self.table)
            .attr(FRA_PROTOCOL, &[self.protocol]);
        message
    }

    /// Reads RTM_NEWRULE.
    #[must_use]
    pub fn parse(answer: &Answer<'_>) -> Option<Self> {
        let (fixed, attributes) = answer.split(RTMSG_BYTES)?;
        let mark = attributes.find_u32(FRA_FWMARK);
        Some(Self {
            family: Family::from_number(*fixed.first()?)?,
            priority: attributes.find_u32(FRA_PRIORITY).unwrap_or(0),
            mark: mark.unwrap_or(0),
            mask: match (mark, attributes.find_u32(FRA_FWMASK)) {
                (_, Some(mask)) => mask,
                (Some(_), None) => u32::MAX,
                (None, None) => 0,
            },
            table: attributes.find_u32(FRA_TABLE).unwrap_or(u32::from(*fixed.get(4)?)),
            protocol: attributes.find(FRA_PROTOCOL).and_then(|v| v.first().copied()).unwrap_or(0),
            selector: selector(fixed, attributes),
        })
    }
}

/// Two rules that differ in nothing else differ in this.
fn selector(fixed: &[u8], attributes: Attributes<'_>) -> Option<u64> {
    let kinds = [FRA_SRC, FRA_DST, FRA_IIFNAME, FRA_OIFNAME];
    let parts: Vec<_> = kinds.iter().map(|kind| attributes.find(*kind)).collect();
    parts.iter().any(Option::is_some).then(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "rules are the operator's, and each look has to give the same"
        )]
        let mut hasher = DefaultHasher::new();
        // Lengths of the prefixes stand before the attributes.
        (fixed.get(1..3), parts).hash(&mut hasher);
        hasher.finish()
    })
}

/// Where the kernel would send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Outgoing interface.
    pub interface: u32,
    /// MTU of the route, where one is set on it; else the interface's counts.
    pub mtu: Option<u32>,
    /// RTN_... type: 1 unicast, 2 local.
    pub kind: u8,
    /// The router that it goes to first, if any.
    pub gateway: Option<IpAddr>,
}

/// What the kernel is asked to route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteKey {
    /// Destination.
    pub destination: IpAddr,
    /// Source, with the interface by which it comes in; `None`: as if sent by this machine.
    pub from: Option<(IpAddr, u32)>,
    /// Packet mark.
    pub mark: u32,
    /// Ports of TCP, source and destination, where rules go by them.
    pub ports: Option<(u16, u16)>,
}

impl Socket {
    /// Adds an address to an interface, without duplicate address detection.
    pub fn address_add(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<()> {
        let family = Family::of(address);
        let mut body = [family.number(), prefix, 0, RT_SCOPE_UNIVERSE, 0, 0, 0, 0];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut message = Message::new(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body);
        message.attr(IFA_LOCAL, &octets(address)).attr(IFA_ADDRESS, &octets(address));
        if family == Family::V6 {
            message.attr_u32(IFA_FLAGS, IFA_F_NODAD);
        }
        self.request(message, &format!("adding address {address}/{prefix} to interface {index}"))
    }

    /// Addresses of all interfaces that are more than link-local, with the interface's number, in
    /// the kernel's order.
    pub fn addresses(&mut self) -> Result<Vec<(u32, IpAddr)>> {
        let mut found: Vec<(u32, IpAddr)> = Vec::new();
        self.dump(
            Message::new(libc::RTM_GETADDR, 0, &[0; IFADDRMSG_BYTES]),
            "listing addresses",
            |answer| {
                if let Some(one) = parse_own_address(&answer)
                    && !found.contains(&one)
                {
                    found.push(one);
                }
            },
        )?;
        Ok(found)
    }

    /// The addresses of one interface that are more than link-local.
    pub fn addresses_of(&mut self, index: u32) -> Result<Vec<IpAddr>> {
        let all = self.addresses()?.into_iter();
        Ok(all.filter(|(of, _)| *of == index).map(|(_, address)| address).collect())
    }

    /// Adds a route, or replaces one with the same destination, table and metric.
    pub fn route_add(&mut self, route: &Route) -> Result<()> {
        let message = route.message(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
        self.request(message, &format!("adding a route ({route:?})"))
    }

    /// Removes a route.
    pub fn route_delete(&mut self, route: &Route) -> Result<()> {
        self.request(route.message(libc::RTM_DELROUTE, 0), &format!("removing a route ({route:?})"))
    }

    /// All unicast routes of a table.
    pub fn routes(&mut self, family: Family, table: u32) -> Result<Vec<Route>> {
        let mut body = [0; RTMSG_BYTES];
        body[0] = family.number();
        let mut request = Message::new(libc::RTM_GETROUTE, 0, &body);
        request.attr_u32(RTA_TABLE, table);
        let mut routes: Vec<Route> = Vec::new();
        let outcome = self.dump(request, "listing routes", |answer| {
            if let Some(route) = parse_route(&answer)
                && route.table == table
                && !routes.contains(&route)
            {
                routes.push(route);
            }
        });
        match outcome {
            // A strict kernel says so when the table does not exist.
            Err(e) if e.is(libc::ENOENT) => Ok(Vec::new()),
            other => other.map(|()| routes),
        }
    }

    /// Adds a rule; an equal one that exists already is fine.
    pub fn rule_add(&mut self, rule: &Rule) -> Result<()> {
        let message = rule.message(libc::RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL);
        match self.request(message, &format!("adding the {} rule for mark {:#x}", rule.family, rule.mark)) {
            Err(e) if e.is(libc::EEXIST) => Ok(()),
            other => other,
        }
    }

    /// Removes a rule; one that is gone already is fine.
    pub fn rule_delete(&mut self, rule: &Rule) -> Result<()> {
        let message = rule.message(libc::RTM_DELRULE, 0);
        match self.request(message, &format!("removing the {} rule for mark {:#x}", rule.family, rule.mark)) {
            Err(e) if e.is(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// All rules of a family.
    pub fn rules(&mut self, family: Family) -> Result<Vec<Rule>> {
        let mut body = [0; RTMSG_BYTES];
        body[0] = family.number();
        let mut rules: Vec<Rule> = Vec::new();
        self.dump(Message::new(libc::RTM_GETRULE, 0, &body), "listing policy-routing rules", |answer| {
            if let Some(rule) = Rule::parse(&answer)
                && !rules.contains(&rule)
            {
                rules.push(rule);
            }
        })?;
        Ok(rules)
    }

    /// Asks the kernel which way a packet goes. `None`: it has no route, or refuses the packet.
    pub fn route_lookup(&mut self, key: &RouteKey) -> Result<Option<Hop>> {
        routed(self.ask_route(key))
    }

    /// The same of many packets at once, which is cheaper. An error is of one question alone.
    pub fn route_lookups(&mut self, keys: &[RouteKey]) -> Vec<Result<Option<Hop>>> {
        self.ask_routes(keys).into_iter().map(routed).collect()
    }

    /// Why the kernel would not route a packet: EXDEV where its source address check refuses it,
    /// others where it knows no way; `None` where it would.
    pub fn route_refusal(&mut self, key: &RouteKey) -> Result<Option<i32>> {
        match self.ask_route(key) {
            Err(Error::Netlink { answer, .. }) if is_unroutable(&answer) => Ok(answer.raw_os_error()),
            other => other.map(|_| None),
        }
    }

    fn ask_route(&mut self, key: &RouteKey) -> Result<Option<Hop>> {
        self.ask_routes(std::slice::from_ref(key)).pop().unwrap_or(Ok(None))
    }

    fn ask_routes(&mut self, keys: &[RouteKey]) -> Vec<Result<Option<Hop>>> {
        let what = "looking up a route";
        let failed = |code| Err(Error::os(what, std::io::Error::from_raw_os_error(code)));
        let mut hops = Vec::with_capacity(keys.len());
        for keys in keys.chunks(QUESTIONS_AT_ONCE) {
            let from = hops.len();
            // Of what the kernel does not answer it had no room for the answer.
            hops.resize_with(from + keys.len(), || failed(libc::ENOBUFS));
            let mut questions: Vec<_> = keys.iter().map(question).collect();
            let asked = self.query_all(&mut questions, what, |place, answer| {
                hops[from + place] = answer.map(|answer| parse_hop(&answer));
            });
            if let Err(Error::Os { answer, .. }) = asked {
                let code = answer.raw_os_error().unwrap_or(libc::EIO);
                hops[from..].fill_with(|| failed(code));
            }
        }
        hops
    }
}

fn question(key: &RouteKey) -> Message {
    let family = Family::of(key.destination);
    let bits = if family == Family::V4 { 32 } else { 128 };
    let mut body = [0; RTMSG_BYTES];
    body[0] = family.number();
    body[1] = bits;
    if key.from.is_some() {
        body[2] = bits;
    }
    let mut request = Message::new(libc::RTM_GETROUTE, 0, &body);
    request.attr(RTA_DST, &octets(key.destination));
    if let Some((source, interface)) = key.from {
        request.attr(RTA_SRC, &octets(source)).attr_u32(RTA_IIF, interface);
    }
    if key.mark != 0 {
        request.attr_u32(RTA_MARK, key.mark);
    }
    if let Some((source, destination)) = key.ports {
        request.attr(RTA_IP_PROTO, &[PROTOCOL_TCP]);
        request.attr(RTA_SPORT, &source.to_be_bytes()).attr(RTA_DPORT, &destination.to_be_bytes());
    }
    request
}

/// A packet without a way is no error.
fn routed(answer: Result<Option<Hop>>) -> Result<Option<Hop>> {
    match answer {
        Err(Error::Netlink { answer, .. }) if is_unroutable(&answer) => Ok(None),
        other => other,
    }
}

/// The kernel's ways of saying that such a packet goes nowhere (as opposed to: the question cannot
/// be asked).
fn is_unroutable(e: &std::io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EACCES
                | libc::EINVAL
                | libc::EXDEV
                | libc::ENODEV
                | libc::EAGAIN
        )
    )
}

fn parse_hop(answer: &Answer<'_>) -> Option<Hop> {
    let (fixed, attributes) = answer.split(RTMSG_BYTES)?;
    let metrics = attributes.find(RTA_METRICS).map(super::message::Attributes::new);
    Some(Hop {
        interface: attributes.find_u32(RTA_OIF)?,
        mtu: metrics.and_then(|m| m.find_u32(RTAX_MTU)).filter(|m| *m > 0),
        kind: *fixed.get(7)?,
        gateway: {
            let family = Family::from_number(*fixed.first()?)?;
            attributes.find(RTA_GATEWAY).and_then(|b| parse_address(family, b))
        },
    })
}

fn parse_address(family: Family, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        Family::V4 => bytes.first_chunk::<4>().map(|b| IpAddr::from(*b)),
        Family::V6 => bytes.first_chunk::<16>().map(|b| IpAddr::from(*b)),
    }
}

fn parse_own_address(answer: &Answer<'_>) -> Option<(u32, IpAddr)> {
    let (fixed, attributes) = answer.split(IFADDRMSG_BYTES)?;
    let family = Family::from_number(*fixed.first()?)?;
    let scope = *fixed.get(3)?;
    let bytes = attributes.find(IFA_LOCAL).or(attributes.find(IFA_ADDRESS))?;
    let address = parse_address(family, bytes)?;
    (scope < RT_SCOPE_LINK).then_some((u32_at(fixed, 4)?, address))
}

fn parse_route(answer: &Answer<'_>) -> Option<Route> {
    let (fixed, attributes) = answer.split(RTMSG_BYTES)?;
    let family = Family::from_number(*fixed.first()?)?;
    let prefix = *fixed.get(1)?;
    let destination = attributes.find(RTA_DST).and_then(|b| parse_address(family, b));
    let metrics = attributes.find(RTA_METRICS).map(super::message::Attributes::new);
    Some(Route {
        family,
        destination: destination.map(|d| (d, prefix)),
        gateway: attributes.find(RTA_GATEWAY).and_then(|b| parse_address(family, b)),
        interface: attributes.find_u32(RTA_OIF),
        table: attributes.find(RTA_TABLE).and_then(|v| u32_at(v, 0)).unwrap_or(u32::from(*fixed.get(4)?)),
        protocol: *fixed.get(5)?,
        mtu: metrics.and_then(|m| m.find_u32(RTAX_MTU)),
        metric: attributes.find_u32(RTA_PRIORITY),
    })
}
