//! A host, the leg towards it, and what both hosts agreed on.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU64;

use farlink_wire::{Duration, Instant, SeqNum, TcpSegment, Timestamps};

use crate::bookmark::{Bookmark, bookmarks};
use crate::event::Ends;
use crate::filled::Filled;
use crate::net::{IfaceId, Shown, Via, Way};
use crate::oversizing::Oversizing;
use crate::path_mtu::PathMtu;
use crate::peer::{Message, Peer, WINDOW_UNIT};
use crate::side::Pair;

/// TS.Recent of a host that was silent for longer is worth nothing (RFC 7323 section 5.5).
const STAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);

/// Two stamps differ by up to this more or less than the times do.
const STAMP_GRAIN: Duration = Duration::from_millis(2);

/// What a handshake tells of the round trip over a leg, and what lies behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Handshake {
    /// Nothing.
    #[default]
    Unknown,
    /// A SYN was repeated: nobody knows which one was answered (RFC 6298 section 3, Karn).
    Repeated,
    /// So long.
    Took(Duration),
}

/// A duration in eight bytes, of a nanosecond at least: of each leg there may be very many.
#[derive(Clone, Copy, Debug)]
struct Span(NonZeroU64);

impl Span {
    fn of(duration: Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZeroU64::new(ns).unwrap_or(NonZeroU64::MIN))
    }

    const fn duration(self) -> Duration {
        Duration::from_nanos(self.0.get())
    }
}

/// A host, and the leg towards it.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The host's address.
    pub addr: IpAddr,
    /// The host's port.
    pub port: u16,
    /// The interface by which its packets come in.
    pub came_by: IfaceId,
    /// What the kernel has shown of the newest of them, where it has shown anything.
    shown: Option<Box<Shown>>,
    /// Which way packets to it leave.
    pub out: Way,
    /// How large packets towards it may be.
    pub path_mtu: PathMtu,
    /// Its announced maximum segment size.
    mss: u16,
    /// What the segments show that come for it.
    filled: Filled,
    /// Shift of the windows it announces.
    pub window_scale: u8,
    /// TTL of its newest packet, as it came.
    pub ttl: u8,
    /// DSCP and ECN of its newest packet.
    pub traffic_class: u8,
    /// Flow label of its newest packet.
    pub flow_label: u32,
    /// Its packets have been seen to reach the other host round us, and none has come here since.
    direct: bool,
    /// Its newest TSval.
    ts_val: u32,
    /// When that came.
    heard_at: Instant,
    /// Its TSval to be echoed to it (TS.Recent of RFC 7323).
    ts_recent: u32,
    /// Whether segments to it are larger than a packet; where no link asks for that nothing is
    /// known.
    oversizing: Option<Box<Oversizing>>,
    /// The next gateway on this leg.
    pub peer: Peer,
    /// Its packets leave over a link on which routers say how fast.
    pub(crate) is_over_routers: bool,
    /// What is sent to it goes by that.
    pub(crate) by_routers: bool,
    /// On that link it is said in XCP's own header what is said of that.
    pub(crate) in_shims: bool,
    /// Remembered RTT of this leg, for when a dormant flow wakes.
    srtt: Option<Span>,
    /// See [`Leg::handshake_rtt`].
    handshake_rtt: Option<Span>,
    is_handshake_repeated: bool,
    /// See [`Leg::handshake_waited`], milliseconds: of each leg there may be very many.
    handshake_waited_ms: u16,
    /// Its newest window, in bytes.
    window_bytes: u32,
    /// Where the window ends that a gateway on this leg told last.
    told_edge: Bookmark,
    /// Where the part of it ends that the gateway will be able to pass on in time; `None`: with the
    /// window.
    soft_edge: Bookmark,
    /// The same as the field of the header says it: what the host itself, and the one that it
    /// speaks to, go by.
    field_window_bytes: u32,
}

/// What both hosts agreed on in the handshake.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreed {
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// SACK (RFC 2018).
    pub sack: bool,
    /// Window scaling (RFC 7323).
    pub window_scale: bool,
    /// ECN (RFC 3168).
    pub ecn: bool,
    /// Not of the hosts' own: marks for gateways take no bytes beside timestamps where nothing is
    /// promised.
    pub pads_marks: bool,
    /// Nor this: the client was told a larger MSS than its server said.
    pub mss_raised: bool,
}

impl Agreed {
    /// A mark may stand in the padding of timestamps.
    #[must_use]
    pub const fn marks_padding(self) -> bool {
        self.timestamps && self.pads_marks
    }
}

impl Pair<Leg> {
    /// Addresses and ports of both hosts.
    #[must_use]
    pub fn ends(&self) -> Ends {
        let [client, server] = [&self.a, &self.b].map(|leg| SocketAddr::new(leg.addr, leg.port));
        Ends { client, server }
    }
}

// In the stream that is sent to it.
bookmarks!(Leg { oversizing, told_edge, soft_edge });

/// On most ways the kernel shows nothing.
fn boxed(shown: Shown) -> Option<Box<Shown>> {
    (shown != Shown::default()).then(|| Box::new(shown))
}

impl Leg {
    /// A leg as a host's SYN or SYN-ACK shows it.
    #[must_use]
    pub fn new(now: Instant, s: &TcpSegment, via: Via) -> Self {
        let default_mss = if s.ip.is_v4() { 536 } else { 1220 };
        Self {
            addr: s.ip.src,
            port: s.src_port,
            came_by: via.iface,
            shown: boxed(via.shown),
            out: Way::Ordinary(via.iface),
            path_mtu: PathMtu::default(),
            mss: s.options.mss.unwrap_or(default_mss),
            filled: Filled::default(),
            window_scale: 0,
            ttl: s.ip.ttl,
            traffic_class: s.ip.traffic_class,
            flow_label: s.ip.flow_label,
            direct: false,
            ts_val: s.options.timestamps.map_or(0, |t| t.val),
            heard_at: now,
            ts_recent: s.options.timestamps.map_or(0, |t| t.val),
            oversizing: None,
            peer: Peer::None,
            is_over_routers: false,
            by_routers: false,
            in_shims: false,
            srtt: None,
            handshake_rtt: None,
            is_handshake_repeated: false,
            handshake_waited_ms: 0,
            window_bytes: u32::from(s.window),
            told_edge: Bookmark::NONE,
            soft_edge: Bookmark::NONE,
            field_window_bytes: u32::from(s.window),
        }
    }

    /// The largest packet, bytes: what the route and its routers say, and what the host's MSS does,
    /// as networks of larger packets may lie on the way to it.
    #[must_use]
    pub fn packet_bytes(&self) -> u32 {
        self.path_mtu.bytes().min(u32::from(self.mss()).saturating_add(self.header_bytes()))
    }

    /// The maximum segment size that segments to it keep to: what it announces, or less where the
    /// other host has been told less.
    #[must_use]
    pub fn mss(&self) -> u16 {
        self.filled.mss().map_or(self.mss, |told| told.min(self.mss))
    }

    /// A segment for it has come, see [`Filled::see`]. Returns whether those to it may have another
    /// size now.
    pub fn see_segment(&mut self, bytes: usize, has_more: bool) -> bool {
        let before = self.mss();
        self.filled.see(bytes, has_more) && self.mss() != before
    }

    /// The packets of which the other host is known to send such, bytes.
    #[must_use]
    pub fn seen_packet_bytes(&self) -> u32 {
        u32::from(self.filled.largest()).saturating_add(self.header_bytes())
    }

    /// What is known of whether it takes segments that are larger than a packet.
    #[must_use]
    pub fn oversizing(&self) -> Oversizing {
        self.oversizing.as_deref().copied().unwrap_or_default()
    }

    /// The same, to be changed.
    pub fn oversizing_mut(&mut self) -> &mut Oversizing {
        self.oversizing.get_or_insert_default()
    }

    /// DSCP of its newest packet.
    #[must_use]
    pub fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// The host has spoken: what segments made in its name copy from it.
    pub fn hear(&mut self, now: Instant, s: &TcpSegment) {
        self.ttl = s.ip.ttl;
        self.traffic_class = s.ip.traffic_class;
        self.flow_label = s.ip.flow_label;
        if let Some(t) = s.options.timestamps
            && (t.val.wrapping_sub(self.ts_val) as i32) >= 0
        {
            self.ts_val = t.val;
        }
        self.heard_at = now;
        self.direct = false;
        if !s.flags.syn() {
            self.window_bytes = u32::from(s.window) << self.window_scale;
            self.field_window_bytes = self.window_bytes;
        }
    }

    /// A gateway's own window counts, not the header's: it may be larger, and it may be taken back.
    /// What it told last stands while its segments have no room for it.
    pub fn take_told_window(&mut self, ack: SeqNum, field_bytes: u32, told: Option<&Message>) {
        let Some(message) = told else {
            // A host, or a segment that passed its gateway by.
            *self.told_edge = self.told_edge.filter(|_| self.peer.is_heard());
            *self.soft_edge = self.soft_edge.filter(|_| self.peer.is_heard());
            return;
        };
        if let Some(window) = message.window_bytes {
            // Where both say the same, the header says it more exactly: a window of a few segments
            // may end within a unit.
            let same = field_bytes.checked_sub(window).is_some_and(|more| more < WINDOW_UNIT);
            *self.told_edge = Some(ack + if same { field_bytes } else { window });
            *self.soft_edge = message.soft_window_bytes.map(|soft| ack + soft);
        }
        if let Some(edge) = *self.told_edge {
            self.window_bytes = if edge.after(ack) { edge.since(ack) } else { 0 };
        }
    }

    /// The gateway on this leg has told in the handshake how much it takes at once: what the
    /// header's field says, or more.
    pub fn take_first_window(&mut self, ack: SeqNum, told_bytes: Option<u32>) {
        let told = told_bytes.filter(|bytes| self.peer.is_marked() && *bytes > self.window_bytes);
        if let Some(bytes) = told {
            *self.told_edge = Some(ack + bytes);
            self.window_bytes = bytes;
        }
    }

    /// What the gateway on this leg was told goes with it: the header's window counts.
    pub fn forget_told_window(&mut self) {
        *self.told_edge = None;
        *self.soft_edge = None;
        self.window_bytes = self.field_window_bytes;
    }
    /// All that was sent to it has arrived, and it is not looked after any more how far its stream
    /// goes on.
    pub fn forget_places(&mut self) {
        if let Some(oversizing) = &mut self.oversizing {
            oversizing.forget_places();
        }
    }
    /// Its newest window, in bytes: a gateway's own, where one speaks.
    #[must_use]
    pub fn window_bytes(&self) -> u32 {
        self.window_bytes
    }
    /// Where the part of it ends that the gateway will be able to pass on in time; `None`: with the
    /// window.
    #[must_use]
    pub fn soft_edge(&self) -> Option<SeqNum> {
        *self.soft_edge
    }

    /// When its newest packet came.
    #[must_use]
    pub fn heard_at(&self) -> Instant {
        self.heard_at
    }
    /// It has said something that teaches nothing else.
    pub fn note_heard(&mut self, now: Instant) {
        self.heard_at = now;
    }
    /// The other host echoes a timestamp of this one. Returns whether that is newer than any that
    /// came here: it has gone round us.
    pub fn hear_of(&mut self, ts_echo: u32) -> bool {
        let is_newer = (ts_echo.wrapping_sub(self.ts_val) as i32) > 0;
        if is_newer {
            self.ts_val = ts_echo;
        }
        is_newer
    }
    /// Its timestamp is the one to be echoed to it from now on (RFC 7323 4.3).
    pub fn note_stamp(&mut self, ts_val: u32) {
        self.ts_recent = ts_val;
    }
    /// The timestamp that is echoed to it.
    #[must_use]
    pub fn ts_recent(&self) -> u32 {
        self.ts_recent
    }
    /// Timestamps of a segment in its name to this host.
    #[must_use]
    pub fn timestamps_to(&self, dst: &Self) -> Timestamps {
        Timestamps { val: self.ts_val, ecr: dst.ts_recent }
    }
    /// Its packets reach the other host round us.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }
    /// They have been seen to. Returns whether that is news.
    pub fn see_direct(&mut self) -> bool {
        !core::mem::replace(&mut self.direct, true)
    }

    /// Remembered RTT of this leg; `None`: there is none, or it leads another way now.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt.map(Span::duration)
    }
    /// This is remembered.
    pub fn remember_rtt(&mut self, srtt: Option<Duration>) {
        self.srtt = srtt.map(Span::of);
    }
    /// Round trip of the handshake over this leg and what lies behind it; `None`: not known, or its
    /// SYN was repeated.
    #[must_use]
    pub fn handshake_rtt(&self) -> Option<Duration> {
        self.handshake_rtt.map(Span::duration)
    }
    /// A SYN was repeated: nobody knows which one was answered.
    #[must_use]
    pub fn is_handshake_repeated(&self) -> bool {
        self.is_handshake_repeated
    }
    /// By so much longer than the SYN the packet that completed the handshake waited on its way
    /// here, by this host's clock, if that counts milliseconds.
    #[must_use]
    pub fn handshake_waited(&self) -> Duration {
        Duration::from_millis(self.handshake_waited_ms.into())
    }
    /// Its SYN came at `syn_at`, and this completes the handshake.
    pub fn note_handshake_waited(&mut self, now: Instant, syn_at: Instant, s: &TcpSegment) {
        let Some(t) = s.options.timestamps else { return };
        let counted = Duration::from_millis(t.val.wrapping_sub(self.ts_val).into());
        let waited = now.since(syn_at).saturating_sub(counted + STAMP_GRAIN);
        self.handshake_waited_ms = u16::try_from(waited.as_millis()).unwrap_or(u16::MAX);
    }
    /// The handshake is over, from here.
    pub fn note_handshake(&mut self, handshake: Handshake) {
        self.is_handshake_repeated = handshake == Handshake::Repeated;
        self.handshake_rtt = match handshake {
            Handshake::Took(rtt) => Some(Span::of(rtt)),
            Handshake::Unknown | Handshake::Repeated => None,
        };
    }

    /// Bytes of IP and TCP header without options towards this host.
    #[must_use]
    pub fn header_bytes(&self) -> u32 {
        if self.addr.is_ipv4() { 40 } else { 60 }
    }

    /// Its packets come in so from here on. Returns whether the kernel sends them another way than
    /// before.
    pub fn comes(&mut self, via: Via) -> bool {
        self.came_by = via.iface;
        let before = self.shown.as_deref().copied().unwrap_or_default();
        if before != via.shown {
            self.shown = boxed(via.shown);
        }
        before.out != via.shown.out
    }

    /// How its packets come in.
    #[must_use]
    pub fn via(&self) -> Via {
        Via { iface: self.came_by, shown: self.shown.as_deref().copied().unwrap_or_default() }
    }

    /// A leg of which only a record is left.
    #[must_use]
    pub fn of_record(now: Instant, (addr, port): (IpAddr, u16), via: IfaceId) -> Self {
        Self {
            addr,
            port,
            came_by: via,
            shown: None,
            out: Way::Ordinary(via),
            path_mtu: PathMtu::default(),
            mss: 536,
            filled: Filled::default(),
            window_scale: 0,
            ttl: 63,
            traffic_class: 0,
            flow_label: 0,
            direct: false,
            ts_val: 0,
            heard_at: now,
            ts_recent: 0,
            oversizing: None,
            peer: Peer::None,
            is_over_routers: false,
            by_routers: false,
            in_shims: false,
            srtt: None,
            handshake_rtt: None,
            is_handshake_repeated: false,
            handshake_waited_ms: 0,
            window_bytes: 0,
            told_edge: Bookmark::NONE,
            soft_edge: Bookmark::NONE,
            field_window_bytes: 0,
        }
    }

    /// PAWS (RFC 7323 section 5): its timestamp is older than its newest one. A host that was
    /// silent for 24 days has none.
    #[must_use]
    pub fn is_old_stamp(&self, now: Instant, agreed: Agreed, s: &TcpSegment) -> bool {
        let (true, Some(t)) = (agreed.timestamps, s.options.timestamps) else { return false };
        (t.val.wrapping_sub(self.ts_recent) as i32) < 0 && now.since(self.heard_at) < STAMP_LIFE
    }
}
