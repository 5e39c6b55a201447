//! Who asks for metrics, by HTTP. Some are served at once, and each has a bounded time: for its
//! whole request, however slowly it comes, and for taking the whole answer.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farlink_linux::priority::{Priority, start_thread};

use crate::accept::connections;

/// How long a whole request may take to come in.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// How long an asker may take to read the whole answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Askers that are served at once. Others wait until one of these is done.
const AT_ONCE: usize = 8;
/// A request line and headers have room in this.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// What is answered: a status line without the version, and text.
pub type Answer = (&'static str, String);

/// Serves for ever. `answer` is given the path of a GET or HEAD, and `None` for everything else.
pub fn serve(listener: &TcpListener, answer: &Arc<impl Fn(Option<&str>) -> Answer + Send + Sync + 'static>) {
    let places = Arc::new(Places::default());
    let mut accepted = connections(|| listener.accept().map(|(connection, _)| connection));
    loop {
        let place = Places::take(&places);
        let Some(connection) = accepted.next() else { return };
        let answer = Arc::clone(answer);
        let work = move || {
            // Its going away is the asker's own affair.
            let _ = converse(&connection, &*answer);
            drop(place);
        };
        // Where there can be no thread the connection is closed.
        let _ = start_thread("metrics", Priority::Normal, work);
    }
}

/// How many are being served.
#[derive(Default)]
struct Places {
    taken: Mutex<usize>,
    is_free: Condvar,
}

/// One of [`AT_ONCE`], until it is dropped.
struct Place(Arc<Places>);

impl Places {
    fn take(places: &Arc<Self>) -> Place {
        let taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = places.is_free.wait_while(taken, |taken| *taken >= AT_ONCE);
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        Place(Arc::clone(places))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.is_free.notify_one();
    }
}

/// A request.
struct Asked {
    /// Of a GET or HEAD; `None`: it is something else, or no HTTP.
    path: Option<String>,
    /// The answer goes without its text.
    is_head: bool,
}

fn converse(connection: &TcpStream, answer: &impl Fn(Option<&str>) -> Answer) -> io::Result<()> {
    let asked = read_request(connection)?;
    let (code, body) = answer(asked.path.as_deref());
    let mut text = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !asked.is_head {
        text += &body;
    }
    write_within(connection, text.as_bytes())
}

/// What is left until then; an error when nothing is.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(|| io::ErrorKind::TimedOut.into())
}

fn read_request(mut connection: &TcpStream) -> io::Result<Asked> {
    let until = Instant::now() + REQUEST_MAX;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        connection.set_read_timeout(Some(left(until)?))?;
        let n = connection.read(&mut part)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(part.get(..n).unwrap_or_default());
        if let Some(asked) = parse(&head) {
            return Ok(asked);
        }
    }
}

/// `None`: there is more to come.
fn parse(head: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.filter(|_| matches!(request.method, Some("GET" | "HEAD")));
            let path = path.and_then(|path| path.split('?').next()).map(str::to_owned);
            Some(Asked { path, is_head: request.method == Some("HEAD") })
        }
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => None,
        Ok(_) | Err(_) => Some(Asked { path: None, is_head: false }),
    }
}

fn write_within(mut connection: &TcpStream, mut text: &[u8]) -> io::Result<()> {
    let until = Instant::now() + ANSWER_MAX;
    while !text.is_empty() {
        connection.set_write_timeout(Some(left(until)?))?;
        let n = connection.write(text)?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        text = text.get(n..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_in_any_pieces_and_nonsense_is_told() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
        for n in 0..whole.len() {
            assert!(parse(&whole[..n]).is_none(), "{n}");
        }
        assert_eq!(parse(whole).unwrap().path.as_deref(), Some("/metrics"));
        let head = parse(b"HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
        assert!(head.is_head && head.path.as_deref() == Some("/metrics"));
        for nonsense in [&b"POST /metrics HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n"]
        {
            assert!(parse(nonsense).unwrap().path.is_none(), "{nonsense:?}");
        }
        assert!(parse(&vec![b'a'; HEAD_BYTES_MAX]).unwrap().path.is_none(), "an endless word");
        let endless = [&b"GET / HTTP/1.1\r\n"[..], &b"a: b\r\n".repeat(HEADERS_MAX + 1)].concat();
        assert!(parse(&endless).unwrap().path.is_none(), "too many headers");
    }
}
