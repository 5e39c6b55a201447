//! What the applications at the two ends of a connection do: plain data, made by a plan or by a
//! test.

use farlink_wire::Duration;

/// One connection, or several in turn with the same addresses and ports.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Number of the host that opens it.
    pub client: usize,
    /// Number of the host that is asked.
    pub server: usize,
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// Port at the client.
    pub client_port: u16,
    /// Port at the server; no two entries share one (the server tells them apart by it).
    pub server_port: u16,
    /// When the first SYN is sent, since the start.
    pub start: Duration,
    /// How often the same addresses and ports are used, one after the other.
    pub uses: u32,
    /// Between the end of one use and the SYN of the next.
    pub reuse_gap: Duration,
    /// Nobody listens at the server: the client must be refused.
    pub refused: bool,
    /// What the client and the server do, in this order.
    pub sides: [Side; 2],
}

/// What one end does.
#[derive(Clone, Debug)]
pub struct Side {
    /// Bytes it sends before it closes.
    pub send_bytes: u64,
    /// When it starts to send.
    pub begin: Begin,
    /// Bytes per write.
    pub write_bytes: usize,
    /// Pause after each write.
    pub write_gap: Duration,
    /// When it closes, and how.
    pub close: Close,
    /// Most bytes per read.
    pub read_bytes: usize,
    /// Pause after each read.
    pub read_gap: Duration,
    /// It stops reading at an offset for a time, in order of offset.
    pub read_stops: Vec<(u64, Duration)>,
    /// Receive buffer, in bytes.
    pub rx_buffer_bytes: usize,
    /// Send buffer, in bytes.
    pub tx_buffer_bytes: usize,
    /// Nagle's algorithm.
    pub nagle: bool,
    /// How long its stack delays acknowledgements; `None`: not at all.
    pub ack_delay: Option<Duration>,
    /// Keepalive interval.
    pub keepalive: Duration,
    /// Congestion control of its stack.
    pub congestion: Congestion,
}

/// When an end starts to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// As soon as the connection is up.
    AtOnce,
    /// When it has read so many bytes.
    AfterBytes(u64),
    /// When it has read the end of the other stream.
    AfterEnd,
}

/// When and how an end closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Closes its own direction as soon as all is written.
    WhenSent,
    /// Closes when all is written and the other stream has ended.
    WhenBothDone,
    /// Closes some time after all was written.
    Later(Duration),
    /// Aborts the connection after it has written so many bytes.
    AbortAfterWriting(u64),
    /// Aborts the connection after it has read so many bytes.
    AbortAfterReading(u64),
}

impl Close {
    /// The connection is not going to end in order.
    #[must_use]
    pub fn is_abort(self) -> bool {
        matches!(self, Self::AbortAfterWriting(_) | Self::AbortAfterReading(_))
    }
}

/// Congestion control of a host's stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// None: as much as the window allows.
    None,
    /// Reno.
    Reno,
    /// CUBIC.
    Cubic,
}

impl Default for Side {
    fn default() -> Self {
        Self {
            send_bytes: 0,
            begin: Begin::AtOnce,
            write_bytes: usize::MAX,
            write_gap: Duration::ZERO,
            close: Close::WhenSent,
            read_bytes: usize::MAX,
            read_gap: Duration::ZERO,
            read_stops: Vec::new(),
            rx_buffer_bytes: 65_535,
            tx_buffer_bytes: 65_535,
            nagle: true,
            ack_delay: Some(Duration::from_millis(10)),
            keepalive: Duration::from_secs(30),
            congestion: Congestion::Reno,
        }
    }
}

impl Connection {
    /// A client that sends `up_bytes` and reads `down_bytes`, IPv4, defaults for the rest.
    #[must_use]
    pub fn new(client: usize, server: usize, number: u16, up_bytes: u64, down_bytes: u64) -> Self {
        Self {
            client,
            server,
            v6: false,
            client_port: 30_000 + number,
            server_port: 1_000 + number,
            start: Duration::from_millis(1),
            uses: 1,
            reuse_gap: Duration::ZERO,
            refused: false,
            sides: [
                Side { send_bytes: up_bytes, close: Close::WhenBothDone, ..Side::default() },
                Side { send_bytes: down_bytes, begin: Begin::AfterBytes(up_bytes), ..Side::default() },
            ],
        }
    }

    /// One of the two ends aborts it.
    #[must_use]
    pub fn aborts(&self) -> bool {
        self.sides.iter().any(|s| s.close.is_abort())
    }
}

/// A host's stack and interface.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// MTU of its interface, in bytes.
    pub mtu_bytes: u16,
    /// It offers and takes timestamps.
    pub timestamps: bool,
    /// TSval at time zero.
    pub tsval_start: u32,
    /// Duration of a tick of its timestamp clock.
    pub tsval_tick: Duration,
    /// Its ISNs follow a clock (RFC 6528), as those of all real hosts; else they are random.
    pub isn_clock: bool,
    /// It offers and takes SACK.
    pub sack: bool,
    /// It offers and takes window scaling.
    pub window_scaling: bool,
    /// TTL or hop limit of what it sends.
    pub ttl: u8,
    /// DSCP of what it sends.
    pub dscp: u8,
    /// IPv6 flow label of what it sends.
    pub flow_label: u32,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            mtu_bytes: 1500,
            timestamps: true,
            tsval_start: 1000,
            tsval_tick: Duration::from_millis(1),
            isn_clock: true,
            sack: true,
            window_scaling: true,
            ttl: 64,
            dscp: 0,
            flow_label: 0,
        }
    }
}
