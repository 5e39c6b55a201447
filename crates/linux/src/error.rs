//! What can go wrong with the kernel, in words for the person who runs it.

use std::io;

/// Who has what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Another process of Farlink.
    Farlink,
    /// The qdisc `ingress`: SQM, or whoever else shapes what comes in.
    IngressQdisc,
}

/// An error of this crate. Its text says what was attempted and what the kernel or the tool
/// answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{what}: {answer}")]
    Os {
        /// What was attempted.
        what: String,
        /// The kernel's answer. Part of the text, so not a source of its own: who prints the chain
        /// would print it twice.
        answer: io::Error,
    },
    /// A netlink request was refused.
    #[error("{what}: {answer}{}", if message.is_empty() { String::new() } else { format!(" ({message})") })]
    Netlink {
        /// What was attempted.
        what: String,
        /// The kernel's answer.
        answer: io::Error,
        /// The kernel's own words (extended acknowledgement), where it gave any.
        message: String,
    },
    /// A program that this crate runs failed.
    #[error("`{command}` failed: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// What it wrote.
        output: String,
    },
    /// The request contradicts the state of the machine, or itself.
    #[error("{0}")]
    Refused(String),
    /// Somebody else has what was wanted.
    #[error("{what}")]
    Held {
        /// Who that is.
        by: Holder,
        /// What that means, and what to do.
        what: String,
    },
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says what was attempted when `source` came back.
    pub fn os(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os { what: what.into(), answer: source.into() }
    }
    /// As [`Error::os`], with the calling thread's `errno`.
    pub fn last_os(what: impl Into<String>) -> Self {
        Self::os(what, io::Error::last_os_error())
    }
    /// The kernel's error number, when there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { answer, .. } | Self::Netlink { answer, .. } => answer.raw_os_error(),
            Self::Tool { .. } | Self::Refused(_) | Self::Held { .. } => None,
        }
    }
    /// Whether the kernel answered with this error number.
    #[must_use]
    pub fn is(&self, errno: i32) -> bool {
        self.errno() == Some(errno)
    }
}

/// Adds what was attempted to an I/O result.
pub trait Context<T> {
    /// Turns the error into [`Error::Os`] with these words.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::os(what(), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_answer_is_said_once() {
        let e = Error::os("creating the TUN", io::Error::from_raw_os_error(1));
        assert_eq!(e.to_string(), "creating the TUN: Operation not permitted (os error 1)");
        assert!(std::error::Error::source(&e).is_none(), "a chain that is printed would say it again");
    }
}
