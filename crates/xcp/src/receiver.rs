//! What the sender is told: the sum of all that the routers have left of its wishes.

use farlink_wire::xcp::XcpFields;

/// The sum of what has arrived, modulo 2^32, so that an acknowledgement that gets lost loses
/// nothing of it. (The draft, section 4.1.2, tells what has come since the last packet.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Receiver {
    sum: u32,
}

impl Receiver {
    /// So many packets have arrived that say this.
    pub fn on_packets(&mut self, packets: u32, said: &XcpFields) {
        let each = said.delta_bytes_per_s.cast_unsigned();
        self.sum = self.sum.wrapping_add(each.wrapping_mul(packets));
    }

    /// The sum, bytes a second, modulo 2^32.
    #[must_use]
    pub fn sum(&self) -> u32 {
        self.sum
    }
}
