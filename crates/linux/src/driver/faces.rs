//! The devices of a gateway by their numbers. One that goes leaves a gap, which the next one fills.
//! A number may belong to somebody before its device is made, and while it is made anew.

use std::ops::Range;

use farlink_gateway::IfaceId;

use super::face::Face;

/// A device, and whose it is.
#[derive(Debug)]
struct Slot {
    /// `None`: it is being made.
    face: Option<Face>,
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
        self.slot(n)?.face.as_ref()
    }
    pub(crate) fn get_mut(&mut self, n: usize) -> Option<&mut Face> {
        self.slots.get_mut(n)?.as_mut()?.face.as_mut()
    }
    /// The one that has this number in the kernel.
    pub(crate) fn of_index(&self, index: u32) -> Option<usize> {
        (0..self.end()).find(|n| self.get(*n).is_some_and(|face| face.index() == index))
    }
    /// The interface whose device it is.
    pub(crate) fn owner(&self, n: usize) -> Option<IfaceId> {
        Some(self.slot(n)?.of)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Face> {
        self.slots.iter().flatten().filter_map(|slot| slot.face.as_ref())
    }
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Face> {
        self.slots.iter_mut().flatten().filter_map(|slot| slot.face.as_mut())
    }
    /// Those of an interface.
    pub(crate) fn of(&self, range: &Range<usize>) -> impl Iterator<Item = &Face> {
        let slots = self.slots.get(range.clone()).unwrap_or_default();
        slots.iter().flatten().filter_map(|slot| slot.face.as_ref())
    }

    /// The first numbers that are free, so many in a row.
    pub(crate) fn room(&self, count: usize) -> Range<usize> {
        let is_free = |first: &usize| (*first..first + count).all(|n| self.slot(n).is_none());
        let first = (0..).find(is_free).unwrap_or(self.slots.len());
        first..first + count
    }

    /// These numbers are an interface's from here on.
    pub(crate) fn reserve(&mut self, range: &Range<usize>, of: IfaceId) {
        if self.slots.len() < range.end {
            self.slots.resize_with(range.end, || None);
        }
        let slots = self.slots.get_mut(range.clone()).unwrap_or_default();
        slots.iter_mut().for_each(|slot| *slot = Some(Slot { face: None, of }));
    }

    /// A device has been made. Returned: nobody waits for it.
    pub(crate) fn put(&mut self, n: usize, face: Face) -> Option<Face> {
        match self.slots.get_mut(n) {
            Some(Some(slot)) if slot.face.is_none() => {
                slot.face = Some(face);
                None
            }
            _ => Some(face),
        }
    }

    /// It is somebody's number, and there is no device.
    pub(crate) fn is_wanted(&self, n: usize) -> bool {
        self.slot(n).is_some_and(|slot| slot.face.is_none())
    }

    /// A device is lost. Its number stays whose it was.
    pub(crate) fn lose(&mut self, n: usize) -> Option<Face> {
        self.slots.get_mut(n)?.as_mut()?.face.take()
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
        taken?.face
    }
}
