//! How far gateways run ahead of the receiver's own acknowledgements.

use farlink_wire::{Flags, TcpSegment};

use crate::truth::Conn;

/// A gateway in custody mode acknowledges nothing that the receiver itself has not acknowledged.
/// `acked`: what gateways could take for its word, as an offset in the other stream.
pub fn check_promises_nothing(s: &TcpSegment, conn: &Conn, side: usize, acked: u64) -> Result<(), String> {
    let (Some(receiver), Some(source)) = (&conn.sides[side], &conn.sides[1 - side]) else { return Ok(()) };
    if !s.flags.ack() || s.flags.syn() || receiver.reset {
        return Ok(());
    }
    let own = receiver.acked.map_or(0, |ack| source.offset(ack)).max(acked);
    let acked = source.offset(s.ack);
    if acked > own {
        return Err(format!("acknowledges up to {acked} in custody mode; the receiver itself up to {own}"));
    }
    Ok(())
}

/// Bytes in custody, summed over all gateways, beyond the largest window that their source was
/// shown. Where flows survive any gateway there are none (invariant 7).
pub fn custody_beyond_reach(s: &TcpSegment, conn: &Conn, side: usize) -> Option<u64> {
    let (Some(receiver), Some(source)) = (&conn.sides[side], &conn.sides[1 - side]) else { return None };
    if !s.flags.ack() || s.flags.any(Flags::RST | Flags::SYN) || receiver.reset || conn.excuse.is_some() {
        return None;
    }
    if s.ack.since(source.isn) > source.snd_max.since(source.isn) {
        return None;
    }
    let delivered = receiver.acked.map_or(0, |a| source.offset(a));
    let fin = u64::from(source.fin_at.is_some_and(|f| s.ack == f + 1));
    let custody = (source.offset(s.ack) - fin).saturating_sub(delivered);
    let shown = source.shown_window_max.max(source.sent_window_max);
    (shown > 0).then(|| custody.saturating_sub(shown))
}
