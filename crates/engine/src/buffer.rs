//! Bytes by sequence number: what a relay holds of one direction, in pool blocks.
//!
//! In-order bytes form one run from `base` to `end`; what came early waits in disjoint runs above
//! it. What is in order stays, what comes in order wins over what waits, and of what waits the
//! first copy stays, as in hosts' stacks. Large payloads keep the block they were read into; small
//! ones are compacted into shared blocks.

mod check;

use std::collections::VecDeque;

use crate::runs::RUNS_MAX;
use arrayvec::ArrayVec;
use farlink_wire::{Block, LARGE_BLOCK_BYTES, PacketBuf, Pool, SackBlock, SeqNum};

/// A payload of at least this many bytes keeps its block; smaller ones are copied together, and all
/// while the pool is pressed.
const KEEP_MIN_BYTES: usize = LARGE_BLOCK_BYTES * 2 / 5;
/// Runs of early bytes kept at most: beyond, early data is refused (the source repeats it). 100
/// Mbit/s, 500 ms and 5 % of losses leave more than a thousand.
const EARLY_RUNS_MAX: usize = 4096;
/// The same for small pieces, which hold more memory than they have bytes.
const EARLY_SMALL_RUNS_MAX: usize = 128;
const EARLY_SMALL_BYTES: usize = 512;
/// Above this many bytes held, new compaction blocks are large.
const LARGE_FROM_BYTES: u32 = 12 * 1024;
/// Places below the highest run that are told with priority.
const FILLED_MAX: usize = 4;
/// Slices that one segment may be gathered from.
pub const SLICES_MAX: usize = 24;

/// Largest fine block: an ordinary packet's payload. Bytes.
const FINE_BLOCK_BYTES: usize = 1536;
/// Smallest one where more may follow: segments of a few bytes share it. Bytes.
const FINE_LEAST_BYTES: usize = 512;
/// Lists keep room for so many chunks when they are empty.
const KEPT_CHUNKS: usize = 64;

/// How closely bytes are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grain {
    /// Speed first: what is large keeps the block it came in, much is held in large blocks.
    #[default]
    Large,
    /// In small blocks.
    Small,
    /// In blocks of a packet each, for a few segments.
    Fine,
}

/// Payload slices of one segment.
pub type Slices<'a> = ArrayVec<&'a [u8], SLICES_MAX>;

#[derive(Debug)]
struct Chunk {
    seq: SeqNum,
    block: Block,
    start: usize,
    len: usize,
    /// Bytes may be appended behind `start + len`: nobody else's bytes stand there.
    open: bool,
}

impl Chunk {
    fn end(&self) -> SeqNum {
        self.seq + self.len as u32
    }
    fn bytes(&self) -> &[u8] {
        self.block.as_slice().get(self.start..self.start + self.len).unwrap_or_default()
    }
    fn trim_front(&mut self, n: usize) {
        let n = n.min(self.len);
        self.seq += n as u32;
        self.start += n;
        self.len -= n;
    }
    /// Appends all or nothing; returns whether.
    fn append_whole(&mut self, bytes: &[u8]) -> bool {
        let room = self.block.capacity().saturating_sub(self.start + self.len);
        self.open && bytes.len() <= room && self.append(bytes) == bytes.len()
    }
    /// Appends what fits; returns how much.
    fn append(&mut self, bytes: &[u8]) -> usize {
        if !self.open {
            return 0;
        }
        let at = self.start + self.len;
        let n = bytes.len().min(self.block.capacity().saturating_sub(at));
        if let (Some(to), Some(from)) = (self.block.as_mut_slice().get_mut(at..at + n), bytes.get(..n)) {
            to.copy_from_slice(from);
            self.len += n;
            n
        } else {
            0
        }
    }
}

/// What became of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Inserted {
    /// Bytes by which the in-order run grew.
    pub advanced_bytes: u32,
    /// New bytes kept above a hole.
    pub early_bytes: u32,
    /// Bytes that were there already.
    pub duplicate_bytes: u32,
    /// Bytes refused because there were too many runs.
    pub refused_bytes: u32,
}

/// The buffer of one relay.
#[derive(Debug)]
pub struct SeqBuffer {
    base: SeqNum,
    end: SeqNum,
    chunks: VecDeque<Chunk>,
    early: Vec<Chunk>,
    early_bytes: u32,
    /// Start of the run that grew last: the first SACK block (RFC 2018 section 4).
    newest_early: SeqNum,
    /// Where bytes came below the highest ones, the newest first: repetitions that have arrived.
    filled: ArrayVec<SeqNum, FILLED_MAX>,
    /// How what comes from now on is packed.
    pub grain: Grain,
    #[cfg(test)]
    shifts: usize,
}

impl SeqBuffer {
    /// An empty buffer that expects `next`.
    #[must_use]
    pub fn new(next: SeqNum) -> Self {
        Self {
            base: next,
            end: next,
            chunks: VecDeque::new(),
            early: Vec::new(),
            early_bytes: 0,
            newest_early: next,
            filled: ArrayVec::new(),
            grain: Grain::default(),
            #[cfg(test)]
            shifts: 0,
        }
    }
    /// Memory of the lists of blocks, bytes; the blocks themselves are the pool's.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.chunks.capacity() + self.early.capacity()) * size_of::<Chunk>()
    }
    /// First byte held, or the next one expected.
    #[must_use]
    pub fn base(&self) -> SeqNum {
        self.base
    }
    /// The byte after the last in-order one: RCV.NXT without FIN.
    #[must_use]
    pub fn end(&self) -> SeqNum {
        self.end
    }
    /// In-order bytes held.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.end.since(self.base)
    }
    /// No in-order bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.base == self.end
    }
    /// Early bytes are waiting above a hole.
    #[must_use]
    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }
    /// Bytes that wait above a hole.
    #[must_use]
    pub fn early_bytes(&self) -> u32 {
        self.early_bytes
    }
    /// The byte after the last one held, early ones included.
    #[must_use]
    pub fn highest(&self) -> SeqNum {
        self.early.last().map_or(self.end, Chunk::end)
    }
    /// Takes `len` payload bytes at `offset` of a packet; they start at `seq`. The packet's block
    /// is kept or given back to the pool.
    pub fn insert(
        &mut self,
        pool: &mut Pool,
        seq: SeqNum,
        packet: PacketBuf,
        offset: usize,
        len: usize,
    ) -> Inserted {
        let mut done = Inserted::default();
        let (block, start, packet_len) = packet.into_block();
        let len = len.min(packet_len.saturating_sub(offset));
        let old = if seq.before(self.end) { self.end.since(seq).min(len as u32) } else { 0 };
        done.duplicate_bytes = old;
        let (seq, start, len) = (seq + old, start + offset + old as usize, len - old as usize);
        if len == 0 {
            pool.give_back(block);
        } else if seq == self.end
            && len >= KEEP_MIN_BYTES
            && self.grain == Grain::Large
            && self.early.is_empty()
            && !pool.is_pressed()
        {
            self.chunks.push_back(Chunk { seq, block, start, len, open: false });
            self.end += len as u32;
            done.advanced_bytes = len as u32;
        } else {
            let bytes = block.as_slice().get(start..start + len).unwrap_or_default();
            if seq == self.end {
                self.append_in_order(pool, bytes, &mut done);
            } else {
                self.insert_early(pool, seq, bytes, &mut done);
            }
            pool.give_back(block);
        }
        done
    }

    fn append_in_order(&mut self, pool: &mut Pool, bytes: &[u8], done: &mut Inserted) {
        let before = self.end;
        // What comes in order wins over what waits above a gap, as in hosts' stacks: who guesses
        // hits some number of the window far more easily than exactly the next one.
        self.append_run(pool, bytes);
        let covered = self.early.iter().take_while(|e| e.seq.before(self.end));
        let twice = |e: &Chunk| if e.end().before(self.end) { e.len as u32 } else { self.end.since(e.seq) };
        done.duplicate_bytes += covered.map(twice).sum::<u32>();
        self.merge_early(pool);
        done.advanced_bytes = self.end.since(before);
    }

    fn append_run(&mut self, pool: &mut Pool, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = self.chunks.back_mut().map_or(0, |c| c.append(bytes));
            self.end += n as u32;
            bytes = bytes.get(n..).unwrap_or_default();
            if !bytes.is_empty() {
                let large = self.len() >= LARGE_FROM_BYTES && !pool.is_pressed();
                let block = match self.grain {
                    Grain::Large if large => pool.take_large(),
                    Grain::Large | Grain::Small => pool.take_small(),
                    Grain::Fine => pool.take_exact(bytes.len().clamp(FINE_LEAST_BYTES, FINE_BLOCK_BYTES)),
                };
                self.chunks.push_back(Chunk { seq: self.end, block, start: 0, len: 0, open: true });
            }
        }
    }

    /// Moves the early runs that now join on into the in-order run; returns their bytes.
    fn merge_early(&mut self, pool: &mut Pool) -> u32 {
        let before = self.end;
        let mut joining = 0;
        let mut end = self.end;
        while let Some(e) = self.early.get(joining).filter(|e| e.seq.before_eq(end)) {
            end = end.max(e.end());
            joining += 1;
        }
        if joining == 0 {
            return 0;
        }
        // All at once: each one for itself would move the rest of the list.
        self.count_shift();
        for mut chunk in self.early.drain(..joining) {
            self.early_bytes = self.early_bytes.saturating_sub(chunk.len as u32);
            chunk.trim_front(self.end.since(chunk.seq) as usize);
            self.end += chunk.len as u32;
            let joins = chunk.len <= FINE_LEAST_BYTES
                && self.chunks.back_mut().is_some_and(|last| last.append_whole(chunk.bytes()));
            if chunk.len == 0 || joins {
                pool.give_back(chunk.block);
            } else {
                self.chunks.push_back(chunk);
            }
        }
        if self.early.is_empty() && self.early.capacity() > KEPT_CHUNKS {
            self.early = Vec::new();
        }
        self.end.since(before)
    }

    /// The list of early chunks has been moved along (for tests).
    #[cfg(test)]
    fn count_shift(&mut self) {
        self.shifts += 1;
    }
    #[cfg(not(test))]
    const fn count_shift(&mut self) {}

    fn insert_early(&mut self, pool: &mut Pool, mut seq: SeqNum, mut bytes: &[u8], done: &mut Inserted) {
        self.newest_early = seq;
        if self.early.last().is_some_and(|top| seq.before(top.end())) {
            if self.filled.is_full() {
                self.filled.pop();
            }
            let _ = self.filled.try_insert(0, seq);
        }
        while !bytes.is_empty() {
            let at = self.early.partition_point(|c| c.seq.before_eq(seq));
            let covered = at
                .checked_sub(1)
                .and_then(|i| self.early.get(i))
                .map_or(0, |c| c.end().diff(seq).max(0) as usize);
            if covered > 0 {
                let n = covered.min(bytes.len());
                done.duplicate_bytes += n as u32;
                seq += n as u32;
                bytes = bytes.get(n..).unwrap_or_default();
                continue;
            }
            let room =
                self.early.get(at).map_or(bytes.len(), |c| (c.seq.since(seq) as usize).min(bytes.len()));
            let piece = bytes.get(..room).unwrap_or_default();
            let kept = self.keep_early(pool, at, seq, piece);
            if kept == 0 {
                done.refused_bytes += bytes.len() as u32;
                return;
            }
            done.early_bytes += kept as u32;
            self.early_bytes += kept as u32;
            seq += kept as u32;
            bytes = bytes.get(kept..).unwrap_or_default();
        }
    }

    /// Keeps the beginning of `piece` before run number `at`, which it does not touch; returns how
    /// much.
    fn keep_early(&mut self, pool: &mut Pool, at: usize, seq: SeqNum, piece: &[u8]) -> usize {
        let below = at.checked_sub(1).and_then(|i| self.early.get_mut(i)).filter(|c| c.end() == seq);
        let joins = below.is_some();
        if let Some(below) = below {
            let n = below.append(piece);
            if n > 0 {
                return n;
            }
        }
        // The rest of a payload whose beginning found room in the block before is no small piece.
        let small = piece.len() < EARLY_SMALL_BYTES && !joins;
        let max = if small { EARLY_SMALL_RUNS_MAX } else { EARLY_RUNS_MAX };
        if self.early.len() >= max {
            return 0;
        }
        // Only the highest run goes on growing.
        let grows = joins && at == self.early.len();
        let block = match (self.grain, grows) {
            (Grain::Fine, true) => pool.take_exact(piece.len().clamp(FINE_LEAST_BYTES, FINE_BLOCK_BYTES)),
            (Grain::Fine, false) => pool.take_exact(piece.len().min(FINE_BLOCK_BYTES)),
            (Grain::Large, true) if !pool.is_pressed() => pool.take_large(),
            (Grain::Large, false) if !pool.is_pressed() => pool.take_for(piece.len()),
            _ => pool.take_small(),
        };
        let mut chunk = Chunk { seq, block, start: 0, len: 0, open: true };
        let n = chunk.append(piece);
        self.early.insert(at, chunk);
        n
    }

    /// Lets go of all bytes before `upto`. Bytes above the in-order run that it covers are let go
    /// too, and the run then begins at `upto` (a receiver has acknowledged what we never had).
    pub fn release(&mut self, pool: &mut Pool, upto: SeqNum) {
        if upto.before_eq(self.base) {
            return;
        }
        while let Some(first) = self.chunks.front_mut() {
            if first.end().before_eq(upto) {
                if let Some(c) = self.chunks.pop_front() {
                    pool.give_back(c.block);
                }
            } else {
                first.trim_front(upto.since(first.seq).min(i32::MAX as u32) as usize);
                break;
            }
        }
        self.base = upto;
        if self.end.before(upto) {
            self.end = upto;
            self.merge_early(pool);
        }
        if self.chunks.is_empty() && self.chunks.capacity() > KEPT_CHUNKS {
            self.chunks.shrink_to(0);
        }
    }

    /// Lets go of everything.
    pub fn clear(&mut self, pool: &mut Pool) {
        for c in self.chunks.drain(..).chain(self.early.drain(..)) {
            pool.give_back(c.block);
        }
        self.chunks = VecDeque::new();
        self.early = Vec::new();
        self.base = self.end;
        self.early_bytes = 0;
    }

    /// Lets go of early bytes only.
    pub fn clear_early(&mut self, pool: &mut Pool) {
        self.early_bytes = 0;
        for c in self.early.drain(..) {
            pool.give_back(c.block);
        }
    }

    /// The in-order bytes from `seq`, at most `len`, as slices. Shorter when they are too
    /// scattered.
    #[must_use]
    pub fn slices(&self, seq: SeqNum, len: u32) -> (Slices<'_>, u32) {
        let mut out = Slices::new();
        let mut taken = 0u32;
        let first = self.chunks.partition_point(|c| c.end().before_eq(seq));
        for c in self.chunks.iter().skip(first) {
            if taken >= len || out.is_full() {
                break;
            }
            let skip = (seq + taken).since(c.seq) as usize;
            let want = (len - taken) as usize;
            let have = c.bytes().get(skip..).unwrap_or_default();
            let piece = have.get(..want.min(have.len())).unwrap_or_default();
            if piece.is_empty() || out.try_push(piece).is_err() {
                break;
            }
            taken += piece.len() as u32;
        }
        (out, taken)
    }

    /// Runs above the hole: the newest first, then from the highest down. On a link that keeps the
    /// order these are the ones that were reported last, and each is told twice before it gives way
    /// to a newer one (RFC 2018 section 4).
    #[must_use]
    pub fn sack_blocks(&self, max: usize) -> ArrayVec<SackBlock, 4> {
        let mut blocks: ArrayVec<SackBlock, 4> = ArrayVec::new();
        let max = max.min(4);
        let is_newest =
            |run: &SackBlock| run.start.before_eq(self.newest_early) && self.newest_early.before(run.end);
        let newest = self.runs_from_above().find(is_newest);
        let others = self.runs_from_above().filter(|run| Some(run.start) != newest.map(|n| n.start));
        for run in newest.into_iter().chain(others).take(max) {
            let _ = blocks.try_push(run);
        }
        blocks
    }

    /// Runs above the hole for a gateway, the most urgent first: the highest, those that
    /// repetitions have lengthened, then from the highest down.
    #[must_use]
    pub fn runs_to_tell(&self) -> ArrayVec<SackBlock, RUNS_MAX> {
        let mut told: ArrayVec<SackBlock, RUNS_MAX> = ArrayVec::new();
        told.extend(self.runs_from_above().take(1));
        for at in self.filled.iter().filter(|at| at.after(self.end)) {
            let run = self.run_around(*at);
            if let Some(run) = run.filter(|run| !told.contains(run)) {
                let _ = told.try_push(run);
            }
        }
        let urgent = told.clone();
        let others = self.runs_from_above().filter(|run| !urgent.contains(run));
        told.extend(others.take(RUNS_MAX - urgent.len()));
        told
    }

    /// The run that contains `seq`.
    fn run_around(&self, seq: SeqNum) -> Option<SackBlock> {
        let at = self.early.partition_point(|c| c.end().before_eq(seq));
        let chunk = self.early.get(at).filter(|c| c.seq.before_eq(seq))?;
        let mut run = SackBlock { start: chunk.seq, end: chunk.end() };
        for below in self.early.get(..at).unwrap_or_default().iter().rev() {
            if below.end() != run.start {
                break;
            }
            run.start = below.seq;
        }
        for above in self.early.get(at + 1..).unwrap_or_default() {
            if above.seq != run.end {
                break;
            }
            run.end = above.end();
        }
        Some(run)
    }

    /// Early chunks that touch each other, as runs, the highest first.
    fn runs_from_above(&self) -> impl Iterator<Item = SackBlock> {
        let mut chunks = self.early.iter().rev().peekable();
        core::iter::from_fn(move || {
            let top = chunks.next()?;
            let mut run = SackBlock { start: top.seq, end: top.end() };
            while let Some(below) = chunks.next_if(|c| c.end() == run.start) {
                run.start = below.seq;
            }
            Some(run)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::Offload;

    fn put(b: &mut SeqBuffer, pool: &mut Pool, seq: u32, bytes: &[u8]) -> Inserted {
        let p = PacketBuf::from_slice(pool, bytes, Offload::default());
        b.insert(pool, SeqNum(seq), p, 0, bytes.len())
    }
    fn read(b: &SeqBuffer) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = b.base();
        while at != b.end() {
            let (s, n) = b.slices(at, b.end().since(at));
            assert!(n > 0);
            s.iter().for_each(|p| out.extend_from_slice(p));
            at += n;
        }
        out
    }

    #[test]
    fn what_is_in_order_stays_and_what_comes_in_order_wins() {
        let mut pool = Pool::new(1 << 20);
        let start = u32::MAX - 5;
        let mut b = SeqBuffer::new(SeqNum(start));
        put(&mut b, &mut pool, start.wrapping_add(4), b"EFGH");
        put(&mut b, &mut pool, start.wrapping_add(10), b"KL");
        let i = put(&mut b, &mut pool, start.wrapping_add(2), b"cdefghij");
        assert_eq!((i.early_bytes, i.duplicate_bytes), (4, 4));
        assert_eq!(b.sack_blocks(4).len(), 1);
        let i = put(&mut b, &mut pool, start, b"abxxxxxxxxxxxxmn");
        assert_eq!((i.advanced_bytes, i.duplicate_bytes), (16, 10));
        assert_eq!(read(&b), b"abxxxxxxxxxxxxmn");
        put(&mut b, &mut pool, start.wrapping_add(20), b"UVW");
        put(&mut b, &mut pool, start.wrapping_add(14), b"yyopqrs");
        assert_eq!(read(&b), b"abxxxxxxxxxxxxmnopqrsVW", "the end of what waited stays");
        b.release(&mut pool, SeqNum(start.wrapping_add(20)));
        assert_eq!(read(&b), b"sVW");
        b.clear(&mut pool);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn random_segments_give_the_right_copy_of_each_byte_and_all_blocks_back() {
        let mut x = 12345u64;
        let mut rnd = move |n: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        for round in 0..200 {
            let mut pool = Pool::new(1 << 30);
            let base = rnd(u64::from(u32::MAX)) as u32;
            let total = 1 + rnd(200_000) as usize;
            let mut model: Vec<Option<u8>> = vec![None; total];
            let mut b = SeqBuffer::new(SeqNum(base));
            let mut stamp = 0u8;
            while model.iter().any(Option::is_none) {
                let at = if rnd(3) == 0 {
                    model.iter().position(Option::is_none).unwrap()
                } else {
                    rnd(total as u64) as usize
                };
                let len = (1 + rnd(if round % 2 == 0 { 3000 } else { 66_000 }) as usize).min(total - at);
                stamp = stamp.wrapping_add(1);
                let i = put(&mut b, &mut pool, base.wrapping_add(at as u32), &vec![stamp; len]);
                let kept = len - i.refused_bytes as usize;
                let in_order = model.iter().position(Option::is_none).unwrap_or(total);
                let (first, wins) = (at.max(in_order), at <= in_order);
                model[first..first.max(at + kept)].iter_mut().for_each(|m| {
                    *m = m.filter(|_| !wins).or(Some(stamp));
                });
                let in_order = model.iter().position(Option::is_none).unwrap_or(total);
                assert_eq!(b.end(), SeqNum(base.wrapping_add(in_order as u32)));
            }
            assert_eq!(read(&b), model.iter().map(|m| m.unwrap()).collect::<Vec<_>>());
            let mid = SeqNum(base.wrapping_add(total as u32 / 2));
            b.release(&mut pool, mid);
            b.release(&mut pool, b.end());
            assert_eq!(pool.used_bytes(), 0);
        }
    }

    #[test]
    fn a_repetition_fills_its_gap_although_its_end_needs_a_block_of_its_own() {
        let mut pool = Pool::new(64 << 20);
        let mut b = SeqBuffer::new(SeqNum(0));
        let far = (EARLY_SMALL_RUNS_MAX + 40) as u32;
        for i in 0..far {
            put(&mut b, &mut pool, 2_448 * i + 1_000, &[1; 1_448]);
        }
        // The first 600 bytes find room behind the run below.
        for i in 1..far {
            let i = put(&mut b, &mut pool, 2_448 * i, &[2; 1_000]);
            assert_eq!((i.early_bytes, i.refused_bytes), (1_000, 0));
        }
        assert_eq!(b.sack_blocks(4).len(), 1);
        // Small pieces that touch nothing are bounded as before.
        let i = put(&mut b, &mut pool, 2_448 * far + 5_000, &[3; 100]);
        assert_eq!((i.early_bytes, i.refused_bytes), (0, 100));
    }

    /// Bytes that the buffer really has of the allocator: blocks with a header of 16 bytes each,
    /// and the lists.
    fn real_bytes(b: &SeqBuffer) -> usize {
        let blocks = b.chunks.iter().chain(&b.early).map(|c| c.block.capacity().next_multiple_of(16) + 16);
        blocks.sum::<usize>() + (b.chunks.capacity() + b.early.capacity()) * size_of::<Chunk>()
    }

    #[test]
    fn segments_of_one_byte_cost_no_more_than_is_counted() {
        const BYTES: u32 = 65_535;
        let orders: [fn(u32) -> u32; 2] = [
            |i| i,
            // Of each 200 bytes those in odd places come first: about as many early runs as small
            // ones may be.
            |i| i / 200 * 200 + if i % 200 < 100 { i % 100 * 2 + 1 } else { i % 100 * 2 },
        ];
        for order in orders {
            for grain in [Grain::Fine, Grain::Small, Grain::Large] {
                let mut pool = Pool::new(1 << 30);
                let mut b = SeqBuffer::new(SeqNum(0));
                b.grain = grain;
                for i in 0..65_200 {
                    put(&mut b, &mut pool, order(i), &[7]);
                    assert!(real_bytes(&b) <= pool.used_bytes() + 512 * size_of::<Chunk>(), "{i}");
                }
                assert_eq!(b.len(), 65_200, "{grain:?}");
                let (real, most) = (real_bytes(&b), 3 * BYTES as usize + (72 << 10));
                assert!(real <= most, "{grain:?}: {real} bytes for {}", b.len());
                b.release(&mut pool, b.end());
                assert_eq!(pool.used_bytes(), 0);
                assert!(real_bytes(&b) <= KEPT_CHUNKS * 2 * size_of::<Chunk>(), "the lists go back, too");
            }
        }
    }

    #[test]
    fn many_runs_join_in_one_step() {
        let mut pool = Pool::new(64 << 20);
        let mut b = SeqBuffer::new(SeqNum(0));
        for i in 0..4_000u32 {
            put(&mut b, &mut pool, 2_000 * i + 1_000, &[1; 1_000]);
        }
        for i in 1..4_000u32 {
            put(&mut b, &mut pool, 2_000 * i, &[2; 1_000]);
        }
        assert_eq!((b.shifts, b.sack_blocks(4).len()), (0, 1));
        put(&mut b, &mut pool, 0, &[2; 1_000]);
        assert_eq!((b.shifts, b.len(), b.has_early()), (1, 8_000_000, false));
        b.clear(&mut pool);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn release_past_the_end_jumps_and_joins() {
        let mut pool = Pool::new(1 << 20);
        let mut b = SeqBuffer::new(SeqNum(0));
        put(&mut b, &mut pool, 0, b"ab");
        put(&mut b, &mut pool, 10, b"klm");
        b.release(&mut pool, SeqNum(11));
        assert_eq!(b.base(), SeqNum(11));
        assert_eq!(read(&b), b"lm");
        assert!(!b.has_early() && b.early_bytes() == 0);
    }
}
