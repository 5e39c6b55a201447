//! The SYN cache: half-open connections, bounded, keyed by 4-tuple and checked against the ISN.

mod entries;

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use farlink_wire::{Duration, FARLINK_SYN_ACK, Flags, Instant, SeqNum, TcpSegment, WireSize};

use self::entries::Entries;
use crate::asked::{COPY_APART, Came, Gone};
use crate::config::Class;
use crate::kept::Kept;
use crate::leg::{Agreed, Handshake, Leg};
use crate::link::Link;
use crate::net::Via;
use crate::peer::{Opening, Peer};
use crate::rules::{Decision, Moved};
use crate::side::{Pair, Side};
use crate::table::Key;

/// The cache keeps room for so many entries; what a flood has made it grow beyond goes back. Count.
const KEPT_ENTRIES: usize = 64;
/// What waits for links that are away takes one part of so many of the pool's size.
const KEPT_POOL_PARTS: usize = 16;

/// What the SYN said.
#[derive(Clone, Debug)]
pub struct HalfOpen {
    serial: u64,
    /// Host A as its SYN shows it.
    pub a: Leg,
    /// Whether host A is the lower endpoint of the key.
    pub a_is_low: bool,
    /// Host A's initial sequence number.
    pub isn: SeqNum,
    /// Payload of the SYN (Fast Open), bytes.
    pub syn_payload: u32,
    /// Options of the SYN.
    pub offered: Offered,
    /// Rule index.
    pub rule: usize,
    /// Class of its data; `None`: by its DSCP.
    pub class: Option<Class>,
    /// The window that host B was shown, bytes: host A's own at most. Repetitions show no other.
    pub shown_bytes: Option<u16>,
    /// Host B and what its SYN-ACK said.
    pub answer: Option<Box<Answer>>,
    /// Its SYNs as they have come: with our option of a gateway before this one, or without.
    pub came: Came,
    /// Its SYNs as they have gone on: whether they ask for a gateway beyond.
    pub asked: Gone,
    /// The answers to them that went on to a gateway before this one: whether they told of this
    /// one.
    pub told: Gone,
    /// A gateway that the answer did not speak of may be there all the same.
    pub introduces: bool,
    /// SYNs seen.
    pub syns: u32,
    /// One SYN-ACK has been seen.
    pub answered_once: bool,
    /// Of its SYN, and of the answer, one has come that leaves twice.
    came_of_two: Pair<bool>,
    /// Copies of its SYN, and of the answer, that have left here.
    copied: Pair<WireSize>,
    /// What waits for its link.
    kept: Option<Box<Kept>>,
    has_waited: bool,
}

impl HalfOpen {
    /// Something has waited for its link: what is answered now says nothing of a round trip, nor of
    /// what gets through.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// A SYN, or the answer to it, of this host has come with this.
    pub fn note_opening(&mut self, of: Side, opening: &Opening) {
        *self.came_of_two.get_mut(of) |= opening.leaves_twice;
    }

    /// The newest answer has come over a link from a gateway at its other end; `None`: from the
    /// host alone.
    pub fn hear_answer(&mut self, s: &TcpSegment, of_gateway: Option<&mut Link>) {
        let option = s.options.farlink.as_ref().filter(|o| o.form == FARLINK_SYN_ACK);
        let option = option.filter(|_| of_gateway.is_some());
        let Some(opening) = option.map(|o| Opening::read(&o.body)) else { return };
        self.note_opening(Side::B, &opening);
        if let Some(link) = of_gateway.filter(|_| self.answered_once) {
            link.note_opening(&opening);
        }
    }

    /// A copy of the SYN, or of the answer, of this host has left here.
    pub fn note_copied(&mut self, of: Side, size: WireSize) {
        let copied = self.copied.get_mut(of);
        *copied = copied.and(size);
    }

    /// Copies of the SYN, and of the answer, that have left here.
    #[must_use]
    pub fn copied(&self) -> Pair<WireSize> {
        self.copied
    }

    /// A host could take this reset: its number lies in the window, or it answers the SYN (RFC 9293
    /// 3.10.7.3).
    fn may_end_by(&self, from: Side, s: &TcpSegment) -> bool {
        let in_window = |first: SeqNum| s.seq.after_eq(first) && s.seq.since(first) <= 1 + 65_535;
        match from {
            Side::A => in_window(self.isn) || in_window(self.isn + self.syn_payload),
            Side::B => {
                let answers = s.ack.after(self.isn) && s.ack.since(self.isn + 1) <= self.syn_payload;
                (s.flags.ack() && answers) || self.answer.as_ref().is_some_and(|b| in_window(b.isn))
            }
        }
    }
}

/// What the SYN-ACK said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Host B as its SYN-ACK shows it.
    pub b: Leg,
    /// Host B's initial sequence number.
    pub isn: SeqNum,
    /// The window that host A was shown, bytes: host B's own at most. Repetitions show no other.
    pub shown_bytes: Option<u16>,
    /// What it acknowledged: behind the SYN, or behind its payload.
    pub ack: SeqNum,
    /// The window that the gateway beyond the link takes at once, bytes from there on.
    pub next_window_bytes: Option<u32>,
    /// The window that the gateway before this one has been told here, bytes from there on.
    /// Repetitions tell no other.
    pub told_window_bytes: Option<u32>,
    /// What both agreed on.
    pub agreed: Agreed,
}

impl Answer {
    /// This is data of the client that the gateway before this one has sent, no further on than it
    /// may.
    fn is_of_gateway(&self, before: &Peer, s: &TcpSegment) -> bool {
        let is_marked = s.options.farlink.as_ref().is_some_and(|o| o.form == farlink_wire::FARLINK_DATA);
        let may_bytes = self.told_window_bytes.unwrap_or(0).max(u16::MAX.into());
        let is_next = s.seq.after(self.ack) && s.end_seq().since(self.ack) <= may_bytes;
        before.is_marked() && is_marked && is_next && s.payload_len > 0
    }
}

/// The options of a SYN that matter later.
#[derive(Clone, Debug)]
pub struct Offered {
    timestamps: bool,
    sack: bool,
    window_scale: Option<u8>,
    ecn: bool,
    mptcp: bool,
    unknown: ArrayVec<u8, 8>,
}

impl Offered {
    fn of(s: &TcpSegment) -> Self {
        Self {
            timestamps: s.options.timestamps.is_some(),
            sack: s.options.sack_permitted,
            window_scale: s.options.window_scale,
            ecn: s.flags.contains(Flags::ECE | Flags::CWR),
            mptcp: s.options.mptcp,
            unknown: s.options.unknown.clone(),
        }
    }
}

/// What a segment means for a half-open connection.
#[derive(Debug)]
pub enum Step {
    /// Nothing is known of it.
    Unknown,
    /// It belongs to a handshake and goes on.
    Continue,
    /// The handshake is complete: the connection can be split from here.
    Complete(Box<HalfOpen>),
    /// Both hosts speak an option that we do not know, or the shape forbids splitting: it was
    /// forgotten.
    Unsplittable,
}

/// The half-open connections.
#[derive(Debug)]
pub struct SynCache {
    entries: Entries,
    order: VecDeque<(Instant, u64, Key)>,
    max: usize,
    lifetime: Duration,
    serial: u64,
    evicted: u64,
    /// Those that keep something, by serial, in the order in which it came; some do not any more.
    keeps: VecDeque<(u64, Key)>,
    kept_count: usize,
    kept_bytes: usize,
    kept_max_bytes: usize,
    /// Entries of which the answer has come.
    answered: usize,
}

impl SynCache {
    /// At most `max` entries, each for at most `lifetime`, beside such a pool.
    #[must_use]
    pub fn new(max: usize, pool_bytes: usize, lifetime: Duration, seed: u64) -> Self {
        Self {
            entries: Entries::with_seed(seed),
            order: VecDeque::new(),
            max: max.max(1),
            lifetime,
            serial: 0,
            evicted: 0,
            keeps: VecDeque::new(),
            kept_count: 0,
            kept_bytes: 0,
            kept_max_bytes: pool_bytes / KEPT_POOL_PARTS,
            answered: 0,
        }
    }
    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// The pool has another size.
    pub fn set_pool_bytes(&mut self, bytes: usize) {
        self.kept_max_bytes = bytes / KEPT_POOL_PARTS;
        self.bound_kept();
    }
    /// Other rules have taken the place of those that were.
    pub fn move_rules(&mut self, moved: &Moved) {
        self.entries.all_mut().for_each(|half_open| half_open.rule = moved.of(half_open.rule));
    }
    /// Entries thrown out by newer ones.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
    /// Memory, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes()
            + self.answered * size_of::<Answer>()
            + self.order.capacity() * size_of::<(Instant, u64, Key)>()
            + self.keeps.capacity() * size_of::<(u64, Key)>()
            + self.kept_bytes
    }
    /// When the oldest entry expires.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(at, ..)| *at + self.lifetime)
    }

    /// Forgets what is too old.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(at, serial, key)) = self.order.front() {
            if at + self.lifetime > now && self.entries.get(&key).is_some_and(|h| h.serial == serial) {
                break;
            }
            self.order.pop_front();
            self.drop_entry(&key, serial);
        }
        self.shrink();
    }

    fn drop_entry(&mut self, key: &Key, serial: u64) -> bool {
        let same = self.entries.get(key).is_some_and(|h| h.serial == serial);
        if same {
            self.take(key);
        }
        same
    }

    /// Takes an entry out, and what waits in it.
    fn take(&mut self, key: &Key) -> Option<HalfOpen> {
        let mut entry = self.entries.remove(key)?;
        self.answered -= usize::from(entry.answer.is_some());
        self.let_go(entry.kept.take());
        Some(entry)
    }

    fn let_go(&mut self, kept: Option<Box<Kept>>) -> Option<Box<Kept>> {
        if let Some(kept) = &kept {
            self.kept_count -= 1;
            self.kept_bytes -= kept.memory_bytes();
        }
        kept
    }

    /// The newest packet of a handshake waits for its link, and the entry with it. Returns whether
    /// there is one.
    pub(crate) fn keep(&mut self, now: Instant, key: &Key, kept: Kept) -> bool {
        self.serial += 1;
        let Some(h) = self.entries.get_mut(key) else { return false };
        h.has_waited = true;
        h.serial = self.serial;
        self.kept_count += 1;
        self.kept_bytes += kept.memory_bytes();
        let old = h.kept.replace(Box::new(kept));
        self.let_go(old);
        self.queue(now, *key);
        self.bound_order();
        self.keeps.push_back((self.serial, *key));
        self.bound_kept();
        true
    }

    /// What was kept first goes first: its host may have given up, and repeats it otherwise.
    fn bound_kept(&mut self) {
        while self.kept_bytes > self.kept_max_bytes {
            let Some((serial, key)) = self.keeps.pop_front() else { break };
            let kept = self.entries.get_mut(&key).filter(|h| h.serial == serial).and_then(|h| h.kept.take());
            self.let_go(kept);
        }
        if self.keeps.len() > self.kept_count + self.kept_count / 4 + KEPT_ENTRIES {
            let entries = &self.entries;
            let is_kept = |(serial, key): &(u64, Key)| {
                entries.get(key).is_some_and(|h| h.serial == *serial && h.kept.is_some())
            };
            self.keeps.retain(is_kept);
            self.keeps.shrink_to(self.kept_count + KEPT_ENTRIES);
        }
    }

    /// What need not wait any longer, in the order in which it came: so many at most.
    pub(crate) fn take_kept(&mut self, most: usize, mut may_go: impl FnMut(&Kept) -> bool) -> Vec<Kept> {
        let mut freed = Vec::new();
        let mut waiting = Vec::new();
        while freed.len() < most
            && let Some((serial, key)) = self.keeps.pop_front()
        {
            let Some(h) = self.entries.get_mut(&key).filter(|h| h.serial == serial) else { continue };
            match h.kept.take_if(|kept| may_go(kept)) {
                Some(kept) => freed.push(kept),
                None if h.kept.is_some() => waiting.push((serial, key)),
                None => {}
            }
        }
        waiting.into_iter().rev().for_each(|entry| self.keeps.push_front(entry));
        if self.keeps.is_empty() {
            self.keeps = VecDeque::new();
        }
        freed.into_iter().filter_map(|kept| self.let_go(Some(kept))).map(|kept| *kept).collect()
    }

    /// The entry of the newest serial number is the last to expire.
    fn queue(&mut self, now: Instant, key: Key) {
        if self.order.len() == self.order.capacity() {
            // Twice as much would be half empty in a flood.
            self.order.reserve_exact(self.order.len() / 4 + KEPT_ENTRIES);
        }
        self.order.push_back((now, self.serial, key));
    }

    /// Entries whose key came again leave stale places in the queue: bounded, too.
    fn bound_order(&mut self) {
        while self.order.len() > 2 * self.max {
            let Some((_, serial, old)) = self.order.pop_front() else { break };
            self.drop_entry(&old, serial);
        }
    }

    /// After a flood the memory goes back.
    fn shrink(&mut self) {
        self.entries.shrink(KEPT_ENTRIES);
        if self.order.capacity() > KEPT_ENTRIES && self.order.len() < self.order.capacity() / 8 {
            self.order.shrink_to((self.order.len() * 2).max(KEPT_ENTRIES / 2));
        }
    }

    /// A SYN. Returns the entry; `syns` is 1 for the first of its kind.
    pub fn on_syn(
        &mut self,
        now: Instant,
        key: Key,
        a_is_low: bool,
        s: &TcpSegment,
        via: Via,
        decision: Decision,
    ) -> Option<&mut HalfOpen> {
        if let Some(h) = self.entries.get_mut(&key) {
            if h.a_is_low != a_is_low {
                // Simultaneous open: the hosts sort it out themselves.
                self.take(&key);
                return None;
            }
            if h.isn == s.seq {
                h.syns += 1;
                return self.get_mut(&key);
            }
        }
        while self.entries.len() >= self.max {
            let Some((_, serial, old)) = self.order.pop_front() else { break };
            if self.drop_entry(&old, serial) {
                self.evicted += 1;
            }
        }
        self.bound_order();
        self.serial += 1;
        let entry = HalfOpen {
            serial: self.serial,
            a: Leg::new(now, s, via),
            a_is_low,
            isn: s.seq,
            syn_payload: u32::try_from(s.payload_len).unwrap_or(0),
            offered: Offered::of(s),
            rule: decision.rule,
            class: decision.class,
            shown_bytes: None,
            answer: None,
            came: Came::default(),
            asked: Gone::default(),
            told: Gone::default(),
            introduces: false,
            syns: 1,
            answered_once: false,
            came_of_two: Pair::default(),
            copied: Pair::default(),
            kept: None,
            has_waited: false,
        };
        self.queue(now, key);
        self.take(&key);
        Some(self.entries.insert(key, entry))
    }

    /// The entry of a connection.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut HalfOpen> {
        self.entries.get_mut(key)
    }

    /// The segment belongs to the handshake that is under way here: by its numbers it is the answer
    /// to the SYN, or what follows that answer.
    #[must_use]
    pub fn has_part_in(&self, key: &Key, from_low: bool, s: &TcpSegment) -> bool {
        let Some(h) = self.entries.get(key) else { return false };
        let within = |n: SeqNum, first: SeqNum, bytes: u32| n.after_eq(first) && n.since(first) <= bytes;
        let answers = s.flags.ack() && within(s.ack, h.isn + 1, h.syn_payload);
        match (h.a_is_low == from_low, s.flags.syn(), s.flags.rst()) {
            (false, true, _) | (false, _, true) => answers,
            (true, true, _) => false,
            (from_a, ..) => h.answer.as_ref().is_some_and(|b| {
                let (own, other) = if from_a { (b.ack, b.isn + 1) } else { (b.isn + 1, h.isn + 1) };
                s.flags.ack() && within(s.seq, own, 65_535) && within(s.ack, other, 65_535)
            }),
        }
    }

    /// This SYN, or answer to one, has come already: it is the second of two that are the same, or
    /// has no option, which the one right before it had.
    #[must_use]
    pub fn is_second_of_two(&self, now: Instant, key: &Key, from_low: bool, s: &TcpSegment) -> bool {
        let Some(h) = self.entries.get(key) else { return false };
        let (is_its, has_just_come, comes_twice) = match (h.a_is_low == from_low, s.flags.ack(), &h.answer) {
            (true, false, _) => (h.isn == s.seq, h.came.has_just_asked(now), h.came_of_two.a),
            (false, true, Some(answer)) => {
                let is_its = answer.isn == s.seq && answer.ack == s.ack;
                let has_just_come = answer.b.peer.is_marked() && now.since(answer.b.heard_at()) < COPY_APART;
                (is_its, has_just_come, h.came_of_two.b)
            }
            _ => return false,
        };
        is_its && if s.options.farlink.is_some() { comes_twice } else { has_just_come }
    }

    /// Forgets a connection.
    pub fn remove(&mut self, key: &Key) {
        self.take(key);
        if self.entries.len() == 0 {
            self.order.clear();
            self.shrink();
        }
    }

    /// Any segment of a connection that is not established here.
    pub fn on_segment(&mut self, now: Instant, key: &Key, from_low: bool, s: &TcpSegment, via: Via) -> Step {
        let Some(h) = self.entries.get_mut(key) else { return Step::Unknown };
        let from = if h.a_is_low == from_low { Side::A } else { Side::B };
        if s.flags.rst() {
            // Whether the hosts take it is their business; a handshake that goes on is simply not
            // split. None takes one from outside its window, such as what a client answers to a
            // late segment of an older connection between the same ports.
            if h.may_end_by(from, s) {
                self.remove(key);
            }
            return Step::Continue;
        }
        match (from, s.flags.syn(), s.flags.ack()) {
            (Side::B, true, true) => {
                let was_answered = h.answer.is_some();
                let step = Self::on_syn_ack(h, now, s, via);
                self.answered += usize::from(h.answer.is_some() && !was_answered);
                if h.answer.is_some() {
                    // Its SYN need not wait any longer.
                    let kept = h.kept.take();
                    self.let_go(kept);
                }
                step.unwrap_or_else(|| {
                    self.remove(key);
                    Step::Unsplittable
                })
            }
            (Side::B, true, false) => {
                self.remove(key);
                Step::Unsplittable
            }
            (Side::A, false, true) => {
                let complete = h.answer.as_ref().is_some_and(|b| {
                    let acks = s.ack.after_eq(b.isn + 1) && s.ack.since(b.isn + 1) <= 65_535;
                    // What the client sent before this went round us, or is late: only from its
                    // first byte on can a relay tell what it must acknowledge. A gateway that has
                    // split the connection sends again what got lost before this.
                    acks && (s.seq == b.ack || b.is_of_gateway(&h.a.peer, s))
                });
                if !complete {
                    return Step::Continue;
                }
                match self.take(key) {
                    Some(h) => Step::Complete(Box::new(h)),
                    None => Step::Unknown,
                }
            }
            _ => Step::Continue,
        }
    }

    /// `None`: it must not be split.
    fn on_syn_ack(h: &mut HalfOpen, now: Instant, s: &TcpSegment, via: Via) -> Option<Step> {
        let covered = s.ack.since(h.isn + 1);
        if covered > h.syn_payload {
            // Not an answer to this SYN.
            return Some(Step::Continue);
        }
        let o = &s.options;
        let both_unknown = h.offered.unknown.iter().any(|k| o.unknown.contains(k));
        if o.md5 || o.ao || o.malformed || both_unknown || (h.offered.mptcp && o.mptcp) {
            return None;
        }
        let window_scale = h.offered.window_scale.is_some() && o.window_scale.is_some();
        let mut b = Leg::new(now, s, via);
        // Of a SYN that was repeated nobody knows which one this answers (RFC 6298 section 3,
        // Karn).
        let is_first = h.syns == 1 && h.answer.is_none();
        b.note_handshake(match (is_first, h.has_waited) {
            (_, true) => Handshake::Unknown,
            (true, false) => Handshake::Took(now.since(h.a.heard_at())),
            (false, false) => Handshake::Repeated,
        });
        h.answered_once = h.answer.is_none();
        if window_scale {
            b.window_scale = o.window_scale.unwrap_or(0);
        }
        let asked = h.asked.has_with();
        let answer = o.farlink.as_ref().filter(|f| asked && f.form == FARLINK_SYN_ACK);
        let opening = answer.map(|f| Opening::read(&f.body));
        // A gateway that has told of itself repeats its answer without that.
        let before = h.answer.as_ref().filter(|a| a.isn == s.seq);
        let window_before = before.filter(|a| a.ack == s.ack).and_then(|a| a.next_window_bytes);
        let known = (before.map_or(Peer::None, |a| a.b.peer), window_before);
        let told = opening.map(|opening| (Peer::Offered(opening.hello), opening.window_bytes));
        let next_window_bytes;
        (b.peer, next_window_bytes) = told.unwrap_or(known);
        let agreed = Agreed {
            pads_marks: false,
            mss_raised: false,
            timestamps: h.offered.timestamps && o.timestamps.is_some(),
            sack: h.offered.sack && o.sack_permitted,
            window_scale,
            ecn: h.offered.ecn && s.flags.ece() && !s.flags.cwr(),
        };
        h.a.window_scale = if window_scale { h.offered.window_scale.unwrap_or(0) } else { 0 };
        let before = h.answer.as_ref();
        let shown_bytes = before.and_then(|a| a.shown_bytes);
        let told_window_bytes = before.and_then(|a| a.told_window_bytes);
        let (isn, ack) = (s.seq, s.ack);
        h.answer =
            Some(Box::new(Answer { b, isn, shown_bytes, ack, next_window_bytes, told_window_bytes, agreed }));
        Some(Step::Continue)
    }
}
