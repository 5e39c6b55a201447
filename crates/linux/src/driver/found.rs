//! What has been found of links, in a small file that outlives the process and the machine's
//! restart: a few lines of JSON for each link, with the time at which it was found by the calendar.
//!
//! So is what has been carried for budgets of bytes.
//!
//! What is found is a first guess for the next run. So nothing depends on it: without the file,
//! with one that is damaged, and on a full disk the gateway does as if nothing had been found, and
//! says so once. A thread writes, seldom, into a new file that takes the old one's place.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use farlink_gateway::{Found, FoundRate, Gateway};
use farlink_wire::{Duration, Instant};
use serde::{Deserialize, Serialize};

use super::budgets::{self, Used};
use super::calendar::now_s;
use crate::priority::{Priority, start_thread};

/// How often it is looked whether something is new.
const LOOK_EVERY: Duration = Duration::from_secs(300);
/// A rate is new when it differs by more than this part (one over it),
const NEWS_PARTS: u64 = 16;
/// or is confirmed so much later: it is no reason to write a flash memory every few minutes.
const NEWS_SECONDS: u64 = 3_600;
/// What is used of a budget is new when it has grown by more than this part (one over it).
const USED_NEWS_PARTS: u64 = 64;
/// No file is larger, bytes.
const FILE_MAX: u64 = 256 << 10;
/// How long the last writing may take.
const END_MAX: Duration = Duration::from_secs(1);
/// The file of another version says nothing.
const VERSION: u32 = 1;
/// Whoever may read the configuration may read this.
const MODE: u32 = 0o640;

/// The file, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    links: Vec<KeptLink>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    budgets: Vec<KeptUse>,
}

/// What has been carried for a budget in the period of this time, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptUse {
    name: String,
    interface: String,
    used_bytes: u64,
    counted_at_s: u64,
}

impl KeptUse {
    fn is_news_after(&self, before: &Self) -> bool {
        (&self.name, &self.interface) != (&before.name, &before.interface)
            || self.used_bytes.abs_diff(before.used_bytes) > before.used_bytes / USED_NEWS_PARTS
            || (self.used_bytes != before.used_bytes
                && self.counted_at_s.abs_diff(before.counted_at_s) > NEWS_SECONDS)
    }
}

/// All that is to be kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// What has been found of links.
    pub found: Vec<Found>,
    /// What has been carried for budgets.
    pub used: Vec<Used>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptLink {
    name: String,
    interface: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate_max_bps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<KeptRate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rtt_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate_in: Option<KeptRate>,
}

/// A rate, and when it was found, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptRate {
    bps: u64,
    found_at_s: u64,
}

impl KeptRate {
    fn of(rate: FoundRate, now_s: u64) -> Self {
        Self { bps: rate.bps, found_at_s: now_s.saturating_sub(rate.age.as_secs()) }
    }

    /// `None`: found in the future. The calendar has been set back, and nobody knows how old it is.
    fn read(self, now_s: u64) -> Option<FoundRate> {
        let age = Duration::from_secs(now_s.checked_sub(self.found_at_s)?);
        Some(FoundRate { bps: self.bps, age })
    }

    fn is_news_after(&self, before: &Self) -> bool {
        self.bps.abs_diff(before.bps) > before.bps / NEWS_PARTS
            || self.found_at_s.abs_diff(before.found_at_s) > NEWS_SECONDS
    }
}

fn is_news(now: Option<KeptRate>, before: Option<KeptRate>) -> bool {
    match (now, before) {
        (Some(now), Some(before)) => now.is_news_after(&before),
        (now, before) => now.is_some() != before.is_some(),
    }
}

impl Known {
    /// What this gateway knows.
    pub(super) fn of(gateway: &Gateway, now: Instant) -> Self {
        Self { found: gateway.found(now), used: budgets::used(gateway) }
    }
}

impl Kept {
    fn of(Known { found, used }: Known, now_s: u64) -> Self {
        let budget = |used: Used| KeptUse {
            name: used.link,
            interface: used.interface,
            used_bytes: used.bytes,
            counted_at_s: used.counted_at_s,
        };
        let link = |found: Found| KeptLink {
            name: found.link,
            interface: found.interface,
            rate_max_bps: found.rate_max_bps,
            rate: found.rate.map(|rate| KeptRate::of(rate, now_s)),
            rtt_us: found.rtt.and_then(|rtt| u64::try_from(rtt.as_micros()).ok()),
            rate_in: found.rate_in.map(|rate| KeptRate::of(rate, now_s)),
        };
        Self {
            version: VERSION,
            links: found.into_iter().map(link).collect(),
            budgets: used.into_iter().map(budget).collect(),
        }
    }

    fn known(self, now_s: u64) -> Known {
        let link = |kept: KeptLink| Found {
            link: kept.name,
            interface: kept.interface,
            rate_max_bps: kept.rate_max_bps,
            rate: kept.rate.and_then(|rate| rate.read(now_s)),
            rtt: kept.rtt_us.map(Duration::from_micros),
            rate_in: kept.rate_in.and_then(|rate| rate.read(now_s)),
        };
        let used = |kept: KeptUse| Used {
            link: kept.name,
            interface: kept.interface,
            bytes: kept.used_bytes,
            counted_at_s: kept.counted_at_s,
        };
        Known {
            found: self.links.into_iter().map(link).collect(),
            used: self.budgets.into_iter().map(used).collect(),
        }
    }

    /// It is worth to be written where that was written last.
    fn is_news_after(&self, before: &Self) -> bool {
        let differs = |now: &KeptLink, before: &KeptLink| {
            (&now.name, &now.interface, now.rate_max_bps)
                != (&before.name, &before.interface, before.rate_max_bps)
                || is_news(now.rate, before.rate)
                || is_news(now.rate_in, before.rate_in)
        };
        let is_used = |(now, before): (&KeptUse, &KeptUse)| now.is_news_after(before);
        self.links.len() != before.links.len()
            || self.budgets.len() != before.budgets.len()
            || self.budgets.iter().zip(&before.budgets).any(is_used)
            || self.links.iter().zip(&before.links).any(|(now, before)| differs(now, before))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let mut text = String::new();
        // Whatever stands there: one that has to be waited for says nothing.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        file.take(FILE_MAX).read_to_string(&mut text)?;
        let kept: Self = serde_json::from_str(&text)?;
        match kept.version {
            VERSION => Ok(kept),
            other => Err(io::Error::other(format!("version {other} is not known"))),
        }
    }

    /// The old file, or this one, is there at any moment.
    fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let written = self.write_to(Path::new(&new)).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()
    }
}

/// The file, and the thread that writes it. It is started with the first writing.
#[derive(Debug)]
pub(super) struct FoundFile {
    path: PathBuf,
    /// What stands in it, as far as is known here.
    written: Kept,
    look_at: Instant,
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    orders: SyncSender<Kept>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl FoundFile {
    /// What an earlier run has left there, and how it goes on. A file that cannot be read says
    /// nothing.
    pub(super) fn open(path: &Path, now: Instant) -> (Self, Known) {
        let written = match Kept::read(path) {
            Ok(kept) => kept,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(
                        file = %path.display(),
                        %error,
                        "what earlier runs have found of links cannot be read: it is found anew"
                    );
                }
                Kept { version: VERSION, ..Kept::default() }
            }
        };
        let known = written.clone().known(now_s());
        let file = Self { path: path.to_owned(), written, look_at: now + LOOK_EVERY, writer: None };
        (file, known)
    }

    /// When it is looked next whether something is new.
    pub(super) fn due(&self) -> Instant {
        self.look_at
    }

    /// Time may have come. `known`: all that is.
    pub(super) fn attend(&mut self, now: Instant, known: impl FnOnce() -> Known) {
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.write(known());
        }
    }

    fn write(&mut self, known: Known) {
        let kept = Kept::of(known, now_s());
        if !kept.is_news_after(&self.written) {
            return;
        }
        if self.writer.is_none() {
            self.writer = Writer::start(self.path.clone()).ok();
        }
        // One that still writes gets it the next time.
        if self.writer.as_ref().is_some_and(|writer| writer.order(kept.clone())) {
            self.written = kept;
        }
    }

    /// The last words, which are waited for, but not for long.
    pub(super) fn end(mut self, known: Known) {
        self.write(known);
        if let Some(Writer { orders, ended }) = self.writer.take() {
            drop(orders);
            let _ = ended.recv_timeout(END_MAX);
        }
    }
}

impl Writer {
    fn start(path: PathBuf) -> io::Result<Self> {
        let (orders, heard) = sync_channel::<Kept>(1);
        let (ends, ended) = sync_channel::<()>(0);
        let write = move || {
            let mut fails = false;
            for kept in heard {
                let outcome = kept.write(&path);
                if let Err(error) = &outcome
                    && !fails
                {
                    tracing::warn!(
                        file = %path.display(),
                        %error,
                        "what is found of links cannot be kept for the next start"
                    );
                }
                fails = outcome.is_err();
            }
            drop(ends);
        };
        start_thread("found", Priority::Normal, write)?;
        Ok(Self { orders, ended })
    }

    fn order(&self, kept: Kept) -> bool {
        !matches!(self.orders.try_send(kept), Err(TrySendError::Full(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("farlink-found-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn rate(bps: u64, age_s: u64) -> Option<FoundRate> {
        Some(FoundRate { bps, age: Duration::from_secs(age_s) })
    }

    fn all() -> Known {
        Known { found: found(), used: vec![used(5_000_000)] }
    }

    fn used(bytes: u64) -> Used {
        Used { link: "geo".into(), interface: "sat0".into(), bytes, counted_at_s: NOW_S }
    }

    fn found() -> Vec<Found> {
        let geo = Found {
            link: "geo".into(),
            interface: "sat0".into(),
            rate_max_bps: Some(20_000_000),
            rate: rate(7_960_000, 60),
            rtt: Some(Duration::from_millis(512)),
            rate_in: None,
        };
        let other =
            Found { link: "lte".into(), rate: None, rtt: None, rate_in: rate(32_000, 7_200), ..geo.clone() };
        vec![geo, other]
    }

    #[test]
    fn what_is_written_is_read_again_and_is_older_by_then() {
        let directory = directory("again");
        let path = directory.join("deeper").join("found.json");
        Kept::of(all(), NOW_S).write(&path).unwrap();
        let read = Kept::read(&path).unwrap();
        assert_eq!(read.clone().known(NOW_S).found, found());
        assert_eq!(read.clone().known(NOW_S).used, [used(5_000_000)]);
        let later = read.clone().known(NOW_S + 100).found;
        assert_eq!((later[0].rate, later[1].rate_in), (rate(7_960_000, 160), rate(32_000, 7_300)));
        let set_back = read.known(NOW_S - 61).found;
        assert_eq!((set_back[0].rate, set_back[1].rate_in), (None, rate(32_000, 7_139)));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no other file is left");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_damaged_or_missing_says_nothing() {
        let directory = directory("damaged");
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("found.json");
        let whole = serde_json::to_string(&Kept::of(all(), NOW_S)).unwrap();
        let other = whole.replace("\"version\":1", "\"version\":2");
        let half = whole[..whole.len() / 2].to_owned();
        for text in ["", "{}", "[1]", "\u{0}\u{0}", &half, &other, &"x".repeat(1 << 20)] {
            fs::write(&path, text).unwrap();
            let (file, found) = FoundFile::open(&path, Instant::ZERO);
            assert!(found.found.is_empty() && file.written.links.is_empty(), "{text:.40}");
        }
        fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        let is_silent = |path: &Path| FoundFile::open(path, Instant::ZERO).1.found.is_empty();
        assert!(is_silent(&path));
        fs::remove_dir_all(&directory).unwrap();
        assert!(is_silent(&path));
        assert!(is_silent(&std::env::temp_dir()), "a directory");
    }

    #[test]
    fn a_fifo_says_nothing_and_nobody_waits_for_it() {
        let directory = directory("fifo");
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("found.json");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::channel();
        let asked = path.clone();
        std::thread::spawn(move || tell.send(FoundFile::open(&asked, Instant::ZERO).1.found.is_empty()));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(2)), Ok(true));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn it_is_written_when_there_is_news_and_at_the_end() {
        let directory = directory("news");
        let path = directory.join("found.json");
        let (mut file, _) = FoundFile::open(&path, Instant::ZERO);
        file.attend(Instant::ZERO, || unreachable!("it is not time"));
        file.attend(file.due(), Known::default);
        assert!(file.writer.is_none(), "there is nothing to say");
        file.attend(file.due(), all);
        file.end(all());
        let read = |path: &Path| Kept::read(path).unwrap().known(now_s()).found;
        assert_eq!(read(&path)[0].rate.unwrap().bps, 7_960_000);
        // What is forgotten is forgotten there, too.
        let (file, known) = FoundFile::open(&path, Instant::ZERO);
        assert_eq!((known.found.len(), known.used.len()), (2, 1));
        file.end(Known::default());
        assert_eq!(read(&path), []);
        // There is no room, or no right.
        fs::remove_dir_all(&directory).unwrap();
        fs::write(&directory, "a file in the place of the directory").unwrap();
        FoundFile::open(&path, Instant::ZERO).0.end(all());
        fs::remove_file(&directory).unwrap();
    }

    #[test]
    fn little_is_no_news() {
        let kept = |bps, age_s| {
            let found = Found { link: "geo".into(), rate: rate(bps, age_s), ..Found::default() };
            Kept::of(Known { found: vec![found], used: Vec::new() }, NOW_S)
        };
        let before = kept(8_000_000, 4_000);
        assert!(!kept(8_000_000, 4_000).is_news_after(&before));
        assert!(!kept(8_400_000, 500).is_news_after(&before));
        assert!(kept(8_600_000, 4_000).is_news_after(&before));
        assert!(kept(8_000_000, 300).is_news_after(&before));
        assert!(Kept::of(Known::default(), NOW_S).is_news_after(&before));
        let of_use = |bytes, after_s| {
            let used = Used { counted_at_s: NOW_S + after_s, ..used(bytes) };
            Kept::of(Known { found: Vec::new(), used: vec![used] }, NOW_S)
        };
        let before = of_use(64_000, 0);
        assert!(!of_use(65_000, 300).is_news_after(&before));
        assert!(of_use(65_001, 300).is_news_after(&before));
        assert!(of_use(64_001, 4_000).is_news_after(&before));
        assert!(!of_use(64_000, 4_000).is_news_after(&before), "nothing was carried");
    }
}
