//! Pages of the commands, from what the command line itself is made of.

use clap::{Arg, Command};

use super::document::{Block, Inline, Line, Page, quoted};

/// A page for each command that is not hidden, this one first.
pub fn pages(command: &Command) -> Vec<Page> {
    let visible = command.get_subcommands().filter(is_shown);
    let below = visible.flat_map(pages);
    std::iter::once(page(command)).chain(below).collect()
}

fn is_shown(command: &&Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

/// What `farlink lab up` is called among files.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-")
}

fn page(command: &Command) -> Page {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let about = about.replace('\n', " ");
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim_start();
    let usage = usage.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let long = command.get_long_about().map_or(format!("{about}."), ToString::to_string);
    let mut blocks = vec![Block::section("SYNOPSIS"), Block::Code(usage), Block::section("DESCRIPTION")];
    blocks
        .extend(long.split("\n\n").map(|paragraph| Block::Paragraph(quoted(&paragraph.replace('\n', " ")))));
    blocks.extend(arguments(command));
    let subcommands: Vec<_> = command.get_subcommands().filter(is_shown).map(subcommand).collect();
    if !subcommands.is_empty() {
        blocks.extend([Block::section("COMMANDS"), Block::Terms(subcommands)]);
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    blocks.extend(after.map(|text| behind(&text.to_string())).unwrap_or_default());
    blocks.extend(see_also(command));
    Page { name: name(command), section: 1, about, blocks }
}

fn subcommand(command: &Command) -> (Line, Vec<Block>) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let name = name(command);
    let page = Inline::Page(format!("{name}(1)"), Some(format!("{name}.1")));
    (vec![page], vec![Block::Paragraph(quoted(&about.replace('\n', " ")))])
}

fn arguments(command: &Command) -> Vec<Block> {
    let shown = || command.get_arguments().filter(|a| !a.is_hide_set());
    let (positional, options): (Vec<_>, Vec<_>) = shown().partition(|a| a.is_positional());
    let mut blocks = Vec::new();
    for (heading, arguments) in [("ARGUMENTS", positional), ("OPTIONS", options)] {
        if !arguments.is_empty() {
            blocks.push(Block::section(heading));
            blocks.push(Block::Terms(arguments.into_iter().map(argument).collect()));
        }
    }
    blocks
}

fn argument(argument: &Arg) -> (Line, Vec<Block>) {
    let takes_value = argument.get_action().takes_values();
    let mut term = Vec::new();
    if let Some(short) = argument.get_short() {
        term.extend([Inline::Code(format!("-{short}")), Inline::Text(", ".to_owned())]);
    }
    term.extend(argument.get_long().map(|long| Inline::Code(format!("--{long}"))));
    if takes_value {
        if !argument.is_positional() {
            term.push(Inline::Text(" ".to_owned()));
        }
        let names = argument.get_value_names().unwrap_or_default();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        term.push(Inline::Variable(names.join(" ")));
    }
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string);
    let mut text = quoted(&help.unwrap_or_default().replace('\n', " "));
    let defaults: Vec<_> = argument.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    if takes_value && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        text.push(Inline::Text(" [default: ".to_owned()));
        text.extend([Inline::Code(defaults.join(" ")), Inline::Text("]".to_owned())]);
    }
    let values: Vec<_> = argument.get_possible_values().into_iter().filter(|v| !v.is_hide_set()).collect();
    if takes_value && !values.is_empty() {
        let all: Vec<_> = values.iter().map(|v| format!("`{}`", v.get_name())).collect();
        text.extend(quoted(&format!(" [allowed: {}]", all.join(", "))));
    }
    if let Some(variable) = argument.get_env() {
        text.extend(quoted(&format!(" [environment: `{}`]", variable.to_string_lossy())));
    }
    (term, vec![Block::Paragraph(text)])
}

/// What the help says behind the options: examples, notes, the exit status. Indented lines keep
/// their form.
fn behind(text: &str) -> Vec<Block> {
    let (mut examples, mut notes, mut status) = (Vec::new(), Vec::new(), Vec::new());
    for paragraph in text.split("\n\n") {
        let to = match paragraph {
            p if p.starts_with("Examples:") => &mut examples,
            p if p.starts_with("Exit status:") => &mut status,
            _ => &mut notes,
        };
        let rest = paragraph.strip_prefix("Examples:").or(paragraph.strip_prefix("Exit status:"));
        to.extend(form(rest.unwrap_or(paragraph)));
    }
    let sections = [("EXAMPLES", examples), ("NOTES", notes), ("EXIT STATUS", status)];
    let sections = sections.into_iter().filter(|(_, blocks)| !blocks.is_empty());
    sections.flat_map(|(name, blocks)| std::iter::once(Block::section(name)).chain(blocks)).collect()
}

fn form(paragraph: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for line in paragraph.lines().filter(|line| !line.trim().is_empty()) {
        match (line.strip_prefix("  "), blocks.last_mut()) {
            (Some(code), Some(Block::Code(lines))) => lines.push_str(&format!("\n{code}")),
            (Some(code), _) => blocks.push(Block::Code(code.to_owned())),
            (None, Some(Block::Paragraph(said))) => said.extend(quoted(&format!(" {}", line.trim_start()))),
            (None, _) => blocks.push(Block::Paragraph(quoted(line.trim_start()))),
        }
    }
    blocks
}

fn see_also(command: &Command) -> Vec<Block> {
    let name = name(command);
    let others = [("farlink", 1), ("farlink.toml", 5)].into_iter().filter(|(other, _)| *other != name);
    let mut line = Line::new();
    for (name, section) in others {
        if !line.is_empty() {
            line.push(Inline::Text(", ".to_owned()));
        }
        line.push(Inline::Page(format!("{name}({section})"), Some(format!("{name}.{section}"))));
    }
    vec![Block::section("SEE ALSO"), Block::Paragraph(line)]
}
