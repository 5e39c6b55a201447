//! A packet socket on a host's own device, and a small TCP of our own on top of it: a peer that can
//! do what no kernel does.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::errno::Errno;
use super::host::{Host, NftGuard};
use super::packet::{ACK, FIN, Ip, PSH, Parsed, RST, SYN, Tcp, parse};
use super::sock::{Family, Sock};

/// Sends and receives whole IP packets on the device that leads to the far host.
#[derive(Debug)]
pub struct Wire {
    sock: Sock,
    to: libc::sockaddr_ll,
}

impl Wire {
    /// Opens the device towards `far`; receives only packets of `family` whose destination port is
    /// `port`, and packets in which no port can be seen (fragments, extension headers).
    pub fn open(host: &Host, far: IpAddr, port: u16) -> Result<Wire> {
        let family = if far.is_ipv4() { Family::V4 } else { Family::V6 };
        let ethertype = family.pick(libc::ETH_P_IP, libc::ETH_P_IPV6) as u16;
        let route = host.route_to(far)?;
        let sock = Sock::new(host, libc::AF_PACKET, libc::SOCK_DGRAM, 0)?;
        attach_filter(&sock, family, port)?;
        let name = std::ffi::CString::new(route.dev.clone())?;
        // SAFETY: a NUL-terminated name.
        let index = host.enter(|| unsafe { libc::if_nametoindex(name.as_ptr()) })?;
        // SAFETY: sockaddr_ll is plain data for which all-zero is valid.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_protocol = ethertype.to_be();
        to.sll_ifindex = index as i32;
        let pointer = (&raw const to).cast();
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and length describe the address.
        if unsafe { libc::bind(sock.fd(), pointer, len) } != 0 {
            bail!("binding to {}: {}", route.dev, Errno::last());
        }
        let mac = link_address(host, far, route.via.unwrap_or(far), &route.dev)?;
        to.sll_halen = 6;
        to.sll_addr[..6].copy_from_slice(&mac);
        Ok(Wire { sock, to })
    }

    /// Sends one packet as it is.
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        let to = (&raw const self.to).cast();
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        for _ in 0..100 {
            // SAFETY: pointers and lengths describe the packet and the address.
            let sent =
                unsafe { libc::sendto(self.sock.fd(), packet.as_ptr().cast(), packet.len(), 0, to, len) };
            if sent >= 0 {
                return Ok(());
            }
            match Errno::last() {
                // The device's queue is full: wait for it.
                Errno(libc::ENOBUFS) => std::thread::sleep(Duration::from_millis(1)),
                errno => bail!("sending {} bytes: {errno}", packet.len()),
            }
        }
        bail!("the device's queue stays full")
    }

    /// The next packet within `limit`.
    pub fn recv(&self, limit: Duration) -> Option<Parsed> {
        let deadline = Instant::now() + limit;
        let mut buffer = vec![0; 1 << 17];
        loop {
            let left = deadline.checked_duration_since(Instant::now())?;
            if self.sock.poll(libc::POLLIN, left).ok()? == 0 {
                return None;
            }
            let Ok(len) = self.sock.recv(&mut buffer, libc::MSG_DONTWAIT) else { continue };
            if let Some(parsed) = parse(&buffer[..len]) {
                return Some(parsed);
            }
        }
    }
}

/// The link-layer address of the next hop, asked for when it is not known yet.
fn link_address(host: &Host, far: IpAddr, next: IpAddr, dev: &str) -> Result<[u8; 6]> {
    let family = if far.is_ipv4() { Family::V4 } else { Family::V6 };
    for _ in 0..40 {
        let text = host.ip(&format!("-j neigh show to {next} dev {dev}"))?;
        let value: serde_json::Value = serde_json::from_str(text.trim()).unwrap_or_default();
        if let Some(address) = value[0]["lladdr"].as_str() {
            let mut mac = [0; 6];
            for (byte, digits) in mac.iter_mut().zip(address.split(':')) {
                *byte = u8::from_str_radix(digits, 16)?;
            }
            return Ok(mac);
        }
        // Any packet makes the kernel ask; port 9 is "discard".
        let _ = Sock::udp(host, family)?.send_to(b"?", SocketAddr::new(far, 9), 0);
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("no link-layer address for {next} on {dev}")
}

fn attach_filter(sock: &Sock, family: Family, port: u16) -> Result<()> {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    use libc::{
        BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
    };
    let port = u32::from(port);
    let mut program = match family {
        Family::V4 => vec![
            op(BPF_LD | BPF_H | BPF_ABS, 0, 0, 6),
            op(BPF_JMP | BPF_JSET | BPF_K, 3, 0, 0x1fff), // a later fragment: take it
            op(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 0),
            op(BPF_LD | BPF_H | BPF_IND, 0, 0, 2),
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, port),
            op(BPF_RET | BPF_K, 0, 0, u32::MAX),
            op(BPF_RET | BPF_K, 0, 0, 0),
        ],
        Family::V6 => vec![
            op(BPF_LD | BPF_B | BPF_ABS, 0, 0, 6),
            op(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 6),
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 17), // neither TCP nor UDP: take it
            op(BPF_LD | BPF_H | BPF_ABS, 0, 0, 42),
            op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, port),
            op(BPF_RET | BPF_K, 0, 0, u32::MAX),
            op(BPF_RET | BPF_K, 0, 0, 0),
        ],
    };
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: sock_fprog is plain data whose pointer outlives the call.
    let bytes = unsafe {
        std::slice::from_raw_parts((&raw const program).cast::<u8>(), size_of::<libc::sock_fprog>())
    };
    sock.set_bytes(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, bytes).context("attaching a packet filter")
}

/// A TCP endpoint of our own: stop-and-wait, no congestion control, everything visible. The kernel
/// of its host never sees its packets.
#[derive(Debug)]
pub struct RawTcp<'a> {
    /// The packet socket.
    pub wire: Wire,
    /// Own address.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Next sequence number to send.
    pub snd_nxt: u32,
    /// Next sequence number expected.
    pub rcv_nxt: u32,
    /// Window announced.
    pub window: u16,
    /// Options put on every segment after the handshake.
    pub options: Vec<u8>,
    /// The other end's FIN has been received.
    pub ended: bool,
    _guard: NftGuard<'a>,
}

/// How often and how long the raw peer waits for an answer.
const TRIES: usize = 4;
const TRY_LIMIT: Duration = Duration::from_millis(1500);

impl<'a> RawTcp<'a> {
    /// An endpoint at `local` on `host`, silent until told to do something.
    pub fn new(host: &'a Host, local: SocketAddr, remote: SocketAddr, isn: u32) -> Result<RawTcp<'a>> {
        let port = local.port();
        let chain = format!(
            "chain input {{ type filter hook input priority -10; policy accept; tcp dport {port} drop; }}"
        );
        let guard = host.nft(&format!("flraw_{port}"), &chain)?;
        let wire = Wire::open(host, remote.ip(), port)?;
        Ok(RawTcp {
            wire,
            local,
            remote,
            snd_nxt: isn,
            rcv_nxt: 0,
            window: 65000,
            options: Vec::new(),
            ended: false,
            _guard: guard,
        })
    }

    /// A segment from here with the current numbers.
    pub fn segment(&self, flags: u8, payload: &[u8]) -> Tcp {
        Tcp {
            sport: self.local.port(),
            dport: self.remote.port(),
            seq: self.snd_nxt,
            ack: if flags & ACK != 0 { self.rcv_nxt } else { 0 },
            flags,
            more_flags: 0,
            window: self.window,
            urgent: 0,
            options: self.options.clone(),
            payload: payload.to_vec(),
        }
    }

    /// Sends a segment.
    pub fn send(&self, segment: &Tcp) -> Result<()> {
        self.wire.send(&segment.packet(self.local.ip(), self.remote.ip()))
    }

    /// Sends a segment in IP fragments of `size` bytes.
    pub fn send_fragmented(&self, segment: &Tcp, size: usize, id: u32) -> Result<()> {
        let (src, dst) = (self.local.ip(), self.remote.ip());
        let mut ip = Ip::new(src, dst, 6);
        ip.id = id;
        ip.df = false;
        ip.fragments(&segment.bytes(src, dst), size).iter().try_for_each(|piece| self.wire.send(piece))
    }

    /// The next segment for this endpoint within `limit`, with its IP header.
    pub fn recv_packet(&mut self, limit: Duration) -> Option<(Parsed, Tcp)> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.checked_duration_since(Instant::now())?;
            let packet = self.wire.recv(left)?;
            if packet.protocol != 6 || packet.src != self.remote.ip() || packet.fragment {
                continue;
            }
            let Some(tcp) = Tcp::parse(&packet.payload) else { continue };
            if tcp.dport == self.local.port() && (self.remote.port() == 0 || tcp.sport == self.remote.port())
            {
                return Some((packet, tcp));
            }
        }
    }

    /// The next segment that satisfies `wanted` within `limit`; others are dropped.
    pub fn expect(&mut self, limit: Duration, wanted: impl Fn(&Tcp) -> bool) -> Option<Tcp> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.checked_duration_since(Instant::now())?;
            let (_, tcp) = self.recv_packet(left)?;
            if wanted(&tcp) {
                return Some(tcp);
            }
        }
    }

    /// Opens a connection with these options on the SYN; the SYN-ACK.
    pub fn open(&mut self, options: &[u8]) -> Result<Tcp> {
        let syn = Tcp { options: options.to_vec(), ..self.segment(SYN, &[]) };
        let answer = self.ask(&syn, |tcp| tcp.flags & (SYN | RST) != 0)?.context("no answer to the SYN")?;
        if answer.flags & RST != 0 {
            bail!("refused");
        }
        self.snd_nxt = answer.ack;
        self.rcv_nxt = answer.seq.wrapping_add(1);
        self.send(&self.segment(ACK, &[]))?;
        Ok(answer)
    }

    /// Waits for a SYN and takes the connection with these options on the SYN-ACK; the SYN.
    pub fn accept(&mut self, options: &[u8], limit: Duration) -> Result<Tcp> {
        let syn = self.expect(limit, |tcp| tcp.flags & (SYN | ACK) == SYN).context("no SYN came")?;
        self.remote.set_port(syn.sport);
        self.rcv_nxt = syn.seq.wrapping_add(1);
        let syn_ack = Tcp { options: options.to_vec(), ..self.segment(SYN | ACK, &[]) };
        let wanted = syn_ack.seq.wrapping_add(1);
        // The window of the first ACK is not needed: payload that comes along is sent again by its
        // owner.
        self.ask(&syn_ack, |tcp| tcp.flags & ACK != 0 && tcp.ack == wanted)?
            .context("no ACK of the SYN-ACK")?;
        self.snd_nxt = wanted;
        Ok(syn)
    }

    /// Sends `segment` until an answer satisfies `wanted`.
    pub fn ask(&mut self, segment: &Tcp, wanted: impl Fn(&Tcp) -> bool) -> Result<Option<Tcp>> {
        for _ in 0..TRIES {
            self.send(segment)?;
            if let Some(answer) = self.expect(TRY_LIMIT, &wanted) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Waits until everything up to `snd_nxt` is acknowledged; false if it is not within `limit`.
    pub fn wait_acked(&mut self, limit: Duration) -> bool {
        let wanted = self.snd_nxt;
        self.expect(limit, |tcp| tcp.flags & ACK != 0 && tcp.ack == wanted).is_some()
    }

    /// Sends data in segments of `mss` bytes, a few at a time, repeating what is not acknowledged.
    /// Data that comes the other way meanwhile is not taken.
    pub fn push(&mut self, data: &[u8], mss: usize) -> Result<()> {
        const BATCH: usize = 8;
        for batch in data.chunks(mss * BATCH) {
            let start = self.snd_nxt;
            let end = start.wrapping_add(batch.len() as u32);
            let mut acked = false;
            for _ in 0..TRIES {
                self.snd_nxt = start;
                for piece in batch.chunks(mss) {
                    self.send(&self.segment(ACK | PSH, piece))?;
                    self.snd_nxt = self.snd_nxt.wrapping_add(piece.len() as u32);
                }
                if self.expect(TRY_LIMIT, |tcp| tcp.flags & ACK != 0 && tcp.ack == end).is_some() {
                    acked = true;
                    break;
                }
            }
            if !acked {
                bail!("{} bytes not acknowledged", batch.len());
            }
        }
        Ok(())
    }

    /// Receives in-order data, acknowledging each segment, until `want` bytes, FIN, RST or `limit`.
    pub fn read(&mut self, want: usize, limit: Duration) -> Result<Vec<u8>> {
        let deadline = Instant::now() + limit;
        let mut data = Vec::new();
        while data.len() < want && !self.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some((_, tcp)) = self.recv_packet(left) else { break };
            if tcp.flags & RST != 0 {
                break;
            }
            let ahead = self.rcv_nxt.wrapping_sub(tcp.seq) as usize;
            if ahead < tcp.payload.len() {
                data.extend(&tcp.payload[ahead..]);
                self.rcv_nxt = tcp.seq.wrapping_add(tcp.payload.len() as u32);
            }
            let end = tcp.seq.wrapping_add(tcp.payload.len() as u32);
            if tcp.flags & FIN != 0 && self.rcv_nxt == end {
                self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
                self.ended = true;
            }
            if tcp.seq_len() > 0 {
                self.send(&self.segment(ACK, &[]))?;
            }
        }
        Ok(data)
    }

    /// Sends FIN until it is acknowledged; whether it was.
    pub fn finish(&mut self) -> Result<bool> {
        let fin = self.segment(FIN | ACK, &[]);
        let wanted = self.snd_nxt.wrapping_add(1);
        let acked = self.ask(&fin, |tcp| tcp.flags & ACK != 0 && tcp.ack == wanted)?.is_some();
        self.snd_nxt = wanted;
        Ok(acked)
    }
}
