//! Connections that have carried more than 2^31 bytes.
//!
//! With `FARLINK_FAR=1` in its environment each script goes on there after its handshake: both
//! hosts have sent so much, and acknowledged it, before the next line is played. It went round the
//! gateway, in steps which that believes. The script's own numbers are those of its text all the
//! same. So what a gateway remembers of the beginning of a stream meets the numbers that come round
//! to it.

use super::{Host, PORT_A, Script};

/// So much has been sent by each host.
pub const FAR_BYTES: u32 = (1 << 31) + 1_000_000;
/// In so many steps: what is further away is taken for another connection.
const STEPS: u32 = 34;
/// Asks for it.
pub const VARIABLE: &str = "FARLINK_FAR";

/// Scripts are to be played far along.
pub fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Shift of the windows that the options of a SYN agree to.
fn scale(own: &str, other: &str) -> u32 {
    let of = |options: &str| options.split("ws ").nth(1)?.split([',', ' ', '>']).next()?.parse::<u32>().ok();
    if of(other).is_some() { of(own).unwrap_or(0) } else { 0 }
}

impl Script {
    /// What counts as zero in the stream of a host, of the connection from this port of host a.
    pub(super) fn origin(&self, host: Host, port: u16) -> u32 {
        host.isn().wrapping_add(if self.far.contains(&port) { FAR_BYTES } else { 0 })
    }

    /// The connection that has just been opened with these options goes on there, if that is wanted
    /// and the script has a single gateway between ordinary interfaces. Over a declared link the
    /// packets that show it would be charged, and wait.
    #[track_caller]
    pub(super) fn go_far(&mut self, options: [&str; 2], stamps: [&str; 2]) {
        let linked = [&self.setup.link, &self.setup.link_a].iter().any(|link| link.is_some());
        if !is_wanted() || linked || self.setup.gateways != 1 || self.setup.spare.is_some() {
            return;
        }
        let windows = [512, 65_535 >> scale(options[1], options[0])];
        for (source, other) in [(0, 1), (1, 0)] {
            // Host a's stream goes first.
            let heard = if source == 0 { 1 } else { FAR_BYTES.wrapping_add(1) };
            for n in 1..=STEPS {
                let step = u64::from(FAR_BYTES) * u64::from(n) / u64::from(STEPS);
                let end = (step as u32).wrapping_add(1);
                let names = ["a", "b"];
                let text = format!(
                    "{} > P. {}:{end} ack {heard} win {} {}\n drop\n {} > . {heard} ack {end} win {} {}\n drop",
                    names[source],
                    end.wrapping_sub(2),
                    windows[source],
                    stamps[source],
                    names[other],
                    windows[other],
                    stamps[other],
                );
                self.play(&text);
            }
        }
        self.far.insert(PORT_A);
    }
}
