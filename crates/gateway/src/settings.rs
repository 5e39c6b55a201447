//! Parameters that change while the gateway runs.

use farlink_wire::Instant;

use crate::gateway::Gateway;

impl Gateway {
    /// Changes a running parameter: `link.NAME.rate_bps` (a number, or `unknown`), `link.NAME.up` (`true`, `false`).
    ///
    /// # Errors
    /// A sentence that says what is wrong and what is allowed; nothing has changed then.
    pub fn set(&mut self, now: Instant, key: &str, value: &str) -> Result<(), String> {
        let names: Vec<&str> = self.links.iter().map(|l| l.name()).collect();
        let names = names.join(", ");
        let unknown = || {
            format!(
                "unknown key `{key}`: allowed are link.NAME.rate_bps and link.NAME.up, with NAME one of: {names}"
            )
        };
        let (name, what) = key.strip_prefix("link.").and_then(|k| k.rsplit_once('.')).ok_or_else(unknown)?;
        let known = unknown();
        let link = self.links.iter_mut().find(|l| l.name() == name).ok_or(known)?;
        match what {
            "rate_bps" => {
                let rate = match value {
                    "unknown" => None,
                    v => Some(v.parse::<u64>().ok().filter(|r| *r > 0).ok_or_else(|| {
                        format!(
                            "`{v}` is no rate: allowed is a positive number of bits per second, or `unknown`"
                        )
                    })?),
                };
                link.egress.set_rate(now, rate);
            }
            "up" => {
                let up =
                    value.parse::<bool>().map_err(|_| format!("`{value}`: allowed are true and false"))?;
                link.egress.set_link_up(now, up);
                if up {
                    self.links_back.push(link.iface);
                } else {
                    self.links_back.retain(|i| *i != link.iface);
                    self.engine.link_down(link.iface);
                }
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }
}
