//! What is asked of nftables again and again (linux/netfilter/nf_tables.h): counters, how many
//! rules a table has, whether anything has changed. A few microseconds each, where the program
//! `nft` takes milliseconds.

use std::collections::BTreeMap;

use super::message::{Answer, Attributes, Message};
use super::socket::Socket;
use crate::error::Result;

/// NFNL_SUBSYS_NFTABLES, above the message's own kind.
const SUBSYSTEM: u16 = 10 << 8;
const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_GETRULE: u16 = 7;
const NFT_MSG_GETGEN: u16 = 16;
const NFT_MSG_GETOBJ: u16 = 19;
const NFGENMSG_BYTES: usize = 4;
const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_INET: u8 = 1;
const NFTA_GEN_ID: u16 = 1;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFTA_OBJ_DATA: u16 = 4;
const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;
const NFT_OBJECT_COUNTER: u32 = 1;

/// Packets and bytes that a counter has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets (super-segments count once).
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A socket to nftables, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Nftables {
    socket: Socket,
}

impl Nftables {
    /// Opens it.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::netfilter()? })
    }

    /// The number of the last change to any table of the namespace.
    pub fn generation(&mut self) -> Result<u32> {
        let mut generation = 0;
        self.socket.query(
            request(NFT_MSG_GETGEN, NFPROTO_UNSPEC),
            "asking nftables for changes",
            |answer| {
                let value = attributes(&answer).and_then(|a| a.find(NFTA_GEN_ID));
                generation = value.and_then(|v| v.first_chunk().copied()).map_or(0, u32::from_be_bytes);
            },
        )?;
        Ok(generation)
    }

    /// Whether there is an inet table of this name. One that has an owner goes with it, and
    /// [`Nftables::generation`] stays as it was.
    pub fn has_table(&mut self, table: &str) -> Result<bool> {
        let mut message = request(NFT_MSG_GETTABLE, NFPROTO_INET);
        message.attr_str(NFTA_TABLE_NAME, table);
        match self.socket.query(message, "asking nftables for a table", |_| {}) {
            Err(e) if e.is(libc::ENOENT) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// How many rules an inet table has; 0 when it does not exist.
    pub fn rule_count(&mut self, table: &str) -> Result<usize> {
        let mut message = request(NFT_MSG_GETRULE, NFPROTO_INET);
        message.attr_str(NFTA_RULE_TABLE, table);
        let mut count = 0;
        let outcome = self.socket.dump(message, "counting nftables rules", |answer| {
            // Older kernels do not filter.
            let of = attributes(&answer).and_then(|a| a.find_str(NFTA_RULE_TABLE));
            count += usize::from(of.as_deref() == Some(table));
        });
        match outcome {
            Err(e) if e.is(libc::ENOENT) => Ok(0),
            other => other.map(|()| count),
        }
    }

    /// The named counters of an inet table; an error when it does not exist.
    pub fn counters(&mut self, table: &str) -> Result<BTreeMap<String, Count>> {
        let mut message = request(NFT_MSG_GETOBJ, NFPROTO_INET);
        message.attr_str(NFTA_OBJ_TABLE, table).attr(NFTA_OBJ_TYPE, &NFT_OBJECT_COUNTER.to_be_bytes());
        let mut found = BTreeMap::new();
        self.socket.dump(
            message,
            &format!("reading the counters of the nftables table {table}"),
            |answer| {
                if let Some((name, count)) = counter(&answer, table) {
                    found.insert(name, count);
                }
            },
        )?;
        Ok(found)
    }
}

fn request(kind: u16, family: u8) -> Message {
    Message::new(SUBSYSTEM | kind, 0, &[family, 0, 0, 0])
}

fn attributes<'a>(answer: &Answer<'a>) -> Option<Attributes<'a>> {
    answer.split(NFGENMSG_BYTES).map(|(_, attributes)| attributes)
}

fn counter(answer: &Answer<'_>, table: &str) -> Option<(String, Count)> {
    let all = attributes(answer)?;
    if all.find_str(NFTA_OBJ_TABLE)? != table {
        return None;
    }
    let data = Attributes::new(all.find(NFTA_OBJ_DATA)?);
    let number = |kind| data.find(kind).and_then(|v| v.first_chunk().copied()).map_or(0, u64::from_be_bytes);
    let count = Count { packets: number(NFTA_COUNTER_PACKETS), bytes: number(NFTA_COUNTER_BYTES) };
    Some((all.find_str(NFTA_OBJ_NAME)?, count))
}
