//! What hosts do meanwhile: connections come and go all the time, and two of each family last a
//! second, so that one is open at any time.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farlink_linux::netns::Namespace;
use portable_atomic::AtomicU64;

/// Answers with some bytes and closes.
const SHORT_PORT: u16 = 7000;
/// Says a little all the time, for a second.
const LASTING_PORT: u16 = 7001;
/// Takes what it gets.
const SINK_PORT: u16 = 7002;
const SHORT_BYTES: usize = 30_000;
const LASTS: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_millis(700);
/// A SYN that gets lost is repeated after a second.
const CONNECT_PATIENCE: Duration = Duration::from_millis(1_600);

/// Hosts at work. Dropping it ends them.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    /// Connections that something answered with a refusal.
    refused: Arc<AtomicU64>,
    threads: Vec<JoinHandle<farlink_linux::Result<()>>>,
}

/// What the client does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Short connections and lasting ones.
    Usual,
    /// It sends as much as it can, too.
    Upload,
}

impl Traffic {
    /// Servers in `server`, and clients in `client` that use these addresses.
    pub fn start(client: &Namespace, server: &Namespace, to: &[IpAddr], load: Load) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let refused = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for port in [SHORT_PORT, LASTING_PORT, SINK_PORT] {
            let stop = Arc::clone(&stop);
            threads.push(server.spawn(move || {
                serve(port, &stop);
                Ok(())
            }));
        }
        for address in to.iter().copied() {
            let jobs: &[u16] = match load {
                Load::Usual => &[SHORT_PORT, LASTING_PORT, LASTING_PORT],
                Load::Upload => &[SHORT_PORT, LASTING_PORT, LASTING_PORT, SINK_PORT],
            };
            for (n, port) in jobs.iter().copied().enumerate() {
                let (stop, refused) = (Arc::clone(&stop), Arc::clone(&refused));
                threads.push(client.spawn(move || {
                    // While one of those that last ends, the other one is open.
                    std::thread::sleep(LASTS / 2 * n as u32);
                    while !stop.load(Ordering::Relaxed) {
                        // Where nothing gets through, it fails: that is what is looked at.
                        if fetch(SocketAddr::new(address, port), &stop).is_err_and(|e| is_refusal(&e)) {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        std::thread::sleep(PAUSE);
                    }
                    Ok(())
                }));
            }
        }
        Self { stop, refused, threads }
    }

    /// Connections that something answered with a refusal, until now.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A firewall said no. A lost packet is none: it comes again.
fn is_refusal(error: &std::io::Error) -> bool {
    // Not a reset: the server may not listen yet.
    use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | PermissionDenied)
}

fn serve(port: u16, stop: &Arc<AtomicBool>) {
    let Ok(listener) = TcpListener::bind(("::", port)) else { return };
    let _ = listener.set_nonblocking(true);
    while !stop.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let stop = Arc::clone(stop);
        std::thread::spawn(move || answer(stream, port, &stop));
    }
}

fn answer(mut stream: TcpStream, port: u16, stop: &AtomicBool) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    if port == SHORT_PORT {
        return stream.write_all(&[7; SHORT_BYTES]);
    }
    let end = Instant::now() + LASTS;
    while !stop.load(Ordering::Relaxed) && (port == SINK_PORT || Instant::now() < end) {
        if port == SINK_PORT {
            let mut buffer = vec![0; 64 << 10];
            if stream.read(&mut buffer)? == 0 {
                return Ok(());
            }
        } else {
            stream.write_all(&[7; 500])?;
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn fetch(to: SocketAddr, stop: &AtomicBool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECT_PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 64 << 10];
    if to.port() == SINK_PORT {
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        while !stop.load(Ordering::Relaxed) {
            stream.write_all(&buffer)?;
        }
    }
    while !stop.load(Ordering::Relaxed) && stream.read(&mut buffer)? > 0 {}
    Ok(())
}
