//! One of the flows to the same gateway, which share what routers allow (XCP).

use farlink_cc::Kind;
use farlink_wire::{Instant, SeqNum};
use farlink_xcp::{Context, Member, Reported};

use super::Sender;
use crate::bookmark::{Bookmark, bookmarks};
use crate::peer::Identity;

/// What it has with the allowance that it shares, and with the gateway that tells of routers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    pub(super) member: Member,
    /// The gateway that has told its sums.
    told_by: Identity,
    /// What is told before more than this is acknowledged is of another way, or for another
    /// controller.
    since: Bookmark,
}

bookmarks!(Membership { since });

impl Default for Membership {
    fn default() -> Self {
        Self { member: Member::of_new_flow(), told_by: Identity::UNKNOWN, since: Bookmark::NONE }
    }
}

/// What the gateway at the other end tells of routers.
#[derive(Clone, Copy, Debug)]
pub enum Feedback {
    /// The sum of all that they have left of the wishes, bytes a second modulo 2^32.
    Sum(u32),
    /// What they have left since it was told last, bytes a second.
    Since(i32),
}

impl Sender {
    /// It sends something again that was split before: its far gateway may go on with the old sum.
    pub fn wake_pair(&mut self) {
        self.pair.member.sums_mut().forget();
    }

    /// It ceases to go by what routers say, or goes by those of another way. Whatever is told of
    /// what is under way is not for the next controller: the receiver's sum goes on meanwhile, and
    /// only how it changes from then on counts.
    pub(super) fn leave_routers(&mut self) {
        if self.cc().kind() == Kind::Xcp {
            self.pair.member = Member::default();
            *self.pair.since = Some(self.snd_nxt());
        }
    }

    /// This gateway has told what routers have left of its wishes. An acknowledgement of `ack` that
    /// was overtaken tells what is old.
    pub fn hear_routers(
        &mut self,
        now: Instant,
        with: Identity,
        (ack, told): (SeqNum, Feedback),
        context: Option<&mut Context>,
    ) {
        if !ack.after_eq(self.snd_una()) || !ack.before_eq(self.snd_nxt()) {
            return;
        }
        let allowed = self.allowed_bytes_per_s(context.as_deref());
        let before = core::mem::replace(&mut self.pair.told_by, with);
        let sums = self.pair.member.sums_mut();
        if before != with && before != Identity::UNKNOWN {
            sums.forget();
        }
        let change = match told {
            Feedback::Sum(sum) => sums.hear(sum, allowed),
            Feedback::Since(change) => sums.hear_since(change),
        };
        *self.pair.since = self.pair.since.filter(|since| ack.before_eq(*since));
        if self.pair.since.is_some() {
            return;
        }
        self.governor.hear_routers(change);
        if let Some(context) = context.filter(|_| self.cc().asks_routers() && self.cc().doubt().is_none()) {
            context.hear(now, change);
        }
    }

    /// The gateway at the other end has reported what has come in of all flows that share with this
    /// one.
    pub fn hear_report(&mut self, reported: Reported) {
        self.governor.hear_report(reported);
    }

    /// What may be sent now, bytes a second; without a round trip nobody knows.
    fn allowed_bytes_per_s(&self, context: Option<&Context>) -> u64 {
        let shared = context.filter(|context| context.speaks());
        let shared = shared.and_then(|context| Some((context.window_bytes(), context.rtt()?)));
        match shared.filter(|(_, rtt)| !rtt.is_zero()) {
            Some((window_bytes, rtt)) => (window_bytes as f64 / rtt.as_secs_f64()) as u64,
            None => self.pacing_rate().map_or(u64::MAX, |bps| bps / 8),
        }
    }

    /// It goes by the allowance that it shares, if there is one and routers speak. Where it has
    /// found out that they are not to be believed, all others hear of it.
    pub fn follow_pair(&mut self, now: Instant, mut context: Option<&mut Context>) {
        // Kept longer, it would stand for bytes half the sequence space away.
        *self.pair.since = self.pair.since.filter(|since| self.snd_una().before_eq(*since));
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
