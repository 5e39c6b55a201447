//! What the driver's own diagnosis does not look at: things that slow diverted traffic down, or
//! carry it past.

use std::os::fd::AsRawFd;

use farlink_linux::divert::{Diagnosis, Severity};
use farlink_linux::netlink::{Attributes, Message, Socket};
use farlink_linux::programs::{self, Program};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const IFINFOMSG_BYTES: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;

/// What of an interface matters here.
#[derive(Clone, Debug, Default)]
struct Interface {
    index: u32,
    name: String,
    is_up: bool,
    /// The bridge, bond or VRF that it belongs to.
    master: Option<u32>,
    /// vrf, bridge, veth, ...; empty for hardware.
    kind: String,
}

fn all() -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    let request = Message::new(libc::RTM_GETLINK, 0, &[0; IFINFOMSG_BYTES]);
    let outcome = Socket::open().and_then(|mut socket| {
        socket.dump(request, "listing interfaces", |answer| {
            let Some((fixed, attributes)) = answer.split(IFINFOMSG_BYTES) else { return };
            let number = |at: usize| {
                fixed.get(at..at + 4).and_then(|b| b.first_chunk().copied()).map(u32::from_ne_bytes)
            };
            let kind = attributes
                .find(IFLA_LINKINFO)
                .and_then(|info| Attributes::new(info).find_str(IFLA_INFO_KIND));
            let interface = Interface {
                index: number(4).unwrap_or(0),
                name: attributes.find_str(IFLA_IFNAME).unwrap_or_default(),
                is_up: number(8).is_some_and(|flags| flags & libc::IFF_UP.cast_unsigned() != 0),
                master: attributes.find_u32(IFLA_MASTER),
                kind: kind.unwrap_or_default(),
            };
            if !found.iter().any(|i| i.index == interface.index) {
                found.push(interface);
            }
        })
    });
    // Whoever cannot list them learns the reason from the driver's own diagnosis.
    outcome.map_or(Vec::new(), |()| found)
}

/// A port of a bridge or bond hands its packets to the master, which is where they are routed. A
/// VRF only groups.
fn is_port(interface: &Interface, all: &[Interface]) -> bool {
    let master = interface.master.and_then(|index| all.iter().find(|i| i.index == index));
    master.is_some_and(|master| master.kind != "vrf")
}

/// Interfaces that are up, except loopback, VRFs, ports and Farlink's own devices: what is diverted
/// when nothing is named.
pub fn interfaces() -> Vec<String> {
    let all = all();
    let is_candidate = |i: &Interface| {
        i.is_up && i.name != "lo" && i.kind != "vrf" && !i.name.starts_with("farlink") && !is_port(i, &all)
    };
    all.iter().filter(|i| is_candidate(i)).map(|i| i.name.clone()).collect()
}

/// Further findings. Changes nothing.
pub fn further(interfaces: &[String]) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    let all = all();
    for name in interfaces {
        if all.iter().any(|i| i.name == *name && is_port(i, &all)) {
            let text = format!(
                "interface {name} is a port of a bridge or bond, so nothing is routed that comes in by it; divert the \
                 bridge or bond instead"
            );
            found.push(Diagnosis::new("bridge-port", Severity::Problem, text));
        }
    }
    if interfaces.len() == 1 {
        let text = format!(
            "only {} would be diverted: a connection is split only when both of its directions are diverted, and that \
             is so here only if its packets both come in and go out by this interface",
            interfaces.concat()
        );
        found.push(Diagnosis::new("one-interface", Severity::Warning, text));
    }
    let old_nat = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .any(|tables| tables.lines().any(|t| t == "nat"));
    if old_nat {
        let text = "the legacy iptables NAT table is loaded; if it translates source addresses (MASQUERADE, SNAT) of \
                    forwarded connections, these are seen in one direction only and are forwarded unsplit";
        found.push(Diagnosis::new("legacy-nat", Severity::Note, text));
    }
    // Only hardware: between virtual devices packets are merged already.
    let hardware = all.iter().filter(|i| i.kind.is_empty() && interfaces.contains(&i.name));
    found.extend(hardware.filter(|i| has_gro(&i.name) == Some(false)).map(|i| {
        let text = format!(
            "interface {0} has GRO switched off, so packets reach Farlink one by one instead of as super-segments, \
             which costs several times the processor time; `ethtool -K {0} gro on`, unless it is meant so",
            i.name
        );
        Diagnosis::new("gro-off", Severity::Note, text)
    }));
    found.extend(kernel_features());
    if let Ok(release) = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        && is_older_than(&release, (5, 11))
    {
        let text = format!(
            "the kernel, {}, is older than 5.11: each wait takes a system call more, there is no bump, and Farlink has not \
             been tried with it",
            release.trim()
        );
        found.push(Diagnosis::new("kernel-too-old", Severity::Note, text));
    }
    found
}

/// What the rules of the diversion are made of, offered to the kernel without being applied.
const RULES: &str = "table inet farlink_check {
    chain prerouting {
        type filter hook prerouting priority -450; policy accept
        meta mark set meta mark & 0x00ffffff | 0x01000000
        fib daddr . mark oifname \"lo\" counter notrack accept
    }
}
";

/// Whether this kernel and this nft know what diversion needs; nothing is changed.
fn kernel_features() -> Option<Diagnosis> {
    if !farlink_linux::caps::has_net_admin() {
        return None; // which is a problem that is named already
    }
    // That nft is missing is named already.
    let output = programs::run(Program::Nft, &["--check", "--file", "-"], RULES).ok()?;
    if output.is_success {
        return None;
    }
    let text = format!(
        "this kernel, or this version of nft, lacks what diversion needs (nf_tables with fib, counters and marks in the \
         inet family): {}",
        output.stderr.lines().next().unwrap_or("no reason given")
    );
    Some(Diagnosis::new("kernel-lacks-nftables", Severity::Problem, text))
}

/// Whether generic receive offload is on; `None` where that cannot be asked.
fn has_gro(interface: &str) -> Option<bool> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const ETHTOOL_GGRO: u32 = 0x2b;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    let mut value = Value { command: ETHTOOL_GGRO, data: 0 };
    // SAFETY: ifreq is plain data, zero is a valid value of each field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(interface.bytes()).take(15) {
        *slot = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads the ifreq and writes the eight bytes behind its pointer, both alive
    // through the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    (done == 0).then_some(value.data != 0)
}

fn is_older_than(release: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|n| n.trim().parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(a), Some(b)) => (a, b) < (major, minor),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_as_numbers() {
        assert!(is_older_than("5.9.0-generic", (5, 11)));
        assert!(!is_older_than("5.11.0", (5, 11)));
        assert!(!is_older_than("6.18.44-fc", (5, 11)));
        assert!(!is_older_than("odd", (5, 11)));
    }

    #[test]
    fn ports_of_bridges_are_told_from_members_of_vrfs() {
        let interface = |index, kind: &str, master| Interface {
            index,
            kind: kind.into(),
            master,
            ..Interface::default()
        };
        let all = [
            interface(1, "bridge", None),
            interface(2, "vrf", None),
            interface(3, "", Some(1)),
            interface(4, "", Some(2)),
        ];
        assert_eq!(all.each_ref().map(|i| is_port(i, &all)), [false, false, true, false]);
    }

    #[test]
    fn loopback_is_never_offered() {
        assert!(!interfaces().iter().any(|i| i == "lo" || i.starts_with("farlink")));
    }
}
