//! The window that a relay offers to its source: back-pressure (thesis chapter 6) and custody
//! within reach (invariant 7).

use farlink_wire::SeqNum;

/// What the offered window depends on.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The acknowledgement number that goes with the window.
    pub ack: SeqNum,
    /// Largest window shown to the source so far, bytes.
    pub shown_max_bytes: u32,
    /// Right edge shown before.
    pub edge: SeqNum,
    /// What the next TCP downstream has acknowledged.
    pub acked: SeqNum,
    /// What the far host has acknowledged, through all gateways.
    pub far_acked: SeqNum,
    /// Bytes the relay may hold by its policy.
    pub limit_bytes: u32,
    /// The source can lose this gateway at any time: the far host's own acknowledgement must stay
    /// acceptable to it.
    pub within_shown: bool,
    /// Largest window the field can say to this source, bytes.
    pub field_max_bytes: u32,
    /// Segment size, for silly-window avoidance.
    pub segment_bytes: u32,
    /// The far host's acknowledgements are coming: a larger window than any before may be shown
    /// although there is custody. What lies beyond the old one is acknowledged when they have
    /// caught up.
    pub moving: bool,
    /// Much of what is held only waits behind a repetition: what may be held is shown as a window
    /// beside it.
    pub behind_gap: bool,
    /// By more than so many quarters of the largest one shown: each time the source waits for an
    /// acknowledgement as long as the far host's take to catch up.
    pub raise_quarters: u32,
    /// How large that window may be at most, bytes.
    pub larger_max_bytes: u32,
    /// Much more could be held than the largest window shown allows: the edge stands still until it
    /// can be shown.
    pub pause: bool,
    /// No new promises: the pool is short, or the relay makes no progress.
    pub hold: bool,
}

impl Offer {
    /// The right edge to show now: at least the old one.
    #[must_use]
    pub fn right_edge(&self) -> SeqNum {
        if self.hold {
            return self.edge;
        }
        let limit = self.limit_bytes;
        let mut edge = self.acked + limit;
        if self.within_shown {
            // Custody over all gateways stays within the window that was shown (invariant 7). While
            // there is none, a larger window may be shown.
            let reach =
                if self.ack.before_eq(self.far_acked) { self.limit_bytes } else { self.shown_max_bytes };
            let within = edge.min(self.far_acked + reach.min(self.field_max_bytes));
            let most = self.field_max_bytes.min(self.larger_max_bytes);
            let beside = edge.diff(self.ack).max(0).unsigned_abs();
            let window = if self.behind_gap { limit } else { beside }.min(most);
            let much = self.shown_max_bytes.saturating_add(self.shown_max_bytes / 4 * self.raise_quarters);
            let larger = self.moving && window > much;
            if !larger && self.pause {
                return self.edge;
            }
            edge = if larger { self.ack + window } else { within };
        }
        edge = edge.min(self.ack + self.field_max_bytes);
        // Receiver SWS avoidance (RFC 9293 3.8.6.2.2).
        let step = self.segment_bytes.min(limit / 2).max(1);
        if edge.after(self.edge) && edge.since(self.edge) >= step { edge } else { self.edge }
    }
}

/// The window field for `bytes`, rounded down: what was promised before is still taken (RFC 7323
/// section 2.4).
#[must_use]
pub fn field(bytes: u32, shift: u8) -> u16 {
    u16::try_from(bytes >> shift.min(14)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            ack: SeqNum(1000),
            shown_max_bytes: 65_535,
            edge: SeqNum(1000),
            acked: SeqNum(1000),
            far_acked: SeqNum(1000),
            limit_bytes: 100_000,
            within_shown: true,
            field_max_bytes: 65_535,
            segment_bytes: 1448,
            moving: false,
            behind_gap: false,
            raise_quarters: 3,
            larger_max_bytes: u32::MAX,
            pause: false,
            hold: false,
        }
    }

    #[test]
    fn custody_stays_within_the_window_shown() {
        let o = offer();
        assert_eq!(o.right_edge(), SeqNum(66_535));
        let first = Offer { ack: SeqNum(2000), shown_max_bytes: 30_000, ..o };
        assert_eq!(first.right_edge(), SeqNum(31_000), "custody began before a larger window was shown");
        let full = Offer { ack: SeqNum(66_535), edge: SeqNum(66_535), acked: SeqNum(60_000), ..o };
        assert_eq!(full.right_edge(), SeqNum(66_535), "the far host has acknowledged nothing");
        let moving = Offer { moving: true, limit_bytes: 200_000, field_max_bytes: 1 << 20, ..full };
        assert_eq!(moving.right_edge(), SeqNum(260_000), "a larger window than any before");
        assert_eq!(Offer { pause: true, ..full }.right_edge(), full.edge);
        let pinned = Offer { within_shown: false, ..full };
        assert_eq!(pinned.right_edge(), SeqNum(132_070), "limited by the field");
    }

    #[test]
    fn behind_a_gap_the_whole_limit_is_shown_beside_what_waits() {
        let o = Offer {
            ack: SeqNum(101_000),
            far_acked: SeqNum(1000),
            edge: SeqNum(101_000),
            shown_max_bytes: 100_000,
            limit_bytes: 150_000,
            field_max_bytes: 1 << 20,
            moving: true,
            raise_quarters: 1,
            ..offer()
        };
        assert_eq!(o.right_edge(), o.edge);
        assert_eq!(Offer { behind_gap: true, ..o }.right_edge(), SeqNum(251_000));
        assert_eq!(
            Offer { behind_gap: true, limit_bytes: 120_000, ..o }.right_edge(),
            o.edge,
            "not much more"
        );
    }

    #[test]
    fn never_taken_back_and_not_silly() {
        let o = Offer { edge: SeqNum(66_000), ..offer() };
        assert_eq!(o.right_edge(), SeqNum(66_000));
        assert_eq!(Offer { hold: true, ..offer() }.right_edge(), SeqNum(1000));
        assert_eq!(Offer { limit_bytes: 20_000, ..offer() }.right_edge(), SeqNum(21_000));
        assert_eq!(field(127, 7), 0);
        assert_eq!(field(u32::MAX, 0), 65_535);
    }
}
