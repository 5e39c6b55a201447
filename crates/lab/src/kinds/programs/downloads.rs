//! A TCP download for as long as the stage lasts.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use portable_atomic::AtomicU64;

use super::Stage;
use crate::workload::content;
use crate::workload::socket::{self, Options};

const PATIENCE: Duration = Duration::from_secs(20);
/// A read looks so often whether all is over.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// Which bytes.
pub(super) const SEED: u64 = 7;

/// Asks the server at `to`, and counts what arrives and is right.
pub(super) fn run(stage: &Stage, to: SocketAddr, bytes: u64, count: &AtomicU64) -> Result<()> {
    let mut stream = socket::client(&stage.client, to.is_ipv6(), &Options::default())?;
    socket::connect(&stream, to, PATIENCE).context("connect")?;
    writeln!(stream, "GET {bytes} {SEED}")?;
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut got = Got::default();
    while !stage.is_over() {
        match stream.read(&mut chunk) {
            Ok(0) => bail!("it ended after {} bytes", got.bytes),
            Ok(n) => got.take(&chunk[..n], count)?,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// How far a stream has come.
#[derive(Default)]
pub(super) struct Got {
    bytes: u64,
    wanted: Vec<u8>,
}

impl Got {
    /// More of it, which must be what the seed says.
    pub(super) fn take(&mut self, chunk: &[u8], count: &AtomicU64) -> Result<()> {
        self.wanted.resize(chunk.len(), 0);
        content::fill(SEED, self.bytes, &mut self.wanted);
        if *chunk != *self.wanted {
            bail!("not what was sent, from byte {} on", self.bytes);
        }
        self.bytes += chunk.len() as u64;
        count.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_not_counted() {
        let mut right = vec![0; 1000];
        content::fill(SEED, 0, &mut right);
        let (count, mut got) = (AtomicU64::new(0), Got::default());
        got.take(&right[..600], &count).unwrap();
        got.take(&right[600..], &count).unwrap();
        assert!(got.take(&right[..1], &count).unwrap_err().to_string().contains("byte 1000"));
        assert_eq!(count.into_inner(), 1000);
    }
}
