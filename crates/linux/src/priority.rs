//! Who goes first where the processor is short: the event loop, and those that packets or a
//! supervisor wait for. Everything else that the daemon does takes its turn like other programs.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rustix::process::{getpriority_process, setpriority_process};

/// nice(2) of the event loop: ahead of programs that compute, by shares. A real-time class would
/// keep the kernel's own threads from a packet's next step.
pub const LOOP_NICE: i32 = -15;

/// When a thread gets the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// With the event loop: packets wait for it, or somebody who ends the daemon when it is late.
    Loop,
    /// With other programs.
    Usual,
}

/// The calling thread, and threads that it starts with [`Rank::Loop`], go first from here on. Not
/// where somebody has said which nice value the daemon has, and not where this needs a privilege
/// (CAP_SYS_NICE) that it does not have. Call before privileges are given up. Returns whether it
/// goes first.
pub fn go_first() -> bool {
    match getpriority_process(None) {
        Ok(0) => setpriority_process(None, LOOP_NICE).is_ok(),
        nice => nice.is_ok_and(|nice| nice < 0),
    }
}

/// Starts a thread of the daemon.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    rank: Rank,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(of_rank(rank, work))
}

/// The same within a scope.
pub fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    rank: Rank,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, of_rank(rank, work))
}

fn of_rank<T>(rank: Rank, work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    move || {
        if rank == Rank::Usual {
            give_way();
        }
        work()
    }
}

/// The calling thread goes first no longer.
fn give_way() {
    if getpriority_process(None).is_ok_and(|nice| nice < 0) {
        // To give way needs no privilege.
        let _ = setpriority_process(None, 0);
    }
}
