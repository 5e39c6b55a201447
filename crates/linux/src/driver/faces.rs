//! The devices of a gateway by their numbers. One that goes leaves a gap, which the next one fills.

use std::ops::Range;

use farlink_gateway::IfaceId;

use super::face::Face;

/// A device, and whose it is.
#[derive(Debug)]
struct Slot {
    face: Face,
    of: IfaceId,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Faces {
    slots: Vec<Option<Slot>>,
}

impl Faces {
    /// One more than the largest number in use.
    pub(crate) fn end(&self) -> usize {
        self.slots.len()
    }

    /// The smallest number in use, or zero.
    pub(crate) fn first(&self) -> usize {
        self.slots.iter().position(Option::is_some).unwrap_or(0)
    }

    fn slot(&self, n: usize) -> Option<&Slot> {
        self.slots.get(n)?.as_ref()
    }
    pub(crate) fn get(&self, n: usize) -> Option<&Face> {
        Some(&self.slot(n)?.face)
    }
    pub(crate) fn get_mut(&mut self, n: usize) -> Option<&mut Face> {
        Some(&mut self.slots.get_mut(n)?.as_mut()?.face)
    }
    /// The one that has this number in the kernel.
    pub(crate) fn of_index(&mut self, index: u32) -> Option<&mut Face> {
        self.iter_mut().find(|face| face.index() == index)
    }
    /// The interface whose device it is.
    pub(crate) fn owner(&self, n: usize) -> Option<IfaceId> {
        Some(self.slot(n)?.of)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Face> {
        self.slots.iter().flatten().map(|slot| &slot.face)
    }
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Face> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.face)
    }
    /// Those of an interface.
    pub(crate) fn of(&self, range: &Range<usize>) -> impl Iterator<Item = &Face> {
        self.slots.get(range.clone()).unwrap_or_default().iter().flatten().map(|slot| &slot.face)
    }

    /// The first numbers that are free, so many in a row.
    pub(crate) fn room(&self, count: usize) -> Range<usize> {
        let is_free = |first: &usize| (*first..first + count).all(|n| self.slot(n).is_none());
        let first = (0..).find(is_free).unwrap_or(self.slots.len());
        first..first + count
    }

    pub(crate) fn put(&mut self, n: usize, of: IfaceId, face: Face) {
        if self.slots.len() <= n {
            self.slots.resize_with(n + 1, || None);
        }
        if let Some(slot) = self.slots.get_mut(n) {
            *slot = Some(Slot { face, of });
        }
    }

    /// They are another interface's from here on.
    pub(crate) fn give(&mut self, range: &Range<usize>, to: IfaceId) {
        let slots = self.slots.get_mut(range.clone()).unwrap_or_default();
        slots.iter_mut().flatten().for_each(|slot| slot.of = to);
    }

    pub(crate) fn take(&mut self, n: usize) -> Option<Face> {
        let taken = self.slots.get_mut(n)?.take();
        while self.slots.last().is_some_and(Option::is_none) {
            self.slots.pop();
        }
        taken.map(|slot| slot.face)
    }
}
