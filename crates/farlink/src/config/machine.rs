//! What a configuration leaves out is made to fit the machine.

use farlink_gateway::config as engine;
use farlink_linux::memory::Memory;

use super::Settings;

/// The buffer pool is this part of the memory of the machine at most (one over it), and of what the
/// control group allows.
const POOL_TOTAL_PARTS: u64 = 8;
const POOL_ALLOWED_PARTS: u64 = 2;
/// The queue of a device holds this part of the memory of the machine at most, were it full of the
/// largest packets. The kernel has it, and no control group counts it.
const QUEUE_TOTAL_PARTS: u64 = 8;
/// A super-segment.
const LARGEST_PACKET_BYTES: u64 = 64 << 10;
/// What the kernel gives a device by itself.
const QUEUE_PACKETS_MIN: u32 = 500;

impl Settings {
    /// The same on a machine with so much memory: where the file does not say how large the buffer
    /// pool is, and the queues of devices, they leave the others most of it.
    #[must_use]
    pub fn on(mut self, memory: Memory) -> Self {
        let limits = &mut self.gateway.limits;
        let of_total = memory.total_bytes.map(|bytes| bytes / POOL_TOTAL_PARTS);
        let of_allowed = memory.allowed_bytes.map(|bytes| bytes / POOL_ALLOWED_PARTS);
        if let Some(most) = of_total.into_iter().chain(of_allowed).min().filter(|_| !self.is_pool_said) {
            // What one direction is said to hold has to find room.
            let said = if limits.relay_follows_link { 0 } else { limits.relay_bytes as usize };
            let least = said.max(engine::Limits::POOL_BYTES.0 as usize);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            limits.pool_bytes = limits.pool_bytes.min(most.max(least));
        }
        if let Some(total) = memory.total_bytes.filter(|_| !self.is_queue_said) {
            let most = total / QUEUE_TOTAL_PARTS / LARGEST_PACKET_BYTES;
            let most = u32::try_from(most).unwrap_or(u32::MAX).max(QUEUE_PACKETS_MIN);
            self.queue_packets = self.queue_packets.min(most);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    #[test]
    fn the_usual_queue_of_a_device_leaves_others_most_of_the_memory() {
        let queue = |text: &str, total_mib: u64| {
            let memory = Memory { total_bytes: Some(total_mib << 20), allowed_bytes: Some(1 << 20) };
            settings(text).unwrap().on(memory).queue_packets
        };
        let usual = "[[link]]\ninterface='sat0'\n";
        assert_eq!(queue(usual, 16_384), 10_000);
        assert_eq!(queue(usual, 512), 1_024);
        assert_eq!(queue(usual, 128), 500, "with less a moment's wait would lose packets");
        assert_eq!(queue(&format!("{usual}[divert]\nqueue_packets=4000"), 128), 4_000, "the operator knows");
    }

    #[test]
    fn the_usual_pool_leaves_others_most_of_the_memory() {
        let pool = |text: &str, total_mib: Option<u64>, allowed_mib: Option<u64>| {
            let mib = |n: u64| n << 20;
            let memory = Memory { total_bytes: total_mib.map(mib), allowed_bytes: allowed_mib.map(mib) };
            settings(text).unwrap().on(memory).gateway.limits.pool_bytes >> 20
        };
        let usual = "[[link]]\ninterface='sat0'\n";
        assert_eq!(pool(usual, Some(16_384), None), 512);
        assert_eq!(pool(usual, Some(128), None), 16);
        assert_eq!(pool(usual, Some(128), Some(20)), 10, "what a control group allows");
        assert_eq!(pool(usual, Some(4), Some(1)), 1, "with less it would not start");
        assert_eq!(pool(usual, None, None), 512);
        let said = format!("{usual}[limits]\npool_bytes='256 MiB'");
        assert_eq!(pool(&said, Some(128), Some(20)), 256, "the operator knows");
        let one = format!("{usual}[limits]\nrelay_bytes='64 MiB'");
        assert_eq!(pool(&one, Some(128), None), 64, "what a direction is to hold finds room");
    }
}
