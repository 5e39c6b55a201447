//! The asker's end of the admin socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use super::protocol::{Request, Response};

/// How long a long list is waited for; the server gives up before.
const LONG_PATIENCE: Duration = Duration::from_secs(35);
/// How long a short answer is waited for: the event loop is asked between two batches of packets.
const PATIENCE: Duration = Duration::from_secs(5);
/// A process that was killed takes so long at most to leave its sockets and devices, and one that
/// takes its place is asked by then.
const ENDING_MAX: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Nobody listens at the socket.
#[derive(Debug)]
pub struct NoGateway {
    text: String,
    /// The file of the socket is still there: whoever served it has not ended in order.
    pub was_killed: bool,
}

impl std::fmt::Display for NoGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
impl std::error::Error for NoGateway {}

/// Somebody listens, but does not answer.
#[derive(Debug)]
pub struct Silent(String);

impl std::fmt::Display for Silent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Silent {}

/// The process that had the socket ended before it answered.
#[derive(Debug)]
struct Ended;

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the gateway ended, or was killed, before it answered; its log says more")
    }
}
impl std::error::Error for Ended {}

fn silent(socket: &Path, patience: Duration) -> anyhow::Error {
    Silent(format!(
        "the gateway at {} does not answer within {:.1} s: its process is stopped, or its event loop hangs. It is ended when that lasts, so \
         that the router routes; its log says why",
        socket.display(),
        patience.as_secs_f64()
    ))
    .into()
}

/// Asks the gateway behind a socket. The error is a [`NoGateway`] when none is there, and
/// [`Silent`] when it does not answer.
pub fn ask(socket: &Path, request: &Request) -> anyhow::Result<Value> {
    let patience = if matches!(request, Request::Flows { .. }) { LONG_PATIENCE } else { PATIENCE };
    ask_within(socket, request, patience)
}

/// The same, with so much patience.
pub fn ask_within(socket: &Path, request: &Request, patience: Duration) -> anyhow::Result<Value> {
    let until = Instant::now() + ENDING_MAX;
    loop {
        match ask_once(socket, request, patience) {
            // Whether it was killed, or is started again, shows when its socket is closed.
            Err(error) if error.is::<Ended>() && Instant::now() < until => std::thread::sleep(ASK_AGAIN),
            answered => return answered,
        }
    }
}

fn ask_once(socket: &Path, request: &Request, patience: Duration) -> anyhow::Result<Value> {
    let stream = connect_within(socket, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    (&stream).write_all(&line).context("the gateway closed the admin socket")?;
    let mut answer = String::new();
    match BufReader::new(&stream).read_line(&mut answer) {
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            return Err(silent(socket, patience));
        }
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
            return Err(Ended.into());
        }
        other => other.context("the gateway did not answer")?,
    };
    if answer.is_empty() {
        bail!("the gateway closed the admin socket without an answer");
    }
    let response: Response = serde_json::from_str(&answer).context("the gateway's answer is not JSON")?;
    match response {
        Response { ok: true, result, .. } => Ok(result),
        Response { error, .. } => bail!("{}", error.unwrap_or_else(|| "refused without a reason".to_owned())),
    }
}

/// A process that is stopped takes no connections; once its backlog is full, opening one waits.
fn connect_within(socket: &Path, patience: Duration) -> anyhow::Result<UnixStream> {
    let (done, outcome) = std::sync::mpsc::channel();
    let path = socket.to_owned();
    std::thread::spawn(move || done.send(connect(&path)));
    outcome.recv_timeout(patience).unwrap_or_else(|_| Err(silent(socket, patience)))
}

fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    UnixStream::connect(socket).map_err(|e| {
        let path = socket.display();
        match e.kind() {
            io::ErrorKind::NotFound => NoGateway {
                text: format!(
                    "no gateway answers at {path}; start one with `farlink run`, or name its --socket"
                ),
                was_killed: false,
            }
            .into(),
            io::ErrorKind::ConnectionRefused => NoGateway {
                text: format!(
                    "no gateway answers at {path}, and the one that did has not ended in order: it crashed, or was killed because it \
                     hung; its log says more. The router routes; start it again with `farlink run`"
                ),
                was_killed: true,
            }
            .into(),
            io::ErrorKind::PermissionDenied => anyhow::anyhow!("{path} belongs to another user; ask as root"),
            _ => anyhow::Error::new(e).context(format!("cannot open {path}")),
        }
    })
}
