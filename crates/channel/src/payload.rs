//! What travels through a channel.

/// A packet as the channel sees it.
pub trait Payload: Clone {
    /// Bytes on the wire, without the link layer.
    fn len_bytes(&self) -> usize;
    /// The IP packet in it; empty where nobody is to look into it.
    fn ip_packet(&mut self) -> &mut [u8] {
        &mut []
    }
    /// Inverts one bit; `bit` is below eight times [`Self::len_bytes`].
    fn flip_bit(&mut self, bit: usize);
}

impl Payload for Vec<u8> {
    fn len_bytes(&self) -> usize {
        self.len()
    }
    fn ip_packet(&mut self) -> &mut [u8] {
        self
    }
    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}
