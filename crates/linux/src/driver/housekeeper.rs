//! What the kernel tells of interfaces, addresses and routes, on a thread of its own. It may wait
//! for the kernel's lock for interfaces (RTNL) as long as others hold it, and hands values over.
//!
//! Changes that come faster than they are taken add up to one. A list that changes while it is read
//! is used as it is, and read again. An error is tried again, later each time.
//!
//! One at a time asks for lists: the start until it has all it needs, this thread from then on. Of
//! two lists that are asked for at once nobody can say which is newer.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use farlink_wire::{Duration, Instant};

use super::troubles::{LISTS, Troubles};
use super::wanted::{is_own, look_whether_it_forwards};
use crate::clock;
use crate::divert::Severity;
use crate::error::{Context, Result};
use crate::event_loop::{Interest, Poller, Waker};
use crate::netlink::{Event, Link, Monitor, Socket};
use crate::priority::{Priority, start_thread};

/// News that may wait for the event loop. At the bound they add up.
const WAITING_MAX: usize = 4;
/// Changes of interfaces that are told one by one; more are a new list.
const CHANGED_MAX: usize = 4096;
/// Between two news there is so much time at least: a burst is told at once.
const TOGETHER: Duration = Duration::from_millis(5);
/// After an error, or a list that was not whole, it is tried again so much later, up to so much.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(10);

/// A list of all interfaces.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) links: Vec<Link>,
    /// One that is missing is not there.
    pub(super) is_whole: bool,
}

impl Listing {
    /// The interfaces that there are now.
    pub(super) fn read(socket: &mut Socket) -> Result<Self> {
        let (mut links, is_whole) = socket.links_now()?;
        links.iter_mut().for_each(look_whether_it_forwards);
        Ok(Self { links, is_whole })
    }
}

/// What has changed.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Interfaces that have changed, or (`false`) gone, in order; of each the last change.
    pub(super) changed: Vec<(Link, bool)>,
    /// After that: all there are.
    pub(super) all: Option<Listing>,
    /// The machine's own addresses, with the interfaces that have them.
    pub(super) addresses: Option<Vec<(u32, IpAddr)>>,
    /// Routes, rules or addresses are others.
    pub(super) routes: bool,
    /// So often the kernel has told more than could be heard.
    pub(super) lost: u64,
}

impl News {
    fn is_nothing(&self) -> bool {
        self.changed.is_empty() && self.all.is_none() && self.addresses.is_none() && !self.routes
    }

    fn note(&mut self, mut link: Link, exists: bool) {
        if exists {
            look_whether_it_forwards(&mut link);
        }
        // A list that still waits is to be as new.
        if let Some(all) = &mut self.all {
            all.links.retain(|before| before.index != link.index);
            all.links.extend(exists.then(|| link.clone()));
        }
        self.changed.retain(|(before, _)| before.index != link.index);
        self.changed.push((link, exists));
    }
}

/// The loop's end. The thread ends some time after this is dropped.
#[derive(Debug)]
pub(super) struct Housekeeper {
    news: Receiver<News>,
    /// The first message says that the thread begins. Dropped, it says that nobody listens any
    /// more.
    begin: SyncSender<()>,
    rouse: Arc<Waker>,
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.rouse.wake();
    }
}

impl Housekeeper {
    /// Hears what `monitor` tells, which keeps it until [`Housekeeper::begin`]. `waker` is woken
    /// after each news.
    pub(super) fn start(monitor: Monitor, waker: Arc<Waker>, troubles: Troubles) -> Result<Self> {
        let (out, news) = sync_channel(WAITING_MAX);
        let (begin, has_begun) = sync_channel(1);
        let rouse = Arc::new(Waker::new()?);
        let poller = Poller::new()?;
        poller.add(&monitor, 0, Interest::Read)?;
        poller.add(&*rouse, 1, Interest::Read)?;
        let mut keeper = Keeper {
            monitor,
            socket: Socket::open()?,
            poller,
            out,
            waker,
            troubles,
            pending: News::default(),
            wants: Wants::default(),
            again_after: AGAIN,
            again_at: None,
            told_at: Instant::ZERO,
        };
        let work = move || {
            if has_begun.recv().is_err() {
                return;
            }
            while has_begun.try_recv() != Err(TryRecvError::Disconnected) {
                keeper.turn();
            }
        };
        start_thread("housekeeping", Priority::Normal, work)
            .context(|| "starting the thread of housekeeping".to_owned())?;
        Ok(Self { news, begin, rouse })
    }

    /// Nobody else asks for lists from here on.
    pub(super) fn begin(&self) {
        let _ = self.begin.try_send(());
    }

    /// What has come.
    pub(super) fn next(&self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

/// What is to be read anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wants {
    /// The list of interfaces.
    all: bool,
    addresses: bool,
}

impl Wants {
    /// The kernel tells something.
    fn hear(&mut self, event: Event, pending: &mut News) {
        match event {
            Event::Link(link) => pending.note(link, true),
            Event::LinkGone(link) => pending.note(link, false),
            Event::Routes => pending.routes = true,
            Event::Addresses => self.addresses = true,
            Event::Forwarding => self.all = true,
            // Whatever it was.
            Event::Lost => {
                pending.lost += 1;
                pending.routes = true;
                *self = Self { all: true, addresses: true };
            }
        }
    }
}

/// What the thread knows.
struct Keeper {
    monitor: Monitor,
    socket: Socket,
    poller: Poller,
    out: SyncSender<News>,
    waker: Arc<Waker>,
    troubles: Troubles,
    pending: News,
    wants: Wants,
    again_after: Duration,
    again_at: Option<Instant>,
    told_at: Instant,
}

impl Keeper {
    fn turn(&mut self) {
        let next = (!self.pending.is_nothing()).then(|| self.told_at + TOGETHER);
        let deadline = [next, self.again_at].into_iter().flatten().min();
        let waited = self.poller.wait(deadline).map(drop);
        let now = clock::now();
        if self.again_at.is_some_and(|at| at > now) {
            // It is not hammered, whatever is told meanwhile.
            if self.hear().is_err() {
                std::thread::sleep(AGAIN);
            }
            return self.hand_over(now);
        }
        self.again_at = None;
        match waited.and_then(|()| self.look()) {
            Ok(true) => {
                self.again_after = AGAIN;
                self.troubles.end(LISTS);
            }
            Ok(false) => self.try_again(now),
            Err(error) => {
                self.wants.all = true;
                self.try_again(now);
                self.troubles.begin(
                    LISTS,
                    Severity::Warning,
                    "what changes of interfaces, addresses and routes cannot be read: what was known holds, and it is tried again",
                    &error,
                );
            }
        }
        self.hand_over(clock::now());
    }

    fn try_again(&mut self, now: Instant) {
        self.again_at = Some(now + self.again_after);
        self.again_after = (self.again_after * 2).min(AGAIN_MAX);
    }

    fn hear(&mut self) -> Result<()> {
        let Self { monitor, pending, wants, .. } = self;
        monitor.drain(|event| wants.hear(event, pending))
    }

    /// Whether all was read that is wanted.
    fn look(&mut self) -> Result<bool> {
        self.hear()?;
        for (link, exists) in self.pending.changed.iter_mut().filter(|(_, exists)| *exists) {
            // One of ours that has just been made comes up a moment later, and what is told may be
            // old.
            if is_own(&link.name)
                && !link.up
                && let Ok(Some(now)) = self.socket.link(&link.name)
            {
                (link.up, *exists) = (now.up, true);
            }
        }
        if self.pending.changed.len() > CHANGED_MAX {
            self.pending.changed.clear();
            self.wants.all = true;
        }
        if std::mem::take(&mut self.wants.all) {
            let all = Listing::read(&mut self.socket)?;
            self.wants.all = !all.is_whole;
            self.pending.all = Some(all);
        }
        if std::mem::take(&mut self.wants.addresses) {
            match self.socket.addresses() {
                Ok(addresses) => self.pending.addresses = Some(addresses),
                Err(error) => {
                    self.wants.addresses = true;
                    return Err(error);
                }
            }
        }
        Ok(!self.wants.all)
    }

    fn hand_over(&mut self, now: Instant) {
        if self.pending.is_nothing() || now < self.told_at + TOGETHER {
            return;
        }
        self.told_at = now;
        match self.out.try_send(std::mem::take(&mut self.pending)) {
            Ok(()) => self.waker.wake(),
            // They add up with what comes.
            Err(TrySendError::Full(news) | TrySendError::Disconnected(news)) => self.pending = news,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_loss_everything_is_read_anew() {
        let (mut wants, mut pending) = (Wants::default(), News::default());
        wants.hear(Event::Routes, &mut pending);
        assert_eq!((wants, pending.routes), (Wants::default(), true));
        pending.routes = false;
        wants.hear(Event::Lost, &mut pending);
        assert_eq!(wants, Wants { all: true, addresses: true }, "addresses, too");
        assert_eq!((pending.routes, pending.lost), (true, 1));
    }
}
