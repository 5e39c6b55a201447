//! Where a source's stream ends.
//!
//! A FIN above a hole is kept, as a host keeps it among what came out of order, but it is no more
//! than a claim: it binds nobody until everything before it is there. Data at or beyond its place,
//! its source's own numbers beyond it, or a FIN elsewhere show that it was false. A true one that
//! is forgotten so comes again, for it is not acknowledged.

use farlink_wire::{Pool, SeqNum, TcpSegment};

use crate::relay::Relay;

impl Relay {
    /// A segment with FIN whose payload ends at `end`, before that is taken; `whole`: there is room
    /// for all of it. `edge`: the end of what may come.
    pub(crate) fn hear_fin(&mut self, pool: &mut Pool, seq: SeqNum, end: SeqNum, edge: SeqNum, whole: bool) {
        let possible = end.after_eq(self.buffer.end()) && end.before_eq(edge.max(self.buffer.end()));
        if self.rx.fin_at().is_some() || !possible {
            return;
        }
        if end.before(self.buffer.highest()) {
            if !whole || seq.after(self.buffer.end()) {
                return;
            }
            // It is next in order: the stream ends here, and what waits beyond was never part of
            // it.
            self.buffer.clear_early(pool);
            self.end_push(end);
        }
        self.rx.claim_fin(end);
    }

    /// What a segment's numbers say against a FIN that is not believed yet: its source has sent
    /// beyond it.
    pub(crate) fn doubt_fin(&mut self, s: &TcpSegment) {
        let data_end = s.seq + s.payload_len as u32;
        let is_beyond = |f: SeqNum| data_end.after(f + 1) || (s.payload_len > 0 && data_end.after(f));
        if self.rx.fin_claimed().is_some_and(is_beyond) {
            self.rx.forget_fin_claim();
        }
    }

    /// What is held may have changed. Returns whether the stream is known to end from now on.
    pub(crate) fn settle_fin(&mut self) -> bool {
        let Some(fin) = self.rx.fin_claimed() else { return false };
        if fin.before(self.buffer.highest()) {
            self.rx.forget_fin_claim();
        } else if fin == self.buffer.end() {
            self.rx.end_at(fin);
            self.source_nxt = self.source_nxt.min(fin + 1);
            return true;
        }
        false
    }
}
