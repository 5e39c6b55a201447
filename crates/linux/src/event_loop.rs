//! Waiting: for descriptors, for a time (precise to microseconds), for signals.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use farlink_wire::Instant;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock;
use crate::error::{Context, Error, Result};

/// Events taken in one wait.
const EVENTS_MAX: usize = 64;
/// Above this, a wait is split: the kernel allows itself to be late by 0.1 % of a wait
/// (select_estimate_accuracy), so the last hundredth is waited for separately.
const SPLIT_ABOVE_NS: u64 = 2_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// The calling thread's timers fire when they are due, not up to 50 us later (PR_SET_TIMERSLACK).
pub fn precise_timers() {
    // Cannot fail for the own thread; and if it did, waits would be less precise, no more.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// What a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Read,
    /// Something to read, or room to write.
    ReadWrite,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token it was registered under.
    pub token: u64,
    /// There is something to read (or the other end is gone).
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

/// A time as epoll_pwait2 reads it (`__kernel_timespec`): 64 bits twice with every processor. That
/// of the C library is smaller with some of 32 bits.
#[repr(C)]
struct KernelTimespec {
    tv_sec: i64,
    tv_nsec: i64,
}

/// What the kernel fills in.
type Events = [MaybeUninit<libc::epoll_event>; EVENTS_MAX];

/// The token of the timer. Descriptors cannot have it.
const TIMER: u64 = u64::MAX / 2;

/// An epoll instance.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    /// Where the kernel has no epoll_pwait2 (before Linux 5.11): epoll_wait counts milliseconds.
    timer: Option<OwnedFd>,
    ready: Vec<Ready>,
}

impl Poller {
    /// A new one. Also makes the calling thread's timers precise.
    pub fn new() -> Result<Self> {
        precise_timers();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context(|| "creating an epoll".to_owned())?;
        Ok(Self { epoll, timer: None, ready: Vec::new() })
    }

    /// Waits for this descriptor from now on (level-triggered).
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        if token == TIMER {
            return Err(Error::Refused(format!("the token {TIMER} is that of the timer")));
        }
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags(interest))
            .context(|| "adding to an epoll".to_owned())
    }

    /// Changes what is waited for.
    pub fn change(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags(interest))
            .context(|| "changing an epoll".to_owned())
    }

    /// No longer waits for this descriptor.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        epoll::delete(&self.epoll, fd).context(|| "removing from an epoll".to_owned())
    }

    /// Waits until a descriptor is ready or `deadline` has come (`None`: for ever). A deadline in
    /// the past only looks. Empty when the deadline has come, or a signal without a descriptor
    /// interrupted.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<&[Ready]> {
        self.ready.clear();
        loop {
            let mut is_last = true;
            let timeout = deadline.map(|deadline| {
                let left = deadline.as_nanos().saturating_sub(clock::now().as_nanos());
                if left > SPLIT_ABOVE_NS {
                    is_last = false;
                    left - left / 100
                } else {
                    left
                }
            });
            self.wait_once(timeout)?;
            if is_last || !self.ready.is_empty() {
                return Ok(&self.ready);
            }
        }
    }

    fn wait_once(&mut self, timeout_ns: Option<u64>) -> Result<()> {
        let mut events: Events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let mut waited = match &self.timer {
            Some(timer) => wait_with_timer(&self.epoll, timer, &mut events, timeout_ns),
            None => wait_precisely(&self.epoll, &mut events, timeout_ns),
        };
        if self.timer.is_none() && waited == Err(Errno::NOSYS) {
            let timer = self.timer.insert(timer_in(&self.epoll)?);
            waited = wait_with_timer(&self.epoll, timer, &mut events, timeout_ns);
        }
        let n = match waited {
            Ok(n) => n,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).context(|| "waiting".to_owned()),
        };
        for event in events.iter().take(n) {
            // SAFETY: the kernel has filled in the first n.
            let event = unsafe { event.assume_init_read() };
            if event.u64 == TIMER {
                continue;
            }
            let bits = event.events;
            let any = |mask: i32| bits & mask.cast_unsigned() != 0;
            self.ready.push(Ready {
                token: event.u64,
                readable: any(libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR),
                writable: any(libc::EPOLLOUT),
            });
        }
        Ok(())
    }
}

/// Waits for as long, to the nanosecond. Returns how many events there are.
fn wait_precisely(
    epoll: &OwnedFd,
    events: &mut Events,
    timeout_ns: Option<u64>,
) -> rustix::io::Result<usize> {
    let timeout = timeout_ns.map(|ns| KernelTimespec {
        tv_sec: (ns / NS_PER_S).cast_signed(),
        tv_nsec: (ns % NS_PER_S).cast_signed(),
    });
    let pointer = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: epoll_pwait2 writes at most EVENTS_MAX events and reads the time, both alive through
    // the call.
    let n = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            EVENTS_MAX as libc::c_int,
            pointer,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    usize::try_from(n).map_err(|_| last_error())
}

/// The same by a timer that is one of the descriptors.
fn wait_with_timer(
    epoll: &OwnedFd,
    timer: &OwnedFd,
    events: &mut Events,
    timeout_ns: Option<u64>,
) -> rustix::io::Result<usize> {
    // All zero disarms it.
    let ns = timeout_ns.unwrap_or(0);
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value =
        Timespec { tv_sec: (ns / NS_PER_S).cast_signed(), tv_nsec: (ns % NS_PER_S).cast_signed() as _ };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
    let timeout_ms = if timeout_ns == Some(0) { 0 } else { -1 };
    // SAFETY: epoll_wait writes at most EVENTS_MAX events, which are alive through the call.
    let n = unsafe {
        libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr().cast(), EVENTS_MAX as libc::c_int, timeout_ms)
    };
    usize::try_from(n).map_err(|_| last_error())
}

/// A timer among the descriptors of the epoll instance.
fn timer_in(epoll: &OwnedFd) -> Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).context(|| "making a timer".to_owned())?;
    epoll::add(epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)
        .context(|| "adding a timer to an epoll".to_owned())?;
    Ok(timer)
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Read => epoll::EventFlags::IN,
        Interest::ReadWrite => epoll::EventFlags::IN | epoll::EventFlags::OUT,
    }
}

/// Signals as a descriptor. Make it before any thread is started: threads inherit that these
/// signals are blocked.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Takes these signals (SIGTERM, SIGINT, ...) for the descriptor; they no longer act by
    /// themselves.
    pub fn take(signals: &[i32]) -> Result<Self> {
        // SAFETY: sigset_t is plain data; the calls write and read it while it lives.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
                return Err(Error::last_os("blocking signals"));
            }
            libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(Error::last_os("opening a signal descriptor"));
        }
        // SAFETY: the descriptor is fresh and owned by nobody else.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next signal that has come, if any.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut info)) {
            Ok(n) if n == info.len() => {
                Some(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]).cast_signed())
            }
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Wakes a [`Poller`] of another thread.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
    /// It is readable, or was and is about to be looked at: many wake it at once for one system
    /// call.
    is_set: AtomicBool,
}

impl Waker {
    /// A new one.
    pub fn new() -> Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let fd = rustix::event::eventfd(0, flags).context(|| "creating an eventfd".to_owned())?;
        Ok(Self { fd, is_set: AtomicBool::new(false) })
    }
    /// Makes it readable. What it is woken for is there before.
    pub fn wake(&self) {
        if self.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        // EAGAIN means that it is readable already, up to the counter's end.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
    /// Makes it unreadable again. What it was woken for is looked at after this.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        match rustix::io::read(&self.fd, &mut count) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) | Err(_) => {}
        }
        self.is_set.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::Duration;

    fn waits(mut poller: Poller) {
        let waker = Waker::new().unwrap();
        poller.add(&waker, 7, Interest::Read).unwrap();
        for ms in [0u64, 1, 5] {
            let deadline = clock::now() + Duration::from_millis(ms);
            assert_eq!(poller.wait(Some(deadline)).unwrap(), &[]);
            assert!(clock::now() >= deadline, "{ms} ms");
        }
        waker.wake();
        waker.wake();
        let ready = poller.wait(None).unwrap().to_vec();
        assert_eq!(ready, [Ready { token: 7, readable: true, writable: false }]);
        waker.clear();
        assert_eq!(poller.wait(Some(Instant::ZERO)).unwrap(), &[]);
        // A deadline of before is over.
        waker.wake();
        let deadline = clock::now() + Duration::from_millis(50);
        assert_eq!(poller.wait(Some(deadline)).unwrap().len(), 1);
        waker.clear();
        assert_eq!(poller.wait(Some(clock::now() + Duration::from_millis(2))).unwrap(), &[]);
    }

    #[test]
    fn a_deadline_is_never_early_and_a_waker_wakes() {
        waits(Poller::new().unwrap());
    }

    #[test]
    fn every_token_but_the_timer_s_is_told() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(poller.add(&waker, TIMER, Interest::Read).is_err());
        for token in [0, 1, TIMER - 1, TIMER + 1, u64::MAX] {
            poller.add(&waker, token, Interest::Read).unwrap();
            assert_eq!(poller.wait(None).unwrap().first().map(|ready| ready.token), Some(token));
            poller.remove(&waker).unwrap();
        }
    }

    #[test]
    fn a_kernel_without_precise_waits_has_timers() {
        let mut poller = Poller::new().unwrap();
        poller.timer = Some(timer_in(&poller.epoll).unwrap());
        waits(poller);
    }
}
