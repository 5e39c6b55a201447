//! The declared links: what is known of each stands in one place, and so does what follows from it.

mod advertised;
mod answers;
mod boxes;
mod budget;
mod change;
mod chosen;
mod clients;
mod clock;
mod clumps;
mod copies;
mod dated;
mod doubts;
mod far_end;
mod losses;
mod memory;
mod meter;
mod openings;
mod packet_time;
mod pairs;
mod recognised;
mod reports;
mod returns;
mod round_trip;
mod shares;
mod shims;
mod silence;
mod starved;
mod state;
mod way_back;

use core::net::IpAddr;

use farlink_wire::{Duration, Instant};

use crate::asked::Goes;
use crate::config::{self, Action, Config, Copies, Explicit, InitialWindow, LinkAction, Oversize};
use crate::net::{IfaceId, LinkId, Way};
use crate::peer::{Capability, Hello, Identity};
use crate::spent::Spent;

pub(crate) use answers::Acknowledged;
use answers::WayBack;
pub use boxes::{Boxes, Carrier, Crossing};
pub use change::Change;
pub use clients::AheadOf;
use clients::Clients;
pub use clock::{Clock, LinkEstimate, Pace, RateSource, UNKNOWN_RATE_CC};
pub use dated::Dated;
pub use far_end::LinkReport;
pub use packet_time::{PacketTime, covered};
pub use pairs::{PairId, PairShare};
pub use reports::Come;
pub use returns::Returns;
pub(crate) use round_trip::WAITS_MIN;
pub use shares::{Asking, Crowd, Entry, Held};
pub use shims::{Passage, Shims};
pub use silence::Expired;
pub(crate) use silence::are_apart;
pub use starved::{Sizes, Wanted};
pub use state::{Evidence, State, Witness};
pub use way_back::RateIn;

use budget::Budget;
pub(crate) use budget::Stage;
use copies::CopyBudget;
use far_end::FarEnd;
use losses::Losses;
use memory::Memory;
use meter::Meter;
use openings::Openings;
use pairs::Pairs;
use round_trip::RoundTrip;
use silence::Silence;
use way_back::WayIn;

/// A link delivers while it has told of something within its round trip, or within this where that
/// is shorter: a gateway acknowledges about twelve times a second where little comes in.
const DELIVERS_MIN: Duration = Duration::from_millis(250);
/// Reports kept until they are asked for.
const REPORTS_MAX: usize = 64;

/// A declared link.
#[derive(Debug)]
pub struct Link {
    iface: IfaceId,
    pace: Pace,
    evidence: Evidence,
    silence: Silence,
    budget: Budget,
    /// What relays into all links together may hold.
    pool_bytes: usize,
    /// What it brings.
    way_in: WayIn,
    /// As the operator says: both directions take turns.
    is_half_duplex: bool,
    clients: Clients,
    boxes: Boxes,
    /// As the operator says.
    declared_rtt: Option<Duration>,
    /// The smallest round trip of any connection over it of late, for where nobody has said one.
    measured_rtt: Option<Duration>,
    overhead_bytes: u32,
    oversize: Oversize,
    initial_window: InitialWindow,
    unfair_window_bytes: Option<u64>,
    losses: Losses,
    copies: CopyBudget,
    memory: Memory,
    meter: Meter,
    /// What the packets that are made for it are spent on.
    spent: Spent,
    /// What hosts have acknowledged, modulo 2^32.
    answered_bytes: u32,
    way_back: WayBack,
    /// The rate that open connections have been told of last.
    told_bps: u64,
    far_end: FarEnd,
    openings: Openings,
    round_trip: RoundTrip,
    /// The same of full segments.
    full_round_trip: RoundTrip,
    /// Of handshakes, without what they have waited on their way back.
    unwaited_round_trip: RoundTrip,
    /// The last handshake: when it was over, and what it took without that.
    last_handshake: Option<(Instant, Duration)>,
    returns: Returns,
    action: Option<LinkAction>,
    /// Its bytes cost money: nothing is sent that may be in vain.
    is_metered: bool,
    explicit: Explicit,
    pairs: Pairs,
    /// Segments say what they say of XCP in its own header, where that gets through.
    shims: Option<Shims>,
}

/// All declared links of the engine.
#[derive(Debug, Default)]
pub struct Links {
    links: Vec<Link>,
    /// Diverted interfaces that are no links may be down, too.
    ordinary: Vec<(IfaceId, Evidence)>,
    /// Those that are up again, or said to be up for the first time, in this order: what was under
    /// way in them is to be sent again.
    back: Vec<Way>,
    /// Hosts that were silent alone, each with its link, which has answered.
    hosts_back: Vec<(Way, IpAddr)>,
    /// Where something has been found out that other connections wait for.
    found_out: Option<Way>,
    held: Held,
    /// What gateways have told, until it is asked for.
    reports: Vec<(Way, LinkReport)>,
    /// By which other gateways tell this one apart.
    identity: Identity,
    /// Since when the loop has got round without standing still.
    served_since: Instant,
}

/// A loop that is late by so much stood still: its process was stopped, or its clock jumped.
const STOOD_STILL: Duration = Duration::from_secs(1);

impl Links {
    /// The declared links of a configuration; its identity, or else its seed, is how other gateways
    /// tell us apart.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let identity = Identity::from(match config.identity {
            0 => (config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1,
            chosen => chosen,
        });
        let links = config
            .interfaces
            .iter()
            .filter_map(|i| Some(Link::new(config, i.id, i.link.as_ref()?, identity)));
        let ordinary = config.interfaces.iter().filter(|i| i.link.is_none());
        Self {
            links: links.collect(),
            ordinary: ordinary.map(|i| (i.id, Evidence::default())).collect(),
            back: Vec::new(),
            hosts_back: Vec::new(),
            found_out: None,
            held: Held::default(),
            reports: Vec::new(),
            identity,
            served_since: Instant::ZERO,
        }
    }

    /// What this gateway says of itself to others.
    #[must_use]
    pub fn hello(&self) -> Hello {
        let hello = Hello::of(self.identity);
        let reads_shims = self.links.iter().any(|link| link.shims.is_some());
        if reads_shims { hello.with(Capability::Shim) } else { hello }
    }

    /// All of them, in the order in which they are declared.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.links.iter()
    }

    /// The loop was late since then.
    pub(crate) fn note_late(&mut self, since: Instant, now: Instant) {
        self.links.iter_mut().for_each(|link| link.meter.note_late(since, now));
    }

    /// The loop has stood still since then, with something to do.
    pub(crate) fn note_stood(&mut self, since: Instant, now: Instant) {
        if now.since(since) >= STOOD_STILL {
            self.served_since = now;
        }
    }

    /// Since when nothing has stood still here: before, nobody was asked and nobody heard, so no
    /// patience counts from then.
    #[must_use]
    pub fn served_since(&self) -> Instant {
        self.served_since
    }

    /// Another link has the place of one that nothing leaves by any more. What was learnt of that
    /// one, and how it was declared, does not hold for it.
    pub(crate) fn begin(&mut self, config: &Config, way: Way, declared: &config::Link) {
        let identity = self.identity;
        if let Some(link) = self.get_mut(way) {
            *link = Link::new(config, link.iface, declared, identity);
        }
        self.back.retain(|back| *back != way);
        self.hosts_back.retain(|(of, _)| *of != way);
        self.reports.retain(|(of, _)| *of != way);
        self.found_out = self.found_out.filter(|of| *of != way);
    }

    /// Which way packets leave that leave by this interface.
    #[must_use]
    pub fn way(&self, iface: IfaceId) -> Way {
        let place = self.links.iter().position(|l| l.iface == iface).and_then(|n| u16::try_from(n).ok());
        place.map_or(Way::Ordinary(iface), |n| Way::Link(LinkId(n)))
    }

    /// The interface of a way.
    #[must_use]
    pub fn iface(&self, way: Way) -> IfaceId {
        match way {
            Way::Link(_) => self.get(way).map_or(IfaceId::OTHER, Link::iface),
            Way::Ordinary(iface) => iface,
        }
    }

    /// The link that a way leads into.
    #[must_use]
    pub fn get(&self, way: Way) -> Option<&Link> {
        let Way::Link(LinkId(n)) = way else { return None };
        self.links.get(usize::from(n))
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, way: Way) -> Option<&mut Link> {
        let Way::Link(LinkId(n)) = way else { return None };
        self.links.get_mut(usize::from(n))
    }

    /// The link behind an interface by which packets come in.
    #[must_use]
    pub fn at(&self, iface: IfaceId) -> Option<&Link> {
        self.links.iter().find(|l| l.iface == iface)
    }

    /// The same, to be changed.
    pub(crate) fn at_mut(&mut self, iface: IfaceId) -> Option<&mut Link> {
        self.links.iter_mut().find(|l| l.iface == iface)
    }

    fn evidence_mut(&mut self, way: Way) -> Option<&mut Evidence> {
        match way {
            Way::Link(_) => self.get_mut(way).map(|link| &mut link.evidence),
            Way::Ordinary(iface) => {
                self.ordinary.iter_mut().find(|(id, _)| *id == iface).map(|(_, evidence)| evidence)
            }
        }
    }

    /// What is said of a link, or an ordinary interface; `None`: one that is not configured.
    #[must_use]
    pub fn evidence(&self, way: Way) -> Option<Evidence> {
        match way {
            Way::Link(_) => self.get(way).map(|link| link.evidence),
            Way::Ordinary(iface) => {
                self.ordinary.iter().find(|(id, _)| *id == iface).map(|(_, evidence)| *evidence)
            }
        }
    }

    /// A witness who knows says whether a link, or an ordinary interface, is up. What silence said
    /// is explained by that, or to be found out anew. Of one that nobody says is down any more,
    /// what was under way is to be sent again. Who repeats himself says nothing.
    pub(crate) fn tell(&mut self, now: Instant, way: Way, witness: Witness, up: bool) {
        if self.evidence(way).is_some_and(|evidence| evidence.is_denied_by(witness) != up) {
            return;
        }
        if let Some(link) = self.get_mut(way)
            && link.silence.end(now).is_some_and(|ended| ended.host.is_none())
        {
            link.evidence.tell(now, Witness::Silence, true);
        }
        let state = self.evidence_mut(way).map(|evidence| evidence.tell(now, witness, up));
        self.note_back(way, state.map_or(up, |state| state != State::Down));
    }

    fn note_back(&mut self, way: Way, is_back: bool) {
        self.back.retain(|w| *w != way);
        if is_back {
            self.back.push(way);
        }
    }

    /// Those that are back since this was last asked, in order.
    pub(crate) fn take_back(&mut self) -> Vec<Way> {
        core::mem::take(&mut self.back)
    }

    /// There are such.
    pub(crate) fn are_some_back(&self) -> bool {
        !self.back.is_empty() || !self.hosts_back.is_empty()
    }

    /// What was under way in it is being sent again. Returns whether it has been down: then all of
    /// that is lost.
    pub(crate) fn come_back(&mut self, now: Instant, way: Way) -> bool {
        if let Some(link) = self.get_mut(way).filter(|link| link.evidence.is_away()) {
            link.returns.note(now, link.budget.held_bytes());
        }
        self.evidence_mut(way).is_some_and(Evidence::come_back)
    }

    /// A link or an ordinary interface is down or silent, or has been until just now.
    #[must_use]
    pub fn is_away(&self, way: Way) -> bool {
        self.evidence(way).is_some_and(Evidence::is_away)
    }

    /// Nothing is sent this way but what asks whether it carries anything: it is down, or silent
    /// and probed.
    #[must_use]
    pub fn carries_nothing(&self, way: Way) -> bool {
        let state = self.evidence(way).map(|evidence| evidence.state());
        matches!(state, Some(State::Down | State::Probing))
    }

    /// Since when it has been that; `None`: it is not.
    #[must_use]
    pub fn away_since(&self, way: Way) -> Option<Instant> {
        self.evidence(way).and_then(Evidence::away_since)
    }

    /// Some link or interface is.
    #[must_use]
    pub fn is_any_away(&self) -> bool {
        let links = self.links.iter().map(|l| l.evidence);
        links.chain(self.ordinary.iter().map(|(_, evidence)| *evidence)).any(Evidence::is_away)
    }

    /// The gateway at the far end of a link has told something. More than can be of use is let go.
    pub(crate) fn hear(&mut self, now: Instant, way: Way, report: LinkReport) {
        let Some(link) = self.get_mut(way) else { return };
        link.far_end.hear(now, &report);
        self.note_report(way, report);
    }

    fn note_report(&mut self, way: Way, report: LinkReport) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push((way, report));
        }
    }

    /// What has been told since this was last asked, in order.
    pub(crate) fn take_reports(&mut self) -> Vec<(Way, LinkReport)> {
        core::mem::take(&mut self.reports)
    }
}

impl Link {
    fn new(config: &Config, iface: IfaceId, declared: &config::Link, identity: Identity) -> Self {
        let mut link = Self {
            iface,
            pace: Pace::declared(declared),
            budget: Budget::new(declared.rate_bps, declared.rtt),
            pool_bytes: config.limits.pool_bytes,
            clients: Clients::default(),
            evidence: Evidence::default(),
            silence: Silence::default(),
            boxes: Boxes::default(),
            declared_rtt: declared.rtt,
            measured_rtt: None,
            overhead_bytes: declared.overhead_bytes,
            way_in: WayIn::new(declared.rate_in_bps),
            is_half_duplex: declared.is_half_duplex,
            oversize: declared.oversize,
            initial_window: declared.leg.initial_window,
            unfair_window_bytes: declared.leg.unfair_window_bytes,
            losses: Losses::default(),
            copies: CopyBudget::new(declared.copies == Copies::Off),
            memory: Memory::default(),
            meter: Meter::new(identity),
            spent: Spent::default(),
            answered_bytes: 0,
            way_back: WayBack::default(),
            told_bps: declared.rate_bps.unwrap_or(0),
            far_end: FarEnd::default(),
            openings: Openings::default(),
            round_trip: RoundTrip::default(),
            full_round_trip: RoundTrip::default(),
            unwaited_round_trip: RoundTrip::default(),
            last_handshake: None,
            returns: Returns::default(),
            action: declared.action,
            is_metered: declared.is_metered,
            explicit: declared.explicit.clone(),
            pairs: Pairs::new(declared.xcp_context),
            shims: declared.xcp_shim.map(|_| Shims::default()),
        };
        link.follow();
        link
    }

    /// The interface that it lies behind.
    #[must_use]
    pub fn iface(&self) -> IfaceId {
        self.iface
    }

    /// What the packets that were made for it were spent on.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// The same, to be counted.
    pub(crate) fn spent_mut(&mut self) -> &mut Spent {
        &mut self.spent
    }

    /// Who says that it is down, and what follows.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// Nothing is sent into it but what asks whether it carries anything.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        self.evidence.state() == State::Probing
    }

    /// Times at which it came back, and what was on hand then.
    #[must_use]
    pub fn returns(&self) -> Returns {
        self.returns
    }

    /// What is done with connections over it that no rule names; `None`: the default action. Far
    /// links are filled by splitting alone, whatever they do.
    #[must_use]
    pub fn action(&self, now: Instant) -> Option<Action> {
        Some(match self.action? {
            LinkAction::Custody(notice) => Action::Custody(notice),
            LinkAction::Auto(notice) if self.returns.are_frequent(now) && self.is_near() => {
                Action::Custody(notice)
            }
            LinkAction::Split | LinkAction::Auto(_) => Action::Split,
        })
    }

    /// The same, as it is said: for people.
    #[must_use]
    pub fn said_action(&self) -> Option<LinkAction> {
        self.action
    }

    pub(crate) fn set_action(&mut self, action: Option<LinkAction>) {
        self.action = action;
    }

    /// Routers say how fast what goes into it is sent.
    #[must_use]
    pub fn is_controlled_by_routers(&self) -> bool {
        self.pace().clock() == Clock::Connections(farlink_cc::Kind::Xcp)
    }

    /// Where its rate is known from, and who is the clock of what goes into it.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Its rate is known from somewhere else now.
    pub(crate) fn set_rate_source(&mut self, source: RateSource) {
        self.pace = self.pace.with_source(source);
        self.follow();
    }

    /// Somebody else is the clock now.
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.pace = self.pace.with_clock(clock);
        if !self.is_controlled_by_routers() {
            self.pairs.forget_all();
        }
        self.follow();
    }

    /// Bits per second: what the link has been found to carry, else as the operator says.
    #[must_use]
    pub fn rate_in_force_bps(&self) -> Option<u64> {
        self.pace.source().rate_bps()
    }

    /// The operator says the rate.
    #[must_use]
    pub fn is_rate_declared(&self) -> bool {
        self.pace.source().declared_bps().is_some()
    }

    /// The operator says the rate, the link carries three quarters of that or more, and more than
    /// so many bytes of it in a round trip.
    #[must_use]
    pub fn holds_more_than(&self, bytes: u64) -> bool {
        let rates = self.pace.source().declared_bps().zip(self.rate_in_force_bps());
        let carries = rates.filter(|(said, carries)| *carries >= said / 4 * 3).map(|(_, carries)| carries);
        carries
            .zip(self.rtt_in_force())
            .is_some_and(|(bps, rtt)| u128::from(bps) * rtt.as_micros() > u128::from(bytes) * 8_000_000)
    }

    /// Bytes that the link layer adds to a packet.
    #[must_use]
    pub fn overhead_bytes(&self) -> u32 {
        self.overhead_bytes
    }

    /// The initial window of connections that begin.
    #[must_use]
    pub fn initial_window(&self) -> InitialWindow {
        self.initial_window
    }

    /// Another one from now on.
    pub(crate) fn set_initial_window(&mut self, window: InitialWindow) {
        self.initial_window = window;
    }

    /// The window of [`farlink_cc::Kind::Unfair`].
    #[must_use]
    pub fn unfair_window_bytes(&self) -> Option<u64> {
        self.unfair_window_bytes
    }

    /// A gateway has been heard at the far end.
    pub(crate) fn meet(&mut self, hello: Hello, host: IpAddr) {
        self.far_end.meet(hello, host);
    }

    /// Whether what this gateway tells counts for more than the host whose connection it comes on.
    pub(crate) fn believes(&self, gateway: Identity) -> bool {
        self.far_end.is_believed(gateway)
    }

    /// A host has been heard there without a gateway.
    pub(crate) fn note_plain_host(&mut self, host: IpAddr) {
        self.far_end.note_plain_host(host);
    }

    /// The gateways that have been heard there, the newest last.
    pub fn gateways(&self) -> impl Iterator<Item = Hello> {
        self.far_end.gateways()
    }

    /// A SYN that asked for a gateway at the far end has been answered, by a gateway or by the host
    /// alone.
    pub(crate) fn note_answer(&mut self, of_gateway: bool) {
        self.far_end.note_answer(of_gateway);
    }

    /// A SYN has come in over it that a gateway there has sent on.
    pub(crate) fn note_asked(&mut self) {
        self.far_end.note_asked();
    }

    /// Handshakes over it in which a gateway at its other end has taken part so far.
    #[must_use]
    pub fn handshakes_with_gateway(&self) -> u64 {
        self.far_end.met()
    }

    /// How the SYN goes that a host sends for the `syns`-th time, where no box is known.
    #[must_use]
    pub(crate) fn asks_at(&self, syns: u32, is_away: bool, repeated: Goes) -> Goes {
        self.far_end.asks_at(syns, is_away, repeated)
    }

    /// A burst has left from which the other gateway will tell the rate.
    pub(crate) fn note_train(&mut self, now: Instant) {
        self.far_end.note_train(now);
    }

    /// What it tells of the burst may still come.
    #[must_use]
    pub fn train_is_under_way(&self, now: Instant, rtt: Option<Duration>) -> bool {
        self.far_end.train_is_under_way(now, rtt.or(self.measured_rtt()))
    }

    /// The newest transmission that is known to have arrived, where the link delivers. `None`:
    /// nothing has been told of late.
    #[must_use]
    pub fn delivers(&self, now: Instant) -> Option<Instant> {
        self.far_end.delivers(now, self.patience())
    }

    /// Packets stand in line before it: what would have been answered after this, had it not
    /// waited, stands behind those that have been. `None`: none do, as far as is known.
    #[must_use]
    pub fn line(&self, now: Instant) -> Option<Instant> {
        self.far_end.line(now, self.patience())
    }

    /// So much has been delivered, and so much was found to be lost.
    pub(crate) fn note_losses(&mut self, delivered_bytes: u64, lost_bytes: u64) {
        self.losses.note(delivered_bytes, lost_bytes);
    }

    /// Its budget goes by what is lost.
    pub(crate) fn reckon_with_losses(&mut self) {
        self.budget.losses_changed(self.losses.sent_and_lost());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::Interface;

    pub(super) const SAT: IfaceId = IfaceId(3);
    const LAN: IfaceId = IfaceId(4);

    pub(super) fn links(rate_bps: Option<u64>) -> Links {
        let interface =
            |id, link| Interface { id, name: String::new(), domain: 0, addresses: Vec::new(), link };
        let sat = config::Link { rate_bps, ..config::Link::default() };
        let interfaces = vec![interface(LAN, None), interface(SAT, Some(sat))];
        Links::new(&Config { interfaces, ..Config::default() })
    }

    #[test]
    fn a_way_leads_into_a_link_or_out_of_an_interface() {
        let links = links(None);
        let into = Way::Link(LinkId(0));
        assert_eq!((links.way(SAT), links.iface(into)), (into, SAT));
        assert_eq!(links.get(into).map(Link::iface), Some(SAT));
        for other in [LAN, IfaceId(5), IfaceId::OTHER] {
            assert_eq!(links.way(other), Way::Ordinary(other));
            assert_eq!(links.iface(Way::Ordinary(other)), other);
            assert!(links.get(Way::Ordinary(other)).is_none() && links.at(other).is_none());
        }
    }

    #[test]
    fn what_is_back_is_told_in_order_and_away_until_it_is_used_again() {
        let (mut links, now) = (links(None), Instant::from_millis(5));
        let (sat, lan, unknown) = (links.way(SAT), links.way(LAN), Way::Ordinary(IfaceId::OTHER));
        for way in [sat, lan, unknown] {
            links.tell(now, way, Witness::Kernel, false);
        }
        assert!(links.is_away(sat) && links.is_away(lan) && !links.is_away(unknown));
        links.tell(now, lan, Witness::Kernel, true);
        links.tell(now, sat, Witness::Kernel, true);
        links.tell(now, unknown, Witness::Kernel, true);
        links.tell(now, sat, Witness::Kernel, false);
        links.tell(now, sat, Witness::Operator, true);
        assert_eq!(links.take_back(), [lan, unknown], "the operator cannot take back the carrier's word");
        assert!(!links.are_some_back() && links.is_away(lan));
        assert!(links.come_back(now, lan) && !links.is_away(lan) && links.is_any_away());
        links.tell(now, sat, Witness::Kernel, true);
        links.come_back(now, sat);
        assert!(!links.is_any_away());
    }
}
