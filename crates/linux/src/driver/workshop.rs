//! What the kernel takes its time for, on a thread of its own: to put programs at interfaces and
//! take them away, to take devices away. One after the other, in the order in which it was asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use portable_atomic::AtomicU64;

use crate::error::{Context, Result};
use crate::priority::{Priority, start_thread};

type Work = Box<dyn FnOnce() + Send>;

/// The thread. Dropping it waits until all is done.
#[derive(Debug)]
pub(super) struct Workshop {
    orders: Option<Sender<Work>>,
    ordered: AtomicU64,
    done: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Workshop {
    /// In the calling thread's network namespace.
    pub(super) fn open() -> Result<Self> {
        let (orders, heard) = channel::<Work>();
        let done = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&done);
        let work = move || {
            for work in heard {
                work();
                counted.fetch_add(1, Ordering::Release);
            }
        };
        let thread = start_thread("workshop", Priority::Normal, work)
            .context(|| "starting a thread for what takes time".to_owned())?;
        Ok(Self { orders: Some(orders), ordered: AtomicU64::new(0), done, thread: Some(thread) })
    }

    /// This is done soon.
    pub(super) fn order(&self, work: impl FnOnce() + Send + 'static) {
        self.ordered.fetch_add(1, Ordering::Relaxed);
        // It hears until this is dropped.
        let _ = self.orders.as_ref().map(|orders| orders.send(Box::new(work)));
    }

    /// So much has been asked for.
    pub(super) fn ordered(&self) -> u64 {
        self.ordered.load(Ordering::Relaxed)
    }

    /// Whether all is done that had been asked for when this was [`Workshop::ordered`].
    pub(super) fn has_done(&self, ordered: u64) -> bool {
        self.done.load(Ordering::Acquire) >= ordered
    }

    /// Waits until all is done that was asked for.
    pub(super) fn wait(&self) {
        let (done, is_done) = channel::<()>();
        self.order(move || drop(done));
        let _ = is_done.recv();
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
