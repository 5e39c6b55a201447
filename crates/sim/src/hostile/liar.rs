//! A host that opens and answers connections, and lies on them.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use farlink_wire::{Duration, Flags, Instant, SegmentHeader, SeqNum, TcpSegment, finish_checksums, fragment};

use super::lies::{Known, Lie, Say};
use super::plan::{ATTACK_ENDS, Call};
use crate::app::End;
use crate::content::{Endpoint, Stream};
use crate::host::{Host, address};
use crate::packet::{hash, tcp};
use crate::rng::Rng;

/// Segments that answer one at most.
const ANSWERS_MAX: u64 = 3;
/// A liar that vanishes does so after so many segments.
const VANISH_AFTER: u32 = 12;

/// One connection at one liar.
struct Talk {
    local: Endpoint,
    remote: Endpoint,
    is_client: bool,
    lies: Vec<Lie>,
    every: Duration,
    request_bytes: u64,
    isn: SeqNum,
    nxt: SeqNum,
    /// Acknowledged by the other one.
    una: SeqNum,
    irs: Option<SeqNum>,
    got: SeqNum,
    highest: SeqNum,
    stamps: bool,
    ts_recent: u32,
    said: u32,
    left: u32,
    next: Option<Instant>,
}

/// See the module.
pub struct Liar {
    number: usize,
    calls: Vec<Call>,
    talks: BTreeMap<(Endpoint, Endpoint), Talk>,
    waiting: Vec<(Instant, usize)>,
    out: VecDeque<Vec<u8>>,
    rng: Rng,
    seed: u64,
    ip_id: u16,
}

impl Liar {
    /// The lying host of this number, with its part of `calls`.
    #[must_use]
    pub fn new(number: usize, calls: &[Call], seed: u64) -> Self {
        let waiting = calls.iter().enumerate().filter(|(_, c)| c.host == number);
        Self {
            number,
            waiting: waiting.map(|(n, c)| (Instant::ZERO + c.at, n)).collect(),
            calls: calls.to_vec(),
            talks: BTreeMap::new(),
            out: VecDeque::new(),
            rng: Rng::new(seed, &format!("liar {number}")),
            seed,
            ip_id: 0,
        }
    }

    fn talk(&self, call: &Call, is_client: bool) -> Talk {
        let client = (address(call.host, call.v6), call.port);
        let server = (address(call.to.0, call.v6), call.to.1);
        let (local, remote) = if is_client { (client, server) } else { (server, client) };
        let isn = SeqNum(hash(self.seed ^ u64::from(call.port) << 8 ^ u64::from(is_client), &[]) as u32);
        Talk {
            local,
            remote,
            is_client,
            lies: call.lies[usize::from(!is_client)].clone(),
            every: call.every,
            request_bytes: if is_client { call.request_bytes } else { call.answer_bytes() },
            isn,
            nxt: isn + 1,
            una: isn + 1,
            irs: None,
            got: SeqNum(0),
            highest: SeqNum(0),
            stamps: false,
            ts_recent: 0,
            said: 0,
            left: call.packets_max,
            next: None,
        }
    }

    fn open(&mut self, now: Instant) {
        let due: Vec<usize> = self.waiting.iter().filter(|(at, _)| *at <= now).map(|(_, n)| *n).collect();
        self.waiting.retain(|(at, _)| *at > now);
        for n in due {
            let mut talk = self.talk(&self.calls[n], true);
            self.syn(now, &mut talk);
            talk.next = Some(now + Duration::from_secs(1));
            self.talks.insert((talk.local, talk.remote), talk);
        }
    }

    /// The SYN, or the answer to one.
    fn syn(&mut self, now: Instant, talk: &mut Talk) {
        let answers = talk.irs.is_some();
        let known = talk.known(true);
        let mut say = Say {
            seq: talk.isn,
            ack: if answers { talk.got } else { SeqNum(0) },
            flags: if answers { Flags::SYN | Flags::ACK } else { Flags::SYN },
            window: 65_535,
            urgent: 0,
            stamps: (!answers || talk.stamps).then_some((stamp(now), talk.ts_recent)),
            sack: Vec::new(),
            farlink: None,
            options: vec![2, 4, 5, 180, 4, 2, 3, 3, 7],
            payload: Vec::new(),
            fragments: None,
            port: None,
        };
        for lie in talk.lies.clone() {
            lie.bend_syn(&mut say, &known, &mut self.rng);
        }
        self.send(talk, &say);
    }

    /// One segment: what an honest host would say, bent by each lie in turn.
    fn speak(&mut self, now: Instant, talk: &mut Talk, unasked: bool) {
        if talk.left == 0 || now >= Instant::ZERO + ATTACK_ENDS {
            talk.next = None;
            return;
        }
        if talk.lies.contains(&Lie::Vanish) && talk.said >= VANISH_AFTER {
            talk.left = 0;
            return;
        }
        talk.left -= 1;
        talk.said += 1;
        let known = talk.known(unasked);
        let mut say = Say {
            seq: talk.nxt,
            ack: talk.got,
            flags: Flags::ACK,
            window: 65_535,
            urgent: 0,
            stamps: talk.stamps.then_some((stamp(now), talk.ts_recent)),
            sack: Vec::new(),
            farlink: None,
            options: Vec::new(),
            payload: Vec::new(),
            fragments: None,
            port: None,
        };
        let is_request =
            talk.una.since(talk.isn + 1) < talk.request_bytes as u32 && (unasked || talk.said < 3);
        if is_request && self.rng.chance(0.6) {
            // What it was asked for, honestly: or nobody would talk to it.
            let offset = u64::from(talk.una.since(talk.isn + 1));
            say.payload = vec![0; (talk.request_bytes - offset).min(1_000) as usize];
            Stream::new(talk.local, talk.remote, talk.isn.0).fill(offset, &mut say.payload);
            say.seq = talk.una;
        } else {
            for lie in talk.lies.clone() {
                lie.bend(&mut say, &known, &mut self.rng);
            }
        }
        let end = say.seq + say.payload.len() as u32;
        if say.seq.before_eq(talk.nxt) && end.after(talk.nxt) {
            talk.nxt = end;
        }
        self.send(talk, &say);
    }

    fn send(&mut self, talk: &Talk, say: &Say) {
        self.ip_id = self.ip_id.wrapping_add(1);
        let header = SegmentHeader {
            src: talk.local.0,
            dst: talk.remote.0,
            src_port: say.port.unwrap_or(talk.local.1),
            dst_port: talk.remote.1,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: self.ip_id,
            dont_fragment: say.fragments.is_none(),
            seq: say.seq,
            ack: say.ack,
            flags: say.flags,
            window: say.window,
            urgent: say.urgent,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let Some(bytes) = packet(&header, &say.option_bytes(), &say.payload) else { return };
        let Some(mtu) = say.fragments else { return self.out.push_back(bytes) };
        let mut pieces = Vec::new();
        if fragment(&bytes, mtu, u32::from(self.ip_id), &mut |p| pieces.push(p.to_vec())).is_err() {
            return;
        }
        match self.rng.range(0, 4) {
            0 => pieces.reverse(),
            1 => drop(pieces.pop()),
            2 => {
                let again = pieces[self.rng.range(0, pieces.len() as u64) as usize].clone();
                pieces.push(again);
            }
            _ => {}
        }
        self.out.extend(pieces);
    }

    fn hear(&mut self, now: Instant, s: &TcpSegment) -> bool {
        let key = ((s.ip.dst, s.dst_port), (s.ip.src, s.src_port));
        if s.flags.syn() && !s.flags.ack() && !self.talks.contains_key(&key) {
            let number = self.number;
            let is_it = |c: &&Call| c.to == (number, s.dst_port) && c.port == s.src_port;
            let Some(call) = self.calls.iter().find(is_it).cloned() else { return false };
            let talk = self.talk(&call, false);
            if talk.local == key.0 && talk.remote == key.1 {
                self.talks.insert(key, talk);
            }
        }
        let Some(talk) = self.talks.get_mut(&key) else { return false };
        if let Some(t) = s.options.timestamps {
            talk.ts_recent = t.val;
        }
        if s.flags.syn() {
            talk.irs = Some(s.seq);
            talk.got = s.seq + 1;
            talk.highest = talk.got;
            talk.stamps = s.options.timestamps.is_some();
            talk.next = Some(now + talk.every);
            if !talk.is_client
                && let Some(mut talk) = self.talks.remove(&key)
            {
                self.syn(now, &mut talk);
                self.talks.insert(key, talk);
                return false;
            }
            return true;
        }
        if s.flags.ack() && s.ack.after(talk.una) && s.ack.before_eq(talk.nxt) {
            talk.una = s.ack;
        }
        if s.seq.before_eq(talk.got) && s.end_seq().after(talk.got) {
            talk.got = s.end_seq();
        }
        talk.highest = talk.highest.max(s.end_seq()).max(talk.got);
        s.seq_len() > 0
    }
}

impl Talk {
    fn known(&self, unasked: bool) -> Known {
        Known {
            isn: self.isn,
            nxt: self.nxt,
            irs: self.irs.unwrap_or(SeqNum(0)),
            got: self.got,
            highest: self.highest,
            said: self.said,
            unasked,
        }
    }
}

fn stamp(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// A packet with these bytes as options and right checksums; `None` when it cannot be written.
pub(super) fn packet(header: &SegmentHeader<'_>, options: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
    let (head, offload) = header.write_with_options(payload.len(), options).ok()?;
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(payload);
    finish_checksums(&mut bytes, &offload);
    Some(bytes)
}

impl Host for Liar {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        let Some(s) = tcp(bytes) else { return };
        let key = ((s.ip.dst, s.dst_port), (s.ip.src, s.src_port));
        if !self.hear(now, &s) {
            return;
        }
        let Some(mut talk) = self.talks.remove(&key) else { return };
        for _ in 0..self.rng.range(1, ANSWERS_MAX + 1) {
            self.speak(now, &mut talk, false);
        }
        self.talks.insert(key, talk);
    }

    fn run(&mut self, now: Instant) {
        self.open(now);
        let due: Vec<_> =
            self.talks.iter().filter(|(_, t)| t.next.is_some_and(|at| at <= now)).map(|(k, _)| *k).collect();
        for key in due {
            let Some(mut talk) = self.talks.remove(&key) else { continue };
            if talk.irs.is_some() {
                talk.next = Some(now + talk.every);
                self.speak(now, &mut talk, true);
            } else if talk.said < 5 {
                talk.said += 1;
                self.syn(now, &mut talk);
                talk.next = Some(now + Duration::from_secs(1 << talk.said));
            } else {
                talk.next = None;
            }
            self.talks.insert(key, talk);
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let talks = self.talks.values().filter_map(|t| t.next.filter(|_| t.left > 0));
        talks.chain(self.waiting.iter().map(|(at, _)| *at)).min()
    }

    fn is_finished(&self) -> bool {
        true
    }

    fn ends(&self) -> Vec<End> {
        Vec::new()
    }

    fn is_hostile(&self) -> bool {
        true
    }
}

/// Both addresses of a host.
#[must_use]
pub fn addresses(number: usize) -> [IpAddr; 2] {
    [address(number, false), address(number, true)]
}
