//! The notation of packet scripts: one segment a line, much as tcpdump and packetdrill write it.
//!
//! `FLAGS SEQ:END [ack N] [win N] [urg N] [<options>] [{fields}]`, for example
//! `P. 1:101 ack 1 win 512 <ts 7 3,sack 201:301> {ttl 63}`.
//!
//! - FLAGS: letters of `SFRP.UEWA` (`.` is ACK, E is ECE, W is CWR, A is AE).
//! - Sequence numbers count from the sender's ISN (its SYN has 0, its first byte 1),
//!   acknowledgement numbers and SACK blocks from the other host's. `7` alone is `7:7`.
//! - Options: `mss N`, `ws N`, `sackOK`, `ts VAL ECR`, `sack A:B C:D`, `fo` (Fast Open), `md5`,
//!   `ao`, `mptcp`, `unk KIND`; Farlink's own: `flsyn`, `flsynack`, `fl` (a bare mark), `fl ACK
//!   WINDOW` (far ACK, window in units of 1024), `flsoft ACK WINDOW SOFT` (the same with a soft
//!   window), `flcame BY AT BYTES` (gateway BY had got BYTES over the link at AT, its clock in
//!   microseconds), `flruns UNIT END LEN GAP LEN ...` (what is held above a gap, from the highest
//!   run down, in units of so many bytes, fewer than 64), all of them as gateways of version 1
//!   write them; `flraw 53 24 ffffff01` (ExID 0xFA53 and this body, to the byte). In an expectation
//!   `no NAME` says that the option is not there.
//! - Fields: `ttl N`, `dscp N`, `ecn no|ect0|ect1|ce`, `label N`, `df`, `nodf`, `ipopt` (there is
//!   an IPv4 option or an IPv6 extension header), `gso N` (a super-segment), `port N` (of host a,
//!   where it is not the usual one), `fill N` (payload of this byte, not the stream's own); when
//!   sent also `badsum`, `frag MTU`, `by a|b` (it comes in by the interface of this host, whoever
//!   it says it is from).
//!
//! An expectation compares what it names, and that the payload is the stream's.

use core::fmt;

use farlink_wire::{FARLINK_DATA, FARLINK_SYN, FARLINK_SYN_ACK, Flags, Gso, Offload, TcpSegment};

/// Flag letters, in the order in which they are shown.
const LETTERS: [(char, Flags); 9] = [
    ('S', Flags::SYN),
    ('F', Flags::FIN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('.', Flags::ACK),
    ('U', Flags::URG),
    ('E', Flags::ECE),
    ('W', Flags::CWR),
    ('A', Flags::AE),
];

/// A segment as a script writes it.
#[derive(Clone, Debug)]
pub struct Spec {
    pub flags: Flags,
    pub seq: u32,
    pub len: u32,
    pub ack: Option<u32>,
    pub win: Option<u16>,
    pub urg: Option<u16>,
    pub options: Vec<(String, Vec<String>)>,
    pub fields: Vec<(String, Option<String>)>,
}

/// A segment as a host sees it, numbers relative.
#[derive(Clone, Debug)]
pub struct Seen {
    pub segment: TcpSegment,
    pub seq: u32,
    pub ack: u32,
    pub sack: Vec<(u32, u32)>,
    /// TTL as it arrives: the kernel has routed the packet once more after the gateway wrote it.
    pub ttl: u8,
    pub offload: Offload,
    /// Port of host a.
    pub port: u16,
    pub payload: Vec<u8>,
    /// The payload is what the source wrote at this place of its stream.
    pub is_stream: bool,
}

/// Takes the part of a line between two brackets out of it.
fn take_group(line: &mut String, open: char, close: char) -> Result<Vec<Vec<String>>, String> {
    let Some(start) = line.find(open) else { return Ok(Vec::new()) };
    let end = line.find(close).filter(|e| *e > start).ok_or(format!("`{open}` without `{close}`"))?;
    let inner = line[start + 1..end].to_owned();
    line.replace_range(start..=end, " ");
    Ok(inner.split(',').map(|item| item.split_whitespace().map(str::to_owned).collect()).collect())
}

pub fn number(text: &str) -> Result<u32, String> {
    text.parse::<i64>().map(|n| n as u32).map_err(|_| format!("`{text}` is no number"))
}

/// `1:101`, `1:101(100)` or `1`.
pub fn range(text: &str) -> Result<(u32, u32), String> {
    let text = text.split('(').next().unwrap_or(text);
    match text.split_once(':') {
        Some((start, end)) => Ok((number(start)?, number(end)?)),
        None => Ok((number(text)?, number(text)?)),
    }
}

impl Spec {
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut line = line.to_owned();
        let fields = take_group(&mut line, '{', '}')?;
        let options = take_group(&mut line, '<', '>')?;
        let mut words = line.split_whitespace();
        let mut flags = Flags::NONE;
        for letter in words.next().ok_or("no flags")?.chars().filter(|c| *c != '-') {
            let known = LETTERS.iter().find(|(l, _)| *l == letter);
            flags = flags | known.ok_or(format!("`{letter}` is no flag"))?.1;
        }
        let (seq, end) = range(words.next().ok_or("no sequence number")?)?;
        let (mut ack, mut win, mut urg) = (None, None, None);
        while let Some(word) = words.next() {
            let value = number(words.next().ok_or(format!("`{word}` without a number"))?)?;
            match word {
                "ack" => ack = Some(value),
                "win" => win = Some(value as u16),
                "urg" => urg = Some(value as u16),
                _ => return Err(format!("`{word}` is not ack, win or urg")),
            }
        }
        let pair = |mut item: Vec<String>| (item.remove(0), item);
        Ok(Self {
            flags,
            seq,
            len: end.wrapping_sub(seq),
            ack,
            win,
            urg,
            options: options.into_iter().filter(|i| !i.is_empty()).map(pair).collect(),
            fields: fields
                .into_iter()
                .filter(|i| !i.is_empty())
                .map(pair)
                .map(|(k, v)| (k, v.into_iter().next()))
                .collect(),
        })
    }

    /// A field's value as number.
    pub fn field(&self, name: &str) -> Option<u32> {
        let (_, value) = self.fields.iter().find(|(k, _)| k == name)?;
        Some(number(value.as_deref().unwrap_or("0")).unwrap())
    }
    /// A field's value as it stands there.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(k, _)| k == name).and_then(|(_, v)| v.as_deref())
    }
    pub fn has_field(&self, name: &str) -> bool {
        self.fields.iter().any(|(k, _)| k == name)
    }
    /// Bits of the ECN field that `ecn` asks for.
    pub fn ecn(&self) -> u8 {
        let word = self.fields.iter().find(|(k, _)| k == "ecn").and_then(|(_, v)| v.as_deref());
        match word.unwrap_or("no") {
            "no" => 0,
            "ect1" => 1,
            "ect0" => 2,
            "ce" => 3,
            other => panic!("ecn {other}"),
        }
    }

    /// The options as bytes. `ack_isn` is where acknowledgement numbers count from.
    pub fn option_bytes(&self, ack_isn: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, words) in &self.options {
            let n = |i: usize| words.get(i).map(|w| number(w).unwrap());
            let fixed = |bytes: &[u8], out: &mut Vec<u8>| out.extend_from_slice(bytes);
            match name.as_str() {
                "mss" => {
                    fixed(&[2, 4], &mut out);
                    out.extend_from_slice(&(n(0).unwrap() as u16).to_be_bytes());
                }
                "ws" => fixed(&[3, 3, n(0).unwrap() as u8], &mut out),
                "sackOK" => fixed(&[4, 2], &mut out),
                "ts" | "marked_ts" => {
                    let in_padding = name == "marked_ts";
                    assert!(!in_padding || out.is_empty(), "marked timestamps stand first");
                    out.extend(in_padding.then_some(1));
                    fixed(&[8, 10], &mut out);
                    out.extend_from_slice(&n(0).unwrap().to_be_bytes());
                    out.extend_from_slice(&n(1).unwrap_or(0).to_be_bytes());
                    out.extend(in_padding.then_some(1));
                }
                "sack" => {
                    fixed(&[5, (2 + 8 * words.len()) as u8], &mut out);
                    for w in words {
                        let (start, end) = range(w).unwrap();
                        out.extend_from_slice(&start.wrapping_add(ack_isn).to_be_bytes());
                        out.extend_from_slice(&end.wrapping_add(ack_isn).to_be_bytes());
                    }
                }
                "fo" => fixed(&[34, 10, 1, 2, 3, 4, 5, 6, 7, 8], &mut out),
                "md5" => fixed(&[19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &mut out),
                "ao" => fixed(&[29, 8, 1, 1, 0, 0, 0, 0], &mut out),
                "mptcp" => fixed(&[30, 4, 0x01, 0x81], &mut out),
                "unk" => fixed(&[n(0).unwrap() as u8, 4, 0xab, 0xcd], &mut out),
                "flsyn" => farlink(FARLINK_SYN, &[], &mut out),
                "flsynack" => farlink(FARLINK_SYN_ACK, &[], &mut out),
                "fl" => match (n(0), n(1)) {
                    (Some(ack), Some(window)) => {
                        let mut body = vec![0x13];
                        body.extend_from_slice(&ack.wrapping_add(ack_isn).to_be_bytes());
                        body.extend_from_slice(&(window as u16).to_be_bytes());
                        farlink(FARLINK_DATA, &body, &mut out);
                    }
                    _ => farlink(FARLINK_DATA, &[], &mut out),
                },
                "flraw" => farlink(raw_form(words), &raw_body(words), &mut out),
                "flruns" => farlink(FARLINK_DATA, &runs_body(words), &mut out),
                "flsoft" => {
                    let mut body = vec![0x1b];
                    body.extend_from_slice(&n(0).unwrap_or(0).wrapping_add(ack_isn).to_be_bytes());
                    body.extend_from_slice(&(n(1).unwrap_or(0) as u16).to_be_bytes());
                    body.extend_from_slice(&(n(2).unwrap_or(0) as u16).to_be_bytes());
                    farlink(FARLINK_DATA, &body, &mut out);
                }
                "flcame" => {
                    let mut body = vec![0x14];
                    body.extend_from_slice(&(n(0).unwrap_or(0) as u16).to_be_bytes());
                    body.extend_from_slice(&n(1).unwrap_or(0).to_be_bytes());
                    body.extend_from_slice(&n(2).unwrap_or(0).to_be_bytes());
                    farlink(FARLINK_DATA, &body, &mut out);
                }
                other => panic!("no option is called `{other}`"),
            }
        }
        out
    }

    /// What is other than expected; empty when it fits. `ack_isn` as above.
    pub fn differences(&self, seen: &Seen, ack_isn: u32) -> Vec<String> {
        let mut wrong = Vec::new();
        let s = &seen.segment;
        let mut check = |name: &str, same: bool| {
            if !same {
                wrong.push(name.to_owned());
            }
        };
        check("flags", self.flags == s.flags);
        check("sequence number", self.seq == seen.seq);
        check("length", self.len as usize == s.payload_len);
        check("ack", self.ack.is_none_or(|a| a == seen.ack));
        check("window", self.win.is_none_or(|w| w == s.window));
        check("urgent pointer", self.urg.is_none_or(|u| u == s.urgent));
        let port = self.field("port").map_or(super::PORT_A, |p| p as u16);
        check("port", port == seen.port);
        for (name, words) in &self.options {
            check(&format!("option {name} {}", words.join(" ")), option_fits(name, words, seen, ack_isn));
        }
        for (name, value) in &self.fields {
            let n = || value.as_deref().map_or(0, |v| number(v).unwrap());
            let same = match name.as_str() {
                "ttl" => n() == u32::from(seen.ttl),
                "dscp" => n() == u32::from(s.ip.dscp()),
                "ecn" => self.ecn() == s.ip.ecn().bits(),
                "label" => n() == s.ip.flow_label,
                "df" => s.ip.dont_fragment,
                "nodf" => !s.ip.dont_fragment,
                "ipopt" => s.ip.has_options,
                "gso" => n() == u32::from(seen.offload.gso_size),
                "fill" => seen.payload.iter().all(|b| u32::from(*b) == n()),
                "port" => true,
                other => panic!("no field is called `{other}` in an expectation"),
            };
            check(&format!("field {name}"), same);
        }
        check("super-segment", self.has_field("gso") || seen.offload.gso == Gso::None);
        check("payload", self.has_field("fill") || seen.is_stream);
        wrong
    }
}

fn farlink(form: u16, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&farlink_wire::build::farlink_option(form, body).unwrap());
}

fn option_fits(name: &str, words: &[String], seen: &Seen, ack_isn: u32) -> bool {
    let o = &seen.segment.options;
    let n = |i: usize| words.get(i).map(|w| number(w).unwrap());
    let form = |f: u16| o.farlink.as_ref().is_some_and(|x| x.form == f);
    match name {
        "no" => !option_fits(&words[0], &[], seen, ack_isn),
        "mss" => o.mss.is_some_and(|m| n(0).is_none_or(|x| x == u32::from(m))),
        "ws" => o.window_scale.is_some_and(|m| n(0).is_none_or(|x| x == u32::from(m))),
        "sackOK" => o.sack_permitted,
        "ts" => {
            o.timestamps.is_some_and(|t| n(0).is_none_or(|v| v == t.val) && n(1).is_none_or(|e| e == t.ecr))
        }
        "sack" if words.is_empty() => !seen.sack.is_empty(),
        "sack" => words.iter().map(|w| range(w).unwrap()).collect::<Vec<_>>() == seen.sack,
        "fo" => o.fast_open,
        "md5" => o.md5,
        "ao" => o.ao,
        "mptcp" => o.mptcp,
        "unk" => o.unknown.contains(&(n(0).unwrap() as u8)),
        "flsyn" => form(FARLINK_SYN),
        "flsynack" => form(FARLINK_SYN_ACK),
        "fl" => {
            let told = farlink_told(seen, ack_isn);
            form(FARLINK_DATA)
                && n(0).is_none_or(|a| told.is_some_and(|(far, _)| far == a))
                && n(1).is_none_or(|w| told.is_some_and(|(_, window)| window == w))
        }
        "flraw" => {
            o.farlink.as_ref().is_some_and(|x| x.form == raw_form(words) && x.body[..] == raw_body(words))
        }
        "flruns" => {
            let told = seen.segment.options.farlink.as_ref().map(|o| without_arrival(&o.body));
            told == Some(runs_body(words))
        }
        other => panic!("no option is called `{other}`"),
    }
}

/// A message without the window and what arrived over the link, where it does not tell the far ACK.
fn without_arrival(body: &[u8]) -> Vec<u8> {
    match body {
        [0x12, _, _, rest @ ..] => [&[0x10], rest].concat(),
        [0x14, rest @ ..] if rest.len() >= 10 => [&[0x10], &rest[10..]].concat(),
        [0x16, _, _, rest @ ..] if rest.len() >= 10 => [&[0x10], &rest[10..]].concat(),
        other => other.to_vec(),
    }
}

/// The ExID of `flraw 53 ...`, by its last two digits.
fn raw_form(words: &[String]) -> u16 {
    0xfa00 | u16::from_str_radix(&words[0], 16).unwrap()
}

/// The rest of `flraw`: the body to the byte, in hexadecimal digits.
fn raw_body(words: &[String]) -> Vec<u8> {
    let digits = words[1..].concat();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// A message that tells runs alone.
fn runs_body(words: &[String]) -> Vec<u8> {
    let mut lengths = words.iter().map(|w| number(w).unwrap());
    let unit = lengths.next().unwrap() as u16;
    let mut body = vec![0x10];
    body.extend_from_slice(&unit.to_be_bytes());
    body.extend(lengths.map(|n| 2 * n as u8));
    body
}

/// Far ACK (relative) and window (units of 1024) of a gateway's message that has both, and perhaps
/// what arrived over the link.
pub fn farlink_told(seen: &Seen, ack_isn: u32) -> Option<(u32, u32)> {
    let body = &seen.segment.options.farlink.as_ref()?.body;
    let (&[head, a, b, c, d, w, x], _) = body.as_slice().split_first_chunk::<7>()?;
    (head & !0x04 == 0x13).then_some(())?;
    let far = u32::from_be_bytes([a, b, c, d]).wrapping_sub(ack_isn);
    Some((far, u32::from(u16::from_be_bytes([w, x]))))
}

impl Seen {
    /// Payload of a packet on the wire, bytes: a super-segment is several.
    pub fn packet_payload(&self) -> usize {
        if self.offload.gso_size > 0 { usize::from(self.offload.gso_size) } else { self.payload.len() }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.segment;
        let letters: String =
            LETTERS.iter().filter(|(_, flag)| s.flags.contains(*flag)).map(|(l, _)| *l).collect();
        let end = self.seq.wrapping_add(s.payload_len as u32);
        write!(f, "{} ", if letters.is_empty() { "-" } else { &letters })?;
        write!(f, "{}:{end}({}) ack {} win {}", self.seq, s.payload_len, self.ack, s.window)?;
        if s.flags.urg() || s.urgent != 0 {
            write!(f, " urg {}", s.urgent)?;
        }
        let o = &s.options;
        let mut options = Vec::new();
        options.extend(o.mss.map(|m| format!("mss {m}")));
        options.extend(o.window_scale.map(|m| format!("ws {m}")));
        options.extend(o.sack_permitted.then(|| "sackOK".to_owned()));
        options.extend(o.timestamps.map(|t| format!("ts {} {}", t.val, t.ecr)));
        let blocks: Vec<_> = self.sack.iter().map(|(a, b)| format!("{a}:{b}")).collect();
        options.extend((!blocks.is_empty()).then(|| format!("sack {}", blocks.join(" "))));
        options.extend(o.unknown.iter().map(|k| format!("unk {k}")));
        let flags = [("fo", o.fast_open), ("md5", o.md5), ("ao", o.ao), ("mptcp", o.mptcp)];
        options.extend(flags.iter().filter(|(_, on)| *on).map(|(n, _)| (*n).to_owned()));
        options.extend(o.farlink.as_ref().map(|x| match x.form {
            FARLINK_SYN => format!("flsyn {:02x?}", x.body.as_slice()),
            FARLINK_SYN_ACK => format!("flsynack {:02x?}", x.body.as_slice()),
            _ => format!("fl {:02x?}", x.body.as_slice()),
        }));
        if !options.is_empty() {
            write!(f, " <{}>", options.join(","))?;
        }
        if let Some(shim) = &s.shim {
            write!(f, " {shim:?}")?;
        }
        let gso = if self.offload.gso == Gso::None {
            String::new()
        } else {
            format!(",gso {}", self.offload.gso_size)
        };
        let port = if self.port == super::PORT_A { String::new() } else { format!(",port {}", self.port) };
        let df = if s.ip.dont_fragment { "df" } else { "nodf" };
        write!(f, " {{ttl {},dscp {},ecn {:?},{df}{gso}{port}}}", self.ttl, s.ip.dscp(), s.ip.ecn())?;
        if !self.is_stream {
            write!(f, " NOT THE STREAM'S BYTES: {:?}", &self.payload[..self.payload.len().min(16)])?;
        }
        Ok(())
    }
}
