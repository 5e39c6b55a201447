//! A small process that does what the daemon may not do any more: it starts the programs that are
//! needed while it runs, and listens at the address of metrics later, where that
//! was refused at the start. It has CAP_NET_ADMIN, and writes no files.
//!
//! It is asked over a socket. Each question has a stream of its own, which is handed over, and a
//! thread. It ends when nobody can ask any more.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::listener::listen_at;
use crate::priority::{Priority, start_thread};
use crate::programs::{Asked, Output};
use crate::{caps, confine};

/// Questions that are worked on at once.
const AT_ONCE: usize = 16;
/// A question, and an answer, are no longer than this: the rules of a firewall may be many.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Descriptors of a question.
const DESCRIPTORS_MAX: usize = 3;
/// So long a program may take to end when it is told to.
const END_MAX: Duration = Duration::from_secs(2);
/// Ports below take a privilege (CAP_NET_BIND_SERVICE).
const FREE_PORTS: u16 = 1024;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// A program to its end.
    Run = b'r',
    /// A program that goes on, with the ends of two pipes.
    Talk = b't',
    /// A socket that listens.
    Listen = b'l',
}

/// The answer, or the error number.
#[derive(Debug, Serialize, Deserialize)]
enum Reply<T> {
    Done(T),
    Failed(i32),
}

impl<T> Reply<T> {
    fn of(outcome: io::Result<T>) -> Self {
        outcome.map_or_else(|e| Self::Failed(e.raw_os_error().unwrap_or(libc::EIO)), Self::Done)
    }
    fn outcome(self) -> io::Result<T> {
        match self {
            Self::Done(done) => Ok(done),
            Self::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The daemon's end.
#[derive(Debug)]
pub struct Helper {
    socket: OwnedFd,
}

impl Helper {
    /// Starts the process. `listen_at`: the only address at which it listens. Call before any
    /// thread is started, and before anything is opened that must vanish with this process.
    ///
    /// # Errors
    /// There can be no process.
    pub fn start(listen_at: Option<SocketAddr>) -> Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .context(|| "making a socket for the helper".to_owned())?;
        // SAFETY: the calling process has one thread (see above), so the child may use everything
        // as it finds it.
        match unsafe { libc::fork() } {
            -1 => Err(Error::last_os("starting the helper")),
            0 => {
                drop(socket);
                serve(&theirs, listen_at)
            }
            _ => Ok(Self { socket }),
        }
    }

    /// Asks, with a stream for question and answer.
    fn ask(&self, kind: Kind, with: &[OwnedFd]) -> io::Result<UnixStream> {
        let (stream, theirs) = UnixStream::pair()?;
        let all: Vec<BorrowedFd<'_>> =
            [theirs.as_fd()].into_iter().chain(with.iter().map(AsFd::as_fd)).collect();
        send(self.socket.as_fd(), kind as u8, &all)?;
        Ok(stream)
    }

    pub(crate) fn run(&self, asked: &Asked) -> io::Result<Output> {
        let stream = self.ask(Kind::Run, &[])?;
        write_line(&stream, asked)?;
        read_line::<Reply<Output>>(&stream)?.outcome()
    }

    pub(crate) fn talk(&self, asked: &Asked, input: OwnedFd, output: OwnedFd) -> io::Result<Talk> {
        let stream = self.ask(Kind::Talk, &[input, output])?;
        write_line(&stream, asked)?;
        read_line::<Reply<()>>(&stream)?.outcome()?;
        Ok(Talk { stream })
    }

    /// Listens at the address that was named at the start.
    ///
    /// # Errors
    /// As of [`listen_at`].
    pub fn listen(&self) -> io::Result<TcpListener> {
        Ok(take_socket(&self.ask(Kind::Listen, &[])?)?.into())
    }
}

/// The answer of [`hand_over`].
fn take_socket(stream: &UnixStream) -> io::Result<OwnedFd> {
    let (errno, sockets) = receive(stream.as_fd())?.ok_or(io::ErrorKind::UnexpectedEof)?;
    sockets.into_iter().next().ok_or_else(|| io::Error::from_raw_os_error(errno.into()))
}

/// A program that goes on at the helper.
#[derive(Debug)]
pub(crate) struct Talk {
    stream: UnixStream,
}

impl Talk {
    /// Ends it, and waits for that.
    pub(crate) fn end(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(END_MAX));
        let _ = self.stream.read(&mut [0]);
    }
}

/// The life of the helper.
fn serve(socket: &OwnedFd, address: Option<SocketAddr>) -> ! {
    let _ = rustix::thread::set_name(c"farlink-helper");
    // What ends the daemon's group is not meant for it: it is needed until the end.
    let _ = rustix::process::setsid();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a plain system call with constants.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let _ = caps::keep_of_helper(address.is_some_and(|address| address.port() < FREE_PORTS));
    let _ = confine::write_nothing();
    let at_once = Arc::new(AtomicUsize::new(0));
    while let Ok(Some((kind, descriptors))) = receive(socket.as_fd()) {
        if at_once.fetch_add(1, Ordering::Relaxed) >= AT_ONCE {
            at_once.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let counted = Arc::clone(&at_once);
        let work = move || {
            // Who asks hears of it: the stream is closed.
            let _ = answer(kind, descriptors, address);
            counted.fetch_sub(1, Ordering::Relaxed);
        };
        if start_thread("helper", Priority::Normal, work).is_err() {
            at_once.fetch_sub(1, Ordering::Relaxed);
        }
    }
    // SAFETY: ends the process without running anything of the daemon.
    unsafe { libc::_exit(0) }
}

fn answer(kind: u8, descriptors: Vec<OwnedFd>, address: Option<SocketAddr>) -> io::Result<()> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(io::ErrorKind::InvalidInput);
    let stream = UnixStream::from(next()?);
    match kind {
        kind if kind == Kind::Run as u8 => {
            let asked: Asked = read_line(&stream)?;
            write_line(&stream, &Reply::of(asked.run_here()))
        }
        kind if kind == Kind::Talk as u8 => {
            let asked: Asked = read_line(&stream)?;
            let started = asked.start_here(next()?, next()?);
            match started {
                Ok(child) => {
                    write_line(&stream, &Reply::Done(()))?;
                    attend(child, &stream)
                }
                Err(error) => write_line(&stream, &Reply::<()>::of(Err(error))),
            }
        }
        kind if kind == Kind::Listen as u8 => {
            hand_over(&stream, listen_at(address.ok_or(io::ErrorKind::InvalidInput)?))
        }
        _ => Ok(()),
    }
}

/// A socket, or the error number: all of bind(2) and listen(2) have room in a byte.
fn hand_over(stream: &UnixStream, socket: io::Result<impl AsFd>) -> io::Result<()> {
    match socket {
        Ok(socket) => send(stream.as_fd(), 0, &[socket.as_fd()]),
        Err(error) => {
            let errno = error.raw_os_error().and_then(|errno| u8::try_from(errno).ok());
            send(stream.as_fd(), errno.unwrap_or(libc::EIO as u8), &[])
        }
    }
}

/// Waits until the program ends, or nobody talks with it any more; then ends it.
fn attend(mut child: Child, mut stream: &UnixStream) -> io::Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)).ok_or(io::ErrorKind::NotFound)?;
    if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
        let mut ready =
            [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&stream, PollFlags::IN | PollFlags::HUP)];
        while poll(&mut ready, None).is_err_and(|e| e == rustix::io::Errno::INTR) {}
    } else {
        // A kernel without (before Linux 5.3).
        let _ = stream.read(&mut [0]);
    }
    let _ = child.kill();
    child.wait()?;
    stream.write_all(b".")
}

/// A byte, with descriptors.
fn send(socket: BorrowedFd<'_>, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::io::retry_on_intr(|| {
        sendmsg(socket, &[IoSlice::new(&[byte])], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// The same; `None`: nobody can send any more.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            descriptors.extend(all);
        }
    }
    Ok((received.bytes > 0).then_some((byte[0], descriptors)))
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<T: for<'de> Deserialize<'de>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::other("the helper has ended, or has too much to do"));
    }
    Ok(serde_json::from_slice(&line)?)
}
