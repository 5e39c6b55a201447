//! After a run: whether every connection came to the end that it was owed.

use crate::app::{End, Outcome};
use crate::host::address;
use crate::observer::Observer;
use crate::plan::SimPlan;
use crate::traffic::Connection;
use crate::truth::FlowKey;

/// The ends of a planned connection as the observer names the flow.
#[must_use]
pub fn flow_key(c: &Connection) -> FlowKey {
    let a = (address(c.client, c.v6), c.client_port);
    let b = (address(c.server, c.v6), c.server_port);
    if a <= b { (a, b) } else { (b, a) }
}

/// The first end that should not be, in words.
#[must_use]
pub fn check(plan: &SimPlan, ends: &[End], observer: &Observer) -> Option<String> {
    ends.iter().find_map(|e| e.error.as_ref().map(|x| format!("{}: {x}", name(plan, e)))).or_else(|| {
        ends.iter().filter(|e| e.is_client).find_map(|client| {
            let server = ends.iter().find(|s| {
                !s.is_client && s.connection == client.connection && s.client_isn == client.client_isn
            });
            check_one(plan, client, server, observer)
        })
    })
}

fn name(plan: &SimPlan, e: &End) -> String {
    let c = &plan.connections[e.connection];
    let which = if e.is_client { "client" } else { "server" };
    format!("connection {} ({} > {}), {which}", e.connection, c.client_port, c.server_port)
}

fn check_one(plan: &SimPlan, client: &End, server: Option<&End>, observer: &Observer) -> Option<String> {
    let c = &plan.connections[client.connection];
    let excuse = observer.excuse_of(flow_key(c), client.client_isn);
    let tell = |e: &End, what: &str| {
        Some(format!(
            "{}: {what}; outcome {:?}, wrote {}, read {}, end read {}, {}{}",
            name(plan, e),
            e.outcome,
            e.written,
            e.received,
            e.end_read,
            e.state,
            excuse.map_or(String::new(), |x| format!(" (excuse: {x})"))
        ))
    };
    for e in [Some(client), server].into_iter().flatten() {
        if e.outcome == Outcome::Open {
            return tell(e, "never ended");
        }
    }
    if c.refused {
        return (client.outcome != Outcome::Refused)
            .then(|| tell(client, "should have been refused"))
            .flatten();
    }
    if excuse.is_some() || c.aborts() {
        return None;
    }
    let Some(server) = server else { return tell(client, "has no counterpart at the server") };
    for (e, other) in [(client, &c.sides[1]), (server, &c.sides[0])] {
        if e.outcome != Outcome::Done {
            return tell(e, "did not end in order");
        }
        if e.received != other.send_bytes {
            return tell(e, &format!("should have read {} bytes", other.send_bytes));
        }
    }
    None
}
