//! One direction of the emulated link: what the settings say of it, and the channel that this
//! means.

use anyhow::{Result, anyhow, bail};
use farlink_channel::{
    Behind, ChannelConfig, Contact, DelayChange, Firewall, GilbertElliott, RateChange, Weights, Wink,
    WinkSide, XcpHarm, XcpRouter, text,
};
use farlink_wire::time::Duration;
use serde::{Deserialize, Serialize};

use super::{Setting, Settings, table};

/// Seeds of several links differ by this: runs of one scenario have seeds a million apart.
const LINK_SEEDS_APART: u64 = 0x9e37_79b9_7f4a_7c15;

/// A gateway's queue knows no greater weight.
const PARTS_MAX: u32 = 1_000;

/// A direction of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Towards the server.
    Up,
    /// Towards the client.
    Down,
}

impl Way {
    /// As it stands before a key.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// At which end of a direction a wink destroys packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WinkAt {
    /// Where they enter: what already propagates arrives.
    #[default]
    Entry,
    /// Where they leave.
    Exit,
}

/// Whether the directions of a link have a medium each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplex {
    /// They send at the same time.
    #[default]
    Full,
    /// They share one, and take turns packet by packet.
    Half,
}

macro_rules! schedule {
    ($(#[$about:meta])* $name:ident, $of:ty, $parse:path, $text:path) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub Vec<$of>);

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                $parse(&text).map(Self)
            }
        }

        impl From<$name> for String {
            fn from(schedule: $name) -> Self {
                $text(&schedule.0)
            }
        }
    };
}
schedule!(
    /// When the link is there; empty: always.
    Contacts, Contact, text::parse_contacts, text::contacts_text
);
schedule!(
    /// Rates from given times on.
    RateChanges, RateChange, text::parse_rate_changes, text::rate_changes_text
);

schedule!(
    /// One-way delays from given times on, or from one to another on a straight line.
    DelayChanges, DelayChange, text::parse_delay_changes, text::delay_changes_text
);

/// Parts of something for XCP traffic and for the rest, `3:1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Parts(pub [u32; 2]);

impl TryFrom<String> for Parts {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let part = |word: &str| word.parse().ok().filter(|part| (1..=PARTS_MAX).contains(part));
        let parts = text.split_once(':').and_then(|(xcp, plain)| Some(Self([part(xcp)?, part(plain)?])));
        parts.ok_or_else(|| format!("`{text}`: expected two numbers from 1 to {PARTS_MAX}, such as 3:1"))
    }
}

impl From<Parts> for String {
    fn from(parts: Parts) -> Self {
        let [xcp, plain] = parts.0;
        format!("{xcp}:{plain}")
    }
}

/// A link that is never faster than this.
pub(crate) fn at_most(link: &ChannelConfig, most_bps: u64) -> ChannelConfig {
    let mut slower = link.clone();
    slower.rate_bps = Some(link.rate_bps.map_or(most_bps, |bps| bps.min(most_bps)));
    for contact in &mut slower.contact_plan {
        contact.rate_bps = contact.rate_bps.map(|bps| bps.min(most_bps));
    }
    for change in &mut slower.rate_changes {
        change.rate_bps = change.rate_bps.min(most_bps);
    }
    if let Some(demand) = &mut slower.demand {
        demand.most_bps = demand.most_bps.min(most_bps);
        demand.least_bps = demand.least_bps.min(most_bps);
    }
    slower
}

impl Settings {
    /// The settings with what they say of this direction alone in force.
    #[must_use]
    pub fn towards(&self, way: Way) -> Self {
        let own = match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        };
        let mut settings = self.clone();
        for (key, value) in own {
            // It was understood when it was set.
            let _ = settings.set(key, value);
        }
        settings
    }

    /// The settings of the hard link of this number, in the order of the nodes: each of several
    /// winks and loses by itself.
    #[must_use]
    pub fn of_link(&self, number: usize) -> Self {
        let apart = (number as u64).wrapping_mul(LINK_SEEDS_APART);
        Self { seed: self.seed.wrapping_add(apart), ..self.clone() }
    }

    /// Sets a key of one direction.
    pub(super) fn set_of(&mut self, way: Way, key: &str, value: &str) -> Result<()> {
        let Some(setting) = Setting::find(key).filter(|setting| setting.is_of_direction()) else {
            bail!(
                "`{}.{key}`: a direction has no key `{key}` of its own; it has: {}",
                way.name(),
                table::keys(Setting::is_of_direction)
            );
        };
        setting
            .set(&mut self.clone(), value)
            .map_err(|wrong| anyhow!("`{}.{key}={value}`: {wrong}", way.name()))?;
        let own = match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        };
        own.insert(setting.key.into(), value.into());
        Ok(())
    }

    /// Whether rate, delay or presence of the link follow a schedule, or its rate what is asked.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        let changes = |way| {
            let own = self.towards(way);
            !(own.rate_changes.0.is_empty() && own.delay_changes.0.is_empty())
                || own.trace.is_some()
                || own.demand.is_some()
        };
        !self.contacts.0.is_empty() || self.phases.is_some() || changes(Way::Up) || changes(Way::Down)
    }

    /// Share of the packets that bursts and single losses take in this direction, bit errors apart.
    #[must_use]
    pub fn mean_loss(&self) -> f64 {
        let bad = self.ge_p / (self.ge_p + self.ge_r).max(f64::MIN_POSITIVE);
        let of_bursts =
            if self.has_bad_state() { bad * self.ge_loss_bad + (1.0 - bad) * self.ge_loss_good } else { 0.0 };
        1.0 - (1.0 - self.loss) * (1.0 - of_bursts)
    }

    /// The two states of Gilbert and Elliott are described one by one.
    fn has_bad_state(&self) -> bool {
        self.ge_p > 0.0 || self.ge_loss_good > 0.0
    }

    /// The channel of this direction.
    #[must_use]
    pub fn channel(&self, way: Way) -> ChannelConfig {
        let own = self.towards(way);
        let rate_bps = match way {
            Way::Up => own.up_bps(),
            Way::Down => own.rate_bps,
        };
        let real = ChannelConfig { delay: millis(self.delay_of(way)), ..own.channel_at(rate_bps, way) };
        match self.told_there_bps(way).filter(|_| self.link_as_told) {
            Some(told_bps) => at_most(&real, told_bps),
            None => real,
        }
    }

    /// What the gateway before this direction is told that it carries, bit/s.
    fn told_there_bps(&self, way: Way) -> Option<u64> {
        let (down, up) = (self.rate_bps, self.up_bps());
        let told = match way {
            Way::Down => self.told_bps("gw2", down, up),
            Way::Up => self.told_bps("gw1", up, down),
        };
        told.map(|(out_bps, _)| out_bps)
    }

    /// Delay of this direction in milliseconds.
    fn delay_of(&self, way: Way) -> f64 {
        let other = match way {
            Way::Up => Way::Down,
            Way::Down => Way::Up,
        };
        let rest = self.towards(other).delay_ms.map(|ms| self.rtt_ms - ms);
        self.towards(way).delay_ms.or(rest).unwrap_or(self.rtt_ms / 2.0).max(0.0)
    }

    fn channel_at(&self, rate_bps: u64, way: Way) -> ChannelConfig {
        let moving = self.moving(way);
        let has_rate = rate_bps > 0 || !moving.rate_changes.is_empty();
        let (single, bursts) = self.losses();
        ChannelConfig {
            rate_bps: (rate_bps > 0).then_some(rate_bps),
            queue_limit_bytes: self.queue_limit_bytes(rate_bps, &moving.rate_changes).filter(|_| has_rate),
            queue_limit_packets: self.queue_packets.and_then(|n| usize::try_from(n).ok()),
            ber: self.ber,
            loss: single,
            fragment_loss: self.fragment_loss,
            firewall: match self.firewall.as_str() {
                "fragments" => Some(Firewall::Fragments),
                "fragments-with-df" => Some(Firewall::FragmentsWithDf),
                _ => None,
            },
            firewall_from: millis(self.firewall_from_ms),
            gilbert_elliott: bursts,
            reorder: self.reorder,
            reorder_extra: millis(self.reorder_ms),
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            jitter: millis(self.jitter_ms),
            jitter_keeps_order: self.jitter_keeps_order,
            jitter_frame: millis(self.jitter_frame_ms),
            delay_changes: moving.delay_changes,
            loss_changes: moving.loss_changes,
            demand: self.demand.as_ref().map(|demand| demand.0),
            turnaround: millis(self.turnaround_ms),
            wink: (self.wink_p > 0.0).then(|| Wink {
                p: self.wink_p,
                interval: millis(self.wink_i_ms),
                seed: Some(self.seed),
                side: match self.wink_side {
                    WinkAt::Entry => WinkSide::Entry,
                    WinkAt::Exit => WinkSide::Exit,
                },
            }),
            contact_plan: moving.contacts,
            contact_period: self.contact_period_ms.map(millis),
            contact_hold: self.contact_hold || self.phases.is_some(),
            rate_changes: moving.rate_changes,
            xcp: self.xcp.then(|| XcpRouter {
                capacity_bps: self.xcp_capacity_bps,
                max_interval: millis(self.rtt_ms),
                weights: self.xcp_weights.map(|parts| Weights { xcp: parts.0[0], plain: parts.0[1] }),
                away: self.xcp_away.0.first().map(|away| (away.start, away.end)),
            }),
            xcp_harm: match self.xcp_harm.as_str() {
                "strip" => Some(XcpHarm::Strip),
                "more" => Some(XcpHarm::More),
                "less" => Some(XcpHarm::Less),
                "both" => Some(XcpHarm::Both),
                "replay" => Some(XcpHarm::Replay),
                "wild" => Some(XcpHarm::Wild),
                _ => None,
            },
            xcp_protocol: self.xcp_protocol(),
            behind: (self.behind_rate_bps > 0).then(|| Behind {
                rate_bps: self.behind_rate_bps,
                queue_limit_bytes: match self.behind_queue_bytes {
                    Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
                    None => self.queue_for(self.behind_rate_bps) as usize,
                },
            }),
            ..ChannelConfig::default()
        }
    }

    /// The IP protocol of XCP's own header, as gateways are told it (`xcp_protocol`).
    fn xcp_protocol(&self) -> Option<u8> {
        let lines: toml::Table = self.link_config.parse().ok()?;
        u8::try_from(lines.get("xcp_protocol")?.as_integer()?).ok()
    }

    /// Where only packets are counted, bytes are not: a queue of full packets and one of small ones
    /// are alike.
    fn queue_limit_bytes(&self, rate_bps: u64, changes: &[RateChange]) -> Option<usize> {
        let packets_alone =
            self.queue_packets.is_some() && self.queue_bytes.is_none() && self.queue_time_ms.is_none();
        let greatest = changes.iter().map(|c| c.rate_bps).chain([rate_bps]).max().unwrap_or(0);
        (!packets_alone).then(|| self.queue_for(greatest) as usize)
    }

    /// Probability of single losses, and the model of bursts.
    fn losses(&self) -> (f64, Option<GilbertElliott>) {
        if self.has_bad_state() {
            let bursts = GilbertElliott {
                p_good_to_bad: self.ge_p,
                p_bad_to_good: self.ge_r,
                loss_good: self.ge_loss_good,
                loss_bad: self.ge_loss_bad,
            };
            return (self.loss, Some(bursts));
        }
        let is_bursty = self.loss_burst > 1.0 && self.loss > 0.0 && self.loss < 1.0;
        // In the bad state everything is lost; its share of the time is the loss.
        let p_bad_to_good = 1.0 / self.loss_burst.max(1.0);
        let bursts = is_bursty.then(|| GilbertElliott {
            p_good_to_bad: p_bad_to_good * self.loss / (1.0 - self.loss),
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        });
        (if is_bursty { 0.0 } else { self.loss }, bursts)
    }

    /// Finds keys that make no sense together.
    ///
    /// # Errors
    /// Which they are, of which direction, and what is allowed.
    pub fn check(&self) -> Result<()> {
        if self.delay_ms.is_some() {
            bail!("`delay` is of one direction: `up.delay` or `down.delay`; `rtt` is of both");
        }
        let round_trip_ms = self.delay_of(Way::Up) + self.delay_of(Way::Down);
        if (round_trip_ms - self.rtt_ms).abs() > 1e-6 {
            bail!(
                "`up.delay` and `down.delay` are {round_trip_ms} ms together, and `rtt` is {} ms: say one of them, and the \
                 other direction has the rest",
                self.rtt_ms
            );
        }
        for way in [Way::Up, Way::Down] {
            let own = self.towards(way);
            let name = way.name();
            if own.has_bad_state() && own.loss_burst > 1.0 {
                bail!("{name}: `loss_burst` and `ge_p` both describe bursts; one of them is allowed");
            }
            if own.queue_bytes.is_some() && own.queue_time_ms.is_some() {
                bail!("{name}: `queue` and `queue_time` both say what may wait; one of them is allowed");
            }
            if own.contacts.0.is_empty() && (own.contact_period_ms.is_some() || own.contact_hold) {
                bail!(
                    "`contact_period` and `contact_hold` say something of `contacts`, and there are none: such as `0s-10s 30s-40s`"
                );
            }
            own.check_moving().map_err(|wrong| anyhow!("{name}: {wrong}"))?;
            let channel = self.channel(way);
            if own.xcp_weights.is_some() && !own.xcp {
                bail!(
                    "{name}: `xcp_weights` says how an XCP router shares the link, and there is none: `xcp`"
                );
            }
            channel.check().map_err(|wrong| anyhow!("{name}: {}", said_by_key(&wrong)))?;
        }
        Ok(())
    }
}

/// A mistake by the names of the settings.
fn said_by_key(wrong: &farlink_channel::Invalid) -> String {
    let key = match wrong.field {
        "gilbert_elliott.p_good_to_bad" => "ge_p",
        "gilbert_elliott.p_bad_to_good" => "ge_r",
        "gilbert_elliott.loss_good" => "ge_loss_good",
        "gilbert_elliott.loss_bad" => "ge_loss_bad",
        "wink.p" => "wink_p",
        "wink.interval" => "wink_i",
        "contact_plan" => "contacts",
        other => other,
    };
    format!("`{key}` must be {}", wrong.allowed)
}

fn millis(ms: f64) -> Duration {
    Duration::from_nanos((ms * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parsed as settings;

    #[test]
    fn the_link_is_what_the_settings_say() {
        let settings = settings(&["rate=8M", "rtt=500ms", "loss=0.01", "loss_burst=4"]);
        let down = settings.channel(Way::Down);
        assert_eq!(down.rate_bps, Some(8_000_000));
        assert_eq!(down.delay, Duration::from_millis(250));
        assert_eq!(down.queue_limit_bytes, Some(500_000));
        let bursts = down.gilbert_elliott.unwrap();
        let bad = bursts.p_good_to_bad / (bursts.p_good_to_bad + bursts.p_bad_to_good);
        assert!((bad - 0.01).abs() < 1e-9 && down.loss == 0.0);
        assert_eq!(Settings { rate_bps: 0, ..settings }.channel(Way::Down).rate_bps, None);
    }

    #[test]
    fn directions_may_differ_in_all_but_the_delay() {
        let s = settings(&[
            "rate=8M",
            "loss=0.01",
            "up.loss=0",
            "up.queue_packets=20",
            "down.ber=1e-6",
            "down.rate_changes=5s=2M 8s=8M",
            "up.wink_p=0.1",
            "up.wink_i=40",
            "up.wink_side=exit",
        ]);
        s.check().unwrap();
        let (up, down) = (s.channel(Way::Up), s.channel(Way::Down));
        assert_eq!((up.loss, down.loss), (0.0, 0.01));
        assert_eq!((up.ber, down.ber), (0.0, 1e-6));
        assert_eq!((up.queue_limit_packets, up.queue_limit_bytes), (Some(20), None));
        assert_eq!((down.queue_limit_packets, down.queue_limit_bytes), (None, Some(500_000)));
        assert_eq!((up.rate_changes.len(), down.rate_changes.len()), (0, 2));
        assert_eq!((up.wink.unwrap().side, down.wink), (WinkSide::Exit, None));
        assert!(s.is_scheduled());
    }

    #[test]
    fn a_starved_return_link_has_a_queue_of_packets_or_of_time() {
        let s = settings(&["rate=8M", "rate_up=32k", "up.queue_time=1s", "down.fragment_loss=1e-3"]);
        s.check().unwrap();
        let (up, down) = (s.channel(Way::Up), s.channel(Way::Down));
        assert_eq!((up.queue_limit_bytes, up.queue_limit_packets), (Some(4_000), None));
        assert_eq!((up.fragment_loss, down.fragment_loss), (0.0, 1e-3));
        // One packet of any size finds room.
        let least = settings(&["rate_up=9.6k", "up.queue_time=1s"]).channel(Way::Up);
        assert_eq!(least.queue_limit_bytes, Some(1_500));
        let both = settings(&["down.firewall=fragments-with-df", "up.queue_packets=50"]);
        assert_eq!(both.channel(Way::Up).queue_limit_packets, Some(50));
        assert_eq!(both.channel(Way::Down).firewall, Some(Firewall::FragmentsWithDf));
    }

    #[test]
    fn one_direction_may_take_longer() {
        let s = settings(&["rtt=300", "down.delay=250ms"]);
        s.check().unwrap();
        let delays = [Way::Up, Way::Down].map(|way| s.channel(way).delay);
        assert_eq!(delays, [50, 250].map(Duration::from_millis));
        settings(&["rtt=300", "down.delay=250ms", "up.delay=50"]).check().unwrap();
    }

    #[test]
    fn both_states_of_a_link_may_lose() {
        let s = settings(&["ge_p=0.01", "ge_r=0.3", "ge_loss_good=0.001", "ge_loss_bad=0.5", "loss=0.1"]);
        s.check().unwrap();
        let down = s.channel(Way::Down);
        let model = down.gilbert_elliott.unwrap();
        assert_eq!((model.p_good_to_bad, model.p_bad_to_good), (0.01, 0.3));
        assert_eq!((model.loss_good, model.loss_bad, down.loss), (0.001, 0.5, 0.1));
        let of_bursts = 0.01 / 0.31 * 0.5 + 0.3 / 0.31 * 0.001;
        assert!((s.mean_loss() - (1.0 - 0.9 * (1.0 - of_bursts))).abs() < 1e-12);
    }

    #[test]
    fn contacts_are_of_the_whole_link_and_survive_the_way_to_its_process() {
        let s = settings(&["contacts=0s-6s 8s-10s@2M", "contact_period=10s", "contact_hold=true"]);
        s.check().unwrap();
        for way in [Way::Up, Way::Down] {
            let c = s.channel(way);
            assert_eq!((c.contact_plan.len(), c.contact_plan[1].rate_bps), (2, Some(2_000_000)));
            assert_eq!((c.contact_period, c.contact_hold), (Some(Duration::from_secs(10)), true));
        }
        let text = serde_json::to_string(&s).unwrap();
        assert!(text.contains("\"0s-6s 8s-10s@2M\""), "{text}");
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), s);
    }

    #[test]
    fn what_makes_no_sense_is_said_by_its_key() {
        for (pairs, hint) in [
            (&["loss=0.1", "loss_burst=3", "ge_p=0.1"][..], "one of them"),
            (&["contacts=5s-8s 6s-9s"], "`contacts` must be in order of time"),
            (&["contacts=5s-8s", "contact_period=7s"], "`contacts` must be within contact_period"),
            (&["contact_hold=true"], "there are none"),
            (&["queue=64k", "up.queue_time=1s"], "up: `queue` and `queue_time`"),
            (&["xcp_weights=3:1"], "`xcp`"),
            (&["delay=20"], "`up.delay` or `down.delay`"),
            (&["rtt=300", "up.delay=20", "down.delay=20"], "40 ms together, and `rtt` is 300 ms"),
            (&["rtt=300", "up.delay=301"], "301 ms together"),
            (&["down.rate_changes=5s=1M 3s=2M"], "down: `rate_changes` must be in order"),
            (&["up.wink_p=0.1"], "up: `wink_i` must be longer than zero"),
        ] {
            let error = settings(pairs).check().unwrap_err().to_string();
            assert!(error.contains(hint), "{pairs:?}: {error}");
        }
        let mut s = Settings::default();
        for (pair, hint) in [
            ("up.contacts=0s-1s", "no key `contacts` of its own; it has: delay ber"),
            ("down.rate=8M", "no key `rate`"),
            ("up.loss=2", "probability"),
            ("contacts=1-2", "30s-40s@2M"),
            ("rate_changes=1s", "10s=4M"),
            ("wink_side=left", "entry or exit"),
            ("ge_r=7", "probability"),
            ("xcp_weights=3", "such as 3:1"),
            ("xcp_weights=0:1", "from 1 to 1000"),
            ("queue_packets=many", "number of packets"),
        ] {
            let error = s.set_all([pair]).unwrap_err().to_string();
            assert!(error.contains(hint), "{pair}: {error}");
        }
        assert_eq!(s, Settings::default());
    }
}
