//! Namespaces by name, as the laboratory needs them: entered with the caller's own errors, told
//! things in batches.
//!
//! A socket belongs to the namespace in which it was made, whichever thread uses it afterwards: so
//! a workload opens its sockets inside [`Ns::enter`] and then runs anywhere.

use std::ffi::CString;
use std::process::Command;

use anyhow::{Context, Result, bail};
use farlink_linux::netns::Namespace;

/// A network namespace with a name, whether or not it exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ns {
    name: String,
}

impl Ns {
    /// A namespace that exists or is about to.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.into() }
    }

    /// The namespace that the caller is in.
    #[must_use]
    pub fn current() -> Self {
        Self { name: String::new() }
    }

    /// Its name; empty for the caller's own.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        Namespace::exists(&self.name)
    }

    /// Makes it. An existing one is an error.
    pub fn create(&self) -> Result<()> {
        Namespace::create(&self.name)?;
        Ok(())
    }

    /// Removes it; its interfaces go with the last process in it. One that is not there is no
    /// error.
    pub fn delete(&self) -> Result<()> {
        Ok(Namespace::delete_named(&self.name)?)
    }

    /// Runs `f` on a thread of its own inside the namespace.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let namespace = self.open()?;
        namespace.run(|| Ok(f()))?
    }

    /// A command that will run inside the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        Ok(self.open()?.command(program))
    }

    /// Runs a program inside to its end; the error quotes its last words.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = self.command(program)?;
        command.args(args);
        crate::sh::output(command).with_context(|| format!("in the namespace {}", self.name))
    }

    /// Writes sysctls, e.g. `("net.ipv4.ip_forward", "1")`.
    pub fn sysctls(&self, settings: &[(String, String)]) -> Result<()> {
        let namespace = self.open()?;
        namespace.run(|| {
            settings.iter().try_for_each(|(key, value)| {
                let parts: Vec<_> = key.strip_prefix("net.").unwrap_or(key).split('.').collect();
                farlink_linux::sysctl::write(&parts, value)
            })
        })?;
        Ok(())
    }

    /// Runs lines of `ip -batch` inside; `-6` is what a line of IPv6 routes needs.
    pub fn ip_batch(&self, v6: bool, lines: &[String]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut args = vec!["-n", self.name.as_str(), "-batch", "-"];
        if v6 {
            args.insert(0, "-6");
        }
        crate::sh::run_with_input("ip", &args, &lines.join("\n"))
            .with_context(|| format!("in the namespace {}", self.name))
    }

    /// Switches the offloads of an interface off: every packet there is one packet and its checksum
    /// is real.
    pub fn offloads_off(&self, interface: &str) -> Result<()> {
        Ok(self.open()?.set_offloads(interface, false)?)
    }

    /// Processes that run in it, our own excepted.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.open().map(|n| n.pids()).unwrap_or_default()
    }

    fn open(&self) -> Result<Namespace> {
        Ok(if self.name.is_empty() { Namespace::current()? } else { Namespace::open(&self.name)? })
    }
}

/// Number of an interface in the calling thread's namespace.
pub fn interface_index(interface: &str) -> Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: a string that ends in NUL and lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => bail!("no interface {interface}"),
        index => Ok(index),
    }
}
