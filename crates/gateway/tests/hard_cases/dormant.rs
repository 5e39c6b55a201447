//! Connections that sleep: how they end, what they believe, and what a new handshake between the
//! same ports means.

use crate::script::{Script, USUAL};
use farlink_gateway::config::{Action, Rule};

/// The handshake from this port of host a, with usual options.
fn open_from(t: &mut Script, port: u32) {
    t.play(&format!(
        "a > S 0 win 65535 {USUAL} {{port {port}}}
         drop
         b > S. 0 ack 1 win 65535 {USUAL} {{port {port}}}
         drop
         a > . 1 ack 1 {{port {port}}}
         drop"
    ));
}

/// Room for three connections, all three open and asleep.
fn three_asleep() -> Script {
    let mut t = Script::with(|s| s.config.limits.flows_max = 3);
    for port in 5000..5003 {
        open_from(&mut t, port);
    }
    t.play("+11s");
    t.assert(t.status().flows_dormant == 3, "asleep");
    t
}

fn fins(t: &mut Script, port: u32) {
    t.play(&format!(
        "a > F. 1 ack 1 {{port {port}}}
         b < F. 1 ack 1 {{port {port}}}
         b > F. 1 ack 2 {{port {port}}}
         a < F. 1 ack 2 {{port {port}}}
         a > . 2 ack 2 {{port {port}}}
         b < . 2 ack 2 {{port {port}}}"
    ));
}

fn reset(t: &mut Script, port: u32) {
    t.play(&format!("b > R. 1 ack 1 {{port {port}}}\n a < R. 1 ack 1 {{port {port}}}"));
}

#[test]
fn what_ends_asleep_leaves_the_table() {
    for end in [fins, reset] {
        let mut t = three_asleep();
        for port in 5000..5003 {
            end(&mut t, port);
        }
        t.assert(t.status().flows_dormant == 0, "none of them sleeps");
        // What comes late is the hosts' own: it passes.
        t.play("a > F. 1 ack 1 {port 5000}\n b < F. 1 ack 1 {port 5000}\n quiet\n ~5s");
        t.assert(t.mode() == "none", "forgotten");
        open_from(&mut t, 5003);
        t.assert(t.status().counters.flows_split == 4, "there is room again");
    }
}

#[test]
fn only_an_exact_reset_ends_a_sleeping_connection() {
    let mut t = three_asleep();
    for seq in [0, 2, 500, 3_000_000] {
        t.play(&format!("b > R {seq} {{port 5000}}\n a < R {seq} {{port 5000}}"));
    }
    t.assert(t.status().flows_dormant == 3, "the host that it is for does not believe it either");
}

#[test]
fn one_fin_or_one_that_is_not_acknowledged_ends_nothing() {
    let mut t = three_asleep();
    t.play(
        "a > F. 1 ack 1 {port 5000}
         b < F. 1 ack 1 {port 5000}
         b > . 1 ack 2 {port 5000}
         a < . 1 ack 2 {port 5000}
         b > F. 1 ack 2 {port 5000}
         a < F. 1 ack 2 {port 5000}",
    );
    t.assert(t.status().flows_dormant == 3, "the last acknowledgement is missing");
    t.play("a > . 2 ack 2 {port 5000}\n b < . 2 ack 2 {port 5000}");
    t.assert(t.status().flows_dormant == 2, "over");
}

#[test]
fn a_host_that_vanishes_makes_room_when_the_table_is_full() {
    let mut t = three_asleep();
    // The first of them still lives: the second one is silent longest.
    t.play("a > . 0 ack 1 {port 5000}\n b < . 0 ack 1 {port 5000}\n +1000");
    t.play(&format!("a > S 0 win 65535 {USUAL} {{port 6000}}\n drop"));
    t.assert(t.status().flows_dormant == 3, "whoever only asks takes nobody's place");
    open_from(&mut t, 6001);
    t.assert(t.status().counters.flows_split == 4 && t.status().flows_dormant == 2, "one has gone");
    // It goes on without us.
    t.play("a > P. 1:101 ack 1 {port 5001}\n b < P. 1:101 ack 1 {port 5001}\n ~100\n quiet");
    for port in [5000, 5002] {
        t.play(&format!("a > P. 1:101 ack 1 {{port {port}}}\n drop"));
    }
    t.assert(t.status().counters.flows_woken == 2, "the others wake");
    t.play("drop");
    open_from(&mut t, 6002);
    t.assert(t.status().counters.flows_split == 4, "connections that are awake give way to nobody");
}

#[test]
fn what_has_ended_is_not_open_under_its_rule() {
    let rule =
        Rule { name: "r".into(), connections_max: Some(2), over_limit: Action::Refuse, ..Rule::default() };
    for (pause, end) in [("+11s", fins as fn(&mut Script, u32)), ("+11s", reset)] {
        let mut t = Script::with(|s| s.config.rules = vec![rule.clone()]);
        open_from(&mut t, 5000);
        open_from(&mut t, 5001);
        t.play(pause);
        t.assert(t.status().rules[0].open == 2, "both are");
        // The same host asks anew on the ports of a connection that counts already.
        t.play(&format!("a > S 7000 win 65535 {USUAL} {{port 5000}}\n b < S 7000 {{port 5000}}"));
        end(&mut t, 5000);
        end(&mut t, 5001);
        t.assert(t.status().rules[0].open == 0, "none is open");
        open_from(&mut t, 5002);
        t.assert(t.status().rules[0].open == 1 && t.status().rules[0].over_limit == 0, "not refused");
    }
    // Awake the same: the tombstone that answers for a while is no open connection.
    let mut t = Script::with(|s| s.config.rules = vec![rule.clone()]);
    open_from(&mut t, 5000);
    t.play("a > R. 1 ack 1 {port 5000}\n b < R. 1 ack 1 {port 5000}");
    t.assert(t.status().flows_closed == 1 && t.status().rules[0].open == 0, "none is open");
}

/// With timestamps: 100 bytes have gone from a to b, and both are silent since.
fn asleep_with_timestamps() -> Script {
    let mut t = Script::new();
    t.open_with("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");
    t.play(
        "a > P. 1:101 ack 1 <ts 1010 5000>
         b < P. 1:101 ack 1
         b > . 1 ack 101 <ts 5010 1010>
         ~40
         drop a
         +11s",
    );
    t.assert(t.mode() == "dormant", "asleep");
    t
}

#[test]
fn a_sleeping_connection_learns_nothing_from_guesses() {
    let mut t = asleep_with_timestamps();
    t.play(
        "# Numbers of no window, however they come; a stamp far ahead, another TTL, another interface.
         a > . 77777777 ack 5 <ts 1000001000 5000> {ttl 1}
         b < . 77777777 ack 5
         a > P. 300000101:300000201 ack 1 <ts 1000001000 5000> {ttl 9}
         b < P. 300000101:300000201 ack 1
         b > . 99999999 ack 101 <ts 1000005000 1000> {ttl 1,by a}
         a < . 99999999 ack 101
         # The sequence number is right, the acknowledgement is of nothing; no stamp; a stamp that is too old.
         b > . 1 ack 90000000 <ts 1000005000 1000> {ttl 1}
         a < . 1 ack 90000000
         b > . 1 ack 101 {ttl 1}
         a < . 1 ack 101
         b > . 1 ack 101 <ts 4000 1000> {ttl 1}
         a < . 1 ack 101
         # What the hosts say themselves wakes it, and both are spoken for with their own stamps and TTL.
         a > P. 101:201 ack 1 <ts 1200 5010>
         b < P. 101:201 ack 1 <ts 1200 5010> {ttl 63}
         +40
         a < . 1 ack 201 <ts 5010 1200> {ttl 63}
         quiet",
    );
    t.assert(t.status().counters.flows_woken == 1, "awake");
}

#[test]
fn guesses_within_windows_teach_a_sleeping_connection_nothing() {
    for guess in ["300 ack 5000 win 60000", "1 ack -20000 win 60000", "-5000 ack 101 win 60000"] {
        let mut t = Script::new();
        t.open();
        t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n b > . 1 ack 101\n ~40\n drop a\n +11s");
        t.assert(t.mode() == "dormant", "asleep");
        for _ in 0..3 {
            t.play(&format!("b > . {guess}\n a < . {guess}"));
        }
        t.play("a > P. 101:201 ack 1\n b < P. 101:201 ack 1\n ~40\n drop");
        t.assert(t.status().counters.flows_woken == 1, "what the host says itself wakes it");
        // What the guesses showed is no window of b's: an acknowledgement from beyond the real one
        // is challenged.
        t.play("b > P. 1:11 ack -70000 {fill 88}\n b < . 201 ack 1\n quiet");
    }
}

/// A host takes an acknowledgement as old as the largest window that it has seen (RFC 5961 section
/// 5.2), and a gateway's are larger.
#[test]
fn data_that_only_our_windows_would_let_in_does_not_pass_asleep() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n b > . 1 ack 101\n ~40\n drop a\n +11s");
    t.assert(t.mode() == "dormant", "asleep");
    // b's own largest window is 65,535 bytes.
    for guess in ["P. 1:11 ack -65536 {fill 88}", "F. 1 ack -900000"] {
        t.play(&format!("b > {guess}\n quiet"));
    }
    // As old as its windows allow; without data; a stranger's: the host judges.
    for passes in ["P. 1:11 ack -65400 {fill 88}", ". 1 ack -900000", "P. 1:11 ack -90000000 {fill 88}"] {
        t.play(&format!("b > {passes}\n a < {passes}"));
    }
    t.play("b > P. 1:11 ack 101\n a < P. 1:11 ack 101\n ~40\n drop");
    t.assert(t.status().counters.flows_woken == 1, "what the host says itself wakes it");
}

#[test]
fn guesses_keep_no_connection_awake() {
    let mut t = Script::new();
    t.open();
    for _ in 0..6 {
        t.play("~2000\n a > . 77777777 ack 1\n drop");
    }
    t.assert(t.mode() == "dormant", "its hosts have been silent for 12 seconds");
}

/// A new connection between the same ports, with another window scale and lower timestamps.
fn begins_anew(t: &mut Script) {
    t.play(
        "a > S 1101 win 65535 <mss 1460,sackOK,ws 2,ts 500 0>
         b < S 1101
         b > S. 1001 ack 1102 win 65535 <mss 1460,sackOK,ws 3,ts 700 500>
         a < S. 1001 ack 1102
         a > . 1102 ack 1002 <ts 510 700>
         b < . 1102 ack 1002
         a > P. 1102:1202 ack 1002 <ts 520 700>
         b < P. 1102:1202 ack 1002 <ts 520 700>
         +40
         a < . 1002 ack 1202 <ts 700 520>
         b > . 1002 ack 1202 <ts 720 520>
         quiet",
    );
    let s = t.status();
    t.assert(s.counters.flows_split == 2 && s.flows_split == 1 && s.flows_dormant == 0, "split as a new one");
    t.assert(s.rules[0].open == 1, "one is open");
}

#[test]
fn a_new_connection_takes_the_place_of_one_that_was_reset_asleep() {
    let mut t = asleep_with_timestamps();
    t.play("a > R 101\n b < R 101");
    begins_anew(&mut t);
}

#[test]
fn a_new_connection_takes_the_place_of_one_whose_hosts_have_vanished() {
    let mut t = asleep_with_timestamps();
    begins_anew(&mut t);
    // Awake, with nothing owed: the same.
    let mut t = Script::new();
    t.open_with("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");
    t.play(
        "a > P. 1:101 ack 1 <ts 1010 5000>
         b < P. 1:101 ack 1
         b > . 1 ack 101 <ts 5010 1010>
         +40
         a < . 1 ack 101",
    );
    begins_anew(&mut t);
}

#[test]
fn a_blind_syn_costs_a_quiet_connection_nothing() {
    for (pause, woken) in [("+11s", 1), ("+1s", 0)] {
        let mut t = Script::new();
        t.open();
        t.play(
            "a > P. 1:101 ack 1
             b < P. 1:101 ack 1
             b > . 1 ack 101
             ~40
             drop a",
        );
        t.play(pause);
        t.play(
            "a > S 123456 win 1000 <mss 1460>
             b < S 123456
             # The challenge ACK of the host that it is for (RFC 5961 section 4): it has the old connection.
             b > . 1 ack 101
             a < . 1 ack 101
             # Too late.
             b > S. 4000 ack 123457 win 1000 <mss 1460>
             a < S. 4000 ack 123457
             a > . 123457 ack 4001
             b < . 123457 ack 4001
             a > P. 101:201 ack 1
             b < P. 101:201 ack 1
             +40
             a < . 1 ack 201
             quiet",
        );
        t.assert(t.mode() == "split" && t.status().half_open == 0, "as before");
        t.assert(t.status().counters.flows_woken == woken, "as before");
    }
}

#[test]
fn a_handshake_of_one_guesser_costs_a_quiet_connection_nothing() {
    let mut t = asleep_with_timestamps();
    t.play(
        "# All of it comes in where only host b can be.
         a > S 123456 win 1000 <mss 1460> {by b}
         b < S 123456
         b > S. 4000 ack 123457 win 1000 <mss 1460>
         a < S. 4000 ack 123457
         a > . 123457 ack 4001 {by b}
         b < . 123457 ack 4001
         a > P. 101:201 ack 1 <ts 1200 5010>
         b < P. 101:201 ack 1 <ts 1200 5010>
         +40
         a < . 1 ack 201
         quiet",
    );
    t.assert(t.status().counters.flows_woken == 1 && t.status().counters.flows_split == 1, "as before");
}

#[test]
fn after_weeks_of_keepalives_the_first_data_is_not_too_old() {
    let mut t = asleep_with_timestamps();
    // More than half the round of a timestamp of milliseconds, by the hour (RFC 7323 section 5.5).
    let mut stamp = 1010u32;
    for _ in 0..610 {
        stamp = stamp.wrapping_add(3_600_000);
        t.play(&format!(
            "~3600s
             a > . 100 ack 1 <ts {stamp} 5010>
             drop
             b > . 1 ack 101 <ts {} {stamp}>
             drop",
            stamp.wrapping_add(4000)
        ));
    }
    t.play(&format!(
        "a > P. 101:201 ack 1 <ts {} 5010>\n b < P. 101:201 ack 1\n +40\n a < . 1 ack 201",
        stamp + 9
    ));
    t.assert(t.status().counters.flows_woken == 1, "taken");
}

#[test]
fn waking_obeys_the_memory_that_there_is() {
    let mut t = Script::with(|s| s.config.limits.pool_bytes = 72 << 10);
    let (mut port, mut most) = (5000, 0);
    for _ in 0..4 {
        let before = t.status().counters.flows_split;
        while port < 5500 {
            let split = t.status().counters.flows_split;
            open_from(&mut t, port);
            port += 1;
            if t.status().counters.flows_split == split {
                break;
            }
        }
        most = most.max(t.status().counters.flows_split - before);
        t.play("~11s\n quiet");
    }
    t.assert(most > 0 && t.status().flows_dormant > most, "more sleep than may be awake");
    for p in 5000..port {
        t.play(&format!("a > P. 1:101 ack 1 {{port {p}}}\n b < P. 1:101 ack 1 {{port {p}}}\n drop"));
    }
    t.assert(t.status().flows_split > 0 && t.status().flows_split <= most, "no more are awake");
}
