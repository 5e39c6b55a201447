//! A gateway that hangs is worse than none: packets go to its devices and stay there. So it is
//! ended, and the router routes.
//!
//! Two who watch. A thread sees an event loop that stands still while packets wait, and ends the
//! process. A small process outside sees a whole process that stands still (SIGSTOP, a debugger),
//! which no thread of it could, and kills it. Both count their own ticks and not the clock: on a
//! machine that slept or was starved, whoever watches slept as well.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};

use crate::driver::{Position, Pulse};
use crate::error::{Context, Error, Result};
use crate::priority::{Priority, start_thread};
use crate::{caps, confine};

/// How often is looked.
const TICK: Duration = Duration::from_millis(250);
/// Ticks without a turn while packets wait: two seconds.
const HUNG_TICKS: u32 = 8;
/// The same while an operator's question is answered, which may be a long list.
const ANSWERING_TICKS: u32 = 40;
/// Ticks without a heartbeat after which the outside looks whether the process is stopped: one
/// second and a half.
const STOPPED_TICKS: u32 = 6;
/// Ticks without a heartbeat after which it is killed, whatever it is doing: its threads get no
/// processor, or hang in the kernel.
const SILENT_TICKS: u32 = 40;
/// Exit status of a process that ends itself: EX_SOFTWARE of sysexits.h.
const HUNG: i32 = 70;

/// Shared with the process outside: a counter in a page of its own.
#[derive(Debug)]
pub struct Heartbeat {
    page: NonNull<AtomicU32>,
    /// The process outside.
    watcher: libc::pid_t,
    /// It has ended, and its place in the table of processes is free again.
    has_ended: AtomicBool,
}

// SAFETY: the page is never unmapped, and an atomic may be used from any thread.
unsafe impl Send for Heartbeat {}
// SAFETY: as above.
unsafe impl Sync for Heartbeat {}

impl Heartbeat {
    fn new() -> Result<Self> {
        // SAFETY: a fresh anonymous mapping.
        let page = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                4096,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        }
        .context(|| "mapping a page for the heartbeat".to_owned())?;
        let page = NonNull::new(page.cast::<AtomicU32>())
            .ok_or_else(|| Error::Refused("the heartbeat was mapped nowhere".to_owned()))?;
        Ok(Self { page, watcher: 0, has_ended: AtomicBool::new(false) })
    }

    fn count(&self) -> &AtomicU32 {
        // SAFETY: the mapping is as large as a page, aligned, zeroed by the kernel, and lives as
        // long as the process.
        unsafe { self.page.as_ref() }
    }

    /// Whether somebody outside watches still. One that was killed is taken out of the table of
    /// processes, which nobody else would do.
    fn is_watched(&self) -> bool {
        if self.has_ended.load(Ordering::Relaxed) {
            return false;
        }
        let mut status = 0;
        // SAFETY: a plain system call; `status` lives through it. The number is that of a child
        // until it has been waited for, here and nowhere else.
        let ended = unsafe { libc::waitpid(self.watcher, &raw mut status, libc::WNOHANG) };
        self.has_ended.store(ended != 0, Ordering::Relaxed);
        ended == 0
    }
}

/// Starts the process outside, which kills this one when its heartbeat stops, and ends with it. It
/// has no privileges. Call before any thread is started, and before anything is opened that must
/// vanish with this process.
pub fn start_outside() -> Result<Heartbeat> {
    let heartbeat = Heartbeat::new()?;
    let parent = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(parent, rustix::process::PidfdFlags::empty())
        .context(|| "opening a descriptor of this process".to_owned())?;
    // Another process may not be allowed to open it (hidepid). Without it a stopped process is only
    // known by its silence.
    let stat = File::open("/proc/self/stat").ok();
    // SAFETY: the calling process has one thread (see above), so the child may use everything as it
    // finds it.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last_os("starting the process that watches from outside")),
        0 => watch_from_outside(&heartbeat, parent, &pidfd, stat.as_ref()),
        watcher => Ok(Heartbeat { watcher, ..heartbeat }),
    }
}

/// The life of the process outside.
fn watch_from_outside(
    heartbeat: &Heartbeat,
    parent: rustix::process::Pid,
    pidfd: &OwnedFd,
    stat: Option<&File>,
) -> ! {
    let _ = rustix::thread::set_name(c"farlink-watch");
    // What stops or ends the gateway's process group must not stop or end who watches. SIGKILL
    // comes when the parent has ended.
    let _ = rustix::process::setsid();
    // SAFETY: plain system calls with constants.
    unsafe {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let (mut last, mut silent) = (0, 0);
    // To end a process of the same user takes none.
    let _ = caps::keep_none();
    // What it needs is open.
    let _ = confine::Files::default().use_no_others();
    loop {
        std::thread::sleep(TICK);
        if rustix::process::getppid() != Some(parent) {
            exit(0);
        }
        let count = heartbeat.count().load(Ordering::Relaxed);
        silent = if count == last { silent + 1 } else { 0 };
        last = count;
        // It beats from the moment it diverts.
        if count == 0 {
            continue;
        }
        let state = (silent >= STOPPED_TICKS).then(|| state_in(stat?)).flatten();
        let is_stopped = matches!(state, Some(b'T' | b't'));
        if is_stopped || silent >= SILENT_TICKS {
            let why =
                if is_stopped { "was stopped (SIGSTOP, or a debugger)" } else { "gave no sign of life" };
            say(&format!(
                "farlink: the gateway, process {}, {why} while it diverted, so nothing it was sent got through: it is killed, and the \
                 router routes\n",
                parent.as_raw_nonzero()
            ));
            let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
        }
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(status) }
}

/// The letter of a process's state, e.g. `T`: stopped, out of its `stat` in /proc.
fn state_in(stat: &File) -> Option<u8> {
    let mut text = [0; 256];
    let n = stat.read_at(&mut text, 0).ok()?;
    let text = text.get(..n)?;
    // The name in parentheses may contain anything.
    let after = text.iter().rposition(|b| *b == b')')?;
    text.get(after + 2).copied()
}

/// Writes to stderr if that does not have to wait: what hangs may well be the log.
fn say(text: &str) {
    let stderr = std::io::stderr();
    let mut ready = [rustix::event::PollFd::new(&stderr, rustix::event::PollFlags::OUT)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut ready, Some(&now)).is_ok_and(|n| n > 0) {
        // SAFETY: the descriptor is open for the length of this call; it is not closed here.
        let mut file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(stderr.as_raw_fd()) });
        let _ = file.write_all(text.as_bytes());
    }
}

/// The thread that watches the event loop. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    devices: Arc<Mutex<Vec<RawFd>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches a loop that reads from these devices. They must stay open until this is dropped, or
    /// hears of others. `unwatched` is called once if nobody watches from outside any more.
    pub(crate) fn start<'a>(
        pulse: Arc<Pulse>,
        devices: impl Iterator<Item = BorrowedFd<'a>>,
        heartbeat: Option<Arc<Heartbeat>>,
        unwatched: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let devices = Arc::new(Mutex::new(numbers(devices)));
        let watched = Arc::clone(&devices);
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let watch = move || {
            let mut hung = Hung::default();
            let mut unwatched = Some(unwatched);
            while !until.load(Ordering::Relaxed) {
                if let Some(heartbeat) = &heartbeat {
                    heartbeat.count().fetch_add(1, Ordering::Relaxed);
                    if !heartbeat.is_watched()
                        && let Some(tell) = unwatched.take()
                    {
                        tell();
                    }
                }
                let is_answering = pulse.is_answering.load(Ordering::Relaxed);
                if hung.look(pulse.position(), is_answering, || any_waits(&watched)) {
                    say(
                        "farlink: the event loop has stood still for two seconds while packets waited: the gateway ends itself, and \
                         the router routes\n",
                    );
                    exit(HUNG);
                }
                std::thread::park_timeout(TICK);
            }
            // To close many devices takes a busy machine long, and there is nothing to watch.
            if let Some(heartbeat) = &heartbeat {
                heartbeat.count().store(0, Ordering::Relaxed);
            }
        };
        let thread =
            start_thread("watchdog", Priority::Loop, watch).context(|| "starting the watchdog".to_owned())?;
        Ok(Self { devices, stop, thread: Some(thread) })
    }

    /// These are the devices from here on. One that is missing may be closed then.
    pub(crate) fn set_devices<'a>(&self, devices: impl Iterator<Item = BorrowedFd<'a>>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = numbers(devices);
    }
}

fn numbers<'a>(devices: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<RawFd> {
    devices.map(|d| d.as_raw_fd()).collect()
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Whether packets wait in any of these devices.
fn any_waits(devices: &Mutex<Vec<RawFd>>) -> bool {
    let devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: none is closed before the watchdog has ended, or has been told, which waits for this.
    let devices: Vec<_> = devices.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect();
    let mut ready: Vec<_> = devices
        .iter()
        .map(|d| rustix::event::PollFd::from_borrowed_fd(d.as_fd(), rustix::event::PollFlags::IN))
        .collect();
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut ready, Some(&now)).is_ok_and(|n| n > 0)
        && ready.iter().any(|p| p.revents().contains(rustix::event::PollFlags::IN))
}

/// How long the loop has stood still.
#[derive(Debug, Default)]
struct Hung {
    last: Position,
    ticks: u32,
}

impl Hung {
    /// A tick; true when it has stood still for too long.
    fn look(&mut self, position: Position, is_answering: bool, waits: impl FnOnce() -> bool) -> bool {
        if position.is_waiting || position != self.last {
            (self.last, self.ticks) = (position, 0);
            return false;
        }
        self.ticks = self.ticks.saturating_add(1);
        self.ticks >= if is_answering { ANSWERING_TICKS } else { HUNG_TICKS } && waits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many ticks it is taken to hang.
    fn ticks(mut position: impl FnMut(u64) -> (u64, bool), is_answering: bool, waits: bool) -> Option<u64> {
        let mut hung = Hung::default();
        let mut at = |n| {
            let (turns, is_waiting) = position(n);
            Position { turns, is_waiting }
        };
        (1..200).find(|n| hung.look(at(*n), is_answering, || waits))
    }

    #[test]
    fn a_loop_hangs_when_it_neither_turns_nor_waits_and_packets_do() {
        let standing = |_| (7, false);
        assert_eq!(ticks(standing, false, true), Some(9), "the first look sees where it stands");
        assert_eq!(ticks(standing, true, true), Some(41));
        assert_eq!(ticks(standing, false, false), None, "nobody waits for it");
        assert_eq!(ticks(|n| (n, false), false, true), None, "it turns");
        assert_eq!(ticks(|_| (7, true), false, true), None, "it would be woken");
        assert_eq!(ticks(|n| (n / 8, false), false, true), None, "slow is not hung");
    }

    /// Zero: there is nothing to watch. One that beats no more would be killed.
    #[test]
    fn the_heart_is_at_rest_when_the_watch_has_ended() {
        let heartbeat = Arc::new(Heartbeat::new().unwrap());
        let beats = || heartbeat.count().load(Ordering::Relaxed);
        let pulse = Arc::new(Pulse::new(0));
        let watchdog =
            Watchdog::start(pulse, std::iter::empty(), Some(Arc::clone(&heartbeat)), || ()).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while beats() == 0 {
            assert!(std::time::Instant::now() < until, "it beats");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(watchdog);
        assert_eq!(beats(), 0);
    }

    #[test]
    fn the_state_of_a_process_is_read() {
        let stat = File::open("/proc/self/stat").unwrap();
        assert!(matches!(state_in(&stat), Some(b'R' | b'S')));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = File::open(format!("/proc/{}/stat", other.id())).unwrap();
        let pid = rustix::process::Pid::from_child(&other);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while state_in(&stat) != Some(b'T') {
            assert!(std::time::Instant::now() < until, "{:?}", state_in(&stat));
            std::thread::sleep(Duration::from_millis(5));
        }
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(state_in(&stat), None, "it is gone");
    }
}
