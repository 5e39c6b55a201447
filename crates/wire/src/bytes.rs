//! Reading and writing big-endian numbers in byte slices without a panic.

/// The byte at `at`.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// `N` bytes from `at`.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// Big-endian 16-bit number at `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

/// Big-endian 32-bit number at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_be_bytes)
}

/// Write `value` at `at`; `false` (and nothing written) when it does not fit.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> bool {
    let Some(end) = at.checked_add(value.len()) else { return false };
    match bytes.get_mut(at..end) {
        Some(place) => {
            place.copy_from_slice(value);
            true
        }
        None => false,
    }
}

/// Write a big-endian 16-bit number at `at`; `false` when it does not fit.
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) -> bool {
    put(bytes, at, &value.to_be_bytes())
}

/// `n` rounded up to a multiple of four.
pub(crate) const fn pad4(n: usize) -> usize {
    n.saturating_add(3) & !3
}
