//! ^C and SIGTERM while namespaces stand: everything is removed, then the program ends.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::process::Recorded;
use crate::state::State;

/// Removes the laboratories of this program.
pub fn remove_laboratories() {
    let me = Recorded::myself();
    for state in State::all().into_iter().filter(|s| s.owner.as_ref() == Some(&me)) {
        if let Err(error) = state.take_down() {
            eprintln!("{error:#}");
        }
    }
}

/// The writing end of the pipe that wakes the clearing thread.
static WAKE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: write() is allowed in a signal handler; one byte of a live variable.
    unsafe { libc::write(WAKE.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// From now on an interrupt calls `remove`, in a thread of its own, and ends the program with
/// status 128 + signal. Handlers, unlike a signal mask, are not inherited by what the program
/// starts.
pub fn install(remove: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut ends = [0; 2];
    // SAFETY: an array of two descriptors, as pipe2 wants.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    WAKE.store(ends[1], Ordering::Relaxed);
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        let mut signal = 0u8;
        // SAFETY: one byte into a live variable.
        while unsafe { libc::read(ends[0], (&raw mut signal).cast(), 1) } != 1 {}
        eprintln!("\ninterrupted: removing namespaces and what runs in them");
        remove();
        std::process::exit(128 + i32::from(signal));
    })?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler only does what is allowed in one.
        unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
    }
    Ok(())
}
