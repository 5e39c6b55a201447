//! Other configurations and settings, as a script of bytes says them.

use farlink_gateway::cc;
use farlink_gateway::config::{
    Action, Config, Copies, FlowControl, InitialWindow, Link, LinkAction, Notice, Rule, SendAhead, Weights,
    XcpContext,
};
use farlink_gateway::{IfaceId, UNKNOWN_RATE_CC};

use super::hosts::{REFUSED_PORT, SERVER_PORT};
use super::source::Source;

/// Settings that `farlink set` would change, and values.
pub const SETTINGS: [(&str, &str); 16] = [
    ("link.hard.rate_bps", "8M"),
    ("link.hard.rate_bps", "64k"),
    ("link.hard.rate_bps", "unknown"),
    ("link.hard.up", "false"),
    ("link.hard.up", "true"),
    ("link.hard.contact", "false"),
    ("link.hard.contact", "true"),
    ("link.hard.action", "custody"),
    ("link.hard.action", "auto"),
    ("link.hard.action", "split"),
    ("link.hard.duplex", "half"),
    ("link.hard.split_weight", "10"),
    ("default_action", "custody"),
    ("default_action", "split"),
    ("link.hard.xcp_context", "flow"),
    ("link.hard.contact", "maybe"),
];

fn pick<T: Copy>(from: u8, of: &[T]) -> T {
    of[usize::from(from) % of.len()]
}

fn action(from: u8) -> Action {
    match from & 3 {
        0 => Action::Split,
        1 => Action::Pass,
        _ => Action::Custody(pick(from >> 2, &Notice::ALL)),
    }
}

/// What another configuration may say of interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// What it said before.
    Same,
    /// This one is not named any more.
    Without(IfaceId),
    /// All of them.
    All,
}

/// Some things that another configuration says otherwise.
pub fn change(config: &mut Config, from: &mut Source<'_>) -> Named {
    let mut named = Named::Same;
    for _ in 0..=from.u8() & 3 {
        let [what, how] = [from.u8(), from.u8()];
        match what & 15 {
            0 => {
                config.limits.relay_bytes = pick(how, &[65_535, 16_384, 262_144, 1_000]);
                config.limits.relay_follows_link = how & 4 != 0;
            }
            1 => config.limits.pool_bytes = pick(how, &[64 << 10, 256 << 10, 1 << 20]),
            2 => config.flow_control = pick(how, &FlowControl::ALL),
            3 => {
                config.soft_window = how & 1 != 0;
                config.queue_drop = how & 2 != 0;
            }
            4 => config.send_ahead = pick(how, &SendAhead::ALL),
            5 => {
                config.ordinary.cc = pick(how, &[cc::Kind::NewReno, cc::Kind::Cubic, cc::Kind::Bbr]);
                config.ordinary.initial_window = InitialWindow::fixed(pick(how >> 2, &[1, 10, 100]));
            }
            6 => config.rules = (0..how & 3).map(|n| rule(n, from)).collect(),
            7 => config.default_action = action(how),
            8 => named = Named::Without(IfaceId(u16::from(how & 1))),
            9 => named = Named::All,
            _ => {
                let links = config.interfaces.iter_mut().filter_map(|i| i.link.as_mut());
                links.for_each(|link| change_link(link, what, how));
            }
        }
    }
    named
}

fn rule(n: u8, from: &mut Source<'_>) -> Rule {
    let [which, how] = [from.u8(), from.u8()];
    Rule {
        name: format!("rule{n}"),
        ports: if which & 1 == 0 {
            vec![(SERVER_PORT, SERVER_PORT)]
        } else {
            vec![(REFUSED_PORT, REFUSED_PORT)]
        },
        interfaces: if which & 2 == 0 { Vec::new() } else { vec![IfaceId(u16::from(which >> 2 & 1))] },
        action: action(how),
        connections_max: (which & 0x10 != 0).then_some(1),
        send_ahead: (which & 0x20 != 0).then_some(SendAhead::On),
        ..Rule::default()
    }
}

fn change_link(link: &mut Link, what: u8, how: u8) {
    match what & 15 {
        10 => {
            link.rate_bps = pick(how, &[Some(8_000_000), Some(64_000), None]);
            link.estimate_rate = link.rate_bps.is_none() && how & 0x10 == 0;
            link.leg.cc = match (link.rate_bps, link.estimate_rate) {
                (Some(_), _) => cc::Kind::FixedRate,
                (None, true) => UNKNOWN_RATE_CC,
                (None, false) => cc::Kind::Cubic,
            };
        }
        11 => {
            let notice = pick(how >> 2, &Notice::ALL);
            let all = [
                None,
                Some(LinkAction::Split),
                Some(LinkAction::Custody(notice)),
                Some(LinkAction::Auto(notice)),
            ];
            link.action = pick(how, &all);
        }
        12 => {
            link.is_metered = how & 1 != 0;
            link.corrects_rate = how & 2 != 0;
            link.copies = pick(how >> 2, &[Copies::Auto, Copies::Off]);
        }
        13 => {
            link.is_half_duplex = how & 1 != 0;
            link.xcp_context = pick(how >> 1, &[XcpContext::Pair, XcpContext::Flow]);
        }
        14 => link.weights = pick(how, &[None, Some(Weights { split: 1, forwarded: 10 })]),
        _ => {
            link.rate_max_bps = pick(how, &[None, Some(9_000_000)]);
            link.leg.initial_window = InitialWindow::fixed(pick(how >> 1, &[1, 10, 100]));
        }
    }
}
