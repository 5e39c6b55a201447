//! UDP that is forwarded: both ends of the load, and the measurement. As with QUIC a window of
//! datagrams is under way, and the server says what has arrived. Who sends without listening would
//! measure which process gets the processor.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::sockopt;
use serde_json::{Value, json};

use super::bed::{Bed, Variant};
use super::load::print_json;
use super::measure::Usage;
use super::report::Cell;
use super::{per_gigabyte, progress};

/// Payload of a datagram: that of QUIC.
const DATAGRAM_BYTES: usize = 1_200;
/// What is under way at most.
const WINDOW_BYTES: u64 = 320 * DATAGRAM_BYTES as u64;
/// The server says what it has after so much.
const REPORT_BYTES: u64 = 32 * DATAGRAM_BYTES as u64;
const BUFFER_BYTES: usize = 8 << 20;
/// What has not been heard of for so long is lost.
const LOST_AFTER: Duration = Duration::from_millis(10);
const WARM_UP: Duration = Duration::from_secs(1);
/// Datagrams that a program hands to the kernel at once: one, or several (UDP_SEGMENT).
const AT_ONCE: [usize; 2] = [1, 32];
const SOL_UDP: libc::c_int = 17;
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;
/// A link that does not hold anything up.
const LINK: &str = "[[link]]\ninterface = \"to-server\"\nrate = \"40 Gbit/s\"\n";

fn set(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) {
    // SAFETY: reads the integer behind the pointer. A kernel that does not know the option works
    // without it.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_UDP,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Says to whoever sends how many bytes of it have come.
pub fn serve(port: u16) -> Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    set(&socket, UDP_GRO, 1);
    let mut buffer = vec![0; 1 << 16];
    let (mut from, mut bytes, mut said) = (None, 0_u64, 0_u64);
    loop {
        let (n, peer) = socket.recv_from(&mut buffer)?;
        if from != Some(peer) {
            (from, bytes, said) = (Some(peer), 0, 0);
        }
        bytes += n as u64;
        if bytes - said >= REPORT_BYTES {
            said = bytes;
            // One that gets lost is followed by the next.
            let _ = socket.send_to(&bytes.to_be_bytes(), peer);
        }
    }
}

/// Sends as fast as the server hears, `at_once` datagrams in a call.
pub fn send(at_once: usize, seconds: u64, to: IpAddr, port: u16) -> Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(SocketAddr::new(to, port))?;
    socket.set_read_timeout(Some(LOST_AFTER))?;
    if at_once > 1 {
        set(&socket, UDP_SEGMENT, DATAGRAM_BYTES as libc::c_int);
    }
    let data = vec![0x5a; DATAGRAM_BYTES * at_once];
    let (mut sent, mut arrived, mut lost) = (0_u64, 0_u64, 0_u64);
    let (began, mut from) = (Instant::now(), None);
    loop {
        while sent.saturating_sub(arrived + lost) + data.len() as u64 <= WINDOW_BYTES {
            match socket.send(&data) {
                Ok(n) => sent += n as u64,
                // A full queue of the own machine.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOBUFS)) => break,
                Err(e) => return Err(e).context("sending"),
            }
        }
        let mut report = [0; 8];
        match socket.recv(&mut report) {
            Ok(_) => arrived = arrived.max(u64::from_be_bytes(report)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                lost = sent.saturating_sub(arrived);
            }
            Err(e) => return Err(e).context("hearing of what has arrived"),
        }
        match from {
            None if began.elapsed() >= WARM_UP => from = Some((Instant::now(), arrived, sent)),
            Some((at, before, sent_before)) if at.elapsed() >= Duration::from_secs(seconds) => {
                let elapsed = at.elapsed().as_secs_f64();
                let (bytes, sent) = (arrived - before, sent - sent_before);
                return print_json(&json!({
                    "seconds": elapsed,
                    "bits_per_second": bytes as f64 * 8.0 / elapsed,
                    "packets_per_s": bytes as f64 / DATAGRAM_BYTES as f64 / elapsed,
                    // What is under way at the end is not lost.
                    "lost_share": sent.saturating_sub(bytes + WINDOW_BYTES) as f64 / sent.max(1) as f64,
                }));
            }
            _ => {}
        }
    }
}

/// Forwarded UDP: all that leaves by the link passes its queue, and nothing of any other interface
/// enters the gateway.
pub fn measure(bed: &Bed, variant: Variant, round: u32, seconds: u64) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let links: &[bool] = if variant.is_farlink() { &[true, false] } else { &[false] };
    for (has_link, at_once) in links.iter().flat_map(|link| AT_ONCE.map(|n| (*link, n))) {
        let mut running = bed.start_with(variant, if has_link { LINK } else { "" })?;
        let arguments = ["datagrams", "--at-once", &at_once.to_string(), "--seconds", &seconds.to_string()];
        let load = bed.client_load(&arguments)?;
        thread::sleep(WARM_UP);
        let before = Usage::now(&running.pids())?;
        thread::sleep(Duration::from_secs(seconds).saturating_sub(WARM_UP / 2));
        let used = Usage::now(&running.pids())?.since(&before);
        let result = load.result()?;
        let entered = running.status().pointer("/traffic/packets_other").and_then(Value::as_u64);
        let is_running = running.is_running()?;
        running.stop()?;
        let goodput_bps = result["bits_per_second"].as_f64().unwrap_or(0.0);
        let datapath = if has_link { "through the queue" } else { "past it" };
        progress(&format!(
            "{} UDP {datapath}, {at_once} at once: {:.2} Gbit/s",
            variant.name(),
            goodput_bps / 1e9
        ));
        let as_wanted = entered.is_none_or(|packets| (packets > 0) == has_link);
        let mut metrics = result.clone();
        metrics["cpu_s_per_gb"] = json!(per_gigabyte(used.machine_cpu_s, goodput_bps, used.seconds));
        metrics["process_cpu_s_per_gb"] = json!(per_gigabyte(used.process_cpu_s, goodput_bps, used.seconds));
        metrics["packets_entered"] = json!(entered);
        cells.push(Cell {
            test: "udp",
            variant: variant.name(),
            params: json!({"link": has_link, "at_once": at_once, "size_bytes": DATAGRAM_BYTES}),
            repeat: round,
            seconds: result["seconds"].as_f64().unwrap_or(0.0),
            goodput_bps: Some(goodput_bps),
            intact: goodput_bps > 0.0 && as_wanted && is_running,
            metrics,
        });
    }
    Ok(cells)
}
