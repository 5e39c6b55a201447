//! What could not be done beside carrying packets, as findings. None ends the gateway.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::divert::{Diagnosis, Severity};

/// The kernel's lists of interfaces or addresses cannot be read.
pub(super) const LISTS: &str = "interfaces-unread";
/// There is no device for an interface.
pub(super) const DEVICES: &str = "device-missing";
/// The journal cannot keep what is held.
pub(super) const JOURNAL: &str = "journal-without-room";
/// There are more interfaces than places.
pub(super) const ROOM: &str = "interfaces-without-room";
/// Nobody outside watches this process.
pub(super) const WATCHER: &str = "unwatched";

/// What could not be done beside carrying packets: shared by those who work and those who ask. It
/// is told with [`super::DiversionStatus::found`].
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<&'static str, Diagnosis>>>);

impl Troubles {
    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Diagnosis>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is so from here on. The log hears of it once.
    pub fn begin(&self, id: &'static str, severity: Severity, text: &str, error: &dyn std::fmt::Display) {
        let found = Diagnosis::new(id, severity, format!("{text} ({error})")).seen("error", error);
        if self.all().insert(id, found).is_none() {
            match severity {
                Severity::Note => tracing::info!(%error, "{text}"),
                Severity::Warning | Severity::Problem => tracing::error!(%error, "{text}"),
            }
        }
    }

    /// The process outside has ended.
    pub(super) fn begin_unwatched(&self) {
        self.begin(
            WATCHER,
            Severity::Warning,
            "the process that watches this one from outside has ended: should this one be stopped, or hang as a whole, packets stay in its \
             devices. A restart brings another one",
            &"somebody has ended it",
        );
    }

    /// It is over.
    pub fn end(&self, id: &'static str) {
        if self.all().remove(id).is_some() {
            tracing::info!(id, "this trouble is over");
        }
    }

    /// What is wrong now.
    #[must_use]
    pub fn found(&self) -> Vec<Diagnosis> {
        self.all().values().cloned().collect()
    }
}
