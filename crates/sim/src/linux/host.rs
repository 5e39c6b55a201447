//! A Linux host in a [`crate::world::World`]: connections, and the application that drives them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use std::net::IpAddr;

use farlink_wire::icmp::{self, IcmpError, IcmpKind};
use farlink_wire::{Duration, Instant, Parsed, TcpSegment, parse};

use super::config::LinuxConfig;
use super::conn::{Conn, Path, RESET};
use super::flood::Flood;
use super::transfer::{Direction, Play, Start};
use super::tunnel;
use crate::app::End;
use crate::content::Stream;
use crate::host::{Host, address};
use crate::packet::{hash, tcp};
use crate::reassembly::Reassembly;

/// Host number of the client.
pub const CLIENT: usize = 0;
/// Host number of the server.
pub const SERVER: usize = 1;
/// Host number of a second client.
pub const CLIENT_2: usize = 2;
/// Host number of a third client.
pub const CLIENT_3: usize = 3;
/// Port of the server.
pub const SERVER_PORT: u16 = 5001;
/// Port of the first client.
pub const CLIENT_PORT: u16 = 32_768;
/// A connection that is over keeps its timers for so long.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Task {
    conn: Option<Conn>,
    read: u64,
    closed: bool,
    /// The application has closed the socket.
    is_released: bool,
    /// Bytes of the questions (server) or answers (client) up to the step in hand, it included.
    due_bytes: u64,
    /// Steps that this side has begun: asked or answered.
    begun: usize,
    messages: Messages,
    /// The client waits for an answer since then.
    asked: Option<Instant>,
    /// The client's next question is due then.
    ask_at: Option<Instant>,
    /// It does not read until then; once.
    stops_until: Option<Instant>,
    /// Something moved then, or it begins then.
    moved: Instant,
    over_at: Option<Instant>,
    /// It has been over for long.
    is_retired: bool,
    /// It stands in the list of deadlines with this.
    due: Option<Instant>,
}

/// How many messages of a transfer one side has written, or the other one has read.
#[derive(Default)]
struct Messages {
    count: usize,
    bytes: u64,
}

impl Messages {
    /// The next of them, if it is due.
    fn next_due(&mut self, now: Instant, all: &[(Duration, u64)]) -> Option<u64> {
        let (_, bytes) = all.get(self.count).filter(|(at, _)| Instant::ZERO + *at <= now)?;
        self.count += 1;
        Some(*bytes)
    }

    /// So many bytes have been read: notes which messages have come with them.
    fn hear(&mut self, now: Instant, read: u64, all: &[(Duration, u64)], heard: &mut Vec<Instant>) {
        while let Some((_, bytes)) = all.get(self.count)
            && self.bytes + bytes <= read
        {
            self.bytes += bytes;
            self.count += 1;
            heard.push(now);
        }
    }
}

/// See the module.
pub struct LinuxHost {
    number: usize,
    config: LinuxConfig,
    seed: u64,
    play: Rc<Play>,
    tasks: Vec<Task>,
    /// Transfers still to begin, by time. Of a client only.
    waiting: BTreeSet<(Instant, usize)>,
    /// Transfers that begin when this one has its first answer.
    followers: BTreeMap<usize, Vec<usize>>,
    /// Transfers that something has happened to since the host last ran, in order.
    ready: BTreeSet<usize>,
    /// When the application or the connection of a transfer wants to be called.
    deadlines: BTreeSet<(Instant, usize)>,
    /// So much of the play's news was read.
    news_read: usize,
    /// Transfers that are over, and since when; after [`LINGER`] only their segments are answered.
    lingering: VecDeque<(Instant, usize)>,
    floods: Vec<Flood>,
    fragments: Reassembly,
    /// What the paths to other hosts take, as far as routers have said it.
    paths: BTreeMap<IpAddr, Path>,
    out: VecDeque<Vec<u8>>,
    scratch: Vec<u8>,
}

impl LinuxHost {
    /// The host of this number; [`SERVER`] serves all transfers, the others make those that are
    /// theirs. `seed` chooses its ISNs.
    #[must_use]
    pub fn new(number: usize, config: LinuxConfig, play: Rc<Play>, seed: u64) -> Self {
        let tasks = play.transfers.iter().map(|_| Task::default()).collect();
        let mut waiting = BTreeSet::new();
        let mut followers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (n, t) in play.transfers.iter().enumerate() {
            match t.start {
                Start::At(at) if t.client == number => {
                    waiting.insert((Instant::ZERO + at, n));
                }
                Start::At(_) => {}
                Start::AfterFirstAnswerOf(first) => followers.entry(first).or_default().push(n),
            }
        }
        Self {
            number,
            config,
            seed,
            play,
            tasks,
            waiting,
            followers,
            ready: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            news_read: 0,
            lingering: VecDeque::new(),
            floods: Vec::new(),
            fragments: Reassembly::default(),
            paths: BTreeMap::new(),
            out: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Sends a flood of pings as long as there are transfers.
    pub fn add_flood(&mut self, flood: Flood) {
        self.floods.push(flood);
    }

    fn ends_of(&self, n: usize) -> [(std::net::IpAddr, u16); 2] {
        let t = &self.play.transfers[n];
        [(address(t.client, t.v6), CLIENT_PORT + n as u16), (address(SERVER, t.v6), SERVER_PORT)]
    }

    /// Local end first.
    fn local_ends(&self, n: usize) -> [(std::net::IpAddr, u16); 2] {
        let [client, server] = self.ends_of(n);
        if self.is_client() { [client, server] } else { [server, client] }
    }

    /// The stack as the application of a transfer has set its socket.
    fn config_of(&self, n: usize) -> LinuxConfig {
        LinuxConfig { dscp: self.play.transfers[n].dscp, ..self.config.clone() }
    }

    fn isn(&self, now: Instant, n: usize) -> u32 {
        hash(self.seed ^ n as u64, &now.as_nanos().to_le_bytes()) as u32
    }

    fn is_client(&self) -> bool {
        self.number != SERVER
    }

    /// Which transfer has these ports, its own first.
    fn task_of(&self, own: u16, other: u16) -> Option<usize> {
        let [client, server] = if self.is_client() { [own, other] } else { [other, own] };
        let n = usize::from(client.checked_sub(CLIENT_PORT)?);
        let known = server == SERVER_PORT && n < self.tasks.len();
        (known && (!self.is_client() || self.play.transfers[n].client == self.number)).then_some(n)
    }

    fn open(&mut self, now: Instant, n: usize, mut conn: Conn) {
        let [_, (remote, _)] = self.local_ends(n);
        self.paths.retain(|_, path| path.until > now);
        if let Some(path) = self.paths.get(&remote) {
            conn.take_path(*path);
        }
        self.tasks[n].conn = Some(conn);
        self.tasks[n].moved = now;
        self.ready.insert(n);
    }

    /// Lets the application of one transfer do what it can.
    fn work(&mut self, now: Instant, n: usize) {
        self.work_on(now, n);
        self.release(now, n);
        self.note_over(now, n);
    }

    fn note_over(&mut self, now: Instant, n: usize) {
        if self.play.note_over(n) && self.tasks[n].over_at.is_none() {
            self.tasks[n].over_at = Some(now);
            self.lingering.push_back((now, n));
            self.give_up_followers(n);
        }
    }

    /// Those that wait for an answer that will never come are over, too.
    fn give_up_followers(&mut self, n: usize) {
        let why = self.play.outcomes.borrow()[n].error.clone();
        let Some(why) = why.filter(|_| self.is_client()) else { return };
        for m in self.followers.remove(&n).unwrap_or_default() {
            self.play.outcomes.borrow_mut()[m].error = Some(why.clone());
            self.play.note_over(m);
        }
    }

    fn work_on(&mut self, now: Instant, n: usize) {
        let [local, remote] = self.local_ends(n);
        let is_client = self.is_client();
        let side = usize::from(!is_client);
        let play = Rc::clone(&self.play);
        let transfer = &play.transfers[n];
        let task = &mut self.tasks[n];
        let Some(conn) = &mut task.conn else { return };
        let mut outcomes = play.outcomes.borrow_mut();
        let outcome = &mut outcomes[n];
        if let Some(why) = conn.failed {
            outcome.was_reset[side] = why == RESET;
            outcome.error.get_or_insert_with(|| why.to_string());
            return;
        }
        if !conn.is_open() {
            return;
        }
        if is_client && outcome.connected.is_none() {
            outcome.connected = Some(now);
            let wait = outcome.steps.first().map_or(Duration::ZERO, |s| s.wait);
            task.ask_at = Some((now + wait).max(Instant::ZERO + transfer.ask_at));
        }
        if conn.rx.is_readable() && task.stops_until.is_none_or(|until| until <= now) {
            conn.rx.read(now, &mut self.scratch);
            task.moved = now;
            let stream = Stream::new(remote, local, conn.irs.0);
            if let Some(at) = stream.first_difference(task.read, &self.scratch) {
                let at = task.read + at as u64;
                outcome.error.get_or_insert_with(|| format!("byte {at} is not the one that was sent"));
            }
            task.read += self.scratch.len() as u64;
            outcome.received[side] = task.read;
            if !transfer.is_told_by(is_client) {
                task.messages.hear(now, task.read, &transfer.messages, &mut outcome.heard);
            }
            if is_client {
                outcome.note_read(now, transfer, task.read);
                if let Some((bytes, wait)) = transfer.stops.filter(|_| task.stops_until.is_none())
                    && task.read >= bytes
                {
                    task.stops_until = Some(now + wait);
                }
            }
        }
        while transfer.is_told_by(is_client)
            && let Some(bytes) = task.messages.next_due(now, &transfer.messages)
        {
            conn.tx.write(bytes);
            task.moved = now;
        }
        let mut is_first_answer = false;
        if is_client {
            if let Some(asked) = task.asked
                && task.read >= task.due_bytes
            {
                task.asked = None;
                outcome.answers.push((asked, now));
                is_first_answer = outcome.answers.len() == 1;
                if task.begun >= outcome.steps.len()
                    && let Some(list) = transfer.draws_from
                    && let Some(step) = play.lists.borrow_mut()[list].pop_front()
                {
                    outcome.steps.push(step);
                }
                task.ask_at = Some(now + outcome.steps.get(task.begun).map_or(transfer.linger, |s| s.wait));
            }
            if task.ask_at.is_some_and(|t| t <= now) {
                task.ask_at = None;
                if task.begun == 0 && outcome.steps.is_empty() {
                    // It has connected for what is left in the list.
                    let step = transfer.draws_from.and_then(|l| play.lists.borrow_mut()[l].pop_front());
                    outcome.steps.extend(step);
                }
                if let Some(step) = outcome.steps.get(task.begun) {
                    if !transfer.is_told_by(true) {
                        conn.tx.write(step.up_bytes);
                    }
                    task.begun += 1;
                    task.due_bytes += step.down_bytes;
                    task.asked = Some(now);
                    outcome.asked.get_or_insert(now);
                    task.moved = now;
                } else if !transfer.server_closes && !task.closed {
                    task.closed = true;
                    conn.tx.close();
                }
            }
        } else {
            // An answer of messages is given with the last of them.
            let is_said = !transfer.is_told_by(false) || task.messages.count >= transfer.messages.len();
            while let Some(step) = outcome.steps.get(task.begun)
                && is_said
                && task.read >= task.due_bytes + step.up_bytes
            {
                if !transfer.is_told_by(false) {
                    conn.tx.write(step.down_bytes);
                }
                outcome.answered.get_or_insert(now);
                task.begun += 1;
                task.due_bytes += step.up_bytes;
            }
            if transfer.server_closes && task.begun >= transfer.steps.len() && !task.closed {
                task.closed = true;
                conn.tx.close();
            }
        }
        if !task.closed && conn.rx.is_at_end() {
            task.closed = true;
            conn.tx.close();
        }
        outcome.retransmits[side] = conn.tx.retransmits;
        outcome.ended[side] = conn.rx.is_at_end() && conn.tx.is_done();
        if is_client && outcome.ended[side] {
            outcome.client_ended.get_or_insert(now);
        }
        if is_first_answer {
            // Those that follow it are made by the same host.
            let followers = self.followers.remove(&n).unwrap_or_default();
            self.waiting.extend(followers.into_iter().map(|m| (now, m)));
        }
    }

    /// Nobody needs the socket any more.
    fn release(&mut self, now: Instant, n: usize) {
        let task = &mut self.tasks[n];
        let Some(conn) = &mut task.conn else { return };
        if !conn.is_open() || !task.closed || task.is_released || !conn.rx.is_at_end() {
            return;
        }
        conn.release(now);
        task.is_released = true;
        // Linux `tcp_check_oom`.
        let most = self.config.orphans_max;
        let orphans = || self.tasks.iter().flat_map(|t| &t.conn).filter(|c| c.is_orphan()).count();
        if self.tasks.len() > most
            && orphans() > most
            && let Some(conn) = &mut self.tasks[n].conn
        {
            conn.reset("too many sockets that nobody has");
        }
    }

    /// Takes what the connection of one transfer has to send.
    fn collect(&mut self, now: Instant, n: usize) {
        let [local, remote] = self.local_ends(n);
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

    /// The client's transfers that are due.
    fn begin(&mut self, now: Instant) {
        while let Some((at, n)) = self.waiting.first().copied()
            && at <= now
        {
            self.waiting.pop_first();
            let [client, server] = self.ends_of(n);
            let isn = self.isn(now, n);
            let conn = Conn::connect(self.config_of(n), client, server, isn);
            self.open(now, n, conn);
            self.play.outcomes.borrow_mut()[n].began = now;
        }
    }

    /// Whose turn it is besides those that received something: deadlines that have come, and what
    /// the other host has ended.
    fn gather(&mut self, now: Instant) {
        while let Some((at, n)) = self.deadlines.first().copied()
            && at <= now
        {
            self.list(n, None);
            self.ready.insert(n);
        }
        let news = self.play.news.borrow();
        self.ready.extend(news.iter().skip(self.news_read));
        self.news_read = news.len();
    }

    /// The timers, the application and the packets of one transfer.
    fn run_one(&mut self, now: Instant, n: usize) {
        if self.tasks[n].is_retired {
            return;
        }
        self.watch(now, n);
        let Some(conn) = &mut self.tasks[n].conn else { return self.list(n, None) };
        if conn.deadline().is_some_and(|t| t <= now) {
            conn.timeout(now);
        }
        self.work(now, n);
        self.collect(now, n);
        self.list(n, self.deadline_of(n));
    }

    /// Gives up a transfer that stands still.
    fn watch(&mut self, now: Instant, n: usize) {
        let task = &mut self.tasks[n];
        let patience = self.play.transfers[n].patience;
        let stands = task.moved + patience <= now && task.ask_at.is_none();
        if !stands || !self.is_watched(n) || self.play.outcomes.borrow()[n].is_over() {
            return;
        }
        let why = format!("nothing arrives for {} s, after {} bytes", patience.as_secs(), self.tasks[n].read);
        self.play.give_up(n, why);
        self.tasks[n].conn = None;
    }

    /// Somebody waits for this transfer, and not for ever.
    fn is_watched(&self, n: usize) -> bool {
        self.is_client() && self.play.transfers[n].direction == Direction::Download
    }

    /// Takes a transfer from the list of deadlines, or puts it at its place there.
    fn list(&mut self, n: usize, due: Option<Instant>) {
        let old = std::mem::replace(&mut self.tasks[n].due, due);
        if old == due {
            return;
        }
        if let Some(old) = old {
            self.deadlines.remove(&(old, n));
        }
        if let Some(due) = due {
            self.deadlines.insert((due, n));
        }
    }

    /// When the application or the connection of a transfer wants to be called.
    fn deadline_of(&self, n: usize) -> Option<Instant> {
        let task = &self.tasks[n];
        let conn = task.conn.as_ref()?;
        if conn.failed.is_some() {
            return None;
        }
        let may_stand = task.over_at.is_none() && task.ask_at.is_none() && self.is_watched(n);
        let stall = may_stand.then(|| task.moved + self.play.transfers[n].patience);
        let is_talking = self.play.transfers[n].is_told_by(self.is_client()) && conn.is_open();
        let message = self.play.transfers[n].messages.get(task.messages.count).filter(|_| is_talking);
        let message = message.map(|(at, _)| Instant::ZERO + *at);
        let reads = task.stops_until.filter(|_| conn.rx.is_readable());
        [conn.deadline(), task.ask_at, stall, message, reads].into_iter().flatten().min()
    }

    fn receive_segment(&mut self, now: Instant, s: &TcpSegment, packet: &[u8]) {
        if !farlink_wire::verify_checksums(packet, s, &farlink_wire::Offload::default()) {
            return;
        }
        if !self.config.takes_oversized && packet.len() > self.config.mtu_bytes as usize {
            return;
        }
        let Some(n) = self.task_of(s.dst_port, s.src_port) else { return };
        if !self.is_client() && self.tasks[n].conn.is_none() && s.flags.syn() && !s.flags.ack() {
            let [client, server] = self.ends_of(n);
            let isn = self.isn(now, n);
            let conn = Conn::accept(self.config_of(n), server, client, isn, s);
            self.open(now, n, conn);
        } else if let Some(conn) = &mut self.tasks[n].conn {
            conn.receive(now, s, packet);
        }
        self.work(now, n);
        self.collect(now, n);
        // What the application did may have opened a window, or ended the stream.
        self.work(now, n);
        if !self.tasks[n].is_retired {
            self.ready.insert(n);
        }
    }

    /// Of errors only those about the path's MTU are heard.
    fn receive_error(&mut self, now: Instant, error: &IcmpError, packet: &[u8]) {
        let (IcmpKind::FragmentationNeeded { mtu } | IcmpKind::PacketTooBig { mtu }) = error.kind else {
            return;
        };
        let Some(about) = error.inner.filter(|_| icmp::verify_checksum(packet, error)) else { return };
        let Some(n) = self.task_of(about.src_port, about.dst_port) else { return };
        let [local, remote] = self.local_ends(n);
        if (about.src, about.dst) != (local.0, remote.0) {
            return;
        }
        let Some(conn) = &mut self.tasks[n].conn else { return };
        if let Some(path) = conn.hear_of_path(now, mtu, about.seq) {
            self.paths.insert(remote.0, path);
            self.play.outcomes.borrow_mut()[n].path_errors += 1;
            self.collect(now, n);
            self.ready.insert(n);
        }
    }
}

impl Host for LinuxHost {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        let inner = if self.config.has_tunnel { tunnel::unwrapped(packet) } else { None };
        let packet = inner.unwrap_or(packet);
        match parse(packet) {
            Parsed::Tcp(s) => self.receive_segment(now, &s, packet),
            Parsed::Fragment(_) => {
                if let Some(whole) = self.fragments.push(now, packet)
                    && let Some(s) = tcp(&whole)
                {
                    self.receive_segment(now, &s, &whole);
                }
            }
            Parsed::Icmp(error) => self.receive_error(now, &error, packet),
            Parsed::Other => {
                self.floods.iter_mut().for_each(|f| f.receive(packet));
                if self.number == SERVER {
                    self.play.datagrams.receive(now, packet);
                }
            }
        }
    }
    fn run(&mut self, now: Instant) {
        if self.is_client() {
            self.begin(now);
        }
        self.gather(now);
        for n in std::mem::take(&mut self.ready) {
            self.run_one(now, n);
        }
        while let Some((at, n)) = self.lingering.front().copied()
            && at + LINGER <= now
        {
            self.lingering.pop_front();
            self.tasks[n].is_retired = true;
            self.list(n, None);
        }
        for flood in &mut self.floods {
            self.out.extend(flood.next(now));
        }
        if self.number == CLIENT {
            let play = &self.play;
            self.out.extend(std::iter::from_fn(|| play.datagrams.next(now)));
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        let packet = self.out.pop_front()?;
        if self.config.has_tunnel { tunnel::wrapped(&packet) } else { Some(packet) }
    }

    fn deadline(&self) -> Option<Instant> {
        let waiting = self.waiting.first().map(|(at, _)| *at);
        let floods = self.floods.iter().map(Flood::deadline);
        let first = self.deadlines.first().map(|(at, _)| *at);
        let datagrams = self.play.datagrams.deadline().filter(|_| self.number == CLIENT);
        first.into_iter().chain(waiting).chain(floods).chain(datagrams).min()
    }

    fn is_finished(&self) -> bool {
        self.play.is_over()
    }

    fn ends(&self) -> Vec<End> {
        Vec::new()
    }
}
