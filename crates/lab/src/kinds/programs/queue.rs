//! What people put before a link who have no Farlink: a shaper of the kernel at the router that
//! sends, with a queue of its own.

use anyhow::{Result, bail};

use crate::netns::Ns;
use crate::sh;

/// Bytes that may leave at once: two packets.
const BURST_BYTES: u32 = 3_100;
/// The standing queue that fq_codel allows, of a round trip (RFC 8289 4.3: 5 to 10 %).
const TARGET_PART: f64 = 0.05;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    /// The link's own: first in, first out.
    None,
    /// HTB at the link's rate, and FQ-CoDel in it.
    FqCodel,
    Cake,
}

impl Queue {
    pub(super) fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "none" => Self::None,
            "fq_codel" => Self::FqCodel,
            "cake" => Self::Cake,
            other => bail!("shaper = {other}: `none`, `fq_codel` or `cake`"),
        })
    }

    /// Lines for `tc`, of a link of this rate and round trip.
    fn lines(self, interface: &str, rate_bps: u64, rtt_ms: f64) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::FqCodel => vec![
                format!("qdisc add dev {interface} root handle 1: htb default 1"),
                format!(
                    "class add dev {interface} parent 1: classid 1:1 htb rate {rate_bps}bit burst {BURST_BYTES} cburst {BURST_BYTES}"
                ),
                format!(
                    "qdisc add dev {interface} parent 1:1 fq_codel interval {rtt_ms}ms target {}ms",
                    rtt_ms * TARGET_PART
                ),
            ],
            Self::Cake => {
                vec![format!("qdisc add dev {interface} root cake bandwidth {rate_bps}bit rtt {rtt_ms}ms")]
            }
        }
    }

    /// Why this machine does not have it.
    pub(super) fn missing(self) -> Option<String> {
        let name = match self {
            Self::None => return None,
            Self::FqCodel => "fq_codel",
            Self::Cake => "cake",
        };
        if sh::find("tc").is_none() {
            return Some("tc is not installed".into());
        }
        let probe = ["--net", "tc", "qdisc", "add", "dev", "lo", "root", name];
        sh::run("unshare", &probe).is_err().then(|| format!("this kernel has no {name}"))
    }

    /// Puts it before what leaves by an interface of this namespace.
    pub(super) fn put(self, ns: &Ns, interface: &str, rate_bps: u64, rtt_ms: f64) -> Result<()> {
        for line in self.lines(interface, rate_bps, rtt_ms) {
            ns.run("tc", &line.split(' ').collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shaper_sends_as_fast_as_the_link_carries() {
        let all =
            [Queue::FqCodel, Queue::Cake].map(|queue| queue.lines("to-sat", 8_000_000, 500.0).join("\n"));
        assert!(all.iter().all(|lines| lines.contains("8000000bit") && lines.contains("500ms")), "{all:?}");
        assert!(all[0].contains("target 25ms"), "{}", all[0]);
        assert!(Queue::None.lines("to-sat", 1, 1.0).is_empty() && Queue::None.missing().is_none());
        assert!(Queue::named("red").unwrap_err().to_string().contains("`cake`"));
    }
}
