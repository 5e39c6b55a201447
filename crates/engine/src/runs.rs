//! What a gateway holds above a gap, told to the gateway before it in a few bytes. In custody mode,
//! where it acknowledges nothing by itself, that is all that it holds.
//!
//! A SACK block takes eight bytes, and two of them are all that fits beside timestamps and our own
//! option. Between gateways the runs are told in units of a segment instead: two bytes for most of
//! them, so that each one is told in many acknowledgements, and a lost acknowledgement costs
//! nothing. Hosts that do not speak SACK get it on this leg, too.
//!
//! Encoding: the unit in bytes (2), then lengths, from the highest run downwards: from the
//! acknowledgement number to the end of the first run, its length, the distance to the next run
//! told, its length, and so on. A length is `2 n` for `n` units and `2 n + 1` for `n` bytes, seven
//! bits in a byte, the lowest first, the highest bit set where more follow.

use arrayvec::ArrayVec;
use farlink_wire::{SackBlock, SeqNum};

/// Runs told at once.
pub const RUNS_MAX: usize = 12;
/// Bytes that an option has for them at most.
pub const RUNS_BYTES_MAX: usize = 35;
/// Distances are below this: half of the sequence space.
const DISTANCE_MAX: u64 = 1 << 31;

/// Runs as they stand in an option.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Runs(ArrayVec<u8, RUNS_BYTES_MAX>);

impl Runs {
    /// The most urgent of `runs` (they are given in that order) that fit into `room_bytes`. All lie
    /// above `ack`, or begin there.
    #[must_use]
    pub fn encode(ack: SeqNum, unit_bytes: u32, runs: &[SackBlock], room_bytes: usize) -> Self {
        let unit = u16::try_from(unit_bytes).unwrap_or(u16::MAX).max(1);
        let mut told: ArrayVec<SackBlock, RUNS_MAX> = runs.iter().copied().take(RUNS_MAX).collect();
        while !told.is_empty() {
            let mut down = told.clone();
            down.sort_by_key(|run| core::cmp::Reverse(run.end.since(ack)));
            if let Some(bytes) = write(ack, unit, &down, room_bytes.min(RUNS_BYTES_MAX)) {
                return Self(bytes);
            }
            told.pop();
        }
        Self::default()
    }
    /// What an option's body brought.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().copied().take(RUNS_BYTES_MAX).collect())
    }
    /// As they go into an option.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
    /// The runs from `ack` on, the highest first. What cannot be read ends them.
    #[must_use]
    pub fn blocks(&self, ack: SeqNum) -> ArrayVec<SackBlock, RUNS_MAX> {
        let mut out = ArrayVec::new();
        let Some((unit, mut rest)) = self.0.split_first_chunk::<2>() else { return out };
        let unit = u64::from(u16::from_be_bytes(*unit));
        let Some(mut end) = read(&mut rest, unit) else { return out };
        while let Some(len) = read(&mut rest, unit) {
            if len == 0 || len > end || out.is_full() {
                break;
            }
            let at = |distance: u64| ack + u32::try_from(distance).unwrap_or(0);
            let start = end - len;
            let _ = out.try_push(SackBlock { start: at(start), end: at(end) });
            match read(&mut rest, unit) {
                Some(gap) if gap > 0 && gap < start => end = start - gap,
                _ => break,
            }
        }
        out
    }
}

/// `runs` from the highest down, or `None` where they do not fit.
fn write(ack: SeqNum, unit: u16, runs: &[SackBlock], room: usize) -> Option<ArrayVec<u8, RUNS_BYTES_MAX>> {
    let mut out = ArrayVec::new();
    out.try_extend_from_slice(&unit.to_be_bytes()).ok()?;
    let mut above = None;
    for run in runs {
        let distance = above.map_or_else(|| run.end.since(ack), |start: SeqNum| start.since(run.end));
        push(&mut out, distance, unit)?;
        push(&mut out, run.end.since(run.start), unit)?;
        above = Some(run.start);
    }
    (out.len() <= room).then_some(out)
}

fn push(out: &mut ArrayVec<u8, RUNS_BYTES_MAX>, bytes: u32, unit: u16) -> Option<()> {
    let unit = u32::from(unit);
    let mut value =
        if bytes.is_multiple_of(unit) { u64::from(bytes / unit) * 2 } else { u64::from(bytes) * 2 + 1 };
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        out.try_push(if value > 0 { low | 0x80 } else { low }).ok()?;
        if value == 0 {
            return Some(());
        }
    }
}

/// The next length in bytes, below half of the sequence space.
fn read(rest: &mut &[u8], unit: u64) -> Option<u64> {
    let mut value = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, more) = rest.split_first()?;
        *rest = more;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let bytes = if value & 1 == 0 { (value / 2).saturating_mul(unit) } else { value / 2 };
            return Some(bytes).filter(|b| *b < DISTANCE_MAX);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK: SeqNum = SeqNum(u32::MAX - 5_000);

    fn run(start: u32, end: u32) -> SackBlock {
        SackBlock { start: ACK + start, end: ACK + end }
    }

    #[test]
    fn seven_runs_of_whole_segments_fit_beside_timestamps() {
        let down: Vec<SackBlock> =
            (0..9).rev().map(|i| run(1444 * (1 + 20 * i), 1444 * 20 * (1 + i))).collect();
        let runs = Runs::encode(ACK, 1444, &down, 23);
        assert_eq!(runs.blocks(ACK).as_slice(), &down[..9]);
        assert!(runs.bytes().len() <= 23);
        let fewer = Runs::encode(ACK, 1444, &down, 10);
        assert_eq!(fewer.blocks(ACK).as_slice(), &down[..3]);
    }

    #[test]
    fn the_lowest_may_begin_at_the_acknowledgement() {
        let down = [run(20_000, 30_000), run(0, 14_440)];
        assert_eq!(Runs::encode(ACK, 1444, &down, 23).blocks(ACK).as_slice(), &down);
    }

    #[test]
    fn the_urgent_ones_stay_and_odd_lengths_are_exact() {
        let urgent = [run(50_001, 60_000), run(2888, 4000), run(9_000, 9_001)];
        let told = Runs::encode(ACK, 1444, &urgent, 35).blocks(ACK);
        assert_eq!(told.as_slice(), &[urgent[0], urgent[2], urgent[1]]);
        let two = Runs::encode(ACK, 1444, &urgent, 13).blocks(ACK);
        assert_eq!(two.as_slice(), &urgent[..2]);
        assert_eq!(Runs::encode(ACK, 1444, &urgent, 3), Runs::default());
    }

    #[test]
    fn nonsense_ends_the_list() {
        for bytes in [
            &[][..],
            &[5],
            &[5, 0xa4],
            &[5, 0xa4, 0],
            &[0, 0, 8, 2],
            &[0, 1, 8, 10],
            &[0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2],
        ] {
            assert!(Runs::from_bytes(bytes).blocks(ACK).is_empty(), "{bytes:?}");
        }
        // A run, then a distance that leads below the acknowledgement.
        assert_eq!(Runs::from_bytes(&[0, 1, 8, 2, 8, 2]).blocks(ACK).as_slice(), &[run(3, 4)]);
    }
}
