//! Parameters of the emulated link by name, for its control socket. A number without a unit has the
//! one that its name ends with; probabilities are 0 to 1.

use farlink_channel::{ChannelConfig, Firewall, GilbertElliott, Wink, WinkSide, text};
use farlink_wire::Duration;
use farlink_wire::quantity::{self, Bare};

/// All keys.
pub const KEYS: [&str; 27] = [
    "rate_bps",
    "overhead_bytes",
    "delay_ms",
    "queue_bytes",
    "queue_packets",
    "ber",
    "loss",
    "fragment_loss",
    "firewall",
    "firewall_from_ms",
    "ge_p",
    "ge_r",
    "ge_loss_good",
    "ge_loss_bad",
    "reorder",
    "reorder_ms",
    "duplicate",
    "corrupt",
    "jitter_ms",
    "jitter_keeps_order",
    "wink_p",
    "wink_i_ms",
    "wink_side",
    "contacts",
    "contact_period_ms",
    "contact_hold",
    "rate_changes",
];

/// What a key of bursts changes where there are none.
const NO_BURSTS: GilbertElliott =
    GilbertElliott { p_good_to_bad: 0.0, p_bad_to_good: 1.0, loss_good: 0.0, loss_bad: 1.0 };
/// What a key of winks changes where there are none.
const NO_WINK: Wink =
    Wink { p: 0.0, interval: Duration::from_millis(100), seed: Some(0), side: WinkSide::Entry };

/// Changes one parameter. `0` or `none` takes a limit away (`rate_bps`, `queue_bytes`,
/// `queue_packets`, `contact_period_ms`). Schedules (`contacts`, `rate_changes`) are text as
/// [`text`] reads it, and an empty one ends them; their times count since the emulator started.
///
/// # Errors
/// The key or value is not allowed; the text says what is. The configuration is unchanged then.
pub fn set(config: &mut ChannelConfig, key: &str, value: &str) -> Result<(), String> {
    let mut changed = config.clone();
    apply(&mut changed, key, value.trim())?;
    changed.check().map_err(|e| format!("{key} = {value}: {} must be {}", e.field, e.allowed))?;
    *config = changed;
    Ok(())
}

fn apply(c: &mut ChannelConfig, key: &str, value: &str) -> Result<(), String> {
    let refuse = |allowed: &str| format!("{key} = {value}: {allowed} is needed");
    let real = || value.parse::<f64>().map_err(|_| refuse("a number"));
    let is_limit = value != "none";
    let count = || match real() {
        Ok(n) if n >= 0.0 && n.fract() == 0.0 => Ok(n as usize),
        _ => Err(refuse("a number of packets, or none")),
    };
    let rate = || quantity::rate_bps(value, Bare::Base).map_err(|_| refuse("a rate such as 8M, or none"));
    let size = |or_none: &str| {
        let bytes = quantity::size_bytes(value, Bare::Base).ok().and_then(|n| usize::try_from(n).ok());
        bytes.ok_or_else(|| refuse(&format!("a size such as 64 kB{or_none}")))
    };
    let limit = || size(", or none");
    let time = || {
        quantity::time(value, Bare::Unit("ms"))
            .map_err(|_| refuse("a time that is not negative such as 250ms"))
    };
    let bursts = c.gilbert_elliott.unwrap_or(NO_BURSTS);
    let wink = c.wink.unwrap_or(NO_WINK);
    match key {
        "rate_bps" => c.rate_bps = is_limit.then(rate).transpose()?.filter(|bps| *bps > 0),
        "overhead_bytes" => c.overhead_bytes = u32::try_from(size("")?).unwrap_or(u32::MAX),
        "delay_ms" => c.delay = time()?,
        "queue_bytes" => c.queue_limit_bytes = is_limit.then(limit).transpose()?.filter(|n| *n > 0),
        "queue_packets" => c.queue_limit_packets = is_limit.then(count).transpose()?.filter(|n| *n > 0),
        "ber" => c.ber = real()?,
        "loss" => c.loss = real()?,
        "fragment_loss" => c.fragment_loss = real()?,
        "firewall" => {
            c.firewall = match value {
                "none" => None,
                "fragments" => Some(Firewall::Fragments),
                "fragments-with-df" => Some(Firewall::FragmentsWithDf),
                _ => return Err(refuse("none, fragments or fragments-with-df")),
            };
        }
        "firewall_from_ms" => c.firewall_from = time()?,
        "ge_p" => c.gilbert_elliott = Some(GilbertElliott { p_good_to_bad: real()?, ..bursts }),
        "ge_r" => c.gilbert_elliott = Some(GilbertElliott { p_bad_to_good: real()?, ..bursts }),
        "ge_loss_good" => c.gilbert_elliott = Some(GilbertElliott { loss_good: real()?, ..bursts }),
        "ge_loss_bad" => c.gilbert_elliott = Some(GilbertElliott { loss_bad: real()?, ..bursts }),
        "reorder" => c.reorder = real()?,
        "reorder_ms" => c.reorder_extra = time()?,
        "duplicate" => c.duplicate = real()?,
        "corrupt" => c.corrupt = real()?,
        "jitter_ms" => c.jitter = time()?,
        "jitter_keeps_order" => {
            c.jitter_keeps_order = value.parse().map_err(|_| refuse("true or false"))?;
        }
        "wink_p" => c.wink = Some(Wink { p: real()?, ..wink }),
        "wink_i_ms" => c.wink = Some(Wink { interval: time()?, ..wink }),
        "wink_side" => {
            let side = match value {
                "entry" => WinkSide::Entry,
                "exit" => WinkSide::Exit,
                _ => return Err(refuse("entry or exit")),
            };
            c.wink = Some(Wink { side, ..wink });
        }
        "contacts" => {
            c.contact_plan = text::parse_contacts(value)?;
            if c.contact_plan.is_empty() {
                (c.contact_period, c.contact_hold) = (None, false);
            }
        }
        "contact_period_ms" => c.contact_period = is_limit.then(time).transpose()?.filter(|t| !t.is_zero()),
        "contact_hold" => c.contact_hold = value.parse().map_err(|_| refuse("true or false"))?,
        "rate_changes" => c.rate_changes = text::parse_rate_changes(value)?,
        _ => return Err(format!("there is no key {key}; there are {}", KEYS.join(", "))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_understood_and_errors_name_what_is_allowed() {
        for key in KEYS {
            let value = match key {
                "jitter_keeps_order" => "true",
                "wink_side" => "exit",
                "firewall" => "fragments",
                "contact_hold" => "true",
                "contacts" => "1s-2s",
                "rate_changes" => "3s=1M",
                _ => "1",
            };
            let mut config = ChannelConfig::default();
            set(&mut config, key, value).unwrap();
            assert_ne!(config, ChannelConfig::default(), "{key}");
            let before = config.clone();
            let refused = set(&mut config, key, "never").unwrap_err();
            assert!(refused.contains(key) || refused.contains("`never`"), "{refused}");
            assert_eq!(config, before, "{key}");
        }
        let mut config = ChannelConfig::default();
        for typed in ["8e6", "8 Mbit/s", "8000000.0"] {
            set(&mut config, "rate_bps", typed).unwrap();
            assert_eq!(config.rate_bps.take(), Some(8_000_000), "{typed}");
        }
        for typed in ["250", "0.25 s"] {
            set(&mut config, "delay_ms", typed).unwrap();
            assert_eq!(config.delay, Duration::from_millis(250), "{typed}");
        }
        for none in ["none", "0", "0 Mbit/s"] {
            set(&mut config, "rate_bps", "8M").unwrap();
            set(&mut config, "rate_bps", none).unwrap();
            assert_eq!(config.rate_bps, None, "{none}");
        }
        assert!(!set(&mut config, "overhead_bytes", "none").unwrap_err().contains("or none"));
        assert!(set(&mut config, "queue_packets", "-3").unwrap_err().contains("a number of packets"));
        assert!(set(&mut config, "loss", "1.5").is_err());
        assert!(set(&mut config, "delay_ms", "-1").is_err());
        assert!(set(&mut config, "dealy_ms", "1").unwrap_err().contains("delay_ms"));
    }
}
