//! The daemon as a whole, in network namespaces: it diverts, splits, tells about itself, changes,
//! drains, and leaves nothing. As root.

mod bed;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bed::{Bed, FARLINK, PATIENCE, is_missing, skipped, terminate, text};
use serde_json::Value;

#[test]
fn a_quick_start_splits_tells_changes_and_leaves_nothing() {
    if skipped("a_quick_start_splits_tells_changes_and_leaves_nothing") {
        return;
    }
    let bed = Bed::new("quick");
    let before = (
        bed.in_gateway("ip rule; ip -6 rule"),
        bed.in_gateway("nft list ruleset"),
        bed.in_gateway("ls /sys/class/net"),
    );
    let mut daemon = bed.start(&["--link", "to-server", "--rate", "500 Mbit/s"]);

    let check = bed.ask(&["check", "--seconds", "1"]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check));
    assert!(text(&check).contains("nothing to split: there is no TCP traffic"), "{}", text(&check));

    let result = bed.load(&["http", "--rate", "50", "--seconds", "1"]);
    assert_eq!((result["connections"].as_u64(), result["failed"].as_u64()), (Some(50), Some(0)), "{result}");
    let status = bed.status();
    assert_eq!(status.pointer("/engine/counters/flows_split").and_then(Value::as_u64), Some(50));
    assert_eq!(status.pointer("/links/0/rate_bps").and_then(Value::as_u64), Some(500_000_000));

    let refused = bed.ask(&["set", "colour", "blue"]);
    assert!(refused.status.code() == Some(1) && text(&refused).contains("allowed are link.NAME.rate_bps"));
    assert!(bed.ask(&["set", "link.to-server.rate_bps", "250000000"]).status.success());
    assert_eq!(bed.status().pointer("/links/0/rate_bps").and_then(Value::as_u64), Some(250_000_000));
    assert!(bed.ask(&["set", "link.to-server.rate", "200 Mbit/s"]).status.success());
    for key in ["link.to-server.rate_bps", "link.to-server.rate"] {
        let shown = bed.ask(&["set", key]);
        assert_eq!((shown.status.code(), text(&shown).as_str()), (Some(0), "200000000\n"));
    }
    assert!(bed.ask(&["set", "link.to-server.cc", "hybla"]).status.success());
    let settings: Value = serde_json::from_slice(&bed.ask(&["set", "--json"]).stdout).unwrap();
    assert_eq!((&settings["link.to-server.cc"], &settings["profile"]), (&"hybla".into(), &"off".into()));
    assert!(text(&bed.ask(&["status"])).contains("hybla"));
    assert!(bed.log().contains("not set: unknown key `colour`"), "{}", bed.log());
    assert!(bed.ask(&["link", "to-server", "down"]).status.success());
    assert_eq!(bed.status().pointer("/links/0/up"), Some(&Value::Bool(false)));
    assert!(bed.ask(&["link", "to-server", "up"]).status.success());

    // A second one has to be told apart, also where it has a socket of its own.
    let own = bed.socket() + "2";
    for (socket, says) in [(bed.socket(), "another gateway answers at"), (own, "holds a device of this name")]
    {
        let mut second = bed.gateway.command(FARLINK);
        let second = second.args(["run", "--link", "to-server", "--socket", &socket]).output().unwrap();
        let said = text(&second);
        let is_told = said.contains("`instance`");
        assert!(second.status.code() == Some(1) && said.contains(says) && is_told, "{said}");
    }

    terminate(&daemon);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
    assert!(bed.log().contains("no connection was broken"), "{}", bed.log());
    let after = (
        bed.in_gateway("ip rule; ip -6 rule"),
        bed.in_gateway("nft list ruleset"),
        bed.in_gateway("ls /sys/class/net"),
    );
    assert_eq!(before, after, "rules, tables and devices are as before");
    assert!(
        std::fs::read_dir(&bed.directory).unwrap().all(|f| f.unwrap().file_name() == "log"),
        "socket and journal are gone"
    );
    assert_eq!(
        bed.load(&["http", "--rate", "10", "--seconds", "1"])["failed"].as_u64(),
        Some(0),
        "the router routes"
    );
}

#[test]
fn another_configuration_is_read_while_connections_run() {
    if skipped("another_configuration_is_read_while_connections_run") {
        return;
    }
    let bed = Bed::new("reload");
    let file = bed.directory.join("farlink.toml");
    let configure = |rate: &str, rest: &str| {
        let text = format!("[[link]]\ninterface = \"to-server\"\nname = \"sat0\"\nrate = \"{rate}\"\n{rest}");
        std::fs::write(&file, text).unwrap();
    };
    configure("20 Mbit/s", "");
    let mut daemon = bed.start(&["--config", file.to_str().unwrap()]);
    let reload = || bed.ask(&["reload"]);
    let rate = || bed.status().pointer("/links/0/rate_bps").and_then(Value::as_u64);
    assert_eq!(text(&reload()), "nothing differs\n");

    std::thread::scope(|scope| {
        // 5 MB take two seconds and more.
        let load = scope.spawn(|| bed.load(&["bulk", "--flows", "4", "--seconds", "3"]));
        bed.eventually("it is split", || {
            bed.status().pointer("/engine/flows_split").and_then(Value::as_u64) >= Some(4)
        });
        for n in 0..10 {
            configure(if n % 2 == 0 { "40 Mbit/s" } else { "20 Mbit/s" }, "");
            assert_eq!(text(&reload()), "holds now: link.sat0.rate\n", "{}", bed.log());
        }
        configure("30 Mbit/s", "[[rule]]\nname = \"all\"\naction = \"pass\"\n");
        assert_eq!(text(&reload()), "holds now: rules, link.sat0.rate\n", "{}", bed.log());
        let outcome = load.join().unwrap();
        assert!(outcome["bits_per_second"].as_f64().unwrap_or(1.0) > 0.0, "{outcome}");
    });
    let split = || bed.status().pointer("/engine/counters/flows_split").and_then(Value::as_u64);
    let before = split();
    assert_eq!(bed.load(&["http", "--rate", "10", "--seconds", "1"])["failed"].as_u64(), Some(0));
    assert_eq!(split(), before, "the new rule passes by");

    configure("8 parsecs", "");
    let refused = reload();
    assert!(refused.status.code() == Some(1) && text(&refused).contains("parsecs"), "{}", text(&refused));
    assert!(bed.log().contains("the old one holds"), "{}", bed.log());
    assert_eq!(rate(), Some(30_000_000));

    // By the name of the link or of its interface.
    for (name, rate) in [("sat0", 31), ("to-server", 32)] {
        let key = format!("link.{name}.rate");
        assert!(bed.ask(&["set", &key, &format!("{rate} Mbit/s")]).status.success(), "{}", bed.log());
        assert_eq!(bed.status().pointer("/links/0/rate_bps").and_then(Value::as_u64), Some(rate * 1_000_000));
    }

    configure("50 Mbit/s", "[limits]\nflows_max = 1000\n");
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    bed.eventually("SIGHUP is the same", || rate() == Some(50_000_000));
    assert!(bed.log().contains("limits.flows_max"), "what needs a restart is named: {}", bed.log());
    assert_eq!(bed.load(&["http", "--rate", "10", "--seconds", "1"])["failed"].as_u64(), Some(0));
    assert_eq!(split(), before.map(|n| n + 10), "without the rule they are split again");

    terminate(&daemon);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
}

#[test]
fn a_link_may_take_everything_that_leaves_by_it() {
    let test = "a_link_may_take_everything_that_leaves_by_it";
    if skipped(test) || is_missing(test, "ping", "-V") {
        return;
    }
    let bed = Bed::new("whole");
    let file = bed.directory.join("farlink.toml");
    let link = "[[link]]\ninterface = \"to-server\"\nrate = \"100 Mbit/s\"\ntraffic = \"everything\"\n";
    std::fs::write(&file, link).unwrap();
    let mut daemon = bed.start(&["--config", file.to_str().unwrap(), "--divert", "policy"]);
    let pings = ["-n", "-q", "-i", "0.1", "-c", "30", "-W", "2", "10.73.2.2"];
    let mut pinging = bed.client.command("ping").args(pings).stdout(Stdio::null()).spawn().unwrap();
    let check = bed.ask(&["check", "--seconds", "1"]);
    let said = text(&check);
    assert_eq!(check.status.code(), Some(0), "{said}");
    for part in [
        "everything that leaves by to-server",
        "nothing to split: there is no TCP traffic",
        "packets came in by to-client",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(pinging.wait().unwrap().success(), "pings are answered");
    let status = bed.status();
    let number = |at: &str| status.pointer(at).and_then(Value::as_u64);
    // What comes back does not leave by the link.
    assert_eq!(number("/traffic/packets_other"), Some(30), "{status}");
    assert!(number("/links/0/sent_bytes") >= Some(30 * 84), "{status}");
    assert_eq!(status.pointer("/diversion/everything"), Some(&Value::Bool(true)));
    let result = bed.load(&["http", "--rate", "50", "--seconds", "1"]);
    assert_eq!(result["failed"].as_u64(), Some(0), "{result}");
    assert_eq!(bed.status().pointer("/engine/counters/flows_split").and_then(Value::as_u64), Some(50));
    terminate(&daemon);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
}

#[test]
fn check_sees_traffic_being_split_and_drain_ends_the_daemon() {
    if skipped("check_sees_traffic_being_split_and_drain_ends_the_daemon") {
        return;
    }
    let bed = Bed::new("check");
    let mut daemon = bed.start(&["--interface", "to-client", "--interface", "to-server"]);
    let mut load = bed.client.command(FARLINK);
    load.args(["bench-load", "ping", "--count", "100000", "--to", "10.73.2.2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut load = load.spawn().unwrap();
    bed.eventually("a connection is split", || {
        bed.status().pointer("/engine/flows_split").and_then(Value::as_u64) == Some(1)
    });
    let check = bed.ask(&["check", "--seconds", "1"]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check));
    assert!(text(&check).contains("yes: 1 connection is split now"), "{}", text(&check));
    let flows: Value = serde_json::from_slice(&bed.ask(&["flows", "--json"]).stdout).unwrap();
    assert_eq!(flows[0]["b"], "10.73.2.2:7002");
    assert_eq!(flows[0]["mode"], "split");
    // The connection is in use while the gateway goes, and must not notice.
    let drain = bed.ask(&["drain"]);
    assert!(drain.status.success(), "{}\n{}", text(&drain), bed.log());
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(load.try_wait().unwrap().is_none(), "the connection goes on");
    std::thread::sleep(Duration::from_millis(300));
    assert!(load.try_wait().unwrap().is_none(), "the connection goes on");
    load.kill().unwrap();
    load.wait().unwrap();
}

#[test]
fn what_is_removed_is_put_back_and_check_says_so() {
    if skipped("what_is_removed_is_put_back_and_check_says_so") {
        return;
    }
    let bed = Bed::new("broken");
    let mut daemon = bed.start(&["--link", "to-server", "--divert", "policy"]);
    bed.in_gateway("nft flush ruleset; nft delete table inet farlink 2>/dev/null; true");
    assert!(bed.in_gateway("nft list table inet farlink").contains("chain prerouting"), "it has an owner");
    // The guard has seen that all is there. Nothing tells it when the table goes with its owner.
    std::thread::sleep(Duration::from_millis(700));
    bed.in_gateway(
        "for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" = nft ] && \
         [ \"$(readlink $p/ns/net)\" = \"$(readlink /proc/self/ns/net)\" ] && kill -9 ${p#/proc/}; done 2>/dev/null; true",
    );
    bed.eventually("the table is put back", || bed.log().contains("diversion is put back"));
    assert!(bed.in_gateway("nft list table inet farlink").contains("chain prerouting"));
    let check = bed.ask(&["check", "--seconds", "1"]);
    assert_eq!(check.status.code(), Some(1), "{}", text(&check));
    assert!(text(&check).contains("the nftables table inet farlink was removed"), "{}", text(&check));
    let status = bed.status();
    assert_eq!(status.pointer("/diversion/repairs").and_then(Value::as_u64), Some(1), "{status}");
    let metrics = text(&bed.ask(&["status", "--prometheus"]));
    assert!(metrics.contains("\nfarlink_diversion_repairs_total 1\n"), "{metrics}");
    // Nothing of it is left when the daemon ends in the middle of a fight.
    bed.eventually("it is put back more and more slowly", || {
        bed.in_gateway("ip rule del pref 500");
        bed.log().contains("it is put back later")
    });
    bed.gateway.sysctl("ipv4.ip_forward", "0").unwrap();
    bed.gateway.sysctl("ipv6.conf.all.forwarding", "0").unwrap();
    let check = text(&bed.ask(&["check", "--seconds", "1"]));
    assert!(
        check.contains("net.ipv4.ip_forward is 0")
            && check.contains("Can this host divert traffic?          no"),
        "{check}"
    );
    terminate(&daemon);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
}

/// A host that stops reading makes a drain long: systemd would kill the daemon in the middle of it.
/// The letter of a process's state, and `Z` until its parent has heard of its end. `None`: it is
/// gone.
fn state_of(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_watcher_that_is_killed_leaves_no_zombie_and_is_missed() {
    if skipped("a_watcher_that_is_killed_leaves_no_zombie_and_is_missed") {
        return;
    }
    let bed = Bed::new("watcher");
    let mut daemon = bed.start(&["--link", "to-server"]);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.id())).unwrap();
    let name = |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let watcher = children.split_whitespace().find(|pid| name(pid).trim() == "farlink-watch").unwrap();
    let pid = rustix::process::Pid::from_raw(watcher.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    bed.eventually("it is gone", || state_of(watcher).is_none());
    bed.eventually("check says so", || {
        let check = bed.ask(&["check", "--json", "--seconds", "1"]);
        text(&check).contains("\"id\": \"unwatched\"")
    });
    terminate(&daemon);
    daemon.wait().unwrap();
}

#[test]
fn a_drain_that_takes_long_asks_systemd_for_more_time() {
    if skipped("a_drain_that_takes_long_asks_systemd_for_more_time") {
        return;
    }
    let signal = |child: &Child, signal| {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    };
    let bed = Bed::new("long");
    let path = bed.directory.join("notify");
    let told = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    told.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = |what: &str| {
        let mut text = [0; 256];
        loop {
            let n =
                told.recv(&mut text).unwrap_or_else(|e| panic!("{what} does not come: {e}\n{}", bed.log()));
            if String::from_utf8_lossy(&text[..n]).contains(what) {
                return;
            }
        }
    };
    let mut command = bed.gateway.command(FARLINK);
    command.args(["run", "--link", "to-server", "--socket", &bed.socket()]).env("NOTIFY_SOCKET", &path);
    let log = std::fs::File::create(bed.directory.join("log")).unwrap();
    let mut daemon = command.stderr(log).spawn().unwrap();
    hear("READY=1");
    let mut client = bed.client.command(FARLINK);
    let bulk = ["bench-load", "bulk", "--flows", "1", "--seconds", "60", "--to", "10.73.2.2"];
    let mut reader = client.args(bulk).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    bed.eventually("it is split", || bed.status().pointer("/engine/flows_split") == Some(&1.into()));
    signal(&reader, rustix::process::Signal::STOP);
    // Until data is held.
    std::thread::sleep(Duration::from_secs(1));
    signal(&daemon, rustix::process::Signal::TERM);
    hear("EXTEND_TIMEOUT_USEC=");
    hear("EXTEND_TIMEOUT_USEC=");
    reader.kill().unwrap();
    reader.wait().unwrap();
    signal(&daemon, rustix::process::Signal::TERM);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
}

#[test]
fn counters_are_served_to_prometheus() {
    if skipped("counters_are_served_to_prometheus") {
        return;
    }
    let bed = Bed::new("metrics");
    let config = bed.directory.join("farlink.toml");
    std::fs::write(
        &config,
        "[[link]]\ninterface = \"to-server\"\n[admin]\nmetrics_address = \"10.73.1.1:9464\"\n",
    )
    .unwrap();
    let mut daemon = bed.start(&["--config", config.to_str().unwrap()]);
    let script = "exec 3<>/dev/tcp/10.73.1.1/9464; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    let output = bed.client.command("bash").args(["-c", script]).output().unwrap();
    let answer = text(&output);
    assert!(
        answer.contains("200 OK") && answer.contains("\nfarlink_link_up{link=\"to-server\"} 1\n"),
        "{answer}"
    );
    let (_, metrics) = answer.split_once("\r\n\r\n").unwrap();
    let file = bed.directory.join("metrics");
    std::fs::write(&file, metrics).unwrap();
    let mut promtool = Command::new("promtool");
    let promtool = promtool.args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap()).output();
    if let Ok(output) = promtool {
        assert!(output.status.success() && text(&output).is_empty(), "{}", text(&output));
    }
    terminate(&daemon);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
}

#[test]
fn a_connection_is_seen_live_traced_and_the_datapath_profiled() {
    if skipped("a_connection_is_seen_live_traced_and_the_datapath_profiled") {
        return;
    }
    let bed = Bed::new("live");
    let nobody = bed.ask(&["top", "--once"]);
    assert!(nobody.status.code() == Some(1) && text(&nobody).contains("no gateway"), "{}", text(&nobody));
    let mut daemon = bed.start(&["--link", "to-client", "--rate", "20 Mbit/s"]);
    let mut load = bed.client.command(FARLINK);
    load.args(["bench-load", "bulk", "--flows", "1", "--seconds", "20", "--to", "10.73.2.2"])
        .stdout(Stdio::null());
    let mut load = load.spawn().unwrap();
    bed.eventually("the connection is the link's", || {
        let status = bed.status();
        status.pointer("/engine/limited_by/link").and_then(Value::as_u64) == Some(1)
            && status.pointer("/links/0/flows").and_then(Value::as_u64) == Some(1)
    });

    let top = text(&bed.ask(&["top", "--once", "--interval", "1"]));
    for part in [
        "to-client",
        "20.0 Mbit/s",
        "10.73.2.2:7001",
        "link",
        "has all of to-client",
        "1 of 1 connection shown",
    ] {
        assert!(top.contains(part), "{part} is missing in\n{top}");
    }
    assert!(text(&bed.ask(&["top", "--once", "--filter", "10.99."])).contains("0 of 1 connection shown"));
    assert!(text(&bed.ask(&["top"])).contains("wants a terminal"));
    let top: Value = serde_json::from_slice(&bed.ask(&["top", "--once", "--json"]).stdout).unwrap();
    assert_eq!(top["flows"][0]["limited_by"], "link", "{top}");

    assert!(bed.status().pointer("/driver/profile").is_none_or(Value::is_null));
    assert!(text(&bed.ask(&["set", "profile", "maybe"])).contains("allowed are on and off"));
    assert!(bed.ask(&["set", "profile", "on"]).status.success());
    let json = bed.directory.join("flow.json");
    let trace = bed.ask(&["trace", "10.73.1.2", "--seconds", "2", "--json", json.to_str().unwrap()]);
    assert!(trace.status.success(), "{}", text(&trace));
    assert!(text(&trace).contains("to client") && text(&trace).contains("Mbit/s"), "{}", text(&trace));
    // A trace that is interrupted keeps what it has, and leaves room for the next.
    let interrupted = bed.directory.join("interrupted.json");
    let mut trace = bed.gateway.command(FARLINK);
    trace
        .args(["trace", "10.73.1.2", "--seconds", "60", "--socket", &bed.socket(), "--json"])
        .arg(&interrupted);
    let mut trace = trace.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    terminate(&trace);
    assert_eq!(trace.wait().unwrap().code(), Some(0));
    assert!(std::fs::read_to_string(&interrupted).unwrap().contains("farlink trace 10.73.1.2 --seconds 60"));
    let printed = bed.ask(&["trace", "10.73.1.2", "--seconds", "1", "--json", "-"]);
    assert!(serde_json::from_slice::<Value>(&printed.stdout).is_ok(), "{}", text(&printed));
    let nowhere = bed.ask(&["trace", "10.73.1.2", "--seconds", "60", "--json", "/nonexistent/flow.json"]);
    assert!(nowhere.status.code() == Some(1) && text(&nowhere).contains("cannot be written"));
    let page = bed.directory.join("flow.html");
    let mut report = Command::new(FARLINK);
    let report = report.arg("report").arg(&json).arg("-o").arg(&page).output().unwrap();
    assert!(report.status.success(), "{}", text(&report));
    let page = std::fs::read_to_string(&page).unwrap();
    for part in [
        "Time-sequence: here, server to client",
        "physical limit</text>",
        "farlink trace 10.73.1.2 --seconds 2",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    let wrong = bed.ask(&["trace", "somewhere"]);
    assert!(
        wrong.status.code() == Some(1) && text(&wrong).contains("an address or address:port"),
        "{}",
        text(&wrong)
    );

    let status = bed.status();
    let stages = status.pointer("/driver/profile").and_then(Value::as_array).unwrap();
    assert_eq!(stages.len(), 4);
    assert!(stages.iter().all(|s| s["calls"].as_u64() > Some(0)), "{stages:?}");
    assert!(text(&bed.ask(&["status"])).contains("egress"));
    assert!(bed.ask(&["set", "profile", "off"]).status.success());
    assert!(bed.status().pointer("/driver/profile").is_none_or(Value::is_null));

    load.kill().unwrap();
    load.wait().unwrap();
    terminate(&daemon);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
}

/// Whoever read the log has gone, or its disk is full: that is no reason to drop what is in
/// custody.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    if skipped("a_log_that_cannot_be_written_ends_nothing") {
        return;
    }
    let bed = Bed::new("log");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for stderr in [Stdio::from(writer), Stdio::from(full)] {
        let mut command = bed.gateway.command(FARLINK);
        command.args(["run", "--link", "to-server", "--socket", &bed.socket()]).stderr(stderr);
        let mut daemon = command.spawn().unwrap();
        bed.eventually("the daemon answers", || bed.ask(&["status"]).status.success());
        assert!(bed.ask(&["set", "ordinary.cc", "reno"]).status.success());
        assert_eq!(bed.load(&["http", "--rate", "10", "--seconds", "1"])["failed"].as_u64(), Some(0));
        terminate(&daemon);
        assert_eq!(daemon.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn each_connection_has_a_line_in_the_log_of_connections() {
    if skipped("each_connection_has_a_line_in_the_log_of_connections") {
        return;
    }
    let bed = Bed::new("conlog");
    let (config, log) = (bed.directory.join("farlink.toml"), bed.directory.join("connections.log"));
    let keys = format!(
        "[[link]]\ninterface = \"to-server\"\nrate = \"500 Mbit/s\"\n[[rule]]\nname = \"no\"\nports = [9]\naction = \"pass\"\n\
         [admin]\nconnection_log = \"{}\"\n",
        log.display()
    );
    std::fs::write(&config, keys).unwrap();
    let mut daemon = bed.start(&["--config", config.to_str().unwrap()]);
    let lines = |path: &std::path::Path| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let result = bed.load(&["http", "--rate", "50", "--seconds", "1"]);
    assert_eq!(result["failed"].as_u64(), Some(0), "{result}");
    bed.eventually("each has its line", || lines(&log).len() >= 50);
    for line in lines(&log) {
        assert_eq!((&line["split"], &line["end"]), (&true.into(), &"closed".into()), "{line}");
        assert!(line["to_client_bytes"].as_u64().is_some_and(|n| n > 0), "{line}");
        assert!(line["duration_seconds"].as_f64().is_some_and(|s| s < 30.0), "{line}");
    }
    // Passed by, after the file has been moved away.
    let moved = bed.directory.join("connections.log.1");
    std::fs::rename(&log, &moved).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let _ = bed.client.command("bash").args(["-c", "exec 3<>/dev/tcp/10.73.2.2/9"]).output();
    bed.eventually("the file is opened anew", || !lines(&log).is_empty());
    let line = &lines(&log)[0];
    assert_eq!((&line["split"], &line["why"]), (&false.into(), &"passed by rule".into()), "{line}");
    // One that is open when the gateway ends.
    let mut load = bed.client.command(FARLINK);
    let load = load.args(["bench-load", "bulk", "--flows", "1", "--to", "10.73.2.2", "--seconds", "60"]);
    let mut load = load.stdout(Stdio::null()).spawn().unwrap();
    bed.eventually("it is split", || bed.status().pointer("/engine/flows_split") == Some(&1.into()));
    std::thread::sleep(Duration::from_millis(600));
    terminate(&daemon);
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
    load.kill().unwrap();
    load.wait().unwrap();
    let last = lines(&log).pop().unwrap();
    assert_eq!((&last["split"], &last["end"]), (&true.into(), &"handed back".into()), "{last}");
    assert!(last["limited_by"].is_string() && last["rule"].is_string(), "{last}");
    assert_eq!(lines(&log).len() + lines(&moved).len(), 52);
}

/// What an earlier run has found of a link whose rate nobody says: shown, kept, and let go where it
/// does not fit any more.
#[test]
fn what_was_found_is_kept_over_a_restart() {
    if skipped("what_was_found_is_kept_over_a_restart") {
        return;
    }
    let bed = Bed::new("found");
    let kept = bed.directory.join("farlink.found");
    let hour_ago =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() - 3_600;
    let of = |link: &str| {
        serde_json::json!({"version": 1, "links": [{"name": link, "interface": "to-server", "rtt_us": 500_000,
            "rate": {"bps": 8_000_000, "found_at_s": hour_ago}}]})
    };
    let written = || -> Value { serde_json::from_str(&std::fs::read_to_string(&kept).unwrap()).unwrap() };
    let run = |arguments: &[&str], look: &dyn Fn(&Value)| {
        let mut daemon = bed.start(arguments);
        look(bed.status().pointer("/links/0").unwrap());
        terminate(&daemon);
        assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
    };
    std::fs::write(&kept, of("to-server").to_string()).unwrap();
    run(&["--link", "to-server"], &|link| {
        assert_eq!(
            (&link["remembered_bps"], &link["estimated_bps"]),
            (&8_000_000.into(), &0.into()),
            "{link}"
        );
        assert!(link["remembered_age_s"].as_u64().is_some_and(|s| (3_600..3_660).contains(&s)), "{link}");
        assert!(text(&bed.ask(&["status"])).contains("unknown (8.0 Mbit/s 1 h 0 min ago)"));
        assert!(text(&bed.ask(&["check", "--seconds", "1"])).contains("8.0 Mbit/s was found 1 h 0 min ago"));
        assert!(bed.log().contains("first guess"), "{}", bed.log());
    });
    assert_eq!(written(), of("to-server"), "nothing has confirmed it, and it is as old as it was");
    // Somebody says the rate now.
    run(&["--link", "to-server", "--rate", "500 Mbit/s"], &|link| {
        assert_eq!((&link["remembered_bps"], &link["remembered_age_s"]), (&0.into(), &Value::Null), "{link}");
    });
    assert_eq!(written()["links"], serde_json::json!([]));
    // What is damaged is no reason not to start, nor is one that cannot be written.
    std::fs::write(&kept, "{\"version\": 1, \"lin").unwrap();
    run(&["--link", "to-server"], &|link| assert_eq!(link["remembered_bps"], 0, "{link}"));
    assert_eq!(bed.log().matches("cannot be read").count(), 1, "{}", bed.log());
    std::fs::write(&kept, of("another").to_string()).unwrap();
    let config = bed.directory.join("farlink.toml");
    let keys = |found: &str| {
        let found = format!("[[link]]\ninterface = \"to-server\"\n[admin]\nfound_rates = \"{found}\"\n");
        std::fs::write(&config, found).unwrap();
    };
    keys("off");
    run(&["--config", config.to_str().unwrap()], &|link| assert_eq!(link["remembered_bps"], 0, "{link}"));
    assert_eq!(written(), of("another"), "it is left alone");
    keys("/proc/farlink/found.json");
    run(&["--config", config.to_str().unwrap()], &|link| assert_eq!(link["remembered_bps"], 0, "{link}"));
}

/// What a link has carried of its budget counts on after a restart, and scripts and operators learn
/// how far it is used. Connections go on.
#[test]
fn a_budget_is_counted_over_a_restart() {
    if skipped("a_budget_is_counted_over_a_restart") {
        return;
    }
    let bed = Bed::new("budget");
    let config = bed.directory.join("farlink.toml");
    let start = |budget_bytes: u64| {
        let link =
            format!("interface = \"to-server\"\nrate = \"500 Mbit/s\"\nbudget = \"{budget_bytes} B/month\"");
        std::fs::write(&config, format!("[[link]]\n{link}\n")).unwrap();
        bed.start(&["--config", config.to_str().unwrap()])
    };
    let used = || bed.status().pointer("/links/0/budget_used_bytes").and_then(Value::as_u64).unwrap();
    let exit = || bed.ask(&["status", "--budget"]).status.code();
    let carry = |rate: &str| {
        let result = bed.load(&["http", "--rate", rate, "--seconds", "1"]);
        assert_eq!(result["failed"].as_u64(), Some(0), "{result}");
    };
    let end = |mut daemon: Child| {
        terminate(&daemon);
        assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", bed.log());
    };
    let daemon = start(1_000_000_000_000);
    assert_eq!((used(), exit()), (0, Some(0)));
    carry("100");
    let first = used();
    // Each connection has eight packets and more, and an answer.
    assert!(first > 100 * 8 * 40, "{first}");
    end(daemon);

    let daemon = start(first * 10 / 9);
    let second = used();
    assert!((first..first + first / 10).contains(&second), "the sum goes on: {first}, {second}");
    assert_eq!(exit(), Some(4));
    assert!(text(&bed.ask(&["status", "--budget"])).contains("low"));
    assert!(
        text(&bed.ask(&["check", "--seconds", "1"]))
            .contains("most of the budget of the link to-server is used")
    );
    bed.eventually("the log warns", || bed.log().contains("four fifths of the budget of bytes are used"));
    carry("50");
    assert_eq!(exit(), Some(5));
    assert!(used() > second + first / 4);
    assert!(text(&bed.ask(&["check", "--seconds", "1"])).contains("is used up"));
    carry("10");
    end(daemon);

    let daemon = start(first * 10 / 9);
    assert_eq!(exit(), Some(5), "it is used up from the start");
    bed.eventually("the log says so", || bed.log().contains("the budget of bytes is used up"));
    carry("10");
    end(daemon);
}
