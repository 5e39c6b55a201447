//! Many lives of one 4-tuple, floods, and what else makes it hard to say which connection a segment
//! belongs to.

use super::*;

const LIVES: u32 = 1000;
/// Bytes that differ from place to place.
static BYTES: [u8; 4096] = {
    let mut bytes = [0; 4096];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = (i * i / 7 + i) as u8;
        i += 1;
    }
    bytes
};

fn payload(life: u32, len: u32) -> &'static [u8] {
    &BYTES[life as usize..][..len as usize]
}

/// One life: where its sequence spaces begin (beyond those of the first one), and how much flows.
#[derive(Clone, Copy)]
struct Life {
    number: u32,
    client: u32,
    server: u32,
    asked: u32,
    answered: u32,
}

impl Life {
    fn first() -> Self {
        Self { number: 0, client: 0, server: 0, asked: 100, answered: 50 }
    }

    /// The client's ISN runs with a clock, the server's goes on just beyond its TIME-WAIT state or
    /// with a clock, too.
    fn next(self) -> Self {
        let n = self.number + 1;
        let jump = if n.is_multiple_of(3) { 65_537 } else { 1_300_000 + n * 7919 };
        Self {
            number: n,
            client: self.client.wrapping_add(700_000 + n * 104_729 % 5_000_000),
            server: self.server.wrapping_add(self.answered + jump),
            asked: 100 + n % 700,
            answered: 50 + n % 900,
        }
    }

    fn moved(self, s: Seg) -> Seg {
        let (own, peer) = if s.from_client { (self.client, self.server) } else { (self.server, self.client) };
        Seg { seq: s.seq.wrapping_add(own), ack: s.ack.wrapping_add(peer), ..s }
    }

    fn request(self) -> Seg {
        self.moved(Seg::new(true, Flags::ACK, 1, 1).with(payload(self.number, self.asked)))
    }

    fn answer(self) -> Seg {
        let seg = Seg::new(false, Flags::ACK, 1, 1 + self.asked);
        self.moved(seg.with(payload(self.number + 1000, self.answered)))
    }

    /// The client's segment without payload after all is there.
    fn last(self, flags: Flags) -> Seg {
        self.moved(Seg::new(true, flags, 1 + self.asked, 1 + self.answered))
    }

    fn server_fin(self) -> Seg {
        self.moved(Seg::new(false, Flags::ACK | Flags::FIN, 1 + self.answered, 1 + self.asked))
    }

    fn ends_by_reset(self) -> bool {
        self.number.is_multiple_of(2)
    }

    /// Through a gateway that acknowledges early and cuts anew, while copies of the life before
    /// arrive late.
    fn run(self, before: Option<Self>, checker: &mut Checker) {
        take(checker, self.moved(syn()), true, true);
        if let Some(old) = before {
            take(checker, old.answer(), true, true);
        }
        for segment in [self.moved(syn_ack()), self.moved(ack())] {
            take(checker, segment, true, true);
        }
        if let Some(old) = before {
            let late = if old.ends_by_reset() { Flags::RST | Flags::ACK } else { Flags::ACK };
            take(checker, old.last(late), true, true);
            take(checker, old.request(), true, true);
        }
        take(checker, self.request(), true, false);
        take(checker, self.moved(Seg::new(false, Flags::ACK, 1, 1 + self.asked)), false, true);
        let (one, two) = payload(self.number, self.asked).split_at(40);
        take(checker, Seg { payload: one, ..self.request() }, false, true);
        let rest = self.moved(Seg::new(true, Flags::ACK, 41, 1)).with(two);
        take(checker, rest, false, true);
        take(checker, self.answer(), true, true);
        if self.ends_by_reset() {
            // The gateway sends it with the numbers of its own leg.
            take(checker, self.last(Flags::RST | Flags::ACK), true, false);
            let reset = Seg::new(true, Flags::RST, 1 + self.asked, 0);
            take(checker, self.moved(reset), false, true);
        } else {
            take(checker, self.last(Flags::ACK), true, true);
            take(checker, self.server_fin(), true, true);
        }
    }
}

/// A thousand lives, with something that the gateway does in the middle of one.
fn lives(wrong: impl Fn(Life, &mut Checker)) -> Findings {
    let mut checker = checker();
    let mut before = None;
    let mut life = Life::first();
    for number in 0..LIVES {
        life.run(before, &mut checker);
        if number == LIVES / 2 + 1 {
            wrong(life, &mut checker);
        }
        before = Some(life);
        life = life.next();
    }
    checker.finish(0)
}

#[test]
fn a_thousand_lives_of_one_name_are_told_apart() {
    let findings = lives(|_, _| ());
    assert!(findings.failures.is_empty(), "{:?}", findings.failures);
    assert_eq!(findings.flows, u64::from(LIVES));
}

#[test]
fn wrongs_are_found_in_one_life_of_a_thousand() {
    let other = |life: Life| Seg { payload: payload(life.number + 7, life.answered), ..life.answer() };
    expect_failure(
        &lives(|life, c| {
            // Another life in between, of which only this answer is wrong.
            let far = |isn: u32| isn.wrapping_add(40_000_000);
            let next = Life { client: far(life.client), server: far(life.server), ..life };
            for segment in [next.moved(syn()), next.moved(syn_ack()), next.moved(ack())] {
                take(c, segment, true, true);
            }
            take(c, next.answer(), true, false);
            take(c, other(next), false, true);
        }),
        "other bytes left",
    );
    // The life before the one in the middle was reset by its client, this one was not.
    let reset = |life: Life, from_client| {
        let (seq, ack) = if from_client { (1 + life.asked, 0) } else { (1 + life.answered, 0) };
        life.moved(Seg::new(from_client, Flags::RST, seq, ack))
    };
    let made = "a RST left in a connection that no host reset";
    expect_failure(&lives(|life, c| take(c, reset(life, true), false, true)), made);
    expect_failure(
        &lives(|life, c| take(c, reset(life, false), false, true)),
        "a RST left that no host sent",
    );
    let far = |life: Life| life.moved(Seg::new(true, Flags::ACK, 1 + life.asked, 3 + life.answered));
    expect_failure(&lives(|life, c| take(c, far(life), false, true)), "its source has sent");
    let strange = |life: Life| life.moved(Seg::new(true, Flags::ACK, 1 << 30, 1 << 30));
    expect_failure(&lives(|life, c| take(c, strange(life), false, true)), "numbers of no connection");
    let fin = |life: Life| life.moved(Seg::new(true, Flags::ACK | Flags::FIN, 1 + life.asked, 1));
    expect_failure(&lives(|life, c| take(c, fin(life), false, true)), "a FIN left");
}

#[test]
fn a_server_may_choose_its_number_anew() {
    // The first SYN-ACK was lost behind the gateway; a copy of the SYN draws another one.
    let anew = |s: Seg| {
        let by = 900_000;
        if s.from_client { Seg { ack: s.ack + by, ..s } } else { Seg { seq: s.seq + by, ..s } }
    };
    let run = |left: &'static [u8]| {
        let mut checker = checker();
        for segment in [syn(), syn_ack(), syn(), anew(syn_ack()), anew(ack())] {
            take(&mut checker, segment, true, true);
        }
        take(&mut checker, anew(data()), true, false);
        take(&mut checker, anew(data()).with(left), false, true);
        checker.finish(0)
    };
    let honest = run(b"hello world");
    assert!(honest.failures.is_empty(), "{:?}", honest.failures);
    expect_failure(&run(b"hello worle"), "other bytes");
}

#[test]
fn connections_in_a_flood_are_followed() {
    /// More than are usually followed at a time, in six seconds.
    const EACH_SECOND: u32 = 4_000;
    const SECONDS: u32 = 18;
    let run = |left: &'static [u8]| {
        let mut checker = checker();
        let flood = |checker: &mut Checker, second: u32| {
            let at = |came: bool| u64::from(second) * 1_000_000_000 + if came { 0 } else { 900_000_000 };
            for came in [true, false] {
                for n in 0..EACH_SECOND {
                    let address = Ipv4Addr::from_bits(0xc612_0000 + second * EACH_SECOND + n);
                    take_at(checker, at(came), (IpAddr::V4(address), 1024), syn(), came, !came);
                }
            }
        };
        flood(&mut checker, 0);
        for segment in [syn(), syn_ack(), ack()] {
            take(&mut checker, segment, true, true);
        }
        take(&mut checker, data(), true, false);
        (1..SECONDS).for_each(|second| flood(&mut checker, second));
        take(&mut checker, data().with(left), false, true);
        assert!(checker.followed() <= 13 * EACH_SECOND as usize, "{}", checker.followed());
        checker.finish(0)
    };
    let honest = run(b"hello world");
    assert!(honest.failures.is_empty(), "{:?}", honest.failures);
    assert_eq!((honest.flows, honest.flows_unchecked), (u64::from(EACH_SECOND * SECONDS) + 1, 0));
    expect_failure(&run(b"hello worle"), "other bytes");
}

#[test]
fn random_segments_are_nobodys_connection() {
    let mut checker = checker();
    let mut word = 1u32;
    let mut random = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word.rotate_left(16)
    };
    for _ in 0..3000 {
        let flags = [Flags::ACK, Flags::SYN, Flags::RST, Flags::SYN | Flags::ACK][random() as usize % 4];
        let len = random() % 300;
        take(&mut checker, Seg::new(false, flags, random(), random()).with(payload(0, len)), true, true);
    }
    let findings = checker.finish(0);
    assert!(findings.failures.is_empty(), "{:?}", findings.failures);
}

#[test]
fn a_wrong_beginning_of_a_checksum_is_found() {
    let run = |spoil: u8| {
        let mut checker = checker();
        for segment in [syn(), syn_ack(), ack()] {
            take(&mut checker, segment, true, true);
        }
        let mut packet = data().bytes();
        // The sum of the pseudo header in place of the checksum, as a host leaves it to its
        // hardware.
        let len = packet.len() as u32 - 20;
        let sum = farlink_wire::checksum::pseudo_header(SERVER.0, CLIENT.0, 6, len);
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        let size = packet.len();
        let frame =
            |is_outgoing| Frame { at_ns: 1, is_outgoing, is_checksum_open: true, len: size, wire_len: size };
        checker.take(1, &frame(false), &packet);
        packet[37] ^= spoil;
        checker.take(0, &frame(true), &packet);
        checker.finish(0)
    };
    assert!(run(0).failures.is_empty());
    expect_failure(&run(1), "wrong checksum");
}

#[test]
fn what_came_in_fragments_is_known() {
    let run = |lost: usize, left: &'static [u8]| {
        let mut checker = checker();
        for segment in [syn(), syn_ack(), ack()] {
            take(&mut checker, segment, true, true);
        }
        let frame = |packet: &[u8], is_outgoing| Frame {
            at_ns: 1,
            is_outgoing,
            is_checksum_open: false,
            len: packet.len(),
            wire_len: packet.len(),
        };
        for fragment in fragments(&data().bytes()).iter().skip(lost) {
            checker.take(1, &frame(fragment, false), fragment);
        }
        take(&mut checker, data().with(left), false, true);
        checker.finish(0)
    };
    assert!(run(0, b"hello world").failures.is_empty());
    expect_failure(&run(0, b"hello worle"), "other bytes");
    // Where a part was not seen, nothing is known of the rest.
    assert!(run(1, b"hello world").failures.is_empty());
}

#[test]
fn an_identification_that_comes_again_is_told_unless_it_is_a_hosts() {
    let run = |came: bool, apart_s: u64| {
        let mut checker = checker();
        let packet = data().bytes();
        let [first, _] = fragments(&packet);
        let frame = |at_s: u64, is_outgoing| Frame {
            at_ns: at_s * 1_000_000_000,
            is_outgoing,
            is_checksum_open: false,
            len: first.len(),
            wire_len: first.len(),
        };
        if came {
            checker.take(1, &frame(0, false), &first);
        }
        for at_s in [1, 1 + apart_s] {
            checker.take(0, &frame(at_s, true), &first);
        }
        checker.finish(0)
    };
    assert_eq!(run(false, 240).ids_repeated, 0);
    let again = run(false, 239);
    assert_eq!(again.ids_repeated, 1);
    expect_failure(&again, "within 240 s");
    assert_eq!(run(true, 1).ids_repeated, 0, "it was forwarded twice");
}

/// An IPv4 packet with a header of 20 bytes in two fragments.
fn fragments(packet: &[u8]) -> [Vec<u8>; 2] {
    const FIRST: usize = 24;
    let (header, body) = packet.split_at(20);
    let one = |at: usize, bytes: &[u8], more: u16| {
        let mut fragment = [header, bytes].concat();
        let len = fragment.len() as u16;
        fragment[2..4].copy_from_slice(&len.to_be_bytes());
        fragment[6..8].copy_from_slice(&((at / 8) as u16 | more << 13).to_be_bytes());
        fragment[10..12].copy_from_slice(&[0, 0]);
        let sum = !farlink_wire::checksum::sum(&fragment[..20]);
        fragment[10..12].copy_from_slice(&sum.to_be_bytes());
        fragment
    };
    [one(0, &body[..FIRST], 1), one(FIRST, &body[FIRST..], 0)]
}
