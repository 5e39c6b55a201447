//! What happens to connections is told as it is counted: to the log, and to the trace of one.

use farlink_gateway::config::Action;
use farlink_gateway::{Because, Carried, Event, Side};

use crate::limits::rule;
use crate::script::{Script, USUAL};

/// The names of what has happened, once all of it has been found to be of one connection.
fn told(t: &mut Script) -> Vec<Event> {
    let told = t.take_happened();
    for (ends, what) in &told {
        let both = format!("{} {}", ends.client, ends.server);
        t.assert(both == "10.0.1.1:40000 10.0.2.1:80", &format!("{what:?} happened to {both}"));
    }
    told.into_iter().map(|(_, what)| without_spent(what)).collect()
}

/// How many bytes it took has tests of its own.
fn without_spent(what: Event) -> Event {
    let payload = |c: Carried| Carried {
        to_server_bytes: c.to_server_bytes,
        to_client_bytes: c.to_client_bytes,
        ..Carried::default()
    };
    match what {
        Event::Slept(c) => Event::Slept(payload(c)),
        Event::Closed(c) => Event::Closed(payload(c)),
        Event::Reset(c) => Event::Reset(payload(c)),
        other => other,
    }
}

#[test]
fn a_connection_is_split_sleeps_wakes_and_is_closed() {
    let mut t = Script::new();
    t.open();
    assert_eq!(told(&mut t), [Event::Split]);
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         ~40
         drop a
         ~11s",
    );
    let carried =
        |to_server_bytes, to_client_bytes| Carried { to_server_bytes, to_client_bytes, ..Carried::default() };
    assert_eq!(told(&mut t), [Event::Slept(carried(100, 0))]);
    t.play(
        "b > P. 1:51 ack 101
         a < P. 1:51 ack 101
         a > F. 101 ack 51
         ~40
         drop
         b > F. 51 ack 102
         ~40
         drop
         a > . 102 ack 52
         ~40
         drop",
    );
    assert_eq!(told(&mut t), [Event::Woken, Event::Closed(carried(0, 50))]);
    let c = t.status().counters;
    assert_eq!((c.flows_split, c.flows_slept, c.flows_woken, c.flows_closed), (1, 1, 1, 1));
}

#[test]
fn timeouts_and_resets_are_told() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         ~3s
         drop
         a > R. 101 ack 1
         b > R. 1 ack 1
         ~100
         drop",
    );
    let told = told(&mut t);
    t.assert(told.contains(&Event::TimedOut(Side::B)), &format!("{told:?}"));
    let resets = told.iter().filter(|what| matches!(what, Event::Reset(_))).count();
    let timeouts = told.iter().filter(|what| matches!(what, Event::TimedOut(_))).count();
    let c = t.status().counters;
    assert_eq!((c.rtos, c.flows_reset), (timeouts as u64, resets as u64));
    t.assert(resets > 0 && timeouts > 0, "both");
}

#[test]
fn what_is_not_split_says_why() {
    let cases = [
        (Event::Passed, Some(Action::Pass), USUAL, 100),
        (Event::Refused, Some(Action::Refuse), USUAL, 100),
        (Event::Forwarded(Because::Memory), None, USUAL, 0),
    ];
    for (expected, action, options, flows_max) in cases {
        let mut t = Script::with(|s| {
            s.config.rules = action.into_iter().map(rule).collect();
            s.config.limits.flows_max = flows_max;
        });
        t.play(&format!("a > S 0 win 65535 {options}\n drop"));
        assert_eq!(told(&mut t), [expected]);
        if action.is_some() {
            // Repeated, it is the same connection.
            t.play(&format!("~1000\n drop\n a > S 0 win 65535 {options}\n drop"));
            assert_eq!(told(&mut t), []);
        }
    }
}
