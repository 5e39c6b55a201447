//! One of the flows to the same gateway, which share what routers allow (XCP).

use farlink_wire::{Instant, SeqNum};
use farlink_xcp::{Context, Member};

use super::Sender;
use crate::peer::Identity;

/// What it has with the allowance that it shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) member: Member,
    /// The gateway that has told its sums.
    told_by: Identity,
}

impl Default for Membership {
    fn default() -> Self {
        Self { member: Member::of_new_flow(), told_by: Identity::UNKNOWN }
    }
}

impl Sender {
    /// It sends something again that was split before: its far gateway may go on with the old sum.
    pub fn wake_pair(&mut self) {
        self.pair.member.forget_sum();
    }

    /// This gateway has told what routers have left of all its wishes so far. An acknowledgement
    /// of `ack` that was overtaken tells what is old.
    pub fn hear_sum(
        &mut self,
        now: Instant,
        with: Identity,
        (ack, sum): (SeqNum, u32),
        context: Option<&mut Context>,
    ) {
        if !ack.after_eq(self.snd_una()) || !ack.before_eq(self.snd_nxt()) {
            return;
        }
        self.heard_sum = sum;
        let before = core::mem::replace(&mut self.pair.told_by, with);
        if before != with && before != Identity::UNKNOWN {
            self.pair.member.forget_sum();
        }
        let change = self.pair.member.hear(sum);
        self.governor.hear_sum(sum);
        if let Some(context) = context.filter(|_| self.cc().asks_routers() && self.cc().doubt().is_none()) {
            context.hear(now, change);
        }
    }

    /// It goes by the allowance that it shares, if there is one and routers speak. Where it has
    /// found out that they are not to be believed, all others hear of it.
    pub fn follow_pair(&mut self, now: Instant, mut context: Option<&mut Context>) {
        let parted = self.governor.take_parted();
        if let (Some(context), Some((why, rounds))) = (&mut context, parted) {
            context.doubt(now, why, rounds);
        }
        match context {
            Some(context) if context.speaks() => {
                let is_news = context.is_news_to(&mut self.pair.member);
                self.governor.share(context.window_bytes(), context.flows(), is_news);
            }
            context => self.governor.part(context.and_then(|context| context.doubted(now))),
        }
    }
}
