//! What the guard of bumps does when somebody takes their programs away, and when what goes into a
//! bump does not come out.

mod common;

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::bpf::{TCX, older_kernel};
use common::daemon::{Daemon, config};
use common::{Path, bpf, eventually, ip, skipped, transfer};
use farlink_linux::bpf::Side;
use farlink_linux::divert::{Capture, CaptureState, Direction, Method, Severity};
use farlink_linux::driver::{By, DiversionStatus, DriverConfig, End, Finder};
use farlink_linux::netlink::Socket;

/// New connections are tried so often.
const EVERY: Duration = Duration::from_millis(250);
/// TCP has to work again after this.
const WITHIN: Duration = Duration::from_secs(3);

fn is_refused() -> bool {
    farlink_linux::bump::Bump::load(&[6]).is_err_and(|e| e.is(libc::EPERM))
}

fn bumped(attach: &[&str]) -> DriverConfig {
    let mut config = config(None);
    config.divert.method = Method::Bump;
    config.divert.attach = attach.iter().map(|i| (*i).to_owned()).collect();
    config
}

fn diversion(daemon: &Daemon) -> DiversionStatus {
    daemon.status().1.diversion
}

/// How it stands with what is captured at an interface: what comes in, and what leaves.
fn captured(daemon: &Daemon, interface: &str) -> [CaptureState; 2] {
    let status = diversion(daemon);
    Direction::BOTH.map(|direction| {
        let is_it = |c: &&Capture| c.interface == interface && c.direction == direction;
        status.captures.iter().find(is_it).map(|c| c.state).unwrap_or_else(|| panic!("{status:?}"))
    })
}

fn split(daemon: &Daemon) -> u64 {
    daemon.status().0.engine.counters.flows_split
}

/// Opens a connection every 250 ms until one works, and returns how long that took.
fn works_after(path: &Path, address: &str) -> Duration {
    let listener = path.server.0.run(|| Ok(TcpListener::bind((ip(address), 0)).unwrap())).unwrap();
    let to = listener.local_addr().unwrap();
    let began = Instant::now();
    let (sender, works) = std::sync::mpsc::channel();
    loop {
        let sender = sender.clone();
        let trial = path.client.0.spawn(move || {
            if TcpStream::connect_timeout(&to, Duration::from_secs(8)).is_ok() {
                let _ = sender.send(began.elapsed());
            }
            Ok(())
        });
        drop(trial);
        match works.recv_timeout(EVERY) {
            Ok(after) => return after,
            Err(_) => assert!(began.elapsed() < 3 * WITHIN, "TCP does not work again"),
        }
    }
}

#[test]
fn programs_that_somebody_takes_away_are_put_back() {
    if skipped("programs_that_somebody_takes_away_are_put_back") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    transfer(&path, "10.2.0.1", 100_000);
    assert!(diversion(&daemon).in_place);
    for (n, (name, is_ingress)) in
        [("right", true), ("right", false), ("left", false), ("farlink1", true)].into_iter().enumerate()
    {
        let repairs = diversion(&daemon).repairs;
        let taken =
            path.router.0.run(|| Ok(bpf::detach(Socket::open()?.link_index(name)?, is_ingress))).unwrap();
        assert_eq!(taken, 1, "{name}");
        let began = Instant::now();
        eventually("it is put back", || diversion(&daemon).repairs == repairs + 1);
        assert!(began.elapsed() < WITHIN, "{name}");
        let status = diversion(&daemon);
        let said = format!("the program at {name} was taken away");
        assert!(status.in_place && status.found.iter().any(|f| f.text.contains(&said)), "{status:?}");
        let before = split(&daemon);
        transfer(&path, "10.2.0.1", 100_000);
        assert_eq!(split(&daemon), before + 1, "{n}: {name}");
    }
    assert_eq!(daemon.drain(), End::Drained);
}

/// Without tcx, as before Linux 6.6, programs stand in filters. They are put back, too, and nothing
/// of them is left.
#[test]
fn filters_of_older_kernels_are_put_back_and_leave_nothing() {
    if std::env::var_os(TCX).is_none() {
        older_kernel("filters_of_older_kernels_are_put_back_and_leave_nothing");
        return;
    }
    if skipped("filters_of_older_kernels_are_put_back_and_leave_nothing") || is_refused() {
        return;
    }
    let path = Path::new();
    let before = path.router.sh("tc qdisc show");
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    transfer(&path, "10.2.0.1", 100_000);
    assert!(path.router.sh("tc filter show dev right ingress").contains("farlink"));
    for name in ["right", "left", "farlink1"] {
        let repairs = diversion(&daemon).repairs;
        path.router.sh(&format!("tc qdisc del dev {name} clsact"));
        eventually("it is put back", || diversion(&daemon).repairs > repairs);
        // It is said by which means it stood there, and so what can take it away.
        let said = format!("the program at {name} was taken away, with its filter or the qdisc");
        let status = diversion(&daemon);
        assert!(status.found.iter().any(|f| f.text.contains(&said)), "{status:?}");
        let before = split(&daemon);
        transfer(&path, "10.2.0.1", 100_000);
        assert_eq!(split(&daemon), before + 1, "{name}");
    }
    assert_eq!(daemon.drain(), End::Drained);
    eventually("nothing is left", || path.router.sh("tc qdisc show") == before);
}

#[test]
fn a_device_that_somebody_takes_down_is_brought_up_and_said() {
    if skipped("a_device_that_somebody_takes_down_is_brought_up_and_said") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    path.router.sh("ip link set farlink0 down; ip link set farlink1 down");
    assert!(works_after(&path, "10.2.0.1") < WITHIN);
    eventually("it is said", || {
        let found = diversion(&daemon).found;
        found.iter().any(|f| f.text.contains("the device farlink0 was taken down"))
    });
    let before = split(&daemon);
    transfer(&path, "fd02::1", 100_000);
    assert_eq!(split(&daemon), before + 1);
    assert_eq!(daemon.drain(), End::Drained);
}

#[test]
fn a_device_is_brought_up_however_often_it_is_taken_down() {
    if skipped("a_device_is_brought_up_however_often_it_is_taken_down") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    // More often than anything else is put back at once.
    for n in 0..30 {
        path.router.sh("ip link set farlink0 down; ip link set farlink1 down");
        let after = works_after(&path, "10.2.0.1");
        assert!(after < WITHIN, "{n}: {after:?}");
    }
    assert_eq!(daemon.drain(), End::Drained);
}

/// Devices are made while the list of interfaces is read: an older list does not take them away.
#[test]
fn a_start_keeps_the_devices_that_it_has_made() {
    if skipped("a_start_keeps_the_devices_that_it_has_made") || is_refused() {
        return;
    }
    let path = Path::new();
    for n in 0..6 {
        path.router.sh(&format!(
            "ip link add x{n} type veth peer name y{n}; ip link set x{n} up; ip link set y{n} up"
        ));
    }
    let mut found = bumped(&[]);
    found.finders = vec![Finder { by: By::Forwarding, domain: 0, attach: false, divert: true }];
    // It takes a moment to be made: meanwhile devices are made.
    let journal = std::env::temp_dir().join(format!("farlink-test-{}-starts", std::process::id()));
    found.journal = Some(journal.clone());
    // Somebody changes something all the time, for which the list is read anew.
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let changing = path.router.0.spawn(move || {
        while !until.load(Ordering::Relaxed) {
            for value in ["1", "0"] {
                std::fs::write("/proc/sys/net/ipv4/conf/y0/rp_filter", value).unwrap();
                std::thread::sleep(Duration::from_millis(3));
            }
        }
        Ok(())
    });
    for n in 0..4 {
        let daemon = Daemon::start(&path.router, found.clone());
        let diverted = daemon.status().1.ports.iter().filter(|p| p.present).count();
        assert!(diverted >= 8, "{n}: {diverted} interfaces are diverted");
        assert_eq!(daemon.status().1.counters.devices_lost, 0, "start {n}");
        assert_eq!(daemon.drain(), End::Drained);
    }
    is_over.store(true, Ordering::Relaxed);
    changing.join().unwrap().unwrap();
    let _ = std::fs::remove_file(journal);
}

/// The fault is mended: splitting goes on.
fn assert_split_again(path: &Path, daemon: &Daemon, address: &str) {
    let mended = Instant::now();
    eventually("it is diverted again", || diversion(daemon).in_place);
    assert!(mended.elapsed() < 2 * WITHIN, "{:?}", mended.elapsed());
    let before = split(daemon);
    transfer(path, address, 100_000);
    assert_eq!(split(daemon), before + 1);
}

#[test]
fn a_filter_of_hardware_addresses_ends_diversion_and_is_named() {
    if skipped("a_filter_of_hardware_addresses_ends_diversion_and_is_named") || is_refused() {
        return;
    }
    for (address, family) in [("10.2.0.1", "IPv4"), ("fd02::1", "IPv6")] {
        let path = Path::new();
        let daemon = Daemon::start(&path.router, bumped(&["right"]));
        transfer(&path, address, 100_000);
        let mac = path.server.sh("cat /sys/class/net/eth0/address");
        path.router.sh(&format!(
            "nft 'add table inet t; add chain inet t f {{ type filter hook forward priority 0; }}; \
             add rule inet t f iifname right ether saddr != {} drop'",
            mac.trim()
        ));
        let after = works_after(&path, address);
        assert!(after < WITHIN, "{family}: {after:?}");
        let status = diversion(&daemon);
        assert!(!status.in_place && status.ends == 1, "{status:?}");
        assert_eq!((status.ipv4, status.ipv6), (family != "IPv4", family != "IPv6"));
        let cause = &status.found[0].text;
        assert!(cause.starts_with(family) && cause.contains("chain inet t f"), "{cause}");
        path.router.sh("nft delete table inet t");
        assert_split_again(&path, &daemon, address);
        assert_eq!(daemon.drain(), End::Drained);
    }
}

#[test]
fn what_the_firewall_refuses_anyway_does_not_end_diversion() {
    if skipped("what_the_firewall_refuses_anyway_does_not_end_diversion") || is_refused() {
        return;
    }
    let path = Path::new();
    path.router.sh(
        "nft 'add table inet t; add chain inet t f { type filter hook forward priority 0; policy drop; }; \
         add rule inet t f ct state established,related accept; add rule inet t f iifname left accept'",
    );
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    // Scans of the router itself, and of hosts behind it.
    for (target, count) in [("10.2.0.2", 12), ("10.1.0.1", 24)] {
        let scan = |n: u16| {
            std::thread::sleep(Duration::from_millis(100));
            let to = (ip(target), 7000 + n).into();
            path.server.0.spawn(move || Ok(TcpStream::connect_timeout(&to, Duration::from_secs(2)).is_err()))
        };
        let scans: Vec<_> = (0..count).map(scan).collect();
        assert!(scans.into_iter().all(|scan| scan.join().unwrap().unwrap()));
    }
    let status = diversion(&daemon);
    assert!(status.in_place && status.ends == 0, "{status:?}");
    // An outage at the next hop is none of diversion's faults either.
    transfer(&path, "10.2.0.1", 100_000);
    path.server.sh("ip link set eth0 arp off; ip link set eth0 address 02:00:00:00:00:77");
    path.router.sh("ip neigh flush all");
    let to = (ip("10.2.0.1"), 7000).into();
    for _ in 0..4 {
        let patience = Duration::from_secs(1);
        let failed = path.client.0.run(|| Ok(TcpStream::connect_timeout(&to, patience).is_err())).unwrap();
        assert!(failed);
    }
    let status = diversion(&daemon);
    assert!(status.in_place && status.ends == 0, "{status:?}");
}

/// Somebody asks a host that does not answer, again and again, on a machine without any firewall.
#[test]
fn an_outage_behind_the_machine_does_not_end_diversion() {
    if skipped("an_outage_behind_the_machine_does_not_end_diversion") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["left"]));
    for address in ["10.2.0.1", "fd02::1"] {
        transfer(&path, address, 100_000);
    }
    path.server.sh("ip link set eth0 arp off; ip link set eth0 address 02:00:00:00:00:77");
    for address in ["10.2.0.1", "fd02::1"] {
        path.router.sh("ip neigh flush all; ip -6 neigh flush all");
        let ask = |n: u16| {
            std::thread::sleep(Duration::from_millis(100));
            let to = (ip(address), 7000 + n).into();
            path.client.0.spawn(move || Ok(TcpStream::connect_timeout(&to, Duration::from_secs(3)).is_err()))
        };
        let asked: Vec<_> = (0..30).map(ask).collect();
        assert!(asked.into_iter().all(|asked| asked.join().unwrap().unwrap()));
        let status = diversion(&daemon);
        assert!(status.in_place && status.ends == 0, "{address}: {status:?}");
    }
}

/// Rules of the old iptables are not nftables'.
#[test]
fn what_the_old_iptables_refuses_does_not_end_diversion() {
    if skipped("what_the_old_iptables_refuses_does_not_end_diversion") || is_refused() {
        return;
    }
    let path = Path::new();
    let set = "for t in iptables-legacy ip6tables-legacy; do $t -w -P FORWARD DROP && \
               $t -w -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT && $t -w -A FORWARD -i left -j ACCEPT; done; echo $?";
    if path
        .router
        .sh(&format!("command -v ip6tables-legacy >/dev/null || {{ echo 1; exit 0; }}; {set}"))
        .trim()
        != "0"
    {
        eprintln!("cannot run: iptables-legacy is not installed");
        return;
    }
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    transfer(&path, "10.2.0.1", 100_000);
    let scan = |n: u16| {
        std::thread::sleep(Duration::from_millis(100));
        let to = (ip("10.1.0.1"), 7000 + n).into();
        path.server.0.spawn(move || Ok(TcpStream::connect_timeout(&to, Duration::from_secs(2)).is_err()))
    };
    let scans: Vec<_> = (0..24).map(scan).collect();
    assert!(scans.into_iter().all(|scan| scan.join().unwrap().unwrap()));
    let status = diversion(&daemon);
    assert!(status.in_place && status.ends == 0, "{status:?}");
}

#[test]
fn two_processes_have_no_bump_at_the_same_interface() {
    if skipped("two_processes_have_no_bump_at_the_same_interface") || is_refused() {
        return;
    }
    let path = Path::new();
    let first = Daemon::start(&path.router, bumped(&["right"]));
    let mut config = bumped(&["right"]);
    config.divert.instance = "two".into();
    let second = Daemon::start(&path.router, config);
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!((split(&first), split(&second)), (1, 0));
    eventually("the second says so", || !diversion(&second).in_place);
    let [refused] = &diversion(&second).found[..] else { panic!("{:?}", diversion(&second).found) };
    assert_eq!((&*refused.id, refused.severity), ("other-instance", Severity::Problem));
    assert!(refused.text.contains("`attach`") && refused.evidence["interface"] == "right", "{refused}");
    assert_eq!(captured(&second, "right"), [CaptureState::Wanted; 2]);
    assert!(diversion(&first).in_place && diversion(&first).found.is_empty());
    // It takes over.
    assert_eq!(first.drain(), End::Drained);
    eventually("the second has it", || diversion(&second).in_place);
    assert!(diversion(&second).found.is_empty(), "{:?}", diversion(&second).found);
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!(split(&second), 1);
    assert_eq!(second.drain(), End::Drained);
}

/// Anybody may take names of abstract sockets. Nothing depends on them.
#[test]
fn names_that_another_user_takes_keep_no_bump_away() {
    if skipped("names_that_another_user_takes_keep_no_bump_away") || is_refused() {
        return;
    }
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    const NOBODY: libc::uid_t = 65534;
    let path = Path::new();
    let taking = path.router.0.spawn(|| {
        // SAFETY: the credentials of this thread alone are changed.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        let take = |index| {
            let name = SocketAddr::from_abstract_name(format!("farlink-bump-{index}")).unwrap();
            UnixListener::bind_addr(&name).unwrap()
        };
        Ok((1..=64).map(take).collect::<Vec<_>>())
    });
    let _taken = taking.join().unwrap().unwrap();
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    for address in ["10.2.0.1", "fd02::1"] {
        transfer(&path, address, 100_000);
    }
    assert_eq!(split(&daemon), 2);
    eventually("packets prove it", || captured(&daemon, "right") == [CaptureState::Proven; 2]);
    assert!(diversion(&daemon).in_place && diversion(&daemon).found.is_empty());
    assert_eq!(daemon.drain(), End::Drained);
}

/// What cannot be put back is a finding for as long as that is so.
#[test]
fn a_program_that_is_refused_is_a_finding_until_it_stands() {
    if skipped("a_program_that_is_refused_is_a_finding_until_it_stands") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    transfer(&path, "10.2.0.1", 100_000);
    let taken = path.router.0.run(|| {
        let index = Socket::open()?.link_index("right")?;
        let mut all = bpf::fill(index, Side::Ingress);
        // Others take the place of ours, which alone is the oldest.
        assert_eq!(bpf::detach_oldest(index), 1);
        all.extend(bpf::fill(index, Side::Ingress));
        Ok(all)
    });
    eventually("it is said", || diversion(&daemon).found.iter().any(|f| f.id == "not-attached"));
    let status = diversion(&daemon);
    assert!(!status.in_place, "{status:?}");
    let refused = status.found.iter().find(|f| f.id == "not-attached").unwrap();
    assert_eq!((refused.severity, &*refused.evidence["interface"]), (Severity::Problem, "right"));
    assert_eq!(captured(&daemon, "right"), [CaptureState::Wanted; 2], "not by half either");
    let before = split(&daemon);
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!(split(&daemon), before, "it takes the ordinary way");
    drop(taken);
    eventually("it stands again", || diversion(&daemon).in_place);
    assert!(diversion(&daemon).found.iter().all(|f| f.id != "not-attached"));
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!(split(&daemon), before + 1);
    assert_eq!(daemon.drain(), End::Drained);
}

/// SQM's qdisc `ingress` has the place of filters before Linux 6.6.
#[test]
fn an_ingress_qdisc_is_a_finding_until_it_goes() {
    if std::env::var_os(TCX).is_none() {
        older_kernel("an_ingress_qdisc_is_a_finding_until_it_goes");
        return;
    }
    if skipped("an_ingress_qdisc_is_a_finding_until_it_goes") || is_refused() {
        return;
    }
    let path = Path::new();
    path.router.sh("tc qdisc add dev right handle ffff: ingress");
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    let status = diversion(&daemon);
    let [refused] = &status.found[..] else { panic!("{status:?}") };
    assert_eq!((&*refused.id, refused.severity), ("ingress-qdisc", Severity::Problem));
    assert!(!status.in_place);
    assert_eq!(captured(&daemon, "right"), [CaptureState::Wanted; 2]);
    // No filter of ours stands in it, which would take one direction alone.
    assert!(!path.router.sh("tc filter show dev right ingress").contains("farlink"));
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!(split(&daemon), 0);
    path.router.sh("tc qdisc del dev right ingress");
    eventually("it stands", || diversion(&daemon).in_place);
    transfer(&path, "10.2.0.1", 100_000);
    assert_eq!(split(&daemon), 1);
    assert_eq!(daemon.drain(), End::Drained);
}

/// `tc_index` of what Farlink sends, where it has neither mark nor priority.
const OF_FARLINK: i32 = 0xf000;

/// Somebody at the exit of an interface lets pass what comes from the machine, and drops what
/// Farlink sends there.
#[test]
fn what_is_dropped_on_the_way_out_ends_diversion_and_is_named() {
    if skipped("what_is_dropped_on_the_way_out_ends_diversion_and_is_named") || is_refused() {
        return;
    }
    for (address, family) in [("10.2.0.1", "IPv4"), ("fd02::1", "IPv6")] {
        let path = Path::new();
        let daemon = Daemon::start(&path.router, bumped(&["right"]));
        transfer(&path, address, 100_000);
        let dropping = path.router.0.run(|| {
            let index = Socket::open()?.link_index("right")?;
            Ok(bpf::drop_marked(index, OF_FARLINK))
        });
        let after = works_after(&path, address);
        assert!(after < 2 * WITHIN, "{family}: {after:?}");
        let status = diversion(&daemon);
        assert!(!status.in_place && status.ends == 1, "{status:?}");
        assert_eq!((status.ipv4, status.ipv6), (family != "IPv4", family != "IPv6"));
        let cause = &status.found[0];
        assert!(cause.id == "lost-at-exit" && cause.text.contains("does not leave"), "{cause}");
        drop(dropping);
        assert_eq!(daemon.drain(), End::Drained);
    }
}

/// Sends frames by an interface past everything that the kernel does with packets that leave.
fn send_past(path: &Path, interface: &str, frames: u32) {
    let sent = path.router.0.run(|| {
        let index = Socket::open()?.link_index(interface)?;
        // SAFETY: plain system calls; what they point to lives through them.
        unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            let on = 1;
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            let option = libc::PACKET_QDISC_BYPASS;
            let set = libc::setsockopt(socket, libc::SOL_PACKET, option, (&raw const on).cast(), size);
            assert!(socket >= 0 && set == 0);
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = index.cast_signed();
            // To nobody, of a protocol that nobody knows.
            let mut frame = [0u8; 60];
            (frame[0], frame[6], frame[12], frame[13]) = (2, 2, 0x88, 0xb5);
            for _ in 0..frames {
                let size = size_of_val(&to) as libc::socklen_t;
                libc::sendto(socket, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), size);
            }
            libc::close(socket);
        }
        Ok(())
    });
    sent.unwrap();
}

/// Packets prove that programs see what passes; and that they do not, where others take it past
/// them.
#[test]
fn packets_that_pass_a_bump_unseen_are_a_finding() {
    if skipped("packets_that_pass_a_bump_unseen_are_a_finding") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    transfer(&path, "10.2.0.1", 100_000);
    eventually("packets prove it", || captured(&daemon, "right") == [CaptureState::Proven; 2]);
    // A frame of the machine's own now and then is seen: one window without is enough.
    let end = Instant::now() + Duration::from_secs(30);
    let found = loop {
        send_past(&path, "right", 40);
        if let Some(found) = diversion(&daemon).found.into_iter().find(|f| f.id == "not-seen") {
            break found;
        }
        assert!(Instant::now() < end, "{:?}", diversion(&daemon));
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((&*found.evidence["interface"], &*found.evidence["direction"]), ("right", "out"));
    assert_eq!(captured(&daemon, "right")[1], CaptureState::Attached);
    transfer(&path, "10.2.0.1", 100_000);
    eventually("they are seen again", || diversion(&daemon).found.is_empty());
    assert_eq!(captured(&daemon, "right"), [CaptureState::Proven; 2]);
    assert_eq!(daemon.drain(), End::Drained);
}
