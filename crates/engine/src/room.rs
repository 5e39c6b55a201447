//! How much of an arriving payload the buffer pool has room for (invariant 8).
//!
//! The pool's bound holds whatever the sources send, windows that were promised included: what does
//! not fit is refused before it is acknowledged, and its source repeats it. Three marks below the
//! bound keep the connections moving: early bytes give way to bytes in order, and full relays to
//! empty ones.

use farlink_wire::{Pool, SMALL_BLOCK_BYTES, SeqNum};

use crate::link::Crowd;
use crate::relay::Relay;

/// Relays on a way with a declared link share one over this of the pool, all flows one over that.
const LINK_PARTS: usize = 2;
const ORDINARY_PARTS: usize = 4;
/// A relay may hold one over this of what is free.
const FREE_PARTS: usize = 16;
/// The same on a way with a declared link: few of them may need that much to fill it.
const LINK_FREE_PARTS: usize = 4;
/// Relays into one link, whose sources nothing keeps back, may hold this many times what is free.
const FREE_TIMES: u128 = 4;
/// Such a source is shown one over this of what is free: a block holds more than its payload, and
/// others grow at the same time.
const WINDOW_PARTS: usize = 4;
/// It may always hold this.
pub(crate) const SHARE_MIN_BYTES: u32 = 16 * 1024;

/// Where a payload stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// What relays share while others may still begin.
    Shared,
    /// Above a hole.
    Early,
    /// Next in order, behind bytes that are held.
    Next,
    /// Next in order, and nothing is held: without it the connection stands still.
    Head,
}

/// Bytes of the pool that may be in use afterwards. The last sixteenth is for packets that are
/// being read.
fn mark(pool: &Pool, place: Place) -> usize {
    let sixteenths = match place {
        Place::Shared => 10,
        Place::Early => 12,
        Place::Next => 14,
        Place::Head => 15,
    };
    pool.limit_bytes() / 16 * sixteenths
}

/// A packet may wait in a link's queue.
#[must_use]
pub fn may_wait(pool: &Pool) -> bool {
    pool.used_bytes() <= mark(pool, Place::Head)
}

/// Relays promise no more to their sources.
#[must_use]
pub fn is_full(pool: &Pool) -> bool {
    pool.used_bytes() >= mark(pool, Place::Next)
}

/// Bytes that one of so many relays may hold for the pool's sake: its equal part of half the pool,
/// or of a quarter where no link needs it, and no more than a part of what is free. So few relays
/// leave room for others to begin, and what those that came first hold beyond it drains (Choudhury
/// and Hahne, Dynamic Queue Length Thresholds).
#[must_use]
pub fn share(pool: &Pool, flows: usize, on_link: bool) -> u32 {
    let (parts, free_parts) =
        if on_link { (LINK_PARTS, LINK_FREE_PARTS) } else { (ORDINARY_PARTS, FREE_PARTS) };
    let equal = pool.limit_bytes() / parts / flows.max(1);
    let free = mark(pool, Place::Shared).saturating_sub(pool.used_bytes());
    u32::try_from(equal.min(free / free_parts)).unwrap_or(u32::MAX).max(SHARE_MIN_BYTES)
}

/// The window that a source may be shown for the pool's sake where the far host's own counts,
/// bytes: a part of what is free once half of the pool is in use.
#[must_use]
pub fn window(pool: &Pool) -> u32 {
    if !pool.is_pressed() {
        return u32::MAX;
    }
    let free = mark(pool, Place::Next).saturating_sub(pool.used_bytes());
    u32::try_from(free / WINDOW_PARTS).unwrap_or(u32::MAX).max(SHARE_MIN_BYTES)
}

/// Bytes of the pool that may be in use while those who go into one link take so much of it: they
/// have no more than so many times what is then free.
fn crowded_mark(pool: &Pool, crowd: Crowd) -> usize {
    let all = u128::from(crowd.all_bytes.max(1));
    let share = u128::from(crowd.of_link_bytes).min(all);
    let most = mark(pool, Place::Next) as u128 * FREE_TIMES * all / (FREE_TIMES * all + share);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Payload bytes for which there is room below this mark, when their packet's block of
/// `block_bytes` is given back for them.
fn payload_room(pool: &Pool, block_bytes: usize, mark: usize) -> usize {
    // Copied into small blocks: the first and the last are not full.
    let kept = pool.used_bytes().saturating_sub(block_bytes) + 2 * SMALL_BLOCK_BYTES;
    mark.saturating_sub(kept)
}

impl Relay {
    /// How many of the `len` payload bytes at `seq` may be taken; their packet lies in a block of
    /// `block_bytes` of this pool. Early bytes are let go where the next ones in order have no room
    /// otherwise. `crowd`: nobody keeps its source back, so those of its link are to leave room for
    /// those of others.
    pub fn room_for(
        &mut self,
        pool: &mut Pool,
        block_bytes: usize,
        (seq, len): (SeqNum, u32),
        crowd: Option<Crowd>,
    ) -> u32 {
        // What is there already needs no room, and its source an answer.
        let end = self.buffer.end();
        let old = if seq.before(end) { end.since(seq).min(len) } else { 0 };
        let len = len - old;
        if len == 0 || !pool.is_pressed() {
            return old + len;
        }
        let place = match (seq.after(end), self.buffer.is_empty()) {
            (true, _) => Place::Early,
            (false, false) => Place::Next,
            (false, true) => Place::Head,
        };
        let wanted = len.min(self.rx.segment_bytes().max(1));
        let crowd = crowd.filter(|_| place != Place::Head);
        let room = |pool: &Pool| {
            let mark = crowd.map_or(usize::MAX, |crowd| crowded_mark(pool, crowd)).min(mark(pool, place));
            let room = u32::try_from(payload_room(pool, block_bytes, mark)).unwrap_or(u32::MAX).min(len);
            // Less than a segment is not worth a place.
            if room >= wanted { room } else { 0 }
        };
        let mut bytes = room(pool);
        if bytes == 0 && place == Place::Head && self.buffer.has_early() {
            self.buffer.clear_early(pool);
            bytes = room(pool);
        }
        old + bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn pool_with(used: usize) -> Pool {
        let mut pool = Pool::new(LIMIT);
        let _block = pool.take_exact(used - farlink_wire::BLOCK_OVERHEAD_BYTES);
        pool
    }

    #[test]
    fn early_bytes_give_way_first_and_heads_last() {
        let room = |used, place| {
            let pool = pool_with(used);
            payload_room(&pool, 0, mark(&pool, place))
        };
        let used = LIMIT / 16 * 13;
        assert_eq!(room(used, Place::Early), 0);
        assert_eq!(room(used, Place::Next), LIMIT / 16 - 2 * SMALL_BLOCK_BYTES);
        assert_eq!(room(used, Place::Head), LIMIT / 8 - 2 * SMALL_BLOCK_BYTES);
        assert_eq!(room(LIMIT, Place::Head), 0);
    }

    #[test]
    fn the_packets_own_block_is_room() {
        let pool = pool_with(LIMIT / 16 * 15);
        assert_eq!(
            payload_room(&pool, 72 << 10, mark(&pool, Place::Head)),
            (72 << 10) - 2 * SMALL_BLOCK_BYTES
        );
    }

    #[test]
    fn those_of_one_link_leave_room_for_those_of_others() {
        let pool = pool_with(LIMIT / 2);
        let mark_of = |all_bytes, of_link_bytes| crowded_mark(&pool, Crowd { all_bytes, of_link_bytes });
        let next = mark(&pool, Place::Next);
        assert_eq!(mark_of(0, 0), next);
        assert_eq!(mark_of(1000, 1000), next * 4 / 5);
        // Two links that are both away leave a ninth.
        assert_eq!(mark_of(1000, 500), next * 8 / 9);
    }

    #[test]
    fn the_window_of_a_source_that_nobody_keeps_back_goes_by_what_is_free() {
        assert_eq!(window(&pool_with(LIMIT / 4)), u32::MAX);
        assert_eq!(window(&pool_with(LIMIT / 16 * 10)) as usize, LIMIT / 16);
        assert_eq!(window(&pool_with(LIMIT)), SHARE_MIN_BYTES);
    }

    #[test]
    fn those_that_come_first_leave_room_for_others() {
        let limit = 512 << 20;
        let mut pool = Pool::new(limit);
        let mut blocks = Vec::new();
        for flows in 1..=2000 {
            let may = share(&pool, flows, false);
            assert!(may >= SHARE_MIN_BYTES);
            blocks.push(pool.take_exact(may as usize));
        }
        assert!(pool.used_bytes() < limit / 4 * 3, "{}", pool.used_bytes());
        assert_eq!(share(&Pool::new(limit), 1, false), 20 << 20, "one alone is bounded by its own limit");
    }

    #[test]
    fn promises_end_before_the_bound() {
        assert!(!is_full(&pool_with(LIMIT / 16 * 13)) && is_full(&pool_with(LIMIT / 8 * 7)));
        assert!(may_wait(&pool_with(LIMIT / 8 * 7)) && !may_wait(&pool_with(LIMIT)));
    }
}
