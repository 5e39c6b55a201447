//! Packet scripts: one test, at least, for every hard case of the design (ARCHITECTURE.md), named
//! after it.

#[path = "../script/mod.rs"]
mod script;

mod far;

mod adverts;
mod ahead;
mod asked;
mod basics;
mod boxes;
mod bypass;
mod chain;
mod charged;
mod classes;
mod custody;
mod custody_change;
mod custody_notices;
mod custody_pairs;
mod deadlines;
mod direct;
mod dormant;
mod draining;
mod early;
mod explicit;
mod fields;
mod fin_early;
mod first_window;
mod fragments;
mod gaps;
mod handshake;
mod happened;
mod held;
mod hostile;
mod icmp_mtu;
mod idle_outage;
mod keepalive;
mod kept;
mod killed;
mod limits;
mod marks;
mod memory;
mod one_sided;
mod opening;
mod opening_twice;
mod outage;
mod oversize;
mod pairs;
mod peers;
mod receiver;
mod reconfigure;
mod recovery;
mod retune;
mod routes;
mod rst;
mod shims;
mod silent_link;
mod sizes;
mod spent;
mod timestamps;
mod unknown_rate;
mod versions;
mod windows;
mod zero_window;
