//! Memory that is free goes back to the system: the allocator keeps what thousands of connections
//! have left, page by page.

use farlink_wire::{Duration, Instant};

/// So many connections that have ended or fallen asleep are worth the work.
const FREED_FLOWS: u64 = 1000;
/// Time for more of them to follow.
const WAIT: Duration = Duration::from_secs(2);

/// Knows when the allocator is to give back what is free.
#[derive(Debug, Default)]
pub struct HeapKeeper {
    /// When it is to be done next.
    pub due: Option<Instant>,
    freed_seen: u64,
    had_spare: bool,
}

impl HeapKeeper {
    /// Looks at how many connections have been freed so far, and whether the buffer pool keeps free
    /// blocks; asks the allocator when it is time.
    pub fn attend(&mut self, now: Instant, freed_flows: u64, has_spare: bool) {
        let settled = self.had_spare && !has_spare;
        self.had_spare = has_spare;
        if freed_flows.wrapping_sub(self.freed_seen) >= FREED_FLOWS || settled {
            self.freed_seen = freed_flows;
            self.due.get_or_insert(now + WAIT);
        }
        if self.due.is_some_and(|at| at <= now) {
            self.due = None;
            give_back();
        }
    }
}

#[cfg(target_env = "gnu")]
fn give_back() {
    // SAFETY: takes no pointer, and may be called at any time (malloc_trim(3)).
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
const fn give_back() {}
