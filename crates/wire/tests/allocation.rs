//! The way of a packet through the crate allocates nothing once the pool has its block.

use farlink_wire::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system allocator; counting touches a thread-local without
// a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

#[test]
fn none_per_packet() {
    assert!(allocations(|| drop(black_box(Box::new(1)))) > 0, "the count counts");
    let mut pool = Pool::new(1 << 20);
    let block = pool.take_small();
    pool.give_back(block);
    let sack = [SackBlock { start: SeqNum(1), end: SeqNum(2) }];
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        let count = allocations(|| {
            let header = SegmentHeader {
                seq: SeqNum(1),
                ack: SeqNum(1),
                window: 9,
                timestamps: Some(Timestamps { val: 1, ecr: 2 }),
                sack: &sack,
                farlink: Some(&[1, 2, 3, 4]),
                ..SegmentHeader::between((src, 1), (dst, 2))
            };
            let mut p = build::packet(&mut pool, &header, None, b"payload").unwrap();
            let Parsed::Tcp(s) = parse(p.bytes()) else { return };
            edit::set_seq(&mut p, &s, SeqNum(5));
            edit::remove_farlink_option(&mut p, &s);
            let Parsed::Tcp(s) = parse(p.bytes()) else { return };
            edit::insert_option(&mut p, &s, &[254, 4, 0xfa, 0x51]).unwrap();
            let offload = p.offload;
            finish_checksums(p.bytes_mut(), &offload);
            let Parsed::Tcp(s) = parse(p.bytes()) else { return };
            assert!(verify_checksums(p.bytes(), &s, &Offload::default()));
            assert_eq!(s.payload(p.bytes()), b"payload");
            p.recycle(&mut pool);
        });
        assert_eq!((count, pool.used_bytes()), (0, 0));
    }
}
