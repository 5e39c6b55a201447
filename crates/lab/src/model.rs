//! What papers calculated, beside what is measured: pure functions of the conditions.
//!
//! [`wink`] has the equations of Reynolds' custody buffers, [`timers`] hosts alone that wait for
//! their timers, [`grid`] all of them by condition, with the schedules of seeds and the results of
//! runs. [`asymmetric`] has the equations of Hasegawa for a slow return link.

pub mod asymmetric;
pub mod grid;
pub mod timers;
pub mod wink;
