//! Captures of a whole laboratory while it works: one thread reads all of them, another feeds the
//! checker.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use farlink_wire::{Instant, pcap};

use super::check::{Checker, Findings, Point};
use super::order::{Held, Order};
use super::socket::{Extent, Frame, PacketSocket};
use crate::build::Lab;
use crate::topology::Role;

/// Packets read from one capture before the next one has its turn.
const BURST: usize = 256;
/// Batches that may wait to be judged.
const BATCHES_MAX: usize = 4096;
/// The largest IP packet.
const PACKET_BYTES_MAX: usize = 65_536;
/// Bound on a capture file, so that a long run does not fill a disk.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// What the captures are for besides the checks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Gateways may give up custody and reset hosts (one was killed).
    pub allows_resets: bool,
    /// Keep moments for plots.
    pub keeps_moments: bool,
    /// How much of each packet is captured.
    pub extent: Extent,
    /// Directory for capture files, and how their names begin.
    pub files: Option<(PathBuf, String)>,
}

/// Running captures.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Findings>>,
}

struct Tap {
    socket: PacketSocket,
    file: Option<BufWriter<File>>,
    written: u64,
}

impl Watch {
    /// Captures on every interface of every place for a gateway, whether or not one runs there: a
    /// plain router passes the same checks.
    pub fn start(lab: &Lab, options: &Options) -> Result<Self> {
        let (mut points, mut taps) = (Vec::new(), Vec::new());
        for (number, node) in lab.topology.nodes.iter().enumerate() {
            if node.role != Role::Gateway {
                continue;
            }
            for interface in lab.topology.interfaces(number) {
                let file = match &options.files {
                    Some((directory, begin)) => {
                        let name = format!("{begin}-{}-{}.pcap", node.name, interface.name);
                        Some(open_file(&directory.join(name))?)
                    }
                    None => None,
                };
                let socket = PacketSocket::open(&lab.ns(&node.name), &interface.name, options.extent)?;
                taps.push(Tap { socket, file, written: 0 });
                points.push(Point {
                    node: node.name.clone(),
                    is_link: node.declared.iter().any(|d| d.neighbour == interface.neighbour),
                    interface: interface.name,
                });
            }
        }
        let checker = Checker::new(&points, options.allows_resets, options.keeps_moments);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || read_all(taps, checker, &seen))?;
        Ok(Self { stop, thread })
    }

    /// Ends the captures and judges what they saw.
    pub fn finish(self) -> Result<Findings> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the capture thread died"))?
    }
}

fn open_file(path: &std::path::Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
    let mut file = BufWriter::new(file);
    file.write_all(&pcap::file_header())?;
    Ok(file)
}

/// Reads all captures on this thread and judges on another: a reader that is slow misses packets.
fn read_all(mut taps: Vec<Tap>, checker: Checker, stop: &AtomicBool) -> Result<Findings> {
    let (batches, inbox) = sync_channel(BATCHES_MAX);
    let judging =
        std::thread::Builder::new().name("capture-check".into()).spawn(move || judge_all(checker, &inbox))?;
    let outcome = read_until(&mut taps, stop, &batches);
    drop(batches);
    let checker = judging.join().map_err(|_| anyhow!("the thread that checks captures died"))?;
    outcome?;
    let mut drops = 0;
    for tap in &mut taps {
        drops += tap.socket.drops()?;
        if let Some(file) = &mut tap.file {
            file.flush()?;
        }
    }
    Ok(checker.finish(drops))
}

fn read_until(taps: &mut [Tap], stop: &AtomicBool, batches: &SyncSender<Vec<Held>>) -> Result<()> {
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let mut polled: Vec<_> = taps
        .iter()
        .map(|t| libc::pollfd { fd: t.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let mut order = Order::default();
    loop {
        // Asked before reading: what came until then is read below.
        let last = stop.load(Ordering::Relaxed);
        // SAFETY: the array with its length.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 20) };
        let mut idle = true;
        let mut read_until_ns = u64::MAX;
        for (number, tap) in taps.iter_mut().enumerate() {
            let until_ns = tap.read_burst(&mut buffer, |frame, packet| {
                idle = false;
                order.push(number, *frame, packet);
            })?;
            read_until_ns = read_until_ns.min(until_ns);
        }
        let is_end = last && idle;
        let until_ns = if is_end { u64::MAX } else { read_until_ns };
        let batch: Vec<_> = std::iter::from_fn(|| order.pop(until_ns)).collect();
        if !batch.is_empty() {
            batches.send(batch).map_err(|_| anyhow!("the thread that checks captures ended"))?;
        }
        if is_end {
            return Ok(());
        }
    }
}

fn judge_all(mut checker: Checker, inbox: &Receiver<Vec<Held>>) -> Checker {
    for held in inbox.iter().flatten() {
        checker.take(held.point, &held.frame, &held.packet);
    }
    checker
}

impl Tap {
    /// Reads for a while; the time up to which everything has been read.
    fn read_burst(&mut self, buffer: &mut [u8], mut take: impl FnMut(&Frame, &[u8])) -> Result<u64> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut newest_ns = 0;
        for _ in 0..BURST {
            let Some(frame) = self.socket.receive(buffer)? else {
                return Ok(u64::try_from(began.as_nanos()).unwrap_or(u64::MAX));
            };
            newest_ns = frame.at_ns;
            take(&frame, &buffer[..frame.len]);
            self.write(&frame, &buffer[..frame.len])?;
        }
        Ok(newest_ns)
    }

    fn write(&mut self, frame: &Frame, packet: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.written < FILE_BYTES_MAX {
            let at = Instant::from_nanos(frame.at_ns);
            file.write_all(&pcap::record_header(at, packet.len(), frame.wire_len))?;
            file.write_all(packet)?;
            self.written += packet.len() as u64;
        }
        Ok(())
    }
}
