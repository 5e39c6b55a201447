//! `http`: curl fetches a real file of the system from nginx.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::session::{Allowed, Session};
use super::transfer::{EARLIER, limit_seconds};
use super::{Kind, Run, carried, returned};
use crate::build::Lab;
use crate::capture::Trace;
use crate::process::Started;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::workload::Outcome;
use crate::workload::content::hex;
use crate::{baseline, sh};

/// Port of nginx.
const PORT: u16 = 80;
/// Where a file of the distribution is looked for.
const PLACES: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/bin"];
/// A larger one is not wanted: it would be hashed in vain.
const FILE_BYTES_MAX: u64 = 400 << 20;
/// How long nginx may take to start.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How long a download may take.
const PATIENCE_S: u32 = 600;
/// How often it is looked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// So many points of its progress are kept at most.
const PROGRESS_MAX: usize = 2_000;

/// See the module.
#[derive(Default)]
pub(super) struct HttpKind {
    file: Option<PathBuf>,
    hashes: Vec<(u64, String)>,
}

impl Kind for HttpKind {
    fn prepare(&mut self, cells: &[Cell]) {
        let largest = cells.iter().map(|c| c.number("size_bytes", 0)).max().unwrap_or(0);
        self.file = system_file(largest);
    }

    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let missing = ["curl", "nginx"].into_iter().find(|p| sh::find(p).is_none());
        missing.map(|p| format!("{p} is not installed")).or_else(|| baseline::cannot_run(cell))
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let file = self.file.clone().context("no file of the system is large enough")?;
        let size = cell.number("size_bytes", 1_000_000);
        let expected = self.hash(&file, size)?;
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let is_ours = !baseline::start(&mut session.lab, cell, PORT)?;
        nginx(&mut session.lab, &file)?;
        for _ in 0..cell.number(EARLIER, 0) {
            curl(&session.lab, cell, size, run)?;
        }
        session.lab.begin_schedules(scenario.clock, cell)?;
        let outcome = curl(&session.lab, cell, size, run)?;
        let (carried, age_s) = carried::of_lab(cell, &session.lab)?;
        let began_s = age_s - outcome.ended.elapsed().as_secs_f64() - outcome.seconds;
        // Then a perfect sender stands beside it, and no mean of all schedules.
        let comes_and_goes = cell.settings.is_scheduled() || cell.settings.wink_p > 0.0;
        let mut measured = Measured {
            seconds: outcome.seconds,
            bytes: outcome.bytes,
            limit_seconds: limit_seconds(scenario, cell).filter(|_| !comes_and_goes),
            progress: outcome.progress,
            ..Measured::default()
        };
        if comes_and_goes || scenario.watches_shares {
            carried::measure(scenario, cell, run.seed, &carried, Some(began_s), &mut measured);
        }
        returned::measure(cell, &returned::of_lab(cell, &session.lab)?, Some(began_s), &mut measured);
        measured.expect(outcome.sha256 == expected, || {
            format!("SHA-256 {} arrived, {expected} was sent", outcome.sha256)
        });
        measured.metric("connect_seconds", outcome.connect_seconds);
        let sound = measured.failures.len();
        let findings = session.finish(cell, &mut measured)?;
        if !is_ours {
            measured.failures.truncate(sound);
        }
        let local = Some((outcome.local_ip.parse::<std::net::IpAddr>()?, outcome.local_port).into());
        run.trace = Trace::of(&findings, &[Outcome { local, ..Outcome::default() }]);
        Ok(measured)
    }

    fn details(&self) -> Value {
        let hashes = self.hashes.iter().map(|(size, sha)| json!({"bytes": size, "sha256": sha}));
        json!({"file": self.file, "sha256": hashes.collect::<Vec<_>>()})
    }
}

impl HttpKind {
    /// SHA-256 of the beginning of the file.
    fn hash(&mut self, file: &Path, bytes: u64) -> Result<String> {
        if let Some((_, sha)) = self.hashes.iter().find(|(size, _)| *size == bytes) {
            return Ok(sha.clone());
        }
        let sha = sha256(&mut File::open(file)?.take(bytes))?;
        self.hashes.push((bytes, sha.clone()));
        Ok(sha)
    }
}

fn sha256(data: &mut impl Read) -> Result<String> {
    let mut sha = Sha256::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match data.read(&mut chunk)? {
            0 => return Ok(hex(&sha.finalize())),
            n => sha.update(&chunk[..n]),
        }
    }
}

/// The smallest file of the distribution that has so many bytes, else this program itself.
fn system_file(bytes: u64) -> Option<PathBuf> {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for place in PLACES {
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_file()
                && (bytes..FILE_BYTES_MAX).contains(&meta.len())
                && File::open(entry.path()).is_ok()
            {
                found.push((meta.len(), entry.path()));
            }
        }
    }
    found.sort();
    let own = || std::env::current_exe().ok().filter(|p| p.metadata().is_ok_and(|m| m.len() >= bytes));
    found.into_iter().next().map(|(_, path)| path).or_else(own)
}

/// nginx in the server's namespace, serving the file as `/file`. One process, as root: it also
/// works where there is no other user (a user namespace).
fn nginx(lab: &mut Lab, file: &Path) -> Result<()> {
    let directory = lab.directory();
    let config = directory.join("nginx.conf");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|t| format!("{t}_temp_path {}/{t};", directory.display()))
        .join(" ");
    let text = format!(
        "daemon off; master_process off; user root; pid {dir}/nginx.pid; error_log stderr;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; sendfile on; {temporary}\n\
         server {{ listen {PORT}; listen [::]:{PORT}; location = /file {{ alias \"{file}\"; }} }} }}\n",
        dir = directory.display(),
        file = file.display(),
    );
    std::fs::write(&config, text)?;
    let path = config.to_string_lossy().into_owned();
    let nginx = lab.start("server", "nginx", &["-e", "stderr", "-c", &path])?;
    wait_for_port(lab, "server", PORT, &nginx)
}

/// Waits until a port of a node is listened on; an error quotes the program that should.
pub(super) fn wait_for_port(lab: &Lab, node: &str, port: u16, program: &Started) -> Result<()> {
    let end = Instant::now() + START_PATIENCE;
    while !baseline::listens(lab, node, port)? {
        if !program.process.is_alive() || Instant::now() >= end {
            bail!("{} does not start: {}", program.process.what, program.last_words());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

struct Fetched {
    /// When curl was seen to have ended.
    ended: Instant,
    seconds: f64,
    connect_seconds: f64,
    bytes: u64,
    /// Seconds since curl was started, and bytes in its file.
    progress: Vec<(f64, u64)>,
    local_ip: String,
    local_port: u16,
    sha256: String,
}

/// curl in the client's namespace. Its own clock: from before connect() to the last byte.
fn curl(lab: &Lab, cell: &Cell, bytes: u64, run: &Run<'_>) -> Result<Fetched> {
    let v6 = cell.v6();
    let out = lab.directory().join("fetched");
    let address = lab.address("server", v6)?;
    let host = if v6 { format!("[{address}]") } else { address.to_string() };
    let mut command = lab.ns("client").command("curl")?;
    command
        .args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--range"])
        .arg(format!("0-{}", bytes - 1))
        .args(["--max-time", &PATIENCE_S.to_string(), "--write-out"])
        .arg("%{time_total} %{time_connect} %{size_download} %{local_ip} %{local_port}")
        .arg("--output")
        .arg(&out)
        .arg(format!("http://{host}:{PORT}/file"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let shown = run.progress.bytes(bytes);
    let mut live = returned::Live::of(cell, lab);
    let began = Instant::now();
    let mut child = command.spawn().context("curl cannot be started")?;
    let mut progress = vec![(0.0, 0)];
    while child.try_wait()?.is_none() {
        let arrived = out.metadata().map_or(0, |m| m.len());
        shown.count.store(arrived, Ordering::Relaxed);
        if let Some(words) = live.as_mut().and_then(|live| live.words(began.elapsed(), arrived)) {
            shown.say(words);
        }
        note_progress(&mut progress, began.elapsed().as_secs_f64(), arrived);
        std::thread::sleep(LOOK_EVERY);
    }
    let ended = Instant::now();
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("curl: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<_> = words.split_whitespace().collect();
    let [total, connect, size, local_ip, local_port] = words[..] else { bail!("curl said {words:?}") };
    let (seconds, size) = (total.parse()?, size.parse()?);
    note_progress(&mut progress, seconds, size);
    Ok(Fetched {
        ended,
        seconds,
        connect_seconds: connect.parse()?,
        bytes: size,
        progress,
        local_ip: local_ip.into(),
        local_port: local_port.parse()?,
        sha256: sha256(&mut File::open(&out)?)?,
    })
}

/// Of a time in which nothing comes the ends are kept. It is thinned out when it becomes long.
fn note_progress(progress: &mut Vec<(f64, u64)>, at_s: f64, bytes: u64) {
    if let [.., (_, before), (last_s, last)] = progress[..]
        && before == bytes
        && last == bytes
        && last_s <= at_s
    {
        progress.pop();
    }
    progress.push((at_s, bytes));
    if progress.len() > PROGRESS_MAX {
        let mut n = 0;
        progress.retain(|_| {
            n += 1;
            n % 2 == 1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_keeps_the_ends_of_what_stands_still() {
        let mut progress = Vec::new();
        for (at, bytes) in [(0.0, 0), (0.1, 0), (0.2, 0), (0.3, 5), (0.4, 5), (0.5, 5), (0.6, 9)] {
            note_progress(&mut progress, at, bytes);
        }
        assert_eq!(progress, [(0.0, 0), (0.2, 0), (0.3, 5), (0.5, 5), (0.6, 9)]);
        for n in 0..3 * PROGRESS_MAX as u64 {
            note_progress(&mut progress, n as f64, 10 + n);
        }
        assert!(progress.len() <= PROGRESS_MAX && progress[0] == (0.0, 0));
    }

    #[test]
    fn a_file_of_the_system_is_found() {
        let file = system_file(100_000).unwrap();
        assert!(file.metadata().unwrap().len() >= 100_000);
        assert_eq!(system_file(FILE_BYTES_MAX), None);
    }

    #[test]
    fn the_hash_is_the_known_one() {
        let sha = sha256(&mut &b"abc"[..]).unwrap();
        assert_eq!(sha, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
