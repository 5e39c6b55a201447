//! From the configuration file and the command line to what the gateway and the driver are told.

use std::path::Path;

use anyhow::Context;

mod build;
mod error;
mod everything;
mod file;
mod interfaces;
mod machine;
mod units;
mod values;

#[cfg(test)]
mod tests;

use build::build;
pub use build::{Quick, Settings};
pub use error::ConfigError;
use error::Source;
pub use everything::Verdict;
pub use file::Confinement;
use file::File;
pub use values::{Rate, Rates, Time};

/// Where the configuration is looked for when the command line names nothing.
pub const DEFAULT_FILE: &str = "/etc/farlink/farlink.toml";
/// Where the daemon listens for `farlink status` and its kin.
pub const DEFAULT_SOCKET: &str = "/run/farlink/farlink.sock";
/// Where what is found of links is kept, with that socket.
pub const DEFAULT_FOUND: &str = "/var/lib/farlink/found.json";

/// Reads the configuration: a file (without one: nothing but defaults) and what the command line
/// adds.
pub fn load(file: Option<&Path>, quick: &Quick) -> anyhow::Result<Settings> {
    let (name, text) = match file {
        None => ("command line".to_owned(), String::new()),
        Some(path) => {
            let bad = || format!("cannot read the configuration file {}", path.display());
            let bytes = std::fs::read(path).with_context(bad)?;
            let text = String::from_utf8(bytes).with_context(bad)?;
            (path.display().to_string(), text)
        }
    };
    let source = Source { file: &name, text: &text };
    let settings = build(&parse(source)?, source, quick)?;
    Ok(Settings { file: file.map(Path::to_owned), ..settings })
}

/// Reads a configuration file to its end, and says all that is wrong with it. Changes nothing, and
/// needs no privilege.
pub fn judge(file: &Path) -> Verdict {
    let name = file.display().to_string();
    let read = || -> anyhow::Result<String> { Ok(String::from_utf8(std::fs::read(file)?)?) };
    match read() {
        Ok(text) => {
            let source = Source { file: &name, text: &text };
            everything::judge(source)
        }
        Err(e) => {
            let wrong = Source { file: &name, text: "" }.error(None, format!("cannot be read: {e}"));
            Verdict { mistakes: vec![wrong], is_partial: false, settings: None }
        }
    }
}

/// What the text of a configuration file says, which the program has made itself.
pub fn of_text(text: &str) -> anyhow::Result<Settings> {
    let source = Source { file: "command line", text };
    Ok(build(&parse(source)?, source, &Quick::default())?)
}

/// What a gateway is told by the text of a configuration file that names its interfaces.
///
/// # Errors
/// Whatever is wrong with the text, as with a file.
#[cfg(feature = "lab")]
pub fn gateway_of(text: &str) -> anyhow::Result<farlink_lab::simulate::Read> {
    let source = Source { file: "generated configuration", text };
    let settings = build(&parse(source)?, source, &Quick::default())?;
    let of = |name: &str| settings.gateway.interfaces.iter().find(|i| i.name == name).map(|i| i.id);
    let whole = settings.divert.selections.iter().filter_map(|selection| match selection {
        farlink_linux::divert::Selection::LeavesBy(name) => of(name),
        _ => None,
    });
    let whole_when_known = settings.divert.whole_when_known.iter().filter_map(|name| of(name)).collect();
    Ok(farlink_lab::simulate::Read { whole: whole.collect(), whole_when_known, gateway: settings.gateway })
}

/// Reads a file's text.
fn parse(source: Source<'_>) -> Result<File, ConfigError> {
    toml::from_str(source.text).map_err(|e| source.parse_error(&e))
}
