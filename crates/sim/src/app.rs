//! One end of one connection: writes its stream, reads and checks the other, closes as planned.

use farlink_wire::Instant;
use smoltcp::socket::tcp::{RecvError, Socket, State};

use crate::border::Border;
use crate::content::{Endpoint, Stream};
use crate::traffic::{Begin, Close, Side};

/// How a connection ended at one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It has not.
    Open,
    /// Both streams ended in order.
    Done,
    /// The other side, or a gateway for it, reset it (or the stack gave up for want of answers).
    Reset,
    /// The SYN was answered by a RST.
    Refused,
    /// This side aborted it, as planned.
    Aborted,
}

/// What one end has to tell.
#[derive(Clone, Debug)]
pub struct End {
    /// Index of the planned connection.
    pub connection: usize,
    /// The end that sent the SYN.
    pub is_client: bool,
    /// ISN of the client: names the incarnation.
    pub client_isn: Option<u32>,
    /// Bytes written into the stack.
    pub written: u64,
    /// Bytes read from the stack, all of them checked.
    pub received: u64,
    /// The end of the other stream was read.
    pub end_read: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// What it saw that cannot be.
    pub error: Option<String>,
    /// State of the stack's socket, for diagnosis.
    pub state: String,
    /// When it ended.
    pub ended: Option<Instant>,
}

/// The application at one end.
pub struct App {
    side: Side,
    is_client: bool,
    local: Endpoint,
    remote: Option<Endpoint>,
    streams: Option<[Stream; 2]>,
    established: bool,
    next_write: Instant,
    next_read: Instant,
    stops_taken: usize,
    close_at: Option<Instant>,
    closed: bool,
    /// What it tells.
    pub end: End,
}

impl App {
    /// An application for `side` at `local`; a server learns `remote` when somebody comes.
    #[must_use]
    pub fn new(
        connection: usize,
        side: Side,
        is_client: bool,
        local: Endpoint,
        remote: Option<Endpoint>,
    ) -> Self {
        let end = End {
            connection,
            is_client,
            client_isn: None,
            written: 0,
            received: 0,
            end_read: false,
            outcome: Outcome::Open,
            error: None,
            state: String::new(),
            ended: None,
        };
        Self {
            side,
            is_client,
            local,
            remote,
            streams: None,
            established: false,
            next_write: Instant::ZERO,
            next_read: Instant::ZERO,
            stops_taken: 0,
            close_at: None,
            closed: false,
            end,
        }
    }

    /// It has ended, and its socket may be taken away.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.end.outcome != Outcome::Open
    }

    /// A connection has been made (servers: with somebody).
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// When it wants to be called even if nothing arrives.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.has_ended() {
            return None;
        }
        [Some(self.next_write), Some(self.next_read), self.close_at]
            .into_iter()
            .flatten()
            .filter(|t| *t > now)
            .min()
    }

    /// Does what can be done now. `true` when that changed anything.
    pub fn run(&mut self, now: Instant, socket: &mut Socket<'_>, border: &Border) -> bool {
        if self.has_ended() {
            return false;
        }
        if !self.established && !self.establish(now, socket, border) {
            return false;
        }
        let mut changed = self.write(now, socket);
        changed |= self.read(now, socket);
        if self.has_ended() {
            return true;
        }
        changed |= self.close(now, socket);
        self.settle(now, socket);
        changed
    }

    fn finish(&mut self, now: Instant, outcome: Outcome) {
        self.end.outcome = outcome;
        self.end.ended = Some(now);
    }

    fn establish(&mut self, now: Instant, socket: &Socket<'_>, border: &Border) -> bool {
        match socket.state() {
            State::Listen | State::SynSent | State::SynReceived => return false,
            State::Closed => {
                if self.is_client {
                    self.finish(now, Outcome::Refused);
                }
                return false;
            }
            _ => {}
        }
        if let Some(r) = socket.remote_endpoint() {
            self.remote = Some((r.addr.into(), r.port));
        }
        let Some(remote) = self.remote else { return false };
        let Some(known) = border.known(self.local, remote) else { return false };
        let Some(peer_isn) = known.peer_isn else {
            self.end.error = Some("established without a SYN from the other side".into());
            return false;
        };
        self.established = true;
        self.end.client_isn = Some(if self.is_client { known.own_isn } else { peer_isn });
        self.streams =
            Some([Stream::new(self.local, remote, known.own_isn), Stream::new(remote, self.local, peer_isn)]);
        true
    }

    fn write_limit(&self) -> u64 {
        match self.side.close {
            Close::AbortAfterWriting(n) => n.min(self.side.send_bytes),
            _ => self.side.send_bytes,
        }
    }

    fn may_write(&self, now: Instant) -> bool {
        let begun = match self.side.begin {
            Begin::AtOnce => true,
            Begin::AfterBytes(n) => self.end.received >= n || self.end.end_read,
            Begin::AfterEnd => self.end.end_read,
        };
        begun && now >= self.next_write && !self.closed
    }

    fn write(&mut self, now: Instant, socket: &mut Socket<'_>) -> bool {
        let Some([out, _]) = self.streams else { return false };
        let mut changed = false;
        while self.may_write(now) && self.end.written < self.write_limit() && socket.can_send() {
            let left = self.write_limit() - self.end.written;
            let most = (self.side.write_bytes as u64).min(left) as usize;
            let offset = self.end.written;
            let wrote = socket.send(|buffer| {
                let n = buffer.len().min(most);
                out.fill(offset, &mut buffer[..n]);
                (n, n)
            });
            let Ok(n) = wrote else { break };
            if n == 0 {
                break;
            }
            self.end.written += n as u64;
            changed = true;
            if !self.side.write_gap.is_zero() {
                self.next_write = now + self.side.write_gap;
            }
        }
        changed
    }

    /// How far it may read before its next stop.
    fn read_limit(&mut self, now: Instant) -> u64 {
        while let Some((at, pause)) = self.side.read_stops.get(self.stops_taken).copied() {
            if self.end.received < at {
                return at;
            }
            self.stops_taken += 1;
            self.next_read = now + pause;
        }
        u64::MAX
    }

    fn read(&mut self, now: Instant, socket: &mut Socket<'_>) -> bool {
        let Some([_, stream]) = self.streams else { return false };
        let mut changed = false;
        // smoltcp forgets unread bytes at the end of TIME-WAIT, as no operating system does: take
        // them before.
        let hurry = socket.state() == State::TimeWait;
        loop {
            let limit = if hurry { u64::MAX } else { self.read_limit(now) };
            if now < self.next_read && !hurry {
                break;
            }
            let most = (self.side.read_bytes as u64).min(limit - self.end.received) as usize;
            let offset = self.end.received;
            let got = socket.recv(|buffer| {
                let n = buffer.len().min(most);
                (n, (n, stream.first_difference(offset, &buffer[..n])))
            });
            match got {
                Ok((0, _)) => break,
                Ok((n, difference)) => {
                    if let Some(d) = difference {
                        let at = offset + d as u64;
                        self.end
                            .error
                            .get_or_insert(format!("byte {at} of the stream read is not the byte sent"));
                    }
                    self.end.received += n as u64;
                    changed = true;
                    if !self.side.read_gap.is_zero() {
                        self.next_read = now + self.side.read_gap;
                    }
                }
                Err(RecvError::Finished) => {
                    changed |= !self.end.end_read;
                    self.end.end_read = true;
                    break;
                }
                Err(RecvError::InvalidState) => {
                    if self.established && socket.state() == State::Closed {
                        self.finish(now, Outcome::Reset);
                        changed = true;
                    }
                    break;
                }
            }
        }
        changed
    }

    fn close(&mut self, now: Instant, socket: &mut Socket<'_>) -> bool {
        if self.closed {
            return false;
        }
        let sent = self.end.written >= self.side.send_bytes;
        let due = match self.side.close {
            Close::WhenSent => sent,
            Close::WhenBothDone => sent && self.end.end_read,
            Close::Later(pause) => {
                if sent && self.close_at.is_none() {
                    self.close_at = Some(now + pause);
                }
                self.close_at.is_some_and(|t| now >= t)
            }
            Close::AbortAfterWriting(_) | Close::AbortAfterReading(_) => {
                let due = match self.side.close {
                    Close::AbortAfterReading(n) => self.end.received >= n || self.end.end_read,
                    _ => self.end.written >= self.write_limit(),
                };
                if due {
                    socket.abort();
                    self.closed = true;
                    self.finish(now, Outcome::Aborted);
                }
                return due;
            }
        };
        // In LAST-ACK smoltcp no longer hears of windows that open: bytes must be delivered before.
        let due = due && !(socket.state() == State::CloseWait && socket.send_queue() > 0);
        if due {
            socket.close();
            self.closed = true;
        }
        due
    }

    fn settle(&mut self, now: Instant, socket: &mut Socket<'_>) {
        if self.has_ended() {
            return;
        }
        let over = matches!(socket.state(), State::Closed | State::TimeWait);
        if over && self.closed && self.end.end_read {
            self.finish(now, Outcome::Done);
        } else if socket.state() == State::Closed
            && (socket.peek(1) == Err(RecvError::InvalidState) || (self.end.end_read && !self.closed))
        {
            // The stack has closed it, not we.
            self.finish(now, Outcome::Reset);
        }
    }
}
