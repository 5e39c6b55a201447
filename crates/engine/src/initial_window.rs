//! How much a connection sends into a leg before the first acknowledgement, by what is known of the
//! path (thesis 4.4.1).
//!
//! The round trip of the handshake times the rate of the link is what the path holds. Where that is
//! more than a window without scaling can say, a larger initial window pays; elsewhere the usual
//! one is enough. Where acknowledgements wait for a slow way back, the round trip is that much
//! longer. The larger one is what the operator says, or this connection's share of the link:
//! all of it where the operator says the rate, because the egress queue then keeps what is sent at
//! once from flooding anything; half of what earlier connections had where it is only remembered
//! (RFC 9959 section 4.2.1).

use farlink_wire::{Duration, Instant};

use crate::config::{
    Config, INITIAL_WINDOW_SEGMENTS, INITIAL_WINDOW_SEGMENTS_MAX, InitialWindow, OnLongPaths,
};
use crate::cx::Cx;
use crate::hosts::Hosts;
use crate::link::{Link, Links};
use crate::relay::Relay;
use crate::side::Side;
use crate::split::Split;

/// The burst from which a gateway at the other end tells a link's rate, segments.
const TRAIN_SEGMENTS: u32 = 32;
/// The largest window that can be said without scaling, bytes.
const UNSCALED_WINDOW_BYTES: u64 = 65_535;
/// The initial window of a short path that is nobody's own link, segments (RFC 3390).
const SHORT_PATH_SEGMENTS: u32 = 4;
/// What such a leg is taken to carry, bits per second.
const ORDINARY_RATE_BPS: u64 = 100_000_000;
/// IP and TCP header with timestamps, IPv4.
const HEADER_BYTES: u64 = 52;

/// What is known of a path when a connection begins.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    /// Round trip: of the handshake, else of the link; with the time that acknowledgements wait.
    rtt: Option<Duration>,
    /// So much of that acknowledgements wait on their way back.
    waits: Duration,
    /// Rate that the operator says, or that the gateways have found out; bits per second of IP
    /// packets.
    rate_bps: Option<u64>,
    /// Share that a connection had which has ended, bytes in a round trip.
    remembered_bytes: Option<u64>,
    /// Connections that have the link to themselves, this one included.
    sharers: u64,
    /// The rate is to be found out, and the gateway that it takes has answered.
    wants_train: bool,
    /// Payload of a segment, bytes.
    mss: u32,
}

/// How a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// Segments before the first acknowledgement.
    pub segments: u32,
    /// They are spread over this round trip: nobody has said that the path takes them at once.
    pub paced_over: Option<Duration>,
}

impl Path {
    /// How a connection begins on this path.
    fn start(&self, window: InitialWindow) -> Start {
        let segments = self.segments(window);
        let guessed = self.rate_bps.is_none() && self.remembered_bytes.is_some();
        let larger = window.on_long_paths == OnLongPaths::Share && segments > window.segments;
        Start { segments, paced_over: self.rtt.filter(|_| guessed && larger) }
    }

    /// Segments that this path begins with.
    fn segments(&self, window: InitialWindow) -> u32 {
        if window == InitialWindow::AUTO && self.wants_train && self.remembered_bytes.is_none() {
            return TRAIN_SEGMENTS;
        }
        let held = self.rate_bps.zip(self.rtt).map(|(rate, rtt)| bytes_in(rate, rtt));
        // What one connection had is the least that the path holds.
        let holds = held.or(self.remembered_bytes).unwrap_or(0);
        if holds <= UNSCALED_WINDOW_BYTES {
            return window.segments;
        }
        match window.on_long_paths {
            OnLongPaths::Same => window.segments,
            OnLongPaths::Segments(segments) => segments,
            OnLongPaths::Share => {
                let said = held.map(|all| all / self.sharers.max(1));
                let share = said.or(self.remembered_bytes.map(|had| had / 2)).unwrap_or(0);
                let segments = share / (u64::from(self.mss) + HEADER_BYTES);
                let segments = u32::try_from(segments).unwrap_or(INITIAL_WINDOW_SEGMENTS_MAX);
                segments.clamp(self.least_segments(window), INITIAL_WINDOW_SEGMENTS_MAX)
            }
        }
    }

    /// No fewer than the usual window, for each round trip in which the first acknowledgement waits
    /// on its way back: what has left is out of the way there long before.
    fn least_segments(&self, window: InitialWindow) -> u32 {
        let rtt = self.rtt.filter(|_| self.rate_bps.is_some()).unwrap_or_default();
        let there = rtt.saturating_sub(self.waits).as_micros();
        let segments = u128::from(window.segments) * rtt.as_micros();
        let segments = segments.checked_div(there).and_then(|count| u32::try_from(count).ok());
        segments.unwrap_or(window.segments).clamp(window.segments, INITIAL_WINDOW_SEGMENTS_MAX)
    }
}

/// Bytes that a path of this rate holds.
pub(crate) fn bytes_in(rate_bps: u64, rtt: Duration) -> u64 {
    u64::try_from(u128::from(rate_bps) * rtt.as_micros() / 8_000_000).unwrap_or(u64::MAX)
}

impl Hosts<'_> {
    /// How the data towards `to` begins.
    pub(crate) fn start(&self, config: &Config, links: &Links, to: Side) -> Start {
        let leg = self.legs.get(to);
        let Some(link) = links.get(leg.out) else {
            return Start {
                segments: ordinary(config.ordinary.initial_window, leg.handshake_rtt()),
                paced_over: None,
            };
        };
        let rtt = leg.handshake_rtt().or(leg.srtt()).or(link.rtt_in_force());
        // What a handshake has waited for on its way back, acknowledgements of what is sent now
        // wait for behind those that do already.
        let shown = leg.handshake_rtt().map_or(Duration::ZERO, |rtt| link.handshake_waits(rtt));
        let waits = self.acks_wait(links, to).max(shown);
        let path = Path {
            rtt: rtt.map(|rtt| rtt + waits),
            waits: rtt.map_or(Duration::ZERO, |_| waits + shown),
            rate_bps: link.rate_in_force_bps(),
            remembered_bytes: rtt.and_then(|rtt| link.remembered_bytes(leg.heard_at(), rtt)),
            sharers: links.sharers(leg.out) + 1,
            // One burst tells the rate; several at once would only fill the queue before the link.
            wants_train: link.pace().source().is_sought()
                && leg.peer.is_marked()
                && links.sharers(leg.out) == 0,
            mss: self.segment_payload(to),
        };
        path.start(link.initial_window())
    }
}

impl Split<'_> {
    /// Before a connection sends: the burst that tells the rate, where the one at whose beginning
    /// it was due had little to send. One that has more waiting than its window, and nothing
    /// acknowledged yet, sends it instead. One in a round trip, as at the beginning.
    pub(crate) fn send_train(&mut self, cx: &mut Cx<'_>, to: Side) {
        let leg = self.legs.get(to);
        let (out, from) = (leg.out, to.other());
        let wanted = |l: &&Link| l.pace().source().is_sought() && l.initial_window() == InitialWindow::AUTO;
        let Some(link) = cx.links.get(out).filter(wanted).filter(|_| leg.peer.is_marked()) else { return };
        let rtt = leg.handshake_rtt().or(link.rtt_in_force());
        let relay = self.relays.get(from);
        if relay.tx.delivered_bytes() > 0 {
            return;
        }
        let mss = u64::from(relay.tx.mss());
        let usual = u64::from(INITIAL_WINDOW_SEGMENTS) * mss;
        if relay.tx.pipe() > usual {
            if let Some(link) = cx.links.get_mut(out) {
                link.note_train(cx.now);
            }
            return;
        }
        let limited = relay.tx.pipe() + mss > relay.tx.cc().cwnd_bytes();
        let end = relay.supply().end.min(relay.tx.window_edge());
        let waits = u64::try_from(end.diff(relay.tx.snd_nxt())).unwrap_or(0);
        let remembered = rtt.and_then(|rtt| link.remembered_bytes(leg.heard_at(), rtt));
        let enough = waits >= u64::from(TRAIN_SEGMENTS - INITIAL_WINDOW_SEGMENTS) * mss;
        let under_way = link.train_is_under_way(cx.now, rtt);
        if !limited || !enough || remembered.is_some() || under_way {
            return;
        }
        let config = self.controller_config(cx.config, cx.links, from);
        let config = farlink_cc::Config { initial_window_segments: TRAIN_SEGMENTS, ..config };
        self.relays.get_mut(from).tx.begin_anew(&config);
    }

    /// What this connection had of declared links is remembered for the next ones.
    pub(crate) fn remember_shares(&self, now: Instant, links: &mut Links) {
        let relays = &*self.relays;
        for to in [Side::A, Side::B] {
            let leg = self.legs.get(to);
            let Some(link) = links.get_mut(leg.out) else { continue };
            if let Some((window, rtt)) = had(relays.get(to.other())) {
                link.remember(now, window, rtt);
            }
        }
    }
}

/// The initial window of a leg that is nobody's own link: never more than RFC 6928 allows. Nobody
/// has said its rate; where even a usual Ethernet would hold no more than a window without scaling
/// can say, a larger burst saves a short round trip and crowds others (thesis 4.4.1).
fn ordinary(window: InitialWindow, rtt: Option<Duration>) -> u32 {
    let short = rtt.is_some_and(|rtt| bytes_in(ORDINARY_RATE_BPS, rtt) <= UNSCALED_WINDOW_BYTES);
    let segments = if window == InitialWindow::AUTO && short { SHORT_PATH_SEGMENTS } else { window.segments };
    segments.clamp(1, INITIAL_WINDOW_SEGMENTS)
}

/// The window that a relay has used up several times over, and its round trip.
fn had(relay: &Relay) -> Option<(u64, Duration)> {
    let window = relay.tx.cc().cwnd_bytes();
    let rtt = relay.tx.rtt().min_rtt();
    let used = relay.tx.delivered_bytes() >= window.saturating_mul(4);
    let governed = !relay.tx.cc().kind().goes_by_link_rate();
    (used && !rtt.is_zero() && governed).then_some((window, rtt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geo() -> Path {
        Path {
            rtt: Some(Duration::from_millis(500)),
            rate_bps: Some(8_000_000),
            sharers: 1,
            mss: 1448,
            ..Path::default()
        }
    }

    #[test]
    fn a_long_path_gets_its_share_and_a_short_one_the_usual_window() {
        let auto = InitialWindow::AUTO;
        assert_eq!(geo().segments(auto), 333, "500 kB");
        assert_eq!(Path { sharers: 10, ..geo() }.segments(auto), 33);
        assert_eq!(Path { sharers: 40, ..geo() }.segments(auto), 10, "never less than the usual one");
        let lan = Path { rtt: Some(Duration::from_millis(20)), ..geo() };
        assert_eq!(lan.segments(auto), 10, "20 kB need no window scale");
        assert_eq!(Path { rtt: None, ..geo() }.segments(auto), 10);
        assert_eq!(Path { rate_bps: None, ..geo() }.segments(auto), 10);
    }

    /// 55 ms there and back, and 184 on the way back alone, which will be as much again: what left
    /// a round trip ago is out of the way there, whether that has been acknowledged or not.
    #[test]
    fn where_acknowledgements_wait_a_window_leaves_for_each_round_trip() {
        let ms = Duration::from_millis;
        let many = Path { rtt: Some(ms(55 + 2 * 184)), waits: ms(2 * 184), sharers: 40, ..geo() };
        assert_eq!(many.segments(InitialWindow::AUTO), 76);
        assert_eq!(Path { waits: Duration::ZERO, ..many }.segments(InitialWindow::AUTO), 10);
        assert_eq!(Path { rate_bps: None, ..many }.segments(InitialWindow::AUTO), 10);
    }

    #[test]
    fn the_operators_two_values_are_the_thesis_default_and_higher_window() {
        let two = InitialWindow { segments: 1, on_long_paths: OnLongPaths::Segments(16) };
        assert_eq!(geo().segments(two), 16);
        assert_eq!(Path { rtt: Some(Duration::from_millis(20)), ..geo() }.segments(two), 1);
        let one = InitialWindow::fixed(4);
        assert_eq!(geo().segments(one), 4);
        assert_eq!(Path { wants_train: true, ..Path::default() }.segments(one), 4, "what is said counts");
    }

    #[test]
    fn half_of_what_is_remembered_where_no_rate_is_known() {
        let unknown = Path { rate_bps: None, ..geo() };
        let known = Path { remembered_bytes: Some(300_000), ..unknown };
        let start = known.start(InitialWindow::AUTO);
        assert_eq!((start.segments, start.paced_over), (100, known.rtt), "and not all at once");
        assert_eq!(geo().start(InitialWindow::AUTO).paced_over, None, "the queue is the clock");
        assert_eq!(Path { wants_train: true, ..unknown }.segments(InitialWindow::AUTO), TRAIN_SEGMENTS);
        assert_eq!(Path { remembered_bytes: Some(40_000), ..unknown }.segments(InitialWindow::AUTO), 10);
    }

    #[test]
    fn a_leg_among_strangers_never_begins_with_more_than_ten_segments() {
        let ms = Duration::from_millis;
        assert_eq!(ordinary(InitialWindow::AUTO, Some(ms(1))), 4);
        assert_eq!(ordinary(InitialWindow::AUTO, Some(ms(20))), 10);
        assert_eq!(ordinary(InitialWindow::AUTO, None), 10);
        assert_eq!(ordinary(InitialWindow::fixed(3), Some(ms(20))), 3);
        assert_eq!(ordinary(InitialWindow::fixed(100), Some(ms(20))), 10);
    }
}
