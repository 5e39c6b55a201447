//! Which class something has in the queue of a link: what the first rule that it falls under says,
//! else what its DSCP means. One answer for all that waits there: the data of split connections,
//! and whatever is forwarded.

use core::net::IpAddr;

use farlink_wire::TcpSegment;
use farlink_wire::ip::PROTOCOL_TCP;

use crate::config::{Class, DscpClasses, Rule};
use crate::net::IfaceId;

/// What rules look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The address that it comes from.
    pub src: IpAddr,
    /// The address that it goes to.
    pub dst: IpAddr,
    /// Protocol behind the IP header.
    pub protocol: u8,
    /// Source and destination port; `None`: it has none, or they cannot be read.
    pub ports: Option<(u16, u16)>,
    /// DSCP, 0 to 63.
    pub dscp: u8,
}

impl Label {
    /// Of a segment.
    #[must_use]
    pub fn of(s: &TcpSegment) -> Self {
        let ports = Some((s.src_port, s.dst_port));
        Self { src: s.ip.src, dst: s.ip.dst, protocol: PROTOCOL_TCP, ports, dscp: s.ip.dscp() }
    }

    /// The same with its ends exchanged: what an answer to it looks like.
    fn back(&self) -> Self {
        Self { src: self.dst, dst: self.src, ports: self.ports.map(|(src, dst)| (dst, src)), ..*self }
    }
}

impl Class {
    /// What a DSCP asks for, in the sense of RFC 4594, RFC 8325 and RFC 8622.
    ///
    /// Network control and signalling (CS5 to CS7), telephony (EF; VA, RFC 5865), conferences
    /// (AF4x), real-time interaction (CS4) and low-latency data (AF2x, which OpenSSH sets while
    /// somebody types) go before the rest. Lower effort (LE, and CS1 before it) takes what is left.
    /// Streams (AF3x, CS3) have buffers of their own, and stay with the rest.
    #[must_use]
    pub const fn of_dscp(dscp: u8) -> Self {
        match dscp {
            1 | 8 => Self::Background,
            18 | 20 | 22 | 32 | 34 | 36 | 38 | 40 | 44 | 46 | 48 | 56 => Self::Interactive,
            _ => Self::Bulk,
        }
    }

    /// Of a forwarded packet that came in by `via` and leaves by `out`. A rule holds for both
    /// directions, as it does for connections: the packet, or an answer to it, matches.
    #[must_use]
    pub fn of_packet(
        (rules, dscps): (&[Rule], &DscpClasses),
        (via, out): (IfaceId, IfaceId),
        label: &Label,
    ) -> Self {
        let back = label.back();
        let rule = rules.iter().find(|r| r.matches(via, label) || r.matches(out, &back));
        rule.and_then(|r| r.class).unwrap_or(dscps.of(label.dscp))
    }
}

impl Rule {
    /// Whether something that came in by `via` falls under it.
    #[must_use]
    pub fn matches(&self, via: IfaceId, label: &Label) -> bool {
        let Self { interfaces, protocols, sources, destinations, ports, dscps, .. } = self;
        let to = label.ports.map(|(_, dst)| dst);
        (interfaces.is_empty() || interfaces.contains(&via))
            && (protocols.is_empty() || protocols.contains(&label.protocol))
            && (sources.is_empty() || sources.iter().any(|p| in_prefix(label.src, *p)))
            && (destinations.is_empty() || destinations.iter().any(|p| in_prefix(label.dst, *p)))
            && (ports.is_empty()
                || to.is_some_and(|to| ports.iter().any(|(lo, hi)| (*lo..=*hi).contains(&to))))
            && (dscps.is_empty() || dscps.contains(&label.dscp))
    }
}

/// Whether an address lies in a prefix of the same family.
pub(crate) fn in_prefix(addr: IpAddr, (net, len): (IpAddr, u8)) -> bool {
    match (addr, net) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            let shift = 32 - u32::from(len.min(32));
            (u64::from(a.to_bits()) >> shift) == (u64::from(n.to_bits()) >> shift)
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            let shift = 128 - u32::from(len.min(128));
            a.to_bits().checked_shr(shift).unwrap_or(0) == n.to_bits().checked_shr(shift).unwrap_or(0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Action;

    const LAN: IfaceId = IfaceId(0);
    const LINK: IfaceId = IfaceId(1);

    fn rule() -> Rule {
        Rule { action: Action::Pass, ..Rule::default() }
    }

    fn udp(dscp: u8) -> Label {
        let (src, dst) = ("10.0.1.1".parse().unwrap(), "10.0.2.1".parse().unwrap());
        Label { src, dst, protocol: 17, ports: Some((40_000, 5060)), dscp }
    }

    #[test]
    fn a_dscp_is_a_class() {
        use Class::{Background, Bulk, Interactive};
        for (dscp, class) in [(0, Bulk), (1, Background), (8, Background), (10, Bulk), (46, Interactive)] {
            assert_eq!(Class::of_dscp(dscp), class, "{dscp}");
        }
        let interactive = (0..64).filter(|d| Class::of_dscp(*d) == Interactive).count();
        assert_eq!(interactive, 12, "and nothing that has no name");
        assert!((0..64).all(|d| DscpClasses::default().of(d) == Class::of_dscp(d)));
        let other = DscpClasses::by(|d| if d == 0 { Interactive } else { Background });
        assert_eq!((other.of(0), other.of(46), other.of(64)), (Interactive, Background, Bulk));
    }

    #[test]
    fn the_first_rule_that_matches_decides_also_where_it_names_no_class() {
        let of = |rules: &[Rule], dscp| {
            Class::of_packet((rules, &DscpClasses::default()), (LAN, LINK), &udp(dscp))
        };
        let low = Rule { class: Some(Class::Background), ..rule() };
        assert_eq!(of(&[], 46), Class::Interactive);
        assert_eq!(of(std::slice::from_ref(&low), 46), Class::Background);
        assert_eq!(of(&[rule(), low.clone()], 46), Class::Interactive);
        assert_eq!(of(&[Rule { protocols: vec![6], ..rule() }, low], 0), Class::Background);
    }

    /// A rule about calls to port 5060 is about what the called one says, too.
    #[test]
    fn an_answer_falls_under_the_rule_of_its_question() {
        let rules = [Rule {
            interfaces: vec![LAN],
            ports: vec![(5060, 5060)],
            class: Some(Class::Interactive),
            ..rule()
        }];
        assert_eq!(
            Class::of_packet((&rules, &DscpClasses::default()), (LAN, LINK), &udp(0)),
            Class::Interactive
        );
        assert_eq!(
            Class::of_packet((&rules, &DscpClasses::default()), (LINK, LAN), &udp(0).back()),
            Class::Interactive
        );
        assert_eq!(
            Class::of_packet((&rules, &DscpClasses::default()), (LINK, LAN), &udp(0)),
            Class::Bulk,
            "asked from the other side"
        );
        let no_ports = Label { ports: None, ..udp(0) };
        assert_eq!(Class::of_packet((&rules, &DscpClasses::default()), (LAN, LINK), &no_ports), Class::Bulk);
    }

    #[test]
    fn prefixes_of_every_length() {
        let p = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(in_prefix(p("10.1.2.3"), (p("10.0.0.0"), 8)));
        assert!(!in_prefix(p("11.1.2.3"), (p("10.0.0.0"), 8)));
        assert!(in_prefix(p("1.2.3.4"), (p("0.0.0.0"), 0)));
        assert!(in_prefix(p("1.2.3.4"), (p("1.2.3.4"), 32)));
        assert!(in_prefix(p("fd00::1"), (p("fd00::"), 64)));
        assert!(!in_prefix(p("fd01::1"), (p("fd00::"), 64)));
        assert!(in_prefix(p("::1"), (p("::"), 0)));
        assert!(!in_prefix(p("1.2.3.4"), (p("::"), 0)));
    }
}
