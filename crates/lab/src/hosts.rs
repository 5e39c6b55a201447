//! How hosts and routers are tuned: what `hosts = modern | legacy`, `host_cc` and `iw` mean to a
//! kernel.
//!
//! Congestion control is set per route (`congctl`): as a sysctl it is refused in a namespace for
//! every algorithm that the initial namespace does not allow to all.

use crate::settings::{Hosts, Settings};

/// Initial window of a legacy host, segments (RFC 1122 4.2.2.15; thesis section 4.4.1).
const LEGACY_IW: u32 = 1;

/// Sysctls of every node.
#[must_use]
pub fn common_sysctls() -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for which in ["all", "default"] {
        settings.push((format!("net.ipv4.conf.{which}.rp_filter"), "0".into()));
        settings.push((format!("net.ipv4.conf.{which}.send_redirects"), "0".into()));
        // Without it no router finds a neighbour for the first second: it asks from its link-local
        // address.
        settings.push((format!("net.ipv6.conf.{which}.accept_dad"), "0".into()));
    }
    // Errors are part of what is measured: none is suppressed.
    settings.push(("net.ipv4.icmp_ratelimit".into(), "0".into()));
    settings.push(("net.ipv6.icmp.ratelimit".into(), "0".into()));
    settings
}

/// Sysctls of routers, gateways and links.
#[must_use]
pub fn router_sysctls() -> Vec<(String, String)> {
    let mut settings = common_sysctls();
    settings.push(("net.ipv4.ip_forward".into(), "1".into()));
    settings.push(("net.ipv6.conf.all.forwarding".into(), "1".into()));
    settings
}

/// Sysctls of hosts.
#[must_use]
pub fn host_sysctls(lab: &Settings) -> Vec<(String, String)> {
    let mut settings = common_sysctls();
    // What an earlier transfer learned of the path must not help the next one.
    settings.push(("net.ipv4.tcp_no_metrics_save".into(), "1".into()));
    if lab.hosts == Hosts::Legacy {
        for off in ["window_scaling", "sack", "dsack", "timestamps", "moderate_rcvbuf", "fastopen", "ecn"] {
            settings.push((format!("net.ipv4.tcp_{off}"), "0".into()));
        }
        // Half of a receive buffer is window (tcp_adv_win_scale 1); the route's `window` bounds it
        // exactly.
        let buffer = 2 * lab.host_window_bytes;
        for which in ["rmem", "wmem"] {
            settings.push((format!("net.ipv4.tcp_{which}"), format!("4096 {buffer} {buffer}")));
        }
    }
    settings
}

/// Sysctls of the host of this name beside those of all hosts.
#[must_use]
pub fn own_sysctls(lab: &Settings, host: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let lacks = lab.lacks(host);
    let off = [("timestamps", lacks.timestamps), ("window_scaling", lacks.scaling), ("sack", lacks.sack)];
    for (name, _) in off.into_iter().filter(|(_, is_off)| *is_off) {
        settings.push((format!("net.ipv4.tcp_{name}"), "0".into()));
    }
    if let Some(bytes) = lab.client_window_bytes.filter(|_| host == "client") {
        // Half of a receive buffer is window (tcp_adv_win_scale 1); the route's `window` bounds it
        // exactly.
        let buffer = 2 * bytes;
        settings.push(("net.ipv4.tcp_rmem".into(), format!("4096 {buffer} {buffer}")));
        settings.push(("net.ipv4.tcp_moderate_rcvbuf".into(), "0".into()));
    }
    settings
}

/// What makes the client's router track connections, and what it does with what is beyond a window.
#[must_use]
pub fn tracking(settings: &Settings) -> String {
    let chain = match settings.tracking.as_str() {
        "drop" => "chain on {\ntype filter hook forward priority 0;\nct state invalid drop\n}",
        "reset" => {
            "chain on {\ntype filter hook forward priority 0;\n\
             meta l4proto tcp ct state invalid reject with tcp reset\n}"
        }
        // What is invalid keeps the router's own address, so its own TCP answers it.
        _ => "chain out {\ntype nat hook postrouting priority 100;\noifname != \"to-client\" masquerade\n}",
    };
    format!("table inet tracking {{\n{chain}\n}}\n")
}

/// How strictly it does that.
#[must_use]
pub fn tracking_sysctls(settings: &Settings) -> Vec<(String, String)> {
    let is_liberal = u8::from(settings.tracking == "liberal").to_string();
    vec![("net.netfilter.nf_conntrack_tcp_be_liberal".into(), is_liberal)]
}

/// What nft is told for a host that takes no TCP packet larger than its interface does. Its input
/// hook comes behind the reassembly of IPv4, and before that of IPv6, unless connections are
/// tracked: so it asks for their state, whatever that is.
#[must_use]
pub fn refusal(lab: &Settings) -> String {
    format!(
        "table inet refusal {{ chain input {{ type filter hook input priority 0; \
         meta l4proto tcp meta length > {} ct state invalid,new,established,related,untracked drop; }}; }}",
        lab.mtu
    )
}

/// What nft is told for a router that does not say when a packet is too large (RFC 2923 2.1).
pub const SILENCE: &str = "table inet silence { chain output { type filter hook output priority 0; \
     icmp type destination-unreachable icmp code frag-needed drop; icmpv6 type packet-too-big drop; }; }";

/// What the routes of the host of this name say besides the next hop.
#[must_use]
pub fn route_attributes(lab: &Settings, host: &str) -> String {
    let mut attributes = String::new();
    let cc = lab.cc_of(host);
    if !cc.is_empty() {
        attributes.push_str(&format!(" congctl {cc}"));
    }
    let iw = match (lab.iw, lab.hosts) {
        (0, Hosts::Legacy) => LEGACY_IW,
        (iw, _) => iw,
    };
    if iw > 0 {
        attributes.push_str(&format!(" initcwnd {iw}"));
    }
    let window = match lab.hosts {
        Hosts::Legacy => Some(u64::from(lab.host_window_bytes)),
        Hosts::Modern => None,
    };
    if let Some(bytes) = lab.client_window_bytes.filter(|_| host == "client").or(window) {
        attributes.push_str(&format!(" window {bytes}"));
    }
    attributes
}

/// What of these settings the kernel cannot do, in words; empty when all is well.
#[must_use]
pub fn missing(lab: &Settings) -> Option<String> {
    if lab.keepalive.is_some() {
        return Some("`keepalive` is of simulated hosts".into());
    }
    if lab.eth_mtu_from_ms > 0.0 {
        return Some("`eth_mtu_from` is of simulated networks".into());
    }
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok()?;
    let is_known = |cc: &&str| cc.is_empty() || available.split_whitespace().any(|name| name == *cc);
    let unknown = [lab.cc_of("client"), lab.cc_of("client2")].into_iter().find(|cc| !is_known(cc))?;
    Some(format!("this kernel has no congestion control `{unknown}`; it has {}", available.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modern_hosts_keep_the_kernels_defaults() {
        let lab = Settings::default();
        assert!(host_sysctls(&lab).iter().all(|(k, _)| !k.contains("rmem") && !k.contains("sack")));
        assert_eq!(route_attributes(&lab, "client"), " congctl cubic");
    }

    #[test]
    fn legacy_hosts_are_small_and_plain() {
        let mut lab = Settings::default();
        lab.set_all(["hosts=legacy", "host_window=8192", "host_cc=reno"]).unwrap();
        assert_eq!(route_attributes(&lab, "client"), " congctl reno initcwnd 1 window 8192");
        let off: Vec<_> =
            host_sysctls(&lab).into_iter().filter(|(k, v)| k.contains("tcp_") && v == "0").collect();
        assert_eq!(off.len(), 7);
        lab.set("iw", "4").unwrap();
        assert!(route_attributes(&lab, "client").contains("initcwnd 4"));
    }

    #[test]
    fn only_the_first_client_has_a_window_of_its_own() {
        let mut lab = Settings::default();
        lab.set_all(["client_window=17520", "client_lacks=timestamps oversized"]).unwrap();
        assert_eq!(route_attributes(&lab, "client"), " congctl cubic window 17520");
        assert_eq!(route_attributes(&lab, "server"), " congctl cubic");
        let own = own_sysctls(&lab, "client");
        let of = |key: &str| own.iter().find(|(k, _)| k.ends_with(key)).map(|(_, v)| v.as_str());
        // So small a window goes without scaling.
        assert_eq!(
            [of("tcp_timestamps"), of("tcp_window_scaling"), of("tcp_sack")],
            [Some("0"), Some("0"), None]
        );
        assert_eq!(of("tcp_rmem"), Some("4096 35040 35040"));
        assert_eq!(own_sysctls(&lab, "client2"), []);
        assert!(refusal(&lab).contains("length > 1500"));
        lab.set_all(["client_window=524280", "client_lacks=nothing"]).unwrap();
        assert!(own_sysctls(&lab, "client").iter().all(|(k, _)| !k.contains("scaling")));
        assert!(lab.set("client_lacks", "patience").unwrap_err().to_string().contains("timestamps, scaling"));
    }

    #[test]
    fn an_unknown_controller_is_named() {
        let lab = Settings { host_cc: "no-such-cc".into(), ..Settings::default() };
        assert!(missing(&lab).unwrap().contains("no-such-cc"));
        let reno = Settings { host_cc: "reno".into(), ..Settings::default() };
        assert_eq!(missing(&reno), None);
        let second = Settings { client2_cc: "no-such-cc".into(), ..Settings::default() };
        assert!(missing(&second).unwrap().contains("no-such-cc"));
        assert_eq!(route_attributes(&second, "client2"), " congctl no-such-cc");
        assert_eq!(route_attributes(&second, "client"), " congctl cubic");
    }
}
