//! What an observer has to tell of connections when a run is over.

use super::Observer;
use crate::truth::{Conn, FlowKey};

impl Observer {
    /// A stream between these ends has gone on round all gateways, by more than any window: what
    /// they have shown of it before binds nobody.
    pub fn note_jump(&mut self, key: FlowKey) {
        for view in self.gateways.values_mut() {
            let of_flow = view.conns.range_mut((key, 0)..=(key, usize::MAX));
            of_flow.flat_map(|(_, both)| both).for_each(|heard| heard.edge = None);
        }
    }

    /// Why the connection of this client ISN between these ends need not have survived; `None`: it
    /// must have.
    #[must_use]
    pub fn excuse_of(&self, key: FlowKey, isn: Option<u32>) -> Option<&'static str> {
        let flow = self.truth.flows.get(&key)?;
        let has = |c: &&Conn| isn.is_none() || c.sides.iter().flatten().any(|s| Some(s.isn.0) == isn);
        flow.conns
            .iter()
            .filter(has)
            .find_map(|c| c.excuse.or(if c.abandoned { Some("a gateway abandoned it") } else { None }))
    }

    /// One line a flow, for the report of a run that does not end.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut out = String::new();
        for (key, flow) in &self.truth.flows {
            for c in &flow.conns {
                let side = |i: usize| {
                    c.sides[i].as_ref().map_or("-".to_string(), |s| {
                        let acked = c.sides[1 - i].as_ref().and_then(|o| o.acked).map(|a| s.offset(a));
                        format!(
                            "isn {} sent {} acked by the other host {acked:?} fin {:?} rst {}",
                            s.isn.0,
                            s.offset(s.snd_max),
                            s.fin_at.map(|f| s.offset(f)),
                            s.reset
                        )
                    })
                };
                out += &format!(
                    "  {}.{}: {}\n  {}.{}: {}  excuse {:?}\n",
                    key.0.0,
                    key.0.1,
                    side(0),
                    key.1.0,
                    key.1.1,
                    side(1),
                    c.excuse
                );
            }
        }
        out
    }
}
