//! Netlink messages as bytes (linux/netlink.h, linux/rtnetlink.h): building requests, walking
//! answers.

/// Bytes of `struct nlmsghdr`.
pub const HEADER_BYTES: usize = 16;

const fn align4(n: usize) -> usize {
    (n + 3) & !3
}

/// A request under construction: header, fixed body, attributes.
#[derive(Debug, Clone)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of type `kind` (RTM_...) with NLM_F_... `flags`; the fixed part (`struct rtmsg`
    /// and its like) is `body`.
    #[must_use]
    pub fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(align4(bytes.len()), 0);
        Self { bytes }
    }

    /// Appends an attribute.
    pub fn attr(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(align4(self.bytes.len()), 0);
        self
    }

    /// Appends a 32-bit attribute in the machine's byte order.
    pub fn attr_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends a NUL-terminated string.
    pub fn attr_str(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// Appends an attribute that holds what `fill` appends (after `body`, which only VETH_INFO_PEER
    /// needs).
    pub fn nested(&mut self, kind: u16, body: &[u8], fill: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.bytes.len();
        self.attr(kind, body);
        fill(self);
        let len = u16::try_from(self.bytes.len() - at).unwrap_or(u16::MAX);
        self.bytes[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        self
    }

    /// Adds NLM_F_... flags.
    pub(crate) fn add_flags(&mut self, flags: u16) {
        let old = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        self.bytes[6..8].copy_from_slice(&(old | flags).to_ne_bytes());
    }

    /// The bytes to send, with length and sequence number filled in.
    pub(crate) fn finish(&mut self, sequence: u32) -> &[u8] {
        let len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }
}

/// One message out of an answer or an event.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// RTM_... or NLMSG_...
    pub kind: u16,
    /// NLM_F_...
    pub flags: u16,
    /// Sequence number of the request that it answers; 0 for events.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Fixed part of `len` bytes and the attributes behind it.
    #[must_use]
    pub fn split(&self, len: usize) -> Option<(&'a [u8], Attributes<'a>)> {
        let fixed = self.payload.get(..len)?;
        Some((fixed, Attributes { rest: self.payload.get(align4(len)..).unwrap_or_default() }))
    }
}

/// Walks the messages of a datagram; stops at the first that does not fit.
#[derive(Debug, Clone, Copy)]
pub struct Answers<'a> {
    rest: &'a [u8],
}

impl<'a> Answers<'a> {
    /// The messages in `datagram`.
    #[must_use]
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Answers<'a> {
    type Item = Answer<'a>;
    fn next(&mut self) -> Option<Answer<'a>> {
        let header = self.rest.get(..HEADER_BYTES)?;
        let len = u32_at(header, 0)? as usize;
        let message = self.rest.get(..len)?;
        let payload = message.get(HEADER_BYTES..)?;
        self.rest = self.rest.get(align4(len)..).unwrap_or_default();
        Some(Answer {
            kind: u16_at(header, 4)?,
            flags: u16_at(header, 6)?,
            sequence: u32_at(header, 8)?,
            payload,
        })
    }
}

/// Walks attributes: pairs of kind (without the nested and byte-order bits) and value.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// The value of the first attribute of this kind.
    #[must_use]
    pub fn find(self, kind: u16) -> Option<&'a [u8]> {
        let mut all = self;
        all.find_map(|(k, v)| (k == kind).then_some(v))
    }
    /// The first attribute of this kind as a 32-bit number.
    #[must_use]
    pub fn find_u32(self, kind: u16) -> Option<u32> {
        u32_at(self.find(kind)?, 0)
    }
    /// The first attribute of this kind as text.
    #[must_use]
    pub fn find_str(self, kind: u16) -> Option<String> {
        let value = self.find(kind)?;
        let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(&value[..end]).into_owned())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16_at(self.rest, 0)?);
        let kind = u16_at(self.rest, 2)? & 0x3fff;
        let value = self.rest.get(4..len)?;
        self.rest = self.rest.get(align4(len)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// 16-bit number in the machine's byte order.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// 32-bit number in the machine's byte order.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read_back() {
        let mut m = Message::new(24, 5, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        m.attr_u32(4, 77).nested(18, &[], |m| {
            m.attr_str(1, "veth");
        });
        let bytes = m.finish(9).to_vec();
        let all: Vec<_> = Answers::new(&bytes).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].flags, all[0].sequence), (24, 5, 9));
        let (fixed, attrs) = all[0].split(12).unwrap();
        assert_eq!(fixed[11], 12);
        assert_eq!(attrs.find_u32(4), Some(77));
        assert_eq!(Attributes::new(attrs.find(18).unwrap()).find_str(1).as_deref(), Some("veth"));
        assert_eq!(attrs.find(5), None);
    }

    #[test]
    fn truncated_and_lying_lengths_end_the_walk() {
        let mut m = Message::new(24, 0, &[0; 12]);
        m.attr_u32(4, 77);
        let bytes = m.finish(1).to_vec();
        for cut in 0..bytes.len() {
            assert_eq!(Answers::new(&bytes[..cut]).count(), 0, "cut at {cut}");
        }
        for lie in [0u16, 3, 200] {
            let mut attribute = bytes[28..].to_vec();
            attribute[0..2].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(Attributes::new(&attribute).count(), 0, "length {lie}");
        }
    }
}
