//! `farlink report`: reads results, writes the page.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use farlink_lab::html::{self, Source};

use crate::cli::ReportArgs;

/// Makes the report.
///
/// # Errors
/// A file that cannot be read, used or written.
pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let sources: Vec<Source> = args.results.iter().map(|path| read(path)).collect::<Result<_>>()?;
    let rendered = html::render(&sources)?;
    if args.output.as_os_str() == "-" {
        std::io::stdout().write_all(rendered.html.as_bytes())?;
    } else {
        write(&args.output, &rendered.html)?;
    }
    if let Some(directory) = &args.svg {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        for (name, text) in &rendered.plots {
            write(&directory.join(format!("{name}.svg")), text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Source> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
    Ok(Source { name, text })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}
