//! Namespaces, wires, addresses, routes and events against the real kernel.

mod common;

use common::{Host, Path, datagram_arrives, eventually, ip, missing, skipped};
use farlink_linux::netlink::{Event, Family, Lookup, Monitor, Route, RouteKey, Socket};
use farlink_linux::netns::{Namespace, veth};

#[test]
fn a_namespace_is_made_found_and_removed() {
    if skipped("a_namespace_is_made_found_and_removed") {
        return;
    }
    let host = Host::new("plain");
    let name = host.0.name().to_owned();
    assert!(Namespace::list(&name).contains(&name));
    assert!(Namespace::create(&name).is_err(), "a second one of that name");
    assert!(host.sh("ip link show lo").contains("UP"));
    let sleeper = host.start("sleep 60");
    eventually("the process is seen inside", || host.0.pids() == [sleeper.0.id()]);
    drop(sleeper);
    assert!(host.0.pids().is_empty());
    drop(host);
    assert!(!Namespace::exists(&name));
    Namespace::delete_named(&name).unwrap();
    assert!(Namespace::create("../x").is_err());
}

#[test]
fn a_program_in_a_namespace_sees_its_devices_in_sys() {
    if skipped("a_program_in_a_namespace_sees_its_devices_in_sys") {
        return;
    }
    let path = Path::new();
    let shown = path.client.0.command("ls").arg("/sys/class/net").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let mut devices: Vec<&str> = shown.split_whitespace().collect();
    devices.sort_unstable();
    assert_eq!(devices, ["eth0", "lo"]);
}

#[test]
fn packets_cross_wires_in_both_families() {
    if skipped("packets_cross_wires_in_both_families") {
        return;
    }
    let path = Path::new();
    assert!(datagram_arrives(&path.client, &path.server, "10.2.0.1"));
    assert!(datagram_arrives(&path.client, &path.server, "fd02::1"));
}

#[test]
fn offloads_are_switched_as_the_kernel_says() {
    let test = "offloads_are_switched_as_the_kernel_says";
    if skipped(test) || missing(test, "ethtool") {
        return;
    }
    let path = Path::new();
    for interface in ["eth0"] {
        path.client.0.set_offloads(interface, false).unwrap();
        let shown = path.client.sh(&format!("ethtool -k {interface}"));
        for feature in [
            "tx-tcp-segmentation",
            "tx-tcp6-segmentation",
            "generic-segmentation-offload",
            "tx-checksum-ip-generic",
        ] {
            assert!(shown.contains(&format!("{feature}: off")), "{shown}");
        }
        path.client.0.set_offloads(interface, true).unwrap();
        let shown = path.client.sh(&format!("ethtool -k {interface}"));
        assert!(shown.contains("tcp-segmentation-offload: on"), "{shown}");
    }
}

#[test]
fn routes_are_looked_up_as_forwarding_would() {
    if skipped("routes_are_looked_up_as_forwarding_would") {
        return;
    }
    let path = Path::new();
    path.router.0.link_mtu("right", 1400).unwrap();
    let out = path.router.0.run(|| {
        let mut socket = Socket::open()?;
        let (left, right) = (socket.link_index("left")?, socket.link_index("right")?);
        let mut lookup = Lookup::open()?;
        let key = |source, destination| RouteKey {
            destination: ip(destination),
            from: Some((ip(source), left)),
            mark: 0,
            ports: None,
        };
        for (source, destination) in [("10.1.0.1", "10.2.0.1"), ("fd01::1", "fd02::1")] {
            let leaves = lookup.ask(&key(source, destination))?.unwrap();
            assert_eq!((leaves.interface, leaves.mtu), (right, 1400), "{destination}");
        }
        // Its own addresses are nobody to forward to; without a route there is none.
        assert_eq!(lookup.ask(&key("10.1.0.1", "10.1.0.2"))?, None);
        assert_eq!(lookup.ask(&key("10.1.0.1", "192.0.2.1"))?, None);
        assert_eq!(lookup.ask(&key("fd01::1", "2001:db8::1"))?, None);

        // A route with an MTU of its own, and one that depends on the source.
        let narrow = Route {
            destination: Some((ip("10.2.0.1"), 32)),
            gateway: Some(ip("10.2.0.1")),
            mtu: Some(1300),
            ..Route::new(Family::V4)
        };
        socket.route_add(&narrow)?;
        assert_eq!(lookup.ask(&key("10.1.0.1", "10.2.0.1"))?.unwrap().mtu, 1300);
        let listed = socket.routes(Family::V4, farlink_linux::netlink::TABLE_MAIN)?;
        assert!(listed.iter().any(|r| r.mtu == Some(1300) && r.destination == narrow.destination));
        socket.route_delete(&narrow)?;
        assert_eq!(lookup.ask(&key("10.1.0.1", "10.2.0.1"))?.unwrap().mtu, 1400);
        Ok(())
    });
    out.unwrap();
    path.router.sh("ip rule add from 10.1.0.9 lookup 77; ip route add default dev left table 77");
    path.router
        .0
        .run(|| {
            let mut lookup = Lookup::open()?;
            let left = Socket::open()?.link_index("left")?;
            let right = Socket::open()?.link_index("right")?;
            for (source, expected) in [("10.1.0.1", right), ("10.1.0.9", left)] {
                let from = Some((ip(source), right));
                let key = RouteKey { destination: ip("10.2.0.1"), from, mark: 0, ports: None };
                let found = lookup.ask(&RouteKey { from: Some((ip(source), left)), ..key })?;
                assert_eq!(found.map(|l| l.interface), Some(expected), "{source}");
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn changes_are_reported() {
    if skipped("changes_are_reported") {
        return;
    }
    let (a, b) = (Host::new("a"), Host::new("b"));
    veth(&a.0, "wire", &b.0, "wire").unwrap();
    let a_space = a.0.clone();
    a.0.run(|| {
        let mut monitor = Monitor::open()?;
        let mut wait_for = |what: &str, wanted: &dyn Fn(&Event) -> bool| {
            let mut seen = false;
            eventually(what, || {
                monitor.drain(|e| seen |= wanted(&e)).unwrap();
                seen
            });
        };
        b.0.link_up("wire", false).unwrap();
        wait_for("carrier lost", &|e| matches!(e, Event::Link(l) if l.name == "wire" && l.up && !l.carrier));
        b.0.link_up("wire", true).unwrap();
        wait_for("carrier back", &|e| matches!(e, Event::Link(l) if l.name == "wire" && l.is_usable()));
        a_space.link_mtu("wire", 1234).unwrap();
        wait_for("new MTU", &|e| matches!(e, Event::Link(l) if l.mtu == 1234));
        a_space.address_add("wire", ip("10.9.0.1"), 24).unwrap();
        wait_for("new address and its route", &|e| *e == Event::Routes);
        let mut socket = Socket::open()?;
        let index = socket.link_index("wire")?;
        socket.link_delete(index)?;
        wait_for("gone", &|e| matches!(e, Event::LinkGone(l) if l.name == "wire"));
        assert_eq!(socket.link("wire")?, None);
        Ok(())
    })
    .unwrap();
}
