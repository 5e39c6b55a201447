//! The journal of a running gateway: room is taken for it ahead of time, and where its file is
//! damaged another one is begun. A thread does both ([`super::workshop`]).

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use farlink_gateway::IfaceId;
use farlink_wire::{Duration, Instant};

use super::Driver;
use super::troubles::{JOURNAL, Troubles};
use crate::clock;
use crate::divert::Severity;
use crate::error::Result;
use crate::journal::Journal;

/// It is tried again so much later.
const AGAIN: Duration = Duration::from_secs(1);

/// What it takes to begin another one.
#[derive(Debug)]
pub(super) struct Records {
    /// `None`: there is no journal.
    pub(super) path: Option<PathBuf>,
    pub(super) slots: usize,
    made: (Sender<Result<Journal>>, Receiver<Result<Journal>>),
    is_ordered: bool,
    again_at: Instant,
}

impl Records {
    pub(super) fn new(path: Option<PathBuf>, slots: usize) -> Self {
        Self { path, slots, made: channel(), is_ordered: false, again_at: Instant::ZERO }
    }
}

pub(super) fn without_room(troubles: &Troubles, error: &dyn std::fmt::Display) {
    troubles.begin(
        JOURNAL,
        Severity::Warning,
        "the journal has no room, or cannot be written: what is held of some connections would be lost with the process, and their hosts \
         would not hear of it. No more is promised to them. It is tried again",
        error,
    );
}

impl Driver {
    /// Looks whether there is something to be done for the journal.
    pub(super) fn keep_records(&mut self, now: Instant) {
        if now < self.records.again_at || self.records.path.is_none() {
            return;
        }
        let Some(journal) = &self.net.journal else { return self.order_journal() };
        if journal.is_damaged() {
            self.order_journal();
        } else if let Some(work) = journal.order_room() {
            self.records.again_at = now + AGAIN;
            let troubles = self.troubles.clone();
            self.maker.order(move || match work() {
                Ok(()) => troubles.end(JOURNAL),
                Err(error) => without_room(&troubles, &error),
            });
        }
    }

    fn order_journal(&mut self) {
        let Some(path) = self.records.path.clone().filter(|_| !self.records.is_ordered) else { return };
        self.records.is_ordered = true;
        if self.net.journal.is_some() {
            tracing::warn!("the journal was cut, or its memory is gone: another one is begun");
        }
        let (slots, out) = (self.records.slots, self.records.made.0.clone());
        let (names, news) = (self.names(), self.maker.news());
        self.maker.order(move || {
            // What maps the old one keeps it.
            let _ = std::fs::remove_file(&path);
            if out.send(Journal::create(&path, slots, &names)).is_ok() {
                news.wake();
            }
        });
    }

    /// The interfaces by their numbers.
    pub(super) fn names(&self) -> Vec<(IfaceId, String)> {
        self.net.ports.iter().map(|port| (port.id, port.interface.clone())).collect()
    }

    /// Another journal takes the place of a damaged one.
    pub(super) fn take_journal(&mut self) {
        let Ok(made) = self.records.made.1.try_recv() else { return };
        self.records.is_ordered = false;
        match made {
            Ok(mut journal) => {
                self.names().iter().for_each(|(id, name)| journal.call(*id, name));
                if let Some(old) = self.net.journal.replace(journal) {
                    self.net.refused_before += old.refused();
                    self.maker.order(move || drop(old));
                }
                self.troubles.end(JOURNAL);
                self.gateway.journal_again(clock::now(), &mut self.net);
            }
            Err(error) => {
                self.records.again_at = clock::now() + AGAIN;
                without_room(&self.troubles, &error);
            }
        }
    }
}
