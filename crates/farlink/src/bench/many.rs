//! Very many connections that carry data at once: both ends of the load, each in one thread with an
//! epoll.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farlink_linux::event_loop::{Interest, Poller};
use rustix::net::{AddressFamily, SocketType, sockopt};
use serde_json::json;

use super::load::print_json;

/// Buffers of each socket: ten thousand of them are not to take all memory.
const BUFFER_BYTES: usize = 32 << 10;
/// What is written and read at once.
const CHUNK_BYTES: usize = 16 << 10;
/// What the streams consist of.
const FILL: u8 = 0xA5;
/// All connections are up and running before anything is counted.
const WARM_UP: Duration = Duration::from_secs(3);
/// The listener's token; others are numbers of streams.
const LISTENER: u64 = u64::MAX;

/// Writes into every connection as fast as it takes.
pub fn serve(listener: &TcpListener) -> Result<()> {
    listener.set_nonblocking(true)?;
    let mut poller = Poller::new()?;
    poller.add(listener, LISTENER, Interest::Read)?;
    let chunk = vec![FILL; CHUNK_BYTES];
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    loop {
        let ready = poller.wait(None)?.to_vec();
        for event in ready {
            if event.token == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    let _ = sockopt::set_socket_send_buffer_size(&stream, BUFFER_BYTES);
                    poller.add(&stream, streams.len() as u64, Interest::ReadWrite)?;
                    streams.push(Some(stream));
                }
                continue;
            }
            let Some(slot) = streams.get_mut(event.token as usize) else { continue };
            let Some(stream) = slot else { continue };
            let gone = match stream.write(&chunk) {
                Ok(written) => written == 0,
                Err(e) => e.kind() != ErrorKind::WouldBlock,
            };
            if gone {
                *slot = None;
            }
        }
    }
}

/// Opens them all, reads from all, and says what came, over how many, how evenly.
pub fn read(flows: u64, seconds: u64, server: SocketAddr) -> Result<()> {
    let mut poller = Poller::new()?;
    let mut streams = Vec::new();
    for n in 0..flows {
        let stream = connect(server).with_context(|| format!("connection {n} of {flows}"))?;
        stream.set_nonblocking(true)?;
        poller.add(&stream, n, Interest::Read)?;
        streams.push(stream);
    }
    let mut bytes = vec![0_u64; streams.len()];
    let mut chunk = vec![0; CHUNK_BYTES];
    let began = Instant::now();
    let mut counted_from = None;
    loop {
        let until = farlink_linux::clock::now() + Duration::from_millis(100);
        let ready = poller.wait(Some(until))?.to_vec();
        for event in ready {
            let n = event.token as usize;
            match streams[n].read(&mut chunk) {
                Ok(got) if got > 0 && chunk[0] == FILL && chunk[got - 1] == FILL => bytes[n] += got as u64,
                Ok(_) => bail!("a stream ended or carries other bytes"),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e).context("reading"),
            }
        }
        match counted_from {
            None if began.elapsed() >= WARM_UP => {
                bytes.fill(0);
                print_json(&json!({"counting": streams.len()}))?;
                counted_from = Some(Instant::now());
            }
            Some(from) if from.elapsed() >= Duration::from_secs(seconds) => {
                let elapsed = from.elapsed().as_secs_f64();
                return print_json(&summary(&bytes, elapsed));
            }
            _ => {}
        }
    }
}

/// With a small buffer from the start: one that shrinks later throws away what was sent into the
/// window it had shown.
fn connect(server: SocketAddr) -> Result<TcpStream> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
    rustix::net::connect(&socket, &server)?;
    Ok(TcpStream::from(socket))
}

fn summary(bytes: &[u64], seconds: f64) -> serde_json::Value {
    let sum: u64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|b| (*b as f64).powi(2)).sum();
    let jain = if squares > 0.0 { (sum as f64).powi(2) / (bytes.len() as f64 * squares) } else { 0.0 };
    json!({
        "bytes": sum,
        "seconds": seconds,
        "bits_per_second": sum as f64 * 8.0 / seconds,
        "flows_with_data": bytes.iter().filter(|b| **b > 0).count(),
        "least_bytes": bytes.iter().min(),
        "jain": jain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_how_many_moved_and_how_evenly() {
        let s = summary(&[100, 100, 0, 0], 2.0);
        assert_eq!((s["bits_per_second"].as_f64(), s["flows_with_data"].as_u64()), (Some(800.0), Some(2)));
        assert_eq!((s["jain"].as_f64(), s["least_bytes"].as_u64()), (Some(0.5), Some(0)));
    }
}
