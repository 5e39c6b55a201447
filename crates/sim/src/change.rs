//! What operators say otherwise while connections are open: changes of a gateway's configuration,
//! as plain data.

use farlink_gateway::cc;
use farlink_gateway::config::{
    AckFilter, Action, Config, Copies, FlowControl, InitialWindow, Link, LinkAction, Oversize, Rule,
    SendAhead, Weights, XcpContext,
};
use farlink_wire::Duration;

/// One thing that another configuration says otherwise.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes that a relay may hold, and whether more where a link holds more.
    Relay(u32, bool),
    /// Bytes of buffers.
    Pool(usize),
    /// The policy of flow control.
    FlowControl(FlowControl),
    /// Whether another gateway is told a soft window.
    SoftWindow(bool),
    /// Whether segments are dropped to slow a source.
    QueueDrop(bool),
    /// Whose small windows are waited for.
    SendAhead(SendAhead),
    /// What governs legs that are no links.
    OrdinaryController(cc::Kind),
    /// What connections begin with there.
    OrdinaryWindow(InitialWindow),
    /// Which connections are treated how, and what becomes of all others.
    Rules(Vec<Rule>, Action),
    /// Something of the link at this port, if one is declared there.
    Link(usize, LinkChange),
    /// The interface at this port is taken out.
    Leave(usize),
    /// It is named again.
    Return(usize),
}

/// Something of a declared link.
#[derive(Clone, Debug)]
pub enum LinkChange {
    /// Bits per second that it takes (`None`: nobody knows), what governs what is sent into it, and
    /// whether its rate is looked for.
    Clock(Option<u64>, cc::Kind, bool),
    /// Bits per second that it brings; `None`: nobody knows.
    RateIn(Option<u64>),
    /// How large segments into it are.
    Oversize(Oversize),
    /// Its round trip.
    Rtt(Option<Duration>),
    /// What connections over it begin with.
    InitialWindow(InitialWindow),
    /// Whether its bytes cost money.
    Metered(bool),
    /// Whether a declared rate is held against what is carried.
    CorrectsRate(bool),
    /// The most that is looked for, bits per second.
    RateMax(Option<u64>),
    /// Whether both directions share one medium.
    HalfDuplex(bool),
    /// How it is shared between what is split and what is not.
    Weights(Option<Weights>),
    /// Whether what may be lost is sent again before that is known.
    Copies(Copies),
    /// Which acknowledgements wait for it.
    AckFilter(AckFilter),
    /// What is done with connections over it that no rule names.
    Action(Option<LinkAction>),
    /// Who shares an allowance.
    XcpContext(XcpContext),
}

impl Change {
    /// The configuration says so from now on. Interfaces that come and go are the gateway's
    /// ([`crate::node::GatewayNode::reconfigure`]).
    pub fn apply(&self, config: &mut Config) {
        match self {
            Self::Relay(bytes, follows_link) => {
                config.limits.relay_bytes = *bytes;
                config.limits.relay_follows_link = *follows_link;
            }
            Self::Pool(bytes) => config.limits.pool_bytes = *bytes,
            Self::FlowControl(policy) => config.flow_control = *policy,
            Self::SoftWindow(is_told) => config.soft_window = *is_told,
            Self::QueueDrop(drops) => config.queue_drop = *drops,
            Self::SendAhead(ahead) => config.send_ahead = *ahead,
            Self::OrdinaryController(kind) => config.ordinary.cc = *kind,
            Self::OrdinaryWindow(window) => config.ordinary.initial_window = *window,
            Self::Rules(rules, otherwise) => {
                config.rules.clone_from(rules);
                config.default_action = *otherwise;
            }
            Self::Link(port, change) => {
                let at = config.interfaces.iter_mut().find(|i| usize::from(i.id.0) == *port);
                if let Some(link) = at.and_then(|interface| interface.link.as_mut()) {
                    change.apply(link);
                }
            }
            Self::Leave(_) | Self::Return(_) => {}
        }
    }

    /// A gateway may be in custody mode then, and may not.
    #[must_use]
    pub fn is_of_actions(&self) -> bool {
        matches!(self, Self::Rules(..) | Self::Link(_, LinkChange::Action(_)))
    }
}

impl LinkChange {
    fn apply(&self, link: &mut Link) {
        match self {
            Self::Clock(bps, kind, estimates) => {
                link.rate_bps = *bps;
                link.leg.cc = *kind;
                link.estimate_rate = *estimates;
            }
            Self::RateIn(bps) => link.rate_in_bps = *bps,
            Self::Oversize(oversize) => link.oversize = *oversize,
            Self::Rtt(rtt) => link.rtt = *rtt,
            Self::InitialWindow(window) => link.leg.initial_window = *window,
            Self::Metered(is_metered) => link.is_metered = *is_metered,
            Self::CorrectsRate(corrects) => link.corrects_rate = *corrects,
            Self::RateMax(bps) => link.rate_max_bps = *bps,
            Self::HalfDuplex(is_half) => link.is_half_duplex = *is_half,
            Self::Weights(weights) => link.weights = *weights,
            Self::Copies(copies) => link.copies = *copies,
            Self::AckFilter(filter) => link.ack_filter = *filter,
            Self::Action(action) => link.action = *action,
            Self::XcpContext(context) => link.xcp_context = *context,
        }
    }
}
