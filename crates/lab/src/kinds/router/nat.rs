//! Address translation as operators have it, on the router itself.

use anyhow::{Context, Result, bail};

use super::super::session::PORT;
use super::firewalls;
use super::private;
use super::site::{BEYOND, Machine, PUBLISHED, Site, Way};

/// The last part of a second address at the link.
const SECOND: u8 = 77;
/// How the bridge is called.
const BRIDGE: &str = "docker0";

/// Whether this case is about addresses.
pub(super) fn is_one(case: &str) -> bool {
    CASES.contains(&case)
}

const CASES: &[&str] = &[
    "masquerade",
    "masquerade-firewalld",
    "snat",
    "dnat",
    "docker",
    "hairpin",
    "hairpin-bridge",
    "netmap",
    "npt",
    "flowtable",
];

/// The topology that it needs, if not the usual one.
pub(super) fn topology(case: &str) -> Option<&'static str> {
    case.starts_with("hairpin").then_some("multi-if")
}

/// The translation of this name.
pub(super) fn named(case: &str, site: &Site) -> Result<Machine> {
    let machine = match case {
        "masquerade" => Machine::of_nft(&(firewalls::usual(site) + &masquerade(site))),
        "masquerade-firewalld" => private::firewalld(site, true),
        "snat" => snat(site),
        "dnat" => published(site),
        "docker" => docker(site),
        "hairpin" => hairpin(site)?,
        "hairpin-bridge" => hairpin_over_bridge(site)?,
        "netmap" => netmap(site),
        "npt" => npt(site),
        "flowtable" => flowtable(site),
        _ => bail!("unknown case `{case}`"),
    };
    Ok(Machine { is_nat: true, ..machine })
}

fn masquerade(site: &Site) -> String {
    let (family, link) = (site.family(), &site.link);
    format!(
        "table {family} nat {{\nchain out {{\ntype nat hook postrouting priority 100;\noifname \"{link}\" masquerade\n}}\n}}\n"
    )
}

/// To a second address at the link, by iptables.
fn snat(site: &Site) -> Machine {
    let (program, ip, lan, link) = (site.iptables(), site.ip(), &site.lan, &site.link);
    let second = Site::beside(site.outside, SECOND);
    let length = if site.v6 { "64 nodad" } else { "24" };
    Machine::of_shell(format!(
        "{ip} addr add {second}/{length} dev {link}; {program} -w -P FORWARD DROP; \
         {program} -w -A FORWARD -m conntrack --ctstate INVALID -j DROP; \
         {program} -w -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT; \
         {program} -w -A FORWARD -i {lan} -o {link} -j ACCEPT; \
         {program} -w -t nat -A POSTROUTING -s {} -o {link} -j SNAT --to-source {second}",
        Site::net(site.client)
    ))
}

/// A port of the router leads to a host of the LAN; what the LAN opens is masqueraded.
fn published(site: &Site) -> Machine {
    let to = Site::with_port(site.client, PORT);
    let rules = firewalls::usual(site) + &masquerade(site) + &destination(site, &to);
    Machine { ways: vec![site.inward(), site.outward()], ..Machine::of_nft(&rules) }
}

fn destination(site: &Site, to: &str) -> String {
    let (family, outside) = (site.family(), site.outside);
    format!(
        "table {family} nat {{\nchain in {{\ntype nat hook prerouting priority -100;\n\
         {family} daddr {outside} tcp dport {PUBLISHED} counter dnat to {to}\n}}\n}}\n"
    )
}

/// Lines that put interfaces of the LAN into a bridge, which takes their addresses.
fn bridge(site: &Site, ports: &[&String]) -> String {
    let mut lines = format!("ip link add {BRIDGE} type bridge forward_delay 0; ip link set {BRIDGE} up;");
    for port in ports {
        for (_, address, length) in site.gateways.iter().filter(|(name, ..)| name == *port) {
            let nodad = if site.v6 { " nodad" } else { "" };
            lines += &format!(
                "{ip} addr del {address}/{length} dev {port}; {ip} addr add {address}/{length} dev {BRIDGE}{nodad};",
                ip = site.ip()
            );
        }
        lines += &format!("ip link set {port} master {BRIDGE};");
    }
    lines
}

fn renamed(ports: &[&String]) -> Vec<(String, String)> {
    ports.iter().map(|port| ((*port).clone(), BRIDGE.to_owned())).collect()
}

/// What Docker makes for a container at its bridge with a published port.
fn docker(site: &Site) -> Machine {
    let (t, client) = (site.iptables(), site.client);
    let to = Site::with_port(client, PORT);
    let nat = format!(
        "{t} -w -t nat -N DOCKER; {t} -w -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER; \
         {t} -w -t nat -A OUTPUT -m addrtype --dst-type LOCAL -j DOCKER; \
         {t} -w -t nat -A POSTROUTING -s {net} ! -o {BRIDGE} -j MASQUERADE; \
         {t} -w -t nat -A POSTROUTING -s {client} -d {client} -p tcp --dport {PORT} -j MASQUERADE; \
         {t} -w -t nat -A DOCKER -i {BRIDGE} -j RETURN; \
         {t} -w -t nat -A DOCKER ! -i {BRIDGE} -p tcp --dport {PUBLISHED} -j DNAT --to-destination {to};",
        net = Site::net(client)
    );
    let filter = format!(
        "{t} -w -P FORWARD DROP; for c in DOCKER DOCKER-USER DOCKER-ISOLATION-STAGE-1 DOCKER-ISOLATION-STAGE-2; do {t} -w -N $c; done; \
         {t} -w -A FORWARD -j DOCKER-USER; {t} -w -A FORWARD -j DOCKER-ISOLATION-STAGE-1; \
         {t} -w -A FORWARD -o {BRIDGE} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; \
         {t} -w -A FORWARD -o {BRIDGE} -j DOCKER; {t} -w -A FORWARD -i {BRIDGE} ! -o {BRIDGE} -j ACCEPT; \
         {t} -w -A FORWARD -i {BRIDGE} -o {BRIDGE} -j ACCEPT; \
         {t} -w -A DOCKER -d {client} ! -i {BRIDGE} -o {BRIDGE} -p tcp --dport {PORT} -j ACCEPT; \
         {t} -w -A DOCKER-ISOLATION-STAGE-1 -i {BRIDGE} ! -o {BRIDGE} -j DOCKER-ISOLATION-STAGE-2; \
         {t} -w -A DOCKER-ISOLATION-STAGE-1 -j RETURN; {t} -w -A DOCKER-ISOLATION-STAGE-2 -o {BRIDGE} -j DROP; \
         {t} -w -A DOCKER-ISOLATION-STAGE-2 -j RETURN; {t} -w -A DOCKER-USER -j RETURN"
    );
    let inward = Way { far: BRIDGE.into(), ..site.inward() };
    let outward = Way { near: BRIDGE.into(), ..site.outward() };
    Machine {
        ways: vec![inward, outward],
        renamed: renamed(&[&site.lan]),
        ..Machine::of_shell(format!("{}{nat}{filter}", bridge(site, &[&site.lan])))
    }
}

/// A host of one LAN reaches the published port of a host of another LAN by the router's address
/// at the link.
fn hairpin(site: &Site) -> Result<Machine> {
    let other = site.other_lan.clone().context("a second LAN is wanted")?;
    let to = Site::with_port(site.client, PORT);
    let rules = firewalls::usual(site) + &hairpin_nat(site, &site.lan, &to);
    let way = Way {
        from: "client2",
        to: site.outside,
        port: PUBLISHED,
        near: other,
        far: site.lan.clone(),
        is_split: false,
    };
    Ok(Machine { ways: vec![way], ..Machine::of_nft(&rules) })
}

/// The same where both hosts are behind one bridge: packets leave by the interface that they came
/// in by.
fn hairpin_over_bridge(site: &Site) -> Result<Machine> {
    let other = site.other_lan.clone().context("a second LAN is wanted")?;
    let to = Site::with_port(site.client, PORT);
    let rules = firewalls::usual(site) + &hairpin_nat(site, BRIDGE, &to);
    let way = Way {
        from: "client2",
        to: site.outside,
        port: PUBLISHED,
        near: BRIDGE.into(),
        far: BRIDGE.into(),
        is_split: false,
    };
    let ports = [&site.lan, &other];
    Ok(Machine {
        shell: format!(
            "{} sysctl -qw net.ipv4.conf.{BRIDGE}.send_redirects=0; sysctl -qw net.ipv4.conf.all.send_redirects=0",
            bridge(site, &ports)
        ),
        // The bridge may have another hardware address.
        elsewhere: ["client", "client2"].map(|node| (node, "ip neigh flush all".to_owned())).into(),
        ways: vec![way],
        renamed: renamed(&ports),
        ..Machine::of_nft(&rules)
    })
}

fn hairpin_nat(site: &Site, lan: &str, to: &str) -> String {
    let family = site.family();
    destination(site, to)
        + &format!(
            "table {family} nat {{\nchain out {{\ntype nat hook postrouting priority 100;\n\
             oifname \"{}\" masquerade\noifname \"{lan}\" ct status dnat masquerade\n}}\n}}\n",
            site.link
        )
}

/// The net that the LAN has outside.
fn other_net(site: &Site) -> &'static str {
    if site.v6 { "fd99:0:0:99::/64" } else { "10.99.0.0/24" }
}

/// The way back to it.
fn routes_back(site: &Site) -> Vec<(&'static str, String)> {
    let (net, ip, outside) = (other_net(site), site.ip(), site.outside);
    let via = format!("$({ip} route get {outside} | sed -n 's/.* via \\([^ ]*\\).*/\\1/p')");
    vec![
        (BEYOND, format!("{ip} route add {net} via {outside}")),
        ("server", format!("{ip} route add {net} via {via}")),
    ]
}

/// Net for net, with connection tracking.
fn netmap(site: &Site) -> Machine {
    let (family, net) = (site.family(), Site::net(site.client));
    let rules = firewalls::usual(site)
        + &format!(
            "table {family} nat {{\nchain out {{\ntype nat hook postrouting priority 100;\n\
             oifname \"{}\" {family} saddr {net} snat {family} prefix to {}\n}}\n}}\n",
            site.link,
            other_net(site)
        );
    Machine { elsewhere: routes_back(site), ..Machine::of_nft(&rules) }
}

/// Prefix for prefix without connection tracking (RFC 6296).
fn npt(site: &Site) -> Machine {
    let (net, other, link) = (Site::net(site.client), other_net(site), &site.link);
    Machine {
        elsewhere: routes_back(site),
        is_untracked: true,
        ..Machine::of_shell(format!(
            "ip6tables -w -t raw -A PREROUTING -s {net} -j NOTRACK; ip6tables -w -t raw -A PREROUTING -d {other} -j NOTRACK; \
             ip6tables -w -t mangle -A POSTROUTING -s {net} -o {link} -j SNPT --src-pfx {net} --dst-pfx {other}; \
             ip6tables -w -t mangle -A PREROUTING -i {link} -d {other} -j DNPT --src-pfx {other} --dst-pfx {net}"
        ))
    }
}

/// Masquerade, and what is known takes the short way of a flowtable in software.
fn flowtable(site: &Site) -> Machine {
    let rules = masquerade(site)
        + &format!(
            "table inet fast {{\nflowtable f {{ hook ingress priority 0; devices = {{ \"{}\", \"{}\" }}; }}\n\
             chain onward {{\ntype filter hook forward priority 0;\nmeta l4proto tcp flow add @f\n}}\n}}\n",
            site.lan, site.link
        );
    Machine { is_offloaded: true, ..Machine::of_nft(&rules) }
}
