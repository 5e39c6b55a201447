//! One bottleneck with a drop-tail queue, one or more senders with selective acknowledgements,
//! losses from a seed, a rate that changes and sources that pause: the scenarios that every
//! controller is driven through.

use std::collections::VecDeque;

use farlink_cc::{Ack, Config, Congestion, Controller, Lost, Sample};
use farlink_wire::time::{Duration, Instant};

/// The path. The rate may be changed between two runs.
#[derive(Clone, Copy)]
pub struct Link {
    pub rate_bps: u64,
    pub rtt_ms: u64,
    pub buffer_packets: u64,
    /// Packets lost at random, of a million.
    pub loss_ppm: u64,
    /// The rate at which a sender's own link lets packets out; `None`: at once.
    pub access_bps: Option<u64>,
}

struct Packet {
    number: u64,
    sent_at: Instant,
    ack_at: Instant,
    lost: bool,
    // What the delivery-rate sample remembers of its time.
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    lost_before: u64,
    tx_in_flight: u64,
    app_limited: bool,
}

/// One sender.
pub struct Flow {
    pub controller: Controller,
    mss: u64,
    flight: VecDeque<Packet>,
    next_number: u64,
    next_send: Instant,
    last_event: Instant,
    last_sent: Instant,
    round_end: u64,
    recovery_point: u64,
    in_recovery: bool,
    srtt: Duration,
    min_rtt: Duration,
    limited: bool,
    /// Packets that the source has ready; `u64::MAX`: always more.
    pub supply: u64,
    /// Window in packets at the beginning of each round trip.
    pub windows: Vec<u64>,
    pub delivered: u64,
    pub lost: u64,
    pub timeouts: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Until so many packets are delivered, samples are limited by the source.
    app_limited_until: u64,
}

impl Flow {
    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * self.mss
    }

    /// When it sends next, if it has something and the window lets it.
    fn send_at(&self, now: Instant) -> Option<Instant> {
        let fits = self.flight.is_empty() || self.in_flight() + self.mss <= self.controller.cwnd_bytes();
        (self.supply > 0 && fits).then(|| self.next_send.max(now))
    }

    fn timeout_at(&self) -> Option<Instant> {
        (!self.flight.is_empty()).then(|| self.last_event + (self.srtt * 2).max(Duration::from_secs(1)))
    }

    fn ack_at(&self) -> Option<Instant> {
        self.flight.iter().find(|p| !p.lost).map(|p| p.ack_at)
    }

    fn forget(&mut self, now: Instant, count: usize) -> u64 {
        let lost: Vec<Packet> = self.flight.drain(..count).collect();
        let mut last = None;
        for p in &lost {
            self.lost += 1;
            self.controller.on_lost(&Lost {
                now,
                bytes: self.mss,
                segments: 1,
                tx_in_flight_bytes: p.tx_in_flight,
                lost_since_sent_bytes: (self.lost - p.lost_before) * self.mss,
                app_limited: p.app_limited,
                continues: last == Some(p.number - 1),
                delivered_bytes: self.delivered * self.mss,
            });
            last = Some(p.number);
        }
        self.supply = self.supply.saturating_add(lost.len() as u64);
        lost.first().map_or(0, |p| p.number)
    }

    fn time_out(&mut self, now: Instant) {
        let before = self.in_flight();
        self.timeouts += 1;
        self.forget(now, self.flight.len());
        self.in_recovery = false;
        self.recovery_point = self.next_number;
        self.last_event = now;
        self.next_send = now;
        self.controller.on_rto(now, before, 0);
    }

    fn acknowledge(&mut self, now: Instant) {
        let prior = self.in_flight();
        let index = self.flight.iter().position(|p| !p.lost).expect("something is delivered");
        let packet = self.flight.remove(index).expect("it is there");
        self.last_event = now;
        self.delivered += 1;
        self.delivered_at = now;
        let sample = self.sample(now, &packet);
        let rtt = now.since(packet.sent_at);
        self.min_rtt = if self.min_rtt.is_zero() { rtt } else { self.min_rtt.min(rtt) };
        self.srtt = if self.srtt.is_zero() { rtt } else { (self.srtt * 7 + rtt) / 8 };
        // Three later ones have arrived: the holes are losses.
        let holes = self.flight.iter().take_while(|p| p.number + 3 <= packet.number).count();
        if holes > 0 {
            let first = self.forget(now, holes);
            if first >= self.recovery_point {
                self.in_recovery = true;
                self.recovery_point = self.next_number;
                self.controller.on_congestion(now, Congestion::Loss, prior);
            }
        }
        if self.in_recovery && packet.number >= self.recovery_point {
            self.in_recovery = false;
            self.controller.on_recovery_exit(now);
        }
        let round_start = packet.number >= self.round_end;
        if round_start {
            self.round_end = self.next_number;
            self.windows.push(self.controller.cwnd_bytes() / self.mss);
        }
        self.controller.on_ack(&Ack {
            now,
            acked_bytes: self.mss,
            rtt: Some(rtt),
            srtt: self.srtt,
            min_rtt: self.min_rtt,
            in_flight_bytes: self.in_flight(),
            prior_in_flight_bytes: prior,
            sample,
            app_limited: !self.limited,
            in_recovery: self.in_recovery,
            round_start,
            waited_back: None,
        });
        if self.controller.holds_back() {
            self.limited_by_source();
        }
    }

    fn sample(&mut self, now: Instant, p: &Packet) -> Sample {
        self.first_sent_at = p.sent_at;
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let interval = now.since(p.delivered_at).max(p.sent_at.since(p.first_sent_at));
        let bits = u128::from((self.delivered - p.delivered) * self.mss) * 8 * 1_000_000_000;
        let known = interval >= self.min_rtt && !interval.is_zero();
        Sample {
            rate_bps: known.then(|| (bits / interval.as_nanos()) as u64),
            delivered_bytes: self.delivered * self.mss,
            prior_delivered_bytes: p.delivered * self.mss,
            tx_in_flight_bytes: p.tx_in_flight,
            lost_bytes: (self.lost - p.lost_before) * self.mss,
            app_limited: p.app_limited,
        }
    }

    fn limited_by_source(&mut self) {
        self.app_limited_until = (self.delivered + self.flight.len() as u64).max(1);
    }

    /// The source has more again.
    fn supply(&mut self, packets: u64) {
        if self.supply == 0 && self.in_flight() + self.mss <= self.controller.cwnd_bytes() {
            self.limited_by_source();
        }
        self.supply = self.supply.saturating_add(packets);
    }
}

/// The bottleneck and who shares it.
pub struct Net {
    pub link: Link,
    pub flows: Vec<Flow>,
    pub now: Instant,
    free_at: Instant,
    random: u64,
    /// Most packets that waited since this was last reset.
    pub queue_max: u64,
}

impl Net {
    pub fn new(link: Link) -> Self {
        Self {
            link,
            flows: Vec::new(),
            now: Instant::from_millis(1),
            free_at: Instant::ZERO,
            random: 0x9e37_79b9_7f4a_7c15,
            queue_max: 0,
        }
    }

    /// One sender more, from now on.
    pub fn join(&mut self, config: &Config) -> usize {
        let rtt = Duration::from_millis(self.link.rtt_ms);
        let config = Config { handshake_rtt: Some(rtt), seed: 1 + self.flows.len() as u64, ..*config };
        self.flows.push(Flow {
            controller: Controller::new(&config),
            mss: u64::from(config.mss),
            flight: VecDeque::new(),
            next_number: 0,
            next_send: self.now,
            last_event: self.now,
            last_sent: self.now,
            round_end: 0,
            recovery_point: 0,
            in_recovery: false,
            srtt: rtt,
            min_rtt: rtt,
            limited: false,
            supply: u64::MAX,
            windows: Vec::new(),
            delivered: 0,
            lost: 0,
            timeouts: 0,
            delivered_at: self.now,
            first_sent_at: self.now,
            app_limited_until: 0,
        });
        self.flows.len() - 1
    }

    fn draw(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    fn send(&mut self, index: usize) {
        let (now, lucky) = (self.now, self.draw(1_000_000) >= self.link.loss_ppm);
        let f = &mut self.flows[index];
        let packet_time = Duration::from_nanos(f.mss * 8 * 1_000_000_000 / self.link.rate_bps);
        let waiting = (self.free_at.since(now).as_nanos() / packet_time.as_nanos()) as u64;
        let taken = waiting <= self.link.buffer_packets;
        if taken {
            self.free_at = self.free_at.max(now) + packet_time;
            self.queue_max = self.queue_max.max(waiting);
        }
        if f.flight.is_empty() {
            let (idle, rto) = (now.since(f.last_sent), (f.srtt * 2).max(Duration::from_millis(200)));
            if idle > rto {
                f.controller.on_idle_restart(now, idle, rto);
            }
            f.last_event = now;
            (f.delivered_at, f.first_sent_at) = (now, now);
        }
        let ack_at = self.free_at + Duration::from_millis(self.link.rtt_ms);
        let number = f.next_number;
        f.next_number += 1;
        let app_limited = f.app_limited_until > 0;
        f.flight.push_back(Packet {
            number,
            sent_at: now,
            ack_at,
            lost: !(taken && lucky),
            delivered: f.delivered,
            delivered_at: f.delivered_at,
            first_sent_at: f.first_sent_at,
            lost_before: f.lost,
            tx_in_flight: f.in_flight() + f.mss,
            app_limited,
        });
        f.supply = if f.supply == u64::MAX { u64::MAX } else { f.supply - 1 };
        f.controller.on_sent(now, f.mss, f.in_flight(), app_limited);
        f.limited = f.in_flight() + f.mss > f.controller.cwnd_bytes();
        f.last_sent = now;
        let paced = f.controller.pacing_rate_bps(f.srtt);
        if let Some(rate) = [paced, self.link.access_bps].into_iter().flatten().min() {
            f.next_send = f.next_send.max(now) + Duration::from_nanos(f.mss * 8 * 1_000_000_000 / rate);
        }
    }

    /// Runs for that much virtual time.
    pub fn run(&mut self, time: Duration) -> &mut Self {
        let end = self.now + time;
        loop {
            let mut next: Option<(Instant, u8, usize)> = None;
            for (i, f) in self.flows.iter().enumerate() {
                let events = [(f.ack_at(), 0), (f.send_at(self.now), 1), (f.timeout_at(), 2)];
                for (at, what) in events {
                    if let Some(at) = at
                        && next.is_none_or(|n| (at, what, i) < n)
                    {
                        next = Some((at, what, i));
                    }
                }
            }
            let Some((at, what, i)) = next.filter(|n| n.0 <= end) else {
                self.now = end;
                return self;
            };
            self.now = at;
            match what {
                0 => self.flows[i].acknowledge(at),
                1 => self.send(i),
                _ => self.flows[i].time_out(at),
            }
        }
    }

    /// Packets that each flow delivers in that much time.
    pub fn delivered_in(&mut self, time: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.flows.iter().map(|f| f.delivered).collect();
        self.run(time);
        self.flows.iter().zip(before).map(|(f, b)| f.delivered - b).collect()
    }

    /// Every source offers that many packets per second for so long, and nothing else.
    pub fn trickle(&mut self, per_second: u64, time: Duration) -> &mut Self {
        let gap = Duration::from_nanos(1_000_000_000 / per_second);
        let end = self.now + time;
        while self.now < end {
            for f in &mut self.flows {
                f.supply = if f.supply == u64::MAX { 0 } else { f.supply };
                f.supply(1);
            }
            self.run(gap);
        }
        self
    }

    /// The sources fall silent (what is in flight arrives), and go on after that much time.
    pub fn pause(&mut self, time: Duration) -> &mut Self {
        for f in &mut self.flows {
            f.supply = 0;
        }
        self.run(time);
        for f in &mut self.flows {
            f.supply(u64::MAX);
        }
        self
    }
}
