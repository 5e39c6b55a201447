//! Another configuration for the gateway that runs: `farlink reload`, and SIGHUP.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use anyhow::{Context, Result};
use farlink_gateway::{Config, Reconfigured};
use farlink_linux::divert::{DivertConfig, Selection};
use farlink_linux::driver::{Attendance, Wanted};
use farlink_linux::event_loop::Waker;
use farlink_linux::priority::{Priority, start_scoped};
use serde::Serialize;

use crate::config::Settings;

/// What has become of what differs, by the names that the configuration has for it.
#[derive(Serialize, Default, Debug)]
pub struct Outcome {
    /// It holds from now on.
    applied: Vec<String>,
    /// It holds when the gateway is started anew.
    at_restart: Vec<String>,
}

impl Outcome {
    fn leave(&mut self, differs: bool, key: &str) {
        if differs {
            self.at_restart.push(key.to_owned());
        }
    }
}

/// Whether other protocols are to be taken.
fn differ(old: &[Selection], new: &[Selection]) -> bool {
    let has_all = |all: &[Selection], of: &[Selection]| {
        of.iter().filter(|one| !one.is_whole()).all(|one| all.contains(one))
    };
    !has_all(new, old) || !has_all(old, new)
}

/// Links that stay and of which something else is taken: `whole` has the interfaces of which
/// everything is, before and after.
fn traffic_changed(before: &Config, after: &Config, whole: (&[String], &[String])) -> Vec<String> {
    let had_link = |name: &str| before.interfaces.iter().any(|i| i.name == name && i.link.is_some());
    let links = after.interfaces.iter().filter_map(|i| Some((&i.name, i.link.as_ref()?)));
    let differs = |name: &String| whole.0.contains(name) != whole.1.contains(name);
    let changed = links.filter(|(interface, _)| had_link(interface) && differs(interface));
    changed.map(|(_, link)| format!("link.{}.traffic", link.name)).collect()
}

/// Where the configuration comes from, and what of it the gateway is not told.
pub struct Source {
    /// A thread reads: files may be slow.
    orders: SyncSender<()>,
    read: Receiver<Result<Settings>>,
    /// What holds from the start on.
    started: Settings,
}

/// Readings that may wait.
const WAITING_MAX: usize = 8;

impl Source {
    /// It is read by this, and these have come of it at the start. `waker` is woken when it has
    /// been read.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        read: &'scope (dyn Fn() -> Result<Settings> + Sync),
        started: Settings,
        waker: Arc<Waker>,
    ) -> Result<Self> {
        let (orders, ordered) = sync_channel(WAITING_MAX);
        let (out, has_read) = sync_channel(WAITING_MAX);
        let work = move || {
            for () in ordered {
                if out.send(read()).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        start_scoped(scope, "configuration", Priority::Normal, work)
            .context("cannot start the thread that reads the configuration")?;
        Ok(Self { orders, read: has_read, started })
    }

    /// What holds from the start on.
    pub fn started(&self) -> &Settings {
        &self.started
    }

    /// It is read soon: see [`Source::next_read`]. `false`: that is so already.
    pub fn read(&self) -> bool {
        self.orders.try_send(()).is_ok()
    }

    /// It has been read.
    pub fn next_read(&self) -> Option<Result<Settings>> {
        self.read.try_recv().ok()
    }

    /// What differs holds from now on, or is named.
    ///
    /// # Errors
    /// What is wrong with it. The gateway goes by the old one then.
    fn reload(&self, read: Result<Settings>, attendance: &mut Attendance<'_>) -> Result<Outcome> {
        let new = read?;
        let old = &self.started;
        let mut config = new.gateway;
        let was_whole = attendance.whole();
        // Chosen at the start, by chance where nobody says it.
        let running = attendance.gateway().configuration().clone();
        config.seed = running.seed;
        if config.identity == 0 {
            config.identity = running.identity;
        }
        let whole: Vec<String> = new.divert.whole_interfaces().map(str::to_owned).collect();
        let wanted = config.clone();
        let differ = differ(&old.divert.selections, &new.divert.selections);
        let divert = DivertConfig {
            attach: old.divert.attach.clone(),
            selections: old.divert.selections.clone(),
            whole_when_known: old.divert.whole_when_known.clone(),
            ..new.divert.clone()
        };
        let Reconfigured { applied, at_restart } = attendance.reconfigure(Wanted {
            gateway: config,
            finders: new.finders,
            selectors: new.selectors,
            attach: new.divert.attach,
            whole,
            whole_when_known: new.divert.whole_when_known,
        });
        let traffic = traffic_changed(&running, &wanted, (&was_whole, &attendance.whole()));
        let mut outcome = Outcome { applied, at_restart };
        outcome.applied.extend(traffic);
        outcome.leave(differ, "`xcp_form` of a link");
        outcome.leave(old.divert != divert, "`divert`");
        outcome.leave(old.queue_packets != new.queue_packets, "queue_packets");
        outcome.leave(old.journal != new.journal, "journal");
        outcome.leave(old.found != new.found, "found_rates");
        outcome.leave(old.drain_timeout != new.drain_timeout, "drain_timeout");
        outcome.leave(old.socket != new.socket, "socket");
        outcome.leave(old.metrics_address != new.metrics_address, "metrics_address");
        outcome.leave(old.confinement != new.confinement, "confinement");
        outcome.leave(old.connection_log != new.connection_log, "connection_log");
        Ok(outcome)
    }

    /// The same, for the log.
    pub fn reload_and_tell(
        &self,
        read: Result<Settings>,
        attendance: &mut Attendance<'_>,
    ) -> Result<Outcome, String> {
        match self.reload(read, attendance) {
            Ok(outcome) => {
                let (applied, at_restart) = (outcome.applied.join(", "), outcome.at_restart.join(", "));
                tracing::info!(applied, "the configuration has been read again");
                if !at_restart.is_empty() {
                    tracing::warn!(at_restart, "this holds when the gateway is started anew, not before");
                }
                Ok(outcome)
            }
            Err(wrong) => {
                let wrong = format!("{wrong:#}");
                tracing::error!("the configuration is wrong, and the old one holds: {wrong}");
                Err(wrong)
            }
        }
    }
}
