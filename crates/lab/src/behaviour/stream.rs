//! Known bytes to send, and what was received held against them.

use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::errno::Errno;
use super::outcome::Event;
use super::sock::Sock;

/// A stream of bytes that both ends can compute: byte n depends on the seed and on n only.
#[derive(Clone, Copy, Debug)]
pub struct Pattern(pub u64);

impl Pattern {
    /// Fills `out` with the bytes from `offset` on.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let mut at = 0;
        while at < out.len() {
            let position = offset + at as u64;
            let word = mix(self.0, position / 8).to_le_bytes();
            let skip = (position % 8) as usize;
            let take = (8 - skip).min(out.len() - at);
            out[at..at + take].copy_from_slice(&word[skip..skip + take]);
            at += take;
        }
    }

    /// The first `len` bytes.
    pub fn bytes(self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(0, &mut out);
        out
    }
}

/// SplitMix64 of a counter.
fn mix(seed: u64, counter: u64) -> u64 {
    let mut z = seed.wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// How reading came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The other side closed.
    End,
    /// An error.
    Failed(Errno),
    /// All that was wanted is there.
    Enough,
}

/// What was read from a stream.
#[derive(Clone, Debug)]
pub struct Got {
    /// Number of bytes.
    pub bytes: u64,
    /// SHA-256 of them.
    pub sha256: String,
    /// First position where a byte was not the expected one.
    pub wrong_at: Option<u64>,
    /// How it ended.
    pub ending: Ending,
}

impl Got {
    /// As events.
    pub fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Received { bytes: self.bytes, sha256: self.sha256.clone() }];
        match self.ending {
            Ending::End => events.push(Event::End),
            Ending::Failed(errno) => events.push(Event::Failed { call: "recv".into(), errno: errno.name() }),
            Ending::Enough => {}
        }
        events
    }

    /// In a few words, for cases with many streams.
    pub fn short(&self) -> String {
        let exact = if self.wrong_at.is_none() { "exact" } else { "WRONG" };
        match self.ending {
            Ending::End => format!("{} {exact}, end", self.bytes),
            Ending::Failed(errno) => format!("{} {exact}, {errno}", self.bytes),
            Ending::Enough => format!("{} {exact}", self.bytes),
        }
    }
}

/// How a reader takes its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Stop after so many bytes; `u64::MAX` reads to the end.
    pub want: u64,
    /// Bytes asked for in one call.
    pub chunk: usize,
    /// Wait after each call.
    pub pause: Duration,
}

impl Default for Reading {
    fn default() -> Self {
        Reading { want: u64::MAX, chunk: 1 << 16, pause: Duration::ZERO }
    }
}

/// Reads `pattern` (from `offset` on) as `how` says.
pub fn read_pattern(sock: &Sock, pattern: Pattern, offset: u64, how: Reading) -> Got {
    let (mut buffer, mut expected) = (vec![0; how.chunk], vec![0; how.chunk]);
    let (mut hash, mut bytes, mut wrong_at) = (Sha256::new(), 0_u64, None);
    let ending = loop {
        let room = usize::try_from(how.want - bytes).unwrap_or(usize::MAX).min(how.chunk);
        if room == 0 {
            break Ending::Enough;
        }
        match sock.recv(&mut buffer[..room], 0) {
            Ok(0) => break Ending::End,
            Err(errno) => break Ending::Failed(errno),
            Ok(got) => {
                pattern.fill(offset + bytes, &mut expected[..got]);
                if wrong_at.is_none() && buffer[..got] != expected[..got] {
                    let at = (0..got).find(|&at| buffer[at] != expected[at]).unwrap_or(0);
                    wrong_at = Some(offset + bytes + at as u64);
                }
                hash.update(&buffer[..got]);
                bytes += got as u64;
            }
        }
        if !how.pause.is_zero() {
            std::thread::sleep(how.pause);
        }
    };
    Got { bytes, sha256: hex(&hash.finalize()), wrong_at, ending }
}

/// Writes `len` bytes of `pattern` from `offset` on, in pieces of `chunk`; how many went before an
/// error.
pub fn write_pattern(
    sock: &Sock,
    pattern: Pattern,
    offset: u64,
    len: u64,
    chunk: usize,
) -> Result<u64, (u64, Errno)> {
    let mut buffer = vec![0; chunk];
    let mut sent = 0;
    while sent < len {
        let take = usize::try_from(len - sent).unwrap_or(usize::MAX).min(chunk);
        pattern.fill(offset + sent, &mut buffer[..take]);
        sock.send_all(&buffer[..take]).map_err(|(went, errno)| (sent + went as u64, errno))?;
        sent += take as u64;
    }
    Ok(sent)
}

/// SHA-256 in hexadecimal.
pub fn sha256(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How long `f` takes, in milliseconds, and its result.
pub fn timed<T>(f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = f();
    (start.elapsed().as_secs_f64() * 1e3, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_the_same_from_any_offset() {
        let whole = Pattern(7).bytes(1000);
        for offset in [0, 1, 7, 8, 9, 500] {
            let mut part = vec![0; 100];
            Pattern(7).fill(offset, &mut part);
            assert_eq!(part, whole[offset as usize..offset as usize + 100]);
        }
        assert_ne!(Pattern(8).bytes(16), Pattern(7).bytes(16));
    }

    #[test]
    fn digest_is_hexadecimal() {
        assert_eq!(&sha256(b"abc")[..8], "ba7816bf");
    }
}
