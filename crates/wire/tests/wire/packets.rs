//! The pool, the packet buffer, the capture file, sequence numbers and the clock.

use crate::helpers::*;
use farlink_wire::pcap::file_header;
use farlink_wire::*;

#[test]
fn the_pool_counts_what_is_out() {
    let mut pool = Pool::new(LARGE_BLOCK_BYTES);
    assert!(!pool.is_short());
    let (large, small) = (pool.take_large(), pool.take_small());
    assert_eq!((large.capacity(), small.capacity()), (LARGE_BLOCK_BYTES, SMALL_BLOCK_BYTES));
    assert_eq!(pool.used_bytes(), LARGE_BLOCK_BYTES + SMALL_BLOCK_BYTES + 2 * BLOCK_OVERHEAD_BYTES);
    assert!(pool.is_short() && pool.limit_bytes() == LARGE_BLOCK_BYTES);
    let odd = pool.take_for(LARGE_BLOCK_BYTES + 1);
    assert_eq!(odd.capacity(), LARGE_BLOCK_BYTES + 1);
    for block in [large, small, odd, Block::empty()] {
        pool.give_back(block);
    }
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn blocks_are_used_again_within_bounds() {
    let mut pool = Pool::new(0);
    let mut block = pool.take_small();
    block.as_mut_slice()[0] = 42;
    let at = block.as_slice().as_ptr();
    pool.give_back(block);
    let again = pool.take_small();
    assert_eq!((again.as_slice().as_ptr(), again.as_slice()[0]), (at, 42));
}

#[test]
fn packets_fit_their_blocks() {
    let mut pool = Pool::new(1 << 20);
    for len in [0, 1, 1_500, SMALL_BLOCK_BYTES - 64, SMALL_BLOCK_BYTES - 63, 65_535, 100_000] {
        let p = PacketBuf::from_slice(&mut pool, &payload(len), Offload::default());
        assert_eq!((p.bytes(), p.len(), p.is_empty()), (&payload(len)[..], len, len == 0));
        assert_eq!(p.headroom(), PacketBuf::HEADROOM);
        let (block, start, got) = p.into_block();
        assert_eq!(block.as_slice()[start..start + got], payload(len));
        pool.give_back(block);
    }
    assert_eq!(pool.used_bytes(), 0);
    let beyond = PacketBuf::from_block(pool.take_small(), 4_000, 9_000, Offload::default());
    assert_eq!(beyond.len(), 96, "cut to what the block has");
    let outside = PacketBuf::from_block(pool.take_small(), 9_000, 1, Offload::default());
    assert!(outside.bytes().is_empty());
}

#[test]
fn a_capture_that_others_can_read() {
    let mut capture = PcapWriter::new(30);
    capture.record(Instant::from_nanos(3_000_000_007), &payload(40));
    let bytes = capture.take();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(bytes[..24], file_header());
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 101));
    assert_eq!(bytes[4..8], [2u16.to_ne_bytes(), 4u16.to_ne_bytes()].concat());
    assert_eq!((word(24), word(28), word(32), word(36)), (3, 7, 30, 40));
    assert_eq!(bytes[40..], payload(40)[..30]);
    capture.record(Instant::ZERO, b"x");
    assert_eq!(capture.bytes().len(), 17, "no second file header");
}

#[test]
fn sequence_numbers_go_round() {
    let (a, b) = (SeqNum(u32::MAX - 1), SeqNum(3));
    assert!(a.before(b) && b.after(a) && a.before_eq(a) && a.after_eq(a) && !a.before(a));
    assert_eq!((b.since(a), b.diff(a), a.diff(b)), (5, 5, -5));
    assert_eq!((a.max(b), a.min(b), a + 5, b - 5), (b, a, b, a));
    let mut c = a;
    c += 5;
    assert_eq!(c, b);
}

#[test]
fn the_clock_saturates() {
    let t = Instant::from_millis(5);
    assert_eq!(t - Instant::from_micros(2_000), Duration::from_millis(3));
    assert_eq!(Instant::ZERO - t, Duration::ZERO);
    assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
    assert_eq!(t + Duration::MAX, Instant::FAR_FUTURE);
    assert_eq!(Instant::from_millis(u64::MAX), Instant::FAR_FUTURE);
}
