//! Ones' complement sums (RFC 1071) and their incremental update (RFC 1624).
//!
//! A *sum* here is the folded 16-bit ones' complement sum in host order; a *check* is its
//! complement, as it stands in a header.

use core::net::IpAddr;

/// Fold a wide accumulator to 16 bits.
#[must_use]
const fn fold(mut acc: u64) -> u16 {
    // 33 bits, 18, 17, 16.
    acc = (acc & 0xffff_ffff) + (acc >> 32);
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (acc & 0xffff) + (acc >> 16);
    acc as u16
}

/// The sum of `bytes`, read as big-endian 16-bit words; an odd last byte is the high half of a
/// word.
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    // Words are added in the machine's own order and swapped once at the end (RFC 1071 section 2
    // B). 32-bit halves go into 64-bit accumulators: no carry can be lost below 2^32 words.
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut total: u64 = 0;
    if !blocks.is_empty() {
        let mut acc = [0u64; 8];
        for block in blocks {
            let (words, _) = block.as_chunks::<4>();
            for (a, w) in acc.iter_mut().zip(words) {
                *a += u64::from(u32::from_ne_bytes(*w));
            }
        }
        total = acc.iter().sum();
    }
    let (words, rest) = rest.as_chunks::<4>();
    for w in words {
        total += u64::from(u32::from_ne_bytes(*w));
    }
    let (words, tail) = rest.as_chunks::<2>();
    for w in words {
        total += u64::from(u16::from_ne_bytes(*w));
    }
    if let [last] = tail {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    u16::from_be(fold(total))
}

/// Ones' complement addition of two sums.
#[must_use]
pub const fn add(a: u16, b: u16) -> u16 {
    let (s, carry) = a.overflowing_add(b);
    s.wrapping_add(carry as u16)
}

/// Ones' complement subtraction: `a` without the part `b`.
#[must_use]
pub const fn sub(a: u16, b: u16) -> u16 {
    add(a, !b)
}

/// The sum of two adjoining pieces of which the first has `first_len` bytes: after an odd piece the
/// second one's bytes stand in the other halves of their words.
#[must_use]
pub const fn combine(first: u16, first_len: usize, second: u16) -> u16 {
    add(first, if first_len % 2 == 1 { second.swap_bytes() } else { second })
}

/// The sum of a 32-bit number's two words.
#[must_use]
pub const fn sum_u32(v: u32) -> u16 {
    add((v >> 16) as u16, v as u16)
}

/// The sum of the pseudo header of TCP, UDP or ICMPv6 (RFC 9293 section 3.1, RFC 8200 section 8.1).
/// `len` is the upper layer's header and payload in bytes. For a mixed pair of families each
/// address is summed as it is.
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: u32) -> u16 {
    let addresses = add(sum_address(src), sum_address(dst));
    add(addresses, add(u16::from(protocol), sum_u32(len)))
}

fn sum_address(a: IpAddr) -> u16 {
    match a {
        IpAddr::V4(a) => sum(&a.octets()),
        IpAddr::V6(a) => sum(&a.octets()),
    }
}

/// A header's check after a part of what it covers changed from sum `old` to sum `new` (RFC 1624
/// equation 3). Both parts start at an even distance from where the check begins to count.
#[must_use]
pub const fn update(check: u16, old: u16, new: u16) -> u16 {
    !add(add(!check, !old), new)
}
