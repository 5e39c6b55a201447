//! Streams that go on round the gateways: their numbers jump, as if so many bytes had taken another
//! way while nothing of the connection was under way here.
//!
//! Hosts, wires and the observer know nothing of it. What goes into a gateway has numbers that are
//! larger by what has gone round, and what comes out has them taken off. So a run of a few
//! megabytes stands for one of more than 2^31 bytes.

use farlink_gateway::Record;
use farlink_wire::options::{KIND_SACK, OptionWalk};
use farlink_wire::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES};
use farlink_wire::{Duration, Instant, Offload, Parsed, SeqNum, TcpSegment, checksum};

use super::World;
use crate::changing::Jump;
use crate::content::Endpoint;
use crate::fault::Fault;
use crate::host::address;
use crate::node::Outgoing;
use crate::packet::on_wire;
use crate::traffic::Connection;
use crate::truth::{Conn, FlowKey};

/// A stream is looked at so often, until nothing of it is under way.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Before its first step a connection is left alone for so long: late copies of its handshake.
const BEGINS_AFTER: Duration = Duration::from_secs(1);
/// What is further than this from where its host stands is a word from before a step. A whole
/// connection carries less, and a step more.
const NEAR_BYTES: u32 = 1 << 24;

/// The connection, and how far it has gone on.
pub(super) struct Jumping {
    how: Jump,
    /// Who sends what goes on, and to whom.
    ends: [Endpoint; 2],
    /// So much has gone round, modulo 2^32.
    total: u32,
    steps_left: u32,
    /// Where its source stood at the last step.
    stood: Option<SeqNum>,
}

impl Jumping {
    fn key(&self) -> FlowKey {
        let [a, b] = self.ends;
        if a <= b { (a, b) } else { (b, a) }
    }

    /// The side of the connection that sends what goes on, as the observer counts.
    fn side(&self) -> usize {
        usize::from(self.ends[0] > self.ends[1])
    }

    /// It is of this connection: whether it is of the host whose stream goes on.
    fn is_of_source(&self, s: &TcpSegment) -> Option<bool> {
        let ends = [(s.ip.src, s.src_port), (s.ip.dst, s.dst_port)];
        let [src, dst] = self.ends;
        (ends == self.ends).then_some(true).or((ends == [dst, src]).then_some(false))
    }

    /// A packet goes into a gateway.
    pub(super) fn enter(&self, bytes: &mut [u8], offload: &Offload) {
        let Parsed::Tcp(s) = on_wire(bytes) else { return };
        if let Some(of_source) = self.is_of_source(&s).filter(|_| self.total > 0) {
            shift(bytes, offload, &s, of_source, self.total);
        }
    }
}

/// Adds to the numbers of the stream in a segment: of its source, or of the other host.
fn shift(bytes: &mut [u8], offload: &Offload, s: &TcpSegment, of_source: bool, by: u32) {
    let at = s.tcp_offset();
    if of_source {
        return add(bytes, offload, s, at + 4, by);
    }
    if s.flags.ack() {
        add(bytes, offload, s, at + 8, by);
    }
    let from = at + TCP_HEADER_BYTES;
    let area = bytes[from..s.payload_offset].to_vec();
    for option in OptionWalk::new(&area).filter(|option| option.kind == KIND_SACK) {
        for edge in 0..option.body.len() / 4 {
            add(bytes, offload, s, from + option.offset + 2 + edge * 4, by);
        }
    }
}

/// Adds to a number in a header. A checksum that is right stays right, and a wrong one wrong.
fn add(bytes: &mut [u8], offload: &Offload, s: &TcpSegment, at: usize, by: u32) {
    let old = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let new = u32::from_be_bytes(old).wrapping_add(by).to_be_bytes();
    bytes[at..at + 4].copy_from_slice(&new);
    if offload.is_partial() {
        return;
    }
    // A checksum is of words from the beginning of the header: an option may begin between two.
    let is_odd = (at - s.tcp_offset()) % 2 == 1;
    let words = |b: [u8; 4]| match is_odd {
        false => [[b[0], b[1]], [b[2], b[3]], [0, 0]],
        true => [[0, b[0]], [b[1], b[2]], [b[3], 0]],
    };
    let field = s.tcp_offset() + TCP_CHECKSUM_OFFSET;
    let mut check = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
    for (old, new) in std::iter::zip(words(old), words(new)) {
        check = checksum::update(check, u16::from_be_bytes(old), u16::from_be_bytes(new));
    }
    bytes[field..field + 2].copy_from_slice(&check.to_be_bytes());
}

/// Both hosts have acknowledged all that has been sent, and neither has ended: nothing that counts
/// is under way. `None`: it is over.
fn is_quiet(conn: &Conn) -> Option<bool> {
    let [Some(a), Some(b)] = &conn.sides else { return Some(false) };
    let is_over =
        conn.excuse.is_some() || conn.abandoned || a.reset || b.reset || a.fin_at.or(b.fin_at).is_some();
    (!is_over).then(|| a.acked == Some(b.snd_max) && b.acked == Some(a.snd_max))
}

impl World {
    /// From now on the streams of this connection go on round the gateways now and then.
    pub fn jump(&mut self, connection: &Connection, how: Jump) {
        let client = (address(connection.client, connection.v6), connection.client_port);
        let server = (address(connection.server, connection.v6), connection.server_port);
        let ends = if how.of_client { [client, server] } else { [server, client] };
        self.jumping = Some(Jumping { how, ends, total: 0, steps_left: how.steps, stood: None });
        self.add_faults([(Instant::ZERO + connection.start + BEGINS_AFTER, Fault::Jump)]);
    }

    /// It is time for a step, if nothing of the connection is under way.
    pub(super) fn step_of_jump(&mut self) {
        let Some(jumping) = &mut self.jumping else { return };
        let conn = self.observer.truth.flows.get(&jumping.key()).and_then(|flow| flow.conns.last());
        let Some(is_quiet) = conn.map_or(Some(false), is_quiet) else { return };
        let stands = conn.and_then(|conn| conn.sides[jumping.side()].as_ref()).map(|said| said.snd_max);
        let mut next = LOOK_EVERY;
        // Between two steps something passes by which a gateway sees where the stream stands.
        if is_quiet && stands != jumping.stood {
            jumping.stood = stands;
            jumping.total = jumping.total.wrapping_add(jumping.how.step_bytes);
            jumping.steps_left -= 1;
            next = jumping.how.every;
            self.observer.note_jump(jumping.key());
        }
        if jumping.steps_left > 0 {
            self.add_faults([(self.now + next, Fault::Jump)]);
        }
    }

    /// A packet leaves a gateway: it gets the numbers of the hosts. `false`: they are from before a
    /// step, and nobody can make anything of it.
    pub(super) fn leave_in_hosts_numbers(&self, o: &mut Outgoing) -> bool {
        let Some(jumping) = self.jumping.as_ref().filter(|jumping| jumping.total > 0) else { return true };
        let Parsed::Tcp(s) = on_wire(&o.bytes) else { return true };
        let Some(of_source) = jumping.is_of_source(&s) else { return true };
        let back = jumping.total.wrapping_neg();
        let told = if of_source { Some(s.seq) } else { s.flags.ack().then_some(s.ack) };
        // What came twice before a step may be told behind it.
        let blocks = s.options.sack.iter().map(|block| block.end).filter(|_| !of_source);
        if !told.into_iter().chain(blocks).all(|told| self.is_near_source(jumping, told + back)) {
            return false;
        }
        shift(&mut o.bytes, &o.offload, &s, of_source, back);
        true
    }

    fn is_near_source(&self, jumping: &Jumping, at: SeqNum) -> bool {
        let conn = self.observer.truth.flows.get(&jumping.key()).and_then(|flow| flow.conns.last());
        let said = conn.and_then(|conn| conn.sides[jumping.side()].as_ref());
        said.is_none_or(|said| at.diff(said.snd_max).unsigned_abs() < NEAR_BYTES)
    }

    /// What is written of connections has the numbers of the hosts.
    pub(super) fn in_hosts_numbers(&self, records: &mut [Record]) {
        let Some(jumping) = &self.jumping else { return };
        let [src, dst] = jumping.ends;
        for record in records {
            let acked = match (record.a, record.b) {
                ends if ends == (src, dst) => &mut record.acked_by_b,
                ends if ends == (dst, src) => &mut record.acked_by_a,
                _ => continue,
            };
            *acked += jumping.total.wrapping_neg();
        }
    }
}
