//! Another configuration while connections are open: it holds, and none is dropped.

use crate::script::network::{SPARE, TO_A, TO_B};
use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{Action, Config, Interface, LegConfig, Link, Oversize, Rule, Weights};
use farlink_gateway::{IfaceId, Reconfigured, SELECTORS_FROM};

/// A link towards b, and rules.
fn with_rules(rules: &[Rule]) -> Script {
    Script::with(|s| {
        s.config.rules = rules.to_vec();
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(8_000_000), leg, ..Link::default() });
    })
}

fn rule(name: &str, action: Action) -> Rule {
    Rule { name: name.into(), action, ..Rule::default() }
}

/// The configuration that the gateway has, changed.
fn reconfigure(t: &mut Script, change: impl FnOnce(&mut Config)) -> Reconfigured {
    t.with_gateway(|g, now, _| {
        let mut config = g.configuration().clone();
        change(&mut config);
        g.reconfigure(now, config)
    })
}

/// What is sent comes, and is acknowledged by the gateway: it is split.
fn carries(t: &mut Script) {
    t.play("a > P. 1:101 ack 1\n ~100");
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    let acked = t.take(Host::A).iter().map(|s| s.ack).max();
    assert_eq!((got, acked), (100, Some(101)));
}

#[test]
fn new_rules_hold_for_new_connections_and_open_ones_go_on() {
    const PORT: &str = "{port 5000}";
    let mut t = with_rules(&[rule("first", Action::Split)]);
    t.open();
    let done = reconfigure(&mut t, |c| c.rules = vec![rule("second", Action::Pass)]);
    assert_eq!((done.applied, done.at_restart), (vec!["rules".to_owned()], vec![]));
    carries(&mut t);
    let status = t.with_gateway(|g, _, _| g.status().engine);
    let counted: Vec<_> = status.rules.iter().map(|r| (r.name.as_str(), r.connections, r.open)).collect();
    assert_eq!(counted, [("second", 0, 0), ("default", 1, 1)], "its rule is gone, so it counts there");
    // The same hosts from other ports.
    let syn = "win 65535 <mss 1460,sackOK,ws 7>";
    for line in [format!("a > S 0 {syn}"), format!("b > S. 0 ack 1 {syn}"), "a > . 1 ack 1".into()] {
        t.play(&format!("{line} {PORT}\n ~50\n drop"));
    }
    let status = t.with_gateway(|g, _, _| g.status().engine);
    assert_eq!((status.flows_split, status.rules[0].connections), (1, 1), "the second one is passed by");
}

#[test]
fn a_rule_of_the_same_name_counts_on_wherever_it_stands() {
    let mut t = with_rules(&[rule("web", Action::Split)]);
    t.open();
    reconfigure(&mut t, |c| c.rules.insert(0, Rule { ports: vec![(22, 22)], ..rule("ssh", Action::Pass) }));
    let status = t.with_gateway(|g, _, _| g.status().engine);
    assert_eq!((status.rules[1].name.as_str(), status.rules[1].open), ("web", 1));
    let flows = t.with_gateway(|g, now, _| g.flows(now, 1));
    assert_eq!(flows[0].rule, "web");
}

#[test]
fn an_action_of_the_same_rule_holds_for_open_connections() {
    let mut t = with_rules(&[rule("all", Action::Split)]);
    t.open();
    reconfigure(&mut t, |c| c.rules[0].action = Action::Custody(Default::default()));
    t.play("~10");
    assert_eq!(t.mode(), "custody");
}

#[test]
fn the_rate_of_a_link_changes_and_what_it_cannot_is_named() {
    let mut t = with_rules(&[]);
    t.open();
    let done = reconfigure(&mut t, |c| {
        c.limits.pool_bytes *= 2;
        c.limits.flows_max += 1;
        for link in c.interfaces.iter_mut().filter_map(|i| i.link.as_mut()) {
            link.rate_bps = Some(4_000_000);
            link.weights = Some(Weights { split: 3, forwarded: 1 });
            link.overhead_bytes = 18;
        }
    });
    let applied =
        ["limits.pool_bytes", "link.sat.rate", "link.sat.split_weight", "link.sat.forwarded_weight"];
    assert_eq!(done.applied, applied);
    assert_eq!(done.at_restart, ["limits.flows_max", "link.sat.overhead_bytes"]);
    let settings = t.with_gateway(|g, _, _| g.settings());
    for (key, value) in [("rate_bps", "4000000"), ("split_weight", "3"), ("forwarded_weight", "1")] {
        assert!(settings.contains(&(format!("link.sat.{key}"), value.into())), "{key}: {settings:?}");
    }
    let again = reconfigure(&mut t, |_| {});
    assert_eq!(again, Reconfigured::default(), "nothing differs");
    carries(&mut t);
}

#[test]
fn what_was_set_stays_where_the_configuration_says_the_same() {
    let mut t = with_rules(&[]);
    t.with_gateway(|g, now, _| g.set(now, "link.sat.rate_bps", "1M")).unwrap();
    let done = reconfigure(&mut t, |c| c.queue_drop = true);
    assert_eq!(done.applied, ["flow_control.queue_drop"]);
    let settings = t.with_gateway(|g, _, _| g.settings());
    assert!(settings.contains(&("link.sat.rate_bps".into(), "1000000".into())), "{settings:?}");
}

/// The numbers of interfaces are the driver's; another configuration may have them in another
/// order.
#[test]
fn interfaces_are_known_by_their_names() {
    let of_lan = |id| Rule { interfaces: vec![id], ..rule("from a", Action::Pass) };
    let mut t = with_rules(&[]);
    let names = t.with_gateway(|g, _, _| {
        g.configuration().interfaces.iter().map(|i| (i.id, i.name.clone())).collect::<Vec<_>>()
    });
    let (lan, _) = names[0].clone();
    let done = reconfigure(&mut t, |c| {
        c.interfaces.reverse();
        c.interfaces.push(Interface {
            id: IfaceId(40),
            name: "new0".into(),
            link: None,
            ..c.interfaces[0].clone()
        });
        for (number, interface) in c.interfaces.iter_mut().enumerate() {
            interface.id = IfaceId(20 + number as u16);
        }
        let renumbered = c.interfaces.iter().find(|i| i.name == names[0].1).unwrap().id;
        c.rules = vec![of_lan(renumbered)];
    });
    assert_eq!(done.at_restart, ["interface new0"]);
    let rules = t.with_gateway(|g, _, _| g.configuration().rules.clone());
    assert_eq!(rules, [of_lan(lan)]);
    t.play("a > S 0 win 65535 <mss 1460,sackOK,ws 7>\n drop b");
    assert_eq!(t.with_gateway(|g, _, _| g.status().engine).rules[0].connections, 1);
    assert!(t.take(Host::A).is_empty());
}

/// What waits for a restart does so until it is taken back, however often the rest changes.
#[test]
fn what_does_not_hold_yet_is_named_each_time_until_it_is_taken_back() {
    let mut t = with_rules(&[]);
    t.open();
    let running = t.with_gateway(|g, _, _| g.configuration().clone());
    let mut wanted = running.clone();
    wanted.limits.flows_max += 1;
    let link = wanted.interfaces.iter_mut().find_map(|i| i.link.as_mut()).unwrap();
    (link.rtt, link.rate_bps) = (Some(farlink_wire::Duration::from_millis(20)), Some(4_000_000));
    let left = ["limits.flows_max", "link.sat.rtt"];
    let mut give = |config: &Config| t.with_gateway(|g, now, _| g.reconfigure(now, config.clone()));
    let first = give(&wanted);
    assert_eq!(
        (first.applied, first.at_restart),
        (vec!["link.sat.rate".to_owned()], left.map(str::to_owned).to_vec())
    );
    assert_eq!(
        (give(&wanted).applied.len(), give(&wanted).at_restart),
        (0, left.map(str::to_owned).to_vec())
    );
    assert_eq!(give(&running).at_restart, Vec::<String>::new(), "it is taken back");

    // What is said of a link that is taken out, and comes back, holds.
    let mut without = running.clone();
    let lost = without.interfaces.iter().position(|i| i.link.is_some()).unwrap();
    let name = without.interfaces.remove(lost).name;
    assert_eq!(give(&without).applied, [format!("link at {name} is let go")]);
    assert_eq!(give(&without), Reconfigured::default(), "that is told once");
    wanted = running;
    wanted.interfaces.iter_mut().find_map(|i| i.link.as_mut()).unwrap().rate_bps = Some(2_000_000);
    let back = give(&wanted);
    assert_eq!(
        (back.applied, back.at_restart),
        (vec![format!("link at {name}"), "link.sat.rate".to_owned()], vec![])
    );
}

/// A link towards b, and a place for another one.
fn with_room(second: Option<Link>) -> Script {
    let mut t = Script::with(|s| {
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(8_000_000), leg, ..Link::default() });
        s.spare = Some(second);
        s.spare_name = "";
    });
    t.open();
    t
}

const SYN: &str = "win 65535 <mss 1460,sackOK,ws 7>";

/// Another connection of the same hosts.
fn opens(t: &mut Script, port: u16) {
    for line in [format!("a > S 0 {SYN}"), format!("b > S. 0 ack 1 {SYN}"), "a > . 1 ack 1".into()] {
        t.play(&format!("{line} {{port {port}}}\n ~50\n drop"));
    }
}

#[test]
fn a_link_takes_the_place_of_another_and_its_connections_go_along() {
    let mut t = with_room(Some(Link::default()));
    assert_eq!(t.with_gateway(|g, _, _| g.status().links.len()), 1, "what is spare is nobody's link");
    let done = reconfigure(&mut t, |c| {
        let old = c.interfaces.iter().position(|i| i.name == "tob").unwrap();
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        let rtt = Some(farlink_wire::Duration::from_millis(500));
        let link = Link { name: "new".into(), rate_bps: Some(1_000_000), rtt, leg, ..Link::default() };
        c.interfaces[old] =
            Interface { id: IfaceId(77), name: "new0".into(), link: Some(link), ..c.interfaces[old].clone() };
        c.interfaces.retain(|i| !i.name.is_empty());
    });
    assert_eq!(done.applied, ["link at new0", "link at tob is let go"]);
    assert_eq!(done.at_restart, [""; 0], "it is as declared from its start on");
    let settings = t.with_gateway(|g, _, _| g.settings());
    assert!(settings.contains(&("link.new.rate_bps".into(), "1000000".into())), "{settings:?}");
    // Its connections are split as long as their packets come.
    carries(&mut t);
    let (leaving, used) = t.with_gateway(|g, _, _| (g.leaving(), g.is_in_use(TO_B)));
    assert_eq!((leaving, used), (vec![TO_B], true));
    t.reroute_b(SPARE);
    t.play("a > P. 101:201 ack 1\n ~100\n drop");
    assert_eq!(t.mode(), "split");
    let flow = t.with_gateway(|g, now, _| g.flows(now, 1).remove(0));
    assert_eq!(flow.out_b, "new0", "it is known by its own name");
    assert!(!t.with_gateway(|g, _, _| g.is_in_use(TO_B)));
    t.with_gateway(|g, now, _| g.free(now, TO_B));
    let status = t.with_gateway(|g, _, _| g.status());
    assert_eq!(status.links.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["new"]);
    assert_eq!((status.links[0].rate_bps, status.engine.flows_split), (1_000_000, 1));
    assert!(!t.with_gateway(|g, _, _| g.knows_of_outage()), "what is gone is not away");
}

#[test]
fn a_link_knows_nothing_of_the_one_whose_place_it_takes() {
    let mut t = with_room(None);
    for line in ["a > P. 1:1001 ack 1", "b > . 1 ack 1001", "a > R. 1001 ack 1"] {
        t.play(&format!("{line}\n ~100\n drop"));
    }
    let link = |t: &mut Script| t.with_gateway(|g, _, _| g.status().links.remove(0));
    let before = link(&mut t);
    assert!(before.spent.payload_bytes > 0 && before.sent_bytes > 0, "{before:?}");
    let of_link = t.with_gateway(|g, _, _| {
        g.configuration().interfaces.iter().find(|i| i.name == "tob").cloned().unwrap()
    });
    reconfigure(&mut t, |c| c.interfaces.retain(|i| i.name == "toa"));
    t.with_gateway(|g, now, _| g.free(now, TO_B));
    let rtt = Some(farlink_wire::Duration::from_millis(700));
    let new = Link { name: "new".into(), rtt, oversize: Oversize::Off, ..of_link.link.clone().unwrap() };
    let new = Interface { name: "new0".into(), link: Some(new), ..of_link };
    let done = reconfigure(&mut t, |c| {
        c.interfaces.retain(|i| i.name == "toa");
        c.interfaces.push(Interface { id: IfaceId(77), ..new });
    });
    assert_eq!((done.applied, done.at_restart), (vec!["link at new0".to_owned()], vec![]));
    let after = link(&mut t);
    assert_eq!((after.name.as_str(), after.rtt_us), ("new", 700_000), "as declared: {after:?}");
    assert_eq!((after.spent.payload_bytes, after.sent_bytes), (0, 0), "{after:?}");
    opens(&mut t, 5000);
    assert_eq!(t.with_gateway(|g, _, _| g.status().engine.flows_split), 1, "and it carries");
}

#[test]
fn nothing_new_is_split_by_an_interface_that_is_let_go() {
    let mut t = with_room(None);
    t.with_gateway(|g, _, _| g.let_go(TO_A));
    opens(&mut t, 5000);
    assert_eq!(t.with_gateway(|g, _, _| g.status().engine.flows_split), 1, "the one from before");
    carries(&mut t);
    // It is named again, as if nothing had been.
    let done = reconfigure(&mut t, |c| c.interfaces.retain(|i| !i.name.is_empty()));
    assert_eq!(done.applied, ["interface toa"]);
    opens(&mut t, 5001);
    assert_eq!(t.with_gateway(|g, _, _| g.status().engine.flows_split), 2);
}

#[test]
fn an_interface_that_is_found_gets_a_spare_number_and_rules_know_it() {
    let mut t = with_room(None);
    let selector = IfaceId(SELECTORS_FROM);
    reconfigure(&mut t, |c| {
        c.interfaces.retain(|i| !i.name.is_empty());
        c.rules = vec![Rule { interfaces: vec![selector], ..rule("found", Action::Pass) }];
    });
    opens(&mut t, 5000);
    assert_eq!(t.with_gateway(|g, _, _| g.status().engine.flows_split), 2, "nothing is found yet");
    assert_eq!(t.with_gateway(|g, _, _| g.find_interface("wan7", 0)), Some(SPARE));
    assert_eq!(t.with_gateway(|g, _, _| g.find_interface("wan7", 0)), Some(SPARE), "it has that");
    assert_eq!(t.with_gateway(|g, _, _| g.find_interface("wan8", 0)), None, "there is one");
    assert_eq!(t.with_gateway(|g, _, _| g.find_interface("wan7", 3)), None, "of another domain none");
    t.with_gateway(|g, _, _| g.mean(vec![(selector, vec![TO_A])]));
    opens(&mut t, 5001);
    let status = t.with_gateway(|g, _, _| g.status().engine);
    assert_eq!((status.flows_split, status.rules[0].connections), (2, 1), "the rule passes it by");
    // A reload that says nothing of it leaves it alone, and another one may name it.
    let done = reconfigure(&mut t, |c| c.interfaces.retain(|i| !i.name.is_empty() && i.name != "wan7"));
    assert_eq!(done, Reconfigured::default());
    let done = reconfigure(&mut t, |c| c.interfaces.retain(|i| !i.name.is_empty()));
    assert_eq!(done, Reconfigured::default(), "it is diverted already");
    let done = reconfigure(&mut t, |c| c.interfaces.retain(|i| !i.name.is_empty() && i.name != "wan7"));
    assert_eq!(done.applied, ["interface wan7 is let go"]);
    t.with_gateway(|g, now, _| g.free(now, SPARE));
    assert_eq!(t.with_gateway(|g, _, _| g.find_interface("wan8", 0)), Some(SPARE));
}
