//! What is known of whether a host takes segments that are larger than a packet.

use farlink_wire::{Instant, SeqNum};

use crate::bookmark::{Bookmark, bookmarks};

/// Whether a host gets segments that are larger than a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It takes them, where their fragments carry DF, or do not.
    Takes {
        /// They carry it.
        dont_fragment: bool,
    },
    /// They do not get to it, or it does not take them.
    Refuses,
}

/// What is known of a leg.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oversizing {
    /// Packets of full size have arrived, since they were last made smaller.
    pub packets_arrive: bool,
    /// What this connection sends first tells how large packets may be.
    pub tests_size: bool,
    /// What was sent before this was too large for the path, and lost for that.
    pub excused: Bookmark,
    /// When a whole packet went last.
    pub whole_at: Option<Instant>,
    /// It left in place of a large segment, of which so much is left for the next one.
    pub rest_bytes: Option<u32>,
    /// The copy that is under way.
    pub asked: Option<Asked>,
    /// Those before it, which nothing has been heard of: answers may be late.
    pub unanswered: [Option<Asked>; 3],
    /// Another connection asks the same host, and this one waits for what it finds out.
    pub follows: bool,
    /// Copies so far.
    pub tries: u8,
    /// What is known.
    pub verdict: Option<Verdict>,
    /// When the large segment left that left last of those that have arrived.
    pub arrived: Option<Instant>,
    /// The same of packets that left after that, and what follows the furthest of them.
    pub packet: Bookmark<(Instant, SeqNum)>,
    /// So many fragments a segment has had that has arrived.
    pub proved: u32,
    /// Segments of more fragments than this have been lost too often.
    pub most: Option<u32>,
    /// A large segment that ends here is lost, by a timeout or a silence: its beginning asks.
    pub timed_out: Bookmark,
    /// What stands before this goes in packets.
    pub small_until: Bookmark,
    /// So many segments in a row have been lost too often, larger ones than had arrived apart.
    pub failures: u8,
}

bookmarks!(Oversizing { excused, packet, timed_out, small_until });

impl Oversizing {
    /// Something has been found out, or asked.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        self.tries > 0 || self.verdict.is_some()
    }

    /// Packets had been too large for the path: copies have told nothing, or of that alone.
    pub fn on_smaller_packets(&mut self, next: SeqNum) {
        self.give_up_asking();
        let verdict = self.verdict.filter(|v| *v != Verdict::Refuses);
        *self = Self { packets_arrive: false, tries: 0, verdict, excused: Some(next).into(), ..*self };
    }

    /// All that was sent has arrived.
    pub const fn forget_places(&mut self) {
        (self.excused, self.packet) = (Bookmark::NONE, Bookmark::NONE);
        (self.timed_out, self.small_until) = (Bookmark::NONE, Bookmark::NONE);
    }

    /// Nothing has been heard of the copy, and it is waited for no longer.
    pub fn give_up_asking(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.unanswered.rotate_right(1);
            if let Some(last) = self.unanswered.first_mut() {
                *last = Some(asked);
            }
        }
    }
}

/// A copy that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its first byte.
    pub from: SeqNum,
    /// What follows it.
    pub to: SeqNum,
    /// When it left.
    pub at: Instant,
    /// Its fragments carry DF.
    pub dont_fragment: bool,
}
