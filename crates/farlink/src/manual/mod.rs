//! Man pages, HTML pages and shell completions, from the definition of the command line and from
//! docs/configuration.md. Nothing of them is written by hand.

mod commands;
mod document;
mod html;
mod markdown;
mod roff;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::Shell;

use crate::cli::{self, CompletionsArgs, ManualArgs};
use crate::out::{out, outln};
use document::Page;

const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");

/// Prints what a shell needs to complete the command line.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    out!("{}", completion(args.shell));
    Ok(ExitCode::SUCCESS)
}

/// Writes everything below a directory.
pub fn run(args: &ManualArgs) -> Result<ExitCode> {
    let pages = pages();
    for page in &pages {
        write(&args.directory, "man", &page.file(), &roff::render(page))?;
        write(&args.directory, "html", &format!("{}.html", page.file()), &html::render(page))?;
    }
    write(&args.directory, "html", "index.html", &html::index(&pages))?;
    // By these names each shell looks for them.
    for (shell, file) in [(Shell::Bash, "farlink"), (Shell::Zsh, "_farlink"), (Shell::Fish, "farlink.fish")] {
        write(&args.directory, &format!("completions/{shell}"), file, &completion(shell))?;
    }
    outln!("{} pages, as man and html, and completions for bash, zsh and fish", pages.len());
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path, below: &str, file: &str, text: &str) -> Result<()> {
    let directory = directory.join(below);
    let path = directory.join(file);
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn completion(shell: Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "farlink", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn pages() -> Vec<Page> {
    let mut command = cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = commands::pages(&command);
    let about = "configuration of the Farlink gateway";
    pages.push(markdown::page("farlink.toml", 5, about, CONFIGURATION));
    pages
}

#[cfg(test)]
mod tests {
    use super::document::Block;
    use super::*;

    #[test]
    fn every_command_has_a_page_with_every_option_of_its_help() {
        let pages = pages();
        for name in ["farlink", "farlink-run", "farlink-check-config", "farlink-completions"] {
            assert!(pages.iter().any(|p| p.name == name), "{name}");
        }
        assert!(!pages.iter().any(|p| p.name.contains("manual") || p.name.contains("bench")), "hidden ones");
        let run = pages.iter().find(|p| p.name == "farlink-run").unwrap();
        for text in [roff::render(run), html::render(run)] {
            for said in ["config", "/etc/farlink/farlink.toml", "FARLINK_LOG", "2 for a wrong command line"] {
                assert!(text.replace("\\-", "-").contains(said), "{said} in\n{text}");
            }
            assert!(!text.contains("Examples:") && !text.contains("Exit status:"), "headings\n{text}");
        }
    }

    #[test]
    fn every_key_of_the_configuration_is_a_heading() {
        let page = pages().pop().unwrap();
        let keys = CONFIGURATION.lines().filter_map(|l| l.strip_prefix("### ")).count();
        let headings =
            page.blocks.iter().filter(|b| matches!(b, Block::Heading { is_inner: true, .. })).count();
        assert!(keys > 50 && headings == keys, "{keys} keys, {headings} headings");
        let man = roff::render(&page);
        assert!(man.contains(".SS metrics_address\n") && man.contains(".SH [[LINK]]\n"));
        // Code keeps its lines, and text is not taken for a request.
        assert!(man.contains("\n[[interface]]\nname = \\(dqlan0\\(dq\n"), "{man}");
        let html = html::render(&page);
        assert!(html.contains("<h3 id=\"metrics_address\"><code>metrics_address</code></h3>"));
    }

    /// Each word of the document, and no other.
    #[test]
    fn no_word_of_a_document_is_lost() {
        let page = markdown::page(
            "x",
            7,
            "about",
            "# T\n\na **b** `c d`\n\n- e [f](g.md)\n\n  h\n- i\n\n## J\n\n|k|l|\n|-|-|\n|m|`n`|\n\n```\no\n```\n",
        );
        let html = html::render(&page);
        let body = html.split("<p>about</p>\n").nth(1).unwrap();
        let wanted = "<h2 id=\"description\">DESCRIPTION</h2>\n<p>a <strong>b</strong> <code>c d</code></p>\n<ul>\n\
             <li><p>e f (docs/g.md)</p>\n<p>h</p>\n</li>\n<li>i</li>\n</ul>\n<h2 id=\"j\">J</h2>\n\
             <table>\n<tr><th>k</th><th>l</th></tr>\n<tr><td>m</td><td><code>n</code></td></tr>\n</table>\n<pre>o</pre>\n";
        assert!(body.starts_with(wanted), "{body}");
    }
}
