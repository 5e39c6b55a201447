//! What a finding is: which one, how bad, in plain sentences, what it rests on, and what mends it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Some traffic is not split, or could break.
    Warning,
    /// Nothing will be split.
    Problem,
}

impl Severity {
    /// As it is written everywhere.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One way to mend something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Shell commands, one after the other, as root.
    Run(Vec<String>),
    /// A key of the configuration, such as `divert.method`, and the value that it wants, as in
    /// TOML. It holds after a restart.
    Configure {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
}

impl Remedy {
    /// One shell command.
    #[must_use]
    pub fn run(command: impl Into<String>) -> Self {
        Self::Run(vec![command.into()])
    }

    /// A key of the configuration.
    #[must_use]
    pub fn configure(key: &str, value: impl Into<String>) -> Self {
        Self::Configure { key: key.to_owned(), value: value.into() }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Which one it is, for programs: it stays when the words change.
    pub id: Cow<'static, str>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, what it means for the traffic, and what to do.
    pub text: String,
    /// What was looked at, and what was there.
    #[serde(default)]
    pub evidence: BTreeMap<String, String>,
    /// What mends it: each of them alone, the best first. Empty: nothing that could be typed.
    #[serde(default)]
    pub remedies: Vec<Remedy>,
}

impl Diagnosis {
    /// A finding.
    #[must_use]
    pub fn new(id: impl Into<Cow<'static, str>>, severity: Severity, text: impl Into<String>) -> Self {
        Self { id: id.into(), severity, text: text.into(), evidence: BTreeMap::new(), remedies: Vec::new() }
    }

    /// It rests on this, too.
    #[must_use]
    pub fn seen(mut self, what: impl Into<String>, is: impl ToString) -> Self {
        self.evidence.insert(what.into(), is.to_string());
        self
    }

    /// This mends it, too.
    #[must_use]
    pub fn mended_by(mut self, remedy: Remedy) -> Self {
        self.remedies.push(remedy);
        self
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.name(), self.text)
    }
}
