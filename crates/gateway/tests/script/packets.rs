//! Packets of the hosts of a script, and of routers: made from the notation, and read back into it.

use core::net::IpAddr;

use farlink_wire::shim::SHIM_PROTOCOL;
use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::{
    ChecksumState, Duration, Gso, IcmpKind, InnerTcp, Offload, Parsed, SegmentHeader, SeqNum, Shim,
    ShimProtocols, checksum, finish_checksums, icmp, parse_with,
};

use super::network::Out;
use super::notation::{Seen, Spec, number};
use super::{Arrival, Host, PORT_A, PORT_B, Script, WINDOW};

impl Script {
    /// The processes of all gateways stand still for so long, or their clocks jump.
    pub fn stand_still(&mut self, time: Duration) {
        self.now += time;
        for i in 0..self.nodes.len() {
            self.with_gateway_at(i, |g, now, net| g.handle_timeout(now, net));
        }
    }

    /// The packets of a segment as they reach the gateway: one hop from their host.
    pub(super) fn packets(&mut self, from: Host, spec: &Spec) -> Result<Vec<(Vec<u8>, Offload)>, String> {
        let port = spec.field("port").map_or(PORT_A, |p| p as u16);
        let (src, dst) = if from == Host::A { (self.a, self.b) } else { (self.b, self.a) };
        let (src_port, dst_port) = if from == Host::A { (port, PORT_B) } else { (PORT_B, port) };
        self.sent += 1;
        let ack_isn = self.origin(from.other(), port);
        let header = SegmentHeader {
            src,
            dst,
            src_port,
            dst_port,
            ttl: (spec.field("ttl").unwrap_or(64) - 1) as u8,
            traffic_class: (spec.field("dscp").unwrap_or(0) as u8) << 2 | spec.ecn(),
            flow_label: spec.field("label").unwrap_or(0),
            ip_id: self.sent as u16,
            dont_fragment: !spec.has_field("nodf") && !spec.has_field("frag"),
            seq: SeqNum(spec.seq.wrapping_add(self.origin(from, port))),
            ack: SeqNum(spec.ack.map_or(0, |a| a.wrapping_add(ack_isn))),
            flags: spec.flags,
            window: spec.win.unwrap_or(if spec.flags.rst() { 0 } else { WINDOW }),
            urgent: spec.urg.unwrap_or(0),
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let first = spec.seq.wrapping_add(u32::from(spec.flags.syn()));
        let payload = match spec.field("fill") {
            Some(byte) => vec![byte as u8; spec.len as usize],
            None => from.bytes(first, spec.len),
        };
        let options = spec.option_bytes(ack_isn);
        let (head, mut offload) =
            header.write_with_options(payload.len(), &options).map_err(|e| e.to_string())?;
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(&payload);
        if let Some(size) = spec.field("gso") {
            offload.gso = if src.is_ipv4() { Gso::Tcp4 } else { Gso::Tcp6 };
            offload.gso_size = size as u16;
            return Ok(vec![(bytes, offload)]);
        }
        finish_checksums(&mut bytes, &offload);
        offload.checksum = ChecksumState::Unverified;
        if spec.has_field("ipopt") {
            add_ip_option(&mut bytes);
        }
        if let Some(shim) = shim_of(spec) {
            add_shim(&mut bytes, &shim);
        }
        if spec.has_field("badsum") {
            *bytes.last_mut().unwrap() ^= 0x40;
        }
        let Some(mtu) = spec.field("frag") else { return Ok(vec![(bytes, offload)]) };
        let mut fragments = Vec::new();
        let mut add = |f: &[u8]| fragments.push((f.to_vec(), Offload::default()));
        farlink_wire::fragment(&bytes, mtu as usize, 77, &mut add).map_err(|e| e.to_string())?;
        Ok(fragments)
    }

    /// An ICMP error from a router on the far side of the gateways, about a packet of `to`'s.
    pub(super) fn router_says(&mut self, to: Host, what: &str) -> Result<(), String> {
        let (kind, rest) = what.split_once(' ').ok_or("which error?")?;
        let (value, about) = rest.split_once(' ').ok_or("which number?")?;
        let (v4, value) = (self.a.is_ipv4(), number(value)?);
        let mut original = match about {
            "later fragment" => self.last_fragment.clone().ok_or("no fragment has arrived")?,
            _ => self.packets(to, &Spec::parse(about)?)?.remove(0).0,
        };
        // A router may quote a later fragment; the function below does not.
        let place = if v4 { 6..8 } else { 42..44 };
        let offset = (about == "later fragment").then(|| original[place.clone()].to_vec());
        if offset.is_some() {
            original[place.clone()].fill(0);
        }
        let router: IpAddr = if v4 { "10.0.3.3".parse().unwrap() } else { "fd00:d::3".parse().unwrap() };
        let mut bytes = Vec::new();
        icmp::build_admin_prohibited(&original, router, &mut bytes).map_err(|e| format!("{e:?}"))?;
        // Changed into the error that is wanted, its checksum made anew.
        let at = if v4 { 20 } else { 40 };
        let (ty, code) = match (kind, v4) {
            ("toobig", true) => (3, 4),
            ("toobig", false) => (2, 0),
            ("unreach", true) => (3, value as u8),
            ("unreach", false) => (1, value as u8),
            _ => return Err(format!("`{kind}` is not toobig or unreach")),
        };
        if let Some(offset) = offset {
            bytes[at + 8..][place].copy_from_slice(&offset);
        }
        bytes[at] = ty;
        bytes[at + 1] = code;
        if kind == "toobig" {
            bytes[at + 4..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        bytes[at + 2..at + 4].fill(0);
        let pseudo = if v4 {
            0
        } else {
            let dst = if to == Host::A { self.a } else { self.b };
            farlink_wire::checksum::pseudo_header(router, dst, 58, (bytes.len() - 40) as u32)
        };
        let sum = !farlink_wire::checksum::add(pseudo, farlink_wire::checksum::sum(&bytes[at..]));
        bytes[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
        self.inject(to.other(), bytes, Offload::default());
        Ok(())
    }

    pub(super) fn read(&self, to: Host, p: &Out) -> Arrival {
        let from = to.other();
        let other = match parse_with(&p.bytes, ShimProtocols::USUAL) {
            Parsed::Tcp(s) => {
                let port = if from == Host::A { s.src_port } else { s.dst_port };
                let relative = |n: SeqNum, of: Host| n.0.wrapping_sub(self.origin(of, port));
                let seq = relative(s.seq, from);
                let payload = s.payload(&p.bytes).to_vec();
                let first = seq.wrapping_add(u32::from(s.flags.syn()));
                return Arrival::Tcp(Box::new(Seen {
                    seq,
                    ack: if s.flags.ack() { relative(s.ack, to) } else { 0 },
                    sack: s
                        .options
                        .sack
                        .iter()
                        .map(|b| (relative(b.start, to), relative(b.end, to)))
                        .collect(),
                    ttl: s.ip.ttl - 1,
                    offload: p.offload,
                    port,
                    is_stream: payload == from.bytes(first, payload.len() as u32),
                    payload,
                    segment: s,
                }));
            }
            Parsed::Icmp(e) => {
                let port = |i: &InnerTcp| if to == Host::A { i.src_port } else { i.dst_port };
                let about = e.inner.map_or(0, |i| i.seq.0.wrapping_sub(self.origin(to, port(&i))));
                match e.kind {
                    IcmpKind::FragmentationNeeded { mtu } | IcmpKind::PacketTooBig { mtu } => {
                        format!("icmp toobig {mtu} about {about}")
                    }
                    IcmpKind::Unreachable { code } => format!("icmp unreach {code} about {about}"),
                    other => format!("icmp {other:?}"),
                }
            }
            Parsed::Fragment(f) => format!("fragment {}:{}", f.offset, f.end()),
            Parsed::Other => {
                let is_marked = farlink_wire::ip::traffic_class(&p.bytes).is_some_and(|class| class & 3 == 3);
                let mark = if is_marked { ", congestion experienced" } else { "" };
                format!("other, {} bytes{mark}", p.bytes.len())
            }
        };
        Arrival::Other(other)
    }
}

/// XCP's own header: `shim 1000` wishes for 1,000 bytes a second more, `ackshim 1000` tells that so
/// much has come of the wishes of the other direction.
fn shim_of(spec: &Spec) -> Option<Shim> {
    let said = spec.field("shim").map(|delta| XcpFields {
        spacing: HeaderTime(0x0080_0000),
        rtt: HeaderTime(0x0199_9999),
        delta_bytes_per_s: delta.cast_signed(),
    });
    let feedback = spec.field("ackshim").map(u32::cast_signed);
    let is_there = said.is_some() || feedback.is_some();
    is_there.then(|| Shim { said, feedback_bytes_per_s: feedback.unwrap_or(0), ..Shim::default() })
}

fn add_shim(bytes: &mut Vec<u8>, shim: &Shim) {
    bytes[9] = SHIM_PROTOCOL;
    bytes.splice(20..20, shim.bytes());
    let len = (bytes.len() as u16).to_be_bytes();
    bytes[2..4].copy_from_slice(&len);
    bytes[10..12].fill(0);
    let check = !checksum::sum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&check.to_be_bytes());
}

/// Puts four bytes of IPv4 no-operations, or an IPv6 header of destination options with padding,
/// before the TCP header.
fn add_ip_option(bytes: &mut Vec<u8>) {
    if bytes[0] >> 4 == 6 {
        let tcp = std::mem::replace(&mut bytes[6], 60);
        bytes.splice(40..40, [tcp, 0, 1, 4, 0, 0, 0, 0]);
        let len = u16::from_be_bytes([bytes[4], bytes[5]]) + 8;
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
    } else {
        bytes[0] += 1;
        bytes.splice(20..20, [1; 4]);
        let len = u16::from_be_bytes([bytes[2], bytes[3]]) + 4;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes[10..12].fill(0);
        let check = !checksum::sum(&bytes[..24]);
        bytes[10..12].copy_from_slice(&check.to_be_bytes());
    }
}
