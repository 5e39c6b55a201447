//! What a way does to the words of XCP, in either form: takes them out, or puts others in their
//! place.

use farlink_wire::xcp::HeaderTime;
use farlink_wire::{Parsed, Said, Shim, ShimProtocols, edit, parse};

use crate::config::XcpHarm;
use crate::payload::Payload;
use crate::random::{Stream, Use};

/// A forged answer to a wish, bytes a second: 8 Mbit/s for each packet.
const FORGED: i32 = 1_000_000;
/// Forged answers of either sign are up to two to the power of this, bytes a second.
const FORGED_BITS: u64 = 28;

/// So many acknowledgements tell what is old.
const REPLAYED: u64 = 20;

/// The way, its draws, and what was told once: a sum, and what had come since a packet before.
#[derive(Debug)]
pub(crate) struct Harm {
    random: Stream,
    sum: Old,
    since: Old,
}

/// Something old, and how often that is still told.
#[derive(Clone, Copy, Debug, Default)]
struct Old(Option<(u32, u64)>);

impl Old {
    /// What is told instead of this.
    fn told(&mut self, now: u32) -> u32 {
        let (old, left) = self.0.filter(|(_, left)| *left > 0).unwrap_or((now, 2 * REPLAYED));
        self.0 = Some((old, left.saturating_sub(1)));
        if left <= REPLAYED { old } else { now }
    }
}

impl Harm {
    pub fn new(seed: u64) -> Self {
        Self { random: Stream::new(seed, Use::Harm), sum: Old::default(), since: Old::default() }
    }

    /// A packet has passed; these protocols stand for the draft's header.
    pub fn pass<P: Payload>(&mut self, harm: XcpHarm, shims: ShimProtocols, packet: &mut P) {
        let bytes = packet.ip_packet();
        match (harm, Said::of(bytes, shims)) {
            (XcpHarm::More, Some(said)) => said.lower_in(bytes, FORGED),
            (XcpHarm::Less, Some(said)) => said.lower_in(bytes, -FORGED),
            (XcpHarm::Both, Some(said)) => said.lower_in(bytes, self.either()),
            (XcpHarm::More | XcpHarm::Less | XcpHarm::Both, None) => {}
            (XcpHarm::Strip | XcpHarm::Replay | XcpHarm::Wild, _) => {
                if !Shim::change_in(bytes, shims, |shim| self.change_shim(harm, shim)) {
                    self.change_options(harm, bytes);
                }
            }
        }
    }

    fn change_shim(&mut self, harm: XcpHarm, shim: &mut Shim) {
        let told = shim.feedback_bytes_per_s.cast_unsigned();
        let told = match harm {
            XcpHarm::Replay if told != 0 => self.since.told(told),
            XcpHarm::Wild => {
                let (times, HeaderTime(told)) = ([self.any(), self.any()], self.any());
                if let Some(said) = &mut shim.said {
                    [said.spacing, said.rtt] = times;
                    said.delta_bytes_per_s = self.either();
                }
                told
            }
            XcpHarm::Strip => {
                shim.said = None;
                0
            }
            _ => told,
        };
        shim.feedback_bytes_per_s = told.cast_signed();
    }

    fn change_options(&mut self, harm: XcpHarm, bytes: &mut [u8]) {
        let Parsed::Tcp(segment) = parse(bytes) else { return };
        let (said, sum) = (segment.options.xcp, segment.options.xcp_sum);
        match (harm, sum) {
            (_, None) if said.is_none() => {}
            (XcpHarm::Strip, _) => edit::blank_xcp(bytes, &segment),
            (XcpHarm::Replay, Some(sum)) => {
                let times = said.map_or([HeaderTime::UNKNOWN; 2], |said| [said.spacing, said.rtt]);
                edit::write_xcp_words(bytes, &segment, times, self.sum.told(sum));
            }
            (XcpHarm::Wild, _) => {
                let (times, HeaderTime(sum)) = ([self.any(), self.any()], self.any());
                edit::write_xcp_words(bytes, &segment, times, sum);
                let wish = self.either();
                if let Some(said) = Said::of(bytes, ShimProtocols::NONE) {
                    said.lower_in(bytes, wish);
                }
            }
            _ => {}
        }
    }

    fn any(&mut self) -> HeaderTime {
        HeaderTime(self.random.below(1 << 32) as u32 >> self.random.below(32))
    }

    fn either(&mut self) -> i32 {
        let size = 1 << self.random.below(FORGED_BITS);
        if self.random.chance(0.5) { size } else { -size }
    }
}
