//! By which means packets are diverted.

use std::fmt;
use std::str::FromStr;

/// A way to divert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// A bump where the kernel has the means and lets us, else policy routing.
    #[default]
    Auto,
    /// A bump on the wire of some interfaces: programs at both sides of each. Netfilter sees each
    /// packet once, with its true interfaces.
    Bump,
    /// nftables marks and policy routing.
    Policy,
}

/// The variable of the environment that says how traffic is diverted unless something else does:
/// the laboratory chooses by this for all its gateways.
const VARIABLE: &str = "FARLINK_DIVERT";

impl Method {
    /// What the environment says.
    ///
    /// # Errors
    /// It says something else.
    pub fn of_environment() -> Result<Option<Self>, String> {
        let Ok(name) = std::env::var(VARIABLE) else { return Ok(None) };
        name.parse().map(Some).map_err(|wrong| format!("{VARIABLE}: {wrong}"))
    }

    /// Says so to the programs that this one starts. Call before other threads are started.
    pub fn tell_children(self) {
        // SAFETY: no other thread reads the environment now; the callers see to it.
        unsafe { std::env::set_var(VARIABLE, self.name()) };
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bump => "bump",
            Self::Policy => "policy",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::Bump, Self::Policy]
            .into_iter()
            .find(|m| m.name() == text)
            .ok_or_else(|| format!("`{text}` is no way to divert; allowed: auto, bump, policy"))
    }
}
