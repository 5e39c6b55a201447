//! What a link may carry for a price.

/// So many bytes in each period, as the operator pays for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteBudget {
    /// IP bytes, both directions together.
    pub bytes: u64,
    /// How long they are to last.
    pub period: Period,
}

/// A period of the calendar, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Period {
    /// From midnight on.
    Day,
    /// From Monday on.
    Week,
    /// From the first on.
    Month,
}

impl Period {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}
