//! Each script once more, more than 2^31 bytes further along (`script/far.rs`).

use std::process::Command;

use crate::script::far::{VARIABLE, is_wanted};

/// Scripts to which it makes a difference how the streams got there: packets have been seen to go
/// round the gateway, so that a FIN waits for its destination; or the window of a handshake is long
/// passed, so that it promises nothing any more; or a number of theirs is none of the stream's.
const OTHERWISE: [&str; 8] = [
    "happened::a_connection_is_split_sleeps_wakes_and_is_closed",
    "fin_early::a_fin_that_waits_for_long_is_acknowledged_when_the_data_before_it_has_arrived",
    "limits::what_the_pool_refuses_is_answered",
    "limits::with_a_short_pool_old_connections_get_smaller_windows_and_lose_nothing",
    "windows::what_was_promised_is_taken",
    "windows::with_little_memory_for_each_every_second_segment_is_answered_at_once",
    "zero_window::the_window_of_the_gateway_opens_in_whole_segments",
    "custody_notices::a_gateway_before_it_passes_an_intermediate_acknowledgement_on",
];

#[test]
fn each_holds_when_its_numbers_have_come_round() {
    if is_wanted() {
        return;
    }
    let program = std::env::current_exe().expect("a test has a program");
    let mut all = Command::new(program);
    all.env(VARIABLE, "1").arg("--quiet");
    for name in OTHERWISE {
        all.args(["--skip", name]);
    }
    let run = all.output().expect("it runs once more");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
}
