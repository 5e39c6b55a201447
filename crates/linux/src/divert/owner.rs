//! An nftables table that belongs to this process (NFT_TABLE_F_OWNER, Linux 5.12): a flush of
//! others leaves it alone, and it goes with its owner.
//!
//! The owner is a socket, so one `nft` runs as long as the table lives (`nft -i`) and holds it. Its
//! input ends with this process, however that ends, and so does it.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::nft::Script;
use crate::error::{Context, Error, Result};
use crate::programs::{Conversation, Program};

/// `nft` has so long to answer, in seconds. Nearly always it takes milliseconds.
const PATIENCE_S: i64 = 5;
/// Asks for something that always has an answer.
const ARE_YOU_READY: &str = "list tables inet\n";
/// How the answer begins, and nothing else does.
const READY: &str = "{\"nftables\": [{\"metainfo\"";

/// The table, while this lives: the kernel removes it with the socket of `nft`.
#[derive(Debug)]
pub(super) struct OwnedTable {
    nft: Conversation,
    table: String,
    /// What is in it.
    holds: Option<Script>,
}

impl OwnedTable {
    /// Makes the table, empty, in place of any other of this name.
    ///
    /// # Errors
    /// The kernel knows no owners, this `nft` cannot be spoken to, or somebody else owns it.
    pub(super) fn make(table: &str) -> Result<Self> {
        let nft = Conversation::start(Program::Nft, &["-j", "-i"])
            .context(|| "running nft (is the package nftables installed?)".to_owned())?;
        let mut made = Self { nft, table: table.to_owned(), holds: None };
        made.tell(&format!(
            "add table inet {table}; delete table inet {table}; add table inet {table} {{ flags owner; }}"
        ))?;
        Ok(made)
    }

    /// Puts this into the table, in one transaction, in place of what it holds. After an error it
    /// holds what it held, if it is still there.
    pub(super) fn put(&mut self, script: Script) -> Result<()> {
        let line = script.replacing(self.holds.as_ref()).to_json()?;
        self.tell(&line)?;
        self.holds = Some(script);
        Ok(())
    }

    /// Sends one line, and waits until it has been worked off.
    fn tell(&mut self, line: &str) -> Result<()> {
        let ask = format!("{line}\n{ARE_YOU_READY}");
        self.nft.input.write_all(ask.as_bytes()).context(|| "writing to nft".to_owned())?;
        let mut said = String::new();
        loop {
            if let Some((before, _)) = said.split_once(READY)
                && said.ends_with('\n')
            {
                return match before.trim() {
                    "" => Ok(()),
                    wrong => Err(self.failed(wrong)),
                };
            }
            let mut fds = [PollFd::from_borrowed_fd(self.nft.output.as_fd(), PollFlags::IN)];
            let patience = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
            let ready = poll(&mut fds, Some(&patience)).context(|| "waiting for nft".to_owned())?;
            let mut part = [0u8; 4096];
            let n = if ready == 0 { 0 } else { self.nft.output.read(&mut part).unwrap_or(0) };
            if n == 0 {
                return Err(self.failed(&format!("it has ended, or is silent: {said}")));
            }
            said += &String::from_utf8_lossy(part.get(..n).unwrap_or_default());
        }
    }

    fn failed(&self, output: &str) -> Error {
        Error::Tool { command: format!("nft -j -i (table inet {})", self.table), output: output.to_owned() }
    }
}
