//! What is captured at each interface, in each direction, and whether packets prove it: by the
//! interface's own counters, and by what its programs have seen. Pure.

use std::collections::BTreeMap;

use farlink_wire::{Duration, Instant};

use crate::divert::{Capture, CaptureState, Diagnosis, Direction, not_seen};

/// Over so much time packets are counted.
const WINDOW: Duration = Duration::from_secs(3);
/// So many packets in this time are seen by any program that works.
const PACKETS_MIN: u64 = 100;

/// One interface, as it was found just now.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    pub(super) index: u32,
    pub(super) name: String,
    /// Directions in which something is to be captured.
    pub(super) wanted: [bool; 2],
    /// All that it takes is there.
    pub(super) is_attached: bool,
    /// The interface's own counters: packets that came in, and that left.
    pub(super) packets: [u64; 2],
    /// The programs have seen some since the window began.
    pub(super) seen: [bool; 2],
}

/// One direction of one interface.
#[derive(Clone, Copy, Debug, Default)]
struct Proof {
    is_proven: bool,
    /// So many packets passed in the last window, and the program saw none; zero: it was not so.
    unseen: u64,
    /// The interface's counter when the window began; `None`: it is younger.
    from: Option<u64>,
}

impl Proof {
    /// `is_end`: the window is over.
    fn look(&mut self, packets: u64, is_seen: bool, is_end: bool) {
        let passed = self.from.map_or(0, |from| packets.saturating_sub(from));
        if is_seen {
            (self.is_proven, self.unseen) = (true, 0);
        } else if is_end && passed >= PACKETS_MIN {
            (self.is_proven, self.unseen) = (false, passed);
        }
        if is_end || self.from.is_none() {
            self.from = Some(packets);
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Captures {
    proofs: BTreeMap<u32, [Proof; 2]>,
    began: Option<Instant>,
    /// As they were at the last look.
    captures: Vec<Capture>,
    found: Vec<Diagnosis>,
}

impl Captures {
    /// All interfaces as they are now. Whether another window begins: what was seen is to be
    /// forgotten.
    pub(super) fn look(&mut self, now: Instant, all: &[Looked]) -> bool {
        let is_end = now.since(*self.began.get_or_insert(now)) >= WINDOW;
        if is_end {
            self.began = Some(now);
        }
        self.proofs.retain(|index, _| all.iter().any(|one| one.index == *index && one.is_attached));
        (self.captures, self.found) = Default::default();
        for one in all {
            for (way, direction) in
                Direction::BOTH.into_iter().enumerate().filter(|(way, _)| one.wanted[*way])
            {
                let mut state = CaptureState::Wanted;
                if one.is_attached {
                    let proof = &mut self.proofs.entry(one.index).or_default()[way];
                    proof.look(one.packets[way], one.seen[way], is_end);
                    state = if proof.is_proven { CaptureState::Proven } else { CaptureState::Attached };
                    if proof.unseen > 0 {
                        self.found.push(not_seen(&one.name, direction, proof.unseen));
                    }
                }
                self.captures.push(Capture { interface: one.name.clone(), direction, state });
            }
        }
        is_end
    }

    /// How each of them stands.
    pub(super) fn all(&self) -> &[Capture] {
        &self.captures
    }

    /// All that is wanted is there.
    pub(super) fn are_attached(&self) -> bool {
        self.captures.iter().all(|capture| capture.state != CaptureState::Wanted)
    }

    /// Interfaces that packets pass unseen.
    pub(super) fn found(&self) -> &[Diagnosis] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks four times a second for so many seconds; each second `packets` come in and as many
    /// leave. What is seen is forgotten when a window begins.
    fn pass(
        c: &mut Captures,
        now: &mut Instant,
        one: &mut Looked,
        seconds: u64,
        (packets, seen): (u64, [bool; 2]),
    ) {
        for _ in 0..seconds * 4 {
            *now += Duration::from_millis(250);
            one.packets = one.packets.map(|n| n + packets / 4);
            for (way, is_seen) in seen.into_iter().enumerate() {
                one.seen[way] |= is_seen && packets > 0;
            }
            if c.look(*now, std::slice::from_ref(one)) {
                one.seen = [false; 2];
            }
        }
    }

    fn states(c: &Captures) -> Vec<(Direction, CaptureState)> {
        c.all().iter().map(|c| (c.direction, c.state)).collect()
    }

    #[test]
    fn packets_prove_each_direction_or_show_that_nothing_is_seen() {
        let (mut c, mut now) = (Captures::default(), Instant::from_nanos(1));
        let mut one = Looked {
            index: 7,
            name: "sat0".into(),
            wanted: [true; 2],
            is_attached: true,
            packets: [1 << 40, 5],
            seen: [false; 2],
        };
        use CaptureState::{Attached, Proven, Wanted};
        use Direction::{In, Out};
        pass(&mut c, &mut now, &mut one, 9, (0, [true; 2]));
        assert_eq!(states(&c), [(In, Attached), (Out, Attached)], "nothing has passed, and nothing is wrong");
        assert!(c.found().is_empty());
        pass(&mut c, &mut now, &mut one, 1, (40, [true, false]));
        assert_eq!(states(&c), [(In, Proven), (Out, Attached)]);
        // A few may be on their way, or be nobody's business.
        pass(&mut c, &mut now, &mut one, 6, (30, [true, false]));
        assert!(c.found().is_empty(), "{:?}", c.found());
        pass(&mut c, &mut now, &mut one, 7, (400, [true, false]));
        let [unseen] = c.found() else { panic!("{:?}", c.found()) };
        assert_eq!((&*unseen.id, &*unseen.evidence["direction"]), ("not-seen", "out"));
        assert!(unseen.text.contains("1200 packets left by sat0"), "{}", unseen.text);
        // What is proven is so no longer, the other way round.
        pass(&mut c, &mut now, &mut one, 7, (400, [false, true]));
        assert_eq!(states(&c), [(In, Attached), (Out, Proven)]);
        assert_eq!(&*c.found()[0].evidence["direction"], "in");
        // Silence says nothing new.
        pass(&mut c, &mut now, &mut one, 7, (0, [false; 2]));
        assert_eq!(c.found().len(), 1);
        // A program that is not there proves nothing, and begins anew when it is.
        one.is_attached = false;
        pass(&mut c, &mut now, &mut one, 1, (400, [false; 2]));
        assert_eq!(states(&c), [(In, Wanted), (Out, Wanted)]);
        assert!(c.found().is_empty() && !c.are_attached());
        (one.is_attached, one.wanted) = (true, [false, true]);
        pass(&mut c, &mut now, &mut one, 1, (0, [false; 2]));
        assert_eq!(states(&c), [(Out, Attached)], "it is only counted what leaves");
        assert!(c.are_attached());
    }
}
