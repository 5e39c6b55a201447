//! A bottleneck with a drop-tail queue and a sender with textbook loss detection: just enough to
//! drive a controller.
#![allow(dead_code)]

pub mod net;

use std::collections::VecDeque;

use farlink_cc::{Ack, Config, Congestion, Controller, Sample};
use farlink_wire::time::{Duration, Instant};

/// The path. All times in nanoseconds.
pub struct Path {
    pub rate_bps: u64,
    pub rtt_ms: u64,
    /// Packets that may wait at the bottleneck.
    pub buffer_packets: u64,
    /// Every n-th packet is lost besides; 0: none.
    pub lose_every: u64,
    /// Send only this many packets a second; 0: bulk.
    pub app_pps: u64,
}

struct Sent {
    number: u64,
    at: Instant,
    lost: bool,
    ack_at: Instant,
}

/// One run.
pub struct Run {
    pub controller: Controller,
    path: Path,
    mss: u64,
    now: Instant,
    next_send: Instant,
    link_free: Instant,
    flight: VecDeque<Sent>,
    next_number: u64,
    round_end: u64,
    in_recovery: bool,
    /// Packets below are of a flight that was already reduced.
    recovery_point: u64,
    delivered_after_hole: u32,
    srtt: Duration,
    pub min_rtt: Duration,
    /// Window in packets at the beginning of each round trip.
    pub windows: Vec<u64>,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
    /// Recoveries entered.
    pub recoveries: u64,
}

impl Run {
    pub fn new(config: &Config, path: Path) -> Self {
        Self {
            controller: Controller::new(config),
            path,
            mss: u64::from(config.mss),
            now: Instant::from_millis(0),
            next_send: Instant::ZERO,
            link_free: Instant::ZERO,
            flight: VecDeque::new(),
            next_number: 0,
            round_end: 0,
            in_recovery: false,
            recovery_point: 0,
            delivered_after_hole: 0,
            srtt: Duration::ZERO,
            min_rtt: Duration::MAX,
            windows: Vec::new(),
            delivered: 0,
            lost: 0,
            recoveries: 0,
        }
    }

    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * self.mss
    }

    fn may_send(&self) -> bool {
        self.in_flight() + self.mss <= self.controller.cwnd_bytes().max(self.mss)
    }

    fn send(&mut self) {
        let packet_time = Duration::from_nanos(self.mss * 8 * 1_000_000_000 / self.path.rate_bps);
        let number = self.next_number;
        self.next_number += 1;
        let waiting = self.link_free.since(self.now).as_nanos() / packet_time.as_nanos();
        let lost = waiting as u64 > self.path.buffer_packets
            || (self.path.lose_every > 0 && number % self.path.lose_every == self.path.lose_every - 1);
        if waiting as u64 <= self.path.buffer_packets {
            self.link_free = self.link_free.max(self.now) + packet_time;
        }
        let ack_at = self.link_free + Duration::from_millis(self.path.rtt_ms);
        self.flight.push_back(Sent { number, at: self.now, lost, ack_at });
        self.controller.on_sent(self.now, self.mss, self.in_flight(), false);
        let paced =
            self.controller.pacing_rate_bps(self.srtt).map(|rate| self.mss * 8 * 1_000_000_000 / rate);
        let offered = 1_000_000_000_u64.checked_div(self.path.app_pps);
        let gap = Duration::from_nanos(offered.or(paced).unwrap_or(0));
        self.next_send = self.next_send.max(self.now) + gap;
    }

    /// Runs for that much virtual time.
    pub fn run(&mut self, time: Duration) -> &mut Self {
        let end = self.now + time;
        loop {
            let ack = self.flight.iter().find(|s| !s.lost).map(|s| s.ack_at);
            let send = self.may_send().then_some(self.next_send.max(self.now));
            let Some(next) = [ack, send].into_iter().flatten().min() else {
                self.now = end;
                return self;
            };
            if next > end {
                self.now = end;
                return self;
            }
            self.now = next;
            if send == Some(next) { self.send() } else { self.ack() }
        }
    }

    fn ack(&mut self) {
        let prior = self.in_flight();
        let index = self.flight.iter().position(|s| !s.lost).expect("something is delivered");
        let sent = self.flight.remove(index).expect("it is there");
        self.delivered += 1;
        let rtt = self.now.since(sent.at);
        self.min_rtt = self.min_rtt.min(rtt);
        self.srtt = if self.srtt.is_zero() { rtt } else { (self.srtt * 7 + rtt) / 8 };
        // Three later packets arrived: what is before them is lost, and retransmitted as a new
        // packet.
        if index > 0 {
            self.delivered_after_hole += 1;
            if self.delivered_after_hole >= 3 {
                let flight_before = prior;
                let holes = self.flight.iter().take_while(|s| s.number < sent.number).count();
                self.lost += holes as u64;
                let first = self.flight.front().map_or(0, |s| s.number);
                self.flight.drain(..holes);
                self.delivered_after_hole = 0;
                if first >= self.recovery_point {
                    self.in_recovery = true;
                    self.recovery_point = self.next_number;
                    self.recoveries += 1;
                    self.controller.on_congestion(self.now, Congestion::Loss, flight_before);
                }
            }
        }
        if self.in_recovery && self.flight.front().is_none_or(|s| s.number >= self.recovery_point) {
            self.in_recovery = false;
            self.controller.on_recovery_exit(self.now);
        }
        let round_start = sent.number >= self.round_end;
        if round_start {
            self.round_end = self.next_number;
            self.windows.push(self.controller.cwnd_bytes() / self.mss);
        }
        self.controller.on_ack(&Ack {
            now: self.now,
            acked_bytes: self.mss,
            rtt: Some(rtt),
            srtt: self.srtt,
            min_rtt: self.min_rtt,
            in_flight_bytes: self.in_flight(),
            prior_in_flight_bytes: prior,
            sample: Sample::default(),
            app_limited: self.path.app_pps > 0,
            in_recovery: self.in_recovery,
            round_start,
            waited_back: None,
        });
    }
}
