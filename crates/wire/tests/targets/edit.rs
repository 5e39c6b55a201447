//! Editing: what was asked for changes, nothing else does, and checksums stay as right as they
//! were.

use super::source::{Source, naive_sum, same_sum};
use farlink_wire::options::OptionWalk;
use farlink_wire::{
    ChecksumState, Flags, Offload, PacketBuf, Parsed, Pool, SeqNum, TcpSegment, build, checksum, edit, parse,
    verify_checksums,
};

/// Bytes that say how, then a packet.
pub fn run(data: &[u8]) {
    let mut source = Source(data);
    let (state, steps) = (source.u8() % 3, 1 + source.u8() % 6);
    let mut script = Source(source.bytes(40));
    let packet = source.packet();
    let mut pool = Pool::new(1 << 20);
    let Parsed::Tcp(mut s) = parse(&packet) else { return };
    let mut p = PacketBuf::from_slice(&mut pool, &packet, Offload::default());
    p.offload.checksum = match state {
        0 => ChecksumState::Unverified,
        1 => ChecksumState::Verified,
        _ => {
            write_partial(&mut p, &s);
            ChecksumState::Partial { start: s.ip.header_len, offset: 16 }
        }
    };
    for _ in 0..steps {
        step(&mut p, &s, &mut script);
        let Parsed::Tcp(now) = parse(p.bytes()) else { panic!("no longer TCP") };
        s = now;
    }
    // A segment that belongs to another packet: no panic.
    let mut other = PacketBuf::from_slice(&mut pool, data, p.offload);
    step_blind(&mut other, &s, &mut Source(data));
    let mut short = PacketBuf::from_slice(&mut pool, &packet[..packet.len() / 2], p.offload);
    step_blind(&mut short, &s, &mut Source(data));
}

fn write_partial(p: &mut PacketBuf, s: &TcpSegment) {
    let at = s.tcp_offset();
    let pseudo = checksum::pseudo_header(s.ip.src, s.ip.dst, 6, s.ip.total_len - at as u32);
    p.bytes_mut()[at + 16..at + 18].copy_from_slice(&pseudo.to_be_bytes());
}

fn tcp_check(p: &PacketBuf, s: &TcpSegment) -> u16 {
    let at = s.tcp_offset() + 16;
    u16::from_be_bytes([p.bytes()[at], p.bytes()[at + 1]])
}

/// What the TCP checksum is off by: 0 (or 0xffff) when right.
fn error(p: &PacketBuf, s: &TcpSegment) -> u16 {
    let end = s.ip.total_len as usize;
    let covered = &p.bytes()[s.tcp_offset()..end];
    let pseudo = checksum::pseudo_header(s.ip.src, s.ip.dst, 6, covered.len() as u32);
    if p.offload.is_partial() {
        return checksum::sub(tcp_check(p, s), pseudo);
    }
    checksum::add(naive_sum(covered), pseudo)
}

fn ip_error(p: &PacketBuf, s: &TcpSegment) -> u16 {
    if s.ip.is_v4() { naive_sum(&p.bytes()[..s.tcp_offset()]) } else { 0 }
}

fn step_blind(p: &mut PacketBuf, s: &TcpSegment, script: &mut Source<'_>) {
    for _ in 0..14 {
        let before = p.len();
        apply(p, s, script.u8(), script);
        assert!(p.len() <= before + 40);
    }
}

/// One edit, by number; returns the segment that must be read afterwards, except for lengths and
/// offsets.
fn apply(p: &mut PacketBuf, s: &TcpSegment, op: u8, script: &mut Source<'_>) -> TcpSegment {
    let mut want = s.clone();
    let (value, small) = (script.u32(), script.u16());
    match op % 14 {
        0 => {
            edit::set_seq(p, s, SeqNum(value));
            want.seq = SeqNum(value);
        }
        1 => {
            edit::set_ack(p, s, SeqNum(value));
            want.ack = SeqNum(value);
        }
        2 => {
            edit::set_window(p, s, small);
            want.window = small;
        }
        3 => {
            edit::set_flags(p, s, Flags(small));
            want.flags = Flags(small & Flags::MASK);
        }
        4 => {
            edit::set_urgent(p, s, small);
            want.urgent = small;
        }
        5 => {
            edit::set_timestamp_echo(p, s, value);
            if let Some(t) = &mut want.options.timestamps {
                t.ecr = value;
            }
        }
        6 => {
            edit::set_timestamp_value(p, s, value);
            if let Some(t) = &mut want.options.timestamps {
                t.val = value;
            }
        }
        7 => {
            let mss = small.max(1);
            edit::set_mss(p, s, mss);
            if let Some(m) = &mut want.options.mss {
                *m = mss;
            }
        }
        8 => {
            edit::set_ttl(p, s, small as u8);
            want.ip.ttl = small as u8;
        }
        9 => {
            edit::increment_ttl(p, s);
            want.ip.ttl = s.ip.ttl.saturating_add(1);
        }
        10 => {
            edit::set_traffic_class(p, small as u8);
            want.ip.traffic_class = small as u8;
        }
        11 => {
            // One of ours with a length that none has is unknown, and goes with them.
            let area = p.bytes().get(s.tcp_offset() + 20..s.payload_offset).unwrap_or_default();
            let mut all = farlink_wire::options::OptionWalk::new(area);
            if !all.any(|raw| raw.kind == 254 && !raw.is_farlink()) {
                want.options.unknown.retain(|kind| *kind != 254);
            }
            edit::remove_farlink_option(p, s);
            (want.options.farlink, want.options.xcp, want.options.xcp_sum) = (None, None, None);
        }
        _ => {
            let body = &value.to_be_bytes()[..usize::from(small) % 5];
            let option = build::farlink_option(farlink_wire::FARLINK_DATA, body).unwrap();
            if edit::insert_option(p, s, &option).is_ok() {
                let first = farlink_wire::FarlinkOption {
                    form: farlink_wire::FARLINK_DATA,
                    body: body.iter().copied().collect(),
                };
                if s.options.farlink.is_none() || s.options.malformed || ends_early(&want, p) {
                    want.options.farlink = Some(first);
                }
            }
        }
    }
    want
}

/// Options end with end-of-list somewhere: an inserted option stands in front of the others.
fn ends_early(s: &TcpSegment, p: &PacketBuf) -> bool {
    let Parsed::Tcp(now) = parse(p.bytes()) else { return false };
    let area = &p.bytes()[now.tcp_offset() + 20..now.payload_offset];
    let mut walk = OptionWalk::new(area);
    walk.by_ref().for_each(drop);
    now.tcp_header_len() > s.tcp_header_len() && walk.ended()
}

fn step(p: &mut PacketBuf, s: &TcpSegment, script: &mut Source<'_>) {
    let op = script.u8();
    let before = p.bytes().to_vec();
    let errors = (error(p, s), ip_error(p, s));
    let was_right = verify_checksums(p.bytes(), s, &p.offload);
    let payload = s.payload(p.bytes()).to_vec();
    let want = apply(p, s, op, script);
    let Parsed::Tcp(now) = parse(p.bytes()) else { panic!("no longer TCP after edit {op}") };

    assert!(same_sum(error(p, &now), errors.0), "edit {op}: TCP checksum off by another amount");
    assert!(same_sum(ip_error(p, &now), errors.1), "edit {op}: IP checksum off by another amount");
    assert_eq!(verify_checksums(p.bytes(), &now, &p.offload), was_right);
    assert_eq!(now.payload(p.bytes()), payload, "edit {op}: payload");
    let grown = p.len() as isize - before.len() as isize;
    assert_eq!(now.ip.total_len as isize - s.ip.total_len as isize, grown);
    assert_eq!(now.tcp_header_len() as isize - s.tcp_header_len() as isize, grown);
    assert_eq!(p.bytes()[now.ip.total_len as usize..], before[s.ip.total_len as usize..], "padding");
    let mut got = now.clone();
    got.ip.total_len = want.ip.total_len;
    got.payload_offset = want.payload_offset;
    if s.options.malformed {
        // What follows a broken length is nobody's to compare.
        got.options = want.options.clone();
    }
    assert_eq!(got, want, "edit {op}");

    if op % 14 > 11 && grown > 0 && !has_farlink_options(&before, s) {
        // Taken out again, the packet is what it was.
        edit::remove_farlink_option(p, &now);
        let same =
            |a: &[u8], b: &[u8]| a.len() == b.len() && a.iter().zip(b).filter(|(a, b)| a != b).count() <= 4;
        assert!(same(p.bytes(), &before), "insert and remove");
        let Parsed::Tcp(again) = parse(p.bytes()) else { panic!("no longer TCP") };
        assert_eq!(&again, s);
        assert_eq!(zero_checks(p.bytes(), &again), zero_checks(&before, s));
        assert!(same_sum(error(p, &again), errors.0));
    }
}

/// Something in it looks like an option of Farlink's, and would be taken out with it.
fn has_farlink_options(packet: &[u8], s: &TcpSegment) -> bool {
    let area = &packet[s.tcp_offset() + 20..s.payload_offset];
    s.options.farlink.is_some() || OptionWalk::new(area).any(|option| option.is_farlink())
}

/// The packet without its checksums: 0 and 0xffff may have changed places in one that nobody would
/// send.
fn zero_checks(packet: &[u8], s: &TcpSegment) -> Vec<u8> {
    let mut out = packet.to_vec();
    if s.ip.is_v4() {
        out[10..12].fill(0);
    }
    out[s.tcp_offset() + 16..s.tcp_offset() + 18].fill(0);
    out
}
