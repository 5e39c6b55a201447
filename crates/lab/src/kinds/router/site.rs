//! Where a router of this scenario stands, and what its operator has set up on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail};

use super::super::session::PORT;
use crate::build::Lab;
use crate::netns::Ns;
use crate::sh;

/// The router.
pub(super) const NODE: &str = "gw1";
/// The next router behind the link.
pub(super) const BEYOND: &str = "gw2";
/// Port of the router that leads to a host behind it.
pub(super) const PUBLISHED: u16 = 8080;

/// The router's surroundings, of one family of addresses.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) v6: bool,
    /// Interfaces towards the LAN, a second LAN if there is one, and the link.
    pub(super) lan: String,
    pub(super) other_lan: Option<String>,
    pub(super) link: String,
    /// The router's addresses there, with the lengths of their prefixes.
    pub(super) gateways: Vec<(String, IpAddr, u8)>,
    /// A host of the LAN, and its address.
    pub(super) client: IpAddr,
    pub(super) server: IpAddr,
    /// The router's address at the link.
    pub(super) outside: IpAddr,
}

impl Site {
    pub(super) fn of(lab: &Lab, v6: bool) -> Result<Self> {
        let interfaces = lab.topology.interfaces(lab.topology.index(NODE)?);
        let find = |name: &str| interfaces.iter().find(|i| i.name.starts_with(name)).cloned();
        let address = |i: &crate::topology::Interface| {
            let v4 = i.ipv4.map(IpAddr::from);
            if v6 { i.ipv6.map(IpAddr::from) } else { v4 }
        };
        let (Some(lan), Some(link)) = (find("to-client"), find("to-sat")) else {
            bail!("a router between a client and a link is wanted")
        };
        let of_family = interfaces.iter().filter_map(|i| {
            let address = address(i)?;
            Some((i.name.clone(), address, if address.is_ipv6() { 64 } else { 24 }))
        });
        Ok(Self {
            v6,
            lan: lan.name,
            other_lan: find("to-client2").map(|i| i.name),
            gateways: of_family.collect(),
            client: lab.address("client", v6)?,
            server: lab.address("server", v6)?,
            outside: address(&link).context("the router has no address at the link")?,
            link: link.name,
        })
    }

    /// The word of nft for this family.
    pub(super) fn family(&self) -> &'static str {
        if self.v6 { "ip6" } else { "ip" }
    }

    /// The program for rules of this family.
    pub(super) fn iptables(&self) -> &'static str {
        if self.v6 { "ip6tables" } else { "iptables" }
    }

    /// `ip -6` or `ip -4`.
    pub(super) fn ip(&self) -> &'static str {
        if self.v6 { "ip -6" } else { "ip -4" }
    }

    /// An address of the same net with another last part.
    pub(super) fn beside(address: IpAddr, last: u8) -> IpAddr {
        match address {
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() & !0xff | u32::from(last)).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() & !0xff | u128::from(last)).into(),
        }
    }

    /// An address with its port as nft and iptables write it.
    pub(super) fn with_port(address: IpAddr, port: u16) -> String {
        std::net::SocketAddr::new(address, port).to_string()
    }

    /// The net of an address.
    pub(super) fn net(address: IpAddr) -> String {
        format!("{}/{}", Self::beside(address, 0), if address.is_ipv6() { 64 } else { 24 })
    }

    /// Connections that the client opens to the server.
    pub(super) fn outward(&self) -> Way {
        Way {
            from: "client",
            to: self.server,
            port: PORT,
            near: self.lan.clone(),
            far: self.link.clone(),
            is_split: true,
        }
    }

    /// Connections that the server opens to the port that the router publishes.
    pub(super) fn inward(&self) -> Way {
        Way {
            from: "server",
            to: self.outside,
            port: PUBLISHED,
            near: self.link.clone(),
            far: self.lan.clone(),
            is_split: true,
        }
    }
}

/// Connections that are opened from a host, and the interfaces of the router that they pass.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) from: &'static str,
    pub(super) to: IpAddr,
    pub(super) port: u16,
    /// On the side of who opens them.
    pub(super) near: String,
    pub(super) far: String,
    /// They are split wherever the firewall sees each packet once.
    pub(super) is_split: bool,
}

/// What the operator has set up on the router.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Shell lines for the router.
    pub(super) shell: String,
    /// nftables rules for it.
    pub(super) nft: String,
    /// Shell lines for another node.
    pub(super) elsewhere: Vec<(&'static str, String)>,
    /// Its processes, if it has some.
    pub(super) daemons: Option<fn(&mut Lab) -> Result<()>>,
    /// Files that are written before, below the laboratory's directory.
    pub(super) files: Vec<(&'static str, String)>,
    /// The connections that are tried; the client's to the server if empty.
    pub(super) ways: Vec<Way>,
    /// Interfaces that the gateway's configuration names in place of others; of more than one that
    /// becomes the same, one remains.
    pub(super) renamed: Vec<(String, String)>,
    /// Connection tracking leaves these connections alone.
    pub(super) is_untracked: bool,
    /// It is about addresses.
    pub(super) is_nat: bool,
    /// It is about addresses, and lets only that pass which its rules name.
    pub(super) filters_too: bool,
    /// Packets that are known pass no rule any more.
    pub(super) is_offloaded: bool,
}

impl Machine {
    pub(super) fn of_shell(shell: String) -> Self {
        Self { shell, ..Self::default() }
    }

    pub(super) fn of_nft(nft: &str) -> Self {
        Self { nft: nft.to_owned(), ..Self::default() }
    }

    /// Sets it up.
    pub(super) fn set_up(&self, lab: &mut Lab) -> Result<()> {
        let ns = lab.ns(NODE);
        for (name, text) in &self.files {
            let path = lab.directory().join(name);
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            let text = text.replace("@DIRECTORY@", &lab.directory().to_string_lossy());
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        if !self.nft.is_empty() {
            shell(&ns, &format!("nft -f - <<'END'\n{}\nEND", self.nft)).context("setting up rules")?;
        }
        if !self.shell.is_empty() {
            let line = self.shell.replace("@DIRECTORY@", &lab.directory().to_string_lossy());
            shell(&ns, &line).context("setting up rules")?;
        }
        for (node, line) in &self.elsewhere {
            shell(&lab.ns(node), line)?;
        }
        self.daemons.map_or(Ok(()), |start| start(lab))
    }

    /// What the gateway's configuration is for it.
    pub(super) fn configured(&self, site: &Site, attach: bool, text: &str) -> String {
        let block = |name: &str| format!("\n[[interface]]\nname = \"{name}\"\n");
        let mut text = text.to_owned();
        for (old, new) in &self.renamed {
            let is_there = text.contains(&block(new));
            text = text.replace(&block(old), &if is_there { String::new() } else { block(new) });
        }
        if attach {
            let lan = self.renamed.iter().find(|(old, _)| *old == site.lan).map_or(&site.lan, |(_, new)| new);
            text = text.replace(&block(lan), &format!("{}attach = true\n", block(lan)));
            // Copies of data would pass the forward chain, too.
            let link = format!("[[link]]\ninterface = \"{}\"\n", site.link);
            text = text.replace(&link, &format!("{link}early_repetition = \"off\"\n"));
        }
        text
    }
}

/// Runs a shell line inside.
pub(super) fn shell(ns: &Ns, line: &str) -> Result<()> {
    let mut command = ns.command("sh")?;
    command.args(["-ec", line]);
    sh::output(command).map(drop)
}
