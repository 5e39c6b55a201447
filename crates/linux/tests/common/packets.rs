//! Raw packets out of a namespace, and a forwarder over TUNs that shows what it sees.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use farlink_linux::clock;
use farlink_linux::divert::{Count, Divert, DivertConfig, Diverted};
use farlink_linux::event_loop::{Interest, Poller, Waker};
use farlink_linux::tun::{ReadOutcome, Tun, TunConfig};
use farlink_wire::{Duration, Offload, Pool, Shim};

use super::Host;

/// An IPv4 packet; `fragment` is the raw flags-and-offset field, `options` whole words.
pub fn ipv4(
    protocol: u8,
    src: IpAddr,
    dst: IpAddr,
    options: &[u8],
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else { panic!("not IPv4") };
    let header = 20 + options.len();
    let mut p = vec![0x40 | u8::try_from(header / 4).unwrap(), 0];
    p.extend(u16::try_from(header + payload.len()).unwrap().to_be_bytes());
    p.extend([0x12, 0x34]);
    p.extend(fragment.to_be_bytes());
    p.extend([64, protocol, 0, 0]);
    p.extend(src.octets());
    p.extend(dst.octets());
    p.extend(options);
    p.extend(payload);
    p
}

/// An IPv6 packet with this first next-header.
pub fn ipv6(next: u8, src: IpAddr, dst: IpAddr, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (src, dst) else { panic!("not IPv6") };
    let mut p = vec![0x60, 0, 0, 0];
    p.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    p.extend([next, 64]);
    p.extend(src.octets());
    p.extend(dst.octets());
    p.extend(payload);
    p
}

/// An IPv6 fragment header and what follows.
pub fn fragment6(next: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![next, 0];
    p.extend((offset | u16::from(more)).to_be_bytes());
    p.extend([0, 0, 0, 9]);
    p.extend(payload);
    p
}

/// A TCP header of 20 bytes: enough to be told apart, with a checksum that nobody checks on the
/// way.
pub fn tcp(src_port: u16, dst_port: u16) -> Vec<u8> {
    let mut p = Vec::new();
    p.extend(src_port.to_be_bytes());
    p.extend(dst_port.to_be_bytes());
    p.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0x40, 0x00, 0, 0, 0, 0]);
    p
}

/// A packet from the client of a `Path` to its server.
pub struct Kind {
    pub name: &'static str,
    pub dst: IpAddr,
    pub packet: Vec<u8>,
    /// It is TCP, or about TCP.
    pub is_tcp: bool,
}

/// What each router acts on must not pass two.
pub const NEVER: [&str; 2] = ["v4 with IP options", "v6 hop-by-hop options"];

/// Without hops to live, and the checksums that the sending kernel filled in.
pub fn without_hops(packet: &[u8]) -> Vec<u8> {
    let mut plain = packet.to_vec();
    let ignored: &[usize] = if packet[0] >> 4 == 4 { &[8, 10, 11] } else { &[7] };
    ignored.iter().for_each(|i| plain[*i] = 0);
    plain
}

/// Packets of all kinds.
pub fn kinds() -> Vec<Kind> {
    let (c4, s4, c6, s6) =
        (super::ip("10.1.0.1"), super::ip("10.2.0.1"), super::ip("fd01::1"), super::ip("fd02::1"));
    let udp = [0u8, 53, 0, 53, 0, 20, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let quoting = |inner: Vec<u8>| [vec![3, 1, 0, 0, 0, 0, 0, 0], inner].concat();
    let quoting6 = |inner: Vec<u8>| [vec![1, 4, 0, 0, 0, 0, 0, 0], inner].concat();
    let echo = [8u8, 0, 0, 0, 0, 0, 0, 0];
    let half = [0u8; 24];
    let behind = |inner: Vec<u8>| [Shim::default().bytes().to_vec(), inner].concat();
    let all: Vec<(&str, IpAddr, Vec<u8>, bool)> = vec![
        ("v4 first fragment", s4, ipv4(6, c4, s4, &[], 0x2000, &[tcp(5, 6), vec![1; 12]].concat()), true),
        ("v4 middle fragment", s4, ipv4(6, c4, s4, &[], 0x2004, &half), true),
        ("v4 last fragment", s4, ipv4(6, c4, s4, &[], 0x0007, &half), true),
        ("v4 UDP fragment", s4, ipv4(17, c4, s4, &[], 0x2000, &half), false),
        ("v4 with IP options", s4, ipv4(6, c4, s4, &[7, 7, 4, 0, 0, 0, 0, 0], 0, &tcp(5, 6)), false),
        (
            "v4 ICMP error about TCP",
            s4,
            ipv4(1, c4, s4, &[], 0, &quoting(ipv4(6, s4, c4, &[], 0, &tcp(6, 5)))),
            true,
        ),
        (
            "v4 ICMP error about UDP",
            s4,
            ipv4(1, c4, s4, &[], 0, &quoting(ipv4(17, s4, c4, &[], 0, &udp))),
            false,
        ),
        ("v4 echo", s4, ipv4(1, c4, s4, &[], 0, &echo), false),
        ("v4 XCP", s4, ipv4(254, c4, s4, &[], 0, &behind(tcp(5, 6))), false),
        ("v4 XCP fragment", s4, ipv4(254, c4, s4, &[], 0x2000, &behind(vec![0; 4])), false),
        (
            "v4 ICMP error about XCP",
            s4,
            ipv4(1, c4, s4, &[], 0, &quoting(ipv4(254, s4, c4, &[], 0, &behind(tcp(6, 5))))),
            false,
        ),
        ("v4 protocol 253", s4, ipv4(253, c4, s4, &[], 0, &half), false),
        (
            "v6 first fragment",
            s6,
            ipv6(44, c6, s6, &fragment6(6, 0, true, &[tcp(5, 6), vec![1; 4]].concat())),
            true,
        ),
        ("v6 last fragment", s6, ipv6(44, c6, s6, &fragment6(6, 24, false, &half)), true),
        ("v6 UDP fragment", s6, ipv6(44, c6, s6, &fragment6(17, 24, false, &half)), false),
        ("v6 fragment of an options header", s6, ipv6(44, c6, s6, &fragment6(60, 24, false, &half)), false),
        (
            "v6 destination options",
            s6,
            ipv6(60, c6, s6, &[vec![6, 0, 1, 4, 0, 0, 0, 0], tcp(5, 6)].concat()),
            false,
        ),
        ("v6 ICMP error about TCP", s6, ipv6(58, c6, s6, &quoting6(ipv6(6, s6, c6, &tcp(6, 5)))), true),
        (
            "v6 ICMP error about a TCP fragment",
            s6,
            ipv6(58, c6, s6, &quoting6(ipv6(44, s6, c6, &fragment6(6, 0, true, &tcp(6, 5))))),
            true,
        ),
        ("v6 ICMP error about UDP", s6, ipv6(58, c6, s6, &quoting6(ipv6(17, s6, c6, &udp))), false),
        ("v4 UDP", s4, ipv4(17, c4, s4, &[], 0, &udp), false),
        ("v6 UDP", s6, ipv6(17, c6, s6, &udp), false),
        (
            "v6 hop-by-hop options",
            s6,
            ipv6(0, c6, s6, &[vec![17, 0, 1, 4, 0, 0, 0, 0], udp.to_vec()].concat()),
            false,
        ),
    ];
    let kind = |(name, dst, packet, is_tcp)| Kind { name, dst, packet, is_tcp };
    all.into_iter().map(kind).collect()
}

/// Sends a whole IP packet out of a namespace, as the kernel there routes it.
pub fn send_raw(host: &Host, dst: IpAddr, packet: &[u8]) {
    host.0
        .run(|| {
            let family = if dst.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
            // SAFETY: plain system calls; the address lives through sendto.
            let sent = unsafe {
                let fd = OwnedFd::from_raw_fd(libc::socket(family, libc::SOCK_RAW, libc::IPPROTO_RAW));
                match dst {
                    IpAddr::V4(a) => {
                        let mut to: libc::sockaddr_in = std::mem::zeroed();
                        to.sin_family = libc::AF_INET as u16;
                        to.sin_addr.s_addr = u32::from_ne_bytes(a.octets());
                        let len = size_of_val(&to) as u32;
                        libc::sendto(
                            fd.as_raw_fd(),
                            packet.as_ptr().cast(),
                            packet.len(),
                            0,
                            (&raw const to).cast(),
                            len,
                        )
                    }
                    IpAddr::V6(a) => {
                        let mut to: libc::sockaddr_in6 = std::mem::zeroed();
                        to.sin6_family = libc::AF_INET6 as u16;
                        to.sin6_addr.s6_addr = a.octets();
                        let len = size_of_val(&to) as u32;
                        libc::sendto(
                            fd.as_raw_fd(),
                            packet.as_ptr().cast(),
                            packet.len(),
                            0,
                            (&raw const to).cast(),
                            len,
                        )
                    }
                }
            };
            assert_eq!(usize::try_from(sent).ok(), Some(packet.len()), "{}", std::io::Error::last_os_error());
            Ok(())
        })
        .unwrap();
}

/// What the forwarder has seen in total.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    pub packets: u64,
    pub super_segments: u64,
    pub partial_checksums: u64,
    pub write_errors: u64,
}

/// Diverts the interfaces of a router and writes every packet back to the TUN that it came from.
pub struct Bounce {
    stop: Arc<Waker>,
    thread: Option<std::thread::JoinHandle<farlink_linux::Result<Divert>>>,
    pub seen: Arc<Mutex<Seen>>,
    /// Interface number, packet and offload, as read.
    pub packets: Receiver<(usize, Vec<u8>, Offload)>,
}

/// Makes TUNs and diversion in the calling thread's namespace.
pub fn divert(config: &DivertConfig, interfaces: &[&str]) -> farlink_linux::Result<(Vec<Tun>, Divert)> {
    let mut tuns = Vec::new();
    let mut diverted = Vec::new();
    for (n, interface) in interfaces.iter().enumerate() {
        let tun = Tun::create(&TunConfig::new(config.tun_name(n)))?;
        diverted.push(Diverted {
            interface: (*interface).to_owned(),
            tun: tun.name().to_owned(),
            tun_index: tun.index(),
        });
        tuns.push(tun);
    }
    let divert = Divert::apply(config.clone(), diverted)?;
    Ok((tuns, divert))
}

/// Reads and writes back until `stop` is woken; `see` looks at each packet.
pub fn forward(tuns: &mut [Tun], stop: &Waker, mut see: impl FnMut(usize, &[u8], Offload, bool)) {
    let mut pool = Pool::new(64 << 20);
    let mut poller = Poller::new().unwrap();
    poller.add(stop, 1000, Interest::Read).unwrap();
    for (tun, n) in tuns.iter().zip(0u64..) {
        poller.add(tun, n, Interest::Read).unwrap();
    }
    loop {
        let ready = poller.wait(Some(clock::now() + Duration::from_secs(1))).unwrap().to_vec();
        for one in ready {
            if one.token == 1000 {
                return;
            }
            let n = usize::try_from(one.token).unwrap();
            let tun = &mut tuns[n];
            for _ in 0..64 {
                match tun.read(&mut pool).unwrap() {
                    ReadOutcome::Packet(packet) => {
                        let ok = tun.write(&packet.offload, packet.bytes(), &[]).is_ok();
                        see(n, packet.bytes(), packet.offload, ok);
                        packet.recycle(&mut pool);
                    }
                    ReadOutcome::Odd => {}
                    ReadOutcome::Empty => break,
                }
            }
        }
    }
}

impl Bounce {
    pub fn start(router: &Host, config: &DivertConfig, interfaces: &[&str]) -> Self {
        let interfaces: Vec<String> = interfaces.iter().map(|i| (*i).to_owned()).collect();
        let stop = Arc::new(Waker::new().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (sender, packets) = channel();
        let (ready, is_ready) = channel();
        let (config, stop2, seen2) = (config.clone(), Arc::clone(&stop), Arc::clone(&seen));
        let thread = router.0.spawn(move || {
            let names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
            let (mut tuns, divert) = divert(&config, &names)?;
            ready.send(()).unwrap();
            forward(&mut tuns, &stop2, |n, bytes, offload, ok| {
                let mut seen = seen2.lock().unwrap();
                seen.packets += 1;
                seen.super_segments += u64::from(offload.is_super_segment());
                seen.partial_checksums += u64::from(offload.is_partial());
                seen.write_errors += u64::from(!ok);
                if bytes.len() < 2000 {
                    let _ = sender.send((n, bytes.to_vec(), offload));
                }
            });
            Ok(divert)
        });
        if is_ready.recv().is_err() {
            panic!("{:?}", thread.join().unwrap().err());
        }
        Self { stop, thread: Some(thread), seen, packets }
    }

    /// Ends it and gives the final counters; diversion is taken back.
    pub fn stop(mut self, router: &Host) -> std::collections::BTreeMap<String, Count> {
        self.stop.wake();
        let divert = self.thread.take().unwrap().join().unwrap().unwrap();
        router
            .0
            .run(move || {
                let counters = divert.counters()?;
                divert.remove()?;
                Ok(counters)
            })
            .unwrap()
    }

    pub fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }

    /// Small packets that were seen until now, after giving them a moment to come.
    pub fn drain(&self) -> Vec<(usize, Vec<u8>, Offload)> {
        std::thread::sleep(std::time::Duration::from_millis(200));
        self.packets.try_iter().collect()
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
