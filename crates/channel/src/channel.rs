//! The channel itself: a packet's way through it.

use farlink_wire::time::{Duration, Instant};

use crate::carried::Carried;
use crate::config::{ChannelConfig, Stats, WinkSide};
use crate::flight::Flight;
use crate::harm::Harm;
use crate::impair::Impairments;
use crate::line::{Departure, Line};
use crate::look::Look;
use crate::medium::Medium;
use crate::payload::Payload;
use crate::schedule::section;
use crate::wink::Winker;

/// Intervals and contacts that [`Channel::next_transition`] looks ahead.
const TRANSITION_STEPS: usize = 10_000;

/// One direction of an emulated path.
#[derive(Debug)]
pub struct Channel<P> {
    config: ChannelConfig,
    seed: u64,
    line: Line<P>,
    /// The line behind, and its parameters.
    behind: Option<(Line<P>, ChannelConfig)>,
    harm: Harm,
    impairments: Impairments,
    winker: Option<Winker>,
    flight: Flight<P>,
    /// The latest delivery that jitter has to keep behind.
    last_due: Instant,
    /// No packet takes less.
    least_delay: Duration,
    stats: Stats,
    carried: Carried,
}

impl<P: Payload> Channel<P> {
    /// An empty channel. What is random in it depends on `seed` alone.
    #[must_use]
    pub fn new(config: ChannelConfig, seed: u64) -> Self {
        Self {
            seed,
            line: Line::new(&config),
            behind: behind(&config),
            harm: Harm::new(seed),
            impairments: Impairments::new(seed),
            winker: config.wink.map(|wink| Winker::new(&wink, config.start, seed)),
            flight: Flight::default(),
            last_due: Instant::ZERO,
            least_delay: config.least_delay(),
            stats: Stats::default(),
            carried: Carried::default(),
            config,
        }
    }

    /// From the next packet on it has its medium together with whoever else shares it.
    pub fn share(&mut self, medium: &Medium) {
        self.line.share(medium);
    }

    /// A packet enters. Times must not go back from call to call.
    pub fn push(&mut self, now: Instant, packet: P) {
        self.advance(now);
        self.stats.offered_packets += 1;
        self.stats.offered_bytes += packet.len_bytes() as u64;
        self.carried.enters(now.since(self.config.start), packet.len_bytes());
        self.stats.dropped_queue += self.line.push(now, packet, &self.config) as u64;
        let waiting = self.line.waiting();
        self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(waiting.bytes());
        self.stats.queue_max_packets = self.stats.queue_max_packets.max(waiting.packets());
        self.carried.waits(now.since(self.config.start), waiting.backlog());
    }

    /// The next packet whose time of delivery has come.
    pub fn pop(&mut self, now: Instant) -> Option<P> {
        self.advance(now);
        let packet = self.flight.pop(now)?;
        self.stats.delivered_packets += 1;
        self.stats.delivered_bytes += packet.len_bytes() as u64;
        Some(packet)
    }

    /// When [`Self::pop`] can next succeed, as far as is known now: never later than it does, but
    /// perhaps earlier (the packet may turn out lost, or late). `None`: nothing is under way, or
    /// what waits can never leave.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let after = if self.line.is_shared() { Duration::ZERO } else { self.least_delay };
        let after = if self.behind.is_some() { Duration::ZERO } else { after };
        let departing = self.line.next_departure(&self.config).map(|at| at + after);
        let behind = self.behind.as_ref().and_then(|(line, config)| line.next_departure(config));
        [self.flight.next_due(), departing, behind].into_iter().flatten().min()
    }

    /// Other parameters from now on: what propagates already is not touched; what waits, and what
    /// is left of the packet on the line, leaves under the new ones. The draws go on where they
    /// were. With another `start` the schedule, and the record of what was carried, begin anew.
    pub fn set_config(&mut self, now: Instant, config: ChannelConfig) {
        self.advance(now);
        self.line.reconfigure(now, &self.config, &config);
        if config.start != self.config.start {
            self.carried = Carried::default();
        }
        if config.behind != self.config.behind {
            self.behind = behind(&config);
        }
        if config.wink != self.config.wink || config.start != self.config.start {
            self.winker = config.wink.map(|wink| Winker::new(&wink, config.start, self.seed));
        }
        self.least_delay = config.least_delay();
        self.config = config;
    }

    /// Changes some of the parameters, as [`Self::set_config`].
    pub fn update(&mut self, now: Instant, change: impl FnOnce(&mut ChannelConfig)) {
        let mut config = self.config.clone();
        change(&mut config);
        self.set_config(now, config);
    }

    /// The parameters in force.
    #[must_use]
    pub fn config(&self) -> &ChannelConfig {
        &self.config
    }

    /// Whether the link is there: in contact and not winking.
    #[must_use]
    pub fn is_up(&self, now: Instant) -> bool {
        self.is_up_with(&mut self.winker.clone(), now)
    }

    /// The next time after `now` at which [`Self::is_up`] changes; `None`: not within the next
    /// 10,000 intervals and contacts.
    #[must_use]
    pub fn next_transition(&self, now: Instant) -> Option<Instant> {
        let mut winker = self.winker.clone();
        let before = self.is_up_with(&mut winker, now);
        let mut at = now;
        for _ in 0..TRANSITION_STEPS {
            let contact = section(&self.config, at).until;
            let wink = winker.as_ref().map(|winker| winker.next_interval(at));
            at = [contact, wink].into_iter().flatten().min()?;
            if self.is_up_with(&mut winker, at) != before {
                return Some(at);
            }
        }
        None
    }

    /// Bytes that wait for the line, without the packet on it.
    #[must_use]
    pub fn queue_bytes(&self) -> usize {
        self.line.waiting().bytes()
    }

    /// Nothing waits and nothing is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = self.line.is_empty() && self.behind.as_ref().is_none_or(|(line, _)| line.is_empty());
        is_empty && self.flight.len() == 0
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What the line has carried, by time.
    #[must_use]
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    fn is_up_with(&self, winker: &mut Option<Winker>, at: Instant) -> bool {
        section(&self.config, at).open && !winker.as_mut().is_some_and(|winker| winker.is_down(at))
    }

    /// A packet has left the line.
    fn count(&mut self, look: Look, len_bytes: usize) {
        match look {
            Look::Ack { of_copy, .. } => {
                self.stats.ack_packets += 1;
                self.stats.ack_bytes += len_bytes as u64;
                self.stats.copy_ack_bytes += if of_copy { len_bytes as u64 } else { 0 };
            }
            Look::Fragment { .. } => self.stats.fragments += 1,
            Look::Other => {}
        }
    }

    fn advance(&mut self, now: Instant) {
        while let Some(departure) = self.line.pop(now, &self.config) {
            if self.behind.is_none() {
                self.depart(departure);
                continue;
            }
            self.advance_behind(departure.end);
            if let Some((line, config)) = &mut self.behind {
                self.stats.dropped_queue += line.push(departure.end, departure.packet, config) as u64;
            }
        }
        self.advance_behind(now);
    }

    fn advance_behind(&mut self, now: Instant) {
        while let Some((line, config)) = &mut self.behind
            && let Some(departure) = line.pop(now, config)
        {
            self.depart(departure);
        }
    }

    /// A packet has left the line: is it lost, and when does it arrive?
    fn depart(&mut self, departure: Departure<P>) {
        let Departure { mut packet, begin, end, missed_contact, is_xcp } = departure;
        let len_bytes = packet.len_bytes();
        self.stats.serialised_bytes += len_bytes as u64 + u64::from(self.config.overhead_bytes);
        self.carried.leaves(self.config.start, (begin, end), len_bytes as u64, is_xcp);
        self.carried.leaves_of(
            end.since(self.config.start),
            packet.ip_packet(),
            len_bytes,
            self.config.shims(),
        );
        if let Some(harm) = self.config.xcp_harm {
            self.harm.pass(harm, self.config.shims(), &mut packet);
        }
        let look = Look::of(packet.ip_packet());
        self.count(look, len_bytes);
        if let Look::Ack { number, .. } = look {
            let at = end.since(self.config.start);
            self.carried.acknowledges(at, packet.ip_packet(), number, self.config.shims());
        }
        let loss = self.config.loss_at(end);
        let fate = self.impairments.draw(&self.config, loss, (len_bytes, look.is_fragment()));
        let extra = if fate.reordered { self.config.reorder_extra } else { Duration::ZERO };
        let mut due = end + self.config.delay_at(end) + fate.jitter;
        if self.config.jitter_keeps_order {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        due = self.config.end_of_frame(due + extra);

        let winked =
            self.winker.as_mut().is_some_and(|winker| match self.config.wink.map(|wink| wink.side) {
                Some(WinkSide::Exit) => winker.is_down(due),
                _ => winker.is_down_within(begin, end),
            });
        let counter = if missed_contact {
            &mut self.stats.dropped_contact
        } else if winked {
            &mut self.stats.dropped_wink
        } else if self.config.firewall_at(end).is_some_and(|firewall| look.is_dropped_by(firewall)) {
            &mut self.stats.dropped_firewall
        } else if fate.lost {
            &mut self.stats.dropped_loss
        } else if fate.bit_error {
            &mut self.stats.dropped_ber
        } else {
            if let Some(bit) = fate.corrupted {
                packet.flip_bit(bit);
                self.stats.corrupted += 1;
            }
            self.stats.reordered += u64::from(fate.reordered);
            let copy = fate.duplicated.then(|| packet.clone());
            self.flight.push(due, fate.reordered, packet);
            if let Some(copy) = copy {
                self.stats.duplicated += 1;
                self.flight.push(due, fate.reordered, copy);
            }
            return;
        };
        *counter += 1;
    }
}

/// The line behind that of a channel, empty, and its parameters.
fn behind<P: Payload>(config: &ChannelConfig) -> Option<(Line<P>, ChannelConfig)> {
    let behind = config.behind?;
    let own = ChannelConfig {
        start: config.start,
        rate_bps: Some(behind.rate_bps),
        queue_limit_bytes: Some(behind.queue_limit_bytes),
        overhead_bytes: config.overhead_bytes,
        ..ChannelConfig::default()
    };
    Some((Line::new(&own), own))
}
