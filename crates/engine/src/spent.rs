//! What bytes are spent on: of each packet that is made here and leaves by some way, every byte is
//! counted under one heading.

use farlink_wire::WireSize;
use serde::Serialize;

/// What a byte of a packet is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heading {
    /// Payload that leaves for the first time.
    New,
    /// Payload that leaves again, because it was taken for lost or nothing was heard.
    Again,
    /// A copy of what may be lost, or a try of a larger size.
    Copy,
    /// An acknowledgement.
    Ack,
    /// A question to a host or a link, and what else has no payload.
    Probe,
}

/// What packets made here have taken since the start, IP headers included, bytes. All but
/// `needless_bytes` add up to the bytes of these packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Payload that left for the first time.
    pub payload_bytes: u64,
    /// Payload that left again.
    pub repeated_bytes: u64,
    /// Headers of packets with either of these.
    pub header_bytes: u64,
    /// Packets of copies, and of tries of a larger size.
    pub copy_bytes: u64,
    /// Packets that only acknowledge.
    pub ack_bytes: u64,
    /// Packets that ask a host or a link.
    pub probe_bytes: u64,
    /// Of what left again and of copies: payload that has come twice, as the other end tells: a
    /// host by D-SACK (RFC 2883), a gateway by its count.
    pub needless_bytes: u64,
}

impl Spent {
    /// A packet, or several in one, has left with so much payload.
    pub fn note(&mut self, heading: Heading, payload_bytes: u32, size: WireSize) {
        let (payload, all) = (u64::from(payload_bytes), u64::from(size.bytes));
        match heading {
            Heading::New => self.payload_bytes += payload,
            Heading::Again => self.repeated_bytes += payload,
            Heading::Copy => self.copy_bytes += all,
            Heading::Ack => self.ack_bytes += all,
            Heading::Probe => self.probe_bytes += all,
        }
        if matches!(heading, Heading::New | Heading::Again) {
            self.header_bytes += all.saturating_sub(payload);
        }
    }

    /// The other end tells that so much has come twice. Returns what of that can be: no more than
    /// has left twice.
    pub fn note_needless(&mut self, bytes: u64) -> u64 {
        let most = self.repeated_bytes.saturating_add(self.copy_bytes);
        let bytes = bytes.min(most.saturating_sub(self.needless_bytes));
        self.needless_bytes += bytes;
        bytes
    }

    /// All of it.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let Self { payload_bytes, repeated_bytes, header_bytes, copy_bytes, ack_bytes, probe_bytes, .. } =
            *self;
        [payload_bytes, repeated_bytes, header_bytes, copy_bytes, ack_bytes, probe_bytes].iter().sum()
    }
}

impl core::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.payload_bytes += other.payload_bytes;
        self.repeated_bytes += other.repeated_bytes;
        self.header_bytes += other.header_bytes;
        self.copy_bytes += other.copy_bytes;
        self.ack_bytes += other.ack_bytes;
        self.probe_bytes += other.probe_bytes;
        self.needless_bytes += other.needless_bytes;
    }
}

/// What one direction of a connection has spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    /// On what.
    pub spent: Spent,
    /// What the gateway at the other end has counted as come twice, modulo 2^32.
    told_twice_bytes: u32,
}

impl Ledger {
    /// That gateway has counted so much. Returns what of it is new.
    pub fn hear_twice(&mut self, bytes: u32) -> u64 {
        let more = bytes.wrapping_sub(self.told_twice_bytes).cast_signed();
        // An older word says less.
        if more <= 0 {
            return 0;
        }
        self.told_twice_bytes = bytes;
        u64::from(more.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_one_heading() {
        let size = |bytes| WireSize { bytes, packets: 1 };
        let mut spent = Spent::default();
        spent.note(Heading::New, 1000, size(1052));
        spent.note(Heading::Again, 500, size(552));
        spent.note(Heading::Copy, 100, size(152));
        spent.note(Heading::Ack, 0, size(52));
        spent.note(Heading::Probe, 0, size(60));
        assert_eq!(spent.total_bytes(), 1052 + 552 + 152 + 52 + 60);
        assert_eq!((spent.payload_bytes, spent.repeated_bytes, spent.header_bytes), (1000, 500, 104));
        let mut both = spent;
        both += spent;
        assert_eq!(both.total_bytes(), 2 * spent.total_bytes());
    }

    #[test]
    fn an_older_count_says_nothing_new() {
        let mut ledger = Ledger::default();
        let told = [100, 100, 40, 140, u32::MAX, 60].map(|bytes| ledger.hear_twice(bytes));
        assert_eq!(told, [100, 0, 0, 40, 0, 0]);
    }

    #[test]
    fn no_more_is_needless_than_has_left_twice() {
        let mut spent = Spent::default();
        assert_eq!(spent.note_needless(5), 0);
        spent.note(Heading::Again, 100, WireSize { bytes: 140, packets: 1 });
        assert_eq!(
            (spent.note_needless(60), spent.note_needless(u64::MAX), spent.needless_bytes),
            (60, 40, 100)
        );
    }
}
