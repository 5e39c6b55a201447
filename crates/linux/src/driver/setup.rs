//! What a driver begins with: which devices there are, for which interfaces.

use std::sync::Arc;

use farlink_gateway::{Config, IfaceId};

use super::DriverConfig;
use super::face::Face;
use super::network::Port;
use super::pulse::Pulse;
use crate::bump::{Bump, NO_BUMP, Tap};
use crate::divert::{DivertConfig, Diverted, Method, Selection};
use crate::error::{Error, Result};
use crate::netlink::Socket;
use crate::tun::{Tun, TunConfig};

/// Interfaces, devices, and what leads to them.
pub(super) struct Setup {
    pub(super) ports: Vec<Port>,
    pub(super) faces: Vec<Face>,
    pub(super) diverted: Vec<Diverted>,
    pub(super) pulse: Arc<Pulse>,
    /// `None`: policy routing is to lead to the devices.
    pub(super) bump: Option<Bump>,
}

impl Setup {
    /// Makes the devices. Nothing leads to them yet.
    pub(super) fn make(config: &DriverConfig) -> Result<Self> {
        let interfaces: Vec<(IfaceId, String)> =
            config.gateway.interfaces.iter().map(|i| (i.id, i.name.clone())).collect();
        if interfaces.is_empty() {
            return Err(Error::Refused("no interface is to be diverted".to_owned()));
        }
        let mut bump = load(&config.divert)?;
        let bumped = match bump {
            Some(_) => bumped(&config.gateway, &config.divert)?,
            None => interfaces.iter().map(|(_, name)| name.clone()).collect(),
        };
        // A queue for each side: acknowledgements are not to wait behind data.
        let sides = if bump.is_some() { 2 } else { 1 };
        let pulse = Arc::new(Pulse::new(bumped.len() * sides));
        let (mut ports, mut faces, mut diverted) = (Vec::new(), Vec::new(), Vec::new());
        for (id, interface) in interfaces {
            let first = faces.len();
            let own = first..first + if bumped.contains(&interface) { sides } else { 0 };
            for n in own.clone() {
                let name = config.divert.tun_name(n);
                let made = TunConfig { name, queue_packets: config.queue_packets };
                let pulse = (Arc::clone(&pulse), n);
                let face = match &mut bump {
                    Some(bump) => {
                        let tap = Tap::create(&made)?;
                        bump.serve(tap.index())?;
                        Face::of_tap(tap, pulse)
                    }
                    None => Face::of_tun(Tun::create(&made)?, pulse),
                };
                diverted.push(Diverted {
                    interface: interface.clone(),
                    tun: face.name().to_owned(),
                    tun_index: face.index(),
                });
                faces.push(face);
            }
            let rank = match &bump {
                Some(_) => bumped.iter().position(|name| *name == interface),
                None => None,
            };
            let rank = rank.and_then(|n| u16::try_from(n).ok()).unwrap_or(NO_BUMP);
            ports.push(Port {
                id,
                interface,
                index: None,
                is_renamed: false,
                is_usable: false,
                faces: own,
                rank,
            });
        }
        Ok(Self { ports, faces, diverted, pulse, bump })
    }
}

/// The programs, where they are wanted and the kernel has the means.
fn load(divert: &DivertConfig) -> Result<Option<Bump>> {
    if divert.method == Method::Policy {
        return Ok(None);
    }
    let protocols: Vec<u8> = divert
        .selections
        .iter()
        .filter_map(|s| match s {
            Selection::Protocol(protocol) => Some(*protocol),
            _ => None,
        })
        .collect();
    match Bump::load(&protocols).and_then(|bump| bump.probe().map(|()| bump)) {
        Ok(bump) => {
            tracing::info!("traffic is diverted by bumps");
            Ok(Some(bump))
        }
        Err(error) if divert.method == Method::Auto => {
            tracing::warn!(%error, "there can be no bump here: traffic is diverted by policy routing");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Names of the interfaces that get a bump, those first that take what passes two of them. Unless
/// some are named, all: the links, then the others.
fn bumped(gateway: &Config, divert: &DivertConfig) -> Result<Vec<String>> {
    let all = || gateway.interfaces.iter();
    if let Some(unknown) = divert.attach.iter().find(|name| !all().any(|i| i.name == **name)) {
        return Err(Error::Refused(format!("interface {unknown} is not diverted, so it gets no bump")));
    }
    if !divert.attach.is_empty() {
        return Ok(divert.attach.clone());
    }
    let (links, others): (Vec<_>, Vec<_>) = all().partition(|i| i.link.is_some());
    Ok(links.into_iter().chain(others).map(|i| i.name.clone()).collect())
}

/// The interfaces' own addresses, for those of which none is configured: ICMP errors of the gateway
/// come from them.
pub(super) fn find_addresses(config: &mut Config) -> Result<()> {
    let mut socket = Socket::open()?;
    let addresses = socket.addresses()?;
    for link in socket.links()? {
        let Some(interface) = config.interfaces.iter_mut().find(|i| i.name == link.name) else { continue };
        if interface.addresses.is_empty() {
            let own = addresses.iter().filter(|(index, _)| *index == link.index);
            interface.addresses = own.map(|(_, address)| *address).collect();
        }
    }
    Ok(())
}
