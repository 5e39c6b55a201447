//! What the kernel tells of interfaces, and what the log is told of links.

use farlink_gateway::{Found, LinkState};
use farlink_wire::{Duration, Instant};

use super::Driver;
use super::housekeeper::{Listing, News};
use super::lookups::Answer;
use super::network::Carried;
use crate::clock;
use crate::netlink::Link;

/// A link that is silent for no longer than this is not worth a line of the log.
const WINK_MAX: Duration = Duration::from_secs(1);

/// The log is not told more often that a link carries less than is declared, and of changes only
/// from such a part on.
const RATE_NEWS_EVERY: Duration = Duration::from_secs(10);
const RATE_NEWS_PARTS: u64 = 10;

/// Nor that a link of which nobody says the rate is found to have another one, which it may have
/// all the time.
const FOUND_NEWS_EVERY: Duration = Duration::from_secs(600);
const FOUND_NEWS_PARTS: u64 = 4;

/// What boxes on the way do is looked at so often.
const BOXES_LOOK_EVERY: Duration = Duration::from_secs(10);

/// What the log was told of a link last, and in which state it has been since when.
pub(super) struct ToldState {
    pub(super) link: String,
    told: LinkState,
    is: LinkState,
    since: Instant,
    /// What it carries, where the log was told last that this is less than is declared; and when.
    carries_bps: Option<u64>,
    rate_at: Option<Instant>,
    /// What was found where nobody says the rate, when the log was told last; and when.
    found: Option<(u64, Instant)>,
    /// What boxes on the way do to handshakes.
    boxes: Vec<String>,
    boxes_news: u64,
    boxes_at: Instant,
}

impl ToldState {
    /// Of this link; nothing has been told of one that is not there.
    fn of<'a>(all: &'a mut Vec<Self>, link: &str, now: Instant) -> Option<&'a mut Self> {
        let place = all.iter().position(|of| of.link == link).unwrap_or_else(|| {
            let (told, is, link) = (LinkState::Up, LinkState::Up, link.to_owned());
            let boxes = Vec::new();
            all.push(Self {
                link,
                told,
                is,
                since: now,
                carries_bps: None,
                rate_at: None,
                found: None,
                boxes,
                boxes_news: 0,
                boxes_at: now,
            });
            all.len() - 1
        });
        all.get_mut(place)
    }
}

impl Driver {
    /// What others have found out or made for the loop.
    pub(super) fn take_news(&mut self) {
        self.news.clear();
        self.take_answers();
        while let Some(news) = self.housekeeper.next() {
            self.take_changes(news);
        }
        self.take_made();
        self.take_journal();
        self.follow_ports();
    }

    /// Answers of the kernel about routes and counters.
    pub(super) fn take_answers(&mut self) {
        let (mut is_other, mut has_counts) = (false, false);
        while let Some(answer) = self.net.lookups.next() {
            match answer {
                Answer::Way(key, generation, leaves) => {
                    self.has_answers = true;
                    is_other |= self.net.routes.answered(&key, generation, leaves);
                }
                Answer::Carried { index, carried, written } => {
                    let read = Carried { counts: carried, written, is_awaited: false, is_news: true };
                    self.net.carried.insert(index, read);
                    has_counts = true;
                }
            }
        }
        let now = clock::now();
        if is_other {
            self.gateway.routes_changed(now);
        }
        if has_counts {
            // Before more packets leave, which these counters do not know.
            self.gateway.flush(now, &mut self.net);
        }
    }

    /// What has changed of interfaces, addresses and routes.
    fn take_changes(&mut self, news: News) {
        self.net.counters.events_lost += news.lost;
        if let Some(addresses) = news.addresses {
            self.addresses = addresses;
            self.look_at_addresses();
        }
        // An interface that changes may change its MTU, its number, and the routes through it.
        self.net.routes.invalidate();
        self.pulse.routes.set(self.net.routes.generation());
        self.gateway.routes_changed(clock::now());
        for (link, exists) in news.changed {
            self.link_changed(&link, exists);
        }
        if let Some(all) = news.all {
            self.look_at_links(all);
        }
    }

    /// The state of all interfaces.
    pub(super) fn look_at_links(&mut self, Listing { links, is_whole }: Listing) {
        let is_there = |index: &u32| !is_whole || links.iter().any(|link| link.index == *index);
        let gone: Vec<Link> = self.links.values().filter(|link| !is_there(&link.index)).cloned().collect();
        gone.iter().for_each(|link| self.link_changed(link, false));
        links.iter().for_each(|link| self.link_changed(link, true));
    }

    /// What is known of interfaces is seen with other eyes.
    pub(super) fn look_at_links_again(&mut self) {
        let links: Vec<Link> = self.links.values().cloned().collect();
        links.iter().for_each(|link| self.link_changed(link, true));
    }

    /// The log is told of links that have gone or come back, and by whose word. A mere suspicion
    /// ends with the next answer, or is soon more. So does a wink, of which there may be many in a
    /// second.
    pub(super) fn tell_link_states(&mut self) {
        let now = clock::now();
        for (link, said) in self.gateway.link_states() {
            let state = said.state();
            let Some(before) = ToldState::of(&mut self.link_states, link, now) else { return };
            if core::mem::replace(&mut before.is, state) != state {
                before.since = now;
            }
            let may_be_wink = state == LinkState::Probing && now.since(before.since) < WINK_MAX;
            if state == LinkState::Suspect || may_be_wink {
                continue;
            }
            if core::mem::replace(&mut before.told, state) != state {
                tracing::info!(link, state = state.name(), down_by = said.names().join(", "), "link");
            }
        }
    }

    /// The log is told when a link is found to carry less than is declared, or more, and when it no
    /// longer is.
    pub(super) fn tell_rates(&mut self) {
        let now = clock::now();
        for (link, declared_bps, carries_bps) in self.gateway.declared_rates() {
            let Some(told) = ToldState::of(&mut self.link_states, link, now) else { return };
            let is_news = match (told.carries_bps, carries_bps) {
                (Some(old), Some(new)) => old.abs_diff(new) > declared_bps / RATE_NEWS_PARTS,
                (old, new) => old.is_some() != new.is_some(),
            };
            if !is_news || told.rate_at.is_some_and(|at| now.since(at) < RATE_NEWS_EVERY) {
                continue;
            }
            (told.carries_bps, told.rate_at) = (carries_bps, Some(now));
            match carries_bps {
                Some(carries_bps) if carries_bps > declared_bps => tracing::warn!(
                    link,
                    declared_bps,
                    carries_bps,
                    "the link carries more than declared: no more is sent. `farlink set link.NAME.rate_bps N` says so"
                ),
                Some(carries_bps) => tracing::warn!(
                    link,
                    declared_bps,
                    carries_bps,
                    "the link carries less than declared: no more is sent, and the declared rate is tried again"
                ),
                None => tracing::info!(link, declared_bps, "the link carries what is declared"),
            }
        }
    }

    /// The log is told what boxes on the way do to handshakes for Farlink's option, and when they
    /// do no more.
    pub(super) fn tell_boxes(&mut self) {
        let now = clock::now();
        for (link, known) in self.gateway.boxes() {
            let Some(told) = ToldState::of(&mut self.link_states, link, now) else { return };
            // That it was no chance shows later.
            let is_news = core::mem::replace(&mut told.boxes_news, known.news()) != known.news();
            if known.is_empty() || (!is_news && now.since(told.boxes_at) < BOXES_LOOK_EVERY) {
                continue;
            }
            told.boxes_at = now;
            let boxes = known.words(now);
            for said in boxes.iter().filter(|said| !told.boxes.contains(said)) {
                tracing::warn!(link, "{said}. Let TCP options of kind 254 pass there");
            }
            if boxes.is_empty() && !told.boxes.is_empty() {
                tracing::info!(link, "handshakes with Farlink's TCP option (kind 254) pass again");
            }
            told.boxes = boxes;
        }
    }

    /// The log is told which rate is found where nobody says one, seldom.
    pub(super) fn tell_found(&mut self) {
        let now = clock::now();
        for (link, rate_bps) in self.gateway.found_rates(now) {
            let Some(told) = ToldState::of(&mut self.link_states, link, now) else { return };
            let is_news = told.found.is_none_or(|(bps, at)| {
                now.since(at) >= FOUND_NEWS_EVERY && bps.abs_diff(rate_bps) > bps / FOUND_NEWS_PARTS
            });
            if is_news {
                told.found = Some((rate_bps, now));
                tracing::info!(link, rate_bps, "the rate of the link is found, which nobody declares");
            }
        }
    }
}

/// The log is told with which guesses the gateway begins.
pub(super) fn tell_recalled(recalled: &[Found]) {
    for Found { link, rate, rate_in, .. } in recalled {
        for (what, rate) in [("rate", rate), ("rate_in", rate_in)] {
            let Some(rate) = rate else { continue };
            let (rate_bps, age_s) = (rate.bps, rate.age.as_secs());
            tracing::info!(link, what, rate_bps, age_s, "an earlier run has found this: it is a first guess");
        }
    }
}
