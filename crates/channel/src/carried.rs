//! What the line has carried, by time.

use farlink_wire::ShimProtocols;
use farlink_wire::shim::SHIM_BYTES;
use farlink_wire::time::{Duration, Instant};
use farlink_xcp::Backlog;

/// Length of the intervals in which bytes are counted apart, milliseconds.
pub const CARRIED_INTERVAL_MS: u64 = 10;
/// How many of them are kept: ten minutes.
const INTERVALS_MAX: usize = 60_000;
/// Handshakes and acknowledgements are smaller than this, full segments larger. Bytes.
pub const DATA_BYTES_MIN: usize = 200;

/// Connections whose data is counted apart; that of others is only in the sum.
const CONNECTIONS_MAX: usize = 64;

/// Bytes by time since the channel's start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Bytes that have left the line in each interval of [`CARRIED_INTERVAL_MS`].
    pub bytes: Vec<u64>,
    /// Of these, bytes of packets that say how fast they are sent, where a router of the line hears
    /// them.
    pub xcp_bytes: Vec<u64>,
    /// The most bytes that waited for the line in each of these intervals.
    pub queue_bytes: Vec<u32>,
    /// Of them, the most of XCP traffic, where that waits apart.
    pub xcp_queue_bytes: Vec<u32>,
    /// Pure acknowledgements that have left the line in each interval.
    pub acks: Vec<u32>,
    /// How much the first connection with one had acknowledged by the end of each interval, bytes
    /// since its first one, which ends the handshake.
    pub acked_bytes: Vec<u64>,
    acked: Option<Acked>,
    /// When the first packet of more than 200 bytes came, which is the first with data of any
    /// length to speak of.
    pub first_data: Option<Duration>,
    /// The same of single connections, 64 at most, in the order of their first data.
    pub connections: Vec<OfConnection>,
}

/// What the line has carried of one connection's packets of more than 200 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfConnection {
    /// Number of the interval of [`CARRIED_INTERVAL_MS`] in which the first one left.
    pub first_interval: usize,
    /// Bytes that left in this interval and in those after it.
    pub bytes: Vec<u32>,
    who: u64,
}

/// The newest acknowledgement of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Acked {
    who: u64,
    newest: u32,
}

impl Carried {
    /// A packet enters.
    pub(crate) fn enters(&mut self, since_start: Duration, len_bytes: usize) {
        if len_bytes > DATA_BYTES_MIN && self.first_data.is_none() {
            self.first_data = Some(since_start);
        }
    }

    /// So many bytes wait for the line.
    pub(crate) fn waits(&mut self, since_start: Duration, waits: Backlog) {
        let Some(n) = interval(since_start) else { return };
        note_most(&mut self.queue_bytes, n, waits.all_bytes);
        // Where none wait apart nothing is kept.
        if waits.xcp_bytes > 0 {
            note_most(&mut self.xcp_queue_bytes, n, waits.xcp_bytes);
        }
    }

    /// A packet of some connection has left the line.
    pub(crate) fn leaves_of(
        &mut self,
        since_start: Duration,
        packet: &[u8],
        len_bytes: usize,
        shims: ShimProtocols,
    ) {
        let (Some(n), Some(who)) = (interval(since_start), connection(packet, shims)) else { return };
        if len_bytes <= DATA_BYTES_MIN {
            return;
        }
        let known = self.connections.iter().position(|c| c.who == who);
        let place = known.unwrap_or(self.connections.len());
        if known.is_none() && self.connections.len() < CONNECTIONS_MAX {
            self.connections.push(OfConnection { first_interval: n, bytes: Vec::new(), who });
        }
        let Some(own) = self.connections.get_mut(place) else { return };
        let at = n.saturating_sub(own.first_interval);
        if own.bytes.len() <= at {
            own.bytes.resize(at + 1, 0);
        }
        if let Some(sum) = own.bytes.get_mut(at) {
            *sum = sum.saturating_add(u32::try_from(len_bytes).unwrap_or(u32::MAX));
        }
    }

    /// A pure acknowledgement of this number has left the line.
    pub(crate) fn acknowledges(
        &mut self,
        since_start: Duration,
        packet: &[u8],
        number: u32,
        shims: ShimProtocols,
    ) {
        let (Some(n), Some(who)) = (interval(since_start), connection(packet, shims)) else { return };
        if self.acks.len() <= n {
            self.acks.resize(n + 1, 0);
            self.acked_bytes.resize(n + 1, self.acked_bytes.last().copied().unwrap_or(0));
        }
        if let Some(sum) = self.acks.get_mut(n) {
            *sum += 1;
        }
        let acked = self.acked.get_or_insert(Acked { who, newest: number });
        // Where it is not newer the difference is negative (RFC 9293 section 3.4).
        let more = number.wrapping_sub(acked.newest).cast_signed();
        if acked.who == who && more > 0 {
            acked.newest = number;
            if let Some(sum) = self.acked_bytes.get_mut(n) {
                *sum += u64::from(more.unsigned_abs());
            }
        }
    }

    /// A packet has left the line. Its bytes count evenly over the time that it took.
    pub(crate) fn leaves(
        &mut self,
        start: Instant,
        (begin, end): (Instant, Instant),
        bytes: u64,
        is_xcp: bool,
    ) {
        let interval_ns = u128::from(CARRIED_INTERVAL_MS) * 1_000_000;
        let (from, to) = (begin.since(start).as_nanos(), end.since(start).as_nanos());
        let (first, last) = (from / interval_ns, to / interval_ns);
        if last as usize >= INTERVALS_MAX {
            return;
        }
        let sums = [Some(&mut self.bytes), is_xcp.then_some(&mut self.xcp_bytes)];
        for sums in sums.into_iter().flatten().filter(|sums| sums.len() <= last as usize) {
            sums.resize(last as usize + 1, 0);
        }
        let mut left = bytes;
        for n in first..=last {
            let share = if n == last {
                left
            } else {
                let upto = ((n + 1) * interval_ns).min(to) - (n * interval_ns).max(from);
                let share = u128::from(bytes) * upto / (to - from).max(1);
                u64::try_from(share).unwrap_or(left).min(left)
            };
            left -= share;
            if let Some(sum) = self.bytes.get_mut(n as usize) {
                *sum += share;
            }
            if let Some(sum) = self.xcp_bytes.get_mut(n as usize).filter(|_| is_xcp) {
                *sum += share;
            }
        }
    }
}

/// The most of an interval, if so much is more.
fn note_most(all: &mut Vec<u32>, n: usize, bytes: u64) {
    if all.len() <= n {
        all.resize(n + 1, 0);
    }
    if let Some(most) = all.get_mut(n) {
        *most = (*most).max(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
}

/// The number of the interval in which a time lies; `None`: it is not kept.
fn interval(since_start: Duration) -> Option<usize> {
    let number = usize::try_from(since_start.as_millis() / u128::from(CARRIED_INTERVAL_MS)).ok()?;
    (number < INTERVALS_MAX).then_some(number)
}

/// Tells connections apart, by their addresses and what stands where TCP and UDP have ports, behind
/// XCP's own header where there is one. Nothing is checked.
fn connection(packet: &[u8], shims: ShimProtocols) -> Option<u64> {
    let (first, addresses, ports) = match packet.first()? >> 4 {
        4 => (0, packet.get(12..20)?, usize::from(packet.first()? & 0x0f) * 4),
        6 => (1, packet.get(8..40)?, 40),
        _ => return None,
    };
    let has_shim = first == 0 && packet.get(9).is_some_and(|protocol| shims.has(*protocol));
    let ports = if has_shim { ports + SHIM_BYTES } else { ports };
    let ports = packet.get(ports..ports + 4)?;
    // FNV-1a.
    let hash = |h: u64, byte: &u8| (h ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    Some(addresses.iter().chain(ports).fold(0xcbf2_9ce4_8422_2325 ^ first, hash))
}

#[cfg(test)]
mod tests {
    use farlink_wire::shim::SHIM_PROTOCOL;

    use super::*;

    #[test]
    fn connections_are_told_apart_and_acknowledgements_left_out() {
        let plain = |port: u8, len: usize| {
            let mut bytes =
                vec![0x45, 0, 0, 0, 0, 9, 0x40, 0, 63, 6, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1, 0, port, 0, 80];
            bytes.resize(len, 0);
            bytes
        };
        let mut carried = Carried::default();
        for (at_ms, port, len) in [(25, 1, 1_500), (26, 2, 60), (44, 2, 1_500), (48, 1, 1_000), (49, 1, 300)]
        {
            let packet = plain(port, len);
            carried.leaves_of(Duration::from_millis(at_ms), &packet, packet.len(), ShimProtocols::USUAL);
        }
        let told: Vec<_> = carried.connections.iter().map(|c| (c.first_interval, c.bytes.clone())).collect();
        assert_eq!(told, [(2, vec![1_500, 0, 1_300]), (4, vec![1_500])]);
        // Behind XCP's own header they are the same ones.
        let mut packet = plain(2, 1_480);
        packet[9] = SHIM_PROTOCOL;
        packet.splice(20..20, [0; SHIM_BYTES]);
        carried.leaves_of(Duration::from_millis(45), &packet, packet.len(), ShimProtocols::USUAL);
        assert_eq!((carried.connections.len(), &carried.connections[1].bytes[..]), (2, &[3_000][..]));
        carried.leaves_of(Duration::from_millis(50), &[0x45; 300][..30], 300, ShimProtocols::USUAL);
        for n in 0..=255 {
            carried.leaves_of(Duration::from_millis(50), &plain(n, 300), 300, ShimProtocols::USUAL);
        }
        assert_eq!(carried.connections.len(), CONNECTIONS_MAX);
    }

    #[test]
    fn acknowledgements_are_counted_and_those_of_the_first_connection_followed() {
        let packet =
            |port: u8| [0x45, 0, 0, 0, 0, 9, 0x40, 0, 63, 6, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1, 0, port, 0, 80];
        let mut carried = Carried::default();
        let first = u32::MAX - 999;
        for (at_ms, port, number) in [
            (1, 1, first),
            (12, 1, first.wrapping_add(3_000)),
            (13, 1, first.wrapping_add(2_000)),
            (14, 2, 7),
            (34, 1, first.wrapping_add(4_000)),
        ] {
            let at = Duration::from_millis(at_ms);
            carried.acknowledges(at, &packet(port), number, ShimProtocols::USUAL);
        }
        assert_eq!(carried.acks, [1, 3, 0, 1]);
        assert_eq!(carried.acked_bytes, [0, 3_000, 3_000, 4_000]);
        carried.acknowledges(Duration::from_secs(601), &packet(1), first, ShimProtocols::USUAL);
        assert_eq!(carried.acks.len(), 4);
    }

    #[test]
    fn the_longest_queue_of_an_interval_counts() {
        let mut carried = Carried::default();
        for (at_ms, bytes) in [(1, 500), (3, 900), (9, 100), (21, 7)] {
            let xcp_bytes = if bytes == 900 { 300 } else { 0 };
            carried.waits(Duration::from_millis(at_ms), Backlog { xcp_bytes, all_bytes: bytes });
        }
        assert_eq!((&carried.queue_bytes[..], &carried.xcp_queue_bytes[..]), (&[900, 0, 7][..], &[300][..]));
        carried.waits(Duration::from_secs(601), Backlog { xcp_bytes: 1, all_bytes: 1 });
        assert_eq!(carried.queue_bytes.len(), 3);
    }

    #[test]
    fn bytes_count_over_the_time_they_took() {
        let mut carried = Carried::default();
        let at = Instant::from_millis;
        carried.leaves(at(1000), (at(1005), at(1025)), 2_000, false);
        assert_eq!(carried.bytes, [500, 1_000, 500]);
        carried.leaves(at(1000), (at(1025), at(1025)), 7, true);
        assert_eq!(carried.bytes, [500, 1_000, 507]);
        assert_eq!(carried.xcp_bytes, [0, 0, 7]);
        carried.leaves(at(1000), (at(10_000_000), at(10_000_000)), 7, false);
        assert_eq!(carried.bytes.len(), 3);
        for (at, len) in [(5, 60), (7, 1500), (9, 1500)] {
            carried.enters(Duration::from_millis(at), len);
        }
        assert_eq!(carried.first_data, Some(Duration::from_millis(7)));
    }
}
