//! Which system calls a thread makes, seen by ptrace(2).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A system call: its number, and what the descriptor is where that matters.
pub type Calls = BTreeMap<(i64, String), u64>;

/// Stops of system calls carry this bit beside SIGTRAP (PTRACE_O_TRACESYSGOOD).
const SYSTEM_CALL_STOP: i32 = libc::SIGTRAP | 0x80;
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const ENTRY: u8 = 1;

/// `struct ptrace_syscall_info`, as far as it is the same with every processor.
#[repr(C)]
#[derive(Default)]
struct Info {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    nr: u64,
    args: [u64; 6],
    more: [u64; 2],
}

/// Those of this thread within some time.
pub fn of_thread(thread: i32, time: Duration) -> Calls {
    let trace = |request, data: i64| {
        // SAFETY: a plain system call about another thread; nothing is written here.
        unsafe { libc::ptrace(request, thread, std::ptr::null_mut::<libc::c_void>(), data) }
    };
    assert_eq!(trace(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACESYSGOOD.into()), 0, "it can be traced");
    assert_eq!(trace(libc::PTRACE_INTERRUPT, 0), 0);
    let (mut calls, until) = (Calls::new(), Instant::now() + time);
    loop {
        let mut status = 0;
        // SAFETY: the status lives through the call.
        let of = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        assert!(of == thread && libc::WIFSTOPPED(status), "it lives");
        let signal = libc::WSTOPSIG(status);
        if signal == SYSTEM_CALL_STOP {
            let mut info = Info::default();
            // SAFETY: the kernel writes at most as much as the size says.
            let n = unsafe { libc::ptrace(GET_SYSCALL_INFO, thread, size_of::<Info>(), &raw mut info) };
            assert!(n > 0, "{}", std::io::Error::last_os_error());
            if info.op == ENTRY {
                *calls.entry((info.nr as i64, what(thread, &info))).or_default() += 1;
            }
            if Instant::now() >= until {
                trace(libc::PTRACE_DETACH, 0);
                return calls;
            }
        }
        let is_signal = status >> 16 == 0 && signal != SYSTEM_CALL_STOP;
        trace(libc::PTRACE_SYSCALL, if is_signal { signal.into() } else { 0 });
    }
}

/// What is read or written, where it is not a device.
fn what(thread: i32, info: &Info) -> String {
    if ![libc::SYS_read, libc::SYS_write].contains(&(info.nr as i64)) {
        return String::new();
    }
    let link = std::fs::read_link(format!("/proc/{thread}/fd/{}", info.args[0]));
    link.map_or_else(|error| error.to_string(), |to| to.to_string_lossy().into_owned())
}
