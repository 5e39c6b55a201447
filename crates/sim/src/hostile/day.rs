//! What many connections leave behind in a long time: each says something every half a minute, and
//! sleeps between.

use farlink_wire::Duration;

use crate::rig::{Rig, Saying, config};

/// Between two exchanges of one connection.
pub const EVERY: Duration = Duration::from_secs(30);

/// A look at what a gateway holds.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Hours since the start.
    pub hours: f64,
    /// All that the gateway counts, bytes.
    pub held_bytes: u64,
    /// Of these, what is not buffers: records, relays, boards, lists, timers, queues.
    pub state_bytes: u64,
    /// Timers among them.
    pub timers_bytes: u64,
    /// Connections that are split, and those that sleep.
    pub flows: (u64, u64),
    /// Exchanges so far.
    pub exchanges: u64,
}

/// All bytes that a gateway holds by its own count.
#[must_use]
pub fn held_bytes(rig: &Rig) -> u64 {
    let status = rig.gateway.status();
    status.engine.memory.total_bytes() + status.reassembly_bytes
}

fn look(rig: &Rig, since: farlink_wire::Instant, exchanges: u64) -> Look {
    let e = rig.gateway.status().engine;
    Look {
        hours: rig.now.since(since).as_secs_f64() / 3600.0,
        held_bytes: held_bytes(rig),
        state_bytes: e.memory.state_bytes(),
        timers_bytes: e.memory.timers_bytes,
        flows: (e.flows_split, e.flows_dormant),
        exchanges,
    }
}

/// `flows` connections, each with a question and an answer every [`EVERY`], for so many hours; a
/// look at the end of each of `at_hours`, in order, which `told` hears of at once.
pub fn run(flows: usize, at_hours: &[f64], told: &mut dyn FnMut(&Look)) -> Vec<Look> {
    let mut rig = Rig::new(config(None), flows.max(1));
    let (since, step) = (rig.now, EVERY / flows.max(1) as u32);
    let mut looks = Vec::new();
    let mut exchanges = 0;
    for hours in at_hours {
        let until = since + Duration::from_secs_f64(hours * 3600.0);
        while rig.now < until {
            rig.pass(step);
            let n = (exchanges % rig.flows.len() as u64) as usize;
            rig.say(n, 0, &Saying { len: 100, ..Saying::default() });
            rig.settle(n);
            rig.say(n, 1, &Saying { len: 500, ..Saying::default() });
            rig.settle(n);
            exchanges += 1;
        }
        let look = look(&rig, since, exchanges);
        told(&look);
        looks.push(look);
    }
    looks
}
