//! How many SYNs, or answers to them, a gateway may send on in the name of a host: as many as have
//! come, and others of two kinds alone.

use farlink_wire::{Duration, Instant, TcpOptions};

/// What goes out right behind another follows it so soon: a host waits longer before it repeats.
const RIGHT_BEHIND: Duration = Duration::from_secs(1);

/// Those of one side of a connection at one gateway.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syns {
    /// They may go out by what has come.
    may: u32,
    /// They have.
    went: u32,
    /// One went out twice because its link loses, and said so.
    has_left_twice: bool,
    /// The last that went out, if it may have another one behind it.
    last: Option<(Instant, Has)>,
}

/// What one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Has {
    /// Farlink's option.
    Option,
    /// The same, and it says that it leaves twice.
    Both,
}

impl Syns {
    /// One has come. What meets a silent link may leave once more when the link is heard again.
    pub fn note_came(&mut self, is_away: bool) {
        self.may += 1 + u32::from(is_away);
    }

    /// Something else than a SYN has come, maybe of a connection before that had the same ports. A
    /// gateway takes the handshake for over, and the next SYN is a first one.
    pub fn note_over(&mut self) {
        self.has_left_twice = false;
    }

    /// One goes out. One more than has come is the same as the one right before it: without the
    /// option, for a box may drop what has it; or, once, both say that they leave twice.
    ///
    /// # Errors
    ///
    /// It is neither, and none has come for it.
    pub fn check_goes(&mut self, now: Instant, options: &TcpOptions) -> Result<(), String> {
        let has = match (options.has_ours(), says_it_leaves_twice(options)) {
            (false, _) => None,
            (true, false) => Some(Has::Option),
            (true, true) => Some(Has::Both),
        };
        let before = self.last.filter(|(at, _)| now.since(*at) < RIGHT_BEHIND).map(|(_, has)| has);
        let is_second = has == Some(Has::Both) && before == has && !self.has_left_twice;
        if is_second || (has.is_none() && before.is_some()) {
            self.has_left_twice |= is_second;
            self.last = None;
            return Ok(());
        }
        self.last = has.map(|has| (now, has));
        self.went += 1;
        if self.went > self.may {
            return Err(format!("SYN number {} where {} may go", self.went, self.may));
        }
        Ok(())
    }
}

/// A SYN, or the answer to it, says to the next gateway that it leaves twice: type 11 of the frames
/// in its option, bit 1.
fn says_it_leaves_twice(options: &TcpOptions) -> bool {
    let mut body = options.farlink.as_ref().map_or(&[][..], |o| &o.body[..]);
    while let Some((head, rest)) = body.split_first() {
        let length = if head & 15 == 15 { rest.len() } else { usize::from(head & 15) };
        let Some((value, rest)) = rest.split_at_checked(length) else { return false };
        if head >> 4 == 11 {
            return value.first().is_some_and(|flags| flags & 1 != 0);
        }
        body = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::{FARLINK_SYN, FarlinkOption};

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Such a SYN: without the option, or with this behind what every gateway says.
    fn syn(says: Option<&[u8]>) -> TcpOptions {
        let body = |says: &[u8]| [&[0x68, 0, 0, 0, 7, 2, 0, 7, 0], says].concat().into_iter().collect();
        let farlink = says.map(|says| FarlinkOption { form: FARLINK_SYN, body: body(says) });
        TcpOptions { farlink, ..TcpOptions::default() }
    }

    #[test]
    fn one_more_is_without_the_option_or_says_so() {
        let (plain, with, two) = (syn(None), syn(Some(&[])), syn(Some(&[0xb1, 1])));
        let goes = |came: u32, left: &[(u64, &TcpOptions)]| {
            let mut syns = Syns::default();
            (0..came).for_each(|_| syns.note_came(false));
            left.iter().try_for_each(|(ms, s)| syns.check_goes(at(*ms), s))
        };
        assert!(goes(1, &[(0, &with), (1, &plain)]).is_ok());
        assert!(goes(1, &[(0, &two), (1, &two)]).is_ok());
        assert!(goes(2, &[(0, &with), (1_000, &with), (1_001, &plain)]).is_ok());
        for wrong in [
            &[(0, &plain), (1, &plain)][..],
            &[(0, &with), (1, &with)],
            &[(0, &with), (1, &plain), (2, &plain)],
            &[(0, &with), (1_000, &plain)],
            &[(0, &two), (1, &with)],
            &[(0, &two), (1, &two), (2, &two)],
        ] {
            assert!(goes(1, wrong).is_err(), "{}", wrong.len());
        }
        let again = [(0, &two), (1, &two), (1_000, &two), (1_001, &two)];
        assert!(goes(2, &again).is_err(), "once in a connection");
        let mut syns = Syns::default();
        for ms in [0, 1_000] {
            syns.note_came(false);
            assert!([ms, ms + 1].iter().all(|ms| syns.check_goes(at(*ms), &two).is_ok()));
            syns.note_over();
        }
    }
}
