//! Who is lost, doubled, damaged or delayed.

use farlink_wire::time::Duration;

use crate::config::{ChannelConfig, GilbertElliott};
use crate::random::{Stream, Use, power};

/// All draws of one channel.
#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    loss: Stream,
    fragment_loss: Stream,
    gilbert_elliott: Stream,
    is_bad: bool,
    bit_error: Stream,
    reorder: Stream,
    duplicate: Stream,
    corrupt: Stream,
    jitter: Stream,
}

/// What happens to one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fate {
    pub(crate) lost: bool,
    pub(crate) bit_error: bool,
    pub(crate) duplicated: bool,
    /// The bit to invert.
    pub(crate) corrupted: Option<usize>,
    pub(crate) reordered: bool,
    pub(crate) jitter: Duration,
}

impl Impairments {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            loss: Stream::new(seed, Use::Loss),
            fragment_loss: Stream::new(seed, Use::FragmentLoss),
            gilbert_elliott: Stream::new(seed, Use::GilbertElliott),
            is_bad: false,
            bit_error: Stream::new(seed, Use::BitError),
            reorder: Stream::new(seed, Use::Reorder),
            duplicate: Stream::new(seed, Use::Duplicate),
            corrupt: Stream::new(seed, Use::Corrupt),
            jitter: Stream::new(seed, Use::Jitter),
        }
    }

    /// Draws for one packet of a length, perhaps a fragment, where `loss` is its independent loss.
    /// What is switched off is not drawn; what is on is drawn whether or not the packet is lost
    /// already.
    pub(crate) fn draw(
        &mut self,
        config: &ChannelConfig,
        loss: f64,
        (len_bytes, is_fragment): (usize, bool),
    ) -> Fate {
        let mut fate = Fate::default();
        if loss > 0.0 {
            fate.lost = self.loss.chance(loss);
        }
        if config.fragment_loss > 0.0 && is_fragment {
            fate.lost |= self.fragment_loss.chance(config.fragment_loss);
        }
        if let Some(model) = &config.gilbert_elliott {
            fate.lost |= self.step(model);
        }
        let bits = (len_bytes as u64).saturating_mul(8);
        if config.ber > 0.0 {
            let intact = power((1.0 - config.ber).clamp(0.0, 1.0), bits);
            fate.bit_error = self.bit_error.chance(1.0 - intact);
        }
        if config.duplicate > 0.0 {
            fate.duplicated = self.duplicate.chance(config.duplicate);
        }
        if config.corrupt > 0.0 {
            let hit = self.corrupt.chance(config.corrupt);
            let bit = self.corrupt.below(bits);
            fate.corrupted = (hit && bits > 0).then(|| usize::try_from(bit).unwrap_or(0));
        }
        if config.reorder > 0.0 {
            fate.reordered = self.reorder.chance(config.reorder);
        }
        if !config.jitter.is_zero() {
            let most = u64::try_from(config.jitter.as_nanos()).unwrap_or(u64::MAX);
            fate.jitter = Duration::from_nanos(self.jitter.below(most.saturating_add(1)));
        }
        fate
    }

    fn step(&mut self, model: &GilbertElliott) -> bool {
        let leave = if self.is_bad { model.p_bad_to_good } else { model.p_good_to_bad };
        self.is_bad ^= self.gilbert_elliott.chance(leave);
        let loss = if self.is_bad { model.loss_bad } else { model.loss_good };
        self.gilbert_elliott.chance(loss)
    }
}
