//! Questions to the kernel whose answers packets wait for, on a thread of its own: which way a
//! packet leaves, and what an interface has carried. It takes no lock of the kernel that others
//! hold for long, so it is not the thread that lists interfaces.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use super::pulse::Pulse;
use crate::error::{Context, Result};
use crate::event_loop::Waker;
use crate::netlink::{Count, Counters, Leaves, Lookup, RouteKey};

/// Questions that may wait.
const WAITING_MAX: usize = 2048;

/// What is asked.
#[derive(Debug)]
pub(super) enum Question {
    /// Which way packets leave. The number goes back with the answer.
    Way(RouteKey, u64),
    /// What the interface of this number and name has carried.
    Carried(u32, String),
}

/// What comes back.
#[derive(Debug)]
pub(super) enum Answer {
    Way(RouteKey, u64, Result<Option<Leaves>>),
    /// Received and sent; `None`: nobody counts. `written`: see [`Pulse::written`]; `None`: packets
    /// have left meanwhile.
    Carried {
        index: u32,
        carried: Option<[Count; 2]>,
        written: Option<u64>,
    },
}

/// The thread. It ends when this is dropped, and nobody waits for it.
#[derive(Debug)]
pub(super) struct Lookups {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
}

impl Lookups {
    /// In the calling thread's network namespace. `news` is woken after each answer.
    pub(super) fn start(pulse: Arc<Pulse>, news: Arc<Waker>) -> Result<Self> {
        let mut lookup = Lookup::open()?;
        let mut counters = Counters::default();
        let (questions, asked) = sync_channel(WAITING_MAX);
        let (answer, answers) = sync_channel(WAITING_MAX);
        let work = move || {
            for question in asked {
                let done = match question {
                    Question::Way(key, generation) => Answer::Way(key, generation, lookup.ask(&key)),
                    Question::Carried(index, name) => {
                        let before = pulse.written.get();
                        let carried = counters.read(index, &name);
                        let written = Some(pulse.written.get()).filter(|written| *written == before);
                        Answer::Carried { index, carried, written }
                    }
                };
                if answer.send(done).is_err() {
                    return;
                }
                news.wake();
            }
        };
        std::thread::Builder::new()
            .name("lookups".to_owned())
            .spawn(work)
            .context(|| "starting the thread that asks for routes".to_owned())?;
        Ok(Self { questions, answers })
    }

    /// It is asked soon; `false`: too much is being asked.
    pub(super) fn ask(&self, question: Question) -> bool {
        self.questions.try_send(question).is_ok()
    }

    /// An answer that has come.
    pub(super) fn next(&self) -> std::result::Result<Answer, TryRecvError> {
        self.answers.try_recv()
    }
}
