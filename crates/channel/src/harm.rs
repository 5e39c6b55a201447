//! What a way does to the words of XCP: takes them out, or puts others in their place.

use farlink_wire::xcp::HeaderTime;
use farlink_wire::{Parsed, edit, parse};

use crate::config::XcpHarm;
use crate::payload::Payload;
use crate::random::{Stream, Use};

/// A forged answer to a wish, bytes a second: 8 Mbit/s for each packet.
const FORGED: i32 = 1_000_000;
/// Forged answers of either sign are up to two to the power of this, bytes a second.
const FORGED_BITS: u64 = 28;

/// So many acknowledgements tell an old sum.
const REPLAYED: u64 = 20;

/// The way, its draws, and an old sum with how often that is still told.
#[derive(Debug)]
pub(crate) struct Harm {
    random: Stream,
    old: Option<(u32, u64)>,
}

impl Harm {
    pub fn new(seed: u64) -> Self {
        Self { random: Stream::new(seed, Use::Harm), old: None }
    }

    /// A packet has passed.
    pub fn pass<P: Payload>(&mut self, harm: XcpHarm, packet: &mut P) {
        let bytes = packet.ip_packet();
        let Parsed::Tcp(segment) = parse(bytes) else { return };
        let (said, sum) = (segment.options.xcp, segment.options.xcp_sum);
        if said.is_none() && sum.is_none() {
            return;
        }
        let times = said.map_or([HeaderTime::UNKNOWN; 2], |said| [said.spacing, said.rtt]);
        match harm {
            XcpHarm::Strip => edit::blank_xcp(bytes, &segment),
            XcpHarm::More => edit::write_xcp_delta(bytes, &segment, FORGED),
            XcpHarm::Less => edit::write_xcp_delta(bytes, &segment, -FORGED),
            XcpHarm::Both => edit::write_xcp_delta(bytes, &segment, self.either()),
            XcpHarm::Replay => {
                let Some(sum) = sum else { return };
                let (old, left) = self.old.filter(|(_, left)| *left > 0).unwrap_or((sum, 2 * REPLAYED));
                self.old = Some((old, left.saturating_sub(1)));
                let told = if left <= REPLAYED { old } else { sum };
                edit::write_xcp_words(bytes, &segment, times, told);
            }
            XcpHarm::Wild => {
                let mut any = || HeaderTime(self.random.below(1 << 32) as u32 >> self.random.below(32));
                let (times, HeaderTime(sum)) = ([any(), any()], any());
                edit::write_xcp_words(bytes, &segment, times, sum);
                edit::write_xcp_delta(bytes, &segment, self.either());
            }
        }
    }

    fn either(&mut self) -> i32 {
        let size = 1 << self.random.below(FORGED_BITS);
        if self.random.chance(0.5) { size } else { -size }
    }
}
