//! Jobs with sockets in the namespaces of a laboratory, against its server of seeded bytes.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use portable_atomic::AtomicU64;

use super::{Client, Done, Exchange, Job, REQUEST_BYTES, Style, Task};
use crate::limit::Clock;
use crate::netns::Ns;
use crate::workload::content::Check;
use crate::workload::socket::{self, Options};
use crate::workload::{Direction, Transfer};

/// A job that stands still for so long has failed, where the link is there.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Stack of a thread of a job.
const STACK_BYTES: usize = 256 << 10;
/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Where the jobs are done.
#[derive(Clone, Debug)]
pub struct Place {
    /// The namespace of the client whose job it is.
    pub ns: Ns,
    /// That of the second client, where there is one.
    pub ns_second: Option<Ns>,
    /// The server's address.
    pub to: IpAddr,
    /// And port.
    pub port: u16,
    /// Seed of the bytes.
    pub seed: u64,
    /// A job that stands still for so long has failed.
    pub patience: Duration,
}

/// Does all jobs, each when it is due; what became of them in their order.
#[must_use]
pub fn run_all(place: &Place, jobs: &[Job], progress: &AtomicU64) -> Vec<Done> {
    let called = Instant::now();
    let done = Mutex::new(vec![Done::default(); jobs.len()]);
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|n| jobs[*n].start);
    thread::scope(|scope| {
        for n in order {
            thread::sleep(jobs[n].start.saturating_sub(called.elapsed()));
            let done = &done;
            let work = move || {
                let second = place.ns_second.as_ref().filter(|_| jobs[n].client == Client::Second);
                let place = Place { ns: second.unwrap_or(&place.ns).clone(), ..place.clone() };
                let outcome = run(&place, n as u64, &jobs[n].task, progress);
                done.lock().unwrap_or_else(PoisonError::into_inner)[n] = outcome;
            };
            if let Err(e) = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work) {
                done.lock().unwrap_or_else(PoisonError::into_inner)[n].error =
                    Some(format!("no thread: {e}"));
            }
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run(place: &Place, number: u64, task: &Task, progress: &AtomicU64) -> Done {
    let seed = place.seed.wrapping_mul(1_000_003).wrapping_add(number << 20);
    let mut done = Done::default();
    let outcome = match task {
        Task::Download(bytes) => transfer(place, Direction::Download, *bytes, seed, progress, &mut done),
        Task::Upload(bytes) => transfer(place, Direction::Upload, *bytes, seed, progress, &mut done),
        Task::Page { document_bytes, object_bytes, style } => {
            page(place, *document_bytes, object_bytes, *style, seed, progress, &mut done)
        }
        Task::Dialogue { exchanges, linger } => {
            dialogue(place, (exchanges, *linger), seed, progress, &mut done)
        }
    };
    if let Err(e) = outcome {
        done.error = Some(format!("{e:#}"));
    }
    done
}

fn transfer(
    place: &Place,
    direction: Direction,
    bytes: u64,
    seed: u64,
    progress: &AtomicU64,
    done: &mut Done,
) -> Result<()> {
    let transfer = Transfer {
        direction,
        clock: Clock::Connect,
        patience: place.patience,
        ..Transfer::download(place.ns.clone(), place.to, place.port, bytes, seed)
    };
    let outcome = transfer.run(progress);
    done.seconds = outcome.seconds;
    done.bytes = outcome.bytes;
    done.client = outcome.local;
    done.resets = u32::from(outcome.errno == Some(libc::ECONNRESET));
    match outcome.error {
        Some(error) => bail!(error),
        None if !outcome.intact => bail!("not intact"),
        None => Ok(()),
    }
}

/// A connection on which one question follows the other.
struct Talk {
    stream: TcpStream,
    seed: u64,
    asked: u64,
}

impl Talk {
    fn connect(place: &Place, seed: u64) -> Result<Self> {
        let stream = socket::client(&place.ns, place.to.is_ipv6(), &Options::default())?;
        socket::connect(&stream, (place.to, place.port).into(), place.patience).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(place.patience))?;
        stream.set_write_timeout(Some(place.patience))?;
        Ok(Self { stream, seed, asked: 0 })
    }

    /// Asks with `up_bytes`, reads `down_bytes` and checks each of them.
    fn ask(&mut self, up_bytes: u64, down_bytes: u64, progress: &AtomicU64) -> Result<()> {
        let seed = self.seed.wrapping_add(self.asked);
        self.asked += 1;
        // The line says how many bytes without meaning follow it, and is the shorter the more
        // digits those have.
        let line = |pad: u64| format!("KEEP {down_bytes} {seed} {pad}\n");
        let pad = up_bytes.saturating_sub(line(up_bytes).len() as u64);
        let mut question = line(pad).into_bytes();
        question.resize(question.len() + pad as usize, b'.');
        self.stream.write_all(&question).context("asking")?;
        let mut check = Check::new(seed);
        let mut chunk = vec![0; CHUNK_BYTES];
        while check.bytes() < down_bytes {
            let room = (down_bytes - check.bytes()).min(CHUNK_BYTES as u64) as usize;
            let n = self.stream.read(&mut chunk[..room]).context("reading an answer")?;
            if n == 0 {
                bail!("the connection ended after {} of {down_bytes} bytes", check.bytes());
            }
            check.take(&chunk[..n]);
            progress.fetch_add(n as u64, Ordering::Relaxed);
        }
        if let Some(at) = check.first_difference() {
            bail!("byte {at} is not the one that was sent");
        }
        let (_, same) = check.finish();
        if same { Ok(()) } else { bail!("what arrived is not what was sent") }
    }

    /// Ends the connection from this side, and waits for the other one's end.
    fn finish(mut self) -> Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)?;
        match self.stream.read(&mut [0])? {
            0 => Ok(()),
            _ => bail!("bytes after the end"),
        }
    }
}

fn page(
    place: &Place,
    document_bytes: u64,
    object_bytes: &[u64],
    style: Style,
    seed: u64,
    progress: &AtomicU64,
    done: &mut Done,
) -> Result<()> {
    let began = Instant::now();
    let mut first = Talk::connect(place, seed)?;
    first.ask(REQUEST_BYTES, document_bytes, progress)?;
    done.bytes = document_bytes;
    match style {
        Style::Persistent => {
            for bytes in object_bytes {
                first.ask(REQUEST_BYTES, *bytes, progress)?;
            }
            done.seconds = began.elapsed().as_secs_f64();
        }
        Style::Multiplexed => {
            let requests = REQUEST_BYTES * object_bytes.len() as u64;
            first.ask(requests, object_bytes.iter().sum(), progress)?;
            done.seconds = began.elapsed().as_secs_f64();
        }
        Style::Parallel(connections) => {
            done.seconds = parallel(place, &mut first, object_bytes, connections, began, progress)?;
        }
    }
    done.bytes += object_bytes.iter().sum::<u64>();
    first.finish()
}

/// Objects over several connections, the first of which stands. Seconds until the last byte.
fn parallel(
    place: &Place,
    first: &mut Talk,
    object_bytes: &[u64],
    connections: usize,
    began: Instant,
    progress: &AtomicU64,
) -> Result<f64> {
    let left: Mutex<VecDeque<u64>> = Mutex::new(object_bytes.iter().copied().collect());
    let fetch = |talk: &mut Talk| -> Result<f64> {
        let mut at = 0.0;
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(bytes) = next else { return Ok(at) };
            talk.ask(REQUEST_BYTES, bytes, progress)?;
            at = began.elapsed().as_secs_f64();
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..connections.min(object_bytes.len()) as u64)
            .map(|n| {
                let (fetch, seed) = (&fetch, first.seed.wrapping_add(n << 16));
                let work = move || -> Result<f64> {
                    let mut talk = Talk::connect(place, seed)?;
                    let at = fetch(&mut talk)?;
                    talk.finish()?;
                    Ok(at)
                };
                thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)
            })
            .collect();
        let mut end = fetch(first)?;
        for thread in others {
            match thread?.join() {
                Ok(at) => end = end.max(at?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(end)
    })
}

fn dialogue(
    place: &Place,
    (exchanges, linger): (&[Exchange], Duration),
    seed: u64,
    progress: &AtomicU64,
    done: &mut Done,
) -> Result<()> {
    let began = Instant::now();
    let mut talk = Talk::connect(place, seed)?;
    for e in exchanges {
        thread::sleep(e.wait);
        let asked = Instant::now();
        talk.ask(e.up_bytes, e.down_bytes, progress)?;
        done.answers.push(asked.elapsed().as_secs_f64());
        done.bytes += e.down_bytes;
    }
    done.seconds = began.elapsed().as_secs_f64();
    thread::sleep(linger);
    talk.finish()?;
    done.ended_seconds = Some(began.elapsed().as_secs_f64());
    Ok(())
}
