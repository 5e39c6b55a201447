//! What a Linux host may be told.

use farlink_wire::Duration;

use super::congestion::Kind;

/// Initial window of Linux in segments (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;
/// Linux `net.ipv4.tcp_rmem`, the second number: receive buffer of a new socket.
const RMEM_INITIAL: u64 = 131_072;
/// Linux `net.ipv4.tcp_rmem`, the third number.
const RMEM_MAX: u64 = 33_554_432;
/// Linux `net.ipv4.tcp_wmem`, the third number.
const WMEM_MAX: u64 = 4_194_304;

/// Linux `net.ipv4.tcp_max_orphans` of a machine with 16 GB.
const ORPHANS_MAX: usize = 131_072;

/// Segment size of a host without timestamps on Ethernet, IPv4.
const LEGACY_MSS: u32 = 1460;

/// The stack of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinuxConfig {
    /// MTU of its interface, in bytes.
    pub mtu_bytes: u32,
    /// Congestion control.
    pub congestion: Kind,
    /// Initial window in segments.
    pub initial_window: u32,
    /// Receive window of a new connection, in bytes.
    pub window_bytes: u64,
    /// The largest window, in bytes.
    pub window_max_bytes: u64,
    /// The window grows with what the application reads (`tcp_moderate_rcvbuf`); else it is the
    /// largest at once.
    pub autotunes: bool,
    /// Bytes that may be unacknowledged in its send buffer.
    pub send_buffer_bytes: u64,
    /// It offers and takes timestamps.
    pub timestamps: bool,
    /// It offers and takes SACK.
    pub sack: bool,
    /// It offers and takes window scaling.
    pub window_scaling: bool,
    /// It takes segments that are larger than its MSS, as Linux does.
    pub takes_oversized: bool,
    /// DSCP that its applications have asked for (`IP_TOS`).
    pub dscp: u8,
    /// Its applications have asked for keepalives (`SO_KEEPALIVE`).
    pub keepalive: Option<Keepalive>,
    /// It knows intermediate acknowledgements (Reynolds, AFIT 2006, 3.4.5): what they cover is not
    /// repeated, and not taken for delivered either.
    pub iack: bool,
    /// All that it sends travels in a tunnel to the other host ([`super::tunnel`]).
    pub has_tunnel: bool,
    /// Sockets without an application that it keeps (Linux `net.ipv4.tcp_max_orphans`); a further
    /// one is reset.
    pub orphans_max: usize,
}

/// How a silent connection is asked whether it is still there (Linux `net.ipv4.tcp_keepalive_time`,
/// `_intvl`, `_probes`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// So long nothing has been heard.
    pub idle: Duration,
    /// Between two questions.
    pub interval: Duration,
    /// Questions without an answer, after which the connection is reset.
    pub probes: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), probes: 9 }
    }
}

impl LinuxConfig {
    /// Linux as it comes.
    #[must_use]
    pub fn modern(congestion: Kind) -> Self {
        Self {
            mtu_bytes: 1500,
            congestion,
            initial_window: INITIAL_WINDOW,
            // Half of a receive buffer is window (tcp_adv_win_scale 1).
            window_bytes: RMEM_INITIAL / 2,
            window_max_bytes: RMEM_MAX / 2,
            autotunes: true,
            send_buffer_bytes: WMEM_MAX,
            timestamps: true,
            sack: true,
            window_scaling: true,
            takes_oversized: true,
            dscp: 0,
            keepalive: None,
            iack: false,
            has_tunnel: false,
            orphans_max: ORPHANS_MAX,
        }
    }

    /// A host of the thesis' time: a small fixed window, no scaling, SACK or timestamps, initial
    /// window 1. As in a Linux that is told so by its route, the window of the handshake is the
    /// whole segments that fit, and the one that follows is the next whole segment above (measured:
    /// 7,300 and 8,760 bytes for 8,192).
    #[must_use]
    pub fn legacy(congestion: Kind, window_bytes: u32) -> Self {
        let mss = u64::from(LEGACY_MSS);
        let wanted = u64::from(window_bytes);
        Self {
            initial_window: 1,
            window_bytes: (wanted / mss * mss).max(wanted.min(mss)),
            window_max_bytes: (wanted.div_ceil(mss) * mss).min(65_535),
            autotunes: false,
            send_buffer_bytes: 2 * wanted,
            timestamps: false,
            sack: false,
            window_scaling: false,
            ..Self::modern(congestion)
        }
    }

    /// It shows a window of so many bytes from the first segment on, and no other: its receive
    /// buffer is fixed (`SO_RCVBUF`).
    pub fn set_window(&mut self, bytes: u64) {
        self.window_bytes = bytes;
        self.window_max_bytes = bytes;
        self.autotunes = false;
    }

    /// The window scale that it offers: the least that can say its largest window (Linux
    /// `tcp_select_initial_window`).
    #[must_use]
    pub fn window_shift(&self) -> u8 {
        let buffer = 2 * self.window_max_bytes;
        (0..14).find(|shift| buffer >> shift <= 65_535).unwrap_or(14)
    }
}
