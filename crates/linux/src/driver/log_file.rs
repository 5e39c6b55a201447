//! A file that lines are added to, and that others may move away (logrotate), or standard error.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// How often to look whether the file is still the one of this name.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The group may read it: addresses of hosts are nobody else's.
const MODE: u32 = 0o640;

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error: under systemd, the journal.
    Stderr,
    /// A file, made where there is none.
    File(PathBuf),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A file of this name, whichever that is by now.
#[derive(Debug)]
pub(super) struct LogFile {
    path: Option<PathBuf>,
    /// `None`: standard error, or a file that could not be opened when it was tried last.
    file: Option<File>,
    looked_at: Instant,
}

impl LogFile {
    pub(super) fn open(target: LogTarget) -> io::Result<Self> {
        let path = match target {
            LogTarget::Stderr => None,
            LogTarget::File(path) => Some(path),
        };
        let file = path.as_deref().map(append_to).transpose()?;
        Ok(Self { path, file, looked_at: Instant::now() })
    }
}

/// Opens it without waiting: a FIFO that nobody reads would hold up the start for ever.
fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::new(error.kind(), "it is a FIFO that nobody reads"),
        _ => error,
    })?;
    // A thread writes, which may wait for a reader.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Whether the file is the one that has this name.
fn is_there(file: &File, path: &Path) -> bool {
    let of = |m: io::Result<std::fs::Metadata>| m.ok().map(|m| (m.dev(), m.ino()));
    of(file.metadata()) == of(std::fs::metadata(path))
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(path) = &self.path else { return io::stderr().write(bytes) };
        let is_time = self.looked_at.elapsed() >= LOOK_EVERY;
        if is_time {
            self.looked_at = Instant::now();
            if !self.file.as_ref().is_some_and(|file| is_there(file, path)) {
                self.file = append_to(path).ok();
            }
        }
        let closed = || io::Error::new(io::ErrorKind::NotFound, "the file cannot be opened");
        self.file.as_mut().ok_or_else(closed)?.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let directory = std::env::temp_dir().join(format!("farlink-log-file-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("connections.log");
        let mut file = LogFile::open(LogTarget::File(path.clone())).unwrap();
        file.write_all(b"one\n").unwrap();
        let moved = directory.join("connections.log.1");
        std::fs::rename(&path, &moved).unwrap();
        file.looked_at -= LOOK_EVERY;
        file.write_all(b"two\n").unwrap();
        let of = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((of(&moved).as_str(), of(&path).as_str()), ("one\n", "two\n"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777 & !MODE, 0);
        // Its directory goes away, and comes back.
        std::fs::remove_dir_all(&directory).unwrap();
        file.looked_at -= LOOK_EVERY;
        assert!(file.write_all(b"three\n").is_err());
        std::fs::create_dir_all(&directory).unwrap();
        file.looked_at -= LOOK_EVERY;
        file.write_all(b"four\n").unwrap();
        assert_eq!(of(&path), "four\n");
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(LogFile::open(LogTarget::File(path)).is_err(), "the start says so");
    }

    /// Opens a FIFO in a thread of its own, and says what came of it within two seconds.
    fn opened(path: &Path) -> Result<LogFile, String> {
        let (tell, told) = std::sync::mpsc::channel();
        let target = LogTarget::File(path.to_owned());
        std::thread::spawn(move || tell.send(LogFile::open(target)));
        told.recv_timeout(Duration::from_secs(2)).expect("it waits").map_err(|error| error.to_string())
    }

    #[test]
    fn a_fifo_that_nobody_reads_is_refused_and_nobody_waits_for_it() {
        use std::io::Read;
        let directory = std::env::temp_dir().join(format!("farlink-log-fifo-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("connections.log");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert_eq!(opened(&path).err().unwrap(), "it is a FIFO that nobody reads");
        // With a reader it is as good as a file.
        let reading = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let mut file = opened(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        let mut line = [0; 4];
        (&reading).read_exact(&mut line).unwrap();
        assert_eq!(&line, b"one\n");
        assert!(!fcntl_getfl(file.file.as_ref().unwrap()).unwrap().contains(OFlags::NONBLOCK));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
