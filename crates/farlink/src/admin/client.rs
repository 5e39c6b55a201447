//! The asker's end of the admin socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use super::protocol::{Request, Response};

/// How long an answer is waited for; the server gives up before.
const PATIENCE: Duration = Duration::from_secs(35);

/// Nobody listens at the socket.
#[derive(Debug)]
pub struct NoGateway(String);

impl std::fmt::Display for NoGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for NoGateway {}

/// Asks the gateway behind a socket. The error is a [`NoGateway`] when none is there.
pub fn ask(socket: &Path, request: &Request) -> anyhow::Result<Value> {
    let stream = connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    (&stream).write_all(&line).context("the gateway closed the admin socket")?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).context("the gateway did not answer")?;
    if answer.is_empty() {
        bail!("the gateway closed the admin socket without an answer");
    }
    let response: Response = serde_json::from_str(&answer).context("the gateway's answer is not JSON")?;
    match response {
        Response { ok: true, result, .. } => Ok(result),
        Response { error, .. } => bail!("{}", error.unwrap_or_else(|| "refused without a reason".to_owned())),
    }
}

fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    UnixStream::connect(socket).map_err(|e| {
        let path = socket.display();
        match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => NoGateway(format!(
                "no gateway answers at {path}; start one with `farlink run`, or name its --socket"
            ))
            .into(),
            io::ErrorKind::PermissionDenied => anyhow::anyhow!("{path} belongs to another user; ask as root"),
            _ => anyhow::Error::new(e).context(format!("cannot open {path}")),
        }
    })
}
