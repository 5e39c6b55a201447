//! What tests of a boot ask of the bed: connections that are split, and what stands of interfaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::bed::{Bed, says, skipped, terminate};

const METHODS: [&str; 2] = ["policy", "bump"];
const BYTES: usize = 300_000;

/// The method cannot be used here.
fn is_refused(test: &str, method: &str) -> bool {
    let refused = method == "bump" && farlink_linux::bump::Bump::load(&[6]).is_err();
    refused && says(test, "there can be no bump here")
}

impl Bed {
    /// A daemon with this configuration, by this method.
    pub fn boot(&self, method: &str, configuration: &str) -> Child {
        self.configure(configuration);
        self.start(&["--config", self.file().to_str().unwrap(), "--divert", method])
    }

    pub fn file(&self) -> std::path::PathBuf {
        self.directory.join("farlink.toml")
    }

    pub fn configure(&self, configuration: &str) {
        std::fs::write(self.file(), configuration).unwrap();
    }

    pub fn count(&self, at: &str) -> u64 {
        self.status().pointer(at).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Datagrams pass through the gateway, or take the ordinary way.
    pub fn takes_datagrams(&self, what: &str, wanted: bool) {
        let socket = self.client.run(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap();
        self.eventually(what, || {
            let seen = self.count("/traffic/packets_other");
            socket.send_to(&[7; 100], "10.73.2.2:9").unwrap();
            std::thread::sleep(Duration::from_millis(50));
            (self.count("/traffic/packets_other") > seen) == wanted
        });
    }

    /// A connection that carries something, there and back.
    pub fn transfer(&self) -> std::io::Result<()> {
        let at = "10.73.2.2:0".parse::<SocketAddr>().unwrap();
        let listener = self.server.run(|| Ok(TcpListener::bind(at))).unwrap()?;
        let to = listener.local_addr()?;
        let server = std::thread::spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut all = vec![0; BYTES];
            stream.read_exact(&mut all)?;
            stream.write_all(&all)
        });
        let patience = Duration::from_secs(5);
        let mut stream = self.client.run(|| Ok(TcpStream::connect_timeout(&to, patience))).unwrap()?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let sent: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        stream.write_all(&sent)?;
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        assert!(got == sent, "{} bytes came back, or others", got.len());
        server.join().unwrap()
    }

    /// Connections are split now, or will be when the network has settled.
    pub fn splits(&self, what: &str) {
        self.eventually(what, || {
            let before = self.count("/engine/counters/flows_split");
            self.transfer().is_ok() && self.count("/engine/counters/flows_split") == before + 1
        });
        // The guard looks four times a second.
        self.eventually(what, || self.status().pointer("/diversion/in_place") == Some(&Value::Bool(true)));
        let status = self.status();
        assert_eq!(
            status.pointer("/diversion/ends").and_then(Value::as_u64),
            Some(0),
            "{what}: {}",
            self.log()
        );
    }

    pub fn ends(&self, mut daemon: Child, before: &str) {
        terminate(&daemon);
        assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", self.log());
        self.eventually("nothing is left", || self.own() == before);
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }

    /// What the daemon could leave behind.
    pub fn own(&self) -> String {
        self.in_gateway(
            "ip rule; ip -6 rule; ip route show table all | grep farlink; nft list ruleset; ls /sys/class/net | grep farlink",
        )
    }

    /// The state of an interface, as `farlink status` has it.
    pub fn state_of(&self, interface: &str) -> Option<(bool, bool)> {
        let status = self.status();
        let all = status.pointer("/interfaces")?.as_array()?.clone();
        let one = all.iter().find(|i| i["name"] == interface)?;
        Some((one["present"].as_bool()?, one["up"].as_bool()?))
    }
}

/// Plays a boot with both methods.
pub fn by_both_methods(test: &str, play: impl Fn(&str)) {
    if skipped(test) {
        return;
    }
    for method in METHODS {
        if !is_refused(test, method) {
            play(method);
        }
    }
}
