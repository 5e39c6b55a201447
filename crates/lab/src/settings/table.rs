//! All settings in one table: what each is called and means, which values it takes, and how it is
//! set.
//!
//! `Settings::set`, the keys that an error names and the help of `farlink lab up` are made of it.
//! Another table like it says what can be changed in a running gateway:
//! `crates/gateway/src/settings.rs`.

use std::collections::BTreeMap;

use farlink_wire::quantity::{self, Bare};
use serde::de::{DeserializeOwned, IntoDeserializer, value};

use super::{
    ByDemand, Contacts, DelayChanges, Lacks, Mode, Parts, RateChanges, Recording, Settings, Told, TurnsOf,
};

/// The smallest packet that Linux sends rather than let routers cut it (`net.ipv4.route.min_pmtu`).
const MTU_BYTES: (u64, u64) = (552, 65_535);
/// Windows without scaling.
const HOST_WINDOW_BYTES: (u64, u64) = (1, 65_535);
/// Windows of a client that is told so: two segments, to what scaling can say.
const CLIENT_WINDOW_BYTES: (u64, u64) = (2_920, 1 << 30);
const ANY_SIZE: (u64, u64) = (0, u64::MAX);
/// Width of the keys' column in the help.
const HELP_KEY_COLUMNS: usize = 32;

/// A setting: its name, what it means, and how it is set.
pub struct Setting {
    whose: Whose,
    /// As `set` takes it.
    pub key: &'static str,
    means: &'static str,
    value: Value,
}

/// What a setting says something of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Link,
    /// Of the link's directions: both, or one of them with `up.` or `down.` before the key.
    Direction,
    Lab,
}

/// What is written behind the key, and where it goes.
enum Value {
    /// Bits per second.
    Rate(fn(&mut Settings, u64)),
    /// Bytes, the least and the most that is allowed.
    Size((u64, u64), fn(&mut Settings, u64)),
    /// Milliseconds.
    Time(fn(&mut Settings, f64)),
    Probability(fn(&mut Settings, f64)),
    /// A number of what.
    Number(&'static str, fn(&mut Settings, &str) -> Option<()>),
    /// Words with `|` between.
    OneOf(&'static str, fn(&mut Settings, &str) -> Option<()>),
    Switch(fn(&mut Settings, bool)),
    Text(fn(&mut Settings, &str)),
    /// What it looks like. It says itself what is wrong with a text.
    Read(&'static str, fn(&mut Settings, &str) -> Result<(), String>),
}

use Value::{Number, OneOf, Probability, Rate, Read, Size, Switch, Text, Time};

const fn of_link(key: &'static str, means: &'static str, value: Value) -> Setting {
    Setting { whose: Whose::Link, key, means, value }
}

const fn of_direction(key: &'static str, means: &'static str, value: Value) -> Setting {
    Setting { whose: Whose::Direction, key, means, value }
}

const fn of_lab(key: &'static str, means: &'static str, value: Value) -> Setting {
    Setting { whose: Whose::Lab, key, means, value }
}

/// All that can be said about a laboratory.
pub static SETTINGS: [Setting; 88] = [
    of_link("rate", "rate towards the client; 0 is unlimited", Rate(|s, bps| s.rate_bps = bps)),
    of_link("rate_up", "rate towards the server [as rate]", Rate(|s, bps| s.rate_up_bps = Some(bps))),
    of_link("rtt", "round-trip time", Time(|s, ms| s.rtt_ms = ms)),
    of_direction(
        "delay",
        "only with up. or down.; the other direction has the rest of rtt",
        Time(|s, ms| s.delay_ms = Some(ms)),
    ),
    of_link(
        "duplex",
        "half: both directions share one medium",
        OneOf("full|half", |s, word| choice(word).map(|duplex| s.duplex = duplex)),
    ),
    of_link(
        "turnaround",
        "such a medium changes its direction in this time",
        Time(|s, ms| s.turnaround_ms = ms),
    ),
    of_link(
        "phases",
        "period, one-way delays, rates (down/up), time away",
        Read("'15s 20ms-60ms 50M-200M 150ms'", |s, text| {
            TurnsOf::try_from(text.to_owned()).map(|phases| s.phases = Some(phases))
        }),
    ),
    of_direction("ber", "bit error rate", Probability(|s, p| s.ber = p)),
    of_direction("loss", "probability that a packet is lost", Probability(|s, p| s.loss = p)),
    of_direction(
        "fragment_loss",
        "probability that an IP fragment is lost",
        Probability(|s, p| s.fragment_loss = p),
    ),
    of_direction(
        "firewall",
        "what one behind the link drops",
        OneOf("none|fragments|fragments-with-df", |s, word| {
            let known = ["none", "fragments", "fragments-with-df"].contains(&word);
            known.then(|| s.firewall = if word == "none" { String::new() } else { word.into() })
        }),
    ),
    of_direction(
        "firewall_from",
        "when it begins to, by the schedules' clock",
        Time(|s, ms| s.firewall_from_ms = ms),
    ),
    of_direction(
        "loss_burst",
        "mean length of a burst of losses",
        Number("a number of packets", |s, n| number(n).map(|packets| s.loss_burst = packets)),
    ),
    of_direction("ge_p", "Gilbert-Elliott: from good to bad", Probability(|s, p| s.ge_p = p)),
    of_direction("ge_r", "Gilbert-Elliott: from bad to good", Probability(|s, p| s.ge_r = p)),
    of_direction("ge_loss_good", "loss while good", Probability(|s, p| s.ge_loss_good = p)),
    of_direction("ge_loss_bad", "loss while bad", Probability(|s, p| s.ge_loss_bad = p)),
    of_direction("wink_p", "probability that the link is away", Probability(|s, p| s.wink_p = p)),
    of_direction("wink_i", "for so long", Time(|s, ms| s.wink_i_ms = ms)),
    of_direction(
        "wink_side",
        "what is lost then: what enters, or what leaves",
        OneOf("entry|exit", |s, word| choice(word).map(|side| s.wink_side = side)),
    ),
    of_link(
        "contacts",
        "when the link is there at all",
        Read("'0s-10s 30s-40s@2M'", |s, text| {
            Contacts::try_from(text.to_owned()).map(|contacts| s.contacts = contacts)
        }),
    ),
    of_link("contact_period", "the contacts come again", Time(|s, ms| s.contact_period_ms = Some(ms))),
    of_link("contact_hold", "packets wait for the next contact", Switch(|s, on| s.contact_hold = on)),
    of_direction(
        "rate_changes",
        "rates from given times on",
        Read("'10s=4M 20s=8M'", |s, text| {
            RateChanges::try_from(text.to_owned()).map(|changes| s.rate_changes = changes)
        }),
    ),
    of_direction(
        "delay_changes",
        "one-way delays from given times on",
        Read("'10s=20ms 20s~30s=60ms'", |s, text| {
            DelayChanges::try_from(text.to_owned()).map(|changes| s.delay_changes = changes)
        }),
    ),
    of_direction(
        "trace",
        "delay, rate and loss over time, as a CSV file",
        Read("FILE", |s, file| {
            let none = file.is_empty().then_some(None);
            let read = || Recording::try_from(file.to_owned()).map(Some);
            none.map_or_else(read, Ok).map(|trace| s.trace = trace)
        }),
    ),
    of_direction(
        "demand",
        "least and most rate, time from asking to getting",
        Read("'16k 2M 600ms'", |s, text| {
            ByDemand::try_from(text.to_owned()).map(|demand| s.demand = Some(demand))
        }),
    ),
    of_direction("reorder", "probability that a packet comes later", Probability(|s, p| s.reorder = p)),
    of_direction("reorder_by", "by so much", Time(|s, ms| s.reorder_ms = ms)),
    of_direction("duplicate", "probability that it arrives twice", Probability(|s, p| s.duplicate = p)),
    of_direction("corrupt", "that it arrives with a wrong bit", Probability(|s, p| s.corrupt = p)),
    of_direction("jitter", "greatest additional delay", Time(|s, ms| s.jitter_ms = ms)),
    of_direction("jitter_keeps_order", "it overtakes nothing", Switch(|s, on| s.jitter_keeps_order = on)),
    of_direction(
        "jitter_frame",
        "packets arrive only at the ends of such frames",
        Time(|s, ms| s.jitter_frame_ms = ms),
    ),
    of_direction("queue", "what may wait", Size(ANY_SIZE, |s, bytes| s.queue_bytes = Some(bytes))),
    of_direction(
        "queue_time",
        "the same as a time of the direction's rate",
        Time(|s, ms| s.queue_time_ms = Some(ms)),
    ),
    of_direction(
        "queue_packets",
        "the same in packets",
        Number("a number of packets", |s, n| {
            n.parse().ok().filter(|packets| *packets > 0).map(|packets| s.queue_packets = Some(packets))
        }),
    ),
    of_direction("xcp", "the queue is that of an XCP router", Switch(|s, on| s.xcp = on)),
    of_direction(
        "xcp_capacity",
        "the rate that this router believes in",
        Rate(|s, bps| s.xcp_capacity_bps = Some(bps)),
    ),
    of_direction(
        "xcp_weights",
        "XCP traffic waits apart from the rest, and both share so",
        Read("3:1", |s, text| Parts::try_from(text.to_owned()).map(|parts| s.xcp_weights = Some(parts))),
    ),
    of_direction(
        "xcp_away",
        "when this router is away; then it has forgotten all",
        Read("'20s-21s'", |s, text| {
            Contacts::try_from(text.to_owned()).map(|contacts| s.xcp_away = contacts)
        }),
    ),
    of_direction(
        "xcp_harm",
        "who changes the words of XCP behind the link",
        OneOf("none|strip|more|less|both|replay|wild", |s, word| {
            let known = ["none", "strip", "more", "less", "both", "replay", "wild"].contains(&word);
            known.then(|| s.xcp_harm = if word == "none" { String::new() } else { word.into() })
        }),
    ),
    of_direction(
        "behind_rate",
        "rate of another line behind the link, without XCP; 0: none",
        Rate(|s, bps| s.behind_rate_bps = bps),
    ),
    of_direction(
        "behind_queue",
        "what may wait before it [a bandwidth-delay product]",
        Size(ANY_SIZE, |s, bytes| s.behind_queue_bytes = Some(bytes)),
    ),
    of_lab(
        "gateways",
        "how many run",
        OneOf("0|1|2", |s, n| n.parse().ok().filter(|n| *n <= 2).map(|n| s.gateways = n)),
    ),
    of_lab(
        "gateway_at",
        "where the only one stands",
        OneOf("client|server", |s, word| choice(word).map(|at| s.gateway_at = at)),
    ),
    of_lab("rate_known", "gateways are told the link's rate", Switch(|s, on| s.rate_known = on)),
    of_lab("rate_in_known", "and that of what comes in by it", Switch(|s, on| s.rate_in_known = on)),
    of_lab(
        "told_rates",
        "what single gateways are told in place of the link's rate",
        Read("'gw1=32k gw2=120%'", set_told_rates),
    ),
    of_lab("link_as_told", "the link is no faster than that", Switch(|s, on| s.link_as_told = on)),
    of_lab("rtt_known", "and its round-trip time", Switch(|s, on| s.rtt_known = on)),
    of_lab(
        "stall",
        "simulated gateways and routers stand still so long at a time",
        Time(|s, ms| s.stall_ms = ms),
    ),
    of_lab("stall_share", "and for this part of the time", Probability(|s, p| s.stall_share = p)),
    of_lab("cc", "gateways' congestion control on the link", Read("NAME", set_cc)),
    of_lab(
        "cc_window",
        "its window where it is unfair",
        Size(ANY_SIZE, |s, bytes| s.cc_window_bytes = Some(bytes)),
    ),
    of_lab(
        "link_iw",
        "gateways' initial window on the link",
        Number("a number of segments", |s, n| n.parse().ok().map(|n| s.link_iw = n)),
    ),
    of_lab(
        "memory",
        "bound of the gateways' buffer pool",
        Size(ANY_SIZE, |s, bytes| s.memory_bytes = Some(bytes)),
    ),
    of_lab(
        "mode",
        "custody: gateways promise nothing; forward: they split nothing",
        Read("split|custody|forward", |s, word| read_mode(word).map(|mode| s.mode = mode)),
    ),
    of_lab("modes", "of single gateways", Read("'gw1=split gw2=custody'", set_modes)),
    of_lab(
        "custody_notice",
        "what sources in custody mode hear of an outage",
        OneOf("silence|sack|iack|zero-window", |s, word| choice(word).map(|told| s.custody_notice = told)),
    ),
    of_lab("gateway_log", "how much gateways log", Text(|s, text| s.gateway_log = text.into())),
    of_lab("gateway_config", "lines for their configuration", Text(|s, text| s.gateway_config = text.into())),
    of_lab("link_config", "lines for each [[link]] in it", Text(|s, text| s.link_config = text.into())),
    of_lab("programs", "other versions of farlink, by node", Read("'gw2=/usr/bin/farlink'", set_programs)),
    of_lab(
        "hosts",
        "which TCP they have",
        OneOf("modern|legacy", |s, word| choice(word).map(|hosts| s.hosts = hosts)),
    ),
    of_lab(
        "tracking",
        "how the client's router tracks connections",
        OneOf("none|drop|reset|masquerade|liberal", |s, word| {
            let known = ["none", "drop", "reset", "masquerade", "liberal"].contains(&word);
            known.then(|| s.tracking = if word == "none" { String::new() } else { word.into() })
        }),
    ),
    of_lab("host_cc", "hosts' congestion control", Text(|s, text| s.host_cc = text.into())),
    of_lab("client2_cc", "that of the second client", Text(|s, text| s.client2_cc = text.into())),
    of_lab(
        "host_window",
        "receive window of legacy hosts",
        Size(HOST_WINDOW_BYTES, |s, bytes| s.host_window_bytes = bytes as u32),
    ),
    of_lab(
        "client_window",
        "receive window of the first client [as its TCP has it]",
        Size(CLIENT_WINDOW_BYTES, |s, bytes| s.client_window_bytes = Some(bytes)),
    ),
    of_lab(
        "client_lacks",
        "what its TCP has not",
        Read("'timestamps scaling sack oversized'", |s, text| {
            Lacks::try_from(text.to_owned()).map(|lacks| s.client_lacks = lacks)
        }),
    ),
    of_lab(
        "client2_lacks",
        "what that of the second client has not",
        Read("'timestamps scaling sack oversized'", |s, text| {
            Lacks::try_from(text.to_owned()).map(|lacks| s.client2_lacks = lacks)
        }),
    ),
    of_lab(
        "iw",
        "hosts' initial window",
        Number("a number of segments", |s, n| n.parse().ok().map(|n| s.iw = n)),
    ),
    of_lab(
        "keepalive",
        "of simulated hosts: silence, interval in seconds, questions",
        Read("'7200/75/9'", set_keepalive),
    ),
    of_lab("mtu", "MTU of all cables", Size(MTU_BYTES, |s, bytes| s.mtu = bytes as u32)),
    of_lab("link_mtu", "of the emulated links", Size(MTU_BYTES, |s, bytes| s.link_mtu = bytes as u32)),
    of_lab("eth_rate", "Ethernets' rate, each way", Rate(|s, bps| s.eth_rate_bps = bps)),
    of_lab("eth_rates", "rates of single ones", Read("'eth1=20M eth2=1M'", set_eth_rates)),
    of_lab(
        "eth_mtu",
        "MTU that the router before an Ethernet has there [as mtu]",
        Size(MTU_BYTES, |s, bytes| s.eth_mtu = Some(bytes as u32)),
    ),
    of_lab("eth_mtu_untold", "it says nothing of what does not fit", Switch(|s, on| s.eth_mtu_untold = on)),
    of_lab("eth_mtu_from", "they have it from then on", Time(|s, ms| s.eth_mtu_from_ms = ms)),
    of_lab("eth_queue", "what may wait before them", Size(ANY_SIZE, |s, bytes| s.eth_queue_bytes = bytes)),
    of_lab("eth_rtt", "their round-trip time", Time(|s, ms| s.eth_rtt_ms = ms)),
    of_lab("stagger", "each transfer begins so long after the one before", Time(|s, ms| s.stagger_ms = ms)),
    of_lab("eth_rtts", "that of single ones", Read("'eth1=40ms eth2=200ms'", set_eth_rtts)),
    of_lab("pepsal", "path of that program", Text(|s, text| s.pepsal = text.into())),
    of_lab("round", "of tcpstore: time between two of its rounds", Time(|s, ms| s.round_ms = ms)),
    of_lab(
        "seed",
        "of everything random",
        Number("a whole number", |s, n| n.parse().ok().map(|n| s.seed = n)),
    ),
];

/// Without a name it is the gateway's own choice.
fn set_cc(settings: &mut Settings, name: &str) -> Result<(), String> {
    if !name.is_empty() {
        name.parse::<farlink_cc::Kind>().map_err(|unknown| unknown.to_string())?;
    }
    settings.cc = name.into();
    Ok(())
}

fn read_mode(word: &str) -> Result<Mode, String> {
    choice(word).ok_or_else(|| "split, custody or forward expected".into())
}

fn set_modes(settings: &mut Settings, text: &str) -> Result<(), String> {
    let mode = |pair: &str| {
        let (name, word) = pair.split_once('=').ok_or_else(|| {
            format!("`{pair}` has no name; modes by gateway such as `gw1=split gw2=custody` expected")
        })?;
        let mode = read_mode(word).map_err(|wrong| format!("`{word}`: {wrong}"))?;
        Ok((name.to_owned(), mode))
    };
    settings.modes = text.split_whitespace().map(mode).collect::<Result<_, String>>()?;
    Ok(())
}

fn set_keepalive(settings: &mut Settings, text: &str) -> Result<(), String> {
    let numbers: Option<Vec<u64>> = text.split('/').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
    let numbers = numbers.and_then(|n| <[u64; 3]>::try_from(n).ok());
    settings.keepalive = Some(numbers.ok_or("three numbers such as `7200/75/9` expected")?);
    Ok(())
}

fn set_told_rates(settings: &mut Settings, text: &str) -> Result<(), String> {
    const EXPECTED: &str = "rates by gateway such as `gw1=32k gw2=none`, `120%` or `swapped` expected";
    let of_gateway = |pair: &str| {
        let named = pair.split_once('=').filter(|(name, _)| name.starts_with("gw"));
        let (name, told) = named.ok_or_else(|| format!("`{pair}` names no gateway; {EXPECTED}"))?;
        let told = match (told, told.strip_suffix('%').map(str::parse)) {
            ("none", _) => Ok(Told::Nothing),
            ("swapped", _) => Ok(Told::Swapped),
            (_, Some(Ok(percent))) if percent > 0 => Ok(Told::Percent(percent)),
            (_, Some(_)) => Err(format!("`{told}` is no part of a rate")),
            _ => quantity::rate_bps(told, Bare::Base).map(Told::Rate),
        };
        Ok((name.to_owned(), told.map_err(|wrong| format!("{wrong}; {EXPECTED}"))?))
    };
    settings.told_rates = text.split_whitespace().map(of_gateway).collect::<Result<_, String>>()?;
    Ok(())
}

fn set_eth_rates(settings: &mut Settings, text: &str) -> Result<(), String> {
    const EXPECTED: &str = "rates by name such as `eth1=20M eth2=1M` expected";
    settings.eth_rates_bps = of_ethernets(text, EXPECTED, |rate| quantity::rate_bps(rate, Bare::Base))?;
    Ok(())
}

fn set_eth_rtts(settings: &mut Settings, text: &str) -> Result<(), String> {
    const EXPECTED: &str = "times by name such as `eth1=40ms eth2=200ms` expected";
    let ms = |time: &str| quantity::time(time, Bare::Unit("ms")).map(|rtt| rtt.as_secs_f64() * 1e3);
    settings.eth_rtts_ms = of_ethernets(text, EXPECTED, ms)?;
    Ok(())
}

/// Values of single Ethernets, by name.
fn of_ethernets<T>(
    text: &str,
    expected: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    let value = |pair: &str| {
        let named = pair.split_once('=').filter(|(name, _)| name.starts_with("eth"));
        let (name, value) = named.ok_or_else(|| format!("`{pair}` has no name; {expected}"))?;
        Ok((name.to_owned(), read(value).map_err(|wrong| format!("{wrong}; {expected}"))?))
    };
    text.split_whitespace().map(value).collect()
}

fn set_programs(settings: &mut Settings, text: &str) -> Result<(), String> {
    let program = |pair: &str| pair.split_once('=').map(|(node, path)| (node.to_owned(), path.into()));
    let programs = text.split_whitespace().map(program).collect::<Option<BTreeMap<_, _>>>();
    settings.programs = programs.ok_or("programs by node such as `gw2=/usr/bin/farlink` expected")?;
    Ok(())
}

impl Setting {
    /// The one of this name. With its unit behind it, as reports have it, it is the same:
    /// `rate_bps`, `rtt_ms`.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| {
            let rest = key.strip_prefix(setting.key);
            rest.is_some_and(|rest| rest.is_empty() || rest == setting.value.unit())
        })
    }

    /// Whether one direction may have it by itself.
    #[must_use]
    pub fn is_of_direction(&self) -> bool {
        self.whose == Whose::Direction
    }

    /// Reads a value.
    ///
    /// # Errors
    /// What is wrong, and what is expected. Nothing has changed then.
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        let expected = || format!("{} expected", self.value.expected());
        let or = |wrong: String| format!("{wrong}; {} expected", self.value.expected());
        match self.value {
            Rate(set) => quantity::rate_bps(text, Bare::Base).map(|bps| set(settings, bps)).map_err(or),
            Size((least, most), set) => match quantity::size_bytes(text, Bare::Base).map_err(or)? {
                bytes if (least..=most).contains(&bytes) => {
                    set(settings, bytes);
                    Ok(())
                }
                _ => Err(expected()),
            },
            Time(set) => {
                let time = quantity::time(text, Bare::Unit("ms")).map_err(or)?;
                set(settings, time.as_nanos() as f64 / 1e6);
                Ok(())
            }
            Probability(set) => {
                let p = number(text).filter(|p| *p <= 1.0);
                p.map(|p| set(settings, p)).ok_or_else(expected)
            }
            Number(_, set) | OneOf(_, set) => set(settings, text).ok_or_else(expected),
            Switch(set) => text.parse().map(|on| set(settings, on)).map_err(|_| expected()),
            Text(set) => {
                set(settings, text);
                Ok(())
            }
            Read(_, set) => set(settings, text),
        }
    }
}

impl Value {
    /// How the name ends in reports.
    fn unit(&self) -> &'static str {
        match self {
            Rate(_) => "_bps",
            Size(..) => "_bytes",
            Time(_) => "_ms",
            _ => "",
        }
    }

    /// In an error.
    fn expected(&self) -> String {
        match self {
            Rate(_) => "a rate such as `8M` or `8 Mbit/s`".into(),
            Size(ANY_SIZE, _) => "a size such as `96 kB` or `64 KiB`".into(),
            Size((least, most), _) => format!("{least} to {most} bytes"),
            Time(_) => "a time such as `500ms`".into(),
            Probability(_) => "a probability".into(),
            Number(of, _) => (*of).into(),
            OneOf(words, _) => match words.rsplit_once('|') {
                Some((rest, last)) => format!("{} or {last}", rest.replace('|', ", ")),
                None => (*words).into(),
            },
            Switch(_) => "true or false".into(),
            Text(_) => "a text".into(),
            Read(like, _) => format!("something like {like}"),
        }
    }

    /// In the help.
    fn placeholder(&self) -> &'static str {
        match self {
            Rate(_) => "RATE",
            Size(..) => "SIZE",
            Time(_) => "TIME",
            Probability(_) => "P",
            Number(..) => "N",
            OneOf(like, _) | Read(like, _) => like,
            Switch(_) => "true|false",
            Text(_) => "TEXT",
        }
    }
}

/// The keys, a blank between two.
pub(super) fn keys(of: impl Fn(&Setting) -> bool) -> String {
    SETTINGS.iter().filter(|setting| of(setting)).map(|setting| setting.key).collect::<Vec<_>>().join(" ")
}

/// The table for people, for `--help`.
#[must_use]
pub fn help() -> String {
    let lines = |whose: Whose| -> String {
        let of = SETTINGS.iter().filter(|setting| setting.whose == whose);
        of.map(|setting| {
            let given = format!("{}={}", setting.key, setting.value.placeholder());
            format!("  {given:HELP_KEY_COLUMNS$} {}\n", setting.means)
        })
        .collect()
    };
    format!(
        "The link:\n{}\nIts directions, both or one of them (up.KEY is towards the server, down.KEY towards the client):\n{}\n\
         Gateways, hosts, Ethernets of the terrestrial part:\n{}\n\
         RATE: 8M, 8mbit, '8 Mbit/s' (a number alone: bit/s). SIZE: 96kB, '64 KiB', 64k = 64 KiB (bytes).\n\
         TIME: 500ms, 1.5s (a number alone: ms). P: a probability, 0 to 1. N: a number.\n\
         docs/scenarios.md explains them.",
        lines(Whose::Link),
        lines(Whose::Direction),
        lines(Whose::Lab)
    )
}

/// A word of an enum, as JSON has it.
fn choice<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(IntoDeserializer::<value::Error>::into_deserializer(word)).ok()
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const RAIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/traces/rain.csv");

    #[test]
    fn each_name_means_one_setting() {
        for setting in &SETTINGS {
            for name in [setting.key.to_owned(), format!("{}{}", setting.key, setting.value.unit())] {
                let found = Setting::find(&name).map(|found| found.key);
                assert_eq!(found, Some(setting.key), "{name}");
            }
        }
    }

    #[test]
    fn each_setting_is_set_by_its_example_and_refuses_what_it_does_not_take() {
        for setting in &SETTINGS {
            let example = match setting.value {
                Rate(_) => "3M",
                Size(CLIENT_WINDOW_BYTES, _) => "17520",
                Size(..) => "600",
                Time(_) => "3s",
                Probability(_) => "0.3",
                Number(..) => "3",
                Switch(_) => "true",
                Text(_) => "a text",
                _ if setting.key == "cc" => "hybla",
                _ if setting.key == "trace" => RAIN,
                OneOf(like, _) | Read(like, _) => like.trim_matches('\'').rsplit('|').next().unwrap(),
            };
            let (before, mut after) = (Settings::default(), Settings::default());
            setting.set(&mut after, example).unwrap_or_else(|e| panic!("{}={example}: {e}", setting.key));
            let of_default =
                ["jitter_keeps_order", "rate_known", "rate_in_known", "rtt_known", "gateway_at", "gateways"];
            assert!(after != before || of_default.contains(&setting.key), "{} changes nothing", setting.key);
            if !matches!(setting.value, Text(_)) {
                let wrong = setting.set(&mut after.clone(), "never").unwrap_err();
                assert!(wrong.contains("expected") || wrong.contains("known are"), "{wrong}");
            }
        }
    }

    #[test]
    fn the_help_fits_a_screen() {
        let help = help();
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for setting in &SETTINGS {
            assert!(help.contains(&format!("\n  {}=", setting.key)), "{}", setting.key);
        }
    }

    /// The tables of the document have the keys in their first column.
    #[test]
    fn the_document_names_every_key_and_no_other() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
        let text = std::fs::read_to_string(path).unwrap();
        let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
        let named: BTreeSet<_> =
            cells.flat_map(|cell| cell.split(['`', ',', ' ']).filter(|w| !w.is_empty())).collect();
        // A dotted key is one of a direction.
        let named: BTreeSet<_> =
            named.into_iter().map(|n| n.trim_start_matches("up.").trim_start_matches("down.")).collect();
        assert_eq!(named, SETTINGS.iter().map(|setting| setting.key).collect());
    }
}
