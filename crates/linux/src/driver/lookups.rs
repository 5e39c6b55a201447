//! Questions to the kernel whose answers packets wait for, on a thread of its own: which way a
//! packet leaves, and what an interface has carried. It takes no lock of the kernel that others
//! hold for long, so it is not the thread that lists interfaces.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::pulse::Pulse;
use crate::error::{Context, Result};
use crate::event_loop::Waker;
use crate::netlink::{Count, Counters, Leaves, Lookup, RouteKey};
use crate::priority::{Priority, start_thread};

/// Questions that may wait.
const WAITING_MAX: usize = 2048;
/// Of a batch so many are answered at once.
const ANSWERS_AT_ONCE: usize = 64;

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
    questions: Sender<Vec<Question>>,
    answers: Receiver<Vec<Answer>>,
    /// Asked since the last batch went.
    collected: Vec<Question>,
    /// Of a batch that has come.
    coming: std::vec::IntoIter<Answer>,
    /// Asked, and not taken as answered.
    waiting: usize,
}

impl Lookups {
    /// In the calling thread's network namespace. `news` is woken after answers.
    pub(super) fn start(pulse: Arc<Pulse>, news: Arc<Waker>) -> Result<Self> {
        let mut asker = Asker { lookup: Lookup::open()?, counters: Counters::default(), pulse };
        let (questions, asked) = channel::<Vec<Question>>();
        let (answer, answers) = channel();
        let work = move || {
            for mut batch in asked {
                while !batch.is_empty() {
                    // The first are not to wait until all are answered.
                    let later = batch.split_off(batch.len().min(ANSWERS_AT_ONCE));
                    if answer.send(asker.answer(std::mem::replace(&mut batch, later))).is_err() {
                        return;
                    }
                    news.wake();
                }
            }
        };
        start_thread("lookups", Priority::Loop, work)
            .context(|| "starting the thread that asks for routes".to_owned())?;
        let (collected, coming) = (Vec::new(), Vec::new().into_iter());
        Ok(Self { questions, answers, collected, coming, waiting: 0 })
    }

    /// It is asked with the next batch; `false`: too much is being asked.
    pub(super) fn ask(&mut self, question: Question) -> bool {
        let has_room = self.waiting < WAITING_MAX;
        if has_room {
            self.waiting += 1;
            self.collected.push(question);
        }
        has_room
    }

    /// What was asked goes to the thread. Before each wait.
    pub(super) fn send(&mut self) {
        if !self.collected.is_empty() {
            let _ = self.questions.send(std::mem::take(&mut self.collected));
        }
    }

    /// An answer that has come.
    pub(super) fn next(&mut self) -> Option<Answer> {
        loop {
            if let Some(answer) = self.coming.next() {
                self.waiting = self.waiting.saturating_sub(1);
                return Some(answer);
            }
            self.coming = self.answers.try_recv().ok()?.into_iter();
        }
    }
}

/// What the thread asks with.
struct Asker {
    lookup: Lookup,
    counters: Counters,
    pulse: Arc<Pulse>,
}

impl Asker {
    fn answer(&mut self, questions: Vec<Question>) -> Vec<Answer> {
        let (mut answers, mut keys, mut generations) = (Vec::new(), Vec::new(), Vec::new());
        for question in questions {
            match question {
                Question::Way(key, generation) => {
                    keys.push(key);
                    generations.push(generation);
                }
                Question::Carried(index, name) => {
                    let before = self.pulse.written.get();
                    let carried = self.counters.read(index, &name);
                    let written = Some(self.pulse.written.get()).filter(|written| *written == before);
                    answers.push(Answer::Carried { index, carried, written });
                }
            }
        }
        let ways = self.lookup.ask_all(&keys).into_iter();
        answers
            .extend(keys.into_iter().zip(generations).zip(ways).map(|((k, g), way)| Answer::Way(k, g, way)));
        answers
    }
}
