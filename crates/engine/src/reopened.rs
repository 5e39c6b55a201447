//! A window has opened again for a gateway that stands before it. Nothing is under way then: where
//! the link is away, nobody notices that what says so is lost. The gateway, or the host behind it,
//! asks by a timer that is set less and less often. So it is told again until the window is used.

use farlink_wire::Duration;

/// It is told again after so long, or two round trips, then after twice and four times as long.
const AFTER_MIN: Duration = Duration::from_millis(200);
const DOUBLINGS_MAX: u8 = 2;
/// So often in all: six seconds, and longer over a longer way.
const TIMES: u8 = 8;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reopened {
    /// It is told so many times more.
    left: u8,
}

impl Reopened {
    /// An acknowledgement has left; `opens`: it opens the window for a gateway that stood before
    /// it. Returns after how long the next one is due for that.
    pub fn note_told(&mut self, opens: bool, rtt: Duration) -> Option<Duration> {
        if opens {
            self.left = TIMES + 1;
        }
        self.left = self.left.checked_sub(1)?;
        let doublings = (TIMES - self.left).min(DOUBLINGS_MAX);
        (self.left > 0).then(|| (rtt * 2).max(AFTER_MIN) * (1 << doublings))
    }

    /// The window is used.
    pub fn note_used(&mut self) {
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opened_is_told_again_until_it_is_used() {
        let (ms, rtt) = (Duration::from_millis, Duration::from_millis(2));
        let mut reopened = Reopened::default();
        assert_eq!(reopened.note_told(false, rtt), None, "nobody stood before it");
        assert_eq!(reopened.note_told(true, rtt), Some(ms(200)));
        assert_eq!(reopened.note_told(false, rtt), Some(ms(400)));
        let more: Vec<_> = core::iter::from_fn(|| reopened.note_told(false, rtt)).collect();
        assert_eq!(more, [ms(800); 6]);
        assert_eq!(reopened.note_told(true, ms(500)), Some(ms(1_000)));
        reopened.note_used();
        assert_eq!(reopened.note_told(false, rtt), None);
    }
}
