//! A packet that waits may be changed for another one of its size.

use farlink_egress::{Class, Config, Egress, Grant};
use farlink_wire::time::Instant;

#[test]
fn the_newest_packet_of_a_flow_is_found_by_its_size() {
    let mut egress = Egress::new(Config { rate_bps: Some(32_000), ..Config::default() });
    let now = Instant::ZERO;
    for (flow, bytes, packet) in [(1, 52, 'a'), (1, 52, 'b'), (2, 52, 'c'), (1, 52, 'd')] {
        assert!(egress.enqueue(now, flow, Class::Control, bytes, packet).is_empty());
    }
    assert_eq!(egress.newest_mut(1, Class::Control, 64), None, "it has another size");
    assert_eq!(egress.newest_mut(1, Class::Bulk, 52), None, "it waits in another class");
    assert_eq!(egress.newest_mut(3, Class::Control, 52), None, "it has nothing");
    *egress.newest_mut(1, Class::Control, 52).unwrap() = 'e';
    let backlog = egress.stats().backlog_bytes;
    let mut left = String::new();
    let mut at = now;
    while left.len() < 4 {
        if let Some(Grant::Packet(packet)) = egress.next_grant(at) {
            left.push(packet);
        }
        at = egress.poll_timeout().unwrap_or(at);
    }
    assert_eq!(left.replace('c', ""), "abe", "it has the place of the one before");
    assert!(backlog > 0 && egress.stats().backlog_bytes == 0);
    assert_eq!(egress.newest_mut(1, Class::Control, 52), None, "all has left");
}
