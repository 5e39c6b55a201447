//! The same scenarios for each controller, as integers: windows in packets at the beginning of
//! round trips, and what arrived. A change of behaviour shows here; what a scenario is there to
//! show is asserted besides.

mod common;
mod scenario;
