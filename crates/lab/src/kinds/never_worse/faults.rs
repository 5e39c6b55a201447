//! What goes wrong, how it is mended, and which words it has to be called by.

use anyhow::{Context, Result, bail};

use crate::build::Lab;
use crate::netns::Ns;
use crate::sh;

/// The old iptables, for both families.
pub(super) const LEGACY: &str = "iptables-legacy ip6tables-legacy";

/// How the machine's own rules treat forwarded packets.
const INVALID: &str = "ct state invalid drop";

/// See the module.
pub(super) struct Fault {
    case: String,
    /// It stands before the gateway starts.
    is_first: bool,
    what: What,
    words: Vec<&'static str>,
    log_words: Vec<&'static str>,
}

enum What {
    /// nftables tables, of these names.
    Rules { script: String, tables: Vec<&'static str> },
    /// A shell command, and the one that mends it (none: nothing is left to mend).
    Command { fault: String, mend: String },
    /// SIGSTOP.
    Freeze,
}

/// What the log says before a packet is lost, where a filter stands before the gateway starts.
const FORESEEN: &str = "diverted connections would be cut off";

impl Fault {
    /// The fault of this name, for the interfaces of a node.
    pub(super) fn named(case: &str, lab: &Lab, node: &str) -> Result<Self> {
        let interfaces: Vec<_> =
            lab.topology.interfaces(lab.topology.index(node)?).into_iter().map(|i| i.name).collect();
        let [a, b] = &interfaces[..] else { bail!("a router with two interfaces is wanted") };
        let (base, is_first) = case.strip_prefix("start-").map_or((case, false), |base| (base, true));
        let (base, drops_invalid) = base.strip_suffix("-invalid").map_or((base, false), |base| (base, true));
        let invalid = if drops_invalid { INVALID } else { "" };
        let between =
            format!("iifname \"{a}\" oifname \"{b}\" accept\niifname \"{b}\" oifname \"{a}\" accept");
        let command = |fault: &str, mend: &str| What::Command { fault: fault.into(), mend: mend.into() };
        let own = |rules: String| What::Rules {
            script: format!(
                "table inet fw {{\nchain onward {{\ntype filter hook forward priority 0; policy accept;\n{invalid}\n{rules}\ndrop\n}}\n}}\n"
            ),
            tables: vec!["inet fw"],
        };
        let known = "ct state established,related accept";
        let (what, words, mut log_words): (What, Vec<&str>, Vec<&str>) = match base {
            // What `iptables -P FORWARD DROP` with two accepts makes, and ip6tables.
            "iptables" => {
                let of = |family: &str| {
                    format!(
                        "table {family} filter {{\nchain FORWARD {{\ntype filter hook forward priority 0; policy drop;\n{invalid}\n{between}\n}}\n}}\n"
                    )
                };
                let what =
                    What::Rules { script: of("ip") + &of("ip6"), tables: vec!["ip filter", "ip6 filter"] };
                (what, vec!["tables -I FORWARD", "filter FORWARD"], vec!["takes the ordinary way"])
            }
            // The same by the old iptables, whose rules nftables does not show.
            "legacy" => {
                let both = |line: &str| format!("for t in {LEGACY}; do {line}; done");
                let accept = |i: &str, o: &str| format!("$t -w -A FORWARD -i {i} -o {o} -j ACCEPT");
                let fault = both(&format!("$t -w -P FORWARD DROP; {}; {}", accept(a, b), accept(b, a)));
                (
                    command(&fault, &both("$t -w -P FORWARD ACCEPT; $t -w -F FORWARD")),
                    vec!["tables rules)", "tables -I FORWARD"],
                    vec!["takes the ordinary way"],
                )
            }
            "last-drop" => (
                own(format!("{known}\n{between}")),
                vec!["chain inet fw onward", "nft insert rule inet fw onward"],
                vec!["takes the ordinary way"],
            ),
            "half" => (
                own(format!("{known}\noifname \"farlink*\" accept\n{between}")),
                vec!["chain inet fw onward", "comes out of farlink"],
                vec!["takes the ordinary way"],
            ),
            "advised" => (
                own(format!("oifname \"farlink*\" accept\niifname \"farlink*\" accept\n{known}\n{between}")),
                vec!["nf_conntrack_tcp_be_liberal=1", "inet fw onward"],
                vec!["without being split"],
            ),
            "route" => (
                // The way on is known to those only who come in by the real interfaces.
                command(
                    &format!(
                        "for f in -4 -6; do ip $f route show table main | grep -v fe80 | while read r; do ip $f route add $r table 77; done; \
                         for i in {a} {b}; do ip $f rule add pref 900 iif $i lookup 77; done; \
                         ip $f rule add pref 32000 iif farlink0 blackhole; ip $f rule add pref 32001 iif farlink1 blackhole; done"
                    ),
                    "for f in -4 -6; do ip $f rule del pref 32000; ip $f rule del pref 32001; done",
                ),
                vec!["a policy-routing rule names"],
                vec!["takes the ordinary way"],
            ),
            "flush" => (command("nft flush ruleset", ""), Vec::new(), Vec::new()),
            "rules" => (
                command("for f in -4 -6; do while ip $f rule del pref 500 2>/dev/null; do :; done; done", ""),
                vec!["policy-routing rule for mark"],
                vec!["diversion is put back"],
            ),
            "device" => (
                command("ip link set farlink0 down; ip link set farlink1 down", ""),
                vec!["the device farlink0 was taken down"],
                vec!["diversion is put back"],
            ),
            "rp-filter" => (
                command(
                    "sysctl -qw net.ipv4.conf.all.rp_filter=1",
                    "sysctl -qw net.ipv4.conf.all.rp_filter=0",
                ),
                vec!["net.ipv4.conf.all.rp_filter=1"],
                vec!["net.ipv4.conf.all.rp_filter=1"],
            ),
            "rp-filter-everywhere" => (
                command("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 > $f; done", ""),
                vec!["rp_filter=1"],
                vec!["rp_filter=1"],
            ),
            "stop" => (What::Freeze, vec!["has not ended in order"], vec!["was stopped (SIGSTOP"]),
            other => bail!("unknown case `{other}`"),
        };
        if is_first && matches!(what, What::Rules { .. }) {
            log_words.push(FORESEEN);
        }
        Ok(Self { case: case.to_owned(), is_first, what, words, log_words })
    }

    /// It stands before the gateway starts.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Every packet still gets through, but acknowledgements are lost.
    pub(super) fn loses_acknowledgements(&self) -> bool {
        self.case == "advised-invalid"
    }

    /// The gateway itself stands still.
    pub(super) fn freezes(&self) -> bool {
        matches!(self.what, What::Freeze)
    }

    /// It changes nothing for packets that are diverted: the nftables table is not for others to
    /// flush, and a bump meets no filter and no rule.
    pub(super) fn touches_nothing(&self, has_bumps: bool) -> bool {
        self.case == "flush" || has_bumps && !self.freezes() && self.case != "device"
    }

    /// What `farlink check` must say.
    pub(super) fn words(&self) -> &[&'static str] {
        &self.words
    }

    /// What the log must say.
    pub(super) fn log_words(&self) -> &[&'static str] {
        &self.log_words
    }

    pub(super) fn apply(&self, lab: &mut Lab, node: &str) -> Result<()> {
        let ns = lab.ns(node);
        match &self.what {
            What::Rules { script, .. } => {
                shell(&ns, &format!("nft -f - <<'END'\n{script}\nEND")).context("setting up the filter")
            }
            What::Command { fault, .. } => shell(&ns, fault),
            What::Freeze => {
                anyhow::ensure!(lab.gateway(node)?.process.signal(libc::SIGSTOP), "it is gone already");
                Ok(())
            }
        }
    }

    pub(super) fn mend(&self, lab: &mut Lab, node: &str) -> Result<()> {
        let ns = lab.ns(node);
        match &self.what {
            What::Rules { tables, .. } => {
                tables.iter().try_for_each(|table| shell(&ns, &format!("nft delete table {table}")))
            }
            What::Command { mend, .. } => shell(&ns, mend),
            What::Freeze => lab.restart_gateway(node),
        }
    }
}

fn shell(ns: &Ns, line: &str) -> Result<()> {
    let mut command = ns.command("sh")?;
    command.args(["-c", line]);
    sh::output(command).map(drop)
}
