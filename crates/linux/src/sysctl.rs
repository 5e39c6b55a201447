//! Kernel parameters under /proc/sys/net of the calling thread's network namespace.

use std::fs;
use std::path::PathBuf;

use crate::error::{Context, Result};

fn path(parts: &[&str]) -> PathBuf {
    let mut path = PathBuf::from("/proc/sys/net");
    path.extend(parts);
    path
}

/// Reads a parameter; `parts` are path components, so that interface names with dots stay whole.
pub fn read(parts: &[&str]) -> Result<String> {
    let path = path(parts);
    let text = fs::read_to_string(&path).context(|| format!("reading {}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// Reads a whole number; `None` when this kernel has no such parameter.
#[must_use]
pub fn read_number(parts: &[&str]) -> Option<i64> {
    read(parts).ok()?.parse().ok()
}

/// Writes a parameter.
pub fn write(parts: &[&str], value: &str) -> Result<()> {
    let path = path(parts);
    fs::write(&path, value).context(|| format!("writing {value} to {}", path.display()))
}

/// Whether this kernel has a parameter.
#[must_use]
pub fn exists(parts: &[&str]) -> bool {
    path(parts).exists()
}
