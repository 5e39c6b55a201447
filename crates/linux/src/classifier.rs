//! Programs at an interface by tc's classifier (cls_bpf in direct action, with the qdisc clsact),
//! for kernels before 6.6. Unlike tcx such a filter outlives the process that made it: what it does
//! then is up to the program, and the next one to attach takes its place.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::bpf::{Side, program_id};
use crate::error::{Error, Holder, Result};
use crate::netlink::{Answer, Attributes, Message, Socket};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const TCMSG_BYTES: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// TC_H_CLSACT, and its two sides.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// The same handle and priority each time: a new filter takes the place of one that was left.
const HANDLE: u32 = 0xfa12;
/// First of what comes in, last of what leaves: others stand inside.
const FIRST: u32 = 1;
const LAST: u32 = 0xbfff;
const NAME: &str = "farlink";

/// A filter. Dropping it takes it away, and the qdisc with it where nobody else uses that.
#[derive(Debug)]
pub struct Filter {
    interface: u32,
    side: Side,
    program: u32,
    /// The qdisc is Farlink's, of this process or of one before.
    made_qdisc: bool,
    /// In the network namespace of the interface.
    socket: Mutex<Socket>,
}

/// struct tcmsg: family, three bytes of padding, interface, handle, parent, priority and protocol.
fn body(interface: u32, handle: u32, parent: u32, info: u32) -> [u8; TCMSG_BYTES] {
    let mut body = [0; TCMSG_BYTES];
    for (at, value) in [(4, interface), (8, handle), (12, parent), (16, info)] {
        body[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    body
}

fn of_filter(interface: u32, side: Side) -> [u8; TCMSG_BYTES] {
    let (parent, priority) = match side {
        Side::Ingress => (INGRESS, FIRST),
        Side::Egress => (EGRESS, LAST),
    };
    let every = u32::from((libc::ETH_P_ALL as u16).to_be());
    body(interface, HANDLE, parent, priority << 16 | every)
}

impl Filter {
    /// Attaches a program to an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// There is no such interface, the kernel lacks cls_bpf or clsact, or [`Error::Held`]: the
    /// qdisc `ingress` stands there.
    pub fn attach(program: &OwnedFd, interface: u32, side: Side) -> Result<Self> {
        let mut socket = Socket::open()?;
        let mut qdisc =
            Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &body(interface, CLSACT_HANDLE, CLSACT, 0));
        qdisc.attr_str(TCA_KIND, "clsact");
        let made_qdisc = match socket.request(qdisc, "adding the qdisc clsact") {
            Ok(()) => true,
            // SQM's takes the same place, with room for what comes in alone.
            Err(e) if e.is(libc::EEXIST) && of_ingress(&mut socket)?.contains(&interface) => {
                return Err(beside_ingress(&format!("interface {interface}")));
            }
            // One of a process that was killed has Farlink's filters.
            Err(e) if e.is(libc::EEXIST) => has_filters(&mut socket, interface, true)?,
            Err(e) => return Err(e),
        };
        let mut message = Message::new(RTM_NEWTFILTER, NLM_F_CREATE, &of_filter(interface, side));
        message.attr_str(TCA_KIND, "bpf").nested(TCA_OPTIONS, &[], |m| {
            m.attr_u32(TCA_BPF_FD, program.as_raw_fd().cast_unsigned())
                .attr_str(TCA_BPF_NAME, NAME)
                .attr_u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
        });
        socket.request(message, &format!("adding a filter to interface {interface}"))?;
        let program = program_id(program)?;
        Ok(Self { interface, side, program, made_qdisc, socket: Mutex::new(socket) })
    }

    /// The interface at which it stands. `None`: somebody has taken it away or put something else
    /// there, or the interface is gone.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn stands_at(&self) -> Result<Option<u32>> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut message = Message::new(RTM_GETTFILTER, 0, &of_filter(self.interface, self.side));
        message.attr_str(TCA_KIND, "bpf");
        let mut program = None;
        let asked = socket.query(message, "asking for a filter", |answer| {
            program = options(&answer).and_then(|options| options.find_u32(TCA_BPF_ID));
        });
        match asked {
            Ok(()) => Ok(program.filter(|id| *id == self.program).map(|_| self.interface)),
            Err(e) if [libc::ENOENT, libc::ENODEV, libc::EINVAL].iter().any(|code| e.is(*code)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn take_away(&self) -> Result<()> {
        // Another process may have put its own there meanwhile.
        if self.stands_at()?.is_none() {
            return Ok(());
        }
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        remove_filter(&mut socket, self.interface, self.side)?;
        if self.made_qdisc { remove_unused_qdisc(&mut socket, self.interface) } else { Ok(()) }
    }
}

fn remove_filter(socket: &mut Socket, interface: u32, side: Side) -> Result<()> {
    let mut message = Message::new(RTM_DELTFILTER, 0, &of_filter(interface, side));
    message.attr_str(TCA_KIND, "bpf");
    socket.request(message, "taking a filter away")
}

fn remove_unused_qdisc(socket: &mut Socket, interface: u32) -> Result<()> {
    if has_filters(socket, interface, false)? {
        return Ok(());
    }
    let body = body(interface, CLSACT_HANDLE, CLSACT, 0);
    socket.request(Message::new(RTM_DELQDISC, 0, &body), "taking the qdisc clsact away")
}

impl Drop for Filter {
    fn drop(&mut self) {
        // With an interface that is gone it went, too.
        let _ = self.take_away();
    }
}

/// The interfaces at which the qdisc `ingress` stands.
fn of_ingress(socket: &mut Socket) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    let request = Message::new(RTM_GETQDISC, 0, &body(0, 0, 0, 0));
    socket.dump(request, "listing qdiscs", |answer| {
        let Some((fixed, attributes)) = answer.split(TCMSG_BYTES) else { return };
        let interface = fixed.get(4..8).and_then(|bytes| bytes.first_chunk().copied());
        if attributes.find_str(TCA_KIND).as_deref() == Some("ingress") {
            found.extend(interface.map(u32::from_ne_bytes));
        }
    })?;
    Ok(found)
}

fn beside_ingress(place: &str) -> Error {
    let what = format!(
        "the qdisc `ingress` stands at {place} (SQM, or whoever else shapes what comes in), where programs need `clsact` before Linux 6.6"
    );
    Error::Held { by: Holder::IngressQdisc, what }
}

/// Where scripts of SQM are, or what they are told.
const SQM: [&str; 3] = ["usr/lib/sqm", "etc/config/sqm", "etc/sqm"];

/// Whether filters may stand at these interfaces, as far as those are there: each takes the place
/// of the qdisc `ingress`. Where somebody has that, or `root` has what puts it there when it likes,
/// they may not.
///
/// # Errors
/// [`Error::Held`], or the kernel does not answer.
pub fn may_stand_at(interfaces: &[String], root: &Path) -> Result<()> {
    let mut socket = Socket::open()?;
    let there = of_ingress(&mut socket)?;
    for name in interfaces {
        if socket.link(name)?.is_some_and(|link| there.contains(&link.index)) {
            return Err(beside_ingress(name));
        }
    }
    match SQM.iter().map(|path| root.join(path)).find(|path| path.exists()) {
        None => Ok(()),
        Some(path) => Err(Error::Held {
            by: Holder::IngressQdisc,
            what: format!(
                "SQM is installed ({}), and before Linux 6.6 programs at an interface take the place of its qdisc `ingress`",
                path.display()
            ),
        }),
    }
}

fn options<'a>(answer: &Answer<'a>) -> Option<Attributes<'a>> {
    let (_, attributes) = answer.split(TCMSG_BYTES)?;
    attributes.find(TCA_OPTIONS).map(Attributes::new)
}

/// Whether an interface has filters at either side; `own`: of Farlink.
fn has_filters(socket: &mut Socket, interface: u32, own: bool) -> Result<bool> {
    let mut found = false;
    for parent in [INGRESS, EGRESS] {
        let message = Message::new(RTM_GETTFILTER, 0, &body(interface, 0, parent, 0));
        socket.dump(message, "listing filters", |answer| {
            let name = options(&answer).and_then(|options| options.find_str(TCA_BPF_NAME));
            // A filter without a handle only says that there is a priority.
            let is_one = answer.payload.get(8..12).is_some_and(|handle| handle != [0; 4]);
            found |= is_one && (!own || name.as_deref() == Some(NAME));
        })?;
    }
    Ok(found)
}

/// Takes Farlink's filters away from all interfaces of the calling thread's network namespace, and
/// the qdisc where nobody else uses it. Returns how many there were.
///
/// # Errors
/// The kernel refuses.
pub fn sweep() -> Result<usize> {
    let mut socket = Socket::open()?;
    let mut count = 0;
    for link in socket.links()? {
        if !has_filters(&mut socket, link.index, true).unwrap_or(false) {
            continue;
        }
        for side in [Side::Ingress, Side::Egress] {
            // It may stand at one side only.
            count += usize::from(remove_filter(&mut socket, link.index, side).is_ok());
        }
        remove_unused_qdisc(&mut socket, link.index)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_sqm_is_installed_its_place_is_left_to_it() {
        let root = std::env::temp_dir().join(format!("farlink-sqm-{}", std::process::id()));
        std::fs::create_dir_all(root.join("etc/config")).unwrap();
        assert!(may_stand_at(&[], &root).is_ok(), "another package's configuration");
        std::fs::write(root.join("etc/config/sqm"), "config queue\n").unwrap();
        let refused = may_stand_at(&[], &root).unwrap_err();
        assert!(matches!(refused, Error::Held { by: Holder::IngressQdisc, .. }), "{refused}");
        assert!(refused.to_string().contains("etc/config/sqm"), "{refused}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
