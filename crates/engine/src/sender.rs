//! What leaves on a leg, and when: what is under way, whether more may be sent, and the window of
//! the receiver, brought together.

mod ack;
mod ahead;
mod boundary;
mod check;
mod departures;
mod early;
mod flight;
mod governor;
mod held;
mod kept;
mod lateness;
mod pair;
mod peer_window;
mod plan;
mod silence;
mod stamps;
mod timer;
mod way;

use farlink_cc::{Controller, News};
use farlink_wire::xcp::XcpFields;
use farlink_wire::{Duration, Instant, SeqNum, WireSize};
use farlink_xcp::Context;

use crate::bookmark::{Bookmark, bookmarks};
use crate::link::Acknowledged;
use crate::rtt::RttEstimator;
use crate::scoreboard::Scoreboard;
use crate::spent::{Heading, Ledger, Spent};
pub use departures::Departed;
use flight::Flight;
use governor::Governor;
use kept::Kept;
use lateness::Lateness;
use pair::Membership;
use peer_window::PeerWindow;
use silence::{Blind, Silence};
use timer::Timers;

pub use pair::Feedback;
pub use plan::{Plan, Purpose, Supply};
pub use silence::Question;

/// Bounds of the retransmission timer, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct RtoBounds {
    /// Lower bound.
    pub min: Duration,
    /// Upper bound.
    pub max: Duration,
}

/// What happened inside, for counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Fast recovery began.
    pub recovery: bool,
    /// A timeout expired.
    pub rto: bool,
    /// SND.UNA advanced.
    pub progress: bool,
    /// When the newest segment left that is acknowledged for the first time, as far as that is
    /// clear, and what follows it.
    pub newest: Option<(Instant, SeqNum)>,
    /// It had been sent before.
    pub newest_again: bool,
    /// Some segment that is acknowledged for the first time was sent only once.
    pub original: bool,
    /// Bytes found to be delivered.
    pub delivered_bytes: u64,
    /// Bytes that have come twice, as the receiver tells.
    pub twice_bytes: u64,
    /// Bytes found to be lost, by other causes than an outage.
    pub lost_bytes: u64,
    /// A segment that was larger than the others has arrived (true) or has been lost.
    pub mtu_probe: Option<bool>,
    /// It was asked whether it lives, and has not answered.
    pub silent: bool,
    /// The first of segments that are larger than a packet has not been acknowledged in time.
    pub unproved: bool,
    /// Such have arrived; the newest of them left then.
    pub large_sent_at: Option<Instant>,
    /// The round trip that was measured.
    pub rtt: Option<Duration>,
    /// The shortest of the connection.
    pub min_rtt: Duration,
    /// With a full segment.
    pub rtt_is_full: bool,
    /// So long the acknowledgement waited on its way back, as far as that shows.
    pub waited_back: Option<Duration>,
}

impl Happened {
    /// What it tells of the link.
    pub(crate) fn of_link(&self) -> Acknowledged {
        Acknowledged {
            newest_sent_at: self.newest.map(|(at, _)| at),
            newest_again: self.newest_again,
            place: (0, 0, 0),
            delivered_bytes: self.delivered_bytes,
            rtt: self.rtt,
            min_rtt: self.min_rtt,
            waited_back: self.waited_back,
        }
    }

    /// The newest segment that is acknowledged, where that is known: when it left, and what follows
    /// it. Whether it, known or not, had been sent before. And when the newest of large ones left.
    fn note_newest(
        &mut self,
        newest: Option<(Instant, SeqNum, bool)>,
        again: bool,
        large_sent_at: Option<Instant>,
    ) {
        self.newest = newest.map(|(sent_at, end, _)| (sent_at, end));
        self.newest_again = again;
        self.large_sent_at = large_sent_at;
    }
}

/// The sending half of a relay.
#[derive(Debug)]
pub struct Sender {
    flight: Flight,
    governor: Governor,
    peer: PeerWindow,
    ahead: ahead::Ahead,
    /// Segments are larger than a packet, which has so much payload.
    larger_than: Option<u32>,
    /// None of those has arrived yet: the first is waited for so long beyond a round trip.
    proof_wait: Option<Duration>,
    timers: Timers,
    early: early::Early,
    mtu: way::MtuProbe,
    silence: Silence,
    lateness: Lateness,
    /// Of a receiver that stamps what it sends, and has acknowledged something.
    stamps: Option<Box<stamps::Stamps>>,
    kept: Option<Kept>,
    pair: Membership,
    blind: Blind,
    /// The next segment asks the link, whatever else holds it back.
    link_question: Option<Question>,
    /// A tail loss probe is due; and: what was under way when the last one was.
    probe_wanted: bool,
    probed_end: Bookmark,
    /// When something went out last that the receiver answers.
    asked_at: Instant,
    /// All that the source had has been sent; and: will have been with the planned segment.
    dry: bool,
    dry_after: bool,
    /// `None`: nothing has left yet.
    ledger: Option<Box<Ledger>>,
    /// Nothing is left to send for the first time after the planned segment.
    tail_after: bool,
}

bookmarks!(Sender { flight, governor, ahead, mtu, pair, probed_end });

impl Sender {
    /// A sender whose next byte is `next`.
    #[must_use]
    pub fn new(
        now: Instant,
        next: SeqNum,
        cc: Controller,
        mss: u32,
        sack_permitted: bool,
        rto_bounds: RtoBounds,
    ) -> Self {
        let mut flight = Flight::new(now, next, mss, sack_permitted, rto_bounds);
        if cc.wants_losses() {
            flight.keep_losses();
        }
        Self {
            flight,
            governor: Governor::new(cc),
            peer: PeerWindow::new(next),
            ahead: ahead::Ahead::default(),
            larger_than: None,
            proof_wait: None,
            timers: Timers::default(),
            early: early::Early::default(),
            mtu: way::MtuProbe::default(),
            silence: Silence::default(),
            lateness: Lateness::default(),
            stamps: None,
            kept: None,
            pair: Membership::default(),
            blind: Blind::default(),
            link_question: None,
            probe_wanted: false,
            probed_end: Bookmark::NONE,
            asked_at: now,
            dry: false,
            dry_after: false,
            ledger: None,
            tail_after: false,
        }
    }

    /// Oldest unacknowledged sequence number.
    #[must_use]
    pub fn snd_una(&self) -> SeqNum {
        self.flight.una()
    }
    /// When the byte before this left, also where it has been acknowledged; `None`: that was too
    /// long ago, or not to a gateway.
    #[must_use]
    pub fn departed(&self, end: SeqNum) -> Option<Departed> {
        self.flight.departed(end)
    }
    /// Next new sequence number.
    #[must_use]
    pub fn snd_nxt(&self) -> SeqNum {
        self.flight.next()
    }
    /// Segments that follow each other may be this large, options deducted.
    #[must_use]
    pub fn mss(&self) -> u32 {
        self.flight.mss()
    }
    /// RTT of the leg.
    #[must_use]
    pub fn rtt(&self) -> &RttEstimator {
        self.flight.rtt()
    }
    /// The smallest RTT that has been measured, or what is declared.
    #[must_use]
    pub fn shortest_rtt(&self) -> Option<Duration> {
        self.flight.shortest_rtt()
    }
    /// The congestion controller.
    #[must_use]
    pub fn cc(&self) -> &Controller {
        self.governor.cc()
    }
    /// The scoreboard.
    #[must_use]
    pub fn board(&self) -> &Scoreboard {
        self.flight.board()
    }
    /// Bytes in flight by the scoreboard; duplicate ACKs stand for SACKs where there are none (RFC
    /// 6582).
    #[must_use]
    pub fn pipe(&self) -> u64 {
        self.flight.pipe()
    }
    /// Right edge of the receiver's window.
    #[must_use]
    pub fn window_edge(&self) -> SeqNum {
        self.peer.edge()
    }
    /// The sequence number of a segment without payload that the receiver accepts: SND.NXT, or the
    /// right edge of a window that has shrunk below it (Linux tcp_acceptable_seq).
    #[must_use]
    pub fn acceptable_seq(&self) -> SeqNum {
        let next = self.flight.next();
        if self.peer.is_known() && !self.may_leave_ahead() { next.min(self.peer.edge()) } else { next }
    }
    /// The receiver's window in bytes.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        u64::from(self.peer.room_from(self.flight.una()))
    }
    /// The largest window it has shown (MAX.SND.WND of RFC 5961).
    #[must_use]
    pub fn window_max_bytes(&self) -> u64 {
        u64::from(self.peer.max_bytes())
    }
    /// Payload that the receiver has acknowledged, by ACK or SACK, bytes.
    #[must_use]
    pub fn delivered_bytes(&self) -> u64 {
        self.flight.delivered_bytes()
    }
    /// When something went out last that the receiver answers.
    #[must_use]
    pub fn asked_at(&self) -> Instant {
        self.asked_at
    }
    /// Last time that something was acknowledged, or nothing was outstanding.
    #[must_use]
    pub fn progress_at(&self) -> Instant {
        self.flight.progress_at()
    }
    /// Memory beside the struct itself, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.board().memory_bytes()
            + self.flight.memory_bytes()
            + size_of::<Controller>()
            + self.stamps_bytes()
            + self.ahead.memory_bytes()
            + self.ledger.as_ref().map_or(0, |_| size_of::<Ledger>())
    }

    /// The first window is spread over this round trip.
    pub fn pace_start(&mut self, over: Option<Duration>) {
        self.governor.pace_start(over);
    }
    /// The owner of the link has declared its RTT.
    pub fn declare_rtt(&mut self, rtt: Option<Duration>) {
        self.flight.declare_rtt(rtt);
    }
    /// Before the first sample its timers go by this RTT. `is_certain`: no queue of others makes it
    /// longer.
    pub fn expect_rtt(&mut self, rtt: Option<Duration>, is_certain: bool) {
        self.flight.expect_rtt(rtt, is_certain);
    }
    /// The handshake over the leg repeated a SYN.
    pub fn note_repeated_syns(&mut self) {
        self.flight.note_repeated_syns();
    }
    /// The leg has had this RTT before.
    pub fn remember_rtt(&mut self, rtt: Duration) {
        self.flight.sample_rtt(rtt);
    }
    /// A gateway is heard on this leg, or not. It tells what it holds above a gap in its own
    /// option, whatever the hosts have agreed on.
    pub fn note_gateway(&mut self, heard: bool, hosts_use_sack: bool) {
        self.flight.note_gateway(heard, hosts_use_sack);
    }
    /// Packets of this size leave, with so much payload; returns what each says of its speed.
    pub fn stamp_size(
        &mut self,
        now: Instant,
        (size, payload_bytes): (WireSize, u32),
        wants_more: bool,
        context: Option<&mut Context>,
    ) -> Option<XcpFields> {
        let own = self.governor.stamp(now, (size, payload_bytes), wants_more)?;
        Some(match context.filter(|_| self.cc().asks_routers()) {
            Some(context) => context.on_send(now, &mut self.pair.member, size, wants_more),
            None => own,
        })
    }
    /// What has become of the trust in routers.
    pub fn take_news(&mut self) -> Option<News> {
        self.governor.take_news()
    }
    /// Its turn comes so long after it was ready.
    pub fn wait_for_turn(&mut self, waited: Duration) {
        self.governor.wait_for_turn(waited);
    }
    /// Whether CWR is owed with the next new segment (RFC 3168 6.1.2), which is done with this.
    pub fn take_cwr(&mut self) -> bool {
        self.governor.take_cwr()
    }

    /// So much has left under this heading.
    pub fn note_spent(&mut self, heading: Heading, payload_bytes: u32, size: WireSize) {
        self.ledger.get_or_insert_default().spent.note(heading, payload_bytes, size);
    }
    /// The receiver tells that so much has come twice. Returns what of that can be.
    pub fn note_needless(&mut self, bytes: u64) -> u64 {
        self.ledger.as_mut().map_or(0, |ledger| ledger.spent.note_needless(bytes))
    }
    /// The gateway at the other end has counted so much as come twice, modulo 2^32. Returns what of
    /// that is new.
    pub fn hear_twice(&mut self, bytes: u32) -> u64 {
        self.ledger.as_mut().map_or(0, |ledger| ledger.hear_twice(bytes))
    }
    /// What bytes were spent on since it began.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.ledger.as_ref().map_or_else(Spent::default, |ledger| ledger.spent)
    }

    /// The planned segment is new data that asks for an answer at the end of a flight.
    #[must_use]
    pub fn asks_at_end(&self, plan: &Plan) -> bool {
        plan.purpose == Purpose::New && *self.probed_end == Some(plan.seq)
    }

    /// The planned segment has been sent.
    pub fn on_sent(&mut self, now: Instant, plan: &Plan) {
        self.asked_at = now;
        if plan.purpose == Purpose::Early {
            self.ahead.note_beyond(now, plan.seq + plan.len, self.peer.edge());
            self.on_sent_early(now, plan);
            return;
        }
        let len = plan.len + u32::from(plan.fin);
        if plan.purpose == Purpose::SizeProbe {
            return self.flight.note_copy(plan.seq + len);
        }
        if let Some(rate) = self.pacing_rate() {
            self.governor.pace(now, u64::from(len), rate);
        }
        match plan.purpose {
            Purpose::WindowProbe | Purpose::Early | Purpose::SizeProbe => return,
            Purpose::New => self.on_sent_new(now, plan, len),
            // A tail probe is in flight already.
            Purpose::Retransmit | Purpose::TailProbe => {
                let (una, edge) = (self.flight.una(), self.peer.edge());
                self.ahead.note_again(now, (plan.seq, plan.seq + len), una, edge);
                self.flight.on_sent_again(now, plan.seq, len, plan.purpose == Purpose::Retransmit);
            }
        }
        if plan.mtu_probe {
            self.mtu.sent(plan.seq, plan.seq + len);
        }
        self.silence.note_asked(len);
        self.early_after_sending(now, self.tail_after && !self.silence.asks());
        self.governor.on_sent(now, u64::from(len), self.flight.board().pipe(), self.flight.is_app_limited());
        self.dry = plan.purpose == Purpose::New && self.dry_after;
        self.arm_after_sending(now, plan.purpose);
    }

    fn on_sent_new(&mut self, now: Instant, plan: &Plan, len: u32) {
        if let Some(idle) = self.flight.end_idle(now) {
            let rto = self.rto();
            if idle > rto {
                self.governor.on_idle_restart(now, idle, rto);
            }
        }
        self.flight.on_sent_new(now, plan.seq, len, plan.fin);
        self.governor.note_new(len);
        self.ahead.note_sent(now, (plan.seq, plan.seq + len), self.peer.edge());
        self.peer.on_sent_new();
    }

    /// The receiver holds everything before `upto`, part of which was never sent from here.
    pub fn skip_to(&mut self, now: Instant, upto: SeqNum) {
        self.flight.skip_to(now, upto);
        self.governor.skip();
        self.peer.skip_to(upto);
        self.ahead.skip_to(upto);
        self.silence = Silence::default();
        self.blind = Blind::default();
        self.link_question = None;
        self.mtu.forget();
        self.timers = Timers::default();
    }
}
