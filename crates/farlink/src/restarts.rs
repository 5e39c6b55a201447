//! A gateway that ends again and again begins later each time, whoever starts it again: meanwhile
//! the router routes. systemd before 254 has no such delay, and a limit of starts would leave a
//! gateway down for good.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A run that lasts as long as this is no failure, however it ends.
const LASTS: Duration = Duration::from_secs(60);
/// So many short runs in a row are followed at once by the next.
const AT_ONCE: u32 = 5;
/// The longest delay. systemd waits 90 s for a start.
const DELAY_MAX: Duration = Duration::from_secs(30);
/// The file is a line.
const FILE_BYTES_MAX: u64 = 64;

/// Starts that were followed by a short run, kept in a file beside the socket.
pub struct Restarts {
    file: PathBuf,
    short_runs: u32,
}

impl Restarts {
    /// What earlier runs have left. Nothing where the file cannot be read.
    pub fn read(socket: &Path) -> Self {
        let file = socket.with_extension("starts");
        let short_runs = read(&file).map_or(0, |(runs, began_s)| after(runs, began_s, uptime_s()));
        Self { file, short_runs }
    }

    /// How long this start is put off, and for how many short runs.
    pub fn delay(&self) -> Option<(Duration, u32)> {
        Some((delay_after(self.short_runs), self.short_runs)).filter(|(delay, _)| !delay.is_zero())
    }

    /// The run begins.
    pub fn begin(&self) {
        // Without the file the next start is not put off.
        let _ = self.write();
    }

    fn write(&self) -> std::io::Result<()> {
        let _ = fs::remove_file(&self.file);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file)?;
        writeln!(file, "{} {}", self.short_runs, uptime_s())
    }

    /// The run has ended in order.
    pub fn end(&self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// Short runs so far, and when the last run began, in seconds of uptime.
fn read(file: &Path) -> Option<(u32, u64)> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file).ok()?;
    let mut text = String::new();
    File::take(file, FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let (runs, began_s) = text.trim().split_once(' ')?;
    Some((runs.parse().ok()?, began_s.parse().ok()?))
}

/// Short runs in a row, with the one that began then and has ended now.
fn after(runs: u32, began_s: u64, now_s: u64) -> u32 {
    match now_s.checked_sub(began_s) {
        Some(lasted) if lasted < LASTS.as_secs() => runs.saturating_add(1),
        // Or the machine has started meanwhile.
        _ => 0,
    }
}

fn delay_after(short_runs: u32) -> Duration {
    match short_runs.checked_sub(AT_ONCE) {
        None | Some(0) => Duration::ZERO,
        Some(n) => Duration::from_secs(1_u64 << n.min(6)).min(DELAY_MAX),
    }
}

fn uptime_s() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_runs_follow_at_once_and_then_later_each_time() {
        let seconds = (0..14).map(|runs| delay_after(runs).as_secs());
        assert_eq!(seconds.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 2, 4, 8, 16, 30, 30, 30, 30]);
        assert_eq!(delay_after(u32::MAX), DELAY_MAX);
        assert_eq!((after(4, 1000, 1059), after(4, 1000, 1060)), (5, 0), "one that lasts ends the row");
        assert_eq!((after(4, 1000, 999), after(u32::MAX, 5, 5)), (0, u32::MAX), "another uptime");
    }

    #[test]
    fn starts_are_counted_until_a_run_ends_in_order() {
        let directory = std::env::temp_dir().join(format!("farlink-starts-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("farlink.sock");
        for run in 0..8 {
            let restarts = Restarts::read(&socket);
            assert_eq!(restarts.short_runs, run);
            assert_eq!(restarts.delay().is_some(), run > AT_ONCE);
            restarts.begin();
        }
        Restarts::read(&socket).end();
        assert_eq!(Restarts::read(&socket).short_runs, 0);
        for nonsense in ["", "1", "x y", "-1 5", "99999999999999999999 1"] {
            fs::write(socket.with_extension("starts"), nonsense).unwrap();
            assert_eq!(Restarts::read(&socket).short_runs, 0, "{nonsense}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
