//! Packets as a capture file (libpcap format, nanosecond magic, raw IP): bytes only, whoever owns
//! them writes the file.

use crate::time::Instant;

/// Magic number of a capture with nanoseconds.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// LINKTYPE_RAW: packets begin with an IPv4 or IPv6 header.
const LINKTYPE_RAW: u32 = 101;
/// Longest packet that readers accept (libpcap MAXIMUM_SNAPLEN), bytes.
const SNAPLEN_MAX: u32 = 262_144;

/// The 24 bytes that a capture file begins with.
#[must_use]
pub fn file_header() -> [u8; 24] {
    let mut out = [0; 24];
    let (version_major, version_minor) = (2u16, 4u16);
    let fields = [
        MAGIC_NANOSECONDS.to_ne_bytes(),
        u32::from_ne_bytes(two(version_major, version_minor)).to_ne_bytes(),
        [0; 4],
        [0; 4],
        SNAPLEN_MAX.to_ne_bytes(),
        LINKTYPE_RAW.to_ne_bytes(),
    ];
    for (place, field) in out.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
        *place = field;
    }
    out
}

fn two(a: u16, b: u16) -> [u8; 4] {
    let ([a0, a1], [b0, b1]) = (a.to_ne_bytes(), b.to_ne_bytes());
    [a0, a1, b0, b1]
}

/// The 16 bytes before a packet of `original_len` bytes of which `captured_len` follow. `at` counts
/// from the epoch of the caller's clock; readers take it for 1970.
#[must_use]
pub fn record_header(at: Instant, captured_len: usize, original_len: usize) -> [u8; 16] {
    const NANOS: u64 = 1_000_000_000;
    let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).to_ne_bytes();
    let fields = [
        word(at.as_nanos() / NANOS),
        word(at.as_nanos() % NANOS),
        word(captured_len as u64),
        word(original_len as u64),
    ];
    let mut out = [0; 16];
    for (place, field) in out.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
        *place = field;
    }
    out
}

/// A capture growing in memory; [`Self::take`] it now and then to write it away.
#[derive(Clone, Debug)]
pub struct PcapWriter {
    bytes: Vec<u8>,
    snaplen: usize,
}

impl Default for PcapWriter {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl PcapWriter {
    /// A capture, its file header already written, that keeps at most `snaplen` bytes of each
    /// packet.
    #[must_use]
    pub fn new(snaplen: usize) -> Self {
        let max = usize::try_from(SNAPLEN_MAX).unwrap_or(usize::MAX);
        Self { bytes: file_header().to_vec(), snaplen: snaplen.min(max) }
    }

    /// Add a packet.
    pub fn record(&mut self, at: Instant, packet: &[u8]) {
        let kept = packet.get(..self.snaplen).unwrap_or(packet);
        self.bytes.extend_from_slice(&record_header(at, kept.len(), packet.len()));
        self.bytes.extend_from_slice(kept);
    }

    /// What has been written since the last [`Self::take`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Take what has been written; the capture goes on without another file header.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }
}
