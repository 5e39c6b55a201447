//! Interfaces: finding, creating veth pairs, bringing up, MTU, queue length.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::message::{Answer, Attributes, Message, u32_at};
use super::socket::Socket;
use crate::error::{Error, Result};

const IFINFOMSG_BYTES: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_GROUP: u16 = 27;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const RTM_NEWLINKPROP: u16 = 108;
const RTM_DELLINKPROP: u16 = 109;
const NLA_F_NESTED: u16 = 0x8000;
/// Its other end is no parent.
const VETH: &str = "veth";
/// It only groups interfaces: their packets are routed where they come in.
const VRF: &str = "vrf";
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const VETH_INFO_PEER: u16 = 1;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

/// What the kernel says of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Number in its namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// There is a carrier (IFF_LOWER_UP).
    pub carrier: bool,
    /// Packets that have come in by it.
    pub rx_packets: u64,
    /// Packets that have left by it.
    pub tx_packets: u64,
    /// Packets that its transmit queue dropped.
    pub tx_dropped: u64,
    /// Its hardware address, where its packets have Ethernet headers.
    pub ethernet: Option<[u8; 6]>,
    /// The group that it is in (`ip link set group`).
    pub group: u32,
    /// The interface of this namespace that it stands upon, as a VLAN does: its packets are counted
    /// there, too.
    pub parent: Option<u32>,
    /// It is a port of a bridge or a bond: its packets are routed where that one stands.
    pub is_port: bool,
    /// It is a VRF.
    pub is_vrf: bool,
    /// It is the loopback interface.
    pub is_loopback: bool,
    /// The kernel forwards what comes in by it, in one family at least. A message about an
    /// interface does not say so: whoever wants to know fills it in.
    pub forwards: bool,
}

impl Link {
    /// Whether packets can go out.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.up && self.carrier
    }

    /// Reads RTM_NEWLINK or RTM_DELLINK.
    #[must_use]
    pub fn parse(answer: &Answer<'_>) -> Option<Self> {
        let (fixed, attributes) = answer.split(IFINFOMSG_BYTES)?;
        // A bridge tells of its ports by messages of the same kind: one that leaves it is not gone.
        if fixed.first() != Some(&(libc::AF_UNSPEC as u8)) {
            return None;
        }
        let flags = u32_at(fixed, 8)?;
        let kind = fixed.get(2..4).map(|k| u16::from_ne_bytes([k[0], k[1]]));
        let address = attributes.find(IFLA_ADDRESS).and_then(|a| <[u8; 6]>::try_from(a).ok());
        // struct rtnl_link_stats64 begins with rx_packets and tx_packets; the eighth is tx_dropped.
        let counters = attributes.find(IFLA_STATS64);
        let counter = |at: usize| {
            let bytes = counters.and_then(|all| all.get(8 * at..8 * at + 8)?.first_chunk());
            bytes.map_or(0, |b| u64::from_ne_bytes(*b))
        };
        let info = attributes.find(IFLA_LINKINFO).map(Attributes::new);
        let kind_of = |what| info.and_then(|info| info.find_str(what));
        Some(Self {
            forwards: false,
            group: attributes.find_u32(IFLA_GROUP).unwrap_or(0),
            parent: attributes.find_u32(IFLA_LINK).filter(|parent| {
                let is_elsewhere = attributes.find(IFLA_LINK_NETNSID).is_some();
                *parent != 0 && !is_elsewhere && kind_of(IFLA_INFO_KIND).is_some_and(|kind| kind != VETH)
            }),
            is_port: kind_of(IFLA_INFO_SLAVE_KIND).is_some_and(|of| of != VRF),
            is_vrf: kind_of(IFLA_INFO_KIND).is_some_and(|kind| kind == VRF),
            is_loopback: flags & libc::IFF_LOOPBACK.cast_unsigned() != 0,
            index: u32_at(fixed, 4)?,
            name: attributes.find_str(IFLA_IFNAME).unwrap_or_default(),
            mtu: attributes.find_u32(IFLA_MTU).unwrap_or(0),
            up: flags & libc::IFF_UP.cast_unsigned() != 0,
            carrier: flags & libc::IFF_LOWER_UP.cast_unsigned() != 0,
            rx_packets: counter(0),
            tx_packets: counter(1),
            tx_dropped: counter(7),
            ethernet: address.filter(|_| kind == Some(libc::ARPHRD_ETHER)),
        })
    }
}

fn ifinfomsg(index: u32, flags: u32, change: u32) -> [u8; IFINFOMSG_BYTES] {
    let mut body = [0; IFINFOMSG_BYTES];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&change.to_ne_bytes());
    body
}

impl Socket {
    /// All interfaces of the namespace.
    ///
    /// # Errors
    /// The kernel does not answer, or they come and go all the time.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        match self.links_now()? {
            (links, true) => Ok(links),
            _ => {
                Err(Error::Refused("listing interfaces: they change faster than they can be read".to_owned()))
            }
        }
    }

    /// The interfaces of the namespace, as far as they can be read while they come and go; and
    /// whether one that is missing is not there.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn links_now(&mut self) -> Result<(Vec<Link>, bool)> {
        let mut links: BTreeMap<u32, Link> = BTreeMap::new();
        let request = Message::new(libc::RTM_GETLINK, 0, &ifinfomsg(0, 0, 0));
        let is_complete = self.try_dump(request, "listing interfaces", |answer| {
            if let Some(link) = Link::parse(&answer) {
                links.insert(link.index, link);
            }
        })?;
        Ok((links.into_values().collect(), is_complete))
    }

    /// The interface of this name; `None` when there is none.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        let mut request = Message::new(libc::RTM_GETLINK, 0, &ifinfomsg(0, 0, 0));
        request.attr_str(IFLA_IFNAME, name);
        let mut found = None;
        let outcome =
            self.query(request, &format!("looking up interface {name}"), |a| found = Link::parse(&a));
        match outcome {
            Err(e) if e.is(libc::ENODEV) => Ok(None),
            other => other.map(|()| found),
        }
    }

    /// The number of the interface of this name.
    pub fn link_index(&mut self, name: &str) -> Result<u32> {
        match self.link(name)? {
            Some(link) => Ok(link.index),
            None => Err(Error::Refused(format!("there is no interface {name}"))),
        }
    }

    /// Brings an interface up or down.
    pub fn link_up(&mut self, index: u32, up: bool) -> Result<()> {
        let bit = libc::IFF_UP.cast_unsigned();
        let body = ifinfomsg(index, if up { bit } else { 0 }, bit);
        let word = if up { "up" } else { "down" };
        self.request(Message::new(libc::RTM_NEWLINK, 0, &body), &format!("bringing interface {index} {word}"))
    }

    /// The interface carries no multicast.
    pub fn link_without_multicast(&mut self, index: u32) -> Result<()> {
        let body = ifinfomsg(index, 0, libc::IFF_MULTICAST.cast_unsigned());
        self.request(
            Message::new(libc::RTM_NEWLINK, 0, &body),
            &format!("turning off multicast on interface {index}"),
        )
    }

    /// Sets MTU (bytes) and transmit queue length (packets).
    pub fn link_sizes(&mut self, index: u32, mtu: Option<u32>, txqueuelen: Option<u32>) -> Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0, &ifinfomsg(index, 0, 0));
        if let Some(mtu) = mtu {
            message.attr_u32(IFLA_MTU, mtu);
        }
        if let Some(len) = txqueuelen {
            message.attr_u32(IFLA_TXQLEN, len);
        }
        self.request(message, &format!("setting MTU and queue length of interface {index}"))
    }

    /// The kernel gives the interface no IPv6 link-local address by itself.
    pub fn link_no_autoaddress(&mut self, index: u32) -> Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0, &ifinfomsg(index, 0, 0));
        message.nested(IFLA_AF_SPEC, &[], |m| {
            m.nested(libc::AF_INET6 as u16, &[], |m| {
                m.attr(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
            });
        });
        self.request(message, &format!("turning off link-local addresses of interface {index}"))
    }

    /// Removes an interface (of a veth pair: both ends).
    pub fn link_delete(&mut self, index: u32) -> Result<()> {
        let message = Message::new(libc::RTM_DELLINK, 0, &ifinfomsg(index, 0, 0));
        self.request(message, &format!("removing interface {index}"))
    }

    /// Gives an interface one more name (`altname` of `ip link`). It goes with the interface, no
    /// other one in the network namespace can have it, and only who may configure the network can
    /// give it.
    ///
    /// # Errors
    /// EEXIST: another interface has it.
    pub fn link_name_add(&mut self, index: u32, name: &str) -> Result<()> {
        let what = format!("giving interface {index} the name {name}");
        self.request(link_name(RTM_NEWLINKPROP, NLM_F_CREATE | NLM_F_EXCL, (index, name)), &what)
    }

    /// Takes such a name back.
    ///
    /// # Errors
    /// It does not have it.
    pub fn link_name_remove(&mut self, index: u32, name: &str) -> Result<()> {
        let what = format!("taking the name {name} from interface {index}");
        self.request(link_name(RTM_DELLINKPROP, 0, (index, name)), &what)
    }

    /// Makes a veth pair whose ends stand in two namespaces. `mac` fixes the Ethernet addresses.
    pub fn veth(&mut self, a: VethEnd<'_>, b: VethEnd<'_>) -> Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &ifinfomsg(0, 0, 0));
        a.write(&mut message);
        message.nested(IFLA_LINKINFO, &[], |m| {
            m.attr_str(IFLA_INFO_KIND, "veth").nested(IFLA_INFO_DATA, &[], |m| {
                m.nested(VETH_INFO_PEER, &ifinfomsg(0, 0, 0), |m| b.write(m));
            });
        });
        self.request(message, &format!("creating the veth pair {} - {}", a.name, b.name))
    }
}

fn link_name(kind: u16, flags: u16, (index, name): (u32, &str)) -> Message {
    let mut message = Message::new(kind, flags, &ifinfomsg(index, 0, 0));
    message.nested(IFLA_PROP_LIST | NLA_F_NESTED, &[], |m| {
        m.attr_str(IFLA_ALT_IFNAME, name);
    });
    message
}

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Interface name.
    pub name: &'a str,
    /// The network namespace it stands in.
    pub namespace: BorrowedFd<'a>,
    /// Ethernet address; random when `None`.
    pub mac: Option<[u8; 6]>,
}

impl VethEnd<'_> {
    fn write(&self, message: &mut Message) {
        message.attr_str(IFLA_IFNAME, self.name);
        message.attr_u32(IFLA_NET_NS_FD, self.namespace.as_raw_fd().cast_unsigned());
        if let Some(mac) = self.mac {
            message.attr(IFLA_ADDRESS, &mac);
        }
    }
}
