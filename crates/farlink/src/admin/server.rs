//! The daemon's end of the admin socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use farlink_linux::priority::{Priority, start_thread};

use super::protocol::{Request, Response};
use crate::accept::connections;

/// Requests that may wait for the event loop; at the bound their connections wait.
const CALLS_MAX: usize = 16;
/// Connections served at once. At the bound the one that has been silent longest makes room; while
/// all of them wait for answers further ones are closed.
const CONNECTIONS_MAX: usize = 16;
/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// How long a silent connection is kept, and how long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request on its way to the event loop.
pub struct Call {
    /// What is asked.
    pub request: Request,
    reply: SyncSender<Answer>,
}

/// An answer, which the thread of the asker puts into words.
pub type Answer = Box<dyn FnOnce() -> Response + Send>;

impl Call {
    /// Answers it. The asker may have gone; then nothing happens.
    pub fn answer(self, answer: impl FnOnce() -> Response + Send + 'static) {
        let _ = self.reply.try_send(Box::new(answer));
    }
}

/// The listening socket; its file is removed when it is dropped.
pub struct Server {
    path: PathBuf,
}

/// A socket that listens. Who asks waits until it is served.
pub struct Listening {
    listener: UnixListener,
    server: Server,
}

impl Server {
    /// Opens the socket. Nothing is started yet.
    ///
    /// # Errors
    /// Another gateway answers there, or it cannot be opened.
    pub fn listen(path: &Path) -> anyhow::Result<Listening> {
        let listener = bind(path)?;
        Ok(Listening { listener, server: Self { path: path.to_owned() } })
    }
}

impl Listening {
    /// Starts to serve it. `wake` is called after a request has been put into the channel.
    pub fn serve(self, wake: impl Fn() + Send + Sync + 'static) -> anyhow::Result<(Server, Receiver<Call>)> {
        let Self { listener, server } = self;
        let (calls, receiver) = sync_channel(CALLS_MAX);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(wake);
        let open = Arc::new(Open::default());
        let accept = move || {
            for connection in connections(|| listener.accept().map(|(connection, _)| Arc::new(connection))) {
                if !open.begin(&connection) {
                    continue;
                }
                let (calls, wake) = (calls.clone(), Arc::clone(&wake));
                let (open_here, served) = (Arc::clone(&open), Arc::clone(&connection));
                let serve = move || {
                    // The asker going away is its own affair.
                    let _ = serve(&served, &open_here, &calls, &*wake);
                    open_here.end(&served);
                };
                if start_thread("admin", Priority::Normal, serve).is_err() {
                    open.end(&connection);
                }
            }
        };
        start_thread("admin", Priority::Normal, accept).context("cannot start the admin thread")?;
        Ok((server, receiver))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The connections that are served, the one that was heard last behind the others.
#[derive(Default)]
struct Open(Mutex<Vec<Served>>);

struct Served {
    connection: Arc<UnixStream>,
    /// It has asked, and has no answer yet.
    is_busy: bool,
}

impl Open {
    fn all(&self) -> MutexGuard<'_, Vec<Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for this one, or somebody who is silent makes room.
    fn begin(&self, connection: &Arc<UnixStream>) -> bool {
        let mut all = self.all();
        if all.len() >= CONNECTIONS_MAX {
            let Some(silent) = all.iter().position(|one| !one.is_busy) else { return false };
            // Its thread reads the end.
            let _ = all.remove(silent).connection.shutdown(Shutdown::Both);
        }
        all.push(Served { connection: Arc::clone(connection), is_busy: false });
        true
    }

    /// It asks, or has been answered. Whether it is served still.
    fn heard(&self, connection: &Arc<UnixStream>, is_busy: bool) -> bool {
        let mut all = self.all();
        let Some(place) = all.iter().position(|one| Arc::ptr_eq(&one.connection, connection)) else {
            return false;
        };
        let one = all.remove(place);
        all.push(Served { is_busy, ..one });
        true
    }

    fn end(&self, connection: &Arc<UnixStream>) {
        self.all().retain(|one| !Arc::ptr_eq(&one.connection, connection));
    }
}

/// Fails when another gateway answers at this socket. Removes the file of one that was killed.
pub fn refuse_if_served(path: &Path) -> anyhow::Result<()> {
    match UnixStream::connect(path) {
        Ok(_) => anyhow::bail!(
            "another gateway answers at {}; end it first (`farlink drain`), or give this one another `instance` (its devices and rules) in \
             `[divert]` and another --socket",
            path.display()
        ),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = std::fs::remove_file(path);
        }
        Err(_) => {}
    }
    Ok(())
}

fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).with_context(|| {
            format!("cannot make the directory of the admin socket, {}", directory.display())
        })?;
    }
    refuse_if_served(path)?;
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot open the admin socket {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot protect the admin socket {}", path.display()))?;
    Ok(listener)
}

fn serve(
    connection: &Arc<UnixStream>,
    open: &Open,
    calls: &SyncSender<Call>,
    wake: &dyn Fn(),
) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(&**connection);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? == 0 || !open.heard(connection, true) {
            return Ok(());
        }
        let response = match serde_json::from_str(&line) {
            Ok(request) => ask(request, calls, wake),
            Err(e) => Response::error(format!("not a request: {e}")),
        };
        let mut out = serde_json::to_vec(&response)?;
        out.push(b'\n');
        let mut writer = &**connection;
        writer.write_all(&out)?;
        open.heard(connection, false);
    }
}

fn ask(request: Request, calls: &SyncSender<Call>, wake: &dyn Fn()) -> Response {
    let (reply, answer) = sync_channel::<Answer>(1);
    if calls.send(Call { request, reply }).is_err() {
        return Response::error("the gateway is ending");
    }
    wake();
    match answer.recv_timeout(PATIENCE) {
        Ok(answer) => answer(),
        Err(_) => Response::error("the gateway did not answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::client;
    use super::*;

    fn socket(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("farlink-admin-{}", std::process::id()));
        directory.join(name)
    }

    fn start(path: &Path) -> anyhow::Result<(Server, Receiver<Call>)> {
        Server::listen(path)?.serve(|| {})
    }

    #[test]
    fn requests_reach_the_loop_and_answers_come_back() {
        let path = socket("answers.sock");
        let (server, calls) = start(&path).unwrap();
        let looping = std::thread::spawn(move || {
            for call in calls.iter().take(2) {
                let answer = match &call.request {
                    Request::Set { key, .. } => Response::error(format!("unknown key `{key}`")),
                    request => Response::ok(format!("{request:?}")),
                };
                call.answer(move || answer);
            }
        });
        assert_eq!(client::ask(&path, &Request::Status {}).unwrap(), "Status");
        let set = Request::Set { key: "colour".into(), value: "blue".into() };
        let refused = client::ask(&path, &set).unwrap_err().to_string();
        assert!(refused.contains("unknown key `colour`"), "{refused}");
        looping.join().unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only its owner may ask");
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_in_use_is_not_taken_and_a_dead_one_is() {
        let path = socket("inuse.sock");
        let (server, _calls) = start(&path).unwrap();
        let refused = start(&path).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(refused.contains("another gateway answers"), "{refused}");
        drop(server);
        drop(UnixListener::bind(&path).unwrap()); // leaves its file behind, as a killed process does
        assert!(path.exists());
        start(&path).unwrap();
    }

    /// Whoever holds all connections and says nothing does not keep an operator out.
    #[test]
    fn those_who_are_silent_make_room() {
        let path = socket("silent.sock");
        let (_server, calls) = start(&path).unwrap();
        std::thread::spawn(move || {
            for call in calls {
                call.answer(|| Response::ok("here"));
            }
        });
        let mut silent = Vec::new();
        for n in 0..CONNECTIONS_MAX {
            let mut one = UnixStream::connect(&path).unwrap();
            // Some of them begin to say something, or have asked once.
            match n % 3 {
                0 => {}
                1 => one.write_all(b"{").unwrap(),
                _ => {
                    one.write_all(b"{\"cmd\": \"status\"}\n").unwrap();
                    BufReader::new(&one).read_line(&mut String::new()).unwrap();
                }
            }
            silent.push(one);
        }
        for _ in 0..2 * CONNECTIONS_MAX {
            assert_eq!(client::ask(&path, &Request::Status {}).unwrap(), "here");
        }
    }

    #[test]
    fn nonsense_and_endless_lines_are_answered() {
        let path = socket("nonsense.sock");
        let (_server, _calls) = start(&path).unwrap();
        let mut s = UnixStream::connect(&path).unwrap();
        s.write_all(&vec![b'x'; LINE_BYTES_MAX as usize]).unwrap();
        let mut line = String::new();
        BufReader::new(&s).read_line(&mut line).unwrap();
        let response: Response = serde_json::from_str(&line).unwrap();
        assert!(!response.ok && response.error.unwrap().contains("not a request"));
    }
}
