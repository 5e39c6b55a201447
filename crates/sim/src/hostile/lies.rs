//! What a lying host changes in a segment that an honest one would send.

use farlink_wire::build::farlink_option;
use farlink_wire::xcp::{HeaderTime, XcpFields, sum_option};
use farlink_wire::{FARLINK_DATA, FARLINK_EXIDS, FARLINK_SYN, FARLINK_SYN_ACK, Flags, SackBlock, SeqNum};

use crate::rng::Rng;

/// A way to lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Acknowledges the beginning, and SACKs single bytes behind it.
    SackShreds,
    /// SACKs what was never sent, turned round, or all there is.
    SackWild,
    /// Acknowledges what it has not received, sent or not.
    AckAhead,
    /// Acknowledges byte by byte, or the same again and again.
    AckDrip,
    /// Acknowledges older and older bytes.
    AckBack,
    /// Shuts its window and keeps it shut for long.
    WindowShut,
    /// Any window.
    WindowWild,
    /// Timestamps that jump, go back, stand still or are left out.
    Stamps,
    /// Options cut off, too long, unknown, twice.
    Options,
    /// Segment size, scale and the like that no host has, in its SYN; Fast Open, MPTCP.
    SynOptions,
    /// Says what only gateways say: marks.
    Marks,
    /// Messages of gateways: far acknowledgements, windows, reports of the rate.
    Messages,
    /// Messages of gateways about what it holds above gaps.
    Runs,
    /// Wishes of XCP, and what came of others': where routers say how fast. It is drawn apart.
    Wishes,
    /// What gateways advertise of a link: any rate, any round trip, both directions taking turns.
    /// It is drawn apart, too.
    Adverts,
    /// Single bytes here and there in the window, and beyond it.
    Shreds,
    /// The same bytes again with another content.
    Contradiction,
    /// Fragments, some missing, some twice.
    Fragments,
    /// SYNs, new and old, where a connection stands.
    Syns,
    /// SYNs from port after port.
    SynFlood,
    /// FINs and RSTs at odd places.
    Ends,
    /// Urgent data at odd places; flags at random.
    Flags,
    /// Says nothing more after a while.
    Vanish,
    /// Tiny segments in order.
    Drip,
}

impl Lie {
    /// All of them but [`Self::Wishes`] and [`Self::Adverts`].
    pub const ALL: [Self; 22] = [
        Self::SackShreds,
        Self::SackWild,
        Self::AckAhead,
        Self::AckDrip,
        Self::AckBack,
        Self::WindowShut,
        Self::WindowWild,
        Self::Stamps,
        Self::Options,
        Self::SynOptions,
        Self::Marks,
        Self::Messages,
        Self::Runs,
        Self::Shreds,
        Self::Contradiction,
        Self::Fragments,
        Self::Syns,
        Self::SynFlood,
        Self::Ends,
        Self::Flags,
        Self::Vanish,
        Self::Drip,
    ];
}

/// What a liar knows of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub isn: SeqNum,
    /// Its next number.
    pub nxt: SeqNum,
    /// The first number of the other one.
    pub irs: SeqNum,
    /// What it has received in order, and at all.
    pub got: SeqNum,
    pub highest: SeqNum,
    /// Segments that it has said so far.
    pub said: u32,
    /// It says this of its own accord, not in answer.
    pub unasked: bool,
}

/// A segment to be.
#[derive(Clone, Debug)]
pub(super) struct Say {
    pub seq: SeqNum,
    pub ack: SeqNum,
    pub flags: Flags,
    pub window: u16,
    pub urgent: u16,
    /// TSval and TSecr.
    pub stamps: Option<(u32, u32)>,
    pub sack: Vec<SackBlock>,
    pub farlink: Option<(u16, Vec<u8>)>,
    /// Whatever else.
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// In fragments for a link of this MTU.
    pub fragments: Option<usize>,
    /// From another port of the liar.
    pub port: Option<u16>,
}

impl Say {
    /// The options, as many as fit in 40 bytes.
    pub fn option_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut push = |option: &[u8]| {
            if out.len() + option.len() <= 40 {
                out.extend_from_slice(option);
            }
        };
        // A mark stands in the padding of timestamps or apart.
        let is_mark =
            self.farlink.as_ref().is_some_and(|(form, body)| *form == FARLINK_DATA && body.is_empty());
        let in_padding = is_mark && self.stamps.is_some_and(|(val, _)| val % 2 == 0);
        if let Some((val, ecr)) = self.stamps {
            let padding: &[u8] = if in_padding { &[1] } else { &[] };
            push(&[padding, &[8, 10], &val.to_be_bytes(), &ecr.to_be_bytes(), padding].concat());
        }
        if let Some((form, body)) = self.farlink.as_ref().filter(|_| !in_padding) {
            push(&farlink_option(*form, body).unwrap_or_default());
        }
        let used = if self.stamps.is_some() { 12 } else { 0 }
            + self.farlink.as_ref().map_or(0, |(_, b)| b.len() + 4);
        let blocks = self.sack.len().min((40usize.saturating_sub(used + 2)) / 8);
        if blocks > 0 {
            let mut option = vec![5, 2 + 8 * blocks as u8];
            for b in &self.sack[..blocks] {
                option.extend(b.start.0.to_be_bytes());
                option.extend(b.end.0.to_be_bytes());
            }
            push(&option);
        }
        push(&self.options);
        out
    }
}

fn block(start: SeqNum, len: u32) -> SackBlock {
    SackBlock { start, end: start + len }
}

fn near(rng: &mut Rng, around: SeqNum, most: u64) -> SeqNum {
    let distance = rng.log_range(1, most) as u32;
    if rng.chance(0.5) { around + distance } else { around - distance }
}

fn some_bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    let n = rng.range(0, most + 1) as usize;
    (0..n).map(|_| rng.bits() as u8).collect()
}

/// Types of frames.
const FAR_ACK: u8 = 2;
const WINDOW: u8 = 3;
const ARRIVED: u8 = 4;
const RUNS: u8 = 5;
const HELLO: u8 = 6;
const TAG: u8 = 7;
const LINK: u8 = 9;
const OPENING: u8 = 11;

/// A body of Farlink's option with fields that say too much or too little: in frames, or as version
/// 1 has it.
fn message(rng: &mut Rng, known: &Known, runs: bool) -> Vec<u8> {
    let far_ack = near(rng, known.got, 1 << 20).0.to_be_bytes();
    let window = |rng: &mut Rng| rng.pick(&[0u16, 1, 64, 4_000, u16::MAX]).to_be_bytes();
    let windows = [window(rng), window(rng)].concat();
    // Arrival times and byte counts that make a link of any rate.
    let step = rng.pick(&[1u32, 1_000, 1_000_000]);
    let bytes = rng.pick(&[1u32, 10_000, 10_000_000]);
    let times = |n: u32| known.said.wrapping_mul(n).to_be_bytes();
    let arrived = [times(step), times(bytes)].concat();
    let by = (rng.range(0, 200) as u16).to_be_bytes();
    let gaps: Vec<u8> = (0..24).map(|_| rng.pick(&[1u8, 1, 2, 5, 0x81, 0xff])).collect();
    let flags = if runs { 1 } else { rng.range(0, 16) as u8 };
    let mut body = Vec::new();
    if rng.chance(0.5) {
        body.push(0x10 | flags);
        let fields: [(u8, &[u8]); 4] =
            [(1, &far_ack), (2, &windows[..2]), (8, &windows[2..]), (4, &[&by[..], &arrived].concat())];
        fields.iter().filter(|(bit, _)| flags & bit != 0).for_each(|(_, value)| body.extend(*value));
    } else {
        let other = some_bytes(rng, 13);
        let hello = hello(rng);
        let fields: [(u8, u8, &[u8]); 5] = [
            (1, FAR_ACK, &far_ack),
            (2, WINDOW, &windows[..rng.pick(&[1, 2, 4])]),
            (4, ARRIVED, &arrived),
            (8, rng.pick(&[HELLO, TAG, 8, 15]), &other),
            (9, HELLO, &hello[1..]),
        ];
        for (_, kind, value) in fields.iter().filter(|(bits, ..)| flags & bits == *bits) {
            // Now and then the length is a lie, too.
            let length = if rng.chance(0.1) { rng.range(0, 16) as u8 } else { value.len() as u8 };
            body.push(kind << 4 | length);
            body.extend(*value);
        }
        if runs {
            body.push(RUNS << 4 | 15);
        }
    }
    body.truncate(24);
    if runs {
        body.extend(gaps.iter().take(24 - body.len()))
    } else {
        body.extend(some_bytes(rng, 6))
    }
    body
}

/// What a segment says of its speed, or an acknowledgement of wishes: small, great, anything.
fn wishes(rng: &mut Rng) -> Vec<u8> {
    let any = |rng: &mut Rng| match rng.range(0, 4) {
        0 => 0,
        1 => u32::MAX,
        2 => i32::MAX.cast_unsigned(),
        _ => rng.bits() as u32 >> rng.range(0, 32),
    };
    if rng.chance(0.5) {
        return sum_option(any(rng)).to_vec();
    }
    let (spacing, rtt) = (HeaderTime(any(rng)), HeaderTime(any(rng)));
    XcpFields { spacing, rtt, delta_bytes_per_s: any(rng).cast_signed() }.option().to_vec()
}

/// What a gateway advertises of the link: slow, fast, anything, now and then cut short.
fn advert(rng: &mut Rng) -> Vec<u8> {
    let number = |rng: &mut Rng| {
        let any = rng.bits() as u16;
        rng.pick(&[0, 1, 1_000, 0x27d0, u16::MAX, any]).to_be_bytes()
    };
    let value = [&[rng.range(0, 32) as u8][..], &number(rng), &number(rng)].concat();
    let length = if rng.chance(0.8) { rng.pick(&[3, 5]) } else { rng.range(0, 16) as usize };
    let mut body = vec![LINK << 4 | length as u8];
    body.extend(value.iter().take(length));
    body
}

/// What a gateway says of itself in the handshake: one that can do anything, or nothing.
fn hello(rng: &mut Rng) -> Vec<u8> {
    let mut body = vec![HELLO << 4 | 8];
    body.extend((rng.bits() as u32).to_be_bytes());
    body.extend([rng.range(0, 12) as u8, rng.bits() as u8, rng.range(0, 8) as u8, 0]);
    body
}

/// The same, with a window of any size, and with what is said of the packet: that it leaves twice,
/// that the link loses.
fn opening(rng: &mut Rng) -> Vec<u8> {
    let mut body = hello(rng);
    if let Some(capabilities) = body.get_mut(7) {
        *capabilities |= rng.pick(&[0, 64]);
    }
    if rng.chance(0.5) {
        let any = rng.bits() as u16;
        let window = rng.pick(&[0, 1, 4_000, any, u16::MAX]).to_be_bytes();
        body.extend([&[WINDOW << 4 | rng.pick(&[1, 2, 2])][..], &window].concat());
    }
    if rng.chance(0.5) {
        body.extend([OPENING << 4 | rng.pick(&[0, 1, 1, 2]), rng.bits() as u8]);
    }
    body
}

impl Lie {
    /// Changes an ordinary segment: never the SYN of the handshake.
    pub(super) fn bend(self, say: &mut Say, known: &Known, rng: &mut Rng) {
        match self {
            Self::SackShreds => {
                say.ack = known.irs + 1 + u32::from(known.said > 100);
                let span = known.highest.since(say.ack).clamp(4, 1 << 24);
                say.sack = (0..4)
                    .map(|_| {
                        block(say.ack + 1 + rng.range(0, u64::from(span)) as u32, rng.range(1, 3) as u32)
                    })
                    .collect();
            }
            Self::SackWild => {
                say.sack = (0..rng.range(1, 5))
                    .map(|_| match rng.range(0, 5) {
                        0 => block(near(rng, known.got, 1 << 31), rng.bits() as u32),
                        1 => SackBlock { start: known.highest, end: known.got },
                        2 => block(known.got + 1, known.highest.since(known.got)),
                        3 => block(known.irs, 1 << 30),
                        _ => block(near(rng, known.got, 1 << 16), 1),
                    })
                    .collect();
            }
            Self::AckAhead => {
                say.ack = if rng.chance(0.5) {
                    known.highest + rng.range(1, 3_000) as u32
                } else {
                    known.got + rng.log_range(1, 1 << 27) as u32
                };
            }
            Self::AckDrip => say.ack = known.irs + 1 + (known.said / 3).min(known.got.since(known.irs + 1)),
            Self::AckBack => say.ack = known.got - rng.log_range(1, 1 << 32) as u32,
            Self::WindowShut => say.window = if known.said > 5 && !rng.chance(0.01) { 0 } else { 1_000 },
            Self::WindowWild => say.window = rng.pick(&[0, 1, 7, 100, 1_460, 5_000, 65_535]),
            Self::Stamps => {
                say.stamps = match (rng.range(0, 5), say.stamps) {
                    (0, Some((val, ecr))) => Some((val.wrapping_add(rng.log_range(1, 1 << 31) as u32), ecr)),
                    (1, Some((val, ecr))) => Some((val.wrapping_sub(rng.log_range(1, 1 << 31) as u32), ecr)),
                    (2, Some((val, _))) => Some((val, rng.bits() as u32)),
                    (3, _) => None,
                    (_, old) => old.or(Some((rng.bits() as u32, 0))),
                };
            }
            Self::Options => {
                say.options = match rng.range(0, 6) {
                    0 => vec![5, 200, 1, 2],
                    1 => vec![8, 2],
                    2 => vec![254, 3, 0xfa],
                    3 => vec![254, 38, 0xfa, 0x53, 0x1f],
                    4 => [vec![5, 9], some_bytes(rng, 7)].concat(),
                    _ => some_bytes(rng, 40),
                };
            }
            Self::SynOptions => {}
            Self::Marks => say.farlink = Some((FARLINK_DATA, Vec::new())),
            Self::Messages => say.farlink = Some((rng.pick(&FARLINK_EXIDS), message(rng, known, false))),
            Self::Runs => {
                say.ack = known.irs + 1;
                say.farlink = Some((FARLINK_DATA, message(rng, known, true)));
            }
            Self::Adverts => say.farlink = Some((FARLINK_DATA, advert(rng))),
            Self::Wishes => {
                say.farlink = Some((FARLINK_DATA, Vec::new()));
                say.options = wishes(rng);
            }
            Self::Shreds => {
                say.seq = known.nxt + rng.log_range(1, 1 << 21) as u32;
                say.payload = vec![known.said as u8; rng.range(1, 4) as usize];
            }
            Self::Contradiction => {
                say.seq = known.nxt - rng.log_range(1, 3_000) as u32 + rng.range(0, 3_000) as u32;
                say.payload = vec![known.said as u8; rng.range(1, 600) as usize];
            }
            Self::Fragments => {
                say.seq = known.nxt + rng.range(0, 3_000) as u32;
                say.payload = vec![known.said as u8; rng.range(50, 1_400) as usize];
                say.fragments = Some(rng.pick(&[68, 100, 576, 1_000]));
            }
            Self::Syns => {
                if known.unasked {
                    say.flags = rng.pick(&[Flags::SYN, Flags::SYN, Flags::SYN | Flags::ACK]);
                    say.seq = if rng.chance(0.5) { known.isn } else { near(rng, known.isn, 1 << 31) };
                }
            }
            Self::SynFlood => {
                if known.unasked {
                    say.flags = Flags::SYN;
                    say.seq = SeqNum(rng.bits() as u32);
                    say.port = Some(rng.range(1_024, 30_000) as u16);
                }
            }
            Self::Ends => {
                if known.said > 6 && rng.chance(0.2) {
                    say.flags = say.flags | rng.pick(&[Flags::FIN, Flags::FIN, Flags::RST]);
                    say.seq = if rng.chance(0.5) { known.nxt } else { near(rng, known.nxt, 1 << 20) };
                }
            }
            Self::Flags => {
                say.flags = match rng.range(0, 4) {
                    0 => Flags(rng.bits() as u16 & Flags::MASK),
                    1 => Flags::NONE,
                    _ => Flags::ACK | Flags::URG,
                };
                say.urgent = rng.bits() as u16;
                if rng.chance(0.5) {
                    say.payload = vec![7; rng.range(0, 200) as usize];
                }
            }
            Self::Vanish => {}
            Self::Drip => {
                say.seq = known.nxt;
                say.payload = vec![b'.'];
            }
        }
    }

    /// Changes the options of the SYN, or of its answer.
    pub(super) fn bend_syn(self, say: &mut Say, known: &Known, rng: &mut Rng) {
        match self {
            Self::SynOptions => {
                say.options = match rng.range(0, 7) {
                    0 => vec![2, 4, 0, 0, 3, 3, 255, 4, 2],
                    1 => vec![2, 4, 0, 1, 3, 3, 14, 4, 2],
                    2 => vec![2, 4, 0xff, 0xff, 3, 3, 15],
                    3 => vec![2, 4, 0, 88, 4, 2, 34, 2],
                    4 => vec![2, 4, 5, 180, 30, 4, 0, 1],
                    5 => vec![2, 4, 5],
                    _ => some_bytes(rng, 20),
                };
                say.window = rng.pick(&[0, 1, 500, 65_535]);
            }
            Self::Adverts => {
                // Whoever reads frames says so in the handshake.
                let form = if say.flags.ack() { FARLINK_SYN_ACK } else { FARLINK_SYN };
                say.farlink = Some((form, opening(rng)));
            }
            Self::Marks | Self::Messages | Self::Runs | Self::Wishes => {
                let body = match rng.range(0, 3) {
                    0 => hello(rng),
                    1 => message(rng, known, false),
                    _ => Vec::new(),
                };
                say.farlink = Some((rng.pick(&FARLINK_EXIDS), body));
            }
            Self::Stamps => say.stamps = Some((rng.bits() as u32, rng.bits() as u32)),
            Self::WindowShut => say.window = 0,
            _ => {}
        }
    }
}
