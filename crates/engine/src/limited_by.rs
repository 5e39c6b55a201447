//! What holds a split connection: its source, the gateway, the link, losses, or the receiver.

use crate::relays::Relays;
use crate::side::Side;

/// What holds the busier direction, and whose data that is.
#[must_use]
pub fn held_by(r: &Relays) -> (Side, Held) {
    let side = if r.a.custody_bytes() >= r.b.custody_bytes() { Side::A } else { Side::B };
    let x = r.get(side);
    let tx = &x.tx;
    let is_window_full = tx.window_edge().before(tx.snd_nxt() + tx.mss());
    let repeats = tx.board().lost_bytes() > 0;
    let held = if x.custody_bytes() == 0 {
        Held::Nothing
    } else if !repeats && !x.buffer.end().after(tx.snd_nxt()) {
        // All of it is under way. The source may have more, and no window for it.
        let room = x.rx.room_from(x.buffer.end());
        if tx.in_recovery() {
            // What is missing keeps the room that the source could fill, or is the last of it.
            Held::Losses
        } else if x.rx.fin_at().is_none() && room < x.rx.segment_bytes() {
            Held::Bound
        } else {
            Held::UnderWay
        }
    } else if tx.waits_for_pace() {
        Held::Pacing
    } else if tx.is_slowed_by_losses() {
        Held::Losses
    } else if tx.is_cwnd_limited() {
        Held::CongestionWindow
    } else if !repeats && is_window_full {
        // A hole keeps what came behind it in the receiver's buffer.
        if tx.in_recovery() && tx.board().sacked_bytes() > 0 { Held::Losses } else { Held::ReceiveWindow }
    } else {
        // Repetitions take their turn as new data does: a link that always has some is full.
        Held::Turn
    };
    (side, held)
}

/// What holds a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Nothing is to be sent.
    Nothing,
    /// All of it is under way, and the source sends no more.
    UnderWay,
    /// What may be held here.
    Bound,
    /// What was lost is repeated.
    Losses,
    /// The window of the destination.
    ReceiveWindow,
    /// The congestion window.
    CongestionWindow,
    /// Its own pace.
    Pacing,
    /// It waits for its turn on the link.
    Turn,
    /// The link is down, or silent and probed: nothing else is sent into it.
    LinkAway,
}

impl Held {
    /// The same where the link may be away that the direction leaves by. Whatever else holds it
    /// then comes of that.
    #[must_use]
    pub fn over(self, is_link_away: bool) -> Self {
        if is_link_away && self != Self::Nothing { Self::LinkAway } else { self }
    }

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing | Self::UnderWay => "nothing to send",
            Self::Bound => "what may be held",
            Self::Losses => "repairs losses",
            Self::ReceiveWindow => "receive window",
            Self::CongestionWindow => "congestion window",
            Self::Pacing => "pacing",
            Self::Turn => "turn on the link",
            Self::LinkAway => "link is away",
        }
    }

    /// Which of the four it counts as.
    #[must_use]
    pub fn limit(self) -> &'static str {
        match self {
            Self::Nothing | Self::UnderWay => "application",
            Self::Bound => "gateway",
            Self::Losses => "loss",
            Self::ReceiveWindow => "receiver",
            Self::CongestionWindow | Self::Pacing | Self::Turn | Self::LinkAway => "link",
        }
    }
}
