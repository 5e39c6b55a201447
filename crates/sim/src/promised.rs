//! What gateways say of data that the receiver has not acknowledged: how far they run ahead of its
//! own word, and what those that promise nothing tell of it.

use std::collections::{BTreeMap, BTreeSet};

use farlink_gateway::config::Notice;
use farlink_wire::tcp::IACK_TTL;
use farlink_wire::{Duration, Flags, Instant, Parsed, TcpSegment};

use crate::packet::on_wire;
use crate::ranges::Ranges;
use crate::truth::{Conn, Flow, FlowKey, flow_of};

/// Every source in custody mode may hear of a closed window when its link has been away so long.
const CALMED_AFTER: Duration = Duration::from_secs(10);
/// A gateway that was told of an outage further on asks about it so often at least, and may hear
/// late that it is over.
const TOLD_OVER_AFTER: Duration = Duration::from_secs(20);

/// What a gateway that promises nothing may tell of outages.
#[derive(Clone, Copy, Debug)]
pub struct InCustody {
    notice: Notice,
    /// It is so at any time, and for everybody.
    pub is_sure: bool,
    /// Since when one of its links is away.
    away_since: Option<Instant>,
    /// Since when one was, and until when.
    was_away: Option<(Instant, Instant)>,
    /// Since when one has ever been.
    first_away: Option<Instant>,
}

impl InCustody {
    /// All of its links are there.
    #[must_use]
    pub fn new(notice: Notice) -> Self {
        Self { notice, is_sure: true, away_since: None, was_away: None, first_away: None }
    }

    /// The same of a gateway that promises something to some, or at times.
    #[must_use]
    pub fn at_times(notice: Notice) -> Self {
        Self { is_sure: false, ..Self::new(notice) }
    }

    /// One of its links is silent or down, as far as it knows, or none is.
    pub fn note_links(&mut self, now: Instant, is_away: bool) {
        if !is_away && let Some(since) = self.away_since.take() {
            self.was_away = Some((since, now));
        } else if is_away {
            self.away_since.get_or_insert(now);
            self.first_away.get_or_insert(now);
        }
    }

    /// What the gateway at `node` may tell, if it promises nothing. Others may have told it of
    /// their links.
    #[must_use]
    pub fn of(all: &BTreeMap<usize, Self>, node: usize, now: Instant) -> Option<Self> {
        let own = *all.get(&node)?;
        let may_tell = |other: &&Self| {
            other.away_since.is_some()
                || other.was_away.is_some_and(|(_, until)| now.since(until) < TOLD_OVER_AFTER)
        };
        let others = all.iter().filter(|(at, _)| **at != node).map(|(_, other)| other);
        let told = others.filter(may_tell).filter_map(|other| other.first_away);
        Some(Self { away_since: own.outage(now).into_iter().chain(told).min(), ..own })
    }

    /// Since when a link is away. What left just before it came back counts.
    fn outage(&self, now: Instant) -> Option<Instant> {
        self.away_since.or(self.was_away.filter(|(_, until)| *until == now).map(|(since, _)| since))
    }

    /// A source may be told that the window is closed, though the far host's is open.
    #[must_use]
    pub fn may_close_window(&self, now: Instant) -> bool {
        let after = if self.notice == Notice::ZeroWindow { Duration::ZERO } else { CALMED_AFTER };
        self.outage(now).is_some_and(|since| now.since(since) >= after)
    }
}

/// SACK blocks tell what came to the gateway, and in custody mode none begins at the
/// acknowledgement: that is none to Linux. Which notice is told when, packet scripts say.
///
/// # Errors
/// The block that breaks this.
pub fn check_blocks(s: &TcpSegment, conn: &Conn, side: usize, came: &Ranges) -> Result<(), String> {
    let Some(source) = &conn.sides[1 - side] else { return Ok(()) };
    for b in &s.options.sack {
        let (start, end) = (source.offset(b.start), source.offset(b.end));
        if came.unbroken_end(start) < end {
            return Err(format!("a SACK block {start}:{end} of what never came"));
        }
        if b.start == s.ack {
            return Err(format!("a SACK block {start}:{end} that begins where it is acknowledged"));
        }
    }
    Ok(())
}

/// Intermediate acknowledgements that gateways have made.
#[derive(Debug, Default)]
pub struct Iacks(BTreeSet<(FlowKey, usize, u32, u16)>);

impl Iacks {
    fn name(s: &TcpSegment) -> (FlowKey, usize, u32, u16) {
        let (key, side) = flow_of(s);
        (key, side, s.ack.0, s.window)
    }

    /// One arrives, or goes on.
    ///
    /// # Errors
    /// No gateway has made it.
    pub fn check_came(&self, s: &TcpSegment) -> Result<(), String> {
        if self.0.contains(&Self::name(s)) { Ok(()) } else { Err("an IACK that no gateway has made".into()) }
    }

    /// A gateway of another kind has made one, which nobody judges.
    pub fn let_in(&mut self, bytes: &[u8]) {
        if let Parsed::Tcp(s) = on_wire(bytes)
            && s.is_iack()
        {
            self.0.insert(Self::name(&s));
        }
    }

    /// A gateway makes one. `heard`: what came to it of a connection, and what the receiver has
    /// acknowledged of that.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_made<'a>(
        &mut self,
        s: &TcpSegment,
        flow: &Flow,
        side: usize,
        (now, custody): (Instant, Option<&InCustody>),
        heard: impl Fn(usize) -> Option<(&'a Ranges, Option<u64>)>,
    ) -> Result<(), String> {
        let may = custody.is_some_and(|c| c.notice == Notice::Iack && c.outage(now).is_some());
        if !may {
            return Err("an IACK where none is to be told".into());
        }
        if s.ip.ttl != IACK_TTL {
            return Err(format!("an IACK with TTL {}", s.ip.ttl));
        }
        let is_of = |index: usize, conn: &Conn| {
            let (Some(said), Some(source), Some((came, acked))) =
                (&conn.sides[side], &conn.sides[1 - side], heard(index))
            else {
                return false;
            };
            // No host may take its number for one of the connection.
            let is_far = s.seq.diff(said.snd_max).unsigned_abs() >= 1 << 29;
            let (acked, held) = (acked.unwrap_or(0), source.offset(s.ack));
            is_far && held <= came.unbroken_end(acked)
        };
        if !flow.newest_first().any(|(index, conn)| is_of(index, conn)) {
            return Err("an IACK of what is not held".into());
        }
        self.0.insert(Self::name(s));
        Ok(())
    }
}

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
