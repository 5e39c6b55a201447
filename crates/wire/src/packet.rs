//! An owned IP packet as it came from, or goes to, a TUN.

use crate::bytes;
use crate::offload::Offload;
use crate::pool::{Block, Pool};
use core::fmt;

/// One IP packet in a pool block, with spare bytes in front of it.
pub struct PacketBuf {
    block: Block,
    start: usize,
    len: usize,
    /// What the virtio-net header said about it, or shall say.
    pub offload: Offload,
}

impl PacketBuf {
    /// Spare bytes that stand in front of a packet, so that the IP and TCP headers can grow towards
    /// the front while the payload stays where it is. 40 bytes of TCP options and the virtio-net
    /// header fit.
    pub const HEADROOM: usize = 64;

    /// The packet of `len` bytes that begins `start` bytes into `block`; cut to what the block has.
    #[must_use]
    pub fn from_block(block: Block, start: usize, len: usize, offload: Offload) -> Self {
        let start = start.min(block.capacity());
        let len = len.min(block.capacity().saturating_sub(start));
        Self { block, start, len, offload }
    }

    /// A copy of `bytes` in a block of fitting size, with [`Self::HEADROOM`] in front.
    #[must_use]
    pub fn from_slice(pool: &mut Pool, bytes: &[u8], offload: Offload) -> Self {
        let mut block = pool.take_for(bytes.len().saturating_add(Self::HEADROOM));
        bytes::put(block.as_mut_slice(), Self::HEADROOM, bytes);
        Self::from_block(block, Self::HEADROOM, bytes.len(), offload)
    }

    /// A packet of no pool: whoever makes it bounds its like.
    #[must_use]
    pub fn outside(bytes: Vec<u8>, offload: Offload) -> Self {
        let len = bytes.len();
        Self::from_block(Block::outside(bytes), 0, len, offload)
    }

    /// The packet, from the first byte of its IP header.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.block.as_slice().get(self.start..self.start.saturating_add(self.len)).unwrap_or_default()
    }

    /// The packet, to write.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.block.as_mut_slice().get_mut(self.start..self.start.saturating_add(self.len)).unwrap_or_default()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Spare bytes in front of the packet.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Spare bytes behind the packet.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.block.capacity().saturating_sub(self.start.saturating_add(self.len))
    }

    /// Bytes of memory that it holds, spare ones included.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }

    /// Take it apart: the block, where the packet starts in it, and its length.
    #[must_use]
    pub fn into_block(self) -> (Block, usize, usize) {
        (self.block, self.start, self.len)
    }

    /// The same packet in a block of its own size, where that is worth a copy: for packets that
    /// wait.
    #[must_use]
    pub fn shrunk(self, pool: &mut Pool) -> Self {
        let bytes = self.len.saturating_add(Self::HEADROOM);
        if self.block.capacity() < bytes.saturating_mul(2) {
            return self;
        }
        let mut block = pool.take_exact(bytes);
        bytes::put(block.as_mut_slice(), Self::HEADROOM, self.bytes());
        let small = Self::from_block(block, Self::HEADROOM, self.len, self.offload);
        self.recycle(pool);
        small
    }

    /// Give the memory back to its pool.
    pub fn recycle(self, pool: &mut Pool) {
        pool.give_back(self.block);
    }

    /// Open a gap of `gap` bytes at `at`: what stands before it moves into the headroom, or, where
    /// that is too small, what stands behind it moves into the tailroom. `false`, and nothing
    /// changed, when neither has the room.
    pub(crate) fn open_gap(&mut self, at: usize, gap: usize) -> bool {
        if at > self.len {
            return false;
        }
        let (start, end) = (self.start, self.start.saturating_add(self.len));
        if gap <= self.headroom() {
            let new_start = start.saturating_sub(gap);
            self.block.as_mut_slice().copy_within(start..start.saturating_add(at), new_start);
            self.start = new_start;
        } else if gap <= self.tailroom() {
            let from = start.saturating_add(at);
            self.block.as_mut_slice().copy_within(from..end, from.saturating_add(gap));
        } else {
            return false;
        }
        self.len = self.len.saturating_add(gap);
        true
    }

    /// Take out `gap` bytes at `at`: what stands before them moves towards the end, so the payload
    /// stays where it is. `false`, and nothing changed, when there are fewer.
    pub(crate) fn close_gap(&mut self, at: usize, gap: usize) -> bool {
        match at.checked_add(gap) {
            Some(end) if end <= self.len => {}
            _ => return false,
        }
        let start = self.start;
        self.block.as_mut_slice().copy_within(start..start.saturating_add(at), start.saturating_add(gap));
        self.start = start.saturating_add(gap);
        self.len = self.len.saturating_sub(gap);
        true
    }

    /// Cut it to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl fmt::Debug for PacketBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketBuf({} bytes, {:?})", self.len, self.offload)
    }
}
