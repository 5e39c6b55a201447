//! The `behaviour` scenario: what two applications see of each other must not depend on what stands
//! between their hosts.
//!
//! A case runs a client and a server in two network namespaces and writes down what each of them
//! saw ([`Outcome`]): bytes, errors, order, end of stream, coarse times. [`run_all`] does this on
//! one path; [`Report`] holds the runs on other paths (one gateway, two) against the direct one.
//! The cases know nothing of gateways, and share no code with them: packets are built and read by
//! [`packet`].
//!
//! Needs root (or a user namespace that owns the two namespaces), `ip` and `nft`.

pub mod errno;
pub mod host;
pub mod outcome;
pub mod packet;
pub mod raw;
pub mod report;
pub mod runner;
pub mod sock;
pub mod sockaddr;
pub mod stream;

mod bulk;
mod ecn;
mod fields;
mod handshake;
mod hostile;
mod keepalive;
mod malformed;
mod mss;
mod oddshake;
mod openings;
mod options;
mod overlap;
mod pmtu;
mod reset;
mod reuse;
mod teardown;
mod untouched;
mod urgent;
mod windows;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use host::Host;
pub use outcome::{Event, Outcome, Timing, TimingRule, Verdict, judge};
pub use report::{Report, judge_case};
pub use runner::{CaseResult, Options, run_all};
use sock::{Family, Sock};
use stream::{Got, Pattern};

/// One end of a path: a host that a case may use as it likes.
///
/// The routers must route the whole /24 and /64 round the addresses to this host's link, and ask
/// for addresses there by ARP and neighbour discovery: cases give the host further addresses (last
/// byte 100 to 199, last group 0x100 to 0x1ff) and expect that nobody answers at 250 and 0x250.
#[derive(Clone, Debug)]
pub struct End {
    /// Namespace: a name below `/run/netns`, or a path.
    pub ns: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

/// A device on the path that is not one of the hosts' own.
#[derive(Clone, Debug)]
pub struct InnerDevice {
    /// Namespace of a router.
    pub ns: String,
    /// Device in it.
    pub dev: String,
}

/// The path to be tried: two ends, and what the runner knows about it.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The side that opens connections.
    pub client: End,
    /// The side that is asked.
    pub server: End,
    /// Round-trip time without load.
    pub rtt: Duration,
    /// Rate of the slowest link in bits per second, each way; `None` if nothing limits it.
    pub rate_bps: Option<u64>,
    /// Both ends of one inner link (between two routers). Cases lower its MTU for a while. Empty:
    /// those cases are skipped.
    pub narrow: Vec<InnerDevice>,
}

/// What else may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Uses ports of its own only; runs beside others.
    Shared,
    /// Changes sysctls, routes or links of the hosts; runs alone.
    Alone,
}

/// One behaviour to be compared.
pub struct Case {
    /// Name without the address family.
    pub name: &'static str,
    /// One line for the reader of the report.
    pub about: &'static str,
    /// Families it makes sense for; it runs once for each.
    pub families: &'static [Family],
    /// Whether others may run meanwhile.
    pub isolation: Isolation,
    /// Least rate of the path at which it ends in reasonable time, in bits per second.
    pub min_rate_bps: u64,
    /// Rough duration in seconds at an RTT of 40 ms; the longest are started first.
    pub seconds: u32,
    /// The case itself. An error means that it could not be carried out.
    run: fn(&Ctx<'_>) -> Result<()>,
}

const BOTH: &[Family] = &[Family::V4, Family::V6];
const ONLY_V4: &[Family] = &[Family::V4];
const ONLY_V6: &[Family] = &[Family::V6];

impl Case {
    /// A case for both families, beside others, on any path, a few seconds long.
    const fn new(name: &'static str, about: &'static str, run: fn(&Ctx<'_>) -> Result<()>) -> Case {
        Case { name, about, families: BOTH, isolation: Isolation::Shared, min_rate_bps: 0, seconds: 3, run }
    }

    const fn alone(mut self) -> Case {
        self.isolation = Isolation::Alone;
        self
    }

    const fn lasting(mut self, seconds: u32) -> Case {
        self.seconds = seconds;
        self
    }

    const fn only(mut self, families: &'static [Family]) -> Case {
        self.families = families;
        self
    }

    const fn at_least(mut self, rate_bps: u64) -> Case {
        self.min_rate_bps = rate_bps;
        self
    }
}

/// Every case, in the order of the report.
pub fn cases() -> Vec<Case> {
    [
        handshake::CASES,
        openings::CASES,
        oddshake::CASES,
        teardown::CASES,
        reset::CASES,
        reuse::CASES,
        urgent::CASES,
        options::CASES,
        mss::CASES,
        ecn::CASES,
        fields::CASES,
        windows::CASES,
        bulk::CASES,
        keepalive::CASES,
        pmtu::CASES,
        untouched::CASES,
        overlap::CASES,
        hostile::CASES,
        malformed::CASES,
    ]
    .into_iter()
    .flatten()
    .map(|case| Case { ..*case })
    .collect()
}

/// Which application an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

/// Ports per case and family.
const PORTS_PER_CASE: u16 = 150;
const FIRST_PORT: u16 = 10_000;

/// What a running case has to hand.
struct Ctx<'a> {
    client: &'a Host,
    server: &'a Host,
    ends: &'a Ends,
    family: Family,
    name: String,
    first_port: u16,
    outcome: Mutex<Outcome>,
}

impl Ctx<'_> {
    /// A port of this case's own; below the ephemeral range.
    fn port(&self, n: u16) -> u16 {
        self.first_port + n % PORTS_PER_CASE
    }

    fn client_ip(&self) -> IpAddr {
        self.family.pick(self.ends.client.v4.into(), self.ends.client.v6.into())
    }

    fn server_ip(&self) -> IpAddr {
        self.family.pick(self.ends.server.v4.into(), self.ends.server.v6.into())
    }

    fn client_at(&self, n: u16) -> SocketAddr {
        SocketAddr::new(self.client_ip(), self.port(n))
    }

    fn server_at(&self, n: u16) -> SocketAddr {
        SocketAddr::new(self.server_ip(), self.port(n))
    }

    fn host(&self, side: Side) -> &Host {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }

    fn ip_of(&self, side: Side) -> IpAddr {
        match side {
            Side::Client => self.client_ip(),
            Side::Server => self.server_ip(),
        }
    }

    /// Another address on the link of a host, see [`End`].
    fn neighbour_of(ip: IpAddr, n: u8) -> IpAddr {
        match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                Ipv4Addr::new(a, b, c, n).into()
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                // Reads alike in both families: 137 becomes 0x137.
                let last = u16::from(n / 100) * 0x100 + u16::from(n / 10 % 10) * 0x10 + u16::from(n % 10);
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, last).into()
            }
        }
    }

    /// An address on the server's link at which nobody lives.
    fn absent_ip(&self) -> IpAddr {
        Self::neighbour_of(self.server_ip(), 250)
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, side: Side, events: impl IntoIterator<Item = Event>) {
        let mut outcome = self.outcome();
        match side {
            Side::Client => outcome.client.extend(events),
            Side::Server => outcome.server.extend(events),
        }
    }

    fn fact(&self, side: Side, what: impl Into<String>, value: impl ToString) {
        self.log(side, [Event::Fact { what: what.into(), value: value.to_string() }]);
    }

    fn failed(&self, side: Side, call: &str, errno: errno::Errno) {
        self.log(side, [Event::Failed { call: call.into(), errno: errno.name() }]);
    }

    /// What was read; wrong bytes are a fault on any path, and so is a reader that waits for ever.
    fn got(&self, side: Side, got: &Got) {
        self.log(side, got.events());
        self.check_exact(side, got);
        if got.ending == stream::Ending::Failed(errno::Errno(libc::EAGAIN)) {
            self.fault(format!("{}: nothing more came after {} bytes", side.name(), got.bytes));
        }
    }

    fn check_exact(&self, side: Side, got: &Got) {
        if let Some(at) = got.wrong_at {
            self.fault(format!("{}: wrong byte at {at}", side.name()));
        }
    }

    fn fault(&self, what: impl Into<String>) {
        self.outcome().faults.push(what.into());
    }

    /// A fault unless it holds.
    fn must(&self, holds: bool, what: &str) {
        if !holds {
            self.fault(format!("not so: {what}"));
        }
    }

    fn note(&self, what: impl Into<String>, value: impl ToString) {
        self.outcome().notes.insert(what.into(), value.to_string());
    }

    fn timing(&self, what: impl Into<String>, ms: f64, rule: TimingRule, slack_ms: f64) {
        self.outcome().timings.push(Timing { what: what.into(), ms, rule, slack_ms });
    }

    /// A listening TCP socket on the server.
    fn listen(&self, n: u16) -> Result<Sock> {
        self.listen_with(n, |_| Ok(()))
    }

    /// As [`Ctx::listen`], with options set before.
    fn listen_with(&self, n: u16, options: impl Fn(&Sock) -> errno::SysResult<()>) -> Result<Sock> {
        let sock = Sock::tcp(self.server, self.family)?;
        options(&sock)?;
        let addr = self.server_at(n);
        sock.bind(addr).with_context(|| format!("binding {addr}"))?;
        sock.listen(128)?;
        Ok(sock)
    }

    /// A connected pair (client's socket, server's socket) on port `n`, with options set on both
    /// before.
    fn pair_with(&self, n: u16, options: impl Fn(&Sock) -> errno::SysResult<()>) -> Result<(Sock, Sock)> {
        let listener = self.listen_with(n, &options)?;
        let client = Sock::tcp(self.client, self.family)?;
        options(&client)?;
        client.connect(self.server_at(n)).with_context(|| format!("{}: connect", self.name))?;
        let server = listener.accept().with_context(|| format!("{}: accept", self.name))?;
        Ok((client, server))
    }

    /// A connected pair on port `n`.
    fn pair(&self, n: u16) -> Result<(Sock, Sock)> {
        self.pair_with(n, |_| Ok(()))
    }

    /// Known bytes, different for each case and `n`, the same on every path.
    fn pattern(&self, n: u64) -> Pattern {
        let seed = self.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Pattern(seed.wrapping_add(n))
    }
}

/// Joins a scoped thread of a case.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a thread of the case panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_ports_suffice() {
        let cases = cases();
        let mut names: Vec<_> = cases.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len(), "two cases share a name");
        let instances: usize = cases.iter().map(|case| case.families.len()).sum();
        let last = usize::from(FIRST_PORT) + instances * usize::from(PORTS_PER_CASE);
        assert!(last <= 32_768, "the cases' ports reach into the ephemeral range: {last}");
    }

    #[test]
    fn neighbours_read_alike_in_both_families() {
        let v4 = Ctx::neighbour_of("10.0.2.2".parse().expect("address"), 137);
        let v6 = Ctx::neighbour_of("fd00:2::2".parse().expect("address"), 137);
        assert_eq!(v4.to_string(), "10.0.2.137");
        assert_eq!(v6.to_string(), "fd00:2::137");
    }
}
