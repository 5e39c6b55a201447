//! The file, the example and the manual agree with each other; mistakes are named with their place.

use std::collections::BTreeMap;
use std::time::Duration;

use farlink_gateway::config::{self as engine, InitialWindow, OnLongPaths};
use farlink_gateway::{Config, cc};
use farlink_linux::divert::{Method, Selection};
use farlink_linux::driver::By;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::*;

const EXAMPLE: &str = include_str!("../../../../packaging/farlink.toml");
const MANUAL: &str = include_str!("../../../../docs/configuration.md");

/// Learns the keys that a struct reads, by offering itself as its deserializer.
struct Keys<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Keys<'_> {
    type Error = de::value::Error;
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(de::Error::custom("only asking"))
    }
    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("not a struct"))
    }
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
        tuple tuple_struct map enum identifier ignored_any
    }
}

fn keys_of<'de, T: Deserialize<'de>>() -> Vec<&'static str> {
    let mut keys: &'static [&'static str] = &[];
    assert!(T::deserialize(Keys(&mut keys)).is_err() && !keys.is_empty());
    keys.to_vec()
}

/// Headings of the manual and, under each, the keys that the file reads.
fn tables() -> BTreeMap<&'static str, Vec<&'static str>> {
    let inner = [
        ("`[[interface]]`", keys_of::<file::Interface>()),
        ("`[[link]]`", keys_of::<file::Link>()),
        ("`[[rule]]`", keys_of::<file::Rule>()),
        ("`[dscp]`", keys_of::<file::DscpTable>()),
        ("`[ordinary]`", keys_of::<file::Ordinary>()),
        ("`[limits]`", keys_of::<file::Limits>()),
        ("`[timers]`", keys_of::<file::Timers>()),
        ("`[flow_control]`", keys_of::<file::FlowControl>()),
        ("`[divert]`", keys_of::<file::Divert>()),
        ("`[admin]`", keys_of::<file::Admin>()),
    ];
    let is_table = |key: &str| inner.iter().any(|(heading, _)| heading.trim_matches(['`', '[', ']']) == key);
    let top = keys_of::<File>();
    assert_eq!(top.iter().filter(|key| is_table(key)).count(), inner.len(), "a table is missing above");
    let plain = top.into_iter().filter(|key| !is_table(key)).collect();
    inner.into_iter().chain([("Top level", plain)]).collect()
}

/// The keys that the manual explains, by heading, each with the default that it states.
fn manual() -> BTreeMap<&'static str, BTreeMap<&'static str, Option<&'static str>>> {
    let mut explained: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let (mut table, mut key) = ("", "");
    for line in MANUAL.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            table = heading;
        } else if let Some(heading) = line.strip_prefix("### ") {
            key = heading.trim_matches('`');
            explained.entry(table).or_default().insert(key, None);
        } else if let Some(default) = line.strip_prefix("Default: `") {
            explained.entry(table).or_default().insert(key, Some(default.trim_end_matches('`')));
        }
    }
    explained
}

/// The example with every commented key switched on.
fn example_switched_on() -> String {
    let on = EXAMPLE.lines().filter(|line| !line.starts_with("#rate_bps"));
    on.map(|line| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => format!("{key}\n"),
        _ => format!("{line}\n"),
    })
    .collect()
}

pub(super) fn settings(text: &str) -> Result<Settings, ConfigError> {
    settings_with(text, &Quick::default())
}

fn settings_with(text: &str, quick: &Quick) -> Result<Settings, ConfigError> {
    let source = Source { file: "farlink.toml", text };
    let file = parse(source)?;
    build(&file, source, quick)
}

pub(super) fn refused(text: &str) -> String {
    settings(text).expect_err(text).to_string()
}

#[test]
fn every_key_is_in_the_manual_and_nothing_else_is() {
    let manual = manual();
    for (table, keys) in tables() {
        let explained: Vec<_> = manual.get(table).into_iter().flat_map(|t| t.keys().copied()).collect();
        for key in &keys {
            assert!(explained.contains(key), "docs/configuration.md does not explain `{key}` of {table}");
        }
        for key in explained {
            assert!(
                keys.contains(&key),
                "docs/configuration.md explains `{key}` of {table}, which does not exist"
            );
        }
    }
}

#[test]
fn every_key_is_in_the_example() {
    let on = example_switched_on();
    let mut table = "Top level".to_owned();
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in on
        .lines()
        .chain(EXAMPLE.lines().filter_map(|l| l.strip_prefix('#').filter(|l| l.starts_with("rate_bps"))))
    {
        if line.starts_with('[') {
            table = format!("`{line}`");
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            shown
                .entry(if key == "rate_bps" { "`[[link]]`".to_owned() } else { table.clone() })
                .or_default()
                .push(key.to_owned());
        }
    }
    for (table, keys) in tables() {
        for key in keys {
            let there = shown.get(table).is_some_and(|t| t.iter().any(|k| k == key));
            assert!(there, "packaging/farlink.toml does not show `{key}` of {table}");
        }
    }
}

#[test]
fn the_defaults_that_manual_and_example_state_are_the_real_ones() {
    let stated = settings(&example_switched_on()).unwrap();
    let real = settings("").unwrap();
    let view = |s: &Settings| {
        let g = &s.gateway;
        let engine = (&g.limits, &g.timers, &g.ordinary, g.pinned, g.flow_control, g.default_action, g.dscps);
        // A link of the example has XCP's own header, which no link has by default. And where there
        // is no link, none has a rate that nobody knows.
        let mut divert = s.divert.clone();
        divert.selections.truncate(Selection::tcp().len());
        divert.whole_when_known.clear();
        format!(
            "{engine:?} {:?} {:?} {:?} {:?} {}",
            divert, s.drain_timeout, s.socket, s.journal, s.queue_packets
        )
    };
    assert_eq!(view(&stated), view(&real));
    for (table, keys) in manual() {
        for (key, default) in keys {
            if let Some(default) = default {
                let line = format!("#{key} = {default}");
                assert!(EXAMPLE.lines().any(|l| l == line), "the example has no line `{line}` ({table})");
            }
        }
    }
}

#[test]
fn the_example_as_shipped_and_the_manuals_sample_are_accepted() {
    settings(EXAMPLE).unwrap();
    let sample = MANUAL.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let s = settings(sample).unwrap();
    assert_eq!(s.gateway.interfaces.len(), 2);
    assert_eq!(s.gateway.rules[0].ports, [(22, 22), (23, 23)]);
}

#[test]
fn links_and_interfaces_become_the_gateways() {
    let s = settings(
        "[[link]]\ninterface='sat0'\nrate='8 Mbit/s'\nrtt_ms=500\n[[interface]]\nname='lan7'\ndomain=3",
    )
    .unwrap();
    let names: Vec<_> = s.gateway.interfaces.iter().map(|i| (i.name.as_str(), i.id.0, i.domain)).collect();
    assert_eq!(names, [("lan7", 0, 3), ("sat0", 1, 0)]);
    let link = s.gateway.interfaces[1].link.as_ref().unwrap();
    assert_eq!(
        (link.rate_bps, link.rtt, link.leg.cc),
        (Some(8_000_000), Some(Duration::from_millis(500)), cc::Kind::FixedRate)
    );
    for unknown in ["", "rate='auto'"] {
        let unknown = settings(&format!("[[link]]\ninterface='sat0'\n{unknown}")).unwrap();
        let link = unknown.gateway.interfaces[0].link.as_ref().unwrap();
        assert_eq!((link.rate_bps, link.leg.cc, link.estimate_rate), (None, cc::Kind::CubicBbr, true));
    }
    // `auto` is what stands for the absence of the key, as in `farlink set`.
    for more in ["", "rate='8 Mbit/s'\n"] {
        let absent = settings(&format!("[[link]]\ninterface='sat0'\n{more}")).unwrap();
        let auto = settings(&format!("[[link]]\ninterface='sat0'\n{more}cc='auto'")).unwrap();
        let link = |s: &Settings| s.gateway.interfaces[0].link.clone().map(|l| (l.leg.cc, l.estimate_rate));
        assert_eq!(link(&auto), link(&absent));
    }
    let wrong = refused("[[link]]\ninterface='sat0'\nrate='auto'\ncc='cubic'");
    assert!(wrong.contains("3:6") && wrong.contains("without `cc`"), "{wrong}");
    let own = settings("[[link]]\ninterface='sat0'\ncc='cubic'").unwrap();
    let link = own.gateway.interfaces[0].link.as_ref().unwrap();
    assert_eq!((link.rate_bps, link.leg.cc, link.estimate_rate), (None, cc::Kind::Cubic, false));
}

#[test]
fn everything_that_leaves_by_a_link_is_diverted_where_that_is_wanted() {
    let of = |keys: &str| settings(&format!("[[link]]\ninterface='sat0'\n{keys}")).unwrap().divert;
    let later = |keys: &str| of(keys).whole_when_known;
    assert!(!of("").takes_everything() && !of("traffic='tcp'").takes_everything());
    assert_eq!((later(""), later("cc='bbr'")), (vec!["sat0".to_owned()], vec!["sat0".to_owned()]));
    assert_eq!((later("traffic='tcp'"), later("rate='8M'"), later("rate='auto'")), Default::default());
    // A rate is that of the link, and not of TCP alone.
    assert_eq!(of("rate='8M'"), of("rate='8M'\ntraffic='everything'"));
    assert!(of("rate='auto'").takes_everything(), "it is found out, and that is the link's, too");
    assert!(of("rate_bps=8000000").takes_everything() && of("rate_max='8M'").takes_everything());
    assert!(!of("rate='8M'\ntraffic='tcp'").takes_everything() && !of("rtt_ms=500").takes_everything());
    assert_eq!(of("traffic='everything'").whole_interfaces().collect::<Vec<_>>(), ["sat0"]);
    let wrong = refused("[[link]]\ninterface='sat0'\ntraffic='udp'");
    assert!(wrong.contains("3:9") && wrong.contains("everything"), "{wrong}");
}

#[test]
fn a_dscp_has_the_class_of_the_list_that_it_is_in() {
    let of = |text: &str| settings(text).unwrap().gateway.dscps;
    assert_eq!(of(""), engine::Config::default().dscps);
    let own = of("[dscp]\ninteractive=['ef',50]\n");
    let (ef, cs6, le) = (46, 48, 1);
    assert_eq!([ef, 50, cs6, le].map(|d| own.of(d)), {
        use engine::Class::{Background, Bulk, Interactive};
        [Interactive, Interactive, Bulk, Background]
    });
    let none = of("[dscp]\ninteractive=[]\nbackground=[]\n");
    assert!((0..64).all(|d| none.of(d) == engine::Class::Bulk));
    let wrong = refused("[dscp]\nbackground=['le', 'ef']\n");
    assert!(wrong.contains("2:19") && wrong.contains("46 is interactive already"), "{wrong}");
    assert!(refused("[dscp]\nbulk=['le']\n").contains("interactive"));
}

#[test]
fn a_bump_is_chosen_by_command_line_file_or_surroundings_in_this_order() {
    let of = |text: &str, quick: &Quick| {
        let source = Source { file: "f", text };
        let settings = build(&parse(source).unwrap(), source, quick).unwrap();
        (settings.divert.method, settings.divert.attach)
    };
    let quick = |method, method_default| Quick { method, method_default, ..Quick::default() };
    let (auto, bump) = (Some(Method::Auto), Some(Method::Bump));
    let of_file = "[divert]\nmethod='policy'";
    assert_eq!(of("", &quick(None, None)).0, Method::Auto);
    assert_eq!(of("", &quick(None, bump)).0, Method::Bump);
    assert_eq!(of(of_file, &quick(None, bump)).0, Method::Policy);
    assert_eq!(of(of_file, &quick(auto, bump)).0, Method::Auto);
    let named = "[[interface]]\nname='a'\nattach=true\n[[interface]]\nname='b'\nattach=false\n[[link]]\ninterface='c'";
    assert_eq!(of(named, &quick(None, None)).1, ["a"]);
}

#[test]
fn windows_are_waited_for_where_connection_tracking_stands_before_the_link() {
    let rule = "[[rule]]\nname='r'\nports=[1]\naction='split'\nsend_ahead=";
    let of = |first: &str, attached: &str, ahead: &str| {
        let text =
            format!("{first}\n[[interface]]\nname='lan0'\n[[link]]\ninterface='sat0'\n{rule}'{ahead}'");
        let settings =
            settings(&text.replace(&format!("'{attached}'"), &format!("'{attached}'\nattach=true")));
        let gateway = settings.unwrap().gateway;
        (gateway.send_ahead, gateway.rules[0].send_ahead)
    };
    let (auto, on, off) = (engine::SendAhead::Auto, engine::SendAhead::On, engine::SendAhead::Off);
    assert_eq!(of("", "nobody", "auto"), (auto, Some(auto)));
    assert_eq!(of("send_ahead='auto'", "nobody", "off"), (auto, Some(off)));
    assert_eq!(of("send_ahead='auto'", "lan0", "off"), (off, Some(off)));
    assert_eq!(of("", "lan0", "auto"), (off, Some(off)));
    assert_eq!(of("", "lan0", "on"), (off, Some(on)), "who says so has it");
    assert_eq!(of("send_ahead='on'", "lan0", "off"), (on, Some(off)));
}

#[test]
fn the_header_of_xcp_has_a_protocol_number_that_is_diverted() {
    let of = |keys: &str| {
        let s = settings(&format!("[[link]]\ninterface='sat0'\n{keys}")).unwrap();
        (s.gateway.interfaces[0].link.as_ref().unwrap().xcp_shim, s.divert.shims(), s.divert.selections.len())
    };
    assert_eq!(of(""), (None, vec![], 2));
    assert_eq!(of("xcp_form='option'"), (None, vec![], 2));
    assert_eq!(of("xcp_form='shim'"), (Some(254), vec![254], 4));
    assert_eq!(of("xcp_form='shim'\nxcp_protocol=200"), (Some(200), vec![200], 4));
    for (keys, said) in [
        ("xcp_protocol=254", ["3:14", "`xcp_form = \"shim\"`"]),
        ("xcp_form='shim'\nxcp_protocol=6", ["4:14", "6 is in use for another protocol"]),
        ("xcp_form='shim'\nxcp_protocol=256", ["4:14", "a whole number from 0 to 255"]),
        ("xcp_form='header'", ["3:10", "shim"]),
    ] {
        let wrong = refused(&format!("[[link]]\ninterface='sat0'\n{keys}"));
        assert!(said.iter().all(|part| wrong.contains(part)), "{wrong}");
    }
}

#[test]
fn gateways_are_named_by_eight_hexadecimal_digits() {
    let id = |text: &str| settings(text).unwrap().gateway.identity;
    assert_eq!((id("gateway_id='5eed0001'"), id("gateway_id='5EED0001'")), (0x5eed_0001, 0x5eed_0001));
    assert_eq!((id("gateway_id='00000001'"), id("gateway_id='ffffffff'"), id("")), (1, u32::MAX, 0));
    let peers = |list: &str| {
        let s = settings(&format!("gateway_id='5eed0001'\n[[link]]\ninterface='sat0'\nxcp_peers={list}"))
            .unwrap();
        s.gateway.interfaces[0].link.as_ref().unwrap().explicit.peers.clone()
    };
    assert!(peers("[]").is_empty());
    assert_eq!(peers("['0000002b', \"5eed0002\"]"), [0x2b, 0x5eed_0002]);
    for (value, wrong) in [
        ("'00000000'", "`00000000` is not how a gateway calls itself"),
        ("'5eed001'", "`5eed001` is not how a gateway calls itself"),
        ("'5eed00001'", "`5eed00001` is not how a gateway calls itself"),
        ("'0x5eed01'", "`0x5eed01` is not how a gateway calls itself"),
        ("'+5eed001'", "`+5eed001` is not how a gateway calls itself"),
        ("'5eed 001'", "`5eed 001` is not how a gateway calls itself"),
        ("'hub-one-'", "`hub-one-` is not how a gateway calls itself"),
        ("''", "`` is not how a gateway calls itself"),
        ("12345678", "the number 12345678 is no text"),
    ] {
        let allowed = "allowed: eight hexadecimal digits as text, not all of them 0, such as \"5eed0001\"";
        let said = refused(&format!("gateway_id={value}"));
        assert!(said.contains("1:12") && said.contains(wrong) && said.contains(allowed), "{said}");
        let said = refused(&format!("[[link]]\ninterface='sat0'\nxcp_peers=['5eed0001', {value}]"));
        assert!(said.contains("3:") && said.contains(wrong) && said.contains(allowed), "{said}");
    }
    for (text, place) in [
        ("[[link]]\ninterface='sat0'\nxcp_peers='5eed0001'", "3:11"),
        ("gateway_id=['5eed0001']", "1:12"),
        ("gateway_id=true", "1:12"),
    ] {
        let said = refused(text);
        assert!(said.contains(place), "{said}");
    }
}

#[test]
fn initial_windows_are_one_value_two_values_or_automatic() {
    let of = |keys: &str| {
        let s = settings(&format!("[[link]]\ninterface='sat0'\n{keys}")).unwrap();
        s.gateway.interfaces[0].link.as_ref().unwrap().leg.initial_window
    };
    assert_eq!(of(""), InitialWindow::AUTO);
    assert_eq!(of("initial_window_segments='auto'"), InitialWindow::AUTO);
    assert_eq!(of("initial_window_segments=4"), InitialWindow::fixed(4));
    assert_eq!(
        of("initial_window_segments=1\nlong_path_initial_window_segments=16"),
        InitialWindow { segments: 1, on_long_paths: OnLongPaths::Segments(16) }
    );
    assert_eq!(
        of("initial_window_segments=1\nlong_path_initial_window_segments='auto'"),
        InitialWindow { segments: 1, on_long_paths: OnLongPaths::Share }
    );
    let ordinary = settings("[ordinary]\ninitial_window_segments='auto'").unwrap();
    assert_eq!(ordinary.gateway.ordinary.initial_window, InitialWindow::AUTO);
}

/// What is diverted: names, and in words how others are found.
fn diverted(s: &Settings) -> (Vec<String>, String) {
    let names = s.gateway.interfaces.iter().map(|i| i.name.clone()).collect();
    let finders = s.finders.iter().map(|f| {
        let by = match &f.by {
            By::Pattern(pattern) => pattern.clone(),
            By::Group(group) => format!("group {group}"),
            By::Forwarding => "all".to_owned(),
        };
        let domain = if f.domain > 0 { format!(" in {}", f.domain) } else { String::new() };
        format!("{}{by}{domain}{}", if f.divert { "" } else { "not " }, if f.attach { " bumped" } else { "" })
    });
    (names, finders.collect::<Vec<_>>().join(", "))
}

#[test]
fn interfaces_are_found_only_when_none_is_named() {
    let of = |text: &str| diverted(&settings(text).unwrap());
    let link = "[[link]]\ninterface='sat0'\n";
    for (text, names, finders) in [
        (link, &["sat0"][..], "all"),
        ("[[interface]]\nname='lan0'\ndivert=false\n[[link]]\ninterface='sat0'", &["sat0"], "not lan0, all"),
        ("[[interface]]\nname='x'\n[[link]]\ninterface='sat0'", &["x", "sat0"], ""),
        ("[[interface]]\nname='*'", &[], "all"),
        ("", &[], "all"),
        (
            "[[interface]]\nname='wan*'\ndomain=3\n[[interface]]\ngroup=5\nattach=true\n\
             [[interface]]\nname='wan9'\ndivert=false\n[[interface]]\nname='lan0'",
            &["lan0"],
            "not wan9, wan* in 3, group 5 bumped",
        ),
        ("[[interface]]\ngroup='default'\n[[interface]]\nname='*'\ndivert=false", &[], "group 0, not all"),
    ] {
        if text.contains("'default'") && !std::path::Path::new("/etc/iproute2/group").exists() {
            continue;
        }
        assert_eq!(of(text), (names.iter().map(|n| (*n).to_owned()).collect(), finders.to_owned()), "{text}");
    }
    let quick = Quick { links: vec!["sat0".into()], interfaces: vec!["sat0".into()], ..Quick::default() };
    assert_eq!(diverted(&settings_with("", &quick).unwrap()), (vec!["sat0".into()], String::new()));
    let quick = Quick { interfaces: vec!["wan*".into(), "lan0".into()], ..Quick::default() };
    assert_eq!(diverted(&settings_with("", &quick).unwrap()), (vec!["lan0".into()], "wan*".to_owned()));
    let quick = Quick { links: vec!["sat0".into()], rate: "1 Mbit/s".parse().ok(), ..Quick::default() };
    let s = settings_with("", &quick).unwrap();
    assert_eq!(s.gateway.interfaces[0].link.as_ref().unwrap().rate_bps, Some(1_000_000));
    assert_eq!(diverted(&s), (vec!["sat0".into()], "all".to_owned()));
    assert!(s.divert.takes_everything(), "as with a rate in the file");
    let quick = Quick { rate_in: "32k".parse().ok(), ..quick };
    let s = settings_with("", &quick).unwrap();
    assert_eq!(s.gateway.interfaces[0].link.as_ref().unwrap().rate_in_bps, Some(32_000));
    let quick = Quick { links: vec!["sat0".into()], ..Quick::default() };
    let divert = settings_with("", &quick).unwrap().divert;
    assert_eq!((divert.takes_everything(), &divert.whole_when_known[..]), (false, &["sat0".to_owned()][..]));
}

#[test]
fn rules_name_interfaces_that_may_come_later() {
    let rule = "[[rule]]\nname='r'\naction='pass'\ninterfaces=";
    let ids = |text: &str| {
        let s = settings(text).unwrap();
        let ids: Vec<_> = s.gateway.rules[0].interfaces.iter().map(|id| id.0).collect();
        (ids, s.selectors)
    };
    let named = "[[interface]]\nname='lan0'\n[[interface]]\nname='wan*'\n";
    let selectors = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        ids(&format!("{named}{rule}['wan*','lan0','wan7','wan*']")),
        (vec![0x8000, 0, 0x8001, 0x8000], selectors(&["wan*", "wan7"]))
    );
    assert_eq!(ids(&format!("{rule}['ppp?']")), (vec![0x8000], selectors(&["ppp?"])));
    let wrong = refused(&format!("{named}{rule}['ppp0']"));
    assert!(wrong.contains("`ppp0` is not diverted; allowed: lan0"), "{wrong}");
}

#[test]
fn rules_become_the_engines() {
    let s = settings(
        "[[interface]]\nname='lan0'\n[[rule]]\nname='a'\ninterfaces=['lan0']\nprotocols=['tcp',17]\nsources=['10.0.0.0/8']\nports=[80,'6000-6010']\n\
         dscp=['ef',3]\naction='split'\nconnections_max=9\nover_limit='refuse'\nclass='background'\n\
         [[rule]]\nname='b'\nprotocols=['udp']\naction='pass'",
    )
    .unwrap();
    let r = &s.gateway.rules[0];
    assert_eq!(
        (r.interfaces.len(), r.sources[0].1, r.ports[1], &r.dscps[..]),
        (1, 8, (6000, 6010), &[46, 3][..])
    );
    assert_eq!(
        (r.connections_max, r.over_limit, r.class),
        (Some(9), engine::Action::Refuse, Some(engine::Class::Background))
    );
    assert_eq!(r.protocols, [6, 17]);
    assert_eq!(s.gateway.rules[1].class, None, "the DSCP says it");
    assert_eq!(settings("").unwrap().gateway.default_action, Config::default().default_action);
}

#[test]
fn a_rule_says_by_itself_what_its_sources_hear_or_the_file_does() {
    let s = settings(
        "default_action='custody'\ncustody_notice='zero-window'\n\
         [[rule]]\nname='a'\naction='custody'\ncustody_notice='sack'\n\
         [[rule]]\nname='b'\naction='custody'",
    )
    .unwrap();
    let custody = engine::Action::Custody;
    assert_eq!(s.gateway.default_action, custody(engine::Notice::ZeroWindow));
    let of_rules: Vec<_> = s.gateway.rules.iter().map(|r| r.action).collect();
    assert_eq!(of_rules, [custody(engine::Notice::Sack), custody(engine::Notice::ZeroWindow)]);
    let silent = settings("default_action='custody'").unwrap().gateway.default_action;
    assert_eq!(silent, custody(engine::Notice::Silence));
}

#[test]
fn a_link_says_what_is_done_where_no_rule_does() {
    let of = |key: &str| {
        let text = format!("custody_notice='sack'\n[[link]]\ninterface='a'\n{key}");
        settings(&text).unwrap().gateway.interfaces[0].link.as_ref().unwrap().action
    };
    assert_eq!(of(""), None);
    assert_eq!(of("action='split'"), Some(engine::LinkAction::Split));
    assert_eq!(of("action='custody'"), Some(engine::LinkAction::Custody(engine::Notice::Sack)));
    assert_eq!(of("action='auto'"), Some(engine::LinkAction::Auto(engine::Notice::Sack)));
}

/// Each mistake, and what its one message has to contain: place, key, what is wrong, what is
/// allowed.
#[test]
fn a_mistake_is_named_with_line_column_key_and_what_is_allowed() {
    for (text, wanted) in [
        (
            "\n[[link]]\ninterface = 'sat0'\nrate = '8 Mbaud'",
            &[
                "farlink.toml:4:8: [[link]] number 1, key `rate`: unknown unit `Mbaud`; allowed: a rate above zero",
            ][..],
        ),
        (
            "[[link]]\ninterface='a'\n[[link]]\ninterface='b'\nrate=8",
            &["5:6", "[[link]] number 2, key `rate`", "allowed:"],
        ),
        (
            "[limits]\nflows = 3",
            &["2:1: [limits], key `flows`", "there is no key `flows` here; allowed: `flows_max`"],
        ),
        (
            "[[link]]\ninterface='a'\nrate_ni = '8 Mbit/s'",
            &["3:1: [[link]] number 1, key `rate_ni`", "allowed: `rate_in` or `rate", "the nearest of "],
        ),
        (
            "[[link]]\ninterface='a'\nRateMax = '8 Mbit/s'",
            &["there is no key `RateMax` here; allowed: `rate_max`"],
        ),
        ("drain_timout = '3 s'", &["there is no key `drain_timout` here; allowed: `drain_timeout`"]),
        ("colour = 1", &["1:1: key `colour`", "there is no key `colour` here; allowed: `interface`"]),
        (
            "[limits]\nflows_max = 0",
            &["2:13", "key `flows_max`", "allowed: a whole number from 1 to 100000000"],
        ),
        ("[limits]\nflows_max = 'many'", &["2:13", "allowed: a whole number from 1"]),
        ("[limits]\npool_bytes = '4 kB'", &["2:14", "4000 bytes is out of range; allowed: 1048576 to"]),
        ("pinned = 'always'", &["1:10: key `pinned`", "unknown value `always`; allowed: `auto`"]),
        ("drain_timeout = 30", &["1:17", "the number 30 needs a unit; allowed: a time"]),
        ("[[link]]\nrate = '1 Mbit/s'", &["1:1", "missing key `interface`"]),
        (
            "[[link]]\ninterface='a'\nrate='1 kbit/s'\nrate_bps=5",
            &["4:10", "given twice; allowed: `rate` or `rate_bps`"],
        ),
        ("[[link]]\ninterface='a'\ncc='fixed-rate'", &["3:4", "no rate to go by; allowed:"]),
        (
            "[[link]]\ninterface='a'\ncc='vegas99'",
            &["3:4", "unknown congestion control `vegas99`; allowed: reno, cubic"],
        ),
        (
            "[[link]]\ninterface='a'\nwindow_bytes='1 MB'",
            &["3:14", "`cubic-bbr` finds its own window; allowed: with `cc = \"unfair\"`"],
        ),
        (
            "[ordinary]\ncc='fixed-rate'",
            &["2:4: [ordinary], key `cc`", "for declared links only; allowed: reno, cubic"],
        ),
        (
            "[ordinary]\ninitial_window_segments=100",
            &["2:25", "100 is out of range; allowed: a whole number from 1 to 10, or \"auto\""],
        ),
        (
            "[[link]]\ninterface='a'\ninitial_window_segments='large'",
            &["3:25", "unknown value `large`; allowed: a whole number from 1 to 65535, or"],
        ),
        ("[[link]]\ninterface='a'\n[[link]]\ninterface='a'", &["4:11", "allowed: one"]),
        ("[[interface]]\nname='a'\n[[interface]]\nname='a'", &["4:6", "named twice; allowed:"]),
        ("[[interface]]\nname='a*'\n[[interface]]\nname='a*'", &["4:6", "named twice; allowed:"]),
        ("[[interface]]\ngroup=1\n[[interface]]\ngroup=1", &["4:7", "named twice; allowed:"]),
        ("[[interface]]\nname='a'\ngroup=1", &["3:7", "a name already; allowed: `name` or `group`"]),
        ("[[interface]]\ndomain=1", &["1:1", "missing key `name`; allowed: `name`, a pattern"]),
        (
            "[[interface]]\ngroup='no such group'",
            &["2:7", "no group of interfaces is called", "allowed: a number"],
        ),
        ("[[interface]]\ngroup=-1", &["2:7", "-1 is no group", "allowed: a number"]),
        ("[[link]]\ninterface='sat*'", &["2:11", "stands for several interfaces", "allowed: the name"]),
        ("[[interface]]\nname='a/b'", &["2:6", "allowed: 1 to 15 characters"]),
        ("[[interface]]\nname='lo'", &["2:6", "loopback", "allowed:"]),
        (
            "[[interface]]\nname='a'\ndivert=false\n[[link]]\ninterface='a'",
            &["5:11", "`divert = false`", "allowed:"],
        ),
        (
            "[[interface]]\nname='a'\ndivert=false\nattach=true",
            &["4:8", "`divert = false` leaves", "allowed: one of the two keys"],
        ),
        ("[divert]\nmethod='tap'", &["2:8", "allowed: `auto`, `bump`, `policy`"]),
        ("[[interface]]\nname='a'\ndivert='yes'", &["3:8", "allowed: a boolean"]),
        ("[[rule]]\nname='r'\naction='drop'", &["3:8", "unknown value `drop`; allowed: `split`"]),
        ("[[rule]]\nname='r'", &["missing key `action`"]),
        ("[[rule]]\nname='default'\naction='pass'", &["2:6", "allowed: a name of its own"]),
        (
            "[[rule]]\nname='r'\naction='pass'\nports=[22, '99999']",
            &["4:12", "key `ports`", "allowed: a port"],
        ),
        (
            "[[rule]]\nname='r'\naction='pass'\nsources=['10.0.0.1/8']",
            &["4:10", "bits set behind the prefix; allowed:"],
        ),
        (
            "[[rule]]\nname='r'\nprotocols=['udp']\naction='split'",
            &["4:8", "only TCP is split, held or refused; allowed: \"pass\""],
        ),
        (
            "[[rule]]\nname='r'\naction='pass'\nprotocols=['quic']",
            &["4:12", "`quic` is not an IP protocol; allowed:"],
        ),
        ("[[rule]]\nname='r'\naction='pass'\ndscp=[64]", &["4:7", "64 is not a DSCP; allowed:"]),
        (
            "[[interface]]\nname='lan0'\n[[interface]]\nname='w*'\n[[rule]]\nname='r'\naction='pass'\ninterfaces=['nope']",
            &["8:13", "`nope` is not diverted; allowed: lan0"],
        ),
        (
            "[[rule]]\nname='r'\naction='pass'\nover_limit='pass'",
            &["4:12", "allowed: together with `connections_max`"],
        ),
        (
            "[[rule]]\nname='r'\naction='split'\ncustody_notice='sack'",
            &["4:16", "allowed: together with `action = \"custody\"`"],
        ),
        ("custody_notice='loud'", &["1:16", "unknown value `loud`; allowed: `silence`"]),
        ("[timers]\ndelayed_ack='600 ms'", &["2:13", "allowed: less than 500 ms"]),
        ("[timers]\nrto_min='2 s'\nrto_max='1 s'", &["2:9", "allowed: rto_min <= rto_max"]),
        ("[divert]\nmark_mask=0x5", &["2:11: [divert], key `mark_mask`", "has gaps; allowed: one run"]),
        (
            "[divert]\nmark_mask=1\n[[interface]]\nname='a'\n[[interface]]\nname='b'",
            &["2:11", "2 interfaces do not fit", "allowed:"],
        ),
        ("[divert]\ninstance='a-b'", &["2:10", "allowed: at most 6 letters"]),
        ("[divert]\ninstance='1'", &["2:10", "the last one a letter"]),
        ("[divert]\ntable_base=200", &["2:12", "allowed: tables that"]),
        ("[divert]\nrule_priority=0", &["2:15", "allowed: a whole number from 1 to 32765"]),
        (
            "[admin]\nmetrics_address='localhost:9464'",
            &["2:17: [admin], key `metrics_address`", "allowed: such as \"127.0.0.1:9464\""],
        ),
        (
            "[link]\ninterface='sat0'",
            &["1:1", "there may be several", "allowed: two pairs, as in `[[link]]`"],
        ),
        ("[[link]]\ninterface='farlink0'", &["2:11", "a device that Farlink makes for itself"]),
        (
            "[limits]\nrelay_bytes='64 MiB'\npool_bytes='32 MiB'",
            &["2:13", "allowed: `relay_bytes` up to `pool_bytes`"],
        ),
        ("[limits\n", &["farlink.toml:1:"]),
        ("a = ", &["farlink.toml:1:"]),
        ("pinned = 'auto'\npinned = 'never'", &["farlink.toml:2:1", "duplicate key"]),
    ] {
        let said = refused(text);
        assert_eq!(said.lines().count(), 1, "one message, one line: {said}");
        for part in wanted {
            assert!(said.contains(part), "{text:?}\n  said   {said}\n  wanted {part}");
        }
    }
}

#[test]
fn no_text_makes_the_reader_panic() {
    let text = example_switched_on();
    for cut in 0..text.len() {
        for part in [text.get(..cut), text.get(cut..)].into_iter().flatten() {
            if let Err(e) = settings(part) {
                assert!(e.to_string().starts_with("farlink.toml"), "{e}");
            }
        }
    }
}

#[test]
fn a_pool_may_be_smaller_than_what_a_direction_usually_may_hold() {
    let small = settings("[[link]]\ninterface='sat0'\n[limits]\npool_bytes='8 MiB'").unwrap();
    assert_eq!(small.gateway.limits.pool_bytes, 8 << 20);
}

#[test]
fn a_metered_link_gets_no_copies() {
    let of = |keys: &str| {
        let settings = settings(&format!("[[link]]\ninterface='sat0'\nrate='8M'\n{keys}")).unwrap();
        settings.gateway.interfaces.iter().find_map(|i| i.link.as_ref()).map(|link| link.copies).unwrap()
    };
    assert_eq!((of(""), of("metered=false")), (engine::Copies::Auto, engine::Copies::Auto));
    assert_eq!(
        (of("metered=true"), of("early_repetition='off'")),
        (engine::Copies::Off, engine::Copies::Off)
    );
    let wrong = refused("[[link]]\ninterface='sat0'\nmetered=true\nearly_repetition='auto'");
    assert!(wrong.contains("4:18") && wrong.contains("allowed: `\"off\"`"), "{wrong}");
}
