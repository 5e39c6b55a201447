//! The end of commands that run until they are told: a signal asks, they look.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set by SIGTERM, SIGINT and SIGHUP.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on these signals ask for the end instead of being it.
pub fn on_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler stores into an atomic, which is allowed in one.
        unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    }
}

/// Whether one came.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
