//! ufw and firewalld in a namespace, with files of their own: nothing of the machine's is touched.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::site::{Machine, NODE, Site};
use crate::build::Lab;
use crate::sh;

/// How long a firewall may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
const BUS: &str = "dbus.sock";

/// What both need.
pub(super) const UFW: &[&str] = &["ufw", "iptables", "ip6tables"];
pub(super) const FIREWALLD: &[&str] = &["firewalld", "firewall-cmd", "dbus-daemon"];

/// ufw as it is installed, which forwards what `ufw route allow` names.
pub(super) fn ufw(site: &Site) -> Machine {
    let script = format!(
        "mount -t tmpfs private /mnt\n\
         for d in /etc/ufw /etc/default /lib/ufw; do mkdir -p /mnt$d; cp -a $d/. /mnt$d/; mount --bind /mnt$d $d; done\n\
         mount -t tmpfs private /run\n\
         sed -i 's/^DEFAULT_FORWARD_POLICY=.*/DEFAULT_FORWARD_POLICY=\"DROP\"/; s/^IPT_MODULES=.*/IPT_MODULES=\"\"/' /etc/default/ufw\n\
         ufw route allow in on {} out on {}\n\
         ufw --force enable\n",
        site.lan, site.link
    );
    let shell = "unshare --mount --propagation private sh -e @DIRECTORY@/ufw.sh".to_owned();
    Machine { files: vec![("ufw.sh", script)], shell, ..Machine::default() }
}

/// firewalld with a zone for the LAN, one for the link, and a policy from the one to the other.
pub(super) fn firewalld(site: &Site, masquerades: bool) -> Machine {
    let masquerade = if masquerades && !site.v6 { "<masquerade/>" } else { "" };
    let rich = "<rule family=\"ipv6\"><masquerade/></rule>";
    let rich = if masquerades && site.v6 { rich } else { "" };
    let zone = |target: &str, name: &str, interface: &str, more: &str| {
        format!(
            "<zone{target}><short>{name}</short><interface name=\"{interface}\"/><forward/>{more}</zone>\n"
        )
    };
    let files = vec![
        (
            "bus.conf",
            format!(
                "<busconfig><type>system</type><listen>unix:path=@DIRECTORY@/{BUS}</listen><auth>EXTERNAL</auth>\
                 <policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/><allow send_type=\"method_call\"/>\
                 <allow send_type=\"signal\"/><allow send_type=\"method_return\"/><allow send_type=\"error\"/>\
                 <allow receive_type=\"method_call\"/><allow receive_type=\"signal\"/>\
                 <allow receive_type=\"method_return\"/><allow receive_type=\"error\"/></policy></busconfig>\n"
            ),
        ),
        ("firewalld/firewalld.conf", "DefaultZone=public\nFirewallBackend=nftables\n".to_owned()),
        ("firewalld/zones/trusted.xml", zone(" target=\"ACCEPT\"", "LAN", &site.lan, "")),
        ("firewalld/zones/external.xml", zone("", "Link", &site.link, &format!("{masquerade}{rich}"))),
        (
            "firewalld/policies/onward.xml",
            "<policy target=\"ACCEPT\"><ingress-zone name=\"trusted\"/><egress-zone name=\"external\"/></policy>\n".to_owned(),
        ),
    ];
    Machine {
        files,
        daemons: Some(start_firewalld),
        is_nat: masquerades,
        filters_too: masquerades,
        ..Machine::default()
    }
}

fn start_firewalld(lab: &mut Lab) -> Result<()> {
    let directory = lab.directory();
    let inside = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let bus = format!("--config-file={}", inside("bus.conf"));
    let bus = lab.start(NODE, "dbus-daemon", &[&bus, "--nofork", "--nopidfile"])?;
    let address = format!("DBUS_SYSTEM_BUS_ADDRESS=unix:path={}", inside(BUS));
    let end = Instant::now() + PATIENCE;
    while !directory.join(BUS).exists() {
        ensure!(Instant::now() < end, "dbus-daemon does not listen: {}", bus.last_words());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (config, log) = (inside("firewalld"), inside("firewalld.log"));
    let words =
        [&address, "firewalld", "--nofork", "--nopid", "--system-config", &config, "--log-file", &log];
    let started = lab.start(NODE, "env", &words)?;
    loop {
        let mut ask: Command = lab.ns(NODE).command("env")?;
        ask.args([&address, "firewall-cmd", "--state"]);
        if sh::output(ask).is_ok() {
            return Ok(());
        }
        ensure!(Instant::now() < end, "firewalld does not start: {}", started.last_words());
        std::thread::sleep(Duration::from_millis(100));
    }
}
