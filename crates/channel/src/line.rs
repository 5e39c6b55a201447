//! The serialisation at the link's rate, and what waits for it.

use farlink_wire::time::{Duration, Instant};
use farlink_xcp::Kind;

use crate::config::ChannelConfig;
use crate::control::Control;
use crate::demand::Asked;
use crate::medium::{Medium, Side};
use crate::payload::Payload;
use crate::schedule::{Section, section};
use crate::waiting::Waiting;

const NS_PER_S: u64 = 1_000_000_000;
/// Changes of rate and contact within one packet that are looked at.
const CHANGES_MAX: usize = 1_000;

/// What waits for the line, and what is on it. Exact in the long run: back-to-back packets follow
/// without gaps and what a division leaves over is carried.
#[derive(Debug)]
pub(crate) struct Line<P> {
    waiting: Waiting<P>,
    current: Option<Current<P>>,
    /// Up to here the line's time is spent.
    clock: Instant,
    /// Time beyond `clock` in units of `1 / rate` ns.
    fraction: u64,
    section: Section,
    /// It is shared with the other direction.
    medium: Option<(Medium, Side)>,
    /// Its rate is asked for.
    asked: Option<Asked>,
    /// Its queue is controlled by XCP.
    control: Option<Control>,
}

/// A packet being serialised.
#[derive(Debug)]
struct Current<P> {
    packet: P,
    begin: Instant,
    left_bits: u64,
    /// Part of it was sent outside a contact.
    missed_contact: bool,
    /// It says how fast it is sent, and the line has a router for that.
    is_xcp: bool,
}

/// A packet that has left the line.
#[derive(Debug)]
pub(crate) struct Departure<P> {
    pub(crate) packet: P,
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
    pub(crate) missed_contact: bool,
    pub(crate) is_xcp: bool,
}

/// What the line does next, and when.
enum Next {
    /// The current packet's last bit leaves; the rest is the fraction.
    Finish(Instant, u64),
    /// The section ends first.
    Change(Instant),
    /// Nothing, ever, under these parameters.
    Never,
}

impl<P: Payload> Line<P> {
    pub(crate) fn new(config: &ChannelConfig) -> Self {
        let asked = config.demand.map(|demand| Asked::new(Instant::ZERO, demand));
        let first = section(config, Instant::ZERO);
        Self {
            waiting: Waiting::new(Instant::ZERO, config),
            current: None,
            clock: Instant::ZERO,
            fraction: 0,
            section: asked.as_ref().map_or(first, |asked| asked.limit(Instant::ZERO, first)),
            medium: None,
            asked,
            control: Control::new(config.start, config, config.rate_bps),
        }
    }

    /// From the next packet on the line is shared.
    pub(crate) fn share(&mut self, medium: &Medium) {
        self.medium = Some((medium.clone(), medium.join()));
        if let Some(control) = &mut self.control {
            control.share();
        }
    }

    /// A packet's end has to be looked at when it comes: others wait for it.
    pub(crate) fn is_shared(&self) -> bool {
        self.medium.is_some()
    }

    pub(crate) fn waiting(&self) -> &Waiting<P> {
        &self.waiting
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_none() && self.waiting.packets() == 0
    }

    /// A packet arrives. The line has been advanced to `now`. Returns how many packets a full queue
    /// drops: it, or others.
    pub(crate) fn push(&mut self, now: Instant, mut packet: P, config: &ChannelConfig) -> usize {
        let (mut kind, mut plain_part) = (Kind::Plain, 1.0);
        self.follow_demand(now, config);
        if let Some(asked) = &mut self.asked {
            asked.arrive(bits(&packet, config));
        }
        let is_stale = self.section.until.is_some_and(|until| until <= now);
        let section = if is_stale { self.section_at(now, config) } else { self.section };
        if let Some(control) = &mut self.control {
            control.follow(section.rate_bps);
            kind = control.arrive(now, &mut packet, self.waiting.backlog());
            plain_part = control.plain_part();
        }
        if self.current.is_none() {
            if now > self.clock {
                self.clock = now;
                self.fraction = 0;
            }
            self.start(packet, config);
            return 0;
        }
        self.waiting.push(now, packet, (kind, plain_part), config)
    }

    /// The next packet whose serialisation ends at `now` or before.
    pub(crate) fn pop(&mut self, now: Instant, config: &ChannelConfig) -> Option<Departure<P>> {
        loop {
            self.current.as_ref()?;
            self.refresh(config);
            match self.next(config) {
                Next::Finish(end, fraction) if end <= now => {
                    self.clock = end;
                    self.fraction = fraction;
                    let Current { packet, begin, missed_contact, is_xcp, .. } = self.current.take()?;
                    if let Some(next) = self.waiting.pop(end) {
                        self.start(next, config);
                    }
                    return Some(Departure { packet, begin, end, missed_contact, is_xcp });
                }
                Next::Change(at) if at <= now => self.progress(at, config),
                Next::Finish(..) | Next::Change(_) | Next::Never => return None,
            }
        }
    }

    /// Not before this does the next packet leave; `None`: none does.
    pub(crate) fn next_departure(&self, config: &ChannelConfig) -> Option<Instant> {
        self.current.as_ref()?;
        match self.next(config) {
            Next::Finish(at, _) | Next::Change(at) => Some(at),
            Next::Never => None,
        }
    }

    /// Other parameters from `now` on; the line has been advanced to `now` under the old ones.
    pub(crate) fn reconfigure(&mut self, now: Instant, old: &ChannelConfig, new: &ChannelConfig) {
        if self.clock < now {
            self.progress(now, old);
        }
        if old.demand != new.demand {
            self.asked = new.demand.map(|demand| Asked::new(now, demand));
        }
        self.section = self.section_at(self.clock, new);
        self.fraction = 0;
        if (old.xcp, old.xcp_protocol) != (new.xcp, new.xcp_protocol) {
            self.control = Control::new(now, new, self.section.rate_bps);
            if let (Some(control), Some(_)) = (&mut self.control, &self.medium) {
                control.share();
            }
        }
        if !Waiting::<P>::fits(old, new) {
            let moved = self.waiting.take_all(now);
            self.waiting = Waiting::new(now, new);
            for mut packet in moved {
                let kind = Control::kind(&mut packet, new);
                self.waiting.push(now, packet, (kind, 1.0), new);
            }
        }
    }

    fn start(&mut self, mut packet: P, config: &ChannelConfig) {
        let left_bits = bits(&packet, config);
        if let Some((medium, side)) = &self.medium {
            let end = |begin| end_of(begin, left_bits, config);
            let begin = medium.take(*side, self.clock, config.turnaround, end);
            if begin > self.clock {
                self.clock = begin;
                self.fraction = 0;
                self.section = self.section_at(begin, config);
            }
        }
        let mut is_xcp = false;
        if let Some(control) = &mut self.control {
            control.follow(self.section.rate_bps);
            is_xcp = control.depart(self.clock, &mut packet, self.waiting.backlog()) == Kind::Xcp;
        }
        self.current = Some(Current { packet, begin: self.clock, left_bits, missed_contact: false, is_xcp });
    }

    /// What holds at this time, with what was asked for.
    fn section_at(&self, at: Instant, config: &ChannelConfig) -> Section {
        let section = section(config, at);
        self.asked.as_ref().map_or(section, |asked| asked.limit(at, section))
    }

    /// Frames of a line whose rate is asked for have ended until now.
    fn follow_demand(&mut self, now: Instant, config: &ChannelConfig) {
        let Some(asked) = &mut self.asked else { return };
        let overhead = u64::from(config.overhead_bytes).saturating_mul(self.waiting.packets() as u64);
        let waiting_bits = (self.waiting.bytes() as u64).saturating_add(overhead).saturating_mul(8);
        let current_bits = self.current.as_ref().map_or(0, |current| current.left_bits);
        asked.follow(now, waiting_bits.saturating_add(current_bits));
    }

    /// Brings the section up to the clock.
    fn refresh(&mut self, config: &ChannelConfig) {
        if self.section.until.is_some_and(|until| until <= self.clock) {
            self.follow_demand(self.clock, config);
            self.section = self.section_at(self.clock, config);
        }
        if let Some(current) = &mut self.current {
            current.missed_contact |= !self.section.open && !config.contact_hold;
        }
    }

    fn next(&self, config: &ChannelConfig) -> Next {
        let stale = self.section.until.is_some_and(|until| until <= self.clock);
        let section = if stale { self.section_at(self.clock, config) } else { self.section };
        let change = section.until.map_or(Next::Never, Next::Change);
        let Some(current) = &self.current else { return Next::Never };
        if !section.open && config.contact_hold {
            return change;
        }
        match section.rate_bps {
            None => Next::Finish(self.clock, 0),
            Some(0) => change,
            Some(rate) => {
                let (time, fraction) = serialise(current.left_bits, self.fraction, rate);
                let end = self.clock + time;
                match section.until {
                    Some(until) if until < end => Next::Change(until),
                    _ => Next::Finish(end, fraction),
                }
            }
        }
    }

    /// Moves the clock to `at`, within the section and before the current packet's end.
    fn progress(&mut self, at: Instant, config: &ChannelConfig) {
        let passed = at.since(self.clock).as_nanos();
        self.clock = at;
        self.fraction = 0;
        let Some(current) = &mut self.current else { return };
        let sending = self.section.open || !config.contact_hold;
        if let Some(rate) = self.section.rate_bps
            && sending
        {
            let sent = u64::try_from(passed * u128::from(rate) / u128::from(NS_PER_S)).unwrap_or(u64::MAX);
            current.left_bits = current.left_bits.saturating_sub(sent);
        }
        if config.contact_hold && !section(config, at).open {
            // Cut by the end of the contact: the whole packet is sent again in the next one.
            current.left_bits = bits(&current.packet, config);
        }
        if !sending {
            current.begin = at;
        }
    }
}

fn bits<P: Payload>(packet: &P, config: &ChannelConfig) -> u64 {
    (packet.len_bytes() as u64).saturating_add(u64::from(config.overhead_bytes)).saturating_mul(8)
}

/// When so many bits that begin at `at` have left, whatever the rate does meanwhile; `at` or the
/// last change if they never do.
pub(crate) fn end_of(mut at: Instant, bits: u64, config: &ChannelConfig) -> Instant {
    let mut left_bits = bits;
    for _ in 0..CHANGES_MAX {
        let Section { open, rate_bps, until } = section(config, at);
        let waits = !open && config.contact_hold;
        let end = match rate_bps {
            None if !waits => return at,
            Some(rate) if rate > 0 && !waits => at + serialise(left_bits, 0, rate).0,
            _ => Instant::FAR_FUTURE,
        };
        match until {
            Some(until) if until < end => {
                let passed = until.since(at).as_nanos();
                let sent = passed * u128::from(rate_bps.unwrap_or(0)) / u128::from(NS_PER_S);
                left_bits = left_bits.saturating_sub(u64::try_from(sent).unwrap_or(u64::MAX));
                at = until;
                if config.contact_hold && (waits || !section(config, at).open) {
                    // The whole packet is sent again in the next contact.
                    left_bits = bits;
                }
            }
            _ if end == Instant::FAR_FUTURE => return at,
            _ => return end,
        }
    }
    at
}

/// Time for so many bits after a rest of time, and the new rest.
fn serialise(bits: u64, fraction: u64, rate_bps: u64) -> (Duration, u64) {
    let (time, rest) = match bits.checked_mul(NS_PER_S).and_then(|work| work.checked_add(fraction)) {
        Some(work) => (work.checked_div(rate_bps).unwrap_or(0), work.checked_rem(rate_bps).unwrap_or(0)),
        None => {
            let work = u128::from(bits) * u128::from(NS_PER_S) + u128::from(fraction);
            let rate = u128::from(rate_bps.max(1));
            (u64::try_from(work / rate).unwrap_or(u64::MAX), u64::try_from(work % rate).unwrap_or(0))
        }
    };
    (Duration::from_nanos(time), rest)
}
