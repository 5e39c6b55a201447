//! What the daemon takes from itself when it has begun, however it was started: files, ports and
//! system calls that it does not need. What has to be done later all the same, its helper does.

use std::net::{TcpListener, UdpSocket};
use std::path::Path;

use farlink_linux::confine::{Files, refuse_calls};
use farlink_linux::divert::Severity;
use farlink_linux::driver::{LogTarget, Troubles};

use crate::config::{Confinement, Settings};

/// The kernel has no means for it.
const UNCONFINED: &str = "unconfined";
/// The log says what is refused.
const TRIAL: &str = "FARLINK_TRY_CONFINEMENT";

/// From here on this thread, and all that it starts, has what these settings need, and no more.
/// Where that cannot be had it is a finding.
pub fn confine(settings: &Settings, troubles: &Troubles) {
    let mut missing = Vec::new();
    if settings.confinement != Confinement::Off {
        missing.extend(files(settings).use_no_others().err());
    }
    if settings.confinement == Confinement::Full {
        missing.extend(refuse_calls().err());
    }
    if !missing.is_empty() {
        let text = "the daemon is less confined than it could be: it has its user's files, or system calls that it does not need. \
                    Traffic is not affected";
        troubles.begin(UNCONFINED, Severity::Note, text, &missing.join("; "));
    }
    if std::env::var_os(TRIAL).is_some() {
        try_out();
    }
}

/// The configuration may be replaced, and so may what the daemon writes: so directories are named.
fn files(settings: &Settings) -> Files {
    let mut files = Files::of_machine();
    if let Some(file) = &settings.file {
        let target = std::fs::canonicalize(file).ok();
        files.read.extend([Some(file.as_path()), target.as_deref()].into_iter().flatten().map(directory_of));
    }
    let log = settings.connection_log.as_ref().and_then(|log| match &log.to {
        LogTarget::File(path) => Some(path.as_path()),
        LogTarget::Stderr => None,
    });
    let written =
        [Some(settings.socket.as_path()), Some(settings.journal.as_path()), settings.found.as_deref(), log];
    for directory in written.into_iter().flatten().map(directory_of) {
        // One that cannot be made is told of by who writes there.
        let _ = std::fs::create_dir_all(&directory);
        files.write.push(directory);
    }
    files
}

fn directory_of(file: &Path) -> std::path::PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Does what nobody should be able to do with this process, and tells what came of it.
fn try_out() {
    let anywhere = "127.0.0.1:0";
    let tried: [(&str, std::io::Result<()>); 6] = [
        ("reading /etc/passwd", std::fs::read("/etc/passwd").map(drop)),
        ("writing a file in /var/tmp", try_file(Path::new("/var/tmp"))),
        ("running a program", std::process::Command::new("true").status().map(drop)),
        ("binding a TCP port", TcpListener::bind(anywhere).map(drop)),
        ("binding a UDP port", UdpSocket::bind(anywhere).map(drop)),
        (
            "a socket of packets",
            rustix::net::socket(rustix::net::AddressFamily::PACKET, rustix::net::SocketType::DGRAM, None)
                .map(drop)
                .map_err(Into::into),
        ),
    ];
    for (what, outcome) in tried {
        match outcome {
            Ok(()) => tracing::warn!("tried: {what}: it can be done"),
            Err(error) => tracing::info!("tried: {what}: refused ({:?})", error.kind()),
        }
    }
}

fn try_file(directory: &Path) -> std::io::Result<()> {
    let path = directory.join(format!("farlink-try-{}", std::process::id()));
    std::fs::write(&path, "")?;
    std::fs::remove_file(&path)
}
