//! `syn-flood`: SYNs with false sources pour in while real connections open. All of those work, and
//! the gateways' memory goes back to what it was.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::session::{Allowed, PORT, Session, expect_intact};
use super::{Kind, Run, many};
use crate::build::Lab;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::topology::Role;
use crate::workload::Outcome;

/// Where the SYNs claim to come from (RFC 2544 appendix C.2.2: never a real host).
const FALSE_NET: (Ipv4Addr, u32) = (Ipv4Addr::new(198, 18, 0, 0), 15);
/// How often the flood sends its share.
const TICK: Duration = Duration::from_millis(1);
/// So long after the last byte of a transfer the gateways hold nothing of it any more.
const QUIET: Duration = Duration::from_secs(2);
/// Half-open connections are forgotten after 75 s; so long it is waited for memory to go back.
const SETTLE_PATIENCE: Duration = Duration::from_secs(110);

/// See the module.
pub(super) struct SynFloodKind;

/// Memory of all gateways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug, Default)]
struct Memory {
    pool_bytes: u64,
    table_bytes: u64,
}

impl Kind for SynFloodKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        if cell.v6() {
            bail!("the flood is IPv4 only");
        }
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        false_net_is_behind_the_client(&session.lab)?;
        let (rate, seconds) = (scenario.option("syns_per_s", 1e4)?, scenario.option("flood_s", 10.0)?);
        let mut transfers = many::transfers(scenario, cell, &session.lab, run.seed)?;
        // The same connections once without a flood: what memory is after them is where it has to
        // be again.
        let (before, ()) = session.transfer(&transfers, run, |_| ());
        let mut measured = Measured::default();
        expect_intact(&mut measured, &before);
        std::thread::sleep(QUIET);
        let usual = memory(&session.lab)?;

        for (number, transfer) in transfers.iter_mut().enumerate() {
            let share = (number as f64 + 0.5) / scenario.option("downloads", 1.0)?;
            transfer.start_after = Duration::from_secs_f64(seconds * share);
            transfer.seed ^= 1 << 40;
        }
        let flood = Flood { rate, seconds, seed: run.seed };
        let (outcomes, sent) = session.transfer(&transfers, run, |lab| flood.run(lab));
        let sent = sent?;
        let peak = memory(&session.lab)?;
        expect_intact(&mut measured, &outcomes);
        measured.expect(sent as f64 >= 0.9 * rate * seconds, || {
            format!("this machine could send {sent} SYNs in {seconds} s only")
        });
        let slack = scenario.option("slack_bytes", 65_536.0)? as u64;
        let wanted = Memory { table_bytes: usual.table_bytes + slack, ..usual };
        let (after, took) = settled(&session.lab, wanted)?;
        measured.expect(is_within(after, wanted), || {
            format!(
                "memory was {usual:?} before the flood, {peak:?} in it and is {after:?} after {took:.0} s"
            )
        });
        let sum = |counter: &str| -> Result<u64> {
            let path = format!("counters.{counter}");
            session.lab.gateways.iter().map(|g| g.engine_number(&path)).sum()
        };
        let syns = sum("syns")?;
        let passed = sum("flows_forwarded_short")? + sum("flows_forwarded_unsplittable")?;
        measured.metric("flows_forwarded_busy", sum("flows_forwarded_busy")? as f64);
        measured.metric("flows_forwarded_otherwise", passed as f64);
        measured
            .expect(syns as f64 >= 0.8 * sent as f64, || format!("the gateways saw {syns} SYNs of {sent}"));
        let worst = |outcomes: &[Outcome]| outcomes.iter().map(|o| o.connect_seconds).fold(0.0, f64::max);
        measured.metric("connections_open", outcomes.iter().filter(|o| o.intact).count() as f64);
        measured.metric("syns_sent", sent as f64);
        measured.metric("connect_seconds", worst(&outcomes));
        measured.metric("connect_seconds_before", worst(&before));
        measured.metric("table_bytes_before", usual.table_bytes as f64);
        measured.metric("table_bytes_flood", peak.table_bytes as f64);
        measured.metric("table_bytes_after", after.table_bytes as f64);
        measured.metric("pool_bytes_after", after.pool_bytes as f64);
        measured.metric("settle_seconds", took);
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

/// Answers to the false sources find their way to the client's host, which does not know them and
/// is silent.
fn false_net_is_behind_the_client(lab: &Lab) -> Result<()> {
    let (net, length) = FALSE_NET;
    let client = lab.address("client", false)?;
    let IpAddr::V4(of_client) = client else { bail!("the client has no IPv4 address") };
    for (number, node) in lab.topology.nodes.iter().enumerate() {
        if node.role == Role::Link || node.name == "client" {
            continue;
        }
        let leads = |r: &crate::topology::Route| matches!(r.to.0, IpAddr::V4(to) if to.octets()[..3] == of_client.octets()[..3]);
        let via = lab.topology.routes(number).into_iter().find(leads).map_or(client, |r| r.via);
        lab.ns(&node.name).ip_batch(false, &[format!("route add {net}/{length} via {via}")])?;
    }
    lab.ns("client").ip_batch(false, &[format!("route add blackhole {net}/{length}")])
}

fn memory(lab: &Lab) -> Result<Memory> {
    let mut sum = Memory::default();
    for gateway in &lab.gateways {
        sum.pool_bytes += gateway.engine_number("pool_bytes")?;
        sum.table_bytes += gateway.engine_number("table_bytes")?;
    }
    Ok(sum)
}

fn is_within(memory: Memory, bound: Memory) -> bool {
    memory.pool_bytes <= bound.pool_bytes && memory.table_bytes <= bound.table_bytes
}

/// Memory once it is within a bound, or when waiting is in vain; with how long that took in
/// seconds.
fn settled(lab: &Lab, bound: Memory) -> Result<(Memory, f64)> {
    let began = Instant::now();
    loop {
        let now = memory(lab)?;
        if is_within(now, bound) || began.elapsed() > SETTLE_PATIENCE {
            return Ok((now, began.elapsed().as_secs_f64()));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

struct Flood {
    rate: f64,
    seconds: f64,
    seed: u64,
}

impl Flood {
    /// Sends from the client's host to the server's port; says how many went out.
    fn run(&self, lab: &Lab) -> Result<u64> {
        let IpAddr::V4(server) = lab.address("server", false)? else {
            bail!("the server has no IPv4 address")
        };
        let socket = lab.ns("client").enter(raw_socket)?;
        let began = Instant::now();
        let (mut tried, mut sent) = (0_u64, 0);
        while began.elapsed().as_secs_f64() < self.seconds {
            let due = (began.elapsed().as_secs_f64() * self.rate) as u64;
            while tried < due {
                tried += 1;
                sent += u64::from(send(&socket, &syn(server, word(self.seed, tried)), server));
            }
            std::thread::sleep(TICK);
        }
        Ok(sent)
    }
}

/// SplitMix64 by position.
fn word(seed: u64, index: u64) -> u64 {
    let mut bytes = [0; 8];
    crate::workload::content::fill(seed, index * 8, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn raw_socket() -> Result<OwnedFd> {
    // SAFETY: a plain system call; the descriptor is owned at once. IPPROTO_RAW implies that
    // headers are ours.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("no raw socket");
    }
    // SAFETY: just opened.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn send(socket: &OwnedFd, packet: &[u8], to: Ipv4Addr) -> bool {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: the packet and the address with their lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    sent == packet.len() as isize
}

/// A SYN with MSS option from an address, a port and with an ISN that the random word gives.
fn syn(server: Ipv4Addr, random: u64) -> [u8; 44] {
    let [a, b, c, d, e, f, g, h] = random.to_le_bytes();
    let source = Ipv4Addr::from_bits(FALSE_NET.0.to_bits() | u32::from_be_bytes([0, a & 1, b, c.max(1)]));
    let mut packet = [0; 44];
    // Version and header length, TTL, protocol; the kernel fills in total length and checksum.
    (packet[0], packet[8], packet[9]) = (0x45, 64, libc::IPPROTO_TCP as u8);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&server.octets());
    let tcp = &mut packet[20..];
    tcp[..2].copy_from_slice(&[d | 0x80, e]);
    tcp[2..4].copy_from_slice(&PORT.to_be_bytes());
    tcp[4..8].copy_from_slice(&[f, g, h, d]);
    // Header of 24 bytes, SYN, window 65535, MSS 1460.
    (tcp[12], tcp[13]) = (0x60, 0x02);
    tcp[14..16].copy_from_slice(&[0xff, 0xff]);
    tcp[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    let sum = checksum(&packet);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The TCP checksum (RFC 9293 section 3.1) of a packet with a 20-byte IPv4 header.
fn checksum(packet: &[u8]) -> u16 {
    let words = packet[12..].chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum = words.sum::<u32>() + libc::IPPROTO_TCP as u32 + (packet.len() as u32 - 20);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syn_is_whole_and_its_source_false() {
        for n in 0..100 {
            let packet = syn(Ipv4Addr::new(10, 64, 3, 2), word(1, n));
            assert_eq!((packet[12], packet[13] & 0xfe), (198, 18));
            // Over a right checksum the sum is zero.
            assert_eq!(checksum(&packet), 0);
        }
        assert_ne!(syn(Ipv4Addr::LOCALHOST, 1), syn(Ipv4Addr::LOCALHOST, 1 << 40));
    }
}
