//! Progress for people: bars on a terminal, one line per cell elsewhere. Always on standard error.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use portable_atomic::AtomicU64;

/// The progress of a scenario.
#[derive(Debug)]
pub struct Progress {
    cells: ProgressBar,
    bars: MultiProgress,
    is_terminal: bool,
}

/// The progress of a transfer; ends when dropped.
#[derive(Debug)]
pub struct Bytes {
    /// Bytes that have arrived.
    pub count: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    drawer: Option<JoinHandle<()>>,
    bar: ProgressBar,
}

impl Progress {
    /// Of so many cells.
    #[must_use]
    pub fn new(cells: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bars = MultiProgress::new();
        let bar = bars.add(ProgressBar::new(cells as u64));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed}  {msg}") {
            bar.set_style(style);
        }
        Self { cells: bar, bars, is_terminal }
    }

    /// A cell begins.
    pub fn begin(&self, what: &str) {
        self.cells.set_message(what.to_string());
        self.cells.tick();
    }

    /// A cell has ended, with this result.
    pub fn end(&self, result: &str) {
        self.cells.inc(1);
        if self.is_terminal {
            self.cells.suspend(|| eprintln!("{result}"));
        } else {
            eprintln!("[{}/{}] {result}", self.cells.position(), self.cells.length().unwrap_or(0));
        }
    }

    /// Everything has ended.
    pub fn finish(&self) {
        self.cells.finish_and_clear();
    }

    /// A transfer of so many bytes begins.
    #[must_use]
    pub fn bytes(&self, total: u64) -> Bytes {
        let bar =
            if self.is_terminal { self.bars.add(ProgressBar::new(total)) } else { ProgressBar::hidden() };
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {msg}")
        {
            bar.set_style(style);
        }
        let (count, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let drawer = self.is_terminal.then(|| {
            let (bar, count, over) = (bar.clone(), Arc::clone(&count), Arc::clone(&over));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    bar.set_position(count.load(Ordering::Relaxed));
                    std::thread::park_timeout(Duration::from_millis(100));
                }
            })
        });
        Bytes { count, over, drawer, bar }
    }
}

impl Bytes {
    /// Words behind the bar.
    pub fn say(&self, words: String) {
        self.bar.set_message(words);
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(drawer) = self.drawer.take() {
            drawer.thread().unpark();
            let _ = drawer.join();
        }
        self.bar.finish_and_clear();
    }
}
