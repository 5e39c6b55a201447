//! Another configuration while the gateway runs: interfaces and links that it adds or takes out.

use farlink_gateway::{Config, IfaceId, Reconfigured, SELECTORS_FROM};

use super::wanted::Finder;
use super::{Attendance, Driver, Phase};
use crate::clock;

/// What another configuration wants of the driver.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// See [`super::DriverConfig`].
    pub gateway: Config,
    /// See [`super::DriverConfig`].
    pub finders: Vec<Finder>,
    /// See [`super::DriverConfig`].
    pub selectors: Vec<String>,
    /// Names of interfaces that get a bump; none: all.
    pub attach: Vec<String>,
    /// Names of interfaces of which everything is taken that leaves by them.
    pub whole: Vec<String>,
    /// The same once the rate of their link is known.
    pub whole_when_known: Vec<String>,
}

impl Attendance<'_> {
    /// What differs from the configuration before holds from now on, or is named. No connection is
    /// dropped: interfaces that are taken out stay as long as something is split that passes them.
    pub fn reconfigure(&mut self, wanted: Wanted) -> Reconfigured {
        self.driver.reconfigure(wanted)
    }
}

impl Driver {
    fn reconfigure(&mut self, mut wanted: Wanted) -> Reconfigured {
        let now = clock::now();
        self.number_selectors(&mut wanted);
        let mut done = self.gateway.reconfigure(now, wanted.gateway);
        if self.finders != wanted.finders {
            self.finders = wanted.finders;
            self.without_room.clear();
            self.tell_without_room();
            done.applied.push("interfaces by pattern, group or all".to_owned());
        }
        if self.maker.attach_to(wanted.attach, &self.finders) {
            done.applied.push("attach".to_owned());
        }
        self.maker.divert.whole_when_known = wanted.whole_when_known;
        self.take_all_of(wanted.whole);
        self.follow_configuration();
        let Self { gateway, link_states, .. } = self;
        link_states.retain(|of| gateway.link_states().any(|(link, _)| link == of.link));
        self.ports_changed = true;
        self.look_at_links_again();
        // Those that are awaited have devices, too: their numbers stay.
        for n in 0..self.net.ports.len() {
            self.fit_devices(n);
        }
        self.look_at = Some(now);
        self.follow_ports();
        done
    }

    /// Everything that leaves by these interfaces, and by those of `whole_when_known` whose link
    /// has a known rate, or had: what has begun stays so. Returns whether that is something else.
    fn take_all_of(&mut self, mut whole: Vec<String>) -> bool {
        let is_taken = |name: &String| self.maker.divert.whole_interfaces().any(|taken| taken == name);
        let known = |name: &&String| is_taken(name) || self.gateway.knows_rate_of(name);
        whole.extend(self.maker.divert.whole_when_known.iter().filter(known).cloned());
        let is_new = self.maker.take_all_of(&whole);
        if is_new {
            self.net.ports.iter().for_each(|port| self.maker.follow_selection(port));
        }
        is_new
    }

    /// A rate that has become known is that of the link: all that leaves by it passes its queue.
    pub(super) fn follow_known_rates(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        let known: Vec<String> =
            self.maker.awaited().filter(|name| self.gateway.knows_rate_of(name)).map(str::to_owned).collect();
        if known.is_empty() {
            return;
        }
        for interface in &known {
            tracing::info!(
                interface,
                "the rate of the link is known: everything that leaves by it passes its queue from now on"
            );
        }
        let before = self.maker.said_whole();
        if self.take_all_of(before) {
            self.ports_changed = true;
            self.follow_ports();
        }
    }

    /// Numbers in rules that stand for patterns: those that are known keep theirs.
    fn number_selectors(&mut self, wanted: &mut Wanted) {
        let mut numbers = Vec::new();
        for text in &wanted.selectors {
            let known = self.selectors.iter().position(|one| one == text);
            numbers.push(known.unwrap_or_else(|| {
                self.selectors.push(text.clone());
                self.selectors.len() - 1
            }));
        }
        for id in wanted.gateway.rules.iter_mut().flat_map(|rule| &mut rule.interfaces) {
            let place = id.0.checked_sub(SELECTORS_FROM).and_then(|n| numbers.get(usize::from(n)));
            if let Some(place) = place.and_then(|n| u16::try_from(*n).ok()) {
                *id = IfaceId(SELECTORS_FROM.saturating_add(place));
            }
        }
    }

    /// Each interface that the gateway knows by name has a port.
    fn follow_configuration(&mut self) {
        let leaving = self.gateway.leaving();
        let named: Vec<_> = self.gateway.named().filter(|i| !leaving.contains(&i.id)).cloned().collect();
        for interface in named {
            match self.net.ports.iter_mut().find(|p| p.id == interface.id) {
                Some(port) => (port.is_named, port.attach) = (true, false),
                None => {
                    self.make_port(&interface, true, false);
                }
            }
        }
    }
}
