//! Half-open connections by their key. Up to half of the places of a table are empty, so a place is
//! small: the connections stand apart, with their keys.

use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::HalfOpen;
use crate::table::Key;

/// See the module.
#[derive(Debug)]
pub(super) struct Entries {
    boxes: HashTable<Box<(Key, HalfOpen)>>,
    hasher: FixedState,
}

impl Entries {
    pub(super) fn with_seed(seed: u64) -> Self {
        Self { boxes: HashTable::new(), hasher: FixedState::with_seed(seed) }
    }

    pub(super) fn len(&self) -> usize {
        self.boxes.len()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&HalfOpen> {
        self.boxes.find(self.hasher.hash_one(key), |entry| entry.0 == *key).map(|entry| &entry.1)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut HalfOpen> {
        self.boxes.find_mut(self.hasher.hash_one(key), |entry| entry.0 == *key).map(|entry| &mut entry.1)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut HalfOpen> {
        self.boxes.iter_mut().map(|entry| &mut entry.1)
    }

    /// The key has none yet.
    pub(super) fn insert(&mut self, key: Key, half_open: HalfOpen) -> &mut HalfOpen {
        let Self { boxes, hasher } = self;
        let entry = Box::new((key, half_open));
        let placed = boxes.insert_unique(hasher.hash_one(key), entry, |entry| hasher.hash_one(entry.0));
        &mut placed.into_mut().1
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<HalfOpen> {
        let found = self.boxes.find_entry(self.hasher.hash_one(key), |entry| entry.0 == *key);
        found.ok().map(|found| found.remove().0.1)
    }

    /// What a flood has made it grow goes back, but for so many places.
    pub(super) fn shrink(&mut self, kept: usize) {
        if self.boxes.capacity() > kept && self.len() < self.boxes.capacity() / 8 {
            let Self { boxes, hasher } = self;
            boxes.shrink_to((boxes.len() * 2).max(kept / 2), |entry| hasher.hash_one(entry.0));
        }
    }

    /// Memory, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.boxes.capacity() * (size_of::<usize>() + 1) + self.len() * size_of::<(Key, HalfOpen)>()
    }
}
