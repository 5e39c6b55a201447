//! How large the packets on a leg may be: by the route, by what routers have told (RFC 1191, RFC
//! 8201), and by what silence makes us suspect (RFC 4821, RFC 2923).
//!
//! A timeout alone does not tell a path that swallows large packets from one that swallows
//! everything. So after two timeouts in a row smaller segments are tried. If these are lost, too,
//! it was an outage, and nothing is believed; if the first one arrives, the suspicion stands until
//! a single large segment has got through (RFC 4821 7.3).

use farlink_wire::{Duration, Instant};

/// What was found out is held for so long (RFC 1191 section 6.3), and a suspicion is not tested
/// more often.
const HELD: Duration = Duration::from_secs(600);
/// Large segments that are lost before it is believed that none gets through (MAX_PROBES of RFC
/// 8899 5.1.2).
const PROBES_MAX: u8 = 3;
/// Timeouts in a row after which a black hole is suspected, and the MTU tried then. The last one is
/// the least that Linux believes of a path (`net.ipv4.route.min_pmtu`).
const BLACK_HOLE: [(u32, u32); 2] = [(2, 1280), (4, 552)];

/// The path MTU of a leg.
#[derive(Clone, Debug)]
pub struct PathMtu {
    route_bytes: u32,
    /// On most paths nothing is.
    found: Option<Box<Found>>,
}

/// What was found out beyond the route.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// By ICMP, and when.
    told: Option<Told>,
    suspected: Option<Suspicion>,
}

/// What a router has told.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Largest packet, bytes.
    pub bytes: u32,
    /// When.
    pub at: Instant,
    /// Other connections with this host believe it, too.
    pub is_shared: bool,
    /// Packets of this size may have to be cut on the way, since the router asked for smaller ones
    /// than are made for a word of ICMP. They leave without DF.
    pub is_cut: bool,
}

impl Told {
    /// The least that is believed of ICMP for IPv4 (Linux: `net.ipv4.route.min_pmtu`), and of any
    /// path for IPv6 (RFC 8200 section 5). A stranger who could have segments made as small as he
    /// likes would have the hosts send little but headers.
    const LEAST_V4: u32 = 552;
    const LEAST_V6: u32 = 1280;

    /// Of an error that names this MTU, 0 where the router does not say.
    /// `by_identification`: it quotes a later fragment, which nothing ties to a connection but an
    /// identification of 16 bits. Who guesses it shall harm that connection alone, and not much.
    #[must_use]
    pub fn by_icmp(at: Instant, mtu: u32, is_v4: bool, by_identification: bool) -> Self {
        // RFC 1191 section 3: the next plateau below an Ethernet is 576.
        let wanted = if mtu == 0 { 576 } else { mtu };
        let least = if is_v4 && !by_identification { Self::LEAST_V4 } else { Self::LEAST_V6 };
        let is_cut = is_v4 && wanted < least && !by_identification;
        Self { bytes: wanted.max(least), at, is_shared: !by_identification, is_cut }
    }
}

/// How large packets may be, bytes, beyond what the route says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtu {
    /// Routers have told.
    Told(u32),
    /// Larger ones have been lost where these have arrived.
    Suspected(u32),
}

/// Large packets may vanish.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    bytes: u32,
    /// Timeouts in a row when packets were made so small.
    timeouts: u32,
    /// Small ones have arrived where large ones had not.
    confirmed: bool,
    /// Large segments that have been lost since.
    probes: u8,
    probe_from: Instant,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self { route_bytes: 1500, found: None }
    }
}

impl PathMtu {
    /// Largest IP packet, bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        let suspected = self.suspected().map_or(u32::MAX, |s| s.bytes);
        self.believed_bytes().min(suspected)
    }
    /// The same without suspicions.
    fn believed_bytes(&self) -> u32 {
        let told = self.found.as_ref().and_then(|f| f.told);
        self.route_bytes.min(told.map_or(u32::MAX, |told| told.bytes))
    }
    fn suspected(&self) -> Option<Suspicion> {
        self.found.as_ref()?.suspected
    }
    /// The route was looked up.
    pub fn set_route(&mut self, now: Instant, bytes: u32) {
        self.route_bytes = bytes;
        self.expire(now);
    }
    /// What was told long ago may no longer be so. Returns whether packets may be larger now.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = self.bytes();
        let Some(found) = &mut self.found else { return false };
        found.told = found.told.filter(|told| now.since(told.at) < HELD);
        if found.told.is_none() && found.suspected.is_none() {
            self.found = None;
        }
        self.bytes() > before
    }
    /// A router has told so. Returns whether packets must be smaller now.
    pub fn told(&mut self, told: Told) -> bool {
        let (before, is_news) = (self.bytes(), told.is_cut && !self.is_cut());
        if told.bytes >= before && !is_news {
            // The same once more, with better evidence: others may believe it, too.
            if let Some(known) = self.found.as_mut().and_then(|f| f.told.as_mut())
                && known.bytes == told.bytes
            {
                known.is_shared |= told.is_shared;
            }
            return false;
        }
        self.found.get_or_insert_default().told = Some(told);
        self.bytes() < before
    }
    /// Packets may have to be cut on the way: they leave without DF.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.found.as_ref().and_then(|f| f.told).is_some_and(|told| told.is_cut)
    }
    /// What other connections with this host can know, too.
    #[must_use]
    pub fn found(&self) -> Option<Mtu> {
        let found = self.found.as_ref()?;
        let suspected = found.suspected.filter(|s| s.confirmed).map(|s| Mtu::Suspected(s.bytes));
        suspected.or(found.told.filter(|told| told.is_shared).map(|told| Mtu::Told(told.bytes)))
    }
    /// Another connection has found this out, at that time.
    pub fn recall(&mut self, at: Instant, mtu: Mtu) {
        match mtu {
            Mtu::Told(bytes) => {
                self.told(Told { bytes, at, is_shared: true, is_cut: false });
            }
            Mtu::Suspected(bytes) => {
                let probe_from = at + HELD;
                self.suspect(Suspicion { bytes, timeouts: 0, confirmed: true, probes: 0, probe_from });
            }
        }
    }
    /// Larger ones may vanish. Returns whether packets must be smaller now.
    fn suspect(&mut self, suspicion: Suspicion) -> bool {
        let is_smaller = suspicion.bytes < self.bytes();
        if is_smaller {
            self.found.get_or_insert_default().suspected = Some(suspicion);
        }
        is_smaller
    }
    /// So many timeouts in a row, and the largest packet of the host whose data is lost, bytes, if
    /// what was lost is larger; packets are never made smaller than `least_bytes`. Returns whether
    /// they must be smaller now.
    pub fn on_timeout(
        &mut self,
        now: Instant,
        (timeouts, seen_bytes): (u32, Option<u32>),
        least_bytes: u32,
    ) -> bool {
        let black_hole = BLACK_HOLE.iter().find(|(n, _)| *n == timeouts).map(|(_, bytes)| *bytes);
        let Some(bytes) = black_hole.or(seen_bytes.filter(|_| timeouts == 1)) else { return false };
        let bytes = bytes.max(least_bytes);
        self.suspect(Suspicion { bytes, timeouts, confirmed: false, probes: 0, probe_from: now })
    }
    /// Something was acknowledged after so many timeouts in a row. Returns whether packets may be
    /// larger now.
    pub fn on_progress(&mut self, timeouts: u32) -> bool {
        let Some(found) = &mut self.found else { return false };
        match &mut found.suspected {
            // The small ones were lost, too: their size was not the reason.
            Some(s) if !s.confirmed && timeouts > s.timeouts => {
                found.suspected = None;
                true
            }
            Some(s) => {
                s.confirmed = true;
                false
            }
            None => false,
        }
    }
    /// The size of packet to try, if it is time to test a suspicion.
    #[must_use]
    pub fn probe_bytes(&self, now: Instant) -> Option<u32> {
        let s = self.suspected().filter(|s| s.confirmed && s.probe_from <= now)?;
        Some(self.believed_bytes()).filter(|bytes| *bytes > s.bytes)
    }
    /// A large segment has arrived, or has been lost. Returns whether packets may be larger now.
    pub fn on_probe(&mut self, now: Instant, arrived: bool) -> bool {
        let Some(found) = &mut self.found else { return false };
        let Some(s) = &mut found.suspected else { return false };
        if arrived {
            found.suspected = None;
            return true;
        }
        s.probes += 1;
        if s.probes >= PROBES_MAX {
            s.probes = 0;
            s.probe_from = now + HELD;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_icmp(mtu: u32) -> Told {
        Told::by_icmp(Instant::from_millis(5), mtu, true, false)
    }

    #[test]
    fn what_small_segments_do_decides() {
        let at = Instant::from_millis(5);
        let mut m = PathMtu::default();
        assert!(!m.on_timeout(at, (1, None), 68) && m.on_timeout(at, (2, None), 68));
        assert_eq!((m.bytes(), m.probe_bytes(at)), (1280, None));
        // A third timeout: small ones are lost, too.
        assert!(m.on_progress(3));
        assert_eq!(m.bytes(), 1500);
        assert!(m.on_timeout(at, (2, None), 68) && m.on_timeout(at, (4, None), 68) && !m.on_progress(4));
        assert_eq!((m.bytes(), m.probe_bytes(at)), (552, Some(1500)));
        assert!(!m.on_probe(at, false) && !m.on_probe(at, false));
        assert_eq!(m.probe_bytes(at), Some(1500));
        assert!(!m.on_probe(at, false));
        assert_eq!(m.probe_bytes(at + HELD / 2), None);
        assert_eq!(m.probe_bytes(at + HELD), Some(1500));
        assert!(m.on_probe(at + HELD, true));
        assert_eq!(m.bytes(), 1500);
        // IPv6 has a least MTU.
        assert!(m.on_timeout(at, (2, None), 1280) && !m.on_timeout(at, (4, None), 1280));
        assert_eq!(m.bytes(), 1280);
    }

    #[test]
    fn what_was_put_together_here_goes_as_its_host_would_have_sent_it() {
        let at = Instant::from_millis(5);
        let mut m = PathMtu::default();
        assert!(m.on_timeout(at, (1, Some(640)), 68) && m.bytes() == 640);
        assert!(!m.on_timeout(at, (2, Some(640)), 68));
        m.on_progress(1);
        assert_eq!((m.bytes(), m.probe_bytes(at)), (640, Some(1500)), "one larger one finds out");
        assert!(m.on_probe(at, true) && m.bytes() == 1500);
        assert!(m.on_timeout(at, (1, Some(640)), 1280) && m.bytes() == 1280);
    }

    #[test]
    fn the_smaller_of_route_and_word_counts_for_ten_minutes() {
        let at = Instant::from_millis(5);
        let mut m = PathMtu::default();
        assert!(m.told(by_icmp(1300)) && !m.told(by_icmp(1400)));
        m.set_route(at + HELD / 2, 9000);
        assert_eq!(m.bytes(), 1300);
        m.set_route(at + HELD / 2, 1000);
        assert_eq!(m.bytes(), 1000);
        m.set_route(at + HELD, 9000);
        assert_eq!(m.bytes(), 9000);
    }

    #[test]
    fn another_connection_knows_what_one_has_found() {
        let at = Instant::from_millis(5);
        let (mut one, mut other) = (PathMtu::default(), PathMtu::default());
        assert_eq!(one.found(), None);
        one.told(by_icmp(1400));
        assert_eq!(one.found(), Some(Mtu::Told(1400)));
        one.on_timeout(at, (2, None), 68);
        assert_eq!(one.found(), Some(Mtu::Told(1400)), "it may be an outage");
        one.on_progress(2);
        assert_eq!(one.found(), Some(Mtu::Suspected(1280)));
        other.recall(at, Mtu::Suspected(1280));
        assert_eq!((other.bytes(), other.probe_bytes(at)), (1280, None));
        assert_eq!(other.probe_bytes(at + HELD), Some(1500));
        assert!(other.on_probe(at + HELD, true) && other.found().is_none());
        other.recall(at, Mtu::Told(1400));
        assert!(other.expire(at + HELD), "RFC 1191 section 6.3");
    }

    #[test]
    fn a_word_of_icmp_makes_packets_no_smaller_than_linux_does() {
        let mut m = PathMtu::default();
        assert!(m.told(by_icmp(0)) && m.bytes() == 576 && !m.is_cut());
        assert!(m.told(by_icmp(552)) && m.bytes() == 552 && !m.is_cut(), "552 itself is believed");
        assert!(!m.told(by_icmp(296)) && m.bytes() == 552);
        assert!(m.is_cut(), "a path of 296 bytes cuts them");
        assert_eq!(Told::by_icmp(Instant::ZERO, 296, false, false).bytes, 1280);
    }

    #[test]
    fn an_identification_alone_tells_one_connection_and_not_much() {
        let mut m = PathMtu::default();
        assert!(m.told(Told::by_icmp(Instant::ZERO, 296, true, true)));
        assert_eq!((m.bytes(), m.is_cut(), m.found()), (1280, false, None));
    }

    #[test]
    fn what_an_identification_has_told_is_shared_once_a_segment_tells_it_too() {
        let mut m = PathMtu::default();
        let told = |mtu, by_identification| Told::by_icmp(Instant::ZERO, mtu, false, by_identification);
        assert!(m.told(told(1300, true)) && m.found().is_none());
        assert!(!m.told(told(1400, false)) && m.found().is_none(), "packets are smaller already");
        assert!(!m.told(told(1300, false)), "they are no smaller than before");
        assert_eq!(m.found(), Some(Mtu::Told(1300)));
        assert!(!m.told(told(1300, true)) && m.found().is_some(), "and it stays so");
    }
}
