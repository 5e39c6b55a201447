//! Marks and priorities of packets in the kernel, given back to what leaves by a bump.
//!
//! A frame has room for a number. The table says which mark and which priority it stands for, in
//! memory that the gateway writes and the programs read.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::frame::PLACES;
use crate::bpf::Map;
use crate::error::{Context, Error, Result};

/// What filters, queues and rules of the kernel look at beside a packet's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marking {
    /// Mark (fwmark, `skb->mark`); zero: none.
    pub mark: u32,
    /// Priority (`skb->priority`), which may name a class of a queue; zero: the default one.
    pub priority: u32,
}

/// A place in the table. The first one is that of packets with neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u16);

impl Place {
    /// Its number.
    pub(super) fn number(self) -> u16 {
        self.0
    }
}

/// Mark and priority of a place.
pub(super) type Words = [u32; 2];
const WORDS: usize = 2;
const BYTES: usize = PLACES as usize * size_of::<Words>();

/// The map that has the table.
pub(super) fn map() -> Result<Map<Words>> {
    Map::shared_array(u32::from(PLACES))
}

/// See the module. One writes it.
#[derive(Debug)]
pub struct Marks {
    table: NonNull<AtomicU32>,
    places: HashMap<Marking, Place>,
    /// What stands at each place but the first.
    markings: Vec<Marking>,
    /// Which one is taken next.
    next: usize,
    /// Most packets have the same again.
    last: (Marking, Place),
    /// How often others have had to give way.
    replaced: u64,
}

// SAFETY: the mapping belongs to this value, and is written by atomic stores.
unsafe impl Send for Marks {}

impl Marks {
    /// The table of this map.
    pub(super) fn of(map: &Map<Words>) -> Result<Self> {
        // SAFETY: a fresh mapping of a map of so many bytes, which the kernel keeps as long as it
        // is mapped.
        let table = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map.as_fd(),
                0,
            )
        }
        .context(|| "mapping the table of marks".to_owned())?;
        let Some(table) = NonNull::new(table.cast()) else {
            return Err(Error::Refused("the table of marks was mapped nowhere".to_owned()));
        };
        let (places, markings) = (HashMap::new(), Vec::new());
        let last = (Marking::default(), Place::default());
        Ok(Self { table, places, markings, next: 0, last, replaced: 0 })
    }

    /// The place of a mark and a priority. Where all are taken the one that was taken first gives
    /// way.
    pub fn place(&mut self, marking: Marking) -> Place {
        if marking == Marking::default() {
            return Place::default();
        }
        if self.last.0 != marking {
            let known = self.places.get(&marking).copied();
            self.last = (marking, known.unwrap_or_else(|| self.add(marking)));
        }
        self.last.1
    }

    fn add(&mut self, marking: Marking) -> Place {
        let place = Place(u16::try_from(self.next + 1).unwrap_or_default());
        match self.markings.get_mut(self.next) {
            Some(old) => {
                self.places.remove(&std::mem::replace(old, marking));
                self.replaced += 1;
            }
            None => self.markings.push(marking),
        }
        self.places.insert(marking, place);
        self.next = (self.next + 1) % usize::from(PLACES - 1);
        for (n, word) in [marking.mark, marking.priority].into_iter().enumerate() {
            // SAFETY: the place is below PLACES, so both words lie within the mapping.
            let at = unsafe { self.table.add(usize::from(place.0) * WORDS + n).as_ref() };
            at.store(word, Ordering::Release);
        }
        place
    }

    /// How often a place was taken from others: there are more marks and priorities than places.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody has a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.table.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(map: &Map<Words>, place: Place) -> (u32, u32) {
        let [mark, priority] = map.get(place.number().into()).unwrap();
        (mark, priority)
    }

    #[test]
    fn each_mark_has_a_place_of_its_own_and_there_is_an_end() {
        let map = match map() {
            Ok(map) => map,
            Err(e) if e.is(libc::EPERM) => return eprintln!("skipped: no privilege for bpf(2)"),
            Err(e) => panic!("{e}"),
        };
        let mut marks = Marks::of(&map).unwrap();
        let of = |mark, priority| Marking { mark, priority };
        assert_eq!(marks.place(of(0, 0)), Place(0));
        let (seven, class) = (marks.place(of(7, 0)), marks.place(of(0, 0x1_0010)));
        assert_eq!((number(&map, seven), number(&map, class)), ((7, 0), (0, 0x1_0010)));
        assert_eq!((marks.place(of(7, 0)), marks.place(of(0, 0x1_0010))), (seven, class));
        assert_ne!(seven, class);
        // There were two before.
        for mark in 1_000..1_000 + u32::from(PLACES) - 3 {
            let place = marks.place(of(mark, 1));
            assert_eq!(number(&map, place), (mark, 1));
        }
        assert_eq!((marks.replaced(), marks.place(of(7, 0))), (0, seven));
        let newest = marks.place(of(9, 9));
        assert_eq!((marks.replaced(), newest, number(&map, newest)), (1, seven, (9, 9)));
        assert_eq!(
            (marks.places.len(), marks.markings.len()),
            (usize::from(PLACES) - 1, usize::from(PLACES) - 1)
        );
        assert_ne!(marks.place(of(7, 0)), seven, "it has another place now");
        assert_eq!(number(&map, Place(0)), (0, 0), "the first one is nobody's");
    }
}
