//! One direction of the emulated link: frames off one interface, through a channel, onto the other.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, TryRecvError};

use farlink_channel::{Carried, Channel, ChannelConfig, DATA_BYTES_MIN, Medium, Payload, Stats};
use farlink_wire::{Duration, Instant};
use portable_atomic::AtomicU64;

use super::wire::{ETHERNET_BYTES, Receiver, Sender, WireFaults};
use crate::clock;
use crate::error::Result;
use crate::event_loop::{Interest, Poller, Waker};

const FROM_INTERFACE: u64 = 0;
const FROM_CONTROL: u64 = 1;
/// Frames handed on before new ones are looked for.
const SEND_BATCH: usize = 64;
/// A kernel time stamp that is further away than this was taken across a clock change.
const STAMP_TRUST: Duration = Duration::from_secs(1);
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// An Ethernet frame; the link counts and impairs the IP packet in it.
#[derive(Clone, Debug)]
pub(crate) struct Frame(Vec<u8>);

impl Payload for Frame {
    fn len_bytes(&self) -> usize {
        self.0.len().saturating_sub(ETHERNET_BYTES)
    }
    fn ip_packet(&mut self) -> &mut [u8] {
        self.0.get_mut(ETHERNET_BYTES..).unwrap_or_default()
    }
    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.0.get_mut(ETHERNET_BYTES + bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// Schedules of both directions that begin when the first data arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<AtomicU64>);

impl Held {
    /// None are held.
    const NONE: u64 = 0;
    /// Nothing has arrived yet. Any other number is when it did, nanoseconds of the clock.
    const WAITING: u64 = u64::MAX;

    /// From now on they are.
    pub(crate) fn hold(&self) {
        self.0.store(Self::WAITING, Ordering::SeqCst);
    }
    /// Data arrives, for the first time or not.
    fn note_data(&self, now: Instant) {
        // Another packet has been the first one.
        let _ = self.0.compare_exchange(Self::WAITING, now.as_nanos(), Ordering::SeqCst, Ordering::SeqCst);
    }
    /// When they began.
    fn begun(&self) -> Option<Instant> {
        let at = self.0.load(Ordering::SeqCst);
        (at != Self::NONE && at != Self::WAITING).then_some(Instant::from_nanos(at))
    }
}

/// What the control asks of a direction.
pub(crate) enum Command {
    /// New parameters.
    Configure(Box<ChannelConfig>),
    /// An answer with the present state.
    Report(Outbox<PipeStats>),
    /// The end.
    Stop,
}

/// State of one direction.
#[derive(Clone, Debug)]
pub struct PipeStats {
    /// What the channel counted.
    pub channel: Stats,
    /// What should not have happened.
    pub faults: WireFaults,
    /// Bytes that wait for the link.
    pub queue_bytes: usize,
    /// Whether the link is there now.
    pub is_up: bool,
    /// The parameters in force.
    pub config: ChannelConfig,
    /// What the line has carried by time.
    pub carried: Carried,
    /// How long it has been carrying.
    pub age: Duration,
}

pub(crate) struct Pipe {
    receiver: Receiver,
    sender: Sender,
    channel: Channel<Frame>,
    held: Held,
    /// Latest time that the channel was told.
    latest: Instant,
    outgoing: Vec<Frame>,
    /// Memory of frames that have left.
    spare: Vec<Vec<u8>>,
}

impl Pipe {
    pub(crate) fn open(
        from: u32,
        to: u32,
        config: ChannelConfig,
        seed: u64,
        medium: Option<&Medium>,
        held: Held,
    ) -> Result<Self> {
        let mut channel = Channel::new(config, seed);
        if let Some(medium) = medium {
            channel.share(medium);
        }
        Ok(Self {
            receiver: Receiver::open(from)?,
            sender: Sender::open(to)?,
            channel,
            held,
            latest: clock::now(),
            outgoing: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Carries frames until it is told to stop.
    pub(crate) fn run(mut self, inbox: &Inbox<Command>, waker: &Waker) -> Result<()> {
        let mut poller = Poller::new()?;
        prefer_this_thread();
        poller.add(&self.receiver, FROM_INTERFACE, Interest::Read)?;
        poller.add(waker, FROM_CONTROL, Interest::Read)?;
        loop {
            let deadline = self.channel.poll_timeout();
            let ready = poller.wait(deadline)?;
            let is_told = ready.iter().any(|r| r.token == FROM_CONTROL);
            if is_told {
                waker.clear();
                if !self.obey(inbox) {
                    return Ok(());
                }
            }
            self.begin_held();
            self.take()?;
            self.deliver();
        }
    }

    /// The schedule of this direction begins when the first data has arrived in either.
    fn begin_held(&mut self) {
        let is_held = self.channel.config().start == Instant::FAR_FUTURE;
        if let Some(start) = self.held.begun().filter(|_| is_held) {
            self.channel.update(self.latest.max(start), |config| config.start = start);
        }
    }

    /// Takes a batch of frames into the channel, each at the time at which the kernel got it.
    fn take(&mut self) -> Result<()> {
        let Self { receiver, sender, channel, latest, spare, .. } = self;
        let now = clock::now();
        receiver.receive(|at, bytes| {
            if !is_carried(bytes) {
                // Neighbour resolution is no part of what is emulated: it would cost the first
                // packet a round trip.
                sender.send(std::iter::once(bytes));
                return;
            }
            let is_trusted = now.since(at) < STAMP_TRUST && at.since(now) < STAMP_TRUST;
            *latest = (*latest).max(if is_trusted { at } else { now });
            let mut frame = spare.pop().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(bytes);
            channel.push(*latest, Frame(frame));
        })?;
        Ok(())
    }

    /// Sends what is due.
    fn deliver(&mut self) {
        // Not before a frame that was stamped a moment ahead of this thread's look at the clock.
        self.latest = self.latest.max(clock::now());
        while let Some(frame) = self.channel.pop(self.latest) {
            if frame.len_bytes() > DATA_BYTES_MIN {
                self.held.note_data(self.latest);
            }
            self.outgoing.push(frame);
            if self.outgoing.len() >= SEND_BATCH {
                break;
            }
        }
        self.sender.send(self.outgoing.iter().map(|f| f.0.as_slice()));
        let room = SEND_BATCH.saturating_sub(self.spare.len());
        self.spare.extend(self.outgoing.drain(..).map(|f| f.0).take(room));
    }

    /// Returns whether to go on.
    fn obey(&mut self, inbox: &Inbox<Command>) -> bool {
        loop {
            match inbox.try_recv() {
                Ok(Command::Configure(config)) => {
                    self.latest = self.latest.max(clock::now());
                    self.channel.set_config(self.latest, *config);
                }
                Ok(Command::Report(answer)) => {
                    // Who asked may have gone.
                    let _ = answer.send(self.report());
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn report(&mut self) -> PipeStats {
        self.receiver.count_overruns();
        let (send_failures, send_errno) = self.sender.failures;
        PipeStats {
            channel: self.channel.stats(),
            faults: WireFaults { send_failures, send_errno, ..self.receiver.faults },
            queue_bytes: self.channel.queue_bytes(),
            is_up: self.channel.is_up(self.latest.max(clock::now())),
            config: self.channel.config().clone(),
            carried: self.channel.carried().clone(),
            age: clock::now().since(self.channel.config().start),
        }
    }
}

/// Whether the emulated link carries the frame: every IP packet but neighbour discovery, which is
/// IPv6's ARP.
fn is_carried(frame: &[u8]) -> bool {
    const ICMPV6: u8 = 58;
    let Some((ethernet, packet)) = frame.split_first_chunk::<ETHERNET_BYTES>() else { return false };
    match [ethernet[12], ethernet[13]] {
        ETHERTYPE_IPV4 => true,
        ETHERTYPE_IPV6 => {
            let is_icmp = packet.get(6) == Some(&ICMPV6);
            !(is_icmp && packet.get(40).is_some_and(|kind| (133..=137).contains(kind)))
        }
        _ => false,
    }
}

/// The link is hardware to those who use it: it does not wait for them to leave the CPU. Refused
/// without CAP_SYS_NICE, and then the usual scheduling is good enough on an idle machine.
fn prefer_this_thread() {
    // SAFETY: plain system call on a local value that is plain data, with more fields in some C
    // libraries.
    unsafe {
        let mut parameters: libc::sched_param = mem::zeroed();
        parameters.sched_priority = 1;
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const parameters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_is_carried_and_neighbour_resolution_is_not() {
        let frame = |ethertype: [u8; 2], next: u8, kind: u8| {
            let mut f = vec![0u8; 14 + 60];
            f[12..14].copy_from_slice(&ethertype);
            f[14 + 6] = next;
            f[14 + 40] = kind;
            f
        };
        assert!(is_carried(&frame([8, 0], 0, 0)));
        assert!(is_carried(&frame([0x86, 0xdd], 6, 135)));
        assert!(is_carried(&frame([0x86, 0xdd], 58, 128)), "echo");
        assert!(is_carried(&frame([0x86, 0xdd], 58, 2)), "packet too big");
        assert!(!is_carried(&frame([0x86, 0xdd], 58, 135)), "neighbour solicitation");
        assert!(!is_carried(&frame([8, 6], 0, 0)), "ARP");
        assert!(!is_carried(&[0; 13]));
        let mut f = Frame(frame([8, 0], 0, 0));
        f.flip_bit(9);
        assert_eq!((f.0[14], f.0[15], f.len_bytes()), (0, 2, 60));
    }
}
