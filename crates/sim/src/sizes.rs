//! How large a segment may be that a gateway makes.

use farlink_wire::TcpSegment;

/// TCP's own header.
const TCP_HEADER_BYTES: usize = 20;

/// The smallest packets that a word of ICMP makes (Linux: `net.ipv4.route.min_pmtu`).
const LEAST_PATH_BYTES: u32 = 552;

/// A segment fits what the host has said that it takes (`mss`), options deducted, and a packet that
/// nobody cuts. `large`: on its way a link may ask for larger ones, in fragments.
pub fn check_size(s: &TcpSegment, mss: Option<u16>, large: bool) -> Result<(), String> {
    let most = u64::from(mss.unwrap_or(if s.ip.is_v4() { 536 } else { 1220 }));
    let needed = s.payload_len.saturating_add(s.tcp_header_len()).saturating_sub(TCP_HEADER_BYTES) as u64;
    let is_larger = s.payload_len > 0 && needed > most;
    if is_larger && !large {
        return Err(format!("{needed} bytes of options and payload for an MSS of {most} (RFC 6691)"));
    }
    // A router may have asked for less than is believed of ICMP: then they may be cut, as Linux's.
    if !is_larger && !s.ip.dont_fragment && s.ip.total_len > LEAST_PATH_BYTES {
        return Err("DF not set".into());
    }
    Ok(())
}
