//! The buffer pool: blocks of two sizes, reused, counted.

use core::fmt;

/// Capacity of a large block: a 64 KB super-segment with its virtio-net header, headroom, and room
/// to grow. Bytes.
pub const LARGE_BLOCK_BYTES: usize = 72 * 1024;
/// Capacity of a small block: an ordinary or jumbo-less packet with headroom. Bytes.
pub const SMALL_BLOCK_BYTES: usize = 4 * 1024;

/// What a block costs beside its bytes: the allocator's header, and its place in a list that grows
/// by doubling.
pub const BLOCK_OVERHEAD_BYTES: usize = 96;

/// Free blocks kept for reuse; what is given back beyond that goes to the allocator. Count per
/// size. Many large ones: a fresh one costs as much as copying a super-segment. Where thousands of
/// connections send little each, thousands of small ones come back at once.
const FREE_LARGE_MAX: usize = 512;
const FREE_SMALL_MIN: usize = 512;
const FREE_SMALL_MAX: usize = 8192;

/// Owned bytes out of a [`Pool`]. A type of its own so that they can live in shared memory one day.
pub struct Block {
    bytes: Box<[u8]>,
    /// It counts in the pool that it is from.
    is_counted: bool,
}

impl Block {
    fn with_capacity(capacity_bytes: usize) -> Self {
        Self { bytes: vec![0; capacity_bytes].into_boxed_slice(), is_counted: true }
    }

    /// These bytes, which are of no pool: whoever makes them bounds them.
    #[must_use]
    pub fn outside(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into_boxed_slice(), is_counted: false }
    }

    /// A block of no bytes, to leave in the place of one that was taken out. It allocates nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self { bytes: Box::default(), is_counted: false }
    }

    /// All the bytes. What a fresh block holds is whatever its last user left.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// All the bytes, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// How many bytes there are.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.capacity())
    }
}

/// What a block of this capacity costs.
const fn cost(capacity_bytes: usize) -> usize {
    if capacity_bytes == 0 { 0 } else { capacity_bytes + BLOCK_OVERHEAD_BYTES }
}

/// Hands out [`Block`]s and takes them back. Taking always succeeds: the limit is a mark that
/// callers look at through [`Pool::is_short`] before they hold more.
#[derive(Debug)]
pub struct Pool {
    limit_bytes: usize,
    used_bytes: usize,
    used_max_bytes: usize,
    large: Spare,
    small: Spare,
}

/// Free blocks of one size.
#[derive(Debug, Default)]
struct Spare {
    blocks: Vec<Block>,
    /// The fewest there have been since the last trim: nobody has wanted these.
    idle: usize,
}

impl Spare {
    fn take(&mut self) -> Option<Block> {
        let block = self.blocks.pop();
        self.idle = self.idle.min(self.blocks.len());
        block
    }
    fn trim(&mut self) {
        let keep = self.blocks.len() - self.idle.min(self.blocks.len()).div_ceil(2);
        self.blocks.truncate(keep);
        self.blocks.shrink_to(2 * keep);
        self.idle = keep;
    }
}

impl Pool {
    /// A pool whose outstanding blocks should stay within `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            used_bytes: 0,
            used_max_bytes: 0,
            large: Spare::default(),
            small: Spare::default(),
        }
    }

    /// Lets go of half the free blocks that nobody has wanted since the last time: what a burst has
    /// left goes back.
    pub fn trim(&mut self) {
        self.large.trim();
        self.small.trim();
    }

    /// Bytes of free blocks that are kept.
    #[must_use]
    pub fn spare_bytes(&self) -> usize {
        self.large.blocks.len() * LARGE_BLOCK_BYTES + self.small.blocks.len() * SMALL_BLOCK_BYTES
    }

    /// From now on outstanding blocks should stay within `limit_bytes`.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Free blocks are kept.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        !self.large.blocks.is_empty() || !self.small.blocks.is_empty()
    }

    /// A block of [`LARGE_BLOCK_BYTES`].
    pub fn take_large(&mut self) -> Block {
        self.use_up(LARGE_BLOCK_BYTES);
        self.large.take().unwrap_or_else(|| Block::with_capacity(LARGE_BLOCK_BYTES))
    }

    /// A block of [`SMALL_BLOCK_BYTES`].
    pub fn take_small(&mut self) -> Block {
        self.use_up(SMALL_BLOCK_BYTES);
        self.small.take().unwrap_or_else(|| Block::with_capacity(SMALL_BLOCK_BYTES))
    }

    /// The smaller of the two sizes that has `bytes`; a block of exactly `bytes` when neither has.
    pub fn take_for(&mut self, bytes: usize) -> Block {
        if bytes <= SMALL_BLOCK_BYTES {
            self.take_small()
        } else if bytes <= LARGE_BLOCK_BYTES {
            self.take_large()
        } else {
            self.use_up(bytes);
            Block::with_capacity(bytes)
        }
    }

    /// A block of exactly `bytes`, for what stays long while the pool is pressed. It is never
    /// reused.
    pub fn take_exact(&mut self, bytes: usize) -> Block {
        self.use_up(bytes);
        Block::with_capacity(bytes)
    }

    fn use_up(&mut self, bytes: usize) {
        self.used_bytes = self.used_bytes.saturating_add(cost(bytes));
        self.used_max_bytes = self.used_max_bytes.max(self.used_bytes);
    }

    /// Take a block back, for reuse or for the allocator.
    pub fn give_back(&mut self, block: Block) {
        if !block.is_counted {
            return;
        }
        self.used_bytes = self.used_bytes.saturating_sub(cost(block.capacity()));
        let (list, max) = match block.capacity() {
            LARGE_BLOCK_BYTES => {
                let share = self.limit_bytes / 4 / LARGE_BLOCK_BYTES;
                (&mut self.large.blocks, share.clamp(4, FREE_LARGE_MAX))
            }
            SMALL_BLOCK_BYTES => {
                let share = self.limit_bytes / 16 / SMALL_BLOCK_BYTES;
                (&mut self.small.blocks, share.clamp(FREE_SMALL_MIN, FREE_SMALL_MAX))
            }
            _ => return,
        };
        if list.len() < max {
            list.push(block);
        }
    }

    /// What the blocks cost that were handed out and not given back, in bytes: their capacity and
    /// [`BLOCK_OVERHEAD_BYTES`] each.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The most that was ever handed out, in bytes.
    #[must_use]
    pub fn used_max_bytes(&self) -> usize {
        self.used_max_bytes
    }

    /// The most from now on.
    pub fn reset_peak(&mut self) {
        self.used_max_bytes = self.used_bytes;
    }

    /// The mark in force, in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Half the limit or more is outstanding: from here on room is worth a copy.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.used_bytes >= self.limit_bytes / 2
    }

    /// As much as the limit, or more, is outstanding.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.used_bytes >= self.limit_bytes
    }
}
