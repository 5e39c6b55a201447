//! Who has something to send, and what: the words between the engine and the queues of links.

use crate::config::Class;
use crate::flow_id::{FlowId, GENERATION_MASK};
use crate::link::PairId;
use crate::net::Way;
use crate::side::Side;
use farlink_wire::Duration;

/// What a flow wants to send towards a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Only an acknowledgement.
    Ack,
    /// Only an acknowledgement, to a gateway: it does not send by the clock of these, and a few are
    /// enough.
    GatewayAck,
    /// Data of this class.
    Data(Class),
    /// Copies of what is under way, where the link has nothing else to do.
    Repeat,
}

/// What a leg may do when its turn comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// About so many wire bytes at most.
    pub budget_bytes: u32,
    /// How long the leg was ready before, because others had their turn first. Zero where a queue
    /// spreads what leaves.
    pub waited: Duration,
}

/// What is pulled: a leg of a flow, and of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadyId {
    pub(crate) flow: FlowId,
    pub(crate) to: Side,
    pub(crate) what: What,
}

/// What a pull may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// The most pressing.
    Any,
    /// Only an acknowledgement.
    Ack,
    /// Only a copy of what is under way.
    Repeat,
}

impl What {
    const fn number(self) -> u32 {
        match self {
            Self::Any => 0,
            Self::Ack => 1,
            Self::Repeat => 2,
        }
    }
}

impl From<Wants> for What {
    fn from(wants: Wants) -> Self {
        match wants {
            Wants::Ack | Wants::GatewayAck => Self::Ack,
            Wants::Data(_) => Self::Any,
            Wants::Repeat => Self::Repeat,
        }
    }
}

impl ReadyId {
    /// As one number, for queues that know nothing of flows. The highest bit is never set.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        let FlowId { slot, generation } = self.flow;
        u64::from(generation & GENERATION_MASK) << 35 | u64::from(slot) << 3 | u64::from(self.leg_and_wish())
    }
    /// Back from the number.
    #[must_use]
    pub fn from_u64(n: u64) -> Self {
        let generation = (n >> 35) as u32 & GENERATION_MASK;
        let what = match n >> 1 & 3 {
            1 => What::Ack,
            2 => What::Repeat,
            _ => What::Any,
        };
        let to = if n & 1 == 0 { Side::A } else { Side::B };
        Self { flow: FlowId { slot: (n >> 3) as u32, generation }, to, what }
    }
    /// The flow's slot in the table: small numbers, used again.
    #[must_use]
    pub fn slot(self) -> usize {
        self.flow.slot as usize
    }
    /// Tells the flows that use a slot one after the other apart.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.flow.generation & GENERATION_MASK
    }
    /// Which leg, and what of it: 0 to 5.
    #[must_use]
    pub fn leg_and_wish(self) -> u32 {
        self.what.number() << 1 | u32::from(self.to == Side::B)
    }
    /// The same leg with this wish.
    #[must_use]
    pub fn wanting(self, wants: Wants) -> Self {
        Self { what: wants.into(), ..self }
    }
}

/// A leg of a flow that has something to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// What to pull.
    pub id: ReadyId,
    /// The way that it leaves.
    pub out: Way,
    /// What.
    pub wants: Wants,
    /// Data has its place in the queue with this pair of gateways.
    pub pair: Option<PairId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_all_there_is_and_leave_the_highest_bit() {
        for what in [What::Any, What::Ack, What::Repeat] {
            for to in [Side::A, Side::B] {
                let flow = FlowId { slot: u32::MAX, generation: GENERATION_MASK };
                let id = ReadyId { flow, to, what };
                assert_eq!(ReadyId::from_u64(id.as_u64()), id);
                assert_eq!(id.as_u64() >> 63, 0);
            }
        }
    }
}
