//! Makes a topology real: namespaces, cables, addresses, routes, tuning, links, gateways. And takes
//! it down again.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::gateway::{self, Gateway};
use crate::limit::Clock;
use crate::link::{self, Link};
use crate::netns::Ns;
use crate::process::{self, Recorded, Started};
use crate::scenario::Cell;
use crate::settings::Settings;
use crate::state::{self, State};
use crate::topology::{Role, Topology};
use crate::{hosts, sh};

/// How long a cable may take to come up: the kernel's own bound is one second.
const CABLE_PATIENCE: Duration = Duration::from_secs(5);

/// A laboratory that stands. Dropping it takes it down, unless it was left standing.
#[derive(Debug)]
pub struct Lab {
    /// What stands where.
    pub topology: Topology,
    /// How it was asked for.
    pub settings: Settings,
    /// The gateways that run, in the order of the nodes.
    pub gateways: Vec<Gateway>,
    /// The emulated links, in the order of the nodes.
    pub links: Vec<Link>,
    state: State,
    others: Vec<Child>,
    left_standing: bool,
}

/// Whose life a laboratory shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It stands until `lab down`.
    Standing,
    /// It goes with this program, however this program ends. Only from the main thread.
    WithUs,
}

impl Lab {
    /// Puts up a laboratory. On an error everything that was made is removed again.
    pub fn up(topology: &str, settings: &Settings, prefix: &str, life: Life) -> Result<Self> {
        state::check_prefix(prefix)?;
        settings.check()?;
        if let Some(missing) = hosts::missing(settings) {
            bail!(missing);
        }
        let topology = Topology::named(topology, settings)?;
        if let Some(old) = State::load(prefix)? {
            if !old.is_orphan() {
                bail!(
                    "a laboratory `{prefix}` ({}) stands already; `farlink lab down --prefix {prefix}` removes it",
                    old.topology
                );
            }
            old.take_down()?;
        }
        let namespaces = topology.nodes.iter().map(|n| format!("{prefix}-{}", n.name)).collect();
        let owner = (life == Life::WithUs).then(Recorded::myself);
        let state = State {
            prefix: prefix.into(),
            topology: topology.name.clone(),
            owner,
            namespaces,
            processes: Vec::new(),
        };
        if let Some(taken) = state.namespaces.iter().find(|n| Ns::named(n).exists()) {
            bail!("there is a namespace {taken} that no laboratory has made; choose another --prefix");
        }
        state.save()?;
        let mut lab = Self {
            topology,
            settings: settings.clone(),
            gateways: Vec::new(),
            links: Vec::new(),
            state,
            others: Vec::new(),
            left_standing: false,
        };
        // Dropping `lab` on the way out clears up.
        lab.make_network()?;
        lab.start_links()?;
        lab.start_gateways()?;
        lab.wait_for_cables()?;
        lab.left_standing = life == Life::Standing;
        Ok(lab)
    }

    /// The prefix of its names.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.state.prefix
    }

    /// The namespace of a node.
    #[must_use]
    pub fn ns(&self, node: &str) -> Ns {
        Ns::named(&format!("{}-{node}", self.state.prefix))
    }

    /// The address of a node.
    pub fn address(&self, node: &str, v6: bool) -> Result<IpAddr> {
        self.topology.address(node, v6)
    }

    /// The emulated links that are no Ethernets.
    pub fn hard_links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| !link.is_ethernet)
    }

    /// What is timed begins: schedules of emulated links count from here on, or from their first
    /// data where the clock begins with that. Whoever announces them goes by the time of now.
    pub fn begin_schedules(&self, clock: Clock, cell: &Cell) -> Result<()> {
        let with_data = clock == Clock::FirstByte && !cell.is_announced();
        self.hard_links().try_for_each(if with_data { Link::begin_with_data } else { Link::begin })
    }

    /// The gateway on a node.
    pub fn gateway(&mut self, node: &str) -> Result<&mut Gateway> {
        self.gateways
            .iter_mut()
            .find(|g| g.node == node)
            .with_context(|| format!("no gateway runs on {node}"))
    }

    /// Directory of its files.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        state::directory(&self.state.prefix)
    }

    /// Starts a further program in the namespace of a node; it ends with the laboratory.
    pub fn start(&mut self, node: &str, program: &str, args: &[&str]) -> Result<Started> {
        let mut command = self.ns(node).command(program)?;
        command.args(args);
        let log = self.directory().join(format!("{node}-{}.log", self.others.len()));
        let child = process::start(command, &self.state.prefix, &log, !self.is_standing())?;
        let process = self.state.add(child.id(), program)?;
        self.others.push(child);
        Ok(Started { process, log })
    }

    fn is_standing(&self) -> bool {
        self.state.owner.is_none()
    }

    /// It is the client's router, and no gateway.
    fn is_before_client(&self, node: &crate::topology::Node) -> bool {
        let number = self.topology.index(&node.name).ok();
        let neighbours = number.map(|number| self.topology.interfaces(number)).unwrap_or_default();
        let is_next = neighbours.iter().any(|i| self.topology.nodes[i.neighbour].name == "client");
        is_next && node.role != Role::Host && !node.runs_gateway
    }

    fn make_network(&self) -> Result<()> {
        for name in &self.state.namespaces {
            Ns::named(name).create()?;
        }
        // Everywhere before the first interface: those begin with the defaults of their namespace.
        for node in &self.topology.nodes {
            let sysctls = match node.role {
                Role::Host => {
                    let all = hosts::host_sysctls(&self.settings).into_iter();
                    all.chain(hosts::own_sysctls(&self.settings, &node.name)).collect()
                }
                _ => hosts::router_sysctls(),
            };
            self.ns(&node.name).sysctls(&sysctls)?;
            if node.role == Role::Host && self.settings.lacks(&node.name).oversized {
                self.ns(&node.name).run("nft", &[&hosts::refusal(&self.settings)])?;
            }
            if !self.settings.tracking.is_empty() && self.is_before_client(node) {
                self.ns(&node.name).run("nft", &[&hosts::tracking(&self.settings)])?;
                self.ns(&node.name).sysctls(&hosts::tracking_sysctls(&self.settings))?;
            }
            if self.settings.eth_mtu_untold && node.role != Role::Host && !node.runs_gateway {
                self.ns(&node.name).run("nft", &[hosts::SILENCE])?;
            }
        }
        for (number, node) in self.topology.nodes.iter().enumerate() {
            let ns = self.ns(&node.name);
            // The lower end of each wire makes it, both ends already in their namespaces.
            let mut lines = Vec::new();
            for i in self.topology.interfaces(number).into_iter().filter(|i| i.neighbour > number) {
                let far = self.topology.interface(i.neighbour, number)?;
                let far_ns = self.ns(&self.topology.nodes[i.neighbour].name);
                let mtu = if self.topology.is_emulated(i.wire) && !self.topology.is_of_ethernet(i.wire) {
                    self.settings.link_mtu
                } else if self.topology.is_of_ethernet(i.wire) && !self.topology.ends_at_host(i.wire) {
                    self.settings.eth_mtu.unwrap_or(self.settings.mtu)
                } else {
                    self.settings.mtu
                };
                lines.push(format!(
                    "link add {} mtu {mtu} type veth peer name {} mtu {mtu} netns {}",
                    i.name,
                    far.name,
                    far_ns.name()
                ));
            }
            ns.ip_batch(false, &lines)?;
        }
        for (number, node) in self.topology.nodes.iter().enumerate() {
            let ns = self.ns(&node.name);
            let mut lines = Vec::new();
            for i in self.topology.interfaces(number) {
                if let (Some(v4), Some(v6)) = (i.ipv4, i.ipv6) {
                    lines.push(format!("addr add {v4}/24 dev {}", i.name));
                    if self.settings.has_v6() {
                        lines.push(format!("addr add {v6}/64 dev {} nodad", i.name));
                    }
                }
                lines.push(format!("link set {} up", i.name));
            }
            ns.ip_batch(false, &lines)?;
            for i in self.topology.interfaces(number) {
                if self.topology.is_emulated(i.wire) {
                    ns.offloads_off(&i.name)?;
                }
            }
        }
        for number in 0..self.topology.nodes.len() {
            self.set_routes(number)?;
        }
        Ok(())
    }

    /// The kernel looks at new carriers once a second, and answers for no IPv6 address of an
    /// interface before.
    fn wait_for_cables(&self) -> Result<()> {
        let end = Instant::now() + CABLE_PATIENCE;
        for (number, node) in self.topology.nodes.iter().enumerate() {
            let names: Vec<_> = self.topology.interfaces(number).into_iter().map(|i| i.name).collect();
            let is_up = |text: &str, name: &str| {
                let of = |line: &&str| line.split([' ', '@', ':']).any(|word| word == name);
                text.lines().filter(of).any(|line| line.contains(" state UP "))
            };
            loop {
                let text = self.ns(&node.name).run("ip", &["-o", "link", "show"])?;
                let Some(down) = names.iter().find(|name| !is_up(&text, name)) else { break };
                if Instant::now() >= end {
                    bail!("{down} of {} does not come up", node.name);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn set_routes(&self, number: usize) -> Result<()> {
        let is_host = self.topology.nodes[number].role == Role::Host;
        let name = &self.topology.nodes[number].name;
        let attributes = if is_host { hosts::route_attributes(&self.settings, name) } else { String::new() };
        self.routes_with(number, &attributes)
    }

    /// Gives the TCP of a node (a proxy's) the congestion control of the hosts.
    pub fn set_congestion_control(&self, node: &str) -> Result<()> {
        let attributes = format!(" congctl {}", self.settings.host_cc);
        self.routes_with(self.topology.index(node)?, &attributes)
    }

    /// Adds attributes to the routes of a host.
    pub fn extend_routes(&self, node: &str, attributes: &str) -> Result<()> {
        let all = hosts::route_attributes(&self.settings, node) + attributes;
        self.routes_with(self.topology.index(node)?, &all)
    }

    fn routes_with(&self, number: usize, attributes: &str) -> Result<()> {
        let node = &self.topology.nodes[number];
        let ns = self.ns(&node.name);
        let families: &[bool] = if self.settings.has_v6() { &[false, true] } else { &[false] };
        for v6 in families.iter().copied() {
            let routes = self.topology.routes(number).into_iter().filter(|r| r.to.0.is_ipv6() == v6);
            let lines: Vec<String> = routes
                .map(|r| {
                    let (net, length) = r.to;
                    format!("route replace {net}/{length} via {} dev {}{attributes}", r.via, r.interface)
                })
                .collect();
            ns.ip_batch(v6, &lines)?;
        }
        Ok(())
    }

    fn start_links(&mut self) -> Result<()> {
        for number in self.topology.links() {
            let node = self.topology.nodes[number].name.clone();
            let file = |end: &str| self.directory().join(format!("{node}.{end}"));
            let (log, control) = (file("log"), file("sock"));
            let ends = self.topology.interfaces(number);
            let sides = [ends[0].name.as_str(), ends[1].name.as_str()];
            let settings = match self.topology.hard_link(number) {
                Some(n) => self.settings.of_link(n),
                None => self.settings.ethernet(&node),
            };
            let command = link::command(&self.ns(&node), sides, &settings, &control)?;
            let child = process::start(command, &self.state.prefix, &log, !self.is_standing())?;
            let process = self.state.add(child.id(), "link")?;
            let is_ethernet = self.topology.is_ethernet(number);
            let mut link = Link { node, is_ethernet, process, log, control, child };
            let ready = link.wait_ready();
            self.links.push(link);
            ready?;
        }
        Ok(())
    }

    fn start_gateways(&mut self) -> Result<()> {
        for number in self.topology.gateways() {
            let mut gateway = self.new_gateway(number)?;
            let ready = gateway.wait_ready();
            self.gateways.push(gateway);
            ready?;
        }
        Ok(())
    }

    /// Starts a gateway again on a node where one has ended.
    pub fn restart_gateway(&mut self, node: &str) -> Result<()> {
        self.restart_gateway_with(node, |text| text)
    }

    /// The same, with the configuration that `change` makes of the usual one.
    pub fn restart_gateway_with(&mut self, node: &str, change: impl FnOnce(String) -> String) -> Result<()> {
        let mut gateway = self.new_gateway_with(self.topology.index(node)?, change)?;
        let ready = gateway.wait_ready();
        match self.gateways.iter_mut().find(|g| g.node == node) {
            Some(old) => *old = gateway,
            None => self.gateways.push(gateway),
        }
        ready
    }

    fn new_gateway(&mut self, number: usize) -> Result<Gateway> {
        self.new_gateway_with(number, |text| text)
    }

    fn new_gateway_with(&mut self, number: usize, change: impl FnOnce(String) -> String) -> Result<Gateway> {
        let node = self.topology.nodes[number].name.clone();
        let file = |end: &str| self.directory().join(format!("{node}.{end}"));
        let (config, socket, log) = (file("toml"), file("sock"), file("log"));
        let text = gateway::config_text(&self.topology, number, &self.settings, &socket)?;
        std::fs::write(&config, change(text))?;
        let program = match self.settings.programs.get(&node) {
            Some(other) => other.into(),
            None => sh::farlink_binary()?,
        };
        let command = Gateway::command(self.ns(&node).command(program)?, &config, &self.settings.gateway_log);
        let child = process::start(command, &self.state.prefix, &log, !self.is_standing())?;
        let process = self.state.add(child.id(), "gateway")?;
        Ok(Gateway { node, process, socket, config, log, child })
    }

    /// Names and addresses, for `lab up --json`.
    #[must_use]
    pub fn describe(&self) -> Value {
        let namespaces: Vec<Value> = (0..self.topology.nodes.len()).map(|n| self.describe_node(n)).collect();
        json!({
            "prefix": self.state.prefix,
            "topology": self.topology.name,
            "namespaces": namespaces,
            "settings": self.settings,
            "directory": self.directory(),
        })
    }

    fn describe_node(&self, number: usize) -> Value {
        let node = &self.topology.nodes[number];
        let interfaces = self.topology.interfaces(number);
        let mut described = json!({
            "name": format!("{}-{}", self.state.prefix, node.name),
            "node": node.name,
            "role": match node.role {
                Role::Host => "host",
                Role::Gateway => "gateway",
                Role::Router => "router",
                Role::Link => "link",
            },
            "ipv4": interfaces.first().and_then(|i| i.ipv4),
            "ipv6": interfaces.first().and_then(|i| i.ipv6),
            "interfaces": interfaces.iter().map(|i| json!({
                "name": i.name,
                "to": self.topology.nodes[i.neighbour].name,
                "ipv4": i.ipv4,
                "ipv6": i.ipv6,
            })).collect::<Vec<_>>(),
        });
        if let Some(gateway) = self.gateways.iter().find(|g| g.node == node.name) {
            described["farlink"] = json!({
                "pid": gateway.process.pid,
                "socket": gateway.socket,
                "config": gateway.config,
                "log": gateway.log,
            });
        }
        if let Some(link) = self.links.iter().find(|l| l.node == node.name) {
            described["emulator"] = json!({
                "pid": link.process.pid,
                "socket": link.control,
                "log": link.log,
            });
        }
        described
    }

    /// Takes it down now, and says what could not be removed.
    pub fn down(mut self) -> Result<()> {
        self.left_standing = true;
        self.clear()
    }

    fn clear(&mut self) -> Result<()> {
        let outcome = self.state.take_down();
        let children = self
            .gateways
            .iter_mut()
            .map(|g| &mut g.child)
            .chain(self.links.iter_mut().map(|l| &mut l.child))
            .chain(&mut self.others);
        // They have ended: this reaps them.
        children.for_each(|c| drop(c.try_wait()));
        outcome
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.left_standing
            && let Err(error) = self.clear()
        {
            eprintln!("the laboratory {} could not be removed whole: {error:#}", self.state.prefix);
        }
    }
}
