//! What a link carries, by kind: so that it shows who has the link, who waits for it and who loses.

use farlink_wire::{Duration, ShimProtocols, WireSize, ip};

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// A kind of traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Made here, for connections that are split.
    Split,
    /// Of connections that are only forwarded.
    Tcp,
    /// QUIC, calls, DNS, most tunnels.
    Udp,
    /// Of both families.
    Icmp,
    /// All that is neither of these.
    Other,
}

impl Kind {
    /// Of which every packet is one.
    pub const ALL: [Self; 5] = [Self::Split, Self::Tcp, Self::Udp, Self::Icmp, Self::Other];

    /// For machines: in the status, and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Split => "split_tcp",
            Self::Tcp => "forwarded_tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Other => "other",
        }
    }

    /// For people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Split => "split TCP",
            Self::Tcp => "forwarded TCP",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
            Self::Other => "others",
        }
    }

    /// Of a packet that is forwarded; these protocols stand for XCP's own header, behind which is
    /// TCP.
    #[must_use]
    pub fn of(bytes: &[u8], shims: ShimProtocols) -> Self {
        match ip::upper_layer(bytes).map(|upper| upper.protocol) {
            Some(ip::PROTOCOL_TCP) => Self::Tcp,
            Some(protocol) if shims.has(protocol) => Self::Tcp,
            Some(UDP) => Self::Udp,
            Some(ICMP | ICMPV6) => Self::Icmp,
            _ => Self::Other,
        }
    }

    /// Gateways tell each other how much of it has arrived.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Split | Self::Tcp)
    }
}

/// What of a kind has passed a link's queue since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Passed {
    /// Packets sent; a super-segment counts as the packets that it becomes.
    pub packets: u64,
    /// Bytes sent, with IP headers.
    pub bytes: u64,
    /// Packets that its queue has dropped.
    pub dropped_packets: u64,
    /// What all of them together have waited, microseconds; nothing is known of what is made here.
    pub waited_us: u64,
    /// The longest that one has waited, microseconds.
    pub waited_max_us: u64,
}

/// All kinds of one link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kinds([Passed; Kind::ALL.len()]);

impl Kinds {
    fn of_mut(&mut self, kind: Kind) -> Option<&mut Passed> {
        self.0.get_mut(kind as usize)
    }

    /// So much has left.
    pub fn note_sent(&mut self, kind: Kind, size: WireSize, waited: Duration) {
        let Some(passed) = self.of_mut(kind) else { return };
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        passed.packets += u64::from(size.packets);
        passed.bytes += u64::from(size.bytes);
        passed.waited_us = passed.waited_us.saturating_add(waited_us.saturating_mul(size.packets.into()));
        passed.waited_max_us = passed.waited_max_us.max(waited_us);
    }

    /// So many packets were dropped.
    pub fn note_dropped(&mut self, kind: Kind, packets: u32) {
        if let Some(passed) = self.of_mut(kind) {
            passed.dropped_packets += u64::from(packets);
        }
    }

    /// Each by its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, Passed)> {
        Kind::ALL.iter().zip(self.0).map(|(kind, passed)| (kind.name(), passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_the_protocol_of_either_family() {
        let v4 = |protocol: u8| {
            let mut bytes = [0; 28];
            (bytes[0], bytes[9]) = (0x45, protocol);
            Kind::of(&bytes, ShimProtocols::USUAL)
        };
        let v6 = |next: u8, behind: u8| {
            let mut bytes = [0; 60];
            (bytes[0], bytes[6], bytes[40]) = (0x60, next, behind);
            Kind::of(&bytes, ShimProtocols::NONE)
        };
        assert_eq!((v6(60, 17), v6(43, 6), v6(0, 58)), (Kind::Udp, Kind::Tcp, Kind::Icmp), "extensions");
        assert_eq!((v4(6), v4(17), v4(1), v4(47)), (Kind::Tcp, Kind::Udp, Kind::Icmp, Kind::Other));
        assert_eq!((v6(6, 0), v6(58, 0), v6(44, 17)), (Kind::Tcp, Kind::Icmp, Kind::Udp));
        assert_eq!(Kind::of(&[], ShimProtocols::NONE), Kind::Other);
    }

    #[test]
    fn waiting_is_counted_for_each_packet() {
        let mut kinds = Kinds::default();
        kinds.note_sent(Kind::Udp, WireSize { bytes: 3_000, packets: 2 }, Duration::from_millis(2));
        kinds.note_sent(Kind::Udp, WireSize { bytes: 100, packets: 1 }, Duration::from_millis(1));
        kinds.note_dropped(Kind::Udp, 3);
        let named: Vec<_> = kinds.named().filter(|(_, passed)| *passed != Passed::default()).collect();
        let udp =
            Passed { packets: 3, bytes: 3_100, dropped_packets: 3, waited_us: 5_000, waited_max_us: 2_000 };
        assert_eq!(named, [("udp", udp)]);
    }
}
