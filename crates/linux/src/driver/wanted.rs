//! Which interfaces are diverted besides those that are named. Pure, but for what the kernel says
//! of forwarding.

use crate::divert::is_plain;
use crate::error::Result;
use crate::netlink::{Link, Socket};
use crate::sysctl;

/// What Farlink's own devices are called, of all instances.
const OWN: &str = "farlink";

/// What an interface is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Its name. `*` stands for any characters, `?` for one.
    Pattern(String),
    /// The group that it is in.
    Group(u32),
    /// That it is up and the kernel forwards what comes in by it.
    Forwarding,
}

/// Interfaces that are diverted when they are there, whatever they are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finder {
    /// Which they are.
    pub by: By,
    /// Their routing domain.
    pub domain: u16,
    /// They get a bump.
    pub attach: bool,
    /// `false`: they are left alone.
    pub divert: bool,
}

impl Finder {
    fn fits(&self, link: &Link, is_known: bool) -> bool {
        match &self.by {
            By::Pattern(pattern) => matches(pattern, &link.name),
            By::Group(group) => link.group == *group,
            // One that is taken down is a link that is down.
            By::Forwarding => (link.up || is_known) && link.forwards,
        }
    }
}

/// The finder that an interface is diverted by: the first that fits decides. `is_known`: it has
/// been diverted until now.
pub(crate) fn finder_of<'a>(finders: &'a [Finder], link: &Link, is_known: bool) -> Option<&'a Finder> {
    if link.is_loopback || link.is_vrf || link.is_port || is_own(&link.name) || !is_plain(&link.name) {
        return None;
    }
    finders.iter().find(|finder| finder.fits(link, is_known)).filter(|finder| finder.divert)
}

/// It may be one of Farlink's own devices, of whichever instance.
pub(crate) fn is_own(name: &str) -> bool {
    let number = name.strip_prefix(OWN).unwrap_or_default();
    number.ends_with(|c: char| c.is_ascii_digit()) && number.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Names of the interfaces that are there now and would be diverted.
///
/// # Errors
/// The kernel does not answer.
pub fn found_by(finders: &[Finder]) -> Result<Vec<String>> {
    let mut links = Socket::open()?.links()?;
    links.iter_mut().for_each(look_whether_it_forwards);
    let found = links.into_iter().filter(|link| finder_of(finders, link, false).is_some());
    Ok(found.map(|link| link.name).collect())
}

/// Those of these interfaces that are up, that are none of Farlink's own, and by which the kernel
/// forwards what comes in.
pub fn that_forward(links: &[Link]) -> impl Iterator<Item = &Link> {
    let forwarding = [Finder { by: By::Forwarding, domain: 0, attach: false, divert: true }];
    links.iter().filter(move |link| {
        let mut asked = (*link).clone();
        look_whether_it_forwards(&mut asked);
        finder_of(&forwarding, &asked, false).is_some()
    })
}

/// Asks the kernel, which takes two files of /proc.
pub(crate) fn look_whether_it_forwards(link: &mut Link) {
    link.forwards = forwards(&link.name);
}

/// The kernel forwards what comes in by this interface, in one family at least.
fn forwards(interface: &str) -> bool {
    let says = |family| sysctl::read_number(&[family, "conf", interface, "forwarding"]);
    ["ipv4", "ipv6"].into_iter().any(|family| says(family) == Some(1))
}

/// Whether a name is as a pattern says.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star stands, and what it has taken.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || Some(c) == name.get(n) => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, name, fits) in [
            ("wan*", "wan", true),
            ("wan*", "wan0", true),
            ("wan*", "lwan0", false),
            ("*", "anything", true),
            ("*", "", true),
            ("ppp?", "ppp1", true),
            ("ppp?", "ppp10", false),
            ("ppp?", "ppp", false),
            ("e*s*0", "enp3s0", true),
            ("e*s*0", "enp3s0f1", false),
            ("e*s*0", "ess00", true),
            ("a*b*c", "abbbbc", true),
            ("sat0", "sat0", true),
            ("sat0", "sat01", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
        // Many stars cost no more than their number times the length.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(15)));
    }

    #[test]
    fn the_first_finder_that_fits_decides_and_some_are_never_found() {
        let finder = |by, divert| Finder { by, domain: 0, attach: false, divert };
        let finders = [
            finder(By::Pattern("docker0".into()), false),
            finder(By::Group(7), true),
            finder(By::Pattern("d*".into()), true),
        ];
        let link = |name: &str, group| Link { name: name.into(), group, ..Link::default() };
        let by = |link: &Link| finder_of(&finders, link, false).map(|f| f.by.clone());
        assert_eq!(by(&link("docker0", 7)), None);
        assert_eq!(by(&link("x", 7)), Some(By::Group(7)));
        assert_eq!(by(&link("dsl0", 0)), Some(By::Pattern("d*".into())));
        assert_eq!(by(&link("x", 0)), None);
        for own in ["farlink0", "farlinkab12", "d\"0", "d*"] {
            assert_eq!(by(&link(own, 7)), None, "{own}");
        }
        assert_eq!(by(&link("farlink-lan0", 7)), Some(By::Group(7)));
        for odd in [
            Link { is_port: true, ..link("d0", 0) },
            Link { is_vrf: true, ..link("d0", 0) },
            Link { is_loopback: true, ..link("d0", 0) },
        ] {
            assert_eq!(by(&odd), None);
        }
    }
}
