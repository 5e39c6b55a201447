//! What an arriving segment means for its split connection.

use arrayvec::ArrayVec;
use farlink_wire::{Duration, Ecn, FarlinkOption, PacketBuf, SackBlock, SeqNum, TcpSegment, edit};

use crate::cx::Cx;
use crate::event::Event;
use crate::evidence::AckKind;
use crate::explicit::tell_trust;
use crate::fate::Fate;
use crate::leg::Leg;
use crate::net::Way;
use crate::overtaken::{covered, tell_of_link};
use crate::peer::{Arrived, Message, TOLD_WINDOW_MAX};
use crate::queue_drop::Held;
use crate::reach::STRANGER_BYTES;
use crate::receiver::{self, Early};
use crate::relays::Over;
use crate::runs::RUNS_MAX;
use crate::side::Side;
use crate::split::Split;
use crate::tally::count_needless;

/// What is thought of a segment before it is believed.
enum Judged {
    /// Nobody needs it.
    Dropped,
    /// The other host is to judge it.
    Passed,
    /// Its acknowledgement is of this kind.
    Counts(AckKind),
}

/// A host of which nothing is heard for so long, through three timeouts and more, may be answering
/// past us. A crowded leg loses a segment three times within two seconds, and four times within
/// five.
const UNHEARD: Duration = Duration::from_secs(6);
/// A segment of more than this is the beginning of bulk data: its source is worth a larger window.
const RAISE_FROM_BYTES: u32 = 512;
/// The same on a link of our own: there it is an outage that nobody has announced, and what its
/// source sends is better kept.
const UNHEARD_ON_LINK: Duration = Duration::from_secs(60);

impl Split<'_> {
    /// A segment from a host of a split or draining flow.
    pub fn on_segment(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, mut packet: PacketBuf) -> Fate {
        if s.flags.syn() {
            return self.on_syn(cx, from, s, packet);
        }
        if s.flags.rst() {
            return self.on_rst(cx, from, s, packet);
        }
        if s.is_iack() && !self.is_in_window(from, s) {
            // Of a gateway further on, for hosts that know it.
            return Fate::Forward(packet);
        }
        let kind = match self.judge(cx, from, s) {
            Judged::Dropped => return Fate::taken(cx.pool, packet),
            Judged::Passed => return Fate::Forward(packet),
            Judged::Counts(kind) => kind,
        };
        self.note_source(from, s);
        let acceptable = self.is_in_window(from, s);
        if !acceptable && !self.is_probe(from, s) {
            return self.out_of_window(cx, from, s, packet);
        }
        let before = self.legs.get(from).heard_at();
        let current = self.is_current(from, s);
        let (runs, arrived) = self.hear(cx, from, s, &kind);
        self.hear_explicitly(cx, from, s, &packet);
        let r = &mut *self.relays;
        r.get_mut(from).doubt_fin(s);
        r.get_mut(from.other()).tx.hear_word(cx.now, before, s.ack);
        r.new_syn = r.new_syn.filter(|n| n.from != from);
        self.update_ts_recent(from, s);
        self.on_ece_and_ce(from, s);
        if self.contradicts_itself(cx, from, s.ack) {
            self.relays.end(Over::Abandoned);
            return Fate::taken(cx.pool, packet);
        }
        self.confirm(cx, from, s);
        let believed = matches!(kind, AckKind::Certain);
        if believed {
            self.believe(cx, from, s.ack);
            self.owe_now(from.other());
        }
        let sack = if runs.is_empty() { s.options.sack.as_slice() } else { runs.as_slice() };
        // What a host would drop as a duplicate acknowledges nothing, and shows no window.
        let news = current && self.take_ack(cx, from, s, sack, arrived) || believed;
        if matches!(kind, AckKind::AllSent) {
            // What lies beyond concerns the host that sent it.
            return Fate::Forward(packet);
        }
        if s.payload_len == 0 && !s.flags.fin() {
            return self.pure_ack(cx, from, s, packet, news);
        }
        if self.is_past_frozen_edge(from, s) {
            self.rewrite(cx, from, s, &mut packet);
            return Fate::Forward(packet);
        }
        self.see_size(from, s, &packet);
        self.take_payload(cx, from, s, packet)
    }

    /// Whether a segment counts here, by all but its sequence number.
    fn judge(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment) -> Judged {
        if !s.flags.ack() {
            return Judged::Passed;
        }
        if self.relays.is_reset_by(from) {
            // Its reset is on the way to the other host; nothing it repeats matters.
            return Judged::Dropped;
        }
        if self.legs.get(from).is_old_stamp(cx.now, self.agreed, s) {
            self.take_old(cx, from, s);
            return Judged::Dropped;
        }
        match self.judge_ack(cx, from, s) {
            AckKind::TooOld => {
                self.challenge(cx, from);
                Judged::Dropped
            }
            kind @ AckKind::Doubtful { exact, repeated } => {
                cx.happened(self.legs, Event::Bypassed);
                self.note_bypass();
                if exact && repeated {
                    self.hear(cx, from, s, &kind);
                }
                if exact {
                    self.see_direct(cx, from.other());
                }
                self.ask_about_beyond(cx, from);
                Judged::Passed
            }
            kind @ (AckKind::Good | AckKind::AllSent | AckKind::Certain) => Judged::Counts(kind),
        }
    }

    /// A segment of a host that its other host would take, by what is known here.
    pub(crate) fn is_word_of(&self, from: Side, s: &TcpSegment) -> bool {
        let towards = self.relays.get(from.other());
        let (age, reach) = towards.age_and_reach(s.ack);
        // It acknowledges nothing that was not sent from here, and nothing older than any window
        // reaches back.
        let of_sent = s.ack.before_eq(towards.tx.snd_nxt()) && age <= reach;
        of_sent && (self.is_in_window(from, s) || self.is_probe(from, s))
    }

    /// The option, where it can be a gateway's: gateways stand at the ends of declared links.
    pub(crate) fn option_of_gateway<'s>(&self, cx: &Cx<'_>, s: &'s TcpSegment) -> Option<&'s FarlinkOption> {
        s.options.farlink.as_ref().filter(|_| cx.links.at(self.came_by).is_some())
    }

    /// Takes in who speaks. Returns what a gateway on this leg holds above a gap, and what has
    /// arrived over the link there.
    fn hear(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        s: &TcpSegment,
        kind: &AckKind,
    ) -> (ArrayVec<SackBlock, RUNS_MAX>, Option<Arrived>) {
        let current = self.is_current(from, s);
        if let (true, true, Some(t)) = (current, self.agreed.timestamps, s.options.timestamps) {
            // What it echoes the other host has sent, though it may have gone round us; our next
            // segments are no older.
            if self.legs.get_mut(from.other()).hear_of(t.ecr) {
                self.see_direct(cx, from.other());
            }
        }
        let option = self.option_of_gateway(cx, s);
        let leg = self.legs.get_mut(from);
        leg.came_by = self.came_by;
        if current {
            leg.hear(cx.now, s);
        } else {
            leg.note_heard(cx.now);
        }
        let before = leg.peer.hello().filter(|_| leg.peer.is_heard());
        let introduction = self.relays.get_mut(from).rx.introduction_mut();
        let is_stripped = introduction.hear(cx.now, &mut leg.peer, option, from == Side::A, cx.links.hello());
        let of_handshake = introduction.is_needless();
        // Of a gateway whose name was lost: its acknowledgement is not the far host's word.
        let of_nameless = introduction.is_asking() && option.is_some();
        let told = leg.peer.on_segment(option).map(|told| told.at(s.ack));
        if let Some(link) = cx.links.at(leg.came_by) {
            leg.peer.restrict(|hello| link.admits(hello));
        }
        let heard = leg.peer.is_heard();
        if let Some(hello) = leg.peer.hello().filter(|hello| heard && before != Some(*hello))
            && let Some(link) = cx.links.at_mut(leg.came_by)
        {
            link.meet(hello, leg.addr);
            link.note_met(cx.now, leg.addr, of_handshake && from == Side::A);
        }
        if is_stripped && let Some(link) = cx.links.at_mut(leg.came_by) {
            link.boxes_mut().note_stripped(cx.now, leg.addr);
        }
        leg.take_told_window(s.ack, u32::from(s.window) << leg.window_scale, told.as_ref());
        self.govern_by_gateway(cx, from);
        let leg = self.legs.get(from);
        let towards = self.relays.get_mut(from.other());
        towards.tx.note_gateway(heard, self.agreed.sack);
        towards.tx.expect_of_link(cx.links.get(leg.out), leg.peer.identity());
        // What is said of bytes that were never sent from here is hearsay, in a gateway's message,
        // too.
        let ack = if *kind == AckKind::Certain { s.ack } else { s.ack.min(towards.tx.snd_nxt()) };
        // A doubtful acknowledgement is not the far host's word: what is held stays unacknowledged.
        if told.is_some() || !matches!(kind, AckKind::Doubtful { .. }) {
            let nameless = of_nameless.then(Message::default);
            towards.hear_far(ack, told.as_ref().or(nameless.as_ref()), heard);
        }
        let Some(told) = told else { return (ArrayVec::new(), None) };
        self.relays.get_mut(from).rx.marks_mut().note_heard();
        let towards = self.relays.get_mut(from.other());
        let twice_bytes = told.twice_bytes.map_or(0, |bytes| towards.tx.hear_twice(bytes));
        count_needless(cx, leg.out, &mut towards.tx, twice_bytes);
        if let Some(heard) = told.shims {
            self.hear_of_shims(cx, from, heard);
        }
        self.exchange_adverts(cx, from, told.link);
        (told.runs.blocks(s.ack), told.arrived)
    }

    /// TS.Recent moves with segments that reach the last acknowledgement sent (RFC 7323 4.3).
    fn update_ts_recent(&mut self, from: Side, s: &TcpSegment) {
        let (true, Some(t)) = (self.agreed.timestamps, s.options.timestamps) else { return };
        if !self.binds() {
            // It is echoed what the far host echoes: so it learns the round trip of the whole path.
            let source = self.legs.get_mut(from.other());
            if self.relays.get(from).rx.last_ack_sent().before_eq(s.end_seq())
                && (t.ecr.wrapping_sub(source.ts_recent()) as i32) > 0
            {
                source.note_stamp(t.ecr);
            }
            return;
        }
        let r = &*self.relays;
        if s.seq.before_eq(r.get(from).rx.last_ack_sent()) && self.is_current(from, s) {
            self.legs.get_mut(from).note_stamp(t.val);
        }
    }

    /// Not wholly of what was acknowledged before, which a host drops unread (RFC 9293 3.10.7.4): a
    /// guess among old numbers, of which there are many, must not teach timestamps. Keepalives
    /// stand next to the last acknowledgement.
    fn is_current(&self, from: Side, s: &TcpSegment) -> bool {
        (s.end_seq() + 1).after_eq(self.relays.get(from).rx.last_ack_sent())
    }

    /// RFC 9293 3.10.7.4, with what lies before the window counted as acceptable when it reaches
    /// back no further than the window did: it is answered, not passed on.
    pub(crate) fn is_in_window(&self, from: Side, s: &TcpSegment) -> bool {
        let r = &*self.relays;
        let relay = r.get(from);
        let nxt = relay.rcv_nxt();
        let back = relay.rx.window_shown_max().max(65_536);
        if s.seq.before(nxt) {
            return nxt.since(s.seq) <= back;
        }
        let end = relay.frozen_at().map_or(relay.rx.edge(), |f| f.max(relay.rx.edge()));
        s.seq.before(end) || (s.seq == nxt) || (s.seq_len() == 0 && s.seq.before_eq(end))
    }

    /// A probe of a closed window or a keepalive: next to what is expected.
    pub(crate) fn is_probe(&self, from: Side, s: &TcpSegment) -> bool {
        let r = &*self.relays;
        let nxt = r.get(from).rcv_nxt();
        s.seq == nxt || s.seq + 1 == nxt
    }

    /// Neither ours to take nor to judge: the host at the other end does that.
    fn out_of_window(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, mut packet: PacketBuf) -> Fate {
        let r = &*self.relays;
        let nxt = r.get(from).rcv_nxt();
        if s.seq.after(nxt) || u64::from(nxt.since(s.seq)) > STRANGER_BYTES {
            cx.happened(self.legs, Event::Bypassed);
            self.note_bypass();
            if s.payload_len <= 1 {
                // It may be a probe of our own window, by a source that counts from what it has
                // sent.
                self.challenge(cx, from);
            }
            if self.relays.is_draining() {
                self.rewrite(cx, from, s, &mut packet);
            }
            self.note_passed(cx, from, s);
            Fate::Forward(packet)
        } else {
            self.challenge(cx, from);
            Fate::taken(cx.pool, packet)
        }
    }

    fn on_ece_and_ce(&mut self, from: Side, s: &TcpSegment) {
        if !self.agreed.ecn {
            return;
        }
        let r = &mut *self.relays;
        let rx = &mut r.get_mut(from).rx;
        if s.flags.cwr() {
            rx.ece = false;
        }
        if s.ip.ecn() == Ecn::Ce {
            rx.ece = true;
            rx.owe_now();
        }
    }

    /// A host's word has come, or an answer. Who sits where the other host does can say anything in
    /// this one's name, but nothing of the link.
    fn tell_link(&self, cx: &mut Cx<'_>, from: Side, answers: bool) {
        let out = self.legs.get(from).out;
        let by = self.came_by;
        if cx.links.way(by) == out || by != self.legs.get(from.other()).came_by {
            cx.links.hear_word(cx.now, out, answers);
        }
    }

    /// Hands the acknowledgement to its sender. Returns whether it told anything new.
    fn take_ack(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        s: &TcpSegment,
        sack: &[SackBlock],
        arrived: Option<Arrived>,
    ) -> bool {
        let (now, ece) = (cx.now, self.agreed.ecn && s.flags.ece());
        let (window, downstream) = (self.legs.get(from).window_bytes(), self.legs.get(from).peer);
        // `hear` has just looked at this very segment.
        let marked = downstream.is_speaking();
        let upstream = self.legs.get(from.other()).peer;
        let far_delay = self.far_told_after(self.ack_policy(cx, from.other()).longest(), from.other());
        let answers = self.answers_question(cx, from, s);
        let r = &mut *self.relays;
        let towards = r.get_mut(from.other());
        let pure = s.payload_len == 0 && !s.flags.fin() && u64::from(window) == towards.tx.window_bytes();
        let ack = s.ack.min(towards.tx.snd_nxt());
        towards.tx.note_stamps(s.options.timestamps.filter(|_| !downstream.is_marked()));
        let happened = towards.tx.on_ack(now, ack, sack, pure, ece);
        count_needless(cx, self.legs.get(from).out, &mut towards.tx, happened.twice_bytes);
        let opened = towards.tx.update_window(s.seq, ack, u64::from(window), marked);
        let of_link = arrived.map(|a| (a, covered(&towards.tx, ack, sack)));
        tell_of_link(cx, self.legs.get(from), s, (of_link, &happened));
        if happened.recovery {
            cx.happened(self.legs, Event::Recovers(from));
        }
        tell_trust(cx, self.legs, &mut towards.tx, from);
        let mut timeouts = None;
        if happened.progress {
            towards.note_acked(now);
            timeouts = Some(towards.forget_timeouts());
            towards.release(cx.pool, ack);
        }
        let held_back = towards.rx.is_ack_held_back() && (happened.progress || towards.is_far_known());
        if upstream.is_heard() && happened.progress {
            towards.owe_far_word(now, upstream, far_delay);
        }
        towards.tx.on_word(now);
        if timeouts.is_some_and(|n| self.legs.get_mut(from).path_mtu.on_progress(n)) {
            self.refit_segments(from);
        }
        self.on_mtu_probe(cx, from, happened.mtu_probe);
        let says_more =
            (held_back || !self.binds()) && self.ack_for(from.other()).after(self.last_ack_to(from.other()));
        if says_more {
            self.owe_now(from.other());
        }
        self.tell_link(cx, from, answers || happened.delivered_bytes > 0);
        self.hear_of_room(cx, from, (ack, sack), (pure, opened, &happened));
        self.tell_pair(cx, from, &happened, arrived.as_ref());
        happened.progress || opened || says_more
    }

    /// A segment that only acknowledges: digested, unless it is about nothing that we hold
    /// (keepalives and their answers, window updates of a drained direction), which concerns the
    /// other host.
    fn pure_ack(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        s: &TcpSegment,
        mut packet: PacketBuf,
        news: bool,
    ) -> Fate {
        let holds = self.relays.holds();
        let r = &*self.relays;
        let keepalive = s.seq + 1 == r.get(from).rcv_nxt();
        let drained = r.get(from.other()).is_drained();
        let answer = r.get(from.other()).waits_for_answer();
        // Whether a host that does not progress lives is for the hosts to find out.
        let stalled = r.get(from).is_stalled() && !self.is_down(cx, from.other());
        // What is only held behind a gap is the source's still: whether it lives is not ours to
        // say.
        let owes = self.owes();
        let speaking = self.legs.get(from).peer.is_speaking();
        if keepalive && (!owes || stalled) && !self.answers_for(cx, from.other()) {
            // A gateway asks for itself: it may have missed the window, or have a link that was
            // silent.
            if speaking {
                self.answer_gateway(cx, from);
                if self.has_just_asked(cx.now, from) {
                    return Fate::taken(cx.pool, packet);
                }
            }
            self.rewrite(cx, from, s, &mut packet);
            self.pass_keepalive(cx, from);
            return Fate::Forward(packet);
        }
        if drained && (s.ack.after(r.get(from.other()).tx.snd_una()) || !news) {
            self.rewrite(cx, from, s, &mut packet);
            // It gives the other host the acknowledgement that it is owed.
            self.relays.get_mut(from.other()).rx.owe_nothing();
            return Fate::Forward(packet);
        }
        if keepalive && speaking {
            self.answer_gateway(cx, from);
        } else if keepalive {
            self.owe_now(from);
        } else if (holds || speaking) && !news && s.seq.before(r.get(from).rcv_nxt()) {
            // It does not know how far we are (RFC 9293 3.10.7.4, first check): a gateway behind a
            // gap asks so, or one whose link was silent.
            self.challenge(cx, from);
        } else if ((answer && !owes) || (!news && !holds))
            && s.options.sack.is_empty()
            && !speaking
            && !self.relays.is_draining()
        {
            // The answer to a keepalive, or a window update that changes nothing here.
            self.relays.get_mut(from.other()).note_keepalive(None);
            self.rewrite(cx, from, s, &mut packet);
            return Fate::Forward(packet);
        }
        Fate::taken(cx.pool, packet)
    }

    /// Draining: what lies past the frozen edge is forwarded.
    fn is_past_frozen_edge(&self, from: Side, s: &TcpSegment) -> bool {
        let frozen = self.relays.get(from).frozen_at();
        frozen.is_some_and(|frozen| s.seq.after_eq(frozen))
    }

    /// A forwarded segment of a flow that is split in the other direction speaks for us there: its
    /// acknowledgement, window and echoed timestamp are what we have told the other host.
    fn rewrite(&mut self, cx: &Cx<'_>, from: Side, s: &TcpSegment, packet: &mut PacketBuf) {
        let to = from.other();
        let mine = self.ack_for(to);
        // What a gateway has acknowledged is for the next one. The window that it has room for is
        // the source's, too.
        let is_host = !self.legs.get(from).peer.is_speaking();
        let ack = if is_host && s.ack.after(mine) { s.ack } else { mine };
        if ack != s.ack {
            edit::set_ack(packet, s, ack);
        }
        let (window, ..) = self.window_for(cx, to, ack);
        let window = window.max(s.window);
        edit::set_window(packet, s, window);
        let shift = if self.agreed.window_scale { self.legs.get(from).window_scale } else { 0 };
        // What the host itself promises is taken here, too: the source cannot tell who promised.
        if s.end_seq().before(self.relays.get(from).rcv_nxt()) && self.wants_window_update(cx, to) {
            // A keepalive: the source drops it, and with it the window (RFC 9293 3.10.7.4).
            self.owe_now(to);
        }
        let rx = &mut self.relays.get_mut(to).rx;
        rx.note_shown_up_to(ack + (u32::from(window) << shift.min(14)));
        if self.agreed.timestamps && s.options.timestamps.is_some() {
            edit::set_timestamp_echo(packet, s, self.legs.get(to).ts_recent());
        }
    }

    /// Whether a segment goes on as it came: a keepalive while nothing is held, data for a host
    /// that is not heard here any more, or what its source alone may have yet.
    fn lets_pass(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment) -> bool {
        let is_direct = !self.binds() && !self.legs.get(from.other()).peer.is_speaking();
        if self.relays.get_mut(from).is_lost(cx.now, is_direct, s.seq, s.end_seq()) {
            // Into a link that is away it would go in vain: its source sends it again.
            return !self.waits_for_link(cx.links, from.other());
        }
        self.hasten_far_word(cx.now, from, s);
        let relay = self.relays.get(from);
        let (nxt, len) = (relay.rcv_nxt(), s.payload_len as u32);
        // What a gateway asks, it asks us.
        let is_host = !self.legs.get(from).peer.is_speaking();
        let asks = s.seq + 1 == nxt && len <= 1 && !s.flags.fin() && !self.relays.holds();
        if asks && is_host && !self.answers_for(cx, from.other()) {
            self.pass_keepalive(cx, from);
            return true;
        }
        let is_direct = relay.has_timed_out() && self.legs.get(from.other()).is_direct();
        let silent = is_direct || self.is_unheard(cx, from.other());
        let passes = silent && s.seq.after_eq(nxt) && len > 0 && !self.waits_for_link(cx.links, from.other());
        if passes {
            // No more early acknowledgements: the packet reaches the host, and the answer its
            // source.
            self.note_passed(cx, from, s);
        }
        passes
    }

    /// Nothing is heard of this host for so long that it may be answering round us.
    pub(crate) fn is_unheard(&self, cx: &Cx<'_>, host: Side) -> bool {
        let leg = self.legs.get(host);
        let patience = if matches!(leg.out, Way::Link(_)) { UNHEARD_ON_LINK } else { UNHEARD };
        self.relays.get(host.other()).is_stalled() && cx.now.since(leg.heard_at()) >= patience
    }

    /// Bytes at the beginning of a segment that a source which sends too fast is to send again: the
    /// first of several segments that came as one may be dropped alone.
    fn drop_first(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment) -> u32 {
        // A host without SACK may not know fast retransmit either.
        let drops =
            cx.config.queue_drop && self.binds() && self.agreed.sack && !self.legs.get(from).peer.is_marked();
        if !drops || s.payload_len == 0 || s.flags.fin() || s.flags.urg() {
            return 0;
        }
        let upstream = self.round_trip(cx, from).unwrap_or_default();
        let r = &mut *self.relays;
        let relay = r.get_mut(from);
        if relay.is_frozen() {
            return 0;
        }
        let held = Held { rx: &relay.rx, buffer: &relay.buffer, cwnd_bytes: relay.tx.cc().cwnd_bytes() };
        let dropped = relay.queue_drop.drops(cx.now, upstream, (s.seq, s.payload_len as u32), &held);
        if dropped > 0 {
            cx.happened(self.legs, Event::QueueDrop(from));
        }
        dropped
    }

    fn take_payload(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, packet: PacketBuf) -> Fate {
        if self.lets_pass(cx, from, s) {
            return Fate::Forward(packet);
        }
        let (policy, limit) = (self.policy_for(cx, from, s), self.held_limit(cx, from));
        let grain = self.grain(cx, from, limit, s.payload_len as u32);
        let via = self.legs.get(from).came_by;
        let speaks = self.legs.get(from).peer.is_speaking();
        let come = cx.links.come(cx.now, via, (policy, speaks, self.relays.get(from).buffer.has_early()));
        let shows_first = self.shows_before_acking(from);
        let Leg { window_scale: shift, out, .. } = *self.legs.get(from.other());
        let dropped = self.drop_first(cx, from, s);
        let (seq, len) = (s.seq + dropped, s.payload_len as u32 - dropped);
        if dropped > 0 && len == 0 {
            return Fate::taken(cx.pool, packet);
        }
        let crowd = if self.binds() { None } else { cx.links.crowd(out) };
        let relay = self.relays.get_mut(from);
        let taken = relay.room_for(cx.pool, packet.capacity(), (seq, len), crowd);
        if taken < len {
            cx.happened(self.legs, Event::NoBuffer(from));
        }
        if taken == 0 && len > 0 {
            // It is told where we stand: a source that gets no answer gives up (RFC 9293 3.8.6.1,
            // MUST-36).
            relay.rx.owe_now();
            return Fate::taken(cx.pool, packet);
        }
        let end = seq + len;
        let edge = relay.frozen_at().unwrap_or(relay.rx.edge());
        let edge = relay.rx.fin_at().map_or(edge, |f| edge.min(f));
        if s.flags.fin() {
            relay.hear_fin(cx.pool, seq, end, edge, taken == len);
        }
        if s.flags.urg() {
            relay.note_urgent(s, len);
        }
        let early = Early { waiting: relay.buffer.has_early(), new_gap: seq.after(relay.buffer.highest()) };
        let segment_bytes = segment_bytes(&packet, len);
        relay.buffer.grain = grain;
        let at = s.payload_offset + dropped as usize;
        let what = receiver::insert(&mut relay.buffer, cx.pool, packet, seq, at, taken as usize, edge);
        cx.links.arrived(cx.now, out, what.advanced_bytes + what.early_bytes);
        if relay.settle_fin() {
            let fin = relay.buffer.end();
            relay.note_fin(cx.now);
            // Nobody will use what was promised beyond it.
            cx.links.arrived(cx.now, out, if edge.after(fin) { edge.since(fin) } else { 0 });
            relay.note_bypass(cx.routes_unsteady);
        }
        if relay.begin() {
            cx.links.began(out);
        }
        cx.counters.payload_in_bytes += u64::from(what.advanced_bytes + what.early_bytes);
        cx.counters.duplicate_bytes += u64::from(what.duplicate_bytes);
        if s.flags.psh() {
            relay.note_push(end);
        }
        let bulk = what.advanced_bytes > RAISE_FROM_BYTES || what.early_bytes > 0;
        relay.rx.raise_first = shows_first && bulk && relay.may_raise(limit, shift);
        relay.rx.note_segment(segment_bytes);
        relay.rx.note_come(&come, bulk && !relay.buffer.has_early());
        relay.rx.on_payload(cx.now, seq, len, what, early, policy);
        relay.rx.hasten(cx.now, s.flags.fin(), come.is_due && bulk, policy);
        self.notify(cx, from);
        Fate::Taken
    }

    /// Packets of this host are seen to reach the other one round us. Where we wait for its word,
    /// none will come.
    fn see_direct(&mut self, cx: &Cx<'_>, host: Side) {
        let from = host.other();
        let waits = self.relays.get(from).has_timed_out();
        if self.legs.get_mut(host).see_direct() && waits {
            self.pass_round(cx, from);
        }
    }

    /// A segment behind what is held goes on to a host that answers round us. When its source has
    /// sent more than any window allows it to have under way, all that is held here has been
    /// acknowledged to it. A gateway may have been told a larger window than the header has room
    /// for, by another one that answers round us.
    fn note_passed(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment) {
        let far = self.legs.get(from.other());
        let (direct, window_scale) = (far.is_direct(), far.window_scale);
        let of_gateway = self.legs.get(from).peer.is_marked();
        let most = if of_gateway { TOLD_WINDOW_MAX } else { u32::from(u16::MAX) << window_scale.min(14) };
        if !direct || s.payload_len == 0 {
            return;
        }
        let relay = self.relays.get_mut(from);
        let before = relay.passed_end.map_or(relay.rcv_nxt(), |end| end.max(relay.rcv_nxt()));
        if !relay.has_timed_out() || s.seq.after(before + u32::from(u16::MAX)) {
            // A stream goes on where it was: a number far ahead may be anybody's.
            return;
        }
        let end = before.max(s.end_seq());
        *relay.passed_end = Some(end);
        let acked = end - most;
        if end.after(relay.rx.edge()) && acked.after_eq(relay.rcv_nxt()) {
            relay.buffer.clear(cx.pool);
            let next = relay.rcv_nxt();
            relay.tx.skip_to(cx.now, next);
            relay.forget_timeouts();
            if !self.relays.holds() && !self.relays.is_draining() {
                self.relays.end(Over::Asleep);
            }
        }
    }

    /// Packets of this connection go another way, too.
    fn note_bypass(&mut self) {
        let r = &mut *self.relays;
        r.a.note_bypass(true);
        r.b.note_bypass(true);
    }

    /// The acknowledgement number that a host was sent last.
    fn last_ack_to(&self, to: Side) -> SeqNum {
        self.relays.get(to).rx.last_ack_sent()
    }

    /// A gateway asks where we stand. Where it has little room to ask, it is to hear it soon: full
    /// segments of data tell nothing, and it would ask again and again.
    fn answer_gateway(&mut self, cx: &Cx<'_>, from: Side) {
        let link = cx.links.get(self.legs.get(from).out);
        let rx = &mut self.relays.get_mut(from).rx;
        if link.is_some_and(|link| !link.acks_late_by().is_zero()) {
            rx.answer_gateway();
        } else {
            rx.owe_now();
        }
    }

    /// An acknowledgement is owed to this host at once.
    pub fn owe_now(&mut self, to: Side) {
        self.relays.get_mut(to).rx.owe_now();
    }

    /// A challenge ACK (RFC 5961), within the limits of this connection and of all.
    pub fn challenge(&mut self, cx: &mut Cx<'_>, to: Side) {
        if !self.answers.may_answer(cx.now) || !cx.challenges.take() {
            return;
        }
        cx.happened(self.legs, Event::Challenged(to));
        self.owe_now(to);
    }
}

/// Payload of each segment that was on the wire: a super-segment is several, and each second one is
/// acknowledged at once.
fn segment_bytes(packet: &PacketBuf, payload_bytes: u32) -> u32 {
    let gso_size = packet.offload.is_super_segment().then_some(packet.offload.gso_size);
    gso_size.map_or(payload_bytes, |g| u32::from(g).min(payload_bytes))
}

impl crate::relay::Relay {
    /// A larger window can be shown to the source while nothing has been acknowledged ahead of the
    /// far host.
    fn may_raise(&self, limit_bytes: u32, shift: u8) -> bool {
        let nothing_acked = self.rx.last_ack_sent().before_eq(self.far_acked());
        let larger = self.can_show_more(limit_bytes, shift, 65_535u32 << shift);
        nothing_acked && larger && !self.is_frozen()
    }
}
