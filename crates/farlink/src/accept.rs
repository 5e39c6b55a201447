//! Connections as they come to a socket that listens.

use std::io::{self, ErrorKind};
use std::time::Duration;

/// After an error the next attempt waits so long. Where no descriptor is left each one would fail
/// at once, for ever.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections that `accept` gives, for ever.
pub fn connections<C>(mut accept: impl FnMut() -> io::Result<C>) -> impl Iterator<Item = C> {
    std::iter::from_fn(move || {
        loop {
            match accept() {
                Ok(connection) => return Some(connection),
                // It has gone before it was taken.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn without_descriptors_it_waits_and_does_not_spin() {
        let mut answers = vec![Ok(7), Err(libc::ECONNABORTED), Err(libc::EMFILE), Err(libc::ENFILE)];
        answers.extend([Err(libc::EMFILE), Ok(5)]);
        let began = Instant::now();
        let mut accepted = connections(move || answers.pop().unwrap().map_err(io::Error::from_raw_os_error));
        assert_eq!(accepted.next(), Some(5));
        assert!(began.elapsed() < PAUSE, "nothing is waited for");
        assert_eq!(accepted.next(), Some(7));
        assert!(began.elapsed() >= 3 * PAUSE, "{:?}", began.elapsed());
    }
}
