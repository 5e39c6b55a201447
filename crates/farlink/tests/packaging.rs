//! What packages contain, as far as it can be looked at without making one (`packaging/try.sh` does
//! that): a service that waits for its configuration, and a list of files that are there.

use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The value of a key of the unit, its continued lines in one.
fn unit(key: &str) -> String {
    let text = read("packaging/farlink.service").replace("\\\n", "");
    let start = format!("{key}=");
    text.lines().find_map(|l| l.strip_prefix(&start)).unwrap().to_owned()
}

/// Whether the unit's condition holds for a configuration: whether the service starts with it.
fn starts_with(configuration: &str) -> bool {
    let file = std::env::temp_dir().join(format!("farlink-condition-{}.toml", std::process::id()));
    std::fs::write(&file, configuration).unwrap();
    let condition = unit("ExecCondition").replace("/etc/farlink/farlink.toml", file.to_str().unwrap());
    let command = condition.strip_prefix("/bin/sh -c '").and_then(|c| c.strip_suffix('\'')).unwrap();
    let status = Command::new("/bin/sh").args(["-c", command]).output().unwrap().status;
    std::fs::remove_file(file).unwrap();
    status.success()
}

/// The example names no interface: a package that nobody has configured changes nothing. As soon as
/// one is named, in any way that TOML has for it, the service starts.
#[test]
fn the_service_waits_until_an_interface_is_named() {
    let example = read("packaging/farlink.toml");
    assert!(!starts_with(&example));
    assert!(!starts_with("[ordinary]\ncc = \"cubic\"\n[[rule]]\ninterfaces = [\"lan0\"]\n"));
    assert!(starts_with(&example.replace("#[[link]]", "[[link]]")));
    assert!(starts_with(&example.replace("#[[interface]]", "[[interface]]")));
    for way in ["  [[ link ]]\n", "link = [{ interface = \"sat0\" }]\n", "interface=[{ name = \"lan0\" }]\n"]
    {
        assert!(starts_with(way), "{way}");
        assert!(!starts_with(&format!("#{way}")), "{way}");
    }
}

/// Debian 12 has systemd 252. What it does not know it ignores, so that nothing here may rest on
/// it. A limit of starts would leave a gateway down for good that had to wait for something at
/// boot.
#[test]
fn the_unit_starts_it_again_with_systemd_252() {
    assert_eq!((unit("StartLimitIntervalSec"), unit("Restart")), ("0".to_owned(), "on-failure".to_owned()));
    let service = read("packaging/farlink.service");
    for younger in ["RestartSteps=", "RestartMaxDelaySec="] {
        assert!(!service.contains(&format!("\n{younger}")), "{younger}: systemd 254");
    }
    let file = root().join("packaging/farlink.service");
    let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(file).output() else {
        return println!("left out: systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("gnoring"), "{said}");
}

/// What systemd takes from the service, by its own count. It needs no systemd that runs.
#[test]
fn the_unit_leaves_the_service_little() {
    let file = root().join("packaging/farlink.service");
    let mut command = Command::new("systemd-analyze");
    let Ok(output) = command.args(["security", "--offline=true", "--no-pager"]).arg(file).output() else {
        return println!("left out: systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let Some((_, exposure)) = said.split_once("Overall exposure level for farlink.service: ") else {
        return println!("left out: this systemd-analyze looks at no files (250)");
    };
    let exposure: f64 = exposure.split_whitespace().next().unwrap().parse().unwrap();
    assert!(exposure <= 2.0, "{said}");
}

/// The init script of OpenWrt asks the same.
#[test]
fn openwrt_asks_the_same_as_systemd() {
    let ours = unit("ExecCondition");
    let pattern = ours.split('"').nth(1).unwrap();
    let init = read("packaging/openwrt/farlink/files/farlink.init");
    assert!(init.contains(&format!("grep -Eq \"{pattern}\"")), "{pattern}");
}

/// What procd is told by `start` and `reload` of the init script with this configuration. OpenWrt's
/// rc.common opens a service, calls `start_service`, and closes the service.
fn procd_is_told(configuration: &str) -> String {
    let file = std::env::temp_dir().join(format!("farlink-procd-{}.toml", std::process::id()));
    std::fs::write(&file, configuration).unwrap();
    let init = read("packaging/openwrt/farlink/files/farlink.init")
        .replace("CONFIG=/etc/farlink/farlink.toml", &format!("CONFIG={}", file.display()))
        .replace("/usr/bin/farlink", env!("CARGO_BIN_EXE_farlink"))
        .replace("mkdir -p /var/run/farlink", ":");
    let script = format!(
        "logger() {{ cat >/dev/null; }}
        procd_open_instance() {{ echo instance; }}
        procd_set_param() {{ :; }}
        procd_close_instance() {{ :; }}
        {init}
        start_service
        echo closed"
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    std::fs::remove_file(file).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A service that is closed without an instance ends the process that runs. So a reload with a
/// wrong configuration must not come that far.
#[test]
fn a_wrong_configuration_leaves_what_procd_runs_alone() {
    let good = "[[link]]\ninterface = \"sat0\"\nrate = \"8 Mbit/s\"\n";
    assert_eq!(procd_is_told(good), "instance\nclosed\n");
    assert_eq!(procd_is_told(&good.replace("Mbit/s", "furlongs")), "");
}

/// The daemon speaks JSON with nft (`linux/src/divert/nft.rs`). OpenWrt has an nft that does not.
#[test]
fn packages_require_an_nft_that_speaks_json() {
    let recipe = read("packaging/openwrt/farlink/Makefile");
    let requires = recipe.lines().find(|line| line.trim_start().starts_with("DEPENDS:=")).unwrap();
    assert!(requires.split_whitespace().any(|package| package == "+nftables-json"), "{requires}");
}

/// Each line of the list names a file that is there, or says that it may be missing.
#[test]
fn what_packages_contain_is_there() {
    let list = read("packaging/files");
    let lines: Vec<Vec<_>> =
        list.lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().collect()).collect();
    assert!(lines.len() >= 5);
    for line in lines {
        let (source, destination, flags) = (line[1], line[2], &line[3..]);
        assert!(root().join(source).exists() || flags.contains(&"maybe"), "{source}");
        assert!(!destination.starts_with('/'), "{destination}");
        assert_eq!(destination.starts_with("etc/"), flags.contains(&"config"), "{destination}");
        assert!(flags.iter().all(|f| ["config", "maybe"].contains(f)), "{flags:?}");
    }
}

/// Scripts that run on machines of others are read by the shell that they name.
#[test]
fn maintainer_scripts_are_shell() {
    for script in ["debian/postinst", "debian/prerm", "debian/postrm", "openwrt/farlink/files/farlink.init"] {
        let path = root().join("packaging").join(script);
        let output = Command::new("sh").arg("-n").arg(&path).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
