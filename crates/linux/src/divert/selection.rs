//! Which traffic is diverted: a list of selections, and the nftables rules that each of them stands
//! for.

use super::nft::{Builder, Expr, Operation, Statement, equal, field, meta, raw, set, text};
use super::plan::{Families, of};
use crate::netlink::Family;
use farlink_wire::ShimProtocols;

pub(crate) const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;
const HOP_BY_HOP: u8 = 0;

/// A kind of traffic that is diverted when it comes in by a diverted interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Packets of this IP protocol, and their fragments.
    Protocol(u8),
    /// ICMP errors that quote a packet of this IP protocol.
    ErrorsAbout(u8),
    /// Everything that leaves by this interface: UDP, ICMP, tunnels, fragments of them.
    LeavesBy(String),
}

impl Selection {
    /// TCP, and the ICMP errors about it: what can be split.
    #[must_use]
    pub fn tcp() -> Vec<Self> {
        vec![Self::Protocol(TCP), Self::ErrorsAbout(TCP)]
    }

    /// Segments with XCP's own header, and the ICMP errors about them.
    pub fn shims(protocols: ShimProtocols) -> impl Iterator<Item = Self> {
        let all = (0..=u8::MAX).filter(move |protocol| protocols.has(*protocol));
        all.flat_map(|protocol| [Self::Protocol(protocol), Self::ErrorsAbout(protocol)])
    }

    /// It takes packets of any protocol.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self, Self::LeavesBy(_))
    }

    /// Appends its rules to the chain `prerouting`. They end in the chain `choose`. `whole`: the
    /// families of which everything is taken now.
    pub(crate) fn rules(&self, b: &mut Builder, whole: Families) {
        match self {
            Self::Protocol(protocol) => protocol_rules(b, *protocol),
            Self::ErrorsAbout(protocol) => error_rules(b, *protocol),
            Self::LeavesBy(interface) => {
                for family in Family::BOTH.into_iter().filter(|f| whole.has(*f)) {
                    let leaves =
                        Expr::Operation(Operation::Fib { result: "oifname", flags: vec!["daddr", "mark"] });
                    let mut rule = vec![of(family)];
                    if family == Family::V6 {
                        // Each router looks at these options, so the kernel would act on them
                        // twice.
                        let right = number(HOP_BY_HOP);
                        rule.push(Statement::Match { op: "!=", left: field("ip6", "nexthdr"), right });
                    }
                    rule.extend([equal(leaves, text(interface)), choose()]);
                    b.rule("prerouting", rule);
                }
            }
        }
    }
}

fn number(n: u8) -> Expr {
    Expr::Number(u32::from(n))
}

fn choose() -> Statement {
    Statement::Goto { target: "choose".to_owned() }
}

/// Of this protocol.
pub(crate) fn is(protocol: u8, left: Expr) -> Statement {
    equal(left, number(protocol))
}

/// Of any other protocol than TCP.
pub(crate) fn is_no_tcp() -> Statement {
    Statement::Match { op: "!=", left: meta("l4proto"), right: number(TCP) }
}

fn protocol_rules(b: &mut Builder, protocol: u8) {
    // Every fragment of an IPv4 packet names the protocol.
    b.rule("prerouting", vec![is(protocol, field("ip", "protocol")), choose()]);
    b.rule("prerouting", vec![is(protocol, field("ip6", "nexthdr")), choose()]);
    // Other extension headers are left alone, as IP options are: later fragments could not be told
    // from the first.
    let fragment_header = Expr::Operation(Operation::ExtensionHeader { name: "frag", field: "nexthdr" });
    let is_fragment = is(FRAGMENT, field("ip6", "nexthdr"));
    b.rule("prerouting", vec![is_fragment, is(protocol, fragment_header), choose()]);
}

/// ICMP: 8 bytes of header, then the packet that caused it. Bits from the start of the ICMP header.
fn error_rules(b: &mut Builder, protocol: u8) {
    let types = |all: &[u8]| set(all.iter().map(|n| number(*n)).collect());
    b.rule(
        "prerouting",
        vec![
            is(ICMP, field("ip", "protocol")),
            equal(field("icmp", "type"), types(&[3, 11, 12])),
            is(protocol, raw((8 + 9) * 8, 8)),
            choose(),
        ],
    );
    let icmpv6 =
        || vec![is(ICMPV6, field("ip6", "nexthdr")), equal(field("icmpv6", "type"), types(&[1, 2, 3, 4]))];
    let mut direct = icmpv6();
    direct.extend([is(protocol, raw((8 + 6) * 8, 8)), choose()]);
    b.rule("prerouting", direct);
    let mut fragmented = icmpv6();
    fragmented.extend([is(FRAGMENT, raw((8 + 6) * 8, 8)), is(protocol, raw((8 + 40) * 8, 8)), choose()]);
    b.rule("prerouting", fragmented);
}
