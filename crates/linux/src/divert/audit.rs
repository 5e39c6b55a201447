//! Is everything that diversion consists of still there? Asked four times a second, so without
//! running a program.

use std::collections::BTreeMap;
use std::fmt;

use super::{Divert, Diverted};
use crate::error::Result;
use crate::netlink::{Count, Family, Nftables, Socket};
use crate::tun;

/// Something that somebody has removed or changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    /// The nftables table, or rules of it.
    Table(String),
    /// The policy-routing rule of a family for a mark.
    Rule(String, u32),
    /// The route of a family to a TUN.
    Route(String, String),
    /// The TUN is down.
    Device(String),
    /// The TUN's source address check would drop what comes out of it.
    SourceCheck(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(name) => {
                write!(
                    f,
                    "the nftables table inet {name} was removed or changed (`nft flush ruleset`, a firewall's reload, the end of the `nft` that holds it)"
                )
            }
            Self::Rule(family, mark) => {
                write!(
                    f,
                    "the {family} policy-routing rule for mark {mark:#x} was removed (`ip rule`, systemd-networkd)"
                )
            }
            Self::Route(family, tun) => write!(f, "the {family} route to {tun} was removed"),
            Self::Device(tun) => write!(f, "the device {tun} was taken down"),
            Self::SourceCheck(what) => write!(f, "{what} would have dropped everything that Farlink sends"),
        }
    }
}

/// Looks after a diversion, in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct Auditor {
    route: Socket,
    nft: Nftables,
    /// At which generation of nftables the table was seen whole.
    whole_at: Option<u32>,
    generation: u32,
    foreign_rules: usize,
    is_liberal: bool,
    changes: u64,
    /// Numbers of TUNs, and packets that each has dropped because nobody read them.
    dropped: Vec<(usize, u64)>,
}

impl Auditor {
    /// Ready to look.
    pub fn open() -> Result<Self> {
        Ok(Self {
            route: Socket::open()?,
            nft: Nftables::open()?,
            whole_at: None,
            generation: 0,
            foreign_rules: 0,
            is_liberal: false,
            changes: 0,
            dropped: Vec::new(),
        })
    }

    /// What is missing, in a lasting order; empty when all is well. A source check that had become
    /// too strict is opened here and now, and named.
    pub fn look(&mut self, divert: &Divert) -> Result<Vec<Missing>> {
        let mut missing = Vec::new();
        let plan = &divert.plan;
        let table = plan.config.table_name();
        let generation = self.nft.generation()?;
        if self.whole_at != Some(generation) || !self.nft.has_table(&table)? {
            self.changes += u64::from(generation != self.generation);
            self.generation = generation;
            if self.nft.rule_count(&table)? == divert.rule_count {
                self.whole_at = Some(generation);
            } else {
                missing.push(Missing::Table(table));
            }
        }
        self.routing(divert, &mut missing)?;
        for one in &plan.interfaces {
            if let Some(what) = tun::open_source_check(&mut self.route, &one.tun, one.tun_index)? {
                missing.push(Missing::SourceCheck(what));
            }
        }
        // What connection tracking calls invalid is less then.
        let is_liberal = crate::sysctl::read_number(&["netfilter", "nf_conntrack_tcp_be_liberal"]) == Some(1);
        if is_liberal != self.is_liberal {
            (self.is_liberal, self.changes) = (is_liberal, self.changes + 1);
        }
        missing.sort();
        Ok(missing)
    }

    fn routing(&mut self, divert: &Divert, missing: &mut Vec<Missing>) -> Result<()> {
        let plan = &divert.plan;
        let mut foreign = 0;
        for family in Family::BOTH {
            let there = self.route.rules(family)?;
            // A kernel without IPv6 has no rules of it either.
            if there.is_empty() {
                continue;
            }
            for rule in plan.rules().filter(|r| r.family == family) {
                if !there.contains(&rule) {
                    missing.push(Missing::Rule(family.to_string(), rule.mark));
                }
            }
            foreign += there.iter().filter(|there| !plan.rules().any(|ours| ours == **there)).count();
        }
        if foreign != self.foreign_rules {
            (self.foreign_rules, self.changes) = (foreign, self.changes + 1);
        }
        for (route, tun) in plan.routes().zip(plan.interfaces.iter().flat_map(|one| [one, one])) {
            let there = self.route.routes(route.family, route.table)?;
            let is_there = there.iter().any(|r| r.interface == route.interface && r.destination.is_none());
            if !is_there && (route.family == Family::V4 || crate::sysctl::exists(&["ipv6"])) {
                missing.push(Missing::Route(route.family.to_string(), tun.tun.clone()));
            }
        }
        self.dropped.clear();
        for (n, one) in plan.numbered() {
            let link = self.route.link(&one.tun)?;
            self.dropped.push((n, link.as_ref().map_or(0, |link| link.tx_dropped)));
            if link.is_some_and(|link| !link.up) {
                missing.push(Missing::Device(one.tun.clone()));
            }
        }
        Ok(())
    }

    /// Diverts what comes in by other interfaces: see [`Divert::change`].
    pub fn change(&mut self, divert: &mut Divert, to: Vec<Diverted>, whole: &[String]) -> Result<()> {
        divert.change(to, whole, &mut self.route)?;
        self.own_change()
    }

    /// Puts back what is missing.
    pub fn put_back(&mut self, divert: &mut Divert) -> Result<()> {
        divert.put_back(&mut self.route)?;
        self.own_change()
    }

    /// What has changed until now was our own doing.
    pub fn own_change(&mut self) -> Result<()> {
        self.generation = self.nft.generation()?;
        self.whole_at = None;
        Ok(())
    }

    /// Grows with each change of nftables or of the policy-routing rules that is not our own.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// For each TUN, by its number: packets that it had dropped at the last look, because nobody
    /// read them.
    #[must_use]
    pub fn dropped(&self) -> &[(usize, u64)] {
        &self.dropped
    }

    /// The counters of the diversion's table; `None` when it is gone.
    pub fn counters(&mut self, divert: &Divert) -> Option<BTreeMap<String, Count>> {
        self.nft.counters(&divert.plan.config.table_name()).ok()
    }

    /// The socket for further questions.
    pub fn socket(&mut self) -> &mut Socket {
        &mut self.route
    }
}
