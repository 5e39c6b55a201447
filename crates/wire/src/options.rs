//! TCP options as values (RFC 9293 3.1, 7323, 2018, 7413, 5925, 2385, 8684, 6994) and as raw items.

use crate::bytes::{u8_at, u16_at, u32_at};
use crate::seq::SeqNum;
use crate::xcp::{self, FARLINK_XCP, XcpFields};
use arrayvec::ArrayVec;

/// End of the option list.
pub const KIND_END: u8 = 0;
/// No operation: padding.
pub const KIND_NOP: u8 = 1;
/// Maximum segment size.
pub const KIND_MSS: u8 = 2;
/// Window scale (RFC 7323 section 2).
pub const KIND_WINDOW_SCALE: u8 = 3;
/// SACK permitted (RFC 2018 section 2).
pub const KIND_SACK_PERMITTED: u8 = 4;
/// SACK blocks (RFC 2018 section 3).
pub const KIND_SACK: u8 = 5;
/// Timestamps (RFC 7323 section 3).
pub const KIND_TIMESTAMPS: u8 = 8;
/// TCP-MD5 (RFC 2385).
pub const KIND_MD5: u8 = 19;
/// TCP-AO (RFC 5925).
pub const KIND_AO: u8 = 29;
/// Multipath TCP (RFC 8684).
pub const KIND_MPTCP: u8 = 30;
/// Fast Open (RFC 7413).
pub const KIND_FAST_OPEN: u8 = 34;
/// Experimental, with an ExID (RFC 6994): the kind that Farlink uses.
pub const KIND_EXPERIMENT: u8 = 254;

/// ExID of the pre-standard Fast Open.
const EXID_FAST_OPEN: u16 = 0xF989;
/// ExID of Farlink's option in a SYN.
pub const FARLINK_SYN: u16 = 0xFA51;
/// ExID of Farlink's answer in a SYN-ACK: another form, since some boxes echo options.
pub const FARLINK_SYN_ACK: u16 = 0xFA52;
/// ExID of Farlink's option in all later segments.
pub const FARLINK_DATA: u16 = 0xFA53;
/// All of them.
pub const FARLINK_EXIDS: [u16; 3] = [FARLINK_SYN, FARLINK_SYN_ACK, FARLINK_DATA];

/// Bytes of options that a TCP header can hold.
pub const OPTIONS_BYTES_MAX: usize = 40;
/// Bytes of a Farlink option before its body: kind, length, ExID.
pub const FARLINK_HEAD_BYTES: usize = 4;
/// Bytes of a timestamps option with the two NOPs that align it (RFC 7323 appendix A).
pub(crate) const TIMESTAMPS_PADDED_BYTES: usize = 12;
/// Largest shift count (RFC 7323 section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

/// A block of a SACK option: bytes from `start` up to, without, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlock {
    /// First sequence number of the block.
    pub start: SeqNum,
    /// The sequence number after its last one.
    pub end: SeqNum,
}

/// A timestamps option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval.
    pub val: u32,
    /// TSecr.
    pub ecr: u32,
}

/// An option of Farlink's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarlinkOption {
    /// The ExID: one of [`FARLINK_EXIDS`].
    pub form: u16,
    /// What follows the ExID.
    pub body: ArrayVec<u8, 36>,
}

/// The options of one TCP header. Where a kind comes twice, the last one counts, as in Linux
/// (`tcp_parse_options`); of Farlink's own, the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Maximum segment size, bytes; 0 is ignored, as in Linux.
    pub mss: Option<u16>,
    /// Shift count, at most [`WINDOW_SCALE_MAX`].
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// SACK blocks.
    pub sack: ArrayVec<SackBlock, 4>,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Fast Open, kind 34 or the experimental form.
    pub fast_open: bool,
    /// TCP-MD5.
    pub md5: bool,
    /// TCP-AO.
    pub ao: bool,
    /// Multipath TCP.
    pub mptcp: bool,
    /// Farlink's own option, or its mark in the padding of the timestamps, see
    /// [`is_marked_in_padding`].
    pub farlink: Option<FarlinkOption>,
    /// XCP's fields, of this direction.
    pub xcp: Option<XcpFields>,
    /// XCP's sum, of the other direction.
    pub xcp_sum: Option<u32>,
    /// Other kinds, each once, in order; known kinds of a length they cannot have too. The first
    /// eight.
    pub unknown: ArrayVec<u8, 8>,
    /// An impossible length: what follows it was not read.
    pub malformed: bool,
}

/// One option as it stands in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Its first byte, counted from the start of the options.
    pub offset: usize,
    /// The byte after its last one.
    pub end: usize,
    /// Kind.
    pub kind: u8,
    /// What follows kind and length.
    pub body: &'a [u8],
}

impl RawOption<'_> {
    /// The ExID of a kind-254 option.
    #[must_use]
    pub fn exid(&self) -> Option<u16> {
        if self.kind == KIND_EXPERIMENT { u16_at(self.body, 0) } else { None }
    }

    /// It is one of Farlink's.
    #[must_use]
    pub fn is_farlink(&self) -> bool {
        self.exid().is_some_and(|x| FARLINK_EXIDS.contains(&x) || x == FARLINK_XCP)
    }
}

/// Walks the options area of a TCP header: yields all options but NOP and end-of-list.
#[derive(Clone, Debug)]
pub struct OptionWalk<'a> {
    area: &'a [u8],
    at: usize,
    malformed: bool,
    ended: bool,
}

impl<'a> OptionWalk<'a> {
    /// Over the bytes behind the fixed TCP header.
    #[must_use]
    pub const fn new(area: &'a [u8]) -> Self {
        Self { area, at: 0, malformed: false, ended: false }
    }

    /// An impossible length was met.
    #[must_use]
    pub const fn malformed(&self) -> bool {
        self.malformed
    }

    /// An end-of-list was met.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }
}

impl<'a> Iterator for OptionWalk<'a> {
    type Item = RawOption<'a>;

    fn next(&mut self) -> Option<RawOption<'a>> {
        if self.malformed || self.ended {
            return None;
        }
        loop {
            let offset = self.at;
            match u8_at(self.area, offset)? {
                KIND_END => {
                    self.ended = true;
                    return None;
                }
                KIND_NOP => self.at = offset.saturating_add(1),
                kind => {
                    let len = usize::from(u8_at(self.area, offset.saturating_add(1)).unwrap_or(0));
                    let end = offset.saturating_add(len);
                    let body = if len < 2 { None } else { self.area.get(offset.saturating_add(2)..end) };
                    let Some(body) = body else {
                        self.malformed = true;
                        return None;
                    };
                    self.at = end;
                    return Some(RawOption { offset, end, kind, body });
                }
            }
        }
    }
}

/// Farlink's option of the form [`FARLINK_DATA`], without a body, takes no bytes where there are
/// timestamps: the second NOP of their padding stands behind them. Hosts put both before them
/// (RFC 7323 appendix A).
#[must_use]
pub fn is_marked_in_padding(area: &[u8]) -> bool {
    let padded = area.first_chunk::<TIMESTAMPS_PADDED_BYTES>();
    matches!(padded, Some([KIND_NOP, KIND_TIMESTAMPS, 10, .., KIND_NOP]))
}

impl TcpOptions {
    /// Something of Farlink's own is among them: only gateways are to see it.
    #[must_use]
    pub const fn has_ours(&self) -> bool {
        self.farlink.is_some() || self.xcp.is_some() || self.xcp_sum.is_some()
    }

    /// Read the options area of a TCP header (the bytes behind the fixed 20).
    #[must_use]
    pub fn parse(area: &[u8]) -> Self {
        let mut options = Self::default();
        if is_marked_in_padding(area) {
            options.farlink = Some(FarlinkOption { form: FARLINK_DATA, body: ArrayVec::new() });
        }
        let mut walk = OptionWalk::new(area);
        for raw in walk.by_ref() {
            if !options.take(&raw) && !options.unknown.contains(&raw.kind) {
                // A ninth kind is not remembered: eight are enough to know that this is no ordinary
                // host.
                let _ = options.unknown.try_push(raw.kind);
            }
        }
        options.malformed = walk.malformed();
        options
    }

    /// `false` when the kind is unknown or its length wrong.
    fn take(&mut self, raw: &RawOption<'_>) -> bool {
        match (raw.kind, raw.body) {
            (KIND_MSS, &[a, b]) => {
                let mss = u16::from_be_bytes([a, b]);
                if mss != 0 {
                    self.mss = Some(mss);
                }
            }
            (KIND_WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(WINDOW_SCALE_MAX)),
            (KIND_SACK_PERMITTED, []) => self.sack_permitted = true,
            (KIND_SACK, body) => return self.take_sack(body),
            (KIND_TIMESTAMPS, body) if body.len() == 8 => {
                let (Some(val), Some(ecr)) = (u32_at(body, 0), u32_at(body, 4)) else { return false };
                self.timestamps = Some(Timestamps { val, ecr });
            }
            (KIND_MD5, _) => self.md5 = true,
            (KIND_AO, _) => self.ao = true,
            (KIND_MPTCP, _) => self.mptcp = true,
            (KIND_FAST_OPEN, _) => self.fast_open = true,
            (KIND_EXPERIMENT, body) => match raw.exid() {
                Some(EXID_FAST_OPEN) => self.fast_open = true,
                Some(form) if FARLINK_EXIDS.contains(&form) => {
                    let body = body.get(2..).and_then(|b| ArrayVec::try_from(b).ok());
                    if let (None, Some(body)) = (&self.farlink, body) {
                        self.farlink = Some(FarlinkOption { form, body });
                    }
                }
                Some(FARLINK_XCP) => {
                    let (fields, sum) = (XcpFields::of(raw), xcp::sum_of(raw));
                    (self.xcp, self.xcp_sum) = (self.xcp.or(fields), self.xcp_sum.or(sum));
                    return fields.is_some() || sum.is_some();
                }
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    fn take_sack(&mut self, body: &[u8]) -> bool {
        let (blocks, rest) = body.as_chunks::<8>();
        if blocks.is_empty() || !rest.is_empty() {
            return false;
        }
        self.sack.clear();
        for block in blocks {
            let (Some(start), Some(end)) = (u32_at(block, 0), u32_at(block, 4)) else { continue };
            let _ = self.sack.try_push(SackBlock { start: SeqNum(start), end: SeqNum(end) });
        }
        true
    }
}
