//! Packets as a line of text, in the notation of tcpdump and packetdrill.

use std::fmt::Write;

use farlink_wire::options::{KIND_EXPERIMENT, OptionWalk};
use farlink_wire::tcp::TCP_HEADER_BYTES;
use farlink_wire::{Parsed, SeqNum, TcpSegment};

use crate::packet::on_wire;

/// The sequence numbers that count as zero: of the sender's stream, and of the other one. 0 shows
/// absolute numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origins {
    /// ISN of the sender.
    pub sender: u32,
    /// ISN of the receiver.
    pub receiver: u32,
}

fn relative(n: SeqNum, origin: u32) -> String {
    if origin == 0 {
        return n.0.to_string();
    }
    // Shown signed: a number just below the origin is easier to read as -1.
    i64::from(n.0.wrapping_sub(origin) as i32).to_string()
}

/// Flags as packetdrill writes them, `.` for ACK.
#[must_use]
pub fn flags(s: &TcpSegment) -> String {
    let f = s.flags;
    let mut out = String::new();
    for (set, c) in [
        (f.syn(), 'S'),
        (f.fin(), 'F'),
        (f.rst(), 'R'),
        (f.psh(), 'P'),
        (f.urg(), 'U'),
        (f.ece(), 'E'),
        (f.cwr(), 'W'),
        (f.ae(), 'A'),
        (f.ack(), '.'),
    ] {
        if set {
            out.push(c);
        }
    }
    if out.is_empty() { "-".to_string() } else { out }
}

fn options(bytes: &[u8], s: &TcpSegment, origins: Origins) -> String {
    let area = bytes.get(s.tcp_offset() + TCP_HEADER_BYTES..s.payload_offset).unwrap_or_default();
    let mut items = Vec::new();
    let o = &s.options;
    for option in OptionWalk::new(area) {
        items.push(match option.kind {
            2 => format!("mss {}", o.mss.unwrap_or(0)),
            3 => format!("ws {}", o.window_scale.unwrap_or(0)),
            4 => "sackOK".into(),
            5 => {
                let blocks = o.sack.iter().map(|b| {
                    format!("{}:{}", relative(b.start, origins.receiver), relative(b.end, origins.receiver))
                });
                format!("sack {}", blocks.collect::<Vec<_>>().join(" "))
            }
            8 => o.timestamps.map_or("ts ?".into(), |t| format!("ts {}:{}", t.val, t.ecr)),
            KIND_EXPERIMENT if option.is_farlink() => {
                let hex: String = option.body.iter().map(|b| format!("{b:02x}")).collect();
                format!("farlink {hex}")
            }
            kind => {
                let hex: String = option.body.iter().map(|b| format!("{b:02x}")).collect();
                format!("opt{kind} {hex}")
            }
        });
    }
    items.join(",")
}

/// Only the TCP part: flags, sequence range, acknowledgement, window, options.
#[must_use]
pub fn segment(bytes: &[u8], s: &TcpSegment, origins: Origins) -> String {
    let end = s.seq + s.payload_len as u32;
    let mut out = format!(
        "{} {}:{}({})",
        flags(s),
        relative(s.seq, origins.sender),
        relative(end, origins.sender),
        s.payload_len
    );
    if s.flags.ack() {
        let _ = write!(out, " ack {}", relative(s.ack, origins.receiver));
    }
    let _ = write!(out, " win {}", s.window);
    if s.flags.urg() {
        let _ = write!(out, " urg {}", s.urgent);
    }
    let options = options(bytes, s, origins);
    if !options.is_empty() {
        let _ = write!(out, " <{options}>");
    }
    if let Some(shim) = &s.shim {
        let _ = write!(out, " behind {shim:?}");
    }
    out
}

/// A whole packet of any kind. `origins` gives the ISNs of a TCP segment's connection.
pub fn packet(bytes: &[u8], origins: impl FnOnce(&TcpSegment) -> Origins) -> String {
    match on_wire(bytes) {
        Parsed::Tcp(s) => {
            let o = origins(&s);
            format!(
                "{}.{} > {}.{} {} ttl {}",
                s.ip.src,
                s.src_port,
                s.ip.dst,
                s.dst_port,
                segment(bytes, &s, o),
                s.ip.ttl
            )
        }
        Parsed::Icmp(e) => {
            let about = e.inner.map_or("?".to_string(), |i| {
                format!("{}.{} > {}.{} seq {}", i.src, i.src_port, i.dst, i.dst_port, i.seq.0)
            });
            format!("{} > {} ICMP {:?} about {about}", e.ip.src, e.ip.dst, e.kind)
        }
        Parsed::Fragment(f) => format!(
            "{} > {} fragment id {} offset {} length {} more {}",
            f.ip.src, f.ip.dst, f.id, f.offset, f.payload_len, f.more
        ),
        Parsed::Other => format!("other, {} bytes", bytes.len()),
    }
}
