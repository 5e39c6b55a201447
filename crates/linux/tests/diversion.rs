//! Diversion against the real kernel: what reaches the TUN, what does not, and what is left behind.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use common::packets::{Bounce, Kind, NEVER, divert, forward, kinds, send_raw, without_hops};
use common::{
    Host, Path, Running, assert_restored, configuration, datagram_arrives, eventually, ip, missing, skipped,
    transfer,
};
use farlink_linux::divert::{DivertConfig, Method, Selection, Severity, diagnose};
use farlink_linux::event_loop::Waker;
use farlink_wire::ShimProtocols;

const BOTH: [&str; 2] = ["left", "right"];

#[test]
fn real_traffic_crosses_the_tun_whole() {
    if skipped("real_traffic_crosses_the_tun_whole") {
        return;
    }
    let path = Path::new();
    let before = configuration(&path.router);
    let bounce = Bounce::start(&path.router, &DivertConfig::default(), &BOTH);
    for address in ["10.2.0.1", "fd02::1"] {
        let earlier = bounce.seen();
        transfer(&path, address, 20_000_000);
        let seen = bounce.seen();
        assert!(seen.super_segments > earlier.super_segments + 50, "{address}: {seen:?}");
        assert_eq!(seen.write_errors, 0, "{seen:?}");
        assert!(datagram_arrives(&path.client, &path.server, address));
    }
    let tcp_only = bounce.drain().iter().all(|(_, p, _)| match p[0] >> 4 {
        4 => p[9] == 6,
        _ => p[6] == 6,
    });
    assert!(tcp_only, "only TCP enters the TUN");
    let counters = bounce.stop(&path.router);
    assert!(counters["diverted_0"].packets > 0 && counters["diverted_1"].packets > 0, "{counters:?}");
    assert_eq!(counters["passed_0"].packets + counters["passed_1"].packets, 0, "{counters:?}");
    assert_restored(&path.router, &before);
    transfer(&path, "10.2.0.1", 100_000);
}

#[test]
fn iperf_runs_both_ways() {
    if skipped("iperf_runs_both_ways") || missing("iperf_runs_both_ways", "iperf3") {
        return;
    }
    let path = Path::new();
    let bounce = Bounce::start(&path.router, &DivertConfig::default(), &BOTH);
    let _server = path.server.start("iperf3 -s");
    for arguments in ["-c 10.2.0.1", "-c 10.2.0.1 -R", "-c fd02::1 -P 4"] {
        let mut rate = None;
        eventually("iperf3 answers", || {
            let out = path
                .client
                .0
                .command("sh")
                .args(["-c", &format!("iperf3 {arguments} -t 1 -J")])
                .output()
                .unwrap();
            // It may report an error, without figures, and exit with 0: the server was not ready
            // again.
            let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
            rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
            out.status.success() && rate.is_some()
        });
        let rate = rate.unwrap();
        common::say(&format!("iperf3 {arguments}: {:.2} Gbit/s through the TUN", rate / 1e9));
        assert!(rate > 0.0);
    }
    assert_eq!(bounce.seen().write_errors, 0);
    bounce.stop(&path.router);
}

#[test]
fn fragments_and_icmp_errors_of_tcp_are_diverted_as_they_came() {
    if skipped("fragments_and_icmp_errors_of_tcp_are_diverted_as_they_came") {
        return;
    }
    packets_are_diverted_as_they_came(&DivertConfig::default());
}

#[test]
fn everything_that_leaves_by_a_link_is_diverted_as_it_came() {
    if skipped("everything_that_leaves_by_a_link_is_diverted_as_it_came") {
        return;
    }
    let mut selections = Selection::tcp();
    selections.push(Selection::LeavesBy("right".into()));
    packets_are_diverted_as_they_came(&DivertConfig { selections, ..DivertConfig::default() });
}

#[test]
fn segments_behind_the_header_of_xcp_are_diverted_as_they_came() {
    if skipped("segments_behind_the_header_of_xcp_are_diverted_as_they_came") {
        return;
    }
    let selections = Selection::tcp().into_iter().chain(Selection::shims(ShimProtocols::USUAL)).collect();
    packets_are_diverted_as_they_came(&DivertConfig { selections, ..DivertConfig::default() });
}

fn packets_are_diverted_as_they_came(config: &DivertConfig) {
    let path = Path::new();
    // Connection tracking in the router, which would reassemble fragments before it sees them.
    path.router.sh("nft add table ip t; nft add chain ip t c '{ type filter hook forward priority 0; }'; nft add rule ip t c ct state new counter");
    path.router.sh("nft add table ip6 t; nft add chain ip6 t c '{ type filter hook forward priority 0; }'; nft add rule ip6 t c ct state new counter");
    let bounce = Bounce::start(&path.router, config, &BOTH);
    for Kind { name, dst, packet, is_tcp } in kinds() {
        let is_xcp = !config.shims().is_empty() && name.contains("XCP");
        let is_diverted = is_tcp || is_xcp || config.takes_everything() && !NEVER.contains(&name);
        send_raw(&path.client, dst, &packet);
        let seen = bounce.drain();
        let expected = usize::from(is_diverted);
        // Answers of the server (RST, port unreachable) come by the other interface.
        let ours: Vec<_> = seen.iter().filter(|(n, ..)| *n == 0).collect();
        assert_eq!(ours.len(), expected, "{name}: {ours:?}");
        if let Some((_, bytes, _)) = ours.first() {
            assert_eq!(bytes.len(), packet.len(), "{name}");
            assert_eq!(without_hops(bytes), without_hops(&packet), "{name}");
        }
    }
    let counters = bounce.stop(&path.router);
    assert_eq!(counters["ip_options"].packets, 1, "{counters:?}");
}

#[test]
fn connections_to_the_router_itself_are_not_diverted() {
    if skipped("connections_to_the_router_itself_are_not_diverted") {
        return;
    }
    let path = Path::new();
    let bounce = Bounce::start(&path.router, &DivertConfig::default(), &BOTH);
    for address in ["10.1.0.2", "10.2.0.2", "fd01::2", "fd02::2"] {
        let listener = path.router.0.run(|| Ok(TcpListener::bind((ip(address), 0)).unwrap())).unwrap();
        let to = listener.local_addr().unwrap();
        let _client = path.client.0.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
        // The last packet of the handshake has come, too; a connected client does not say so.
        listener.accept().unwrap();
    }
    assert_eq!(bounce.seen().packets, 0);
    let counters = bounce.stop(&path.router);
    assert!(counters["passed_0"].packets >= 12, "{counters:?}");
}

#[test]
fn foreign_rules_and_marks_stay() {
    if skipped("foreign_rules_and_marks_stay") {
        return;
    }
    let path = Path::new();
    path.router.sh(
        "ip rule add pref 700 fwmark 0x42/0xff lookup 88; ip -6 rule add pref 700 fwmark 0x42/0xff lookup 88; \
         nft add table inet other; \
         nft add chain inet other early '{ type filter hook prerouting priority -500; }'; \
         nft add rule inet other early meta mark set 0x42; \
         nft add chain inet other late '{ type filter hook prerouting priority 0; }'; \
         nft add rule inet other late iifname left ip protocol tcp meta mark and 0xff == 0x42 counter",
    );
    let before = configuration(&path.router);
    let bounce = Bounce::start(&path.router, &DivertConfig::default(), &BOTH);
    transfer(&path, "10.2.0.1", 100_000);
    assert!(bounce.seen().packets > 0);
    let listed = path.router.sh("nft list chain inet other late");
    assert!(!listed.contains("counter packets 0 "), "their mark bits survive ours: {listed}");
    bounce.stop(&path.router);
    path.router.sh("nft 'reset counters' >/dev/null; true");
    let strip =
        |s: String| s.lines().filter(|l| !l.contains("counter packets")).collect::<Vec<_>>().join("\n");
    assert_eq!(strip(configuration(&path.router)), strip(before));
}

#[test]
fn numbers_in_use_are_refused_with_a_reason() {
    if skipped("numbers_in_use_are_refused_with_a_reason") {
        return;
    }
    let path = Path::new();
    let config = DivertConfig { method: Method::Policy, ..DivertConfig::default() };
    for (setup, undo, word) in [
        (
            "ip rule add fwmark 0x1000000/0x1000000 lookup 9",
            "ip rule del fwmark 0x1000000/0x1000000",
            "mark_mask",
        ),
        ("ip -6 rule add from all lookup 51000", "ip -6 rule del lookup 51000", "table_base"),
        ("ip route add 192.0.2.0/24 dev lo table 51001", "ip route flush table 51001", "table_base"),
    ] {
        path.router.sh(setup);
        let before = configuration(&path.router);
        let refused = path.router.0.run(|| divert(&config, &BOTH).map(|_| ())).unwrap_err().to_string();
        assert!(refused.contains(word), "{setup}: {refused}");
        eventually("the TUNs are gone", || configuration(&path.router) == before);
        path.router.sh(undo);
    }
    // What only costs performance or coverage is reported, not refused.
    path.router.sh(
        "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0; nft add table ip nat; \
         nft add chain ip nat post '{ type nat hook postrouting priority 100; }'; nft add rule ip nat post oifname left masquerade; \
         nft add table inet fw; nft add chain inet fw forward '{ type filter hook forward priority 0; policy drop; }'; \
         ip rule add pref 300 from 10.1.0.77 lookup main",
    );
    let found =
        path.router.0.run(|| Ok(diagnose(&config, &["left".to_owned(), "absent".to_owned()]))).unwrap();
    let has = |severity, word: &str| found.iter().any(|d| d.severity == severity && d.text.contains(word));
    assert!(has(Severity::Problem, "net.ipv4.ip_forward"), "{found:?}");
    assert!(has(Severity::Problem, "no interface absent"), "{found:?}");
    assert!(has(Severity::Warning, "translates"), "{found:?}");
    assert!(has(Severity::Warning, "fw/forward"), "{found:?}");
    assert!(has(Severity::Note, "priority 300"), "{found:?}");
}

#[test]
fn two_instances_share_a_machine() {
    if skipped("two_instances_share_a_machine") {
        return;
    }
    let path = Path::new();
    let before = configuration(&path.router);
    let first = Bounce::start(&path.router, &DivertConfig::default(), &["left"]);
    let second = DivertConfig { instance: "two".into(), ..DivertConfig::default() };
    let refused = |config: &DivertConfig| {
        path.router.0.run(|| divert(config, &["right"]).map(|_| ())).unwrap_err().to_string()
    };
    assert!(refused(&second).contains("table_base"));
    let second = DivertConfig { table_base: 52_000, ..second };
    assert!(refused(&second).contains("mark_mask"));
    let second = DivertConfig { mark_mask: 0x00f0_0000, ..second };
    let second = Bounce::start(&path.router, &second, &["right"]);
    transfer(&path, "10.2.0.1", 1_000_000);
    transfer(&path, "fd02::1", 1_000_000);
    assert!(first.seen().packets > 0 && second.seen().packets > 0);
    second.stop(&path.router);
    transfer(&path, "10.2.0.1", 1_000_000);
    first.stop(&path.router);
    assert_restored(&path.router, &before);
}

/// Not a test by itself: the process that the next test kills.
#[test]
fn child_that_forwards() {
    if std::env::var_os("FARLINK_TEST_FORWARDER").is_none() {
        return;
    }
    let (mut tuns, _divert) = divert(&DivertConfig::default(), &BOTH).unwrap();
    common::say("forwarding");
    forward(&mut tuns, &Waker::new().unwrap(), |_, _, _, _| {});
}

fn forwarder(router: &Host, path: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .env("PATH", path)
        .args(["child_that_forwards", "--exact", "--nocapture"])
        .env("FARLINK_TEST_FORWARDER", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = Running(router.0.exec(command).unwrap());
    eventually("the forwarder diverts", || {
        // The table is there before its rules, and these come last of all.
        let listed = router.0.command("nft").args(["list", "table", "inet", "farlink"]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).contains("prerouting")
    });
    child
}

#[test]
fn a_killed_forwarder_leaves_a_plain_router() {
    if skipped("a_killed_forwarder_leaves_a_plain_router") {
        return;
    }
    let path = Path::new();
    // A router that translates addresses: what is left behind must not take packets out of
    // connection tracking.
    path.router.sh(
        "nft add table ip nat; nft add chain ip nat post '{ type nat hook postrouting priority 100; }'; \
         nft add rule ip nat post ip saddr 10.1.0.0/24 oifname right masquerade",
    );
    let before = configuration(&path.router);
    let mut child = forwarder(&path.router, &std::env::var("PATH").unwrap());

    // A connection that lives through the kill.
    let listener = path.server.0.run(|| Ok(TcpListener::bind("10.2.0.1:0").unwrap())).unwrap();
    let to = listener.local_addr().unwrap();
    let mut client = path.client.0.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
    let (mut server, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), ip("10.2.0.2"), "translated on its way out of the TUN");
    let mut exchange = |word: &[u8]| {
        let mut got = [0u8; 8];
        client.write_all(word).unwrap();
        server.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        server.read_exact(&mut got[..word.len()]).unwrap();
        assert_eq!(&got[..word.len()], word);
        server.write_all(word).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        client.read_exact(&mut got[..word.len()]).unwrap();
    };
    exchange(b"before");
    transfer(&path, "fd02::1", 1_000_000);
    let tables = path.router.sh("ip route show table 51000; ip -6 route show table 51000");
    assert_eq!(tables.matches("farlink0").count(), 2, "{tables}");

    let pid = rustix::process::Pid::from_raw(i32::try_from(child.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.0.wait().unwrap();
    exchange(b"after");
    transfer(&path, "10.2.0.1", 1_000_000);
    transfer(&path, "fd02::1", 1_000_000);
    assert_ne!(configuration(&path.router), before, "rules without effect are left");

    // The next start takes over, and its end leaves nothing.
    let bounce = Bounce::start(&path.router, &DivertConfig::default(), &BOTH);
    transfer(&path, "10.2.0.1", 100_000);
    assert!(bounce.seen().packets > 0);
    bounce.stop(&path.router);
    assert_restored(&path.router, &before);
    exchange(b"end");
}

#[test]
fn a_flush_of_others_leaves_the_table_alone() {
    if skipped("a_flush_of_others_leaves_the_table_alone") {
        return;
    }
    let path = Path::new();
    let bounce = Bounce::start(&path.router, &DivertConfig::default(), &BOTH);
    let listed = || path.router.sh("nft list table inet farlink");
    let rules = listed().lines().count();
    path.router.sh("nft flush ruleset; echo flush ruleset | nft -f -");
    let refused = path.router.0.command("nft").args(["delete", "table", "inet", "farlink"]).status().unwrap();
    assert!(!refused.success());
    assert_eq!(listed().lines().count(), rules);
    assert!(listed().contains("flags owner"));
    transfer(&path, "10.2.0.1", 1_000_000);
    assert!(bounce.seen().packets > 20, "it is diverted still");
    bounce.stop(&path.router);
    assert_eq!(path.router.sh("nft list ruleset"), "");
}

#[test]
fn an_nft_that_holds_no_table_will_do() {
    if skipped("an_nft_that_holds_no_table_will_do") {
        return;
    }
    let path = Path::new();
    let directory = std::env::temp_dir().join(format!("fln{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (poor, real) = (directory.join("nft"), path.router.sh("command -v nft"));
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" -i \"*) echo interactive CLI not supported >&2; exit 1;; esac\nexec {} \"$@\"\n",
        real.trim()
    );
    std::fs::write(&poor, script).unwrap();
    path.router.sh(&format!("chmod 755 {}", poor.display()));
    let child =
        forwarder(&path.router, &format!("{}:{}", directory.display(), std::env::var("PATH").unwrap()));
    assert!(!path.router.sh("nft list table inet farlink").contains("owner"));
    let counted = || path.router.sh("nft list counter inet farlink diverted_0");
    assert!(counted().contains("packets 0 "), "{}", counted());
    transfer(&path, "10.2.0.1", 100_000);
    assert!(!counted().contains("packets 0 "), "{}", counted());
    drop(child);
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn source_filters_of_the_machine_do_not_stop_it() {
    if skipped("source_filters_of_the_machine_do_not_stop_it") {
        return;
    }
    let path = Path::new();
    for filter in ["1", "2"] {
        path.router.0.sysctl("ipv4.conf.all.rp_filter", filter).unwrap();
        let bounce = Bounce::start(&path.router, &DivertConfig::default(), &BOTH);
        transfer(&path, "10.2.0.1", 100_000);
        assert!(bounce.seen().packets > 0, "rp_filter {filter}");
        bounce.stop(&path.router);
    }
}
