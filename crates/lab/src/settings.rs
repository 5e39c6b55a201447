//! The keys of `lab up --set k=v` and of scenario files: what a laboratory looks like, with units
//! and defaults.

mod direction;
mod moving;
mod table;

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use farlink_gateway::config::Notice;
use serde::{Deserialize, Serialize};

pub(crate) use direction::at_most;
pub use direction::{Contacts, DelayChanges, Duplex, Parts, RateChanges, Way, WinkAt};
pub use moving::{ByDemand, Recording, TurnsOf};
pub use table::{SETTINGS, Setting, help};

/// RFC 8200 section 5: below that there is no IPv6.
const MTU_MIN_V6_BYTES: u32 = 1280;
/// RFC 9293 3.1: the field of the header.
const WINDOW_MAX_UNSCALED_BYTES: u64 = 65_535;
/// Greatest additional delay of a packet on an Ethernet, milliseconds.
const ETHERNET_JITTER_MS: f64 = 0.2;

/// Which TCP the hosts have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    /// Linux defaults.
    #[default]
    Modern,
    /// Small windows, no scaling, SACK or timestamps, initial window 1.
    Legacy,
}

/// What gateways do with connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They split them.
    #[default]
    Split,
    /// They hold their data while the link is away, and promise nothing.
    Custody,
    /// They only forward them.
    Forward,
}

impl Mode {
    /// As it is written in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Custody => "custody",
            Self::Forward => "forward",
        }
    }
}

/// What a host's TCP has not, though others of its time have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lacks {
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Window scaling (RFC 7323 section 2).
    pub scaling: bool,
    /// SACK (RFC 2018).
    pub sack: bool,
    /// It drops segments that are larger than its MSS.
    pub oversized: bool,
}

impl TryFrom<String> for Lacks {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let mut lacks = Self::default();
        for word in text.split_whitespace() {
            match word {
                "nothing" => {}
                "timestamps" => lacks.timestamps = true,
                "scaling" => lacks.scaling = true,
                "sack" => lacks.sack = true,
                "oversized" => lacks.oversized = true,
                other => {
                    return Err(format!(
                        "`{other}`: nothing, timestamps, scaling, sack or oversized expected"
                    ));
                }
            }
        }
        Ok(lacks)
    }
}

impl From<Lacks> for String {
    fn from(lacks: Lacks) -> Self {
        let all = [
            (lacks.timestamps, "timestamps"),
            (lacks.scaling, "scaling"),
            (lacks.sack, "sack"),
            (lacks.oversized, "oversized"),
        ];
        all.into_iter().filter(|(lacks, _)| *lacks).map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    }
}

/// Where the only gateway stands when there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatewayAt {
    /// On the server's side of the link: the carrier's.
    #[default]
    Server,
    /// On the client's side of the link.
    Client,
}

/// What a gateway is told in place of the rate of its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// Nothing.
    Nothing,
    /// A rate, bit/s.
    Rate(u64),
    /// So many hundredths of the rate that the link has.
    Percent(u32),
    /// The rate of what comes in by it, and of that the one of what goes out: somebody has mistaken
    /// one for the other.
    Swapped,
}

/// Everything that can be said about a laboratory. Rates are bits per second of IP packets; "down"
/// is towards the client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rate of the emulated link towards the client in bit/s; 0 is unlimited.
    pub rate_bps: u64,
    /// Rate towards the server in bit/s; `None`: the same as `rate_bps`.
    pub rate_up_bps: Option<u64>,
    /// Round-trip time of the emulated link in milliseconds.
    pub rtt_ms: f64,
    /// Delay of one direction in milliseconds; the other has what is left of `rtt_ms`. `None`: half
    /// of it.
    pub delay_ms: Option<f64>,
    /// Whether both directions send at once.
    pub duplex: Duplex,
    /// Bit error rate, each direction.
    pub ber: f64,
    /// Packet loss probability, each direction.
    pub loss: f64,
    /// Probability that an IP fragment is lost, each direction; whole packets are not.
    pub fragment_loss: f64,
    /// What a firewall behind the link drops: nothing (empty), fragments, or fragments-with-df.
    pub firewall: String,
    /// When it begins to, since the schedules began.
    pub firewall_from_ms: f64,
    /// The client's router tracks connections: `none` (empty), `drop`, `reset`, `masquerade`,
    /// `liberal`.
    pub tracking: String,
    /// Mean length of a burst of losses in packets (Gilbert-Elliott); 0 or 1: independent losses.
    pub loss_burst: f64,
    /// Gilbert-Elliott: probability per packet of going from good to bad.
    pub ge_p: f64,
    /// Gilbert-Elliott: probability per packet of going from bad to good.
    pub ge_r: f64,
    /// Gilbert-Elliott: loss probability while good.
    pub ge_loss_good: f64,
    /// Gilbert-Elliott: loss probability while bad.
    pub ge_loss_bad: f64,
    /// Probability that the link is away in an interval (link wink).
    pub wink_p: f64,
    /// Length of a wink interval in milliseconds.
    pub wink_i_ms: f64,
    /// At which end of a direction a wink destroys packets.
    pub wink_side: WinkAt,
    /// When the link is there at all, since it began to carry; empty: always.
    pub contacts: Contacts,
    /// The contacts come again after so many milliseconds; `None`: after the last one the link is
    /// gone.
    pub contact_period_ms: Option<f64>,
    /// Between contacts packets wait in the queue instead of being lost.
    pub contact_hold: bool,
    /// Rates of each direction from given times on, since the link began to carry.
    pub rate_changes: RateChanges,
    /// One-way delays of each direction over time, since then.
    pub delay_changes: DelayChanges,
    /// Delay, rate and loss of each direction as they were recorded.
    pub trace: Option<Recording>,
    /// The rate of a direction is asked for.
    pub demand: Option<ByDemand>,
    /// Satellites take turns.
    pub phases: Option<TurnsOf>,
    /// A shared medium turns round in so many milliseconds.
    pub turnaround_ms: f64,
    /// Probability that a packet is overtaken.
    pub reorder: f64,
    /// By how many milliseconds such a packet comes later.
    pub reorder_ms: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet arrives with a bit flipped.
    pub corrupt: f64,
    /// Greatest additional random delay in milliseconds.
    pub jitter_ms: f64,
    /// That delay, or one that falls, overtakes nothing.
    pub jitter_keeps_order: bool,
    /// Packets arrive only at the ends of frames of so many milliseconds; 0: at any time.
    pub jitter_frame_ms: f64,
    /// Queue before the link in bytes, each direction; `None`: one bandwidth-delay product, at
    /// least 64 packets, unless it is said in packets.
    pub queue_bytes: Option<u64>,
    /// The same as what the direction carries in so many milliseconds.
    pub queue_time_ms: Option<f64>,
    /// The same in packets of whatever size.
    pub queue_packets: Option<u64>,
    /// The queue before the link is that of an XCP router.
    pub xcp: bool,
    /// The rate that this router believes the link to have, bit/s of IP packets; `None`: the one
    /// that it has.
    pub xcp_capacity_bps: Option<u64>,
    /// XCP traffic and the rest wait apart before the link, and share it so; `None`: in one queue.
    pub xcp_weights: Option<Parts>,
    /// When this router is away; afterwards it has forgotten all.
    pub xcp_away: Contacts,
    /// What becomes of the words of XCP behind the link: strip, more, less or both.
    pub xcp_harm: String,
    /// Rate of another line behind the link, which knows nothing of XCP, bit/s; 0: there is none.
    pub behind_rate_bps: u64,
    /// What may wait before it, bytes; `None`: a bandwidth-delay product.
    pub behind_queue_bytes: Option<u64>,
    /// What the direction towards the server has of its own, by key.
    pub up: BTreeMap<String, String>,
    /// What the direction towards the client has of its own, by key.
    pub down: BTreeMap<String, String>,
    /// Rate of the Ethernets that a topology has in its terrestrial part, bit/s each way; 0:
    /// unlimited.
    pub eth_rate_bps: u64,
    /// Rates of single ones, by the names of their nodes.
    pub eth_rates_bps: BTreeMap<String, u64>,
    /// MTU of an Ethernet as the router before it has it, bytes; `None`: as of all cables.
    pub eth_mtu: Option<u32>,
    /// That router says nothing of what does not fit.
    pub eth_mtu_untold: bool,
    /// Time from which on the Ethernets have their own MTU; 0: always.
    pub eth_mtu_from_ms: f64,
    /// Queue before it in bytes, each direction.
    pub eth_queue_bytes: u64,
    /// Round-trip time of such an Ethernet in milliseconds: with one it stands for a path over
    /// anybody's network.
    pub eth_rtt_ms: f64,
    /// Each transfer begins so long after the one before, milliseconds.
    pub stagger_ms: f64,
    /// Round-trip times of single Ethernets, by name.
    pub eth_rtts_ms: BTreeMap<String, f64>,
    /// How many gateways run: none, the one at `gateway_at`, or every one of the topology.
    pub gateways: u8,
    /// Where the only gateway stands.
    pub gateway_at: GatewayAt,
    /// Congestion controller of the gateways on the link; empty: the gateway's own choice.
    pub cc: String,
    /// The window of `cc=unfair` in bytes; `None`: as large as the gateways' buffers allow.
    pub cc_window_bytes: Option<u64>,
    /// Whether the gateways are told the link's rate.
    pub rate_known: bool,
    /// Whether they are told the rate of what comes in by it, where that is another one.
    pub rate_in_known: bool,
    /// What single gateways are told in place of the link's rate, by the name of their node.
    pub told_rates: BTreeMap<String, Told>,
    /// The link itself is never faster than that: what hosts alone get of a link as it was
    /// declared.
    pub link_as_told: bool,
    /// Whether the gateways are told the link's round trip.
    pub rtt_known: bool,
    /// In the simulator gateways and routers stand still for so long at a time, for that part of
    /// the time.
    pub stall_ms: f64,
    /// See there.
    pub stall_share: f64,
    /// What gateways do with connections.
    pub mode: Mode,
    /// The same of single ones, by the name of their node.
    pub modes: BTreeMap<String, Mode>,
    /// What sources in custody mode hear of an outage.
    pub custody_notice: Notice,
    /// Which TCP the hosts have.
    pub hosts: Hosts,
    /// Congestion control of the hosts, by route.
    pub host_cc: String,
    /// Congestion control of the second client; empty: as `host_cc`.
    pub client2_cc: String,
    /// Receive window of legacy hosts in bytes (8 to 64 KB).
    pub host_window_bytes: u32,
    /// Receive window of the first client in bytes; `None`: as its TCP has it. Up to 65,535 it is
    /// offered without window scaling.
    pub client_window_bytes: Option<u64>,
    /// What the first client's TCP has not.
    pub client_lacks: Lacks,
    /// What the second client's TCP has not.
    pub client2_lacks: Lacks,
    /// Initial window of the hosts in segments; 0: the kernel's own (10; legacy hosts 1).
    pub iw: u32,
    /// Initial window of the gateways on the link in segments; 0: the gateway's own choice.
    pub link_iw: u32,
    /// Keepalives of simulated hosts: seconds of silence, seconds between questions, and questions;
    /// `None`: their applications have not asked for any.
    pub keepalive: Option<[u64; 3]>,
    /// MTU of all links but the emulated ones, bytes.
    pub mtu: u32,
    /// MTU of the emulated links, bytes.
    pub link_mtu: u32,
    /// Bound of the gateways' buffer pool in bytes; `None`: the gateway's default.
    pub memory_bytes: Option<u64>,
    /// The PEPsal program, for the baseline of this name; empty: there is none.
    pub pepsal: String,
    /// Milliseconds between two rounds of the custody gateway of Reynolds (his 4.3), in the
    /// simulator.
    pub round_ms: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Lines added to the configuration file of each gateway.
    pub gateway_config: String,
    /// How much gateways log: a filter, see `farlink run --help`.
    pub gateway_log: String,
    /// Lines added to each `[[link]]` of it.
    pub link_config: String,
    /// Farlink programs of gateways that are to run another one than this, by the name of their
    /// node.
    pub programs: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_bps: 8_000_000,
            rate_up_bps: None,
            rtt_ms: 500.0,
            delay_ms: None,
            duplex: Duplex::default(),
            ber: 0.0,
            loss: 0.0,
            fragment_loss: 0.0,
            firewall: String::new(),
            firewall_from_ms: 0.0,
            tracking: String::new(),
            loss_burst: 0.0,
            ge_p: 0.0,
            ge_r: 1.0,
            ge_loss_good: 0.0,
            ge_loss_bad: 1.0,
            wink_p: 0.0,
            wink_i_ms: 0.0,
            wink_side: WinkAt::default(),
            contacts: Contacts::default(),
            contact_period_ms: None,
            contact_hold: false,
            rate_changes: RateChanges::default(),
            delay_changes: DelayChanges::default(),
            trace: None,
            demand: None,
            phases: None,
            turnaround_ms: 0.0,
            reorder: 0.0,
            reorder_ms: 10.0,
            duplicate: 0.0,
            corrupt: 0.0,
            jitter_ms: 0.0,
            jitter_keeps_order: true,
            jitter_frame_ms: 0.0,
            queue_bytes: None,
            queue_time_ms: None,
            queue_packets: None,
            xcp: false,
            xcp_capacity_bps: None,
            xcp_weights: None,
            xcp_away: Contacts::default(),
            xcp_harm: String::new(),
            behind_rate_bps: 0,
            behind_queue_bytes: None,
            up: BTreeMap::new(),
            down: BTreeMap::new(),
            // 10 Mbit/s, and the transmit queue of Linux's time for it: 100 packets.
            eth_rate_bps: 10_000_000,
            eth_rates_bps: BTreeMap::new(),
            eth_mtu: None,
            eth_mtu_untold: false,
            eth_mtu_from_ms: 0.0,
            eth_queue_bytes: 150_000,
            eth_rtt_ms: 0.0,
            stagger_ms: 0.0,
            eth_rtts_ms: BTreeMap::new(),
            gateways: 2,
            gateway_at: GatewayAt::Server,
            cc: String::new(),
            cc_window_bytes: None,
            rate_known: true,
            rate_in_known: true,
            told_rates: BTreeMap::new(),
            link_as_told: false,
            rtt_known: true,
            stall_ms: 0.0,
            stall_share: 0.0,
            mode: Mode::Split,
            modes: BTreeMap::new(),
            custody_notice: Notice::Silence,
            hosts: Hosts::Modern,
            host_cc: "cubic".into(),
            client2_cc: String::new(),
            host_window_bytes: 65_535,
            client_window_bytes: None,
            client_lacks: Lacks::default(),
            client2_lacks: Lacks::default(),
            iw: 0,
            keepalive: None,
            link_iw: 0,
            mtu: 1500,
            link_mtu: 1500,
            memory_bytes: None,
            pepsal: String::new(),
            round_ms: 10.0,
            seed: 1,
            gateway_config: String::new(),
            gateway_log: "info".into(),
            link_config: String::new(),
            programs: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Sets one key of the table ([`SETTINGS`]) from text, e.g. `rate` to `8M`. With `up.` or
    /// `down.` before it, it is of one direction.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        for way in [Way::Up, Way::Down] {
            if let Some(own) = key.strip_prefix(way.name()).and_then(|rest| rest.strip_prefix('.')) {
                return self.set_of(way, own, value);
            }
        }
        let setting = Setting::find(key).ok_or_else(|| {
            anyhow!("unknown key `{key}`; known are: {} up.KEY down.KEY", table::keys(|_| true))
        })?;
        setting.set(self, value).map_err(|wrong| anyhow!("`{key}={value}`: {wrong}"))
    }

    /// Sets keys from `k=v` arguments.
    pub fn set_all<'a>(&mut self, pairs: impl IntoIterator<Item = &'a str>) -> Result<()> {
        for pair in pairs {
            let (key, value) = pair.split_once('=').ok_or_else(|| anyhow!("`{pair}`: key=value expected"))?;
            self.set(key.trim(), value.trim())?;
        }
        Ok(())
    }

    /// What the gateway of this name does with connections.
    #[must_use]
    pub fn mode_of(&self, gateway: &str) -> Mode {
        self.modes.get(gateway).copied().unwrap_or(self.mode)
    }

    /// Some gateway promises nothing.
    #[must_use]
    pub fn has_custody(&self) -> bool {
        [self.mode].iter().chain(self.modes.values()).any(|mode| *mode == Mode::Custody)
    }

    /// What the gateway of this name is told of a link that carries so much away from it, and so
    /// much towards it, bit/s: both rates. `None`: none.
    #[must_use]
    pub fn told_bps(&self, gateway: &str, out_bps: u64, in_bps: u64) -> Option<(u64, u64)> {
        let told = self.told_rates.get(gateway).copied();
        let both = match told.unwrap_or(if self.rate_known { Told::Percent(100) } else { Told::Nothing }) {
            Told::Nothing => (0, 0),
            Told::Rate(bps) => (bps, in_bps),
            Told::Percent(of_it) => (out_bps.saturating_mul(of_it.into()) / 100, in_bps),
            Told::Swapped => (in_bps, out_bps),
        };
        Some(both).filter(|(out_bps, _)| *out_bps > 0)
    }

    /// Congestion control of the host of this name.
    #[must_use]
    pub fn cc_of(&self, host: &str) -> &str {
        if host == "client2" && !self.client2_cc.is_empty() { &self.client2_cc } else { &self.host_cc }
    }

    /// What the TCP of the host of this name has not.
    #[must_use]
    pub fn lacks(&self, host: &str) -> Lacks {
        match host {
            "client" => {}
            "client2" => return self.client2_lacks,
            _ => return Lacks::default(),
        }
        let is_small = self.client_window_bytes.is_some_and(|bytes| bytes <= WINDOW_MAX_UNSCALED_BYTES);
        Lacks { scaling: self.client_lacks.scaling || is_small, ..self.client_lacks }
    }

    /// Segments between client and server have timestamps.
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        self.hosts == Hosts::Modern && !self.client_lacks.timestamps
    }

    /// Rate towards the server in bit/s; 0 is unlimited.
    #[must_use]
    pub fn up_bps(&self) -> u64 {
        self.rate_up_bps.unwrap_or(self.rate_bps)
    }

    /// Rate of the Ethernet of this name, bit/s each way; 0: unlimited.
    #[must_use]
    pub fn ethernet_bps(&self, name: &str) -> u64 {
        self.eth_rates_bps.get(name).copied().unwrap_or(self.eth_rate_bps)
    }

    /// Round-trip time of the Ethernet of this name, milliseconds.
    #[must_use]
    pub fn ethernet_rtt_ms(&self, name: &str) -> f64 {
        self.eth_rtts_ms.get(name).copied().unwrap_or(self.eth_rtt_ms)
    }

    /// The Ethernet of this name in the terrestrial part as a link of its own: it loses and spoils
    /// nothing by itself. A little jitter, as hosts have it, keeps many senders from marching in
    /// step (Floyd and Jacobson 1991).
    #[must_use]
    pub fn ethernet(&self, name: &str) -> Self {
        Self {
            rate_bps: self.ethernet_bps(name),
            queue_bytes: Some(self.eth_queue_bytes),
            rtt_ms: self.ethernet_rtt_ms(name),
            jitter_ms: ETHERNET_JITTER_MS,
            mtu: self.mtu,
            link_mtu: self.mtu,
            seed: self.seed ^ 0xe7,
            ..Self::default()
        }
    }

    /// Every link takes what IPv6 needs.
    #[must_use]
    pub fn has_v6(&self) -> bool {
        self.mtu.min(self.link_mtu).min(self.eth_mtu.unwrap_or(self.mtu)) >= MTU_MIN_V6_BYTES
    }

    /// Queue before the link for a direction of this rate, in bytes.
    #[must_use]
    pub fn queue_for(&self, rate_bps: u64) -> u64 {
        let carried = |ms: f64| (rate_bps as f64 / 8.0 * ms / 1e3) as u64;
        let mtu = u64::from(self.link_mtu);
        let in_time = self.queue_time_ms.map(|ms| carried(ms).max(mtu));
        self.queue_bytes.or(in_time).unwrap_or_else(|| carried(self.rtt_ms).max(64 * mtu))
    }
}

/// The settings that these lines make, for tests.
#[cfg(test)]
pub(crate) fn parsed(pairs: &[&str]) -> Settings {
    let mut settings = Settings::default();
    settings.set_all(pairs.iter().copied()).unwrap();
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        let mut s = Settings::default();
        s.set_all(["rate=8M", "rate_up=32k", "rtt=0.5s", "wink_i=40", "queue=500kB", "hosts=legacy"])
            .unwrap();
        assert_eq!((s.rate_bps, s.rate_up_bps, s.rtt_ms), (8_000_000, Some(32_000), 500.0));
        assert_eq!((s.wink_i_ms, s.queue_bytes, s.hosts), (40.0, Some(500_000), Hosts::Legacy));
        s.set("eth_rates", "eth1=20M eth2=1M").unwrap();
        assert_eq!(["eth1", "eth2", "eth3"].map(|e| s.ethernet_bps(e)), [20_000_000, 1_000_000, 10_000_000]);
    }

    #[test]
    fn quantities_are_read_as_people_type_them() {
        for rate in ["8M", "8m", "8mbit", "8 Mbit/s", "8000k", "8e6", "8000000"] {
            let mut s = Settings { rate_bps: 0, ..Settings::default() };
            s.set("rate", rate).unwrap();
            assert_eq!(s.rate_bps, 8_000_000, "{rate}");
        }
        let mut s = Settings::default();
        for (size, bytes) in
            [("96 kB", 96_000), ("64 KiB", 65_536), ("64k", 65_536), ("2M", 2 << 20), ("7", 7)]
        {
            s.set("queue", size).unwrap();
            assert_eq!(s.queue_bytes, Some(bytes), "{size}");
        }
        for (time, ms) in
            [("500ms", 500.0), ("0.5 s", 500.0), ("20", 20.0), ("0.35", 0.35), ("1.5us", 0.0015)]
        {
            s.set("rtt", time).unwrap();
            assert_eq!(s.rtt_ms, ms, "{time}");
        }
    }

    #[test]
    fn the_names_of_the_report_are_taken_back() {
        let mut s = Settings::default();
        s.set_all(["rate_bps=1e6", "rtt_ms=20"]).unwrap();
        assert_eq!((s.rate_bps, s.up_bps(), s.rtt_ms), (1_000_000, 1_000_000, 20.0));
    }

    #[test]
    fn errors_say_what_is_allowed() {
        let mut s = Settings::default();
        for (pair, hint) in [
            ("rate=fast", "bit/s"),
            ("rate=8 parsec", "unknown unit `parsec`"),
            ("queue=8 Mbit", "64 KiB"),
            ("mode=both", "split, custody or forward expected"),
            ("modes=custody", "`custody` has no name; modes by gateway"),
            ("modes=gw1=both", "`both`: split, custody or forward expected"),
            ("loss=1.5", "probability"),
            ("gateways=3", "0, 1 or 2"),
            ("rat=8M", "known are"),
            ("rate", "key=value"),
            ("rtt=-5", "time"),
            ("host_window=100000", "65535"),
            ("link_mtu=551", "552 to 65535"),
            ("duplex=both", "full or half"),
            ("eth_rates=20M", "`20M` has no name; rates by name"),
            ("eth_rates=eth1=20parsec", "unknown unit `parsec`; rates by name"),
            ("told_rates=32k", "`32k` names no gateway; rates by gateway"),
            ("told_rates=gw1=much", "rates by gateway such as"),
            ("told_rates=gw1=0%", "`0%` is no part of a rate"),
            ("cc=bbr9", "known are reno, cubic"),
        ] {
            let text = s.set_all([pair]).unwrap_err().to_string();
            assert!(text.contains(hint), "{pair}: {text}");
        }
    }

    #[test]
    fn the_default_queue_is_one_bandwidth_delay_product() {
        let s = Settings::default();
        assert_eq!(s.queue_for(s.rate_bps), 500_000);
        assert_eq!(s.queue_for(32_000), 64 * 1500);
    }
}
