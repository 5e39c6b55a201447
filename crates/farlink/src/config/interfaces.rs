//! Which interfaces are diverted: by name, by pattern, by group, or all that forward.

use std::ops::Range;

use farlink_gateway::config as engine;
use farlink_gateway::{IfaceId, SELECTORS_FROM};
use farlink_linux::driver::{By, Finder, matches};
use toml::Spanned;

use super::Quick;
use super::build::{default_link_leg, link};
use super::error::{ConfigError, Source};
use super::file::{self, File};

const COMMAND_LINE: Source<'static> = Source { file: "command line", text: "" };
/// Interface names are shorter than IFNAMSIZ.
const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// All that forward.
const ALL: &str = "*";

/// An interface on its way into the configuration.
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its routing domain.
    pub domain: u16,
    /// The link that is declared on it.
    pub link: Option<engine::Link>,
}

/// What file and command line say of interfaces.
pub struct Named {
    /// Those that are named, and diverted.
    pub interfaces: Vec<Found>,
    /// How others are found.
    pub finders: Vec<Finder>,
}

/// The name stands for several interfaces.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Reads them. Without any that is to be diverted all are that forward.
pub fn named(file: &File, source: Source<'_>, quick: &Quick) -> Result<Named, ConfigError> {
    let mut named = Named { interfaces: Vec::new(), finders: Vec::new() };
    // Those that are left alone by name come before all patterns.
    let mut left_alone: Vec<Finder> = Vec::new();
    for i in &file.interface {
        add_interface(&mut named, &mut left_alone, i, source)?;
    }
    for name in &quick.interfaces {
        check_name(COMMAND_LINE, name, None)?;
        if is_pattern(name) {
            named.finders.push(finder(by_pattern(name)));
        } else if !named.interfaces.iter().any(|f| f.name == *name) {
            named.interfaces.push(Found { name: name.clone(), domain: 0, link: None });
        }
    }
    let is_named = !named.interfaces.is_empty() || named.finders.iter().any(|f| f.divert);
    for l in &file.link {
        let link = link(l, source, file.custody_notice.unwrap_or_default())?;
        let (name, span) = (l.interface.get_ref(), Some(l.interface.span()));
        check_name(source, name, span.clone())?;
        add_link(&mut named, &left_alone, name, link).map_err(|wrong| source.error(span, wrong))?;
    }
    for name in &quick.links {
        check_name(COMMAND_LINE, name, None)?;
        let link = engine::Link {
            name: name.clone(),
            rate_bps: quick.rate.map(|r| r.0),
            rate_in_bps: quick.rate_in.map(|r| r.0),
            reconfigures: quick.reconfigures.map(|t| t.0),
            leg: default_link_leg(quick.rate.is_some()),
            estimate_rate: quick.rate.is_none(),
            corrects_rate: true,
            is_metered: false,
            ..engine::Link::default()
        };
        add_link(&mut named, &left_alone, name, link).map_err(|wrong| COMMAND_LINE.error(None, wrong))?;
    }
    if !is_named {
        named.finders.push(finder(By::Forwarding));
    }
    left_alone.append(&mut named.finders);
    named.finders = left_alone;
    Ok(named)
}

fn finder(by: By) -> Finder {
    Finder { by, domain: 0, attach: false, divert: true }
}

fn by_pattern(name: &str) -> By {
    if name == ALL { By::Forwarding } else { By::Pattern(name.to_owned()) }
}

fn add_interface(
    named: &mut Named,
    left_alone: &mut Vec<Finder>,
    told: &Spanned<file::Interface>,
    source: Source<'_>,
) -> Result<(), ConfigError> {
    let i = told.get_ref();
    let divert = i.divert.unwrap_or(true);
    if let Some(attach) = i.attach.as_ref().filter(|a| *a.get_ref() && !divert) {
        let wrong = "`divert = false` leaves the interface alone; allowed: one of the two keys, not both";
        return Err(source.error(Some(attach.span()), wrong));
    }
    let domain = i.domain.map_or(0, |d| d.0 as u16);
    let attach = i.attach.as_ref().is_some_and(|a| *a.get_ref());
    let (name, span) = match (&i.name, &i.group) {
        (Some(name), None) => (name.get_ref(), name.span()),
        (None, Some(group)) => {
            let by = By::Group(group.get_ref().0);
            if named.finders.iter().any(|f| f.by == by) {
                let wrong = "this group is named twice; allowed: one [[interface]] for each";
                return Err(source.error(Some(group.span()), wrong));
            }
            named.finders.push(Finder { by, domain, attach, divert });
            return Ok(());
        }
        (Some(_), Some(group)) => {
            let wrong = "it has a name already; allowed: `name` or `group`, one [[interface]] for each";
            return Err(source.error(Some(group.span()), wrong));
        }
        (None, None) => {
            let wrong =
                "missing key `name`; allowed: `name`, a pattern such as \"wan*\" in its place, or `group`";
            return Err(source.error(Some(told.span()), wrong));
        }
    };
    check_name(source, name, Some(span.clone()))?;
    let is_there = |f: &Finder| f.by == by_pattern(name) || f.by == By::Pattern(name.clone());
    if named.interfaces.iter().any(|f| f.name == *name)
        || named.finders.iter().chain(left_alone.iter()).any(is_there)
    {
        let twice = format!("interface `{name}` is named twice; allowed: one [[interface]] for each");
        return Err(source.error(Some(span), twice));
    }
    match (is_pattern(name), divert) {
        (true, _) => named.finders.push(Finder { by: by_pattern(name), domain, attach, divert }),
        (false, true) => named.interfaces.push(Found { name: name.clone(), domain, link: None }),
        (false, false) => {
            left_alone.push(Finder { by: By::Pattern(name.clone()), domain, attach, divert });
        }
    }
    Ok(())
}

/// Whether a name can be that of a diverted interface, or a pattern.
fn check_name(source: Source<'_>, name: &str, span: Option<Range<usize>>) -> Result<(), ConfigError> {
    let bad = name.is_empty()
        || name.len() > INTERFACE_NAME_BYTES_MAX
        || name.contains(|c: char| c == '/' || c == '"' || c.is_whitespace() || c.is_control());
    if bad {
        return Err(source.error(
            span,
            format!("`{name}` cannot be the name of an interface; allowed: 1 to 15 characters without spaces or `/`"),
        ));
    }
    if name == "lo" {
        return Err(source.error(
            span,
            "the loopback interface carries no traffic of others; allowed: interfaces by which forwarded traffic comes in",
        ));
    }
    let number = name.strip_prefix("farlink").unwrap_or_default();
    if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) {
        return Err(source.error(
            span,
            format!("`{name}` is a device that Farlink makes for itself; allowed: interfaces by which forwarded traffic comes in"),
        ));
    }
    Ok(())
}

fn add_link(
    named: &mut Named,
    left_alone: &[Finder],
    interface: &str,
    link: engine::Link,
) -> Result<(), String> {
    if is_pattern(interface) {
        return Err(format!(
            "`{interface}` stands for several interfaces, and a link is one of them; allowed: the name of an interface"
        ));
    }
    let found = &mut named.interfaces;
    if found.iter().filter_map(|f| f.link.as_ref()).any(|other| other.name == link.name) {
        return Err(format!("there are two links called `{}`; allowed: one of each name", link.name));
    }
    if left_alone.iter().any(|f| f.by == By::Pattern(interface.to_owned())) {
        return Err(format!(
            "interface `{interface}` has `divert = false`, so nothing that comes in by this link could be split; \
             allowed: links on diverted interfaces"
        ));
    }
    match found.iter_mut().find(|f| f.name == interface) {
        Some(f) if f.link.is_some() => Err(format!(
            "interface `{interface}` is declared twice as a link; allowed: one [[link]] for each interface"
        )),
        Some(f) => {
            f.link = Some(link);
            Ok(())
        }
        None => {
            found.push(Found { name: interface.to_owned(), domain: 0, link: Some(link) });
            Ok(())
        }
    }
}

/// The number that a rule has for an interface that it names, or for a pattern.
pub fn meant(
    wanted: &str,
    interfaces: &[engine::Interface],
    finders: &[Finder],
    selectors: &mut Vec<String>,
) -> Result<IfaceId, String> {
    if let Some(named) = interfaces.iter().find(|i| i.name == wanted) {
        return Ok(named.id);
    }
    let may_find = |f: &Finder| match &f.by {
        By::Pattern(pattern) => is_pattern(wanted) || matches(pattern, wanted),
        By::Group(_) | By::Forwarding => true,
    };
    let is_known = interfaces.iter().any(|i| matches(wanted, &i.name))
        || finders.iter().any(|f| f.divert && may_find(f));
    if !is_known {
        let names: Vec<_> = interfaces.iter().map(|i| i.name.as_str()).collect();
        return Err(format!("interface `{wanted}` is not diverted; allowed: {}", names.join(", ")));
    }
    let place = selectors.iter().position(|known| known == wanted).unwrap_or_else(|| {
        selectors.push(wanted.to_owned());
        selectors.len() - 1
    });
    let number = u16::try_from(place).ok().and_then(|n| SELECTORS_FROM.checked_add(n));
    number.map(IfaceId).ok_or_else(|| "there are too many patterns; allowed: 32767".to_owned())
}
