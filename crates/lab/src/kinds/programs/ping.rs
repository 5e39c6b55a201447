//! Pings: ICMP echo requests by the kernel's own ICMP sockets.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::FromRawFd;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::downloads::LOOK_EVERY;
use crate::netns::Ns;

/// How often one leaves.
const EVERY: Duration = Duration::from_millis(50);
/// What was sent last has so long to be answered.
const SETTLE: Duration = Duration::from_secs(2);
/// As `ping` sends.
const PAYLOAD_BYTES: usize = 56;
const HEADER_BYTES: usize = 8;
/// Echo request and reply (RFC 792, RFC 4443 section 4).
const TYPES: (u8, u8) = (8, 0);
const TYPES_V6: (u8, u8) = (128, 129);

/// Sends to one host.
pub(super) struct Pinger {
    socket: UdpSocket,
    types: (u8, u8),
}

impl Pinger {
    /// From a namespace.
    pub(super) fn open(from: &Ns, to: IpAddr) -> Result<Self> {
        // A new namespace lets nobody have such a socket.
        from.sysctls(&[("net.ipv4.ping_group_range".into(), "0 2147483647".into())])?;
        let (family, protocol, types) = match to {
            IpAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_ICMP, TYPES),
            IpAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_ICMPV6, TYPES_V6),
        };
        let socket = from.enter(|| {
            // SAFETY: a plain system call.
            let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, protocol) };
            if fd < 0 {
                return Err(std::io::Error::last_os_error()).context("an ICMP socket");
            }
            // SAFETY: the descriptor is new, and owned by the socket from here on. It is a datagram
            // socket like those of UDP.
            Ok(unsafe { UdpSocket::from_raw_fd(fd) })
        })?;
        socket.connect((to, 0))?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Self { socket, types })
    }

    /// Sends for so long, and says how many seconds each one took.
    pub(super) fn ping(&self, lasts: Duration) -> Vec<Option<f64>> {
        let (began, sent_s) = (Instant::now(), Mutex::new(Vec::new()));
        let sent_s = &sent_s;
        let mut answered_s = Vec::new();
        thread::scope(|scope| {
            scope.spawn(move || self.send_all(began, lasts, sent_s));
            let mut bytes = [0; 256];
            while began.elapsed() < lasts + SETTLE {
                let Ok(n) = self.socket.recv(&mut bytes) else { continue };
                let now_s = began.elapsed().as_secs_f64();
                if let Some(number) = number_of(&bytes[..n], self.types.1) {
                    let length = answered_s.len().max(number + 1);
                    answered_s.resize(length, None);
                    answered_s[number].get_or_insert(now_s);
                }
            }
        });
        let sent_s = sent_s.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = answered_s.into_iter().chain(std::iter::repeat(None));
        sent_s
            .iter()
            .zip(answered)
            .map(|(sent, answered): (&f64, Option<f64>)| Some(answered? - sent))
            .collect()
    }

    fn send_all(&self, began: Instant, lasts: Duration, sent_s: &Mutex<Vec<f64>>) {
        let many = u16::try_from(lasts.as_millis() / EVERY.as_millis()).unwrap_or(u16::MAX);
        for number in 0..many {
            thread::sleep((EVERY * u32::from(number)).saturating_sub(began.elapsed()));
            let request = request(number, self.types.0);
            sent_s.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed().as_secs_f64());
            // One that cannot be sent is not answered.
            let _ = self.socket.send(&request);
        }
    }
}

/// The kernel puts identifier and checksum in.
fn request(number: u16, kind: u8) -> [u8; HEADER_BYTES + PAYLOAD_BYTES] {
    let mut bytes = [0; HEADER_BYTES + PAYLOAD_BYTES];
    bytes[0] = kind;
    bytes[6..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(reply: &[u8], kind: u8) -> Option<usize> {
    let number: [u8; 2] = reply.get(6..8)?.try_into().ok()?;
    (reply[0] == kind).then(|| usize::from(u16::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replies_are_answers() {
        let mut bytes = request(513, TYPES.0);
        assert_eq!(number_of(&bytes, TYPES.1), None);
        bytes[0] = TYPES.1;
        assert_eq!(number_of(&bytes, TYPES.1), Some(513));
        assert_eq!(number_of(&bytes[..7], TYPES.1), None);
    }
}
