//! How many guesses it takes to end, stall or corrupt a connection between two hosts, without a
//! gateway, with one and with two.
//!
//! The attacker knows addresses and ports, and the sequence numbers to within a few thousand bytes:
//! so a run of a few thousand packets stands for one of billions by somebody who does not. All its
//! guesses are the same in all set-ups, relative to the numbers in use. The hosts follow RFC 5961.
//! Guesses must do harm no more often with gateways than without them.

use std::collections::VecDeque;

use farlink_gateway::Config;
use farlink_gateway::config::Pinned;
use farlink_wire::{Duration, Flags, Instant, SegmentHeader, SeqNum};

use super::liar::packet;
use super::plan::{Declared, HardLink, HostilePlan, Place, SPOOFER};
use super::run::build;
use crate::app::End;
use crate::content::Endpoint;
use crate::host::{Host, address};
use crate::linux::host::{CLIENT, CLIENT_PORT, SERVER, SERVER_PORT};
use crate::linux::{Direction, LinuxConfig, Step, Transfer, congestion};
use crate::packet::{hash, tcp};
use crate::trace::Trace;

/// A difference that comes by chance less often than this is none.
const BY_CHANCE: f64 = 1e-3;
/// The guesses that are tried, one run for each.
pub const BUDGETS: [u64; 6] = [4, 16, 64, 256, 1_024, 4_096];
/// Sequence numbers that the attacker has to choose from.
const REGION: u64 = 4_096;
/// Acknowledgement numbers that it has to choose from.
const ACK_REGION: u64 = 1 << 23;
/// The attack begins then; the connection has been quiet for a while.
const BEGINS: Duration = Duration::from_secs(6);
/// Between two guesses.
const EVERY: Duration = Duration::from_millis(5);
/// Between two questions of the honest client.
const PAUSE: Duration = Duration::from_secs(32);
/// Then a connection that is not over stands still.
const TIME_MAX: Duration = Duration::from_secs(420);

/// What is guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guess {
    /// RST, by sequence number.
    Reset,
    /// SYN, by sequence number.
    Syn,
    /// The same SYN again and again.
    SynAgain,
    /// Data, by sequence and acknowledgement number.
    Data,
    /// FIN, by sequence and acknowledgement number.
    Fin,
    /// An acknowledgement of what was never sent, by sequence number.
    AckBeyond,
    /// An acknowledgement with a timestamp from the future, by sequence and acknowledgement number.
    Stamp,
}

impl Guess {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Syn, Self::SynAgain, Self::Data, Self::Fin, Self::AckBeyond, Self::Stamp];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Syn => "syn",
            Self::SynAgain => "same syn",
            Self::Data => "data",
            Self::Fin => "fin",
            Self::AckBeyond => "ack of unsent",
            Self::Stamp => "timestamp",
        }
    }
}

/// How the connection stands meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Quiet, and split.
    Quiet,
    /// Quiet, and asleep in the gateways.
    Asleep,
    /// A question waits, because the link loses everything for a time that nobody knows.
    Outage,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Quiet, Self::Asleep, Self::Outage];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Asleep => "asleep",
            Self::Outage => "outage",
        }
    }
}

/// One attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// What is guessed.
    pub guess: Guess,
    /// In which state.
    pub state: State,
    /// The hosts use timestamps.
    pub timestamps: bool,
    /// Chooses what the guesses are, and in whose name: the client's with even ones.
    pub seed: u64,
}

/// Whose word is guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

impl Name {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Client, Self::Server];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A kind of attacks, which is tried with many seeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// What is guessed.
    pub guess: Guess,
    /// In which state.
    pub state: State,
    /// The hosts use timestamps.
    pub timestamps: bool,
    /// In whose name.
    pub name: Name,
}

impl Kind {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for state in State::ALL {
            for timestamps in [true, false] {
                for guess in Guess::ALL {
                    all.extend(Name::ALL.map(|name| Self { guess, state, timestamps, name }));
                }
            }
        }
        all
    }

    fn attack(&self, n: u64) -> Attack {
        let seed = 2 * n + u64::from(self.name == Name::Server);
        Attack { guess: self.guess, state: self.state, timestamps: self.timestamps, seed }
    }
}

/// What a number of attacks came to, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Guesses, up to the one that did harm in each attack.
    pub guesses: u64,
    /// Attacks that did harm.
    pub harmed: u64,
}

/// What a kind of attacks came to in each set-up.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Which kind.
    pub kind: Kind,
    /// Without a gateway.
    pub direct: Tally,
    /// With one before the client's end of the link, one before the server's, and both.
    pub with: [Tally; 3],
}

/// Which of the link's ends have a gateway, in the order of [`Compared::with`].
pub const SET_UPS: [[bool; 2]; 3] = [[true, false], [false, true], [true, true]];

/// The chance that so many or more of `harmed` attacks fall to the side that made the part `share`
/// of all guesses.
fn tail(harmed: u64, at_least: u64, share: f64) -> f64 {
    let mut p = 0.0;
    let mut ln_choose = 0.0;
    for k in 0..=harmed {
        if k > 0 {
            ln_choose += ((harmed - k + 1) as f64 / k as f64).ln();
        }
        if k >= at_least {
            let k = k as f64;
            p += (ln_choose + k * share.ln() + (harmed as f64 - k) * (1.0 - share).ln()).exp();
        }
    }
    p
}

impl Tally {
    /// More of its guesses do harm than of the other's, by more than comes by chance: were they
    /// equally good, harm would fall to both in proportion to their guesses.
    #[must_use]
    pub fn is_easier_than(&self, other: &Self) -> bool {
        let share = self.guesses as f64 / (self.guesses + other.guesses).max(1) as f64;
        self.harmed > 0 && tail(self.harmed + other.harmed, self.harmed, share) < BY_CHANCE
    }
}

impl Compared {
    /// It is easier in some set-up with gateways.
    #[must_use]
    pub fn is_easier(&self) -> bool {
        self.with.iter().any(|t| t.is_easier_than(&self.direct))
    }
}

/// Plays a kind of attacks in all set-ups, `seeds` of them, each with up to `most` guesses.
#[must_use]
pub fn compare(kind: Kind, seeds: u64, most: u64) -> Compared {
    let tally = |gateways| {
        let mut tally = Tally::default();
        for n in 0..seeds {
            let needed = needed(kind.attack(n), gateways, most);
            tally.guesses += needed.unwrap_or(most);
            tally.harmed += u64::from(needed.is_some());
        }
        tally
    };
    Compared { kind, direct: tally([false; 2]), with: SET_UPS.map(tally) }
}

/// The least of [`BUDGETS`] (of those up to `most`) that does harm, if any.
#[must_use]
pub fn needed(attack: Attack, gateways: [bool; 2], most: u64) -> Option<u64> {
    let budgets: Vec<u64> = BUDGETS.into_iter().filter(|b| *b <= most).collect();
    // Most attacks fail, and need one run to show it.
    try_one(attack, gateways, *budgets.last()?)?;
    budgets.into_iter().find(|guesses| try_one(attack, gateways, *guesses).is_some())
}

/// What becomes of the connection after so many guesses, if it is harmed.
#[must_use]
pub fn try_one(attack: Attack, gateways: [bool; 2], guesses: u64) -> Option<String> {
    let plan = plan(attack, gateways);
    let from_client = attack.seed.is_multiple_of(2);
    let ends = [(address(CLIENT, false), CLIENT_PORT), (address(SERVER, false), SERVER_PORT)];
    let [src, dst] = if from_client { ends } else { [ends[1], ends[0]] };
    let sender = Sender { attack, src, dst, left: guesses, said: [None; 2], done: 0, out: VecDeque::new() };
    let place = if from_client { Place::Clients } else { Place::Servers };
    let mut bed = build(&plan, Trace::default(), vec![(SPOOFER, place, Box::new(sender))]);
    // Where a gateway believes what is forged, the observer would say so before the harm is done.
    bed.world.observer.hostile.add_liar(address(CLIENT, false));
    loop {
        let next = bed.world.now() + Duration::from_secs(1);
        bed.world.run_until(next);
        let outcome = bed.play.outcomes.borrow()[0].clone();
        if outcome.is_over() || next > Instant::ZERO + TIME_MAX || bed.world.failure.is_some() {
            let failure = bed.world.failure.clone();
            let stands = (!outcome.is_over()).then(|| "it stands still".to_string());
            let wrong = (!outcome.is_intact()).then(|| "bytes are missing".to_string());
            return failure.or(outcome.error).or(stands).or(wrong);
        }
    }
}

fn plan(attack: Attack, gateways: [bool; 2]) -> HostilePlan {
    // What a link that is away keeps from hosts without gateways would have reached them before or
    // after.
    let has_outage = attack.state == State::Outage && gateways != [false; 2];
    let mut config = Config { pinned: Pinned::Auto, seed: attack.seed, ..Config::default() };
    let dormant_after = if attack.state == State::Asleep { 2 } else { 120 };
    config.timers.dormant_after = Duration::from_secs(dormant_after);
    let step = |wait| Step { wait, up_bytes: 300, down_bytes: 20_000 };
    let mut steps = vec![step(Duration::from_millis(100)), step(PAUSE), step(PAUSE)];
    let outage = has_outage.then(|| {
        // The second question is asked while the link is away.
        steps[1].wait = Duration::from_secs(4);
        (Duration::from_secs(3), Duration::from_secs(35), false)
    });
    HostilePlan {
        seed: attack.seed,
        policy: None,
        gateways,
        config,
        link: HardLink {
            rate_bps: 10_000_000,
            delay: Duration::from_millis(50),
            queue_more_bytes: 0,
            declared: Declared::WithRate,
            outage,
            xcp: None,
            harm: None,
            xcp_in_shim: false,
        },
        linux: LinuxConfig { timestamps: attack.timestamps, ..LinuxConfig::modern(congestion::Kind::Cubic) },
        honest: vec![Transfer {
            steps,
            server_closes: false,
            ..Transfer::single(Direction::Download, 0, 0, Duration::from_millis(10), false)
        }],
        calls: Vec::new(),
        spoof: None,
    }
}

/// Where one host stands.
#[derive(Clone, Copy, Debug)]
struct Said {
    nxt: SeqNum,
    stamp: u32,
}

struct Sender {
    attack: Attack,
    src: Endpoint,
    dst: Endpoint,
    left: u64,
    /// Of the host in whose name it speaks, and of the one that it speaks to.
    said: [Option<Said>; 2],
    done: u64,
    out: VecDeque<Vec<u8>>,
}

/// The `i`-th of `n` numbers, each once, in no order: odd multipliers visit every place of a power
/// of two.
fn place(seed: u64, i: u64, n: u64) -> i64 {
    let step = hash(seed, b"step") | 1;
    let at = hash(seed, b"from").wrapping_add(i.wrapping_mul(step)) % n;
    at as i64 - (n / 2) as i64
}

impl Sender {
    fn forge(&self, i: u64) -> Option<Vec<u8>> {
        let [own, other] = [self.said[0]?, self.said[1]?];
        let seed = self.attack.seed;
        let off = |base: SeqNum, by: i64| SeqNum(base.0.wrapping_add(by as u32));
        let seq = off(own.nxt, place(seed, i, REGION));
        let some_ack = off(other.nxt, place(seed ^ 0xacac, i, ACK_REGION));
        let (mut seq, mut ack, mut flags, mut len, mut stamp) = (seq, some_ack, Flags::ACK, 0, own.stamp);
        match self.attack.guess {
            Guess::Reset => flags = Flags::RST,
            Guess::Syn => {
                flags = Flags::SYN;
                ack = SeqNum(0);
            }
            Guess::SynAgain => {
                flags = Flags::SYN;
                ack = SeqNum(0);
                seq = SeqNum(hash(seed, b"isn") as u32);
            }
            Guess::Data => len = 200,
            Guess::Fin => flags = Flags::FIN | Flags::ACK,
            Guess::AckBeyond => ack = other.nxt + 10_000,
            Guess::Stamp => stamp = stamp.wrapping_add(1 << 30),
        }
        let header = SegmentHeader {
            src: self.src.0,
            dst: self.dst.0,
            src_port: self.src.1,
            dst_port: self.dst.1,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: i as u16,
            dont_fragment: true,
            seq,
            ack,
            flags,
            window: 500,
            urgent: 0,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let mut options = Vec::new();
        if flags.syn() {
            options.extend([2, 4, 5, 180, 4, 2, 3, 3, 7]);
        }
        if self.attack.timestamps {
            options.extend([8, 10]);
            options.extend(stamp.to_be_bytes());
            options.extend((hash(seed ^ i, b"echo") as u32).to_be_bytes());
        }
        packet(&header, &options, &vec![0; len])
    }
}

impl Host for Sender {
    fn receive(&mut self, _: Instant, _: &[u8]) {}

    fn run(&mut self, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.out.extend(self.forge(self.done));
            self.done += 1;
            self.left -= 1;
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        (self.left > 0).then(|| Instant::ZERO + BEGINS + EVERY * u32::try_from(self.done).unwrap_or(u32::MAX))
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

    fn overhear(&mut self, _: Instant, bytes: &[u8]) {
        let Some(s) = tcp(bytes).filter(|s| !s.flags.rst()) else { return };
        let side = usize::from((s.ip.src, s.src_port) != self.src);
        let said = &mut self.said[side];
        let nxt = said.map_or(s.end_seq(), |x| x.nxt.max(s.end_seq()));
        let stamp = s.options.timestamps.map_or(said.map_or(0, |x| x.stamp), |t| t.val);
        *said = Some(Said { nxt, stamp });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_makes_nothing_easier() {
        let tally = |harmed, guesses| Tally { guesses, harmed };
        assert!((tail(10, 0, 0.3) - 1.0).abs() < 1e-9 && (tail(1, 1, 0.25) - 0.25).abs() < 1e-9);
        assert!(!tally(3, 4_096).is_easier_than(&tally(1, 4_096)));
        assert!(!tally(0, 10).is_easier_than(&tally(0, 4_096)));
        assert!(tally(16, 16 * 16).is_easier_than(&tally(16, 16 * 256)), "sixteen times");
        assert!(!tally(16, 16 * 256).is_easier_than(&tally(16, 16 * 16)));
        assert!(tally(12, 30_000).is_easier_than(&tally(0, 65_536)), "one in 4,096 and none");
        let kind = Kind { guess: Guess::Fin, state: State::Quiet, timestamps: true, name: Name::Client };
        let (direct, easy) = (tally(0, 65_536), tally(12, 30_000));
        let compared = |both| Compared { kind, direct, with: [direct, direct, both] };
        assert!(!compared(direct).is_easier() && compared(easy).is_easier());
    }
}
