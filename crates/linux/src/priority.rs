//! Scheduling priority of the daemon's threads: the event loop, and those that packets or a
//! supervisor wait for, are above other programs. All else that the daemon does is not.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rustix::process::{getpriority_process, setpriority_process};

/// nice(2) of the event loop: ahead of programs that compute, by shares. A real-time class would
/// keep the kernel's own threads from a packet's next step.
pub const LOOP_NICE: i32 = -15;

/// Scheduling priority of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// That of the event loop: packets wait for it, or somebody who ends the daemon when it is
    /// late.
    Loop,
    /// That of other programs, a nice value of 0.
    Normal,
}

/// The calling thread, and threads that it starts with [`Priority::Loop`], have the priority of the
/// loop from here on. Not where the daemon has been given a nice value, nor without the privilege
/// (CAP_SYS_NICE). Call before privileges are given up.
pub fn raise() {
    if getpriority_process(None) == Ok(0) {
        let _ = setpriority_process(None, LOOP_NICE);
    }
}

/// Starts a thread of the daemon.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    priority: Priority,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(with_priority(priority, work))
}

/// The same within a scope.
pub fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    priority: Priority,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, with_priority(priority, work))
}

fn with_priority<T>(priority: Priority, work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    move || {
        if priority == Priority::Normal {
            lower();
        }
        work()
    }
}

/// The calling thread has the priority of other programs.
fn lower() {
    if getpriority_process(None).is_ok_and(|nice| nice < 0) {
        // To lower it needs no privilege.
        let _ = setpriority_process(None, 0);
    }
}
