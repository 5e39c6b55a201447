//! An upload that pauses in its middle: a connection with nothing in custody, which can go on
//! later.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::kinds::many::PATIENCE;
use crate::netns::Ns;
use crate::workload::content;
use crate::workload::socket::{self, Options};

/// Bytes before the pause, and after it.
const HALF_BYTES: usize = 50_000;

/// See the module.
pub(super) struct Idle {
    stream: TcpStream,
    data: Vec<u8>,
}

impl Idle {
    /// Opens it and sends the first half.
    pub(super) fn open(ns: &Ns, to: SocketAddr, seed: u64) -> Result<Self> {
        let mut stream = socket::client(ns, to.is_ipv6(), &Options::default())?;
        socket::connect(&stream, to, PATIENCE).context("connect")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut data = vec![0; 2 * HALF_BYTES];
        content::fill(seed, 0, &mut data);
        stream.write_all(format!("PUT {} {seed}\n", data.len()).as_bytes())?;
        stream.write_all(&data[..HALF_BYTES])?;
        Ok(Self { stream, data })
    }

    /// Sends the second half; the server's SHA-256 must be that of both.
    pub(super) fn go_on(mut self) -> Result<()> {
        self.stream.write_all(&self.data[HALF_BYTES..]).context("sending")?;
        let mut answer = [0; 32];
        self.stream.read_exact(&mut answer).context("reading the server's answer")?;
        ensure!(answer == *Sha256::digest(&self.data), "what the server received is not what was sent");
        ensure!(self.stream.read(&mut [0])? == 0, "bytes after the end");
        Ok(())
    }
}
