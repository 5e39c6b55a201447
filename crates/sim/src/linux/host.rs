//! A Linux host in a [`crate::world::World`]: connections, and the application that drives them.

use std::collections::VecDeque;
use std::rc::Rc;

use farlink_wire::{Instant, TcpSegment};

use super::config::LinuxConfig;
use super::conn::Conn;
use super::transfer::{Outcomes, PATIENCE, Transfer};
use crate::app::End;
use crate::content::Stream;
use crate::host::{Host, address};
use crate::packet::{hash, tcp};

/// Host number of the client.
pub const CLIENT: usize = 0;
/// Host number of the server.
pub const SERVER: usize = 1;
/// Port of the server.
const SERVER_PORT: u16 = 5001;
/// Port of the first client.
const CLIENT_PORT: u16 = 32_768;

struct Task {
    conn: Option<Conn>,
    read: u64,
    closed: bool,
    answered: bool,
    moved: Instant,
}

/// See the module.
pub struct LinuxHost {
    number: usize,
    config: LinuxConfig,
    seed: u64,
    transfers: Rc<Vec<Transfer>>,
    outcomes: Outcomes,
    tasks: Vec<Task>,
    out: VecDeque<Vec<u8>>,
    scratch: Vec<u8>,
}

impl LinuxHost {
    /// The client ([`CLIENT`]) or the server ([`SERVER`]) of `transfers`. `seed` chooses its ISNs.
    #[must_use]
    pub fn new(
        number: usize,
        config: LinuxConfig,
        transfers: Rc<Vec<Transfer>>,
        outcomes: Outcomes,
        seed: u64,
    ) -> Self {
        let task = |t: &Transfer| Task {
            conn: None,
            read: 0,
            closed: false,
            answered: false,
            moved: Instant::ZERO + t.start,
        };
        let tasks = transfers.iter().map(task).collect();
        Self { number, config, seed, transfers, outcomes, tasks, out: VecDeque::new(), scratch: Vec::new() }
    }

    fn ends_of(&self, n: usize) -> [(std::net::IpAddr, u16); 2] {
        let v6 = self.transfers[n].v6;
        [(address(CLIENT, v6), CLIENT_PORT + n as u16), (address(SERVER, v6), SERVER_PORT)]
    }

    fn isn(&self, now: Instant, n: usize) -> u32 {
        hash(self.seed ^ n as u64, &now.as_nanos().to_le_bytes()) as u32
    }

    fn is_client(&self) -> bool {
        self.number == CLIENT
    }

    /// Which transfer a segment belongs to.
    fn task_of(&self, s: &TcpSegment) -> Option<usize> {
        let [theirs, ours] =
            if self.is_client() { [s.dst_port, s.src_port] } else { [s.src_port, s.dst_port] };
        let n = usize::from(theirs.checked_sub(CLIENT_PORT)?);
        (ours == SERVER_PORT && n < self.tasks.len()).then_some(n)
    }

    /// Lets the application of one transfer do what it can.
    fn work(&mut self, now: Instant, n: usize) {
        let [client, server] = self.ends_of(n);
        let (local, remote) = if self.is_client() { (client, server) } else { (server, client) };
        let transfer = self.transfers[n].clone();
        let task = &mut self.tasks[n];
        let Some(conn) = &mut task.conn else { return };
        let mut outcomes = self.outcomes.borrow_mut();
        let outcome = &mut outcomes[n];
        if let Some(why) = conn.failed {
            outcome.error.get_or_insert_with(|| why.to_string());
            return;
        }
        if !conn.is_open() {
            return;
        }
        let is_client = self.number == CLIENT;
        if is_client && outcome.connected.is_none() {
            outcome.connected = Some(now);
            conn.tx.write(transfer.client_bytes());
        }
        if conn.rx.is_readable() {
            let rtt = conn.tx.rtt.srtt;
            conn.rx.read(now, rtt, &mut self.scratch);
            task.moved = now;
            let stream = Stream::new(remote, local, conn.irs.0);
            if let Some(at) = stream.first_difference(task.read, &self.scratch) {
                let at = task.read + at as u64;
                outcome.error.get_or_insert_with(|| format!("byte {at} is not the one that was sent"));
            }
            task.read += self.scratch.len() as u64;
            outcome.received[self.number] = task.read;
            if is_client {
                outcome.first_byte.get_or_insert(now);
                outcome.last_byte = Some(now);
            }
        }
        if !is_client && !task.answered && task.read >= transfer.client_bytes() {
            task.answered = true;
            conn.tx.write(transfer.server_bytes());
            conn.tx.close();
            task.closed = true;
        }
        if is_client && !task.closed && conn.rx.is_at_end() {
            task.closed = true;
            conn.tx.close();
        }
        outcome.retransmits[self.number] = conn.tx.retransmits;
        outcome.ended[self.number] = conn.rx.is_at_end() && conn.tx.is_done();
    }

    /// Takes what the connection of one transfer has to send.
    fn collect(&mut self, now: Instant, n: usize) {
        let [client, server] = self.ends_of(n);
        let (local, remote) = if self.is_client() { (client, server) } else { (server, client) };
        let Some(conn) = &mut self.tasks[n].conn else { return };
        let mut stream = None;
        while let Some(packet) = {
            let own = stream.unwrap_or_else(|| Stream::new(local, remote, conn.isn()));
            stream = Some(own);
            conn.next_packet(now, &|at, out| own.fill(at, out))
        } {
            self.out.push_back(packet);
        }
    }

    /// The client's transfers that are due, and those that stand still.
    fn begin(&mut self, now: Instant) {
        for n in 0..self.tasks.len() {
            if self.tasks[n].conn.is_none() && self.tasks[n].moved <= now {
                let [client, server] = self.ends_of(n);
                let isn = self.isn(now, n);
                self.tasks[n].conn = Some(Conn::connect(self.config.clone(), client, server, isn));
            }
            let stands = self.tasks[n].moved + PATIENCE <= now;
            let outcome = &mut self.outcomes.borrow_mut()[n];
            if stands && !outcome.is_over() && self.transfers[n].direction == super::Direction::Download {
                let read = self.tasks[n].read;
                outcome.error =
                    Some(format!("nothing arrives for {} s, after {read} bytes", PATIENCE.as_secs()));
                self.tasks[n].conn = None;
            }
        }
    }
}

impl Host for LinuxHost {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        let Some(s) = tcp(packet) else { return };
        if !farlink_wire::verify_checksums(packet, &s, &farlink_wire::Offload::default()) {
            return;
        }
        let Some(n) = self.task_of(&s) else { return };
        if !self.is_client() && self.tasks[n].conn.is_none() && s.flags.syn() && !s.flags.ack() {
            let [client, server] = self.ends_of(n);
            let isn = self.isn(now, n);
            self.tasks[n].conn = Some(Conn::accept(self.config.clone(), server, client, isn, &s));
        } else if let Some(conn) = &mut self.tasks[n].conn {
            conn.receive(now, &s, packet);
        }
        self.work(now, n);
        self.collect(now, n);
        // What the application did may have opened a window, or ended the stream.
        self.work(now, n);
    }

    fn run(&mut self, now: Instant) {
        if self.is_client() {
            self.begin(now);
        }
        for n in 0..self.tasks.len() {
            let Some(conn) = &mut self.tasks[n].conn else { continue };
            if conn.deadline().is_some_and(|t| t <= now) {
                conn.timeout(now);
            }
            self.work(now, n);
            self.collect(now, n);
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let is_client = self.is_client();
        let outcomes = self.outcomes.borrow();
        let of = |(n, t): (usize, &Task)| match &t.conn {
            None if !is_client || outcomes[n].is_over() => None,
            None => Some(t.moved),
            Some(conn) if is_client && !outcomes[n].is_over() => {
                Some(conn.deadline().map_or(t.moved + PATIENCE, |d| d.min(t.moved + PATIENCE)))
            }
            Some(conn) => conn.deadline(),
        };
        self.tasks.iter().enumerate().filter_map(of).min()
    }

    fn is_finished(&self) -> bool {
        self.outcomes.borrow().iter().all(super::Outcome::is_over)
    }

    fn ends(&self) -> Vec<End> {
        Vec::new()
    }
}
