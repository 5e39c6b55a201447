//! What a check says, and how closely it looks.

/// What does not hold, in words.
pub type Checked = Result<(), &'static str>;

/// The sums are made at each event of so many.
const CLOSELY_EVERY: u32 = 64;

/// All of these hold; else the words of the first one that does not.
pub fn all_hold(rules: &[(bool, &'static str)]) -> Checked {
    rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, words)| Err(words))
}

/// When to look closely.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns(u32);

impl Turns {
    /// Another event is over. Returns whether the sums are to be made.
    pub fn closely(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(CLOSELY_EVERY)
    }
}
