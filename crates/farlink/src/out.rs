//! Standard output, whose reader may go away (`farlink flows | head -1`) or whose file may be full.
//!
//! `print!` panics then. Here what can no longer be written is dropped, so that whatever is being
//! done is done to its end, and [`finish`] says so: a reader that has enough is no failure,
//! everything else is.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;

/// Why nothing more is written.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes unless an earlier write has failed.
pub fn write(text: Arguments<'_>) {
    let Ok(mut failed) = FAILED.lock() else { return };
    if failed.is_none() {
        let mut out = io::stdout().lock();
        *failed = out.write_fmt(text).and_then(|()| out.flush()).err();
    }
}

/// Whether what is written still goes somewhere.
pub fn is_open() -> bool {
    FAILED.lock().is_ok_and(|failed| failed.is_none())
}

/// One message on standard error; `eprintln!` would panic where nobody reads it.
pub fn complain(wrong: &str) {
    let _ = writeln!(io::stderr(), "farlink: {wrong}");
}

/// The exit status of a command that ends with `code`.
pub fn finish(code: ExitCode) -> ExitCode {
    match FAILED.lock().ok().and_then(|mut failed| failed.take()) {
        Some(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("standard output cannot be written: {e}"));
            ExitCode::FAILURE
        }
        _ => code,
    }
}

/// As `print!`, without its panic.
macro_rules! out {
    ($($argument:tt)*) => { $crate::out::write(format_args!($($argument)*)) };
}
/// As `println!`, without its panic.
macro_rules! outln {
    ($($argument:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($argument)*))) };
}
pub(crate) use {out, outln};
