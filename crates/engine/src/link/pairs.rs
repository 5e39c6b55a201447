//! What pairs of gateways may send over a link on which routers say how fast (XCP): one allowance
//! for all flows to the same gateway, by the identity that it told in the handshake.

use std::collections::{BTreeMap, BTreeSet};

use farlink_wire::{Duration, Instant};
use farlink_xcp::{Context, Reported, Reports};

use super::{Link, Links};
use crate::config::XcpContext;
use crate::leg::Leg;
use crate::net::{LinkId, Way};
use crate::peer::{Arrived, Identity};
use crate::status::PairStatus;

/// Pairs of one link. A gateway for which there is no place is sent to by each flow for itself.
const PAIRS_MAX: usize = 128;
/// So long after the last packet a pair is forgotten; and so often it is looked for such.
const FORGET: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(10);

/// A pair of gateways on a link: small numbers, used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PairId(pub u16);

/// What the queue of a link is to know of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PairShare {
    /// What the flows to that gateway may send together, in bits of IP packets a second; `None`:
    /// each goes by its own clock.
    pub rate_bps: Option<u64>,
    /// Flows that send; one at least.
    pub flows: u32,
    /// Mean size of their packets, bytes; never 0.
    pub packet_bytes: u64,
}

/// All pairs of a link.
#[derive(Debug, Default)]
pub struct Pairs {
    by: XcpContext,
    pairs: BTreeMap<Identity, Pair>,
    /// Forgotten, and the queue does not know yet.
    gone: BTreeSet<PairId>,
    /// Something may have changed since the queue was told.
    is_touched: bool,
    looked_at: Instant,
}

/// One of them.
#[derive(Debug)]
struct Pair {
    id: PairId,
    context: Context,
    /// What the gateway there says of what has come in over the link.
    reports: Reports,
    /// What the queue was told last.
    told: Option<PairShare>,
    /// The queue has no place for it: its flows go by their own clocks.
    has_no_queue: bool,
}

impl Pair {
    fn share(&self) -> PairShare {
        let c = &self.context;
        PairShare { rate_bps: c.rate_bps(), flows: c.flows(), packet_bytes: c.packet_bytes() }
    }
}

impl Pairs {
    /// Allowances are those of pairs, or of flows.
    pub fn new(by: XcpContext) -> Self {
        Self { by, ..Self::default() }
    }

    /// They are those of others from now on.
    pub fn set_by(&mut self, by: XcpContext) {
        self.by = by;
        if by == XcpContext::Flow {
            self.forget_all();
        }
    }

    /// All pairs are forgotten.
    pub fn forget_all(&mut self) {
        self.is_touched |= !self.pairs.is_empty();
        let pairs = core::mem::take(&mut self.pairs);
        self.gone.extend(pairs.into_values().map(|pair| pair.id));
    }

    /// The pair with this gateway, if the queue has a place for it.
    fn get(&self, with: Identity) -> Option<&Pair> {
        self.pairs.get(&with).filter(|pair| !pair.has_no_queue)
    }

    fn get_mut(&mut self, with: Identity) -> Option<&mut Context> {
        let pair = self.pairs.get_mut(&with).filter(|pair| !pair.has_no_queue)?;
        self.is_touched = true;
        Some(&mut pair.context)
    }

    /// The same; where it is not known yet it begins, with packets of this size.
    fn get_or_begin(&mut self, now: Instant, with: Identity, packet_bytes: u32) -> Option<&mut Context> {
        if self.by == XcpContext::Flow || with == Identity::UNKNOWN {
            return None;
        }
        if !self.pairs.contains_key(&with) {
            let id = self.make_place(now)?;
            let context = Context::new(now, packet_bytes, u64::MAX);
            self.pairs.insert(
                with,
                Pair { id, context, reports: Reports::default(), told: None, has_no_queue: false },
            );
        }
        self.get_mut(with)
    }

    /// The gateway that has told this counts what has come in over the link.
    fn hear_report(&mut self, now: Instant, arrived: &Arrived) {
        let Some(pair) = self.pairs.get_mut(&arrived.by) else { return };
        if let Some(rtt) = pair.context.rtt() {
            let told = (arrived.at_us, arrived.received_bytes);
            pair.reports.hear(now, told, rtt, pair.context.window_bytes());
        }
    }

    /// A number that no pair has. Where all are taken, the pair goes that has rested longest.
    fn make_place(&mut self, now: Instant) -> Option<PairId> {
        if self.pairs.len() >= PAIRS_MAX {
            let resting = self.pairs.iter().filter(|(_, pair)| pair.context.is_idle(now));
            let oldest = *resting.min_by_key(|(_, pair)| pair.context.sent_at())?.0;
            self.forget(oldest);
        }
        let taken: BTreeSet<PairId> = self.pairs.values().map(|pair| pair.id).collect();
        let id = (0..PAIRS_MAX as u16).map(PairId).find(|id| !taken.contains(id))?;
        // Its queue stands, and gets another share.
        self.gone.remove(&id);
        Some(id)
    }

    fn forget(&mut self, with: Identity) {
        if let Some(pair) = self.pairs.remove(&with) {
            self.gone.insert(pair.id);
            self.is_touched = true;
        }
    }

    /// What the queue has to know, and has not been told; `None`: there is no such pair any more.
    fn news(&mut self, now: Instant) -> Vec<(PairId, Option<PairShare>)> {
        if now.since(self.looked_at) >= LOOK {
            self.looked_at = now;
            let is_over = |pair: &Pair| now.since(pair.context.sent_at()) > FORGET;
            let over: Vec<_> = self.pairs.iter().filter(|(_, p)| is_over(p)).map(|(with, _)| *with).collect();
            over.into_iter().for_each(|with| self.forget(with));
        }
        if !core::mem::take(&mut self.is_touched) {
            return Vec::new();
        }
        let mut news: Vec<_> = core::mem::take(&mut self.gone).into_iter().map(|id| (id, None)).collect();
        for pair in self.pairs.values_mut().filter(|pair| !pair.has_no_queue) {
            let share = pair.share();
            if pair.told.replace(share) != Some(share) {
                news.push((pair.id, Some(share)));
            }
        }
        news
    }

    /// The queue has no place for this pair.
    fn refuse(&mut self, id: PairId) {
        if let Some(pair) = self.pairs.values_mut().find(|pair| pair.id == id) {
            pair.has_no_queue = true;
        }
    }
}

impl Link {
    /// Whether flows to the same gateway share one allowance, where routers say how fast.
    #[must_use]
    pub fn xcp_context(&self) -> XcpContext {
        self.pairs.by
    }

    pub(crate) fn set_xcp_context(&mut self, by: XcpContext) {
        self.pairs.set_by(by);
    }

    /// The pairs with other gateways, for people.
    pub fn shares(&self) -> impl Iterator<Item = PairStatus> {
        self.pairs.pairs.iter().map(|(with, pair)| {
            let share = pair.share();
            PairStatus {
                gateway: format!("{:08x}", with.number()),
                rate_bps: share.rate_bps.unwrap_or(0),
                routers_speak: share.rate_bps.is_some(),
                flows: share.flows.into(),
                header: self.shims().map_or("", |shims| shims.word(*with)),
            }
        })
    }
}

impl Links {
    /// The pair that packets to this leg belong to.
    #[must_use]
    pub fn pair(&self, leg: &Leg) -> Option<PairId> {
        Some(self.get(leg.out)?.pairs.get(leg.explicit_peer()?)?.id)
    }

    /// What the pair that packets to this leg belong to may send.
    #[must_use]
    pub fn pair_share(&self, leg: &Leg) -> Option<PairShare> {
        Some(self.get(leg.out)?.pairs.get(leg.explicit_peer()?)?.share())
    }

    /// The gateway there has told what has come in over the link that packets to this leg leave by.
    pub(crate) fn hear_report(&mut self, now: Instant, leg: &Leg, arrived: &Arrived) {
        if let Some(link) = self.get_mut(leg.out) {
            link.pairs.hear_report(now, arrived);
        }
    }

    /// What the gateway of that pair has reported last.
    pub(crate) fn reported(&self, leg: &Leg) -> Option<Reported> {
        self.get(leg.out)?.pairs.get(leg.explicit_peer()?)?.reports.newest()
    }

    /// Its allowance.
    pub(crate) fn context_mut(&mut self, leg: &Leg) -> Option<&mut Context> {
        let with = leg.explicit_peer()?;
        self.get_mut(leg.out)?.pairs.get_mut(with)
    }

    /// The same; the first packet begins it, with this size and about this round trip.
    pub(crate) fn begin_context(
        &mut self,
        now: Instant,
        leg: &Leg,
        packet_bytes: u32,
        rtt: Option<Duration>,
    ) -> Option<&mut Context> {
        let with = leg.explicit_peer()?;
        let link = self.get_mut(leg.out).filter(|link| link.is_controlled_by_routers())?;
        let context = link.pairs.get_or_begin(now, with, packet_bytes)?;
        if let Some(rtt) = rtt.filter(|rtt| !rtt.is_zero()) {
            context.expect_rtt(rtt);
        }
        Some(context)
    }

    /// What the queues have to know of pairs and have not been told; `None`: there is no such pair
    /// any more.
    pub(crate) fn news_of_pairs(&mut self, now: Instant) -> Vec<(Way, PairId, Option<PairShare>)> {
        let mut news = Vec::new();
        for (n, link) in (0..).zip(&mut self.links) {
            let of_link = link.pairs.news(now).into_iter();
            news.extend(of_link.map(|(id, share)| (Way::Link(LinkId(n)), id, share)));
        }
        news
    }

    /// The queue of a link has no place for this pair.
    pub(crate) fn refuse_pair(&mut self, way: Way, id: PairId) {
        if let Some(link) = self.get_mut(way) {
            link.pairs.refuse(id);
        }
    }
}
