//! The log of the daemon: standard error, written by a thread of its own.
//!
//! Whoever logs waits for nobody. A line goes into a bounded channel. Where standard error takes
//! none (a pipe that is full, a journal that hangs, a disk without room) lines are lost, and
//! counted. The next line that can be written is preceded by how many there were.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use farlink_linux::priority::{self, Priority};
use portable_atomic::AtomicU64;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait for the thread.
const WAITING_MAX: usize = 2048;
/// How long the last lines may take.
const END_MAX: Duration = Duration::from_secs(1);

/// What the thread is given.
enum Order {
    Line(Box<[u8]>),
    /// All that came before is written when this is dropped.
    End(#[allow(dead_code, reason = "who waits hears that it is gone")] SyncSender<()>),
}

/// The one log of the process.
static LINES: OnceLock<SyncSender<Order>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines that could not be written so far.
pub fn lines_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// From here on a thread writes, and who logs does not wait. Before that each line is written at
/// once: a process that is still to fork has no threads.
///
/// # Errors
/// There can be no thread.
pub fn start_thread() -> anyhow::Result<()> {
    let (lines, waiting) = sync_channel(WAITING_MAX);
    priority::start_thread("log", Priority::Normal, move || write_all(&waiting, &mut Stderr, &LOST))
        .context("cannot start the thread of the log")?;
    let _ = LINES.set(lines);
    Ok(())
}

/// Waits for the last lines, for a second at most.
pub fn end() {
    let Some(lines) = LINES.get() else { return };
    let (done, is_done) = sync_channel(0);
    if lines.try_send(Order::End(done)).is_ok() {
        let _ = is_done.recv_timeout(END_MAX);
    }
}

/// Standard error, without the lock that all of std shares.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stderr().as_fd(), bytes)?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the subscriber writes its lines, each in one piece.
pub struct Log;

/// See [`Log`].
pub struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match LINES.get() {
            Some(lines) => {
                let line = Order::Line(bytes.into());
                LOST.fetch_add(u64::from(lines.try_send(line).is_err()), Ordering::Relaxed);
            }
            None => Stderr.write_all(bytes)?,
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Line;
    fn make_writer(&self) -> Line {
        Line
    }
}

/// The thread. It ends with the process.
fn write_all(orders: &Receiver<Order>, sink: &mut dyn Write, lost: &AtomicU64) {
    let mut told = 0;
    for order in orders {
        let Order::Line(line) = order else { continue };
        let lost_now = lost.load(Ordering::Relaxed);
        if lost_now > told {
            let missing = lost_now - told;
            if sink
                .write_all(format!("{missing} lines of the log are lost: nobody took them\n").as_bytes())
                .is_ok()
            {
                told = lost_now;
            }
        }
        if sink.write_all(&line).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing for a while.
    struct Sink {
        refuses: u32,
        taken: Vec<u8>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(left) = self.refuses.checked_sub(1) {
                self.refuses = left;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.taken.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_are_lost_are_counted_and_told() {
        let (lines, waiting) = sync_channel(8);
        for line in ["one\n", "two\n", "three\n"] {
            assert!(lines.try_send(Order::Line(line.as_bytes().into())).is_ok());
        }
        drop(lines);
        let (lost, mut sink) = (AtomicU64::new(0), Sink { refuses: 1, taken: Vec::new() });
        write_all(&waiting, &mut sink, &lost);
        let taken = String::from_utf8(sink.taken).unwrap();
        assert_eq!(taken, "1 lines of the log are lost: nobody took them\ntwo\nthree\n");
        assert_eq!(lost.into_inner(), 1);
    }
}
