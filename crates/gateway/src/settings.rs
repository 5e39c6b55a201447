//! Parameters that change while the gateway runs.

use farlink_cc::Kind;
use farlink_engine::config::{
    INITIAL_WINDOW_SEGMENTS, INITIAL_WINDOW_SEGMENTS_MAX, InitialWindow, Limits, OnLongPaths,
};
use farlink_engine::net::IfaceId;
use farlink_wire::Instant;

use crate::gateway::{Gateway, UNKNOWN_RATE_CC};
use crate::link_state::Witness;

impl Gateway {
    /// Every parameter that [`Gateway::set`] changes, with the value that is in force, as `set` takes it.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let config = self.engine.config();
        let mut all = Vec::new();
        for link in self.outlet.links() {
            let Some(leg) = config.link(link.iface).map(|l| &l.leg) else { continue };
            let egress = link.egress.config();
            let rate = egress.rate_bps.filter(|_| !link.estimates());
            let (window, long_window) = (leg.initial_window, leg.initial_window.on_long_paths);
            for (what, value) in [
                ("rate_bps", rate.map_or_else(|| "unknown".into(), |bps| bps.to_string())),
                ("cc", if link.estimates() { "auto" } else { leg.cc.name() }.into()),
                ("initial_window_segments", window_text(window)),
                (
                    "long_path_initial_window_segments",
                    match long_window {
                        OnLongPaths::Segments(n) => n.to_string(),
                        OnLongPaths::Share if window != InitialWindow::AUTO => "auto".into(),
                        OnLongPaths::Same | OnLongPaths::Share => "same".into(),
                    },
                ),
                ("up", (!self.down.says(link.iface, Witness::Operator)).to_string()),
            ] {
                all.push((format!("link.{}.{what}", link.name()), value));
            }
        }
        all.extend(
            [
                ("ordinary.cc", config.ordinary.cc.name().into()),
                ("ordinary.initial_window_segments", window_text(config.ordinary.initial_window)),
                ("flow_control.policy", config.flow_control.name().into()),
                ("flow_control.soft_window", config.soft_window.to_string()),
                ("flow_control.queue_drop", config.queue_drop.to_string()),
                ("limits.relay_bytes", config.limits.relay_bytes.to_string()),
                ("limits.pool_bytes", config.limits.pool_bytes.to_string()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        all
    }

    /// Changes a running parameter: `link.NAME.rate_bps` (a number, or `unknown`), `link.NAME.up` (`true`, `false`),
    /// `link.NAME.cc` (a congestion controller, or `auto`) and `ordinary.cc`, `flow_control.policy`,
    /// `flow_control.soft_window` and `flow_control.queue_drop` (`true`, `false`), `limits.relay_bytes` and `limits.pool_bytes` (bytes, in
    /// open connections too), `link.NAME.initial_window_segments`,
    /// `link.NAME.long_path_initial_window_segments` and `ordinary.initial_window_segments` (for connections that begin from then
    /// on).
    ///
    /// # Errors
    /// A sentence that says what is wrong and what is allowed; nothing has changed then.
    pub fn set(&mut self, now: Instant, key: &str, value: &str) -> Result<(), String> {
        let names: Vec<&str> = self.outlet.links().iter().map(|l| l.name()).collect();
        let names = names.join(", ");
        let unknown = || {
            format!(
                "unknown key `{key}`: allowed are link.NAME.rate_bps, link.NAME.cc, link.NAME.initial_window_segments, link.NAME.long_path_initial_window_segments and link.NAME.up, with NAME one of: {names}; ordinary.cc, ordinary.initial_window_segments, flow_control.policy, flow_control.soft_window, flow_control.queue_drop, limits.relay_bytes and limits.pool_bytes"
            )
        };
        match key {
            "ordinary.cc" => {
                self.engine.set_cc(now, None, controller(value, Kind::ORDINARY)?);
            }
            "ordinary.initial_window_segments" => {
                self.engine.set_initial_window(None, initial_window(value, INITIAL_WINDOW_SEGMENTS)?);
            }
            "flow_control.policy" => self.engine.set_flow_control(value.parse()?),
            "flow_control.soft_window" => self.engine.set_soft_window(switch(value)?),
            "flow_control.queue_drop" => self.engine.set_queue_drop(switch(value)?),
            "limits.relay_bytes" => {
                let bytes = size(value, Limits::RELAY_BYTES)?;
                self.engine.set_relay_bytes(u32::try_from(bytes).unwrap_or(u32::MAX));
            }
            "limits.pool_bytes" => {
                let bytes = size(value, Limits::POOL_BYTES)?;
                self.engine.set_pool_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            _ => {
                let (name, what) =
                    key.strip_prefix("link.").and_then(|k| k.rsplit_once('.')).ok_or_else(unknown)?;
                let link = self.outlet.links().iter().find(|l| l.name() == name).ok_or_else(unknown)?;
                let iface = link.iface;
                match what {
                    "rate_bps" => self.set_link_rate(now, iface, value)?,
                    "initial_window_segments" => self.set_link_initial_window(iface, value)?,
                    "long_path_initial_window_segments" => self.set_link_long_window(iface, value)?,
                    "cc" => self.set_link_cc(now, iface, value)?,
                    "up" => {
                        let wrong = |_| format!("`{value}`: allowed are true and false");
                        let up = value.parse::<bool>().map_err(wrong)?;
                        self.tell(now, iface, Witness::Operator, up);
                    }
                    _ => return Err(unknown()),
                }
            }
        }
        Ok(())
    }

    fn set_link_rate(&mut self, now: Instant, iface: IfaceId, value: &str) -> Result<(), String> {
        let rate = match value {
            "unknown" => None,
            v => Some(v.parse::<u64>().ok().filter(|r| *r > 0).ok_or_else(|| {
                format!("`{v}` is no rate: allowed is a positive number of bits per second, or `unknown`")
            })?),
        };
        let Some(link) = self.outlet.link_mut(iface) else { return Ok(()) };
        let governed = self.engine.link_cc(iface) == Some(Kind::FixedRate);
        let estimated = link.estimates();
        link.egress.set_rate(now, rate);
        link.set_estimates(rate.is_none() && (governed || estimated));
        self.engine.set_link_rate(iface, rate);
        self.engine.set_link_estimate(iface, None);
        if rate.is_none() && governed {
            // Nothing else would keep it from flooding the link.
            self.engine.set_cc(now, Some(iface), UNKNOWN_RATE_CC);
        } else if rate.is_some() && estimated {
            self.engine.set_cc(now, Some(iface), Kind::FixedRate);
        }
        Ok(())
    }

    fn set_link_initial_window(&mut self, iface: IfaceId, value: &str) -> Result<(), String> {
        let mut window = initial_window(value, INITIAL_WINDOW_SEGMENTS_MAX)?;
        let before = self.engine.initial_window(iface).map(|w| w.on_long_paths);
        if let (true, Some(long @ OnLongPaths::Segments(_))) = (value != "auto", before) {
            window.on_long_paths = long;
        }
        self.engine.set_initial_window(Some(iface), window);
        Ok(())
    }

    fn set_link_long_window(&mut self, iface: IfaceId, value: &str) -> Result<(), String> {
        let on_long_paths = match value {
            // What is said of all paths may itself go by the path.
            "same" if self.engine.initial_window(iface) == Some(InitialWindow::AUTO) => OnLongPaths::Share,
            "same" => OnLongPaths::Same,
            "auto" => OnLongPaths::Share,
            v => OnLongPaths::Segments(segments(v, INITIAL_WINDOW_SEGMENTS_MAX, "`auto` and `same`")?),
        };
        if let Some(before) = self.engine.initial_window(iface) {
            self.engine.set_initial_window(Some(iface), InitialWindow { on_long_paths, ..before });
        }
        Ok(())
    }

    fn set_link_cc(&mut self, now: Instant, iface: IfaceId, value: &str) -> Result<(), String> {
        let Some(link) = self.outlet.link_mut(iface) else { return Ok(()) };
        let said = link.egress.config().rate_bps.filter(|_| !link.estimates());
        let kind = match value {
            "auto" if said.is_some() => Kind::FixedRate,
            "auto" => {
                if !link.estimates() {
                    link.set_estimates(true);
                    self.engine.set_cc(now, Some(iface), UNKNOWN_RATE_CC);
                }
                return Ok(());
            }
            name => controller(name, Kind::ALL).map_err(|wrong| wrong + ", auto")?,
        };
        if kind == Kind::FixedRate && said.is_none() {
            return Err("`fixed-rate` has no rate to go by: set link.NAME.rate_bps first".into());
        }
        if link.estimates() {
            // The controller finds the rate from now on.
            link.set_estimates(false);
            link.egress.set_rate(now, None);
            self.engine.set_link_estimate(iface, None);
        }
        self.engine.set_cc(now, Some(iface), kind);
        Ok(())
    }
}

fn window_text(window: InitialWindow) -> String {
    if window == InitialWindow::AUTO { "auto".into() } else { window.segments.to_string() }
}

fn size(value: &str, (least, most): (u64, u64)) -> Result<u64, String> {
    let bytes = value.parse::<u64>().ok().filter(|bytes| (least..=most).contains(bytes));
    bytes.ok_or_else(|| format!("`{value}`: allowed are {least} to {most} bytes"))
}

fn switch(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("`{value}`: allowed are true and false"))
}

fn initial_window(value: &str, most: u32) -> Result<InitialWindow, String> {
    match value {
        "auto" => Ok(InitialWindow::AUTO),
        number => segments(number, most, "`auto`").map(InitialWindow::fixed),
    }
}

fn segments(value: &str, most: u32, words: &str) -> Result<u32, String> {
    let number = value.parse::<u32>().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| format!("`{value}`: allowed are 1 to {most} segments, {words}"))
}

fn controller(name: &str, allowed: &[Kind]) -> Result<Kind, String> {
    allowed.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
        let names: Vec<&str> = allowed.iter().map(|kind| kind.name()).collect();
        format!("`{name}`: allowed are {}", names.join(", "))
    })
}
