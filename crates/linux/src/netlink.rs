//! The kernel's network configuration over NETLINK_ROUTE, small and blocking: interfaces,
//! addresses, routes, rules, events.

mod counters;
mod events;
mod link;
mod lookup;
mod message;
mod neighbour;
mod nftables;
mod route;
mod socket;

pub use counters::Counters;
pub use events::{Event, Monitor};
pub use link::{Link, VethEnd};
pub use lookup::{Leaves, Lookup};
pub use message::{Answer, Answers, Attributes, Message};
pub use nftables::{Count, Nftables};
pub use route::{Family, Hop, Route, RouteKey, Rule, TABLE_MAIN};
pub use socket::Socket;
pub(crate) use socket::set_option;
