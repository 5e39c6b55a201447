//! What a configuration leaves out is made to fit the machine.

use farlink_gateway::config as engine;
use farlink_linux::memory::Memory;

use super::Settings;

/// The buffer pool is this part of the memory of the machine at most (one over it), and of what the
/// control group allows.
const POOL_TOTAL_PARTS: u64 = 8;
const POOL_ALLOWED_PARTS: u64 = 2;

impl Settings {
    /// The same on a machine with so much memory: where the file does not say how large the buffer
    /// pool is, it leaves the others most of it.
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
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

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
