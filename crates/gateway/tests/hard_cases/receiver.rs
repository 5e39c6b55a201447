//! Host b as a receiver that acknowledges what it gets.

use crate::script::notation::Seen;
use crate::script::{Host, Script};
use farlink_wire::Duration;

/// What b has.
pub struct Receiver {
    /// Everything before this.
    pub acked: u32,
    /// And this.
    above: Vec<(u32, u32)>,
    /// Segments with more payload never reach it.
    pub largest: usize,
}

impl Receiver {
    pub fn new(acked: u32) -> Self {
        Self { acked, above: Vec::new(), largest: usize::MAX }
    }

    /// Waits for what comes next, and acknowledges it 20 ms later, with SACK. Returns the sizes of
    /// the segments on the wire.
    #[track_caller]
    pub fn take(&mut self, t: &mut Script) -> Vec<usize> {
        assert!(t.wait_for(Host::B, Duration::from_secs(130)), "b is sent nothing");
        t.play("~20\n drop a");
        let sizes = self.put(&t.take(Host::B));
        let blocks: Vec<String> = self.above.iter().take(3).map(|(a, b)| format!("{a}:{b}")).collect();
        let sack = if blocks.is_empty() { String::new() } else { format!("<sack {}>", blocks.join(" ")) };
        t.play(&format!("b > . 1 ack {} {sack}", self.acked));
        sizes
    }

    /// Takes segments. Returns their sizes on the wire.
    pub fn put(&mut self, segments: &[Seen]) -> Vec<usize> {
        let mut sizes = Vec::new();
        for s in segments {
            let one = s.packet_payload();
            let mut at = s.seq;
            for piece in s.payload.chunks(one.max(1)) {
                sizes.push(piece.len());
                let end = at + piece.len() as u32;
                if piece.len() <= self.largest {
                    self.hold(at, end);
                }
                at = end;
            }
        }
        sizes
    }

    fn hold(&mut self, from: u32, to: u32) {
        self.above.push((from.max(self.acked), to));
        self.above.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (from, to) in self.above.drain(..).filter(|(from, to)| from < to) {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        if let Some((_, end)) = joined.first().copied().filter(|(from, _)| *from <= self.acked) {
            self.acked = end;
            joined.remove(0);
        }
        self.above = joined;
    }
}
