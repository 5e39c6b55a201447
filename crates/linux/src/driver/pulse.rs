//! What the event loop tells those who watch over it, without a lock: that it turns, and what went
//! in and out of each TUN.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use farlink_wire::ip;
use portable_atomic::AtomicU64;

use crate::netlink::Family;

const TCP: u8 = 6;
const FRAGMENT: u8 = 44;
/// SYN and ACK, and SYN alone.
const SYN_ACK: u8 = 0x12;
const SYN: u8 = 0x02;

/// A counter with one writer: a plain store is enough.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One TUN in one family.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Packets read.
    pub(crate) read: Counter,
    /// SYNs written.
    pub(crate) syns: Counter,
    /// Other TCP packets written.
    pub(crate) others: Counter,
    /// Packets written that are no TCP.
    pub(crate) rest: Counter,
    /// SYNs read that are for an address of this machine.
    pub(crate) machine_syns: Counter,
    /// Other TCP packets of that kind.
    pub(crate) machine_others: Counter,
    /// Somebody wants to know addresses of a packet that is written.
    wants_sample: AtomicBool,
    sample: Mutex<Option<(IpAddr, IpAddr)>>,
}

impl Traffic {
    /// Asks for the addresses of one of the next packets.
    pub(crate) fn want_sample(&self) {
        self.wants_sample.store(true, Ordering::Relaxed);
    }
    pub(crate) fn take_sample(&self) -> Option<(IpAddr, IpAddr)> {
        self.sample.lock().ok()?.take()
    }
}

/// One TUN.
#[derive(Debug, Default)]
pub(crate) struct PortPulse {
    v4: Traffic,
    v6: Traffic,
    /// One more than the packets that the device has dropped because nobody read them; zero: nobody
    /// has looked yet.
    dropped: Counter,
    /// There is such a device.
    is_there: AtomicBool,
}

impl PortPulse {
    pub(crate) fn of(&self, family: Family) -> &Traffic {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// There is such a device from here on, or no longer. What another one had counted stays: all
    /// compare.
    pub(crate) fn set_there(&self, is_there: bool) {
        self.dropped.set(0);
        self.is_there.store(is_there, Ordering::Relaxed);
    }

    /// So many packets has the device dropped, because nobody read them.
    pub(crate) fn note_dropped(&self, packets: u64) {
        self.dropped.set(packets.saturating_add(1));
    }
    pub(crate) fn dropped(&self) -> Option<u64> {
        self.dropped.get().checked_sub(1)
    }

    /// A packet was read. `is_for_machine`: it is for an address of this machine.
    pub(crate) fn note_read(&self, packet: &[u8], is_for_machine: bool) {
        let Some(family) = family(packet) else { return };
        let traffic = self.of(family);
        traffic.read.add(1);
        if is_for_machine {
            match kind(packet) {
                Kind::Syn => traffic.machine_syns.add(1),
                Kind::Other => traffic.machine_others.add(1),
                Kind::Rest | Kind::Unknown => {}
            }
        }
    }

    /// A packet was written; `header` begins with the IP header. Later fragments do not count: the
    /// kernel may put them together on the way.
    pub(crate) fn note_written(&self, header: &[u8]) {
        let Some(family) = family(header) else { return };
        let traffic = self.of(family);
        match kind(header) {
            Kind::Syn => traffic.syns.add(1),
            Kind::Other => traffic.others.add(1),
            Kind::Rest => return traffic.rest.add(1),
            Kind::Unknown => return,
        }
        if traffic.wants_sample.load(Ordering::Relaxed) {
            traffic.wants_sample.store(false, Ordering::Relaxed);
            // Nobody holds it for longer than a look.
            if let Ok(mut sample) = traffic.sample.try_lock() {
                *sample = ip::addresses(header);
            }
        }
    }
}

/// What a packet is.
enum Kind {
    /// TCP that opens a connection.
    Syn,
    /// Other TCP.
    Other,
    /// No TCP.
    Rest,
    /// A later fragment, or one that is cut.
    Unknown,
}

fn kind(packet: &[u8]) -> Kind {
    let at = match family(packet) {
        Some(Family::V4) => {
            let fragment = packet.get(6..8).is_some_and(|f| f[0] & 0x1f != 0 || f[1] != 0);
            match packet.get(9) {
                Some(&TCP) if !fragment => usize::from(packet[0] & 0x0f) * 4,
                Some(_) if !fragment => return Kind::Rest,
                _ => return Kind::Unknown,
            }
        }
        Some(Family::V6) if packet.get(6) == Some(&TCP) => 40,
        Some(Family::V6) if packet.get(6).is_some_and(|next| *next != FRAGMENT) => return Kind::Rest,
        _ => return Kind::Unknown,
    };
    match packet.get(at + 13) {
        Some(flags) if flags & SYN_ACK == SYN => Kind::Syn,
        Some(_) => Kind::Other,
        None => Kind::Unknown,
    }
}

fn family(packet: &[u8]) -> Option<Family> {
    match packet.first()? >> 4 {
        4 => Some(Family::V4),
        6 => Some(Family::V6),
        _ => None,
    }
}

/// Where an event loop is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// How often it has turned.
    pub turns: u64,
    /// It waits for something to happen, which it cannot miss.
    pub is_waiting: bool,
}

/// The event loop.
#[derive(Debug, Default)]
pub struct Pulse {
    pub(crate) ports: Vec<PortPulse>,
    /// Grows with each turn.
    pub(crate) turns: Counter,
    /// It waits for something to happen, which it cannot miss.
    pub(crate) is_waiting: AtomicBool,
    /// It answers an operator, which may take its time.
    pub(crate) is_answering: AtomicBool,
    /// Packets that have left, those that were lost on the way into a device included.
    pub(crate) written: Counter,
    /// Packets that were only forwarded.
    pub(crate) forwarded: Counter,
    /// Grows with each change of a route, an address or an interface.
    pub(crate) routes: Counter,
    /// The last change of what is diverted that holds.
    pub(crate) diverted: Counter,
    /// It delivers what is held, and ends then.
    pub(crate) is_draining: AtomicBool,
    /// Told to the loop: nothing is to be split now, and what is split is to be handed back.
    pub(crate) unsplit: AtomicBool,
}

impl Pulse {
    pub(crate) fn new(ports: usize) -> Self {
        Self { ports: (0..ports).map(|_| PortPulse::default()).collect(), ..Self::default() }
    }

    /// It delivers what is held, and ends then.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Packets that all devices together have dropped; `None` until each was looked at.
    pub(crate) fn dropped(&self) -> Option<u64> {
        let there = self.ports.iter().filter(|port| port.is_there.load(Ordering::Relaxed));
        there.map(PortPulse::dropped).sum()
    }

    /// Where the loop is: two equal answers with some time between them mean that it has not moved,
    /// unless it waits.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { turns: self.turns.get(), is_waiting: self.is_waiting.load(Ordering::Acquire) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_known_once_each_device_was_looked_at() {
        let pulse = Pulse::new(3);
        pulse.ports[..2].iter().for_each(|port| port.set_there(true));
        pulse.ports[0].note_dropped(0);
        assert_eq!(pulse.dropped(), None);
        pulse.ports[1].note_dropped(7);
        assert_eq!(pulse.dropped(), Some(7));
    }

    #[test]
    fn packets_are_told_apart_by_their_headers() {
        let pulse = PortPulse::default();
        let mut v4 = vec![0u8; 40];
        (v4[0], v4[9], v4[33]) = (0x45, TCP, 0x02);
        pulse.note_written(&v4);
        v4[33] = 0x12;
        pulse.note_written(&v4);
        v4[7] = 9; // a later fragment
        pulse.note_written(&v4);
        (v4[7], v4[9]) = (0, 17);
        pulse.note_written(&v4);
        v4[7] = 9;
        pulse.note_written(&v4);
        v4[7] = 0;
        let mut v6 = vec![0u8; 60];
        (v6[0], v6[6], v6[53]) = (0x60, TCP, 0x10);
        pulse.v6.want_sample();
        pulse.note_written(&v6);
        for cut in 0..40 {
            pulse.note_written(&v6[..cut]);
            pulse.note_written(&v4[..cut]);
        }
        let counts = |f| (pulse.of(f).syns.get(), pulse.of(f).others.get());
        assert_eq!((counts(Family::V4), counts(Family::V6)), ((1, 1), (0, 1)));
        assert_eq!(pulse.v4.rest.get(), 1 + 30, "the whole datagram, and those cut behind the protocol");
        assert!(pulse.v6.take_sample().is_some() && pulse.v6.take_sample().is_none());
    }
}
