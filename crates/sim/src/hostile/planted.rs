//! How many guesses of identifications meet: of fragments that are planted into what a gateway
//! sends in fragments, and of ICMP errors that quote a later fragment.
//!
//! Neither needs a port or a sequence number: only the identification of a datagram. Hosts alone
//! send no such datagrams, so there is nothing to compare with. What may meet is counted instead.
//! Of a planted fragment and a later datagram no more than chance has it, one in 65,536. Of errors
//! one for each datagram that is under way, and those count for its connection alone.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use farlink_gateway::Config;
use farlink_gateway::config::{Oversize, Pinned};
use farlink_wire::ip::PROTOCOL_TCP;
use farlink_wire::{Duration, Instant, checksum, icmp};

use super::plan::{Declared, HardLink, HostilePlan, Place, SPOOFER};
use super::run::{Attacker, Bed, build};
use crate::app::End;
use crate::host::{Host, address};
use crate::linux::host::{CLIENT, SERVER};
use crate::linux::transfer::Start;
use crate::linux::{Direction, LinuxConfig, Step, Transfer, congestion};
use crate::rng::Rng;
use crate::trace::Trace;

/// All identifications of IPv4.
pub const ALL_GUESSES: u32 = 1 << 16;
/// A gateway's segments into the link have so much payload, in fragments of a packet each.
const PAYLOAD_BYTES: u32 = 12_000;
const MTU_BYTES: usize = super::run::MTU_BYTES as usize;
/// Planted fragments, and quoted ones, begin there.
const OFFSET_BYTES: u16 = 1_480;
/// The attack begins then, and lasts so long.
const BEGINS: Duration = Duration::from_secs(4);
const LASTS: Duration = Duration::from_secs(20);
/// Then the connection that was attacked is over, and others say how large their packets are.
const OTHERS: Duration = Duration::from_secs(60);
const ENDS: Duration = Duration::from_secs(120);
/// A host waits so long for the rest of a datagram (Linux `net.ipv4.ipfrag_time`).
const WAITS: Duration = Duration::from_secs(30);
/// Who plants has seen what left before this: more than a stranger sees.
const SEEN_AFTER: Duration = Duration::from_millis(200);
/// Fragments that are planted.
const PLANTED: u32 = 4_000;

/// What is guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guess {
    /// A fragment is planted.
    Fragment,
    /// An ICMP error quotes one.
    Error,
}

/// What planted fragments came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// Fragments that were planted.
    pub fragments: u64,
    /// Datagrams that left in fragments.
    pub datagrams: u64,
    /// Pairs of a planted fragment and a datagram that left while the fragment was waited with.
    pub pairs: u64,
    /// Those that had the same identification.
    pub met: u64,
}

impl Planted {
    /// So many or fewer come by chance, but for one in a thousand tries (three sigma).
    #[must_use]
    pub fn most_by_chance(&self) -> u64 {
        let expected = self.pairs as f64 / f64::from(ALL_GUESSES);
        (expected + 3.0 * expected.sqrt()).ceil() as u64
    }

    /// They meet more often than chance has it.
    #[must_use]
    pub fn is_easier(&self) -> bool {
        self.met > self.most_by_chance()
    }
}

/// What quoted identifications came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quoted {
    /// Errors that were sent.
    pub errors: u64,
    /// Datagrams that left in fragments.
    pub datagrams: u64,
    /// Errors that a gateway took for its own.
    pub believed: u64,
    /// Packets of this size were the largest of the connections that were not attacked, bytes: of
    /// one that was open meanwhile, and of one that began later.
    pub others_bytes: Vec<usize>,
}

impl Quoted {
    /// Connections whose packets are smaller than they would be, beyond the one.
    #[must_use]
    pub fn beyond_the_one(&self) -> usize {
        self.others_bytes.iter().filter(|bytes| **bytes < MTU_BYTES).count()
    }
}

/// Plants fragments into a download. `knows`: the attacker has been told all identifications, which
/// shows that a meeting is seen.
#[must_use]
pub fn plant(seed: u64, knows: bool) -> Planted {
    let watch = |guesses: Vec<(Instant, u32)>| {
        let (mut bed, sent) = bed(seed, false, Guess::Fragment, guesses);
        bed.world.run_until(Instant::ZERO + OTHERS);
        let mut left: Vec<(Instant, u32)> = datagrams(&bed).collect();
        left.sort_unstable();
        (left, sent.take())
    };
    let (before, _) = watch(Vec::new());
    let (left, planted) = watch(guesses(seed, &before, knows));
    let mut told =
        Planted { fragments: planted.len() as u64, datagrams: left.len() as u64, ..Planted::default() };
    for (at, id) in planted {
        let later = left.iter().filter(|(leaves, _)| *leaves > at && *leaves < at + WAITS);
        for (_, of) in later {
            told.pairs += 1;
            told.met += u64::from(*of == id);
        }
    }
    told
}

/// Sends all identifications of IPv4 in errors that quote a later fragment, or as many of IPv6.
#[must_use]
pub fn quote(seed: u64, v6: bool) -> Quoted {
    let mut rng = Rng::new(seed, "quoted");
    let step = LASTS / ALL_GUESSES;
    let guess = |n: u32, rng: &mut Rng| if v6 { rng.bits() as u32 } else { n };
    let guesses = (0..ALL_GUESSES)
        .map(|n| (Instant::ZERO + BEGINS + step * n, guess(n.wrapping_mul(40_503) & 0xffff, &mut rng)));
    let (mut bed, sent) = bed(seed, v6, Guess::Error, guesses.collect());
    bed.world.run_until(Instant::ZERO + OTHERS);
    let (node, port) = bed.link[1];
    let datagrams = bed.world.meter(node, port).map_or(0, |meter| meter.in_fragments);
    // Counted anew.
    bed.world.set_meter(node, port);
    bed.world.run_until(Instant::ZERO + ENDS);
    let largest = bed.world.meter(node, port).map(|meter| meter.largest.clone()).unwrap_or_default();
    let client = |n: u16| (address(CLIENT, v6), crate::linux::host::CLIENT_PORT + n);
    let others_bytes = [1, 2].map(|n| {
        let of = largest.iter().filter(|((_, to), _)| *to == client(n)).map(|(_, bytes)| *bytes);
        of.max().unwrap_or(0)
    });
    let gateway = bed.gateways.first().copied();
    let counters = gateway.and_then(|n| bed.world.gateway(n)?.gateway.as_ref().map(|g| g.status()));
    let believed = counters.map_or(0, |status| status.engine.counters.icmp_consumed);
    Quoted { errors: sent.take().len() as u64, datagrams, believed, others_bytes: others_bytes.into() }
}

/// Identifications and times of what has left in fragments.
fn datagrams(bed: &Bed) -> impl Iterator<Item = (Instant, u32)> + '_ {
    let (node, port) = bed.link[1];
    let meter = bed.world.meter(node, port).into_iter();
    meter.flat_map(|meter| meter.identifications.names()).map(|(at, name)| (at, name.3))
}

/// What is planted when, by what has left before: the next one, the one before, the same, any.
fn guesses(seed: u64, left: &[(Instant, u32)], knows: bool) -> Vec<(Instant, u32)> {
    let mut rng = Rng::new(seed, "planted");
    let step = LASTS / PLANTED;
    let guess = |n: u32| {
        let at = Instant::ZERO + BEGINS + step * n;
        let seen = left.partition_point(|(leaves, _)| *leaves + SEEN_AFTER <= at);
        let newest = seen.checked_sub(1).and_then(|newest| left.get(newest)).map_or(0, |(_, id)| *id);
        let next = left.iter().find(|(leaves, _)| *leaves > at + SEEN_AFTER);
        let id = match (knows, n % 4) {
            (true, _) => next.map_or(0, |(_, id)| *id),
            (_, 0) => newest + 1 + rng.range(0, 16) as u32,
            (_, 1) => newest.wrapping_sub(1 + rng.range(0, 16) as u32),
            (_, 2) => newest,
            _ => rng.bits() as u32,
        };
        (at, id & 0xffff)
    };
    (0..PLANTED).map(guess).collect()
}

/// What was guessed, and when it was sent.
type SentThen = Rc<RefCell<Vec<(Instant, u32)>>>;

/// A gateway at the servers' end of the link, which sends large segments to the client.
fn bed(seed: u64, v6: bool, guess: Guess, guesses: Vec<(Instant, u32)>) -> (Bed, SentThen) {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let attacker = Guesser { guess, v6, left: guesses.into(), sent: sent.clone(), out: VecDeque::new() };
    let attackers: Vec<Attacker> = vec![(SPOOFER, Place::Clients, Box::new(attacker))];
    let mut bed = build(&plan(seed, v6), Trace::default(), attackers);
    for node in bed.gateways.clone() {
        let Some(gateway) = bed.world.gateway(node) else { continue };
        for link in gateway.config.interfaces.iter_mut().filter_map(|i| i.link.as_mut()) {
            link.oversize = Oversize::Bytes(PAYLOAD_BYTES);
        }
    }
    (bed, sent)
}

fn plan(seed: u64, v6: bool) -> HostilePlan {
    let download = |start: u64, steps: &[(u64, u64)]| {
        let step = |(wait, down_bytes): &(u64, u64)| Step {
            wait: Duration::from_secs(*wait),
            up_bytes: 300,
            down_bytes: *down_bytes,
        };
        let begun = Transfer::single(Direction::Download, 0, 0, Duration::from_secs(start), v6);
        Transfer {
            start: Start::At(Duration::from_secs(start)),
            steps: steps.iter().map(step).collect(),
            ..begun
        }
    };
    HostilePlan {
        seed,
        policy: None,
        gateways: [false, true],
        config: Config { pinned: Pinned::Auto, seed, ..Config::default() },
        link: HardLink {
            rate_bps: 10_000_000,
            delay: Duration::from_millis(20),
            queue_more_bytes: 0,
            declared: Declared::WithRate,
            outage: None,
            xcp: None,
            harm: None,
            xcp_in_shim: false,
        },
        linux: LinuxConfig::modern(congestion::Kind::Cubic),
        honest: vec![
            // The one that is attacked; one that is open meanwhile; one that begins later.
            download(1, &[(0, 32_000_000)]),
            download(1, &[(0, 200_000), (65, 2_000_000)]),
            download(80, &[(0, 2_000_000)]),
        ],
        calls: Vec::new(),
        spoof: None,
    }
}

/// Who guesses.
struct Guesser {
    guess: Guess,
    v6: bool,
    left: VecDeque<(Instant, u32)>,
    sent: Rc<RefCell<Vec<(Instant, u32)>>>,
    out: VecDeque<Vec<u8>>,
}

/// A later fragment of a datagram of the server to the client.
fn fragment(v6: bool, id: u32, payload_bytes: usize) -> Vec<u8> {
    let (src, dst) = (address(SERVER, v6), address(CLIENT, v6));
    let mut bytes = Vec::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend([0x45, 0]);
            bytes.extend(((20 + payload_bytes) as u16).to_be_bytes());
            bytes.extend((id as u16).to_be_bytes());
            // More of them follow.
            bytes.extend((0x2000 | (OFFSET_BYTES / 8)).to_be_bytes());
            bytes.extend([63, PROTOCOL_TCP, 0, 0]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            let check = !checksum::sum(&bytes);
            bytes[10..12].copy_from_slice(&check.to_be_bytes());
        }
        (src, dst) => {
            let octets = |address| if let IpAddr::V6(a) = address { a.octets() } else { [0; 16] };
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend(((8 + payload_bytes) as u16).to_be_bytes());
            bytes.extend([44, 63]);
            bytes.extend(octets(src));
            bytes.extend(octets(dst));
            bytes.extend([PROTOCOL_TCP, 0]);
            bytes.extend((OFFSET_BYTES | 1).to_be_bytes());
            bytes.extend(id.to_be_bytes());
        }
    }
    bytes.resize(bytes.len() + payload_bytes, 0xee);
    bytes
}

/// An error about a later fragment, which says that nothing larger than 600 or 1,300 bytes gets
/// through.
fn error(v6: bool, id: u32) -> Option<Vec<u8>> {
    let mtu = if id.is_multiple_of(2) { 600 } else { 1_300 };
    // What makes errors quotes no later fragment, so its place is told afterwards.
    let mut quoted = fragment(v6, id, 64);
    let place = if v6 { 42..44 } else { 6..8 };
    let offset = quoted[place.clone()].to_vec();
    quoted[place.clone()].fill(0);
    let mut bytes = Vec::new();
    icmp::build_packet_too_big(&quoted, address(SPOOFER, v6), mtu, &mut bytes).ok()?;
    let at = if v6 { 40 } else { 20 };
    bytes.get_mut(at + 8..)?.get_mut(place)?.copy_from_slice(&offset);
    bytes[at + 2..at + 4].fill(0);
    let len = (bytes.len() - at) as u32;
    let pseudo =
        if v6 { checksum::pseudo_header(address(SPOOFER, v6), address(SERVER, v6), 58, len) } else { 0 };
    let check = !checksum::add(pseudo, checksum::sum(&bytes[at..]));
    bytes[at + 2..at + 4].copy_from_slice(&check.to_be_bytes());
    Some(bytes)
}

impl Host for Guesser {
    fn receive(&mut self, _: Instant, _: &[u8]) {}

    fn run(&mut self, now: Instant) {
        while let Some((_, id)) = self.left.pop_front_if(|(at, _)| *at <= now) {
            self.sent.borrow_mut().push((now, id));
            self.out.extend(match self.guess {
                Guess::Fragment => Some(fragment(self.v6, id, 1_480)),
                Guess::Error => error(self.v6, id),
            });
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.left.front().map(|(at, _)| *at)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_chance_is_easier() {
        let tally = |pairs, met| Planted { fragments: 1, datagrams: 1, pairs, met };
        assert!(!tally(655_360, 10).is_easier() && !tally(655_360, 20).is_easier());
        assert!(tally(655_360, 21).is_easier());
        let others = |bytes: [usize; 2]| Quoted { others_bytes: bytes.into(), ..Quoted::default() };
        assert_eq!(others([1_500, 1_500]).beyond_the_one(), 0);
        assert_eq!(others([1_500, 1_300]).beyond_the_one(), 1);
    }
}
